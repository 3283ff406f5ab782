"""The averaged generator: an exponential moving average of the weights, with BatchNorm statistics of its own."""

import copy
from typing import TypeVar

from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn, update_bn

M = TypeVar("M", bound=nn.Module)


def decay(images: int, images_seen: int, half_life_images: int) -> float:
    """Return the weight of the old average in an update (the EMA decay).

    The half-life ramps up: it is a tenth of the images seen so far until it reaches `half_life_images`, so that the
    random initial weights are soon forgotten (Karras et al. 2020, "EMA ramp-up").

    Args:
        images: images in this step.
        images_seen: images in all steps up to and including this one.
        half_life_images: number of images after which an old weight counts half; 0 keeps no average.
    """
    half_life = min(half_life_images, images_seen / 10)
    return 0.5 ** (images / half_life) if half_life > 0 else 0.0


def average_of(generator: M) -> M:
    """Return a frozen copy of `generator` in eval mode, to hold its average."""
    return copy.deepcopy(generator).requires_grad_(False).eval()


def update(average: nn.Module, generator: nn.Module, remain: float) -> None:
    """Move the parameters of `average` towards those of `generator`, in place: a <- remain a + (1 - remain) g.

    Buffers are unchanged: BatchNorm's running statistics belong to one set of weights and cannot be averaged, see
    `estimate_statistics`.
    """
    get_ema_multi_avg_fn(remain)(list(average.parameters()), list(generator.parameters()), 0)


def estimate_statistics(generator: nn.Module, batches: list[Tensor]) -> None:
    """Estimate the BatchNorm statistics of `generator` for its own weights, in place. Without BatchNorm, do nothing.

    Statistics copied from the training generator do not fit averaged weights (FD 59 instead of 25, see
    docs/experiments.md).

    Args:
        generator: the network; left in eval mode.
        batches: latents, (N, nz) each, a few thousand in all.
    """
    before = {name: buffer.clone() for name, buffer in generator.named_buffers()}
    try:
        update_bn(batches, generator)
    except BaseException:  # if memory runs out, the earlier ones are better than half of the new ones
        for name, buffer in generator.named_buffers():
            buffer.copy_(before[name])
        raise
    finally:  # update_bn may leave each momentum at None; only training would read it
        generator.eval()
