"""What `make` would install: less for the demo than for the tests, and a torch that suits the machine."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
pytestmark = pytest.mark.skipif(
    shutil.which("make") is None or sys.platform != "linux" or Path("/proc/driver/nvidia").exists(),
    reason="needs make, on Linux without an NVIDIA driver",
)


@pytest.fixture
def would_run(tmp_path: Path):
    """Return what `make` would run, in a folder with these stamps, where only these tools are installed besides."""

    def run(words: str, stamps: str = "", tools: str = "") -> str:
        for name in ("Makefile", "requirements.lock", *(path.name for path in ROOT.glob("requirements*.txt"))):
            shutil.copy(ROOT / name, tmp_path)
        bin_ = tmp_path / "bin"
        bin_.mkdir()
        for name in ("uname", "sh", "date", "grep", "awk"):
            (bin_ / name).symlink_to(shutil.which(name) or name)
        for name in tools.split():
            (bin_ / name).write_text("#!/bin/sh\n")
            (bin_ / name).chmod(0o755)
        for name in stamps.split():
            (tmp_path / ".venv" / "bin").mkdir(parents=True, exist_ok=True)
            (tmp_path / ".venv" / "bin" / "python").unlink(missing_ok=True)
            (tmp_path / ".venv" / "bin" / "python").symlink_to(sys.executable)
            (tmp_path / ".venv" / name).touch()
        clean = {
            name: value for name, value in os.environ.items() if name not in ("TORCH", "PIP_INDEX_URL", "MAKEFLAGS")
        }
        return subprocess.run(
            [shutil.which("make") or "make", "-n", f"PYTHON={sys.executable}", *words.split()],
            cwd=tmp_path,
            env={**clean, "PATH": str(bin_)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    return run


@pytest.mark.parametrize(
    ("words", "stamps", "tools", "installs", "build"),
    [
        ("demo", "", "", "requirements.txt", "cpu"),
        ("demo", "", "nvidia-smi", "requirements.txt", None),
        ("demo TORCH=", "", "", "requirements.txt", None),
        ("demo LOCKED=1", "", "", "requirements.lock", None),
        ("demo", f".light-{VERSION}", "", None, None),
        ("demo", f".installed-{VERSION}", "", None, None),
        ("demo", f".installed-{VERSION}-locked", "", None, None),
        ("test", "", "", "requirements-dev.txt", None),
        ("test", f".light-{VERSION}", "", "requirements-dev.txt", None),
        ("setup TORCH=cu126", "", "uv", "requirements-dev.txt", "cu126"),
    ],
)
def test_the_demo_installs_what_it_needs_and_tests_the_rest(
    would_run, words: str, stamps: str, tools: str, installs: str | None, build: str | None
) -> None:
    text = would_run(words, stamps, tools)
    files = [line.split()[-1] for line in text.splitlines() if " --no-build-isolation " in line]
    assert files == ([installs] if installs else [])
    assert ("download.pytorch.org" in text) == (build is not None)
    if build is not None:
        assert "grep ^torch requirements.txt | " in text
        assert f"--index-url https://download.pytorch.org/whl/{build} " in text
    assert ("There is no NVIDIA driver" in text) == (build == "cpu")
    assert ('/uv" pip install' in text) == ("uv" in tools)
