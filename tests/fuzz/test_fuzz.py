"""What comes from outside, by hypothesis: anything is read, or refused in a line; and the fuzzers find planted crashes.

For longer, and guided by which lines an input reaches: tests/fuzz/guided.py.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import HealthCheck, Phase
from machine import little_memory
from targets import TARGETS, PlantedError, Target

pytestmark = pytest.mark.filterwarnings("ignore:Generating overly large repr")
INPUTS, MORE = 400, 4000  # a target, MORE with marker `torture`; no time: a fast machine reads the same as a slow one
PLANTED = 100_000  # at most, until a planted crash is found
SECONDS = 10  # of the processor, that an input may take
MEMORY = 2**30  # bytes that reading may add at its peak


def fuzz(target: Target, folder: Path, inputs: int) -> None:
    """Read so many inputs, always the same ones."""

    def read(given: Any) -> None:
        before = time.process_time()  # a busy machine does not add to it
        target.check(given, folder)
        assert time.process_time() - before < SECONDS

    settings = hypothesis.settings(
        max_examples=inputs,
        deadline=None,
        database=None,
        phases=(Phase.generate,),
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    )
    hypothesis.seed(0)(settings(hypothesis.given(target.inputs)(read)))()


@pytest.mark.parametrize("inputs", [INPUTS, pytest.param(MORE, marks=pytest.mark.torture)])
@pytest.mark.parametrize("name", TARGETS)
def test_anything_is_read_or_refused_in_a_line(name: str, inputs: int, tmp_path: Path) -> None:
    with little_memory(MEMORY):
        fuzz(TARGETS[name], tmp_path / "a", inputs)


@pytest.mark.parametrize("name", TARGETS)
def test_a_planted_crash_is_found(name: str, tmp_path: Path) -> None:
    with TARGETS[name].with_planted_crash(), pytest.raises(PlantedError):
        fuzz(TARGETS[name], tmp_path / "a", PLANTED)
