"""The report of `prepare.py`, a self-contained HTML page with counts and thumbnails."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2
import numpy as np

from gan.data.cleaning import KINDS, Candidate, name_of, thumbnail
from gan.files import printable
from gan.language import lang, text

MARK = '<meta name="generator" content="prepare.py">'  # tells a report from other pages
SHOWN = 400  # maximum number of thumbnails of each kind
OF_A_LABEL = 24  # and of each label
CHIPS = {
    **{"aqua": "#4fc9c9", "black": "#26262b", "blonde": "#efd074", "blue": "#3f78e0", "brown": "#8b5a3c"},
    **{"gray": "#9a9ca5", "green": "#43a85b", "orange": "#ee8b35", "pink": "#f49bbd", "purple": "#9763d4"},
    **{"red": "#d63c3c", "white": "#fbfbfb", "yellow": "#f4d22f"},
}
"""The colours of labels."""

PAGE = """<!doctype html><html lang="{{ lang }}"><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
{{ mark|safe }}<title>{{ _("Faces prepared") }}</title><style>
:root { color-scheme: light dark; --ink: #1d1d22; --quiet: #6a6a74; --paper: #fff; --tint: #f2f2f5; --mine: #d6336c; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #ececf0; --quiet: #9d9da8; --paper: #17171a; --tint: #27272c; --mine: #ff7ba6; }
}
body { font: 16px/1.5 system-ui, sans-serif; max-width: 76rem; margin: 0 auto; padding: 2.5rem 1rem 4rem;
       color: var(--ink); background: var(--paper); }
h1 { font-size: 2rem; line-height: 1.2; margin: 0 0 .4rem; overflow-wrap: anywhere; }
h2 { font-size: 1.25rem; line-height: 1.4; margin: 3rem 0 0; } small, .quiet { color: var(--quiet); }
h2 small, h3 { font-size: 1rem; font-weight: normal; } h3 { margin: 0; display: flex; gap: .5rem; }
.end { margin-top: 3rem; } p, span { margin: .2rem 0; overflow-wrap: anywhere; }
nav { display: flex; flex-wrap: wrap; gap: .4rem; margin: 1.2rem 0; }
nav a { background: var(--tint); border-radius: 2rem; padding: .2rem .9rem; color: inherit; text-decoration: none; }
nav a:first-child { background: var(--mine); color: var(--paper); }
ul { list-style: none; padding: 0; margin: .8rem 0; display: grid; gap: 4px;
     grid-template-columns: repeat(auto-fill, minmax(min(96px, 21vw), 1fr)); }
