"""Clean a collection of pictures: find defects, duplicates and outliers, and crop faces from the rest.

This module does not import torch: every process that reads pictures imports it and must start fast.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import os
import re
import stat
import unicodedata
import warnings
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

import imagehash
import numpy as np
from PIL import Image

from config import LABELS, ConfigError, DataError, check_numbers, option
from gan.data import detection, listing
from gan.data.detection import Box
from gan.data.pictures import FORMATS, LARGEST_MEMBER, SUFFIXES, orientation, reason, source, square, upright
from gan.files import printable
from gan.language import text

SIZE = 96  # height and width in pixels at which pictures are inspected; the encoder was trained at this size

# Kinds of findings. Pictures of the first three and of `faceless` are always left out; the user may keep the others.
KINDS = {
    "refused": "not read: it unpacks to far more than a picture, has a password, or lies outside the source",
    "unreadable": "not a picture of a known format, or damaged",
    "truncated": "the file ends before the picture does",
    "small": "a face with a side shorter than {} pixels (--min_size)",
    "narrow": "more than twice as long as wide, or the other way round",
    "blank": "one colour, or nearly nothing to see",
    "dark": "nearly black",
    "unfinished": "its lowest rows are plain black or grey, as in an incomplete file that was saved again",
    "grey": "without colour",
    "faceless": "a picture in which no face was detected",
    "duplicate": "the same pixels as another picture",
    "near_duplicate": "nearly the same as another picture: saved again, resized, cropped a little, mirrored",
    "deleted": "you threw it out, or deleted it from the folder of faces; --keep=deleted brings it back",
    "outlier": "looks like none of the others",
}

MOST_PIXELS = 2**26
NARROW = 2.0

# Thresholds at 96 x 96 pixels, on a scale of 0 to 255.
GREY = 12  # grey: the channels of 98 % of the pixels differ by less
DARK = 44  # dark: 95 % of the pixels are darker
FLAT = 4.0  # blank: the standard deviation of the brightness is smaller, or
SMOOTH = 3.0  # blank: 99 % of the differences between neighbouring pixels are smaller

# Near duplicates.
BITS = 10  # maximum number of the 64 bits in which their hashes differ
CORRELATION = 0.94  # minimum correlation of their brightness at 16 x 16 pixels
TINT = 20  # maximum difference of their mean colours, in any channel
BLOCK = 2**23  # number of pairs compared at a time

# Outliers.
OUTLYING, NEAREST = 6.0, 20  # deviations above the median, of the distance to the neighbour of this rank
LEAST = 200  # minimum number of pictures for a search for outliers


# Kinds of findings that `prepare.py` can keep; see `gan.data.cleaning.KINDS`.
KEEPABLE = tuple("small narrow blank dark unfinished grey duplicate near_duplicate deleted outlier".split())


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrepareConfig:
    """Turn any pile of pictures into clean faces, and report what was found. The pile is only read."""

    examples: ClassVar[tuple[str, ...]] = ("my_pictures --dry_run", "my_pictures more.zip --out=my_faces --keep=grey")

    sources: tuple[Path, ...] = option(
        (), "folders, zips or pictures; folders are searched to any depth, and their subfolders stay."
    )
    out: Path = option(
        Path("data/faces"),
        "folder for the faces, a new or empty one, or that of an earlier call, made afresh; those you deleted from it "
        "stay out.",
    )
    min_size: int = option(64, "minimum length of a face's shorter side, in pixels.", ge=1, le=4096)
    keep: str = option(
        "", f"kinds of findings to keep, separated by commas: {', '.join(KEEPABLE)}; by default all are left out."
    )
    centre: bool = option(False, "cut out the centre square; else whole pictures are copied as they are.")
    detect: Path | None = option(
        None,
        "find faces and cut them out, into a file each: without a value anime faces, or what an OpenCV cascade "
        "detects; needs requirements-extra.txt.",
    )
    label: str = option(
        "",
        f"guess labels of anime faces, {' and '.join(LABELS)}, separated by commas, and write labels.csv beside them; "
        "doubtful ones stay empty.",
    )
    margin: float = option(
        detection.MARGIN,
        "margin on each side of a detected face, as a share of its size; by default as tight as the faces that the "
        "released generator knows.",
        ge=0,
        le=2,
    )
    report: Path = option(
        Path("report.html"),
        "the page to write; all findings and files go beside it, with .json in place of its ending.",
    )
    dry_run: bool = option(False, "only write the report.")

    def __post_init__(self) -> None:
        check_numbers(self)
        if not self.sources:
            more = "" if self.detect is None else " --detect"
            raise ConfigError("nothing to prepare; name a folder, a zip or pictures: python prepare.py FOLDER{}", more)
        for kind in filter(None, (kind.strip() for kind in self.keep.split(","))):
            if kind not in KEEPABLE:
                raise ConfigError("--keep: expected some of {}; got {!r}", ", ".join(KEEPABLE), kind)
        for label in self.labels:
            if label not in LABELS:
                raise ConfigError("--label: expected some of {}; got {!r}", ", ".join(LABELS), label)
        if self.labels and self.dry_run:
            raise ConfigError("--label writes labels.csv beside the faces, and --dry_run writes none; leave one out")
        if self.detect is not None and self.centre:
            raise ConfigError("--detect and --centre both say what to cut; give one of them")
        if self.report.suffix.lower() not in (".html", ".htm"):
            raise ConfigError("--report: expected a name ending in .html; got '{}'", self.report)

    @property
    def labels(self) -> tuple[str, ...]:
        """The columns of labels to guess."""
        return tuple(dict.fromkeys(filter(None, map(str.strip, self.label.split(",")))))


@dataclasses.dataclass(frozen=True)
class Picture:
    """A picture of a source: a file or a member of a zip. `called` is the member's name with its encoding repaired."""

    root: Path
    name: str
    member: str = ""
    called: str = ""

    @property
    def path(self) -> Path:
        """The path of the file."""
        return self.root / self.name

    @property
    def about(self) -> str:
        """The name in messages and reports."""
        return printable(f"{self.path}/{self.called}" if self.member else str(self.path))

    @property
    def folder(self) -> str:
        """The folder in the source, which may serve as the class."""
        inside = PurePosixPath(self.called.replace("\\", "/")).parent.parts
        parts = [plain_name(part) for part in (*PurePosixPath(self.name).parent.parts, *inside) if part != "."]
        if len(parts) > 6:
            parts[5:] = [plain_name("/".join(parts[5:]))]
        return "/".join(parts)


