"""Latent directions that make a face lighter or warmer, turn it, or recolour its hair or its eyes.

The directions are found from generated samples alone; the user needs no labels. A linear regression predicts each
attribute of a sample from its latent. Its coefficients are the direction of the attribute, after the directions of the
other attributes are projected out (Shen et al. 2020, "Interpreting the latent space of GANs for semantic face
editing"). Lightness and warmth are measured on pixels, and colours are predicted by the network that labels faces. The
turn of a face is the first principal component of the differences between faces and their mirror images. Where a
colour is not reached along its direction, gradient descent on the latent goes on from there.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, cross_entropy, normalize, pad

from config import DIRECTIONS, LABELS, ConfigError
from gan import checkpoint, device
from gan.classes import one_of
from gan.language import text
from gan.quality import colours
from gan.quality.features import sized
from gan.quality.sampling import Sampler

SAMPLES = 2048  # samples in the regression
SLIDERS = "light", "warm", "turn"  # -1 is darker, colder, to the left; 1 is lighter, warmer, to the right
REACH = 0.4  # distance to the end of a slider, as a multiple of the latent's norm
FARTHEST, STEPS = 0.6, 5  # the largest such distance for a new colour, and the number of steps tried up to there
SURE = {"hair": 0.5, "eyes": 0.8}  # the first step with a probability above this, at which the rest stays, is taken
DESCENTS, RATE = 80, 0.1  # gradient steps where no step will do, and Adam's learning rate
MARGIN = 2.0  # the log odds of the new colour at which they end
SHIFT = 5  # pixels by which a face is shifted at most in each of them, so that the network is not merely deceived
LAYOUT, COARSE = 12.0, 4  # weight of the change in squares of so many pixels
DOUBTFUL = 0.05  # directions whose singular value is below this fraction of the largest are not projected out
LEAST = 0.1  # the fraction of a direction that has to be left when the others are projected out
SQUARES = 12  # rows and columns of squares in which a face is compared with its mirror image


@dataclasses.dataclass(frozen=True)
class Change:
    """What `--change` asks for.

    Args:
        sliders: how far to move along each of `SLIDERS`, from -1 to 1; those that stay are left out.
        colours: the new colours by name, hair or eyes.
    """

    sliders: Mapping[str, float] = dataclasses.field(default_factory=dict)
    colours: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.sliders or self.colours)

    def __str__(self) -> str:
        """Return the text that `parse` reads."""
        sliders = [f"{name}:{share:g}" for name, share in self.sliders.items()]
        return ",".join([*sliders, *(f"{name}:{colour}" for name, colour in self.colours.items())])

    @classmethod
    def parse(cls, asked: str) -> Change:
        """Parse a text such as `hair:blue,eyes:red,light:0.5,turn:-1`. Whether colours exist is checked later.

        Raises:
            ConfigError: a part is malformed, unknown, out of range or given twice.
        """
        given = dict[str, str]()
        for part in re.split(r",(?=[^,:]*:)", asked):  # the name of a class may hold commas
            name, _, value = (word.strip() for word in part.partition(":"))
            if not (name and value):
                raise ConfigError("--change: expected NAME:VALUE, such as hair:blue,light:0.5; got {!r}", part.strip())
            name = one_of(name, (*LABELS, *SLIDERS), text("change"), "change")
            if name in given:
                raise ConfigError("--change: {} is given twice; give it once", name)
            given[name] = value
        shares = {name: _share(name, value) for name, value in given.items() if name in SLIDERS}
        return cls(
            {name: shares[name] for name in SLIDERS if shares.get(name)},
            {name: given[name] for name in LABELS if name in given},
        )


def _share(name: str, typed: str) -> float:
    """Parse how far to move along a slider."""
    try:
        share = float(typed)
    except ValueError:
        raise ConfigError("--change: {} must be a number, such as {}:0.5; got {!r}", name, name, typed) from None
    if not -1 <= share <= 1:  # also if it is NaN
        raise ConfigError("--change: {} must be from -1 to 1; got {}", name, typed)
    return share


@dataclasses.dataclass(frozen=True)
class Directions:
    """The directions of one generator, as unit vectors.

    Args:
        sliders: the direction of each of `SLIDERS`, (nz,).
        colours: for each column of the classifier's vocabulary, the directions of its classes, (C, nz).
        classifier: predicts the colours of a face.
    """

    sliders: Mapping[str, Tensor]
    colours: Sequence[Tensor]
    classifier: colours.Classifier

    def move(self, latents: Tensor, sliders: Mapping[str, float]) -> Tensor:
        """Move latents (N, nz) along the sliders, each from -1 to 1, without changing their norms."""
        if not sliders:
            return latents
        moved = latents
        for name, share in sliders.items():
            moved = moved + REACH * share * latents.norm(dim=1, keepdim=True) * self.sliders[name]
        return _as_long(moved, latents)

    def change(
        self,
        sampler: Sampler,
        draw: Callable[[Sampler], Tensor],
        change: Change,
        each: Callable[[Tensor], Iterable[Tensor]] = iter,
    ) -> Tensor:
        """Move the latents of faces along sliders, then on until hair and eyes have their new colours: (N, nz).

        A colour that is a class of the generator starts from the same face of that class. If the face had other eyes
        before, say, recolouring its hair then also brings back those.

        Args:
            sampler: its `class_override` holds the new colours that are classes of the generator.
            draw: returns the latents (N, nz) of the faces, of the classes of a sampler.
            change: what to change.
            each: wraps the latents that are recoloured one by one, for a progress bar.

        Raises:
            ConfigError: as in `targets`.
        """

        def drawn(of: Sampler) -> Tensor:
            return self.move(draw(of), change.sliders)

        latents, before = drawn(sampler), None  # `before` are the faces whose other colours are held
        for name, (column, code) in self.targets(sampler, change).items():
            if before is None:
                before = drawn(sampler.of_classes(sampler.class_filter, sampler.overrides(without=name)))
            pairs = zip(each(latents), before, strict=True)
            before = latents = torch.cat([self.recolour(sampler, z[None], column, code, old[None]) for z, old in pairs])
        return latents

    def targets(self, sampler: Sampler, change: Change) -> dict[str, tuple[int, int]]:
        """Return the column and the code of each new colour, by name; without those that only a class can give.

        Raises:
            ConfigError: a colour is unknown, or the generator makes grey faces and is asked for colours.
        """
        if sampler.model.channels == 1 and (change.colours or "warm" in change.sliders):
            raise ConfigError("--change: this generator makes grey faces; leave out hair, eyes and warm")
        found = dict[str, tuple[int, int]]()
        for name, colour in change.colours.items():
            try:
                found[name] = self.code(name, colour)
            except ConfigError:
                if sampler.overrides(without=name) == sampler.class_override:  # it is no class either
                    raise
        return found

    def code(self, name: str, colour: str) -> tuple[int, int]:
        """Return the column of `name`, hair or eyes, and the code of a colour.

        Raises:
            ConfigError: the colour is unknown.
        """
        column = [names[0] for names in self.classifier.vocabulary].index(name)
        known = self.classifier.vocabulary[column][1:]
        return column, 1 + known.index(one_of(colour, known, text("colour of {}").format(name), "change"))

    def recolour(self, sampler: Sampler, latent: Tensor, column: int, code: int, own: Tensor) -> Tensor:
        """Move a latent (1, nz) only as far as it takes to change a colour, given by the column and code of `code`.

        The other colours of the latent `own` (1, nz) are held. If no step within `FARTHEST` does both, gradient descent
        goes on from there, for seconds.
        """
        steps = torch.linspace(0, FARTHEST, STEPS)[:, None] * latent.norm() * self.colours[column][code - 1]
        way = _as_long(latent + steps, latent)
        quick = dataclasses.replace(sampler, batch=STEPS + 1)
        seen = self.classifier.extractor(next(quick.draw(torch.cat([own, way])))).split(self.widths, 1)
        reached = seen[column][1:].softmax(1)[:, code - 1] > SURE[self.classifier.vocabulary[column][0]]
        good = reached & self._held(seen, column)[1:]
        if good.any():
            return way[int(good.float().argmax()), None]
        nearest = int(reached.float().argmax()) if reached.any() else STEPS - 1
        return self._descend(sampler, own, way[:1], way[nearest, None], column, code)

    @property
    def widths(self) -> list[int]:
        """The number of colours in each of the classifier's columns."""
        return [len(names) - 1 for names in self.classifier.vocabulary]

    def _held(self, seen: Sequence[Tensor], column: int) -> Tensor:
        """Return for which faces all colours but those of `column` are those of the first face: (N,) bool."""
        others = [logits.argmax(1) for i, logits in enumerate(seen) if i != column]
        return torch.stack(
            [torch.ones_like(seen[column][:, 0], dtype=torch.bool), *(other == other[0] for other in others)]
        ).all(0)

    def _descend(self, sampler: Sampler, own: Tensor, before: Tensor, start: Tensor, column: int, code: int) -> Tensor:
        """Change a colour by gradient descent from the latent `start`, (1, nz) as the other latents.

        The other colours of the face of `own`, and the coarse pixels of the face of `before`, are held.
        """
        random = np.random.default_rng(0)

        def face(latent: Tensor) -> Tensor:
            with device.autocast(sampler.device, sampler.precision):
                return sampler.generator(latent).float().expand(-1, 3, -1, -1)

        with torch.no_grad():
            first = face(before.to(sampler.device))
            asked = self.classifier.logits(face(own.to(sampler.device))).split(self.widths, 1)
            colours = [logits.softmax(1) for logits in asked]
        colours[column] = torch.zeros_like(colours[column])
        colours[column][:, code - 1] = 1
        latent = start.to(sampler.device, copy=True).requires_grad_()
        optimizer = torch.optim.Adam([latent], lr=RATE)
        for _ in range(DESCENTS):
            now = face(latent)
            down, right = random.integers(0, 2 * SHIFT + 1, 2)
            size = now.shape[-1]
            shifted = pad(now, [SHIFT] * 4, "reflect")[:, :, down : down + size, right : right + size]
            logits = self.classifier.logits(shifted).split(self.widths, 1)
            likely = logits[column].softmax(1)[0, code - 1]
            both = [torch.cat(pair) for pair in zip(asked, logits, strict=True)]
            if likely.logit() > MARGIN and self._held(both, column)[1]:
                break
            layout = (avg_pool2d(now, COARSE) - avg_pool2d(first, COARSE)).square().mean()
            seen = [cross_entropy(some, wanted) for some, wanted in zip(logits, colours, strict=True)]
            optimizer.zero_grad()
            (torch.stack(seen).sum() + LAYOUT * layout).backward()
            optimizer.step()
            with torch.no_grad():
                latent.copy_(_as_long(latent, before.to(sampler.device)))
        return latent.detach().cpu()


