"""The best of many samples: by their eyes or by the discriminator, each face generated once."""

import dataclasses

import numpy as np
import pytest
import torch

from config import RELEASED
from gan.images import to_tensor
from gan.quality import eyes, ranking, sampling, whole_faces
from gan.quality.sampling import Sampler

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def released() -> Sampler:
    return sampling.load(RELEASED, CPU)


def test_the_best_have_the_most_whole_eyes_and_each_face_is_generated_once(
    released: Sampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whole_faces, "ASKED", 64)
    faces = torch.from_numpy(np.concatenate(list(released.faces(range(128)))))
    broken = eyes.load(CPU)(to_tensor(faces)).tolist()
    alone, generated, done = dataclasses.replace(released, discriminator=None), list[int](), list[int]()
    hook = alone.generator.register_forward_hook(lambda *given: generated.append(len(given[2])))
    seeds, by = ranking.best(alone, range(128), 10, progress=done.append)
    hook.remove()
    assert (seeds, by) == (np.argsort(broken)[:10].tolist(), "those whose eyes look most whole")
    assert sum(done) == sum(generated) == 128


def test_without_a_discriminator_there_are_no_best_of_another_kind(
    released: Sampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whole_faces, "KNOWN", 0.0)
    with pytest.raises(ValueError, match="no discriminator"):
        ranking.best(dataclasses.replace(released, discriminator=None, missing=None), range(70), 3)
