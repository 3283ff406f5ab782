"""Train the generator: python train.py --gpu. The algorithm, on one page, in the order it happens."""

from __future__ import annotations

import bdb
import contextlib
import dataclasses
import functools
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from config import FEW, SYNTHETIC, CheckpointError, ConfigError, Precision, TrainConfig
from gan import checkpoint, debugger, ema, features, images, latent, losses, plan, tensorboard_log, visdom_page
from gan.augment import augment, draw_moves
from gan.batches import Batches
from gan.command_line import command_line
from gan.device import autocast, choose_device, choose_precision, describe, out_of_memory
from gan.evaluation import LEAST, Judge
from gan.faces import Pack, has_faces, open_pack
from gan.images import to_pixels
from gan.monitor import Monitor, Output
from gan.run import (
    Run,
    TrainingState,
    alone,
    checkpoint_to_resume,
    keep_later,
    new_folder,
    resumed,
    starting_from,
    stop_signals,
)
from gan.sampling import BATCH

CLOSING_SECONDS = 2.0
"""What a preview and a save take at the end of a run that was taken up again; at the beginning they are timed."""

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
    judge: Judge | None = None,
) -> None:
    """The training loop, from the state's step to the end of the last epoch or of the budget, or until `stopping()`."""
    config, device, n = run.config, run.device, run.config.batch_size
    generator, discriminator = state.generator, state.discriminator
    cast = functools.partial(autocast, device, run.precision)
    moves = functools.partial(
        draw_moves,
        n=n,
        image_size=config.image_size,
        translate=config.translate,
        colour=config.colour,
    )
    last, saved, ended = batches.steps(config.epochs), time.monotonic(), False
    debug_file = debugger.DebugFile(config.debug_file)
    closing = CLOSING_SECONDS
    if state.step == state.leg.step:
        since = time.perf_counter()
        preview(run, state, monitor)
        save(run, state, monitor)
        closing = time.perf_counter() - since

    def done() -> float:
        """The share of the budget that is spent; a preview, a save and a measurement at its end belong to it."""
        if config.budget is None:
            return 0.0
        reserved = closing + (judge.cost() if judge is not None and measured_last(config, judge) else 0.0)
        return state.leg.done(monitor.seconds, 60 * config.budget - min(reserved, 30 * config.budget))

    while not ended:
        if debug_file.asks():
            with monitor.paused(), debugger.leaving:
                breakpoint()  # run, state, batches and monitor are at hand
                monitor.say("going on")
        state.scale_rates(state.leg.rates(done(), config.anneal) if config.budget is not None else 1.0)
        state.step += 1
        random = functools.partial(latent.stream, config.seed, state.step, retry=state.retries)
        waiting = time.perf_counter()
        real = batches(state.step)  # (n, 3, S, S)
        monitor.data_seconds += time.perf_counter() - waiting

        # Discriminator step, on fakes that carry no graph: it must not move the generator.
        if due(state.step, config.d_every):
            moved = functools.partial(augment, moves=moves(random("d_moves")))
            with cast():
                with torch.no_grad():
                    fake = generator(latent.normal(random("d_z"), n, config.nz).to(device)).float()
                real_moved, fake_moved = moved(real), moved(fake)
                real_logits, fake_logits = discriminator(real_moved), discriminator(fake_moved)
                d_loss = loss = losses.discriminator_loss(config.loss, real_logits, fake_logits)
                if config.penalty != "none" and due(state.step, config.penalty_every):  # lazy: rarer, so weighted up
                    noise = torch.Generator(device).manual_seed(int(random("penalty").integers(2**31)))
                    plain = real_logits.view(n, -1)[:, 0], fake_logits.view(n, -1)[:, 0]  # heads have spectral norm
                    batch = real_moved, plain[0], fake_moved, plain[1]
                    penalties = losses.gradient_penalties(
                        config.penalty, discriminator.plain, *batch, noise, config.penalty_noise
                    )
                    loss = loss + config.penalty_every * config.penalty_weight * sum(penalties.values())
                    monitor.add(**penalties)
            state.d_optimizer.zero_grad(set_to_none=True)
            loss.backward()
            state.d_optimizer.step()
            if config.clip:
                clip(discriminator, config.clip)
            monitor.add(d_loss=d_loss, real_logit=real_logits.float().mean(), fake_logit=fake_logits.float().mean())

        # Generator step. The discriminator is frozen: it only carries the gradient.
        if due(state.step, config.g_every):
            discriminator.requires_grad_(False)
            moved = functools.partial(augment, moves=moves(random("g_moves")))
            with cast():
                fake = generator(latent.normal(random("g_z"), n, config.nz).to(device)).float()
                fake_logits, real_logits = discriminator(moved(fake)), None
                if config.loss in losses.COMPARING:
                    with torch.no_grad():
                        real_logits = discriminator(moved(real))
                g_loss = losses.generator_loss(config.loss, real_logits, fake_logits)
            state.g_optimizer.zero_grad(set_to_none=True)
            g_loss.backward()
            state.g_optimizer.step()
            discriminator.requires_grad_(True)
            images = n * config.g_every
            ema.update(state.ema, generator, ema.decay(images, n * state.step, config.ema_half_life_images))
            monitor.add(g_loss=g_loss)

        # Between steps: measure, log, preview, save. None of it changes the training.
        state.finished = state.step >= last or done() >= 1
        ending = state.finished or stopping()
        measured = judge is not None and measure(run, state, judge, monitor)
        numbered = epochs_due(batches, state.step, config.save_every)
        save_due = ending or numbered or time.monotonic() - saved > 60 * config.save_minutes
        if save_due or measured or due(state.step, config.log_every):
            healthy = monitor.row(state.step, n * state.step) and (not save_due or state.is_finite())
            if not healthy:
                roll_back(run, state, monitor)
                continue
        if ending or (due(state.step, config.plot_every) and monitor.may_spend()):
            preview(run, state, monitor)
        if save_due:
            save(run, state, monitor, numbered, ending)
            saved, ended = time.monotonic(), ending


