"""What the tests of kills and of faults share."""

from __future__ import annotations

import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

if sys.platform == "linux":
    from victims import OWNED, Victim, without_clocks
else:
    collect_ignore_glob = ["*.py"]  # inotify tells of writing on Linux alone, as /proc does of processes


@pytest.fixture(scope="module")
def faces(tmp_path_factory: pytest.TempPathFactory, make_faces: Callable[..., list[Path]]) -> Path:
    """Faces with classes: 75 make an epoch of batches of 16 end within a step."""
    folder = tmp_path_factory.mktemp("faces")
    names = [path.name for path in make_faces(folder, 75, size=32)]
    rows = [f"{name},{'even' if i % 2 == 0 else 'odd'}" for i, name in enumerate(names)]
    (folder / "labels.csv").write_text("\n".join(["file,kind", *rows]) + "\n")
    return folder


@pytest.fixture
def victim(tmp_path: Path, faces: Path) -> Iterator[Callable[..., Victim]]:
    """Make runs on these faces in folders of their own; whatever still runs in the end is killed.

    Args of the returned function:
        folder: name of the folder, or an absolute path.
        words: options.
        saves: seconds between saves.
        processes: how many train it.
        more: what it is started by, and environment variables.
    """
    victims = list[Victim]()

    def make(folder: str | Path, words: Sequence[str], saves: float = 0.5, processes: int = 1, **more: Any) -> Victim:
        victims.append(Victim(tmp_path / folder, [*words, f"--data_path={faces}"], saves, processes, **more))
        return victims[-1]

    yield make
    for each in victims:
        each.kill()


@pytest.fixture
def ended_alike(
    victim: Callable[..., Victim],
    differences: Callable[[Path, Path], list[str]],
    run_here: Callable[..., subprocess.CompletedProcess[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., None]:
    """Let a run train on to an end, and see that a run that was left alone ends with the same rows and checkpoints.

    One that is trained by one process is left alone in this one, without the seconds that torch takes to load.

    Args of the returned function:
        run: the run.
        words: its options.
        processes: how many train it.
    """

    def check(run: Victim, words: Sequence[str], processes: int = 1) -> None:
        epochs = run.saved() * 16 // 75 + 2
        run.finish(epochs)
        calm = victim("calm", words, saves=1e9, processes=processes)
        if processes > 1:
            calm.finish(epochs)
        else:
            for owner, name in OWNED:
                monkeypatch.setattr(owner, name, getattr(owner, name))  # what the script does is undone in the end
            runpy.run_path(str(calm.cwd / "often.py"))
            left_alone = run_here("train.py", *calm.words, f"--max_epoch={epochs}", cwd=calm.cwd)
            assert left_alone.returncode == 0, left_alone.stderr

        assert without_clocks(run.rows()) == without_clocks(calm.rows())
        assert [row["step"] for row in calm.rows()] == list(range(1, calm.saved() + 1))
        assert sorted(path.name for path in run.run.glob(".*")) == [".lock"]
        files = sorted(path.name for path in calm.run.glob("*.pt"))
        assert sorted(path.name for path in run.run.glob("*.pt")) == files
        assert [d for file in files for d in differences(calm.run / file, run.run / file)] == []
        assert "Traceback" not in run.said

    return check
