"""Runs that are killed by kill -9 again and again, at random moments and while they write; nothing saved may be lost.

In full, with marker `torture`, every run of RUNS is killed twenty times; otherwise one of them a few times.
"""

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
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gan import checkpoint

inotify_simple = pytest.importorskip("inotify_simple", reason="it tells of writing on Linux alone")

ROOT = Path(__file__).resolve().parents[2]
SMALL = ["--nogpu", "--image_size=32", "--ngf=8", "--ndf=8", "--batch_size=16", "--plot_every=20"]
OFTEN = """
import sys
sys.path.insert(0, {root!r})
import train
from config import TrainConfig
from gan.command_line import command_line
from gan.watching import monitor

train.LOG_EVERY, train.SAVE_SECONDS, monitor.SIDE_SHARE = 1, {saves}, 1e9
if __name__ == "__main__":
    command_line(TrainConfig, train.main)
"""
PARTS = ("generator", "discriminator", "ema", "g_optimizer", "d_optimizer", "step", "images_seen", "retries")
COLUMNS = ("step", "images_seen", "d_loss", "g_loss", "real_logit", "fake_logit", "fd")  # that no clock is part of
Events = inotify_simple.flags
WRITING = Events.CREATE | Events.OPEN | Events.MODIFY | Events.CLOSE_WRITE | Events.MOVED_TO
MEASURED = "--eval_images=160"  # writes best.pt whenever a measurement is the best so far
RUNS = {
    "default": [*SMALL, "--precision=bf16", "--noclasses", MEASURED],
    "faces": [*SMALL, "--precision=fp32", "--noclasses", "--d_encoder=faces", "--save_every=3"],
    "book": [*SMALL, "--preset=book", "--precision=fp32", "--noclasses"],
    "book2": [*SMALL, "--preset=book2", "--precision=fp32", "--noclasses", MEASURED],
    "wgan-gp": [*SMALL, "--preset=wgan-gp", "--precision=fp32", "--noclasses"],
    "resnet": [*SMALL, "--arch=resnet", "--noprojected", "--precision=bf16", "--noclasses"],
    "grey": [*SMALL, "--channels=1", "--noprojected", "--precision=fp32", "--noclasses", "--save_every=2"],
    "classes": [*SMALL, "--noprojected", "--precision=bf16", MEASURED],
    "rarely": [
        *SMALL,
        "--noprojected",
        "--noshare_samples",
        "--g_every=2",
        "--precision=bf16",
        "--noclasses",
        MEASURED,
    ],
    "ranks": [*SMALL, "--noprojected", "--precision=fp32", "--noclasses"],  # two processes
}
AIMS = {"latest": ".latest.pt.", "best": ".best.pt.", "log": "log.jsonl"}  # how the names of what is written begin


