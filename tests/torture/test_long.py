"""A long run of a small network, watched in every way at once: nothing grows without bound.

`python -m pytest -n0 -m torture -rP tests/torture/test_long.py` prints what it took at each tenth.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest
import visdom
from machine import free_port
from victims import ROOT, SMALL

from gan.watching import visdom_page

STEPS, TENTHS = 100_000, 10


class Use(NamedTuple):
    """What a run uses."""

    step: int
    training: float  # memory of the training process, MB
    server: float  # of visdom's
    files: int  # open ones of the training process
    grids: int  # preview grids in the run's folder
    rows: float  # log.jsonl and TensorBoard's files, MB
    rest: float  # the rest of the folder, MB


@pytest.mark.torture
def test_a_hundred_thousand_steps_take_no_more_than_the_first_tenths(tmp_path: Path, faces: Path) -> None:
    server = visdom_page.Server(free_port(), Path(visdom.__file__).parent / "static")
    assert server.wait()
    words = [*SMALL, "--noprojected", "--whole=0", "--noclasses", "--precision=fp32", f"--data_path={faces}"]
    words += ["--run=long", "--vis", f"--vis_server=http://localhost:{server.port}", "--tensorboard"]
    words += [f"--max_epoch={STEPS * 16 // 75 + 1}"]
    run, uses = tmp_path / "checkpoints" / "long", list[Use]()
    with open(tmp_path / "said", "w") as said:
        training = subprocess.Popen(
            [sys.executable, ROOT / "train.py", *words], cwd=tmp_path, stdout=said, stderr=subprocess.STDOUT
        )
    try:
        while training.poll() is None:
            time.sleep(0.5)
            rows = (run / "log.jsonl").read_bytes().splitlines() if (run / "log.jsonl").is_file() else []
            step = json.loads(rows[-1])["step"] if len(rows) > 1 and rows[-1].endswith(b"}") else 0
            if step >= STEPS // TENTHS * (len(uses) + 1) * 0.98 and training.poll() is None:
                uses.append(use(step, training.pid, server.process.pid, run))
                print(uses[-1])
    finally:
        training.kill()
        training.wait()
        server.close()
    words_said = (tmp_path / "said").read_text()
    assert training.returncode == 0, words_said[-3000:]
    assert "Traceback" not in words_said

    log = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    assert log[-1]["step"] >= STEPS
    paces = [log[len(log) * i // TENTHS]["seconds"] for i in range(TENTHS)] + [log[-1]["seconds"]]
    seconds = [1000 * (end - start) / STEPS * TENTHS for start, end in itertools.pairwise(paces)]
    print(f"ms a step in each tenth: {', '.join(f'{ms:.2f}' for ms in seconds)}")
    print(f"report.html: {(run / 'report.html').stat().st_size / 1e6:.2f} MB")

    early, late = uses[1], uses[-1]
    assert late.training < 1.1 * early.training
    assert late.server < 1.5 * early.server
    assert late.files <= early.files + 2
    assert late.rows < 1.1 * early.rows * late.step / early.step  # so much a row
    assert late.rest < 100
    assert sum(seconds[-2:]) < 1.25 * sum(seconds[1:3])


def use(step: int, training: int, server: int, run: Path) -> Use:
    """Look at what both processes and the run's folder use now."""
    sizes = {path: path.stat().st_size / 1e6 for path in run.rglob("*") if path.is_file() and path.suffix != ".tmp"}
    rows = sum(size for path, size in sizes.items() if path.name == "log.jsonl" or "tensorboard" in path.parts)
    files = len(os.listdir(f"/proc/{training}/fd"))
    grids = len(list((run / "samples").iterdir()))
    return Use(step, memory(training), memory(server), files, grids, rows, sum(sizes.values()) - rows)


def memory(process: int) -> float:
    """What is resident of a process, MB."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
