"""Stopping in the debugger on a wish from outside, as the book does: touch a file, and the next step begins there."""

from __future__ import annotations

import bdb
import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path


class DebugFile:
    """Watches a file.

    Args:
        path: the file, which need not exist; None watches nothing.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.touched = self._time()

    def asks(self) -> bool:
        """Whether the file was touched since the last call, or, in the first one, since it is watched."""
        before, self.touched = self.touched, self._time()
        return self.touched not in (before, None)

    def _time(self) -> int | None:
        try:
            return None if self.path is None else self.path.stat().st_mtime_ns
        except OSError:
            return None


@contextlib.contextmanager
def leaving() -> Iterator[None]:
    """Around a `breakpoint()`: the debugger's `quit` goes on as its `continue` does, and Ctrl-C means what it did.

    pdb keeps Ctrl-C to itself after `continue`; a run is ended with it.
    """
    interrupt = signal.getsignal(signal.SIGINT)
    try:
        yield
    except bdb.BdbQuit:
        pass
    finally:
        signal.signal(signal.SIGINT, interrupt)
