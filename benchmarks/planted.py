"""Measure how many planted defects `prepare.py` finds, and its rate of false alarms on clean faces.

python -m benchmarks.planted FACES OUT        FACES: a zip of clean faces, 4,300 or more

Uses 3,000 faces with 200 defects among them, including kinds that nothing was tuned on, made by code that is
independent of `prepare.py`; then 1,000 other faces as they are. Prints a table of found and missed defects by kind, and
the false alarms. Every finding in a face without a planted defect counts as a false alarm, even if it is right; the
report shows them.
"""

from __future__ import annotations

import io
import json
import random
import subprocess
import sys
import zipfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from PIL import Image, ImageDraw, ImageEnhance, ImageFilter, ImageOps, ImageStat

ROOT = Path(__file__).resolve().parents[1]
Make = Callable[[Image.Image, random.Random], "bytes | Image.Image"]


def encoded(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    """Encode a picture as a file."""
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def cut_short(kind: str, share: float) -> Make:
    """Make files that end early."""
    return lambda face, dice: (data := encoded(face, kind))[: int(len(data) * share)]


def half_decoded(face: Image.Image, dice: random.Random) -> Image.Image:
    """Fill the missing part with grey, as a careless program does with a file that ended early."""
    face.paste((128, 128, 128), (0, round(face.height * dice.uniform(0.4, 0.8)), face.width, face.height))
    return face


def noisy(colour: int, deviation: float) -> Make:
    """Make pictures of one colour with sensor noise."""

    def make(face: Image.Image, dice: random.Random) -> Image.Image:
        noise = [max(0, min(255, round(dice.gauss(colour, deviation)))) for _ in range(face.width * face.height)]
        grey = Image.new("L", face.size)
        grey.putdata(noise)
        return grey.convert("RGB")

    return make


def page(face: Image.Image, dice: random.Random) -> Image.Image:
    """Draw a page of text."""
    image = Image.new("RGB", face.size, "white")
    draw = ImageDraw.Draw(image)
    for y in range(2, face.height, 11):
        draw.text((2, y), "".join(dice.choice("abcdefghij klmnop") for _ in range(20)), fill="black")
    return image


def landscape(face: Image.Image, dice: random.Random) -> Image.Image:
    """Draw a landscape of sky, sun and hills."""
    image = Image.linear_gradient("L").resize(face.size)
    image = ImageOps.colorize(image, (90, 150, 230), (220, 235, 250))
    draw = ImageDraw.Draw(image)
    draw.ellipse((60, 8, 80, 28), fill=(255, 230, 120))
    for colour, level in (((90, 140, 80), 60), ((50, 100, 50), 75)):
        points = [(x, level + dice.randint(-8, 8)) for x in range(0, face.width + 12, 12)]
        draw.polygon([*points, (face.width, face.height), (0, face.height)], fill=colour)
    return image


def bars(face: Image.Image, dice: random.Random) -> Image.Image:
    """Draw a television test card."""
    image = Image.new("RGB", face.size)
    colours = ["white", "yellow", "cyan", "lime", "magenta", "red", "blue", "black"]
    for i, colour in enumerate(colours):
        image.paste(colour, (i * face.width // 8, 0, (i + 1) * face.width // 8, face.height))
    return image


def snow(face: Image.Image, dice: random.Random) -> Image.Image:
    """Draw television static in colour."""
    return Image.frombytes("RGB", face.size, dice.randbytes(face.width * face.height * 3))


def marked(face: Image.Image, dice: random.Random) -> Image.Image:
    """Add a site's name in a corner."""
    ImageDraw.Draw(face).text((face.width - 44, face.height - 12), "site.com", fill="white")
    return face


def turned(face: Image.Image, dice: random.Random) -> Image.Image:
    """Rotate a face a little."""
    return face.rotate(4, Image.Resampling.BICUBIC, fillcolor="white")


def trimmed(edge: int) -> Make:
    """Crop a number of pixels from each side."""
    return lambda face, dice: face.crop((edge, edge, face.width - edge, face.height - edge)).resize(face.size)


def tinted(face: Image.Image, dice: random.Random) -> Image.Image:
    """Change the hues."""
    hue, saturation, value = face.convert("HSV").split()
    return Image.merge("HSV", (hue.point([(v + 128) % 256 for v in range(256)]), saturation, value)).convert("RGB")


# How many, the kinds of finding that are right, whether something was tuned on it, and how it is made from a face.
ALONE: dict[str, tuple[int, set[str], bool, Make]] = {
    "random bytes": (5, {"unreadable"}, True, lambda face, dice: dice.randbytes(3000)),
    "a web page's error": (4, {"unreadable"}, False, lambda face, dice: b"<html><h1>404 Not Found</h1></html>"),
    "empty file": (4, {"unreadable", "truncated"}, False, lambda face, dice: b""),
    "JPEG cut short": (6, {"truncated"}, True, cut_short("JPEG", 0.5)),
    "PNG cut short": (5, {"truncated"}, True, cut_short("PNG", 0.7)),
    "WebP cut short": (5, {"truncated", "unreadable"}, False, cut_short("WEBP", 0.6)),
    "lower part grey": (6, {"unfinished"}, True, half_decoded),
    "24 pixels": (6, {"small"}, True, lambda face, dice: face.resize((24, 24))),
    "a narrow strip": (6, {"narrow"}, True, lambda face, dice: face.resize((96, 300))),
    "one colour": (
        5,
        {"blank", "dark"},
        True,
        lambda face, dice: Image.new("RGB", face.size, dice.choice(["white", "navy"])),
    ),
    "a gradient": (4, {"blank", "grey", "outlier"}, True, lambda face, dice: Image.linear_gradient("L").convert("RGB")),
    "one colour with noise": (4, {"blank", "grey", "outlier"}, False, noisy(128, 6)),
    "much blurred": (4, {"blank", "outlier"}, False, lambda face, dice: face.filter(ImageFilter.GaussianBlur(14))),
    "dark": (6, {"dark"}, True, lambda face, dice: ImageEnhance.Brightness(face).enhance(0.08)),
    "bright beyond white": (
        4,
        {"blank", "grey", "outlier"},
        False,
        lambda face, dice: face.point([243 + v // 21 for v in range(256)] * 3),
    ),
    "grey": (8, {"grey"}, True, lambda face, dice: face.convert("L")),
    "grey, saved in colour": (6, {"grey"}, True, lambda face, dice: encoded(face.convert("L").convert("RGB"), "JPEG")),
    "a page of text": (6, {"grey", "outlier"}, False, page),
    "coloured snow": (5, {"outlier"}, False, snow),
    "a test picture": (5, {"outlier", "duplicate", "near_duplicate"}, False, bars),
    "a landscape": (5, {"outlier", "near_duplicate"}, False, landscape),
}
COPIES: dict[str, tuple[int, set[str], bool, Make]] = {
    "the same pixels, another file": (14, {"duplicate"}, True, lambda face, dice: face),
    "JPEG of quality 50": (10, {"near_duplicate"}, True, lambda face, dice: encoded(face, "JPEG", quality=50)),
    "four fifths of the size": (10, {"near_duplicate"}, True, lambda face, dice: face.resize((77, 77))),
    "cropped by 2 %": (8, {"near_duplicate"}, True, trimmed(2)),
    "cropped by 6 %": (6, {"near_duplicate"}, False, trimmed(6)),
    "mirrored": (8, {"near_duplicate"}, True, lambda face, dice: ImageOps.mirror(face)),
    "brighter": (6, {"near_duplicate"}, True, lambda face, dice: ImageEnhance.Brightness(face).enhance(1.1)),
    "with a site's name": (6, {"near_duplicate"}, False, marked),
    "turned by 4 degrees": (5, {"near_duplicate"}, False, turned),
    "of other hues": (5, {"near_duplicate"}, False, tinted),
}
HARMLESS: dict[str, tuple[int, Make]] = {
    "PNG named .jpg": (4, lambda face, dice: encoded(face)),
    "with transparency": (4, lambda face, dice: encoded(face.convert("RGBA"))),
}
"""Changes after which a face must still be kept."""


def plant(faces: list[Image.Image], folder: Path, dice: random.Random) -> dict[str, tuple[str, set[str], bool]]:
    """Write defects made from faces in the folder or, if they are not copies, from other faces.

    Args:
        faces: the first 200 are in the folder already, 300 more are not.
        folder: folder to write to.
        dice: source of random choices.

    Returns:
        By file name: the kind of the defect, the correct findings, and whether something was tuned on it.
    """
    coloured = [face for face in faces[:200] if ImageStat.Stat(face.convert("HSV")).mean[1] > 50]
    spare = faces[200:]
    planted: dict[str, tuple[str, set[str], bool]] = {}

    def put(name: str, made: bytes | Image.Image, *about: object) -> None:
        (folder / name).write_bytes(made if isinstance(made, bytes) else encoded(made))
        planted[name] = about  # pyright: ignore[reportArgumentType]

    for sort, (n, right, tuned, make) in ALONE.items():
        for i in range(n):
            put(f"planted-{len(planted):03d}-{i}.jpg", make(spare.pop().copy(), dice), sort, right, tuned)
    for sort, (n, right, tuned, make) in COPIES.items():
        for i in range(n):
            put(f"planted-{len(planted):03d}-{i}.png", make(coloured.pop().copy(), dice), sort, right, tuned)
    for sort, (n, make) in HARMLESS.items():
        for i in range(n):
            put(f"planted-{len(planted):03d}-{i}.jpg", make(spare.pop().copy(), dice), sort, {""}, True)
    film = [spare.pop() for _ in range(3)]
    moving = encoded(film[0].convert("P"), "GIF", save_all=True, append_images=film[1:])
    put("planted-film.gif", moving, "an animation", {""}, True)
    huge = encoded(Image.new("1", (30_000, 30_000)))
    put("planted-huge.png", huge, "900 million pixels in 110 KB", {"refused"}, True)
    with zipfile.ZipFile(folder / "planted.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in (("../out.png", encoded(spare.pop())), ("bomb.png", bytes(50_000_000))):
            archive.writestr(name, data)
            planted[f"planted.zip/{name}"] = "zips that do harm", {"refused"}, True
    (folder / "planted-link.png").symlink_to("/etc/hostname")
    planted["planted-link.png"] = "a link to elsewhere", {"refused"}, True
    return planted


def prepared(folder: Path, out: Path) -> dict[str, str]:
    """Run `prepare.py`; returns its findings by the file's name below the folder."""
    report = out / f"{folder.name}.html"
    command = [sys.executable, str(ROOT / "prepare.py"), str(folder), f"--out={out / 'clean'}", "--dry_run"]
    subprocess.run([*command, f"--report={report}"], check=True, stdout=subprocess.DEVNULL)
    findings = json.loads(report.with_suffix(".json").read_text())["findings"]
    return {found["file"].removeprefix(f"{folder}/"): found["kind"] for found in findings}


def table(planted: dict[str, tuple[str, set[str], bool]], found: dict[str, str]) -> list[str]:
    """Return a Markdown table of found and missed defects by kind."""
    by_sort: dict[tuple[str, bool], list[str]] = defaultdict(list)
    missed: dict[str, int] = defaultdict(int)
    for name, (sort, right, tuned) in planted.items():
        kind = found.get(name, "")
        by_sort[sort, tuned].append(kind or "kept")
        missed[sort] += kind not in right
    lines = ["| planted | tuned on | number | found as | wrong |", "| --- | --- | --- | --- | --- |"]
    for (sort, tuned), kinds in by_sort.items():
        counts = ", ".join(f"{kind} {kinds.count(kind)}" for kind in sorted(set(kinds)))
        lines.append(f"| {sort} | {'yes' if tuned else 'no'} | {len(kinds)} | {counts} | {missed[sort] or ''} |")
    wrong = sum(missed.values())
    return [*lines, "", f"{len(planted) - wrong} of {len(planted)} right."]


def main() -> None:
    """Plant, prepare and compare."""
    source, out = Path(sys.argv[1]), Path(sys.argv[2])
    dice = random.Random(0)
    with zipfile.ZipFile(source) as archive:
        names = sorted(name for name in archive.namelist() if not name.endswith("/"))
        dice.shuffle(names)
        data = [archive.read(name) for name in names[:4300]]
    mixed, clean = out / "mixed", out / "clean-1000"
    for folder, some in ((mixed, data[:3000]), (clean, data[3300:])):
        folder.mkdir(parents=True)
        for i, face in enumerate(some):
            (folder / f"{i:05d}{Path(names[0]).suffix}").write_bytes(face)
    faces = [Image.open(io.BytesIO(face)).convert("RGB") for face in [*data[:200], *data[3000:3300]]]
    planted = plant(faces, mixed, dice)
    found = prepared(mixed, out)
    print("\n".join(table(planted, found)))
    others = {name: kind for name, kind in found.items() if name not in planted}
    print(f"\nOf the 3,000 faces themselves {len(others)} were found wrong: {sorted(others.items())}")
    alarms = prepared(clean, out)
    print(f"\nOf 1,000 clean faces {len(alarms)} were found wrong: {sorted(alarms.items())}")


if __name__ == "__main__":
    main()
