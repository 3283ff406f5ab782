"""Generators as folders for the Hugging Face hub: read again to the bit, and errors in one line."""

import http.server
import json
import threading
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import torch

from config import CheckpointError, ConfigError, needing
from export import ExportConfig
from gan import hub
from gan.quality import sampling

CPU = torch.device("cpu")

pytest.importorskip("safetensors")


@pytest.fixture
def exported(run_here: Callable[..., CompletedProcess[str]], knowing_checkpoint: Path, tmp_path: Path) -> Path:
    result = run_here("export.py", "--to=safetensors", f"--checkpoint={knowing_checkpoint}", "--out=mine")
    assert result.returncode == 0, result.stderr
    assert "generate.py --checkpoint=mine" in result.stdout
    return tmp_path / "mine"


def test_a_folder_draws_what_its_checkpoint_draws(
    exported: Path, knowing_checkpoint: Path, run_here: Callable[..., CompletedProcess[str]], tmp_path: Path
) -> None:
    assert {path.name for path in exported.iterdir()} == {"model.safetensors", "config.json", "README.md"}
    assert "- hair: blue 2, red 2" in (exported / "README.md").read_text()
    grids = []
    for checkpoint in (exported, knowing_checkpoint):
        result = run_here("generate.py", f"--checkpoint={checkpoint}", "--nogen=9", "--class=hair:red", "--nogpu")
        assert result.returncode == 0, result.stderr
        grids.append((tmp_path / "result.png").read_bytes())
    assert grids[0] == grids[1]


@pytest.mark.parametrize("fake", ["mine", "mine/model.safetensors"])
def test_a_folder_is_measured_as_a_generator(
    fake: str,
    exported: Path,
    run_here: Callable[..., CompletedProcess[str]],
    make_faces: Callable[..., list[Path]],
    tmp_path: Path,
) -> None:
    make_faces(tmp_path / "faces", 100, size=32)
    result = run_here("evaluate.py", f"--fake={fake}", "--real=faces", "--n=50", "--nogpu", "--features=faces")
    assert result.returncode == 0, result.stderr
    assert f"50 samples of {fake}, 0 images seen" in result.stdout
    run = json.loads((tmp_path / "evaluation.json").read_text()).get("run")
    assert run == ([] if fake == "mine" else None)  # it has no checkpoints
    result = run_here("train.py", "--init=mine", "--data_path=faces", "--nogpu")
    assert result.stderr.startswith("train.py: mine: an exported generator has no discriminator to train with; give")


def test_a_card_that_was_completed_stays_and_other_files_are_not_overwritten(
    exported: Path, knowing_checkpoint: Path, run_here: Callable[..., CompletedProcess[str]], tmp_path: Path
) -> None:
    again = ("export.py", "--to=safetensors", f"--checkpoint={knowing_checkpoint}")
    assert "is kept" not in run_here(*again, "--out=mine").stdout
    (exported / "README.md").write_text("mine")
    result = run_here(*again, "--out=mine")
    assert result.returncode == 0
    assert "mine: README.md was there and is kept, but it does not name this generator, " in result.stdout
    assert (exported / "README.md").read_text() == "mine"
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty/.model.safetensors.1-2.safetensors").touch()  # of an export that was killed
    assert run_here(*again, "--out=empty").returncode == 0
    (tmp_path / "run").mkdir()
    (tmp_path / "run/config.json").write_text("{}")
    result = run_here(*again, "--out=run")
    assert (result.returncode, (tmp_path / "run/config.json").read_text()) == (2, "{}")
    assert "run has other files; name a new folder" in result.stderr
    result = run_here(*again, "--out=knowing.pt/hub")
    assert result.returncode == 2
    assert result.stderr == "export.py: --out: Not a directory; give another path; got 'knowing.pt/hub'\n"


def test_choosing_by_a_discriminator_says_what_is_missing(exported: Path) -> None:
    sampler = sampling.load(exported, CPU)
    with pytest.raises(ConfigError, match="has no discriminator to choose by"):
        sampler.best(range(4), 1)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", b"{"),
        ("config.json", b"[]"),
        ("config.json", b"[" * 100_000),
        ("config.json", b'{"model": {}, "images_seen": Infinity}'),
        (
            "config.json",
            b'{"model": {"vocabulary": [["hair", "red"]]}, "images_seen": 0, "classes": {"rows": [[1e30]]}}',
        ),
        (
            "config.json",
            b'{"model": {"vocabulary": [["hair"]]}, "images_seen": 0, "classes": {"rows": [[%d]]}}' % 10**30,
        ),
        ("config.json", b'{"model": {}, "images_seen": 0}'),
        ("config.json", None),
        ("model.safetensors", b"\xff" * 64),
        ("model.safetensors", b""),
    ],
)
def test_a_damaged_folder_is_one_line(exported: Path, name: str, content: bytes | None) -> None:
    if content is None:
        (exported / name).unlink()
    else:
        (exported / name).write_bytes(content)
    with pytest.raises(CheckpointError) as refused:
        sampling.load(exported, CPU)
    assert "\n" not in str(refused.value)


def test_an_upload_is_asked_for_and_a_refusal_is_said(
    exported: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("huggingface_hub")
    asked: list[tuple[str, dict[str, object], str | None]] = []

    class Hub(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            asked.append((self.path, json.loads(body), self.headers["Authorization"]))
            self.send_response(403)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None: ...

    server = http.server.HTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("HF_TOKEN", "hf_test")
    try:
        with pytest.raises(ConfigError, match=r"--push: the hub did not take 'me/faces' .*; the folder .* is whole"):
            hub.push(exported, "me/faces", f"http://127.0.0.1:{server.server_port}")
    finally:
        server.shutdown()
        server.server_close()
    with pytest.raises(ConfigError, match="--push: the hub did not take"):  # nobody answers there any more
        hub.push(exported, "me/faces", f"http://127.0.0.1:{server.server_port}")
    (path, body, token) = asked[0]
    assert path == "/api/repos/create"
    assert body["name"] == "faces"
    assert body["organization"] == "me"
    assert token == "Bearer hf_test"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"to": "html", "push": "me/faces"}, "--push uploads"),
        ({"to": "html", "out": Path("faces.onnx")}, r"ending in \.html"),
    ],
)
def test_options_that_do_not_fit_are_refused(words: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        ExportConfig(**words)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("variable", "value"), [("all_proxy", "socks://127.0.0.1:1"), ("HTTPS_PROXY", "socks5h://a:b@c:1")]
)
def test_a_proxy_that_cannot_be_used_is_named_by_its_variable(
    exported: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    pytest.importorskip("huggingface_hub")
    monkeypatch.setenv("HF_TOKEN", "hf_test")
    monkeypatch.setenv(variable, value)
    with pytest.raises(
        ConfigError, match=f"the variable {variable} names a SOCKS proxy.*unset it, and set https_proxy="
    ):
        hub.push(exported, "me/faces", "http://hub.invalid")


def test_a_package_that_is_missing_is_told_from_one_that_does_not_load() -> None:
    with pytest.raises(ConfigError, match=r"--push needs the package gone; pip install"), needing("--push"):
        raise ModuleNotFoundError("No module named 'gone'", name="gone")
    with pytest.raises(ConfigError, match=r"--detect needs a package that is .* not load: libGL"), needing("--detect"):
        raise ImportError("libGL.so.1: cannot open shared object file")
