"""The page that prepare.py writes: each picture once, names in the source, colours of labels, in Chinese too."""

import base64
import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import prepare
from config import COLOURS
from gan.data import cleaning_report
from gan.data.cleaning import Candidate, Picture, mark_duplicates, name_of
from gan.data.cleaning_report import CHIPS, page
from gan.language import catalogue

COLUMN = {"hair": ("blue", 0.9), "eyes": ("", 0.3)}


def candidate(name: str, value: int, kind: str = "", root: str = "pile", **more: Any) -> Candidate:
    about: dict[str, Any] = {"size": (96, 96), "digest": bytes([value]), **more}
    return Candidate(Picture(Path(root), name), kind, **about)


def page_of(candidates: list[Candidate], sources: tuple[str, ...] = ("pile",), **changes: Any) -> str:
    kinds = [face.kind for face in candidates if face.kind]
    kept = [name_of(face) for face in candidates if not face.kind]
    result = {
        "sources": list(sources),
        "out": "faces",
        "dry_run": False,
        "min_size": 64,
        "counts": {"pictures": len(candidates), "kept": len(kept), "other_files": 0},
        "found": {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)},
        "kept_kinds": [],
        "labels": {},
        **changes,
    }
    shown = [i for i, face in enumerate(candidates) if face.digest]
    values = [candidates[i].digest[0] for i in shown]
    pixels = np.repeat(np.array(values, np.uint8), 96 * 96 * 3).reshape(-1, 96, 96, 3)
    return page(result, candidates, pixels, {i: row for row, i in enumerate(shown)})


def values(text: str) -> list[int]:
    """The pictures in a page, by the value of all their pixels."""
    pictures = re.findall(r"data:image/jpeg;base64,([\w+/=]+)", text)
    found = [Image.open(io.BytesIO(base64.b64decode(one))) for one in pictures]
    assert {one.size for one in found} <= {(96, 96)}
    return [round(float(np.asarray(one).mean())) for one in found]


def shown(text: str) -> list[tuple[str, str]]:
    """The addresses of the pictures in the order in which the page shows them, also of those that it had already."""
    return re.findall(r'<image id="(p\d+)"|<use href="#(p\d+)"', text)


def captions(text: str) -> list[str]:
    return [re.sub("<wbr>", "", one) for one in re.findall(r"<span>([^<]*(?:<wbr>[^<]*)*)(?:<br>|</span>)", text)]


def test_a_picture_is_in_it_once_wherever_it_is_shown() -> None:
    faces = [candidate("a.png", 10), candidate("b.png", 20), candidate("c.png", 10)]
    for face in faces:
        face.brightness = np.zeros(256, np.float16).tobytes()  # unlike all others
    mark_duplicates(faces)
    assert [face.kind for face in faces] == ["", "", "duplicate"]
    text = page_of(faces, labels={name_of(face): COLUMN for face in faces[:2]})
    assert values(text) == [10, 20, 10]
    each = [first or again for first, again in shown(text)]
    assert each == ["p0", "p1", *["p0", "p1"] * 2, "p2", "p0"]  # kept, hair, eyes, and the copy beside its original
    assert "a copy of a.png" in text


def test_as_many_as_there_is_room_for_are_shown_evenly_and_the_others_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleaning_report, "SHOWN", 4)
    faces = [candidate(f"{i}.png", i) for i in range(10)] + [candidate(f"x{i}.png", 20 + i, "dark") for i in range(5)]
    text = page_of(faces)
    assert values(text) == [0, 2, 5, 7, 20, 21, 22, 23]
    assert re.findall(r"and (\d+) more", text) == ["6", "1"]


def test_pictures_have_their_shape() -> None:
    faces = [candidate("wide.png", 1, "faceless", size=(640, 360)), candidate("high.png", 2, "narrow", size=(100, 300))]
    text = page_of(faces)
    assert values(text) == [1, 2]
    assert re.findall(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', text) == [("96.0", "54.0"), ("32.0", "96.0")]


def test_what_cannot_be_shown_is_named() -> None:
    text = page_of([candidate("sub/<i>.png", 0, "unreadable", why="not a & picture", digest=b"")])
    assert captions(text) == ["sub/&lt;i&gt;.png"]
    assert "not a &amp; picture" in text
    assert "<details" not in text.partition("</style>")[2]


def test_names_begin_in_the_source_or_with_its_name_if_there_are_several() -> None:
    zipped = Candidate(Picture(Path("more"), "faces.zip", "a/x.png", "a/图.png"), size=(96, 96), digest=b"\3")
    faces = [candidate("sub/a.png", 1), candidate("b.png", 2, root="some/where"), zipped]
    assert captions(page_of(faces[:1])) == ["sub/a.png"]
    text = page_of(faces, ("pile", "some/where", "more/faces.zip"))
    assert captions(text) == ["pile/sub/a.png", "where/b.png", "faces.zip/a/图.png"]
    for whole in ("pile/sub/a.png", "some/where/b.png", "more/faces.zip/a/图.png"):
        assert f'title="{whole}"' in text
    assert f"faces/{name_of(faces[0])}" in text  # what to delete
    assert captions(page_of([candidate("a.png", 1, root=".")], (".", "b"))) == [f"{Path.cwd().name}/a.png"]


def test_labels_are_shown_with_their_colours_the_most_frequent_first_and_the_doubtful_last() -> None:
    faces = [candidate(f"{i}.png", i) for i in range(6)]
    hair = ["blue", "red", "", "red", "", ""]
    text = page_of(faces, labels={name_of(face): {"hair": (name, 0.5)} for face, name in zip(faces, hair, strict=True)})
    assert re.findall(r"<span>([\w ]+) <small>(\d+)</small>", text) == [("red", "2"), ("blue", "1"), ("not sure", "3")]
    assert re.findall(r'<i style="background: (.*?)">', text) == [CHIPS["red"], CHIPS["blue"], "none"]


def test_every_label_that_can_be_guessed_has_a_colour() -> None:
    known = torch.load(COLOURS, weights_only=True)["vocabulary"]
    assert {name for _, *names in known for name in names} == CHIPS.keys()
    assert all(re.fullmatch("#[0-9a-f]{6}", colour) for colour in CHIPS.values())


def test_in_chinese_it_says_the_same_in_chinese(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    faces = [candidate("a.png", 1), candidate("b.png", 2, "faceless")]
    arguments: dict[str, Any] = {"labels": {name_of(faces[0]): COLUMN}, "kept_kinds": ["faceless"]}
    english = page_of(faces, **arguments)
    monkeypatch.setenv("ANIMEGAN_LANG", "zh")
    chinese = page_of(faces, **arguments)
    assert '<html lang="en">' in english
    assert '<html lang="zh">' in chinese
    assert values(chinese) == values(english) == [1, 2]
    said = [message for message in catalogue() if len(message) > 20 and message in english]
    assert len(said) >= 2
    assert not [message for message in said if message in chinese]
    for words in ("<h1>faces 里有 1 张头像</h1>", "没有头像 <small>faceless</small>", "蓝 <small>blue</small>"):
        assert words in chinese
    for name, text in (("en.html", english), ("zh.html", chinese), ("other.html", "<title>Faces prepared</title>")):
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert [prepare.is_report(tmp_path / name) for name in ("en.html", "zh.html", "other.html")] == [True, True, False]
