"""Checkpoint -> faces: batches, seeds, the best by the discriminator. Shared by generating, measuring and previews."""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from config import CheckpointError, ModelConfig, Precision
from gan import book_weights, checkpoint, device, images, latent
from model import Discriminator, Generator

T = TypeVar("T")
BATCH = 64
"""Latents a batch; always full, so that a face does not depend on how many are asked for."""


@dataclasses.dataclass
class Sampler:
    """A generator, and the discriminator that ranks its samples, ready to draw: frozen, in eval().

    `origin` is what the checkpoint says of the faces it was trained on, where it does: holdout, digest, how many were
    trained on and held out, and, where it is not a released one, data_path.
    """

    generator: nn.Module
    discriminator: nn.Module | None
    model: ModelConfig
    device: torch.device
    precision: Precision = "fp32"
    images_seen: int = 0
    origin: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    batch: int = BATCH

    def faces(self, seeds: Sequence[int], mean: float = 0.0, std: float = 1.0) -> Iterator[np.ndarray]:
        """The samples of `seeds`, in order, in batches of pixels (n, S, S, C) uint8."""
        yield from self._batches(seeds, lambda z: images.to_pixels(self.generator(z)), mean, std)

    def best(
        self,
        seeds: Sequence[int],
        keep: int,
        mean: float = 0.0,
        std: float = 1.0,
        progress: Callable[[int], object] = lambda n: None,
    ) -> list[int]:
        """The `keep` seeds whose samples the discriminator finds most real, best first.

        Args:
            seeds: to choose from; memory does not grow with their number.
            keep: how many to keep.
            mean: mean of the latents.
            std: standard deviation of the latents.
            progress: called with the number of samples done, after each batch.

        Raises:
            ValueError: there is no discriminator.
        """
        if (discriminator := self.discriminator) is None:
            raise ValueError("no discriminator to choose by")

        def judge(faces: Tensor) -> Tensor:
            with device.autocast(self.device, "fp32"):  # bf16 would call many equally good
                return discriminator(faces.float()).view(len(faces), -1).mean(1).cpu()

        def ranked() -> Iterator[tuple[float, int]]:
            done = 0
            for logits in self._batches(seeds, lambda z: judge(self.generator(z)), mean, std):
                yield from zip(logits.tolist(), seeds[done : done + len(logits)], strict=True)
                done += len(logits)
                progress(len(logits))

        return [seed for _, seed in heapq.nlargest(keep, ranked(), key=lambda pair: (pair[0], -pair[1]))]

    def _batches(self, seeds: Sequence[int], work: Callable[[Any], T], mean: float, std: float) -> Iterator[T]:
        """`work` on the latents of `seeds`, a batch at a time; a batch that does not fit in memory is halved."""
        start = 0
        while start < len(seeds):
            some = list(seeds[start : start + self.batch])
            padded = some + some[-1:] * (self.batch - len(some))
            try:
                with torch.no_grad(), device.autocast(self.device, self.precision):
                    result = work(latent.latents(padded, self.model.nz, mean, std).to(self.device))
            except (RuntimeError, MemoryError) as error:
                if not device.out_of_memory(error) or self.batch == 1:
                    raise
                self.batch //= 2
                continue
            start += len(some)
            yield result[: len(some)]  # pyright: ignore[reportIndexIssue]


def load(path: Path, on: torch.device) -> Sampler:
    """Load what draws and ranks samples.

    Args:
        path: a checkpoint, or the folder of a run: its best.pt, else its latest.pt.
        on: where to draw.

    Raises:
        CheckpointError: it cannot be read, or holds another network than it says.
    """
    path = checkpoint.find(path, ("best.pt", "latest.pt"))
    content = checkpoint.load(path, on)
    try:
        model = ModelConfig(**content["model"])
        generator, discriminator = Generator(model), Discriminator(model)
    except (TypeError, ValueError, KeyError) as error:
        raise CheckpointError(f"{path}: describes a network that this program does not know ({error})") from error
    checkpoint.load_weights(generator, content["ema"], "generator", path)
    checkpoint.load_weights(discriminator, content["discriminator"], "discriminator", path)
    options = content["config"]
    known = {name: options[name] for name in ("data_path", "holdout") if name in options}
    known |= {"chosen_faces": content["chosen_faces"].cpu()} if "chosen_faces" in content else {}
    origin = {**known, **content["faces"]} if "faces" in content else {}
    return _sampler(generator, discriminator, model, on, content["images_seen"], origin)


def load_book(netg_path: Path, netd_path: Path | None, on: torch.device) -> Sampler:
    """Load what draws, and where `netd_path` is given ranks, from weights that the book's program saved.

    Raises:
        CheckpointError: a file cannot be read, or is something else.
    """
    found, weights, d_weights = book_weights.networks(netg_path, netd_path)
    model = book_weights.model_config(found)
    generator, discriminator = Generator(model), None
    checkpoint.load_weights(generator, weights or {}, "generator", netg_path)
    if netd_path is not None and d_weights is not None:
        discriminator = Discriminator(model)
        checkpoint.load_weights(discriminator, d_weights, "discriminator", netd_path)
    return _sampler(generator, discriminator, model, on)


def _sampler(
    generator: nn.Module,
    discriminator: nn.Module | None,
    model: ModelConfig,
    on: torch.device,
    images_seen: int = 0,
    origin: Mapping[str, Any] | None = None,
) -> Sampler:
    def ready(network: nn.Module) -> nn.Module:
        return device.place(network, on).eval().requires_grad_(False)

    ranks = None if discriminator is None else ready(discriminator)
    precision = device.choose_precision("auto", on) if on.type == "cuda" else "fp32"  # on a CPU to the last bit
    return Sampler(ready(generator), ranks, model, on, precision, images_seen, origin or {})
