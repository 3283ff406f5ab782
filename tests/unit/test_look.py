"""Sheets for the eye, planted faults, and what is made of filled forms."""

import argparse
import csv
import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from benchmarks import look
from config import DataError

pytest.importorskip("cv2")  # of requirements-extra.txt
faults = pytest.importorskip("benchmarks.faults")

PAGE = (Path(__file__).resolve().parents[2] / "docs/look.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def synthetic_faces(tmp_path_factory: pytest.TempPathFactory, make_faces: Callable[..., list[Path]]) -> np.ndarray:
    """Twelve synthetic faces, (12, 96, 96, 3)."""
    folder = tmp_path_factory.mktemp("faces")
    return np.stack([np.asarray(Image.open(path)) for path in make_faces(folder, 12, suffix=".png")])


@pytest.mark.parametrize("kind", list(faults.FAULTS))
def test_a_fault_changes_every_face_and_only_where_it_says(synthetic_faces: np.ndarray, kind: str) -> None:
    places = faults.eyes(synthetic_faces)
    spoilt = faults.FAULTS[kind](synthetic_faces, places, np.random.default_rng(0))
    assert (spoilt.shape, spoilt.dtype) == (synthetic_faces.shape, np.uint8)
    changed = (spoilt != synthetic_faces).any(3)
    assert changed.any((1, 2)).all()
    assert np.array_equal(spoilt, faults.FAULTS[kind](synthetic_faces, places, np.random.default_rng(0)))
    if kind in faults.PLANTED:  # an eye: the lower edge and the forehead stay
        assert not changed[:, :8].any()
        assert not changed[:, -8:].any()
        assert changed.mean((1, 2)).max() < 0.15


def test_eyes_are_looked_for_where_they_are_on_either_side(synthetic_faces: np.ndarray) -> None:
    places = faults.eyes(synthetic_faces)
    assert (places[:, 0, 1] < places[:, 1, 1]).all()
    assert (np.abs(places[:, :, 0] - 45) < 20).all()


def options(**others: object) -> argparse.Namespace:
    defaults = {"generators": [], "cells": 10, "real": 5, "planted": 8, "faint": "", "seed": 0, "enlarge": False}
    return argparse.Namespace(**{**defaults, **others})


def test_sheets_hide_what_is_what_and_the_key_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_faces: Callable[..., list[Path]], synthetic_faces: np.ndarray
) -> None:
    class Sampler:
        def faces(self, seeds: range) -> list[np.ndarray]:
            return [synthetic_faces[[seed % 12]] for seed in seeds]

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(look.sampling, "load", lambda *_: Sampler())
    make_faces(tmp_path / "faces", 30)
    for out, faint in (("a", ""), ("b", "2,7")):
        look.draw(options(data_path=Path("faces"), out=Path(out), generators=["g=x.pt"], faint=faint))
    key = json.loads((tmp_path / "a/key.json").read_text())
    kinds = [cell["is"] for cell in key.values()]
    assert (kinds.count("g"), kinds.count("real"), sum(kind.startswith("planted") for kind in kinds)) == (10, 5, 8)
    assert kinds != sorted(kinds)
    with open(tmp_path / "a/form.csv") as file:
        assert [row["cell"] for row in csv.DictReader(file)] == list(key)
    sheets = sorted((tmp_path / "a/sheets").iterdir())
    assert len(sheets) == 2
    cell = next(name for name, what in key.items() if what["which"] == "seed 3")
    number, place = map(int, cell.split("-"))
    with Image.open(sheets[number - 1]) as sheet:
        step, row, column = look.ENLARGED + look.EDGE, (place - 1) // 4, (place - 1) % 4
        left, top = column * step + look.EDGE, row * (step + look.HEAD) + look.EDGE + look.HEAD
        shown = sheet.crop((left, top, left + look.ENLARGED, top + look.ENLARGED)).resize(
            (96, 96), Image.Resampling.BOX
        )
    assert np.abs(np.asarray(shown).astype(int) - synthetic_faces[3]).mean() < 8
    planted = [what for what in json.loads((tmp_path / "b/key.json").read_text()).values() if "planted" in what["is"]]
    assert sorted(what["which"] for what in planted) == [f"number {n}" for n in (1, 3, 4, 5, 6, 8)]


def form(path: Path, said: dict[str, int]) -> Path:
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([("cell", "broken", "real"), *((cell, value, "") for cell, value in said.items())])
    return path


def test_forms_are_counted_and_a_careless_look_does_not_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kinds = ["g"] * 20 + ["real"] * 10 + ["planted: eye moved"] * 5
    key = {f"{n:03d}-01": {"is": kind, "which": ""} for n, kind in enumerate(kinds)}
    (tmp_path / "key.json").write_text(json.dumps(key))
    good = {cell: int("planted" in what["is"] or n < 5) for n, (cell, what) in enumerate(key.items())}
    blind = {cell: int(n < 7) for n, cell in enumerate(key)}
    forms = [form(tmp_path / "good.csv", good), form(tmp_path / "blind.csv", blind)]
    look.count(options(out=tmp_path, forms=forms, taken=False, pair=None))
    said = capsys.readouterr().out
    assert "good.csv: found 5 of 5 planted, called 0 of 10 real ones broken: this look counts" in said
    assert "blind.csv: found 0 of 5 planted, called 0 of 10 real ones broken: this look DOES NOT COUNT" in said
    assert "| g | 20 | 5 | 7 | 30.0% (14.5% to 51.9%) | 90%, 0.76 |" in said
    form(tmp_path / "half.csv", dict(list(good.items())[:3]))
    with pytest.raises(SystemExit, match="expected 0 or 1 under broken for each cell; not so for 32"):
        look.count(options(out=tmp_path, forms=[tmp_path / "half.csv"], taken=False, pair=None))


