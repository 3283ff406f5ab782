"""Differentiable augmentation (Zhao et al. 2020): the same gentle moves on reals and fakes. Pure.

Only moves that leave a face a face: mirroring, and shifts with a replicated border. Cut-outs and colour changes
are left out, they leak into the samples.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad


@dataclasses.dataclass(frozen=True)
class Moves:
    """What happens to one batch: `flips` (N,) bool says which are mirrored, `shift` (down, right) moves all, pixels."""

    flips: np.ndarray
    shift: tuple[int, int]


def draw_moves(random: np.random.Generator, n: int, image_size: int, flip: float, translate: float) -> Moves:
    """Draw the moves of one batch.

    Args:
        random: source of randomness.
        n: faces in the batch.
        image_size: their height and width, pixels.
        flip: probability that a face is mirrored.
        translate: probability that the batch is shifted, by up to an eighth of `image_size` each way.
    """
    flips = random.random(n) < flip
    reach = image_size // 8 if random.random() < translate else 0
    down, right = (int(s) for s in random.integers(-reach, reach, size=2, endpoint=True))
    return Moves(flips, (down, right))


def augment(images: Tensor, moves: Moves) -> Tensor:
    """Apply `moves` to images (N, C, H, W). Differentiable; without flips and shift it is the identity."""
    if moves.flips.any():
        flips = torch.from_numpy(moves.flips).to(images.device, non_blocking=True)
        images = torch.where(flips[:, None, None, None], images.flip(-1), images)
    down, right = moves.shift
    if down or right:
        height, width = images.shape[-2:]
        border = (max(right, 0), max(-right, 0), max(down, 0), max(-down, 0))
        top, left = max(-down, 0), max(-right, 0)
        images = pad(images, border, mode="replicate")[..., top : top + height, left : left + width]
    return images
