"""The visdom page of a run: its server and its panes. The only module that imports visdom.

The loop hands over what there is to show and goes on; a thread sends the whole page every few seconds. So a server
that is slow, dead or new again changes nothing in the training, and the next sending makes the page whole.
"""

from __future__ import annotations

import contextlib
import getpass
import html
import importlib.util
import logging
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gan import visdom_assets

INTERVAL = 6.0
"""Seconds between sendings, at least."""

SHARE = 0.004
"""Sendings may take this share of the time; the interval grows until they keep to it."""

TIMEOUT = 10.0
"""Seconds that a server may take for an answer."""

POINTS = 1000
"""Points of a curve. When there are more, neighbours are averaged, so that memory and cost stay bounded."""

STARTING = 20.0
"""Seconds that a server may take to start."""

CURVES: dict[str, tuple[str, str, dict[str, str]]] = {
    "losses": ("Losses", "loss", {"d_loss": "discriminator", "g_loss": "generator"}),
    "logits": ("Discriminator's logits", "mean logit", {"real_logit": "real", "fake_logit": "fake"}),
    "penalties": (
        "Squared gradient of the discriminator",
        "mean over a batch",
        {"r1_penalty": "on real (R1)", "r2_penalty": "on fake (R2)", "gp_penalty": "between, from 1 (gp)"},
    ),
    "quality": ("Distance from real faces", "lower is better", {"fd": "FD", "swd_x1000": "SWD x1000"}),
    "variety": (
        "Coverage and precision",
        "share, higher is better",
        {"coverage": "coverage", "precision": "precision"},
    ),
    "speed": ("Speed", "images a second", {"images_per_second": "images/s"}),
    "data_wait": ("Waiting for data", "share of the time, %", {"data_wait": "data wait"}),
}
"""Panes with curves: title, unit, and columns of log.jsonl with their names in the legend."""

WIDTH, HEIGHT = 460, 330
"""Of a pane, pixels: three beside each other on a usual screen."""

OPTIONS_LOOK = {"title": "Options", "width": WIDTH, "height": WIDTH + 30}

BLANK = np.full((64, 64, 3), 235, np.uint8)
"""Keeps the place of a picture that is not there yet."""

PALETTE = ((44, 120, 200), (226, 98, 60))


