"""What --vis costs on this machine: PYTHONPATH=. python benchmarks/visdom_cost.py.

Runs the real `train.py` on drawn faces with and without --vis in turn, several rounds, and prints a Markdown table.
With --steps=100000 it instead trains that many steps at a small size and prints the resident memory of the training
and of its visdom server on the way.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.throughput import ROOT, measure

SMALL = ["--image_size=32", "--ngf=1", "--ndf=1", "--batch_size=2", "--log_every=10", "--plot_every=1000"]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=60, help="of each run")
    parser.add_argument("--steps", type=int, help="measure memory over so many steps instead of speed")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.steps:
            memory(Path(folder), options.steps)
        else:
            speed(Path(folder), options.rounds, options.seconds)


def speed(folder: Path, rounds: int, seconds: float) -> None:
    """Compare images/s with and without the page."""
    rates: dict[str, list[float]] = {"without": [], "--vis": []}
    ratios = []
    for turn in range(rounds):
        for arm in sorted(rates, reverse=bool(turn % 2)):
            words = ["--data_path=synthetic", "--log_every=10", *([arm] if arm != "without" else [])]
            rows = measure([*words, f"--run={arm.strip('-')}-{turn}"], folder, seconds)
            rates[arm].append(statistics.median(row["images_per_second"] for row in rows))
        ratios.append(rates["--vis"][-1] / rates["without"][-1])
    print(f"\n{platform.processor() or platform.machine()}, Python {platform.python_version()}\n")
    print("| run | rounds | images/s, median of medians | least | most |")
    print("| --- | --- | --- | --- | --- |")
    for arm, values in rates.items():
        print(f"| {arm} | {len(values)} | {statistics.median(values):.1f} | {min(values):.1f} | {max(values):.1f} |")
    print(
        f"\nwith over without, by round: median {statistics.median(ratios):.3f}, {min(ratios):.3f} to {max(ratios):.3f}"
    )


def memory(folder: Path, steps: int) -> None:
    """Print the memory of a long run and of its server."""
    command = [sys.executable, str(ROOT / "train.py"), *SMALL, "--data_path=synthetic", "--vis", "--run=long"]
    command += [f"--max_epoch={max(1, steps * 2 // 9506)}"]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    log, due = folder / "checkpoints" / "long" / "log.jsonl", steps // 20
    print("| step | training, MB | visdom server, MB |")
    print("| --- | --- | --- |")
    while process.poll() is None:
        time.sleep(0.5)
        rows = log.read_text().splitlines() if log.is_file() else []
        if rows and rows[-1].endswith("}") and (step := json.loads(rows[-1])["step"]) >= due:
            due += steps // 10
            print(f"| {step:,} | {resident(process.pid):.0f} | {resident(child(process.pid)):.0f} |", flush=True)


def child(process: int) -> int:
    """The visdom server that a training has started."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    page = [c for c in children if b"gan.visdom_page" in Path(f"/proc/{c}/cmdline").read_bytes()]
    return int(page[0])


def resident(process: int) -> float:
    """Resident memory of a process, MB."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) / 1024


if __name__ == "__main__":
    main()
