"""The files of folders and zips, and what of them is not read: one set of rules for training and `prepare.py`.

This module does not import torch: every process that reads pictures imports it and must start fast.
"""

from __future__ import annotations

import os
import re
import stat
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from config import RUNS
from gan.data.pictures import LARGEST_MEMBER, is_visible, reason, repaired, source


class Member(NamedTuple):
    """A file in a zip."""

    name: str
    called: str  # the name with its encoding repaired


class PassedOver(NamedTuple):
    """A file, folder or member of a zip that is not read."""

    name: str
    why: str
    unreadable: bool = False  # otherwise it is refused
    called: str = ""


def files_below(root: Path, links_out: bool, without: Sequence[Path] = ()) -> tuple[list[str], list[PassedOver]]:
    """List the visible files below a folder, at any depth, by their paths below it, in order.

    Args:
        root: the folder.
        links_out: follow links, also those that lead out of the folder, each target once. Otherwise links that lead out
            are passed over, and links to folders inside are ignored, since their targets are listed anyway.
        without: folders to leave out. The folder of runs always is: its preview grids are not faces.

    Raises:
        OSError: the folder cannot be read.
    """
    inside, left_out = Path(os.path.realpath(root)), (RUNS, *without)
    found, passed, seen = list[str](), list[PassedOver](), set[str]()

    def unreadable(error: OSError) -> None:
        if error.filename == str(root):
            raise error
        passed.append(PassedOver(Path(error.filename).relative_to(root).as_posix(), reason(error), True))

    for folder, subfolders, names in os.walk(root, onerror=unreadable, followlinks=True):
        real = os.path.realpath(folder)
        if real in seen:  # links can form cycles
            subfolders.clear()
            continue
        seen.add(real)
        below = Path(folder).relative_to(root)

        def stays(name: str, folder: str = folder, below: Path = below) -> bool:
            if links_out or Path(os.path.realpath(os.path.join(folder, name))).is_relative_to(inside):
                return True
            passed.append(PassedOver((below / name).as_posix(), "a link that leads out of the source"))
            return False

        subfolders[:] = [
            name
            for name in sorted(filter(is_visible, subfolders))
            if not any(same_file(path := os.path.join(folder, name), other) for other in left_out)
            and stays(name)
            and (links_out or not os.path.islink(path))
        ]
        found += [(below / name).as_posix() for name in filter(is_visible, names) if stays(name)]
    return sorted(found), passed


def members(path: Path, suffixes: tuple[str, ...]) -> tuple[list[Member], list[PassedOver], list[str]]:
    """List the visible files with one of the suffixes in a zip, in order; only its central directory is read.

    Returns the files, those that must not be read, and the names of the others.

    Raises:
        OSError, ValueError, ...: whatever `zipfile` raises for a broken zip.
    """
    source(path, "")  # rejects pipes, which would block forever
    with zipfile.ZipFile(path) as opened:
        infos = {info.filename: info for info in opened.infolist() if not info.is_dir()}
    found, passed, others = list[Member](), list[PassedOver](), list[str]()
    for name, info in sorted(infos.items()):  # names are unique
        called = name if info.flag_bits & 0x800 else repaired(name)  # unless the zip states the encoding
        parts = re.split(r"[/\\]", name)
        if not name.lower().endswith(suffixes) or not all(map(is_visible, parts)):
            others.append(name)
        elif why := _forbidden(info, parts):
            passed.append(PassedOver(name, why, called=called))
        else:
            found.append(Member(name, called))
    return found, passed, others


def _forbidden(info: zipfile.ZipInfo, parts: Sequence[str]) -> str:
    """Return the reason why a zip's member must not be read, or an empty string if it may be."""
    if ".." in parts or parts[0] == "" or re.match("[A-Za-z]:", parts[0]):
        return "its name leads out of the zip"
    if stat.S_ISLNK(info.external_attr >> 16):
        return "a link inside a zip"
    if info.flag_bits & 1:
        return "it has a password"
    if info.file_size > LARGEST_MEMBER or info.file_size > 200 * max(info.compress_size, 2**12):
        return f"it would unpack from {info.compress_size:,} to {info.file_size:,} bytes"
    return ""


def same_file(one: str | Path, other: str | Path) -> bool:
    """Return whether two paths lead to the same file or folder."""
    try:
        return os.path.samefile(one, other)
    except (OSError, ValueError):
        return os.path.realpath(one) == os.path.realpath(other)
