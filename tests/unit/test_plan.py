"""How the learning rates go along a run, and what is chosen for a budget."""

import dataclasses
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import numpy as np
import pytest
import torch

import train
from config import Arch, ConfigError, Precision, TrainConfig
from gan import threads
from gan.data.faces import Pack
from gan.presets import FEW, FEW_FACES, OTHER_STYLE, PLANS, Plan, resolve
from gan.training import choices, plan, start
from gan.training.budget import Budget
from gan.training.plan import Machine
from gan.training.ranks import Ranks
from gan.training.run import Cycle, Run
from gan.training.step import Step, StepFunction

SMALL = TrainConfig(image_size=32, ngf=4, ndf=4, nz=8, batch_size=4, budget=10)
CPU = torch.device("cpu")
STEPS = train.discriminator_step, train.generator_step
MACHINE = Machine(STEPS, CPU, "fp32")


@pytest.mark.parametrize(
    ("done", "share"), [(0, 1.0), (0.49, 1.0), (0.5, 1.0), (0.75, 0.5), (0.95, 0.1), (1, 0.0), (1.5, 0.0)]
)
def test_rates_fall_over_the_last_part_of_a_budget(done: float, share: float) -> None:
    assert Cycle().rates(done, anneal=0.5) == pytest.approx(share)
    assert Cycle().rates(done, anneal=0) == 1


def test_rates_rise_again_where_a_run_is_made_longer() -> None:
    again = Cycle(step=100, seconds=60)
    assert [again.rates(done, anneal=0.5) for done in (0, 0.025, 0.05, 0.5, 0.75, 1)] == pytest.approx(
        [0, 0.5, 1, 1, 0.5, 0]
    )


@pytest.mark.parametrize(
    ("cycle", "seconds", "share"),
    [(Cycle(), 30, 0.25), (Cycle(0, -12), 18, 0.25), (Cycle(100, 600), 660, 0.5), (Cycle(), 150, 1.25)],
)
def test_a_cycle_is_done_by_the_clock(cycle: Cycle, seconds: float, share: float) -> None:
    run: Any = SimpleNamespace(config=TrainConfig(budget=2.5), ranks=Ranks(0, 1))
    state: Any = SimpleNamespace(cycle=cycle)
    monitor: Any = SimpleNamespace(seconds=seconds)
    assert Budget(run, state, monitor, None, closing=30).spent() == pytest.approx(share)


def test_a_gpu_is_measured_with_the_batch_of_each_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = tuple(
        Plan(least_images=n, options={"batch_size": b}, expect=f"{b}") for n, b in ((0, 4), (9e4, 8), (2e5, 16))
    )
    monkeypatch.setattr(plan, "PLANS", rows)
    measured = list[int]()

    def speed(config: TrainConfig, *rest: object) -> float:  # a step takes as long whatever its batch
        measured.append(config.batch_size)
        return 250.0 * config.batch_size

    monkeypatch.setattr(plan, "images_per_second", speed)
    gpu = dataclasses.replace(MACHINE, device=torch.device("cuda"))
    chosen = plan.choose(SMALL, {}, gpu, 60, 1000)  # 54,000 images at the default batch, 216,000 at 16
    assert (chosen.config.batch_size, chosen.images) == (16, pytest.approx(216_000))
    assert plan.choose(SMALL, {}, gpu, 30, 1000).config.batch_size == 4  # 27,000 at 4, 54,000 at 8: too few
    measured.clear()
    assert plan.choose(SMALL, {}, MACHINE, 60, 1000).config.batch_size == 4
    assert measured == [4, 4]  # a CPU gains nothing by a batch, and would take long to measure a large one


def test_the_faster_precision_of_a_gpu_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    rates: dict[str, float] = {"bf16": 100.0, "fp32": 120.0}

    def speed(config: TrainConfig, machine: Machine, seconds: float) -> float:
        if not (rate := rates[machine.precision]):
            raise torch.OutOfMemoryError("out of memory")
        return rate

    monkeypatch.setattr(plan, "images_per_second", speed)
    assert plan.faster_precision(SMALL, MACHINE) == "fp32"
    rates["bf16"] = 120.0
    assert plan.faster_precision(SMALL, MACHINE) == "bf16"
    rates |= {"bf16": 1.0, "fp32": 0.0}  # does not fit
    assert plan.faster_precision(SMALL, MACHINE) == "bf16"
    rates["bf16"] = 0.0
    assert plan.faster_precision(SMALL, MACHINE) == "bf16"


