"""A run in TensorBoard: the columns of log.jsonl by their names, pictures and options."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from config import needing
from gan.files import printable
from gan.language import text, why
from gan.watching.health import Diagnosis
from gan.watching.output import Output


def writer_class() -> Callable[..., Any]:
    """Import torch's SummaryWriter, which writes event files.

    Raises:
        ConfigError: the package tensorboard is not installed.
    """
    with needing("--tensorboard"):
        from torch.utils.tensorboard import SummaryWriter
    return SummaryWriter


class TensorBoardLog(Output):
    """Writes event files into a folder. When a run is resumed, TensorBoard discards what came after that step."""

    def __init__(self, folder: Path, options: Mapping[str, Any]) -> None:
        super().__init__()
        self.new_writer = writer_class()
        self.folder, self.options = folder, options
        self.new = not any(folder.glob("events.*"))
        self.writer: Any = None
        self.failed = False
        self.rewind(0)

    def rewind(self, step: int) -> None:
        """Discard everything after `step` at the next write; notices for the user stay."""
        self.notices = self.close()
        self.step, self.kind = step, "early"

    def row(self, row: Mapping[str, float]) -> list[str]:
        """Write a row of log.jsonl; earlier rows of a resumed run only into new files. Returns lines for the user."""
        if (step := int(row["step"])) > self.step or self.new:
            for name in row.keys() - {"step"}:
                self._write("add_scalar", name, row[name], step)
            for kind, logits in zip(("real", "fake"), self.spread or (), strict=False):
                self._write("add_histogram", f"logits/{kind}", logits, step)
            self.spread = None
            self._write("flush")  # after a kill, the files must not lack what the checkpoint has
        told, self.notices = self.notices, []
        return told

    def picture(self, name: str, title: str, pixels: np.ndarray, step: int, rows: Sequence[str] = ()) -> None:
        """Write a picture (H, W, 3) uint8."""
        self._write("add_image", name, pixels, step, dataformats="HWC")

    def diagnosis(self, diagnosis: Diagnosis, step: int) -> None:
        """Write the diagnosis of the curves when its kind changes."""
        if diagnosis.kind != self.kind:
            self.kind = diagnosis.kind
            self._write("add_text", "how it is going", f"{diagnosis.short}: {diagnosis.text}", step)

    def close(self) -> list[str]:
        """Close the event files; returns lines for the user."""
        if self.writer is not None:
            self._write("close")
        self.writer = None
        told, self.notices = self.notices, []
        return told

    def _write(self, method: str, *values: Any, **options: Any) -> None:
        """Call a method of the writer, opening a file first; after a failure, as on a full disk, write nothing more."""
        if self.failed:
            return
        try:
            if self.writer is None:
                self.writer = self.new_writer(str(self.folder), purge_step=self.step + 1)  # also in the first file
                known = {name: value for name, value in self.options.items() if value is not None}
                rows = "".join(f"| {name} | {printable(str(value))} |\n" for name, value in known.items())
                self.writer.add_text("options", f"| option | value |\n| --- | --- |\n{rows}", self.step)
            getattr(self.writer, method)(*values, **options)
        except OSError as error:
            self.writer, self.failed = None, True
            told = text("could not write {}: {}; training goes on without TensorBoard")
            self.notices.append(told.format(self.folder, why(error)))
