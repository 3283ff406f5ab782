"""What the studio does with the other programs: starting them, and reading runs from their folders."""

import json
from pathlib import Path

import pytest
from filelock import FileLock
from PIL import Image

from config import ConfigError, DataError
from gan.data import synthetic
from gan.studio.programs import MANIFEST, Program, ProgramError, Runs, faces_in, gathered, last_line, prepared
from gan.training.session import is_training, run_lock, stop_signals


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a run that has trained for a while."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "checkpoints/mine"
    folder.mkdir(parents=True)
    config = {"data_path": "data", "budget": 10.0, "vocabulary": [], "max_epoch": None}
    (folder / "config.json").write_text(json.dumps({"config": config, "faces": {"training": 400}}))
    rows = [
        {"step": n, "images_seen": 32 * n, "seconds": float(n), "g_loss": 1.0, "d_loss": 1.0, "d_accuracy": 0.8}
        | {"seconds_left": 600.0 - n}
        for n in (50, 100, 150)
    ]
    (folder / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "samples").mkdir()
    for n in (0, 150):
        Image.new("RGB", (10, 10)).save(folder / f"samples/step-{n:08d}.png")
    return folder


def add(run: Path, **values: float) -> None:
    with (run / "log.jsonl").open("a") as log:
        log.write(json.dumps({"step": 200, "images_seen": 6400, "seconds": 200.0, **values}) + "\n")


def test_all_of_a_run_is_read_from_its_folder(run: Path) -> None:
    runs = Runs()
    assert runs.names() == ["mine"]
    state = runs.state("mine")
    assert (state.training, state.finished, state.images, state.seconds, state.left) == (False, False, 4800, 150, 450)
    assert state.diagnosis is not None
    assert state.diagnosis.kind == "early"
    assert [path.name for path in state.grids] == ["step-00000000.png", "step-00000150.png"]
    assert list(state.curves.column("g_loss")[0]) == [1600, 3200, 4800]


def test_only_what_is_new_of_a_log_is_read_and_a_run_that_goes_back_is_read_again(run: Path) -> None:
    runs = Runs()
    runs.state("mine")
    with (run / "log.jsonl").open("a") as log:
        log.write('{"step": 200, "images_seen": 64')  # it is still being written
    assert runs.state("mine").images == 4800
    (run / "log.jsonl").write_text((run / "log.jsonl").read_text().rpartition("\n")[0] + "\n")
    add(run, seconds_left=0.0)
    state = runs.state("mine")
    assert (state.images, state.finished, len(state.curves.column("g_loss")[0])) == (6400, True, 3)
    lines = (run / "log.jsonl").read_text().splitlines(keepends=True)
    (run / "log.jsonl").write_text("".join(lines[:2]))  # rolled back
    assert runs.state("mine").images == 3200


def test_a_run_that_any_process_trains_is_known_and_can_be_asked_to_stop(run: Path) -> None:
    runs = Runs()
    assert not is_training(run)
    with run_lock(run), stop_signals(run) as asked:
        assert is_training(run)
        assert runs.training() == "mine"
        for work in (lambda: runs.start("data", 1, True), lambda: runs.resume("mine", 1)):
            with pytest.raises(ConfigError, match="mine is being trained; stop it first"):
                work()
        assert not asked()
        runs.stop("mine")
        assert asked()
        assert runs.state("mine").stopping
    assert not runs.state("mine").training
    with run_lock(run), stop_signals(run) as asked:
        assert not asked()  # that was asked of the training before


def test_looking_at_a_run_keeps_nobody_from_training_it(run: Path) -> None:
    held = FileLock(run / ".lock"), pytest.raises(ConfigError, match="is being trained by another process")
    with held[0], held[1], run_lock(run):  # as `is_training` holds it, for longer
        pass
    with run_lock(run):
        pass


@pytest.mark.parametrize(
    ("folder", "name"),
    [("data/blonde-12ab", "blonde"), ("data/my-faces", "my-faces"), ("elsewhere/my-12ab", "my-12ab")],
)
def test_a_run_is_named_after_its_pictures(run: Path, monkeypatch: pytest.MonkeyPatch, folder: str, name: str) -> None:
    monkeypatch.setattr(Runs, "_run", lambda runs, name, words: None)
    assert Runs().start(folder, 1, False) == name


