"""The layout and the event handlers of the studio's page. This is the only module that imports gradio."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import html
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gradio as gr
import numpy as np
from gradio.themes import Default
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse

from config import LABELS, ConfigError, UserError
from gan import visitors
from gan.device import enough_memory
from gan.images import grid, save_picture
from gan.play import morph
from gan.play.directions import SLIDERS, Change
from gan.play.studio import Face, Studio

WALL, PINS = 24, 8  # number of faces on the wall, and maximum number of pins
MOST = 64  # maximum number of faces shown from an uploaded picture's recipe
BEST_OF = (WALL, 128, 512)
LAST_SEED = 2**53 - max(BEST_OF)  # largest seed of the first face
FILMS = [suffix for suffix in morph.FILMS if suffix != ".mp4" or morph.has_av()]
AS_IS = "-"  # choice that leaves a colour unchanged
SAVED, SHOWN = 50, 500  # number of newest downloads, and of newest pictures, that are not deleted
STYLE = """
.gradio-container { max-width: 1400px !important; margin: auto }
#wall .grid-wrap, #pins .grid-wrap { padding-top: 2rem }
#command textarea { font-family: ui-monospace, Consolas, monospace }
@media (max-width: 960px) {
    #wall .grid-container {
        grid-template: none / repeat(5, minmax(0, 1fr)) !important; grid-auto-rows: 80px !important;
    }
}
"""
OPEN = "() => setTimeout(() => document.querySelectorAll('#saved a[download]').forEach(one => one.click()), 200)"
WORDS = {
    "generator": ("Generator", "生成器"),
    "seed": ("Seed of the first face", "第一张的种子"),
    "truncation": ("Truncation: small is clean, large is wild", "截断：小则干净，大则狂野"),
    "best": ("Choose from", "从多少张中挑选"),
    "classes": ("Classes, such as hair:blue", "类别，如 hair:blue"),
    "draw": ("Draw faces", "生成头像"),
    "next": ("Next faces", "下一批"),
    "wall": ("The wall: click a face to play with it", "头像墙：点击一张来玩"),
    "face": ("Your face", "当前头像"),
    "light": ("Darker - lighter", "更暗 - 更亮"),
    "warm": ("Colder - warmer", "更冷 - 更暖"),
    "turn": ("To the left - to the right", "偏左 - 偏右"),
    "ends": ("Darker, lighter, colder, warmer, left, right", "更暗、更亮、更冷、更暖、左、右"),
    "hair": ("Hair", "头发"),
    "eyes": ("Eyes", "眼睛"),
    "reset": ("Undo changes", "撤销改动"),
    "pin": ("Pin it", "钉住"),
    "more": ("More like this", "更多相似的"),
    "near": ("How far from it", "相差多远"),
    "pins": ("Pinned faces: click one to play with it", "钉住的头像：点击一张来玩"),
    "unpin": ("Remove the pins", "取消全部钉住"),
    "sum": ("Sum of pinned faces, by their places: 1 - 2 + 3", "钉住的头像相加减，写第几张：1 - 2 + 3"),
    "mix": ("Mix", "混合"),
    "seconds": ("Seconds", "秒"),
    "format": ("Format", "格式"),
    "morph": ("Film of the pinned faces", "钉住的头像做成短片"),
    "film": ("The film", "短片"),
    "picture": ("A picture of your own, or one of this generator", "自己的图片，或这个生成器的图片"),
    "invert": ("Find the face most like it", "寻找最像的头像"),
    "save_face": ("Save the face", "保存当前头像"),
    "save_pins": ("Save the pins", "保存钉住的头像"),
    "save_wall": ("Save the wall", "保存头像墙"),
    "saved": ("Saved file", "保存的文件"),
    "command": ("The same as a command", "对应的命令"),
}
"""The texts of the page in English and Chinese; the browser's language decides."""


