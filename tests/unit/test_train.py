"""The loop: which network moves when, that previews change nothing, the way back from a loss that is no number."""

import contextlib
import dataclasses
import itertools
import json
import math
import os
import signal
import tempfile
import time
import types
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import nn
from torch.linalg import LinAlgError  # pyright: ignore[reportAttributeAccessIssue]

import train
from config import SYNTHETIC, CheckpointError, ConfigError, DataError, Metric, TrainConfig
from gan import checkpoint
from gan.data import batches as batches_module
from gan.data.batches import Batches
from gan.data.faces import Pack
from gan.device import autocast
from gan.images import save_picture, to_pixels
from gan.quality import features, whole_faces
from gan.quality.evaluation import Evaluator
from gan.training import between, choices, display, ema, losses, start
from gan.training.budget import evaluated_last
from gan.training.ranks import Ranks
from gan.training.run import Cycle, Run, TrainingState, with_own_classes
from gan.training.session import checkpoint_to_resume, run_lock, stop_signals
from gan.training.step import WrappedNetworks
from gan.watching import health
from gan.watching import monitor as monitor_module
from gan.watching.monitor import Monitor
from model import Discriminator, Projected

CPU = torch.device("cpu")
CONFIG = TrainConfig(image_size=32, ngf=4, ndf=4, nz=8, batch_size=4, max_epoch=2, plot_every=0)


SAVE_SECONDS = train.SAVE_SECONDS  # as users have it


@pytest.fixture(autouse=True)
def _no_saves_by_the_clock_and_quick_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train, "SAVE_SECONDS", 3600.0)
    monkeypatch.setattr(between, "STATISTICS_BATCH", 16)


@pytest.fixture
def pack(tmp_path: Path) -> Pack:
    pixels = np.random.default_rng(0).integers(0, 256, (18, 32, 32, 3), np.uint8)
    return Pack(pixels, np.array([zlib.crc32(face) for face in pixels], np.uint32), 0, tmp_path)