def _as_long(moved: Tensor, before: Tensor) -> Tensor:
    return normalize(moved, dim=1) * before.norm(dim=1, keepdim=True)


def of(
    sampler: Sampler, progress: Callable[[int], object] = lambda n: None, classifier: colours.Classifier | None = None
) -> Directions:
    """Return the directions of a generator, stored ones for the released generator, else those that `find` computes.

    Raises:
        CheckpointError: a file that comes with the program is missing or damaged.
    """
    if content := stored(sampler):
        return Directions(content["sliders"], content["colours"], classifier or colours.load(sampler.device))
    return find(sampler, progress, classifier)


def stored(sampler: Sampler) -> dict[str, Any]:
    """Return the content of the file of directions if it is of this generator; else an empty dictionary.

    Raises:
        CheckpointError: the file is damaged.
    """
    if not DIRECTIONS.is_file():
        return {}
    content = checkpoint.load(DIRECTIONS, required=("generator", "sliders", "colours"))
    return content if content["generator"] == sampler.digest else {}


def find(
    sampler: Sampler, progress: Callable[[int], object] = lambda n: None, classifier: colours.Classifier | None = None
) -> Directions:
    """Find the directions of a generator.

    `progress` is called with the number of samples in each batch, `SAMPLES` in all.

    Raises:
        CheckpointError: the network that predicts colours is missing or damaged.
    """
    sampler = sampler.of_classes({})  # directions of all its faces, not of some classes
    classifier, latents = classifier or colours.load(sampler.device), sampler.latents(range(SAMPLES)).cpu()
    seen: list[tuple[Tensor, Tensor, Tensor]] = []
    for pixels in sampler.draw(latents, progress):
        seen.append((light_and_warmth(pixels), asymmetry(pixels), classifier.extractor(pixels)))
    shades, halves, guesses = (torch.cat(some) for some in zip(*seen, strict=True))
    shown = regression(latents, torch.cat([shades, (halves @ lean(halves))[:, None]], 1))
    columns = guesses.split([len(names) - 1 for names in classifier.vocabulary], 1)
    depends = [regression(latents, logits - logits.mean(1, keepdim=True)) for logits in columns]
    sliders = {
        name: orthogonalised(shown[i], torch.cat([shown[:i], shown[i + 1 :], *depends]))
        for i, name in enumerate(SLIDERS)
    }
    recoloured = []
    for own in depends:
        held = torch.cat([shown[-1:], *(other for other in depends if other is not own)])
        recoloured.append(torch.stack([orthogonalised(way, held) for way in own]))
    return Directions(sliders, recoloured, classifier)