@dataclasses.dataclass
class Candidate:
    """A face that could be cropped from a picture, and the findings about it."""

    picture: Picture
    kind: str = ""  # a key of `KINDS`; empty if nothing is wrong
    why: str = ""  # details, or the picture that it duplicates
    size: tuple[int, int] = (0, 0)  # width and height of the crop in pixels
    box: Box | None = None  # in the upright picture; None is all of it
    digest: bytes = b""  # of its pixels; empty if there are none to show
    hashes: tuple[int, int] = (0, 0)  # perceptual hashes of the crop and of its mirror image
    brightness: bytes = b""  # at 16x16 pixels, standardised, float16
    colour: tuple[int, int, int] = (0, 0, 0)  # mean red, green, blue
    faults: dict[str, str] = dataclasses.field(default_factory=dict)  # details of each defect found in the crop alone
    original: Candidate | None = dataclasses.field(default=None, repr=False, compare=False)  # what it duplicates
    there: bool = False  # its file is in the folder since an earlier call, where the user left it


def pictures_in(sources: Sequence[Path], out: Path) -> tuple[list[Picture], list[Candidate], int]:
    """List the pictures of folders, zips and single files, except those in `out`.

    Of a zip, only the central directory is read. Links that lead out of a source are not followed. Returns the
    pictures, in order; the refused and unreadable ones; and the number of other files.

    Raises:
        DataError: a source does not exist or cannot be read.
    """
    found: dict[tuple[str, str], Picture] = {}  # by real path and member: sources may overlap
    refused: dict[tuple[str, str], Candidate] = {}
    others = set[str]()

    def refuse(picture: Picture, why: str, unreadable: bool) -> None:
        key = os.path.abspath(picture.path), picture.member
        refused[key] = Candidate(picture, "unreadable" if unreadable else "refused", why)

    for given in sources:
        root = given.expanduser()
        try:
            is_folder = stat.S_ISDIR(os.stat(root).st_mode)
            names, passed = listing.files_below(root, False, [out]) if is_folder else ([root.name], [])
        except OSError as error:
            what = listing.why_closed(error)
            raise DataError(
                "{} {}; expected a folder of pictures, a zip or a picture; put a name with spaces in quotes",
                given,
                what,
            ) from error
        root = root if is_folder else root.parent
        for one in passed:
            refuse(Picture(root, one.name), one.why, one.unreadable)
        names, rest = listing.sifted(root, names)
        others |= {os.path.realpath(root / name) for name in rest}
        for name in names:
            picture = Picture(root, name)
            real = os.path.realpath(picture.path)
            if why := listing.why_unread(name):
                refuse(picture, why, True)
            elif not name.lower().endswith(".zip"):
                found.setdefault((real, ""), picture)
            else:
                try:
                    members, passed, rest = listing.members(picture.path)
                except Exception as error:
                    refuse(picture, reason(error), True)
                    continue
                for one in passed:
                    refuse(Picture(root, name, one.name, one.called), one.why, one.unreadable)
                for member in members:
                    found.setdefault((real, member.name), Picture(root, name, *member))
                others |= {f"{real}/{other}" for other in rest}
    return list(found.values()), list(refused.values()), len(others)


