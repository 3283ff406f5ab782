"""Adversarial losses and gradient penalties as pure functions of logits, without state or randomness of their own.

Logits are raw outputs of the discriminator, high for real: (N, K, P), of its own layers and its heads, K in all, at P
positions of an image. Each of the K has its own loss, and the losses are summed. The loss is taken at each position and
then averaged, so that positions already won count less than a broken one (Isola et al. 2017). softplus keeps a useful
gradient at every logit, where the logarithm of a sigmoid rounds to 0.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn.functional import relu, softplus
from typing_extensions import assert_never  # comes with torch

from config import Loss, Penalty

COMPARING: frozenset[Loss] = frozenset({"rp", "rahinge"})  # whose generator step needs the logits of real faces too
COUPLED: frozenset[Loss] = frozenset({"rahinge"})  # not a mean over the batch, so processes cannot share it
# Score that is whole enough, and the deviation of samples; real faces have 0.0 on average, samples 0.1.
WHOLE_ENOUGH, WHOLE_DEVIATION = 0.2, 0.25
PENALTY_NOISE = 0.1  # standard deviation of the finite difference, for images in [-1, 1] and feature maps with RMS 1


def discriminator_loss(loss: Loss, real_logits: Tensor, fake_logits: Tensor) -> Tensor:
    """Return the loss that the discriminator minimises.

    Args:
        loss: `bce` (Goodfellow et al. 2014, eq. 1, summed over real and generated faces as in the book);
            `hinge` (Lim and Ye 2017, Miyato et al. 2018, eq. 16); `rahinge` (relativistic average hinge:
            Jolicoeur-Martineau 2019, appendix; the book's second edition); `rp` (relativistic pairing, the same paper,
            as used by Huang et al. 2024); `wgan` (Arjovsky et al. 2017, eq. 3).
        real_logits: logits of real faces, (N, K, P).
        fake_logits: logits of generated faces, of the same shape; `rp` pairs them with the real ones one by one.

    Returns:
        The mean loss, a float32 scalar.
    """
    real, fake = real_logits.float(), fake_logits.float()
    match loss:
        case "bce":
            return mean(softplus(-real)) + mean(softplus(fake))
        case "hinge":
            return mean(relu(1 - real)) + mean(relu(1 + fake))
        case "rahinge":
            return mean(relu(1 - (real - fake.mean(0)))) + mean(relu(1 + (fake - real.mean(0))))
        case "rp":
            return mean(softplus(fake - real))
        case "wgan":
            return mean(fake) - mean(real)
        case _:
            assert_never(loss)


def generator_loss(loss: Loss, real_logits: Tensor | None, fake_logits: Tensor) -> Tensor:
    """Return the loss that the generator minimises.

    The relativistic losses (`COMPARING`) are the discriminator's with real and generated exchanged; the others need no
    logits of real faces. `bce` is the book's non-saturating loss -log D(G(z)); `hinge` and `wgan` raise the mean logit
    of generated faces. Logits and result are as in `discriminator_loss`.
    """
    match loss:
        case "rp" | "rahinge":
            assert real_logits is not None
            return discriminator_loss(loss, fake_logits, real_logits)
        case "hinge" | "wgan":
            return mean(-fake_logits.float())
        case "bce":
            return mean(softplus(-fake_logits.float()))
        case _:
            assert_never(loss)


def wholeness_loss(scores: Tensor) -> Tensor:
    """Return the mean of how far scores of whole faces (N,) fall short of `WHOLE_ENOUGH`, in deviations: a scalar."""
    return relu((WHOLE_ENOUGH - scores.float()) / WHOLE_DEVIATION).mean()


def mean(losses: Tensor) -> Tensor:
    """Sum over heads, average over batch and positions: (N, K, P) -> a scalar."""
    return losses.mean((0, 2)).sum()


def finite_difference_penalty(
    discriminator: Callable[[Tensor], Tensor], images: Tensor, logits: Tensor, noise: Tensor, scale: float
) -> Tensor:
    """Estimate the mean squared norm of the discriminator's gradient: mean (D(x) - D(x + s n))^2 / s^2, a scalar.

    This is R1 at real images and R2 at generated ones (Mescheder et al. 2018, eq. 9, without its factor of one half),
    with a single backward: for small s and standard normal n, (n . grad D)^2 has the squared norm as its mean.

    Args:
        discriminator: images (N, C, H, W) -> logits (N,) or (N, P); the mean is taken over positions, too.
        images: where to take the penalty.
        logits: the discriminator's logits at `images`, with their graph.
        noise: n, standard normal, of the shape of `images`.
        scale: s, in units of `images`.
    """
    moved = discriminator(images.detach() + scale * noise)
    return ((logits.float() - moved.float()) / scale).square().mean()


def interpolated_penalty(discriminator: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
    """Return the mean squared distance of the gradient norm from 1 (Gulrajani et al. 2017, eq. 3), by double backward.

    The images are interpolated between real and generated ones. Of logits (N, P) it is the gradient of their mean.
    """
    images = images.detach().requires_grad_()
    logits = discriminator(images).float()
    (gradient,) = torch.autograd.grad(logits.sum(), images, create_graph=True)
    squared, positions = gradient.float().square().sum((1, 2, 3)), logits[0].numel()
    norm = (squared / positions**2 + 1e-12).sqrt()  # the square root has no gradient at 0
    return (norm - 1).square().mean()


def penalty_noise(penalty: Penalty, images: Tensor, n: int, random: torch.Generator) -> Tensor:
    """Draw the noise for the `gradient_penalties` of n images like `images`; `random` is on their device.

    For `r1r2` it is (n, 2, C, H, W), standard normal; for `gp` (n, 1, 1, 1), uniform.
    """
    if penalty == "gp":
        return torch.rand(n, 1, 1, 1, generator=random, device=images.device)
    shape = n, *images.shape[1:]
    return torch.stack([torch.randn(shape, generator=random, device=images.device) for _ in range(2)], 1)


def gradient_penalties(
    penalty: Penalty,
    discriminator: Callable[[Tensor], Tensor],
    real: Tensor,
    real_logits: Tensor,
    fake: Tensor,
    fake_logits: Tensor,
    noise: Tensor,
) -> dict[str, Tensor]:
    """Return the gradient penalties of one batch by their names in log.jsonl; all are part of the discriminator's loss.

    `r1r2` gives R1 at the real and R2 at the generated images, (N, C, H, W); `gp` gives the penalty of WGAN-GP. The
    logits, (N,) or (N, P), come with their graph; `noise` comes from `penalty_noise` for these images.
    """
    match penalty:
        case "none":
            return {}
        case "gp":
            between = torch.lerp(real.float(), fake.float(), noise)  # an encoder's features may be bf16
            return {"gp_penalty": interpolated_penalty(discriminator, between)}
        case "r1r2":
            of_real = finite_difference_penalty(discriminator, real, real_logits, noise[:, 0], PENALTY_NOISE)
            of_fake = finite_difference_penalty(discriminator, fake, fake_logits, noise[:, 1], PENALTY_NOISE)
            return {"r1_penalty": of_real, "r2_penalty": of_fake}
        case _:
            assert_never(penalty)


def head_penalties(
    penalty: Penalty,
    heads: Sequence[Callable[[Tensor], Tensor]],
    real_features: Sequence[Tensor],
    real_logits: Tensor,
    fake_features: Sequence[Tensor],
    fake_logits: Tensor,
    noise: Sequence[Tensor],
) -> dict[str, Tensor]:
    """Return the `gradient_penalties` of the heads at their feature maps, summed over heads.

    Taken at images they would cost a pass through the encoder; at feature maps they cost only the heads (Sauer et al.
    2023, "Adversarial diffusion distillation", do so with R1). Each of the K heads maps its features (N, C, R, R) to
    logits (N, P); the logits of all heads are (N, K, P).
    """
    found = [
        gradient_penalties(penalty, head, real, real_logits[:, k], fake, fake_logits[:, k], noise[k])
        for k, (head, real, fake) in enumerate(zip(heads, real_features, fake_features, strict=True))
    ]
    return {f"head_{name}": sum((one[name] for one in found), torch.zeros(())) for name in found[0]}
