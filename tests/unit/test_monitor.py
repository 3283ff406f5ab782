"""What a run says of itself: rows of the log, previews within their share of the time, and no harm from a full disk."""

import dataclasses
import io
import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from config import TrainConfig
from gan.watching import health, monitor
from gan.watching.curves import Curves
from gan.watching.health import Diagnosis, Kind
from gan.watching.monitor import (
    DIAGNOSIS_SECONDS,
    GRACE,
    PREVIEW_SECONDS,
    QUIET_SECONDS,
    ROW_SECONDS,
    SIDE_SHARE,
    Monitor,
    coloured,
)
from gan.watching.output import Output

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
        monitors.append(Monitor(tmp_path, TrainConfig(max_epoch=10), faces=100, **options))
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
    first["seconds_left"], second["seconds_left"] = (pytest.approx((1000 - n) / 32, abs=0.1) for n in (128, 192))
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


FIRST, SECOND = (f'{{"step": {i}, "images_seen": {64 * i}, "seconds": {i}}}' for i in (1, 2))
NO_ROWS = [b'{"step": 2, "d_l', b"{", b"2", b"null", b'{"d_loss": 1}', b'{"step": 2, "fd": 9.0}', bytes(3), b"\xff\xe0"]


@pytest.mark.parametrize("line", NO_ROWS)
def test_going_on_drops_a_line_that_is_no_row(tmp_path: Path, opened: Opening, line: bytes) -> None:
    (tmp_path / "log.jsonl").write_bytes(FIRST.encode() + b"\n" + line)
    step(opened(step=2), 3)
    assert [row["step"] for row in rows(tmp_path)] == [1, 3]


def test_row_that_lost_only_its_line_end_stays_a_row(tmp_path: Path, opened: Opening) -> None:
    (tmp_path / "log.jsonl").write_text(f"{FIRST}\n{SECOND}")
    step(opened(step=2), 3)
    assert [row["step"] for row in rows(tmp_path)] == [1, 2, 3]


def test_a_full_disk_costs_no_row(tmp_path: Path, opened: Opening, capsys: pytest.CaptureFixture[str]) -> None:
    watch = opened()
    step(watch, 1)
    with full_disk((tmp_path / "log.jsonl").stat().st_size + 10):  # room for a part of the row
        assert step(watch, 2)
    said = capsys.readouterr().out
    assert str(tmp_path / "log.jsonl") in said
    assert said.count("\n") == 1
    assert step(watch, 3)
    assert [row["step"] for row in rows(tmp_path)] == [1, 2, 3]


