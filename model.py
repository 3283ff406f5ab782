"""The two networks: z -> face and face -> logit, mirror images of each other.

Tensors in, tensors out: no device, no precision, no files. The shapes are those of the book's DCGAN
(chapter 7 of 深度学习框架PyTorch：入门与实践; Radford et al. 2016), its modules in the book's order, so that
its weights have the names `main.0.weight`, ... At 96 pixels a face grows 1-4-8-16-32-96.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

from config import ModelConfig, Norm, ToRGB


def last_factor(image_size: int) -> int:
    """The factor of the last up-sampling: 3 where the size has one (96 = 4 * 2 * 2 * 2 * 3), else 2."""
    return 3 if image_size % 3 == 0 else 2


def multipliers(image_size: int) -> list[int]:
    """Widths at 4, 8, 16, ... pixels up to the last but one resolution, in units of ngf; at most 8."""
    doublings = (image_size // last_factor(image_size) // 4).bit_length() - 1
    return [min(8, 2**i) for i in range(doublings, -1, -1)]


class Generator(nn.Module):
    """z (N, nz), standard normal -> faces (N, 3, S, S) in [-1, 1]."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        widths = [config.ngf * m for m in multipliers(config.image_size)]
        layers: list[nn.Module] = [nn.ConvTranspose2d(config.nz, widths[0], 4, 1, 0, bias=False)]  # (N, 8 ngf, 4, 4)
        for width, narrower in zip(widths, widths[1:]):
            layers += [nn.BatchNorm2d(width), nn.ReLU(True)]
            layers += [nn.ConvTranspose2d(width, narrower, 4, 2, 1, bias=False)]  # twice the size
        layers += [nn.BatchNorm2d(widths[-1]), nn.ReLU(True)]
        layers += [*to_rgb(config.to_rgb, widths[-1], last_factor(config.image_size)), nn.Tanh()]
        self.main = nn.Sequential(*layers)
        self.apply(init_dcgan)

    def forward(self, z: Tensor) -> Tensor:
        return self.main(z[:, :, None, None])


class Discriminator(nn.Module):
    """Faces (N, 3, S, S) in [-1, 1] -> logits (N,), high for real. No sigmoid: the losses work on logits."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        widths = [config.ndf * m for m in reversed(multipliers(config.image_size))]
        layers: list[nn.Module] = [*from_rgb(config, widths[0]), nn.LeakyReLU(0.2, True)]
        for width, wider in zip(widths, widths[1:]):
            layers += normed(nn.Conv2d(width, wider, 4, 2, 1, bias=config.d_norm != "batch"), config.d_norm)
            layers += [nn.LeakyReLU(0.2, True)]  # half the size
        last = nn.Conv2d(widths[-1], 1, 4, 1, 0, bias=config.d_norm != "batch")
        layers += [last if config.d_norm == "batch" else normed(last, config.d_norm)[0]]
        self.main = nn.Sequential(*layers)
        self.apply(init_dcgan)

    def forward(self, faces: Tensor) -> Tensor:
        return self.main(faces).flatten()


def to_rgb(kind: str, width: int, factor: int) -> list[nn.Module]:
    if kind == "book":
        k, p = (5, 1) if factor == 3 else (4, 1)
        return [nn.ConvTranspose2d(width, 3, k, factor, p, bias=False)]
    if kind == "even":
        return [nn.ConvTranspose2d(width, 3, 3 * factor, factor, factor, bias=False)]
    if kind == "resize":
        return [nn.Upsample(scale_factor=factor), nn.Conv2d(width, 3, 5, padding=2, bias=False)]
    n = width // 4
    return [
        nn.ConvTranspose2d(width, n, 2 * factor, factor, (factor + 1) // 2, factor % 2, bias=False),
        nn.BatchNorm2d(n),
        nn.ReLU(True),
        nn.Conv2d(n, 3, 3, padding=1, bias=False),
    ]


def from_rgb(config: ModelConfig, width: int) -> list[nn.Module]:
    kind, factor, bias = config.to_rgb, last_factor(config.image_size), config.d_norm != "batch"
    if kind == "book":
        k, p = (5, 1) if factor == 3 else (4, 1)
        layers = [nn.Conv2d(3, width, k, factor, p, bias=bias)]
    elif kind in ("even", "resize", "fine"):
        layers = [nn.Conv2d(3, width, 3 * factor, factor, factor, bias=bias)]
    else:
        n = width // 4
        layers = [
            nn.Conv2d(3, n, 3, padding=1, bias=bias),
            nn.LeakyReLU(0.2, True),
            nn.Conv2d(n, width, 2 * factor, factor, (factor + 1) // 2, bias=bias),
        ]
    return [spectral_norm(x) if config.d_norm == "spectral" and isinstance(x, nn.Conv2d) else x for x in layers]


def normed(conv: nn.Conv2d, norm: Norm) -> list[nn.Module]:
    """A convolution with its normalisation."""
    if norm == "batch":
        return [conv, nn.BatchNorm2d(conv.out_channels)]
    return [spectral_norm(conv)] if norm == "spectral" else [conv]


def init_dcgan(module: nn.Module) -> None:
    """Radford et al. 2016, section 3: weights from N(0, 0.02), BatchNorm scales from N(1, 0.02), no biases."""
    if isinstance(module, nn.Conv2d | nn.ConvTranspose2d):
        nn.init.normal_(module.weight, 0.0, 0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, nn.BatchNorm2d):
        nn.init.normal_(module.weight, 1.0, 0.02)
        nn.init.zeros_(module.bias)
