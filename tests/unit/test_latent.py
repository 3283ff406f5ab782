"""Randomness is a function of what it is for, and the same everywhere."""

import numpy as np
import pytest
import torch

from gan.latent import latents, normal, stream

PINNED_STREAM = [0.6000024259504088, 0.32535680494482444, 0.2459503415009936, 0.4211032868131819]
PINNED_LATENT = [1.1176220, -1.3871249, -0.4265716, -0.8035873]
EVENT = {"seed": 3, "step": 7, "purpose": "d_z", "retry": 0}


def draws(**event: object) -> list[float]:
    return stream(**{**EVENT, **event}).random(4).tolist()  # pyright: ignore[reportArgumentType]


def test_same_event_draws_the_same_numbers() -> None:
    assert draws() == draws()


def test_every_part_of_an_event_changes_all_its_numbers() -> None:
    events = [{}, {"seed": 4}, {"step": 8}, {"purpose": "g_z"}, {"purpose": "d_zz"}, {"retry": 1}, {"seed": 2**53}]
    events += [{"seed": 7, "step": 3}]  # the parts are not interchangeable
    numbers = [number for event in events for number in draws(**event)]
    assert len(set(numbers)) == len(numbers)


def test_a_stream_without_rollbacks_is_that_of_none() -> None:
    assert stream(3, 5, "d_z").random() == stream(3, 5, "d_z", retry=0).random()
    assert stream(3, 5, "d_z").random() == np.random.default_rng([3, 5, 0, *b"d_z"]).random()  # as in every version


def test_streams_of_successive_steps_are_independent() -> None:
    table = np.stack([stream(0, step, "d_z").standard_normal(1000) for step in range(20)])
    correlations = np.asarray(np.corrcoef(table)) - np.eye(20)
    assert abs(correlations).max() < 5 / np.sqrt(1000)


def test_numbers_are_the_same_on_every_platform() -> None:
    assert draws() == pytest.approx(PINNED_STREAM, abs=1e-12)
    assert latents([0], 4)[0].tolist() == pytest.approx(PINNED_LATENT, abs=1e-6)


def test_batch_is_standard_normal_float32() -> None:
    z = normal(stream(0, 1, "d_z"), 1000, 100)
    assert (z.shape, z.dtype) == ((1000, 100), torch.float32)
    assert z.mean().item() == pytest.approx(0, abs=5 / 100_000**0.5)
    assert z.var().item() == pytest.approx(1, abs=5 * (2 / 100_000) ** 0.5)
    assert z.pow(4).mean().item() == pytest.approx(3, abs=5 * (96 / 100_000) ** 0.5)


def test_latent_depends_on_its_seed_alone() -> None:
    alone = latents([5], 100)[0]
    assert torch.equal(latents(range(10), 100)[5], alone)
    assert torch.equal(latents([9, 5, 5], 100)[1:], alone.expand(2, -1))


def test_different_seeds_have_different_latents() -> None:
    assert len(torch.unique(latents(range(500), 100))) > 0.99 * 500 * 100


@pytest.mark.parametrize(("mean", "std"), [(0.0, 1.0), (0.5, 0.7), (-2.0, 0.0)])
def test_mean_and_std_shift_and_scale_every_component(mean: float, std: float) -> None:
    z, plain = latents(range(300), 100, mean, std), latents(range(300), 100)
    assert (z.shape, z.dtype) == ((300, 100), torch.float32)
    torch.testing.assert_close(z, plain * std + mean)
    assert z.mean().item() == pytest.approx(mean, abs=5 * std / 30_000**0.5)
    assert z.std().item() == pytest.approx(std, abs=5 * std / 60_000**0.5)
