"""The page that prepare.py writes, in a real Chromium: faces are enlarged with mouse and keyboard, without a script."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from machine import PATIENCE
from PIL import Image, ImageOps
from playwright.sync_api import Browser, Page, expect

pytestmark = pytest.mark.browser


@pytest.fixture(params=[(1280, 800), (390, 844)], ids=["wide", "narrow"])
def page(
    request: pytest.FixtureRequest,
    browser: Browser,
    tmp_path: Path,
    make_faces: Callable[..., list[Path]],
    run_here: Callable[..., subprocess.CompletedProcess[str]],
) -> Iterator[Page]:
    """The report of forty faces and a mirrored one; nothing may leave the machine, and nothing be complained of."""
    faces = make_faces(tmp_path / "pile", 40, suffix=".png")
    with Image.open(faces[7]) as face:
        ImageOps.mirror(face.convert("RGB")).save(tmp_path / "pile/mirrored.png")
    assert run_here("prepare.py", "pile", "--out=faces", "--label=hair").returncode == 0
    width, height = request.param
    context, wrong = browser.new_context(offline=True, viewport={"width": width, "height": height}), list[str]()
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    page.on("console", lambda said: wrong.append(said.text))
    page.on("request", lambda one: None if one.url.startswith(("file:", "data:")) else wrong.append(one.url))
    page.goto((tmp_path / "report.html").as_uri())
    yield page
    assert wrong == []
    context.close()


def test_a_face_is_enlarged_and_small_again(page: Page) -> None:
    assert page.evaluate("document.documentElement.scrollWidth") <= page.evaluate("innerWidth")
    faces = page.locator("details")
    first, second = (faces.nth(i).locator("summary") for i in (0, 1))
    small = first.locator("svg").bounding_box()
    assert small is not None
    assert 80 <= small["width"] <= 120
    place = page.evaluate("scrollY")
    first.click()
    large = first.locator("svg").bounding_box()
    assert large is not None
    assert 288 <= large["width"] <= 400
    expect(first.get_by_text("faces/face-00000-")).to_be_visible()
    page.mouse.click(large["x"] + large["width"] / 2, 20)  # anywhere
    assert first.locator("svg").bounding_box() == small
    first.focus()
    page.keyboard.press("Enter")
    assert first.locator("svg").bounding_box() == large
    page.keyboard.press("Tab")  # and the next one
    page.keyboard.press("Enter")
    expect(page.locator("details[open]")).to_have_count(1)
    assert second.locator("svg").bounding_box() == large
    page.keyboard.press("Space")
    expect(page.locator("details[open]")).to_have_count(0)
    assert page.evaluate("scrollY") == place


def test_a_copy_is_seen_beside_its_original_and_a_label_below_its_colour(page: Page) -> None:
    copy = page.locator(".pairs summary")
    copy.click()
    boxes = [one.bounding_box() for one in copy.locator("svg").all()]
    assert len(boxes) == 2
    assert all(box is not None and box["width"] >= 288 for box in boxes)
    expect(copy.get_by_text("a copy of face-00007.png")).to_be_visible()
    drawn = page.screenshot()
    copy.locator("svg").last.evaluate("one => one.remove()")
    assert page.screenshot() != drawn
    page.keyboard.press("Escape")
    copy.click(position={"x": 5, "y": 5})
    again = page.locator(".label use").first  # the picture of another place
    assert again.evaluate("one => one.getBoundingClientRect().width") > 40
