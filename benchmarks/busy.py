"""Measures training beside busy programs: python -m benchmarks.busy.

Runs of `train.py` with synthetic faces and a budget, beside programs that do nothing but keep a processor busy. In turn
they adapt the number of threads, keep that of an idle machine, or are processes with a thread each.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.throughput import heading

ROOT = Path(__file__).resolve().parents[1]
CORES = str(os.cpu_count())
ARMS: dict[str, tuple[list[str], dict[str, str]]] = {  # words between Python and train.py, and variables
    "fixed": ([], {"OMP_NUM_THREADS": CORES}),
    "adapted": ([], {}),
    "processes": (["-m", "torch.distributed.run", f"--nproc_per_node={CORES}", "--"], {"OMP_NUM_THREADS": "1"}),
}


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--busy", type=int, nargs="+", default=[0, 1, 2, 4], help="numbers of busy programs")
    parser.add_argument("--size", type=int, default=48, help="image size")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=30, help="of each run")
    options = parser.parse_args()
    print("\n".join(heading()), flush=True)
    rates = dict[tuple[int, str], list[float]]()
    with tempfile.TemporaryDirectory() as folder:
        numbers: list[int] = options.busy
        for turn, (busy, arm) in enumerate([*itertools.product(numbers, ARMS)] * options.rounds):
            run = f"{arm}-{busy}-{turn}"
            rate = images_per_second(Path(folder), run, busy, *ARMS[arm], options.size, options.seconds)
            rates.setdefault((busy, arm), []).append(rate)
            print(f"beside {busy}, {arm}: {rate:.1f}", flush=True)
    print(f"\n| busy programs | {' | '.join(ARMS)} |\n| --- {'| --- ' * len(ARMS)}|")
    quiet = statistics.median(rates[options.busy[0], "fixed"])
    for busy in options.busy:
        cells = []
        for arm in ARMS:
            some = rates[busy, arm]
            median = statistics.median(some)
            cells.append(f"{median:.0f} ({min(some):.0f} to {max(some):.0f}), {median / quiet:.2f}")
        print(f"| {busy} | {' | '.join(cells)} |")
    print("\nImages/s of training, median and range, and the share of a fixed number on the idle machine.")


def images_per_second(
    folder: Path, run: str, busy: int, before: list[str], env: dict[str, str], size: int, seconds: float
) -> float:
    """Train for `seconds` beside `busy` programs; return the images/s, from the first step on."""
    words = f"--run={run}", "--data_path=synthetic", f"--image_size={size}", "--nogpu", "--eval_images=0", "--budget=60"
    clean = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    with programs(busy):
        training = subprocess.Popen(
            [sys.executable, *before, str(ROOT / "train.py"), *words, "--plot_every=0", "--precision=bf16"],
            cwd=folder,
            env={**clean, **env},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            while not Path(folder, "checkpoints", run, "latest.pt").is_file():  # written at the start
                time.sleep(0.2)
            time.sleep(seconds)
            training.terminate()  # it ends its step, and writes a row
            training.wait(120)
        finally:
            training.kill()
            training.wait()
    last = json.loads(Path(folder, "checkpoints", run, "log.jsonl").read_text().splitlines()[-1])
    return last["images_seen"] / last["seconds"]


@contextlib.contextmanager
def programs(n: int) -> Iterator[None]:
    """Run `n` programs that each keep a processor busy."""
    running = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(n)]
    try:
        yield
    finally:
        for one in running:
            one.kill()
            one.wait()


if __name__ == "__main__":
    main()
