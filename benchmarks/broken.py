"""Ask which numbers know a broken face: python -m benchmarks.broken [--data_path=FOLDER] CHECKPOINT ...

docs/look.md records, cell by cell, which samples of some generators are broken. Of each generator named, those samples
are made again, and each number orders them: the share of pairs of a broken and a whole sample that it puts in the right
order is printed; 0.5 is chance, 1 knows all. With --data_path a second table tells how well the maps of
EfficientNet-lite0 tell real faces from such with a planted fault: a ridge regression on each map averaged over 5x5
places, three quarters of 1,600 faces taught and the others asked.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import math
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d, interpolate

from benchmarks import faults, look
from gan import imagenet
from gan.data.faces import open_pack
from gan.device import choose_device
from gan.encoder import SIZE
from gan.images import to_tensor
from gan.quality import features, sampling, whole_faces
from gan.quality.sampling import Sampler
from model import Projected

FACES = 1600
EYES = (slice(36, 72), slice(12, 84))
"""The rows and columns of 96x96 pixels where eyes are."""


def main() -> None:
    """Make the samples again, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoints", nargs="+", type=Path, metavar="CHECKPOINT")
    parser.add_argument("--data_path", type=Path, help="real faces, for the second table")
    options = parser.parse_args()
    said, on = answers(), choose_device(None)
    print("| generator | samples | broken | number | in the right order |\n| --- | --- | --- | --- | --- |")
    for path in options.checkpoints:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()[:8]
        if not (cells := said.get(digest)):
            parser.error(f"{path} ({digest}): {look.ANSWERS.name} has no look at it; there are {', '.join(said)}")
        broken = np.array(list(cells.values()))
        for name, values in numbers(sampling.load(path, on), list(cells)).items():
            order = right(values, broken)
            print(f"| {digest} | {len(cells)} | {broken.mean():.1%} | {name} | {order:.2f} |", flush=True)
    if options.data_path:
        print("\n| the encoder sees faces of | stride 4 | 8 | 16 | 32 |\n| --- | --- | --- | --- | --- |")
        pixels = open_pack(options.data_path, SIZE).pixels
        some = np.sort(np.random.default_rng(5).choice(len(pixels), FACES, replace=False))
        for size, orders in planted(np.array(pixels[some])):
            print(f"| {size} pixels | {' | '.join(f'{order:.2f}' for order in orders)} |", flush=True)


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


def numbers(sampler: Sampler, seeds: list[int]) -> dict[str, np.ndarray]:
    """Return numbers that could know broken samples, each higher where it calls a sample broken: (n,)."""
    faces = features.load("faces", None, sampler.device)
    score, damage = whole_faces.load(faces), features.measuring(sampler.device, "faces").damage
    found = defaultdict[str, list[np.ndarray]](list)
    towards = torch.randn(6, sampler.model.nz, generator=torch.Generator().manual_seed(0)).to(sampler.device)
    for start in range(0, len(seeds), 64):
        some = seeds[start : start + 64]
        codes = sampler.codes(some)
        with torch.no_grad():
            latents = sampler.latents(some, codes=codes)
            samples = sampler.generator(latents).float()
            change = torch.zeros(len(some), device=samples.device)
            for way in towards:
                moved = latents.clone()
                moved[:, : len(way)] += 0.1 * way
                change += (sampler.generator(moved).float() - samples)[(..., *EYES)].square().flatten(1).mean(1)
            pixels = np.concatenate(list(sampler.draw(latents)))
            found["how whole it looks, negative"].append(-score.scores(faces(pixels)))
            found["damage"].append(damage(pixels).numpy())
            found["change around the eyes with the latent"].append(change.cpu().numpy())
            projected = getattr(sampler.discriminator, "projected", None)
            if not isinstance(projected, Projected):
                continue
            heads = projected(projected.encode(samples), codes).float()
            found["discriminator, lowest twentieth"].append(-torch.quantile(heads.flatten(1), 0.05, 1).cpu().numpy())
            places = math.isqrt(heads.shape[-1])
            for n, head in enumerate(heads.unflatten(-1, (places, places)).unbind(1), 1):
                at = interpolate(head[:, None], size=SIZE)[(..., *EYES)]
                found[f"discriminator at the eyes, head {n}"].append(-at.flatten(1).mean(1).cpu().numpy())
    return {name: np.concatenate(values) for name, values in found.items()}


def planted(pixels: np.ndarray) -> list[tuple[int, list[float]]]:
    """Return for each size how well the maps at strides 4, 8, 16 and 32 know planted faults in faces (n, S, S, 3)."""
    random, kinds = np.random.default_rng(1), list(faults.FAULTS.values())
    eyes, broken = faults.eyes(pixels), np.arange(len(pixels)) % 2 == 0
    for n in np.flatnonzero(broken):
        pixels[n] = kinds[n // 2 % len(kinds)](pixels[n : n + 1], eyes[n : n + 1], random)[0]
    order = random.permutation(len(pixels))
    taught, asked = np.split(order, [len(order) * 3 // 4])
    encoder, found = imagenet.load("lite0", depths=5), []
    for size in (96, 144, 192):
        maps: list[list[Tensor]] = [[], [], [], []]
        with torch.no_grad():
            for start in range(0, len(pixels), 32):
                faces = interpolate(to_tensor(torch.from_numpy(pixels[start : start + 32])), size=size, mode="bilinear")
                for lot, depth in zip(maps, encoder.maps(faces)[1:], strict=True):
                    lot.append(adaptive_avg_pool2d(depth, 5).flatten(1))
        found.append((size, [ridge(torch.cat(lot), broken, taught, asked) for lot in maps]))
    return found


def ridge(seen: Tensor, broken: np.ndarray, taught: np.ndarray, asked: np.ndarray) -> float:
    """Return the share of pairs that the best of six ridge regressions orders right, among those asked."""
    rows = seen.double()
    rows = (rows - rows[taught].mean(0)) / (rows[taught].std(0) + 1e-6)
    alike, wanted = rows @ rows.T / rows.shape[1], torch.from_numpy(broken[taught] - 0.5)
    shares = []
    for weight in (0.1, 0.3, 1, 3, 10, 30):
        answer = torch.linalg.solve(alike[taught][:, taught] + weight * torch.eye(len(taught)).double(), wanted)
        shares.append(right((alike[asked][:, taught] @ answer).numpy(), broken[asked].astype(float)))
    return max(shares)


if __name__ == "__main__":
    main()
