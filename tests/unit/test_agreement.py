"""How the eye's order and a measure's are compared."""

from pathlib import Path

import pytest

agreement = pytest.importorskip("benchmarks.agreement")  # it needs OpenCV, of requirements-extra.txt


def test_ranks_are_compared_and_equals_share_one() -> None:
    assert agreement.ranks([0.3, 0.1, 0.3, 0.9]).tolist() == [2.5, 1, 2.5, 4]
    assert agreement.spearman([1, 2, 3, 4], [10, 20, 30, 99]) == pytest.approx(1)
    assert agreement.spearman([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1)
    # 1 - 6 sum d^2 / n (n^2 - 1), here of one pair exchanged
    assert agreement.spearman([1, 2, 3, 4, 5], [1, 2, 3, 5, 4]) == pytest.approx(1 - 6 * 2 / 120)


def test_each_cell_counts_once_over_all_looks(tmp_path: Path) -> None:
    first, second = tmp_path / "a.csv", tmp_path / "b.csv"
    first.write_text("faces,which,look 1,look 2\nabc,0,1,1\nabc,1,0,1\nreal,,0,0\n")
    second.write_text("faces,which,look 1,look 2\nabc,0,0,1\n")
    found = agreement.answers([first, second])
    assert found["abc"].tolist() == [1, 0.5, 0.5]
    assert found["real"].tolist() == [0]
