"""One session of a run, from a start to the next stop: its folder, lock and stop signals."""

import contextlib
import itertools
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

from filelock import FileLock, Timeout

from config import RUNS, ConfigError, TrainConfig
from gan import checkpoint
from gan.command_line import BARE
from gan.files import LEFT, as_word
from gan.language import text

STOP = (
    ".stop"  # file in a run's folder that asks the process that trains it to stop, on every system and by any program
)


def new_folder(config: TrainConfig) -> Path:
    """Return the folder of a new run, not created yet. Raise a ConfigError if the user named it and it exists."""
    folder = RUNS / (config.run or datetime.now().strftime("%Y%m%d-%H%M%S"))
    if folder.exists():
        raise _taken(folder)
    return folder


def _taken(folder: Path) -> ConfigError:
    if not any(folder.glob("*.pt")):
        return ConfigError("--run: {} exists; choose another name (it holds no run that could be resumed)", folder)
    return ConfigError("--run: {} exists; choose another name, or go on with it: --resume={}", folder, as_word(folder))


def checkpoint_to_resume(resume: str) -> Path:
    """Return the checkpoint that `--resume` means; raise a CheckpointError if there is none."""
    asked = checkpoint.newest_run() if resume == BARE else Path(resume).expanduser()
    found = checkpoint.find(asked, ("latest.pt",))
    return (
        found if found.parent.name not in ("", "..") else Path(os.path.realpath(found))
    )  # the folder's name is the run's


def branch_folder(path: Path, step: int) -> Path:
    """Return the folder of the new run that goes on from an older checkpoint at `step`, not created yet."""
    name = f"{re.sub('-from-[0-9]+(-[0-9]+)?$', '', path.parent.name)}-from-{step}"
    names = itertools.chain([name], (f"{name}-{n}" for n in itertools.count(2)))
    return next(folder for each in names if not (folder := RUNS / each).exists())


@contextlib.contextmanager
def run_lock(folder: Path, new: bool = False) -> Iterator[None]:
    """Lock a run's folder against other processes until this one ends, however it ends.

    With `new`, create the folder first. Half-written files that killed processes left in a run's folder are deleted.
    Where a disk has no file locks, no process is kept out.

    Raises:
        ConfigError: another process is training this run, or has created the folder.
    """
    lock = FileLock(folder / ".lock", timeout=0.5)  # `is_training` holds it for a moment
    try:
        if new:
            folder.mkdir(parents=True)
        lock.acquire()
        (folder / STOP).unlink(missing_ok=True)
        for file in folder.glob(LEFT) if (folder / "config.json").is_file() else ():
            file.unlink()
    except Timeout as error:  # an OSError too
        raise ConfigError(
            "{} is being trained by another process; stop that first (Ctrl-C saves), or start another run", folder
        ) from error
    except FileExistsError as error:  # created while this run was being prepared
        raise _taken(folder) from error
    except (OSError, NotImplementedError):
        pass  # no locks here; or no writing, which `Run.write_config` reports
    try:
        yield
    finally:
        lock.release()


def is_training(folder: Path) -> bool:
    """Return whether a process is training the run; False where a disk has no file locks."""
    if not (folder / ".lock").is_file():
        return False
    try:
        with FileLock(folder / ".lock", blocking=False):
            return False
    except Timeout:  # an OSError too
        return True
    except (OSError, NotImplementedError):
        return False


@contextlib.contextmanager
def stop_signals(folder: Path, patient: bool = False) -> Iterator[Callable[[], bool]]:
    """Turn Ctrl-C, SIGTERM, a closing terminal and the file `STOP` into a request that the loop polls.

    A second Ctrl-C interrupts.

    Args:
        folder: the run's.
        patient: ignore a second Ctrl-C, which `torchrun` sends after the terminal's own, and keep the handlers
            afterwards: `torchrun` sends SIGTERM when another process has died, which this one still has to report.
    """
    asked: list[int] = []
    stop = folder / STOP
    told = text("stopping: this step ends and is saved; Ctrl-C again would lose what is not saved yet")
    line = f"\n{told}\n".encode(getattr(sys.stderr, "encoding", None) or "utf-8", "replace")

    def ask(number: int, frame: object) -> None:
        if asked and number == signal.SIGINT and not patient:
            raise KeyboardInterrupt
        if number == signal.SIGINT and not patient:
            with contextlib.suppress(OSError):  # unlike print, this is safe in the middle of a print
                os.write(2, line)
        asked.append(number)

    numbers = [signal.SIGINT, signal.SIGTERM]
    for name in ("SIGHUP", "SIGBREAK"):  # SIGHUP is missing on Windows; SIGBREAK (Ctrl-Break) exists only there
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:  # nohup ignores it on purpose
            numbers.append(number)
    previous = {number: signal.signal(number, ask) for number in numbers}
    try:
        yield lambda: bool(asked) or stop.exists()
    finally:
        for number, handler in previous.items():
            if not patient:
                signal.signal(number, handler)
