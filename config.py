"""What can be set: options with their types, defaults and limits, presets, and the errors a user can meet.

Imports nothing of the project and no torch, so that a wrong option is answered at once.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

BEFORE: Mapping[str, Any] = {
    "projected": False,
    "d_encoder": "faces",
    "patch": False,
    "up": "transposed",
    "growth": "book",
    "blocks": 0,
    "modulated": False,
    "lean": False,
}
"""What networks have whose checkpoints do not know these options, which came later."""
RUN_BEFORE: Mapping[str, Any] = {
    **BEFORE,
    "share_samples": False,
    "typical": 1.0,
    "head_penalty": 0.0,
    "eval_metric": "fd",
}
"""The same of whole runs."""
IMAGE_SIZES = (32, 48, 64, 96, 128, 192, 256)
RELEASED = Path(__file__).resolve().parent / "checkpoints" / "anime-faces-96.pt"
RELEASED_NAME = Path("released")
"""What options call it; a file or folder of that name needs another way of writing it, `$PWD/released`."""
NAMING = ("init", "checkpoint", "fake")
"""Those options."""
ENCODER = RELEASED.with_name("face-encoder.pt")
D_ENCODER = RELEASED.with_name("discriminator-encoder.pt")
REFERENCE = RELEASED.with_name("face-reference.pt")
WHOLE_FACES = RELEASED.with_name("whole-faces.pt")
DAMAGE = RELEASED.with_name("damage.pt")
RUNS = Path("checkpoints")
PACKS = Path("data") / ".packs"
SYNTHETIC = Path("synthetic")
"""The data path of the drawn faces; a folder of that name needs another way of writing it, `$PWD/synthetic`."""

Arch = Literal["dcgan", "resnet"]
Norm = Literal["batch", "spectral", "none"]
ToRGB = Literal["book", "smooth", "slim"]
DEncoder = Literal["faces", "lite0"]
Up = Literal["transposed", "nearest"]
Growth = Literal["book", "doubling"]
Loss = Literal["bce", "logistic", "hinge", "rahinge", "rp", "wgan"]
Penalty = Literal["none", "exact", "approximate", "gp"]
Precision = Literal["auto", "fp32", "bf16"]
Features = Literal["imagenet", "faces", "inception"]
Metric = Literal["damage_x100", "fd", "kid_x1000", "coverage", "swd_x1000"]
Preset = Literal["default", "book", "book64", "book2", "wgan", "wgan-gp"]


class UserError(Exception):
    """Something the user can put right. Shown as one line: what was found, what was expected, what to do."""


class ConfigError(UserError, ValueError):
    """An option is unknown, malformed, out of range, or does not fit another one."""


class DataError(UserError):
    """The faces cannot be found, read or packed."""


class CheckpointError(UserError):
    """A checkpoint cannot be read, written, or does not fit what is asked of it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Everything that decides the shapes of the two networks. Travels with their weights.

    Args:
        arch: family of networks.
        image_size: height and width of a face, pixels.
        nz: length of the latent z.
        ngf: channels of the generator at its second-finest resolution.
        ndf: channels of the discriminator at its second-finest resolution.
        d_norm: normalisation in the discriminator.
        to_rgb: how the generator ends, see `model.to_rgb`.
        channels: of a face: 3 for colour, 1 for grey.
        widths: channels of both networks at each of `resolutions`; None takes them from ngf and ndf.
        depths: residual blocks of both networks at each of `resolutions`; None is one each with `resnet`.
        projected: whether the discriminator also judges by what a frozen encoder sees, see `model.Projected`.
        d_encoder: which one.
        patch: whether its heads then judge each place of a face, see `gan.training.losses`.
        up: how the generator of `dcgan` doubles its size, see `model.NearestConv`.
        growth: through which sizes the generator's maps grow, see `growing`.
        blocks: the generator of `dcgan` has a residual block at each of its maps but the first of up to so many pixels.
        modulated: whether z sets gain and shift of each of its later maps, see `model.Modulation`.
        lean: whether the generator of `dcgan` has at most 4 ngf channels, if `widths` does not say, and at each of its
            maps with blocks two that are half as wide inside, in place of one; with `modulated` each is modulated.
    """

    arch: Arch
    image_size: int
    nz: int
    ngf: int
    ndf: int
    d_norm: Norm
    to_rgb: ToRGB
    channels: int = 3  # these came later: older checkpoints lack them
    widths: tuple[int, ...] | None = None
    depths: tuple[int, ...] | None = None
    projected: bool = False
    d_encoder: DEncoder = "faces"
    patch: bool = False
    up: Up = "transposed"
    growth: Growth = "book"
    blocks: int = 0
    modulated: bool = False
    lean: bool = False

    @property
    def last_factor(self) -> int:
        """The factor of the last up-sampling: 3 where the size has one (96 = 4 * 2 * 2 * 2 * 3), else 2."""
        return 3 if self.image_size % 3 == 0 else 2

    @property
    def resolutions(self) -> tuple[int, ...]:
        """Pixels of the feature maps before the last up-sampling: 4, 8, 16, 32 for faces of 96."""
        doublings = (self.image_size // self.last_factor // 4).bit_length()
        return tuple(4 * 2**i for i in range(doublings))

    @property
    def growing(self) -> tuple[int, int]:
        """Pixels of the generator's first feature map, and the factor of its last up-sampling.

        The book's are 4 and, for faces of 96, 3; with doublings alone such a face grows 6-12-24-48-96.
        """
        return (6, 2) if self.growth == "doubling" and self.last_factor == 3 else (4, self.last_factor)

    def default_widths(self, width: int, most: int = 8) -> tuple[int, ...]:
        """Channels at each of `resolutions` where none are given: twice as many a halving, up to `most` times."""
        finest = self.resolutions[-1]
        return tuple(width * min(most, finest // resolution) for resolution in self.resolutions)

    @property
    def generator(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The generator's channels and residual blocks at each of its maps, coarse to fine.

        One of `dcgan` has none at its first map: there a block soon outweighs z, and all faces become one.
        """
        number, least = len(self.resolutions), self.growing[0]
        if self.arch == "resnet":
            return self.widths or self.default_widths(self.ngf), self.depths or (1,) * number
        depths = (0, *((1 + self.lean) * (least * 2**doubling <= self.blocks) for doubling in range(1, number)))
        return self.widths or self.default_widths(self.ngf, 4 if self.lean else 8), depths

    @property
    def discriminator(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The discriminator's, at each of `resolutions`."""
        blocks = int(self.arch == "resnet")
        return self.widths or self.default_widths(self.ndf), self.depths or (blocks,) * len(self.resolutions)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Train a generator of small faces on a folder of pictures.

    Args:
        data_path: the faces: a folder searched to any depth, class folders, a zip, a folder of zips; or synthetic:
            faces drawn by the program, also taken when data/ has none; or torchvision:NAME:FOLDER, a dataset of
            torchvision on this disk, as torchvision:MNIST:FOLDER.
        preset: a set of options under one name: default (the best measured), book (chapter 7, first edition), book64
            (the same with batches of 64 and a generator step for each of the discriminator's), book2 (second edition),
            wgan (weight clipping), wgan-gp.
        gpu: train on the GPU; --nogpu forces the CPU; unset takes the best device there is.
        vis: show the run in visdom, on a server that runs already, else on one that ends with the run.
        vis_server: the visdom server's address.
        vis_port: the visdom server's port.
        vis_keep: let a visdom server that the run has started go on after it.
        env: environment of the run on the visdom page; by default the run's name.
        resume: go on with a run: bare takes the newest; or a run's folder or one of its checkpoints.
        init: start a new run from the weights of this checkpoint, or of a run, or released: those that come with the
            program; they decide the networks' options.
        netg_path: start from a generator that the book's program saved, netg_200.pth; its file decides the networks'
            options, and the preset is book unless another is typed.
        netd_path: the same for the discriminator, netd_200.pth.
        run: name of the run, its folder under checkpoints/; by default date and time.
        save_path: folder for the preview grids; by default samples/ in the run.
        max_epoch: passes over the faces; unset: 200, or as many as the budget allows.
        budget: minutes you have: the run ends in time, its last measurement and grid done; with the default preset and
            no old weights the machine is measured and learning rates are chosen by it, on fast machines networks and
            batch too; with --resume so many minutes from now; unset trains by epochs.
        batch_size: faces per step.
        image_size: height and width of the faces, pixels: 32, 48, 64, 96, 128, 192 or 256.
        channels: 3 for colour, 1 for grey.
        arch: family of networks: dcgan, or resnet with residual blocks.
        nz: length of the latent z.
        ngf: channels of the generator before its last layers; its width.
        ndf: channels of the discriminator after its first layers; its width.
        widths: channels of both networks at 4, 8, 16, ... pixels (with --growth=doubling the generator's are 6, 12,
            24, ... for faces of 48, 96 and 192), as 256,128,64,32 for faces of 96, in place of ngf and ndf.
        depths: residual blocks of both networks at 4, 8, 16, ... pixels, as 2,2,1,1; unset: one each with resnet.
        d_norm: normalisation in the discriminator.
        projected: let the discriminator also judge by what a trained encoder sees: good faces come sooner by far;
            --noprojected trains from nothing.
        d_encoder: which one: lite0, which knows photographs, a package; or faces, the small one that comes with the
            program and knows anime faces alone.
        patch: with projected: take the loss at each place of a face, so that a broken one counts in full; --nopatch
            takes it of the mean of all places.
        up: how the generator of dcgan doubles its size: by the book's transposed convolutions, which draw
            chequerboards, or by nearest neighbours and a convolution.
        growth: sizes that a generated face grows through: by doublings alone, at 96 pixels 6, 12, 24, 48; or as in the
            book, where the last step is threefold: 4, 8, 16, 32. They differ at 48, 96 and 192 pixels.
        blocks: the generator of dcgan has a residual block at each of its maps but the first of up to so many pixels,
            by which both eyes of a face agree more often; 0: none.
        modulated: let the latent set gain and shift of all maps of the generator but the first, too, by which it draws
            more kinds of faces.
        lean: the generator of dcgan has at most four times ngf channels, not eight times, and two blocks half as wide
            in place of each one: fewer broken eyes in the same time.
        to_rgb: last layers of the generator: the book's one, which draws a grid; smooth interpolation; or slim, the
            same for less time.
        loss: bce (the book's), logistic (another name for bce), hinge, rahinge (the book's second edition), rp
            (relativistic pairing) or wgan (best as --preset=wgan or --preset=wgan-gp).
        penalty: gradient penalty on reals (R1) and fakes (R2), by double backward (exact) or by finite difference; or
            gp, that of WGAN-GP, which keeps the slope between them at 1.
        penalty_weight: weight of the penalty, per step.
        penalty_every: steps between penalties; each is weighted up by this.
        penalty_noise: standard deviation of the noise of the approximate penalty, in units of [-1, 1] images.
        head_penalty: with projected: weight of the same penalty on what judges by the encoder, at what it sees, whose
            units penalty_noise then is in; 0: none.
        clip: the discriminator's weights are clipped to this size after each of its steps; 0: they are not.
        lr1: learning rate of the generator.
        lr2: learning rate of the discriminator.
        anneal: with --budget: share of it, its last part, over which both learning rates fall to 0; 0 keeps them.
        beta1: Adam's first decay, both networks.
        beta2: Adam's second decay, both networks.
        d_every: steps between updates of the discriminator.
        g_every: steps between updates of the generator.
        share_samples: let both networks learn from the same samples in a step, which saves time; --noshare_samples
            draws others for the generator, as the book does.
        ema_half_life_images: half-life of the averaged generator; at most a tenth of the images seen; 0: no average.
        flip: probability that a face is mirrored; samples are not, so that they look both ways.
        translate: probability that a step shifts its faces, by up to an eighth of their size.
        colour: probability that a face is made a little brighter or darker, paler or stronger in colour and contrast.
        freeze: first convolutions of the discriminator that keep the weights they start with; with --init its later
            layers then learn from few faces without forgetting what the early ones see.
        holdout: share of a set of 2,000 faces or more that is kept from training, for evaluation.
        typical: of 2,000 faces or more, share of those not held out to learn from: of anime faces those that look most
            whole, of others the ones most like the rest. 1 takes all, as do fewer faces and drawn ones.
        seed: fixes all randomness of the run.
        num_workers: processes that decode the faces; by default one a core.
        precision: bf16, fp32, or auto: bf16 where this device is faster with it.
        compile: compile the networks by torch.compile; unset: on a single GPU, in a run so long that what it saves,
            which is measured, is more than it costs; --nocompile never.
        log_every: steps between rows of log.jsonl.
        plot_every: steps between preview grids; put off while they and measurements cost over 3 % of the time, and in
            long runs to every 500th part of it; 0 turns them off.
        eval_images: images between measurements of quality, on 2,000 samples or as many as there are faces; left out
            where they would cost over 3 % of the time, but for the last where there was one before or a fifth of the
            budget is enough; 0 turns them off.
        eval_metric: the metric by which best.pt is kept and a run's progress judged; unset: for anime faces
            damage_x100, the share of a face that looks damaged, for others fd.
        save_every: epochs between numbered checkpoints; unless typed, at least 20,000 images, on a GPU 500,000.
        save_minutes: minutes between saves of latest.pt.
        tensorboard: write the run for TensorBoard too, into tensorboard/ in its folder.
        debug_file: whenever this file is touched, the next step begins in the debugger.
    """

    data_path: Path = Path("data")
    preset: Preset = "default"
    gpu: bool | None = None
    vis: bool = False
    vis_server: str = "http://localhost"
    vis_port: int = 8097
    vis_keep: bool = False
    env: str | None = None
    resume: str | None = None
    init: Path | None = None
    netg_path: Path | None = None
    netd_path: Path | None = None
    run: str | None = None
    save_path: Path | None = None
    max_epoch: int | None = None
    budget: float | None = None
    batch_size: int = 32
    image_size: int = 96
    channels: int = 3
    arch: Arch = "dcgan"
    nz: int = 100
    ngf: int = 64
    ndf: int = 32
    widths: tuple[int, ...] | None = None
    depths: tuple[int, ...] | None = None
    d_norm: Norm = "none"
    projected: bool = True
    d_encoder: DEncoder = "lite0"
    patch: bool = True
    up: Up = "nearest"
    growth: Growth = "doubling"
    blocks: int = 48
    modulated: bool = True
    lean: bool = True
    to_rgb: ToRGB = "slim"
    loss: Loss = "rp"
    penalty: Penalty = "approximate"
    penalty_weight: float = 0.02
    penalty_every: int = 8
    penalty_noise: float = 0.1
    head_penalty: float = 0.05
    clip: float = 0.0
    lr1: float = 6e-4
    lr2: float = 6e-4
    anneal: float = 0.5
    beta1: float = 0.0
    beta2: float = 0.99
    d_every: int = 1
    g_every: int = 1
    share_samples: bool = True
    ema_half_life_images: int = 500_000
    flip: float = 0.5
    translate: float = 0.3
    colour: float = 0.0
    freeze: int = 0
    holdout: float = 0.05
    typical: float = 0.8
    seed: int = 0
    num_workers: int | None = None
    precision: Precision = "auto"
    compile: bool | None = None
    log_every: int = 50
    plot_every: int = 250
    eval_images: int = 10_000
    eval_metric: Metric | None = None
    save_every: int = 10
    save_minutes: float = 2.0
    tensorboard: bool = False
    debug_file: Path | None = None

    def __post_init__(self) -> None:
        if self.image_size not in IMAGE_SIZES:
            raise ConfigError(f"--image_size: must be one of {', '.join(map(str, IMAGE_SIZES))}; got {self.image_size}")
        if self.channels not in (1, 3):
            raise ConfigError(f"--channels: must be 3 (colour) or 1 (grey); got {self.channels}")
        check_limits(self, TRAIN_LIMITS)
        if not (self.resume or self.init or self.netg_path or self.netd_path):  # else a file will say the size
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
                "--loss=wgan diverges unless something bounds the discriminator's slope; add --clip=0.01 or "
                "--penalty=gp"
            )
        if self.vis_server.rpartition(":")[2].rstrip("/").isdecimal():
            raise ConfigError(f"--vis_server: give the port with --vis_port; got {self.vis_server!r}")
        if self.run is not None and (Path(self.run).name != self.run or self.run in ("", ".", "..")):
            raise ConfigError(f"--run: expected a plain name for a folder under {RUNS}; got {self.run!r}")

    def check_networks(self) -> None:
        """Check that `widths` and `depths` have a number for each resolution, and that `freeze` leaves one to learn.

        Raises:
            ConfigError: they have not.
        """
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
        """Passes over the faces at most; infinite where minutes alone end the run."""
        return self.max_epoch or (200 if self.budget is None else math.inf)

    @property
    def kept_by(self) -> Metric:
        """What best.pt is kept by; a new run has decided it where nobody typed it."""
        return self.eval_metric or "fd"

    @property
    def model(self) -> ModelConfig:
        """The part that decides the networks' shapes."""
        return ModelConfig(**{f.name: getattr(self, f.name) for f in dataclasses.fields(ModelConfig)})


@dataclasses.dataclass(frozen=True, kw_only=True)
class GenerateConfig:
    """Draw faces from a checkpoint into a picture.

    Args:
        checkpoint: a file, or a run's folder (its best.pt, else latest.pt); by default released, the generator that
            comes with the program.
        netg_path: draw with a generator that the book's program saved, netg_200.pth, instead.
        netd_path: the discriminator that belongs to it, netd_200.pth; needed to choose by it.
        gen_num: number of faces; --nogen is the same option.
        gen_img: the picture to write, a grid of all faces (the first 1,024 when there are more).
        outdir: folder that also gets every face as a PNG of its own.
        seed: seed of the first face; the next faces have the next seeds.
        gen_search_num: draw this many and keep the gen_num that look most whole, above all around the eyes; where
            they are no anime faces, those in which the discriminator finds least amiss; unset keeps all.
        gen_mean: mean of the latents.
        gen_std: standard deviation of the latents, the truncation: below 1 more alike and cleaner, above wilder.
        gpu: draw on the GPU; --nogpu forces the CPU; unset takes the best device there is.
        timelapse: a run's folder: make a film of its preview grids instead, timelapse.webp in that folder; or the
            file of --gen_img, ending in .webp, .gif, or .mp4 (which needs requirements-extra.txt).
    """

    checkpoint: Path = RELEASED
    netg_path: Path | None = None
    netd_path: Path | None = None
    gen_num: int = 64
    gen_img: Path = Path("result.png")
    outdir: Path | None = None
    seed: int = 0
    gen_search_num: int | None = None
    gen_mean: float = 0.0
    gen_std: float = 1.0
    gpu: bool | None = None
    timelapse: Path | None = None

    def __post_init__(self) -> None:
        check_limits(self, GENERATE_LIMITS)
        if self.gen_search_num is not None and self.gen_search_num < self.gen_num:
            raise ConfigError(
                f"--gen_search_num: must be at least --gen_num ({self.gen_num}), it is what they are chosen from; "
                f"got {self.gen_search_num}"
            )
        if self.netd_path is not None and self.netg_path is None:
            raise ConfigError("--netd_path only chooses among what --netg_path draws; give that too")
        if self.netg_path is not None and self.checkpoint != RELEASED:
            raise ConfigError("--checkpoint and --netg_path both name a generator; give one of them")
        if self.netg_path is not None and self.netd_path is None and self.gen_search_num is not None:
            raise ConfigError("--gen_search_num chooses by a discriminator; give the one of --netg_path: --netd_path")
        if self.timelapse is None and self.gen_img.suffix.lower() not in (".png", ".jpg", ".jpeg", ".webp"):
            raise ConfigError(f"--gen_img: expected a name ending in .png, .jpg or .webp; got '{self.gen_img}'")


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluateConfig:
    """Measure how good generated faces are, against real ones.

    Args:
        fake: what to measure: a checkpoint, a run's folder (its best.pt, else latest.pt), or a folder or zip of
            pictures; by default released, the generator that comes with the program.
        real: the real faces, a folder or zip, or synthetic; unset takes those that a run was trained on, else those
            in data/, else what comes with the program of the faces that trained the released generator.
        n: samples, and real faces; at most half of those there are, the other half gives the floor.
        seed: seed of the first sample, and of the choice among real faces that are at hand; for n other samples take
            one that is n further.
        features: imagenet, of EfficientNet-lite2, which knows photographs; faces, of the encoder that comes with the
            program; or inception, for FID as papers report it, which needs requirements-extra.txt and a file of
            weights; unset: imagenet where its package is installed, else faces.
        fid_weights: file of Inception's weights; unset lets the library download them.
        image_size: height and width at which pictures are compared, pixels; unset: those of a checkpoint, else 96.
        pairs: show samples beside the faces nearest to them in the report.
        report: the picture to write; the numbers go beside it, with .json in place of its ending.
        gpu: compute on the GPU; --nogpu forces the CPU; unset takes the best device there is.
    """

    fake: Path = RELEASED
    real: Path | None = None
    n: int = 5000
    seed: int = 0
    features: Features | None = None
    fid_weights: Path | None = None
    image_size: int | None = None
    pairs: bool = False
    report: Path = Path("evaluation.png")
    gpu: bool | None = None

    def __post_init__(self) -> None:
        check_limits(self, EVALUATE_LIMITS)
        if self.image_size is not None and self.image_size not in IMAGE_SIZES:
            raise ConfigError(f"--image_size: must be one of {', '.join(map(str, IMAGE_SIZES))}; got {self.image_size}")
        if self.fid_weights is not None and self.features != "inception":
            raise ConfigError("--fid_weights are Inception's; add --features=inception, or leave them out")
        if self.report.suffix.lower() != ".png":
            raise ConfigError(f"--report: expected a name ending in .png; got '{self.report}'")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrepareConfig:
    """Turn any pile of pictures into clean faces, and say what was found. The pile is only read.

    Args:
        sources: folders, zips or pictures; folders are searched to any depth, and their subfolders stay.
        out: folder for the faces; what an earlier call wrote there is used again.
        min_size: pixels that the shorter side of a face must have.
        keep: kinds of findings to keep all the same, with commas between them: small, narrow, blank, dark,
            unfinished, grey, same, alike, odd; by default all are left out.
        centre: cut the centre square; else whole pictures are copied as they are.
        detect: cut the faces that --cascade finds, a file each.
        cascade: what a face looks like: a cascade file for OpenCV, which needs requirements-extra.txt.
        margin: what is cut around a face that was detected, on each side, as a share of its size.
        report: the page to write; all findings and files go beside it, with .json in place of its ending.
        dry_run: only write the report.
        num_workers: processes that read pictures; unset takes one a core.
        gpu: compare on the GPU; --nogpu forces the CPU; unset takes the best device there is.
    """

    sources: tuple[Path, ...] = ()
    out: Path = Path("data/faces")
    min_size: int = 64
    keep: str = ""
    centre: bool = False
    detect: bool = False
    cascade: Path | None = None
    margin: float = 0.3
    report: Path = Path("report.html")
    dry_run: bool = False
    num_workers: int | None = None
    gpu: bool | None = None

    def __post_init__(self) -> None:
        check_limits(self, PREPARE_LIMITS)
        if not self.sources:
            raise ConfigError("nothing to prepare; name a folder, a zip or pictures: python prepare.py FOLDER")
        for kind in filter(None, (kind.strip() for kind in self.keep.split(","))):
            if kind not in KEEPABLE:
                raise ConfigError(f"--keep: expected some of {', '.join(KEEPABLE)}; got {kind!r}")
        if self.detect != (self.cascade is not None):
            raise ConfigError("--detect and --cascade=FILE go together: what finds faces, and what a face looks like")
        if self.detect and self.centre:
            raise ConfigError("--detect and --centre both say what to cut; give one of them")
        if self.report.suffix.lower() not in (".html", ".htm"):
            raise ConfigError(f"--report: expected a name ending in .html; got '{self.report}'")


KEEPABLE = ("small", "narrow", "blank", "dark", "unfinished", "grey", "same", "alike", "odd")
"""Kinds of findings that `prepare.py` can keep; see `gan.data.cleaning.KINDS`."""

ALIASES = {"nogen": "gen_num"}
"""Option names that stand for another one."""

_BOOK: dict[str, Any] = {
    "batch_size": 256,
    "ndf": 64,
    "d_norm": "batch",
    "projected": False,
    "up": "transposed",
    "growth": "book",
    "blocks": 0,
    "modulated": False,
    "lean": False,
    "to_rgb": "book",
    "loss": "bce",
    "penalty": "none",
    "lr1": 2e-4,
    "lr2": 2e-4,
    "beta1": 0.5,
    "beta2": 0.999,
    "g_every": 5,
    "share_samples": False,
    "anneal": 0.0,
    "ema_half_life_images": 0,
    "flip": 0.0,
    "translate": 0.0,
    "holdout": 0.0,
    "typical": 1.0,
}
PRESETS: dict[Preset, dict[str, Any]] = {
    "default": {},
    "book": _BOOK,
    "book64": {**_BOOK, "batch_size": 64, "g_every": 1},
    "book2": {**_BOOK, "loss": "rahinge", "lr1": 2e-3, "g_every": 2},
    # Arjovsky et al. 2017, algorithm 1; its RMSProp is Adam without the first moment.
    "wgan": {
        "batch_size": 64,
        "ndf": 64,
        "loss": "wgan",
        "penalty": "none",
        "clip": 0.01,
        "d_norm": "batch",
        "projected": False,
        "blocks": 0,
        "modulated": False,
        "lean": False,
        "lr1": 5e-5,
        "lr2": 5e-5,
        "anneal": 0.0,
        "g_every": 5,
        "share_samples": False,
        "typical": 1.0,
    },
    # Gulrajani et al. 2017, algorithm 1.
    "wgan-gp": {
        "batch_size": 64,
        "ndf": 64,
        "loss": "wgan",
        "penalty": "gp",
        "projected": False,
        "blocks": 0,
        "modulated": False,
        "lean": False,
        "penalty_weight": 10.0,
        "penalty_every": 1,
        "anneal": 0.0,
        "lr1": 1e-4,
        "lr2": 1e-4,
        "beta2": 0.9,
        "g_every": 5,
        "share_samples": False,
        "typical": 1.0,
    },
}
"""Options by preset. An option typed by the user wins over its preset."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """What is chosen for a budget on one class of machines.

    Args:
        least_images: the default networks see at least so many images in the budget.
        options: what is chosen; an option typed by the user wins.
        expect: what faces to expect, in words.
    """

    least_images: float
    options: Mapping[str, Any]
    expect: str


_SLOW: dict[str, Any] = {"lr1": 3e-4, "lr2": 3e-4}
"""Learning rates for long runs, which vary more with them; the default's are for short ones, docs/experiments.md."""

PLANS = (
    Plan(least_images=0, options={}, expect="faces only to be guessed at"),
    Plan(least_images=20_000, options={}, expect="faces, many of them smeared"),
    Plan(least_images=100_000, options={}, expect="clear faces, an eye missing or smeared in one of three"),
    Plan(least_images=300_000, options=_SLOW, expect="clear faces, an eye missing or smeared in one of four"),
    Plan(
        least_images=2e6,
        options={**_SLOW, "ndf": 64, "batch_size": 64},
        expect="better faces than two CPU cores draw in an hour; not measured on such a machine",
    ),
    Plan(
        least_images=1e7,
        options={**_SLOW, "ngf": 128, "ndf": 128, "batch_size": 128},
        expect="better faces than two CPU cores draw in an hour; not measured on such a machine",
    ),
)
"""What a budget chooses, by what the machine can do in it; the last row that fits. Those of less than two million
images were measured, docs/experiments.md, with networks that had no blocks and no modulation; the others were not."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Few:
    """What is chosen where old weights are trained further on few faces.

    Args:
        most_faces: there are at most so many.
        options: what is chosen; an option typed by the user wins.
    """

    most_faces: int
    options: Mapping[str, Any]


FEW = (Few(most_faces=1000, options={**_SLOW, "freeze": 2, "translate": 0.6, "colour": 0.5}),)
"""What the number of faces chooses with `--init`; the first row that fits, none for more. With 400 faces it costs
nothing and brings little, for fewer it is not measured against its absence: docs/experiments.md."""

CHANGEABLE_ON_RESUME = frozenset(
    {"data_path", "gpu", "resume", "save_path", "max_epoch", "budget", "num_workers", "compile"}
    | {"vis", "vis_server", "vis_port", "vis_keep", "env"}
    | {
        "log_every",
        "plot_every",
        "eval_images",
        "eval_metric",
        "save_every",
        "save_minutes",
        "tensorboard",
        "debug_file",
    }
)
"""Options that may differ when a run goes on; all others define it."""

TRAIN_LIMITS: dict[str, tuple[float, float]] = {
    "max_epoch": (1, math.inf),
    "budget": (0.01, math.inf),
    "vis_port": (1, 65535),
    "batch_size": (2, math.inf),
    "nz": (1, math.inf),
    "ngf": (1, math.inf),
    "ndf": (1, math.inf),
    "blocks": (0, math.inf),
    "penalty_weight": (0, math.inf),
    "penalty_every": (1, math.inf),
    "penalty_noise": (1e-4, 10),
    "head_penalty": (0, math.inf),
    "clip": (0, math.inf),
    "lr1": (0, 1),
    "lr2": (0, 1),
    "anneal": (0, 1),
    "beta1": (0, 0.9999),
    "beta2": (0, 0.99999),
    "d_every": (1, math.inf),
    "g_every": (1, math.inf),
    "ema_half_life_images": (0, math.inf),
    "flip": (0, 1),
    "translate": (0, 1),
    "colour": (0, 1),
    "freeze": (0, math.inf),
    "holdout": (0, 0.5),
    "typical": (0.01, 1),
    "seed": (0, 2**53),
    "num_workers": (1, 1024),
    "log_every": (1, math.inf),
    "plot_every": (0, math.inf),
    "eval_images": (0, math.inf),
    "save_every": (1, math.inf),
    "save_minutes": (0.01, math.inf),
}
GENERATE_LIMITS: dict[str, tuple[float, float]] = {
    "gen_num": (1, math.inf),
    "gen_search_num": (1, math.inf),
    "seed": (0, 2**53),
    "gen_mean": (-10, 10),
    "gen_std": (0, 10),
}
PREPARE_LIMITS: dict[str, tuple[float, float]] = {"min_size": (1, 4096), "margin": (0, 2), "num_workers": (1, 256)}
EVALUATE_LIMITS: dict[str, tuple[float, float]] = {"n": (50, math.inf), "seed": (0, 2**53)}
"""Least and greatest value of each number, both allowed."""


def check_limits(
    config: TrainConfig | GenerateConfig | EvaluateConfig | PrepareConfig, limits: Mapping[str, tuple[float, float]]
) -> None:
    """Check every number of `config` against its limits.

    Raises:
        ConfigError: a number is out of range or not finite.
    """
    for name, (least, greatest) in limits.items():
        value = getattr(config, name)
        if value is None or (least <= value <= greatest and math.isfinite(value)):
            continue
        expected = f"at least {least:g}" if greatest == math.inf else f"from {least:g} to {greatest:g}"
        raise ConfigError(f"--{name}: must be {expected}; got {value}")


C = TypeVar("C", TrainConfig, GenerateConfig, EvaluateConfig, PrepareConfig)


def resolve(config_type: type[C], typed: Mapping[str, Any]) -> C:
    """Build a config from the options the user typed, over those of the preset, over the defaults.

    Args:
        config_type: which config.
        typed: option names and converted values.

    Raises:
        ConfigError: a value is out of range or does not fit another one.
    """
    typed = {**typed, **{name: RELEASED for name in NAMING if typed.get(name) == RELEASED_NAME}}
    if config_type is not TrainConfig:
        return config_type(**typed)
    of_the_book = typed.get("netg_path") or typed.get("netd_path")
    preset: Preset = typed.get("preset", "book" if of_the_book else "default")
    values = {"preset": preset, **PRESETS[preset], **typed}
    arch = values.get("arch", "dcgan")
    for name in {"up", "blocks", "lean"} & typed.keys() if arch != "dcgan" else ():
        raise ConfigError(f"--{name}: belongs to --arch=dcgan, {arch} has a way of its own; leave it out")
    config = config_type(**values)
    if typed.get("anneal") and "budget" not in typed and "resume" not in typed:
        raise ConfigError("--anneal: is a share of --budget, and there is none; give one, or leave it out")
    return config


def restore(config_type: type[C], stored: Mapping[str, Any]) -> C:
    """Build a config from what a checkpoint stored: plain values, paths as text.

    Raises:
        TypeError: an option is unknown to this version.
        ConfigError: a value is out of range.
    """
    paths = {f.name for f in dataclasses.fields(config_type) if "Path" in str(f.type)}
    values: dict[str, Any] = {k: Path(v) if k in paths and v is not None else v for k, v in stored.items()}
    values |= {k: tuple(v) for k, v in values.items() if isinstance(v, list)}
    if values.get("eval_metric") == "fd_damage":  # for a day
        values["eval_metric"] = "fd"
    return config_type(**values)
