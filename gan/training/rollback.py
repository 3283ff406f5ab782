"""Rolling a run back after a loss that is not finite."""

from config import ConfigError
from gan import checkpoint
from gan.language import text
from gan.training.run import Run, TrainingState
from gan.watching.monitor import Monitor

RETRIES = 3  # most rollbacks before the run ends


class RollBack:
    """Rolls a run back to its last good state and continues with new random numbers, a limited number of times."""

    def __init__(self, run: Run, state: TrainingState, monitor: Monitor) -> None:
        self.run, self.state, self.monitor = run, state, monitor
        self.failed, self.attempts = 0, 0  # the last step that failed, and the number of failures since a later save

    def back_if(self, failed: bool) -> bool:
        """Roll back if the step failed in any process; return whether it did.

        Raises:
            ConfigError: it has failed too often, or no state was saved.
        """
        run, state, ranks = self.run, self.state, self.run.ranks
        if not any(ranks.all_reduce_max(failed)):
            return False
        self.failed, self.attempts, cycle, retries = state.step, self.attempts + 1, state.cycle, state.retries + 1
        rates = text("--lr1 ({:g}) and --lr2 ({:g})").format(run.config.lr1, run.config.lr2)
        if not any(ranks.all_reduce_max(ranks.first and run.latest.is_file())):
            raise ConfigError(
                "the loss was not a number at step {}, and no earlier state could be saved; make room on the disk "
                "of {}, lower {} and start again",
                self.failed,
                run.folder,
                rates,
            )
        if self.attempts > RETRIES:
            raise ConfigError(
                "the loss was not a number at step {}, after {} attempts from the last good state; lower {} and "
                "start again; {} is usable",
                self.failed,
                RETRIES,
                rates,
                run.latest,
            )
        state.load(ranks.broadcast(checkpoint.load(run.latest) if ranks.first else {}), run.latest)
        state.cycle, state.retries = cycle, retries
        self.monitor.rewind(state.step)
        line = text("the loss was not a number at step {}: back to step {}, attempt {} of {} with other random numbers")
        self.monitor.log(line.format(self.failed, state.step, self.attempts, RETRIES))
        return True

    def saved(self, good: bool) -> None:
        """Reset the attempts if a good state was saved after the last failure. `good` is False if saving failed."""
        if self.attempts and self.state.step > self.failed and any(self.run.ranks.all_reduce_max(good)):
            self.attempts = 0
