"""Checkpoints: the last good file survives every failure to write, and every failure to read is one plain line."""

import json
import os
import pickle
import random
import shutil
import subprocess
import sys
import textwrap
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from config import CheckpointError
from gan import checkpoint

ROOT = Path(__file__).resolve().parents[2]
CONTENT = {
    "config": {"run": None, "lr1": 3e-4, "gpu": True, "data_path": "faces"},
    "images_seen": 640,
    "step": 10,
    "ema": {"w": torch.arange(2000.0), "half": torch.ones(3, dtype=torch.float16), "n": torch.tensor(3)},
    "discriminator": {},
    "g_optimizer": {"state": {0: {"exp_avg": torch.zeros(2)}}, "param_groups": [{"betas": (0.0, 0.99), "params": [0]}]},
}


class Code:
    """Unpickling it makes a folder: the harmless stand-in of what a harmful file would do."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def flat(value: Any) -> Any:
    """Make values comparable, tensors with their type included."""
    if isinstance(value, torch.Tensor):
        return str(value.dtype), value.tolist()
    if isinstance(value, dict):
        return {k: flat(v) for k, v in value.items()}
    return [flat(v) for v in value] if isinstance(value, list | tuple) else value


def saved(path: Path, **changes: Any) -> Path:
    checkpoint.save(path, {**CONTENT, **changes})
    return path


def refusal(path: Path) -> str:
    """What is said of a file that cannot be used: one line that names it first."""
    with pytest.raises(CheckpointError) as refused:
        checkpoint.load(path)
    said = str(refused.value)
    assert said.startswith(f"{path}: ")
    assert "\n" not in said
    return said.removeprefix(f"{path}: ")


@contextmanager
def full_disk(room: int) -> Iterator[None]:
    """No file may grow beyond `room` bytes."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_everything_comes_back_as_it_was(tmp_path: Path) -> None:
    path = saved(tmp_path / "new" / "folder" / "latest.pt")
    content = checkpoint.load(path)
    assert {name: flat(content[name]) for name in CONTENT} == flat(CONTENT)
    assert os.listdir(path.parent) == ["latest.pt"]


def test_file_holds_nothing_that_torch_would_have_to_trust(tmp_path: Path) -> None:
    content = torch.load(saved(tmp_path / "a.pt"), weights_only=True)
    assert (content["program"], content["format"]) == ("animegan", checkpoint.FORMAT)


def test_saving_replaces_the_old_file(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.pt", step=1)
    saved(path, step=2)
    assert checkpoint.load(path)["step"] == 2
    assert os.listdir(tmp_path) == ["a.pt"]


@pytest.mark.parametrize("room", [0, 100, 5000, 9000])
def test_full_disk_leaves_the_old_file_and_nothing_else(tmp_path: Path, room: int) -> None:
    path = saved(tmp_path / "latest.pt", step=1)
    assert path.stat().st_size > 9000
    with full_disk(room), pytest.raises(CheckpointError) as refused:
        saved(path, step=2)
    assert str(path) in str(refused.value)
    assert "File too large" in str(refused.value)
    assert "\n" not in str(refused.value)
    assert checkpoint.load(path)["step"] == 1
    assert os.listdir(tmp_path) == ["latest.pt"]


def test_interrupted_save_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path / "latest.pt", step=1)

    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        saved(path, step=2)
    assert checkpoint.load(path)["step"] == 1
    assert os.listdir(tmp_path) == ["latest.pt"]


def test_file_that_cannot_take_its_name_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path / "latest.pt", step=1)

    def fail(*_: object) -> None:
        raise PermissionError(13, "used by another process")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(CheckpointError, match="used by another process"):
        saved(path, step=2)
    assert checkpoint.load(path)["step"] == 1
    assert os.listdir(tmp_path) == ["latest.pt"]


def test_folder_that_is_a_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "run").touch()
    with pytest.raises(CheckpointError, match="could not write"):
        saved(tmp_path / "run" / "latest.pt")


def test_what_a_killed_save_leaves_is_no_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "unlink", lambda *_, **__: None)
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        saved(tmp_path / "latest.pt")
    assert len(os.listdir(tmp_path)) == 1
    assert checkpoint.checkpoints_in(tmp_path) == []


