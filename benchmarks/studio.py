"""Measure how fast the studio follows a slider: python -m benchmarks.studio [--out=SCREENSHOT.png].

A real Chromium makes twenty moves of sliders, each timed from the key press until the new face is on the page. --out
also takes a screenshot.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from playwright.sync_api import Page, sync_playwright

PORT = 7871
WAIT = """
before => new Promise(done => {
    const look = () => {
        const face = document.querySelector('#face img');
        face && face.src != before && face.complete ? done(performance.now()) : setTimeout(look, 2);
    };
    look();
})
"""


def timed(page: Page, slider: str, key: str) -> float:
    """Return the milliseconds from a key press on a slider to the new face."""
    handle = page.locator(f"#{slider} input[type=range]")
    handle.focus()
    before = page.locator("#face img").get_attribute("src")
    begun = page.evaluate("performance.now()")
    handle.press(key)
    ended = page.evaluate(WAIT, before)
    page.wait_for_timeout(400)  # until nothing is under way
    return ended - begun


def main() -> None:
    """Start a studio, move sliders and print the times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="where to write a picture of the page, 1280 pixels wide")
    options = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    studio = subprocess.Popen([sys.executable, "app.py", f"--port={PORT}"])
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": 1280, "height": 1250}, locale="en-US")
            page.set_default_timeout(120_000)
            for _ in range(120):
                try:
                    page.goto(f"http://127.0.0.1:{PORT}")
                    break
                except Exception:
                    time.sleep(0.5)
            page.wait_for_function("document.querySelectorAll('#wall img').length == 24")
            page.locator("#wall button:has(img)").nth(3).click()
            page.wait_for_selector("#ends img")
            page.wait_for_timeout(1000)
            moves = [
                timed(page, slider, key)
                for slider in ("light", "turn")
                for key in ["ArrowRight"] * 5 + ["ArrowLeft"] * 5
            ]
            print(
                f"a slider: median {np.median(moves):.0f} ms, from {min(moves):.0f} to {max(moves):.0f}, "
                f"{len(moves)} moves"
            )
            if options.out is not None:
                for nth in (3, 8, 17):
                    page.locator("#wall button:has(img)").nth(nth).click()
                    page.wait_for_timeout(1500)
                    page.locator("#pin").click()
                    page.wait_for_timeout(1000)
                page.screenshot(path=options.out)
            browser.close()
    finally:
        studio.terminate()
        studio.wait(30)


if __name__ == "__main__":
    main()
