"""The start of a run: the first process settles a `Setup`, and all processes of the run open it."""

import contextlib
import dataclasses
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from config import (
    CHANGEABLE_ON_RESUME,
    RUNS,
    SYNTHETIC,
    CheckpointError,
    ConfigError,
    DataError,
    ModelConfig,
    Precision,
    TrainConfig,
    restore,
)
from gan import book_weights, checkpoint, hub, latent, threads
from gan.classes import NONE, Classes
from gan.command_line import log
from gan.data import labels, torchvision_data
from gan.data.batches import Batches
from gan.data.faces import has_faces, open_pack
from gan.device import choose_device, choose_precision, describe, out_of_memory
from gan.files import as_word
from gan.images import PREVIEWS
from gan.language import text
from gan.quality import features, selection
from gan.quality.evaluation import LEAST, Evaluator
from gan.quality.sampling import Sampler
from gan.training import choices, plan, session
from gan.training.choices import Faces
from gan.training.display import resumption
from gan.training.ranks import Ranks
from gan.training.run import Run, TrainingState
from gan.training.step import Steps
from gan.watching import health


@dataclasses.dataclass(frozen=True)
class Setup:
    """A run as its first process has settled it."""

    run: Run  # its folder is not yet created if the run is new
    source: Path | None  # the checkpoint from which it goes on; None for a new run
    content: Mapping[str, Any] | None  # of that checkpoint

    @property
    def in_new_folder(self) -> bool:
        """Return whether the run begins a folder: it is new, or goes on from a checkpoint other than latest.pt."""
        return self.source is None or self.source.name != "latest.pt"


@dataclasses.dataclass(frozen=True)
class Ready:
    """A run ready to train, with its training time so far and `time.perf_counter()` from before its preparation."""

    run: Run
    state: TrainingState
    batches: Batches
    evaluator: Evaluator | None
    probe: health.Probe
    seconds: float
    since: float


@contextlib.contextmanager
def begin(config: TrainConfig, typed: Mapping[str, Any], ranks: Ranks, steps: Steps) -> Iterator[Ready | None]:
    """Begin or resume a run, and lock its folder against other processes until the end.

    Typed options take precedence over chosen ones. The machine is measured by `steps`.

    Yields:
        The run; None if it has already finished.

    Raises:
        UserError: something is missing or does not fit, or there is not enough memory.
    """
    source = session.checkpoint_to_resume(config.resume) if config.resume is not None and ranks.first else None
    with contextlib.ExitStack() as locked:
        if source is not None and source.name == "latest.pt" and os.path.isfile(source):
            locked.enter_context(session.run_lock(source.parent))  # another process may be about to save
        since, faces, setup = time.perf_counter(), None, None
        if ranks.first:
            setup, faces = settle(config, typed, source, ranks, steps, since)
        setup = ranks.broadcast(setup)
        assert setup is not None, "the first process has settled it"
        device = choose_device(setup.run.config.gpu, log=lambda line: None)
        with explaining_errors(setup.run.config, device):
            ranks.agree(device)
            run = open_run(setup.run, ranks, device)
            with ranks.in_turn():
                faces = faces or open_faces(run.config)
            if faces.pack.digest != run.faces["digest"]:
                raise DataError(
                    "{}: the faces differ from those on the first machine; give both the same pictures",
                    run.config.data_path,
                )
            faces = dataclasses.replace(faces, chosen=run.chosen, codes=run.codes)
            batches = open_batches(run, faces)
            state, seconds = open_state(run, typed, setup)
            state.finished = state.finished or state.step >= batches.steps(run.config.epochs)
            if state.finished:
                folder = source if source is not None and setup.in_new_folder else run.folder
                log(text("this run has finished; to go on: {}").format(resumption(run, folder, finished=True)))
                yield None
                return
            best = {} if setup.in_new_folder else checkpoint.best_so_far(run.folder)
            evaluator = open_evaluator(run, state, faces, best) if ranks.first else None
            probe = open_probe(faces)
            if ranks.first and setup.in_new_folder:
                locked.enter_context(session.run_lock(run.folder, new=True))
            if ranks.first:
                run.write_config()
            if ranks.first and setup.source is not None and not state.step:
                log(text("beginning at its first step: nothing was saved later"))
            setup = None  # a checkpoint is as large as the networks
            yield Ready(run, state, batches, evaluator, probe, seconds, since)


