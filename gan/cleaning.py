"""Any pile of pictures -> what is wrong with each, which show the same, and clean faces cut from the rest.

Every process that reads pictures imports this module and must start fast: no torch.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import io
import os
import re
import shutil
import stat
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from PIL import Image

from config import DataError
from gan.faces import FORMATS, LARGEST_MEMBER, SUFFIXES, is_visible, printable, reason, source, upright

SIZE = 96
"""Height and width at which pictures are judged, pixels: those that the encoder knows."""

KINDS = {
    "refused": "not read: it would unpack to far more than a picture, has a password, or lies outside of the source",
    "unreadable": "no picture of a known format, or broken",
    "truncated": "the file ends before the picture does",
    "small": "a side is shorter than --min_size",
    "narrow": "more than twice as long as wide, or the other way round",
    "blank": "one colour, or next to nothing to see",
    "dark": "next to black",
    "grey": "without colour, among pictures that have some",
    "faceless": "no face was detected",
    "same": "the same pixels as another picture",
    "alike": "nearly the same as another picture: saved again, resized, cropped a little, mirrored",
    "odd": "looks like none of the others",
}
"""What can be wrong with a picture. Which are left out is the user's choice, but for the first three."""

NEVER = ("refused", "unreadable", "truncated")
"""What cannot be kept."""

UNFINISHED = ".unfinished"
"""Folder below the one that is written to."""

MOST_PIXELS = 2**26
NARROW = 2.0
GREY, DARK, FLAT, SMOOTH = 12, 44, 4.0, 3.0
"""Of 256 shades at 96 pixels: a grey picture's colourfulness (all but 2 % of its pixels are below), a dark one's
brightness (all but 5 %), a blank one's deviation, and the step between neighbours there (all but 1 %)."""

BITS, ALIKE, TINT = 10, 0.94, 20
"""Nearly the same pictures: bits of 64 in which their hashes differ at most, the correlation of their brightness at 16
pixels at least, and the difference of their mean colours at most."""

ODD, NEAREST, LEAST = 6.0, 20, 200
"""An odd picture's distance to its twentieth nearest, in deviations above what is usual; of fewer pictures none is."""

BLOCK = 1024
"""Pictures compared with all others at a time."""


@dataclasses.dataclass(frozen=True)
class Picture:
    """A file of a source, or a member of a zip in it."""

    root: Path
    name: str
    member: str = ""

    @property
    def path(self) -> Path:
        """The file."""
        return self.root / self.name

    @property
    def about(self) -> str:
        """What to call it."""
        return printable(f"{self.path}/{self.member}" if self.member else str(self.path))

    @property
    def folder(self) -> str:
        """Its folder in the source, which may say its class."""
        parts = [*PurePosixPath(self.name).parent.parts, *PurePosixPath(self.member).parent.parts]
        return "/".join(plain_name(part) for part in parts)


@dataclasses.dataclass(frozen=True)
class Cut:
    """How faces are cut from pictures: the whole picture, its centre square, or the faces that a cascade finds."""

    centre: bool = False
    cascade: str = ""
    margin: float = 0.0
    min_size: int = 64


@dataclasses.dataclass
class Seen:
    """What is known of a face that could be cut from a picture.

    Args:
        picture: where it is from.
        kind: what is wrong with it, of `KINDS`; none so far if empty.
        why: details of that, or the picture of which it is a copy.
        size: width and height of what would be cut, pixels.
        box: left, top, right, bottom of it in the upright picture; None is the whole of it.
        digest: of its pixels.
        hashes: perceptual, of it and of its mirror image.
        sight: its brightness at 16x16 pixels, standardised, float16; mirrored after that.
        colour: mean red, green, blue.
        animated: more pictures follow, which are left out.
    """

    picture: Picture
    kind: str = ""
    why: str = ""
    size: tuple[int, int] = (0, 0)
    box: tuple[int, int, int, int] | None = None
    digest: bytes = b""
    hashes: tuple[int, int] = (0, 0)
    sight: bytes = b""
    colour: tuple[int, int, int] = (0, 0, 0)
    animated: bool = False


