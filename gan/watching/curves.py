"""The curves of a run: the rows of log.jsonl in bounded memory, and the panels that plot them."""

import dataclasses
from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np

from gan.language import text

POINTS = 1000  # points per curve; beyond that, neighbours are averaged, so that memory and cost stay bounded
SMOOTHED = 0.05  # share of a curve's points in the moving average
POSITIONS = ("step", "images_seen", "seconds")  # columns that locate a row in the run
BINS = 40  # bins in a histogram of logits
SPREAD_TITLE = "The discriminator's logits in the last steps"
COLOURS = ("#2c78c8", "#e2623c", "#4d9d5c")  # colours of the curves in a panel


class Measure(NamedTuple):
    """How a metric is displayed: its name, which values are better, and how many decimals."""

    label: str
    better: Literal["lower", "higher"]
    decimals: int


METRICS = {
    "damage_x100": Measure("damage x100", "lower", 2),
    "fd": Measure("FD", "lower", 2),
    "kid_x1000": Measure("KID x1000", "lower", 2),
    "precision": Measure("precision", "higher", 3),
    "recall": Measure("recall", "higher", 3),
    "density": Measure("density", "higher", 3),
    "coverage": Measure("coverage", "higher", 3),
}
"""The columns that hold metrics. They are rare and never averaged."""

BY_DAMAGE = "damage_x100"  # the metric that agrees with human judgement but is blind to variety
DAMAGE_OF_FACES, DAMAGE_NOISE = 1.5, 0.05  # its value for real anime faces, and its noise with 2,000 samples
ALIKE = 1.1  # two FDs count as equal if their ratio is at most this


@dataclasses.dataclass(frozen=True)
class Panel:
    """A plot of one or more curves."""

    title: str  # what the panel shows
    unit: str  # unit of the values
    columns: Mapping[str, str]  # columns of log.jsonl and their display names
    smooth: bool = False  # whether to plot a smoothed curve over each raw one
    scale: float = 1.0  # factor that the values are multiplied by


def _labels(*metrics: str) -> dict[str, str]:
    return {name: METRICS[name].label for name in metrics}


PANELS = {
    "damage": Panel("How much of the samples looks damaged", "%, lower is better", _labels("damage_x100")),
    "quality": Panel("Distance from real faces", "lower is better", _labels("fd")),
    "shares": Panel("Coverage and precision", "share, higher is better", _labels("coverage", "precision")),
    "variety": Panel(
        "Samples: how far apart, how much they change",
        "1: as faces; as two samples",
        {"variety": "apart", "drift": "changed since the last preview"},
    ),
    "losses": Panel("Losses", "loss", {"d_loss": "discriminator", "g_loss": "generator"}, smooth=True),
    "logits": Panel("Discriminator's logits", "mean logit", {"real_logit": "real", "fake_logit": "fake"}, smooth=True),
    "accuracy": Panel(
        "Does the discriminator tell them apart?",
        "share of pairs, 0.5 is guessing",
        {"d_accuracy": "right"},
        smooth=True,
    ),
    "held_out": Panel(
        "Has it memorised its faces?",
        "mean logit",
        {"seen_logit": "faces trained on", "held_out_logit": "faces held out", "sample_logit": "samples"},
    ),
    "penalties": Panel(
        "Squared gradient of the discriminator",
        "mean over a batch",
        {"r1_penalty": "on real (R1)", "r2_penalty": "on fake (R2)", "gp_penalty": "between, from 1 (gp)"},
    ),
    "speed": Panel("Speed", "images a second", {"images_per_second": "images/s"}),
    "data_wait": Panel("Waiting for data", "share of the time, %", {"data_wait": "data wait"}, scale=100.0),
}
"""All panels in display order. Panels without a value yet are left out."""


class Curves:
    """The rows of log.jsonl in bounded memory: when there are too many, each point becomes the mean of more rows.

    Rows with metrics are never averaged: measurements get so little of the training time that there are never many.
    """

    def __init__(self) -> None:
        self.measured: list[dict[str, float]] = []
        self.rows: list[dict[str, float]] = []
        self.waiting: list[dict[str, float]] = []  # rows of a point that is not complete yet
        self.stride = 1

    def add(self, row: Mapping[str, float]) -> None:
        """Append a row."""
        if not row.keys().isdisjoint(METRICS):
            self.measured.append({name: row[name] for name in (*POSITIONS, *METRICS) if name in row})
        self.waiting.append({name: value for name, value in row.items() if name not in METRICS})
        if len(self.waiting) < self.stride:
            return
        self.rows.append(_mean(self.waiting))
        self.waiting = []
        if len(self.rows) > POINTS:
            self.waiting = [self.rows.pop()]  # POINTS is even
            self.rows = [_mean(self.rows[i : i + 2]) for i in range(0, len(self.rows), 2)]
            self.stride *= 2

    def rewind(self, step: int) -> None:
        """Drop the rows after a step."""
        self.measured = [row for row in self.measured if row["step"] <= step]
        self.rows = [row for row in self.rows if row["step"] <= step]
        self.waiting = [row for row in self.waiting if row["step"] <= step]

    def column(self, name: str, along: str = "images_seen") -> tuple[np.ndarray, np.ndarray]:
        """Return positions (by default images seen) and values of a column, (N,) each, from the rows that have it."""
        rows = [*self.rows, _mean(self.waiting)] if self.waiting else self.rows
        rows = self.measured if name in METRICS else rows
        points = [(row[along], row[name]) for row in rows if name in row]
        both = np.array(points, dtype=float).reshape(-1, 2)
        return both[:, 0], both[:, 1]

    def panel(self, panel: Panel) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Return the curves of a panel, scaled, by their names in the reader's language; one point makes no curve."""
        found = {text(label): self.column(column) for column, label in panel.columns.items()}
        return {label: (x, panel.scale * y) for label, (x, y) in found.items() if len(x) > 1}


def smoothed(values: np.ndarray) -> np.ndarray:
    """Return the moving average of values (N,); the window is cut off at the ends."""
    reach = round(SMOOTHED * len(values) / 2)
    sums = np.concatenate([[0.0], np.cumsum(values)])
    positions = np.arange(len(values))
    first, last = np.maximum(positions - reach, 0), np.minimum(positions + reach + 1, len(values))
    return (sums[last] - sums[first]) / (last - first)


def histogram(real: np.ndarray, fake: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Compute a histogram of the finite logits of real faces (N,) and of samples (M,).

    Returns:
        The bin edges (B + 1,), and for each kind its share in each bin, (B,).
    """
    kinds = {kind: logits[np.isfinite(logits)].astype(float) for kind, logits in {"real": real, "fake": fake}.items()}
    both = np.concatenate([*kinds.values(), [0.0]])
    edges = np.linspace(both.min(), both.max() + 1e-6, BINS + 1)
    return edges, {kind: np.histogram(v, edges)[0] / max(1, len(v)) for kind, v in kinds.items()}


def _mean(rows: list[dict[str, float]]) -> dict[str, float]:
    """Return the mean of neighbouring rows, at the position of the last one."""
    names = {name for row in rows for name in row}
    values = {name: [row[name] for row in rows if name in row] for name in names}
    mean = {name: sum(each) / len(each) for name, each in values.items()}
    return mean | {name: rows[-1][name] for name in POSITIONS if name in rows[-1]}
