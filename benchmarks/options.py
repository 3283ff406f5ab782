"""Write docs/options.md, the list of all options, from the programs.

python -m benchmarks.options

A test checks that the page is up to date.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from app import StudioConfig
from config import TrainConfig, options_of
from evaluate import EvaluateConfig
from export import ExportConfig
from gan.command_line import PLAIN, as_typed
from gan.data.cleaning import PrepareConfig
from gan.presets import PRESETS
from generate import GenerateConfig

PAGE = Path(__file__).resolve().parents[1] / "docs" / "options.md"
CONFIGS: dict[str, type] = {
    "train.py": TrainConfig,
    "generate.py": GenerateConfig,
    "evaluate.py": EvaluateConfig,
    "prepare.py": PrepareConfig,
    "app.py": StudioConfig,
    "export.py": ExportConfig,
}
INTRODUCTION = """# Options

[README](../README.md) · English · [中文](options.zh.md)

`python -m benchmarks.options` makes this page from the programs and [gan/presets.py](../gan/presets.py).
`python train.py --help` says the same, as does `--help` of the other programs.

Write `--name=value` or `--name value`, with underscores or dashes. A switch is on with `--name`, off with `--noname`.
An option that you type wins over its preset. A wrong option ends in one line, and nothing is done."""


def options_page() -> str:
    """Return the text of docs/options.md, all options of all entry points."""
    parts = [INTRODUCTION]
    for program, config_type in CONFIGS.items():
        options = options_of(config_type)
        source = options.pop(PLAIN, None)
        parts += [f"## {program}"] if source is None else [f"## {program} SOURCE...", f"`SOURCE` is {source.meaning}"]
        parts.append(markdown_table(config_type, list(options)))
    return "\n\n".join(parts) + "\n"


def markdown_table(config_type: type, names: Sequence[str]) -> str:
    """Format some options of a config as a Markdown table, with the values of other presets if it has presets."""
    has_presets = config_type is TrainConfig
    heads = ["option", "default", *(["other presets"] if has_presets else []), "meaning"]
    rows = [heads, ["---"] * len(heads)]
    for name in names:
        value = getattr(config_type, name)
        presets: dict[str, list[str]] = {}
        for preset, options in PRESETS.items():
            if options.get(name, value) != value:
                presets.setdefault(as_typed(options[name]), []).append(preset)
        differs = "; ".join(f"{', '.join(those)}: {typed}" for typed, those in presets.items())
        default = "" if value is None else as_typed(value)
        rows.append([f"`{name}`", default, *([differs] if has_presets else []), options_of(config_type)[name].meaning])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)


if __name__ == "__main__":
    PAGE.write_text(options_page(), encoding="utf-8", newline="\n")
