"""Files that are written whole or not at all."""

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from filelock import FileLock

from gan import files
from gan.files import replacing, replacing_folder, tidy, write_text


def test_what_is_written_takes_the_place_of_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "new" / "page.html"
    for content in (b"first", b"second"):
        with replacing(path) as temporary:
            assert temporary.parent == path.parent
            assert temporary.suffix == ".html"
            temporary.write_bytes(content)
            assert content == b"first" or path.read_bytes() == b"first"
        assert path.read_bytes() == content
    assert list(path.parent.iterdir()) == [path]


def test_what_fails_leaves_what_was_there_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_bytes(b"before")

    def cut_short() -> None:
        with replacing(path) as temporary:
            temporary.write_bytes(b"hal")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cut_short()
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


def test_two_threads_may_write_the_same_file_at_once(tmp_path: Path) -> None:
    path, both = tmp_path / "face.png", threading.Barrier(2, timeout=10)

    def written(content: bytes) -> None:
        with replacing(path) as temporary:
            temporary.write_bytes(content)
            both.wait()
            assert temporary.read_bytes() == content

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(written, (b"one", b"two")))
    assert path.read_bytes() in (b"one", b"two")
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("refusals", [0, 2, 3])
def test_a_rename_that_is_refused_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusals: int
) -> None:
    source, target = tmp_path / "pack.unfinished", tmp_path / "pack"
    source.mkdir()
    replace, left = Path.replace, [refusals]

    def refused(self: Path, name: Path) -> Path:  # as by Windows, while a virus scanner reads what was just written
        left[0] -= 1
        if left[0] >= 0:
            raise PermissionError(13, "Access is denied")
        return replace(self, name)

    monkeypatch.setattr(files, "WAITS", (0, 0))
    monkeypatch.setattr(Path, "replace", refused)
    with pytest.raises(PermissionError) if refusals == 3 else contextlib.nullcontext():
        files.move(source, target)
    assert target.is_dir() == (refusals < 3)
    assert source.is_dir() == (refusals == 3)


def test_names_that_are_no_text_are_escaped(tmp_path: Path) -> None:
    write_text(tmp_path / "list.txt", "faces/\udcff 猫.png\n")

    assert (tmp_path / "list.txt").read_text(encoding="utf-8") == "faces/\\udcff 猫.png\n"


def test_a_folder_is_replaced_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    folder = tmp_path / "above" / "folder"
    for content in ("one", "two"):
        with replacing_folder(folder) as new:
            (new / content).touch()
            assert not (folder / content).exists()
        assert [path.name for path in folder.iterdir()] == [content]

    def refuse(old: Path) -> None:
        assert [path.name for path in old.iterdir()] == ["two"]
        assert not folder.exists()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), replacing_folder(folder, refuse) as new:
        (new / "three").touch()
    with pytest.raises(KeyboardInterrupt), replacing_folder(folder) as new:
        raise KeyboardInterrupt
    assert [path.name for path in folder.iterdir()] == ["two"]
    assert list(folder.parent.iterdir()) == [folder]


@pytest.mark.parametrize("new_one", [False, True])
def test_what_a_killed_process_moved_away_is_put_back_unless_there_is_another(tmp_path: Path, new_one: bool) -> None:
    folder, place = tmp_path / "a[b]", tmp_path / ".a[b]-01234567.tmp"
    (place / "old" / "it").mkdir(parents=True)
    place.with_suffix(".lock").touch()
    if new_one:
        folder.mkdir()
    with FileLock(place.with_suffix(".lock")):
        tidy(folder)  # its process lives
        assert place.exists()
    tidy(folder)
    assert list(tmp_path.iterdir()) == [folder]
    assert (folder / "it").exists() is not new_one


def test_where_there_are_no_locks_folders_are_replaced_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(self: FileLock) -> None:
        raise NotImplementedError

    monkeypatch.setattr(FileLock, "acquire", none)
    with replacing_folder(tmp_path / "folder") as new:
        (new / "it").touch()
    assert (tmp_path / "folder" / "it").exists()
    assert len(list(tmp_path.iterdir())) == 1
