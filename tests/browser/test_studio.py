"""The studio in a real Chromium without any network: every part of the page does what it says."""

import io
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser, Page, Request, expect

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 120_000  # milliseconds

pytest.importorskip("gradio")
pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A studio of its own process, in an empty folder that stays empty."""
    folder = tmp_path_factory.mktemp("studio")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = [sys.executable, str(ROOT / "app.py"), "--nogpu", f"--port={port}"]
    temporary = tmp_path_factory.mktemp("temporary")
    env = {**os.environ, "TMPDIR": str(temporary), "PYTHONFAULTHANDLER": "1"}
    log = temporary.with_suffix(".log")
    with log.open("w") as out:
        studio = subprocess.Popen(words, cwd=folder, env=env, stdout=out, stderr=subprocess.STDOUT)
    try:
        begun = time.monotonic()
        while f"http://127.0.0.1:{port}" not in log.read_text():
            assert studio.poll() is None, log.read_text()
            assert time.monotonic() - begun < PATIENCE / 1000, log.read_text()
            time.sleep(0.2)
        yield f"http://127.0.0.1:{port}"
        studio.send_signal(signal.SIGINT)
        try:
            code = studio.wait(60)
        except subprocess.TimeoutExpired:
            studio.send_signal(signal.SIGABRT)  # says where each thread is
            studio.wait(60)
            pytest.fail(log.read_text())
        assert code == 0, log.read_text()
        assert "Traceback" not in log.read_text(), log.read_text()
        assert list(folder.iterdir()) == []
        assert list(temporary.glob("studio-*")) == []
    finally:
        studio.kill()
        studio.wait(60)


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    """The page with faces on its wall; nothing may go wrong, and nothing leave the machine."""
    page = browser.new_page(viewport={"width": 1280, "height": 1400})
    page.set_default_timeout(PATIENCE)
    wrong: list[str] = []
    page.on("requestfailed", lambda request: None if was_done(request) else wrong.append(request.url))
    page.on("response", lambda answer: wrong.append(f"{answer.status} {answer.url}") if answer.status >= 400 else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda request: None if is_near(request.url, address) else wrong.append(request.url))
    page.goto(address)
    page.wait_for_function("document.querySelectorAll('#wall img').length == 24")
    yield page
    assert wrong == []
    page.close()


def was_done(request: Request) -> bool:
    """Whether the page itself has ended a stream of news from the studio."""
    return "/queue/data" in request.url and request.failure == "net::ERR_ABORTED"


def is_near(url: str, address: str) -> bool:
    return url.startswith((address, "data:", "blob:", address.replace("http", "ws")))


def command(page: Page) -> str:
    return page.locator("#command textarea").input_value()


def shown(page: Page, where: str) -> np.ndarray:
    """The pixels of a picture on the page."""
    image = page.locator(f"{where} img").first
    expect(image).to_be_visible(timeout=PATIENCE)
    with urllib.request.urlopen(str(image.get_attribute("src"))) as answer:
        return np.asarray(Image.open(io.BytesIO(answer.read())).convert("RGB"))


def changed(page: Page, where: str, work: Callable[[], object]) -> np.ndarray:
    """The pixels of a picture after something has changed it."""
    image = page.locator(f"{where} img").first
    before = image.get_attribute("src") if image.count() else None
    work()
    page.wait_for_function(
        "([where, before]) => { const one = document.querySelector(where + ' img'); return one && one.src != before }",
        arg=[where, before],
    )
    return shown(page, where)


def choose(page: Page, nth: int) -> np.ndarray:
    return changed(page, "#face", page.locator("#wall button:has(img)").nth(nth).click)


def saved(page: Page, button: str, path: Path) -> Path:
    with page.expect_download() as download:
        page.locator(button).click()
    download.value.save_as(path)
    return path


def set_slider(page: Page, name: str, value: float) -> None:
    box = page.locator(f"#{name} input[type=number]")
    box.fill(str(value))
    box.press("Enter")


def generate(tmp_path: Path, line: str, run_command: Callable[..., subprocess.CompletedProcess[str]]) -> Path:
    """Run what the page says as a command; the picture that it writes."""
    words = line.removeprefix("python generate.py ").replace('"', "").split()
    result = run_command("generate.py", "--nogpu", *words)
    assert result.returncode == 0, result.stderr
    return tmp_path / "result.png"


def test_a_face_is_chosen_changed_and_saved_as_the_command_line_makes_it(
    page: Page, tmp_path: Path, run_command: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    assert command(page) == "python generate.py --seed=0 --nogen 24"
    assert (
        saved(page, "#save-wall", tmp_path / "wall.png").read_bytes()
        == generate(tmp_path, command(page), run_command).read_bytes()
    )
    before = choose(page, 5)
    assert command(page) == "python generate.py --seeds=5"
    assert (
        saved(page, "#save-face", tmp_path / "face.png").read_bytes()
        == generate(tmp_path, command(page), run_command).read_bytes()
    )

    lighter = changed(page, "#face", lambda: set_slider(page, "light", 1))
    assert lighter.mean() > before.mean() + 10
    page.locator("#hair input").click()
    blue = changed(page, "#face", page.get_by_role("option", name="blue").first.click)
    assert not np.array_equal(blue, lighter)
    assert command(page) == "python generate.py --seeds=5 --light=1 --hair=blue"
    mine = saved(page, "#save-face", tmp_path / "face.png")
    theirs = generate(tmp_path, command(page), run_command)
    assert np.array_equal(np.asarray(Image.open(mine)), np.asarray(Image.open(theirs)))
    assert np.array_equal(changed(page, "#face", page.locator("#reset").click), before)


def test_pins_are_mixed_and_make_a_film_like_the_command_lines(
    page: Page, tmp_path: Path, run_command: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    for n, nth in enumerate((3, 17), 1):
        choose(page, nth)
        page.locator("#pin").click()
        page.wait_for_function("n => document.querySelectorAll('#pins img').length == n", arg=n)
    set_slider(page, "seconds", 1)
    page.locator("#morph").click()
    film = page.locator("#film img")
    expect(film).to_be_visible(timeout=PATIENCE)
    assert command(page) == "python generate.py --morph=3,17 --seconds=1"
    with urllib.request.urlopen(str(film.get_attribute("src"))) as answer:
        mine = answer.read()
    generate(tmp_path, command(page), run_command)
    assert mine == (tmp_path / "morph.webp").read_bytes()
    page.locator("#sum textarea, #sum input").first.fill("1 - 2")
    changed(page, "#face", page.locator("#mix").click)
    assert command(page) == 'python generate.py --mix="3 - 17"'
    page.locator("#unpin").click()
    page.wait_for_function("document.querySelectorAll('#pins img').length == 0")
    page.locator("#mix").click()
    expect(page.get_by_text("no face is pinned")).to_be_visible(timeout=PATIENCE)


def test_neighbours_further_faces_and_the_best_hang_on_the_wall(page: Page) -> None:
    choose(page, 2)
    changed(page, "#wall", page.locator("#more").click)
    assert command(page) == "python generate.py --seeds=2 --vary=0.4 --nogen 24"
    changed(page, "#wall", page.locator("#next").click)
    assert command(page) == "python generate.py --seed=24 --nogen 24"
    page.locator("#best input").click()
    page.get_by_role("option", name="128").click()
    changed(page, "#wall", page.locator("#draw").click)
    assert command(page) == "python generate.py --seed=24 --nogen 24 --gen_search_num=128"


def test_an_own_picture_is_found_and_a_broken_one_is_said(page: Page, tmp_path: Path) -> None:
    target = saved(page, "#save-wall", tmp_path / "wall.png")
    Image.open(target).crop((2, 2, 98, 98)).save(tmp_path / "own.png")
    page.locator("#picture input[type=file]").set_input_files(tmp_path / "own.png")
    expect(page.locator("#picture img")).to_be_visible(timeout=PATIENCE)
    found = changed(page, "#face", page.locator("#invert").click)
    assert found.std() > 20
    assert command(page) == "python generate.py --invert=PICTURE"

    (tmp_path / "broken.png").write_bytes((tmp_path / "own.png").read_bytes()[:900])
    for name in ("broken.png", "own.png"):
        page.locator("#picture button[aria-label='Clear'], #picture button[aria-label='Remove Image']").first.click()
        page.locator("#picture input[type=file]").set_input_files(tmp_path / name)
        page.locator("#invert").click()
        if name == "broken.png":
            expect(page.get_by_text("cannot be read as a picture")).to_be_visible(timeout=PATIENCE)


def test_two_browsers_play_side_by_side(page: Page, browser: Browser, address: str) -> None:
    other = browser.new_page()
    other.set_default_timeout(PATIENCE)
    other.goto(address)
    other.wait_for_function("document.querySelectorAll('#wall img').length == 24")
    mine, theirs = choose(page, 1), choose(other, 2)
    assert not np.array_equal(mine, theirs)
    assert (command(page), command(other)) == ("python generate.py --seeds=1", "python generate.py --seeds=2")
    assert not np.array_equal(changed(page, "#face", lambda: set_slider(page, "turn", 1)), mine)
    assert command(other) == "python generate.py --seeds=2"
    other.close()


def test_what_is_typed_wrongly_is_said_or_taken_as_the_nearest(page: Page) -> None:
    page.locator("#sum textarea, #sum input").first.fill("9999999999999 + ../../etc/passwd")
    page.locator("#mix").click()
    expect(page.get_by_text("no face is pinned")).to_be_visible(timeout=PATIENCE)
    page.locator("#save-face").click()
    expect(page.get_by_text("no face is chosen")).to_be_visible(timeout=PATIENCE)
    page.locator("#save-pins").click()
    expect(page.get_by_text("click one and pin it").nth(1)).to_be_visible(timeout=PATIENCE)
    before = choose(page, 0)
    set_slider(page, "light", 50)
    page.wait_for_function("document.querySelector('#command textarea').value.includes('--light=1')")
    page.locator("#light input[type=number]").fill("")
    page.wait_for_function("!document.querySelector('#command textarea').value.includes('--light')")
    assert np.array_equal(shown(page, "#face"), before)


def test_the_page_fits_and_has_names_for_everything(page: Page) -> None:
    for width in (1280, 800):
        page.set_viewport_size({"width": width, "height": 1400})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    nameless = page.evaluate(
        "[...document.querySelectorAll('button, input, textarea')].filter(one => one.offsetParent && !("
        "one.innerText || one.ariaLabel || one.labels?.length || one.title || one.closest('label')))"
        ".map(one => one.outerHTML)"
    )
    assert nameless == []


def test_no_file_of_the_machine_is_served(address: str) -> None:
    for path in (ROOT / "config.py", Path("/etc/hostname"), Path("app.py"), Path("../app.py")):
        with pytest.raises(urllib.error.HTTPError, match=r"40[034]"):
            urllib.request.urlopen(f"{address}/gradio_api/file={path}")
