"""Measure how faces are found in uncut pictures and cut out: python -m benchmarks.cutting make FACES --out=FOLDER.

There is no set of uncut pictures with known faces, so `make` composes one: faces of a folder on larger pictures, each
at a random size and angle and faded into what is around it; a tenth of the pictures have no face. What is around is
made of the corners of other faces, enlarged, under shapes and letters. Then:

    python prepare.py FOLDER/pictures --detect --out=cut --report=cut.html --keep=near_duplicate,outlier
    python -m benchmarks.cutting count FOLDER cut.json

`count` prints recall and precision, by size and, from 64 pixels on, by angle; how the crops lie beside the crops that
the faces were; and how often the guessed colours of hair and eyes are those guessed of the faces themselves. `margin
FACES` prints how the cascade's square lies in faces that are cut out already.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageDraw

from gan import images
from gan.data import detection
from gan.data.faces import open_pack
from gan.quality import colours

SIZE = 96
SIZES, ANGLES = (40, 64, 96, 150, 240, 401), (0, 10, 20, 30, 45, 61)
"""Limits of the rows of the table: pixels of a face's side, and degrees to either side."""
NEAR, LEAST, MOST = 0.25, 0.7, 1.4
"""A crop is of a face if its centre is as near, as a share of the face's side, and its side is between these shares."""


