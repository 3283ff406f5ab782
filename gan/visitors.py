"""Who may use a server of this machine: its own pages, and programs of this machine; not the pages of others."""

from __future__ import annotations

import urllib.parse

LOCAL = frozenset({"127.0.0.1", "localhost", "::1"})  # what a browser calls this machine, through ssh too
REFUSED = "403: this server is for its own page, at http://127.0.0.1 or http://localhost; open that in the browser\n"


def is_foreign(host: str | None, origin: str | None) -> bool:
    """Whether a request comes from a page of somebody else, by its headers Host and Origin.

    A foreign host means that somebody's name leads to this machine (DNS rebinding), a foreign origin that somebody's
    page asks, which it may do of websockets, and without reading the answer of all else.
    """
    try:
        name = urllib.parse.urlsplit(f"//{host}").hostname
        return name not in LOCAL or (origin is not None and urllib.parse.urlsplit(origin).netloc != host)
    except ValueError:  # an address that is none
        return True
