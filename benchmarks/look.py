"""Count broken faces by eye (docs/look.md has the rule).

python -m benchmarks.look draw --data_path=FOLDER --out=FOLDER NAME=CHECKPOINT ...
    Makes sheets of 16 shuffled, anonymous cells: a number of samples of each generator, a tenth as many real faces, and
    a tenth with planted faults. form.csv beside them is to be filled in once for each look. key.json says what each
    cell is; the observer must not see it. planted-1.png and so on show the planted faults; before anyone looks, leave
    out those that are too faint by making the sheets again with --faint=3,17 (and more --planted). In place of a
    checkpoint, a folder of pictures can be given; they are taken in the order of their names.
python -m benchmarks.look count --out=FOLDER FORM FORM
    Counts two filled forms, as Markdown. --pair=20 also adds them to benchmarks/looks.csv, which has every answer so
    far; in that case, name the generators by the first eight digits of their files' SHA-256.

With --enlarge, all cells have 384 pixels, by the network of `generate.py --enlarge=4`.

For the other question, which faces are real: `draw --real=100 --planted=0 --cells=100 NAME=CHECKPOINT`, and
`count --taken`, whose --pair adds to benchmarks/taken.csv.
The sheets show real faces if the folder's are real: do not publish them.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
from collections import defaultdict
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageDraw

from benchmarks import faults
from config import DataError
from gan.data.faces import Pack, open_pack
from gan.device import choose_device
from gan.encoder import SIZE
from gan.enlarger import TIMES
from gan.play import enlarging
from gan.quality import sampling

SIDE, CELLS, EDGE, HEAD = 4, 16, 8, 20
"""Cells per side of a sheet and per sheet; pixels between cells, and above each for its number."""

ENLARGED = 192
"""Size of an enlarged cell, pixels."""

REAL, PLANTED = "real", "planted: "

ANSWERS = Path(__file__).with_name("looks.csv")
"""Every answer so far: the pair of looks, what the cell is (for a generator, its digest), which one, 0 or 1."""

TAKEN = ANSWERS.with_name("taken.csv")
"""The answers to the other question: 1 means taken for real."""

MISSED, FALSE = 0.2, 0.1
"""A look does not count if it misses more than this share of planted faults, or calls more of the real faces broken."""


def main() -> None:
    """Make sheets or count forms."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    drawing = verbs.add_parser("draw")
    drawing.add_argument("generators", nargs="*", metavar="NAME=CHECKPOINT")
    drawing.add_argument("--data_path", type=Path, required=True, help="real faces")
    drawing.add_argument("--out", type=Path, required=True)
    drawing.add_argument("--cells", type=int, default=128, help="samples of each generator, seeds 0, 1, 2, ...")
    drawing.add_argument("--real", type=int, help="real faces; by default a tenth of the samples")
    drawing.add_argument("--planted", type=int, help="faces with planted faults; by default a tenth of the samples")
    drawing.add_argument("--faint", default="", help="numbers of planted faults to leave out, with commas")
    drawing.add_argument("--seed", type=int, default=0, help="of the choice among real faces, and of the order")
    drawing.add_argument("--enlarge", action="store_true", help="show the cells as the network enlarges them")
    drawing.set_defaults(do=draw)
    counting = verbs.add_parser("count")
    counting.add_argument("forms", nargs="+", type=Path)
    counting.add_argument("--out", type=Path, required=True)
    counting.add_argument("--taken", action="store_true", help="count what was taken for real, not what is broken")
    counting.add_argument("--pair", type=int, help="number under which the answers are kept, see above")
    counting.set_defaults(do=count)
    options = parser.parse_args()
    options.do(options)