def settle(
    config: TrainConfig, typed: Mapping[str, Any], source: Path | None, ranks: Ranks, steps: Steps, since: float
) -> tuple[Setup, Faces]:
    """Settle everything about a run that its processes must agree on, and print it. The first process alone does this.

    Args:
        config: as typed.
        typed: options by name, which take precedence over chosen ones.
        source: the checkpoint to go on from; None for a new run.
        ranks: the processes of the run.
        steps: a step of each network, by which the machine is measured.
        since: `time.perf_counter()` when the run's budget began.
    """
    config, content, folder = looked_up(config, typed, source)
    if config.budget is None:  # such a run gives the same results each time
        threads.fix()
    device = choose_device(config.gpu, log)
    ranks.check(config, device)
    with explaining_errors(config, device):
        faces, before, anime = open_faces(config), dict[str, Any](), False
        if content is None:
            texts = labels.read(faces.pack, config.data_path, config.classes, log) or {}
            anime = choices.is_anime(config, faces, device)
            faces = dataclasses.replace(faces, chosen=choices.select_faces(config, faces, device, anime))
            learned = labels.learned(texts, faces.training, config.data_path, config.classes, log)
            vocabulary, codes = learned or ((), None)
            config = dataclasses.replace(config, vocabulary=vocabulary)
            faces = dataclasses.replace(faces, codes=codes)
        else:
            before = content["chosen"]
            faces = faces_of(content, faces, config, source)
        if (n := len(faces.training)) < config.batch_size:
            if faces.chosen is None:
                raise DataError(
                    "{:,} faces to train on, fewer than a batch of {}; add faces, or train with --batch_size={}",
                    n,
                    config.batch_size,
                    1 << (n.bit_length() - 1),
                )
            raise DataError(
                "{:,} faces to train on, fewer than a batch of {}; add --typical=1 for all {:,} or lower --batch_size",
                n,
                config.batch_size,
                len(faces.all_training),
            )
        precision = precision_of(before, config, device)
        if content is None:
            config = choices.suited(config, typed, faces, device, anime)
            machine = plan.Machine(steps, device, precision, ranks.world)
            config = choices.planned(config, typed, machine, since, n)
            if device.type == "cuda" and config.precision == "auto" and precision == "bf16":
                precision = plan.faster_precision(config, machine)
                log(text("measured: {} trains faster").format(precision))
        classes = NONE if faces.codes is None else Classes.of(config.vocabulary, faces.codes[faces.training])
        of_faces = faces.describe(), ranks, faces.chosen, faces.codes, classes
        return Setup(Run(folder, config, device, precision, *of_faces), source, content), faces


def precision_of(before: Mapping[str, Any], config: TrainConfig, device: torch.device) -> Precision:
    """Return the precision of a run. One that was measured on the same kind of device stays, as in `before`.

    But a GPU other than the one before may need fp32.
    """
    was = before.get("device", "")
    stays = was.startswith("CPU") if device.type == "cpu" else "(cuda)" in was and before["precision"] == "fp32"
    return before["precision"] if stays else choose_precision(config.precision, device)


def looked_up(
    config: TrainConfig, typed: Mapping[str, Any], source: Path | None
) -> tuple[TrainConfig, dict[str, Any] | None, Path]:
    """Find the checkpoint or weights and the faces; return the resulting config, checkpoint content and run folder."""
    content = None
    if source is not None:
        config, content = resumed(config, typed, source)
        faces = config.data_path
        if faces != SYNTHETIC and not torchvision_data.is_dataset(faces) and not os.path.lexists(faces.expanduser()):
            where = "" if faces.is_absolute() else text(" in {}").format(Path.cwd())
            raise DataError("{}: the run's faces are not there{}; give their place: --data_path=FOLDER", faces, where)
        if source.name == "latest.pt":
            folder = source.parent
        else:
            folder = session.branch_folder(source, content["step"])
            config = dataclasses.replace(config, run=None, save_path=typed.get("save_path"))
    else:
        if config.init or config.netg_path or config.netd_path:
            config = starting_from(config, typed)
        if "data_path" not in typed and not has_faces(config.data_path):
            none = text(
                "no faces under {}/: training on synthetic faces. With pictures of your own: python train.py "
                "--data_path=FOLDER"
            )
            log(none.format(config.data_path))
            config = dataclasses.replace(config, data_path=SYNTHETIC)
        folder = session.new_folder(config)
    if config.save_path is not None:
        check_previews(config.save_path, config.data_path, new=source is None or folder != source.parent)
    return config, content, folder


