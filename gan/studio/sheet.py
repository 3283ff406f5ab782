"""The faces to train on, of which a person clicks the bad ones to throw them out."""

from pathlib import Path

import numpy as np

from config import ConfigError
from gan import images
from gan.data.pictures import tile
from gan.files import printable, replacing
from gan.language import why
from gan.studio.programs import faces_in

TILE, ACROSS, MOST = 48, 8, 400  # pixels of a face, faces in a row, and most faces that are shown


class Sheet:
    """Up to `MOST` faces of a folder that prepare.py wrote, evenly chosen.

    A face that is thrown out is deleted: prepare.py, too, then leaves it out. The sheet can put it back.
    """

    def __init__(self, folder: Path) -> None:
        paths = faces_in(folder)
        self.number = len(paths)  # of all faces that were there
        self.paths = [paths[i * len(paths) // MOST] for i in range(MOST)] if len(paths) > MOST else paths
        self.thrown = dict[int, bytes]()  # by place, the file that was there
        self.file = ""  # of its picture, once that is written

    def click(self, place: object) -> None:
        """Throw out the face at a place, or put it back. The place comes from a page: what is none is left alone.

        Raises:
            ConfigError: its file cannot be deleted or written.
        """
        if not isinstance(place, int) or not 0 <= place < len(self.paths):
            return
        path = self.paths[place]
        try:
            if place in self.thrown:
                with replacing(path) as temporary:
                    temporary.write_bytes(self.thrown[place])
                del self.thrown[place]
            else:
                content = path.read_bytes()
                path.unlink()
                self.thrown[place] = content
        except OSError as error:
            raise ConfigError(
                "{} cannot be changed: {}; close programs that have it open", printable(str(path)), why(error)
            ) from error

    def picture(self) -> np.ndarray:
        """Return the faces in rows of `ACROSS`, without gaps, (H, W, 3) uint8."""
        return images.grid(np.stack([tile(path, TILE) for path in self.paths]), ACROSS, gap=0)