def around(random: np.random.Generator, faces: np.ndarray, width: int, height: int) -> Image.Image:
    """Return a picture without a face, of this size."""

    def corner() -> Image.Image:
        face = faces[random.integers(len(faces))]
        y, x = random.choice([0, SIZE - 28], 2)
        return Image.fromarray(face[y : y + 28, x : x + 28])

    picture = corner().resize((width, height), Image.Resampling.BICUBIC)
    draw = ImageDraw.Draw(picture)
    for _ in range(random.integers(3, 15)):
        side = int(random.integers(40, 500))
        x, y = int(random.integers(-100, width)), int(random.integers(-100, height))
        match random.integers(4):
            case 0:
                piece = corner().resize((side, side), Image.Resampling.BICUBIC)
                picture.paste(piece.rotate(float(random.uniform(0, 360))), (x, y))
            case 1:
                draw.ellipse((x, y, x + side, y + side // 2), tuple(random.integers(0, 256, 3).tolist()))
            case 2:
                for line in range(0, side, 24):
                    draw.text((x, y + line), "".join(map(chr, random.integers(0x61, 0x7B, 20))), "black", font_size=18)
            case _:
                ends = (x, y, int(random.integers(0, width)), int(random.integers(0, height)))
                draw.line(ends, tuple(random.integers(0, 256, 3).tolist()), int(random.integers(1, 9)))
    return picture


def pasted(random: np.random.Generator, picture: Image.Image, face: np.ndarray, taken: list[list[float]]) -> bool:
    """Paste a face at a free place and add centre, side and angle to `taken`; return whether there was a place."""
    side = min(float(np.exp(random.uniform(*np.log([SIZES[0], SIZES[-1] - 1])))), 0.7 * min(picture.size))
    angle = float(random.choice([0, 1], p=[0.4, 0.6]) * random.uniform(-60, 60))
    reach = math.ceil(side / 2 * (math.cos(math.radians(angle)) + abs(math.sin(math.radians(angle)))))
    for _ in range(20):
        x, y = (float(random.uniform(reach, length - reach)) for length in picture.size)
        if all(math.hypot(x - a, y - b) > 0.8 * (side + other) for a, b, other, _ in taken):
            break
    else:
        return False
    whole = round(side)
    large = Image.fromarray(face).resize((whole, whole), Image.Resampling.BICUBIC)
    rows = np.minimum(np.arange(whole) + 0.5, whole - np.arange(whole) - 0.5) / (0.12 * whole)
    fades = np.minimum(1, rows)[:, None] * np.minimum(1, rows)
    mask = Image.fromarray((255 * fades).astype(np.uint8))
    turned, mask = (one.rotate(angle, Image.Resampling.BICUBIC, expand=True) for one in (large, mask))
    picture.paste(turned, (round(x - turned.width / 2), round(y - turned.height / 2)), mask)
    taken.append([x, y, side, angle])
    return True


def make(options: argparse.Namespace) -> None:
    """Write the pictures, the faces on them and where these are."""
    random, faces = np.random.default_rng(options.seed), open_pack(options.source, SIZE).pixels
    order = itertools.cycle(random.permutation(len(faces)).tolist())
    (options.out / "pictures").mkdir(parents=True)
    rows = []
    for i in range(options.n):
        width, height = (int(random.integers(500, 1600)) for _ in range(2))
        picture, taken = around(random, faces, width, height), list[list[float]]()
        for _ in range(0 if i % 10 == 0 else random.choice([1, 2, 3], p=[0.7, 0.2, 0.1])):
            if pasted(random, picture, faces[which := next(order)], taken):
                rows.append([f"{i:04d}.jpg", which, *(round(number, 1) for number in taken[-1])])
        picture.save(options.out / "pictures" / f"{i:04d}.jpg", quality=92)
    with (options.out / "truth.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["file", "face", "x", "y", "side", "angle"], *rows])
    np.save(options.out / "faces.npy", np.stack([faces[row[1]] for row in rows]))


def count(options: argparse.Namespace) -> None:
    """Compare what was cut out with where the faces are."""
    with (options.source / "truth.csv").open(encoding="utf-8") as file:
        truth: list[dict[str, Any]] = [
            {key: text if key == "file" else float(text) for key, text in row.items()} for row in csv.DictReader(file)
        ]
    report = json.loads(options.report.read_text(encoding="utf-8"))
    found, wrong = dict[int, dict[str, Any]](), list[dict[str, Any]]()
    for crop in (row for row in report["manifest"] if row.get("box")):
        left, top, right, _, angle = crop["box"]
        x, y, side = (left + right) / 2, top + (right - left) / 2, right - left
        fits = [
            i
            for i, face in enumerate(truth)
            if face["file"] == Path(crop["source"]).name
            and math.hypot(x - face["x"], y - face["y"]) < NEAR * face["side"]
            and LEAST < side / face["side"] < MOST
        ]
        if not fits or fits[0] in found:
            wrong.append(crop)
            continue
        face = truth[fits[0]]
        turned = math.radians(face["angle"])
        dx, dy = (x - face["x"]) / face["side"], (y - face["y"]) / face["side"]
        crop["at"] = dx * math.cos(turned) - dy * math.sin(turned), dx * math.sin(turned) + dy * math.cos(turned)
        crop["share"], crop["off"] = side / face["side"], face["angle"] + angle
        found[fits[0]] = crop
    kept = len(found) + len(wrong)
    print(f"{len(truth)} faces, {kept} crops, {len(found)} of faces, {len(wrong)} of nothing: "
          f"precision {len(found) / max(kept, 1):.1%}, recall {len(found) / len(truth):.1%}")  # fmt: skip
    for name, limits in (("side", SIZES), ("angle", ANGLES)):
        for least, most in itertools.pairwise(limits):
            of = [
                i
                for i, face in enumerate(truth)
                if least <= abs(face[name]) < most and (name == "side" or face["side"] >= SIZES[1])
            ]
            print(f"  {name} {least:3} to {most:3}: {sum(i in found for i in of):4} of {len(of):4}")
    at = np.array([[*crop["at"], crop["share"], crop["off"]] for crop in found.values()])
    print("percentiles 5, 50, 95 of the crops' place across and down, their side, and degrees left")
    print(np.percentile(at, [5, 50, 95], axis=0).round(3))
    labels(options, truth, found)
    for crop in wrong[:40]:
        print("  nothing:", Path(crop["source"]).name, crop["box"])


def labels(options: argparse.Namespace, truth: list[dict[str, Any]], found: dict[int, dict[str, Any]]) -> None:
    """Compare the colours guessed of the crops with those guessed of the faces that they are of."""
    of, faces = sorted(found), np.load(options.source / "faces.npy")
    crops = [images.load_picture(options.cut / found[i]["file"]) for i in of]
    small = np.stack([np.asarray(Image.fromarray(one).resize((SIZE, SIZE), Image.Resampling.BOX)) for one in crops])
    classifier = colours.load(torch.device("cpu"))
    a, b = (np.asarray(classifier(some)[0]) for some in (faces[of], small))
    for column, known in enumerate(classifier.vocabulary):
        of_faces, of_crops = a[:, column], b[:, column]
        both = (of_faces > 0) & (of_crops > 0)
        print(
            f"  {known[0]}: {(of_faces > 0).sum()} of the faces have a label, {(of_crops > 0).sum()} of the crops, "
            f"{both.sum()} both, of these {(of_faces == of_crops)[both].mean():.1%} the same"
        )
    rows = [row for i in range(min(32, len(of))) for row in (faces[of[i]], small[i])]
    images.save_picture(images.grid(np.stack(rows), 16, 2), options.source / "crops.png")
    print(f"{options.source / 'crops.png'}: faces and, to the right of each, what was cut out")


def margin(options: argparse.Namespace) -> None:
    """Print where the cascade's square lies in faces that are cut out already, and how large it is."""
    pixels, rows = open_pack(options.source, SIZE).pixels, list[tuple[float, float, float]]()
    file, side = detection.cascade(None), 3 * SIZE
    for i in np.random.default_rng(0).permutation(len(pixels))[: options.n]:
        large = Image.fromarray(pixels[i]).resize((side, side), Image.Resampling.BICUBIC)
        whole = detection.cut(large, (-side // 2, -side // 2, side + side // 2, side + side // 2, 0))
        for box in detection.faces(whole, file, 0.0, side // 2):
            x, y, share = (
                (box.left + box.right) / 2 / side - 0.5,
                (box.top + box.bottom) / 2 / side - 0.5,
                box.right - box.left,
            )
            if box.angle == 0 and max(abs(x - 0.5), abs(y - 0.5)) < NEAR:
                rows.append((x, y, share / side))
                break
    print(f"{len(rows)} of {options.n}; percentiles 5, 25, 50, 75, 95 of the centre across and down, and of the side")
    print(np.percentile(rows, [5, 25, 50, 75, 95], axis=0).round(3))


def main() -> None:
    """Run one of the commands."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("make")
    one.set_defaults(run=make)
    one.add_argument("source", type=Path)
    one.add_argument("--out", type=Path, required=True)
    one.add_argument("--n", type=int, default=500)
    one.add_argument("--seed", type=int, default=0)
    one = commands.add_parser("count")
    one.set_defaults(run=count)
    one.add_argument("source", type=Path)
    one.add_argument("report", type=Path)
    one.add_argument("--cut", type=Path, default=Path("cut"))
    one = commands.add_parser("margin")
    one.set_defaults(run=margin)
    one.add_argument("source", type=Path)
    one.add_argument("--n", type=int, default=1000)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
