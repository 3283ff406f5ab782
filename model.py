"""The two networks: latent -> face and face -> logit.

Tensors in, tensors out: no device, no precision, no files. The shapes are those of the book's DCGAN
(chapter 7 of 深度学习框架PyTorch：入门与实践; Radford et al. 2016), with modules in the book's order, so that
its weights have the names `main.0.weight`, ... At 96 pixels the book's face grows 1-4-8-16-32-96, the default's
1-6-12-24-48-96. `resnet` has residual blocks at the same resolutions, which the book suggests trying.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import conv_transpose2d, interpolate
from torch.nn.utils.parametrizations import spectral_norm
from torch.nn.utils.parametrize import is_parametrized

from config import Arch, ModelConfig, Norm, Vocabulary
from gan import imagenet
from gan.encoder import WIDTHS, Encoder, frozen, fused

FEW_PIXELS = 6  # largest maps that are upsampled and convolved plainly in bf16: 1.3 to 1.5 times as fast on CPUs
LITE0_SCALES = 10.2, 9.1, 7.4  # divisors of EfficientNet-lite0's maps: their RMS over anime faces
MIXED = 48, 64, 112  # channels of those maps after mixing
HEAD_WIDTH = 64  # channels in the heads on those maps
QUICKER = 10  # factor of the learning rate of the generator's class embeddings, which start at zero


class Generator(nn.Module):
    """Generator: latents (N, nz), standard normal -> faces (N, C, S, S) in [-1, 1]."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        (widths, depths), (least, factor) = config.generator, config.growing
        layers: list[nn.Module] = [nn.ConvTranspose2d(config.nz, widths[0], least, 1, 0, bias=False)]
        for (width, narrower), depth in zip(pairwise(widths), depths, strict=False):
            layers += blocks(config, width, depth)
            layers += grow(config, width, narrower)  # (N, ..., twice the size)
            layers += [Modulation(config.nz, narrower)] if config.modulated else []
        layers += blocks(config, widths[-1], depths[-1])
        layers += [nn.BatchNorm2d(widths[-1]), nn.ReLU(True)]
        layers += [*to_rgb(config, widths[-1], factor), nn.Tanh()]
        self.main = nn.Sequential(*layers)
        self.apply(init_dcgan)
        self.apply(init_residual)
        self.classes = embeddings(config.vocabulary, config.nz)

    def conditioned(self, z: Tensor, codes: Tensor | None) -> Tensor:
        """Shift latents (N, nz) by the learned embeddings of their classes; codes (N, K) as in `gan.classes`."""
        shift = embedded(self.classes, codes)
        return z if shift is None else z + QUICKER * shift

    def forward(self, z: Tensor, codes: Tensor | None = None) -> Tensor:
        """Generate a face for each latent, of its classes if any: (N, nz), (N, K) -> (N, C, S, S)."""
        z = self.conditioned(z, codes)
        x = z[:, :, None, None]
        for layer in self.main:
            x = layer(x, z) if isinstance(layer, Modulation) else layer(x)
        return x


