"""The visdom page of a run: its server and its panes. No other module imports visdom.

The training loop hands over its data and goes on; a thread sends the whole page every few seconds. A slow, dead or
restarted server does not affect the training, and the next update completes the page.
"""

from __future__ import annotations

import contextlib
import html
import importlib
import importlib.util
import logging
import os
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gan import visitors
from gan.command_line import options_table
from gan.language import text, why
from gan.watching import visdom_assets
from gan.watching.curves import COLOURS, PANELS, SPREAD_TITLE, Panel, histogram, smoothed
from gan.watching.output import Output

if TYPE_CHECKING:
    from gan.watching.health import Diagnosis  # the server process starts in this module and needs no torch

INTERVAL = 6.0  # minimum seconds between updates
SHARE = 0.004  # maximum share of the time for updates; the interval grows to respect it
TIMEOUT = 10.0  # maximum seconds to wait for a server's answer
STARTING = 60.0  # maximum seconds to wait for the start of a server, or of its client
CLOSING = 6.0  # maximum seconds to wait for the last update
LARGEST = 64 * 2**20  # maximum bytes of a request to our own server
FAREWELL = 2.5  # maximum seconds for which our server waits for its pages to have received everything
WIDTH, HEIGHT = 406, 330  # size of a pane in pixels: three fill 1,280 with a scroll bar

OPTIONS_LOOK = {"width": 3 * WIDTH + 20, "height": 240}
LETTERS = 55  # of a caption in a line of a pane
VERDICT_LOOK = {"width": WIDTH, "height": 190}
PLOT_LOOK = {
    "title": "",  # the pane has it
    "font": {"size": 11},
    "margin": {"l": 50, "r": 15, "t": 50, "b": 45},
    "legend": {"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom"},
}
STYLE = """
html { background: #e6eaf0; } .bar div { font: 600 12px/14px sans-serif; } .content .caption { display: none; }
.navbar-form { display: flow-root; }
"""  # of our server: a caption is shown once, and on a phone the filter covers no pane

BLANK = np.full((64, 64, 3), 235, np.uint8)  # placeholder for a missing picture
PALETTE = [tuple(bytes.fromhex(code[1:])) for code in COLOURS]  # red, green, blue


