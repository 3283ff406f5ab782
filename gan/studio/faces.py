"""The generators and the faces of the studio, and the equivalent commands; its page shows them."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import tempfile
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from config import RELEASED, RUNS, CheckpointError, ConfigError, UserError
from gan import checkpoint, images
from gan.data import detection
from gan.files import as_word
from gan.language import text as _
from gan.play import directions, enlarging, inversion, morph, recipes
from gan.play.api import Generator
from gan.play.directions import SLIDERS, Change, Directions
from gan.play.recipes import Drawn
from gan.quality import colours, ranking, sampling
from gan.quality.sampling import Sampler
from gan.studio.programs import Program, ProgramError

RELEASED_NAME = "released"
NAMES = {
    "light": ("Darker", "Lighter", "Darker - lighter"),
    "warm": ("Colder", "Warmer", "Colder - warmer"),
    "turn": ("To the left", "To the right", "To the left - to the right"),
    "hair": ("Hair",),
    "eyes": ("Eyes",),
}
"""How the page names the ends of each slider and the slider itself, and the colours."""
KEPT = 3  # maximum number of generators, and of walls, in memory
Progress = Callable[[int], object]  # called with the number of faces just generated


@dataclasses.dataclass(frozen=True)
class Face:
    """A face: its generator, its latent (1, nz), and, if it was drawn from a seed, the seed and its options.

    A training run overwrites its checkpoint; the face keeps the weights that generated it.
    """

    generator: str
    sampler: Sampler = dataclasses.field(repr=False, compare=False)
    latent: Tensor
    seed: int | None = None
    std: float = 1.0
    class_filter: Mapping[int, int] = dataclasses.field(default_factory=dict)

    @property
    def source(self) -> str:
        """The option of `generate.py` that names the face; a face without a seed must be saved first."""
        return "--like=face.png" if self.seed is None else f"--seed={self.seed}"

    @property
    def words(self) -> list[str]:
        """The options of `generate.py` that generate the face."""
        return [self.source] if self.seed is None else [self.source, "--nogen 1", *self.drawn]

    @property
    def drawn(self) -> list[str]:
        """The options of `generate.py` for the truncation and the classes."""
        of = [] if self.std == 1 else [f"--gen_std={self.std:g}"]
        columns = self.sampler.classes.vocabulary
        classes = ",".join(
            f"{columns[column][0]}:{columns[column][code]}" for column, code in self.class_filter.items()
        )
        return [*of, f"--class={as_word(classes)}"] if classes else of

    def without(self, columns: Collection[int]) -> Face:
        """Return the same face without the classes requested in these columns."""
        left = {column: code for column, code in self.class_filter.items() if column not in columns}
        return dataclasses.replace(self, class_filter=left)


class Studio:
    """Generators by name, loaded on demand and reloaded when their file changes.

    Several pages may use it at once. Threads block one another only while loading a generator or finding directions.
    """

    def __init__(self, first: Path, device: torch.device) -> None:
        name = first.name if first.name != RELEASED_NAME else f"./{first.name}"
        self.typed = {} if first == RELEASED else {name: first}
        self.device, self.loading, self.finding = device, threading.Lock(), threading.Lock()
        self.load = functools.lru_cache(KEPT)(lambda path, changed: sampling.load(path, device))
        self.found: dict[str, Directions] = {}
        self.shown: dict[tuple[str, bytes], list[np.ndarray]] = {}  # walls by generator and latents, the newest last
        self.classifier = colours.load(device)
        self.colours = {name: known for name, *known in self.classifier.vocabulary}

    def names(self) -> list[str]:
        """Return the names of generators: the given one, the released one, and the checkpoints of the runs.

        The newest run comes first, and of each run its best checkpoint, then the newest.
        """
        files = checkpoint.checkpoints_in(RUNS, "*/[!.]*.pt")
        runs = list(dict.fromkeys(path.parent.name for path in files))
        files.sort(key=lambda path: (runs.index(path.parent.name), path.name != "best.pt"))
        return list(dict.fromkeys([*self.typed, RELEASED_NAME, *(f"{path.parent.name}/{path.name}" for path in files)]))

    def choices(self) -> list[tuple[str, str]]:
        """Return what a list shows of each generator, and its name: a run's first checkpoint goes by the run alone."""
        shown = {name: name for name in self.names()}
        for name in reversed(shown):
            run, file = name.rpartition("/")[::2]
            if run in ("", *self.typed):
                continue
            if file == "best.pt" or (file == "latest.pt" and f"{run}/best.pt" not in shown):
                shown[name] = run
            elif file == "latest.pt":
                shown[name] = _("{}, its latest faces").format(run)
        shown[RELEASED_NAME] = _("released")
        return [(label, name) for name, label in shown.items()]

    def path(self, name: str) -> Path:
        """Return the file or folder of a generator, as a user would type it.

        Raises:
            CheckpointError: there is no generator of that name.
        """
        if name not in self.names():
            raise CheckpointError(
                _("no generator is called {} any more; choose another one").format(repr(str(name)[:80]))
            )
        return self.typed.get(name, RELEASED if name == RELEASED_NAME else RUNS / name)

    def sampler(self, name: str) -> Sampler:
        """Return a generator; for a run that is still training, with the EMA weights of its current checkpoint.

        Raises:
            CheckpointError: there is no generator of that name, or it cannot be read.
        """
        with self.loading:
            path = checkpoint.find(self.path(name), sampling.FILES)
            changed = 0.0
            with contextlib.suppress(OSError):  # loading reports the error
                changed = path.stat().st_mtime
            return self.load(path, changed)

    def knows(self, sampler: Sampler) -> bool:
        """Return whether `directions` need not be found; it takes `directions.SAMPLES` samples."""
        return sampler.digest in self.found or bool(directions.stored(sampler))

    def directions(self, sampler: Sampler, progress: Progress = lambda n: None) -> Directions:
        """Return the directions of a generator; see `knows`."""
        if known := self.found.get(sampler.digest):
            return known
        with self.finding:
            if sampler.digest not in self.found:
                self.found[sampler.digest] = directions.of(sampler, progress, self.classifier)
            return self.found[sampler.digest]

    def wall(
        self,
        name: str,
        seed: int,
        n: int,
        std: float,
        best_of: int,
        classes: str,
        progress: Progress = lambda n: None,
    ) -> list[Face]:
        """Return the faces of `n` consecutive seeds, or the best `n` faces of `best_of` seeds.

        Raises:
            ConfigError: a class is unknown.
        """
        sampler = Generator(self.sampler(name)).of_classes(classes).sampler
        seeds: Sequence[int] = range(seed, seed + max(n, best_of))
        if best_of > n:
            seeds, _ = ranking.best(sampler, seeds, n, 0.0, std, progress)
        latents, plays = sampler.latents(seeds, 0.0, std).cpu(), playing(sampler)
        return [
            Face(name, plays, z[None], one, std, sampler.class_filter) for one, z in zip(seeds, latents, strict=True)
        ]

    def neighbours(self, face: Face, n: int, share: float) -> list[Face]:
        """Return a face and random variations of it, `n` in all; see `recipes.neighbours`."""
        near = recipes.neighbours(face.latent, n, share, face.std)
        return [face, *(Face(face.generator, face.sampler, z[None], None, face.std) for z in near[1:])]

    def moved(self, face: Face, change: Change, progress: Progress = lambda n: None) -> Face:
        """Return a face changed; `progress` is that of `directions`.

        Where the generator has a class of a new colour, a face with a seed is recoloured from its face of the class.
        """
        if not change:
            return face
        sampler, seed = face.sampler, face.seed
        known = {} if seed is None else sampler.classes.learned(change.colours)
        of_classes = sampler.of_classes(face.without(known).class_filter, known) if known else sampler

        def draw(of: Sampler) -> Tensor:
            return face.latent if seed is None or not known else of.latents([seed], 0.0, face.std).cpu()

        latent = self.directions(sampler, progress).change(of_classes, draw, change)
        return Face(face.generator, sampler, latent, None, face.std)

    def ends(self, face: Face) -> np.ndarray | None:
        """Return the face at both ends of each slider, one after the other: pixels (2 * sliders, S, S, C).

        None while the directions of its generator are not known; a slider that is moved finds them, in a while.
        """
        if not self.knows(face.sampler):
            return None
        found = self.directions(face.sampler)
        ends = [found.move(face.latent, {slider: share}) for slider in SLIDERS for share in (-1.0, 1.0)]
        return self.pixels([dataclasses.replace(face, latent=latent) for latent in ends], quick=True)

    def mixed(self, faces: Sequence[Face], text: str) -> tuple[Face, list[str]]:
        """Return a sum of faces, numbered from 1, and the options of the equivalent command.

        Raises:
            ConfigError: the text is not a sum, a number is out of range, or the faces are of several generators.
        """
        alike(faces)
        try:
            signs, words = recipes.terms(text)
        except ConfigError as error:
            raise ConfigError(
                _("expected a sum of pinned faces by their places: 1 - 2 + 3; got {}").format(repr(text[:80]))
            ) from error
        places = [place(faces, word) for word in words]
        used = [faces[i] for i in places]
        latent = recipes.total(signs, [face.latent for face in used], text)
        names, options = named(used, [1 + i for i in places])
        shown = " ".join(f"{sign} {name}" for sign, name in zip(signs, names, strict=True)).removeprefix("+ ")
        return Face(faces[0].generator, faces[0].sampler, latent), [f'--mix="{shown}"', *options]

    def film(self, faces: Sequence[Face], seconds: float, path: Path, progress: Progress = lambda n: None) -> list[str]:
        """Write a morph from face to face and back to the first, and return the options of the equivalent command.

        Raises:
            ConfigError: there are fewer than two faces, they are of several generators, or the film cannot be written.
        """
        alike(faces)
        if len(faces) < 2:
            raise ConfigError(_("a film goes from face to face; pin two or more"))
        points, frames = torch.cat([face.latent for face in faces]), morph.frames_of(len(faces), seconds)
        morph.film(faces[0].sampler, points, frames, path, progress, enlarging.times_for(faces[0].sampler))
        names, options = named(faces, range(1, len(faces) + 1))
        return [f"--morph={','.join(names)}", f"--seconds={seconds:g}", *options]

    def unpacked(self, kept: object) -> list[Face]:
        """Return the faces of what `packed` gave; those are left out whose generator has changed or is gone."""
        found = list[Face]()
        for one in kept if isinstance(kept, list) else []:
            with contextlib.suppress(UserError, OverflowError, RuntimeError, TypeError, ValueError):
                name, digest, latent, seed, std, classes = one
                plays, z = playing(self.sampler(name)), torch.tensor(latent, dtype=torch.float32)
                asked = {int(column): int(code) for column, code in classes}
                face = Face(name, plays, z[None], None if seed is None else int(seed), float(std), asked)
                columns = plays.classes.vocabulary
                known = all(0 <= i < len(columns) and 0 < code < len(columns[i]) for i, code in asked.items())
                near = z.shape == (plays.model.nz,) and bool((z.abs() <= recipes.FARTHEST).all())  # false for NaN
                if plays.digest == digest and known and near and 0 <= (face.seed or 0) <= 2**53 and 0 < face.std <= 2:
                    found.append(face)
        return found

    def remembered(self, name: str, path: Path) -> tuple[list[Face], int | None]:
        """Return the faces and the columns in a picture's recipe; no faces unless this generator made the picture."""
        sampler = self.sampler(name)
        with contextlib.suppress(ConfigError):
            recipe, plays = recipes.of(sampler, path), playing(sampler)
            return [Face(name, plays, latent[None]) for latent in recipe.latents], recipe.columns
        return [], None

    def inverted(self, name: str, path: Path, progress: Progress = lambda n: None) -> tuple[Face, inversion.Found]:
        """Return the generated face that is most similar to a picture.

        Raises:
            DataError: the picture cannot be read.
        """
        sampler = self.sampler(name)
        if not detection.is_at_hand() and not enlarging.why_not(sampler):
            # In a process of its own, which has the reader's proxy; the studio has none.
            with contextlib.suppress(ProgramError), tempfile.TemporaryDirectory() as folder:
                words = [str(path), "--detect", "--dry_run", f"--report={folder}/report.html"]
                Program("prepare.py", words, Path(folder, "said.txt")).wait(progress)
        found = Generator(sampler).invert(path, progress)
        return Face(name, playing(sampler), found.latent), found

    def pixels(self, faces: Sequence[Face], quick: bool = False, times: int = 1) -> np.ndarray:
        """Return the pixels of faces of one generator, `times` larger, (N, T, T, C) uint8.

        With `quick`, rounding may differ.
        """
        sampler = dataclasses.replace(faces[0].sampler, batch=len(faces)) if quick else faces[0].sampler
        return np.stack(list(enlarging.draw(sampler, torch.cat([face.latent for face in faces]), times)))

    def large(self, faces: Sequence[Face], quick: bool = False) -> list[np.ndarray]:
        """Return the faces of one generator as people see them well, (T, T, 3) uint8 each; `quick` as in `pixels`."""
        sampler, latents = faces[0].sampler, torch.cat([face.latent for face in faces])
        key = sampler.digest, latents.numpy().tobytes()
        shown = None if quick else self.shown.pop(key, None)
        if shown is None:
            shown = [images.enlarged(face) for face in self.pixels(faces, quick, enlarging.times_for(sampler))]
        if not quick:
            self.shown[key] = shown
            for old in list(self.shown)[:-KEPT]:
                self.shown.pop(old, None)  # another page may do so, too
        return shown

    def save(self, faces: Sequence[Face], path: Path, columns: int | None = None) -> None:
        """Write one face, or several as a grid, enlarged, with their recipe, as `generate.py` does."""
        pixels = self.pixels(faces, times=enlarging.times_for(faces[0].sampler))
        made = [Drawn("", one, face.latent[0], face.seed) for one, face in zip(pixels, faces, strict=True)]
        recipes.save(faces[0].sampler, made, path, columns)

    def command(self, face: Face, *words: str) -> str:
        """Return the terminal command that generates the same with the generator of a face."""
        name, times = face.generator, enlarging.times_for(face.sampler)
        of = [] if name == RELEASED_NAME else [f"--checkpoint={as_word(self.typed.get(name, RUNS / name))}"]
        other = [] if times == 1 else [f"--enlarge={times}"]
        other += ["--nogpu"] if self.device.type == "cpu" and torch.accelerator.is_available() else []
        return " ".join(["python generate.py", *of, *words, *other])


