"""The parts of a training step: networks, random numbers, and images as the discriminator receives them."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from gan import latent
from gan.device import send
from gan.quality import whole_faces
from gan.training import losses
from gan.training.augment import augment, draw_moves
from gan.training.run import Run, TrainingState
from gan.watching.monitor import Monitor

Network = Literal["d", "g"]  # the discriminator, or the generator


def due(step: int, every: int) -> bool:
    """Return whether `step` is a multiple of `every`; always False if `every` is 0."""
    return every > 0 and step % every == 0


@dataclasses.dataclass(frozen=True)
class WrappedNetworks:
    """The networks as a step calls them: compiled if chosen, and wrapped for several processes."""

    generator: Callable[[Tensor, Tensor], Tensor]  # its gradients are averaged over all processes
    trained_discriminator: Callable[[Tensor, list[Tensor], Tensor], Tensor]  # likewise
    discriminator: Callable[[Tensor, list[Tensor], Tensor], Tensor]  # for the generator's step, in which it is frozen
    encode: Callable[[Tensor], list[Tensor]]  # see `Discriminator.encode`
    whole: Callable[[Tensor], Tensor] | None = None  # scores how whole faces look, for the generator's step

    @classmethod
    def of(cls, run: Run, state: TrainingState) -> WrappedNetworks:
        """Wrap the networks of a run. The weights remain those of the state."""
        generator, discriminator, encode = state.generator, state.discriminator, state.discriminator.encode
        if run.precision == "bf16" and discriminator.projected is not None:
            discriminator.projected.encoder.to(torch.bfloat16)  # autocast would convert frozen weights at each call
        if run.config.compile:  # in one process only
            fixed: Any = functools.partial(torch.compile, dynamic=False)  # each shape gets its own code
            generator, discriminator, encode = fixed(generator), fixed(discriminator), fixed(encode)
        trained = [run.ranks.wrapped(network, run.device) for network in (generator, discriminator)]
        whole = whole_faces.scorer(run.device, run.precision) if run.config.whole else None
        return cls(trained[0], trained[1], discriminator, encode, whole)


@dataclasses.dataclass(frozen=True)
class View:
    """Real or generated faces as the discriminator receives them."""

    images: Tensor  # augmented, (n, C, S, S) in [-1, 1]
    features: list[Tensor]  # the features of the images by the discriminator's encoder
    classes: Tensor  # (n, V); generated faces have the classes of the real faces beside them

    def detach(self) -> View:
        """Return the same view without the graph that leads back to the generator."""
        return View(self.images.detach(), [features.detach() for features in self.features], self.classes)


@dataclasses.dataclass
class Step:
    """One training step."""

    run: Run
    state: TrainingState
    networks: WrappedNetworks
    monitor: Monitor
    real: Tensor  # real faces of this process, (n, C, S, S) in [-1, 1]
    classes: Tensor  # their classes, (n, V); V is 0 without classes
    samples: View | None = None  # of the discriminator's step, for the generator's if they are shared
    seen: View | None = None  # likewise the real faces

    @property
    def shared(self) -> bool:
        """Return whether both networks learn in this step, from the same samples; in the book each has its own."""
        config, step = self.run.config, self.state.step
        return config.arch != "book" and due(step, config.d_every) and due(step, config.g_every)

    @property
    def penalty_due(self) -> bool:
        """Return whether a penalty is due: in every `penalty_every`-th step of the discriminator."""
        config = self.run.config
        return config.penalty != "none" and due(self.state.step // config.d_every, config.penalty_every)

    @property
    def mine(self) -> slice:
        """This process's part of the whole batch."""
        return self.run.ranks.part(self.run.config.batch_size)

    def random(self, purpose: str, network: Network | None = None) -> np.random.Generator:
        """Return the step's random stream for a purpose; each network has its own unless both share the samples."""
        own = "" if network is None else "d_" if self.shared else f"{network}_"
        return latent.stream(self.run.config.seed, self.state.step, own + purpose, self.state.retries)

    @torch.no_grad()
    def real_view(self, network: Network) -> View:
        """Return the real faces as the discriminator receives them in the step of `network`."""
        if self.seen is None or not self.shared:
            self.seen = self.view(self.real, network)
        return self.seen

    def view(self, images: Tensor, network: Network) -> View:
        """Augment and encode images for the step of `network`.

        The random stream is the same at each call, so real and generated faces are moved and coloured alike.
        """
        config = self.run.config
        moves = draw_moves(
            self.random("moves", network), config.batch_size, config.image_size, config.translate, config.colour
        )
        images = augment(images, moves.of(self.mine))
        return View(images, self.networks.encode(images), self.classes)


