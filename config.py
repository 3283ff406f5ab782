"""Options, each defined once with type, default, limits and meaning, and the errors that a user can meet.

It imports nothing of the project and no torch, so that a wrong option is reported at once.
"""

import contextlib
import dataclasses
import importlib.util
import math
import os
import re
import sys
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar, get_args

if sys.version_info < (3, 10) or not all(map(importlib.util.find_spec, ("torch", "fire"))):
    _language = next(filter(None, map(os.environ.get, ("ANIMEGAN_LANG", "LC_ALL", "LANG"))), "")
    if sys.platform == "win32" and not _language:
        import ctypes

        _language = "zh" if ctypes.windll.kernel32.GetUserDefaultUILanguage() & 0x3FF == 4 else ""
    if _language.startswith("zh"):
        sys.exit(
            f"{sys.executable} 是 Python {sys.version.split()[0]}；本程序需要 3.10 或更新的 Python，以及 "
            "requirements.txt 中的软件包。多半是没有激活环境：Windows 上执行 .venv\\Scripts\\Activate.ps1，"
            "Linux 和 macOS 上执行 source .venv/bin/activate；还没有安装，请看 docs/install.zh.md"
        )
    sys.exit(
        f"{sys.executable} is Python {sys.version.split()[0]}; the program needs 3.10 or newer, with the packages of "
        "requirements.txt: activate the environment that has them (source .venv/bin/activate, on Windows "
        ".venv\\Scripts\\activate), or make one, see docs/install.md"
    )
try:
    os.getcwd()
except OSError:  # of which torch would die
    sys.exit("the folder where you are was deleted; go to another one: cd")


def _told(kind: type[BaseException], error: BaseException, trace: types.TracebackType | None) -> None:
    """Say in one line that Ctrl-C came while modules were imported; later, `command_line` says it."""
    if issubclass(kind, KeyboardInterrupt):
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    sys.__excepthook__(kind, error, trace)


if sys.excepthook is sys.__excepthook__:
    sys.excepthook = _told

IMAGE_SIZES = (32, 48, 64, 96, 128, 192, 256)
SIZES = ", ".join(map(str, IMAGE_SIZES))
RELEASED = Path(__file__).resolve().parent / "checkpoints" / "anime-faces-96.pt"
ENCODER = RELEASED.with_name("face-encoder.pt")
REFERENCE = RELEASED.with_name("face-reference.pt")
WHOLE_FACES = RELEASED.with_name("whole-faces.pt")
EYES = RELEASED.with_name("eyes.pt")
ENLARGER = RELEASED.with_name("enlarger.pt")
DAMAGE = RELEASED.with_name("damage.pt")
COLOURS = RELEASED.with_name("colours.pt")
DIRECTIONS = RELEASED.with_name("directions.pt")
RUNS = Path("checkpoints")
PACKS = Path("data") / ".packs"
SYNTHETIC = Path("synthetic")  # data path of the synthetic faces; write `$PWD/synthetic` for a folder of that name
NOGPU = "--nogpu forces the CPU; unset takes the best device there is."  # end of the meaning of every --gpu

Arch = Literal["book", "dcgan", "resnet"]
Norm = Literal["batch", "none"]
Loss = Literal["bce", "hinge", "rahinge", "rp", "wgan"]
CRITICS: frozenset[Loss] = frozenset({"wgan"})  # losses of a critic, which is meant to be far ahead of the generator
Penalty = Literal["none", "r1r2", "gp"]
Precision = Literal["auto", "fp32", "bf16"]
Metric = Literal["damage_x100", "fd"]
Vocabulary = tuple[tuple[str, ...], ...]  # see `gan.classes`
Preset = Literal["default", "book", "book64", "book2", "wgan", "wgan-gp"]


class UserError(Exception):
    """An error that the user can fix. Shown as one line: what was found, what was expected, what to do.

    `values` are filled into the places of `message`, which `gan.language.said` translates first, whole: so a message
    is a constant. A value that is words of ours is translated where it is given, by `gan.language.text`; one that is an
    error, with it. A message without values may hold any braces.
    """

    def __init__(self, message: str, *values: object) -> None:
        super().__init__(message.format(*values) if values else message)
        self.message, self.values = message, values


class ConfigError(UserError, ValueError):
    """An option is unknown, malformed, out of range, or does not fit another one."""


class DataError(UserError):
    """Faces cannot be found, read or packed."""


class CheckpointError(UserError):
    """A checkpoint cannot be read or written, or does not fit the request."""


