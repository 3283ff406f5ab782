"""The decisions before a run's training, and the summary after it. The training itself is in train.py."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from config import RELEASED, SYNTHETIC, CheckpointError, ConfigError, DataError, TrainConfig
from gan import checkpoint, latent
from gan.command_line import show
from gan.data import labels, torchvision_data
from gan.data.faces import Pack, has_faces
from gan.device import describe, free_memory
from gan.files import as_word
from gan.images import PREVIEWS, load_picture
from gan.presets import FEW, FEW_FACES, OTHER_STYLE
from gan.quality import features, selection, whole_faces
from gan.quality.evaluation import LEAST, Evaluator
from gan.quality.sampling import Sampler
from gan.training import plan
from gan.training.run import Run, TrainingState
from gan.training.sittings import new_folder, resumed, starting_from
from gan.watching import health, run_report, tensorboard_log, visdom_page
from gan.watching.curves import BY_DAMAGE
from gan.watching.monitor import Monitor
from gan.watching.output import Output

# Fewest images between numbered checkpoints, on a CPU and on a GPU, unless `--save_every` is typed: some minutes.
SAVED_IMAGES, GPU_SAVED_IMAGES = 20_000, 500_000


@dataclasses.dataclass(frozen=True)
class Faces:
    """The faces of a run, as indices into a pack. `chosen` marks the selected faces; None selects all."""

    pack: Pack
    all_training: np.ndarray
    all_held_out: np.ndarray
    chosen: np.ndarray | None = None
    codes: np.ndarray | None = None  # classes of each face of the pack, see `gan.classes`

    @property
    def training(self) -> np.ndarray:
        """The faces to train on."""
        return self.all_training if self.chosen is None else self.all_training[self.chosen[self.all_training]]

    @property
    def selected_held_out(self) -> np.ndarray:
        """The held-out faces that were selected."""
        return self.all_held_out if self.chosen is None else self.all_held_out[self.chosen[self.all_held_out]]

    def describe(self) -> dict[str, Any]:
        """Return a description for the run's checkpoints."""
        training, held_out = len(self.training), len(self.all_held_out)
        counts = {"training": training, "held_out": held_out, "left_out": len(self.all_training) - training}
        return {"digest": self.pack.digest, "rejected": self.pack.rejected, **counts}


def looked_up(
    config: TrainConfig, typed: Mapping[str, Any], path: Path | None
) -> tuple[TrainConfig, dict[str, Any] | None, Path]:
    """Find the checkpoint or weights and the faces; return the resulting config, checkpoint content and run folder."""
    content = None
    if path is not None:
        config, content = resumed(config, typed, path)
        faces = config.data_path
        if faces != SYNTHETIC and not torchvision_data.is_dataset(faces) and not os.path.lexists(faces.expanduser()):
            where = "" if faces.is_absolute() else f" in {Path.cwd()}"
            raise DataError(f"{faces}: the run's faces are not there{where}; give their place: --data_path=FOLDER")
    elif config.init or config.netg_path or config.netd_path:
        config = starting_from(config, typed)
    if path is None and "data_path" not in typed and not has_faces(config.data_path):
        show(
            f"no faces under {config.data_path}/: training on synthetic faces. With pictures of your own: "
            "python train.py --data_path=FOLDER"
        )
        config = dataclasses.replace(config, data_path=SYNTHETIC)
    previews, faces = config.save_path, config.data_path
    if previews is not None and faces.is_dir() and previews.resolve().is_relative_to(faces.resolve()):
        raise ConfigError(  # when the run is resumed
            f"--save_path: {previews} lies in {faces}, where previews would be taken for faces; choose another folder"
        )
    if previews is not None and path is None and any(previews.glob(PREVIEWS)):
        raise ConfigError(f"--save_path: {previews} holds the previews of another run; choose another folder")
    return config, content, new_folder(config) if path is None else path.parent


