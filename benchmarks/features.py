"""How far the metrics can be trusted: python -m benchmarks.features --data_path=FOLDER [--out=FOLDER].

One lot of faces stays as it is, another is spoilt in six ways, in growing steps. Every metric against the first lot is
printed for each, as a Markdown table; FD must rise with every step of every fault. What the faults look like is left
in FOLDER to be looked at (those are the faces themselves, so not to be published unless they are drawn).
"""

from __future__ import annotations

import argparse
import io
import platform
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageFilter
from tqdm import tqdm

from gan import evaluation, features, images
from gan.device import choose_device
from gan.encoder import SIZE
from gan.evaluation import METRICS, Reals
from gan.faces import open_pack

Spoil = Callable[[np.ndarray], np.ndarray]


def each(change: Callable[[Image.Image], Image.Image]) -> Spoil:
    """A fault of single faces."""
    return lambda faces: np.stack([np.asarray(change(Image.fromarray(face))) for face in faces])


def blur(radius: float) -> Spoil:
    """Gaussian blur of a deviation in pixels."""
    return each(lambda face: face.filter(ImageFilter.GaussianBlur(radius)))


def noise(deviation: float) -> Spoil:
    """White noise on values from 0 to 255."""
    random = np.random.default_rng(0)
    return lambda faces: (faces + random.normal(0, deviation, faces.shape)).round().clip(0, 255).astype(np.uint8)


def jpeg(quality: int) -> Spoil:
    """Saved and read again."""

    def again(face: Image.Image) -> Image.Image:
        file = io.BytesIO()
        face.save(file, "JPEG", quality=quality)
        return Image.open(file)

    return each(again)


def cut(share: float) -> Spoil:
    """A grey square, this share of the side, somewhere in each face."""
    random = np.random.default_rng(0)

    def spoil(faces: np.ndarray) -> np.ndarray:
        faces = faces.copy()
        side = round(share * faces.shape[1])
        for face, (top, left) in zip(
            faces, random.integers(0, faces.shape[1] - side + 1, (len(faces), 2)), strict=True
        ):
            face[top : top + side, left : left + side] = 128
        return faces

    return spoil


def modes(kept: int) -> Spoil:
    """Only the faces nearest in colours to `kept` of 20 random ones, drawn from as often as there were faces."""

    def spoil(faces: np.ndarray) -> np.ndarray:
        n, size = faces.shape[:2]
        small = faces.reshape(n, 6, size // 6, 6, size // 6, 3).mean((2, 4)).reshape(n, -1)
        random = np.random.default_rng(0)
        centres = torch.from_numpy(small[random.permutation(n)[:20]])
        nearest = torch.cdist(torch.from_numpy(small), centres).argmin(1).numpy()
        return faces[random.choice(np.flatnonzero(nearest < kept), n)]

    return spoil


def duplicates(different: float) -> Spoil:
    """Only this share of different faces, repeated."""
    return lambda faces: faces[np.arange(len(faces)) % round(different * len(faces))]


FAULTS: dict[str, tuple[str, dict[str, Spoil]]] = {
    "blur": ("deviation, pixels", {f"{v:g}": blur(v) for v in (0.5, 1, 2, 4)}),
    "noise": ("deviation of 255", {f"{v:g}": noise(v) for v in (4, 8, 16, 32)}),
    "JPEG": ("quality", {f"{v}": jpeg(v) for v in (85, 60, 30, 10)}),
    "cut-outs": ("share of the side", {f"{v:g}": cut(v) for v in (0.1, 0.2, 0.35, 0.5)}),
    "dropped modes": ("kept of 20", {f"{v}": modes(v) for v in (15, 10, 5, 2)}),
    "duplicates": ("different faces", {f"{v:.0%}": duplicates(v) for v in (0.3, 0.1, 0.03, 0.01)}),
}


def main() -> None:
    """Spoil, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data_path", type=Path, required=True)
    parser.add_argument("--n", type=int, default=2000, help="faces of each lot")
    parser.add_argument("--out", type=Path, help="folder for pictures of the faults")
    options = parser.parse_args()
    extractor = features.load("faces", None, choose_device(None))
    pack = open_pack(options.data_path, SIZE)
    first, second = evaluation.choose(pack, options.n, seed=0)
    reals = Reals.of(evaluation.of_pack(pack, first, extractor))
    faces = pack.pixels[second]
    print(
        f"{extractor.name}, {len(second):,} against {len(first):,} faces of {options.data_path}, {platform.machine()}"
    )
    print(f"| fault | | {' | '.join(label for label, *_ in METRICS.values())} |")
    print("| --- " * (2 + len(METRICS)) + "|")

    def row(fault: str, step: str, spoil: Spoil) -> float:
        spoilt = spoil(faces)
        lots = (spoilt[i : i + 100] for i in range(0, len(spoilt), 100))
        found = reals.measure(
            evaluation.face_set(tqdm(lots, total=len(spoilt) // 100, leave=False), extractor, len(spoilt))
        )
        cells = [f"{found[name]:.{decimals}f}" for name, (_, _, decimals) in METRICS.items()]
        print(f"| {fault} | {step} | {' | '.join(cells)} |", flush=True)
        if options.out is not None:
            images.save_picture(images.grid(spoilt[:24], columns=8), options.out / f"{fault}-{step.split()[-1]}.png")
        return found["fd"]

    floor = row("none", "floor", lambda faces: faces)
    wrong = []
    for fault, (unit, steps) in FAULTS.items():
        distances = [floor, *(row(fault, f"{unit}: {step}", spoil) for step, spoil in steps.items())]
        if any(after <= before for before, after in pairwise(distances)):
            wrong.append(fault)
    print(
        f"FD rises with every step of every fault, but for: {', '.join(wrong)}"
        if wrong
        else "FD rises with every step."
    )


if __name__ == "__main__":
    main()
