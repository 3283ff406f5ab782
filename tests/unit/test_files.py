"""Files that are written whole or not at all."""

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gan import files
from gan.files import replacing, write_text


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
