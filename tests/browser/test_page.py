"""The visdom page in a real Chromium without any network: every pane is there and filled."""

import json
import re
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from machine import free_port
from playwright.sync_api import Browser, Page

from gan.quality import evaluation
from gan.watching.monitor import Monitor
from gan.watching.visdom_page import Server

SMALL = "--nogpu --noprojected --image_size=32 --ngf=8 --ndf=8 --batch_size=16 --precision=fp32".split()
SMALL += ["--plot_every=50", "--whole=0"]
CURVES = {
    "Losses": 4,
    "Discriminator's logits": 4,
    "Does the discriminator tell them apart?": 2,
    "Samples: how far apart, how much they change": 0,  # a single point yet
    "Squared gradient of the discriminator": 2,
    "Speed": 1,
    "Waiting for data": 1,
    "The discriminator's logits in the last steps": 2,
}
LOOK = """
() => [...document.querySelectorAll('.window')].map(pane => {
    const title = pane.querySelector('.bar').innerText.split('\\n').pop();
    const box = pane.getBoundingClientRect();
    const image = pane.querySelector('img');
    let shades = 0;
    if (image) {
        const canvas = document.createElement('canvas');
        canvas.width = image.naturalWidth; canvas.height = image.naturalHeight;
        const context = canvas.getContext('2d');
        context.drawImage(image, 0, 0);
        const pixels = context.getImageData(0, 0, canvas.width, canvas.height).data;
        shades = new Set(pixels.filter((_, i) => i % 4 < 3)).size;
    }
    const curves = [...pane.querySelectorAll('.scatterlayer path.js-line')].map(path => path.getBBox().width);
    const axes = [...pane.querySelectorAll('.xtitle, .ytitle')].map(text => text.textContent);
    return {title, place: [box.x, box.y], shades, curves, axes, text: pane.querySelector('.content').innerText};
})
"""

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("patient")]


