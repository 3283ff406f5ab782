"""Packs of faces: finding, decoding, packing, and everything that can be wrong with a pile of pictures."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import io
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
import types
import warnings
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock
from PIL import Image

from config import SYNTHETIC, DataError
from gan.data import faces, pictures
from gan.data.faces import Pack, open_pack

ROOT = Path(__file__).resolve().parents[2]
SIZE = 32
DROPPED = "-dac_override,-dac_read_search"


def silent(_: str) -> None:
    """Take what a pack says and drop it."""


def random_picture(seed: int, width: int = SIZE, height: int = SIZE) -> Image.Image:
    """A smooth random picture, RGB, which lossy formats keep well."""
    coarse = np.random.default_rng(seed).integers(0, 256, (3, 3, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)


def put(folder: Path, *names: str) -> Path:
    """Write a random picture under each name, its seed being its index; Pillow takes the format from the suffix."""
    for seed, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        random_picture(seed).save(path)
    return folder


def encoded(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def put_zip(path: Path, members: dict[str, bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def packed(folder: Path, size: int = SIZE, **options: object) -> Pack:
    """The pack of a folder, kept beside it."""
    return open_pack(folder, size, folder.parent / "packs", **{"num_workers": 1, "log": silent, **options})  # pyright: ignore[reportArgumentType]


def one_face(folder: Path, data: bytes, size: int = SIZE, name: str = "a.png") -> np.ndarray:
    """The pixels that a file comes to, (size, size, 3), as int so that differences have a sign."""
    folder.mkdir()
    (folder / name).write_bytes(data)
    random_picture(99).save(folder / "z.png")
    pack = packed(folder, size)
    assert pack.rejected == 0
    return pack.pixels[0].astype(int)


def assert_near(found: np.ndarray, expected: object, tolerance: float) -> None:
    """Every value is within a tolerance on both sides, and they are not off to one side on average."""
    difference = found - np.asarray(expected, dtype=float)
    assert np.abs(difference).max() <= tolerance
    assert abs(difference.mean()) <= tolerance / 4 + 0.5


# --- what is in a file


@pytest.mark.parametrize(
    ("kind", "options", "tolerance"),
    [
        ("PNG", {}, 0),
        ("BMP", {}, 0),
        ("TIFF", {}, 0),
        ("WEBP", {"lossless": True}, 0),
        ("WEBP", {"quality": 95}, 24),
        ("JPEG", {"quality": 98, "subsampling": 0}, 6),
        ("JPEG", {"quality": 98, "subsampling": 0, "progressive": True}, 6),
        ("GIF", {}, 40),
        pytest.param("AVIF", {"quality": 95}, 24, marks=pytest.mark.skipif(not pictures.AVIF, reason="no AVIF here")),
    ],
)
def test_each_format_gives_its_pixels(tmp_path: Path, kind: str, options: dict, tolerance: int) -> None:
    suffix = {"TIFF": "jpg"}.get(kind, kind.lower())  # also where the name is wrong
    found = one_face(tmp_path / "faces", encoded(random_picture(5), kind, **options), name=f"a.{suffix}")
    assert_near(found, np.asarray(random_picture(5)), tolerance)


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG"])
def test_first_frame_of_an_animation(tmp_path: Path, kind: str) -> None:
    red, blue = Image.new("RGB", (SIZE, SIZE), "red"), Image.new("RGB", (SIZE, SIZE), "blue")
    data = encoded(red, kind, save_all=True, append_images=[blue], duration=100)
    assert_near(one_face(tmp_path / "faces", data), np.broadcast_to((255, 0, 0), (SIZE, SIZE, 3)), 4)


def flat(mode: str, colour: object, **info: object) -> Image.Image:
    image = Image.new(mode, (SIZE, SIZE), colour)  # pyright: ignore[reportArgumentType]
    image.info.update(info)
    return image


def palette(alpha: bytes | int | None = None) -> Image.Image:
    image = Image.new("P", (SIZE, SIZE), 1)
    image.putpalette([0, 0, 0, 200, 100, 50])
    if alpha is not None:
        image.info["transparency"] = alpha
    return image


@pytest.mark.parametrize(
    ("image", "kind", "colour"),
    [
        (flat("L", 77), "PNG", (77, 77, 77)),
        (flat("L", 77), "JPEG", (77, 77, 77)),
        (flat("1", 1), "PNG", (255, 255, 255)),
        (flat("1", 0), "PNG", (0, 0, 0)),
        (palette(), "PNG", (200, 100, 50)),
        (palette(), "GIF", (200, 100, 50)),
        (palette(), "BMP", (200, 100, 50)),
        (palette(b"\xff\x00"), "PNG", (255, 255, 255)),
        (palette(b"\xff\x80"), "PNG", (227, 177, 152)),
        (palette(1), "GIF", (255, 255, 255)),
        (flat("RGBA", (255, 0, 0, 0)), "PNG", (255, 255, 255)),
        (flat("RGBA", (200, 0, 100, 51)), "PNG", (244, 204, 224)),
        (flat("RGBA", (200, 0, 100, 255)), "PNG", (200, 0, 100)),
        (flat("RGBA", (255, 0, 0, 0)), "WEBP", (255, 255, 255)),
        (flat("LA", (100, 51)), "PNG", (224, 224, 224)),
        (flat("L", 77), "PNG transparency=77", (255, 255, 255)),
        (flat("RGB", (1, 2, 3)), "PNG transparency=(1, 2, 3)", (255, 255, 255)),
        (flat("RGB", (1, 2, 4)), "PNG transparency=(1, 2, 3)", (1, 2, 4)),
        (flat("CMYK", (0, 255, 255, 0)), "TIFF", (255, 0, 0)),
        (flat("CMYK", (0, 255, 255, 0)), "JPEG", (255, 0, 0)),
        (flat("CMYK", (0, 0, 0, 155)), "JPEG", (100, 100, 100)),
        (flat("YCbCr", (76, 85, 255)), "JPEG", (254, 0, 0)),
        (flat("I;16", 0), "PNG", (0, 0, 0)),
        (flat("I;16", 200), "PNG", (1, 1, 1)),
        (flat("I;16", 0x8000), "PNG", (128, 128, 128)),
        (flat("I;16", 65535), "PNG", (255, 255, 255)),
        (flat("I", 25700), "TIFF", (100, 100, 100)),
        (flat("F", 0.4), "TIFF", (102, 102, 102)),
        (flat("F", 102.3), "TIFF", (102, 102, 102)),
        (flat("F", float("nan")), "TIFF", (0, 0, 0)),
    ],
    ids=lambda value: value.mode if isinstance(value, Image.Image) else str(value),
)
def test_each_mode_becomes_rgb_on_white(tmp_path: Path, image: Image.Image, kind: str, colour: tuple) -> None:
    kind, _, option = kind.partition(" transparency=")
    options: dict = {"transparency": image.info["transparency"]} if "transparency" in image.info else {}
    if option:
        options["transparency"] = tuple(map(int, option.strip("()").split(","))) if "," in option else int(option)
    found = one_face(tmp_path / "faces", encoded(image, kind, **options))
    assert_near(found, np.broadcast_to(colour, (SIZE, SIZE, 3)), 3 if kind in ("JPEG", "WEBP") else 1)


def test_palette_with_alpha_which_no_writer_of_pillow_makes() -> None:
    image = Image.new("PA", (SIZE, SIZE), (1, 51))
    image.putpalette([0, 0, 0, 200, 100, 50])
    assert_near(np.asarray(faces._face(image, (SIZE, SIZE, 3))), np.broadcast_to((244, 224, 214), (SIZE, SIZE, 3)), 1)


def test_16_bit_grey_keeps_its_ramp(tmp_path: Path) -> None:
    ramp = np.tile(np.linspace(0, 65535, SIZE).astype(np.uint16), (SIZE, 1))
    found = one_face(tmp_path / "faces", encoded(Image.fromarray(ramp)))
    assert_near(found, np.repeat(ramp[..., None] / 257, 3, axis=2), 0.5)


def test_float_grey_with_holes(tmp_path: Path) -> None:
    grey = np.full((SIZE, SIZE), 0.4, np.float32)
    grey[:16] = np.nan
    found = one_face(tmp_path / "faces", encoded(Image.fromarray(grey), "TIFF"))
    assert_near(found, np.repeat([[[0]], [[102]]], 16, axis=0), 0.5)


def test_alpha_is_composited_before_shrinking(tmp_path: Path) -> None:
    pixels = np.zeros((2 * SIZE, 2 * SIZE, 4), np.uint8)  # black under transparent must not bleed into opaque red
    pixels[:, ::2] = (255, 0, 0, 255)
    found = one_face(tmp_path / "faces", encoded(Image.fromarray(pixels)))[4:-4, 4:-4]
    assert_near(found, np.broadcast_to((255, 127.5, 127.5), found.shape), 4)


STORED: dict[int, Callable[[np.ndarray], np.ndarray]] = {  # how a camera stores what is to be seen upright
    1: lambda seen: seen,
    2: np.fliplr,
    3: lambda seen: np.rot90(seen, 2),
    4: np.flipud,
    5: lambda seen: seen.swapaxes(0, 1),
    6: lambda seen: np.rot90(seen, 1),
    7: lambda seen: np.rot90(seen, 2).swapaxes(0, 1),
    8: lambda seen: np.rot90(seen, -1),
}


@pytest.mark.parametrize("orientation", STORED)
def test_exif_rotation(tmp_path: Path, orientation: int) -> None:
    seen = np.asarray(random_picture(3, 48, SIZE))
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = Image.fromarray(np.ascontiguousarray(STORED[orientation](seen)))
    assert_near(one_face(tmp_path / "png", encoded(stored, exif=exif)), seen[:, 8:40], 0)
    jpeg = encoded(stored.resize((stored.width * 9, stored.height * 9)), "JPEG", exif=exif, quality=98, subsampling=0)
    assert_near(one_face(tmp_path / "jpg", jpeg, name="a.jpg"), seen[:, 8:40], 60)


@pytest.mark.parametrize("exif", [b"Exif\0\0garbage!", b"Exif\0\0II*\0\x08\0\0\0\xff\xff\x12\x01"])
def test_broken_exif_costs_no_face_and_warns_nobody(tmp_path: Path, exif: bytes) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = one_face(tmp_path / "faces", encoded(random_picture(1), exif=exif))
    assert_near(found, np.asarray(random_picture(1)), 0)
    assert not caught


def test_a_photo_is_turned_even_where_its_exif_cannot_be_written_again(tmp_path: Path) -> None:
    seen = np.asarray(random_picture(3, 48, SIZE))
    width = struct.pack("<HHIi", 0x0100, 9, 1, -1)  # Pillow reads it, but does not write it
    turn = struct.pack("<HHIHH", 0x0112, 3, 1, 6, 0)
    exif = b"Exif\0\0II*\0\x08\0\0\0\x02\0" + width + turn + bytes(4)
    stored = Image.fromarray(np.ascontiguousarray(STORED[6](seen)))
    assert_near(one_face(tmp_path / "png", encoded(stored, exif=exif)), seen[:, 8:40], 0)
    (tmp_path / "own.png").write_bytes(encoded(stored, exif=exif))
    own = faces.of_picture(pictures.whole(tmp_path / "own.png"), SIZE, 3)  # and no second time
    assert_near(own, seen[:, 8:40], 0)


# --- geometry


@pytest.mark.parametrize(("width", "left"), [(SIZE, 0), (SIZE + 1, 0), (SIZE + 20, 10), (3 * SIZE, SIZE)])
def test_centre_crop(tmp_path: Path, width: int, left: int) -> None:
    wide = np.asarray(random_picture(2, width, SIZE))
    assert_near(one_face(tmp_path / "wide", encoded(Image.fromarray(wide))), wide[:, left : left + SIZE], 0)
    tall = np.ascontiguousarray(wide.swapaxes(0, 1))
    assert_near(one_face(tmp_path / "tall", encoded(Image.fromarray(tall))), tall[left : left + SIZE], 0)


def test_shrinking_averages_the_centre(tmp_path: Path) -> None:
    ramp = np.broadcast_to(np.arange(192, dtype=np.uint8)[None, :, None], (128, 192, 3))  # value = column
    found = one_face(tmp_path / "faces", encoded(Image.fromarray(np.ascontiguousarray(ramp))))
    expected = 32 + 4 * np.arange(SIZE) + 1.5
    assert_near(found, np.broadcast_to(expected[None, :, None], (SIZE, SIZE, 3)), 1)


def test_shrinking_does_not_alias(tmp_path: Path) -> None:
    board = (np.indices((4 * SIZE, 4 * SIZE)).sum(0) % 2 * 255).astype(np.uint8)
    assert_near(one_face(tmp_path / "faces", encoded(Image.fromarray(board))), np.full((SIZE, SIZE, 3), 127.5), 6)


@pytest.mark.parametrize("size", [8, 32])
def test_large_jpeg(tmp_path: Path, size: int) -> None:
    large = random_picture(4, 1600, 1200)
    found = one_face(tmp_path / "faces", encoded(large, "JPEG", quality=95), size, "a.jpg")
    expected = large.crop((200, 0, 1400, 1200)).resize((size, size), Image.Resampling.BOX)
    assert_near(found, np.asarray(expected), 8)


def test_small_picture_is_enlarged(tmp_path: Path) -> None:
    found = one_face(
        tmp_path / "faces", encoded(random_picture(6).resize((SIZE // 2, SIZE // 2), Image.Resampling.BOX))
    )
    inner = slice(4, -4)
    assert_near(found[inner, inner], np.asarray(random_picture(6))[inner, inner], 24)


# --- where pictures are


def in_zip(folder: Path, name: str, *members: str) -> None:
    put_zip(folder / name, {member: encoded(random_picture(seed)) for seed, member in enumerate(members)})


@pytest.mark.parametrize(
    ("names", "data_path"),
    [
        (["faces/0.jpg", "faces/1.jpg", "faces/2.jpg"], "."),
        (["faces/0.jpg", "faces/1.jpg", "faces/2.jpg"], "faces"),
        (["blue/0.png", "green/0.png", "red/0.png"], "."),
        (["a/b/c/d/e/0.png", "a/b/c/z.webp", "b.png"], "."),
        (["0.JPG", "1.Jpeg", "2.PnG", "3.WEBP", "4.BMP", "5.gif"], "."),
        (["带空格 的/é.png", "带空格 的/ü.png"], "."),
    ],
)
def test_folder_layouts(tmp_path: Path, names: list[str], data_path: str) -> None:
    put(tmp_path / "data", *names)
    (tmp_path / "data" / "readme.txt").write_text("not a picture")
    pack = packed(tmp_path / "data" / data_path)
    assert pack.pixels.shape == (len(names), SIZE, SIZE, 3)
    assert pack.pixels.dtype == np.uint8
    assert pack.rejected == 0
    for seed in range(len(names)):  # the order of their names
        assert_near(pack.pixels[seed].astype(int), np.asarray(random_picture(seed)), 60)


def test_zip_and_folder_of_zips(tmp_path: Path) -> None:
    data = tmp_path / "data"
    in_zip(data, "one.zip", "x/0.png", "x/1.png", "x/note.txt")
    in_zip(data, "sub/two.ZIP", "./2.png", "3.PNG")  # as tar writes members
    put(data / "z", "0.png", "1.png", "2.png")
    assert [zlib.crc32(face.tobytes()) for face in packed(data).pixels] == [
        zlib.crc32(random_picture(seed).tobytes()) for seed in (0, 1, 0, 1, 0, 1, 2)
    ]
    assert len(packed(data / "one.zip").pixels) == 2
    assert len(packed(data / "sub").pixels) == 2


def test_previews_of_runs_are_no_faces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "0.png", "1.png", "checkpoints/a/samples/step-00000000.png", "more/checkpoints/2.png")
    monkeypatch.chdir(tmp_path)
    assert len(open_pack(Path(), SIZE, tmp_path / "packs", log=silent).pixels) == 3
    assert len(open_pack(tmp_path, SIZE, tmp_path / "packs", log=silent).pixels) == 3


def test_hidden_files_and_what_macos_adds_are_skipped(tmp_path: Path) -> None:
    data = put(tmp_path / ".data", "0.png", "1.png", ".hidden.png", ".packs/x.png", "__MACOSX/0.png")
    in_zip(data, "a.zip", "0.png", "__MACOSX/0.png", "__MACOSX/._0.png", ".git/0.png", "._0.png")
    in_zip(data, "._a.zip", "0.png")
    pack = open_pack(data, SIZE, data / ".packs", 1, silent)
    assert (len(pack.pixels), pack.rejected) == (3, 0)
    assert pack.folder.parent == data / ".packs"


def test_links_are_followed_once(tmp_path: Path) -> None:
    data = put(tmp_path / "data", "a/0.png", "a/1.png")
    put(tmp_path / "elsewhere", "2.png")
    (data / "a" / "up").symlink_to(data)
    (data / "a" / "self").symlink_to(data / "a")
    (data / "b").symlink_to(tmp_path / "elsewhere")
    (data / "c.png").symlink_to(data / "c.png")
    (data / "d.png").symlink_to(data / "gone.png")
    pack = packed(data)
    assert (len(pack.pixels), pack.rejected) == (3, 2)


def test_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    put(tmp_path / "faces", "0.png", "1.png")
    assert len(open_pack(Path("~/faces"), SIZE, tmp_path / "packs", 1, silent).pixels) == 2


# --- bad files


def test_broken_files_are_left_out_counted_and_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 50 * 50)
    monkeypatch.setattr(pictures, "LARGEST_MEMBER", 100_000)
    monkeypatch.setattr(faces, "CHUNK", 4)
    data = put(tmp_path / "data", "a.png", "m.png", "y.png", "z.png")
    whole = {kind: encoded(Image.effect_noise((48, 48), 99), kind) for kind in ("JPEG", "PNG", "WEBP", "GIF", "BMP")}
    bad = {f"cut-{kind}.{kind.lower()}": content[: len(content) * 2 // 3] for kind, content in whole.items()}
    bad |= {
        "empty.png": b"",
        "text.jpg": b"hello",
        "bomb-1.png": encoded(random_picture(0, 60, 60)),
        "bomb-2.png": encoded(random_picture(0, 90, 90)),
        "starts-a-program.png": encoded(random_picture(0), "EPS"),
        "no.zip": b"no zip",
        "tab\tline\n.png": b"",
    }
    for name, content in bad.items():
        (data / name).write_bytes(content)
    os.mkfifo(data / "pipe.png")
    archive = put_zip(
        data / "q.zip",
        {"big.bmp": bytes(200_000), "bad.png": encoded(random_picture(7)), "ok.png": encoded(random_picture(8))},
    )
    archive.write_bytes(archive.read_bytes().replace(encoded(random_picture(7))[-40:], bytes(40)))
    secret = put_zip(data / "r.zip", {"secret.png": encoded(random_picture(9))})
    content = bytearray(secret.read_bytes())
    content[content.index(b"PK\x03\x04") + 6] |= 1  # flag: encrypted
    content[content.index(b"PK\x01\x02") + 8] |= 1
    secret.write_bytes(content)

    said: list[str] = []
    pack = packed(data, log=said.append)
    assert [face.tobytes() for face in pack.pixels] == [random_picture(seed).tobytes() for seed in (0, 1, 8, 2, 3)]
    assert pack.hashes.tolist() == [zlib.crc32(face.tobytes()) for face in pack.pixels]
    assert (pack.folder / "faces.npy").stat().st_size == 128 + 5 * SIZE * SIZE * 3
    lines = (pack.folder / "rejected.txt").read_text(encoding="utf-8").splitlines()
    reasons = dict(line.split("\t") for line in lines)
    expected = (bad.keys() - {"tab\tline\n.png"}) | {
        r"tab\tline\n.png",
        "pipe.png",
        "q.zip/big.bmp",
        "q.zip/bad.png",
        "r.zip/secret.png",
    }
    assert reasons.keys() == expected
    assert pack.rejected == len(lines) == len(expected)
    assert "truncated" in reasons["cut-JPEG.jpeg"]
    assert reasons["text.jpg"] == reasons["starts-a-program.png"] == "not a picture of a known format"
    assert "bomb" in reasons["bomb-1.png"]
    assert "bomb" in reasons["bomb-2.png"]
    assert reasons["r.zip/secret.png"] == "it has a password: unpack it first"
    assert "CRC" in reasons["q.zip/bad.png"]
    assert "0 MB" in reasons["q.zip/big.bmp"]
    assert all(reasons.values())
    for again in (said, said[:0]):
        packed(data, log=again.append)
        assert f"files rejected: {len(expected)}: " in again[-2]
        assert f", ...; {pack.folder / 'rejected.txt'}" in again[-2].replace("; ...", ", ...")
        assert f"python prepare.py {data} --out=FOLDER" in again[-1]


@pytest.mark.parametrize(("copies", "said"), [(4, False), (5, True)])
def test_equal_checksums_are_duplicates_if_more_than_chance_makes(
    tmp_path: Path, copies: int, said: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    data = Path("zoo")  # after "synthetic"
    data.mkdir()
    n = 200_000  # of so many different faces, 4.66 pairs have the same checksum
    hashes = np.concatenate([np.arange(n - copies), np.zeros(copies)]).astype(np.uint32)
    told = list[str]()
    faces._describe(Pack(np.zeros((n, 1, 1, 1), np.uint8), hashes, 0, tmp_path), data, told.append)
    assert told[0] == f"200,000 faces of 1x1 pixels from zoo, packed in {tmp_path}"
    assert ("exact duplicates of other faces: 5" in told) == said
    assert len(told) == (3 if said else 1)


def test_no_list_where_nothing_was_rejected(tmp_path: Path) -> None:
    pack = packed(put(tmp_path / "data", "0.png", "1.png"))
    assert not (pack.folder / "rejected.txt").exists()
    assert json.loads((pack.folder / "pack.json").read_text()) == {
        "version": faces.PACK_VERSION,
        "source": str(tmp_path / "data"),
        "image_size": SIZE,
        "faces": 2,
        "rejected": 0,
    }


def refused(data_path: Path, log: Callable[[str], None] = silent) -> str:
    """The message of the DataError that a data path earns: one line, which leaves no pack behind."""
    with pytest.raises(DataError) as caught:
        packed(data_path, log=log)
    packs = data_path.parent / "packs"
    assert not packs.is_dir() or not [path for path in packs.iterdir() if path.is_dir()]
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("good", [0, 1])
def test_too_few_readable(tmp_path: Path, good: int) -> None:
    data = put(tmp_path / "data", *["0.png"][:good])
    data.mkdir(exist_ok=True)
    for name in ("x.png", "y.png"):
        (data / name).write_bytes(b"broken")
    message = refused(data)
    assert f"{good} of {2 + good} pictures in {data} can be read, expected at least 2" in message
    assert "not read: x.png and 1 more (not a picture of a known format)" in message
    assert "give another folder" in message
    assert not list((tmp_path / "packs").iterdir())


def test_no_pictures(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for prepare in (lambda: None, lambda: (data / "x.txt").touch(), lambda: in_zip(data, "a.zip", "b.txt/", "c/")):
        prepare()
        message = refused(data)
        assert f"no pictures in {data}" in message
        assert "looked at any depth and in zips" in message
        assert "give another folder" in message


def test_what_pillow_reads_is_read_whatever_its_name_also_in_a_zip(tmp_path: Path) -> None:
    kinds = "a.tif TIFF, b.ppm PPM, c.jpe JPEG, d.jpg_large JPEG, e.ico ICO, f.jp2 JPEG2000, g.tga TGA, h PNG, i.1 WEBP"
    files = {name: encoded(random_picture(9), kind) for name, kind in map(str.split, kinds.split(", "))}
    others = {"notes.txt": b"P3 of the notes", "data.bin": b"BMx", "Readme": b"P6 is a format"}
    put_zip(tmp_path / "zips/a.zip", files | others)
    (tmp_path / "data").mkdir()
    for name, content in (files | others).items():
        (tmp_path / "data" / name).write_bytes(content)
    for data, prefix in ((tmp_path / "data", ""), (tmp_path / "zips", "a.zip/")):
        pack = packed(data)
        assert faces.names_of(pack) == [prefix + name for name in files]
        assert pack.rejected == 0
        assert np.abs(pack.pixels.astype(int) - np.asarray(random_picture(9))).mean(axis=(1, 2, 3)).max() < 12


def test_what_may_hold_faces_and_is_not_read_is_named_with_what_to_do(tmp_path: Path) -> None:
    data, said = put(tmp_path / "data", "0.png", "1.png"), list[str]()
    inner = put_zip(tmp_path / "in.zip", {"0.png": encoded(random_picture(3))}).read_bytes()
    put_zip(data / "outer.zip", {"in.zip": inner})
    for name in ("faces.tar.gz", "more.tgz", "faces.zip.part", "train-0.parquet"):
        (data / name).write_bytes(b"-")
    assert packed(data, log=said.append).rejected == 5
    assert "faces.tar.gz and 1 more (an archive: unpack it first); " in said[-2]
    assert "outer.zip/in.zip (a zip in a zip: unpack the outer one)" in "".join(said)
    alone = tmp_path / "alone" / "data"
    alone.mkdir(parents=True)
    shutil.copy(data / "more.tgz", alone)
    assert f"no pictures in {alone}; not read: more.tgz (an archive: unpack it first); " in refused(alone)
    assert faces.has_faces(alone)  # so that no run takes synthetic ones instead


def test_pictures_of_a_hugging_face_cache_are_read_once_by_the_names_of_the_links(tmp_path: Path) -> None:
    (tmp_path / "data/blobs").mkdir(parents=True)
    for i in range(3):
        (tmp_path / f"data/blobs/{i:064x}").write_bytes(encoded(random_picture(i)))
        (tmp_path / f"data/{i}.png").symlink_to(f"blobs/{i:064x}")
    assert faces.names_of(packed(tmp_path / "data")) == ["0.png", "1.png", "2.png"]


def test_one_face(tmp_path: Path) -> None:
    message = refused(put(tmp_path / "data", "0.png"))
    assert message.startswith("1 of 1 pictures in")
    assert "at least 2" in message
    assert "cannot" not in message


def test_synthetic_faces_are_packed_by_their_seeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faces.synthetic, "FACES", 5)
    pack = open_pack(SYNTHETIC, 16, tmp_path, num_workers=1, log=silent)
    expected = [faces.synthetic.draw(seed, 16)[0] for seed in range(5)]
    np.testing.assert_array_equal(pack.pixels, expected)


def test_a_data_path_has_faces_or_not(tmp_path: Path) -> None:
    assert faces.has_faces(put(tmp_path / "data", "a.png"))
    assert not faces.has_faces(tmp_path / "missing")
    (tmp_path / "empty").mkdir()
    assert not faces.has_faces(tmp_path / "empty")


def test_missing_data_path(tmp_path: Path) -> None:
    message = refused(tmp_path / "nowhere")
    assert f"{tmp_path / 'nowhere'} does not exist" in message
    assert "give another folder" in message
    assert not list(tmp_path.iterdir())


def test_the_books_faces_that_are_not_there_can_be_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "where to download the book's faces: docs/from-the-book.md" in refused(Path("data/faces"))


@pytest.mark.parametrize(
    ("name", "what"), [("0.png", "a file but not a zip"), ("a.tar", "an archive: unpack it first")]
)
def test_data_path_is_a_file_but_no_zip(tmp_path: Path, name: str, what: str) -> None:
    (tmp_path / name).write_bytes(encoded(random_picture(0)))
    assert f"{name} is {what}; expected a folder" in refused(tmp_path / name)


def test_corrupt_zip(tmp_path: Path) -> None:
    archive = put_zip(tmp_path / "data.zip", {f"{seed}.png": encoded(random_picture(seed)) for seed in range(3)})
    archive.write_bytes(archive.read_bytes()[:-30])
    message = refused(archive)
    assert f"{archive} is not a readable zip" in message
    assert "give another folder" in message


def without_privileges(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
    """Run a command to which permissions apply, also where the tests run as root."""
    if os.geteuid() == 0:
        if not shutil.which("setpriv"):
            pytest.skip("permissions do not bind root, and there is no setpriv")
        command = ["setpriv", "--bounding-set", DROPPED, "--inh-caps", DROPPED, *command]
    return subprocess.run(command, text=True, capture_output=True, timeout=300, **options)  # pyright: ignore


def pack_command(data: Path, packs: Path, before: str = "", options: str = "1") -> list[str]:
    """A process that packs, says DONE and the digest, or shows the DataError."""
    code = f"""
