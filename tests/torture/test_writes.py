"""What is written once, packs and prepared faces with their labels: killed before each single step of the writing.

An audit hook of Python counts what a program does to the files below its folder, and ends it by kill -9 at a number.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image
from victims import ROOT

from gan.data import synthetic

KILLED = """
import os, runpy, sys

number, seen, sys.argv[:] = int(sys.argv[1]), [], sys.argv[2:]
sys.path.insert(0, os.path.dirname(os.path.abspath(sys.argv[0])))
CHANGES = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate", "os.utime"}

def changes(event, args):
    if event in CHANGES:
        return True
    if event != "open" or not isinstance(args[0], (str, bytes)):
        return False
    return bool(args[2] & (os.O_WRONLY | os.O_RDWR)) if args[1] is None else any(c in args[1] for c in "wax+")

def hook(event, args):
    if changes(event, args) and os.path.abspath(os.fsdecode(args[0])).startswith(os.getcwd()):
        seen.append(f"step: {event} {os.path.basename(os.fsdecode(args[0]))}")
        if len(seen) == number:
            os.kill(os.getpid(), 9)

sys.addaudithook(hook)
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
finally:
    print(*seen, sep="\\n")
"""
Program = Callable[..., subprocess.CompletedProcess[str]]
PACK = """
import sys
from pathlib import Path
sys.path.insert(0, {root!r})
from gan.data.faces import open_pack

open_pack(Path("pile"), 32, Path("packs"), num_workers=1)
"""
PREPARE = [str(ROOT / "prepare.py"), "pile", "--out=faces"]


def contents(folder: Path) -> dict[str, str]:
    """Everything below a folder, hidden and empty too: digests of files, empty texts for folders."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        for path in sorted(folder.rglob("*"))
    }


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """A program that is killed before a step of its writing, counted from 1; 0 lets it end."""
    (tmp_path / "killed.py").write_text(KILLED)
    (tmp_path / "pack.py").write_text(PACK.format(root=str(ROOT)))
    (tmp_path / "pile").mkdir()
    for seed in range(6):
        Image.fromarray(synthetic.draw(seed, 96)[0]).save(tmp_path / "pile" / f"{seed}.png")
    (tmp_path / "pile" / "broken.png").write_bytes(b"no picture")

    def run(number: int, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-B", tmp_path / "killed.py", str(number), *words]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)

    return run


def steps(done: subprocess.CompletedProcess[str]) -> list[str]:
    """The steps of writing of a whole call: what was done, and the name of the file."""
    assert done.returncode == 0, done.stderr
    return re.findall(r"^step: (.*)", done.stdout, re.MULTILINE)


def test_a_pack_killed_before_each_step_of_its_writing_is_made_whole_by_the_next_call(
    tmp_path: Path, program: Program
) -> None:
    number = len(steps(program(0, "pack.py")))
    whole = contents(tmp_path / "packs")
    for step in range(1, number + 1):
        shutil.rmtree(tmp_path / "packs")
        assert program(step, "pack.py").returncode == -signal.SIGKILL
        assert program(0, "pack.py").returncode == 0
        assert contents(tmp_path / "packs") == whole, f"killed before step {step} of {number}"


def check_kill(tmp_path: Path, program: Program, step: int, *words: str) -> None:
    """Kill a call before a step of its writing: the folder is the old or the new one, and later calls go on."""
    old, new = (contents(tmp_path / name) for name in ("old", "whole"))
    shutil.rmtree(tmp_path / "faces")
    shutil.copytree(tmp_path / "old", tmp_path / "faces")
    assert program(step, *PREPARE, *words).returncode == -signal.SIGKILL
    if not (tmp_path / "faces").exists():  # killed between two renames
        (left,) = tmp_path.glob(".faces-*.tmp")
        assert contents(left / "old") == old
    else:
        assert contents(tmp_path / "faces") in (old, new), f"killed before step {step}"
    assert program(0, *PREPARE, "--min_size=4096", *words).returncode == 2  # even one that keeps none goes on
    again = program(0, *PREPARE, *words)
    assert again.returncode == 0, again.stderr
    assert contents(tmp_path / "faces") == new, f"killed before step {step}"
    assert not list(tmp_path.glob(".faces*"))


def folders(tmp_path: Path, program: Program, *words: str) -> list[str]:
    """Prepare an old folder of faces and a new one to compare with; the steps of the writing of the new one."""
    steps(program(0, *PREPARE, "--keep=near_duplicate", "--label=eyes"))
    shutil.copytree(tmp_path / "faces", tmp_path / "old")
    for name in ("1.png", "2.png"):
        (tmp_path / "pile" / name).unlink()
    found = steps(program(0, *PREPARE, *words))
    shutil.copytree(tmp_path / "faces", tmp_path / "whole")
    return found


@pytest.mark.torture
@pytest.mark.parametrize("words", [[], ["--label=hair,eyes"]], ids=["faces", "labels"])
def test_prepared_faces_killed_before_each_step_of_their_writing_are_the_old_or_the_new_ones(
    tmp_path: Path, program: Program, words: list[str]
) -> None:
    for step in range(1, len(folders(tmp_path, program, *words)) + 1):
        check_kill(tmp_path, program, step, *words)


def test_faces_killed_while_they_take_the_place_of_the_old_ones_are_the_old_or_the_new_ones(
    tmp_path: Path, program: Program
) -> None:
    done = folders(tmp_path, program)
    renames = [i for i, step in enumerate(done, 1) if step in ("os.rename faces", "os.rename new")]
    assert len(renames) == 2
    for step in (renames[0], renames[1], renames[1] + 1):
        check_kill(tmp_path, program, step)
