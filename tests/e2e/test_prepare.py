"""prepare.py as a user runs it: what it finds in a pile, what it writes, and that it never touches the pile."""

import csv
import dataclasses
import hashlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageOps

import prepare
from gan.data import cleaning, cleaning_report, detection, synthetic
from gan.data.cleaning import KEEPABLE, KINDS

ROOT = Path(__file__).resolve().parents[2]
KILL = getattr(signal, "SIGKILL", signal.SIGTERM)  # Windows has none
Command = Callable[..., subprocess.CompletedProcess[str]]


def synthetic_face(seed: int, size: int = 96) -> Image.Image:
    return Image.fromarray(synthetic.draw(seed, size)[0])


def encoded(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def contents(folder: Path) -> dict[str, str]:
    """What lies below a folder, by name: digests of files, targets of links."""
    return {
        str(path.relative_to(folder)): os.readlink(path)
        if path.is_symlink()
        else hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


def report_of(folder: Path, name: str = "report") -> dict[str, Any]:
    return json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))


@pytest.fixture
def pile(synthetic_pile: Path, tmp_path: Path) -> Path:
    """A pile to change as one likes."""
    return Path(shutil.copytree(synthetic_pile, tmp_path / "pile", symlinks=True))


@pytest.fixture(scope="session")
def synthetic_pile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two classes with clean faces, one of each defect, and a zip."""
    folder = tmp_path_factory.mktemp("synthetic") / "pile"
    for kind, seeds in (("blue", range(4)), ("red hair", range(4, 7))):
        (folder / kind).mkdir(parents=True)
        for seed in seeds:
            (folder / kind / f"{seed}.png").write_bytes(encoded(synthetic_face(seed)))
    bad = folder / "zz"
    bad.mkdir()
    face = synthetic_face(20)
    (bad / "<b>nothing.png").write_bytes(b"<html>404</html>")
    (bad / "short.jpg").write_bytes(encoded(synthetic_face(21), "JPEG")[:900])
    (bad / "small.png").write_bytes(encoded(face.resize((24, 24))))
    (bad / "strip.png").write_bytes(encoded(face.resize((96, 300))))
    (bad / "white.png").write_bytes(encoded(Image.new("RGB", (96, 96), "white")))
    (bad / "dark.png").write_bytes(encoded(face.point([v // 12 for v in range(256)] * 3)))
    (bad / "grey.png").write_bytes(encoded(face.convert("L")))
    (bad / "duplicate.jpg").write_bytes(encoded(synthetic_face(1)))  # a PNG by any other name
    (bad / "mirrored.png").write_bytes(encoded(ImageOps.mirror(synthetic_face(2))))
    (bad / "again.jpg").write_bytes(encoded(synthetic_face(3), "JPEG", quality=60))
    (bad / "huge.png").write_bytes(encoded(Image.new("1", (20_000, 20_000))))
    (bad / "away.png").symlink_to("/etc/hostname")
    (bad / "notes.txt").write_text("not a picture")
    with zipfile.ZipFile(folder / "more.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("green/8.png", encoded(synthetic_face(8)))
        archive.writestr("../out.png", encoded(synthetic_face(9)))
        archive.writestr("bomb.png", bytes(30_000_000))
    return folder


def test_a_pile_becomes_clean_faces_and_stays_as_it_is(pile: Path, tmp_path: Path, run_here: Command) -> None:
    before = contents(pile)
    done = run_here("prepare.py", "pile", "--out=faces")
    assert done.returncode == 0, done.stderr
    assert contents(pile) == before

    report = report_of(tmp_path)
    wrong = {found["file"].removeprefix(f"{pile.name}/"): found["kind"] for found in report["findings"]}
    assert wrong == {
        "zz/<b>nothing.png": "unreadable",
        "zz/short.jpg": "truncated",
        "zz/small.png": "small",
        "zz/strip.png": "narrow",
        "zz/white.png": "blank",
        "zz/dark.png": "dark",
        "zz/grey.png": "grey",
        "zz/duplicate.jpg": "duplicate",
        "zz/mirrored.png": "near_duplicate",
        "zz/again.jpg": "near_duplicate",
        "zz/huge.png": "refused",
        "zz/away.png": "refused",
        "more.zip/../out.png": "refused",
        "more.zip/bomb.png": "refused",
    }
    assert report["counts"] == {"pictures": 22, "kept": 8, "oblong": 0, "other_files": 1}

    out = tmp_path / "faces"
    written = {str(path.relative_to(out)) for path in out.rglob("*.*") if path.name != "manifest.json"}
    assert written == {row["file"] for row in report["manifest"]}
    by_folder = sorted(Path(name).parent.as_posix() for name in written)
    assert by_folder == ["blue"] * 4 + ["green"] + ["red_hair"] * 3  # classes stay classes
    originals = set(contents(pile).values()) | {hashlib.sha256(encoded(synthetic_face(8))).hexdigest()}
    for row in report["manifest"]:
        digest = hashlib.sha256((out / row["file"]).read_bytes()).hexdigest()
        assert row["sha256"] == digest
        assert digest in originals  # copied as they are
    assert json.loads((out / "manifest.json").read_text()) == report["manifest"]
    assert "python train.py --data_path=faces" in done.stdout
    assert "whole pictures were copied; if they are not cut-out faces yet: --detect, see" in done.stdout


class Tags(HTMLParser):
    """The tags of a page and its addresses."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.titles: list[str] = []
        self.names: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href")]
        self.titles += [value or "" for name, value in attrs if name == "title"]
        self.names += [value or "" for name, value in attrs if name == "id"]

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_report_needs_nothing_else_and_believes_no_name(pile: Path, tmp_path: Path, run_here: Command) -> None:
    assert run_here("prepare.py", "pile", "--dry_run", "--report=found/here.html").returncode == 0
    page = Tags((tmp_path / "found/here.html").read_text(encoding="utf-8"))
    assert "b" not in page.tags  # a file's name is no HTML
    assert "zz/<b>nothing.png" in page.text
    assert "pile/zz/<b>nothing.png" in page.titles
    assert page.addresses
    inside = {f"#{name}" for name in page.names}
    assert all(one in inside or one.startswith("data:image/jpeg;base64,") for one in page.addresses)
    assert "script" not in page.tags
    found = report_of(tmp_path / "found", "here")["found"]
    assert page.tags.count("h2") == len(found)
    assert {"kept", *found} <= set(page.names)
    assert "a copy of blue/3.png" in page.text
    assert not (tmp_path / "data").exists()  # a dry run


