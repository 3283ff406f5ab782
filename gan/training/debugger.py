"""Stopping in the debugger on request, as in the book: while a file exists, each step begins in the debugger."""

from __future__ import annotations

import signal
import time
from pathlib import Path

from gan.data.batches import Batches
from gan.training.run import Run, TrainingState
from gan.watching.monitor import Monitor


class DebugFile:
    """Opens the debugger while a file exists; None is no file. Ctrl-C is this program's again at the next step."""

    def __init__(self, path: Path | None) -> None:
        self.path, self.interrupt = path, signal.getsignal(signal.SIGINT)

    def stop_if_there(self, run: Run, state: TrainingState, batches: Batches, monitor: Monitor) -> None:
        """Open the debugger if the file exists. The time in it does not count as training."""
        if self.path is not None:
            signal.signal(signal.SIGINT, self.interrupt)  # pdb keeps its own handler after `continue`
            if self.path.exists():
                since = time.perf_counter()
                breakpoint()  # run, state, batches and monitor are in scope
                monitor.skip(time.perf_counter() - since)
