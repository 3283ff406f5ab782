"""Event files as TensorBoard reads them: names, pictures, and nothing twice after a resume or a roll-back."""

import builtins
import itertools
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from config import ConfigError
from gan.watching.health import Diagnosis
from gan.watching.tensorboard_log import TensorBoardLog

accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
GRID = np.arange(8 * 8 * 3, dtype=np.uint8).reshape(8, 8, 3)


@pytest.fixture(autouse=True)
def each_file_in_a_second_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers take files in the order of their names: the second they were begun in, then how manieth, 10 before 9."""
    began, asked = time.time(), itertools.count()
    monkeypatch.setattr(time, "time", lambda: began + next(asked))


def opened(folder: Path, step: int = 0, rows: Any = ()) -> TensorBoardLog:
    """A log as the monitor opens it: told where the run goes on, then given the rows up to there."""
    log = TensorBoardLog(folder, {"lr1": 0.5, "run": None, "data_path": os.fsdecode(b"\xc4")})
    log.rewind(step)
    for row in rows:
        log.row(row)
    return log


def row(step: int, loss: float) -> dict[str, float]:
    return {"step": step, "images_seen": 64 * step, "d_loss": loss}


def read(folder: Path) -> Any:
    events = accumulator.EventAccumulator(str(folder), size_guidance={accumulator.IMAGES: 0})
    events.Reload()
    return events


def losses(folder: Path) -> dict[int, float]:
    found = [(event.step, event.value) for event in read(folder).Scalars("d_loss")]
    steps = [step for step, _ in found]
    assert steps == sorted(set(steps))
    return dict(found)


def test_columns_keep_their_names_and_pictures_their_pixels(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.row(row(50, 0.25))
    log.picture("samples", "Samples", GRID, 50)
    log.close()
    events = read(tmp_path)
    assert sorted(events.Tags()["scalars"]) == ["d_loss", "images_seen"]
    assert losses(tmp_path) == {50: 0.25}
    (picture,) = events.Images("samples")
    assert (picture.step, picture.width, picture.height) == (50, 8, 8)
    assert b"lr1 | 0.5" in events.Tensors("options/text_summary")[0].tensor_proto.string_val[0]


def test_a_resumed_run_has_every_row_once(tmp_path: Path) -> None:
    log = opened(tmp_path)
    for step in (50, 100, 150):  # the last one is lost with the steps since the last save
        log.row(row(step, step / 4))
    log.close()
    log = opened(tmp_path, 100, [row(50, 12.5), row(100, 25.0)])
    log.row(row(150, 1.0))
    log.close()
    assert losses(tmp_path) == {50: 12.5, 100: 25.0, 150: 1.0}


def test_a_run_that_was_begun_without_it_has_its_earlier_rows(tmp_path: Path) -> None:
    log = opened(tmp_path / "tensorboard", 100, [row(50, 2.0), row(100, 3.0)])
    log.close()
    assert losses(tmp_path / "tensorboard") == {50: 2.0, 100: 3.0}


def test_a_killed_run_has_its_rows_and_goes_on_with_them(tmp_path: Path) -> None:
    log = opened(tmp_path)
    for step in (50, 100, 150):
        log.row(row(step, 1.0))
    assert losses(tmp_path) == {50: 1.0, 100: 1.0, 150: 1.0}  # nothing waits for being closed
    again = opened(tmp_path, 100, [row(50, 1.0), row(100, 1.0)])
    again.row(row(130, 2.0))
    again.close()
    log.close()
    assert losses(tmp_path) == {50: 1.0, 100: 1.0, 130: 2.0}


def test_what_is_rolled_back_is_taken_back(tmp_path: Path) -> None:
    log = opened(tmp_path)
    for step in (50, 100):
        log.row(row(step, 1.0))
    log.rewind(50)
    log.row(row(100, 2.0))
    log.close()
    assert losses(tmp_path) == {50: 1.0, 100: 2.0}


def test_other_readers_of_the_files_take_back_what_is_rolled_back(tmp_path: Path) -> None:
    plugin = pytest.importorskip("tensorboard.backend.event_processing.plugin_event_accumulator")
    log = opened(tmp_path)
    for step in (50, 100, 150):
        log.row(row(step, 1.0))
    log.rewind(50)
    log.row(row(100, 2.0))
    log.close()
    events = plugin.EventAccumulator(str(tmp_path))
    events.Reload()
    assert [event.step for event in events.Tensors("d_loss")] == [50, 100]


def test_what_is_rolled_back_takes_no_notice_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = opened(tmp_path)
    log.row(row(50, 1.0))

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(log.writer, "add_image", full)
    log.picture("samples", "Samples", GRID, 60)  # nobody asks for what there is to tell before the next row
    log.rewind(50)
    (told,) = log.row(row(100, 1.0))
    assert "No space left" in told


def test_a_verdict_that_is_rolled_back_is_written_again(tmp_path: Path) -> None:
    log = opened(tmp_path)
    verdict = Diagnosis("won", "short", "text")
    log.row(row(50, 1.0))
    log.diagnosis(verdict, 100)
    log.rewind(50)
    log.diagnosis(verdict, 150)
    log.close()
    assert 150 in [event.step for event in read(tmp_path).Tensors("how it is going/text_summary")]


def test_a_disk_that_fails_is_said_once_and_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = opened(tmp_path)
    log.row(row(25, 1.0))

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(log.writer, "add_scalar", full)
    (told,) = log.row(row(50, 1.0))
    assert "No space left" in told
    assert log.row(row(100, 1.0)) == []
    log.picture("samples", "Samples", GRID, 100)
    log.close()
    assert losses(tmp_path) == {25: 1.0}


def test_without_the_package_it_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **options: Any) -> Any:
        if name.startswith("torch.utils.tensorboard"):
            raise ModuleNotFoundError(name="tensorboard")
        return real(name, *rest, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match=r"requirements-extra\.txt"):
        TensorBoardLog(tmp_path, {})
    assert list(tmp_path.iterdir()) == []
