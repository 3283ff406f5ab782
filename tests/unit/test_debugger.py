"""When the debug file opens the debugger, and that Ctrl-C and the clock are the run's own again afterwards."""

import signal
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from gan.training.debugger import DebugFile


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """Stands for the debugger."""
    hook = Mock()
    monkeypatch.setattr(sys, "breakpointhook", hook)
    return hook


def step(watched: DebugFile, monitor: Any = None) -> None:
    parts: Any = Mock()
    watched.stop_if_there(parts, parts, parts, monitor or parts)


def test_the_debugger_opens_at_each_step_while_the_file_exists(tmp_path: Path, opened: Mock) -> None:
    path, monitor = tmp_path / "debug", Mock()
    watched = DebugFile(path)
    step(watched, monitor)
    assert (opened.call_count, monitor.skip.call_count) == (0, 0)
    path.touch()
    for _ in range(2):
        step(watched, monitor)
    assert (opened.call_count, monitor.skip.call_count) == (2, 2)
    path.unlink()
    step(watched, monitor)
    assert opened.call_count == 2


def test_no_file_never_opens_it(opened: Mock) -> None:
    step(DebugFile(None))
    assert not opened.called


def test_ctrl_c_is_given_back(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT)
    watched = DebugFile(tmp_path / "debug")
    try:
        signal.signal(signal.SIGINT, lambda *_: None)  # as pdb does
        step(watched)
        assert signal.getsignal(signal.SIGINT) is before
    finally:
        signal.signal(signal.SIGINT, before)
