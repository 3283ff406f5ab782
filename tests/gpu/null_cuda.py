"""A stand-in for CUDA, so that torch's code for GPUs runs on a computer without one; its kernels do nothing.

`load` it before torch is imported: the first library that has a function provides it. With `computing.Computing` the
numbers are right too. It shows wrong devices, waits and copies, and what messages say; it cannot show what a real GPU's
kernels compute, how fast, or races between them.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
WANTED = ("cuda", "__cuda", "cublas", "cudnn", "nccl")  # beginnings of the functions that torch takes from CUDA
# Beginnings of those that launch kernels; handles, descriptors and questions do not.
LAUNCHING = ("cublasGemm", "cublasSgemm", "cublasLtMatmul", "cudnnBackendExecute", "cudnnBatchNormalization")
ASKING = ("Desc", "Preference", "Algo")

Heard = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t)
library: ctypes.CDLL | None = None


def packages() -> Path:
    """The folder of torch's package and of those that it needs, without importing it."""
    spec = find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parents[1]


def headers() -> Path:
    """CUDA's headers; those of the nvidia packages are not complete."""
    return packages() / "triton" / "backends" / "nvidia" / "include"


def lacking() -> str:
    """What this machine lacks to build the stand-in; empty if nothing."""
    tools = [f"no {name}" for name in ("gcc", "nm") if shutil.which(name) is None]
    cuda = headers().is_dir() and (packages() / "torch" / "lib" / "libtorch_cuda.so").is_file()
    return ", ".join([*tools, *([] if cuda else ["no build of torch for CUDA"])])


def built(folder: Path) -> Path:
    """Compile the stand-in into a library in `folder`."""
    needed = {name for part in ("torch_cuda", "c10_cuda", "torch_python") for name in symbols("--undefined-only", part)}
    needed = {name for name in needed if name.startswith(WANTED)}
    needed |= {name for name in symbols("--undefined-only", "caffe2_nvrtc") if name.startswith("cu")}  # the driver's
    own, stubs, out = folder / "own.o", folder / "stubs.c", folder / "null_cuda.so"
    gcc = "gcc", "-fPIC", "-w", "-O1"
    subprocess.run([*gcc, f"-I{headers()}", "-c", str(HERE / "null_cuda.c"), "-o", str(own)], check=True)
    lines = ["int null_launch(const char *);"]
    for name in sorted(needed - symbols("--defined-only", own)):
        launches = name.startswith(LAUNCHING) and not any(word in name for word in ASKING)
        what = f'null_launch("{name}")' if launches else "0"
        lines.append(f"int {name}(void) {{ return {what}; }}")
    stubs.write_text("\n".join(lines) + "\n")
    # torch looks for the driver by this name, and finds the library that already has it.
    subprocess.run([*gcc, "-shared", "-Wl,-soname,libcuda.so.1", str(own), str(stubs), "-o", str(out)], check=True)
    return out


def symbols(which: str, of: str | Path) -> set[str]:
    """The functions that an object file, or one of torch's libraries by its name, defines or lacks."""
    words = [str(of)] if isinstance(of, Path) else ["-D", str(packages() / "torch" / "lib" / f"lib{of}.so")]
    lines = subprocess.run(["nm", which, *words], capture_output=True, text=True, check=True).stdout.splitlines()
    return {line.split()[-1].partition("@")[0] for line in lines}


def load(path: Path) -> None:
    """Load the stand-in from `path`, in place of CUDA's libraries.

    Variables describe the GPU: NULL_CUDA_CAPABILITY (86), NULL_CUDA_MIB (6144) of memory, NULL_CUDA_OLD_DRIVER=1 for a
    driver that is too old for torch, NULL_CUDA_NO_ENGINE=1 for a cuDNN that does not know this GPU.
    """
    global library
    assert "torch" not in sys.modules, "the stand-in for CUDA must be loaded before torch"
    library = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    described = {"CAPABILITY": 86, "MIB": 6144, "OLD_DRIVER": 0, "NO_ENGINE": 0}
    capability, mib, *faults = (int(os.environ.get(f"NULL_CUDA_{name}", usual)) for name, usual in described.items())
    library.null_settings(capability, ctypes.c_size_t(mib << 20), *faults)


class Counts:
    """What was asked of the GPU: how often, by name and by the line of the program that asked."""

    def __init__(self) -> None:
        self.launches, self.waits, self.up, self.down = (collections.Counter[str]() for _ in range(4))
        self.hear = Heard(self._heard)

    def _heard(self, kind: int, what: bytes, size: int) -> None:
        counter = (self.launches, self.waits, self.up, self.down)[kind]
        counter[what.decode() if kind == 0 else f"{what.decode()}, {size} bytes, at {_caller()}"] += 1


def _caller() -> str:
    frame = sys._getframe(2)
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(ROOT) and path.parent != HERE and "site-packages" not in path.parts:
            return f"{path.relative_to(ROOT)}:{frame.f_lineno}"
        frame = frame.f_back
    return "autograd"


@contextlib.contextmanager
def counting() -> Iterator[Counts]:
    """Count in the block; this takes time."""
    assert library is not None
    counts = Counts()
    library.null_listen(counts.hear)
    try:
        yield counts
    finally:
        library.null_listen(Heard())  # nobody
