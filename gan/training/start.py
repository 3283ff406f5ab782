"""The start of a run: its folder, faces, options, files and weights, in the order in which they are settled."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from config import CheckpointError, ConfigError, DataError, Precision, TrainConfig
from gan.classes import NONE, Classes
from gan.command_line import show
from gan.data import labels
from gan.data.batches import Batches
from gan.data.faces import open_pack
from gan.device import choose_device, choose_precision, describe, give_back_memory, out_of_memory
from gan.files import as_word
from gan.quality.evaluation import Evaluator
from gan.training import plan, preparing
from gan.training.preparing import Faces
from gan.training.ranks import Ranks
from gan.training.run import Run, TrainingState
from gan.training.sittings import checkpoint_to_resume, keep_later, run_lock
from gan.training.step import Steps
from gan.watching.health import Probe


@dataclasses.dataclass(frozen=True)
class Ready:
    """A run ready to train, with its training time so far and `time.perf_counter()` from before its preparation."""

    run: Run
    state: TrainingState
    batches: Batches
    evaluator: Evaluator | None
    probe: Probe
    seconds: float
    since: float


@contextlib.contextmanager
def begin(config: TrainConfig, typed: Mapping[str, Any], ranks: Ranks, steps: Steps) -> Iterator[Ready | None]:
    """Begin or resume a run, and lock its folder against other processes until the end.

    Typed options take precedence over chosen ones. The machine is measured by `steps`.

    Yields:
        The run; None if it has already finished.

    Raises:
        UserError: something is missing or does not fit, or there is not enough memory.
    """
    path = checkpoint_to_resume(config.resume) if config.resume is not None and ranks.first else None
    lock = run_lock(path.parent) if path is not None and os.path.isfile(path) else contextlib.nullcontext()
    with lock:  # another process that trains the run may be about to save
        since, device = time.perf_counter(), torch.device("cpu")
        try:
            found = preparing.looked_up(config, typed, path) if ranks.first else (config, None, Path())
            config, content, folder = ranks.broadcast(found)
            device = choose_device(config.gpu, show)
            ranks.agree(device)
            ranks.check(config, device)
            faces = open_faces(config, content, ranks, path or folder)
            new = content is None
            texts = labels.read(faces.pack, config.data_path, config.classes, show) if new and ranks.first else None
            chosen = preparing.select_faces(config, content, faces, device) if ranks.first else None
            faces = dataclasses.replace(faces, chosen=ranks.broadcast(chosen))
            found = preparing.labelled(config, content, faces, texts) if ranks.first else None
            vocabulary, codes = ranks.broadcast(found) or ((), None)
            faces = dataclasses.replace(faces, codes=codes)
            config = dataclasses.replace(config, vocabulary=vocabulary)
            config, precision, compiled = choose_options(config, typed, content, faces, ranks, device, steps, since)
            classes = NONE if codes is None else Classes.of(vocabulary, codes[faces.training])
            of_faces = faces.describe(), ranks, compiled, faces.chosen, codes, classes
            run = Run(folder, config, device, precision, *of_faces)
            batches = open_batches(run, faces)
            state, seconds = open_state(run, typed, content, path or folder)
            state.finished = state.finished or state.step >= batches.steps(config.epochs)
            if state.finished:
                again = f"python train.py --resume={as_word(folder)} {preparing.extension(config)}"
                show(f"this run has finished; to go on: {again}")
                yield None
                return
            if content is not None and path is not None:
                keep_later(path, state.step, config.save_path or folder / "samples")
            evaluator = preparing.open_evaluator(run, state, faces) if ranks.first else None
            probe = preparing.open_probe(faces)
            content = found = texts = None  # a checkpoint is as large as the networks
            new = new and ranks.first
            new_lock = run_lock(folder, True, config.run is not None) if new else contextlib.nullcontext(folder)
            with new_lock as run.folder:
                if run.folder != folder:  # another process started a run in the same second
                    show(f"run: {run.folder}")
                if ranks.first:
                    run.write_config()
                give_back_memory()
                yield Ready(run, state, batches, evaluator, probe, seconds, since)
        except (RuntimeError, MemoryError) as error:
            if (said := in_words(error, config, device)) is None:
                raise
            raise said from error


def open_faces(config: TrainConfig, content: Mapping[str, Any] | None, ranks: Ranks, path: Path) -> Faces:
    """Open the faces, which the first process of each machine packs.

    Raises:
        DataError: another machine has other faces.
        CheckpointError: the run from `path`, with this content, began with other faces.
    """
    with ranks.in_turn():
        pack = open_pack(
            config.data_path, config.image_size, num_workers=config.num_workers, say=show, channels=config.channels
        )
    if ranks.broadcast(pack.digest) != pack.digest:
        raise DataError(
            f"{config.data_path}: the faces differ from those on the first machine; give both the same pictures"
        )
    faces = Faces(pack, *pack.split(config.holdout))
    if content is not None and content["faces"]["digest"] != pack.digest:
        known = content["faces"]["training"] + content["faces"].get("left_out", 0)
        raise CheckpointError(
            f"{path}: was trained on other faces than {config.data_path} ({known:,}, now {len(faces.training):,}); "
            f"give its own --data_path, or start a new run from its weights: --init={as_word(path)}"
        )
    return faces


def choose_options(
    config: TrainConfig,
    typed: Mapping[str, Any],
    content: Mapping[str, Any] | None,
    faces: Faces,
    ranks: Ranks,
    device: torch.device,
    steps: Steps,
    since: float,
) -> tuple[TrainConfig, Precision, bool]:
    """Return config, precision and whether to compile.

    A resumed run keeps the precision on a device of the same kind, and compiles as before on the same device.
    """
    n = len(faces.training)
    if n < config.batch_size:
        more = "faces" if faces.chosen is None else f"--typical=1 for all {len(faces.all_training):,}"
        raise DataError(
            f"{n:,} faces to train on, fewer than a batch of {config.batch_size}; add {more} or lower --batch_size"
        )
    chosen = content["chosen"] if content is not None else None
    if chosen is not None and device.type == "cpu" and preparing.same_kind(chosen["device"], device):
        precision = chosen["precision"]  # it was measured
    else:
        precision = choose_precision(config.precision, device)  # this GPU may not be the one of before
    if config.precision == "auto" and any(ranks.all_reduce_max(precision == "fp32")):  # on another GPU of this run
        precision = "fp32"
    machine = plan.Machine(steps, device, precision, ranks.world)
    known = functools.cache(lambda: preparing.anime(config, faces, device))
    if content is None and ranks.first:
        config = preparing.suited_to_kind(config, faces, known)
        config = preparing.suited(config, typed, n, device, known)
        config = preparing.planned(config, typed, machine, since, n)
    config, precision = ranks.broadcast((config, precision))
    before = None
    if chosen is not None and chosen["device"] == describe(device):  # another may have no compiler
        before = chosen.get("compile", False)
    return config, precision, preparing.choose_compile(config, machine, since, n, before)


def open_batches(run: Run, faces: Faces) -> Batches:
    """Open this process's part of the batches, and print how many faces there are."""
    config, ranks, n = run.config, run.ranks, len(faces.training)
    processes = f"; {ranks.world} processes" if ranks.world > 1 else ""
    held_out = f"{len(faces.all_held_out):,} held out"
    preset = "" if config.preset == "default" else f"; preset {config.preset}"
    show(f"{n:,} faces to train on, {held_out}; {run.precision}{preset}; run: {run.folder}{processes}")
    part = ranks.part(config.batch_size)
    return Batches(
        faces.pack, faces.training, config.batch_size, config.seed, run.device, config.flip, part, faces.codes
    )


