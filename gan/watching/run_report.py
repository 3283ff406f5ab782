"""The report of a run: report.html in its folder, a self-contained page that is rewritten during training."""

import base64
import contextlib
import html
import io
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import numpy as np

from gan import images
from gan.command_line import options_table
from gan.files import write_text
from gan.language import lang, text, why
from gan.watching.curves import COLOURS, PANELS, SPREAD_TITLE, Panel, histogram, smoothed
from gan.watching.monitor import duration
from gan.watching.output import Output

FIRST, EVERY = 10.0, 150.0  # seconds until the page is written for the first time, and between rewrites
POINTS = 250  # maximum number of points plotted per curve
TIMES, LATENTS = 10, 8  # rows of the picture that follows the same latents over time, and latents per row

PAGE = Path(__file__).with_suffix(".html").read_text(encoding="utf-8")


class RunReport(Output):
    """Writes `report.html` with the run's options into its folder.

    `samples` is the folder of the preview grids, and `again` the command that resumes the run.
    """

    def __init__(self, folder: Path, options: Mapping[str, Any], samples: Path, again: str) -> None:
        super().__init__()
        self.path, self.options, self.samples, self.again = folder / "report.html", options, samples, again
        self.due = time.perf_counter() + FIRST
        self.said = ""

    def row(self, row: Mapping[str, float]) -> list[str]:
        """Add a row of log.jsonl, and write the page if it is due; returns lines for the user."""
        super().row(row)
        if time.perf_counter() < self.due:
            return []
        self.due = time.perf_counter() + EVERY
        return self._write(training=True)

    def close(self) -> list[str]:
        """Write the page for the last time; returns lines for the user."""
        return self._write(training=False)

    def _write(self, training: bool) -> list[str]:
        before, self.said = self.said, ""
        try:
            write_text(self.path, self._page(training))
        except Exception as error:  # training goes on whatever is wrong with a disk, a font or a picture
            self.said = text(
                "could not write {}: {}; training goes on and tries again; log.jsonl has all numbers; make room on "
                "the disk, and make {} writable"
            ).format(self.path, why(error), self.path.parent)
        return [self.said] if self.said not in ("", before) else []

    def _page(self, training: bool) -> str:
        images_seen, seconds = self.curves.column("seconds")
        measured = ""
        if len(seconds):
            measured = text("{:.1f} minutes of training, {:,.0f} images seen.")
            measured = measured.format(seconds[-1] / 60, images_seen[-1])
        pictures = [*self.pictures.values(), *self._over_time()]
        return jinja2.Template(PAGE, autoescape=True, trim_blocks=True).render(
            _=text,
            lang=lang(),
            name=self.path.parent.name,
            training=training,
            now=time.strftime("%Y-%m-%d %H:%M"),
            measured=measured,
            again=self.again,
            verdict=self.verdict,
            commands=self.commands,
            film="" if training or not (film := self.path.with_name("timelapse.webp")).is_file() else film.name,
            pictures=[(title, images.encoded(pixels), rows) for title, pixels, rows in pictures],
            drawings=self._drawings(),
            options=options_table(self.options),
            base64=base64.b64encode,
        )

    def _over_time(self) -> list[tuple[str, np.ndarray, tuple[str, ...]]]:
        """Return a picture of the first rows of some grids, stacked, with its title; or an empty list."""
        files = sorted(self.samples.glob(images.PREVIEWS))
        if len(files) < 2:
            return []
        spaced, rows = sorted({round(i) for i in np.linspace(0, len(files) - 1, TIMES)}), dict[Path, np.ndarray]()
        for file in images.alike([files[i] for i in spaced]):  # those of another size are of another run
            with contextlib.suppress(OSError):  # a file cut short by a power failure
                grid = images.load_picture(file)
                rows[file] = grid[: grid.shape[1] // LATENTS]
        if not rows:
            return []
        steps = np.array([int(file.stem.removeprefix("step-")) for file in rows])
        images_seen, seconds = self.curves.column("seconds")
        after = np.interp(steps * self.options["batch_size"], [0, *images_seen], [0, *seconds])
        caption = text("On the way: always the same {} latents, after so much training").format(LATENTS)
        return [(caption, np.concatenate(list(rows.values())), tuple(map(duration, after)))]

    def _drawings(self) -> str:
        of_panels = ((panel, self.curves.panel(panel)) for panel in PANELS.values())
        drawn = [figure(panel, curves) for panel, curves in of_panels if curves]
        if self.spread is not None:
            edges, shares = histogram(*self.spread)
            drawing = _drawing(lambda axes: _draw_spread(axes, edges, shares))
            drawn.append(
                _figure(SPREAD_TITLE, text("share, %, by the logit"), [text(kind) for kind in shares], drawing)
            )
        return "".join(drawn)


def figure(panel: Panel, curves: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> str:
    """Return the curves of a panel in HTML: a plot, and over it in words what it shows."""
    unit = text("{}, by images seen").format(text(panel.unit))
    return _figure(panel.title, unit, list(curves), _drawing(lambda axes: _draw(axes, panel, curves)))


def _figure(title: str, unit: str, names: Sequence[str], drawing: bytes) -> str:
    """Return a plot in HTML. All words stand over it: its fonts may lack the letters of the reader's language."""
    keys = ""
    if len(names) > 1:
        named = zip(COLOURS, map(html.escape, names), strict=False)
        keys = "<br>" + " ".join(f'<span style="color: {colour}">&#9632;</span> {name}' for colour, name in named)
    title, image = html.escape(text(title)), base64.b64encode(drawing).decode()
    caption = f"<figcaption>{title}<br><small>{html.escape(unit)}{keys}</small></figcaption>"
    return f'<figure>{caption}<img alt="{title}" src="data:image/svg+xml;base64,{image}"></figure>'


def _drawing(draw: Any) -> bytes:
    """Return a plot as an SVG file; `draw` fills its axes."""
    import matplotlib
    from matplotlib.figure import Figure

    figure, file = Figure(figsize=(4.8, 2.9)), io.BytesIO()
    look: dict[Any, Any] = {"svg.fonttype": "none", "font.size": 9, "font.family": "sans-serif"}
    with matplotlib.rc_context(look):
        axes = figure.add_axes((0.11, 0.1, 0.86, 0.86))
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        draw(axes)
        axes.locator_params(nbins=5)  # the plot is small, and half of the time goes into ticks
        figure.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()


def _draw(axes: Any, panel: Panel, curves: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> None:
    from matplotlib.ticker import EngFormatter

    for colour, points in zip(COLOURS, curves.values(), strict=False):
        each = -(-len(points[0]) // POINTS)  # neighbours that become one point
        x, y = (np.array([of[i : i + each].mean() for i in range(0, len(of), each)]) for of in points)
        marker = "o" if len(x) < 30 else None
        if panel.smooth:
            axes.plot(x, y, color=colour, alpha=0.3, linewidth=0.8)
            axes.plot(x, smoothed(y), color=colour)
        else:
            axes.plot(x, y, color=colour, marker=marker, markersize=3, linewidth=1.2)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))  # 0, 500, 20k, 1.5M


def _draw_spread(axes: Any, edges: np.ndarray, shares: Mapping[str, np.ndarray]) -> None:
    for colour, share in zip(COLOURS, shares.values(), strict=False):
        axes.stairs(100 * share, edges, fill=True, alpha=0.55, color=colour)
