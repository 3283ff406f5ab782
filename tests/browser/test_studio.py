"""The studio in a real Chromium without any network: every part of the page does what it says."""

import collections
import contextlib
import dataclasses
import http.client
import io
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st
from machine import PATIENCE, free_port
from PIL import Image
from playwright.sync_api import Browser, Page, Request, expect

from gan import checkpoint
from gan.training.session import STOP, is_training, run_lock

ROOT = Path(__file__).resolve().parents[2]
WIDTH = int(os.environ.get("PAGE_WIDTH", 1280))  # of the page; 390 is a phone

QUICK = f"""
import runpy, sys
sys.path.insert(0, {str(ROOT)!r})
import gradio
from gan.play import inversion
launch = gradio.Blocks.launch
gradio.Blocks.launch = lambda self, max_file_size, **more: launch(self, max_file_size=max_file_size // 50, **more)
inversion.RANDOM, inversion.ROUNDS, inversion.TOTAL = 128, ((4, 15), (2, 30)), 248
runpy.run_path({str(ROOT / "app.py")!r}, run_name="__main__")
"""  # it searches for a picture a fifth as long, and takes files a fiftieth as large

pytest.importorskip("gradio")
targets = pytest.importorskip("targets")  # tests/fuzz, which imports gradio
pytestmark = pytest.mark.browser


