"""The tab to play with a generator: a wall of faces, one of them large with its controls, and the pinned ones."""

import dataclasses
import html
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import gradio as gr
import numpy as np

from config import LABELS, ConfigError
from gan.data.cleaning_report import CHIPS
from gan.language import text
from gan.play import inversion, morph
from gan.play.directions import SAMPLES, SLIDERS, Change
from gan.studio.faces import NAMES, Face, Studio, alike, packed
from gan.studio.parts import (
    OPEN,
    Answers,
    CancelledError,
    Session,
    address,
    cancel,
    choice,
    files,
    kept_by_browser,
    links,
    note,
    own_work,
    place,
    said,
    see,
    show_taken,
    slider,
    taking,
    whole_number,
    words,
)

WALL, PINS = 24, 8  # number of faces on the wall, and maximum number of pins
MOST = 64  # maximum number of faces shown from an uploaded picture's recipe
LARGEST = 20 * 2**20  # maximum size of a picture to search for, in bytes
BEST_OF = (WALL, 128, 512)
LAST_SEED = 2**53 - max(BEST_OF)  # largest seed of the first face
FILMS = [suffix for suffix in morph.FILMS if suffix != ".mp4" or morph.has_av()]
TRUNCATION = 0.8  # at first: cleaner faces than with 1
AS_IS = "-"  # choice that leaves a colour unchanged


@dataclasses.dataclass(frozen=True)
class Faces:
    """What other tabs need of this one: the list of generators, and what follows when one is chosen."""

    generator: gr.Dropdown
    chosen: Any  # binds showing its classes, and drawing, to an event


def style(studio: Studio) -> str:
    """Return the rules that make a swatch of each colour."""
    rules = list[str]()
    for column in LABELS:
        for number, colour in enumerate(studio.colours[column], 2):
            rules.append(f"#{column} label:nth-of-type({number}) {{ background: {CHIPS.get(colour, '#888')} }}")
    return "\n".join(rules)