def draw(options: argparse.Namespace) -> None:
    """Write the sheets, the form, the key and the planted faults."""
    pack = open_pack(options.data_path, SIZE)
    tenth = math.ceil(options.cells * len(options.generators) / 10)
    real, planted = (tenth if number is None else number for number in (options.real, options.planted))
    faint = {int(number) for number in filter(None, options.faint.split(","))}
    random = np.random.default_rng(options.seed)
    cells: list[tuple[str, str, np.ndarray]] = []  # what it is, which, pixels
    for name, checkpoint in (generator.split("=", 1) for generator in options.generators):
        folder = Path(checkpoint)
        if folder.is_dir() and not any((folder / name).is_file() for name in ("best.pt", "latest.pt")):
            pixels = open_pack(folder, SIZE).pixels[: options.cells]
            if len(pixels) < options.cells:
                raise DataError(f"{folder}: expected {options.cells} pictures or more; found {len(pixels)}")
        else:
            sampler = sampling.load(Path(checkpoint), choose_device(None))
            pixels = np.concatenate(list(sampler.faces(range(options.cells))))
        cells += [(name, f"seed {seed}", face) for seed, face in enumerate(pixels)]
    chosen = random.permutation(len(pack.pixels))
    cells += [(REAL, f"face {index}", pack.pixels[index]) for index in chosen[:real]]
    cells += plant(pack, chosen[real : real + planted], faint, random, options.out)
    order = random.permutation(len(cells))
    key = dict[str, dict[str, str]]()
    for number, start in enumerate(range(0, len(order), CELLS), 1):
        some = [cells[index] for index in order[start : start + CELLS]]
        save(
            sheet([face for *_, face in some], enlarge=options.enlarge),
            options.out / "sheets" / f"sheet-{number:03d}.png",
        )
        key |= {f"{number:03d}-{place:02d}": {"is": kind, "which": of} for place, (kind, of, _) in enumerate(some, 1)}
    (options.out / "key.json").write_text(json.dumps(key, indent=1) + "\n", encoding="utf-8")
    with open(options.out / "form.csv", "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("cell", "broken", "real"), *((cell, "", "") for cell in key)])
    print(f"{len(cells)} cells on {math.ceil(len(cells) / CELLS)} sheets in {options.out / 'sheets'}")


def plant(
    pack: Pack, chosen: np.ndarray, faint: set[int], random: np.random.Generator, out: Path
) -> list[tuple[str, str, np.ndarray]]:
    """Plant faults of each kind in turn in real faces, and leave out the faint ones, which are numbered from 1."""
    if not len(chosen):
        return []
    pixels = pack.pixels[np.sort(chosen)]
    places, kinds = faults.eyes(pixels), list(faults.PLANTED.items())
    spoilt = [spoil(pixels, places, random) for _, spoil in kinds]
    found = [
        (PLANTED + kinds[n % len(kinds)][0], f"number {n + 1}", spoilt[n % len(kinds)][n]) for n in range(len(pixels))
    ]
    for start in range(0, len(found), CELLS):
        shown = sheet([face for *_, face in found[start : start + CELLS]], start)
        save(shown, out / f"planted-{start // CELLS + 1}.png")
    return [cell for number, cell in enumerate(found, 1) if number not in faint]


def sheet(faces: list[np.ndarray], before: int = 0, enlarge: bool = False) -> Image.Image:
    """Draw up to 16 faces, enlarged and numbered from `before` + 1; with `enlarge` by the network."""
    side = TIMES * SIZE if enlarge else ENLARGED
    step = side + EDGE
    picture = Image.new("RGB", (SIDE * step + EDGE, SIDE * (step + HEAD) + EDGE), "white")
    pen = ImageDraw.Draw(picture)
    for number, face in enumerate(faces):
        left, top = number % SIDE * step + EDGE, number // SIDE * (step + HEAD) + EDGE
        pen.text((left, top), str(before + number + 1), "black", font_size=16)
        if enlarge:
            (face,) = enlarging.enlarged(face[None], TIMES, torch.device("cpu"), by_network=True)
        enlarged = Image.fromarray(face).resize((side, side), Image.Resampling.BICUBIC)
        picture.paste(enlarged, (left, top + HEAD))
    return picture


def save(picture: Image.Image, path: Path) -> None:
    """Write a picture, and make its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.save(path)


def count(options: argparse.Namespace) -> None:
    """Print the counts of each look for each generator and for the real faces."""
    key = json.loads((options.out / "key.json").read_text(encoding="utf-8"))
    column = "real" if options.taken else "broken"
    looks = [answers(form, key, column) for form in options.forms]
    kinds = defaultdict[str, list[str]](list)
    for cell, what in key.items():
        kinds[what["is"]].append(cell)
    if not options.taken:
        for form, said in zip(options.forms, looks, strict=True):
            planted = [said[cell] for kind, cells in kinds.items() if kind.startswith(PLANTED) for cell in cells]
            real = [said[cell] for cell in kinds[REAL]]
            valid = not planted or (np.mean(planted) > 1 - MISSED and np.mean(real) < FALSE)
            print(
                f"{form}: found {sum(planted)} of {len(planted)} planted, called {sum(real)} of {len(real)} real ones "
                f"broken: this look {'counts' if valid else 'DOES NOT COUNT'}"
            )
    titles = [f"look {number}" for number in range(1, len(looks) + 1)]
    print(
        f"\n| | cells | {' | '.join(titles)} | {'taken for real' if options.taken else column}, 95 % | agree, kappa |"
    )
    print("| --- " * (len(looks) + 4) + "|")
    for kind, cells in sorted(kinds.items()):
        said = np.array([[look[cell] for cell in cells] for look in looks])
        print(f"| {kind} | {len(cells)} | {' | '.join(map(str, said.sum(1)))} | {' | '.join(summary(said))} |")
    if options.pair is not None:
        rows: list[tuple[Any, ...]] = [
            (options.pair, what["is"], *what["which"].split()[1:], *(look[cell] for look in looks))
            for cell, what in key.items()
            if what["is"] != REAL
        ]
        rows += [(options.pair, REAL, "", *(look[cell] for look in looks)) for cell in kinds[REAL]]
        rows.sort(key=lambda row: (row[1], int(row[2] or 0)))
        with open(TAKEN if options.taken else ANSWERS, "a", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(rows)


def summary(said: np.ndarray) -> tuple[str, str]:
    """Format the mean of answers (looks, cells) with its interval, and the agreement of two looks with kappa."""
    share = said.mean()
    least, most = interval(share, said.shape[1])
    agreed = f"{(said[0] == said[1]).mean():.0%}, {kappa(*said[:2]):.2f}" if len(said) > 1 else ""
    return f"{share:.1%} ({least:.1%} to {most:.1%})", agreed


def answered(pairs: Collection[int]) -> dict[tuple[int, str], np.ndarray]:
    """Read the answers of pairs of looks, 1 is broken: (2, cells), by pair and by what the cells are."""
    said = defaultdict[tuple[int, str], list[list[int]]](list)
    with open(ANSWERS, encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if (pair := int(row["pair"])) in pairs:
                said[pair, row["faces"]].append([int(row["look 1"]), int(row["look 2"])])
    return {cells: np.array(answers).T for cells, answers in said.items()}


def answers(form: Path, key: dict[str, Any], column: str) -> dict[str, int]:
    """Read a form's answers, 0 or 1, by cell.

    Raises:
        SystemExit: a cell is missing, or has another answer.
    """
    with open(form, encoding="utf-8", newline="") as file:
        said = {row["cell"]: row[column].strip() for row in csv.DictReader(file)}
    wrong = [cell for cell in key if said.get(cell) not in ("0", "1")]
    if wrong:
        raise SystemExit(f"{form}: expected 0 or 1 under {column} for each cell; not so for {len(wrong)}: {wrong[:9]}")
    return {cell: int(said[cell]) for cell in key}


def interval(share: float, n: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share of n."""
    z = 1.96
    middle, half = share + z * z / (2 * n), z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return max(0.0, (middle - half) / (1 + z * z / n)), min(1.0, (middle + half) / (1 + z * z / n))


def kappa(one: np.ndarray, other: np.ndarray) -> float:
    """Return Cohen's kappa, the agreement of two looks beyond chance; 1 if both always give the same single answer."""
    chance = one.mean() * other.mean() + (1 - one.mean()) * (1 - other.mean())
    return 1.0 if chance == 1 else float(((one == other).mean() - chance) / (1 - chance))


if __name__ == "__main__":
    main()
