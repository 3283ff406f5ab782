"""A run: its state in memory, and its folder on disk."""

import contextlib
import dataclasses
import importlib.metadata
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from torch import nn

from config import CheckpointError, Precision, TrainConfig, Vocabulary
from gan import book_weights, checkpoint
from gan.classes import NONE, Classes
from gan.device import adam, describe, lay_out, place
from gan.encoder import frozen
from gan.files import write_text
from gan.language import speaking
from gan.training import ema
from gan.training.ranks import Ranks
from model import Discriminator, Generator

NUMBERED_KEPT, NUMBERED_STRIDE = 3, 10  # the last few numbered checkpoints are kept, and every tenth

WARM_UP = 0.05  # share of a later cycle over which the learning rates rise from 0, as the networks had settled before


@dataclasses.dataclass(frozen=True)
class Cycle:
    """The training that one budget covers; each new budget begins a new cycle."""

    step: int = 0  # the step after which it began
    seconds: float = 0.0  # the run's training time when it began, minus the time that preparing the run took

    def rates(self, done: float, anneal: float) -> float:
        """Return the factor to apply to the learning rates when the share `done` of the cycle is done.

        At a constant rate the networks circle around each other; as the rate falls, they settle. It falls linearly to 0
        over the last part of the cycle, the share `anneal`.
        """
        falling = min(1.0, (1 - done) / anneal) if anneal else 1.0
        rising = min(1.0, done / WARM_UP) if self.step else 1.0
        return max(0.0, min(falling, rising))


class TrainingState:
    """All that a run needs to continue as if it had never stopped, except random states, see `latent.stream`."""

    PARTS = ("generator", "discriminator", "ema", "g_optimizer", "d_optimizer")

    def __init__(self, config: TrainConfig, device: torch.device) -> None:
        torch.manual_seed(config.seed)  # torch's own generator is used for nothing but the initial weights
        self.step = self.retries = 0
        self.estimated_at = -1  # step whose weights the averaged generator's BatchNorm statistics are known to fit
        self.cycle, self.finished = Cycle(), False
        self.generator = place(Generator(config.model), device)
        self.discriminator = place(Discriminator(config.model), device)
        convs = [layer for layer in self.discriminator.main if isinstance(layer, nn.Conv2d)]
        for conv in convs[: config.freeze]:  # Mo et al. 2020, "Freeze the discriminator"
            frozen(conv)
        self.ema = ema.average_of(self.generator)
        betas, self.rates = (config.beta1, config.beta2), (config.lr1, config.lr2)
        self.g_optimizer = adam(self.generator.parameters(), config.lr1, betas, device)
        self.d_optimizer = adam(self.discriminator.parameters(), config.lr2, betas, device)

    def scale_rates(self, share: float) -> None:
        """Set the learning rates of both optimizers to this share of their configured values."""
        for optimizer, rate in zip((self.g_optimizer, self.d_optimizer), self.rates, strict=True):
            for group in optimizer.param_groups:
                group["lr"] = share * rate

    def content(self) -> dict[str, Any]:
        """Return the state as tensors, numbers and dicts."""
        return {
            "step": self.step,
            "retries": self.retries,
            "cycle": dataclasses.asdict(self.cycle),
            "finished": self.finished,
            **{part: getattr(self, part).state_dict() for part in self.PARTS},
        }

    def load(self, content: Mapping[str, Any], path: Path) -> None:
        """Load the whole state from a checkpoint's content.

        Raises:
            CheckpointError: the checkpoint belongs to other networks.
        """
        for part in ("generator", "discriminator", "ema"):
            checkpoint.load_weights(getattr(self, part), content[part], part, path)
        self.g_optimizer.load_state_dict(content["g_optimizer"])
        self.d_optimizer.load_state_dict(content["d_optimizer"])
        for optimizer in (self.g_optimizer, self.d_optimizer):
            lay_out(optimizer)
        self.step, self.retries, self.estimated_at = content["step"], content["retries"], -1
        self.cycle, self.finished = Cycle(**content["cycle"]), content["finished"]

    def begin_cycle(self, seconds: float) -> None:
        """Begin a new cycle, which extends the run, after `seconds` of training."""
        self.cycle, self.finished = Cycle(self.step, seconds), False

    def take_weights(self, config: TrainConfig, device: torch.device) -> None:
        """Load the weights from which a new run starts, if they are not random. The optimizers start fresh.

        Raises:
            CheckpointError: a file is missing, damaged, or belongs to other networks.
        """
        vocabulary: Vocabulary = ()
        if config.init is None:
            _, generator, discriminator = book_weights.networks(config.netg_path, config.netd_path)
            given: dict[str, Any] = {"generator": generator, "discriminator": discriminator, "ema": generator}
            paths = config.netg_path, config.netd_path, config.netg_path
        else:
            path = checkpoint.find(config.init, ("best.pt", "latest.pt"))
            content = checkpoint.load(path, device)
            given = {"generator": content["ema"], **content}  # a released file holds the averaged generator only
            vocabulary, paths = content["model"].get("vocabulary", ()), (path,) * 3
        for part, path in zip(("generator", "discriminator", "ema"), paths, strict=True):
            if path is not None:
                network = getattr(self, part)
                weights = with_own_classes(given[part], network.state_dict(), vocabulary, config.vocabulary)
                checkpoint.load_weights(network, weights, part, path)

    def is_finite(self) -> bool:
        """Return whether all weights are finite."""
        weights = [*self.generator.parameters(), *self.discriminator.parameters()]
        return all(bool(torch.isfinite(w).all()) for w in weights)  # GPU sync


