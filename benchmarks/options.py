"""Write docs/options.md, the list of all options, and its Chinese twin, from the programs and their catalogue.

python -m benchmarks.options

A test checks that the pages are up to date.
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
from gan.language import speaking, text
from gan.presets import PRESETS
from generate import GenerateConfig

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGES = {"en": DOCS / "options.md", "zh": DOCS / "options.zh.md"}
CONFIGS: dict[str, type] = {
    "train.py": TrainConfig,
    "generate.py": GenerateConfig,
    "evaluate.py": EvaluateConfig,
    "prepare.py": PrepareConfig,
    "app.py": StudioConfig,
    "export.py": ExportConfig,
}
INTRODUCTIONS = {
    "en": """# Options

[README](../README.md) · English · [中文](options.zh.md)

`python -m benchmarks.options` makes this page from the programs and [gan/presets.py](../gan/presets.py).
`python train.py --help` says the same, as does `--help` of the other programs.

Write `--name=value` or `--name value`, with underscores or dashes. A switch is on with `--name`, off with `--noname`.
An option that you type wins over its preset. A wrong option ends in one line, and nothing is done.""",
    "zh": """# 选项

[README](../README.zh.md) · [English](options.md) · 中文

`python -m benchmarks.options` 根据各个程序、[gan/presets.py](../gan/presets.py) \
和[译文](../gan/locale/zh/LC_MESSAGES/animegan.po)生成本页。\
`python train.py --help` 以及其他几个程序的 `--help` 给出同样的内容。

写成 `--name=value` 或 `--name value` 都可以，名称中可以用下划线，也可以用短横线。\
开关用 `--name` 打开，用 `--noname` 关闭。自己输入的选项优先于预设。选项写错时，程序用一行说明，不做任何事。""",
}
HEADS = {"en": ("option", "default", "other presets", "meaning"), "zh": ("选项", "默认值", "其他预设", "含义")}
SOURCE_IS = {"en": "`SOURCE` is ", "zh": "`SOURCE` 是"}


def options_page(language: str) -> str:
    """Return the text of the page in a language, "en" or "zh": all options of all entry points."""
    parts = [INTRODUCTIONS[language]]
    for program, config_type in CONFIGS.items():
        options = options_of(config_type)
        source = options.pop(PLAIN, None)
        with speaking(language):
            if source is None:
                parts.append(f"## {program}")
            else:
                parts += [f"## {program} SOURCE...", f"{SOURCE_IS[language]}{text(source.meaning)}"]
            parts.append(markdown_table(config_type, list(options), HEADS[language]))
    return "\n\n".join(parts) + "\n"


def markdown_table(config_type: type, names: Sequence[str], heads: Sequence[str]) -> str:
    """Format some options of a config as a Markdown table, with the values of other presets if it has presets."""
    has_presets = config_type is TrainConfig
    heads = [*heads[:2], *heads[2 if has_presets else 3 :]]
    rows = [heads, ["---"] * len(heads)]
    for name in names:
        value = getattr(config_type, name)
        presets: dict[str, list[str]] = {}
        for preset, options in PRESETS.items():
            if options.get(name, value) != value:
                presets.setdefault(as_typed(options[name]), []).append(preset)
        differs = "; ".join(f"{', '.join(those)}: {typed}" for typed, those in presets.items())
        default = "" if value is None else as_typed(value)
        meaning = text(options_of(config_type)[name].meaning)
        rows.append([f"`{name}`", default, *([differs] if has_presets else []), meaning])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)


if __name__ == "__main__":
    for language, page in PAGES.items():
        page.write_text(options_page(language), encoding="utf-8", newline="\n")
