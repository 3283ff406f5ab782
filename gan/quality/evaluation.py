"""Measurement of sets of faces by features and metrics, for evaluate.py and during training."""

import dataclasses
import functools
import math
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from timeit import timeit
from typing import Any

import numpy as np
import torch
from torch import Tensor

from config import REFERENCE, Metric
from gan import checkpoint
from gan.data.faces import Pack
from gan.language import text
from gan.latent import stream
from gan.quality import features, metrics
from gan.quality.features import Extractor
from gan.quality.sampling import BATCH, Sampler
from gan.watching.curves import ALIKE, BY_DAMAGE, DAMAGE_NOISE, DAMAGE_OF_FACES

LEAST = 50  # minimum number of faces of each kind for a measurement
MOST_FACES = 2000  # maximum number of samples, and of real faces, measured during training
FIRST_SEED = 2**32  # seed of the first of those samples; `evaluate.py` uses other seeds, since these selected best.pt
HALVES = 10  # number of random halves of the samples that give a metric's deviation
DAMAGE_FACES = 2048  # maximum number of faces of a set checked for damage; the error of its mean is then 0.0003
CHUNK = 64  # number of faces read from a pack at a time
COPY_SHARE = (1, 5, 50)  # percentiles of the distance to the nearest training face
COPY_RATIO = 0.5  # a sample is too near a training face below this share of a new face's distance


@dataclasses.dataclass(frozen=True)
class FaceSet:
    """The data that the metrics need of a set of faces, see `metrics` and `gan.quality.damage`."""

    features: Tensor  # (N, F)
    damage: Tensor  # share of each face that looks damaged, (M,)


def face_set(
    batches: Iterable[np.ndarray],
    extract: Callable[[np.ndarray], Tensor],
    damage: Callable[[np.ndarray], Tensor],
    done: Callable[[int], object] = lambda n: None,
) -> FaceSet:
    """Measure a set of faces from batches of their pixels (n, S, S, C) uint8.

    `extract` returns features, and `damage` the share of each face that looks damaged. `done` is called with the size
    of each batch.
    """
    found, damaged, seen = list[Tensor](), list[Tensor](), 0
    for batch in batches:
        found.append(extract(batch))
        damaged.append(damage(batch[: max(0, DAMAGE_FACES - seen)]))
        seen += len(batch)
        done(len(batch))
    return FaceSet(torch.cat(found), torch.cat(damaged))


@dataclasses.dataclass
class RealStatistics:
    """Statistics of real faces, computed once and shared by all comparisons."""

    features: Tensor  # (N, F)

    @functools.cached_property
    def gaussian(self) -> metrics.Gaussian:
        """Return the Gaussian fitted to the features."""
        return metrics.gaussian(self.features)

    @functools.cached_property
    def mean_kernel(self) -> float:
        """Return the mean kernel over all pairs of two different faces."""
        return metrics.mean_kernel(self.features)

    @functools.cached_property
    def radii(self) -> Tensor:
        """Return the distance from each face to its fifth nearest neighbour, (N,)."""
        return metrics.radii(self.features)

    def measure(self, fakes: FaceSet) -> dict[str, float]:
        """Compute all metrics of `fakes`, by their names in METRICS."""
        return {**self.measure_features(fakes.features), "damage_x100": 100 * fakes.damage.mean().item()}

    def measure_features(self, fakes: Tensor) -> dict[str, float]:
        """Compute the metrics that compare features (M, F)."""
        return {
            "fd": metrics.frechet_distance(self.gaussian, metrics.gaussian(fakes)),
            "kid_x1000": 1000 * metrics.kernel_distance(self.features, fakes, self.mean_kernel),
            **metrics.manifold_metrics(self.features, fakes, real_radii=self.radii),
        }


