"""What comes from outside, by hypothesis: anything is read, or refused in a line; and the fuzzers find planted crashes.

For longer, and guided by which lines an input reaches: tests/fuzz/guided.py.
"""

from __future__ import annotations

import contextlib
import resource
import time
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import HealthCheck, Phase
from targets import TARGETS, PlantedError, Target

pytestmark = pytest.mark.filterwarnings("ignore:Generating overly large repr")
SECONDS, LEAST = 3.5, 20  # a target: so long, but at least so many inputs
MEMORY = 2**30  # bytes that reading may add at its peak


class _OverError(BaseException):
    """The time is over. Not an error that hypothesis would look at."""


def fuzz(target: Target, folder: Path, seconds: float) -> None:
    """Read inputs for so long."""
    ends, number = time.monotonic() + seconds, 0

    def read(given: Any) -> None:
        nonlocal number
        number += 1
        if number > LEAST and time.monotonic() > ends:
            raise _OverError
        target.check(given, folder)

    settings = hypothesis.settings(
        max_examples=10**6,
        deadline=10_000,  # milliseconds an input
        database=None,
        phases=(Phase.generate,),
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    )
    with contextlib.suppress(_OverError):
        hypothesis.seed(0)(settings(hypothesis.given(target.inputs)(read)))()


@pytest.mark.parametrize("name", TARGETS)
def test_anything_is_read_or_refused_in_a_line(name: str, tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    fuzz(TARGETS[name], tmp_path / "a", SECONDS)
    assert 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) < MEMORY


@pytest.mark.parametrize("name", TARGETS)
def test_a_planted_crash_is_found(name: str, tmp_path: Path) -> None:
    with TARGETS[name].with_planted_crash(), pytest.raises(PlantedError):
        fuzz(TARGETS[name], tmp_path / "a", 300)
