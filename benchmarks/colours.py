"""Train the network that predicts hair and eye colours: python -m benchmarks.colours --data_path=FOLDER --tags=CSV.

The CSV file has the columns file,hair,eyes for some of the faces. Four fifths of these (by their hashes) are the
training set. The others show how often the network is right and give the minimum probability of a prediction. Some tags
are doubtful by eye, so even a perfect network would not agree with all of them.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import affine_grid, cross_entropy, grid_sample

from benchmarks.teaching import save, teach
from config import COLOURS
from gan.data.faces import names_of, open_pack
from gan.data.labels import learned, texts_of
from gan.device import autocast, choose_device, choose_precision, place
from gan.encoder import SIZE
from gan.images import to_tensor
from gan.quality.colours import Colours

KEPT = 0.7, 0.75, 0.8, 0.85, 0.9, 0.95
"""Shares of the predictions in the printed table, the most confident ones."""


def moved(faces: Tensor, random: torch.Generator) -> Tensor:
    """Randomly flip, rotate, shift, scale and brighten or darken faces (N, 3, S, S) a little, without changing hues."""
    n = len(faces)

    def between(least: float, greatest: float) -> Tensor:
        return least + (greatest - least) * torch.rand(n, generator=random)

    angle, scale = between(-0.2, 0.2), between(0.85, 1.1)
    mirror = torch.where(between(0, 1) < 0.5, -1.0, 1.0)
    cos, sin = scale * angle.cos(), scale * angle.sin()
    theta = torch.stack([cos * mirror, -sin, between(-0.1, 0.1), sin * mirror, cos, between(-0.1, 0.1)], 1)
    faces = grid_sample(
        faces, affine_grid(theta.view(n, 2, 3), list(faces.shape), False), "bilinear", "reflection", False
    )
    gain, shift = between(0.9, 1.1)[:, None, None, None], between(-0.08, 0.08)[:, None, None, None]
    return (faces * gain + shift).clamp(-1, 1)


def main() -> None:
    """Train, test and write the network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data_path", type=Path, required=True)
    parser.add_argument("--tags", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=float, default=0.8, help="share of the guesses to keep, the surest ones")
    parser.add_argument("--shuffled", action="store_true", help="with the tags of other faces: it must learn nothing")
    parser.add_argument("--out", type=Path, default=COLOURS)
    options = parser.parse_args()

    device = choose_device(None)
    precision = choose_precision("auto", device)
    torch.manual_seed(options.seed)
    random = torch.Generator().manual_seed(options.seed)
    pack = open_pack(options.data_path, SIZE)
    texts = texts_of(options.tags, names_of(pack), print)
    assert texts is not None
    labels = learned(texts, np.arange(len(pack.hashes)), options.data_path, True, print)
    assert labels is not None
    vocabulary, codes = labels[0], torch.from_numpy(labels[1])
    tagged = (codes > 0).any(1).numpy()
    taught, asked = (np.flatnonzero(tagged & ((pack.hashes % 5 == 0) == other)) for other in (False, True))
    if options.shuffled:
        codes[taught] = codes[np.random.default_rng(options.seed).permutation(taught)]
    pixels, codes_taught = pack.pixels[taught], codes[taught]
    network = place(Colours(vocabulary), device)

    def loss() -> Tensor:
        chosen = torch.randint(len(pixels), (options.batch,), generator=random)
        faces = moved(to_tensor(torch.from_numpy(pixels[chosen.numpy()])), random)
        with autocast(device, precision):
            found = network(faces.to(device).contiguous(memory_format=torch.channels_last))
        wanted = codes_taught[chosen].to(device) - 1  # -1: not tagged
        of_columns = [
            cross_entropy(logits.float(), wanted[:, i], ignore_index=-1, label_smoothing=0.1)
            for i, logits in enumerate(found)
        ]
        return torch.stack(of_columns).sum()

    steps = teach(network, loss, options.minutes, options.lr, weight_decay=0.05)
    least = report(network, pack.pixels[asked], codes[asked], vocabulary, options.keep)
    credits = {"faces": len(taught), "steps": steps, "seed": options.seed}
    save(network, "colours", options.out, credits, vocabulary=vocabulary, least=least)


def report(
    network: Colours, pixels: np.ndarray, codes: Tensor, vocabulary: tuple[tuple[str, ...], ...], keep: float
) -> list[float]:
    """Print how often predictions match the tags of test faces; returns the minimum probability of a prediction."""
    faces = to_tensor(torch.from_numpy(pixels)).contiguous(memory_format=torch.channels_last)
    with torch.no_grad():
        lots = [network(some.to(next(network.parameters()).device)) for some in faces.split(100)]
    least = []
    for i, (name, *classes) in enumerate(vocabulary):
        sure, which = torch.cat([lot[i].float().cpu() for lot in lots]).softmax(1).max(1)
        known = codes[:, i] > 0
        right = (which + 1 == codes[:, i])[known].double()
        share = torch.bincount(codes[known, i] - 1, minlength=len(classes)).double() / known.sum()
        by_chance = f"chance {(share * share).sum():.3f}, always the most frequent {share.max():.3f}"
        print(f"{name}: right {right.mean():.3f} of {int(known.sum())}; {by_chance}")
        for kept in KEPT:
            bound = sure[known].quantile(1 - kept)
            print(f"  the surest {kept:.0%}, from {bound:.2f} on: right {right[sure[known] >= bound].mean():.3f}")
        for code, one in enumerate(classes, 1):
            of, guessed = codes[:, i] == code, (which + 1 == code) & known
            precision = (codes[guessed, i] == code).double().mean()
            found = (which[of] + 1 == code).double().mean()
            print(f"  {one}: {int(of.sum())} tagged, found {found:.2f}, right {precision:.2f}")
        least.append(round(float(sure[known].quantile(1 - keep)), 3))
    return least


if __name__ == "__main__":
    main()
