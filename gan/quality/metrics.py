"""Distances between two sets of pictures, as plain algebra on features. Pure: no networks, no files.

Features are (N, F) float tensors; `real` comes first, `fake` second. Distances between all pairs are computed in
blocks to bound the memory.
"""

import math
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

BLOCK = 500  # rows of a distance matrix computed at once; more would not fit into the caches and take twice as long

Gaussian = tuple[Tensor, Tensor]
"""Mean (F,) and a matrix R (at most F, F) with R.T R the covariance, in double precision."""


def frechet_distance(real: Gaussian, fake: Gaussian) -> float:
    """Squared Frechet distance of two Gaussians (Heusel et al. 2017, eq. 6); FID if fitted to Inception's features.

    It is |m_r - m_f|^2 + tr(C_r + C_f - 2 (C_r C_f)^(1/2)). With C = R.T R, the last trace is the sum of the singular
    values of R_r R_f.T.
    """
    (real_mean, real_root), (fake_mean, fake_root) = real, fake
    cross = torch.linalg.svdvals(real_root @ fake_root.T).sum()
    traces = real_root.square().sum() + fake_root.square().sum()
    return ((real_mean - fake_mean).square().sum() + traces - 2 * cross).item()


def gaussian(features: Tensor) -> Gaussian:
    """Fit a Gaussian to features (N, F), N > 1, with the sample covariance (divided by N - 1)."""
    features = features.double()
    mean = features.mean(0)
    return mean, torch.linalg.qr((features - mean) / math.sqrt(len(features) - 1), mode="r").R


def mahalanobis(mean: Tensor, covariance: Tensor) -> Callable[[Tensor], Tensor]:
    """Return a function (N, F) -> (N,), the squared Mahalanobis distance: the larger, the less likely.

    The mean (F,) and the covariance (F, F) are in double precision. A thousandth of the mean of the covariance's
    diagonal is added to the diagonal, to avoid a singular matrix if features are constant or outnumber the faces.
    """
    ridge = 1e-3 * covariance.diagonal().mean().clamp(min=1e-9)
    factor = torch.linalg.cholesky(covariance + ridge * torch.eye(len(mean)).double())
    return lambda some: torch.linalg.solve_triangular(factor, (some.double() - mean).T, upper=False).square().sum(0)


def left_out(distances: np.ndarray, fitted: np.ndarray | float) -> np.ndarray:
    """Estimate squared Mahalanobis distances as if each face in turn had been left out of the fit.

    A Gaussian lies nearer to the faces that it was fitted to than to others. `fitted` is the number of these faces, for
    all or (N,), and infinite for a face that is not one of them.
    """
    return distances / np.maximum(1 - distances / fitted, 1e-3)


def kernel_distance(real: Tensor, fake: Tensor, real_kernel: float | None = None) -> float:
    """Unbiased squared MMD, kernel (x . y / F + 1)^3 (Binkowski et al. 2018, eq. 4); KID with Inception's features.

    Both sets have at least two faces. `real_kernel` is `mean_kernel(real)`, if already known.
    """
    own = mean_kernel(real) if real_kernel is None else real_kernel
    return own + mean_kernel(fake) - 2 * mean_kernel(real, fake)


def mean_kernel(a: Tensor, b: Tensor | None = None) -> float:
    """Mean kernel over all pairs from `a` (N, F) and `b` (M, F); without `b`, over pairs of different rows of `a`."""
    total, others = 0.0, a if b is None else b
    for start in range(0, len(a), BLOCK):
        inner = a[start : start + BLOCK] @ others.T / a.shape[1] + 1
        kernel = inner.square().mul_(inner)
        if b is None:
            kernel.diagonal(start).zero_()
        total += kernel.sum(dtype=torch.float64).item()  # millions of numbers are too many for single precision
    return total / (len(a) * (len(others) - (b is None)))


def manifold_metrics(real: Tensor, fake: Tensor, k: int = 5, real_radii: Tensor | None = None) -> dict[str, float]:
    """Precision, recall (Kynkaanniemi et al. 2019, eq. 1 and 2), density, coverage (Naeem et al. 2020, eq. 3 and 4).

    A set's manifold is the union of balls around its features that reach to their k-th neighbours. Precision is the
    share of fakes in the real manifold, and recall the share of reals in the fake one. Density is the mean number of
    real balls that a fake lies in, over k. Coverage is the share of real balls that contain a fake. Both sets have more
    than k faces. `real_radii` is `radii(real, k)`, if already known.
    """
    if real_radii is None:
        real_radii = radii(real, k)
    fake_radii = radii(fake, k)
    in_real = torch.zeros(len(fake), device=fake.device)  # number of real balls around each fake
    nearest_fake, in_fake = [], []
    for start, distances in _distances(real, fake):
        inside = distances <= real_radii[start : start + BLOCK, None]
        in_real += inside.sum(0)
        nearest_fake.append(inside.any(1))
        in_fake.append((distances <= fake_radii).any(1))
    return {
        "precision": (in_real > 0).float().mean().item(),
        "recall": torch.cat(in_fake).float().mean().item(),
        "density": (in_real.mean() / k).item(),
        "coverage": torch.cat(nearest_fake).float().mean().item(),
    }


def coverage_deviation(real: Tensor, fake: Tensor, real_radii: Tensor) -> float:
    """Estimate the standard error of the coverage over the choice of fakes by the jackknife, which tends to exceed it.

    It is right if few reals are covered, and up to 1.7 times too large if nearly all are (Efron and Stein 1981: on
    average never too small). `real_radii` is `radii(real, k)`.
    """
    lost = torch.zeros(len(fake), device=fake.device)  # number of reals that only this fake covers
    for start, distances in _distances(real, fake):
        inside = distances <= real_radii[start : start + BLOCK, None]
        lost += inside[inside.sum(1) == 1].sum(0)
    return (((lost - lost.mean()).square().sum() * (1 - 1 / len(fake))).sqrt() / len(real)).item()


def nearest(features: Tensor, among: Tensor) -> tuple[Tensor, Tensor]:
    """Find the nearest of `among` (M, F) to each feature (N, F); returns distances (N,) and indices (N,)."""
    found = [distances.min(1) for _, distances in _distances(features, among)]
    return torch.cat([f.values for f in found]), torch.cat([f.indices for f in found])


def _distances(a: Tensor, b: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Yield the distances between all of `a` and all of `b` in blocks: the first row's index, (rows, len(b))."""
    for start in range(0, len(a), BLOCK):
        yield start, torch.cdist(a[start : start + BLOCK], b)


def radii(features: Tensor, k: int = 5, among: Tensor | None = None) -> Tensor:
    """Return the distance from each feature to its k-th neighbour, not counting itself, (N,).

    The neighbours are taken from `among` (M, F), which contains all of the features; by default it is `features`.
    """
    among = features if among is None else among
    return torch.cat([distances.kthvalue(k + 1, dim=1).values for _, distances in _distances(features, among)])