class Victim:
    """A run that is started again and again in a folder of its own.

    It writes a row each step, and saves each second by default.
    """

    def __init__(self, cwd: Path, words: Sequence[str], saves: float = 1.0, processes: int = 1) -> None:
        self.cwd, self.words, self.processes = cwd, [*words, "--run=a"], processes
        self.run, self.rng = cwd / "checkpoints" / "a", random.Random(str(words))
        self.process: subprocess.Popen[str] | None = None
        cwd.mkdir(exist_ok=True)
        (cwd / "often.py").write_text(OFTEN.format(root=str(ROOT), saves=saves))

    def start(self, *words: str, wrapper: Sequence[str] = (), env: dict[str, str] | None = None) -> None:
        """Begin the run, or go on with it; begin anew where nothing had been saved."""
        if self.run.exists() and not self.latest.exists():
            shutil.rmtree(self.run)
        options = ["--resume=checkpoints/a", *words] if self.latest.exists() else [*self.words, *words]
        ranks = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={self.processes}", "--"]
        launch = [sys.executable, *(ranks if self.processes > 1 else ["-u"])]
        with open(self.cwd / "said", "a") as said:
            self.process = subprocess.Popen(
                [*wrapper, *launch, "often.py", *options],
                cwd=self.cwd,
                env={**os.environ, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
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
        return (self.cwd / "said").read_text()

    def row(self) -> int:
        """The step of the last whole row of the log; 0 before the first."""
        if not (self.run / "log.jsonl").is_file():
            return 0
        lines = (self.run / "log.jsonl").read_bytes().rpartition(b"\n")[0].splitlines()
        return json.loads(lines[-1])["step"] if lines else 0

    def saved(self) -> int:
        """The step of the last save; 0 before the first."""
        return checkpoint.load(self.latest, hint=False)["step"] if self.latest.exists() else 0

    def wait_until(self, condition: Callable[[], object], seconds: float = 300) -> None:
        """Wait for something while it runs."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert self.process is not None
            assert self.process.poll() is None, self.said[-3000:]
            assert time.monotonic() < deadline, f"it did not happen; it said: {self.said[-3000:]}"
            time.sleep(0.02)

    def end(self, code: int = 0, seconds: float = 900) -> None:
        """Wait for its end."""
        assert self.process is not None
        assert self.process.wait(timeout=seconds) == code, self.said[-3000:]

    def finish(self, epochs: int) -> None:
        """Let it train to the end of so many epochs."""
        self.start(f"--max_epoch={epochs}")
        self.end()

    def kill(self) -> None:
        """End it by kill -9, and all that it started."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def check(self) -> None:
        """What a killed run leaves: whole rows, whole checkpoints, a whole pack."""
        log = self.run / "log.jsonl"
        text = log.read_text() if log.is_file() else ""
        assert text == "" or text.endswith("\n")
        assert all(isinstance(json.loads(line), dict) for line in text.splitlines())
        for path in self.run.glob("[!.]*.pt"):
            checkpoint.load(path, hint=False)
        (pack,) = (path.parent for path in self.cwd.rglob("pack.json"))
        check_pack(pack)


def check_pack(pack: Path) -> None:
    """A pack must hold the faces that its sums are of."""
    pixels, hashes = np.load(pack / "faces.npy"), np.load(pack / "hashes.npy")
    assert [zlib.crc32(face.tobytes()) for face in pixels] == hashes.tolist()


def wait_for_writing(folder: Path, begins: str, number: int, alive: Callable[[], bool], seconds: float = 120) -> bool:
    """Wait for an event of so high a number in the writing of a file in `folder`, or in a new folder in it.

    Returns:
        False if the file was closed before, or what writes it has ended.
    """
    with inotify_simple.INotify() as watch:
        folders = {watch.add_watch(folder, WRITING): folder}
        deadline = time.monotonic() + seconds
        while alive() and time.monotonic() < deadline:
            for event in watch.read(timeout=1000):
                path = folders[event.wd] / event.name
                if event.mask & Events.ISDIR and event.mask & Events.CREATE:
                    folders[watch.add_watch(path, WRITING)] = path
                    if any(path.glob(f"{begins}*")):  # it was faster
                        return True
                if not event.name.startswith(begins):
                    continue
                if number == 0:
                    return True
                number -= 1
                if event.mask & Events.CLOSE_WRITE:
                    return False
    assert not alive(), f"nothing that begins with {begins} was written in {folder}"
    return False


def differences(a: Any, b: Any, where: str = "") -> list[str]:
    """The names of the entries in which two states differ by a bit or more."""
    if isinstance(a, torch.Tensor):
        return [] if torch.equal(a, b) else [where]
    if isinstance(a, dict):
        assert a.keys() == b.keys()
        return [d for key in a for d in differences(a[key], b[key], f"{where}/{key}")]
    if isinstance(a, list | tuple):
        assert len(a) == len(b)
        return [d for i, (x, y) in enumerate(zip(a, b, strict=True)) for d in differences(x, y, f"{where}/{i}")]
    return [] if a == b else [where]


def state_of(path: Path) -> dict[str, Any]:
    """What training goes on from, without the time it took."""
    content = checkpoint.load(path)
    return {part: content[part] for part in PARTS}


def rows_of(run: Path) -> list[dict[str, float]]:
    """The rows of a log, without what a clock is part of."""
    rows = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return [{name: row[name] for name in COLUMNS if name in row} for row in rows]


def assert_alike(run: Victim, calm: Victim) -> None:
    """Both runs have the same state bit for bit, the same rows with none lost or twice, and the same files.

    A numbered checkpoint may be missing: latest.pt is saved first.
    """
    assert differences(state_of(calm.latest), state_of(run.latest)) == []
    assert rows_of(run.run) == rows_of(calm.run)
    assert [row["step"] for row in rows_of(calm.run)] == list(range(1, calm.saved() + 1))
    assert sorted(path.name for path in run.run.glob(".*")) == [".lock"]
    assert {path.name for path in run.run.glob("[!s]*.pt")} == {path.name for path in calm.run.glob("[!s]*.pt")}
    for numbered in {path.name for path in run.run.glob("s*.pt")} & {path.name for path in calm.run.glob("s*.pt")}:
        assert differences(state_of(calm.run / numbered), state_of(run.run / numbered)) == []
    if (best := calm.run / "best.pt").exists():
        assert differences(state_of(best), state_of(run.run / "best.pt")) == []


@pytest.fixture(scope="module")
def faces(tmp_path_factory: pytest.TempPathFactory, make_faces: Callable[..., list[Path]]) -> Path:
    """Faces with classes: 75 make an epoch of batches of 16 end within a step."""
    folder = tmp_path_factory.mktemp("faces")
    names = [path.name for path in make_faces(folder, 75, size=32)]
    rows = [f"{name},{'even' if i % 2 == 0 else 'odd'}" for i, name in enumerate(names)]
    (folder / "labels.csv").write_text("\n".join(["file,kind", *rows]) + "\n")
    return folder


@pytest.fixture
def victim(tmp_path: Path, faces: Path) -> Iterator[Callable[..., Victim]]:
    """Make runs on these faces in folders of their own; whatever still runs in the end is killed.

    Args of the returned function:
        folder: name of the folder.
        words: options.
        saves: seconds between saves.
        processes: how many train it.
    """
    victims = list[Victim]()

    def make(folder: str, words: Sequence[str], saves: float = 1.0, processes: int = 1) -> Victim:
        victims.append(Victim(tmp_path / folder, [*words, f"--data_path={faces}"], saves, processes))
        return victims[-1]

    yield make
    for each in victims:
        each.kill()


def strike(run: Victim, aim: str) -> bool:
    """Start a run, and kill it at a random moment, or while it writes what `aim` names.

    Returns:
        True where the kill counts: steps were lost since the last save, and the kill came while it wrote.
    """
    before = run.saved()
    run.start("--max_epoch=100000")
    run.wait_until(lambda: run.latest.exists() and run.row() > before)
    hit, process = True, run.process
    assert process is not None
    if aim == "moment":
        time.sleep(run.rng.uniform(0, 1.5))
    else:
        number = run.rng.randrange(1 if aim == "log" else 12)
        hit = wait_for_writing(run.run, AIMS[aim], number, lambda: process.poll() is None)
    assert process.poll() is None, run.said[-3000:]
    run.kill()
    run.check()
    return hit and run.row() > run.saved()


def plan(name: str, kills: int) -> Counter[str]:
    """How many kills must count of each aim: a third is aimed."""
    aimed = kills - 2 * kills // 3
    best = aimed // 2 if MEASURED in RUNS[name] else 0
    log = (aimed - best + 1) // 2
    return Counter(moment=kills - aimed, best=best, log=log, latest=aimed - best - log)


@pytest.mark.parametrize(
    ("name", "kills"),
    [("default", 6), *(pytest.param(name, 20, marks=pytest.mark.torture, id=f"all-{name}") for name in RUNS)],
)
def test_a_run_killed_again_and_again_ends_bit_for_bit_like_one_that_was_not(
    name: str, kills: int, victim: Callable[..., Victim]
) -> None:
    processes = 2 if name == "ranks" else 1
    run, wanted, counted, tries = victim("struck", RUNS[name], processes=processes), plan(name, kills), Counter(), 0
    while open_aims := [aim for aim in wanted for _ in range(wanted[aim] - counted[aim])]:
        aim, tries = run.rng.choice(open_aims), tries + 1
        assert tries <= 6 * kills, f"of {wanted} only {counted} counted"
        counted[aim] += strike(run, aim)
    print(f"{name}: {tries} kills, of which {sum(counted.values())} counted: {dict(counted)}")

    epochs = run.saved() * 16 // 75 + 2
    run.finish(epochs)
    calm = victim("calm", RUNS[name], saves=1e9, processes=processes)
    calm.finish(epochs)

    assert_alike(run, calm)
    assert "Traceback" not in run.said
