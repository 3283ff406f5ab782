"""The processes that train one run together, one per device, as `torchrun` starts them. Usually there is one.

Each computes its part of every batch. DDP averages the gradients, over NCCL between GPUs and gloo between CPUs. The
first process makes all decisions that depend on time, and writes all files.
"""

import contextlib
import dataclasses
import importlib
import os
import warnings
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import gan.device
from config import CheckpointError, ConfigError, TrainConfig, UserError
from gan.device import layout
from gan.training.batch_norm import SharedBatchNorm
from gan.training.losses import COUPLED

PATIENCE = timedelta(days=1)  # longest wait for a busy process, say one that packs faces; a dead one is noticed at once
T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Ranks:
    """The place of this process among those of its run."""

    rank: int = 0  # its number among all processes, from 0
    world: int = 1  # number of processes
    local: int = 0  # its number on its own machine, from 0

    @property
    def first(self) -> bool:
        """Return whether this process prints and writes."""
        return self.rank == 0

    def agree(self, device: torch.device) -> None:
        """Let all processes use one memory format, as DDP expects.

        Raises:
            ConfigError: some processes compute on a CPU and others on GPUs, which cannot talk to each other.
        """
        if self.world == 1:
            return
        plain = layout(device) == torch.contiguous_format
        on_cpu, on_gpu, contiguous = self.all_reduce_max(device.type == "cpu", device.type != "cpu", plain)
        if on_cpu and on_gpu:
            raise ConfigError(
                "this process uses the {}, but some processes use a GPU and others the CPU; python train.py alone "
                "says on each machine what is missing; leave a GPU out with CUDA_VISIBLE_DEVICES, or add --nogpu",
                device.type,
            )
        gan.device.contiguous_everywhere = bool(contiguous)

    def check(self, config: TrainConfig, device: torch.device) -> None:
        """Reject options that several devices cannot share.

        Raises:
            ConfigError: the batch does not divide among them, the loss needs the whole batch, the networks are to be
                compiled, or torch cannot connect such devices.
        """
        if self.world > 1 and device.type not in ("cpu", "cuda"):
            raise ConfigError(
                "several processes train on NVIDIA or AMD GPUs or on CPUs, not on {}; add --nogpu", device.type
            )
        if config.batch_size % self.world:
            raise ConfigError(
                "--batch_size: {} faces cannot be split evenly among {} processes; use a multiple of {}",
                config.batch_size,
                self.world,
                self.world,
            )
        if self.world > 1 and config.compile:
            raise ConfigError("networks are compiled with one process only; add --nocompile with {}", self.world)
        if self.world > 1 and config.loss in COUPLED:
            raise ConfigError(
                "--loss={} compares with the mean of the whole batch, which no process sees; train with one "
                "process, or with another loss, such as rp",
                config.loss,
            )

    def part(self, n: int) -> slice:
        """Return this process's part of a batch of `n`."""
        return slice(n * self.rank // self.world, n * (self.rank + 1) // self.world)

    def wrapped(self, network: nn.Module, device: torch.device) -> nn.Module:
        """Wrap `network` to average gradients over all processes. All start with the first process's weights.

        BatchNorm sees the whole batch.
        """
        if self.world == 1:
            return network
        for part in network.modules():
            if isinstance(part, nn.BatchNorm2d):
                part.__class__ = SharedBatchNorm  # the same weights and names
        for buffer in network.buffers():  # such as the frozen encoder; DDP broadcasts parameters only
            plain = buffer.contiguous()  # NCCL needs a contiguous tensor in some versions of torch
            dist.broadcast(plain, 0)
            buffer.copy_(plain)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "`broadcast_buffers` is deprecated")  # older torch knows no other name
            return DistributedDataParallel(
                network, device_ids=[device] if device.type == "cuda" else None, broadcast_buffers=False
            )

    def all_reduce_max(self, *wishes: float) -> tuple[float, ...]:
        """Return the maximum over all processes, number by number. A process that has no vote passes 0."""
        if self.world == 1:
            return wishes
        numbers = torch.tensor(wishes, dtype=torch.float64)  # on the CPU: over gloo, which notices the end of others
        dist.all_reduce(numbers, dist.ReduceOp.MAX)
        return tuple(numbers.tolist())

    def means(self, values: Mapping[str, float]) -> dict[str, float]:
        """Return the mean of each number over all processes."""
        if self.world == 1:
            return dict(values)
        numbers = torch.tensor(list(values.values()), dtype=torch.float64)
        dist.all_reduce(numbers, dist.ReduceOp.SUM)
        return dict(zip(values, (numbers / self.world).tolist(), strict=True))

    def broadcast(self, value: T) -> T:
        """Return the first process's value in all processes."""
        if self.world == 1:
            return value
        values = [value]
        dist.broadcast_object_list(values)
        return values[0]

    @contextlib.contextmanager
    def in_turn(self) -> Iterator[None]:
        """Let the first process of each machine run before the others, which then find its results."""
        if self.world > 1 and self.local:
            self.all_reduce_max(0.0)
        yield
        if self.world > 1 and not self.local:
            self.all_reduce_max(0.0)


