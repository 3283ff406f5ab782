"""Run a command of the program, or pytest, on the stand-in for CUDA; see null_cuda.py.

Examples: `python tests/gpu/on_null_cuda.py train.py --gpu --data_path=synthetic`, and with arguments of one's own
`python tests/gpu/on_null_cuda.py pytest -n0 tests/gpu/same.py`.
"""

import os
import runpy
import sys
import tempfile
from pathlib import Path

import null_cuda


def main() -> None:
    """Load the stand-in, or build it where nobody did, and run the command."""
    with tempfile.TemporaryDirectory() as folder:
        null_cuda.load(Path(os.environ.get("NULL_CUDA") or null_cuda.built(Path(folder))))
    from computing import Computing  # and torch, which now finds the stand-in

    sys.path.insert(0, str(null_cuda.ROOT))
    del sys.argv[0]
    if sys.argv[0] == "pytest":
        runpy.run_module("pytest", run_name="__main__", alter_sys=True)
    else:
        with Computing():
            runpy.run_path(str(null_cuda.ROOT / sys.argv[0]), run_name="__main__")


if __name__ == "__main__":
    main()
