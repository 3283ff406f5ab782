"""The network that finds damage, and what it is taught with."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from config import CheckpointError
from gan.images import to_tensor
from gan.quality import features
from gan.quality.damage import POSITIONS, Damage

pytest.importorskip("cv2")  # of requirements-extra.txt
teaching = pytest.importorskip("benchmarks.damage")
faults = pytest.importorskip("benchmarks.faults")

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def synthetic_faces(tmp_path_factory: pytest.TempPathFactory, make_faces: Callable[..., list[Path]]) -> np.ndarray:
    """Forty synthetic faces, (40, 96, 96, 3)."""
    folder = tmp_path_factory.mktemp("faces")
    return np.stack([np.asarray(Image.open(path)) for path in make_faces(folder, 40, suffix=".png")])


def test_it_judges_each_place_and_the_share_is_their_mean(synthetic_faces: np.ndarray) -> None:
    network, faces = Damage().eval(), to_tensor(torch.from_numpy(synthetic_faces[:3]))
    with torch.no_grad():
        places = network(faces)
        assert places.shape == (3, POSITIONS, POSITIONS)
        torch.testing.assert_close(network.share(faces), places.sigmoid().mean((1, 2)))


def test_the_one_that_comes_with_the_program_sees_what_was_done_to_an_eye(synthetic_faces: np.ndarray) -> None:
    damage = features.measuring(CPU).damage
    before, places = damage(synthetic_faces), faults.eyes(synthetic_faces)
    for fault in ("eye smeared", "eye erased"):
        spoilt = damage(faults.FAULTS[fault](synthetic_faces, places, np.random.default_rng(0)))
        assert (spoilt > before).float().mean() > 0.8
        assert spoilt.mean() > before.mean() + 0.03


def test_a_missing_file_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "DAMAGE", tmp_path / "gone.pt")
    with pytest.raises(CheckpointError, match=r"gone\.pt: no such file.*git checkout -- checkpoints"):
        features.measuring(CPU)


def test_damage_is_where_it_says(synthetic_faces: np.ndarray) -> None:
    faces, eyes = to_tensor(torch.from_numpy(synthetic_faces)), torch.from_numpy(faults.eyes(synthetic_faces))
    changed, where = teaching.damage(faces, eyes, 1.0, torch.Generator().manual_seed(0))
    assert where.shape == (40, POSITIONS, POSITIONS)
    assert where.amax((1, 2)).gt(0.3).float().mean() > 0.8
    far = torch.nn.functional.max_pool2d(where[:, None], 3, 1, 1)[:, 0] < 0.05
    still = (changed - faces).abs().amax(1).unfold(1, 4, 4).unfold(2, 4, 4).amax((3, 4))
    assert still[far].max() < 0.1
    assert 0.5 < far.float().mean() < 0.95
    untouched, nowhere = teaching.damage(faces, eyes, 0.0, torch.Generator().manual_seed(0))
    assert torch.equal(untouched, faces)
    assert not nowhere.any()


def test_eyes_move_with_their_face() -> None:
    eyes = torch.tensor([[[40, 30], [44, 70]]]).repeat(32, 1, 1)
    faces = torch.full((32, 3, 96, 96), -1.0)
    for n in range(32):
        for channel, (y, x) in enumerate(eyes[n].tolist()):
            faces[n, channel, y - 2 : y + 3, x - 2 : x + 3] = 1
    moved, at = teaching.turned(faces, eyes, torch.Generator().manual_seed(0))
    line = torch.arange(96.0)

    def middle(channel: Tensor) -> Tensor:
        weight = channel + 1
        return torch.stack([(weight.sum(1) * line).sum(), (weight.sum(0) * line).sum()]) / weight.sum()

    found = torch.stack([torch.stack([middle(face[0]), middle(face[1])]) for face in moved])
    assert (found - at).abs().max() < 0.6
    assert (at - eyes).abs().max() > 10  # some are mirrored
