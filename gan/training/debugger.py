"""Stopping in the debugger on request, as in the book: touch a file, and the next step starts in the debugger."""

from __future__ import annotations

import bdb
import contextlib
import signal
import time
from pathlib import Path

from gan.data.batches import Batches
from gan.training.run import Run, TrainingState
from gan.watching.monitor import Monitor

# Context for `breakpoint()` that makes the debugger's `quit`, which exits in Python 3.14, act like `continue`.
leaving = contextlib.suppress(bdb.BdbQuit, SystemExit)


class DebugFile:
    """Watches a file, which need not exist. None watches nothing."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.interrupt = signal.getsignal(signal.SIGINT)
        self.touched = self._time()

    def stop_if_touched(self, run: Run, state: TrainingState, batches: Batches, monitor: Monitor) -> None:
        """Open the debugger if the file was touched. The time in it does not count as training."""
        if self.asks():
            since = time.perf_counter()
            with leaving:
                breakpoint()  # run, state, batches and monitor are in scope
                monitor.say("going on")
            monitor.skip(time.perf_counter() - since)

    def asks(self) -> bool:
        """Return whether the file was touched since the last call, or since watching began.

        Also restore this program's handler of Ctrl-C, since pdb keeps its own after `continue`.
        """
        if self.path is not None and signal.getsignal(signal.SIGINT) is not self.interrupt:
            signal.signal(signal.SIGINT, self.interrupt)
        before, self.touched = self.touched, self._time()
        return self.touched not in (before, None)

    def _time(self) -> int | None:
        try:
            return None if self.path is None else self.path.stat().st_mtime_ns
        except OSError:
            return None
