"""Faults of the machine under a training that runs: it goes on or says in one line what to do, and nothing is lost.

None of these tests skips itself: a fault that cannot be made fails its test. Two trainings of one run and a visdom that
is killed are in tests/e2e.
"""

from __future__ import annotations

import contextlib
import os
import pty
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from victims import SMALL, Victim

from config import CheckpointError
from gan import checkpoint

WORDS = [*SMALL, "--noprojected", "--precision=fp32", "--noclasses", "--whole=0"]
GOES_ON = "training goes on, the last good file stays"
Runs = Callable[..., Victim]
Check = Callable[..., None]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[tuple[Path, list[str]]]:
    """A disk of 100 MB in a mount namespace of its own, and what a process that is to see it is started by."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = f"mount -t tmpfs -o size=100m none '{place}' && mkdir '{place}/run' && cd '{place}/run'"
    holder = subprocess.Popen(
        ["unshare", "-rm", "sh", "-c", f"{mount} && echo mounted && exec sleep inf"], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == "mounted\n"
        enter = ["nsenter", f"--target={holder.pid}", "--user", "--preserve-credentials", "--mount"]
        yield Path(f"/proc/{holder.pid}/root{place}/run"), [*enter, "--wd"]
    finally:
        holder.kill()
        holder.communicate()


@pytest.fixture
def spare(tmp_path: Path) -> Path:
    """The folder of the temporary files."""
    (tmp_path / "spare").mkdir()
    return tmp_path / "spare"


def fill(disk: Path) -> Path:
    """Fill up a disk with a file."""
    filling = disk / "filling"
    with contextlib.suppress(OSError), open(filling, "wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    assert shutil.disk_usage(disk).free == 0
    return filling


def saves_again(run: Victim) -> None:
    """Wait for two saves: the first may have begun before."""
    for _ in range(2):
        before = run.saved()
        run.wait_until(lambda before=before: run.latest.is_file() and run.saved() > before)


@pytest.mark.slow
def test_a_disk_that_fills_up_loses_no_step_and_no_row(
    disk: tuple[Path, list[str]], victim: Runs, ended_alike: Check, tmp_path: Path
) -> None:
    place, launcher = disk
    run = victim(place, WORDS, launcher=launcher)
    run.words_said = tmp_path / "said"
    run.begin()
    filling, before = fill(place), run.saved()
    run.wait_for_saying(GOES_ON)
    run.wait_for_saying("could not write checkpoints/a/log.jsonl")
    assert run.saved() >= before
    filling.unlink()
    saves_again(run)
    run.stop()
    run.check()
    ended_alike(run, WORDS)


@pytest.mark.slow
def test_a_disk_that_is_full_at_the_end_sends_the_last_state_elsewhere(
    disk: tuple[Path, list[str]], victim: Runs, spare: Path, tmp_path: Path
) -> None:
    place, launcher = disk
    run = victim(place, WORDS, launcher=launcher, TMPDIR=str(spare))
    run.words_said = tmp_path / "said"
    run.begin()
    filling = fill(place)
    run.wait_for_saying(GOES_ON)
    assert run.process is not None
    run.process.terminate()
    assert run.end() == 2
    (rescued,) = spare.glob("a-*/latest.pt")
    assert f"the last state is in {rescued}: when there is room move it to checkpoints/a/latest.pt" in run.said
    step = checkpoint.load(rescued)["step"]
    assert step > run.saved()
    filling.unlink()
    shutil.move(rescued, run.latest)
    run.start("--max_epoch=100000")
    run.wait_until(lambda: run.saved() > step)
    run.stop()
    assert f"going on from step {step}," in run.said
    assert "Traceback" not in run.said


@pytest.mark.torture
def test_a_disk_without_room_for_the_faces_is_said_and_left_as_it_was(
    disk: tuple[Path, list[str]], victim: Runs, tmp_path: Path
) -> None:
    place, launcher = disk
    run = victim(place, WORDS, launcher=launcher)
    run.words_said = tmp_path / "said"
    fill(place)
    before = sorted(path for path in place.rglob("*") if path.is_file())
    run.start("--max_epoch=1")
    assert run.end() == 2
    assert "0 MB free on the disk of data/.packs" in run.said
    assert "Traceback" not in run.said
    assert sorted(path for path in place.rglob("*") if path.is_file()) == before


@pytest.mark.slow
def test_a_folder_that_nobody_may_write_for_a_while_loses_nothing(victim: Runs, ended_alike: Check) -> None:
    launcher = ["setpriv", "--bounding-set=-dac_override", "--inh-caps=-dac_override"] if os.geteuid() == 0 else []
    run = victim("forbidden", WORDS, launcher=launcher)
    run.begin()
    run.run.chmod(0o555)
    run.wait_for_saying(GOES_ON)
    run.run.chmod(0o755)
    saves_again(run)
    run.kill()
    ended_alike(run, WORDS)


@pytest.mark.torture
def test_checkpoints_that_are_deleted_or_cut_are_written_again(victim: Runs, ended_alike: Check) -> None:
    run = victim("cut", WORDS)
    run.begin()
    run.latest.unlink()
    run.wait_until(run.latest.exists)
    os.truncate(run.latest, run.latest.stat().st_size // 2)
    with pytest.raises(CheckpointError, match="damaged"):
        run.saved()
    cut = run.latest.stat().st_ino
    run.wait_until(lambda: run.latest.stat().st_ino != cut)
    run.kill()
    ended_alike(run, WORDS)


@pytest.mark.torture
def test_a_run_whose_folder_is_deleted_is_saved_again(victim: Runs) -> None:
    run = victim("deleted", WORDS)
    run.begin()
    shutil.rmtree(run.run)
    saves_again(run)
    run.stop()
    assert "Traceback" not in run.said


@pytest.mark.torture
def test_a_pack_that_is_deleted_under_a_run_is_still_read_and_made_again(victim: Runs, ended_alike: Check) -> None:
    run = victim("unpacked", WORDS)
    run.begin()
    shutil.rmtree(run.pack)
    saves_again(run)
    run.kill()
    ended_alike(run, WORDS)


@pytest.mark.parametrize("cut", [True, pytest.param(False, marks=pytest.mark.torture)])
def test_a_pack_that_is_changed_under_a_run_ends_it_at_its_last_save(
    victim: Runs, ended_alike: Check, cut: bool
) -> None:
    run = victim("changed", WORDS)
    run.begin()
    faces = run.pack / "faces.npy"
    if cut:
        os.truncate(faces, 5000)
    else:
        with open(faces, "r+b") as file:
            file.seek(5000)
            file.write(bytes(100_000))
    assert run.end() == 2
    assert "was truncated or modified since it was packed" in run.said.splitlines()[-1]
    shutil.rmtree(run.pack)
    ended_alike(run, WORDS)


@pytest.mark.slow
def test_a_clock_that_is_set_back_changes_nothing(victim: Runs, tmp_path: Path, ended_alike: Check) -> None:
    (library,) = Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")
    clock = tmp_path / "clock"
    clock.write_text("+0")
    faked = {"LD_PRELOAD": str(library), "FAKETIME_TIMESTAMP_FILE": str(clock), "FAKETIME_NO_CACHE": "1"}
    run = victim("backwards", WORDS, FAKETIME_DONT_FAKE_MONOTONIC="1", **faked)
    run.begin()
    clock.write_text("-400d")
    saves_again(run)
    run.kill()
    run.begin()  # its faces and checkpoints are of the future now
    run.stop()
    seconds = [row["seconds"] for row in run.rows()]
    assert seconds == sorted(seconds)
    assert 0 < seconds[-1] < 600
    clock.write_text("+0")
    ended_alike(run, WORDS)


@pytest.mark.torture
def test_a_run_that_sleeps_does_not_count_the_time(victim: Runs, ended_alike: Check) -> None:
    run = victim("asleep", WORDS)
    run.begin()
    assert run.process is not None
    before = run.rows()[-1]["seconds"]
    run.process.send_signal(signal.SIGSTOP)
    time.sleep(120)
    run.process.send_signal(signal.SIGCONT)
    run.wait_for_saying("the computer probably slept; not counted")
    saves_again(run)
    run.stop()
    assert run.rows()[-1]["seconds"] < before + 60
    ended_alike(run, WORDS)


def test_a_terminal_that_closes_ends_the_run_after_a_save(victim: Runs) -> None:
    run, (ours, its) = victim("hung-up", WORDS), pty.openpty()
    run.start("--max_epoch=100000", terminal=its)
    os.close(its)
    os.set_blocking(ours, False)

    def saved() -> int:
        with contextlib.suppress(BlockingIOError):  # so much is there to read
            while os.read(ours, 4096):
                pass
        return run.saved()

    run.wait_until(saved)
    os.close(ours)
    assert run.end() == 0
    assert run.saved() == run.row() > 0


@pytest.mark.torture
def test_a_run_that_is_hung_up_ends_after_a_save(victim: Runs, ended_alike: Check) -> None:
    run = victim("hung-up", WORDS)
    run.begin()
    assert run.process is not None
    run.process.send_signal(signal.SIGHUP)
    assert run.end() == 0
    assert run.saved() == run.row()
    ended_alike(run, WORDS)


@pytest.mark.torture
def test_a_run_that_gets_no_more_memory_says_so_and_goes_on_later(victim: Runs) -> None:
    run = victim("poor", WORDS, saves=0.0)  # at once: the first steps need more memory than it has, later ones do not
    run.begin()
    assert run.process is not None
    pages = int(Path(f"/proc/{run.process.pid}/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() // 2
    resource.prlimit(run.process.pid, resource.RLIMIT_AS, (limit, limit))
    assert run.end() == 2
    assert "out of memory on CPU" in run.said.splitlines()[-1]
    before = run.saved()
    run.begin()
    run.stop()
    assert f"going on from step {before}," in run.said
    assert "Traceback" not in run.said
