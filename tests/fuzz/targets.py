"""What reads anything that comes from outside, and inputs for it: each is read, or refused in a `UserError`."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import json
import os
import shutil
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import gradio
import numpy as np
import torch
from hypothesis import strategies as st
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from config import TrainConfig, UserError
from evaluate import EvaluateConfig
from export import ExportConfig
from gan import checkpoint, command_line
from gan.classes import Classes
from gan.data import cleaning, faces, labels, listing, pictures
from gan.data.cleaning import PrepareConfig
from gan.data.pictures import in_processes
from gan.play import recipes
from gan.play.directions import Change
from gan.presets import resolve
from gan.quality import sampling
from gan.studio import faces as studio
from gan.studio import faces_tab, parts
from gan.training.run import Run, TrainingState
from gan.watching import monitor
from gan.watching.curves import POSITIONS
from generate import GenerateConfig

CPU = torch.device("cpu")
SIZE = 32
CONFIGS: tuple[Any, ...] = (TrainConfig, GenerateConfig, EvaluateConfig, PrepareConfig, ExportConfig)


class PlantedError(BaseException):
    """A crash that a fuzzer has to find. No program catches it."""


@dataclasses.dataclass(frozen=True)
class Target:
    """A reader, what it is given, and where a crash can be planted.

    Args:
        inputs: what to read.
        read: reads it; works in a folder of its own.
        planted: an object, the name of one of its functions, and of what arguments that crashes.
    """

    inputs: st.SearchStrategy[Any]
    read: Callable[[Any, Path], None]
    planted: tuple[Any, str, Callable[..., bool]]

    def check(self, given: Any, folder: Path) -> None:
        """Read one input in an empty folder. Fails where it ends in anything but a line, or writes elsewhere."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        with writes_below(folder), contextlib.suppress(UserError):
            self.read(given, folder)

    @contextlib.contextmanager
    def with_planted_crash(self) -> Iterator[None]:
        """Let it crash where it is said to."""
        where, name, when = self.planted
        whole = getattr(where, name)

        def crashing(*values: Any, **more: Any) -> Any:
            if when(*values, **more):
                raise PlantedError
            return whole(*values, **more)

        with mock.patch.object(where, name, crashing):
            yield


def saved(data: bytes, folder: Path, name: str) -> Path:
    """A file with this content."""
    path = folder / name
    path.write_bytes(data)
    return path


def ignored(_: str) -> None:
    """Take what a program says and drop it."""


# --- bytes