@torch.no_grad()
def clip(discriminator: torch.nn.Module, size: float) -> None:
    """Bring every weight into [-size, size], in place (Arjovsky et al. 2017, algorithm 1, line 7)."""
    for parameter in discriminator.parameters():
        parameter.clamp_(-size, size)


def epochs_due(batches: Batches, step: int, every: int) -> bool:
    """Whether `step` completes a multiple of `every` epochs."""
    return batches.epochs(step) // every > batches.epochs(step - 1) // every


def measured_last(config: TrainConfig, judge: Judge) -> bool:
    """Whether a finished run is measured at its end, beyond the share of the time that measurements have.

    What was measured before must not be the last word; a budget keeps up to half of its minutes for that, and up to a
    tenth for a first measurement.
    """
    if config.budget is None:
        return judge.best is not None
    return judge.cost() <= (30 if judge.best is not None else 6) * config.budget


def measure(run: Run, state: TrainingState, judge: Judge, monitor: Monitor) -> bool:
    """Measure the averaged generator when that is due and leaves the training its time; keep the best as best.pt.

    Args:
        run: the run.
        state: whose average is measured.
        judge: measures it.
        monitor: says whether there is time, and is told.

    Returns:
        Whether it was measured; the metrics wait for the next row of the log.
    """
    config, seen = run.config, state.step * run.config.batch_size
    now = seen // config.eval_images > (seen - config.batch_size) // config.eval_images
    if not (now or state.finished) or not state.is_finite():
        return False
    since = time.perf_counter()
    try:
        if not (state.finished and measured_last(config, judge)) and not monitor.may_spend(judge.cost()):
            return False
        found = judge.measure(averaged(run, state), config.model, run.precision)
    except (RuntimeError, MemoryError) as error:  # no memory left for it, or samples that algebra cannot cope with
        monitor.say(f"quality could not be measured at {seen:,} images ({error}); training goes on")
        return False
    finally:
        monitor.spent(since)
    monitor.add(**{name: torch.tensor(value) for name, value in found.items()})
    best = judge.is_best(found)
    shown = f"FD {found['fd']:.1f}, coverage {found['coverage']:.2f}, SWD {found['swd_x1000']:.0f}"
    of = f"{len(judge.chosen):,} samples, {judge.extractor.name}"
    monitor.say(f"quality at {seen:,} images: {shown} ({of}){', the best so far' if best else ''}")
    if best:
        try:
            run.save_best(state, monitor.seconds, {"features": judge.extractor.name, **found})
        except CheckpointError as error:
            monitor.say(f"{error}; training goes on, the last good file stays")
    return True


