"""Distances between two sets of pictures, as plain algebra on features or pixels. Pure: no networks, no files.

Features are (N, F) float tensors. `real` comes first, `fake` second. Distances between all pairs are computed in
blocks, so that memory stays bounded.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import conv2d, conv_transpose2d, pad

BLOCK = 500  # rows of a matrix of distances held at once: more would not stay in the caches, and take twice as long
PATCH = 7  # side of the patches of the sliced Wasserstein distance, pixels
PROJECTIONS = 256  # directions that patches are projected on
QUANTILES = 1024  # points at which the distributions along them are compared

Gaussian = tuple[Tensor, Tensor]
"""Mean (F,) and symmetric root (F, F) of a covariance, in double precision."""


def frechet_distance(real: Gaussian, fake: Gaussian) -> float:
    """Squared Frechet distance of two Gaussians (Heusel et al. 2017, eq. 6); FID where fitted to Inception's features.

    |m_r - m_f|^2 + tr(C_r + C_f - 2 (C_r C_f)^(1/2)); the last trace is the sum of the singular values of the product
    of the covariances' roots.
    """
    (real_mean, real_root), (fake_mean, fake_root) = real, fake
    cross = torch.linalg.svdvals(real_root @ fake_root).sum()
    traces = real_root.square().sum() + fake_root.square().sum()
    return ((real_mean - fake_mean).square().sum() + traces - 2 * cross).item()


def gaussian(features: Tensor) -> Gaussian:
    """The Gaussian fitted to features (N, F), N > 1, with the covariance of a sample (over N - 1)."""
    features = features.double()
    mean = features.mean(0)
    values, vectors = torch.linalg.eigh(torch.cov(features.T).reshape(features.shape[1], -1))
    return mean, (vectors * values.clamp(min=0).sqrt()) @ vectors.T


def mahalanobis(mean: Tensor, covariance: Tensor) -> Callable[[Tensor], Tensor]:
    """The squared Mahalanobis distance from the middle of a Gaussian, (N, F) -> (N,): the greater, the less likely.

    The mean (F,) and the covariance (F, F) are in double precision. A thousandth of the covariance's mean diagonal is
    added to its diagonal, so that features that are the same in all faces, and fewer faces than features, do not divide
    by nothing.
    """
    ridge = 1e-3 * covariance.diagonal().mean().clamp(min=1e-9)
    factor = torch.linalg.cholesky(covariance + ridge * torch.eye(len(mean)).double())
    return lambda some: torch.linalg.solve_triangular(factor, (some.double() - mean).T, upper=False).square().sum(0)


def left_out(distances: np.ndarray, fitted: np.ndarray | float) -> np.ndarray:
    """Estimate squared Mahalanobis distances as if the Gaussian had been fitted without each face in turn.

    The Gaussian lies nearer to the faces that it was fitted to than to others. `fitted` is their number, for all or
    (N,); infinite for a face that is not among them.
    """
    return distances / np.maximum(1 - distances / fitted, 1e-3)


def kernel_distance(real: Tensor, fake: Tensor, real_kernel: float | None = None) -> float:
    """Unbiased squared MMD, kernel (x . y / F + 1)^3 (Binkowski et al. 2018, eq. 4); KID on Inception's features.

    Both sets have at least two faces. `real_kernel` is `mean_kernel(real)`, if already known.
    """
    own = mean_kernel(real) if real_kernel is None else real_kernel
    return own + mean_kernel(fake) - 2 * mean_kernel(real, fake)


def mean_kernel(a: Tensor, b: Tensor | None = None) -> float:
    """Mean kernel of all pairs from `a` (N, F) and `b` (M, F); without `b`, of all pairs of two different of `a`."""
    total, others = 0.0, a if b is None else b
    for start in range(0, len(a), BLOCK):
        inner = a[start : start + BLOCK] @ others.T / a.shape[1] + 1
        kernel = inner.square().mul_(inner)
        if b is None:
            kernel.diagonal(start).zero_()
        total += kernel.sum(dtype=torch.float64).item()  # of some millions of numbers: single precision would not do
    return total / (len(a) * (len(others) - (b is None)))


def manifold_metrics(real: Tensor, fake: Tensor, k: int = 5, real_radii: Tensor | None = None) -> dict[str, float]:
    """Precision, recall (Kynkaanniemi et al. 2019, eq. 1 and 2), density, coverage (Naeem et al. 2020, eq. 3 and 4).

    A set's manifold is the union of balls around its features that reach to their k-th neighbours. Precision: share
    of fakes in the real manifold; recall: the other way round; density: balls of reals that a fake is in, over k;
    coverage: share of real balls with a fake in them. Both sets have more than k faces. `real_radii` is
    `radii(real, k)`, if already known.
    """
    if real_radii is None:
        real_radii = radii(real, k)
    fake_radii = radii(fake, k)
    in_real = torch.zeros(len(fake), device=fake.device)  # real balls around each fake
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
    """Standard error of the coverage over the choice of fakes, by the jackknife, which tends to overestimate it.

    Right where few reals are covered, up to 1.7 times too large where nearly all are (Efron and Stein 1981: on average
    never too small). `real_radii` is `radii(real, k)`.
    """
    lost = torch.zeros(len(fake), device=fake.device)  # reals that would not be covered without this fake
    for start, distances in _distances(real, fake):
        inside = distances <= real_radii[start : start + BLOCK, None]
        lost += inside[inside.sum(1) == 1].sum(0)
    return (((lost - lost.mean()).square().sum() * (1 - 1 / len(fake))).sqrt() / len(real)).item()


def nearest(features: Tensor, among: Tensor) -> tuple[Tensor, Tensor]:
    """The nearest of `among` (M, F) to each feature (N, F): distances (N,) and indices (N,)."""
    found = [distances.min(1) for _, distances in _distances(features, among)]
    return torch.cat([f.values for f in found]), torch.cat([f.indices for f in found])


def _distances(a: Tensor, b: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Distances between all of `a` and all of `b`, some rows at a time: the first row's index, (rows, len(b))."""
    for start in range(0, len(a), BLOCK):
        yield start, torch.cdist(a[start : start + BLOCK], b)


