"""The curves of a run: bounded memory, smoothing, histograms."""

import numpy as np
import pytest

from gan.watching.curves import PANELS, POINTS, Curves, histogram, smoothed


def row(step: int, **values: float) -> dict[str, float]:
    return {"step": step, "images_seen": 64 * step, "seconds": step / 2, "d_loss": 0.5, "g_loss": 1.5, **values}


def test_curves_keep_their_course_in_bounded_memory() -> None:
    curves = Curves()
    for step in range(1, 100_001):
        curves.add(row(step, d_loss=step / 100_000))

    images, values = curves.column("d_loss")
    assert POINTS / 2 <= len(images) <= POINTS
    assert images[-1] == 6_400_000
    assert (np.diff(images) > 0).all()
    assert values == pytest.approx(images / 6_400_000, abs=2e-3)  # a straight line stays one
    assert np.diff(images).max() <= 2 * np.diff(images)[:-1].min()  # and is known everywhere alike


def test_curves_without_a_value_at_every_row() -> None:
    curves = Curves()
    for step in range(1, 11):
        curves.add(row(step, r1_penalty=2.0) if step % 4 == 0 else row(step))

    assert [list(points) for points in curves.column("r1_penalty")] == [[256, 512], [2.0, 2.0]]
    assert len(curves.column("nothing")[0]) == 0


def test_curves_forget_what_is_taken_back() -> None:
    curves = Curves()
    for step in (50, 100, 150):
        curves.add(row(step))
    curves.rewind(100)

    assert list(curves.column("g_loss")[0]) == [3200, 6400]


def test_columns_along_time_and_panels_with_what_there_is() -> None:
    curves = Curves()
    for step in (50, 100):
        curves.add(row(step, data_wait=0.25))

    assert list(curves.column("d_loss", "seconds")[0]) == [25, 50]
    assert curves.panel(PANELS["quality"]) == {}
    assert list(curves.panel(PANELS["losses"])) == ["discriminator", "generator"]
    assert list(curves.panel(PANELS["data_wait"])["data wait"][1]) == [25, 25]


def test_smoothing_keeps_lines_and_levels_and_takes_noise_away() -> None:
    noise = np.random.default_rng(0).normal(size=1000)
    assert smoothed(np.full(7, 3.0)) == pytest.approx(3.0)
    assert smoothed(np.arange(1000.0))[100:-100] == pytest.approx(np.arange(1000.0)[100:-100])
    assert smoothed(noise).std() == pytest.approx(1 / np.sqrt(51), rel=0.2)  # 5 % of the points, and its own
    assert smoothed(noise)[-1] == pytest.approx(noise[-26:].mean())
    assert len(smoothed(np.array([]))) == 0


def test_a_histogram_has_shares_of_each_kind_over_the_same_bins() -> None:
    random = np.random.default_rng(0)
    edges, shares = histogram(random.normal(2, 1, 500), random.normal(-2, 1, 250))
    centres = (edges[1:] + edges[:-1]) / 2
    assert {kind: share.sum() for kind, share in shares.items()} == pytest.approx({"real": 1, "fake": 1})
    assert (shares["real"] * centres).sum() == pytest.approx(2, abs=0.2)
    assert (shares["fake"] * centres).sum() == pytest.approx(-2, abs=0.2)


def test_a_histogram_leaves_out_what_is_no_number_and_bears_logits_that_are_all_alike() -> None:
    edges, shares = histogram(np.array([1.0, np.nan, np.inf]), np.full(8, 1.0, np.float32))
    assert np.isfinite(edges).all()
    assert {kind: share.sum() for kind, share in shares.items()} == pytest.approx({"real": 1, "fake": 1})
    assert histogram(np.array([np.nan]), np.array([]))[1]["real"].sum() == 0


def test_measurements_are_kept_as_they_are() -> None:
    curves = Curves()
    for step in range(1, 5001):
        curves.add(row(step, **({"fd": step / 10, "coverage": 0.5} if step % 500 == 0 else {})))
    assert list(curves.column("fd")[1]) == [50.0 * i for i in range(1, 11)]
    assert list(curves.column("coverage", "step")[0]) == [500.0 * i for i in range(1, 11)]
    curves.rewind(2600)
    assert len(curves.column("fd")[0]) == 5
