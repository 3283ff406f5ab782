"""Inversion: the face of a picture is found again, nearer than any of many random faces."""

import numpy as np
import pytest
import torch

from config import RELEASED
from gan.play import inversion
from gan.quality import sampling
from gan.quality.sampling import Sampler

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def sampler() -> Sampler:
    return sampling.load(RELEASED, CPU)


def test_a_generated_face_is_nearly_found_again(sampler: Sampler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inversion, "RANDOM", 128)
    monkeypatch.setattr(inversion, "ROUNDS", ((2, 15), (1, 25)))
    (picture,) = next(sampler.faces([5000]))[:1]
    counted = list[int]()
    found = inversion.invert(sampler, picture, counted.append)
    assert sum(counted) == 128 + 2 * 15 + 25
    assert found.distance < 0.7 * found.random
    assert found.latent.shape == (1, sampler.model.nz)
    assert np.array_equal(next(sampler.draw(found.latent))[0], found.face)
    off = (found.face.astype(float) - picture) ** 2
    assert found.distance == pytest.approx(np.sqrt(off.mean()), rel=1e-3)
    assert found.latent.norm() <= sampler.model.nz**0.5 * 1.001


def test_the_likeness_of_a_picture_to_itself_is_the_greatest(sampler: Sampler) -> None:
    faces = next(sampler.faces(range(8)))
    likeness = inversion.Likeness(faces[3], CPU)
    tensors = torch.from_numpy(faces).permute(0, 3, 1, 2).float() / 127.5 - 1
    far = likeness(tensors)
    assert far[3] == pytest.approx(0, abs=1e-5)
    assert int(far.argmin()) == 3
    assert (far[[0, 1, 2, 4, 5, 6, 7]] > 0.05).all()
