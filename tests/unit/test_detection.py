"""Tests of the detection of faces, of cutting them out, and of fetching what anime faces look like."""

from __future__ import annotations

import hashlib
import http.server
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageChops, ImageDraw

from config import DataError
from gan import Generator, downloads
from gan.data import detection
from gan.data.detection import Box
from gan.play import enlarging, inversion
from gan.play.inversion import Found

pytest.importorskip("cv2")

PARTS = ((1, 3, 8, 8), (3, 5, 4, 4)), ((11, 3, 8, 8), (13, 5, 4, 4)), ((4, 12, 12, 7), (6, 14, 8, 3))
"""Two eyes and a mouth on 20x20 pixels: left, top, width and height of what is white around each, and of itself."""


def cascade(folder: Path) -> Path:
    """Write a cascade that finds what `face` draws: a stage for each part, which is darker than what is around it."""
    stages = features = ""
    for i, (around, part) in enumerate(PARTS):
        white = part[2] * part[3] / (around[2] * around[3] - part[2] * part[3])
        features += f"<_><rects><_>{' '.join(map(str, around))} {white:.4f}</_>"
        features += f"<_>{' '.join(map(str, part))} {-1 - white:.4f}</_></rects><tilted>0</tilted></_>"
        stages += "<_><maxWeakCount>1</maxWeakCount><stageThreshold>0.5</stageThreshold><weakClassifiers><_>"
        stages += (
            f"<internalNodes>0 -1 {i} 0.03</internalNodes><leafValues>0. 1.</leafValues></_></weakClassifiers></_>"
        )
    (folder / "face.xml").write_text(
        '<?xml version="1.0"?><opencv_storage><cascade type_id="opencv-cascade-classifier">'
        "<stageType>BOOST</stageType><featureType>HAAR</featureType><height>20</height><width>20</width>"
        "<stageParams><maxWeakCount>1</maxWeakCount></stageParams><featureParams><maxCatCount>0</maxCatCount>"
        f"</featureParams><stageNum>3</stageNum><stages>{stages}</stages><features>{features}</features></cascade>"
        "</opencv_storage>"
    )
    return folder / "face.xml"


def face(side: int) -> Image.Image:
    """Draw a face."""
    drawn = Image.new("RGBA", (200, 200), "white")
    for _, (left, top, width, height) in PARTS:
        box = 10 * left, 10 * top, 10 * (left + width) - 1, 10 * (top + height) - 1
        ImageDraw.Draw(drawn).rectangle(box, fill="black")
    return drawn.resize((side, side), Image.Resampling.LANCZOS)


