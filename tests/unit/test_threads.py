"""The number of threads, by what other programs leave of the processors."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import psutil
import pytest
import torch

import prepare
from config import SYNTHETIC, DataError
from gan import processors, threads
from gan.data import faces
from gan.threads import SECONDS, Threads, choose, demand


@pytest.fixture(autouse=True)
def one_number() -> Iterator[None]:
    """Leave torch the number of threads that it had."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


class Machine:
    """A machine whose other programs use as many processors as a test says."""

    def __init__(self, processors: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.processors, self.others, self.own, self.now, self.used_own = processors, 0.0, 0.0, 100.0, 0.0
        monkeypatch.setattr(threads, "time", SimpleNamespace(perf_counter=lambda: self.now))
        monkeypatch.setattr(os, "times", lambda: (self.used_own, 0.0, 0.0, 0.0, self.now))
        monkeypatch.setattr(threads, "_used", lambda: [self.busy / processors] * processors)
        self.threads = Threads(processors, list(range(processors)))

    @property
    def busy(self) -> float:
        return min(self.processors, self.others + self.own)

    def passes(self, seconds: float) -> str:
        self.now += seconds
        self.used_own += seconds * self.own
        said = list[str]()
        self.threads.adapt(said.append)
        return "".join(said)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(4, monkeypatch)


@pytest.mark.parametrize(
    ("busy", "processors", "expected"),
    [
        (0.0, 2, 2),
        (0.4, 2, 2),
        (0.6, 2, 1),
        (1.0, 2, 1),
        (2.0, 2, 1),
        (9.0, 2, 1),
        (0.1, 8, 8),
        (0.2, 8, 7),
        (1.0, 8, 7),
        (2.0, 8, 6),
        (4.0, 8, 4),
        (8.0, 8, 1),
    ],
)
def test_the_fastest_number_is_chosen(busy: float, processors: int, expected: int) -> None:
    assert choose(processors, processors, busy) == expected


def test_no_more_threads_than_the_most() -> None:
    assert choose(4, 16, 0.0) == 4
    assert choose(4, 16, 8.0) == 4  # eight processors are free
    assert choose(1, 1, 0.0) == 1


@pytest.mark.parametrize(
    ("total", "own", "running", "expected"),
    [
        (2.0, 2.0, 2, 0.0),
        (2.0, 1.0, 2, 2.0),  # each of two threads gets half a processor, as the others' two do
        (2.0, 4 / 3, 2, 1.0),
        (2.0, 1.0, 1, 1.0),  # the only thread has a processor of its own
        (2.0, 2 / 3, 1, 2.0),
        (1.3, 0.8, 2, 0.5),  # there is room: nobody waits
        (1.9, 2.0, 2, 0.0),  # clocks are not exact
    ],
)
def test_demand_is_what_others_would_use(total: float, own: float, running: int, expected: float) -> None:
    assert demand(total, own, running, 2) == pytest.approx(expected)


def test_threads_follow_what_is_free(machine: Machine) -> None:
    machine.own = 4.0
    assert machine.passes(0) == ""
    assert torch.get_num_threads() == 4
    machine.passes(1)  # the first look decides alone
    assert torch.get_num_threads() == 4

    machine.others, machine.own = 0.8, 3.2  # four threads and one program share four processors
    machine.passes(SECONDS)
    assert torch.get_num_threads() == 4  # it may be over at once
    assert machine.passes(SECONDS).startswith("other programs would keep 1.0 processors busy, and there are 4; ")
    assert torch.get_num_threads() == 3
    machine.others, machine.own = 1.0, 3.0
    assert machine.passes(SECONDS) == ""  # once

    machine.others = 0.0
    machine.passes(SECONDS)
    machine.passes(SECONDS)
    assert torch.get_num_threads() == 4


def test_a_moment_changes_nothing(machine: Machine) -> None:
    machine.own = 4.0
    machine.passes(0)
    machine.passes(1)
    for others in (2.0, 0.0, 2.0, 0.0):
        machine.others, machine.own = others, 4 - others
        machine.passes(SECONDS)
        assert torch.get_num_threads() == 4


def test_a_busy_start_is_seen_in_the_first_second(machine: Machine) -> None:
    machine.others, machine.own = 4 / 3, 8 / 3  # four threads and two programs
    machine.passes(0)
    machine.passes(0.4)
    assert torch.get_num_threads() == 2


def test_a_fixed_number_stays_and_the_user_is_told_once(machine: Machine) -> None:
    machine.others, machine.own = 2.0, 2.0
    machine.threads.fix()
    machine.passes(0)
    said = [machine.passes(SECONDS) for _ in range(4)]
    assert torch.get_num_threads() == 4
    assert [text for text in said if text] == [next(text for text in said if "OMP_NUM_THREADS=1" in text)]


def test_each_thread_of_python_gets_the_number(machine: Machine) -> None:
    machine.passes(0)
    found = list[int]()

    def work() -> None:
        torch.set_num_threads(1)
        machine.threads.adapt(None)
        found.append(torch.get_num_threads())

    one = threading.Thread(target=work)
    one.start()
    one.join()
    assert found == [4]


def numbers(code: str, **env: str) -> list[int]:
    """Run code in a fresh Python; the numbers that it prints."""
    clean = {name: value for name, value in os.environ.items() if name not in threads.SET_BY_USER}
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, env={**clean, **env}, capture_output=True, text=True, check=True
    )
    return [int(word) for word in done.stdout.split()]


