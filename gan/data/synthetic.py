"""Synthetic anime faces, drawn by rules with Pillow: the built-in dataset for the demo, the tests and a first try.

A face is a pure function of its seed and size. The code uses only arithmetic that IEEE 754 defines exactly and passes
integers to Pillow, so that a seed gives the same pixels on every machine.

Coordinates are those of a 96-pixel picture with x = 0 in the middle and y pointing down; they are scaled last.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from PIL import Image, ImageDraw

Color = tuple[int, int, int]

FACES = 10_000  # size of the built-in dataset: seeds 0 to 9,999
VERSION = 1  # incremented whenever the picture of a seed changes

WHITE, INK, DUSK = (255, 255, 255), (44, 26, 48), (70, 34, 92)

# Hair colours, and the eye colours that match each.
HAIR: dict[str, tuple[Color, tuple[str, ...]]] = {
    "black": ((62, 54, 70), ("brown", "red", "blue", "violet", "amber")),
    "brown": ((128, 82, 64), ("brown", "green", "amber", "blue")),
    "chestnut": ((168, 104, 74), ("green", "brown", "amber", "teal")),
    "blonde": ((247, 217, 128), ("blue", "green", "red", "violet")),
    "orange": ((240, 152, 84), ("amber", "green", "blue", "brown")),
    "red": ((205, 74, 72), ("red", "amber", "green", "violet")),
    "pink": ((249, 172, 192), ("pink", "blue", "teal", "violet", "green")),
    "violet": ((150, 118, 204), ("violet", "amber", "pink", "blue")),
    "lavender": ((206, 186, 236), ("violet", "blue", "pink", "red")),
    "navy": ((72, 84, 142), ("blue", "violet", "amber", "teal")),
    "blue": ((102, 152, 220), ("blue", "red", "amber", "pink")),
    "sky": ((168, 216, 240), ("blue", "teal", "red", "violet")),
    "teal": ((92, 186, 178), ("teal", "pink", "amber", "violet")),
    "green": ((140, 196, 124), ("green", "amber", "brown", "pink")),
    "silver": ((214, 216, 228), ("red", "blue", "violet", "teal", "amber")),
}


def _colours(table: str) -> dict[str, Color]:
    """Parse a table of named colours in hexadecimal, such as "red d63a46, pink e86096"."""
    pairs = (entry.split() for entry in table.split(","))
    return {name: (red, green, blue) for name, code in pairs for red, green, blue in [bytes.fromhex(code)]}


EYES = _colours(
    "brown 96583c, amber e8a030, red d63a46, pink e86096, violet 905cd6, blue 407ce0, teal 28acb2, green 48a65c"
)
SKIN = _colours("porcelain fff0e6, fair ffe6d4, peach fcdac0, tan e8b892, brown ba8464")
SKIN_WEIGHTS = (4, 6, 4, 2, 1)
CLOTHES = _colours(
    "navy 424e80, red ce4e54, cream f6ecd6, mint a0d4be, grey 808494, violet 8e74b6, yellow f6cc6e, white fafafc"
)
BACKGROUNDS = _colours(
    "sky bedef6, rose fcd6de, mint cef0de, lemon fef2c4, lilac ded4f6, sand f0e2ce, white faf9f7, dusk 8c92be, "
    "coral fac4b0"
)
# Half-width at the cheeks, y of the chin, half-width at the jaw, half-width of the chin.
FACE_SHAPES = {"round": (27.5, 80, 17.5, 9.0), "oval": (26, 83, 15.0, 7.0), "pointed": (26.5, 85, 13.5, 4.0)}
# Height of the upper lid, upward slant to the outer corner, depth of the lower lid.
EYE_SHAPES = {
    "round": (1.0, 0.00, 0.92),
    "upturned": (0.92, 0.16, 0.80),
    "drooping": (0.94, -0.16, 0.88),
    "narrow": (0.74, 0.08, 0.72),
    "tall": (1.14, 0.02, 0.98),
}
BANGS = ("straight", "swept", "parted", "spiky", "curtain", "centre lock")
BACKS = ("short", "bob", "long", "wavy", "twin tails", "side tail", "buns", "braids")
MOUTHS = ("smile", "open smile", "small", "cat", "grin", "flat", "surprised")
GAZES = ("open", "open", "open", "open", "open", "open", "open", "open", "laughing", "wink")
ORNAMENTS = ("none", "none", "ribbon", "bow", "clips", "band", "flower", "cat ears")
COLLARS = ("sailor", "shirt", "ribbon", "round", "hood")
PATTERNS = ("plain", "gradient", "gradient", "dots", "stripes", "halo", "rays")


class Attributes:
    """The attributes of a synthetic face, with matching colours of hair and eyes: the labels of the dataset."""

    def __init__(self, dice: Dice) -> None:
        self.hair: str = dice.pick(tuple(HAIR))
        self.eyes: str = dice.pick(HAIR[self.hair][1])
        self.skin: str = dice.pick(tuple(SKIN), SKIN_WEIGHTS)
        self.bangs: str = dice.pick(BANGS)
        self.back: str = dice.pick(BACKS, (3, 3, 4, 3, 3, 2, 2, 2))
        self.face: str = dice.pick(tuple(FACE_SHAPES))
        self.eye_shape: str = dice.pick(tuple(EYE_SHAPES))
        self.gaze: str = dice.pick(GAZES)
        self.mouth: str = dice.pick(MOUTHS, (4, 4, 3, 2, 2, 2, 1))
        self.glasses: bool = dice.chance(0.12)
        self.blush: bool = dice.chance(0.6)
        self.ornament: str = dice.pick(ORNAMENTS)
        self.collar: str = dice.pick(COLLARS)
        self.clothes: str = dice.pick(tuple(CLOTHES))
        self.background: str = dice.pick(tuple(BACKGROUNDS))
        self.pattern: str = dice.pick(PATTERNS)


def draw(seed: int, size: int = 96) -> tuple[np.ndarray, Attributes]:
    """Draw the synthetic face of a seed, at least 0. Return pixels (size, size, 3), uint8, and the attributes."""
    dice = Dice(seed)
    shown = Attributes(dice)
    return Portrait(shown, dice, size).picture(), shown


class Dice:
    """Random choices that rely only on `random.Random.random`, the one method that Python promises not to change."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed).random

    def between(self, least: float, greatest: float) -> float:
        """Return a uniformly distributed number from an interval."""
        return least + (greatest - least) * self.random()

    def chance(self, probability: float) -> bool:
        """Return True with the given probability."""
        return self.random() < probability

    def pick(self, options: Sequence[Any], weights: Sequence[float] | None = None) -> Any:
        """Return one of the options, with probabilities proportional to the weights."""
        left = self.random() * (sum(weights) if weights else len(options))
        for option, weight in zip(options, weights or [1] * len(options), strict=True):
            left -= weight
            if left < 0:
                return option
        return options[-1]


