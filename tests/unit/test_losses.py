"""Losses and penalties against numbers worked out by hand and against discriminators of known gradient."""

import math
from typing import Any, get_args

import pytest
import torch
from oracles import exact_penalty
from torch import Tensor, nn

from config import Loss, Penalty
from gan.training.losses import (
    COMPARING,
    discriminator_loss,
    finite_difference_penalty,
    generator_loss,
    gradient_penalties,
    head_penalties,
    interpolated_penalty,
    penalty_noise,
    wholeness_loss,
)

LOG3 = math.log(3)  # sigmoid(log 3) = 3/4, sigmoid(-log 3) = 1/4


def logits(*values: float) -> Tensor:
    """Logits of one head at one position: (N, 1, 1)."""
    return torch.tensor(values)[:, None, None]


REAL = logits(LOG3, 0.0)
FAKE = logits(-LOG3, LOG3)


class Linear:
    """D(x) = <w, x> + b, whose gradient is w everywhere."""

    def __init__(self) -> None:
        self.w = (torch.arange(12.0).reshape(3, 2, 2) - 4) / 10
        self.w.requires_grad_()

    def __call__(self, images: Tensor) -> Tensor:
        return (images * self.w).sum((1, 2, 3)) + 7


SQUARED_NORM = 1.7  # of Linear.w: the squares of -4 to 7 add up to 170


# Logits for the hinges: reals 2, 0.5, -1 and fakes -3, 0, 1.5; means 0.5 and -0.5.
REALS, FAKES = logits(2.0, 0.5, -1.0), logits(-3.0, 0.0, 1.5)


def test_hinge_lets_logits_beyond_the_margin_be() -> None:
    # reals lack 0, 0.5 and 2 of the margin; fakes exceed it by 0, 1 and 2.5
    assert discriminator_loss("hinge", REALS, FAKES).item() == pytest.approx((0.5 + 2) / 3 + (1 + 2.5) / 3, rel=1e-6)
    assert generator_loss("hinge", None, FAKES).item() == pytest.approx(0.5, rel=1e-6)


def test_rahinge_compares_with_the_mean_of_the_other_side() -> None:
    # real - mean fake: 2.5, 1, -0.5, lacking 0, 0, 1.5; fake - mean real: -3.5, -0.5, 1, beyond -1 by 0, 0.5, 2
    assert discriminator_loss("rahinge", REALS, FAKES).item() == pytest.approx(1.5 / 3 + 2.5 / 3, rel=1e-6)
    # the other way round: fakes lack 4.5, 1.5, 0; reals are beyond -1 by 3.5, 2, 0.5
    assert generator_loss("rahinge", REALS, FAKES).item() == pytest.approx(6 / 3 + 6 / 3, rel=1e-6)


def test_wgan_is_the_difference_of_the_means() -> None:
    assert discriminator_loss("wgan", REALS, FAKES).item() == pytest.approx(-1.0, rel=1e-6)
    assert generator_loss("wgan", None, FAKES).item() == pytest.approx(0.5, rel=1e-6)


@pytest.mark.parametrize("loss", get_args(Loss))
def test_discriminator_raises_reals_and_the_generator_raises_fakes(loss: Loss) -> None:
    real, fake = logits(0.2, -0.3).requires_grad_(), logits(0.1, 0.4).requires_grad_()
    for_real, for_fake = torch.autograd.grad(discriminator_loss(loss, real, fake), [real, fake])
    assert (for_real < 0).all()
    assert (for_fake > 0).all()
    (for_fake,) = torch.autograd.grad(generator_loss(loss, real.detach(), fake), fake)
    assert (for_fake < 0).all()


def test_bce_of_the_discriminator_is_minus_log_of_the_right_answers() -> None:
    # real: -log 3/4, -log 1/2; fake: -log (1 - 1/4), -log (1 - 3/4)
    expected = -(math.log(0.75) + math.log(0.5)) / 2 - (math.log(0.75) + math.log(0.25)) / 2
    assert discriminator_loss("bce", REAL, FAKE).item() == pytest.approx(expected, rel=1e-6)


def test_bce_of_the_generator_is_minus_log_of_being_taken_for_real() -> None:
    expected = -(math.log(0.25) + math.log(0.75)) / 2
    assert generator_loss("bce", None, FAKE).item() == pytest.approx(expected, rel=1e-6)


