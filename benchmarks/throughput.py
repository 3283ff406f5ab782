"""Compare the speed with a plain implementation: make bench, or python benchmarks/throughput.py [--rows=...].

Runs the real programs and `benchmarks/plain.py` as separate processes, in turn for several rounds, on synthetic faces.
Prints a Markdown page with n, median and spread for each row, and the ratio of medians for each comparison. With --out
the page is also written to a file.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

import train
from config import RELEASED, Precision, TrainConfig
from gan.data import synthetic
from gan.device import choose_precision, describe
from gan.presets import PRESETS
from gan.training import plan

ROOT = Path(__file__).resolve().parent.parent
FACES = 30_000
DRAWN = 2_000
"""Number of different faces; the others are links to them."""

ROWS = 3
"""Minimum number of rows taken from a training's log, without the first and the last."""

Arm = Callable[[], list[float]]


@dataclasses.dataclass(frozen=True)
class Row:
    """A comparison.

    Args:
        what: title of the comparison.
        unit: unit of the results, images/s or seconds.
        arms: by name, ours first; each returns its measurements of one round.
    """

    what: str
    unit: str
    arms: dict[str, Arm]

    @property
    def faster_is_more(self) -> bool:
        """Return whether a larger number is better."""
        return self.unit.endswith("/s")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="book,default,png,pack,start,memory,linear,limit", help="which, with commas")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20, help="of each training")
    parser.add_argument("--out", type=Path, help="file for the page")
    options = parser.parse_args()
    lines = list(heading())
    print("\n".join(lines), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), options.seconds)
        for name in options.rows.split(","):
            found = getattr(bench, name)(options.rounds)
            print("\n".join(found), flush=True)  # whatever goes wrong later
            lines += found
            if options.out is not None:
                options.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


def heading() -> Iterator[str]:
    """Yield lines that describe the machine."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    bf16 = choose_precision("auto", device)
    yield f"# Speed, {date.today()}"
    yield ""
    yield f"{cpu_name()}, {os.cpu_count()} cores; {describe(device)}; {bf16} by default; torch {torch.__version__}."
    yield f"`make bench ARGS='{' '.join(sys.argv[1:])}'`. Ratios are of medians, arms run in turn."


def cpu_name() -> str:
    """Return the processor's name as given by Linux."""
    try:
        names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
        return names[0].partition(": ")[2]
    except (OSError, IndexError):
        return platform.processor() or platform.machine()