@pytest.fixture
def every_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of log.jsonl for each step."""
    monkeypatch.setattr(train, "LOG_EVERY", 1)


def run_in(folder: Path, config: TrainConfig) -> Run:
    run = Run(folder, config, CPU, "fp32", {"digest": "", "training": 18, "held_out": 0, "rejected": 0})
    run.write_config()
    return run


def trained(run: Run, batches: Batches, stopping: Callable[[], bool] = lambda: False) -> TrainingState:
    state = TrainingState(run.config, CPU)
    with contextlib.closing(Monitor(run.folder, run.config, len(batches))) as monitor:
        train.train(run, state, batches, monitor, stopping)
    return state


def weights(network: torch.nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in network.parameters()])


def every(pack: Pack, config: TrainConfig = CONFIG, codes: np.ndarray | None = None) -> Batches:
    return Batches(pack, np.arange(18), config.batch_size, config.seed, CPU, codes=codes)


VOCABULARY = (("hair", "black", "red"), ("eyes", "blue"))
CODES = np.stack([np.arange(18) % 3, np.arange(18) % 2], axis=1)


@pytest.mark.parametrize(("d_every", "g_every", "d_moves", "g_moves"), [(1, 99, True, False), (99, 1, False, True)])
def test_each_step_moves_its_own_network_only(
    pack: Pack, tmp_path: Path, d_every: int, g_every: int, d_moves: bool, g_moves: bool
) -> None:
    config = dataclasses.replace(CONFIG, d_every=d_every, g_every=g_every)
    first = TrainingState(config, CPU)
    state = trained(run_in(tmp_path / "run", config), every(pack))
    assert torch.equal(weights(first.discriminator), weights(state.discriminator)) is not d_moves
    assert torch.equal(weights(first.generator), weights(state.generator)) is not g_moves
    assert all(p.requires_grad for p in state.discriminator.parameters())


def test_a_selection_too_small_for_a_batch_is_told_of_the_option_that_made_it(
    pack: Pack, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = choices.Faces(pack, np.arange(18), np.arange(0))
    monkeypatch.setattr(start, "open_faces", lambda _: few)
    monkeypatch.setattr(choices, "select_faces", lambda *_: np.arange(18) < 3)
    said = "^3 faces to train on, fewer than a batch of 4; add --typical=1 for all 18 or lower --batch_size$"
    config = dataclasses.replace(CONFIG, batch_size=4, classes=False)
    rest: Any = (None, Ranks(), None, 0.0)
    with pytest.raises(DataError, match=said):
        start.settle(config, {"data_path": config.data_path}, *rest)


def test_a_run_resumed_from_inside_its_folder_has_the_folders_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine/samples").mkdir(parents=True)
    checkpoint.save(tmp_path / "mine/latest.pt", {"step": 0})
    for place, resume in (("mine", "."), ("mine", "latest.pt"), ("mine/samples", ".."), (".", "mine")):
        monkeypatch.chdir(tmp_path / place)
        assert checkpoint_to_resume(resume).parent.name == "mine"


@pytest.mark.parametrize(
    ("budget", "anneal", "share"), [(None, 0.5, 1.0), (1e9, 0.5, 1.0), (1e9, 0.0, 1.0), (4.0, 1.0, 0.75)]
)
def test_both_optimizers_take_the_share_that_the_budget_leaves(
    pack: Pack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, budget: float | None, anneal: float, share: float
) -> None:
    config = dataclasses.replace(CONFIG, lr1=1e-3, lr2=2e-3, anneal=anneal, budget=budget, max_epoch=2)
    monkeypatch.setattr(between, "CLOSING_SECONDS", 0.0)
    monkeypatch.setattr(Monitor, "seconds", property(lambda self: 60.0))
    run = run_in(tmp_path / "run", config)
    state = TrainingState(config, CPU)
    batches = every(pack, config)
    state.step = 8  # as if taken up again before the last step
    run.save(state, 0)

    with contextlib.closing(Monitor(run.folder, config, len(batches), 8)) as monitor:
        train.train(run, state, batches, monitor, lambda: False)

    rates = [group["lr"] for o in (state.g_optimizer, state.d_optimizer) for group in o.param_groups]
    assert rates == pytest.approx([share * 1e-3, share * 2e-3])


def test_previews_and_saves_change_nothing(pack: Pack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Monitor, "may_preview", lambda _: True)  # they cost more than their share here
    calm = run_in(tmp_path / "calm", CONFIG)
    busy = run_in(tmp_path / "busy", dataclasses.replace(CONFIG, plot_every=1, save_every=1))
    trained(busy, every(pack))
    trained(calm, every(pack))
    assert len(list((busy.folder / "samples").iterdir())) == 10
    a, b = (checkpoint.load(run.latest) for run in (calm, busy))
    for part in ("generator", "discriminator", "ema"):
        assert all(torch.equal(a[part][name], b[part][name]) for name in a[part]), part


def test_what_is_gone_on_with_is_saved_before_anything_can_happen_to_it(pack: Pack, tmp_path: Path) -> None:
    run, state = run_in(tmp_path / "run", CONFIG), TrainingState(CONFIG, CPU)
    state.step = 3  # from a numbered checkpoint, and no latest.pt
    saved = []

    def stopping() -> bool:
        saved.append(checkpoint.load(run.latest)["step"])
        return True

    with contextlib.closing(Monitor(run.folder, run.config, 18, 3)) as monitor:
        train.train(run, state, every(pack), monitor, stopping)
    assert set(saved) == {3}


def test_one_of_several_processes_does_not_die_of_a_signal_before_it_has_said_why_it_ends(tmp_path: Path) -> None:
    found = (getattr(signal, name, None) for name in ("SIGINT", "SIGTERM", "SIGHUP"))  # Windows lacks the last
    before = {number: signal.getsignal(number) for number in found if number is not None}
    try:
        with pytest.raises(ValueError, match="lost"), stop_signals(tmp_path, patient=True):
            raise ValueError("lost")
        for number in before:
            os.kill(os.getpid(), number)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_a_run_is_asked_to_end_by_its_terminal_s_end_unless_that_is_to_be_ignored(tmp_path: Path) -> None:
    hang_up = getattr(signal, "SIGHUP", None)
    if hang_up is None:
        return  # Windows
    before = signal.getsignal(hang_up)
    try:
        signal.signal(hang_up, signal.SIG_DFL)
        with stop_signals(tmp_path) as asked:
            os.kill(os.getpid(), hang_up)
            assert asked()
        signal.signal(hang_up, signal.SIG_IGN)  # nohup
        with stop_signals(tmp_path) as asked:
            os.kill(os.getpid(), hang_up)
            assert not asked()
    finally:
        signal.signal(hang_up, before)


def test_faces_lie_in_memory_as_their_device_wants_them(pack: Pack, monkeypatch: pytest.MonkeyPatch) -> None:
    assert every(pack)(1).is_contiguous(memory_format=torch.channels_last)
    monkeypatch.setattr(batches_module, "layout", lambda _: torch.contiguous_format)  # Apple's
    assert every(pack)(1).is_contiguous()


def test_ctrl_break_asks_a_run_to_end_on_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signal, "SIGBREAK", signal.SIGUSR1, raising=False)
    with stop_signals(tmp_path) as asked:
        os.kill(os.getpid(), signal.SIGUSR1)
        assert asked()


def test_ctrl_c_is_answered_at_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGINT)
    try:
        with stop_signals(tmp_path) as asked:
            os.kill(os.getpid(), signal.SIGINT)
            assert asked()
            assert "stopping: this step ends and is saved" in capfd.readouterr().err
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def test_who_takes_up_a_single_checkpoint_is_alone_too(tmp_path: Path) -> None:
    (tmp_path / ".mine.txt.1.txt").touch()  # in a folder of somebody's
    alone = pytest.raises(ConfigError, match="is being trained by another process")
    with run_lock(tmp_path), alone, run_lock(tmp_path):
        pass
    assert (tmp_path / ".mine.txt.1.txt").exists()


def test_networks_that_are_no_numbers_are_not_previewed(
    pack: Pack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    previewed: list[tuple[int, bool]] = []
    monkeypatch.setattr(train, "preview", lambda _, state, *rest: previewed.append((state.step, state.is_finite())))
    monkeypatch.setattr(Monitor, "may_preview", lambda *_: True)
    batches = SometimesNotANumber(pack, np.arange(18), 4, 0, CPU)
    batches.fails = (5,)
    run = run_in(tmp_path / "run", dataclasses.replace(CONFIG, plot_every=2, max_epoch=3))
    with contextlib.closing(Monitor(run.folder, run.config, 18)) as monitor:
        train.train(run, TrainingState(run.config, CPU), batches, monitor, lambda: False)
    assert previewed == [(2, True), (4, True), *((step, True) for step in (2, 4, 6, 8, 10, 12)), (14, True)]


def test_no_state_to_go_back_to_is_said(pack: Pack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_in(tmp_path / "run", CONFIG)
    (run.latest / "in the way").mkdir(parents=True)
    monkeypatch.setattr(Monitor, "row", lambda *_: False)  # the loss is no number
    with pytest.raises(ConfigError, match=r"was not a number at step \d+, and no earlier state could be saved"):
        trained(run, every(pack))


def test_a_numbered_checkpoint_that_cannot_be_written_ends_no_run(
    pack: Pack, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_in(tmp_path / "run", dataclasses.replace(CONFIG, save_every=1))
    (run.folder / "step-00000009.pt" / "in the way").mkdir(parents=True)
    assert trained(run, every(pack)).step == 9
    assert checkpoint.load(run.latest)["step"] == 9
    assert f"{run.latest} is good" in capsys.readouterr().out


def test_a_last_state_that_cannot_be_saved_in_its_place_is_saved_in_another(
    pack: Pack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_in(tmp_path / "run", CONFIG)
    spare = tmp_path / "spare"
    spare.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(spare))

    def stopping() -> bool:
        if run.latest.is_file():
            run.latest.unlink()
            (run.latest / "in the way").mkdir(parents=True)
        return False

    with pytest.raises(CheckpointError, match=r"the last state is in .*latest\.pt: when there is room move it to"):
        trained(run, every(pack), stopping)
    (saved,) = spare.glob("run-*/latest.pt")
    assert checkpoint.load(saved)["step"] == 9


def test_minutes_that_the_computer_slept_do_not_count(
    pack: Pack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run, slept = run_in(tmp_path / "run", dataclasses.replace(CONFIG, budget=4.0)), [0.0]

    class Sleeps(Batches):
        def __call__(self, step: int) -> torch.Tensor:
            slept[0] += 300.0 if step == 5 else 0.0
            return super().__call__(step)

    looks = itertools.count()  # a millisecond goes by from each look at the clock to the next
    monkeypatch.setattr(time, "perf_counter", lambda: next(looks) / 1000 + slept[0])
    with contextlib.closing(Monitor(run.folder, run.config, 18)) as monitor:
        state = TrainingState(run.config, CPU)
        train.train(run, state, Sleeps(pack, np.arange(18), 4, 0, CPU), monitor, lambda: False)
        assert state.step == 9  # else the budget had ended it
        assert monitor.seconds < 60
    assert "a step took 5 min;" in capsys.readouterr().out


def test_slow_steps_have_a_row_each(pack: Pack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_in(tmp_path / "run", CONFIG)
    monkeypatch.setattr(monitor_module, "ROW_SECONDS", 0.0)
    with contextlib.closing(Monitor(run.folder, run.config, 18)) as monitor:
        train.train(run, TrainingState(run.config, CPU), every(pack), monitor, lambda: False)
    rows = [json.loads(line) for line in (run.folder / "log.jsonl").read_text().splitlines()]
    assert len(rows) > 1
    assert [row["step"] for row in rows] == [*range(1, len(rows) + 1)]


@pytest.mark.usefixtures("every_row")
def test_roll_backs_count_from_the_last_good_state(pack: Pack, tmp_path: Path) -> None:
    run = run_in(tmp_path / "run", dataclasses.replace(CONFIG, max_epoch=6, save_every=1))
    batches = SometimesNotANumber(pack, np.arange(18), 4, 0, CPU)
    batches.fails = (2, 7, 12, 16, 20)  # a save between any two of them
    with contextlib.closing(Monitor(run.folder, run.config, 18)) as monitor:
        state = TrainingState(run.config, CPU)
        train.train(run, state, batches, monitor, lambda: False)
    assert (state.step, state.retries) == (27, 5)


@pytest.mark.usefixtures("every_row")
def test_a_save_that_failed_is_no_good_state_to_count_from(
    pack: Pack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_in(tmp_path / "run", dataclasses.replace(CONFIG, max_epoch=6, save_every=1))
    write, asked = Run.save, list[int]()

    def full(self: Run, state: TrainingState, seconds: float, path: Path | None = None) -> None:
        asked.append(state.step)
        if len(asked) > 1:
            raise CheckpointError("no space left")
        write(self, state, seconds, path)

    class NeverANumber(Batches):
        seen = fails = 0

        def __call__(self, step: int) -> torch.Tensor:
            self.seen += step == 11
            nan = (step == 20 or (step == 11 and self.seen % 2)) and self.fails < 12
            self.fails += nan
            return super().__call__(step) * (float("nan") if nan else 1)

    batches = NeverANumber(pack, np.arange(18), 4, 0, CPU)
    monkeypatch.setattr(Run, "save", full)
    with pytest.raises(ConfigError, match="after 3 attempts from the last good state"):
        trained(run, batches)
    assert batches.fails == 4


def test_a_page_begins_with_the_samples_of_before(tmp_path: Path) -> None:
    run, samples = run_in(tmp_path / "run", CONFIG), tmp_path / "run" / "samples"
    samples.mkdir()
    assert [output.pictures for output in display.opened_outputs(run)] == [{}]
    grids = {5: 40, 1000: 200}
    for step, shade in grids.items():
        save_picture(np.full((8, 16, 3), shade, np.uint8), samples / f"step-{step:08d}.png")
    (samples / "step-00002000 (copy).png").touch()
    (report,) = display.opened_outputs(run)
    title, grid, _ = report.pictures["samples"]
    assert title == "Samples of step 1,000, before the run was resumed"
    assert (grid == 200).all()
    (samples / "step-00003000.png").write_bytes(b"cut short")
    assert display.opened_outputs(run)[0].pictures == {}


def test_a_measurement_in_which_the_computer_slept_does_not_count(
    pack: Pack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    slept, clock, times = [0.0], time.perf_counter, list[int]()

    class SleepingEvaluator:
        best, since, seconds = None, 0, 0.1
        chosen, extractor = np.arange(9), types.SimpleNamespace(name="eyes")

        def cost(self) -> float:
            return self.seconds

        def measure(self) -> dict[str, float]:
            times.append(1)
            slept[0] += 500.0 if len(times) == 3 else 0.0
            self.seconds = 500.0 if len(times) == 3 else 0.1
            return {"fd": 1.0, "coverage": 1.0, "damage_x100": 0.5}

        def is_best(self, found: object, fds: object) -> bool:
            return False

    monkeypatch.setattr(time, "perf_counter", lambda: clock() + slept[0])
    monkeypatch.setattr(Monitor, "may_measure", lambda *_: True)
    run, evaluator = (
        run_in(tmp_path / "run", dataclasses.replace(CONFIG, max_epoch=2, eval_images=4)),
        SleepingEvaluator(),
    )
    with contextlib.closing(Monitor(run.folder, run.config, 18)) as monitor:
        train.train(
            run, TrainingState(run.config, CPU), every(pack), monitor, lambda: False, cast(Evaluator, evaluator)
        )
        assert monitor.seconds < 400
    assert "a measurement took 8 min;" in capsys.readouterr().out
    assert evaluator.seconds < 100  # the next one is not put off for it


def test_once_asked_to_stop_a_run_measures_no_more(pack: Pack, tmp_path: Path) -> None:
    run, asked = run_in(tmp_path / "run", dataclasses.replace(CONFIG, eval_images=4)), list[int]()
    evaluator = types.SimpleNamespace(best=None, cost=lambda: asked.append(1) or 0.0)
    with contextlib.closing(Monitor(run.folder, run.config, 18)) as monitor:
        state = TrainingState(run.config, CPU)
        train.train(run, state, every(pack), monitor, lambda: True, cast(Evaluator, evaluator))
    assert state.step == 1
    assert asked == []


def test_a_run_too_short_to_be_measured_does_not_estimate_what_that_takes(
    pack: Pack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[int]()
    run = run_in(tmp_path / "run", dataclasses.replace(CONFIG, max_epoch=1, eval_images=4))
    evaluator = types.SimpleNamespace(best=None, cost=lambda: asked.append(1) or 1e6)
    with contextlib.closing(Monitor(run.folder, run.config, 18)) as monitor:
        state = TrainingState(run.config, CPU)
        train.train(run, state, every(pack), monitor, lambda: False, cast(Evaluator, evaluator))
        assert asked == []
        monkeypatch.setattr(between, "ESTIMATE_SECONDS", -1.0)
        assert between.evaluate(run, state, cast(Evaluator, evaluator), monitor) == {}
    assert asked == [1]


@pytest.mark.parametrize(
    ("budget", "best", "seconds", "measured"),
    [(3, None, 36, True), (3, None, 37, False), (3, {}, 90, True), (3, {}, 91, False), (None, None, 0.1, False)],
)
def test_a_finished_run_is_measured_where_its_budget_has_the_time(
    budget: float | None, best: dict[str, float] | None, seconds: float, measured: bool
) -> None:
    evaluator = cast(Evaluator, types.SimpleNamespace(best=best, cost=lambda: seconds))
    assert evaluated_last(dataclasses.replace(CONFIG, budget=budget), evaluator) == measured


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("out of memory"), LinAlgError("singular")])
def test_a_budget_goes_on_where_a_measurement_cannot_be_estimated(pack: Pack, error: Exception) -> None:
    def fail(*_: object, **__: object) -> None:
        tried.append(error)
        raise error

    tried: list[Exception] = []
    evaluator = Evaluator(
        pack, np.arange(2), np.arange(0), cast(Any, fail), cast(Any, types.SimpleNamespace(faces=fail)), "fd"
    )
    cast(Any, fail).damage, cast(Any, fail).device = fail, CPU
    for _ in range(2):
        assert not evaluated_last(dataclasses.replace(CONFIG, budget=3), evaluator)
    assert len(tried) == 1  # not again in each step
    assert evaluator.cost() == math.inf


def test_no_hint_is_looked_for_that_nobody_reads(pack: Pack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_in(tmp_path / "run", dataclasses.replace(CONFIG, save_every=1))
    state = trained(run, every(pack))
    read, found = checkpoint._read, list[str]()
    monkeypatch.setattr(checkpoint, "_read", lambda path, *rest: found.append(path.name) or read(path, *rest))
    with contextlib.closing(Monitor(run.folder, run.config, 18)) as monitor:
        assert "quality was not measured" in "".join(display.summary(run, state, monitor))
        (run.folder / "best.pt").write_bytes(b"damaged")
        display.summary(run, state, monitor)
    assert found == ["best.pt", "best.pt"]
    with pytest.raises(CheckpointError, match=r"the newest usable file beside it is .*\.pt"):
        checkpoint.load(run.folder / "best.pt")


def test_few_faces_do_not_fill_the_disk_with_numbered_checkpoints() -> None:
    def every_after(n: int, device: torch.device = CPU, **typed: int) -> int:
        pack = Pack(np.zeros((n, 1, 1, 3), np.uint8), np.zeros(n, np.uint32), 0, Path())
        faces = choices.Faces(pack, np.arange(n), np.arange(0))
        return choices.suited(TrainConfig(), typed, faces, device, anime=True).save_every

    assert every_after(32) == 625
    assert every_after(30_000) == 10
    assert every_after(30_000, torch.device("cuda")) == 17
    assert every_after(32, save_every=10) == 10


def test_old_numbered_checkpoints_go_but_no_others(pack: Pack, tmp_path: Path) -> None:
    config = dataclasses.replace(CONFIG, batch_size=9, save_every=1)  # two steps an epoch
    run, state = run_in(tmp_path / "run", config), TrainingState(config, CPU)
    others = ["step-00000002 (copy).pt", "step-good.pt"]
    for name in others:
        (run.folder / name).touch()
    for state.step in range(2, 32, 2):
        run.save_numbered(state, 0.0)
    numbered = [f"step-{step:08d}.pt" for step in (20, 26, 28, 30)]  # the tenth epoch's, and the last three
    assert sorted(path.name for path in run.folder.glob("step-*.pt")) == sorted([*numbered, *others])


def test_asking_the_networks_changes_nothing(pack: Pack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Monitor, "may_preview", lambda _: True)
    monkeypatch.setattr(health, "LEAST_PROBED", 2)
    monkeypatch.setattr(health, "ASKED_EVERY", 2)
    config = dataclasses.replace(CONFIG, d_norm="batch", penalty="none", plot_every=1)  # BatchNorm would learn from it
    states = []
    for name in ("asked", "left alone"):
        run = run_in(tmp_path / name, config)
        state, batches = TrainingState(config, CPU), every(pack)
        probe = start.open_probe(choices.Faces(pack, np.arange(9), np.arange(9, 18))) if name == "asked" else None
        with contextlib.closing(Monitor(run.folder, config, len(batches))) as monitor:
            train.train(run, state, batches, monitor, lambda: False, None, probe)
        assert state.discriminator.training
        rows = [json.loads(line) for line in (run.folder / "log.jsonl").read_text().splitlines()]
        assert any("held_out_logit" in row for row in rows) == (name == "asked")
        states.append(state)
    for part in ("generator", "discriminator", "ema"):
        one, other = (getattr(state, part).state_dict() for state in states)
        assert all(torch.equal(one[name], other[name]) for name in one), part


def test_samples_are_compared_with_those_of_a_full_interval_ago(
    pack: Pack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Monitor, "may_preview", lambda _: True)
    monkeypatch.setattr(Monitor, "preview_overdue", lambda _: True)  # as on a slow machine: a preview each step
    run, probed = run_in(tmp_path / "run", dataclasses.replace(CONFIG, plot_every=4)), list[int]()
    state, batches = TrainingState(run.config, CPU), every(pack)

    class Probe(health.Probe):
        def __call__(self, *of: Any) -> dict[str, float]:
            probed.append(state.step)
            return super().__call__(*of)

    faces = np.zeros((9, 32, 32, 3), np.uint8)
    probe = Probe(faces, faces)
    with contextlib.closing(Monitor(run.folder, run.config, len(batches))) as monitor:
        train.train(run, state, batches, monitor, lambda: False, None, probe)
    assert len(list((run.folder / "samples").iterdir())) == state.step + 1
    assert probed == [0, *range(4, state.step, 4), state.step]


def test_the_average_is_what_is_saved_with_statistics_of_its_own(pack: Pack, tmp_path: Path) -> None:
    run = run_in(tmp_path / "run", CONFIG)
    state = trained(run, every(pack))
    saved = checkpoint.load(run.latest)["ema"]
    variances = [name for name in saved if name.endswith("running_var")]
    assert variances
    assert all(not torch.equal(saved[name], state.generator.state_dict()[name]) for name in variances)
    assert not torch.equal(weights(state.ema), weights(state.generator))


class SometimesNotANumber(Batches):
    """Faces that are not a number in one step, the first time it comes."""

    fails: tuple[int, ...] = (7,)

    def __call__(self, step: int) -> torch.Tensor:
        images = super().__call__(step)
        if step in self.fails:
            self.fails = tuple(s for s in self.fails if s != step)
            return images * float("nan")
        return images


@pytest.mark.usefixtures("every_row")
def test_a_loss_that_is_not_a_number_rolls_back_and_training_ends_well(pack: Pack, tmp_path: Path) -> None:
    run = run_in(tmp_path / "run", dataclasses.replace(CONFIG, save_every=1))
    state = trained(run, SometimesNotANumber(pack, np.arange(18), 4, 0, CPU))
    assert (state.step, state.retries) == (9, 1)
    assert state.is_finite()
    rows = [json.loads(row) for row in (run.folder / "log.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == list(range(1, 10))
    assert checkpoint.load(run.latest)["retries"] == 1


@pytest.mark.usefixtures("every_row")
def test_after_a_roll_back_other_random_numbers_are_drawn(pack: Pack, tmp_path: Path) -> None:
    calm = trained(run_in(tmp_path / "calm", CONFIG), every(pack))
    batches = SometimesNotANumber(pack, np.arange(18), 4, 0, CPU)
    batches.fails = (1,)
    rolled = trained(run_in(tmp_path / "rolled", CONFIG), batches)
    assert rolled.step == calm.step
    assert not torch.equal(weights(calm.generator), weights(rolled.generator))


@pytest.mark.usefixtures("every_row")
def test_a_roll_back_does_not_forget_the_minutes_that_were_added(pack: Pack, tmp_path: Path) -> None:
    config = dataclasses.replace(CONFIG, budget=1e9)
    run = run_in(tmp_path / "run", config)
    trained(run, every(pack))
    state = TrainingState(config, CPU)
    state.load(checkpoint.load(run.latest), run.latest)
    assert state.finished
    state.begin_cycle(100.0)
    batches = SometimesNotANumber(pack, np.arange(18), 4, 0, CPU)
    batches.fails = (11,)
    longer = dataclasses.replace(run, config=dataclasses.replace(config, max_epoch=3))

    with contextlib.closing(Monitor(run.folder, run.config, 18, state.step, 100.0)) as monitor:
        train.train(longer, state, batches, monitor, lambda: False)

    assert (state.step, state.retries) == (14, 1)
    assert state.cycle == Cycle(9, 100.0)
    assert checkpoint.load(run.latest)["cycle"] == {"step": 9, "seconds": 100.0}


def test_minutes_that_were_added_are_saved_at_once(pack: Pack, tmp_path: Path) -> None:
    config = dataclasses.replace(CONFIG, budget=1e9)
    run = run_in(tmp_path / "run", config)
    state = trained(run, every(pack))
    state.begin_cycle(100.0)
    steps = []

    class Watched(Batches):
        def __call__(self, step: int) -> torch.Tensor:
            steps.append(checkpoint.load(run.latest)["cycle"]["step"])
            return super().__call__(step)

    longer = dataclasses.replace(run, config=dataclasses.replace(config, max_epoch=3))
    with contextlib.closing(Monitor(run.folder, run.config, 18, state.step, 100.0)) as monitor:
        train.train(longer, state, Watched(pack, np.arange(18), 4, 0, CPU), monitor, lambda: False)
    assert steps == [9] * 5


@pytest.mark.usefixtures("every_row")
def test_three_roll_backs_are_the_most(pack: Pack, tmp_path: Path) -> None:
    class Never(Batches):
        def __call__(self, step: int) -> torch.Tensor:
            return super().__call__(step) * float("nan")

    run = run_in(tmp_path / "run", CONFIG)
    with pytest.raises(ConfigError, match=r"after 3 attempts .* lower --lr1 \(0\.0006\)"):
        trained(run, Never(pack, np.arange(18), 4, 0, CPU))
    assert checkpoint.load(run.latest)["step"] == 0


def test_weights_that_are_not_numbers_are_never_saved(pack: Pack, tmp_path: Path) -> None:
    """The last step's loss is a number, but the gradient spoils the weights: only a look at them tells."""

    class Spoils(Batches):
        spoilt: Any = None

        def __call__(self, step: int) -> torch.Tensor:
            if step == 5 and self.spoilt is None:
                self.spoilt = True
                next(state.generator.parameters()).register_hook(lambda grad: grad * float("nan"))
            return super().__call__(step)

    config = dataclasses.replace(CONFIG, save_every=1)
    run = run_in(tmp_path / "run", config)
    state = TrainingState(config, CPU)
    batches = Spoils(pack, np.arange(18), 4, 0, CPU)
    with contextlib.closing(Monitor(run.folder, run.config, 18)) as monitor, pytest.raises(ConfigError):
        train.train(run, state, batches, monitor, lambda: False)
    assert all(torch.isfinite(w).all() for w in checkpoint.load(run.latest)["generator"].values())


