"""Steps of a training run do not wait for the GPU. `test_gpu.py` runs this on the stand-in for CUDA, which counts."""

import contextlib
import zlib
from pathlib import Path
from typing import Any

import null_cuda
import numpy as np
import pytest
import torch

import train
from config import TrainConfig
from gan.classes import Classes
from gan.data import batches
from gan.data.batches import Batches
from gan.data.faces import Pack
from gan.presets import resolve
from gan.training import between
from gan.training.run import Run, TrainingState
from gan.watching.monitor import Monitor

pytestmark = pytest.mark.usefixtures("gpu")

GPU = torch.device("cuda")
KINDS = ("hair", "blue", "red"), ("mood", "calm", "wild")
FACES = np.random.default_rng(0).integers(0, 256, (18, 32, 32, 3), np.uint8)
CODES = np.stack([np.arange(18) % 3, np.arange(18) % 2], axis=1)
ROWS = 3  # steps between rows of the log


class Counted(Batches):
    """Batches, with which steps begin; `counts` are those of each step and what follows it."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.counts: list[null_cuda.Counts] = []
        self.listening = contextlib.ExitStack()

    def __call__(self, step: int) -> torch.Tensor:
        self.listening.close()
        self.counts.append(self.listening.enter_context(null_cuda.counting()))
        return super().__call__(step)


@pytest.mark.parametrize(
    ("resident", "options"),
    [
        (True, {"vocabulary": KINDS, "whole": 1.0, "colour": 1.0, "translate": 1.0, "penalty_every": 2}),
        (False, {"preset": "wgan-gp"}),
    ],
    ids=["faces on the GPU", "faces in memory"],
)
def test_only_rows_of_the_log_wait_for_the_gpu(
    resident: bool, options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "has_room", lambda *_: resident)
    monkeypatch.setattr(train, "LOG_EVERY", ROWS)
    monkeypatch.setattr(train, "SAVE_SECONDS", 3600.0)
    monkeypatch.setattr(between, "STATISTICS_BATCH", 16)
    small = {"image_size": 32, "ngf": 8, "ndf": 8, "batch_size": 6, "plot_every": 0, "max_epoch": 2}
    config = resolve(TrainConfig, {**small, **options})
    pack = Pack(FACES, np.array([zlib.crc32(face) for face in FACES], np.uint32), 0, tmp_path)
    faces = {"digest": "", "training": 18, "held_out": 0, "rejected": 0}
    run = Run(tmp_path / "run", config, GPU, "bf16", faces, codes=CODES, classes=Classes.of(config.vocabulary, CODES))
    run.write_config()
    given = Counted(pack, np.arange(18), config.batch_size, 0, GPU, config.flip, codes=CODES)
    state = TrainingState(config, GPU)
    with given.listening, contextlib.closing(Monitor(run.folder, config, 18)) as monitor:
        train.train(run, state, given, monitor, lambda: False)
    assert state.step == len(given.counts) == 6
    waited = {step: dict(counts.waits + counts.down) for step, counts in enumerate(given.counts, 1)}
    assert {step: what for step, what in waited.items() if step % ROWS} == {1: {}, 2: {}, 4: {}, 5: {}}
    assert waited[3]
    assert waited[6]
