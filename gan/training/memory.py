"""Splitting batches that do not fit into memory."""

from __future__ import annotations

from gan.device import drop_unfinished, free_memory, out_of_memory
from gan.training.losses import COUPLED
from gan.training.run import Run, TrainingState
from gan.training.step import Half, Step
from gan.watching.monitor import Monitor


class Memory:
    """Splits batches into parts, doubling their number each time that memory runs out, and says so."""

    def __init__(self, run: Run, state: TrainingState, monitor: Monitor) -> None:
        self.run, self.state, self.monitor, self.parts = run, state, monitor, 1

    def in_parts(self, half: Half, step: Step) -> None:
        """Take half a step on the whole batch or, once memory has run out, on its parts in turn."""
        n, world, coupled = self.run.config.batch_size, self.run.ranks.world, self.run.config.loss in COUPLED
        while True:
            try:
                mine, parts = n // world, self.parts
                return half(step, [slice(mine * i // parts, mine * (i + 1) // parts) for i in range(parts)])
            except (RuntimeError, MemoryError) as error:
                if not out_of_memory(error) or world > 1 or coupled or 2 * self.parts > n:  # losses must add up
                    raise
            self.parts *= 2
            free_memory(self.run.device)
            for optimizer in (self.state.g_optimizer, self.state.d_optimizer):
                drop_unfinished(optimizer)
            self.monitor.say(
                f"out of memory: from step {self.state.step} on each batch of {n} goes through the networks in "
                f"{self.parts} parts, which is slower; BatchNorm sees one part at a time, nothing else changes"
            )