import signal, sys, time, pathlib; sys.path.insert(0, {str(ROOT)!r})
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
from gan.data import faces
{before}
try:
    pack = faces.open_pack(pathlib.Path({str(data)!r}), {SIZE}, pathlib.Path({str(packs)!r}), {options})
except faces.DataError as error:
    sys.exit(str(error))
print("DONE", pack.digest, len(pack.pixels), pack.rejected)
"""
    return [sys.executable, "-c", code]


@pytest.mark.parametrize("mode", [0o000, 0o300])
def test_unreadable_folder(tmp_path: Path, mode: int) -> None:
    data = put(tmp_path / "data", "0.png", "1.png")
    data.chmod(mode)
    result = without_privileges(pack_command(data, tmp_path / "packs"))
    data.chmod(0o755)
    assert result.returncode == 1
    assert result.stderr.startswith(f"cannot read {data}: Permission denied; expected")
    assert "give another folder" in result.stderr


def test_unreadable_files_and_subfolders_are_rejected(tmp_path: Path) -> None:
    data = put(tmp_path / "data", "0.png", "1.png", "locked/2.png", "3.png")
    (data / "3.png").chmod(0)
    (data / "locked").chmod(0)
    result = without_privileges(pack_command(data, tmp_path / "packs"))
    (data / "locked").chmod(0o755)
    assert result.stdout.split()[-2:] == ["2", "2"], result.stderr
    listing = next((tmp_path / "packs").glob("*/rejected.txt")).read_text()
    assert "3.png\tPermission denied\n" in listing
    assert "locked\t" in listing


def test_pack_folder_not_writable(tmp_path: Path) -> None:
    data, packs = put(tmp_path / "data", "0.png", "1.png"), tmp_path / "packs"
    packs.mkdir(mode=0o500)
    result = without_privileges(pack_command(data, packs))
    assert result.returncode == 1
    assert f"cannot write the pack of {data} to {packs}: Permission denied" in result.stderr
    packs.rmdir()
    packs.write_text("a file in the way")
    assert f"to {packs}: " in refused(data)


def test_disk_without_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = put(tmp_path / "data", "0.png", "1.png")
    need = 2 * (SIZE * SIZE * 3 + 4) + faces.RESERVE
    said: list[str] = []
    monkeypatch.setattr(shutil, "disk_usage", lambda _: types.SimpleNamespace(free=need - 1))
    message = refused(data, log=said.append)
    assert "no room" in message
    assert "67 MB free" in message
    assert "67 MB needed" in message
    assert said == [said[0]]
    assert "found 2 pictures" in said[0]
    monkeypatch.setattr(shutil, "disk_usage", lambda _: types.SimpleNamespace(free=need))
    assert len(packed(data).pixels) == 2


def test_disk_that_fills_up_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(faces, "_decode", full)
    assert "No space left on device" in refused(put(tmp_path / "data", "0.png", "1.png"))


def test_worker_that_dies() -> None:
    with pytest.raises(DataError, match="lower --num_workers"):
        list(pictures.in_processes(os._exit, [(1,)] * 10, 2))


@pytest.mark.skipif(sys.platform != "linux" or shutil.which("setpriv") is None, reason="root becomes another user")
@pytest.mark.parametrize("limit", range(1, 9))  # processes and threads of that user, this one's included
def test_fewer_processes_do_where_no_more_may_start(limit: int) -> None:
    code = (
        "import os, resource\n"
        "from gan.data import pictures\n"
        f"resource.setrlimit(resource.RLIMIT_NPROC, ({limit}, {limit}))\n"
        "print(*pictures.in_processes(os.path.join, [('a', str(i)) for i in range(12)], 4))"
    )
    user = ["setpriv", f"--reuid={61_234 + limit}", "--clear-groups"]  # root has no limit
    user += ["--inh-caps=+dac_override", "--ambient-caps=+dac_override"]  # Python may lie in root's home
    done = subprocess.run(
        [*(user if os.geteuid() == 0 else []), sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == [f"a/{i}" for i in range(12)], done.stderr


def test_what_goes_wrong_in_a_worker_goes_wrong_here() -> None:
    with pytest.raises(FileNotFoundError, match="gone"):
        list(pictures.in_processes(os.stat, [("gone",)] * 10, 2))


@pytest.mark.parametrize("name", ["faces.npy", "hashes.npy"])
def test_damaged_pack(tmp_path: Path, name: str) -> None:
    data = put(tmp_path / "data", "0.png", "1.png")
    path = packed(data).folder / name
    os.truncate(path, path.stat().st_size - 1)
    with pytest.raises(DataError, match=f"pack {path.parent} is damaged .*delete it"):
        packed(data)
    shutil.rmtree(path.parent)
    assert len(packed(data).pixels) == 2


@pytest.mark.parametrize("change", [1, -1])
def test_a_face_that_was_written_over_is_refused_whatever_its_new_checksum(tmp_path: Path, change: int) -> None:
    pack = packed(put(tmp_path / "data", "0.png", "1.png"))
    expected = dataclasses.replace(pack, hashes=np.array([pack.hashes[0], int(pack.hashes[1]) + change], np.uint32))
    assert len(expected.read(np.array([0]))) == 1
    with pytest.raises(DataError, match="was truncated or modified since it was packed"):
        expected.read(np.array([0, 1]))


# --- packs


def test_what_is_left_of_a_deleted_pack_is_in_no_new_one_s_way(tmp_path: Path) -> None:
    data = put(tmp_path / "data", "0.png", "1.png")
    folder = packed(data).folder
    for file in ("pack.json", "faces.npy", "hashes.npy", "names.json"):
        (folder / file).unlink()
    (folder / "features-old.npy").touch()
    assert len(packed(data).pixels) == 2


def test_a_pack_is_found_again_and_nothing_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = put(tmp_path / "data", "0.png", "1.png")
    in_zip(data, "a.zip", "0.png")
    said: list[str] = []
    first = packed(data, log=said.append)
    assert len(said) == 4  # what was found, the pack, a copy, and what to do about that
    assert f"found 3 pictures in {data}" in said[0]
    assert "0.0 MB" in said[0]
    assert str(first.folder) in said[0]
    assert not first.pixels.flags.writeable
    assert isinstance(first.pixels, np.memmap)
    for path in data.iterdir():  # other content of the same length and date goes unnoticed, as it is not read
        status = path.stat()
        path.write_bytes(bytes(status.st_size))
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    before = {path: path.stat().st_mtime_ns for path in first.folder.iterdir()}
    monkeypatch.setattr(faces, "_make_pack", None)
    again = packed(data, log=said.append)
    assert again.folder == first.folder
    assert again.digest == first.digest
    assert {path: path.stat().st_mtime_ns for path in first.folder.iterdir()} == before
    assert said[4:] == said[1:4]


def test_a_change_of_files_or_size_makes_another_pack(tmp_path: Path) -> None:
    data = put(tmp_path / "data", "0.png", "1.png", "2.png")
    packs = [packed(data), packed(data, 16)]
    status = (data / "0.png").stat()
    os.utime(data / "0.png", ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    packs.append(packed(data))
    (data / "2.png").rename(data / "3.png")
    packs.append(packed(data))
    (data / "3.png").unlink()
    packs.append(packed(data))
    status = (data / "0.png").stat()
    (data / "0.png").write_bytes((data / "0.png").read_bytes() + b"more")
    os.utime(data / "0.png", ns=(status.st_atime_ns, status.st_mtime_ns))
    packs.append(packed(data))
    assert len({pack.folder for pack in packs}) == 6
    assert [pack.pixels.shape[:2] for pack in packs] == [(3, 32), (3, 16), (3, 32), (3, 32), (2, 32), (2, 32)]


def test_packs_keep_their_names_and_the_order_of_their_faces(tmp_path: Path) -> None:
    data = put(tmp_path / "data", "b/0.png", "b.png", "a/z.png", "a/deep/1.png", "a.b/0.jpg", "B/0.png", "\u00e9.png")
    in_zip(data, "b/c.zip", "x/0.png", "./1.png", "..2.png", "a\\0.png")
    put(tmp_path / "elsewhere", "0.png")
    (data / "link").symlink_to(tmp_path / "elsewhere")
    (data / "link.png").symlink_to(data / "b.png")
    names = ["B/0.png", "a.b/0.jpg", "a/deep/1.png", "a/z.png", "b.png", "b/0.png", "b/c.zip", "link.png", "link/0.png"]
    names += ["\u00e9.png"]
    files = [(name, (data / name).stat().st_size, (data / name).stat().st_mtime_ns) for name in names]
    pack = packed(data)
    assert pack.folder.name == hashlib.sha256(json.dumps([2, SIZE, files]).encode()).hexdigest()[:16]
    expected = [*names[:6], "b/c.zip/./1.png", "b/c.zip/a\\0.png", "b/c.zip/x/0.png", *names[7:]]
    assert faces.names_of(pack) == expected
    assert pack.rejected == 0


def test_digest_is_of_the_pixels(tmp_path: Path) -> None:
    first = packed(put(tmp_path / "data", "0.png", "1.png"))
    copy = packed(put(tmp_path / "copy", "a/0.png", "a/1.png"))
    assert first.folder != copy.folder
    assert first.digest == copy.digest
    assert len(first.digest) == 16
    image = random_picture(1)
    image.putpixel((0, 0), (1, 2, 3))
    image.save(tmp_path / "copy" / "a" / "1.png")
    others = [packed(tmp_path / "copy"), packed(tmp_path / "data", 16)]
    larger = Pack(np.zeros((2, 2 * SIZE, 2 * SIZE, 3), np.uint8), first.hashes, 0, Path())
    assert len({first.digest, larger.digest, *(pack.digest for pack in others)}) == 4


def test_faces_are_read_as_they_were_packed(tmp_path: Path) -> None:
    pack = packed(put(tmp_path / "data", "0.png", "1.png", "2.png"))
    which = np.array([2, 0])
    before = pack.pixels[which].copy()
    os.utime(pack.folder / "faces.npy", (1, 1))  # a time says nothing about a face
    assert np.array_equal(pack.read(which), before)
    shutil.rmtree(pack.folder)
    assert np.array_equal(pack.read(which), before)  # who has opened a file keeps it


@pytest.mark.parametrize("cut", [True, False])
def test_faces_that_were_changed_are_not_read(tmp_path: Path, cut: bool) -> None:
    pack = packed(put(tmp_path / "data", "0.png", "1.png", "2.png"))
    path = pack.folder / "faces.npy"
    if cut:
        os.truncate(path, path.stat().st_size // 2)
    else:
        with path.open("r+b") as file:
            file.seek(-1, os.SEEK_END)
            file.write(bytes([pack.pixels[2, -1, -1, -1] ^ 1]))
        assert np.array_equal(pack.read(np.array([0, 1])), pack.pixels[:2])
    with pytest.raises(DataError, match=f"delete {pack.folder}, and the next run"):
        pack.read(np.array([2, 0]))


def test_progress_without_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faces, "CHUNK", 1)
    ticks = iter(range(0, 1000, 4))
    monkeypatch.setattr(time, "monotonic", lambda: next(ticks))
    said: list[str] = []
    updates: list[int] = []

    class Bar(faces.tqdm):
        def update(self, n: float | None = 1) -> bool | None:
            updates.append(int(n or 0))
            return super().update(n)

    monkeypatch.setattr(faces, "tqdm", Bar)
    data = put(tmp_path / "data", *(f"{i}.png" for i in range(7)))
    (data / "7.png").write_bytes(b"broken")
    pack = packed(data, log=said.append)
    assert [line for line in said if line.startswith("packed")] == ["packed 3 of 8", "packed 6 of 8"]
    assert f"7 faces of {SIZE}x{SIZE} pixels from {data}, packed in {pack.folder}" in said
    assert updates == [1] * 8


# --- processes


def many(folder: Path, count: int) -> Path:
    """Pictures enough for workers, every 37th broken; links to a few, which is quicker than to write them."""
    put(folder, *(f"{i:03}.png" for i in range(20)))
    for i in range(20, count):
        (folder / f"{i:03}.png").symlink_to(folder / f"{i % 20:03}.png")
    for i in range(37, count, 37):
        (folder / f"{i:03}.png").unlink()
        (folder / f"{i:03}.png").write_bytes(b"broken")
    return folder


def test_workers_give_the_same_pack(tmp_path: Path) -> None:
    data = many(tmp_path / "data", 400)
    with zipfile.ZipFile(data / "a.zip", "w") as archive:
        for i in range(40):
            archive.writestr(f"{i}.png", encoded(random_picture(50 + i)) if i % 7 else b"broken")
    one, two = (open_pack(data, SIZE, tmp_path / f"packs-{n}", n, silent) for n in (1, 2))
    assert one.rejected == 400 // 37 + 6
    assert len(one.pixels) == 440 - one.rejected
    assert zlib.crc32(one.pixels[0].tobytes()) == one.hashes[0] == zlib.crc32(random_picture(0).tobytes())
    for name in ("faces.npy", "hashes.npy", "names.json", "rejected.txt", "pack.json"):
        assert (one.folder / name).read_bytes() == (two.folder / name).read_bytes()
    assert sorted(path.name for path in (tmp_path / "packs-2").iterdir()) == [two.folder.name]


def test_workers_import_neither_torch_nor_the_main_module(tmp_path: Path) -> None:
    many(tmp_path / "data", 300)
    (tmp_path / "main.py").write_text(f"""
