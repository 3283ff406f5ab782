"""What both networks see in a training step: faces, and samples drawn once for both; and how they are called."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from gan import latent
from gan.device import compile_fixed, send
from gan.training import losses
from gan.training.augment import augment, draw_moves
from gan.training.run import Run, TrainingState
from gan.watching.monitor import Monitor

Random = Callable[[str], np.random.Generator]
"""Purpose -> its stream of random numbers in one step."""


@dataclasses.dataclass(frozen=True)
class Called:
    """What calls the two networks, whose weights are the state's.

    Args:
        generator: compiled where that was chosen.
        discriminator: likewise.
        trained_generator: the same, for the pass whose gradients move it: averaged over all processes.
        trained_discriminator: likewise.
        look: what the discriminator's frozen encoder makes of faces, see `Discriminator.encode`.
    """

    generator: Callable[[Tensor], Tensor]
    discriminator: Callable[[Tensor, list[Tensor]], Tensor]
    trained_generator: Callable[[Tensor], Tensor]
    trained_discriminator: Callable[[Tensor, list[Tensor]], Tensor]
    look: Callable[[Tensor], list[Tensor]]

    @classmethod
    def of(cls, run: Run, state: TrainingState) -> Called:
        """What calls the networks of a run."""
        plain, look = (state.generator, state.discriminator), state.discriminator.encode
        once = [compile_fixed(network) if run.compiled else network for network in plain]
        trained = once if run.ranks.world == 1 else [run.ranks.wrapped(network, run.device) for network in plain]
        return cls(once[0], once[1], trained[0], trained[1], compile_fixed(look) if run.compiled else look)


@dataclasses.dataclass(frozen=True)
class Views:
    """Faces and samples as the discriminator gets them: augmented, and what its encoder sees in them.

    Args:
        real: faces, (n, C, S, S) in [-1, 1].
        fake: samples, likewise.
        real_seen: of the faces.
        fake_seen: of the samples.
    """

    real: Tensor
    fake: Tensor
    real_seen: list[Tensor]
    fake_seen: list[Tensor]

    def detached(self) -> Views:
        """The same, without the way back to the generator."""
        return dataclasses.replace(self, fake=self.fake.detach(), fake_seen=[seen.detach() for seen in self.fake_seen])


@dataclasses.dataclass
class Step:
    """What a step begins with.

    Args:
        run: the run.
        state: its state.
        called: its networks.
        monitor: told the losses.
        real: this process's faces.
        random: the step's streams of random numbers, by purpose.
        shared: whether both networks learn from the same samples. Then these are drawn and looked at once.
    """

    run: Run
    state: TrainingState
    called: Called
    monitor: Monitor
    real: Tensor
    random: Random
    shared: bool
    kept: Views | None = None

    def views(self, network: str, part: slice) -> Views:
        """What `network`, d or g, learns from in a part of the batch; the way back to the generator is for g alone."""
        whole = part == slice(0, len(self.real))
        if self.kept is not None and whole:
            views, self.kept = self.kept, None
            return views
        self.kept = None
        keep, purpose = self.shared and whole and network == "d", "d" if self.shared else network
        config, ranks, device = self.run.config, self.run.ranks, self.run.device
        mine = ranks.part(config.batch_size)
        z = latent.normal(self.random(f"{purpose}_z"), config.batch_size, config.nz)[mine][part]
        moves = draw_moves(
            self.random(f"{purpose}_moves"), config.batch_size, config.image_size, config.translate, config.colour
        )
        moves = moves.of(mine).of(part)
        graph = keep or network == "g"
        draw = self.called.trained_generator if graph else self.called.generator
        with torch.set_grad_enabled(graph):
            fake = augment(draw(send(z, device)).float(), moves)
            fake_seen = self.called.look(fake)
        with torch.no_grad():
            real = augment(self.real[part], moves)
            views = Views(real, fake, self.called.look(real), fake_seen)
        self.kept = views if keep else None
        return views if network == "g" else views.detached()

    def penalty_noise(self, purpose: str, like: Sequence[Tensor], part: slice) -> list[Tensor | None]:
        """The random numbers of the gradient penalties at things like these, for a part of the batch.

        Args:
            purpose: names their stream.
            like: (n, ...) each.
            part: of this process's part of the batch.
        """
        n, mine = self.run.config.batch_size, self.run.ranks.part(self.run.config.batch_size)
        source = torch.Generator(self.run.device).manual_seed(int(self.random(purpose).integers(2**31)))
        drawn = [losses.penalty_noise(self.run.config.penalty, one, n, source) for one in like]
        return [None if noise is None else noise[mine][part] for noise in drawn]


def judged(discriminator: Callable[[Tensor, list[Tensor]], Tensor], views: Views, apart: bool) -> tuple[Tensor, Tensor]:
    """The logits of faces and of samples, asked for at once; apart where BatchNorm must not mix them."""
    if apart:
        return discriminator(views.real, views.real_seen), discriminator(views.fake, views.fake_seen)
    seen = [torch.cat(pair) for pair in zip(views.real_seen, views.fake_seen, strict=True)]
    real_logits, fake_logits = discriminator(torch.cat([views.real, views.fake]), seen).chunk(2)
    return real_logits, fake_logits
