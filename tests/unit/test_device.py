"""What the machine has is asked in one place, and said in words."""

import contextlib
import copy
import platform
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from config import ConfigError, Precision
from gan import device

ROOT = Path(__file__).resolve().parents[2]
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _denormals() -> Iterator[None]:
    yield
    torch.set_flush_denormal(False)


def machine(monkeypatch: pytest.MonkeyPatch, accelerator: str | None) -> None:
    found = None if accelerator is None else torch.device(accelerator)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: found is not None)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available: found)


@pytest.mark.parametrize(
    ("accelerator", "gpu", "chosen", "said"),
    [
        (None, None, "cpu", "device: CPU"),
        (None, False, "cpu", "device: CPU"),
        (None, True, "cpu", "no GPU found"),
        ("mps", None, "mps", "device: mps"),
        ("xpu", True, "xpu", "device: xpu"),
        ("mps", False, "cpu", "device: CPU"),
    ],
)
def test_best_device_is_taken_unless_forbidden_and_said_in_one_line(
    monkeypatch: pytest.MonkeyPatch, accelerator: str | None, gpu: bool | None, chosen: str, said: str
) -> None:
    machine(monkeypatch, accelerator)
    monkeypatch.setattr(device, "why_unfit", lambda _: "")  # this machine has none of them to compute on
    lines: list[str] = []
    assert device.choose_device(gpu, lines.append).type == chosen
    assert len(lines) == 1
    assert lines[0].startswith(said)
    assert "\n" not in lines[0]


@pytest.mark.skipif(torch.accelerator.is_available(), reason="its GPU may be fit")
def test_a_gpu_that_torch_finds_and_cannot_compute_on_is_named_and_the_cpu_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine(monkeypatch, "cuda")  # found, and as on a GPU that is too old the first computation fails
    lines: list[str] = []
    assert device.choose_device(True, lines.append).type == "cpu"
    assert len(lines) == 1
    assert lines[0].startswith(f"torch {torch.__version__} cannot use the cuda device of this machine (")
    assert lines[0].endswith("else update the driver")
    assert "\n" not in lines[0]


def test_what_torch_warns_of_is_said_in_our_own_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def finds_none(check_available: bool) -> None:
        warnings.warn("CUDA initialization: The driver is too old (11040). Please update it. (Triggered ...)")  # noqa: B028

    monkeypatch.setattr(torch.accelerator, "current_accelerator", finds_none)
    lines: list[str] = []
    assert device.choose_device(None, lines.append).type == "cpu"  # a warning that got out would be an error here
    (line,) = lines
    assert "finds no NVIDIA GPU that it can use (CUDA initialization: The driver is too old (11040));" in line


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (
            RuntimeError("GET was unable to find an engine to execute\nmore"),
            "GET was unable to find an engine to execute",
        ),
        (RuntimeError("no kernel image"), "no kernel image"),
        (torch.OutOfMemoryError("CUDA out of memory."), ""),
        (RuntimeError("cuDNN error: CUDNN_STATUS_NOT_INITIALIZED"), ""),
    ],
)
@pytest.mark.parametrize("failing", ["conv2d_input", "conv2d_weight"])
def test_a_small_convolution_tells_whether_a_gpu_can_be_used(
    monkeypatch: pytest.MonkeyPatch, failing: str, error: RuntimeError, reason: str
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(device, "_bf16_is_faster", lambda: False)  # measures for a second
    assert device.why_unfit(CPU) == ""
    monkeypatch.setattr(device.grad, failing, fail)
    assert device.why_unfit(CPU) == reason


def test_what_adam_keeps_lies_in_memory_as_its_weights_do() -> None:
    def begun() -> tuple[nn.Conv2d, torch.optim.Optimizer]:
        torch.manual_seed(0)
        conv = device.place(nn.Conv2d(3, 8, 3), CPU)
        return conv, device.adam(conv.parameters(), 1e-3, (0.0, 0.9), CPU)

    def step(conv: nn.Conv2d, optimizer: torch.optim.Optimizer) -> torch.Tensor:
        optimizer.zero_grad()
        conv(torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))).square().mean().backward()
        optimizer.step()
        return conv.weight.detach().clone()

    conv, optimizer = begun()
    step(conv, optimizer)
    saved = copy.deepcopy(optimizer.state_dict())
    for kept in saved["state"].values():  # as where networks are not channels-last
        kept.update({name: kept[name].contiguous() for name in ("exp_avg", "exp_avg_sq")})
    again, loaded = begun()
    again.load_state_dict(conv.state_dict())
    loaded.load_state_dict(saved)
    assert loaded.state[again.weight]["exp_avg"].stride() != again.weight.stride()
    device.lay_out(loaded)
    assert all(kept["exp_avg"].stride() == weight.stride() for weight, kept in loaded.state.items())
    assert torch.equal(step(again, loaded), step(conv, optimizer))


