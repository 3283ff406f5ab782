"""Files that are written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import time
from collections.abc import Iterator
from pathlib import Path

LEFT = ".*.*.[0-9]*.*"  # pattern of the hidden names that `replacing` lends; a process that is killed leaves one behind
# Seconds between attempts to rename on Windows, where nothing can be while somebody, a virus scanner say, reads it.
WAITS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2) if os.name == "nt" else ()


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Lend a hidden name beside `path`: what is written there takes the place of `path` when the block ends well.

    If it does not, `path` is what it was, and nothing is left behind. The name has its suffix. The folder is made.

    Raises:
        OSError: the folder cannot be made, or the name not given.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}{path.suffix}")
    try:
        yield temporary
        move(temporary, path)
    finally:
        with contextlib.suppress(OSError):  # as where the folder is out of reach; must not hide the error
            temporary.unlink()


def move(source: Path, target: Path) -> None:
    """Give a file or a folder another name, in place of the file that has it; an OSError where that cannot be."""
    for wait in WAITS:
        with contextlib.suppress(PermissionError):
            source.replace(target)
            return
        time.sleep(wait)
    source.replace(target)


def write_text(path: Path, text: str) -> None:
    """Write a text in UTF-8; a path in it may hold what is no text, and is escaped.

    Raises:
        OSError: it cannot be written; `path` is what it was.
    """
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")


def as_word(path: Path) -> str:
    """A path as a terminal takes it in a command: quoted where it has blanks or signs that mean something there."""
    text = str(path)
    if re.fullmatch(r"[\w@%+=:,./\\-]+" if os.name == "nt" else r"[\w@%+=:,./-]+", text):
        return text
    return f'"{text}"' if os.name == "nt" else shlex.quote(text)


def printable(name: str) -> str:
    """A file's name without what a line of text cannot hold: tabs, line breaks, what is not Unicode."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in name)
