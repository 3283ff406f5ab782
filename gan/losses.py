"""Adversarial losses and gradient penalties, as formulas on logits. Pure: no state, no randomness of their own.

Logits are raw outputs of the discriminator, shape (N,), high for real. softplus keeps a useful gradient at
every logit, where a logarithm of a sigmoid rounds to nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import softplus

from config import Loss, Penalty


def discriminator_loss(loss: Loss, real_logits: Tensor, fake_logits: Tensor) -> Tensor:
    """What the discriminator minimises.

    Args:
        loss: `bce` (Goodfellow et al. 2014, eq. 1, summed over reals and fakes as in the book) or `rp`
            (relativistic pairing: Jolicoeur-Martineau 2019, as used by Huang et al. 2024).
        real_logits: logits of reals, (N,).
        fake_logits: logits of fakes, (N,); for `rp` paired with the reals by position.

    Returns:
        The mean loss, a scalar in float32.
    """
    real_logits, fake_logits = real_logits.float(), fake_logits.float()
    if loss == "bce":
        return softplus(-real_logits).mean() + softplus(fake_logits).mean()
    return softplus(-(real_logits - fake_logits)).mean()


def generator_loss(loss: Loss, real_logits: Tensor | None, fake_logits: Tensor) -> Tensor:
    """What the generator minimises: the discriminator's loss with real and fake exchanged.

    For `bce` this is the non-saturating loss -log D(G(z)), the book's, which needs no reals.

    Args:
        loss: as in `discriminator_loss`.
        real_logits: logits of reals, (N,), a constant here; None where the loss needs none.
        fake_logits: logits of fakes, (N,).

    Returns:
        The mean loss, a scalar in float32.

    Raises:
        ValueError: `rp` without reals.
    """
    if loss == "bce":
        return softplus(-fake_logits.float()).mean()
    if real_logits is None:
        raise ValueError("loss 'rp' compares fakes with reals; got no real logits")
    return softplus(-(fake_logits.float() - real_logits.float())).mean()


def exact_penalty(discriminator: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
    """Mean squared norm of the discriminator's gradient at `images`, by double backward.

    Args:
        discriminator: images -> logits (N,).
        images: where to take the gradient, (N, 3, H, W): reals give R1, fakes R2 (Mescheder et al. 2018, eq. 9,
            without its factor of one half).

    Returns:
        A scalar in float32 that can be differentiated with respect to the discriminator's parameters.
    """
    images = images.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(discriminator(images).float().sum(), images, create_graph=True)
    return gradient.float().square().sum((1, 2, 3)).mean()


def approximate_penalty(
    discriminator: Callable[[Tensor], Tensor], images: Tensor, logits: Tensor, noise: Tensor, scale: float
) -> Tensor:
    """Finite-difference estimate of `exact_penalty`, with a single backward: mean (D(x) - D(x + s n))^2 / s^2.

    For small s and n standard normal, (n . grad D)^2 has the squared norm of grad D as its mean.

    Args:
        discriminator: images -> logits (N,).
        images: where to take it, (N, 3, H, W).
        logits: the discriminator's logits of `images`, (N,), with their graph.
        noise: n, standard normal, the shape of `images`.
        scale: s, in units of [-1, 1] images.

    Returns:
        A scalar in float32.
    """
    moved = discriminator(images.detach() + scale * noise)
    return ((logits.float() - moved.float()) / scale).square().mean()


def gradient_penalty(
    penalty: Penalty,
    discriminator: Callable[[Tensor], Tensor],
    images: Tensor,
    logits: Tensor,
    random: torch.Generator,
    scale: float,
) -> Tensor:
    """The penalty of one batch, exact or approximate; arguments as in those two, `random` on the images' device."""
    if penalty == "exact":
        return exact_penalty(discriminator, images)
    noise = torch.randn(images.shape, generator=random, device=images.device)
    return approximate_penalty(discriminator, images, logits, noise, scale)
