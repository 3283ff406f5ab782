"""Checkpoints: written so that the last good file always survives, and read without running code in them."""

import contextlib
import difflib
import functools
import os
import pickle
import warnings
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from config import RUNS, CheckpointError
from gan.device import out_of_memory
from gan.files import regular, replacing
from gan.language import text, why

FORMAT = 1  # version of the file's layout; increased when older programs can no longer read it
PROGRAM = "animegan"
REQUIRED = ("config", "images_seen", "step", "ema", "discriminator")
OF_THE_BOOK = "; the book's weights go with --netg_path of generate.py and train.py"
HARMLESS, DENSEST = 64 * 2**20, 20  # bytes, and times its size, that any zip may unpack to: weights hardly compress


def save(path: Path, content: Mapping[str, Any]) -> None:
    """Write a checkpoint of tensors, numbers, strings, lists and dicts: to a temporary file, flushed to disk, renamed.

    Raises:
        CheckpointError: it could not be written; the file at `path` is untouched.
    """
    try:
        with replacing(path) as temporary, open(temporary, "wb") as file:
            torch.save({"program": PROGRAM, "format": FORMAT, **content}, file)
            file.flush()
            os.fsync(file.fileno())
    except (OSError, RuntimeError) as error:  # torch's writer wraps the disk's errors in RuntimeError
        cause = error.__context__ if isinstance(error.__context__, OSError) else error
        raise CheckpointError(
            "could not write {}: {}; make it writable, or free some disk space", path, cause
        ) from error


def load(
    path: Path,
    device: torch.device | str = "cpu",
    required: Sequence[str] = REQUIRED,
    hint: bool = True,
    instead: str = "",
) -> dict[str, Any]:
    """Read a file of this program onto `device`, and check that it has all `required` entries.

    With `hint`, an error names the newest usable file in the same folder, which may mean reading all of them. `instead`
    says what to do if the file is damaged; by default to use another one.

    Raises:
        CheckpointError: the file is missing, damaged, foreign, newer than this program, or contains code.
    """
    try:
        return _read(path, device, required, instead)
    except CheckpointError as error:
        beside = _usable_beside(path, required) if hint and path.suffix == ".pt" else None
        if beside is None:
            raise
        raise CheckpointError("{}; the newest usable file beside it is {}", error, beside) from error.__cause__


def _usable_beside(path: Path, required: Sequence[str]) -> Path | None:
    with contextlib.suppress(OSError):
        for other in checkpoints_in(path.parent):
            with contextlib.suppress(CheckpointError):
                if other != path and _read(other, "cpu", required):
                    return other
    return None


def _read(path: Path, device: torch.device | str, required: Sequence[str], instead: str = "") -> dict[str, Any]:
    instead = instead or text("use another file")
    book = text(OF_THE_BOOK) if path.suffix == ".pth" else ""
    try:
        regular(path)
        with open(path, "rb") as file:
            if not zipfile.is_zipfile(file):
                raise CheckpointError("{}: not a checkpoint, or a damaged one; {}{}", path, instead, book)
        content = unpickled(path, device, instead)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
        raise CheckpointError(
            "{}: no such checkpoint; expected a .pt file or the folder of a run{}", path, _perhaps(path)
        ) from error
    except OSError as error:
        raise CheckpointError("{}: cannot be opened, {}; {}", path, why(error), instead) from error
    if not isinstance(content, dict) or content.get("program") != PROGRAM or not isinstance(content.get("format"), int):
        raise CheckpointError("{}: not written by this program; expected a checkpoint of train.py{}", path, book)
    if content["format"] > FORMAT:
        raise CheckpointError(
            "{}: written by a newer version of this program (format {}, this one reads up to {}); update the program",
            path,
            content["format"],
            FORMAT,
        )
    missing = [name for name in required if name not in content]
    if missing:
        raise CheckpointError("{}: incomplete, it lacks {}; {}", path, ", ".join(missing), instead)
    return content