def picture(kind: str, mode: str = "RGB", **options: Any) -> bytes:
    """A small picture in a format."""
    pixels = np.random.default_rng(0).integers(0, 256, (20, 20, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(file, kind, **options)
    return file.getvalue()


ANIMATED = {"save_all": True, "append_images": [Image.new("RGB", (20, 20))]}
PICTURES = [
    picture("PNG"),
    picture("PNG", "LA"),
    picture("PNG", "P", transparency=0),
    picture("PNG", "1"),
    picture("JPEG", exif=Image.Exif().tobytes()),
    picture("JPEG", "CMYK"),
    picture("WEBP"),
    picture("WEBP", **ANIMATED),
    picture("BMP"),
    picture("GIF"),
    picture("GIF", **ANIMATED),
    picture("TIFF", compression="tiff_deflate"),
    *map(picture, ("PPM", "TGA", "ICO", "JPEG2000")),
]


@st.composite
def damaged(draw: st.DrawFn, whole: st.SearchStrategy[bytes]) -> bytes:
    """Bytes of which some were changed, added or cut off."""
    data = bytearray(draw(whole))
    for _ in range(draw(st.integers(0, 6))):
        place = draw(st.integers(0, max(0, min(len(data) - 1, draw(st.sampled_from([40, 400, 10**6]))))))
        some = draw(st.binary(max_size=8) | st.sampled_from([b"\xff" * 4, bytes(4), b"\xff\x7f"]))
        data[place : place + draw(st.sampled_from([0, len(some)]))] = some
    return bytes(data[: draw(st.sampled_from([len(data)] * 9 + [len(data) // 2]))])


def read_picture(data: bytes, folder: Path) -> None:
    """As training, `prepare.py` and `--invert` read a picture."""
    saved(data, folder, "a.png")
    faces._decode(folder, [("a.png", "")], (SIZE, SIZE, 3))
    read_by_prepare(folder)
    with contextlib.suppress(UserError):
        faces.of_picture(pictures.whole(folder / "a.png"), SIZE, 3)


def read_by_prepare(folder: Path) -> None:
    """As `prepare.py` reads what lies in a folder, and writes it into another one."""
    config = PrepareConfig(sources=(folder,), out=folder / "out")
    found, candidates, _ = cleaning.pictures_in(config.sources, config.out)
    for some, _ in in_processes(cleaning.inspect, [(found, config)] if found else [], 1):
        candidates += some
    cleaning.mark_duplicates(candidates)
    kept = [(cleaning.name_of(face), face) for face in candidates if not face.kind]
    assert all((config.out / name).resolve().is_relative_to(config.out.resolve()) for name, _ in kept)
    assert all(len(face.why.splitlines()) < 2 for face in candidates)
    if kept:
        cleaning.write(kept, config.out)


NAMES = st.sampled_from(["a.png", "../a.png", "/a.png", "..\\a.png", "C:a.png", "b/../../a.png", "a.png/", "nul.png"])


@st.composite
def zips(draw: st.DrawFn) -> bytes:
    """Zips with odd names and damaged pictures."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", draw(st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]))) as archive:
        for name in draw(
            st.lists(NAMES | st.text(min_size=1, max_size=9).map("{}.png".format), max_size=3, unique=True)
        ):
            with contextlib.suppress(UnicodeEncodeError):
                archive.writestr(zipfile.ZipInfo(name), draw(damaged(st.sampled_from(PICTURES))))
    return file.getvalue()


def read_zip(data: bytes, folder: Path) -> None:
    """As training and `prepare.py` read a zip."""
    saved(data, folder, "a.zip")
    with contextlib.suppress(UserError):
        root, pictures, _ = faces._list_pictures(folder, faces._find(folder))
        faces._decode(root, pictures, (SIZE, SIZE, 3))
    read_by_prepare(folder)


# --- contents

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["", "hair", "../x", "<b>", "default", "dcgan"])
)
TENSORS = st.builds(torch.zeros, st.lists(st.integers(0, 3), max_size=4).map(tuple))
ANYTHING = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
)


def changes(whole: dict[str, Any], strange: st.SearchStrategy[Any], most: int = 3) -> st.SearchStrategy[Any]:
    """Some parts of a nested content to exchange or to leave out, by the keys that lead there."""
    by_depth = dict[int, list[tuple[Any, ...]]]()
    for path in _paths(whole):
        by_depth.setdefault(len(path), []).append(path)
    path = st.one_of([st.sampled_from(paths) for depth, paths in sorted(by_depth.items())])
    return st.lists(st.tuples(path, strange | st.just(LEFT_OUT)), max_size=most)


def changed(whole: dict[str, Any], some: list[tuple[tuple[Any, ...], Any]]) -> Any:
    """A content with these changes."""
    return functools.reduce(lambda content, one: _exchanged(content, *one), some, whole)


LEFT_OUT = object()


def _paths(part: Any, depth: int = 3) -> list[tuple[Any, ...]]:
    """The keys that lead to each part of a content."""
    keys = part if isinstance(part, dict) else range(len(part)) if isinstance(part, list) else ()
    return [()] + [(key, *path) for key in keys if depth for path in _paths(part[key], depth - 1)]


def _exchanged(part: Any, path: tuple[Any, ...], new: Any) -> Any:
    """A content with the part that a path leads to exchanged, as far as it still leads there."""
    if not path:
        return None if new is LEFT_OUT else new
    key, *rest = path
    if isinstance(part, dict) and key in part:
        others = {name: value for name, value in part.items() if name != key}
        return others if new is LEFT_OUT and not rest else {**others, key: _exchanged(part[key], tuple(rest), new)}
    if isinstance(part, list) and isinstance(key, int) and key < len(part):
        return [*part[:key], _exchanged(part[key], tuple(rest), new), *part[key + 1 :]]
    return part


def _checkpoint() -> dict[str, Any]:
    """What a checkpoint of a small conditional run holds."""
    vocabulary = (("hair", "blue", "red"),)
    config = TrainConfig(
        image_size=SIZE, ngf=4, ndf=4, nz=4, batch_size=4, projected=False, vocabulary=vocabulary, preset="default"
    )
    classes = Classes.of(vocabulary, np.array([[1], [2], [0], [1]]))
    about = {"digest": "", "training": 4, "held_out": 0, "rejected": 0}
    run = Run(Path(), config, CPU, "fp32", about, classes=classes)
    return run._content(TrainingState(config, CPU), 1.0) | {"program": checkpoint.PROGRAM, "format": checkpoint.FORMAT}


def read_checkpoint(given: Any, folder: Path) -> None:
    """As `generate.py` and `--resume` read a checkpoint."""
    path = folder / "a.pt"
    if isinstance(given, bytes):
        saved(given, folder, "a.pt")
    else:
        torch.save(changed(_CONTENT, given), path)
    sampler = sampling.load(path, CPU)
    sampler.classes.table()
    list(sampler.faces([0]))


def read_recipe(given: Any, folder: Path) -> None:
    """As `--like` reads a PNG."""
    if isinstance(given, bytes):
        recipes.read(saved(given, folder, "a.png"))
        return
    texts = PngInfo()
    texts.add_text(recipes.KEYWORD, given if isinstance(given, str) else json.dumps(changed(RECIPE, given)))
    Image.new("RGB", (2, 2)).save(folder / "a.png", pnginfo=texts)
    recipes.read(folder / "a.png")


RECIPE = {"version": 1, "generator": "0" * 16, "seeds": [1], "columns": None, "nz": 2, "latents": "AAAAAAAAAAA="}


# --- tables and texts

FIELDS = st.sampled_from(["file", "hair", "eyes", "a.png", "b/c.png", "z.zip/a.png", "", " ", '"', "\n", "=1+1", "<b>"])
LINE = st.builds(lambda *fields: ",".join(fields), FIELDS, FIELDS | st.text(max_size=4), FIELDS)
TABLES = st.builds(
    lambda lines, stray: "\n".join(["file,hair,eyes", *lines, *stray]),
    st.lists(LINE, max_size=4),
    st.lists(st.text(max_size=9), max_size=1),
)
FACES = ["a.png", "b/c.png", "z.zip/a.png", "y.zip/a.png"]


def read_labels(data: bytes, folder: Path) -> None:
    """As training reads a labels.csv."""
    texts = labels.texts_of(saved(data, folder, "labels.csv"), FACES, ignored)
    with mock.patch.object(labels, "FEWEST", 1):
        labels.learned(texts, np.arange(len(FACES)), folder, None, ignored)


ROW: dict[str, Any] = {"step": 1, "images_seen": 32, "seconds": 0.5, "epoch": 0, "d_loss": 1.0, "g_loss": 2.0}
MEASURED: dict[str, Any] = {**ROW, "fd": 10.0, "damage_x100": 1.0, "precision": 0.5, "recall": 0.5, "coverage": 0.5}
LINES = st.one_of(
    changes(ROW, SCALARS, 2).map(lambda some: json.dumps(changed(ROW, some))),
    changes(MEASURED, SCALARS, 2).map(lambda some: json.dumps(changed(MEASURED, some))),
    ANYTHING.map(json.dumps),
    st.text(max_size=9),
)

LOGS = st.lists(LINES, max_size=6).map(lambda lines: "\n".join(lines).encode("utf-8", "surrogatepass"))


def read_log(data: bytes, folder: Path) -> None:
    """As a run that goes on and its report read a log.jsonl."""
    saved(data, folder, "log.jsonl")
    with contextlib.closing(monitor.Monitor(folder, TrainConfig(), 32, 3)) as shown:
        for place in POSITIONS:
            shown.curves.column("fd", place)
            shown.curves.column("d_loss", place)


WORDS = [f"--{field.name}" for config in CONFIGS for field in dataclasses.fields(config)]
VALUES = st.one_of(
    st.integers().map(str),
    st.floats().map(str),
    st.text(max_size=6),
    st.sampled_from(["", "True", "None", "-1", "[1]", "{}", "..", "a=b", "1e400", "0x1", "١"]),
)
TYPED = st.builds(
    lambda no, name, sign, value: f"{name[:2]}{no}{name[2:]}{sign}{value}",
    st.sampled_from(["", "", "", "no"]),
    st.sampled_from(WORDS),
    st.sampled_from(["=", "=", ""]),
    VALUES,
)


def read_words(words: list[str], folder: Path) -> None:
    """As each program reads its command line."""
    for config in CONFIGS:
        with contextlib.suppress(UserError):
            resolve(config, command_line.parse(config, words))


def read_page(values: list[Any], folder: Path) -> None:
    """As the studio reads numbers, choices and texts that a page sends."""
    classes = Classes.of((("hair", "blue", "red"), ("eyes", "a,b")), np.array([[1, 1], [2, 0]]))
    last = faces_tab.LAST_SEED
    fields = [parts.slider(0, 1, 0.5, 0.1), parts.whole_number(0, 0, last), parts.choice(["a", "b"], gradio.Dropdown())]
    for value in values:
        number, seed, one = (field.preprocess(value) for field in fields)
        assert 0 <= number <= 1
        assert 0 <= seed <= last
        assert one in ("a", "b")
        text = str(value)
        for reader in (recipes.terms, lambda text: studio.place([], text), classes.parse, Change.parse):
            with contextlib.suppress(UserError):
                reader(text)


SUMS = st.lists(
    st.sampled_from(["12", "+", "-", " + ", " - ", "a.png", "hair:", "red", "..", ",", "eyes:a,b", "light:0.5"])
).map("".join)
_CONTENT = _checkpoint()


def _as_bytes(content: Any) -> bytes:
    file = io.BytesIO()
    torch.save(content, file)
    return file.getvalue()


TARGETS = {
    "command line": Target(
        st.lists(TYPED | st.text(max_size=8) | st.sampled_from(WORDS), max_size=4),
        read_words,
        (command_line, "convert", lambda name, text, hint: hint in (int, float) and text.startswith("-")),
    ),
    "pictures": Target(
        damaged(st.sampled_from(PICTURES)),
        read_picture,
        (faces, "_face", lambda image, shape: max(image.size) > 3 * min(image.size)),
    ),
    "zips": Target(
        damaged(zips()) | zips(),
        read_zip,
        (listing, "_forbidden", lambda info, parts: ".." in parts),
    ),
    "checkpoints": Target(
        changes(_CONTENT, ANYTHING | TENSORS) | damaged(st.just(_as_bytes(_CONTENT))),
        read_checkpoint,
        (
            sampling,
            "ModelConfig",
            lambda **model: any(value is None or isinstance(value, float | list | dict) for value in model.values()),
        ),
    ),
    "recipes": Target(
        changes(RECIPE, ANYTHING) | st.text() | damaged(st.just(PICTURES[0])),
        read_recipe,
        (recipes, "_checked", lambda content: not isinstance(content["generator"], str)),
    ),
    "labels": Target(
        TABLES.map(str.encode) | damaged(TABLES.map(str.encode)) | st.binary(),
        read_labels,
        (labels, "learned", lambda texts, *others: "=1+1" in texts["hair"]),
    ),
    "log": Target(
        LOGS | damaged(LOGS),
        read_log,
        (monitor, "_step_of", lambda row: row.startswith("[")),
    ),
    "studio": Target(
        st.lists(SCALARS | SUMS | ANYTHING, max_size=4),
        read_page,
        (recipes, "terms", lambda text: text.count("+") > 1),
    ),
}

writing = list[str]()  # files that were opened for writing while this was watched
_watched = list[Path]()


def _hook(event: str, args: tuple[Any, ...]) -> None:
    if _watched and event == "open" and isinstance(args[0], str | bytes):
        writes = args[2] & (os.O_WRONLY | os.O_RDWR) if args[1] is None else set(args[1]) & set("wax+")
        path = os.path.realpath(os.fsdecode(args[0]))
        compiled = "/__pycache__/" in path  # Python's own, of a library that is imported only now
        if writes and not compiled and not path.startswith((str(_watched[0]), "/dev/", "/proc/")):
            writing.append(path)


sys.addaudithook(_hook)


@contextlib.contextmanager
def writes_below(folder: Path) -> Iterator[None]:
    """Fail where a file elsewhere is opened for writing."""
    _watched.append(Path(os.path.realpath(folder)))
    writing.clear()
    try:
        yield
    finally:
        _watched.clear()
    assert not writing, writing
