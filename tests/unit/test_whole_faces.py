"""What tells whole faces, for training: it sees what is wrong with a face, and knows which pictures are none."""

from pathlib import Path

import numpy as np
import pytest
import torch

from config import RELEASED, CheckpointError
from gan.data.synthetic import draw
from gan.images import to_tensor
from gan.quality import features, sampling, whole_faces
from gan.quality.sampling import Sampler
from gan.quality.whole_faces import WholeFaces

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def released() -> Sampler:
    return sampling.load(RELEASED, CPU)


@pytest.fixture(scope="module")
def faces(released: Sampler) -> np.ndarray:
    """Samples of the released generator that were not among those it was taught with, (128, 96, 96, 3) uint8."""
    return np.concatenate(list(released.faces(range(128))))


@pytest.fixture(scope="module")
def shipped() -> WholeFaces:
    return whole_faces.load(features.load("faces", CPU))


def score(shipped: WholeFaces, pixels: np.ndarray) -> list[float]:
    return shipped.scores(shipped.extractor(pixels)).tolist()


def test_faces_without_eyes_come_after_the_same_with_them(shipped: WholeFaces, faces: np.ndarray) -> None:
    scores = np.array(score(shipped, faces))
    best = np.argsort(-scores)[:32]
    blinded = faces[best].copy()
    blinded[:, 36:64, 18:78] = np.median(blinded[:, 36:64, 18:78], axis=(1, 2), keepdims=True).astype(np.uint8)
    worse = np.array(score(shipped, blinded)) < scores[best]
    assert worse.mean() > 0.9


def test_it_knows_samples_and_no_synthetic_faces_or_other_pictures(shipped: WholeFaces, faces: np.ndarray) -> None:
    def known(pixels: np.ndarray) -> bool:
        return shipped.knows(shipped.extractor(pixels))

    assert known(faces)
    assert not known(np.stack([draw(seed)[0] for seed in range(64)]))
    random = np.random.default_rng(0)
    noise = random.integers(0, 256, faces.shape, dtype=np.uint8)
    slopes = np.linspace(0, 255, 96)[None, :, None, None] * random.random((64, 1, 1, 3))
    checks = np.kron(random.integers(0, 2, (64, 12, 12, 1)), np.ones((1, 8, 8, 3))) * 255
    for others in (noise, np.broadcast_to(slopes, (64, 96, 96, 3)).astype(np.uint8), checks.astype(np.uint8)):
        assert not known(others)


def test_training_gets_the_same_scores(shipped: WholeFaces, faces: np.ndarray) -> None:
    images = to_tensor(torch.from_numpy(faces[:32]))
    scorer = whole_faces.scorer(CPU, "fp32")
    assert scorer(images).tolist() == pytest.approx(score(shipped, faces[:32]), abs=1e-4)
    small = torch.rand(4, 1, 32, 32, requires_grad=True)
    scorer(small).sum().backward()
    assert small.grad is not None
    assert small.grad.abs().amax((1, 2, 3)).min() > 0


def test_a_missing_file_is_one_sentence(shipped: WholeFaces, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no such file"):
        whole_faces.load(shipped.extractor, tmp_path / "none.pt")
