"""What a run says of itself: rows of the log, previews within their share of the time, and no harm from a full disk."""

import io
import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from gan import monitor
from gan.monitor import QUIET_SECONDS, SIDE_SHARE, Monitor

FACES = np.zeros((4, 8, 8, 3), np.uint8)


class Clock:
    """Stands for `time`: stands nearly still, and goes on when told to."""

    now = 1000.0

    def perf_counter(self) -> float:
        self.now += 1e-9
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(monitor, "time", clock)
    return clock


Opening = Callable[..., Monitor]


@pytest.fixture
def opened(tmp_path: Path, clock: Clock) -> Iterator[Opening]:
    """Open a monitor of 100 faces and 10 epochs whose run is tmp_path."""
    monitors: list[Monitor] = []

    def opening(**options: Any) -> Monitor:
        monitors.append(Monitor(tmp_path, tmp_path / "samples", faces=100, max_epoch=10, **options))
        return monitors[-1]

    yield opening
    for one in monitors:
        one.close()


def rows(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines()]


def step(watch: Monitor, number: int, loss: float = 1.0) -> bool:
    watch.add(d_loss=torch.tensor(loss))
    return watch.row(number, 64 * number)


@contextmanager
def full_disk(room: int) -> Iterator[None]:
    """No file may grow beyond `room` bytes."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_row_is_flat_and_holds_the_means_since_the_last(tmp_path: Path, clock: Clock, opened: Opening) -> None:
    watch = opened(seconds=100.0)
    names = "d_loss g_loss real_logit fake_logit".split()
    for value in (1.0, 2.0):
        watch.add(**{name: torch.tensor(value + i) for i, name in enumerate(names)})
    watch.add(r1_penalty=torch.tensor(5.0, requires_grad=True))  # not in every step
    watch.data_seconds += 1.0
    clock.now += 4.0
    assert watch.row(2, 128)
    watch.add(d_loss=torch.tensor(7.0))
    clock.now += 2.0
    assert watch.row(3, 192)
    first = {"step": 2, "images_seen": 128, "seconds": 104.0, "d_loss": 1.5, "g_loss": 2.5, "real_logit": 3.5}
    first |= {"fake_logit": 4.5, "r1_penalty": 5.0, "images_per_second": 32.0, "data_wait": 0.25}
    second = {"step": 3, "images_seen": 192, "seconds": 106.0, "d_loss": 7.0, "images_per_second": 32.0, "data_wait": 0}
    assert rows(tmp_path) == [first, second]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_loss_that_is_no_number_is_reported_and_not_written(tmp_path: Path, opened: Opening, bad: float) -> None:
    watch = opened()
    assert step(watch, 1)
    watch.add(d_loss=torch.tensor(0.5), g_loss=torch.tensor(1.0))
    watch.add(d_loss=torch.tensor(bad), g_loss=torch.tensor(1.0))
    watch.add(d_loss=torch.tensor(0.5), g_loss=torch.tensor(1.0))
    assert not watch.row(4, 256)
    assert [row["step"] for row in rows(tmp_path)] == [1]


def test_rewinding_drops_newer_rows_and_what_was_collected(tmp_path: Path, opened: Opening) -> None:
    watch = opened()
    for number in range(1, 6):
        step(watch, number)
    before = (tmp_path / "log.jsonl").read_text()
    watch.add(d_loss=torch.tensor(math.nan))
    watch.rewind(3)
    assert (tmp_path / "log.jsonl").read_text() == "".join(before.splitlines(keepends=True)[:3])
    assert step(watch, 4, 9.0)
    assert [(row["step"], row["d_loss"]) for row in rows(tmp_path)][2:] == [(3, 1.0), (4, 9.0)]


def test_going_on_drops_rows_beyond_the_checkpoint(tmp_path: Path, opened: Opening) -> None:
    first = opened()
    for number in range(1, 6):
        step(first, number)
    step(opened(step=4), 5, 2.0)
    assert [(row["step"], row["d_loss"]) for row in rows(tmp_path)][3:] == [(4, 1.0), (5, 2.0)]


@pytest.mark.parametrize("torn", ['{"step": 2, "d_lo', "{", "2", "null", '{"d_loss": 1}', "\0\0\0"])
def test_going_on_drops_a_line_cut_short_by_a_crash(tmp_path: Path, opened: Opening, torn: str) -> None:
    (tmp_path / "log.jsonl").write_text('{"step": 1}\n' + torn)
    step(opened(step=2), 3)
    assert [row["step"] for row in rows(tmp_path)] == [1, 3]


def test_row_that_lost_only_its_line_end_stays_a_row(tmp_path: Path, opened: Opening) -> None:
    (tmp_path / "log.jsonl").write_text('{"step": 1}\n{"step": 2}')
    step(opened(step=2), 3)
    assert [row["step"] for row in rows(tmp_path)] == [1, 2, 3]


def test_full_disk_costs_rows_and_nothing_else(
    tmp_path: Path, opened: Opening, capsys: pytest.CaptureFixture[str]
) -> None:
    watch = opened()
    step(watch, 1)
    with full_disk((tmp_path / "log.jsonl").stat().st_size + 10):  # room for a part of the row
        assert step(watch, 2)
    said = capsys.readouterr().out
    assert str(tmp_path / "log.jsonl") in said
    assert said.count("\n") == 1
    assert step(watch, 3)
    assert [row["step"] for row in rows(tmp_path)] == [1, 3]


def test_full_disk_does_not_end_a_rewind(tmp_path: Path, opened: Opening, capsys: pytest.CaptureFixture[str]) -> None:
    watch = opened()
    for number in range(1, 6):
        step(watch, number)
    with full_disk(10):
        watch.rewind(4)
    assert str(tmp_path / "log.jsonl") in capsys.readouterr().out
    assert [row["step"] for row in rows(tmp_path)][:4] == [1, 2, 3, 4]


def test_preview_is_a_grid_named_after_its_step(tmp_path: Path, opened: Opening, clock: Clock) -> None:
    opened().preview(12, FACES, clock.now)
    assert os.listdir(tmp_path / "samples") == ["step-00000012.png"]
    with Image.open(tmp_path / "samples" / "step-00000012.png") as sheet:
        assert sheet.size == (22, 22)


def test_full_disk_costs_a_preview_and_nothing_else(
    tmp_path: Path, opened: Opening, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    watch = opened()
    watch.preview(1, FACES, clock.now)
    with full_disk(10):
        watch.preview(1, FACES + 100, clock.now)
    assert "step-00000001.png" in capsys.readouterr().out
    assert os.listdir(tmp_path / "samples") == ["step-00000001.png"]
    assert np.asarray(Image.open(tmp_path / "samples" / "step-00000001.png")).min() == 0


def test_previews_keep_to_their_share_of_the_time(opened: Opening, clock: Clock) -> None:
    watch = opened(seconds=10_000.0)  # earlier sittings buy no previews now
    assert watch.may_spend()
    since = clock.now
    clock.now += 3.0
    watch.preview(1, FACES, since)
    assert not watch.may_spend()
    clock.now = since + 3.0 / SIDE_SHARE - 0.1
    assert not watch.may_spend()
    clock.now += 0.2
    assert watch.may_spend()
    clock.now = since + 5.0 / SIDE_SHARE + 0.1
    assert watch.may_spend(2.0)
    assert not watch.may_spend(2.1)
    watch.spent(clock.now - 2.0)
    assert not watch.may_spend(0.1)


class Shown:
    """An output that keeps what it is given."""

    def __init__(self) -> None:
        self.rows: list[float] = []
        self.rewinds: list[int] = []
        self.pictures: list[tuple[str, tuple[int, ...]]] = []
        self.closed = False

    def row(self, row: Mapping[str, float]) -> list[str]:
        self.rows.append(row["step"])
        return ["the page is whole again"] if row["step"] == 10 else []

    def rewind(self, step: int) -> None:
        self.rewinds.append(step)

    def picture(self, name: str, title: str, pixels: np.ndarray, step: int) -> None:
        self.pictures.append((f"{name}: {title}", pixels.shape))

    def close(self) -> None:
        self.closed = True


def test_other_outputs_get_what_is_shown_and_what_was_before(
    opened: Opening, capsys: pytest.CaptureFixture[str]
) -> None:
    first = opened()
    for number in (5, 10, 15):
        step(first, number)
    capsys.readouterr()
    shown = Shown()

    watch = opened(step=10, outputs=[shown])
    assert shown.rows == [5, 10]
    assert "the page is whole again" in capsys.readouterr().out
    step(watch, 20)
    assert not step(watch, 25, math.nan)
    watch.rewind(20)
    watch.preview(20, FACES, 1000.0)
    watch.close()

    assert shown.rows == [5, 10, 20]
    assert shown.rewinds == [10, 20]
    assert shown.pictures == [("samples: Samples, always of the same latents, step 20", (22, 22, 3))]
    assert shown.closed


def test_time_left_is_that_of_the_budget_where_it_ends_first(opened: Opening, clock: Clock) -> None:
    watch = opened(ends=1800)
    clock.now += 600
    step(watch, 1)  # 64 images in ten minutes: far more than thirty minutes to 1,000
    assert "20 min left" in watch.status

    watch = opened(ends=600_000)
    clock.now += 64
    step(watch, 1)
    assert "16 min left" in watch.status


def test_file_gets_whole_lines_now_and_then(opened: Opening, clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with closing(opened()) as watch:
        for number in range(1, 41):
            clock.now += 1.0
            watch.add(g_loss=torch.tensor(0.25))
            step(watch, number, 2.0)
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert out == ""
    assert "\r" not in err
    assert "\x1b" not in err
    assert len(lines) == 3 if QUIET_SECONDS == 30 else len(lines) > 1  # at 1 s, at 31 s, at the end
    assert lines[0] == "epoch 1/10  64 images  64/s  0 min left  D 2.000  G 0.250  data 0%"
    assert lines[-1].startswith("epoch 10/10  2,560 images")


def test_status_counts_epochs_and_what_is_left(
    tmp_path: Path, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(Monitor(tmp_path, tmp_path, faces=30_000, max_epoch=200)) as watch:
        clock.now += 100.0
        watch.data_seconds = 25.0
        step(watch, 500)
    status = capsys.readouterr().err.splitlines()[-1]
    assert status == "epoch 2/200  32,000 images  320/s  5 h 11 min left  D 1.000  data 25%"  # 5,968,000 / 320 s


def test_terminal_has_one_line_that_changes(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with closing(Monitor(tmp_path, tmp_path, faces=100, max_epoch=10)) as watch:
        for number in (1, 2):
            clock.now += 1.0
            step(watch, number)
        watch.say("a line above")
    shown = re.sub(r"\x1b\[\w", "", terminal.getvalue())
    assert shown.count("\n") == 1
    assert "\repoch 1/10  64 images" in shown
    assert "\repoch 2/10  128 images" in shown
    assert capsys.readouterr().out == "a line above\n"
