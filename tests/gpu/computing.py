"""The right numbers on the stand-in for CUDA, whose memory is the computer's: the CPU computes them, in place.

Each operation runs through torch's code for CUDA, which checks devices and launches kernels that do nothing; then its
results are filled in. So a program runs on `cuda` as it would on a GPU, slowly.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
CPU = torch.device("cpu")

SIZED_BY_NUMBERS = {"nonzero", "masked_select", "_unique2", "bincount"}
"""Operations whose results have a size that depends on numbers on the GPU, for which they wait."""

INDEXED = {"index", "index_put", "index_put_", "_index_put_impl_"}
"""Likewise, if a mask is among the indices."""

OF_CUDA_LIBRARIES = {"sort", "topk", "cumsum"}
"""Operations of which torch's code for CUDA asks more than the stand-in can answer."""

WITHOUT_KERNEL = {
    *("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "resize_", "set_", "record_stream"),
    *("squeeze_", "unsqueeze_", "t_", "transpose_", "as_strided_", "detach_"),
}


def changed(value: Any, change: Callable[[Any], Any]) -> Any:
    """`value` with each thing in it changed; torch's own such functions take as long as all the rest here."""
    if isinstance(value, list | tuple):
        return [changed(one, change) for one in value]
    if isinstance(value, dict):
        return {name: changed(one, change) for name, one in value.items()}
    return change(value)


def flat(value: Any) -> list[Any]:
    """The things in `value`."""
    if isinstance(value, dict):
        value = list(value.values())
    return [one for part in value for one in flat(part)] if isinstance(value, list | tuple) else [value]


def tensors(value: Any) -> list[Tensor]:
    """The tensors in `value`."""
    return [one for one in flat(value) if isinstance(one, Tensor)]


def on_cpu(value: Any) -> Any:
    """The same memory as a tensor of the CPU, if `value` is a tensor of the GPU."""
    if not isinstance(value, Tensor) or not value.is_cuda:
        return value
    storage = value.untyped_storage()
    if not value.numel():
        return torch.empty_strided(value.size(), value.stride(), dtype=value.dtype)
    memory = (ctypes.c_char * storage.nbytes()).from_address(storage.data_ptr())
    flat = torch.frombuffer(memory, dtype=value.dtype, count=storage.nbytes() // value.element_size())
    return flat.as_strided(value.size(), value.stride(), value.storage_offset())


def on_gpu(value: Any) -> Any:
    """A copy on the GPU, if `value` is a tensor."""
    if not isinstance(value, Tensor):
        return value
    made = torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device="cuda")
    on_cpu(made).copy_(value)
    return made


def _norm(x: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float) -> Any:
    return *aten.native_batch_norm(x, weight, bias, mean, var, training, momentum, eps), torch.empty(0)  # no reserve


def _norm_backward(x: Any, dy: Any, weight: Any, mean: Any, var: Any, *kept: Any) -> Any:
    saved_mean, saved_inverse, eps, _ = kept
    return aten.native_batch_norm_backward(
        dy, x, weight, mean, var, saved_mean, saved_inverse, True, eps, [True, True, True]
    )


def _depthwise(x: Any, weight: Any, kernel: Any, bias: Any, stride: Any, padding: Any, dilation: Any) -> Any:
    return aten.convolution(x, weight, bias, stride, padding, dilation, False, [0, 0], x.shape[1])


INSTEAD = {
    "cudnn_batch_norm": _norm,
    "cudnn_batch_norm_backward": _norm_backward,
    "_conv_depthwise2d": _depthwise,
}
"""What the CPU computes for operations that only CUDA has."""


@functools.cache
def name_of(func: Any) -> str:
    """The name of an operation: aten::add.Tensor -> add."""
    return func._schema.name.partition("::")[2]


@functools.cache
def without_kernel(func: Any) -> bool:
    """Whether an operation computes nothing: it makes memory or views."""
    returns = func._schema.returns
    views = bool(returns) and all(one.alias_info is not None and not one.alias_info.is_write for one in returns)
    return views or name_of(func) in WITHOUT_KERNEL


@functools.cache
def written_places(func: Any) -> list[tuple[int, str]]:
    """Place and name of each argument that an operation writes to."""
    arguments = enumerate(func._schema.arguments)
    return [(i, a.name) for i, a in arguments if a.alias_info is not None and a.alias_info.is_write]


class Computing(TorchDispatchMode):
    """Computes what happens on the stand-in for CUDA."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        given, asked = tensors([args, kwargs]), kwargs.get("device")
        elsewhere = not any(one.is_cuda for one in given) and (asked is None or torch.device(asked).type != "cuda")
        if elsewhere or without_kernel(func):
            return func(*args, **kwargs)
        name = name_of(func)
        theirs, options = changed(args, on_cpu), changed(kwargs, on_cpu)
        if asked is not None:
            options["device"] = CPU
        if "generator" in kwargs:
            options["generator"] = None  # the CPU draws other numbers anyway
        masked = name in INDEXED and any(one.dtype == torch.bool for one in tensors(args[1]))
        if name in SIZED_BY_NUMBERS or masked:
            torch.cuda.synchronize()
        if name in SIZED_BY_NUMBERS | OF_CUDA_LIBRARIES or masked:
            right = func(*theirs, **options)
            return args[0] if written_places(func) else changed(right, on_gpu)
        if name == "_local_scalar_dense":  # .item()
            func(*args)  # waits, as on a GPU
            return func(*theirs)
        right = INSTEAD.get(name, func)(*theirs, **options)
        # Kept, since torch's code for CUDA may then copy in place, where no kernel is needed.
        places = [args[i] if i < len(args) else kwargs.get(named) for i, named in written_places(func)]
        written = [(one, on_cpu(one).clone()) for one in tensors(places)]
        found = func(*args, **kwargs)
        old = {id(one) for one in given}
        made = [pair for pair in zip(flat(found), flat(right), strict=True) if id(pair[0]) not in old]
        for one, numbers in [*written, *made]:
            # The CPU leaves out what nobody needs, such as a norm's statistics where they are given.
            if isinstance(one, Tensor) and one.numel() and numbers is not None and numbers.numel():
                assert one.shape == numbers.shape, f"{func}: {one.shape} on the GPU, {numbers.shape} on the CPU"
                on_cpu(one).copy_(numbers)
        return found
