"""The status line, log.jsonl and preview grids of a run. Nothing here changes the training."""

import contextlib
import itertools
import json
import math
import os
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TextIO

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from config import TrainConfig
from gan import images, language
from gan.files import write_text
from gan.language import text, why
from gan.watching import health
from gan.watching.curves import POSITIONS, Curves
from gan.watching.health import Diagnosis
from gan.watching.output import Output

SIDE_SHARE = 0.03  # share of the time for measurements, which wait for it; previews get the rest, at least a third
GRACE = 8.0  # seconds for previews besides, so that a slow machine, too, soon shows its first ones
SPACED = 500  # previews are at least a 500th of the elapsed time apart, so that they do not fill a long run's folder
ASLEEP_SECONDS, ASLEEP_TIMES = 60.0, 20  # work that takes this long, and so many times as long as usual, means sleep
LOGIT_STEPS = 16  # number of steps in the histogram of the discriminator's logits
DIAGNOSIS_SECONDS = 10.0  # minimum interval between diagnoses of the curves
SAID_SECONDS = 60.0  # minimum interval between messages about a new diagnosis
REFRESH_SECONDS = 2.0  # interval between refreshes of the live status line, whose rows may be minutes apart
ROW_SECONDS = 20.0  # after these, a row does not wait for its last steps: on a slow machine 50 of them take minutes
PREVIEW_SECONDS = 30.0  # after these, a preview does not wait for its step either
SOON_SECONDS = 8.0  # and after these at the very start, when a grid changes most
WAITED = 0.05  # least share of the time spent waiting for data that the status line tells
QUIET_SECONDS = 30.0  # minimum interval between status lines in a file or in CI