.out { gap: .8rem .6rem; } .pairs { grid-template-columns: repeat(auto-fill, minmax(min(196px, 42vw), 1fr)); }
.names { grid-template-columns: repeat(auto-fill, minmax(min(18rem, 90vw), 1fr)); gap: .4rem 1rem; }
.label { display: grid; grid-template-columns: 11rem 1fr; margin-top: .8rem; }
.label ul { margin: 0; grid-template-columns: repeat(auto-fill, minmax(min(64px, 15vw), 1fr)); }
i { width: .9rem; height: .9rem; border-radius: .25rem; box-shadow: inset 0 0 0 1px #8888; margin-top: .3rem; }
summary { list-style: none; display: flex; flex-wrap: wrap; gap: 4px; cursor: zoom-in; }
::-webkit-details-marker { display: none; }
summary:focus-visible, a:focus-visible { outline: 3px solid var(--mine); outline-offset: 1px; }
svg { display: block; flex: 1; min-width: 0; aspect-ratio: 1; border-radius: 4px; background: var(--tint);
      outline: 1px solid #8883; outline-offset: -1px; }
summary span { display: none; flex: 0 0 100%; margin: 0; }
.out summary span { display: block; max-height: 5.4em; overflow: hidden; font-size: .75rem; line-height: 1.35; }
[open] { position: fixed; inset: 0; z-index: 1; background: var(--paper); overflow: auto; }
[open] summary { min-height: 100%; box-sizing: border-box; padding: 3.5rem 1rem 2rem; gap: 1rem; cursor: zoom-out;
                 place-content: center; text-align: center; outline: none; }
[open] summary::after { content: "✕ {{ _("back") }}"; position: fixed; top: .8rem; right: 1.2rem; color: var(--mine); }
[open] svg { flex: none; width: min(24rem, 88vw, 66vh); border-radius: 8px; }
[open] summary span { display: block; max-height: none; font-size: 1rem; }
@media (max-width: 40rem) { body { padding-top: 1.2rem; } h1 { font-size: 1.5rem; } .label { display: block; } }
</style>
{% macro word(one) %}{{ _(one) }}{% if _(one) != one %} <small>{{ one }}</small>{% endif %}{% endmacro %}
{% macro tiles(group, look) %}
<ul class="{{ look }}">
{% for face in group.faces %}
<li title="{{ face.about }}">
{% if face.pictures %}<details name="face"><summary>{% endif %}
{% for one in face.pictures %}
<svg role="img" aria-label="{{ one.name }}" viewBox="0 0 {{ one.width }} {{ one.height }}">
{%- if one.data %}<image id="p{{ one.place }}" width="{{ one.width }}" height="{{ one.height }}"
 preserveAspectRatio="none" href="data:image/jpeg;base64,{{ one.data }}"/>
{%- else %}<use href="#p{{ one.place }}"/>{% endif %}</svg>
{% endfor %}
<span>{{ face.name.split("/")|join("/<wbr>"|safe) }}
{%- for line in face.lines %}<br><small>{{ line }}</small>{% endfor %}</span>
{% if face.pictures %}</summary></details>{% endif %}
{% endfor %}
</ul>
{% endmacro %}
<h1>{{ (_("{} faces would be kept") if dry_run else _("{} faces are in {}")).format(number(counts.kept), out) }}</h1>
<p class="quiet">{{ _("from {} pictures in {}").format(number(counts.pictures), sources[:3]|join(", ")) }}
{%- if sources[3:] %} {{ _("and {} more").format(number(sources[3:]|length)) }}{% endif %}
{%- if counts.other_files %} · {{ _("other files ignored: {}").format(number(counts.other_files)) }}{% endif %}
{%- if sides %} · {{ _("shorter sides from {} to {} pixels, median {}").format(*sides) }}{% endif %}</p>
<nav>
{% for kind, group in groups.items() %}
<a href="#{{ kind }}"><strong>{{ number(group.number) }}</strong> {{ _(kind) }}</a>
{% endfor %}
</nav>
<p id="kept">{{ (_("Click a picture to enlarge it.") if dry_run else
_("Click a picture to enlarge it. Delete the bad ones from {}: they stay out the next time, too.")).format(out) }}</p>
{% for kind, group in groups.items() %}
{% if kind != "kept" %}
<h2 id="{{ kind }}">{{ number(group.number) }} {{ word(kind) }} <small>
{{- (_("kept: {}") if kind in kept_kinds else _("left out: {}")).format(_(kinds[kind])) }}</small></h2>
{% endif %}
{{ tiles(group, group.look) }}
{% if group.more %}<p class="quiet">{{ _("and {} more").format(number(group.more)) }}</p>{% endif %}
{% if kind == "kept" %}
{% for column, of in labels.items() %}
<h2>{{ word(column) }}</h2>
{% for label, found in of %}
<div class="label"><h3><i style="background: {{ chips.get(label, "none") }}"></i>
<span>{{ word(label) if label else _("not sure") }} <small>{{ number(found.number) }}</small></span></h3>
{{ tiles(found, "") }}
</div>
{% endfor %}
{% endfor %}
{% endif %}
{% endfor %}
<p class="quiet end">
{{- _("The .json file beside this page lists every finding, and every file written with its SHA-256.") }}</p>
"""


def page(
    result: Mapping[str, Any], candidates: Sequence[Candidate], pixels: np.ndarray, rows: Mapping[int, int]
) -> str:
    """Return the report as HTML, in the user's language. A picture is in it once, wherever it is shown.

    Args:
        result: the content of the JSON report.
        candidates: all inspected candidates.
        pixels: the faces that can be shown, (n, S, S, 3) uint8.
        rows: the row of `pixels` for an index in `candidates`, if it can be shown.
    """
    indices, drawn, sources = {id(face): i for i, face in enumerate(candidates)}, set[int](), set(result["sources"])

    def name(face: Candidate) -> str:
        """Return its path in the source, which it begins with if there are several."""
        picture = face.picture
        inside = f"{picture.name}/{picture.called}" if picture.member else picture.name
        several = len(sources) > 1 and printable(str(picture.root)) in sources
        return printable(f"{picture.root.resolve().name}/{inside}" if several else inside)

    def picture(i: int) -> dict[str, Any]:
        width, height = (round(96 * side / max(candidates[i].size), 1) for side in candidates[i].size)
        data = "" if i in drawn else base64.b64encode(thumbnail(pixels[rows[i]])).decode()
        drawn.add(i)
        return {"place": i, "name": name(candidates[i]), "width": width, "height": height, "data": data}

    def tiles(places: Sequence[int], number: int, most: int = SHOWN) -> dict[str, Any]:
        shown = [places[k * len(places) // most] for k in range(most)] if len(places) > most else places
        return {"number": number, "faces": [tile(i) for i in shown], "more": len(places) - len(shown)}

    def tile(i: int) -> dict[str, Any]:
        face = candidates[i]
        copy = indices.get(id(face.original)) if "duplicate" in face.kind else None
        lines = [f"{result['out']}/{name_of(face)}"] if not face.kind and not result["dry_run"] else []
        if copy is not None:
            lines = [text("a copy of {}").format(name(candidates[copy]))]
        elif face.why:
            lines = [face.why]
        pictures = [picture(k) for k in (i, copy) if k is not None and k in rows]
        return {"name": name(face), "about": face.picture.about, "pictures": pictures, "lines": lines}

    kept = [i for i, face in enumerate(candidates) if not face.kind]
    groups = {"kept": tiles(kept, result["counts"]["kept"])}
    for kind, number in result["found"].items():
        groups[kind] = tiles([i for i, f in enumerate(candidates) if f.kind and kind in (f.kind, *f.faults)], number)
        groups[kind]["look"] = "out pairs" if "duplicate" in kind else "out"
        if not any(face["pictures"] for face in groups[kind]["faces"]):
            groups[kind]["look"] = "names"
    labels = dict[str, dict[str, list[int]]]()
    for i in kept:
        for column, (label, _) in result["labels"].get(name_of(candidates[i]), {}).items():
            labels.setdefault(column, {}).setdefault(label, []).append(i)
    shorter = [min(candidates[i].size) for i in kept]
    sides = np.percentile(shorter, [0, 100, 50]).astype(int).tolist() if kept else []
    return jinja2.Template(PAGE, autoescape=True, trim_blocks=True).render(
        result,
        _=text,
        lang=lang(),
        mark=MARK,
        kinds=KINDS,
        chips=CHIPS,
        groups=groups,
        sides=sides if sides and sides[0] < sides[1] else [],
        labels={
            column: [
                (label, tiles(of[label], len(of[label]), OF_A_LABEL))
                for label in sorted(of, key=lambda label: (not label, -len(of[label])))
            ]
            for column, of in labels.items()
        },
        number="{:,}".format,
    )
