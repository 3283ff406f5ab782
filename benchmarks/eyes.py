"""Fit the score of how broken eyes look: python -m benchmarks.eyes CHECKPOINT ...

benchmarks/looks.csv records, cell by cell, which samples of some generators were called broken (docs/look.md). Of each
generator named, those samples are made again, and a ridge regression of the answers is fitted to what
`gan.quality.eyes` sees of them, as they are and twice moved a little and mirrored. Printed is how well it orders
samples of seeds that it was not fitted to: the share of pairs of a broken and a whole sample in the right order, in all
and for each generator by itself; 0.5 is chance. The regression fitted to all goes to `checkpoints/eyes.pt`.

The file that comes with the program cannot be made again: it was fitted to 3,200 samples of sixteen generators, eight
of which were not kept. The others were released, and are in the history of `checkpoints/anime-faces-96.pt`; all but
the last are named in looks.csv by the SHA-256 of their files, and read at commit e7decab.
"""

from __future__ import annotations

import argparse
import csv
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from benchmarks import look
from config import EYES
from gan import checkpoint, imagenet
from gan.device import choose_device
from gan.images import to_tensor
from gan.quality import eyes, sampling

RIDGE = 10.0
"""Ridge penalty for features of deviation 1 / sqrt(F), over all views together; 3 works as well, 30 less so."""

VIEWS, PARTS, BATCH = 3, 4, 32


def main() -> None:
    """Make the samples again, fit, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoints", nargs="+", type=Path, metavar="CHECKPOINT")
    parser.add_argument("--out", type=Path, default=EYES)
    options = parser.parse_args()
    said, on = answers(), choose_device(None)
    encoder = imagenet.load("lite0", depths=eyes.DEPTHS)
    sees = eyes.Eyes(encoder, torch.zeros(()), torch.zeros(())).to(on)
    generators, seeds, broken, rows = list[str](), list[int](), list[float](), list[Tensor]()
    for path in options.checkpoints:
        sampler = sampling.load(path, on)
        digest = sampler.digest[:8]
        if not (cells := said.get(digest)):
            parser.error(f"{path} ({digest}): {look.ANSWERS.name} has no look at it; there are {', '.join(said)}")
        generators += [digest] * len(cells)
        seeds += cells
        broken += cells.values()
        rows.append(views(sees, np.concatenate(list(sampler.faces(list(cells))))))
    seen, wanted = torch.cat(rows, 1).double(), torch.tensor(broken).double()  # (VIEWS, N, F) and (N,)

    made, part, guesses = np.array(generators), np.array(seeds) % PARTS, np.zeros(len(seeds))
    for n in range(PARTS):
        weights, bias = fit(seen[:, part != n].flatten(0, 1), wanted[part != n].repeat(VIEWS))
        guesses[part == n] = (seen[0, part == n] @ weights + bias).numpy()
    print(f"in the right order: {right(guesses, wanted.numpy()):.2f} of all {len(seeds)}", end="")
    for digest in dict.fromkeys(generators):
        cells = made == digest
        print(f", {right(guesses[cells], wanted.numpy()[cells]):.2f} of {digest}", end="")
    weights, bias = fit(seen.flatten(0, 1), wanted.repeat(VIEWS))
    shape = 2 * encoder.widths[-1], eyes.ROWS.stop - eyes.ROWS.start, -1
    credits = {"program": "AnimeGAN, benchmarks/eyes.py", "faces": len(seeds), "generators": sorted(set(generators))}
    content = {
        "weights": weights.view(shape).float(),
        "bias": bias.float(),
        "encoder": encoder.name,
        "credits": credits,
    }
    checkpoint.save(options.out, content)
    print(f"\n{options.out}: {options.out.stat().st_size:,} bytes")


def answers() -> dict[str, dict[int, float]]:
    """Return how many of the looks called a sample broken, by the generator's digest and the seed."""
    said = defaultdict[str, dict[int, list[float]]](lambda: defaultdict(list))
    with open(look.ANSWERS, encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["which"].isdigit():
                said[row["faces"]][int(row["which"])] += [float(row["look 1"]), float(row["look 2"])]
    return {faces: {seed: float(np.mean(said[faces][seed])) for seed in sorted(said[faces])} for faces in said}


def right(values: np.ndarray, broken: np.ndarray) -> float:
    """Return the share of pairs in which the broken sample has the higher value; a half-broken sample counts half."""
    order = np.argsort(values)
    wrong, whole = broken[order], 1 - broken[order]
    below = np.cumsum(whole) - whole / 2
    return float((wrong * below).sum() / (wrong.sum() * whole.sum()))


def views(sees: eyes.Eyes, pixels: np.ndarray) -> Tensor:
    """Return what is seen of samples (N, S, S, 3) uint8, as they are and moved: (VIEWS, N, F)."""
    random, far, size = np.random.default_rng(0), pixels.shape[1] // 32, pixels.shape[1]
    found: list[list[Tensor]] = [[] for _ in range(VIEWS)]
    for start in range(0, len(pixels), BATCH):
        faces = to_tensor(torch.from_numpy(pixels[start : start + BATCH])).to(sees.weights.device)
        for n, lot in enumerate(found):
            down, across = random.integers(0, 2 * far + 1, 2)
            moved = pad(faces, (far, far, far, far), mode="reflect")[..., down : down + size, across : across + size]
            with torch.no_grad():
                lot.append(
                    sees.seen((moved.flip(3) if random.random() < 0.5 else moved) if n else faces).flatten(1).cpu()
                )
    return torch.stack([torch.cat(lot) for lot in found])


def fit(seen: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """Fit a ridge regression to features (N, F) and answers (N,); returns weights (F,) and the bias."""
    mean, scale = seen.mean(0), (seen.std(0) + 1e-3) * seen.shape[1] ** 0.5
    rows = (seen - mean) / scale
    squares = rows.T @ rows + RIDGE * torch.eye(rows.shape[1]).double()
    weights = torch.linalg.solve(squares, rows.T @ (wanted - wanted.mean())) / scale
    return weights, wanted.mean() - mean @ weights


if __name__ == "__main__":
    main()