class Monitor:
    """Collects the values of each step and displays them.

    Losses stay on the device until a row is due, so that no step waits for the GPU.

    Args:
        run: folder of the run; `log.jsonl` is written there. None if another process displays the run.
        config: options of the run.
        faces: faces in an epoch.
        step: the step that the run starts or resumes from; later rows of an older log are dropped.
        seconds: training time before that step.
        ends: training time in seconds at which the run's budget ends; None without a budget.
        outputs: additional displays of the run.
    """

    def __init__(
        self,
        run: Path | None,
        config: TrainConfig,
        faces: int,
        step: int = 0,
        seconds: float = 0.0,
        ends: float | None = None,
        outputs: Sequence[Output] = (),
    ) -> None:
        self.run, self.config, self.faces, self.ends, self.outputs = run, config, faces, ends, outputs
        self.curves = Curves()
        self.diagnosis: Diagnosis | None = None
        self.kind_said, self.kind_said_at, self.diagnosed_at, self.over = "early", -math.inf, -math.inf, False
        self.log_file = None if run is None else run / "log.jsonl"
        self.unwritten = list[str]()  # rows that the disk had no room for; they are written with the next one
        self.started = time.perf_counter() - seconds
        self.side_seconds = self.measuring_seconds = 0.0
        self.usual: dict[str, float] = {}
        self.logits: deque[tuple[Tensor, Tensor]] = deque(maxlen=LOGIT_STEPS)
        self.opened = self.previewed = time.perf_counter()
        self.status, self.parts = text("training started; first numbers within half a minute"), tuple[str, ...]()
        self.left = self.shown_at = self.refreshed = 0.0
        self.said, self.said_parts = 0.0, self.parts
        watched = self.log_file is not None and is_watched(sys.stderr)
        self.live = tqdm(desc=self.status, bar_format="{desc}", dynamic_ncols=True, disable=not watched)
        self.rewind(step)
        if self.log_file is not None and self.log_file.is_file():
            for line in self.log_file.read_text(encoding="utf-8", errors="replace").splitlines():
                if _step_of(line) <= step:
                    self._hand_over(json.loads(line))

    def rewind(self, step: int) -> None:
        """Drop everything after `step`: rows of the log, and values collected since the last row."""
        if self.log_file is not None:
            self._cut(self.log_file, step)
            self.unwritten = [row for row in self.unwritten if _step_of(row) <= step]
        self.curves.rewind(step)
        self.logits.clear()
        self.finishing = False
        for output in self.outputs:
            output.rewind(step)
        self._start_row(step)

    def _cut(self, log: Path, step: int) -> None:
        old = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
        kept = "".join(row + "\n" for row in old.splitlines() if _step_of(row) <= step)
        if kept != old:
            try:
                write_text(log, kept)
            except OSError as error:
                self.log(text("could not write {}: {}; training goes on, free some disk space").format(log, why(error)))

    def _hand_over(self, row: Mapping[str, float]) -> None:
        self.curves.add(row)
        for output in self.outputs:
            for line in output.row(row):
                self.log(line)

    def _start_row(self, step: int) -> None:
        self.notes: dict[str, float] = {}
        self.sums: dict[str, tuple[Tensor, int]] = {}
        self.data_seconds, self.row_step = 0.0, step
        self.row_started, self.row_side_seconds = time.perf_counter(), self.side_seconds

    @property
    def seconds(self) -> float:
        """Return the training time of the run so far, including the time before it was resumed."""
        return time.perf_counter() - self.started

    def skip(self, away: float) -> None:
        """Exclude that many past seconds from all times."""
        self.started, self.opened, self.row_started = self.started + away, self.opened + away, self.row_started + away

    @contextlib.contextmanager
    def loading(self) -> Iterator[None]:
        """Time the wait for a step's faces, with which the step begins."""
        self.step_started = time.perf_counter()
        yield
        self.data_seconds += time.perf_counter() - self.step_started

    def step_done(self) -> None:
        """Record the duration of the step that began with `loading`."""
        self.awake("step", time.perf_counter() - self.step_started)
        if time.perf_counter() >= self.refreshed + REFRESH_SECONDS:
            self._refresh()

    def awake(self, what: str, took: float) -> float:
        """Return the seconds that a kind of work counts for, without any in which the computer slept.

        Returns:
            `took`, or the usual time if the computer must have slept; the rest is then excluded from all times.
        """
        usual = self.usual.get(what, math.inf)
        if took <= max(ASLEEP_SECONDS, ASLEEP_TIMES * usual):
            self.usual[what] = took if math.isinf(usual) else 0.9 * usual + 0.1 * took
            return took
        self.skip(took - usual)
        self.log(text("a {} took {}; the computer probably slept; not counted").format(text(what), duration(took)))
        return usual

    def add(self, **values: Tensor) -> None:
        """Collect scalars of one step, which are still on the device."""
        for name, value in values.items():
            total, count = self.sums.get(name, (0.0, 0))
            self.sums[name] = (total + value.detach(), count + 1)

    def add_logits(self, real: Tensor, fake: Tensor) -> None:
        """Collect the discriminator's logits of one step, (N, K, P), which are still on the device."""
        real, fake = (logits.detach().float().view(len(logits), -1).mean(1) for logits in (real, fake))
        self.add(real_logit=real.mean(), fake_logit=fake.mean(), d_accuracy=(real[:, None] > fake).float().mean())
        self.logits.append((real, fake))

    def note(self, **values: float) -> None:
        """Add columns to the next row."""
        self.notes |= values

    def means(self) -> dict[str, float]:
        """Return the means of the scalars collected since the last row."""
        return {name: float(total) / count for name, (total, count) in self.sums.items()}  # GPU sync

    def row_overdue(self) -> bool:
        """Return whether the steps since the last row have taken so long that a row is due at once."""
        return time.perf_counter() - self.row_started - (self.side_seconds - self.row_side_seconds) >= ROW_SECONDS

    def row(self, step: int, images_seen: int, values: Mapping[str, float] | None = None) -> bool:
        """Write `values`, by default the means since the last row, to the log and display them.

        Returns:
            True if all values are finite; otherwise nothing is written.
        """
        values = self.means() if values is None else values
        if not all(math.isfinite(value) for value in values.values()):
            return False
        elapsed = time.perf_counter() - self.row_started - (self.side_seconds - self.row_side_seconds)
        row: dict[str, float] = {"step": step, "images_seen": images_seen, "seconds": round(self.seconds, 2)}
        row |= {name: round(value, 6) for name, value in {**values, **self.notes}.items()}
        if step > self.row_step:
            rate = (images_seen / step) * (step - self.row_step) / elapsed
            row |= {"images_per_second": round(rate, 2), "data_wait": round(self.data_seconds / elapsed, 4)}
            self._show(row, rate)
        if self.log_file is not None:
            self._write(self.log_file, row)
        if self.outputs and self.logits:
            real, fake = (torch.cat(kind).cpu().numpy() for kind in zip(*self.logits, strict=True))
            for output in self.outputs:
                output.logits(real, fake)
        self._hand_over(row)
        if "fd" in row or time.perf_counter() >= self.diagnosed_at + DIAGNOSIS_SECONDS:
            self.update_diagnosis(step)
        self._start_row(step)
        return True

    def update_diagnosis(self, step: int) -> None:
        """Diagnose the curves, and print a diagnosis of a new kind unless the last message was too recent."""
        self.diagnosed_at = time.perf_counter()
        if self.run is None:
            return
        self.diagnosis = health.diagnose(self.curves, self.config, self.faces, self.run, self.over)
        for output in self.outputs:
            output.diagnosis(self.diagnosis, step)
        late = self.diagnosed_at >= self.kind_said_at + SAID_SECONDS
        if self.diagnosis.kind != self.kind_said and late and not self.over:
            self.kind_said, self.kind_said_at = self.diagnosis.kind, self.diagnosed_at
            self.log(coloured(f"{self.diagnosis.short}: {self.diagnosis.text}", self.diagnosis.trouble, sys.stdout))

    def _write(self, log: Path, row: Mapping[str, float]) -> None:
        size = None
        self.unwritten.append(json.dumps(row) + "\n")
        try:
            size = log.stat().st_size if log.is_file() else 0
            with open(log, "a", encoding="utf-8") as file:
                file.write("".join(self.unwritten))
            self.unwritten.clear()
        except OSError as error:
            with contextlib.suppress(OSError):
                if size is not None:
                    os.truncate(log, size)  # a partly written row would corrupt the next one
            self.log(text("could not write {}: {}; training goes on, free some disk space").format(log, why(error)))

    def _show(self, row: dict[str, float], rate: float) -> None:
        seen, epochs = int(row["images_seen"]), self.config.epochs
        left = max(0, self.faces * epochs - seen) / rate  # until the last epoch ends, or the budget if that is first
        if self.ends is not None:
            left = max(0.0, min(left, self.ends - self.seconds))
        if math.isfinite(left):
            row["seconds_left"] = 0.0 if self.finishing else round(left, 1)
        limit = "" if math.isinf(epochs) else f"/{epochs}"
        self.shown_at, self.left = time.perf_counter(), left
        self.parts = (  # those that a narrow terminal cuts off come last
            text("epoch {}{}").format(min(seen // self.faces + 1, epochs), limit),
            text("{:,} images seen").format(seen),
            *([self.diagnosis.short] if self.diagnosis is not None else []),
            f"{rate:.0f}/s",
            *(f"{short} {row[name]:.3f}" for short, name in (("D", "d_loss"), ("G", "g_loss")) if name in row),
            *([text("waited for data {:.0%}").format(row["data_wait"])] if row["data_wait"] >= WAITED else []),
        )
        self._refresh()
        if not self.finishing and time.perf_counter() - self.said >= QUIET_SECONDS:
            self._say_status()

    def _say_status(self) -> None:
        """Print the status line, unless it is live or its numbers were printed before."""
        if self.live.disable and self.log_file is not None and self.parts != self.said_parts:
            self.said, self.said_parts = time.perf_counter(), self.parts
            self._print(self.status, sys.stderr)

    def _refresh(self) -> None:
        """Show the values of the last row, and the time that is left now."""
        if self.parts:
            left = max(0.0, self.left - (time.perf_counter() - self.shown_at))
            when = text("finishing") if self.finishing or left < 1 else text("{} left").format(duration(left))
            self.status = "  ".join([self.parts[0], text("finished") if self.over else when, *self.parts[1:]])
        self.refreshed = time.perf_counter()
        if not self.live.disable:
            columns = 80
            with contextlib.suppress(OSError, ValueError):  # the terminal may not tell
                columns = os.get_terminal_size(sys.stderr.fileno()).columns or columns
            self.live.set_description_str(fitting(self.status, columns - 1))

    def finish(self) -> None:
        """Show that the training is over, and that its last measurement, preview and save are being made."""
        self.finishing = True
        self._refresh()

    def end(self, over: bool, commands: list[str]) -> None:
        """Tell all outputs that the run is over, or else only stopped, and what the user may run next."""
        self.over = over
        if self.run is None:
            return
        report = (self.run / "report.html").absolute()
        line = text("Finished: all of this is kept in {}") if over else text("Stopped: all of this is kept in {}")
        for output in self.outputs:
            output.end(line.format(report), commands)

    def log(self, line: str) -> None:
        """Print a line for the user above the status line."""
        with tqdm.external_write_mode():
            self._print(line, sys.stdout)

    def _print(self, line: str, stream: TextIO) -> None:
        try:
            print(line, file=stream, flush=True)
        except BrokenPipeError:  # the reader has gone; Python would try to flush again at exit and complain
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        except OSError:  # for example a full disk, which is no reason to end a run
            pass

    def may_measure(self, seconds: float) -> bool:
        """Return whether measurements stay within their share of the time if they take `seconds` more.

        The first one may also go by the time since the last one before the run was resumed: a run may go on in many
        short sessions.
        """
        before, _ = self.curves.column("fd", along="seconds")
        rested = 0.0 if self.measuring_seconds else self.seconds - (before[-1] if len(before) else 0.0)
        return self.measuring_seconds + seconds <= SIDE_SHARE * max(rested, time.perf_counter() - self.opened)

    def preview_overdue(self) -> bool:
        """Return whether the last preview was begun so long ago that one is due before its step."""
        now = time.perf_counter()
        wait = min(max(SOON_SECONDS, (now - self.opened) / 2), PREVIEW_SECONDS)
        return self.config.plot_every > 0 and now - self.previewed >= wait

    def may_preview(self) -> bool:
        """Return whether previews stay within their share of the time and the last one is long enough ago."""
        now = time.perf_counter()
        share, previews = SIDE_SHARE * (now - self.opened), self.side_seconds - self.measuring_seconds
        fits = self.side_seconds <= share + GRACE or previews <= share / 3
        return fits and now - self.previewed >= (now - self.opened) / SPACED

    def measured(self, since: float) -> None:
        """Record the cost of a measurement that began at `since`, a value of `time.perf_counter()`."""
        took = time.perf_counter() - since
        self.side_seconds, self.measuring_seconds = self.side_seconds + took, self.measuring_seconds + took

    def begin_preview(self) -> float:
        """Note that a preview begins, even if it fails; return the time, a value of `time.perf_counter()`."""
        self.previewed = time.perf_counter()
        return self.previewed

    def preview(self, step: int, pixels: np.ndarray, since: float, rows: Sequence[str] = ()) -> None:
        """Write a grid of samples, (N, S, S, 3) uint8, with a row for each class in `rows` if there are any.

        The time from `since`, see `begin_preview`, counts as the cost of the preview.
        """
        path = (self.config.save_path or (self.run or Path()) / "samples") / f"step-{step:08d}.png"
        grid = images.grid(pixels, len(pixels) // len(rows) if rows else None)
        title = text("Samples, always of the same latents, step {:,}").format(step)
        for output in self.outputs:
            output.picture("samples", title, grid, step, rows)
        try:
            images.save_picture(grid, path)
        except OSError as error:
            self.log(text("could not write {}: {}; training goes on, free some disk space").format(path, why(error)))
        self.side_seconds += self.awake("preview", time.perf_counter() - since)
        self.previewed = time.perf_counter()

    def close(self) -> None:
        """End the status line, or print the last one if it is not live, and close the outputs."""
        self._refresh()
        self._say_status()
        self.live.close()
        self.update_diagnosis(self.row_step)
        for output in self.outputs:
            for line in output.close():
                self.log(line)


def duration(seconds: float) -> str:
    """Return a duration in words: `40 s`, `13 min` or `5 h 11 min`."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return text("{:.0f} s").format(seconds)
    hours, rest = divmod(minutes, 60)
    return text("{} h {:02d} min").format(hours, rest) if hours else text("{} min").format(minutes)


def fitting(line: str, columns: int) -> str:
    """Return the start of a line that fits into so many columns of a terminal, in which a Chinese letter takes two."""
    widths = itertools.accumulate(map(language.columns, line))
    return "".join(letter for letter, width in zip(line, widths, strict=True) if width <= columns)


def is_watched(stream: TextIO) -> bool:
    """Return whether a stream is live: a terminal that can move its cursor, outside CI."""
    return stream.isatty() and os.environ.get("TERM") != "dumb" and not os.environ.get("CI")


def coloured(line: str, trouble: bool, stream: TextIO) -> str:
    """Colour the line yellow for trouble, else green, if the stream is a live terminal and NO_COLOR is not set."""
    if not is_watched(stream) or os.environ.get("NO_COLOR"):
        return line
    return f"\x1b[{33 if trouble else 32}m{line}\x1b[0m"


def _step_of(row: str) -> float:
    """Return the step of a row of the log; infinity for a row that was cut short by a crash or is otherwise invalid."""
    try:
        values = json.loads(row)
        numbers = all(type(value) in (int, float) and abs(value) < 1e300 for value in values.values())
        return values["step"] if numbers and values.keys() >= set(POSITIONS) else math.inf
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return math.inf
