"""From options to config: types, suggestions, help and one-line errors. The only module that imports fire.

It does not import torch, so that a wrong option is reported at once, before anything is created.
"""

import difflib
import errno
import html
import inspect
import io
import itertools
import logging
import math
import os
import re
import shutil
import sys
import textwrap
import types
import typing
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

import fire
from fire.decorators import SetParseFn

from config import ALIASES, MEANT, C, ConfigError, TrainConfig, UserError, options_of
from gan import language
from gan.files import as_word, printable, regular
from gan.presets import PRESETS, resolve

MAY_BE_BARE = frozenset({"resume", "classes", "detect"})  # fields that are not bool and are still valid without a value
BARE = "True"  # their value in that case: `--resume` is `--resume=True`
VERBS = ("train", "generate", "evaluate", "prepare", "app", "export")
KINDS = {
    int: "--{}: expected a whole number; got {!r}",
    float: "--{}: expected a number; got {!r}",
    Path: "--{}: expected a path; got {!r}",
    str: "--{}: expected text; got {!r}",
}
DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\uff0d"  # which word processors make of hyphens
INVISIBLE = re.compile("[\\x00-\\x1f\\x7f-\\x9f\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff]")
PLAIN = "sources"  # the field for words that are not options, which are paths
PLACEHOLDERS = {bool: "True", int: "INT", float: "NUMBER", Path: "PATH", str: "TEXT"}


def command_line(
    config_type: type[C], run: Callable[[C, Mapping[str, Any]], None], argv: Sequence[str] | None = None
) -> None:
    """Run an entry point with the options of the command line.

    `run` is called with the config, and with the typed options by field name, converted. A `UserError`, from the
    options or from anywhere in `run`, ends in one line on stderr and exit code 2. A Ctrl-C that `run` does not handle
    ends in exit code 130. Any other exception is a bug and keeps its traceback.

    Raises:
        SystemExit: after an error, as above.
    """
    program = Path(sys.argv[0]).name
    for name in ("stdout", "stderr"):
        if (stream := getattr(sys, name)) is None:  # closed by the parent process, or there is no console
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif type(stream) is io.TextIOWrapper and not stream.isatty():
            binary = io.BufferedWriter(Unread(stream.fileno(), "w", closefd=False))
            again = io.TextIOWrapper(binary, stream.encoding, stream.errors, line_buffering=stream.line_buffering)
            setattr(sys, name, again)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # for names that this terminal cannot show
    os.environ["MPLBACKEND"] = "agg"  # plots go to files; a notebook's backend need not be installed here
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # of fonts, and of a home that cannot be written to
    argv = sys.argv[1:] if argv is None else argv
    # Of a script with the line ends of Windows, the last word ends in CR.
    argv = [word.rstrip("\r") for word in argv if word.rstrip("\r") or not word]
    speaks = os.environ.get("LOCAL_RANK", "0") == "0"  # all processes of torchrun have the same options
    try:
        if {"--help", "-h"} & set(argv):
            if speaks:
                log(help_text(config_type, program, shutil.get_terminal_size().columns))
            return
        typed = parse(config_type, argv)
        config = resolve(config_type, typed)
        speaks = True
        run(config, typed)
    except UserError as error:
        message = " ".join(line.strip(" ") for line in language.said(error).split("\n") if line.strip(" "))
        if speaks:
            log(f"{program}: {printable(message)}", sys.stderr)  # it may contain names from other people's files
        sys.exit(2)
    except KeyboardInterrupt:
        log(f"{program}: {language.text('interrupted')}", sys.stderr)
        sys.exit(130)