def test_a_manifest_of_somebody_else_leads_out_of_no_folder(tmp_path: Path) -> None:
    (tmp_path / "faces").mkdir()
    for name in ("mine.png", "faces/a.png"):
        (tmp_path / name).touch()
    (tmp_path / "faces/link.png").symlink_to(tmp_path / "mine.png")
    names = ["a.png", "gone.png", "../mine.png", str(tmp_path / "mine.png"), "link.png"]
    (tmp_path / "faces" / MANIFEST).write_text(json.dumps([{"file": name, "source": "x"} for name in names]))
    assert [path.name for path in faces_in(tmp_path / "faces")] == ["a.png"]
    for wrong in ("[1]", "{", '[{"source": 1}]', '[{"source": 1, "file": 2}]', "null"):
        (tmp_path / "faces" / MANIFEST).write_text(wrong)
        assert faces_in(tmp_path / "faces") == []


def test_names_of_others_reach_no_folder(run: Path) -> None:
    runs = Runs()
    for name in ("../mine", "/etc", "", "mine/samples"):
        for work in (runs.state, runs.stop, lambda name: runs.resume(name, 1)):
            with pytest.raises(ConfigError, match="no run of that name"):
                work(name)


def test_what_a_program_says_last_is_its_error(tmp_path: Path) -> None:
    said = tmp_path / "said.txt"
    with pytest.raises(ProgramError, match=r"^nothing to prepare; name a folder"):
        Program("prepare.py", [], said).wait(lambda n: None)
    assert said.read_text().startswith("prepare.py: nothing")
    assert last_line(tmp_path / "none.txt") == ""


def test_a_program_ends_when_its_work_is_cancelled(tmp_path: Path) -> None:
    program = Program("prepare.py", [str(tmp_path)], tmp_path / "said.txt")

    def cancel(n: int) -> None:
        raise ConfigError("cancelled")

    with pytest.raises(ConfigError, match="cancelled"):
        program.wait(cancel)
    assert not program.running


def faces(folder: Path, n: int) -> Path:
    folder.mkdir()
    for i in range(n):
        Image.fromarray(synthetic.draw(i)[0]).save(folder / f"{i}.png")
    return folder


def test_pictures_become_faces_in_a_folder_that_the_same_source_gets_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = faces(tmp_path / "my art", 6)
    (source / "broken.png").write_bytes(b"x")
    found = prepared(source, False, "one", tmp_path / "said.txt", lambda n: None)
    assert (found.faces, found.left_out) == (6, {"unreadable": 1})
    assert "<!doctype html>" in found.report
    again = prepared(source, False, "one", tmp_path / "said.txt", lambda n: None)
    assert again.folder == found.folder
    assert prepared(source, False, "two", tmp_path / "said.txt", lambda n: None).folder != found.folder
    ready = prepared(Path(found.folder), False, "any", tmp_path / "said.txt", lambda n: None)  # taken as it is
    assert (ready.folder, ready.faces) == (found.folder, 6)
    with pytest.raises(DataError, match=r"there is no .*nowhere on this machine"):
        prepared(tmp_path / "nowhere", False, "any", tmp_path / "said.txt", lambda n: None)
    with pytest.raises(DataError, match="the studio keeps its own files in"):
        prepared(tmp_path, False, "any", tmp_path / "said.txt", lambda n: None)


def test_pictures_that_are_not_square_are_hardly_faces_unless_these_were_cut_out_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = faces(tmp_path / "whole", 6)
    assert not prepared(source, False, "one", tmp_path / "said.txt", lambda n: None).oblong
    for path in source.iterdir():
        with Image.open(path) as face:
            face.resize((96, 120)).save(path)
    assert prepared(source, False, "one", tmp_path / "said.txt", lambda n: None).oblong


def test_dropped_files_of_one_name_are_all_kept(tmp_path: Path) -> None:
    paths = [tmp_path / name / "a.png" for name in "xyz"]
    for path in paths:
        path.parent.mkdir()
        path.write_text(path.parent.name)
    assert gathered(paths[:1], tmp_path) == paths[0]
    made = gathered(paths, tmp_path)
    assert sorted(path.read_text() for path in made.iterdir()) == ["x", "y", "z"]
