"""Detection of faces in uncut pictures, with a cascade (Viola and Jones 2001) that OpenCV runs, and cutting them out.

This module does not import torch: every process that reads pictures imports it and must start fast.
"""

import contextlib
import functools
import math
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from config import DataError, needing
from gan.language import text, why

ANIME = "lbpcascade_animeface"  # of nagadomi; MIT
SHA256 = "9376d30ac38db6bda2a68b88b3b76bbd7e6aa33af47f7f5c76bc88ca75f1ce30"
COMMIT = "4433ab1ae1166ea75acfe99eb0f18709dac329a0"
ADDRESSES = (
    f"https://cdn.jsdelivr.net/gh/nagadomi/{ANIME}@{COMMIT}/{ANIME}.xml",
    f"https://raw.githubusercontent.com/nagadomi/{ANIME}/{COMMIT}/{ANIME}.xml",
)
PEOPLE = (
    "for people there are cascades in the folder that python -c 'import cv2; print(cv2.data.haarcascades)' names, for "
    "anime faces --detect alone is enough"
)

# Recall and precision by angle: docs/evaluation.md#cutting-out.
TURNED = (-30, 30, -60, 60)  # degrees by which a picture is turned to find the faces that are tilted
VOTES, TURNED_VOTES = 5, 8  # fewest of the cascade's overlapping hits that are a face
MOST_TURNED = 2_800_000  # pixels of a turned picture with what is around it: a square of 1.5 million has so many
MARGIN = 0.03  # with which crops are as tight as the faces that the released generator knows; measured
OBLONG = 1.1  # how many times as long as wide a picture is that is hardly a face cut out
FILLS = 0.75  # share of the longer side from which on a picture is a face cut out already
LOOK_AT = 2048  # pixels of a picture's longer side in which its largest face is looked for
RETRY = 60.0  # seconds until a file that could not be fetched is asked for again
SMALLEST = 0.6  # smallest faces that are looked for, as a share of the smallest ones wanted


class Box(NamedTuple):
    """A square that may reach over the picture's border, and by how many degrees to turn it to the left, upright."""

    left: int
    top: int
    right: int
    bottom: int
    angle: int = 0


def cascade(given: Path | None) -> Path:
    """Return the file of a cascade, the given one or that of anime faces, which is fetched once into the user's cache.

    Raises:
        ConfigError: OpenCV is not installed.
        DataError: the file is not there, cannot be fetched, or is not a cascade.
    """
    with needing(text("finding faces in pictures")):
        import cv2
    path = given or _of_anime()
    if not path.is_file():
        raise DataError("--detect={} does not exist; {}", path, text(PEOPLE))
    with contextlib.suppress(cv2.error, SystemError, OSError, ValueError, AttributeError):  # OpenCV 5 has none
        if not detector(path).empty():
            return path
    raise DataError("--detect={} is not a cascade that OpenCV can read; {}", path, text(PEOPLE))


def is_at_hand() -> bool:
    """Return whether the cascade of anime faces need not be fetched."""
    from gan import downloads

    return downloads.has(downloads.cache("cascades") / f"{ANIME}.xml", SHA256)


def _of_anime() -> Path:
    from gan import downloads  # here, because it takes a moment

    path = downloads.cache("cascades") / f"{ANIME}.xml"
    try:
        if downloads.has(path, SHA256):
            return path
        if time.monotonic() - _MISSED.get(path, -math.inf) > RETRY:
            if any(downloads.fetch(address, path, SHA256) for address in ADDRESSES):
                return path
            _MISSED[path] = time.monotonic()
        path.parent.mkdir(parents=True, exist_ok=True)
        put = text("put it at {}").format(path)
    except OSError as error:
        put = text("make {} writable ({})").format(path, why(error))
    other = text("; the file at {} is another one (its SHA-256 should be {})").format(path, SHA256)
    was = other if path.is_file() else ""
    raise DataError(
        "what anime faces look like is in a file that could not be fetched{}: go online and try again, or download "
        "{} or {} and {}{}",
        was,
        ADDRESSES[0],
        ADDRESSES[1],
        put,
        downloads.proxy(),
    )


_MISSED = dict[Path, float]()  # when a file could not be fetched: where packets are dropped, each try takes long
_LOOKING = threading.Lock()  # OpenCV's detector is not for two threads


@functools.lru_cache(maxsize=1)
def detector(path: Path) -> Any:
    """Return OpenCV's detector for a cascade; it is empty if the file is not one."""
    import cv2

    found = cv2.CascadeClassifier(str(path))
    if found.empty():  # perhaps only because OpenCV on Windows cannot open paths with foreign characters
        content = path.read_text(encoding="utf-8")
        file = cv2.FileStorage(content, cv2.FILE_STORAGE_READ | cv2.FILE_STORAGE_MEMORY)
        found.read(file.getFirstTopLevelNode())
    return found


