"""The tab to train a generator: pictures, minutes, start; and how the runs of this folder come along."""

from __future__ import annotations

import base64
import html
import os
from pathlib import Path
from typing import Any

import gradio as gr

from config import SYNTHETIC, ConfigError
from gan import checkpoint
from gan.files import printable
from gan.images import load_picture
from gan.language import text
from gan.presets import minutes_for
from gan.studio.faces import Studio
from gan.studio.faces_tab import Faces
from gan.studio.parts import Answers, Session, cancel, files, note, place, said, slider, whole_number, within, words
from gan.studio.programs import DATA, MANIFEST, Found, Runs, State, gathered, prepared
from gan.watching.curves import PANELS, Curves
from gan.watching.monitor import duration
from gan.watching.run_report import drawing

EVERY = 2.0  # seconds between looks at the chosen run
LONGEST = 7 * 24 * 60  # minutes
WATCHED = ("damage", "quality", "accuracy")  # panels that matter, of which the first two with curves are shown
CUT_OUT, WHOLE = "cut out", "whole"


def build(folder: Path, answers: Answers, runs: Runs, studio: Studio, faces: Faces, tabs: gr.Tabs, loaded: Any) -> None:
    """Build the tab. `folder` receives what it shows; `loaded` is the event of a page that opens."""
    say = words()
    with gr.Row(elem_id="training"):
        with gr.Column(elem_id="make", min_width=0):
            gr.HTML(
                say("Give the program pictures, say how many minutes it may take, and press Start."),
                elem_classes="lead",
                padding=False,
            )
            given = gr.Dropdown(
                places(), value=None, label=say("A folder or zip on this machine: its path"), elem_id="folder",
                allow_custom_value=True,
            )  # fmt: skip
            dropped = gr.File(
                label=say("Or drop pictures or a zip here"), elem_id="dropped", file_count="multiple", height=140,
                buttons=[],
            )  # fmt: skip
            dropped.preprocess = paths_of
            kind = gr.Radio(
                [
                    (say("faces, already cut out"), CUT_OUT),
                    (say("whole pictures: find the anime faces in them"), WHOLE),
                ],
                value=CUT_OUT,
                label=say("They are"),
                elem_id="kind",
            )
            with gr.Row():
                look = gr.Button(say("Look at them"), elem_id="look")
                stop_look = gr.Button(say("Cancel"), visible=False, elem_id="stop-look", min_width=80)
            of_look = said("look")
            report = gr.HTML("", elem_id="report", padding=False)
            with gr.Row(equal_height=True):
                minutes = whole_number(10, 1, LONGEST, label=say("Minutes"), elem_id="minutes", min_width=100)
                init = gr.Checkbox(
                    True, label=say("Start from the released generator of anime faces"), elem_id="init", min_width=160
                )
            start = gr.Button(say("Start"), variant="primary", elem_id="start", interactive=False)
            of_start = said("start")
        with gr.Column(elem_id="watch", min_width=0):
            run = gr.Dropdown(
                runs.names(), value=next(iter(runs.names()), None), label=say("Run"), elem_id="run",
                allow_custom_value=True,
            )  # fmt: skip
            how = gr.HTML(
                say("There is no run yet: the first one shows here as it learns."), elem_id="how", padding=False
            )
            with gr.Row(elem_classes="buttons"):
                stop = gr.Button(say("Stop"), elem_id="stop", interactive=False)
                resume = gr.Button(say("Go on"), elem_id="resume", interactive=False)
                play = gr.Button(say("Play with it"), variant="primary", elem_id="play", interactive=False)
            of_run = said("run")
            grid = gr.Image(
                label=say("Faces of this run"), elem_id="grid", buttons=[], interactive=False, format="png",
                show_label=False, container=False, visible=False,
            )  # fmt: skip
            when = slider(
                0,
                100,
                100,
                1,
                label=say("From the first faces to the newest"),
                elem_id="when",
                elem_classes="plain",
                visible=False,
            )
            curves = gr.HTML("", elem_id="curves", padding=False)
    ready = gr.State(None)  # the faces that were looked at, as a `Found`
    timer = gr.Timer(EVERY)

    def on_look(now: Session, given: str | None, files: list[Path], kind: str) -> tuple[Any, ...]:
        path = str(given or "")[:4000].strip().strip("\"'")
        if files:
            key = "\n".join(f"{one.name} {one.stat().st_size}" for one in files)
            source = gathered(files, folder)
        elif path == str(SYNTHETIC):
            found = Found(path, 0)
            return found, "", 3, False, gr.update(interactive=True), note(text("synthetic faces, to try it"), "good")
        elif path:
            source = Path(path).expanduser()
            key = os.path.realpath(source)
        else:
            raise ConfigError(text("name a folder, or drop pictures first"))
        found = prepared(source, kind == WHOLE, key, place(folder) / "said.txt", now.work)
        if not found.faces:
            none = text("no face among them is good enough; the report says why")
            return None, shown_report(found), gr.skip(), gr.skip(), gr.update(interactive=False), note(none, "bad")
        told = text("{} faces are ready").format(f"{found.faces:,}")
        if found.left_out:
            parts = (f"{number:,} {text(one)}" for one, number in found.left_out.items())
            told += "; " + text("left out: {}").format(", ".join(parts))
        able = gr.update(interactive=True)
        return found, shown_report(found), minutes_for(found.faces), True, able, note(told, "good")

    def on_start(now: Session, found: Found | None, minutes: int, init: bool) -> tuple[Any, ...]:
        if found is None:
            raise ConfigError(text("look at the pictures first"))
        name = runs.start(found.folder, minutes, init and found.folder != str(SYNTHETIC))
        now.watched = ()
        return (gr.update(choices=runs.names(), value=name),)

    def on_stop(now: Session, name: str) -> tuple[Any, ...]:
        runs.stop(name)
        return ()

    def on_resume(now: Session, name: str, minutes: int) -> tuple[Any, ...]:
        runs.resume(name, minutes)
        return ()

    def on_play(now: Session, name: str) -> tuple[Any, ...]:
        best = checkpoint.find(runs.folder(name), ("best.pt", "latest.pt"))
        generator = f"{best.parent.name}/{best.name}"
        return gr.update(selected="faces"), gr.update(choices=studio.names(), value=generator)

    def on_names(now: Session) -> tuple[Any, ...]:
        return (gr.update(choices=runs.names()),)

    def on_places(now: Session) -> tuple[Any, ...]:
        return (gr.update(choices=places()),)

    def on_tick(now: Session, name: str | None, when: float) -> tuple[Any, ...]:
        if not name or name not in runs.names():
            return (*[gr.skip()] * 8,)
        state = runs.state(name)
        place = round(within(when, 0, 100, 100) / 100 * (len(state.grids) - 1))
        shown = state.grids[place] if state.grids else None
        curves_now = state.images, state.diagnosis and state.diagnosis.text
        watched = (name, shown, curves_now, told(state))
        before, now.watched = now.watched or (None, None, None, None), watched
        picture, drawn = gr.skip(), gr.skip()
        if shown is not None and (name, shown) != before[:2]:
            picture = gr.update(value=files([load_picture(shown)], folder)[0], visible=True)
        elif shown is None and name != before[0]:
            picture = gr.update(visible=False)
        if (name, curves_now) != (before[0], before[2]):
            drawn = shown_curves(state.curves)
        if watched == before:
            return (*[gr.skip()] * 8,)
        able = [state.training and not state.stopping, not state.training, state.images > 0 or bool(state.grids)]
        buttons = [gr.update(interactive=one) for one in able]
        many = gr.update(visible=len(state.grids) > 1)
        return told(state), *buttons, picture, many, drawn, gr.skip()  # the note of a button stays

    on, quiet = answers.on, {"show_progress": "hidden"}
    made = [ready, report, minutes, init, start]
    answers.long(look.click, on_look, [given, dropped, kind], made, of_look, stop_look)
    stop_look.click(cancel, answers.session, None, queue=False, api_visibility="private")
    watch: dict[str, Any] = {"concurrency_id": "watch", "concurrency_limit": 1, **quiet}
    states = [how, stop, resume, play, grid, when, curves]
    on(start.click, on_start, [ready, minutes, init], [run], of_start)
    on(stop.click, on_stop, [run], [], of_run, **quiet)
    on(resume.click, on_resume, [run, minutes], [], of_run, **quiet)
    on(run.focus, on_names, [], [run], of_run, **quiet)
    on(given.focus, on_places, [], [given], of_look, **quiet)
    for event in (timer.tick, run.change, when.input, loaded):
        on(event, on_tick, [run, when], states, of_run, trigger_mode="always_last", **watch)
    faces.draw(on(play.click, on_play, [run], [tabs, faces.generator], of_run).then)


