"""The tab to train a generator: pictures, minutes, start; and how the runs of this folder come along."""

import html
import os
import re
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import gradio as gr

from config import SYNTHETIC, ConfigError, TrainConfig
from gan import checkpoint
from gan.files import printable
from gan.images import load_picture
from gan.language import text
from gan.presets import minutes_for
from gan.studio.faces import Studio
from gan.studio.faces_tab import Faces
from gan.studio.parts import (
    Answers,
    Session,
    address,
    cancel,
    files,
    note,
    own_work,
    place,
    said,
    see,
    slider,
    taking,
    within,
    without_uploads,
    words,
)
from gan.studio.programs import DATA, MANIFEST, Found, Runs, State, gathered, last_line, prepared
from gan.studio.sheet import ACROSS, Sheet
from gan.watching.curves import PANELS, Curves
from gan.watching.monitor import duration
from gan.watching.run_report import figure

EVERY = 2.0  # seconds between looks at the chosen run
LONGEST = 7 * 24 * 60  # minutes
WATCHED = ("damage", "quality", "accuracy")  # panels that matter, of which the first two with curves are shown
CUT_OUT, WHOLE = "cut out", "whole"
LEFT_OUT = {
    "small": "too small",
    "narrow": "too long and narrow",
    "truncated": "cut short",
    "faceless": "without a face",
    "near_duplicate": "nearly the same as another",
    "deleted": "thrown out before",
    "outlier": "unlike all others",
}
"""What the page calls pictures that were left out, where the word that `prepare.py` uses says little."""
LEAST = TrainConfig().batch_size  # faces
# A picture that takes clicks loses those that come while it is drawn anew.
CLICKED = """element.addEventListener('click', event => {
    const face = event.target.closest('button')
    if (face) trigger('select', {index: [...element.querySelectorAll('button')].indexOf(face), value: null})
})"""
NEWEST = 100  # of the slider through the faces of a run


