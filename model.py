"""The networks: three generators, latent -> face, and one discriminator, face -> logits.

Tensors in, tensors out: no device, no precision, no files. Each generator is a list of layers. `book` is the DCGAN of
chapter 7 of 深度学习框架PyTorch：入门与实践 (Radford et al. 2016), in the book's order of modules, so that its weights
have the names `main.0.weight`, ...; its maps grow 4-8-16-32-96 pixels. `dcgan`, the default, adds what came after, and
grows 6-12-24-48-96. `resnet` has residual blocks at these sizes, which the book suggests trying.
"""

import functools
from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, conv_transpose2d, interpolate
from torch.nn.utils.parametrizations import spectral_norm
from typing_extensions import assert_never  # comes with torch

from config import ModelConfig, Vocabulary
from gan.encoder import frozen
from gan.imagenet import MIXED, SCALES, Mixing, load

FEW_PIXELS = 6  # largest maps that are upsampled and convolved plainly in bf16: 1.3 to 1.5 times as fast on CPUs
DEEP_PIXELS = 48  # largest maps on which `dcgan` has residual blocks; on larger ones they cost more than they bring
ENLARGED = 1.5  # with `fine`: the discriminator's encoder sees faces enlarged by this factor, so an eye at more places
HEAD_WIDTH = 64  # channels in the heads
QUICKER = 10  # factor of the learning rate of the generator's class embeddings, which start at zero


class Generator(nn.Module):
    """Generator: latents (N, nz), standard normal -> faces (N, C, S, S) in [-1, 1]."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        match config.arch:
            case "book":
                layers = book_generator(config)
            case "dcgan":
                layers = dcgan_generator(config)
            case "resnet":
                layers = resnet_generator(config)
            case _:
                assert_never(config.arch)
        self.main = nn.Sequential(*layers, nn.Tanh())
        self.apply(init_dcgan)
        self.apply(init_residual)
        self.classes = ClassEmbeddings(config.vocabulary, config.nz)

    def conditioned(self, z: Tensor, codes: Tensor | None) -> Tensor:
        """Shift latents (N, nz) by the learned embeddings of their classes; codes (N, V) as in `gan.classes`."""
        shift = self.classes(codes)
        return z if shift is None else z + QUICKER * shift

    def forward(self, z: Tensor, codes: Tensor | None = None) -> Tensor:
        """Generate a face for each latent, of its classes if any: (N, nz), (N, V) -> (N, C, S, S)."""
        z = self.conditioned(z, codes)
        x = z[:, :, None, None]
        for layer in self.main:
            x = layer(x, z) if isinstance(layer, Modulation) else layer(x)
        return x


def book_generator(config: ModelConfig) -> list[nn.Module]:
    """List the layers of the book's generator, up to its tanh."""
    widths = config.widths(config.ngf)  # 512, 256, 128, 64
    layers: list[nn.Module] = [nn.ConvTranspose2d(config.nz, widths[0], 4, 1, 0, bias=False)]  # (N, nz, 1, 1) -> 4x4
    for width, narrower in pairwise(widths):
        layers += [nn.BatchNorm2d(width), nn.ReLU(True)]
        layers += [nn.ConvTranspose2d(width, narrower, 4, 2, 1, bias=False)]  # twice the size
    layers += [nn.BatchNorm2d(widths[-1]), nn.ReLU(True)]
    return [*layers, nn.ConvTranspose2d(widths[-1], config.channels, *book_kernel(config), bias=False)]


