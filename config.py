"""Options, each defined once with type, default, limits and meaning, and the errors that a user can meet.

It imports nothing of the project and no torch, so that a wrong option is reported at once.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

IMAGE_SIZES = (32, 48, 64, 96, 128, 192, 256)
SIZES = ", ".join(map(str, IMAGE_SIZES))
RELEASED = Path(__file__).resolve().parent / "checkpoints" / "anime-faces-96.pt"
ENCODER = RELEASED.with_name("face-encoder.pt")
D_ENCODER = RELEASED.with_name("discriminator-encoder.pt")
REFERENCE = RELEASED.with_name("face-reference.pt")
WHOLE_FACES = RELEASED.with_name("whole-faces.pt")
EYES = RELEASED.with_name("eyes.pt")
DAMAGE = RELEASED.with_name("damage.pt")
COLOURS = RELEASED.with_name("colours.pt")
DIRECTIONS = RELEASED.with_name("directions.pt")
RUNS = Path("checkpoints")
PACKS = Path("data") / ".packs"
SYNTHETIC = Path("synthetic")  # data path of the synthetic faces; write `$PWD/synthetic` for a folder of that name
NOGPU = "--nogpu forces the CPU; unset takes the best device there is."  # end of the meaning of every --gpu

Arch = Literal["dcgan", "resnet"]
Norm = Literal["batch", "spectral", "none"]
ToRGB = Literal["book", "smooth", "slim", "fine"]
DEncoder = Literal["faces", "lite0"]
Up = Literal["transposed", "nearest"]
Growth = Literal["book", "doubling"]
Loss = Literal["bce", "hinge", "rahinge", "rp", "wgan"]
Penalty = Literal["none", "exact", "approximate", "gp"]
Precision = Literal["auto", "fp32", "bf16"]
Metric = Literal["damage_x100", "fd", "kid_x1000", "coverage", "swd_x1000"]
Vocabulary = tuple[tuple[str, ...], ...]  # see `gan.classes`
Preset = Literal["default", "book", "book64", "book2", "wgan", "wgan-gp"]


class UserError(Exception):
    """An error that the user can fix. Shown as one line: what was found, what was expected, what to do."""


class ConfigError(UserError, ValueError):
    """An option is unknown, malformed, out of range, or does not fit another one."""


class DataError(UserError):
    """Faces cannot be found, read or packed."""


class CheckpointError(UserError):
    """A checkpoint cannot be read or written, or does not fit the request."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Everything that determines the shapes of the two networks. Saved with their weights.

    The fields are options of `TrainConfig`; in old files `to_rgb` may also be smooth. The defaults are the values of
    networks whose files are older than the option.
    """

    arch: Arch
    image_size: int
    nz: int
    ngf: int
    ndf: int
    d_norm: Norm
    to_rgb: ToRGB
    channels: int = 3
    widths: tuple[int, ...] | None = None
    depths: tuple[int, ...] | None = None
    projected: bool = False
    d_encoder: DEncoder = "faces"
    d_enlarge: float = 1.0
    patch: bool = False
    up: Up = "transposed"
    growth: Growth = "book"
    blocks: int = 0
    modulated: bool = False
    lean: bool = False
    vocabulary: Vocabulary = ()  # for each label column its name, followed by its classes

    @property
    def last_factor(self) -> int:
        """The factor of the last upsampling: 3 if the size is divisible by 3 (96 = 4 * 2 * 2 * 2 * 3), otherwise 2."""
        return 3 if self.image_size % 3 == 0 else 2

    @property
    def resolutions(self) -> tuple[int, ...]:
        """Sizes in pixels of the feature maps before the last upsampling: 4, 8, 16, 32 for faces of 96 pixels."""
        doublings = (self.image_size // self.last_factor // 4).bit_length()
        return tuple(4 * 2**i for i in range(doublings))

    @property
    def growing(self) -> tuple[int, int]:
        """The generator's first feature map in pixels, and the factor of its last upsampling.

        The book's are 4 and, for faces of 96 pixels, 3; with doublings alone such a face grows 6-12-24-48-96.
        """
        return (6, 2) if self.growth == "doubling" and self.last_factor == 3 else (4, self.last_factor)

    def default_widths(self, width: int, most: int = 8) -> tuple[int, ...]:
        """Return the default channels at each of `resolutions`: doubled per halving, up to `most` times `width`."""
        finest = self.resolutions[-1]
        return tuple(width * min(most, finest // resolution) for resolution in self.resolutions)

    @property
    def generator(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The generator's channels and residual blocks at each of its maps, coarse to fine.

        With `dcgan` the first map has no block: there a block soon outweighs z, and all faces become one.
        """
        number, least = len(self.resolutions), self.growing[0]
        if self.arch == "resnet":
            return self.widths or self.default_widths(self.ngf), self.depths or (1,) * number
        depths = (0, *((1 + self.lean) * (least * 2**doubling <= self.blocks) for doubling in range(1, number)))
        return self.widths or self.default_widths(self.ngf, 4 if self.lean else 8), depths

    @property
    def discriminator(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The discriminator's channels and residual blocks at each of `resolutions`."""
        blocks = int(self.arch == "resnet")
        return self.widths or self.default_widths(self.ndf), self.depths or (blocks,) * len(self.resolutions)


BEFORE: Mapping[str, Any] = {
    field.name: field.default for field in dataclasses.fields(ModelConfig) if field.default is not dataclasses.MISSING
}
"""Values of networks whose checkpoints are older than these options."""
RUN_BEFORE: Mapping[str, Any] = {
    **BEFORE,
    "share_samples": False,
    "typical": 1.0,
    "head_penalty": 0.0,
    "eval_metric": "fd",
    "whole": 0.0,
}
"""The same for the options of whole runs."""


T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Option:
    """Properties of an option besides its name, type and default, which its field has."""

    meaning: str  # for the help and docs/options.md
    ge: float | None = None  # smallest value of a number
    le: float = math.inf  # largest value
    choices: tuple[int, ...] = ()  # all values that a number may have
    later: bool = False  # may differ when a run is resumed; all other options define the run
    detail: bool = False  # a detail of the recipe, shown only by --help_all


def option(default: T, meaning: str, **more: Any) -> T:
    """Create a config field that is an option; `more` are arguments of `Option`. Users cannot set other fields."""
    return dataclasses.field(default=default, metadata={"option": Option(meaning, **more)})


def recipe(default: T, meaning: str, **more: Any) -> T:
    """Create an option that is a detail of the recipe."""
    return option(default, meaning, detail=True, **more)


C = TypeVar("C")  # a config: a frozen dataclass whose options are made by `option`


def options_of(config_type: type) -> dict[str, Option]:
    """Return the options among the fields of a config, by name."""
    return {f.name: f.metadata["option"] for f in dataclasses.fields(config_type) if "option" in f.metadata}


def check_numbers(config: object) -> None:
    """Check every number of a config against its option's limits; a ConfigError names the first that fails."""
    for name, said in options_of(type(config)).items():
        value = getattr(config, name)
        if said.choices and value not in (*said.choices, None):
            expected = f"one of {', '.join(map(str, said.choices))}"
        elif not (said.ge is None or value is None or (said.ge <= value <= said.le and math.isfinite(value))):
            expected = f"at least {said.ge:g}" if said.le == math.inf else f"from {said.ge:g} to {said.le:g}"
        else:
            continue
        raise ConfigError(f"--{name}: must be {expected}; got {value}")


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
    vis_server: str = option("http://localhost", "the visdom server's address.", later=True)
    vis_port: int = option(8097, "the visdom server's port.", ge=1, le=65535, later=True)
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
    arch: Arch = option("dcgan", "family of networks: dcgan, or resnet with residual blocks.")
    nz: int = option(100, "length of the latent z.", ge=1)
    ngf: int = option(64, "channels of the generator before its last layers; its width.", ge=1)
    ndf: int = option(32, "channels of the discriminator after its first layers; its width.", ge=1)
    widths: tuple[int, ...] | None = recipe(
        None,
        "channels of both networks at 4, 8, 16, ... pixels (with --growth=doubling the generator's are 6, 12, 24, ... "
        "for faces of 48, 96 and 192), as 256,128,64,32 for faces of 96, in place of ngf and ndf.",
    )
    depths: tuple[int, ...] | None = recipe(
        None, "residual blocks of both networks at 4, 8, 16, ... pixels, as 2,2,1,1; unset: one each with resnet."
    )
    d_norm: Norm = recipe("none", "normalisation in the discriminator.")
    projected: bool = recipe(
        True,
        "let the discriminator also use the features of a trained encoder: good faces appear far sooner; --noprojected "
        "trains from scratch.",
    )
    d_encoder: DEncoder = recipe(
        "lite0",
        "the encoder: lite0, a package, trained on photographs; or faces, a small one that comes with the program and "
        "knows only anime faces.",
    )
    d_enlarge: float = recipe(
        1.0,
        "with projected: the encoder sees faces enlarged this many times, and an eye at more places; takes longer. The "
        "released generator had 1.5.",
        ge=1,
        le=4,
    )
    patch: bool = recipe(
        True,
        "with projected: take the loss at each place of a face, so that a broken place counts in full; --nopatch takes "
        "it from the mean over all places.",
    )
    up: Up = recipe(
        "nearest",
        "how the generator of dcgan doubles its size: by the book's transposed convolutions, which make chequerboards, "
        "or by nearest neighbours and a convolution.",
    )
    growth: Growth = recipe(
        "doubling",
        "sizes of the generator's maps: doublings alone, at 96 pixels 6, 12, 24, 48; or as in the book, where the last "
        "step is threefold: 4, 8, 16, 32. They differ at 48, 96 and 192 pixels.",
    )
    blocks: int = recipe(
        48,
        "the generator of dcgan has a residual block at each of its maps of up to this many pixels, except the first, "
        "so that both eyes of a face agree more often; 0: none.",
        ge=0,
    )
    modulated: bool = recipe(
        True,
        "let the latent also set gain and shift of all the generator's maps except the first: more kinds of faces.",
    )
    lean: bool = recipe(
        True,
        "the generator of dcgan has at most four times ngf channels, not eight times, and two blocks of half the width "
        "in place of each one: fewer broken eyes in the same time.",
    )
    to_rgb: Literal["book", "slim", "fine"] = recipe(  # older files may say smooth
        "slim",
        "last layers of the generator: the book's one, which leaves a grid; slim, smooth interpolation of few "
        "channels; or fine, the same and a residual block at the face's full size, as the released generator has.",
    )
    loss: Loss = option(
        "rp",
        "bce (the book's), hinge, rahinge (the book's second edition), rp (relativistic pairing) or wgan (best as "
        "--preset=wgan or --preset=wgan-gp).",
    )
    penalty: Penalty = recipe(
        "approximate",
        "gradient penalty on reals (R1) and fakes (R2), by double backward (exact) or by finite difference; or gp, "
        "that of WGAN-GP, which keeps the slope between them at 1.",
    )
    penalty_weight: float = recipe(0.02, "weight of the penalty, per step.", ge=0)
    penalty_every: int = recipe(8, "steps between penalties; each is multiplied by this number.", ge=1)
    head_penalty: float = recipe(
        0.05, "with projected: weight of the same penalty on the heads, at the encoder's features; 0: none.", ge=0
    )
    clip: float = recipe(
        0.0, "the discriminator's weights are clipped to this size after each of its steps; 0: no clipping.", ge=0
    )
    lr1: float = option(6e-4, "learning rate of the generator.", ge=0, le=1)
    lr2: float = option(6e-4, "learning rate of the discriminator.", ge=0, le=1)
    anneal: float = recipe(
        0.5,
        "with --budget: share of it, its last part, over which both learning rates fall to 0; 0 keeps them.",
        ge=0,
        le=1,
    )
    beta1: float = option(0.0, "Adam's first decay, both networks.", ge=0, le=0.9999)
    beta2: float = recipe(0.99, "Adam's second decay, both networks.", ge=0, le=0.99999)
    d_every: int = option(1, "steps between updates of the discriminator.", ge=1)
    g_every: int = option(1, "steps between updates of the generator.", ge=1)
    share_samples: bool = recipe(
        True,
        "let both networks learn from the same samples in a step, which saves time; --noshare_samples generates "
        "others for the generator, as the book does.",
    )
    ema_half_life_images: int = recipe(
        500_000, "half-life of the averaged generator; at most a tenth of the images seen; 0: no average.", ge=0
    )
    flip: float = recipe(
        0.5, "probability that a face is mirrored; samples are not, so that they face both ways.", ge=0, le=1
    )
    translate: float = recipe(
        0.3, "probability that a step shifts its faces, by up to an eighth of their size.", ge=0, le=1
    )
    colour: float = recipe(
        0.0,
        "probability that a face is made a little brighter or darker, paler or stronger in colour and contrast.",
        ge=0,
        le=1,
    )
    freeze: int = recipe(
        0,
        "first convolutions of the discriminator that keep the weights they start with; with --init its later layers "
        "then learn from few faces without forgetting what the early ones see.",
        ge=0,
    )
    holdout: float = recipe(
        0.05, "share of a set of 2,000 faces or more that is held out from training, for evaluation.", ge=0, le=0.5
    )
    whole: float | None = recipe(
        None,
        "weight, in the generator's loss, of how whole samples look, as learned from samples of anime faces that were "
        "rated by eye: fewer broken eyes, a little less variety; unset: 1 for anime faces, 0 for others.",
        ge=0,
    )
    typical: float | None = recipe(
        None,
        "share of the training faces to learn from (instance selection): of anime faces those that look most whole, of "
        "others those most like the rest; unset: 0.6 of anime faces, 0.8 of others; 1 takes all. Of fewer than 2,000 "
        "faces, and of synthetic ones, all are always taken.",
        ge=0.01,
        le=1,
    )
    seed: int = option(0, "fixes all randomness of the run.", ge=0, le=2**53)
    num_workers: int | None = option(
        None, "processes that decode the faces; by default one per core.", ge=1, le=1024, later=True
    )
    precision: Precision = option("auto", "bf16, fp32, or auto: bf16 where this device is faster with it.")
    compile: bool | None = option(
        None,
        "compile the networks with torch.compile; unset: on a single GPU, if a measurement shows that it saves more "
        "time than it costs; --nocompile never.",
        later=True,
    )
    plot_every: int = option(
        250,
        "steps between preview grids; delayed while they and measurements cost over 3 % of the time, and in long runs "
        "until a 500th of the time so far has passed; 0 turns them off.",
        ge=0,
        later=True,
    )
    eval_images: int = option(
        10_000,
        "images between measurements of quality, on 2,000 samples or as many as there are faces; skipped where they "
        "would cost over 3 % of the time, except the last one if there was one before or a fifth of the budget is "
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
    debug_file: Path | None = option(
        None, "whenever this file is touched, the next step begins in the debugger.", later=True
    )
    vocabulary: Vocabulary = ()  # not an option: the classes that were found
    eval_metric: Metric | None = None  # not an option: decides best.pt; settled when a run is first measured

    def __post_init__(self) -> None:
        if self.channels not in (1, 3):
            raise ConfigError(f"--channels: must be 3 (colour) or 1 (grey); got {self.channels}")
        check_numbers(self)
        if not (self.resume or self.init or self.netg_path or self.netd_path):  # otherwise a file has the sizes
            self.check_networks()
        if self.resume is not None and self.init is not None:
            raise ConfigError("--resume goes on with a run and --init starts a new one; give one of them")
        if self.init is not None and (self.netg_path or self.netd_path):
            raise ConfigError("--init and --netg_path or --netd_path both say what to start from; give one of them")
        if self.penalty != "none" and self.d_norm == "batch":
            raise ConfigError(
                f"--penalty={self.penalty} needs logits that depend on their own image alone, but --d_norm=batch mixes "
                "the batch; use --d_norm=none or spectral, or --penalty=none"
            )
        if self.loss == "wgan" and self.penalty == "none" and self.clip == 0:
            raise ConfigError(
                "--loss=wgan diverges unless something bounds the discriminator's slope; use --preset=wgan "
                "or --preset=wgan-gp, or add --clip=0.01"
            )
        if self.vis_server.rpartition(":")[2].rstrip("/").isdecimal():
            raise ConfigError(f"--vis_server: give the port with --vis_port; got {self.vis_server!r}")
        if self.run is not None and (Path(self.run).name != self.run or self.run in ("", ".", "..")):
            raise ConfigError(f"--run: expected a plain name for a folder under {RUNS}; got {self.run!r}")

    def check_networks(self) -> None:
        """Check that `widths` and `depths` have a number per resolution, and that `freeze` leaves a layer to train."""
        resolutions = self.model.resolutions
        for name, example in (("widths", self.model.default_widths(self.ngf)), ("depths", (1,) * len(resolutions))):
            numbers = getattr(self, name)
            if numbers is None:
                continue
            if name == "depths" and self.arch != "resnet":
                raise ConfigError("--depths: residual blocks belong to --arch=resnet; leave it out, or add that")
            if len(numbers) != len(resolutions) or min(numbers) < 1:
                raise ConfigError(
                    f"--{name}: expected {len(resolutions)} numbers of at least 1, one for each of "
                    f"{', '.join(map(str, resolutions))} pixels of a face of {self.image_size}, as "
                    f"{','.join(map(str, example))}; got {','.join(map(str, numbers))}"
                )
        if self.freeze > len(resolutions):
            raise ConfigError(
                f"--freeze: must be at most {len(resolutions)} at {self.image_size} pixels, so that a layer is left to "
                f"learn; got {self.freeze}"
            )

    @property
    def epochs(self) -> float:
        """The most passes over the faces; infinite if only a budget ends the run."""
        return self.max_epoch or (200 if self.budget is None else math.inf)

    @property
    def kept_by(self) -> Metric:
        """The metric that decides best.pt, settled when a run is first measured."""
        return self.eval_metric or "fd"

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
    "size": ("image_size",),
    "workers": ("num_workers",),
    "checkpoint": ("fake",),
    "data_path": ("real",),
}
# Options that may differ when a run is resumed; all others define the run.
CHANGEABLE_ON_RESUME = frozenset(name for name, option in options_of(TrainConfig).items() if option.later)

_RENAMED: Mapping[tuple[str, Any], str] = {("loss", "logistic"): "bce", ("eval_metric", "fd_damage"): "fd"}


def restore(stored: Mapping[str, Any]) -> TrainConfig:
    """Build a run's config from the plain values in its checkpoint, which may be older than some options.

    Raises:
        TypeError: an option is unknown to this version.
        ConfigError: a value is out of range.
    """
    fields = {field.name: str(field.type) for field in dataclasses.fields(TrainConfig)}
    values: dict[str, Any] = {}
    for name, value in {**RUN_BEFORE, **stored}.items():
        if isinstance(value, list):
            values[name] = tuple(value)
        elif value is not None and "Path" in fields.get(name, ""):
            values[name] = Path(value)
        else:
            values[name] = _RENAMED.get((name, value), value)
    return TrainConfig(**values)