def test_a_folder_of_an_earlier_call_is_made_afresh(pile: Path, tmp_path: Path, run_here: Command) -> None:
    out = tmp_path / "faces"
    out.mkdir()
    (out / ".DS_Store").touch()  # an empty folder, to people
    assert run_here("prepare.py", "pile", "--out=faces", "--keep=grey,small", "--label=hair").returncode == 0
    first = contents(out)
    assert {"grey", "small", "labels.csv"} <= {Path(name).name.partition("-")[0] for name in first}
    (out / ".DS_Store").touch()
    assert run_here("prepare.py", "pile", "--out=faces").returncode == 0
    second = contents(out)
    left = {Path(name).name.partition("-")[0] for name in first.keys() - second.keys()}
    assert left == {"grey", "small", "labels.csv"}
    assert second.keys() < first.keys()

    (pile / "red hair").rename(tmp_path / "more")
    assert run_here("prepare.py", "more", "--out=faces").returncode == 0
    assert len(list(out.rglob("*.png"))) == 3  # of this call alone
    assert run_here("prepare.py", "pile", "more", "--out=faces").returncode == 0  # several sources go in one
    assert len(list(out.rglob("*.png"))) == 8
    assert not list(tmp_path.glob(".faces*"))


def stems(folder: Path) -> set[str]:
    """The faces in a folder, by the names that they had in the pile."""
    return {path.name.partition("-")[0] for path in folder.rglob("*.png")}


@pytest.fixture
def six(tmp_path: Path, run_here: Command) -> Callable[..., dict[str, int]]:
    """Prepare a pile of six faces in two folders; again with every call of the function, which returns the findings."""
    for seed in range(6):
        path = tmp_path / "pile" / ("red" if seed < 2 else "blue") / f"{seed}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encoded(synthetic_face(seed)))

    def prepare(*words: str) -> dict[str, int]:
        done = run_here("prepare.py", *(words or ("pile",)), "--out=faces")
        assert done.returncode == 0, done.stderr
        return report_of(tmp_path)["found"]

    assert prepare() == {}
    return prepare


