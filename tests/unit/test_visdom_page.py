"""The visdom page: what it keeps, what it says, and that no server can disturb whoever feeds it."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from machine import free_port

from gan import npm
from gan.watching import visdom_assets, visdom_page
from gan.watching.health import Diagnosis, Kind
from gan.watching.visdom_page import Page, Server

pytestmark = pytest.mark.usefixtures("patient")

ROOT = Path(__file__).resolve().parents[2]
OWN = Path(__import__("visdom").__file__).parent / "static"
PICTURE = np.zeros((20, 30, 3), np.uint8)


def row(step: int, **values: float) -> dict[str, float]:
    return {"step": step, "images_seen": 64 * step, "seconds": step / 2, "d_loss": 0.5, "g_loss": 1.5, **values}


def panes(port: int, env: str = "run") -> dict[str, Any]:
    """What the server has, by name of the pane."""
    asked = urllib.request.Request(
        f"http://127.0.0.1:{port}/win_data", data=json.dumps({"win": None, "eid": env}).encode()
    )
    try:
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # whatever proxy the machine has
        with direct.open(asked, timeout=5) as answer:
            return json.loads(answer.read())
    except (OSError, ValueError):
        return {}


def wait_for(wanted: Callable[[], object], seconds: float = 120) -> None:
    until = time.monotonic() + seconds
    while not wanted():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.1)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    visdom_assets.folder().parent.mkdir(parents=True)
    return visdom_assets.folder()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visdom_page, "INTERVAL", 0.3)
    monkeypatch.setattr(visdom_page, "SHARE", 1.0)


@pytest.fixture
def mortal(cache: Path) -> Iterator[Server]:
    """A real server to kill; its page lacks its files: nobody looks at it here."""
    server = Server(free_port(), OWN)
    assert server.wait()
    yield server
    server.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A real server for tests that leave it alive."""
    with pytest.MonkeyPatch.context() as change:
        change.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        visdom_assets.folder().parent.mkdir(parents=True)
        server = Server(free_port(), OWN)
    assert server.wait()
    yield server
    server.close()


def test_the_page_is_whole(server: Server, quick: None) -> None:
    page = Page(f"http://127.0.0.1:{server.port}", "run", "run", {"lr1": 0.0003})
    page.picture("faces", "Faces", PICTURE, 50)
    page.picture("samples", "Samples", PICTURE, 50)
    for step in (50, 100, 150):
        page.row(row(step, real_logit=1.0, fake_logit=-1.0, images_per_second=80.0, data_wait=0.25, r1_penalty=0.1))
    page.close()

    shown = panes(server.port)
    assert [name for name, _ in sorted(shown.items(), key=lambda pane: pane[1]["i"])] == [
        "verdict", "samples", "faces", "losses", "logits", "penalties", "speed", "data_wait", "options after 5",
    ]  # fmt: skip
    logits = shown["logits"]["content"]
    assert [curve["name"] for curve in logits["data"]] == ["real, raw", "fake, raw", "real", "fake"]
    assert [curve["y"] for curve in logits["data"]] == [[1.0] * 3, [-1.0] * 3] * 2
    assert logits["data"][0]["x"] == [3200, 6400, 9600]
    assert logits["layout"]["xaxis"]["title"] == "images seen"
    assert logits["layout"]["yaxis"]["title"] == "mean logit"
    assert shown["data_wait"]["content"]["data"][0]["y"] == [25.0] * 3
    assert shown["samples"]["content"]["src"].startswith("data:image/jpeg;base64,")
    assert "0.0003" in shown["options after 5"]["content"]
    assert all(pane["title"] for pane in shown.values())


