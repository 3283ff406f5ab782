"""Training speed of the presets on this machine: python benchmarks/throughput.py [--data_path=FOLDER].

Runs the real `train.py`, the presets in turn, several rounds, and prints a Markdown table. The first row of each
run's log is left out: it warms up. Without a folder it trains on flat coloured pictures, which are as much work.
"""

from __future__ import annotations

import argparse
import json
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
LOG_EVERY = {"default": 10, "book": 5}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data_path", type=Path)
    parser.add_argument("--presets", default="default,book")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=60, help="of each run")
    options = parser.parse_args()
    rows: dict[str, list[dict[str, float]]] = {preset: [] for preset in options.presets.split(",")}
    with tempfile.TemporaryDirectory() as folder:
        faces = options.data_path.resolve() if options.data_path else draw(Path(folder) / "faces", 2100)
        for turn in range(options.rounds):
            for preset in rows:
                words = [f"--preset={preset}", f"--data_path={faces}", f"--log_every={LOG_EVERY.get(preset, 10)}"]
                rows[preset] += measure([*words, f"--run={preset}-{turn}"], Path(folder), options.seconds)
    print(f"\n{platform.processor() or platform.machine()}, Python {platform.python_version()}\n")
    print("| preset | rows | images/s, median | least | most | waiting for data |")
    print("| --- | --- | --- | --- | --- | --- |")
    for preset, measured in rows.items():
        rates = [row["images_per_second"] for row in measured]
        wait = statistics.median(row["data_wait"] for row in measured)
        print(
            f"| {preset} | {len(rates)} | {statistics.median(rates):.1f} | {min(rates):.1f} | {max(rates):.1f} "
            f"| {100 * wait:.2f} % |"
        )


def draw(folder: Path, n: int) -> Path:
    """Make `n` pictures of one colour each."""
    folder.mkdir()
    colours = np.random.default_rng(0).integers(0, 256, (n, 3))
    for i, colour in enumerate(colours):
        Image.new("RGB", (96, 96), tuple(int(c) for c in colour)).save(folder / f"{i:05d}.png")
    return folder


def measure(words: list[str], folder: Path, seconds: float) -> list[dict[str, float]]:
    """Train for `seconds` and return the rows of the log, without the first.

    Args:
        words: options of train.py; the last is --run.
        folder: where to run.
        seconds: from the first row on.
    """
    run = words[-1].removeprefix("--run=")
    command = [sys.executable, str(ROOT / "train.py"), "--plot_every=0", "--save_minutes=60", *words]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)
    log, deadline = folder / "checkpoints" / run / "log.jsonl", None
    while process.poll() is None and (deadline is None or time.monotonic() < deadline):
        if deadline is None and log.exists():
            deadline = time.monotonic() + seconds
        time.sleep(0.5)
    process.send_signal(signal.SIGTERM)
    if process.wait() != 0:
        raise SystemExit(f"train.py {' '.join(words)} ended with exit code {process.returncode}")
    return [json.loads(row) for row in log.read_text().splitlines()][1:-1]


if __name__ == "__main__":
    main()