def check_previews(folder: Path, faces: Path, new: bool) -> None:
    """Raise a ConfigError if the folder of the previews lies among the faces, or a new run's has those of another.

    Among the faces, they would be taken for some when the run is resumed.
    """
    if faces.is_dir() and folder.resolve().is_relative_to(faces.resolve()):
        raise ConfigError(
            "--save_path: {} lies in {}, where previews would be taken for faces; choose another folder", folder, faces
        )
    there = next(place for place in (folder, *folder.absolute().parents) if os.path.lexists(place))
    if not os.path.isdir(there) or not os.access(there, os.W_OK | os.X_OK):
        raise ConfigError("--save_path: {} is no folder that can be written to; choose another folder", there)
    if new and any(folder.glob(PREVIEWS)):
        raise ConfigError("--save_path: {} holds the previews of another run; choose another folder", folder)


def resumed(config: TrainConfig, typed: Mapping[str, Any], path: Path) -> tuple[TrainConfig, dict[str, Any]]:
    """Read the checkpoint `path` from which a run resumes.

    Returns:
        The run's own config with the options typed now, and the checkpoint's content.

    Raises:
        CheckpointError: it is not a run's checkpoint, or cannot be read.
        ConfigError: an option that defines the run was typed and differs.
    """
    content = checkpoint.load(path)
    if missing := {*TrainingState.PARTS, "chosen", "faces", "seconds"} - content.keys():
        raise CheckpointError(
            "{}: not a run's checkpoint, it lacks {}; start a new run from it with --init={}",
            path,
            ", ".join(sorted(missing)),
            as_word(path),
        )
    try:
        stored = restore(content["config"])
        _ = stored.model
    except (TypeError, ConfigError) as error:
        raise CheckpointError(
            "{}: its options do not fit this version of the program ({}); use the version that wrote it", path, error
        ) from error
    for name, value in typed.items():
        kept = getattr(stored, name)
        if name == "classes" and kept is None:
            kept = bool(stored.vocabulary)
        if name not in CHANGEABLE_ON_RESUME and value != kept:
            if name == "run":
                raise ConfigError("--run: to go on with {}: --resume={}", value, as_word(RUNS / value))
            raise ConfigError(
                "--{}: a run keeps it, here {}; got {}. Leave it out, or start a new run from these weights with "
                "--init={}",
                name,
                text("unset") if kept is None else kept,
                value,
                as_word(path),
            )
    changed = {name: value for name, value in typed.items() if name in CHANGEABLE_ON_RESUME - {"resume"}}
    if ("budget" in typed) != ("max_epoch" in typed):  # whichever was typed now ends the run
        changed = {"budget": None, "max_epoch": None, **changed}
    return dataclasses.replace(stored, **changed), content


def starting_from(config: TrainConfig, typed: Mapping[str, Any]) -> TrainConfig:
    """Return the config of a new run that starts from old weights, whose files determine the networks' options.

    Raises:
        CheckpointError: a file cannot be used.
        ConfigError: a typed option contradicts the files.
    """
    if config.init is not None:
        if os.path.isfile(config.init / hub.WEIGHTS):
            raise CheckpointError(
                "{}: an exported generator has no discriminator to train with; give the run or the .pt file that "
                "it was made of",
                config.init,
            )
        path = checkpoint.find(config.init, ("best.pt", "latest.pt"))
        content, given = checkpoint.load(path, required=("model", *checkpoint.REQUIRED)), str(path)
        try:
            found = dataclasses.asdict(ModelConfig(**content["model"]))
        except (TypeError, ConfigError) as error:
            raise CheckpointError(
                "{}: describes a network that this program does not know ({}); use the version that wrote it",
                path,
                error,
            ) from error
    else:
        found, _, _ = book_weights.networks(config.netg_path, config.netd_path)
        found |= {"projected": False} if config.netd_path else {}
        files = [str(path) for path in (config.netg_path, config.netd_path) if path is not None]
        given = text("{} and {}").format(*files) if len(files) == 2 else files[0]
    for name, value in found.items():
        if typed.get(name, value) != value:
            raise ConfigError("--{}: the weights in {} have {}; got {}. Leave it out", name, given, value, typed[name])
    return dataclasses.replace(config, **found)


def open_faces(config: TrainConfig) -> Faces:
    """Open the faces, packing them first if needed, and split them into training and held-out faces."""
    size, channels = config.image_size, config.channels
    pack = open_pack(config.data_path, size, num_workers=config.num_workers, log=log, channels=channels)
    return Faces(pack, *pack.split(config.holdout))


