"""Measure how good generated faces are: python evaluate.py --fake=checkpoints/RUN."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from config import RELEASED, ConfigError, DataError, EvaluateConfig, TrainConfig
from gan import evaluation, features, report, sampling
from gan.checkpoint import checkpoints_in
from gan.command_line import command_line
from gan.device import choose_device
from gan.evaluation import LEAST, METRICS, Copying, FaceSet, Reals
from gan.faces import Pack, has_faces, open_pack
from gan.features import Extractor
from gan.images import to_tensor
from gan.sampling import Sampler

FEW = 1000
"""Faces of each kind below which a warning stands beside the numbers."""

CURVE, GAP, SHOWN = 2000, 1000, 64
"""Most samples of a point of the curve over a run's checkpoints; most faces that the discriminator is asked about;
samples in the report."""


@dataclasses.dataclass
class Subject:
    """What is measured: a generator, or the pictures of a folder."""

    sampler: Sampler | None
    pack: Pack | None
    about: str

    @property
    def size(self) -> int:
        """Height and width of its faces, pixels."""
        return self.sampler.model.image_size if self.sampler else self.pack.pixels.shape[1] if self.pack else 0

    @property
    def channels(self) -> int:
        """3 for colour, 1 for grey."""
        return self.sampler.model.channels if self.sampler else 3


@dataclasses.dataclass
class RealSide:
    """What it is measured against: `n` real faces, and the pack they are from where they are at hand."""

    reals: Reals
    floor: Mapping[str, float]
    about: str
    pack: Pack | None = None
    chosen: tuple[np.ndarray, np.ndarray] | None = None

    @property
    def n(self) -> int:
        """How many real faces there are on this side; as many samples are compared with them."""
        return len(self.reals.features)


def evaluate(config: EvaluateConfig) -> dict[str, Any]:
    """Measure, say the numbers, and write them and a picture of them.

    Args:
        config: what to measure, against what, and where to write the report.

    Returns:
        What the JSON file holds.

    Raises:
        UserError: faces or a checkpoint cannot be used, or the report not be written.
    """
    device = choose_device(config.gpu)
    extractor = features.load(config.features, config.fid_weights, device)
    subject = open_subject(config, device)
    real = open_reals(config, subject, extractor)
    fakes, examples = fake_faces(config, subject, real, extractor)
    values = real.reals.measure(fakes)
    with bar("resamples", evaluation.HALVES, "half") as progress:
        deviations = evaluation.deviations(real.reals, fakes, progress.update)
    measured = {name: (values[name], deviations[name], real.floor[name]) for name in METRICS}
    result: dict[str, Any] = {
        "fake": subject.about,
        "real": real.about,
        "features": extractor.name,
        "n": real.n,
        "seed": config.seed,
        "metrics": {name: dict(zip(("value", "deviation", "floor"), of, strict=True)) for name, of in measured.items()},
    }
    print(table(result), flush=True)
    pairs = None
    if real.pack is not None and subject.pack is not real.pack:
        training, held_out = real.pack.split(holdout(subject))
        copies = look_for_copies(fakes.features, real.pack, training, held_out, extractor, result)
        if config.pairs:
            pairs = nearest_pairs(copies, examples, real.pack, training)
        if subject.sampler and subject.sampler.origin.get("digest") == real.pack.digest and len(held_out):
            discriminator_gap(subject.sampler, real.pack, training, held_out, examples, result)
    elif config.pairs:
        raise ConfigError("--pairs shows training faces, and there are none here; give them with --real=FOLDER")
    if config.fake.is_dir() and subject.sampler:
        n = min(real.n, CURVE)
        result["run"] = {
            f"checkpoints, {n:,} samples each": curve(config, real, n, extractor, device),
            f"measured in training, {evaluation.JUDGED:,} samples each": measured_in_training(config.fake),
        }
    spectra = {"real": real.reals.spectrum, "samples": fakes.spectra.mean(0)}
    save(config.report, result, examples, spectra, pairs)
    return result


def open_subject(config: EvaluateConfig, device: torch.device) -> Subject:
    """Load the generator, or find the pictures, that --fake names."""
    if config.fake.suffix == ".pt" or (config.fake.is_dir() and (config.fake / "config.json").is_file()):
        sampler = sampling.load(config.fake, device)
        if config.image_size not in (None, sampler.model.image_size):
            raise ConfigError(
                f"--image_size={config.image_size}: {config.fake} draws faces of {sampler.model.image_size} pixels; "
                "leave the option out"
            )
        name = "the released generator" if config.fake == RELEASED else str(config.fake)
        return Subject(sampler, None, f"{name}, {sampler.images_seen:,} images seen")
    pack = open_pack(config.fake, config.image_size or features.SIZE)
    return Subject(None, pack, str(config.fake))


def open_reals(config: EvaluateConfig, subject: Subject, extractor: Extractor) -> RealSide:
    """Take in as many real faces as samples are asked for, and as many others for the floor."""
    n = config.n if subject.pack is None else min(config.n, len(subject.pack.pixels))
    path = config.real or known_faces(subject)
    if path is None:
        return open_reference(n, subject, extractor)
    pack = open_pack(path, subject.size, channels=subject.channels)
    if subject.pack is not None and subject.pack.digest == pack.digest:
        subject.pack = pack
    first, second = evaluation.choose(pack, n, config.seed)
    if len(first) < LEAST:
        raise DataError(
            f"{len(pack.pixels)} faces in {path} and {n} to compare them with; expected at least {2 * LEAST} real ones "
            f"and {LEAST} others; give more with --real=FOLDER or --fake=FOLDER"
        )
    with bar("real faces", 2 * len(first)) as progress:
        one, other = (evaluation.of_pack(pack, some, extractor, progress.update) for some in (first, second))
    reals = Reals.of(one)
    return RealSide(
        reals, reals.measure(other), f"{len(first):,} of {len(pack.pixels):,} faces of {path}", pack, (first, second)
    )


def known_faces(subject: Subject) -> Path | None:
    """The faces to compare with where none are given: what it was trained on, or what lies in data/."""
    if subject.sampler is not None and "data_path" in subject.sampler.origin:
        path = Path(subject.sampler.origin["data_path"])
        if has_faces(path):
            return path
        print(f"the faces it was trained on are no longer at {path}", flush=True)
    default = TrainConfig.data_path
    return default if has_faces(default) else None


def open_reference(n: int, subject: Subject, extractor: Extractor) -> RealSide:
    """The real faces that come with the program."""
    reference = evaluation.load_reference(n)
    if extractor.name != reference.extractor or (subject.size, subject.channels) != (features.SIZE, 3):
        raise ConfigError(
            f"the real faces that come with the program are known by their features ({reference.extractor}) at "
            f"{features.SIZE} pixels in colour; got {extractor.name}, {subject.size} pixels; give faces: --real=FOLDER"
        )
    floor = {**reference.reals.measure_features(reference.other), **reference.floor}
    return RealSide(reference.reals, floor, f"{len(reference.other):,} of {reference.about}")


def fake_faces(
    config: EvaluateConfig, subject: Subject, real: RealSide, extractor: Extractor
) -> tuple[FaceSet, np.ndarray]:
    """As many samples as there are real faces, and the first of them as pixels."""
    with bar("samples", real.n) as progress:
        if subject.pack is not None:
            if real.pack is subject.pack and real.chosen is not None:  # faces against others of the same
                chosen = real.chosen[1]
            else:
                chosen = evaluation.choose(subject.pack, len(subject.pack.pixels), config.seed)
                chosen = np.concatenate(chosen)[: real.n]
            faces = evaluation.of_pack(subject.pack, chosen, extractor, progress.update)
            return faces, subject.pack.pixels[chosen[: max(SHOWN, GAP)]]
        assert subject.sampler is not None
        return drawn(subject.sampler, range(config.seed, config.seed + real.n), extractor, progress)


def drawn(sampler: Sampler, seeds: range, extractor: Extractor, progress: tqdm) -> tuple[FaceSet, np.ndarray]:
    """The samples of `seeds` as a set, and the first of them as pixels."""
    examples: list[np.ndarray] = []

    def extract(pixels: np.ndarray) -> Tensor:
        if sum(map(len, examples)) < max(SHOWN, GAP):
            examples.append(pixels)
        progress.update(len(pixels))
        return extractor(pixels)

    faces = evaluation.face_set(sampler.faces(seeds), extract, len(seeds))
    return faces, np.concatenate(examples)


def holdout(subject: Subject) -> float:
    """The share of its faces that a run holds out; what runs do by default where it is not known."""
    return subject.sampler.origin.get("holdout", TrainConfig.holdout) if subject.sampler else TrainConfig.holdout


def look_for_copies(
    fakes: Tensor, pack: Pack, training: np.ndarray, held_out: np.ndarray, extractor: Extractor, result: dict[str, Any]
) -> Copying:
    """Compare samples with every training face; say and note what is found."""
    with bar("all training faces", len(training) + len(held_out)) as progress:
        seen, new = (features.of_pack(extractor, pack, some, progress.update) for some in (training, held_out))
    found = evaluation.copying(fakes, seen, new)
    result["copying"] = {
        "training_faces": len(training),
        "against": found.against,
        "percentiles": {str(p): ratio for p, ratio in found.ratios.items()},
        "copied": found.copied,
    }
    ratios = " / ".join(f"{ratio:.2f}" for ratio in found.ratios.values())
    percentiles = " / ".join(map(str, found.ratios))
    print(
        f"distance to the nearest of {len(training):,} training faces, over that of {found.against}: {ratios} "
        f"(percentiles {percentiles}; copies are far below 1)"
    )
    if found.copied:
        print("some samples are COPIES of training faces, or nearly: far nearer to one than new faces are", flush=True)
    return found


def nearest_pairs(
    copies: Copying, examples: np.ndarray, pack: Pack, training: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The samples nearest to a training face, and those faces: half the closest of all, half the first."""
    count = min(8, len(examples))
    nearest = copies.distances[: len(examples)].argsort()[:count].numpy()
    shown = np.concatenate([nearest, np.setdiff1d(np.arange(len(examples)), nearest)[:count]])
    return examples[shown], pack.pixels[training[copies.nearest[shown].numpy()]]