StepFunction = Callable[[Step], None]  # one network's step
Steps = tuple[StepFunction, StepFunction]  # the discriminator's and the generator's, in this order


def discriminate_pair(
    discriminator: Callable[[Tensor, list[Tensor], Tensor], Tensor], real: View, fake: View, apart: bool
) -> tuple[Tensor, Tensor]:
    """Return the logits of real and generated faces, in one batch.

    With `apart` they are two batches, so that BatchNorm does not mix them.
    """
    if apart:
        return discriminate(discriminator, real), discriminate(discriminator, fake)
    both = View(
        torch.cat([real.images, fake.images]),
        [torch.cat(pair) for pair in zip(real.features, fake.features, strict=True)],
        torch.cat([real.classes, fake.classes]),
    )
    real_logits, fake_logits = discriminate(discriminator, both).chunk(2)
    return real_logits, fake_logits


def discriminate(discriminator: Callable[[Tensor, list[Tensor], Tensor], Tensor], view: View) -> Tensor:
    """Return the logits of real or generated faces."""
    return discriminator(view.images, view.features, view.classes)


def weighted_wholeness(step: Step, fake: Tensor) -> Tensor:
    """Return the generator's penalty for samples (n, C, S, S) that do not look whole, a scalar.

    So that it is not met by details that only one view shows, faces are moved a little and half of them mirrored.
    """
    config, scorer = step.run.config, step.networks.whole
    if scorer is None or not config.whole:
        return torch.zeros((), device=fake.device)
    random = step.random("whole", "g")
    far = config.image_size // 32
    down, right = random.integers(0, 2 * far + 1, 2)
    mirrored = send(torch.from_numpy(random.random(config.batch_size) < 0.5)[step.mine], fake.device)
    padded = pad(fake, (far, far, far, far), mode="reflect")
    faces = padded[..., down : down + config.image_size, right : right + config.image_size]
    faces = torch.where(mirrored[:, None, None, None], faces.flip(3), faces)
    return config.whole * losses.wholeness_loss(scorer(faces))


def weighted_penalty(
    step: Step, real: View, fake: View, real_logits: Tensor, fake_logits: Tensor
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the discriminator's gradient penalty: that of its own layers at images, and of its heads at features.

    It is taken at the real and the detached generated faces, whose logits come with their graph.

    Returns:
        The weighted sum, a scalar, and the penalties by their names in log.jsonl.
    """
    config, discriminator = step.run.config, step.state.discriminator
    (noise,) = _penalty_noise(step, "penalty", [real.images])
    plain = real_logits[:, 0, 0], fake_logits[:, 0, 0]
    of_images = functools.partial(discriminator.plain, codes=real.classes)  # the same for generated faces
    found = losses.gradient_penalties(config.penalty, of_images, real.images, plain[0], fake.images, plain[1], noise)
    total = config.penalty_weight * sum(found.values(), torch.zeros(()))
    if discriminator.projected is not None and config.head_penalty:
        head_noise = _penalty_noise(step, "head_penalty", real.features)
        heads = discriminator.projected.conditioned(real.classes)
        maps = real.features, real_logits[:, 1:], fake.features, fake_logits[:, 1:]
        of_heads = losses.head_penalties(config.penalty, heads, *maps, head_noise)
        total, found = total + config.head_penalty * sum(of_heads.values()), {**found, **of_heads}
    return total, found


def _penalty_noise(step: Step, purpose: str, like: Sequence[Tensor]) -> list[Tensor]:
    """Draw the noise of the gradient penalties; `like` are tensors (n, ...)."""
    source = torch.Generator(step.run.device).manual_seed(int(step.random(purpose).integers(2**31)))
    n, penalty = step.run.config.batch_size, step.run.config.penalty
    return [losses.penalty_noise(penalty, one, n, source)[step.mine] for one in like]


@torch.no_grad()
def clip(discriminator: torch.nn.Module, size: float) -> None:
    """Clip every weight to [-size, size], in place (Arjovsky et al. 2017, algorithm 1, line 7)."""
    for parameter in discriminator.parameters():
        parameter.clamp_(-size, size)
