"""The language of what people read, and that the catalogue has every message and no other."""

import ast
import ctypes
import inspect
import itertools
import string
import types
from pathlib import Path

import jinja2
import pytest
from jinja2.ext import extract_from_ast

from benchmarks.options import CONFIGS
from config import LABELS, options_of
from gan import command_line, language
from gan.data.cleaning import KINDS
from gan.data.cleaning_report import CHIPS, PAGE
from gan.language import catalogue, lang, speaking, text
from gan.presets import PLANS
from gan.studio.faces import NAMES
from gan.watching import run_report
from gan.watching.curves import PANELS, SPREAD_TITLE

ROOT = Path(__file__).resolve().parents[2]
VARIABLES = "ANIMEGAN_LANG", "LANGUAGE", "LC_ALL", "LC_MESSAGES", "LANG"


@pytest.fixture
def speak(monkeypatch: pytest.MonkeyPatch):
    """Set the variables that say the language, and no others."""

    def change(**variables: str) -> None:
        for name in VARIABLES:
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return change


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, "en"),
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "zh_TW"}, "zh"),
        ({"LANG": "en_GB.UTF-8"}, "en"),
        ({"LANG": "fr_FR.UTF-8"}, "en"),
        ({"LANG": "zhx_XX"}, "en"),
        ({"LANG": "en_US.UTF-8", "LC_MESSAGES": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "zh_CN.UTF-8", "LC_MESSAGES": "zh_CN.UTF-8", "LC_ALL": "en_US.UTF-8"}, "en"),
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": ""}, "zh"),  # empty is not set
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": "C"}, "en"),
        ({"LANG": "en_US.UTF-8", "LANGUAGE": "ja:zh_CN:en"}, "zh"),  # the first that there is
        ({"LANG": "zh_CN.UTF-8", "LANGUAGE": "en_US:zh_CN"}, "en"),
        ({"LANG": "zh_CN.UTF-8", "LANGUAGE": "fr"}, "zh"),
        ({"LANG": "C.UTF-8", "LANGUAGE": "zh_CN"}, "en"),  # as gettext does
        ({"LANGUAGE": "zh_CN"}, "en"),
        ({"LANG": "zh_CN.UTF-8", "ANIMEGAN_LANG": "en"}, "en"),
        ({"LC_ALL": "C", "ANIMEGAN_LANG": "zh"}, "zh"),
        ({"LANG": "zh_CN.UTF-8", "ANIMEGAN_LANG": ""}, "zh"),
    ],
)
def test_the_language_is_the_systems_or_what_the_user_says(
    speak, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], expected: str
) -> None:
    speak(**variables)
    monkeypatch.setattr(language.sys, "platform", "linux")
    assert lang() == expected


@pytest.mark.parametrize(("number", "expected"), [(0x0804, "zh"), (0x0404, "zh"), (0x0409, "en"), (0x0411, "en")])
def test_windows_is_asked_where_no_variable_says_it(
    speak, monkeypatch: pytest.MonkeyPatch, number: int, expected: str
) -> None:
    speak()
    kernel = types.SimpleNamespace(GetUserDefaultUILanguage=lambda: number)
    monkeypatch.setattr(ctypes, "windll", types.SimpleNamespace(kernel32=kernel), raising=False)
    monkeypatch.setattr(language.sys, "platform", "win32")
    assert lang() == expected
    speak(LANG="en_US.UTF-8")
    assert lang() == "en"
    speak(ANIMEGAN_LANG="zh")
    assert lang() == "zh"


def test_a_page_speaks_its_readers_language_for_a_while(speak) -> None:
    speak(LANG="en_US.UTF-8")
    with speaking("zh"):
        assert (lang(), text("black")) == ("zh", "黑")
        with speaking("en"):
            assert text("black") == "black"
        assert lang() == "zh"
    assert text("black") == "black"


def test_a_message_is_chinese_if_there_is_chinese_for_it(
    speak, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "some.po"
    path.write_text(
        'msgid ""\nmsgstr ""\n"Language: zh\\n"\n\n'
        '# said\n#: gan/x.py:1\nmsgid "two "\n"lines\\n"\nmsgstr ""\n"两行\\n"\n\n'
        'msgid "a \\"word\\""\nmsgstr "一个“词”"\n\nmsgid "not yet"\nmsgstr ""\n',
        encoding="utf-8",
    )
    monkeypatch.setattr(language, "CATALOGUE", path)
    catalogue.cache_clear()
    speak(LANG="zh_CN.UTF-8")
    try:
        assert catalogue() == {"two lines\n": "两行\n", 'a "word"': "一个“词”"}
        assert [text(one) for one in ("two lines\n", "not yet", "never", "")] == ["两行\n", "not yet", "never", ""]
        speak(LANG="en_US.UTF-8")
        assert text("two lines\n") == "two lines\n"
    finally:
        catalogue.cache_clear()


def messages() -> set[str]:
    """Every message that goes through `text`: in the code, in pages, in the help, and words looked up by a variable.

    The options' errors go through it where they are shown.
    """
    found = {*KINDS, *KINDS.values(), *CHIPS, *LABELS, "kept", SPREAD_TITLE, *itertools.chain(*NAMES.values())}
    found |= {panel.title for panel in PANELS.values()} | {plan.expect for plan in PLANS}
    found |= {f"--{{}}: expected {kind}; got {{!r}}" for kind in command_line.KINDS.values()}
    for config_type in CONFIGS.values():
        found |= {str(inspect.getdoc(config_type)), *(said.meaning for said in options_of(config_type).values())}
    for page in (PAGE, run_report.PAGE):
        said = extract_from_ast(jinja2.Environment().parse(page), ["_"])
        found |= {message for _, _, message in said if isinstance(message, str)}
    for path in [*ROOT.glob("*.py"), *(ROOT / "gan").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case (
                    ast.Call(func=ast.Name(id="text" | "say" | "_"), args=[ast.Constant(value=str(message))])
                    | ast.Call(func=ast.Attribute(attr="text"), args=[ast.Constant(value=str(message))])
                ):
                    found.add(message)
                case ast.Call(func=ast.Name(id="ConfigError"), args=[ast.Constant(value=str(message)), *_]) if (
                    path.name in ("config.py", "command_line.py")
                ):
                    found.add(message)
                case ast.Call(func=ast.Name(id="Gift"), args=[*words, ast.Constant(), _]):
                    found |= {str(word.value) for word in words if isinstance(word, ast.Constant)}
    return found - {""}


def test_the_catalogue_has_every_message_and_no_other() -> None:
    assert messages() == catalogue().keys()


def fields(message: str) -> list[str]:
    """The formats of a message's places to fill in, in the order in which they are filled."""
    parts = [part for part in string.Formatter().parse(message) if part[1] is not None]
    return [f"{spec}" for _, name, spec, _ in sorted(parts, key=lambda part: int(part[1] or 0))]


@pytest.mark.parametrize("message", catalogue())
def test_chinese_fills_in_as_much_and_is_chinese(message: str) -> None:
    chinese = catalogue()[message]
    assert fields(chinese) == fields(message)
    assert any("\u4e00" <= letter <= "\u9fff" for letter in chinese)
    numbers = range(11, 11 + len(fields(message)))
    said = chinese.format(*numbers)
    assert all(f"{number:{spec}}" in said for number, spec in zip(numbers, fields(message), strict=True))
    assert not chinese.rstrip("。").endswith((".", ",", " "))
