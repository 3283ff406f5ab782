"""Several processes that train one run, started by the real torchrun over gloo, as on a machine without GPUs."""

import json
import os
import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed
from machine import free_port

import train
from gan import checkpoint
from gan.presets import PRESETS

ROOT = Path(__file__).resolve().parents[2]
OFTEN = str(ROOT / "benchmarks" / "often.py")
SMALL = ["--nogpu", "--image_size=32", "--ngf=8", "--ndf=8", "--batch_size=16", "--precision=fp32", "--whole=0"]
Command = Callable[..., subprocess.CompletedProcess[str]]
Start = Callable[..., subprocess.Popen[str]]

pytestmark = pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="torch was built without gloo")

SCRIPT = """
import sys
from pathlib import Path
import torch

sys.path.insert(0, {root!r})
import train
from config import TrainConfig
from gan.command_line import command_line
from gan.presets import PRESETS

PRESETS["default"] |= {details!r}
train.LOG_EVERY, train.SAVE_SECONDS = 1, 3600.0
if __name__ == "__main__":
    command_line(TrainConfig, train.main)
    # A thread of gloo's that outlives the training may abort the process while Python shuts down.
    left = [name for task in Path("/proc/self/task").iterdir() if "gloo" in (name := (task / "comm").read_text())]
    if left:
        sys.exit(f"still running: {{left}}")
"""


@pytest.fixture(scope="module")
def faces(tmp_path_factory: pytest.TempPathFactory, make_faces: Callable[..., list[Path]]) -> Path:
    """Faces with classes."""
    folder = tmp_path_factory.mktemp("faces")
    names = [path.name for path in make_faces(folder, 70, size=32)]
    rows = [f"{name},{'even' if i % 2 == 0 else 'odd' if i % 3 else ''}" for i, name in enumerate(names)]
    (folder / "labels.csv").write_text("\n".join(["file,kind", *rows]))
    return folder


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a script in so many processes and go on; whatever still runs in the end is killed.

    Without a script it is train.py with a row every 4 steps, and a save every so many seconds.
    """
    started: list[subprocess.Popen[str]] = []

    def begin(
        processes: int,
        *words: str,
        script: Path | None = None,
        saves: float = 120,
        machines: Sequence[str] = ("--standalone",),
    ) -> subprocess.Popen[str]:
        command = [*([OFTEN, "4", str(saves)] if script is None else [str(script)]), *SMALL, *words]
        if processes > 1 or len(machines) > 1:
            torchrun = ["-m", "torch.distributed.run", *machines, f"--nproc_per_node={processes}", "--"]
            command = [*torchrun, *command]
        command = list({word.partition("=")[0]: word for word in command}.values())  # the last of each counts
        process = subprocess.Popen(
            [sys.executable, *command],
            cwd=tmp_path,
            env={**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(tmp_path)},  # torchrun leaves logs there
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def finished(process: subprocess.Popen[str], code: int = 0) -> tuple[str, str]:
    out, err = process.communicate(timeout=300)
    assert process.returncode == code, (out, err)
    return out, err


def rows_of(run: Path) -> list[dict[str, float]]:
    return [json.loads(row) for row in (run / "log.jsonl").read_text().splitlines()]


def workers(torchrun: subprocess.Popen[str]) -> dict[int, int]:
    """The processes that it started, by rank."""
    children = Path(f"/proc/{torchrun.pid}/task/{torchrun.pid}/children").read_text().split()
    ranks = {}
    for child in children:
        variables = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
        (rank,) = [int(v.removeprefix(b"RANK=")) for v in variables if v.startswith(b"RANK=")]
        ranks[rank] = int(child)
    return ranks


def until_rows(run: Path, n: int, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 300
    while not (run / "log.jsonl").is_file() or len(rows_of(run)) < n:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "no rows"
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("options", "details"),
    [
        (["--whole=1"], {"translate": 1.0, "colour": 1.0}),
        pytest.param(["--loss=bce"], {"penalty": "gp"}, marks=pytest.mark.torture),
    ],
)
def test_two_processes_train_as_one_does(
    start: Start,
    run_here: Command,
    tmp_path: Path,
    faces: Path,
    options: list[str],
    details: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script = tmp_path / "details.py"
    script.write_text(SCRIPT.format(root=str(ROOT), details={"penalty_every": 2, **details}))
    same = [f"--data_path={faces}", "--max_epoch=2", "--noprojected", "--eval_images=0", *options]
    same += ["--lr1=3e-4", "--lr2=3e-4"]  # Adam makes steps of rounding, and greater ones soon make it count
    out, _ = finished(start(2, *same, "--run=2", script=script))
    assert "go on:   torchrun --nproc_per_node=2 -- train.py --resume=checkpoints/2 --max_epoch=52\n" in out
    monkeypatch.setitem(PRESETS, "default", {})
    for name in ("LOG_EVERY", "SAVE_SECONDS"):
        monkeypatch.setattr(train, name, getattr(train, name))  # what the script does is undone in the end
    runpy.run_path(str(script))
    alone = {word.partition("=")[0]: word for word in (*SMALL, *same)}.values()  # the last of each counts
    assert run_here("train.py", *alone, "--run=1").returncode == 0
    one, two = (rows_of(tmp_path / "checkpoints" / str(n)) for n in (1, 2))
    assert len(one) == len(two) == 9
    # Not the logits: relativistic losses know no zero, and Adam makes a step of the rounding in its place.
    for row, other in zip(one, two, strict=True):
        assert row.keys() == other.keys()
        for name in row.keys() & {"d_loss", "g_loss", "r1_penalty", "r2_penalty", "gp_penalty"}:
            assert other[name] == pytest.approx(row[name], rel=2e-3, abs=1e-4), (row["step"], name)
    assert abs(one[-1]["d_loss"] - one[0]["d_loss"]) > 0.01
    learned = [checkpoint.load(tmp_path / "checkpoints" / str(n) / "latest.pt")["discriminator"] for n in (1, 2)]
    one, two = (weights["classes.0.weight"] for weights in learned)
    assert (one[1:].abs().amax(1) > 0).all()
    torch.testing.assert_close(two, one, rtol=0.05, atol=1e-4)


SUMS = """
    from gan.training.ranks import Ranks
    wrapped = Ranks.wrapped
    def summed(ranks, network, device):
        found = wrapped(ranks, network, device)
        numbers = torch.cat([t.detach().double().flatten() for t in network.state_dict().values()])
        # In one piece, as two processes write here.
        sys.stderr.write(f"weights {ranks.rank} {type(network).__name__} {numbers.sum().item()!r}\\n")
        return found
    Ranks.wrapped = summed
