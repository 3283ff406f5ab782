"""Recipes: the generator and the latents of a picture, stored in its PNG file so that it can be reproduced.

Recipes are validated when they are read, because a picture may come from an untrusted source.
"""

import base64
import dataclasses
import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from config import ConfigError
from gan import images
from gan.files import printable
from gan.quality.sampling import Sampler

KEYWORD = "face-recipe"  # keyword of the text chunk in a PNG
VERSION = 1
MOST = 1024  # maximum number of faces in a recipe
MOST_SEEDS = 1_000_000  # in a list
FARTHEST = 1000.0  # maximum absolute value in a latent; typical values are about 1


@dataclasses.dataclass(frozen=True)
class Recipe:
    """The latents (N, nz) of the faces in a picture, and the layout of the picture.

    Args:
        generator: the generator's digest; see `Sampler.digest`.
        latents: the input of the generator, float32, on the CPU.
        columns: columns of the grid; None for a grid that is as square as possible.
        seeds: seeds of the faces, if they have any; informative only.
    """

    generator: str
    latents: Tensor
    columns: int | None = None
    seeds: Sequence[int] = ()

    def text(self) -> dict[str, str]:
        """Return the text chunk to store in a PNG: its text by keyword."""
        numbers = self.latents.cpu().numpy().astype("<f4").tobytes()
        content = {
            "version": VERSION,
            "generator": self.generator,
            "seeds": list(self.seeds),
            "columns": self.columns,
            "nz": self.latents.shape[1],
            "latents": base64.b64encode(numbers).decode(),
        }
        return {KEYWORD: json.dumps(content)}


class Drawn(NamedTuple):
    """A generated face, (S, S, C) uint8, with the name of its file, its latent (nz,) and its seed, if any."""

    name: str
    pixels: np.ndarray
    latent: Tensor
    seed: int | None = None


def save(sampler: Sampler, faces: Sequence[Drawn], path: Path, columns: int | None = None) -> None:
    """Write a face as it is, or several as a grid, a PNG with its recipe; raise an OSError if it cannot be written."""
    pixels, known = np.stack([one.pixels for one in faces]), [one.seed for one in faces if one.seed is not None]
    latents = torch.stack([one.latent for one in faces])
    recipe = Recipe(sampler.digest, latents, columns, known if len(known) == len(faces) else ())
    images.save_picture(pixels[0] if len(faces) == 1 else images.grid(pixels, columns), path, recipe.text())


def read(path: Path) -> Recipe:
    """Read the recipe of a PNG.

    Raises:
        ConfigError: the file cannot be read, or its recipe is missing, invalid or of another version.
    """
    shown = printable(str(path))
    try:
        text = images.text_of(path, KEYWORD)
    except OSError as error:
        raise ConfigError("{}: cannot be read as a picture ({}); give a PNG of generate.py", shown, error) from error
    if text is None:
        raise ConfigError(
            "{}: has no recipe; only the PNG files that generate.py wrote have one, and programs that change "
            "pictures drop it",
            shown,
        )
    try:
        content = json.loads(text)
        if content["version"] == VERSION:
            return _checked(content)
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError) as error:
        raise ConfigError("{}: its recipe is damaged; take another copy of the picture", shown) from error
    raise ConfigError("{}: its recipe is of another version of this program; update the program", shown)


def _checked(content: Any) -> Recipe:
    """Return the recipe in parsed JSON content.

    Raises:
        ValueError, TypeError, KeyError: the content is invalid.
    """
    numbers = np.frombuffer(base64.b64decode(content["latents"], validate=True), "<f4").astype(np.float32)
    latents = torch.from_numpy(numbers.reshape(-1, int(content["nz"])))
    columns = None if content["columns"] is None else int(content["columns"])
    seeds = [int(seed) for seed in content["seeds"]]
    near = (np.abs(numbers) <= FARTHEST).all()  # false for NaN
    if not (near and 1 <= len(latents) <= MOST and columns in (None, *range(1, MOST))):
        raise ValueError("out of range")
    return Recipe(str(content["generator"]), latents, columns, seeds)