def test_an_evaluation_is_slower_where_steps_have_become_slower() -> None:
    run: Any = SimpleNamespace(config=TrainConfig(budget=10), ranks=Ranks(0, 1))
    state: Any = SimpleNamespace(cycle=Cycle())
    monitor: Any = SimpleNamespace(seconds=300, usual={})
    evaluator: Any = SimpleNamespace(best=None, cost=lambda: evaluator.seconds, seconds=20.0)
    budget = Budget(run, state, monitor, evaluator, closing=10)
    for step, reserved in ((None, 30), (0.2, 30), (0.5, 75), (0.1, 15), (9.0, 150)):  # no more than five times
        monitor.usual = {} if step is None else {"step": step}
        assert budget.spent() == pytest.approx(300 / (600 - reserved))
    evaluator.seconds = 60.0  # measured again, at this pace
    assert budget.spent() == pytest.approx(300 / (600 - 70))


def test_a_machine_that_is_busy_for_a_moment_is_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    rates, busy = iter([10.0, 200.0, 150.0, 1.0]), iter([True, True, True, False])
    monkeypatch.setattr(plan, "_images_per_second", lambda *_: next(rates))
    monkeypatch.setattr(threads, "crowded", lambda: next(busy))
    assert plan.images_per_second(SMALL, MACHINE, 1.0) == 200.0  # three times at most
    assert next(rates) == 1.0
    monkeypatch.setattr(plan, "_images_per_second", lambda *_: 7.0)
    monkeypatch.setattr(threads, "crowded", lambda: False)
    assert plan.images_per_second(SMALL, MACHINE, 1.0) == 7.0


def test_the_row_is_chosen_by_the_images_that_the_budget_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = (
        Plan(least_images=0, options={"ngf": 4, "ndf": 4}, expect="little"),
        Plan(least_images=30_000, options={"batch_size": 8}, expect="more"),
        Plan(least_images=1e6, options={"ngf": 16, "ndf": 16}, expect="most"),
    )
    monkeypatch.setattr(plan, "PLANS", rows)
    monkeypatch.setattr(plan, "images_per_second", lambda config, *rest: 800 / config.ngf)  # 4: 200

    start = TrainConfig(ngf=4, ndf=4)
    few = plan.choose(start, {}, MACHINE, 60, 1000)  # 0.9 * 200 * 60 = 10,800
    more = plan.choose(start, {}, MACHINE, 600, 1000)
    most = plan.choose(start, {"ndf": 4}, MACHINE, 6000, 1000)

    assert [chosen.plan.expect for chosen in (few, more, most)] == ["little", "more", "most"]
    assert (few.config.ngf, few.config.batch_size) == (4, 32)
    assert (more.config.ngf, more.config.batch_size) == (4, 8)
    assert (most.config.ngf, most.config.ndf, most.config.batch_size) == (16, 4, 32)
    assert more.images == pytest.approx(0.9 * 200 * 600)
    assert most.images == pytest.approx(0.9 * 50 * 6000)  # of the chosen networks, not of the default ones


def test_a_budget_that_is_spent_already_chooses_the_first_row() -> None:
    assert plan.choose(SMALL, {}, MACHINE, 0.0, 1000).plan == PLANS[0]


def test_a_batch_larger_than_the_set_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = tuple(Plan(least_images=n, options={"batch_size": n} if n else {}, expect=f"{n}") for n in (0, 64, 128))
    monkeypatch.setattr(plan, "PLANS", rows)
    monkeypatch.setattr(plan, "images_per_second", lambda *a: 1e6)
    chosen = [plan.choose(SMALL, {}, MACHINE, 60, faces) for faces in (200, 100, 50)]
    assert [of.config.batch_size for of in chosen] == [128, 64, SMALL.batch_size]


def test_networks_that_do_not_fit_into_memory_are_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = tuple(Plan(least_images=n - 4, options={"ngf": n} if n > 4 else {}, expect=f"{n}") for n in (4, 8, 16))
    monkeypatch.setattr(plan, "PLANS", rows)

    def speed(config: TrainConfig, *rest: object) -> float:
        if config.ngf == 16:
            raise torch.OutOfMemoryError("out of memory")
        return 1e6

    monkeypatch.setattr(plan, "images_per_second", speed)
    assert plan.choose(SMALL, {}, MACHINE, 60, 1000).config.ngf == 8


def test_a_budget_for_the_books_networks_chooses_no_block_that_they_lack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "images_per_second", lambda *_: 1e9)
    chosen = [
        plan.choose(dataclasses.replace(SMALL, arch=arch), {}, MACHINE, 60, 1000).config for arch in get_args(Arch)
    ]
    assert [(of.arch, of.fine) for of in chosen] == [(arch, arch != "book") for arch in get_args(Arch)]


