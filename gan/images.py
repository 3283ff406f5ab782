"""Conversion between [-1, 1] and uint8, done only in this module; grids and picture files."""

import contextlib
import io
import math
import warnings
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from torch import Tensor

from gan.files import replacing
from gan.language import text

FORMATS = ["PNG", "JPEG"]  # of the pictures that this program writes and reads again
PREVIEWS = "step-????????.png"  # pattern of the names of a run's preview grids
FRAMES, FRAME_SIZE = 60, 800  # most pictures in a film, and most pixels of their longer side
SEEN = 384  # approximate side in pixels at which people look at a single face
LAST = 2000  # additional milliseconds for which the last picture stays
Picture = Image.Image


def to_tensor(pixels: Tensor) -> Tensor:
    """Convert uint8 pixels (N, H, W, C) to images (N, C, H, W) in [-1, 1], float32, channels-last in memory."""
    return pixels.permute(0, 3, 1, 2).float().div_(127.5).sub_(1.0)


def to_pixels(images: Tensor) -> np.ndarray:
    """Convert images (N, C, H, W) in [-1, 1] to uint8 pixels (N, H, W, C), rounded, on the CPU."""
    scaled = images.detach().float().add(1.0).mul_(127.5).round_().clamp_(0, 255)
    return scaled.to(torch.uint8).permute(0, 2, 3, 1).cpu().contiguous().numpy()


GAP = 2  # pixels between the pictures of a grid, and around it


def grid(pixels: np.ndarray, columns: int | None = None, gap: int = GAP) -> np.ndarray:
    """Lay out pictures (N, H, W, C) uint8, colour or grey, in rows on white; by default as square as possible.

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


def cells(sheet: np.ndarray, size: int) -> np.ndarray:
    """Take a grid (H, W, 3) uint8 of pictures of a size apart again, row by row: (N, size, size, 3)."""
    rows, columns = (side // (size + GAP) for side in sheet.shape[:2])
    apart = sheet[GAP:, GAP:].reshape(rows, size + GAP, columns, size + GAP, 3).swapaxes(1, 2)
    return apart[:, :, :size, :size].reshape(-1, size, size, 3)


warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)  # a picture twice as large is refused


def picture(pixels: np.ndarray) -> Picture:
    """Convert one picture (H, W, C) uint8, colour or grey, to Pillow's type."""
    return Image.fromarray(pixels if pixels.shape[-1] == 3 else pixels[..., 0])


def save_picture(pixels: np.ndarray, path: Path, text: Mapping[str, str] | None = None) -> None:
    """Write one picture (H, W, C) uint8, colour or grey, in the format of the path's suffix; never half a file.

    A PNG also gets texts by keyword, see `text_of`.

    Raises:
        OSError: the folder cannot be created or the file not written.
    """
    texts = PngInfo()
    for keyword, value in (text or {}).items():
        texts.add_text(keyword, value)
    try:
        with replacing(path) as temporary:
            # PNG's fastest way to compress: faces hardly have the repetitions that the slower ways look for.
            picture(pixels).save(temporary, compress_level=1, compress_type=zlib.Z_RLE, pnginfo=texts)
    except ValueError as error:  # from Pillow: the format allows no picture of that size
        raise OSError(str(error)) from error


def text_of(path: Path, keyword: str) -> str | None:
    """Return a PNG's text for a keyword, None if it has none; raise an OSError if the file cannot be read."""
    try:
        with Image.open(path, formats=FORMATS) as picture:
            found = picture.info.get(keyword) if picture.format == "PNG" else None
    except (SyntaxError, ValueError, EOFError, Image.DecompressionBombError) as error:  # from a damaged file
        raise OSError(str(error)) from error
    return str(found) if isinstance(found, str) else None


def load_picture(path: Path) -> np.ndarray:
    """Read a picture as (H, W, 3) uint8; raise an OSError if it cannot be read."""
    try:
        with Image.open(path, formats=FORMATS) as picture:
            return np.asarray(picture.convert("RGB"))
    except (SyntaxError, ValueError, EOFError, Image.DecompressionBombError) as error:  # from a damaged file
        raise OSError(f"{path}: {error}") from error


