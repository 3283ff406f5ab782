"""The classes of a run: their names, and the combinations in which its faces have them. No file access.

Labels come in columns, such as hair and eyes. A face's codes are one integer per column: 0 if its class is unknown,
otherwise the index of its class in the column's names.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from config import ConfigError, Vocabulary
from gan.files import printable
from gan.language import text

ROW, MOST_ROWS = 8, 16  # faces in a row of previews with classes, and most rows
NAMED = 20  # most classes that a message lists


@dataclasses.dataclass(frozen=True)
class Classes:
    """The classes that a generator has learned.

    Args:
        vocabulary: for each column its name, followed by its classes; empty without classes.
        rows: the distinct combinations of codes among the faces, (U, V) integers.
        counts: number of faces with each combination, (U,).
    """

    vocabulary: Vocabulary
    rows: np.ndarray
    counts: np.ndarray

    @classmethod
    def of(cls, vocabulary: Vocabulary, codes: np.ndarray) -> Classes:
        """Count the combinations in the codes (N, V) of some faces."""
        return cls(vocabulary, *np.unique(codes, axis=0, return_counts=True)) if vocabulary else NONE

    @classmethod
    def restored(cls, content: Mapping[str, Any]) -> Classes:
        """Read the classes from a checkpoint's content; raise a ValueError if they are invalid."""
        if (known := content.get("classes")) is None:
            return NONE
        vocabulary = content["model"]["vocabulary"]
        if not all(isinstance(name, str) for names in vocabulary for name in names):
            raise ValueError(text("the names of its classes are no text"))
        rows, counts = (known[of].cpu().numpy() for of in ("rows", "counts"))
        sizes = np.array([len(classes) for _, *classes in vocabulary])
        whole = rows.dtype.kind == counts.dtype.kind == "i" and rows.shape == (*counts.shape, len(sizes))
        if not (whole and len(rows) and (rows >= 0).all() and (rows <= sizes).all() and (counts > 0).all()):
            raise ValueError(text("its classes and their counts do not fit together"))
        return cls(vocabulary, rows, counts)

    def content(self) -> dict[str, Any]:
        """Return the classes as the part of a checkpoint from which `restored` reads them."""
        if not self.vocabulary:
            return {}
        return {"classes": {"rows": torch.from_numpy(self.rows), "counts": torch.from_numpy(self.counts)}}

    def of_seeds(self, seeds: Sequence[int], class_filter: Mapping[int, int] | None = None) -> np.ndarray:
        """Draw codes for the faces of given seeds, (N, V), with the frequencies of the training faces.

        `class_filter` fixes the code of some columns; the others are drawn among the faces that have those codes, if
        there are any. Each row depends only on its seed, the classes and the filter.
        """
        fixed = class_filter or {}
        rows, counts = self.rows, self.counts
        fits = np.all([rows[:, column] == code for column, code in fixed.items()], axis=0) if fixed else np.array([])
        if fits.any():
            rows, counts = rows[fits], counts[fits]
        ends = np.cumsum(counts)
        points = [np.random.default_rng([seed, *b"classes"]).integers(ends[-1]) for seed in seeds]
        codes = rows[np.searchsorted(ends, points, side="right")]
        for column, code in fixed.items():
            codes[:, column] = code
        return codes

    def draw(self, random: np.random.Generator, n: int) -> np.ndarray:
        """Draw codes for n random faces: (n, V)."""
        return self.rows[np.searchsorted(np.cumsum(self.counts), random.integers(self.counts.sum(), size=n), "right")]

    def previewed(self) -> list[int]:
        """Return the codes of the first column that have a row in a run's previews: the 16 most frequent at most."""
        if not self.vocabulary:
            return []
        return sorted(sorted(range(1, len(self.vocabulary[0])), key=lambda code: -self.number(0, code))[:MOST_ROWS])

    def previews(self) -> tuple[list[int], np.ndarray]:
        """Return the seeds and codes of a run's previews: seeds 0 to 63; with classes, seeds 0 to 7 for each."""
        if not self.vocabulary:
            return list(range(64)), np.zeros((64, 0), np.int64)
        rows = [self.of_seeds(range(ROW), {0: code}) for code in self.previewed()]
        return [seed for _ in rows for seed in range(ROW)], np.concatenate(rows)

    def learned(self, colours: Mapping[str, str]) -> dict[int, int]:
        """Return the code, by column, of each requested colour, of hair or eyes by name, that is a class."""
        return {
            column: 1 + known.index(one_of(colours[name], known, text("colour")))
            for column, (name, *known) in enumerate(self.vocabulary)
            if name in colours and colours[name].casefold() in map(str.casefold, known)
        }

    def number(self, column: int, code: int) -> int:
        """Return the number of faces that have a class."""
        return int(self.counts[self.rows[:, column] == code].sum())

    def parse(self, asked: str) -> tuple[dict[int, int], dict[int, int]]:
        """Parse the classes a user asks for, such as `hair:blue,eyes:red`. A single column's name may be left out.

        Returns:
            The code by column; and the same for the end of ranges such as `hair:blue..red`.

        Raises:
            ConfigError: a column or class is unknown, or a column is named twice.
        """
        columns = [names[0] for names in self.vocabulary]
        if not columns:
            raise ConfigError(
                "--class: this generator knows no classes; give a run that was trained with some: "
                "--checkpoint=checkpoints/RUN"
            )
        before_columns = r",(?=\s*(?:" + "|".join(map(re.escape, columns)) + r")\s*:)"
        try:
            found = [self._asked(part) for part in re.split(before_columns, asked, flags=re.IGNORECASE)]
        except ConfigError:  # assume that names hold no commas, so that the error names the invalid part
            found = [self._asked(part) for part in asked.split(",") if part.strip()] or [self._asked("")]
        for column, *_ in found:
            if [one for one, *_ in found].count(column) > 1:
                raise ConfigError("--class: {} is given twice; give it once", columns[column])
        return {column: first for column, first, _ in found}, {column: last for column, _, last in found}

    def _asked(self, part: str) -> tuple[int, int, int]:
        """Parse one part of a user's request: return the column, and the codes at the start and end of its range."""
        part, columns = part.strip(), [names[0] for names in self.vocabulary]
        name, colon, wanted = (word.strip() for word in part.partition(":"))
        if len(columns) == 1 and (not colon or name.casefold() != columns[0].casefold()):
            name, wanted = columns[0], part
        if not wanted:
            raise ConfigError(
                "--class: expected COLUMN:CLASS, such as {}:{}; got {!r}", columns[0], self.vocabulary[0][1], part
            )
        column = columns.index(one_of(name, columns, text("column")))
        name, *known = self.vocabulary[column]
        ends = [wanted] if wanted.casefold() in map(str.casefold, known) else [*wanted.split("..", 1), wanted][:2]
        codes = [1 + known.index(one_of(end.strip(), known, text("class of {}").format(name))) for end in ends]
        return column, codes[0], codes[-1]

    def table(self) -> str:
        """List the columns and their classes as text, with the number of faces of each class."""
        lines = []
        for column, (name, *classes) in enumerate(self.vocabulary):
            numbers = (f"{printable(one)} {self.number(column, code):,}" for code, one in enumerate(classes, 1))
            shown = text(", ").join(numbers)
            unknown = self.number(column, 0)
            more = text("; not labelled {:,}").format(unknown) if unknown else ""
            lines.append(f"{printable(name)}: {shown}{more}")
        return "\n".join(lines)


NONE = Classes((), np.zeros((1, 0), np.int64), np.ones(1, np.int64))


def one_of(word: str, known: Sequence[str], what: str, option: str = "class") -> str:
    """Return the one of the known names that a word means, ignoring case; raise a ConfigError if there is none."""
    folded = {name.casefold(): name for name in known}
    if word in known or word.casefold() in folded:
        return word if word in known else folded[word.casefold()]
    near = difflib.get_close_matches(word.casefold(), folded, n=1)
    some = ", ".join(known[:NAMED]) + (text(", ...; all of them: --class") if len(known) > NAMED else "")
    do = text("did you mean {}?").format(folded[near[0]]) if near else text("there are {}").format(some)
    raise ConfigError("--{}: no {} is called {!r}; {}", option, what, word, do)
