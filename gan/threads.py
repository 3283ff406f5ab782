"""Torch's number of threads on the CPU, adapted to how busy other programs keep it."""

import math
import os
import sys
import time
from collections.abc import Callable

import psutil
import torch

from gan import processors
from gan.language import text

FIRST_SECONDS, SECONDS = 0.3, 4.0  # between looks at the machine, at first and later
FULL = 0.95  # share of the processors in use at which programs wait for one another
SET_BY_USER = "OMP_NUM_THREADS", "MKL_NUM_THREADS"  # torchrun sets the first


class Threads:
    """Sets torch's number of threads by how busy other programs keep the processors.

    All threads of an operation wait for the last one, so one that shares its processor slows down all: on two
    processors, beside one busy program, two threads reach a third of their speed, one thread six tenths of it
    (benchmarks/busy.py).

    Args:
        most: number of threads on an idle machine.
        processors: numbers of the processors that this process may use.
    """

    def __init__(self, most: int, processors: list[int]) -> None:
        self.most = self.number = self.proposed = self.agreed = most
        self.processors, self.demand, self.fixed, self.told = processors, 0.0, False, False
        self.looked_at, self.own, self.due, self.looks = 0.0, 0.0, 0.0, -1

    def adapt(self, log: Callable[[str], object] | None = None) -> None:
        """Set the number of threads for the calling thread; look at the machine first if that is due.

        To be called between pieces of work. The first look decides alone. Later, two in a row must agree. `log` is told
        when other programs first take processors that this one would use.
        """
        now = time.perf_counter()
        if self.most > 1 and now >= self.due:
            self._look(now)
        if torch.get_num_threads() != self.number:  # each thread of Python has its own number
            torch.set_num_threads(self.number)
        if log is not None and self.agreed < self.most and not self.told:
            self.told = True
            therefore = text("training takes as many threads as they leave free")
            if self.fixed:
                therefore = text(
                    "this run keeps its {} threads, on which its exact results depend, and is slow; to go on with "
                    "fewer: stop it, set OMP_NUM_THREADS=1, --resume"
                ).format(self.number)
            line = text("other programs would keep {:.1f} processors busy, and there are {}; {}")
            log(line.format(self.demand, len(self.processors), therefore))

    def fix(self) -> None:
        """Keep the number of threads of an idle machine from now on: the last digits of training depend on it."""
        self.number, self.fixed = self.most, True

    def crowded(self) -> bool:
        """Return whether other programs left fewer processors than there are threads, at the last look."""
        return self.demand > len(self.processors) - self.most + 0.5

    def _look(self, now: float) -> None:
        used, own = _used(), sum(os.times()[:4])  # with processes that this one started, if they have ended
        if self.looks >= 0:
            total = sum(used[n] for n in self.processors if n < len(used))
            of_own = (own - self.own) / (now - self.looked_at)
            self.demand = demand(total, of_own, self.number, len(self.processors))
            proposed = choose(self.most, len(self.processors), self.demand)
            if proposed == self.proposed or self.looks == 0:
                self.agreed = proposed
                self.number = self.most if self.fixed else proposed
            self.proposed = proposed
        self.looked_at, self.own, self.looks = now, own, self.looks + 1
        self.due = now + (SECONDS if self.looks else FIRST_SECONDS)


def _used() -> list[float]:
    """Return the share of each processor that was in use since the last call, without that of nicer programs."""
    nicer = sys.platform != "win32" and os.nice(0) <= 0
    free = "idle", "iowait", *(["nice"] if nicer else [])
    shares = list[float]()
    for times in psutil.cpu_times_percent(percpu=True):
        # Within a second, psutil's percentages do not add up to 100. Guests' time is also part of user and nice.
        whole = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
        shares.append(1 - sum(getattr(times, kind, 0.0) for kind in free) / whole if whole else 0.0)
    return shares


def demand(total: float, own: float, threads: int, processors: int) -> float:
    """Estimate how many processors other programs would use if this one did nothing.

    Where all processors are in use, others wait as this process does: each thread gets the same share of its wish.

    Args:
        total: processors in use.
        own: those that this process uses, with this number of threads that would each use one.
        threads: their number.
        processors: number of processors there are.
    """
    others = max(0.0, total - own)
    return others if total < FULL * processors else others * max(1.0, threads / max(own, 0.01))


def choose(most: int, processors: int, demand: float) -> int:
    """Choose the fastest number of threads, up to `most`, for this demand of other programs.

    So many threads need as many processors of their own, and are slower by the part of one that they lack.
    """
    lacking = {n: max(0.0, demand - (processors - n)) for n in range(1, most + 1)}
    return max(lacking, key=lambda n: n * (1 - lacking[n]))


def _of_this_process() -> Threads:
    may_use = sorted(os.sched_getaffinity(0)) if sys.platform == "linux" else list(range(psutil.cpu_count() or 1))
    threads = Threads(max(1, min(torch.get_num_threads(), processors.number())), may_use)
    if any(name in os.environ for name in SET_BY_USER):
        threads.most = threads.number = torch.get_num_threads()
        threads.due = math.inf
    return threads


THREADS = _of_this_process()
THREADS.adapt()  # the first look begins here, while other modules are imported
adapt, fix, crowded = THREADS.adapt, THREADS.fix, THREADS.crowded