class Discriminator(nn.Module):
    """Discriminator: faces (N, C, S, S) in [-1, 1] -> logits, high for real. No sigmoid: the losses take logits."""

    projected: Projected | None

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        widths, depths = (numbers[::-1] for numbers in config.discriminator)
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
        # Projected heads alone get the classes: with the plain logit too, FD was a tenth higher (docs/experiments.md).
        self.classes = embeddings(() if config.projected else config.vocabulary, widths[-1])
        self.projected = Projected(config) if config.projected else None
        self.patch = config.patch

    def forward(self, faces: Tensor, features: list[Tensor] | None = None, codes: Tensor | None = None) -> Tensor:
        """Rate faces as real or generated: (N, C, S, S) -> (N,), or (N, 4): the plain logit and three projected heads.

        With `patch` each head has a logit at each of P positions of its map: (N, 4, P); the plain logit is repeated.
        `features` are `encode(faces)`, if already computed; `codes` are their classes, (N, K), if any.
        """
        logits = self.plain(faces, codes)
        if self.projected is None:
            return logits
        heads = self.projected(self.encode(faces) if features is None else features, codes)
        if not self.patch:
            return torch.cat([logits[:, None], heads.mean(2)], 1)
        return torch.cat([logits[:, None, None].expand(-1, 1, heads.shape[2]), heads], 1)

    def encode(self, faces: Tensor) -> list[Tensor]:
        """Return the frozen encoder's features of faces; an empty list without an encoder."""
        return [] if self.projected is None else self.projected.encode(faces)

    def heads(self, codes: Tensor | None = None) -> list[Callable[[Tensor], Tensor]]:
        """Return the heads as functions of feature maps: (N, C, R, R) -> logits (N, P), or (N,) without `patch`."""
        parts = [] if self.projected is None else zip(self.projected.heads, self.projected.classes, strict=True)
        return [functools.partial(_places, head, columns, self.patch, codes) for head, columns in parts]

    def freeze(self, layers: int) -> None:
        """Freeze the first `layers` convolutions (Mo et al. 2020, "Freeze the discriminator")."""
        convs = [part for part in self.main.modules() if isinstance(part, nn.Conv2d)]
        for conv in convs[:layers]:
            frozen(conv)

    def plain(self, faces: Tensor, codes: Tensor | None = None) -> Tensor:
        """Rate faces as real or generated without the projected heads: (N, C, S, S) -> (N,)."""
        return projection(self.main, self.classes, faces, codes).flatten()


def _places(head: nn.Module, columns: nn.Module, patch: bool, codes: Tensor | None, features: Tensor) -> Tensor:
    logits = projection(head, columns, features, codes).flatten(1)
    return logits if patch else logits.mean(1)


def embeddings(vocabulary: Vocabulary, width: int) -> nn.ModuleList:
    """Create each label column's class embeddings (width,). All start at zero; that of unknown classes stays there."""
    columns = nn.ModuleList(nn.Embedding(len(names), width, padding_idx=0) for names in vocabulary)
    for vectors in columns.parameters():
        nn.init.zeros_(vectors)
    return columns


def embedded(columns: nn.Module, codes: Tensor | None) -> Tensor | None:
    """Sum the embeddings of classes: codes (N, K) -> (N, width); None without classes."""
    of_columns = [] if codes is None else [vectors(codes[:, i]) for i, vectors in enumerate(columns.children())]
    return torch.stack(of_columns).sum(0) if of_columns else None


def projection(layers: nn.Module, columns: nn.Module, x: Tensor, codes: Tensor | None) -> Tensor:
    """Return the layers' logits (N, 1, R, R), plus how well the maps before the last layer match the classes.

    The match is an inner product with the class embeddings at each position of the maps, averaged over positions if the
    last layer leaves only one (Miyato and Koyama 2018, "cGANs with projection discriminator").
    """
    vectors = embedded(columns, codes)
    if vectors is None:
        return layers(x)
    *first, last = layers.children()
    for layer in first:
        x = layer(x)
    logits, fits = last(x), (vectors[:, :, None, None] * x).sum(1, keepdim=True)
    return logits + (fits if fits.shape == logits.shape else fits.mean((2, 3), keepdim=True))


