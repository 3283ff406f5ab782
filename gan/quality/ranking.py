"""The choice of the best of many samples."""

import itertools
from collections.abc import Callable, Sequence

import torch

from gan.images import to_tensor
from gan.language import text
from gan.quality import eyes, features, whole_faces
from gan.quality.features import Extractor
from gan.quality.sampling import Sampler


def best(
    sampler: Sampler,
    seeds: Sequence[int],
    keep: int,
    mean: float = 0.0,
    std: float = 1.0,
    progress: Callable[[int], object] = lambda n: None,
) -> tuple[list[int], str]:
    """Choose the best samples: anime faces by how whole their eyes look, others and the book's by the discriminator.

    Returns:
        The seeds, best first, and a description of the choice.
    """
    if sampler.origin or sampler.images_seen:  # false for the book's weights
        whole = whole_faces.load(features.load("faces", sampler.device))
        first = list(sampler.faces(seeds[: whole_faces.ASKED], mean, std))
        if whole.knows(torch.cat([whole.extractor(faces) for faces in first])):
            broken, scores = eyes.load(sampler.device), list[float]()
            extractor = Extractor("eyes", 1, lambda pixels: broken(to_tensor(pixels))[:, None], sampler.device)
            for faces in itertools.chain(first, sampler.faces(seeds[whole_faces.ASKED :], mean, std)):
                scores += extractor(faces)[:, 0].tolist()
                progress(len(faces))
            chosen = sorted(zip(scores, seeds, strict=True))[:keep]
            return [seed for _, seed in chosen], text("those whose eyes look most whole")
    return sampler.best(seeds, keep, mean, std, progress), text("the best as far as the discriminator can tell")
