"""The report of an evaluation as a picture of samples, numbers and curves."""

import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gan import images
from gan.files import replacing
from gan.quality.run_history import MOST_SAMPLES
from gan.watching.curves import METRICS

CHINESE = (
    *("Noto Sans CJK SC", "Noto Sans CJK JP", "WenQuanYi Zen Hei", "WenQuanYi Micro Hei"),
    *("Microsoft YaHei", "PingFang SC"),
)
"""Fonts that folder names may need, on Linux, Windows and macOS; those installed are used."""


COLUMNS = 8  # of pairs


def rows(result: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str, str]]:
    """Yield each metric as text: label, value, deviation, floor, better direction."""
    for name, (label, better, decimals, *_) in METRICS.items():
        found = (result["metrics"][name][kind] for kind in ("value", "deviation", "floor"))
        value, deviation, floor = ("" if number is None else f"{number:.{decimals}f}" for number in found)
        yield label, value, deviation, floor, better


def save(
    path: Path, result: Mapping[str, Any], examples: np.ndarray, pairs: tuple[np.ndarray, np.ndarray] | None = None
) -> None:
    """Write the report of an evaluation as a picture, atomically.

    Args:
        path: path of the PNG file.
        result: the result of `evaluate.py`, as in its JSON file.
        examples: samples (N, S, S, C) uint8.
        pairs: samples and the faces nearest to them, (M, S, S, C) each, M a multiple of 8; None leaves them out.

    Raises:
        OSError: the file cannot be written.
    """
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.font_manager import fontManager

    known = fontManager.get_font_names()
    fonts = ["DejaVu Sans", *(font for font in CHINESE if font in known)]
    with matplotlib.rc_context({"font.family": fonts, "axes.titlesize": 10}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # matplotlib draws a box instead
        figure = Figure(dpi=100, layout="constrained")
        _fill(figure, result, examples, pairs)
        with replacing(path) as temporary:
            figure.savefig(temporary, bbox_inches="tight", pad_inches=0.1)


def _fill(
    figure: Any, result: Mapping[str, Any], examples: np.ndarray, pairs: tuple[np.ndarray, np.ndarray] | None
) -> None:
    run = result.get("run", [])
    heights = [8.1, 3.2, *([3.0] if len(run) > 1 else []), *([4.1] if pairs else [])]
    figure.set_size_inches(8, sum(heights))  # narrow enough for a page to show it at its full size
    cells = figure.add_gridspec(len(heights), 2, height_ratios=heights)
    _picture(figure.add_subplot(cells[0, :]), images.grid(examples), f"{len(examples)} samples, not chosen")
    _numbers(figure.add_subplot(cells[1, :]), result)
    if len(run) > 1:
        _curve(figure.add_subplot(cells[2, 0]), run, "damage_x100", result)
        _curve(figure.add_subplot(cells[2, 1]), run, "fd", result)
    if pairs is not None:
        both = np.stack(pairs).reshape(2, -1, COLUMNS, *examples.shape[1:]).swapaxes(0, 1)
        sheet = images.grid(both.reshape(-1, *examples.shape[1:]), COLUMNS)
        title = "samples, and below each the face nearest to it; in the first row those nearest of all"
        _picture(figure.add_subplot(cells[-1, :]), sheet, title)


def _picture(axes: Any, pixels: np.ndarray, title: str) -> None:
    axes.imshow(pixels, interpolation="lanczos")
    axes.set_axis_off()
    axes.set_anchor("N")
    axes.set_title(title)


def _numbers(axes: Any, result: Mapping[str, Any]) -> None:
    axes.set_axis_off()
    cells = [[label, f"{value} ± {spread}", floor, better] for label, value, spread, floor, better in rows(result)]
    table = axes.table(
        cells, colLabels=["", "value", "floor", "better"], loc="upper center", cellLoc="right", edges="horizontal"
    )
    table.auto_set_font_size(False)
    table.set_fontsize(11)
    table.scale(1, 1.5)
    lines = [
        f"{result['n']:,} samples of {result['fake']}",
        f"against {result['real']}",
        f"features: {result['features']}; {result['note']}",
    ]
    if "copying" in result:
        found = result["copying"]
        ratios = " / ".join(f"{ratio:.2f}" for ratio in found["percentiles"].values())
        copies = ", COPIES" if found["copied"] else ""
        lines.append(f"nearest of {found['faces']:,} {found['what']}: {ratios} of {found['against']}{copies}")
    below = 0.96 - sum(table[i, 0].get_height() for i in range(len(cells) + 1))
    place = {"ha": "center", "va": "top", "transform": axes.transAxes}
    axes.text(0.5, below, "\n".join(lines), fontsize=9, linespacing=1.5, wrap=True, parse_math=False, **place)


def _curve(axes: Any, run: list[Mapping[str, float]], name: str, result: Mapping[str, Any]) -> None:
    label, better, *_ = METRICS[name]
    label_of_run = f"checkpoints, {min(result['n'], MOST_SAMPLES):,} samples each"
    axes.plot([point["images_seen"] for point in run], [point[name] for point in run], marker="o", label=label_of_run)
    floor = result["metrics"][name]["floor"]
    axes.axhline(floor, color="grey", linestyle=":", label=f"floor with {result['n']:,} faces")
    axes.set(xlabel="images seen", title=f"{label} of the run, {better} is better")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    axes.grid(alpha=0.3)