class Projected(nn.Module):
    """Discriminator heads on a frozen encoder's features (Sauer et al. 2021, "Projected GANs converge faster").

    The encoder is pretrained, so the generator learns at once what a face is and how faces differ. The rest of the
    discriminator must see what the encoder misses, such as the finest texture. Kind lite0 is EfficientNet-lite0, whose
    weights come in a package and are in no checkpoint; kind faces gets its weights from `load` or from a checkpoint.

    Raises:
        ConfigError: the package is not installed.
    """

    scales: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        if config.d_encoder == "lite0":
            self.encoder = frozen(imagenet.load(config.d_encoder, depths=4), saved=False)
            self.mixing = frozen(Mixing(self.encoder.widths[1:], MIXED))
            widths, scales = MIXED, torch.tensor(LITE0_SCALES)
        else:
            self.encoder, self.mixing = frozen(fused(Encoder().eval())), None
            widths, scales = WIDTHS[1:], torch.ones(len(WIDTHS) - 1)
        self.register_buffer("scales", scales)
        maps = zip(widths, (2, 1, 0), strict=True)  # channels, and halvings down to a 16th of the face's size
        self.heads = nn.ModuleList(head(channels, HEAD_WIDTH, halvings) for channels, halvings in maps)
        self.classes = nn.ModuleList(embeddings(config.vocabulary, HEAD_WIDTH) for _ in self.heads)
        self.enlarge = config.d_enlarge

    def load(self, weights: Mapping[str, Tensor], scales: Tensor) -> None:
        """Load a trained `gan.encoder.Encoder`, for kind faces; `scales` are divisors of its three depths, (3,)."""
        encoder = Encoder()
        encoder.load_state_dict(weights)
        self.encoder.load_state_dict(fused(encoder.eval()).state_dict())
        self.scales.copy_(scales)

    def encode(self, faces: Tensor) -> list[Tensor]:
        """Encode (N, C, S, S) in [-1, 1] into features at three depths, of S/4, S/8 and S/16 pixels.

        With `d_enlarge` the encoder sees faces of so many times S pixels, and its features are as many times larger.
        """
        if self.enlarge > 1:
            faces = interpolate(faces, size=16 * round(faces.shape[-1] * self.enlarge / 16), mode="bilinear")
        maps = self.encoder.maps(faces.expand(-1, 3, -1, -1))[-3:]
        scaled = [features / scale for features, scale in zip(maps, self.scales, strict=True)]
        return scaled if self.mixing is None else self.mixing(scaled)

    def forward(self, features: list[Tensor], codes: Tensor | None = None) -> Tensor:
        """Map the features of N faces to (N, 3, P): the logits of each head at the P positions of the deepest map."""
        parts = zip(self.heads, self.classes, features, strict=True)
        return torch.stack([projection(head, columns, depth, codes).flatten(1) for head, columns, depth in parts], 1)


class Mixing(nn.Module):
    """Fixed random mixing of an encoder's maps, both across channels and of each map with the deeper ones.

    Without it the heads would rely on the few most discriminative channels. With it they must use all, and fine
    positions are seen in context (Sauer et al. 2021, section 3.2). `widths` are the channels of the maps, finest first,
    each map twice the size of the next; `mixed` are the channels after mixing.
    """

    def __init__(self, widths: Sequence[int], mixed: Sequence[int]) -> None:
        super().__init__()
        pairs = zip(widths, mixed, strict=True)
        across = [nn.Conv2d(width, wider, 1, bias=False) for width, wider in pairs]
        down = [nn.Conv2d(deeper, finer, 3, 1, 1, bias=False) for finer, deeper in pairwise(mixed)]
        for conv in across + down:
            nn.init.kaiming_normal_(conv.weight, nonlinearity="linear")
        self.across, self.down = nn.ModuleList(across), nn.ModuleList(down)

    def forward(self, maps: list[Tensor]) -> list[Tensor]:
        """Mix maps: (N, C, R, R) -> (N, D, R, R)."""
        mixed = [conv(features) for conv, features in zip(self.across, maps, strict=True)]
        for i in reversed(range(len(self.down))):
            around = interpolate(self.down[i](mixed[i + 1]), scale_factor=2, mode="bilinear")
            mixed[i] = (mixed[i] + around) * 0.5**0.5
        return mixed


