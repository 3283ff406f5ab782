"""Export of a generator to a self-contained web page that generates faces in any browser, offline.

The file contains the weights and TensorFlow.js, which runs the network. For a seed, the page generates the same face
as `generate.py`, up to rounding.
"""

import base64
import collections
import gzip
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from config import ConfigError
from gan import downloads, enlarger, npm
from gan.enlarger import SLOPE, TIMES, Enlarger
from gan.files import replacing
from gan.play import enlarging
from gan.quality.sampling import Sampler
from model import QUICKER, Generator, GeneratorBlock, Modulation, NearestConv

TEMPLATE = Path(__file__).with_name("page.html")
CORE, WASM, BINARY = RUNTIME = npm.listed("""
@tensorflow/tfjs-core 4.22.0 dist/tf-core.es2017.min.js tf-core.js c55367325aa628ed685164d5c4210892e31c6d2d0e8c163a827b15ad330d1eba
@tensorflow/tfjs-backend-wasm 4.22.0 dist/tf-backend-wasm.es2017.min.js tf-backend-wasm.js bdd8c3c1fb0b37601bc2a122efa20b8d78e2936d104b03a44591be4188c63f65
@tensorflow/tfjs-backend-wasm 4.22.0 dist/tfjs-backend-wasm-simd.wasm tfjs-backend-wasm-simd.wasm 77ebb28a6d34f371dbbf2086b7f2de8994acd8ea5a3cf1fa24d2c26c840cac7b
""")  # noqa: E501
"""TensorFlow.js, which runs the network on the page: 0.3 MB compressed (Apache-2.0)."""
GROWS = (4, 4), (2, 2), (1, 1)  # kernel, stride and padding of a transposed convolution that doubles the size
BOTH = (3, 1), (2, 0)  # kernel indices that contribute to an even and to an odd output pixel

Operation = dict[str, Any]
Adder = Callable[[Tensor], int]  # stores a tensor and returns its index


class Weights:
    """Tensors, serialised one after the other, and a description of each.

    Tensors of two or more dimensions are stored as int8 from -127 to 127, with a scale for each index of the last
    dimension; the others are stored as float32.
    """

    def __init__(self) -> None:
        self.content, self.described = bytearray(), list[dict[str, Any]]()

    def add(self, tensor: Tensor) -> int:
        """Store a tensor and return its index."""
        return self._add(tensor, 127)

    def coarse(self, tensor: Tensor) -> int:
        """Store a tensor as `add` does, but from -31 to 31, which compresses better, and return its index."""
        return self._add(tensor, 31)

    def _add(self, tensor: Tensor, most: int) -> int:
        array = tensor.detach().cpu().float().numpy()
        if array.ndim < 2:
            return self.put(array)
        scales = np.maximum(np.abs(array).reshape(-1, array.shape[-1]).max(0), 1e-12) / most
        return self.put(np.rint(array / scales).astype(np.int8), self.put(scales))

    def put(self, array: np.ndarray, scale: int | None = None) -> int:
        """Store an array, float32 or int8 with the index of its scales, and return its index."""
        place = {"at": len(self.content), "bytes": array.nbytes}
        self.described.append({"shape": array.shape, "scale": scale, **place})
        self.content += array.astype(array.dtype.newbyteorder("<")).tobytes()
        self.content += bytes(-len(self.content) % 4)
        return len(self.described) - 1


def operations(generator: Generator, add: Adder) -> list[Operation]:
    """Translate a generator's layers to operations of page.html, on a latent (N, nz) and then on maps (N, R, R, C)."""
    first, *others = generator.main
    weight = cast(nn.ConvTranspose2d, first).weight.permute(0, 2, 3, 1)  # (nz, R, R, C): a matrix product on one pixel
    _, side, _, width = weight.shape
    return [{"op": "dense", "weight": add(weight.flatten(1)), "side": side, "width": width}, *_layers(others, add)]


def _layers(layers: Iterable[nn.Module], add: Adder) -> list[Operation]:
    left, done = collections.deque(layers), list[Operation]()

    def taken(*kinds: type[nn.Module]) -> Any:
        return left.popleft() if left and isinstance(left[0], kinds) else None

    while left:
        layer = left.popleft()
        if isinstance(layer, Modulation):
            done.append({"op": "modulate", "weight": add(layer.weight.T), "bias": add(layer.bias)})
        elif isinstance(layer, GeneratorBlock):
            done.append({"op": "branch", "layers": _layers(layer.branch, add)})
        elif isinstance(layer, nn.Upsample):
            done.append({"op": "enlarge", "factor": int(cast(float, layer.scale_factor)), "mode": layer.mode})
        elif isinstance(layer, nn.Tanh):
            done.append({"op": "tanh"})
        elif isinstance(layer, nn.BatchNorm2d):
            scale, shift = _affine(layer)
            done.append({"op": "scale", "scale": add(scale), "shift": add(shift)})
        elif isinstance(layer, nn.ReLU | nn.LeakyReLU):
            done.append({"op": "relu"})
            left.appendleft(layer)
        elif isinstance(layer, nn.Conv2d):
            scale, shift = _affine(taken(nn.BatchNorm2d))
            weight = layer.weight.permute(2, 3, 1, 0) * scale
            done.append({"op": "conv", "weight": add(weight), "bias": add(shift + weight.new_zeros(weight.shape[3]))})
            done[-1]["pad"] = int(layer.padding[0])
        elif isinstance(layer, nn.ConvTranspose2d):
            kernel = layer.weight
            if isinstance(layer, NearestConv):
                kernel = (kernel.flatten(2) @ layer.spread.T).unflatten(2, (4, 4))
            if isinstance(layer, NearestConv) or (layer.kernel_size, layer.stride, layer.padding) == GROWS:
                # A 2 x 2 kernel for each of the four output pixels of an input pixel: a quarter of a deconvolution.
                scale, shift = _affine(taken(nn.BatchNorm2d))
                four = [kernel[:, :, rows][:, :, :, columns].permute(2, 3, 0, 1) for rows in BOTH for columns in BOTH]
                weight = torch.cat([one * scale for one in four], 3)
                bias = (shift + weight.new_zeros(kernel.shape[1])).repeat(4)
                done.append({"op": "grow", "weight": add(weight), "bias": add(bias)})
            else:
                done.append({"op": "deconv", "weight": add(kernel.permute(2, 3, 1, 0))})
                done[-1] |= {"stride": int(layer.stride[0]), "pad": int(cast(int, layer.padding[0]))}
        else:
            raise ConfigError("--to=html: the page cannot compute {}; use --to=onnx", type(layer).__name__)
        if done[-1]["op"] in ("scale", "relu", "conv", "grow"):
            bent = taken(nn.ReLU, nn.LeakyReLU)
            done[-1]["slope"] = getattr(bent, "negative_slope", 1.0 if bent is None else 0.0)
    return done


