"""The only place that knows how [-1, 1] and uint8 belong together; grids and picture files."""

from __future__ import annotations

import math
import os
import zlib
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

WAITING = 256
"""Pictures that wait to be written at most."""


def to_tensor(pixels: Tensor) -> Tensor:
    """uint8 pixels (N, H, W, C) -> images (N, C, H, W) in [-1, 1], float32, channels-last in memory."""
    return pixels.permute(0, 3, 1, 2).float().div_(127.5).sub_(1.0)


def to_pixels(images: Tensor) -> np.ndarray:
    """Images (N, C, H, W) in [-1, 1] -> uint8 pixels (N, H, W, C), rounded, on the CPU."""
    scaled = images.detach().float().add(1.0).mul_(127.5).round_().clamp_(0, 255)
    return scaled.to(torch.uint8).permute(0, 2, 3, 1).cpu().contiguous().numpy()


def grid(pixels: np.ndarray, columns: int | None = None, gap: int = 2) -> np.ndarray:
    """Lay pictures out in rows on white.

    Args:
        pixels: (N, H, W, C) uint8, colour or grey.
        columns: pictures a row; by default as square as it gets.
        gap: white pixels around each.

    Returns:
        One picture (rows * (H + gap) + gap, columns * (W + gap) + gap, 3), uint8.
    """
    n, height, width, _ = pixels.shape
    columns = columns or math.ceil(math.sqrt(n))
    rows = math.ceil(n / columns)
    sheet = np.full((rows * (height + gap) + gap, columns * (width + gap) + gap, 3), 255, np.uint8)
    for i, picture in enumerate(pixels):
        top, left = (i // columns) * (height + gap) + gap, (i % columns) * (width + gap) + gap
        sheet[top : top + height, left : left + width] = picture
    return sheet


def save_picture(pixels: np.ndarray, path: Path) -> None:
    """Write one picture (H, W, C) uint8, colour or grey, in the format of the path's suffix; never half a file.

    Raises:
        OSError: the folder cannot be made or the file not written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    _write(pixels, path)


def _write(pixels: np.ndarray, path: Path) -> None:
    """`save_picture` into a folder that exists."""
    temporary = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    picture = Image.fromarray(pixels if pixels.shape[-1] == 3 else pixels[..., 0])
    try:
        # Of PNG's ways the quickest that compresses: long repetitions are rare in faces, and searched for in vain.
        picture.save(temporary, compress_level=1, compress_type=zlib.Z_RLE)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


class PictureWriter:
    """Writes pictures while the caller goes on, a thread a core; memory does not grow with their number.

    As a context: at its end all are written. An `OSError` of one of them comes from a later `save` or from the end.
    """

    def __init__(self) -> None:
        self.threads = ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="pictures")
        self.waiting: deque[Future[None]] = deque()
        self.folder: Path | None = None

    def __enter__(self) -> PictureWriter:
        return self

    def save(self, pixels: np.ndarray, path: Path) -> None:
        """Write one, see `save_picture`; soon."""
        if path.parent != self.folder:
            path.parent.mkdir(parents=True, exist_ok=True)
            self.folder = path.parent
        self.waiting.append(self.threads.submit(_write, pixels, path))
        while len(self.waiting) > WAITING:
            self.waiting.popleft().result()

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        self.threads.shutdown(cancel_futures=kind is not None)
        while self.waiting and kind is None:
            self.waiting.popleft().result()


def save_film(frames: Iterable[Path], path: Path, seconds: float = 8.0) -> int:
    """Write pictures as an endless film, WebP or GIF by the path's suffix; its last picture stays for a while.

    Args:
        frames: picture files, all of one size.
        path: the film.
        seconds: how long it runs.

    Returns:
        The number of frames.

    Raises:
        OSError: a picture cannot be read or the film not written.
    """
    pictures = [Image.open(frame).convert("RGB") for frame in frames]
    each = max(20, round(1000 * seconds / len(pictures)))
    durations = [each] * (len(pictures) - 1) + [each + 2000]
    temporary = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        pictures[0].save(
            temporary, save_all=True, append_images=pictures[1:], duration=durations, loop=0, quality=80, method=2
        )
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return len(pictures)