def packed(faces: Sequence[Face]) -> list[Any]:
    """Return faces as what can be written as JSON; `Studio.unpacked` returns them."""
    return [
        [one.generator, one.sampler.digest, one.latent[0].tolist(), one.seed, one.std, [*one.class_filter.items()]]
        for one in faces
    ]


def playing(sampler: Sampler) -> Sampler:
    """Return a generator without its discriminator and requested classes, for faces that may outlive its file."""
    return dataclasses.replace(sampler.of_classes({}), discriminator=None)


def alike(faces: Sequence[Face]) -> None:
    """Check that there are faces and that all are of one generator.

    Raises:
        ConfigError: there are none, or they are of several generators.
    """
    if not faces:
        raise ConfigError(_("no face is pinned; click one and pin it"))
    if len({face.sampler.digest for face in faces}) > 1:
        raise ConfigError(
            _(
                "the pinned faces are of several generators, or of a run before and after it trained on; remove the "
                "pins, and pin faces of one"
            )
        )


def place(faces: Sequence[Face], word: str) -> int:
    """Return the index of a face from its number, which counts from 1.

    Raises:
        ConfigError: there is no face of that number.
    """
    number = int(word) if word.isdecimal() and len(word) < 9 else 0
    if not 1 <= number <= len(faces):
        raise ConfigError(_("no face is pinned at {}; there are {}, from 1 on").format(repr(word[:40]), len(faces)))
    return number - 1


def named(faces: Sequence[Face], places: Sequence[int]) -> tuple[list[str], list[str]]:
    """Return how a command refers to faces, by seed if that is enough, else by saved file, and its other options."""
    drawn = {tuple(face.drawn) for face in faces if face.seed is not None}
    common = drawn.pop() if len(drawn) == 1 else ()
    names = [
        f"pin-{i}.png" if face.seed is None or tuple(face.drawn) != common else str(face.seed)
        for i, face in zip(places, faces, strict=True)
    ]
    return names, list(common)