def enlarger_operations(network: Enlarger, add: Adder) -> list[Operation]:
    """Translate the network that enlarges faces to operations of page.html, on maps (N, R, R, C)."""

    def conv(layer: nn.Conv2d, slope: float = 1.0, shuffled: int = 1) -> Operation:
        weight, bias = layer.weight.permute(2, 3, 1, 0), layer.bias
        assert bias is not None
        if shuffled > 1:  # depthToSpace expects the pixel before the channel
            order = torch.arange(len(bias)).view(-1, shuffled**2).T.flatten()
            weight, bias = weight[..., order], bias[order]
        stride, pad = int(layer.stride[0]), int(cast(int, layer.padding[0]))
        return {"op": "conv", "weight": add(weight), "bias": add(bias), "stride": stride, "pad": pad, "slope": slope}

    def branch(*layers: Operation) -> Operation:
        return {"op": "branch", "layers": list(layers)}

    def block(one: enlarger.Block) -> Operation:
        return branch(conv(one.conv1, SLOPE), conv(one.conv2))

    bent = {"op": "relu", "slope": SLOPE}
    inner = [block(cast(enlarger.Block, one)) for one in network.inner]
    at_half = [conv(network.down, SLOPE), *inner, conv(network.up, shuffled=2), {"op": "shuffle", "factor": 2}]
    added = [conv(network.first), block(network.before), branch(*at_half), block(network.after), bent]
    return [*added, conv(network.last, shuffled=TIMES), {"op": "shuffle", "factor": TIMES}]


def _affine(norm: nn.BatchNorm2d | None) -> tuple[Tensor, Tensor]:
    """Return the scale and the shift (C,) of a BatchNorm in eval mode; 1 and 0 if there is none."""
    if norm is None:
        return torch.ones(()), torch.zeros(())
    assert norm.running_var is not None
    assert norm.running_mean is not None
    scale = norm.weight / (norm.running_var + norm.eps).sqrt()
    return scale, norm.bias - norm.running_mean * scale


def write(sampler: Sampler, path: Path) -> None:
    """Write the web page of a generator to a file.

    Raises:
        ConfigError: TensorFlow.js cannot be fetched, or the page does not support a layer.
        OSError: the file cannot be written.
    """
    runtime = fetched()
    weights, generator = Weights(), cast(Generator, sampler.generator)
    crisp = not enlarging.why_not(sampler)
    described = {
        "layers": operations(generator, weights.add),
        "enlarger": enlarger_operations(enlarging.load(torch.device("cpu")), weights.coarse) if crisp else None,
        "embeddings": [weights.add(vectors * QUICKER) for vectors in generator.classes.parameters()],
        "nz": sampler.model.nz,
        "size": sampler.model.image_size,
        "grey": sampler.model.channels == 1,
        "vocabulary": sampler.classes.vocabulary,
        "rows": sampler.classes.rows.tolist(),
        "counts": sampler.classes.counts.tolist(),
        "tensors": weights.described,
        "runtime": (runtime / BINARY.place).stat().st_size,
    }
    binary = gzip.compress((runtime / BINARY.place).read_bytes() + bytes(weights.content), 9, mtime=0)
    parts = {
        "CORE": (runtime / CORE.place).read_text("utf-8"),
        "WASM": (runtime / WASM.place).read_text("utf-8"),
        "BINARY": base64.b64encode(binary).decode(),
        "DESCRIBED": json.dumps(described).replace("<", "\\u003c"),  # last: a class name may contain a placeholder
    }
    page = TEMPLATE.read_text("utf-8")
    for name, content in parts.items():
        page = page.replace(f"/*{name}*/", content)
    with replacing(path) as temporary:
        temporary.write_text(page, "utf-8", newline="\n")


def fetched() -> Path:
    """Return the folder of TensorFlow.js in the user's cache, after fetching it if needed.

    Raises:
        ConfigError: TensorFlow.js is not in the cache and cannot be fetched.
    """
    folder = downloads.cache("web-page")
    try:
        npm.fetch(RUNTIME, folder)
    except OSError as error:
        raise ConfigError(
            "--to=html needs TensorFlow.js, which is not in {} and cannot be put there ({}); run it once while "
            "the internet can be reached",
            folder,
            error,
        ) from error
    return folder
