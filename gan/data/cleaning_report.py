"""The report of `prepare.py`, a self-contained HTML page with counts, thumbnails, sizes and colours."""

from __future__ import annotations

import base64
import colorsys
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jinja2
import numpy as np

from gan.data.cleaning import KINDS, Candidate, name_of

TITLE = "<title>Faces prepared</title>"
SHOWN = 24  # maximum number of thumbnails of each kind
COLOURS = 240  # maximum number of mean colours
DUPLICATES = "duplicate", "near_duplicate"

PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
{{ title|safe }}<style>
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #222;
       background: #fff; }
table { border-collapse: collapse; } td, th { padding: .2rem .9rem .2rem 0; text-align: left; vertical-align: top; }
td:last-child { white-space: nowrap; }
td.n { text-align: right; font-variant-numeric: tabular-nums; }
.faces { display: flex; flex-wrap: wrap; gap: .8rem; } figure { margin: 0; width: 8.5rem; }
figure img { width: 64px; height: 64px; margin-right: 2px; } figcaption { font-size: .72rem; overflow-wrap: anywhere; }
small, .quiet { color: #666; } svg { max-width: 100%; height: auto; }
</style>
<h1>{{ number(counts.kept) }} faces {{ "would be kept" if dry_run else "are in " ~ out }}</h1>
<p>Of {{ number(counts.pictures) }} pictures in {{ sources|join(", ") }}
{%- if counts.other_files %}, {{ number(counts.other_files) }} other files ignored{% endif %}.</p>
<table><tr><th>found<th><th>what it means<th>done
{% for kind, meaning in kinds.items() if found[kind] %}
<tr><td>{{ kind }}<td class=n>{{ number(found[kind]) }}<td>{{ meaning }}<td>
{{- "kept" if kind in kept_kinds else "left out" }}
{% endfor %}
{% if counts.animated %}
<tr><td>animated<td class=n>{{ number(counts.animated) }}<td>only the first picture is used<td>kept
{% endif %}
</table>
{% if not (found or counts.animated) %}<p>Nothing is wrong with them.</p>{% endif %}
<h2>What is kept</h2>
{% if colours %}
<p>Shorter side, pixels</p>
<svg viewBox="0 0 700 156" width="700" font-size="10" text-anchor="middle" font-family="sans-serif">
{% for label, n, height in sizes %}{% set x = 10 + 62 * loop.index0 %}
<rect x="{{ x }}" y="{{ 135 - height }}" width="50" height="{{ height }}" fill="#4a78b0"/>
<text x="{{ x + 25 }}" y="150">{{ label }}</text>
{% if n %}<text x="{{ x + 25 }}" y="{{ 131 - height }}">{{ number(n) }}</text>{% endif %}
{% endfor %}
</svg>
<p>Mean colours, by hue</p><svg viewBox="0 0 700 36" width="700">
{% set width = 690 / colours|length %}
{% for colour in colours %}
<rect x="{{ loop.index0 * width }}" width="{{ width + 0.3 }}" height="36" fill="#{{ colour }}"/>
{% endfor %}
</svg>
{% endif %}
{% for kind, group in groups.items() %}
{% if kind %}<h2>{{ kind }}: {{ number(group.number) }}</h2><p class=quiet>{{ kinds[kind] }}</p>{% endif %}
<div class=faces>
{% for face, images in group.cells %}
<figure title="{{ face.picture.about }}">
{%- for image in images %}<img alt="" src="data:image/jpeg;base64,{{ image }}">{% endfor %}
<figcaption>{{ face.picture.about }}
{%- if face.why %}<br><small>{{ "a copy of " if face.kind in duplicates }}{{ face.why }}</small>{% endif %}
</figcaption></figure>
{% endfor %}
</div>
{% if group.more %}<p class=quiet>and {{ number(group.more) }} more</p>{% endif %}
{% endfor %}
{% for label, group in labels.items() %}
<h2>{{ label }}: {{ number(group.number) }}</h2>
<div class=faces>
{% for image in group.images %}
<img alt="" width="64" height="64" src="data:image/jpeg;base64,{{ image }}">
{% endfor %}
</div>
{% endfor %}
<p class=quiet>The .json file beside this page lists every finding, and every file written with its SHA-256.</p>
"""


def page(result: Mapping[str, Any], candidates: Sequence[Candidate], thumbnail: Callable[[int], bytes | None]) -> str:
    """Return the report as HTML.

    Args:
        result: the content of the JSON report.
        candidates: all inspected candidates.
        thumbnail: returns the JPEG of an index in `candidates`, or None if there is nothing to show.
    """
    copied = {face.why for face in candidates if face.kind in DUPLICATES}
    originals = {
        face.picture.about: i for i, face in enumerate(candidates) if face.digest and face.picture.about in copied
    }

    def images(place: int) -> Iterator[str]:
        for i in (place, originals.get(candidates[place].why)):
            if i is not None and (data := thumbnail(i)) is not None:
                yield base64.b64encode(data).decode()

    groups = {}
    for kind in ("", *KINDS):
        places = [i for i, face in enumerate(candidates) if face.kind == kind]
        if places or not kind:
            some = places[:: max(1, len(places) // SHOWN)][:SHOWN]
            cells = [(candidates[i], list(images(i))) for i in some]
            groups[kind] = {"number": len(places), "cells": cells, "more": len(places) - len(some)}
    kept = [face for face in candidates if not face.kind]
    charts = {"sizes": sizes(kept), "colours": colours(kept)} if kept else {}
    files = {name_of(face): i for i, face in enumerate(candidates) if not face.kind}
    labels: dict[str, dict[str, Any]] = {}
    for name, guesses in result["labels"].items():
        for column, (label, _) in guesses.items():
            group = labels.setdefault(f"{column}: {label or 'not sure'}", {"number": 0, "images": []})
            group["number"] += 1
            if len(group["images"]) < SHOWN:
                group["images"] += list(images(files[name]))[:1]
    known = {
        "labels": dict(sorted(labels.items())),
        "title": TITLE,
        "kinds": KINDS,
        "duplicates": DUPLICATES,
        "groups": groups,
        "number": "{:,}".format,
    }
    return jinja2.Template(PAGE, autoescape=True, trim_blocks=True).render(result, **known, **charts)


def sizes(kept: Sequence[Candidate]) -> list[tuple[str, int, float]]:
    """Return a histogram of the shorter sides: the label, count and height of each bar."""
    edges = [0, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2**31]
    numbers = np.histogram([min(face.size) for face in kept], edges)[0]
    labels = [f"{low}–{high - 1}" for low, high in itertools.pairwise(edges[:-1])]
    return [(label, n, 110 * n / max(numbers)) for label, n in zip([*labels, "1024+"], numbers.tolist(), strict=True)]


def colours(kept: Sequence[Candidate]) -> list[str]:
    """Return up to `COLOURS` of the mean colours in hexadecimal, sorted by hue."""
    found = sorted((face.colour for face in kept), key=lambda rgb: colorsys.rgb_to_hsv(*(c / 255 for c in rgb)))
    return [bytes(found[round(i)]).hex() for i in np.linspace(0, len(found) - 1, min(COLOURS, len(found)))]
