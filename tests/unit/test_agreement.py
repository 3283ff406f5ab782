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


def test_a_cells_answers_are_the_mean_of_a_pair_of_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = ["7,abc,0,1,1", "7,abc,1,0,1", "7,real,,0,0", "8,abc,0,0,1", "9,abc,0,1,1"]
    (tmp_path / "looks.csv").write_text("\n".join(["pair,faces,which,look 1,look 2", *rows]) + "\n")
    monkeypatch.setattr(agreement.look, "ANSWERS", tmp_path / "looks.csv")
    found = agreement.answers({7, 8})
    assert found["abc"].tolist() == [1, 0.5, 0.5]
    assert found["real"].tolist() == [0]
