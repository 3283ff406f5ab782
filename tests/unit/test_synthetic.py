"""Synthetic faces: the same on every machine, as varied as their labels say, and showing what their labels say."""

import hashlib
import random
from typing import Any

import numpy as np
import pytest

from config import IMAGE_SIZES
from gan.data import synthetic
from gan.data.synthetic import Attributes, Dice, Portrait


def portrait(seed: int, **changes: Any) -> np.ndarray:
    """A face with some of what it shows replaced; everything else is decided as before."""
    dice = Dice(seed)
    shown = Attributes(dice)
    vars(shown).update(changes)
    return Portrait(shown, dice, 96).picture()


def test_a_seed_gives_the_same_pixels_on_every_machine() -> None:
    faces = b"".join(synthetic.draw(seed)[0].tobytes() for seed in range(64))

    assert hashlib.sha256(faces).hexdigest() == "92d2a7314edee01ab91996db728de5e8dafd98f94e3d7622c8d7ca6353318a9f"


def test_drawing_leaves_the_random_numbers_of_others_alone() -> None:
    random.seed(5)
    np.random.seed(5)
    before = random.getstate(), str(np.random.get_state())

    synthetic.draw(3)

    assert (random.getstate(), str(np.random.get_state())) == before


@pytest.mark.parametrize("size", IMAGE_SIZES)
def test_a_face_has_the_size_asked_for_and_looks_alike_at_all(size: int) -> None:
    pixels, shown = synthetic.draw(7, size)
    small = pixels.reshape(16, size // 16, 16, size // 16, 3).mean(axis=(1, 3))
    usual = synthetic.draw(7)[0].reshape(16, 6, 16, 6, 3).mean(axis=(1, 3))

    assert pixels.shape == (size, size, 3)
    assert pixels.dtype == np.uint8
    assert vars(shown) == vars(synthetic.draw(7)[1])
    assert np.abs(small - usual).mean() < 6


def test_no_two_of_them_are_alike() -> None:
    assert len({synthetic.draw(seed, 32)[0].tobytes() for seed in range(500)}) == 500


def test_every_value_of_every_label_occurs_and_none_rules() -> None:
    shown = [Attributes(Dice(seed)) for seed in range(2000)]
    choices: dict[str, Any] = {
        "hair": synthetic.HAIR,
        "eyes": synthetic.EYES,
        "skin": synthetic.SKIN,
        "bangs": synthetic.BANGS,
        "back": synthetic.BACKS,
        "face": synthetic.FACE_SHAPES,
        "eye_shape": synthetic.EYE_SHAPES,
        "gaze": synthetic.GAZES,
        "mouth": synthetic.MOUTHS,
        "glasses": (True, False),
        "blush": (True, False),
        "ornament": synthetic.ORNAMENTS,
        "collar": synthetic.COLLARS,
        "clothes": synthetic.CLOTHES,
        "background": synthetic.BACKGROUNDS,
        "pattern": synthetic.PATTERNS,
    }
    assert set(choices) == set(vars(shown[0]))
    for name, values in choices.items():
        seen = [getattr(face, name) for face in shown]
        assert set(seen) == set(values), name
        assert min(seen.count(value) for value in set(values)) > 40, name


def test_eyes_go_with_the_hair() -> None:
    for seed in range(500):
        shown = Attributes(Dice(seed))
        assert shown.eyes in synthetic.HAIR[shown.hair][1]


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"hair": "teal"}, slice(16, 40)),
        ({"eyes": "pink"}, slice(46, 72)),
        ({"skin": "brown"}, slice(50, 90)),
        ({"bangs": "parted"}, slice(20, 66)),
        ({"back": "twin tails"}, slice(20, 96)),
        ({"face": "pointed"}, slice(60, 96)),
        ({"eye_shape": "narrow"}, slice(40, 76)),
        ({"gaze": "laughing"}, slice(40, 76)),
        ({"mouth": "open smile"}, slice(64, 86)),
        ({"glasses": True}, slice(40, 80)),
        ({"blush": False}, slice(58, 80)),
        ({"ornament": "cat ears"}, slice(0, 30)),
        ({"collar": "sailor"}, slice(76, 96)),
        ({"clothes": "yellow"}, slice(76, 96)),
        ({"background": "coral"}, slice(0, 96)),
        ({"pattern": "dots"}, slice(0, 96)),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_each_label_shows_in_the_picture_where_it_belongs(changes: dict[str, Any], where: slice) -> None:
    plain: dict[str, Any] = {
        "hair": "black", "eyes": "blue", "skin": "fair", "bangs": "straight", "back": "long", "face": "round",
        "eye_shape": "round", "gaze": "open", "mouth": "small", "glasses": False, "blush": True, "ornament": "none",
        "collar": "shirt", "clothes": "navy", "background": "sky", "pattern": "plain",
    }  # fmt: skip
    for seed in range(5):
        difference = np.abs(portrait(seed, **plain).astype(int) - portrait(seed, **{**plain, **changes})).sum(axis=2)

        assert (difference[where] > 24).sum() >= 12


def test_hair_and_skin_have_the_colours_of_their_labels() -> None:
    for hair, (color, _) in synthetic.HAIR.items():
        pixels = portrait(1, hair=hair, ornament="none", back="short", bangs="straight").reshape(-1, 3).astype(int)
        assert (np.abs(pixels - color).max(axis=1) < 14).mean() > 0.08, hair
    for skin, color in synthetic.SKIN.items():
        pixels = portrait(1, skin=skin, glasses=False).reshape(-1, 3).astype(int)
        assert (np.abs(pixels - color).max(axis=1) < 3).mean() > 0.05, skin


def test_edges_are_smooth() -> None:
    pixels = portrait(2, pattern="plain")

    assert len(np.unique(pixels.reshape(-1, 3), axis=0)) > 400  # it is painted in less than 60 colours