def planned(
    config: TrainConfig, typed: Mapping[str, Any], machine: plan.Machine, since: float, faces: int
) -> TrainConfig:
    """Return the config with the options that suit its budget on this machine, and print them.

    The budget began at `since`.
    """
    if config.budget is None:
        return config
    spent = time.perf_counter() - since
    if spent > 0.9 * 60 * config.budget:
        raise ConfigError(
            f"preparing the run took {spent / 60:.2g} of the {config.budget:g} minutes of --budget; the pictures are "
            "packed now, so run the same command again, which is faster, or give more minutes"
        )
    if config.preset != "default" or config.init or config.netg_path or config.netd_path:
        return config
    left = 60 * config.budget - spent
    chosen = plan.choose(config, typed, machine, left, faces)
    own = [name for name in chosen.plan.options if getattr(chosen.config, name) != getattr(config, name)]
    options = " ".join(f"--{name}={getattr(chosen.config, name)}" for name in own)
    # Only many anime faces of this size, with samples that are asked to look whole, were counted by eye.
    counted = config.whole and faces > FEW_FACES and config.image_size == TrainConfig.image_size
    show(
        f"{config.budget:g} minutes on {describe(machine.device)}: {chosen.rate:.0f} images/s measured; chosen: "
        f"{machine.precision}, {options or 'the default networks'}; about {chosen.images:,.0f} images"
        f"{f'; expect {chosen.plan.expect}' if counted else ''}"
    )
    return chosen.config


def anime(config: TrainConfig, faces: Faces, device: torch.device) -> bool | None:
    """Return whether these are anime faces; None if the files that tell are missing."""
    if config.data_path == SYNTHETIC:
        return False
    with contextlib.suppress(CheckpointError):
        return knows(whole_faces.load(features.load("faces", None, device)), faces)
    return None


def suited_to_kind(config: TrainConfig, faces: Faces, known: Callable[[], bool | None]) -> TrainConfig:
    """Return the config with what depends on whether these are anime faces (`known`), where it is not settled yet.

    That is `whole`, and the metric that decides best.pt: damage for anime faces, FD for others.
    """
    own = dict[str, Any]()
    if config.eval_images and len(faces.pack.pixels) >= LEAST:
        own["best_by"] = BY_DAMAGE if known() else "fd"
    if config.whole is None:
        own["whole"] = float(bool(known()))
        if own["whole"]:
            show("samples are also trained to look whole: fewer broken eyes, a little less variety; without: --whole=0")
    return dataclasses.replace(config, **own)


def knows(whole: whole_faces.WholeFaces, faces: Faces) -> bool:
    """Return whether the faces are anime faces, judged by a random subset."""
    some = latent.stream(0, 0, "whole").permutation(faces.all_training)[: whole_faces.ASKED]
    return whole.knows(features.of_pack(whole.extractor, faces.pack, some))


def labelled(
    config: TrainConfig, content: Mapping[str, Any] | None, faces: Faces, texts: labels.Texts | None
) -> labels.Labels | None:
    """Return the labels of a pack's faces; None if there are none.

    A resumed run keeps its own labels. A new run takes those classes of `texts` that enough faces have.
    """
    if content is None:
        return labels.learned(texts or {}, faces.training, config.data_path, config.classes, show)
    codes = content.get("codes")
    return None if codes is None else (config.vocabulary, codes.cpu().numpy().astype(np.int64))


def select_faces(
    config: TrainConfig, content: Mapping[str, Any] | None, faces: Faces, device: torch.device
) -> np.ndarray | None:
    """Select the faces of a pack to learn from (instance selection), and print the selection.

    A resumed run takes the selection from its checkpoint. For a new one, features may take a tenth of a budget.

    Returns:
        A boolean mask of the pack's faces, True if selected; None if all are.
    """
    pack, training, held_out = faces.pack, faces.all_training, faces.all_held_out
    if content is not None:
        return selection.unpacked(content.get("chosen_faces"), pack)
    if config.typical == 1 or not pack.many or config.data_path == SYNTHETIC:
        return None
    until = math.inf if config.budget is None else time.perf_counter() + 6 * config.budget

    def looked_at(more: int) -> None:
        bar.update(more)
        if time.perf_counter() > until:
            raise TimeoutError

    extractor, everything = features.load("faces", None, device), len(training) + len(held_out)
    whole = whole_faces.load(extractor)
    known = knows(whole, faces)
    share = config.typical or (selection.WHOLE if known else selection.TYPICAL)
    try:
        with tqdm(desc="looking at the faces", total=everything, unit=" faces", disable=None, leave=False) as bar:
            chosen = selection.select_instances(
                pack, training, held_out, share, extractor, looked_at, whole if known else None
            )
    except TimeoutError:
        show("selecting faces would take more than a tenth of the budget: all are used")
        return None
    which = "that look most whole" if known else "that are most like the rest"
    show(f"learning from the {share:.0%} of the faces {which}; from all of them: --typical=1")
    return chosen


