"""Reading of pictures from files and zips, in several processes.

This module does not import torch: every process that reads pictures imports it and must start fast.
"""

import collections
import contextlib
import functools
import importlib
import io
import itertools
import os
import pickle
import stat
import subprocess
import sys
import warnings
import zipfile
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, NoReturn, TypeVar

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError, features

from config import DataError
from gan.files import printable
from gan.language import text, why

AVIF = "avif" in features.modules and features.check("avif")  # check() alone would warn in an older Pillow
with contextlib.suppress(Exception):  # it is not installed, or not for this computer
    importlib.import_module("pillow_heif").register_heif_opener()
HEIC = "HEIF" in Image.OPEN
SUFFIXES = (
    *(".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".tga", ".ico"),
    *(".jp2", *((".avif",) if AVIF else ()), *((".heic", ".heif", ".hif") if HEIC else ())),
)
# Formats that a picture may have. Not all that Pillow supports: an EPS, for example, starts another program.
FORMATS = (
    *("JPEG", "PNG", "WEBP", "BMP", "DIB", "GIF", "TIFF", "PPM", "JPEG2000", "ICO"),
    *(*(("AVIF",) if AVIF else ()), *(("HEIF",) if HEIC else ()), "TGA"),  # TGA last: it has no mark of its own
)
# Folders that macOS, Windows, Linux and the disks of a network (NAS) add for themselves.
SYSTEM = frozenset(
    "__macosx @eadir @tmp @recycle @recently-snapshot #recycle #snapshot $recycle.bin recycler lost+found".split()
) | {"system volume information", "found.000"}
CHUNK = 32  # number of pictures that a worker processes at a time
FEW = 256  # fewer pictures are decoded in this process, because starting workers would take longer
LARGEST_MEMBER = 256 * 2**20  # maximum size of a file in bytes, after unpacking
ENOUGH = 4096  # pixels of the longer side of a picture in which a face is to be found
ORIENTATION = 0x0112  # the tag of EXIF that says how a picture is to be turned

T = TypeVar("T")


def is_visible(name: str) -> bool:
    """Return whether a component of a path is neither hidden nor a folder of the system."""
    return name in (".", "..") or (not name.startswith(".") and name.casefold() not in SYSTEM)


def reason(error: Exception) -> str:
    """Return the reason why a picture cannot be read, in words."""
    if isinstance(error, UnidentifiedImageError):  # its own message has the address of an object
        return text("not a picture of a known format")
    if isinstance(error, zipfile.BadZipFile):
        return text("{}: damaged or incomplete, download it again").format(error)
    return " ".join(why(error).split())


def repaired(name: str) -> str:
    """Return the name of a zip's member with its encoding repaired, which macOS and Chinese Windows may leave out."""
    for encoding in ("utf-8", "gb2312"):  # not GBK, as which western names could be misread
        with contextlib.suppress(UnicodeError):
            return name.encode("cp437").decode(encoding)
    return name


_zip = functools.lru_cache(maxsize=1)(zipfile.ZipFile)


def source(path: Path, member: str) -> Path | io.BytesIO:
    """Return the file of a picture, or the bytes of a zip's member.

    Raises:
        OSError, ValueError: it is not a regular file, or a member is too large or compressed by an unsupported method.
    """
    if not member:
        if not stat.S_ISREG(os.stat(path).st_mode):  # reading a pipe would block forever
            raise OSError(text("not a regular file, or a folder that cannot be read"))
        return path
    info = _zip(path).getinfo(member)
    if info.file_size > LARGEST_MEMBER:
        told = text("{:,.0f} MB unpacked; at most {:,.0f} are read")
        raise ValueError(told.format(info.file_size / 1e6, LARGEST_MEMBER / 1e6))
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(text("compressed by an unsupported method; zip it again"))
    with _zip(path).open(info) as member_file:  # at most the stated size, even if it is wrong
        return io.BytesIO(member_file.read(info.file_size))


def opens(file: Path | IO[bytes]) -> bool:
    """Return whether a file is a picture of a known format, without decoding it; one that is too large is, too."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            Image.open(file, formats=FORMATS).close()
        except Exception as error:
            return isinstance(error, Image.DecompressionBombError)  # and will be rejected with that reason
    return True


def upright(image: Image.Image) -> Image.Image:
    """Return a picture's first frame, decoded, rotated according to its EXIF, with 8 bits, on white if transparent.

    Raises:
        OSError, ValueError, ...: whatever Pillow raises for a broken file.
    """
    image.load()
    with contextlib.suppress(Exception):  # it may fail to write the EXIF anew, after turning
        ImageOps.exif_transpose(image, in_place=True)
    image.info.pop("exif", None)  # or it would be turned once more
    if image.mode.startswith("I"):  # 16 bits, which convert() would clip
        image = _grey(np.asarray(image, np.float32) / 257)
    elif image.mode == "F":
        values = np.nan_to_num(np.asarray(image))
        image = _grey(values * 255 if values.max() <= 1 else values)
    elif image.has_transparency_data:
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image.convert("RGBA"))
    return image


def whole(path: Path) -> Image.Image:
    """Return a picture, upright and in RGB.

    Raises:
        DataError: it cannot be read.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        try:
            with Image.open(source(path, ""), formats=FORMATS) as image:
                image.draft("RGB", (ENOUGH, ENOUGH))  # decodes a large JPEG faster, at a fraction of its size
                return upright(image).convert("RGB")
        except Exception as error:
            raise DataError(
                "{}: cannot be read as a picture ({}); give another one", printable(str(path)), reason(error)
            ) from error


def tile(path: Path, size: int) -> np.ndarray:
    """Return a picture within a white square (size, size, 3) uint8, which is empty if it cannot be read."""
    square = np.full((size, size, 3), 255, np.uint8)
    with contextlib.suppress(Exception), Image.open(path, formats=FORMATS) as image:
        image.draft("RGB", (2 * size, 2 * size))
        small = upright(image).convert("RGB")
        small.thumbnail((size, size))
        square[: small.height, : small.width] = np.asarray(small)
    return square


def orientation(image: Image.Image) -> int:
    """Return how a picture is to be turned, 1 to 8 as in EXIF; 1 is not at all, also if its EXIF is broken."""
    with contextlib.suppress(Exception):
        return int(image.getexif().get(ORIENTATION, 1))
    return 1


def _grey(values: np.ndarray) -> Image.Image:
    return Image.fromarray(np.rint(values.clip(0, 255)).astype(np.uint8))


def square(size: tuple[int, int]) -> tuple[int, int, int, int]:
    """Return left, top, right, bottom of the largest centred square of a picture."""
    side = min(size)
    left, top = ((length - side) // 2 for length in size)
    return left, top, left + side, top + side


def in_processes(function: Callable[..., T], work: Sequence[tuple[Any, ...]], workers: int) -> Generator[T, None, None]:
    """Call a function with each of the arguments in `work`, `CHUNK` pictures each, and yield the results in order.

    The function runs in `workers` processes, which import its module, so the module must load fast. A few pictures are
    processed in this process instead. Close the generator, even after an error, to end its processes; they also end
    when this process does, however it ends.

    Raises:
        DataError: a worker process died.
    """

    def here() -> Generator[T, None, None]:
        try:
            yield from itertools.starmap(function, work)
        finally:
            _zip.cache_clear()

    workers = min(workers, len(work))
    if workers < 2 or len(work) * CHUNK < FEW:
        yield from here()
        return
    waiting: collections.deque[Future[T]] = collections.deque()
    processes, ready = list[subprocess.Popen[Any]](), list[tuple[ThreadPoolExecutor, subprocess.Popen[Any]]]()

    def end() -> None:
        for process in processes:
            _end(process)

    with contextlib.ExitStack() as stack:
        stack.callback(end)  # also if Ctrl-C comes while they start
        with contextlib.suppress(OSError, RuntimeError):  # a limit on processes and threads: fewer do as well
            for _ in range(workers):
                processes.append(_start())
                thread = stack.enter_context(ThreadPoolExecutor(1))  # it waits for the process's answers
                thread.submit(int)  # starts it now
                ready.append((thread, processes[-1]))
        stack.callback(end)  # before the threads' end, so that none waits for a process
        if not ready:
            yield from here()
            return
        for arguments, (thread, process) in zip(work, itertools.cycle(ready), strict=False):
            waiting.append(thread.submit(_ask, process, function, arguments))
            if len(waiting) == 2 * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _start() -> subprocess.Popen[Any]:
    """Start a worker process, without multiprocessing, which would import the main module and with it torch."""
    code = f"import sys; sys.path[:] = {sys.path!r}; from gan.data import pictures; pictures.serve()"
    apart: dict[str, Any] = {"start_new_session": True}  # so that Ctrl-C does not reach it
    if sys.platform == "win32":
        apart = {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
    one = {"OPENBLAS_NUM_THREADS": "1", "OPENCV_FOR_THREADS_NUM": "1"}  # there is a process for each core
    return subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **one}, **apart
    )


def _ask(process: subprocess.Popen[Any], function: Callable[..., T], arguments: tuple[Any, ...]) -> T:
    """Have a worker call a function, and return its result or raise its exception."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        pickle.dump((function, arguments), process.stdin)
        process.stdin.flush()
        answer = pickle.load(process.stdout)
    except (EOFError, OSError, pickle.UnpicklingError) as ended:
        raise DataError(
            "a process that reads pictures died, perhaps out of memory; close other programs; in training, "
            "lower --num_workers"
        ) from ended
    if isinstance(answer, Exception):
        raise answer
    return answer


def _end(process: subprocess.Popen[Any]) -> None:
    with contextlib.suppress(OSError), process:  # it may have died already
        process.kill()


def serve() -> NoReturn:
    """Run a worker: call the functions that arrive on standard input until it closes."""
    with contextlib.suppress(EOFError, OSError):
        while True:
            function, arguments = pickle.load(sys.stdin.buffer)
            try:
                answer = function(*arguments)
            except Exception as error:
                answer = error
            pickle.dump(answer, sys.stdout.buffer)
            sys.stdout.flush()
    os._exit(0)  # skips the error message about closed pipes