@pytest.mark.parametrize(
    ("gpu", "tool", "built", "said"),
    [
        (None, "nvidia-smi", False, "was built without CUDA and cannot use the NVIDIA GPU"),
        (True, "nvidia-smi", False, "was built without CUDA and cannot use the NVIDIA GPU"),
        (False, "nvidia-smi", False, "device: CPU"),
        (None, "nvidia-smi", True, "finds no NVIDIA GPU that it can use"),
        (True, "nvidia-smi", True, "finds no NVIDIA GPU that it can use"),
        (False, "nvidia-smi", True, "device: CPU"),
        (None, "nothing", True, "device: CPU"),
        (None, "nothing", False, "device: CPU"),
    ],
)
def test_a_gpu_that_this_torch_cannot_use_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, gpu: bool | None, tool: str, built: bool, said: str
) -> None:
    (tmp_path / tool).touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: built)
    machine(monkeypatch, None)
    lines: list[str] = []
    assert device.choose_device(gpu, lines.append).type == "cpu"
    (line,) = lines
    assert said in line


def test_on_apple_s_gpus_nothing_is_channels_last() -> None:
    assert device.layout(torch.device("mps")) == torch.contiguous_format
    assert device.layout(torch.device("cpu")) == torch.channels_last


@pytest.mark.parametrize(
    ("hip", "capability", "last"),
    [(None, (8, 0), True), (None, (12, 0), True), (None, (7, 5), False), ("7", (11, 0), False)],
)
def test_gpus_that_are_slower_with_channels_last_do_without(
    monkeypatch: pytest.MonkeyPatch, hip: str | None, capability: tuple[int, int], last: bool
) -> None:
    monkeypatch.setattr(torch.version, "hip", hip)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    assert (device.layout(torch.device("cuda")) == torch.channels_last) is last


@pytest.mark.parametrize(
    ("system", "release", "limited"),
    [
        ("Windows", "11", True),
        ("Linux", "5.15.153.1-microsoft-standard-WSL2", True),
        ("Linux", "6.1.0-21-amd64", False),
    ],
)
def test_where_the_driver_lends_the_computers_memory_a_gpu_gets_none(
    monkeypatch: pytest.MonkeyPatch, system: str, release: str, limited: bool
) -> None:
    shares: list[float] = []
    machine(monkeypatch, "cuda")
    monkeypatch.setattr(device, "why_unfit", lambda _: "")
    monkeypatch.setattr(platform, "system", lambda: system)
    monkeypatch.setattr(platform, "release", lambda: release)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "a GPU")
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (6_000, 8_000))
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", shares.append)
    assert device.choose_device(None, lambda _: None).type == "cuda"
    assert shares == ([0.75] if limited else [])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.accelerator.is_available(), reason="no GPU")
def test_gpu_of_this_machine_is_taken() -> None:
    assert device.choose_device(None, lambda _: None).type != "cpu"