def choose_compile(config: TrainConfig, machine: plan.Machine, since: float, faces: int, before: bool | None) -> bool:
    """Return whether to compile the networks: as typed, else only on a single GPU, there as `before` in a resumed run.

    Without `before` a measurement decides; if it decides for it, print the gain. Compiled networks are slower on two
    CPU cores, see docs/experiments.md.
    """
    if config.compile is not None or machine.device.type != "cuda" or machine.world > 1:
        return bool(config.compile)
    if before is not None:
        return before
    images = config.epochs * faces
    if config.budget is not None:
        left = max(0.0, 60 * config.budget - (time.perf_counter() - since))
        images = min(images, left * plan.images_per_second(config, machine, 1.0))
    saved = plan.compile_pays(config, machine, images)
    free_memory(machine.device)  # used by the networks that were measured
    if saved is not None:
        show(f"the networks are compiled: {saved}")
    return saved is not None


def same_kind(before: str, device: torch.device) -> bool:
    """Return whether the earlier device, in words, and this one are both CPUs or both GPUs."""
    return before.startswith("CPU") == (device.type == "cpu")


def suited(
    config: TrainConfig, typed: Mapping[str, Any], faces: int, device: torch.device, known: Callable[[], bool | None]
) -> TrainConfig:
    """Return the config with the options that suit this number of faces; print them, or advice for few faces.

    `known` tells whether they are anime faces.
    """
    few, usual = faces <= FEW_FACES, dataclasses.replace(config.model, vocabulary=()) == TrainConfig().model
    own = dict[str, Any]()
    # The discriminator soon memorises a small set and then teaches the generator to copy it. Frozen layers, and faces
    # that never look quite the same twice, delay that.
    if few and config.init is not None and config.preset == "default":
        other = OTHER_STYLE if config.init == RELEASED and known() is False else {}
        if other.keys() - typed.keys():
            show("these faces are in another style than the released generator's, which it learns at higher rates")
        own = {name: value for name, value in {**FEW, **other}.items() if name not in typed}
    if own:
        options = " ".join(f"--{name}={value}" for name, value in own.items())
        show(f"{faces:,} faces are few, so the discriminator may learn them by heart; chosen: {options}")
    elif few and usual and config.init is None and config.data_path != SYNTHETIC:
        show(
            f"{faces:,} faces are few to learn from; if they are anime faces, starting from the released generator, "
            f"which has seen many, gives better ones: --init=released{'' if config.budget else ' --budget=10'}"
        )
    least = SAVED_IMAGES if device.type == "cpu" else GPU_SAVED_IMAGES
    if "save_every" not in typed and faces * config.save_every < least:
        own["save_every"] = math.ceil(least / faces)  # otherwise a small set would fill the disk
    return dataclasses.replace(config, **own)


def extension(config: TrainConfig) -> str:
    """Return the option that extends a finished run: by as many minutes again, or by some epochs."""
    return f"--max_epoch={config.epochs + 50}" if config.budget is None else f"--budget={config.budget:g}"


