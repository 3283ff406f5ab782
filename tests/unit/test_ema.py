"""The averaged generator: how fast it forgets, and BatchNorm statistics of its own."""

import pytest
import torch
from torch import Tensor, nn

from gan.training import ema


class Noisy(nn.Module):
    """A generator in small: latents (N, 4) -> two normalised layers."""

    def __init__(self) -> None:
        super().__init__()
        self.main = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3), nn.BatchNorm1d(3))
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, z: Tensor) -> Tensor:
        return self.main(z) * self.scale


@pytest.fixture
def generator() -> Noisy:
    torch.manual_seed(0)
    generator = Noisy()
    for parameter in generator.parameters():
        nn.init.normal_(parameter, 0.5)
    generator(torch.randn(8, 4))  # statistics of some batch
    return generator


def copied(module: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


def same(module: nn.Module, before: dict[str, Tensor]) -> bool:
    return all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())


def test_old_weights_count_half_after_the_half_life() -> None:
    images = 64
    left = 1.0
    for _ in range(20_000 // images + 1):
        left *= ema.decay(images, 10**9, 20_000)
    assert left == pytest.approx(0.5, rel=0.005)


@pytest.mark.parametrize("half_life", [500, 20_000])
def test_one_step_of_a_half_life_halves(half_life: int) -> None:
    assert ema.decay(half_life, 10**9, half_life) == pytest.approx(0.5)
    assert ema.decay(2 * half_life, 10**9, half_life) == pytest.approx(0.25)


def test_half_life_is_a_tenth_of_the_images_seen_until_it_is_reached() -> None:
    assert ema.decay(100, 1000, 20_000) == pytest.approx(0.5)
    assert ema.decay(100, 2000, 20_000) == pytest.approx(0.5**0.5)
    assert ema.decay(20_000, 200_000, 20_000) == ema.decay(20_000, 10**9, 20_000) == pytest.approx(0.5)


def test_without_a_half_life_nothing_of_the_old_remains() -> None:
    assert ema.decay(64, 10**6, 0) == 0.0


def test_average_is_a_frozen_copy(generator: Noisy) -> None:
    before = copied(generator)
    average = ema.average_of(generator)
    assert same(average, before)
    assert not average.training
    assert generator.training
    assert not any(p.requires_grad for p in average.parameters())
    assert all(p.requires_grad for p in generator.parameters())
    for parameter in average.parameters():
        parameter.zero_()
    assert same(generator, before)


def test_update_mixes_every_parameter_and_leaves_the_generator_alone(generator: Noisy) -> None:
    average = ema.average_of(generator)
    for parameter in average.parameters():
        nn.init.normal_(parameter)
    old, new = copied(average), copied(generator)
    ema.update(average, generator, 0.75)
    for name, parameter in average.named_parameters():
        torch.testing.assert_close(parameter, 0.75 * old[name] + 0.25 * new[name])
    assert same(generator, new)


def test_update_leaves_running_statistics_alone(generator: Noisy) -> None:
    average = ema.average_of(generator)
    before = {name: buffer.clone() for name, buffer in average.named_buffers()}
    generator(torch.randn(8, 4) + 5)
    ema.update(average, generator, 0.5)
    assert all(torch.equal(buffer, before[name]) for name, buffer in average.named_buffers())


def test_update_that_keeps_nothing_copies_exactly(generator: Noisy) -> None:
    average = ema.average_of(generator)
    for parameter in average.parameters():
        nn.init.normal_(parameter, 0, 1e4)
    ema.update(average, generator, 0.0)
    assert all(torch.equal(a, g) for a, g in zip(average.parameters(), generator.parameters(), strict=True))


def test_statistics_are_the_mean_and_variance_of_the_activations(generator: Noisy) -> None:
    batches = [torch.randn(500, 4) * (i + 1) for i in range(3)]
    linear, norm = generator.main[0], generator.main[1]
    assert isinstance(linear, nn.Linear)
    with torch.no_grad():
        activations = [z @ linear.weight.T + linear.bias for z in batches]
    ema.estimate_statistics(generator, batches)
    assert isinstance(norm, nn.BatchNorm1d)
    assert norm.running_mean is not None
    assert norm.running_var is not None
    torch.testing.assert_close(norm.running_mean, torch.stack([a.mean(0) for a in activations]).mean(0))
    torch.testing.assert_close(norm.running_var, torch.stack([a.var(0) for a in activations]).mean(0))


def test_statistics_make_normalised_outputs_of_new_latents(generator: Noisy) -> None:
    ema.estimate_statistics(generator, [torch.randn(4000, 4) for _ in range(4)])
    with torch.no_grad():
        out = generator(torch.randn(40_000, 4)) / generator.scale
    norm = generator.main[4]
    assert isinstance(norm, nn.BatchNorm1d)
    torch.testing.assert_close(out.mean(0), norm.bias, atol=0.05, rtol=0)
    torch.testing.assert_close(out.std(0), norm.weight.abs(), atol=0.05, rtol=0.05)


def test_estimating_statistics_changes_nothing_else(generator: Noisy) -> None:
    average = ema.average_of(generator)
    norms = [m for m in average.modules() if isinstance(m, nn.BatchNorm1d)]
    norms[0].momentum, norms[1].momentum = 0.3, None
    parameters = [p.clone() for p in average.parameters()]
    ema.estimate_statistics(average, [torch.randn(32, 4)] * 2)
    assert [norm.momentum for norm in norms] == [0.3, None]
    assert not any(module.training for module in average.modules())
    assert all(torch.equal(a, b) for a, b in zip(average.parameters(), parameters, strict=True))


def test_statistics_that_cannot_be_estimated_stay_as_they_were(generator: Noisy) -> None:
    average = ema.average_of(generator)
    ema.estimate_statistics(average, [torch.randn(64, 4)])
    before = {name: buffer.clone() for name, buffer in average.named_buffers()}
    wide = torch.randn(64, 5)  # for another network: the first batch is taken, this one fails
    with pytest.raises(RuntimeError, match="shapes"):
        ema.estimate_statistics(average, [torch.randn(64, 4), wide])
    assert all(torch.equal(buffer, before[name]) for name, buffer in average.named_buffers())
    assert not any(module.training for module in average.modules())


def test_estimating_statistics_twice_gives_the_same(generator: Noisy) -> None:
    batches = [torch.randn(64, 4) for _ in range(3)]
    ema.estimate_statistics(generator, batches)
    once = copied(generator)
    ema.estimate_statistics(generator, batches)
    assert same(generator, once)


def test_generator_without_batchnorm_is_not_even_run() -> None:
    def fail(*_: object) -> None:
        pytest.fail("ran the generator")

    generator = nn.Sequential(nn.Linear(4, 3))
    generator.register_forward_pre_hook(fail)
    before = copied(generator)
    ema.estimate_statistics(generator, [torch.randn(2, 4)])
    assert same(generator, before)
