"""The work between steps: evaluating, previewing and saving. None of it affects the training."""

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from config import CheckpointError
from gan import images, latent
from gan.data.batches import Batches
from gan.device import autocast, skipping
from gan.files import as_word, printable
from gan.images import to_pixels
from gan.language import said, text, why
from gan.quality.evaluation import Evaluator
from gan.quality.sampling import BATCH
from gan.training import ema
from gan.training.budget import evaluated_last
from gan.training.run import Run, TrainingState
from gan.watching.health import Probe, in_words
from gan.watching.monitor import Monitor
from model import Generator

CLOSING_SECONDS = 2.0  # reserved for the last preview and save of a resumed run; a new run or cycle measures its own
ESTIMATE_SECONDS = 1.0  # that it takes, roughly, to know what the first measurement will take
STATISTICS_BATCHES, STATISTICS_BATCH = 4, 128  # latents for the averaged generator's BatchNorm statistics


def first_save(run: Run, state: TrainingState, monitor: Monitor, probe: Probe | None) -> float:
    """Preview and save at the start of a run or cycle; return the seconds that a preview and a save take."""
    if not run.ranks.first or (state.step != state.cycle.step and run.latest.is_file()):
        return CLOSING_SECONDS
    since = time.perf_counter()
    preview(run, state, monitor, probe)
    save(run, state, monitor)
    return time.perf_counter() - since


def epochs_due(batches: Batches, step: int, every: int) -> bool:
    """Return whether `step` completes a multiple of `every` epochs."""
    return batches.epochs(step) // every > batches.epochs(step - 1) // every


def evaluate(run: Run, state: TrainingState, evaluator: Evaluator | None, monitor: Monitor) -> dict[str, float]:
    """Evaluate the averaged generator if an evaluation is due and there is time; save the best state as best.pt.

    Returns:
        The metrics by name; empty if there was no evaluation.
    """
    if evaluator is None:
        return {}
    config, seen = run.config, state.step * run.config.batch_size
    now = seen // config.eval_images > (seen - config.batch_size) // config.eval_images
    if not (now or state.finished) or not state.is_finite():
        return {}
    since, found = time.perf_counter(), dict[str, float]()
    with skipping(text("measurement at {:,} images").format(seen), monitor.log):
        last = state.finished and evaluated_last(config, evaluator)
        if not last and not (monitor.may_measure(ESTIMATE_SECONDS) and monitor.may_measure(evaluator.cost())):
            monitor.measured(since)
            return {}
        averaged(run, state)
        found = evaluator.measure()
        took = time.perf_counter() - since
        counted = monitor.awake("measurement", took)
        since, evaluator.seconds = since + took - counted, min(evaluator.seconds, counted)
    monitor.measured(since)
    if found:
        keep_best(run, state, evaluator, monitor, found)
    return found


def keep_best(run: Run, state: TrainingState, evaluator: Evaluator, monitor: Monitor, found: dict[str, float]) -> None:
    """Print the metrics of an evaluation, and save the state as best.pt if it is the best so far."""
    before, best = evaluator.best, evaluator.is_best(found, monitor.curves.column("fd")[1])
    of = text("{:,} samples, {}").format(len(evaluator.chosen), evaluator.extractor.name)
    seen = state.step * run.config.batch_size
    line = text("quality at {:,} images: {} ({}), the best so far") if best else text("quality at {:,} images: {} ({})")
    monitor.log(line.format(seen, in_words(found, run.config.best_by), of))
    if not best:
        return
    evaluation = {"features": evaluator.extractor.name, "images_seen": seen, **found}  # what made it the best
    try:
        run.save(state, monitor.seconds, run.folder / "best.pt", evaluation=evaluation)
    except CheckpointError as error:
        evaluator.best = before  # best.pt still holds this one
        monitor.log(text("{}; training goes on, the last good file stays").format(said(error)))