def test_rp_compares_each_fake_with_the_real_at_its_place() -> None:
    # real - fake: 2 log 3 and -log 3, so sigmoids 9/10 and 1/4
    d = discriminator_loss("rp", REAL, FAKE).item()
    g = generator_loss("rp", REAL, FAKE).item()
    assert d == pytest.approx(-(math.log(0.9) + math.log(0.25)) / 2, rel=1e-6)
    assert g == pytest.approx(-(math.log(0.1) + math.log(0.75)) / 2, rel=1e-6)


@pytest.mark.parametrize("loss", sorted(COMPARING))
def test_comparing_losses_without_reals_are_refused(loss: Loss) -> None:
    with pytest.raises(AssertionError):
        generator_loss(loss, None, FAKE)


@pytest.mark.parametrize("size", [50.0, 1e4])
@pytest.mark.parametrize("loss", ["bce", "rp"])
def test_losing_side_has_a_full_gradient_at_extreme_logits(loss: Loss, size: float) -> None:
    high, low = logits(size), logits(-size)
    fake = low.clone().requires_grad_()
    g_loss = generator_loss(loss, high, fake)
    (g_gradient,) = torch.autograd.grad(g_loss, fake)
    real = low.clone().requires_grad_()
    d_loss = discriminator_loss(loss, real, high)
    (d_gradient,) = torch.autograd.grad(d_loss, real)
    assert (g_gradient.item(), d_gradient.item()) == pytest.approx((-1, -1), abs=1e-6)
    assert g_loss.item() == pytest.approx(size if loss == "bce" else 2 * size)
    assert d_loss.item() == pytest.approx(2 * size)


@pytest.mark.parametrize("size", [50.0, 1e4])
@pytest.mark.parametrize("loss", ["bce", "rp"])
def test_winning_side_has_a_loss_of_nearly_nothing_at_extreme_logits(loss: Loss, size: float) -> None:
    high, low = logits(size), logits(-size)
    assert discriminator_loss(loss, high, low).item() == pytest.approx(0, abs=1e-20)
    assert generator_loss(loss, low, high).item() == pytest.approx(0, abs=1e-20)


@pytest.mark.parametrize("loss", get_args(Loss))
def test_losses_of_half_precision_logits_are_computed_in_float32(loss: Loss) -> None:
    real, fake = logits(300.0).bfloat16(), logits(1.0).bfloat16()
    for value in (discriminator_loss(loss, fake, real), generator_loss(loss, real, fake)):
        assert value.dtype == torch.float32


def test_exact_penalty_is_the_squared_norm_of_the_gradient() -> None:
    penalty = exact_penalty(Linear(), torch.randn(5, 3, 2, 2))
    assert penalty.item() == pytest.approx(SQUARED_NORM, rel=1e-6)


def test_penalties_of_many_logits_an_image_are_means_over_them() -> None:
    def slope(images: torch.Tensor) -> torch.Tensor:
        return 3 * images.flatten(1)  # (N, P): each logit sees a pixel of its own

    images = torch.randn(64, 1, 12, 12)
    exact = exact_penalty(slope, images)
    approximate = finite_difference_penalty(slope, images, slope(images), torch.randn(images.shape), 0.1)
    assert exact.item() == pytest.approx(9)
    assert approximate.item() == pytest.approx(9, rel=0.1)
    assert interpolated_penalty(slope, images).item() == pytest.approx((3 / 12 - 1) ** 2)  # 144 slopes of 3 / 144


@pytest.mark.parametrize("scale", [0.01, 0.5])
def test_finite_difference_penalty_of_a_linear_discriminator_is_the_squared_slope_along_the_noise(scale: float) -> None:
    linear, images = Linear(), torch.ones(2, 3, 2, 2)
    noise = torch.zeros(2, 3, 2, 2)
    noise[0, 0, 0, 0], noise[1, 2, 1, 1] = 2.0, -1.0  # slopes 2 * -0.4 and -1 * 0.7
    penalty = finite_difference_penalty(linear, images, linear(images), noise, scale)
    (pull,) = torch.autograd.grad(penalty, linear.w)
    assert penalty.item() == pytest.approx((0.64 + 0.49) / 2, rel=1e-3)
    expected = torch.zeros(3, 2, 2)
    expected[0, 0, 0], expected[2, 1, 1] = 2.0 * -0.8, -1.0 * -0.7  # mean of 2 slope n
    torch.testing.assert_close(pull, expected, rtol=1e-3, atol=1e-3)


