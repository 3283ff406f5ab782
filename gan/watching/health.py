"""The health of a run: a probe of its networks between steps, and a diagnosis of its curves in a sentence."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from config import CRITICS, Metric, TrainConfig
from gan.files import as_word
from gan.images import to_pixels, to_tensor
from gan.language import text
from gan.watching.curves import ALIKE, BY_DAMAGE, DAMAGE_NOISE, DAMAGE_OF_FACES, METRICS, Curves

PROBED, LEAST_PROBED = 128, 64  # maximum and minimum number of faces of each kind that the discriminator rates
ASKED_AT_ONCE, ASKED_EVERY = 32, 4  # faces that it rates at a time; number of previews from one rating to the next

Kind = Literal[
    "early", "balanced", "collapsed", "won", "lost", "memorised", "oscillating", "improving", "wavering", "stalled"
]

EARLY_IMAGES = 10_000  # there is no diagnosis before this many images
RECENT = 0.25  # the last part of the run that most rules consider, as a share of it
COLLAPSED = 0.3  # samples whose `variety` is at most this have collapsed
WON, LOST = 0.999, 0.6  # shares of pairs told apart from which on, and up to which, the discriminator has won or lost
KNOWN, MANY_EPOCHS = 0.975, 200  # least such share, and epochs, of a memorised data set without held-out faces
AMNESTY = 50_000  # images up to which that is said only of networks without a penalty, or with samples all alike
SURE = 0.75  # mean logits mean something only if at least this share of pairs is told apart
SMALL = 2000  # data sets of at least this many faces have held-out faces
NEAR_SAMPLES = 0.5  # memorised: held-out logits lie this far on the way from the training faces' to the samples'
TOO_WELL = 0.99  # coverage of memorised training faces; as many new faces would give 0.97
NEAR, FAR = 4_000, 40_000  # minimum and maximum images between previews whose samples can be compared
RESTLESS = 0.6  # samples oscillate if `drift` is at least this three times in a row
NOISE = 0.03  # relative noise of a metric
PERFECT_AND_NOISE: Mapping[Metric, tuple[float, float]] = {"damage_x100": (DAMAGE_OF_FACES, DAMAGE_NOISE), "fd": (0, 0)}
"""The best possible value of a metric that may select best.pt, and the absolute noise of 2,000 samples."""
STALE, STALE_SHARE = 3, 1.4  # stalled: that many measurements and that factor in images seen since the last progress

THUMBNAIL = 8  # `variety` and `drift` compare the means of this many parts per side of a face


class Probe:
    """Measures the networks at previews, always with the same training and held-out faces (N, S, S, C) uint8.

    `codes` are the classes of both sets, (N, V) each, if the networks are conditional. `step` is that of the last
    measurement.
    """

    def __init__(self, seen: np.ndarray, held_out: np.ndarray, codes: Sequence[Tensor] | None = None) -> None:
        self.seen, self.held_out = seen[:PROBED], held_out[:PROBED]
        self.codes = [None, None] if codes is None else [some[:PROBED] for some in codes]
        self.times = self.step = 0
        self.thumbs: np.ndarray | None = None

    def __call__(
        self, samples: Tensor, discriminator: Callable[..., Tensor], codes: Tensor | None = None
    ) -> dict[str, float]:
        """Measure samples (N, C, S, S) in [-1, 1] of the given classes. Calling the discriminator must not change it.

        Returns:
            The column `variety`; from the second call on `drift`; and at every fourth call, if enough faces are held
            out, the mean logits `seen_logit`, `held_out_logit` and `sample_logit`.
        """
        thumbs, before = thumbnails(to_pixels(samples)), self.thumbs
        found = {"variety": variety(thumbs, thumbnails(self.seen[: len(samples)]))}
        if before is not None:
            found["drift"] = drift(thumbs, before)
        self.thumbs = thumbs
        self.times += 1
        if len(self.held_out) < LEAST_PROBED or self.times % ASKED_EVERY:
            return found
        for kind, faces, of in zip(("seen", "held_out"), (self.seen, self.held_out), self.codes, strict=True):
            images = to_tensor(torch.from_numpy(faces)).to(samples.device)
            found[f"{kind}_logit"] = mean_logit(discriminator, images, of)
        return {**found, "sample_logit": mean_logit(discriminator, samples, None if self.codes[0] is None else codes)}


def mean_logit(discriminator: Callable[..., Tensor], images: Tensor, codes: Tensor | None = None) -> float:
    """Return the mean logit of images, computed in small batches because training may leave little memory."""
    parts = images.split(ASKED_AT_ONCE)
    known = [{}] * len(parts) if codes is None else [{"codes": c.to(images.device)} for c in codes.split(ASKED_AT_ONCE)]
    return torch.cat([discriminator(some, **of).float() for some, of in zip(parts, known, strict=True)]).mean().item()


def thumbnails(faces: np.ndarray) -> np.ndarray:
    """Return the means of 8 x 8 parts of faces (N, S, S, C) uint8, as (N, 64 C)."""
    n, size, _, channels = faces.shape
    part = size // THUMBNAIL
    return faces.reshape(n, THUMBNAIL, part, THUMBNAIL, part, channels).mean((2, 4)).reshape(n, -1)


def distances(thumbs: np.ndarray) -> np.ndarray:
    """Return the root-mean-square distances between all rows of (N, F), as (N, N) with infinity on the diagonal."""
    found = np.sqrt(((thumbs[:, None] - thumbs[None]) ** 2).mean(2))
    np.fill_diagonal(found, np.inf)
    return found


def variety(samples: np.ndarray, reals: np.ndarray) -> float:
    """Return the median distance from a sample to the nearest other sample, divided by that of real faces.

    It is about 1 if samples differ as much as real faces do, and near 0 if they are all alike. Both arguments are
    thumbnails, (N, F), of about as many samples as faces.
    """
    of_samples, of_reals = (np.median(distances(of).min(1)) for of in (samples, reals))
    return float(of_samples / max(of_reals, 1e-9))


def drift(samples: np.ndarray, before: np.ndarray) -> float:
    """Return the median change of samples of the same latents, divided by the median distance between two samples.

    It falls towards 0 as the generator settles; near 1, the same latents give entirely different faces. Both arguments
    are thumbnails, (N, F).
    """
    moved = np.sqrt(((samples - before) ** 2).mean(1))
    apart = distances(samples)[np.triu_indices(len(samples), 1)]
    return float(np.median(moved) / max(float(np.median(apart)), 1e-9))


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """The diagnosis of a run's curves."""

    kind: Kind  # the rule that applies
    short: str  # a few words for the status line
    text: str  # what is happening and what to do, in a sentence or two

    @property
    def trouble(self) -> bool:
        """Return whether the user should do something about it."""
        return self.kind in ("collapsed", "won", "lost", "memorised", "oscillating")

    @property
    def look(self) -> str:
        """Return how a page shows it: trouble, well, or, as long as nothing is known, early."""
        return "trouble" if self.trouble else "early" if self.kind == "early" else "well"


