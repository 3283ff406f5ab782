"""What the studio's tabs are made of: their state, fields that accept anything, answers, and files to show."""

import abc
import contextlib
import contextvars
import dataclasses
import functools
import hashlib
import html
import math
import os
import re
import shutil
import tempfile
import threading
import traceback
import urllib.parse
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import gradio as gr
import numpy as np

from config import UserError
from gan import language
from gan.device import enough_memory
from gan.images import save_picture
from gan.language import catalogue, speaking, text
from gan.studio.faces import Face
from gan.studio.sheet import Sheet

SAVED, SHOWN = 50, 500  # number of newest downloads, and of newest pictures, that are not deleted
SOON, OFTEN = 0.5, 0.3  # seconds after which long work shows its progress, and between its shows
OPEN = "() => setTimeout(() => document.querySelectorAll('a[download].new').forEach(one => {{ {} }}), 200)".format(
    "one.classList.remove('new'); one.click()"
)


class CancelledError(UserError):
    """The user cancelled the work."""


@dataclasses.dataclass
class Work:
    """Long work of a page. Its thread tells how far it is; the page may cancel it."""

    done: int = 0
    total: int = 0
    cancelled: bool = False
    about: str = ""  # what it does, in the reader's language, where the page does not say it

    def __call__(self, more: int) -> None:
        """Count progress; raise a CancelledError if the page has cancelled the work."""
        self.done += more
        if self.cancelled:
            raise CancelledError(text("cancelled"))

    @property
    def share(self) -> float:
        """The share that is done, from 0 to 1; 0 if it is not known."""
        return min(self.done / self.total, 1.0) if self.total else 0.0


_OWN = contextvars.ContextVar[Work]("own")  # of the thread of a handler


def own_work() -> Work:
    """Return the work of the handler that calls this, to count its progress; see `Answers.long`."""
    return _OWN.get(Work())


@dataclasses.dataclass
class Session:
    """The state of an open page.

    Events of a page can overlap, so each handler sets only the fields it changes, and results only at its end.
    """

    language: str = "en"
    wall: tuple[Face, ...] = ()
    columns: int | None = None
    asked: tuple[Any, ...] | None = None  # what the wall's fields asked for last; other faces may hang there since
    chosen: Face | None = None
    moved: Face | None = None
    ends: bool = False  # whether the ends of the sliders are shown
    pins: tuple[Face, ...] = ()
    works: list[Work] = dataclasses.field(default_factory=list)  # that go on, and that a button cancels
    look: object | None = None  # the look at pictures whose answer is awaited
    sheet: Sheet | None = None  # of the faces that were looked at last
    watched: tuple[Any, ...] = ()  # what the Train tab shows, so that it is sent only when it changes


class Answers:
    """Binds handlers to events. What goes wrong is said at the place of the click, and all else stays as it is.

    A handler gets the session and the values of its inputs, and returns the values of its outputs, a tuple; a further
    value, if it returns one, is the note in HTML.
    """

    def __init__(self, session: gr.State, apple: bool) -> None:
        self.session = session
        # Generating in parallel is no faster. Long work has a queue of its own, so that the sliders stay responsive.
        # On Apple's GPUs one queue has it all: two threads that use such a GPU end the process (pytorch issue 197805).
        self.quick: dict[str, Any] = {"concurrency_id": "quick", "concurrency_limit": 1 if apple else 2}
        self.quick["api_visibility"] = "private"
        self.slow = self.quick if apple else {**self.quick, "concurrency_id": "long", "concurrency_limit": 1}

    def on(self, event: Any, work: Any, inputs: Sequence[Any], outputs: Sequence[Any], note: Any, **more: Any) -> Any:
        """Run `work` at an event; returns gradio's dependency."""
        handler, some = answering(work, len(outputs)), [self.session, *inputs]
        return event(handler, some, [*outputs, note], **{**self.quick, **more})

    def long(
        self, event: Any, work: Any, inputs: Sequence[Any], outputs: Sequence[Any], note: Any, *cancel: Any, **more: Any
    ) -> Any:
        """Run long work at an event: the note shows its progress meanwhile; a button `cancel` ends it."""
        handler, some = working(work, len(outputs), bool(cancel)), [self.session, *inputs]
        return event(handler, some, [*outputs, note, *cancel], show_progress="hidden", **{**self.slow, **more})