def test_faces_that_the_user_deleted_stay_out_until_they_are_wanted_again(
    tmp_path: Path, six: Callable[..., dict[str, int]], run_here: Command
) -> None:
    out = tmp_path / "faces"
    next(out.rglob("3-*.png")).unlink()
    shutil.rmtree(out / "red")  # with 0 and 1
    for words in ["pile"], ["pile", "--dry_run"], ["pile", "--label=hair"], ["pile"]:
        assert six(*words) == {"deleted": 3}
        assert stems(out) == {"2", "4", "5"}
        if "--label=hair" in words:
            assert len((out / "labels.csv").read_text(encoding="utf-8").splitlines()) == 1 + 3
    done = run_here("prepare.py", "pile", "--out=faces")
    assert "3 deleted         left out: you threw it out, or deleted it" in done.stdout
    assert {row["file"].partition("-")[0] for row in report_of(tmp_path)["manifest"]} == {"blue/2", "blue/4", "blue/5"}
    page = Tags((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert page.tags.count("image") == 6  # those that were deleted are shown, too
    assert "deleted" in page.names

    assert six("pile", "--keep=deleted") == {"deleted": 3}
    assert stems(out) == set("012345")
    assert six() == {}
    assert stems(out) == set("012345")


def test_a_deleted_face_that_is_put_back_is_back(tmp_path: Path, six: Callable[..., dict[str, int]]) -> None:
    face = next((tmp_path / "faces").rglob("3-*.png"))
    face.rename(tmp_path / "away.png")
    assert six() == {"deleted": 1}
    (tmp_path / "away.png").rename(face)
    assert six() == {}
    assert stems(tmp_path / "faces") == set("012345")


@pytest.mark.parametrize("manifest", ["stays", "goes"])
def test_an_emptied_folder_begins_anew(tmp_path: Path, six: Callable[..., dict[str, int]], manifest: str) -> None:
    next((tmp_path / "faces").rglob("3-*.png")).unlink()
    assert six() == {"deleted": 1}
    for path in (tmp_path / "faces").rglob("*.png"):
        path.unlink()
    if manifest == "goes":
        shutil.rmtree(tmp_path / "faces")
    assert six() == {}
    assert stems(tmp_path / "faces") == set("012345")


def test_calls_with_other_pictures_forget_no_deleted_face(tmp_path: Path, six: Callable[..., dict[str, int]]) -> None:
    next((tmp_path / "faces").rglob("3-*.png")).unlink()
    for name, face in (("bad", Image.new("RGB", (96, 96))), ("more", synthetic_face(8))):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.png").write_bytes(encoded(face))
    with pytest.raises(AssertionError, match=r"kept none of 1 files; report\.html says why of each"):
        six("bad")
    assert six("more", "pile") == {"deleted": 1}
    assert six("more") == {}
    assert six("pile", "more") == {"deleted": 1}
    assert stems(tmp_path / "faces") == {"0", "1", "2", "4", "5", "more"}


def test_of_a_folder_of_links_and_archives_it_says_what_to_do_and_that_nothing_was_kept(
    tmp_path: Path, run_here: Command
) -> None:
    (tmp_path / "snapshot").mkdir()
    synthetic_face(0).save(tmp_path / "0.png")
    (tmp_path / "snapshot/0.png").symlink_to("../0.png")
    (tmp_path / "snapshot/more.7z").write_bytes(b"7z")
    done = run_here("prepare.py", "snapshot", "--out=faces")
    assert done.returncode == 2
    assert "snapshot/0.png (a link that leads out of the source, as in a Hugging Face cache" in done.stdout
    assert "snapshot/more.7z (an archive: unpack it first)" in done.stdout
    assert "kept none of 2 files" in done.stderr


def test_no_copy_takes_the_place_of_a_deleted_face(tmp_path: Path, six: Callable[..., dict[str, int]]) -> None:
    (tmp_path / "pile/zz").mkdir()
    (tmp_path / "pile/zz/copy.png").write_bytes(encoded(synthetic_face(3)))
    ImageOps.mirror(synthetic_face(4)).resize((200, 200)).save(tmp_path / "pile/zz/mirrored and larger.png")
    for name in "34":
        next((tmp_path / "faces").rglob(f"{name}-*.png")).unlink()
    assert six() == {"duplicate": 1, "near_duplicate": 1, "deleted": 2}
    assert stems(tmp_path / "faces") == set("0125")


def test_what_a_killed_call_had_moved_away_was_not_deleted(tmp_path: Path, six: Callable[..., dict[str, int]]) -> None:
    next((tmp_path / "faces").rglob("3-*.png")).unlink()
    for begun in False, True:
        place = tmp_path / ".faces-0123abcd.tmp"
        (place / "new/red").mkdir(parents=True)
        place.with_suffix(".lock").touch()
        if begun:  # between the two renames
            (tmp_path / "faces").rename(place / "old")
        assert six() == {"deleted": 1}
        assert stems(tmp_path / "faces") == set("01245")


def cut(name: str, left: int, top: int, right: int, bottom: int) -> cleaning.Candidate:
    """A face that was cut out of a picture."""
    box, picture = detection.Box(left, top, right, bottom), cleaning.Picture(Path("pile"), name)
    return cleaning.Candidate(picture, size=(right - left, bottom - top), box=box, digest=b"d")


def test_a_face_cut_with_another_margin_is_the_deleted_one_and_its_neighbour_is_not() -> None:
    deleted = cut("a.png", 100, 0, 600, 500)  # of a face from 300 to 400, with a margin of 2
    gone = [cleaning.row(cleaning.name_of(deleted), deleted, "")]
    same, rounded = cut("a.png", 298, 198, 404, 304), cut("a.png", 199, 99, 501, 401)
    neighbour, elsewhere = cut("a.png", 220, 0, 720, 500), cut("b.png", 100, 10, 600, 510)
    far_smaller = cut("a.png", 305, 205, 395, 295)  # the whole picture was deleted, not a face in it
    whole = cleaning.Candidate(cleaning.Picture(Path("pile"), "a.png"), size=(400, 300), digest=b"w")
    faulty = dataclasses.replace(same, kind="small")
    faces = [same, rounded, neighbour, elsewhere, far_smaller, whole, faulty]
    cleaning.mark_deleted(faces, gone, ())
    assert [face.kind for face in faces] == ["deleted", "deleted", "", "", "", "", "small"]


def test_a_face_that_the_user_left_stays_beside_a_deleted_one_at_its_place_and_a_deleted_copy() -> None:
    deleted, left = cut("a.png", 100, 0, 200, 100), cut("a.png", 92, 0, 208, 116)
    copy, new = cut("b.png", 0, 0, 90, 90), cut("c.png", 0, 0, 300, 300)
    gone = [cleaning.row(cleaning.name_of(deleted), deleted, "")]
    faces = [deleted, left, copy, new]
    for face in faces:
        face.brightness = np.zeros(256, np.float16).tobytes()
    cleaning.mark_deleted(faces, gone, {cleaning.name_of(left), cleaning.name_of(copy)})
    cleaning.mark_duplicates(faces)
    assert [face.kind for face in faces] == ["deleted", "", "", "duplicate"]


def change(out: Path, what: str) -> str:
    """Change a folder of faces as a user may; the name of what is theirs now."""
    face = next(out.glob("blue/*.png"))
    if what == "a face":
        face.write_bytes(encoded(synthetic_face(51)))
    elif what == "labels":
        (out / "labels.csv").write_text("file,hair\n0.png,red\n")
        face = out / "labels.csv"
    elif what == "the manifest":
        (out / "manifest.json").unlink()
        return "labels.csv"  # the first file
    elif what == "a link":
        face.rename(out.parent / "elsewhere.png")
        face.symlink_to(out.parent / "elsewhere.png")
    elif what == "a folder":
        (out / "blue").rename(out.parent / "elsewhere")
        (out / "blue").symlink_to(out.parent / "elsewhere")
        return "blue"
    else:
        face = out / what
        face.parent.mkdir(exist_ok=True)
        face.write_bytes(b"mine")
    return face.relative_to(out).as_posix()


@pytest.mark.parametrize(
    "what", ["a face", "labels", "the manifest", "a link", "a folder", "mine.png", "blue/.git", "new/notes.txt"]
)
def test_a_folder_with_anything_that_is_not_its_own_is_refused_and_stays_as_it_is(
    tmp_path: Path, run_here: Command, what: str
) -> None:
    for name in ("blue/0.png", "red/1.png"):
        (tmp_path / "pile" / name).parent.mkdir(parents=True)
        (tmp_path / "pile" / name).write_bytes(encoded(synthetic_face(int(Path(name).stem))))
    words = "prepare.py", "pile", "--out=faces", "--label=hair"
    assert run_here(*words).returncode == 0
    theirs = change(tmp_path / "faces", what)
    before = contents(tmp_path)
    done = run_here(*words)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert f"faces/{theirs} was not written by prepare.py, or was changed since; move it away" in line
    assert "--out=FOLDER" in line
    assert contents(tmp_path) == before
    if what not in ("the manifest", "a folder"):
        (tmp_path / "faces" / theirs).rename(tmp_path / "away")
        assert run_here(*words).returncode == 0


def test_what_a_user_adds_during_a_call_is_not_lost(
    tmp_path: Path, run_here: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pile").mkdir()
    (tmp_path / "pile/0.png").write_bytes(encoded(synthetic_face(0)))
    words = "prepare.py", "pile", "--out=faces"
    assert run_here(*words).returncode == 0
    write, mine = cleaning.write, tmp_path / "faces/mine.png"

    def write_and_add(*arguments: Any) -> Any:
        mine.write_bytes(b"mine")
        return write(*arguments)

    monkeypatch.setattr(cleaning, "write", write_and_add)
    before = contents(tmp_path)
    done = run_here(*words)
    assert done.returncode == 2
    assert "faces/mine.png was not written by prepare.py" in done.stderr
    assert contents(tmp_path) == {**before, "faces/mine.png": hashlib.sha256(b"mine").hexdigest()}


def test_a_picture_that_goes_while_others_are_looked_at_ends_it_in_one_line(
    tmp_path: Path, run_here: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pile").mkdir()
    for seed in range(2):
        (tmp_path / f"pile/{seed}.png").write_bytes(encoded(synthetic_face(seed)))
    write = cleaning.write

    def remove_and_write(*arguments: Any) -> Any:
        (tmp_path / "pile/1.png").unlink()
        return write(*arguments)

    monkeypatch.setattr(cleaning, "write", remove_and_write)
    done = run_here("prepare.py", "pile", "--out=faces")
    assert done.returncode == 2
    assert "pile/1.png has changed since it was inspected (" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "faces").exists()


def test_a_link_to_the_folder_stays_a_link(tmp_path: Path, run_here: Command) -> None:
    for folder in ("pile", "disk/faces"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "pile/0.png").write_bytes(encoded(synthetic_face(0)))
    (tmp_path / "faces").symlink_to(tmp_path / "disk/faces")
    for _ in range(2):
        assert run_here("prepare.py", "pile", "--out=faces").returncode == 0
    assert (tmp_path / "faces").is_symlink()
    assert len(list((tmp_path / "disk/faces").glob("*.png"))) == 1
    assert [path.name for path in (tmp_path / "disk").iterdir()] == ["faces"]


@pytest.mark.parametrize(
    ("encoding", "name"),
    [
        ("gb2312", "动漫/头像.png"),  # by Windows in China
        ("utf-8", "动漫/头像.png"),  # by macOS
        ("cp437", "Müller/süße Köpfe.png"),  # by old Windows
        ("ascii", "red/face.png"),
    ],
)
def test_names_in_zips_are_read_as_they_were_written(
    tmp_path: Path, run_here: Command, make_faces: Callable[..., list[Path]], encoding: str, name: str
) -> None:
    (face,) = make_faces(tmp_path / "one", 1, suffix=".png")
    plain = re.sub(rb"[^/.]", b"a", name.encode(encoding))
    with zipfile.ZipFile(tmp_path / "pile.zip", "w") as archive:
        archive.write(face, plain.decode())
    content = (tmp_path / "pile.zip").read_bytes()
    assert content.count(plain) == 2
    (tmp_path / "pile.zip").write_bytes(content.replace(plain, name.encode(encoding)))

    done = run_here("prepare.py", "pile.zip", "--out=faces", "--keep=grey,blank,dark")

    assert done.returncode == 0, done.stderr
    (row,) = report_of(tmp_path)["manifest"]
    folder, stem = name.removesuffix(".png").split("/")
    assert re.fullmatch(rf"{folder}/{stem}-[0-9a-f]{{12}}\.png", row["file"].replace("_", " "))
    assert (tmp_path / "faces" / row["file"]).is_file()


def test_harmful_zips_and_links_do_no_harm(tmp_path: Path, run_here: Command) -> None:
    pile, victim = tmp_path / "pile", tmp_path / "victim"
    (pile / "k").mkdir(parents=True)
    victim.mkdir()
    (pile / "k/0.png").write_bytes(encoded(synthetic_face(0)))
    (pile / "v").symlink_to(victim)
    with zipfile.ZipFile(pile / "deep.zip", "w") as archive:
        archive.writestr("d/" * 2000 + "x.png", encoded(synthetic_face(1)))
        archive.writestr("C++/a.png", encoded(synthetic_face(2)))
        archive.writestr("C#/a.png", encoded(synthetic_face(3)))
        archive.writestr("con/../con/aux.png", encoded(synthetic_face(4)))
        archive.writestr("/abs.png", encoded(synthetic_face(5)))
    lying = zipfile.ZipInfo("lying.png")
    lying.compress_type = zipfile.ZIP_BZIP2
    with zipfile.ZipFile(pile / "lying.zip", "w") as archive:
        archive.writestr(lying, bytes(9_000_000))
    data = (pile / "lying.zip").read_bytes()
    (pile / "lying.zip").write_bytes(data.replace((9_000_000).to_bytes(4, "little"), (900).to_bytes(4, "little")))
    os.mkfifo(pile / "pipe.zip")

    done = run_here("prepare.py", "pile", str(pile), "pile/k/0.png", "--out=faces")

    assert done.returncode == 0, done.stderr
    assert not list(victim.iterdir())
    report = report_of(tmp_path)
    kinds = {Path(found["file"]).name: found["kind"] for found in report["findings"]}
    assert kinds == {
        "v": "refused",
        "lying.png": "unreadable",
        "pipe.zip": "unreadable",
        "aux.png": "refused",
        "abs.png": "refused",
    }
    folders = [Path(row["file"]).parent.as_posix() for row in report["manifest"]]
    assert len(set(folders)) == len(folders) == 4
    assert all(len(folder) < 200 for folder in folders)


def test_names_that_are_no_text(tmp_path: Path, run_command: Command) -> None:
    folder = os.fsencode(tmp_path) + b"/p\xff"
    os.mkdir(folder)
    for seed in range(2):
        with open(folder + b"/\xe9%d.png" % seed, "wb") as file:
            file.write(encoded(synthetic_face(seed)))
    name = os.fsdecode(folder)
    done = run_command("prepare.py", name, "--out=faces", env={"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0, done.stderr
    assert report_of(tmp_path)["counts"]["kept"] == 2
    assert len(list((tmp_path / "faces").glob("*.png"))) == 2


def test_what_is_kept_of_one_kind_may_still_be_left_out_for_another(tmp_path: Path, run_here: Command) -> None:
    (tmp_path / "pile").mkdir()
    Image.new("RGB", (30, 30)).save(tmp_path / "pile/black.png")
    synthetic_face(0).resize((30, 30)).save(tmp_path / "pile/small.png")
    synthetic_face(1).save(tmp_path / "pile/fine.png")
    done = run_here("prepare.py", "pile", "--dry_run", "--keep=small")
    assert done.returncode == 0, done.stderr
    assert report_of(tmp_path)["counts"]["kept"] == 2
    assert [found["kind"] for found in report_of(tmp_path)["findings"]] == ["dark"]
    assert report_of(tmp_path)["found"] == {"small": 2, "dark": 1}


@pytest.mark.parametrize(("size", "turn"), [((1797, 1800), 1), ((1800, 1799), 6)])
def test_a_large_jpeg_nearly_square_is_cut_inside_itself(
    tmp_path: Path, run_here: Command, size: tuple[int, int], turn: int
) -> None:
    exif = Image.Exif()
    exif[0x0112] = turn
    synthetic_face(3).resize(size).save(tmp_path / "large.jpg", exif=exif)
    done = run_here("prepare.py", "large.jpg", "--out=faces", "--centre")
    assert done.returncode == 0, done.stderr
    (row,) = report_of(tmp_path)["manifest"]
    side = min(size)
    width, height = size if turn == 1 else size[::-1]
    assert row["box"] == [(width - side) // 2, (height - side) // 2, (width + side) // 2, (height + side) // 2, 0]
    assert (row["width"], row["height"]) == (side, side)


def test_in_the_folder_of_the_program_runs_are_no_faces_and_neither_is_what_a_killed_call_left(
    tmp_path: Path, run_here: Command
) -> None:
    for seed in range(3):
        synthetic_face(seed).save(tmp_path / f"{seed}.png")
    face, other = synthetic_face(3), synthetic_face(4)
    for name in ("a.gif", "b.gif"):  # the second is left out as a duplicate
        face.save(tmp_path / name, save_all=True, append_images=[other])
    for hidden in ("checkpoints/run/samples/step-00000100.png", ".out-0123abcd.tmp/new/0.png", "out/.DS_Store"):
        (tmp_path / hidden).parent.mkdir(parents=True, exist_ok=True)
        synthetic_face(5).save(tmp_path / hidden, "PNG")
    (tmp_path / ".out-0123abcd.lock").touch()
    for _ in range(2):  # its own faces in it are no source
        done = run_here("prepare.py", ".", "--out=out", "--report=../report.html")
        assert done.returncode == 0, done.stderr
    counts = report_of(tmp_path.parent)["counts"]
    assert counts == {"pictures": 5, "kept": 4, "oblong": 0, "other_files": 0}
    (copied,) = (tmp_path / "out").glob("*.gif")  # with all its frames
    assert copied.read_bytes() == (tmp_path / "a.gif").read_bytes()
    assert not list(tmp_path.glob(".out*"))


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="stops processes as POSIX does")
@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(KILL, marks=pytest.mark.slow)])
def test_stopped_and_called_again_it_ends_as_if_it_had_not_been(
    tmp_path: Path, run_here: Command, number: signal.Signals
) -> None:
    (tmp_path / "pile").mkdir()
    for seed in range(150):
        face = synthetic_face(seed, 64).resize((400, 400))
        face.save(tmp_path / f"pile/{seed:03d}.jpg", quality=95)
    words = ["prepare.py", "pile", "--out=faces", "--centre", "--keep=duplicate,near_duplicate,outlier"]
    (tmp_path / "one").mkdir()
    synthetic_face(0).save(tmp_path / "one/0.png")
    assert run_here("prepare.py", "one", "--out=faces").returncode == 0
    (tmp_path / "report.html").unlink()
    before = contents(tmp_path / "faces")
    command = [sys.executable, ROOT / words[0], *words[1:]]
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background jobs ignore it
    )
    deadline = time.monotonic() + 300
    while not list(tmp_path.glob(".faces-*/new/*.png")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.killpg(process.pid, number)
    _, errors = process.communicate(timeout=120)
    assert contents(tmp_path / "faces") == before
    assert not (tmp_path / "report.html").exists()
    if number == signal.SIGINT:
        assert process.returncode == 130
        assert errors.splitlines()[-1] == "prepare.py: interrupted"
        assert "Traceback" not in errors
        assert not list(tmp_path.glob(".faces*"))

    assert run_here(*words).returncode == 0

    assert len(list((tmp_path / "faces").glob("*.png"))) == 150
    assert not list(tmp_path.glob(".faces*"))
    again = contents(tmp_path / "faces")
    shutil.rmtree(tmp_path / "faces")
    assert run_here(*words).returncode == 0
    assert contents(tmp_path / "faces") == again


def test_where_most_pictures_are_not_square_it_asks_for_detect_and_says_how_far_it_is(
    tmp_path: Path, run_here: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepare, "SAY", -1.0)
    (tmp_path / "whole").mkdir()
    for i in range(5):
        face = Image.fromarray(synthetic.draw(i)[0]).resize((96, 96 + 30 * (i > 1)))
        face.save(tmp_path / f"whole/{i}.png")
    said = run_here("prepare.py", "whole", "--out=out").stdout
    assert "inspecting: 5 / 5\n" in said
    assert "most of them are not square, so they are hardly cut-out faces: --detect" in said
    assert json.loads((tmp_path / "report.json").read_text())["counts"]["oblong"] == 3


def test_grey_pictures_among_their_like_are_kept(tmp_path: Path, run_here: Command) -> None:
    (tmp_path / "manga").mkdir()
    for seed in range(5):
        (tmp_path / f"manga/{seed}.png").write_bytes(encoded(synthetic_face(seed).convert("L")))
    (tmp_path / "manga/5.png").write_bytes(encoded(synthetic_face(5)))
    done = run_here("prepare.py", "manga", "--dry_run")
    assert done.returncode == 0
    assert report_of(tmp_path)["counts"]["kept"] == 6
    assert "5 grey            kept" in done.stdout


def test_pictures_without_a_face_say_nothing_of_the_others_colours() -> None:
    kinds = ["faceless"] * 3 + ["grey"] * 2 + [""]
    faces = [cleaning.Candidate(cleaning.Picture(Path("pile"), f"{i}.png"), kind) for i, kind in enumerate(kinds)]
    for i, face in enumerate(faces):
        face.digest, face.brightness = bytes([i]), np.zeros(256, np.float16).tobytes()
        face.faults = {"grey": ""} if face.kind == "grey" else {}
    config = cleaning.PrepareConfig(sources=(Path("pile"),))
    assert prepare.select(faces, np.empty((0, 96, 96, 3), np.uint8), {}, config, [], ()) == (
        {"grey": 2, "faceless": 3},
        ["grey"],
    )


def test_grey_ones_are_left_out_where_most_have_colour_however_few_of_those_are_kept(
    tmp_path: Path, run_here: Command
) -> None:
    (tmp_path / "pile").mkdir()
    for seed in range(7):
        face = synthetic_face(seed, 96 if seed < 3 else 40)
        (tmp_path / f"pile/{seed}.png").write_bytes(encoded(face if seed else face.convert("L")))
    (tmp_path / "pile/1.png").write_bytes(encoded(synthetic_face(1).convert("L")))
    assert run_here("prepare.py", "pile", "--dry_run").returncode == 0
    assert report_of(tmp_path)["found"] == {"small": 4, "grey": 2}
    assert report_of(tmp_path)["counts"]["kept"] == 1


def test_a_black_bar_below_is_left_out_unless_it_is_wanted(tmp_path: Path, run_here: Command) -> None:
    (tmp_path / "pile").mkdir()
    for seed in range(3):
        face = synthetic_face(seed)
        face.paste((0, 0, 0), (0, 80, 96, 96))
        (tmp_path / f"pile/{seed}.png").write_bytes(encoded(face))
    words = "prepare.py", "pile", "--dry_run"
    assert run_here(*words).returncode == 0
    assert report_of(tmp_path)["found"] == {"unfinished": 3}
    assert run_here(*words, "--keep=unfinished").returncode == 0
    assert report_of(tmp_path)["counts"]["kept"] == 3


def test_outliers_are_found_where_others_before_them_cannot_be_read(
    tmp_path: Path, make_faces: Callable[..., list[Path]], run_here: Command
) -> None:
    make_faces(tmp_path / "pile", 205, size=64)
    (tmp_path / "pile/a.png").write_bytes(b"no picture")
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    Image.fromarray(noise).save(tmp_path / "pile/outlier.png")
    assert run_here("prepare.py", "pile", "--dry_run", "--keep=duplicate,near_duplicate").returncode == 0
    kinds = {Path(found["file"]).name: found["kind"] for found in report_of(tmp_path)["findings"]}
    assert kinds.pop("a.png") == "unreadable"
    assert kinds.pop("outlier.png") == "outlier"
    assert len(kinds) < 10
    assert set(kinds.values()) <= {"outlier"}


def test_pictures_of_the_same_name_elsewhere_are_others(tmp_path: Path, run_here: Command) -> None:
    for place, seeds in (("one", (0, 1)), ("two", (2, 3))):
        (tmp_path / place / "pics").mkdir(parents=True)
        for name, seed in enumerate(seeds):
            (tmp_path / place / f"pics/{name}.png").write_bytes(encoded(synthetic_face(seed)))
    assert run_here("prepare.py", "one/pics", "two/pics", "--out=faces").returncode == 0
    assert len(list((tmp_path / "faces").glob("*.png"))) == 4


def test_commands_to_copy_are_quoted(tmp_path: Path, run_here: Command) -> None:
    (tmp_path / "my pile").mkdir()
    (tmp_path / "my pile/0.png").write_bytes(encoded(synthetic_face(0)))
    done = run_here("prepare.py", "my pile", "--out=my faces")
    assert f"look:    open {tmp_path / 'report.html'} and delete bad faces from my faces\n" in done.stdout
    assert "python train.py --data_path='my faces' --init=released --budget=3\n" in done.stdout
    assert "if they are not drawn faces: --budget=60 instead of these options\n" in done.stdout


def test_the_first_picture_of_an_animation_and_what_exif_turns(tmp_path: Path, run_here: Command) -> None:
    frames = [synthetic_face(seed) for seed in range(3)]
    frames[0].save(tmp_path / "film.gif", save_all=True, append_images=frames[1:])
    turned = Image.Exif()
    turned[0x0112] = 6
    wide = Image.new("RGB", (160, 120), "white")
    wide.paste(synthetic_face(9).resize((120, 120)), (20, 0))
    wide.save(tmp_path / "turned.jpg", exif=turned)
    other = synthetic_face(10).resize((120, 120))
    wide.paste(other, (20, 0))
    wide.save(tmp_path / "turned-tiff.jpg", "TIFF", exif=turned)  # Pillow itself turns a TIFF while decoding it
    done = run_here("prepare.py", "film.gif", "turned.jpg", "turned-tiff.jpg", "--out=faces", "--centre")
    assert done.returncode == 0, done.stderr
    rows = report_of(tmp_path)["manifest"]
    assert [(row["width"], row["height"]) for row in rows] == [(96, 96), (120, 120), (120, 120)]
    with Image.open(tmp_path / "faces" / rows[2]["file"]) as face:
        assert np.array_equal(np.asarray(face), np.asarray(other.transpose(Image.Transpose.ROTATE_270)))
    for row in rows:
        with Image.open(tmp_path / "faces" / row["file"]) as face:
            assert face.size == (row["width"], row["height"])
            assert getattr(face, "n_frames", 1) == 1


CASCADE = """<?xml version="1.0"?><opencv_storage><cascade type_id="opencv-cascade-classifier">
<stageType>BOOST</stageType><featureType>HAAR</featureType><height>20</height><width>20</width>
<stageParams><maxWeakCount>1</maxWeakCount></stageParams><featureParams><maxCatCount>0</maxCatCount></featureParams>
<stageNum>1</stageNum><stages><_><maxWeakCount>1</maxWeakCount><stageThreshold>0.5</stageThreshold><weakClassifiers>
<_><internalNodes>0 -1 0 1.2</internalNodes><leafValues>0. 1.</leafValues></_></weakClassifiers></_></stages>
<features><_><rects><_>0 0 20 20 -1.</_><_>5 5 10 10 4.</_></rects><tilted>0</tilted></_></features>
</cascade></opencv_storage>"""
"""Finds what is bright in the middle and dark around it."""


def test_a_cascade_that_opencv_cannot_open_by_its_name_is_read_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cv2 = pytest.importorskip("cv2")
    path = tmp_path / "动漫.xml"
    path.write_text(CASCADE)
    classifier = cv2.CascadeClassifier  # on Windows it is empty then
    monkeypatch.setattr(cv2, "CascadeClassifier", lambda *name: classifier())
    detection.detector.cache_clear()
    assert detection.cascade(path) == path
    pixels = np.zeros((40, 40), np.uint8)
    pixels[10:30, 10:30] = 255
    assert len(detection.detector(path).detectMultiScale(pixels, 1.1, 0))
    detection.detector.cache_clear()


def two_faces(folder: Path) -> None:
    """Write the cascade and a picture in which it finds two faces."""
    (folder / "bright.xml").write_text(CASCADE)
    scene = Image.new("RGB", (600, 300), (20, 30, 60))
    for x, colour in ((100, (250, 220, 200)), (400, (220, 250, 210))):
        ImageDraw.Draw(scene).rectangle((x, 110, x + 79, 189), fill=colour)
    scene.save(folder / "scene.png")


def test_detected_faces_are_cut_with_a_margin_a_file_each(tmp_path: Path, run_here: Command) -> None:
    pytest.importorskip("cv2")
    two_faces(tmp_path)
    Image.new("RGB", (200, 200), "black").save(tmp_path / "nobody.png")
    words = [
        "scene.png",
        "nobody.png",
        "--out=faces",
        "--detect=bright.xml",
        "--keep=near_duplicate,blank,grey",
    ]

    done = run_here("prepare.py", *words, "--margin=0.1", "--min_size=100")

    assert done.returncode == 0, done.stderr
    report = report_of(tmp_path)
    assert report["found"]["faceless"] == 1
    boxes = [row["box"] for row in report["manifest"]]
    assert len(boxes) == 2
    for (left, top, right, bottom, angle), x in zip(boxes, (140, 440), strict=True):
        assert right - left == bottom - top >= 100
        assert angle == 0
        assert left < x < right
        assert top < 150 < bottom
    for row in report["manifest"]:
        with Image.open(tmp_path / "faces" / row["file"]) as face:
            assert face.size == (row["width"], row["height"])


def test_a_face_that_the_user_deleted_stays_out_with_another_margin(tmp_path: Path, run_here: Command) -> None:
    pytest.importorskip("cv2")
    two_faces(tmp_path)
    words = "scene.png", "--out=faces", "--detect=bright.xml", "--min_size=100"

    def found(*more: str) -> tuple[int, int]:
        done = run_here("prepare.py", *words, "--keep=near_duplicate,blank,grey" + "".join(more[1:]), more[0])
        assert done.returncode == 0, done.stderr
        return report_of(tmp_path)["found"].get("deleted", 0), report_of(tmp_path)["counts"]["kept"]

    assert found("--margin=0.1") == (0, 2)
    next((tmp_path / "faces").glob("*.png")).unlink()
    assert found("--margin=0.2") == found("--margin=0.1") == (1, 1)
    assert found("--margin=0.2", ",deleted") == (1, 2)
    assert found("--margin=0.3") == (0, 2)


def test_a_copy_is_shown_beside_the_face_of_a_picture_that_it_is_a_copy_of() -> None:
    two, one = (cleaning.Picture(Path("pile"), name) for name in ("two.png", "one.png"))
    faces = [  # of the first picture two faces, of the second a copy of the first of them
        cleaning.Candidate(two, size=(96, 96), digest=b"a"),
        cleaning.Candidate(two, size=(96, 96), digest=b"b", hashes=(2**64 - 1, 2**64 - 1)),
        cleaning.Candidate(one, size=(96, 96), digest=b"a"),
    ]
    for face in faces:
        face.brightness = np.zeros(256, np.float16).tobytes()
    cleaning.mark_duplicates(faces)
    assert [face.kind for face in faces] == ["", "", "duplicate"]
    assert faces[2].original is faces[0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "nothing to prepare; name a folder"),
        (["pile", ""], "an empty word stands where a folder"),
        (["gone"], "gone does not exist; expected a folder"),
        (["empty"], "no pictures in empty"),
        (["pile", "--out=pile"], "--out=pile is, or contains, the source pile"),
        (["pile", "--out=pile/blue"], "pile/blue/0.png was not written by prepare.py, or was changed since"),
        (["pile/blue", "--out=pile"], "--out=pile is, or contains, the source pile/blue"),
        (["pile", "--out=pile/blue/0.png"], "is a file; expected a folder"),
        (["pile", "--keep=grey,unreadable"], "--keep: expected some of small, narrow"),
        (
            ["--detect", "pile"],
            "nothing to prepare; name a folder, a zip or pictures: python prepare.py FOLDER --detect",
        ),
        (["pile", "--detect=x.xml", "--centre"], "--detect and --centre both say what to cut"),
        (["pile", "--margin=0.5"], "--margin is for --detect; leave it out, or add --detect"),
        (["pile", "--detect=gone.xml"], "gone.xml does not exist; for people there are"),
        (["pile", "--detect=pile/blue/0.png"], "is not a cascade that OpenCV can read"),
        (["pile", "--report=pile/blue/report.html"], "pile/blue/report.html would lie in a source"),
        (["pile", "--report=mine.html"], "mine.html exists and is not a report of prepare.py"),
        (["pile", "--report=other.html"], "other.json exists and is not a report of prepare.py"),
        (["pile", "--report=data/faces/report.html"], "or in --out, which holds faces alone; give another place"),
        (["pile", "--out=taken"], "taken/manifest.json was not written by prepare.py, or was changed since"),
        (["pile", "--report=mine.html/report.html"], "--report: Not a directory; give another path; got 'mine"),
        (["pile", "--report=report.txt"], "--report: expected a name ending in .html"),
        (["pile", "--keeep=grey"], "did you mean --keep?"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_nothing_is_written(
    pile: Path, tmp_path: Path, run_here: Command, words: list[str], said: str
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "mine.html").write_text("<p>mine</p>")
    (tmp_path / "other.json").write_text("[]")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken/manifest.json").write_text('{"name": "of another program"}')
    before = contents(tmp_path)
    done = run_here("prepare.py", *words)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("prepare.py: ")
    assert said in line
    assert contents(tmp_path) == before


def test_the_folder_where_the_user_is_is_not_made_afresh(pile: Path, tmp_path: Path, run_here: Command) -> None:
    (tmp_path / "faces").mkdir()
    done = run_here("prepare.py", "../pile", "--out=.", "--report=../report.html", cwd=tmp_path / "faces")
    assert done.returncode == 2
    assert "--out=. is, or contains, the folder where you are" in done.stderr


def test_what_may_be_kept_is_every_kind_but_those_that_cannot_be_read() -> None:
    assert set(KINDS) - set(KEEPABLE) == {"refused", "unreadable", "truncated", "faceless"}
    assert set(KEEPABLE) < set(KINDS)


def test_training_names_it_where_there_is_something_to_gain(pile: Path, run_here: Command) -> None:
    words = (
        "--nogpu --noprojected --image_size=32 --ngf=4 --ndf=4 --batch_size=4 --max_epoch=1 --precision=fp32".split()
    )
    shutil.rmtree(pile / "zz")
    (pile / "more.zip").unlink()
    done = run_here("train.py", "--data_path=pile", "--run=a", *words)
    assert done.returncode == 0, done.stderr
    assert "prepare.py" not in done.stdout
    shutil.copy(pile / "blue/1.png", pile / "blue/copy.png")
    (pile / "blue/broken.jpg").write_bytes(b"no picture")
    done = run_here("train.py", "--data_path=pile", "--run=b", *words)
    assert "files rejected: 1: blue/broken.jpg (not a picture of a known format); " in done.stdout
    assert "exact duplicates of other faces: 1\n" in done.stdout
    assert "python prepare.py pile --out=FOLDER" in done.stdout


def test_labels_are_guessed(tmp_path: Path, run_here: Command) -> None:
    (tmp_path / "pile" / "sub").mkdir(parents=True)
    shown = {f"{seed}": synthetic.draw(seed, 96)[1] for seed in range(40)}
    for seed in range(40):
        (tmp_path / "pile" / ("sub" if seed % 2 else ".") / f"{seed}.png").write_bytes(encoded(synthetic_face(seed)))
    words = ["prepare.py", "pile", "--out=faces"]
    done = run_here(*words, "--label=hair,eyes")
    assert done.returncode == 0, done.stderr
    table = tmp_path / "faces" / "labels.csv"
    assert table.read_bytes().startswith(b"\xef\xbb\xbffile,hair,eyes\n")  # Excel reads the names as UTF-8
    rows = list(csv.DictReader(table.read_text(encoding="utf-8-sig").splitlines()))
    files = {str(path.relative_to(tmp_path / "faces")) for path in (tmp_path / "faces").rglob("*.png")}
    assert {row["file"] for row in rows} == files
    assert 20 < sum(bool(row["hair"]) for row in rows) <= len(rows)
    black = [row["hair"] for row in rows if row["hair"] and shown[Path(row["file"]).name.split("-")[0]].hair == "black"]
    assert black
    assert set(black) == {"black"}
    report = report_of(tmp_path)
    assert report["labels"][rows[0]["file"]]["hair"][0] == rows[0]["hair"]
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    chip = cleaning_report.CHIPS["black"]
    assert f'<i style="background: {chip}"></i>\n<span>black <small>{len(black)}</small>' in page
    number = sum(bool(row["hair"]) for row in rows)
    assert re.search(rf"{number} of {len(rows)} faces have a label for hair in faces/labels.csv", done.stdout)

    assert run_here(*words, "--label=hair").returncode == 0
    assert table.read_text(encoding="utf-8-sig").splitlines()[0] == "file,hair"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--label=hairs"], "--label: expected some of hair, eyes; got 'hairs'"),
        (["--label=hair", "--dry_run"], "--label writes labels.csv beside the faces, and --dry_run writes none"),
    ],
)
def test_labels_that_cannot_be_guessed_are_refused(words: list[str], said: str, run_here: Command) -> None:
    refused = run_here("prepare.py", "pile", "--out=faces", *words)
    assert refused.returncode == 2
    assert said in refused.stderr
