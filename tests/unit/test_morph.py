"""Ways between faces: arcs that pass their points, and steps that look alike."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from config import ModelConfig
from gan.play import morph
from gan.quality.sampling import Sampler

CPU = torch.device("cpu")
MODEL = ModelConfig(arch="dcgan", image_size=32, nz=8, ngf=8, ndf=8)


class Sudden(nn.Module):
    """A generator whose face hardly changes but where the first number of its latent passes 0."""

    def forward(self, z: Tensor) -> Tensor:
        return (8 * z[:, :1]).tanh()[:, :, None, None].expand(-1, 3, 32, 32) * 0.9


@pytest.fixture
def sampler() -> Sampler:
    return Sampler(Sudden(), None, MODEL, CPU)


def test_an_arc_begins_and_ends_at_its_points_and_turns_evenly() -> None:
    first, last = torch.randn(2, 1, 8, generator=torch.Generator().manual_seed(0)) * torch.tensor([[[1.0]], [[3.0]]])
    arc = morph.slerp(first, last, torch.linspace(0, 1, 11))
    torch.testing.assert_close(arc[[0, -1]], torch.cat([first, last]))
    turns = torch.nn.functional.cosine_similarity(arc[:-1], arc[1:]).acos()
    torch.testing.assert_close(turns, turns.mean().expand(10), rtol=1e-3, atol=1e-4)
    steps = arc.norm(dim=1).diff()
    torch.testing.assert_close(steps, steps.mean().expand(10), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("other", [1.0, 2.0, -1.0, 0.0])
def test_an_arc_to_a_point_on_the_same_line_stays_finite(other: float) -> None:
    point = torch.ones(1, 8)
    arc = morph.slerp(point, other * point, torch.linspace(0, 1, 5))
    assert arc.isfinite().all()
    torch.testing.assert_close(arc[[0, -1]], torch.cat([point, other * point]))


def test_the_round_passes_each_point_and_returns() -> None:
    points = torch.randn(3, 8, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(morph.around(points, torch.tensor([0.0, 1.0, 2.0, 3.0])), points[[0, 1, 2, 0]])
    halfway = morph.slerp(points[2:], points[:1], torch.tensor([0.5]))
    torch.testing.assert_close(morph.around(points, torch.tensor([2.5])), halfway)


def test_steps_look_alike_where_a_generator_changes_suddenly(sampler: Sampler) -> None:
    points = torch.randn(2, 8, generator=torch.Generator().manual_seed(1))
    points[:, 0] = torch.tensor([-2.0, 2.0])

    def steps(latents: Tensor) -> np.ndarray:
        faces = np.concatenate([*sampler.draw(latents), *sampler.draw(latents[:1])]).astype(float)
        return np.abs(np.diff(faces[:, 0, 0, 0]))

    plain, even = steps(morph.around(points, torch.linspace(0, 2, 41)[:-1])), steps(morph.evenly(sampler, points, 40))
    assert plain.max() > 8 * plain.mean()
    assert even.max() < 1.5 * even.mean()


def test_a_film_of_many_faces_is_no_longer_than_seconds_may_say() -> None:
    assert morph.frames_of(3, None) == 150
    assert morph.frames_of(64, None) == 750
    assert morph.frames_of(64, 0.2) == 5


def test_it_says_how_many_faces_it_has_drawn(sampler: Sampler) -> None:
    counted = list[int]()
    assert morph.evenly(sampler, torch.randn(2, 8), 25, counted.append).shape == (25, 8)
    assert sum(counted) == 100


def test_a_generator_that_always_draws_the_same_goes_at_an_even_pace(sampler: Sampler) -> None:
    points = torch.tensor([[5.0] * 8, [5.0] * 7 + [6.0]])
    torch.testing.assert_close(
        morph.evenly(sampler, points, 10), morph.around(points, torch.linspace(0, 2, 11)[:-1]), rtol=1e-3, atol=1e-3
    )