@contextlib.contextmanager
def needing(what: str) -> Iterator[None]:
    """Import packages of single options; a ConfigError tells one that is missing from one that does not load."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ConfigError("{} needs the package {}; pip install -r requirements-extra.txt", what, error.name) from error
    except ImportError as error:
        raise ConfigError("{} needs a package that is installed but does not load: {}", what, error) from error


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Everything that determines the shapes of the two networks. Saved with their weights."""

    arch: Arch
    image_size: int
    nz: int
    ngf: int
    ndf: int
    channels: int = 3
    fine: bool = False  # a residual block at the full size, and an encoder that sees enlarged faces
    d_norm: Norm = "none"
    projected: bool = False
    vocabulary: Vocabulary = ()  # for each label column its name, followed by its classes

    def __post_init__(self) -> None:
        for name, of in (("arch", Arch), ("d_norm", Norm)):  # which a file may have from another program
            if (value := getattr(self, name)) not in get_args(of):
                raise ConfigError("{}: expected one of {}; got {!r}", name, ", ".join(get_args(of)), value)

    @property
    def first_pixels(self) -> int:
        """The size of the first map from which doublings alone lead to the faces': 6 for 96 pixels, else 4."""
        return 6 if self.image_size % 3 == 0 else 4

    def widths(self, width: int, most: int = 8) -> tuple[int, ...]:
        """Return the channels of each map, coarse to fine: `width` at the finest, twice as many for each halving.

        There are at most `most` times as many. At 96 pixels there are four maps: 6, 12, 24 and 48 or, in the book's
        networks, whose last step is threefold, 4, 8, 16 and 32.
        """
        maps = (self.image_size // self.first_pixels).bit_length() - 1
        return tuple(width * min(most, 2**halvings) for halvings in reversed(range(maps)))


T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Option:
    """Properties of an option besides its name, type and default, which its field has."""

    meaning: str  # for the help and docs/options.md
    ge: float | None = None  # smallest value of a number
    le: float = math.inf  # largest value
    choices: tuple[int, ...] = ()  # all values that a number may have
    later: bool = False  # may differ when a run is resumed; all other options define the run


def option(default: T, meaning: str, **more: Any) -> T:
    """Create a config field that is an option; `more` are arguments of `Option`. Users cannot set other fields."""
    return dataclasses.field(default=default, metadata={"option": Option(meaning, **more)})


C = TypeVar("C")  # a config: a frozen dataclass whose options are made by `option`


def options_of(config_type: type) -> dict[str, Option]:
    """Return the options among the fields of a config, by name."""
    return {f.name: f.metadata["option"] for f in dataclasses.fields(config_type) if "option" in f.metadata}


def check_numbers(config: object) -> None:
    """Check every number of a config against its option's limits; a ConfigError names the first that fails."""
    for name, said in options_of(type(config)).items():
        value = getattr(config, name)
        if said.choices and value not in (*said.choices, None):
            raise ConfigError("--{}: must be one of {}; got {}", name, ", ".join(map(str, said.choices)), value)
        if said.ge is None or value is None or (said.ge <= value <= said.le and math.isfinite(value)):
            continue
        if said.le == math.inf:
            raise ConfigError("--{}: must be at least {:g}; got {}", name, said.ge, value)
        raise ConfigError("--{}: must be from {:g} to {:g}; got {}", name, said.ge, said.le, value)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Train a generator of small faces on a folder of pictures."""

    examples: ClassVar[tuple[str, ...]] = ("--data_path=my_faces --gpu", "--preset=book --max_epoch=50", "--resume")

    data_path: Path = option(
        Path("data"),
        "the faces: a folder searched to any depth, class folders, a zip, a folder of zips; or synthetic: the "
        "program's synthetic faces, used too if data/ has none; or torchvision:NAME:FOLDER, a torchvision dataset on "
        "this disk, such as torchvision:MNIST:FOLDER.",
        later=True,
    )
    classes: bool | None = option(
        None,
        "also learn the classes of the faces: of folders or of a labels.csv directly in the folder of --data_path, of "
        "synthetic faces; unset: where there is a labels.csv, or where each folder has 50 faces or more; --noclasses "
        "never.",
    )
    preset: Preset = option(
        "default",
        "a set of options under one name: default (the best measured), book (chapter 7, first edition), book64 (the "
        "same with batches of 64 and a generator step for each of the discriminator's), book2 (second edition), wgan "
        "(weight clipping), wgan-gp.",
    )
    gpu: bool | None = option(None, f"train on the GPU; {NOGPU}", later=True)
    vis: bool = option(
        False, "show the run in visdom, on a running server, else on one that ends with the run.", later=True
    )
    vis_server: str = option("http://localhost:8097", "the visdom server's address, with its port.", later=True)
    env: str | None = option(None, "environment of the run on the visdom page; by default the run's name.", later=True)
    resume: str | None = option(
        None, "go on with a run: without a value the newest; or a run's folder or one of its checkpoints.", later=True
    )
    init: Path | None = option(
        None,
        "start a new run from the weights of a checkpoint or a run, or from released, which come with the program; "
        "they decide the networks' options.",
    )
    netg_path: Path | None = option(
        None,
        "start from a generator that the book's program saved, netg_200.pth; its file decides the networks' options, "
        "and the preset is book unless another is typed.",
    )
    netd_path: Path | None = option(None, "the same for the discriminator, netd_200.pth.")
    run: str | None = option(None, "name of the run, its folder under checkpoints/; by default date and time.")
    save_path: Path | None = option(None, "folder for the preview grids; by default samples/ in the run.", later=True)
    max_epoch: int | None = option(
        None, "passes over the faces; unset: 200, or as many as the budget allows.", ge=1, later=True
    )
    budget: float | None = option(
        None,
        "minutes that the run may take, with its last measurement and grid; with the default preset and no old weights "
        "the machine is measured, and learning rates are chosen to suit it, on fast machines also networks and batch; "
        "with --resume this many minutes from now; unset trains by epochs.",
        ge=0.01,
        le=1e9,
        later=True,
    )
    batch_size: int = option(32, "faces per step.", ge=2)
    image_size: int = option(96, f"height and width of the faces, pixels: {SIZES}.", choices=IMAGE_SIZES)
    channels: int = option(3, "3 for colour, 1 for grey.")
    arch: Arch = option(
        "dcgan", "generator: book, the book's DCGAN; dcgan, with what came after; resnet, with residual blocks."
    )
    fine: bool = option(
        False,
        "for the finest lines: a block at the faces' full size, and a discriminator that sees them enlarged, as the "
        "released generator had; takes longer, and only long budgets choose it.",
    )
    nz: int = option(100, "length of the latent z.", ge=1)
    ngf: int = option(64, "channels of the generator before its last layers; its width.", ge=1)
    ndf: int = option(32, "channels of the discriminator after its first layers; its width.", ge=1)
    projected: bool = option(
        True,
        "let the discriminator also see through a network trained on photographs: good faces appear far sooner; "
        "--noprojected trains from scratch.",
    )
    loss: Loss = option(
        "rp",
        "bce (the book's), hinge, rahinge (the book's second edition), rp (relativistic pairing) or wgan (best as "
        "--preset=wgan or --preset=wgan-gp).",
    )
    lr1: float = option(6e-4, "learning rate of the generator.", ge=0, le=1)
    lr2: float = option(6e-4, "learning rate of the discriminator.", ge=0, le=1)
    beta1: float = option(0.0, "Adam's first decay, both networks.", ge=0, le=0.9999)
    d_every: int = option(1, "steps between updates of the discriminator.", ge=1)
    g_every: int = option(1, "steps between updates of the generator.", ge=1)
    flip: float = option(
        0.5, "probability that a face is mirrored; samples are not, so that they face both ways.", ge=0, le=1
    )
    holdout: float = option(
        0.05, "share of a set of 2,000 faces or more that is held out from training, for evaluation.", ge=0, le=0.5
    )
    whole: float | None = option(
        None,
        "weight, in the generator's loss, of how whole samples look, as learned from samples of anime faces that were "
        "rated by eye: fewer broken eyes, a little less variety; unset: 1 for anime faces, 0 for others.",
        ge=0,
    )
    typical: float | None = option(
        None,
        "share of the training faces to learn from (instance selection): of anime faces those that look most whole, of "
        "others those most like the rest; unset: 0.6 of anime faces, 0.8 of others, but at least 2,000, and all "
        "synthetic ones; 1 takes all.",
        ge=0.01,
        le=1,
    )
    seed: int = option(
        0,
        "fixes all randomness: with --precision and --max_epoch given, a CPU repeats a run to the bit.",
        ge=0,
        le=2**53,
    )
    num_workers: int | None = option(
        None, "processes that decode the faces; by default one per core.", ge=1, le=1024, later=True
    )
    precision: Precision = option("auto", "bf16, fp32, or auto: bf16 where this device is faster with it.")
    compile: bool = option(False, "compile the networks with torch.compile, which takes a minute.", later=True)
    plot_every: int = option(
        250,
        "steps between preview grids, on a slow machine half a minute; delayed while they and measurements cost over "
        "3% of the time, and in long runs until a 500th of the time so far has passed; 0 turns them off.",
        ge=0,
        later=True,
    )
    eval_images: int = option(
        10_000,
        "images between measurements of quality, on 2,000 samples or as many as there are faces; skipped where they "
        "would cost over 3% of the time, except the last one if there was one before or a fifth of the budget is "
        "enough; 0 turns them off.",
        ge=0,
        later=True,
    )
    save_every: int = option(
        10,
        "epochs between numbered checkpoints; by default at least 20,000 images apart, on a GPU 500,000.",
        ge=1,
        later=True,
    )
    tensorboard: bool = option(
        False, "also write the run for TensorBoard, into tensorboard/ in its folder.", later=True
    )
    debug_file: Path | None = option(None, "while this file exists, each step begins in the debugger.", later=True)
    # Details that presets set and checkpoints keep.
    d_norm: Norm = "none"  # in the discriminator's own layers
    penalty: Penalty = "r1r2"  # of the discriminator's gradients: R1 and R2, or that of WGAN-GP
    penalty_weight: float = 0.02  # per step
    penalty_every: int = 8  # the discriminator's steps between penalties, each multiplied by this number
    head_penalty: float = 0.05  # weight of the same penalty on the projected heads, at the encoder's features
    clip: float = 0.0  # size to which the discriminator's weights are clipped after its steps; 0: they are not
    freeze: int = 0  # first convolutions of the discriminator that keep the weights they start with
    anneal: float = 0.5  # share of a budget, its last part, over which learning rates fall to 0
    beta2: float = 0.99  # Adam's second decay, both networks
    ema_half_life_images: int = 500_000  # of the averaged generator; at most a tenth of the images seen; 0: no average
    translate: float = 0.3  # probability that a step shifts its faces, by up to an eighth of their size
    colour: float = 0.0  # probability that a face is made a little brighter or darker, paler or stronger in colour
    vocabulary: Vocabulary = ()  # the classes that were found
    best_by: Metric = "fd"  # decides best.pt; settled by the kind of faces

    def __post_init__(self) -> None:
        if self.channels not in (1, 3):
            raise ConfigError("--channels: must be 3 (colour) or 1 (grey); got {}", self.channels)
        check_numbers(self)
        if self.resume is not None and self.init is not None:
            raise ConfigError("--resume goes on with a run and --init starts a new one; give one of them")
        if self.init is not None and (self.netg_path or self.netd_path):
            raise ConfigError("--init and --netg_path or --netd_path both say what to start from; give one of them")
        if self.fine and self.arch == "book":
            raise ConfigError("--fine: --arch=book has no such block; leave it out, or choose --arch=dcgan")
        if self.penalty != "none" and self.d_norm == "batch":
            raise ConfigError(
                "--preset={} takes a gradient penalty, which needs logits that depend on their own image alone, but "
                "the discriminator's BatchNorm mixes the batch; use --preset=book",
                self.preset,
            )
        if self.loss == "wgan" and self.penalty == "none" and not self.clip:
            raise ConfigError(
                "--loss=wgan diverges unless something keeps the discriminator's slope; use --preset=wgan or "
                "--preset=wgan-gp"
            )
        if not re.fullmatch(r"(https?://)?[^/]+:\d{1,5}/?", self.vis_server):
            raise ConfigError(
                "--vis_server: expected an address such as http://localhost:8097; got {!r}", self.vis_server
            )
        if self.run is not None and (Path(self.run).name != self.run or self.run in ("", ".", "..")):
            raise ConfigError("--run: expected a plain name for a folder under {}; got {!r}", RUNS, self.run)

    @property
    def epochs(self) -> float:
        """The most passes over the faces; infinite if only a budget ends the run."""
        return self.max_epoch or (200 if self.budget is None else math.inf)

    @property
    def model(self) -> ModelConfig:
        """The part that determines the networks' shapes."""
        return ModelConfig(**{f.name: getattr(self, f.name) for f in dataclasses.fields(ModelConfig)})


LABELS = ("hair", "eyes")  # what `prepare.py --label` can guess and `generate.py` can recolour
ALIASES = {"nogen": "gen_num", "class": "classes"}  # option names that stand for another one
MEANT = {  # option names of other programs or entry points, and their equivalents here
    "lr": ("lr1", "lr2"),
    "batch": ("batch_size",),
    "epochs": ("max_epoch",),
    "decay_every": ("save_every",),
    "size": ("image_size",),
    "workers": ("num_workers",),
    "checkpoint": ("fake",),
    "data_path": ("real",),
}
# Options that may differ when a run is resumed; all others define the run.
CHANGEABLE_ON_RESUME = frozenset(name for name, option in options_of(TrainConfig).items() if option.later)


def restore(stored: Mapping[str, Any]) -> TrainConfig:
    """Build a run's config from the plain values in its checkpoint.

    Raises:
        TypeError: an option is unknown to this version.
        ConfigError: a value is out of range.
    """
    paths = {field.name for field in dataclasses.fields(TrainConfig) if "Path" in str(field.type)}
    values = {name: Path(value) if value and name in paths else value for name, value in stored.items()}
    return TrainConfig(**{**values, "vocabulary": tuple(map(tuple, stored.get("vocabulary", ())))})