@dataclasses.dataclass
class Session:
    """The state of one open page: the wall and its columns, the chosen face, its edited version, and the pins.

    Events of a page can overlap, so each handler sets only the fields it changes, and only at its end.
    """

    wall: tuple[Face, ...] = ()
    columns: int | None = None
    chosen: Face | None = None
    moved: Face | None = None
    pins: tuple[Face, ...] = ()

    @property
    def face(self) -> Face:
        """The face that is shown.

        Raises:
            ConfigError: no face was chosen.
        """
        if self.moved is None:
            raise ConfigError("no face is chosen; click one on the wall")
        return self.moved


def within(value: object, least: float, most: float, first: float) -> float:
    """Return a number from the page, clamped to [least, most]; `first` if the value is not a number or NaN."""
    number = float(value) if isinstance(value, int | float) else first
    return first if math.isnan(number) else min(max(number, least), most)


def slider(least: float, most: float, first: float, step: float, **more: Any) -> gr.Slider:
    """Create a slider that accepts any typed value; see `within`."""
    made = gr.Slider(least, most, first, step=step, buttons=[], **more)
    # gradio would write a file beside this one for a subclass, so the method is replaced instead.
    made.preprocess = lambda payload: round(within(payload, least, most, first), 3)
    return made


def whole_number(**more: Any) -> gr.Number:
    """Create a field for a whole number from 0 to `LAST_SEED` that accepts any typed value; see `within`."""
    made = gr.Number(0, precision=0, **more)
    made.preprocess = lambda payload: int(within(payload, 0, LAST_SEED, 0))
    return made


def choice(of: Sequence[Any], **more: Any) -> gr.Dropdown:
    """Create a dropdown; a value that is not in it is replaced by its first choice."""
    made = gr.Dropdown(list(of), value=of[0], **more)
    made.preprocess = lambda payload: payload if payload in of else of[0]
    return made


