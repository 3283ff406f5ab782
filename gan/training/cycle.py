"""The learning rates over the training that one budget pays for."""

from __future__ import annotations

import dataclasses

WARM_UP = 0.05  # share of a later cycle over which the learning rates rise from 0, as the networks have settled before


@dataclasses.dataclass(frozen=True)
class Cycle:
    """The training that one budget pays for; the learning rates reach 0 at its end. Each new budget begins a cycle."""

    step: int = 0  # after which it began
    seconds: float = 0.0  # the run's training time when it began; earlier by the time that preparing the run took

    def done(self, seconds: float, allowed: float) -> float:
        """The share that is done after `seconds` of the run's training, where the cycle may take `allowed` seconds."""
        return (seconds - self.seconds) / max(allowed, 1e-9)

    def rates(self, done: float, anneal: float) -> float:
        """The share of the learning rates to take when the share `done` of the cycle is done.

        At a constant rate the networks circle around each other; as it falls, they settle. It falls linearly to 0 over
        the last part of the cycle, the share `anneal`.
        """
        falling = min(1.0, (1 - done) / anneal) if anneal else 1.0
        rising = min(1.0, done / WARM_UP) if self.step else 1.0
        return max(0.0, min(falling, rising))
