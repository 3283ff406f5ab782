"""Splitting batches that do not fit into memory."""

from __future__ import annotations

from gan.device import free_memory, out_of_memory
from gan.training.losses import COUPLED
from gan.training.step import Half, Step


class Memory:
    """Splits batches into parts, doubling their number each time that memory runs out, and says so."""

    parts = 1

    def in_parts(self, half: Half, step: Step) -> None:
        """Take half a step on the whole batch or, once memory has run out, on its parts in turn."""
        run, state, n, mine = step.run, step.state, step.run.config.batch_size, len(step.real)
        coupled = run.ranks.world > 1 or run.config.loss in COUPLED  # else the losses of parts add up
        while True:
            parts = [slice(mine * i // self.parts, mine * (i + 1) // self.parts) for i in range(self.parts)]
            try:
                return half(step, parts)
            except (RuntimeError, MemoryError) as error:
                if not out_of_memory(error) or coupled or 2 * self.parts > n:
                    raise
            self.parts *= 2
            free_memory(run.device)
            for kept in (state.g_optimizer.state, state.d_optimizer.state):
                for parameter in [parameter for parameter, own in kept.items() if "exp_avg_sq" not in own]:
                    del kept[parameter]  # left incomplete by a first step; the next one creates it again
            step.monitor.say(
                f"out of memory: from step {state.step} on each batch of {n} goes through the networks in "
                f"{self.parts} parts, which is slower; BatchNorm sees one part at a time, nothing else changes"
            )