def encoded(pixels: np.ndarray) -> bytes:
    """Encode a picture (H, W, 3) uint8 as a JPEG file, for embedding in a page."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=88)
    return file.getvalue()


def save_film(
    previews: Sequence[Path],
    path: Path,
    seconds: float = 8.0,
    times: int = 1,
    enlarge: Callable[[np.ndarray], np.ndarray] = lambda sheet: sheet,
) -> int:
    """Write a run's preview grids as a film in the format of the path's suffix; its last picture stays for a while.

    WebP and GIF loop. Pictures that `enlarge`, which makes them `times` larger, leaves larger than 800 pixels times
    `times` are scaled down. Pictures that cannot be read, or differ in size from the last, are left out, and at most 60
    are used, evenly spaced. The film takes `seconds` plus a pause.

    Returns:
        The number of pictures.

    Raises:
        OSError: no picture can be read, or the film not written.
    """
    previews, frames = alike(previews), list[Image.Image]()
    for i in sorted({round(i) for i in np.linspace(0, len(previews) - 1, FRAMES)}) if previews else ():
        with contextlib.suppress(OSError):  # cut short by a power failure
            frames.append(Image.fromarray(enlarge(load_picture(previews[i]))))
            frames[-1].thumbnail((times * FRAME_SIZE, times * FRAME_SIZE), Image.Resampling.LANCZOS)
    if not frames:
        raise OSError(text("none of its pictures can be read"))
    n, each = len(frames), max(20, round(1000 * seconds / len(frames)))
    if path.suffix.lower() == ".mp4":
        frames += frames[-1:] * (LAST // each)
    _write_film(frames, path, [each] * (n - 1) + [each + LAST], Fraction(1000, each))
    return n


def save_morph(faces: Sequence[np.ndarray], path: Path, fps: int) -> None:
    """Write faces (H, W, C) uint8 as a film, enlarged to about 384 pixels, in the format of the path's suffix.

    WebP and GIF loop.

    Raises:
        OSError: the film cannot be written.
    """
    unit = 10 if path.suffix.lower() == ".gif" else 1  # the format's unit of time, in milliseconds
    ends = np.rint(np.arange(len(faces) + 1) * 1000 / fps / unit).astype(int) * unit
    pictures = (Image.fromarray(enlarged(face)) for face in faces)
    _write_film(pictures, path, np.diff(ends).tolist(), Fraction(fps))


def enlarged(face: np.ndarray) -> np.ndarray:
    """Enlarge a face (S, S, C) uint8 by a whole factor, for people to see it well: (T, T, 3) uint8."""
    return lanczos(np.broadcast_to(face, (*face.shape[:2], 3)), max(1, round(SEEN / max(face.shape))))


def lanczos(face: np.ndarray, times: int) -> np.ndarray:
    """Enlarge a face (S, S, C) uint8 a whole number of times, by Lanczos: (T, T, C) uint8."""
    small = picture(face)
    large = small.resize((times * small.width, times * small.height), Image.Resampling.LANCZOS)
    return np.asarray(large).reshape(large.height, large.width, -1)


def _write_film(pictures: Iterable[Image.Image], path: Path, milliseconds: list[int], rate: Fraction) -> None:
    """Write pictures as a film, which loops unless it is MP4; only MP4 uses `rate`, in pictures per second.

    Raises:
        OSError: the film cannot be written.
    """
    options: dict[str, Any] = {"quality": 80, "method": 2} if path.suffix.lower() == ".webp" else {}
    rest = iter(pictures)
    try:
        with replacing(path) as file:  # its suffix is that of `path`
            if path.suffix.lower() == ".mp4":
                _save_mp4(rest, file, rate)
            else:
                next(rest).save(file, save_all=True, append_images=rest, duration=milliseconds, loop=0, **options)
    except (RuntimeError, ValueError) as error:  # from av and Pillow
        raise OSError(str(error)) from error


def alike(pictures: Sequence[Path]) -> list[Path]:
    """Return the picture files that have the size of the last one; files that are not pictures are left out."""
    sizes: dict[Path, tuple[int, int]] = {}
    for path in pictures:
        with contextlib.suppress(OSError, Image.DecompressionBombError), Image.open(path, formats=FORMATS) as picture:
            sizes[path] = picture.size
    last = next(reversed(sizes.values()), None)
    return [path for path, size in sizes.items() if size == last]


def _save_mp4(pictures: Iterable[Image.Image], path: Path, rate: Fraction) -> None:
    """Write H.264 that every browser plays; its colours are shared by 2x2 pixels, so sides must be even."""
    import av

    with av.open(str(path), "w") as file:
        stream: Any = None
        for picture in pictures:
            if stream is None:
                stream = file.add_stream("libx264", rate=rate, options={"crf": "20"})
                stream.width, stream.height = picture.width // 2 * 2, picture.height // 2 * 2
                stream.pix_fmt = "yuv420p"
            even = picture.crop((0, 0, stream.width, stream.height))
            file.mux(stream.encode(av.VideoFrame.from_image(even)))
        file.mux(stream.encode())
