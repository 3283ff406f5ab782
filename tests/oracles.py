"""Slow and exact ways to compute what the program computes fast, to compare with."""

from collections.abc import Callable

import torch
from torch import Tensor


def exact_penalty(discriminator: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
    """The mean squared norm of the discriminator's gradient at `images` (N, C, H, W), by double backward: a scalar.

    Of logits of several positions it is the mean over them, as far as each depends on other pixels.
    """
    images = images.detach().requires_grad_()
    logits = discriminator(images).float()
    (gradient,) = torch.autograd.grad(logits.sum(), images, create_graph=True)
    return (gradient.float().square().sum((1, 2, 3)) / logits[0].numel()).mean()