def on_page(work: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap an event handler so that errors the user can correct are shown as messages on the page."""

    @functools.wraps(work)
    def wrapped(*values: Any, **more: Any) -> Any:
        try:
            with enough_memory("out of memory; stop other programs that use it"):
                return work(*values, **more)
        except UserError as error:
            said = str(error)
        except OSError as error:
            said = f"a file could not be written: {error.strerror or error}; make room in the temporary folder"
        raise gr.Error(html.escape(said, quote=False), print_exception=False)  # the page takes it for HTML

    return wrapped


def build(studio: Studio, folder: Path) -> gr.Blocks:
    """Build the page with its event handlers; `folder` receives its pictures and the files to download."""
    say, first = words(), studio.names()[0]
    still: dict[str, Any] = {"buttons": [], "interactive": False, "format": "png"}
    hung: dict[str, Any] = {**still, "allow_preview": False, "object_fit": "contain"}

    with gr.Blocks(title="Studio", analytics_enabled=False, delete_cache=(300, 3600)) as blocks:
        session = gr.State(Session())
        with gr.Row(equal_height=True):
            # Custom values are allowed because the list grows while the page is open; the studio checks names.
            name = gr.Dropdown(
                studio.names(), value=first, label=say("generator"), elem_id="generator", allow_custom_value=True
            )
            seed = whole_number(label=say("seed"), elem_id="seed")
            std = slider(0.3, 1.3, 1.0, 0.05, label=say("truncation"), elem_id="truncation")
            best = choice(BEST_OF, label=say("best"), elem_id="best")
            known = bool(studio.sampler(first).classes.vocabulary)
            classes = gr.Textbox(label=say("classes"), max_length=200, elem_id="classes", visible=known)
        with gr.Row():
            draw = gr.Button(say("draw"), variant="primary", elem_id="draw")
            further = gr.Button(say("next"), elem_id="next")
            save_wall = gr.Button(say("save_wall"), elem_id="save-wall")
        with gr.Row():
            with gr.Column(scale=3, min_width=340):
                wall = gr.Gallery(label=say("wall"), elem_id="wall", columns=6, height=520, **hung)
                pins = gr.Gallery(
                    label=say("pins"), elem_id="pins", columns=PINS, height=150, fit_columns=False, **hung
                )
                with gr.Row():
                    unpin = gr.Button(say("unpin"), elem_id="unpin")
                    save_pins = gr.Button(say("save_pins"), elem_id="save-pins")
                with gr.Row(equal_height=True):
                    total = gr.Textbox("1 + 2", label=say("sum"), max_length=200, elem_id="sum")
                    mix = gr.Button(say("mix"), elem_id="mix")
                with gr.Row(equal_height=True):
                    seconds = slider(1, 20, 6, 1, label=say("seconds"), elem_id="seconds")
                    suffix = choice(FILMS, label=say("format"), elem_id="format")
                    film_it = gr.Button(say("morph"), elem_id="morph")
                film = gr.Image(
                    label=say("film"), elem_id="film", type="filepath", buttons=[], interactive=False, height=300
                )
            with gr.Column(scale=2, min_width=300):
                face = gr.Image(label=say("face"), elem_id="face", height=400, **still)
                with gr.Row():
                    reset = gr.Button(say("reset"), elem_id="reset")
                    pin = gr.Button(say("pin"), elem_id="pin")
                    save = gr.Button(say("save_face"), elem_id="save-face")
                sliders = [slider(-1, 1, 0, 0.1, label=say(one), elem_id=one) for one in SLIDERS]
                with gr.Row():
                    colours = [choice([AS_IS, *studio.colours[one]], label=say(one), elem_id=one) for one in LABELS]
                ends = gr.Image(label=say("ends"), elem_id="ends", height=170, **still)
                with gr.Row(equal_height=True):
                    near = slider(0.1, 1, 0.4, 0.1, label=say("near"), elem_id="near")
                    more = gr.Button(say("more"), elem_id="more")
                picture = gr.Image(
                    label=say("picture"), elem_id="picture", height=200, sources=["upload", "clipboard"], buttons=[]
                )
                # The file is passed on unread, so that the program reads it and reports errors.
                picture.preprocess = lambda payload: None if payload is None else payload.path
                invert = gr.Button(say("invert"), elem_id="invert")
        command = gr.Textbox(label=say("command"), elem_id="command", buttons=["copy"], interactive=False)
        saved = gr.File(label=say("saved"), elem_id="saved", interactive=False, file_count="multiple")

        changes = [*sliders, *colours]
        chosen = [face, ends, *changes, command]

        def hang(now: Session, faces: Sequence[Face], columns: int | None = None) -> list[tuple[str, str]]:
            """Put faces on the wall, and return their files and captions."""
            captions = ["" if face.seed is None else str(face.seed) for face in faces]
            shown = files(studio.large(faces), folder)
            now.wall, now.columns = tuple(faces), columns
            return list(zip(shown, captions, strict=True))

        @on_page
        def on_draw(now: Session, name: str, seed: int, std: float, best: int, classes: str) -> tuple[Any, ...]:
            classes = (classes or "").strip()
            faces = studio.wall(name, seed, WALL, std, best, classes)
            options = [f"--seed={seed}", f"--nogen {WALL}", *faces[0].drawn]
            options += [f"--gen_search_num={best}"] if best > WALL else []
            return hang(now, faces), studio.command(faces[0], *options)

        @on_page
        def on_next(now: Session, name: str, seed: int, std: float, best: int, classes: str) -> tuple[Any, ...]:
            seed = min(seed + max(WALL, best), LAST_SEED)
            return seed, *on_draw(now, name, seed, std, best, classes)

        @on_page
        def on_name(name: str) -> Any:
            # What was typed before this answer arrives stays; a generator without classes gets none.
            known = bool(studio.sampler(name).classes.vocabulary)
            return gr.update(visible=True) if known else gr.update(visible=False, value="")

        def begun(now: Session, one: Face, *options: str) -> tuple[Any, ...]:
            """Choose a face: reset the controls, and return the new values of the components in `chosen`."""
            ends = grid(studio.ends(one), 2 * len(SLIDERS))
            shown = files([*studio.large([one], quick=True), ends], folder)
            plain = [0 for _ in sliders] + [AS_IS for _ in colours]
            now.chosen = now.moved = dataclasses.replace(one)  # another object, so that a slow `on_change` notices
            return *shown, *plain, studio.command(one, *(options or one.words))

        @on_page
        def on_wall(now: Session, event: gr.SelectData) -> tuple[Any, ...]:
            return begun(now, clicked(now.wall, event))

        @on_page
        def on_pins(now: Session, event: gr.SelectData) -> tuple[Any, ...]:
            return begun(now, clicked(now.pins, event))

        @on_page
        def on_change(now: Session, *values: Any) -> tuple[Any, ...]:
            one = now.chosen or now.face  # the second raises that none is chosen
            sliders = {of: share for of, share in zip(SLIDERS, values, strict=False) if share}
            wanted = {of: colour for of, colour in zip(LABELS, values[len(SLIDERS) :], strict=True) if colour != AS_IS}
            change = Change(sliders, wanted)
            moved = studio.moved(one, change)
            said = one.words  # a face without a seed is saved with its changes, so its command needs none
            if one.seed is not None and change:
                known = one.sampler.classes.learned(wanted)
                said = [*one.without(known).words, f"--change={change}"]
            shown = files(studio.large([moved], quick=True), folder)
            if now.chosen is not one:  # meanwhile another face was chosen, or this one anew
                return gr.skip(), gr.skip()
            now.moved = moved
            return *shown, studio.command(one, *said)

        @on_page
        def on_reset(now: Session) -> tuple[Any, ...]:
            return begun(now, now.chosen or now.face)

        @on_page
        def on_pin(now: Session) -> list[Any]:
            if len(now.pins) == PINS:
                raise ConfigError(f"at most {PINS} faces can be pinned; remove the pins first")
            now.pins = (*now.pins, now.face)
            shown = files([studio.large([one], quick=True)[0] for one in now.pins], folder)
            return [(one, str(i)) for i, one in enumerate(shown, 1)]

        def on_unpin(now: Session) -> list[Any]:
            now.pins = ()
            return []

        @on_page
        def on_more(now: Session, share: float) -> tuple[Any, ...]:
            one = now.face
            faces = studio.neighbours(one, WALL, share)
            options = [one.source, *one.drawn, f"--vary={share:g}", f"--nogen {WALL}"]
            return hang(now, faces), studio.command(one, *options)

        @on_page
        def on_mix(now: Session, text: str) -> tuple[Any, ...]:
            one, options = studio.mixed(now.pins, text)
            return begun(now, one, *options)

        @on_page
        def on_film(now: Session, seconds: float, suffix: str) -> tuple[Any, ...]:
            path, points = place(folder) / f"morph{suffix}", now.pins
            options = studio.film(points, seconds, path)
            options += [] if suffix == FILMS[0] else [f"--gen_img={path.name}"]
            shown = None if suffix == ".mp4" else str(path)
            return shown, [str(path)], studio.command(points[0], *options)

        @on_page
        def on_invert(now: Session, name: str, path: str | None) -> tuple[Any, ...]:
            if path is None or not Path(path).is_file():  # gradio deletes uploads after an hour
                raise ConfigError("there is no picture; drop one on the field above")
            faces, columns = studio.remembered(name, Path(path))
            if len(faces) > MOST:
                gr.Info(f"of the picture's {len(faces)} faces the first {MOST} are on the wall")
            if faces:
                options = ["--like=PICTURE"] if len(faces) == 1 else []
                return hang(now, faces[:MOST], columns), *begun(now, faces[0], *options)
            one, found = studio.inverted(name, Path(path))
            gr.Info(f"pixels differ by {found.distance:.0f} of 255; of the nearest random face by {found.random:.0f}")
            return gr.update(), *begun(now, one, "--invert=PICTURE")  # the wall stays as it is

        def kept(faces: Sequence[Face], name: str, columns: int | None = None) -> str:
            """Save faces to a file for download, and return its path."""
            path = place(folder) / name
            studio.save(faces, path, columns)
            return str(path)

        @on_page
        def on_save(now: Session) -> list[str]:
            one = now.face
            return [kept([one], "face.png" if one.seed is None else f"face-{one.seed:08d}.png")]

        @on_page
        def on_save_wall(now: Session) -> list[str]:
            if not now.wall:
                raise ConfigError("the wall is empty; draw faces first")
            return [kept(now.wall, "result.png", now.columns)]

        @on_page
        def on_save_pins(now: Session) -> list[str]:
            pinned = now.pins
            if not pinned:
                raise ConfigError("no face is pinned; click one and pin it")
            return [kept([one], f"pin-{i}.png") for i, one in enumerate(pinned, 1)]

        # Generating in parallel is no faster. Long work has a queue of its own, so that the sliders stay responsive.
        # On Apple's GPUs one queue has it all: two threads that use such a GPU end the process (pytorch issue 197805).
        apple = studio.device.type == "mps"
        quick: dict[str, Any] = {"concurrency_id": "quick", "concurrency_limit": 1 if apple else 2}
        quick["api_visibility"] = "private"
        long = quick if apple else {**quick, "concurrency_id": "long", "concurrency_limit": 1}
        asked = [session, name, seed, std, best, classes]
        for event in (draw.click, blocks.load):
            event(on_draw, asked, [wall, command], **quick)
        further.click(on_next, asked, [seed, wall, command], **quick)
        blocks.load(lambda: gr.update(choices=studio.names()), None, name, **quick)
        name.focus(lambda: gr.update(choices=studio.names()), None, name, show_progress="hidden", **quick)
        name.change(on_name, name, classes, **quick)
        wall.select(on_wall, session, chosen, **quick)
        pins.select(on_pins, session, chosen, **quick)
        of_change: dict[str, Any] = {"trigger_mode": "always_last", "show_progress": "hidden", **quick}
        gr.on([part.input for part in changes], on_change, [session, *changes], [face, command], **of_change)
        reset.click(on_reset, session, chosen, **quick)
        pin.click(on_pin, session, pins, **quick)
        unpin.click(on_unpin, session, pins, **quick)
        more.click(on_more, [session, near], [wall, command], **quick)
        mix.click(on_mix, [session, total], chosen, **quick)
        film_it.click(on_film, [session, seconds, suffix], [film, saved, command], **long)
        invert.click(on_invert, [session, name, picture], [wall, *chosen], show_progress_on=face, **long)
        for button, work in ((save, on_save), (save_wall, on_save_wall), (save_pins, on_save_pins)):
            button.click(work, session, saved, **quick).success(None, js=OPEN)
    blocks.temp_file_sets = [blocks.upload_file_set]  # gradio cleans up uploads only; `files` and `place` do the others
    return blocks


def clicked(faces: Sequence[Face], event: gr.SelectData) -> Face:
    """Return the face of a gallery that was clicked.

    Raises:
        ConfigError: the studio no longer has the session of the page.
    """
    place = int(event.index)  # pyright: ignore[reportArgumentType]
    if not 0 <= place < len(faces):
        raise ConfigError("the studio was started anew, or has forgotten this page; load it again")
    return faces[place]


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
    """Return the texts of the page, translated to the browser's language by gradio."""
    english, chinese = ({key: both[i] for key, both in WORDS.items()} for i in (0, 1))
    return gr.I18n(**{"en": english, "zh": chinese, "zh-CN": chinese, "zh-TW": chinese})


def guarded(app: Any) -> Any:
    """Wrap an ASGI app, as middleware that refuses requests from the pages of other sites."""

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        said = {name: value.decode("latin-1") for name, value in scope.get("headers", ())}
        foreign = scope["type"] == "http" and visitors.is_foreign(said.get(b"host"), said.get(b"origin"))
        await (PlainTextResponse(visitors.REFUSED, 403) if foreign else app)(scope, receive, send)

    return answer


def looks() -> dict[str, Any]:
    """Return the arguments of `launch` for the theme, the texts and the middleware; only system fonts are used."""
    theme = Default(font=["system-ui", "sans-serif"], font_mono=["ui-monospace", "monospace"])
    return {"theme": theme, "css": STYLE, "i18n": words(), "app_kwargs": {"middleware": [Middleware(guarded)]}}
