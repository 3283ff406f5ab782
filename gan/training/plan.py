"""Choosing options that suit a budget on this machine, whose speed is measured with real training steps."""

import dataclasses
import statistics
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from config import Precision, TrainConfig
from gan import threads
from gan.device import free_memory, layout, out_of_memory
from gan.presets import PLANS, Plan
from gan.training.run import Run, TrainingState
from gan.training.step import Step, Steps, WrappedNetworks
from gan.watching.monitor import Monitor

MEASURED_SECONDS, MEASURED_SHARE = 3.0, 0.02  # seconds to measure the machine, and the largest share of a budget for it
LEAST_STEPS = 2  # least number of steps in a measurement
TRAINING_SHARE = 0.9  # of a bare step's speed; the rest goes to penalties, averaging, previews, saves and evaluation
LEAST_RATE = 0.1  # of the default networks; slower ones do not fit into the GPU, and its driver lends other memory
GAIN_BY_BATCH = 4  # how many times as fast a GPU may become by the batch of a plan
NEVER = 2**62  # value of `penalty_every` for no penalties at all


@dataclasses.dataclass(frozen=True)
class Machine:
    """The steps of both networks, the device and the precision with which a run is trained."""

    steps: Steps
    device: torch.device
    precision: Precision
    world: int = 1  # number of processes that share the work, each on a device like this one


@dataclasses.dataclass(frozen=True)
class Chosen:
    """The options chosen for a budget."""

    plan: Plan
    config: TrainConfig  # the run's config with the plan's options, except those that were typed
    rate: float  # measured images/s of the default networks on this machine
    images: float  # images that the chosen networks will see within the budget, approximately


def choose(config: TrainConfig, typed: Mapping[str, Any], machine: Machine, seconds: float, faces: int) -> Chosen:
    """Choose options for the `seconds` left of a budget, by how many images this machine can process in that time.

    Each plan is measured with its own networks and batch: a GPU that waits for Python at the default batch does not at
    a larger one.
    """
    spent = min(MEASURED_SECONDS, MEASURED_SHARE * seconds)
    rate = TRAINING_SHARE * machine.world * images_per_second(config, machine, spent)
    within_reach = rate * seconds * (1 if machine.device.type == "cpu" else GAIN_BY_BATCH)
    for plan in reversed([plan for plan in PLANS if plan.least_images <= within_reach]):
        own = {name: value for name, value in plan.options.items() if name not in typed}
        if config.arch == "book":  # which has no such block
            own.pop("fine", None)
        chosen = dataclasses.replace(config, **own)
        if not own:
            return Chosen(plan, config, rate, rate * seconds)
        if chosen.batch_size > faces or chosen.batch_size % machine.world:
            continue
        try:
            rate_chosen = TRAINING_SHARE * machine.world * images_per_second(chosen, machine, spent)
            if rate_chosen > LEAST_RATE * rate and max(rate, rate_chosen) * seconds >= plan.least_images:
                return Chosen(plan, chosen, rate, rate_chosen * seconds)
        except (RuntimeError, MemoryError) as error:  # the previous plan has smaller networks
            if not out_of_memory(error):
                raise
        free_memory(machine.device)
    raise AssertionError("the first row of the table changes nothing and takes any machine")


def faster_precision(config: TrainConfig, machine: Machine) -> Precision:
    """Measure for two seconds which precision trains faster on a GPU that is good at both.

    In bf16 a step has half as many kernels again, so fp32 wins where the GPU waits for Python.
    """
    rates: dict[Precision, float] = {"bf16": 0.0, "fp32": 0.0}  # of equally fast ones the first, which is smaller
    for precision in rates:
        try:
            rates[precision] = images_per_second(config, dataclasses.replace(machine, precision=precision), 1.0)
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error):
                raise
        free_memory(machine.device)
    return max(rates, key=lambda precision: rates[precision])


def images_per_second(config: TrainConfig, machine: Machine, seconds: float) -> float:
    """Measure images/s of training steps without loading, penalties, averaging and writing. Leaves nothing behind.

    Measures one process's part of each batch, for `seconds` seconds and at least `LEAST_STEPS` steps. Where other
    programs keep the processors busy, it is measured up to three times, and the best counts: they may end soon.
    """
    rates = [_images_per_second(config, machine, seconds)]
    while len(rates) < 3 and threads.crowded():
        rates.append(_images_per_second(config, machine, seconds))
    return max(rates)


def _images_per_second(config: TrainConfig, machine: Machine, seconds: float) -> float:
    n, size = max(2, config.batch_size // machine.world), config.image_size
    config = dataclasses.replace(config, batch_size=n, d_every=1, g_every=1, penalty_every=NEVER)
    run = Run(Path(), config, machine.device, machine.precision, {})
    state, monitor = TrainingState(config, machine.device), Monitor(None, config, faces=n)
    state.scale_rates(0.0)
    networks = WrappedNetworks.of(run, state)
    real = torch.zeros(n, config.channels, size, size, device=machine.device)
    real = real.contiguous(memory_format=layout(machine.device))
    classes = torch.zeros(n, len(config.vocabulary), dtype=torch.int64, device=machine.device)
    took, began = [], time.perf_counter()
    while len(took) <= LEAST_STEPS or time.perf_counter() - began <= seconds:
        threads.adapt()
        since = time.perf_counter()
        state.step += 1
        step = Step(run, state, networks, monitor, real, classes)
        for take in machine.steps:
            take(step)
        monitor.means()  # waits for the device
        took.append(time.perf_counter() - since)
    return n / statistics.median(took[1:])  # the first step is slower
