"""The learning-rate schedule over one budget."""

from __future__ import annotations

import dataclasses

WARM_UP = 0.05  # share of a later cycle over which the learning rates rise from 0, as the networks had settled before


@dataclasses.dataclass(frozen=True)
class Cycle:
    """The training that one budget covers; each new budget begins a new cycle."""

    step: int = 0  # the step after which it began
    seconds: float = 0.0  # the run's training time when it began, minus the time that preparing the run took

    def done(self, seconds: float, allowed: float) -> float:
        """Return the share done after `seconds` of the run's training, if the cycle may take `allowed` seconds."""
        return (seconds - self.seconds) / max(allowed, 1e-9)

    def rates(self, done: float, anneal: float) -> float:
        """Return the factor to apply to the learning rates when the share `done` of the cycle is done.

        At a constant rate the networks circle around each other; as the rate falls, they settle. It falls linearly to 0
        over the last part of the cycle, the share `anneal`.
        """
        falling = min(1.0, (1 - done) / anneal) if anneal else 1.0
        rising = min(1.0, done / WARM_UP) if self.step else 1.0
        return max(0.0, min(falling, rising))
