"""Differentiable augmentation (Zhao et al. 2020): the same gentle moves on reals and fakes. Pure.

Only moves that leave a face a face: shifts with a replicated border, and small changes of colour, which help with few
faces. There are no cut-outs, which leak into the samples. Mirroring is in `batches` instead: mirrored faces are faces
too, and samples should face both ways.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

BRIGHTER = 0.2  # most that is added to a face in [-1, 1]
STRONGER = 0.3  # greatest relative change of its saturation and contrast


@dataclasses.dataclass(frozen=True)
class Moves:
    """The augmentation of one batch."""

    shift: tuple[int, int]  # down and right, of the whole batch, pixels
    # For each face the brightness to add and the factors of saturation and contrast, (N, 3) float32; None: no change.
    colours: np.ndarray | None = None

    def of(self, part: slice) -> Moves:
        """The augmentation of a part of the batch."""
        return self if self.colours is None else dataclasses.replace(self, colours=self.colours[part])


def draw_moves(random: np.random.Generator, n: int, image_size: int, translate: float, colour: float = 0.0) -> Moves:
    """Draw the moves of a batch of n faces of `image_size` pixels.

    The batch is shifted with probability `translate`, by up to an eighth of the size each way; brightness, saturation
    and contrast of each face change with probability `colour`.
    """
    reach = image_size // 8 if random.random() < translate else 0
    down, right = (int(s) for s in random.integers(-reach, reach, size=2, endpoint=True))
    if not colour:
        return Moves((down, right))
    changes = random.uniform(-1, 1, (n, 3)) * (BRIGHTER, STRONGER, STRONGER) * (random.random((n, 1)) < colour)
    return Moves((down, right), (changes + np.array([0, 1, 1])).astype(np.float32))


def augment(images: Tensor, moves: Moves) -> Tensor:
    """Apply `moves` to images (N, C, H, W). Differentiable; without any it is the identity."""
    down, right = moves.shift
    if down or right:
        height, width = images.shape[-2:]
        border = (max(right, 0), max(-right, 0), max(down, 0), max(-down, 0))
        top, left = max(-down, 0), max(-right, 0)
        last = images.is_contiguous(memory_format=torch.channels_last)
        images = pad(images, border, mode="replicate")[..., top : top + height, left : left + width]
        # In memory as unshifted ones: compiled networks want that.
        images = images.contiguous(memory_format=torch.channels_last if last else torch.contiguous_format)
    if moves.colours is not None:
        colours = torch.from_numpy(moves.colours).to(images.device, non_blocking=True)
        brighter, saturation, contrast = colours[:, :, None, None, None].unbind(1)  # (N, 1, 1, 1) each
        grey = images.mean(1, keepdim=True)
        images = grey + saturation * (images - grey)
        middle = images.mean((1, 2, 3), keepdim=True)
        images = middle + contrast * (images - middle) + brighter
    return images
