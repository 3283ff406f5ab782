"""Augmentation: nothing at strength 0, exact moves otherwise, and a gradient that follows the pixels."""

import numpy as np
import pytest
import torch
from torch import Tensor

from gan.augment import Moves, augment, draw_moves
from gan.latent import stream

STILL = np.zeros(1, bool)
FACE = torch.tensor([[1.0, 2, 3], [4, 5, 6], [7, 8, 9]])


def moved(down: int, right: int) -> list[list[float]]:
    return augment(FACE.expand(1, 2, 3, 3), Moves(STILL, (down, right)))[0, 1].tolist()


def test_strength_zero_is_the_identity() -> None:
    images = torch.randn(8, 3, 16, 16)
    moves = draw_moves(np.random.default_rng(0), 8, 16, flip=0.0, translate=0.0)
    assert torch.equal(augment(images, moves), images)


def test_marked_faces_are_mirrored_and_the_others_are_not() -> None:
    images = torch.randn(3, 3, 4, 5)
    out = augment(images, Moves(np.array([True, False, True]), (0, 0)))
    assert torch.equal(out[[0, 2]], images[[0, 2]][..., [4, 3, 2, 1, 0]])
    assert torch.equal(out[1], images[1])


@pytest.mark.parametrize(
    ("down", "right", "expected"),
    [
        (1, 0, [[1, 2, 3], [1, 2, 3], [4, 5, 6]]),
        (-1, 0, [[4, 5, 6], [7, 8, 9], [7, 8, 9]]),
        (0, 1, [[1, 1, 2], [4, 4, 5], [7, 7, 8]]),
        (0, -1, [[2, 3, 3], [5, 6, 6], [8, 9, 9]]),
        (1, -2, [[3, 3, 3], [3, 3, 3], [6, 6, 6]]),
        (-1, 1, [[4, 4, 5], [7, 7, 8], [7, 7, 8]]),
    ],
)
def test_shift_moves_the_face_and_repeats_its_border(down: int, right: int, expected: list[list[int]]) -> None:
    assert moved(down, right) == expected


def test_flip_comes_before_the_shift() -> None:
    out = augment(FACE.expand(1, 1, 3, 3), Moves(np.ones(1, bool), (0, 1)))
    assert out[0, 0].tolist() == [[3, 3, 2], [6, 6, 5], [9, 9, 8]]


def test_augmentation_leaves_its_input_alone() -> None:
    images = FACE.expand(2, 1, 3, 3).clone()
    augment(images, Moves(np.array([True, False]), (1, 1)))
    assert torch.equal(images, FACE.expand(2, 1, 3, 3))


def test_gradient_goes_back_to_the_pixels_that_are_shown() -> None:
    images = torch.randn(2, 1, 4, 4, dtype=torch.float64, requires_grad=True)
    moves = Moves(np.array([True, False]), (1, -1))

    def move(x: Tensor) -> Tensor:
        return augment(x, moves)

    assert torch.autograd.gradcheck(move, (images,))


def test_flips_and_shifts_come_as_often_as_asked() -> None:
    random = np.random.default_rng(1)
    draws = [draw_moves(random, 10, 96, flip=0.3, translate=0.2) for _ in range(5000)]
    flips = np.mean([m.flips for m in draws])
    shifts = np.mean([m.shift != (0, 0) for m in draws])
    assert flips == pytest.approx(0.3, abs=0.01)  # 5 deviations of 50,000 draws
    assert shifts == pytest.approx(0.2 * (1 - 1 / 25**2), abs=0.028)  # 5 deviations of 5,000 draws


@pytest.mark.parametrize(("image_size", "reach"), [(32, 4), (96, 12)])
def test_shifts_cover_an_eighth_each_way_and_no_more(image_size: int, reach: int) -> None:
    random = np.random.default_rng(2)
    shifts = np.array([draw_moves(random, 1, image_size, 0.0, 1.0).shift for _ in range(3000)])
    assert [set(axis) for axis in shifts.T.tolist()] == [set(range(-reach, reach + 1))] * 2
    assert abs(np.corrcoef(shifts.T)[0, 1]) < 0.1


def test_same_stream_draws_the_same_moves() -> None:
    first, again, other = (draw_moves(stream(0, step, "d_moves"), 64, 96, 0.5, 1.0) for step in (5, 5, 6))
    assert (first.flips.tolist(), first.shift) == (again.flips.tolist(), again.shift)
    assert first.flips.tolist() != other.flips.tolist()
