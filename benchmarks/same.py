"""Check that the fast training step learns as well as a plain one: quality after the same number of images.

python -m benchmarks.same FACES OUT [SEEDS]       FACES: a folder of faces in class folders

Trains the book's networks and losses at 48 pixels (preset book64) on 25,600 images with each seed, by
benchmarks/plain.py in fp32 and by train.py in its own precision and in fp32. Then evaluate.py compares 5,000 faces of
each with as many real ones. Prints a table.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
IMAGES, SIZE, PRESET = 25_600, 48, "book64"
METRICS = "fd", "recall", "coverage", "swd_x1000"


def call(script: str, *words: object, cwd: Path) -> None:
    """Run a script."""
    command = [sys.executable, str(ROOT / script), *map(str, words)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(command, cwd=cwd, env=env, check=True, stdout=sys.stderr)


def ours(faces: Path, seed: int, out: Path, *more: str) -> Path:
    """Train with train.py and generate with generate.py; returns the folder with the faces."""
    name = f"ours{''.join(more)}-{seed}".replace("=", "-")
    n = sum(path.is_file() for path in faces.rglob("*"))
    options = f"--preset={PRESET} --image_size={SIZE} --eval_images=0 --holdout=0 --plot_every=0"
    epochs = -(-IMAGES // n)  # as `n` is a divisor of IMAGES, exactly so many
    call(
        "train.py",
        *options.split(),
        *more,
        f"--max_epoch={epochs}",
        f"--seed={seed}",
        f"--data_path={faces}",
        f"--run={name}",
        cwd=out,
    )
    run = f"--checkpoint=checkpoints/{name}"
    call("generate.py", run, "--nogen=5000", f"--outdir={name}", f"--gen_img={name}.png", cwd=out)
    return out / name


def written_plainly(faces: Path, seed: int, out: Path) -> Path:
    """Train and generate with plain.py; returns the folder with the faces."""
    folder = out / f"plain-{seed}"
    call("benchmarks/plain.py", "train", faces, PRESET, SIZE, IMAGES, seed, folder, cwd=out)
    return folder


def main() -> None:
    """Train, generate, measure and compare."""
    faces, out = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    seeds = range(int(sys.argv[3]) if len(sys.argv) > 3 else 2)
    out.mkdir(parents=True, exist_ok=True)
    arms = {
        "written plainly, fp32": lambda seed: written_plainly(faces, seed, out),
        "train.py": lambda seed: ours(faces, seed, out),
        "train.py --precision=fp32": lambda seed: ours(faces, seed, out, "--precision=fp32"),
    }
    found: dict[str, list[dict[str, float]]] = {name: [] for name in arms}
    for seed in seeds:
        for name, arm in arms.items():
            folder = arm(seed)
            report = folder.with_name(f"{folder.name}-report.png")
            size = f"--image_size={SIZE}"
            call("evaluate.py", f"--fake={folder}", f"--real={faces}", size, f"--report={report}", cwd=out)
            metrics = json.loads(report.with_suffix(".json").read_text())["metrics"]
            found[name].append({metric: metrics[metric]["value"] for metric in METRICS})
            print(name, seed, found[name][-1], flush=True)
    print(f"\n| {IMAGES:,} images, {SIZE} pixels, seeds {len(seeds)} | FD | recall | coverage | SWD |")
    print("| --- | --- | --- | --- | --- |")
    for name, rows in found.items():
        cells = []
        for metric in METRICS:
            values = [row[metric] for row in rows]
            cells.append(f"{statistics.mean(values):.3g} ({min(values):.3g} to {max(values):.3g})")
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