def test_what_was_taken_for_real_is_kept_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look, "ANSWERS", tmp_path / "looks.csv")
    monkeypatch.setattr(look, "TAKEN", tmp_path / "taken.csv")
    (tmp_path / "key.json").write_text(json.dumps({"001-01": {"is": "g", "which": "seed 3"}}))
    forms = [tmp_path / "one.csv", tmp_path / "two.csv"]
    for path, said in zip(forms, (0, 1), strict=True):
        path.write_text(f"cell,broken,real\n001-01,,{said}\n")
    look.count(options(out=tmp_path, forms=forms, taken=True, pair=9))
    assert (tmp_path / "taken.csv").read_text() == "9,g,3,0,1\n"
    assert not (tmp_path / "looks.csv").exists()


def test_answers_are_added_to_those_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look, "ANSWERS", tmp_path / "looks.csv")
    (tmp_path / "looks.csv").write_text("pair,faces,which,look 1,look 2\n7,g,0,1,1\n8,real,,0,1\n")
    cells = [("real", "face 9"), ("g", "seed 10"), ("g", "seed 9"), ("planted: eye moved", "number 3")]
    key = {f"001-{n:02d}": {"is": kind, "which": which} for n, (kind, which) in enumerate(cells)}
    (tmp_path / "key.json").write_text(json.dumps(key))
    forms = [
        form(tmp_path / f"{n}.csv", dict(zip(key, said, strict=True)))
        for n, said in enumerate(([0, 1, 0, 1], [0, 1, 1, 1]))
    ]
    look.count(options(out=tmp_path, forms=forms, taken=False, pair=8))
    added = (tmp_path / "looks.csv").read_text().splitlines()[3:]
    assert added == ["8,g,9,0,1", "8,g,10,1,1", "8,planted: eye moved,3,1,1", "8,real,,0,0"]  # no real face is named
    said = look.answered({8})
    assert said[8, "g"].tolist() == [[0, 1], [1, 1]]
    assert said[8, "real"].tolist() == [[0, 0], [1, 0]]
    assert (7, "g") not in said


def test_the_page_of_looks_says_what_the_answers_say() -> None:
    rows = [re.split(r"\s*\|\s*", line)[1:-1] for line in re.findall(r"^\| \d.*", PAGE, re.MULTILINE)]
    said = look.answered({int(pair) for pair, *_ in rows})
    assert len(rows) > 10
    for pair, generator, sums, *summary in rows:
        cells = int(pair), re.findall(r"\(([^()]+)\)$", generator)[0]
        one, other = said[cells].sum(1)
        assert sums == f"{one}, {other} of {said[cells].shape[1]}"
        assert tuple(summary) == look.summary(said[cells])


def test_the_interval_is_wilsons() -> None:
    assert look.interval(0.5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-4)
    assert look.interval(0.0, 20) == pytest.approx((0, 0.1611), abs=1e-4)


def test_agreement_is_beyond_chance() -> None:
    one, other = np.array([1, 1, 0, 0] * 5), np.array([1, 0, 1, 0] * 5)
    assert look.kappa(one, one) == 1
    assert look.kappa(one, other) == 0
    assert look.kappa(np.zeros(4), np.zeros(4)) == 1


def test_a_folder_of_pictures_is_taken_in_the_order_of_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_faces: Callable[..., list[Path]]
) -> None:
    monkeypatch.chdir(tmp_path)
    make_faces(tmp_path / "faces", 30)
    paths = sorted(make_faces(tmp_path / "peer", 12, suffix=".png"))
    look.draw(options(data_path=Path("faces"), out=Path("out"), generators=["peer=peer"], real=0, planted=0))
    key = json.loads((tmp_path / "out/key.json").read_text())
    assert sorted(cell["which"] for cell in key.values()) == sorted(f"seed {n}" for n in range(10))
    cell = next(name for name, what in key.items() if what["which"] == "seed 7")
    place = int(cell.split("-")[1]) - 1
    left = place % 4 * (look.ENLARGED + look.EDGE) + look.EDGE
    top = place // 4 * (look.ENLARGED + look.EDGE + look.HEAD) + look.EDGE + look.HEAD
    with Image.open(tmp_path / "out/sheets/sheet-001.png") as sheet, Image.open(paths[7]) as face:
        shown = sheet.crop((left, top, left + look.ENLARGED, top + look.ENLARGED)).resize(face.size)
        assert np.abs(np.asarray(shown, float) - np.asarray(face, float)).mean() < 6
    for path in paths[9:]:
        path.unlink()
    with pytest.raises(DataError, match="peer: expected 10 pictures or more; found 9"):
        look.draw(options(data_path=Path("faces"), out=Path("out"), generators=["peer=peer"], real=0, planted=0))


def test_cells_are_enlarged_where_that_is_asked_for(synthetic_faces: np.ndarray) -> None:
    faces = list(synthetic_faces[:2])
    large, usual = look.sheet(faces, enlarge=True), look.sheet(faces)
    assert large.width == 4 * (384 + look.EDGE) + look.EDGE
    cell = np.asarray(large)[look.EDGE + look.HEAD :][:384, look.EDGE :][:, :384].astype(int)
    small = cell.reshape(96, 4, 96, 4, 3).mean((1, 3))
    assert np.abs(small - faces[0]).mean() < 12
    assert usual.width == 4 * (192 + look.EDGE) + look.EDGE
