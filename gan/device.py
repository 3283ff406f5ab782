"""The machine: device, precision and memory. The only module that queries the hardware."""

import contextlib
import ctypes
import platform
import shutil
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.linalg import LinAlgError  # pyright: ignore[reportAttributeAccessIssue]
from torch.nn import grad

from config import ConfigError, Precision
from gan import threads
from gan.language import text

M = TypeVar("M", bound=nn.Module)

NO_ENGINE = "unable to find an engine"  # cuDNN's message when it has no memory to work in, or does not know the GPU
NO_MEMORY = (
    NO_ENGINE,
    "can't allocate memory",
    "not enough memory",
    "out of memory",
    "Storage size calculation overflowed",  # of a size beyond any memory
    "could not create a primitive",  # oneDNN's message on the CPU
    "CUDNN_STATUS_ALLOC_FAILED",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_NOT_INITIALIZED",  # these libraries take memory at their first call
    "CUBLAS_STATUS_NOT_INITIALIZED",
)
"""Parts of error messages that mean that a device is out of memory."""

contiguous_everywhere = False
"""Whether this process uses the contiguous memory format on any device, since another one of its run needs it."""

# AMD's GPUs that compute bf16 in hardware, by gcnArchName: MI100 and later, Radeon RX 7000 and later.
AMD_BF16 = ("gfx908", "gfx90a", "gfx94", "gfx95", "gfx11", "gfx12")


def choose_device(gpu: bool | None, log: Callable[[str], None] = print) -> torch.device:
    """Choose the device to work on; say in one line which, or what is missing if no GPU can be used.

    Args:
        gpu: True asks for a GPU, False forbids it, None takes the best available device.
        log: receives the line.

    Returns:
        CUDA (NVIDIA, AMD), Apple's or Intel's GPU if torch finds one, otherwise the CPU.
    """
    for kind in (np.float16, np.float32, np.float64, np.longdouble):  # NumPy before 2.3 warns if it looks later
        np.finfo(kind)
    # Once the discriminator wins, gradients fall below 1e-38, and CPUs compute such denormals 2 to 5 times slower.
    torch.set_flush_denormal(True)
    keep_memory()
    with warnings.catch_warnings(record=True) as warned:  # of what is too old; the line below says it
        warnings.simplefilter("always")
        found = None if gpu is False else torch.accelerator.current_accelerator(check_available=True)
        unfit = "" if found is None else why_unfit(found)
    device = torch.device("cpu") if found is None or unfit else found
    nvidia = gpu is not False and device.type == "cpu" and (warned or shutil.which("nvidia-smi"))
    if unfit:
        line = text(
            "torch {} cannot use the {} device of this machine ({}); going on with the CPU; docs/install.md has the "
            "builds of torch for old GPUs, else update the driver"
        )
        log(line.format(torch.__version__, found, unfit))
    elif nvidia and not torch.backends.cuda.is_built():
        line = text(
            "torch {} was built without CUDA and cannot use the NVIDIA GPU of this machine; going on with the CPU; "
            "docs/install.md has the builds that can"
        )
        log(line.format(torch.__version__))
    elif nvidia:
        why = f" ({str(warned[-1].message).partition('. ')[0]})" if warned else ""
        line = text(
            "torch {} finds no NVIDIA GPU that it can use{}; using the CPU instead; if nvidia-smi shows one, its "
            "driver may be too old: docs/install.md says which build of torch it can run"
        )
        log(line.format(torch.__version__, why))
    elif gpu and device.type == "cpu":
        line = text("no GPU found by torch {}; using the CPU instead; docs/install.md says why that may be")
        log(line.format(torch.__version__))
    else:
        log(text("device: {}").format(describe(device)))
    threads.adapt()  # the first look begins here
    if device.type == "cuda":
        forbid_system_memory()
    return device


