"""The labels of faces: from class folders, a labels.csv among the faces, or the data set itself. No torch."""

import csv
import io
import os
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from config import SYNTHETIC, DataError, Vocabulary
from gan.data import synthetic, torchvision_data
from gan.data.faces import Pack, names_of
from gan.data.pictures import repaired
from gan.files import printable
from gan.language import lang, text

FILE = "labels.csv"  # in the folder of faces: a column `file`, and one for each kind of label
LEAST = 50  # minimum number of faces in each class folder for folders to be taken as classes by default
MOST = 100  # maximum number of class folders for the same
SPLITS = frozenset("train training test testing val valid validation".split())  # folders of dataset splits
FEWEST = 10  # minimum number of faces in a class; faces of smaller classes count as unlabelled

Labels = tuple[Vocabulary, np.ndarray]
"""The vocabulary, and the codes of each face of a pack, (N, K) int64; see `gan.classes`."""


def labels_of(pack: Pack, data_path: Path, wanted: bool | None, log: Callable[[str], None] = print) -> Labels | None:
    """Return the labels of a pack's faces; see `read` and `learned`."""
    return learned(read(pack, data_path, wanted, log) or {}, np.arange(len(pack.hashes)), data_path, wanted, log)


Texts = dict[str, list[str]]
"""The class of each face as text, by name of the column; the text is empty if the class is unknown."""


def read(pack: Pack, data_path: Path, wanted: bool | None, log: Callable[[str], None] = print) -> Texts | None:
    """Find the labels of a pack's faces.

    Args:
        pack: the faces.
        data_path: their source.
        wanted: None uses a labels.csv, or class folders if each has 50 faces or more; True also uses smaller folders,
            and the labels of synthetic faces and of torchvision datasets; False uses none.
        log: called with a line of text about the labels.

    Raises:
        DataError: the labels cannot be read, or `wanted` is True and there are none.
    """
    if wanted is False:
        return None
    if data_path == SYNTHETIC:
        return _of_synthetic(pack) if wanted else None
    if torchvision_data.is_dataset(data_path):
        return _of_torchvision(pack, data_path) if wanted else None
    if os.path.isfile(table := data_path / FILE):
        found = texts_of(table, names_of(pack), log)
    else:
        found = _of_folders(pack, data_path, bool(wanted), log)
    if found is not None:
        return found
    if wanted:
        raise DataError(
            "--classes: {} has no labels; expected a folder for each class (folders, not zips), or a {} with the "
            "columns file,hair,... beside the faces; python prepare.py --label makes one",
            data_path,
            FILE,
        )
    for folder in sorted(data_path.iterdir()) if data_path.is_dir() else ():
        if os.path.isfile(folder / FILE):
            line = text("{} is used only with --data_path={}")
            log(line.format(printable(str(folder / FILE)), printable(str(folder))))
            break
    return None


def _of_synthetic(pack: Pack) -> Texts:
    """Return the colours that the synthetic faces were drawn with."""
    shown = [synthetic.Attributes(synthetic.Dice(seed)) for seed in range(len(pack.hashes))]
    return {"hair": [one.hair for one in shown], "eyes": [one.eyes for one in shown]}


def _of_torchvision(pack: Pack, data_path: Path) -> Texts:
    """Return the class of each picture of a torchvision dataset; a DataError says that it has none."""
    if (classes := torchvision_data.classes_of(data_path)) is None:
        raise DataError("--classes: torchvision has no class for each picture of {}; leave --classes out", data_path)
    named: Texts = {"class": [classes[int(index)] for index in names_of(pack)]}
    torchvision_data.open_dataset.cache_clear()  # it may hold all pictures
    return named


def learned(
    texts: Texts, training: np.ndarray, data_path: Path, wanted: bool | None, log: Callable[[str], None] = print
) -> Labels | None:
    """Return the labels of the classes that enough training faces have, and report them.

    Faces of smaller classes count as unlabelled; columns without a class are dropped.
    `training` are the indices of the training faces in the pack, (n,).

    Raises:
        DataError: `wanted` is True and no class has enough faces.
    """
    vocabulary, codes = list[tuple[str, ...]](), list[np.ndarray]()
    for column, values in texts.items():
        sizes = Counter(filter(None, (values[int(i)] for i in training)))
        small = sorted(name for name, size in sizes.items() if size < FEWEST)
        classes = sorted(sizes.keys() - set(small))
        if small:
            shown = text(", ").join(f"{printable(name)} ({sizes[name]})" for name in small[:5])
            shown = shown if len(small) <= 5 else text("{} and {} more").format(shown, len(small) - 5)
            few = text("{}: {}: fewer than {} faces each, too few for a class; they count as unlabelled")
            log(few.format(column, shown, FEWEST))
        if not classes:
            log(text("{}: no class is large enough; the column is ignored").format(column))
            continue
        numbers = {name: code for code, name in enumerate(classes, 1)}
        vocabulary.append((column, *classes))
        codes.append(np.array([numbers.get(value, 0) for value in values], np.int64))
        of = text("{:,} of {:,} faces have one").format(sum(sizes[name] for name in classes), len(training))
        shown = text(", ").join([*map(printable, classes[:20]), *(["..."] if len(classes) > 20 else [])])
        line = text("learning {} classes of {} ({}): {}; without: --noclasses")
        log(line.format(len(classes), printable(column), of, shown))
    if vocabulary:
        return tuple(vocabulary), np.stack(codes, axis=1)
    if wanted:
        raise DataError("--classes: no class in {} has {} faces; add faces, or leave the option out", data_path, FEWEST)
    return None


