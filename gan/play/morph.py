"""Faces that turn into one another: a way through latents, walked so that what is seen changes evenly."""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from config import ConfigError
from gan import images
from gan.quality.sampling import Sampler

FILMS = (".webp", ".gif", ".mp4")  # endings of films; the last needs the package av

FPS = 25  # pictures per second of a film
FINER = 4  # as many steps are measured for each frame
EASY = 1e-4  # radians; nearer latents are connected by a straight line


def film(
    sampler: Sampler,
    points: Tensor,
    frames: int,
    path: Path,
    fps: int = FPS,
    progress: Callable[[int], object] = lambda n: None,
) -> tuple[Tensor, list[np.ndarray]]:
    """Write a film from face to face, of latents (K, nz), and back to the first, to a path that `check_film` takes.

    `progress` is called with the number of faces generated, of `(FINER + 1) * frames`.

    Returns:
        The latents (frames, nz) and the faces (S, S, C) uint8 that it shows.

    Raises:
        ConfigError: the film cannot be written.
    """
    latents, faces = evenly(sampler, points, frames, progress), list[np.ndarray]()
    for some in sampler.draw(latents):
        progress(len(some))
        faces += list(some)
    try:
        images.save_morph(faces, path, fps)
    except OSError as error:
        raise ConfigError(f"could not write the film: {error}; choose another --gen_img") from error
    return latents, faces


def frames_of(faces: int, seconds: float | None, fps: int) -> int:
    """The number of frames of a film; without a length it takes two seconds for each face."""
    return max(2, round(fps * (2.0 * faces if seconds is None else seconds)))


def check_film(path: Path) -> None:
    """Check that a film can be written in the format of the path's suffix; a ConfigError where it cannot."""
    if path.suffix.lower() not in FILMS:
        raise ConfigError(f"--gen_img: expected a film ending in .webp, .gif or .mp4; got '{path}'")
    if path.suffix.lower() == ".mp4" and not has_av():
        raise ConfigError("--gen_img: .mp4 needs the package av; pip install -r requirements-extra.txt, or give .webp")


def has_av() -> bool:
    """Whether films can be written as MP4."""
    return importlib.util.find_spec("av") is not None


def slerp(first: Tensor, last: Tensor, shares: Tensor) -> Tensor:
    """Latents (N, nz) on the arc from one to another (White 2016, "Sampling generative networks").

    Directions turn evenly, and lengths go evenly from that of the first to that of the last.

    Args:
        first: latents (N, nz), or (1, nz).
        last: the same.
        shares: where on the arc, from 0 to 1, (N,).
    """
    shares = shares[:, None]
    lengths = [one.norm(dim=1, keepdim=True).clamp_min(1e-12) for one in (first, last)]
    directions = [one / length for one, length in zip((first, last), lengths, strict=True)]
    angle = (directions[0] * directions[1]).sum(1, keepdim=True).clamp(-1, 1).acos()
    sine = angle.sin()
    arc = (((1 - shares) * angle).sin() * directions[0] + (shares * angle).sin() * directions[1]) / sine
    straight = torch.lerp(directions[0].expand_as(arc), directions[1].expand_as(arc), shares)
    length = torch.lerp(lengths[0].expand(len(arc), 1), lengths[1].expand(len(arc), 1), shares)
    return torch.where(sine > EASY, arc, straight) * length


def around(points: Tensor, places: Tensor) -> Tensor:
    """Latents (N, nz) on the round through points (K, nz) and back to the first; a place k + 0.5 is halfway after k."""
    legs = places.long() % len(points)
    return slerp(points[legs], points[(legs + 1) % len(points)], places - places.floor())


def evenly(sampler: Sampler, points: Tensor, frames: int, progress: Callable[[int], object] = lambda n: None) -> Tensor:
    """Latents (frames, nz) on the round through points (K, nz), so that each frame differs as much from the last one.

    What differs is measured between pixels, on a way of four times as many steps. `progress` is called with the number
    of faces generated for that.
    """
    fine = torch.linspace(0, len(points), FINER * frames + 1)[:-1]

    def drawn() -> Iterator[np.ndarray]:
        for faces in sampler.draw(around(points, fine)):
            progress(len(faces))
            yield from faces

    faces = drawn()
    first = next(faces)
    moved = [distance(*pair) for pair in itertools.pairwise(itertools.chain([first], faces, [first]))]
    # Where a generator draws the same face everywhere every place is as good.
    travelled = np.cumsum([0.0, *(np.array(moved) + 1e-6)])
    places = np.interp(np.linspace(0, travelled[-1], frames, endpoint=False), travelled, np.append(fine, len(points)))
    return around(points, torch.from_numpy(places).float())


def distance(one: np.ndarray, other: np.ndarray) -> float:
    """The root mean square of how far the pixels of two faces, uint8, differ."""
    return float(np.sqrt(((one.astype(np.float32) - other) ** 2).mean()))