def test_the_users_number_stays() -> None:
    code = (
        "import os, time, torch; torch.set_num_threads(2); os.sched_getaffinity = lambda pid: {0, 1}; "
        "os.times = lambda: (0,) * 5; from gan import threads; threads._used = lambda: [0.5, 0.5]; time.sleep(0.4); "
        "threads.adapt(); print(torch.get_num_threads())"
    )
    assert numbers(code) == [1]  # another program uses one of two processors
    assert numbers(code, OMP_NUM_THREADS="2") == [2]


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"": None}, float("inf")),
        ({"": "max 100000"}, float("inf")),
        ({"a/b": "150000 100000"}, 1.5),
        ({"a/b": "max 100000", "a": "200000 100000"}, 2.0),  # the group above counts as well
        ({"a/b": "broken"}, float("inf")),
        ({"cpu": "250000 100000"}, 2.5),  # the older form
        ({"cpu": "-1 100000"}, float("inf")),
    ],
)
def test_quota_of_a_container(
    files: dict[str, str | None], expected: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "self").write_text("0::/a/b\n")
    for name, content in files.items():
        folder = tmp_path / "cgroup" / name
        folder.mkdir(parents=True, exist_ok=True)
        if content is not None and name == "cpu":
            for file, number in zip(("quota", "period"), content.split(), strict=True):
                (folder / f"cpu.cfs_{file}_us").write_text(number + "\n")
        elif content is not None:
            (folder / "cpu.max").write_text(content + "\n")
    real: Any = Path
    fake = {"/sys/fs/cgroup": tmp_path / "cgroup", "/proc/self/cgroup": tmp_path / "self"}
    monkeypatch.setattr(processors, "Path", lambda path: fake.get(path, real(path)))
    assert processors.quota() == expected


def test_the_smallest_of_cores_affinity_and_quota_counts_for_those_that_decode_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = list[int]()
    monkeypatch.setattr(faces, "in_processes", lambda function, work, workers: asked.append(workers) or (_ for _ in ()))
    monkeypatch.setattr(
        prepare, "in_processes", lambda function, work, workers: asked.append(workers) or (_ for _ in ())
    )
    for cores, affinity, quota, expected in ((64, 64, 2.0, 2), (64, 3, 8.0, 3), (4, 64, 64.0, 4), (8, 8, 0.2, 1)):
        monkeypatch.setattr(os, "cpu_count", lambda cores=cores: cores)
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, affinity=affinity: set(range(affinity)), raising=False)
        monkeypatch.setattr(processors, "quota", lambda quota=quota: quota)
        assert processors.number() == expected
        list(prepare.spread(len, [], None, ""))
        with pytest.raises(DataError):
            faces.open_pack(SYNTHETIC, 32, tmp_path, log=lambda _: None)
    assert asked == [2, 2, 3, 3, 4, 4, 1, 1]


class Times(NamedTuple):
    """What psutil says of one processor, on Linux."""

    user: float
    nice: float
    idle: float
    iowait: float
    guest: float = 0.0  # part of user


def test_nicer_programs_take_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    times = Times(user=25.0, nice=60.0, idle=10.0, iowait=5.0, guest=20.0)
    monkeypatch.setattr(psutil, "cpu_times_percent", lambda percpu: [times])
    monkeypatch.setattr(os, "nice", lambda by: 0, raising=False)
    assert threads._used() == [pytest.approx(0.85 if sys.platform == "win32" else 0.25)]
    monkeypatch.setattr(os, "nice", lambda by: 5, raising=False)
    assert threads._used() == [pytest.approx(0.85)]


@pytest.mark.parametrize(("idle", "expected"), [(33.0, 0.25), (0.0, 1.0)])
def test_shares_of_a_part_of_a_second_are_shares(idle: float, expected: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """0.44 seconds are 44 % to psutil, not 100 %."""
    times = Times(user=44.0 - idle, nice=0.0, idle=idle, iowait=0.0)
    monkeypatch.setattr(psutil, "cpu_times_percent", lambda percpu: [times])
    assert threads._used() == [pytest.approx(expected)]
    monkeypatch.setattr(psutil, "cpu_times_percent", lambda percpu: [Times(0.0, 0.0, 0.0, 0.0)])
    assert threads._used() == [0.0]
