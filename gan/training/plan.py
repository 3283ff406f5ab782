"""What minutes buy on this machine, and how the learning rates go along them."""

from __future__ import annotations

import dataclasses
import itertools
import statistics
import time
from collections.abc import Mapping
from typing import Any

import torch

from config import Precision, TrainConfig
from gan.device import adam, autocast, compile_fixed, free_memory, layout, out_of_memory, place
from gan.presets import FEW, PLANS, Plan
from gan.training import losses
from model import Discriminator, Generator

WARM_UP = 0.05
"""Share of a leg after the first over which the learning rates rise from 0: the networks had settled."""

MEASURED_SECONDS, MEASURED_SHARE, LEAST_STEPS = 3.0, 0.02, 2
"""How long the machine is measured, at most what share of the budget that is, and how many steps it is at least."""

COMPILE_SECONDS = 1200
"""Runs that take longer are tried with compiled networks, which takes about a minute."""

TRAINING_SHARE = 0.9
"""Of the speed of a bare step this is left: penalties, averages, previews, saves and measurements take the rest."""


@dataclasses.dataclass(frozen=True)
class Leg:
    """The training that one budget pays for; the learning rates reach 0 at its end. Another budget begins another one.

    Args:
        step: the step after which it began.
        seconds: the run's training time when it began; earlier by what the preparation of its sittings took.
    """

    step: int = 0
    seconds: float = 0.0

    def done(self, seconds: float, allowed: float) -> float:
        """The share of it that is done.

        Args:
            seconds: the run's training time so far.
            allowed: seconds it may take.
        """
        return (seconds - self.seconds) / max(allowed, 1e-9)

    def rates(self, done: float, anneal: float) -> float:
        """The share of the learning rates to take when the share `done` of it is done.

        What the networks do at a constant rate is circle round each other; as it falls they settle.

        Args:
            done: see `done`.
            anneal: share of the leg, its last part, over which they fall to 0 in a line.
        """
        falling = min(1.0, (1 - done) / anneal) if anneal else 1.0
        rising = min(1.0, done / WARM_UP) if self.step else 1.0
        return max(0.0, min(falling, rising))


@dataclasses.dataclass(frozen=True)
class Chosen:
    """What was chosen for a budget.

    Args:
        plan: the row of the table.
        config: the run's config with its options, those typed excepted.
        rate: images/s of the default networks on this machine, measured.
        images: images that the chosen networks will see in the budget, about.
    """

    plan: Plan
    config: TrainConfig
    rate: float
    images: float


def choose(
    config: TrainConfig,
    typed: Mapping[str, Any],
    device: torch.device,
    precision: Precision,
    seconds: float,
    faces: int,
    world: int = 1,
) -> Chosen:
    """Choose the options for a budget by how many images this machine can be trained on in it.

    Args:
        config: the run's config.
        typed: the options the user typed, which win.
        device: what it trains on.
        precision: what it computes in.
        seconds: what is left of the budget.
        faces: faces to train on, at least as many as a batch has.
        world: processes that share the work, each on a device like this one.
    """
    spent = min(MEASURED_SECONDS, MEASURED_SHARE * seconds)
    rate = TRAINING_SHARE * world * _rate_that_fits(config, device, precision, spent, world)
    for plan in reversed([plan for plan in PLANS if plan.least_images <= rate * seconds]):
        own = {name: value for name, value in plan.options.items() if name not in typed}
        chosen = dataclasses.replace(config, **own)
        if not own:
            return Chosen(plan, config, rate, rate * seconds)
        if chosen.batch_size > faces or chosen.batch_size % world:
            continue
        try:
            rate_chosen = TRAINING_SHARE * world * images_per_second(chosen, device, precision, spent, world)
            return Chosen(plan, chosen, rate, rate_chosen * seconds)
        except (RuntimeError, MemoryError) as error:  # the row before is for smaller networks
            if not out_of_memory(error):
                raise
        free_memory(device)
    raise AssertionError("the first row of the table changes nothing and takes any machine")