def inspect(pictures: Sequence[Picture], config: PrepareConfig) -> tuple[list[Candidate], bytes]:
    """Inspect pictures one by one. Return their candidates, in order, at least one for each picture.

    Also return the pixels, at 96x96 in RGB, of the candidates that have a digest.
    """
    found: list[tuple[Candidate, bytes]] = []
    limit, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, MOST_PIXELS // 2  # Pillow refuses twice as many
    with warnings.catch_warnings(), contextlib.ExitStack() as stack:
        stack.callback(setattr, Image, "MAX_IMAGE_PIXELS", limit)
        warnings.simplefilter("ignore")
        for picture in pictures:
            try:
                found += list(_inspect(picture, config))  # a list, to add all of its faces or none
            except Image.DecompressionBombError:
                what = text("more than {:.0f} million pixels").format(MOST_PIXELS / 1e6)
                found.append((Candidate(picture, "refused", what), b""))
            except Exception as error:
                ends = re.search(r"truncat|\bended\b|unexpected end|incomplete", str(error), re.IGNORECASE)
                found.append((Candidate(picture, "truncated" if ends else "unreadable", reason(error)), b""))
    return [face for face, _ in found], b"".join(pixels for _, pixels in found)


def _inspect(picture: Picture, config: PrepareConfig) -> Iterator[tuple[Candidate, bytes]]:
    file = source(picture.path, picture.member)
    if isinstance(file, Path) and (length := file.stat().st_size) > LARGEST_MEMBER:
        told = text("{:,.0f} MB; at most {:,.0f} are read")
        raise ValueError(told.format(length / 1e6, LARGEST_MEMBER / 1e6))
    with Image.open(file, formats=FORMATS) as image:
        width, height = image.size
        if config.detect is None:
            image.draft(None, (4 * SIZE, 4 * SIZE))
        image.load()  # which turns a TIFF, and takes its tag away
        if orientation(image) in (5, 6, 7, 8):  # with a quarter turn
            width, height = height, width
        shown = upright(image).convert("RGB")
    boxes = [Box(*square((width, height))) if config.centre else None]
    if config.detect is not None:
        boxes = detection.faces(shown, config.detect, config.margin, config.min_size)
    if not boxes:
        whole_picture = shown.resize((SIZE, SIZE), Image.Resampling.BOX, reducing_gap=2).tobytes()
        yield Candidate(picture, "faceless", "", (width, height), digest=b"whole"), whole_picture
    for box in boxes:
        part, size = shown, (width, height)
        if box is not None:  # in pixels of the full picture; a large JPEG may have been decoded at a smaller size
            across, down = shown.width / width, shown.height / height
            left, right = round(box.left * across), round(box.right * across)
            part = detection.cut(shown, (left, round(box.top * down), right, round(box.bottom * down), box.angle))
            size = box.right - box.left, box.bottom - box.top
        small = part.resize((SIZE, SIZE), Image.Resampling.BOX, reducing_gap=2)
        array, grey = np.asarray(small), small.convert("L")
        faults = _faults(array, size, (width, height), config)
        kind, why = next(iter(faults.items()), ("", ""))
        digest = hashlib.sha256(repr(part.size).encode() + part.tobytes()).digest()[:16]
        hashes = _hash(grey), _hash(grey.transpose(Image.Transpose.FLIP_LEFT_RIGHT))
        brightness = np.asarray(grey.resize((16, 16), Image.Resampling.BOX), np.float32)
        brightness = ((brightness - brightness.mean()) / max(brightness.std(), 1)).astype(np.float16).tobytes()
        red, green, blue = (round(float(mean)) for mean in array.mean((0, 1)))
        rgb = red, green, blue
        face = Candidate(picture, kind, why, size, box, digest, hashes, brightness, rgb, faults)
        yield face, small.tobytes()