class Bench:
    """The comparisons and the data that they share.

    Args:
        folder: an empty folder.
        seconds: duration of each training.
    """

    def __init__(self, folder: Path, seconds: float) -> None:
        self.folder, self.seconds, self.runs = folder, seconds, 0
        print(f"making {DRAWN} synthetic faces", file=sys.stderr)
        self.drawn = draw(folder / "drawn", DRAWN)
        self.faces = self.linked(FACES)

    def linked(self, n: int) -> Path:
        """Return a folder with `n` pictures in one class folder."""
        folder = self.folder / f"faces-{n}"
        (folder / "class").mkdir(parents=True)
        for i in range(n):
            os.link(self.drawn / f"{i % DRAWN:06d}.jpg", folder / "class" / f"{i:06d}.jpg")
        return folder

    # Rows.

    def book(self, rounds: int) -> list[str]:
        """Measure training with the book's networks."""
        arms: dict[str, Arm] = {
            "train.py --preset=book64": lambda: self.train("--preset=book64"),
            "train.py --preset=book64 --precision=fp32": lambda: self.train("--preset=book64", "--precision=fp32"),
            "written plainly": lambda: self.plain_step("book64"),
        }
        return compared(Row("Training, the book's networks, batch 64", "images/s", arms), rounds)

    def default(self, rounds: int) -> list[str]:
        """Measure training with the default recipe."""
        arms: dict[str, Arm] = {
            "train.py": lambda: self.train(),
            "train.py --precision=fp32": lambda: self.train("--precision=fp32"),
            "written plainly": lambda: self.plain_step("default"),
        }
        return compared(Row("Training, the default recipe", "images/s", arms), rounds)

    def png(self, rounds: int) -> list[str]:
        """Measure writing faces to files."""
        arms: dict[str, Arm] = {
            "generate.py --outdir": lambda: self.drawing(10_000),
            "written plainly, save_image": lambda: self.timed(plain("save", RELEASED, 10_000, self.fresh("plain"))),
        }
        return compared(Row("10,000 faces to PNG files, start to end", "s", arms), rounds)

    def pack(self, rounds: int) -> list[str]:
        """Measure decoding."""
        arms: dict[str, Arm] = {
            "decode and pack": lambda: self.timed(packing(self.faces, 96, self.fresh("packs"))),
            "an epoch of ImageFolder and DataLoader": lambda: self.timed(plain("epoch", self.faces)),
        }
        return compared(Row(f"{FACES:,} faces read, start to end", "s", arms), rounds)

    def start(self, rounds: int) -> list[str]:
        """Measure the time until the first faces."""
        arms: dict[str, Arm] = {
            "generate.py --nogen 64 --nogpu": lambda: self.timed(
                [sys.executable, str(ROOT / "generate.py"), "--nogen=64", "--nogpu"]
            ),
            "import torch": lambda: self.timed([sys.executable, "-c", "import torch"]),
        }
        return compared(Row("64 faces, start to end", "s", arms), max(5, rounds))

    def memory(self, rounds: int) -> list[str]:
        """Measure memory for different numbers of faces; `rounds` is ignored."""
        found = {}
        for n in (FACES, 10 * FACES):
            faces = self.faces if n == FACES else self.linked(n)
            found[n] = self.train("--image_size=32", faces=faces, memory=True)
            if n != FACES:
                shutil.rmtree(faces)
        lines = ["", "| training on faces of 32 pixels | anonymous memory, most, MB |", "| --- | --- |"]
        lines += [f"| {n:,} | {max(values) / 1024:,.0f} |" for n, values in found.items()]
        few, many = (max(values) for values in found.values())
        if not few:
            return ["", "Memory: not measured, this machine does not say it (no /proc)."]
        return [*lines, "", f"With ten times the faces {100 * (many / few - 1):+.1f} %."]

    def linear(self, rounds: int) -> list[str]:
        """Measure whether time is proportional to the work, at three sizes."""
        lines = ["", "| size | packing, s | per 1,000 faces | generating to PNG, s | per 1,000 samples |"]
        lines.append("| --- | --- | --- | --- | --- |")
        for n in (7_500, 15_000, 30_000):
            faces = self.faces if n == FACES else self.linked(n)
            (packed,) = self.timed(packing(faces, 96, self.fresh("packs")))
            (drawn,) = self.drawing(n)
            lines.append(f"| {n:,} | {packed:.1f} | {1000 * packed / n:.2f} | {drawn:.1f} | {1000 * drawn / n:.2f} |")
        log = self.train(seconds=3 * self.seconds)
        thirds = [log[i * len(log) // 3 : (i + 1) * len(log) // 3] for i in range(3)]
        rates = ", ".join(f"{statistics.median(third):.1f}" for third in thirds)
        return [
            *lines,
            "",
            f"images/s of training by `train.py` in the three thirds of {3 * self.seconds:g} s: {rates}.",
        ]

    def limit(self, rounds: int) -> list[str]:
        """Compare training with the book's networks with the limit that arithmetic and memory traffic set here."""
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        config = TrainConfig(**PRESETS["book64"])  # pyright: ignore[reportArgumentType]
        precision = choose_precision("auto", device)
        flops, moved = work_of_a_step(config, device, precision)
        per_second, bandwidth = peak(device, precision)
        allowed = config.batch_size / max(flops / per_second, moved / bandwidth)
        ours = statistics.median([rate for _ in range(rounds) for rate in self.train("--preset=book64")])
        counting, moving = 1e3 * flops / per_second, 1e3 * moved / bandwidth
        return [
            "",
            "| a step of the book's networks, batch 64 | |",
            "| --- | --- |",
            f"| arithmetic | {flops / 1e9:,.0f} GFLOP, {counting:.1f} ms at {per_second / 1e12:.2f} TFLOP/s |",
            f"| bytes read and written | {moved / 1e9:.2f} GB, {moving:.1f} ms at {bandwidth / 1e9:,.0f} GB/s |",
            f"| images/s that the slower of the two allows | {allowed:,.0f} |",
            f"| `train.py --preset=book64` | {ours:,.0f}, {100 * ours / allowed:.0f} % |",
        ]

    # What is run.

    def train(self, *words: str, faces: Path | None = None, seconds: float = 0, memory: bool = False) -> list[float]:
        """Train for a while; returns images/s of each row of the log but the first, or the anonymous memory in KB."""
        self.runs += 1
        held: list[float] | None = [] if memory else None
        words = (f"--data_path={faces or self.faces}", "--eval_images=0", *words)
        words = tuple({word.partition("=")[0]: word for word in words}.values())  # the last one counts
        rows = measure([*words, f"--run=run-{self.runs}"], self.folder, seconds or self.seconds, held=held)
        return [row["images_per_second"] for row in rows] if held is None else held

    def plain_step(self, preset: str) -> list[float]:
        """Return images/s of the plain step."""
        command = plain("step", self.faces, preset, self.seconds)
        found = subprocess.run(
            command, cwd=self.folder, env=environment(), check=True, stdout=subprocess.PIPE, text=True
        )
        return [float(line) for line in found.stdout.splitlines()]

    def drawing(self, n: int) -> list[float]:
        """Return the seconds for writing `n` faces to PNG files."""
        words = [f"--nogen={n}", f"--outdir={self.fresh('ours')}", "--nogpu"]
        return self.timed([sys.executable, str(ROOT / "generate.py"), *words])

    def timed(self, command: list[str]) -> list[float]:
        """Return the seconds that a command takes."""
        since = time.perf_counter()
        subprocess.run(command, cwd=self.folder, env=environment(), check=True, stdout=sys.stderr)
        return [time.perf_counter() - since]

    def fresh(self, name: str) -> Path:
        """Return a path at which no folder exists."""
        shutil.rmtree(self.folder / name, ignore_errors=True)
        return self.folder / name


def draw(folder: Path, n: int) -> Path:
    """Write `n` synthetic faces as files into a folder."""
    folder.mkdir()
    for seed in range(n):
        Image.fromarray(synthetic.draw(seed)[0]).save(folder / f"{seed:06d}.jpg", quality=90)
    return folder


def measure(
    words: list[str], folder: Path, seconds: float, steps: int = 10, held: list[float] | None = None
) -> list[dict[str, float]]:
    """Train for `seconds`, or longer to get `ROWS` rows; returns the log's rows without the first and the last.

    Args:
        words: options of train.py; the last is --run.
        folder: working directory.
        seconds: duration from the first row on.
        steps: steps between rows.
        held: receives the anonymous memory of the processes, KB, four times a second.
    """
    run = words[-1].removeprefix("--run=")
    often = str(ROOT / "benchmarks" / "often.py"), str(steps), "3600"
    command = [sys.executable, *often, "--plot_every=0", *words]
    process = subprocess.Popen(command, cwd=folder, stdout=sys.stderr)
    log, deadline, rows = folder / "checkpoints" / run / "log.jsonl", None, 0
    while process.poll() is None and (deadline is None or time.monotonic() < deadline or rows < ROWS + 2):
        if log.exists():
            deadline = deadline or time.monotonic() + seconds
            rows = log.read_text().count("\n")
        if held is not None and deadline is not None:
            held.append(anonymous(process.pid))
        time.sleep(0.25)
    process.send_signal(signal.SIGTERM)
    if process.wait() != 0:
        raise SystemExit(f"train.py {' '.join(words)} ended with exit code {process.returncode}")
    return [json.loads(row) for row in log.read_text().splitlines()][1:-1]


def compared(row: Row, rounds: int) -> list[str]:
    """Measure the arms in turn; returns a table that compares the first ones with the last."""
    found: dict[str, list[float]] = {name: [] for name in row.arms}
    rounds_of: dict[str, list[float]] = {name: [] for name in row.arms}
    for _ in range(rounds):
        for name, arm in row.arms.items():
            values = arm()
            found[name] += values
            rounds_of[name].append(statistics.median(values))
    *ours, reference = found
    base = statistics.median(found[reference])
    lines = ["", f"| {row.what} | n | {row.unit}, median | least to most, rounds | against the last row |"]
    lines.append("| --- | --- | --- | --- | --- |")
    for name, values in found.items():
        middle = statistics.median(values)
        ratio = middle / base if row.faster_is_more else base / middle
        spread = f"{min(rounds_of[name]):.1f} to {max(rounds_of[name]):.1f}"
        against = f"{ratio:.2f} times as fast" if name in ours else ""
        lines.append(f"| {name} | {len(values)} | {middle:.1f} | {spread} | {against} |")
    return lines


def work_of_a_step(config: TrainConfig, device: torch.device, precision: Precision) -> tuple[float, float]:
    """Return the floating-point operations of a training step, and the bytes that its operations read and write."""

    class Bytes(TorchDispatchMode):
        """Counts the bytes of the inputs and outputs of each operation."""

        total = 0.0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            if not func.is_view:
                tensors = [t for t in tree_leaves((args, kwargs, out)) if isinstance(t, torch.Tensor)]
                self.total += sum(t.nbytes for t in tensors)
            return out

    with FlopCounterMode(display=False) as arithmetic, Bytes() as memory:
        halves = train.discriminator_step, train.generator_step
        plan.images_per_second(config, plan.Machine(halves, device, precision), 0.0)
    steps = plan.LEAST_STEPS + 1
    return arithmetic.get_total_flops() / steps, memory.total / steps


def peak(device: torch.device, precision: Precision, rounds: int = 7) -> tuple[float, float]:
    """Measure the device's peak: operations a second of a large matrix product, bytes a second of a large copy."""
    n = 8192 if device.type == "cuda" else 2048
    a = torch.randn(n, n, device=device, dtype=torch.bfloat16 if precision == "bf16" else torch.float32)
    b, big = a.clone(), torch.ones(2**28 if device.type == "cuda" else 2**26, device=device)
    other = torch.empty_like(big)

    def least(work: Callable[[], object]) -> float:
        seconds = []
        for _ in range(rounds):
            since = time.perf_counter()
            work()
            if device.type == "cuda":
                torch.cuda.synchronize()
            seconds.append(time.perf_counter() - since)
        return min(seconds)

    return 2 * n**3 / least(lambda: a @ b), 2 * big.nbytes / least(lambda: other.copy_(big))


def plain(*words: object) -> list[str]:
    """Return the command for the plain implementation."""
    return [sys.executable, str(ROOT / "benchmarks" / "plain.py"), *map(str, words)]


def packing(faces: Path, size: int, packs: Path) -> list[str]:
    """Return the command that makes a pack."""
    code = (
        "import sys; from pathlib import Path; from gan.data.faces import open_pack\n"
        "if __name__ == '__main__': open_pack(Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))"
    )
    return [sys.executable, "-c", code, str(faces), str(size), str(packs)]


def environment() -> dict[str, str]:
    """Return the environment in which the program's modules are found."""
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def anonymous(process: int) -> float:
    """Return the anonymous memory of a process and its children, KB; mapped files do not count."""
    total = 0.0
    tasks = Path(f"/proc/{process}/task/{process}/children")
    children = tasks.read_text().split() if tasks.is_file() else []
    for pid in (process, *children):
        status = Path(f"/proc/{pid}/status")
        lines = status.read_text().splitlines() if status.is_file() else []
        total += sum(float(line.split()[1]) for line in lines if line.startswith("RssAnon"))
    return total


if __name__ == "__main__":
    main()
