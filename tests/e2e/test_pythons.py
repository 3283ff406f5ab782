"""The main commands on other Pythons than the one that runs the tests."""

import os
import re
import subprocess
from collections.abc import Callable

import pytest
from machine import free_port

PYTHONS = os.environ.get("PYTHONS", "").split()
"""Interpreters with what requirements.txt names: `.ci/run` finds the oldest and the newest of its machine."""


@pytest.mark.parametrize("python", PYTHONS)
def test_they_end_well_and_say_nothing_on_stderr_but_how_far_they_are(
    python: str, run_command: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    small = ("--image_size=32", "--ngf=8", "--ndf=8", "--eval_images=0", "--run=small", "--max_epoch=1")
    for words in (
        ("generate.py", "--nogen=120", "--outdir=faces"),
        ("prepare.py", "faces", "--out=ready"),
        ("train.py", "--data_path=ready", *small, "--vis", f"--vis_server=http://127.0.0.1:{free_port()}"),
        ("train.py", "--resume=checkpoints/small", "--max_epoch=2"),
        ("evaluate.py", "--fake=checkpoints/small", "--n=50"),
        ("export.py", "--checkpoint=checkpoints/small"),
    ):
        result = run_command(*words, python=python)
        assert result.returncode == 0, result.stderr
        assert not [line for line in result.stderr.splitlines() if not re.match(r"(epoch \d/\d  .*)?$", line)]