class Unread(io.FileIO):
    """A stream whose reader may have left, or whose disk may be full, which is no reason to stop working."""

    def write(self, data: Any, /) -> int:
        """Write some bytes, or drop them."""
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def parse(config_type: type, argv: Sequence[str]) -> dict[str, Any]:
    """Parse the words after the script's name into converted options by field name, only those that were typed.

    Raises:
        ConfigError: a word is not an option, or a value does not fit its option's type.
    """
    if sys.platform == "win32" and (odd := next((word for word in argv if '"' in word), None)):
        # PowerShell makes this of a quoted path that ends in a backslash, such as '.\my pics\' from its Tab key.
        raise ConfigError("got {!r}; if it has a path in quotation marks that ends in a backslash, leave that out", odd)
    hints = types_of(config_type)
    plain = hints.pop(PLAIN, None) is not None
    check_words(argv, hints)
    words: list[Path] = []

    def command(*stray: str, **options: str) -> dict[str, str]:
        if plain:
            if not all(word.strip() for word in stray):
                raise ConfigError("an empty word stands where a folder, a zip or a picture is expected")
            words.extend(convert(PLAIN, word, Path) for word in stray)
        elif stray:
            word = stray[0]
            if word in VERBS:
                raise ConfigError("unexpected word {!r}; each task is a program of its own: python {}.py", word, word)
            if word == "help":
                raise ConfigError("unexpected word {!r}; write --help", word)
            if "data_path" in hints and "data_path" not in options and os.path.lexists(word):
                raise ConfigError("unexpected word {!r}; pictures are given as --data_path={}", word, as_word(word))
            raise ConfigError(
                "unexpected word {!r}; write options as --name=value, and a value that holds spaces in quotes: "
                '--name="my value"',
                word,
            )
        return options

    # fire reads the options from the signature; without the names, `--noise` would arrive as ise=False.
    stray, aliases = inspect.signature(command).parameters.values()
    named = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in hints]
    command.__signature__ = inspect.Signature([stray, *named, aliases])  # pyright: ignore[reportFunctionMemberAccess]
    # SetParseFn(str) keeps fire from guessing types ('1e4', '[1]'); serialize keeps it from printing the result.
    texts: dict[str, str] = fire.Fire(SetParseFn(str)(command), list(argv), serialize=lambda _: None)
    options = {ALIASES.get(name, name): text for name, text in texts.items()}
    typed = {name: convert(name, text, hints[name]) for name, text in options.items()}
    return {PLAIN: tuple(words), **typed} if words else typed


def check_words(argv: Sequence[str], hints: Mapping[str, Any]) -> None:
    """Reject words that fire would accept: repeated, unknown and valueless options, single dashes, its own separators.

    Raises:
        ConfigError: a word is rejected; the message names the first, and the reason.
    """
    for word in argv:
        if (name := word.lstrip(DASHES)) not in ("", word) and not os.path.lexists(word):
            raise ConfigError("{} begins with a typographic dash; write --{}", word, name)
    seen: set[str] = set()
    for word, following in itertools.pairwise([*argv, "--"]):  # as if another option followed the last word
        if word in ("-", "--"):
            raise ConfigError("unexpected {!r}; write options as --name=value", word)
        if not looks_like_option(word):
            continue
        typed, equals, _ = word.partition("=")
        bare = not equals and looks_like_option(following)
        name, negated = find_option(typed, hints)
        if negated and not bare:
            raise ConfigError("{} takes no value; write {}, or --{}=True", typed, typed, name)
        if bare and without_none(hints[name]) is not bool and name not in MAY_BE_BARE:
            raise ConfigError("{} needs a value: --{}={}", typed, name, placeholder(hints[name]))
        if name in seen:
            raise ConfigError("--{} is given twice; give it once", name)
        seen.add(name)


def looks_like_option(word: str) -> bool:
    """Return whether fire takes a word for an option rather than a value: -0.5 is a value."""
    return re.match("--|-[a-zA-Z]", word) is not None


