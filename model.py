"""The two networks: z -> face and face -> logit, mirror images of each other but for the generator's `smooth` ending.

Tensors in, tensors out: no device, no precision, no files. The shapes are those of the book's DCGAN
(chapter 7 of 深度学习框架PyTorch：入门与实践; Radford et al. 2016), its modules in the book's order, so that
its weights have the names `main.0.weight`, ... At 96 pixels a face grows 1-4-8-16-32-96.
"""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm
from torch.nn.utils.parametrize import is_parametrized

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
        for width, narrower in pairwise(widths):
            layers += [nn.BatchNorm2d(width), nn.ReLU(True)]
            layers += [nn.ConvTranspose2d(width, narrower, 4, 2, 1, bias=False)]  # (N, ..., twice the size)
        layers += [nn.BatchNorm2d(widths[-1]), nn.ReLU(True)]
        layers += [*to_rgb(config.to_rgb, widths[-1], last_factor(config.image_size)), nn.Tanh()]
        self.main = nn.Sequential(*layers)
        self.apply(init_dcgan)

    def forward(self, z: Tensor) -> Tensor:
        """Draw a face for each latent: (N, nz) -> (N, 3, S, S)."""
        return self.main(z[:, :, None, None])


class Discriminator(nn.Module):
    """Faces (N, 3, S, S) in [-1, 1] -> logits (N,), high for real. No sigmoid: the losses work on logits."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        widths = [config.ndf * m for m in reversed(multipliers(config.image_size))]
        bias = config.d_norm != "batch"
        first = nn.Conv2d(3, widths[0], *_book_kernel(last_factor(config.image_size)), bias=bias)
        layers: list[nn.Module] = [normed(first, config.d_norm)[0], nn.LeakyReLU(0.2, True)]  # no BatchNorm here
        for width, wider in pairwise(widths):
            layers += [*normed(nn.Conv2d(width, wider, 4, 2, 1, bias=bias), config.d_norm), nn.LeakyReLU(0.2, True)]
        layers += [normed(nn.Conv2d(widths[-1], 1, 4, 1, 0, bias=bias), config.d_norm)[0]]  # nor here
        self.main = nn.Sequential(*layers)
        self.apply(init_dcgan)

    def forward(self, faces: Tensor) -> Tensor:
        """Judge faces: (N, 3, S, S) -> (N,)."""
        return self.main(faces).flatten()


def to_rgb(kind: ToRGB, width: int, factor: int) -> list[nn.Module]:
    """The generator's last layers: `width` channels at S / factor pixels -> 3 at S.

    The book's is one transposed convolution. With kernel 5 and stride 3 its kernels overlap unevenly, which draws a
    grid of speckle (Odena et al. 2016). `smooth` fits fewer channels to full size by bilinear interpolation, which
    treats every pixel alike, and is not linear there, so that edges need not follow the coarse grid.
    """
    if kind == "book":
        return [nn.ConvTranspose2d(width, 3, *_book_kernel(factor), bias=False)]
    half = max(1, width // 2)
    return [
        nn.Conv2d(width, half, 1, bias=False),
        nn.Upsample(scale_factor=factor, mode="bilinear"),
        nn.BatchNorm2d(half),
        nn.ReLU(True),
        nn.Conv2d(half, 3, 3, 1, 1, bias=False),
    ]


def _book_kernel(factor: int) -> tuple[int, int, int]:
    """Kernel, stride and padding at full size, for both networks."""
    return (5, 3, 1) if factor == 3 else (4, 2, 1)


def normed(conv: nn.Conv2d, norm: Norm) -> list[nn.Module]:
    """A convolution with its normalisation."""
    if norm == "batch":
        return [conv, nn.BatchNorm2d(conv.out_channels)]
    if norm == "spectral":
        init_dcgan(conv)  # before: afterwards its weight is computed and cannot be set
        return [spectral_norm(conv)]
    return [conv]


def init_dcgan(module: nn.Module) -> None:
    """Radford et al. 2016, section 3: weights from N(0, 0.02), BatchNorm scales from N(1, 0.02), no biases."""
    if isinstance(module, nn.Conv2d | nn.ConvTranspose2d) and not is_parametrized(module):
        nn.init.normal_(module.weight, 0.0, 0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, nn.BatchNorm2d):
        nn.init.normal_(module.weight, 1.0, 0.02)
        nn.init.zeros_(module.bias)
