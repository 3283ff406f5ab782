"""Generators in the layout of the Hugging Face hub: model.safetensors, config.json and a model card."""

import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from config import CheckpointError, ConfigError, ModelConfig, needing
from gan import downloads
from gan.files import replacing
from gan.language import why

WEIGHTS, CONFIG, CARD = "model.safetensors", "config.json", "README.md"


def write(folder: Path, weights: Mapping[str, torch.Tensor], described: Mapping[str, Any], card: str) -> bool:
    """Write a generator into a folder: its weights, its description, and its model card in Markdown.

    An existing card is not overwritten, since somebody may have completed it.

    Returns:
        Whether the folder's card names the digest of this generator.

    Raises:
        ConfigError: the package safetensors is missing, or the folder has other files.
        OSError: a file cannot be written.
    """
    with needing("--to=safetensors"):
        from safetensors.torch import save
    others = [path for path in folder.iterdir() if not path.name.startswith(".")] if folder.is_dir() else []
    if others and not (folder / WEIGHTS).is_file():
        raise ConfigError("--out: {} has other files; name a new folder, or one that export.py wrote", folder)
    content = {
        WEIGHTS: save({name: one.detach().cpu().contiguous() for name, one in weights.items()}),
        CONFIG: (json.dumps(described, indent=2) + "\n").encode(),
    }
    if not (folder / CARD).is_file():
        content[CARD] = f"{card}\n".encode()
    for name, some in content.items():
        with replacing(folder / name) as temporary:
            temporary.write_bytes(some)
    return str(described["digest"]) in (folder / CARD).read_text("utf-8", errors="replace")


def read(path: Path, on: torch.device) -> dict[str, Any]:
    """Read a generator written by `write`, as the content of a checkpoint without a discriminator.

    Args:
        path: its model.safetensors; config.json is in the same folder.
        on: the device for the weights.

    Raises:
        CheckpointError: a file is missing or damaged.
        ConfigError: the package safetensors is missing.
    """
    with needing(str(path)):
        from safetensors import SafetensorError
        from safetensors.torch import load_file
    try:
        described = json.loads(path.with_name(CONFIG).read_text("utf-8"))
        model = {name: tuple(v) if isinstance(v, list) else v for name, v in dict(described["model"]).items()}
        model["vocabulary"] = tuple(map(tuple, model.get("vocabulary", ())))
        content = {"config": {}, "images_seen": int(described["images_seen"]), "model": model}
        if model["vocabulary"]:
            coded = {name: np.array(described["classes"][name], np.int64) for name in ("rows", "counts")}
            content["classes"] = {name: torch.from_numpy(codes) for name, codes in coded.items()}
        content["ema"] = load_file(path, str(on))
    except OSError as error:
        raise CheckpointError("{}: cannot be opened, {}", error.filename or path, why(error)) from error
    except (SafetensorError, ArithmeticError, RecursionError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(
            "{}: it or its {} is damaged or not of this program ({}); take another copy of the folder",
            path,
            CONFIG,
            error,
        ) from error
    return content


def described(model: ModelConfig, images_seen: int, classes: Mapping[str, Any], digest: str) -> dict[str, Any]:
    """Return the content of config.json for a generator; `classes` come from `gan.classes.Classes.content`."""
    known = {name: {key: one.tolist() for key, one in counts.items()} for name, counts in classes.items()}
    return {
        "architectures": ["Generator"],
        "model": dataclasses.asdict(model),
        "images_seen": images_seen,
        "digest": digest,
        **known,
    }


def push(folder: Path, name: str, endpoint: str | None = None) -> str:
    """Upload a folder to the hub as the logged-in user; return its address.

    `endpoint` is the address of another hub.

    Raises:
        ConfigError: the package huggingface_hub is missing, nobody is logged in, or the hub refused.
    """
    with needing("--push"):
        from huggingface_hub import HfApi
        from huggingface_hub.errors import HfHubHTTPError, LocalTokenNotFoundError
    # The last two: the name is invalid, or the proxy is.
    failures = cast("tuple[type[Exception], ...]", (*HfHubHTTPError.__bases__, OSError, ValueError, ImportError))
    try:
        api = HfApi(endpoint)
        address = api.create_repo(name, exist_ok=True, token=os.environ.get("HF_TOKEN") or True)
        only, said = [WEIGHTS, CONFIG, CARD], "Upload a generator of small faces"
        api.upload_folder(repo_id=address.repo_id, folder_path=folder, allow_patterns=only, commit_message=said)
    except LocalTokenNotFoundError as error:
        raise ConfigError("--push: nobody is logged in to the hub; run hf auth login, or set HF_TOKEN") from error
    except failures as error:
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise ConfigError(
            "--push: the hub did not take {!r} ({}); the folder {} is whole{}", name, reason, folder, downloads.proxy()
        ) from error
    return str(address)
