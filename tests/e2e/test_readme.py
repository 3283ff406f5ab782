"""The documents against the code: every option listed as it is, every command one that works."""

import dataclasses
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from config import PRESETS, GenerateConfig, TrainConfig
from gan.command_line import as_typed, meanings, parse

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = {"train.py": TrainConfig, "generate.py": GenerateConfig}
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
    for field in dataclasses.fields(config_type):
        default = "" if field.default is None else as_typed(field.default)
        presets: dict[str, list[str]] = {}
        for preset, options in PRESETS.items():
            if options.get(field.name, field.default) != field.default:
                presets.setdefault(as_typed(options[field.name]), []).append(preset)
        differs = "; ".join(f"{', '.join(names)}: {value}" for value, names in presets.items())
        cells = [f"`{field.name}`", default, *([differs] if has_presets else []), meanings(config_type)[field.name]]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def commands(document: str) -> list[list[str]]:
    """The words of every `python train.py ...` and `python generate.py ...` in a document."""
    text = (ROOT / document).read_text(encoding="utf-8")
    return [shlex.split(line.rstrip("`")) for line in re.findall(r"python ((?:train|generate)\.py[^`\n]*)", text)]


@pytest.mark.parametrize("config_type", [TrainConfig, GenerateConfig])
def test_the_readme_lists_every_option_as_it_is(config_type: type) -> None:
    assert options_table(config_type) in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_command_in_the_documents_is_understood(document: str) -> None:
    for script, *words in commands(document):
        if words != ["--help"]:
            parse(CONFIGS[script], words)


def test_the_commands_that_draw_run_as_written(
    tmp_path: Path, run_command: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    drawing = [words for words in commands("README.md") if words[0] == "generate.py" and "--help" not in words]
    of_a_run = ("--checkpoint", "--timelapse")
    released = [words for words in drawing if not any(word.startswith(of_a_run) for word in words)]
    assert len(released) >= 4
    for words in {tuple(words) for words in released}:
        result = run_command(*words)
        assert result.returncode == 0, result.stderr
    assert (tmp_path / "result.png").exists()
    assert len(list((tmp_path / "faces-out").iterdir())) == 1000


def test_links_lead_somewhere() -> None:
    for document in (*DOCUMENTS, "docs/contributing.md"):
        text = (ROOT / document).read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)#:]+)\)", text):
            assert (ROOT / document).parent.joinpath(target).exists(), f"{document}: {target}"


@pytest.mark.parametrize("page", PAGES)
def test_both_languages_have_the_same_sections_commands_options_and_pictures(page: str) -> None:
    english, chinese = ((ROOT / f"{page}{language}.md").read_text(encoding="utf-8") for language in ("", ".zh"))
    patterns = [r"^(#+) ", r"```\w*\n(.+?)```", r"^\| `(\w+)` \|([^|]*)\|", r"^!\[.*\]\((.+)\)", r"`(python [^`\n]+)`"]
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