def preview(run: Run, state: TrainingState, monitor: Monitor) -> None:
    """Write the grid of the run's fixed latents, those of seeds 0 to 63: the faces that `generate.py` draws first."""
    if not run.config.plot_every:
        return
    since = time.perf_counter()
    average = averaged(run, state)
    with torch.no_grad(), autocast(run.device, run.precision):
        faces = average(latent.latents(range(BATCH), run.config.nz).to(run.device))
    monitor.preview(state.step, to_pixels(faces), since)


def averaged(run: Run, state: TrainingState) -> torch.nn.Module:
    """The averaged generator with statistics of its own weights; the training generator is not touched."""
    batches = (latent.stream(run.config.seed, i, "statistics") for i in range(STATISTICS_BATCHES))
    latents = [latent.normal(random, STATISTICS_BATCH, run.config.nz).to(run.device) for random in batches]
    with autocast(run.device, run.precision):
        ema.estimate_statistics(state.ema, latents)
    return state.ema


def save(run: Run, state: TrainingState, monitor: Monitor, numbered: bool = False, ending: bool = False) -> None:
    """Save the run, the averaged generator with statistics of its own.

    A disk that is full does not end the training: it is said, and the last good files stay.

    Raises:
        CheckpointError: the last save of a run failed.
    """
    averaged(run, state)
    try:
        run.save(state, monitor.seconds, numbered)
    except CheckpointError as error:
        if ending:
            raise
        monitor.say(f"{error}; training goes on, the last good file stays")


def roll_back(run: Run, state: TrainingState, monitor: Monitor) -> None:
    """Return to the last good state after a loss that is not a number, with other random numbers from there on.

    Raises:
        ConfigError: it has happened too often.
    """
    failed, retries = state.step, state.retries + 1
    if retries > RETRIES:
        raise ConfigError(
            f"the loss was not a number at step {failed}, after {RETRIES} attempts from the last good state; lower "
            f"--lr1 ({run.config.lr1:g}) and --lr2 ({run.config.lr2:g}) and start again; {run.latest} is usable"
        )
    leg = state.leg
    state.load(checkpoint.load(run.latest, run.device), run.latest)
    state.leg, state.retries = leg, retries
    monitor.rewind(state.step)
    monitor.say(
        f"the loss was not a number at step {failed}: back to step {state.step}, attempt {retries} of {RETRIES} "
        "with other random numbers"
    )


def main(config: TrainConfig, typed: Mapping[str, Any]) -> None:
    """What `python train.py` does: faces, networks, the loop, and what to do next."""
    if config.tensorboard:
        tensorboard_log.writer_class()  # before anything is made: it may be missing
    if config.resume is None:
        begin(config, typed)
        return
    path = checkpoint_to_resume(config.resume)
    with alone(path.parent) if path.is_file() else contextlib.nullcontext():  # first: its trainer may be about to save
        begin(config, typed, path)


