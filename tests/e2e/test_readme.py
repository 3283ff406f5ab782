"""The documents against the code: options as they are, commands that work, links that lead."""

import itertools
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from benchmarks.options import CONFIGS, options_page
from benchmarks.options import PAGES as OPTIONS
from gan.command_line import parse
from gan.presets import suggested
from gan.quality import whole_faces
from gan.sharing import onnx_file

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(path.relative_to(ROOT).as_posix()[: -len(".zh.md")] for path in ROOT.glob("docs/*.zh.md"))
"""Pages in both languages: NAME.md and NAME.zh.md."""
IN_BOTH = ("README", *PAGES)
DOCUMENTS = sorted(
    path.relative_to(ROOT).as_posix()
    for pattern in ("*.md", "docs/*.md", "docs/decisions/*.md", "benchmarks/*.md", "checkpoints/README.md", "data/*.md")
    for path in ROOT.glob(pattern)
)


def read(document: str) -> str:
    return (ROOT / document).read_text(encoding="utf-8")


def commands(document: str) -> list[list[str]]:
    """The words of every `python train.py ...`, `python generate.py ...` and so on in a document."""
    found = re.findall(r"python ((?:train|generate|evaluate|prepare|app|export)\.py[^`\n]*)", read(document))
    return [shlex.split(line) for line in found]


def anchor(heading: str) -> str:
    """A heading's anchor on GitHub."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def without_blocks(text: str) -> str:
    """A document without its code blocks, in which a line may begin with # and be no heading."""
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


def headings(text: str) -> list[tuple[str, str]]:
    return re.findall(r"^(#+) (.+)$", without_blocks(text), re.MULTILINE)


def test_every_page_a_user_reads_is_there_in_both_languages() -> None:
    for page in "install guide data watching faq evaluation multi-gpu options how-it-works from-the-book".split():
        assert f"docs/{page}" in PAGES
        assert f"docs/{page}.md" in read("README.md")
        assert f"docs/{page}.zh.md" in read("README.zh.md")


@pytest.mark.parametrize("language", OPTIONS)
def test_the_pages_of_options_are_made_from_the_configs_and_the_catalogue(language: str) -> None:
    """When this fails: `python -m benchmarks.options`."""
    assert OPTIONS[language].read_text(encoding="utf-8") == options_page(language)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_command_in_the_documents_is_understood(document: str) -> None:
    for script, *words in commands(document):
        if words not in (["--help"], ["--help_all"]):
            parse(CONFIGS[script], words)
    text = read(document)
    for module in re.findall(r"python -m ((?:gan|benchmarks)[.\w]*)", text):
        if module != "benchmarks.NAME":
            assert (ROOT / f"{module.replace('.', '/')}.py").exists(), module
    targets = re.findall(r"^([\w-]+):", read("Makefile"), re.MULTILINE)
    assert set(re.findall(r"(?:`|^|=\S+ )make ([\w-]+)", text, re.MULTILINE)) <= set(targets)
    assert "PYTHONPATH" not in text  # nor is it needed: `python -m`


def test_benchmarks_run_as_modules() -> None:
    """`python -m benchmarks.NAME` finds no sibling by its bare name, as `python benchmarks/NAME.py` would."""
    siblings = "|".join(path.stem for path in (ROOT / "benchmarks").glob("*.py"))
    for path in (ROOT / "benchmarks").glob("*.py"):
        assert not re.search(rf"^(from|import) ({siblings})\b", path.read_text(encoding="utf-8"), re.MULTILINE), path