def build(studio: Studio, folder: Path, answers: Answers, loaded: Any) -> Faces:
    """Build the tab. `folder` receives its pictures and downloads; `loaded` is the event of a page that opens."""
    say, first = words(), studio.names()[0]
    still: dict[str, Any] = {"buttons": [], "interactive": False, "format": "png"}
    hung: dict[str, Any] = {**still, "allow_preview": False, "object_fit": "cover", "show_label": False}
    small: dict[str, Any] = {"elem_classes": "end", "padding": False, "apply_default_css": False}

    gr.HTML(say("Click a face to play with it."), elem_classes="lead", padding=False)
    with gr.Row(elem_id="bar"):
        # Custom values are allowed because the list grows while the page is open; the studio checks names.
        generator = gr.Dropdown(
            studio.choices(), value=first, label=say("Generator"), elem_id="generator", allow_custom_value=True
        )
        further = gr.Button(say("More faces"), variant="primary", elem_id="next")
        stop_wall = gr.Button(say("Cancel"), visible=False, elem_id="stop-wall", min_width=80)
    of_wall = said("wall")
    with gr.Accordion(say("Which faces"), open=False, elem_id="which"), gr.Row(equal_height=True):
        classes = gr.Dropdown(
            class_names(studio, first),
            multiselect=True,
            allow_custom_value=True,  # gradio would raise an error, in words of its own
            label=say("Only these"),
            elem_id="classes",
            visible=bool(class_names(studio, first)),
        )
        taking(classes, lambda payload: [str(one) for one in payload] if isinstance(payload, list) else [])
        std = slider(
            0.3,
            1.3,
            TRUNCATION,
            0.05,
            label=say("Truncation: small is cleaner, large more varied"),
            elem_id="truncation",
        )
        best = choice(BEST_OF, gr.Dropdown(list(BEST_OF), value=WALL, label=say("The best of"), elem_id="best"))
        seed = whole_number(0, 0, LAST_SEED, label=say("Seed of the first face"), elem_id="seed")
        draw = gr.Button(say("Draw them"), elem_id="draw")
    with gr.Row(elem_id="room"):
        with gr.Column(elem_id="see", min_width=0):
            face = gr.Image(
                label=say("Your face"),
                alt_text=cast(str, say("Your face")),
                show_label=False,
                elem_id="face",
                container=False,
                **still,
            )
            with gr.Row(elem_classes="buttons"):
                save = gr.Button(say("Save"), variant="primary", elem_id="save-face")
                pin = gr.Button(say("Pin"), elem_id="pin")
                reset = gr.Button(say("Reset"), elem_id="reset")
            of_face = said("face")
        with gr.Column(elem_id="controls", min_width=0):
            sliders, ends = list[Any](), list[Any]()
            for one in SLIDERS:
                with gr.Row(elem_classes="slide"):
                    ends.append(gr.HTML("", **small))
                    sliders.append(
                        slider(
                            -1, 1, 0, 0.1, label=say(NAMES[one][2]), elem_id=one, elem_classes="plain", min_width=100
                        )
                    )
                    ends.append(gr.HTML("", **small))
            colours = list[Any]()
            for one in LABELS:
                known = [AS_IS, *studio.colours[one]]
                shown = [(say("as it is"), AS_IS), *((say(colour), colour) for colour in known[1:])]
                of = gr.Radio(shown, value=AS_IS, label=say(NAMES[one][0]), elem_id=one, elem_classes="swatches")
                colours.append(choice(known, of))
            of_change = said("change")
            with gr.Column(elem_id="alike"):
                near = slider(0.1, 1, 0.4, 0.1, label=say("How different"), elem_id="near", elem_classes="plain")
                more = gr.Button(say("More like this"), elem_id="more")
            of_more = said("more")
            with gr.Accordion(say("A picture of your own"), open=False, elem_id="own"):
                picture = gr.Image(
                    label=say("A picture, or one that you saved here"),
                    elem_id="picture",
                    height=200,
                    sources=["upload", "clipboard"],
                    buttons=[],
                )
                # The file is passed on unread, so that the program reads it and reports errors.
                taking(picture, lambda payload: None if payload is None else payload.path)
                with gr.Row():
                    invert = gr.Button(say("Find the face most like it"), elem_id="invert", interactive=False)
                    stop_invert = gr.Button(say("Cancel"), visible=False, size="sm", elem_id="stop-invert")
                of_invert = said("invert")
        with gr.Column(elem_id="wall-side", min_width=0):
            wall = gr.Gallery(label=say("The wall"), elem_id="wall", columns=4, height="auto", **hung)
            save_wall = gr.Button(say("Save all of them"), elem_id="save-wall", size="sm")
            of_save_wall = said("save-wall")
    with gr.Column(elem_id="strip"):
        hint = gr.HTML(say("Pin faces to mix them, or to make a film of them."), elem_id="hint", elem_classes="lead")
        with gr.Column(visible=False, elem_id="pinned") as pinned:
            pins = gr.Gallery(label=say("Pinned faces"), elem_id="pins", columns=PINS, height="auto", **hung)
            with gr.Row(elem_id="verbs"):
                total = gr.Textbox(
                    "1 + 2", label=say("Mix them, by their places"), max_length=200, elem_id="sum", min_width=120
                )
                mix = gr.Button(say("Mix"), elem_id="mix", interactive=False, min_width=80)
                seconds = slider(1, 20, 6, 1, label=say("Seconds of film"), elem_id="seconds", min_width=180)
                of = gr.Dropdown(FILMS, value=FILMS[0], label=say("Format"), elem_id="format", min_width=100)
                suffix = choice(FILMS, of)
                film_it = gr.Button(say("Make a film"), elem_id="morph", interactive=False, min_width=110)
                stop_film = gr.Button(say("Cancel"), visible=False, elem_id="stop-film", min_width=80)
                save_pins = gr.Button(say("Save the pins"), elem_id="save-pins", min_width=110)
                unpin = gr.Button(say("Remove the pins"), elem_id="unpin", min_width=110)
            of_pins = said("pins")
            film = gr.Image(
                label=say("The film"), elem_id="film", type="filepath", buttons=[], interactive=False, visible=False,
                show_label=False, height=384,
            )  # fmt: skip
    command = gr.Textbox(label=say("The same as a command"), elem_id="command", buttons=["copy"], interactive=False)

    last_one, last_pins = kept_by_browser("generator"), kept_by_browser("pins")

    changes = [*sliders, *colours]
    chosen = [face, *ends, *changes, command, of_change]
    of_chosen = [*chosen, of_face]  # with what was said of the face before
    of_the_pins = [pins, hint, pinned, mix, film_it, last_pins]

    def hang(now: Session, faces: Sequence[Face], columns: int | None = None) -> Any:
        """Put faces on the wall, and return its new value; a face that was marked and is still there stays marked."""
        shown = files(studio.large(faces), folder)
        now.wall, now.columns = tuple(faces), columns
        return gr.update(value=shown, selected_index=-1)  # None would change nothing

    def on_draw(
        now: Session, name: str, seed: int, std: float, best: int, classes: list[str], anew: bool = True
    ) -> tuple[Any, ...]:
        only, nothing = ",".join(classes)[:200], [gr.skip() for _ in range(1 + len(of_chosen))]
        asked = name, studio.sampler(name).digest, seed, std, best, only
        if now.asked == asked:  # gradio also tells of a field that was left as it was
            return (*nothing,)
        work = own_work()
        before, now.asked, work.total = now.wall, asked, best if best > WALL else 0
        try:
            faces = studio.wall(name, seed, WALL, std, best, only, work)
        except Exception as error:
            if not isinstance(error, CancelledError):
                now.asked = None
            raise
        if now.asked != asked or now.wall is not before:  # meanwhile others were asked for
            return (*nothing,)
        options = [f"--seed={seed}", f"--nogen {WALL}", *faces[0].drawn]
        options += [f"--gen_search_num={best}"] if best > WALL else []
        shown = hang(now, faces)
        shown_command = studio.command(faces[0], *options)
        if anew or now.chosen is None:
            return shown, *begun(now, faces[0])[:-3], shown_command, "", ""
        return shown, *[gr.skip() for _ in chosen[:-2]], shown_command, gr.skip(), gr.skip()

    def on_again(now: Session, *values: Any) -> tuple[Any, ...]:
        now.asked = None
        return on_draw(now, *values)

    def on_next(now: Session, name: str, seed: int, std: float, best: int, classes: list[str]) -> tuple[Any, ...]:
        seed = min(seed + max(WALL, best), LAST_SEED)
        return seed, *on_draw(now, name, seed, std, best, classes, anew=False)

    def on_opened(now: Session, last: object) -> tuple[Any, ...]:
        name = last if isinstance(last, str) and last in studio.names() and not studio.typed else first
        return (gr.update(choices=studio.choices(), value=name),)

    def on_generator(now: Session, name: str) -> tuple[Any, ...]:
        return (name,)

    def on_name(now: Session, name: str) -> tuple[Any, ...]:
        # What was chosen of another generator's classes goes.
        if now.wall and now.wall[0].generator == name:
            return (gr.skip(),)
        known = class_names(studio, name)
        return (gr.update(choices=[(in_words(one), one) for one in known], value=[], visible=bool(known)),)

    def begun(now: Session, one: Face, *options: str) -> tuple[Any, ...]:
        """Choose a face: reset the controls, and return the new values of the components in `of_chosen`."""
        large, ends_of = files(studio.large([one], quick=True), folder), studio.ends(one)
        thumbs = ["" for _ in ends] if ends_of is None else buttons(ends_of)
        plain = [0 for _ in sliders] + [AS_IS for _ in colours]
        now.chosen = now.moved = dataclasses.replace(one)  # another object, so that a slow `on_change` notices
        now.ends = ends_of is not None
        return *large, *thumbs, *plain, studio.command(one, *(options or one.words)), "", ""

    def buttons(ends_of: np.ndarray) -> list[str]:
        """Return buttons with the pictures at the ends of the sliders, in HTML."""
        about = [text(name) for one in SLIDERS for name in NAMES[one][:2]]
        return [
            f'<button type="button"><img src="{address(Path(path))}" alt="{html.escape(name)}"/></button>'
            for path, name in zip(files(list(ends_of), folder), about, strict=True)
        ]

    def on_wall(now: Session, event: gr.SelectData) -> tuple[Any, ...]:
        return begun(now, clicked(now.wall, event))

    def on_pins(now: Session, event: gr.SelectData) -> tuple[Any, ...]:
        return begun(now, clicked(now.pins, event))

    def on_change(now: Session, *values: Any) -> tuple[Any, ...]:
        one = now.chosen or face_of(now)  # the second raises that none is chosen
        shares = {of: share for of, share in zip(SLIDERS, values, strict=False) if share}
        wanted = {of: colour for of, colour in zip(LABELS, values[len(SLIDERS) :], strict=True) if colour != AS_IS}
        change = Change(shares, wanted)
        work = own_work()
        if change and not studio.knows(one.sampler):
            work.about, work.total = text("Getting to know this generator, once:"), SAMPLES
        moved = studio.moved(one, change, work)
        said = one.words  # a face without a seed is saved with its changes, so its command needs none
        if one.seed is not None and change:
            known = one.sampler.classes.learned(wanted)
            said = [*one.without(known).words, f"--change={change}"]
        shown = files(studio.large([moved], quick=True), folder)
        thumbs = [gr.skip() for _ in ends]
        if now.chosen is not one:  # meanwhile another face was chosen, or this one anew
            return gr.skip(), *thumbs, gr.skip()
        now.moved = moved
        if not now.ends and (ends_of := studio.ends(one)) is not None:  # they have just been found
            thumbs, now.ends = buttons(ends_of), True
        return *shown, *thumbs, studio.command(one, *said)

    def on_end(place: int, share: float) -> Any:
        """Return a handler that moves the slider of that place to an end."""

        def moved(now: Session, *values: Any) -> tuple[Any, ...]:
            return share, *on_change(now, *values[:place], share, *values[place + 1 :])

        return moved

    def on_reset(now: Session) -> tuple[Any, ...]:
        return begun(now, now.chosen or face_of(now))

    def on_pin(now: Session) -> tuple[Any, ...]:
        if len(now.pins) == PINS:
            raise ConfigError(text("at most {} faces can be pinned; remove the pins first").format(PINS))
        alike(pinned := (*now.pins, face_of(now)))
        now.pins = pinned
        told = text("pinned as number {}; the pins are below the wall").format(len(now.pins))
        return *of_pinned(now), note(told, "good")

    def of_pinned(now: Session) -> tuple[Any, ...]:
        """Return the values of the components in `of_the_pins`."""
        shown = files([studio.large([one], quick=True)[0] for one in now.pins], folder)
        several = gr.update(interactive=len(now.pins) > 1)
        some = bool(now.pins)
        captioned = [(one, str(i)) for i, one in enumerate(shown, 1)]
        shows = gr.update(visible=not some), gr.update(visible=some)
        return captioned, *shows, several, several, packed(now.pins)

    def on_pins_kept(now: Session, last: object) -> tuple[Any, ...]:
        if now.pins or not isinstance(last, list) or not last:
            return (*[gr.skip() for _ in of_the_pins],)
        found = tuple(studio.unpacked(last[:PINS]))
        if now.pins:  # meanwhile one was pinned
            return (*[gr.skip() for _ in of_the_pins],)
        now.pins, lost = found, len(last) - len(found)
        told = text("of the faces that were pinned, {} cannot be drawn again: their generator has changed or is gone")
        # What the browser keeps stays: the generator may be back the next time.
        return *of_pinned(now)[:-1], gr.skip(), note(told.format(lost)) if lost else ""

    def on_unpin(now: Session) -> tuple[Any, ...]:
        now.pins = ()
        return *of_pinned(now), gr.update(visible=False)

    def on_more(now: Session, share: float) -> tuple[Any, ...]:
        one = face_of(now)
        faces = studio.neighbours(one, WALL, share)
        options = [one.source, *one.drawn, f"--vary={share:g}", f"--nogen {WALL}"]
        return hang(now, faces), studio.command(one, *options)

    def on_mix(now: Session, sum_of: str) -> tuple[Any, ...]:
        one, options = studio.mixed(now.pins, sum_of)
        return begun(now, one, *options)

    def on_film(now: Session, seconds: float, suffix: str) -> tuple[Any, ...]:
        path, points = place(folder) / f"morph{suffix}", now.pins
        work = own_work()
        work.total = (morph.FINER + 1) * morph.frames_of(len(points), seconds)
        options = studio.film(points, seconds, path, work)
        options += [] if suffix == FILMS[0] else [f"--gen_img={path.name}"]
        shown = gr.update(visible=False) if suffix == ".mp4" else gr.update(value=str(path), visible=True)
        return shown, studio.command(points[0], *options), links([path])

    def on_picture(now: Session, path: str | None) -> tuple[Any, ...]:
        # What was said of an earlier picture goes with it; what is said of this one meanwhile stays.
        return gr.update(interactive=path is not None), "" if path is None else gr.skip()

    def on_invert(now: Session, name: str, path: str | None) -> tuple[Any, ...]:
        if path is None or not Path(path).is_file():  # gradio deletes uploads after an hour
            raise ConfigError(text("there is no picture; drop one on the field above"))
        if Path(path).stat().st_size > LARGEST:
            raise ConfigError(text("the picture is larger than {} MB; give a smaller one").format(LARGEST >> 20))
        work = own_work()
        work.total = inversion.TOTAL
        faces, columns = studio.remembered(name, Path(path))
        if faces:
            options = ["--like=PICTURE"] if len(faces) == 1 else []
            told = text("of the picture's {} faces the first {} are on the wall").format(len(faces), MOST)
            more = note(told) if len(faces) > MOST else ""
            return hang(now, faces[:MOST], columns), *begun(now, faces[0], *options), more
        one, found = studio.inverted(name, Path(path), work)
        told = text("this face is the most like it: expect its colours and its pose, not the same person")
        told = text("; ").join(filter(None, (told, found.told)))
        return gr.skip(), *begun(now, one, "--invert=PICTURE"), note(told)  # the wall stays as it is

    def kept(faces: Sequence[Face], name: str, columns: int | None = None) -> Path:
        """Save faces to a file for download, and return its path."""
        path = place(folder) / name
        studio.save(faces, path, columns)
        return path

    def on_save(now: Session) -> tuple[Any, ...]:
        one = face_of(now)
        return (links([kept([one], "face.png" if one.seed is None else f"face-{one.seed:08d}.png")]),)

    def on_save_wall(now: Session) -> tuple[Any, ...]:
        if not now.wall:
            raise ConfigError(text("the wall is empty; draw faces first"))
        return (links([kept(now.wall, "result.png", now.columns)]),)

    def on_save_pins(now: Session) -> tuple[Any, ...]:
        if not now.pins:
            raise ConfigError(text("no face is pinned; click one and pin it"))
        return (links([kept([one], f"pin-{i}.png") for i, one in enumerate(now.pins, 1)]),)

    def names(now: Session) -> tuple[Any, ...]:
        return (gr.update(choices=studio.choices()),)

    show_taken(seed)
    on, long, asked = answers.on, answers.long, [generator, seed, std, best, classes]

    def drawing(event: Any, work: Any = on_draw) -> Any:
        return long(event, work, asked, [wall, *of_chosen], of_wall, stop_wall, **answers.quick)

    def choosing(event: Any) -> Any:
        return drawing(on(event, on_name, [generator], [classes], of_wall).then)

    def last(event: Any) -> Any:
        return lambda *words, **more: event(*words, trigger_mode="always_last", **more)

    drawing(draw.click, on_again)
    for event in (last(classes.change), last(std.release), last(best.input)):
        drawing(event)
    choosing(generator.input)
    choosing(on(loaded, on_opened, [last_one], [generator], of_wall).then)
    on(loaded, on_pins_kept, [last_pins], of_the_pins, of_pins, show_progress="hidden")
    on(generator.change, on_generator, [generator], [last_one], of_wall, show_progress="hidden")
    long(further.click, on_next, asked, [seed, wall, *of_chosen], of_wall, stop_wall, **answers.quick)
    on(generator.focus, names, [], [generator], of_wall, show_progress="hidden")
    on(wall.select, on_wall, [], chosen, of_face, show_progress_on=face)
    see_face = {"js": see("#face", "#said-pins")}
    on(pins.select, on_pins, [], of_chosen, of_pins, show_progress_on=face).then(None, **see_face)
    smooth: dict[str, Any] = {**answers.quick, "trigger_mode": "always_last"}
    inputs, out = [part.input for part in changes], [face, *ends, command]
    long(lambda *words, **more: gr.on(inputs, *words, **more), on_change, changes, out, of_change, **smooth)
    for i, end in enumerate(ends):
        moved = on_end(i // 2, (-1.0, 1.0)[i % 2])
        long(end.click, moved, changes, [sliders[i // 2], *out], of_change, **smooth)
    on(reset.click, on_reset, [], chosen, of_face, show_progress_on=face)
    on(pin.click, on_pin, [], of_the_pins, of_face, show_progress="hidden")
    on(unpin.click, on_unpin, [], [*of_the_pins, film], of_pins)
    on(more.click, on_more, [near], [wall, command], of_more, show_progress_on=wall)
    on(mix.click, on_mix, [total], of_chosen, of_pins, show_progress_on=face).then(None, **see_face)
    long(film_it.click, on_film, [seconds, suffix], [film, command], of_pins, stop_film).then(None, js=OPEN)
    for event in (picture.upload, picture.change):  # a picture that the browser cannot show does not change
        on(event, on_picture, [picture], [invert], of_invert, show_progress="hidden")
    found = long(invert.click, on_invert, [generator, picture], [wall, *of_chosen], of_invert, stop_invert)
    found.then(None, js=see("#face", "#said-invert"))
    saves = ((save, on_save, of_face), (save_wall, on_save_wall, of_save_wall), (save_pins, on_save_pins, of_pins))
    for button, work, told in saves:
        on(button.click, work, [], [], told, show_progress="hidden").then(None, js=OPEN)
    for button in (stop_wall, stop_film, stop_invert):
        button.click(cancel, answers.session, None, queue=False, api_visibility="private")
    return Faces(generator, choosing)


def face_of(now: Session) -> Face:
    """Return the face that is shown.

    Raises:
        ConfigError: no face was chosen.
    """
    if now.moved is None:
        raise ConfigError(text("no face is chosen; click one on the wall"))
    return now.moved


def class_names(studio: Studio, name: str) -> list[str]:
    """Return the classes of a generator, such as "hair:blue"; none if it has no classes."""
    return [f"{column}:{one}" for column, *known in studio.sampler(name).classes.vocabulary for one in known]


def in_words(name: str) -> str:
    """Return a class such as "hair:blue" in the reader's language."""
    return " ".join(text(word) for word in name.split(":", 1))


def clicked(faces: Sequence[Face], event: gr.SelectData) -> Face:
    """Return the face of a gallery that was clicked.

    Raises:
        ConfigError: the studio no longer has the session of the page.
    """
    place = int(event.index)  # pyright: ignore[reportArgumentType]
    if not 0 <= place < len(faces):
        raise ConfigError(text("the studio was started anew, or has forgotten this page; load it again"))
    return faces[place]
