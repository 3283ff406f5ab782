"""GAN inversion: find the latent whose generated face is most similar to a picture.

The latent is optimised by gradient descent (Zhu et al. 2016, "Generative visual manipulation"). It starts from the most
similar of many random faces, and the best results of the first round are optimised further. The loss compares pixels,
at full and at reduced resolution, and the feature maps of the program's encoder.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d

from gan import device, images
from gan.language import text
from gan.play.morph import distance
from gan.quality import features
from gan.quality.sampling import Sampler

RANDOM = 1024  # random faces from which the starting points are chosen
ROUNDS = ((8, 30), (2, 90))  # latents and gradient steps of each round; the best of one round start the next
TOTAL = RANDOM + sum(latents * steps for latents, steps in ROUNDS)  # generated faces that are reported as progress
RATE = 0.08  # Adam's learning rate, with cosine decay to 0 in each round; latents have a standard deviation of 1
COARSE = 4  # kernel size of the average pooling for the comparison at reduced resolution


@dataclasses.dataclass(frozen=True)
class Found:
    """The result of an inversion: the latent (1, nz), its face (S, S, C) uint8, and two distances from the picture.

    `distance` is that of this face, `random` that of the nearest random face: root mean squares over pixels, 0 to 255.
    `taken` is what was taken of the picture, and `missed` why it is no face cut out of it, if one was looked for.
    """

    latent: Tensor
    face: np.ndarray
    distance: float
    random: float
    taken: Literal["face", "middle", "whole"] = "whole"
    missed: str = ""

    @property
    def told(self) -> str:
        """What was taken of the picture, in words; empty if it was taken as it is, without looking for a face."""
        if self.taken == "face":
            return text("the face was found in the picture and cut out")
        taken = (
            text("the picture's middle was taken") if self.taken == "middle" else text("the whole picture was taken")
        )
        if not self.missed:
            return taken if self.taken == "middle" else ""
        return text("; ").join((taken, self.missed))


class Likeness:
    """The loss of an inversion: a unitless distance of faces from one picture, in pixels and in encoder features."""

    def __init__(self, picture: np.ndarray, on: torch.device) -> None:
        self.encoder = features.faces_encoder(on)
        self.face = images.to_tensor(torch.from_numpy(picture)[None].to(on))
        with torch.no_grad():
            self.maps = self._maps(self.face)

    def _maps(self, faces: Tensor) -> list[Tensor]:
        return self.encoder.maps(features.resized(faces.expand(-1, 3, -1, -1)))

    def __call__(self, faces: Tensor) -> Tensor:
        """Return the distances (N,) of faces (N, C, S, S) in [-1, 1]."""
        fine = (faces - self.face).square().mean((1, 2, 3))
        coarse = (avg_pool2d(faces, COARSE) - avg_pool2d(self.face, COARSE)).square().mean((1, 2, 3))
        seen = [
            (own - other).square().mean((1, 2, 3)) / other.square().mean()
            for own, other in zip(self._maps(faces), self.maps, strict=True)
        ]
        return fine + coarse + 0.2 * torch.stack(seen).sum(0)


def invert(sampler: Sampler, picture: np.ndarray, progress: Callable[[int], object] = lambda n: None) -> Found:
    """Find the generated face that is most similar to a picture (S, S, C) uint8.

    The same picture always gives the same face. Norms of latents are limited to sqrt(nz), that of a typical random
    latent, because the generator was trained on such latents. `progress` is called with the number of faces just
    generated, `TOTAL` in all.
    """
    likeness = Likeness(picture, sampler.device)
    latents, far, pixels_far = sampler.latents(range(RANDOM)), list[Tensor](), list[float]()
    for faces in sampler.draw(latents, progress):
        with torch.no_grad():
            far.append(likeness(images.to_tensor(torch.from_numpy(faces).to(sampler.device))).cpu())
        pixels_far += [distance(face, picture) for face in faces]
    found, faces = latents[torch.cat(far).argsort().to(latents.device)], np.empty(0)
    for number, steps in ROUNDS:
        found = _descend(sampler, likeness, found[:number], steps, progress)
        faces = np.concatenate(list(sampler.draw(found)))
        with torch.no_grad():
            order = likeness(images.to_tensor(torch.from_numpy(faces).to(sampler.device))).argsort()
        found, faces = found[order], faces[order.cpu().numpy()]
    return Found(found[:1].cpu(), faces[0], distance(faces[0], picture), min(pixels_far))


def _descend(
    sampler: Sampler, likeness: Likeness, latents: Tensor, steps: int, progress: Callable[[int], object]
) -> Tensor:
    """Return latents (N, nz) after the given number of gradient descent steps on the loss `likeness`."""
    found, length = latents.clone().requires_grad_(), math.sqrt(sampler.model.nz)
    optimizer = torch.optim.Adam([found], lr=RATE, betas=(0.9, 0.99))
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = RATE * 0.5 * (1 + math.cos(math.pi * step / steps))
        optimizer.zero_grad()
        with device.autocast(sampler.device, sampler.precision):
            faces = sampler.generator(found)
        likeness(faces.float()).sum().backward()
        optimizer.step()
        with torch.no_grad():
            found.mul_((length / found.norm(dim=1, keepdim=True)).clamp_max(1))
        progress(len(latents))
    return found.detach()
