"""Generation of faces from a checkpoint: batches, seeds, the best of many. Shared by all parts of the program."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from config import CheckpointError, ConfigError, ModelConfig, Precision
from gan import book_weights, checkpoint, device, hub, images, latent, threads
from gan.classes import NONE, Classes
from gan.quality import metrics
from model import Discriminator, Generator

T = TypeVar("T")
FILES = "best.pt", "latest.pt", hub.WEIGHTS  # files of a generator's folder; the first that exists is used
# Latents per batch on a GPU and on a CPU, which is as fast with fewer. Batches are always full, so that a face does not
# depend on how many are generated.
BATCH, CPU_BATCH = 64, 16
TYPICAL_OF = 2048  # number of samples that define which samples are typical
WORST = 0.05  # samples are ranked by this quantile of their logits over all positions and three depths


@dataclasses.dataclass
class Sampler:
    """A generator and the discriminator that ranks its samples, both frozen and in eval mode.

    `batch` is by default the device's. `origin` is what the checkpoint records about its training faces, if anything:
    holdout, digest, the numbers of training and held-out faces, and data_path unless it is a released one. `missing` is
    the error if a discriminator is needed but there is none. `class_filter` and `class_override` hold the code of a
    class by column: with the first, a seed draws its other classes among faces of that class, see `Classes.of_seeds`;
    with the second, it keeps the others that it has without. `digests` is for `digest`, once for all copies.
    """

    generator: nn.Module
    discriminator: nn.Module | None
    model: ModelConfig
    device: torch.device
    precision: Precision = "fp32"
    images_seen: int = 0
    origin: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    batch: int = 0
    missing: ConfigError | None = None
    classes: Classes = NONE
    class_filter: Mapping[int, int] = dataclasses.field(default_factory=dict)
    class_override: Mapping[int, int] = dataclasses.field(default_factory=dict)
    digests: list[str] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        self.batch = self.batch or (CPU_BATCH if self.device.type == "cpu" else BATCH)

    @property
    def digest(self) -> str:
        """Return 16 hexadecimal digits that identify the generator's weights."""
        if not self.digests:
            sha256 = hashlib.sha256()
            for name, weights in self.generator.state_dict().items():
                sha256.update(name.encode() + weights.cpu().contiguous().numpy().tobytes())
            self.digests.append(sha256.hexdigest()[:16])
        return self.digests[0]

    def faces(self, seeds: Sequence[int], mean: float = 0.0, std: float = 1.0) -> Iterator[np.ndarray]:
        """Generate the samples of `seeds` in order, in batches of pixels (n, S, S, C) uint8."""
        yield from self._chunks(seeds, lambda some: images.to_pixels(self.generator(self.latents(some, mean, std))))

    def draw(self, latents: Tensor, progress: Callable[[int], object] = lambda n: None) -> Iterator[np.ndarray]:
        """Generate the samples of latents (N, nz) in order, in batches as `faces` does and bit-identical to its.

        `progress` is called with the number of samples in each batch.
        """
        yield from self._chunks(
            range(len(latents)), lambda some: images.to_pixels(self.generator(latents[some].to(self.device))), progress
        )

    def of_classes(self, class_filter: Mapping[int, int], class_override: Mapping[int, int] | None = None) -> Sampler:
        """Return the same sampler for samples of these classes alone, in place of those of this one."""
        return dataclasses.replace(self, class_filter=class_filter, class_override=class_override or {})

    def overrides(self, without: str) -> dict[int, int]:
        """Return `class_override` without the column of a name."""
        names = self.classes.vocabulary
        return {column: code for column, code in self.class_override.items() if names[column][0] != without}

    def between(self, seed: int, until: Mapping[int, int], steps: int, mean: float = 0.0, std: float = 1.0) -> Tensor:
        """Interpolate the latent of a seed from the requested classes to the classes in `until`: (steps, nz)."""
        last = self.of_classes(self.class_filter, {**self.class_override, **until})
        shares = torch.linspace(0, 1, steps, device=self.device)[:, None]
        return torch.lerp(self.latents([seed], mean, std), last.latents([seed], mean, std), shares)

    def best(
        self,
        seeds: Sequence[int],
        keep: int,
        mean: float = 0.0,
        std: float = 1.0,
        progress: Callable[[int], object] = lambda n: None,
    ) -> list[int]:
        """Return the `keep` seeds with the best samples, best first, according to the discriminator.

        A projected discriminator rates each position of a sample, and its lowest logits count. The less typical half of
        the samples, according to its encoder, comes last: the discriminator takes blurred pictures in one colour for
        real, since some faces are. A plain discriminator rates the whole sample, as in the book.

        Args:
            seeds: to choose from; of most of them, memory holds only two numbers.
            keep: number of seeds to return.
            mean: mean of the latents.
            std: standard deviation of the latents.
            progress: called with the number of samples done, after each batch.

        Raises:
            ConfigError: there is no discriminator.
        """
        if self.discriminator is None:
            raise self.missing or ConfigError("no discriminator to choose by")

        def rated(some: list[int]) -> Tensor:
            """Return a score for each sample, and the features that decide whether it is typical, (n, 1 + F)."""
            codes = self.codes(some)
            return self._discriminate(self.generator(self.latents(some, mean, std, codes)), codes)

        first = torch.cat(list(self._chunks(seeds[:TYPICAL_OF], rated, progress)))
        first_typical, is_typical = _typical(first[:, 1:])
        scores, typical = [first[:, 0]], [first_typical]
        for rows in self._chunks(seeds[TYPICAL_OF:], rated, progress):
            scores.append(rows[:, 0])
            typical.append(is_typical(rows[:, 1:]))
        # The last key comes first: the typical, then those of high scores, then those of small seeds.
        order = np.lexsort((np.array(seeds), -torch.cat(scores).numpy(), ~torch.cat(typical).numpy()))
        return [seeds[i] for i in order[:keep]]

    def _discriminate(self, faces: Tensor, codes: Tensor) -> Tensor:
        """Rate samples (N, C, S, S): (N, 1 + F), a logit and the features of the discriminator's encoder, if any."""
        assert self.discriminator is not None
        with device.autocast(self.device, "fp32"):  # in bf16 many logits would be equal
            faces, heads = faces.float(), getattr(self.discriminator, "projected", None)
            if heads is None:
                known = (None, codes) if self.classes.vocabulary else ()
                return self.discriminator(faces, *known).view(len(faces), -1).mean(1, keepdim=True).cpu()
            features = heads.encode(faces)
            worst = heads(features, codes).flatten(1).quantile(WORST, 1)
            return torch.cat([worst[:, None], *(depth.mean((2, 3)) for depth in features)], 1).cpu()

    def codes(self, seeds: Sequence[int]) -> Tensor:
        """Return the classes of the samples of some seeds, (N, V)."""
        codes = self.classes.of_seeds(seeds, self.class_filter)
        for column, code in self.class_override.items():
            codes[:, column] = code
        return torch.from_numpy(codes).to(self.device)

    @torch.no_grad()
    def latents(self, seeds: Sequence[int], mean: float = 0.0, std: float = 1.0, codes: Tensor | None = None) -> Tensor:
        """Return the generator's inputs (N, nz) for some seeds, with the seeds' classes or the given ones (N, V)."""
        z = latent.latents(seeds, self.model.nz, mean, std).to(self.device)
        if not self.classes.vocabulary:
            return z
        return cast(Generator, self.generator).conditioned(z, self.codes(seeds) if codes is None else codes)

    def _chunks(
        self, items: Sequence[int], work: Callable[[list[int]], T], progress: Callable[[int], object] = lambda n: None
    ) -> Iterator[T]:
        """Apply `work` to items in batches; the batch size is halved if one does not fit in memory."""
        start, batch = 0, self.batch
        while start < len(items):
            threads.adapt()
            some = list(items[start : start + batch])
            padded = some + some[-1:] * (batch - len(some))
            try:
                with torch.no_grad(), device.autocast(self.device, self.precision):
                    result = work(padded)
            except (RuntimeError, MemoryError) as error:
                if not device.out_of_memory(error) or batch == 1:
                    raise
                batch //= 2
                continue
            start += len(some)
            progress(len(some))
            yield result[: len(some)]  # pyright: ignore[reportIndexIssue]