def scene(*faces: tuple[int, int, int, int]) -> Image.Image:
    """Draw faces, each given by the place of its centre, its side and its tilt to the left, on a plain picture."""
    picture = Image.new("RGB", (600, 500), (128, 150, 170))
    for x, y, side, tilt in faces:
        turned = face(side).rotate(tilt, Image.Resampling.BICUBIC, expand=True)
        picture.paste(turned, (x - turned.width // 2, y - turned.height // 2), turned)
    return picture


def test_the_largest_face_of_an_own_picture_is_what_is_searched_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = list[np.ndarray]()

    def invert(sampler: object, picture: np.ndarray, progress: object) -> Found:
        given.append(picture)
        return Found(torch.zeros(1, 100), picture, 1.0, 2.0)

    monkeypatch.setattr(inversion, "invert", invert)
    generator = Generator.load("released")
    whole = Image.new("RGB", (100, 100), "white")
    whole.paste(face(100), mask=face(100))
    scene((150, 120, 100, 0), (450, 330, 160, 0)).save(tmp_path / "two.png")

    toy = cascade(tmp_path)
    with monkeypatch.context() as change:
        change.setattr(detection, "cascade", lambda given: toy)
        found = generator.invert(tmp_path / "two.png")
        as_read = generator.invert(Image.open(tmp_path / "two.png"))
        small = generator.invert(whole.resize((96, 96)))
        filled = generator.invert(scene((300, 250, 400, 0)).crop((70, 20, 530, 480)))
        none = generator.invert(Image.new("RGB", (300, 200), "grey"))
        plain = generator.invert(Image.new("RGB", (300, 300), "grey"))
        narrow = generator.invert(Image.new("RGB", (60, 40), "grey"))
        large = generator.invert(Image.open(tmp_path / "two.png").resize((6000, 5000), Image.Resampling.NEAREST))
        change.setattr(enlarging, "why_not", lambda sampler: "it draws no faces")
        other = generator.invert(tmp_path / "two.png")

    assert [one.taken for one in (found, as_read, small, none)] == ["face", "face", "whole", "middle"]
    assert [one.taken for one in (plain, narrow, large, other)] == ["whole", "middle", "face", "middle"]
    assert "the whole picture was taken; no face was found" in plain.told
    assert narrow.told == other.told == "the picture's middle was taken"  # no face was looked for
    assert np.abs(given[7].astype(int) - given[2]).mean() < 25
    assert np.array_equal(given[0], given[1])
    assert np.abs(given[0].astype(int) - given[2]).mean() < 25
    assert (given[4] == 128).all()
    assert "cut out" in found.told
    assert "middle" in none.told
    assert not small.told
    assert not filled.told
    assert filled.taken == "whole"
    assert "no face was found" in none.told

    asked = list[str]()
    monkeypatch.setattr(detection, "_MISSED", {})
    monkeypatch.setattr(downloads, "fetch", lambda address, *where: asked.append(address))
    monkeypatch.setattr(downloads, "has", lambda *where: False)
    for _ in range(2):
        nothing = generator.invert(tmp_path / "two.png")
        assert nothing.taken == "middle"
        assert "could not be fetched" in nothing.told
    assert asked == list(detection.ADDRESSES)  # the second time it is not waited for again
    monkeypatch.setattr(detection, "RETRY", 0.0)
    generator.invert(tmp_path / "two.png")
    assert asked == 2 * list(detection.ADDRESSES)
    monkeypatch.setitem(sys.modules, "cv2", None)
    assert "finding faces in pictures needs the package cv2" in generator.invert(tmp_path / "two.png").told


@pytest.mark.parametrize(("tilt", "angle"), [(0, 0), (10, 0), (30, -30), (-30, 30), (60, -60), (-60, 60)])
def test_a_tilted_face_is_found_once_and_cut_out_upright(tmp_path: Path, tilt: int, angle: int) -> None:
    picture = scene((250, 220, 100, tilt))

    (box,) = detection.faces(picture, cascade(tmp_path), 0.0, 60)

    assert box.angle == angle
    middle, side = ((box.left + box.right) / 2, (box.top + box.bottom) / 2), box.right - box.left
    assert middle == pytest.approx((250, 220), abs=4)
    assert side == box.bottom - box.top == pytest.approx(100, abs=4)
    if tilt + angle == 0:
        whole = Image.new("RGB", (100, 100), "white")
        whole.paste(face(100), mask=face(100))
        apart = ImageChops.difference(detection.cut(picture, box).resize((100, 100)), whole)
        assert np.asarray(apart).mean() < 25
        assert np.asarray(ImageChops.difference(whole.rotate(30), whole)).mean() > 50


def test_faces_come_from_left_to_right_with_a_margin_that_may_reach_over_the_border(tmp_path: Path) -> None:
    picture = scene((100, 230, 120, 60), (540, 250, 100, 0))
    other, one = detection.faces(picture, cascade(tmp_path), 0.2, 60)
    assert (one.angle, other.angle) == (0, -60)
    assert one.right == pytest.approx(610, abs=4)
    assert one.right - one.left == pytest.approx(140, abs=5)
    assert detection.cut(picture, one).size == (one.right - one.left,) * 2


def test_faces_somewhat_smaller_than_wanted_are_found_so_that_it_can_be_said(tmp_path: Path) -> None:
    (box,) = detection.faces(scene((250, 220, 50, 0)), cascade(tmp_path), 0.0, 60)
    assert box.right - box.left == pytest.approx(50, abs=3)
    assert not detection.faces(scene((250, 220, 30, 0)), cascade(tmp_path), 0.0, 60)


def test_in_a_large_picture_a_tilted_face_is_sought_in_a_smaller_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(detection, "MOST_TURNED", 100_000)
    (box,) = detection.faces(scene((250, 220, 200, -30)), cascade(tmp_path), 0.0, 60)
    assert box.angle == 30
    assert (box.left, box.top, box.right, box.bottom) == pytest.approx((150, 120, 350, 320), abs=8)


@pytest.mark.parametrize("size", [(40_000, 3), (60, 33_000), (1, 1), (20, 10)])
def test_pictures_of_any_shape_are_searched(tmp_path: Path, size: tuple[int, int]) -> None:
    assert detection.faces(Image.new("RGB", size), cascade(tmp_path), 0.03, 64) == []


def test_in_a_long_strip_the_upright_faces_are_found(tmp_path: Path) -> None:
    strip = Image.new("RGB", (33_000, 300), (128, 150, 170))
    strip.paste(scene((250, 150, 100, 0)).crop((0, 0, 600, 300)), (20_000, 0))
    boxes = detection.faces(strip, cascade(tmp_path), 0.0, 60)
    assert [box.angle for box in boxes] == [0]
    assert boxes[0].left == pytest.approx(20_200, abs=4)


def test_a_small_upright_hit_does_not_hide_a_large_tilted_face(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hits = iter([[(250.0, 220.0, 42.0, 5)], [(250.0, 220.0, 300.0, 40)], [], [], []])
    monkeypatch.setattr(detection, "_hits", lambda *arguments: next(hits))
    boxes = detection.faces(Image.new("RGB", (600, 500)), tmp_path, 0.0, 60)
    assert sorted(box.right - box.left for box in boxes) == [42, 300]


def test_what_is_found_in_the_corners_around_a_turned_picture_is_no_face(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hits = iter([[], [(10.0, 10.0, 100.0, 40), (385.0, 365.0, 100.0, 40)], [], [], []])
    monkeypatch.setattr(detection, "_hits", lambda *arguments: next(hits))
    (box,) = detection.faces(Image.new("RGB", (600, 500)), tmp_path, 0.0, 60)
    assert (box.left, box.top) == pytest.approx((250, 200), abs=3)


def test_a_square_with_a_wide_margin_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hits = iter([[(300.0, 250.0, 300.0, 9)], [], [], [], []])
    monkeypatch.setattr(detection, "_hits", lambda *arguments: next(hits))
    (box,) = detection.faces(Image.new("RGB", (600, 500)), tmp_path, 2.0, 60)
    assert box.right - box.left == 1200


def test_what_lies_beyond_the_border_is_mirrored() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (40, 50, 3), np.uint8)
    inside = detection.cut(Image.fromarray(pixels), (10, 5, 30, 25))
    beyond = detection.cut(Image.fromarray(pixels), (-4, -6, 26, 24))
    corner = detection.cut(Image.fromarray(pixels), (25, 15, 55, 45))

    assert np.array_equal(np.asarray(inside), pixels[5:25, 10:30])
    made = np.asarray(beyond)
    assert np.array_equal(made[6:, 4:], pixels[:24, :26])
    assert np.array_equal(made[6:, :4], pixels[:24, 3::-1])
    assert np.array_equal(made[:6, 4:], pixels[5::-1, :26])
    made = np.asarray(corner)
    assert np.array_equal(made[:25, :25], pixels[15:, 25:])
    assert np.array_equal(made[25:, :25], pixels[:34:-1, 25:])


def test_a_turned_square_is_cut_with_its_corners_even_at_the_border() -> None:
    grey = np.tile(np.linspace(0, 255, 200), (200, 1)).astype(np.uint8)
    picture = Image.fromarray(np.repeat(grey[..., None], 3, 2))
    upright = np.asarray(picture.crop((60, 60, 140, 140)), float)

    turned = np.asarray(detection.cut(picture.rotate(-30, Image.Resampling.BICUBIC), Box(60, 60, 140, 140, 30)), float)

    assert np.abs(turned - upright).max() < 4
    assert np.asarray(detection.cut(picture, Box(0, 0, 80, 80, 60))).shape == (80, 80, 3)


class Site:
    """A web site of some files; `asked` has the paths that were asked for."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self.asked = asked = list[str]()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append(self.path)
                self.send_response(200 if self.path in files else 404)
                self.end_headers()
                self.wfile.write(files.get(self.path, b"gone"))

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        """The address of the site, without a path."""
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def close(self) -> None:
        """Shut the site down."""
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A site that has the file under /second alone, and an empty cache."""
    content = cascade(tmp_path).read_bytes()
    site = Site({"/first": b"<html>log in first</html>", "/second": content})
    monkeypatch.setattr(downloads, "cache", lambda name: tmp_path / "cache" / name)
    monkeypatch.setattr(detection, "SHA256", hashlib.sha256(content).hexdigest())
    monkeypatch.setattr(detection, "ADDRESSES", (f"{site.address}/first", f"{site.address}/second"))
    yield site
    site.close()


def test_what_anime_faces_look_like_is_fetched_once_from_the_address_that_has_it(site: Site, tmp_path: Path) -> None:
    path = detection.cascade(None)
    assert site.asked == ["/first", "/second"]
    assert path == tmp_path / "cache/cascades/lbpcascade_animeface.xml"
    assert path.read_bytes() == (tmp_path / "face.xml").read_bytes()

    assert detection.cascade(None) == path
    assert len(site.asked) == 2
    path.write_bytes(b"damaged")
    assert detection.cascade(None) == path
    assert path.read_bytes() == (tmp_path / "face.xml").read_bytes()


def test_without_the_internet_both_addresses_and_the_place_are_named(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(detection, "ADDRESSES", (f"{site.address}/gone", "http://127.0.0.1:9/none"))
    place = downloads.cache("cascades") / "lbpcascade_animeface.xml"
    with pytest.raises(DataError) as error:
        detection.cascade(None)
    said = str(error.value)
    assert "a file that could not be fetched: go online and try again, or download http" in said
    for part in (*detection.ADDRESSES, f"put it at {place}"):
        assert part in said
    assert list(place.parent.iterdir()) == []  # its folder is there
    place.write_text("the page that shows it")
    with pytest.raises(
        DataError, match=f"the file at {place} is another one .its SHA-256 should be {detection.SHA256}"
    ):
        detection.cascade(None)
    assert place.read_text() == "the page that shows it"


def test_a_cache_that_cannot_be_written_is_said(site: Site, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    with pytest.raises(DataError, match=r"could not be fetched: .* and make .*cache.* writable \("):
        detection.cascade(None)