def why_unfit(device: torch.device) -> str:
    """Return torch's reason why it cannot compute on a device that it has found; empty if it can.

    torch also finds a GPU that is too old for this build, and fails at its first computation, or one that cuDNN does
    not know, and fails at its first convolution. So a small one is tried, forwards and backwards.
    """
    try:
        dtype = torch.bfloat16 if choose_precision("auto", device) == "bf16" else torch.float32
        images = torch.ones(8, 8, 8, 8, dtype=dtype, device=device).contiguous(memory_format=layout(device))
        kernel = images[..., :4, :4].contiguous(memory_format=layout(device))
        out = torch.conv2d(images, kernel)
        back = grad.conv2d_input(images.shape, kernel, out), grad.conv2d_weight(images, kernel.shape, out)
        torch.cat([one.flatten() for one in back]).sum().item()
    except RuntimeError as error:
        lacking = out_of_memory(error) and NO_ENGINE not in str(error)  # lack of memory is reported later
        return "" if lacking else str(error).strip().splitlines()[0]
    return ""


def forbid_system_memory() -> None:
    """Limit this process to the GPU memory that is free now, on Windows and its subsystem for Linux.

    There, NVIDIA's driver would lend the computer's memory instead of reporting that the GPU's is full, and training
    would crawl where it should split the batch.
    """
    if platform.system() == "Windows" or "microsoft" in platform.release().lower():
        free, total = torch.cuda.mem_get_info()
        torch.cuda.set_per_process_memory_fraction(free / total)


def keep_memory() -> None:
    """Keep the memory that this process frees, since the next step allocates as much again.

    By default glibc returns large blocks to the kernel, which fills each with zeros anew: about a tenth of a step's
    time on a CPU. All threads share one arena, else each would keep its own. With other C libraries nothing changes.
    """
    with contextlib.suppress(AttributeError, OSError, TypeError):  # another C library, or none found this way
        set_option = ctypes.CDLL(None).mallopt
        # M_ARENA_MAX, M_MMAP_MAX, M_TRIM_THRESHOLD, M_TOP_PAD
        for option, value in ((-8, 1), (-4, 0), (-1, 2**31 - 1), (-2, 2**26)):
            set_option(option, value)


def describe(device: torch.device) -> str:
    """Return the device in words."""
    if device.type == "cuda":
        return f"{torch.cuda.get_device_name(device)} (cuda)"
    if device.type == "cpu":
        number = torch.get_num_threads()
        if number == 1:
            return text("CPU, 1 thread, {}").format(platform.machine())
        return text("CPU, {} threads, {}").format(number, platform.machine())
    return device.type


def choose_precision(asked: Precision, device: torch.device) -> Precision:
    """Resolve `auto`: bf16 if this device is fast at it, otherwise fp32.

    GPUs and x86 CPUs report their capabilities. On CPUs with AMX, bf16 doubles the speed; without AMX and AVX512-BF16
    it is slower. A CPU with AVX512-BF16 alone gains (AMD) or loses (Intel), and some CPUs report nothing: these are
    measured for about a second, which other programs can disturb.
    """
    if asked != "auto":
        return asked
    if device.type == "cuda" and torch.version.hip:  # torch calls bf16 supported on all of AMD's GPUs
        arch: str = torch.cuda.get_device_properties(device).gcnArchName
        return "bf16" if arch.startswith(AMD_BF16) else "fp32"
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    if device.type == "cpu":
        can = _capabilities()
        faster = can.get("amx_bf16") or (can.get("avx512_bf16", True) and _bf16_is_faster())
        return "bf16" if faster else "fp32"
    return "fp32"


def bf16_for_convolutions(device: torch.device) -> bool:
    """Return whether convolutions alone, without their gradients, are faster in bf16 on this device.

    Unlike `choose_precision` it measures nothing, so a machine's answer is always the same.
    """
    if device.type == "cpu":
        return any(_capabilities().get(name) for name in ("amx_bf16", "avx512_bf16"))
    return choose_precision("auto", device) == "bf16"


def _capabilities() -> Mapping[str, Any]:
    """Return the CPU's capabilities by name; empty if torch is too old to report them."""
    return getattr(torch.cpu, "get_capabilities", dict)()


