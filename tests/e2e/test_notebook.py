"""docs/notebook.ipynb, executed from top to bottom."""

import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_the_notebook_runs_and_shows_faces_and_a_film(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    left = (".venv", ".git", ".packs", "tests", "[0-9]*-*", "__pycache__")  # runs are named by their time
    shutil.copytree(ROOT, tmp_path / "program", ignore=shutil.ignore_patterns(*left))
    shutil.copytree(ROOT / "docs", tmp_path / "program/docs", dirs_exist_ok=True)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    drawing = tmp_path / "program/gan/data/synthetic.py"
    source = drawing.read_text(encoding="utf-8")
    assert "\nFACES = 10_000" in source  # so many take half a minute to draw
    drawing.write_text(source.replace("\nFACES = 10_000", "\nFACES = 100"), encoding="utf-8")
    notebook = nbformat.read(tmp_path / "program/docs/notebook.ipynb", 4)
    assert not any(cell.get("outputs") for cell in notebook.cells)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.source = cell.source.replace("MINUTES = 1", "MINUTES = 0.05")
    where = {"metadata": {"path": str(tmp_path / "program/docs")}}
    nbclient.NotebookClient(notebook, timeout=300, resources=where).execute()

    shown = [
        kind
        for cell in notebook.cells
        for one in cell.get("outputs", [])
        for kind in one.get("data", {})
        if "image" in kind
    ]
    assert shown.count("image/png") == 8 + 1 + 8
    assert (tmp_path / "program/morph.gif").stat().st_size > 10_000
