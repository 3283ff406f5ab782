"""Own pictures as points of the latent space: the face of a generator that looks most like a picture.

By gradient descent on the latent (Zhu et al. 2016, "Generative visual manipulation") from several starts, the nearest
of many random faces; the best of them go further. What counts is how far pixels differ, coarse and fine, and what the
program's encoder sees.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, interpolate

from config import ENCODER
from gan import checkpoint, device, images
from gan.encoder import SIZE, Encoder, fused
from gan.play.morph import distance
from gan.quality.features import shipped
from gan.quality.sampling import Sampler

RANDOM = 1024  # faces among which starts are looked for
ROUNDS = ((8, 30), (2, 90))  # latents, and steps of gradient descent on each; the best of a round begin the next one
TOTAL = RANDOM + sum(latents * steps for latents, steps in ROUNDS)  # faces that are generated
RATE = 0.08  # of Adam, falling to 0 in each round; the numbers of a latent have size 1
COARSE = 4  # pixels are also compared after averaging over so many


@dataclasses.dataclass(frozen=True)
class Found:
    """What was found: the latent (1, nz), its face (S, S, C) uint8, and how far it is from the picture.

    Distances are root mean squares over pixels, from 0 to 255: of what was found, and of the best random face.
    """

    latent: Tensor
    face: np.ndarray
    distance: float
    random: float


class Likeness:
    """How far faces are from one picture: a number without a unit for each, of pixels and of the encoder's maps."""

    def __init__(self, picture: np.ndarray, on: torch.device) -> None:
        encoder = Encoder()
        checkpoint.load_weights(encoder, shipped(ENCODER, "encoder", without=None)["encoder"], "encoder", ENCODER)
        self.encoder = device.place(fused(encoder.eval()), on).requires_grad_(False)
        self.face = images.to_tensor(torch.from_numpy(picture)[None].to(on))
        with torch.no_grad():
            self.maps = self._maps(self.face)

    def _maps(self, faces: Tensor) -> list[Tensor]:
        faces = faces.expand(-1, 3, -1, -1)
        if faces.shape[-1] != SIZE:
            faces = interpolate(faces, size=(SIZE, SIZE), mode="bilinear", antialias=True)
        return self.encoder.maps(faces)

    def __call__(self, faces: Tensor) -> Tensor:
        """Faces (N, C, S, S) in [-1, 1] -> (N,)."""
        fine = (faces - self.face).square().mean((1, 2, 3))
        coarse = (avg_pool2d(faces, COARSE) - avg_pool2d(self.face, COARSE)).square().mean((1, 2, 3))
        seen = [
            (own - other).square().mean((1, 2, 3)) / other.square().mean()
            for own, other in zip(self._maps(faces), self.maps, strict=True)
        ]
        return fine + coarse + 0.2 * torch.stack(seen).sum(0)


def invert(sampler: Sampler, picture: np.ndarray, progress: Callable[[int], object] = lambda n: None) -> Found:
    """Find the face that looks most like a picture (S, S, C) uint8; the same picture always gives the same face.

    Latents stay as long as random ones are, where the generator knows what it draws. `progress` is called with the
    number of faces done, of `TOTAL`.
    """
    likeness = Likeness(picture, sampler.device)
    latents, far, pixels_far = sampler.latents(range(RANDOM)), list[Tensor](), list[float]()
    for faces in sampler.draw(latents):
        progress(len(faces))
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
    """Latents (N, nz) after so many steps of gradient descent towards likeness."""
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
