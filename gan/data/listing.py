"""The files of folders and zips, and what of them is not read: one set of rules for training and `prepare.py`.

This module does not import torch: every process that reads pictures imports it and must start fast.
"""

import contextlib
import functools
import os
import re
import stat
import zipfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from config import RUNS
from gan.data.pictures import LARGEST_MEMBER, SUFFIXES, is_visible, opens, reason, repaired, source
from gan.files import printable
from gan.language import text, why

# What may hold faces and is not read, by the ends of names, and what to do about it.
UNREAD = {
    suffix: why
    for why, suffixes in {
        "an archive: unpack it first": ".tar .gz .tgz .bz2 .tbz .xz .txz .zst .7z .rar .001 .z01",
        "an unfinished download: finish it, or delete it": ".part .partial .crdownload .download .downloading .aria2 "
        ".opdownload .xltd .!qb .!ut",
        "unknown to this Pillow: pip install pillow-heif": ".heic .heif .hif .avif",
        "not pictures in files of their own: save them as such": ".parquet .arrow .feather .tfrecord .tfrecords .h5 "
        ".hdf5 .lmdb .mdb .npy .npz .mat .pkl .pickle .rec",
        "a film: save pictures of it": ".mp4 .m4v .mkv .webm .avi .mov .wmv .flv",
        "not read: save it as PNG": ".jxl .psd .clip .kra .xcf .svg .eps .pdf .ai .dng .cr2 .cr3 .nef .arw .raf",
    }.items()
    for suffix in suffixes.split()
    if suffix not in SUFFIXES
}
LEADS_OUT = (
    "a link that leads out of the source, as in a Hugging Face cache or DVC folder: name the folder where the files "
    "are, or a copy of this one with the files themselves (cp -rL)"
)
OTHERS = (".txt", ".caption", ".csv", ".json", ".jsonl", ".xml", ".yaml", ".html", ".md", ".py")  # not looked into


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
            passed.append(PassedOver((below / name).as_posix(), text(LEADS_OUT)))
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


def suffix_of(name: str) -> str:
    """Return how a file's name ends, in small letters, such as .png; empty if it has no dot."""
    return os.path.splitext(name)[1].lower()


def why_unread(name: str) -> str:
    """Return why a file that may hold faces is not read, and what to do; empty if it is read, or something else."""
    why = UNREAD.get(suffix_of(name), "")
    return text(why) if why else ""


def why_closed(error: OSError) -> str:
    """Return why a source cannot be opened, in words that go on after its name."""
    if isinstance(error, FileNotFoundError):
        return text("does not exist")
    return text("cannot be read: {}").format(why(error))


def is_picture(name: str, opened: Callable[[], Path | IO[bytes]]) -> bool:
    """Return whether a file is a picture, by its name; where that does not tell, `opened` is looked into."""
    suffix = suffix_of(name)
    if suffix in (*SUFFIXES, *OTHERS, ".zip") or suffix in UNREAD:
        return suffix in SUFFIXES
    with contextlib.suppress(Exception):
        return opens(opened())
    return False


def sifted(root: Path, names: Iterable[str]) -> tuple[list[str], list[str]]:
    """Sort files below a folder into those to read or to reject with a reason, and others, which hold no faces."""
    to_read, others = list[str](), list[str]()
    for name in names:
        known = name.lower().endswith(".zip") or why_unread(name)
        opened = functools.partial(source, root / name, "")
        (to_read if known or is_picture(name, opened) else others).append(name)
    if any(not suffix_of(name) for name in to_read):  # in a Hugging Face cache, links give such files their names
        targets = {os.path.realpath(root / name) for name in to_read if os.path.islink(root / name)}
        to_read = [
            name
            for name in to_read
            if suffix_of(name) or os.path.islink(root / name) or os.path.realpath(root / name) not in targets
        ]
    return to_read, others


def told(passed: Iterable[tuple[str, str]]) -> str:
    """Tell what was not read, from names and reasons: of the three most frequent reasons a name, and their number."""
    by_reason = dict[str, list[str]]()
    for name, cause in passed:
        by_reason.setdefault(cause, []).append(printable(name))
    most = sorted(by_reason.items(), key=lambda of: -len(of[1]))
    one, some = text("{} ({})"), text("{} and {:,} more ({})")
    tell = [
        one.format(names[0], cause) if len(names) == 1 else some.format(names[0], len(names) - 1, cause)
        for cause, names in most[:3]
    ]
    return text("; ").join([*tell, *(["..."] if most[3:] else [])])


def members(path: Path) -> tuple[list[Member], list[PassedOver], list[str]]:
    """List the visible pictures in a zip, in order; little but its central directory is read.

    Returns the pictures, what must not or cannot be read, and the names of the others.

    Raises:
        OSError, ValueError, ...: whatever `zipfile` raises for a broken zip.
    """
    source(path, "")  # rejects pipes, which would block forever
    found, passed, others = list[Member](), list[PassedOver](), list[str]()
    with zipfile.ZipFile(path) as opened:
        infos = {info.filename: info for info in opened.infolist() if not info.is_dir()}
        for name, info in sorted(infos.items()):  # names are unique
            called = name if info.flag_bits & 0x800 else repaired(name)  # unless the zip states the encoding
            parts = re.split(r"[/\\]", name)
            forbidden = _forbidden(info, parts)
            zipped = name.lower().endswith(".zip")
            unread = text("a zip in a zip: unpack the outer one") if zipped else why_unread(name)
            if not all(map(is_visible, parts)):
                others.append(name)
            elif unread:
                passed.append(PassedOver(name, unread, True, called=called))
            elif forbidden and not name.lower().endswith(OTHERS):
                passed.append(PassedOver(name, forbidden, called=called))
            elif not forbidden and is_picture(name, lambda info=info: opened.open(info)):
                found.append(Member(name, called))
            else:
                others.append(name)
    return found, passed, others


def _forbidden(info: zipfile.ZipInfo, parts: Sequence[str]) -> str:
    """Return the reason why a zip's member must not be read, or an empty string if it may be."""
    if ".." in parts or parts[0] == "" or re.match("[A-Za-z]:", parts[0]):
        return text("its name leads out of the zip")
    if stat.S_ISLNK(info.external_attr >> 16):
        return text("a link inside a zip")
    if info.flag_bits & 1:
        return text("it has a password: unpack it first")
    if info.file_size > LARGEST_MEMBER or info.file_size > 200 * max(info.compress_size, 2**12):
        return text("it would unpack from {:,} to {:,} bytes").format(info.compress_size, info.file_size)
    return ""


def same_file(one: str | Path, other: str | Path) -> bool:
    """Return whether two paths lead to the same file or folder."""
    try:
        return os.path.samefile(one, other)
    except (OSError, ValueError):
        return os.path.realpath(one) == os.path.realpath(other)
