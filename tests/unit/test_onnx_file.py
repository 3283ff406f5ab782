"""ONNX files: any number of latents, truncation as an input, the same faces as PyTorch's."""

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
import pytest
import torch

from config import RELEASED
from gan.images import to_pixels
from gan.latent import latents
from gan.play import enlarging
from gan.quality import sampling
from gan.sharing import onnx_file

CPU = torch.device("cpu")

onnx, onnxruntime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")


def run(path: Path, **given: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (faces,) = session.run(None, given)
    return np.asarray(faces)


def test_the_released_generators_file_draws_what_pytorch_draws(
    run_here: Callable[..., CompletedProcess[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_file, "CHECKED", 8)  # for time; here 64 are compared
    result = run_here("export.py", "--to=onnx", "--out=made/faces.onnx")
    assert result.returncode == 0, result.stderr
    assert "checked; numbers differ from PyTorch's by" in result.stdout
    assert result.stderr == ""
    made = onnx.load(tmp_path / "made/faces.onnx")
    assert (made.ir_version, [one.version for one in made.opset_import if not one.domain]) == (8, [18])
    sampler, z = sampling.load(RELEASED, CPU), latents(range(64), 100)
    codes = sampler.codes(range(64))
    for truncation in (1.0, 0.6):
        with torch.no_grad():
            expected = sampler.generator(z * truncation, codes).numpy()
        given = {"z": z.numpy(), "truncation": np.array(truncation, np.float32), "codes": codes.numpy()}
        found = run(tmp_path / "made/faces.onnx", **given)
        assert np.abs(found - expected).max() <= 1e-4
    one = {"z": z[:1].numpy(), "truncation": np.array(1, np.float32), "codes": codes[:1].numpy()}
    assert run(tmp_path / "made/faces.onnx", **one).shape == (1, 3, 96, 96)


def test_faces_are_enlarged_where_the_enlarger_knows_them(
    run_here: Callable[..., CompletedProcess[str]],
    knowing_checkpoint: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(onnx_file, "CHECKED", 2)  # for time
    result = run_here("export.py", "--to=onnx", "--enlarge=2")
    assert result.returncode == 0, result.stderr
    sampler = sampling.load(RELEASED, CPU)
    given = {"z": latents([3], 100).numpy(), "truncation": np.array(1, np.float32), "codes": sampler.codes([3]).numpy()}
    found = to_pixels(torch.from_numpy(run(tmp_path / "faces.onnx", **given)))
    (expected,) = enlarging.draw(sampler, sampler.latents([3]), 2)
    # The program enlarges faces that were rounded to 8 bits.
    assert np.abs(found.astype(int) - expected).mean() < 1
    refused = run_here("export.py", "--to=onnx", "--enlarge=4", f"--checkpoint={knowing_checkpoint}")
    assert refused.returncode == 2
    assert "--enlarge: the enlarger knows faces of 48 to 256 pixels; these have 32; leave it out" in refused.stderr
    assert "--enlarge goes with --to=onnx" in run_here("export.py", "--enlarge=4").stderr


def test_a_file_that_draws_other_faces_does_not_replace_a_good_one(
    run_here: Callable[..., CompletedProcess[str]],
    knowing_checkpoint: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "faces.onnx").write_bytes(b"good")
    monkeypatch.setattr(onnx_file, "FARTHEST", -1.0)  # so that no face is near enough
    result = run_here("export.py", "--to=onnx", f"--checkpoint={knowing_checkpoint}")
    assert result.returncode == 2
    assert "no file was written" in result.stderr
    assert (tmp_path / "faces.onnx").read_bytes() == b"good"
    assert not list(tmp_path.glob(".faces*"))


def test_classes_are_an_input(
    run_here: Callable[..., CompletedProcess[str]], knowing_checkpoint: Path, tmp_path: Path
) -> None:
    result = run_here("export.py", "--to=onnx", f"--checkpoint={knowing_checkpoint}")
    assert result.returncode == 0, result.stderr
    sampler, z = sampling.load(knowing_checkpoint, CPU), latents(range(5), 20)
    codes = torch.tensor([[1, 1], [1, 2], [2, 1], [2, 2], [0, 0]])
    with torch.no_grad():
        expected = sampler.generator(z, codes).numpy()
    found = run(tmp_path / "faces.onnx", z=z.numpy(), truncation=np.array(1, np.float32), codes=codes.numpy())
    assert np.abs(found - expected).max() <= 1e-4
    known = {one.key: one.value for one in onnx.load(tmp_path / "faces.onnx").metadata_props}
    assert known["vocabulary"] == '[["hair", "blue", "red"], ["mood", "calm", "wild"]]'
    assert known["digest"] == sampler.digest
    assert json.loads(known["rows"]) == sampler.classes.rows.tolist()
    assert json.loads(known["counts"]) == sampler.classes.counts.tolist()
