"""One session of a run, from a start to the next stop: its folder, options, lock and stop signals."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import itertools
import os
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from config import CHANGEABLE_ON_RESUME, RUNS, CheckpointError, ConfigError, ModelConfig, TrainConfig, restore
from gan import book_weights, checkpoint, images
from gan.command_line import BARE
from gan.files import LEFT, as_word, replacing
from gan.training.run import TrainingState


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


def resumed(config: TrainConfig, typed: Mapping[str, Any], path: Path) -> tuple[TrainConfig, dict[str, Any]]:
    """Read the checkpoint `path` from which a run resumes.

    Returns:
        The run's own config with the options typed now, and the checkpoint's content.

    Raises:
        CheckpointError: it is not a run's checkpoint, or cannot be read.
        ConfigError: an option that defines the run was typed and differs.
    """
    content = checkpoint.load(path)
    missing = [name for name in (*TrainingState.PARTS, "chosen", "faces", "seconds") if name not in content]
    if missing:
        raise CheckpointError(
            f"{path}: not a run's checkpoint, it lacks {', '.join(missing)}; start a new run from it with "
            f"--init={as_word(path)}"
        )
    try:
        stored = restore(content["config"])
        _ = stored.model
    except (TypeError, ConfigError) as error:
        raise CheckpointError(
            f"{path}: its options do not fit this version of the program ({error}); use the version that wrote it"
        ) from error
    for name, value in typed.items():
        kept = getattr(stored, name)
        if name == "classes" and kept is None:
            kept = bool(stored.vocabulary)
        if name not in CHANGEABLE_ON_RESUME and value != kept:
            if name == "run":
                raise ConfigError(f"--run: to go on with {value}: --resume={as_word(RUNS / value)}")
            raise ConfigError(
                f"--{name}: a run keeps it, here {'unset' if kept is None else kept}; got {value}. Leave it out, or "
                f"start a new run from these weights with --init={as_word(path)}"
            )
    changed = {name: value for name, value in typed.items() if name in CHANGEABLE_ON_RESUME - {"resume"}}
    if ("budget" in typed) != ("max_epoch" in typed):  # whichever was typed now ends the run
        changed = {"budget": None, "max_epoch": None, **changed}
    return dataclasses.replace(stored, **changed), content


def starting_from(config: TrainConfig, typed: Mapping[str, Any]) -> TrainConfig:
    """Return the config of a new run that starts from old weights, whose files determine the networks' options.

    Raises:
        CheckpointError: a file cannot be used.
        ConfigError: a typed option contradicts the files.
    """
    if config.init is not None:
        path = checkpoint.find(config.init, ("best.pt", "latest.pt"))
        own = {field.name for field in dataclasses.fields(ModelConfig)}
        found = {name: value for name, value in checkpoint.load(path).get("model", {}).items() if name in own}
        given = str(path)
    else:
        found, _, _ = book_weights.networks(config.netg_path, config.netd_path)
        found |= {"projected": False} if config.netd_path else {}
        given = " and ".join(str(path) for path in (config.netg_path, config.netd_path) if path is not None)
    for name, value in found.items():
        if typed.get(name, value) != value:
            raise ConfigError(f"--{name}: the weights in {given} have {value}; got {typed[name]}. Leave it out")
    if found.get("d_norm") == "batch" and config.penalty != "none":
        raise ConfigError(
            f"the discriminator in {given} has BatchNorm, which mixes the batch, and the gradient penalty of "
            f"--preset={config.preset} needs logits that depend on their own image alone; add --preset=book"
        )
    config = dataclasses.replace(config, **found)
    try:
        _ = config.model
    except ConfigError as error:
        raise CheckpointError(
            f"{given}: describes a network that this program does not know ({error}); use the version that wrote it"
        ) from error
    return config


def keep_later(path: Path, step: int, samples: Path) -> None:
    """Prepare to resume from an older checkpoint at `step`: rename later files, and make the checkpoint latest.pt."""
    if path.name == "latest.pt":
        return
    latest = path.with_name("latest.pt")
    try:
        with replacing(latest) as temporary:  # it becomes latest.pt once everything else has succeeded
            shutil.copyfile(path, temporary)
            _keep_later(path, step, samples)
            if (log := path.with_name("log.jsonl")).is_file():  # the rows after `step` will be cut from it
                shutil.copyfile(log, _aside(log, log.stem))
    except OSError as error:
        raise CheckpointError(
            f"could not write {latest}: {error}; make it and the files beside it writable, or free some disk space"
        ) from error


def _keep_later(path: Path, step: int, samples: Path) -> None:
    for file in (path.with_name("latest.pt"), path.with_name("best.pt")):
        if file == path or not file.is_file():
            continue
        give = _also_called if file.name == "latest.pt" else Path.replace  # a run always has a latest.pt
        try:
            later = checkpoint.load(file, hint=False)["step"]
        except CheckpointError:  # the likely reason for resuming from another file
            give(file, file.with_name(f"{file.stem}-damaged.pt"))
            continue
        if later > step:
            give(file, file.with_name(f"step-{later:08d}.pt"))
        elif later < step and file.name == "latest.pt":  # the user returns to a checkpoint that was set aside
            give(file, _aside(file, f"step-{later:08d}"))
    for file in (*path.parent.glob("step-????????.pt"), *samples.glob(images.PREVIEWS)):
        if file.stem > f"step-{step:08d}":
            file.replace(_aside(file, file.stem))


def _also_called(file: Path, name: Path) -> None:
    """Give a file a second name by a hard link, or by a copy if the file system has no links."""
    name.unlink(missing_ok=True)
    try:
        os.link(file, name)
    except OSError:
        shutil.copyfile(file, name)


def _aside(file: Path, stem: str) -> Path:
    """Return an unused name for a file that is set aside."""
    names = (f"{stem}-before{'' if n == 1 else f'-{n}'}{file.suffix}" for n in itertools.count(1))
    return next(path for path in map(file.with_name, names) if not path.exists())


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
