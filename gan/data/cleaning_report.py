"""The report of `prepare.py`, a self-contained HTML page with counts and thumbnails."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jinja2
import numpy as np

from gan.data.cleaning import KINDS, Candidate, name_of, thumbnail

TITLE = "<title>Faces prepared</title>"
SHOWN = 24  # maximum number of thumbnails of each kind

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
small, .quiet { color: #666; }
</style>
<h1>{{ number(counts.kept) }} faces {{ "would be kept" if dry_run else "are in " ~ out }}</h1>
<p>Of {{ number(counts.pictures) }} pictures in {{ sources|join(", ") }}
{%- if counts.other_files %}, {{ number(counts.other_files) }} other files ignored{% endif %}.</p>
<table><tr><th>found<th><th>what it means<th>done
{% for kind, meaning in kinds.items() if found[kind] %}
<tr><td>{{ kind }}<td class=n>{{ number(found[kind]) }}<td>{{ meaning }}<td>
{{- "kept" if kind in kept_kinds else "left out" }}
{% endfor %}
</table>
{% if not found %}<p>Nothing is wrong with them.</p>{% endif %}
<h2>What is kept</h2>
{% if sides %}
<p>Shorter sides: {{ number(sides[0]) }} to {{ number(sides[2]) }} pixels, median {{ number(sides[1]) }}.</p>
{% endif %}
{% for kind, group in groups.items() %}
{% if kind %}<h2>{{ kind }}: {{ number(group.number) }}</h2><p class=quiet>{{ kinds[kind] }}</p>{% endif %}
<div class=faces>
{% for face, images in group.cells %}
<figure title="{{ face.picture.about }}">
{%- for image in images %}<img alt="" src="data:image/jpeg;base64,{{ image }}">{% endfor %}
<figcaption>{{ face.picture.about }}
{%- if face.why %}<br><small>{{ "a copy of " if "duplicate" in face.kind }}{{ face.why }}</small>{% endif %}
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


def page(
    result: Mapping[str, Any], candidates: Sequence[Candidate], pixels: np.ndarray, rows: Mapping[int, int]
) -> str:
    """Return the report as HTML.

    Args:
        result: the content of the JSON report.
        candidates: all inspected candidates.
        pixels: the faces that can be shown, (n, S, S, 3) uint8.
        rows: the row of `pixels` for an index in `candidates`, if it can be shown.
    """
    indices = {id(face): i for i, face in enumerate(candidates)}

    def images(place: int) -> Iterator[str]:
        face = candidates[place]
        for i in (place, indices.get(id(face.original)) if "duplicate" in face.kind else None):
            if i is not None and i in rows:
                yield base64.b64encode(thumbnail(pixels[rows[i]])).decode()

    groups = {}
    for kind in ("", *KINDS):
        places = [i for i, face in enumerate(candidates) if face.kind == kind]
        if places or not kind:
            some = places[:: max(1, len(places) // SHOWN)][:SHOWN]
            cells = [(candidates[i], list(images(i))) for i in some]
            groups[kind] = {"number": len(places), "cells": cells, "more": len(places) - len(some)}
    shorter = [min(face.size) for face in candidates if not face.kind]
    sides = np.percentile(shorter, [0, 50, 100]).astype(int).tolist() if shorter else []
    files = {name_of(face): i for i, face in enumerate(candidates) if not face.kind}
    labels: dict[str, dict[str, Any]] = {}
    for name, guesses in result["labels"].items():
        for column, (label, _) in guesses.items():
            group = labels.setdefault(f"{column}: {label or 'not sure'}", {"number": 0, "images": []})
            group["number"] += 1
            if len(group["images"]) < SHOWN:
                group["images"] += list(images(files[name]))[:1]
    known = {"title": TITLE, "kinds": KINDS, "groups": groups, "sides": sides, "labels": dict(sorted(labels.items()))}
    return jinja2.Template(PAGE, autoescape=True, trim_blocks=True).render(result, **known, number="{:,}".format)
