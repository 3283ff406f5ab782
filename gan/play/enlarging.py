"""Enlarging of generated faces: by the network that comes with the program, or by Lanczos if they are not drawings."""

import functools
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from config import ENLARGER, ConfigError
from gan import checkpoint, device, images, threads
from gan.enlarger import TIMES, Enlarger
from gan.language import text
from gan.quality import features, whole_faces
from gan.quality.features import shipped
from gan.quality.sampling import Sampler

CHOICES = (1, 2, 4)  # how many times faces can be enlarged
LEAST, MOST = 48, 256  # pixels of the faces that the network was taught with
ASKED = 16  # number of faces used to identify their kind
LOT = 16 * 96**2  # pixels of the faces that a GPU enlarges at once: 64 faces of 256 pixels would take gigabytes
DRAWN = 1.7
"""Largest median squared Mahalanobis distance from real anime faces, divided by the number of features, at which faces
count as drawings; see `whole_faces.KNOWN`. Real ones have 0.92, the released generator's 0.99, an early run's 1.00,
synthetic ones 1.32, digits 1.89, blurred pictures 6.0. Photographs of portraits, 1.25, pass for drawings."""

Progress = Callable[[int], object]


def draw(sampler: Sampler, latents: Tensor, times: int, progress: Progress = lambda n: None) -> Iterator[np.ndarray]:
    """Generate the faces of latents (N, nz) as `Sampler.draw` does, one by one, (T, T, C) uint8, `times` larger.

    `progress` is called with the number of faces just generated, batch by batch.

    Raises:
        CheckpointError: the network's file is missing or damaged.
        ConfigError: `times` is not one of `CHOICES`.
    """
    if times not in CHOICES:
        raise ConfigError("expected to enlarge 1, 2 or 4 times; got {}", times)
    for faces in sampler.draw(latents):
        large = faces if times == 1 else enlarged(faces, times, sampler.device, by_network=not why_not(sampler))
        progress(len(faces))
        yield from large


def times_for(sampler: Sampler) -> int:
    """Return how many times the network enlarges a generator's faces for people to see them well; 1 if it does not."""
    size = sampler.model.image_size
    return 1 if size > MOST or why_not(sampler) else 4 if size <= 128 else 2 if size <= 192 else 1


def why_not(sampler: Sampler) -> str:
    """Return why the network does not enlarge a generator's faces, in words; empty if it does.

    Raises:
        CheckpointError: the file that tells their kind is missing or damaged.
    """
    if sampler.digest not in _KINDS:
        plain = sampler.of_classes({})
        faces = next(plain.faces(range(ASKED)))
        _KINDS[sampler.digest] = why_no_drawing(faces, sampler.device)
    return _KINDS[sampler.digest]


_KINDS: dict[str, str] = {}  # by a generator's digest


def why_no_drawing(faces: np.ndarray, on: torch.device) -> str:
    """Return why the network should not enlarge faces (N, S, S, C) uint8, in words; empty if it should."""
    size = faces.shape[1]
    if not LEAST <= size <= MOST:
        return text("the enlarger knows faces of {} to {} pixels; these have {}").format(LEAST, MOST, size)
    whole = whole_faces.load(features.load("faces", on))
    distance = whole.distance(whole.extractor(faces)).median().item() / whole.extractor.width
    if distance > DRAWN:
        told = text(
            "these do not look like drawn faces (distance {:.1f}, drawn ones up to {}), which alone the enlarger knows"
        )
        return told.format(distance, DRAWN)
    return ""


def enlarged(faces: np.ndarray, times: int, on: torch.device, by_network: bool) -> np.ndarray:
    """Enlarge faces (N, S, S, C) uint8 2 or 4 times: (N, times S, times S, C) uint8.

    On a CPU, each by itself, which is as fast, so that a face does not depend on how many are enlarged.

    Raises:
        CheckpointError: the network's file is missing or damaged.
    """
    if not by_network:
        return np.stack([images.lanczos(face, times) for face in faces])
    network, made = load(on), list[np.ndarray]()
    precision = "bf16" if device.bf16_for_convolutions(on) else "fp32"
    batch = 1 if on.type == "cpu" else max(1, LOT // faces.shape[1] ** 2)
    for start in range(0, len(faces), batch):
        threads.adapt()
        given = images.to_tensor(torch.from_numpy(np.array(faces[start : start + batch])).to(on))
        with torch.no_grad(), device.autocast(on, precision):
            made.append(images.to_pixels(at(network, given, times)))
    return np.concatenate(made)


def at(network: Enlarger, faces: Tensor, times: int) -> Tensor:
    """Enlarge faces (N, C, S, S) in [-1, 1], colour or grey, 2 or 4 times: (N, C, times S, times S)."""
    made = network(faces.expand(-1, 3, -1, -1)).clamp(-1, 1)
    if faces.shape[1] == 1:
        made = made.mean(1, keepdim=True)
    return made if times == TIMES else torch.nn.functional.avg_pool2d(made, TIMES // times)


@functools.cache
def load(on: torch.device) -> Enlarger:
    """Load the network that comes with the program, frozen and in eval mode.

    Raises:
        CheckpointError: its file is missing or damaged.
    """
    network = Enlarger()
    checkpoint.load_weights(network, shipped(ENLARGER, "enlarger")["enlarger"], "enlarger", ENLARGER)
    return device.place(network, on).eval().requires_grad_(False)
