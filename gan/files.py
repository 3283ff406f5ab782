"""Files that are written completely or not at all."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import threading
import time
from collections.abc import Iterator
from pathlib import Path

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
        with contextlib.suppress(OSError):  # for example if the folder is unreachable; must not hide the error
            temporary.unlink()


def move(source: Path, target: Path) -> None:
    """Rename a file or folder, replacing a file of that name; raise an OSError if it cannot be renamed."""
    for wait in WAITS:
        with contextlib.suppress(PermissionError):
            source.replace(target)
            return
        time.sleep(wait)
    source.replace(target)


def write_text(path: Path, text: str) -> None:
    """Write a text in UTF-8; characters that are not Unicode, as in some paths, are escaped.

    Raises:
        OSError: it cannot be written; `path` is unchanged.
    """
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")


def as_word(path: Path | str) -> str:
    """Return a path or other text as one word of a shell command, quoted if it has blanks or special characters."""
    text = str(path)
    if re.fullmatch(r"[\w@%+=:,./\\-]+" if os.name == "nt" else r"[\w@%+=:,./-]+", text):
        return text
    return f'"{text}"' if os.name == "nt" else shlex.quote(text)


def printable(name: str) -> str:
    """Escape tabs, line breaks and unprintable characters in a file's name."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in name)
