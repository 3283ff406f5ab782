"""Train the generator: python train.py --gpu. The algorithm in the order it happens; the loop is `train`."""

from __future__ import annotations

import bdb
import contextlib
import dataclasses
import functools
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.linalg import LinAlgError  # pyright: ignore[reportAttributeAccessIssue]

from config import CheckpointError, ConfigError, DataError, TrainConfig
from gan import checkpoint, images, latent
from gan.command_line import command_line, show
from gan.data.batches import Batches
from gan.data.faces import open_pack
from gan.device import (
    autocast,
    choose_device,
    choose_precision,
    describe,
    drop_unfinished,
    failed_to_compile,
    free_memory,
    give_back_memory,
    out_of_memory,
)
from gan.files import as_word
from gan.images import to_pixels
from gan.quality.evaluation import Evaluator
from gan.quality.sampling import BATCH
from gan.training import debugger, ema, losses, preparing
from gan.training.ranks import Ranks, joined
from gan.training.run import Run, TrainingState
from gan.training.sittings import checkpoint_to_resume, keep_later, run_lock, stop_signals
from gan.training.step import Called, Step, Views, judged
from gan.watching import health, tensorboard_log
from gan.watching.curves import Curves
from gan.watching.monitor import Monitor

CLOSING_SECONDS = 2.0
"""What a preview and a save take at the end of a run that was taken up again; at the beginning they are timed."""

LOG_EVERY, SAVE_SECONDS = 50, 120.0
"""Steps between rows of log.jsonl, and seconds between saves of latest.pt."""

RETRIES = 3
"""How often a run is rolled back from a loss that is not a number before it gives up."""

STATISTICS_BATCHES, STATISTICS_BATCH = 4, 128
"""Latents that the averaged generator's BatchNorm statistics are estimated on."""


def due(step: int, every: int) -> bool:
    """Whether something that happens every `every` steps happens now; 0 turns it off."""
    return every > 0 and step % every == 0