def test_numbered_checkpoints_are_the_last_three_and_every_tenth(pack: Pack, tmp_path: Path) -> None:
    config = dataclasses.replace(CONFIG, batch_size=18, max_epoch=24, save_every=1, projected=False)
    run = run_in(tmp_path / "run", config)
    trained(run, Batches(pack, np.arange(18), 18, 0, CPU))
    assert [int(p.stem[5:]) for p in sorted(run.folder.glob("step-*.pt"))] == [10, 20, 22, 23, 24]


def test_a_state_is_saved_though_no_memory_is_left_for_its_statistics(
    pack: Pack, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_in(tmp_path / "run", CONFIG)
    state = trained(run, every(pack))
    before = checkpoint.load(run.latest)

    def check(network: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    state.ema.register_forward_pre_hook(check)
    run.latest.unlink()
    state.step += 1  # for which there are none yet
    with contextlib.closing(Monitor(None, run.config, 18)) as monitor:
        assert between.save(run, state, monitor)
    assert "out of memory: the averaged generator's new BatchNorm statistics skipped" in capsys.readouterr().out
    after = checkpoint.load(run.latest)
    assert after["step"] == state.step
    assert all(torch.equal(value, before["ema"][name]) for name, value in after["ema"].items())


def test_statistics_are_estimated_once_for_a_step_and_again_after_going_back(
    pack: Pack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, steps = run_in(tmp_path / "run", dataclasses.replace(CONFIG, plot_every=1, save_every=1)), list[int]()
    state, estimate = TrainingState(run.config, CPU), ema.estimate_statistics

    def estimated(*given: Any) -> None:
        steps.append(state.step)
        estimate(*given)

    monkeypatch.setattr(ema, "estimate_statistics", estimated)
    batches = every(pack)
    with contextlib.closing(Monitor(run.folder, run.config, 18)) as monitor:
        train.train(run, state, batches, monitor, lambda: False)
        last = state.step
        assert {0, last // 2 + 1, last} <= set(steps)  # saved, and the first and the last of them previewed as well
        assert len(set(steps)) == len(steps)

        found = {name: value.clone() for name, value in state.ema.state_dict().items()}
        for value in state.ema.parameters():
            value.data.add_(1)
        state.load(checkpoint.load(run.latest), run.latest)  # as after a loss that is not a number
        between.averaged(run, state)
    assert steps[-2:] == [last, last]
    assert all(torch.equal(value, found[name]) for name, value in state.ema.state_dict().items())


@pytest.mark.parametrize("d_norm", ["none", "batch"])
@pytest.mark.parametrize("shared", [True, False])
def test_samples_are_generated_once_a_step_where_both_networks_share_them(
    pack: Pack, tmp_path: Path, shared: bool, d_norm: Any
) -> None:
    arch = "dcgan" if shared else "book"
    config = dataclasses.replace(CONFIG, arch=arch, projected=False, translate=1.0, d_norm=d_norm, penalty="none")
    run, state = run_in(tmp_path / "run", config), TrainingState(config, CPU)
    generated, shown = list[torch.Tensor](), list[torch.Tensor]()
    state.generator.register_forward_hook(lambda network, inputs, faces: generated.append(faces.detach().clone()))
    state.discriminator.register_forward_pre_hook(lambda network, inputs: shown.append(inputs[0].detach().clone()))
    with contextlib.closing(Monitor(run.folder, run.config, 18)) as monitor:
        train.train(run, state, every(pack), monitor, lambda: False)
    assert len(generated) == state.step * (1 if shared else 2)
    calls = 4 if d_norm == "batch" else 3  # samples apart from the faces: BatchNorm must not mix them
    assert len(shown) == state.step * calls
    for call in range(0, len(shown), calls):
        fakes, reals = (torch.cat(shown[call : call + calls - 2])[half] for half in (slice(4, 8), slice(0, 4)))
        assert torch.equal(fakes, shown[call + calls - 2]) is shared
        assert torch.equal(reals, shown[call + calls - 1]) is shared  # else shifted in other ways


@pytest.mark.parametrize(("d_every", "penalty_every"), [(1, 4), (2, 4), (3, 2), (4, 2)])
def test_penalties_come_so_often_among_the_steps_of_the_discriminator(
    pack: Pack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, d_every: int, penalty_every: int
) -> None:
    config = dataclasses.replace(CONFIG, d_every=d_every, penalty_every=penalty_every, max_epoch=4)
    run, state = run_in(tmp_path / "run", config), TrainingState(config, CPU)
    times: list[int] = []
    penalties = losses.gradient_penalties

    def counted(*args: Any) -> dict[str, torch.Tensor]:
        times.append(state.step)
        return penalties(*args)

    monkeypatch.setattr(losses, "gradient_penalties", counted)
    with contextlib.closing(Monitor(run.folder, run.config, 18)) as monitor:
        train.train(run, state, every(pack), monitor, lambda: False)
    assert state.step == 18
    assert len(set(times)) == 18 // d_every // penalty_every
    assert len(times) == 4 * len(set(times))  # at pictures, and of each head at what it sees


@pytest.mark.usefixtures("every_row")
@pytest.mark.parametrize(("changed", "columns"), [({}, 2), ({"head_penalty": 0.0}, 0), ({"projected": False}, 0)])
def test_heads_are_penalised_where_there_are_any_and_that_is_wanted(
    pack: Pack, tmp_path: Path, changed: dict[str, Any], columns: int
) -> None:
    config = dataclasses.replace(CONFIG, penalty_every=1, **changed)
    trained(run_in(tmp_path / "run", config), every(pack))
    rows = [json.loads(row) for row in (tmp_path / "run/log.jsonl").read_text().splitlines()]
    for row in rows:
        assert len(row.keys() & {"head_r1_penalty", "head_r2_penalty"}) == columns
        assert row.keys() >= {"r1_penalty", "r2_penalty"}


def test_a_penalty_on_heads_moves_them_alone(pack: Pack, tmp_path: Path) -> None:
    config = dataclasses.replace(CONFIG, penalty_every=1, lr1=0.0)
    states = [
        trained(run_in(tmp_path / f"{weight:g}", dataclasses.replace(config, head_penalty=weight)), every(pack))
        for weight in (1e-9, 10.0)  # both ask the heads equally often, which moves their spectral norms
    ]
    without, with_it = (state.discriminator for state in states)
    assert torch.equal(weights(without.main), weights(with_it.main))
    faces = torch.rand(4, 3, 32, 32)

    def steepness(heads: Projected | None) -> float:
        assert heads is not None
        features, random = heads.encode(faces), torch.Generator().manual_seed(0)
        moved = [one + 0.1 * torch.randn(one.shape, generator=random) for one in features]
        return float((heads(features) - heads(moved)).square().mean().detach())

    assert steepness(with_it.projected) < steepness(without.projected)


def test_samples_that_are_asked_to_look_whole_come_to_look_so(pack: Pack, tmp_path: Path) -> None:
    config = dataclasses.replace(CONFIG, lr1=3e-3, lr2=0.0, projected=False, penalty="none")
    scorer, z = whole_faces.scorer(CPU, "fp32"), torch.randn(64, 8, generator=torch.Generator().manual_seed(1))
    scores = []
    for weight in (0.0, 100.0):
        run = run_in(tmp_path / f"{weight:g}", dataclasses.replace(config, whole=weight))
        generator = trained(run, every(pack)).generator
        with torch.no_grad():
            scores.append(scorer(generator(z, torch.zeros(64, 0, dtype=torch.int64))).mean().item())
    assert scores[1] > scores[0] + 0.1


def test_frozen_weights_are_kept_in_low_precision_and_no_number_changes() -> None:
    run = Run(Path(), dataclasses.replace(CONFIG, whole=1.0), CPU, "bf16", {})
    state, faces = TrainingState(run.config, CPU), torch.rand(2, 3, 32, 32, requires_grad=True)

    def seen(encode: Callable[[torch.Tensor], list[torch.Tensor]], whole: Any) -> list[torch.Tensor]:
        with autocast(CPU, "bf16"):
            found = [*encode(faces), whole(faces)]
        return [*found, *torch.autograd.grad(torch.stack([one.float().sum() for one in found]), faces, torch.ones(4))]

    exact = seen(state.discriminator.encode, whole_faces.scorer(CPU, "fp32"))
    saved = {name: weight.clone() for name, weight in state.discriminator.state_dict().items()}
    networks = WrappedNetworks.of(run, state)
    for mine, other in zip(seen(networks.encode, networks.whole), exact, strict=True):
        assert torch.equal(mine, other)
    heads = state.discriminator.projected
    assert heads is not None
    assert {weight.dtype for weight in heads.encoder.buffers()} == {torch.bfloat16}
    for name, weight in state.discriminator.state_dict().items():
        assert weight.dtype == saved[name].dtype
        assert torch.equal(weight, saved[name])


def test_a_step_that_does_not_fit_names_the_batch_to_try(pack: Pack, tmp_path: Path) -> None:
    config = dataclasses.replace(CONFIG, projected=False)
    run, state = run_in(tmp_path / "run", config), TrainingState(config, CPU)

    def check(network: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        if len(inputs[0]) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory.")

    state.generator.register_forward_pre_hook(check)
    monitor = contextlib.closing(Monitor(run.folder, run.config, 18))
    explaining = start.explaining_errors
    with monitor as watch, pytest.raises(ConfigError, match=r"--batch_size=2$"), explaining(config, CPU):
        train.train(run, state, every(pack), watch, lambda: False)
    with pytest.raises(ConfigError, match="--ngf"), explaining(dataclasses.replace(config, batch_size=2), CPU):
        raise MemoryError


def test_a_preview_without_memory_is_skipped_and_training_continues(
    pack: Pack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Monitor, "may_preview", lambda _: True)
    run = run_in(tmp_path / "run", dataclasses.replace(CONFIG, projected=False, plot_every=3))
    state = TrainingState(run.config, CPU)

    def check(network: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    state.ema.register_forward_pre_hook(check)
    with contextlib.closing(Monitor(run.folder, run.config, 18)) as monitor:
        train.train(run, state, every(pack), monitor, lambda: False)
    assert state.step == 9
    assert "out of memory: preview of step 3 skipped" in capsys.readouterr().out
    assert not list((run.folder / "samples").glob("*.png"))
    assert state.discriminator.training
    assert checkpoint.load(run.latest)["step"] == 9


@pytest.mark.parametrize("layers", [0, 2])
def test_frozen_layers_keep_their_weights_and_names(pack: Pack, tmp_path: Path, layers: int) -> None:
    config = dataclasses.replace(CONFIG, freeze=layers)
    before = TrainingState(config, CPU).discriminator.state_dict()
    after = trained(run_in(tmp_path / "run", config), every(pack)).discriminator.state_dict()
    assert after.keys() == before.keys() == Discriminator(config.model).state_dict().keys()
    kept = {name for name in before if name.startswith("main.") and torch.equal(before[name], after[name])}
    assert kept == {f"main.{layer}.{what}" for layer in (0, 2)[:layers] for what in ("weight", "bias")}


def test_a_run_that_leaves_its_budget_has_its_rates_again(pack: Pack, tmp_path: Path) -> None:
    state = TrainingState(CONFIG, CPU)
    state.scale_rates(0.0)
    run = run_in(tmp_path / "run", CONFIG)
    with contextlib.closing(Monitor(run.folder, run.config, 18)) as monitor:
        train.train(run, state, every(pack), monitor, lambda: False)
    assert [o.param_groups[0]["lr"] for o in (state.g_optimizer, state.d_optimizer)] == [CONFIG.lr1, CONFIG.lr2]


class TestBatches:
    def test_parts_are_the_batch(self, pack: Pack) -> None:
        whole = Batches(pack, np.arange(18), 4, 0, CPU, 0.5)
        halves = [Batches(pack, np.arange(18), 4, 0, CPU, 0.5, Ranks(rank, 2).part(4)) for rank in range(2)]
        for step in range(1, 8):
            assert torch.equal(whole(step), torch.cat([half(step) for half in halves]))

    def test_classes_come_with_their_faces(self, pack: Pack) -> None:
        chosen = np.arange(2, 18)
        batches = Batches(pack, chosen, 4, 0, CPU, codes=CODES)
        halves = [Batches(pack, chosen, 4, 0, CPU, 0.0, Ranks(rank, 2).part(4), CODES) for rank in range(2)]
        of = {pixels.tobytes(): codes.tolist() for pixels, codes in zip(pack.pixels, CODES, strict=True)}
        for step in range(1, 8):
            classes = batches.classes(step)
            assert [of[pixels.tobytes()] for pixels in to_pixels(batches(step))] == classes.tolist()
            assert torch.equal(classes, torch.cat([half.classes(step) for half in halves]))
        assert every(pack).classes(1).shape == (4, 0)

    def test_every_face_comes_once_an_epoch_and_in_another_order_each(self, pack: Pack) -> None:
        batches = every(pack)
        seen = np.concatenate([batches.indices(step) for step in range(1, 10)])  # 9 steps of 4: two epochs of 18
        assert sorted(seen[:18]) == sorted(seen[18:]) == list(range(18))
        assert list(seen[:18]) != list(seen[18:])

    def test_a_step_has_the_same_faces_whatever_came_before(self, pack: Pack) -> None:
        a, b = every(pack), every(pack)
        for step in range(1, 8):
            a.indices(step)
        assert list(a.indices(5)) == list(b.indices(5))

    def test_faces_that_lie_on_the_device_are_the_same(self, pack: Pack, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(batches_module, "LOT", 4)
        mapped = Batches(pack, np.arange(1, 18), 4, 0, CPU, 0.5)
        monkeypatch.setattr(batches_module, "has_room", lambda *_: True)
        resident = Batches(pack, np.arange(1, 18), 4, 0, CPU, 0.5)
        assert resident.resident is not None
        assert all(torch.equal(mapped(step), resident(step)) for step in range(1, 10))

    def test_only_the_chosen_faces_come(self, pack: Pack) -> None:
        batches = Batches(pack, np.array([3, 5, 7, 11]), 4, 0, CPU)
        real = batches(1)
        expected = {pack.pixels[i].tobytes() for i in (3, 5, 7, 11)}
        found = {((face + 1) * 127.5).round().to(torch.uint8).permute(1, 2, 0).numpy().tobytes() for face in real}
        assert found == expected

    def test_grey_faces_have_the_strides_of_their_layout(self, pack: Pack, monkeypatch: pytest.MonkeyPatch) -> None:
        pixels = np.ascontiguousarray(pack.pixels[..., :1])
        grey = dataclasses.replace(pack, pixels=pixels, hashes=np.array([zlib.crc32(face) for face in pixels]))
        for wanted in (torch.channels_last, torch.contiguous_format):
            monkeypatch.setattr(batches_module, "layout", lambda _, wanted=wanted: wanted)
            faces = Batches(grey, np.arange(18), 4, 0, CPU)(1)
            assert faces.stride() == torch.empty(faces.shape, memory_format=wanted).stride()

    def test_as_many_faces_are_mirrored_as_asked_and_the_same_ones_again(self, pack: Pack) -> None:
        plain, mirrored, always = (Batches(pack, np.arange(18), 4, 0, CPU, flip) for flip in (0.0, 0.3, 1.0))
        mirrors = []
        for step in range(1, 501):
            faces, found, turned = plain(step), mirrored(step), always(step)
            assert torch.equal(turned, faces.flip(-1))
            mirrors += [torch.equal(a, b) for a, b in zip(found, turned, strict=True)]
            assert all(torch.equal(a, b) or torch.equal(a, c) for a, b, c in zip(found, faces, turned, strict=True))
        assert np.mean(mirrors) == pytest.approx(0.3, abs=0.051)  # 5 deviations of 2,000 draws
        assert torch.equal(Batches(pack, np.arange(18), 4, 0, CPU, 0.3)(7), mirrored(7))

    def test_steps_and_epochs_count_faces(self, pack: Pack) -> None:
        batches = every(pack)
        assert [batches.steps(epochs) for epochs in (1, 2)] == [5, 9]
        assert [batches.epochs(step) for step in (4, 5, 9)] == [0, 1, 2]


@pytest.mark.parametrize("metric", ["fd", "damage_x100"])
def test_what_was_best_before_is_known_by_the_chosen_metric_and_the_same_features(
    metric: Metric, tmp_path: Path, pack: Pack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start, "LEAST", 2)
    config = dataclasses.replace(TrainConfig(), best_by=metric, ngf=8, ndf=8)
    run, state = Run(tmp_path / "run", config, CPU, "fp32", {}), TrainingState(config, CPU)

    def best_after(content: dict[str, Any] | None) -> float | None:
        if content is not None:
            checkpoint.save(run.folder / "best.pt", {"step": 9, **content})
        faces = choices.Faces(pack, np.arange(2), np.arange(0))
        evaluator = start.open_evaluator(run, state, faces, checkpoint.best_so_far(run.folder))
        assert evaluator is not None
        assert evaluator.metric == (metric or "fd")
        return None if evaluator.best is None else evaluator.best[evaluator.metric]

    name = features.load("imagenet", CPU).name
    values = {"fd": 3.0, "recall": 0.5, "damage_x100": 2.0}
    assert best_after(None) is None
    assert best_after({"evaluation": {"features": name, **values}}) == values[metric or "fd"]
    assert best_after({"evaluation": {"features": "faces 0", **values}}) is None
    assert best_after({"evaluation": values}) is None
    assert best_after({"something": 1}) is None


def test_anime_faces_are_kept_by_damage_and_samples_asked_to_look_whole(
    tmp_path: Path, pack: Pack, monkeypatch: pytest.MonkeyPatch
) -> None:
    def settled(known: bool, **options: Any) -> TrainConfig:
        def load(extractor: features.Extractor) -> object:
            return types.SimpleNamespace(extractor=extractor, knows=lambda seen: known)

        monkeypatch.setattr(choices.whole_faces, "load", load)
        config = dataclasses.replace(TrainConfig(data_path=tmp_path), **options)
        few = choices.Faces(pack, np.arange(18), np.arange(0))
        return choices.suited(config, {}, few, CPU, choices.is_anime(config, few, CPU))

    assert settled(True).best_by == "fd"  # too few to be measured
    assert settled(False, whole=0.5).whole == 0.5
    assert [settled(known).whole for known in (True, False)] == [1, 0]
    assert settled(True, data_path=SYNTHETIC).whole == settled(True, whole=0.0).whole == 0
    monkeypatch.setattr(choices, "LEAST", 2)
    assert settled(True).best_by == "damage_x100"
    assert settled(False).best_by == "fd"
    assert settled(True, data_path=SYNTHETIC).best_by == "fd"
    assert settled(True, eval_images=0).best_by == "fd"


def test_classes_of_the_same_name_go_on_in_other_networks() -> None:
    before = TrainingState(dataclasses.replace(CONFIG, vocabulary=VOCABULARY), CPU).discriminator
    for name, weight in before.named_parameters():
        if "classes" in name:
            nn.init.normal_(weight)
    other = (("eyes", "brown", "blue"), ("mood", "calm"), ("hair", "red"))
    after = TrainingState(dataclasses.replace(CONFIG, vocabulary=other), CPU).discriminator
    given = before.state_dict()
    after.load_state_dict(with_own_classes(given, after.state_dict(), VOCABULARY, other))
    found = after.state_dict()
    for module in ("projected.classes.0", "projected.classes.1", "projected.classes.2"):
        eyes, mood, hair = (found[f"{module}.{column}.weight"] for column in range(3))
        assert torch.equal(eyes[2], given[f"{module}.1.weight"][1])
        assert torch.equal(hair[1], given[f"{module}.0.weight"][2])
        assert not torch.cat([eyes[:2], mood, hair[:1]]).any()
    plain = TrainingState(CONFIG, CPU).discriminator
    plain.load_state_dict(with_own_classes(given, plain.state_dict(), VOCABULARY, ()))
