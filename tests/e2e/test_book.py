"""What comes from the book, as its readers use it: its weights, losses, debug file, grey sets, residual networks."""

import json
import math
import re
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from PIL import Image

import main
from config import IMAGE_SIZES, RELEASED, Arch, TrainConfig
from gan import checkpoint
from gan.presets import PRESETS, resolve
from model import Discriminator, Generator

ROOT = Path(__file__).resolve().parents[2]
SMALL = "--nogpu --image_size=32 --ngf=4 --ndf=4 --batch_size=8 --run=a --whole=0 --eval_images=0".split()
Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(autouse=True)
def _rows_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("train.LOG_EVERY", 3)


@pytest.fixture(scope="module")
def faces(tmp_path_factory: pytest.TempPathFactory, make_faces: Callable[..., list[Path]]) -> Path:
    folder = tmp_path_factory.mktemp("faces")
    make_faces(folder, 24, size=32)
    return folder


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """netg_200.pth and netd_200.pth of small networks, in the form that torch.save had in the book's time."""
    model = resolve(TrainConfig, {"preset": "book", "image_size": 32, "nz": 12, "ngf": 6, "ndf": 5}).model
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("weights")
    for name, network in (("netg_200.pth", Generator(model)), ("netd_200.pth", Discriminator(model))):
        torch.save(network.state_dict(), folder / name, _use_new_zipfile_serialization=False)
    return folder / "netg_200.pth", folder / "netd_200.pth"


def said(result: subprocess.CompletedProcess[str], code: int = 0) -> str:
    """What a command said; where it failed, that is one line."""
    assert result.returncode == code, result.stderr
    assert "Traceback" not in result.stderr
    return result.stdout if code == 0 else result.stderr


def picture(path: Path) -> tuple[str, tuple[int, int]]:
    with Image.open(path) as image:
        return image.mode, image.size


