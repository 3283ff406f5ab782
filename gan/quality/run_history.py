"""How good a run was as it went on: its checkpoints, measured now, and what it measured in training."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from config import CheckpointError
from gan import checkpoint
from gan.command_line import log
from gan.quality import evaluation, sampling
from gan.quality.evaluation import RealStatistics
from gan.quality.features import Extractor
from gan.watching.curves import BY_DAMAGE, METRICS

MOST_SAMPLES = 2000  # maximum number of samples for each checkpoint

Points = list[dict[str, float]]
"""Metrics by name, and `images_seen`, oldest first."""


def measure(
    run: Path,
    origin: Mapping[str, Any],
    extractor: Extractor,
    reals: RealStatistics,
    seeds: Sequence[int],
    same_faces: bool,
) -> dict[str, Points]:
    """Return the metrics over a run, by a description of the samples.

    Args:
        run: folder of the run.
        origin: what its checkpoint records about its training faces, see `Sampler`.
        extractor: computes the features.
        reals: real faces to compare with.
        seeds: seeds of the samples.
        same_faces: whether the real faces are those that the run compared itself with. Unless they and the features are
            the same, only the damage measured in training is returned.
    """
    seeds = seeds[:MOST_SAMPLES]
    faces = sum(origin.get(kind, 0) for kind in ("training", "left_out", "held_out"))
    comparable = same_faces and _features_in_training(run) in (None, extractor.name)
    return {
        f"checkpoints, {len(seeds):,} samples each": of_checkpoints(run, extractor, reals, seeds),
        f"measured in training, {min(faces, evaluation.MOST_FACES):,} samples each": measured_in_training(
            run, tuple(METRICS) if comparable else (BY_DAMAGE,)
        ),
    }


def of_checkpoints(run: Path, extractor: Extractor, reals: RealStatistics, seeds: Sequence[int]) -> Points:
    """Measure each of a run's checkpoints, and print the results."""
    points: dict[int, dict[str, float]] = {}
    paths = [*sorted(run.glob("step-????????.pt")), run / "best.pt", run / "latest.pt"]
    for path in filter(Path.is_file, paths):
        try:
            other = sampling.load(path, extractor.device)
        except CheckpointError as error:
            log(f"left out: {error}")
            continue
        if other.images_seen in points or other.images_seen <= 0:
            continue
        with tqdm(desc=path.name, total=len(seeds), unit="face", disable=None, leave=False) as bar:
            faces = evaluation.face_set(other.faces(seeds), extractor, extractor.damage, bar.update)
        found = points[other.images_seen] = {"images_seen": other.images_seen, **reals.measure(faces)}
        shown = f"damage x100 {found['damage_x100']:.2f}, FD {found['fd']:.2f}"
        log(f"{path.name}: {other.images_seen:,} images seen, {shown} ({len(seeds):,} samples)")
    return [points[seen] for seen in sorted(points)]


def measured_in_training(run: Path, metrics: Sequence[str] = tuple(METRICS)) -> Points:
    """Return these metrics from the rows of a run's log that have them."""
    found, log = Points(), run / "log.jsonl"
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if log.is_file() else ():
        # Most rows have no metrics; one may be cut short by a crash, or edited by hand.
        with contextlib.suppress(ValueError, LookupError, TypeError, OverflowError, RecursionError):
            row = json.loads(line)
            found.append({name: float(row[name]) for name in ("images_seen", *metrics)})
    return found


def _features_in_training(run: Path) -> str | None:
    """Return the name of the features in which a run measured itself; None if nothing tells."""
    with contextlib.suppress(CheckpointError):
        return checkpoint.load(run / "best.pt", required=("evaluation",), hint=False)["evaluation"].get("features")
    return None