def _bf16_is_faster(rounds: int = 8) -> bool:
    """Measure whether forward and backward passes of typical convolutions on the CPU are clearly faster in bf16.

    Both are timed in turn, and their best times compared: other programs can only make a round slower.
    """
    convs = nn.Sequential(nn.Conv2d(64, 128, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(128, 64, 4, 2, 1))
    convs = place(convs, torch.device("cpu"))
    images = torch.randn(16, 64, 32, 32, generator=torch.Generator().manual_seed(0))
    images = images.to(memory_format=torch.channels_last)
    least: dict[Precision, float] = {"fp32": float("inf"), "bf16": float("inf")}
    for _ in range(rounds):
        threads.adapt()
        for precision in least:
            start = time.perf_counter()
            with autocast(torch.device("cpu"), precision):
                out = convs(images)
            out.float().square().mean().backward()
            least[precision] = min(least[precision], time.perf_counter() - start)
    return least["bf16"] < 0.8 * least["fp32"]


def autocast(device: torch.device, precision: Precision) -> torch.autocast:
    """Return a context that computes in bf16 if `precision` says so."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16")


def place(module: M, device: torch.device) -> M:
    """Move a network to `device`, in the memory format of `layout`."""
    return module.to(device, memory_format=layout(device))  # pyright: ignore[reportCallIssue]


def layout(device: torch.device) -> torch.memory_format:
    """Return the memory format of networks and images: channels-last, 10 to 15 % faster convolutions, same numbers.

    Apple's GPUs are excluded: with some of the supported versions of torch, BatchNorm gave wrong results on such maps.
    So are GPUs whose libraries are slower with it: NVIDIA's before Ampere, which compute in fp32 here, and AMD's.
    """
    older = device.type == "cuda" and (torch.version.hip or torch.cuda.get_device_capability(device) < (8, 0))
    plain = contiguous_everywhere or older or device.type == "mps"
    return torch.contiguous_format if plain else torch.channels_last


def send(tensor: Tensor, device: torch.device) -> Tensor:
    """Move a tensor from the CPU to `device` without waiting for the GPU's earlier work."""
    if device.type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def adam(parameters: Any, lr: float, betas: tuple[float, float], device: torch.device) -> torch.optim.Adam:
    """Create an Adam optimizer, fused into one kernel if torch has one for `device`."""
    return torch.optim.Adam(parameters, lr, betas, fused=device.type in ("cpu", "cuda", "mps", "xpu") or None)


def lay_out(optimizer: torch.optim.Optimizer) -> None:
    """Give Adam's state the memory layout of its weights, as fused kernels expect.

    Loaded state keeps the layout in which it was saved, perhaps on another device.
    """
    for parameter, kept in optimizer.state.items():
        for name in ("exp_avg", "exp_avg_sq"):
            if kept[name].stride() != parameter.stride():
                kept[name] = torch.empty_like(parameter, requires_grad=False).copy_(kept[name])


def has_room(device: torch.device, size: int) -> bool:
    """Return whether `size` bytes of faces fit on a GPU beside the training: at most 40 % of what is free now."""
    free_memory(device)  # cached memory does not count as free
    return device.type == "cuda" and size < 0.4 * torch.cuda.mem_get_info(device)[0]


def free_memory(device: torch.device) -> None:
    """Free the GPU memory that torch caches."""
    if device.type == "cuda":
        torch.cuda.empty_cache()


@contextlib.contextmanager
def enough_memory(otherwise: str) -> Iterator[None]:
    """Turn a lack of memory, on the CPU too, into a message to the user.

    Raises:
        ConfigError: there is not enough memory; its message is `otherwise`.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not out_of_memory(error):
            raise
        raise ConfigError(otherwise) from error


@contextlib.contextmanager
def skipping(what: str, log: Callable[[str], object] = print) -> Iterator[None]:
    """Skip the rest of the block, between training steps, if memory runs out or an algorithm does not converge.

    `log` is told that `what` was skipped, and why.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        diverged = isinstance(error, LinAlgError)  # samples that are all alike are degenerate
        if not diverged and not out_of_memory(error):
            raise
        why = str(error) if diverged else text("out of memory")
        log(text("{}: {} skipped, training continues").format(why, what))


def out_of_memory(error: BaseException) -> bool:
    """Return whether `error` says that a device, including the CPU, is out of memory."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or (
        isinstance(error, RuntimeError) and any(words in str(error) for words in NO_MEMORY)
    )