def diagnose(curves: Curves, config: TrainConfig, faces: int, folder: Path, finished: bool = False) -> Diagnosis:
    """Diagnose the curves of a run on `faces` faces by the first rule that applies, the most serious first.

    docs/experiments.md has the runs that the rules were derived from and tested on.
    """
    seen = curves.column("images_seen")[0]
    if not len(seen) or seen[-1] < EARLY_IMAGES:
        if finished:
            early = text(
                "it was too short a training to be judged by its curves. Look at its newest samples: if they please "
                "you, it is done; if not, go on."
            )
            return Diagnosis("early", text("look at the faces"), early)
        early = text("the curves begin to mean something at {:,} images; until then, look at the faces.")
        return Diagnosis("early", text("too early to say"), early.format(EARLY_IMAGES))
    quality = _quality(curves, config, folder, finished)
    found = _collapsed(curves, config) or _memorised(curves, config, faces)
    if quality is None or quality.kind != "improving":  # a run that improves is in balance
        found = found or _out_of_balance(curves, config, quality is not None) or _oscillating(curves, config)
    return found or quality or _well(curves)


def _recent(curves: Curves, name: str, least: int) -> np.ndarray:
    """Return the last quarter of a column's values, at least `least`; none if there are no more than that."""
    values = curves.column(name)[1]
    return values[-max(least, round(RECENT * len(values))) :] if len(values) > least else values[:0]


def _well(curves: Curves) -> Diagnosis:
    accuracy, varied = _recent(curves, "d_accuracy", 3), curves.column("variety")[1][-1:]
    vary = len(varied) > 0 and varied[0] > 2 * COLLAPSED
    if len(accuracy) and LOST < np.median(accuracy) < WON:
        seen = text("the networks are in balance and the samples vary") if vary else text("the networks are in balance")
    elif len(accuracy) and np.median(accuracy) >= WON:
        seen = text("the discriminator tells nearly all pairs apart, which is no harm for a while")
    else:
        seen = text("the samples vary") if vary else text("nothing is wrong with its curves")
    said = text("{}; quality was not measured often enough to say more.").format(seen)
    return Diagnosis("balanced", text("well so far"), said)