class Curves:
    """The rows of log.jsonl in bounded memory: when there are too many, points are means of ever more rows."""

    def __init__(self) -> None:
        self.rows: list[dict[str, float]] = []
        self.waiting: list[dict[str, float]] = []  # not yet as many as a point stands for
        self.stride = 1

    def add(self, row: Mapping[str, float]) -> None:
        """Append a row."""
        self.waiting.append(dict(row))
        if len(self.waiting) < self.stride:
            return
        self.rows.append(_mean(self.waiting))
        self.waiting = []
        if len(self.rows) > POINTS:
            self.waiting = [self.rows.pop()]  # POINTS is even
            self.rows = [_mean(self.rows[i : i + 2]) for i in range(0, len(self.rows), 2)]
            self.stride *= 2

    def rewind(self, step: int) -> None:
        """Drop the rows beyond a step."""
        self.rows = [row for row in self.rows if row["step"] <= step]
        self.waiting = [row for row in self.waiting if row["step"] <= step]

    def column(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Images seen and values of a column, where it has any, (N,) each."""
        rows = [*self.rows, _mean(self.waiting)] if self.waiting else self.rows
        points = [(row["images_seen"], row[name]) for row in rows if name in row]
        both = np.array(points, dtype=float).reshape(-1, 2)
        return both[:, 0], both[:, 1]


def _mean(rows: list[dict[str, float]]) -> dict[str, float]:
    """The mean of neighbouring rows, at the place of the last."""
    names = {name for row in rows for name in row}
    mean = {}
    for name in names:
        values = [row[name] for row in rows if name in row]
        mean[name] = sum(values) / len(values)
    return mean | {name: rows[-1][name] for name in ("step", "images_seen", "seconds") if name in rows[-1]}


class Page:
    """A run's page: an environment on a visdom server.

    Args:
        address: of the server, without its port: http://localhost.
        port: of the server.
        env: name of the environment.
        options: shown as text.
        server: the process to end with the page, where we started one.
    """

    def __init__(
        self, address: str, port: int, env: str, options: Mapping[str, Any], server: Server | None = None
    ) -> None:
        self.address, self.port, self.env, self.options, self.server = address, port, env, options, server
        self.curves = Curves()
        self.pictures = {"samples": ("Samples: none yet", BLANK), "faces": ("Faces it learns from: none yet", BLANK)}
        self.lock, self.wake, self.closing = threading.Lock(), threading.Event(), False
        self.sent: dict[str, Any] = {}
        self.notices: list[str] = []
        self.lost = False
        self.client: Any = None  # the thread's, which imports it
        self.thread = threading.Thread(target=self._work, name="visdom page", daemon=True)
        self.thread.start()

    # What the loop calls: quick, and never an error.

    def row(self, row: Mapping[str, float]) -> list[str]:
        """Take a row of log.jsonl; gives back what there is to tell the user."""
        with self.lock:
            self.curves.add(row)
            told, self.notices = self.notices, []
        return told

    def rewind(self, step: int) -> None:
        """Forget what is newer than a step."""
        with self.lock:
            self.curves.rewind(step)

    def picture(self, name: str, title: str, pixels: np.ndarray, step: int) -> None:
        """Take a picture (H, W, 3) uint8; one that was not sent yet is replaced."""
        with self.lock:
            self.pictures[name] = (title, pixels)

    def close(self) -> None:
        """Send the last state, and end the server if it is ours; takes a few seconds at most."""
        self.closing = True
        self.wake.set()
        self.thread.join(INTERVAL)
        if self.server is not None:
            self.server.close()

    # What the thread does.

    def _work(self) -> None:
        self.client = connect(self.address, self.port, self.env)
        while True:
            closing = self.closing
            began = time.thread_time()
            try:
                self._send()
                self._notice(None)
            except Exception as error:  # whatever the server or visdom's client does, the training goes on
                self._notice(error)
            if closing:
                return
            self.wake.wait(max(INTERVAL, (time.thread_time() - began) / SHARE))

    def _notice(self, error: Exception | None) -> None:
        """Say, once, that sending fails, and once that it succeeds again."""
        if (error is not None) == self.lost:
            return
        self.lost = error is not None
        where = f"{self.address}:{self.port}"
        if error is None:
            told = f"the visdom server at {where} answers again; the page is whole"
        elif isinstance(error, OSError):
            told = f"the visdom server at {where} does not answer; training goes on, and its page will be whole again"
        else:
            told = f"the visdom page cannot be drawn ({_first_line(error)}); training goes on, log.jsonl has it all"
        with self.lock:
            self.notices.append(told)

    def _send(self) -> None:
        """Send all that the server does not have."""
        if self.server is not None and self.server.restart():
            self.sent.clear()
        with self.lock:
            pictures, curves = dict(self.pictures), {name: self._columns(name) for name in CURVES}
        for name, (title, pixels) in pictures.items():
            self._pane(name, pixels, self.client.image, np.moveaxis(pixels, 2, 0), image_look(title, pixels))
        self._pane("options", self.options, self.client.text, options_table(self.options), OPTIONS_LOOK)
        for name, columns in curves.items():
            if columns:
                self._curves(name, columns)
        if self.closing:
            self.client.save([self.env])

    def _columns(self, name: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        columns = {label: self.curves.column(column) for column, label in CURVES[name][2].items()}
        return {label: points for label, points in columns.items() if len(points[0])}

    def _pane(self, name: str, content: Any, show: Any, shown: Any, opts: dict[str, Any]) -> None:
        """Send a picture or text, unless the server has it."""
        if self.sent.get(name) is content:
            # Not client.win_exists, which prints when nobody answers. A server that is new again has lost it.
            answer = self.client._send({"win": name, "eid": self.env}, endpoint="win_exists", quiet=True)
            if answer == "true":
                return
        show(shown, win=name, env=self.env, opts=opts)
        self.sent[name] = content

    def _curves(self, name: str, columns: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> None:
        title, unit, _ = CURVES[name]
        longest = max(columns.values(), key=lambda points: len(points[0]))[0]
        scale = 100.0 if name == "data_wait" else 1.0
        values = np.stack([scale * np.interp(longest, *points) for points in columns.values()], axis=1)
        look = {
            "title": title,
            "xlabel": "images seen",
            "ylabel": unit,
            "legend": list(columns),
            "showlegend": True,
            "width": WIDTH,
            "height": HEIGHT,
            "linecolor": np.array([PALETTE[i % 2] for i in range(len(columns))]),
            "markers": len(longest) < 3,
            "markersize": 5,
        }
        self.client.line(values, longest, win=name, env=self.env, opts=look)


def image_look(title: str, pixels: np.ndarray) -> dict[str, Any]:
    """How a picture is shown: small enough for two beside each other."""
    height, width, _ = pixels.shape
    return {"title": title, "jpgquality": 90, "width": WIDTH, "height": WIDTH * height / width + 30}


def options_table(options: Mapping[str, Any]) -> str:
    """The options as a table in HTML."""
    rows = "".join(
        f"<tr><td style='padding-right:1em'>{html.escape(str(name))}</td><td>{html.escape(str(value))}</td></tr>"
        for name, value in options.items()
        if value is not None
    )
    return f"<table style='font: 12px monospace'>{rows}</table>"


def connect(address: str, port: int, env: str) -> Any:
    """Make a client of visdom's that prints nothing, listens to nothing, and raises ConnectionError in time."""
    logging.getLogger("visdom").setLevel(logging.CRITICAL)
    import visdom
    from requests.adapters import HTTPAdapter

    class Impatient(HTTPAdapter):
        def send(self, *args: Any, **options: Any) -> Any:
            answer = super().send(*args, **{**options, "timeout": TIMEOUT})
            answer.raise_for_status()
            return answer

    untyped: Any = visdom.Visdom  # its stub lacks what is used here

    class Client(untyped):
        @property
        def session(self) -> Any:
            if self._session is None:
                session = super().session
                session.trust_env = False  # a proxy of the surroundings is not for this machine
                session.mount("http://", Impatient())
                session.mount("https://", Impatient())
            return self._session

    # Without `send` it does not ask for things at its beginning that nobody needs here.
    client: Any = Client(
        server=address, port=port, env=env, use_incoming_socket=False, raise_exceptions=True, send=False
    )
    client.send = True
    return client


class Server:
    """A visdom server of our own, on 127.0.0.1, that ends with this process unless it is to be kept.

    Args:
        port: where it listens.
        static: the page's files.
        keep: whether it stays when this process ends.
    """

    def __init__(self, port: int, static: Path, keep: bool) -> None:
        self.port, self.static, self.keep = port, static, keep
        self.log = visdom_assets.folder().with_name(f"visdom-server-{port}.log")
        self.retry_at, self.pause = 0.0, 1.0
        self.process = self._start()

    def _start(self) -> subprocess.Popen[Any]:
        root = Path(__file__).resolve().parents[1]
        words = [sys.executable, "-m", "gan.visdom_page", str(self.port), str(self.static), str(int(self.keep))]
        # Not of our group: Ctrl-C is for the training, which still has something to send.
        group: dict[str, Any] = {"start_new_session": True}
        if sys.platform == "win32":
            group = {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
        with self.log.open("wb") as log:
            stdin = subprocess.DEVNULL if self.keep else subprocess.PIPE
            return subprocess.Popen(words, cwd=root, stdin=stdin, stdout=log, stderr=log, **group)

    def wait(self) -> bool:
        """Wait until it answers; whether it does."""
        until = time.monotonic() + STARTING
        while time.monotonic() < until and self.process.poll() is None:
            if is_visdom("http://127.0.0.1", self.port):
                return True
            time.sleep(0.1)
        return False

    def restart(self) -> bool:
        """Start it again if it has died, ever less often; whether it was."""
        if self.process.poll() is None or time.monotonic() < self.retry_at:
            return False
        self.pause = min(2 * self.pause, 60)
        self.retry_at = time.monotonic() + self.pause
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.process = self._start()
        return self.wait()

    def close(self) -> None:
        """End it, unless it is to be kept."""
        if self.keep:
            return
        if self.process.stdin is not None:
            self.process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(3)
            return
        self.process.kill()
        self.process.wait()


def serve(port: int, static: Path, keep: bool) -> None:
    """Run a visdom server in this process until its standard input ends, or for good."""
    sys.modules["torch"] = None  # pyright: ignore[reportArgumentType]  # visdom would load it here for nothing
    from visdom.server import app, run_server

    if not keep:
        threading.Thread(target=lambda: (sys.stdin.buffer.read(), os._exit(0)), daemon=True).start()
    app.tornado_settings.update(static_path=str(static), template_path=str(static), autoreload=False)
    environments = visdom_assets.folder().with_name("visdom-environments")
    environments.mkdir(parents=True, exist_ok=True)
    run_server.start_server(port=port, base_url="", env_path=str(environments), bind_local=True)


def is_visdom(address: str, port: int) -> bool:
    """Whether a visdom server answers there."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{address}:{port}/", timeout=3) as answer:
            return b"<title>visdom</title>" in answer.read()
    except (OSError, ValueError):
        return False


def is_taken(port: int) -> bool:
    """Whether anybody listens on a port of this machine."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def open_page(address: str, port: int, keep: bool, env: str, options: Mapping[str, Any]) -> tuple[Page | None, str]:
    """Open a run's page on a running server, else on one of our own.

    Args:
        address: of the server, without its port: http://localhost.
        port: of the server.
        keep: whether a server of our own stays when the run ends.
        env: name of the environment.
        options: the run's options, shown as text.

    Returns:
        The page, None where there can be none; and what to tell the user.
    """
    instead = "training goes on without the page, with log.jsonl and the preview grids"
    package = importlib.util.find_spec("visdom")
    if package is None or not package.submodule_search_locations:
        return None, f"--vis: visdom is not installed; {instead}; install it with: make setup"
    address = address if "://" in address else f"http://{address}"
    host = urllib.parse.urlsplit(address).hostname or ""
    local = host in ("localhost", "127.0.0.1", "::1")
    if is_visdom(address, port):
        return Page(address, port, env, options), where(address, port, env, local)
    if not local:
        told = f"--vis: no visdom server answers at {address}:{port}; training goes on, and the page fills when it does"
        return Page(address, port, env, options), told
    free = next((p for p in range(port, port + 20) if not is_taken(p)), None)
    try:
        static = visdom_assets.page(Path(package.submodule_search_locations[0]) / "static")
    except OSError as error:
        return None, f"--vis: cannot write {visdom_assets.folder()}: {error}; {instead}"
    if static is None:
        return None, (
            f"--vis: the page's files are not in {visdom_assets.folder()} and {visdom_assets.CDN} cannot be reached; "
            f"{instead}; for the page run: make vis-assets"
        )
    if free is None:
        return None, f"--vis: the ports {port} to {port + 19} are taken; {instead}; give another with --vis_port"
    server = Server(free, static, keep)
    if not server.wait():
        server.process.kill()
        return None, f"--vis: the visdom server did not start, {server.log} says why; {instead}"
    return Page("http://127.0.0.1", free, env, options, server), where("http://127.0.0.1", free, env, True)


def where(address: str, port: int, env: str, local: bool) -> str:
    """Where to look; over ssh also how to get there from the user's own machine."""
    told = f"watch it in a browser: {address}:{port}/env/{urllib.parse.quote(env)}"
    connection = os.environ.get("SSH_CONNECTION", "").split()
    if local and len(connection) == 4:
        told += f"\non your own machine first: ssh -L {port}:127.0.0.1:{port} {getpass.getuser()}@{connection[2]}"
    return told


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:120]


if __name__ == "__main__":
    serve(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] == "1")
