"""Which faces to learn from: those that come out well.

Among pictures from anywhere are scans in one colour, faces under hair, and pictures of no face at all. A generator that
has learned its faces well draws those too. DeVries et al. 2020, "Instance selection for GANs", leave out the faces to
which a Gaussian, fitted to the features of all, gives the least likelihood. Of anime faces those stay out that look
least whole: turned away, eyes closed, in the dark; minutes of training smear them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from gan.data.faces import Pack
from gan.latent import stream
from gan.quality import features, metrics
from gan.quality.features import Extractor
from gan.quality.whole_faces import WholeFaces

WHOLE = 0.6  # share of the faces to learn from, where nobody says: of anime faces, the most whole
TYPICAL = 0.8  # the same of others, the most typical
FITTED = 20_000  # faces that the Gaussian is fitted to, at most
CHUNK = 2000  # faces whose features are in memory at a time


def typical(
    pack: Pack,
    training: np.ndarray,
    held_out: np.ndarray,
    share: float,
    extractor: Extractor,
    done: Callable[[int], object] = lambda n: None,
    whole: WholeFaces | None = None,
) -> np.ndarray:
    """Find the best of the faces to train on, and of those held out: the most whole, else the most typical.

    Args:
        pack: the faces.
        training: indices of those to train on, (n,).
        held_out: indices of those held out.
        share: of each, from 0 to 1.
        extractor: which features; they are kept beside the pack.
        done: called with a number of faces whenever so many more have been looked at.
        whole: tells how whole faces look, where it knows such faces; None chooses the most typical.

    Returns:
        Whether each face of the pack is one of them, (N,), bool.
    """
    for lot in lots(np.concatenate([training, held_out])):
        features.of_pack(extractor, pack, lot, done)  # known from here on
    if whole is None:
        known = np.sort(stream(0, 0, "typical").permutation(training)[:FITTED])
        far = fitted(pack, known, extractor)

        def fault(lot: np.ndarray) -> np.ndarray:
            return metrics.left_out(far(lot), np.where(np.isin(lot, known), len(known), np.inf))

    else:

        def fault(lot: np.ndarray) -> np.ndarray:
            return -whole.scores(features.of_pack(extractor, pack, lot))

    chosen = np.zeros(len(pack.pixels), bool)
    for some in (training, held_out):
        faults, at = np.empty(len(some)), 0  # in one place from the start, so that what is freed stays in one piece
        for lot in lots(some):
            faults[at : at + len(lot)] = fault(lot)
            at += len(lot)
        chosen[some[np.argsort(faults, kind="stable")[: round(share * len(some))]]] = True
    return chosen


def unpacked(stored: Tensor | None, pack: Pack) -> np.ndarray | None:
    """Whether each face of a pack is chosen, (N,) bool, from what a checkpoint keeps, packed; None where nothing."""
    return None if stored is None else np.unpackbits(stored.cpu().numpy(), count=len(pack.pixels)).astype(bool)


def fitted(pack: Pack, some: np.ndarray, extractor: Extractor) -> Callable[[np.ndarray], np.ndarray]:
    """Fit a Gaussian to the features of some faces; what comes back gives any faces' distance from its middle.

    The squared Mahalanobis distance: the greater, the less likely.
    """
    total, square = torch.zeros(extractor.width).double(), torch.zeros(extractor.width, extractor.width).double()
    origin = features.of_pack(extractor, pack, some[:1]).double()  # near them all, so that squares stay small
    for lot in lots(some):
        known = features.of_pack(extractor, pack, lot).double() - origin
        total, square = total + known.sum(0), square + known.T @ known
    mean = total / len(some)
    covariance = square / len(some) - mean[:, None] * mean
    distance = metrics.mahalanobis(mean + origin[0], covariance)
    return lambda indices: distance(features.of_pack(extractor, pack, indices)).numpy()


def lots(indices: np.ndarray) -> list[np.ndarray]:
    """Indices, a few at a time; at least one lot."""
    return np.array_split(indices, -(-len(indices) // CHUNK) or 1)
