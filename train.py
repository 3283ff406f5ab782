"""Train the generator: python train.py --gpu. The algorithm, in the order in which it runs; the loop is `train`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # which python -I and PYTHONSAFEPATH=1 leave out
from config import ConfigError, TrainConfig

# isort: split

import bdb
import contextlib
import dataclasses
import os
import pdb
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

from gan import images, latent, threads
from gan.command_line import command_line, log
from gan.data.batches import Batches
from gan.device import autocast, send
from gan.language import text
from gan.quality.evaluation import Evaluator
from gan.quality.sampling import BATCH
from gan.training import ema
from gan.training.between import epochs_due, evaluate, first_save, make_film, preview, save
from gan.training.budget import Budget
from gan.training.display import commands, opened_outputs, resumption, summary
from gan.training.losses import COMPARING, discriminator_loss, generator_loss
from gan.training.ranks import joined
from gan.training.rollback import RollBack
from gan.training.run import Run, TrainingState
from gan.training.session import stop_signals
from gan.training.start import Ready, begin
from gan.training.step import (
    Network,
    Step,
    View,
    WrappedNetworks,
    clip,
    discriminate,
    discriminate_pair,
    due,
    weighted_penalty,
    weighted_wholeness,
)
from gan.watching import health, tensorboard_log
from gan.watching.monitor import Monitor

LOG_EVERY, SAVE_SECONDS = 50, 120.0  # steps between rows of log.jsonl, and seconds between saves of latest.pt


def train(
    run: Run,
    state: TrainingState,
    batches: Batches,
    monitor: Monitor,
    stopping: Callable[[], bool],
    evaluator: Evaluator | None = None,
    probe: health.Probe | None = None,
) -> None:
    """Train to the end of the last epoch or of the budget, or until `stopping()`.

    A step is one of the discriminator's and one of the generator's, both with samples from `generate`, and an update of
    the averaged generator.
    """
    config, ranks, batch_size = run.config, run.ranks, run.config.batch_size  # of all processes together
    networks = WrappedNetworks.of(run, state)
    roll_back, saved = RollBack(run, state, monitor), time.monotonic()
    budget = Budget(run, state, monitor, evaluator, closing=first_save(run, state, monitor, probe))
    while True:
        if config.debug_file is not None and ranks.first and os.path.isfile(config.debug_file):
            since = time.perf_counter()
            pdb.Pdb(nosigint=True).set_trace()  # as in the book; Ctrl-C stays this program's
            monitor.skip(time.perf_counter() - since)  # the time in it is no training
        threads.adapt(monitor.log if run.device.type == "cpu" else None)
        state.scale_rates(budget.rates())
        state.step += 1
        with monitor.loading():
            real = batches(state.step)  # real faces (n, C, S, S) in [-1, 1]; with several processes, this one's part
        step = Step(run, state, networks, monitor, real, batches.classes(state.step))
        if due(state.step, config.d_every):
            discriminator_step(step)
        if due(state.step, config.g_every):
            generator_step(step)
            remain = ema.decay(batch_size * config.g_every, batch_size * state.step, config.ema_half_life_images)
            ema.update(state.ema, state.generator, remain)
        monitor.step_done()

        # Between steps: evaluate, log, preview, save. None of it affects the training.
        state.finished = state.step >= batches.steps(config.epochs) or budget.spent() >= 1
        if state.finished:
            monitor.finish()
        metrics = {} if stopping() else evaluate(run, state, evaluator, monitor)
        late = ranks.first and time.monotonic() - saved > SAVE_SECONDS
        agreed = ranks.all_reduce_max(state.finished, stopping(), late, bool(metrics), monitor.row_overdue())
        state.finished, stopped, late, evaluated, overdue = map(bool, agreed)
        ending, numbered = state.finished or stopped, epochs_due(batches, state.step, config.save_every)
        saving = ending or numbered or late
        if ranks.first and ending and state.is_finite():  # before the last row, which includes the probe's results
            preview(run, state, monitor, probe)
        if saving or evaluated or overdue or due(state.step, LOG_EVERY):
            healthy = monitor.row(state.step, batch_size * state.step, {**ranks.means(monitor.means()), **metrics})
            if roll_back.back_if(not healthy or (saving and not state.is_finite())):
                continue
        previewed = due(state.step, config.plot_every) or monitor.preview_overdue()
        if ranks.first and previewed and not ending and monitor.may_preview() and state.is_finite():
            soon = probe is not None and state.step < probe.step + config.plot_every  # too soon to compare samples
            preview(run, state, monitor, None if soon else probe)
        if saving:
            good, saved = ranks.first and save(run, state, monitor, numbered, ending), time.monotonic()
            if ending:
                return
            roll_back.saved(good)


def generate(step: Step, network: Network) -> View:
    """Return samples for the step of `network`, d or g, as the discriminator receives them.

    Unless the networks are the book's, the generator's step takes up the samples of the discriminator's, which keep
    their graph for it.
    """
    if step.samples is not None:
        return step.samples
    config, generator = step.run.config, step.networks.generator
    z = latent.normal(step.random("z", network), config.batch_size, config.nz)  # (batch_size, nz), standard normal
    z = send(z[step.mine], step.run.device)  # with several processes, this one's part
    with torch.set_grad_enabled(network == "g" or step.shared):  # the discriminator's step alone needs no graph
        fake = generator(z, step.classes)  # (n, C, S, S) in [-1, 1], of the classes of the real faces
        fake = step.view(fake.float(), network)
    step.samples = fake if step.shared else None
    return fake


def discriminator_step(step: Step) -> None:
    """Take one step of the discriminator, on detached samples, since it must not move the generator."""
    config, optimizer, monitor = step.run.config, step.state.d_optimizer, step.monitor
    optimizer.zero_grad(set_to_none=True)
    with autocast(step.run.device, step.run.precision):
        fake = generate(step, "d").detach()
        real = step.real_view("d")
        logits = discriminate_pair(step.networks.trained_discriminator, real, fake, apart=config.d_norm == "batch")
        d_loss = loss = discriminator_loss(config.loss, *logits)
        if step.penalty_due:  # lazy: applied less often, so weighted up
            penalty, penalties = weighted_penalty(step, real, fake, *logits)
            loss = d_loss + config.penalty_every * penalty
            monitor.add(**penalties)
    loss.backward()
    optimizer.step()
    monitor.add(d_loss=d_loss)
    monitor.add_logits(*logits)
    if config.clip:
        clip(step.state.discriminator, config.clip)


def generator_step(step: Step) -> None:
    """Take one step of the generator; the frozen discriminator only passes the gradient on."""
    config, optimizer, discriminator = step.run.config, step.state.g_optimizer, step.networks.discriminator
    step.state.discriminator.requires_grad_(False)
    optimizer.zero_grad(set_to_none=True)
    with autocast(step.run.device, step.run.precision):
        fake = generate(step, "g")
        fake_logits = discriminate(discriminator, fake)
        real_logits = None
        if config.loss in COMPARING:
            with torch.no_grad():
                real_logits = discriminate(discriminator, step.real_view("g"))
        g_loss = generator_loss(config.loss, real_logits, fake_logits)
        loss = g_loss + weighted_wholeness(step, fake.images)
    loss.backward()
    optimizer.step()
    step.monitor.add(g_loss=g_loss)
    step.state.discriminator.requires_grad_(True)


def main(config: TrainConfig, typed: Mapping[str, Any]) -> None:
    """Run `python train.py`: begin or resume a run, train, and say what to do next."""
    if config.tensorboard:
        tensorboard_log.writer_class()  # before anything is created: the package may be missing
    steps = discriminator_step, generator_step  # timed by the start of a run, which cannot import this file
    with joined(config.gpu) as ranks, begin(config, typed, ranks, steps) as ready:
        if ready is not None:
            run_until_stopped(ready)


def run_until_stopped(ready: Ready) -> None:
    """Train until the run ends or is stopped, and say what to do next."""
    run, state, config, began_at = ready.run, ready.state, ready.run.config, ready.state.step
    samples, film = run.samples, run.folder / "timelapse.webp"
    outputs = opened_outputs(run)
    prepared = time.perf_counter() - ready.since  # counts towards the budget
    state.cycle = dataclasses.replace(state.cycle, seconds=state.cycle.seconds - prepared)
    ends = None if config.budget is None else state.cycle.seconds + 60 * config.budget
    shown, faces = run.folder if run.ranks.first else None, len(ready.batches)
    monitor = Monitor(shown, config, faces, began_at, ready.seconds, ends, outputs)
    examples = images.grid(ready.batches.pack.pixels[ready.batches.chosen[:BATCH]])
    for output in outputs:
        output.picture("faces", text("Faces it learns from"), examples, began_at)
    if began_at:
        log(text("going on from step {}, {:,} images seen").format(began_at, began_at * config.batch_size))
    try:
        with stop_signals(run.folder, patient=run.ranks.world > 1) as asked, contextlib.closing(monitor):
            train(run, state, ready.batches, monitor, asked, ready.evaluator, ready.probe)
            monitor.end(state.finished, commands(run, state))
            if state.finished and run.ranks.first:
                make_film(samples, film, monitor)
    except bdb.BdbQuit as error:
        raise ConfigError(
            "you quit the debugger, which ends the run (c goes on, once the debug file is deleted); its last save "
            "is good: {}",
            resumption(run, run.folder, finished=False),
        ) from error
    if run.ranks.first:
        monitor.log("\n".join(summary(run, state, monitor)))


if __name__ == "__main__":
    command_line(TrainConfig, main)
