"""What the studio does, without its page: generators at hand, faces to play with, and each as a command."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from config import RELEASED, RUNS, CheckpointError, ConfigError
from gan import checkpoint, images
from gan.files import as_word
from gan.play import directions, inversion, morph, recipes
from gan.play.api import Generator
from gan.play.directions import SLIDERS, Directions
from gan.play.recipes import Recipe
from gan.quality import colours, sampling, whole_faces
from gan.quality.sampling import Sampler

RELEASED_NAME = "released"
KEPT = 3  # generators in memory
PATIENCE = 60.0  # seconds for what is under way to end


@dataclasses.dataclass(frozen=True)
class Face:
    """A face: its generator by name and as it was, its latent (1, nz), and what leads to it, if a seed does.

    A run that goes on training changes its file; the face stays with the weights that drew it.
    """

    generator: str
    sampler: Sampler = dataclasses.field(repr=False, compare=False)
    latent: Tensor
    seed: int | None = None
    std: float = 1.0
    asked: Mapping[int, int] = dataclasses.field(default_factory=dict)  # classes: codes by column

    @property
    def words(self) -> list[str]:
        """Options of `generate.py` for it; a face without a seed has to be saved first."""
        return ["--like=face.png"] if self.seed is None else [f"--seeds={self.seed}", *self.drawn]

    @property
    def drawn(self) -> list[str]:
        """Options for the truncation and the classes."""
        of = [] if self.std == 1 else [f"--gen_std={self.std:g}"]
        columns = self.sampler.classes.vocabulary
        classes = ",".join(f"{columns[column][0]}:{columns[column][code]}" for column, code in self.asked.items())
        return [*of, f"--class={as_word(classes)}"] if classes else of

    def without(self, names: Collection[str]) -> Face:
        """The same, but no classes are asked for in the columns of these names."""
        columns = self.sampler.classes.vocabulary
        asked = {column: code for column, code in self.asked.items() if columns[column][0] not in names}
        return dataclasses.replace(self, asked=asked)


class StoppedError(Exception):
    """The studio is closing: long work ends."""


class Studio:
    """Generators by name, loaded when they are asked for, and again when their file has changed.

    Several pages may use it at once: threads wait for one another only to load a generator or to find directions.
    """

    def __init__(self, first: Path, device: torch.device) -> None:
        name = first.name if first.name != RELEASED_NAME else f"./{first.name}"
        self.typed = {} if first == RELEASED else {name: first}
        self.device, self.loading, self.closing = device, threading.RLock(), threading.Event()
        self.at_work, self.rested = 0, threading.Condition()
        self.loaded: dict[str, tuple[float, Sampler]] = {}
        self.found: dict[str, Directions] = {}
        self.guesser = colours.load(device)
        self.colours = {name: known for name, *known in self.guesser.vocabulary}

    def names(self) -> list[str]:
        """The generator that was asked for, the released one, and the checkpoints of all runs, the newest first."""
        found = list[tuple[float, str]]()
        for file in RUNS.glob("*/[!.]*.pt"):
            with contextlib.suppress(OSError):  # being replaced
                found.append((file.stat().st_mtime, f"{file.parent.name}/{file.name}"))
        return list(dict.fromkeys([*self.typed, RELEASED_NAME, *(name for _, name in sorted(found, reverse=True))]))

    def path(self, name: str) -> Path:
        """The file or folder of a generator, as a user would type it.

        Raises:
            CheckpointError: there is none of that name.
        """
        if name not in self.names():
            raise CheckpointError(f"no generator is called {name[:80]!r} any more; choose another one")
        return self.typed.get(name, RELEASED if name == RELEASED_NAME else RUNS / name)

    def sampler(self, name: str) -> Sampler:
        """A generator; of a run that is training its newest average.

        Raises:
            CheckpointError: there is none of that name, or it cannot be read.
        """
        with self.loading:
            path = checkpoint.find(self.path(name), sampling.FILES)
            try:
                changed = path.stat().st_mtime
            except OSError:
                changed = 0.0  # loading says what is wrong
            if name not in self.loaded or self.loaded[name][0] != changed:
                self.loaded.pop(name, None)
                self.loaded[name] = changed, sampling.load(path, self.device)
            self.loaded[name] = self.loaded.pop(name)  # the one that was used last comes last
            while len(self.loaded) > KEPT:
                del self.loaded[next(iter(self.loaded))]
            return self.loaded[name][1]

    def directions(self, sampler: Sampler) -> Directions:
        """The directions of a generator; to find them takes a while, but for the released one."""
        with self.loading:
            if sampler.digest not in self.found:
                self.found[sampler.digest] = directions.of(sampler, self.going_on, self.guesser)
            while len(self.found) > KEPT:
                del self.found[next(iter(self.found))]
            return self.found[sampler.digest]

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """A block that computes; `close` waits for it."""
        with self.rested:
            self.at_work += 1
        try:
            yield
        finally:
            with self.rested:
                self.at_work -= 1
                self.rested.notify_all()

    def close(self) -> None:
        """End what is under way: a process that ends while PyTorch computes in another thread crashes."""
        self.closing.set()
        with self.rested:
            self.rested.wait_for(lambda: not self.at_work, PATIENCE)

    def going_on(self, done: int) -> None:
        """What long work calls now and then; ends it when the studio closes."""
        if self.closing.is_set():
            raise StoppedError

    def wall(self, name: str, seed: int, n: int, std: float, best_of: int, classes: str) -> list[Face]:
        """Faces of the seeds from one on; or the best of so many.

        Raises:
            ConfigError: a class is not known.
        """
        sampler = Generator(self.sampler(name)).of_classes(classes).sampler
        seeds: Sequence[int] = range(seed, seed + max(n, best_of))
        if best_of > n:
            seeds, _ = whole_faces.choose(sampler, seeds, n, 0.0, std, self.going_on)
        latents, plays = sampler.latents(seeds, 0.0, std).cpu(), playing(sampler)
        return [Face(name, plays, z[None], one, std, sampler.asked) for one, z in zip(seeds, latents, strict=True)]

    def neighbours(self, face: Face, n: int, share: float) -> list[Face]:
        """A face, and others that are near to it."""
        near = recipes.neighbours(face.latent, n, share, face.std)
        return [face, *(Face(face.generator, face.sampler, z[None], None, face.std) for z in near[1:])]

    def moved(self, face: Face, sliders: Mapping[str, float], recoloured: Mapping[str, str]) -> Face:
        """A face moved along sliders, and recoloured: where the generator knows classes of hair or eyes by these."""
        sliders = {slider: share for slider, share in sliders.items() if share}
        if not sliders and not recoloured:
            return face
        sampler, latent = face.sampler, face.latent
        columns = [names[0] for names in sampler.classes.vocabulary]
        known = [name for name in recoloured if name in columns]
        if known and face.seed is not None:
            codes, _ = sampler.classes.parse(",".join(f"{name}:{recoloured[name]}" for name in known))
            of_classes = dataclasses.replace(sampler, asked={**face.asked, **codes})
            latent = of_classes.latents([face.seed], 0.0, face.std).cpu()
            recoloured = {name: colour for name, colour in recoloured.items() if name not in known}
        if sliders or recoloured:
            found = self.directions(sampler)
            latent = found.move(latent, sliders) if sliders else latent
            for name, colour in recoloured.items():
                latent = found.recolour(sampler, latent, *found.code(name, colour))
        return Face(face.generator, sampler, latent, None, face.std)

    def ends(self, face: Face) -> np.ndarray:
        """Where each slider leads, its two ends in a row: pixels (2 * sliders, S, S, C)."""
        found = self.directions(face.sampler)
        ends = [found.move(face.latent, {slider: share}) for slider in SLIDERS for share in (-1.0, 1.0)]
        return self.pixels([dataclasses.replace(face, latent=latent) for latent in ends], quick=True)

    def mixed(self, faces: Sequence[Face], text: str) -> tuple[Face, list[str]]:
        """The sum of some faces, named by their places from 1 on, and the options of the same command.

        Raises:
            ConfigError: the text is no sum, or a place is empty.
        """
        alike(faces)
        try:
            signs, words = recipes.terms(text)
        except ConfigError as error:
            raise ConfigError(f"expected a sum of pinned faces by their places: 1 - 2 + 3; got {text!r}") from error
        places = [place(faces, word) for word in words]
        used = [faces[i] for i in places]
        latent = recipes.total(signs, [face.latent for face in used], text)
        names, options = named(used, [1 + i for i in places])
        shown = " ".join(f"{sign} {name}" for sign, name in zip(signs, names, strict=True)).removeprefix("+ ")
        return Face(faces[0].generator, faces[0].sampler, latent), [f'--mix="{shown}"', *options]

    def film(self, faces: Sequence[Face], seconds: float, path: Path) -> list[str]:
        """Write a film from face to face and back to the first, as `generate.py` does; the options of its command.

        Raises:
            ConfigError: there are fewer than two, or they are of several generators, or it cannot be written.
        """
        alike(faces)
        if len(faces) < 2:
            raise ConfigError("a film goes from face to face; pin two or more")
        points, frames = torch.cat([face.latent for face in faces]), morph.frames_of(len(faces), seconds, morph.FPS)
        morph.film(faces[0].sampler, points, frames, path, progress=self.going_on)
        names, options = named(faces, range(1, len(faces) + 1))
        return [f"--morph={','.join(names)}", f"--seconds={seconds:g}", *options]

    def remembered(self, name: str, path: Path) -> tuple[list[Face], int | None]:
        """The faces of a picture that this generator made, and its columns, by its recipe; none where none fits."""
        sampler = self.sampler(name)
        with contextlib.suppress(ConfigError):
            recipe, plays = recipes.of(sampler, path), playing(sampler)
            return [Face(name, plays, latent[None]) for latent in recipe.latents], recipe.columns
        return [], None

    def inverted(self, name: str, path: Path) -> tuple[Face, inversion.Found]:
        """The face that looks most like a picture.

        Raises:
            DataError: it cannot be read.
        """
        sampler = self.sampler(name)
        found = Generator(sampler).invert(path, self.going_on)
        return Face(name, playing(sampler), found.latent), found

    def pixels(self, faces: Sequence[Face], quick: bool = False) -> np.ndarray:
        """The pixels of faces of one generator, (N, S, S, C) uint8; `quick` may be off by rounding."""
        sampler = dataclasses.replace(faces[0].sampler, batch=len(faces)) if quick else faces[0].sampler
        return np.concatenate(list(sampler.draw(torch.cat([face.latent for face in faces]))))

    def save(self, faces: Sequence[Face], path: Path, columns: int | None = None) -> None:
        """Write a face as it is, or faces as a grid, with their recipe, as `generate.py` does."""
        pixels = self.pixels(faces)
        known = [face.seed for face in faces if face.seed is not None]
        latents = torch.cat([face.latent for face in faces])
        recipe = Recipe(faces[0].sampler.digest, latents, columns, known if len(known) == len(faces) else ())
        images.save_picture(pixels[0] if len(faces) == 1 else images.grid(pixels, columns), path, recipe.text())

    def command(self, name: str, *words: str) -> str:
        """What generates the same in a terminal."""
        of = [] if name == RELEASED_NAME else [f"--checkpoint={as_word(self.path(name))}"]
        other = ["--nogpu"] if self.device.type == "cpu" and torch.accelerator.is_available() else []
        return " ".join(["python generate.py", *of, *words, *other])


def playing(sampler: Sampler) -> Sampler:
    """A generator without what only chooses among its faces, for faces that may outlast its file."""
    return dataclasses.replace(sampler, discriminator=None, asked={})


def alike(faces: Sequence[Face]) -> None:
    """Check that faces are of one generator; a ConfigError where they are not, or where there are none."""
    if not faces:
        raise ConfigError("no face is pinned; click one and pin it")
    if len({face.sampler.digest for face in faces}) > 1:
        raise ConfigError(
            "the pinned faces are of several generators, or of a run before and after it trained on; remove the pins, "
            "and pin faces of one"
        )


def place(faces: Sequence[Face], word: str) -> int:
    """The index of the place that is counted from 1 on; a ConfigError where there is none."""
    number = int(word) if word.isdecimal() and len(word) < 9 else 0
    if not 1 <= number <= len(faces):
        raise ConfigError(f"no face is pinned at {word[:40]!r}; there are {len(faces)}, from 1 on")
    return number - 1


def named(faces: Sequence[Face], places: Sequence[int]) -> tuple[list[str], list[str]]:
    """How a command names faces, by seeds where that is enough, else by saved files; and its other options."""
    drawn = {tuple(face.drawn) for face in faces if face.seed is not None}
    common = drawn.pop() if len(drawn) == 1 else ()
    names = [
        f"pin-{i}.png" if face.seed is None or tuple(face.drawn) != common else str(face.seed)
        for i, face in zip(places, faces, strict=True)
    ]
    return names, list(common)
