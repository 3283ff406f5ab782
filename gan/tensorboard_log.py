"""A run for TensorBoard: the columns of log.jsonl under their names, the pictures, the options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from config import ConfigError


def writer_class() -> Callable[..., Any]:
    """What writes event files: torch's SummaryWriter.

    Raises:
        ConfigError: the package tensorboard is not installed.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ConfigError(
            "--tensorboard: the package tensorboard is not installed; pip install -r requirements-extra.txt"
        ) from error
    return SummaryWriter


class TensorBoardLog:
    """Writes event files into a folder; what earlier sittings wrote there stays.

    Args:
        folder: for the event files.
        options: shown as text.
    """

    def __init__(self, folder: Path, options: Mapping[str, Any]) -> None:
        self.new_writer = writer_class()
        self.folder, self.options = folder, options
        self.notices: list[str] = []
        self.writer: Any = None
        self.begun = any(folder.glob("events.*"))
        self.last = 0
        """The newest step that the files have."""

    def rewind(self, step: int) -> None:
        """Begin a new file, which takes back what is newer than `step`."""
        self.close()
        options = {}
        if self.begun:
            self.last, options = step, {"purge_step": step + 1}
        try:
            self.writer = self.new_writer(str(self.folder), **options)
        except OSError as error:
            self._give_up(error)
        if not self.begun:
            rows = "".join(f"| {name} | {value} |\n" for name, value in self.options.items() if value is not None)
            self._write("add_text", "options", f"| option | value |\n| --- | --- |\n{rows}", 0)
        self.begun = True

    def row(self, row: Mapping[str, float]) -> list[str]:
        """Take a row of log.jsonl, unless the files have it from an earlier sitting; gives back what to tell."""
        step = int(row["step"])
        if step > self.last:
            self.last = step
            for name in row.keys() - {"step"}:
                self._write("add_scalar", name, row[name], step)
        told, self.notices = self.notices, []
        return told

    def picture(self, name: str, title: str, pixels: np.ndarray, step: int) -> None:
        """Take a picture (H, W, 3) uint8."""
        self._write("add_image", name, pixels, step, dataformats="HWC")

    def close(self) -> None:
        """Write all there is."""
        self._write("close")
        self.writer = None

    def _write(self, method: str, *values: Any, **options: Any) -> None:
        """Call a method of the writer; where it fails, as on a full disk, write no more."""
        if self.writer is None:
            return
        try:
            getattr(self.writer, method)(*values, **options)
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        self.writer = None
        self.notices.append(f"could not write {self.folder}: {error}; training goes on without TensorBoard")