def of(sampler: Sampler, path: Path) -> Recipe:
    """Return the recipe of a PNG that this generator made.

    Raises:
        ConfigError: as in `read`, or another generator made it.
    """
    recipe = read(path)
    if recipe.generator != sampler.digest or recipe.latents.shape[1] != sampler.model.nz:
        raise ConfigError(
            "{}: was made by another generator ({}) than this one ({}); name the one that made it with --checkpoint",
            printable(str(path)),
            printable(recipe.generator[:16]),
            sampler.digest,
        )
    return recipe


def seeds(text: str) -> list[int]:
    """Return the seeds that a text lists, each once; raise a ConfigError if it is malformed, or lists too many."""
    found: list[int] = []
    for part in text.split(","):
        ends = re.fullmatch(r"\s*(\d{1,16})\s*(?:-\s*(\d{1,16})\s*)?", part)
        first, last = (0, -1) if ends is None else (int(ends[1]), int(ends[2] or ends[1]))
        if not first <= last <= 2**53:
            raise ConfigError(
                "--seed: expected a number, or numbers and ranges such as 1-64,100, up to 2**53; got {!r}", part.strip()
            )
        if len(found) + last - first >= MOST_SEEDS:
            raise ConfigError("--seed: at most {:,} faces at once; got {!r}", MOST_SEEDS, text)
        found += range(first, last + 1)
    return list(dict.fromkeys(found))


def point(sampler: Sampler, text: str, mean: float = 0.0, std: float = 1.0) -> Tensor:
    """Return the latent (1, nz) of one face, which the user gave as a seed or as a PNG file with a recipe.

    Raises:
        ConfigError: the text is neither, or the PNG shows several faces or was made by another generator.
    """
    text = text.strip()
    if re.fullmatch(r"\d{1,16}", text):
        return sampler.latents([int(text)], mean, std).cpu()
    recipe = of(sampler, Path(text))
    if len(recipe.latents) != 1:
        raise ConfigError(
            "{}: shows {} faces; give one of them by its seed, or as a single PNG, which --outdir writes",
            printable(text),
            len(recipe.latents),
        )
    return recipe.latents


def neighbours(latent: Tensor, n: int, share: float, std: float = 1.0) -> Tensor:
    """Return a latent (1, nz) and random variations of it: (n, nz), the latent itself first.

    `share`, from 0 to 1, is the amount of noise; at 1, nothing is left of the face. The noise of a variation depends
    only on its index.
    """
    kept = math.sqrt(1 - share**2)
    noise = [np.random.default_rng([i, *b"vary"]).standard_normal(latent.shape[1], np.float32) for i in range(1, n)]
    others = [kept * latent + share * std * torch.from_numpy(one) for one in noise]
    return torch.cat([latent, *others])


def mixed(sampler: Sampler, text: str, mean: float = 0.0, std: float = 1.0) -> Tensor:
    """Return the latent (1, nz) of a sum of seeds and PNG files such as `12 - 7 + 30`; see `total`.

    Raises:
        ConfigError: the text is not a sum, a face is unknown, or the terms cancel out.
    """
    signs, words = terms(text)
    return total(signs, [point(sampler, word, mean, std) for word in words], text)


def total(signs: Sequence[str], latents: list[Tensor], text: str) -> Tensor:
    """Return the signed sum of latents (1, nz), scaled to their mean norm.

    Raises:
        ConfigError: the terms cancel out; the message quotes `text`.
    """
    total = torch.stack([one if sign == "+" else -one for sign, one in zip(signs, latents, strict=True)]).sum(0)
    length, lengths = total.norm(), torch.stack(latents).norm(dim=2)
    if length <= 1e-3 * lengths.mean():
        raise ConfigError("--mix: nothing is left of {!r}; add a face that is not taken away again", text)
    return total * (lengths.mean() / length)


def terms(text: str) -> tuple[list[str], list[str]]:
    """Split a sum into its signs and its terms.

    Raises:
        ConfigError: the text is not a sum.
    """
    spaced = re.sub(r"\s*([+-])\s*", r" \1 ", text) if re.fullmatch(r"[\d\s+-]+", text) else text
    first, *others = re.split(r"\s+([+-])\s+", spaced.strip())
    words = [first, *others[1::2]]
    if not others or not all(re.match(r"[^\s+-]", word) for word in words):
        raise ConfigError(
            '--mix: expected a sum of faces, such as "12 - 7 + 30", seeds or PNG files with blanks around the '
            "signs; got {!r}",
            text,
        )
    return ["+", *others[::2]], words
