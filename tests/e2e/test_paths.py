"""Every option that takes a path answers every path that cannot be used in one line; the table is the configs' own."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import app
import evaluate
import export
import generate
import prepare
import train
from config import TrainConfig
from gan import device
from gan.command_line import command_line, types_of
from gan.data.cleaning import PrepareConfig
from gan.studio.faces import Studio

BOOK = Path(__file__).resolve().parents[1] / "formats/book-200/netg.pth"
SMALL = "--nogpu --noprojected --image_size=32 --ngf=4 --ndf=4 --batch_size=4 --precision=fp32 --max_epoch=1"
SMALL += " --eval_images=0 --plot_every=0 --save_every=1000 --whole=0"
WORDS = {  # besides the option
    TrainConfig: f"{SMALL} --data_path=faces",
    PrepareConfig: "faces --out=clean",
    generate.GenerateConfig: "--nogpu --checkpoint=small.pt --nogen=1",
    evaluate.EvaluateConfig: "--nogpu --fake=small.pt --real=faces --features=faces",
    export.ExportConfig: "--to=safetensors --checkpoint=small.pt",
    app.StudioConfig: "--nogpu",
}
MAINS: dict[type, Callable[[Any, Mapping[str, Any]], None]] = {
    TrainConfig: train.main,
    PrepareConfig: prepare.main,
    generate.GenerateConfig: generate.main,
    evaluate.EvaluateConfig: evaluate.main,
    export.ExportConfig: export.main,
    app.StudioConfig: lambda config, typed: Studio(config.checkpoint, device.choose_device(False)) and None,
}
ALONE = {  # words instead of these
    "timelapse": "--nogpu",
    "netg_path": "--nogpu --nogen=1",
    "netd_path": f"--nogpu --nogen=1 --netg_path={BOOK}",
    "like": "--nogpu --checkpoint=small.pt",
    "invert": "--nogpu --checkpoint=small.pt",
}
TEXTS = {"resume", "features"}  # options of type str that take paths
SUFFIX = {"report": ".html", "gen_img": ".png", "like": ".png", "invert": ".png"}
NEVER = {  # paths that can serve no option
    "in a closed folder": "closed/inside",
    "below a file": "file/inside",
    "too long": "n" * 300,
    "too deep": "d/" * 2100 + "x",
    "a device": "/dev/full",
    "a pipe": "pipe",
    "a link to itself": "loop",
}
PERHAPS = {  # paths that can serve some
    "missing": "gone/gone",
    "closed": "closed",
    "a folder": "folder",
    "a file": "file",
    "a broken link": "broken",
}
OPTIONS = [
    pytest.param(config_type, name, id=f"{config_type.__name__} {name}")
    for config_type in MAINS
    for name, hint in types_of(config_type).items()
    if "Path" in str(hint) or name in TEXTS
]


@contextlib.contextmanager
def as_a_user() -> Iterator[None]:
    """Let files' permissions count even for root, by the capabilities of this thread."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    sets = (ctypes.c_uint32 * 6)()
    assert libc.capget(header, sets) == 0
    before = sets[0]
    sets[0] = before & ~0b110  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
    assert libc.capset(header, sets) == 0
    try:
        yield
    finally:
        sets[0] = before
        assert libc.capset(header, sets) == 0


@pytest.fixture(scope="module")
def stock(
    tmp_path_factory: pytest.TempPathFactory, make_faces: Callable[..., Any], write_knowing: Callable[..., None]
) -> Path:
    """Twelve faces and a generator."""
    folder = tmp_path_factory.mktemp("stock")
    make_faces(folder / "faces", 12, 32)
    write_knowing(folder / "small.pt")
    return folder


@pytest.fixture
def odd_paths(tmp_path: Path, stock: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Be in a folder with these and every kind of path that cannot be used, with each suffix."""
    shutil.copytree(stock, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    for suffix in {"", *SUFFIX.values()}:
        for name in ("closed", "folder"):
            Path(name + suffix).mkdir()
        Path(f"file{suffix}").write_text("text")
        Path(f"broken{suffix}").symlink_to("nowhere/nothing")
        Path(f"loop{suffix}").symlink_to(f"loop{suffix}")
        os.mkfifo(f"pipe{suffix}")
        Path(f"closed{suffix}").chmod(0)
    yield
    for path in tmp_path.glob("closed*"):
        path.chmod(0o700)


@pytest.mark.skipif(sys.platform != "linux", reason="it drops capabilities of Linux, and makes its devices and pipes")
@pytest.mark.parametrize(("config_type", "name"), OPTIONS)
def test_every_path_that_cannot_be_used_is_one_line(
    config_type: type, name: str, odd_paths: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(train, "run_until_stopped", lambda ready: None)
    suffix = ".png" if config_type is evaluate.EvaluateConfig and name == "report" else SUFFIX.get(name, "")
    words = ALONE.get(name, WORDS[config_type]) if config_type is generate.GenerateConfig else WORDS[config_type]
    others = [word for word in words.split() if not word.startswith(f"--{name}=")]
    given = "" if name == "sources" else f"--{name}=" + "inception:" * (name == "features")
    monkeypatch.setattr(sys, "argv", [f"{config_type.__name__}.py"])
    for what, path in (NEVER | PERHAPS).items():
        try:
            with as_a_user():
                command_line(config_type, MAINS[config_type], [f"{given}{path}{suffix * (path[0] != '/')}", *others])
            code = 0
        except SystemExit as end:
            code = end.code
        said = [line for line in capsys.readouterr().err.splitlines() if line.startswith(sys.argv[0])]
        assert code == 2 or (code == 0 and what in PERHAPS), what
        assert len(said) == bool(code), what
