"""Scores of how whole faces look: both eyes present, whole and alike, and nothing smeared over the face.

A language model that sees pictures rated samples of the released generator one by one, and a ridge regression was
fitted to these ratings on the encoder's features (`benchmarks/whole_faces.py`). The score tells which of two faces one
would rather show, not how good a set of faces is: real faces score no higher than samples, see docs/experiments.md.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from config import WHOLE_FACES, Precision
from gan.device import layout
from gan.quality import features, metrics
from gan.quality.features import Extractor, shipped

KNOWN = 1.22
"""Largest median squared Mahalanobis distance from real anime faces, divided by the number of features, at which a set
counts as such faces. Real ones have 0.9 (1.2 at 32 pixels, or if cut out closely), samples 0.8 to 0.9; synthetic ones
1.27, pencil drawings of them 1.4, crops of diagrams 2.0, of photographs 3.4."""

ASKED = 256  # number of faces used to identify the kind of a set


@dataclasses.dataclass(frozen=True)
class WholeFaces:
    """Scores how whole faces look."""

    extractor: Extractor  # computes their features
    weights: Tensor  # of the regression, (F,)
    distance: Callable[[Tensor], Tensor]  # features (N, F) -> squared Mahalanobis distances from real anime faces, (N,)

    def scores(self, seen: Tensor) -> np.ndarray:
        """Map features (N, F) to a score for each face, (N,), without a unit: the higher, the more whole it looks."""
        return (seen @ self.weights).numpy()

    def knows(self, seen: Tensor) -> bool:
        """Return whether faces with features (N, F) are of the kind trained on; for others, scores mean little."""
        return self.distance(seen).median().item() <= KNOWN * self.extractor.width


def scorer(on: torch.device, precision: Precision) -> Callable[[Tensor], Tensor]:
    """Return a function from faces (N, C, S, S) in [-1, 1] to their scores (N,), float32, which passes gradients on.

    In bf16 it is called under autocast, which would convert frozen weights at each call.
    """
    encoder = features.faces_encoder(on)
    encoder.body.to(torch.bfloat16 if precision == "bf16" else torch.float32)
    weights = load(features.load("faces", on)).weights.float().to(on)

    def scores(faces: Tensor) -> Tensor:
        faces = features.resized(faces.expand(-1, 3, -1, -1)).contiguous(memory_format=layout(faces.device))
        return encoder(faces).float() @ weights

    return scores


def load(extractor: Extractor, path: Path = WHOLE_FACES) -> WholeFaces:
    """Load the regression that comes with the program, for the features called `faces`.

    Raises:
        CheckpointError: the file is missing or damaged.
    """
    content = shipped(path, "weights", "mean", "covariance")
    distance = metrics.mahalanobis(content["mean"].double(), content["covariance"].double())
    return WholeFaces(extractor, content["weights"], distance)