def test_numbers_too_small_to_matter_are_flushed_to_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, None)
    if not torch.set_flush_denormal(True):
        pytest.skip("this CPU cannot")
    torch.set_flush_denormal(False)
    tiny = torch.full((4,), 1e-30)
    assert (tiny * 1e-10).all()
    device.choose_device(None, lambda _: None)
    assert not (tiny * 1e-10).any()


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries are left as they are")
def test_threads_do_not_each_keep_what_they_freed() -> None:
    script = """
from concurrent.futures import ThreadPoolExecutor
import torch
from gan.device import choose_device
choose_device(False)
def used():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) // 1024
before = used()
threads = [ThreadPoolExecutor(1) for _ in range(12)]
for thread in threads:
    thread.submit(lambda: [torch.ones(2**20) for _ in range(16)].clear()).result()
print(used() - before)
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    kept = int(done.stdout.split()[-1])
    assert 32 < kept < 550, f"{kept} MiB"  # twelve threads had 64 MiB each, one after the other


def test_cpu_is_described_with_its_threads() -> None:
    assert re.fullmatch(rf"CPU, {torch.get_num_threads()} threads?, \S+", device.describe(CPU))


class Clock:
    """Stands for `time` in a machine on which a pass takes `seconds` in bf16 and 1 in fp32."""

    def __init__(self, seconds: float) -> None:
        self.now, self.seconds = 0.0, {"bf16": seconds, "fp32": 1.0}

    def perf_counter(self) -> float:
        return self.now

    @contextlib.contextmanager
    def autocast(self, _: torch.device, precision: Precision) -> Iterator[None]:
        self.now += self.seconds[precision]
        yield


@pytest.mark.parametrize("asked", ["fp32", "bf16"])
def test_precision_that_was_asked_for_is_not_measured(monkeypatch: pytest.MonkeyPatch, asked: Precision) -> None:
    monkeypatch.setattr(device, "time", None)
    assert device.choose_precision(asked, CPU) == asked


@pytest.mark.parametrize("can", [{}, {"avx512_bf16": True, "amx_bf16": False}])
@pytest.mark.parametrize(("seconds", "chosen"), [(0.5, "bf16"), (0.79, "bf16"), (0.95, "fp32"), (3.0, "fp32")])
def test_cpu_gets_bf16_where_it_is_clearly_faster(
    monkeypatch: pytest.MonkeyPatch, seconds: float, chosen: str, can: dict[str, bool]
) -> None:
    clock = Clock(seconds)
    monkeypatch.setattr(device, "_capabilities", lambda: can)
    monkeypatch.setattr(device, "time", clock)
    monkeypatch.setattr(device, "autocast", clock.autocast)
    assert device.choose_precision("auto", CPU) == chosen
    assert clock.now > 0


@pytest.mark.parametrize(
    ("avx512", "amx", "chosen"),
    [(True, True, "bf16"), (False, True, "bf16"), (False, False, "fp32")],
)
def test_a_cpu_that_can_be_asked_is_not_measured(
    monkeypatch: pytest.MonkeyPatch, avx512: bool, amx: bool, chosen: str
) -> None:
    monkeypatch.setattr(device, "_capabilities", lambda: {"avx512_bf16": avx512, "amx_bf16": amx})
    monkeypatch.setattr(device, "time", None)
    assert device.choose_precision("auto", CPU) == chosen


@pytest.mark.parametrize(
    ("can", "expected"),
    [
        ({"avx512_bf16": True, "amx_bf16": False}, True),
        ({"avx512_bf16": False, "amx_bf16": True}, True),
        ({"avx512_bf16": False, "amx_bf16": False}, False),
        ({}, False),  # another CPU
    ],
)
def test_where_convolutions_are_faster_in_bf16_is_known_without_measuring(
    monkeypatch: pytest.MonkeyPatch, can: dict[str, bool], expected: bool
) -> None:
    monkeypatch.setattr(device, "_capabilities", lambda: can)
    monkeypatch.setattr(device, "time", None)
    assert device.bf16_for_convolutions(CPU) == expected


def test_torch_says_what_an_x86_cpu_can_do_by_these_names() -> None:
    can = device._capabilities()
    if can.get("architecture") != "x86_64":
        pytest.skip("another CPU, or a torch that does not say")
    assert {"avx512_bf16", "amx_bf16"} <= can.keys()


def test_measuring_this_cpu_settles_the_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "_capabilities", dict)
    assert device.choose_precision("auto", CPU) in ("fp32", "bf16")


@pytest.mark.parametrize(("supported", "chosen"), [(True, "bf16"), (False, "fp32")])
def test_nvidia_gpu_gets_bf16_where_its_hardware_has_it(
    monkeypatch: pytest.MonkeyPatch, supported: bool, chosen: str
) -> None:
    def is_supported(including_emulation: bool = True) -> bool:
        return supported or including_emulation

    monkeypatch.setattr(torch.cuda, "is_bf16_supported", is_supported)
    assert device.choose_precision("auto", torch.device("cuda")) == chosen


@pytest.mark.parametrize(
    ("arch", "chosen"),
    [("gfx1030", "fp32"), ("gfx906:sramecc+:xnack-", "fp32"), ("gfx1100", "bf16"), ("gfx942:sramecc+:xnack-", "bf16")],
)
def test_amd_gpu_gets_bf16_where_its_hardware_has_it(monkeypatch: pytest.MonkeyPatch, arch: str, chosen: str) -> None:
    monkeypatch.setattr(torch.version, "hip", "7.0")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(gcnArchName=arch))
    assert device.choose_precision("auto", torch.device("cuda")) == chosen


def test_other_gpus_get_fp32() -> None:
    assert device.choose_precision("auto", torch.device("mps")) == "fp32"


def test_autocast_computes_in_bf16_only_inside_and_only_where_asked() -> None:
    conv, images = nn.Conv2d(3, 4, 3), torch.zeros(1, 3, 8, 8)
    with device.autocast(CPU, "bf16"):
        assert conv(images).dtype == torch.bfloat16
    with device.autocast(CPU, "fp32"):
        assert conv(images).dtype == torch.float32
    assert conv(images).dtype == torch.float32


def test_placing_makes_channels_last_and_keeps_the_numbers() -> None:
    conv = nn.Conv2d(3, 4, 3)
    before = conv.weight.detach().clone()
    placed = device.place(conv, CPU)
    assert placed is conv
    assert conv.weight.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(conv.weight, before)


def test_adam_is_the_papers() -> None:
    """Kingma and Ba 2015, algorithm 1, three steps by hand."""
    weight = nn.Parameter(torch.tensor([1.0, -2.0]))
    lr, (b1, b2), eps = 0.1, (0.5, 0.9), 1e-8
    adam = device.adam([weight], lr, (b1, b2), CPU)
    expected, m, v = [1.0, -2.0], [0.0, 0.0], [0.0, 0.0]
    for t, gradient in enumerate(([3.0, -0.1], [1.0, 0.2], [-2.0, 0.0]), 1):
        weight.grad = torch.tensor(gradient)
        adam.step()
        for i, g in enumerate(gradient):
            m[i] = b1 * m[i] + (1 - b1) * g
            v[i] = b2 * v[i] + (1 - b2) * g * g
            expected[i] -= lr * m[i] / (1 - b1**t) / ((v[i] / (1 - b2**t)) ** 0.5 + eps)
    assert weight.tolist() == pytest.approx(expected, rel=1e-5)
    assert adam.defaults["fused"]


def test_faces_may_take_two_fifths_of_a_free_gpu_and_nothing_of_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (1000, 5000))
    assert device.has_room(torch.device("cuda"), 399)
    assert not device.has_room(torch.device("cuda"), 401)
    assert not device.has_room(CPU, 1)


def test_running_out_of_memory_is_recognised() -> None:
    with pytest.raises(RuntimeError) as real:
        torch.empty(2**60, dtype=torch.uint8)
    assert device.out_of_memory(real.value)
    assert device.out_of_memory(torch.OutOfMemoryError("CUDA out of memory."))
    assert device.out_of_memory(MemoryError())
    assert device.out_of_memory(RuntimeError("MPS backend out of memory (MPS allocated: 17 GB, max allowed: 18 GB)."))
    assert device.out_of_memory(RuntimeError("GET was unable to find an engine to execute this computation"))
    assert device.out_of_memory(RuntimeError("could not create a primitive"))
    assert device.out_of_memory(RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"))
    assert device.out_of_memory(RuntimeError("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate`"))


def test_running_out_of_memory_is_said_in_one_sentence() -> None:
    with pytest.raises(ConfigError, match=r"^lower something$"), device.enough_memory("lower something"):
        torch.empty(2**60, dtype=torch.uint8)
    with pytest.raises(RuntimeError, match="shape"), device.enough_memory("lower something"):
        torch.empty(2).view(3)


@pytest.mark.parametrize("error", [RuntimeError("shapes differ"), ValueError("not enough memory"), OSError(28, "full")])
def test_other_errors_are_not_taken_for_it(error: Exception) -> None:
    assert not device.out_of_memory(error)


def test_numpy_knows_the_smallest_numbers_before_they_become_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else NumPy 2.2, the newest for Python 3.10, warns in eight lines whenever it looks for them first."""
    called = list[object]()
    monkeypatch.setattr(np, "finfo", called.append)
    monkeypatch.setattr(torch, "set_flush_denormal", called.append)
    device.choose_device(False, log=lambda _: None)
    assert called[:5] == [np.float16, np.float32, np.float64, np.longdouble, True]
