"""Compare the diagnoses of healthy and unhealthy runs with what is expected: python -m benchmarks.health FACES OUT.

Trains each arm with the real `train.py` (48 pixels, three to ten minutes on two cores), applies `gan.watching.health`
to its log after every row, and prints a Markdown table of the options, diagnoses and when they were made. The rows that
the rules need are stored as OUT/<arm>.jsonl, with the options as OUT/<arm>.json; tests/unit/health has those of such a
call. `--only=ARM,ARM` runs some of the arms; an arm whose file exists is not run again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.throughput import ROOT
from config import TrainConfig, restore
from gan.data.faces import open_pack
from gan.watching import health
from gan.watching.curves import Curves

COMMON = ["--image_size=48", "--ngf=48", "--eval_images=5000", "--save_every=10000"]
SETTLED = ["--init=released", "--image_size=96", "--ngf=64", "--lr1=1e-6", "--lr2=1e-6"]
WILD = ["--noprojected", "--penalty=none", "--loss=hinge", "--lr1=2e-3", "--lr2=2e-3", "--beta1=0.9"]
WILD += ["--ema_half_life_images=0"]
ARMS: dict[str, tuple[str, int, list[str], str]] = {
    "well": ("real", 60_000, [], "balanced"),
    "well-1": ("real", 60_000, ["--seed=1"], "balanced"),
    "drawn": ("drawn", 60_000, [], "balanced"),
    "twenty": ("drawn", 0, ["--image_size=96", "--ngf=64", "--budget=20"], "improving"),
    "tenfold": ("real", 30_000, ["--lr2=3e-3"], "balanced"),
    "won": ("real", 70_000, ["--preset=book", "--lr2=2e-3"], "won"),
    "lost": ("real", 25_000, ["--lr1=5e-3", "--lr2=1e-4"], "lost"),
    "collapsed": ("real", 25_000, ["--nz=1"], "collapsed"),
    "fifty": ("50", 40_000, [], "memorised"),
    "oscillating": ("real", 60_000, WILD, "oscillating"),
    "stalled": ("400", 40_000, SETTLED, "stalled"),
}
"""By arm: faces (real: all; a number: that many; drawn: synthetic), images, options, expected diagnosis."""

COLUMNS = ("step", "images_seen", "seconds", "d_accuracy", "variety", "drift")
COLUMNS += ("seen_logit", "held_out_logit", "sample_logit", *health.KEPT_BY)


THEN = ("--lr1=3e-4", "--lr2=3e-4", "--d_encoder=faces", "--head_penalty=0", "--blocks=0", "--nomodulated")
THEN += ("--nolean",)
"""Most of the defaults at the time when the logs were made."""


def main() -> None:
    """Run the arms and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("faces", type=Path, help="folder or zip of some thousand real faces")
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", help="arms, with commas between them")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    print("| run | faces | options | said, at images | expected |\n| --- | --- | --- | --- | --- |", flush=True)
    for arm, (kind, images, options, expected) in ARMS.items():
        if asked.only and arm not in asked.only.split(","):
            continue
        if not (asked.out / f"{arm}.jsonl").is_file():
            trained(arm, faces_of(kind, asked.faces, asked.out), images, options, asked.out)
        said = "; ".join(f"{kind} {images:,}" for images, kind in verdicts(asked.out, arm))
        print(f"| {arm} | {kind} | `{' '.join(options) or 'default'}` | {said} | {expected} |", flush=True)


def faces_of(kind: str, real: Path, out: Path) -> Path:
    """Return the data path of a kind of faces; a number of real ones is written into a folder of its own."""
    if kind == "drawn":
        return Path("synthetic")
    if kind == "real":
        return real.resolve()
    from gan.images import PictureWriter

    folder = out.resolve() / f"faces-{kind}"
    if not folder.is_dir():
        pixels = open_pack(real, 48, out / "packs").pixels
        with PictureWriter() as writer:
            for i in range(int(kind)):
                writer.save(pixels[i], folder / f"{i:05}.png")
    return folder


def trained(arm: str, data_path: Path, images: int, options: list[str], out: Path) -> None:
    """Train an arm, and store the rows of its log and its options."""
    with tempfile.TemporaryDirectory() as folder:
        pack = open_pack(data_path, 48, out / "packs", say=lambda line: None)
        epochs = -(-images // len(pack.split(TrainConfig.holdout)[0]))
        typed = {word.partition("=")[0] for word in options}
        words = [word for word in COMMON if word.partition("=")[0] not in typed]
        if "--preset" not in typed:
            words += [word for word in THEN if word.partition("=")[0] not in typed]
        words += [*options, f"--data_path={data_path}", f"--run={arm}", *([f"--max_epoch={epochs}"] if images else [])]
        with (out / f"{arm}.txt").open("w") as told:
            command = [sys.executable, str(ROOT / "train.py"), *words]
            subprocess.run(command, cwd=folder, check=True, stdout=told, stderr=told)
        keep(Path(folder) / "checkpoints" / arm, arm, out)


def keep(run: Path, arm: str, out: Path) -> None:
    """Store the columns of a run's log that the rules need, and its options."""
    rows = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    kept = [{name: row[name] for name in COLUMNS if name in row} for row in rows]
    described = json.loads((run / "config.json").read_text())
    own = {"data_path": "faces", "init": described["config"]["init"] and "released"}
    described["config"] |= {**own, "eval_metric": "fd"}  # by which runs were judged then
    (out / f"{arm}.json").write_text(json.dumps({name: described[name] for name in ("config", "faces")}) + "\n")
    (out / f"{arm}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in kept))


def verdicts(folder: Path, arm: str) -> list[tuple[int, str]]:
    """Return the diagnoses of a run whose log is in `folder`: images seen and kind at each change."""
    described: dict[str, Any] = json.loads((folder / f"{arm}.json").read_text())
    config, faces = restore(described["config"]), described["faces"]["training"]
    curves, said = Curves(), [(0, "early")]
    for line in (folder / f"{arm}.jsonl").read_text().splitlines():
        row = json.loads(line)
        curves.add(row)
        kind = health.diagnose(curves, config, faces, Path("checkpoints") / arm).kind
        if kind != said[-1][1]:
            said.append((int(row["images_seen"]), kind))
    return said[1:]


if __name__ == "__main__":
    main()