def discriminator_gap(
    sampler: Sampler,
    pack: Pack,
    training: np.ndarray,
    held_out: np.ndarray,
    examples: np.ndarray,
    result: dict[str, Any],
) -> None:
    """Say how the discriminator tells seen faces, held-out ones and samples apart."""
    if (discriminator := sampler.discriminator) is None:
        return

    def logits(pixels: np.ndarray) -> float:
        means = []
        for start in range(0, len(pixels), sampler.batch):
            faces = to_tensor(torch.from_numpy(np.ascontiguousarray(pixels[start : start + sampler.batch])))
            with torch.no_grad():
                means.append(discriminator(faces.to(sampler.device)).float().cpu())
        return torch.cat(means).mean().item()

    kinds = {"seen": pack.pixels[training[:GAP]], "held_out": pack.pixels[held_out[:GAP]], "samples": examples[:GAP]}
    found = {kind: logits(pixels) for kind, pixels in kinds.items()}
    result["discriminator"] = found
    print(
        f"mean logit of the discriminator: {found['seen']:.2f} for faces it has seen, {found['held_out']:.2f} for "
        f"those held out, {found['samples']:.2f} for samples",
        flush=True,
    )


def curve(
    config: EvaluateConfig, real: RealSide, n: int, extractor: Extractor, device: torch.device
) -> list[dict[str, float]]:
    """The metrics of every checkpoint of a run, oldest first, on `n` samples."""
    points: dict[int, dict[str, float]] = {}
    for path in reversed(checkpoints_in(config.fake)):
        sampler = sampling.load(path, device)
        if sampler.images_seen in points or not sampler.images_seen:
            continue
        with bar(path.name, n) as progress:
            faces, _ = drawn(sampler, range(config.seed, config.seed + n), extractor, progress)
        points[sampler.images_seen] = {"images_seen": sampler.images_seen, **real.reals.measure(faces)}
        print(
            f"{path.name}: {sampler.images_seen:,} images seen, "
            f"FD {points[sampler.images_seen]['fd']:.2f} ({n:,} samples)"
        )
    return [points[seen] for seen in sorted(points)]


