"""`from gan import Generator`: the faces of the command line, in three lines of Python."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
import pytest
import torch
from PIL import Image

from config import CheckpointError, ConfigError
from gan import Generator
from gan.quality.sampling import Sampler

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def released() -> Generator:
    return Generator.load("released")


def test_three_lines_work_from_another_folder(tmp_path: Path) -> None:
    lines = (
        f"import sys; sys.path.append({str(ROOT)!r})\n"
        "from gan import Generator\n"
        "generator = Generator.load('released')\n"
        "for i, face in enumerate(generator.sample(2, seed=1, truncation=0.8)): face.save(f'{i}.png')\n"
    )
    subprocess.run([sys.executable, "-c", lines], cwd=tmp_path, check=True)
    assert [np.asarray(Image.open(tmp_path / f"{i}.png")).shape for i in (0, 1)] == [(96, 96, 3)] * 2


def test_its_faces_are_those_of_the_command_line(
    released: Generator, run_here: Callable[..., CompletedProcess[str]], tmp_path: Path
) -> None:
    result = run_here("generate.py", "--seed=5,6", "--gen_std=0.8", "--outdir=out", "--nogpu")
    assert result.returncode == 0, result.stderr
    faces = released.sample(2, seed=5, truncation=0.8)
    for seed, face in zip((5, 6), faces, strict=True):
        assert np.array_equal(np.asarray(face), np.asarray(Image.open(tmp_path / f"out/face-{seed:08d}.png")))
    (again,) = released.draw([tmp_path / "out/face-00000005.png"])
    assert np.array_equal(np.asarray(again), np.asarray(faces[0]))
    asked = "--seed=5", "--nogen=1", "--gen_std=0.8", "--enlarge=2", "--nogpu"
    assert run_here("generate.py", *asked).returncode == 0
    (large,) = released.sample(1, seed=5, truncation=0.8, enlarge=2)
    for one in (large, *released.draw([tmp_path / "out/face-00000005.png"], enlarge=2)):
        assert np.array_equal(np.asarray(one), np.asarray(Image.open(tmp_path / "result.png")))
    tensors = released.tensors(2, seed=5, truncation=0.8)
    assert tensors.shape == (2, 3, 96, 96)
    assert np.array_equal(((tensors[1] + 1) * 127.5).round().permute(1, 2, 0).byte().numpy(), np.asarray(faces[1]))


def test_a_film_begins_with_its_first_face_and_an_own_picture_is_found(
    released: Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    film = released.morph([3, released.latents([17])], seconds=0.4)
    assert len(film) == 10
    assert {face.size for face in released.morph([3, 17], seconds=0.08, enlarge=4)} == {(384, 384)}
    first = np.asarray(released.draw([3])[0]).astype(int)
    assert np.abs(np.asarray(film[0]) - first).max() <= 1  # its way is computed
    monkeypatch.setattr("gan.play.inversion.ROUNDS", ((2, 4),))
    monkeypatch.setattr("gan.play.inversion.RANDOM", 64)
    target = film[0].resize((200, 150))
    found = released.invert(target)
    assert found.latent.shape == (1, 100)
    assert found.distance <= found.random * 1.05
    assert len(released.draw([found.latent])) == 1


def test_latents_are_calculated_with(released: Generator) -> None:
    both = released.latents([3, 4])
    faces = [face.tobytes() for face in released.draw([3, both, both.mean(0), both[:1]])]
    assert len(faces) == 5
    assert faces[0] == faces[1] == faces[4]
    assert released.draw(both)[1].tobytes() == faces[2]


def test_what_makes_no_sense_is_said(released: Generator, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no class of hair is called 'plaid'"):
        released.sample(1, classes="hair:plaid")
    with pytest.raises(ConfigError, match="at least n, 4"):
        released.sample(4, best_of=2)
    with pytest.raises(ConfigError, match="n of at least 1"):
        released.sample(0)
    with pytest.raises(ConfigError, match=r"shape \(100,\) or \(N, 100\)"):
        released.draw([torch.zeros(1, 7)])
    with pytest.raises(ConfigError, match="got none"):
        released.draw([])
    with pytest.raises(ConfigError, match="two or more"):
        released.morph([1])
    with pytest.raises(CheckpointError, match="no such checkpoint"):
        Generator.load(tmp_path / "none.pt")


def test_classes_are_those_that_are_asked_for(knowing_checkpoint: Path) -> None:
    generator = Generator.load(knowing_checkpoint)
    assert isinstance(generator.of_classes("hair:red").sampler, Sampler)
    blue, red = (np.asarray(generator.sample(1, classes=f"hair:{one},mood:wild")[0]) for one in ("blue", "red"))
    assert not np.array_equal(blue, red)
    with pytest.raises(ConfigError, match="name one class"):
        generator.sample(1, classes="hair:blue..red")
