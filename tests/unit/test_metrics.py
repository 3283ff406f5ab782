"""Metrics against closed forms, against sets whose answer is known, and against an independent plain computation."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from gan.quality import metrics
from gan.quality.metrics import (
    coverage_deviation,
    gaussian,
    kernel_distance,
    left_out,
    mahalanobis,
    manifold_metrics,
    nearest,
    radii,
)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def with_moments(mean: Tensor, covariance: Tensor, n: int, seed: int = 0) -> Tensor:
    """Features whose sample mean and covariance are exactly the given ones."""
    x = normal(n, len(mean), seed=seed).double()
    x = x - x.mean(0)
    x = x @ torch.linalg.inv(torch.linalg.cholesky(torch.cov(x.T))).T
    return x @ torch.linalg.cholesky(covariance.double()).T + mean.double()


def frechet_distance(a: Tensor, b: Tensor) -> float:
    return metrics.frechet_distance(gaussian(a), gaussian(b))


def test_frechet_distance_of_diagonal_gaussians_is_the_closed_form() -> None:
    a = with_moments(torch.tensor([0.0, 1.0, 2.0]), torch.diag(torch.tensor([1.0, 4.0, 9.0])), 100)
    b = with_moments(torch.tensor([1.0, 1.0, 0.0]), torch.diag(torch.tensor([4.0, 4.0, 1.0])), 250, seed=1)
    # means: 1 + 0 + 4; deviations 1-2, 2-2, 3-1: 1 + 0 + 4
    assert frechet_distance(a, b) == pytest.approx(10, rel=1e-6)
    assert frechet_distance(b, a) == pytest.approx(10, rel=1e-6)


def test_frechet_distance_of_gaussians_that_do_not_commute() -> None:
    # one dimension along (1, 1), the other along (1, 0): tr (C1 C2)^(1/2) = |u . v| for C = u u^T + tiny
    u, v = torch.tensor([1.0, 1.0]), torch.tensor([2.0, 0.0])
    tiny = 1e-10 * torch.eye(2, dtype=torch.double)
    a, b = (with_moments(torch.zeros(2), torch.outer(w, w).double() + tiny, 50) for w in (u, v))
    assert frechet_distance(a, b) == pytest.approx(2 + 4 - 2 * 2, abs=1e-3)


def test_frechet_distance_is_zero_for_equal_sets_and_for_fewer_faces_than_features() -> None:
    x = normal(20, 64)
    assert frechet_distance(x, x) == pytest.approx(0, abs=1e-6)


def test_frechet_distance_against_the_definition_with_a_general_matrix_root() -> None:
    a, b = normal(300, 12), 1.5 * normal(200, 12, seed=1) @ normal(12, 12, seed=2) + 0.3
    covariances = [torch.cov(x.double().T) for x in (a, b)]
    values = torch.linalg.eigvals(covariances[0] @ covariances[1])
    expected = (a.double().mean(0) - b.double().mean(0)).square().sum()
    expected = expected + covariances[0].trace() + covariances[1].trace() - 2 * values.sqrt().real.sum()
    assert frechet_distance(a, b) == pytest.approx(expected.item(), rel=1e-6)


def test_kernel_distance_by_hand() -> None:
    # F = 1, kernel (x y + 1)^3: reals 0, 1; fakes 1, 2
    real, fake = torch.tensor([[0.0], [1.0]]), torch.tensor([[1.0], [2.0]])
    assert kernel_distance(real, fake) == pytest.approx(1 + 27 - 2 * (1 + 1 + 8 + 27) / 4)


def test_kernel_distance_is_unbiased_and_sees_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    found = torch.tensor([kernel_distance(normal(60, 4, seed=s), normal(50, 4, seed=1000 + s)) for s in range(200)])
    assert abs(found.mean()) < 4 * found.std() / math.sqrt(200)
    assert (found < 0).any()
    a, b = normal(400, 4), normal(300, 4, seed=1) + 1
    whole = kernel_distance(a, b)
    assert whole > 20 * found.std()
    monkeypatch.setattr(metrics, "BLOCK", 37)
    assert kernel_distance(a, b) == pytest.approx(whole, rel=1e-5)


def test_manifold_metrics_by_hand() -> None:
    # k = 1 on a line: reals 0, 1, 10 have radii 1, 1, 9; fakes 0.5, 3, 100 have 2.5, 2.5, 97
    real, fake = torch.tensor([[0.0], [1.0], [10.0]]), torch.tensor([[0.5], [3.0], [100.0]])
    found = manifold_metrics(real, fake, k=1)
    # 0.5 is in the balls of 0 and 1 (and not of 10); 3 in that of 10; 100 in none
    assert found["precision"] == pytest.approx(2 / 3)
    assert found["density"] == pytest.approx(3 / 3)
    # every real ball has a fake in it; real 0 and 1 are in the ball of 0.5, and 10 in that of 100
    assert found["coverage"] == pytest.approx(1)
    assert found["recall"] == pytest.approx(1)


def test_manifold_metrics_are_those_of_a_plain_computation() -> None:
    real, fake, k = normal(40, 3), 0.8 * normal(30, 3, seed=1), 3

    def within(points: Tensor) -> Tensor:  # radii: the distance to the third neighbour, oneself is the first
        return (points[:, None] - points).norm(dim=2).sort(1).values[:, k]

    apart = (real[:, None] - fake).norm(dim=2)
    in_real, in_fake = apart <= within(real)[:, None], apart <= within(fake)
    assert manifold_metrics(real, fake, k=k) == pytest.approx(
        {
            "precision": in_real.any(0).float().mean().item(),
            "recall": in_fake.any(1).float().mean().item(),
            "density": in_real.sum().item() / k / 30,
            "coverage": in_real.any(1).float().mean().item(),
        }
    )


def test_who_is_exactly_at_the_edge_of_a_ball_is_in_it() -> None:
    real, fake = torch.tensor([[0.0], [1.0]]), torch.tensor([[2.0], [3.0]])  # all radii are 1; 1 and 2 are that far
    assert manifold_metrics(real, fake, k=1) == {"precision": 0.5, "recall": 0.5, "density": 0.5, "coverage": 0.5}


def test_manifold_metrics_tell_copies_of_one_face_from_variety(monkeypatch: pytest.MonkeyPatch) -> None:
    real, fake = normal(600, 8), normal(500, 8, seed=1)
    same = manifold_metrics(real, fake)
    assert all(value > 0.8 for value in same.values())
    collapsed = manifold_metrics(real, 0.01 * fake)
    assert collapsed["precision"] == 1
    assert collapsed["recall"] < 0.05
    assert collapsed["coverage"] < 0.7
    far = manifold_metrics(real, fake + 50)
    assert far == {"precision": 0, "recall": 0, "density": 0, "coverage": 0}
    monkeypatch.setattr(metrics, "BLOCK", 33)
    assert manifold_metrics(real, fake) == pytest.approx(same)


def test_nearest_finds_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "BLOCK", 7)
    among = normal(50, 6)
    distances, indices = nearest(among[[3, 40, 17]] + torch.tensor([0.0, 0.0, 1e-3])[:, None], among)
    assert indices.tolist() == [3, 40, 17]
    assert distances.tolist() == pytest.approx([0, 0, 1e-3 * math.sqrt(6)], abs=1e-3)


@pytest.mark.parametrize("near", [0.02, 0.2, 1.0])
def test_the_deviation_of_coverage_is_that_over_new_fakes_or_somewhat_more(near: float) -> None:
    real = normal(400, 4)
    known = radii(real)

    def fakes(seed: int) -> Tensor:
        far = torch.rand(400, 1, generator=torch.Generator().manual_seed(seed)) >= near
        return normal(400, 4, seed=1000 + seed) + 100 * far

    true = torch.tensor(
        [manifold_metrics(real, fakes(seed), real_radii=known)["coverage"] for seed in range(1, 81)]
    ).std()
    estimated = [coverage_deviation(real, fakes(seed), known) for seed in range(100, 110)]
    assert 0.8 < sum(estimated) / len(estimated) / true.item() < 2


@pytest.mark.parametrize("spread", [0.3, 1.0])
def test_the_deviation_of_coverage_is_that_of_the_plain_jackknife(spread: float) -> None:
    real, fake = normal(60, 2), spread * normal(25, 2, seed=1)
    known = radii(real)
    covered = [
        manifold_metrics(real, torch.cat([fake[:i], fake[i + 1 :]]), real_radii=known)["coverage"] for i in range(25)
    ]
    expected = math.sqrt(24 / 25 * sum((one - sum(covered) / 25) ** 2 for one in covered))
    assert coverage_deviation(real, fake, known) == pytest.approx(expected, rel=1e-5)
    assert expected > 0


def test_a_gaussian_is_as_far_from_what_it_was_fitted_to_as_from_the_rest_once_that_is_allowed_for() -> None:
    known, new = normal(1000, 200), normal(1000, 200, seed=1)
    distance = mahalanobis(known.double().mean(0), torch.cov(known.double().T))
    near, far = distance(known).numpy(), distance(new).numpy()
    assert near.mean() < 0.85 * far.mean()
    assert left_out(near, len(known)).mean() == pytest.approx(far.mean(), rel=0.02)
    mixed = left_out(np.stack([near, far]), np.array([[1000.0], [np.inf]]))
    assert mixed.mean(1) == pytest.approx(far.mean(), rel=0.02)


class Given(torch.nn.Module):
    """Stands in torchmetrics for a network: the images are the features."""

    num_features = 24

    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(1)


@pytest.mark.filterwarnings("ignore:Metric `Kernel Inception Distance` will save")
def test_distances_agree_with_torchmetrics_on_the_same_features() -> None:
    fid = pytest.importorskip("torchmetrics.image.fid").FrechetInceptionDistance
    kid = pytest.importorskip("torchmetrics.image.kid").KernelInceptionDistance
    real, fake = normal(500, 24) @ normal(24, 24, seed=2) / 5, normal(500, 24, seed=1) * 0.9 + 0.2
    theirs = fid(feature=Given(), normalize=True, input_img_size=(3, 2, 4)).set_dtype(torch.float64)
    whole = kid(feature=Given(), normalize=True, subsets=1, subset_size=500)
    for metric in (theirs, whole):
        metric.inception.eval()
        for features, is_real in ((real, True), (fake, False)):
            values = features.double() if metric is theirs else features
            metric.update(values.reshape(-1, 3, 2, 4), real=is_real)
    assert frechet_distance(real, fake) == pytest.approx(theirs.compute().item(), rel=1e-3)
    assert kernel_distance(real, fake) == pytest.approx(whole.compute()[0].item(), rel=1e-3)