def test_finite_difference_penalty_is_the_exact_one_in_expectation() -> None:
    linear, n = Linear(), 200_000
    images = torch.zeros(n, 3, 2, 2)
    random = torch.Generator().manual_seed(0)
    found, noise = linear(images), penalty_noise("r1r2", images, n, random)
    penalties = gradient_penalties("r1r2", linear, images, found, images, found, noise)
    deviation = SQUARED_NORM * math.sqrt(2 / n)  # (w . n)^2 has variance 2 |w|^4
    assert list(penalties) == ["r1_penalty", "r2_penalty"]
    for penalty in penalties.values():
        assert penalty.item() == pytest.approx(SQUARED_NORM, abs=5 * deviation)


def test_finite_difference_penalty_tends_to_the_exact_one_for_a_curved_discriminator() -> None:
    def curved(x: Tensor) -> Tensor:
        return (3 * x).sin().sum((1, 2, 3))

    random = torch.Generator().manual_seed(1)
    image = torch.randn(1, 3, 2, 2, generator=random).double()
    images, noise = image.expand(100_000, -1, -1, -1), torch.randn(100_000, 3, 2, 2, generator=random).double()
    exact = exact_penalty(curved, image).item()
    off = [
        abs(finite_difference_penalty(curved, images, curved(images), noise, s).item() / exact - 1)
        for s in (1.0, 0.1, 0.02)
    ]
    assert off[0] > 0.2
    assert off[1] < 0.1
    assert off[2] < 0.03


def quadratic(x: Tensor) -> Tensor:
    """D(x) = sum x^2 / 2, whose gradient is x, so that it tells where a penalty was taken."""
    return x.square().sum((1, 2, 3)) / 2


def penalties_of(penalty: Penalty, real: Tensor, fake: Tensor, seed: int = 0) -> dict[str, float]:
    random = torch.Generator().manual_seed(seed)
    noise = penalty_noise(penalty, real, len(real), random)
    found = gradient_penalties(penalty, quadratic, real, quadratic(real), fake, quadratic(fake), noise)
    return {name: value.item() for name, value in found.items()}


def test_finite_difference_penalties_are_taken_at_reals_and_at_fakes_with_noise_of_their_own() -> None:
    real, fake = torch.ones(4000, 3, 2, 2), torch.full((4000, 3, 2, 2), 2.0)
    found = penalties_of("r1r2", real, fake)
    assert found == {"r1_penalty": pytest.approx(12, rel=0.2), "r2_penalty": pytest.approx(48, rel=0.2)}
    alike = penalties_of("r1r2", real, real)
    assert alike["r1_penalty"] != alike["r2_penalty"]


def test_finite_difference_penalties_depend_on_their_random_numbers_alone() -> None:
    first, again, other = (penalties_of("r1r2", *[torch.ones(4, 3, 2, 2)] * 2, seed=s) for s in (3, 3, 4))
    assert first == again != other


def test_penalties_of_heads_are_each_taken_at_its_own_map_and_summed() -> None:
    n, random = 4000, torch.Generator().manual_seed(0)
    maps = [torch.ones(n, 3, 2, 2), torch.full((n, 5, 1, 1), 2.0)]
    twice = [2 * one for one in maps]
    noise = [penalty_noise("r1r2", one, n, random) for one in maps]
    heads = [lambda seen: quadratic(seen)[:, None]] * 2
    rated = [torch.stack([head(one) for head, one in zip(heads, of, strict=True)], 1) for of in (maps, twice)]
    found = head_penalties("r1r2", heads, maps, rated[0], twice, rated[1], noise)
    assert {name: value.item() for name, value in found.items()} == {
        "head_r1_penalty": pytest.approx(12 + 20, rel=0.15),
        "head_r2_penalty": pytest.approx(48 + 80, rel=0.15),
    }


def test_finite_difference_penalties_of_heads_are_the_mean_over_places() -> None:
    def places(seen: Tensor) -> Tensor:
        return seen.sum(1).flatten(1)  # (N, C, R, R) -> (N, P), of slope 1 in each of C channels

    def twice(seen: Tensor) -> Tensor:
        return 2 * places(seen)

    maps = [torch.rand(3000, 4, 3, 3) for _ in range(2)]
    random = torch.Generator().manual_seed(0)
    noise = [penalty_noise("r1r2", one, 3000, random) for one in maps]
    rated = torch.stack([places(maps[0]), twice(maps[1])], 1)
    found = head_penalties("r1r2", [places, twice], maps, rated, maps, rated, noise)
    assert found["head_r1_penalty"].item() == pytest.approx(4 + 16, rel=0.05)
    assert found["head_r2_penalty"].item() == pytest.approx(4 + 16, rel=0.05)


