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

import numpy as np
import pytest

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
COLUMNS = ("step", "images_seen", "d_loss", "g_loss", "real_logit", "fake_logit", "fd")  # that no clock is part of
Events = inotify_simple.flags
WRITING = Events.CREATE | Events.OPEN | Events.MODIFY | Events.CLOSE_WRITE | Events.MOVED_TO
MEASURED = "--eval_images=480"  # writes best.pt whenever a measurement is the best so far
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
        "--precision=bf16",
        "--noclasses",
        "--noshare_samples",
        "--g_every=2",
        MEASURED,
    ],
    "ranks": [*SMALL, "--noprojected", "--precision=fp32", "--noclasses"],  # two processes
}
AIMS = {"latest": ".latest.pt.", "best": ".best.pt.", "log": "log.jsonl"}  # how the names of what is written begin


class Victim:
    """A run that is started again and again in a folder of its own.

    It writes a row each step, and saves twice a second by default.
    """

    def __init__(self, cwd: Path, words: Sequence[str], saves: float = 0.5, processes: int = 1) -> None:
        self.cwd, self.words, self.processes = cwd, [*words, "--run=a"], processes
        self.run, self.rng = cwd / "checkpoints" / "a", random.Random(str(words))
        self.process: subprocess.Popen[str] | None = None
        cwd.mkdir(exist_ok=True)
        (cwd / "often.py").write_text(OFTEN.format(root=str(ROOT), saves=saves))

    def start(self, *words: str) -> None:
        """Begin the run, or go on with it; begin anew where nothing had been saved."""
        if self.run.exists() and not self.latest.exists():
            shutil.rmtree(self.run)
        options = ["--resume=checkpoints/a", *words] if self.latest.exists() else [*self.words, *words]
        ranks = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={self.processes}", "--"]
        launch = [sys.executable, *(ranks if self.processes > 1 else ["-u"])]
        with open(self.cwd / "said", "a") as said:
            self.process = subprocess.Popen(
                [*launch, "often.py", *options],
                cwd=self.cwd,
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

    def finish(self, epochs: int) -> None:
        """Let it train to the end of so many epochs."""
        self.start(f"--max_epoch={epochs}")
        assert self.process is not None
        assert self.process.wait(timeout=900) == 0, self.said[-3000:]

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
        (pack,) = (path.parent for path in self.cwd.rglob("pack.json"))
        pixels, hashes = np.load(pack / "faces.npy"), np.load(pack / "hashes.npy")
        assert [zlib.crc32(face.tobytes()) for face in pixels] == hashes.tolist()

    def wait_for_writing(self, begins: str, number: int) -> bool:
        """Wait for an event of so high a number in the writing of a file of the run; False if it was closed before."""
        with inotify_simple.INotify() as watch:
            watch.add_watch(self.run, WRITING)
            deadline = time.monotonic() + 120
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


def rows_of(run: Path) -> list[dict[str, float]]:
    """The rows of a log, without what a clock is part of."""
    rows = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return [{name: row[name] for name in COLUMNS if name in row} for row in rows]


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

    def make(folder: str, words: Sequence[str], saves: float = 0.5, processes: int = 1) -> Victim:
        victims.append(Victim(tmp_path / folder, [*words, f"--data_path={faces}"], saves, processes))
        return victims[-1]

    yield make
    for each in victims:
        each.kill()


def strike(run: Victim, aim: str) -> bool:
    """Start a run, and once it has saved kill it at a random moment, or while it writes what `aim` names.

    Returns:
        True where the kill counts: steps were lost since the last save, and the kill came while it wrote.
    """
    before = run.saved()
    run.start("--max_epoch=100000")
    run.wait_until(lambda: run.saved() > before)
    hit = True
    if aim == "moment":
        time.sleep(run.rng.uniform(0, 1))
    else:
        number = run.rng.randrange(1 if aim == "log" else 12)
        hit = run.wait_for_writing(AIMS[aim], number)
    assert run.process is not None
    assert run.process.poll() is None, run.said[-3000:]
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
    [("default", 4), *(pytest.param(name, 20, marks=pytest.mark.torture, id=f"all-{name}") for name in RUNS)],
)
def test_a_run_killed_again_and_again_ends_bit_for_bit_like_one_that_was_not(
    name: str, kills: int, victim: Callable[..., Victim], differences: Callable[[Path, Path], list[str]]
) -> None:
    processes = 2 if name == "ranks" else 1
    run, wanted, counted, tries = victim("struck", RUNS[name], processes=processes), plan(name, kills), Counter(), 0
    while open_aims := [aim for aim in wanted for _ in range(wanted[aim] - counted[aim])]:
        aim, tries = run.rng.choice(open_aims), tries + 1
        assert tries <= 6 * kills, f"of {wanted} only {counted} counted"
        counted[aim] += strike(run, aim)
    print(f"{name}: {tries} kills, of which {sum(counted.values())} counted: {dict(counted)}")

    epochs = run.saved() * 16 // 75 + 2
    assert run.said.count("going on from step") == tries - 1
    run.finish(epochs)
    calm = victim("calm", RUNS[name], saves=1e9, processes=processes)
    calm.finish(epochs)

    assert rows_of(run.run) == rows_of(calm.run)
    assert [row["step"] for row in rows_of(calm.run)] == list(range(1, calm.saved() + 1))
    assert sorted(path.name for path in run.run.glob(".*")) == [".lock"]
    files = sorted(path.name for path in calm.run.glob("*.pt"))
    assert sorted(path.name for path in run.run.glob("*.pt")) == files
    assert [d for file in files for d in differences(calm.run / file, run.run / file)] == []
    assert "Traceback" not in run.said
