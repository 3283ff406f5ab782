"""A small network that encodes the content of a face and how clean it is, for metrics and discriminators. Pure."""

from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

SIZE = 96  # height and width of the faces that it was trained on, in pixels
WIDTHS = 32, 48, 96, 192
FEATURES = sum(WIDTHS[1:])

M = TypeVar("M", bound=nn.Module)


class Residual(nn.Module):
    """Residual block of two convolutions: (N, C, S, S) -> the same shape."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.norm1: nn.Module = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.norm2: nn.Module = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block: (N, C, S, S) -> the same shape."""
        inner = self.norm1(self.conv1(x)).relu_()
        return self.norm2(self.conv2(inner)).add_(x).relu_()  # in place: on a CPU new memory costs more than the sum


class Encoder(nn.Module):
    """A small residual network that encodes the content of a face and how clean it is.

    `benchmarks/encoder.py` trained it; docs/experiments.md says how far to trust it. Features come from three depths,
    as means over the feature maps of 24, 12 and 6 pixels: the first encode texture, the last content. They are
    standardised to mean 0 and standard deviation 1 over its training faces.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for i, (before, width) in enumerate(zip((3, *WIDTHS), WIDTHS, strict=False)):
            layers += [nn.Conv2d(before, width, 3, 2, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(True)]
            layers += [Residual(width)] if i else []
        self.body = nn.Sequential(*layers)
        self.register_buffer("mean", torch.zeros(FEATURES))
        self.register_buffer("deviation", torch.ones(FEATURES))

    def maps(self, faces: Tensor) -> list[Tensor]:
        """Compute feature maps at three depths: (N, 3, S, S) in [-1, 1] -> (N, 48, S/4, S/4) and so on."""
        x, maps = faces, []
        for layer in self.body:
            x = layer(x)
            if isinstance(layer, Residual):
                maps.append(x)
        return maps

    def depths(self, faces: Tensor) -> list[Tensor]:
        """Average each feature map: (N, 3, 96, 96) in [-1, 1] -> (N, 48), (N, 96), (N, 192), not standardised."""
        return [seen.mean((2, 3)) for seen in self.maps(faces)]

    def forward(self, faces: Tensor) -> Tensor:
        """Compute standardised features: (N, 3, 96, 96) in [-1, 1] -> (N, 336)."""
        return (torch.cat(self.depths(faces), 1) - self.mean) / self.deviation


def fused(encoder: Encoder) -> Encoder:
    """Fold BatchNorm into the convolutions of an encoder in eval mode, in place: a quarter faster on CPUs."""
    body = encoder.body
    for i, layer in enumerate(body):
        if isinstance(layer, nn.Conv2d):
            body[i], body[i + 1] = fuse_conv_bn_eval(layer, cast(Any, body[i + 1])), nn.Identity()
        elif isinstance(layer, Residual):
            layer.conv1, layer.norm1 = fuse_conv_bn_eval(layer.conv1, cast(Any, layer.norm1)), nn.Identity()
            layer.conv2, layer.norm2 = fuse_conv_bn_eval(layer.conv2, cast(Any, layer.norm2)), nn.Identity()
    return encoder


def frozen(module: M, saved: bool = True) -> M:
    """Turn a module's weights into buffers, in place: moved with it, not trained, in state dicts only if `saved`."""
    for part in module.modules():
        for name, weight in list(part.named_parameters(recurse=False)):
            delattr(part, name)
            part.register_buffer(name, weight.detach(), persistent=saved)
    return module
