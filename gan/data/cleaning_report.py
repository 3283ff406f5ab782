"""The report of `prepare.py`, a self-contained HTML page with counts and thumbnails."""

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
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

PAGE = Path(__file__).with_suffix(".html").read_text(encoding="utf-8")


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