def head(seen: int, width: int, halvings: int) -> nn.Sequential:
    """Build a head (N, seen, R, R) -> logits (N, 1, ., .): spectrally normalised, down to a 16th of the face's size."""
    layers: list[nn.Module] = [spectral_norm(nn.Conv2d(seen, width, 3, 1, 1)), nn.LeakyReLU(0.2, True)]
    for _ in range(halvings):
        layers += [spectral_norm(nn.Conv2d(width, width, 4, 2, 1)), nn.LeakyReLU(0.2, True)]
    layers += [spectral_norm(nn.Conv2d(width, width, 3, 1, 1)), nn.LeakyReLU(0.2, True)]
    return nn.Sequential(*layers, spectral_norm(nn.Conv2d(width, 1, 3, 1, 1)))


def blocks(config: ModelConfig, width: int, depth: int) -> list[nn.Module]:
    """Build the generator's residual blocks at one of its maps: (N, width, R, R) -> the same shape."""
    layers, lean = list[nn.Module](), config.lean and config.arch == "dcgan"
    for _ in range(depth):
        layers += [GeneratorBlock(width, max(1, width // 2) if lean else width)]
        layers += [Modulation(config.nz, width)] if lean and config.modulated else []
    return layers


def grow(config: ModelConfig, width: int, narrower: int) -> list[nn.Module]:
    """Build the generator's layers that double the size: (N, width, R, R) -> (N, narrower, 2 R, 2 R)."""
    if config.arch == "dcgan":
        norm = [nn.BatchNorm2d(width), nn.ReLU(True)]
        if config.up == "nearest":
            return [*norm, NearestConv(width, narrower)]
        return [*norm, nn.ConvTranspose2d(width, narrower, 4, 2, 1, bias=False)]
    return [Shortcut(width, narrower, 1, bias=False), nn.Upsample(scale_factor=2)]  # 1x1 first: a quarter of the work


def shrink(arch: Arch, width: int, wider: int, norm: Norm) -> list[nn.Module]:
    """Build the discriminator's layers that halve the size, as in `grow`: (N, width, 2 R, 2 R) -> (N, wider, R, R)."""
    bias = norm != "batch"
    if arch == "dcgan":
        return [*normed(nn.Conv2d(width, wider, 4, 2, 1, bias=bias), norm), nn.LeakyReLU(0.2, True)]
    return [nn.AvgPool2d(2), normed(Shortcut(width, wider, 1, bias=bias), norm)[0]]


class NearestConv(nn.ConvTranspose2d):
    """Nearest-neighbour upsampling by 2 and a 3x3 convolution: (N, C, R, R) -> (N, D, 2 R, 2 R).

    A transposed convolution of kernel 4 and stride 2 has different weights for each of the four pixels that come from
    one, and leaves checkerboard artifacts on flat areas; this layer cannot. It is still computed as a transposed
    convolution, whose kernel is the sum of four shifted ones, for less than half of the work (after Karras et al.
    2018), except where the maps are so small that summing the kernels costs more than it saves.
    """

    spread: Tensor

    def __init__(self, width: int, narrower: int) -> None:
        super().__init__(width, narrower, 3, bias=False)
        once = torch.tensor([[1.0, 0, 0], [1, 1, 0], [0, 1, 1], [0, 0, 1]])  # a kernel plus itself shifted by one
        self.register_buffer("spread", torch.kron(once, once), persistent=False)  # (16, 9)

    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        """Upsample and convolve: (N, C, R, R) -> (N, D, 2 R, 2 R)."""
        if input.shape[-1] <= FEW_PIXELS and torch.is_autocast_enabled(input.device.type):
            return conv_transpose2d(interpolate(input, scale_factor=2), self.weight, padding=1)
        with torch.autocast(input.device.type, enabled=False):
            kernel = (self.weight.flatten(2) @ self.spread.T).unflatten(2, (4, 4))
        return conv_transpose2d(input, kernel, stride=2, padding=1)


class Modulation(nn.Linear):
    """Self-modulation: z sets the gain and shift of each channel. (N, C, R, R), z (N, nz) -> (N, C, R, R).

    Every map receives z directly (Chen et al. 2019, "On self modulation for GANs"). A deep generator that receives z
    only through the first map soon generates only a few kinds of faces.
    """

    def __init__(self, nz: int, width: int) -> None:
        super().__init__(nz, 2 * width)
        nn.init.normal_(self.weight, 0.0, 0.03)  # with nz = 100, gains then have a standard deviation of 0.3
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor, z: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Modulate x by z."""
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


class DiscriminatorBlock(nn.Module):
    """Counterpart of `GeneratorBlock`, with the discriminator's normalisation and leaky ReLUs."""

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
        """Apply the block: (N, width, R, R) -> the same shape."""
        return x + self.branch(x)


def to_rgb(config: ModelConfig, width: int, factor: int) -> list[nn.Module]:
    """Build the generator's last layers: `width` channels at S / factor pixels -> the face's C channels at S.

    The book's is one transposed convolution. With kernel 5 and stride 3 its kernels overlap unevenly, which leaves a
    grid of speckles (Odena et al. 2016). `smooth` brings fewer channels to full size by bilinear interpolation, which
    treats every pixel alike, and adds a nonlinearity there, so that edges need not follow the coarse grid. `slim` does
    the same at lower cost: with half as many channels, and the norm at the lower resolution. `fine` adds a residual
    block at the full size, modulated by z, which draws the thinnest lines.
    """
    if config.to_rgb == "book":
        return [nn.ConvTranspose2d(width, config.channels, *_book_kernel(factor), bias=False)]
    if config.to_rgb == "smooth":
        half = max(1, width // 2)
        return [
            nn.Conv2d(width, half, 1, bias=False),
            nn.Upsample(scale_factor=factor, mode="bilinear"),
            nn.BatchNorm2d(half),
            nn.ReLU(True),
            nn.Conv2d(half, config.channels, 3, 1, 1, bias=False),
        ]
    few, is_fine = max(1, width // 4), config.to_rgb == "fine"
    return [
        nn.Conv2d(width, few, 1, bias=False),
        nn.BatchNorm2d(few),  # before the interpolation, where there are fewer pixels to normalise
        nn.Upsample(scale_factor=factor, mode="bilinear"),
        nn.LeakyReLU(0.2, not is_fine),  # the block adds to its output
        *([GeneratorBlock(few, few), Modulation(config.nz, few)] if is_fine else []),
        nn.Conv2d(few, config.channels, 3, 1, 1, bias=False),
    ]


def _book_kernel(factor: int) -> tuple[int, int, int]:
    """Return kernel size, stride and padding of the book's layer at full size, for both networks."""
    return (5, 3, 1) if factor == 3 else (4, 2, 1)


def normed(conv: nn.Conv2d, norm: Norm) -> list[nn.Module]:
    """Return a convolution with its normalisation."""
    if norm == "batch":
        return [conv, nn.BatchNorm2d(conv.out_channels)]
    if norm == "spectral":
        init_dcgan(conv)  # first: afterwards the weight is computed and cannot be set
        return [spectral_norm(conv)]
    return [conv]


def init_dcgan(module: nn.Module) -> None:
    """Set weights to N(0, 0.02), BatchNorm scales to N(1, 0.02), biases to 0: Radford et al. 2016, section 4, code."""
    if isinstance(module, nn.Conv2d | nn.ConvTranspose2d) and not is_parametrized(module):
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
    if isinstance(module, Shortcut) and not is_parametrized(module):
        nn.init.kaiming_normal_(module.weight, nonlinearity="linear")
    elif isinstance(module, GeneratorBlock | DiscriminatorBlock):
        convs = [m for m in module.branch if isinstance(m, nn.Conv2d) and not is_parametrized(m)]
        for conv in convs:
            nn.init.kaiming_normal_(conv.weight, a=0.2)
        if isinstance(last := module.branch[-1], nn.BatchNorm2d):  # it would undo the convolution's scale
            nn.init.zeros_(last.weight)
        elif convs:  # a spectral norm of 0 cannot be normalised to 1
            nn.init.zeros_(convs[-1].weight)