def deviations(reals: RealStatistics, fakes: FaceSet, done: Callable[[int], object]) -> dict[str, float]:
    """Estimate the standard error of each metric over the choice of samples, with the real faces fixed.

    It is the deviation over random halves, since a half drawn without replacement varies as much as the whole set does
    over new samples. Coverage depends on the number of samples, so its error comes from `metrics.coverage_deviation`.
    `done` is called after each half.
    """
    measured = list[dict[str, float]]()
    for i in range(HALVES):
        random = np.random.default_rng(i)
        features, damage = (
            some[torch.from_numpy(random.permutation(len(some))[: len(some) // 2])]
            for some in (fakes.features, fakes.damage)
        )
        measured.append(reals.measure(FaceSet(features, damage)))
        done(1)
    spread = {name: float(np.std([values[name] for values in measured], ddof=1)) for name in measured[0]}
    return spread | {"coverage": metrics.coverage_deviation(reals.features, fakes.features, reals.radii)}


class Evaluator:
    """Measures the generator of a run between steps, always with the same latents and the same real faces.

    The real faces are held-out faces and, if these are too few, some training faces; both are given as indices into the
    pack. The sampler generates in the precision of the training, and its BatchNorm statistics must fit the weights.
    `metric` selects the best checkpoint; `best` has the best metrics so far.
    """

    def __init__(
        self,
        pack: Pack,
        training: np.ndarray,
        held_out: np.ndarray,
        extractor: Extractor,
        sampler: Sampler,
        metric: Metric,
        best: Mapping[str, float] | None = None,
    ) -> None:
        random = stream(0, 0, "judge")  # renaming this stream would change the faces of resumed runs
        order = np.concatenate([random.permutation(held_out), random.permutation(training)])
        self.pack, self.chosen, self.extractor, self.sampler = pack, order[:MOST_FACES], extractor, sampler
        self.metric, self.best, self.seconds = metric, best, math.nan

    @functools.cached_property
    def reals(self) -> RealStatistics:
        """Return the statistics of the real faces."""
        return RealStatistics(of_pack(self.pack, self.chosen, self.extractor, damage=False).features)

    def cost(self) -> float:
        """Return the seconds that the next measurement will take: those of the last one, or at first an estimate."""
        if math.isnan(self.seconds):
            faces = self.pack.pixels[self.chosen[: features.BATCH]]
            networks = self.extractor, self.extractor.damage
            first = slice(1 if self.extractor.device.type == "cpu" else len(faces))  # a GPU prepares for each shape
            for network in networks:
                network(faces[first])  # the first call is slower
            extracting, finding = (timeit(functools.partial(network, faces), number=1) for network in networks)
            measuring = (2 * extracting + finding) / len(faces)  # real faces as well, but not their damage
            list(self.sampler.faces([0]))
            generating = timeit(lambda: list(self.sampler.faces(range(BATCH))), number=1) / BATCH
            self.seconds = (measuring + generating) * len(self.chosen)
        return self.seconds

    def measure(self) -> dict[str, float]:
        """Measure the generator in its current state, without changing it."""
        reals, since = self.reals, time.perf_counter()  # not timed, since the reals are measured only once
        faces = list(self.sampler.faces(range(FIRST_SEED, FIRST_SEED + len(self.chosen))))
        found = reals.measure(face_set(faces, self.extractor, self.extractor.damage))
        self.seconds = time.perf_counter() - since
        return found

    def is_best(self, found: Mapping[str, float], fds: Iterable[float] = ()) -> bool:
        """Return whether metrics are better than the best so far, and if so, store them as the best.

        Damage cannot distinguish many copies of one good face from varied faces. So it decides only between states
        whose FD is close to the lowest so far; `fds` has the FDs of the run. Less damage than real faces
        have is no better than theirs; FD decides then.
        """
        best = self.best
        if not all(math.isfinite(found[name]) for name in (self.metric, "fd")):
            return False
        if best is None:
            better = True
        elif self.metric == "fd":
            better = found["fd"] < best["fd"]
        else:
            least, limit = DAMAGE_OF_FACES + DAMAGE_NOISE, ALIKE * min(found["fd"], best["fd"], *fds)
            ours, theirs = ((max(one[BY_DAMAGE], least), one["fd"]) for one in (found, best))
            better = found["fd"] <= limit and (ours < theirs or best["fd"] > limit)
        if better:
            self.best = dict(found)
        return better


@dataclasses.dataclass(frozen=True)
class Copying:
    """The distances from samples to the training faces, compared with those from new faces.

    New faces that nearly equal a training face, such as other versions of the same picture, are left out.
    """

    ratios: Mapping[int, float]  # percentiles of the samples' distances, divided by those of new faces
    held_out: int  # number of new faces, without the twins; 0: training faces and their nearest other one
    twins: int  # number of new faces that were left out
    nearest: Tensor  # index of each sample's nearest training face, (N,)
    distances: Tensor  # distance to it, (N,)

    @property
    def against(self) -> str:
        """Describe the new faces."""
        more = text(", {:,} left out that nearly equal one").format(self.twins) if self.twins else ""
        if not self.held_out:
            return text("training faces and their nearest other one") + more
        return text("{:,} held-out faces").format(self.held_out) + more

    @property
    def copied(self) -> bool:
        """Return whether at least one sample in a hundred is far nearer to a training face than new faces are."""
        return min(self.ratios.values()) < COPY_RATIO


def copying(fakes: Tensor, training: Tensor, held_out: Tensor) -> Copying:
    """Look for copies of training faces among samples. All faces are given by their features, (N, F).

    If fewer than 100 faces are held out, the distances from training faces to their nearest other one replace theirs.
    """
    distances, indices = metrics.nearest(fakes, training)
    if len(held_out) >= 100:
        usual, number = metrics.nearest(held_out, training)[0], len(held_out)
    else:
        some = torch.from_numpy(np.random.default_rng(0).permutation(len(training))[: len(fakes)])
        number = 0
        usual = metrics.radii(training[some], 1, training) if len(training) > 1 else torch.full((1,), 1e9)
    new = usual >= COPY_RATIO * usual.median()
    twins, usual, shares = int((~new).sum()), usual[new], torch.tensor(COPY_SHARE, dtype=distances.dtype) / 100
    ratios = distances.quantile(shares) / usual.quantile(shares).clamp(min=1e-9)
    return Copying(dict(zip(COPY_SHARE, ratios.tolist(), strict=True)), number, twins, indices, distances)


def of_pack(
    pack: Pack,
    indices: np.ndarray,
    extractor: Extractor,
    done: Callable[[int], object] = lambda n: None,
    damage: bool = True,
) -> FaceSet:
    """Measure some faces of a pack, with features cached beside the pack. Without `damage`, damage is set to 0."""
    known = features.of_pack(extractor, pack, indices, done)
    chunks = [indices[i : i + CHUNK] for i in range(0, len(indices), CHUNK)]
    wanted, look = iter(known.split(CHUNK)), extractor.damage if damage else lambda pixels: torch.zeros(len(pixels))
    return face_set((pack.pixels[chunk] for chunk in chunks), lambda _: next(wanted), look)


def choose(pack: Pack, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Choose two disjoint random sets of `n` different faces of a pack each, or of half of them; returns indices."""
    order = stream(seed, 0, "evaluation").permutation(len(pack.pixels))
    order = order[np.sort(np.unique(pack.hashes[order], return_index=True)[1])]
    n = min(n, len(order) // 2)
    return order[:n], order[n : 2 * n]


@dataclasses.dataclass(frozen=True)
class Reference:
    """The real faces that come with the program, as statistics without pictures."""

    reals: RealStatistics  # statistics of the first set
    other: Tensor  # features of the second set, for the floor, (N, F)
    floor: Mapping[str, float]  # metrics of the whole second set
    n: int  # number of faces per set in the file
    extractor: str  # name of the extractor that computed the features
    about: str  # description of the faces


def load_reference(n: int, path: Path = REFERENCE) -> Reference:
    """Load the first `n` faces of each set of the reference, or as many as there are.

    Raises:
        CheckpointError: the file cannot be read.
    """
    content: dict[str, Any] = checkpoint.load(path, required=("reference",))["reference"]
    both = content["features"].float() * content["step"] + content["least"]
    first, second = both.split(content["lots"])
    return Reference(
        RealStatistics(first[:n]), second[:n], content["floor"], len(second), content["extractor"], content["about"]
    )