def _faults(array: np.ndarray, size: tuple[int, int], whole: tuple[int, int], config: PrepareConfig) -> dict[str, str]:
    """Return the defects of a single crop, with details, the worst first.

    `array` has its pixels at 96x96, `size` is its size, and `whole` is the size of the picture.
    """
    found: dict[str, str] = {}
    brightness = array.astype(np.float32) @ np.array([0.299, 0.587, 0.114], np.float32)
    steps = np.concatenate([np.abs(np.diff(brightness, axis=axis)).ravel() for axis in (0, 1)])
    deviation, channels = float(brightness.std()), array.astype(np.int16)
    if min(size) < config.min_size:
        found["small"] = text("{} x {} pixels").format(*size)
    if config.detect is None and max(whole) > NARROW * min(whole):
        found["narrow"] = text("{} x {} pixels").format(*whole)
    if np.percentile(brightness, 95) < DARK:
        found["dark"] = text("mean brightness {:.0f} of 256").format(brightness.mean())
    elif deviation < FLAT or np.percentile(steps, 99) < SMOOTH:
        found["blank"] = text("brightness varies by {:.1f} of 256").format(deviation)
    elif lost := _lost(array):
        found["unfinished"] = text("its lowest {:.0%} are one colour").format(lost)
    elif np.percentile(channels.max(-1) - channels.min(-1), 98) < GREY:
        found["grey"] = ""
    return found


