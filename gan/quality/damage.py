"""A small network that finds damage in an anime face: an eye bent, smeared or pasted from another face. Pure."""

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

POSITIONS = 24  # positions per side that it rates in a face of 96 pixels
WIDTHS = 32, 64, 96, 160  # channels at 1/2, 1/4, 1/8 and 1/16 of the face's size


class Residual(nn.Module):
    """A residual block of two convolutions that preserves the shape (N, C, S, S)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.branch = nn.Sequential(
            nn.Conv2d(channels, channels, 3, 1, 1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(True),
            nn.Conv2d(channels, channels, 3, 1, 1, bias=False),
            nn.BatchNorm2d(channels),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block: (N, C, S, S) -> (N, C, S, S)."""
        return (x + self.branch(x)).relu()


class Damage(nn.Module):
    """Maps faces (N, 3, 96, 96) in [-1, 1] to logits (N, 24, 24) of each position being damaged.

    It is a U-Net (Ronneberger et al. 2015) whose smallest map is 6 x 6 and sees the whole face. `benchmarks/damage.py`
    trained it on real faces and damaged ones; it has never seen a generated face.
    """

    def __init__(self) -> None:
        super().__init__()
        half, quarter, eighth, sixteenth = WIDTHS
        self.stem = shrink(3, half)
        self.quarter = nn.Sequential(shrink(half, quarter), Residual(quarter))
        self.eighth = nn.Sequential(shrink(quarter, eighth), Residual(eighth))
        self.sixteenth = nn.Sequential(shrink(eighth, sixteenth), Residual(sixteenth))
        self.to_eighth, self.up_eighth = nn.Conv2d(sixteenth, eighth, 1), Residual(eighth)
        self.to_quarter, self.up_quarter = nn.Conv2d(eighth, quarter, 1), Residual(quarter)
        self.out = nn.Conv2d(quarter, 1, 1)

    def forward(self, faces: Tensor) -> Tensor:
        """Compute the logits: (N, 3, S, S) -> (N, S / 4, S / 4)."""
        quarter = self.quarter(self.stem(faces))
        eighth = self.eighth(quarter)
        x = self.up_eighth(eighth + interpolate(self.to_eighth(self.sixteenth(eighth)), scale_factor=2))
        x = self.up_quarter(quarter + interpolate(self.to_quarter(x), scale_factor=2))
        return self.out(x)[:, 0]

    def share(self, faces: Tensor) -> Tensor:
        """Return the mean probability of damage over each face's positions: (N, 3, 96, 96) -> (N,), from 0 to 1."""
        return torch.sigmoid(self(faces).float()).mean((1, 2))


def shrink(inputs: int, outputs: int) -> nn.Sequential:
    """Return layers that halve the size: (N, inputs, 2 S, 2 S) -> (N, outputs, S, S)."""
    return nn.Sequential(nn.Conv2d(inputs, outputs, 4, 2, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(True))
