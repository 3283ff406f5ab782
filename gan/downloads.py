"""Files from the internet, kept in the user's cache folder, so that no internet is needed afterwards."""

import hashlib
import os
import ssl
import urllib.request
from http.client import HTTPException
from pathlib import Path

import certifi
import platformdirs

from gan.files import replacing
from gan.language import text

SECONDS = 5  # without an answer until a request fails


def cache(name: str) -> Path:
    """Return the folder of some files in the user's cache; it may not exist."""
    return platformdirs.user_cache_path("animegan", appauthor=False) / name


def proxy() -> str:
    """Name a variable with a SOCKS proxy, through which nothing is fetched, and what to do; empty if there is none."""
    for name, value in os.environ.items():
        if name.lower() in ("all_proxy", "http_proxy", "https_proxy") and value.lower().startswith("socks"):
            told = text(
                "; the variable {} names a SOCKS proxy, which is not supported: unset it, and set "
                "https_proxy=http://127.0.0.1:PORT, with the HTTP port of the same proxy"
            )
            return told.format(name)
    return ""


def has(place: Path, sha256: str) -> bool:
    """Return whether a file is there and has this digest."""
    return place.is_file() and hashlib.sha256(place.read_bytes()).hexdigest() == sha256


def keep(content: bytes, place: Path, sha256: str) -> bool:
    """Write a file if its content has this digest; return whether it has.

    Raises:
        OSError: it cannot be written.
    """
    if hashlib.sha256(content).hexdigest() != sha256:
        return False
    with replacing(place) as temporary:
        temporary.write_bytes(content)
    return True


def fetch(address: str, place: Path, sha256: str) -> bool:
    """Fetch a file; return whether it was delivered and has this digest. Other content is discarded.

    Raises:
        OSError: it cannot be written.
    """
    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())  # python.org's Python for macOS has no CA certificates at first
    try:
        with urllib.request.urlopen(address, timeout=SECONDS, context=context) as answer:
            content = answer.read()
    except (OSError, HTTPException):
        return False
    return keep(content, place, sha256)
