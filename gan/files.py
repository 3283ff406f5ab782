"""Files and folders that are written completely or not at all."""

import contextlib
import errno
import glob
import os
import re
import secrets
import shlex
import shutil
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from filelock import FileLock

from gan.language import text

LEFT = ".*.*.[0-9]*.*"  # pattern of the hidden names of `replacing`, which a killed process leaves behind
# Seconds between attempts to rename on Windows, which fail while another program, say a virus scanner, reads the file.
WAITS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2) if os.name == "nt" else ()


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Provide a hidden name beside `path`; the file written there replaces `path` when the block succeeds.

    If the block fails, `path` is unchanged and nothing is left behind. The hidden name has the suffix of `path`. The
    folder is created.

    Raises:
        OSError: the folder cannot be created, or the file not renamed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}{path.suffix}")
    try:
        yield temporary
        move(temporary, path)
    finally:
        _unlink(temporary)


@contextlib.contextmanager
def replacing_folder(folder: Path, check: Callable[[Path], None] = lambda old: None) -> Iterator[Path]:
    """Provide a hidden folder beside `folder`; it takes the place of `folder` when the block succeeds.

    If the block fails, `folder` is unchanged and nothing is left behind. After a kill, `tidy` sees to that. The folder
    above is created.

    Args:
        folder: the folder to write.
        check: called with the old folder once nobody else finds it any more; if it raises, the old folder stays.

    Raises:
        OSError: a folder cannot be created or renamed.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder_beside(folder) as place:
        (new := place / "new").mkdir()
        yield new
        try:
            if folder.exists():
                move(folder, place / "old")
                check(place / "old")
            move(new, folder)
        except BaseException:
            if (place / "old").exists() and not folder.exists():
                move(place / "old", folder)
            raise


@contextlib.contextmanager
def folder_beside(folder: Path) -> Iterator[Path]:
    """Provide a hidden folder beside `folder`, and delete it afterwards. First delete those of killed processes.

    Raises:
        OSError: it cannot be created.
    """
    tidy(folder)
    place = folder.with_name(f".{folder.name}-{secrets.token_hex(4)}.tmp")
    lock = FileLock(place.with_suffix(".lock"), timeout=60)  # says that the process lives
    with contextlib.ExitStack() as stack:
        stack.callback(_unlink, place.with_suffix(".lock"))
        stack.callback(lock.release)
        with contextlib.suppress(OSError, NotImplementedError):  # some network drives have no locks
            lock.acquire()
        place.mkdir()
        stack.callback(shutil.rmtree, place, ignore_errors=True)
        yield place


def tidy(folder: Path) -> None:
    """Delete what killed processes left beside `folder`; if one had just moved `folder` away, move it back."""
    for path in folder.parent.glob(f".{glob.escape(folder.name)}-{'[0-9a-f]' * 8}.lock"):
        with contextlib.suppress(OSError, NotImplementedError):  # its process lives, or nothing may be deleted
            with FileLock(path, blocking=False):
                place = path.with_suffix(".tmp")
                if (place / "old").is_dir() and not folder.exists():
                    move(place / "old", folder)
                if place.exists():
                    shutil.rmtree(place)
            _unlink(path)


def _unlink(path: Path) -> None:
    with contextlib.suppress(OSError):  # for example if the folder is unreachable; must not hide another error
        path.unlink()


def move(source: Path, target: Path) -> None:
    """Rename a file or folder, replacing a file of that name; raise an OSError if it cannot be renamed."""
    for wait in WAITS:
        with contextlib.suppress(PermissionError):
            source.replace(target)
            return
        time.sleep(wait)
    source.replace(target)


def regular(path: Path) -> None:
    """Raise an OSError if a path is a device or a pipe, which could be read forever."""
    if not (stat.S_ISREG(mode := os.stat(path).st_mode) or stat.S_ISDIR(mode)):
        raise OSError(errno.EINVAL, text("a device or a pipe, not a file or a folder"), str(path))


def write_text(path: Path, content: str) -> None:
    """Write a text in UTF-8; characters that are not Unicode, as in some paths, are escaped.

    Raises:
        OSError: it cannot be written; `path` is unchanged.
    """
    with replacing(path) as temporary:
        temporary.write_text(content, encoding="utf-8", errors="backslashreplace")


def as_word(path: Path | str) -> str:
    """Return a path or other text as one word of a shell command, quoted if it has blanks or special characters."""
    word = str(path)
    if re.fullmatch(r"[\w@%+=:,./\\-]+" if os.name == "nt" else r"[\w@%+=:,./-]+", word):
        return word
    return f'"{word}"' if os.name == "nt" else shlex.quote(word)


def printable(name: str) -> str:
    """Escape tabs, line breaks and unprintable characters in a file's name."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in name)
