"""The two networks: z -> face and face -> logit, mirror images of each other but for the generator's last layers.

Tensors in, tensors out: no device, no precision, no files. The shapes are those of the book's DCGAN
(chapter 7 of 深度学习框架PyTorch：入门与实践; Radford et al. 2016), its modules in the book's order, so that
its weights have the names `main.0.weight`, ... At 96 pixels a face grows 1-4-8-16-32-96. `resnet` has the same
resolutions with residual blocks at each, as the book proposes to try.
"""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm
from torch.nn.utils.parametrize import is_parametrized

from config import Arch, ModelConfig, Norm, ToRGB


class Generator(nn.Module):
    """z (N, nz), standard normal -> faces (N, C, S, S) in [-1, 1]."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        widths, depths = shape(config, config.ngf)
        layers: list[nn.Module] = [nn.ConvTranspose2d(config.nz, widths[0], 4, 1, 0, bias=False)]  # (N, 8 ngf, 4, 4)
        for (width, narrower), depth in zip(pairwise(widths), depths, strict=False):
            layers += [GeneratorBlock(width) for _ in range(depth)]
            layers += grow(config.arch, width, narrower)  # (N, ..., twice the size)
        layers += [GeneratorBlock(widths[-1]) for _ in range(depths[-1])]
        layers += [nn.BatchNorm2d(widths[-1]), nn.ReLU(True)]
        layers += [*to_rgb(config.to_rgb, widths[-1], config.channels, config.last_factor), nn.Tanh()]
        self.main = nn.Sequential(*layers)
        self.apply(init_dcgan)
        self.apply(init_residual)

    def forward(self, z: Tensor) -> Tensor:
        """Draw a face for each latent: (N, nz) -> (N, C, S, S)."""
        return self.main(z[:, :, None, None])


class Discriminator(nn.Module):
    """Faces (N, C, S, S) in [-1, 1] -> logits (N,), high for real. No sigmoid: the losses work on logits."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        widths, depths = (list(reversed(numbers)) for numbers in shape(config, config.ndf))
        norm, bias = config.d_norm, config.d_norm != "batch"
        first = nn.Conv2d(config.channels, widths[0], *_book_kernel(config.last_factor), bias=bias)
        layers: list[nn.Module] = [normed(first, norm)[0]]  # no BatchNorm here
        if config.arch == "dcgan":
            layers += [nn.LeakyReLU(0.2, True)]
        layers += [DiscriminatorBlock(widths[0], norm) for _ in range(depths[0])]
        for (width, wider), depth in zip(pairwise(widths), depths[1:], strict=True):
            layers += shrink(config.arch, width, wider, norm)
            layers += [DiscriminatorBlock(wider, norm) for _ in range(depth)]
        if config.arch == "resnet":
            layers += [nn.LeakyReLU(0.2)]
        layers += [normed(nn.Conv2d(widths[-1], 1, 4, 1, 0, bias=bias), norm)[0]]  # nor here
        self.main = nn.Sequential(*layers)
        self.apply(init_dcgan)
        self.apply(init_residual)

    def forward(self, faces: Tensor) -> Tensor:
        """Judge faces: (N, C, S, S) -> (N,)."""
        return self.main(faces).flatten()


def shape(config: ModelConfig, width: int) -> tuple[list[int], list[int]]:
    """Channels and residual blocks at each of the config's resolutions, coarse to fine."""
    blocks = 1 if config.arch == "resnet" else 0
    return list(config.widths or config.default_widths(width)), list(
        config.depths or [blocks] * len(config.resolutions)
    )


def grow(arch: Arch, width: int, narrower: int) -> list[nn.Module]:
    """The generator's way to twice the size: (N, width, R, R) -> (N, narrower, 2 R, 2 R)."""
    if arch == "dcgan":
        return [nn.BatchNorm2d(width), nn.ReLU(True), nn.ConvTranspose2d(width, narrower, 4, 2, 1, bias=False)]
    return [Shortcut(width, narrower, 1, bias=False), nn.Upsample(scale_factor=2)]  # 1x1 first: a quarter of the work