def faces(image: Image.Image, file: Path, margin: float, least: int) -> list[Box]:
    """Return squares around the faces of a picture, from left to right.

    Args:
        image: an upright RGB picture.
        file: the cascade.
        margin: on each side, as a share of what the cascade detects.
        least: of the faces wanted, pixels of the smallest square; some that are smaller are found too.
    """
    import cv2

    # Not equalised, although that is the custom: a wide white background takes the contrast from small faces then.
    grey, wide = np.asarray(image.convert("L")), 1 + 2 * margin
    height, width = grey.shape
    found = [(x, y, side, 0) for x, y, side, _ in _hits(grey, file, SMALLEST * least / wide, VOTES)]
    cos, sin = math.cos(math.pi / 6), math.sin(math.pi / 6)  # turned by 30 or 60 degrees, it takes as much room
    scale = min(1.0, math.sqrt(MOST_TURNED / ((width * cos + height * sin) * (height * cos + width * sin))))
    size, tilted = (max(1, round(width * scale)), max(1, round(height * scale))), list[tuple[Any, ...]]()
    small = cv2.resize(grey, size, interpolation=cv2.INTER_AREA) if scale < 1 else grey
    for angle in TURNED:
        cos, sin = (abs(function(math.radians(angle))) for function in (math.cos, math.sin))
        across, down = math.ceil(size[0] * cos + size[1] * sin), math.ceil(size[1] * cos + size[0] * sin)
        turning = cv2.getRotationMatrix2D((size[0] / 2, size[1] / 2), angle, 1.0)
        turning[:, 2] += (across - size[0]) / 2, (down - size[1]) / 2
        turned = cv2.warpAffine(small, turning, (across, down), borderMode=cv2.BORDER_REPLICATE)
        back = cv2.invertAffineTransform(turning)
        for x, y, side, votes in _hits(turned, file, scale * least / wide, TURNED_VOTES):
            x, y = (float(place) for place in back @ (x, y, 1) / scale)
            if 0 <= x < width and 0 <= y < height:
                tilted.append((x, y, side / scale, angle, votes))
    for x, y, side, angle, _ in sorted(tilted, key=lambda hit: -hit[-1]):
        # A small upright hit within a large tilted face is hardly a face.
        if all(
            math.hypot(x - a, y - b) > max(side, other) / 2 or (not turned and other < side / 2)
            for a, b, other, turned in found
        ):
            found.append((x, y, side, angle))
    boxes = []
    for x, y, side, angle in sorted(found):
        length = min(round(side * wide), 2 * max(width, height))
        left, top = round(x - length / 2), round(y - length / 2)
        boxes.append(Box(left, top, left + length, top + length, angle))
    return boxes


def main_face(image: Image.Image, least: int) -> Image.Image | None:
    """Cut the largest anime face out of an upright RGB picture.

    Args:
        image: the picture.
        least: fewest pixels of the face's side.

    Returns:
        The face; the picture itself if a face fills it; None if there is none.

    Raises:
        ConfigError, DataError: faces cannot be looked for; see `cascade`.
    """
    file, seen = cascade(None), image.copy()
    seen.thumbnail((LOOK_AT, LOOK_AT))
    scale = image.width / seen.width
    with _LOOKING:
        found = [box for box in faces(seen, file, MARGIN, least) if box.right - box.left >= least]
    if not found:
        return None
    *square, angle = max(found, key=lambda box: box.right - box.left)
    if square[2] - square[0] >= FILLS * max(seen.size):
        return image
    return cut(image, (*(round(place * scale) for place in square), angle))


def _hits(grey: np.ndarray, file: Path, least: float, votes: int) -> Iterator[tuple[float, float, float, int]]:
    """Yield the centre, the side and the votes of each square that the cascade detects in a grey picture (H, W)."""
    side = max(1, round(least))
    squares, hits = detector(file).detectMultiScale2(grey, 1.1, votes, minSize=(side, side))
    for (x, y, width, height), number in zip(squares, hits, strict=True):
        yield float(x + width / 2), float(y + height / 2), float(max(width, height)), int(number)


def cut(image: Image.Image, box: Sequence[int]) -> Image.Image:
    """Cut a `Box` out of a picture, turned upright; what lies beyond the picture's border is mirrored."""
    left, top, right, bottom, angle = Box(*box)
    reach = math.ceil(0.21 * (right - left)) + 1 if angle else 0  # as far as the corners of the turned square
    outer = left - reach, top - reach, right + reach, bottom + reach
    inner = max(0, outer[0]), max(0, outer[1]), min(image.width, outer[2]), min(image.height, outer[3])
    part = image.crop(inner)
    if inner != outer:
        beyond = (inner[1] - outer[1], outer[3] - inner[3]), (inner[0] - outer[0], outer[2] - inner[2]), (0, 0)
        part = Image.fromarray(np.pad(np.asarray(part), beyond, "symmetric"))
    if angle:
        part = part.rotate(angle, Image.Resampling.BICUBIC)
        part = part.crop((reach, reach, part.width - reach, part.height - reach))
    return part