def test_forbidden_folders_and_files_are_one_line(tmp_path: Path) -> None:
    run, closed = tmp_path / "run", tmp_path / "closed"
    saved(run / "latest.pt", step=1)
    saved(run / "secret.pt").chmod(0)
    saved(closed / "latest.pt")
    run.chmod(0o500)
    closed.chmod(0)
    program = f"""
        import json
        from pathlib import Path
        from config import CheckpointError
        from gan import checkpoint
        run, closed = Path({str(run)!r}), Path({str(closed)!r})
        said = []
        for act in (
            lambda: checkpoint.save(run / "latest.pt", {{"step": 2}}),
            lambda: checkpoint.save(closed / "latest.pt", {{}}),
            lambda: checkpoint.load(closed / "latest.pt"),
            lambda: checkpoint.load(checkpoint.find(closed, ("latest.pt",))),
            lambda: checkpoint.load(run / "secret.pt"),
        ):
            try:
                act()
                said.append("done")
            except CheckpointError as error:
                said.append(str(error))
            except OSError as error:
                said.append(repr(error))
        print(json.dumps(said))
        """
    try:
        result = without_privileges(textwrap.dedent(program))
    finally:
        run.chmod(0o700)
        closed.chmod(0o700)
    assert result.returncode == 0, result.stderr
    said = json.loads(result.stdout)
    assert not any("\n" in line for line in said)
    assert [line.startswith("could not write ") for line in said] == [True, True, False, False, False], said
    assert [str(tmp_path) in line and "Error(" not in line for line in said] == [True] * 5, said
    assert "damaged" not in said[4]
    assert os.listdir(closed) == ["latest.pt"]
    assert sorted(os.listdir(run)) == ["latest.pt", "secret.pt"]
    assert checkpoint.load(run / "latest.pt")["step"] == 1


def without_privileges(program: str) -> subprocess.CompletedProcess[str]:
    """Run Python code as someone whom permission bits hold back, which they do not root."""
    if not hasattr(os, "geteuid"):
        pytest.skip("no permission bits on this system")
    words = [sys.executable, "-c", program]
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("root is not held back by permission bits, and there is no setpriv")
        rights = "-dac_override,-dac_read_search"
        words = ["setpriv", "--bounding-set", rights, "--inh-caps", rights, *words]
    return subprocess.run(words, cwd=ROOT, capture_output=True, encoding="utf-8", timeout=300, check=False)


@pytest.mark.parametrize("part", [0, 1, 10, 100, 1000, 8000, -500, -50, -1])
def test_truncated_file_is_refused(tmp_path: Path, part: int) -> None:
    path = saved(tmp_path / "a.pt")
    path.write_bytes(path.read_bytes()[:part])
    said = refusal(path)
    assert "damaged" in said
    assert "use another file" in said


@pytest.mark.parametrize("seed", range(10))
def test_random_bytes_are_refused(tmp_path: Path, seed: int) -> None:
    draws, path = random.Random(seed), tmp_path / "a.pt"
    for _ in range(30):
        path.write_bytes(draws.randbytes(draws.choice([1, 2, 5, 20, 1000])))
        assert "not a checkpoint" in refusal(path) or "damaged" in refusal(path)


@pytest.mark.parametrize(
    "text", ["0", "R", "J1", "Xab", "hello", "<html></html>", '{"a": 1}', "\n", "version https://"]
)
def test_text_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.pt"
    path.write_text(text)
    assert "not a checkpoint" in refusal(path) or "damaged" in refusal(path)


@pytest.mark.parametrize("seed", range(4))
def test_file_with_a_changed_bit_is_refused_or_reads_the_same(tmp_path: Path, seed: int) -> None:
    path, draws = saved(tmp_path / "a.pt"), random.Random(seed)
    good = path.read_bytes()
    whole = flat(checkpoint.load(path))
    for _ in range(25):
        changed = bytearray(good)
        changed[draws.randrange(len(good))] ^= 1 << draws.randrange(8)
        path.write_bytes(changed)
        try:
            content = checkpoint.load(path)
        except CheckpointError:
            continue
        assert flat(content) == whole


@pytest.mark.parametrize(
    "foreign", [[1, 2], torch.zeros(3), {"state_dict": {}}, {"format": 1}, {"program": "animegan"}]
)
def test_file_of_another_program_is_refused(tmp_path: Path, foreign: Any) -> None:
    torch.save(foreign, tmp_path / "a.pt")
    assert refusal(tmp_path / "a.pt").startswith("not written by this program")


