"""The language of what people read, and that the catalogue has every message and no other."""

import ast
import ctypes
import errno
import inspect
import itertools
import pickle
import re
import string
import types
from collections.abc import Iterator, Mapping
from pathlib import Path

import jinja2
import numpy as np
import pytest
from jinja2.ext import extract_from_ast

import evaluate
from benchmarks.options import CONFIGS
from config import LABELS, CheckpointError, ConfigError, DataError, options_of
from gan import command_line, imagenet, language
from gan.data import listing
from gan.data.cleaning import KINDS
from gan.data.cleaning_report import CHIPS, PAGE
from gan.language import catalogue, lang, said, speaking, text
from gan.presets import PLANS
from gan.quality import evaluation
from gan.studio.faces import NAMES
from gan.studio.train_tab import LEFT_OUT
from gan.watching import run_report
from gan.watching.curves import METRICS, PANELS, SPREAD_TITLE, histogram
from generate import GOES_WITH

ONE = np.zeros(1)
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


def test_an_error_says_itself_and_the_errors_in_it(speak) -> None:
    inner = DataError("{} exists and is not a report of prepare.py; give another name: --report=FILE.html", "{a}.html")
    outer = CheckpointError("{}; --fake also takes a checkpoint or a run's folder", inner)
    speak(LANG="en_US.UTF-8")
    assert said(outer) == str(outer) == f"{inner}; --fake also takes a checkpoint or a run's folder"
    speak(LANG="zh_CN.UTF-8")
    name = "{a}.html 已存在，而且不是 prepare.py 的报告；请换一个名称：--report=FILE.html"
    assert said(outer) == f"{name}；--fake 也可以是检查点或一次训练的文件夹"
    assert str(outer).startswith("{a}.html exists")  # for programs, English
    assert said(DataError("{b} of nobody's {}")) == "{b} of nobody's {}"  # no values, so nothing to fill in
    full = OSError(errno.ENOSPC, "No space left on device", "/a/b.png")
    assert "磁盘空间不足: /a/b.png；" in said(
        ConfigError("could not write the film: {}; choose another --gen_img", full)
    )
    assert language.why(OSError(errno.EACCES, "Permission denied")) == "没有权限"
    assert [language.why(error) for error in (OSError("gone"), ValueError())] == ["gone", "ValueError"]


def test_an_error_from_another_process_is_said_alike(speak) -> None:
    speak(LANG="zh_CN.UTF-8")
    error = DataError("kept none of {:,} files; {} says why of each", 1234, "a{}.html")
    again = pickle.loads(pickle.dumps(error))
    assert said(again) == said(error) == "1,234 个文件一个也没有保留；各自的原因见 a{}.html"


ERRORS = ("UserError", "ConfigError", "DataError", "CheckpointError", "CancelledError", "ProgramError")
FILES = [*ROOT.glob("*.py"), *(ROOT / "gan").rglob("*.py")]