def train(
    run: Run,
    state: TrainingState,
    batches: Batches,
    monitor: Monitor,
    stopping: Callable[[], bool],
    evaluator: Evaluator | None = None,
    probe: health.Probe | None = None,
) -> None:
    """The training loop, from the state's step to the end of the last epoch or of the budget, or until `stopping()`."""
    config, ranks, n = run.config, run.ranks, run.config.batch_size
    called = Called.of(run, state)
    last, saved, ended, parts = batches.steps(config.epochs), time.monotonic(), False, 1
    failed, attempts = 0, 0  # the last step whose loss was not a number, and how often since a later save
    debug_file = debugger.DebugFile(config.debug_file if ranks.first else None)
    closing = CLOSING_SECONDS
    if ranks.first and (state.step == state.leg.step or not run.latest.is_file()):
        since = time.perf_counter()
        preview(run, state, monitor, probe)
        save(run, state, monitor)
        closing = time.perf_counter() - since

    def done() -> float:
        """The share of the budget that is spent; a preview, a save and a measurement at its end belong to it."""
        if config.budget is None or not ranks.first:
            return 0.0
        reserved = closing + (evaluator.cost() if evaluator is not None and measured_last(config, evaluator) else 0.0)
        return state.leg.done(monitor.seconds, 60 * config.budget - min(reserved, 30 * config.budget))

    def whole_or_in_parts(half: Callable[[list[slice]], None]) -> None:
        """Do half a step on the whole batch, or where memory does not suffice, from then on, in parts of it."""
        nonlocal parts
        while True:
            try:
                return half(equal_parts(n // ranks.world, parts))
            except (RuntimeError, MemoryError) as error:
                if not out_of_memory(error) or not may_split(config, ranks, 2 * parts):
                    raise
            parts *= 2
            free_memory(run.device)
            for optimizer in (state.g_optimizer, state.d_optimizer):
                drop_unfinished(optimizer)
            monitor.say(
                f"out of memory: from step {state.step} on each batch of {n} goes through the networks in {parts} "
                "parts, which is slower; BatchNorm sees one part at a time, else nothing changes"
            )

    while not ended:
        if debug_file.asks():
            with monitor.paused(), debugger.leaving:
                breakpoint()  # run, state, batches and monitor are at hand
                monitor.say("going on")
        if config.budget is None:
            state.scale_rates(1.0)
        else:
            state.scale_rates(*ranks.all_reduce_max(state.leg.rates(done(), config.anneal) if ranks.first else 0.0))
        state.step += 1
        random = functools.partial(latent.stream, config.seed, state.step, retry=state.retries)
        waiting = time.perf_counter()
        real = batches(state.step)  # (n, 3, S, S), or this process's part of them
        monitor.data_seconds += time.perf_counter() - waiting

        d_due, g_due = due(state.step, config.d_every), due(state.step, config.g_every)
        step = Step(run, state, called, monitor, real, random, d_due and g_due and config.share_samples)
        if d_due:
            whole_or_in_parts(functools.partial(discriminator_step, step))
        if g_due:
            whole_or_in_parts(functools.partial(generator_step, step))
            images = n * config.g_every
            ema.update(state.ema, state.generator, ema.decay(images, n * state.step, config.ema_half_life_images))

        monitor.awake("step", time.perf_counter() - waiting)

        # Between steps: measure, log, preview, save. None of it changes the training.
        state.finished = state.step >= last or done() >= 1
        found = {} if evaluator is None else measure(run, state, evaluator, monitor)
        numbered = epochs_due(batches, state.step, config.save_every)
        late = ranks.first and time.monotonic() - saved > SAVE_SECONDS
        wishes = ranks.all_reduce_max(state.finished, stopping(), late, bool(found))
        state.finished, stopped, late, measured = (bool(wish) for wish in wishes)
        ending = state.finished or stopped
        save_due = ending or numbered or late
        if ranks.first and ending and state.is_finite():  # before the last row, which gets what it finds out
            preview(run, state, monitor, probe)
        if save_due or measured or due(state.step, LOG_EVERY):
            means = ranks.means(monitor.means())
            healthy = monitor.row(state.step, n * state.step, {**means, **found})
            if any(ranks.all_reduce_max(not healthy or (save_due and not state.is_finite()))):
                failed, attempts = state.step, attempts + 1
                roll_back(run, state, monitor, attempts)
                continue
        if ranks.first and not ending and due(state.step, config.plot_every) and monitor.may_preview():
            preview(run, state, monitor, probe)
        if save_due:
            kept = ranks.first and save(run, state, monitor, numbered, ending)
            saved, ended = time.monotonic(), ending
            if attempts and state.step > failed and not ended and any(ranks.all_reduce_max(kept)):
                attempts = 0


def discriminator_step(step: Step, parts: list[slice]) -> None:
    """One step of the discriminator, on fakes that carry no graph: it must not move the generator.

    Args:
        step: what it begins with.
        parts: of the batch, one after another; their gradients add up to those of the whole.
    """
    run, state, monitor, real = step.run, step.state, step.monitor, step.real
    config, turn = run.config, state.step // run.config.d_every  # the discriminator's own steps
    penalised = config.penalty != "none" and due(turn, config.penalty_every)
    state.d_optimizer.zero_grad(set_to_none=True)
    told: list[dict[str, Tensor]] = []
    logits: list[tuple[Tensor, Tensor]] = []
    for part in parts:
        with autocast(run.device, run.precision):
            views = step.views("d", part)
            real_logits, fake_logits = judged(step.called.trained_discriminator, views, config.d_norm == "batch")
            d_loss = loss = losses.discriminator_loss(config.loss, real_logits, fake_logits)
            if penalised:  # lazy: rarer, so weighted up
                slopes, head_slopes = penalties(step, part, views, real_logits, fake_logits)
                penalty = config.penalty_weight * sum(slopes.values())
                penalty = penalty + config.head_penalty * sum(head_slopes.values())
                loss = loss + config.penalty_every * penalty
                told.append({**slopes, **head_slopes})
        (loss * (len(views.real) / len(real))).backward()
        told.append({"d_loss": d_loss})
        logits.append((real_logits, fake_logits))
    state.d_optimizer.step()
    for values in told:
        monitor.add(**values)
    for pair in logits:
        monitor.add_logits(*pair)
    if config.clip:
        clip(state.discriminator, config.clip)


def penalties(
    step: Step, part: slice, views: Views, real_logits: Tensor, fake_logits: Tensor
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """How steep the discriminator is at faces and at samples: its own layers at pictures, its heads at what they see.

    Args:
        step: the step.
        part: of the batch.
        views: what the discriminator saw of it.
        real_logits: what it made of the faces.
        fake_logits: of the samples.
    """
    config, discriminator = step.run.config, step.state.discriminator
    kind, scale = config.penalty, losses.PENALTY_NOISE
    (noise,) = step.penalty_noise("penalty", [views.real], part)
    real, fake = (logits.view(len(logits), -1)[:, 0] for logits in (real_logits, fake_logits))
    slopes = losses.gradient_penalties(kind, discriminator.plain, views.real, real, views.fake, fake, noise, scale)
    if discriminator.projected is None or not config.head_penalty:
        return slopes, {}
    head_noise = step.penalty_noise("head_penalty", views.real_seen, part)
    heads = discriminator.heads()
    seen = views.real_seen, real_logits[:, 1:], views.fake_seen, fake_logits[:, 1:]
    return slopes, losses.head_penalties(kind, heads, *seen, head_noise, scale)


def generator_step(step: Step, parts: list[slice]) -> None:
    """One step of the generator. The discriminator is frozen: it only carries the gradient.

    Args:
        step: what it begins with.
        parts: of the batch, as in `discriminator_step`.
    """
    run, state, monitor, real, judge = step.run, step.state, step.monitor, step.real, step.called.discriminator
    config = run.config
    state.discriminator.requires_grad_(False)
    state.g_optimizer.zero_grad(set_to_none=True)
    told: list[Tensor] = []
    for part in parts:
        with autocast(run.device, run.precision):
            views = step.views("g", part)
            fake_logits, real_logits = judge(views.fake, views.fake_seen), None
            if config.loss in losses.COMPARING:
                with torch.no_grad():
                    real_logits = judge(views.real, views.real_seen)
            g_loss = losses.generator_loss(config.loss, real_logits, fake_logits)
        (g_loss * (len(views.fake) / len(real))).backward()
        told.append(g_loss)
    state.g_optimizer.step()
    for g_loss in told:
        monitor.add(g_loss=g_loss)
    state.discriminator.requires_grad_(True)


def equal_parts(n: int, parts: int) -> list[slice]:
    """`n` divided into so many parts, as equal as they get."""
    return [slice(n * i // parts, n * (i + 1) // parts) for i in range(parts)]


def may_split(config: TrainConfig, ranks: Ranks, parts: int) -> bool:
    """Whether a batch may go through the networks in so many parts and still be one batch."""
    return ranks.world == 1 and config.loss not in losses.COUPLED and parts <= config.batch_size


@torch.no_grad()
def clip(discriminator: torch.nn.Module, size: float) -> None:
    """Bring every weight into [-size, size], in place (Arjovsky et al. 2017, algorithm 1, line 7)."""
    for parameter in discriminator.parameters():
        parameter.clamp_(-size, size)


def epochs_due(batches: Batches, step: int, every: int) -> bool:
    """Whether `step` completes a multiple of `every` epochs."""
    return batches.epochs(step) // every > batches.epochs(step - 1) // every


def measured_last(config: TrainConfig, evaluator: Evaluator) -> bool:
    """Whether a finished run is measured at its end, beyond the share of the time that measurements have.

    What was measured before must not be the last word; a budget keeps up to half of its minutes for that, and up to a
    fifth for a first measurement.
    """
    if config.budget is None:
        return evaluator.best is not None
    return evaluator.cost() <= (30 if evaluator.best is not None else 12) * config.budget


def measure(run: Run, state: TrainingState, evaluator: Evaluator, monitor: Monitor) -> dict[str, float]:
    """Measure the averaged generator when that is due and leaves the training its time; keep the best as best.pt.

    Args:
        run: the run.
        state: whose average is measured.
        evaluator: measures it.
        monitor: says whether there is time, and is told.

    Returns:
        The metrics by name; none if it was not measured.
    """
    config, seen = run.config, state.step * run.config.batch_size
    now = seen // config.eval_images > (seen - config.batch_size) // config.eval_images
    if not (now or state.finished) or not state.is_finite():
        return {}
    since = time.perf_counter()
    try:
        if not (state.finished and measured_last(config, evaluator)) and not monitor.may_measure(evaluator.cost()):
            return {}
        averaged(run, state)
        found = evaluator.measure()
        took = time.perf_counter() - since
        counted = monitor.awake("measurement", took)
        since, evaluator.seconds = since + took - counted, min(evaluator.seconds, counted)
    except (RuntimeError, MemoryError) as error:
        if not (out_of_memory(error) or isinstance(error, LinAlgError)):  # samples may be too degenerate
            raise
        monitor.say(f"quality could not be measured at {seen:,} images ({error}); training goes on")
        return {}
    finally:
        monitor.measured(since)
    before, best = evaluator.best, evaluator.is_best(found, monitor.curves.column("fd")[1])
    shown = f"damage x100 {found['damage_x100']:.2f}, FD {found['fd']:.1f}, coverage {found['coverage']:.2f}"
    of = f"{len(evaluator.chosen):,} samples, {evaluator.extractor.name}"
    monitor.say(f"quality at {seen:,} images: {shown} ({of}){', the best so far' if best else ''}")
    if best:
        try:
            run.save_best(state, monitor.seconds, {"features": evaluator.extractor.name, **found})
        except CheckpointError as error:
            evaluator.best = before  # it is what best.pt still holds
            monitor.say(f"{error}; training goes on, the last good file stays")
    return found


def preview(run: Run, state: TrainingState, monitor: Monitor, probe: health.Probe | None) -> None:
    """Write the grid of the run's fixed latents, those of seeds 0 to 63: the faces that `generate.py` draws first.

    With a probe it is also found out how much they vary, and what the discriminator makes of faces it has not seen.
    """
    if not run.config.plot_every:
        return
    since = time.perf_counter()
    try:
        average = averaged(run, state)
        with torch.no_grad(), autocast(run.device, run.precision):
            faces = average(latent.latents(range(BATCH), run.config.nz).to(run.device))
            if probe is not None:
                state.discriminator.eval()  # BatchNorm must not learn from being asked
                monitor.note(**probe(faces.float(), state.discriminator))
    except (RuntimeError, MemoryError) as error:
        if not out_of_memory(error):
            raise
        monitor.say(f"no memory is left for the preview of step {state.step}; training goes on, and tries the next one")
        return
    finally:
        state.discriminator.train()
    monitor.preview(state.step, to_pixels(faces), since)


def averaged(run: Run, state: TrainingState) -> torch.nn.Module:
    """The averaged generator with statistics of its own weights; the training generator is not touched."""
    batches = (latent.stream(run.config.seed, i, "statistics") for i in range(STATISTICS_BATCHES))
    latents = [latent.normal(random, STATISTICS_BATCH, run.config.nz).to(run.device) for random in batches]
    with autocast(run.device, run.precision):
        try:
            ema.estimate_statistics(state.ema, latents)
            return state.ema
        except (RuntimeError, MemoryError) as error:  # what training leaves free may be little
            if not out_of_memory(error):
                raise
        free_memory(run.device)
        ema.estimate_statistics(state.ema, [part for z in latents for part in z.split(STATISTICS_BATCH // 8)])
    return state.ema


def make_film(samples: Path, film: Path, monitor: Monitor) -> None:
    """Make a film of the preview grids of a run that has finished, where there are some."""
    previews = sorted(samples.glob(images.PREVIEWS))
    if len(previews) < 2:
        return
    try:
        images.save_film(previews, film)
    except OSError as error:
        monitor.say(
            f"could not make {film}: {error}; to try again: python generate.py --timelapse={as_word(film.parent)}"
        )


def save(run: Run, state: TrainingState, monitor: Monitor, numbered: bool = False, ending: bool = False) -> bool:
    """Save the run, the averaged generator with statistics of its own.

    A disk that is full does not end the training: it is said, and the last good files stay.

    Returns:
        Whether latest.pt is what the state is now.

    Raises:
        CheckpointError: the last save of a run failed. It says where else the state was saved.
    """
    averaged(run, state)
    try:
        run.save(state, monitor.seconds)
    except CheckpointError as error:
        if ending:
            run.rescue(state, monitor.seconds, error)
        kept = "the last good file stays" if run.latest.is_file() else "nothing of this run is saved yet"
        monitor.say(f"{error}; training goes on, {kept}")
        return False
    try:
        if numbered:
            run.save_numbered(state, monitor.seconds)
    except CheckpointError as error:
        monitor.say(f"{error}; {run.latest} is good")
    return True


def roll_back(run: Run, state: TrainingState, monitor: Monitor, attempts: int) -> None:
    """Return to the last good state after a loss that is not a number, with other random numbers from there on.

    Args:
        run: the run.
        state: its state.
        monitor: told.
        attempts: the how manieth attempt from there this will be.

    Raises:
        ConfigError: it has happened too often.
    """
    failed, retries = state.step, state.retries + 1
    if not any(run.ranks.all_reduce_max(run.ranks.first and run.latest.is_file())):
        raise ConfigError(
            f"the loss was not a number at step {failed}, and no earlier state could be saved; make room on the disk "
            f"of {run.folder}, lower --lr1 ({run.config.lr1:g}) and --lr2 ({run.config.lr2:g}) and start again"
        )
    if attempts > RETRIES:
        raise ConfigError(
            f"the loss was not a number at step {failed}, after {RETRIES} attempts from the last good state; lower "
            f"--lr1 ({run.config.lr1:g}) and --lr2 ({run.config.lr2:g}) and start again; {run.latest} is usable"
        )
    leg = state.leg
    state.load(run.ranks.broadcast(checkpoint.load(run.latest) if run.ranks.first else {}), run.latest)
    state.leg, state.retries = leg, retries
    monitor.rewind(state.step)
    monitor.say(
        f"the loss was not a number at step {failed}: back to step {state.step}, attempt {attempts} of {RETRIES} "
        "with other random numbers"
    )


def main(config: TrainConfig, typed: Mapping[str, Any]) -> None:
    """What `python train.py` does: faces, networks, the loop, and what to do next."""
    if config.tensorboard:
        tensorboard_log.writer_class()  # before anything is made: it may be missing
    with joined(config.gpu) as ranks:
        if config.resume is None or not ranks.first:
            begin(config, typed, ranks)
            return
        path = checkpoint_to_resume(config.resume)
        # Its trainer may be about to save.
        with run_lock(path.parent) if os.path.isfile(path) else contextlib.nullcontext():
            begin(config, typed, ranks, path)


def begin(config: TrainConfig, typed: Mapping[str, Any], ranks: Ranks, path: Path | None = None) -> None:
    """Make everything that a sitting needs, and train; from the checkpoint `path` where there is one."""
    since = time.perf_counter()
    found = ranks.broadcast(preparing.looked_up(config, typed, path) if ranks.first else (config, None, Path()))
    config, content, folder = found
    device = choose_device(config.gpu, show)
    ranks.check(config, device)
    with ranks.in_turn():
        pack = open_pack(
            config.data_path, config.image_size, num_workers=config.num_workers, say=show, channels=config.channels
        )
    if ranks.broadcast(pack.digest) != pack.digest:
        raise DataError(f"{config.data_path}: has other faces than on the first machine; give both the same pictures")
    training, held_out = pack.split(config.holdout)
    if content is not None and content["faces"]["digest"] != pack.digest:
        known = content["faces"]["training"] + content["faces"].get("left_out", 0)
        raise CheckpointError(
            f"{path or folder}: has other faces than {config.data_path} ({known:,} then, "
            f"{len(training):,} now); give its own --data_path, or start a new run from its weights: "
            f"--init={as_word(path or folder)}"
        )
    try:
        chosen = preparing.choose_faces(config, content, pack, training, held_out, device) if ranks.first else None
        chosen = ranks.broadcast(chosen)
        every, alike = training, held_out
        if chosen is not None:  # what measures is compared with all kinds of faces all the same
            training, alike = training[chosen[training]], held_out[chosen[held_out]]
        faces = {"digest": pack.digest, "training": len(training), "held_out": len(held_out), "rejected": pack.rejected}
        faces["left_out"] = len(every) - len(training)
        alike_device = content is not None and preparing.same_kind(content["chosen"]["device"], device)
        if content is not None and alike_device:
            precision = content["chosen"]["precision"]
        else:
            precision = choose_precision(config.precision, device)
        if content is None and ranks.first:
            config = preparing.suited(config, typed, len(training), device)
            config = preparing.planned(config, typed, ranks, device, precision, since, len(training))
        if ranks.first:
            config = preparing.measured_by(config, pack, every, device)
        config, precision = ranks.broadcast((config, precision))
        if content is not None and alike_device:
            compiled = preparing.still_compiled(config, content, ranks, device)
        else:
            compiled = ranks.world == 1 and preparing.choose_compile(config, device, precision, since, len(training))
        part = ranks.part(config.batch_size)
        batches = Batches(pack, training, config.batch_size, config.seed, device, config.flip, part)
        run = Run(folder, config, device, precision, faces, ranks, compiled, chosen)
        show(
            f"{len(training):,} faces to train on, {len(held_out):,} held out; {precision}; run: {folder}"
            f"{f'; {ranks.world} processes' if ranks.world > 1 else ''}"
        )
        state = TrainingState(config, device)
        if content is not None:
            state.load(content, path or folder)
        elif ranks.first:  # the others begin with the first one's weights
            preparing.take_weights(state, config, device)
        seconds = 0.0 if content is None else content["seconds"]
        if content is not None and "budget" in typed:
            state.begin_leg(seconds)
        state.finished = (state.finished and config.budget is not None) or state.step >= batches.steps(config.epochs)
        if state.finished:
            again = f"python train.py --resume={as_word(folder)} {preparing.extension(config)}"
            show(f"this run has finished; to go on: {again}")
            return
        if content is not None and path is not None:
            keep_later(path, state.step, config.save_path or folder / "samples")
        evaluator = preparing.open_evaluator(run, state, pack, every, held_out) if ranks.first else None
        new = content is None and ranks.first
        named = config.run is not None
        with run_lock(folder, True, named) if new else contextlib.nullcontext(folder) as run.folder:
            if run.folder != folder:  # begun by another process in the same second
                show(f"run: {run.folder}")
            if ranks.first:
                run.write_config()
            give_back_memory()
            sitting(run, state, batches, seconds, evaluator, preparing.open_probe(pack, training, alike), since)
    except (RuntimeError, MemoryError) as error:
        if failed_to_compile(error):
            why = str(error).strip().splitlines()[0]
            raise ConfigError(f"the networks cannot be compiled on this machine ({why}); add --nocompile") from error
        if not out_of_memory(error):
            raise
        raise ConfigError(
            f"out of memory on {describe(device)}: lower --batch_size (now {config.batch_size}), or --ngf "
            f"({config.ngf}) and --ndf ({config.ndf}) for smaller networks"
        ) from error


def sitting(
    run: Run,
    state: TrainingState,
    batches: Batches,
    seconds: float,
    evaluator: Evaluator | None,
    probe: health.Probe,
    since: float,
) -> None:
    """Train until the run ends or is stopped, and say what to do next. Preparing it began at `since`."""
    config, first = run.config, state.step
    samples, film = config.save_path or run.folder / "samples", run.folder / "timelapse.webp"
    outputs = preparing.opened_outputs(run, samples)
    state.leg = dataclasses.replace(state.leg, seconds=state.leg.seconds - (time.perf_counter() - since))
    ends = None if config.budget is None else state.leg.seconds + 60 * config.budget
    shown = run.folder if run.ranks.first else None

    def diagnose(curves: Curves, over: bool) -> health.Diagnosis:
        return health.diagnose(curves, config, len(batches), run.folder, over)

    monitor = Monitor(shown, samples, len(batches), config.epochs, state.step, seconds, ends, outputs, diagnose)
    for output in outputs:
        output.picture("faces", "Faces it learns from", images.grid(batches.examples(BATCH)), state.step)
    if first:
        show(f"going on from step {first}, {first * config.batch_size:,} images seen")
    try:
        with stop_signals(patient=run.ranks.world > 1) as asked, contextlib.closing(monitor):
            train(run, state, batches, monitor, asked, evaluator, probe)
            monitor.over = state.finished
            if state.finished and run.ranks.first:
                make_film(samples, film, monitor)
    except bdb.BdbQuit as error:
        raise ConfigError(
            "the debugger was left with q in the middle of a step, which ends the run (c goes on); its last save is "
            f"whole: python train.py --resume={as_word(run.folder)}"
        ) from error
    if run.ranks.first:
        monitor.say("\n".join(preparing.summary(run, state, monitor, samples)))


if __name__ == "__main__":
    command_line(TrainConfig, main)