def test_the_page_shows_what_the_curves_mean_and_how_logits_are_spread(server: Server, quick: None) -> None:
    page = Page(f"http://127.0.0.1:{server.port}", "means", "means", {})
    page.diagnosis(Diagnosis("won", "<it> has won", "do this & that."), 50)
    page.logits(np.random.default_rng(0).normal(2, 1, 512), np.random.default_rng(1).normal(0, 1, 512))
    page.close()

    shown = panes(server.port, "means")
    assert "&lt;it&gt; has won</b><br>do this &amp; that." in shown["verdict"]["content"]
    real, fake = shown["spread"]["content"]["data"]
    assert (real["name"], fake["name"]) == ("real", "fake")
    assert sum(real["y"]) == sum(fake["y"]) == pytest.approx(100)
    assert real["fill"] == "tozeroy"


def test_options_stay_last_and_rows_are_named_below_their_picture(server: Server, quick: None) -> None:
    page = Page(f"http://127.0.0.1:{server.port}", "order", "order", {})
    page.row(row(50, fd=30.0))
    page.row(row(100))  # one point makes no curve, so there is none of fd
    wait_for(lambda: "options after 1" in panes(server.port, "order"))
    page.picture("samples", "Samples", PICTURE, 50, ["blond", "red"])
    page.row(row(150, fd=20.0))
    page.close()

    shown = panes(server.port, "order")
    assert [*shown][-1] == "options after 2"
    assert "options after 1" not in shown
    assert shown["samples"]["content"]["caption"] == "rows: blond, red"
    assert shown["samples"]["title"] == "Samples"


@pytest.mark.parametrize(
    ("kind", "colour"), [(None, "#888"), ("early", "#888"), ("balanced", "#3a9a50"), ("won", "#d0492b")]
)
def test_how_it_ended_stands_above_the_verdict_whose_colour_is_neutral_at_first(kind: Kind | None, colour: str) -> None:
    diagnosis = kind and Diagnosis(kind, "short", "text")
    text = visdom_page.verdict_text(diagnosis, "Finished: <all> of this")
    assert colour in text
    assert "<b>Finished: &lt;all&gt; of this</b>" in text
    assert "<p>" not in visdom_page.verdict_text(diagnosis)


def test_our_server_stays_until_a_busy_page_has_been_told_the_end(mortal: Server, quick: None) -> None:
    browser = socket.socket()
    browser.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # it reads nothing before it has time
    browser.connect(("127.0.0.1", mortal.port))
    key = "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
    asked = f"GET /socket HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n{key}\r\n\r\n"
    browser.sendall(asked.encode())
    assert browser.recv(12) == b"HTTP/1.1 101"
    page = Page(f"http://127.0.0.1:{mortal.port}", "main", "main", {}, mortal, OWN)
    page.picture("samples", "Samples", np.random.default_rng(0).integers(0, 256, (2500, 2500, 3), np.uint8), 50)
    wait_for(lambda: "samples" in page.sent and page.sent["samples"] is not visdom_page.BLANK)
    told = bytearray()

    def read() -> None:
        time.sleep(0.3)
        with browser:
            while b"Finished: all" not in told[-100_000:] and (more := browser.recv(2**20)):
                told.extend(more)

    reader = threading.Thread(target=read)
    reader.start()
    page.end("Finished: all of this is kept", [])
    page.close()
    reader.join()

    assert b"Finished: all of this is kept" in told
    assert not visdom_page.is_taken(mortal.port)


def test_runs_in_one_environment_have_panes_of_their_own(server: Server, quick: None) -> None:
    pages = {run: Page(f"http://127.0.0.1:{server.port}", "both", run, {"run": run}) for run in ("one", "two")}
    for run, page in pages.items():
        page.picture("samples", "Samples", PICTURE, 50)
        page.row(row(50, fd=30.0, damage_x100=2.5, variety=0.9))
        page.row(row(100, fd=20.0 if run == "one" else 25.0, damage_x100=2.5, variety=0.9))
        page.close()

    shown = panes(server.port, "both")
    quality = {run: shown[f"{run} quality"]["content"]["data"][0]["y"] for run in pages}
    assert quality == {"one": [30, 20], "two": [30, 25]}
    assert {"one samples", "two samples", "one losses", "one verdict", "two options after 4"} <= shown.keys()
    assert shown["one losses"]["title"] == "one: Losses"
    assert "losses" not in shown


