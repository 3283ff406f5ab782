"""The studio's page: its tabs, its looks, and who may use it."""

from pathlib import Path
from typing import Any

import gradio as gr
from gradio.themes import Default, colors
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse

from gan import visitors
from gan.studio import faces_tab, send_tab, train_tab
from gan.studio.faces import Studio
from gan.studio.parts import Answers, Session, kept_by_browser, words
from gan.studio.programs import Runs

STYLE = Path(__file__).with_name("page.css").read_text(encoding="utf-8")


def build(studio: Studio, folder: Path) -> gr.Blocks:
    """Build the page with its event handlers; `folder` receives its pictures and the files to download."""
    say, runs = words(), Runs()
    with gr.Blocks(title="Face studio", analytics_enabled=False, delete_cache=(300, 3600)) as blocks:
        session = gr.State(Session())
        answers = Answers(session, apple=studio.device.type == "mps")
        gr.HTML(say("Face studio"), elem_id="title", padding=False)
        gr.HTML(
            say(
                "It draws faces that do not exist. Play with them, train it on pictures of your own, and send what you "
                "made to a friend."
            ),
            elem_id="what",
            elem_classes="lead",
            padding=False,
        )
        last = kept_by_browser("pictures")
        opened = blocks.load(on_load, session, None, queue=False, api_visibility="private")
        opened.then(None, js="() => { document.title = document.querySelector('#title').innerText }")
        with gr.Tabs(elem_id="tabs") as tabs:
            with gr.Tab(say("Faces"), id="faces"):
                faces = faces_tab.build(studio, folder, answers, opened.then)
            with gr.Tab(say("Train"), id="train"):
                train_tab.build(folder, answers, runs, studio, faces, tabs, opened.then, last)
            with gr.Tab(say("Send"), id="send"):
                send_tab.build(studio, folder, answers, faces, opened.then)
    blocks.temp_file_sets = [blocks.upload_file_set]  # gradio cleans up uploads only; `files` and `place` do the others
    return blocks


def on_load(now: Session, request: gr.Request) -> None:
    """Note the language of the page's reader."""
    first = str(request.headers.get("accept-language", "")).strip().lower()
    now.language = "zh" if first.startswith("zh") else "en"


def guarded(app: Any) -> Any:
    """Wrap an ASGI app, as middleware that refuses requests from the pages of other sites."""

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        said = {name: value.decode("latin-1") for name, value in scope.get("headers", ())}
        foreign = scope["type"] == "http" and visitors.is_foreign(said.get(b"host"), said.get(b"origin"))
        await (PlainTextResponse(visitors.refusal(), 403) if foreign else app)(scope, receive, send)

    return answer


def looks(studio: Studio) -> dict[str, Any]:
    """Return the arguments of `launch` for the theme, the texts and the middleware; only system fonts are used."""
    theme = Default(
        primary_hue=colors.rose,
        neutral_hue=colors.zinc,
        font=["system-ui", "sans-serif"],
        font_mono=["ui-monospace", "Consolas", "monospace"],
    )
    style = STYLE + faces_tab.style(studio)
    return {"theme": theme, "css": style, "i18n": words(), "app_kwargs": {"middleware": [Middleware(guarded)]}}
