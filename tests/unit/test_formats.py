"""Files of every format, of this program from 1.0 on and of the book's, are read: they lie in tests/formats."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
import pytest
import torch

from gan import checkpoint, images
from gan.data.faces import PACK_VERSION, names_of, open_pack
from gan.play import recipes

FILES = Path(__file__).resolve().parents[1] / "formats"
MOMENT = 10**18  # the time of the zips of faces, in ns: packs go by it
SAME = 1.0, 0.05  # most and mean of 255 by which pictures differ: the rounding of another torch or processor

Run = Callable[..., CompletedProcess[str]]


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
def run(tmp_path: Path) -> Path:
    """The run of 1.0, where it was, beside its faces."""
    folder = tmp_path / "checkpoints" / "run"
    shutil.copytree(FILES / "run", folder, ignore=shutil.ignore_patterns("*.png"))
    (tmp_path / "kinds").mkdir()
    for place in (tmp_path, tmp_path / "kinds"):
        shutil.copy(FILES / "faces.zip", place)
    return folder


def test_a_checkpoint_generates_what_its_own_program_generated(run_here: Run, tmp_path: Path) -> None:
    result = run_here("generate.py", f"--checkpoint={FILES / 'run'}", "--nogen=4", "--nogpu")
    assert result.returncode == 0, result.stderr
    assert_alike(tmp_path / "result.png", FILES / "run" / "faces.png")


def test_a_run_goes_on(run_here: Run, run: Path) -> None:
    before = checkpoint.load(run / "latest.pt")
    log = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    result = run_here("train.py", "--resume", "--max_epoch=4", "--plot_every=0", "--eval_images=0", "--nogpu")
    assert result.returncode == 0, result.stderr
    assert "52 faces to train on" in result.stdout
    assert "finished at step 52, 208 images seen" in result.stdout
    after = checkpoint.load(run / "latest.pt")
    assert after["step"] == after["d_optimizer"]["state"][0]["step"] == 52 > before["step"]
    assert after["model"] == before["model"]
    assert not torch.equal(after["ema"]["main.0.weight"], before["ema"]["main.0.weight"])
    rows = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    assert (rows[: len(log)], rows[-1]["step"]) == (log, 52)
    changed = {name for name, value in before["config"].items() if after["config"][name] != value}
    assert changed == {"max_epoch", "plot_every", "eval_images"}


def test_a_new_run_starts_from_a_runs_weights(run_here: Run, run: Path, tmp_path: Path) -> None:
    words = "--data_path=kinds", f"--init={run}", "--run=new", "--batch_size=26", "--noclasses"
    result = run_here("train.py", *words, "--max_epoch=1", "--plot_every=0", "--eval_images=0", "--nogpu")
    assert result.returncode == 0, result.stderr
    made = checkpoint.load(tmp_path / "checkpoints" / "new" / "latest.pt")
    assert made["step"] == 2
    assert made["model"] == {**checkpoint.load(run / "latest.pt")["model"], "vocabulary": ()}


def test_a_pack_is_read_and_none_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(FILES / "few.zip", tmp_path)
    os.utime("few.zip", ns=(MOMENT, MOMENT))
    (old,) = (FILES / "packs").iterdir()
    shutil.copytree(FILES / "packs", tmp_path / "packs")
    said = list[str]()
    pack = open_pack(Path("few.zip"), 32, Path("packs"), log=said.append)
    assert said == [f"5 faces of 32x32 pixels from few.zip, packed in {Path('packs') / old.name}"]
    assert (pack.digest, PACK_VERSION) == ("c44d4c6c78e9da3c", 2)
    assert names_of(pack) == [f"few.zip/0{i}.png" for i in range(5)]
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
    pack = open_pack(Path("few.zip"), 32, Path("packs"), num_workers=1, log=said.append)
    assert said[0].startswith("found 5 pictures in few.zip; packing them into")
    assert len(pack.pixels) == 5


@pytest.mark.parametrize("edition", [200, 211])
def test_the_books_generator_draws_what_the_books_layers_drew(run_here: Run, tmp_path: Path, edition: int) -> None:
    words = f"--netg_path={FILES}/book-{edition}/netg.pth", f"--netd_path={FILES}/book-{edition}/netd.pth"
    result = run_here("generate.py", *words, "--nogen=1", "--nogpu")
    assert result.returncode == 0, result.stderr
    assert_alike(tmp_path / "result.png", FILES / "book-200" / "face.png")


@pytest.mark.usefixtures("run")
@pytest.mark.parametrize("edition", [200, 211])
def test_a_run_starts_from_the_books_weights(run_here: Run, tmp_path: Path, edition: int) -> None:
    words = f"--netg_path={FILES}/book-{edition}/netg.pth", f"--netd_path={FILES}/book-{edition}/netd.pth"
    again = "--data_path=faces.zip", "--run=new", "--batch_size=26", "--max_epoch=1", "--plot_every=0", "--nogpu"
    result = run_here("train.py", *words, *again, "--eval_images=0")
    assert result.returncode == 0, result.stderr
    made = checkpoint.load(tmp_path / "checkpoints" / "new" / "latest.pt")
    assert (made["model"]["arch"], made["model"]["d_norm"], made["model"]["image_size"]) == ("book", "batch", 96)


def test_a_picture_with_a_recipe_is_drawn_again(run_here: Run, tmp_path: Path) -> None:
    for old in ("faces.png", "vary.png"):
        words = f"--checkpoint={FILES / 'run' / 'latest.pt'}", f"--like={FILES / 'run' / old}", "--nogpu"
        result = run_here("generate.py", *words)
        assert result.returncode == 0, result.stderr
        assert_alike(tmp_path / "result.png", FILES / "run" / old)
        assert recipes.read(tmp_path / "result.png").generator == recipes.read(FILES / "run" / old).generator


def test_a_folder_for_the_hub_draws_what_its_checkpoint_drew(run_here: Run, tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    result = run_here("generate.py", f"--checkpoint={FILES / 'hub'}", "--nogen=4", "--nogpu")
    assert result.returncode == 0, result.stderr
    assert_alike(tmp_path / "result.png", FILES / "run" / "faces.png")
