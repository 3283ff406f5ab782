"""The Python API: `from gan import Generator`. The program's own commands use it, too."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from config import RELEASED, ConfigError, UserError
from gan import images
from gan.data import detection, faces, pictures
from gan.device import choose_device
from gan.images import Picture
from gan.language import said, text
from gan.play import enlarging, inversion, morph, recipes
from gan.play.inversion import Found
from gan.quality import ranking, sampling
from gan.quality.sampling import Sampler

Face = int | str | Path | Tensor
"""A face, given as a seed, as a PNG file with a recipe, or as a latent (nz,); a tensor (N, nz) is N faces."""


class Generator:
    """A trained generator of small face images.

    Example:
        from gan import Generator
        generator = Generator.load("released")
        faces = generator.sample(16, seed=1, truncation=0.8)

    Args:
        sampler: the networks; see `gan.quality.sampling.load`.
    """

    def __init__(self, sampler: Sampler) -> None:
        self.sampler = sampler

    @classmethod
    def load(
        cls,
        checkpoint: str | Path = "released",
        gpu: bool | None = False,
        log: Callable[[str], None] = lambda line: None,
    ) -> Generator:
        """Load a generator.

        Args:
            checkpoint: "released" for the generator that ships with the program; or a checkpoint, a run's folder, or
                a folder that `export.py --to=safetensors` wrote.
            gpu: whether to use the GPU; None picks the best available device. On a CPU, a seed always gives the same
                face.
            log: called with a line of text about the device.

        Raises:
            CheckpointError: the checkpoint cannot be read.
        """
        path = RELEASED if str(checkpoint) == "released" and not Path(checkpoint).exists() else Path(checkpoint)
        return cls(sampling.load(path, choose_device(gpu, log)))

    def latents(self, faces: Sequence[Face] | Tensor, truncation: float = 1.0) -> Tensor:
        """Return the latents (N, nz) of faces, on the CPU; `truncation` applies only to faces given as seeds.

        Raises:
            ConfigError: there are no faces, a file has no recipe or one of another generator, or a latent has the
                wrong shape.
        """
        nz = self.sampler.model.nz
        found = [
            torch.atleast_2d(face.detach().cpu().float()) if isinstance(face, Tensor)
            else recipes.point(self.sampler, str(face), std=truncation)
            for face in faces
        ]  # fmt: skip
        if not found:
            raise ConfigError("expected at least one face, by its seed, a PNG file or its latent; got none")
        for one in found:
            if one.ndim != 2 or one.shape[1] != nz:
                raise ConfigError("expected latents of shape ({},) or (N, {}); got {}", nz, nz, tuple(one.shape))
        return torch.cat(found)

    def sample(
        self,
        n: int = 16,
        *,
        seed: int = 0,
        truncation: float = 1.0,
        classes: str = "",
        best_of: int | None = None,
        enlarge: int = 1,
    ) -> list[Picture]:
        """Generate faces, as `python generate.py` does.

        Args:
            n: number of faces.
            seed: seed of the first face; the others use the seeds that follow it.
            truncation: standard deviation of the latents; below 1, faces are cleaner but less varied.
            classes: the classes to generate, such as "hair:blue,eyes:red", if the generator was trained with classes.
            best_of: generate this many faces and return the n best, as `ranking.best` ranks them.
            enlarge: how many times larger than trained, 1, 2 or 4; see `draw`.

        Returns:
            n Pillow images; use `tensors` to get tensors instead.

        Raises:
            ConfigError: a class is unknown, `n` or `seed` is out of range, `best_of` is less than `n`, or `enlarge` is
                none of these.
        """
        return self._pictures(self._sampled(n, seed, truncation, classes, best_of), enlarge)

    def tensors(
        self, n: int = 16, *, seed: int = 0, truncation: float = 1.0, classes: str = "", best_of: int | None = None
    ) -> Tensor:
        """Return the faces of `sample` as a tensor: (n, C, S, S) in [-1, 1], float32, on the CPU, rounded to 8 bits."""
        latents = self._sampled(n, seed, truncation, classes, best_of)
        return images.to_tensor(torch.from_numpy(np.concatenate(list(self.sampler.draw(latents)))))

    def _sampled(self, n: int, seed: int, truncation: float, classes: str, best_of: int | None) -> Tensor:
        if n < 1 or seed < 0:
            raise ConfigError("expected n of at least 1 and a seed from 0 on; got n {}, seed {}", n, seed)
        sampler, seeds = self.of_classes(classes).sampler, range(seed, seed + n)
        if best_of is not None:
            if best_of < n:
                raise ConfigError("best_of must be at least n, {}, which are chosen from it; got {}", n, best_of)
            seeds, _ = ranking.best(sampler, range(seed, seed + best_of), n, 0.0, truncation)
        return sampler.latents(seeds, 0.0, truncation).cpu()

    def _pictures(self, latents: Tensor, enlarge: int) -> list[Picture]:
        return [images.picture(face) for face in enlarging.draw(self.sampler, latents, enlarge)]

    def of_classes(self, classes: str) -> Generator:
        """Return this generator restricted to classes such as "hair:blue"; an empty string lifts the restriction.

        Raises:
            ConfigError: a class is unknown, or the text asks for a transition between classes (FROM..TO).
        """
        class_filter, until = self.sampler.classes.parse(classes) if classes else ({}, {})
        if until != class_filter:
            raise ConfigError("--class=FROM..TO is for generate.py; name one class of a column")
        return Generator(self.sampler.of_classes(class_filter))

    def draw(self, faces: Sequence[Face] | Tensor, enlarge: int = 1) -> list[Picture]:
        """Generate the given faces: seeds, PNG files or latents.

        Args:
            faces: the faces.
            enlarge: how many times larger than trained, 1, 2 or 4. The network that comes with the program draws what
                is missing; faces that do not look drawn are enlarged by Lanczos.

        Raises:
            CheckpointError: the file of that network is missing or damaged.
            ConfigError: as in `latents`, or `enlarge` is none of these.
        """
        return self._pictures(self.latents(faces), enlarge)

    def morph(self, faces: Sequence[Face] | Tensor, seconds: float | None = None, enlarge: int = 1) -> list[Picture]:
        """Return the frames of a morph from face to face and back to the first, at an even pace.

        Args:
            faces: two or more seeds, PNG files or latents.
            seconds: length of the film, of 25 frames a second; None means two seconds per face.
            enlarge: as in `draw`.

        Raises:
            ConfigError: as in `draw`, or there are fewer than two faces.
        """
        if len(faces) < 2:
            raise ConfigError("a film goes from face to face; give two or more, got {}", len(faces))
        frames = morph.frames_of(len(faces), seconds)
        return self._pictures(morph.evenly(self.sampler, self.latents(faces), frames), enlarge)

    def invert(self, picture: str | Path | Picture, progress: Callable[[int], object] = lambda n: None) -> Found:
        """Find the generated face that is most similar to a picture (GAN inversion).

        If the generator draws anime faces and the picture is larger than these, the largest anime face is cut out of
        it, with OpenCV; what anime faces look like is fetched once, as by `prepare.py --detect`. Where none is found,
        or none can be looked for, the centre square is taken.

        Args:
            picture: an image file or a Pillow image.
            progress: called with the number of faces just generated, `inversion.TOTAL` in all.

        Returns:
            The latent, which the other methods accept, the pixels, the distance from the picture, and what of the
            picture was taken.

        Raises:
            DataError: the file cannot be read.
        """
        size, channels = self.sampler.model.image_size, self.sampler.model.channels
        if isinstance(picture, str | Path):
            image = pictures.whole(Path(picture))
        else:
            image = pictures.upright(picture.copy()).convert("RGB")
        face, missed = None, ""
        if max(image.size) > size and not enlarging.why_not(self.sampler):
            progress(0)
            try:
                face = detection.main_face(image, size // 2)
                missed = "" if face else text("no face was found in it; cut the face out first if you can")
            except UserError as error:
                missed = text("to have the face cut out: {}").format(said(error))
        oblong = max(image.size) > detection.OBLONG * min(image.size)
        taken = "face" if face is not None and face is not image else "middle" if oblong else "whole"
        found = inversion.invert(self.sampler, faces.of_picture(face or image, size, channels), progress)
        return dataclasses.replace(found, taken=taken, missed=missed)
