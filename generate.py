"""Generate faces from a checkpoint: python generate.py --nogen 64."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from config import CheckpointError, ConfigError, GenerateConfig
from gan import images
from gan.classes import ROW
from gan.command_line import command_line
from gan.device import choose_device, enough_memory
from gan.files import printable
from gan.quality import features, sampling, whole_faces
from gan.quality.sampling import Sampler

GRID = 1024  # most faces in the grid; more would be too small to see and take too much memory


def generate(config: GenerateConfig) -> None:
    """Generate `config.gen_num` faces into a grid, and into single files where asked.

    Raises:
        CheckpointError: the checkpoint cannot be used.
        ConfigError: a picture cannot be written.
    """
    device = choose_device(config.gpu)
    if config.netg_path is None:
        sampler = sampling.load(config.checkpoint, device)
    else:
        sampler = sampling.load_book(config.netg_path, config.netd_path, device)
    if config.list_classes:
        print(sampler.classes.table() or f"{printable(str(config.netg_path or config.checkpoint))}: knows no classes")
        return
    until = dict[int, int]()
    if config.classes is not None:
        sampler.asked, until = sampler.classes.parse(config.classes)
    if until != sampler.asked:
        if config.gen_search_num is not None:
            raise ConfigError("--gen_search_num chooses single faces, --class=FROM..TO makes rows; give one of them")
        rows(sampler, until, config)
        return
    seeds: Sequence[int] = range(config.seed, config.seed + (config.gen_search_num or config.gen_num))
    chosen = ""
    if config.gen_search_num is not None:
        seeds, chosen = choose(sampler, seeds, config)

    shown: list[np.ndarray] = []
    batches = sampler.faces(seeds, config.gen_mean, config.gen_std)
    named = zip(seeds, itertools.chain.from_iterable(batches), strict=True)
    try:
        with images.PictureWriter() as writer:
            for seed, face in bar("generating", len(seeds), named):
                if len(shown) < GRID:
                    shown.append(face)
                if config.outdir is not None:
                    writer.save(face, config.outdir / f"face-{seed:08d}.png")
        images.save_picture(images.grid(np.stack(shown)), config.gen_img)
    except OSError as error:
        raise ConfigError(f"could not write the pictures: {error}; choose another --gen_img or --outdir") from error
    print(f"{min(len(seeds), GRID)} faces in {config.gen_img}{chosen}")
    if config.outdir is not None:
        print(f"{len(seeds)} single faces in {config.outdir}")


def rows(sampler: Sampler, until: Mapping[int, int], config: GenerateConfig) -> None:
    """Write a grid with a row for each seed, on its way from the classes that are asked for to others."""
    seeds, shown = range(config.seed, config.seed + math.ceil(config.gen_num / ROW)), list[np.ndarray]()
    try:
        with images.PictureWriter() as writer:
            for seed in bar("generating", len(seeds), seeds):
                row = sampler.between(seed, until, ROW, config.gen_mean, config.gen_std)
                shown += [row] if len(shown) < GRID // ROW else []
                for i, face in enumerate(row):
                    if config.outdir is not None:
                        writer.save(face, config.outdir / f"face-{seed:08d}-{i}.png")
        images.save_picture(images.grid(np.concatenate(shown), ROW), config.gen_img)
    except OSError as error:
        raise ConfigError(f"could not write the pictures: {error}; choose another --gen_img or --outdir") from error
    print(f"{len(shown)} rows of {ROW} faces in {config.gen_img}")
    if config.outdir is not None:
        print(f"{ROW * len(seeds)} single faces in {config.outdir}")


def choose(sampler: Sampler, seeds: Sequence[int], config: GenerateConfig) -> tuple[Sequence[int], str]:
    """Choose the best samples: anime faces by how whole they look, others and the book's by the discriminator.

    Returns:
        Their seeds, best first; and in words how they were chosen.
    """
    latents = config.gen_mean, config.gen_std
    with bar("choosing", len(seeds)) as progress:
        if config.netg_path is None:
            whole = whole_faces.load(features.load("faces", None, sampler.device))
            some = sampler.faces(seeds[: whole_faces.ASKED], *latents)
            if whole.knows(torch.cat([whole.extractor(faces) for faces in some])):
                best = sampler.best(seeds, config.gen_num, *latents, progress.update, whole)
                return best, f", of {len(seeds):,} those that look most whole"
        best = sampler.best(seeds, config.gen_num, *latents, progress.update)
        return best, f", of {len(seeds):,} the best as far as the discriminator can tell"


def bar(what: str, total: int, faces: Any = None) -> tqdm:
    """A progress bar, in a terminal, for work that takes a while."""
    quick = total <= 8 * sampling.BATCH
    return tqdm(faces, desc=what, total=total, unit="face", disable=quick or not sys.stderr.isatty(), leave=False)


def timelapse(run: Path, path: Path) -> None:
    """Make a film of a run's preview grids; `run` is its folder.

    Raises:
        CheckpointError: there are too few preview grids.
        ConfigError: the film cannot be written.
    """
    samples = samples_of(run)
    frames = sorted(samples.glob(images.PREVIEWS))
    if len(frames) < 2:
        raise CheckpointError(
            f"{run}: {len(frames)} preview grids in {samples}, but a film needs two; give the folder of a run that was "
            "trained with --plot_every above 0"
        )
    if path.suffix.lower() not in (".webp", ".gif", ".mp4"):
        raise ConfigError(f"--gen_img: expected a film ending in .webp, .gif or .mp4; got '{path}'")
    if path.suffix.lower() == ".mp4" and importlib.util.find_spec("av") is None:
        raise ConfigError("--gen_img: .mp4 needs the package av; pip install -r requirements-extra.txt, or give .webp")
    try:
        n = images.save_film(frames, path)
    except OSError as error:
        raise ConfigError(
            f"could not make the film of {run}: {error}; check that the grids in {samples} are whole, or give another "
            "place for the film: --gen_img"
        ) from error
    print(f"{n} pictures of the same latents, from first to last, in {path}")


def samples_of(run: Path) -> Path:
    """The folder of a run's preview grids."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):  # then they are where they usually are
        if found := json.loads((run / "config.json").read_text(encoding="utf-8"))["config"]["save_path"]:
            return Path(found)
    return run / "samples"


def main(config: GenerateConfig, typed: Mapping[str, Any]) -> None:
    """Run `python generate.py`."""
    if config.timelapse is not None:
        film = config.gen_img if "gen_img" in typed else config.timelapse / "timelapse.webp"
        timelapse(config.timelapse, film)
    else:
        with enough_memory("out of memory: stop other programs that use it, or generate with --nogpu"):
            generate(config)


if __name__ == "__main__":
    command_line(GenerateConfig, main)
