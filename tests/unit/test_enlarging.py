"""Larger faces: what the network adds is about the face that it is given, and what it does not know goes by Lanczos."""

import numpy as np
import pytest
import torch
from PIL import Image

from config import RELEASED, ConfigError
from gan import images
from gan.data import synthetic
from gan.play import enlarging
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
        averages = made.reshape(3, size, times, size, times, 3).mean((2, 4))
        assert np.abs(averages - given).mean() < 12
        plain = enlarging.enlarged(given, times, CPU, by_network=False)
        assert plain.shape == made.shape
        steps = [np.abs(np.diff(one.astype(int), axis=2)) for one in (made, plain)]
        assert np.percentile(steps[0], 99) > 1.2 * np.percentile(steps[1], 99)  # lines are thinner, and so steeper


def test_a_face_does_not_depend_on_those_beside_it(faces: np.ndarray) -> None:
    together = enlarging.enlarged(faces[:3], 4, CPU, by_network=True)
    (alone,) = enlarging.enlarged(faces[1:2], 4, CPU, by_network=True)
    assert np.array_equal(together[1], alone)


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
    assert "these do not look like drawn faces (distance" in enlarging.why_no_drawing(noise, CPU)
    for size in (32, 288):
        pixels = np.stack([small(face, size) for face in faces])
        assert f"knows faces of 48 to 256 pixels; these have {size}" in enlarging.why_no_drawing(pixels, CPU)


def test_only_two_and_four_times_are_offered() -> None:
    sampler = sampling.load(RELEASED, CPU)
    with pytest.raises(ConfigError, match="expected to enlarge 1, 2 or 4 times; got 3"):
        next(enlarging.draw(sampler, sampler.latents([0]), 3))
    assert enlarging.times_for(sampler) == 4


def test_a_grid_comes_apart_into_the_faces_that_it_was_made_of(faces: np.ndarray) -> None:
    for columns in (2, 3, 6):
        assert np.array_equal(images.cells(images.grid(faces[:6], columns), 96), faces[:6])