def answering(work: Callable[..., tuple[Any, ...]], outputs: int) -> Callable[..., tuple[Any, ...]]:
    """Wrap a handler so that it speaks the page's language, and so that errors become notes."""

    @functools.wraps(work)
    def wrapped(now: Session, *values: Any, **more: Any) -> tuple[Any, ...]:
        with speaking(now.language):
            try:
                with enough_memory(text("out of memory; stop other programs that use it")):
                    found = work(now, *values, **more)
                return found if len(found) > outputs else (*found, "")
            except (UserError, OSError) as error:
                said = wrong(error)
            except Exception:
                traceback.print_exc()
                said = note(text("something went wrong; the terminal of the studio says what"), "bad")
            return (*[gr.skip() for _ in range(outputs)], said)

    return wrapped


def working(
    work: Callable[..., tuple[Any, ...]], outputs: int, button: bool
) -> Callable[..., Iterator[tuple[Any, ...]]]:
    """Wrap a handler of long work as `answering` does; its thread runs beside, and a bar shows how far it is.

    `button` says whether there is one to cancel it.
    """

    @functools.wraps(work)
    def wrapped(now: Session, *values: Any, **more: Any) -> Iterator[tuple[Any, ...]]:
        answers: list[tuple[Any, ...]] = []
        own = Work()

        def run() -> None:
            _OWN.set(own)
            answers.append(answering(work, outputs)(now, *values, **more))

        thread = threading.Thread(target=run)
        now.works += [own] * button
        thread.start()
        thread.join(SOON)
        same = [gr.skip() for _ in range(outputs)]
        while thread.is_alive():
            yield *same, bar(own), *[gr.update(visible=True)] * button
            thread.join(OFTEN)
        now.works[:] = [one for one in now.works if one is not own]
        yield *answers[0], *[gr.update(visible=False)] * button

    return wrapped


def cancel(now: Session) -> None:
    """Cancel the page's long work."""
    for work in now.works:
        work.cancelled = True


def wrong(error: Exception) -> str:
    """Return a note that says an error in the reader's words: without the names of options."""
    if isinstance(error, UserError):
        said = language.said(error)
    else:
        said = text("a file could not be written: {}; make room in the temporary folder").format(language.why(error))
    said = without_uploads(re.sub(r"^--\w+(: |：)", "", said))
    return note(said, "bad" if not isinstance(error, CancelledError) else "")


def without_uploads(said: str) -> str:
    """Return a text without the folder of dropped files, which says nothing to who dropped them."""
    uploads = os.environ.get("GRADIO_TEMP_DIR", "\0")
    return re.sub(re.escape(uploads) + r"[/\\]+[^/\\]+[/\\]+(pictures[/\\]+)?", "", said)


def see(target: str, told: str) -> str:
    """Return JavaScript that scrolls to the element `target`, unless the note `told` has an error."""
    return f"""() => setTimeout(() => document.querySelector("{told} .bad")
        || document.querySelector("{target}").scrollIntoView({{behavior: "smooth", block: "nearest"}}), 200)"""


def note(said: str, look: str = "") -> str:
    """Return a note, in HTML; addresses in it are links."""
    link = r'<a href="\g<0>" target="_blank" rel="noreferrer">\g<0></a>'
    shown = re.sub(r"https://[^\s<>&;，；]+", link, html.escape(said))
    return f'<p class="{look}" role="status">{shown}</p>' if said else ""


def bar(work: Work) -> str:
    """Return how far long work is, in HTML."""
    width, shown = (f"{work.share:.0%}", f" {work.share:.0%}") if work.share else ("100%", "")
    look = "bar" if work.share else "bar unknown"
    drawn = f'<span class="{look}"><i style="width: {width}"></i></span>{shown}'
    return f'<p role="status">{html.escape(work.about)} {drawn}</p>'


def links(paths: Sequence[Path], about: str = "") -> str:
    """Return links to saved files, with their sizes, in HTML; `OPEN` starts their download."""
    made = []
    for path in paths:
        name, size = html.escape(path.name), path.stat().st_size
        shown = f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1e3:.0f} kB"
        made.append(f'<a class="new" download="{name}" href="{address(path)}">{name}</a> <small>{shown}</small>')
    return f'<p class="good" role="status">{" ".join(made)}{f" {html.escape(about)}" if about else ""}</p>'