def begin(config: TrainConfig, typed: Mapping[str, Any], path: Path | None = None) -> None:
    """Make everything that a sitting needs, and train; from the checkpoint `path` where there is one."""
    since, content = time.perf_counter(), None
    if path is not None:
        config, content = resumed(config, typed, path)
    elif config.init or config.netg_path or config.netd_path:
        config = starting_from(config, typed)
    if content is None and "data_path" not in typed and not has_faces(config.data_path):
        print(
            f"no faces under {config.data_path}/: training on faces drawn by the program. With pictures of your own: "
            "python train.py --data_path=FOLDER"
        )
        config = dataclasses.replace(config, data_path=SYNTHETIC)
    folder = new_folder(config) if path is None else path.parent
    device = choose_device(config.gpu)
    pack = open_pack(config.data_path, config.image_size, num_workers=config.num_workers, channels=config.channels)
    training, held_out = pack.split(config.holdout)
    faces = {"digest": pack.digest, "training": len(training), "held_out": len(held_out), "rejected": pack.rejected}
    if content is not None and content["faces"]["digest"] != pack.digest:
        raise CheckpointError(
            f"{path}: has other faces than {config.data_path} ({content['faces']['training']} then, "
            f"{len(training)} now); give its own --data_path, or start a new run from its weights: --init={path}"
        )
    precision = content["chosen"]["precision"] if content else choose_precision(config.precision, device)
    try:
        if content is None:
            config = suited(config, typed, len(training))
            config = planned(config, typed, device, precision, since, len(training))
        batches = Batches(pack, training, config.batch_size, config.seed, device, config.flip)
        run = Run(folder, config, device, precision, faces)
        print(
            f"{len(training):,} faces to train on, {len(held_out):,} held out; {precision}; run: {folder}", flush=True
        )
        state = TrainingState(config, device)
        if content is None and config.init is None:  # old weights bring their own
            state.load_encoder()
        if content is not None and path is not None:
            state.load(content, path)
            keep_later(path, state.step)
        elif config.init is not None:
            state.load_initial(config.init, device)
        elif config.netg_path or config.netd_path:
            state.load_book(config.netg_path, config.netd_path)
        seconds = 0.0 if content is None else content["seconds"]
        if content is not None and "budget" in typed:
            state.begin_leg(seconds)
        state.finished = (state.finished and config.budget is not None) or state.step >= batches.steps(config.epochs)
        if state.finished:
            print(f"this run has finished; to go on: python train.py --resume={folder} {extension(config)}")
            return
        judge = open_judge(run, pack, training, held_out)
        with alone(run.folder) if content is None else contextlib.nullcontext():
            run.write_config()
            sitting(run, state, batches, seconds, judge, since)
    except (RuntimeError, MemoryError) as error:
        if not out_of_memory(error):
            raise
        raise ConfigError(
            f"out of memory on {describe(device)}: lower --batch_size (now {config.batch_size}), or --ngf "
            f"({config.ngf}) and --ndf ({config.ndf}) for smaller networks"
        ) from error


def planned(
    config: TrainConfig,
    typed: Mapping[str, Any],
    device: torch.device,
    precision: Precision,
    since: float,
    faces: int,
) -> TrainConfig:
    """The config with what suits its budget, which runs since `since`, on this machine; says what was chosen."""
    if config.budget is None or config.preset != "default" or config.init or config.netg_path or config.netd_path:
        return config
    left = max(0.0, 60 * config.budget - (time.perf_counter() - since))
    chosen = plan.choose(config, typed, device, precision, left, faces)
    options = " ".join(f"--{name}={value}" for name, value in chosen.plan.options.items() if name not in typed)
    print(
        f"{config.budget:g} minutes on {describe(device)}: {chosen.rate:.0f} images/s measured; chosen: {precision}, "
        f"{options or 'the default networks'}; about {chosen.images:,.0f} images; expect {chosen.plan.expect}"
    )
    return chosen.config