"""


@pytest.mark.slow
def test_two_machines_train_one_run(start: Start, tmp_path: Path, faces: Path) -> None:
    where = ["--nnodes=2", "--master_addr=127.0.0.1", f"--master_port={free_port()}"]
    words = [f"--data_path={faces}", "--run=a", "--max_epoch=2", "--noprojected", "--eval_images=0"]
    first, second = (start(1, *words, machines=[*where, f"--node_rank={rank}"]) for rank in range(2))
    out, _ = finished(first)
    assert "2 processes" in out
    assert "faces to train on" not in finished(second)[0]
    assert [row["step"] for row in rows_of(tmp_path / "checkpoints" / "a")] == [4, 8, 9]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.torture)])
def test_ctrl_c_saves_a_run_of_two_and_it_goes_on_alone(
    start: Start, run_here: Command, tmp_path: Path, faces: Path, number: int
) -> None:
    run, script = tmp_path / "checkpoints" / "a", tmp_path / "weights.py"
    source = SCRIPT.format(root=str(ROOT), details={"freeze": 1})
    script.write_text(source.replace('__main__":', f'__main__":{SUMS}'))
    words = f"--data_path={faces}", "--run=a", "--eval_images=0", "--max_epoch=100000"
    process = start(2, *words, script=script)
    until_rows(run, 3, process)
    if number == signal.SIGINT:  # a terminal sends it to all of them, and torchrun sends it on
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    out, err = process.communicate(timeout=300)
    stopped = checkpoint.load(run / "latest.pt")["step"]
    assert f"stopped at step {stopped}," in out
    assert stopped == rows_of(run)[-1]["step"]
    sums = sorted(line.split()[1:] for line in err.splitlines() if line.startswith("weights "))
    assert [line[:2] for line in sums] == [[r, name] for r in "01" for name in ("Discriminator", "Generator")]
    assert sums[0][2] == sums[2][2]  # all begin with those of the first; its encoder too, which is not trained
    assert sums[1][2] == sums[3][2]
    assert out.count("faces to train on") == 1, out  # one of them speaks
    assert "2 processes" in out
    assert len({row["step"] for row in rows_of(run)}) == len(rows_of(run))  # one writes them, and the samples
    samples = sorted(p.name for p in (run / "samples").iterdir())  # more of them where it took over half a minute
    assert [samples[0], samples[-1]] == [f"step-{n:08d}.png" for n in (0, stopped)]
    epochs = stopped * 16 // 70 + 2
    assert run_here("train.py", "--nogpu", f"--resume={run}", f"--max_epoch={epochs}").returncode == 0
    content = checkpoint.load(run / "latest.pt")
    assert content["step"] == -(-epochs * 70 // 16)
    assert rows_of(run)[-1]["step"] == content["step"]
    assert not any(name.startswith("module.") for name in content["generator"])


@pytest.mark.parametrize("dies", [0, pytest.param(1, marks=pytest.mark.torture)])
def test_a_run_alone_goes_on_in_two_and_when_one_dies_the_other_ends_and_the_run_goes_on(
    start: Start, run_here: Command, tmp_path: Path, faces: Path, dies: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(train, "LOG_EVERY", 4)
    run = tmp_path / "checkpoints" / "a"
    words = f"--data_path={faces}", "--noclasses", "--noprojected", "--eval_images=0", "--run=a", "--max_epoch=2"
    alone = run_here("train.py", *SMALL, *words)
    assert alone.returncode == 0, alone.stderr
    process = start(2, f"--resume={run}", "--max_epoch=100000", saves=0.6)
    until_rows(run, 6, process)
    deadline = time.monotonic() + 300
    while checkpoint.load(run / "latest.pt")["step"] <= 9:
        assert time.monotonic() < deadline, "nothing saved"
        time.sleep(0.05)
    os.kill(workers(process)[dies], signal.SIGKILL)
    _, err = process.communicate(timeout=300)  # they would wait for a day
    assert process.returncode != 0
    assert "another process of this run has ended" in err, err
    saved = checkpoint.load(run / "latest.pt")["step"]
    assert [row["step"] for row in rows_of(run)][:3] == [4, 8, 9]
    result = run_here("train.py", "--nogpu", f"--resume={run}", f"--max_epoch={saved // 4 + 2}")
    assert f"going on from step {saved}," in result.stdout


@pytest.mark.slow
def test_a_budget_ends_all_at_one_step(start: Start, tmp_path: Path, faces: Path) -> None:
    few_seconds = ["--budget=0.1", "--noprojected", "--eval_images=0"]
    out, _ = finished(start(2, f"--data_path={faces}", "--run=a", *few_seconds))
    content = checkpoint.load(tmp_path / "checkpoints" / "a" / "latest.pt")
    assert content["finished"]
    assert f"finished at step {content['step']}," in out