def test_old_format_of_torch_is_refused(tmp_path: Path) -> None:
    torch.save({"netg": torch.zeros(3)}, tmp_path / "netg.pth", _use_new_zipfile_serialization=False)
    assert "not " in refusal(tmp_path / "netg.pth")


@pytest.mark.parametrize("names", [[], ["readme.txt"], ["a/data.pkl", "a/version"]])
def test_zip_that_is_no_checkpoint_is_refused(tmp_path: Path, names: list[str]) -> None:
    with zipfile.ZipFile(tmp_path / "a.pt", "w") as file:
        for name in names:
            file.writestr(name, "xx")
    assert "use a" in refusal(tmp_path / "a.pt").lower()


def test_newer_file_asks_for_a_newer_program(tmp_path: Path) -> None:
    saved(tmp_path / "a.pt", format=checkpoint.FORMAT + 1)
    said = refusal(tmp_path / "a.pt")
    assert "newer version" in said
    assert f"format {checkpoint.FORMAT + 1}" in said
    assert "update" in said


def test_older_and_own_formats_are_read(tmp_path: Path) -> None:
    for version in range(1, checkpoint.FORMAT + 1):
        assert checkpoint.load(saved(tmp_path / "a.pt", format=version))["step"] == 10


def test_missing_entries_are_named(tmp_path: Path) -> None:
    checkpoint.save(tmp_path / "a.pt", {"config": {}, "step": 1, "ema": {}})
    assert "lacks images_seen, discriminator" in refusal(tmp_path / "a.pt")


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("protocol", [2, 4])
def test_code_in_a_file_is_refused_and_not_run(tmp_path: Path, packed: bool, protocol: int) -> None:
    path, made = tmp_path / "a.pt", tmp_path / "made"
    content = {"program": "animegan", "format": 1, **CONTENT, "config": Code(made)}
    if packed:
        torch.save(content, path, pickle_protocol=protocol)
    else:
        path.write_bytes(pickle.dumps(content["config"], protocol))
    said = refusal(path)
    assert not made.exists()
    if packed:
        assert "code" in said
        torch.load(path, weights_only=False)  # it was there
        assert made.is_dir()


def test_whole_network_in_a_file_is_refused(tmp_path: Path) -> None:
    torch.save(nn.Linear(2, 2), tmp_path / "a.pt")
    assert "objects" in refusal(tmp_path / "a.pt")


def test_missing_file_and_folder_are_told_apart_from_damage(tmp_path: Path) -> None:
    assert refusal(tmp_path / "a.pt").startswith("no such checkpoint; expected a .pt file")
    assert refusal(tmp_path / "no" / "a.pt").startswith("no such checkpoint; expected a .pt file")
    assert refusal(tmp_path).startswith("no such checkpoint; expected a .pt file")


def test_newest_usable_file_beside_a_broken_one_is_named(tmp_path: Path) -> None:
    broken = [tmp_path / "latest.pt", tmp_path / "b.pt", tmp_path / "c.pt"]
    ages = {saved(tmp_path / "old.pt"): 50, saved(tmp_path / "newer.pt"): 40}
    ages |= {path: age for age, path in enumerate(broken)}
    for path, age in ages.items():
        if path in broken:
            path.write_bytes(b"broken")
        os.utime(path, (10**9 - age, 10**9 - age))
    for path in broken:
        assert refusal(path).endswith(f"; the newest usable file beside it is {tmp_path / 'newer.pt'}")


def test_no_usable_file_is_named_where_there_is_none(tmp_path: Path) -> None:
    (tmp_path / "a.pt").write_bytes(b"broken")
    (tmp_path / "b.pt").mkdir()
    assert "newest usable" not in refusal(tmp_path / "a.pt")


def test_path_means_a_file_or_the_first_name_a_run_has(tmp_path: Path) -> None:
    names = ("best.pt", "latest.pt")
    with pytest.raises(CheckpointError, match=r"no best\.pt or latest\.pt in this folder") as refused:
        checkpoint.find(tmp_path, names)
    assert str(tmp_path) in str(refused.value)
    latest = saved(tmp_path / "latest.pt")
    assert checkpoint.find(tmp_path, names) == latest
    best = saved(tmp_path / "best.pt")
    assert checkpoint.find(tmp_path, names) == best
    assert checkpoint.find(latest, names) == latest
    assert checkpoint.find(tmp_path / "missing.pt", names) == tmp_path / "missing.pt"


