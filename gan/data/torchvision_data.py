"""Torchvision datasets that are already on the disk, as data paths torchvision:NAME:FOLDER. Nothing is downloaded.

Every decoding process imports this module and must start fast, so torchvision, and with it torch, is imported only
when such a dataset is opened.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import inspect
import os
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from config import DataError

PREFIX = "torchvision:"
NO_SETS = frozenset({"FakeData", "VisionDataset", "LSUNClass"})


def is_dataset(data_path: Path) -> bool:
    """Return whether a data path names a torchvision dataset."""
    return str(data_path).startswith(PREFIX)


def split(data_path: Path) -> tuple[str, Path]:
    """Return the dataset's name in torchvision and its folder, called `root` in torchvision's documentation.

    Raises:
        DataError: the path is not of the form torchvision:NAME:FOLDER, or there is no such folder.
    """
    _, _, rest = str(data_path).partition(":")
    name, colon, root = rest.partition(":")
    if not (name and colon and root):
        raise DataError(f"{data_path}: expected torchvision:NAME:FOLDER, such as torchvision:MNIST:FOLDER")
    folder = Path(os.path.expanduser(root))
    if not os.path.isdir(folder):
        raise DataError(
            f"{data_path}: {folder} is not a folder; give the one that torchvision calls the dataset's root"
        )
    return name, folder


@functools.lru_cache(maxsize=1)
def open_dataset(data_path: Path) -> Any:
    """Open a dataset, by default its training split: a sequence of pictures, or of tuples that begin with a picture.

    Raises:
        DataError: torchvision does not have the dataset, needs more than a folder, or does not find the files.
    """
    name, root = split(data_path)
    import torchvision.datasets

    named = {n: getattr(torchvision.datasets, n) for n in torchvision.datasets.__all__ if n not in NO_SETS}
    kinds = {n: kind for n, kind in named.items() if isinstance(kind, type)}
    if name in ("ImageFolder", "DatasetFolder"):
        raise DataError(f"{data_path}: class folders are read without torchvision: --data_path={root}")
    if name not in kinds:
        near = difflib.get_close_matches(name, kinds, n=1, cutoff=0.4)
        meant = f"did you mean {near[0]}?" if near else f"it has {', '.join(sorted(kinds))}"
        raise DataError(f"{data_path}: torchvision has no dataset {name!r}; {meant}")
    options: dict[str, Any] = {"download": False} if "download" in inspect.signature(kinds[name]).parameters else {}
    if name == "LSUN":  # by default it expects all scenes
        options["classes"] = sorted(path.name.removesuffix("_lmdb") for path in root.glob("*_train_lmdb"))
        if not options["classes"]:
            raise DataError(
                f"{data_path}: no folder in {root} has the name of an LSUN scene, such as bedroom_train_lmdb"
            )
    try:
        root = root.resolve()
        with _elsewhere() if name == "LSUN" else contextlib.nullcontext():
            dataset = kinds[name](str(root), **options)
        len(dataset)
        return dataset
    except ModuleNotFoundError as error:
        raise DataError(
            f"{data_path}: torchvision reads it with the package {error.name}, which is not installed; "
            f"pip install -r requirements-extra.txt, or pip install {error.name}"
        ) from error
    except Exception as error:  # datasets raise many different types if files are missing
        raise DataError(
            f"{data_path}: torchvision cannot open it ({' '.join(str(error).split())}); expected the files of "
            f"torchvision.datasets.{name} in {root}, downloaded and unpacked already"
        ) from error


@contextlib.contextmanager
def _elsewhere() -> Iterator[None]:
    """Work in an empty folder, because torchvision caches LSUN's keys in the current one and trusts old caches."""
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # torchvision does not close the cache files
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(here)


def classes_of(data_path: Path) -> list[str] | None:
    """Return the class of each picture of a dataset, or None if it has no classes."""
    dataset = open_dataset(data_path)
    names, targets = getattr(dataset, "classes", None), getattr(dataset, "targets", None)
    if names is None or targets is None or len(targets) != len(dataset):
        return None
    with contextlib.suppress(TypeError, ValueError, RuntimeError, IndexError):  # targets need not be numbers
        given = [names[int(target)] for target in targets]
        return [str(name[0] if isinstance(name, (tuple, list)) else name) for name in given]
    return None


def picture(data_path: Path, index: int) -> Any:
    """Return the picture at `index` of a dataset.

    Raises:
        ValueError: the item is not a picture.
    """
    item = open_dataset(data_path)[index]
    item = item[0] if isinstance(item, tuple) else item
    if not hasattr(item, "convert"):
        raise ValueError(f"not a picture but {type(item).__name__}")
    return item