def unpickled(path: Path, device: torch.device | str, instead: str) -> Any:
    """Read what torch.save wrote, in its old or new format, without running code in it; `instead` ends each message.

    Raises:
        CheckpointError: the file is damaged, contains code, or would unpack to far more than weights do.
        OSError: it cannot be opened.
    """
    regular(path)
    path.open("rb").close()
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                if sum(part.file_size for part in archive.infolist()) > max(HARMLESS, DENSEST * path.stat().st_size):
                    raise CheckpointError(
                        "{}: would unpack to far more than weights do, so it was not unpacked; {}", path, instead
                    )
                if (broken := archive.testzip()) is not None:  # torch does not verify the checksums
                    raise CheckpointError("{}: damaged, {} is not what was written; {}", path, broken, instead)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about foreign files and the old format
            return torch.load(path, map_location=device, weights_only=True)
    except CheckpointError:
        raise
    except pickle.UnpicklingError as error:  # torch refuses pickles that call anything but its own constructors
        raise CheckpointError(
            "{}: not weights, or it holds Python code or objects and was not loaded; {}", path, instead
        ) from error
    except Exception as error:  # the errors of torch and zipfile for damaged files have no common type
        if out_of_memory(error):
            raise
        raise CheckpointError("{}: damaged or cut short, it cannot be read; {}", path, instead) from error


def _perhaps(path: Path) -> str:
    """Return a suggestion for a missing path, as the end of an error message."""
    if path.name == "released":
        return text("; the released generator is for --init=released")
    runs = {latest.parent.name: latest.parent for latest in RUNS.glob("*/latest.pt")}
    named = {**runs, "released": "released"}
    near = difflib.get_close_matches(path.stem if path.suffix == ".pt" else path.name, named, 1)
    if near:
        return text("; did you mean {}?").format(named[near[0]])
    if runs:
        return text("; the newest run is {}").format(newest_run())
    return text(", or released, the generator that comes with the program")


def checkpoints_in(folder: Path, pattern: str = "[!.]*.pt") -> list[Path]:
    """Return the checkpoints of a run, or those in a folder that match a pattern, newest first."""
    found = []
    for path in folder.glob(pattern):  # hidden files are half-written
        with contextlib.suppress(OSError):  # a run in training deletes old files
            found.append((path.stat().st_mtime_ns, path.name, path))
    return [path for *_, path in sorted(found, reverse=True)]


def find(path: Path, names: tuple[str, ...]) -> Path:
    """Return the checkpoint that a path means: the file itself, or the first of `names` in a run's folder.

    Raises:
        CheckpointError: the folder has none of them.
    """
    if not os.path.isdir(path):
        return path
    found = next((path / name for name in names if os.path.isfile(path / name)), None)
    if found is None:
        some = functools.reduce(text("{} or {}").format, names)
        raise CheckpointError("{}: no {} in this folder; give a run's folder or a .pt file", path, some)
    return found


def best_so_far(run: Path) -> dict[str, Any]:
    """Return the evaluation that made a run's best.pt the best; empty if there is none, or it is damaged."""
    with contextlib.suppress(CheckpointError):
        return _read(run / "best.pt", "cpu", ("evaluation",))["evaluation"]
    return {}


def newest_run(runs: Path = RUNS) -> Path:
    """Return the run whose latest.pt is the newest; raise a CheckpointError if there is none."""
    latest = max(runs.glob("*/latest.pt"), key=lambda p: p.stat().st_mtime_ns, default=None)
    if latest is None:
        raise CheckpointError(
            "--resume: no run with a latest.pt in {}; runs are looked for in the folder where you type; start one "
            "with python train.py",
            runs.resolve(),
        )
    return latest.parent


def load_weights(module: torch.nn.Module, weights: Mapping[str, torch.Tensor], what: str, path: Path) -> None:
    """Load weights of a checkpoint into a network.

    Raises:
        CheckpointError: names or shapes differ; the message gives one difference.
    """
    try:
        module.load_state_dict(weights)
    except (RuntimeError, TypeError, AttributeError) as error:
        if out_of_memory(error):
            raise
        one = " ".join(str(error).splitlines()[-1].split())[:200].rstrip(".")
        raise CheckpointError(
            "{}: its {} is another network ({}); use the options it was trained with", path, text(what), one
        ) from error