def pictures_in(sources: Sequence[Path], out: Path) -> tuple[list[Picture], list[Seen], int]:
    """List the pictures of folders, zips and single files; reads nothing but the zips' lists.

    Args:
        sources: what the user named. Links that lead out of one are not followed.
        out: a folder below a source that is no part of it.

    Returns:
        The pictures, in order; what of them is refused or unreadable; and the number of other files.

    Raises:
        DataError: a source does not exist or cannot be read.
    """
    found: list[Picture] = []
    refused: list[Seen] = []
    others = 0
    for given in sources:
        root = given.expanduser()
        try:
            is_folder = stat.S_ISDIR(os.stat(root).st_mode)
            names = _below(root, out, refused) if is_folder else [root.name]
            if is_folder:
                os.scandir(root).close()
        except OSError as error:
            what = "does not exist" if isinstance(error, FileNotFoundError) else f"cannot be read: {error.strerror}"
            raise DataError(f"{given} {what}; expected a folder of pictures, a zip or a picture") from error
        root = root if is_folder else root.parent
        for name in names:
            if name.lower().endswith(".zip"):
                members, wrong, rest = _members(Picture(root, name))
                found += members
                refused += wrong
                others += rest
            elif name.lower().endswith(SUFFIXES):
                found.append(Picture(root, name))
            else:
                others += 1
    return list(dict.fromkeys(found)), refused, others


def _below(root: Path, out: Path, refused: list[Seen]) -> Iterator[str]:
    """The files below a folder, in order; links that lead out of it are refused."""
    inside, without = os.path.realpath(root), os.path.realpath(out)

    def leaves(path: str, name: str) -> bool:
        if not os.path.islink(path):
            return False
        real = os.path.realpath(path)
        if os.path.commonpath([real, inside]) == inside:
            return False
        refused.append(Seen(Picture(root, name), "refused", "a link that leads out of the source"))
        return True

    for folder, subfolders, names in os.walk(root):
        below = PurePosixPath(Path(folder).relative_to(root).as_posix())
        here = sorted(filter(is_visible, subfolders))
        subfolders[:] = [
            name
            for name in here
            if os.path.realpath(path := os.path.join(folder, name)) != without
            and not leaves(path, str(below / name))
            and not os.path.islink(path)  # what it leads to is found there
        ]
        for name in sorted(filter(is_visible, names)):
            if not leaves(os.path.join(folder, name), str(below / name)):
                yield str(below / name)


def _members(archive: Picture) -> tuple[list[Picture], list[Seen], int]:
    """The pictures in a zip, what of it is refused, and the number of other files."""
    try:
        with zipfile.ZipFile(archive.path) as opened:
            infos = {info.filename: info for info in opened.infolist() if not info.is_dir()}
    except Exception as error:
        return [], [Seen(archive, "unreadable", reason(error))], 0
    found: list[Picture] = []
    refused: list[Seen] = []
    others = 0
    for name in sorted(infos):
        picture, info = dataclasses.replace(archive, member=name), infos[name]
        parts = re.split(r"[/\\]", name)
        if why := _forbidden(info, parts):
            refused.append(Seen(picture, "refused", why))
        elif name.lower().endswith(SUFFIXES) and all(map(is_visible, parts)):
            found.append(picture)
        else:
            others += 1
    return found, refused, others


def _forbidden(info: zipfile.ZipInfo, parts: Sequence[str]) -> str:
    """Why a zip's member is not read; empty if it may be."""
    if ".." in parts or parts[0] == "" or re.match("[A-Za-z]:", parts[0]):
        return "its name leads out of the zip"
    if stat.S_ISLNK(info.external_attr >> 16):
        return "a link inside a zip"
    if info.flag_bits & 1:
        return "it has a password"
    if info.file_size > LARGEST_MEMBER or info.file_size > 200 * max(info.compress_size, 2**12):
        return f"it would unpack from {info.compress_size:,} to {info.file_size:,} bytes"
    return ""


