"""What a new run chooses by itself: the faces to learn from, and options for them and for the budget."""

import dataclasses
import math
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from config import RELEASED, SYNTHETIC, ConfigError, TrainConfig, options_of
from gan import latent
from gan.command_line import log
from gan.data.faces import Pack
from gan.device import describe
from gan.language import text
from gan.presets import FEW, FEW_FACES, MANY_FACES, OTHER_STYLE, suggested
from gan.quality import features, selection, whole_faces
from gan.quality.evaluation import LEAST
from gan.training import plan
from gan.watching.curves import BY_DAMAGE

# Fewest images between numbered checkpoints, on a CPU and on a GPU, unless `--save_every` is typed: some minutes.
SAVED_IMAGES, GPU_SAVED_IMAGES = 20_000, 500_000
HOURS_ON_A_CPU = 1_000_000  # images that take two quick cores four hours


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


def share(config: TrainConfig, faces: Faces, anime: bool) -> float:
    """Return the share of the faces to learn from; unless it is typed, at least 2,000 faces, or all."""
    if config.data_path == SYNTHETIC:
        return 1.0
    usual = selection.WHOLE if anime else selection.TYPICAL
    return config.typical or min(1.0, max(usual, round(selection.LEAST / len(faces.all_training), 2)))


def is_anime(config: TrainConfig, faces: Faces, device: torch.device) -> bool:
    """Return whether these are anime faces, judged by a random subset; False where nothing depends on it."""
    measured, selected = config.eval_images and len(faces.pack.pixels) >= LEAST, share(config, faces, True) < 1
    matters = config.whole is None or config.init == RELEASED or measured or selected
    if config.data_path == SYNTHETIC or not matters:
        return False
    whole = whole_faces.load(features.load("faces", device))
    some = latent.stream(0, 0, "whole").permutation(faces.all_training)[: whole_faces.ASKED]
    return whole.knows(features.of_pack(whole.extractor, faces.pack, some))


def select_faces(config: TrainConfig, faces: Faces, device: torch.device, anime: bool) -> np.ndarray | None:
    """Select the faces of a pack to learn from (instance selection), and print the selection.

    Features may take a tenth of a budget.

    Returns:
        A boolean mask of the pack's faces, True if selected; None if all are.
    """
    pack, training, held_out = faces.pack, faces.all_training, faces.all_held_out
    selected = share(config, faces, anime)
    if selected == 1:
        return None
    until = math.inf if config.budget is None else time.perf_counter() + 6 * config.budget

    def looked_at(more: int) -> None:
        bar.update(more)
        if time.perf_counter() > until:
            raise TimeoutError

    extractor, everything = features.load("faces", device), len(training) + len(held_out)
    whole = whole_faces.load(extractor) if anime else None
    try:
        with tqdm(
            desc=text("looking at the faces"), total=everything, unit=text(" faces"), disable=None, leave=False
        ) as bar:
            chosen = selection.select_instances(pack, training, held_out, selected, extractor, looked_at, whole)
    except TimeoutError:
        log(text("selecting faces would take more than a tenth of the budget: all are used"))
        return None
    if anime:
        line = text("learning from the {:.0%} of the faces that look most whole; from all of them: --typical=1")
    else:
        line = text("learning from the {:.0%} of the faces that are most like the rest; from all of them: --typical=1")
    log(line.format(selected))
    return chosen


def suited(
    config: TrainConfig, typed: Mapping[str, Any], faces: Faces, device: torch.device, anime: bool
) -> TrainConfig:
    """Return the config with the options that suit the faces; print them, or advice for few faces."""
    n = len(faces.training)
    few, usual = n <= FEW_FACES, dataclasses.replace(config.model, vocabulary=()) == TrainConfig().model
    own = dict[str, Any]()
    # The discriminator soon memorises a small set and then teaches the generator to copy it. Frozen layers, and faces
    # that never look quite the same twice, delay that.
    if few and config.init is not None and config.preset == "default":
        other = OTHER_STYLE if config.init == RELEASED and not anime else {}
        if other.keys() - typed.keys():
            log(text("the style differs from the released generator's; using higher learning rates"))
        own = {name: value for name, value in {**FEW, **other}.items() if name not in typed}
    if own:
        line = text(
            "{:,} faces are few: so that the generator does not learn to copy them, the first layers of the "
            "discriminator stay as they are, and it sees the faces in more variations"
        ).format(n)
        rates = " ".join(f"--{name}={value}" for name, value in own.items() if name in options_of(TrainConfig))
        log(line + (text("; chosen: {}").format(rates) if rates else ""))
    elif (anime or few) and usual and config.init is None and config.data_path != SYNTHETIC:
        options = "--init=released" if config.budget else suggested(n)
        if anime:
            line = text("for anime faces the released generator, which has learned from many, is a better start: {}")
            log(line.format(options))
        else:
            line = text("{:,} faces are few to learn from; if they are drawn, start from the released generator: {}")
            log(line.format(n, options))
    least = SAVED_IMAGES if device.type == "cpu" else GPU_SAVED_IMAGES
    if "save_every" not in typed and n * config.save_every < least:
        own["save_every"] = math.ceil(least / n)  # otherwise a small set would fill the disk
    if config.eval_images and len(faces.pack.pixels) >= LEAST:
        own["best_by"] = BY_DAMAGE if anime else "fd"
    if config.whole is None:
        own["whole"] = float(anime)
        if anime:
            log(text("using the wholeness loss: fewer broken eyes, slightly less variety (off: --whole=0)"))
        elif config.data_path != SYNTHETIC:
            log(text("these do not look like anime faces: training without the wholeness loss (on: --whole=1)"))
    return dataclasses.replace(config, **own)


def planned(
    config: TrainConfig, typed: Mapping[str, Any], machine: plan.Machine, since: float, faces: int
) -> TrainConfig:
    """Return the config with the options that suit its budget on this machine, and print them.

    The budget began at `since`.
    """
    if config.budget is None:
        if machine.device.type == "cpu" and "max_epoch" not in typed and config.epochs * faces > HOURS_ON_A_CPU:
            line = text(
                "without --budget it is {} epochs, {:,} images, which take a CPU hours; for one hour: --budget=60"
            )
            log(line.format(config.epochs, config.epochs * faces))
        return config
    spent = time.perf_counter() - since
    if spent > 0.9 * 60 * config.budget:
        line = text(
            "preparing the run took {:.2g} minutes of --budget={:g}; the pictures are packed now, so run the same "
            "command again, which is faster, or give more minutes"
        )
        raise ConfigError(line.format(spent / 60, config.budget))
    if config.preset != "default" or config.init or config.netg_path or config.netd_path:
        return config
    left = 60 * config.budget - spent
    chosen = plan.choose(config, typed, machine, left, faces)
    own = [name for name in chosen.plan.options if getattr(chosen.config, name) != getattr(config, name)]
    options = " ".join(f"--{name}={getattr(chosen.config, name)}" for name in own)
    # Only many anime faces of this size, with samples that are asked to look whole, were counted by eye.
    counted = config.whole and faces >= MANY_FACES and config.image_size == TrainConfig.image_size
    minutes = text("1 minute") if config.budget == 1 else text("{} minutes").format(f"{config.budget:g}")
    line = text("{} on {}: {:.0f} images/s measured; chosen: {}, {}; about {:,.0f} images").format(
        minutes,
        describe(machine.device),
        chosen.rate,
        machine.precision,
        options or text("the default networks"),
        chosen.images,
    )
    log(line + (text("; expect {}").format(text(chosen.plan.expect)) if counted else ""))
    return chosen.config
