"""Files of every former format of this program, and of the book's, are read: they lie in tests/old_formats."""

import functools
import json
import math
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import numpy as np
import pytest
import torch

from config import restore
from evaluate import measured_in_training
from gan import checkpoint, images
from gan.data.faces import PACK_VERSION, open_pack
from gan.play import recipes
from gan.watching.curves import METRICS, PANELS, Curves

FILES = Path(__file__).resolve().parents[1] / "old_formats"
MOMENT = 10**18  # the time of the zips of faces, in ns: packs go by it
SAME = 1.0, 0.05  # most and mean of 255 by which pictures differ: the rounding of another torch or processor
HALVED = 3.0, 0.2  # the same where the weights were rounded to 16 bits, and the picture was not made of these

Run = Callable[..., CompletedProcess[str]]

RUNS = ("book", "smooth", "resnet", "quality", "patch", "blocks", "lean", "heads")
RELEASED = ("smooth", "projected", "lean")
CHOSEN = ("patch", "lean")  # runs that learn from some of their faces
MEASURED = ("quality", "blocks")  # runs whose quality was measured; they have a best.pt, of their last step


def read_log(path: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@functools.cache
def content(name: str) -> dict[str, Any]:
    """The checkpoint of a run."""
    return checkpoint.load(checkpoint.find(FILES / name, ("latest.pt", "best.pt")))


def assert_alike(made: Path, expected: Path, limits: tuple[float, float] = SAME) -> None:
    """The pictures differ by no more than rounding; and they show different faces, so that this says something."""
    one, other = (images.load_picture(path).astype(float) for path in (made, expected))
    assert one.shape == other.shape
    assert other.std() > 10
    differences = np.abs(one - other)
    assert (differences.max() <= limits[0], differences.mean() <= limits[1]) == (True, True), (
        f"at most {differences.max():.0f}, {differences.mean():.3f} on average"
    )


@pytest.fixture
def old_run(tmp_path: Path) -> Callable[[str], Path]:
    """Put a former run where it was, beside its faces."""

    def put(name: str) -> Path:
        run = tmp_path / "checkpoints" / "run"
        shutil.copytree(FILES / name, run, ignore=shutil.ignore_patterns("*.png", "released.pt"))
        if name in MEASURED:
            shutil.copy(run / "best.pt", run / "latest.pt")
        (tmp_path / "kinds").mkdir()
        for place in (tmp_path, tmp_path / "kinds"):
            shutil.copy(FILES / "faces.zip", place)
            os.utime(place / "faces.zip", ns=(MOMENT, MOMENT))
        return run

    return put


@pytest.mark.parametrize("name", RUNS)
def test_a_checkpoint_generates_what_its_own_program_generated(run_here: Run, tmp_path: Path, name: str) -> None:
    result = run_here("generate.py", f"--checkpoint={FILES / name}", "--nogen=4", "--nogpu")
    assert result.returncode == 0, result.stderr
    assert_alike(tmp_path / "result.png", FILES / name / "faces.png")


@pytest.mark.parametrize("name", RELEASED)
def test_a_released_file_generates_what_its_run_generated(run_here: Run, tmp_path: Path, name: str) -> None:
    result = run_here("generate.py", f"--checkpoint={FILES / name / 'released.pt'}", "--nogen=4", "--nogpu")
    assert result.returncode == 0, result.stderr
    assert_alike(tmp_path / "result.png", FILES / name / "faces.png", HALVED)


def test_a_generator_of_classes_draws_the_one_that_is_asked_for(run_here: Run, tmp_path: Path) -> None:
    words = f"--checkpoint={FILES / 'heads'}", "--nogen=4", "--nogpu"
    result = run_here("generate.py", *words, "--class=mood:calm")
    assert result.returncode == 0, result.stderr
    assert_alike(tmp_path / "result.png", FILES / "heads" / "calm.png")


@pytest.mark.parametrize("name", RUNS)
def test_a_run_goes_on(
    run_here: Run, old_run: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    if name in CHOSEN:
        monkeypatch.setattr("gan.data.faces.LEAST_TO_HOLD_OUT", 40)  # as it was then
    run, before = old_run(name), content(name)
    log, faces = read_log(run / "log.jsonl"), before["faces"]["training"]
    epochs = before["config"]["max_epoch"] + 1
    steps = math.ceil(epochs * faces / 4)
    result = run_here("train.py", "--resume", f"--max_epoch={epochs}", "--plot_every=0", "--eval_images=0", "--nogpu")
    assert result.returncode == 0, result.stderr
    assert f"{faces} faces to train on" in result.stdout
    assert f"finished at step {steps}, {4 * steps:,} images seen" in result.stdout
    after = checkpoint.load(run / "latest.pt")
    assert after["step"] == after["d_optimizer"]["state"][0]["step"] == steps > before["step"]
    assert after["model"].items() >= before["model"].items()
    assert not torch.equal(after["ema"]["main.0.weight"], before["ema"]["main.0.weight"])
    rows = read_log(run / "log.jsonl")
    assert (rows[: len(log)], rows[-1]["step"]) == (log, steps)
    assert (run / "report.html").is_file()
    options = {name: value for name, value in before["config"].items() if name in after["config"]}
    changed = {name for name, value in options.items() if after["config"][name] != value}
    assert changed <= {"max_epoch", "plot_every", "eval_images", "gpu", "loss", "eval_metric", "compile"}
    if name in MEASURED:
        assert re.search(r"best: +(damage x100 [\d.]+, )?FD [\d.]+.* at \d+ images", result.stdout)


@pytest.mark.parametrize("file", ["smooth/released.pt", "lean/released.pt"])
def test_a_new_run_starts_from_old_weights(
    run_here: Run, old_run: Callable[[str], Path], tmp_path: Path, file: str
) -> None:
    shutil.rmtree(old_run("book"))
    words = "--data_path=faces.zip", f"--init={FILES / file}", "--run=new", "--batch_size=26"
    result = run_here("train.py", *words, "--max_epoch=1", "--plot_every=0", "--eval_images=0", "--nogpu")
    assert result.returncode == 0, result.stderr
    made = checkpoint.load(tmp_path / "checkpoints" / "new" / "latest.pt")
    expected = checkpoint.load(checkpoint.find(FILES / file, ("latest.pt",)))["model"]
    assert made["step"] == 2
    assert made["model"].items() >= {**expected, "vocabulary": ()}.items()


def test_options_that_were_retired_or_renamed_have_their_meaning() -> None:
    stored = content("resnet")["config"]
    assert stored.keys() >= {"log_every", "save_minutes", "penalty_noise", "vis_keep"}
    assert (stored["loss"], restore(stored).loss) == ("logistic", "bce")
    stored = content("blocks")["config"]
    assert (stored["eval_metric"], restore(stored).eval_metric) == ("fd_damage", "fd")


@pytest.mark.parametrize("name", RUNS)
def test_a_log_is_drawn_and_measured_as_it_was(name: str) -> None:
    curves, rows = Curves(), read_log(FILES / name / "log.jsonl")
    for row in rows:
        curves.add(row)
    drawn = {title for title, panel in PANELS.items() if curves.panel(panel)}
    assert drawn >= {"losses", "logits", "speed", "data_wait"}
    found = measured_in_training(FILES / name)
    assert len(found) == sum("fd" in row for row in rows)
    assert bool(found) == (name in MEASURED) == ("quality" in drawn)
    assert all(row.keys() <= {"images_seen", *METRICS} and row.keys() >= {"fd", "coverage"} for row in found)


@pytest.mark.slow
@pytest.mark.parametrize("name", MEASURED)
def test_a_run_is_evaluated_beside_what_was_measured_in_training(
    run_here: Run, old_run: Callable[[str], Path], make_faces: Callable[..., list[Path]], tmp_path: Path, name: str
) -> None:
    run = old_run(name)
    make_faces(tmp_path / "real", 100, size=48)
    result = run_here("evaluate.py", f"--fake={run}", "--real=real", "--n=50", "--features=faces", "--nogpu")
    assert result.returncode == 0, result.stderr
    curves = json.loads((tmp_path / "evaluation.json").read_text())["run"]
    assert [row["images_seen"] for row in curves["checkpoints, 50 samples each"]] == [156]
    assert [row["images_seen"] for row in curves["measured in training, 52 samples each"]] == [104, 156]


def test_a_pack_of_the_first_version_is_read_and_none_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(FILES / "few.zip", tmp_path)
    os.utime("few.zip", ns=(MOMENT, MOMENT))
    (old,) = (FILES / "packs").iterdir()
    shutil.copytree(FILES / "packs", tmp_path / "packs")
    said = list[str]()
    pack = open_pack(Path("few.zip"), 32, Path("packs"), say=said.append)
    assert said == [f"5 faces of 32x32 pixels from few.zip, packed in {Path('packs') / old.name}"]
    assert (pack.digest, PACK_VERSION) == ("c44d4c6c78e9da3c", 1)
    np.testing.assert_array_equal(pack.pixels, np.load(old / "faces.npy"))


def test_faces_whose_pack_is_of_another_version_are_packed_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("gan.data.faces.PACK_VERSION", PACK_VERSION + 1)
    shutil.copy(FILES / "few.zip", tmp_path)
    os.utime("few.zip", ns=(MOMENT, MOMENT))
    shutil.copytree(FILES / "packs", tmp_path / "packs")
    said = list[str]()
    pack = open_pack(Path("few.zip"), 32, Path("packs"), num_workers=1, say=said.append)
    assert said[0].startswith("found 5 pictures in few.zip; packing them into")
    assert len(pack.pixels) == 5


@pytest.mark.parametrize("edition", [200, 211])
def test_the_books_generator_draws_what_the_books_layers_drew(run_here: Run, tmp_path: Path, edition: int) -> None:
    words = f"--netg_path={FILES}/book-{edition}/netg.pth", f"--netd_path={FILES}/book-{edition}/netd.pth"
    result = run_here("generate.py", *words, "--nogen=1", "--nogpu")
    assert result.returncode == 0, result.stderr
    assert_alike(tmp_path / "result.png", FILES / "book-200" / "face.png")


@pytest.mark.parametrize("edition", [200, 211])
def test_a_run_starts_from_the_books_weights(
    run_here: Run, old_run: Callable[[str], Path], tmp_path: Path, edition: int
) -> None:
    shutil.rmtree(old_run("book"))
    words = f"--netg_path={FILES}/book-{edition}/netg.pth", f"--netd_path={FILES}/book-{edition}/netd.pth"
    again = "--data_path=faces.zip", "--run=new", "--batch_size=26", "--max_epoch=1", "--plot_every=0", "--nogpu"
    result = run_here("train.py", *words, *again, "--eval_images=0")
    assert result.returncode == 0, result.stderr
    made = checkpoint.load(tmp_path / "checkpoints" / "new" / "latest.pt")
    assert (made["model"]["to_rgb"], made["model"]["d_norm"], made["model"]["image_size"]) == ("book", "batch", 96)


def test_a_picture_with_a_recipe_is_drawn_again(run_here: Run, tmp_path: Path) -> None:
    for old in ("faces.png", "vary.png"):
        words = f"--checkpoint={FILES / 'heads' / 'latest.pt'}", f"--like={FILES / 'heads' / old}", "--nogpu"
        result = run_here("generate.py", *words)
        assert result.returncode == 0, result.stderr
        assert_alike(tmp_path / "result.png", FILES / "heads" / old)
        assert recipes.read(tmp_path / "result.png").generator == recipes.read(FILES / "heads" / old).generator


def test_a_folder_for_the_hub_draws_what_its_checkpoint_drew(run_here: Run, tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    result = run_here("generate.py", f"--checkpoint={FILES / 'hub'}", "--nogen=4", "--nogpu")
    assert result.returncode == 0, result.stderr
    assert_alike(tmp_path / "result.png", FILES / "heads" / "faces.png")
