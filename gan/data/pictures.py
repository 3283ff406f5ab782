"""Pictures as they come, from files and zips: what they may be, how they are read, and by how many processes.

Imports no torch: every process that reads pictures imports this module and must start fast.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import io
import itertools
import multiprocessing
import os
import signal
import stat
import sys
import threading
import types
import zipfile
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError, features

from gan.files import printable

AVIF = "avif" in features.modules and features.check("avif")  # asking an older Pillow for it would warn
SUFFIXES = (".jpg", ".jpeg", ".jfif", ".png", ".webp", ".bmp", ".gif") + ((".avif",) if AVIF else ())
# What may stand behind such a name. Not all that Pillow knows: for an EPS, say, it starts another program.
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "DIB", "GIF", "TIFF") + (("AVIF",) if AVIF else ())
CHUNK = 32  # pictures a worker takes at a time
FEW = 256  # fewer pictures are decoded sooner than workers start
LARGEST_MEMBER = 256 * 2**20  # bytes, unpacked

T = TypeVar("T")


def is_visible(name: str) -> bool:
    """Whether a part of a path counts: not hidden, and not what macOS puts into zips."""
    return name in (".", "..") or (not name.startswith(".") and name != "__MACOSX")


def rejection(name: str, error: Exception) -> str:
    """A line of rejected.txt: a file's name, a tab, and why it is left out."""
    return f"{printable(name)}\t{reason(error)}"


def reason(error: Exception) -> str:
    """Why a picture cannot be read, in words."""
    if isinstance(error, UnidentifiedImageError):  # whose own words show the address of an object
        return "not a picture of a known format"
    return " ".join((getattr(error, "strerror", None) or str(error) or type(error).__name__).split())


_zip = functools.lru_cache(maxsize=1)(zipfile.ZipFile)


def source(path: Path, member: str) -> Path | io.BytesIO:
    """What to read a picture from: the file, or if that is a zip the bytes of its member.

    Raises:
        OSError, ValueError: it is no ordinary file, or too large unpacked.
    """
    if not member:
        if not stat.S_ISREG(os.stat(path).st_mode):  # reading a pipe would wait for ever
            raise OSError("no ordinary file, or a folder that cannot be read")
        return path
    info = _zip(path).getinfo(member)
    if info.file_size > LARGEST_MEMBER:
        raise ValueError(f"{info.file_size / 1e6:,.0f} MB unpacked; at most {LARGEST_MEMBER / 1e6:,.0f} are read")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError("packed in a way that can unpack to anything; zip it anew")
    with _zip(path).open(info) as member_file:  # no more than it says, also where that is a lie
        return io.BytesIO(member_file.read(info.file_size))


def upright(image: Image.Image) -> Image.Image:
    """A picture's first frame, decoded, turned as its EXIF says, of 8 bits, on white where it is transparent.

    Raises:
        OSError, ValueError, ...: whatever Pillow does for a broken file.
    """
    image.load()  # not below, where its errors would be suppressed
    with contextlib.suppress(Exception):  # garbage in place of EXIF says nothing about the pixels
        image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I"):  # 16 bits, which convert() would clip
        image = _grey(np.asarray(image, np.float32) / 257)
    elif image.mode == "F":
        values = np.nan_to_num(np.asarray(image))
        image = _grey(values * 255 if values.max() <= 1 else values)
    elif image.has_transparency_data:
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image.convert("RGBA"))
    return image


def _grey(values: np.ndarray) -> Image.Image:
    return Image.fromarray(np.rint(values.clip(0, 255)).astype(np.uint8))


def in_processes(function: Callable[..., T], work: Sequence[tuple[Any, ...]], workers: int) -> Generator[T, None, None]:
    """The results of a module's function for each of its arguments in `work`, in order.

    Close it, also after an error: the processes end with it, and with this process, however that ends.

    Args:
        function: of a module that starts fast.
        work: arguments, of `CHUNK` pictures each.
        workers: processes; few pictures are done in this one.

    Raises:
        BrokenProcessPool: one of them died.
    """
    workers = min(workers, len(work), 61)  # more are impossible on Windows
    if workers < 2 or len(work) * CHUNK < FEW:
        try:
            yield from itertools.starmap(function, work)
        finally:
            _zip.cache_clear()
        return
    context = multiprocessing.get_context("spawn")
    stopped, stop = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(workers, context, _start_worker, (stopped,))
    waiting = collections.deque()
    try:
        for arguments in work:
            with _spawning():
                waiting.append(pool.submit(function, *arguments))
            if len(waiting) == 4 * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
        pool.shutdown()
    finally:
        stop.close()
        pool.shutdown(cancel_futures=True)


@contextlib.contextmanager
def _spawning() -> Iterator[None]:
    """Hide the main module, which a process spawned meanwhile would import, and torch with it, for nothing.

    And hold Ctrl-C back: here until the process has been told what it is, and there, where the mask is inherited, until
    `_start_worker`. Either would show a second traceback. Here the mask alone does not do: another thread, such as one
    of numpy's, takes the signal, and Python interrupts the main one all the same.
    """
    main = sys.modules["__main__"]
    held: list[int] = []
    handler = signal.getsignal(signal.SIGINT)
    holds = handler is not None and threading.current_thread() is threading.main_thread()
    if holds:
        signal.signal(signal.SIGINT, lambda number, frame: held.append(number))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT]) if hasattr(signal, "pthread_sigmask") else None
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
        if before is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if holds:
            signal.signal(signal.SIGINT, handler)
            if held:
                signal.raise_signal(signal.SIGINT)


def _start_worker(stopped: Connection) -> None:
    """Make a worker end when, and only when, the packing process closes its end of the pipe or dies."""

    def wait() -> None:
        with contextlib.suppress(EOFError, OSError):
            stopped.recv()
        os._exit(1)

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches workers too, but is not theirs to answer
    threading.Thread(target=wait, daemon=True).start()