def translated(labels: Labels, vocabulary: Vocabulary) -> np.ndarray:
    """Translate codes (N, K) to another vocabulary by the names of columns and classes; unknown ones become 0."""
    (own, codes), columns = labels, {names[0]: i for i, names in enumerate(labels[0])}
    found = np.zeros((len(codes), len(vocabulary)), np.int64)
    for column, (name, *classes) in enumerate(vocabulary):
        if name in columns:
            numbers = [0, *(1 + classes.index(one) if one in classes else 0 for one in own[columns[name]][1:])]
            found[:, column] = np.array(numbers)[codes[:, columns[name]]]
    return found


def _of_folders(pack: Pack, data_path: Path, wanted: bool, log: Callable[[str], None]) -> Texts | None:
    """Return the class folder of each face, the first folder below the data path, or None.

    Unless `wanted`, folders are used only if all faces lie in one, each has at least `LEAST` faces, there are at most
    `MOST`, and they do not look like dataset splits.
    """
    if not data_path.is_dir() or not any(map(os.path.isdir, data_path.iterdir())):
        return None  # without listing all names
    names = names_of(pack)
    folders = _folders(names)
    sizes = Counter(folders)
    if wanted:
        return {"class": folders} if len(sizes) > 1 else None
    outside, source = sizes.pop("", 0), printable(str(data_path))
    if len(sizes) < 2:
        below = Counter(_folders([name.partition("/")[2] for name in names]))
        if sizes and not outside and "" not in below and len(below) > 1 and min(below.values()) >= LEAST:
            only = printable(str(data_path / names[0].partition("/")[0]))
            log(text("the folders of {} are used as classes only with --data_path={}").format(only, only))
        return None
    least = min(sizes, key=lambda name: sizes[name])
    if outside:
        why = text(": {:,} of the faces lie outside of them").format(outside)
    elif sizes[least] < LEAST:
        why = text(": {} has only {} faces, fewer than {}").format(printable(least), sizes[least], LEAST)
    elif len(sizes) > MOST or all(name.isdigit() or name.lower() in SPLITS for name in sizes):
        why = ""
    else:
        return {"class": folders}
    log(text("the {:,} folders of {} are not used as classes{}; --classes uses them").format(len(sizes), source, why))
    return None


def _folders(names: Sequence[str]) -> list[str]:
    """Return the first folder of each path; empty if there is none, or it is a zip."""
    heads = [name.split("/")[0].strip() if "/" in name else "" for name in names]
    return ["" if head.lower().endswith(".zip") else head for head in heads]


def texts_of(path: Path, names: Sequence[str], log: Callable[[str], None]) -> Texts:
    """Read a labels.csv, which names a file by its path below the data path; a zip counts as a folder."""
    expected = text(
        "expected UTF-8 text with commas: first a line such as file,hair,eyes, then one for each face; fix it, or "
        "ignore it with --noclasses"
    )
    try:
        content = path.read_bytes()
        try:
            table = content.decode("utf-8-sig")
        except UnicodeDecodeError:
            if lang() != "zh":
                raise
            table = content.decode("gb18030")  # in which Excel on a Chinese Windows saves, if not asked for UTF-8
            log(text("{}: not UTF-8; read as GBK").format(path))
        reader = csv.reader(io.StringIO(table, newline=""), strict=True, skipinitialspace=True)
        (_, head), *lines = [(reader.line_num, row) for row in reader] or [(1, [])]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError("{} cannot be read: {}; {}", path, error, expected) from error
    columns = [name.strip() for name in head]
    if "file" not in columns or len(columns) < 2 or len(set(columns)) < len(columns) or not all(columns):
        raise DataError("{}: its first line is {!r}; {}", path, printable(",".join(columns))[:80], expected)
    rows = list[tuple[int, dict[str, str]]]()
    for number, line in lines:
        if line and len(line) != len(columns):
            raise DataError(
                "{}: line {} has {} fields, the first has {}; put text that holds commas in quotes",
                path,
                number,
                len(line),
                len(columns),
            )
        if any(map(str.strip, line)):
            rows.append((number, dict(zip(columns, map(str.strip, line), strict=True))))
    positions, named = {_plain(name): i for i, name in enumerate(names)}, dict[int, int]()
    texts: Texts = {column: [""] * len(names) for column in columns if column != "file"}
    strays = list[str]()
    for number, row in rows:
        name = row.pop("file")
        position = positions.get(_plain(name.replace("\\", "/")), -1)
        if position < 0:
            strays.append(name)
            continue
        if named.setdefault(position, number) != number:
            raise DataError(
                "{}: lines {} and {} both name {}; keep one of them", path, named[position], number, printable(name)
            )
        for column, value in row.items():
            texts[column][position] = value
    if len(strays) == len(rows):
        example = printable(strays[0]) if strays else text("none")
        raise DataError(
            "{}: none of its {:,} files is among the faces; got {}, expected paths below {}, such as {}",
            path,
            len(rows),
            example,
            path.parent,
            printable(names[0]),
        )
    if strays:
        line = text("{}: {:,} of {:,} files are not among the faces, such as {}")
        log(line.format(path, len(strays), len(rows), printable(strays[0])))
    return texts


def _plain(name: str) -> str:
    """Return a path in the form in which paths are compared.

    macOS decomposes letters, tar writes `./` first, and zips of Chinese Windows do not state their encoding.
    """
    return "/".join(unicodedata.normalize("NFC", repaired(part)) for part in name.split("/") if part != ".")
