"""The documents against the code: every option listed as it is, every command one that works."""

import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from config import EvaluateConfig, GenerateConfig, PrepareConfig, TrainConfig, options_of
from gan.command_line import PLAIN, as_typed, parse
from gan.presets import PRESETS

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = {
    "train.py": TrainConfig,
    "generate.py": GenerateConfig,
    "evaluate.py": EvaluateConfig,
    "prepare.py": PrepareConfig,
}
PAGES = ("README", "docs/from-the-book")
"""Documents in both languages: NAME.md and NAME.zh.md."""
DOCUMENTS = (
    *(f"{page}{language}.md" for page in PAGES for language in ("", ".zh")),
    *("checkpoints/README.md", "data/README.md", "docs/experiments.md"),
)


def options_table(config_type: type) -> str:
    """The table as it belongs into the README; printed by a failing test, ready to paste."""
    has_presets = config_type is TrainConfig
    lines = ["| option | default | other presets | meaning |", "| --- | --- | --- | --- |"]
    lines = lines if has_presets else ["| option | default | meaning |", "| --- | --- | --- |"]
    for name, option in options_of(config_type).items():
        if name == PLAIN:
            continue
        value = getattr(config_type, name)
        default = "" if value is None else as_typed(value)
        presets: dict[str, list[str]] = {}
        for preset, options in PRESETS.items():
            if options.get(name, value) != value:
                presets.setdefault(as_typed(options[name]), []).append(preset)
        differs = "; ".join(f"{', '.join(names)}: {value}" for value, names in presets.items())
        cells = [f"`{name}`", default, *([differs] if has_presets else []), option.meaning]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def commands(document: str) -> list[list[str]]:
    """The words of every `python train.py ...`, `python generate.py ...` and `python evaluate.py ...` in a document."""
    text = (ROOT / document).read_text(encoding="utf-8")
    return [
        shlex.split(line.rstrip("`"))
        for line in re.findall(r"python ((?:train|generate|evaluate|prepare)\.py[^`\n]*)", text)
    ]


@pytest.mark.parametrize("config_type", [TrainConfig, GenerateConfig, EvaluateConfig, PrepareConfig])
def test_the_readme_lists_every_option_as_it_is(config_type: type) -> None:
    assert options_table(config_type) in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_command_in_the_documents_is_understood(document: str) -> None:
    for script, *words in commands(document):
        if words not in (["--help"], ["--help_all"]):
            parse(CONFIGS[script], words)


@pytest.mark.slow
def test_the_commands_that_draw_run_as_written(
    tmp_path: Path, run_here: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    drawing = [words for words in commands("README.md") if words[0] == "generate.py" and "--help" not in words]
    of_a_run = ("--checkpoint", "--timelapse")
    released = [words for words in drawing if not any(word.startswith(of_a_run) for word in words)]
    assert len(released) >= 4
    for words in {tuple(words) for words in released}:
        result = run_here(*("100" if word == "1000" else word for word in words))
        assert result.returncode == 0, result.stderr
    assert (tmp_path / "result.png").exists()
    assert len(list((tmp_path / "faces-out").iterdir())) == 100


@pytest.mark.parametrize("language", ["", ".zh"])
def test_every_row_of_the_page_for_readers_of_the_book_is_shown_by_something_that_exists(language: str) -> None:
    text = (ROOT / f"docs/from-the-book{language}.md").read_text(encoding="utf-8")
    sources = {path: path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")}
    tests = {name for source in sources.values() for name in re.findall(r"def (test_\w+)", source)}
    assert set(re.findall(r"`(test_\w+)`", text)) <= tests
    for name in re.findall(r"`(tests/[^`]+)`", text):
        assert ROOT / name in sources
    tables = re.findall(r"^\| --- \| --- \| --- \|\n((?:\|.*\n)+)", text, re.MULTILINE)
    rows = [row for table in tables for row in table.splitlines()]
    assert len(rows) > 40
    for row in rows:  # all but the last table, which has measurements
        shown = row.split(" | ")[-1]
        assert re.search(r"`(test_\w+|tests/.+|make \w+|python .+)`", shown) or row in tables[-1], row


def anchor(heading: str) -> str:
    """A heading's anchor on GitHub."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_links_lead_somewhere() -> None:
    for document in (*DOCUMENTS, "docs/contributing.md"):
        text = (ROOT / document).read_text(encoding="utf-8")
        for target, place in re.findall(r"\]\(([^)#:]+)(?:#([^)]+))?\)", text):
            path = (ROOT / document).parent / target
            assert path.exists(), f"{document}: {target}"
            headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE) if place else []
            assert not place or place in map(anchor, headings), f"{document}: {target}#{place}"


@pytest.mark.parametrize("page", PAGES)
def test_both_languages_have_the_same_sections_commands_options_and_pictures(page: str) -> None:
    english, chinese = ((ROOT / f"{page}{language}.md").read_text(encoding="utf-8") for language in ("", ".zh"))
    columns = r"^\| `(\w+)` \|([^|]*)\|" + (r"([^|]*)\|" if page != "README" else "")
    patterns = [r"^(#+) ", r"```\w*\n(.+?)```", columns, r"^!\[.*\]\((.+)\)", r"`(python [^`\n]+)`"]
    for pattern in patterns:
        flags = re.MULTILINE if pattern.startswith("^") else re.DOTALL
        found = re.findall(pattern, english, flags)
        assert found or page != "README"
        if "```" in pattern:  # the folder of a run is explained in words
            found = [block for block in found if "latest.pt" not in block]
            ours = [block for block in re.findall(pattern, chinese, flags) if "latest.pt" not in block]
        else:
            ours = re.findall(pattern, chinese, flags)
        assert found == ours