def address(path: Path) -> str:
    """Return where a page finds a file of gradio's folder."""
    return f"gradio_api/file={urllib.parse.quote(str(path))}"


def within(value: object, least: float, most: float, first: float) -> float:
    """Return a number from the page, clamped to [least, most]; `first` if the value is not a number or NaN."""
    number = float(value) if isinstance(value, int | float) else first
    return first if math.isnan(number) else min(max(number, least), most)


def slider(least: float, most: float, first: float, step: float, **more: Any) -> gr.Slider:
    """Create a slider that accepts any typed value; see `within`."""
    made = gr.Slider(least, most, first, step=step, buttons=[], **more)
    return taking(made, lambda payload: round(within(payload, least, most, first), 3))


def whole_number(first: int, least: int, most: int, **more: Any) -> gr.Number:
    """Create a field for a whole number that accepts any typed value; see `within`."""
    made = gr.Number(first, precision=0, **more)
    return taking(made, lambda payload: int(within(payload, least, most, first)))


def show_taken(made: gr.Number) -> None:
    """Let a field show what its page took from it, once another one is typed in."""
    made.blur(lambda number: number, made, made, queue=False, show_progress="hidden", api_visibility="private")


def choice(of: Sequence[Any], made: Any) -> Any:
    """Let a field of choices replace a value that is none of them by the first."""
    return taking(made, lambda payload: payload if payload in of else of[0])


def taking(made: Any, take: Callable[[Any], Any]) -> Any:
    """Let a component give its handlers `take(payload)`.

    gradio makes a component anew from its class when a page changes how it looks, so the class has to be another. As
    a `class` statement in this file, gradio would write a file beside it.
    """
    kind, own = type(made), {"preprocess": lambda _, payload: take(payload)}
    made.__class__ = abc.ABCMeta.__new__(type(kind), kind.__name__, (kind,), own)
    return made


def kept_by_browser(name: str) -> gr.BrowserState:
    """Create a state that the reader's browser keeps when the page is closed; whatever it holds may come back."""
    here = zlib.crc32(os.getcwd().encode(errors="replace"))  # a browser keeps one store for all studios of this address
    return gr.BrowserState(None, storage_key=f"face-studio-{name}-{here:08x}", secret="no secret")


def said(label: str) -> gr.HTML:
    """Create the place of notes beside a button."""
    return gr.HTML("", elem_id=f"said-{label}", elem_classes="note", padding=False)


def files(shown: Sequence[np.ndarray], folder: Path) -> list[str]:
    """Write pictures (H, W, 3) uint8 to files in gradio's folder, delete the oldest files, and return the paths.

    Given an array, gradio would rewrite the file each time, even while another page reads it.
    """
    kept, paths = folder / "shown", list[str]()
    for pixels in shown:
        path = kept / f"{hashlib.sha256(repr(pixels.shape).encode() + pixels.tobytes()).hexdigest()}.png"
        try:
            os.utime(path)
        except FileNotFoundError:
            save_picture(pixels, path)
        paths.append(str(path))
    with contextlib.suppress(OSError):  # another page may delete them now; on Windows, a program may be reading one
        for old in sorted(kept.iterdir(), key=lambda path: path.stat().st_mtime)[:-SHOWN]:
            old.unlink()
    return paths


def place(folder: Path) -> Path:
    """Create a folder for a file to download, and delete the oldest ones."""
    with contextlib.suppress(FileNotFoundError):  # another save may delete them at the same time
        old = sorted(folder.glob("saved-*"), key=lambda path: path.stat().st_mtime)
        for path in old[:-SAVED]:
            shutil.rmtree(path, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix="saved-", dir=folder))


def words() -> gr.I18n:
    """Return the texts of the page, by their English; gradio shows them in the browser's language."""
    chinese = {one: other for one, other in catalogue().items() if "{" not in one}  # the others are filled in first
    return gr.I18n(**{"en": {one: one for one in chinese}, "zh": chinese, "zh-CN": chinese, "zh-TW": chinese})
