"""Larger faces: what the network adds is about the face that it is given, and what it does not know goes by Lanczos."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw

from config import RELEASED, ConfigError
from gan import images
from gan.data import synthetic
from gan.play import enlarging, morph
from gan.quality import sampling

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def faces() -> np.ndarray:
    """Eight samples of the released generator, (8, 96, 96, 3)."""
    return next(sampling.load(RELEASED, CPU).faces(range(8)))[:8]


def small(face: np.ndarray, size: int) -> np.ndarray:
    return np.asarray(Image.fromarray(face).resize((size, size), Image.Resampling.LANCZOS))


@pytest.mark.parametrize("size", [48, 64, 96, 128])
def test_an_enlarged_face_is_the_same_face_and_crisper_than_by_lanczos(faces: np.ndarray, size: int) -> None:
    given = np.stack([small(face, size) for face in faces[:3]])
    for times in (2, 4):
        made = enlarging.enlarged(given, times, CPU, by_network=True)
        assert (made.shape, made.dtype) == ((3, times * size, times * size, 3), np.uint8)
        repeated = given.repeat(times, 1).repeat(times, 2).astype(int)
        assert np.abs(made - repeated).mean() > 4
        averages = made.reshape(3, size, times, size, times, 3).mean((2, 4))
        assert np.abs(averages - given).mean() < 12
        plain = enlarging.enlarged(given, times, CPU, by_network=False)
        assert plain.shape == made.shape
        steps = [np.abs(np.diff(one.astype(int), axis=2)) for one in (made, plain)]
        assert np.percentile(steps[0], 99) > 1.2 * np.percentile(steps[1], 99)  # lines are thinner, and so steeper


def test_twice_as_large_is_the_average_of_four_times_and_colours_reach_black_and_white(faces: np.ndarray) -> None:
    two, four = (enlarging.enlarged(faces, times, CPU, by_network=True) for times in (2, 4))
    assert np.abs(two - four.reshape(8, 192, 2, 192, 2, 3).mean((2, 4))).max() <= 1
    assert (four.min(), four.max()) == (0, 255)


def test_a_face_does_not_depend_on_those_beside_it(faces: np.ndarray) -> None:
    together = enlarging.enlarged(faces[:3], 4, CPU, by_network=True)
    (alone,) = enlarging.enlarged(faces[1:2], 4, CPU, by_network=True)
    assert np.array_equal(together[1], alone)


@pytest.mark.parametrize("times", [2, 4])
def test_bf16_changes_no_pixel_by_what_an_eye_can_see(
    times: int, faces: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = list[np.ndarray]()
    for fast in (False, True):
        monkeypatch.setattr(enlarging.device, "bf16_for_convolutions", lambda on, fast=fast: fast)
        found.append(enlarging.enlarged(faces, times, CPU, by_network=True).astype(int))
    apart = np.abs(found[0] - found[1])
    assert 0 < apart.mean() < 0.3
    assert apart.max() <= 12


def test_grey_faces_stay_grey(faces: np.ndarray) -> None:
    grey = np.stack([np.asarray(Image.fromarray(face).convert("L")) for face in faces[:2]])[..., None]
    made = enlarging.enlarged(grey, 4, CPU, by_network=True)
    assert made.shape == (2, 384, 384, 1)
    assert np.abs(made.reshape(2, 96, 4, 96, 4, 1).mean((2, 4)) - grey).mean() < 12
    coloured = enlarging.enlarged(np.repeat(grey, 3, 3), 4, CPU, by_network=True).astype(int)
    assert np.abs(coloured - coloured.mean(3, keepdims=True)).mean() < 3  # hardly any colour is invented
    assert enlarging.enlarged(grey, 2, CPU, by_network=False).shape == (2, 192, 192, 1)


def test_drawn_faces_are_known_and_other_pictures_are_not(faces: np.ndarray) -> None:
    random = np.random.default_rng(0)
    drawn = np.stack([np.asarray(synthetic.draw(seed, 96)[0]) for seed in range(16)])
    for known in (faces, drawn):
        assert enlarging.why_no_drawing(known, CPU) == ""
    noise = random.integers(0, 256, (16, 96, 96, 3), np.uint8)
    for unknown in (noise, digits()):
        assert "these do not look like drawn faces (distance" in enlarging.why_no_drawing(unknown, CPU)
    for size in (48, 256):
        assert enlarging.why_no_drawing(np.stack([small(face, size) for face in faces]), CPU) == ""
    for size in (32, 47, 257, 288):
        pixels = np.stack([small(face, size) for face in faces])
        assert f"knows faces of 48 to 256 pixels; these have {size}" in enlarging.why_no_drawing(pixels, CPU)


def digits() -> np.ndarray:
    """Sixteen pictures of a white digit, (16, 96, 96, 3)."""
    random, shown = np.random.default_rng(0), list[np.ndarray]()
    for i in range(16):
        picture = Image.new("L", (96, 96))
        ImageDraw.Draw(picture).text((20, 5), str(i % 10), 255, font_size=int(random.integers(60, 90)))
        shown.append(np.asarray(picture.rotate(int(random.integers(-15, 15))).convert("RGB")))
    return np.stack(shown)


def test_faces_are_drawn_two_or_four_times_larger_and_by_the_network() -> None:
    sampler, told = sampling.load(RELEASED, CPU), list[int]()
    with pytest.raises(ConfigError, match="expected to enlarge 1, 2 or 4 times; got 3"):
        next(enlarging.draw(sampler, sampler.latents([0]), 3))
    faces = next(sampler.faces([0, 1]))
    for times, expected in ((1, faces), (2, enlarging.enlarged(faces, 2, CPU, by_network=True))):
        assert np.array_equal(list(enlarging.draw(sampler, sampler.latents([0, 1]), times, told.append)), expected)
    assert told == [2, 2]


def test_people_see_faces_of_about_384_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    sampler = sampling.load(RELEASED, CPU)
    for size, times in ((48, 4), (96, 4), (128, 4), (144, 2), (192, 2), (256, 1), (512, 1)):
        one = dataclasses.replace(sampler, model=dataclasses.replace(sampler.model, image_size=size))
        assert enlarging.times_for(one) == times
    monkeypatch.setitem(enlarging._KINDS, sampler.digest, "no drawing")
    assert enlarging.times_for(sampler) == 1


def test_the_film_of_a_run_is_enlarged_by_the_network_if_its_last_faces_are_drawn(
    faces: np.ndarray, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    noise, told = np.random.default_rng(0).integers(0, 256, faces.shape, np.uint8), list[int]()
    for last, by_network in ((faces[:6], True), (noise[:6], False)):
        images.save_picture(images.grid(last, 3), tmp_path / "samples/step-00000001.png")
        told.clear()
        enlarge = morph.of_grids(tmp_path / "samples/step-00000001.png", 96, 2, False, told.append)
        expected = enlarging.enlarged(faces[:6], 2, CPU, by_network=by_network)
        assert np.array_equal(enlarge(images.grid(faces[:6], 3)), images.grid(expected, 3))
        assert told == [6]
        assert ("do not look like drawn faces" in capsys.readouterr().out) != by_network
    (tmp_path / "config.json").write_text(json.dumps({"config": {"save_path": "", "image_size": 96}}))
    images.save_picture(images.grid(faces[:6], 3), tmp_path / "samples/step-00000002.png")
    assert morph.timelapse(tmp_path, tmp_path / "film.webp", 2, False, told.append) == 2
    assert told == [6, 6, 6]
    with Image.open(tmp_path / "film.webp") as film:
        assert film.size == (3 * 194 + 2, 2 * 194 + 2)


def test_a_grid_comes_apart_into_the_faces_that_it_was_made_of(faces: np.ndarray) -> None:
    for columns in (2, 3, 6):
        assert np.array_equal(images.cells(images.grid(faces[:6], columns), 96), faces[:6])