def look(pictures: Sequence[Picture], cut: Cut) -> tuple[list[Seen], bytes]:
    """Judge some pictures, each for itself.

    Returns:
        What is seen, in order, at least one for each picture; and for those with a digest the pixels at 96x96, RGB.
    """
    found: list[Seen] = []
    pixels: list[bytes] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for picture in pictures:
            parts: list[bytes] = []
            try:
                seen = list(_look(picture, cut, parts))
            except Exception as error:
                ends = re.search("truncat|ended|unexpected end|incomplete", str(error), re.IGNORECASE)
                seen = [Seen(picture, "truncated" if ends else "unreadable", reason(error))]
            else:
                pixels += parts
            found += seen
    return found, b"".join(pixels)


def _look(picture: Picture, cut: Cut, pixels: list[bytes]) -> Iterator[Seen]:
    with _opened(picture) as image:
        width, height = image.size
        animated = getattr(image, "n_frames", 1) > 1
        if width * height > MOST_PIXELS:
            what = f"{width:,} x {height:,} pixels; at most {MOST_PIXELS / 1e6:.0f} million are read"
            yield Seen(picture, "refused", what, (width, height))
            return
        if not cut.cascade:
            image.draft(None, (4 * SIZE, 4 * SIZE))
        shown = upright(image).convert("RGB")
    if (width < height) != (shown.width < shown.height):  # turned by its EXIF
        width, height = height, width
    scale = width / shown.width
    boxes = _faces(shown, cut) if cut.cascade else [_square(shown.size) if cut.centre else None]
    if not boxes:
        yield Seen(picture, "faceless", "", (width, height))
    for box in boxes:
        part = shown if box is None else shown.crop(box)
        size = (width, height) if box is None else (round(part.width * scale), round(part.height * scale))
        at = None if box is None else tuple(round(edge * scale) for edge in box)
        small = part.resize((SIZE, SIZE), Image.Resampling.BOX, reducing_gap=2)
        seen = Seen(picture, size=size, box=at, animated=animated)  # pyright: ignore[reportArgumentType]
        array = np.asarray(small)
        seen.kind, seen.why = _fault(array, size, (width, height), cut)
        seen.digest = hashlib.sha256(repr(part.size).encode() + part.tobytes()).digest()[:16]
        grey = small.convert("L")
        seen.hashes = _hash(grey), _hash(grey.transpose(Image.Transpose.FLIP_LEFT_RIGHT))
        brightness = np.asarray(grey.resize((16, 16), Image.Resampling.BOX), np.float32)
        brightness = (brightness - brightness.mean()) / max(brightness.std(), 1)
        seen.sight = brightness.astype(np.float16).tobytes()
        red, green, blue = (round(float(mean)) for mean in array.mean((0, 1)))
        seen.colour = red, green, blue
        pixels.append(small.tobytes())
        yield seen


@contextlib.contextmanager
def _opened(picture: Picture) -> Iterator[Image.Image]:
    file = source(picture.path, picture.member)
    if isinstance(file, Path) and (size := file.stat().st_size) > LARGEST_MEMBER:
        raise ValueError(f"{size / 1e6:,.0f} MB; at most {LARGEST_MEMBER / 1e6:,.0f} are read")
    limit, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None  # judged here, before anything is decoded
    try:
        with Image.open(file, formats=FORMATS) as image:
            yield image
    finally:
        Image.MAX_IMAGE_PIXELS = limit


def _fault(array: np.ndarray, size: tuple[int, int], whole: tuple[int, int], cut: Cut) -> tuple[str, str]:
    """What is wrong with a picture of itself, and details: from its pixels at 96x96 and its sizes."""
    if min(size) < cut.min_size:
        return "small", f"{size[0]} x {size[1]} pixels"
    if not cut.cascade and max(whole) > NARROW * min(whole):
        return "narrow", f"{whole[0]} x {whole[1]} pixels"
    brightness = array.astype(np.float32) @ np.array([0.299, 0.587, 0.114], np.float32)
    if np.percentile(brightness, 95) < DARK:
        return "dark", f"mean brightness {brightness.mean():.0f} of 256"
    steps = np.concatenate([np.abs(np.diff(brightness, axis=axis)).ravel() for axis in (0, 1)])
    if (deviation := float(brightness.std())) < FLAT or np.percentile(steps, 99) < SMOOTH:
        return "blank", f"brightness varies by {deviation:.1f} of 256"
    if lost := _lost(array):
        return "truncated", f"its lowest {100 * lost:.0f} % are one colour, as where a file ended early"
    channels = array.astype(np.int16)
    if np.percentile(channels.max(-1) - channels.min(-1), 98) < GREY:
        return "grey", ""
    return "", ""


