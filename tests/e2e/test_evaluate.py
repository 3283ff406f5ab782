"""python evaluate.py as a user runs it: against folders, runs and the reference, with report, numbers and errors."""

import itertools
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from PIL import Image
from torch.linalg import LinAlgError  # pyright: ignore[reportAttributeAccessIssue]

import evaluate
from benchmarks.release import release
from config import DAMAGE, ENCODER, REFERENCE, RELEASED, CheckpointError
from gan.data import faces
from gan.data.faces import Pack
from gan.quality import evaluation, features
from gan.quality.evaluation import Copying, Evaluator
from gan.training import choices
from gan.training.run import Run
from gan.watching.curves import METRICS
from gan.watching.monitor import Monitor

Command = Callable[..., subprocess.CompletedProcess[str]]
TINY = "--noprojected --image_size=32 --ngf=8 --ndf=8 --batch_size=16 --nogpu --plot_every=0 --precision=fp32 --whole=0"


def always_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have trainings measure themselves whenever that is due, though it costs more than its share here."""
    monkeypatch.setattr(Monitor, "may_measure", lambda *_: True)
    monkeypatch.setattr(Evaluator, "cost", lambda _: 0.0)  # for time


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory, make_faces: Callable[..., list[Path]]) -> Path:
    """A folder with 160 synthetic faces in `faces`, and 60 others in `others`."""
    folder = tmp_path_factory.mktemp("evaluate")
    make_faces(folder / "faces", 160, size=32)
    make_faces(folder / "others", 60, size=32, seed=1)
    return folder


def numbers(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


def log_of(folder: Path) -> str:
    return (folder / "checkpoints/r/log.jsonl").read_text()


def test_a_folder_against_a_folder(run_here: Command, folders: Path) -> None:
    others = os.fsdecode("头像".encode("gbk"))  # as from a zip of another code page
    try:
        (folders / others).symlink_to("others")
    except OSError:  # a disk whose names are text
        others = "others"
    words = "--real=faces", f"--fake={others}", "--image_size=32", "--nogpu"
    result = run_here("evaluate.py", *words, cwd=folders, plotted=True)
    assert result.returncode == 0, result.stderr
    found = numbers(folders / "evaluation.json")
    assert found["n"] == 60  # no more than there are of the others
    assert set(found["metrics"]) == set(METRICS)
    for name, of in found["metrics"].items():
        assert np.isfinite(of["value"]), name
        assert of["deviation"] >= 0, name
    assert found["metrics"]["fd"]["floor"] > 0
    assert found["metrics"]["coverage"]["floor"] > 0.7
    assert found["metrics"]["damage_x100"]["floor"] > 2
    assert "damage knows anime faces alone" in result.stdout
    assert not found["copying"]["copied"]
    assert found["features"] in result.stdout
    assert "not comparable with numbers in other features or with other counts" in result.stdout
    assert "the numbers are rough" in result.stdout  # with so few faces
    for label, *_ in METRICS.values():
        assert label in result.stdout
    with Image.open(folders / "evaluation.png") as picture:
        assert 750 < picture.width < 900  # a page shows it at its full size
        dark = np.asarray(picture.convert("L")) < 250
    assert all(edge.any() for edge in (dark[:20], dark[-20:], dark[:, :20], dark[:, -20:]))  # no white margin
    assert not list(folders.glob(".*evaluation*"))


def test_the_same_command_finds_the_same(run_here: Command, folders: Path) -> None:
    command = "evaluate.py", "--real=faces", "--fake=others", "--image_size=32", "--nogpu"
    for report in ("a.png", "b.png"):
        assert run_here(*command, f"--report={report}", cwd=folders).returncode == 0
    assert numbers(folders / "a.json") == numbers(folders / "b.json")
    assert run_here(*command, "--report=c.png", "--seed=1", cwd=folders).returncode == 0
    assert numbers(folders / "c.json")["metrics"] != numbers(folders / "a.json")["metrics"]


def test_faces_against_others_of_the_same_are_at_the_floor(run_here: Command, folders: Path) -> None:
    result = run_here("evaluate.py", "--real=faces", "--fake=faces", "--image_size=32", "--nogpu", cwd=folders)
    assert result.returncode == 0, result.stderr
    found = numbers(folders / "evaluation.json")
    assert found["n"] == 80
    assert all(of["value"] == pytest.approx(of["floor"]) for of in found["metrics"].values())
    assert "copying" not in found


def test_a_replayed_training_set_is_caught(run_here: Command, folders: Path, tmp_path: Path) -> None:
    copies = tmp_path / "copies"
    copies.mkdir()
    for i, path in enumerate(sorted((folders / "faces").iterdir())[:60]):  # as another program would save them
        with Image.open(path) as face:
            face.save(copies / f"{i}.png")
    command = "--real=faces", f"--fake={copies}", "--image_size=32", "--nogpu", "--pairs"
    result = run_here("evaluate.py", *command, cwd=folders)
    assert result.returncode == 0, result.stderr
    found = numbers(folders / "evaluation.json")["copying"]
    assert found["copied"]
    assert found["faces"] == 160
    assert max(found["percentiles"].values()) < 0.2
    assert "COPIES of such faces" in result.stdout


def test_the_pairs_are_samples_and_the_faces_nearest_to_them() -> None:
    pixels = np.arange(40, dtype=np.uint8)[:, None, None, None].repeat(3, 3)  # face i has the grey i
    pack = Pack(pixels, np.arange(40, dtype=np.uint32), 0, Path())
    learnt = evaluate.Learnt(pack, np.arange(39, -1, -1), np.arange(0), certain=True)
    distances = torch.full((1500,), 9.0)
    distances[1400] = 0.5  # nearest of all, and not among the first
    found = Copying({}, 0, 0, torch.arange(1500) % 40, distances)
    samples = evaluate.Samples(None, None, pixels[:4], lambda which: which[:, None])  # pyright: ignore[reportArgumentType]
    shown, beside = evaluate.nearest_pairs(found, samples, learnt)
    assert shown[0, 0] == 1400
    assert len(shown) == len(beside) == 2 * evaluate.PAIRS
    assert beside[:, 0, 0, 0].tolist() == [39 - i % 40 for i in shown[:, 0].tolist()]


def test_copies_are_looked_for_among_the_faces_that_a_run_was_trained_on(
    run_here: Command, make_faces: Callable[..., list[Path]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faces, "LEAST_TO_HOLD_OUT", 100)
    make_faces(tmp_path / "faces", 130, size=32)
    make_faces(tmp_path / "new", 110, size=32, seed=2)
    options = "--data_path=faces --run=r --max_epoch=1 --holdout=0.3 --eval_images=0"
    assert run_here("train.py", *options.split(), *TINY.split()).returncode == 0
    result = run_here("evaluate.py", "--fake=checkpoints/r", "--nogpu")
    assert result.returncode == 0, result.stderr
    found = numbers(tmp_path / "evaluation.json")
    assert found["copying"]["faces"] < 130  # those held out are not among them

    # Compared with new faces it is still those it was trained on that it may have copied; once they are gone, not.
    result = run_here("evaluate.py", "--fake=checkpoints/r", "--real=new", "--nogpu")
    assert result.returncode == 0, result.stderr
    assert numbers(tmp_path / "evaluation.json")["copying"] == {**found["copying"], "percentiles": mock.ANY}

    # A released file knows its faces when it sees them, though not where they are.
    release(tmp_path / "checkpoints/r", tmp_path / "given.pt", 1_107_008)
    result = run_here("evaluate.py", "--fake=given.pt", "--real=faces", "--nogpu")
    assert result.returncode == 0, result.stderr
    given = numbers(tmp_path / "evaluation.json")
    assert given["fake"] == "given.pt, 1,107,008 images seen"
    assert given["copying"] == {**found["copying"], "percentiles": mock.ANY, "copied": mock.ANY}
    result = run_here("evaluate.py", "--fake=given.pt", "--real=new", "--nogpu")
    assert result.returncode == 0, result.stderr
    copying = numbers(tmp_path / "evaluation.json")["copying"]
    assert (copying["faces"], copying["what"]) == (110, "real faces")  # none of them is held out of the search

    shutil.rmtree(tmp_path / "faces")
    make_faces(tmp_path / "faces", 1, size=32)  # too few to be opened
    result = run_here("evaluate.py", "--fake=checkpoints/r", "--real=new", "--nogpu")
    assert result.returncode == 0, result.stderr
    gone = numbers(tmp_path / "evaluation.json")
    assert gone["copying"]["what"] == "real faces"


def test_a_run_is_measured_in_training_and_afterwards(
    run_here: Command, make_faces: Callable[..., list[Path]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    always_measured(monkeypatch)
    monkeypatch.setattr(choices, "is_anime", lambda *_: False)
    make_faces(tmp_path / "faces", 160, size=32)
    options = "--data_path=faces --run=r --eval_images=160 --max_epoch=3 --save_every=1"
    result = run_here("train.py", *options.split(), *TINY.split())
    assert result.returncode == 0, result.stderr
    rows = [json.loads(line) for line in log_of(tmp_path).splitlines()]
    measured = {row["images_seen"]: row for row in rows if "fd" in row}
    assert sorted(measured) == [160, 320, 480]
    assert all(set(METRICS) <= set(row) for row in measured.values())
    best = min(measured.values(), key=lambda row: row["fd"])
    assert f"FD {best['fd']:.1f}" in result.stdout
    assert result.stdout.count("the best so far") >= 1

    result = run_here("evaluate.py", "--fake=checkpoints/r", "--nogpu", plotted=True)
    assert result.returncode == 0, result.stderr
    found = numbers(tmp_path / "evaluation.json")
    assert found["fake"] == f"checkpoints/r, {best['images_seen']:,} images seen"  # best.pt
    assert "80 of 160 faces of faces" in found["real"]  # the run's own, without being told
    assert [point["images_seen"] for point in found["run"]] == [160, 320, 480]
    assert (found["copying"]["faces"], found["copying"]["what"]) == (160, "faces it was trained on")

    # A checkpoint that cannot be read costs nothing but itself, and a row cut short by a crash nothing at all.
    with open(tmp_path / "checkpoints/r/log.jsonl", "a") as log:
        log.write('{"step": 31, "images_seen": 49')
    run = tmp_path / "checkpoints/r"
    (run / "step-00000020.pt").write_bytes(b"cut short")
    # Nor do other files.
    shutil.copy(RELEASED, run / "released.pt")
    result = run_here("evaluate.py", "--fake=checkpoints/r", "--nogpu")
    assert result.returncode == 0, result.stderr
    assert "left out: checkpoints/r/step-00000020.pt" in result.stdout
    again = numbers(tmp_path / "evaluation.json")
    seen = [point["images_seen"] for point in again["run"]]
    assert seen == sorted({160, 480, best["images_seen"]})  # best.pt is one of them

    # Going on keeps the best of before.
    before = (tmp_path / "checkpoints/r/best.pt").read_bytes()
    more = "--resume=checkpoints/r", "--max_epoch=4"
    (tmp_path / "faces").rename(tmp_path / "moved")
    result = run_here("train.py", *more, "--eval_images=0", "--data_path=moved")
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "checkpoints/r/best.pt").read_bytes() == before

    # best.pt does not know where the faces are now.
    result = run_here("evaluate.py", "--fake=checkpoints/r", "--nogpu", "--features=faces")
    assert result.returncode == 0, result.stderr
    found = numbers(tmp_path / "evaluation.json")
    assert "80 of 160 faces of moved" in found["real"]
    assert all(set(METRICS) <= point.keys() for point in found["run"])

    result = run_here("train.py", "--resume=checkpoints/r", "--max_epoch=5", "--eval_images=160")
    assert result.returncode == 0, result.stderr
    assert "quality at 800 images" in result.stdout
    content = torch.load(tmp_path / "checkpoints/r/best.pt")
    better = min(best, json.loads(log_of(tmp_path).splitlines()[-1]), key=lambda row: row["fd"])
    assert content["images_seen"] == better["images_seen"]
    fd = content["evaluation"]["fd"]
    assert re.search(rf"best:    FD {fd:.1f}, .+ at {content['images_seen']:,} images, in ", result.stdout)

    # What could not be written has not become the best.
    best = tmp_path / "checkpoints/r/best.pt"
    write = Run.save
    full = mock.Mock(side_effect=[CheckpointError("disk full"), mock.DEFAULT])
    monkeypatch.setattr(Run, "save", lambda *of, **more: (not more or full()) and write(*of, **more))
    monkeypatch.setattr(Evaluator, "measure", lambda self: {**dict.fromkeys(METRICS, 0.5), "fd": next(values)})
    values = iter([0.1, 0.2, 0.3])
    result = run_here("train.py", "--resume=checkpoints/r", "--max_epoch=8")
    assert result.stdout.count("the best so far") == 2, result.stdout
    assert torch.load(best)["evaluation"]["fd"] == 0.2


def test_what_keeps_the_best_of_a_run_is_decided_once(
    run_here: Command, make_faces: Callable[..., list[Path]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kept_by() -> object:
        return torch.load(tmp_path / "checkpoints/r/latest.pt")["config"]["best_by"]

    always_measured(monkeypatch)
    rest = dict.fromkeys(METRICS, 1.0)
    values = ((2.0, 50.0), (1.9, 54.0), (1.95, 54.0), (1.8, 58.0))  # the last is too far from the first's FD
    measured = iter([{**rest, "damage_x100": damage, "fd": fd} for damage, fd in values])
    monkeypatch.setattr(Evaluator, "measure", lambda _: next(measured))
    make_faces(tmp_path / "faces", 60, size=32)
    begin = ["--data_path=faces", "--run=r", "--eval_images=32", "--max_epoch=1", *TINY.split()]
    monkeypatch.setattr(choices, "is_anime", lambda *_: True)
    said = []
    for words in (begin, ["--resume", "--max_epoch=2"]):
        result = run_here("train.py", *words)
        assert result.returncode == 0, result.stderr
        said += [
            line.endswith("the best so far") for line in result.stdout.splitlines() if line.startswith("quality at")
        ]
        assert kept_by() == "damage_x100"
        monkeypatch.setattr(choices, "is_anime", lambda *_: False)  # which nobody asks again
    assert said == [True, True, False, False]


def test_a_run_that_cannot_be_measured_leaves_no_folder_behind(
    run_here: Command, make_faces: Callable[..., list[Path]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(features, "DAMAGE", tmp_path / "gone.pt")
    make_faces(tmp_path / "faces", 60, size=32)
    result = run_here("train.py", "--data_path=faces", "--run=r", "--max_epoch=1", *TINY.split())
    assert result.returncode == 2
    assert "gone.pt: no such file" in result.stderr
    assert not (tmp_path / "checkpoints").exists()


def test_measuring_changes_nothing_in_the_training(
    run_here: Command, make_faces: Callable[..., list[Path]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    always_measured(monkeypatch)
    make_faces(tmp_path / "faces", 60, size=32)
    for run, every in (("with", 32), ("without", 0)):
        options = f"--data_path=faces --run={run} --eval_images={every} --max_epoch=2"
        assert run_here("train.py", *options.split(), *TINY.split()).returncode == 0
    states = [torch.load(tmp_path / f"checkpoints/{run}/latest.pt") for run in ("with", "without")]
    for part in ("generator", "discriminator", "ema"):
        for name, weight in states[0][part].items():
            assert torch.equal(weight, states[1][part][name]), name
    assert (tmp_path / "checkpoints/with/best.pt").exists()
    assert not (tmp_path / "checkpoints/without/best.pt").exists()


def test_training_goes_on_where_nothing_can_be_measured(
    run_here: Command, make_faces: Callable[..., list[Path]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = LinAlgError("did not converge"), torch.OutOfMemoryError("out of memory"), MemoryError("no room")
    coming = itertools.cycle(errors)

    def fail(*_: object) -> None:
        raise next(coming)

    always_measured(monkeypatch)
    monkeypatch.setattr(evaluation.RealStatistics, "measure", fail)
    make_faces(tmp_path / "faces", 60, size=32)
    options = "--data_path=faces --run=r --eval_images=32 --max_epoch=2"
    result = run_here("train.py", *options.split(), *TINY.split())
    assert result.returncode == 0, result.stderr
    for seen, why in zip((32, 64, 96), ("did not converge", "out of memory", "out of memory"), strict=True):
        assert f"{why}: measurement at {seen} images skipped" in result.stdout
    assert (tmp_path / "checkpoints/r/latest.pt").exists()
    assert not (tmp_path / "checkpoints/r/best.pt").exists()


def test_a_fault_of_the_program_while_measuring_is_not_hidden(
    run_here: Command, make_faces: Callable[..., list[Path]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    always_measured(monkeypatch)
    monkeypatch.setattr(evaluation.RealStatistics, "measure", fail)
    make_faces(tmp_path / "faces", 60, size=32)
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        run_here("train.py", "--data_path=faces", "--run=r", "--eval_images=32", "--max_epoch=2", *TINY.split())
    assert (tmp_path / "checkpoints/r/latest.pt").exists()


def test_pairs_are_refused_before_any_work(run_here: Command, folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def measured(*_: object) -> None:
        raise AssertionError("faces were looked at before --pairs was refused")

    monkeypatch.setattr(evaluation, "of_pack", measured)
    monkeypatch.setattr(evaluation, "load_reference", measured)
    monkeypatch.setattr(features, "load", measured)
    for options in ("--fake=faces --real=faces --image_size=32", "--fake=others --real=others/../others", "--n=50"):
        result = run_here("evaluate.py", "--pairs", *options.split(), "--nogpu", cwd=folders)
        assert result.returncode == 2
        assert result.stdout.count("packed in") <= 1, result.stdout  # --fake alone
        assert "give --real=FOLDER" in result.stderr


def test_the_released_generator_without_any_faces(run_here: Command, tmp_path: Path) -> None:
    result = run_here("evaluate.py", "--n=300", "--nogpu", "--report=out/report.png")
    assert result.returncode == 0, result.stderr
    found = numbers(tmp_path / "out/report.json")
    assert found["n"] == 300
    assert found["fake"].startswith("the released generator")
    assert "real faces" in found["real"]
    assert 0.7 < found["metrics"]["precision"]["floor"] <= 1
    assert found["metrics"]["kid_x1000"]["floor"] < found["metrics"]["kid_x1000"]["value"]
    assert 1.0 < found["metrics"]["damage_x100"]["value"] < 2.0  # real faces have 1.55
    assert "damage knows" not in result.stdout
    assert "copying" not in found
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["report.json", "report.png"]
    assert sum(path.stat().st_size for path in (DAMAGE, ENCODER, REFERENCE)) < 12e6


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("--fake=nowhere", "--fake also takes a checkpoint"),
        ("--fake=nothing.pt", "nothing.pt: no such checkpoint"),
        (f"--fake={300 * 'a'}", "--fake: File name too long; give another path"),
        ("--fake=few --real=faces --image_size=32", "20 pictures in few"),
        ("--fake=few", "20 pictures in few"),
        ("--fake=others --real=few --image_size=32", "20 different real faces in few"),
        ("--fake=faces --real=faces --image_size=32 --pairs", "--real=FOLDER"),
        ("--fake=others --image_size=32", "--real=FOLDER"),
        ("--pairs --n=50", "--real=FOLDER"),
        ("--image_size=64", "--image_size"),
        ("--image_size=65", "--image_size"),
        ("--n=10", "--n"),
        ("--features=inception:none.pth", "none.pth: cannot be opened"),
        ("--features=faces:none.pth", "--features"),
        ("--features=inception:", "--features"),
        ("--features=eyes", "--features"),
        ("--report=report.pdf", "--report"),
        ("--fakes=others", "--fake"),
    ],
)
def test_what_cannot_be_measured_is_answered_in_one_line(
    run_here: Command, folders: Path, make_faces: Callable[..., list[Path]], words: str, answer: str
) -> None:
    if not (folders / "few").exists():
        make_faces(folders / "few", 20, size=32)
    for path in folders.glob("evaluation.*"):
        path.unlink()
    result = run_here("evaluate.py", *words.split(), "--nogpu", cwd=folders)
    assert result.returncode == 2
    assert answer in result.stderr
    assert result.stderr.count("\n") == 1
    assert not list(folders.glob("evaluation.*"))


def test_a_report_that_cannot_be_written_leaves_nothing_behind(run_here: Command, folders: Path) -> None:
    (folders / "taken.png").mkdir(exist_ok=True)
    command = "--real=faces", "--fake=others", "--image_size=32", "--nogpu", "--report=taken.png"
    result = run_here("evaluate.py", *command, cwd=folders)
    assert result.returncode == 2
    assert "could not write the report" in result.stderr
    assert sorted(path.name for path in folders.glob("*taken*")) == ["taken.png"]
    shutil.rmtree(folders / "taken.png")