def test_what_an_earlier_run_of_the_name_has_left_behind_is_removed(server: Server, quick: None) -> None:
    before = Page(f"http://127.0.0.1:{server.port}", "again", "again", {})
    before.logits(np.zeros(8), np.ones(8))
    for step in (50, 100):
        before.row(row(step, fd=30.0, damage_x100=2.5, r1_penalty=0.1))
    before.close()
    gone = {"spread", "quality", "damage", "penalties"}
    assert gone <= panes(server.port, "again").keys()

    page = Page(f"http://127.0.0.1:{server.port}", "again", "again", {})
    for step in (50, 100):
        page.row(row(step))
    page.close()
    assert panes(server.port, "again").keys() == {"samples", "faces", "verdict", "options after 1", "losses"}


def test_a_page_that_was_saved_in_part_begins_anew(cache: Path, quick: None) -> None:
    kept = cache.with_name("visdom-environments")
    kept.mkdir()
    whole = '{"jsons": {}, "reload": {}}'
    for name, content in {"cut": whole[:12], "empty": "", "whole": whole}.items():
        (kept / f"{name}.json").write_text(content)
    server = Server(free_port(), OWN)
    assert server.wait()
    for name in ("cut", "empty"):
        page = Page(f"http://127.0.0.1:{server.port}", name, name, {})
        for step in (50, 100):
            page.row(row(step))
        page.close()
        assert "losses" in panes(server.port, name)
    server.close()
    assert (kept / "whole.json").is_file()
    assert all(path.read_text().endswith("}}") for path in kept.glob("*.json"))


def test_a_server_that_dies_and_comes_back_gets_everything_again(cache: Path, quick: None) -> None:
    server = Server(free_port(), OWN)
    assert server.wait()
    page = Page(f"http://127.0.0.1:{server.port}", "run", "run", {"lr1": 0.0003})
    page.picture("samples", "Samples", PICTURE, 50)
    told = page.row(row(50)) + page.row(row(75))
    wait_for(lambda: {"samples", "verdict", "losses"} <= panes(server.port).keys())
    server.process.kill()
    server.close()
    told += page.row(row(100))
    wait_for(lambda: page.lost)
    server = Server(server.port, OWN)
    assert server.wait()
    wait_for(lambda: {"samples", "verdict", "losses"} <= panes(server.port).keys())
    wait_for(lambda: not page.lost)
    told += page.row(row(150))
    page.close()

    assert panes(server.port)["losses"]["content"]["data"][0]["x"] == [3200, 4800, 6400, 9600]
    server.close()
    assert ["does not answer" in line for line in told] == [True, False]
    assert "answers again" in told[1]


def test_our_own_server_is_started_again_when_it_dies(mortal: Server, quick: None) -> None:
    page = Page(f"http://127.0.0.1:{mortal.port}", "run", "run", {}, mortal, OWN)
    page.picture("samples", "Samples", PICTURE, 50)
    wait_for(lambda: "samples" in panes(mortal.port))
    mortal.process.kill()
    mortal.process.wait()

    wait_for(lambda: page.server is not mortal and "samples" in panes(mortal.port))
    page.close()
    assert not visdom_page.is_taken(mortal.port)


