"""How good a run was as it went on: its checkpoints, measured now."""

from collections.abc import Sequence
from pathlib import Path

from tqdm import tqdm

from config import CheckpointError
from gan.command_line import log
from gan.language import said, text
from gan.quality import evaluation, sampling
from gan.quality.evaluation import RealStatistics
from gan.quality.features import Extractor

MOST_SAMPLES = 2000  # maximum number of samples for each checkpoint


def measure(run: Path, extractor: Extractor, reals: RealStatistics, seeds: Sequence[int]) -> list[dict[str, float]]:
    """Measure each of a run's checkpoints, and print the results: metrics by name, and `images_seen`, oldest first."""
    points, seeds = dict[int, dict[str, float]](), seeds[:MOST_SAMPLES]
    paths = [*sorted(run.glob("step-????????.pt")), run / "best.pt", run / "latest.pt"]
    for path in filter(Path.is_file, paths):
        try:
            other = sampling.load(path, extractor.device)
        except CheckpointError as error:
            log(text("left out: {}").format(said(error)))
            continue
        if other.images_seen in points or other.images_seen <= 0:
            continue
        with tqdm(desc=path.name, total=len(seeds), unit=text("face"), disable=None, leave=False) as bar:
            faces = evaluation.face_set(other.faces(seeds), extractor, extractor.damage, bar.update)
        found = points[other.images_seen] = {"images_seen": other.images_seen, **reals.measure(faces)}
        shown = f"damage x100 {found['damage_x100']:.2f}, FD {found['fd']:.2f}"
        log(text("{}: {:,} images seen, {} ({:,} samples)").format(path.name, other.images_seen, shown, len(seeds)))
    return [points[seen] for seen in sorted(points)]