@pytest.mark.slow
def test_the_commands_that_generate_run_as_written(
    tmp_path: Path,
    run_here: Callable[..., subprocess.CompletedProcess[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(whole_faces, "ASKED", 64)  # for time
    documents = ("README.md", "docs/guide.md", "docs/install.md", "docs/faq.md")
    generating = [words for document in documents for words in commands(document) if words[0] == "generate.py"]
    others = ("--checkpoint", "--timelapse", "--netg_path")
    released = [words for words in generating if not any(word.startswith(others) for word in words)]
    assert len(released) >= 4
    searched = itertools.chain([260], itertools.repeat(65))  # one of more faces than are searched unless asked for
    for words in sorted({tuple(words) for words in released}):
        fewer = {"1000": "100"}  # for time
        if any(word.startswith(("--change=", "--enlarge=")) for word in words):
            fewer |= {"16": "2", "64": "4"}
        words = [fewer.get(word, word) for word in words]
        words = [re.sub(r"=\d+$", f"={next(searched)}", w) if w.startswith("--gen_search_num=") else w for w in words]
        result = run_here(*words)
        assert result.returncode == 0, result.stderr
    assert (tmp_path / "result.png").exists()
    assert len(list((tmp_path / "faces-out").iterdir())) == 100


@pytest.mark.slow
def test_the_documents_lines_of_python_run_as_written(
    tmp_path: Path, run_here: Callable[..., subprocess.CompletedProcess[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnxruntime")
    monkeypatch.setattr(onnx_file, "CHECKED", 1)  # for time
    (tmp_path / "checkpoints").symlink_to(ROOT / "checkpoints")
    assert run_here("export.py", "--to=onnx").returncode == 0
    found = [re.findall(r"```python\n(.+?)```", read(document), re.DOTALL) for document in DOCUMENTS]
    blocks = set(itertools.chain(*found))
    assert len(blocks) >= 3
    for block in blocks:
        space = dict[str, Any]()
        exec(block, space)
        assert len(space["faces"]) in (4, 16)
    with Image.open("face.png") as face:
        assert face.size == (96, 96)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_somewhere(document: str) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", read(document)):
        if re.match(r"\w+:", target):
            continue
        file, _, place = target.partition("#")
        path = (ROOT / document).parent / file if file else ROOT / document
        assert path.exists(), target
        if place:
            assert place in [anchor(heading) for _, heading in headings(path.read_text(encoding="utf-8"))], target


@pytest.mark.parametrize("page", IN_BOTH)
def test_a_chinese_page_says_which_links_lead_to_english_ones(page: str) -> None:
    for target, then in re.findall(r"\]\(([^):\s]+\.md)[^)]*\)(.{0,3})", read(f"{page}.zh.md")):
        chinese = (ROOT / f"{page}.zh.md").parent / f"{target.removesuffix('.md').removesuffix('.zh')}.zh.md"
        assert chinese.exists() or "英文" in then, target


@pytest.mark.parametrize("page", IN_BOTH)
def test_both_languages_have_the_same_headings_commands_tables_and_pictures(page: str) -> None:
    english, chinese = (read(f"{page}{language}.md") for language in ("", ".zh"))
    assert [level for level, _ in headings(english)] == [level for level, _ in headings(chinese)]

    def blocks(text: str) -> list[str]:
        found = re.findall(r"^```\w*\n(.+?)^```", text, re.MULTILINE | re.DOTALL)
        # The folder of a run is explained in words, and the program says the best.pt in the reader's language.
        return [block for block in found if "latest.pt" not in block and "/best.pt" not in block]

    assert blocks(english) == blocks(chinese)
    for pattern in (r"^!\[.*\]\((.+)\)", r"`((?:python|pip|make|uv) [^`\n]+)`"):
        found = re.findall(pattern, chinese, re.MULTILINE)
        assert re.findall(pattern, english, re.MULTILINE) == [one.replace(".zh.webp", ".webp") for one in found]
    rows = [[line.count("|") for line in text.splitlines() if line.startswith("|")] for text in (english, chinese)]
    assert rows[0] == rows[1]


def test_a_page_shows_every_picture() -> None:
    pages = "".join(read(document) for document in DOCUMENTS)
    for picture in (path for path in (ROOT / "docs").iterdir() if path.suffix in (".png", ".webp")):
        assert re.search(rf"\]\((docs/|\.\./docs/)?{re.escape(picture.name)}\)", pages), f"no page shows {picture.name}"


@pytest.mark.parametrize("document", ["README.md", "README.zh.md"])
def test_for_each_number_of_pictures_the_table_has_what_the_programs_suggest(document: str) -> None:
    rows = re.findall(r"^\| ([\d,]+) \| `python train\.py --data_path=my_faces ([^`]+)`", read(document), re.MULTILINE)
    assert len(rows) == 7
    for number, options in rows:
        assert options == suggested(int(number.replace(",", "")))