def _collapsed(curves: Curves, config: TrainConfig) -> Diagnosis | None:
    where, values = curves.column("variety")
    values = values[where > EARLY_IMAGES / 2]
    if len(values) < 2 or values[-2:].max() > COLLAPSED or values[-1] > values[-2] + 0.05:  # variety is recovering
        return None
    accuracy = _recent(curves, "d_accuracy", 3)
    won = len(accuracy) and np.median(accuracy) >= WON and config.loss not in CRITICS
    if values.max() <= COLLAPSED and won:  # training never got going; this is no collapse
        return None
    if config.nz < 16:
        do = text("--nz={} leaves it too little to vary: start again with --nz=100").format(config.nz)
    else:
        do = text(
            "it hardly ever comes back from that: start again with a smaller --lr1 (now {:g}), or with the default "
            "recipe if yours differs"
        ).format(config.lr1)
    alike = text("its samples are nearly all alike ({:.0%} of the distance between real faces); {}.")
    return Diagnosis("collapsed", text("the generator has collapsed"), alike.format(values[-1], do))


def _out_of_balance(curves: Curves, config: TrainConfig, measured: bool) -> Diagnosis | None:
    accuracy, images = _recent(curves, "d_accuracy", 3), curves.column("images_seen")[0][-1]
    if config.loss in CRITICS and len(accuracy) and np.median(accuracy) >= WON:
        return None
    if not len(accuracy) or LOST < np.median(accuracy) < WON or images < (1 if measured else 2) * EARLY_IMAGES:
        return None
    right = text("it tells {:.1%} of pairs apart").format(np.median(accuracy))
    again = text("start again") if measured else text("if its samples do not get better, start again")
    if np.median(accuracy) <= LOST:
        said = text(
            "{}, little more than by guessing, so its gradients carry little information; {} with a greater --lr2 (now "
            "{:g}), or a smaller --lr1 ({:g})."
        )
        said = said.format(right, again, config.lr2, config.lr1)
        return Diagnosis("lost", text("the discriminator has lost"), said)
    varied = curves.column("variety")[1][-2:]
    young = images < AMNESTY and not measured and len(varied) and varied.min() > COLLAPSED
    if config.penalty != "none" and young:
        return None  # with a penalty, its gradients are of use for a while however sure it is
    do = text("{} with a smaller --lr2 (now {:g})").format(again, config.lr2)
    if config.g_every > config.d_every:
        do += text(", or with --g_every={} (now {})").format(config.d_every, config.g_every)
    if config.penalty == "none":
        do += text(", or with the default preset, whose penalty keeps it from that")
    said = text("{}, and the generator can learn little from it; {}.").format(right, do)
    return Diagnosis("won", text("the discriminator has won"), said)


def _memorised(curves: Curves, config: TrainConfig, faces: int) -> Diagnosis | None:
    epochs, accuracy = curves.column("images_seen")[0][-1] / faces, _recent(curves, "d_accuracy", 3)
    seen, held_out, sample = (_recent(curves, f"{kind}_logit", 2) for kind in ("seen", "held_out", "sample"))
    if not len(accuracy) or np.median(accuracy) < SURE:  # otherwise the distance is noise
        return None
    if len(seen):
        share = (seen.mean() - held_out.mean()) / max(seen.mean() - sample.mean(), 1e-3)
        if not share >= NEAR_SAMPLES or seen.mean() <= sample.mean():
            return None
        why = text("faces it was not trained on look {:.0%} as fake to it as samples do").format(min(share, 1))
        do = text("Stop and use best.pt") if curves.measured else text("Stop")
    else:
        coverage = curves.column("coverage")[1][-2:]  # high accuracy alone may only mean that the samples are bad
        if epochs < MANY_EPOCHS or faces >= SMALL or np.median(accuracy) < KNOWN:
            return None
        if not len(coverage) or coverage.min() < TOO_WELL:
            return None
        why = text(
            "it has seen each of the {:,} faces {:,.0f} times, tells {:.0%} of pairs apart, and samples lie near "
            "{:.1%} of them"
        ).format(faces, epochs, np.median(accuracy), coverage[-1])
        # best.pt is nearest to copying
        do = text("Stop, and check whether an earlier step-*.pt gives more original faces")
    do += text(", or add faces")
    if config.init is None:
        do += text(", or, for anime faces, start from --init=released, which was trained on many")
    said = text("{}; from now on, samples become more and more like copies. {}.").format(why, do)
    return Diagnosis("memorised", text("the discriminator has memorised the training set"), said)


