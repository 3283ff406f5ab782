"""Measure the quality of generated faces: python evaluate.py --fake=checkpoints/RUN."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # which python -I and PYTHONSAFEPATH=1 leave out
from config import (
    IMAGE_SIZES,
    NOGPU,
    RELEASED,
    ConfigError,
    DataError,
    TrainConfig,
    check_numbers,
    option,
)

# isort: split

import contextlib
import dataclasses
import json
import os
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from gan import files, hub, language
from gan.command_line import command_line, log
from gan.data.faces import Pack, has_faces, open_pack
from gan.data.labels import labels_of, translated
from gan.device import choose_device, enough_memory
from gan.encoder import SIZE
from gan.files import printable
from gan.language import said, speaking, text
from gan.quality import classification, evaluation, features, report, run_history, sampling, selection
from gan.quality.evaluation import LEAST, Copying, FaceSet, RealStatistics
from gan.quality.features import Extractor
from gan.quality.sampling import Sampler
from gan.watching.curves import METRICS

FEW = 1000  # with fewer faces of each kind, a warning is printed with the numbers
NOTE = "not comparable with numbers in other features or with other counts"
OWN, REAL = "faces it was trained on", "real faces"  # which samples may be copies of
UNKNOWN_DAMAGE = 2.0  # of real faces, from which on damage does not know their kind; anime faces have 1.5
SHOWN, PAIRS = 64, 8  # number of samples in the report, and of pairs of each kind


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluateConfig:
    """Measure how good generated faces are, against real ones."""

    examples: ClassVar[tuple[str, ...]] = (
        "--real=my_faces",
        "--fake=checkpoints/my_run",
        "--fake=pictures --real=my_faces --pairs",
    )

    fake: Path = option(
        RELEASED,
        "what to measure: a checkpoint, a run's folder (its best.pt, else latest.pt), or a folder or zip of pictures; "
        "by default released, the generator that comes with the program.",
    )
    real: Path | None = option(
        None,
        "the real faces: a folder, a zip, or synthetic; unset takes those that a run was trained on, else those in "
        "data/, else the features that come with the program, of the released generator's training faces.",
    )
    n: int = option(
        5000, "samples, and as many real faces; at most half of those there are; as many others give the floor.", ge=50
    )
    seed: int = option(
        0,
        "seed of the first sample, and of the choice among real faces; for n other samples add n to it.",
        ge=0,
        le=2**53,
    )
    features: str = option(
        "imagenet",
        "imagenet: EfficientNet-lite2, trained on photographs; faces: the encoder that comes with the program; or "
        "inception:FILE: FID as papers report it, which needs requirements-extra.txt and the file of weights (without "
        ":FILE they are downloaded).",
    )
    image_size: int | None = option(
        None,
        "height and width at which pictures are read, pixels; imagenet, faces and damage always look at 96; unset: "
        "those of a checkpoint, else 96.",
        choices=IMAGE_SIZES,
    )
    pairs: bool = option(False, "in the report, show samples beside the faces nearest to them.")
    report: Path = option(
        Path("evaluation.png"), "the picture to write; the numbers go beside it, with .json in place of its ending."
    )
    gpu: bool | None = option(None, f"compute on the GPU; {NOGPU}")

    def __post_init__(self) -> None:
        check_numbers(self)
        features.parse(self.features)
        if self.report.suffix.lower() != ".png":
            raise ConfigError("--report: expected a name ending in .png; got '{}'", self.report)


@enough_memory("out of memory: stop other programs that use it, or measure with --nogpu")
def main(config: EvaluateConfig, typed: Mapping[str, Any]) -> None:
    """Run `python evaluate.py`: measure, print the numbers, and write them and a picture.

    Raises:
        UserError: faces or a checkpoint cannot be used, or the report cannot be written.
    """
    device = choose_device(config.gpu)
    subject = open_subject(config, device)
    pack = open_real_pack(config, subject)
    extractor = features.measuring(device, config.features)
    real = open_reals(config, subject, pack, extractor)
    seeds = range(config.seed, config.seed + real.n)
    copying = real.pack is not None and subject.pack is not real.pack
    of_copies = features.load("faces", device) if copying else None  # trained to distinguish faces, and fast
    samples = take_samples(subject, real, seeds, extractor, of_copies)
    values = real.reals.measure(samples.faces)
    with bar(text("resamples"), evaluation.HALVES, text("half")) as progress:
        deviations = evaluation.deviations(real.reals, samples.faces, progress.update)
    with speaking("en"):  # as all files
        about = {"fake": subject.about(), "real": real.about()}
    result: dict[str, Any] = {
        **about,
        "features": extractor.name,
        "note": NOTE,
        "n": real.n,
        "seed": config.seed,
        "metrics": {
            name: {"value": values[name], "deviation": deviations[name], "floor": real.floor.get(name)}
            for name in METRICS
        },
    }
    log(table(result, subject.about(), real.about()))
    if subject.sampler and subject.sampler.classes.vocabulary:
        measure_classes(subject.sampler, real, seeds, samples, result)
    pairs = None
    if real.pack is not None and samples.copies is not None:
        learnt = learnt_from(subject, real.pack)
        copies = look_for_copies(*samples.copies, learnt, result)
        if config.pairs:
            pairs = nearest_pairs(copies, samples, learnt)
    if os.path.isdir(config.fake) and subject.sampler:
        result["run"] = run_history.measure(config.fake, extractor, real.reals, seeds)
    numbers = config.report.with_suffix(".json")
    try:
        report.save(config.report, result, samples.first, pairs)
        files.write_text(numbers, json.dumps(result, indent=2, ensure_ascii=False) + "\n")
    except OSError as error:
        raise ConfigError("could not write the report: {}; choose another --report", error) from error
    log(text("report: {}, numbers: {}").format(config.report, numbers))


@dataclasses.dataclass
class Subject:
    """The subject of the evaluation: a generator, or the pictures of a folder."""

    sampler: Sampler | None
    pack: Pack | None
    about: Callable[[], str]  # describes it, in the language of `gan.language.lang`
    size: int  # height and width of the faces, pixels
    channels: int  # 3 for colour, 1 for grey


def open_subject(config: EvaluateConfig, device: torch.device) -> Subject:
    """Load the generator, or open the pictures, that --fake names."""
    named = config.fake.suffix == ".pt" or config.fake.name == hub.WEIGHTS
    if named or any(os.path.isfile(config.fake / name) for name in sampling.FILES):
        sampler = sampling.load(config.fake, device)
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):  # a run's faces may have moved since
            options = json.loads((config.fake / "config.json").read_text(encoding="utf-8"))["config"]
            sampler.origin = {**sampler.origin, "data_path": str(options["data_path"])}
        if config.image_size not in (None, sampler.model.image_size):
            raise ConfigError(
                "--image_size={}: {} generates faces of {} pixels; leave the option out",
                config.image_size,
                config.fake,
                sampler.model.image_size,
            )

        def about() -> str:
            name = text("the released generator") if config.fake == RELEASED else printable(str(config.fake))
            return text("{}, {:,} images seen").format(name, sampler.images_seen)

        return Subject(sampler, None, about, sampler.model.image_size, sampler.model.channels)
    try:
        pack = open_pack(config.fake, config.image_size or SIZE)
    except DataError as error:
        raise DataError("{}; --fake also takes a checkpoint or a run's folder", error) from error
    n = len(pack.pixels)
    if n < LEAST:
        raise DataError(
            "{} pictures in {}; expected at least {} to measure; give more with --fake", n, config.fake, LEAST
        )
    return Subject(None, pack, lambda: printable(str(config.fake)), pack.pixels.shape[1], 3)


def known_faces(subject: Subject) -> Path | None:
    """Find the default real faces: those that the generator was trained on, else those in data/."""
    if subject.sampler is not None and "data_path" in subject.sampler.origin:
        path = Path(subject.sampler.origin["data_path"])
        if has_faces(path):
            return path
        log(text("the faces it was trained on are no longer at {}").format(path))
    default = TrainConfig.data_path
    return default if has_faces(default) else None


def open_real_pack(config: EvaluateConfig, subject: Subject) -> tuple[Path, Pack] | None:
    """Open the real faces; returns their path and pack, or None if only the statistics in the program are available."""
    path, pack = config.real or known_faces(subject), None
    same = path is not None and subject.pack is not None and path.resolve() == config.fake.resolve()
    if path is not None and not (config.pairs and same):
        pack = open_pack(path, subject.size, channels=subject.channels)
        if subject.pack is not None and subject.pack.digest == pack.digest:
            subject.pack = pack
    if config.pairs and (pack is None or subject.pack is pack):
        raise ConfigError(
            "--pairs shows samples beside the nearest real faces, and there are none here; give --real=FOLDER, a "
            "folder other than --fake"
        )
    return None if path is None or pack is None else (path, pack)


@dataclasses.dataclass
class RealFaces:
    """The `n` real faces that the samples are compared with, and their pack if it is available."""

    reals: RealStatistics
    floor: Mapping[str, float]
    about: Callable[[], str]  # as of a `Subject`
    pack: Pack | None = None
    path: Path | None = None  # where the pack's faces are
    others: np.ndarray = dataclasses.field(default_factory=lambda: np.arange(0))  # indices of the floor's faces
    chosen: np.ndarray = dataclasses.field(default_factory=lambda: np.arange(0))  # indices of the n real faces
    of_others: Tensor | None = None  # features of the floor's faces

    @property
    def n(self) -> int:
        """Return the number of real faces, which is also the number of samples compared with them."""
        return len(self.reals.features)


def open_reals(
    config: EvaluateConfig, subject: Subject, at_hand: tuple[Path, Pack] | None, extractor: Extractor
) -> RealFaces:
    """Measure as many real faces as there will be samples, and as many others for the floor."""
    n = config.n if subject.pack is None else min(config.n, len(subject.pack.pixels))
    if at_hand is None:
        return open_reference(n, subject, extractor)
    path, pack = at_hand
    first, second = evaluation.choose(pack, n, config.seed)
    if len(first) < LEAST:
        raise DataError(
            "{:,} different real faces in {}; expected at least {}, half of them for the floor; give more with "
            "--real=FOLDER",
            len(np.unique(pack.hashes)),
            path,
            2 * LEAST,
        )
    with bar(text("real faces"), 2 * len(first)) as progress:
        one, other = (evaluation.of_pack(pack, some, extractor, progress.update) for some in (first, second))
    reals = RealStatistics(one.features)

    def about() -> str:
        return text("{:,} of {:,} faces of {}").format(len(first), len(pack.pixels), printable(str(path)))

    return RealFaces(reals, reals.measure(other), about, pack, path, second, first, other.features)


def open_reference(n: int, subject: Subject, extractor: Extractor) -> RealFaces:
    """Load the statistics of real faces that come with the program."""
    reference = evaluation.load_reference(n)
    if extractor.name != reference.extractor or (subject.size, subject.channels) != (SIZE, 3):
        grey = text(" and grey") if subject.channels == 1 else ""
        raise ConfigError(
            "the program comes only with features of real faces ({}, {} pixels, colour); got {}, {} pixels{}; "
            "give real faces: --real=FOLDER",
            reference.extractor,
            SIZE,
            extractor.name,
            subject.size,
            grey,
        )
    floor: Mapping[str, float] = reference.floor
    if len(reference.other) < reference.n:
        damage = reference.floor["damage_x100"]  # a mean, which does not depend on the number
        floor = {**reference.reals.measure_features(reference.other), "damage_x100": damage}

    def about() -> str:
        return text("{:,} of {}").format(len(reference.other), text(reference.about))

    return RealFaces(reference.reals, floor, about)


@dataclasses.dataclass
class Samples:
    """The samples: the whole set, the first of them as pixels, and a function from indices to pixels.

    `copies` has the encoder that finds copies and its features of the samples; None if there are no faces to copy.
    """

    faces: FaceSet
    copies: tuple[Extractor, Tensor] | None
    first: np.ndarray
    pixels: Callable[[np.ndarray], np.ndarray]


def take_samples(
    subject: Subject, real: RealFaces, seeds: range, extractor: Extractor, of_copies: Extractor | None
) -> Samples:
    """Generate the samples of some seeds, or take as many from the pack."""
    with bar(text("samples"), real.n) as progress:
        if (pack := subject.pack) is not None:
            if real.pack is pack:  # compare faces with others of the same pack
                chosen = real.others
            else:
                chosen = np.random.default_rng(seeds.start).permutation(len(pack.pixels))[: real.n]
            faces = evaluation.of_pack(pack, chosen, extractor, progress.update)
            copies = of_copies and (of_copies, features.of_pack(of_copies, pack, chosen))
            return Samples(faces, copies, pack.pixels[chosen[:SHOWN]], lambda which: pack.pixels[chosen[which]])
        sampler = subject.sampler
        assert sampler is not None

        def again(which: np.ndarray) -> np.ndarray:
            return np.concatenate(list(sampler.faces([seeds[i] for i in which.tolist()])))

        first, seen = list[np.ndarray](), list[Tensor]()

        def extract(pixels: np.ndarray) -> Tensor:
            if sum(map(len, first)) < SHOWN:
                first.append(pixels)
            if of_copies:
                seen.append(of_copies(pixels))
            return extractor(pixels)

        faces = evaluation.face_set(sampler.faces(seeds), extract, extractor.damage, progress.update)
        copies = of_copies and (of_copies, torch.cat(seen))
        return Samples(faces, copies, np.concatenate(first)[:SHOWN], again)


def table(result: Mapping[str, Any], fake: str, real: str) -> str:
    """Format the metrics as columns, below a description of what was compared: of `fake` and `real`."""
    n = result["n"]
    lines = [
        text("{:,} samples of {}").format(n, fake),
        text("against {}; floor: as many other real faces").format(real),
        text("features: {}; {}").format(result["features"], text(NOTE)),
    ]
    if n < FEW:
        lines.append(text("with fewer than {:,} faces the numbers are rough; compare them with the floor").format(FEW))
    value, floor, better = text("value"), text("floor"), text("better")
    lines.append(" " * 18 + right(value, 10) + right("±", 8) + right(floor, 10) + f"  {better}")
    for label, value, deviation, floor, better in report.rows(result):
        lines.append(f"{label:18}{value:>10}{deviation:>8}{floor:>10}  {text(better)}")
    if (damage := result["metrics"]["damage_x100"]["floor"]) is not None and damage > UNKNOWN_DAMAGE:
        lines.append(text("damage knows anime faces alone, which these real ones are not; go by FD and recall"))
    return "\n".join(lines)


def right(word: str, columns: int) -> str:
    """Right-align a word in a terminal, where Chinese letters are two columns wide."""
    return word.rjust(columns + len(word) - sum(map(language.columns, word)))


def measure_classes(sampler: Sampler, real: RealFaces, seeds: range, samples: Samples, result: dict[str, Any]) -> None:
    """Print how well samples match each class, according to a classifier trained on real faces and to FD."""
    not_measured = text("whether samples look like their classes is not measured")
    if real.pack is None or real.path is None or real.of_others is None:
        log(text("{}: the real faces are not at hand; --real=FOLDER").format(not_measured))
        return
    try:
        labels = labels_of(real.pack, real.path, True, lambda line: None)
    except DataError as error:
        log(f"{not_measured}: {said(error)}")
        return
    vocabulary = sampler.classes.vocabulary
    assert labels is not None  # they were wanted
    codes = translated(labels, vocabulary)
    asked = sampler.classes.of_seeds(seeds)
    taught, others = (real.reals.features, codes[real.chosen]), (real.of_others, codes[real.others])
    found = classification.measure(vocabulary, taught, others, (samples.faces.features, asked))
    result["classes"] = [dataclasses.asdict(column) for column in found]
    for column in found:
        log(str(column))
    if len(found) < len(vocabulary):
        left = [names[0] for names in vocabulary if names[0] not in [column.name for column in found]]
        few = text("{} for {}: needs two classes and {} labelled faces")
        log(few.format(not_measured, text(", ").join(left), classification.LEAST))


@dataclasses.dataclass
class Learnt:
    """Distinct faces that samples may be copies of, as indices into a pack; `certain` if those trained on."""

    pack: Pack
    training: np.ndarray
    held_out: np.ndarray
    certain: bool


def learnt_from(subject: Subject, real: Pack) -> Learnt:
    """Choose the faces that the samples may be copies of: the training faces if they are known, else the real ones."""
    origin = subject.sampler.origin if subject.sampler else {}
    pack, certain = real, origin.get("digest") == real.digest
    if not certain and "data_path" in origin and has_faces(path := Path(origin["data_path"])):
        with contextlib.suppress(DataError):  # the faces have changed
            own = open_pack(path, subject.size, channels=subject.channels)
            if own.digest == origin.get("digest"):
                pack, certain = own, True
    training, held_out = pack.split(origin.get("holdout", TrainConfig.holdout) if certain else 0)
    chosen = selection.unpacked(origin.get("chosen_faces"), pack) if certain else None
    if chosen is not None:
        training, held_out = training[chosen[training]], held_out[chosen[held_out]]
    # Equal faces would be each other's nearest. In random order, the faces of one folder do not come first.
    random = np.random.default_rng(0)
    training, held_out = (
        random.permutation(some[np.unique(pack.hashes[some], return_index=True)[1]]) for some in (training, held_out)
    )
    return Learnt(pack, training, held_out, certain)


def look_for_copies(extractor: Extractor, fakes: Tensor, learnt: Learnt, result: dict[str, Any]) -> Copying:
    """Compare samples (N, F) with all faces that they may be copies of; print and record the result."""
    with bar(text("faces to be copied"), len(learnt.training) + len(learnt.held_out)) as progress:
        seen, new = (
            features.of_pack(extractor, learnt.pack, some, progress.update)
            for some in (learnt.training, learnt.held_out)
        )
    found = evaluation.copying(fakes, seen, new)
    what = OWN if learnt.certain else REAL
    with speaking("en"):  # as all files
        against = found.against
    result["copying"] = {
        "faces": len(seen),
        "what": what,
        "against": against,
        "percentiles": {str(p): ratio for p, ratio in found.ratios.items()},
        "copied": found.copied,
    }
    ratios = " / ".join(f"{ratio:.2f}" for ratio in found.ratios.values())
    percentiles = " / ".join(map(str, found.ratios))
    line = text(
        "distance to the nearest of all {:,} {}, divided by that of {}: {} (percentiles {}; copies are far below 1)"
    )
    log(line.format(len(seen), text(what), found.against, ratios, percentiles))
    if found.copied:
        log(text("some samples are COPIES of such faces, or nearly: far nearer to them than new faces are"))
    return found


def nearest_pairs(copies: Copying, samples: Samples, learnt: Learnt) -> tuple[np.ndarray, np.ndarray]:
    """Return samples and the faces nearest to them: first the samples with the least distance, then the first ones."""
    nearest = copies.distances.argsort()[:PAIRS].numpy()
    shown = np.concatenate([nearest, np.setdiff1d(np.arange(2 * PAIRS), nearest)[:PAIRS]])
    return samples.pixels(shown), learnt.pack.pixels[learnt.training[copies.nearest[shown].numpy()]]


def bar(what: str, total: int, unit: str = "") -> tqdm:
    """Return a progress bar, which is shown only in a terminal."""
    return tqdm(desc=what, total=total, unit=unit or text("face"), disable=None, leave=False)


if __name__ == "__main__":
    command_line(EvaluateConfig, main)