def radii(features: Tensor, k: int = 5, among: Tensor | None = None) -> Tensor:
    """Distance from each feature to its k-th neighbour, itself not counted: (N,).

    The neighbours are in `among` (M, F), which has all of the features; by default it has no others.
    """
    among = features if among is None else among
    return torch.cat([distances.kthvalue(k + 1, dim=1).values for _, distances in _distances(features, among)])


def laplacian_pyramid(images: Tensor) -> dict[int, Tensor]:
    """Split images (N, C, S, S) into bands of detail (Burt and Adelson 1983): each level lacks what the next one has.

    Returns:
        By size in pixels, S, S / 2, ... as long as that is even and at least 16: (N, C, size, size). The last level is
        the rest, and all of them, enlarged, add up to the images.
    """
    levels = {}
    while images.shape[-1] % 2 == 0 and images.shape[-1] >= 32:
        smaller = _shrink(images)
        levels[images.shape[-1]] = images - _enlarge(smaller)
        images = smaller
    return {**levels, images.shape[-1]: images}


def _binomial(images: Tensor) -> Tensor:
    """The 5x5 binomial filter, one for each channel: (C, 1, 5, 5)."""
    row = images.new_tensor([1.0, 4.0, 6.0, 4.0, 1.0]) / 16
    return (row[:, None] * row).expand(images.shape[1], 1, 5, 5)


def _shrink(images: Tensor) -> Tensor:
    padded = pad(images, (2, 2, 2, 2), mode="reflect")
    return conv2d(padded, _binomial(images), stride=2, groups=images.shape[1])


