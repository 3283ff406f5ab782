"""Train the encoder of the measurements: python -m benchmarks.encoder --data_path=FOLDER --tags=CSV.

The encoder learns three tasks at once from faces of 96 pixels: which two pictures are the same face, cropped, rotated
and tinted differently (Chen et al. 2020, SimCLR); the hair and eye colours of faces in the table `file,hair,eyes`; and
how much blur, noise and blocking was added. The first two teach it what a face is, the third how well it is drawn.
Faces are tinted little, since colours are content here, and nothing is cut out of them, since a missing part is a
fault that metrics should see.

Every tenth tagged face is held out of the losses on tags; the accuracy on their colours is printed at the end.
"""

from __future__ import annotations

import argparse
import csv
import math
import os
import time
import zipfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import (
    affine_grid,
    conv2d,
    cross_entropy,
    grid_sample,
    normalize,
    pad,
    smooth_l1_loss,
)

from config import ENCODER
from gan import checkpoint
from gan.data.faces import open_pack
from gan.data.pictures import SUFFIXES
from gan.device import autocast, choose_device, choose_precision, place
from gan.encoder import SIZE, WIDTHS, Encoder
from gan.images import to_tensor

TEMPERATURE = 0.2
HARM_GROUPS = 8
"""Number of parts of a batch; the blurred faces of a part have the same blur."""

LARGEST_BLUR, LARGEST_NOISE, LARGEST_STEP = 2.5, 0.25, 0.5
"""Deviation of the blur in pixels; deviation of the noise and smallest quantisation step, for images in [-1, 1]."""


class Pupil(nn.Module):
    """The encoder and the heads that it is trained with."""

    def __init__(self, hair: int, eyes: int) -> None:
        super().__init__()
        width = WIDTHS[-1]
        self.encoder = Encoder()
        self.projection = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 96))
        self.hair, self.eyes, self.harm = nn.Linear(width, hair), nn.Linear(width, eyes), nn.Linear(width, 3)


def views(faces: Tensor, random: torch.Generator) -> Tensor:
    """Crop, flip, rotate and tint each face a little; a third of them are flipped, shifted and tinted only."""
    n = len(faces)

    def between(least: float, greatest: float) -> Tensor:
        return torch.rand(n, generator=random) * (greatest - least) + least

    exact = between(0, 1) < 1 / 3  # no resampling: else no face of the training would be as sharp as a real one
    scale = torch.where(exact, 1.0, between(0.7, 1.05))
    angle = torch.where(exact, 0.0, between(-0.2, 0.2))
    mirror = torch.where(between(0, 1) < 0.5, -1.0, 1.0)
    x, y = ((torch.where(exact, (8 * s).round() * 2 / SIZE, 0.15 * s)) for s in (between(-1, 1), between(-1, 1)))
    cos, sin = scale * angle.cos(), scale * angle.sin()
    theta = torch.stack([cos * mirror, -sin, x, sin * mirror, cos, y], 1).view(n, 2, 3)
    moved = grid_sample(
        faces, affine_grid(theta, list(faces.shape), False), padding_mode="reflection", align_corners=False
    )
    grey = moved.mean(1, keepdim=True)
    saturation, contrast, light = (
        v[:, None, None, None] for v in (between(0.8, 1.2), between(0.8, 1.2), between(-0.15, 0.15))
    )
    tinted = grey + saturation * (moved - grey)
    return (tinted * contrast + light).clamp_(-1, 1)


def harm(faces: Tensor, random: torch.Generator) -> tuple[Tensor, Tensor]:
    """Add blur, noise or blocking to about half of the faces; returns them and the amounts, (N, 3), from 0 to 1."""
    n = len(faces)
    some = torch.rand(n, 3, generator=random) < 0.5
    some &= torch.rand(n, 1, generator=random) < 0.5
    amounts = torch.rand(n, 3, generator=random) * some
    parts = []
    for part, blurs in zip(faces.chunk(HARM_GROUPS), amounts[:, 0].chunk(HARM_GROUPS), strict=True):
        sigma = blurs.max()
        blurs[blurs > 0] = sigma  # a view: the amounts change with it
        parts.append(torch.where((blurs > 0)[:, None, None, None], blurred(part, LARGEST_BLUR * sigma.item()), part))
    faces = blocked(torch.cat(parts), LARGEST_STEP * amounts[:, 2], some[:, 2])
    noise = torch.randn(faces.shape, generator=random)
    return (faces + LARGEST_NOISE * amounts[:, 1, None, None, None] * noise).clamp_(-1, 1), amounts


