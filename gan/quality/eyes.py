"""Scores of how broken the eyes of a face look: about 0 for intact eyes, about 1 for eyes that everyone calls broken.

EfficientNet-lite0, trained on photographs, sees faces of 144x144 pixels at a stride of 16. A ridge regression was
fitted to the answers of docs/look.md about samples on that map at the eyes, the two halves of the face added and
subtracted (`benchmarks/eyes.py`). It recognises broken eyes that the discriminator misses, and the same encoder on
smaller faces, see docs/experiments.md. Real faces score no lower than samples: closed and hidden eyes and profiles are
doubtful to it.
"""

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from config import EYES
from gan import imagenet
from gan.device import layout
from gan.quality.features import resized, shipped

SIZE = 144  # pixels of the faces that the encoder sees
ROWS = slice(3, 6)  # those of its map, of nine, where eyes are
DEPTHS = 4  # the map at a stride of 16


class Eyes(nn.Module):
    """Maps faces (N, C, S, S) in [-1, 1], colour or grey, to scores (N,), float32."""

    weights: Tensor  # of the regression, by what is `seen`
    bias: Tensor

    def __init__(self, encoder: imagenet.Lite, weights: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.encoder = encoder
        self.register_buffer("weights", weights)
        self.register_buffer("bias", bias)

    def forward(self, faces: Tensor) -> Tensor:
        """Score the eyes of faces."""
        return (self.seen(faces) * self.weights).sum((1, 2, 3)) + self.bias

    def seen(self, faces: Tensor) -> Tensor:
        """Return what is seen of the eyes of faces (N, C, S, S) in [-1, 1]: (N, 2 * 112, 3, 5) float32.

        That is the sum and the distance of the left and the mirrored right half of the map.
        """
        faces = resized(faces.float().expand(-1, 3, -1, -1))
        faces = interpolate(faces, size=(SIZE, SIZE), mode="bilinear")
        left = self.encoder.maps(faces.contiguous(memory_format=layout(faces.device)))[-1][:, :, ROWS].float()
        right = left.flip(3)
        return torch.cat([left + right, (left - right).abs()], 1)[..., : (left.shape[3] + 1) // 2]


def load(on: torch.device, path: Path = EYES) -> Eyes:
    """Load the scores that come with the program.

    Raises:
        CheckpointError: the file is missing or damaged.
        ConfigError: the package with the encoder's weights is not installed.
    """
    content = shipped(path, "weights", "bias")
    encoder = imagenet.load("lite0", depths=DEPTHS)
    return Eyes(encoder, content["weights"].float(), content["bias"].float()).to(on).requires_grad_(False).eval()
