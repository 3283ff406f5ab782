"""One process among those of a run: its part of a batch, and what cannot be shared."""

import re
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from config import ConfigError, TrainConfig
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


def test_a_lost_process_is_told_from_other_errors() -> None:
    assert lost(RuntimeError("[../gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:1234"))
    assert lost(torch.distributed.DistBackendError("NCCL error: remote process exited"))
    assert not lost(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