def _lost(array: np.ndarray) -> float:
    """The share of a picture's rows, from below, that are as decoders leave what a file does not hold: grey or black.

    At least an eighth of the picture, else 0.
    """
    for filled in (128, 0):
        lost = np.asarray(np.abs(array.astype(np.int16) - filled).max((1, 2)) <= 1)[::-1]
        rows = len(lost) if lost.all() else int(lost.argmin())
        if rows >= len(lost) // 8:
            return rows / len(lost)
    return 0.0


def _hash(grey: Image.Image) -> int:
    import imagehash

    return int(str(imagehash.phash(grey)), 16)


def _square(size: tuple[int, int]) -> tuple[int, int, int, int]:
    side = min(size)
    left, top = ((length - side) // 2 for length in size)
    return left, top, left + side, top + side


def check_cascade(path: Path) -> None:
    """See that faces can be detected.

    Raises:
        DataError: OpenCV is not installed, or the file is no cascade.
    """
    where = (
        "for anime faces there is lbpcascade_animeface.xml of github.com/nagadomi/lbpcascade_animeface; for people "
        "those that come with OpenCV, in the folder that python -c 'import cv2; print(cv2.data.haarcascades)' names"
    )
    try:
        import cv2
    except ImportError as error:
        raise DataError("--detect needs OpenCV: pip install -r requirements-extra.txt") from error
    if not path.is_file():
        raise DataError(f"--cascade={path} does not exist; {where}")
    try:
        empty = cv2.CascadeClassifier(str(path)).empty()
    except (cv2.error, SystemError):
        empty = True
    if empty:
        raise DataError(f"--cascade={path} is no cascade that OpenCV can read; {where}")


@functools.lru_cache(maxsize=1)
def _detector(path: str) -> Any:
    import cv2

    return cv2.CascadeClassifier(path)


def _faces(image: Image.Image, cut: Cut) -> list[tuple[int, int, int, int]]:
    """The faces that the cascade finds, each with its margin, inside the picture; from left to right."""
    import cv2

    grey = cv2.equalizeHist(np.asarray(image.convert("L")))
    least = max(1, round(cut.min_size / (1 + 2 * cut.margin)))
    boxes = _detector(cut.cascade).detectMultiScale(grey, 1.1, 5, minSize=(least, least))
    found = []
    for x, y, width, height in sorted(tuple(int(edge) for edge in box) for box in boxes):
        side = min(round(max(width, height) * (1 + 2 * cut.margin)), *image.size)
        left = min(max(0, x + (width - side) // 2), image.width - side)
        top = min(max(0, y + (height - side) // 2), image.height - side)
        found.append((left, top, left + side, top + side))
    return found


def mark_copies(seen: Sequence[Seen]) -> None:
    """Mark, of those without a fault that show the same, all but the largest: `same` by pixels, `alike` by hash.

    Time grows with the square of their number: a second for 30,000. Memory does not.
    """
    clean = [face for face in seen if not face.kind]
    clean.sort(key=lambda face: -face.size[0] * face.size[1])  # the largest is kept; of equals the first
    first: dict[bytes, Seen] = {}
    for face in clean:
        kept = first.setdefault(face.digest, face)
        if kept is not face:
            face.kind, face.why = "same", kept.picture.about
    clean = list(first.values())
    if len(clean) < 2:
        return
    hashes = np.array([face.hashes for face in clean], np.uint64)
    sights = np.stack([np.frombuffer(face.sight, np.float16) for face in clean]).reshape(-1, 16, 16)
    colours = np.array([face.colour for face in clean], np.int16)
    for start in range(0, len(clean), BLOCK):
        block = slice(start, start + BLOCK)
        for mirrored in (0, 1):
            differing = np.bitwise_count(hashes[block, mirrored, None] ^ hashes[None, :, 0])
            for row, other in zip(*np.nonzero(differing <= BITS), strict=True):
                i = start + row
                if other >= i or clean[other].kind:
                    continue
                view = sights[i, :, ::-1] if mirrored else sights[i]
                correlation = float((view.astype(np.float32) * sights[other]).mean())
                if correlation >= ALIKE and np.abs(colours[i] - colours[other]).max() <= TINT and not clean[i].kind:
                    clean[i].kind, clean[i].why = "alike", clean[other].picture.about


def mark_odd(seen: Sequence[Seen], features: np.ndarray) -> None:
    """Mark those without a fault that are far from all others.

    Args:
        seen: what is judged.
        features: of each, (N, D).
    """
    places = np.array([i for i, face in enumerate(seen) if not face.kind], np.int64)
    if len(places) < LEAST:
        return
    points = features[places].astype(np.float32)
    squares = (points**2).sum(1)
    distances = np.empty(len(points), np.float32)
    for start in range(0, len(points), BLOCK):
        some = points[start : start + BLOCK]
        square = squares[start : start + BLOCK, None] + squares[None] - 2 * some @ points.T
        distances[start : start + BLOCK] = np.sqrt(np.partition(square, NEAREST, 1)[:, NEAREST].clip(0))
    usual = np.median(distances)
    deviation = 1.4826 * np.median(np.abs(distances - usual))
    for place, distance in zip(places, distances, strict=True):
        if distance > usual + ODD * deviation:
            seen[place].kind, seen[place].why = (
                "odd",
                f"{(distance - usual) / deviation:.0f} deviations from the others",
            )


def write(faces: Sequence[Seen], out: Path, cut: Cut) -> list[dict[str, Any]]:
    """Cut faces and write each into a file of `out`, below the folder that it was in; never half a file.

    A whole picture is copied as it is. A file's name ends in digits of its content, so that what an earlier, stopped
    call wrote is found there.

    Returns:
        For each that was written: file, sha256, source, box, width, height.

    Raises:
        OSError: it cannot be written.
    """
    rows: list[dict[str, Any]] = []
    for face in faces:
        picture = face.picture
        stem = plain_name(PurePosixPath(picture.member or picture.name).stem)
        key = hashlib.sha256(face.digest + repr(face.box).encode()).hexdigest()[:8]
        copied = face.box is None and not face.animated
        suffix = PurePosixPath(picture.member or picture.name).suffix.lower() if copied else ".png"
        name = f"{face.picture.folder}/{stem}-{key}{suffix}".lstrip("/")
        path = out / name
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = out / UNFINISHED / f"{key}.{os.getpid()}{suffix}"
            temporary.parent.mkdir(exist_ok=True)
            try:
                _write(face, temporary, copied)
                temporary.replace(path)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise
        row = {"file": name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest(), "source": picture.about}
        rows.append({**row, "box": face.box, "width": face.size[0], "height": face.size[1]})
    return rows


def _write(face: Seen, path: Path, copied: bool) -> None:
    file = source(face.picture.path, face.picture.member)
    if copied:
        if isinstance(file, Path):
            shutil.copyfile(file, path)
        else:
            path.write_bytes(file.getvalue())
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with Image.open(file if isinstance(file, Path) else io.BytesIO(file.getvalue()), formats=FORMATS) as image:
            shown = upright(image).convert("RGB")
    (shown if face.box is None else shown.crop(face.box)).save(path, compress_level=1)


def thumbnails(pixels: np.ndarray) -> list[bytes]:
    """Pixels (N, S, S, 3) -> JPEG files, for a report."""
    found = []
    for face in pixels:
        file = io.BytesIO()
        Image.fromarray(face).resize((64, 64), Image.Resampling.BOX).save(file, "JPEG", quality=80)
        found.append(file.getvalue())
    return found


def plain_name(name: str) -> str:
    """A name that every file system takes: letters, digits, dashes; never empty, `.` or `..`."""
    return re.sub(r"[^\w\-]+", "_", name, flags=re.UNICODE).strip("_")[:60] or "_"
