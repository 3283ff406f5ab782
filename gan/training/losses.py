"""Adversarial losses and gradient penalties as formulas on logits. Pure: no state, no randomness of their own.

Logits are raw outputs of the discriminator, high for real, shape (N,), or (N, K) where it has K heads: each head has a
loss of its own, and they are summed. Heads that rate P places of an image give (N, K, P); the loss is taken at each
place and then the mean, so that places already won count less than a broken one (Isola et al. 2017). softplus keeps a
useful gradient at every logit, where a logarithm of a sigmoid rounds to nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn.functional import relu, softplus

from config import Loss, Penalty

COMPARING: frozenset[Loss] = frozenset({"rp", "rahinge"})  # their generator step needs the logits of reals too
COUPLED: frozenset[Loss] = frozenset({"rahinge"})  # not a mean over the batch, so it cannot be computed in parts
PENALTY_NOISE = 0.1  # deviation of the noise of `approximate`, for images in [-1, 1] and maps of root mean square 1


def discriminator_loss(loss: Loss, real_logits: Tensor, fake_logits: Tensor) -> Tensor:
    """The loss that the discriminator minimises.

    Args:
        loss: `bce` (Goodfellow et al. 2014, eq. 1, summed over reals and fakes as in the book);
            `hinge` (Lim and Ye 2017, Miyato et al. 2018, eq. 16); `rahinge` (relativistic average hinge:
            Jolicoeur-Martineau 2019, appendix; the book's second edition); `rp` (relativistic pairing, the same paper,
            as used by Huang et al. 2024); `wgan` (Arjovsky et al. 2017, eq. 3).
        real_logits: logits of reals, (N,), (N, K) or (N, K, P).
        fake_logits: logits of fakes, likewise; for `rp` paired with the reals by position, place by place.

    Returns:
        The mean loss, a scalar in float32.
    """
    real, fake = real_logits.float(), fake_logits.float()
    if loss == "rp":
        return mean(softplus(fake - real))
    if loss == "hinge":
        return mean(relu(1 - real)) + mean(relu(1 + fake))
    if loss == "rahinge":
        return mean(relu(1 - (real - fake.mean(0)))) + mean(relu(1 + (fake - real.mean(0))))
    if loss == "wgan":
        return mean(fake) - mean(real)
    return mean(softplus(-real)) + mean(softplus(fake))


def generator_loss(loss: Loss, real_logits: Tensor | None, fake_logits: Tensor) -> Tensor:
    """The loss that the generator minimises.

    The comparing losses are the discriminator's with real and fake exchanged; others need no logits of reals. `bce` is
    the non-saturating loss -log D(G(z)), the book's; `hinge` and `wgan` raise the mean logit of the fakes. Logits and
    result as in `discriminator_loss`.
    """
    if loss in COMPARING:
        assert real_logits is not None
        return discriminator_loss(loss, fake_logits, real_logits)
    if loss in ("hinge", "wgan"):
        return mean(-fake_logits.float())
    return mean(softplus(-fake_logits.float()))


def mean(losses: Tensor) -> Tensor:
    """The mean over batch and places of the sum over heads: (N,), (N, K) or (N, K, P) -> a scalar."""
    return losses.mean(0).sum() if losses.ndim < 3 else losses.mean((0, 2)).sum()


def exact_penalty(discriminator: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
    """Mean squared norm of the discriminator's gradient at `images`, by double backward: a scalar in float32.

    Reals give R1, fakes R2 (Mescheder et al. 2018, eq. 9, without its factor of one half).
    """
    return _squared_slopes(discriminator, images).mean()


def interpolated_penalty(discriminator: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
    """Mean squared distance of the gradient's norm from 1 (Gulrajani et al. 2017, eq. 3), by double backward.

    The images are points between reals and fakes.
    """
    norm = (_squared_slopes(discriminator, images) + 1e-12).sqrt()  # the root has no gradient at 0
    return (norm - 1).square().mean()


def _squared_slopes(discriminator: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
    """Squared norm of the gradient of each image's logit: (N, C, H, W) -> (N,), itself with a graph."""
    images = images.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(discriminator(images).float().sum(), images, create_graph=True)
    return gradient.float().square().sum((1, 2, 3))


