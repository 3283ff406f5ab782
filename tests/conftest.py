"""What tests of every kind need: running an entry point as a user does, and a folder of drawn faces."""

import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image, ImageDraw

from config import GenerateConfig, TrainConfig
from gan.command_line import command_line

ROOT = Path(__file__).resolve().parents[1]

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the tests' networks are small, and run side by side


@pytest.fixture
def run_command(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run an entry point as a user does, in a folder of its own.

    Example: `run_command("train.py", "--resume", timeout=60)`.

    Args of the returned function:
        script: an entry point in the repository's root, or a path.
        words: its options.
        cwd: where it runs; by default the test's tmp_path.
        timeout: seconds after which it is killed and the test fails.
        env: variables to add or replace.
    """

    def run(
        script: str | Path,
        *words: str | Path,
        cwd: Path = tmp_path,
        timeout: float = 120,
        env: dict[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return subprocess.run(
            [sys.executable, str(ROOT / script), *map(str, words)],
            cwd=cwd,
            env={**clean, "PYTHONIOENCODING": "utf-8", **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            timeout=timeout,
            check=False,
        )

    return run


@pytest.fixture
def run_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run an entry point as `run_command` does, but in this process: without the seconds that torch takes to load."""

    def run(script: str, *words: str | Path, cwd: Path = tmp_path) -> subprocess.CompletedProcess[str]:
        import generate
        import train

        monkeypatch.chdir(cwd)
        monkeypatch.setattr(sys, "argv", [script, *map(str, words)])
        code = 0
        try:
            if script == "train.py":
                command_line(TrainConfig, train.main)
            else:
                command_line(GenerateConfig, generate.main)
        except SystemExit as end:
            code = int(end.code or 0)
        return subprocess.CompletedProcess([script, *words], code, *capsys.readouterr())

    return run


@pytest.fixture(scope="session")
def make_faces() -> Callable[..., list[Path]]:
    """Draw simple faces into a folder.

    Example: `make_faces(tmp_path / "faces", 20, size=96, seed=0, suffix=".jpg")`.
    Face i of a seed is the same whatever the number of faces; no two are alike.
    """

    def make(folder: Path, n: int, size: int = 96, seed: int = 0, suffix: str = ".jpg") -> list[Path]:
        folder.mkdir(parents=True, exist_ok=True)
        paths = [folder / f"face-{i:05d}{suffix}" for i in range(n)]
        for i, path in enumerate(paths):
            draw_face(size, f"{seed}/{i}").save(path)
        return paths

    return make


def draw_face(size: int, seed: str) -> Image.Image:
    """Draw hair, face, eyes and mouth as ellipses, in colours and at places that depend on the seed."""
    draws = random.Random(seed)
    dx, dy = draws.uniform(-0.08, 0.08), draws.uniform(-0.08, 0.08)
    image = Image.new("RGB", (size, size), color(draws, 120, 255))
    canvas = ImageDraw.Draw(image)

    def ellipse(x: float, y: float, rx: float, ry: float, fill: tuple[int, int, int]) -> None:
        x, y = x + dx, y + dy
        canvas.ellipse([size * (x - rx), size * (y - ry), size * (x + rx), size * (y + ry)], fill=fill)

    ellipse(0.5, 0.45, 0.42, 0.42, color(draws, 0, 255))
    ellipse(0.5, 0.58, 0.30, 0.32, (255, draws.randint(205, 235), draws.randint(170, 210)))
    iris = color(draws, 0, 200)
    for x in (0.37, 0.63):
        ellipse(x, 0.55, 0.08, 0.10, (255, 255, 255))
        ellipse(x, 0.56, 0.05, 0.08, iris)
    ellipse(0.5, 0.78, 0.06, draws.uniform(0.01, 0.04), (200, 80, 90))
    return image


def color(draws: random.Random, least: int, greatest: int) -> tuple[int, int, int]:
    return draws.randint(least, greatest), draws.randint(least, greatest), draws.randint(least, greatest)
