"""Generate faces from a checkpoint: python generate.py --nogen 64.

A command asks for one of these, each a function below; `GOES_WITH` has the options that go with each.

    faces      --seed, --nogen      the faces of seeds
    rows       --class=FROM..TO     a row for each seed, from class to class
    search     --gen_search_num     the best of many seeds
    like       --like               the faces of a PNG that this program wrote
    mix        --mix                a sum of faces
    invert     --invert             the face that looks most like a picture
    vary       --vary               neighbours of one face: of a seed, or of like, mix or invert
    film       --morph              a film from face to face
    timelapse  --timelapse          a film of a run's previews
    classes    --class              the names of the classes, in words
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # which python -I and PYTHONSAFEPATH=1 leave out
from config import NOGPU, RELEASED, ConfigError, check_numbers, option, options_of

# isort: split

import dataclasses
import functools
import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from gan import images
from gan.classes import ROW
from gan.command_line import BARE, command_line
from gan.device import choose_device, enough_memory
from gan.files import printable
from gan.language import text
from gan.play import directions, enlarging, inversion, morph, recipes
from gan.play.api import Generator
from gan.play.morph import MOST_SECONDS
from gan.play.recipes import Drawn
from gan.quality import ranking, sampling
from gan.quality.sampling import Sampler

GRID_PIXELS = 68_200_000  # maximum number of pixels of the grid, 1,024 faces of 256; viewers of pictures choke on more
FILMED = 64  # maximum number of faces that a film goes through
PICTURES = (".png", ".jpg", ".jpeg", ".webp")  # suffixes of pictures that `generate.py` can write

FACES = "checkpoint netg_path netd_path gpu gen_img outdir change enlarge "
SEEDS = FACES + "classes gen_mean gen_std "  # faces that are drawn from seeds
GOES_WITH = {  # what is asked for: the options that have an effect; of the upper part the first typed one is done
    "--timelapse": "timelapse gen_img gpu enlarge",
    "--class without a name": "checkpoint netg_path netd_path gpu classes",
    "--morph": SEEDS + "morph seconds",
    "--invert": FACES + "invert vary",
    "--mix": SEEDS + "mix vary",
    "--like": FACES + "like vary",
    "--gen_search_num": SEEDS + "gen_search_num seed gen_num",
    "--vary": SEEDS + "vary seed",
    "faces of seeds": SEEDS + "seed gen_num",
    # These limit the above further.
    "--class=FROM..TO": SEEDS + "seed gen_num",
    "--seed=LIST": SEEDS + "seed vary",
    "--morph of PNG files": FACES + "morph seconds",
    "--mix of PNG files": FACES + "mix vary",
}
OF_NEIGHBOURS = {"gen_num", "gen_std"}  # with --vary, these go with everything that it goes with


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
    gen_img: Path | None = option(
        None,
        "the picture to write, a grid of all faces (the first 1,024 when there are more), or the film; unset: "
        "result.png, morph.webp, or timelapse.webp in the run's folder.",
    )
    outdir: Path | None = option(None, "folder that also gets every face as a PNG of its own.")
    seed: str = option(
        "0", "seed of the first face; the next faces have the next seeds. Or the seeds of all faces: 1-64,100."
    )
    like: Path | None = option(
        None, "a PNG that this program wrote: generate its face or its grid again, with the generator that made it."
    )
    mix: str | None = option(None, 'a sum of faces, by their seeds or such PNG files: "12 - 7 + 30".')
    invert: Path | None = option(None, "a picture: find the face that looks most like it.")
    vary: float | None = option(
        None,
        "gen_num neighbours of one face, of seed, like, mix or invert; from 0, the face itself, to 1, any other face, "
        "of any class and colour.",
        ge=0,
        le=1,
    )
    change: str | None = option(
        None,
        "change the faces: hair:blue,eyes:red recolours them until they look so (a class of that colour is where it "
        "starts); light, warm and turn, as light:0.5,turn:-1, go from -1, dark, bluish, to the left, to 1.",
    )
    morph: str | None = option(
        None,
        "make a film instead that goes from face to face and back to the first, by their seeds or such PNG files: "
        "3,17,42.",
    )
    seconds: float | None = option(
        None, f"length of that film; unset: two per face, up to {MOST_SECONDS}.", ge=0.2, le=MOST_SECONDS
    )
    classes: str | None = option(
        None,
        "draw faces of these classes, as hair:blue,eyes:red; what is left out is drawn as often as faces had it. With "
        "hair:blue..red each row of the grid is one face whose class goes from the first to the second. Without a "
        "value, print the classes that the generator knows, and draw nothing.",
    )
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
    enlarge: int | None = option(
        None,
        "draw the faces this many times larger, 2 or 4, so that those of 96 pixels have 192 or 384; another network "
        "adds what is missing. Faces that do not look drawn are enlarged by Lanczos.",
        choices=(2, 4),
    )
    gpu: bool | None = option(None, f"generate on the GPU; {NOGPU}")
    timelapse: Path | None = option(
        None,
        "a run's folder: make a film of its preview grids instead; the film of --gen_img ends in .webp, .gif, or .mp4 "
        "(which needs requirements-extra.txt).",
    )
    vis: bool = option(False, "of the book's command; changes nothing.")

    def __post_init__(self) -> None:
        check_numbers(self)
        if self.gen_search_num is not None and self.gen_search_num < self.gen_num:
            raise ConfigError(
                "--gen_search_num: must be at least --gen_num ({}), which are chosen from it; got {}",
                self.gen_num,
                self.gen_search_num,
            )
        if self.netd_path is not None and self.netg_path is None:
            raise ConfigError("--netd_path only chooses among samples of --netg_path; give that too")
        if self.netg_path is not None and self.checkpoint != RELEASED:
            raise ConfigError("--checkpoint and --netg_path both name a generator; give one of them")
        if self.netg_path is not None and self.netd_path is None and self.gen_search_num is not None:
            raise ConfigError("--gen_search_num chooses by a discriminator; give the one of --netg_path: --netd_path")
        if (self.morph or self.timelapse) is None and self.picture.suffix.lower() not in PICTURES:
            raise ConfigError("--gen_img: expected a name ending in .png, .jpg or .webp; got '{}'", self.gen_img)
        _ = self.seeds, self.changes

    @property
    def picture(self) -> Path:
        """The picture to write."""
        return self.gen_img or Path("result.png")

    @property
    def listed(self) -> bool:
        """Whether `seed` lists the seeds of all faces, rather than being the first."""
        return not self.seed.strip().isdecimal()

    @functools.cached_property
    def seeds(self) -> Sequence[int]:
        """The seeds of the faces; raises a ConfigError if `seed` is malformed, or asks for too many faces."""
        chosen = recipes.seeds(self.seed)
        return chosen if self.listed else range(chosen[0], chosen[0] + self.gen_num)

    @functools.cached_property
    def changes(self) -> directions.Change:
        """The requested change of the faces; raises a ConfigError if it is malformed."""
        return directions.Change() if self.change is None else directions.Change.parse(self.change)

    def asked(self) -> list[str]:
        """Return what the options ask for: one of the upper part of `GOES_WITH`, then its limits."""
        given = {f"--{name}" for name in options_of(type(self)) if getattr(self, name) is not None}
        given |= {"--class without a name"} if self.classes == BARE else set()
        asked = [next((verb for verb in GOES_WITH if verb in given), "faces of seeds")]
        asked += ["--seed=LIST"] if self.listed else []
        if not re.search(r"(?<![^\s,+-])\d+(?![^\s,+-])", self.mix or self.morph or "0"):  # none is a seed
            asked.append(f"{asked[0]} of PNG files")
        return asked


Draw = Callable[[Sampler], Tensor]  # returns the latents (N, nz) of faces, of the classes of a sampler
Mover = Callable[[Draw], Tensor]  # returns these latents changed as `--change` says


def faces(config: GenerateConfig, sampler: Sampler, move: Mover) -> None:
    """Generate the faces of seeds."""
    write(config, sampler, of_seeds(config, sampler, move, config.seeds), len(config.seeds))


def rows(config: GenerateConfig, sampler: Sampler, move: Mover) -> None:
    """Generate a row of faces for each seed, whose class goes from the first to the second."""
    _, until = sampler.classes.parse(config.classes or "")
    seeds = config.seeds if config.listed else config.seeds[: math.ceil(config.gen_num / ROW)]

    def made() -> Iterator[Drawn]:
        for seed in seeds:
            latents = move(lambda of, seed=seed: of.between(seed, until, ROW, config.gen_mean, config.gen_std).cpu())
            for i, (pixels, latent) in enumerate(drawn(config, sampler, latents)):
                yield Drawn(f"face-{seed:08d}-{i}", pixels, latent, seed)

    write(config, sampler, made(), ROW * len(seeds), ROW)


def search(config: GenerateConfig, sampler: Sampler, move: Mover) -> None:
    """Generate the best faces of many seeds."""
    assert config.gen_search_num is not None
    seeds = range(config.seeds[0], config.seeds[0] + config.gen_search_num)
    with bar(text("choosing"), total=len(seeds)) as progress:
        best, by = ranking.best(sampler, seeds, config.gen_num, config.gen_mean, config.gen_std, progress.update)
    more = text(", of {:,} {} before the change") if config.changes else text(", of {:,} {}")
    write(config, sampler, of_seeds(config, sampler, move, best), len(best), more=more.format(len(seeds), by))


def like(config: GenerateConfig, sampler: Sampler, move: Mover) -> None:
    """Generate the faces of a PNG again, in the same layout."""
    assert config.like is not None
    recipe = recipes.of(sampler, config.like)
    write_latents(config, sampler, "like", move(lambda of: recipe.latents), recipe.columns)


def mix(config: GenerateConfig, sampler: Sampler, move: Mover) -> None:
    """Generate a sum of faces."""
    asked = config.mix or ""
    write_latents(config, sampler, "mix", move(lambda of: recipes.mixed(of, asked, config.gen_mean, config.gen_std)))


def invert(config: GenerateConfig, sampler: Sampler, move: Mover) -> None:
    """Generate the face that looks most like a picture."""
    assert config.invert is not None
    with bar(text("searching"), total=inversion.TOTAL) as progress:
        found = Generator(sampler).invert(config.invert, progress.update)
    if found.told:
        print(found.told)
    line = text("pixels differ by {:.1f} of 255 from {}; those of the nearest of {:,} random faces by {:.1f}")
    print(line.format(found.distance, printable(str(config.invert)), inversion.RANDOM, found.random))
    write_latents(config, sampler, "invert", move(lambda of: found.latent))


def vary(config: GenerateConfig, sampler: Sampler, move: Mover) -> None:
    """Generate neighbours of the face of a seed; `like`, `mix` and `invert` generate those of theirs."""
    seeds = config.seeds if config.listed else config.seeds[:1]
    latents = move(lambda of: of.latents(seeds, config.gen_mean, config.gen_std).cpu())
    write_latents(config, sampler, "vary", latents)


def film(config: GenerateConfig, sampler: Sampler, move: Mover) -> None:
    """Make a film that morphs from face to face and back to the first."""
    asked, path = config.morph or "", config.gen_img or Path("morph.webp")
    morph.check_film(path)
    words = [word for word in asked.split(",") if word.strip()]
    if not 2 <= len(words) <= FILMED:
        raise ConfigError(
            "--morph: expected 2 to {} faces, by their seeds or PNG files, such as 3,17,42; got {!r}", FILMED, asked
        )
    points = move(lambda of: torch.cat([recipes.point(of, word, config.gen_mean, config.gen_std) for word in words]))
    n = morph.frames_of(len(points), config.seconds)
    with bar(text("generating"), total=(morph.FINER + 1) * n) as progress:
        frames = zip(*morph.film(sampler, points, n, path, progress.update, config.enlarge or 1), strict=True)
    for i, (latent, pixels) in enumerate(frames):
        save_single(config, sampler, Drawn(f"morph-{i:04d}", pixels, latent))
    print(text("{} faces and back in {:.1f} seconds, {} pictures, in {}").format(len(points), n / morph.FPS, n, path))
    told(text("{} single face in {}") if n == 1 else text("{} single faces in {}"), n, config.outdir)


def timelapse(config: GenerateConfig) -> None:
    """Make a film of the preview grids of a run, given its folder."""
    run = config.timelapse or Path()
    path = config.gen_img or run / "timelapse.webp"
    with bar(text("enlarging")) as progress:
        n = morph.timelapse(run, path, config.enlarge or 1, config.gpu, progress.update)
    print(text("{} pictures of the same latents, from first to last, in {}").format(n, path))


def classes(config: GenerateConfig, sampler: Sampler, _: Mover) -> None:
    """Print the classes that the generator knows."""
    none = text("{}: knows no classes").format(printable(str(config.netg_path or config.checkpoint)))
    print(sampler.classes.table() or none)


def drawn(config: GenerateConfig, sampler: Sampler, latents: Tensor) -> Iterator[tuple[np.ndarray, Tensor]]:
    """Generate the face of each latent of (N, nz), enlarged if asked for."""
    return zip(enlarging.draw(sampler, latents, config.enlarge or 1), latents, strict=True)


def of_seeds(config: GenerateConfig, sampler: Sampler, move: Mover, seeds: Sequence[int]) -> Iterator[Drawn]:
    """Generate the face of each seed."""
    for start in range(0, len(seeds), sampling.BATCH):
        some = seeds[start : start + sampling.BATCH]
        latents = move(lambda of, some=some: of.latents(some, config.gen_mean, config.gen_std).cpu())
        for seed, (pixels, latent) in zip(some, drawn(config, sampler, latents), strict=True):
            yield Drawn(f"face-{seed:08d}", pixels, latent, seed)


def write_latents(
    config: GenerateConfig, sampler: Sampler, name: str, latents: Tensor, columns: int | None = None
) -> None:
    """Write the faces of latents (N, nz), or with `--vary` the neighbours of the one face.

    Raises:
        ConfigError: `--vary` applies to several faces.
    """
    if config.vary is not None:
        if len(latents) != 1:
            raise ConfigError(
                "--vary: draws the neighbours of one face, not of {}; name one with --seed or --like", len(latents)
            )
        latents = recipes.neighbours(latents, config.gen_num, config.vary, config.gen_std)
        name, columns = "vary", None
    made = (Drawn(f"{name}-{i:04d}", *one) for i, one in enumerate(drawn(config, sampler, latents)))
    write(config, sampler, made, len(latents), columns)


def write(
    config: GenerateConfig, sampler: Sampler, made: Iterable[Drawn], n: int, columns: int | None = None, more: str = ""
) -> None:
    """Write faces to a grid, or a single face as it is, and with `--outdir` also to single files, with recipes."""
    shown: list[Drawn] = []
    side = (config.enlarge or 1) * sampler.model.image_size + images.GAP
    most = min(recipes.MOST, GRID_PIXELS // side**2)
    if config.outdir is None:  # only the grid is written
        made, n = itertools.islice(made, most), min(n, most)
    for one in bar(text("generating"), made, n):
        save_single(config, sampler, one)
        if len(shown) < most:
            shown.append(one)
    recipes.save(sampler, shown, config.picture, columns)
    told(text("{} face in {}") if len(shown) == 1 else text("{} faces in {}"), len(shown), config.picture, more)
    told(text("{} single face in {}") if n == 1 else text("{} single faces in {}"), n, config.outdir)


def save_single(config: GenerateConfig, sampler: Sampler, one: Drawn) -> None:
    """Write a face to a file of its own if there is `--outdir`."""
    if config.outdir is not None:
        recipes.save(sampler, [one], config.outdir / f"{one.name}.png")


def told(line: str, n: int, place: Path | None, more: str = "") -> None:
    """Say how many faces are in which file or folder, if there is one; `line` has places for both."""
    if place is not None:
        print(line.format(n, place) + more)


def bar(what: str, made: Any = None, total: int | None = None) -> tqdm:
    """Return a progress bar, which is shown only in a terminal and after a second."""
    return tqdm(made, desc=what, total=total, unit=text("face"), delay=1, disable=None, leave=False)


def mover(config: GenerateConfig, sampler: Sampler) -> Mover:
    """Return a function that changes latents as `--change` says.

    Raises:
        ConfigError: a colour is unknown.
    """
    if not config.changes:
        return lambda draw: draw(sampler)
    with bar(text("finding directions"), total=directions.SAMPLES) as progress:
        found = directions.of(sampler, progress.update)
    found.targets(sampler, config.changes)  # an unknown colour is an error now
    return lambda draw: found.change(sampler, draw, config.changes, functools.partial(bar, text("recolouring")))


def check(asked: str, config: GenerateConfig, typed: Iterable[str]) -> None:
    """Check by `GOES_WITH` that every typed option has an effect on what is asked for; raise a ConfigError if not."""
    used = {"vis", *GOES_WITH[asked].split(), *(OF_NEIGHBOURS if config.vary is not None else ())}
    for name in sorted(set(typed) - used):
        raise ConfigError(
            "--{} has no effect with {}; leave it out", "class" if name == "classes" else name, text(asked)
        )


def of_classes(config: GenerateConfig, sampler: Sampler) -> tuple[Sampler, bool]:
    """Return the sampler for the requested classes, and whether they go from one to another.

    Where all faces are seeds, a new colour that is a class starts from the face of that class.

    Raises:
        ConfigError: a class is unknown, or `--class` and `--change` both name one of a column.
    """
    first, until = sampler.classes.parse(config.classes) if config.classes else ({}, {})
    seeded = (config.like or config.invert) is None and not re.search(r"[^\d\s,+-]", config.mix or config.morph or "")
    override = sampler.classes.learned(config.changes.colours) if seeded else {}
    for column in first.keys() & override.keys():
        name = sampler.classes.vocabulary[column][0]
        raise ConfigError("--class and --change both give {}; give it once", name)
    return sampler.of_classes(first, override), first != until


VERBS: Mapping[str, Callable[[GenerateConfig, Sampler, Mover], None]] = {
    "--class without a name": classes, "--morph": film, "--invert": invert, "--mix": mix, "--like": like,
    "--gen_search_num": search, "--vary": vary, "faces of seeds": faces, "--class=FROM..TO": rows,
}  # fmt: skip


@enough_memory("out of memory: stop other programs that use it, or generate with --nogpu")
def main(config: GenerateConfig, typed: Mapping[str, Any]) -> None:
    """Run `python generate.py`.

    Raises:
        CheckpointError: the checkpoint cannot be used.
        ConfigError: an option has no effect, a face, class or colour is unknown, or a picture cannot be written.
        DataError: the picture of `--invert` cannot be read.
    """
    for asked in config.asked():
        check(asked, config, typed)
    verb, *_ = config.asked()
    if verb == "--timelapse":
        timelapse(config)
        return
    if config.netg_path is None:
        sampler = Generator.load(config.checkpoint, config.gpu, print).sampler
    else:
        sampler = sampling.load_book(config.netg_path, config.netd_path, choose_device(config.gpu))
    if config.classes != BARE:
        sampler, has_rows = of_classes(config, sampler)
        if has_rows:
            check(verb := "--class=FROM..TO", config, typed)
    if config.enlarge is not None and (why := enlarging.why_not(sampler)):
        print(text("{}: enlarged by Lanczos instead").format(why))
    try:
        VERBS[verb](config, sampler, mover(config, sampler))
    except OSError as error:
        raise ConfigError("could not write the pictures: {}; choose another --gen_img or --outdir", error) from error


if __name__ == "__main__":
    command_line(GenerateConfig, main)
