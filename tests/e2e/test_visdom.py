"""train.py --vis with real servers: none of them, alive, dead or missing, changes the training or spoils its output."""

import json
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import visdom
from machine import FAST, free_port

from gan.watching import visdom_assets, visdom_page

pytestmark = pytest.mark.usefixtures("patient")

ROOT = Path(__file__).resolve().parents[2]
OFTEN = str(ROOT / "benchmarks" / "often.py")
KILL = getattr(signal, "SIGKILL", signal.SIGTERM)  # Windows has none
OWN = Path(visdom.__file__).parent / "static"
SMALL = f"--nogpu --noprojected --image_size=32 --ngf=8 --ndf=8 --batch_size=16 --precision={FAST}"
SMALL = f"{SMALL} --whole=0 --eval_images=0".split()
Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def faces(tmp_path_factory: pytest.TempPathFactory, make_faces: Callable[..., list[Path]]) -> Path:
    folder = tmp_path_factory.mktemp("faces")
    make_faces(folder, 75, size=32)
    return folder


def panes(port: int, env: str) -> dict[str, Any]:
    asked = json.dumps({"win": None, "eid": env}).encode()
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # whatever proxy the machine has
    until = time.monotonic() + 120
    while True:
        try:
            with direct.open(f"http://127.0.0.1:{port}/win_data", data=asked, timeout=5) as answer:
                return json.loads(answer.read())
        except OSError:  # it does not answer yet
            if time.monotonic() > until:
                raise
        time.sleep(0.1)


def test_a_server_killed_and_started_again_twice_changes_nothing_and_gets_it_all(
    tmp_path: Path, faces: Path, run_here: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    visdom_assets.folder().parent.mkdir(parents=True)
    words = [*SMALL, f"--data_path={faces}", "--plot_every=100"]
    server = visdom_page.Server(free_port(), OWN)
    assert server.wait()

    command = [
        sys.executable,
        OFTEN,
        "5",
        "120",
        *words,
        "--run=shown",
        "--vis",
        f"--vis_server=http://localhost:{server.port}",
    ]
    command += ["--max_epoch=100000"]  # it trains until it is told to stop
    training = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    log = tmp_path / "checkpoints/shown/log.jsonl"
    try:
        for rows in (3, 9):
            while training.poll() is None and not (log.is_file() and len(log.read_text().splitlines()) >= rows):
                time.sleep(0.05)
            assert training.poll() is None
            server.process.kill()
            server.close()
            seen = len(log.read_text().splitlines())
            while training.poll() is None and len(log.read_text().splitlines()) < seen + 1:
                time.sleep(0.02)  # it trains on
            training.send_signal(signal.SIGSTOP)  # a server takes longer to start than 30 epochs
            server = visdom_page.Server(server.port, OWN)
            assert server.wait()
            training.send_signal(signal.SIGCONT)
        while training.poll() is None and len(log.read_text().splitlines()) < 15:
            time.sleep(0.05)
        assert training.poll() is None  # else nothing was sent to the last of the servers
        training.send_signal(signal.SIGTERM)
        out, err = training.communicate(timeout=300)
    finally:
        training.kill()
    shown = panes(server.port, "shown")
    server.close()

    assert training.returncode == 0
    assert "Traceback" not in out + err
    assert f"http://localhost:{server.port}/env/shown" in out
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    curve = shown["losses"]["content"]["data"][0]
    assert curve["x"] == [row["images_seen"] for row in rows if "d_loss" in row]
    step = torch.load(tmp_path / "checkpoints/shown/latest.pt")["step"]
    assert shown["samples"]["title"].endswith(f"step {step:,}")
    epochs = f"--max_epoch={step * 16 // 75 + 2}"
    assert run_here("train.py", *words, "--run=quiet", epochs).returncode == 0
    assert run_here("train.py", "--resume=checkpoints/shown", "--novis", epochs).returncode == 0
    one, other = (torch.load(tmp_path / f"checkpoints/{run}/latest.pt") for run in ("quiet", "shown"))
    for part in ("generator", "discriminator", "ema"):
        assert all(torch.equal(one[part][name], other[part][name]) for name in one[part])
    assert one["step"] == other["step"] > step
    assert {"faces", "logits", "penalties", "speed", "data_wait"} <= shown.keys()


@pytest.mark.parametrize("ending", [pytest.param(signal.SIGTERM, marks=pytest.mark.slow), KILL])
def test_a_server_of_its_own_ends_with_the_run_even_if_that_is_killed(
    tmp_path: Path, faces: Path, page_files: Path, ending: signal.Signals
) -> None:
    port = free_port()
    words = [*SMALL, f"--data_path={faces}", "--run=a", "--vis", f"--vis_server=http://localhost:{port}"]
    command = [sys.executable, "-u", ROOT / "train.py", *words]
    training = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert training.stdout is not None
    told = ""
    while "watch it" not in told:
        told = training.stdout.readline()
        assert told, training.communicate()
    assert told == f"watch it in a browser: http://127.0.0.1:{port}/env/a\n"
    assert visdom_page.is_visdom(f"http://127.0.0.1:{port}")
    training.send_signal(ending)
    training.communicate(timeout=300)

    until = time.monotonic() + 120
    while visdom_page.is_taken(port):
        assert time.monotonic() < until
        time.sleep(0.1)


def test_without_files_and_internet_one_line_says_what_to_do_and_training_goes_on(
    tmp_path: Path, faces: Path, run_here: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    nobody = "http://127.0.0.1:9"
    nowhere = {"https_proxy": nobody, "no_proxy": "", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    nowhere |= {"npm_config_registry": nobody, "npm_config_cache": str(tmp_path / "npm")}
    for name, value in nowhere.items():
        monkeypatch.setenv(name, value)
    words = f"--data_path={faces}", "--max_epoch=1", "--vis", "--run=a", f"--vis_server=http://localhost:{free_port()}"

    done = run_here("train.py", *SMALL, *words)

    assert done.returncode == 0
    (line,) = [line for line in done.stdout.splitlines() if "--vis" in line]
    assert f"are not in {visdom_assets.folder()} and cannot be put there" in line
    assert "npm" in line
    assert "report.html" in line
    assert "Traceback" not in done.stdout + done.stderr
    assert (tmp_path / "checkpoints/a/log.jsonl").is_file()
