"""What was found in a pile of pictures, as one page that needs nothing else: counts, thumbnails, sizes, colours."""

from __future__ import annotations

import base64
import colorsys
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from gan.data.cleaning import KINDS, Seen

TITLE = "<title>Faces prepared</title>"

SHOWN = 24
"""Thumbnails of each kind."""

COLOURS = 240
"""Mean colours shown."""

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #222;
       background: #fff; }
table { border-collapse: collapse; } td, th { padding: .2rem .9rem .2rem 0; text-align: left; vertical-align: top; }
td:last-child { white-space: nowrap; }
td.n { text-align: right; font-variant-numeric: tabular-nums; }
.faces { display: flex; flex-wrap: wrap; gap: .8rem; } figure { margin: 0; width: 8.5rem; }
figure img { width: 64px; height: 64px; margin-right: 2px; } figcaption { font-size: .72rem; overflow-wrap: anywhere; }
small, .quiet { color: #666; } svg { max-width: 100%; height: auto; }
"""


def page(result: Mapping[str, Any], seen: Sequence[Seen], thumbnails: Mapping[int, bytes]) -> str:
    """The report as HTML.

    Args:
        result: what `prepare.py` found, as its JSON file holds it.
        seen: all that was judged.
        thumbnails: JPEG files by place in `seen`, where there are some to show.
    """
    counts = result["counts"]
    others = f", {counts['other_files']:,} other files left alone" if counts["other_files"] else ""
    done = "would be kept" if result["dry_run"] else f"are in {escape(result['out'])}"
    parts = [
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">',
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
        "style-src 'unsafe-inline'\">",
        f"{TITLE}<style>{STYLE}</style>",
        f"<h1>{counts['kept']:,} faces {done}</h1>",
        f"<p>Of {counts['pictures']:,} pictures in {escape(', '.join(result['sources']))}{others}.</p>",
        "<table><tr><th>found<th><th>what it means<th>done",
    ]
    for kind, meaning in KINDS.items():
        if number := result["found"].get(kind, 0):
            action = "kept" if kind in result["kept_kinds"] else "left out"
            parts.append(f"<tr><td>{kind}<td class=n>{number:,}<td>{escape(meaning)}<td>{action}")
    if counts["animated"]:
        parts.append(f"<tr><td>animated<td class=n>{counts['animated']:,}<td>only the first picture is used<td>kept")
    parts.append("</table>" if result["found"] or counts["animated"] else "</table><p>Nothing is wrong with them.</p>")
    kept = [i for i, face in enumerate(seen) if not face.kind]
    parts += ["<h2>What is kept</h2>", sizes([seen[i] for i in kept]), colours([seen[i] for i in kept])]
    parts.append(faces(kept, seen, thumbnails))
    for kind, meaning in KINDS.items():
        places = [i for i, face in enumerate(seen) if face.kind == kind]
        if places:
            parts += [f"<h2>{kind}: {len(places):,}</h2>", f"<p class=quiet>{escape(meaning)}</p>"]
            parts.append(faces(places, seen, thumbnails))
    parts.append("<p class=quiet>Every finding, and every file written with its SHA-256: in the .json beside this.</p>")
    return "\n".join(parts) + "\n"


def shown(seen: Sequence[Seen]) -> list[int]:
    """The places in `seen` of which a report shows thumbnails: some of each kind, of what is kept, and of originals."""
    places = [i for kind in ("", *KINDS) for i in _some([i for i, face in enumerate(seen) if face.kind == kind])]
    originals = _originals(seen)
    return sorted({*places, *(originals[seen[i].why] for i in places if seen[i].why in originals)})


def _some(places: Sequence[int]) -> Sequence[int]:
    return places[:: max(1, len(places) // SHOWN)][:SHOWN]


def _originals(seen: Sequence[Seen]) -> dict[str, int]:
    """The places of those that others are copies of, by their names."""
    copied = {face.why for face in seen if face.kind in ("same", "alike")}
    return {face.picture.about: i for i, face in enumerate(seen) if face.picture.about in copied and face.digest}


def faces(places: Sequence[int], seen: Sequence[Seen], thumbnails: Mapping[int, bytes]) -> str:
    """Some of the places, with their pictures where there are some, names, reasons, and the originals of copies."""
    originals, few = _originals(seen), _some(places)
    cells = []
    for i in few:
        images = ""
        for place in (i, originals.get(seen[i].why)):
            if place is not None and place in thumbnails:
                data = base64.b64encode(thumbnails[place]).decode()
                images += f'<img alt="" src="data:image/jpeg;base64,{data}">'
        of = "a copy of " if seen[i].kind in ("same", "alike") else ""
        why = f"<br><small>{of}{escape(seen[i].why)}</small>" if seen[i].why else ""
        name = escape(seen[i].picture.about)
        cells.append(f'<figure title="{name}">{images}<figcaption>{name}{why}</figcaption></figure>')
    more = f"<p class=quiet>and {len(places) - len(few):,} more</p>" if len(places) > len(few) else ""
    return f"<div class=faces>{''.join(cells)}</div>{more}"


def sizes(kept: Sequence[Seen]) -> str:
    """A histogram of the shorter sides, as SVG."""
    if not kept:
        return ""
    edges = np.array([0, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2**31])
    sides = np.array([min(face.size) for face in kept])
    numbers, _ = np.histogram(sides, edges)
    bars = []
    for i, number in enumerate(numbers):
        height = 110 * number / numbers.max()
        label = f"{edges[i]}+" if i == len(numbers) - 1 else f"{edges[i]}–{edges[i + 1] - 1}"
        x = 10 + 62 * i
        bars.append(f'<rect x="{x}" y="{135 - height:.1f}" width="50" height="{height:.1f}" fill="#4a78b0"/>')
        bars.append(f'<text x="{x + 25}" y="150">{label}</text>')
        bars.append(f'<text x="{x + 25}" y="{131 - height:.1f}">{number:,}</text>' if number else "")
    text = 'font-size="10" text-anchor="middle" font-family="sans-serif"'
    return f'<p>Shorter side, pixels</p><svg viewBox="0 0 700 156" width="700" {text}>{"".join(bars)}</svg>'


def colours(kept: Sequence[Seen]) -> str:
    """The mean colours, by hue, as SVG."""
    if not kept:
        return ""
    found = sorted((face.colour for face in kept), key=lambda rgb: colorsys.rgb_to_hsv(*(c / 255 for c in rgb)))
    some = [found[round(i)] for i in np.linspace(0, len(found) - 1, min(COLOURS, len(found)))]
    width = 690 / len(some)
    bars = (
        f'<rect x="{i * width:.2f}" width="{width + 0.3:.2f}" height="36" fill="#{bytes(rgb).hex()}"/>'
        for i, rgb in enumerate(some)
    )
    return f'<p>Mean colours, by hue</p><svg viewBox="0 0 700 36" width="700">{"".join(bars)}</svg>'
