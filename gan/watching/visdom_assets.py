"""The files that visdom's page loads but its package lacks, in the user's cache folder. Independent of visdom."""

import filecmp
import shutil
from pathlib import Path

from gan import downloads, npm
from gan.files import replacing

MARK = "animegan"  # name of a file that identifies visdom servers started by this program

ASSETS = npm.listed(Path(__file__).with_suffix(".txt").read_text(encoding="utf-8"))
"""The files that the page loads, in the versions that visdom 0.2.4 lists in its server/build.py."""


def folder() -> Path:
    """Return the folder of the files in the user's cache; it may not exist."""
    return downloads.cache("visdom-page")


def page(own: Path) -> Path:
    """Return the folder with everything the page loads, completed with the files that come with visdom.

    Raises:
        OSError: files are neither cached nor available, or the cache folder cannot be written.
    """
    static = folder()
    npm.fetch(ASSETS, static)
    places = {static / asset.place for asset in ASSETS}  # visdom may have downloaded some itself, unverified
    for source in own.rglob("*"):
        target = static / source.relative_to(own)
        wanted = source.is_file() and source.suffix != ".map" and target not in places
        if wanted and not (target.is_file() and filecmp.cmp(source, target, shallow=False)):
            with replacing(target) as temporary:  # a server may be reading it
                shutil.copyfile(source, temporary)
    (static / MARK).touch()
    return static
