"""Train with every loss on small synthetic faces, two minutes each: python -m benchmarks.losses [--out=FOLDER].

Runs the real `train.py` and prints a Markdown table. *Variety* is the mean distance between two samples, in pixels,
divided by that between two synthetic faces: an arm with less than a half counts as collapsed. *Nearness* is the mean
distance from a sample to the nearest of 2,000 synthetic faces, divided by that of other synthetic faces: it is large if
samples are not faces. The last grid of each arm is stored in FOLDER for inspection.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

from gan.data import synthetic
from gan.quality import sampling
from gan.quality.metrics import nearest

ROOT = Path(__file__).resolve().parent.parent
SMALL = "--data_path=synthetic --image_size=32 --ngf=32 --ndf=32 --batch_size=32 --nogpu --plot_every=100"
ARMS = {
    "rp (the default)": "",
    "bce": "--loss=bce",
    "hinge": "--loss=hinge",
    "rahinge": "--loss=rahinge",
    "wgan": "--preset=wgan",
    "wgan-gp": "--preset=wgan-gp",
    "book, batch 32": "--preset=book --g_every=1",
    "book2, batch 32": "--preset=book2",
    "resnet": "--arch=resnet --widths=128,64,32",
}
SAMPLES = 500


def main() -> None:
    """Train, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=2, help="of each arm")
    parser.add_argument("--out", type=Path, help="folder for the last grids")
    parser.add_argument("--arms", default="", help="some of them, with commas between; by default all")
    options = parser.parse_args()
    chosen = [arm for arm in ARMS if not options.arms or arm.split(",")[0].split(" ")[0] in options.arms.split(",")]
    faces = drawn(range(2000))
    others = drawn(range(20_000, 20_000 + SAMPLES))
    print("| loss | options | images | images/s | logit gap | variety | nearness | collapsed |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        for arm in chosen:
            run = Path(folder) / "checkpoints" / "run"
            words = [*SMALL.split(), *ARMS[arm].split(), f"--budget={options.minutes}", "--run=run"]
            command = [sys.executable, str(ROOT / "train.py"), *words]
            subprocess.run(command, cwd=folder, check=True, capture_output=True)
            row = json.loads((run / "log.jsonl").read_text().splitlines()[-1])
            samples = np.concatenate(list(sampling.load(run, torch.device("cpu")).faces(range(SAMPLES))))
            samples = flat(samples)
            variety = spread(samples) / spread(others)
            nearness = (nearest(samples, faces)[0].mean() / nearest(others, faces)[0].mean()).item()
            print(
                f"| {arm} | `{ARMS[arm]}` | {row['images_seen']:,} | {row['images_seen'] / row['seconds']:.0f} "
                f"| {row['real_logit'] - row['fake_logit']:.2f} | {variety:.2f} | {nearness:.2f} "
                f"| {'yes' if variety < 0.5 else 'no'} |",
                flush=True,
            )
            if options.out is not None:
                options.out.mkdir(parents=True, exist_ok=True)
                grid = max((run / "samples").glob("*.png"))
                shutil.copy(grid, options.out / f"{arm.replace(' ', '-').replace(',', '')}.png")
            shutil.rmtree(run)


def drawn(seeds: range) -> torch.Tensor:
    """Return synthetic faces of 32 pixels, (N, 3072)."""
    return flat(np.stack([synthetic.draw(seed, 32)[0] for seed in seeds]))


def flat(pixels: np.ndarray) -> torch.Tensor:
    """Convert pixels (N, S, S, 3) uint8 to vectors (N, 3 S S) in [0, 1]."""
    return torch.from_numpy(pixels.astype(np.float32) / 255).flatten(1)


def spread(faces: torch.Tensor) -> float:
    """Return the mean distance between two faces."""
    n = len(faces)
    return (torch.cdist(faces, faces).sum() / (n * (n - 1))).item()


if __name__ == "__main__":
    main()
