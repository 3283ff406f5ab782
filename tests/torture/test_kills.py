"""Runs that are killed by kill -9 again and again, at random moments and while they write; nothing saved may be lost.

In full, with marker `torture`, every run of RUNS is killed twenty times; otherwise one of them a few times.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

import pytest
from machine import FAST
from victims import SMALL, Victim

MEASURED = "--eval_images=480"  # writes best.pt whenever a measurement is the best so far
RUNS = {
    "default": [*SMALL, f"--precision={FAST}", "--noclasses", "--whole=1", MEASURED],
    "fine": [*SMALL, "--precision=fp32", "--noclasses", "--fine", "--save_every=3"],
    "book": [*SMALL, "--preset=book", "--precision=fp32", "--noclasses"],
    "book2": [*SMALL, "--preset=book2", "--precision=fp32", "--noclasses", MEASURED],
    "wgan-gp": [*SMALL, "--preset=wgan-gp", "--precision=fp32", "--noclasses"],
    "resnet": [*SMALL, "--arch=resnet", "--noprojected", f"--precision={FAST}", "--noclasses"],
    "grey": [*SMALL, "--channels=1", "--noprojected", "--precision=fp32", "--noclasses", "--save_every=2"],
    "classes": [*SMALL, "--noprojected", f"--precision={FAST}", MEASURED],
    "rarely": [*SMALL, "--noprojected", f"--precision={FAST}", "--noclasses", "--g_every=2", MEASURED],
    "ranks": [*SMALL, "--noprojected", "--precision=fp32", "--noclasses"],  # two processes
}
AIMS = {"latest": ".latest.pt.", "best": ".best.pt.", "log": "log.jsonl"}  # how the names of what is written begin


def strike(run: Victim, aim: str) -> bool:
    """Start a run, and once it has saved kill it at a random moment, or while it writes what `aim` names.

    Returns:
        True where the kill counts: at a random moment if steps were lost since the last save, else if it came while
        the run wrote.
    """
    run.begin()
    hit = True
    if aim == "moment":
        time.sleep(run.rng.uniform(0, 1))
    else:
        number = run.rng.randrange(1 if aim == "log" else 12)
        hit = run.wait_for_writing(AIMS[aim], number)
    assert run.process is not None
    assert run.process.poll() is None, run.said[-3000:]
    run.kill()
    run.check()
    return run.row() > run.saved() if aim == "moment" else hit


def plan(name: str, kills: int) -> Counter[str]:
    """How many kills must count of each aim: a third is aimed."""
    aimed = kills - 2 * kills // 3
    best = aimed // 2 if MEASURED in RUNS[name] else 0
    log = (aimed - best + 1) // 2
    return Counter(moment=kills - aimed, best=best, log=log, latest=aimed - best - log)


@pytest.mark.parametrize(
    ("name", "kills"),
    [("default", 4), *(pytest.param(name, 20, marks=pytest.mark.torture, id=f"all-{name}") for name in RUNS)],
)
def test_a_run_killed_again_and_again_ends_bit_for_bit_like_one_that_was_not(
    name: str, kills: int, victim: Callable[..., Victim], ended_alike: Callable[..., None]
) -> None:
    processes = 2 if name == "ranks" else 1
    run, wanted, counted, tries = victim("struck", RUNS[name], processes=processes), plan(name, kills), Counter(), 0
    while open_aims := [aim for aim in wanted for _ in range(wanted[aim] - counted[aim])]:
        aim, tries = run.rng.choice(open_aims), tries + 1
        assert tries <= 6 * kills, f"of {wanted} only {counted} counted"
        counted[aim] += strike(run, aim)

    assert run.said.count("going on from step") == tries - 1
    ended_alike(run, RUNS[name], processes)
    print(f"{name}: {tries} kills, of which {sum(counted.values())} counted: {dict(counted)}")