def paths_of(payload: Any) -> Any:
    """Return the paths of dropped files, as gradio's field has them."""
    return [Path(one.path) for one in payload.root] if payload else []


def places() -> list[str]:
    """Return the folders of faces that prepare.py has written, and the word for synthetic faces."""
    return [*(str(path.parent) for path in sorted(DATA.glob(f"*/{MANIFEST}"))), str(SYNTHETIC)]


def told(state: State) -> str:
    """Return how a run stands, in HTML."""
    trained = f"{duration(state.seconds)}, {text('{} images').format(f'{state.images:,}')}"
    if state.stopping:
        first = text("Stopping: it saves first")
    elif state.training and not state.images:
        first = text("Training; the first numbers come within half a minute") if state.begun else text("Getting ready")
    elif state.training:
        left = "" if state.left is None else text("{} left").format(duration(state.left))
        first = f"{text('Training')}: {left or trained}"
    elif state.finished:
        first = f"{text('Finished')}: {trained}"
    else:
        first = f"{text('Stopped')}: {trained}"
    lines = [f"<b>{html.escape(first)}</b>"]
    if state.training and state.images and state.left is not None:
        lines.append(f"<small>{html.escape(trained)}</small>")
    look = ""
    if state.diagnosis is not None:
        look = "bad" if state.diagnosis.trouble else "good" if state.diagnosis.kind != "early" else ""
        lines.append(f"{html.escape(state.diagnosis.short)}: {html.escape(state.diagnosis.text)}")
    elif state.said:  # before the first numbers, and when it could not begin
        look = "" if state.training else "bad"
        lines.append(html.escape(printable(state.said)))
    return f'<div class="verdict {look}">{"<br>".join(lines)}</div>'


def shown_curves(curves: Curves) -> str:
    """Return the two curves that matter most, of those that have two points, in HTML."""
    made = list[str]()
    for panel in (PANELS[name] for name in WATCHED):
        found = curves.panel(panel)
        if len(made) < 2 and any(len(x) > 1 for x, _ in found.values()):
            data = base64.b64encode(drawing(panel, found)).decode()
            title = html.escape(panel.title)
            image = f'<img alt="{title}" src="data:image/svg+xml;base64,{data}">'
            made.append(f"<figure><figcaption>{title}</figcaption>{image}</figure>")
    return "".join(made)


def shown_report(found: Found) -> str:
    """Return prepare.py's report in a closed frame, in HTML."""
    if not found.report:
        return ""
    page = html.escape(found.report)
    title = html.escape(text("What was found"))
    return (
        f'<details open><summary>{title}</summary><iframe sandbox title="{title}" srcdoc="{page}"></iframe></details>'
    )
