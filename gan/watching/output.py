"""What is common to all that shows a run beside its status line: it keeps what it is given. No torch here."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from gan.watching.curves import Curves

if TYPE_CHECKING:
    from gan.watching.health import Diagnosis  # the server of visdom's page begins here, and needs no torch


class Output:
    """Something else that shows a run, such as a page in a browser. Its methods must return at once.

    A thread may read what is kept, under the lock.
    """

    def __init__(self) -> None:
        self.curves = Curves()
        self.pictures: dict[str, tuple[str, np.ndarray]] = {}
        self.spread: tuple[np.ndarray, np.ndarray] | None = None
        self.verdict: Diagnosis | None = None
        self.notices: list[str] = []  # lines for the user
        self.lock = threading.Lock()

    def row(self, row: Mapping[str, float]) -> list[str]:
        """Take a row of log.jsonl; returns lines for the user."""
        with self.lock:
            self.curves.add(row)
            told, self.notices = self.notices, []
        return told

    def rewind(self, step: int) -> None:
        """Forget what is newer than `step`."""
        with self.lock:
            self.curves.rewind(step)

    def picture(self, name: str, title: str, pixels: np.ndarray, step: int) -> None:
        """Take a picture (H, W, 3) uint8 of a step in place of the last one of that name."""
        with self.lock:
            self.pictures[name] = (title, pixels)

    def logits(self, real: np.ndarray, fake: np.ndarray) -> None:
        """Take the discriminator's logits of the last steps, (N,) each."""
        with self.lock:
            self.spread = real, fake

    def diagnosis(self, diagnosis: Diagnosis, step: int) -> None:
        """Take each new diagnosis of the curves."""
        with self.lock:
            self.verdict = diagnosis

    def close(self) -> list[str]:
        """Show the last state; returns lines for the user."""
        raise NotImplementedError
