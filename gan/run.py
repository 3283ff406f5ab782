"""A run: its state in memory, its folder on disk, and how it is stopped and taken up again."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import importlib.metadata
import itertools
import json
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock, Timeout

from config import (
    BEFORE,
    CHANGEABLE_ON_RESUME,
    D_ENCODER,
    RUN_BEFORE,
    RUNS,
    CheckpointError,
    ConfigError,
    ModelConfig,
    Precision,
    TrainConfig,
    restore,
)
from gan import book_weights, checkpoint, ema, images
from gan.command_line import BARE
from gan.device import adam, describe, place
from gan.encoder import Encoder
from gan.files import LEFT, replacing, write_text
from gan.plan import Leg
from gan.ranks import Ranks
from model import Discriminator, Generator

NUMBERED_KEPT, NUMBERED_STRIDE = 3, 10
"""Of the numbered checkpoints the last few are kept, and every tenth."""


class TrainingState:
    """Everything a run needs to go on as if it had never stopped. Randomness is no part of it, see `latent.stream`."""

    PARTS = ("generator", "discriminator", "ema", "g_optimizer", "d_optimizer")

    def __init__(self, config: TrainConfig, device: torch.device) -> None:
        torch.manual_seed(config.seed)  # the initial weights are all that is drawn from torch's own generator
        self.step = self.retries = 0
        self.leg, self.finished = Leg(), False
        self.generator = place(Generator(config.model), device)
        self.discriminator = place(Discriminator(config.model), device)
        self.discriminator.freeze(config.freeze)
        self.ema = ema.average_of(self.generator)
        betas, self.rates = (config.beta1, config.beta2), (config.lr1, config.lr2)
        self.g_optimizer = adam(self.generator.parameters(), config.lr1, betas, device)
        self.d_optimizer = adam(self.discriminator.parameters(), config.lr2, betas, device)

    def scale_rates(self, share: float) -> None:
        """Let both optimizers take this share of their learning rates."""
        for optimizer, rate in zip((self.g_optimizer, self.d_optimizer), self.rates, strict=True):
            for group in optimizer.param_groups:
                group["lr"] = share * rate

    def content(self) -> dict[str, Any]:
        """The state as tensors, numbers and dicts."""
        return {
            "step": self.step,
            "retries": self.retries,
            "leg": dataclasses.asdict(self.leg),
            "finished": self.finished,
            **{part: getattr(self, part).state_dict() for part in self.PARTS},
        }

    def load(self, content: Mapping[str, Any], path: Path) -> None:
        """Take the state from a checkpoint's content, all of it.

        Raises:
            CheckpointError: it belongs to other networks.
        """
        for part in ("generator", "discriminator", "ema"):
            checkpoint.load_weights(getattr(self, part), content[part], part, path)
        self.g_optimizer.load_state_dict(content["g_optimizer"])
        self.d_optimizer.load_state_dict(content["d_optimizer"])
        self.step, self.retries = content["step"], content["retries"]
        self.leg, self.finished = Leg(**content.get("leg", {})), content.get("finished", False)  # these came later

    def begin_leg(self, seconds: float) -> None:
        """Make the run longer, from here on.

        Args:
            seconds: its training time so far.
        """
        self.leg, self.finished = Leg(self.step, seconds), False

    def load_initial(self, path: Path, device: torch.device) -> None:
        """Start from the weights of another run or of a released file, with new optimizers.

        Raises:
            CheckpointError: it belongs to other networks.
        """
        path = checkpoint.find(path, ("best.pt", "latest.pt"))
        content = checkpoint.load(path, device)
        weights = {"generator": content["ema"], **content}
        for part in ("generator", "discriminator", "ema"):
            checkpoint.load_weights(getattr(self, part), weights[part], part, path)

    def load_encoder(self) -> None:
        """Give a new run's discriminator the encoder that comes with the program, where it is to have one.

        Raises:
            CheckpointError: its file is missing or damaged.
        """
        if self.discriminator.projected is None:
            return
        if not D_ENCODER.is_file():
            raise CheckpointError(
                f"{D_ENCODER}: no such checkpoint; it comes with the program, and the discriminator sees through it; "
                "fetch it again with git checkout -- checkpoints, or train with --noprojected"
            )
        content = checkpoint.load(D_ENCODER, required=("encoder", "scales"))
        checkpoint.load_weights(Encoder(), content["encoder"], "encoder", D_ENCODER)
        self.discriminator.projected.load(content["encoder"], content["scales"])

    def load_book(self, netg_path: Path | None, netd_path: Path | None) -> None:
        """Start from weights that the book's program saved, one network or both, with new optimizers.

        Raises:
            CheckpointError: a file cannot be read, or belongs to other networks.
        """
        _, generator, discriminator = book_weights.networks(netg_path, netd_path)
        if generator is not None and netg_path is not None:
            for part in (self.generator, self.ema):
                checkpoint.load_weights(part, generator, "generator", netg_path)
        if discriminator is not None and netd_path is not None:
            checkpoint.load_weights(self.discriminator, discriminator, "discriminator", netd_path)

    def is_finite(self) -> bool:
        """Whether every weight is a number."""
        weights = [*self.generator.parameters(), *self.discriminator.parameters()]
        return all(bool(torch.isfinite(w).all()) for w in weights)  # GPU sync


@dataclasses.dataclass
class Run:
    """One training on disk, and what was found out about the machine and the faces.

    Args:
        folder: where it lives, `checkpoints/<run>`.
        config: its options.
        device: what it trains on.
        precision: what it computes in, fp32 or bf16.
        faces: the content digest of its pack, and how many faces are trained on, held out, rejected.
        ranks: this process among those that train it.
        compiled: whether torch.compile compiles the networks.
        chosen: whether each face of the pack is typical enough to learn from; None where that does not matter.
    """

    folder: Path
    config: TrainConfig
    device: torch.device
    precision: Precision
    faces: dict[str, Any]
    ranks: Ranks = dataclasses.field(default_factory=Ranks)
    compiled: bool = False
    chosen: np.ndarray | None = None

    @property
    def latest(self) -> Path:
        """The checkpoint that `--resume` goes on from."""
        return self.folder / "latest.pt"

    def describe(self) -> dict[str, Any]:
        """What `config.json` and every checkpoint say of the run."""
        options = {name: str(v) if isinstance(v, Path) else v for name, v in dataclasses.asdict(self.config).items()}
        return {
            "config": options,
            "model": dataclasses.asdict(self.config.model),
            "chosen": {"device": describe(self.device), "precision": self.precision, "compile": self.compiled},
            "faces": self.faces,
            "versions": {"torch": str(torch.__version__), "torchvision": importlib.metadata.version("torchvision")},
        }

    def write_config(self) -> None:
        """Make the folder and write `config.json`.

        Raises:
            CheckpointError: the folder cannot be written.
        """
        path = self.folder / "config.json"
        try:
            write_text(path, json.dumps(self.describe(), indent=2, ensure_ascii=False) + "\n")
        except OSError as error:
            raise CheckpointError(f"cannot write the run's folder {self.folder}: {error}; make it writable") from error

    def save(self, state: TrainingState, seconds: float, numbered: bool = False) -> None:
        """Save latest.pt, and a numbered checkpoint too where asked.

        Args:
            state: what to save.
            seconds: training time so far.
            numbered: whether to write step-<step>.pt as well.

        Raises:
            CheckpointError: a file could not be written; the last good ones are untouched.
        """
        content = self._content(state, seconds)
        checkpoint.save(self.latest, content)
        if numbered:
            checkpoint.save(self.folder / f"step-{state.step:08d}.pt", content)
            self._prune(state.step)

    def save_best(self, state: TrainingState, seconds: float, found: Mapping[str, Any]) -> None:
        """Save best.pt, with the metrics that made it so, and the name of the features they compare.

        Raises:
            CheckpointError: it could not be written; the last one is untouched.
        """
        checkpoint.save(self.folder / "best.pt", {**self._content(state, seconds), "evaluation": dict(found)})

    def _content(self, state: TrainingState, seconds: float) -> dict[str, Any]:
        seen = state.step * self.config.batch_size
        chosen = {} if self.chosen is None else {"chosen_faces": torch.from_numpy(np.packbits(self.chosen))}
        return {**self.describe(), **state.content(), **chosen, "images_seen": seen, "seconds": seconds}

    def _prune(self, step: int) -> None:
        """Delete numbered checkpoints, but keep the last three and those of every tenth time `save_every` was due.

        Those beyond `step` stay, as where a run went on from an older one, and so do files that the user named.
        """
        named = {path.stem.removeprefix("step-"): path for path in self.folder.glob("step-*.pt")}
        files = {int(name): path for name, path in named.items() if name.isdecimal() and int(name) <= step}
        stride = NUMBERED_STRIDE * self.config.save_every
        for number in sorted(files)[:-NUMBERED_KEPT]:
            if number * self.config.batch_size // self.faces["training"] % stride:
                with contextlib.suppress(OSError):  # on Windows somebody may be reading it
                    files[number].unlink()


def new_folder(config: TrainConfig) -> Path:
    """The folder of a new run; not made yet.

    Raises:
        ConfigError: it exists.
    """
    folder = RUNS / (config.run or datetime.now().strftime("%Y%m%d-%H%M%S"))
    if folder.exists():
        raise _taken(folder)
    return folder


def _taken(folder: Path) -> ConfigError:
    return ConfigError(f"--run: {folder} exists; choose another name, or go on with it: --resume={folder}")


def checkpoint_to_resume(resume: str) -> Path:
    """The checkpoint that `--resume` means.

    Raises:
        CheckpointError: there is none.
    """
    asked = checkpoint.newest_run() if resume == BARE else Path(resume).expanduser()
    return checkpoint.find(asked, ("latest.pt",))


def resumed(config: TrainConfig, typed: Mapping[str, Any], path: Path) -> tuple[TrainConfig, dict[str, Any]]:
    """What to go on with from the checkpoint `path`.

    Returns:
        The run's own config with the options typed now, and the checkpoint's content.

    Raises:
        CheckpointError: it is no run's checkpoint, or cannot be read.
        ConfigError: an option that defines the run was typed and differs.
    """
    content = checkpoint.load(path)
    missing = [name for name in (*TrainingState.PARTS, "chosen", "faces", "seconds") if name not in content]
    if missing:
        raise CheckpointError(
            f"{path}: not a run's checkpoint, it lacks {', '.join(missing)}; start a new run from it with --init={path}"
        )
    try:
        stored = restore(TrainConfig, {**RUN_BEFORE, **content["config"]})
    except TypeError as error:
        raise CheckpointError(f"{path}: its options do not fit this version of the program ({error})") from error
    for name, value in typed.items():
        if name not in CHANGEABLE_ON_RESUME and value != getattr(stored, name):
            raise ConfigError(
                f"--{name}: a run keeps it, here {getattr(stored, name)}; got {value}. Leave it out, or start a new "
                f"run from these weights with --init={path}"
            )
    changed = {name: value for name, value in typed.items() if name in CHANGEABLE_ON_RESUME - {"resume"}}
    if ("budget" in typed) != ("max_epoch" in typed):  # what was typed now ends the run
        changed = {"budget": None, "max_epoch": None, **changed}
    return dataclasses.replace(stored, **changed), content


def starting_from(config: TrainConfig, typed: Mapping[str, Any]) -> TrainConfig:
    """The config of a new run that starts from old weights: their files decide the networks' options.

    Raises:
        CheckpointError: a file cannot be used.
        ConfigError: an option was typed that the files contradict.
    """
    if config.init is not None:
        path = checkpoint.find(config.init, ("best.pt", "latest.pt"))
        own = {field.name for field in dataclasses.fields(ModelConfig)}
        found = {name: value for name, value in checkpoint.load(path).get("model", {}).items() if name in own}
        found = {**BEFORE, **found}
        given = str(path)
    else:
        found, _, _ = book_weights.networks(config.netg_path, config.netd_path)
        found |= {"growth": "book", **({"up": "transposed"} if config.netg_path else {})}
        found |= {"projected": False} if config.netd_path else {}
        given = " and ".join(str(path) for path in (config.netg_path, config.netd_path) if path is not None)
    for name, value in found.items():
        if typed.get(name, value) != value:
            raise ConfigError(f"--{name}: the weights in {given} have {value}; got {typed[name]}. Leave it out")
    if found.get("d_norm") == "batch" and config.penalty != "none":
        raise ConfigError(
            f"the discriminator in {given} has BatchNorm, which mixes the batch, and --penalty={config.penalty} needs "
            "logits that depend on their own image alone; add --preset=book, or --penalty=none"
        )
    config = dataclasses.replace(config, **found)
    config.check_networks()
    return config


def keep_later(path: Path, step: int, samples: Path) -> None:
    """Before a run goes on from an older checkpoint: give what is later names under which it is in nobody's way.

    The older one becomes the latest.

    Args:
        path: the checkpoint.
        step: its step.
        samples: folder of the preview grids.
    """
    if path.name == "latest.pt":
        return
    for file in (path.with_name("latest.pt"), path.with_name("best.pt")):
        if file == path or not file.is_file():
            continue
        try:
            later = checkpoint.load(file)["step"]
        except CheckpointError:  # why the user goes on from another
            file.replace(file.with_name(f"{file.stem}-damaged.pt"))
            continue
        if later > step:
            file.replace(file.with_name(f"step-{later:08d}.pt"))
        elif later < step and file.name == "latest.pt":  # the user goes back to what was set aside
            _set_aside(file, f"step-{later:08d}")
    for file in (*path.parent.glob("step-????????.pt"), *samples.glob(images.PREVIEWS)):
        if file.stem > f"step-{step:08d}":
            _set_aside(file, file.stem)
    latest = path.with_name("latest.pt")
    try:
        with replacing(latest) as temporary:
            shutil.copyfile(path, temporary)
    except OSError as error:
        raise CheckpointError(
            f"could not write {latest}: {error}; make it writable, or free some disk space"
        ) from error


def _set_aside(file: Path, stem: str) -> None:
    """Give a file a name that says what it was, and that no other file has."""
    names = (f"{stem}-before{'' if n == 1 else f'-{n}'}{file.suffix}" for n in itertools.count(1))
    file.replace(next(path for path in map(file.with_name, names) if not path.exists()))


@contextlib.contextmanager
def alone(folder: Path, new: bool = False) -> Iterator[None]:
    """Keep other processes out of a run's folder until the end, also a violent one, of this one.

    One that is no run's, as where a single checkpoint lies, is left alone, and where the disk knows no locks nobody is
    kept out. What an earlier process left half-written is deleted.

    Args:
        folder: the run's.
        new: make it; nobody else may have made it by now.

    Raises:
        CheckpointError: the folder cannot be written.
        ConfigError: another process trains this run, or has made the folder.
    """
    if not new and not (folder / "config.json").is_file():
        yield
        return
    lock = FileLock(folder / ".lock", blocking=False)
    try:
        if new:
            folder.mkdir(parents=True)
        try:
            lock.acquire()
            for left in folder.glob(LEFT):  # by a process that was killed while it wrote
                left.unlink()
        except NotImplementedError:
            pass
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS):
                raise
    except Timeout as error:  # an OSError too
        raise ConfigError(
            f"{folder} is being trained by another process; stop that first (Ctrl-C saves), or start another run"
        ) from error
    except FileExistsError as error:  # while this run was being prepared
        raise _taken(folder) from error
    except OSError as error:
        raise CheckpointError(f"cannot write the run's folder {folder}: {error}; make it writable") from error
    try:
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def stop_signals(patient: bool = False) -> Iterator[Callable[[], bool]]:
    """Turn Ctrl-C and SIGTERM into a wish that the loop asks for; a second Ctrl-C interrupts at once.

    Args:
        patient: it does not, as where `torchrun` hands on the first one that has come from the terminal already. Nor do
            they do harm afterwards: where another process has died it sends SIGTERM, and this one still has to say so.
    """
    asked: list[int] = []

    def ask(number: int, frame: object) -> None:
        if asked and number == signal.SIGINT and not patient:
            raise KeyboardInterrupt
        asked.append(number)

    previous = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in previous.items():
            if not patient:
                signal.signal(number, handler)