def _oscillating(curves: Curves, config: TrainConfig) -> Diagnosis | None:
    where, moved = (values[-3:] for values in curves.column("drift"))
    began = curves.column("variety")[0]
    usual = len(where) == 3 and np.diff(where).min() >= NEAR and np.diff(where).max() <= FAR
    if not usual or where[0] <= began[min(1, len(began) - 1)] or moved.min() < RESTLESS:  # noise becomes faces at first
        return None
    do = text("start again with smaller --lr1 and --lr2 (now {:g} and {:g})").format(config.lr1, config.lr2)
    if not config.ema_half_life_images:
        do += text(", or with an averaged generator, which the default preset has")
    said = text(
        "from one preview to the next the same latents give faces {:.0%} as different as two samples are; it does not "
        "settle; {}."
    )
    return Diagnosis("oscillating", text("training oscillates"), said.format(moved[-1], do))


def _quality(curves: Curves, config: TrainConfig, folder: Path, finished: bool) -> Diagnosis | None:
    """Diagnose the progress of the metric that selects best.pt.

    Damage is blind to variety, so its improvement counts only while FD stays close to its minimum; FD's counts as well.
    """
    found = _progress(curves, config.best_by, config, folder, finished)
    if config.best_by != BY_DAMAGE or found is None:
        return found
    by_fd, fd = _progress(curves, "fd", config, folder, finished), curves.column("fd")[1]
    if found.kind == "improving":
        return found if fd[-1] <= ALIKE * fd.min() else by_fd
    return by_fd if by_fd is not None and by_fd.kind == "improving" else found


def _progress(curves: Curves, metric: Metric, config: TrainConfig, folder: Path, finished: bool) -> Diagnosis | None:
    """Diagnose whether a metric improves."""
    name, (perfect, noise) = METRICS[metric].label, PERFECT_AND_NOISE[metric]
    where, values = curves.column(metric)
    if len(values) < 3:
        return None
    left = np.maximum(values - perfect, 1e-3)  # the distance to the best possible value
    best, annealed = int(left.argmin()), config.budget is not None and config.anneal > 0
    as_good = (1 + NOISE) * left[best] + noise
    was = text("{} is {:.3g} and was {:.3g} at {:,.0f} images; {}.")
    good = int(np.argmax(left <= as_good))  # the first measurement that is nearly as good as the best
    if len(values) - 1 - good >= STALE and where[-1] >= STALE_SHARE * where[good]:
        if annealed and not finished:
            do = text(
                "as the learning rates fall towards the budget's end it may still improve; best.pt keeps the best"
            )
        else:
            do = text("stop here and use best.pt: {}").format(f"python generate.py --checkpoint={as_word(folder)}")
        short = text("no longer improving since {:,.0f} images").format(where[good])
        return Diagnosis("stalled", short, was.format(name, values[-1], values[good], where[good], do))
    minutes = curves.column(metric, "seconds")[0] / 60
    past = max(0, min(int(np.searchsorted(where, where[-1] / 1.5)), len(values) - 3))
    gained = left[-1] <= (1 - NOISE) * left[past] - noise
    if not gained or left[-1] > as_good:
        short = text("improving, with setbacks") if gained else text("worse than it was")
        short = text("hardly improving") if left[-1] <= as_good else short
        do = text("more time may bring more") if finished else text("give it more time")
        return Diagnosis("wavering", short, was.format(name, values[-1], values[best], where[best], do))
    # Progress slows down as a power of the time (docs/experiments.md), and is faster while learning rates fall.
    power = np.polyfit(np.log(minutes[past:]), np.log(left[past:]), 1)[0]
    gain, more = left[-1] * (1 - 2 ** min(power, 0.0)), ""
    if not annealed:
        count = max(1, round(minutes[-1]))
        again = text("1 minute") if count == 1 else text("{} minutes").format(count)
        more = text("; as much time again, {}, would bring it to about {:.3g}").format(again, values[-1] - gain)
    went = text("{} went from {:.3g} to {:.3g} between {:,.0f} and {:,.0f} images{}.")
    said = went.format(name, values[past], values[-1], where[past], where[-1], more)
    hours = minutes[-1] >= 60
    rate = -min(power, 0.0) * left[-1] / minutes[-1] * (60 if hours else 1)
    much = f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"  # two significant digits, without an exponent
    short = text("improving, {} {} less an hour") if hours else text("improving, {} {} less a minute")
    return Diagnosis("improving", short.format(name, much), said)


def in_words(found: Mapping[str, float], metric: Metric) -> str:
    """Describe a measurement in words, starting with the metric that selects best.pt."""
    columns = (metric, *(column for column in (BY_DAMAGE, "fd", "coverage") if column != metric))
    shown = (f"{METRICS[column].label} {found[column]:.{1 if column == 'fd' else 2}f}" for column in columns)
    return text(", ").join(shown)
