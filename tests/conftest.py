"""What tests of every kind need: running an entry point as a user does, and a folder of synthetic faces."""

import dataclasses
import functools
import importlib.util
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy
import platformdirs
import pytest
from PIL import Image

from config import ModelConfig, TrainConfig
from gan import npm
from gan.command_line import command_line
from gan.data import synthetic
from gan.watching import visdom_assets

ROOT = Path(__file__).resolve().parents[1]
LONG = {"test_directions.py", "test_train.py"}  # those of the unit tests that take longest
FEW_LATENTS = 16  # for the averaged generator's statistics, of which there are four batches

os.environ["ANIMEGAN_LANG"] = "en"  # whatever the developer speaks
os.environ.setdefault("OMP_NUM_THREADS", "1")  # the tests' networks are small, and run side by side
os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # also where a test imports onnxruntime first
for _name in ("no_proxy", "NO_PROXY"):  # servers of this machine are asked directly, whatever proxy it has
    os.environ[_name] = ",".join(filter(None, [os.environ.get(_name), "127.0.0.1,localhost"]))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the quick files last, so that the processes that run them end together."""
    items.sort(key=lambda item: item.path.parent.name == "unit" and item.path.name not in LONG)


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    """Begin each test with the same random numbers, whatever ran before it in this process.

    Numbers too small to matter are what they are again, after each test that has set up a device.
    """
    random.seed(0)
    numpy.random.seed(0)
    if (torch := sys.modules.get("torch")) is not None:  # else the test has no use for it
        torch.manual_seed(0)
        torch.set_flush_denormal(False)  # a module's fixture may have trained
    yield
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_flush_denormal(False)


@pytest.fixture(scope="module")
def patient() -> Iterator[None]:
    """Give a visdom server minutes to start and to answer, and a page to send the last of it."""
    from gan.watching import visdom_page

    with pytest.MonkeyPatch.context() as change:
        change.setattr(visdom_page, "STARTING", 120.0)
        change.setattr(visdom_page, "TIMEOUT", 60.0)
        change.setattr(visdom_page, "CLOSING", 120.0)
        yield


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
        python: another interpreter.
    """

    def run(
        script: str | Path,
        *words: str | Path,
        cwd: Path = tmp_path,
        timeout: float = 300,
        env: dict[str, str] | None = None,
        python: str = sys.executable,
    ) -> subprocess.CompletedProcess[str]:
        clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return subprocess.run(
            [python, str(ROOT / script), *map(str, words)],
            cwd=cwd,
            env={**clean, "PYTHONIOENCODING": "utf-8", **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            timeout=timeout,
            check=False,
        )

    return run


@functools.cache
def found_once(measure: Callable[[], bool]) -> bool:
    """What `measure` finds of this machine, once for many runs in one process."""
    return measure()


@pytest.fixture
def run_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run an entry point as `run_command` does, but in this process: without the seconds that torch takes to load.

    The curves in report.html and evaluation.png are not plotted unless asked for (`plotted=True`), and the averaged
    generator's statistics are of fewer samples: together they are half of a small run.
    """

    def run(
        script: str, *words: str | Path, cwd: Path = tmp_path, plotted: bool = False
    ) -> subprocess.CompletedProcess[str]:
        import evaluate
        import export
        import generate
        import prepare
        import train
        from gan import device
        from gan.data import cleaning
        from gan.quality import report
        from gan.training import between
        from gan.watching import run_report

        monkeypatch.chdir(cwd)
        monkeypatch.setattr(device, "_bf16_is_faster", functools.partial(found_once, device._bf16_is_faster))
        monkeypatch.setattr(between, "STATISTICS_BATCH", FEW_LATENTS)
        if not plotted:
            monkeypatch.setattr(run_report, "_drawing", lambda draw: b"")
            monkeypatch.setattr(report, "_fill", lambda *_: None)
        monkeypatch.setattr(sys, "argv", [script, *map(str, words)])
        code = 0
        try:
            if script == "train.py":
                command_line(TrainConfig, train.main)
            elif script == "evaluate.py":
                command_line(evaluate.EvaluateConfig, evaluate.main)
            elif script == "prepare.py":
                command_line(cleaning.PrepareConfig, prepare.main)
            elif script == "export.py":
                command_line(export.ExportConfig, export.main)
            else:
                command_line(generate.GenerateConfig, generate.main)
        except SystemExit as end:
            code = int(end.code or 0)
        return subprocess.CompletedProcess([script, *words], code, *capsys.readouterr())

    return run


@pytest.fixture(scope="session")
def write_knowing() -> Callable[..., None]:
    """Write the checkpoint of a small generator that knows classes: `write_knowing(path, seed=0)`.

    More keywords change its networks: `vocabulary=()`, `channels=1`.
    """
    import torch

    from gan import checkpoint
    from gan.classes import Classes
    from gan.training import ema
    from model import Discriminator, Generator

    kinds = (("hair", "blue", "red"), ("mood", "calm", "wild"))
    knowing = ModelConfig(arch="dcgan", image_size=32, nz=20, ngf=8, ndf=8, vocabulary=kinds)

    def write(path: Path, seed: int = 0, **changes: Any) -> None:
        model = dataclasses.replace(knowing, **changes)
        torch.manual_seed(seed)
        generator = Generator(model)
        weights = ema.average_of(generator).state_dict()
        for name in [name for name in weights if "classes" in name]:
            weights[name][1:] = torch.randn_like(weights[name][1:])
        described = {name: getattr(model, name) for name in model.__dataclass_fields__}
        codes = numpy.array([[1, 1], [1, 2], [2, 1], [2, 2]])
        known = Classes.of(kinds, codes).content() if model.vocabulary else {}
        rest = {"discriminator": Discriminator(model).state_dict(), **known}
        path.parent.mkdir(parents=True, exist_ok=True)
        checkpoint.save(path, {"config": {}, "model": described, "step": 0, "images_seen": 0, "ema": weights, **rest})

    return write


@pytest.fixture
def knowing_checkpoint(tmp_path: Path, write_knowing: Callable[..., None]) -> Path:
    """The checkpoint of a small generator that knows classes."""
    write_knowing(tmp_path / "knowing.pt")
    return tmp_path / "knowing.pt"


@functools.cache
def drawn_face(face: int, size: int) -> Image.Image:
    """A synthetic face, for as many tests as want it."""
    return Image.fromarray(synthetic.draw(face, size)[0])


@pytest.fixture(scope="session")
def make_faces() -> Callable[..., list[Path]]:
    """Write synthetic faces into a folder.

    Example: `make_faces(tmp_path / "faces", 20, size=96, seed=0, suffix=".jpg")`.
    Face i of a seed is the same whatever the number of faces; no two are alike.
    """

    def make(folder: Path, n: int, size: int = 96, seed: int = 0, suffix: str = ".jpg") -> list[Path]:
        folder.mkdir(parents=True, exist_ok=True)
        paths = [folder / f"face-{i:05d}{suffix}" for i in range(n)]
        for i, path in enumerate(paths):
            drawn_face(100_000 * seed + i, size).save(path)
        return paths

    return make


@pytest.fixture(scope="session")
def differences() -> Callable[[Path, Path], list[str]]:
    """Name what differs by a bit or more in what training goes on from: `differences(one, other)`, two checkpoints."""
    import torch

    from gan import checkpoint

    parts = "generator discriminator ema g_optimizer d_optimizer step images_seen retries".split()

    def between(a: Any, b: Any, where: str) -> list[str]:
        if isinstance(a, torch.Tensor):
            return [] if torch.equal(a, b) else [where]
        if isinstance(a, dict):
            assert a.keys() == b.keys()
            return [d for key in a for d in between(a[key], b[key], f"{where}/{key}")]
        if isinstance(a, list | tuple):
            assert len(a) == len(b)
            return [d for i, (x, y) in enumerate(zip(a, b, strict=True)) for d in between(x, y, f"{where}/{i}")]
        return [] if a == b else [where]

    def of(one: Path, other: Path) -> list[str]:
        a, b = checkpoint.load(one), checkpoint.load(other)
        return [d for part in parts for d in between(a[part], b[part], part)]

    return of


@pytest.fixture(scope="session")
def lacking() -> Callable[[str], NoReturn]:
    """Skip a test for what this machine lacks; where nothing may be lacking, as on .ci/run, fail it."""
    return pytest.fail if os.environ.get("REQUIRE_ALL") else pytest.skip


@pytest.fixture(scope="session")
def page_files(lacking: Callable[[str], NoReturn], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder with the files of visdom's page; what needs it is skipped where they are not kept.

    It is a copy, in a cache folder that lasts as long as the tests: what they show is not for the user's visdom.
    """
    visdom = importlib.util.find_spec("visdom")
    assert visdom is not None
    assert visdom.origin is not None
    kept = visdom_assets.folder()
    if npm.missing(visdom_assets.ASSETS, kept):
        lacking("the files of visdom's page are not kept on this machine; make vis-assets fetches them")
    fonts = platformdirs.user_cache_path("matplotlib", appauthor=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        if "MPLCONFIGDIR" not in os.environ and fonts.is_dir():  # it looks for fonts again without what it had found
            patch.setenv("MPLCONFIGDIR", str(fonts))
        if visdom_assets.folder() != kept:  # where the cache is not chosen by that variable
            shutil.copytree(kept, visdom_assets.folder())
        static = visdom_assets.page(Path(visdom.origin).parent / "static")
        assert static is not None
        yield static