def approximate_penalty(
    discriminator: Callable[[Tensor], Tensor], images: Tensor, logits: Tensor, noise: Tensor, scale: float
) -> Tensor:
    """Finite-difference estimate of `exact_penalty`, with a single backward: mean (D(x) - D(x + s n))^2 / s^2.

    For small s and n standard normal, (n . grad D)^2 has the squared norm of grad D as its mean.

    Args:
        discriminator: images (N, C, H, W) -> logits (N,) or (N, P), of which the mean is taken.
        images: where to take it.
        logits: the discriminator's logits of them, with their graph.
        noise: n, standard normal, the shape of `images`.
        scale: s, in units of `images`.
    """
    moved = discriminator(images.detach() + scale * noise)
    return ((logits.float() - moved.float()) / scale).square().mean()


def penalty_noise(penalty: Penalty, images: Tensor, n: int, random: torch.Generator) -> Tensor | None:
    """The random numbers for the `gradient_penalties` of n images like `images`; `random` is on their device.

    For `approximate` (n, 2, C, H, W), standard normal; for `gp` (n, 1, 1, 1), uniform; for others None.
    """
    if penalty == "gp":
        return torch.rand(n, 1, 1, 1, generator=random, device=images.device)
    if penalty == "approximate":
        shape = n, *images.shape[1:]
        return torch.stack([torch.randn(shape, generator=random, device=images.device) for _ in range(2)], 1)
    return None


def gradient_penalties(
    penalty: Penalty,
    discriminator: Callable[[Tensor], Tensor],
    real: Tensor,
    real_logits: Tensor,
    fake: Tensor,
    fake_logits: Tensor,
    noise: Tensor | None,
) -> dict[str, Tensor]:
    """The gradient penalties of one batch, by their names in log.jsonl; all are added to the discriminator's loss.

    `exact` and `approximate` give R1 on the reals and R2 on the fakes, (N, C, H, W), `gp` the one of WGAN-GP. The
    logits, (N,), come with their graph; `noise` is that of `penalty_noise` for these images.
    """
    if penalty == "exact" or noise is None:
        return {"r1_penalty": exact_penalty(discriminator, real), "r2_penalty": exact_penalty(discriminator, fake)}
    if penalty == "gp":
        return {"gp_penalty": interpolated_penalty(discriminator, torch.lerp(real, fake, noise))}
    return {
        "r1_penalty": approximate_penalty(discriminator, real, real_logits, noise[:, 0], PENALTY_NOISE),
        "r2_penalty": approximate_penalty(discriminator, fake, fake_logits, noise[:, 1], PENALTY_NOISE),
    }


def head_penalties(
    penalty: Penalty,
    heads: Sequence[Callable[[Tensor], Tensor]],
    real_features: Sequence[Tensor],
    real_logits: Tensor,
    fake_features: Sequence[Tensor],
    fake_logits: Tensor,
    noise: Sequence[Tensor | None],
) -> dict[str, Tensor]:
    """`gradient_penalties` of the heads at their feature maps, summed; the encoder takes no part.

    At pictures they would cost a pass through the encoder; at the maps they cost only the heads (Sauer et al. 2023,
    "Adversarial diffusion distillation", do so with R1). Each of K heads makes logits (N, P) or (N,) of its map,
    (N, C, R, R), and all logits are (N, K, P) or (N, K).
    """
    found = [
        gradient_penalties(penalty, head, real, real_logits[:, k], fake, fake_logits[:, k], noise[k])
        for k, (head, real, fake) in enumerate(zip(heads, real_features, fake_features, strict=True))
    ]
    return {f"head_{name}": sum((one[name] for one in found), torch.zeros(())) for name in found[0]}
