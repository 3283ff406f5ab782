"""Export of a generator to ONNX, for other programs and languages."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import logging
import statistics
import warnings
from pathlib import Path
from timeit import timeit

import numpy as np
import torch
from torch import Tensor, nn

from config import ConfigError
from gan import latent
from gan.quality.sampling import Sampler

OPSET = 20
CHECKED = 64  # number of seeds whose faces are compared
FARTHEST = {False: 1e-3, True: 0.2}  # maximum absolute error of a value, in single and in half precision
NEEDED = "--to=onnx needs the packages onnx, onnxscript and onnxruntime; pip install -r requirements-extra.txt"


class Truncated(nn.Module):
    """The exported module: a generator with truncation.

    It maps z (N, nz), standard normal, truncation (), and, if there are classes, codes (N, K) to faces (N, C, S, S)
    float32.
    """

    def __init__(self, generator: nn.Module, half: bool) -> None:
        super().__init__()
        self.generator = copy.deepcopy(generator).half() if half else generator
        self.half_precision = half

    def forward(self, z: Tensor, truncation: Tensor, codes: Tensor | None = None) -> Tensor:
        """Generate faces in [-1, 1]."""
        z = z * truncation
        return self.generator(z.half() if self.half_precision else z, codes).float()


def write(sampler: Sampler, path: Path, half: bool) -> None:
    """Write a generator that accepts any number of latents, and check the ONNX model.

    Args:
        sampler: the generator, on the CPU.
        path: the file.
        half: whether weights and feature maps use half precision; inputs and faces use single precision either way.

    Raises:
        ConfigError: a package is missing.
        OSError: the file cannot be written.
    """
    try:
        import onnx
        import onnxruntime  # noqa: F401 - needed by `compared`
        import onnxscript  # noqa: F401 - needed by torch.onnx.export
    except ImportError as error:
        raise ConfigError(NEEDED) from error
    columns = len(sampler.classes.vocabulary)
    given: tuple[Tensor, ...] = (torch.zeros(2, sampler.model.nz), torch.ones(()))
    shapes: dict[str, object] = {"z": {0: torch.export.Dim("n")}, "truncation": {}}
    if columns:
        given = (*given, torch.ones(2, columns, dtype=torch.long))
        shapes["codes"] = {0: torch.export.Dim("n")}
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # the exporter's messages are meant for developers
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")  # deprecation warnings from torch itself
        program = torch.onnx.export(
            Truncated(sampler.generator, half).eval(),
            given,
            input_names=list(shapes),
            output_names=["faces"],
            dynamic_shapes=shapes,
            opset_version=OPSET,
        )
    assert program is not None
    made = program.model_proto
    known = {"digest": sampler.digest, "nz": str(sampler.model.nz), "size": str(sampler.model.image_size)}
    known["vocabulary"] = json.dumps(sampler.classes.vocabulary)
    if columns:
        known |= {name: json.dumps(getattr(sampler.classes, name).tolist()) for name in ("rows", "counts")}
    onnx.helper.set_model_props(made, known)
    onnx.checker.check_model(made, full_check=True)
    path.write_bytes(made.SerializeToString())


def compared(sampler: Sampler, path: Path, half: bool) -> tuple[float, float, float]:
    """Compare an ONNX file with PyTorch on 64 faces.

    Returns:
        The largest absolute difference of any value, and the faces per second of ONNX Runtime and of PyTorch. Each
        speed is the median of five batches after one to warm up; the two take turns.

    Raises:
        ConfigError: the faces differ by more than the tolerance.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3  # errors only; the warnings are meant for developers
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    plain = latent.latents(range(CHECKED), sampler.model.nz)
    given = {"z": plain.numpy(), "truncation": np.array(0.8, np.float32)}
    codes = sampler.codes(range(CHECKED)) if sampler.classes.vocabulary else None
    if codes is not None:
        given["codes"] = codes.numpy()
    ways = (lambda: session.run(None, given)[0], lambda: sampler.generator(plain * 0.8, codes))
    with torch.no_grad():
        faces, expected = (np.asarray(way()) for way in ways)  # which also warms them up
        taken = [[timeit(way, number=1) for way in ways] for _ in range(5)]
    furthest = float(np.abs(faces - expected).max())
    if not furthest <= FARTHEST[half]:
        raise ConfigError(
            f"faces of ONNX Runtime differ from PyTorch's by up to {furthest:.2g}; no file was written; try other "
            "versions of onnx and onnxruntime"
        )
    speeds = [CHECKED / statistics.median(some) for some in zip(*taken, strict=True)]
    return furthest, speeds[0], speeds[1]