def find_option(typed: str, hints: Mapping[str, Any]) -> tuple[str, bool]:
    """Find the field of a typed option, given with its dashes; also return whether it is the `--no` form.

    Raises:
        ConfigError: there is no such option; the message names the nearest, or --help.
    """
    fields = {name: (name, False) for name in hints}
    fields |= {alias: (name, False) for alias, name in ALIASES.items() if name in hints}
    fields |= {f"no{name}": (name, True) for name in hints if without_none(hints[name]) is bool}
    name = typed[2:].replace("-", "_")
    if typed.startswith("--") and name in fields:
        return fields[name]
    word = typed.lstrip("-").replace("-", "_").lower()
    meant = [name for name in MEANT.get(word, ()) if name in fields]
    near = meant or difflib.get_close_matches(word, fields, n=1)
    if len(near) == 1:
        raise ConfigError("unknown option {}; did you mean --{}?", typed, *near)
    if near:
        raise ConfigError("unknown option {}; did you mean --{} or --{}?", typed, *near)
    raise ConfigError("unknown option {}; --help lists them all", typed)


def convert(name: str, text: str, hint: Any) -> Any:
    """Convert a value to the type of its option.

    Args:
        name: the option, for the error message.
        text: the value as typed. `None` unsets an option that may be unset.
        hint: bool, int, float, str, Path, a Literal of strings, or one of these `| None`.

    Raises:
        ConfigError: the value is empty or does not fit.
    """
    kind = without_none(hint)
    got = text if len(text) <= 80 else text[:77] + "..."
    if not text.strip():
        raise ConfigError("{} needs a value: --{}={}", f"--{name}", name, placeholder(hint))
    if kind is not hint and text == "None":
        return None
    if (unseen := INVISIBLE.search(text)) and not (kind is Path and os.path.lexists(text)):
        raise ConfigError("--{}: has the invisible character {!a}; got {!r}; type it anew", name, unseen[0], got)
    if typing.get_origin(kind) is typing.Literal:
        choices = typing.get_args(kind)
        if text not in choices:
            if near := difflib.get_close_matches(text.lower(), choices, n=1):
                choices = language.text(", ").join(choices)
                raise ConfigError("--{}: expected one of {}; got {!r}; did you mean {}?", name, choices, got, *near)
            raise ConfigError("{}: expected one of {}; got {!r}", f"--{name}", language.text(", ").join(choices), got)
        return text
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ConfigError("--{}: expected True or False; got {!r}; --{} alone is True", name, got, name)
        return text.lower() == "true"
    try:
        value = Path(text).expanduser() if kind is Path else kind(text)
    except (ValueError, RuntimeError):  # RuntimeError: ~ without a home folder
        raise ConfigError(KINDS[kind], name, got) from None
    if isinstance(value, Path) and (why := unusable(value)):
        raise ConfigError("--{}: {}; give another path; got {!r}", name, why, got)
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError("--{}: expected a finite number; got {!r}", name, got)
    if isinstance(value, int) and abs(value) >= 2**63:
        raise ConfigError("--{}: expected a whole number of at most 18 digits; got {!r}", name, got)
    return value


def unusable(path: Path) -> str:
    """Return why a path can be neither read nor written, whatever it is for; empty if that is not known yet."""
    try:
        regular(path)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EINVAL):
            return language.why(error)
    return ""


def without_none(hint: Any) -> Any:
    """Strip `| None` from a type."""
    if typing.get_origin(hint) not in (types.UnionType, typing.Union):
        return hint
    (kind,) = (part for part in typing.get_args(hint) if part is not type(None))
    return kind


def placeholder(hint: Any) -> str:
    """Return the placeholder that the help shows after `--name=`."""
    kind = without_none(hint)
    return PLACEHOLDERS[kind] if kind in PLACEHOLDERS else "|".join(typing.get_args(kind))


def types_of(config_type: type) -> dict[str, Any]:
    """Return the type of every option of a config, by name."""
    hints = typing.get_type_hints(config_type)
    return {name: hints[name] for name in options_of(config_type)}