def suited(config: TrainConfig, typed: Mapping[str, Any], faces: int) -> TrainConfig:
    """The config with what suits so many faces; says what was chosen, or what more there is to be had."""
    own = plan.for_few(config, typed, faces)
    if own:
        options = " ".join(f"--{name}={value}" for name, value in own.items())
        print(f"{faces:,} faces are few, so that the discriminator may learn them by heart; chosen: {options}")
    elif (
        faces <= FEW[-1].most_faces
        and config.model == TrainConfig().model
        and config.init is None
        and config.data_path != SYNTHETIC
    ):
        print(
            f"{faces:,} faces are few to learn from; a start from the released generator, which has seen many, gets "
            "further: --init=released"
        )
    return dataclasses.replace(config, **own)


def extension(config: TrainConfig) -> str:
    """The option that makes a finished run longer: by as many minutes again, or by some epochs."""
    return f"--max_epoch={config.epochs + 50}" if config.budget is None else f"--budget={config.budget:g}"


def open_judge(run: Run, pack: Pack, training: np.ndarray, held_out: np.ndarray) -> Judge | None:
    """What measures the run, where it is to be measured and has faces enough."""
    config = run.config
    if not config.eval_images or len(pack.pixels) < LEAST:
        return None
    extractor, best, path = features.load("faces", None, run.device), None, run.folder / "best.pt"
    with contextlib.suppress(CheckpointError, KeyError):  # damaged, or of another program: the next one is better
        found = checkpoint.load(path, required=("evaluation",))["evaluation"] if path.is_file() else {}
        best = found[config.eval_metric] if found.get("features") == extractor.name else None
    return Judge(pack, training, held_out, extractor, config.eval_metric, best)


def sitting(
    run: Run, state: TrainingState, batches: Batches, seconds: float, judge: Judge | None, since: float
) -> None:
    """Train until the run ends or is stopped, and say what to do next. Preparing it began at `since`."""
    config, first = run.config, state.step
    samples = config.save_path or run.folder / "samples"
    outputs: list[Output] = []
    options = {**dataclasses.asdict(config), **run.describe()["chosen"]}
    if config.tensorboard:
        outputs.append(tensorboard_log.TensorBoardLog(run.folder / "tensorboard", options))
        print(f"TensorBoard: tensorboard --logdir {run.folder.parent}")
    if config.vis:
        env = config.env or run.folder.name
        page, told = visdom_page.open_page(config.vis_server, config.vis_port, config.vis_keep, env, options)
        print(told, flush=True)
        if page is not None:
            outputs.append(page)
    state.leg = dataclasses.replace(state.leg, seconds=state.leg.seconds - (time.perf_counter() - since))
    ends = None if config.budget is None else state.leg.seconds + 60 * config.budget
    monitor = Monitor(run.folder, samples, len(batches), config.epochs, state.step, seconds, ends, outputs)
    for output in outputs:
        output.picture("faces", "Faces it learns from", images.grid(batches.examples(BATCH)), state.step)
    if first:
        print(f"going on from step {first}, {first * config.batch_size:,} images seen", flush=True)
    try:
        with stop_signals() as asked, contextlib.closing(monitor):
            train(run, state, batches, monitor, asked, judge)
    except bdb.BdbQuit as error:
        raise ConfigError(
            "the debugger was left with q in the middle of a step, which ends the run (c goes on); its last save is "
            f"whole: python train.py --resume={run.folder}"
        ) from error
    more = extension(config) if state.finished else ""
    print(f"{'finished' if more else 'stopped'} at step {state.step}, {state.step * config.batch_size:,} images seen")
    print(f"samples: {samples}")
    print(f"faces:   python generate.py --checkpoint={run.folder}")
    print(f"go on:   python train.py --resume={run.folder}{' ' if more else ''}{more}")


if __name__ == "__main__":
    command_line(TrainConfig, main)