def test_networks_for_which_a_driver_lends_slow_memory_are_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = tuple(Plan(least_images=n - 4, options={"ngf": n} if n > 4 else {}, expect=f"{n}") for n in (4, 8, 16))
    monkeypatch.setattr(plan, "PLANS", rows)
    monkeypatch.setattr(plan, "images_per_second", lambda config, *_: 1e4 if config.ngf == 16 else 1e6)
    assert plan.choose(SMALL, {}, MACHINE, 60, 1000).config.ngf == 8


@pytest.mark.parametrize(("asked", "chosen"), [("auto", "fp32"), ("bf16", "bf16")])
def test_gpus_of_different_generations_compute_in_fp32(
    monkeypatch: pytest.MonkeyPatch, asked: Precision, chosen: str
) -> None:
    monkeypatch.setattr(start, "choose_precision", lambda *_: "bf16")  # another one's is fp32
    ranks: Any = SimpleNamespace(world=2, all_reduce_max=lambda *_: (1.0,))
    settled = Run(Path(), dataclasses.replace(SMALL, precision=asked), CPU, "bf16", {})
    assert start.open_run(settled, ranks, torch.device("cuda")).precision == chosen


@pytest.mark.parametrize(("budget", "times"), [(None, 1), (5.0, 0)])
def test_a_run_by_epochs_keeps_its_number_of_threads(
    monkeypatch: pytest.MonkeyPatch, budget: float | None, times: int
) -> None:
    class FarEnoughError(Exception):
        pass

    def choose_device(*_: object) -> torch.device:
        raise FarEnoughError

    fixed = list[None]()
    monkeypatch.setattr(threads, "fix", lambda: fixed.append(None))
    monkeypatch.setattr(start, "looked_up", lambda config, *_: (config, None, Path()))
    monkeypatch.setattr(start, "choose_device", choose_device)
    with pytest.raises(FarEnoughError):
        start.settle(dataclasses.replace(SMALL, budget=budget), {}, None, Ranks(), STEPS, 0.0)
    assert len(fixed) == times


@pytest.mark.parametrize(
    ("was", "precision", "now", "chosen"),
    [
        ("CPU, 2 threads, x86_64", "fp32", "cpu", "fp32"),
        ("CPU, 2 threads, x86_64", "bf16", "cpu", "bf16"),
        ("RTX 4060 (cuda)", "fp32", "cuda", "fp32"),  # it trained faster so
        ("RTX 4060 (cuda)", "bf16", "cuda", "new"),  # this may be an older one
        ("RTX 4060 (cuda)", "fp32", "cpu", "new"),
        ("CPU, 2 threads, x86_64", "fp32", "cuda", "new"),
    ],
)
def test_a_measured_precision_stays_when_a_run_goes_on(
    monkeypatch: pytest.MonkeyPatch, was: str, precision: str, now: str, chosen: str
) -> None:
    monkeypatch.setattr(start, "choose_precision", lambda *_: "new")
    before = {"device": was, "precision": precision}
    assert start.precision_of(before, SMALL, torch.device(now)) == chosen
    assert start.precision_of({}, SMALL, torch.device(now)) == "new"


def test_every_row_of_the_table_is_a_valid_config() -> None:
    assert PLANS[0].least_images == 0
    assert [row.least_images for row in PLANS] == sorted(row.least_images for row in PLANS)
    for row in PLANS:
        assert row.expect
        resolve(TrainConfig, {"budget": 10, **row.options})


def suited(n: int, anime: bool, **typed: Any) -> dict[str, Any]:
    """What `n` faces choose."""
    before = resolve(TrainConfig, {"eval_images": 0, "whole": 0, **typed})
    pack = Pack(np.zeros((n, 1, 1, 3), np.uint8), np.zeros(n, np.uint32), 0, Path())
    faces = choices.Faces(pack, np.arange(n), np.arange(0))
    after = dataclasses.asdict(choices.suited(before, {"save_every": 10, **typed}, faces, CPU, anime))
    return {name: value for name, value in after.items() if value != getattr(before, name)}