def open_evaluator(run: Run, state: TrainingState, faces: Faces) -> Evaluator | None:
    """Open a run's evaluator, which uses all faces, selected or not; None without evaluation or with too few faces."""
    config = run.config
    if not config.eval_images or len(faces.pack.pixels) < LEAST:
        return None
    path, found = run.folder / "best.pt", dict[str, Any]()
    with contextlib.suppress(CheckpointError):  # damaged or foreign: the next one is better
        if state.step and path.is_file():  # the folder of a new run may turn out to belong to another
            found = checkpoint.load(path, required=("evaluation",), hint=False)["evaluation"]
    extractor = features.measuring(run.device)
    best = found if found.get("features") == extractor.name else None
    sampler = Sampler(state.ema, None, config.model, run.device, run.precision, classes=run.classes)
    of = faces.pack, faces.all_training, faces.all_held_out
    return Evaluator(*of, extractor, sampler, config.best_by, best, 0 if best else state.step * config.batch_size)


def open_probe(faces: Faces) -> health.Probe:
    """Open the probe that checks the networks at each preview, with random training faces and held-out faces."""
    kinds = faces.training, faces.selected_held_out
    some = [latent.stream(0, 0, "probe").permutation(of)[: health.PROBED] for of in kinds]
    codes = None if faces.codes is None else [torch.from_numpy(faces.codes[indices]) for indices in some]
    seen, held_out = (faces.pack.pixels[indices] for indices in some)
    return health.Probe(seen, held_out, codes)


def opened_outputs(run: Run, samples: Path) -> list[Output]:
    """Open the outputs that display the run: its report, and those that were asked for. Print where they are."""
    config, outputs = run.config, list[Output]()
    if not run.ranks.first:
        return outputs
    options = {**dataclasses.asdict(config), **run.describe()["chosen"]}
    del options["vocabulary"]  # it may be long
    outputs.append(run_report.RunReport(run.folder, options, samples))
    if config.vis:
        name, env = run.folder.name, config.env or run.folder.name
        page, where = visdom_page.open_page(config.vis_server, env, name, options)
        show(where)
        if page is not None:
            outputs.append(page)
    if last := max(samples.glob(PREVIEWS), default=None):
        with contextlib.suppress(OSError, ValueError):  # a file cut short by a power failure, or not a preview
            step, grid = int(last.stem.removeprefix("step-")), load_picture(last)
            for output in outputs:
                output.picture("samples", f"Samples of step {step:,}, before the run was resumed", grid, step)
    if config.tensorboard:  # which has the earlier samples
        outputs.append(tensorboard_log.TensorBoardLog(run.folder / "tensorboard", options))
        show(f"TensorBoard: tensorboard --logdir {run.folder.parent}")
    return outputs


def summary(run: Run, state: TrainingState, monitor: Monitor, samples: Path) -> list[str]:
    """Return the lines printed at the end of a session: progress, quality, and what to do next."""
    config, folder = run.config, run.folder
    more = f" {extension(config)}" if state.finished else ""
    lines = [
        f"{'finished' if more else 'stopped'} at step {state.step}, {state.step * config.batch_size:,} images seen, "
        f"{monitor.seconds / 60:.1f} minutes of training"
    ]
    if monitor.diagnosis is not None:
        lines.append(f"verdict: {monitor.diagnosis.short}: {monitor.diagnosis.text}")
    try:
        if not (folder / "best.pt").is_file():
            raise CheckpointError("there is none")
        best = checkpoint.load(folder / "best.pt", required=("evaluation", "images_seen"), hint=False)
        found = health.in_words(best["evaluation"], config.best_by)
        lines.append(f"best:    {found} at {best['images_seen']:,} images, in {folder / 'best.pt'}")
    except CheckpointError:
        why = "best.pt could not be kept" if monitor.curves.column("fd")[0].size else "quality was not measured"
        lines.append(f"best:    {why}, so the last state counts, {run.latest}")
    lines.append(f"samples: {samples}")
    for name, file in (("report:", "report.html"), ("film:", "timelapse.webp")):
        if (folder / file).is_file():
            lines.append(f"{name:8} {folder / file}")
    word = as_word(folder)
    lines.append(f"faces:   python generate.py --checkpoint={word}")
    lines.append(f"measure: python evaluate.py --fake={word}")
    lines.append(f"go on:   python train.py --resume={word}{more}")
    return lines