def calls() -> Iterator[tuple[Path, str, ast.Call, Mapping[str, str]]]:
    """Every call in the program: its file, the name that is called, the call, and the file's constants of text."""
    for path in FILES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        known = {}
        for node in tree.body:
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str(words))):
                    known[name] = words
                case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
                    pairs = zip(names, values, strict=True)
                    known |= {ast.unparse(a): b.value for a, b in pairs if isinstance(b, ast.Constant)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                match node.func:
                    case ast.Name(id=name) | ast.Attribute(attr=name):
                        yield path, name, node, known
                    case ast.Call(func=ast.Name(id="type")):  # an error of the same type as another one
                        yield path, "UserError", node, known


MARKS = {", ", "; ", "{} ({})"}
"""Messages without words, which have other marks in Chinese."""


def has_words(message: str) -> bool:
    """Whether a message says anything besides what is filled in."""
    return re.search("[A-Za-z]", re.sub("{[^}]*}", "", message)) is not None


def messages() -> set[str]:
    """Every message that goes through `text`: in the code, in pages, in the help, and words looked up by a variable.

    The errors' go through it where they are shown.
    """
    found = {*KINDS, *KINDS.values(), *CHIPS, *LABELS, "kept", SPREAD_TITLE, *itertools.chain(*NAMES.values())}
    found |= {*LEFT_OUT.values(), *language.REASONS, *(asked for asked in GOES_WITH if " " in asked)}
    found |= {panel.title for panel in PANELS.values()} | {panel.unit for panel in PANELS.values()}
    labels = {label for panel in PANELS.values() for label in panel.columns.values()} | set(histogram(ONE, ONE)[1])
    found |= labels - {measure.label for measure in METRICS.values()}  # metrics have the same names everywhere
    found |= {plan.expect for plan in PLANS}
    found |= {measure.better for measure in METRICS.values()} | {*imagenet.USES.values()}
    found |= {*command_line.KINDS.values(), *listing.UNREAD.values(), "ema"}
    found |= {evaluate.OWN, evaluate.REAL, evaluation.load_reference(1).about}
    for config_type in CONFIGS.values():
        found |= {str(inspect.getdoc(config_type)), *(one.meaning for one in options_of(config_type).values())}
    for page in (PAGE, run_report.PAGE):
        spoken = extract_from_ast(jinja2.Environment().parse(page), ["_"])
        found |= {message for _, _, message in spoken if isinstance(message, str)}
    for _, name, call, known in calls():
        match name, call.args:
            case "text" | "say" | "_", [ast.Constant(value=str(message))]:
                found.add(message)
            case "text", [ast.Name(id=constant)] if constant in known:
                found.add(known[constant])
            case "Gift", [*words, ast.Constant(), _]:
                found |= {str(word.value) for word in words if isinstance(word, ast.Constant)}
            case "awake" | "enough_memory", [ast.Constant(value=str(message)), *_]:
                found.add(message)
            case "load_weights", [_, _, ast.Constant(value=str(message)), _]:
                found.add(message)
            case _, [ast.Constant(value=str(message)), *_] if name in ERRORS:
                found.add(message)
    return {message for message in found if has_words(message)} | MARKS


def test_the_catalogue_has_every_message_and_no_other() -> None:
    assert messages() == catalogue().keys()


def english(node: ast.AST) -> bool:
    """Whether an expression is words of the program that do not go through `text`."""
    match node:
        case ast.Constant(value=str(words)):
            return has_words(words)
        case ast.JoinedStr(values=parts):
            return any(isinstance(part, ast.Constant) and english(part) for part in parts)
        case ast.Call(func=ast.Attribute(value=words, attr="format")):
            return english(words)
        case ast.BinOp(left=one, right=other) | ast.IfExp(body=one, orelse=other):
            return english(one) or english(other)
    return False


def test_no_message_of_an_error_is_put_together_before_it_is_translated() -> None:
    """It would be looked up in vain, as it is no constant."""
    wrong = [
        f"{path.relative_to(ROOT)}:{call.lineno}"
        for path, name, call, _ in calls()
        if name in ERRORS and call.args and not isinstance(call.args[0], ast.Constant) and english(call.args[0])
    ]
    assert wrong == []


def test_what_is_printed_goes_through_the_catalogue() -> None:
    """Errors apart, which `said` translates."""
    found = list[str]()
    for path, name, call, _ in calls():
        if name in ("print", "log", "bar", "skipping") or ast.unparse(call.func).endswith("notices.append"):
            shown = call.args[:1]
        elif name == "tqdm":
            shown = [word.value for word in call.keywords if word.arg in ("desc", "unit")]
        else:
            continue
        found += [f"{path.relative_to(ROOT)}:{call.lineno}" for one in shown if english(one)]
    assert [place for place in found if not place.startswith("config.py:")] == []  # that comes before all else


def fields(message: str) -> list[str]:
    """The formats of a message's places to fill in, in the order in which they are filled."""
    parts = [part for part in string.Formatter().parse(message) if part[1] is not None]
    return [f"{spec}" for _, name, spec, _ in sorted(parts, key=lambda part: int(part[1] or 0))]


@pytest.mark.parametrize("message", catalogue())
def test_chinese_fills_in_as_much_and_is_chinese(message: str) -> None:
    chinese = catalogue()[message]
    assert fields(chinese) == fields(message)
    assert message in MARKS or any("\u4e00" <= letter <= "\u9fff" for letter in chinese)
    numbers = range(11, 11 + len(fields(message)))
    filled = chinese.format(*numbers)
    assert all(f"{number:{spec}}" in filled for number, spec in zip(numbers, fields(message), strict=True))
    assert not chinese.rstrip("。").endswith((".", ",", " "))