def test_few_faces_choose_more_changes_and_frozen_layers_for_old_weights(capsys: pytest.CaptureFixture[str]) -> None:
    def chosen(n: int = 400, anime: bool = True, **typed: Any) -> dict[str, Any]:
        return suited(n, anime, **typed)

    old: dict[str, Any] = {"init": Path("a.pt")}
    assert chosen(**old) == FEW
    assert FEW["freeze"] > 0
    assert FEW["colour"] > TrainConfig.colour
    assert chosen(**old, freeze=0) == {k: v for k, v in FEW.items() if k != "freeze"}
    assert chosen(FEW_FACES + 1, **old) == {}
    assert chosen() == {}
    assert chosen(**old, preset="book") == {}
    # The released generator learns another style at higher rates; weights of one's own may have learned it already.
    released: dict[str, Any] = {"init": Path("released")}
    assert chosen(**released) == chosen(**old, anime=False) == FEW
    assert chosen(**released, anime=False) == {**FEW, **OTHER_STYLE}
    assert chosen(**released, anime=False, lr1=1e-4)["lr2"] == OTHER_STYLE["lr2"] > TrainConfig.lr2
    assert "lr1" not in chosen(**released, anime=False, lr1=1e-4)
    assert "higher learning rates" in capsys.readouterr().out
    assert not chosen(**released, anime=False, lr1=1e-4, lr2=1e-4).keys() & OTHER_STYLE.keys()
    assert "higher learning rates" not in capsys.readouterr().out
    assert chosen(FEW_FACES + 1, **released, anime=False) == {}


def test_faces_that_gain_from_the_released_generator_are_told_so(capsys: pytest.CaptureFixture[str]) -> None:
    def told(n: int, anime: bool, **typed: Any) -> str:
        suited(n, anime, **typed)
        return capsys.readouterr().out

    assert "is a better start: --init=released --budget=10\n" in told(400, anime=True)
    assert "is a better start: --init=released --budget=60\n" in told(30_000, anime=True)
    assert "is a better start: --init=released\n" in told(30_000, anime=True, budget=5.0)
    assert "400 faces are few to learn from" in told(400, anime=False)
    assert "released" not in told(30_000, anime=False)
    assert "released" not in told(30_000, anime=True, image_size=64)  # it cannot start from it
    assert "released" not in told(400, anime=True, init=Path("a.pt"))


def test_what_few_faces_choose_is_a_valid_config() -> None:
    resolve(TrainConfig, FEW)


def test_speed_is_measured() -> None:
    small = plan.images_per_second(SMALL, MACHINE, seconds=0.2)
    large = plan.images_per_second(TrainConfig(image_size=96, batch_size=4), MACHINE, seconds=0.2)

    assert small > large > 0


def test_speed_is_that_of_the_steps_of_training_which_leave_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    taken: list[tuple[str, int]] = []
    weights: list[torch.Tensor] = []

    def counting(network: str, of: StepFunction) -> StepFunction:
        def counted(step: Step) -> None:
            assert not step.penalty_due
            of(step)
            taken.append((network, len(step.real)))
            weights.append(torch.cat([w.detach().flatten() for w in step.state.generator.parameters()]))

        return counted

    steps = counting("d", STEPS[0]), counting("g", STEPS[1])
    assert plan.images_per_second(dataclasses.replace(SMALL, d_every=2), Machine(steps, CPU, "fp32", 2), 0.0) > 0
    assert taken == [("d", 2), ("g", 2)] * (plan.LEAST_STEPS + 1)
    assert all(torch.equal(weights[0], others) for others in weights)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("whole", "faces", "image_size", "counted"),
    [(1.0, 10_000, 96, True), (0.0, 10_000, 96, False), (1.0, 9_999, 96, False), (1.0, 10_000, 48, False)],
)
def test_only_faces_like_those_that_were_counted_are_told_what_to_expect(
    whole: float,
    faces: int,
    image_size: int,
    counted: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = dataclasses.replace(SMALL, whole=whole, image_size=image_size)
    monkeypatch.setattr(plan, "images_per_second", lambda config, *rest: 30.0)
    choices.planned(config, {}, MACHINE, time.perf_counter(), faces)
    told = capsys.readouterr().out
    assert "27 images/s measured" in told
    assert ("; expect " in told) == counted


@pytest.mark.parametrize(
    ("typed", "faces", "told"),
    [
        ({}, 30_000, "200 epochs, 6,000,000 images"),
        ({}, 5_000, ""),
        ({"max_epoch": 200}, 30_000, ""),
    ],
)
def test_a_run_that_takes_a_cpu_hours_is_said_to_unless_it_was_asked_for(
    typed: dict[str, Any], faces: int, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    choices.planned(TrainConfig(**typed), typed, MACHINE, time.perf_counter(), faces)
    said = capsys.readouterr().out
    assert told in said
    assert ("--budget=60" in said) == bool(told)


def test_a_budget_that_preparing_has_used_up_is_said_before_anything_is_trained() -> None:
    said = "^preparing the run took 0.97 minutes of --budget=1; .* run the same command again, which is faster"
    for preset in ("default", "book"):
        config = dataclasses.replace(SMALL, preset=preset, budget=1)
        with pytest.raises(ConfigError, match=said):
            choices.planned(config, {}, MACHINE, time.perf_counter() - 58, 1000)