def test_a_server_that_cannot_start_is_left_alone(
    cache: Path, quick: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    started, port = list[int](), free_port()

    def start(port: int, static: Path) -> Server:
        started.append(port)
        monkeypatch.setattr(sys, "executable", shutil.which("false"))  # it ends at once
        return Server(port, static)

    monkeypatch.setattr(visdom_page, "Server", start)
    page = Page(f"http://127.0.0.1:{port}", "run", "run", {}, static=tmp_path)
    wait_for(lambda: page.lost)
    time.sleep(1.0)  # three updates
    page.close()
    assert started == [port]


@pytest.mark.parametrize("ours", [True, False])
def test_the_server_of_a_run_that_ends_is_followed_by_one_of_a_run_that_goes_on(
    cache: Path, quick: None, ours: bool
) -> None:
    shutil.copytree(OWN, cache)
    if ours:
        (cache / visdom_assets.MARK).touch()
    first = Server(free_port(), cache)
    assert first.wait()
    page, told = visdom_page.open_page(f"http://localhost:{first.port}", "run", "run", {})
    assert page is not None
    assert told == f"watch it in a browser: http://localhost:{first.port}/env/run"
    page.picture("samples", "Samples", PICTURE, 50)
    wait_for(lambda: "samples" in panes(first.port))

    first.close()
    wait_for((lambda: "samples" in panes(first.port)) if ours else (lambda: page.lost))
    assert (page.server is not None) is ours  # somebody's own server is theirs to start again
    page.close()
    assert not visdom_page.is_taken(first.port)


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="Windows cannot halt a process")
def test_a_server_that_hangs_makes_nobody_wait(mortal: Server, quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    server = mortal
    monkeypatch.setattr(visdom_page, "TIMEOUT", 60.0)
    page = Page(f"http://127.0.0.1:{server.port}", "run", "run", {})

    def shown_last() -> float:
        return panes(server.port).get("losses", {}).get("content", {}).get("data", [{}])[0].get("x", [0])[-1]

    wait_for(lambda: "verdict" in panes(server.port))
    os.kill(server.process.pid, signal.SIGSTOP)
    slowest = 0.0
    for step in range(1, 200):
        began = time.perf_counter()
        page.picture("samples", "Samples", PICTURE, 50)
        page.row(row(step))
        slowest = max(slowest, time.perf_counter() - began)
        time.sleep(0.01)
    monkeypatch.setattr(visdom_page, "TIMEOUT", 4.0)  # of the next requests; the one under way has its minute
    os.kill(server.process.pid, signal.SIGCONT)
    wait_for(lambda: shown_last() == 12736)
    os.kill(server.process.pid, signal.SIGSTOP)
    page.row(row(200))
    wait_for(lambda: page.lost)
    monkeypatch.setattr(visdom_page, "TIMEOUT", 60.0)
    os.kill(server.process.pid, signal.SIGCONT)
    wait_for(lambda: shown_last() == 12800)
    page.close()

    assert slowest < 30  # nobody waited for an answer


def test_the_server_does_without_torch() -> None:
    look = "import sys; from gan.watching import visdom_page; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", look], cwd=ROOT, check=True)


def test_visdom_is_imported_before_the_thread_starts() -> None:
    """In the thread, beside another's warnings.catch_warnings, it showed the warnings of requests and urllib3."""
    look = "import sys, threading; threading.Thread.start = lambda thread: None\n"
    look += "from gan.watching.visdom_page import Page; Page('http://127.0.0.1:1', 'run', 'run', {})\n"
    look += "assert 'visdom' in sys.modules"
    subprocess.run([sys.executable, "-c", look], cwd=ROOT, check=True)


def test_pictures_that_nobody_fetched_are_replaced(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Page(f"http://127.0.0.1:{free_port()}", "run", "run", {})
    for i in range(500):
        page.picture("samples", f"Samples {i}", PICTURE, 50)

    assert [title for title, *_ in page.pictures.values()][:1] == ["Samples 499"]
    assert len(page.pictures) == 2
    page.close()


def test_the_server_ends_with_the_process_that_started_it(cache: Path) -> None:
    server = Server(free_port(), OWN)
    assert server.wait()
    assert server.process.stdin is not None
    server.process.stdin.close()  # as the system does when a process dies

    assert server.process.wait(120) == 0


def test_our_server_listens_on_this_machine_only(server: Server) -> None:
    outside = set[str | int]()
    with contextlib.suppress(OSError):  # a name that nobody knows
        outside = {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)}
    outside -= {"127.0.0.1"}
    outside |= {"127.0.0.2"} if sys.platform == "linux" else set()  # this machine's too, but not what it listens on
    for address in outside:
        if str(address).startswith("127.") and address != "127.0.0.2":
            continue
        with socket.socket() as probe:
            probe.settimeout(1)
            assert probe.connect_ex((address, server.port)) != 0
    assert visdom_page.is_visdom(f"http://127.0.0.1:{server.port}")


