"""Runs that tests torture: each is started, stopped and gone on with in a folder of its own."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import inotify_simple
import numpy as np

import train
from gan import checkpoint
from gan.quality import evaluation
from gan.training import between
from gan.watching import monitor, run_report

ROOT = Path(__file__).resolve().parents[2]
SMALL = ["--nogpu", "--image_size=32", "--ngf=8", "--ndf=8", "--batch_size=16", "--plot_every=20"]
OFTEN = """
import signal, sys
sys.path.insert(0, {root!r})
import train
from config import TrainConfig
from gan.command_line import command_line
from gan.quality import evaluation
from gan.training import between
from gan.watching import monitor, run_report

train.LOG_EVERY, train.SAVE_SECONDS, monitor.SIDE_SHARE = 1, {saves}, 1e9
# For time; this share allows any measurement.
evaluation.Evaluator.cost, run_report._drawing = lambda self: 0.0, lambda draw: b""
between.STATISTICS_BATCH = 16  # as `run_here` has it
if __name__ == "__main__":
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # who started the tests may ignore it, and that is inherited
    command_line(TrainConfig, train.main)
"""
OWNED: list[tuple[Any, str]] = [  # what it replaces
    (train, "LOG_EVERY"), (train, "SAVE_SECONDS"), (monitor, "SIDE_SHARE"),
    (evaluation.Evaluator, "cost"), (run_report, "_drawing"),
    (between, "STATISTICS_BATCH"),
]  # fmt: skip
CONTROL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
COLUMNS = ("step", "images_seen", "d_loss", "g_loss", "real_logit", "fake_logit", "fd")  # that no clock is part of
Events = inotify_simple.flags
WRITING = Events.CREATE | Events.OPEN | Events.MODIFY | Events.CLOSE_WRITE | Events.MOVED_TO


class Victim:
    """A run that is started again and again in a folder of its own.

    It writes a row each step, and saves twice a second by default.
    """

    def __init__(
        self,
        cwd: Path,
        words: Sequence[str],
        saves: float = 0.5,
        processes: int = 1,
        launcher: Sequence[str] = (),
        **surroundings: str,
    ) -> None:
        self.cwd, self.words, self.processes = cwd, [*words, "--run=a"], processes
        self.run, self.rng = cwd / "checkpoints" / "a", random.Random(str(words))
        self.process: subprocess.Popen[str] | None = None
        self.launcher, self.surroundings = launcher, surroundings  # what it is started by; environment variables
        self.words_said = cwd / "said"
        self.read, self.step = (0, 0), 0  # the checkpoint that was read last, and its step
        cwd.mkdir(exist_ok=True)
        (cwd / "often.py").write_text(OFTEN.format(root=str(ROOT), saves=saves))

    def start(self, *words: str, terminal: int | None = None) -> None:
        """Begin the run, or go on with it; begin anew where nothing had been saved.

        Args:
            words: more options.
            terminal: file descriptor of the terminal that it runs in, if any.
        """
        if self.run.exists() and not self.latest.exists():
            shutil.rmtree(self.run)
        options = ["--resume=checkpoints/a", *words] if self.latest.exists() else [*self.words, *words]
        ranks = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={self.processes}", "--"]
        control = [sys.executable, "-c", CONTROL] if terminal is not None else []
        launch = [*self.launcher, *control, sys.executable, *(ranks if self.processes > 1 else ["-u"])]
        with open(self.words_said, "a") as said:
            self.process = subprocess.Popen(
                [*launch, "often.py", *options],
                cwd=self.cwd,
                env={**os.environ, **self.surroundings},
                stdin=subprocess.DEVNULL if terminal is None else terminal,
                stdout=said if terminal is None else terminal,
                stderr=said if terminal is None else terminal,
                text=True,
                start_new_session=True,
            )

    @property
    def latest(self) -> Path:
        """The checkpoint that it goes on from."""
        return self.run / "latest.pt"

    @property
    def said(self) -> str:
        """All that it has said so far, errors included."""
        return self.words_said.read_text()

    @property
    def pack(self) -> Path:
        """The folder of its pack."""
        (pack,) = (path.parent for path in self.cwd.rglob("pack.json"))
        return pack

    def rows(self) -> list[dict[str, float]]:
        """The whole rows of the log."""
        if not (self.run / "log.jsonl").is_file():
            return []
        lines = (self.run / "log.jsonl").read_bytes().rpartition(b"\n")[0].splitlines()
        return [json.loads(line) for line in lines]

    def row(self) -> int:
        """The step of the last whole row of the log; 0 before the first."""
        rows = self.rows()
        return int(rows[-1]["step"]) if rows else 0

    def saved(self) -> int:
        """The step of the last save; 0 before the first."""
        if not self.latest.exists():
            return 0
        found = self.latest.stat()
        file = found.st_ino, found.st_mtime_ns
        if file != self.read:  # else it is still the one that was read last
            self.read, self.step = file, checkpoint.load(self.latest, hint=False)["step"]
        return self.step

    def wait_until(self, condition: Callable[[], object], seconds: float = 300) -> None:
        """Wait for something while it runs."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert self.process is not None
            assert self.process.poll() is None, self.said[-3000:]
            assert time.monotonic() < deadline, f"it did not happen; it said: {self.said[-3000:]}"
            time.sleep(0.02)

    def begin(self) -> None:
        """Start it, for ever, and wait until it has saved."""
        before = self.saved()
        self.start("--max_epoch=100000")
        self.wait_until(lambda: self.saved() > before)

    def wait_for_saying(self, text: str) -> None:
        """Wait until it says something that it has not said before."""
        times = self.said.count(text)
        self.wait_until(lambda: self.said.count(text) > times)

    def end(self) -> int:
        """Wait for its end; its exit code."""
        assert self.process is not None
        return self.process.wait(timeout=3600)

    def stop(self) -> None:
        """Ask it to stop, as `kill` does by default; it saves first."""
        assert self.process is not None
        self.process.terminate()
        assert self.end() == 0, self.said[-3000:]

    def finish(self, epochs: int) -> None:
        """Let it train to the end of so many epochs."""
        self.start(f"--max_epoch={epochs}")
        assert self.end() == 0, self.said[-3000:]

    def kill(self) -> None:
        """End it by kill -9, and the processes that torchrun started: each of them is a session of its own."""
        if self.process is None:
            return
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):
            children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
            for pid in [self.process.pid, *map(int, children)]:
                os.killpg(os.getpgid(pid), signal.SIGKILL)
            while any(Path(f"/proc/{pid}").exists() for pid in children):
                time.sleep(0.01)
        self.process.wait()

    def check(self) -> None:
        """What a killed run leaves: whole rows, whole checkpoints, a whole pack."""
        log = self.run / "log.jsonl"
        text = log.read_text() if log.is_file() else ""
        assert text == "" or text.endswith("\n")
        assert all(isinstance(json.loads(line), dict) for line in text.splitlines())
        for path in self.run.glob("[!.]*.pt"):
            checkpoint.load(path, hint=False)
        pixels, hashes = np.load(self.pack / "faces.npy"), np.load(self.pack / "hashes.npy")
        assert [zlib.crc32(face.tobytes()) for face in pixels] == hashes.tolist()

    def wait_for_writing(self, begins: str, number: int) -> bool:
        """Wait for an event of so high a number in the writing of a file of the run; False if it was closed before."""
        with inotify_simple.INotify() as watch:
            watch.add_watch(self.run, WRITING)
            deadline = time.monotonic() + 600
            while time.monotonic() < deadline:
                for event in watch.read(timeout=1000):
                    if not event.name.startswith(begins):
                        continue
                    if number == 0:
                        return True
                    number -= 1
                    if event.mask & Events.CLOSE_WRITE:
                        return False
        raise AssertionError(f"nothing that begins with {begins} was written; it said: {self.said[-3000:]}")


def without_clocks(rows: list[dict[str, float]]) -> list[dict[str, float]]:
    """Rows of a log without what a clock is part of."""
    return [{name: row[name] for name in COLUMNS if name in row} for row in rows]
