"""A small network that predicts the hair and eye colours of an anime face."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from config import COLOURS, Vocabulary
from gan import checkpoint, device
from gan.images import to_tensor
from gan.quality.damage import Residual, shrink
from gan.quality.features import Extractor, resized, shipped

WIDTHS = 48, 64, 96, 128  # channels at 1/2, 1/4, 1/8 and 1/16 of the face's size


class Colours(nn.Module):
    """Maps faces (N, 3, 96, 96) in [-1, 1] to the logits of the classes of each column of labels, (N, C) each.

    Every class has a logit at each of 12 x 12 positions, and every column averages them with learned weights, so that
    hair is looked for where hair is. `benchmarks/colours.py` trained the network on tagged faces.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        super().__init__()
        half, quarter, eighth, sixteenth = WIDTHS
        self.fine = nn.Sequential(shrink(3, half), shrink(half, quarter), Residual(quarter))
        self.eighth = nn.Sequential(shrink(quarter, eighth), Residual(eighth))
        self.sixteenth = nn.Sequential(shrink(eighth, sixteenth), Residual(sixteenth), nn.Conv2d(sixteenth, eighth, 1))
        self.grow = nn.Upsample(scale_factor=2)
        self.drop = nn.Dropout2d(0.2)
        self.columns = nn.ModuleList(nn.Conv2d(eighth, len(classes), 1) for _, *classes in vocabulary)
        self.places = nn.ModuleList(nn.Conv2d(eighth, 1, 1) for _ in vocabulary)

    def forward(self, faces: Tensor) -> list[Tensor]:
        """Compute the logits, see the class."""
        eighth = self.eighth(self.fine(faces))
        x = self.drop((eighth + self.grow(self.sixteenth(eighth))).relu())
        found = []
        for column, place in zip(self.columns, self.places, strict=True):
            share = place(x).flatten(2).softmax(2)  # (N, 1, 144)
            found.append((column(x).flatten(2) * share).sum(2))
        return found


@dataclasses.dataclass(frozen=True)
class Classifier:
    """Predicts labels; a face stays unlabelled in a column if its probability is below the column's `least`.

    `logits` maps faces (N, 3, S, S) in [-1, 1] to those of all columns, (N, C), with gradients; `extractor` computes
    the same from pixels.
    """

    vocabulary: Vocabulary
    least: tuple[float, ...]
    extractor: Extractor
    logits: Callable[[Tensor], Tensor]

    def __call__(self, pixels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Map pixels (N, S, S, C) uint8 to codes as in `gan.classes` and their probabilities, (N, K) each."""
        found, codes, sure = self.extractor(pixels), [], []
        columns = found.split([len(classes) for _, *classes in self.vocabulary], 1)
        for logits, least in zip(columns, self.least, strict=True):
            highest, which = logits.softmax(1).max(1)
            codes.append(torch.where(highest >= least, which + 1, 0))
            sure.append(highest)
        return torch.stack(codes, 1).numpy(), torch.stack(sure, 1).numpy()


def load(on: torch.device, path: Path = COLOURS) -> Classifier:
    """Load the network that comes with the program.

    Raises:
        CheckpointError: the file is missing or damaged.
    """
    content = shipped(path, "colours", "vocabulary", "least")
    network = Colours(content["vocabulary"]).eval()
    checkpoint.load_weights(network, content["colours"], "network", path)
    network = device.place(network, on).requires_grad_(False)
    width = sum(len(names) - 1 for names in content["vocabulary"])

    def logits(faces: Tensor) -> Tensor:
        return torch.cat(network(resized(faces)), 1)

    extractor = Extractor("colours", width, lambda pixels: logits(to_tensor(pixels.expand(-1, -1, -1, 3))), on)
    return Classifier(content["vocabulary"], tuple(content["least"]), extractor, logits)