def build(
    folder: Path,
    answers: Answers,
    runs: Runs,
    studio: Studio,
    faces: Faces,
    tabs: gr.Tabs,
    loaded: Any,
    last: gr.BrowserState,
) -> None:
    """Build the tab.

    `folder` receives what it shows, `loaded` is the event of a page that opens, and `last` keeps what pictures were
    looked at; it stands outside of the tab, which the page makes only when it is opened.
    """
    say = words()
    with gr.Row(elem_id="training"):
        with gr.Column(elem_id="make", min_width=0):
            gr.HTML(
                say("Give the program pictures, let it look at them, and press Start."),
                elem_classes="lead",
                padding=False,
            )
            given = gr.Dropdown(
                places(), value=None, label=say("A folder or zip on this machine: its path"), elem_id="folder",
                allow_custom_value=True,
            )  # fmt: skip
            dropped = gr.File(
                label=say("Or drop pictures or a zip here"), elem_id="dropped", file_count="multiple", height=160,
                buttons=[],
            )  # fmt: skip
            taking(dropped, paths_of)
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
            with gr.Row(equal_height=True):
                minutes = gr.Number(10, precision=0, label=say("Minutes"), elem_id="minutes", min_width=100)
                taking(minutes, asked_for)
                init = gr.Checkbox(
                    True, label=say("Start from the released generator of anime faces"), elem_id="init", min_width=160
                )
            start = gr.Button(say("Start"), variant="primary", elem_id="start", interactive=False)
            why_not = gr.HTML("", elem_id="why-not", elem_classes="lead", padding=False)
            of_start = said("start")
            report = gr.HTML("", elem_id="report", padding=False)
            with gr.Accordion(say("Throw out bad faces"), open=False, visible=False, elem_id="throw") as throw:
                gr.HTML(say("Click a face to throw it out, and once more to take it back."), elem_classes="lead")
                of_throw = said("throw")
                sheet = gr.HTML("", elem_id="sheet", padding=False, apply_default_css=False, js_on_load=CLICKED)
        with gr.Column(elem_id="watch", min_width=0):
            run = gr.Dropdown(runs.names(), value=None, label=say("Run"), elem_id="run", allow_custom_value=True)
            how = gr.HTML("", elem_id="how", padding=False)
            more = gr.Number(10, precision=0, label=say("Minutes to go on"), elem_id="more-minutes", visible=False)
            taking(more, asked_for)
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
                NEWEST,
                NEWEST,
                1,
                label=say("From the first faces to the newest"),
                elem_id="when",
                elem_classes="plain",
                visible=False,
            )
            curves = gr.HTML("", elem_id="curves", padding=False)
    ready = gr.State(None)  # the faces that were looked at, as a `Found`
    timer = gr.Timer(EVERY)

    def on_forget(now: Session) -> tuple[Any, ...]:
        now.look = None
        return None, "", gr.update(visible=False)

    def on_kind(now: Session) -> tuple[Any, ...]:
        return *on_forget(now), ""

    def on_opened(now: Session, last: object) -> tuple[Any, ...]:
        match last:
            case [str(path), str(kind)] if kind in (CUT_OUT, WHOLE):
                return path or None, kind
        return gr.skip(), gr.skip()

    def on_looked_at(now: Session, given: str | None, kind: str) -> tuple[Any, ...]:
        return *on_forget(now), [given or "", kind]  # kept before it looks: a page may be closed while it does

    def on_given(now: Session, given: str | None) -> tuple[Any, ...]:
        return (None if given else gr.skip(),)  # the last that was given counts; gradio also tells of an empty field

    def on_dropped(now: Session, files: list[Path]) -> tuple[Any, ...]:
        size = sum(one.stat().st_size for one in files) / 1e6
        here = text("now look at them: {:,} files, {:.1f} MB").format(len(files), size)
        return None, note(here, "good")

    def on_look(now: Session, given: str | None, dropped: list[Path], kind: str) -> tuple[Any, ...]:
        own = now.look = object()
        path = str(given or "")[:4000].strip().strip("\"'")
        if path.startswith("file:"):  # as a file manager copies it
            path = urllib.request.url2pathname(urllib.parse.urlsplit(path).path)
        if dropped:
            key = "\n".join(f"{one.name} {one.stat().st_size}" for one in dropped)
            source = gathered(dropped, folder)
        elif path == str(SYNTHETIC):
            found = Found(path, 0)
            return found, "", 3, False, *[gr.skip()] * 3, note(text("synthetic faces, to try it"), "good")
        elif path:
            source = Path(path).expanduser()
            key = os.path.realpath(source)
        else:
            raise ConfigError(text("name a folder, or drop pictures first"))
        said, work = place(folder) / "said.txt", own_work()

        def watched(more: int) -> None:
            work.about = last_line(said)
            if far := re.search(r"([\d,]+) / ([\d,]+)$", work.about):
                work.done, work.total = (int(number.replace(",", "")) for number in far.groups())
            work(more)

        found = prepared(source, kind == WHOLE, key, said, watched)
        if now.look is not own:  # meanwhile something else was given
            return *[gr.skip()] * 7, ""
        if found.faces < LEAST:
            few = text("{:,} faces are good enough, and at least {} are needed").format(found.faces, LEAST)
            few += text("; “What was found” says what was left out") if found.report else ""
            return None, shown_report(found), *[gr.skip()] * 5, note(few, "bad")
        some = minutes_for(found.faces)
        told = text("{:,} faces are ready; {} minutes suit so many").format(found.faces, some)
        if found.oblong:
            told = text(
                "most of these {:,} pictures are not square, so they are hardly cut-out faces: if they are whole "
                "pictures, choose that above, and look at them again"
            ).format(found.faces)
        if found.left_out:
            parts = (f"{number:,} {text(LEFT_OUT.get(one, one))}" for one, number in found.left_out.items())
            told += text("; left out: {}").format(text(", ").join(parts))
        now.sheet = Sheet(Path(found.folder))
        now.sheet.file = files([now.sheet.picture()], folder)[0]
        number, all_of = len(now.sheet.paths), now.sheet.number
        part = note(text("{:,} of {:,} faces are shown").format(number, all_of)) if number < all_of else ""
        ready = found, shown_report(found), some, True, gr.update(visible=True)
        return *ready, shown_sheet(now.sheet), part, note(told, "bad" if found.oblong else "good")

    def on_throw(now: Session, found: Found | None, event: gr.SelectData) -> tuple[Any, ...]:
        if found is None or now.sheet is None:
            raise ConfigError(text("look at the pictures first"))
        now.sheet.click(event.index)
        number = len(now.sheet.thrown)
        if found.faces - number < LEAST:
            now.sheet.click(event.index)
            raise ConfigError(text("at least {} faces are needed; take another one back first").format(LEAST))
        told = text("{:,} faces are left; {:,} thrown out").format(found.faces - number, number)
        left = note(text("{:,} faces are ready").format(found.faces - number), "good")
        if number and (learned := runs.learned_from(found.folder)):
            told += text("; {} learned from all of them, and can go on only with all of them").format(learned[0])
        return shown_sheet(now.sheet), left, note(told, "good")

    def on_start(now: Session, found: Found | None, minutes: int, init: bool) -> tuple[Any, ...]:
        if found is None:
            raise ConfigError(text("look at the pictures first"))
        check(minutes)
        init = init and found.folder != str(SYNTHETIC)
        name = runs.start(found.folder, minutes, init)
        now.watched = ()
        begun, some = text("the training has begun: {}").format(name), minutes_for(found.faces)
        short = init and minutes < some
        if short:
            begun += text("; in less than {} minutes the faces may end up worse than those it starts from").format(some)
        return (
            gr.update(choices=runs.names(), value=name),
            NEWEST,
            gr.update(visible=False),
            note(begun, "" if short else "good"),
        )

    def on_stop(now: Session, name: str) -> tuple[Any, ...]:
        runs.stop(name)
        return ()

    def on_resume(now: Session, name: str, more: int) -> tuple[Any, ...]:
        state = runs.state(name)
        check(more)
        runs.resume(name, None if state.left and more == minutes_left(state) else more)
        return (NEWEST,)

    def on_play(now: Session, name: str) -> tuple[Any, ...]:
        best = checkpoint.find(runs.folder(name), ("best.pt", "latest.pt"))
        generator = f"{best.parent.name}/{best.name}"
        return gr.update(selected="faces"), gr.update(choices=studio.choices(), value=generator)

    def on_names(now: Session) -> tuple[Any, ...]:
        return (gr.update(choices=runs.names()),)

    def on_places(now: Session) -> tuple[Any, ...]:
        return (gr.update(choices=places()),)

    def on_tick(now: Session, name: str | None, when: float, found: Found | None) -> tuple[Any, ...]:
        names, busy = runs.names(), runs.training()
        asked, name = name, name if name in names else busy or next(iter(names), "")  # a page was just opened
        state = runs.state(name) if name else State(False)
        why = text("First let it look at the pictures.") if found is None else ""
        why = text("{} is being trained: stop it first, or wait for its end.").format(printable(busy)) if busy else why
        place = round(within(when, 0, NEWEST, NEWEST) / NEWEST * (len(state.grids) - 1))
        shown = state.grids[place] if state.grids else None
        curves_now = state.images, state.diagnosis and state.diagnosis.text
        said = told(state) if name else text("There is no run yet: the first one shows here as it learns.")
        go_on = bool(name) and state.begun and not state.training, minutes_left(state)
        watched = (name, shown, curves_now, said, why, go_on)
        before, now.watched = now.watched or (None,) * len(watched), watched
        picture, drawn = gr.skip(), gr.skip()
        if shown is not None and (name, shown) != before[:2]:
            picture = gr.update(value=files([load_picture(shown)], folder)[0], visible=True)
        elif shown is None and name != before[0]:
            picture = gr.update(visible=False)
        if (name, curves_now) != (before[0], before[2]):
            drawn = shown_curves(state.curves)
        if (asked or "", watched) == (name, before):
            return tuple(gr.skip() for _ in [*states, of_run])
        can_stop, can_go_on = state.training and not state.stopping, bool(name) and not state.training
        able = [not why, can_stop, can_go_on, state.images > 0 or bool(state.grids)]
        buttons = [gr.update(interactive=one) for one in able]
        asks = gr.update(visible=go_on[0])
        if (name, go_on) != (before[0], before[5]):  # else what is typed there stays
            asks = gr.update(visible=go_on[0], value=go_on[1])
        shows = [asks, gr.update(visible=len(state.grids) > 1)]
        chosen = gr.skip() if name == asked else gr.update(choices=names, value=name or None)  # it may be open
        # The note of a button stays.
        return chosen, html.escape(why), said, *buttons, *shows, picture, drawn, gr.skip()

    on, quiet = answers.on, {"show_progress": "hidden"}
    made = [ready, report, minutes, init, throw, sheet, of_throw]
    on(given.input, on_given, [given], [dropped], of_look, **quiet)
    on(dropped.upload, on_dropped, [dropped], [given], of_look, **quiet)
    for event in (given.change, dropped.change):
        on(event, on_forget, [], [ready, report, throw], of_start, **quiet)
    on(kind.change, on_kind, [], [ready, report, throw, of_look], of_start, **quiet)
    looked = on(look.click, on_looked_at, [given, kind], [ready, report, throw, last], of_start, **quiet)
    looked = answers.long(looked.then, on_look, [given, dropped, kind], made, of_look, stop_look)
    on(loaded, on_opened, [last], [given, kind], of_look, **quiet)
    watch: dict[str, Any] = {"concurrency_id": "watch", "concurrency_limit": 1, **quiet}
    on(sheet.select, on_throw, [ready], [sheet, of_look], of_throw, trigger_mode="multiple", **watch)
    stop_look.click(cancel, answers.session, None, queue=False, api_visibility="private")
    states = [run, why_not, how, start, stop, resume, play, more, when, grid, curves]
    begun = on(start.click, on_start, [ready, minutes, init], [run, when, throw], of_start)
    begun.then(None, js=see("#watch", "#said-start"))
    on(stop.click, on_stop, [run], [], of_run, **quiet)
    on(resume.click, on_resume, [run, more], [when], of_run, **quiet)
    on(run.focus, on_names, [], [run], of_run, **quiet)
    on(given.focus, on_places, [], [given], of_look, **quiet)
    for event in (timer.tick, run.change, when.input, ready.change, loaded):
        on(event, on_tick, [run, when, ready], states, of_run, trigger_mode="always_last", **watch)
    played = on(play.click, on_play, [run], [tabs, faces.generator], of_run)
    played.then(None, js="() => scrollTo(0, 0)")
    faces.chosen(played.then)