def blurred(faces: Tensor, sigma: float) -> Tensor:
    """Apply Gaussian blur with a deviation in pixels."""
    if sigma == 0:
        return faces
    radius = math.ceil(3 * sigma)
    row = torch.exp(-(torch.arange(-radius, radius + 1.0) ** 2) / (2 * sigma**2))
    row = (row / row.sum()).expand(3, 1, 1, -1)
    faces = conv2d(pad(faces, (radius, radius, 0, 0), mode="reflect"), row, groups=3)
    return conv2d(pad(faces, (0, 0, radius, radius), mode="reflect"), row.transpose(2, 3), groups=3)


def blocked(faces: Tensor, step: Tensor, some: Tensor) -> Tensor:
    """Quantise the cosine coefficients of 8x8 blocks as JPEG does: the finer the detail, the coarser."""
    k = torch.arange(8.0)
    cosines = torch.cos((2 * k + 1) * k[:, None] * math.pi / 16) * 0.5
    cosines[0] /= math.sqrt(2)
    chosen = faces[some]
    n, c, height, width = chosen.shape
    blocks = chosen.reshape(n, c, height // 8, 8, width // 8, 8).transpose(3, 4)
    steps = step[some][:, None, None, None, None, None] * (1 + (k[:, None] + k) / 2)
    coefficients = ((cosines @ blocks @ cosines.T) / steps).round() * steps
    result = faces.clone()
    result[some] = (cosines.T @ coefficients @ cosines).transpose(3, 4).reshape(n, c, height, width)
    return result


def same_face(a: Tensor, b: Tensor) -> Tensor:
    """Compute the NT-Xent loss (Chen et al. 2020, eq. 1): each view must find the other one of its face among all."""
    both = normalize(torch.cat([a, b]), dim=1)
    likeness = both @ both.T / TEMPERATURE
    likeness.fill_diagonal_(-math.inf)
    n = len(a)
    return cross_entropy(likeness, torch.cat([torch.arange(n, 2 * n), torch.arange(n)]).to(a.device))


def tags_of(path: Path, names: list[str]) -> tuple[Tensor, list[list[str]]]:
    """Return the number of each face's hair and eye colour, (N, 2), -1 if unknown, and the names of the colours."""
    with path.open(newline="") as file:
        rows = {row["file"]: (row["hair"], row["eyes"]) for row in csv.DictReader(file)}
    known = [rows.get(name, ("", "")) for name in names]
    colours = [sorted({row[i] for row in known} - {""}) for i in (0, 1)]
    numbers = [[colours[i].index(row[i]) if row[i] else -1 for i in (0, 1)] for row in known]
    return torch.tensor(numbers), colours


def names_of(data_path: Path) -> list[str]:
    """Return the names of the pictures in the order of their pack: files and zips sorted, members sorted in each."""
    names: list[str] = []
    root = data_path if data_path.is_dir() else data_path.parent
    found = root.rglob("*") if data_path.is_dir() else [data_path]
    for name in sorted(path.relative_to(root).as_posix() for path in found):
        if name.lower().endswith(".zip"):
            with zipfile.ZipFile(root / name) as archive:
                names += sorted(member for member in archive.namelist() if member.lower().endswith(SUFFIXES))
        elif name.lower().endswith(SUFFIXES):
            names.append(name)
    return [name for name in names if not any(part.startswith((".", "__MACOSX")) for part in name.split("/"))]


def main() -> None:
    """Train, test and write the encoder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data_path", type=Path, required=True)
    parser.add_argument("--tags", type=Path, required=True)
    parser.add_argument("--epochs", type=float, default=10)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=ENCODER)
    options = parser.parse_args()

    device = choose_device(None)
    precision = choose_precision("auto", device)
    torch.manual_seed(options.seed)
    pack = open_pack(options.data_path, SIZE)
    names = names_of(options.data_path)
    if len(names) != len(pack.pixels):
        raise SystemExit(f"{len(names)} names for {len(pack.pixels)} faces: rejected files? tags need one for each")
    tags, colours = tags_of(options.tags, names)
    kept = torch.arange(len(tags)) % 10 == 0
    taught = torch.where(kept[:, None], -1, tags)
    pupil = Pupil(*map(len, colours))
    place(pupil, device).train()
    steps = int(options.epochs * len(tags) / options.batch)
    optimizer = torch.optim.AdamW(pupil.parameters(), options.lr, weight_decay=0.01)
    rates = torch.optim.lr_scheduler.OneCycleLR(optimizer, options.lr, total_steps=steps, pct_start=0.1)
    random = torch.Generator().manual_seed(options.seed)
    order, start = torch.randperm(len(tags), generator=random), time.monotonic()
    sums = torch.zeros(4)
    for step in range(1, steps + 1):
        if len(order) < options.batch:
            order = torch.randperm(len(tags), generator=random)
        chosen, order = order[: options.batch], order[options.batch :]
        faces = to_tensor(torch.from_numpy(pack.pixels[np.sort(chosen.numpy())]))
        labels = taught[chosen.sort().values]
        pair = [harm(views(faces, random), random) for _ in range(2)]
        inputs = torch.cat([images for images, _ in pair]).to(device)
        amounts = torch.cat([amount for _, amount in pair]).to(device)
        labels = torch.cat([labels, labels]).to(device)
        with autocast(device, precision):
            maps = pupil.encoder.maps(inputs.contiguous(memory_format=torch.channels_last))
        features = maps[-1].float().mean((2, 3))
        contrast = same_face(*pupil.projection(features).chunk(2))
        hair = cross_entropy(pupil.hair(features), labels[:, 0], ignore_index=-1)
        eyes = cross_entropy(pupil.eyes(features), labels[:, 1], ignore_index=-1)
        harmed = smooth_l1_loss(pupil.harm(features), amounts, beta=0.1)
        losses = torch.stack([contrast, hair, eyes, harmed])
        optimizer.zero_grad(set_to_none=True)
        weights = torch.tensor([1.0, 0.3, 0.3, 2.0], device=device)
        (losses * weights).sum().backward()
        optimizer.step()
        rates.step()
        sums += losses.detach().cpu()
        if step % 50 == 0:
            means = " ".join(
                f"{name} {v:.3f}" for name, v in zip(("same", "hair", "eyes", "harm"), sums / 50, strict=True)
            )
            print(f"step {step}/{steps}  {time.monotonic() - start:.0f} s  {means}", flush=True)
            sums.zero_()
    minutes = (time.monotonic() - start) / 60

    pupil.eval()
    encoder, found = pupil.encoder, []
    with torch.no_grad():
        for i in range(0, len(tags), options.batch):
            faces = to_tensor(torch.from_numpy(np.array(pack.pixels[i : i + options.batch]))).to(device)
            found.append(torch.cat(encoder.depths(faces.contiguous(memory_format=torch.channels_last)), 1).cpu())
        features = torch.cat(found)
        for i, what in enumerate(("hair", "eyes")):
            asked = kept & (tags[:, i] >= 0)
            guesses = getattr(pupil, what)(features[asked, -WIDTHS[-1] :].to(device)).argmax(1).cpu()
            right = (guesses == tags[asked, i]).float().mean().item()
            most = tags[asked, i].bincount().max().item() / asked.sum().item()
            total = asked.sum().item()
            print(f"{what}: {right:.3f} of {total} colours not taught are guessed (the commonest: {most:.3f})")
        faces = to_tensor(torch.from_numpy(pack.pixels[:1000]))
        images, amounts = harm(faces, random)
        guesses = pupil.harm(encoder.depths(images.to(device))[-1]).cpu()
        for i, what in enumerate(("blur", "noise", "blocking")):
            r = torch.corrcoef(torch.stack([guesses[:, i], amounts[:, i]]))[0, 1].item()
            print(f"{what}: correlation of guess and truth {r:.3f}")
    encoder.mean.copy_(features.mean(0))
    encoder.deviation.copy_(features.std(0))
    with torch.no_grad():
        faces = to_tensor(torch.from_numpy(pack.pixels[:1000])).to(device)
        scales = torch.stack([seen.square().mean().sqrt() for seen in encoder.maps(faces)]).cpu()
    weights = {name: w.cpu().half() if w.is_floating_point() else w for name, w in encoder.state_dict().items()}
    credits = {
        "program": "AnimeGAN, benchmarks/encoder.py",
        "faces": len(tags),
        "steps": steps,
        "batch": options.batch,
        "seed": options.seed,
    }
    checkpoint.save(options.out, {"encoder": weights, "scales": scales, "credits": {**credits, "minutes": minutes}})
    print(f"{options.out}: {os.path.getsize(options.out):,} bytes, {minutes:.0f} minutes")


if __name__ == "__main__":
    main()