def mix(a: Color, b: Color, share: float) -> Color:
    """Return the linear blend of two colours; `share` is the weight of `b`."""
    red, green, blue = (int(x + (y - x) * share + 0.5) for x, y in zip(a, b, strict=True))
    return red, green, blue


T = np.arange(6)[:, None] / 6
# Weights of four neighbouring points at six positions on a segment of a Catmull-Rom spline (1974).
BASIS = (
    0.5 * (-T + 2 * T * T - T * T * T),
    0.5 * (2 - 5 * T * T + 3 * T * T * T),
    0.5 * (T + 4 * T * T - 3 * T * T * T),
    0.5 * (-T * T + T * T * T),
)
ARC = np.array([(1, 0), (0.7071, 0.7071), (0, 1), (-0.7071, 0.7071)])


def curve(points: ArrayLike, closed: bool = False) -> np.ndarray:
    """Return a smooth curve (M, 2) through points (N, 2)."""
    p = np.asarray(points, dtype=float)
    ends = (p[-1:], p[:2]) if closed else (2 * p[:1] - p[1:2], 2 * p[-1:] - p[-2:-1])
    q = np.concatenate([ends[0], p, ends[1]])
    before, here, there, after = (q[i : len(q) - 3 + i, None] for i in range(4))
    path = (before * BASIS[0] + here * BASIS[1] + there * BASIS[2] + after * BASIS[3]).reshape(-1, 2)
    return path if closed else np.concatenate([path, p[-1:]])


def moved(path: np.ndarray, x: float, y: float) -> np.ndarray:
    """Translate a path (N, 2) or a point (2,)."""
    return path + np.array((x, y))


