"""The tab to give a generator away: a page for a friend, files for other programs, and the film of its training."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import gradio as gr

from gan.data.cleaning import plain_name
from gan.files import as_word
from gan.language import text
from gan.studio.faces import RELEASED_NAME, Studio
from gan.studio.faces_tab import Faces
from gan.studio.parts import OPEN, Answers, Session, cancel, links, note, own_work, place, said, words
from gan.studio.programs import Program


class Gift(NamedTuple):
    """Something to give away: its name, what it is for, its size, the file to write, and the program that makes it."""

    name: str
    purpose: str
    size: str  # in words, for the default networks
    file: str
    words: Callable[[Path, Path], list[str]]  # of a generator and the file: the program and its options


def _export(kind: str) -> Callable[[Path, Path], list[str]]:
    return lambda path, out: ["export.py", f"--to={kind}", f"--checkpoint={path}", f"--out={out}"]


def _film(path: Path, out: Path) -> list[str]:
    run = path if path.is_dir() else path.parent
    return ["generate.py", f"--timelapse={run}", f"--gen_img={out}"]


GIFTS = {
    "page": Gift(
        "A page for a friend",
        "One file that draws faces in any browser, on a phone too, without a network: send it as it is.",
        "About 7 MB",
        "faces.html",
        _export("html"),
    ),
    "onnx": Gift("An ONNX file", "For other programs and languages.", "About 15 MB", "faces.onnx", _export("onnx")),
    "hub": Gift(
        "A folder for the Hugging Face hub",
        "The weights as safetensors with a card; other copies of this program read it, too. It comes as a zip.",
        "About 9 MB",
        "faces-hub",
        _export("safetensors"),
    ),
    "film": Gift(
        "A film of the training",
        "How the faces of a run of yours came about, from the first ones to the last.",
        "A few MB",
        "timelapse.webp",
        _film,
    ),
}


def build(studio: Studio, folder: Path, answers: Answers, faces: Faces, loaded: Any) -> None:
    """Build the tab; `folder` receives the files. It follows the generator that is played with.

    `loaded` is the event of a page that opens.
    """
    say = words()
    gr.HTML(say("Choose a generator, and make a file of it to send or to keep."), elem_classes="lead", padding=False)
    which = gr.Dropdown(
        studio.choices(), value=studio.names()[0], label=say("Generator"), elem_id="given", allow_custom_value=True
    )
    of_which = said("which")

    def maker(gift: Gift) -> Callable[[Session, str], tuple[Any, ...]]:
        def on_make(now: Session, name: str) -> tuple[Any, ...]:
            path = studio.path(name)
            run = plain_name(name.rpartition("/")[0])
            file = gift.file.replace("faces", run) if run else gift.file
            out = place(folder) / file
            program, *options = gift.words(path, out)
            Program(program, options, place(folder) / "said.txt").wait(own_work())
            if out.is_dir():
                out = Path(shutil.make_archive(str(out), "zip", out.parent, out.name))
            shown = f"python {program} {' '.join(as_word(option) for option in gift.words(path, Path(file))[1:])}"
            return (links([out]) + note(f"{text('The same as a command')}: {shown}"),)

        return on_make

    buttons = dict[str, gr.Button]()
    with gr.Row(elem_id="gifts", equal_height=True):
        for key, gift in GIFTS.items():
            with gr.Column(elem_classes="gift", min_width=220):
                gr.HTML(say(gift.name), elem_classes="title", padding=False)
                gr.HTML(say(gift.purpose), elem_classes="lead", padding=False)
                gr.HTML(say(gift.size), elem_classes="lead", padding=False)
                able = key != "film" or studio.names()[0] != RELEASED_NAME
                make = buttons[key] = gr.Button(say("Make it"), elem_id=f"make-{key}", interactive=able)
                stop = gr.Button(say("Cancel"), visible=False, elem_id=f"stop-{key}")
                answers.long(make.click, maker(gift), [which], [], said(key), stop).then(None, js=OPEN)
                stop.click(cancel, answers.session, None, queue=False, api_visibility="private")

    def names(now: Session) -> tuple[Any, ...]:
        return (gr.update(choices=studio.choices()),)

    def on_generator(now: Session, name: str) -> tuple[Any, ...]:
        return (gr.update(choices=studio.choices(), value=name),)

    def on_which(now: Session, name: str) -> tuple[Any, ...]:
        return (gr.update(interactive=name != RELEASED_NAME),)  # there are no pictures of its training

    answers.on(faces.generator.change, on_generator, [faces.generator], [which], of_which, show_progress="hidden")
    answers.on(which.change, on_which, [which], [buttons["film"]], of_which, show_progress="hidden")
    for event in (which.focus, loaded):
        answers.on(event, names, [], [which], of_which, show_progress="hidden")
