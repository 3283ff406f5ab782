"""A real Chromium without any network."""

import shutil
from collections.abc import Callable, Iterator
from typing import NoReturn

import pytest
from machine import PATIENCE
from playwright.sync_api import Browser, expect, sync_playwright

expect.set_options(timeout=PATIENCE)
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]  # fmt: skip


@pytest.fixture(scope="module")
def browser(lacking: Callable[[str], NoReturn]) -> Iterator[Browser]:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        lacking("no Chromium on this machine; Debian, Ubuntu: apt install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        yield browser
        browser.close()
