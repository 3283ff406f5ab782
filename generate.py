"""Generate faces from a checkpoint: python generate.py --nogen 64."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from tqdm import tqdm

from config import LABELS, NOGPU, RELEASED, CheckpointError, ConfigError, check_numbers, option
from gan import images
from gan.classes import ROW
from gan.command_line import command_line
from gan.device import choose_device, enough_memory
from gan.files import printable
from gan.play import directions, inversion, morph, recipes
from gan.play.api import Generator
from gan.play.morph import MOST_SECONDS
from gan.play.recipes import Recipe
from gan.quality import sampling, whole_faces
from gan.quality.sampling import Sampler

GRID = recipes.MOST  # maximum number of faces in the grid; more would be too small and take too much memory
FILMED = 64  # maximum number of faces that a film goes through
RECOLOURED = 4  # number of faces whose colour is changed without a progress bar


VERBS = ("seeds", "like", "mix", "invert", "morph", "timelapse")  # options that each say what to generate
MOST_SEEDS = 1_000_000  # in one call
PICTURES = (".png", ".jpg", ".jpeg", ".webp")  # suffixes of pictures that `generate.py` can write


@dataclasses.dataclass(frozen=True, kw_only=True)
class GenerateConfig:
    """Generate faces from a checkpoint into a picture."""

    examples: ClassVar[tuple[str, ...]] = (
        "--nogen 64",
        "--checkpoint=checkpoints/my_run --gen_search_num=512",
        "--gen_std=0.7 --seed=1000",
    )

    checkpoint: Path = option(
        RELEASED,
        "a file, or a run's folder (its best.pt, else latest.pt); by default released, the generator that comes with "
        "the program.",
    )
    netg_path: Path | None = option(None, "take a generator that the book's program saved, netg_200.pth, instead.")
    netd_path: Path | None = option(
        None, "the discriminator that belongs to it, netd_200.pth; needed for --gen_search_num."
    )
    gen_num: int = option(64, "number of faces; --nogen is the same option.", ge=1)
    gen_img: Path = option(
        Path("result.png"), "the picture to write, a grid of all faces (the first 1,024 when there are more)."
    )
    outdir: Path | None = option(None, "folder that also gets every face as a PNG of its own.")
    seed: int = option(0, "seed of the first face; the next faces have the next seeds.", ge=0, le=2**53)
    seeds: str | None = option(None, "the seeds of the faces, in place of seed and gen_num: 1-64,100.")
    like: Path | None = option(
        None, "a PNG that this program wrote: generate its face or its grid again, with the generator that made it."
    )
    mix: str | None = option(None, "a sum of faces, by their seeds or such PNG files: '12 - 7 + 30'.")
    invert: Path | None = option(None, "a picture: find the face that looks most like it.")
    vary: float | None = option(
        None,
        "gen_num neighbours of one face, of seeds, like, mix or invert; from 0, the face itself, to 1, any other face, "
        "of any class and colour.",
        ge=0,
        le=1,
    )
    hair: str | None = option(
        None, "recolour the hair of the faces, as blue, until it looks so; a class of that colour is where it starts."
    )
    eyes: str | None = option(None, "the same for their eyes.")
    light: float | None = option(None, "make them lighter; from -1, dark, to 1.", ge=-1, le=1)
    warm: float | None = option(None, "make their colours warmer; from -1, bluish, to 1.", ge=-1, le=1)
    turn: float | None = option(None, "lean them to the right; from -1, to the left, to 1.", ge=-1, le=1)
    morph: str | None = option(
        None,
        "make a film instead that goes from face to face and back to the first, by their seeds or such PNG files: "
        "3,17,42; morph.webp, or the file of --gen_img.",
    )
    seconds: float | None = option(
        None, f"length of that film; unset: two per face, up to {MOST_SECONDS}.", ge=0.2, le=MOST_SECONDS
    )
    fps: int = option(25, "its frames per second.", ge=1, le=30)
    classes: str | None = option(
        None,
        "draw faces of these classes, as hair:blue,eyes:red; what is left out is drawn as often as faces had it. With "
        "hair:blue..red each row of the grid is one face whose class goes from the first to the second.",
    )
    list_classes: bool = option(False, "print the classes that the generator knows, and draw nothing.")
    gen_search_num: int | None = option(
        None,
        "generate this many and keep the gen_num whose eyes look most whole; if they are not anime faces, or of "
        "--netg_path, those that the discriminator rates best; unset keeps all.",
        ge=1,
    )
    gen_mean: float = option(0.0, "mean of the latents.", ge=-10, le=10)
    gen_std: float = option(
        1.0,
        "standard deviation of the latents (truncation): below 1 faces are cleaner and more alike, above 1 wilder.",
        ge=0,
        le=10,
    )
    gpu: bool | None = option(None, f"generate on the GPU; {NOGPU}")
    timelapse: Path | None = option(
        None,
        "a run's folder: make a film of its preview grids instead, timelapse.webp in that folder; or the file of "
        "--gen_img, ending in .webp, .gif, or .mp4 (which needs requirements-extra.txt).",
    )

    def __post_init__(self) -> None:
        check_numbers(self)
        if self.gen_search_num is not None and self.gen_search_num < self.gen_num:
            raise ConfigError(
                f"--gen_search_num: must be at least --gen_num ({self.gen_num}), which are chosen from it; "
                f"got {self.gen_search_num}"
            )
        if self.netd_path is not None and self.netg_path is None:
            raise ConfigError("--netd_path only chooses among samples of --netg_path; give that too")
        if self.netg_path is not None and self.checkpoint != RELEASED:
            raise ConfigError("--checkpoint and --netg_path both name a generator; give one of them")
        if self.netg_path is not None and self.netd_path is None and self.gen_search_num is not None:
            raise ConfigError("--gen_search_num chooses by a discriminator; give the one of --netg_path: --netd_path")
        verbs = [name for name in VERBS if getattr(self, name) is not None]
        if len(verbs) > 1:
            raise ConfigError(f"--{verbs[0]} and --{verbs[1]} each say what to generate; give one of them")
        if self.gen_search_num is not None and verbs:
            raise ConfigError(
                f"--gen_search_num chooses among seeds from --seed on, --{verbs[0]} names the faces; give one of them"
            )
        if self.vary is not None and (self.morph or self.timelapse or self.gen_search_num) is not None:
            raise ConfigError(
                "--vary draws the neighbours of one face; name it with --seeds, --like, --mix or --invert"
            )
        if self.classes is not None and (self.like or self.invert) is not None:
            verb = "invert" if self.like is None else "like"
            raise ConfigError(f"--{verb} shows a face of any class; leave --class out")
        if (self.morph or self.timelapse) is None and self.gen_img.suffix.lower() not in PICTURES:
            raise ConfigError(f"--gen_img: expected a name ending in .png, .jpg or .webp; got '{self.gen_img}'")
        _ = self.chosen_seeds

    @property
    def colours(self) -> dict[str, str]:
        """The requested colours, by label (hair or eyes)."""
        return {name: colour for name in LABELS if (colour := getattr(self, name)) is not None}

    @property
    def chosen_seeds(self) -> Sequence[int]:
        """The seeds of the faces.

        Raises:
            ConfigError: `seeds` is malformed, or asks for too many faces.
        """
        if self.seeds is None:
            return range(self.seed, self.seed + self.gen_num)
        chosen: list[int] = []
        for part in self.seeds.split(","):
            ends = re.fullmatch(r"\s*(\d{1,16})\s*(?:-\s*(\d{1,16})\s*)?", part)
            first, last = (0, -1) if ends is None else (int(ends[1]), int(ends[2] or ends[1]))
            if not first <= last <= 2**53:
                raise ConfigError(f"--seeds: expected numbers and ranges such as 1-64,100; got {part.strip()!r}")
            if len(chosen) + last - first >= MOST_SEEDS:
                raise ConfigError(f"--seeds: at most {MOST_SEEDS:,} faces at once; got {self.seeds!r}")
            chosen += range(first, last + 1)
        return list(dict.fromkeys(chosen))


def generate(config: GenerateConfig) -> None:
    """Generate what `config` requests: faces in a grid and in single files, or a film of them.

    Raises:
        CheckpointError: the checkpoint cannot be used.
        ConfigError: a face, class or colour is unknown, or a picture cannot be written.
    """
    if config.netg_path is None:
        sampler = Generator.load(config.checkpoint, config.gpu, print).sampler
    else:
        sampler = sampling.load_book(config.netg_path, config.netd_path, choose_device(config.gpu))
    if config.list_classes:
        print(sampler.classes.table() or f"{printable(str(config.netg_path or config.checkpoint))}: knows no classes")
        return
    first, until = dict[int, int](), dict[int, int]()
    of_seeds = (config.like or config.invert) is None and not re.search(r"[^\d\s,+-]", config.mix or config.morph or "")
    learned = sampler.classes.learned(config.colours) if of_seeds else []
    asked = ",".join(filter(None, [config.classes, *(f"{name}:{config.colours[name]}" for name in learned)]))
    if asked:
        first, until = sampler.classes.parse(asked)
        recoloured = {column for column in first if sampler.classes.vocabulary[column][0] in learned}
        sampler.asked = {column: code for column, code in first.items() if column not in recoloured}
        sampler.replaced = {column: first[column] for column in recoloured}
        until = {column: code for column, code in until.items() if column in sampler.asked}
    move = mover(sampler, config)
    if until != sampler.asked:
        for other in ("gen_search_num", "mix", "morph", "vary"):
            if getattr(config, other) is not None:
                raise ConfigError(f"--class=FROM..TO makes a row for each seed, --{other} does not; give one of them")
        seeds = config.chosen_seeds if config.seeds else config.chosen_seeds[: math.ceil(config.gen_num / ROW)]
        write(rows(sampler, seeds, until, config, move), ROW * len(seeds), sampler, config, ROW)
    elif config.morph is not None:
        film(sampler, config.morph, config, move)
    elif (config.like or config.mix or config.invert or config.vary) is not None:
        name, recipe = played(sampler, config, move)
        faces = ((f"{name}-{i:04d}", None, z, face) for i, (z, face) in enumerate(drawn(sampler, recipe.latents)))
        write(faces, len(recipe.latents), sampler, config, recipe.columns)
    else:
        seeds, chosen = config.chosen_seeds, ""
        if config.gen_search_num is not None:
            seeds = range(config.seed, config.seed + config.gen_search_num)
            with bar("choosing", len(seeds)) as progress:
                seeds, by = whole_faces.choose(
                    sampler, seeds, config.gen_num, config.gen_mean, config.gen_std, progress.update
                )
            moved = config.colours or any(getattr(config, name) for name in directions.SLIDERS)
            chosen = f", of {config.gen_search_num:,} {by}{' before the change' if moved else ''}"
        write(named(sampler, seeds, config, move), len(seeds), sampler, config, said=chosen)


Drawn = tuple[str, int | None, torch.Tensor, np.ndarray]  # a face: file name, seed if any, latent, pixels
Draw = Callable[[Sampler], torch.Tensor]  # returns the latents (N, nz) of faces, of the classes of a sampler
Mover = Callable[[Draw], torch.Tensor]


def mover(sampler: Sampler, config: GenerateConfig) -> Mover:
    """Return a function that moves latents along the sliders, and on until hair and eyes have the colours asked for.

    Raises:
        ConfigError: a colour is unknown.
    """
    sliders = {name: share for name in directions.SLIDERS if (share := getattr(config, name))}
    if not config.colours and not sliders:
        return lambda draw: draw(sampler)
    with bar("finding directions", directions.SAMPLES) as progress:
        found = directions.of(sampler, progress.update)
    replaced = {sampler.classes.vocabulary[column][0] for column in sampler.replaced}
    for name, colour in config.colours.items():
        if name not in replaced:
            found.code(name, colour)

    def each(latents: torch.Tensor) -> Iterable[torch.Tensor]:
        return bar("recolouring", len(latents), latents, RECOLOURED)

    return lambda draw: found.change(sampler, draw, sliders, config.colours, each)


def drawn(sampler: Sampler, latents: torch.Tensor) -> Iterator[tuple[torch.Tensor, np.ndarray]]:
    """Yield each latent of (N, nz) with its face."""
    return zip(latents, itertools.chain.from_iterable(sampler.draw(latents)), strict=True)


def named(sampler: Sampler, seeds: Sequence[int], config: GenerateConfig, move: Mover) -> Iterator[Drawn]:
    """Generate the face of each seed."""
    for start in range(0, len(seeds), sampling.BATCH):
        some = seeds[start : start + sampling.BATCH]
        latents = move(lambda of, some=some: of.latents(some, config.gen_mean, config.gen_std).cpu())
        for seed, (z, face) in zip(some, drawn(sampler, latents), strict=True):
            yield f"face-{seed:08d}", seed, z, face


def rows(
    sampler: Sampler, seeds: Sequence[int], until: Mapping[int, int], config: GenerateConfig, move: Mover
) -> Iterator[Drawn]:
    """Generate a row of faces for each seed, from the requested classes to those of `until`."""
    for seed in seeds:
        latents = move(lambda of, seed=seed: of.between(seed, until, ROW, config.gen_mean, config.gen_std).cpu())
        for i, (z, face) in enumerate(drawn(sampler, latents)):
            yield f"face-{seed:08d}-{i}", seed, z, face


def played(sampler: Sampler, config: GenerateConfig, move: Mover) -> tuple[str, Recipe]:
    """Return the name of the files and the faces of `--like`, `--mix`, `--invert` and `--vary`.

    Raises:
        ConfigError: a face is unknown, or `--vary` applies to several faces.
        DataError: the picture of `--invert` cannot be read.
    """
    latents = config.gen_mean, config.gen_std
    if config.like is not None:
        name, recipe = "like", recipes.of(sampler, config.like)
    elif config.invert is not None:
        with bar("searching", inversion.TOTAL) as progress:
            found = Generator(sampler).invert(config.invert, progress.update)
        print(
            f"pixels differ by {found.distance:.1f} of 255 from {printable(str(config.invert))}; those of the nearest "
            f"of {inversion.RANDOM:,} random faces by {found.random:.1f}"
        )
        name, recipe = "invert", Recipe(sampler.digest, found.latent)
    else:
        name, recipe = "face" if config.mix is None else "mix", None

    def draw(of: Sampler) -> torch.Tensor:
        if recipe is not None:
            return recipe.latents
        if config.mix is not None:
            return recipes.mixed(of, config.mix, *latents)
        return of.latents(config.chosen_seeds if config.seeds else [config.seed], *latents).cpu()

    moved = move(draw)
    recipe = Recipe(sampler.digest, moved) if recipe is None else dataclasses.replace(recipe, latents=moved)
    if config.vary is None:
        return name, recipe
    if len(recipe.latents) != 1:
        raise ConfigError(
            f"--vary: draws the neighbours of one face, not of {len(recipe.latents)}; name one with --seeds or --like"
        )
    nearby = recipes.neighbours(recipe.latents, config.gen_num, config.vary, config.gen_std)
    return "vary", Recipe(sampler.digest, nearby)


def write(
    made: Iterable[Drawn],
    total: int,
    sampler: Sampler,
    config: GenerateConfig,
    columns: int | None = None,
    said: str = "",
) -> None:
    """Write faces to a grid, or a single face as it is, and with `--outdir` also to single files.

    Each PNG carries its recipe.

    Raises:
        ConfigError: a picture cannot be written.
    """
    shown: list[Drawn] = []
    if config.outdir is None:  # only the grid is written
        made, total = itertools.islice(made, GRID), min(total, GRID)
    try:
        with images.PictureWriter() as writer:
            for one in bar("generating", total, made):
                _, seed, z, face = one
                if len(shown) < GRID:
                    shown.append(one)
                if config.outdir is not None:
                    recipe = Recipe(sampler.digest, z[None], seeds=() if seed is None else (seed,))
                    writer.save(face, config.outdir / f"{one[0]}.png", recipe.text())
        latents, pixels = torch.stack([z for *_, z, _ in shown]), np.stack([face for *_, face in shown])
        seeds = [seed for _, seed, *_ in shown if seed is not None]
        picture = pixels[0] if len(shown) == 1 else images.grid(pixels, columns)
        images.save_picture(picture, config.gen_img, Recipe(sampler.digest, latents, columns, seeds).text())
    except OSError as error:
        raise ConfigError(f"could not write the pictures: {error}; choose another --gen_img or --outdir") from error
    print(f"{counted(len(shown), 'face')} in {config.gen_img}{said}")
    if config.outdir is not None:
        print(f"{counted(total, 'single face')} in {config.outdir}")


def counted(n: int, what: str) -> str:
    """Return a count with its noun, such as "2 faces"."""
    return f"{n} {what}{'' if n == 1 else 's'}"


def film(sampler: Sampler, text: str, config: GenerateConfig, move: Mover) -> None:
    """Make a film that morphs from face to face and back to the first; with `--outdir`, also a PNG of each frame.

    Raises:
        ConfigError: a face is unknown, or the film cannot be written.
    """
    morph.check_film(config.gen_img)
    words = [word for word in text.split(",") if word.strip()]
    if not 2 <= len(words) <= FILMED:
        raise ConfigError(
            f"--morph: expected 2 to {FILMED} faces, by their seeds or PNG files, such as 3,17,42; got {text!r}"
        )
    points = move(lambda of: torch.cat([recipes.point(of, word, config.gen_mean, config.gen_std) for word in words]))
    frames = morph.frames_of(len(points), config.seconds, config.fps)
    with bar("generating", (morph.FINER + 1) * frames) as progress:
        latents, faces = morph.film(sampler, points, frames, config.gen_img, config.fps, progress.update)
    if config.outdir is not None:
        try:
            with images.PictureWriter() as writer:
                for i, (z, face) in enumerate(zip(latents, faces, strict=True)):
                    writer.save(face, config.outdir / f"morph-{i:04d}.png", Recipe(sampler.digest, z[None]).text())
        except OSError as error:
            raise ConfigError(f"could not write the pictures: {error}; choose another --outdir") from error
    print(f"{len(points)} faces and back in {frames / config.fps:.1f} seconds, {frames} pictures, in {config.gen_img}")
    if config.outdir is not None:
        print(f"{counted(frames, 'single face')} in {config.outdir}")


def bar(what: str, total: int, faces: Any = None, quick: int = 8 * sampling.BATCH) -> tqdm:
    """Return a progress bar, which is shown only in a terminal and for more than `quick` faces."""
    hidden = total <= quick or not sys.stderr.isatty()
    return tqdm(faces, desc=what, total=total, unit="face", disable=hidden, leave=False)


def timelapse(run: Path, path: Path) -> None:
    """Make a film of the preview grids of a run, given its folder.

    Raises:
        CheckpointError: there are too few preview grids.
        ConfigError: the film cannot be written.
    """
    samples = run / "samples"
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):  # then it is this folder
        samples = Path(json.loads((run / "config.json").read_text(encoding="utf-8"))["config"]["save_path"] or samples)
    frames = sorted(samples.glob(images.PREVIEWS))
    if len(frames) < 2:
        raise CheckpointError(
            f"{run}: {len(frames)} preview grids in {samples}, but a film needs two; give the folder of a run that was "
            "trained with --plot_every above 0"
        )
    morph.check_film(path)
    try:
        n = images.save_film(frames, path)
    except OSError as error:
        raise ConfigError(
            f"could not make the film of {run}: {error}; check that the grids in {samples} are whole, or give another "
            "place for the film: --gen_img"
        ) from error
    print(f"{n} pictures of the same latents, from first to last, in {path}")


def check_used(config: GenerateConfig, typed: Mapping[str, Any]) -> None:
    """Check that every option that was typed has an effect.

    Raises:
        ConfigError: an option has none.
    """
    of_vary = {"gen_num", "gen_std"} if config.vary is not None else set[str]()
    seeds = {"seed", "gen_num"}
    random = {*seeds, "gen_std", "gen_mean"}
    has_seed = re.search(r"(?<![^\s,+-])\d+(?![^\s,+-])", config.mix or config.morph or "0")
    files, of_faces = ("", seeds) if has_seed else (" of PNG files", {*random, "classes"})
    unused = {"seeds": seeds, "like": random, "invert": random, "mix": of_faces, "morph": of_faces}
    unused["timelapse"] = typed.keys() - {"timelapse", "gen_img", "gpu"}
    for verb, names in unused.items():
        if getattr(config, verb) is not None and (found := names & typed.keys() - of_vary):
            name = min(found).replace("classes", "class")
            raise ConfigError(f"--{name} means nothing with --{verb}{files}; leave it out")
    if config.morph is None and (found := {"seconds", "fps"} & typed.keys()):
        raise ConfigError(f"--{min(found)} is for --morph; leave it out")


def main(config: GenerateConfig, typed: Mapping[str, Any]) -> None:
    """Run `python generate.py`."""
    check_used(config, typed)
    if config.timelapse is not None:
        timelapse(config.timelapse, config.gen_img if "gen_img" in typed else config.timelapse / "timelapse.webp")
    else:
        if config.morph is not None and "gen_img" not in typed:
            config = dataclasses.replace(config, gen_img=Path("morph.webp"))
        with enough_memory("out of memory: stop other programs that use it, or generate with --nogpu"):
            generate(config)


if __name__ == "__main__":
    command_line(GenerateConfig, main)