def mirrored(right: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the left half of a symmetric outline, in reverse order."""
    return [(-x, y) for x, y in reversed(right)]


def ellipse(x: float, y: float, rx: float, ry: float) -> np.ndarray:
    """Return the outline (M, 2) of an ellipse."""
    return curve(moved(np.concatenate([ARC, -ARC]) * (rx, ry), x, y), closed=True)


def brush(points: ArrayLike, width: float, start: float = 0.0, end: float = 0.0) -> np.ndarray:
    """Return the outline of a brush stroke through points (N, 2).

    It is `width` wide in the middle; `start` and `end` are the widths at its ends, as fractions of that.
    """
    path = curve(points)
    along = np.gradient(path, axis=0)
    along /= np.sqrt((along * along).sum(1, keepdims=True)) + 1e-9
    t = (np.arange(len(path)) / (len(path) - 1))[:, None]
    swell = 4 * t * (1 - t)
    half = 0.5 * width * (swell + (1 - swell) * np.where(t < 0.5, start, end))
    across = along[:, ::-1] * (-1, 1) * half
    return np.concatenate([path + across, (path - across)[::-1]])


class Portrait:
    """A face that is painted from back to front. The dice decide everything that the attributes leave open."""

    def __init__(self, shown: Attributes, dice: Dice, size: int) -> None:
        self.shown, self.dice, self.size = shown, dice, size
        self.finer = 4 if size <= 96 else 2  # supersampling, for smooth edges
        self.canvas = Image.new("RGB", (size * self.finer, size * self.finer), BACKGROUNDS[shown.background])
        self.opaque, self.glaze = ImageDraw.Draw(self.canvas), ImageDraw.Draw(self.canvas, "RGBA")

        self.scale = dice.between(0.88, 1.02)
        tilt = dice.between(-0.045, 0.045)  # tangent of half the angle, so that no sine is needed
        self.cosine, self.sine = (1 - tilt * tilt) / (1 + tilt * tilt), 2 * tilt / (1 + tilt * tilt)
        self.shift = np.array([48 + dice.between(-3, 3), 52 + dice.between(-2, 3)])
        self.turn = dice.between(-3, 3)  # horizontal offset of the features from the middle of the head
        self.side = dice.pick((-1, 1))  # side of everything that is on one side only

        self.hair = mix(HAIR[shown.hair][0], (dice.pick(range(256)),) * 3, 0.06)
        self.hair_dark = mix(self.hair, DUSK, 0.30)
        self.hair_line = mix(self.hair, INK, 0.62)
        self.hair_light = mix(self.hair, WHITE, 0.5)
        self.skin = SKIN[shown.skin]
        self.skin_dark = mix(self.skin, (206, 104, 110), 0.30)
        self.skin_line = mix(self.skin, (112, 44, 50), 0.62)
        self.cloth = CLOTHES[shown.clothes]
        self.accent = CLOTHES[dice.pick([name for name in CLOTHES if name != shown.clothes])]
        self.wide, self.chin, self.jaw, self.tip = FACE_SHAPES[shown.face]
        self.brows: list[np.ndarray] = []  # drawn late, over the hair

    def picture(self) -> np.ndarray:
        """Paint the whole face: pixels (size, size, 3), uint8."""
        self.backdrop()
        self.back_hair()
        self.body()
        self.head()
        edge = self.fringe()
        self.fill(moved(np.concatenate([self.crown(), edge]), self.turn * 0.3, 2.8), self.skin_dark)
        self.features()
        self.both(self.eye)
        if self.shown.glasses:
            self.glasses()
        self.front_hair(edge)
        self.ornament()
        return np.asarray(self.canvas.reduce(self.finer))

    # Conversion of points to pixels.

    def place(self, path: ArrayLike) -> list[int]:
        """Convert points in head coordinates to whole pixels of the canvas, x and y alternating."""
        p = np.asarray(path, dtype=float)
        x, y = p[:, 0] * self.scale, (p[:, 1] - 52) * self.scale
        turned = np.stack([self.cosine * x - self.sine * y, self.sine * x + self.cosine * y], 1) + self.shift
        return np.rint(turned * (self.size * self.finer / 96)).astype(int).ravel().tolist()

    def fill(self, path: ArrayLike, color: Color, line: Color | None = None, width: float = 0.8) -> None:
        """Fill an outline, and stroke it if a line colour is given."""
        points = self.place(path)
        self.opaque.polygon(points, fill=color)
        if line is not None:
            self.opaque.line(points + points[:2], fill=line, width=self.pixels(width))

    def tint(self, path: ArrayLike, color: Color, share: float) -> None:
        """Fill an outline with a translucent colour; `share` is its opacity."""
        self.glaze.polygon(self.place(path), fill=(*color, int(255 * share)))

    def trace(self, path: ArrayLike, color: Color, width: float) -> None:
        """Draw a line of constant width."""
        self.opaque.line(self.place(path), fill=color, width=self.pixels(width))

    def pixels(self, width: float) -> int:
        """Convert a width in head coordinates to pixels of the canvas, at least one."""
        return max(1, int(width * self.scale * self.size * self.finer / 96 + 0.5))

    def both(self, paint: Callable[[float], None]) -> None:
        """Paint something on the left and on the right."""
        for side in (-1.0, 1.0):
            paint(side)

    # The parts, from back to front.

    def backdrop(self) -> None:
        """Paint the background with its pattern."""
        base = BACKGROUNDS[self.shown.background]
        other = BACKGROUNDS[self.dice.pick([name for name in BACKGROUNDS if name != self.shown.background])]
        soft, unit, full = mix(base, WHITE, 0.45), self.size * self.finer / 96, self.size * self.finer
        if self.shown.pattern == "gradient":
            for i in range(32):
                self.opaque.rectangle((0, full * i // 32, full, full * (i + 1) // 32), fill=mix(base, other, i / 31))
        elif self.shown.pattern == "dots":
            for row in range(8):
                for column in range(8):
                    x, y = (column * 13 + row % 2 * 6.5) * unit, (row * 13 + 2) * unit
                    self.opaque.ellipse((int(x), int(y), int(x + 5 * unit), int(y + 5 * unit)), fill=soft)
        elif self.shown.pattern == "stripes":
            for i in range(-8, 8):
                x = i * 14 * unit
                corners = (x, 0, x + 7 * unit, 0, x + 7 * unit + full, full, x + full, full)
                self.opaque.polygon([int(c) for c in corners], fill=soft)
        elif self.shown.pattern == "halo":
            self.fill(ellipse(0, 42, 50, 50), mix(base, other, 0.5))
            self.fill(ellipse(0, 42, 44, 44), soft)
        elif self.shown.pattern == "rays":
            rim = ellipse(0, 50, 110, 110)
            for i in range(0, len(rim), 4):
                self.fill([(0, 50), rim[i], rim[(i + 2) % len(rim)]], soft)

    def back_hair(self) -> None:
        """Paint the hair behind the head."""
        w, sway = self.wide, self.dice.between(-1.5, 1.5)
        style, swing = self.shown.back, 1.9 if self.shown.back == "wavy" else 0.0
        if style == "short":
            right = [(w + 6, 34), (w + 8, 52), (w + 5, 64), (w + 7, 71), (w - 1, 70), (w - 3, 77), (w - 9, 74)]
        elif style == "bob":
            right = [(w + 6, 34), (w + 10, 58), (w + 10, 74), (w + 5, 84), (w - 6, 86), (8, 82)]
        elif style in ("long", "wavy"):
            waves = [(w + 6 + (swing if i % 2 else -swing) + i * 0.8, 34 + 15 * i) for i in range(5)]
            right = [(w + 2, 22), *waves, (10, 104)]
        else:
            right = [(w + 5, 34), (w + 4, 58), (w - 4, 72), (6, 76)]
        right = [(18, 10), *right]
        self.fill(curve([(0, 6), *right, *mirrored(right)], closed=True), self.hair_dark, self.hair_line)
        if style in ("long", "wavy"):
            for x in (w + 1, w + 5):
                self.both(lambda side, x=x: self.strand([(side * x, 48), (side * (x + swing), 70), (side * x, 100)]))
        elif style == "twin tails":
            self.both(lambda side: self.tail(side, sway))
        elif style == "side tail":
            self.tail(self.side, sway)
        elif style == "buns":
            self.both(self.bun)

    def tail(self, side: float, sway: float) -> None:
        """Paint a tail of hair that hangs from the side of the head."""
        out = [(26, 22), (37, 17), (46, 30), (49 + sway, 56), (45, 84), (38 + sway, 106)]
        back = [(33, 92), (35, 66), (33, 42)]
        self.fill(curve([(side * x, y) for x, y in out + back], closed=True), self.hair, self.hair_line)
        for x in (38.0, 43.0):
            self.strand([(side * (x - 6), 26), (side * x, 42), (side * (x - 1 + sway), 84)])
        self.tint(curve([(side * 35, 30), (side * 40, 29), (side * 44, 38), (side * 38, 38)], True), WHITE, 0.4)

    def bun(self, side: float) -> None:
        """Paint a bun of hair on top of the head."""
        self.fill(ellipse(side * 22, 9, 10.5, 10), self.hair, self.hair_line)
        self.strand([(side * 15, 12), (side * 22, 6), (side * 29, 11)])
        self.tint(ellipse(side * 24, 4.5, 4, 2.2), WHITE, 0.4)

    def braid(self, side: float) -> None:
        """Paint a braid that falls over the shoulder."""
        for i in range(5):
            x, y = self.wide + 2 + (i % 2) * 1.6 + i * 0.4, 70 + i * 7.0
            self.fill(ellipse(side * x, y, 6.2 - 0.3 * i, 5.2), self.hair, self.hair_line)
            self.strand([(side * (x - 3), y - 3), (side * x, y), (side * (x + 3), y + 3)])

    def strand(self, points: ArrayLike) -> None:
        """Paint a thin shadow between two locks of hair."""
        self.fill(brush(points, 1.2, 0.6), self.hair_line)

    def body(self) -> None:
        """Paint the neck, the shoulders and the collar."""
        y = self.chin + 6
        line, accent = mix(self.cloth, INK, 0.5), self.accent
        shoulders = [(-56, 112), (-42, y + 6), (-22, y + 1), (0, y), (22, y + 1), (42, y + 6), (56, 112)]
        self.fill(curve(shoulders), self.cloth, line)
        self.fill([(-8, 66), (8, 66), (8.5, y + 2), (0, y + 8), (-8.5, y + 2)], self.skin_dark)
        if self.shown.collar == "sailor":
            self.both(lambda s: self.fill([(s * 8, y - 2), (s * 27, y + 4), (s * 24, 116), (0, y + 12)], accent, line))
        elif self.shown.collar == "shirt":
            self.both(lambda s: self.fill([(s * 8, y - 3), (s * 15, y + 6), (s * 5, y + 10), (0, y + 5)], WHITE, line))
        elif self.shown.collar == "ribbon":
            self.both(lambda s: self.fill([(0, y + 7), (s * 12, y + 2), (s * 13, y + 12)], accent, line))
            self.fill(ellipse(0, y + 7, 3, 3), accent, line)
        elif self.shown.collar == "round":
            self.trace(curve([(-9, y), (-7, y + 6), (0, y + 9), (7, y + 6), (9, y)]), accent, 3)
        else:
            hood = np.array([(7, y - 5), (24, y - 4), (22, y + 9), (3, y + 12)])
            self.both(lambda s: self.fill(curve(hood * (s, 1), True), self.cloth, line))

    def head(self) -> None:
        """Paint the ears and the face."""
        w, c = self.wide, self.chin
        if self.shown.back in ("buns", "side tail", "short", "twin tails"):
            self.both(lambda s: self.fill(ellipse(s * (w + 0.5), 60, 4.5, 7), self.skin, self.skin_line))
            inner = np.array([(w + 2, 56), (w + 3, 60), (w, 63)])
            self.both(lambda s: self.trace(curve(inner * (s, 1)), self.skin_dark, 0.9))
        right = [(w - 3, 30), (w, 48), (w - 1, 60), (self.jaw + 4, c - 9), (self.tip, c - 1.5)]
        outline = [(0, 14), *right, (self.turn * 0.5, c), *mirrored(right)]
        self.fill(curve(outline, closed=True), self.skin, self.skin_line, 0.9)

    def features(self) -> None:
        """Paint the blush, the nose and the mouth."""
        t, c = self.turn, self.chin
        if self.shown.blush:
            for g, share, s in ((1.0, 0.16, -1.0), (1.0, 0.16, 1.0), (0.65, 0.2, -1.0), (0.65, 0.2, 1.0)):
                self.tint(ellipse(s * 17 + t, 68.5, 6.5 * g, 3.6 * g), (246, 96, 110), share)
        nose = [(t * 1.5 - 0.9, 66.6), (t * 1.5 + 0.4, 68), (t * 1.5 + 0.9, 67.4)]
        self.fill(brush(nose, 1.0, 0.3, 0.3), self.skin_line)
        x, y = t * 1.2, (68 + c) / 2 - 0.6
        kind, red = self.shown.mouth, mix(self.skin, (196, 52, 66), 0.75)
        if kind == "smile":
            self.fill(brush([(x - 4.5, y - 0.8), (x, y + 1), (x + 4.5, y - 0.8)], 1.3, 0.5, 0.5), self.skin_line)
        elif kind in ("open smile", "grin"):
            deep = 4.6 if kind == "open smile" else 3.2
            corner, low = y - 1.2, y + deep * 0.7
            lips = [(x + 5, corner), (x + 3, low), (x, y + deep), (x - 3, low), (x - 5, corner)]
            self.fill(curve(lips), (172, 52, 64), self.skin_line)
            if kind == "grin":
                self.fill([(x - 4, y - 0.8), (x + 4, y - 0.8), (x + 3.2, y + 0.6), (x - 3.2, y + 0.6)], WHITE)
            else:
                self.fill(ellipse(x, y + deep - 1.3, 2.4, 1.1), (240, 128, 132))
        elif kind == "cat":
            wave = [(x - 5, y - 0.6), (x - 2.5, y + 1.2), (x, y - 0.5), (x + 2.5, y + 1.2), (x + 5, y - 0.6)]
            self.fill(brush(wave, 1.2, 0.6, 0.6), self.skin_line)
        elif kind == "surprised":
            self.fill(ellipse(x, y + 1, 2.2, 2.8), (172, 52, 64), self.skin_line)
        else:
            half = 3.6 if kind == "flat" else 2.0
            self.fill(brush([(x - half, y + 0.3), (x, y), (x + half, y + 0.3)], 1.3, 0.5, 0.5), red)

    def eye(self, side: float) -> None:
        """Paint an eye: the white, iris, pupil, lights and lashes, or a closed lid. Also shape its eyebrow."""
        height, slant, depth = EYE_SHAPES[self.shown.eye_shape]
        across = 8.2 * (1 - 0.035 * side * self.turn)  # the eye on the far side is narrower
        x, y = side * 14.6 + self.turn, 59.5
        self.brow(x, y - 15.5, side, slant)
        if self.shown.gaze == "laughing" or (self.shown.gaze == "wink" and side == self.side):
            lid = [(x - 7.5, y + 2.5), (x - 4, y - 1.5), (x, y - 2.8), (x + 4, y - 1.5), (x + 7.5, y + 2.5)]
            self.fill(brush(lid, 2.4, 0.5, 0.5), mix(self.hair_line, INK, 0.5))
            return

        def outline(u: np.ndarray, up: bool) -> np.ndarray:  # u: -1 at the nose, 1 at the temple
            u = np.clip(u, -1, 1)
            bow = (1 - u * u * np.abs(u)) * (10.4 * height if up else -7.6 * depth)
            return y - bow - slant * 7 * u

        def part(dx: float, dy: float, rx: float, ry: float, color: Color) -> None:  # of the iris, clipped by the lids
            p = ellipse(x + dx, y + dy, rx, ry)
            u = (p[:, 0] - x) * side / across
            p[:, 1] = np.clip(p[:, 1], outline(u, True), outline(u, False))
            self.fill(p, color)

        u = np.arange(-8, 9) / 8
        above, below = (np.stack([x + side * across * u, outline(u, up)], 1) for up in (True, False))
        self.fill(np.concatenate([above, below[::-1]]), (253, 252, 254))
        self.fill(np.concatenate([above, moved(above[::-1], 0, 2.6)]), (214, 212, 232))

        color = EYES[self.shown.eyes]
        dark, light = mix(color, INK, 0.62), mix(color, WHITE, 0.52)
        look = self.turn * 0.35
        part(look, -0.6, 5.9, 9.4, dark)
        part(look, 0.4, 5.0, 8.4, color)
        part(look, 4.6, 3.8, 4.0, light)
        part(look, -5.4, 5.6, 4.4, dark)
        part(look, -0.6, 2.3, 3.7, mix(color, INK, 0.85))
        part(look - 2.2, -3.6, 2.3, 2.8, WHITE)
        part(look + 2.4, 4.0, 1.1, 1.2, WHITE)

        lash = mix(self.hair_line, INK, 0.7)
        wing = (x + side * (across + 2.2), above[-1, 1] - 1.2 - 10 * max(0.0, slant))
        upper = np.concatenate([above[::4], [wing]])
        upper[0] += (side * 0.6, 0.6)
        self.fill(brush(moved(upper, 0, -0.6), 3.3, 0.25, 0.1), lash)
        tip = above[13]
        self.fill([tip, moved(tip, side * 4.2, -2.6), moved(tip, side * 1.0, 2.0)], lash)
        self.fill(brush(moved(below[6:16:3], 0, 0.2), 1.1, 0.1, 0.6), mix(lash, self.skin, 0.25))
        self.fill(brush(moved(above[3:15:3], 0, -3.6), 0.8), mix(self.skin_line, self.skin, 0.3))

    def brow(self, x: float, y: float, side: float, slant: float) -> None:
        """Shape an eyebrow; `front_hair` paints it."""
        lift = {"surprised": -1.5, "grin": 0.5, "flat": 0.8}.get(self.shown.mouth, 0.0) + self.turn * 0.1
        inner, outer = (x - side * 6, y + 1.4 + slant * 5 + lift), (x + side * 8, y + 1.8 - slant * 5 + lift)
        self.brows.append(brush([inner, (x + side * 1, y - 0.6 + lift), outer], 1.7, 0.7, 0.2))

    def crown(self) -> np.ndarray:
        """Return the outer edge of the hair in front, from the left ear over the top to the right ear."""
        w = self.wide
        right = [(15, 8.5), (w - 1, 21), (w + 4, 42), (w + 2.5, 60)]
        return curve([*mirrored(right), (0, 5.5), *right])

    def fringe(self) -> np.ndarray:
        """Return the lower edge of the hair in front, from the right ear to the left ear."""
        w, s, wild = self.wide, float(self.side), self.dice.between
        style = self.shown.bangs
        end = (w - 2.0, 56.0)
        if style == "straight":
            xs = [-21, -14, -7, 0, 7, 14, 21]
            tips = [(x + wild(-1, 1), 48 + wild(-0.8, 0.8) + abs(x) * 0.08, 0.0) for x in xs]
            notches = [(x + 3.5, 45.5 + wild(-1, 0.5)) for x in xs[:-1]]
        elif style == "swept":
            tips = [(-22 * s, 53, -1), (-14 * s, 45, -1), (3 * s, 48, 1), (12 * s, 51, 1), (20 * s, 54, 1)]
            notches = [(-17 * s, 41), (-9 * s, 27), (6 * s, 41), (14 * s, 44)]
        elif style == "parted":
            tips = [(-22, 56, -1), (-16, 47, -1), (16, 47, 1), (22, 56, 1)]
            notches = [(-18, 41), (s * 2, 22), (18, 41)]
        elif style == "spiky":
            xs = [-20, -11, -2, 8, 18]
            tips = [(x + wild(-2, 2), 51 + wild(-4, 3), s) for x in xs]
            notches = [(x + 4.5 + wild(-1, 1), 37 + wild(-4, 3)) for x in xs[:-1]]
        elif style == "curtain":
            tips = [(-21, 60, -1), (-12, 52, -1), (-5, 42, -1), (5, 42, 1), (12, 52, 1), (21, 60, 1)]
            notches = [(-15, 46), (-8, 36), (0, 25), (8, 36), (15, 46)]
        else:
            tips = [(-21, 54, -1), (-12, 49, -1), (s * 2.5 + self.turn, 60, s), (12, 49, 1), (21, 54, 1)]
            notches = [(-15, 42), (-5, 36), (6, 36), (15, 42)]
        lean = self.turn * 0.5
        tips = sorted((x + lean, y, bend) for x, y, bend in tips)
        self.notches = sorted((x + lean, y) for x, y in notches)
        bounds = [(-end[0], end[1] - 12), *self.notches, (end[0], end[1] - 12)]
        path: list[np.ndarray] = [np.array([(-end[0], end[1])])]
        for (nx, ny), (x, y, bend), (mx, my) in zip(bounds, tips, bounds[1:], strict=False):
            path.append(curve([(nx, ny), ((nx + x) / 2 - 1.4 * bend - 0.5, (ny + y) / 2 + 1), (x, y)]))
            path.append(curve([(x, y), ((mx + x) / 2 - 1.4 * bend + 0.5, (my + y) / 2 + 1), (mx, my)]))
        path.append(np.array([end]))
        return np.concatenate(path)[::-1]

    def front_hair(self, edge: np.ndarray) -> None:
        """Paint the fringe, the side locks, the shine, and the brows, which show through the hair."""
        w, lower = self.wide, self.dice.between(66, 90)
        if self.shown.back == "braids":
            self.both(self.braid)
        elif self.shown.back != "short" or self.dice.chance(0.5):
            for s in (-1, 1):
                lock = [(s * (w - 5), 36), (s * (w - 4.5), 56), (s * (w - 2), lower)]
                back = [(s * (w + 4), 62), (s * (w + 4), 40)]
                self.fill(np.concatenate([curve(lock), curve([lock[-1], *back])]), self.hair, self.hair_line)
        self.fill(np.concatenate([self.crown(), edge]), self.hair, self.hair_line)
        root = (self.dice.between(-4, 4) + self.turn * 0.4, 8.0)
        for x, y in self.notches:
            top = (x + (root[0] - x) * 0.62, y + (root[1] - y) * 0.62)
            middle = x + (root[0] - x) * 0.25, y - (y - root[1]) * 0.33
            self.fill(brush([(x, y), middle, top], 1.3, 0.9), self.hair_dark)
        self.shine()
        if self.dice.chance(0.3):
            s = self.side
            self.fill(brush([(0, 8), (s * 2, -1), (s * 9, -4), (s * 13, 1)], 3.0, 0.9), self.hair, self.hair_line)
        for path in self.brows:
            self.fill(path, mix(self.hair_line, INK, 0.25))

    def shine(self) -> None:
        """Paint the highlight on the hair, a broken ring."""
        bare = 9.0 if self.shown.bangs in ("parted", "curtain", "swept") else 0.0
        for left, right in ((-22.0, -15.0), (-13.0, 3.0), (6.0, 12.0), (16.0, 22.0)):
            if bare and abs((left + right) / 2) < bare:
                continue
            x = left + (right - left) * np.arange(9) / 8
            y = 21 + (x / 22) * (x / 22) * 9
            ragged = np.where(np.arange(9) % 2 == 0, 1.2, 4.4)
            ragged[[0, -1]] = 0.3
            self.fill(np.concatenate([np.stack([x, y], 1), np.stack([x, y + ragged], 1)[::-1]]), self.hair_light)

    def ornament(self) -> None:
        """Paint the ornament in the hair."""
        kind, s, color = self.shown.ornament, self.side, self.accent
        line = mix(color, INK, 0.55)
        if kind == "ribbon":
            self.both(lambda t: self.bow(t * (self.wide - 1), 20, 0.75, color, line))
        elif kind == "bow":
            self.bow(s * 17, 11, 1.25, color, line)
        elif kind == "clips":
            for x, y in ((17, 40), (19, 35)):
                clip = [(s * x, y), (s * (x + 4), y + 1), (s * (x + 8), y + 3.5)]
                self.fill(brush(clip, 2.4, 0.8, 0.8), color, line, 0.6)
        elif kind == "band":
            w = self.wide
            band = [(-w - 2, 36), (-w + 5, 19), (-11, 10.5), (0, 8.8), (11, 10.5), (w - 5, 19), (w + 2, 36)]
            self.fill(brush(band, 4.6, 0.9, 0.9), color, line, 0.6)
        elif kind == "flower":
            x, y = s * (self.wide - 4), 27
            for dx, dy in ((0, -4.2), (4, -1.3), (2.5, 3.4), (-2.5, 3.4), (-4, -1.3)):
                self.fill(ellipse(x + dx, y + dy, 3.5, 3.5), mix(color, WHITE, 0.25), line, 0.6)
            self.fill(ellipse(x, y, 2.2, 2.2), (250, 208, 96))
        elif kind == "cat ears":
            for t in (-1, 1):
                ear = [(t * 9, 9), (t * 18, -7), (t * 23, -10), (t * 27, 2), (t * 27, 22)]
                self.fill(curve(ear), self.hair, self.hair_line)
                self.fill(curve([(t * 14, 7), (t * 20, -3), (t * 23, 0), (t * 24, 12)]), (250, 190, 192))

    def bow(self, x: float, y: float, grow: float, color: Color, line: Color) -> None:
        """Paint a bow of ribbon."""
        for t in (-1, 1):
            wing = np.array([(0, 0), (t * 6, -6), (t * 10, -3), (t * 10, 4), (t * 5, 4)]) * grow
            self.fill(curve(moved(wing, x, y), closed=True), color, line)
        self.fill(ellipse(x, y, 2.6 * grow, 3 * grow), mix(color, WHITE, 0.25), line)

    def glasses(self) -> None:
        """Paint glasses."""
        frame = self.dice.pick(((70, 60, 76), (190, 60, 70), (90, 110, 170)))
        tall = self.dice.pick((9.5, 11.0))
        for s in (-1, 1):
            x = s * 14.6 + self.turn
            upper = [(x - 11, 60), (x - 9, 60 - tall), (x, 59 - tall), (x + 9, 60 - tall)]
            rim = curve([*upper, (x + 11, 60), (x + 8, 60 + tall), (x, 61 + tall), (x - 8, 60 + tall)], True)
            self.tint(rim, WHITE, 0.16)
            self.trace(np.concatenate([rim, rim[:1]]), frame, 1.2)
            self.trace([(x + s * 11, 59), (s * (self.wide + 2), 57)], frame, 1.2)
        self.trace(curve([(self.turn - 3.8, 59), (self.turn, 57.5), (self.turn + 3.8, 59)]), frame, 1.2)