def measured_in_training(run: Path) -> list[dict[str, float]]:
    """The rows of a run's log that have metrics, oldest first."""
    log = run / "log.jsonl"
    rows = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()] if log.is_file() else []
    return [{name: row[name] for name in ("images_seen", *METRICS)} for row in rows if "fd" in row]


def table(result: Mapping[str, Any]) -> str:
    """The metrics in columns, with what was compared above them."""
    n = result["n"]
    lines = [
        f"{n:,} samples of {result['fake']}",
        f"against {result['real']}; floor: as many other real faces",
        f"features: {result['features']}; numbers in other features, or with other counts, do not compare",
    ]
    if n < FEW:
        lines.append(f"with fewer than {FEW:,} faces the numbers are rough; look at the floor beside them")
    lines.append(f"{'':18}{'value':>10}{'±':>8}{'floor':>10}  better")
    for name, (label, better, decimals) in METRICS.items():
        of = result["metrics"][name]
        spread = f"{of['deviation']:.{decimals}f}"
        lines.append(f"{label:18}{of['value']:>10.{decimals}f}{spread:>8}{of['floor']:>10.{decimals}f}  {better}")
    return "\n".join(lines)


def save(
    path: Path,
    result: dict[str, Any],
    examples: np.ndarray,
    spectra: Mapping[str, Tensor],
    pairs: tuple[np.ndarray, np.ndarray] | None,
) -> None:
    """Write the picture and, beside it, the numbers.

    Raises:
        ConfigError: they cannot be written.
    """
    numbers = path.with_suffix(".json")
    result["spectra"] = {kind: spectrum.tolist() for kind, spectrum in spectra.items()}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        report.save(path, result, examples[:SHOWN], pairs)
        temporary = numbers.with_name(f".{numbers.name}")
        temporary.write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        temporary.replace(numbers)
    except OSError as error:
        raise ConfigError(f"could not write the report: {error}; choose another --report") from error
    print(f"report: {path}, numbers: {numbers}")


def bar(what: str, total: int, unit: str = "face") -> tqdm:
    """A progress bar, in a terminal."""
    return tqdm(desc=what, total=total, unit=unit, disable=not sys.stderr.isatty(), leave=False)


def main(config: EvaluateConfig, typed: Mapping[str, Any]) -> None:
    """What `python evaluate.py` does."""
    evaluate(config)


if __name__ == "__main__":
    command_line(EvaluateConfig, main)
