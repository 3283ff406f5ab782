"""Weights saved by the book's program, netg_200.pth and netd_200.pth: raw state dicts, of both its editions.

The files do not describe their networks, so the options are inferred from the shapes of the weights. The first
edition's discriminator ends in a sigmoid, which has no weights: logits and the ranking of faces are the same without.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from config import IMAGE_SIZES, SIZES, CheckpointError
from gan import checkpoint
from gan.language import text, why

Weights = dict[str, Tensor]
EXPECTED = "expected weights that the book's program saved, such as"


def read(path: Path, example: str) -> tuple[Weights, list[Tensor]]:
    """Read a state dict with the book's names, `main.0.weight`, ..., in the old or the new format of torch.save.

    Also returns the weights of its convolutions, in order.

    Raises:
        CheckpointError: the file is missing, damaged, or something else. No code in it is run.
    """
    try:
        content = checkpoint.unpickled(path, "cpu", f"{text(EXPECTED)} {example}")
    except FileNotFoundError as error:
        raise CheckpointError(
            "{}: there is no such file; where to download the book's weights: docs/from-the-book.md", path
        ) from error
    except OSError as error:
        raise CheckpointError("{}: {}; {} {}", path, why(error), text(EXPECTED), example) from error
    if isinstance(content, dict) and content.get("program"):
        raise CheckpointError(
            "{}: a checkpoint of this program; give it with --checkpoint, or --init to train on", path
        )
    if not isinstance(content, dict) or not all(isinstance(w, Tensor) for w in content.values()):
        raise CheckpointError("{}: not a plain state dict; {} {}", path, text(EXPECTED), example)
    weights = {str(name).removeprefix("module."): weight for name, weight in content.items()}  # DataParallel adds it
    if "main.0.weight" not in weights:
        names = ", ".join(list(weights)[:3]) or text("nothing")
        raise CheckpointError("{}: holds {}, not main.0.weight, ...; {} {}", path, names, text(EXPECTED), example)
    for name in [name for name in weights if name.endswith(".running_mean")]:  # torch before 0.4.1 counted no batches
        weights.setdefault(name.replace("running_mean", "num_batches_tracked"), torch.tensor(0))
    kernels = [weight for weight in weights.values() if weight.dim() == 4]
    if len(kernels) < 2:
        raise CheckpointError(
            "{}: {} convolutions, too few; {} netg_200.pth or netd_200.pth", path, len(kernels), text(EXPECTED)
        )
    return weights, kernels


def networks(netg_path: Path | None, netd_path: Path | None) -> tuple[dict[str, Any], Weights | None, Weights | None]:
    """Read the weights of the generator, the discriminator or both, and infer their networks' options.

    Returns:
        The fields of `ModelConfig` that the files determine, the generator's weights, and the discriminator's weights.

    Raises:
        CheckpointError: a file cannot be used, or the two do not belong together.
    """
    found: dict[str, Any] = {"arch": "book"}
    generator = discriminator = None
    if netg_path is not None:
        generator, kernels = read(netg_path, "netg_200.pth")
        if (made := kernels[-1].shape[1]) not in (1, 3):
            raise CheckpointError(
                "{}: not a generator, its last layer has {} channels instead of 3 or 1; is it the discriminator, "
                "for --netd_path?",
                netg_path,
                made,
            )
        found |= {"nz": kernels[0].shape[0], "ngf": kernels[-1].shape[0], "channels": kernels[-1].shape[1]}
        found |= {"image_size": _image_size(kernels, kernels[-1], netg_path)}
        _check_widths([kernel.shape[0] for kernel in kernels[1:]], netg_path)
    if netd_path is not None:
        discriminator, kernels = read(netd_path, "netd_200.pth")
        if kernels[0].shape[1] not in (1, 3) or kernels[-1].shape[0] != 1:
            raise CheckpointError(
                "{}: not a discriminator, it does not map a face to one number; is it the generator, for --netg_path?",
                netd_path,
            )
        normed = any(name.endswith("running_mean") for name in discriminator)
        own = {"channels": kernels[0].shape[1], "image_size": _image_size(kernels, kernels[0], netd_path)}
        _check_widths([kernel.shape[0] for kernel in reversed(kernels[:-1])], netd_path)
        for name, value in own.items():
            if found.get(name, value) != value:
                raise CheckpointError(
                    "{}: does not belong to {}: {} {} there and {} here; give the two files of one training",
                    netd_path,
                    netg_path,
                    name,
                    value,
                    found[name],
                )
        found |= {**own, "ndf": kernels[0].shape[0], "d_norm": "batch" if normed else "none"}
    return found, generator, discriminator


def _check_widths(widths: list[int], path: Path) -> None:
    """Raise a CheckpointError unless the channels, coarse to fine, are the book's: halved from map to map."""
    expected = [widths[-1] * min(8, 2**i) for i in reversed(range(len(widths)))]
    if widths != expected:
        raise CheckpointError(
            "{}: its maps have {} channels; expected those of the book's program, {}",
            path,
            ", ".join(map(str, widths)),
            ", ".join(map(str, expected)),
        )


def _image_size(kernels: list[Tensor], at_full_size: Tensor, path: Path) -> int:
    """Return the size of the faces: 4 pixels, doubled by each convolution in between, times the last step's factor."""
    factor = 3 if at_full_size.shape[-1] == 5 else 2
    size = 4 * 2 ** (len(kernels) - 2) * factor
    if size not in IMAGE_SIZES:
        raise CheckpointError(
            "{}: {} convolutions make faces of {} pixels; expected one of {}", path, len(kernels), size, SIZES
        )
    return size
