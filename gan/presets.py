"""Presets, and the options that a budget or a small set of faces chooses. Typed options take precedence over all.

It does not import torch, so that a wrong option is reported at once.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from config import RELEASED, C, Preset, TrainConfig

RELEASED_NAME = Path("released")  # the released weights; write `$PWD/released` for a file or folder of that name
NAMING = ("init", "checkpoint", "fake")  # options that accept that name

# Common to the presets of the papers: the book's networks, no later techniques, and all faces.
_PLAIN: dict[str, Any] = {
    "arch": "book",
    "ndf": 64,
    "projected": False,
    "classes": False,
    "g_every": 5,
    "anneal": 0.0,
    "typical": 1.0,
    "whole": 0.0,
}
_BOOK: dict[str, Any] = {
    **_PLAIN,
    "batch_size": 256,
    "d_norm": "batch",
    "loss": "bce",
    "penalty": "none",
    "lr1": 2e-4,
    "lr2": 2e-4,
    "beta1": 0.5,
    "beta2": 0.999,
    "ema_half_life_images": 0,
    "flip": 0.0,
    "translate": 0.0,
    "holdout": 0.0,
}
_WGAN: dict[str, Any] = {**_PLAIN, "batch_size": 64, "loss": "wgan"}
PRESETS: dict[Preset, dict[str, Any]] = {
    "default": {},
    "book": _BOOK,
    "book64": {**_BOOK, "batch_size": 64, "g_every": 1},
    "book2": {**_BOOK, "loss": "rahinge", "lr1": 2e-3, "g_every": 2},
    # Arjovsky et al. 2017, algorithm 1; its RMSProp is Adam without the first moment.
    "wgan": {**_WGAN, "penalty": "none", "clip": 0.01, "d_norm": "batch", "lr1": 5e-5, "lr2": 5e-5},
    # Gulrajani et al. 2017, algorithm 1.
    "wgan-gp": {
        **_WGAN,
        "penalty": "gp",
        "penalty_weight": 10.0,
        "penalty_every": 1,
        "lr1": 1e-4,
        "lr2": 1e-4,
        "beta2": 0.9,
    },
}
"""Options by preset. A typed option takes precedence over its preset."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """Options for a budget on one class of machines; a typed option takes precedence."""

    least_images: float  # least number of images that the default networks see within the budget
    options: Mapping[str, Any]
    expect: str  # the faces to expect, in words


# Learning rates for long runs; the default ones suit short runs, see docs/experiments.md. They are for batches of 32
# and rise with the square root of the batch.
_SLOW: dict[str, Any] = {"lr1": 3e-4, "lr2": 3e-4}
PLANS = (
    Plan(least_images=0, options={}, expect="rough faces, an eye broken in about half of them"),
    Plan(least_images=20_000, options={}, expect="clear faces, an eye broken in about one of five"),
    Plan(least_images=100_000, options={}, expect="clear faces, an eye broken in about one of eight"),
    Plan(least_images=300_000, options=_SLOW, expect="better faces than two CPU cores give in an hour; not measured"),
    Plan(
        least_images=2e6,
        options={"lr1": 4e-4, "lr2": 4e-4, "fine": True, "ndf": 64, "batch_size": 64},
        expect="better faces than two CPU cores give in an hour; not measured on such a machine",
    ),
    Plan(
        least_images=1e7,
        options={"lr1": 6e-4, "lr2": 6e-4, "fine": True, "ngf": 128, "ndf": 128, "batch_size": 128},
        expect="better faces than two CPU cores give in an hour; not measured on such a machine",
    ),
)
"""Plans by what the machine can do within the budget; the last one that fits is chosen.

Expectations are for anime faces of 96 pixels, see docs/experiments.md. The rates from 300,000 images on were measured
with older networks; the faces were not assessed.
"""
MANY_FACES = 10_000  # fewest faces for which a plan's expectation is said


# Options for training old weights further, with `--init`, on at most FEW_FACES faces. With 50, 200 and 500 faces they
# lower FD by 0.8, 2.2 and 0.9 (two seeds), see docs/evaluation.md.
FEW_FACES = 1000
FEW: dict[str, Any] = {**_SLOW, "freeze": 2, "translate": 0.6, "colour": 0.5}
# Rates for few faces that are in a style which the released generator does not know, and so has to learn.
OTHER_STYLE: dict[str, Any] = {"lr1": 2e-3, "lr2": 2e-3}


def minutes_for(faces: int) -> int:
    """Return how many minutes suit a number of drawn faces, as in the README's table."""
    return 3 if faces < 100 else 10 if faces < MANY_FACES else 60


def suggested(faces: int) -> str:
    """Return the options of train.py that suit a number of drawn faces."""
    return f"--init=released --budget={minutes_for(faces)}"


def resolve(config_type: type[C], typed: Mapping[str, Any]) -> C:
    """Build a config from typed options by name, which override those of the preset, which override the defaults.

    Raises:
        ConfigError: a value is out of range or does not fit another one.
    """
    typed = {**typed, **{name: RELEASED for name in NAMING if typed.get(name) == RELEASED_NAME}}
    if config_type is not TrainConfig:
        return config_type(**typed)
    of_the_book = typed.get("netg_path") or typed.get("netd_path")
    preset: Preset = typed.get("preset", "book" if of_the_book else "default")
    values = {"preset": preset, **PRESETS[preset], **typed}
    return config_type(**values)