def test_a_run_that_is_not_there_is_answered_with_the_one_that_may_be_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert refusal(Path("two.pt")) == (
        "no such checkpoint; expected a .pt file or the folder of a run, or released, the generator that comes "
        "with the program"
    )
    for run, time in (("two", 200), ("newest", 300)):
        os.utime(saved(Path("checkpoints") / run / "latest.pt"), (time, time))
    for path in (Path("two"), Path("two.pt"), Path("checkpoints/tow")):
        assert refusal(path).endswith("; did you mean checkpoints/two?")
    assert refusal(Path("other")).endswith("; the newest run is checkpoints/newest")
    saved(Path("checkpoints/other.pt"))  # which a run that is not there has nothing to do with
    assert refusal(Path("checkpoints/gone")).endswith("; the newest run is checkpoints/newest")
    assert refusal(Path("relesed")).endswith("; did you mean released?")
    saved(Path("checkpoints/v/latest.pt"))
    assert refusal(Path("v.pt")).endswith("; did you mean checkpoints/v?")
    assert refusal(Path("released")).endswith("; the released generator is for --init=released")


def test_weights_of_the_book_that_are_taken_for_a_checkpoint_are_told_from_damage(tmp_path: Path) -> None:
    for name, hint in (
        ("netg_200.pth", "; the book's weights go with --netg_path of generate.py and train.py"),
        ("a.pt", "use another file"),
        ("a.txt", "use another file"),
    ):
        torch.save({"main.0.weight": torch.zeros(2)}, tmp_path / name, _use_new_zipfile_serialization=False)
        assert refusal(tmp_path / name).endswith(hint)
    torch.save({"main.0.weight": torch.zeros(2)}, tmp_path / "new.pth")
    assert refusal(tmp_path / "new.pth").endswith(
        "; the book's weights go with --netg_path of generate.py and train.py"
    )


def test_newest_run_is_the_one_saved_last(tmp_path: Path) -> None:
    for run, time in (("b", 200), ("a", 300), ("c", 100)):
        os.utime(saved(tmp_path / run / "latest.pt"), (time, time))
    os.utime(saved(tmp_path / "d" / "best.pt"), (400, 400))
    saved(tmp_path / "released.pt")
    assert checkpoint.newest_run(tmp_path) == tmp_path / "a"


@pytest.mark.parametrize("runs", ["", "missing"])
def test_no_run_to_go_on_with_is_said(tmp_path: Path, runs: str) -> None:
    with pytest.raises(CheckpointError, match="no run") as refused:
        checkpoint.newest_run(tmp_path / runs)
    assert str(tmp_path / runs) in str(refused.value)


def test_weights_that_fit_are_taken() -> None:
    network, other = nn.Linear(3, 2), nn.Linear(3, 2)
    half = {name: w.half() for name, w in other.state_dict().items()}
    checkpoint.load_weights(network, half, "generator", Path("a.pt"))
    assert all(torch.equal(w, half[name].float()) for name, w in network.state_dict().items())


@pytest.mark.parametrize(
    ("weights", "difference"),
    [
        ({"weight": torch.zeros(2, 4), "bias": torch.zeros(2)}, r"size mismatch for weight: .*\[2, 4\].*\[2, 3\]"),
        ({"weight": torch.zeros(2, 3)}, 'Missing key.* "bias"'),
        ({"weight": torch.zeros(2, 3), "bias": torch.zeros(2), "x": torch.zeros(1)}, 'Unexpected key.* "x"'),
        ({"weight": 1, "bias": torch.zeros(2)}, "weight"),
        ([1], "dict"),
    ],
)
def test_a_difference_of_another_network_is_named(weights: Any, difference: str) -> None:
    network = nn.Linear(3, 2)
    with pytest.raises(CheckpointError, match=difference) as refused:
        checkpoint.load_weights(network, weights, "generator", Path("a.pt"))
    assert str(refused.value).startswith("a.pt: its generator is another network (")
    assert "\n" not in str(refused.value)
