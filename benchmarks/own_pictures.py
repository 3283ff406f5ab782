"""Compare ways to train on a small data set: python -m benchmarks.own_pictures --data_path=FOLDER --tags=CSV ...

Takes faces of one kind, such as one hair colour, trains on some of them, and measures against the others: the released
generator as it is, and each of the arms, which are options of `train.py --budget`. The numbers thus tell whether a
generator has learned the kind of face and not the individual faces. (If all are from the data set of the released
generator and the encoders, those have seen them before.) `--kind=synthetic` and `--kind=pencil`, pencil drawings of the
synthetic faces, need no data set: 1,148 faces in a style that the released generator never saw. Each measurement is a
JSON line in OUT/runs.jsonl and is not repeated. At the end a Markdown table is printed. Reports, 64 faces of each arm
and the nearest pairs stay in OUT.
"""

from __future__ import annotations

import argparse
import csv
import json
import shlex
import shutil
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageChops, ImageFilter, ImageOps

from benchmarks.quality import METRICS, call, rows_of
from gan.data import synthetic

DRAWN = 1148  # as many as there are blond faces, the kind that was measured first


def synthetic_face(seed: int) -> Image.Image:
    """Draw a synthetic face of 96x96 pixels."""
    return Image.fromarray(synthetic.draw(seed)[0])


def pencil_face(seed: int) -> Image.Image:
    """Draw a synthetic face of 96x96 pixels in pencil, its outlines on cream paper."""
    grey = Image.fromarray(synthetic.draw(seed, 4 * 96)[0]).convert("L").filter(ImageFilter.GaussianBlur(2))
    lines = ImageChops.subtract(grey, grey.filter(ImageFilter.MinFilter(9)))  # how much darker it becomes nearby
    shade = ImageChops.add(ImageChops.invert(ImageOps.autocontrast(lines, 2)), grey.point(lambda v: v * 0.33), 1.3)
    return ImageOps.colorize(ImageOps.autocontrast(shade), "#3a3534", "#f6efe0").resize((96, 96), Image.Resampling.BOX)


STYLES = {"synthetic": synthetic_face, "pencil": pencil_face}


def main() -> None:
    """Split the faces, train, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data_path", type=Path, help="folder with zips of faces")
    parser.add_argument("--tags", type=Path, help="CSV that says of their files what they are: file,...")
    parser.add_argument("--kind", required=True, help="a column and its value, hair=blue; synthetic; pencil")
    parser.add_argument("--faces", type=int, default=400, help="how many are trained on")
    parser.add_argument("--minutes", type=float, default=10, help="of each training")
    parser.add_argument("--seed", type=int, default=0, help="of the choice of faces and of the trainings")
    parser.add_argument("--arms", default="--init=released,", help="options of train.py, with commas between")
    parser.add_argument("--out", type=Path, required=True, help="folder for faces, runs, reports and lines")
    options = parser.parse_args()
    if options.kind not in STYLES and not (options.data_path and options.tags):
        parser.error(f"--kind={options.kind} needs --data_path and --tags")
    options.out = options.out.resolve()
    own, others = sort_faces(options)
    lines = options.out / "runs.jsonl"
    arms = ["released", *(arm.strip() for arm in options.arms.split(","))]
    asked = {name: getattr(options, name) for name in ("kind", "faces", "minutes", "seed")}
    for arm in arms:
        if not any({"arm": arm, **asked}.items() <= row.items() for row in rows_of(lines)):
            found = run(arm, own, others, options)
            with open(lines, "a", encoding="utf-8") as file:
                file.write(json.dumps({"arm": arm, **asked, **found}) + "\n")
    table([row for row in rows_of(lines) if asked.items() <= row.items()], arms)


def sort_faces(options: argparse.Namespace) -> tuple[Path, Path]:
    """Write the faces of the kind into two folders, for training and for measuring; returns both."""
    if options.kind in STYLES:
        names = [f"{seed:04}.png" for seed in range(DRAWN)]
    else:
        column, _, value = options.kind.partition("=")
        with open(options.tags, encoding="utf-8") as file:
            names = sorted(row["file"] for row in csv.DictReader(file) if row[column] == value)
    order = np.random.default_rng(options.seed).permutation(len(names))
    name = f"{options.kind.replace('=', '-')}-{options.faces}-{options.seed}"
    own, others = options.out / name / "own", options.out / name / "others"
    wanted = {names[i]: own if place < options.faces else others for place, i in enumerate(order)}
    for folder in (own, others):
        folder.mkdir(parents=True, exist_ok=True)
    if options.kind in STYLES:
        for seed, member in enumerate(names):
            STYLES[options.kind](seed).save(wanted[member] / member)
        return own, others
    for path in sorted(options.data_path.glob("*.zip")):
        with zipfile.ZipFile(path) as archive:
            for member in archive.namelist():
                if member in wanted:
                    (wanted[member] / Path(member).name).write_bytes(archive.read(member))
    return own, others


def run(arm: str, own: Path, others: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Train, unless the arm is the released generator, and measure."""
    words = shlex.split(arm)
    label = "-".join(word.strip("-").replace("=", "-") for word in words) or "scratch"
    name = f"{options.kind.replace('=', '-')}-{options.faces}-{options.minutes:g}-{options.seed}-{label}"
    report, found, given = options.out / f"{name}.png", {}, []
    if arm != "released":
        given = [f"checkpoints/{name}/latest.pt"]
        words += [f"--data_path={own}", f"--budget={options.minutes}", f"--seed={options.seed}", f"--run={name}"]
        shutil.rmtree(options.out / "checkpoints" / name, ignore_errors=True)  # what an interrupted call has left
        since = time.monotonic()
        call("train.py", words, options.out)
        found["seconds"] = round(time.monotonic() - since, 1)
        log = (options.out / "checkpoints" / name / "log.jsonl").read_text().splitlines()
        found["images_seen"] = json.loads(log[-1])["images_seen"]
    fake = [f"--fake={path}" for path in given]
    call("evaluate.py", [*fake, f"--real={others}", "--pairs", f"--report={report}"], options.out)
    picture = [f"--gen_img={name}-faces.png"]
    call("generate.py", [*(f"--checkpoint={path}" for path in given), *picture], options.out)
    result = json.loads(report.with_suffix(".json").read_text())
    metrics = result["metrics"]
    return {
        **found,
        "n": result["n"],
        **{metric: metrics[metric]["value"] for metric in METRICS},
        "floor": {metric: metrics[metric]["floor"] for metric in METRICS},
        "copying": result["copying"],
    }


def table(rows: list[dict[str, Any]], arms: list[str]) -> None:
    """Print a row for each arm."""
    print(f"| start | images seen | {' | '.join(METRICS.values())} | distance to the nearest face it was trained on |")
    print("| --- " * (3 + len(METRICS)) + "|")
    for arm in arms:
        row = next(row for row in rows if row["arm"] == arm)
        cells = [f"{row[m]:.1f}" if m in ("fd", "swd_x1000") else f"{row[m]:.2f}" for m in METRICS]
        copying = row["copying"]
        ratios = " / ".join(f"{ratio:.2f}" for ratio in copying["percentiles"].values())
        near = f"{ratios}{', COPIES' if copying['copied'] else ''}" if arm != "released" else ""
        print(f"| {arm or 'from nothing'} | {row.get('images_seen', 0):,} | {' | '.join(cells)} | {near} |")
    floor = rows[0]["floor"]
    print(f"| real faces (floor, {rows[0]['n']:,}) | | {' | '.join(f'{floor[m]:.2f}' for m in METRICS)} | |")


if __name__ == "__main__":
    main()
