"""Directions of the latent space: what makes a face lighter or warmer, turns it, or recolours its hair or its eyes.

They are found from samples alone, without labels from the user: a linear regression tells how each thing that is
measured on a sample depends on its latent, and the directions are the regression's, with whatever moves the other
things projected out (Shen et al. 2020, "Interpreting the latent space of GANs for semantic face editing"). Lightness
and warmth are measured on pixels, colours are guessed by the network that labels faces, and which way a face leans is
what differs most between faces and their mirror images.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, normalize

from config import DIRECTIONS
from gan import checkpoint
from gan.classes import one_of
from gan.quality import colours
from gan.quality.features import sized
from gan.quality.sampling import Sampler

SAMPLES = 2048  # to learn from
SLIDERS = "light", "warm", "turn"  # moved gradually: -1 is darker, colder, to the left; 1 lighter, warmer, to the right
REACH = 0.4  # how far a latent moves to the end of a slider, in its own lengths
FARTHEST, STEPS = 1.2, 9  # the same for another colour at most, and among how many steps the first that does is taken
SURE = 0.5  # how likely that colour has to be
DOUBTFUL = 0.05  # what depends on the latent by less than this share of what depends most is left out
SQUARES = 12  # a face is compared with its mirror image in so many rows of squares


@dataclasses.dataclass(frozen=True)
class Directions:
    """The directions of one generator, of length 1.

    Args:
        sliders: those of `SLIDERS`, (nz,) each.
        colours: for each column of colours that the guesser knows those of its classes, (C, nz).
        guesser: guesses the colours of a face.
    """

    sliders: Mapping[str, Tensor]
    colours: Sequence[Tensor]
    guesser: colours.Guesser

    def move(self, latents: Tensor, sliders: Mapping[str, float]) -> Tensor:
        """Latents (N, nz) moved along the sliders, each from -1 to 1; they keep their lengths."""
        moved = latents
        for name, share in sliders.items():
            moved = moved + REACH * share * latents.norm(dim=1, keepdim=True) * self.sliders[name]
        return _as_long(moved, latents)

    def recolour(self, sampler: Sampler, latents: Tensor, column: int, code: int) -> Tensor:
        """Latents (N, nz) moved to another colour, no farther than it takes: a column and a code, see `code`.

        Where no step is far enough, the one that comes nearest is taken.
        """
        quick = dataclasses.replace(sampler, batch=STEPS)  # so that a face's way depends on nothing but this face
        start = sum(len(names) - 1 for names in self.guesser.vocabulary[:column])
        end = start + len(self.guesser.vocabulary[column]) - 1
        found = []
        for latent in latents:
            steps = torch.linspace(0, FARTHEST, STEPS)[:, None] * latent.norm() * self.colours[column][code - 1]
            way = _as_long(latent + steps, latent[None])
            faces = np.concatenate(list(quick.draw(way)))
            likely = self.guesser.extractor(faces)[:, start:end].softmax(1)[:, code - 1]
            reached = likely > SURE
            found.append(way[int(reached.float().argmax() if reached.any() else likely.argmax())])
        return torch.stack(found)

    def code(self, name: str, colour: str) -> tuple[int, int]:
        """The column of a name, hair or eyes, and the code of a colour; a ConfigError where there is none."""
        column = [names[0] for names in self.guesser.vocabulary].index(name)
        known = self.guesser.vocabulary[column][1:]
        return column, 1 + known.index(one_of(colour, known, "colour", name))


def _as_long(moved: Tensor, before: Tensor) -> Tensor:
    return normalize(moved, dim=1) * before.norm(dim=1, keepdim=True)


def of(
    sampler: Sampler, progress: Callable[[int], object] = lambda n: None, guesser: colours.Guesser | None = None
) -> Directions:
    """The directions of a generator: those that come with the released one, others are found, see `find`.

    Raises:
        CheckpointError: a file that comes with the program is missing or damaged.
    """
    if DIRECTIONS.is_file():
        content = checkpoint.load(DIRECTIONS, required=("generator", "sliders", "colours"))
        if content["generator"] == sampler.digest:
            return Directions(content["sliders"], content["colours"], guesser or colours.load(sampler.device))
    return find(sampler, progress, guesser)


def find(
    sampler: Sampler, progress: Callable[[int], object] = lambda n: None, guesser: colours.Guesser | None = None
) -> Directions:
    """Find the directions of a generator; `progress` is called with the number of samples done, of `SAMPLES`.

    Raises:
        CheckpointError: the network that guesses colours is missing or damaged.
    """
    guesser, latents = guesser or colours.load(sampler.device), sampler.latents(range(SAMPLES)).cpu()
    seen: list[tuple[Tensor, Tensor, Tensor]] = []
    for pixels in sampler.draw(latents):
        progress(len(pixels))
        seen.append((light_and_warmth(pixels), asymmetry(pixels), guesser.extractor(pixels)))
    shades, halves, guesses = (torch.cat(some) for some in zip(*seen, strict=True))
    light, warm, turn = regression(latents, torch.cat([shades, (halves @ lean(halves))[:, None]], 1))
    columns = guesses.split([len(names) - 1 for names in guesser.vocabulary], 1)
    depends = [regression(latents, logits - logits.mean(1, keepdim=True)) for logits in columns]
    sliders = {
        "light": freed(light, torch.stack([warm, turn])),
        "warm": freed(warm, torch.stack([light, turn])),
        "turn": freed(turn, torch.cat([torch.stack([light, warm]), *depends])),
    }
    recoloured = []
    for own in depends:
        held = torch.cat([turn[None], *(other for other in depends if other is not own)])
        recoloured.append(torch.stack([freed(way, held) for way in own]))
    return Directions(sliders, recoloured, guesser)


def light_and_warmth(pixels: np.ndarray) -> Tensor:
    """How light, and how much more red than blue, faces (N, S, S, C) uint8 are on average: (N, 2)."""
    means = torch.from_numpy(pixels.mean((1, 2), dtype=np.float32) / 255).expand(-1, 3)
    return torch.stack([means @ torch.tensor([0.299, 0.587, 0.114]), means[:, 0] - means[:, 2]], 1)


def asymmetry(pixels: np.ndarray) -> Tensor:
    """How the left half of faces (N, S, S, C) uint8 differs from the mirrored right one, in squares: (N, F)."""
    grey = sized(torch.from_numpy(pixels)).mean(1, keepdim=True)
    small = avg_pool2d(grey, grey.shape[-1] // SQUARES)
    return (small - small.flip(3))[..., : SQUARES // 2].flatten(1)


def lean(halves: Tensor) -> Tensor:
    """The part of faces' `asymmetry` (N, F) that tells how far they lean to the right: the first component, (F,)."""
    first = torch.linalg.svd(halves - halves.mean(0), full_matrices=False)[2][0]
    corner = first.view(SQUARES, -1)[-3:, :3].mean()  # the lower left: hair hangs there, dark, where a face leans away
    return first * torch.where(corner < 0, 1, -1)


def regression(latents: Tensor, measured: Tensor) -> Tensor:
    """How numbers (N, T), scaled to deviation 1, depend on latents (N, nz), by ridge regression: (T, nz)."""
    centred, scaled = latents - latents.mean(0), (measured - measured.mean(0)) / measured.std(0).clamp_min(1e-6)
    gram = centred.T @ centred + 0.01 * len(latents) * torch.eye(latents.shape[1])
    return torch.linalg.solve(gram, centred.T @ scaled).T


def freed(way: Tensor, others: Tensor) -> Tensor:
    """The part of `way` (nz,) that moves nothing of what depends on a latent by `others` (M, nz), of length 1."""
    basis = torch.linalg.svd(others, full_matrices=False)
    held = basis.Vh[basis.S / basis.S[0].clamp_min(1e-12) > DOUBTFUL]
    return normalize(way - held.T @ (held @ way), dim=0)
