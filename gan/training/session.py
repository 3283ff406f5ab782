"""One session of a run, from a start to the next stop: its folder, lock and stop signals."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import re
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from config import RUNS, CheckpointError, ConfigError, TrainConfig
from gan import checkpoint, images
from gan.command_line import BARE
from gan.files import LEFT, as_word, replacing


def new_folder(config: TrainConfig) -> Path:
    """Return the folder of a new run, not created yet. Raise a ConfigError if the user named it and it exists."""
    folder = RUNS / (config.run or datetime.now().strftime("%Y%m%d-%H%M%S"))
    if config.run is not None and folder.exists():
        raise _taken(folder)
    return folder


def _taken(folder: Path) -> ConfigError:
    if not any(folder.glob("*.pt")):
        return ConfigError(f"--run: {folder} exists; choose another name (it holds no run that could be resumed)")
    return ConfigError(f"--run: {folder} exists; choose another name, or go on with it: --resume={as_word(folder)}")


def checkpoint_to_resume(resume: str) -> Path:
    """Return the checkpoint that `--resume` means; raise a CheckpointError if there is none."""
    asked = checkpoint.newest_run() if resume == BARE else Path(resume).expanduser()
    found = checkpoint.find(asked, ("latest.pt",))
    return found if found.parent.name not in ("", "..") else found.resolve()  # the folder's name is the run's


def branch_folder(path: Path, step: int) -> Path:
    """Return the folder of the new run that goes on from an older checkpoint at `step`, not created yet."""
    return RUNS / f"{re.sub('-from-[0-9]+$', '', path.parent.name)}-from-{step}"


def best_so_far(path: Path, step: int) -> dict[str, Any]:
    """Return the evaluation in the best.pt beside a checkpoint at `step`; empty if there is none or it came later."""
    with contextlib.suppress(CheckpointError):  # damaged or foreign: the next one is better
        if (best := path.with_name("best.pt")).is_file():
            content = checkpoint.load(best, required=("evaluation", "step"), hint=False)
            return content["evaluation"] if path.name == "latest.pt" or content["step"] <= step else {}
    return {}


def branch(path: Path, content: Mapping[str, Any], folder: Path, samples: Path) -> None:
    """Copy what a run was at its checkpoint `path` into a new run's folder: log, best.pt, previews, and latest.pt.

    `content` is the checkpoint's; `samples` is the folder of the new run's previews. The old run stays as it is.

    Raises:
        CheckpointError: something cannot be copied; the new folder is deleted.
    """
    step = content["step"]
    try:
        samples.mkdir(parents=True, exist_ok=True)
        for file in Path(content["config"]["save_path"] or path.with_name("samples")).glob(images.PREVIEWS):
            if file.stem <= f"step-{step:08d}":
                shutil.copyfile(file, samples / file.name)
        if (log := path.with_name("log.jsonl")).is_file():  # rows after `step` are cut when training begins
            shutil.copyfile(log, folder / log.name)
        if best_so_far(path, step):
            shutil.copyfile(path.with_name("best.pt"), folder / "best.pt")
        with replacing(folder / "latest.pt") as temporary:  # last: now the run can be resumed
            shutil.copyfile(path, temporary)
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise CheckpointError(
            f"cannot copy the run {path.parent} up to step {step} into {folder}: {error}; free some disk space, or "
            "make both folders accessible"
        ) from error


@contextlib.contextmanager
def run_lock(folder: Path, new: bool = False, named: bool = True) -> Iterator[Path]:
    """Lock a run's folder against other processes until this one ends, however it ends.

    Without file locks on the disk, no process is kept out. Half-written files of earlier processes are deleted if the
    folder belongs to a run and does not merely hold a checkpoint.

    Args:
        folder: the run's folder.
        new: create the folder, which must not exist yet.
        named: the user named the folder. Otherwise, if the name is taken, a numbered folder is created and yielded.

    Raises:
        CheckpointError: the folder cannot be written.
        ConfigError: another process is training this run, or has created the folder.
    """
    try:
        if new:
            folder = _made(folder, named)
        lock = FileLock(folder / ".lock", blocking=False)
        try:
            lock.acquire()
            left = folder.glob(LEFT) if (folder / "config.json").is_file() else ()
            for file in left:  # left by a process that was killed while writing
                file.unlink()
        except NotImplementedError:
            pass
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS):
                raise
    except Timeout as error:  # Timeout is an OSError too
        raise ConfigError(
            f"{folder} is being trained by another process; stop that first (Ctrl-C saves), or start another run"
        ) from error
    except FileExistsError as error:  # created while this run was being prepared
        raise _taken(folder) from error
    except OSError as error:
        raise CheckpointError(f"cannot write the run's folder {folder}: {error}; make it writable") from error
    try:
        yield folder
    finally:
        lock.release()


def _made(folder: Path, named: bool) -> Path:
    """Create a folder; if it exists and the user did not name it, add a number to its name."""
    for n in itertools.count(1):
        made = folder if n == 1 else folder.with_name(f"{folder.name}-{n}")
        try:
            made.mkdir(parents=True)
            return made
        except FileExistsError:
            if named:
                raise
    raise AssertionError("there are more numbers than folders")


@contextlib.contextmanager
def stop_signals(patient: bool = False) -> Iterator[Callable[[], bool]]:
    """Turn Ctrl-C, SIGTERM and a closing terminal into a request that the loop polls; a second Ctrl-C interrupts.

    Args:
        patient: ignore a second Ctrl-C, which `torchrun` sends after the terminal's own, and keep the handlers
            afterwards: `torchrun` sends SIGTERM when another process has died, which this one still has to report.
    """
    asked: list[int] = []

    def ask(number: int, frame: object) -> None:
        if asked and number == signal.SIGINT and not patient:
            raise KeyboardInterrupt
        if number == signal.SIGINT and not patient:
            with contextlib.suppress(OSError):  # unlike print, this is safe in the middle of a print
                os.write(2, b"\nstopping: this step ends and is saved; Ctrl-C again would lose what is not saved yet\n")
        asked.append(number)

    numbers = [signal.SIGINT, signal.SIGTERM]
    for name in ("SIGHUP", "SIGBREAK"):  # SIGHUP is missing on Windows; SIGBREAK (Ctrl-Break) exists only there
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:  # nohup ignores it on purpose
            numbers.append(number)
    previous = {number: signal.signal(number, ask) for number in numbers}
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in previous.items():
            if not patient:
                signal.signal(number, handler)