def preview(run: Run, state: TrainingState, monitor: Monitor, probe: Probe | None) -> None:
    """Write the grid of samples from the run's fixed latents, see `Classes.previews`.

    `generate.py` draws the same samples from these seeds. With a probe, also measure the diversity of the samples, and
    how the discriminator rates faces that it was not trained on.
    """
    if not run.config.plot_every:
        return
    since, pixels = monitor.begin_preview(), None
    with skipping(text("preview of step {}").format(state.step), monitor.log):
        average = averaged(run, state)
        with torch.no_grad(), autocast(run.device, run.precision):
            faces, codes = samples(run, average, *run.classes.previews())
            if probe is not None:
                faces_apart = faces
                if run.classes.vocabulary:  # the rows of the grid share their latents
                    faces_apart, codes = samples(run, average, range(BATCH), run.classes.of_seeds(range(BATCH)))
                state.discriminator.eval()  # so that BatchNorm does not learn from these batches
                monitor.note(**probe(faces_apart.float(), state.discriminator, codes))
                probe.step = state.step
        pixels = to_pixels(faces)
    state.discriminator.train()
    if pixels is not None:
        rows = [printable(run.classes.vocabulary[0][code]) for code in run.classes.previewed()]
        monitor.preview(state.step, pixels, since, rows)


def samples(run: Run, generator: Generator, seeds: Sequence[int], codes: np.ndarray) -> tuple[Tensor, Tensor]:
    """Return samples (N, C, S, S) in [-1, 1] for seeds and classes (N, V), and these classes on the run's device."""
    on_device = torch.from_numpy(codes).to(run.device)
    return generator(latent.latents(seeds, run.config.nz).to(run.device), on_device), on_device


def averaged(run: Run, state: TrainingState) -> Generator:
    """Return the averaged generator with BatchNorm statistics of its own. The training generator is unchanged."""
    if state.estimated_at != state.step:
        _estimate_statistics(run, state)
        state.estimated_at = state.step
    return state.ema


def _estimate_statistics(run: Run, state: TrainingState) -> None:
    latents = list[Tensor]()
    for i in range(STATISTICS_BATCHES):
        random = latent.stream(run.config.seed, i, "statistics")
        z = latent.normal(random, STATISTICS_BATCH, run.config.nz)
        codes = torch.from_numpy(run.classes.draw(random, STATISTICS_BATCH))
        latents.append(state.ema.conditioned(z.to(run.device), codes.to(run.device)).detach())
    with autocast(run.device, run.precision):
        ema.estimate_statistics(state.ema, latents)


def save(run: Run, state: TrainingState, monitor: Monitor, numbered: bool = False, ending: bool = False) -> bool:
    """Save the run, after estimating the averaged generator's BatchNorm statistics.

    A full disk does not end the training: a message is printed, and the last good files stay.

    Returns:
        True if latest.pt now holds the state.

    Raises:
        CheckpointError: the last save of a run failed. The message says where else the state was saved.
    """
    with skipping(text("the averaged generator's new BatchNorm statistics"), monitor.log):
        averaged(run, state)
    lost = None
    try:
        if numbered:  # first: a run killed before latest.pt is written resumes before this step, and saves both again
            run.save_numbered(state, monitor.seconds)
    except CheckpointError as error:
        lost = error
    try:
        run.save(state, monitor.seconds)
    except CheckpointError as error:
        if ending:
            run.rescue(state, monitor.seconds, error)
        kept = text("{}; training goes on, the last good file stays")
        none = text("{}; training goes on, nothing of this run is saved yet")
        monitor.log((kept if run.latest.is_file() else none).format(said(error)))
        return False
    if lost is not None:
        monitor.log(text("{}; {} is good").format(said(lost), run.latest))
    return True


def make_film(samples: Path, film: Path, monitor: Monitor) -> None:
    """Make a film of the preview grids of a finished run, if there are at least two."""
    previews = sorted(samples.glob(images.PREVIEWS))
    if len(previews) < 2:
        return
    try:
        images.save_film(previews, film)
    except OSError as error:
        line = text("could not make {}: {}; to try again: python generate.py --timelapse={}")
        monitor.log(line.format(film, why(error), as_word(film.parent)))
