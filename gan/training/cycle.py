"""The learning rates over the training that one budget pays for."""

from __future__ import annotations

import dataclasses

WARM_UP = 0.05
"""Share of a later cycle over which the learning rates rise from 0, as the networks have settled before."""


@dataclasses.dataclass(frozen=True)
class Cycle:
    """The training that one budget pays for; the learning rates reach 0 at its end. Each new budget begins a cycle.

    Args:
        step: the step after which it began.
        seconds: the run's training time when it began; earlier by the time that preparing the run took.
    """

    step: int = 0
    seconds: float = 0.0

    def done(self, seconds: float, allowed: float) -> float:
        """The share of the cycle that is done.

        Args:
            seconds: the run's training time so far.
            allowed: seconds that the cycle may take.
        """
        return (seconds - self.seconds) / max(allowed, 1e-9)

    def rates(self, done: float, anneal: float) -> float:
        """The share of the learning rates to take when the share `done` of the cycle is done.

        At a constant rate the networks circle around each other; as it falls, they settle.

        Args:
            done: see `done`.
            anneal: share of the cycle, its last part, over which the rates fall linearly to 0.
        """
        falling = min(1.0, (1 - done) / anneal) if anneal else 1.0
        rising = min(1.0, done / WARM_UP) if self.step else 1.0
        return max(0.0, min(falling, rising))