@dataclasses.dataclass(frozen=True)
class Served:
    """A studio in a process of its own, the folder in which it was started, and that of its temporary files."""

    address: str
    folder: Path
    process: "subprocess.Popen[bytes]"
    temporary: Path

    @property
    def most_memory(self) -> int:
        """The most that it has used so far, in MiB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) // 1024


@contextlib.contextmanager
def studio_in(
    tmp_path_factory: pytest.TempPathFactory,
    write_knowing: Callable[..., None],
    by_hand: bool = False,
    start: Sequence[str] = (str(ROOT / "app.py"),),
) -> Iterator[Served]:
    """A studio of its own process, which ends at Ctrl-C, complains of nothing, and leaves nothing behind.

    `by_hand`: gradio gets what no page sends, and tells of it at length. `start`: what Python is given to start it.
    """
    folder = tmp_path_factory.mktemp("studio")
    port = free_port()
    words = ["nohup", sys.executable, *start, "--nogpu", f"--port={port}"]
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
        write_knowing(folder / "checkpoints/mine/latest.pt")
        write_knowing(folder / "checkpoints/plain/latest.pt", vocabulary=())
        before = sorted(folder.rglob("*"))
        yield Served(f"http://127.0.0.1:{port}", folder, studio, temporary)
        studio.send_signal(signal.SIGHUP)  # as when the terminal is closed
        with pytest.raises(subprocess.TimeoutExpired):
            studio.wait(2)
        studio.send_signal(signal.SIGINT)
        try:
            code = studio.wait(10)  # looking for a face takes longer
        except subprocess.TimeoutExpired:
            studio.send_signal(signal.SIGABRT)  # says where each thread is
            studio.wait(60)
            pytest.fail(log.read_text())
        assert code == 0, log.read_text()
        said = log.read_text()  # gradio alone tells of paths that no page sends, at length
        ends = [re.findall(r'File "(.*?)"', block)[-1] for block in said.split("Traceback (most recent call last)")[1:]]
        assert [end for end in ends if end.startswith((str(ROOT / "gan"), str(ROOT / "app.py")))] == [], said
        assert by_hand or len(ends) == said.count("InvalidPathError: "), said
        assert "Warning" not in said, said
        assert sorted(folder.rglob("*")) == before
        assert list(temporary.glob("studio-*")) == []
    finally:
        studio.kill()
        studio.wait(60)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, write_knowing: Callable[..., None]) -> Iterator[Served]:
    with studio_in(tmp_path_factory, write_knowing, start=("-c", QUICK)) as served:
        yield served


@pytest.fixture(scope="module")
def address(served: Served) -> str:
    return served.address


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    """The page with faces on its wall; nothing may go wrong, and nothing leave the machine."""
    page = browser.new_page(viewport={"width": WIDTH, "height": 1400})
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
    streams = "/queue/data", "/upload_progress"
    return any(one in request.url for one in streams) and request.failure == "net::ERR_ABORTED"


def is_near(url: str, address: str) -> bool:
    return url.startswith((address, "data:", "blob:", address.replace("http", "ws")))


def command(page: Page) -> str:
    return page.locator("#command textarea").input_value()


def shown(page: Page, where: str) -> np.ndarray:
    """The pixels of a picture on the page."""
    image = page.locator(f"{where} img").first
    expect(image).to_be_visible()
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


def pick(page: Page, name: str, option: str) -> None:
    """Choose from a list."""
    page.locator(f"#{name} input").click()
    page.get_by_role("option", name=option, exact=True).click()


def upload(page: Page, path: Path) -> None:
    """Give the page a picture in place of the last one, and wait until the studio has it."""
    unfold(page, "own")
    old = page.locator("#picture button[aria-label='Clear'], #picture button[aria-label='Remove Image']")
    if old.count():
        old.first.click()
        expect(page.locator("#invert")).to_be_disabled()
    page.locator("#picture input[type=file]").set_input_files(path)
    expect(page.locator("#invert")).to_be_enabled()


def set_slider(page: Page, name: str, value: float) -> None:
    """Move a slider as a hand does: its value is taken when it is let go."""
    bar = page.locator(f"#{name} input[type=range]")
    while True:  # gradio sets the first value a moment after the part of the page with the slider is unfolded
        bar.fill(str(value))
        page.wait_for_timeout(100)
        if float(bar.input_value()) == value:
            break
    bar.dispatch_event("pointerup")


def recolour(page: Page, name: str, colour: str) -> None:
    """Choose a swatch."""
    page.locator(f"#{name}").get_by_role("radio", name=colour, exact=True).check()


def unfold(page: Page, name: str) -> None:
    """Open a folded part of the page."""
    head = page.locator(f"#{name} button").first
    if "open" not in str(head.get_attribute("class")).split():
        head.click()


def told(page: Page, where: str) -> str:
    """The note beside a button."""
    note = page.locator(f"#said-{where} p:not(:has(.bar))").first
    expect(note).to_be_visible()
    return note.inner_text()


def only(page: Page, *classes: str) -> None:
    """Choose classes of a generator in place of those chosen."""
    unfold(page, "which")
    for _ in range(page.locator("#classes .token").count()):
        page.locator("#classes input").press("Backspace")
    for one in classes:
        shown = one.replace(":", " ", 1)
        page.locator("#classes input").fill(shown)
        page.get_by_role("option", name=shown, exact=True).click()


def generate(tmp_path: Path, line: str, run_here: Callable[..., subprocess.CompletedProcess[str]]) -> Path:
    """Run what the page says as a command; the picture that it writes."""
    words = line.removeprefix("python generate.py ").replace('"', "").split()
    result = run_here("generate.py", "--nogpu", *words)
    assert result.returncode == 0, result.stderr
    return tmp_path / "result.png"


def test_a_face_is_chosen_changed_and_saved_as_the_command_line_makes_it(
    page: Page, tmp_path: Path, run_here: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    assert command(page) == "python generate.py --seed=0 --nogen 24 --gen_std=0.8 --enlarge=4"
    assert (
        saved(page, "#save-wall", tmp_path / "wall.png").read_bytes()
        == generate(tmp_path, command(page), run_here).read_bytes()
    )
    before = choose(page, 5)
    assert command(page) == "python generate.py --seed=5 --nogen 1 --gen_std=0.8 --enlarge=4"
    assert (
        saved(page, "#save-face", tmp_path / "face.png").read_bytes()
        == generate(tmp_path, command(page), run_here).read_bytes()
    )

    lighter = changed(page, "#face", lambda: set_slider(page, "light", 1))
    assert lighter.mean() > before.mean() + 10
    blue = changed(page, "#face", lambda: recolour(page, "hair", "blue"))
    assert not np.array_equal(blue, lighter)
    assert command(page) == "python generate.py --seed=5 --nogen 1 --gen_std=0.8 --change=light:1,hair:blue --enlarge=4"
    mine = saved(page, "#save-face", tmp_path / "face.png")
    theirs = generate(tmp_path, command(page), run_here)
    assert np.array_equal(np.asarray(Image.open(mine)), np.asarray(Image.open(theirs)))
    assert np.array_equal(changed(page, "#face", page.locator("#reset").click), before)


def test_the_picture_at_the_end_of_a_slider_moves_it_there(page: Page) -> None:
    before = choose(page, 5)
    light = page.locator(".slide", has=page.locator("#light"))
    lightest = changed(page, "#face", light.locator(".end button").last.click)
    assert page.locator("#light input[type=range]").input_value() == "1"
    assert command(page) == "python generate.py --seed=5 --nogen 1 --gen_std=0.8 --change=light:1 --enlarge=4"
    assert lightest.mean() > before.mean() + 10
    darkest = changed(page, "#face", light.locator(".end button").first.click)
    assert darkest.mean() < before.mean() - 10


def test_the_sliders_of_another_generator_show_their_ends_once_it_is_known(page: Page) -> None:
    unfold(page, "which")
    page.locator("#pin").click()
    page.wait_for_function("document.querySelectorAll('#pins img').length == 1")
    changed(page, "#wall", lambda: pick(page, "generator", "mine"))
    expect(page.locator(".end img")).to_have_count(0)
    changed(page, "#face", lambda: set_slider(page, "light", 1))
    expect(page.locator(".end img")).to_have_count(6)
    page.locator("#pin").click()
    assert "of several generators" in told(page, "face")  # at once, and not when they are to be mixed
    expect(page.locator("#pins img")).to_have_count(1)
    page.locator("#more").click()
    expect(page.locator("#wall .selected")).to_have_count(0)  # the face that was clicked is not there any more
    only(page, "hair:blue")
    page.get_by_role("tab", name="Send").click()
    expect(page.locator("#make-film")).to_be_enabled()


def test_a_field_that_is_left_as_it_was_changes_no_face(page: Page) -> None:
    unfold(page, "which")
    choose(page, 5)
    changed(page, "#face", lambda: set_slider(page, "light", 1))
    page.locator("#pin").click()
    page.wait_for_function("document.querySelectorAll('#pins img').length == 1")
    for field in ("generator", "classes", "best"):
        page.locator(f"#{field} input").focus()
        page.locator(f"#{field} input").press("Escape")
        page.locator(f"#{field} input").blur()
    page.wait_for_timeout(1500)  # enough for what it should not do
    assert page.locator("#light input[type=range]").input_value() == "1"
    assert "--seed=5" in command(page)
    changed(page, "#wall", page.locator("#more").click)
    changed(page, "#wall", page.locator("#draw").click)  # after others the same ones can be had again


def test_opening_the_fields_of_the_wall_leaves_other_faces_on_it(page: Page) -> None:
    choose(page, 5)
    changed(page, "#wall", page.locator("#more").click)
    expect(page.locator("#wall .thumbnail-item").first).to_contain_class("selected")  # it hangs there now
    expect(page.locator("#wall .selected")).to_have_count(1)
    near = page.locator("#wall img").nth(3).get_attribute("src")
    unfold(page, "which")
    page.wait_for_timeout(2000)  # enough for what it should not do
    assert page.locator("#wall img").nth(3).get_attribute("src") == near
    assert "--vary=0.4" in command(page)


def test_a_page_that_is_opened_again_has_its_generator_its_pins_and_its_pictures(
    browser: Browser, address: str
) -> None:
    reader = browser.new_context()

    def opened() -> Page:
        page = reader.new_page()
        page.set_default_timeout(PATIENCE)
        page.goto(address)
        page.wait_for_function("document.querySelectorAll('#wall img').length == 24")
        return page

    page = opened()
    pick(page, "generator", "mine")
    page.wait_for_function("document.querySelector('#command textarea').value.includes('checkpoints/mine')")
    choose(page, 3)
    page.locator("#pin").click()
    expect(page.locator("#said-face")).to_contain_text("pinned as number 1")
    page.get_by_role("tab", name="Train").click()
    page.get_by_role("radio", name="whole pictures").check()
    page.locator("#folder input").fill("/nowhere/at all")
    page.locator("#folder input").press("Enter")
    page.locator("#look").click()
    expect(page.locator("#said-look .bad")).to_contain_text("there is no /nowhere/at all")
    page.close()
    page = opened()
    page.wait_for_function("document.querySelector('#command textarea').value.includes('checkpoints/mine')")
    expect(page.locator("#pins img")).to_have_count(1)
    changed(page, "#face", page.locator("#pins button:has(img)").first.click)
    assert "--seed=3" in command(page)
    page.get_by_role("tab", name="Send").click()
    expect(page.locator("#given input")).to_have_value("mine")
    page.get_by_role("tab", name="Train").click()
    expect(page.locator("#folder input")).to_have_value("/nowhere/at all")
    expect(page.get_by_role("radio", name="whole pictures")).to_be_checked()
    reader.close()


def test_no_file_that_a_page_may_be_reading_is_written_again(page: Page, browser: Browser, served: Served) -> None:
    inotify_simple = pytest.importorskip("inotify_simple", reason="it tells of writing on Linux alone")
    with inotify_simple.INotify() as watch:
        files = list(served.temporary.rglob("*.png"))
        assert len(files) >= 24
        for folder in {path.parent for path in files}:
            watch.add_watch(folder, inotify_simple.flags.MODIFY)
        other = browser.new_page()
        other.set_default_timeout(PATIENCE)
        other.goto(served.address)  # draws the same faces
        other.wait_for_function("document.querySelectorAll('#wall img').length == 24")
        other.close()
        written = [event.name for event in watch.read(timeout=1000) if not event.name.startswith(".")]
    assert written == []


def test_pins_are_mixed_and_make_a_film_like_the_command_lines(
    page: Page, tmp_path: Path, run_here: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    for n, nth in enumerate((3, 17), 1):
        choose(page, nth)
        page.locator("#pin").click()
        page.wait_for_function("n => document.querySelectorAll('#pins img').length == n", arg=n)
        assert told(page, "face") == f"pinned as number {n}; the pins are below the wall"
    set_slider(page, "seconds", 1)
    page.locator("#morph").click()
    film = page.locator("#film img")
    expect(film).to_be_visible()
    assert command(page) == "python generate.py --morph=3,17 --seconds=1 --gen_std=0.8 --enlarge=4"
    with urllib.request.urlopen(str(film.get_attribute("src"))) as answer:
        mine = answer.read()
    generate(tmp_path, command(page), run_here)
    assert mine == (tmp_path / "morph.webp").read_bytes()
    page.locator("#sum textarea, #sum input").first.fill("1 - 2")
    changed(page, "#face", page.locator("#mix").click)
    assert command(page) == 'python generate.py --mix="3 - 17" --gen_std=0.8 --enlarge=4'
    page.locator("#unpin").click()
    expect(page.locator("#pins")).to_be_hidden()
    expect(page.locator("#hint")).to_be_visible()


def test_neighbours_further_faces_and_the_best_hang_on_the_wall(page: Page) -> None:
    choose(page, 2)
    changed(page, "#wall", page.locator("#more").click)
    assert command(page) == "python generate.py --seed=2 --gen_std=0.8 --vary=0.4 --nogen 24 --enlarge=4"
    changed(page, "#wall", page.locator("#next").click)
    assert command(page) == "python generate.py --seed=24 --nogen 24 --gen_std=0.8 --enlarge=4"
    unfold(page, "which")
    changed(page, "#wall", lambda: pick(page, "best", "128"))
    assert command(page) == "python generate.py --seed=24 --nogen 24 --gen_std=0.8 --gen_search_num=128 --enlarge=4"


def test_an_own_picture_is_found_what_is_drawn_meanwhile_stays_and_a_broken_one_is_said(
    page: Page, tmp_path: Path
) -> None:
    target = saved(page, "#save-wall", tmp_path / "wall.png")
    Image.open(target).crop((2, 2, 386, 386)).save(tmp_path / "own.png")
    upload(page, tmp_path / "own.png")
    expect(page.locator("#picture img")).to_be_visible()
    page.locator("#invert").click()
    expect(page.locator("#said-invert .bar")).to_be_visible()
    wall = changed(page, "#wall", page.locator("#next").click)
    page.wait_for_function("document.querySelector('#command textarea').value.includes('--invert=PICTURE')")
    assert command(page) == "python generate.py --invert=PICTURE --enlarge=4"
    assert np.array_equal(shown(page, "#wall"), wall)
    assert shown(page, "#face").std() > 20
    choose(page, 0)
    assert command(page) == "python generate.py --seed=24 --nogen 1 --gen_std=0.8 --enlarge=4"

    (tmp_path / "broken.png").write_bytes((tmp_path / "own.png").read_bytes()[:900])
    upload(page, tmp_path / "broken.png")
    page.locator("#invert").click()
    expect(page.get_by_text("cannot be read as a picture")).to_be_visible()
    assert shown(page, "#face").std() > 20  # what was there is still there


def test_long_work_is_cancelled(page: Page, tmp_path: Path) -> None:
    Image.fromarray(shown(page, "#face")).save(tmp_path / "own.png")
    upload(page, tmp_path / "own.png")
    page.locator("#invert").click()
    page.locator("#stop-invert").click()
    expect(page.get_by_text("cancelled")).to_be_visible()
    expect(page.locator("#stop-invert")).to_be_hidden()
    assert "--invert" not in command(page)


def test_a_wall_that_is_cancelled_is_not_drawn_after_all(page: Page) -> None:
    wall = page.locator("#wall img").first.get_attribute("src")
    unfold(page, "which")
    pick(page, "best", "512")
    page.locator("#stop-wall").click()
    expect(page.locator("#stop-wall")).to_be_hidden()
    page.locator("#generator input").focus()
    page.locator("#generator input").blur()
    page.wait_for_timeout(1500)  # enough for what it should not do
    expect(page.locator("#stop-wall")).to_be_hidden()
    assert page.locator("#wall img").first.get_attribute("src") == wall
    assert "--seed=0 --nogen 24" in command(page)


def test_a_picture_of_this_generator_is_known_again(page: Page, tmp_path: Path) -> None:
    first = shown(page, "#wall")
    wall = saved(page, "#save-wall", tmp_path / "wall.png")
    before = choose(page, 7)
    changed(page, "#wall", page.locator("#next").click)
    upload(page, saved(page, "#save-face", tmp_path / "face.png"))
    expect(page.locator("#picture img")).to_be_visible()
    page.locator("#invert").click()
    page.wait_for_function("document.querySelector('#command textarea').value.includes('--like=PICTURE')")
    assert np.array_equal(shown(page, "#face"), before)
    assert page.locator("#wall img").count() == 1
    upload(page, wall)
    expect(page.locator("#picture img")).to_be_visible()
    page.locator("#invert").click()
    page.wait_for_function("document.querySelectorAll('#wall img').length == 24")
    assert np.array_equal(shown(page, "#wall"), first)


def test_truncation_eyes_and_pins_are_as_the_command_line_makes_them(
    page: Page, tmp_path: Path, run_here: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    unfold(page, "which")
    changed(page, "#wall", lambda: set_slider(page, "truncation", 0.7))
    assert command(page) == "python generate.py --seed=0 --nogen 24 --gen_std=0.7 --enlarge=4"
    choose(page, 4)
    changed(page, "#face", lambda: recolour(page, "eyes", "red"))
    assert command(page) == "python generate.py --seed=4 --nogen 1 --gen_std=0.7 --change=eyes:red --enlarge=4"
    page.locator("#pin").click()
    page.wait_for_function("document.querySelectorAll('#pins img').length == 1")
    theirs = np.asarray(Image.open(generate(tmp_path, command(page), run_here)))
    mine = saved(page, "#save-pins", tmp_path / "pin.png")
    # Gradient descent on the latent rounds otherwise with another number of threads.
    assert np.abs(np.asarray(Image.open(mine)).astype(int) - theirs).mean() < 1
    assert generate(tmp_path, "--like=pin.png --enlarge=4", run_here).read_bytes() == mine.read_bytes()


def test_a_run_in_training_and_its_classes_are_at_hand(
    page: Page, served: Served, write_knowing: Callable[..., None]
) -> None:
    unfold(page, "which")
    changed(page, "#wall", lambda: pick(page, "generator", "plain"))
    expect(page.locator("#classes")).to_be_hidden()
    before = changed(page, "#wall", lambda: pick(page, "generator", "mine"))
    expect(page.locator("#classes")).to_be_visible()
    words = "python generate.py --checkpoint=checkpoints/mine/latest.pt --seed=0 --nogen 24 --gen_std=0.8"
    assert command(page) == words
    only(page, "hair:blue", "mood:wild")
    page.wait_for_function("document.querySelector('#command textarea').value.includes('hair:blue,mood:wild')")
    assert command(page) == f"{words} --class=hair:blue,mood:wild"
    only(page, "hair:blue", "hair:red")
    assert "hair" in told(page, "wall")
    assert "--" not in told(page, "wall")  # a page has no options
    only(page)
    page.wait_for_function("!document.querySelector('#command textarea').value.includes('--class')")
    expect(page.locator("#said-wall p")).to_have_count(0)
    write_knowing(served.folder / "checkpoints/mine/latest.pt", seed=1)
    assert not np.array_equal(changed(page, "#wall", page.locator("#draw").click), before)


def test_what_is_said_beside_the_buttons_of_a_run_stays(page: Page, served: Served) -> None:
    busy, old = (served.folder / "checkpoints" / name for name in ("busy", "old"))
    for run in (busy, old):
        run.mkdir()
        (run / "config.json").write_text("{}")
    page.get_by_role("tab", name="Train").click()
    with run_lock(busy):
        pick(page, "run", "old")
        page.locator("#resume").click()
        assert told(page, "run") == "busy is being trained; stop it first"
        with run_lock(old):
            expect(page.locator("#stop")).to_be_enabled()  # the page has looked at the run again
            assert told(page, "run") == "busy is being trained; stop it first"
    for run in (busy, old):
        shutil.rmtree(run)


def test_a_page_opens_with_the_run_in_training_or_the_newest(browser: Browser, served: Served) -> None:
    def opened() -> Page:
        page = browser.new_page()
        page.set_default_timeout(PATIENCE)
        page.goto(served.address)
        page.get_by_role("tab", name="Train").click()
        return page

    busy, newest = (served.folder / "checkpoints" / name for name in ("busy", "newest"))
    for run, age in ((busy, 100), (newest, 0)):
        run.mkdir()
        (run / "config.json").write_text("{}")
        then = time.time() - age
        os.utime(run / "config.json", (then, then))
    first = opened()
    expect(first.locator("#run input")).to_have_value("newest")
    expect(first.locator("#why-not")).to_have_text("First let it look at the pictures.")
    with run_lock(busy):
        expect(first.locator("#why-not")).to_have_text("busy is being trained: stop it first, or wait for its end.")
        assert first.locator("#run input").input_value() == "newest"  # it was not chosen anew
        second = opened()
        expect(second.locator("#run input")).to_have_value("busy")
        how(second, "Getting ready")
    for page in (first, second):
        page.close()
    for run in (busy, newest):
        shutil.rmtree(run)


def test_start_waits_for_a_look_at_the_pictures_that_were_given_last(
    page: Page, served: Served, tmp_path: Path
) -> None:
    page.get_by_role("tab", name="Train").click()
    start, folder = page.locator("#start"), page.locator("#folder input")

    def looked() -> None:
        pick(page, "folder", "synthetic faces, to try it")
        expect(page.locator("#dropped button[aria-label='Clear']")).to_have_count(0)
        expect(start).to_be_disabled()
        page.locator("#look").click()
        expect(start).to_be_enabled()
        expect(page.locator("#why-not")).to_have_text("")
        expect(page.locator("#said-look p")).to_have_text("synthetic faces, to try it")

    expect(start).to_be_disabled()
    looked()
    for typed in ("", "0", "-5", "1e9"):
        page.locator("#minutes input").fill(typed)
        start.click()
        expect(page.locator("#said-start .bad")).to_have_text("give the minutes: a whole number from 1 to 10,080")
        page.locator("#minutes input").fill("3")
    page.get_by_role("radio", name="whole pictures").check()  # they were looked at as faces
    expect(start).to_be_disabled()
    expect(page.locator("#said-look p")).to_have_count(0)
    expect(page.locator("#why-not")).to_have_text("First let it look at the pictures.")
    looked()
    for name in "ab":
        (tmp_path / f"{name}.png").write_bytes(bytes(150_000))
    page.locator("#dropped input[type=file]").set_input_files([tmp_path / f"{name}.png" for name in "ab"])
    expect(page.locator("#said-look .good")).to_have_text("now look at them: 2 files, 0.3 MB")
    expect(folder).to_have_value("")
    expect(start).to_be_disabled()
    folder.focus()
    folder.blur()
    page.wait_for_timeout(1000)
    expect(page.locator("#dropped button[aria-label='Clear']")).to_have_count(1)  # none was given in their place
    page.locator("#look").click()
    expect(page.locator("#said-look .bad")).to_be_visible()
    expect(start).to_be_disabled()
    (served.folder / "data").rmdir()  # nothing is left of pictures that cannot be read
    looked()


def test_bad_faces_are_thrown_out_with_a_click(
    page: Page, served: Served, tmp_path: Path, make_faces: Callable[..., list[Path]]
) -> None:
    make_faces(tmp_path / "forty", 40, 96)
    page.get_by_role("tab", name="Train").click()
    page.locator("#folder input").fill((tmp_path / "forty").as_uri())  # as a file manager copies it
    page.locator("#folder input").press("Enter")
    page.locator("#look").click()
    assert told(page, "look") == "40 faces are ready; 3 minutes suit so many"
    unfold(page, "throw")
    sheet = page.locator("#sheet button")
    expect(sheet).to_have_count(40)
    slow = page.context.new_cdp_session(page)  # what a page asks for comes late, and no click is lost meanwhile
    slow.send("Network.enable")
    late = {"offline": False, "latency": 500, "downloadThroughput": -1, "uploadThroughput": -1}
    slow.send("Network.emulateNetworkConditions", late)
    for faces, left in (((0, 9, 39), 37), ((9, 0), 39)):
        for face in faces:
            sheet.nth(face).click()
        expect(page.locator("#said-throw p")).to_have_text(f"{left} faces are left; {40 - left} thrown out")
        expect(page.locator("#said-look p")).to_have_text(f"{left} faces are ready")
        assert len(list((served.folder / "data").glob("forty-*/*"))) == left + 1  # with the manifest
    expect(page.locator("#sheet [aria-pressed=true]")).to_have_attribute("aria-label", "40")
    sheet.nth(39).focus()
    page.keyboard.press("Space")
    expect(page.locator("#said-look p")).to_have_text("40 faces are ready")
    expect(page.locator("#sheet [aria-pressed=true]")).to_have_count(0)
    expect(sheet.nth(39)).to_be_focused()
    shutil.rmtree(served.folder / "data")


def test_two_browsers_play_side_by_side(page: Page, browser: Browser, address: str) -> None:
    other = browser.new_page()
    other.set_default_timeout(PATIENCE)
    other.goto(address)
    other.wait_for_function("document.querySelectorAll('#wall img').length == 24")
    mine, theirs = choose(page, 1), choose(other, 2)
    assert not np.array_equal(mine, theirs)
    assert (command(page), command(other)) == (
        "python generate.py --seed=1 --nogen 1 --gen_std=0.8 --enlarge=4",
        "python generate.py --seed=2 --nogen 1 --gen_std=0.8 --enlarge=4",
    )
    assert not np.array_equal(changed(page, "#face", lambda: set_slider(page, "turn", 1)), mine)
    assert command(other) == "python generate.py --seed=2 --nogen 1 --gen_std=0.8 --enlarge=4"
    other.close()


def test_what_is_typed_wrongly_is_said_or_taken_as_the_nearest(page: Page) -> None:
    wall = page.locator("#wall img").first.get_attribute("src")
    before = choose(page, 1)
    for n in (1, 2):
        page.locator("#pin").click()
        page.wait_for_function("n => document.querySelectorAll('#pins img').length == n", arg=n)
    page.locator("#sum textarea, #sum input").first.fill("9999999999999 + ../../etc/passwd")
    page.locator("#mix").click()
    assert "no face is pinned at '9999999999999'; there are 2, from 1 on" in told(page, "pins")
    assert np.array_equal(shown(page, "#face"), before)
    assert page.locator("#wall img").first.get_attribute("src") == wall
    assert page.get_by_text("Error").count() == 0
    unfold(page, "which")
    page.locator("#seed input").fill("-5")
    page.locator("#draw").click()
    page.wait_for_function("document.querySelector('#command textarea').value.includes('--seed=0 --nogen 24')")
    expect(page.locator("#seed input")).to_have_value("0")  # the page shows what it took


def test_the_page_fits_and_has_names_for_everything(page: Page) -> None:
    for width in (1280, 800, 390):
        page.set_viewport_size({"width": width, "height": 1400})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(
            "[...document.querySelectorAll('#wall img, #face img')].every(one => {"
            " const [inner, outer] = [one, one.closest('#wall, #face')].map(of => of.getBoundingClientRect());"
            " const strip = one.closest('.grid-wrap'), scrolls = strip && getComputedStyle(strip).overflowX == 'auto';"
            " return inner.left >= outer.left && (scrolls || inner.right <= outer.right) })"
        )
    nameless = page.evaluate(
        "[...document.querySelectorAll('button, input, textarea')].filter(one => one.offsetParent && !("
        "one.innerText || one.ariaLabel || one.labels?.length || one.title || one.closest('label')"
        " || one.querySelector('img')?.alt))"
        ".map(one => one.outerHTML)"
    )
    assert nameless == []


def test_hostile_pictures_are_said_and_memory_stays_bounded(browser: Browser, served: Served, tmp_path: Path) -> None:
    Image.new("1", (40000, 40000)).save(tmp_path / "bomb.png")
    (tmp_path / "text.png").write_text("/etc/passwd")
    (tmp_path / "zeros.png").write_bytes(bytes(2**21))
    with (tmp_path / "huge.png").open("wb") as file:
        file.truncate(21_200_000)
    page = browser.new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(served.address)
    page.wait_for_function("document.querySelectorAll('#wall img').length == 24")
    choose(page, 1)
    before = served.most_memory
    for name, said in (
        ("bomb.png", "cannot be read as a picture"),
        ("text.png", "cannot be read as a picture"),
        ("zeros.png", "cannot be read as a picture"),
        ("huge.png", "larger than 20 MB"),
    ):
        upload(page, tmp_path / name)
        page.locator("#invert").click()
        expect(page.get_by_text(said).last).to_be_visible()
    choose(page, 2)
    assert served.most_memory < before + 300
    page.close()


def test_names_of_others_are_text(browser: Browser, served: Served, tmp_path: Path) -> None:
    name = "<img src=x onerror=alert(1)>"
    kinds = (("hair", name, "<b>bold</b>"), ("mood", "calm", "wild"))
    path = served.folder / "checkpoints" / name / "latest.pt"
    path.parent.mkdir()
    content = checkpoint.load(served.folder / "checkpoints/mine/latest.pt")
    checkpoint.save(path, {**content, "model": {**content["model"], "vocabulary": kinds}})
    page, wrong = browser.new_page(viewport={"width": 1280, "height": 1400}), list[str]()
    page.set_default_timeout(PATIENCE)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("dialog", lambda dialog: wrong.append(dialog.message) or dialog.dismiss())  # of a name that was run
    page.goto(served.address)
    page.wait_for_function("document.querySelectorAll('#wall img').length == 24")
    pick(page, "generator", name)
    unfold(page, "which")
    expect(page.locator("#classes")).to_be_visible()
    only(page, f"hair:{name}", "hair:<b>bold</b>")
    assert "hair" in told(page, "wall")
    only(page, f"hair:{name}")
    page.wait_for_function("document.querySelector('#command textarea').value.includes('--class')")
    assert name in command(page)
    picture = saved(page, "#save-wall", tmp_path / f"{name}.png")
    upload(page, picture)
    expect(page.locator("#picture img")).to_be_visible()
    assert page.locator("img[src=x]").count() == 0
    assert wrong == []
    page.close()
    shutil.rmtree(path.parent)


def call(address: str, target: str, data: list[object], event: str = "click") -> str:
    """What the studio answers to a page that was changed by hand: the end of the stream of its news."""
    with urllib.request.urlopen(f"{address}/config") as answer:
        config = json.load(answer)
    (part,) = (one["id"] for one in config["components"] if one["props"].get("elem_id") == target)
    (number,) = (one["id"] for one in config["dependencies"] if [part, event] in one["targets"])
    body = {"data": data, "fn_index": number, "session_hash": "byhand", "trigger_id": part, "event_data": None}
    headers = {"Content-Type": "application/json"}
    with urllib.request.urlopen(
        urllib.request.Request(f"{address}/gradio_api/queue/join", json.dumps(body).encode(), headers)
    ):
        pass
    with urllib.request.urlopen(f"{address}/gradio_api/queue/data?session_hash=byhand", timeout=120) as news:
        return news.read().decode()


def answer(said: str) -> list[object]:
    """The values of the outputs in what `call` returns."""
    (last,) = (line for line in said.splitlines() if '"process_completed"' in line)
    return json.loads(last.removeprefix("data: "))["output"]["data"]


def test_what_was_said_of_a_picture_goes_when_that_is_taken_away_and_no_sooner(page: Page, served: Served) -> None:
    Image.new("RGB", (96, 96)).save(picture := io.BytesIO(), "PNG")
    status, said = sent_file(served.address, "a.png", picture.getvalue())
    assert status == 200, said
    given = {"path": json.loads(said)[0], "orig_name": "a.png", "meta": {"_type": "gradio.FileData"}}
    *_, note = answer(call(served.address, "picture", [None, given], "upload"))
    assert isinstance(note, dict)
    assert "value" not in note  # so it stays as it is
    *_, note = answer(call(served.address, "picture", [None, None], "change"))
    assert note == ""


def test_what_is_sent_by_hand_reads_no_file_and_breaks_nothing(page: Page, address: str) -> None:
    sent = {"meta": {"_type": "gradio.FileData"}, "orig_name": "a.png"}
    for path in ("/etc/hostname", str(ROOT / "docs/studio.webp"), "../../etc/passwd"):
        said = call(address, "invert", [None, "released", {"path": path, **sent}])
        assert '"success":false' in said
        assert "root:" not in said
    for target, data in {
        "draw": [None, "../../etc/passwd", 0, 1, 24, []],
        "next": [None, "released", 1e300, -5, 10**9, ["x" * 10**5]],
        "mix": [None, ["a", {"b": 1}]],
        "morph": [None, 1e9, "/etc/passwd"],
        "more": [None, "nan"],
    }.items():
        said = call(address, target, data)
        assert "process_completed" in said
        assert "Traceback" not in said
    assert choose(page, 3).std() > 20


VALUES: st.SearchStrategy[object] = st.one_of(
    targets.ANYTHING,
    targets.SUMS,
    st.sampled_from(
        ["released", "mine/latest.pt", "plain/latest.pt", "hair:red", "1 + 2", "pink", "-", ".webp", ".mp4"]
    ),
    st.integers(0, 40),
    st.fixed_dictionaries({"path": st.sampled_from(["/etc/hostname", "a.png", "", "\0"]), "meta": targets.ANYTHING}),
)


@pytest.mark.torture
def test_whatever_is_sent_to_a_handler_is_answered_and_leaves_the_studio_whole(
    tmp_path_factory: pytest.TempPathFactory, write_knowing: Callable[..., None], browser: Browser
) -> None:
    with studio_in(tmp_path_factory, write_knowing, by_hand=True) as served:
        with urllib.request.urlopen(f"{served.address}/config") as answer:
            config = json.load(answer)
        usual = {one["id"]: one["props"].get("value") for one in config["components"]}
        handlers = [
            (one["id"], [usual[i] for i in one["inputs"]]) for one in config["dependencies"] if one["backend_fn"]
        ]
        assert len(handlers) > 15
        said, before = collections.Counter[str](), served.most_memory

        @hypothesis.settings(max_examples=1500, deadline=None, database=None, phases=[hypothesis.Phase.generate])
        @hypothesis.given(st.sampled_from(handlers), st.data(), st.integers(0, 3), st.integers(0, 60))
        def send(handler: tuple[int, list[object]], data: st.DataObject, session: int, place: int) -> None:
            number, usual = handler
            values = [data.draw(st.just(value) | st.just(value) | VALUES) for value in usual]
            clicked = st.just({"index": place, "value": None})
            event = data.draw(clicked | clicked | targets.ANYTHING)
            begun = time.monotonic()
            answer = posted(served.address, number, f"session{session}", values, event)
            said[answer] += 1
            if said.total() % 250 == 0:
                print(said, f"{served.most_memory} MiB")
            assert time.monotonic() - begun < 60, (number, values, event)

        send()
        print(said, f"{served.most_memory - before} MiB more than at first")
        assert said["done"] > 200  # else nothing was reached
        assert served.most_memory < before + 1000
        page = browser.new_page()
        page.set_default_timeout(PATIENCE)
        page.goto(served.address)
        page.wait_for_function("document.querySelectorAll('#wall img').length == 24")
        page.close()


def posted(address: str, number: int, session: str, data: list[object], event: object) -> str:
    """What becomes of a call that a page was made to send: done, refused in words, or not taken at all."""
    body = {"data": data, "fn_index": number, "session_hash": session, "trigger_id": None, "event_data": event}
    kind = {"Content_Type": "application/json"}
    status, said = asked(address, "/gradio_api/queue/join", json.dumps(body).encode(), **kind)
    if status != 200:
        assert status in (400, 413, 422), said
        return "not taken"
    status, said = asked(address, f"/gradio_api/queue/data?session_hash={session}")
    assert "process_completed" in said
    assert "Traceback" not in said
    assert "root:" not in said
    return "done" if '"success":true' in said else "refused"


@pytest.mark.torture
def test_it_ends_at_once_while_it_searches(
    browser: Browser, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, write_knowing: Callable[..., None]
) -> None:
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (96, 96, 3), np.uint8)).save(tmp_path / "own.png")
    with studio_in(tmp_path_factory, write_knowing) as served:
        page = browser.new_page()
        page.set_default_timeout(PATIENCE)
        page.goto(served.address)
        page.wait_for_function("document.querySelectorAll('#wall img').length == 24")
        upload(page, tmp_path / "own.png")
        expect(page.locator("#picture img")).to_be_visible()
        page.locator("#invert").click()
        expect(page.locator("#said-invert .bar")).to_be_visible()
    page.close()


def test_no_file_of_the_machine_is_served(served: Served) -> None:
    for path in (ROOT / "config.py", Path("/etc/hostname"), Path("app.py"), Path("../app.py")):
        with pytest.raises(urllib.error.HTTPError, match=r"40[034]"):
            urllib.request.urlopen(f"{served.address}/gradio_api/file={path}")
    secret = served.folder / "checkpoints/mine/secret.txt"
    secret.write_text("root:")
    ways = [f"{up * 12}etc/passwd" for up in ("../", "%2e%2e/", "..%2f", "..%5C", "/")]
    ways += [str(secret), "checkpoints/mine/secret.txt", "../checkpoints/mine/secret.txt", f"file://{secret}"]
    routes = "file= file/ stream/ component_server/ info/"
    starts = [
        "/",
        *(f"/{part}/" for part in ("static", "assets", "svelte", "pwa_icon", "monitoring", "custom_component")),
    ]
    for start in (*starts, "/deep_link?deep_link=", "/theme/", *(f"/gradio_api/{route}" for route in routes.split())):
        for way in ways:
            said = asked(served.address, start + way)[1]
            assert "root:" not in said, start + way
            assert "Traceback" not in said, start + way
    secret.unlink()


def asked(address: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, str]:
    """What the studio answers to a request that is sent as it is, up to a second after: its status and its text."""
    with contextlib.closing(http.client.HTTPConnection(address.removeprefix("http://"), timeout=60)) as connection:
        connection.putrequest("GET" if body is None else "POST", path, skip_host="Host" in headers)
        for name, value in {**headers, "Content-Length": str(len(body or b""))}.items():
            connection.putheader(name.replace("_", "-"), value)
        connection.endheaders(body)
        with connection.getresponse() as answer:
            return answer.status, answer.read().decode(errors="replace")


def sent_file(address: str, name: str, content: bytes) -> tuple[int, str]:
    """What the studio answers to a file, as a page uploads it: its status and its text."""
    head = f'--x\r\nContent-Disposition: form-data; name="files"; filename="{name}"\r\n\r\n'.encode()
    kind = {"Content_Type": "multipart/form-data; boundary=x"}
    return asked(address, "/gradio_api/upload", head + content + b"\r\n--x--\r\n", **kind)


def test_pages_of_others_do_not_reach_it(address: str) -> None:
    here, port = address.removeprefix("http://"), address.rpartition(":")[2]
    for host in (here, f"localhost:{port}", "localhost:9000"):  # the last through ssh
        assert asked(address, "/config", Host=host, Origin=f"http://{host}")[0] == 200
    for foreign in (
        {"Host": f"evil.example:{port}"},
        {"Host": here, "Origin": "http://evil.example"},
        {"Host": here, "Origin": "http://127.0.0.1:1"},
        {"Host": here, "Origin": "null"},
    ):
        for path, body in (
            ("/", None),
            ("/config", None),
            ("/gradio_api/queue/join", b"{}"),
            ("/gradio_api/upload", b""),
        ):
            status, said = asked(address, path, body, **foreign)
            assert status == 403, (foreign, path)
            assert said.count("\n") == 1
            assert "127.0.0.1" in said


def test_it_listens_to_this_machine_alone(address: str) -> None:
    port = int(address.rpartition(":")[2])
    for family, other in ((socket.AF_INET, "127.0.0.2"), (socket.AF_INET6, "::1")):  # answer where all are listened to
        with contextlib.suppress(OSError), socket.socket(family) as probe:
            probe.settimeout(10)
            assert probe.connect_ex((other, port)) != 0


def test_what_is_uploaded_by_hand_is_small_and_stays_in_its_folder(served: Served) -> None:
    status, said = sent_file(served.address, "a.png", bytes(24 * 2**20))
    assert status == 413
    assert "Traceback" not in said
    taken = 0
    for name in ("../../../harm.png", "/harm.png", "..\\..\\harm.png", "<img src=x onerror=alert(1)>.png"):
        status, said = sent_file(served.address, name, bytes(10))
        taken += status == 200
        if status == 200:
            (path,) = json.loads(said)
            assert Path(path).resolve().is_relative_to(served.temporary.resolve())
            assert Path(path).is_file()
    assert taken
    assert all("studio-" in str(path) for path in served.temporary.rglob("*harm*"))


def how(page: Page, said: str) -> None:
    """Wait until the Train tab says how the run stands."""
    expect(page.locator("#how")).to_contain_text(said)


@pytest.mark.torture
def test_a_page_alone_trains_a_generator_and_neither_its_end_nor_the_studios_loses_the_run(
    browser: Browser, tmp_path: Path, make_faces: Callable[..., list[Path]]
) -> None:
    port, studios = free_port(), list["subprocess.Popen[bytes]"]()

    def opened() -> Page:
        """A new studio in the same folder, and its page on the Train tab."""
        words = [sys.executable, str(ROOT / "app.py"), "--nogpu", f"--port={port}"]
        studios.append(subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
        assert studios[-1].stdout is not None
        while b"the studio is at" not in (line := studios[-1].stdout.readline()):
            assert line, studios[-1].poll()
        page = browser.new_page(viewport={"width": 390, "height": 1400})
        page.set_default_timeout(PATIENCE)
        page.goto(f"http://127.0.0.1:{port}")
        page.get_by_role("tab", name="Train").click()
        return page

    make_faces(tmp_path / "faces", 40, 96)
    run = tmp_path / "checkpoints/faces"
    try:
        page = opened()
        page.locator("#look").click()
        assert told(page, "look") == "name a folder, or drop pictures first"
        expect(page.locator("#start, #stop, #resume, #play").locator(":enabled")).to_have_count(0)
        page.locator("#folder input").fill("/nowhere/at all")
        page.locator("#folder input").press("Enter")
        page.locator("#look").click()
        expect(page.locator("#said-look p")).to_have_text("there is no /nowhere/at all on this machine; check the path")
        (tmp_path / "note.txt").write_text("no picture")
        page.locator("#dropped input[type=file]").set_input_files(tmp_path / "note.txt")
        page.locator("#look").click()
        expect(page.locator("#said-look .bad")).to_contain_text("note.txt")
        page.locator("#dropped button[aria-label='Clear']").first.click()
        page.locator("#folder input").fill(str(tmp_path / "faces"))
        page.locator("#folder input").press("Enter")
        page.locator("#look").click()
        expect(page.locator("#said-look .good")).to_have_text("40 faces are ready; 3 minutes suit so many")
        assert page.locator("#minutes input").input_value() == "3"
        page.locator("#minutes input").fill("2")
        assert page.locator("#init input").is_checked()
        page.locator("#start").click()
        short = "in less than 3 minutes the faces may end up worse than those it starts from"
        assert told(page, "start") == f"the training has begun: faces; {short}"
        how(page, "Training")
        expect(page.locator("#why-not")).to_contain_text("faces is being trained: stop it first")
        expect(page.locator("#start")).to_be_disabled()

        studios[0].kill()
        studios[0].wait()
        page.close()
        assert is_training(run)
        page = opened()
        how(page, "Training")
        page.locator("#stop").click()
        how(page, "Stopped")
        assert not is_training(run)
        page.locator("#resume").click()
        how(page, "Training")
        page.locator("#play").click()  # while it trains
        page.wait_for_function("document.querySelector('#command textarea').value.includes('checkpoints/faces')")
        page.get_by_role("tab", name="Train").click()
        page.locator("#stop").click()
        how(page, "Stopped")
        page.close()
    finally:
        if run.is_dir():
            (run / STOP).touch()
        for studio in studios:
            studio.kill()
            studio.communicate()
        while is_training(run):
            time.sleep(0.5)


def test_what_is_made_to_send_is_downloaded_with_its_size(page: Page, tmp_path: Path) -> None:
    page.get_by_role("tab", name="Send").click()
    path = saved(page, "#make-page", tmp_path / "faces.html")
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert f"{path.stat().st_size / 1e6:.1f} MB" in told(page, "page")
    assert page.get_by_text(f"About {path.stat().st_size / 1e6:.0f} MB", exact=True).count() == 1  # said before
    expect(page.locator("#make-film")).to_be_disabled()  # there are no pictures of its training


def test_a_film_is_in_the_making_when_the_studio_ends(page: Page) -> None:
    """The last test of this file: `studio_in` ends the studio then, which must not wait for the film."""
    for n in (1, 2):
        choose(page, n)
        page.locator("#pin").click()
        page.wait_for_function("n => document.querySelectorAll('#pins img').length == n", arg=n)
    set_slider(page, "seconds", 20)
    page.locator("#morph").click()
    expect(page.locator("#said-pins .bar")).to_be_visible()
