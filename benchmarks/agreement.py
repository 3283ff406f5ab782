"""Compare measures of quality with the ranking of generators by eye.

python -m benchmarks.agreement --data_path=FOLDER --pairs=1,2 NAME=CHECKPOINT ...

Pairs of looks recorded, cell by cell, which samples are broken (docs/look.md). Each measure is taken of the same number
of samples of each generator, in each kind of features, and its ranking is compared with that by the share of broken
samples: a Spearman correlation of 1 means the same order, 0 means no relation. The range covers 1,000 bootstrap draws
of the cells; generators whose shares differ by a few cells change places in them. First come SWD, the spectrum and the
damage, which need no features.
"""

from __future__ import annotations

import argparse
import hashlib
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch

from benchmarks import look
from benchmarks.features import EXTRACTORS
from gan.data.faces import open_pack
from gan.device import choose_device
from gan.encoder import SIZE
from gan.quality import evaluation, features, sampling
from gan.quality.evaluation import RealStatistics
from gan.watching.curves import METRICS

AGAIN = 1000
"""Number of bootstrap draws of the cells."""


def main() -> None:
    """Look up the answers by eye, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("generators", nargs="+", metavar="NAME=CHECKPOINT")
    parser.add_argument("--data_path", type=Path, required=True, help="real faces")
    parser.add_argument("--pairs", required=True, help="numbers of pairs of looks, with commas")
    parser.add_argument("--features", default="imagenet,faces,untrained", help=f"of {', '.join(EXTRACTORS)}")
    parser.add_argument("--n", type=int, default=2000, help="samples of each, and real faces")
    options = parser.parse_args()
    on, pack = choose_device(None), open_pack(options.data_path, SIZE)
    said = answers({int(pair) for pair in options.pairs.split(",")})
    files = dict(generator.split("=", 1) for generator in options.generators)
    cells = [said[hashlib.sha256(Path(path).read_bytes()).hexdigest()[:8]] for path in files.values()]
    broken, random = [some.mean() for some in cells], np.random.default_rng(0)
    again = [[random.choice(some, len(some)).mean() for some in cells] for _ in range(AGAIN)]
    chosen, others = (pack.pixels[some] for some in evaluation.choose(pack, options.n, seed=0))
    print(f"| | measure | {' | '.join(files)} | real | Spearman, 90 % |")
    print("| --- " * (4 + len(files)) + "|")
    print(f"| eye | broken | {' | '.join(f'{share:.0%}' for share in broken)} | {said['real'].mean():.1%} | |")
    drawn = [list(sampling.load(Path(path), on).faces(range(options.n))) for path in files.values()]
    sets = [*drawn, [others]]  # as uint8, 28 kB a face

    def row(kind: str, name: str, values: list[float]) -> None:
        label, better, decimals, *_ = METRICS[name]
        signed = [value if better == "lower" else -value for value in values[:-1]]
        least, most = np.quantile([spearman(signed, shares) for shares in again], [0.05, 0.95])
        agree = f"{spearman(signed, broken):.2f} ({least:.2f} to {most:.2f})"
        print(f"| {kind} | {label} | {' | '.join(f'{v:.{decimals}f}' for v in values)} | {agree} |", flush=True)

    blind, damaged = lambda pixels: torch.zeros(len(pixels), 2), features.measuring(on, "faces").damage
    reals = RealStatistics.of(evaluation.face_set([chosen], blind, damaged, options.n))
    seen = [evaluation.face_set(faces, blind, damaged, options.n) for faces in sets]
    textures = [reals.measure_texture(faces.patches, faces.spectrum) for faces in seen]
    damage = [100 * faces.damage.mean().item() for faces in seen]
    for name in textures[0]:
        row("", name, [values[name] for values in textures])
    row("", "damage_x100", damage)
    for kind in options.features.split(","):
        extract = EXTRACTORS[kind](on)
        reals = RealStatistics(extract(chosen), {}, torch.ones(2))
        found = [reals.measure_features(torch.cat([extract(some) for some in faces])) for faces in sets]
        for name in found[0]:
            row(kind, name, [values[name] for values in found])


def answers(pairs: set[int]) -> dict[str, np.ndarray]:
    """Return the answers of pairs of looks for each generator's cells, by the first digits of its SHA-256; 1 is broken.

    A cell's answer is the mean of both looks. A cell in two pairs counts twice.
    """
    said = defaultdict[str, list[float]](list)
    for (_, faces), both in look.answered(pairs).items():
        said[faces] += both.mean(0).tolist()
    return {faces: np.array(shares) for faces, shares in said.items()}


def spearman(a: list[float], b: list[float]) -> float:
    """Return the rank correlation; equal values share the mean of their ranks."""
    return float(np.corrcoef(ranks(a), ranks(b))[0, 1])


def ranks(values: list[float]) -> np.ndarray:
    """Return the ranks of values, from 1 for the smallest."""
    some = torch.tensor(values, dtype=torch.float64)
    below, equal = (some < some[:, None]).sum(1), (some == some[:, None]).sum(1)
    return (below + (equal + 1) / 2).numpy()


if __name__ == "__main__":
    main()
