"""Differentiable augmentation (Zhao et al. 2020): the same mild transforms for real and generated images.

Every transform keeps a face plausible: shifts with a replicated border, and small colour changes, which help when there
are few faces. Cutout is not used, because it leaks into the samples. Mirroring is done in `batches` instead: a mirrored
face is a valid face, and samples should face both ways. The functions are pure.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from gan.device import send

BRIGHTER = 0.2  # largest value added to a face in [-1, 1]
STRONGER = 0.3  # largest relative change of saturation and contrast


@dataclasses.dataclass(frozen=True)
class Moves:
    """The augmentation of one batch."""

    shift: tuple[int, int]  # of the whole batch, down and right, in pixels
    # For each face, the brightness to add and the factors of saturation and contrast, (N, 3) float32. None: no change.
    colours: np.ndarray | None = None

    def of(self, part: slice) -> Moves:
        """Return the augmentation of a part of the batch."""
        return self if self.colours is None else dataclasses.replace(self, colours=self.colours[part])


def draw_moves(random: np.random.Generator, n: int, image_size: int, translate: float, colour: float = 0.0) -> Moves:
    """Draw the augmentation of a batch of n faces of `image_size` pixels.

    With probability `translate` the whole batch is shifted, by up to an eighth of the size in each direction. With
    probability `colour` a face's brightness, saturation and contrast are changed.
    """
    reach = image_size // 8 if random.random() < translate else 0
    down, right = (int(s) for s in random.integers(-reach, reach, size=2, endpoint=True))
    if not colour:
        return Moves((down, right))
    changes = random.uniform(-1, 1, (n, 3)) * (BRIGHTER, STRONGER, STRONGER) * (random.random((n, 1)) < colour)
    return Moves((down, right), (changes + np.array([0, 1, 1])).astype(np.float32))


def augment(images: Tensor, moves: Moves) -> Tensor:
    """Apply `moves` to images (N, C, H, W). This is differentiable, and the identity if there are no moves."""
    down, right = moves.shift
    if down or right:
        height, width = images.shape[-2:]
        border = (max(right, 0), max(-right, 0), max(down, 0), max(-down, 0))
        top, left = max(-down, 0), max(-right, 0)
        last = images.stride(1) == 1  # is_contiguous is true of both layouts of grey images
        images = pad(images, border, mode="replicate")[..., top : top + height, left : left + width]
        # Keep the memory layout of unshifted images, which compiled networks expect.
        images = images.contiguous(memory_format=torch.channels_last if last else torch.contiguous_format)
    if moves.colours is not None:
        colours = send(torch.from_numpy(moves.colours), images.device)
        brighter, saturation, contrast = colours[:, :, None, None, None].unbind(1)  # (N, 1, 1, 1) each
        grey = images.mean(1, keepdim=True)
        images = grey + saturation * (images - grey)
        middle = images.mean((1, 2, 3), keepdim=True)
        images = middle + contrast * (images - middle) + brighter
    return images
