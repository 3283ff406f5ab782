"""On a GPU the program computes what it computes on the CPU.

`test_gpu.py` runs this on the stand-in for CUDA. On a real GPU: `python -m pytest -n0 tests/gpu/same.py`.
"""

import dataclasses
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

import train
from config import RELEASED, Precision, TrainConfig
from gan import checkpoint, device
from gan.play import enlarging
from gan.presets import resolve
from gan.quality import features, sampling
from gan.training import ema, losses
from gan.training.ranks import Ranks
from gan.training.run import Run, TrainingState
from gan.training.step import Step, WrappedNetworks
from gan.watching.monitor import Monitor

pytestmark = pytest.mark.usefixtures("gpu")

CPU, GPU = torch.device("cpu"), torch.device("cuda")
KINDS = ("hair", "blue", "red"), ("mood", "calm", "wild")
VARIANTS: dict[str, dict[str, Any]] = {
    "default": {"whole": 1.0},
    "classes, all faces moved": {"vocabulary": KINDS, "colour": 1.0, "translate": 1.0},
    "fine": {"fine": True},
    "resnet": {"arch": "resnet"},
    "hinge, not projected": {"loss": "hinge", "projected": False},
    "book": {"preset": "book"},
    "book2": {"preset": "book2"},
    "wgan": {"preset": "wgan"},
    "wgan-gp": {"preset": "wgan-gp"},
}
MOST = {"fp32": 1e-3, "bf16": 0.05}  # largest difference of two losses, relative to their size


@pytest.fixture(autouse=True)
def _exact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


