"""The training loop of the small networks that come with the program: AdamW for a number of minutes."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gan import checkpoint

clock = time.monotonic  # seconds


def teach(network: nn.Module, loss: Callable[[], Tensor], minutes: float, lr: float, weight_decay: float) -> int:
    """Train a network and leave it in eval mode; `loss` draws its own batches. Returns the number of steps.

    The learning rate rises over 50 steps, and falls to 0 along a cosine over the given minutes.
    """
    optimizer = torch.optim.AdamW(network.train().parameters(), lr, weight_decay=weight_decay)
    start, step, losses = clock(), 0, list[float]()
    while (done := (clock() - start) / (60 * minutes)) < 1:
        for group in optimizer.param_groups:
            group["lr"] = lr * min(1, (step + 1) / 50) * (1 + math.cos(math.pi * done)) / 2
        found = loss()
        optimizer.zero_grad(set_to_none=True)
        found.backward()
        optimizer.step()
        step += 1
        losses.append(found.item())
        if step % 200 == 0:
            print(f"step {step}, {done:.0%}: {np.mean(losses[-200:]):.4f}", flush=True)
    network.eval()
    return step


def save(network: nn.Module, name: str, out: Path, credits: dict[str, Any], **more: Any) -> None:
    """Write a network's weights in half precision under a name, with credits and further entries."""
    weights = {key: w.cpu().half() if w.is_floating_point() else w for key, w in network.state_dict().items()}
    checkpoint.save(out, {name: weights, **more, "credits": {"program": f"AnimeGAN, benchmarks/{name}.py", **credits}})
    print(f"{out}: {os.path.getsize(out):,} bytes, {credits['steps']} steps")
