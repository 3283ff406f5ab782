"""Labels: where they are found, and everything that can be wrong with them."""

import unicodedata
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from config import SYNTHETIC, DataError
from gan.data import labels, synthetic
from gan.data.faces import open_pack
from gan.data.labels import FEWEST, LEAST, Labels, labels_of
from gan.language import speaking

SIZE = 32


def put(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        random = np.random.default_rng([*name.encode()])
        Image.fromarray(random.integers(0, 256, (SIZE, SIZE, 3), dtype=np.uint8)).save(path)


def found(folder: Path, wanted: bool | None = None, said: list[str] | None = None) -> Labels | None:
    log: Callable[[str], None] = (said if said is not None else []).append
    pack = open_pack(folder, SIZE, folder.parent / "packs", num_workers=1, log=lambda text: None)
    return labels_of(pack, folder, wanted, log)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Twelve faces a.png to l.png."""
    put(tmp_path / "faces", *(f"{letter}.png" for letter in "abcdefghijkl"))
    return tmp_path / "faces"


def table(folder: Path, text: str) -> None:
    (folder / labels.FILE).write_text(text, encoding="utf-8")


def full(column: str = "hair", value: str = "red") -> str:
    return "\n".join([f"file,{column}", *(f"{letter}.png,{value}" for letter in "abcdefghijkl")])


def test_folders_with_enough_faces_are_classes_unasked(tmp_path: Path) -> None:
    put(tmp_path / "faces", *(f"{kind}/{i}.png" for kind in ("b", "a/deeper") for i in range(LEAST)))
    said: list[str] = []
    assert (of := found(tmp_path / "faces", said=said)) is not None
    assert of[0] == (("class", "a", "b"),)
    assert of[1][:, 0].tolist() == [1] * LEAST + [2] * LEAST
    assert said == ["learning 2 classes of class (100 of 100 faces have one): a, b; without: --noclasses"]
    assert found(tmp_path / "faces", False) is None


def test_blanks_around_the_name_of_a_folder_are_none_of_the_class(tmp_path: Path) -> None:
    put(tmp_path / "faces", *(f"{kind}/{i}.png" for kind in ("a ", "b") for i in range(LEAST)))
    assert (of := found(tmp_path / "faces")) is not None
    assert of[0] == (("class", "a", "b"),)


@pytest.mark.parametrize("names", [["a/0.png"], ["1.png"]])
def test_small_folders_and_faces_outside_of_them_are_classes_only_where_asked(tmp_path: Path, names: list[str]) -> None:
    put(tmp_path / "faces", *(f"{kind}/{i}.png" for kind in "bc" for i in range(LEAST)), *names)
    said: list[str] = []
    assert found(tmp_path / "faces", said=said) is None
    why = "a has only 1 faces, fewer than 50" if names == ["a/0.png"] else "1 of the faces lie outside of them"
    folders = f"the {len(names[0].split('/')) + 1} folders of {tmp_path / 'faces'}"
    assert said == [f"{folders} are not used as classes: {why}; --classes uses them"]
    said.clear()
    assert (of := found(tmp_path / "faces", True, said)) is not None
    assert of[0] == (("class", "b", "c"),)
    assert (of[1] == 0).sum() == 1
    assert ("a (1): fewer than" in said[0]) == (names == ["a/0.png"])


def test_a_folder_of_zips_is_no_class_and_neither_is_a_single_folder(tmp_path: Path) -> None:
    put(tmp_path / "one", *(f"a/{i}.png" for i in range(LEAST)))
    for name in ("x.zip", "y.zip"):
        (tmp_path / "faces").mkdir(exist_ok=True)
        with zipfile.ZipFile(tmp_path / "faces" / name, "w") as archive:
            for path in (tmp_path / "one" / "a").iterdir():
                archive.write(path, f"in-{name}/{path.name}")
    assert found(tmp_path / "faces") is None
    assert found(tmp_path / "one") is None
    with pytest.raises(DataError, match=r"--classes: .* has no labels; expected a folder for each class"):
        found(tmp_path / "faces", True)


def test_a_table_labels_several_columns_and_may_leave_cells_empty(folder: Path) -> None:
    rows = [f"{letter}.png,{'blue' if letter < 'l' else ''},green" for letter in "lkjihgfedcba"]
    table(folder, "\n".join(["file,hair,eyes", *rows]))
    assert (of := found(folder)) is not None
    assert of[0] == (("hair", "blue"), ("eyes", "green"))
    assert of[1].tolist() == [[1, 1]] * 11 + [[0, 1]]


def test_a_table_names_faces_in_zips_as_if_these_were_folders(tmp_path: Path, folder: Path) -> None:
    zipped = tmp_path / "zips"
    zipped.mkdir()
    with zipfile.ZipFile(zipped / "all.zip", "w") as archive:
        for path in folder.iterdir():
            archive.write(path, f"faces/{path.name}")
    table(zipped, "\n".join(["file,hair", *(f"all.zip/faces/{letter}.png,red" for letter in "abcdefghijkl")]))
    assert (of := found(zipped)) is not None
    assert of[1].tolist() == [[1]] * 12


def test_a_table_finds_faces_whose_names_are_written_in_another_way(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "zips" / "sub").mkdir(parents=True)
    with zipfile.ZipFile(tmp_path / "zips" / "sub" / "all.ZIP", "w") as archive:
        for path in sorted(folder.iterdir())[:6]:
            archive.write(path, f"./{path.name}")  # as tar writes them
        for path in sorted(folder.iterdir())[6:]:
            archive.write(path, unicodedata.normalize("NFD", f"é-{path.name}"))  # as macOS does
    rows = [f"sub/all.ZIP/{letter}.png,red" for letter in "abc"] + [f"./sub/all.ZIP/./{it}.png,red" for it in "def"]
    rows += [f"sub/all.ZIP/é-{letter}.png,red" for letter in "ghijkl"]
    table(tmp_path / "zips", "\n".join(["file,hair", *rows]))
    said: list[str] = []
    assert (of := found(tmp_path / "zips", said=said)) is not None
    assert of[1].tolist() == [[1]] * 12
    assert len(said) == 1


@pytest.mark.parametrize("encoding", ["gb2312", "utf-8"])
def test_a_table_finds_faces_in_zips_that_do_not_state_their_encoding(
    tmp_path: Path, folder: Path, encoding: str
) -> None:
    zips = "全部.zip"
    zipped = tmp_path / "zips" / zips
    zipped.parent.mkdir()
    stored = "头像/".encode(encoding)
    with zipfile.ZipFile(zipped, "w") as archive:
        for path in folder.iterdir():
            archive.write(path, "x" * len(stored) + path.name)
    zipped.write_bytes(zipped.read_bytes().replace(b"x" * len(stored), stored))
    table(zipped.parent, "\n".join(["file,hair", *(f"{zips}/头像/{letter}.png,red" for letter in "abcdefghijkl")]))
    assert (of := found(zipped.parent)) is not None
    assert of[1].tolist() == [[1]] * 12


def test_labels_one_folder_below_are_pointed_at(tmp_path: Path) -> None:
    data, faces, said = tmp_path / "data", tmp_path / "data" / "faces", list[str]()
    put(faces, *(f"{kind}/{i}.png" for kind in ("a", "b") for i in range(LEAST)))
    assert found(data, said=said) is None
    assert said == [f"the folders of {faces} are used as classes only with --data_path={faces}"]
    assert found(faces) is not None
    put(faces, "c/0.png")  # too few for a class
    said.clear()
    assert found(data, said=said) is None
    assert said == []
    (faces / labels.FILE).write_text("file,hair\nc/0.png,red")
    assert found(data, said=said) is None
    assert said == [f"{faces / labels.FILE} is used only with --data_path={faces}"]


def test_a_link_that_cannot_be_followed_is_no_class(tmp_path: Path) -> None:
    put(tmp_path / "faces", "0.png", "1.png")
    (tmp_path / "faces" / "old").symlink_to("x" * 300)  # an error, like a link into a forbidden folder
    assert found(tmp_path / "faces") is None


def test_rejected_pictures_have_no_label_and_shift_no_other(folder: Path) -> None:
    (folder / "c.png").write_bytes(b"broken")
    table(folder, full().replace("d.png,red", "d.png,"))
    assert (of := found(folder)) is not None
    assert of[1][:, 0].tolist() == [1, 1, 0] + [1] * 8  # a, b, d, ...


def test_what_counts_for_nothing_is_said(folder: Path) -> None:
    text = full().replace("a.png,red", "a.png,blue").splitlines()
    table(
        folder, "\n".join([f"{line},{'eyes' if line.startswith('file') else ''}" for line in text] + ["gone.png,red,"])
    )
    said: list[str] = []
    assert (of := found(folder, said=said)) is not None
    assert of[0] == (("hair", "red"),)
    assert of[1][0, 0] == 0
    assert "1 of 13 files are not among the faces, such as gone.png" in said[0]
    assert said[1] == f"hair: blue (1): fewer than {FEWEST} faces each, too few for a class; they count as unlabelled"
    assert said[3] == "eyes: no class is large enough; the column is ignored"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "its first line is ''"),
        ("file\na.png", "its first line is 'file'"),
        ("id,breed\na,poodle", "its first line is 'id,breed'"),
        ("file,hair,hair\na.png,red,red", "its first line"),
        ("file,hair\na.png,red,blue", "line 2 has 3 fields, the first has 2"),
        ('file,hair\n"a.png,red', "cannot be read"),
        ("file,hair\nother/a.png,red", "none of its 1 files is among the faces; got other/a.png"),
        ("file,hair", "none of its 0 files"),
    ],
)
def test_a_table_that_cannot_be_used_is_refused(folder: Path, text: str, why: str) -> None:
    table(folder, text)
    with pytest.raises(DataError) as refused:
        found(folder)
    assert why in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_table_in_another_encoding_is_refused(folder: Path) -> None:
    (folder / labels.FILE).write_bytes("file,hair\na.png,黒".encode("shift-jis"))
    with pytest.raises(DataError, match="cannot be read"):
        found(folder)


def test_only_small_classes_are_none(folder: Path) -> None:
    table(folder, "file,hair\na.png,red\nb.png,blue")
    assert found(folder) is None
    with pytest.raises(DataError, match=f"no class in .* has {FEWEST} faces"):
        found(folder, True)


def test_synthetic_faces_have_labels_where_they_are_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synthetic, "FACES", 200)
    pack = open_pack(SYNTHETIC, SIZE, tmp_path, num_workers=1, log=lambda text: None)
    assert labels_of(pack, SYNTHETIC, None) is None
    of = labels_of(pack, SYNTHETIC, True, lambda text: None)
    assert of is not None
    (vocabulary, codes), shown = of, [synthetic.draw(seed, SIZE)[1] for seed in range(200)]
    assert [names[0] for names in vocabulary] == ["hair", "eyes"]
    for column, name in enumerate(("hair", "eyes")):
        named = [vocabulary[column][code] for code in codes[:, column]]
        assert all(text in (getattr(one, name), name) for text, one in zip(named, shown, strict=True))
    assert (codes > 0).mean() > 0.8


def test_pictures_that_change_once_they_are_packed_shift_no_label(folder: Path) -> None:
    pack = open_pack(folder, SIZE, folder.parent / "packs", num_workers=1, log=lambda text: None)
    table(folder, full().replace("l.png,red", "l.png,"))
    (folder / "a.png").rename(folder / "z.png")
    assert (of := labels_of(pack, folder, None)) is not None
    assert of[1][:, 0].tolist() == [1] * 11 + [0]


def test_names_that_cannot_be_read_are_told_in_one_line(folder: Path) -> None:
    pack = open_pack(folder, SIZE, folder.parent / "packs", num_workers=1, log=lambda text: None)
    table(folder, full())
    for break_it in ((pack.folder / "names.json").unlink, lambda: (pack.folder / "names.json").write_text('["a.png')):
        break_it()
        with pytest.raises(DataError, match=r"the pack .* is damaged .*; delete it, and the next run makes it again"):
            labels_of(pack, folder, None)


@pytest.mark.parametrize("kinds", [("00000", "01000"), ("train", "Test")])
def test_parts_of_a_set_are_no_classes_unasked(tmp_path: Path, kinds: tuple[str, str]) -> None:
    put(tmp_path / "faces", *(f"{kind}/{i}.png" for kind in kinds for i in range(LEAST)))
    said: list[str] = []
    assert found(tmp_path / "faces", said=said) is None
    assert said == [f"the 2 folders of {tmp_path / 'faces'} are not used as classes; --classes uses them"]
    assert found(tmp_path / "faces", True) is not None


def test_a_face_that_comes_twice_is_refused(folder: Path) -> None:
    table(folder, full() + "\na.png,blue")
    with pytest.raises(DataError, match=r"lines 2 and 14 both name a\.png; keep one of them"):
        found(folder)


def test_a_table_that_excel_saved_on_a_chinese_windows_is_read(folder: Path) -> None:
    (folder / labels.FILE).write_bytes(full("发色", "蓝").encode("gbk"))
    with pytest.raises(DataError, match="cannot be read"):  # elsewhere it may be anything
        found(folder)
    said: list[str] = []
    with speaking("zh"):
        assert (of := found(folder, said=said)) is not None
        assert of[0] == (("发色", "蓝"),)
        assert said[0] == f"{folder / labels.FILE}：不是 UTF-8 编码，已按 GBK 读取"
        (folder / labels.FILE).write_bytes(b"file,hair\na.png,\xff\xff\n")
        with pytest.raises(DataError, match="cannot be read"):
            found(folder)


def test_a_line_is_counted_as_an_editor_counts_it(folder: Path) -> None:
    table(folder, 'file,hair\na.png,"dark\nred"\nb.png')
    with pytest.raises(DataError, match="line 4 has 1 fields, the first has 2"):
        found(folder)


def test_lines_without_anything_and_spaces_before_quotes_do_no_harm(folder: Path) -> None:
    table(folder, full().replace("a.png,red", 'a.png, "red"') + "\n,\n\n")
    assert (of := found(folder)) is not None
    assert of[1][:, 0].tolist() == [1] * 12


def test_faces_of_the_same_name_in_several_zips_have_labels_of_their_own(tmp_path: Path, folder: Path) -> None:
    zipped = tmp_path / "zips"
    zipped.mkdir()
    for name in ("a.zip", "b.ZIP"):
        with zipfile.ZipFile(zipped / name, "w") as archive:
            for path in folder.iterdir():
                if path.name != "l.png" or name == "b.ZIP":
                    archive.write(path, path.name)
    put(zipped, "l.png")
    rows = [f"b.ZIP/{letter}.png,red" for letter in "abcdefghijkl"] + ["l.png,red"]
    table(zipped, "\n".join(["file,hair", *rows]))
    assert (of := found(zipped)) is not None
    assert of[1][:, 0].tolist() == [0] * 11 + [1] * 13  # a.zip, b.ZIP, and the file of that name


def test_classes_are_those_of_the_faces_to_train_on(folder: Path) -> None:
    texts = {"hair": ["red"] * 10 + ["blue"] * 10 + ["green"] * 10}
    said: list[str] = []
    of = labels.learned(texts, np.arange(5, 30), folder, None, said.append)
    assert of is not None
    assert of[0] == (("hair", "blue", "green"),)
    assert of[1][:, 0].tolist() == [0] * 10 + [1] * 10 + [2] * 10
    assert "hair: red (5): fewer than" in said[0]
    assert "(20 of 25 faces have one)" in said[1]


def test_labels_are_translated_by_name() -> None:
    codes = np.array([[1, 1], [2, 0], [0, 2]])
    own = (("eyes", "green", "grey"), ("hair", "blue", "red"))
    other = (("hair", "red", "black"), ("eyes", "grey", "green"), ("mouth", "open"))
    assert labels.translated((own, codes), other).tolist() == [[0, 2, 0], [0, 1, 0], [1, 0, 0]]
