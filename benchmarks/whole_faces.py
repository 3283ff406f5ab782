"""Train the regression that scores how whole faces look: python -m benchmarks.whole_faces --data_path=FOLDER.

`benchmarks/whole_faces.csv` holds one observer's ratings of samples of the released generator, viewed one by one and
enlarged: seed, and 1 if two eyes are present, whole and alike (or both closed), and nothing is smeared over the face,
else 0. Seeds 20000 to 20479 were not selected; those from 30000 on are the best fifth of 1,200 according to a
regression on the others. A ridge regression of the ratings on the features of the measuring encoder goes to
`checkpoints/whole-faces.pt`. So does a Gaussian fitted to the features of 5,000 real faces of the folder, which
identifies faces of their kind; without the option it stays as it is. Printed is how well cross-validated scores
separate the unselected samples, as the share of pairs in the right order (AUC; 0.5 is chance), beside the
discriminator's ranking.

`benchmarks/whole_faces_blind.csv` holds ratings of 64 unselected samples, the discriminator's best 64 of the seeds 1 to
1024 and the regression's best 64, shuffled and rated blindly. The program prints how many of each are not whole, and
how many of them would be selected today.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from config import RELEASED, WHOLE_FACES
from gan import checkpoint
from gan.data.faces import open_pack
from gan.device import choose_device
from gan.encoder import SIZE
from gan.quality import evaluation, features, sampling
from gan.quality.features import Extractor

ANSWERS, BLIND = (Path(__file__).with_name(name) for name in ("whole_faces.csv", "whole_faces_blind.csv"))
GENERATOR = "4995be25"
"""First digits of the SHA-256 of the generator whose samples were rated."""

CHOSEN_FROM = 30_000
"""First seed of the samples that were selected for rating."""

RIDGE = 100.0
"""Ridge penalty for features of deviation 1, over all faces together; 30 to 300 work as well."""

PARTS, ORDERS = 8, 3
"""Number of folds of the cross-validation, and of repetitions with the faces in another order."""


def main() -> None:
    """Generate, fit, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data_path", type=Path, help="real faces")
    parser.add_argument("--out", type=Path, default=WHOLE_FACES)
    options = parser.parse_args()
    if hashlib.sha256(RELEASED.read_bytes()).hexdigest()[: len(GENERATOR)] != GENERATOR:
        parser.error(f"{RELEASED} is not the generator whose samples were looked at, {GENERATOR}; take it from git")
    with open(ANSWERS, encoding="utf-8") as file:
        rows = [(int(row["seed"]), float(row["whole"])) for row in csv.DictReader(file)]
    seeds, whole = [seed for seed, _ in rows], torch.tensor([answer for _, answer in rows]).double()
    on = choose_device(None)
    sampler, extractor = sampling.load(RELEASED, on), features.load("faces", on)
    seen = torch.cat([extractor(faces) for faces in sampler.faces(seeds)]).double()

    guesses, random = torch.zeros(len(seeds)).double(), np.random.default_rng(0)
    for _ in range(ORDERS):
        order = torch.from_numpy(random.permutation(len(seeds)))
        for part in range(PARTS):
            asked, taught = order[part::PARTS], torch.cat([order[i::PARTS] for i in range(PARTS) if i != part])
            guesses[asked] += seen[asked] @ learn(seen[taught], whole[taught])
    unchosen = torch.tensor(seeds) < CHOSEN_FROM
    tenth = guesses[unchosen].topk(int(unchosen.sum()) // 10).indices
    plain = [seed for seed in seeds if seed < CHOSEN_FROM]
    by_discriminator = sampler.best(plain, len(plain))
    ranks = torch.tensor([-float(by_discriminator.index(seed)) for seed in plain])
    print(
        f"whole: {whole[unchosen].mean():.2f} of {len(plain)} not chosen, {whole[~unchosen].mean():.2f} of the others"
    )
    print(f"AUC: the discriminator {auc(ranks, whole[unchosen]):.2f}, ", end="")
    print(f"the regression {auc(guesses[unchosen], whole[unchosen]):.2f}; of its best tenth ", end="")
    print(f"{whole[unchosen][tenth].mean():.2f} are whole")
    credits = {"program": "AnimeGAN, benchmarks/whole_faces.py", "faces": len(seeds), "generator": GENERATOR}
    kind = kind_of(options.data_path, extractor)
    content = {"weights": learn(seen, whole).float(), "extractor": extractor.name, **kind, "credits": credits}
    checkpoint.save(options.out, content)
    print(f"{options.out}: {options.out.stat().st_size:,} bytes")

    scores = torch.cat([extractor(faces) @ content["weights"] for faces in sampler.faces(range(1, 1025))])
    today = {
        "none": range(1, 65),
        "discriminator": sampler.best(range(1, 1025), 64),
        "regression": (1 + scores.argsort(descending=True)[:64]).tolist(),
    }
    with open(BLIND, encoding="utf-8") as file:
        blind = [(row["chosen_by"], int(row["seed"]), int(row["whole"])) for row in csv.DictReader(file)]
    for by, seeds in today.items():
        cells = [(seed, answer) for chosen_by, seed, answer in blind if chosen_by == by]
        faults, same = sum(1 - answer for _, answer in cells), sum(seed in seeds for seed, _ in cells)
        print(f"chosen by {by}: {faults} of {len(cells)} not whole; {same} of them would be chosen today")


def kind_of(faces: Path | None, extractor: Extractor) -> dict[str, Tensor]:
    """Return the mean (F,) and covariance (F, F) of the features of real faces, or the stored ones."""
    if faces is None:
        content = checkpoint.load(WHOLE_FACES, required=("mean", "covariance"))
        return {name: content[name] for name in ("mean", "covariance")}
    pack = open_pack(faces, SIZE)
    seen = features.of_pack(extractor, pack, evaluation.choose(pack, 5000, seed=0)[0]).double()
    return {"mean": seen.mean(0).float(), "covariance": torch.cov(seen.T).float()}


def learn(seen: Tensor, whole: Tensor) -> Tensor:
    """Fit a ridge regression to features (N, F) and ratings (N,); returns weights (F,)."""
    seen = seen - seen.mean(0)
    return torch.linalg.solve(
        seen.T @ seen + RIDGE * torch.eye(seen.shape[1]).double(), seen.T @ (whole - whole.mean())
    )


def auc(scores: Tensor, whole: Tensor) -> float:
    """Return the share of pairs of a whole face and another that the scores order correctly; there are no ties."""
    ranks = scores.argsort().argsort().double()
    n = whole.sum()
    return float((ranks[whole > 0].sum() - n * (n - 1) / 2) / (n * (len(whole) - n)))


if __name__ == "__main__":
    main()
