"""Extraction of the feature vectors by which metrics compare sets of faces."""

import contextlib
import dataclasses
import hashlib
import os
import urllib.error
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from config import DAMAGE, ENCODER, CheckpointError, ConfigError, needing
from gan import checkpoint, device, downloads, imagenet, threads
from gan.data.faces import Pack
from gan.encoder import FEATURES, SIZE, Encoder, fused
from gan.files import replacing
from gan.images import to_tensor
from gan.language import text, why
from gan.quality.damage import Damage

BATCH = 100
NARROW_BATCH = 20  # for EfficientNet on a CPU: twice as fast as 100, whose maps do not fit into its cache
SIZE_OF_MEANS = 10**0.5  # divisor of EfficientNet-lite2's means: about their root mean square over anime faces
INCEPTION = (
    "https://github.com/toshas/torch-fidelity/releases/download/v0.2.0/weights-inception-2015-12-05-6726825d.pth"
)
STANDARD = "6726825d"  # first digits of the SHA-256 of the weights that define FID


@dataclasses.dataclass(frozen=True)
class Extractor:
    """Maps faces to features; `damage` returns how much of each face looks damaged, (N,), see `gan.quality.damage`."""

    name: str  # name of the features; features with different names are not comparable
    width: int  # length of a feature vector
    network: Callable[[Tensor], Tensor]  # uint8 pixels (N, H, W, C) on its device -> (N, width)
    device: torch.device
    batch: int = BATCH  # faces per batch
    damage: Callable[[np.ndarray], Tensor] = lambda pixels: torch.zeros(len(pixels))

    def __call__(self, pixels: np.ndarray) -> Tensor:
        """Map pixels (N, H, W, C) uint8, colour or grey, to features (N, width) float32 on the CPU."""
        found = [torch.empty(0, self.width)]
        with torch.no_grad():
            for start in range(0, len(pixels), self.batch):
                threads.adapt()
                some = np.ascontiguousarray(pixels[start : start + self.batch])
                found.append(self.network(torch.from_numpy(some).to(self.device)).float().cpu())
        return torch.cat(found)


def load(kind: str, on: torch.device) -> Extractor:
    """Load the network that computes the features for the metrics.

    Args:
        kind: `imagenet` for EfficientNet-lite2, `faces` for the encoder that comes with the program, or for FID as
            papers report it `inception:FILE` with the file of its weights; `inception` lets the library download them.
        on: device for the computation.

    Raises:
        CheckpointError: a file of weights is missing, damaged, or belongs to another network.
        ConfigError: `kind` is none of these, a library is missing, or there is no internet connection for the download.
    """
    name, file = parse(kind)
    if name == "inception":
        return _inception(file, on)
    return _imagenet(on) if name == "imagenet" else _faces(on)


def parse(kind: str) -> tuple[str, Path | None]:
    """Return the name and the file of a kind of features, see `load`; raise a ConfigError if there is no such kind."""
    name, colon, file = kind.partition(":")
    if name not in ("imagenet", "faces", "inception") or (colon and (name != "inception" or not file)):
        raise ConfigError("--features: expected imagenet, faces, inception or inception:FILE; got {!r}", kind)
    return name, Path(file).expanduser() if file else None


def measuring(on: torch.device, kind: str = "imagenet") -> Extractor:
    """Load the extractor for measuring quality, which gives features of a kind, see `load`, and damage.

    Raises:
        CheckpointError, ConfigError: as for `load`, and for the network that finds damage.
    """
    network = Damage().eval()
    checkpoint.load_weights(network, shipped(DAMAGE, "damage")["damage"], "damage", DAMAGE)
    network = device.place(network, on).requires_grad_(False)
    damage = Extractor(f"damage {_digest(DAMAGE)}", 1, lambda pixels: network.share(sized(pixels))[:, None], on)
    return dataclasses.replace(load(kind, on), damage=lambda pixels: damage(pixels)[:, 0])


def shipped(path: Path, *required: str) -> dict[str, Any]:
    """Read a file that comes with the program, and check that it has all required entries.

    Raises:
        CheckpointError: it is missing or damaged.
    """
    remedy = text("it comes with the program; git checkout -- checkpoints brings it back")
    if not path.is_file():
        raise CheckpointError("{}: no such file; {}", path, remedy)
    return checkpoint.load(path, required=required, instead=remedy)


def faces_encoder(on: torch.device) -> Encoder:
    """Load the frozen encoder that comes with the program, see `gan.encoder.Encoder`.

    Raises:
        CheckpointError: its file is missing or damaged.
    """
    encoder = Encoder()
    content = shipped(ENCODER, "encoder")
    checkpoint.load_weights(encoder, content["encoder"], "encoder", ENCODER)
    return device.place(fused(encoder.eval()), on).requires_grad_(False)