def paths_of(payload: Any) -> Any:
    """Return the paths of dropped files, as gradio's field has them."""
    return [Path(one.path) for one in payload.root] if payload else []


def places() -> list[str | tuple[str, str]]:
    """Return the folders of faces that prepare.py has written, and, with its name, the word for synthetic faces."""
    folders = [str(path.parent) for path in sorted(DATA.glob(f"*/{MANIFEST}"))]
    return [*folders, (text("synthetic faces, to try it"), str(SYNTHETIC))]


def asked_for(payload: object) -> int:
    """Return the minutes that a page asks for; 0 if they are none."""
    return int(payload) if isinstance(payload, int | float) and 1 <= payload <= LONGEST else 0


def check(minutes: int) -> None:
    """Raise a ConfigError if there are no minutes."""
    if not minutes:
        raise ConfigError(text("give the minutes: a whole number from 1 to {:,}").format(LONGEST))


def minutes_left(state: State) -> int:
    """Return how many minutes a run that does not train would train for, to offer; of a finished one 10."""
    return max(1, round(state.left / 60)) if state.left else 10


def told(state: State) -> str:
    """Return how a run stands, in HTML."""
    trained = text("{}, {:,} images").format(duration(state.seconds), state.images)
    if state.stopping:
        first = text("Stopping: it saves first")
    elif state.training and not state.images:
        first = text("Training; the first numbers come within half a minute") if state.begun else text("Getting ready")
    elif state.training:  # no second is left where a run goes on from its end, until it has a new row
        first = text("Training: {}").format(text("{} left").format(duration(state.left)) if state.left else trained)
    elif state.finished:
        first = text("Finished: {}").format(trained)
    else:
        first = text("Stopped: {}").format(trained)
    lines = [f"<b>{html.escape(first)}</b>"]
    if state.training and state.images and state.left:
        lines.append(f"<small>{html.escape(trained)}</small>")
    if state.begun and not state.training and state.left:
        left = text("{} are left of its time; or give other minutes to go on").format(duration(state.left))
        lines.append(f"<small>{html.escape(left)}</small>")
    look = ""
    if state.diagnosis is not None:
        look = "bad" if state.diagnosis.trouble else "good" if state.diagnosis.kind != "early" else ""
        advice = state.diagnosis.text
        if re.search(r"--\w|python ", advice):  # this page has neither options nor commands
            advice = text("train anew, on more pictures if there are any") if state.diagnosis.trouble else ""
            advice = advice or text("its best faces are kept: play with them")
        lines += [html.escape(state.diagnosis.short), html.escape(advice)]
    elif state.said:  # before the first numbers, and when it could not begin
        look = "" if state.training else "bad"
        lines.append(html.escape(printable(state.said)))
    return f'<div class="verdict {look}">{"<br>".join(lines)}</div>'