@pytest.fixture(scope="module")
def server(page_files: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(free_port(), page_files)
    assert server.wait()
    yield server
    server.close()


@pytest.fixture
def train(
    server: Server,
    tmp_path: Path,
    make_faces: Callable[..., list[Path]],
    run_here: Callable[..., subprocess.CompletedProcess[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., str]:
    """Train a little, shown on the server; returns what was printed."""
    monkeypatch.setattr("train.LOG_EVERY", 5)
    make_faces(tmp_path / "data", 75, size=32)

    def run(*words: str) -> str:
        result = run_here("train.py", *SMALL, "--vis", f"--vis_server=http://localhost:{server.port}", *words)
        assert result.returncode == 0, result.stderr
        return result.stdout

    return run


def look(browser: Browser, server: Server, env: str) -> dict[str, dict[str, Any]]:
    """Open an environment and say what is to be seen in each pane, by title; nothing may be missing or go wrong."""
    page: Page = browser.new_page(viewport={"width": 1480, "height": 1500})
    page.set_default_timeout(120_000)  # milliseconds
    wrong: list[str] = []
    page.on("requestfailed", lambda request: wrong.append(request.url))
    page.on("response", lambda answer: wrong.append(f"{answer.status} {answer.url}") if answer.status >= 400 else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("dialog", lambda dialog: wrong.append(dialog.message) or dialog.dismiss())  # of a name that was run
    page.goto(f"http://127.0.0.1:{server.port}/env/{env}")
    page.wait_for_function("n => document.querySelectorAll('.window').length >= n", arg=4 + len(CURVES))
    page.wait_for_function("document.querySelectorAll('.window .js-line').length >= 8")
    page.wait_for_function("[...document.images].every(image => image.complete)")
    panes, before = page.evaluate(LOOK), None
    while panes != before:  # panes glide to their places
        page.wait_for_timeout(500)
        panes, before = page.evaluate(LOOK), panes
    page.close()

    assert wrong == []
    return {pane["title"]: pane for pane in panes}


def corners(browser: Browser, server: Server, env: str, width: int) -> tuple[list[str], float, float]:
    """Return the panes' titles, the first at the top left, the right edge of all, and how far the bar covers them."""
    page: Page = browser.new_page(viewport={"width": width, "height": 900})
    page.goto(f"http://127.0.0.1:{server.port}/env/{env}")
    page.wait_for_function("n => document.querySelectorAll('.window').length >= n", arg=4 + len(CURVES))
    page.wait_for_timeout(1500)  # panes glide to their places
    panes = sorted(page.evaluate(LOOK), key=lambda pane: pane["place"][::-1])
    edges = page.evaluate("[...document.querySelectorAll('.window')].map(w => w.getBoundingClientRect().right)")
    bar = page.evaluate("document.querySelector('[data-cy=filter]').getBoundingClientRect().bottom")
    page.close()
    return [pane["title"] for pane in panes], max(edges), bar - panes[0]["place"][1]


def check(panes: dict[str, dict[str, Any]], step: int) -> None:
    """Every pane is there, filled, and has a place of its own."""
    samples = f"Samples, always of the same latents, step {step}"
    assert set(panes) == {samples, "Faces it learns from", "Options", "How it is going", *CURVES}
    assert "look at the faces" in panes["How it is going"]["text"]
    assert panes[samples]["shades"] > 20
    assert panes["Faces it learns from"]["shades"] > 100
    assert re.search(r"lr1\s+0\.0006", panes["Options"]["text"])
    for title, curves in CURVES.items():
        assert len([width for width in panes[title]["curves"] if width > 50]) >= curves, title
        assert panes[title]["axes"][0] == ("logit" if "last steps" in title else "images seen")
        assert len(panes[title]["axes"]) == 2
    assert len({tuple(pane["place"]) for pane in panes.values()}) == len(panes)


def test_each_run_has_a_page_where_every_pane_is_drawn_and_stays_so_when_the_server_restarts_and_the_run_goes_on(
    browser: Browser, server: Server, train: Callable[..., str]
) -> None:
    train("--run=one", "--max_epoch=6")
    train("--run=two", "--max_epoch=8", "--seed=12")
    first = look(browser, server, "one")
    check(first, 29)
    for width in (1280, 390):
        titles, right, covered = corners(browser, server, "one", width)
        assert (titles[0], titles[-1]) == ("How it is going", "Options")
        assert width - 40 < right <= width
        assert covered < 0
    other = look(browser, server, "two")
    check(other, 38)
    assert re.search(r"seed\s+0", first["Options"]["text"])
    assert re.search(r"seed\s+12", other["Options"]["text"])
    server.process.kill()
    server.close()
    again = Server(server.port, server.static)
    assert again.wait()
    server.process = again.process  # which ends with the tests
    check(look(browser, server, "one"), 29)

    train("--resume=checkpoints/one", "--max_epoch=8")
    second = look(browser, server, "one")

    check(second, 38)
    places = [
        {title.partition(", step")[0]: pane["place"] for title, pane in panes.items()} for panes in (first, second)
    ]
    assert places[1] == {title: pytest.approx(place, abs=2) for title, place in places[0].items()}


def test_names_of_runs_and_environments_are_text(browser: Browser, server: Server, train: Callable[..., str]) -> None:
    name = "<img src=x onerror=alert(1)>"
    address = f"http://127.0.0.1:{server.port}/env/main"
    urllib.request.urlopen(address, json.dumps({"eid": f"an environment {name}"}).encode()).close()
    train(f"--run={name}", "--env=all", "--max_epoch=6")

    panes = look(browser, server, "all")

    assert {f"{name}: Options", f"{name}: How it is going", f"{name}: Faces it learns from"} < set(panes)


def test_runs_in_one_environment_are_beside_each_other_and_quality_is_drawn_where_it_was_measured(
    browser: Browser, server: Server, train: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Monitor, "may_measure", lambda *_: True)  # it costs more than its share here
    monkeypatch.setattr(evaluation.Evaluator, "cost", lambda _: 0.0)
    assert train("--run=red", "--env=compare", "--max_epoch=12", "--eval_images=200").count("quality at") >= 3
    train("--run=blue", "--env=compare", "--max_epoch=6")

    panes = look(browser, server, "compare")

    titles = {"Faces it learns from", "Options", "How it is going", *CURVES}
    both = {f"{run}: {title}" for run in ("red", "blue") for title in titles}
    assert both < set(panes)
    assert len({tuple(pane["place"]) for pane in panes.values()}) == len(panes)
    for title, curves in {"red: Distance from real faces": 1, "red: Coverage and precision": 2}.items():
        assert len([width for width in panes[title]["curves"] if width > 50]) == curves, title
        assert panes[title]["axes"][0] == "images seen"
