"""Access rule for servers on this machine: their own pages and local programs may use them, foreign pages may not."""

import os
import urllib.parse

from gan.language import text

LOCAL = frozenset({"127.0.0.1", "localhost", "::1"})  # how a browser addresses this machine, through ssh too


def tunnel(port: int) -> str:
    """Return a line with the command that forwards a port of this machine to the user's own one; empty without ssh."""
    connection = os.environ.get("SSH_CONNECTION", "").split()
    if len(connection) != 4:
        return ""
    user = os.environ.get("USER", "USER")
    command = f"ssh -L {port}:127.0.0.1:{port} {user}@{connection[2]}"
    return "\n" + text("on your own machine first: {}").format(command)


def refusal() -> str:
    """Return what a foreign page is told, as a line."""
    said = text("403: this server is for its own page, at http://127.0.0.1 or http://localhost; open that instead")
    return said + "\n"


def is_foreign(host: str | None, origin: str | None) -> bool:
    """Return whether a request comes from a foreign page, by its Host and Origin headers.

    A foreign host means that a foreign domain name resolves to this machine (DNS rebinding). A foreign origin means
    that another site's page asks, which it may do by websocket or, without reading the answer, by other requests.
    """
    try:
        name = urllib.parse.urlsplit(f"//{host}").hostname
        return name not in LOCAL or (origin is not None and urllib.parse.urlsplit(origin).netloc != host)
    except ValueError:  # not a valid address
        return True
