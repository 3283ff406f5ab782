"""The network that guesses colours of hair and eyes, and what it is taught with."""

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from config import COLOURS, LABELS, CheckpointError
from gan import checkpoint
from gan.data import synthetic
from gan.images import to_tensor
from gan.quality import colours
from gan.quality.colours import Colours

teaching = pytest.importorskip("benchmarks.colours")

CPU = torch.device("cpu")
VOCABULARY = (("hair", "black", "blue", "red"), ("eyes", "green", "grey"))


@pytest.fixture(scope="module")
def pixels(tmp_path_factory: pytest.TempPathFactory, make_faces: Callable[..., list[Path]]) -> np.ndarray:
    """Sixty synthetic faces, (60, 96, 96, 3)."""
    folder = tmp_path_factory.mktemp("faces")
    return np.stack([np.asarray(Image.open(path)) for path in make_faces(folder, 60, suffix=".png")])


def test_it_has_a_logit_for_each_class_of_each_column(pixels: np.ndarray) -> None:
    found = Colours(VOCABULARY)(to_tensor(torch.from_numpy(pixels[:3])))
    assert [logits.shape for logits in found] == [(3, 3), (3, 2)]


def test_the_one_that_comes_with_the_program_knows_faces_that_it_was_not_taught() -> None:
    classifier, shown = colours.load(CPU), [synthetic.draw(seed, 96) for seed in range(100)]
    assert tuple(names[0] for names in classifier.vocabulary) == LABELS
    codes, sure = classifier(np.stack([pixels for pixels, _ in shown]))
    assert codes.shape == sure.shape == (100, 2)
    assert ((sure > 0) & (sure <= 1)).all()
    for column, right in enumerate((0.85, 0.7)):
        name, *classes = classifier.vocabulary[column]
        assert ((codes[:, column] > 0) == (sure[:, column] >= classifier.least[column])).all()  # doubtful: no label
        drawn = [getattr(attributes, name) for _, attributes in shown]
        known = [i for i, one in enumerate(drawn) if one in classes and codes[i, column]]
        assert len(known) > 40
        assert np.mean([classes[codes[i, column] - 1] == drawn[i] for i in known]) > right


def test_a_missing_or_foreign_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"gone\.pt: no such file.*git checkout -- checkpoints"):
        colours.load(CPU, tmp_path / "gone.pt")
    content = checkpoint.load(COLOURS, required=("colours",))
    checkpoint.save(tmp_path / "other.pt", {**content, "vocabulary": VOCABULARY})
    with pytest.raises(CheckpointError, match=r"other\.pt"):
        colours.load(CPU, tmp_path / "other.pt")


def test_moved_faces_keep_their_colours(pixels: np.ndarray) -> None:
    faces = to_tensor(torch.from_numpy(pixels))
    moved = teaching.moved(faces, torch.Generator().manual_seed(0))
    assert moved.shape == faces.shape
    assert moved.abs().max() <= 1
    assert (moved - faces).abs().mean() > 0.05
    hue = lambda images: images.mean((2, 3)) - images.mean((1, 2, 3))[:, None]  # noqa: E731
    assert (hue(moved) - hue(faces)).abs().max() < 0.12


def test_it_learns_what_colours_go_with(pixels: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "faces").mkdir()
    rows = []
    for i in range(200):
        red = i % 2 == 0
        random = np.random.default_rng(i)
        face = np.full((96, 96, 3), 128) + np.array([60, 0, -60] if red else [-60, 0, 60])
        face = (face + random.integers(-30, 31, face.shape)).astype(np.uint8)
        Image.fromarray(face).save(tmp_path / "faces" / f"{i}.png")
        rows.append(f"{i}.png,{'red' if red else 'blue'}")
    (tmp_path / "tags.csv").write_text("\n".join(["file,hair", *rows]))
    words = ["--data_path=faces", "--tags=tags.csv", "--minutes=2", "--batch=16", "--out=guess.pt"]
    monkeypatch.setattr("benchmarks.teaching.clock", itertools.count().__next__)  # a step a second on any machine
    monkeypatch.setattr("sys.argv", ["colours", *words])
    teaching.main()
    classifier = colours.load(CPU, tmp_path / "guess.pt")
    assert classifier.vocabulary == (("hair", "blue", "red"),)
    shown = np.stack([np.asarray(Image.open(tmp_path / "faces" / f"{i}.png")) for i in range(40)])
    codes, _ = classifier(shown)
    known = codes[:, 0] > 0
    assert known.mean() > 0.5
    assert (codes[known, 0] == np.tile([2, 1], 20)[known]).mean() > 0.9
