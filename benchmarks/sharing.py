"""Measure the files that export.py writes: python -m benchmarks.sharing [--checkpoint=...] [--out=PICTURE].

Prints their sizes and speeds, and their differences from PyTorch.

The page runs from its file in a real Chromium without a network; the ONNX file runs in ONNX Runtime on the CPU. With
`--rounded=FILE`, it instead writes the checkpoint with weights rounded as in an int8 page, for evaluate.py.
"""

from __future__ import annotations

import argparse
import dataclasses
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from playwright.sync_api import Browser, sync_playwright
from torch import nn

from config import RELEASED
from gan import checkpoint
from gan.play.api import Generator
from gan.quality.sampling import Sampler
from gan.sharing import onnx_file, web_page
from gan.sharing.web_page import Stored

SEEDS = 64
TIMED = 20


@dataclasses.dataclass
class Measured:
    """The results of a page: seconds until it has drawn a face and the wall, milliseconds a face, errors of pixels."""

    first: float
    wall: float
    face: list[float]
    far: np.ndarray


def measured(browser: Browser, sampler: Sampler, path: Path, picture: Path | None) -> Measured:
    """Open a page and measure it."""
    context = browser.new_context(offline=True, viewport={"width": 1120, "height": 860}, locale="en-US")
    page = context.new_page()
    page.set_default_timeout(120_000)
    begun = time.perf_counter()
    page.goto(path.as_uri(), wait_until="commit")
    page.wait_for_function("typeof wall !== 'undefined' && wall.length > 0", polling=5)
    first = time.perf_counter() - begun
    page.wait_for_function("wall.length === WALL")
    whole = time.perf_counter() - begun
    if picture is not None:
        page.locator("#wall button").nth(1).click()
        page.screenshot(path=picture)
    taken = page.evaluate(
        "n => [...Array(n).keys()].map(seed => { const begun = performance.now(); "
        "faceOf(latentOf(100 + seed, 1)); return performance.now() - begun; })",
        TIMED,
    )
    drawn = page.evaluate(
        "n => [...Array(n).keys()].map(seed => Array.from(faceOf(latentOf(seed, 1)).data))", SEEDS
    )  # fmt: skip
    size = sampler.model.image_size
    found = np.array(drawn).reshape(SEEDS, size, size, 4)[..., :3]
    expected = np.concatenate(list(sampler.faces(range(SEEDS)))).astype(int)
    context.close()
    return Measured(first, whole, taken, np.abs(found - expected))


def rounded(path: Path, out: Path) -> None:
    """Write a checkpoint whose weights are rounded to 8 bits per output channel, like those of a page."""
    content, generator = checkpoint.load(path), Generator.load(path).sampler.generator
    for name, layer in generator.named_modules():
        if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d | nn.Linear):
            across = 1 if isinstance(layer, nn.ConvTranspose2d) else 0
            weight = layer.weight.movedim(across, -1)
            scale = weight.abs().flatten(0, -2).amax(0) / 127
            content["ema"][f"{name}.weight"] = ((weight / scale).round() * scale).movedim(-1, across).contiguous()
    checkpoint.save(out, {name: value for name, value in content.items() if name not in ("program", "format")})


def main() -> None:
    """Write files, measure them and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", type=Path, default=RELEASED)
    parser.add_argument("--out", type=Path, help="where to write a picture of the page")
    parser.add_argument("--rounded", type=Path, help="the checkpoint to write instead")
    options = parser.parse_args()
    if options.rounded is not None:
        rounded(options.checkpoint, options.rounded)
        return
    sampler = Generator.load(options.checkpoint).sampler
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    print(f"{torch.get_num_threads()} threads; {sum(one.numel() for one in sampler.generator.parameters()):,} weights")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        print("| page | MB | first face, s | wall of 16, s | a face, ms | off by, mean | 99 % | most |")
        print("| --- | --- | --- | --- | --- | --- | --- | --- |")
        kinds: tuple[Stored, ...] = ("int8", "fp16")
        for stored in kinds:
            path = Path(folder) / f"{stored}.html"
            web_page.write(sampler, path, stored)
            found = measured(browser, sampler, path, options.out if stored == "int8" else None)
            face, far = found.face, found.far
            print(
                f"| {stored} | {path.stat().st_size / 1e6:.1f} | {found.first:.1f} | {found.wall:.1f} | "
                f"{statistics.median(face):.0f} ({min(face):.0f} to {max(face):.0f}) | {far.mean():.2f} | "
                f"{np.percentile(far, 99):.0f} | {far.max()} |"
            )
        browser.close()
        print("\n| ONNX | MB | off by at most | faces/s, ONNX Runtime | faces/s, PyTorch |")
        print("| --- | --- | --- | --- | --- |")
        for half in (False, True):
            path = Path(folder) / f"{half}.onnx"
            onnx_file.write(sampler, path, half)
            furthest, speed, plain = onnx_file.compared(sampler, path, half)
            print(
                f"| {'fp16' if half else 'fp32'} | {path.stat().st_size / 1e6:.1f} | {furthest:.1g} | {speed:.0f} | "
                f"{plain:.0f} |"
            )


if __name__ == "__main__":
    main()