def _rate_that_fits(
    config: TrainConfig, device: torch.device, precision: Precision, seconds: float, world: int
) -> float:
    """Images/s, of smaller batches where the memory holds no more: in training they go through in parts."""
    while True:
        try:
            return images_per_second(config, device, precision, seconds, world)
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error) or config.batch_size % (2 * world):
                raise
        free_memory(device)
        config = dataclasses.replace(config, batch_size=config.batch_size // 2)


def compile_pays(config: TrainConfig, device: torch.device, precision: Precision, images: float) -> str | None:
    """Compile the networks and measure whether that saves more of a run's time than it costs.

    Args:
        config: the run's config.
        device: what it trains on.
        precision: what it computes in.
        images: images that it will see.

    Returns:
        What it saves, in words; None where it does not pay, or does not work on this machine.
    """
    plain = images_per_second(config, device, precision, MEASURED_SECONDS)
    if images / plain < COMPILE_SECONDS:
        return None
    since = time.perf_counter()
    try:
        compiled = images_per_second(config, device, precision, MEASURED_SECONDS, compiled=True)
    except Exception:  # no compiler, or one that fails: of any kind, and training can do without
        return None
    cost = time.perf_counter() - since
    if images / plain < images / compiled + cost:
        return None
    return f"{compiled / plain:.2f} times as fast for {cost:.0f} s at the start"


def for_few(config: TrainConfig, typed: Mapping[str, Any], faces: int) -> dict[str, Any]:
    """The options that suit training old weights further on so many faces, those typed excepted.

    The discriminator soon knows few faces by heart and then teaches the generator to copy them; what it cannot change,
    and faces that never look quite the same twice, put that off.

    Args:
        config: the run's config.
        typed: the options the user typed, which win.
        faces: faces to train on.
    """
    if config.init is None or config.preset != "default":
        return {}
    row = next((row for row in FEW if faces <= row.most_faces), None)
    return {} if row is None else {name: value for name, value in row.options.items() if name not in typed}


def images_per_second(
    config: TrainConfig,
    device: torch.device,
    precision: Precision,
    seconds: float,
    world: int = 1,
    compiled: bool = False,
) -> float:
    """The speed of bare training steps on one of `world` parts of a batch, without loader and penalty: the median."""
    plain = place(Generator(config.model), device), place(Discriminator(config.model), device)
    generator, discriminator = (compile_fixed(network) for network in plain) if compiled else plain
    look = compile_fixed(plain[1].encode) if compiled else plain[1].encode
    g_optimizer, d_optimizer = (adam(network.parameters(), 0.0, (0.0, 0.99), device) for network in plain)
    n, size = config.batch_size // world, config.image_size
    z = torch.zeros(n, config.nz, device=device)
    real = torch.zeros(n, config.channels, size, size, device=device).contiguous(memory_format=layout(device))

    def move(optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        loss.detach().item()  # waits for the device

    took, began = [], time.perf_counter()
    for step in itertools.count():
        since = time.perf_counter()
        plain[1].requires_grad_(True)
        with autocast(device, precision):
            with torch.set_grad_enabled(config.share_samples):
                fake = generator(z).float()
                fake_seen = look(fake)
            with torch.no_grad():
                real_seen = look(real)
            seen = [torch.cat([one, other.detach()]) for one, other in zip(real_seen, fake_seen, strict=True)]
            logits = discriminator(torch.cat([real, fake.detach()]), seen).chunk(2)
            loss = losses.discriminator_loss(config.loss, *logits)
        move(d_optimizer, loss)
        plain[1].requires_grad_(False)
        with autocast(device, precision):
            if not config.share_samples:
                fake = generator(z).float()
                fake_seen = look(fake)
            real_logits = None
            if config.loss in losses.COMPARING:
                with torch.no_grad():
                    real_logits = discriminator(real, real_seen)
            loss = losses.generator_loss(config.loss, real_logits, discriminator(fake, fake_seen))
        move(g_optimizer, loss)
        if step:  # the first is slower
            took.append(time.perf_counter() - since)
        if len(took) >= LEAST_STEPS and time.perf_counter() - began > seconds:
            break
    return n / statistics.median(took)
