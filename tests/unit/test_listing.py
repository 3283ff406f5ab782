"""What training and prepare.py find in folders and zips, and what they pass over."""

import os
import stat
import zipfile
from pathlib import Path

import pytest

from gan.data import listing
from gan.data.listing import Member, PassedOver


def put(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return folder


def test_files_come_in_the_order_of_their_paths_without_hidden_ones_runs_and_what_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "b/1.png", "b.txt", "a/deep/2.png", ".hidden/3.png", "__MACOSX/4.png", ".5.png", "out/6.png")
    put(tmp_path, "checkpoints/run/7.png", "@eaDir/1.png/8.png", "b/#recycle/9.png", "$RECYCLE.BIN/S-1-5/10.png")
    put(tmp_path, "System Volume Information/1.png", "lost+found/2.png", ".Trash-1000/3.png", "b/#snapshot/4.png")
    monkeypatch.chdir(tmp_path)
    for root in (Path(), tmp_path):
        assert listing.files_below(root, False, [tmp_path / "out"]) == (["a/deep/2.png", "b.txt", "b/1.png"], [])


def test_links_are_followed_once_or_not_out_of_the_folder(tmp_path: Path) -> None:
    root = put(tmp_path / "root", "a/1.png")
    put(tmp_path / "elsewhere", "2.png")
    (root / "up").symlink_to(root)
    (root / "z").symlink_to(root / "a")
    (root / "out").symlink_to(tmp_path / "elsewhere")
    (root / "file.png").symlink_to(tmp_path / "elsewhere/2.png")
    (root / "inside.png").symlink_to(root / "a/1.png")
    names, passed = listing.files_below(root, True)
    assert (names, passed) == (["a/1.png", "file.png", "inside.png", "out/2.png"], [])
    names, passed = listing.files_below(root, False)
    assert names == ["a/1.png", "inside.png"]
    assert sorted(passed) == [PassedOver("file.png", listing.LEADS_OUT), PassedOver("out", listing.LEADS_OUT)]


def test_of_a_zip_what_could_do_harm_is_passed_over_with_a_reason(tmp_path: Path) -> None:
    link, secret = zipfile.ZipInfo("link.png"), zipfile.ZipInfo("secret.png")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name in (
            "./1.png",
            "..2.png",
            "x/3.PNG",
            "note.txt",
            ".hid/4.png",
            "__MACOSX/5.png",
            "@eaDir/6.png",
            "folder.png/",
        ):
            archive.writestr(name, b"")
        for name in ("../6.png", "/7.png", "..\\8.png", "C:9.png", "a/../10.png"):
            archive.writestr(name, b"")
        archive.writestr("bomb.png", bytes(2**24))
        archive.writestr(link, "/etc/hostname")
        archive.writestr(secret, b"")
        secret.flag_bits |= 1
    found, passed, others = listing.members(tmp_path / "a.zip")
    assert [member.name for member in found] == ["./1.png", "x/3.PNG"]
    reasons = {one.name: one.why for one in passed}
    leading_out = {"../6.png", "/7.png", "..\\8.png", "C:9.png", "a/../10.png"}
    assert {name for name, why in reasons.items() if why == "its name leads out of the zip"} == leading_out
    assert reasons["link.png"] == "a link inside a zip"
    assert reasons["secret.png"] == "it has a password: unpack it first"
    assert reasons["bomb.png"].startswith("it would unpack from ")
    assert len(reasons) == 8
    assert sorted(others) == ["..2.png", ".hid/4.png", "@eaDir/6.png", "__MACOSX/5.png", "note.txt"]


def test_names_whose_encoding_a_zip_does_not_state_are_repaired(tmp_path: Path) -> None:
    name = "动漫/头像.png"
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a" * len(name.encode("gb2312")), b"")
    content = (tmp_path / "a.zip").read_bytes()
    plain = b"a" * len(name.encode("gb2312"))
    assert content.count(plain) == 2
    (tmp_path / "a.zip").write_bytes(content.replace(plain, name.encode("gb2312")))
    assert listing.members(tmp_path / "a.zip")[0] == [Member(name.encode("gb2312").decode("cp437"), name)]


def test_what_is_no_zip_or_no_folder_is_an_error_and_no_pipe_is_waited_for(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(b"no zip")
    os.mkfifo(tmp_path / "pipe.zip")
    with pytest.raises(zipfile.BadZipFile):
        listing.members(tmp_path / "a.zip")
    with pytest.raises(OSError, match="not a regular file"):
        listing.members(tmp_path / "pipe.zip")
    with pytest.raises(FileNotFoundError):
        listing.files_below(tmp_path / "gone", True)
