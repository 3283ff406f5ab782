"""The language of what people read: English, or Chinese where their system is.

The messages stand in the code, in English; `locale/zh/LC_MESSAGES/animegan.po` has their Chinese.
"""

import ast
import contextlib
import contextvars
import functools
import locale
import os
import re
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path

from config import UserError

CATALOGUE = Path(__file__).with_name("locale") / "zh" / "LC_MESSAGES" / "animegan.po"
REASONS = (
    "No such file or directory",
    "Permission denied",
    "Operation not permitted",
    "No space left on device",
    "Disk quota exceeded",
    "Read-only file system",
    "Is a directory",
    "Not a directory",
    "File exists",
    "File name too long",
    "Too many levels of symbolic links",
    "Too many open files",
    "Input/output error",
    "Invalid argument",
    "Device or resource busy",
    "Cannot allocate memory",
    "File too large",
)
"""What systems say of files that cannot be used; those of other errors stay as they are."""
_SPOKEN: contextvars.ContextVar[str] = contextvars.ContextVar("spoken", default="")


def lang() -> str:
    """Return "en" or "zh": what `speaking` or $ANIMEGAN_LANG says, or else the system, by the rules of gettext."""
    if _SPOKEN.get():
        return _SPOKEN.get()
    own, languages = os.environ.get("ANIMEGAN_LANG"), os.environ.get("LANGUAGE", "")
    system = next(filter(None, map(os.environ.get, ("LC_ALL", "LC_MESSAGES", "LANG"))), "")
    if sys.platform == "win32" and not system:
        import ctypes

        system = locale.windows_locale.get(ctypes.windll.kernel32.GetUserDefaultUILanguage(), "")
    plain = system.partition(".")[0] in ("", "C", "POSIX")  # then LANGUAGE is not asked
    names = [own] if own else [] if plain else [*languages.split(":"), system]
    return next((name[:2] for name in names if re.match(r"(en|zh)(?![a-z])", name)), "en")


@contextlib.contextmanager
def speaking(language: str) -> Iterator[None]:
    """Speak "en" or "zh" for a while, in this thread: that of a page's reader, who may not be the system's."""
    before = _SPOKEN.set(language)
    try:
        yield
    finally:
        _SPOKEN.reset(before)


def text(message: str) -> str:
    """Return a message in the language of `lang`; one without a translation stays English."""
    return catalogue().get(message, message) if lang() == "zh" else message


def said(error: UserError) -> str:
    """Return what an error says, in the language of `lang`, and likewise the errors among its values."""
    message, values = text(error.message), list[object]()
    for value in error.values:
        if isinstance(value, UserError):
            value = said(value)
        elif isinstance(value, OSError) and value.strerror:
            value = why(value) if value.filename is None else f"{why(value)}: {value.filename}"
        values.append(value)
    return message.format(*values) if values else message


def why(error: BaseException) -> str:
    """Return the reason that the system gives for an error, in the language of `lang` if it is one of `REASONS`."""
    return text(getattr(error, "strerror", None) or str(error) or type(error).__name__)


def columns(letter: str) -> int:
    """Return how many columns of a terminal a letter takes: a Chinese one takes two."""
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


@functools.cache
def catalogue() -> dict[str, str]:
    """Read the Chinese of every message. Of the format of gettext, plural forms and contexts are not read."""
    texts = r'((?:".*"\s+)+)'
    pairs = re.findall(f"^msgid {texts}msgstr {texts}", CATALOGUE.read_text(encoding="utf-8"), re.MULTILINE)
    known = {ast.literal_eval(f"({one})"): ast.literal_eval(f"({other})") for one, other in pairs}
    return {message: chinese for message, chinese in known.items() if message and chinese}
