"""Batches that do not fit into memory go through the networks in parts."""

from __future__ import annotations

from config import TrainConfig
from gan.device import drop_unfinished, free_memory, out_of_memory
from gan.training.losses import COUPLED
from gan.training.ranks import Ranks
from gan.training.run import Run, TrainingState
from gan.training.step import Half, Step
from gan.watching.monitor import Monitor


class Memory:
    """Divides batches into parts, into more of them each time that memory runs out.

    Args:
        run: the run.
        state: its state.
        monitor: says when batches are divided.
    """

    def __init__(self, run: Run, state: TrainingState, monitor: Monitor) -> None:
        self.run, self.state, self.monitor, self.parts = run, state, monitor, 1

    def in_parts(self, half: Half, step: Step) -> None:
        """Take half a step on the whole batch, or, once memory has run out, on parts of it in turn."""
        n, device = self.run.config.batch_size, self.run.device
        while True:
            try:
                return half(step, equal_parts(n // self.run.ranks.world, self.parts))
            except (RuntimeError, MemoryError) as error:
                if not out_of_memory(error) or not may_split(self.run.config, self.run.ranks, 2 * self.parts):
                    raise
            self.parts *= 2
            free_memory(device)
            for optimizer in (self.state.g_optimizer, self.state.d_optimizer):
                drop_unfinished(optimizer)
            self.monitor.say(
                f"out of memory: from step {self.state.step} on each batch of {n} goes through the networks in "
                f"{self.parts} parts, which is slower; BatchNorm sees one part at a time, nothing else changes"
            )


def equal_parts(n: int, parts: int) -> list[slice]:
    """Divide `n` into parts that are as equal as possible."""
    return [slice(n * i // parts, n * (i + 1) // parts) for i in range(parts)]


def may_split(config: TrainConfig, ranks: Ranks, parts: int) -> bool:
    """Return True where a batch in this many parts gives the same step."""
    return ranks.world == 1 and config.loss not in COUPLED and parts <= config.batch_size
