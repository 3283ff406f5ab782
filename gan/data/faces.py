"""Packs: faces that are decoded and resized once into a memory-mapped uint8 array, which later runs open instantly.

This module does not import torch: every decoding process imports it and must start fast.
"""

import contextlib
import dataclasses
import hashlib
import json
import math
import os
import re
import shutil
import stat
import time
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import numpy as np
from PIL import Image
from tqdm import tqdm

import config
from config import SYNTHETIC, DataError
from gan import processors
from gan.data import listing, synthetic, torchvision_data
from gan.data.pictures import CHUNK, FORMATS, in_processes, reason, source, square, upright
from gan.files import as_word, folder_beside, printable, replacing_folder, tidy
from gan.language import text, why

PACK_VERSION = 2
RESERVE = 64 * 2**20  # bytes to leave free on the disk
LEAST_TO_HOLD_OUT = 2000  # minimum number of faces for a holdout split
UNUSED_DAYS = 30  # packs not opened for this many days are deleted
BOOK_FACES = Path("data/faces")
GIVE = "give another folder, or `synthetic` for synthetic faces"

Listed = tuple[str, int, int]  # a picture or zip: path below the data path, bytes, mtime in ns
Picture = tuple[str, str]  # path below the data path, and the member if that is a zip, else ""
Rejected = tuple[str, str]  # the printable name of an unreadable file, and the reason
Shape = tuple[int, int, int]  # height, width and channels of a face


@dataclasses.dataclass(frozen=True)
class Pack:
    """The decoded faces of one data path at one size."""

    pixels: np.ndarray  # (N, S, S, C), uint8, memory-mapped read-only; C is 3, or 1 for grey
    hashes: np.ndarray  # (N,), uint32, crc32 of each face's pixels
    rejected: int  # files skipped, listed in the folder's rejected.txt
    folder: Path
    # Features of the faces by file name, kept here if they cannot be written to the folder.
    unkept: dict[str, np.ndarray] = dataclasses.field(default_factory=dict, compare=False, repr=False)

    @property
    def digest(self) -> str:
        """A hash of 16 hexadecimal digits that identifies these faces at this size, wherever they are stored."""
        return hashlib.sha256(b"%d:" % self.pixels.shape[1] + self.hashes.astype("<u4").tobytes()).hexdigest()[:16]

    @property
    def many(self) -> bool:
        """True if there are enough faces to hold some out."""
        return len(self.hashes) >= LEAST_TO_HOLD_OUT

    def read(self, indices: np.ndarray) -> np.ndarray:
        """Read faces and verify their checksums: (len(indices), S, S, C), uint8.

        Raises:
            DataError: the faces were changed, or the file was truncated, so that reading it would crash the process.
        """
        path = self.folder / "faces.npy"
        cut = False
        with contextlib.suppress(OSError):  # a deleted file remains readable while it is open
            cut = path.stat().st_size < self.pixels.nbytes
        faces = self.pixels[:0] if cut else self.pixels[indices]
        if cut or [zlib.crc32(face) for face in faces] != self.hashes[indices].tolist():
            raise DataError(
                "{} was truncated or modified since it was packed; delete {}, and the next run or --resume packs "
                "the faces again",
                path,
                self.folder,
            )
        return faces

    def split(self, holdout: float) -> tuple[np.ndarray, np.ndarray]:
        """Split the faces by hash, so that equal faces stay together; fewer than 2,000 are not split.

        Returns the indices of the training faces and of the held-out faces, int64, ascending.
        """
        held = self.hashes < (holdout if self.many else 0.0) * 2.0**32
        return np.flatnonzero(~held).astype(np.int64), np.flatnonzero(held).astype(np.int64)


def open_pack(
    data_path: Path,
    image_size: int,
    packs: Path = config.PACKS,
    num_workers: int | None = None,
    log: Callable[[str], None] = print,
    channels: int = 3,
) -> Pack:
    """Open the pack of a data path, creating it first if needed, and delete packs not opened for 30 days.

    The data path is a folder, searched to any depth for pictures and zips of pictures; one zip; `synthetic`, the faces
    of `gan.data.synthetic`; or a torchvision dataset, torchvision:NAME:FOLDER. A face has 3 channels, or 1 for grey.
    `packs` is the folder of all packs; `num_workers` processes decode, by default one per core.

    Raises:
        DataError: there are fewer than two faces, the data path or pack cannot be read, or the pack cannot be written.
    """
    data_path = Path(os.path.expanduser(data_path))
    files = _find(data_path)
    shape = image_size, image_size, channels
    folder = packs / _key(files, image_size, channels)
    if not (folder / "pack.json").is_file():
        _make_pack(folder, data_path, files, shape, num_workers or processors.number(), log)
    with contextlib.suppress(OSError):  # read-only
        os.utime(folder)  # opened now
    pack = _load(folder)
    _describe(pack, data_path, log)
    _delete_unused(packs, log)
    return pack