def faces_of(content: Mapping[str, Any], faces: Faces, config: TrainConfig, source: Path | None) -> Faces:
    """Return the faces with the selection and classes of the run from `source`, with this content.

    Raises:
        CheckpointError: the run began with other faces.
    """
    if content["faces"]["digest"] != faces.pack.digest:
        known = content["faces"]["training"] + content["faces"].get("left_out", 0)
        raise CheckpointError(
            "{}: was trained on other faces than {} ({:,}, now {:,}); give its own --data_path, or start a new "
            "run from its weights: --init={}",
            source,
            config.data_path,
            known,
            len(faces.training),
            as_word(str(source)),
        )
    codes = content.get("codes")
    return dataclasses.replace(
        faces,
        chosen=selection.unpacked(content.get("chosen_faces"), faces.pack),
        codes=None if codes is None else codes.cpu().numpy().astype(np.int64),
    )


def open_run(settled: Run, ranks: Ranks, device: torch.device) -> Run:
    """Open the run as it was settled on this process's device, in fp32 if another GPU of it needs that."""
    precision = settled.precision
    auto = ranks.world > 1 and precision == "bf16" and settled.config.precision == "auto"
    if auto and any(ranks.all_reduce_max(choose_precision("auto", device) == "fp32")):
        precision = "fp32"
    return dataclasses.replace(settled, ranks=ranks, device=device, precision=precision)


def open_batches(run: Run, faces: Faces) -> Batches:
    """Open this process's part of the batches, and print how many faces there are."""
    config, ranks, n = run.config, run.ranks, len(faces.training)
    more = "" if config.preset == "default" else text("; preset {}").format(config.preset)
    line = text("{:,} faces to train on, {:,} held out; {}{}; run: {}")
    line = line.format(n, len(faces.all_held_out), run.precision, more, run.folder)
    log(line + (text("; {} processes").format(ranks.world) if ranks.world > 1 else ""))
    part = ranks.part(config.batch_size)
    return Batches(
        faces.pack, faces.training, config.batch_size, config.seed, run.device, config.flip, part, faces.codes
    )


def open_state(run: Run, typed: Mapping[str, Any], setup: Setup) -> tuple[TrainingState, float]:
    """Return the state of a new run, or of a resumed one from its checkpoint, and its training time so far."""
    state = TrainingState(run.config, run.device)
    if setup.content is None or setup.source is None:
        if run.ranks.first:  # the other processes receive the first one's weights
            state.take_weights(run.config, run.device)
        return state, 0.0
    seconds = setup.content["seconds"]
    state.load(setup.content, setup.source)
    if "budget" in typed:
        state.begin_cycle(seconds)
    state.finished = state.finished and run.config.budget is not None
    return state, seconds


def open_evaluator(run: Run, state: TrainingState, faces: Faces, best: Mapping[str, Any]) -> Evaluator | None:
    """Open a run's evaluator, which uses all faces, selected or not; None without evaluation or with too few faces.

    `best` is the best evaluation until now, if any.
    """
    config = run.config
    if not config.eval_images or len(faces.pack.pixels) < LEAST:
        return None
    extractor = features.measuring(run.device)
    known = best if best.get("features") == extractor.name else None
    sampler = Sampler(state.ema, None, config.model, run.device, run.precision, classes=run.classes)
    of = faces.pack, faces.all_training, faces.all_held_out
    return Evaluator(*of, extractor, sampler, config.best_by, known)


def open_probe(faces: Faces) -> health.Probe:
    """Open the probe that checks the networks at each preview, with random training faces and held-out faces."""
    kinds = faces.training, faces.selected_held_out
    some = [latent.stream(0, 0, "probe").permutation(of)[: health.PROBED] for of in kinds]
    codes = None if faces.codes is None else [torch.from_numpy(faces.codes[indices]) for indices in some]
    seen, held_out = (faces.pack.pixels[indices] for indices in some)
    return health.Probe(seen, held_out, codes)


@contextlib.contextmanager
def explaining_errors(config: TrainConfig, device: torch.device) -> Iterator[None]:
    """Explain an error of torch's compiler or a lack of memory in the block to the user.

    Raises:
        ConfigError: what happened, and the option that helps.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if any(kind.__module__.startswith(("torch._dynamo", "torch._inductor")) for kind in type(error).__mro__):
            why = str(error).strip().splitlines()[0]
            raise ConfigError("the networks cannot be compiled on this machine ({}); add --nocompile", why) from error
        if not out_of_memory(error):
            raise
        half = f"--batch_size={config.batch_size // 2}"
        smaller = half if config.batch_size > 3 else text("a smaller --ngf and --ndf")
        raise ConfigError(
            "out of memory on {}: a step of {} faces does not fit; start again with {}",
            describe(device),
            config.batch_size,
            smaller,
        ) from error