def _lost(array: np.ndarray) -> float:
    """Return the share of rows at the bottom that are plain grey or black, as decoders fill in for missing data.

    The share is 0 if it is less than an eighth, or if the top of the picture has the same colour.
    """
    for filled in (128, 0):
        if np.abs(array[: len(array) // 12].astype(np.int16) - filled).max() <= 1:
            continue  # letterbox bars
        lost = np.asarray(np.abs(array.astype(np.int16) - filled).max((1, 2)) <= 1)[::-1]
        rows = len(lost) if lost.all() else int(lost.argmin())
        if rows >= len(lost) // 8:
            return rows / len(lost)
    return 0.0


def _hash(grey: Image.Image) -> int:
    return int(str(imagehash.phash(grey)), 16)


def mark_duplicates(candidates: Sequence[Candidate]) -> None:
    """Mark all but the largest of each group of duplicates (equal pixels) and near duplicates (similar hashes).

    If there is a deleted one among them, it counts as the largest, so that no copy takes its place, but those stay that
    the user left. Candidates with another finding are skipped. The time is quadratic in their number, 4 s for 30,000
    and 18 s for 60,000; the memory is not.
    """
    clean = [face for face in candidates if face.kind in ("", "deleted")]
    clean.sort(key=lambda face: (not face.kind, -face.size[0] * face.size[1]))  # of equal ones keep the first
    first: dict[bytes, Candidate] = {}
    for face in clean:
        kept = first.setdefault(face.digest, face)
        if kept is not face and not face.kind and not (face.there and kept.kind):
            face.kind, face.why, face.original = "duplicate", kept.picture.about, kept
    clean = list(first.values())
    if len(clean) < 2:
        return
    hashes = np.array([face.hashes for face in clean], np.uint64)
    brightness = np.stack([np.frombuffer(face.brightness, np.float16) for face in clean]).reshape(-1, 16, 16)
    colours = np.array([face.colour for face in clean], np.int16)
    rows = max(1, BLOCK // len(clean))
    for start in range(0, len(clean), rows):
        block = slice(start, start + rows)
        for mirrored in (0, 1):
            differing = np.bitwise_count(hashes[block, mirrored, None] ^ hashes[None, : start + rows, 0])
            for row, other in zip(*np.nonzero(differing <= BITS), strict=True):
                i = start + row
                if other >= i or clean[other].kind not in ("", "deleted") or (clean[i].there and clean[other].kind):
                    continue
                view = brightness[i, :, ::-1] if mirrored else brightness[i]
                correlation = float((view.astype(np.float32) * brightness[other]).mean())
                tint = np.abs(colours[i] - colours[other]).max()
                if correlation >= CORRELATION and tint <= TINT and not clean[i].kind:
                    original = clean[other]
                    clean[i].kind, clean[i].why, clean[i].original = "near_duplicate", original.picture.about, original


def mark_outliers(candidates: Sequence[Candidate], distances: np.ndarray) -> None:
    """Mark candidates far from all others, given the distance of each to its `NEAREST`-th neighbour, (N,)."""
    usual = np.median(distances)
    deviation = max(1.4826 * np.median(np.abs(distances - usual)), 1e-3)
    for face, distance in zip(candidates, distances, strict=True):
        if distance > usual + OUTLYING * deviation:
            why = text("{:.0f} deviations from the others").format((distance - usual) / deviation)
            face.kind, face.why = "outlier", why


def mark_deleted(candidates: Sequence[Candidate], rows: Sequence[Mapping[str, Any]], there: Collection[str]) -> None:
    """Mark the faces of a manifest's rows: by name, or, if `--margin` changed it, by the place they are cut from.

    Those whose files are `there` are never marked.
    """
    names, cut = {row["file"] for row in rows}, dict[str, list[Any]]()
    for row in rows:
        if row.get("box"):
            cut.setdefault(row["source"], []).append(row["box"])
    for face in candidates:
        if not face.kind:
            name, boxes = name_of(face), cut.get(os.path.abspath(face.picture.about), ())
            face.there = name in there
            placed = face.box is not None and any(_same_place(face.box, box) for box in boxes)
            if name in names or (placed and not face.there):
                face.kind = "deleted"


def _same_place(one: Sequence[int], other: Sequence[int]) -> bool:
    """Return whether two squares may be of one face with other margins.

    With the largest margin, a square is five times as long as the face, so a tenth of it is half a face.
    """
    sides = sorted((one[2] - one[0], other[2] - other[0]))
    apart = max(abs(one[axis] + one[axis + 2] - other[axis] - other[axis + 2]) / 2 for axis in (0, 1))
    return apart < max(2, sides[0] / 10) and sides[1] < 5.2 * sides[0]


def name_of(face: Candidate) -> str:
    """Return the path of a face's file below the output folder; it ends in a hash of the pixels, folder and box."""
    picture = face.picture
    original = PurePosixPath((picture.called or picture.name).replace("\\", "/"))
    key = hashlib.sha256(face.digest + repr((picture.folder, face.box and tuple(face.box))).encode()).hexdigest()[:12]
    suffix = original.suffix.lower() if face.box is None else ".png"
    name = f"{plain_name(original.stem)}-{key}{suffix if suffix in SUFFIXES else ''}"
    return f"{picture.folder}/{name}".lstrip("/")


def write(faces: Sequence[tuple[str, Candidate]], folder: Path) -> dict[str, str]:
    """Crop faces and write each into a folder under its name; return the SHA-256 of each file by name.

    Raises:
        DataError: a picture can no longer be read.
        OSError: a file cannot be written.
    """
    digests: dict[str, str] = {}
    for name, face in faces:
        try:
            data = content(face)
        except Exception as error:
            raise DataError(
                "{} has changed since it was inspected ({}); run the same command again",
                face.picture.about,
                reason(error),
            ) from error
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
        digests[name] = hashlib.sha256(data).hexdigest()
    return digests


def row(name: str, face: Candidate, digest: str) -> dict[str, Any]:
    """Return a face's row of the manifest; its source is an absolute path, to be read from any working directory."""
    about = {"file": name, "sha256": digest, "source": os.path.abspath(face.picture.about), "box": face.box}
    return {**about, "width": face.size[0], "height": face.size[1]}


def content(face: Candidate) -> bytes:
    """Return the bytes of a face's file."""
    file = source(face.picture.path, face.picture.member)
    data = file.read_bytes() if isinstance(file, Path) else file.getvalue()
    if face.box is None:  # the file is copied unchanged
        return data
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            shown = upright(image).convert("RGB")
    made = io.BytesIO()
    detection.cut(shown, face.box).save(made, "PNG", compress_level=1)
    return made.getvalue()


def thumbnail(pixels: np.ndarray) -> bytes:
    """Encode pixels (S, S, 3) as a JPEG for the report."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=80, optimize=True)
    return file.getvalue()


def plain_name(name: str) -> str:
    """Return a name that is valid on every file system, of letters, digits, dashes and underscores.

    If more than spaces was replaced, a checksum keeps different names apart.
    """
    name = unicodedata.normalize("NFC", name)
    plain = re.sub(r"[^\w\-]+", "_", name)[:60]
    if re.fullmatch(r"_*|con|prn|aux|nul|com\d|lpt\d", plain, re.IGNORECASE):
        plain = f"{plain}_"
    return plain if plain == name.replace(" ", "_") else f"{plain}-{zlib.crc32(name.encode(errors='replace')):08x}"