def _load(folder: Path) -> Pack:
    try:
        about = json.loads((folder / "pack.json").read_text())
        pixels = np.load(folder / "faces.npy", mmap_mode="r")
        return Pack(pixels, np.load(folder / "hashes.npy"), about["rejected"], folder)
    except (OSError, EOFError, ValueError, KeyError) as error:
        raise _damaged(folder, error) from error


def _damaged(folder: Path, error: Exception) -> DataError:
    return DataError("the pack {} is damaged ({}); delete it, and the next run makes it again", folder, error)


def _describe(pack: Pack, data_path: Path, log: Callable[[str], None]) -> None:
    """Report the content of a pack, and how to remove duplicates and unreadable files."""
    n, size = pack.pixels.shape[:2]
    if data_path == SYNTHETIC:
        log(text("{:,} synthetic faces of {}x{} pixels, packed in {}").format(n, size, size, pack.folder))
    else:
        line = text("{:,} faces of {}x{} pixels from {}, packed in {}")
        log(line.format(n, size, size, data_path, pack.folder))
    if pack.rejected:
        names, said = pack.folder / "rejected.txt", text("files rejected: {:,}").format(pack.rejected)
        with contextlib.suppress(OSError, ValueError):
            lines = [line.split("\t", 1) for line in names.read_text(encoding="utf-8").splitlines()]
            told = listing.told((name, why) for name, why in lines)
            said = text("files rejected: {:,}: {}").format(pack.rejected, told)
        line = text(
            "{}; {} names them and the reasons; if the disk or the network was at fault, delete {}, and the next run "
            "tries them again"
        )
        log(line.format(said, names, pack.folder))
    copies = n - len(np.unique(pack.hashes))  # by checksum, without reading pixels
    copied = data_path != SYNTHETIC and copies > n**2 / 2**33  # more than the expected number of hash collisions
    if copied:
        log(text("exact duplicates of other faces: {:,}").format(copies))
    if (pack.rejected or copied) and data_path.exists():
        line = text("to remove them and other useless pictures: python prepare.py {} --out=FOLDER")
        log(line.format(as_word(data_path)))


def _delete_unused(packs: Path, log: Callable[[str], None]) -> None:
    """Delete packs not opened for 30 days and the remains of killed processes, and report the packs.

    A folder to which pictures are added gets a new pack each time, and its old ones would otherwise stay forever. A
    process that has a deleted pack open goes on reading it.
    """
    until = time.time() - 86_400 * UNUSED_DAYS
    for left in packs.glob(".*.lock"):
        tidy(packs / re.sub(r"^\.|-[0-9a-f]{8}\.lock$", "", left.name))
    for folder in sorted(packs.glob("[0-9a-f]" * 16)):  # empty if the folder may not be listed
        with contextlib.suppress(OSError):  # it cannot be deleted, or on Windows it is in use
            if folder.is_dir() and folder.stat().st_mtime <= until:
                with folder_beside(folder) as place:  # so that other processes find no pack rather than half of one
                    folder.rename(place / "unused")
                log(text("deleted the pack {}, which had not been opened for {} days").format(folder, UNUSED_DAYS))


def names_of(pack: Pack) -> list[str]:
    """Return the file of each face of a pack: its path below the data path, with the path inside a zip appended.

    Raises:
        DataError: they cannot be read.
    """
    try:
        return json.loads((pack.folder / "names.json").read_text())
    except (OSError, ValueError) as error:
        raise _damaged(pack.folder, error) from error


def _key(files: list[Listed], image_size: int, channels: int) -> str:
    """Return the name of the pack of these files."""
    key = [PACK_VERSION, image_size, files, *([channels] if channels != 3 else [])]
    return hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]


def has_faces(data_path: Path) -> bool:
    """Return whether a data path has any file that could be a face."""
    try:
        return bool(_find(data_path))
    except DataError:
        return False