def _faces(on: torch.device) -> Extractor:
    encoder = faces_encoder(on)

    def network(pixels: Tensor) -> Tensor:
        return encoder(sized(pixels).contiguous(memory_format=device.layout(on)))

    return Extractor(f"faces {_digest(ENCODER)}", FEATURES, network, on)


def _imagenet(on: torch.device) -> Extractor:
    network = device.place(imagenet.load("lite2"), on)

    def look(pixels: Tensor) -> Tensor:
        maps = network.maps(sized(pixels).contiguous(memory_format=device.layout(on)))
        return torch.cat([seen.mean((2, 3)) for seen in maps[2:]], 1) / SIZE_OF_MEANS

    batch = NARROW_BATCH if on.type == "cpu" else BATCH
    return Extractor(network.name, sum(network.widths[2:]), look, on, batch)


def sized(pixels: Tensor) -> Tensor:
    """Convert pixels (N, H, W, C) uint8 to faces (N, 3, 96, 96) in [-1, 1]."""
    return resized(to_tensor(pixels.expand(-1, -1, -1, 3)))


def resized(faces: Tensor) -> Tensor:
    """Resize faces (N, C, S, S) to (N, C, 96, 96)."""
    if faces.shape[-1] == SIZE:
        return faces
    smooth = not (faces.requires_grad and faces.device.type == "mps")  # whose gradient came to MPS with torch 2.14
    return interpolate(faces, size=(SIZE, SIZE), mode="bilinear", antialias=smooth)


def _inception(path: Path | None, on: torch.device) -> Extractor:
    with needing("--features=inception"):
        from torch_fidelity.feature_extractor_inceptionv3 import FeatureExtractorInceptionV3
    if path is not None:
        try:  # the library would run code in the file
            checkpoint.unpickled(path, "cpu", text("expected the file from {}").format(INCEPTION))
        except OSError as error:
            raise CheckpointError("{}: cannot be opened, {}; download {}", path, why(error), INCEPTION) from error
    try:
        extractor = FeatureExtractorInceptionV3("inception", ["2048"], None if path is None else str(path))
    except (urllib.error.URLError, OSError) as error:
        raise ConfigError(
            "could not download Inception's weights ({}); fetch {} on another machine and give it with "
            "--features=inception:FILE, or measure offline with --features=faces{}",
            error,
            INCEPTION,
            downloads.proxy(),
        ) from error
    except (RuntimeError, TypeError, AttributeError, EOFError) as error:
        if path is None:
            raise ConfigError(
                "the download of Inception's weights is damaged ({}); delete it under {} and try again, or give a "
                "good one with --features=inception:FILE",
                error,
                torch.hub.get_dir(),
            ) from error
        raise CheckpointError("{}: holds another network; expected the file from {}", path, INCEPTION) from error
    extractor = extractor.to(on)
    name = f"inception {STANDARD if path is None else _digest(path)}"

    def network(pixels: Tensor) -> Tensor:
        return extractor(pixels.expand(-1, -1, -1, 3).permute(0, 3, 1, 2).contiguous())[0]

    return Extractor(name, 2048, network, on, batch=25)  # each is 299x299 pixels


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:8]


def of_pack(
    extractor: Extractor, pack: Pack, indices: np.ndarray, done: Callable[[int], object] = lambda n: None
) -> Tensor:
    """Return the features (N, F) of some faces of a pack, computed once and cached in a file in the pack's folder.

    `done` is called with the number of further faces whose features are known.
    """
    known = _kept(extractor, pack)
    missing = indices[np.isnan(known[indices]).any(1)]  # a row being written during a crash contains NaN
    done(len(indices) - len(missing))
    for start in range(0, len(missing), BATCH):
        some = missing[start : start + BATCH]
        known[some] = extractor(pack.pixels[some]).numpy()
        done(len(some))
    return torch.from_numpy(np.array(known[indices]))


def _kept(extractor: Extractor, pack: Pack) -> np.ndarray:
    """Return the cached features of a pack, (faces, F), NaN if unknown; in memory if no file can be written."""
    path = pack.folder / f"features-{extractor.name.replace(' ', '-')}.npy"
    shape = len(pack.pixels), extractor.width
    if pack.folder.is_dir():  # else it was deleted meanwhile; recreated, it would look like a pack
        with contextlib.suppress(OSError, ValueError, EOFError):  # the last two mean damage
            known = np.load(path, mmap_mode="r")  # "r+" would pad a truncated file with zeros
            if known.shape == shape and known.dtype == np.float32:
                return np.load(path, mmap_mode="r+")
        with contextlib.suppress(OSError):
            with replacing(path) as temporary, open(temporary, "wb") as file:
                np.save(file, np.broadcast_to(np.float32(np.nan), shape))  # without holding them all in memory
                file.flush()
                os.fsync(file.fileno())
            return np.load(path, mmap_mode="r+")
    return pack.unkept.setdefault(path.name, np.full(shape, np.nan, np.float32))
