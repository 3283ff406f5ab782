"""Instance selection (DeVries et al. 2020): training without the faces from which a generator learns least.

Collected pictures include scans in one colour, faces under hair, and pictures without a face, and a generator learns to
generate those too. The paper leaves out the faces that are least likely under a Gaussian fitted to the features of all
faces. Of anime faces, this program instead leaves out those that look least whole (turned away, eyes closed, in the
dark), because minutes of training only smear them.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from gan.data.faces import Pack
from gan.latent import stream
from gan.quality import features, metrics
from gan.quality.features import Extractor
from gan.quality.whole_faces import WholeFaces

WHOLE = 0.6  # default share of anime faces to select: the most whole ones
TYPICAL = 0.8  # default share of other faces to select: the most typical ones
LEAST = 2000  # number of faces below which none is left out
FITTED = 20_000  # maximum number of faces that the Gaussian is fitted to
CHUNK = 2000  # number of faces whose features are in memory at a time


def select_instances(
    pack: Pack,
    training: np.ndarray,
    held_out: np.ndarray,
    share: float,
    extractor: Extractor,
    done: Callable[[int], object] = lambda n: None,
    whole: WholeFaces | None = None,
) -> np.ndarray:
    """Select a share of the training and of the held-out faces: the most whole or, without `whole`, the most typical.

    Args:
        pack: the faces.
        training: indices of the training faces, (n,).
        held_out: indices of the held-out faces.
        share: share of each to select, from 0 to 1.
        extractor: computes the features, which are cached beside the pack.
        done: called with the number of further faces whose features are known.
        whole: scores how whole faces look; None selects the most typical ones.

    Returns:
        A mask of the pack's faces, (N,) bool, True for selected ones.
    """
    for chunk in chunks(np.concatenate([training, held_out])):
        features.of_pack(extractor, pack, chunk, done)  # cached from here on
    if whole is None:
        fit = np.sort(stream(0, 0, "typical").permutation(training)[:FITTED])
        known = features.of_pack(extractor, pack, fit).double()
        distance = metrics.mahalanobis(known.mean(0), torch.cov(known.T, correction=0))

        def fault(chunk: np.ndarray) -> np.ndarray:
            far = distance(features.of_pack(extractor, pack, chunk)).numpy()
            return metrics.left_out(far, np.where(np.isin(chunk, fit), len(fit), np.inf))

    else:

        def fault(chunk: np.ndarray) -> np.ndarray:
            return -whole.scores(features.of_pack(extractor, pack, chunk))

    faults, chosen = np.empty(len(pack.pixels)), np.zeros(len(pack.pixels), bool)  # at once: no fragmented memory
    for some in (training, held_out):
        for chunk in chunks(some):
            faults[chunk] = fault(chunk)
        chosen[some[np.argsort(faults[some], kind="stable")[: round(share * len(some))]]] = True
    return chosen


def unpacked(stored: Tensor | None, pack: Pack) -> np.ndarray | None:
    """Unpack a checkpoint's bits into a mask of the selected faces of a pack, (N,) bool; None stays None."""
    return None if stored is None else np.unpackbits(stored.cpu().numpy(), count=len(pack.pixels)).astype(bool)


def chunks(indices: np.ndarray) -> list[np.ndarray]:
    """Split indices into at least one chunk of up to CHUNK."""
    return np.array_split(indices, -(-len(indices) // CHUNK) or 1)
