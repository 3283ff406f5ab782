"""BatchNorm for a batch that several processes share."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import batch_norm


class SharedBatchNorm(nn.BatchNorm2d):
    """BatchNorm over the whole batch, of which each process has an equal part.

    Unlike torch's SyncBatchNorm it works on CPUs and, since it need not ask how large the parts are, waits for no GPU.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Normalise this process's part of the batch: (n, C, R, R) -> the same shape. All processes must call it."""
        if not self.training:
            return super().forward(input)
        found, mean, var = Normalised.apply(input, self.weight, self.bias, self.eps)
        n = dist.get_world_size() * input.numel() // len(mean)
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.momentum is not None
        self.running_mean.lerp_(mean, self.momentum)
        self.running_var.lerp_(var * (n / (n - 1)), self.momentum)
        return found


class Normalised(torch.autograd.Function):
    """Normalises by the mean and variance over all processes (Ioffe and Szegedy 2015, algorithm 1)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, gain: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
        """Return the normalised maps (n, C, R, R), the mean (C,) and the variance (C,)."""
        var, mean = torch.var_mean(x.float(), (0, 2, 3), correction=0)
        moments = torch.stack([mean, var + mean.square()]) / dist.get_world_size()
        dist.all_reduce(moments)
        mean, var = moments[0], (moments[1] - moments[0].square()).clamp(min=0)  # rounding could make it negative
        ctx.eps = eps
        ctx.save_for_backward(x, gain, mean, var)
        ctx.mark_non_differentiable(mean, var)
        return batch_norm(x, mean, var, gain, bias, eps=eps), mean, var

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *gradients: Tensor
    ) -> tuple[Tensor | None, ...]:
        """Return the gradients of the maps, also by way of mean and variance, and this process's of gain and bias."""
        x, gain, mean, var = ctx.saved_tensors
        scale = (var + ctx.eps).rsqrt()
        of_x, of_gain, of_bias = torch.ops.aten.native_batch_norm_backward(
            gradients[0], x, gain, mean, var, mean, scale, False, ctx.eps, [True] * 3
        )
        means = torch.stack([of_gain, of_bias]) * (len(mean) / (x.numel() * dist.get_world_size()))
        dist.all_reduce(means)
        slope = means * gain * scale
        return of_x - batch_norm(x, mean, var, slope[0], slope[1], eps=ctx.eps), of_gain, of_bias, None
