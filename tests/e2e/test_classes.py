"""Classes as a user has them: from folders to faces of a kind."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import train
from gan import checkpoint
from gan.images import load_picture

SMALL = ["--nogpu", "--image_size=32", "--ngf=8", "--ndf=8", "--batch_size=16", "--precision=fp32", "--plot_every=5"]
SMALL += ["--whole=0"]
PARTS = ("generator", "discriminator", "ema", "g_optimizer", "d_optimizer")
Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(autouse=True)
def _rows_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train, "LOG_EVERY", 5)


@pytest.fixture(scope="module")
def faces(tmp_path_factory: pytest.TempPathFactory, make_faces: Callable[..., list[Path]]) -> Path:
    folder = tmp_path_factory.mktemp("classes")
    for seed, kind in enumerate(("cats", "dogs", "ogres")):
        make_faces(folder / kind, 50, size=32, seed=seed)
    return folder


def rows_of(run: Path) -> list[dict[str, float]]:
    return [json.loads(row) for row in (run / "log.jsonl").read_text().splitlines()]


def equal(one: object, other: object) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(equal(value, other[name]) for name, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(equal, one, other))
    return one == other


def test_folders_are_learned_as_classes_and_a_stopped_run_goes_on_bit_for_bit(
    run_here: Command,
    tmp_path: Path,
    faces: Path,
    make_faces: Callable[..., list[Path]],
) -> None:
    words = ["train.py", *SMALL, f"--data_path={faces}", "--eval_images=500"]
    whole = run_here(*words, "--run=whole", "--max_epoch=2")
    assert whole.returncode == 0, whole.stderr
    assert "learning 3 classes of class (150 of 150 faces have one): cats, dogs, ogres" in whole.stdout
    assert run_here(*words, "--run=part", "--max_epoch=1").returncode == 0
    refused = run_here("train.py", "--resume=checkpoints/part", "--noclasses")
    assert "--classes: a run keeps it, here True; got False" in refused.stderr
    again = run_here("train.py", "--resume=checkpoints/part", "--max_epoch=2", "--nogpu", "--classes")
    assert again.returncode == 0, again.stderr
    one, other = (checkpoint.load(tmp_path / "checkpoints" / name / "latest.pt") for name in ("whole", "part"))
    assert all(equal(one[part], other[part]) for part in PARTS)
    moved = [name for name, w in one["ema"].items() if "classes" in name and w.abs().max() > 0]
    assert moved
    preview = max((tmp_path / "checkpoints/whole/samples").glob("*.png"))
    assert load_picture(preview).shape == (3 * 34 + 2, 8 * 34 + 2, 3)  # a row for each class

    def drawn(*more: str) -> bytes:
        done = run_here("generate.py", "--nogpu", "--checkpoint=checkpoints/whole", "--nogen=8", *more)
        assert done.returncode == 0, done.stderr
        return load_picture(tmp_path / "result.png").tobytes()

    listed = run_here("generate.py", "--nogpu", "--checkpoint=checkpoints/whole", "--class")
    assert listed.stdout.splitlines()[-1] == "class: cats 50, dogs 50, ogres 50"
    cats, dogs = drawn("--class=cats"), drawn("--class", "class:dogs")
    assert cats != dogs
    assert drawn("--class=cats", "--seed=0") == cats
    rows = drawn("--class=cats..dogs", "--outdir=single")
    assert len(rows) == (8 * 34 + 2) * (34 + 2) * 3
    first, last = (load_picture(tmp_path / "single" / f"face-00000000-{i}.png").tobytes() for i in (0, 7))
    assert first != last
    wrong = run_here("generate.py", "--nogpu", "--checkpoint=checkpoints/whole", "--class=cat")
    assert wrong.returncode == 2
    assert "did you mean cats?" in wrong.stderr
    found = run_here("evaluate.py", "--nogpu", "--fake=checkpoints/whole", "--features=faces", "--n=60")
    assert found.returncode == 0, found.stderr
    assert "of the samples look like their class" in found.stdout
    make_faces(tmp_path / "others", 130, size=32, seed=9)
    words = ["evaluate.py", "--nogpu", "--fake=checkpoints/whole", "--real=others", "--features=faces", "--n=60"]
    unlabelled = run_here(*words)
    assert unlabelled.returncode == 0, unlabelled.stderr
    assert (
        "whether samples look like their classes is not measured: --classes: others has no labels" in unlabelled.stdout
    )
    both = run_here(
        "generate.py", "--nogpu", "--checkpoint=checkpoints/whole", "--gen_search_num=64", "--class=cats..dogs"
    )
    assert both.returncode == 2
    assert "--gen_search_num has no effect with --class=FROM..TO" in both.stderr


def test_from_a_generator_without_classes_a_run_begins_with_the_faces_that_it_draws(
    run_here: Command, tmp_path: Path, faces: Path
) -> None:
    words = ["train.py", *SMALL, f"--data_path={faces}", "--eval_images=0"]
    assert run_here(*words, "--noclasses", "--run=plain", "--max_epoch=1").returncode == 0
    begun = run_here(*words, "--init=checkpoints/plain", "--run=classes", "--max_epoch=1")
    assert begun.returncode == 0, begun.stderr
    plain = checkpoint.load(tmp_path / "checkpoints/plain/latest.pt")
    assert plain["model"]["vocabulary"] == ()
    before = load_picture(max((tmp_path / "checkpoints/plain/samples").glob("*.png")))
    after = load_picture(min((tmp_path / "checkpoints/classes/samples").glob("*.png")))
    assert (before[:34] == after[:34]).all()  # seeds 0 to 7
    last, first = (
        next(row["variety"] for row in order(rows_of(tmp_path / "checkpoints" / name)) if "variety" in row)
        for name, order in (("plain", reversed), ("classes", iter))
    )
    assert first == pytest.approx(last)  # of 64 latents, not of the grid's eight
    back = run_here(*words, "--noclasses", "--init=checkpoints/classes", "--run=back", "--max_epoch=1")
    assert back.returncode == 0, back.stderr
    refused = run_here("generate.py", "--nogpu", "--checkpoint=checkpoints/plain", "--class=cats")
    assert "this generator knows no classes" in refused.stderr