class Wrapper(textwrap.TextWrapper):
    """Fills lines by the columns of a terminal, of which a Chinese character takes two.

    A line may break between Chinese characters, but begins with no comma and ends with no opening bracket.
    """

    # One part of a line, as `fill` passes it on, with NUL after each character of two columns.
    wordsep_simple_re = re.compile(r"(\s+|(?:[（“]\0)*(?:\S\0|(?:[^\s\0](?!\0))+)(?:[、。，；：？！）”]\0|=)*)")

    def fill(self, text: str) -> str:
        """Break a text into lines."""
        wide = (f"{letter}\0" if unicodedata.east_asian_width(letter) in "AFW" else letter for letter in text)
        return super().fill("".join(wide)).replace("\0", "")


def help_text(config_type: type, program: str, width: int) -> str:
    """Format the help for `width` columns: usage, purpose, each option with type, meaning and default, examples."""
    width = max(40, min(width, 100))
    column = 28 if width >= 72 else 8
    hints, options = types_of(config_type), options_of(config_type)
    usage = f"{program} {'SOURCE... ' if PLAIN in hints else ''}[--option=value ...]"
    wrapper = Wrapper(width, break_on_hyphens=False)
    purpose = wrapper.fill(language.text(inspect.getdoc(config_type) or ""))
    lines = [language.text("usage: python {}").format(usage), "", purpose, ""]
    wrapper.subsequent_indent = " " * column

    def entry(head: str, said: str) -> None:
        head = f"  {head}  "
        if len(head) > column:
            lines.append(head.rstrip())
            head = ""
        wrapper.initial_indent = head.ljust(column)
        lines.append(wrapper.fill(said))

    if PLAIN in hints:
        entry("SOURCE", language.text(options[PLAIN].meaning))
        lines.append("")
    lines.append(language.text("options:"))
    for name in [name for name in options if name != PLAIN]:
        value = placeholder(hints[name])
        head = f"--{name}[={value}]" if name in MAY_BE_BARE else f"--{name}={value}"
        head = f"--[no]{name}" if without_none(hints[name]) is bool else head
        entry(head, language.text(options[name].meaning) + default_text(config_type, name))
    entry("--help, -h", language.text("show this text."))
    lines += ["", language.text("examples:")]
    lines += [f"  python {program} {words}" for words in getattr(config_type, "examples", ())]
    return "\n".join(lines)


def default_text(config_type: type, name: str) -> str:
    """Format an option's default, and the presets' values that differ from it, to follow its meaning."""
    default = getattr(config_type, name)
    values = [] if default in (None, "") else [(language.text("default"), default)]
    if config_type is TrainConfig:
        of_presets = [(preset, options.get(name, default)) for preset, options in PRESETS.items()]
        values += [(preset, value) for preset, value in of_presets if value != default]
    opening, comma, closing = "（；）" if language.lang() == "zh" else (" (", "; ", ")")
    said = comma.join(f"{name}={as_typed(value)}" for name, value in values)
    return f"{opening}{said}{closing}" if said else ""


def as_typed(value: Any) -> str:
    """Format a default as a user would type it; a path in the program's own folder is relative to it."""
    text = value.as_posix() if isinstance(value, Path) else str(value)
    return text.removeprefix(f"{Path(__file__).resolve().parents[1].as_posix()}/")


def log(text: str, stream: TextIO | None = None) -> None:
    """Print a text. It is not an error if the reader has closed the pipe (`--help | head`)."""
    try:
        print(text, file=stream, flush=True)
    except OSError:  # otherwise Python would flush again at exit and complain
        os.dup2(os.open(os.devnull, os.O_WRONLY), (stream or sys.stdout).fileno())


def options_table(options: Mapping[str, Any]) -> str:
    """Format the options of a run as an HTML table, for display on a page."""
    rows = "".join(
        f"<tr><td style='padding-right:1em'>{html.escape(str(name))}</td><td>{html.escape(str(value))}</td></tr>"
        for name, value in options.items()
        if value is not None
    )
    return f"<table style='font: 12px monospace'>{rows}</table>"