def _find(data_path: Path) -> list[Listed]:
    """List the pictures and zips of a data path, in order, without reading any of them."""
    if data_path == SYNTHETIC:
        return [(str(SYNTHETIC), synthetic.FACES, synthetic.VERSION)]
    if torchvision_data.is_dataset(data_path):
        name, folder = torchvision_data.split(data_path)
        return [(name, 0, 0), *_below(folder, every=True)]
    try:
        is_folder = stat.S_ISDIR(os.stat(data_path).st_mode)
    except OSError as error:
        what, give = listing.why_closed(error), text(GIVE)
        if data_path == BOOK_FACES:
            give = text("where to download the book's faces: docs/from-the-book.md")
        raise DataError("{} {}; expected a folder of pictures or a zip; {}", data_path, what, give) from error
    if not is_folder:
        if data_path.suffix.lower() != ".zip":
            what = listing.why_unread(data_path.name) or text("a file but not a zip")
            raise DataError("{} is {}; expected a folder of pictures or a zip; {}", data_path, what, text(GIVE))
        return [_listed(str(data_path), data_path.name)]
    return _below(data_path)


def _below(root: Path, every: bool = False) -> list[Listed]:
    """List the files below a folder, all or those that may hold faces, and unreadable folders, in order."""
    try:
        names, passed = listing.files_below(root, links_out=True)
    except OSError as error:
        raise DataError(
            "cannot read {}: {}; expected a readable folder; change its permissions or {}",
            root,
            why(error),
            text(GIVE),
        ) from error
    names = (names if every else listing.sifted(root, names)[0]) + [folder.name for folder in passed]
    return [_listed(os.path.join(root, name), name) for name in sorted(names)]


def _listed(path: str, name: str) -> Listed:
    try:
        status = os.stat(path)
    except OSError:  # such as a broken link, which decoding will reject with a reason
        return name, 0, 0
    return name, status.st_size, status.st_mtime_ns


def _list_pictures(data_path: Path, files: list[Listed]) -> tuple[Path, list[Picture], list[Rejected]]:
    """Return the root of the pictures' paths, the pictures in `files` and in zips, in order, and what is rejected."""
    root, pictures, rejected = data_path, list[Picture](), list[Rejected]()
    if data_path == SYNTHETIC:
        pictures = [(str(seed), "") for seed in range(synthetic.FACES)]
    elif torchvision_data.is_dataset(data_path):
        pictures = [(str(index), "") for index in range(len(torchvision_data.open_dataset(data_path)))]
    else:
        root = data_path if data_path.is_dir() else data_path.parent
        for name, *_ in files:
            if why := listing.why_unread(name):
                rejected.append((printable(name), why))
                continue
            if not name.lower().endswith(".zip"):
                pictures.append((name, ""))
                continue
            try:
                members, passed, _ = listing.members(root / name)
            except Exception as error:
                if root != data_path:
                    raise DataError(
                        "{} is not a readable zip ({}); expected a folder of pictures or a zip; {}",
                        data_path,
                        reason(error),
                        text(GIVE),
                    ) from error
                rejected.append((printable(name), reason(error)))
                continue
            pictures += [(name, member.name) for member in members]
            rejected += [(printable(f"{name}/{member.name}"), member.why) for member in passed]
    if not pictures:
        found = text("looked at any depth and in zips")
        if rejected:
            found = text("not read: {}").format(listing.told(rejected))
        raise DataError("no pictures in {}; {}; put faces there or {}", data_path, found, text(GIVE))
    return root, pictures, rejected


class _PackedMeanwhileError(Exception):
    """Another process has made the same pack."""


def _make_pack(
    folder: Path, data_path: Path, files: list[Listed], shape: Shape, workers: int, log: Callable[[str], None]
) -> None:
    """Decode files into the pack `folder`, atomically: it appears complete or not at all."""
    try:
        root, pictures, rejected = _list_pictures(data_path, files)
        need = len(pictures) * (math.prod(shape) + 4)
        if data_path == SYNTHETIC:
            log(text("making {:,} synthetic faces into {:,.1f} MB in {}").format(len(pictures), need / 1e6, folder))
        else:
            line = text("found {:,} pictures in {}; packing them into {:,.1f} MB in {}")
            log(line.format(len(pictures), data_path, need / 1e6, folder))
        folder.parent.mkdir(parents=True, exist_ok=True)
        if (free := shutil.disk_usage(folder.parent).free) < need + RESERVE:
            raise DataError(
                "no room for the pack: {:,.0f} MB free on the disk of {}, {:,.0f} MB needed; free some, or run "
                "from a folder on another disk",
                free / 1e6,
                folder.parent,
                (need + RESERVE) / 1e6,
            )
        with replacing_folder(folder) as unfinished:
            hashes, names, broken = _write_faces(unfinished / "faces.npy", root, pictures, shape, workers, log)
            rejected += broken
            if len(hashes) < 2:
                raise DataError(
                    "{} of {:,} pictures in {} can be read, expected at least 2, and better thousands{}; add some "
                    "or {}",
                    len(hashes),
                    len(hashes) + len(rejected),
                    data_path,
                    text("; not read: {}").format(listing.told(rejected)) if rejected else "",
                    text(GIVE),
                )
            if rejected:
                lines = "".join(f"{name}\t{why}\n" for name, why in rejected)
                (unfinished / "rejected.txt").write_text(lines, encoding="utf-8")
            np.save(unfinished / "hashes.npy", np.array(hashes, np.uint32))
            (unfinished / "names.json").write_text(json.dumps(names))
            about = {"source": str(data_path), "image_size": shape[0], "faces": len(hashes), "rejected": len(rejected)}
            (unfinished / "pack.json").write_text(json.dumps({"version": PACK_VERSION, **about}))
            for path in unfinished.iterdir():
                with path.open("rb+") as file:
                    os.fsync(file.fileno())
            if (folder / "pack.json").is_file():
                raise _PackedMeanwhileError
    except _PackedMeanwhileError:
        pass
    except OSError as error:  # from writing; errors of reading pictures are caught where they are read
        raise DataError(
            "cannot write the pack of {} to {}: {}; expected a writable folder with room; change that, or run "
            "from another folder",
            data_path,
            folder.parent,
            why(error),
        ) from error
    finally:
        torchvision_data.open_dataset.cache_clear()


