"""The quality of a set of faces: features and metrics over whole sets, for evaluate.py and during training."""

from __future__ import annotations

import dataclasses
import functools
import math
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from config import REFERENCE
from gan import checkpoint
from gan.data.faces import Pack
from gan.encoder import SIZE
from gan.images import to_tensor
from gan.latent import stream
from gan.quality import features, metrics
from gan.quality.features import Extractor
from gan.quality.sampling import BATCH, Sampler
from gan.watching.curves import ALIKE, BY_DAMAGE

METRICS = {
    "damage_x100": ("damage x100", "lower", 2),
    "fd": ("FD", "lower", 2),
    "kid_x1000": ("KID x1000", "lower", 2),
    "precision": ("precision", "higher", 3),
    "recall": ("recall", "higher", 3),
    "density": ("density", "higher", 3),
    "coverage": ("coverage", "higher", 3),
    "swd_x1000": ("SWD x1000", "lower", 1),
    "spectrum_db": ("spectrum, dB off", "lower", 2),
}
"""Each metric's name for people, its better direction, and the decimals shown."""

LEAST = 50
"""Least faces of each kind for a measurement."""

MOST_FACES = 2000
"""Samples, and real faces, of an evaluation during training."""

FIRST_SEED = 2**32
"""Seed of the first of those samples. `evaluate.py` uses others, since these chose best.pt."""

HALVES = 10
"""Number of random halves of the samples that give a metric's deviation."""

TEXTURE_FACES, PATCHES = 4096, 16_384
"""Most faces of a set for texture and spectrum, and patches of each level taken from them."""

DAMAGE_FACES = 2048
"""Most faces of a set in which damage is looked for; its mean is then known to 0.0003."""

CHUNK = 64
"""Most faces for texture and spectrum at a time."""

COPY_SHARE, COPY_RATIO = (1, 5, 50), 0.5
"""Percentiles of the distance to the nearest training face; and the share of a new face's distance that is too near."""


@dataclasses.dataclass(frozen=True)
class FaceSet:
    """A set of faces as the metrics need it.

    Args:
        features: (N, F).
        patches: of each level of the Laplacian pyramid, by its size in pixels: (P, C, 7, 7), in the order of the faces.
        spectra: mean radial spectra of the faces, some at a time, (K, R), see `metrics.radial_spectrum`.
        counts: of how many faces each is the mean, (K,).
        damage: how much of each face looks damaged, (M,), see `gan.quality.damage`.
    """

    features: Tensor
    patches: Mapping[int, Tensor]
    spectra: Tensor
    counts: Tensor
    damage: Tensor

    @property
    def spectrum(self) -> Tensor:
        """The mean radial spectrum of all faces that were looked at, (R,)."""
        return mean_spectrum(self.spectra, self.counts)