def with_own_classes(
    given: Mapping[str, torch.Tensor],
    own: Mapping[str, torch.Tensor],
    vocabulary: Vocabulary,
    own_vocabulary: Vocabulary,
) -> dict[str, torch.Tensor]:
    """Fit the weights of a network that may know other classes: shared classes are kept, new ones start at zero."""
    weights = {name: weight for name, weight in given.items() if "classes" not in name.split(".")}
    places = {names[0]: place for place, names in enumerate(vocabulary)}
    for name, weight in own.items():
        if "classes" not in name.split("."):
            continue
        *module, column, kind = name.split(".")
        title, *classes = own_vocabulary[int(column)]
        before = given.get(".".join([*module, str(places.get(title, "")), kind]))
        weights[name] = weight.clone()
        if before is not None:
            known = vocabulary[places[title]]
            for code, one in enumerate(classes, 1):
                if one in known[1:]:
                    weights[name][code] = before[known.index(one, 1)]
    return weights


@dataclasses.dataclass
class Run:
    """One training run on disk, with the choices made for the machine and the faces."""

    folder: Path  # checkpoints/<run>
    config: TrainConfig
    device: torch.device
    precision: Precision  # fp32 or bf16
    faces: dict[str, Any]  # digest of the pack, and how many are trained on, held out, rejected, left out
    ranks: Ranks = dataclasses.field(default_factory=Ranks)  # this process among those that train the run
    chosen: np.ndarray | None = None  # mask of the pack's faces, True if selected; None: all are
    codes: np.ndarray | None = None  # classes of each face of the pack, (N, V); None without classes
    classes: Classes = NONE  # of the training faces

    @property
    def latest(self) -> Path:
        """The checkpoint from which `--resume` continues."""
        return self.folder / "latest.pt"

    @property
    def samples(self) -> Path:
        """The folder of the preview grids."""
        return self.config.save_path or self.folder / "samples"

    def describe(self) -> dict[str, Any]:
        """Return the description of the run for `config.json` and every checkpoint."""
        options = {name: str(v) if isinstance(v, Path) else v for name, v in dataclasses.asdict(self.config).items()}
        with speaking("en"):
            device = describe(self.device)
        return {
            "config": options,
            "model": dataclasses.asdict(self.config.model),
            "chosen": {"device": device, "precision": self.precision},
            "faces": self.faces,
            "versions": {"torch": str(torch.__version__), "torchvision": importlib.metadata.version("torchvision")},
        }

    def write_config(self) -> None:
        """Create the folder and write `config.json`; raise a CheckpointError if the folder cannot be written."""
        path = self.folder / "config.json"
        try:
            write_text(path, json.dumps(self.describe(), indent=2, ensure_ascii=False) + "\n")
        except OSError as error:
            raise CheckpointError(
                "cannot write the run's folder {}: {}; make it writable", self.folder, error
            ) from error

    def save(self, state: TrainingState, seconds: float, path: Path | None = None, **more: Any) -> None:
        """Save latest.pt, or the file `path`, with the training time so far and with further entries.

        Raises:
            CheckpointError: the file could not be written; the last good one is untouched.
        """
        checkpoint.save(path or self.latest, {**self._content(state, seconds), **more})

    def save_numbered(self, state: TrainingState, seconds: float) -> None:
        """Save step-<step>.pt and delete outdated ones; raise a CheckpointError if the file could not be written."""
        try:
            self.save(state, seconds, self.folder / f"step-{state.step:08d}.pt")
        finally:  # also after a failure, to free space on a full disk
            self._prune()

    def rescue(self, state: TrainingState, seconds: float, error: CheckpointError) -> NoReturn:
        """Save the last state among the temporary files after saving it in the run's folder failed.

        Raises:
            CheckpointError: always; it says where the state is, if it could be saved.
        """
        try:
            spare = Path(tempfile.mkdtemp(prefix=f"{self.folder.name}-")) / "latest.pt"
        except OSError:
            raise error from None
        try:
            self.save(state, seconds, spare)
        except CheckpointError:
            spare.parent.rmdir()
            raise error from None
        raise CheckpointError(
            "{}; the last state is in {}: when there is room move it to {}, and --resume goes on",
            error,
            spare,
            self.latest,
        ) from error

    def _content(self, state: TrainingState, seconds: float) -> dict[str, Any]:
        seen = state.step * self.config.batch_size
        chosen = {} if self.chosen is None else {"chosen_faces": torch.from_numpy(np.packbits(self.chosen))}
        codes = {} if self.codes is None else {"codes": torch.from_numpy(self.codes.astype(np.int32))}
        known = {**chosen, **codes, **self.classes.content()}
        return {**self.describe(), **state.content(), **known, "images_seen": seen, "seconds": seconds}

    def _prune(self) -> None:
        """Delete numbered checkpoints except the last three and every tenth; files that the user named stay."""
        named = {path.stem.removeprefix("step-"): path for path in self.folder.glob("step-*.pt")}
        files = {int(name): path for name, path in named.items() if name.isdecimal()}
        stride = NUMBERED_STRIDE * self.config.save_every
        for number in sorted(files)[:-NUMBERED_KEPT]:
            if number * self.config.batch_size // self.faces["training"] % stride:
                with contextlib.suppress(OSError):  # on Windows another program may be reading it
                    files[number].unlink()
