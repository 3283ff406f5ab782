"""Films: morphs between faces, on a path through latent space at an even pace, and time-lapses of runs."""

import contextlib
import importlib.util
import itertools
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from config import CheckpointError, ConfigError
from gan import images
from gan.device import choose_device
from gan.language import text
from gan.play import enlarging
from gan.quality.sampling import Sampler

FILMS = (".webp", ".gif", ".mp4")  # file suffixes of films; .mp4 needs the package av

FPS = 25  # frames per second of a film
MOST_SECONDS = 30  # of a film whose frames are held in memory
FINER = 4  # steps measured for each frame
EASY = 1e-4  # sine of the angle between latents, below which they are interpolated linearly


def film(
    sampler: Sampler,
    points: Tensor,
    frames: int,
    path: Path,
    progress: Callable[[int], object] = lambda n: None,
    times: int = 1,
) -> tuple[Tensor, list[np.ndarray]]:
    """Write a film that morphs through the faces of latents `points` (K, nz) and back to the first.

    `path` must pass `check_film`. Faces are enlarged as `enlarging.draw` does. `progress` is called with the number of
    faces just generated, `(FINER + 1) * frames` in all.

    Returns:
        The latents (frames, nz) and the faces (T, T, C) uint8 of the frames.

    Raises:
        ConfigError: the film cannot be written.
    """
    latents = evenly(sampler, points, frames, progress)
    faces = list(enlarging.draw(sampler, latents, times, progress))
    try:
        images.save_morph(faces, path, FPS)
    except OSError as error:
        raise ConfigError("could not write the film: {}; choose another --gen_img", error) from error
    return latents, faces


def timelapse(run: Path, path: Path, times: int, gpu: bool | None, progress: Callable[[int], object]) -> int:
    """Write a film of the preview grids of a run, given its folder, `times` larger; return the number of pictures.

    `progress` is called with the number of faces just enlarged.

    Raises:
        CheckpointError: there are too few preview grids, or they cannot be enlarged.
        ConfigError: the film cannot be written.
    """
    samples, size = run / "samples", 96
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):  # then it is this folder
        known = json.loads((run / "config.json").read_text(encoding="utf-8"))["config"]
        samples, size = Path(known["save_path"] or samples), int(known.get("image_size", size))
    frames = list[Path]()
    with contextlib.suppress(OSError):
        frames = sorted(samples.glob(images.PREVIEWS))
    if len(frames) < 2:
        raise CheckpointError(
            "{}: {} preview grids in {}, but a film needs two; give the folder of a run that was trained with "
            "--plot_every above 0",
            run,
            len(frames),
            samples,
        )
    check_film(path)
    try:
        return images.save_film(frames, path, times=times, enlarge=of_grids(frames[-1], size, times, gpu, progress))
    except OSError as error:
        raise ConfigError(
            "could not make the film of {}: {}; check that the grids in {} are whole, or give another place for "
            "the film: --gen_img",
            run,
            error,
            samples,
        ) from error


def of_grids(
    last: Path, size: int, times: int, gpu: bool | None, progress: Callable[[int], object]
) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that makes grids of faces of a size `times` larger; the last grid decides how.

    Raises:
        CheckpointError: the last grid is not one of such faces, or a file that comes with the program is missing.
        OSError: the last grid cannot be read.
    """
    if times == 1:
        return lambda sheet: sheet
    on, sheet = choose_device(gpu), images.load_picture(last)
    if any((side - images.GAP) % (size + images.GAP) for side in sheet.shape[:2]):
        raise CheckpointError("{}: not a grid of faces of {} pixels, as the run's are; leave out --enlarge", last, size)
    why = enlarging.why_no_drawing(images.cells(sheet, size), on)
    if why:
        print(text("{}: enlarged by Lanczos instead").format(why))

    def enlarge(sheet: np.ndarray) -> np.ndarray:
        large = enlarging.enlarged(images.cells(sheet, size), times, on, by_network=not why)
        progress(len(large))
        return images.grid(large, sheet.shape[1] // (size + images.GAP))

    return enlarge


def frames_of(faces: int, seconds: float | None) -> int:
    """Return the number of frames of a film, at least 2; if `seconds` is None, of two seconds per face, up to 30."""
    return max(2, round(FPS * (min(2.0 * faces, MOST_SECONDS) if seconds is None else seconds)))


def check_film(path: Path) -> None:
    """Check that a film can be written in the format of the path's suffix.

    Raises:
        ConfigError: it cannot.
    """
    if path.suffix.lower() not in FILMS:
        raise ConfigError("--gen_img: expected a film ending in .webp, .gif or .mp4; got '{}'", path)
    if path.suffix.lower() == ".mp4" and not has_av():
        raise ConfigError("--gen_img: .mp4 needs the package av; pip install -r requirements-extra.txt, or give .webp")


def has_av() -> bool:
    """Return whether films can be written as MP4."""
    return importlib.util.find_spec("av") is not None


def slerp(first: Tensor, last: Tensor, shares: Tensor) -> Tensor:
    """Interpolate spherically between latents (White 2016, "Sampling generative networks"): (N, nz).

    Directions are interpolated along the arc, norms linearly.

    Args:
        first: latents at the start, (N, nz) or (1, nz).
        last: latents at the end, the same shape.
        shares: positions on the arc, from 0 to 1, (N,).
    """
    shares, start, end = shares[:, None], normalize(first, dim=1), normalize(last, dim=1)
    angle = (start * end).sum(1, keepdim=True).clamp(-1, 1).acos()
    sine = angle.sin()
    arc = (((1 - shares) * angle).sin() * start + (shares * angle).sin() * end) / sine
    length = torch.lerp(first.norm(dim=1, keepdim=True), last.norm(dim=1, keepdim=True), shares)
    return torch.where(sine > EASY, arc, torch.lerp(start, end, shares)) * length


def around(points: Tensor, positions: Tensor) -> Tensor:
    """Return latents (N, nz) on the closed path through points (K, nz).

    `positions` (N,) are positions on it; k + 0.5 is halfway between point k and the next.
    """
    legs = positions.long() % len(points)
    return slerp(points[legs], points[(legs + 1) % len(points)], positions - positions.floor())


def evenly(sampler: Sampler, points: Tensor, frames: int, progress: Callable[[int], object] = lambda n: None) -> Tensor:
    """Return latents (frames, nz) on the closed path through points (K, nz) that differ evenly from frame to frame.

    Differences are measured between the pixels of `FINER` times as many faces along the path. `progress` is called
    with the number of these faces just generated.
    """
    fine = torch.linspace(0, len(points), FINER * frames + 1)[:-1]
    faces = itertools.chain.from_iterable(sampler.draw(around(points, fine), progress))
    first = next(faces)
    moved = [distance(*pair) for pair in itertools.pairwise(itertools.chain([first], faces, [first]))]
    # The small constant keeps the path increasing where consecutive faces are identical.
    travelled = np.cumsum([0.0, *(np.array(moved) + 1e-6)])
    positions = np.interp(
        np.linspace(0, travelled[-1], frames, endpoint=False), travelled, np.append(fine, len(points))
    )
    return around(points, torch.from_numpy(positions).float())


def distance(one: np.ndarray, other: np.ndarray) -> float:
    """Return the root mean square difference between the pixels of two uint8 faces."""
    return float(np.sqrt(((one.astype(np.float32) - other) ** 2).mean()))