import sys; sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from gan.data.faces import open_pack
with Path("imported").open("a") as file: file.write(__name__)
open_pack(Path("data"), 8, Path("packs"), 2)
assert "torch" not in sys.modules and sys.modules["__main__"].__file__
""")
    result = subprocess.run(
        [sys.executable, "-W", "error", "main.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert (tmp_path / "imported").read_text() == "__main__"


def test_memory_does_not_grow_with_the_pixels(tmp_path: Path) -> None:
    data = put(tmp_path / "data", "0.png")
    for i in range(1, 2000):
        (data / f"{i}.png").symlink_to("0.png")
    code = f"""
import sys, pathlib, resource; sys.path.insert(0, {str(ROOT)!r})
from gan.data import faces
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform == "linux" else 2**20)
faces.open_pack(pathlib.Path({str(data)!r}), 64, pathlib.Path({str(tmp_path / "warm")!r}), 1)
before = peak()
faces.open_pack(pathlib.Path({str(data)!r}), 128, pathlib.Path({str(tmp_path / "packs")!r}), 1)
print(peak() - before)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)
    assert float(result.stdout.split()[-1]) < 30  # MB, of 98 packed


def wait_for(condition: Callable[[], object], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def test_kill_leaves_no_half_pack(tmp_path: Path) -> None:
    data, packs = put(tmp_path / "data", *(f"{i}.png" for i in range(50))), tmp_path / "packs"
    slow = """
face, count = faces._face, iter(range(99))
faces._face = lambda *a: (time.sleep(0 if next(count) < 40 else 60), face(*a))[1]"""
    process = subprocess.Popen(pack_command(data, packs, slow), stdout=subprocess.DEVNULL)
    wait_for(lambda: [path for path in packs.glob(".*.tmp/new/faces.npy") if path.stat().st_size > 10_000])
    process.kill()
    process.wait()
    left = list(packs.iterdir())
    assert sorted(path.suffix for path in left) == [".lock", ".tmp"]
    pack = packed(data)
    assert len(pack.pixels) == 50
    assert list(packs.iterdir()) == [pack.folder]


def test_two_processes_at_once(tmp_path: Path) -> None:
    data, packs = put(tmp_path / "data", *(f"{i}.png" for i in range(50))), tmp_path / "packs"
    slow = f"""
face = faces._face; go = pathlib.Path({str(tmp_path / "go")!r})
def wait(image, size):
    while not go.exists(): time.sleep(0.02)
    return face(image, size)
faces._face = wait"""
    process = subprocess.Popen(pack_command(data, packs, slow), stdout=subprocess.PIPE, text=True)
    wait_for(lambda: list(packs.glob(".*.tmp/new/faces.npy")))
    pack = packed(data)
    assert len(list(packs.glob("*.tmp"))) == 1
    left = pack.folder.with_name(f".{pack.folder.name}-01234567.tmp")  # by a process that was killed
    left.mkdir()
    left.with_suffix(".lock").touch()
    pack.folder.rename(tmp_path / "away")
    pack = packed(data)
    assert not left.exists()
    assert len(list(packs.glob("*.tmp"))) == 1  # of the process that is alive
    (tmp_path / "go").touch()
    output, _ = process.communicate(timeout=120)
    assert output.split()[-4:] == ["DONE", pack.digest, "50", "0"]
    assert list(packs.iterdir()) == [pack.folder]


def processes_in(folder: Path) -> list[str]:
    """Command lines of the living processes whose working folder is this one."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "cwd").resolve(strict=True) == folder:
                found.append((entry / "cmdline").read_text())
        except OSError:  # it has ended
            continue
    return [line for line in found if line]


@pytest.mark.skipif(not Path("/proc/self/cwd").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize(
    ("number", "delay"), [(signal.SIGINT, 0), (signal.SIGINT, 1), (signal.SIGKILL, 1), (signal.SIGTERM, 1)]
)
def test_stopping_ends_the_workers(tmp_path: Path, number: signal.Signals, delay: float) -> None:
    data, packs = put(tmp_path / "data"), tmp_path / "packs"
    data.mkdir()
    Image.new("RGB", (2000, 2000), "red").save(data / "0.png", compress_level=1)  # slow to decode
    for i in range(1, 4000):
        (data / f"{i}.png").symlink_to("0.png")
    process = subprocess.Popen(
        pack_command(data, packs, options="2"),
        cwd=tmp_path,
        env={**os.environ, "PYTHON_COLORS": "0"},  # whatever FORCE_COLOR wants
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    wait_for(lambda: sum("pictures.serve" in line for line in processes_in(tmp_path)) == 2)
    time.sleep(delay)  # 1: until both decode, on most machines
    if number == signal.SIGINT:
        os.killpg(process.pid, number)  # as the terminal does: to the workers as well
    else:
        process.send_signal(number)
    _, errors = process.communicate(timeout=120)  # to decode them all takes minutes
    wait_for(lambda: not processes_in(tmp_path))
    assert process.returncode == (130 if number == signal.SIGINT else -number)
    if number == signal.SIGINT:
        assert errors == "interrupted\n"
        assert not list(packs.iterdir())
    else:
        assert not list(packs.glob("*/pack.json"))


def test_ctrl_c_while_the_workers_start_leaves_no_thread_and_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    start, started = pictures._start, list[subprocess.Popen[bytes]]()

    def interrupted() -> subprocess.Popen[bytes]:
        if started:
            raise KeyboardInterrupt
        started.append(start())
        return started[0]

    monkeypatch.setattr(pictures, "_start", interrupted)
    threads = set(threading.enumerate())
    with pytest.raises(KeyboardInterrupt):
        next(pictures.in_processes(divmod, [(1, 1)] * 100, 2))
    wait_for(lambda: set(threading.enumerate()) <= threads)  # one that waits keeps Python from ending
    assert started[0].returncode is not None


# --- packs that nobody opens any more


def aged(pack: Pack, days: float) -> Path:
    """The folder of a pack that was opened last so long ago."""
    then = time.time() - days * 86_400
    os.utime(pack.folder, (then, then))
    return pack.folder


def test_packs_not_opened_for_a_month_are_deleted_and_it_is_said(tmp_path: Path) -> None:
    said: list[str] = []
    one, two, three = (put(tmp_path / name, "0.png", "1.png") for name in "abc")
    first, second, other = packed(one, 16), packed(two, 24), tmp_path / "packs" / "0-kept"  # listed first
    old, young = aged(first, 31), aged(second, 29)
    del first, second  # nobody uses them any more
    other.mkdir()
    file = other.with_name("0" * 16)  # of somebody else
    file.touch()
    for path in (other, file):
        os.utime(path, (0, 0))
    pack = packed(three, log=said.append)
    assert sorted(path.name for path in old.parent.iterdir()) == sorted(
        [young.name, pack.folder.name, "0-kept", "0" * 16]
    )
    (told,) = [line for line in said if "deleted" in line]
    assert told == f"deleted the pack {old}, which had not been opened for 30 days"
    said.clear()
    packed(three, log=said.append)
    assert not [line for line in said if "deleted" in line]


def test_opening_a_pack_keeps_it_for_another_month(tmp_path: Path) -> None:
    one, two = (put(tmp_path / name, "0.png", "1.png") for name in "ab")
    folder = aged(packed(one, 16), 31)
    assert packed(one, 16).folder == folder  # lets nothing go that it is about to open
    packed(two)
    assert (folder / "pack.json").is_file()


def test_who_has_a_pack_open_goes_on_reading_it_when_it_is_deleted(tmp_path: Path) -> None:
    one, two = (put(tmp_path / name, "0.png", "1.png") for name in "ab")
    pack = packed(one, 16)
    before, folder = pack.pixels.copy(), aged(pack, 31)
    packed(two)
    assert not folder.exists()
    assert np.array_equal(pack.read(np.array([0, 1])), before)


def test_what_killed_processes_left_of_any_pack_is_deleted_and_what_others_write_is_not(tmp_path: Path) -> None:
    one, two = (put(tmp_path / name, "0.png", "1.png") for name in "ab")
    folder = packed(one, 16).folder
    left, written = (folder.with_name(f".{folder.name[::-1]}-{name}.tmp") for name in ("0123abcd", "89abcdef"))
    for path in (left, written):
        path.mkdir()
        (path / "faces.npy").write_bytes(b"half")
        path.with_suffix(".lock").touch()
    with FileLock(written.with_suffix(".lock")):
        pack = packed(two)
        assert set(folder.parent.iterdir()) == {folder, pack.folder, written, written.with_suffix(".lock")}
    packed(two)
    assert set(folder.parent.iterdir()) == {folder, pack.folder}


def test_old_packs_that_cannot_be_deleted_stop_nothing(tmp_path: Path) -> None:
    one, two = (put(tmp_path / name, "0.png", "1.png") for name in "ab")
    folder = aged(packed(one, 16), 31)
    packed(two)
    packs = folder.parent
    packed(one, 16)
    os.utime(folder, (0, 0))
    packs.chmod(0o500)
    result = without_privileges(pack_command(two, packs))
    packs.chmod(0o755)
    assert result.returncode == 0, result.stderr
    assert "deleted" not in result.stdout
    assert (folder / "faces.npy").is_file()


# --- held-out faces


def pack_of(hashes: np.ndarray) -> Pack:
    return Pack(np.zeros((len(hashes), 1, 1, 3), np.uint8), hashes.astype(np.uint32), 0, Path())


@pytest.mark.parametrize("holdout", [0.01, 0.05, 0.5])
def test_split_parts_every_face_by_its_pixels(holdout: float) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (20_000, 12), dtype=np.uint8)
    pixels[10_000:] = pixels[:10_000][::-1]  # every face twice
    hashes = np.array([zlib.crc32(face.tobytes()) for face in pixels])
    training, held = pack_of(hashes).split(holdout)
    assert training.dtype == held.dtype == np.int64
    assert sorted([*training, *held]) == list(range(20_000))
    assert not set(hashes[training]) & set(hashes[held])
    assert abs(len(held) / 20_000 - holdout) < 4 * (holdout / 10_000) ** 0.5
    assert [index.tolist() for index in pack_of(hashes).split(holdout)] == [training.tolist(), held.tolist()]


@pytest.mark.parametrize(("count", "holdout", "any_held"), [(1999, 0.5, False), (2000, 0.5, True), (2000, 0, False)])
def test_split_of_few_faces_holds_none_out(count: int, holdout: float, any_held: bool) -> None:
    hashes = np.random.default_rng(0).integers(0, 2**32, count)
    hashes[0] = 0
    training, held = pack_of(hashes).split(holdout)
    assert (len(held) > 0) is any_held
    assert len(training) + len(held) == count