def _enlarge(images: Tensor) -> Tensor:
    wider = pad(images, (1, 1, 1, 1), mode="replicate")
    larger = conv_transpose2d(wider, 4 * _binomial(images), stride=2, padding=2, groups=images.shape[1])
    return pad(larger, (0, 1, 0, 1), mode="replicate")[..., 2:-2, 2:-2]


def patches(level: Tensor, each: int, random: torch.Generator) -> Tensor:
    """Patches of 7x7 at random places of each image (N, C, S, S): (N * each, C, 7, 7)."""
    n, _, height, width = level.shape
    tops = torch.randint(height - PATCH + 1, (n * each,), generator=random)
    lefts = torch.randint(width - PATCH + 1, (n * each,), generator=random)
    windows = level.unfold(2, PATCH, 1).unfold(3, PATCH, 1)  # a view: (N, C, H - 6, W - 6, 7, 7)
    return windows[torch.arange(n).repeat_interleave(each), :, tops, lefts]


@dataclasses.dataclass(frozen=True)
class Texture:
    """The distribution of patches of real faces along random directions."""

    mean: Tensor  # of each channel, (1, C, 1, 1)
    deviation: Tensor  # of each channel, (1, C, 1, 1)
    quantiles: Tensor  # of the projected patches, normalised by those two: (QUANTILES, PROJECTIONS)


def texture(patches: Tensor) -> Texture:
    """The texture of patches (N, C, 7, 7)."""
    mean = patches.mean((0, 2, 3), keepdim=True)
    deviation = patches.std((0, 2, 3), keepdim=True) + 1e-8
    return Texture(mean, deviation, _quantiles((patches - mean) / deviation))


def sliced_wasserstein(real: Texture, fake: Tensor) -> float:
    """Sliced Wasserstein distance between two sets of patches (Karras et al. 2018, section 5).

    Sees texture, blur and grids, and needs no features. Patches are normalised by mean and deviation of each channel of
    the reals, for both sets, so that a difference in contrast counts too; there each set has its own. The distributions
    are compared at 1,024 quantiles, so that the sets may differ in size: `fake` is (N, C, 7, 7).
    """
    return (_quantiles((fake - real.mean) / real.deviation) - real.quantiles).abs().mean().item()


def _quantiles(patches: Tensor) -> Tensor:
    """Quantiles of patches (N, C, 7, 7) along fixed random directions: (QUANTILES, PROJECTIONS)."""
    flat = patches.flatten(1)
    directions = torch.randn(flat.shape[1], PROJECTIONS, generator=torch.Generator().manual_seed(0))
    projected = (directions / directions.norm(dim=0)).T @ flat.T
    projected = torch.from_numpy(np.sort(projected.numpy(), axis=1)).T  # ten times as fast as torch's on the CPU
    places = ((torch.arange(QUANTILES) + 0.5) / QUANTILES * len(flat) - 0.5).clamp(0, len(flat) - 1)
    below = places.long()
    share = (places - below)[:, None]
    return projected[below] * (1 - share) + projected[(below + 1).clamp(max=len(flat) - 1)] * share


def radial_spectrum(images: Tensor) -> Tensor:
    """Mean power of images (N, C, S, S) at each spatial frequency, whatever its direction (Durall et al. 2020).

    Up-sampling leaves its traces at the end: peaks at the frequency of a grid, too little or too much of the finest.

    Returns:
        (R,), up to the corners, R = S / sqrt(2) + 1, rounded: entry f is the mean squared modulus at radius f, cycles
        per image, in units of one image's pixels squared, so that white noise of deviation s has s^2 everywhere.
    """
    size = images.shape[-1]
    grey = images.mean(1)
    power = torch.fft.fft2(grey - grey.mean((1, 2), keepdim=True)).abs().square().mean(0) / size**2
    frequencies = torch.fft.fftfreq(size, 1 / size)
    radii = (frequencies[:, None].square() + frequencies.square()).sqrt().round().long().flatten()
    counts = radii.bincount()
    return torch.zeros(len(counts)).index_add_(0, radii, power.flatten()) / counts