def rows_of(run: Path) -> list[dict[str, float]]:
    return [json.loads(row) for row in (run / "log.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    ("book", "here"),
    [
        ("train --gpu --vis=False", "train.py --preset=book --gpu --vis=False"),
        ("train --preset=book2 --gpu", "train.py --preset=book2 --gpu"),
        ("train --resume", "train.py --resume"),
        ("generate --vis=False --nogen --gen-img=a.png", "generate.py --vis=False --gen-img=a.png"),
        ("generate --gen-img=a.png --nogen", "generate.py --gen-img=a.png"),
        ("generate --nogen 4 --nogpu", "generate.py --nogen 4 --nogpu"),
        ("generate --netd-path=d --netg-path=g", "generate.py --gen_search_num=512 --netd-path=d --netg-path=g"),
        ("generate --netd-path d --gen-search-num 9", "generate.py --netd-path d --gen-search-num 9"),
        ("help", "train.py --help"),
        ("", "train.py --help"),
    ],
)
def test_its_commands_become_ours(book: str, here: str) -> None:
    assert main.translated(book.split()) == here.split()


def test_its_commands_run(tmp_path: Path, run_command: Command) -> None:
    shown = said(run_command("main.py", *"generate --nogpu --vis=False --nogen=2 --gen-img=a.png".split()))
    assert shown.splitlines()[0].endswith("python generate.py --nogpu --vis=False --nogen=2 --gen-img=a.png")
    assert picture(tmp_path / "a.png")[0] == "RGB"
    assert "main.py is" in shown
    wrong = run_command("main.py", "trian")
    assert said(wrong, 2) == "main.py: there is no command trian; expected train, generate or help\n"
    wrong = run_command("main.py", "train", "--vis=False", "--decay-every=10")
    assert said(wrong, 2) == "train.py: unknown option --decay-every; did you mean --save_every?\n"


def test_its_weights_draw_the_best_of_many(weights: tuple[Path, Path], tmp_path: Path, run_here: Command) -> None:
    netg, netd = weights
    words = [f"--netg_path={netg}", f"--netd_path={netd}", "--gen_num=16", "--gen_search_num=128", "--nogpu"]
    assert "16 faces in result.png" in said(run_here("generate.py", *words))
    assert picture(tmp_path / "result.png") == ("RGB", (4 * 34 + 2, 4 * 34 + 2))
    assert "16 faces" in said(run_here("generate.py", f"--netg-path={netg}", "--nogen", "16"))
    assert "--netd_path" in said(run_here("generate.py", f"--netg_path={netg}", "--gen_search_num=128"), 2)


def test_training_starts_from_its_weights(
    weights: tuple[Path, Path], faces: Path, tmp_path: Path, run_here: Command
) -> None:
    netg, netd = weights
    words = ["--nogpu", f"--data_path={faces}", "--run=a", "--max_epoch=1", "--batch_size=8", "--lr1=0", "--lr2=0"]
    said(run_here("train.py", *words, f"--netg_path={netg}", f"--netd_path={netd}"))
    saved = checkpoint.load(tmp_path / "checkpoints/a/latest.pt")
    options = saved["config"]
    assert {name: options[name] for name in ("image_size", "nz", "ngf", "ndf", "preset", "arch", "d_norm")} == {
        **{"image_size": 32, "nz": 12, "ngf": 6, "ndf": 5},
        **{"preset": "book", "arch": "book", "d_norm": "batch"},
    }
    for part, path in (("generator", netg), ("ema", netg), ("discriminator", netd)):
        given = torch.load(path, weights_only=True)
        learned = [n for n in given if n.endswith(("weight", "bias"))]
        assert all(torch.equal(saved[part][n], given[n]) for n in learned), part
    said(run_here("train.py", "--resume", "--max_epoch=2"))
    assert checkpoint.load(tmp_path / "checkpoints/a/latest.pt")["step"] == 6


def test_its_generator_alone_trains_with_the_default_recipe(
    weights: tuple[Path, Path], faces: Path, tmp_path: Path, run_here: Command
) -> None:
    words = ["--nogpu", f"--data_path={faces}", "--run=a", "--max_epoch=1", "--batch_size=8", "--preset=default"]
    said(run_here("train.py", *words, f"--netg_path={weights[0]}"))
    model = checkpoint.load(tmp_path / "checkpoints/a/latest.pt")["model"]
    assert (model["d_norm"], model["arch"]) == ("none", "book")


def test_the_released_generator_is_a_start_without_naming_its_options(
    faces: Path, tmp_path: Path, run_here: Command
) -> None:
    words = ["--nogpu", f"--data_path={faces}", "--batch_size=8", "--max_epoch=1", "--plot_every=0", "--lr1=0"]
    words += ["--eval_images=0", "--whole=0"]
    said(run_here("train.py", *words, "--run=a", f"--init={RELEASED}"))
    released, saved = checkpoint.load(RELEASED), checkpoint.load(tmp_path / "checkpoints/a/latest.pt")
    assert saved["model"].items() >= {**released["model"], "vocabulary": ()}.items()
    weight = "main.0.weight"
    assert torch.equal(saved["generator"][weight], released["ema"][weight].float())
    message = said(run_here("train.py", *words, "--run=b", f"--init={RELEASED}", "--arch=book"), 2)
    assert "--arch: the weights in" in message


def test_batchnorm_from_a_file_needs_a_preset_without_penalty(
    weights: tuple[Path, Path], tmp_path: Path, run_here: Command
) -> None:
    message = said(run_here("train.py", f"--netd_path={weights[1]}", "--preset=default"), 2)
    assert "use --preset=book" in message
    assert list(tmp_path.iterdir()) == []


def test_an_option_against_its_weights_is_refused(
    weights: tuple[Path, Path], tmp_path: Path, run_here: Command
) -> None:
    message = said(run_here("train.py", f"--netg_path={weights[0]}", "--image_size=96"), 2)
    assert "--image_size: the weights in" in message
    assert "have 32; got 96" in message
    assert "docs/from-the-book.md" in said(run_here("train.py", "--netd_path=gone.pth"), 2)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_trains_on(preset: str, faces: Path, tmp_path: Path, run_here: Command) -> None:
    said(run_here("train.py", *SMALL, f"--data_path={faces}", f"--preset={preset}", "--max_epoch=4"))
    said(run_here("train.py", "--resume", "--max_epoch=5"))
    row = rows_of(tmp_path / "checkpoints/a")[-1]
    assert row["step"] == 15
    assert ("gp_penalty" in row) == (preset == "wgan-gp")
    saved = checkpoint.load(tmp_path / "checkpoints/a/latest.pt")["discriminator"]
    largest = max(w.abs().max().item() for n, w in saved.items() if n.endswith("weight"))
    assert (largest <= 0.01 + 1e-7) == (preset == "wgan")


@pytest.mark.parametrize("loss", ["bce", "hinge", "rahinge"])
def test_the_losses_of_the_book_and_hinge_train(loss: str, faces: Path, tmp_path: Path, run_here: Command) -> None:
    said(run_here("train.py", *SMALL, f"--data_path={faces}", f"--loss={loss}", "--max_epoch=2", "--noprojected"))
    rows = rows_of(tmp_path / "checkpoints/a")
    assert rows[-1]["step"] == 6
    # what each loss is where the logits are still near 0
    at_start = {"bce": 2 * math.log(2), "hinge": 2.0, "rahinge": 2.0}[loss]
    assert rows[0]["d_loss"] == pytest.approx(at_start, abs=0.25)


@pytest.mark.parametrize("arch", get_args(Arch))
@pytest.mark.parametrize(
    "size", [pytest.param(size, marks=pytest.mark.slow) if size > 128 else size for size in IMAGE_SIZES]
)
def test_every_size_trains_and_draws(size: int, arch: str, faces: Path, tmp_path: Path, run_here: Command) -> None:
    small = [word for word in SMALL if not word.startswith("--image_size")]
    words = [f"--image_size={size}", f"--arch={arch}", "--max_epoch=1", "--plot_every=0"]
    said(run_here("train.py", *small, f"--data_path={faces}", *words))
    assert rows_of(tmp_path / "checkpoints/a")[-1]["step"] == 3
    said(run_here("generate.py", "--checkpoint=checkpoints/a", "--nogen=1", "--nogpu"))
    assert picture(tmp_path / "result.png")[1] == (size, size)


def test_residual_networks_train_go_on_and_draw(faces: Path, tmp_path: Path, run_here: Command) -> None:
    words = ["--arch=resnet", "--fine", "--max_epoch=2"]
    said(run_here("train.py", *SMALL, f"--data_path={faces}", *words))
    said(run_here("train.py", "--resume", "--max_epoch=3"))
    saved = checkpoint.load(tmp_path / "checkpoints/a/latest.pt")
    assert saved["step"] == 9
    assert (saved["model"]["arch"], saved["model"]["fine"]) == ("resnet", True)
    assert json.loads((tmp_path / "checkpoints/a/config.json").read_text())["config"]["fine"] is True
    said(run_here("generate.py", "--checkpoint=checkpoints/a", "--nogen=4", "--nogpu"))
    message = said(run_here("train.py", "--resume", "--nofine", "--max_epoch=4"), 2)
    assert "a run keeps it" in message


def test_grey_sets_of_torchvision_train_and_draw_in_grey(tmp_path: Path, run_here: Command) -> None:
    raw = tmp_path / "sets/MNIST/raw"
    raw.mkdir(parents=True)
    digits = np.random.default_rng(0).integers(0, 256, (24, 28, 28), np.uint8)
    for part in ("train", "t10k"):
        (raw / f"{part}-images-idx3-ubyte").write_bytes(struct.pack(">4i", 2051, *digits.shape) + digits.tobytes())
        (raw / f"{part}-labels-idx1-ubyte").write_bytes(struct.pack(">2i", 2049, 24) + bytes(24))
    said(run_here("train.py", *SMALL, "--data_path=torchvision:MNIST:sets", "--channels=1", "--max_epoch=2"))
    said(run_here("generate.py", "--checkpoint=checkpoints/a", "--nogen=4", "--outdir=out", "--nogpu"))
    assert picture(tmp_path / "out/face-00000000.png") == ("L", (32, 32))
    assert picture(tmp_path / "result.png") == ("RGB", (2 * 34 + 2, 2 * 34 + 2))
    assert len(list((tmp_path / "checkpoints/a/samples").iterdir())) >= 1


@pytest.mark.parametrize("leave", ["interrupted", "quit"])
def test_while_the_debug_file_exists_each_step_begins_in_the_debugger(faces: Path, tmp_path: Path, leave: str) -> None:
    words = [*SMALL, "--noprojected", f"--data_path={faces}", "--max_epoch=100000", "--debug_file=debug"]
    command = [sys.executable, "-u", str(ROOT / "benchmarks/often.py"), "5", "1", *words]
    said_so_far, log = tmp_path / "out.txt", tmp_path / "checkpoints/a/log.jsonl"
    latest = log.with_name("latest.pt")
    with said_so_far.open("w") as out:
        process = subprocess.Popen(
            command, cwd=tmp_path, stdin=subprocess.PIPE, stdout=out, stderr=subprocess.PIPE, text=True
        )

    def rows() -> int:
        return len(log.read_text().splitlines()) if log.exists() else 0

    def wait_until(condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 300
        while not condition():
            assert process.poll() is None, said_so_far.read_text()
            assert time.monotonic() < deadline, said_so_far.read_text()
            time.sleep(0.01)

    def answer(*lines: str) -> None:
        assert process.stdin is not None
        for line in lines:
            before = said_so_far.read_text().count("(Pdb)")
            process.stdin.write(f"{line}\n")
            process.stdin.flush()
            if line != "q" and (line != "c" or (tmp_path / "debug").exists()):
                wait_until(lambda before=before: said_so_far.read_text().count("(Pdb)") > before)

    def touch() -> None:
        prompts = said_so_far.read_text().count("(Pdb)")
        (tmp_path / "debug").touch()
        wait_until(lambda: said_so_far.read_text().count("(Pdb)") > prompts)

    try:
        wait_until(lambda: rows() >= 2)
        for i, lines in enumerate((["c"], ["n", "n", "n", "n", "c"])):
            touch()
            answer(
                f"p 'stop {i}', state.step", "c", f"p 'next {i}', state.step, batches.batch_size, type(run).__name__"
            )
            (tmp_path / "debug").unlink()
            held = rows()
            answer(*lines)
            wait_until(lambda held=held: rows() >= held + 3)
        if leave == "quit":
            wait_until(lambda: checkpoint.load(latest)["step"] > 0)
            touch()
            answer("q")
        else:
            process.send_signal(signal.SIGINT)  # pdb would keep it to itself
        _, err = process.communicate(input="y\n" if leave == "quit" else None, timeout=300)  # Python 3.14 asks
    finally:
        process.kill()
    told = said_so_far.read_text()
    for i in range(2):
        (first,) = re.findall(rf"\('stop {i}', (\d+)\)", told)
        assert f"('next {i}', {int(first) + 1}, 8, 'Run')" in told
    assert "Traceback" not in err
    assert checkpoint.load(latest)["step"] > 0
    if leave == "interrupted":
        assert process.returncode == 0, err
        assert "go on:   python train.py --resume=checkpoints/a" in told
    elif sys.version_info < (3, 14):
        assert process.returncode == 2
        assert "you quit the debugger, which ends the run" in err
        assert "python train.py --resume=checkpoints/a" in err


def test_tensorboard_has_what_the_log_has(faces: Path, tmp_path: Path, run_here: Command) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    said(run_here("train.py", *SMALL, f"--data_path={faces}", "--max_epoch=2", "--tensorboard"))
    said(run_here("train.py", "--resume", "--max_epoch=4"))
    run = tmp_path / "checkpoints/a"
    events = accumulator.EventAccumulator(str(run / "tensorboard"))
    events.Reload()
    rows = rows_of(run)
    assert [row["step"] for row in rows] == [3, 6, 9, 12]
    for name in ("d_loss", "g_loss", "images_seen", "images_per_second"):
        shown = [(event.step, pytest.approx(event.value, rel=1e-5)) for event in events.Scalars(name)]
        assert [(row["step"], row[name]) for row in rows] == shown
    assert {"samples", "faces"} <= set(events.Tags()["images"])
