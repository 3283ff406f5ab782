"""The stand-in for CUDA, built once, and the numbers that it lacks."""

from collections.abc import Callable, Iterator
from typing import NoReturn

import null_cuda
import pytest


@pytest.fixture(scope="session")
def stand_in(lacking: Callable[[str], NoReturn], tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Build the stand-in for CUDA, for all processes that `on_null_cuda.py` begins."""
    if lacks := null_cuda.lacking():
        lacking(f"the tests of GPU code need a stand-in for CUDA, which cannot be built here: {lacks}")
    with pytest.MonkeyPatch.context() as change:
        change.setenv("NULL_CUDA", str(null_cuda.built(tmp_path_factory.mktemp("null-cuda"))))
        yield


@pytest.fixture
def gpu() -> Iterator[None]:
    """A GPU that computes: the stand-in, where this process has loaded it, or a real one."""
    import torch

    if null_cuda.library is not None:
        from computing import Computing

        with Computing():
            yield
    elif torch.cuda.is_available():
        yield
    else:
        pytest.skip("no GPU; test_gpu.py runs this on a stand-in")