def test_what_speaks_another_language_is_no_visdom() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:

        def greet() -> None:
            connection, _ = other.accept()
            with connection:
                connection.sendall(b"SSH-2.0-OpenSSH_9.6\r\n")
                connection.recv(1000)

        thread = threading.Thread(target=greet)
        thread.start()
        assert not visdom_page.is_visdom(f"http://127.0.0.1:{other.getsockname()[1]}")
        thread.join()


def test_a_running_server_is_used(server: Server, quick: None) -> None:
    page, told = visdom_page.open_page(f"http://localhost:{server.port}/", "my/run", "my run", {})

    assert page is not None
    assert page.server is None
    page.close()
    assert told == f"watch it in a browser: http://localhost:{server.port}/env/my_run"
    assert visdom_page.is_visdom(f"http://127.0.0.1:{server.port}")


def test_a_name_that_the_page_cannot_open_is_changed(server: Server, quick: None) -> None:
    name = """a+b & 'c' <d> "e" #1?"""
    page, told = visdom_page.open_page(f"http://localhost:{server.port}/", name, name, {})

    assert page is not None
    page.close()
    assert told.endswith("/env/a_b%20_%20_c_%20_d_%20_e_%20_1_")
    assert "verdict" in panes(server.port, page.env)  # its own page: its name is before no pane


@contextlib.contextmanager
def another_server(content: bytes, host: str = "127.0.0.1") -> Iterator[str]:
    """A server of another program, which always answers the same; its address."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None: ...

    with HTTPServer((host, 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://{host}:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_a_server_with_many_environments_is_recognised() -> None:
    with another_server(100_000 * b"'run', " + b"<title>visdom</title>") as address:
        assert visdom_page.is_visdom(address)


def test_over_ssh_the_way_there_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSH_CONNECTION", "10.0.0.9 50000 10.0.0.5 22")
    monkeypatch.setenv("USER", "ann")

    told = visdom_page.where("http://127.0.0.1:8097", "run", local=True)
    assert told.splitlines()[1].endswith("ssh -L 8097:127.0.0.1:8097 ann@10.0.0.5")
    assert "ssh" not in visdom_page.where("http://elsewhere:8097", "run", local=False)


def test_without_the_pages_files_the_training_goes_on(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(npm, "from_cdn", lambda assets, folder: False)
    monkeypatch.setattr(npm, "_npm", lambda: None)

    page, told = visdom_page.open_page(f"http://localhost:{free_port()}", "run", "run", {})

    assert page is None
    assert f"are not in {cache} and cannot be put there (https://unpkg.com did not deliver them all, and npm" in told
    assert "report.html" in told
    assert "the next --vis tries again" in told
    assert "\n" not in told


def test_a_far_server_that_is_silent_is_waited_for(quick: None) -> None:
    page, told = visdom_page.open_page("http://host.invalid:8097", "run", "run", {})

    assert page is not None
    assert "no visdom server answers at http://host.invalid:8097" in told
    wait_for(lambda: page.lost)
    assert "training goes on" in page.row(row(1))[0]
    page.close()


def test_a_port_that_another_program_has_is_passed_over(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visdom_assets, "page", lambda own: own)
    with another_server(b"something else") as address:
        page, told = visdom_page.open_page(address.removeprefix("http://"), "run", "run", {})

    assert page is not None
    assert page.server is not None
    assert page.port > visdom_page.port_of(address)
    assert f":{page.port}/" in told
    page.close()


@pytest.mark.skipif(sys.platform != "linux", reason="127.0.0.2 is this machine on Linux alone")
def test_a_far_server_that_wants_a_password_is_not_taken_for_silence() -> None:
    with another_server(b"<title>log in</title>", "127.0.0.2") as address:
        page, told = visdom_page.open_page(address, "run", "run", {})

    assert page is None
    assert told.startswith(f"--vis: what answers at {address} is not visdom's page; it may want a password")