class Page(Output):
    """A run's page: an environment on a visdom server.

    Args:
        address: the server's, such as http://localhost:8097.
        env: name of the environment.
        run: name of the run. If the environment has another name, other runs may share it: then the names of panes
            begin with the run's name.
        options: displayed as text.
        server: our own server, if any, which ends with the page.
        static: files of the server's page, if it is a server of this program; if it ends, the page starts another.
    """

    def __init__(
        self,
        address: str,
        env: str,
        run: str,
        options: Mapping[str, Any],
        server: Server | None = None,
        static: Path | None = None,
    ) -> None:
        super().__init__()
        self.address, self.port, self.env, self.options = address, port_of(address), env, options
        self.server, self.static = server, static
        self.run, self.shared = run, env != run
        self.pictures["samples"] = (text("Samples: none yet"), BLANK, ())
        self.pictures["faces"] = (text("Faces it learns from: none yet"), BLANK, ())
        self.wake, self.closing = threading.Event(), False
        self.sent: dict[str, Any] = {}  # pictures and texts that the server has, by name of the pane
        self.lost = False
        with contextlib.suppress(Exception):  # the thread tries again, and says why it fails
            # Imported by a thread while another is in warnings.catch_warnings(), it would show its warnings.
            importlib.import_module("visdom")
        self.client: Any = None  # created by the thread
        self.thread = threading.Thread(target=self._work, name="visdom page", daemon=True)
        self.thread.start()

    def close(self) -> list[str]:
        """Send the final state, and end our own server if there is one; takes a few seconds at most."""
        self.closing = True
        self.wake.set()
        self.thread.join(STARTING if self.client is None else CLOSING)
        if self.server is not None:
            self.server.close()
        return []

    # The following methods run in the thread.

    def _work(self) -> None:
        try:
            self.client = connect(self.address, self.env)
        except Exception as error:  # for example if visdom cannot be imported
            self._notice(error)
            return
        while True:
            closing = self.closing
            began = time.thread_time()
            try:
                self._send()
                self._notice(None)
            except Exception as error:  # training goes on whatever the server or visdom's client does
                self._notice(error)
            if closing:
                return
            self.wake.wait(max(INTERVAL, (time.thread_time() - began) / SHARE))

    def _notice(self, error: Exception | None) -> None:
        """Tell the user once when updates begin to fail, and once when they succeed again."""
        if (error is not None) == self.lost:
            return
        self.lost = error is not None
        if error is None:
            told = text("the visdom server at {} answers again; the page is complete").format(self.address)
        elif isinstance(error, OSError):
            told = text("the visdom server at {} does not answer; training goes on, the page follows later")
            told = told.format(self.address)
        else:
            why = (str(error).strip() or type(error).__name__).splitlines()[0][:120]
            told = text("the visdom page cannot be updated ({}); training goes on, log.jsonl has everything")
            told = told.format(why)
        with self.lock:
            self.notices.append(told)

    def _send(self) -> None:
        """Send everything that the server does not have."""
        if self.static is not None and not is_taken(self.port):  # it has died, or the run that started it has ended
            if self.server is not None:
                self.server.close()
            self.server = Server(self.port, self.static)
            self.static = self.static if self.server.wait() else None  # a server that cannot start is left alone
            self.sent.clear()
        if self.sent and not self._has("verdict"):
            self.sent.clear()  # another server has started
        if not self.sent and not self.shared:  # nothing may stay of an earlier run of this name
            self.client.text("", env=self.env)  # only an environment that exists can be emptied
            self.client.close(None, self.env)
        with self.lock:
            pictures, spread, verdict = dict(self.pictures), self.spread, verdict_text(self.verdict, self.ended)
            panels = {name: curves for name, panel in PANELS.items() if (curves := self.curves.panel(panel))}
        self._pane("verdict", verdict, {**VERDICT_LOOK, "title": text("How it is going")})
        for name, (title, pixels, rows) in pictures.items():
            caption = text("rows: {}").format(text(", ").join(rows)) if rows else ""
            height = WIDTH * pixels.shape[0] / pixels.shape[1] + 5 + 20 * -(-len(caption) // LETTERS)
            look = {"title": title, "caption": caption, "jpgquality": 90, "width": WIDTH, "height": height}
            self._pane(name, pixels, look)
        options_look = {**OPTIONS_LOOK, "title": text("Options")}
        options = f"options after {len(panels) + (spread is not None)}"  # the last; if a pane comes later, a new one is
        for name in [name for name in self.sent if name.startswith("options") and name != options]:
            self.client.close(self._window(name, options_look)["win"], self.env)
            del self.sent[name]
        for name, curves in panels.items():
            self._curves(name, PANELS[name], curves)
        if spread is not None:
            self._histogram(*spread)
        style = "color: #222; padding: 6px 10px; columns: 3 18rem"
        self._pane(options, f"<div style='{style}'>{options_table(self.options)}</div>", options_look)
        if self.closing:
            self.client.save([self.env])

    def _window(self, name: str, look: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a pane, with the run's name if other runs may share the environment."""
        if not self.shared:
            return {"win": name, "env": self.env, "opts": dict(look)}
        return {"win": f"{self.run} {name}", "env": self.env, "opts": {**look, "title": f"{self.run}: {look['title']}"}}

    def _pane(self, name: str, content: np.ndarray | str, look: Mapping[str, Any]) -> None:
        """Send a picture or text unless the server has it."""
        sent, window = self.sent.get(name), self._window(name, look)
        if isinstance(content, str) and sent != content:
            self.client.text(content, **window)
        elif not isinstance(content, str) and sent is not content:
            self.client.image(np.moveaxis(content, 2, 0), **window)
        self.sent[name] = content

    def _has(self, name: str) -> bool:
        """Return whether the server has a pane."""
        pane = {"win": self._window(name, {"title": ""})["win"], "eid": self.env}
        return self.client._send(pane, endpoint="win_exists", quiet=True) == "true"  # client.win_exists prints

    def _curves(self, name: str, panel: Panel, curves: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> None:
        longest = max(curves.values(), key=lambda points: len(points[0]))[0]
        drawn = {label: np.interp(longest, *points) for label, points in curves.items()}
        colours = PALETTE[: len(drawn)]
        quiet = {}
        if panel.smooth:
            raw = {text("{}, raw").format(label): values for label, values in drawn.items()}
            drawn = {**raw, **{label: smoothed(values) for label, values in drawn.items()}}
            faint = [{"color": f"rgba{(*rgb, 0.35)}", "width": 1} for rgb in colours]
            quiet = {label: {"line": line, "showlegend": False} for label, line in zip(raw, faint, strict=True)}
            colours *= 2
        look = curve_look(text(panel.title), text("images seen"), text(panel.unit), list(drawn), len(longest))
        look |= {"linecolor": np.array(colours), "traceopts": {"plotly": quiet}}
        self.client.line(np.stack(list(drawn.values()), axis=1), longest, **self._window(name, look))

    def _histogram(self, real: np.ndarray, fake: np.ndarray) -> None:
        edges, shares = histogram(real, fake)
        fill = {
            text(kind): {"fill": "tozeroy", "line": {"shape": "hvh", "color": COLOURS[i]}}
            for i, kind in enumerate(shares)
        }
        look = curve_look(text(SPREAD_TITLE), "logit", text("share, %"), list(map(text, shares)), len(edges))
        look |= {"linecolor": np.array(PALETTE[:2]), "traceopts": {"plotly": fill}}
        values = 100 * np.stack(list(shares.values()), axis=1)
        self.client.line(values, (edges[1:] + edges[:-1]) / 2, **self._window("spread", look))


def curve_look(title: str, x: str, y: str, legend: list[str], points: int) -> dict[str, Any]:
    """Return the plot options for curves of so many points; without a `linecolor` they get plotly's colours."""
    look: dict[str, Any] = {"title": title, "xlabel": x, "ylabel": y, "legend": legend, "showlegend": True}
    look |= {"width": WIDTH, "height": HEIGHT, "markers": points < 3, "markersize": 5}
    return look | {"layoutopts": {"plotly": PLOT_LOOK}}


def verdict_text(diagnosis: Diagnosis | None, ended: str = "") -> str:
    """Format a diagnosis as HTML, below how the session has ended, if it has."""
    edge = {"trouble": "#d0492b", "well": "#3a9a50"}.get(diagnosis.look if diagnosis else "", "#888")
    short, told = text("too early to say"), text("the training begins.")
    short, told = (diagnosis.short, diagnosis.text) if diagnosis else (short, told)
    return (
        f"<div style='font: 14px/1.45 sans-serif; color: #222; border-left: 5px solid {edge}; padding: 0 10px; "
        f"overflow-wrap: anywhere'>"
        f"{f'<p><b>{html.escape(ended)}</b></p>' if ended else ''}"
        f"<b>{html.escape(short)}</b><br>{html.escape(told)}</div>"
    )


def connect(address: str, env: str) -> Any:
    """Make a visdom client that prints nothing, opens no websocket, and raises ConnectionError on a timeout."""
    logging.getLogger("visdom").setLevel(logging.CRITICAL)
    import visdom
    from requests.adapters import HTTPAdapter

    class Impatient(HTTPAdapter):
        def send(self, *args: Any, **options: Any) -> Any:
            answer = super().send(*args, **{**options, "timeout": TIMEOUT})
            answer.raise_for_status()
            return answer

    untyped: Any = visdom.Visdom  # the stub lacks what is used here
    # With `send`, the constructor makes requests that are not needed here.
    at = {"server": address.rpartition(":")[0], "port": port_of(address), "env": env}
    client = untyped(**at, use_incoming_socket=False, raise_exceptions=True, send=False)
    client.send = True
    client.session.trust_env = False  # ignore a proxy set in the environment
    for protocol in ("http://", "https://"):
        client.session.mount(protocol, Impatient())
    return client


class Server:
    """Our own visdom server, on a port of 127.0.0.1, which ends with this process; `static` holds its page."""

    def __init__(self, port: int, static: Path) -> None:
        self.port, self.static = port, static
        self.log = visdom_assets.folder().with_name(f"visdom-server-{port}.log")
        root = Path(__file__).resolve().parents[2]
        words = [sys.executable, "-m", "gan.watching.visdom_page", str(port), str(static)]
        # A group of its own: Ctrl-C is meant for the training, which still has data to send.
        group: dict[str, Any] = {"start_new_session": True}
        if sys.platform == "win32":
            group = {"creationflags": subprocess.CREATE_NO_WINDOW}  # a console of its own, since ours may be closed
        with self.log.open("wb") as log:
            # visdom needs a user name, which a container may lack; and Python looks for modules in `cwd`.
            env = {"USER": "user", **os.environ, "PYTHONSAFEPATH": ""}
            streams: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": log, "stderr": log}
            self.process = subprocess.Popen(words, cwd=root, env=env, **streams, **group)

    def wait(self) -> bool:
        """Wait until the server answers; returns whether it does."""
        until = time.monotonic() + STARTING
        while time.monotonic() < until and self.process.poll() is None:
            if is_visdom(f"http://127.0.0.1:{self.port}"):
                return True
            time.sleep(0.1)
        return False

    def close(self) -> None:
        """End the server."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(3)
            return
        self.process.kill()
        self.process.wait()


def serve(port: int, static: Path) -> None:
    """Run a visdom server in this process until shortly after standard input is closed."""
    sys.modules["torch"] = None  # pyright: ignore[reportArgumentType]  # visdom would import it needlessly
    from tornado.ioloop import IOLoop
    from visdom.server import app, run_server

    app.tornado_settings.update(static_path=str(static), template_path=str(static), autoreload=False)
    environments = visdom_assets.folder().with_name("visdom-environments")
    environments.mkdir(parents=True, exist_ok=True)
    for path in environments.glob("*.json"):
        with contextlib.suppress(OSError):
            with path.open("rb") as file:
                file.seek(max(0, path.stat().st_size - 2))
                whole = file.read() == b"}}"
            if not whole:  # cut short by a crash; it would fail each update of that page
                path.unlink()

    def opened(**options: Any) -> Any:
        application = guarded(app.Application)(**options)
        threading.Thread(target=end, args=(application, IOLoop.current()), daemon=True).start()
        return application

    run_server.Application = opened  # pyright: ignore[reportPrivateImportUsage]
    run_server.start_server(port=port, base_url="", env_path=str(environments), bind_local=True)


def end(application: Any, loop: Any) -> None:
    """Wait until standard input is closed, then end this process once its pages have received everything."""
    sys.stdin.buffer.read()
    loop.add_callback(lambda: [page.close() for page in [*application.subs.values()]])
    until = time.monotonic() + FAREWELL
    while application.subs and time.monotonic() < until:  # a page answers that it is closed after all it was sent
        time.sleep(0.02)
    os._exit(0)


def guarded(application: Any) -> Any:
    """Restrict visdom's application to requests from its own page, and to environments whose names are not paths."""
    from tornado.web import HTTPError, RequestHandler

    class Refusal(RequestHandler):
        def prepare(self) -> None:
            self.set_status(403)
            self.set_header("Content-Type", "text/plain; charset=utf-8")
            self.finish(visitors.refusal())

    class Environments(dict[str, Any]):
        def __setitem__(self, name: str, content: Any) -> None:
            if not is_plain(name):  # it would become the name of a file
                raise HTTPError(400, "the name of an environment must not be a path")
            super().__setitem__(name, content)

    class Guarded(application):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.user_settings["user_css"] += STYLE
            self.settings.update(debug=False, serve_traceback=False)  # tracebacks would reveal the machine to anyone

        def load_state(self) -> Environments:
            return Environments(super().load_state())

        def find_handler(self, request: Any, **more: Any) -> Any:
            _, room, name = [*request.path.split("/", 2), "", ""][:3]
            wrong = room in ("env", "compare") and not is_plain(urllib.parse.unquote(name))  # visdom opens such files
            if wrong or visitors.is_foreign(request.headers.get("Host"), request.headers.get("Origin")):
                return self.get_handler_delegate(request, Refusal)
            return super().find_handler(request, **more)

        def listen(self, port: int, **options: Any) -> Any:
            return super().listen(port, **{**options, "max_buffer_size": LARGEST})

    return Guarded


def is_plain(env: str) -> bool:
    """Return whether the name of an environment is not a path and breaks no line of the page."""
    return env.isprintable() and not re.search(r"[/\\]", env)


def is_visdom(address: str) -> bool:
    """Return whether a visdom server answers at the address."""
    return b"<title>visdom</title>" in (_asked(f"{address}/") or b"")


def _asked(address: str) -> bytes | None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(address, timeout=3) as answer:
            return answer.read(2**22)  # visdom's page names every environment before its title
    except (OSError, ValueError, HTTPException):  # HTTPException if another kind of server listens there
        return None


def is_taken(port: int) -> bool:
    """Return whether something listens on a port of this machine."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def open_page(address: str, env: str, run: str, options: Mapping[str, Any]) -> tuple[Page | None, str]:
    """Open the `Page` of a run, on the server at an address such as http://localhost:8097, or else on our own.

    Returns:
        The page, or None if it cannot be opened; and a message for the user.
    """
    instead = text("training goes on, and report.html in the run's folder shows the same")
    package = importlib.util.find_spec("visdom")
    if package is None or not package.submodule_search_locations:
        do = "pip install --no-build-isolation -r requirements.txt"
        return None, text("--vis: visdom is not installed; {}; install it with: {}").format(instead, do)
    address = (address if "://" in address else f"http://{address}").rstrip("/")
    port = port_of(address)
    shared, env = env != run, re.sub(r"""[/\\+&#?'"<>]""", "_", env)  # visdom's page cannot open such names
    run = run if shared else env
    local = urllib.parse.urlsplit(address).hostname in visitors.LOCAL
    if is_visdom(address):
        # A server of another run of this program has the mark, and ends with that run.
        ours = local and _asked(f"{address}/static/{visdom_assets.MARK}") is not None
        static = visdom_assets.folder() if ours else None
        return Page(address, env, run, options, static=static), where(address, env, local)
    if not local and _asked(f"{address}/") is not None:
        told = text(
            "--vis: what answers at {} is not visdom's page; it may want a password, which is not supported; {}"
        )
        return None, told.format(address, instead)
    if not local:
        told = text("--vis: no visdom server answers at {}; training goes on; plots appear when the server is up")
        return Page(address, env, run, options), told.format(address)
    free = next((p for p in range(port, port + 20) if not is_taken(p)), None)
    try:
        static = visdom_assets.page(Path(package.submodule_search_locations[0]) / "static")
    except OSError as error:
        told = text(
            "--vis: the page's files are not in {} and cannot be put there ({}); {}; the next --vis tries again; "
            "docs/watching.md has a mirror"
        )
        return None, told.format(visdom_assets.folder(), why(error), instead)
    if free is None:
        told = text("--vis: the ports {} to {} are taken; {}; give another: --vis_server=http://localhost:PORT")
        return None, told.format(port, port + 19, instead)
    server = Server(free, static)
    if not server.wait():
        server.process.kill()
        told = text("--vis: the visdom server did not answer in {:.0f} s, {} may say why; {}")
        return None, told.format(STARTING, server.log, instead)
    address = f"http://127.0.0.1:{free}"
    return Page(address, env, run, options, server, static), where(address, env, True)


def port_of(address: str) -> int:
    """Return the port of an address such as http://localhost:8097."""
    return int(address.rpartition(":")[2])


def where(address: str, env: str, local: bool) -> str:
    """Return the address to open and, over ssh, the command that forwards it to the user's own machine."""
    told = text("watch it in a browser: {}").format(f"{address}/env/{urllib.parse.quote(env)}")
    return told + visitors.tunnel(port_of(address)) * local


if __name__ == "__main__":
    serve(int(sys.argv[1]), Path(sys.argv[2]))