def face_set(
    batches: Iterable[np.ndarray],
    extract: Callable[[np.ndarray], Tensor],
    damage: Callable[[np.ndarray], Tensor],
    faces: int,
) -> FaceSet:
    """Measure a set of faces, some at a time.

    Args:
        batches: pixels (n, S, S, C) uint8, `faces` of them in all.
        extract: pixels -> features.
        damage: pixels -> how much of each looks damaged.
        faces: number of faces.
    """
    found, damaged = list[Tensor](), list[Tensor]()
    levels: dict[int, list[Tensor]] = {}
    spectra: list[Tensor] = []
    counts: list[int] = []
    looked, each = min(faces, TEXTURE_FACES), max(1, PATCHES // min(faces, TEXTURE_FACES))
    chunk = max(1, min(CHUNK, faces // 20))  # some of them even of few faces, for halves to be made of
    random, seen = torch.Generator().manual_seed(0), 0
    for batch in batches:
        found.append(extract(batch))
        some = batch[: max(0, looked - seen)]
        damaged.append(damage(batch[: max(0, min(faces, DAMAGE_FACES) - seen)]))
        for part in np.array_split(some, math.ceil(len(some) / chunk)) if len(some) else ():  # equal, for the halves
            images = to_tensor(torch.from_numpy(np.array(part))).contiguous()
            spectra.append(metrics.radial_spectrum(images))
            counts.append(len(images))
            for size, level in metrics.laplacian_pyramid(images).items():
                levels.setdefault(size, []).append(metrics.patches(level, each, random))
        seen += len(batch)
    patches = {size: torch.cat(parts) for size, parts in levels.items()}
    return FaceSet(torch.cat(found), patches, torch.stack(spectra), torch.tensor(counts), torch.cat(damaged))


class RealStatistics:
    """Statistics of real faces, computed once and shared by all comparisons.

    Args:
        features: (N, F).
        textures: of each level, by its size in pixels.
        spectrum: (R,).
    """

    def __init__(self, features: Tensor, textures: Mapping[int, metrics.Texture], spectrum: Tensor) -> None:
        self.features, self.textures, self.spectrum = features, textures, spectrum

    @classmethod
    def of(cls, faces: FaceSet) -> RealStatistics:
        """Take a set of faces as the real ones."""
        textures = {size: metrics.texture(patches) for size, patches in faces.patches.items()}
        return cls(faces.features, textures, faces.spectrum)

    @functools.cached_property
    def gaussian(self) -> metrics.Gaussian:
        """The Gaussian fitted to the features."""
        return metrics.gaussian(self.features)

    @functools.cached_property
    def mean_kernel(self) -> float:
        """Mean kernel of all pairs of two different faces."""
        return metrics.mean_kernel(self.features)

    @functools.cached_property
    def radii(self) -> Tensor:
        """Distance of each face to its fifth neighbour, (N,)."""
        return metrics.radii(self.features)

    def measure(self, fakes: FaceSet) -> dict[str, float]:
        """Every metric of `fakes`, by its name in METRICS."""
        found = self.measure_features(fakes.features) | self.measure_texture(fakes.patches, fakes.spectrum)
        return with_damage(found, fakes.damage)

    def measure_features(self, fakes: Tensor) -> dict[str, float]:
        """The metrics that compare features (M, F)."""
        return {
            "fd": metrics.frechet_distance(self.gaussian, metrics.gaussian(fakes)),
            "kid_x1000": 1000 * metrics.kernel_distance(self.features, fakes, self.mean_kernel),
            **metrics.manifold_metrics(self.features, fakes, real_radii=self.radii),
        }

    def measure_texture(self, patches: Mapping[int, Tensor], spectrum: Tensor) -> dict[str, float]:
        """The metrics that compare pixels: the mean over the levels, and the mean distance of spectra in decibels."""
        found = [metrics.sliced_wasserstein(texture, patches[size]) for size, texture in self.textures.items()]
        return {
            "swd_x1000": 1000 * sum(found) / len(found),
            "spectrum_db": spectrum_distance(self.spectrum, spectrum),
        }


def with_damage(found: Mapping[str, float], damage: Tensor) -> dict[str, float]:
    """Metrics, and how much of faces looks damaged, (M,), in the mean, %."""
    return {**found, "damage_x100": 100 * damage.mean().item()}


def mean_spectrum(spectra: Tensor, counts: Tensor) -> Tensor:
    """The mean (R,) of spectra (K, R) that are means of `counts` faces, (K,)."""
    return (spectra * counts[:, None]).sum(0) / counts.sum()


def spectrum_distance(real: Tensor, fake: Tensor) -> float:
    """Mean distance of two radial spectra (R,) over all frequencies but 0, decibels."""
    return (10 * (fake[1:] / real[1:].clamp(min=1e-12)).clamp(min=1e-12).log10()).abs().mean().item()


def deviations(
    reals: RealStatistics, fakes: FaceSet, done: Callable[[int], object] = lambda n: None
) -> dict[str, float]:
    """Standard error of each metric over the choice of samples, the real faces fixed.

    The deviation over random halves: a half drawn without replacement varies as much as the whole over new samples.
    Coverage depends on the number of samples, see `metrics.coverage_deviation`.

    Args:
        reals: the real faces.
        fakes: the samples.
        done: called after each half.
    """
    found: dict[str, list[float]] = {}
    groups, looked = len(fakes.spectra), int(fakes.counts.sum())
    for i in range(HALVES):
        random = np.random.default_rng(i)
        some = torch.from_numpy(random.permutation(len(fakes.features))[: len(fakes.features) // 2])
        values = reals.measure_features(fakes.features[some])
        chosen = torch.from_numpy(random.permutation(groups)[: groups // 2])
        patches = {}
        for size, all_patches in fakes.patches.items():
            parts = all_patches.split((fakes.counts * (len(all_patches) // looked)).tolist())
            patches[size] = torch.cat([parts[group] for group in chosen])
        values |= reals.measure_texture(patches, mean_spectrum(fakes.spectra[chosen], fakes.counts[chosen]))
        values = with_damage(values, fakes.damage[random.permutation(len(fakes.damage))[: len(fakes.damage) // 2]])
        for name, value in values.items():
            found.setdefault(name, []).append(value)
        done(1)
    spread = {name: float(np.std(values, ddof=1)) for name, values in found.items()}
    return spread | {"coverage": metrics.coverage_deviation(reals.features, fakes.features, reals.radii)}


class Evaluator:
    """Measures the generator of a run between its steps, each time with the same latents and the same real faces.

    The real faces are those held out, and where they are too few some of those trained on.

    Args:
        pack: the faces of the run.
        training: indices of those trained on.
        held_out: indices of those held out.
        extractor: of the features.
        sampler: generates samples in training's precision; BatchNorm statistics must fit the weights.
        metric: name in METRICS of the metric that tells which checkpoint is best.
        best: the metrics of the best so far; None before the first.
    """

    def __init__(
        self,
        pack: Pack,
        training: np.ndarray,
        held_out: np.ndarray,
        extractor: Extractor,
        sampler: Sampler,
        metric: str,
        best: Mapping[str, float] | None = None,
    ) -> None:
        random = stream(0, 0, "judge")  # names the order of every run so far
        order = np.concatenate([random.permutation(held_out), random.permutation(training)])
        self.pack, self.chosen, self.extractor, self.sampler = pack, order[:MOST_FACES], extractor, sampler
        self.metric, self.best, self.seconds = metric, best, math.nan

    @functools.cached_property
    def reals(self) -> RealStatistics:
        """The real faces."""
        return RealStatistics.of(of_pack(self.pack, self.chosen, self.extractor, damage=False))

    def cost(self) -> float:
        """Seconds that the next measurement will take: as many as the last one, or an estimate before the first."""
        if math.isnan(self.seconds):
            faces = self.pack.pixels[self.chosen[: features.BATCH]]
            networks = self.extractor, self.extractor.damage
            for network in networks:
                network(faces[:1])  # the first time is slower
            extracting, finding = (_seconds(functools.partial(network, faces)) for network in networks)
            measuring = (2 * extracting + finding) / len(faces)  # real faces too, but not their damage
            list(self.sampler.faces([0]))
            generating = _seconds(lambda: list(self.sampler.faces(range(BATCH)))) / BATCH
            few = face_set([faces], self.extractor, self.extractor.damage, len(faces))
            least = _seconds(lambda: RealStatistics.of(few).measure(few))  # a constant part, however few the faces
            texture = max(least, 2 * (self.sampler.model.image_size / SIZE) ** 2)
            self.seconds = texture + (measuring + generating) * len(self.chosen)
        return self.seconds

    def measure(self) -> dict[str, float]:
        """Measure the generator as it is now, without changing it."""
        reals, since = self.reals, time.perf_counter()  # the reals are taken in once
        faces = list(self.sampler.faces(range(FIRST_SEED, FIRST_SEED + len(self.chosen))))
        found = reals.measure(face_set(faces, self.extractor, self.extractor.damage, len(self.chosen)))
        self.seconds = time.perf_counter() - since
        return found

    def is_best(self, found: Mapping[str, float], fds: Iterable[float] = ()) -> bool:
        """Compare metrics with the best so far, and keep them as the best where they are better.

        Damage cannot tell many copies of one good face from varied faces. So it decides only between states whose FD is
        close to the least so far.

        Args:
            found: the metrics.
            fds: every FD of the run so far.

        Returns:
            True where they are the best.
        """
        best, decides = self.best, {self.metric, "fd"} if self.metric == BY_DAMAGE else {self.metric}
        if not all(math.isfinite(found[name]) for name in decides):
            return False
        if best is not None:
            sign = 1 if METRICS[self.metric][1] == "lower" else -1
            better = sign * found[self.metric] < sign * best[self.metric]
            if self.metric == BY_DAMAGE:
                limit = ALIKE * min(found["fd"], best["fd"], *fds)
                better = found["fd"] <= limit and (better or best["fd"] > limit)
            if not better:
                return False
        self.best = dict(found)
        return True


def _seconds(work: Callable[[], object]) -> float:
    since = time.perf_counter()
    work()
    return time.perf_counter() - since


@dataclasses.dataclass(frozen=True)
class Copying:
    """The distance of samples to the faces that were trained on.

    Args:
        ratios: percentile of the samples' distances to their nearest training face, over the same of new faces.
        against: what the new faces are; without those that nearly equal a training face, as other versions of one
            picture do.
        nearest: index among the training faces of each sample's nearest, (N,).
        distances: to it, (N,).
    """

    ratios: Mapping[int, float]
    against: str
    nearest: Tensor
    distances: Tensor

    @property
    def copied(self) -> bool:
        """True where at least one sample in a hundred is far nearer to a training face than new faces are."""
        return min(self.ratios.values()) < COPY_RATIO


def copying(fakes: Tensor, training: Tensor, held_out: Tensor) -> Copying:
    """Look for copies of training faces among samples.

    Args:
        fakes: features of samples, (N, F).
        training: features of all faces trained on, (M, F).
        held_out: features of faces that were not trained on, (K, F); with K < 100, training faces and their nearest
            other one take their place.
    """
    distances, indices = metrics.nearest(fakes, training)
    if len(held_out) >= 100:
        usual, against = metrics.nearest(held_out, training)[0], f"{len(held_out):,} held-out faces"
    else:
        some = torch.from_numpy(np.random.default_rng(0).permutation(len(training))[: len(fakes)])
        against = "training faces and their nearest other one"
        usual = metrics.radii_among(training[some], training, 1) if len(training) > 1 else torch.full((1,), 1e9)
    new = usual >= COPY_RATIO * usual.median()
    if twins := int((~new).sum()):
        against += f", {twins:,} left out that nearly equal one"
    usual, shares = usual[new], torch.tensor(COPY_SHARE, dtype=distances.dtype) / 100
    ratios = distances.quantile(shares) / usual.quantile(shares).clamp(min=1e-9)
    return Copying(dict(zip(COPY_SHARE, ratios.tolist(), strict=True)), against, indices, distances)


def of_pack(
    pack: Pack,
    indices: np.ndarray,
    extractor: Extractor,
    done: Callable[[int], object] = lambda n: None,
    damage: bool = True,
) -> FaceSet:
    """Measure some faces of a pack; their features are kept beside the pack. Without `damage` none is looked for."""
    known = features.of_pack(extractor, pack, indices, done)
    lots = [indices[i : i + CHUNK] for i in range(0, len(indices), CHUNK)]
    wanted, look = iter(known.split(CHUNK)), extractor.damage if damage else lambda pixels: torch.zeros(len(pixels))
    return face_set((pack.pixels[lot] for lot in lots), lambda _: next(wanted), look, len(indices))


def choose(pack: Pack, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Indices of two random lots of `n` different faces of a pack, or of half of them each where there are fewer."""
    order = stream(seed, 0, "evaluation").permutation(len(pack.pixels))
    order = order[np.sort(np.unique(pack.hashes[order], return_index=True)[1])]
    n = min(n, len(order) // 2)
    return order[:n], order[n : 2 * n]


@dataclasses.dataclass(frozen=True)
class Reference:
    """The real faces that come with the program: no pictures, only their statistics.

    Args:
        reals: one lot.
        other: features of another lot, for the floor, (N, F).
        floor: metrics of the whole other lot.
        n: faces of each lot that the file has.
        extractor: name of the extractor that made the features.
        about: what they are, in words.
    """

    reals: RealStatistics
    other: Tensor
    floor: Mapping[str, float]
    n: int
    extractor: str
    about: str


def save_reference(path: Path, first: FaceSet, second: FaceSet, extractor: str, about: str) -> None:
    """Write the statistics of two lots of real faces."""
    reals = RealStatistics.of(first)
    levels = {
        size: {"mean": t.mean, "deviation": t.deviation, "quantiles": t.quantiles.half()}
        for size, t in reals.textures.items()
    }
    both = torch.cat([first.features, second.features])
    least, step = both.amin(0), (both.amax(0) - both.amin(0)) / 255  # in steps of a 40th of a deviation or so
    content = {
        "features": ((both - least) / step).round().to(torch.uint8),
        "least": least,
        "step": step,
        "lots": [len(first.features), len(second.features)],
        "levels": levels,
        "spectrum": reals.spectrum,
        "floor": reals.measure(second),
        "extractor": extractor,
        "about": about,
    }
    checkpoint.save(path, {"reference": content})


def load_reference(n: int, path: Path = REFERENCE) -> Reference:
    """The first `n` of each lot of the reference, or as many as there are.

    Raises:
        CheckpointError: the file cannot be read.
    """
    content: dict[str, Any] = checkpoint.load(path, required=("reference",))["reference"]
    both = content["features"].float() * content["step"] + content["least"]
    first, second = both.split(content["lots"])
    textures = {
        size: metrics.Texture(level["mean"], level["deviation"], level["quantiles"].float())
        for size, level in content["levels"].items()
    }
    reals = RealStatistics(first[:n], textures, content["spectrum"])
    return Reference(reals, second[:n], content["floor"], len(second), content["extractor"], content["about"])