def open_state(
    run: Run, typed: Mapping[str, Any], content: Mapping[str, Any] | None, path: Path
) -> tuple[TrainingState, float]:
    """Return the state of a new run, or of a resumed one from its checkpoint, and its training time so far."""
    state = TrainingState(run.config, run.device)
    if content is None:
        if run.ranks.first:  # the other processes receive the first one's weights
            state.take_weights(run.config, run.device)
        return state, 0.0
    state.load(content, path)
    if "budget" in typed:
        state.begin_cycle(content["seconds"])
    state.finished = state.finished and run.config.budget is not None
    return state, content["seconds"]


def in_words(error: Exception, config: TrainConfig, device: torch.device) -> ConfigError | None:
    """Explain an error of torch's compiler or a lack of memory to the user; return None for other errors."""
    if any(kind.__module__.startswith(("torch._dynamo", "torch._inductor")) for kind in type(error).__mro__):
        why = str(error).strip().splitlines()[0]
        return ConfigError(f"the networks cannot be compiled on this machine ({why}); add --nocompile")
    if not out_of_memory(error):
        return None
    smaller = f"--batch_size={config.batch_size // 2}" if config.batch_size > 3 else "a smaller --ngf and --ndf"
    return ConfigError(
        f"out of memory on {describe(device)}: a step of {config.batch_size} faces does not fit; start again with "
        f"{smaller}"
    )
