"""The time budget of a run, and the learning rates over it."""

import math

from config import TrainConfig
from gan.device import skipping
from gan.language import text
from gan.quality.evaluation import Evaluator
from gan.training.run import Run, TrainingState
from gan.watching.monitor import Monitor

MOST_SLOWER = 5.0  # the most time reserved for the last evaluation, as a multiple of what an earlier one took


class Budget:
    """Measures how much of a run's budget is spent, by the clock of the first process.

    The budget covers the state's current cycle. A preview and a save at its end take `closing` seconds. If the steps
    have become slower since an evaluation was timed, for instance beside other programs, so will be the last one.
    """

    def __init__(
        self, run: Run, state: TrainingState, monitor: Monitor, evaluator: Evaluator | None, closing: float
    ) -> None:
        self.run, self.state, self.monitor, self.evaluator, self.closing = run, state, monitor, evaluator, closing
        self.timed, self.step_then = math.nan, math.nan  # an evaluation's seconds, and a step's at that time

    def spent(self) -> float:
        """Return the share spent, with the last preview, save and evaluation reserved; 0 without a budget."""
        config, evaluator, reserved = self.run.config, self.evaluator, self.closing
        if config.budget is None or not self.run.ranks.first:
            return 0.0
        if evaluator is not None and evaluated_last(config, evaluator):
            reserved = (reserved + evaluator.cost()) * self._slower(evaluator.cost())
        spent = self.monitor.seconds - self.state.cycle.seconds
        return spent / (60 * config.budget - min(reserved, 30 * config.budget))

    def _slower(self, timed: float) -> float:
        """Return how many times as long a step takes as when an evaluation took `timed` seconds, within limits."""
        step = self.monitor.usual.get("step", math.nan)
        if timed != self.timed or math.isnan(self.step_then):
            self.timed, self.step_then = timed, step
        return 1.0 if math.isnan(step) else min(max(step / self.step_then, 0.2), MOST_SLOWER)

    def rates(self) -> float:
        """Return the factor to apply to the learning rates in this step, the same in all processes."""
        config, ranks = self.run.config, self.run.ranks
        if config.budget is None:
            return 1.0
        return ranks.all_reduce_max(self.state.cycle.rates(self.spent(), config.anneal) if ranks.first else 0.0)[0]


def evaluated_last(config: TrainConfig, evaluator: Evaluator) -> bool:
    """Return whether a run is evaluated at its end, however much time evaluations have taken already.

    The last evaluation should not be an old one. A budget reserves up to half of its minutes for a further evaluation,
    and up to a fifth for a first one. A run without the memory to estimate how long one takes makes none.
    """
    if config.budget is None:
        return evaluator.best is not None
    cost = math.inf
    with skipping(text("the estimate of a measurement")):
        cost = evaluator.cost()
    if cost == math.inf:
        evaluator.seconds = cost
    return cost <= (30 if evaluator.best is not None else 12) * config.budget
