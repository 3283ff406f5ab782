"""Randomness as a function of its purpose: seeds -> latents, and (seed, step, purpose) -> a stream. Pure.

Numbers are drawn on the CPU and for the whole batch, with NumPy, whose streams are the same on every platform. So a
resumed run, or one on other devices, draws the same numbers, and no random state is stored. Only the noise of the
gradient penalties is drawn on the device, see `losses.penalty_noise`: a GPU's differs from a CPU's.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor


def stream(seed: int, step: int, purpose: str, retry: int = 0) -> np.random.Generator:
    """Return an independent stream of random numbers for one purpose in one step of a run.

    Args:
        seed: the run's seed.
        step: the step, or the epoch where that is the unit.
        purpose: the name of its use, such as `d_z`.
        retry: number of rollbacks of the run; it changes the numbers, or the run would fail again in the same way.
    """
    return np.random.default_rng([seed, step, retry, *purpose.encode()])


def normal(random: np.random.Generator, n: int, nz: int) -> Tensor:
    """Draw latents for a batch: (n, nz), standard normal, float32."""
    return torch.from_numpy(random.standard_normal((n, nz), dtype=np.float32))


def latents(seeds: Sequence[int], nz: int, mean: float = 0.0, std: float = 1.0) -> Tensor:
    """Return the latents of seeds >= 0: (len(seeds), nz), float32. Each depends only on its seed and nz.

    `mean` and `std` apply to every component; a standard deviation below 1 is truncation.
    """
    rows = [np.random.default_rng(seed).standard_normal(nz, dtype=np.float32) for seed in seeds]
    return torch.from_numpy(np.stack(rows)) * std + mean
