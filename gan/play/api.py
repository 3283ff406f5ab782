"""A generator for other Python programs: `from gan import Generator`. The program itself uses it, too."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from config import RELEASED, ConfigError
from gan import images
from gan.data import faces as pictures
from gan.device import choose_device
from gan.images import Picture
from gan.play import inversion, morph, recipes
from gan.play.inversion import Found
from gan.quality import sampling, whole_faces
from gan.quality.sampling import Sampler

Face = int | str | Path | Tensor
"""A face: its seed, a PNG with its recipe, or its latent (1, nz)."""


class Generator:
    """A generator of small faces.

    Example:
        from gan import Generator
        generator = Generator.load("released")
        faces = generator.sample(16, seed=1, truncation=0.8)

    Args:
        sampler: the networks, see `gan.quality.sampling.load`.
    """

    def __init__(self, sampler: Sampler) -> None:
        self.sampler = sampler

    @classmethod
    def load(
        cls,
        checkpoint: str | Path = "released",
        gpu: bool | None = False,
        say: Callable[[str], None] = lambda line: None,
    ) -> Generator:
        """Load a generator.

        Args:
            checkpoint: "released" for the one that comes with the program; or a checkpoint, a run's folder, or a folder
                that `export.py --to=safetensors` wrote.
            gpu: whether on the GPU; None takes the best device there is. On a CPU a seed always gives the same face.
            say: receives a line about the device.

        Raises:
            CheckpointError: it cannot be read.
        """
        path = RELEASED if str(checkpoint) == "released" and not Path(checkpoint).exists() else Path(checkpoint)
        return cls(sampling.load(path, choose_device(gpu, say)))

    def latents(self, faces: Sequence[Face], truncation: float = 1.0) -> Tensor:
        """The latents (N, nz) of some faces, on the CPU; `truncation` is for those named by seeds.

        Raises:
            ConfigError: a file has no recipe, or one of another generator, or a latent has another size.
        """
        found = [
            face.detach().cpu().float() if isinstance(face, Tensor)
            else recipes.point(self.sampler, str(face), std=truncation)
            for face in faces
        ]  # fmt: skip
        if not found:
            raise ConfigError("expected at least one face, by its seed, a PNG file or its latent; got none")
        for one in found:
            if one.shape != (1, self.sampler.model.nz):
                raise ConfigError(f"expected a latent of shape (1, {self.sampler.model.nz}); got {tuple(one.shape)}")
        return torch.cat(found)

    def sample(
        self, n: int = 16, *, seed: int = 0, truncation: float = 1.0, classes: str = "", best_of: int | None = None
    ) -> list[Picture]:
        """Generate faces, as `python generate.py` does.

        Args:
            n: how many.
            seed: of the first face; the others have the seeds after it.
            truncation: standard deviation of the latents: below 1 faces are cleaner and more alike.
            classes: such as "hair:blue,eyes:red", for a generator that knows some.
            best_of: choose from so many those that look most whole.

        Returns:
            n pictures of Pillow; `tensors` gives numbers instead.

        Raises:
            ConfigError: a class is not known, or `best_of` is less than n.
        """
        return [images.picture(face) for face in self._sampled(n, seed, truncation, classes, best_of)]

    def tensors(
        self, n: int = 16, *, seed: int = 0, truncation: float = 1.0, classes: str = "", best_of: int | None = None
    ) -> Tensor:
        """The same faces as `sample` gives: (n, C, S, S) in [-1, 1], float32, on the CPU, rounded as pictures are."""
        return images.to_tensor(torch.from_numpy(self._sampled(n, seed, truncation, classes, best_of)))

    def _sampled(self, n: int, seed: int, truncation: float, classes: str, best_of: int | None) -> np.ndarray:
        if n < 1 or seed < 0:
            raise ConfigError(f"expected n of at least 1 and a seed from 0 on; got n {n}, seed {seed}")
        sampler, seeds = self.of_classes(classes).sampler, range(seed, seed + n)
        if best_of is not None:
            if best_of < n:
                raise ConfigError(f"best_of must be at least n, {n}, which are chosen from it; got {best_of}")
            seeds, _ = whole_faces.choose(sampler, range(seed, seed + best_of), n, 0.0, truncation)
        return np.concatenate(list(sampler.draw(sampler.latents(seeds, 0.0, truncation).cpu())))

    def of_classes(self, classes: str) -> Generator:
        """The same generator, but of these classes alone, such as "hair:blue"; all where there are none.

        Raises:
            ConfigError: one is not known, or it goes from one class to another.
        """
        sampler = dataclasses.replace(self.sampler, asked={})
        if classes:
            sampler.asked, until = sampler.classes.parse(classes)
            if until != sampler.asked:
                raise ConfigError("--class=FROM..TO is for generate.py; name one class of a column")
        return Generator(sampler)

    def draw(self, faces: Sequence[Face]) -> list[Picture]:
        """Generate faces that are known already, by seeds, PNG files or latents.

        Raises:
            ConfigError: as `latents`.
        """
        found = self.sampler.draw(self.latents(faces))
        return [images.picture(face) for some in found for face in some]

    def morph(self, faces: Sequence[Face], seconds: float | None = None, fps: int = morph.FPS) -> list[Picture]:
        """The pictures of a film that goes from face to face and back to the first, changing evenly.

        Args:
            faces: two or more, by seeds, PNG files or latents.
            seconds: length of the film; None: two for each face.
            fps: pictures per second.

        Raises:
            ConfigError: as `latents`, or there are fewer than two.
        """
        if len(faces) < 2:
            raise ConfigError(f"a film goes from face to face; give two or more, got {len(faces)}")
        frames = morph.frames_of(len(faces), seconds, fps)
        return self.draw(list(morph.evenly(self.sampler, self.latents(faces), frames).split(1)))

    def invert(self, picture: str | Path | Picture, progress: Callable[[int], object] = lambda n: None) -> Found:
        """Find the face that looks most like a picture: its middle square, in the generator's size.

        Args:
            picture: a file, or a picture of Pillow.
            progress: called with the number of faces done, of `inversion.TOTAL`.

        Returns:
            Its latent, for the other methods, its pixels, and how far it is from the picture.

        Raises:
            DataError: the file cannot be read.
        """
        size, channels = self.sampler.model.image_size, self.sampler.model.channels
        if isinstance(picture, str | Path):
            face = pictures.read(Path(picture), size, channels)
        else:
            face = pictures.of_picture(picture, size, channels)
        return inversion.invert(self.sampler, face, progress)