def _typical(known: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Find the half of features (N, F) nearest to their mean; also returns a function that classifies others."""
    if not known.shape[1] or len(known) < 2:
        return torch.ones(len(known), dtype=torch.bool), lambda some: torch.ones(len(some), dtype=torch.bool)
    distance = metrics.mahalanobis(known.double().mean(0), torch.cov(known.double().T))
    near = distance(known)
    farthest = float(np.median(metrics.left_out(near.numpy(), len(known))))  # for features outside the fit
    return near <= near.median(), lambda some: distance(some) <= farthest


def load(path: Path, on: torch.device) -> Sampler:
    """Load a sampler from a checkpoint or from a run's folder: its best.pt, else its latest.pt.

    A folder that `export.py --to=safetensors` wrote also works, but has no discriminator.

    Raises:
        CheckpointError: the file cannot be read, or does not fit its own description of the network.
    """
    path = checkpoint.find(path, FILES)
    content = hub.read(path, on) if path.name == hub.WEIGHTS else checkpoint.load(path, on)
    try:
        model = ModelConfig(**content["model"])
        generator, discriminator = Generator(model), None
        missing = ConfigError("{}: has no discriminator to choose by; give the checkpoint that it was made of", path)
        try:
            discriminator = Discriminator(model) if "discriminator" in content else None
        except ConfigError as error:  # generating does not need the package of the encoder
            missing = error
    except (TypeError, ValueError, LookupError, AttributeError, RuntimeError) as error:
        if device.out_of_memory(error):
            raise
        raise CheckpointError(
            "{}: describes a network that this program does not know ({}); use the version that wrote it", path, error
        ) from error
    checkpoint.load_weights(generator, content["ema"], "generator", path)
    if discriminator is not None:
        checkpoint.load_weights(discriminator, content["discriminator"], "discriminator", path)
    try:
        options = content["config"]
        known = {name: options[name] for name in ("data_path", "holdout") if name in options}
        known |= {"chosen_faces": content["chosen_faces"].cpu()} if "chosen_faces" in content else {}
        origin = {**known, **content["faces"]} if "faces" in content else {}
        seen, classes = int(content["images_seen"]), Classes.restored(content)
    except Exception as error:  # someone else may have written anything there
        raise CheckpointError("{}: its run metadata is corrupt ({}); use another file", path, error) from error
    about = {"images_seen": seen, "origin": origin, "missing": missing, "classes": classes}
    return _sampler(generator, discriminator, model, on, **about)


def load_book(netg_path: Path, netd_path: Path | None, on: torch.device) -> Sampler:
    """Load a sampler from weights that the book's program saved; without `netd_path` it cannot rank samples.

    Raises:
        CheckpointError: a file cannot be read, or is something else.
    """
    found, weights, d_weights = book_weights.networks(netg_path, netd_path)
    model = ModelConfig(**{"ndf": 64, "d_norm": "batch", **found})  # the book's, without a discriminator
    generator, discriminator = Generator(model), None
    checkpoint.load_weights(generator, weights or {}, "generator", netg_path)
    if netd_path is not None and d_weights is not None:
        discriminator = Discriminator(model)
        checkpoint.load_weights(discriminator, d_weights, "discriminator", netd_path)
    return _sampler(generator, discriminator, model, on)


def _sampler(
    generator: nn.Module, discriminator: nn.Module | None, model: ModelConfig, on: torch.device, **about: Any
) -> Sampler:
    for network in filter(None, (generator, discriminator)):
        device.place(network, on).eval().requires_grad_(False)
    precision = device.choose_precision("auto", on) if on.type == "cuda" else "fp32"  # on a CPU bit-exact
    return Sampler(generator, discriminator, model, on, precision, **about)
