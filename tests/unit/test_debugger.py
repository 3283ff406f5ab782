"""When a touched file asks for the debugger, and how it is left."""

import bdb
import os
import signal
from pathlib import Path

import pytest

from gan.training.debugger import DebugFile, leaving


def touch(path: Path, time: int) -> None:
    path.touch()
    os.utime(path, ns=(time, time))


def test_each_touch_asks_once(tmp_path: Path) -> None:
    path = tmp_path / "debug"
    watched = DebugFile(path)
    assert not watched.asks()
    for time in (1_000, 2_000):
        touch(path, time)
        assert watched.asks()
        assert not watched.asks()


def test_a_file_from_before_does_not_ask_nor_one_that_goes(tmp_path: Path) -> None:
    path = tmp_path / "debug"
    touch(path, 1_000)
    watched = DebugFile(path)
    assert not watched.asks()
    path.unlink()
    assert not watched.asks()
    touch(path, 1_000)
    assert watched.asks()


def test_no_file_never_asks() -> None:
    assert not DebugFile(None).asks()


@pytest.mark.parametrize("end", [bdb.BdbQuit, SystemExit])
def test_quitting_the_debugger_goes_on(end: type[BaseException]) -> None:
    for _ in range(2):
        with leaving:
            raise end


def test_other_errors_are_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError), leaving:
        raise ZeroDivisionError


def test_ctrl_c_is_given_back(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT)
    watched = DebugFile(tmp_path / "debug")
    try:
        signal.signal(signal.SIGINT, lambda *_: None)  # as pdb does
        watched.asks()
        assert signal.getsignal(signal.SIGINT) is before
    finally:
        signal.signal(signal.SIGINT, before)
