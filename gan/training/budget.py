"""The minutes that a run may take, and the learning rates along them."""

from __future__ import annotations

from config import TrainConfig
from gan.quality.evaluation import Evaluator
from gan.training.run import Run, TrainingState
from gan.watching.monitor import Monitor


class Budget:
    """Tells how much of a run's budget, which pays for its state's cycle, is spent. The first process has the clock.

    A preview and a save at its end take `closing` seconds.
    """

    def __init__(
        self, run: Run, state: TrainingState, monitor: Monitor, evaluator: Evaluator | None, closing: float
    ) -> None:
        self.run, self.state, self.monitor, self.evaluator, self.closing = run, state, monitor, evaluator, closing

    def spent(self) -> float:
        """The share that is spent; a preview, a save and an evaluation at its end belong to it. Without a budget 0."""
        config, evaluator, reserved = self.run.config, self.evaluator, self.closing
        if config.budget is None or not self.run.ranks.first:
            return 0.0
        if evaluator is not None and evaluated_last(config, evaluator):
            reserved += evaluator.cost()
        return self.state.cycle.done(self.monitor.seconds, 60 * config.budget - min(reserved, 30 * config.budget))

    def rates(self) -> float:
        """The share of the learning rates to take in this step, the same in all processes."""
        config, ranks = self.run.config, self.run.ranks
        if config.budget is None:
            return 1.0
        return ranks.all_reduce_max(self.state.cycle.rates(self.spent(), config.anneal) if ranks.first else 0.0)[0]


def evaluated_last(config: TrainConfig, evaluator: Evaluator) -> bool:
    """Return True where a finished run is evaluated at its end, beyond the share of the time that evaluations have.

    An earlier evaluation must not be the last word; a budget keeps up to half of its minutes for another one, and up to
    a fifth for a first one.
    """
    if config.budget is None:
        return evaluator.best is not None
    return evaluator.cost() <= (30 if evaluator.best is not None else 12) * config.budget
