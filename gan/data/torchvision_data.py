"""Torchvision datasets that are already on the disk, as data paths torchvision:NAME:FOLDER. Nothing is downloaded.

Every decoding process imports this module and must start fast, so torchvision, and with it torch, is imported only
when such a dataset is opened.
"""

import contextlib
import difflib
import functools
import inspect
import os
import tempfile
import warnings
from pathlib import Path
from typing import Any

from config import DataError
from gan.language import text

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
    name, _, root = str(data_path).removeprefix(PREFIX).partition(":")
    if not (name and root):
        raise DataError("{}: expected torchvision:NAME:FOLDER, such as torchvision:MNIST:FOLDER", data_path)
    folder = Path(os.path.expanduser(root))
    if not os.path.isdir(folder):
        raise DataError(
            "{}: {} is not a folder; give the one that torchvision calls the dataset's root", data_path, folder
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

    known: dict[str, Any] = dict(inspect.getmembers(torchvision.datasets, inspect.isclass))
    kinds = {n: kind for n, kind in known.items() if n not in NO_SETS}
    if name in ("ImageFolder", "DatasetFolder"):
        raise DataError("{}: class folders are read without torchvision: --data_path={}", data_path, root)
    if name not in kinds:
        near = difflib.get_close_matches(name, kinds, n=1, cutoff=0.4)
        meant = text("did you mean {}?").format(near[0]) if near else text("it has {}").format(", ".join(sorted(kinds)))
        raise DataError("{}: torchvision has no dataset {!r}; {}", data_path, name, meant)
    options: dict[str, Any] = {"download": False} if "download" in inspect.signature(kinds[name]).parameters else {}
    if name == "LSUN":  # by default it expects all scenes
        options["classes"] = sorted(path.name.removesuffix("_lmdb") for path in root.glob("*_train_lmdb"))
        if not options["classes"]:
            raise DataError(
                "{}: no folder in {} has the name of an LSUN scene, such as bedroom_train_lmdb", data_path, root
            )
    try:
        root = root.resolve()
        with contextlib.ExitStack() as stack:
            if name == "LSUN":  # torchvision caches its keys in the current folder, and trusts old caches
                empty = stack.enter_context(tempfile.TemporaryDirectory())
                stack.enter_context(warnings.catch_warnings())
                warnings.simplefilter("ignore", ResourceWarning)  # torchvision does not close the cache files
                stack.callback(os.chdir, Path.cwd())
                os.chdir(empty)
            dataset = kinds[name](str(root), **options)
        len(dataset)
        return dataset
    except ModuleNotFoundError as error:
        raise DataError(
            "{}: torchvision reads it with the package {}, which is not installed; pip install -r "
            "requirements-extra.txt, or pip install {}",
            data_path,
            error.name,
            error.name,
        ) from error
    except TypeError as error:
        raise DataError(
            "{}: torchvision.datasets.{} needs more than a folder, so it cannot be used; unpack its pictures into "
            "a folder",
            data_path,
            name,
        ) from error
    except Exception as error:  # datasets raise many different types if files are missing
        raise DataError(
            "{}: torchvision cannot open it ({}); expected the files of torchvision.datasets.{} in {}, downloaded "
            "and unpacked already",
            data_path,
            " ".join(str(error).split()),
            name,
            root,
        ) from error


def classes_of(data_path: Path) -> list[str] | None:
    """Return the class of each picture of a dataset, or None if it has no classes."""
    dataset = open_dataset(data_path)
    # It may have no classes or no targets, and targets need not be numbers.
    with contextlib.suppress(AttributeError, TypeError, ValueError, RuntimeError, IndexError):
        given = [dataset.classes[int(target)] for target in dataset.targets]
        if len(given) == len(dataset):
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
        raise ValueError(text("not a picture but {}").format(type(item).__name__))
    return item