@pytest.mark.parametrize(("slope", "expected"), [(0.0, 1.0), (1.0, 0.0), (3.0, 4.0), (-3.0, 4.0)])
def test_interpolated_penalty_is_the_squared_distance_of_the_slope_from_one(slope: float, expected: float) -> None:
    weight = torch.full((3, 2, 2), slope / math.sqrt(12), requires_grad=True)
    penalty = interpolated_penalty(lambda x: (x * weight).sum((1, 2, 3)), torch.randn(5, 3, 2, 2))
    assert penalty.item() == pytest.approx(expected, abs=1e-5)
    (pull,) = torch.autograd.grad(penalty, weight)
    assert torch.isfinite(pull).all()


def test_gp_is_taken_between_reals_and_fakes_at_a_place_of_each_pair_alone() -> None:
    # On the way from 0 to a face of norm L the gradient of `quadratic` has norm t L, t uniform: E (t L - 1)^2
    n, length = 20_000, 6.0
    fake = torch.full((n, 3, 2, 2), length / math.sqrt(12))
    found = penalties_of("gp", torch.zeros(n, 3, 2, 2), fake)
    assert found == {"gp_penalty": pytest.approx(length**2 / 3 - length + 1, rel=0.05)}
    few = [penalties_of("gp", torch.zeros(2, 3, 2, 2), fake[:2], seed)["gp_penalty"] for seed in range(50)]
    spread = torch.tensor(few).std().item()  # of the mean of two independent ones, not of one shared
    assert spread == pytest.approx(7.2 / math.sqrt(2), rel=0.35)


def test_gp_takes_an_encoders_features_in_half_precision() -> None:
    real, fake = torch.rand(3, 2, 4, 4).bfloat16(), torch.rand(3, 2, 4, 4).bfloat16()
    head, noise = nn.Conv2d(2, 1, 4), torch.rand(3, 1, 1, 1)
    zeros = torch.zeros(3, 1)
    found = gradient_penalties("gp", lambda maps: head(maps).flatten(1), real, zeros, fake, zeros, noise)
    assert torch.isfinite(found["gp_penalty"])


@pytest.mark.parametrize("loss", get_args(Loss))
def test_places_have_losses_of_their_own_that_are_averaged(loss: Loss) -> None:
    random = torch.Generator().manual_seed(0)
    real, fake = (torch.randn(6, 3, 4, generator=random) for _ in range(2))
    columns = [(real[:, :, i : i + 1], fake[:, :, i : i + 1]) for i in range(4)]
    expected = sum(discriminator_loss(loss, r, f) for r, f in columns) / 4
    torch.testing.assert_close(discriminator_loss(loss, real, fake), expected)
    expected = sum(generator_loss(loss, r, f) for r, f in columns) / 4
    torch.testing.assert_close(generator_loss(loss, real, fake), expected)
    same = real[:, :, :1].expand(-1, -1, 4), fake[:, :, :1].expand(-1, -1, 4)
    torch.testing.assert_close(discriminator_loss(loss, *same), discriminator_loss(loss, *columns[0]))


@pytest.mark.parametrize("loss", get_args(Loss))
def test_heads_have_losses_of_their_own_that_are_summed(loss: Loss) -> None:
    random = torch.Generator().manual_seed(0)
    real, fake = (torch.randn(6, 3, 4, generator=random) for _ in range(2))
    columns = [(real[:, i : i + 1], fake[:, i : i + 1]) for i in range(3)]
    expected = sum(discriminator_loss(loss, r, f) for r, f in columns)
    torch.testing.assert_close(discriminator_loss(loss, real, fake), expected)
    expected = sum(generator_loss(loss, r, f) for r, f in columns)
    torch.testing.assert_close(generator_loss(loss, real, fake), expected)


def test_faces_that_look_whole_enough_are_asked_for_no_more() -> None:
    scores = torch.tensor([0.2, 0.9, -0.05, -0.3], requires_grad=True)
    loss = wholeness_loss(scores)
    assert loss.item() == pytest.approx((0.25 + 0.5) / 0.25 / 4)
    loss.backward()
    assert scores.grad is not None
    assert scores.grad.tolist() == [0, 0, -1, -1]


def test_a_loss_or_penalty_that_is_named_but_not_written_is_an_error() -> None:
    unwritten: Any = "unwritten"
    for call in (
        lambda: discriminator_loss(unwritten, REAL, FAKE),
        lambda: generator_loss(unwritten, REAL, FAKE),
        lambda: gradient_penalties(unwritten, quadratic, REAL, REAL, FAKE, FAKE, REAL),
    ):
        with pytest.raises(AssertionError):
            call()