def test_nobody_there_to_read_what_it_says_does_not_end_a_run(
    tmp_path: Path, opened: Opening, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    gone = os.fdopen(writer, "w")
    watch = opened()
    with monkeypatch.context() as patched:
        for name in ("stdout", "stderr"):
            patched.setattr(sys, name, gone)
        watch.log("something")
        clock.now += QUIET_SECONDS
        assert step(watch, 1)
        watch.close()
    gone.close()  # nothing is left in it that Python would try to write at its end
    assert [row["step"] for row in rows(tmp_path)] == [1]


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


def test_previews_and_measurements_keep_to_their_share_of_the_time(opened: Opening, clock: Clock) -> None:
    watch = opened(seconds=10_000.0)  # earlier sittings buy no previews now
    assert watch.may_preview()
    since = clock.now
    clock.now += GRACE
    watch.preview(1, FACES, since)
    clock.now += 0.1
    assert watch.may_preview()  # the first ones of a slow machine may take more of it
    clock.now += 3.0
    watch.preview(1, FACES, clock.now - 3.0)
    assert not watch.may_preview()
    clock.now = since + 3.0 / SIDE_SHARE - 0.1
    assert not watch.may_preview()
    clock.now += 0.2
    assert watch.may_preview()
    assert watch.may_measure(303.0)  # previews leave measurements their share, and earlier sittings made none
    assert not watch.may_measure(303.2)
    watch.measured(clock.now - 2.0)
    assert watch.may_measure(1.0)
    assert not watch.may_measure(1.1)
    assert not watch.may_preview()


def test_on_a_slow_machine_a_preview_comes_before_its_step_also_after_one_that_failed(
    opened: Opening, clock: Clock
) -> None:
    watch, began, soon = opened(), clock.now, list[float]()
    assert not watch.preview_overdue()
    while clock.now < began + 120:  # at the start, previews come sooner
        clock.now += 0.5
        if watch.preview_overdue():
            watch.preview(1, FACES, watch.begin_preview())
            soon.append(clock.now - began)
    assert soon == pytest.approx([8, 16.5, 33.5, 63.5, 93.5], abs=0.1)
    for finish in (True, False):  # the second fails
        since = watch.begin_preview()
        clock.now += 0.1
        if finish:
            watch.preview(1, FACES, since)
        clock.now += PREVIEW_SECONDS - 0.2
        assert not watch.preview_overdue()
        clock.now += 0.2
        assert watch.preview_overdue()
    assert watch.may_preview()
    watch.config = dataclasses.replace(watch.config, plot_every=0)
    assert not watch.preview_overdue()


def test_where_steps_are_fast_previews_leave_time_to_measure_and_do_not_fill_the_disk(
    opened: Opening, clock: Clock
) -> None:
    watch, previews, measured = opened(), 0, 0
    began = clock.now
    while clock.now < began + 86_400:  # a GPU: 250 steps in 1.5 s, a preview takes 0.1 s
        clock.now += 1.5
        if watch.may_measure(3.0):
            clock.now += 3.0
            watch.measured(clock.now - 3.0)
            measured += 1
        if watch.may_preview():
            clock.now += 0.1
            watch.previewed = clock.now
            watch.side_seconds += 0.1
            previews += 1
    assert measured > 700
    assert 50 < previews < 3000


def test_side_work_in_which_the_computer_slept_does_not_count(opened: Opening, clock: Clock) -> None:
    watch = opened()
    for step in (1, 2):
        since = clock.now
        clock.now += 1.0 if step == 1 else 3600.0
        watch.preview(step, FACES, since)
    assert watch.seconds == pytest.approx(2.0)
    clock.now += 2.0 / SIDE_SHARE
    assert watch.may_preview()
    assert watch.awake("measurement", 100.0) == 100.0  # the first: it may well take so long
    assert watch.awake("measurement", 300.0) == 300.0


class Shown(Output):
    """An output that keeps what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[float] = []
        self.rewinds: list[int] = []
        self.grids: list[tuple[str, tuple[int, ...]]] = []
        self.diagnoses: list[tuple[int, str]] = []
        self.closed = False

    def row(self, row: Mapping[str, float]) -> list[str]:
        self.rows.append(row["step"])
        return ["the page is whole again"] if row["step"] == 10 else []

    def rewind(self, step: int) -> None:
        self.rewinds.append(step)

    def picture(self, name: str, title: str, pixels: np.ndarray, step: int, rows: Sequence[str] = ()) -> None:
        self.grids.append((f"{name}: {title}", pixels.shape))

    def diagnosis(self, diagnosis: Diagnosis, step: int) -> None:
        self.diagnoses.append((step, diagnosis.kind))

    def close(self) -> list[str]:
        self.closed = True
        return ["the page is closed"]


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
    assert shown.grids == [("samples: Samples, always of the same latents, step 20", (22, 22, 3))]
    assert shown.closed


def test_logits_and_notes_of_the_steps_since_the_last_row(tmp_path: Path, opened: Opening) -> None:
    shown = Shown()
    watch = opened(outputs=[shown])
    watch.add_logits(torch.tensor([2.0, 4.0]), torch.tensor([[1.0, 5.0], [0.0, -2.0]]))  # two heads: their mean counts
    watch.note(variety=0.9)
    assert watch.row(1, 64)
    watch.add_logits(torch.tensor([1.0]), torch.tensor([2.0]))
    assert watch.row(2, 128)

    first, second = rows(tmp_path)
    assert {name: first[name] for name in ("real_logit", "fake_logit", "variety")} == {
        "real_logit": 3.0,
        "fake_logit": 1.0,
        "variety": 0.9,
    }
    assert first["d_accuracy"] == 0.75  # 2 and 4 against 3 and -1
    assert second["d_accuracy"] == 0.0
    assert "variety" not in second
    assert shown.spread is not None
    watch.rewind(1)  # what is taken back is in no histogram
    assert not watch.logits
    assert [list(kind) for kind in shown.spread] == [[2.0, 4.0, 1.0], [3.0, -1.0, 2.0]]


def test_what_the_curves_mean_is_said_when_it_changes_and_not_too_often(
    opened: Opening, clock: Clock, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds: list[Kind] = ["early", "balanced", "won", "won", "balanced", "won", "won", "won", "won", "stalled"]
    looks: list[bool] = []

    def diagnose(curves: Curves, config: TrainConfig, faces: int, folder: Path, over: bool) -> Diagnosis:
        looks.append(over)
        kind = kinds[min(len(looks), len(kinds)) - 1]
        return Diagnosis(kind, f"it is {kind}", "it is over." if over else "do that.")

    shown = Shown()
    monkeypatch.setattr(health, "diagnose", diagnose)
    watch = opened(outputs=[shown])
    for number in range(1, 19):
        clock.now += DIAGNOSIS_SECONDS / 2 + 0.01  # every second row is looked at
        step(watch, number)
    watch.over = True
    watch.close()

    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("it is")]
    assert said == ["it is balanced: do that.", "it is won: do that."]  # 10 s, 80 s; at 20 s it was too soon
    assert [kind for _, kind in shown.diagnoses] == kinds
    assert watch.status.split("  ")[3] == "it is won"
    assert watch.diagnosis is not None
    assert watch.diagnosis.text == "it is over."


def test_a_measurement_is_looked_at_at_once(opened: Opening) -> None:
    shown = Shown()
    watch = opened(outputs=[shown])
    step(watch, 1)
    step(watch, 2)
    assert watch.row(3, 192, {"fd": 20.0})
    assert [number for number, _ in shown.diagnoses] == [1, 3]


def test_a_row_does_not_wait_for_slow_steps(opened: Opening, clock: Clock) -> None:
    watch = opened()
    clock.now += ROW_SECONDS - 1
    assert not watch.row_overdue()
    clock.now += 1
    assert watch.row_overdue()
    assert step(watch, 1)
    assert not watch.row_overdue()


def test_side_work_does_not_count_against_the_speed(tmp_path: Path, opened: Opening, clock: Clock) -> None:
    watch = opened()
    since = clock.now
    clock.now += 6.0
    watch.preview(1, FACES, since)
    clock.now += 2.0
    step(watch, 1)
    clock.now += 2.0
    step(watch, 2)
    assert [row["images_per_second"] for row in rows(tmp_path)] == [32.0, 32.0]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pseudo-terminals like this")
@pytest.mark.parametrize("columns", [40, 80, 200])
def test_in_a_real_terminal_no_line_is_wrapped_or_left_behind(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    import fcntl
    import pty
    import select
    import struct
    import termios

    for name in ("CI", "NO_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with open(theirs, "w", encoding="utf-8") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        diagnosis = Diagnosis("won", "the discriminator has won", "lower --lr2.")
        monkeypatch.setattr(health, "diagnose", lambda *_: diagnosis)
        with closing(Monitor(tmp_path, TrainConfig(max_epoch=10**6), faces=100)) as watch:
            for number in range(1, 6):
                clock.now += 20.0
                watch.add(g_loss=torch.tensor(12.5))
                step(watch, number, 2.0)
        terminal.flush()
        shown = ""
        while select.select([ours], [], [], 0.2)[0]:
            shown += os.read(ours, 65536).decode()
    os.close(ours)
    lines = [line.rstrip() for line in re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;]*\w", "", shown))]
    assert max(map(len, lines)) < columns
    assert lines[-1] == ""
    assert "min left" in lines[-2]
    assert ("the discriminator has won" in lines[-2]) == (columns >= 80)
    assert ("G 12.500" in lines[-2]) == (columns == 200)
    assert shown.count("\n") == 1  # the status line is one line, however often it changes


@pytest.mark.parametrize(
    ("terminal", "variables", "expected"),
    [
        (True, {"TERM": "xterm"}, "\x1b[33mtext\x1b[0m"),
        (True, {"TERM": "xterm", "NO_COLOR": "1"}, "text"),
        (True, {"TERM": "dumb"}, "text"),
        (True, {"TERM": "xterm", "CI": "true"}, "text"),
        (False, {"TERM": "xterm"}, "text"),
    ],
)
def test_colour_is_for_terminals_whose_users_want_it(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, variables: dict[str, str], expected: str
) -> None:
    for name in ("TERM", "NO_COLOR", "CI"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: terminal, raising=False)
    assert coloured("text", True, stream) == expected


def test_time_left_is_that_of_the_budget_where_it_ends_first(opened: Opening, clock: Clock) -> None:
    watch = opened(ends=1800)
    clock.now += 600
    step(watch, 1)  # 64 images in ten minutes: far more than thirty minutes to 1,000
    assert "20 min left" in watch.status

    watch = opened(ends=600_000)
    clock.now += 64
    step(watch, 1)
    assert "16 min left" in watch.status


def test_a_live_line_counts_down_between_rows(tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Monitor(tmp_path, TrainConfig(), faces=1000, ends=600)
    with closing(watch):
        clock.now += 100.0
        step(watch, 1)
        assert "8 min left" in watch.status  # 500 s
        for seconds, left in ((300.0, "3 min left"), (130.0, "70 s left"), (60.0, "10 s left")):
            with watch.loading():
                clock.now += seconds
            watch.step_done()
            assert left in watch.status
        watch.finish()
        assert "finishing" in watch.status
        assert "left" not in watch.status
        watch.rewind(0)
        clock.now += 1.0
        step(watch, 1)
        assert "9 s left" in watch.status


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
    assert lines[0] == "epoch 1/10  15 s left  64 images seen  64/s  D 2.000  G 0.250"
    assert lines[-1].startswith("epoch 10/10  finishing  2,560 images seen")


@pytest.mark.parametrize("over", [True, False])
def test_the_last_line_of_a_file_is_written_once(
    opened: Opening, clock: Clock, capsys: pytest.CaptureFixture[str], over: bool
) -> None:
    shown = Shown()
    with closing(opened(outputs=[shown])) as watch:
        for number in (1, 2):
            clock.now += QUIET_SECONDS
            if over and number == 2:
                watch.finish()
            step(watch, number)
        watch.end(over, ["go on"])
        clock.now += 2.0
    lines = capsys.readouterr().err.splitlines()
    assert [line.split("  ")[2] for line in lines] == ["64 images seen", "128 images seen"]
    assert ("finished" in lines[-1]) == over
    assert shown.ended.startswith("Finished: " if over else "Stopped: ")
    assert shown.ended.endswith(f"{watch.run}{os.sep}report.html")
    assert shown.commands == ["go on"]

    with closing(opened()) as watch:
        clock.now += QUIET_SECONDS
        step(watch, 1, 2.0)
    assert capsys.readouterr().err.count("\n") == 1  # said as soon as it was known, and not again


def test_status_counts_epochs_and_what_is_left(
    tmp_path: Path, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(Monitor(tmp_path, TrainConfig(), faces=30_000)) as watch:
        clock.now += 100.0
        watch.data_seconds = 25.0
        step(watch, 500)
    status = capsys.readouterr().err.splitlines()[-1]
    left = "5 h 11 min left"  # 5,968,000 / 320 s
    assert status == f"epoch 2/200  {left}  32,000 images seen  320/s  D 1.000  waited for data 25%"


def test_terminal_has_one_line_that_changes(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("TERM", "xterm")  # a dumb one cannot move its cursor
    monkeypatch.setattr(sys, "stderr", terminal)
    with closing(Monitor(tmp_path, TrainConfig(max_epoch=10), faces=100)) as watch:
        for number in (1, 2):
            clock.now += 1.0
            step(watch, number)
        watch.log("a line above")
    shown = re.sub(r"\x1b\[\w", "", terminal.getvalue())
    assert shown.count("\n") == 1
    assert "\repoch 1/10  15 s left  64 images" in shown
    assert "\repoch 2/10  14 s left  128 images" in shown
    assert capsys.readouterr().out == "a line above\n"