@contextlib.contextmanager
def joined(gpu: bool | None) -> Iterator[Ranks]:
    """Join the other processes of this run until the end; without `torchrun` there are none.

    Raises:
        ConfigError: a machine has fewer GPUs than processes, or torch has no NCCL.
        CheckpointError: another process has died.
    """
    world = int(os.environ.get("WORLD_SIZE", "1")) if dist.is_available() and dist.is_torchelastic_launched() else 1
    if world == 1:
        yield Ranks()
        return
    ranks = Ranks(int(os.environ["RANK"]), world, int(os.environ["LOCAL_RANK"]))
    on_gpu = gpu is not False and torch.cuda.is_available()
    with open(os.devnull, "w", errors="replace") as nowhere, contextlib.ExitStack() as quiet:
        if not ranks.first:
            quiet.enter_context(contextlib.redirect_stdout(nowhere))
        try:
            if on_gpu:
                wanted, there = int(os.environ["LOCAL_WORLD_SIZE"]), torch.cuda.device_count()
                if there < wanted:
                    raise ConfigError(
                        "{} processes on a machine with {} GPUs; each needs its own: --nproc_per_node={}, or --nogpu",
                        wanted,
                        there,
                        there,
                    )
                torch.cuda.set_device(ranks.local)
            if on_gpu and not dist.is_nccl_available():
                raise ConfigError("torch has no NCCL here: several GPUs need Linux; leave torchrun out, or add --nogpu")
            # DDP imports this module, whose functions keep the process group as a default argument for ever. Imported
            # later, it would keep gloo's threads alive after `destroy_process_group`, and they may abort the process at
            # shutdown.
            importlib.import_module("torch.distributed.nn")
            try:
                dist.init_process_group("cpu:gloo,cuda:nccl" if on_gpu else "gloo", timeout=PATIENCE)
            except RuntimeError as error:
                raise ConfigError(
                    "the processes do not find each other ({}); see docs/multi-gpu.md", summary(error)
                ) from error
            yield ranks
        except UserError as error:
            raise type(error)("process {} of {}: {}", ranks.rank, world, error) from error
        except RuntimeError as error:
            if not lost(error):
                raise
            raise CheckpointError(
                "process {} of {}: another process of this run has ended, so all stop; see its message; if the run was "
                "training already, the same torchrun command, --resume in place of --budget, goes on from its last "
                "save (torch says: {})",
                ranks.rank,
                world,
                summary(error),
            ) from error
        dist.destroy_process_group()  # not after an error: NCCL would wait for the others


def lost(error: RuntimeError) -> bool:
    """Return whether `error` says that another process no longer answers."""
    text = str(error).lower()
    return isinstance(error, dist.DistError) or "gloo" in text or "connection closed" in text


def summary(error: RuntimeError) -> str:
    """Return the part of an error of NCCL or gloo that says what is wrong, in one line."""
    return " ".join(str(error).rpartition("Last error:")[2].split())[:300]
