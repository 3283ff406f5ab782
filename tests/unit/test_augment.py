"""Augmentation: nothing at strength 0, exact moves otherwise, and a gradient that follows the pixels."""

import numpy as np
import pytest
import torch
from torch import Tensor

from gan.latent import stream
from gan.training.augment import Moves, augment, draw_moves

FACE = torch.tensor([[1.0, 2, 3], [4, 5, 6], [7, 8, 9]])


def moved(down: int, right: int) -> list[list[float]]:
    return augment(FACE.expand(1, 2, 3, 3), Moves((down, right)))[0, 1].tolist()


def test_strength_zero_is_the_identity() -> None:
    images = torch.randn(8, 3, 16, 16)
    moves = draw_moves(np.random.default_rng(0), 8, 16, translate=0.0)
    assert torch.equal(augment(images, moves), images)


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


@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
def test_shifted_faces_lie_in_memory_as_others_do(layout: torch.memory_format) -> None:
    for channels in (3, 1):
        images = torch.randn(4, channels, 16, 16).clone(memory_format=layout)
        assert augment(images, Moves((2, -1))).stride() == images.stride()


def test_augmentation_leaves_its_input_alone() -> None:
    images = FACE.expand(2, 1, 3, 3).clone()
    augment(images, Moves((1, 1), np.full((2, 3), 0.5, np.float32)))
    assert torch.equal(images, FACE.expand(2, 1, 3, 3))


def test_gradient_goes_back_to_the_pixels_that_are_shown() -> None:
    images = torch.randn(2, 1, 4, 4, dtype=torch.float64, requires_grad=True)
    moves = Moves((1, -1))

    def move(x: Tensor) -> Tensor:
        return augment(x, moves)

    assert torch.autograd.gradcheck(move, (images,))


def test_shifts_come_as_often_as_asked() -> None:
    random = np.random.default_rng(1)
    shifts = np.mean([draw_moves(random, 10, 96, translate=0.2).shift != (0, 0) for _ in range(5000)])
    assert shifts == pytest.approx(0.2 * (1 - 1 / 25**2), abs=0.028)  # 5 deviations of 5,000 draws


@pytest.mark.parametrize(("image_size", "reach"), [(32, 4), (96, 12)])
def test_shifts_cover_an_eighth_each_way_and_no_more(image_size: int, reach: int) -> None:
    random = np.random.default_rng(2)
    shifts = np.array([draw_moves(random, 1, image_size, 1.0).shift for _ in range(3000)])
    assert [set(axis) for axis in shifts.T.tolist()] == [set(range(-reach, reach + 1))] * 2
    assert abs(np.corrcoef(shifts.T)[0, 1]) < 0.1


def test_same_stream_draws_the_same_moves() -> None:
    first, again, other = (draw_moves(stream(0, step, "d_moves"), 64, 96, 1.0) for step in (5, 5, 6))
    assert first == again
    assert first != other


def test_colours_change_as_asked_and_in_no_other_way() -> None:
    images = torch.rand(4, 3, 5, 5) - 0.5
    colours = np.array([[0, 1, 1], [0.2, 1, 1], [0, 0.5, 1], [0, 1, 2]], np.float32)

    out = augment(images, Moves((0, 0), colours))

    middle = images.mean((1, 2, 3), keepdim=True)
    grey = images.mean(1, keepdim=True)
    torch.testing.assert_close(out[0], images[0])
    torch.testing.assert_close(out[1], images[1] + 0.2)
    torch.testing.assert_close(out[2], (images[2] + grey[2]) / 2)
    torch.testing.assert_close(out[3], 2 * images[3] - middle[3])


def test_colours_are_those_of_each_face_and_have_a_gradient() -> None:
    moves = draw_moves(np.random.default_rng(0), 8, 4, translate=1.0, colour=0.5)
    images = torch.randn(8, 3, 4, 4, dtype=torch.float64, requires_grad=True)

    together = augment(images, moves)

    assert moves.colours is not None
    alone = [augment(images[i : i + 1], Moves(moves.shift, moves.colours[i : i + 1])) for i in range(8)]
    torch.testing.assert_close(together, torch.cat(alone))
    assert torch.autograd.gradcheck(lambda x: augment(x, moves), images)


def test_colours_come_as_often_as_asked_and_are_small() -> None:
    colours = draw_moves(np.random.default_rng(3), 20_000, 96, translate=0.0, colour=0.4).colours
    assert colours is not None
    changed = (colours != (0, 1, 1)).any(1)
    assert changed.mean() == pytest.approx(0.4, abs=0.0175)  # 5 deviations
    span = np.array([0.2, 0.3, 0.3])
    assert (abs(colours - (0, 1, 1)) <= span + 1e-6).all()
    assert colours[changed].mean(0) == pytest.approx([0, 1, 1], abs=0.01)
    assert colours[changed].std(0) == pytest.approx(span / 3**0.5, rel=0.05)


def test_without_colour_the_other_moves_are_the_same() -> None:
    plain, coloured = (draw_moves(stream(0, 5, "d_moves"), 64, 96, 1.0, colour) for colour in (0.0, 0.5))
    assert plain.colours is None
    assert plain.shift == coloured.shift
