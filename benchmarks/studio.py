"""Measures the studio: python -m benchmarks.studio.

How long a slider takes to show its face while nothing trains and while the studio trains, and how many images a second
a training makes with the page closed and open, in turn. It needs Chromium, see docs/contributing.md.
"""

from __future__ import annotations

import json
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

from benchmarks.throughput import heading

ROOT = Path(__file__).resolve().parents[1]
PORT, MOVES, ROUNDS, SECONDS = 7899, 20, 4, 25.0
RUN = "synthetic"  # the name that the studio gives to a run on synthetic faces


def main() -> None:
    """Measure and print."""
    print("\n".join(heading()))
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        words = [sys.executable, str(ROOT / "app.py"), f"--port={PORT}"]
        with subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, text=True) as studio:
            assert studio.stdout is not None
            next(line for line in studio.stdout if "studio is at" in line)
            path = shutil.which("chromium") or shutil.which("google-chrome")
            browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])

            def opened() -> Page:
                page = browser.new_page(viewport={"width": 1280, "height": 1000})
                page.set_default_timeout(120_000)
                page.goto(f"http://127.0.0.1:{PORT}")
                page.wait_for_function("document.querySelectorAll('#wall img').length == 24")
                page.wait_for_timeout(2000)
                return page

            page = opened()
            show("a slider while nothing trains", moves(page))
            page.get_by_role("tab", name="Train").click()
            page.locator("#folder input").fill("synthetic")
            page.locator("#folder input").press("Enter")
            page.locator("#look").click()
            page.locator("#said-look .good").wait_for()
            page.locator("#minutes input").fill("60")
            page.locator("#start").click()
            log = Path(folder, "checkpoints", RUN, "log.jsonl")
            while not log.is_file():
                time.sleep(1)
            rates: dict[str, list[float]] = {"closed": [], "open": []}
            for _ in range(ROUNDS):
                page.close()
                rates["closed"].append(rate(log))
                page = opened()
                page.get_by_role("tab", name="Train").click()
                rates["open"].append(rate(log))
            page.get_by_role("tab", name="Faces").click()
            show("a slider while it trains", moves(page))
            page.get_by_role("tab", name="Train").click()
            page.locator("#stop").click()
            page.get_by_text("Stopped").wait_for()
            browser.close()
            studio.send_signal(signal.SIGINT)
        for name, found in rates.items():
            print(f"images/s with the page {name}: median {statistics.median(found):.1f} of {sorted(found)}")


def moves(page: Page) -> list[float]:
    """Return the seconds from each of some moves of a slider to another face."""
    found, bar = list[float](), page.locator("#light input[type=range]")
    for i in range(MOVES):
        before = page.locator("#face img").get_attribute("src")
        since = time.perf_counter()
        bar.fill(f"{(i % 10 + 1) / 10}")
        page.wait_for_function("src => document.querySelector('#face img').src != src", arg=before, polling=10)
        found.append(time.perf_counter() - since)
    return found


def show(what: str, found: list[float]) -> None:
    """Print the median and the spread of some seconds."""
    worst = sorted(found)[round(0.9 * (len(found) - 1))]
    print(f"{what}: median {1000 * statistics.median(found):.0f} ms, nine of ten within {1000 * worst:.0f} ms")


def rate(log: Path) -> float:
    """Return the images a second of a run for a while from now."""

    def seen() -> dict[str, Any]:
        return json.loads(log.read_text(encoding="utf-8").splitlines()[-1])

    first = seen()
    time.sleep(SECONDS)
    last = seen()
    return round((last["images_seen"] - first["images_seen"]) / (last["seconds"] - first["seconds"]), 1)


if __name__ == "__main__":
    main()
