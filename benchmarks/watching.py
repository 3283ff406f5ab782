"""Measure the cost of watching a run on this machine: python -m benchmarks.watching --minutes=20.

Trains on synthetic faces with --vis and --budget in this process, and prints a Markdown table of the time spent on the
probe of the networks, the diagnosis of the curves, the report, and the visdom page with its server, in percent of the
run's. The run stays under checkpoints/. `--rounds=4` instead runs the real `train.py` with and without --vis in turn
and compares the speed; `--steps=100000` trains that many steps at a small size and prints the resident memory of the
training and of its visdom server at intervals.
"""

from __future__ import annotations

import argparse
import functools
import json
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import train
from benchmarks.throughput import ROOT, measure
from config import TrainConfig
from gan.command_line import command_line
from gan.watching.health import Probe
from gan.watching.monitor import Monitor
from gan.watching.run_report import RunReport
from gan.watching.visdom_page import Page, Server

SMALL = ["--image_size=32", "--ngf=1", "--ndf=1", "--batch_size=2", "--plot_every=1000"]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20, help="of the run whose time is accounted for")
    parser.add_argument("--rounds", type=int, help="compare speeds, in so many rounds")
    parser.add_argument("--seconds", type=float, default=60, help="of each run whose speed is compared")
    parser.add_argument("--steps", type=int, help="measure memory over so many steps")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.steps:
            memory(Path(folder), options.steps)
        elif options.rounds:
            speed(Path(folder), options.rounds, options.seconds)
        else:
            account(options.minutes)


def account(minutes: float) -> None:
    """Print how the time of one run is spent."""
    spent: dict[str, list[float]] = {}

    def counted(owner: type, name: str, part: str, clock: Callable[[], float] = time.perf_counter) -> None:
        method = getattr(owner, name)

        @functools.wraps(method)
        def timed(*args: Any, **options: Any) -> Any:
            since = clock()
            try:
                return method(*args, **options)
            finally:
                spent.setdefault(part, []).append(clock() - since)

        setattr(owner, name, timed)

    servers: list[int] = []
    start = Server._start

    def started(self: Server) -> subprocess.Popen[Any]:
        process = start(self)
        servers.append(process.pid)
        return process

    close = Page.close

    def closed(self: Page) -> list[str]:
        spent["the visdom server, its CPU time"] = [cpu_seconds(process) for process in servers]
        return close(self)

    counted(Probe, "__call__", "asking the networks, within the previews' 3 %")
    counted(Monitor, "update_diagnosis", "diagnosing the curves")
    counted(RunReport, "_write", "report.html")
    counted(Page, "_send", "the visdom page, CPU time of its thread", time.thread_time)
    Server._start, Page.close = started, closed
    words = ["--data_path=synthetic", "--vis", f"--budget={minutes:g}"]
    sys.argv = ["train.py", *words]
    since = time.perf_counter()
    command_line(TrainConfig, train.main)
    took = time.perf_counter() - since
    print(f"\n{took / 60:.1f} minutes\n\n| part | times | seconds | % |\n| --- | --- | --- | --- |")
    for part, seconds in spent.items():
        print(f"| {part} | {len(seconds)} | {sum(seconds):.2f} | {100 * sum(seconds) / took:.2f} |")
    print(f"| together | | | {100 * sum(map(sum, spent.values())) / took:.2f} |")


def cpu_seconds(process: int) -> float:
    """Return the CPU time of a process so far."""
    words = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / 100


def speed(folder: Path, rounds: int, seconds: float) -> None:
    """Compare images/s with and without the page."""
    rates: dict[str, list[float]] = {"without": [], "--vis": []}
    ratios = []
    for turn in range(rounds):
        for arm in sorted(rates, reverse=bool(turn % 2)):
            words = ["--data_path=synthetic", *([arm] if arm != "without" else [])]
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
    """Return the process id of the visdom server that a training has started."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    page = [c for c in children if b"gan.watching.visdom_page" in Path(f"/proc/{c}/cmdline").read_bytes()]
    return int(page[0])


def resident(process: int) -> float:
    """Return the resident memory of a process, MB."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) / 1024


if __name__ == "__main__":
    main()