def shown_curves(curves: Curves) -> str:
    """Return the two curves that matter most, of those that have two points, in HTML."""
    panels = [PANELS[name] for name in WATCHED if curves.panel(PANELS[name])]
    return "".join(figure(panel, curves.panel(panel)) for panel in panels[:2])


def shown_sheet(sheet: Sheet) -> str:
    """Return the picture of a sheet with a button over each face, pressed where it is thrown out, in HTML."""
    buttons = (
        f'<button type="button" aria-label="{place + 1}" aria-pressed="{str(place in sheet.thrown).lower()}"></button>'
        for place in range(len(sheet.paths))
    )
    style = f"grid-template-columns: repeat({ACROSS}, 1fr); background-image: url('{address(Path(sheet.file))}')"
    about = html.escape(text("The faces"))
    empty = "<i></i>" * (-len(sheet.paths) % ACROSS)  # of the last row
    return f'<div role="group" aria-label="{about}" style="{style}">{"".join(buttons)}{empty}</div>'


def shown_report(found: Found) -> str:
    """Return prepare.py's report in a closed frame, in HTML."""
    if not found.report:
        return ""
    page = html.escape(without_uploads(found.report))
    title = html.escape(text("What was found"))
    return (
        f'<details open><summary>{title}</summary><iframe sandbox title="{title}" srcdoc="{page}"></iframe></details>'
    )
