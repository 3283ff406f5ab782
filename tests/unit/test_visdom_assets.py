"""The files of visdom's page: only the right ones are kept, and where there are none nobody waits for them."""

import hashlib
import importlib.util
import io
import re
import shutil
import ssl
import subprocess
import tarfile
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from gan import npm
from gan.npm import Asset
from gan.watching import visdom_assets

CONTENT = b"body { margin: 0 }"
ASSET = Asset("tidy", "1.2.3", "css/tidy.css", "css/page.css", hashlib.sha256(CONTENT).hexdigest())


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of one file, empty."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(visdom_assets, "ASSETS", (ASSET,))
    return visdom_assets.folder()


def answer(monkeypatch: pytest.MonkeyPatch, content: bytes | Exception) -> list[str]:
    """Let the CDN answer with a content; gives the addresses asked for."""
    asked: list[str] = []

    def urlopen(address: str, timeout: float, context: ssl.SSLContext) -> io.BytesIO:
        assert context.verify_mode == ssl.CERT_REQUIRED
        assert context.get_ca_certs()  # also where the system has none
        asked.append(address)
        if isinstance(content, Exception):
            raise content
        return io.BytesIO(content)

    monkeypatch.setattr(urllib.request, "urlopen", urlopen)
    return asked


def test_the_list_has_every_file_that_the_page_loads() -> None:
    spec = importlib.util.find_spec("visdom")
    assert spec is not None
    assert spec.submodule_search_locations
    own = Path(spec.submodule_search_locations[0]) / "static"
    wanted = set(re.findall(r"static_url\([\"']([^\"']+)[\"']\)", (own / "index.html").read_text(encoding="utf-8")))
    listed = {asset.place for asset in visdom_assets.ASSETS}

    assert {place for place in wanted if not (own / place).is_file()} - {"../user/style.css"} <= listed
    assert len(listed) == len(visdom_assets.ASSETS)


def test_the_cdn_is_asked_for_the_version_listed_and_its_file_is_kept(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = answer(monkeypatch, CONTENT)

    assert npm.from_cdn(visdom_assets.ASSETS, cache)
    assert asked == ["https://unpkg.com/tidy@1.2.3/css/tidy.css"]
    assert (cache / "css/page.css").read_bytes() == CONTENT
    assert npm.from_cdn(visdom_assets.ASSETS, cache)
    assert len(asked) == 1


@pytest.mark.parametrize("content", [b"<html>log in first</html>", urllib.error.URLError("no route"), TimeoutError()])
def test_neither_another_file_nor_silence_is_taken_for_it(
    cache: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | Exception
) -> None:
    answer(monkeypatch, content)

    assert not npm.from_cdn(visdom_assets.ASSETS, cache)
    assert npm.missing(visdom_assets.ASSETS, cache) == [ASSET]
    assert not [path for path in cache.rglob("*") if path.is_file()]


def test_a_file_that_was_changed_counts_as_missing(cache: Path) -> None:
    (cache / "css").mkdir(parents=True)
    (cache / "css/page.css").write_bytes(CONTENT + b" ")

    assert npm.missing(visdom_assets.ASSETS, cache) == [ASSET]


def test_the_folder_of_the_page_has_visdoms_own_files_too(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer(monkeypatch, CONTENT)
    (tmp_path / "own").mkdir()
    (tmp_path / "own/index.html").write_text("page")

    static = visdom_assets.page(tmp_path / "own")

    assert static == cache
    assert (cache / "index.html").read_text() == "page"
    assert (cache / "css/page.css").read_bytes() == CONTENT

    first = (cache / "index.html").stat()  # a server may be reading it
    assert visdom_assets.page(tmp_path / "own") == cache
    assert (cache / "index.html").stat().st_mtime_ns == first.st_mtime_ns
    (tmp_path / "own/index.html").write_text("another")
    with (cache / "index.html").open() as reading:
        assert visdom_assets.page(tmp_path / "own") == cache
        assert reading.read() == "page"
    assert (cache / "index.html").read_text() == "another"


def pack(path: Path, content: bytes) -> None:
    """What npm pack writes."""
    with tarfile.open(path, "w:gz") as archive:
        member = tarfile.TarInfo("package/css/tidy.css")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))


def fake_npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Put a program named npm first in the path."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin/npm"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda name: str(program))


@pytest.fixture
def no_cdn(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The CDN cannot be reached; gives the addresses asked for."""
    return answer(monkeypatch, urllib.error.URLError("no route"))


def test_npm_delivers_what_the_cdn_does_not(
    cache: Path, tmp_path: Path, no_cdn: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pack(tmp_path / "made.tgz", CONTENT)
    fake_npm(tmp_path, monkeypatch, f'[ "$5" = tidy@1.2.3 ] && cp {tmp_path}/made.tgz tidy-1.2.3.tgz')

    for _ in range(2):
        npm.fetch(visdom_assets.ASSETS, cache)
        assert (cache / "css/page.css").read_bytes() == CONTENT
        assert len(no_cdn) == 1  # the second time nothing is missing


def test_npm_is_not_asked_for_what_the_cdn_delivers(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, CONTENT)
    monkeypatch.setattr(npm, "_npm", lambda: None)

    npm.fetch(visdom_assets.ASSETS, cache)

    assert (cache / "css/page.css").read_bytes() == CONTENT


@pytest.mark.parametrize("content", [b"something else", None])
def test_what_npm_delivers_must_be_the_right_file(
    cache: Path, tmp_path: Path, no_cdn: list[str], monkeypatch: pytest.MonkeyPatch, content: bytes | None
) -> None:
    if content is None:
        (tmp_path / "made.tgz").write_bytes(b"no archive")
    else:
        pack(tmp_path / "made.tgz", content)
    fake_npm(tmp_path, monkeypatch, f"cp {tmp_path}/made.tgz tidy-1.2.3.tgz")

    with pytest.raises(OSError, match=r"tidy 1\.2\.3 as npm delivered it has another css/tidy\.css"):
        npm.fetch(visdom_assets.ASSETS, cache)
    assert npm.missing(visdom_assets.ASSETS, cache) == [ASSET]


def test_npm_failing_or_missing_is_said_in_one_line(
    cache: Path, tmp_path: Path, no_cdn: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_npm(tmp_path, monkeypatch, "echo first >&2; echo network is unreachable >&2; exit 1")
    with pytest.raises(OSError, match=r"^npm could not fetch the packages: network is unreachable$"):
        npm.fetch(visdom_assets.ASSETS, cache)

    monkeypatch.setattr(npm, "_npm", lambda: None)
    with pytest.raises(OSError, match=r"^https://unpkg\.com did not deliver them all, and npm.* is not installed"):
        visdom_assets.page(tmp_path)


def test_without_npm_on_the_system_that_of_the_development_tools_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)

    found = npm._npm()

    assert found is not None
    assert re.fullmatch(r"\d+\.\d+\.\d+", subprocess.check_output([*found, "--version"], text=True).strip())