def dcgan_generator(config: ModelConfig) -> list[nn.Module]:
    """List the layers of the default generator.

    Every map but the first receives the latent (`Modulation`) and, up to 48 pixels, has two residual blocks, so that
    both eyes of a face agree more often. At the first a block soon outweighs the latent, and all faces become one.
    """
    widths, size = config.widths(config.ngf, most=4), config.first_pixels  # 256, 256, 128, 64; 6 pixels
    layers: list[nn.Module] = [nn.ConvTranspose2d(config.nz, widths[0], size, 1, 0, bias=False)]
    for width, narrower in pairwise(widths):
        layers += [nn.BatchNorm2d(width), nn.ReLU(True), NearestConv(width, narrower), Modulation(config.nz, narrower)]
        size *= 2
        for _ in range(2 if size <= DEEP_PIXELS else 0):
            layers += [GeneratorBlock(narrower, max(1, narrower // 2)), Modulation(config.nz, narrower)]
    return [*layers, nn.BatchNorm2d(widths[-1]), nn.ReLU(True), *to_rgb(config, widths[-1])]


def resnet_generator(config: ModelConfig) -> list[nn.Module]:
    """List the layers of the residual generator: a block at each size; between them 1x1 convolutions and doublings."""
    widths = config.widths(config.ngf)
    layers: list[nn.Module] = [nn.ConvTranspose2d(config.nz, widths[0], config.first_pixels, 1, 0, bias=False)]
    for width, narrower in pairwise(widths):
        layers += [GeneratorBlock(width, width), Shortcut(width, narrower, 1, bias=False)]
        layers += [nn.Upsample(scale_factor=2), Modulation(config.nz, narrower)]
    layers += [GeneratorBlock(widths[-1], widths[-1]), nn.BatchNorm2d(widths[-1]), nn.ReLU(True)]
    return [*layers, *to_rgb(config, widths[-1])]


def to_rgb(config: ModelConfig, width: int) -> list[nn.Module]:
    """List the last layers of `dcgan` and `resnet`: `width` channels at half the size -> the face's C channels.

    The book's last layer overlaps unevenly, which leaves a grid of speckles (Odena et al. 2016). Interpolation treats
    every pixel alike. `fine` adds a residual block at the full size, which draws the thinnest lines.
    """
    few = max(1, width // 4)
    return [
        nn.Conv2d(width, few, 1, bias=False),
        nn.BatchNorm2d(few),  # before the interpolation, where there are fewer pixels to normalise
        nn.Upsample(scale_factor=2, mode="bilinear"),
        nn.LeakyReLU(0.2, not config.fine),  # the block adds to its output
        *([GeneratorBlock(few, few), Modulation(config.nz, few)] if config.fine else []),
        nn.Conv2d(few, config.channels, 3, 1, 1, bias=False),
    ]


def book_kernel(config: ModelConfig) -> tuple[int, int, int]:
    """Return kernel size, stride and padding of the book's layer at full size, for both networks."""
    return (5, 3, 1) if config.image_size % 3 == 0 else (4, 2, 1)


class NearestConv(nn.ConvTranspose2d):
    """Nearest-neighbour upsampling by 2 and a 3x3 convolution: (N, C, R, R) -> (N, D, 2 R, 2 R).

    It leaves no checkerboards, unlike a transposed convolution of kernel 4, but is computed as one, whose kernel is the
    sum of four shifted ones, for less than half of the work (Karras et al. 2018); not on maps too small for it to pay.
    """

    spread: Tensor

    def __init__(self, width: int, narrower: int) -> None:
        super().__init__(width, narrower, 3, bias=False)
        once = torch.tensor([[1.0, 0, 0], [1, 1, 0], [0, 1, 1], [0, 0, 1]])  # a kernel plus itself, shifted by one
        self.register_buffer("spread", torch.kron(once, once), persistent=False)  # (16, 9)

    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        """Upsample and convolve: (N, C, R, R) -> (N, D, 2 R, 2 R)."""
        if input.shape[-1] <= FEW_PIXELS and torch.is_autocast_enabled(input.device.type):
            return conv_transpose2d(interpolate(input, scale_factor=2), self.weight, padding=1)
        with torch.autocast(input.device.type, enabled=False):
            kernel = (self.weight.flatten(2) @ self.spread.T).unflatten(2, (4, 4))
        return conv_transpose2d(input, kernel, stride=2, padding=1)


class Modulation(nn.Linear):
    """Self-modulation: z sets the gain and shift of each channel (Chen et al. 2019, "On self modulation for GANs").

    A deep generator that receives z only through the first map soon generates only a few kinds of faces.
    """

    def __init__(self, nz: int, width: int) -> None:
        super().__init__(nz, 2 * width)
        nn.init.normal_(self.weight, 0.0, 0.03)  # with nz = 100, gains then have a standard deviation of 0.3
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor, z: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Modulate maps: (N, C, R, R), (N, nz) -> (N, C, R, R)."""
        gain, shift = super().forward(z)[:, :, None, None].chunk(2, 1)
        return x * (1 + gain) + shift


class Shortcut(nn.Conv2d):
    """A 1x1 convolution between residual blocks of different width."""


class GeneratorBlock(nn.Module):
    """Residual block (He et al. 2016, identity mappings): x + two 3x3 convolutions, each after BatchNorm and ReLU."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.branch = nn.Sequential(
            nn.BatchNorm2d(width),
            nn.ReLU(True),
            nn.Conv2d(width, inner, 3, 1, 1, bias=False),
            nn.BatchNorm2d(inner),
            nn.ReLU(True),
            nn.Conv2d(inner, width, 3, 1, 1, bias=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block: (N, width, R, R) -> the same shape."""
        return x + self.branch(x)


class Discriminator(nn.Module):
    """Discriminator: faces (N, C, S, S) in [-1, 1] -> logits, high for real. No sigmoid: the losses take logits.

    Its own layers are the book's, and give one logit. With `projected`, three heads on a pretrained encoder's features
    give one each at P positions of the face.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        widths, has_norm = config.widths(config.ndf)[::-1], config.d_norm == "batch"  # 64, 128, 256, 512
        first = nn.Conv2d(config.channels, widths[0], *book_kernel(config), bias=not has_norm)
        layers: list[nn.Module] = [first, nn.LeakyReLU(0.2, True)]
        for width, wider in pairwise(widths):
            norm = [nn.BatchNorm2d(wider)] if has_norm else []
            layers += [nn.Conv2d(width, wider, 4, 2, 1, bias=not has_norm), *norm, nn.LeakyReLU(0.2, True)]
        self.main = nn.Sequential(*layers, nn.Conv2d(widths[-1], 1, 4, 1, 0, bias=not has_norm))
        self.apply(init_dcgan)
        # Projected heads alone get the classes: with the plain logit too, FD was a tenth higher (docs/experiments.md).
        self.classes = ClassEmbeddings(() if config.projected else config.vocabulary, widths[-1])
        self.projected = Projected(config) if config.projected else None

    def forward(self, faces: Tensor, features: list[Tensor] | None = None, codes: Tensor | None = None) -> Tensor:
        """Rate faces as real or generated: (N, C, S, S) -> (N, K, P), with K = 4 with projected heads, else K = P = 1.

        The first of the K is the plain logit, repeated at each position. `features` are `encode(faces)`, if already
        computed; `codes` are their classes, (N, V), if any.
        """
        logits = self.plain(faces, codes)[:, None, None]
        if self.projected is None:
            return logits
        heads = self.projected(self.encode(faces) if features is None else features, codes)
        return torch.cat([logits.expand(-1, 1, heads.shape[2]), heads], 1)

    def encode(self, faces: Tensor) -> list[Tensor]:
        """Return the frozen encoder's features of faces; an empty list without an encoder."""
        return [] if self.projected is None else self.projected.encode(faces)

    def plain(self, faces: Tensor, codes: Tensor | None = None) -> Tensor:
        """Rate faces as real or generated without the projected heads: (N, C, S, S) -> (N,)."""
        return positions(self.main, self.classes, codes, faces)[:, 0]


class Projected(nn.Module):
    """Discriminator heads on a frozen encoder's features (Sauer et al. 2021, "Projected GANs converge faster").

    The encoder is pretrained on photographs, so the generator learns at once what a face is and how faces differ. What
    it misses, such as the finest texture, the discriminator's own layers see. No checkpoint has its weights.

    Raises:
        ConfigError: the package is not installed.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.encoder = frozen(load("lite0", depths=4), saved=False)
        self.mixing = frozen(Mixing(self.encoder.widths[1:], MIXED))
        maps = zip(MIXED, (2, 1, 0), strict=True)  # channels, and halvings down to a 16th of the face's size
        self.heads = nn.ModuleList(head(channels, HEAD_WIDTH, halvings) for channels, halvings in maps)
        self.classes = nn.ModuleList(ClassEmbeddings(config.vocabulary, HEAD_WIDTH) for _ in self.heads)
        self.enlarged = ENLARGED if config.fine else 1.0

    def encode(self, faces: Tensor) -> list[Tensor]:
        """Encode (N, C, S, S) in [-1, 1] into features at three depths, of S/4, S/8 and S/16 pixels.

        With `fine` the encoder sees enlarged faces, and its features are enlarged alike.
        """
        if self.enlarged > 1:
            faces = interpolate(faces, size=16 * round(faces.shape[-1] * self.enlarged / 16), mode="bilinear")
        maps = self.encoder.maps(faces.expand(-1, 3, -1, -1))[-3:]
        return self.mixing([features / scale for features, scale in zip(maps, SCALES, strict=True)])

    def conditioned(self, codes: Tensor | None = None) -> list[Callable[[Tensor], Tensor]]:
        """Return the heads for faces of these classes: functions of feature maps (N, C, R, R), to logits (N, P)."""
        return [functools.partial(positions, *layers, codes) for layers in zip(self.heads, self.classes, strict=True)]

    def forward(self, features: list[Tensor], codes: Tensor | None = None) -> Tensor:
        """Map the features of N faces to (N, 3, P): the logits of each head at the P positions of the deepest map."""
        return torch.stack([head(seen) for head, seen in zip(self.conditioned(codes), features, strict=True)], 1)


class SpectralConv(nn.Conv2d):
    """A convolution with a spectral norm in fp32: a GPU's power iteration in bf16 would be inexact, and slower."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int) -> None:
        super().__init__(inputs, outputs, kernel, stride, 1)
        spectral_norm(self)

    def forward(self, input: Tensor) -> Tensor:
        """Convolve: (N, C, R, R) -> (N, D, R / stride, R / stride)."""
        with torch.autocast(input.device.type, enabled=False):
            weight = self.weight  # normalised when it is read
        return conv2d(input, weight, self.bias, self.stride, self.padding)


def head(seen: int, width: int, halvings: int) -> nn.Sequential:
    """Build a head (N, seen, R, R) -> logits (N, 1, ., .): spectrally normalised, down to a 16th of the face's size."""
    layers: list[nn.Module] = [SpectralConv(seen, width, 3, 1), nn.LeakyReLU(0.2, True)]
    for _ in range(halvings):
        layers += [SpectralConv(width, width, 4, 2), nn.LeakyReLU(0.2, True)]
    layers += [SpectralConv(width, width, 3, 1), nn.LeakyReLU(0.2, True)]
    return nn.Sequential(*layers, SpectralConv(width, 1, 3, 1))


class ClassEmbeddings(nn.ModuleList):
    """For each label column the embeddings (width,) of its classes, from 0; that of unknown classes stays there."""

    def __init__(self, vocabulary: Vocabulary, width: int) -> None:
        super().__init__(nn.Embedding(len(names), width, padding_idx=0) for names in vocabulary)
        for vectors in self.parameters():
            nn.init.zeros_(vectors)

    def forward(self, codes: Tensor | None) -> Tensor | None:
        """Sum the embeddings of classes: codes (N, V) -> (N, width); None without classes."""
        found = [] if codes is None else [vectors(codes[:, i]) for i, vectors in enumerate(self)]
        return torch.stack(found).sum(0) if found else None


def positions(layers: nn.Module, classes: nn.Module, codes: Tensor | None, x: Tensor) -> Tensor:
    """Return the layers' logits at each of the P positions of their last map, (N, P), conditioned on classes.

    Classes add how well the maps before the last layer match them: an inner product with the class embeddings at each
    position, averaged over positions if the last layer leaves only one (Miyato and Koyama 2018, "cGANs with projection
    discriminator").
    """
    vectors = classes(codes)
    if vectors is None:
        return layers(x).flatten(1)
    *first, last = layers.children()
    for layer in first:
        x = layer(x)
    logits, match = last(x), (vectors[:, :, None, None] * x).sum(1, keepdim=True)
    return (logits + (match if match.shape == logits.shape else match.mean((2, 3), keepdim=True))).flatten(1)


def init_dcgan(module: nn.Module) -> None:
    """Set weights to N(0, 0.02), BatchNorm scales to N(1, 0.02), biases to 0: Radford et al. 2016, section 4, code."""
    if isinstance(module, nn.Conv2d | nn.ConvTranspose2d):
        nn.init.normal_(module.weight, 0.0, 0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, nn.BatchNorm2d):
        nn.init.normal_(module.weight, 1.0, 0.02)
        nn.init.zeros_(module.bias)


def init_residual(module: nn.Module) -> None:
    """Start residual branches at zero, so that only the shortcuts act at first (Goyal et al. 2017, section 5.1).

    A shortcut that changes the width keeps the scale of its signal (He et al. 2015); N(0, 0.02) would make it fade.
    """
    if isinstance(module, Shortcut):
        nn.init.kaiming_normal_(module.weight, nonlinearity="linear")
    elif isinstance(module, GeneratorBlock):
        convs = [layer for layer in module.branch if isinstance(layer, nn.Conv2d)]
        for conv in convs:
            nn.init.kaiming_normal_(conv.weight, a=0.2)
        nn.init.zeros_(convs[-1].weight)
