"""Train the network that finds damage: python -m benchmarks.damage --data_path=FOLDER --minutes=25.

It is trained on one half of the real faces (by the parity of their hashes). Three in five get a damaged ellipse, mostly
around an eye, in which the face is bent, smeared, replaced by part of another face or by another place of its own,
mixed with it, or drawn in other colours. Blur, noise and blocking over whole faces prevent the network from relying on
sharpness. It learns where the damage is, and is tested on the other half of the faces and on planted faults that it was
not trained on.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import affine_grid, avg_pool2d, binary_cross_entropy_with_logits, grid_sample, interpolate

from benchmarks import faults
from benchmarks.encoder import harm
from benchmarks.teaching import save, teach
from config import DAMAGE
from gan.data.faces import Pack, open_pack
from gan.device import autocast, choose_device, choose_precision, place
from gan.encoder import SIZE
from gan.images import to_tensor
from gan.quality.damage import POSITIONS, Damage

DAMAGED, AT_EYES = 0.6, 0.65
"""Share of the faces that are damaged, and share of these that are damaged around an eye."""

LEAST, MOST = 5, 16
"""Minimum and maximum radius of the ellipses, pixels."""

CLEAR = 0.15
"""Mean change of a place, in values in [-1, 1], that counts as full damage."""

KINDS = 7


def damage(faces: Tensor, eyes: Tensor, share: float, random: torch.Generator) -> tuple[Tensor, Tensor]:
    """Damage a share of faces (N, 3, S, S), whose eyes lie at (N, 2, 2), pixels down and across.

    Returns:
        The faces, and how damaged each place is, (N, 24, 24), from 0 to 1.
    """
    n = len(faces)

    def between(least: float, greatest: float) -> Tensor:
        return torch.rand(n, 1, 1, generator=random) * (greatest - least) + least

    def waves(points: int, deviation: float) -> Tensor:
        rough = torch.randn(n, 2, points, points, generator=random) * deviation * between(0.3, 1)[:, None]
        return interpolate(rough, size=(SIZE, SIZE), mode="bicubic")

    line = torch.arange(SIZE) + 0.5
    eye = eyes[torch.arange(n), torch.randint(2, (n,), generator=random)].float()[:, :, None, None]
    there = between(0, 1) < AT_EYES
    y = line[:, None] - torch.where(there, eye[:, 0] + between(-4, 4), between(12, SIZE - 12))
    x = line - torch.where(there, eye[:, 1] + between(-4, 4), between(12, SIZE - 12))
    angle, high, wide = between(0, math.pi), between(LEAST, MOST), between(LEAST, MOST)
    across, along = x * angle.cos() + y * angle.sin(), y * angle.cos() - x * angle.sin()
    inside = 1 - ((across / wide).square() + (along / high).square()).sqrt()
    edge, some = between(1, 4), between(0, 1) < share
    mask = (torch.sigmoid(inside * torch.minimum(high, wide) * 2 / edge) * some)[:, None]

    kind = torch.randint(KINDS, (n, 1, 1, 1), generator=random)
    near, far = torch.randn(n, 2, 1, 1, generator=random) * 4, torch.randn(n, 2, 1, 1, generator=random) * 24
    moves = {0: near, 1: far, 2: waves(10, 10), 3: waves(24, 5), 5: near, 6: waves(10, 5)}
    shift = torch.zeros(n, 2, SIZE, SIZE)
    for number, move in moves.items():
        shift = torch.where(kind == number, move, shift)
    grid = affine_grid(torch.eye(2, 3).expand(n, 2, 3), list(faces.shape), False)
    another = torch.where((kind == 0) | (kind == 5), faces.roll(1, 0), faces)
    moved = grid_sample(another, grid + shift.permute(0, 2, 3, 1) * 2 / SIZE, "bilinear", "reflection", False)
    smeared = interpolate(avg_pool2d(faces, 4), scale_factor=4, mode="bilinear")
    smeared = torch.lerp(
        smeared, interpolate(avg_pool2d(faces, 8), scale_factor=8, mode="bilinear"), between(0, 1)[:, None]
    )
    tinted = (moved + torch.randn(n, 3, 1, 1, generator=random) * 0.3).clamp(-1, 1)
    source = torch.where(kind == 4, smeared, torch.where(kind == 5, torch.lerp(faces, moved, 0.5), moved))
    source = torch.where(kind == 6, tinted, source)
    changed = torch.lerp(faces, source, mask)
    where = avg_pool2d((changed - faces).abs().mean(1), SIZE // POSITIONS) / CLEAR
    return changed, where.clamp(max=1)


def turned(faces: Tensor, eyes: Tensor, random: torch.Generator) -> tuple[Tensor, Tensor]:
    """Flip faces, rotate them by up to 12 degrees and scale them a little; returns them and their new eye positions."""
    n = len(faces)
    angle = (torch.rand(n, generator=random) - 0.5) * 0.4
    scale = 0.85 + 0.25 * torch.rand(n, generator=random)
    mirror = torch.where(torch.rand(n, generator=random) < 0.5, -1.0, 1.0)
    still = torch.rand(n, generator=random) < 0.5  # no resampling: half of the faces as sharp as real ones are
    angle, scale = torch.where(still, 0.0, angle), torch.where(still, 1.0, scale)
    cos, sin, zero = scale * angle.cos(), scale * angle.sin(), torch.zeros(n)
    theta = torch.stack([cos * mirror, -sin, zero, sin * mirror, cos, zero], 1).view(n, 2, 3)
    grid = affine_grid(theta, list(faces.shape), False)
    centred = (eyes.flip(2).float() + 0.5) * 2 / SIZE - 1  # across, down
    at = torch.linalg.solve(theta[:, :, :2], centred.transpose(1, 2)).transpose(1, 2)
    return grid_sample(faces, grid, "bilinear", "reflection", False), ((at + 1) * SIZE / 2 - 0.5).flip(2)


def main() -> None:
    """Train, test and write the network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data_path", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=25)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=DAMAGE)
    options = parser.parse_args()

    device = choose_device(None)
    precision = choose_precision("auto", device)
    torch.manual_seed(options.seed)
    random = torch.Generator().manual_seed(options.seed)
    pack = open_pack(options.data_path, SIZE)
    mine = np.flatnonzero(pack.hashes % 2 == 0)
    pixels = pack.pixels[mine]
    eyes = torch.from_numpy(faults.eyes(pixels))
    network = place(Damage(), device)

    def loss() -> Tensor:
        chosen = torch.randint(len(pixels), (options.batch,), generator=random)
        faces, at = turned(to_tensor(torch.from_numpy(pixels[chosen.numpy()])), eyes[chosen], random)
        faces, where = damage(faces, at, DAMAGED, random)
        faces, _ = harm(faces, random)
        with autocast(device, precision):
            found = network(faces.to(device).contiguous(memory_format=torch.channels_last))
        return binary_cross_entropy_with_logits(found.float(), where.to(device))

    steps = teach(network, loss, options.minutes, options.lr, weight_decay=0.01)
    report(network, pack)
    credits = {"faces": len(mine), "steps": steps, "batch": options.batch, "seed": options.seed}
    save(network, "damage", options.out, credits)


def report(network: Damage, pack: Pack) -> None:
    """Print the damage found in training faces, in other faces, and in other faces with planted faults."""

    def share(pixels: np.ndarray) -> str:
        faces = to_tensor(torch.from_numpy(pixels)).contiguous(memory_format=torch.channels_last)
        with torch.no_grad():
            found = torch.cat([network.share(some.to(next(network.parameters()).device)) for some in faces.split(100)])
        return f"{100 * found.mean():.2f} %"

    taught, others = (pack.pixels[np.flatnonzero(pack.hashes % 2 == odd)[:1000]] for odd in (0, 1))
    print(f"damaged of faces learnt from {share(taught)}, of others {share(others)}")
    places, random = faults.eyes(others), np.random.default_rng(0)
    for name, fault in faults.FAULTS.items():
        print(f"{name}: {share(fault(others, places, random))}")


if __name__ == "__main__":
    main()
