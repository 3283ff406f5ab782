"""Whether samples look like their classes, asked of a classifier that had no part in training."""

import numpy as np
import pytest
import torch

from gan.quality import classification

VOCABULARY = (("hair", "black", "blue", "red"), ("eyes", "green", "grey"))


def of(codes: np.ndarray, seed: int, spread: float = 1.0) -> torch.Tensor:
    """Features (N, 8) in which the first column of codes shows, and less so the second."""
    random = torch.Generator().manual_seed(seed)
    directions = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))
    known = torch.from_numpy(codes)
    return 3 * directions[known[:, 0]] + known[:, 1:] + spread * torch.randn(len(codes), 8, generator=random)


def codes_of(n: int, seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    return np.stack([random.integers(0, 4, n), random.integers(0, 3, n)], axis=1)


TAUGHT, OTHERS, ASKED = (codes_of(n, seed) for seed, n in enumerate((3000, 3000, 2400)))


def test_samples_of_their_classes_agree_as_real_faces_do() -> None:
    sets = [(of(codes, seed), codes) for seed, codes in enumerate((TAUGHT, OTHERS, ASKED))]
    hair, eyes = classification.measure(VOCABULARY, *sets)
    assert hair.real > 0.95
    assert hair.agreement == pytest.approx(hair.real, abs=0.03)
    assert hair.chance == pytest.approx(1 / 3, abs=0.03)
    assert 0.5 < eyes.agreement < hair.agreement
    for name, found in hair.classes.items():
        assert found["samples"] == (ASKED[:, 0] == VOCABULARY[0].index(name)).sum()
        assert found["fd"] < 0.2
        assert found["floor"] < 0.2
    assert "hair: 9" in str(hair)
    assert "by chance 3" in str(hair)


def test_samples_of_other_classes_agree_by_chance_and_lie_far_from_theirs() -> None:
    shuffled = np.random.default_rng(7).permutation(ASKED)
    sets = [(of(TAUGHT, 0), TAUGHT), (of(OTHERS, 1), OTHERS), (of(ASKED, 2), shuffled)]
    hair, _ = classification.measure(VOCABULARY, *sets)
    assert hair.agreement == pytest.approx(hair.chance, abs=0.05)
    assert all(found["fd"] > 1 for found in hair.classes.values())


def test_a_classifier_taught_with_shuffled_labels_knows_nothing() -> None:
    found = []
    for seed in range(20):  # a kind of faces gets one wrong class or another
        shuffled = np.random.default_rng(seed).permutation(TAUGHT)
        sets = [(of(TAUGHT, 0), shuffled), (of(OTHERS, 1), OTHERS), (of(ASKED, 2), ASKED)]
        found.append(classification.measure(VOCABULARY[:1], *sets)[0])
    assert np.mean([hair.real for hair in found]) == pytest.approx(1 / 3, abs=0.15)
    assert np.mean([hair.agreement for hair in found]) == pytest.approx(1 / 3, abs=0.15)


def test_faces_without_a_label_take_no_part_and_a_column_without_any_is_left_out() -> None:
    bare = OTHERS.copy()
    bare[:, 1] = 0
    few = ASKED.copy()
    few[few[:, 0] == 2, 0] = 0
    sets = [(of(TAUGHT, 0), TAUGHT), (of(OTHERS, 1), bare), (of(ASKED, 2), few)]
    (hair,) = classification.measure(VOCABULARY, *sets)
    assert hair.name == "hair"
    assert hair.classes.keys() == {"black", "red"}


def test_small_classes_have_no_distance_of_their_own() -> None:
    sets = [(of(codes, seed), codes) for seed, codes in enumerate((TAUGHT[:900], OTHERS[:900], ASKED[:900]))]
    hair, _ = classification.measure(VOCABULARY, *sets)
    assert all("fd" not in found for found in hair.classes.values())
