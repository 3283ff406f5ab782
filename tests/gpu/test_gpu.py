"""The code for GPUs, run by real commands and by tests of their own, on the stand-in for CUDA; see null_cuda.py."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import null_cuda
import numpy as np
import pytest
from PIL import Image

pytestmark = pytest.mark.usefixtures("stand_in")
Command = Callable[..., subprocess.CompletedProcess[str]]

ON_NULL_CUDA = null_cuda.HERE / "on_null_cuda.py"
SMALL = "--image_size=32 --ngf=4 --ndf=4 --nz=8 --batch_size=8 --noprojected --save_every=1 --whole=0".split()


@pytest.fixture
def on_gpu(run_command: Command) -> Command:
    """Run a command as `run_command` does, on the stand-in for CUDA."""

    def run(*words: str | Path, **options: object) -> subprocess.CompletedProcess[str]:
        return run_command(ON_NULL_CUDA, *words, **options)

    return run


def test_tests_that_need_a_process_of_their_own_pass() -> None:
    """The stand-in is loaded before torch."""
    files = [null_cuda.HERE / name for name in ("same.py", "waits.py")]
    words = sys.executable, ON_NULL_CUDA, "pytest", "-n0", "--no-header", "-p", "no:cacheprovider", *files
    ran = subprocess.run(words, cwd=null_cuda.ROOT, capture_output=True, encoding="utf-8", check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert re.search(r"^=* \d+ passed in", ran.stdout, re.MULTILINE), ran.stdout  # and none skipped


def rows(run: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize(("first", "precision"), [("cuda", "bf16"), ("CPU", "fp32")])
def test_a_run_goes_on_on_another_device(
    first: str,
    precision: str,
    on_gpu: Command,
    run_here: Command,
    make_faces: Callable[..., list[Path]],
    tmp_path: Path,
) -> None:
    make_faces(tmp_path / "faces", 24, 32)
    run = tmp_path / "checkpoints" / "a"
    begin = "train.py", "--data_path=faces", "--run=a", "--max_epoch=1", f"--precision={precision}", *SMALL
    resume = "train.py", "--resume=checkpoints/a", "--max_epoch=2"
    began = on_gpu(*begin, "--gpu") if first == "cuda" else run_here(*begin, "--nogpu")
    assert began.returncode == 0, began.stderr
    before = rows(run)
    went_on = run_here(*resume, "--nogpu") if first == "cuda" else on_gpu(*resume, "--gpu")
    assert went_on.returncode == 0, went_on.stderr
    there, here = (began, went_on) if first == "cuda" else (went_on, began)
    assert "device: Null GPU (cuda)\n" in there.stdout
    assert "device: CPU" in here.stdout
    assert "going on from step 3, 24 images seen" in went_on.stdout
    assert rows(run)[: len(before)] == before
    assert rows(run)[-1]["step"] == 6
    assert all(np.isfinite(list(row.values())).all() for row in rows(run))


def test_faces_of_the_gpu_are_those_of_the_cpu(on_gpu: Command, run_here: Command, tmp_path: Path) -> None:
    there = on_gpu("generate.py", "--gpu", "--nogen=4", "--gen_img=gpu.png")
    assert (there.returncode, there.stderr) == (0, "")
    assert there.stdout == "device: Null GPU (cuda)\n4 faces in gpu.png\n"
    assert run_here("generate.py", "--nogpu", "--nogen=4", "--gen_img=cpu.png").returncode == 0
    one, other = (np.asarray(Image.open(tmp_path / name)).astype(int) for name in ("cpu.png", "gpu.png"))
    assert np.abs(one - other).mean() < 1  # the GPU computes in bf16


def test_an_evaluation_on_the_gpu_finds_what_one_on_the_cpu_does(
    on_gpu: Command,
    run_here: Command,
    make_faces: Callable[..., list[Path]],
    knowing_checkpoint: Path,
    tmp_path: Path,
) -> None:
    make_faces(tmp_path / "faces", 100, 32)
    words = "evaluate.py", f"--fake={knowing_checkpoint}", "--real=faces", "--features=faces", "--n=50"
    there = on_gpu(*words, "--gpu", "--report=gpu.png")
    assert there.returncode == 0, there.stderr
    assert "device: Null GPU (cuda)\n" in there.stdout
    assert run_here(*words, "--nogpu", "--report=cpu.png").returncode == 0
    here, found = (json.loads((tmp_path / name).read_text(encoding="utf-8")) for name in ("cpu.json", "gpu.json"))
    assert found["metrics"].keys() >= {"fd", "damage_x100"}
    for name, metric in here["metrics"].items():
        assert found["metrics"][name]["value"] == pytest.approx(metric["value"], rel=0.01), name


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ({"NULL_CUDA_CAPABILITY": "50"}, "no kernel image is available for execution on the device"),
        ({"NULL_CUDA_NO_ENGINE": "1"}, "unable to find an engine to execute this computation"),
        ({"NULL_CUDA_OLD_DRIVER": "1"}, "The NVIDIA driver on your system is too old (found version 11040)"),
    ],
    ids=["too old for torch", "unknown to cuDNN", "with an old driver"],
)
def test_a_gpu_that_cannot_be_used_is_named_in_one_line(
    fault: dict[str, str], said: str, on_gpu: Command, knowing_checkpoint: Path
) -> None:
    ran = on_gpu("generate.py", f"--checkpoint={knowing_checkpoint}", "--gpu", "--nogen=1", env=fault)
    assert (ran.returncode, ran.stderr) == (0, "")
    first, *rest = ran.stdout.splitlines()
    assert first.startswith("torch ")
    assert said in first
    assert "CPU" in first
    assert rest == ["1 face in result.png"]


def test_a_gpu_that_is_full_is_told_from_one_that_cannot_be_used(on_gpu: Command, knowing_checkpoint: Path) -> None:
    full = {"NULL_CUDA_MIB": "1"}
    ran = on_gpu("generate.py", f"--checkpoint={knowing_checkpoint}", "--gpu", "--nogen=1", env=full)
    assert ran.returncode == 2
    assert ran.stdout == "device: Null GPU (cuda)\n"
    last = ran.stderr.splitlines()[-1]  # torch has told of each attempt
    assert last == "generate.py: out of memory: stop other programs that use it, or generate with --nogpu"