def light_and_warmth(pixels: np.ndarray) -> Tensor:
    """Return the mean luma, and the mean of red minus blue, of faces (N, S, S, C) uint8, scaled to [0, 1]: (N, 2)."""
    means = torch.from_numpy(pixels.mean((1, 2), dtype=np.float32) / 255).expand(-1, 3)
    return torch.stack([means @ torch.tensor([0.299, 0.587, 0.114]), means[:, 0] - means[:, 2]], 1)


def asymmetry(pixels: np.ndarray) -> Tensor:
    """Subtract the mirrored right half of faces (N, S, S, C) uint8 from the left half, in grey squares: (N, F)."""
    grey = sized(torch.from_numpy(pixels)).mean(1, keepdim=True)
    small = avg_pool2d(grey, grey.shape[-1] // SQUARES)
    return (small - small.flip(3))[..., : SQUARES // 2].flatten(1)


def lean(halves: Tensor) -> Tensor:
    """Return the first principal component of `asymmetry` (N, F), which measures how far faces lean right: (F,)."""
    first = torch.linalg.svd(halves - halves.mean(0), full_matrices=False)[2][0]
    corner = first.view(SQUARES, -1)[-3:, :3].mean()  # lower left: dark hair hangs there when a face leans right
    return first * torch.where(corner < 0, 1, -1)


def regression(latents: Tensor, measured: Tensor) -> Tensor:
    """Return the ridge regression coefficients (T, nz) of targets (N, T), standardised, on latents (N, nz)."""
    centred, scaled = latents - latents.mean(0), (measured - measured.mean(0)) / measured.std(0).clamp_min(1e-6)
    gram = centred.T @ centred + 0.01 * len(latents) * torch.eye(latents.shape[1])
    return torch.linalg.solve(gram, centred.T @ scaled).T


def orthogonalised(way: Tensor, others: Tensor) -> Tensor:
    """Project the main components of `others` (M, nz) out of the direction `way` (nz,), and normalise the result.

    If hardly anything would be left of it, the direction is returned as it is.
    """
    basis = torch.linalg.svd(others, full_matrices=False)
    held = basis.Vh[basis.S / basis.S[0].clamp_min(1e-12) > DOUBTFUL]
    left = way - held.T @ (held @ way)
    return normalize(left if left.norm() > LEAST * way.norm() else way, dim=0)