def _write_faces(
    path: Path, root: Path, pictures: list[Picture], shape: Shape, workers: int, log: Callable[[str], None]
) -> tuple[list[int], list[str], list[Rejected]]:
    """Decode pictures into an .npy file. Return the crc32 and name of each face in it, and the rejected pictures."""
    hashes, names = list[int](), list[str]()
    rejected: list[Rejected] = []
    work = [(root, pictures[i : i + CHUNK], shape) for i in range(0, len(pictures), CHUNK)]
    with (
        path.open("wb") as out,
        contextlib.closing(in_processes(_decode, work, workers)) as done,
        tqdm(desc=text("packing"), total=len(pictures), unit=text(" faces"), disable=None) as bar,
    ):
        _write_header(out, 0, shape)
        said = time.monotonic()
        for pixels, crcs, named, broken in done:
            out.write(pixels)
            hashes += crcs
            names += named
            rejected += broken
            bar.update(len(crcs) + len(broken))
            if bar.disable and time.monotonic() - said > 10:
                said = time.monotonic()
                log(text("packed {:,} of {:,}").format(len(hashes), len(pictures)))
        _write_header(out, len(hashes), shape)
    return hashes, names, rejected


def _write_header(file: BinaryIO, faces: int, shape: Shape) -> None:
    """Write the header of an .npy file. NumPy pads it, so its length is the same for any number of faces."""
    file.seek(0)
    about = {"descr": "|u1", "fortran_order": False, "shape": (faces, *shape)}
    np.lib.format.write_array_header_1_0(file, about)


def _decode(root: Path, pictures: list[Picture], shape: Shape) -> tuple[bytes, list[int], list[str], list[Rejected]]:
    """Decode pictures. Return the pixels of the faces, the crc32 and name of each, and the rejected pictures."""
    faces, names = list[bytes](), list[str]()
    rejected: list[Rejected] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        for name, member in pictures:
            whole = f"{name}/{member}" if member else name
            try:
                with _open(root, name, member, shape[0]) as image:
                    faces.append(_face(image, shape).tobytes())
            except Exception as error:
                rejected.append((printable(whole), reason(error)))
            else:
                names.append(whole)
    return b"".join(faces), [zlib.crc32(face) for face in faces], names, rejected


def of_picture(image: Image.Image, image_size: int, channels: int) -> np.ndarray:
    """Convert a Pillow image in the same way as training faces: (S, S, C) uint8."""
    shape = image_size, image_size, channels
    return np.array(_face(image.copy(), shape)).reshape(shape)


def _open(root: Path, name: str, member: str, image_size: int) -> Image.Image:
    """Open one picture of a data path, without decoding it yet."""
    if root == SYNTHETIC:
        return Image.fromarray(synthetic.draw(int(name), image_size)[0])
    if torchvision_data.is_dataset(root):
        return torchvision_data.picture(root, int(name))
    return Image.open(source(root / name, member), formats=FORMATS)


def _face(image: Image.Image, shape: Shape) -> Image.Image:
    """Return the centre square of a picture's first frame, upright, on white, in the size and channels of `shape`."""
    image_size, _, channels = shape
    image.draft(None, (2 * image_size, 2 * image_size))  # decodes a large JPEG faster, at a fraction of its size
    image = upright(image).convert("RGB" if channels == 3 else "L")
    return image.resize((image_size, image_size), Image.Resampling.LANCZOS, square(image.size))
