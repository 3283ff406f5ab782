"""One process among those of a run: its part of a batch, and what cannot be shared."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from config import CheckpointError, ConfigError, TrainConfig
from gan import device
from gan.training import display
from gan.training.ranks import Ranks, joined, lost

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("options", "device", "said"),
    [
        ({"batch_size": 15}, "cpu", "15 faces cannot be split evenly among 2 processes; use a multiple of 2"),
        ({"loss": "rahinge"}, "cpu", "compares with the mean of the whole batch"),
        ({"compile": True}, "cpu", "networks are compiled with one process only; add --nocompile"),
        ({}, "mps", "not on mps; add --nogpu"),
    ],
)
def test_what_cannot_be_shared_is_refused(options: dict[str, Any], device: str, said: str) -> None:
    config = TrainConfig(**options)
    with pytest.raises(ConfigError, match=re.escape(said)):
        Ranks(1, 2).check(config, torch.device(device))
    Ranks().check(config, torch.device(device))


@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_parts_make_up_the_batch_in_order(world: int) -> None:
    batch = list(range(12))
    parts = [batch[Ranks(rank, world).part(12)] for rank in range(world)]
    assert sum(parts, []) == batch  # noqa: RUF017
    assert {len(part) for part in parts} == {12 // world}


def test_one_process_alone_needs_no_others() -> None:
    network = nn.Linear(2, 2)
    with joined(gpu=None) as ranks:
        assert ranks == Ranks()
        assert ranks.first
        assert ranks.wrapped(network, CPU) is network
        assert ranks.all_reduce_max(0.5, True) == (0.5, True)
        assert ranks.means({"d_loss": 2.0}) == {"d_loss": 2.0}
        assert ranks.broadcast("a") == "a"
        with ranks.in_turn():
            pass
    assert not torch.distributed.is_initialized()


def test_several_gpus_without_nccl_are_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        monkeypatch.setenv(name, "2")
    for name in ("RANK", "LOCAL_RANK"):
        monkeypatch.setenv(name, "0")
    monkeypatch.setattr(dist, "is_torchelastic_launched", lambda: True)
    monkeypatch.setattr(dist, "is_nccl_available", lambda: False)  # Windows
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", lambda _: None)
    with (
        pytest.raises(ConfigError, match="2: torch has no NCCL here: several GPUs need Linux"),
        joined(None),
    ):
        pass


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> None:
    """As torchrun starts the first of two processes on CPUs; the connection is left out."""
    for name, value in {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "RANK": "0", "LOCAL_RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(dist, "is_torchelastic_launched", lambda: True)
    monkeypatch.setattr(dist, "init_process_group", lambda *_, **__: None)


@pytest.mark.usefixtures("launched")
def test_processes_that_cannot_connect_say_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise dist.DistNetworkError("connect failed:\nno such interface eth7")

    monkeypatch.setattr(dist, "init_process_group", fail)
    said = r"0 of 2: the processes do not find .* \(connect failed: no such interface eth7"
    with pytest.raises(ConfigError, match=said), joined(gpu=False):
        pass


@pytest.mark.usefixtures("launched")
def test_what_torch_says_of_a_lost_process_is_passed_on() -> None:
    said = r"has ended.*\(torch says: Duplicate GPU detected\)$"
    with pytest.raises(CheckpointError, match=said), joined(gpu=False):
        raise dist.DistBackendError("NCCL error in: a.cpp:1\nLast error:\nDuplicate GPU  detected")


@pytest.mark.parametrize(
    ("kind", "votes", "said"), [("cpu", (1.0, 1.0, 0.0), "uses the cpu"), ("cuda", (1.0, 1.0, 0.0), "uses the cuda")]
)
def test_a_cpu_among_gpus_is_refused_by_all(
    monkeypatch: pytest.MonkeyPatch, kind: str, votes: tuple[float, ...], said: str
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 0))
    monkeypatch.setattr(Ranks, "all_reduce_max", lambda *_: votes)
    with pytest.raises(ConfigError, match=f"this process {said}, but some processes use a GPU and others the CPU"):
        Ranks(1, 2).agree(torch.device(kind))
    Ranks().agree(torch.device(kind))


def test_gpus_of_different_generations_share_one_memory_format(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda, votes = torch.device("cuda"), list[tuple[float, ...]]()
    monkeypatch.setattr(device, "contiguous_everywhere", False)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 0))
    monkeypatch.setattr(Ranks, "all_reduce_max", lambda _, *own: votes.append(own) or (0.0, 1.0, 1.0))
    assert device.layout(cuda) == torch.channels_last
    Ranks(0, 2).agree(cuda)
    assert votes == [(False, True, False)]
    assert device.layout(cuda) == torch.contiguous_format  # as the other, older one asked


def test_a_lost_process_is_told_from_other_errors() -> None:
    assert lost(RuntimeError("[../gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:1234"))
    assert lost(torch.distributed.DistBackendError("NCCL error: remote process exited"))
    assert not lost(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))


@pytest.mark.parametrize(
    ("world", "on_this_machine", "start"),
    [(1, "1", "python"), (2, "2", "torchrun --nproc_per_node=2 --"), (4, "2", "torchrun ... --")],
)
def test_a_run_goes_on_in_as_many_processes(
    world: int, on_this_machine: str, start: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", on_this_machine)
    run: Any = SimpleNamespace(config=TrainConfig(budget=20), ranks=Ranks(0, world))
    command = f"{start} train.py --resume={tmp_path}"
    assert display.resumption(run, tmp_path, finished=False) == command
    assert display.resumption(run, tmp_path, finished=True) == f"{command} --budget=20"
