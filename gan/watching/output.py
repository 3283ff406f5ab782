"""The base class of everything that displays a run beside its status line. It does not import torch."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from gan.watching.curves import Curves

if TYPE_CHECKING:
    from gan.watching.health import Diagnosis  # visdom's server process imports this module and needs no torch


class Output:
    """An additional display of a run, such as a page in a browser. Its methods must return at once.

    It stores what it is given; another thread may read that while it holds the lock.
    """

    def __init__(self) -> None:
        self.curves = Curves()
        self.pictures: dict[str, tuple[str, np.ndarray, Sequence[str]]] = {}
        self.spread: tuple[np.ndarray, np.ndarray] | None = None
        self.verdict: Diagnosis | None = None
        self.notices: list[str] = []  # lines for the user
        self.ended, self.commands = "", list[str]()
        self.lock = threading.Lock()

    def row(self, row: Mapping[str, float]) -> list[str]:
        """Add a row of log.jsonl; returns lines for the user."""
        with self.lock:
            self.curves.add(row)
            told, self.notices = self.notices, []
        return told

    def rewind(self, step: int) -> None:
        """Drop the rows after `step`."""
        with self.lock:
            self.curves.rewind(step)

    def picture(self, name: str, title: str, pixels: np.ndarray, step: int, rows: Sequence[str] = ()) -> None:
        """Store a picture (H, W, 3) uint8 of a step, and what its rows show, in place of the last one of its name."""
        with self.lock:
            self.pictures[name] = (title, pixels, rows)

    def logits(self, real: np.ndarray, fake: np.ndarray) -> None:
        """Store the discriminator's logits of the last steps, (N,) each."""
        with self.lock:
            self.spread = real, fake

    def diagnosis(self, diagnosis: Diagnosis, step: int) -> None:
        """Store the latest diagnosis of the curves."""
        with self.lock:
            self.verdict = diagnosis

    def end(self, ended: str, commands: list[str]) -> None:
        """Store how the session has ended, in a sentence, and what the user may run next."""
        with self.lock:
            self.ended, self.commands = ended, commands

    def close(self) -> list[str]:
        """Display the final state; returns lines for the user."""
        raise NotImplementedError
