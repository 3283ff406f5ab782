"""Export of a generator to ONNX, for other programs and languages."""

import contextlib
import io
import json
import logging
import os
import warnings
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from config import ConfigError, needing
from gan import latent
from gan.play import enlarging
from gan.quality.sampling import Sampler

os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # else onnxruntime tells its maker what it does, and keeps a number for that
OPSET, IR = 18, 8  # which ONNX Runtime reads from 1.15 on
CHECKED = 64  # number of seeds whose faces are compared
FARTHEST = 1e-3  # maximum absolute error of a value


class Truncated(nn.Module):
    """The exported module: a generator with truncation, and the network that enlarges its faces if `times` is not 1.

    It maps z (N, nz), standard normal, truncation (), and, if there are classes, codes (N, K) to faces (N, C, T, T)
    float32.
    """

    def __init__(self, generator: nn.Module, times: int) -> None:
        super().__init__()
        self.generator, self.times = generator, times
        self.enlarger = enlarging.load(torch.device("cpu")) if times != 1 else None

    def forward(self, z: Tensor, truncation: Tensor, codes: Tensor | None = None) -> Tensor:
        """Generate faces in [-1, 1]."""
        faces = self.generator(z * truncation, codes)
        return faces if self.enlarger is None else enlarging.at(self.enlarger, faces, self.times)


def write(sampler: Sampler, path: Path, times: int = 1) -> None:
    """Write a generator, which is on the CPU, for any number of latents, and check the ONNX model.

    Its faces are `times` larger, see `enlarging.draw`.

    Raises:
        CheckpointError: the file of the network that enlarges is missing or damaged.
        ConfigError: a package is missing, or this network does not know such faces.
        OSError: the file cannot be written.
    """
    with needing("--to=onnx"):
        import onnx
        import onnxruntime  # noqa: F401 - needed by `compared`
        import onnxscript  # noqa: F401 - needed by torch.onnx.export
    if times != 1 and (why := enlarging.why_not(sampler)):
        raise ConfigError("--enlarge: {}; leave it out", why)
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
            Truncated(sampler.generator, times).eval(),
            given,
            input_names=list(shapes),
            output_names=["faces"],
            dynamic_shapes=shapes,
            opset_version=OPSET,
        )
    assert program is not None
    made = program.model_proto
    made.ir_version = IR
    known = {"digest": sampler.digest, "nz": str(sampler.model.nz), "size": str(times * sampler.model.image_size)}
    known["vocabulary"] = json.dumps(sampler.classes.vocabulary)
    if columns:
        known |= {name: json.dumps(getattr(sampler.classes, name).tolist()) for name in ("rows", "counts")}
    onnx.helper.set_model_props(made, known)
    onnx.checker.check_model(made, full_check=True)
    path.write_bytes(made.SerializeToString())


def compared(sampler: Sampler, path: Path, times: int = 1) -> float:
    """Compare an ONNX file with PyTorch on 64 faces, and return the largest absolute difference of any value.

    Raises:
        ConfigError: the faces differ by more than the tolerance.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()  # else it binds threads to cores, which may be forbidden
    options.log_severity_level = 3  # errors only; the warnings are meant for developers
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    plain = latent.latents(range(CHECKED), sampler.model.nz)
    given = {"z": plain.numpy(), "truncation": np.array(0.8, np.float32)}
    codes = sampler.codes(range(CHECKED)) if sampler.classes.vocabulary else None
    if codes is not None:
        given["codes"] = codes.numpy()
    with torch.no_grad():
        expected = Truncated(sampler.generator, times)(plain, torch.tensor(0.8), codes).numpy()
    furthest = float(np.abs(session.run(None, given)[0] - expected).max())
    if not furthest <= FARTHEST:
        raise ConfigError(
            "faces of ONNX Runtime differ from PyTorch's by up to {:.2g}; no file was written; try other versions "
            "of onnx and onnxruntime",
            furthest,
        )
    return furthest
