"""What tests learn of the machine, and take of it: speed, memory, ports."""

import contextlib
import ctypes
import gc
import os
import random
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

PATIENCE = 600_000  # milliseconds for what a browser waits for; looking for a face takes a minute of a slow core

_CAN = torch.cpu.get_capabilities()
FAST = "bf16" if _CAN.get("avx512_bf16") or _CAN.get("amx_bf16") else "fp32"  # elsewhere bf16 takes three times as long


def free_port() -> int:
    """Return a port that nothing listens to.

    It is below those that the kernel gives to whoever asks for any, so nobody else takes it before it is used.
    """
    choices = random.Random(os.getpid() ^ time.time_ns())
    while True:
        port = choices.randrange(20_000, 32_000)
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port


@contextlib.contextmanager
def little_memory(most: int) -> Iterator[None]:
    """The block may use so many bytes more than there are in use before it, at most."""
    status = Path("/proc/self/status")
    if not status.is_file():
        pytest.skip("only Linux tells the most memory that was used")

    def used(name: str) -> int:
        return 1024 * int(status.read_text().split(f"{name}:")[1].split()[0])

    gc.collect()
    with contextlib.suppress(AttributeError, OSError):  # of glibc alone
        ctypes.CDLL(None).malloc_trim(0)  # or the block would use what earlier tests have freed
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = used("VmRSS")
    yield
    assert used("VmHWM") - before < most