@pytest.fixture
def same_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give both devices the same noise for penalties; a GPU draws other numbers than a CPU."""
    draw = losses.penalty_noise

    def drawn_on_cpu(penalty: Any, images: torch.Tensor, n: int, random: torch.Generator) -> torch.Tensor:
        source = torch.Generator().manual_seed(random.initial_seed())
        return draw(penalty, images.cpu(), n, source).to(images.device)

    monkeypatch.setattr(losses, "penalty_noise", drawn_on_cpu)


def begun(on: torch.device, precision: Precision = "fp32", ranks: Ranks | None = None, **options: Any) -> Run:
    small = {"image_size": 32, "ngf": 8, "ndf": 8, "batch_size": 8, "penalty_every": 2, "whole": 0.0}
    return Run(Path(), resolve(TrainConfig, {**small, **options}), on, precision, {}, ranks or Ranks())


def steps(run: Run, state: TrainingState, n: int = 2) -> list[Mapping[str, float]]:
    """The means of n more steps of both networks."""
    config, on = run.config, run.device
    networks, monitor = WrappedNetworks.of(run, state), Monitor(None, config, 100)
    random, found = torch.Generator().manual_seed(0), list[Mapping[str, float]]()
    for _ in range(n):
        state.step += config.g_every  # each network learns in each
        real = torch.rand(config.batch_size, config.channels, 32, 32, generator=random) * 2 - 1
        real = real.to(on).contiguous(memory_format=device.layout(on))
        codes = torch.randint(0, 3, (len(real), len(config.vocabulary)), generator=random).to(on)
        mine = run.ranks.part(len(real))
        step = Step(run, state, networks, monitor, real[mine], codes[mine])
        train.discriminator_step(step)
        train.generator_step(step)
        ema.update(state.ema, state.generator, 0.5)
        found.append(monitor.means())
        monitor.rewind(state.step)
    return found


def apart(one: list[Mapping[str, float]], other: list[Mapping[str, float]]) -> float:
    """The largest relative difference."""
    pairs = [(a[name], b[name]) for a, b in zip(one, other, strict=True) for name in a.keys() | b.keys()]
    return max(abs(a - b) / (abs(a) + 0.05) for a, b in pairs)


@pytest.mark.usefixtures("same_noise")
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
def test_steps_have_the_same_losses(options: dict[str, Any], precision: Precision) -> None:
    runs = [begun(on, precision, **options) for on in (CPU, GPU)]
    states = [TrainingState(run.config, run.device) for run in runs]
    one, other = (steps(run, state) for run, state in zip(runs, states, strict=True))
    assert {"d_loss", "g_loss"} <= other[0].keys()
    assert apart(one, other) < MOST[precision]
    here, there = (torch.cat([weight.flatten().cpu() for weight in state.ema.parameters()]) for state in states)
    assert torch.allclose(here, there, atol=10 * max(states[0].rates))


def test_a_state_of_the_gpu_goes_on_on_the_cpu_and_back(tmp_path: Path) -> None:
    run, there = begun(GPU), begun(CPU)
    state = TrainingState(run.config, GPU)
    steps(run, state)
    run.save(state, 0.0, tmp_path / "gpu.pt")
    moved = TrainingState(there.config, CPU)
    moved.load(checkpoint.load(tmp_path / "gpu.pt"), tmp_path)
    assert moved.step == state.step
    for part in ("generator", "discriminator", "ema"):
        pairs = zip(getattr(state, part).parameters(), getattr(moved, part).parameters(), strict=True)
        assert all(torch.equal(a.cpu(), b) for a, b in pairs)
    there.save(moved, 0.0, tmp_path / "cpu.pt")
    back = TrainingState(run.config, GPU)
    back.load(checkpoint.load(tmp_path / "cpu.pt"), tmp_path)
    for optimizer in (back.g_optimizer, back.d_optimizer):
        assert all(kept.is_cuda for of in optimizer.state.values() for kept in of.values())
        assert {float(of["step"]) for of in optimizer.state.values()} == {2.0}
    gone_on = [steps(*one, n=1) for one in ((run, state), (there, moved), (run, back))]
    assert apart(gone_on[0], gone_on[2]) < 1e-4
    assert apart(gone_on[0], gone_on[1]) < MOST["fp32"]


def test_the_released_generator_draws_and_chooses_the_same_faces() -> None:
    one, other = (sampling.load(RELEASED, on) for on in (CPU, GPU))
    assert device.layout(GPU) == torch.channels_last
    exact = dataclasses.replace(other, batch=8, precision="fp32")
    pixels = [np.concatenate(list(sampler.faces(range(8)))).astype(int) for sampler in (one, exact)]
    assert np.abs(pixels[0] - pixels[1]).max() <= 1
    usual = dataclasses.replace(other, batch=8, precision="bf16")
    assert np.abs(pixels[0] - np.concatenate(list(usual.faces(range(8))))).mean() < 1
    assert exact.best(range(16), 4) == one.best(range(16), 4)


def test_faces_are_enlarged_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    faces = next(sampling.load(RELEASED, CPU).faces(range(3)))[:3]
    monkeypatch.setattr(enlarging, "LOT", 2 * 96**2)  # two at once, then one
    here, there = (enlarging.enlarged(faces, 4, on, by_network=True).astype(int) for on in (CPU, GPU))
    assert np.abs(here - there).mean() < 1  # the GPU computes in bf16


@pytest.mark.parametrize("kind", ["faces", "imagenet"])
def test_features_and_damage_are_the_same(kind: str) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (6, 96, 96, 3), dtype=np.uint8)
    one, other = (features.measuring(on, kind) for on in (CPU, GPU))
    found, there = one(pixels), other(pixels)
    assert (found - there).norm() < 5e-3 * found.norm()
    assert torch.allclose(one.damage(pixels), other.damage(pixels), atol=1e-3)


@pytest.mark.usefixtures("same_noise")
def test_several_gpus_step_as_several_cpus_do() -> None:
    """DDP over NCCL and over gloo, in one process that takes itself for the first of two."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    dist.init_process_group("cpu:gloo,cuda:nccl", init_method=f"tcp://127.0.0.1:{port}", rank=0, world_size=1)
    try:
        runs = [begun(on, ranks=Ranks(0, 2, 0)) for on in (CPU, GPU)]
        one, other = (steps(run, TrainingState(run.config, run.device)) for run in runs)
    finally:
        dist.destroy_process_group()
    assert apart(one, other) < MOST["fp32"]
