"""Fuzz a reader for minutes, guided by which lines of the program an input reaches (atheris drives hypothesis).

`python tests/fuzz/guided.py TARGET --seconds=300`, with `--planted` for a crash that it has to find. Inputs that it
finds worth keeping go to a folder of their own; one that crashes is printed.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

import hypothesis

sys.path[:0] = [str(Path(__file__).resolve().parents[2])]

atheris: Any = importlib.import_module("atheris")  # no requirement: pip install atheris
with atheris.instrument_imports(include=["gan", "config", "evaluate"]):
    from targets import TARGETS


def main() -> None:
    """Run libFuzzer; it ends the process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--seconds", type=int, default=300)
    parser.add_argument("--planted", action="store_true")
    given = parser.parse_args()
    target, folder = TARGETS[given.target], Path(tempfile.mkdtemp())

    @hypothesis.settings(database=None, deadline=None)
    @hypothesis.given(target.inputs)
    def read(one: Any) -> None:
        target.check(one, folder / "a")

    wrapped: Any = read

    (folder / "corpus").mkdir()
    for i in range(64):  # short ones make no input
        (folder / "corpus" / str(i)).write_bytes(random.Random(i).randbytes(1024))
    options = [
        f"-max_total_time={given.seconds}",
        "-timeout=10",
        "-rss_limit_mb=3000",
        "-max_len=8192",
        "-print_final_stats=1",
    ]
    atheris.Setup([sys.argv[0], *options, str(folder / "corpus")], wrapped.hypothesis.fuzz_one_input)
    with target.with_planted_crash() if given.planted else contextlib.nullcontext():
        atheris.Fuzz()


if __name__ == "__main__":
    main()