def shrink(arch: Arch, width: int, wider: int, norm: Norm) -> list[nn.Module]:
    """The discriminator's way to half the size, `grow` in the mirror: (N, width, 2 R, 2 R) -> (N, wider, R, R)."""
    bias = norm != "batch"
    if arch == "dcgan":
        return [*normed(nn.Conv2d(width, wider, 4, 2, 1, bias=bias), norm), nn.LeakyReLU(0.2, True)]
    return [nn.AvgPool2d(2), normed(Shortcut(width, wider, 1, bias=bias), norm)[0]]


class Shortcut(nn.Conv2d):
    """A 1x1 convolution between residual blocks of different width."""


class GeneratorBlock(nn.Module):
    """Residual block, He et al. 2016 (identity mappings): x + two 3x3 convolutions, each after BatchNorm and ReLU."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.branch = nn.Sequential(
            nn.BatchNorm2d(width),
            nn.ReLU(True),
            nn.Conv2d(width, width, 3, 1, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(True),
            nn.Conv2d(width, width, 3, 1, 1, bias=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        """(N, width, R, R) -> the same."""
        return x + self.branch(x)


class DiscriminatorBlock(nn.Module):
    """The mirror of `GeneratorBlock`, with the discriminator's normalisation and leaky ReLUs."""

    def __init__(self, width: int, norm: Norm) -> None:
        super().__init__()
        bias = norm != "batch"
        convs = [nn.Conv2d(width, width, 3, 1, 1, bias=bias) for _ in range(2)]
        self.branch = nn.Sequential(
            nn.LeakyReLU(0.2),  # not in place: its input is also added to its output
            *normed(convs[0], norm),
            nn.LeakyReLU(0.2, True),
            *normed(convs[1], norm),
        )

    def forward(self, x: Tensor) -> Tensor:
        """(N, width, R, R) -> the same."""
        return x + self.branch(x)


def to_rgb(kind: ToRGB, width: int, channels: int, factor: int) -> list[nn.Module]:
    """The generator's last layers: `width` channels at S / factor pixels -> the face's `channels` at S.

    The book's is one transposed convolution. With kernel 5 and stride 3 its kernels overlap unevenly, which draws a
    grid of speckle (Odena et al. 2016). `smooth` fits fewer channels to full size by bilinear interpolation, which
    treats every pixel alike, and is not linear there, so that edges need not follow the coarse grid.
    """
    if kind == "book":
        return [nn.ConvTranspose2d(width, channels, *_book_kernel(factor), bias=False)]
    half = max(1, width // 2)
    return [
        nn.Conv2d(width, half, 1, bias=False),
        nn.Upsample(scale_factor=factor, mode="bilinear"),
        nn.BatchNorm2d(half),
        nn.ReLU(True),
        nn.Conv2d(half, channels, 3, 1, 1, bias=False),
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


def init_residual(module: nn.Module) -> None:
    """Residual networks start as their shortcuts: the branches add nothing yet (Goyal et al. 2017, section 5.1).

    Where a shortcut changes its width it keeps the size of its signal (He et al. 2015); N(0, 0.02) would let it fade.
    """
    if isinstance(module, Shortcut) and not is_parametrized(module):
        nn.init.kaiming_normal_(module.weight, nonlinearity="linear")
    elif isinstance(module, GeneratorBlock | DiscriminatorBlock):
        convs = [m for m in module.branch if isinstance(m, nn.Conv2d) and not is_parametrized(m)]
        for conv in convs:
            nn.init.kaiming_normal_(conv.weight, a=0.2)
        if isinstance(last := module.branch[-1], nn.BatchNorm2d):  # which would make anything of a convolution but 0
            nn.init.zeros_(last.weight)
        elif convs:  # a spectral norm of 0 cannot be brought to 1
            nn.init.zeros_(convs[-1].weight)
