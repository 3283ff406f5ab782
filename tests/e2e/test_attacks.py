"""Files and requests of people who mean harm: one line says what is wrong, nothing runs, and nothing is written.

The studio's routes are attacked in tests/browser/test_studio.py, where it runs; what a browser would run, there too.
"""

import contextlib
import http.client
import io
import json
import os
import pickle
import socket
import struct
import subprocess
import urllib.parse
import zipfile
import zlib
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
import torch
import visdom
from machine import free_port, little_memory
from PIL import Image

from config import CheckpointError, ConfigError
from gan import checkpoint
from gan.sharing import web_page
from gan.watching import visdom_assets
from gan.watching.visdom_page import Server

HARMFUL = "<img src=x onerror=alert(1)>"
SMALL = "--nogpu --noprojected --image_size=32 --ngf=8 --ndf=8 --batch_size=16 --precision=fp32"
SMALL = f"{SMALL} --whole=0 --max_epoch=1".split()
MUCH, PICTURE = 2**27, 2**28  # bytes to which a zip unpacks here, and fewer than a picture does
Command = Callable[..., subprocess.CompletedProcess[str]]


class Trap:
    """Pickled, it would run a program that writes a file."""

    def __init__(self, sprung: Path) -> None:
        self.sprung = sprung

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.sprung}",)


def refused(done: subprocess.CompletedProcess[str], *words: str) -> str:
    """The one line in which a program has refused a file; it holds these words."""
    assert done.returncode == 2, done.stdout + done.stderr
    line = done.stderr.strip()
    assert "\n" not in line
    assert "Traceback" not in done.stdout
    for word in words:
        assert word in line
    return line


def below(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


# Weights.


@pytest.mark.parametrize("as_zip", [True, False])
def test_code_in_weights_is_not_run(tmp_path: Path, run_here: Command, as_zip: bool) -> None:
    sprung = tmp_path / "sprung"
    content = {"program": "animegan", "format": 1, "main.0.weight": Trap(sprung)}
    torch.save(content, tmp_path / "evil.pt", _use_new_zipfile_serialization=as_zip)
    torch.save(content, tmp_path / "evil.pth", _use_new_zipfile_serialization=as_zip)
    (tmp_path / "plain.pth").write_bytes(pickle.dumps(Trap(sprung)))
    (tmp_path / "run").mkdir()
    (tmp_path / "run/latest.pt").write_bytes((tmp_path / "evil.pt").read_bytes())
    before = below(tmp_path)
    for script, *words in (
        ("generate.py", "--checkpoint=evil.pt"),
        ("generate.py", "--checkpoint=run"),
        ("generate.py", "--netg_path=evil.pth"),
        ("generate.py", "--netg_path=plain.pth"),
        ("train.py", *SMALL, "--data_path=synthetic", "--resume=run"),
        ("train.py", *SMALL, "--data_path=synthetic", "--init=evil.pt"),
        ("export.py", "--to=safetensors", "--checkpoint=evil.pt"),
    ):
        refused(run_here(script, *words), words[-1].partition("=")[2])
    assert below(tmp_path) - before <= {"run/.lock"}
    assert os.system(f"touch {sprung}") == 0  # what the trap would have done
    assert sprung.exists()


def squeezed(content: object, path: Path) -> Path:
    """Save as torch does, then compress each part: torch unpacks them again."""
    plain = io.BytesIO()
    torch.save(content, plain)
    with zipfile.ZipFile(plain) as whole, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name in whole.namelist():
            archive.writestr(name, whole.read(name))
    return path


def test_weights_that_were_compressed_by_little_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "HARMLESS", 0)
    few = torch.arange(256).repeat(8)
    assert torch.equal(checkpoint.unpickled(squeezed(few, tmp_path / "few.pt"), "cpu", ""), few)
    with pytest.raises(CheckpointError, match="unpack to far more"):
        checkpoint.unpickled(squeezed(torch.zeros(100_000), tmp_path / "many.pt"), "cpu", "")


def test_weights_that_unpack_to_far_more_than_they_are_stay_packed(tmp_path: Path, run_here: Command) -> None:
    zeros = torch.zeros(MUCH, dtype=torch.uint8)
    squeezed({"program": "animegan", "format": 1, "ema": zeros}, tmp_path / "bomb.pt")
    squeezed({"main.0.weight": zeros}, tmp_path / "bomb.pth")
    del zeros
    assert (tmp_path / "bomb.pt").stat().st_size < MUCH / 100
    with little_memory(MUCH // 2):
        refused(run_here("generate.py", "--checkpoint=bomb.pt"), "bomb.pt", "unpack", "use another file")
        refused(run_here("generate.py", "--netg_path=bomb.pth"), "bomb.pth", "unpack", "netg_200.pth")
        packed = (tmp_path / "bomb.pth").read_bytes()
        lying = packed.replace(struct.pack("<I", MUCH), struct.pack("<I", 1000))  # what a part says of its own size
        assert lying != packed
        for name in ("lying.pt", "lying.pth"):
            (tmp_path / name).write_bytes(lying)
        refused(run_here("generate.py", "--checkpoint=lying.pt"), "lying.pt", "damaged")
        refused(run_here("generate.py", "--netg_path=lying.pth"), "lying.pth", "damaged")


def test_weights_that_describe_an_enormous_network_are_said_in_one_line(tmp_path: Path, run_here: Command) -> None:
    known = {"arch": "dcgan", "nz": 100, "ngf": 64, "ndf": 8, "image_size": 32}
    for field, value in {"ngf": 10**7, "nz": 10**12, "image_size": 10**9, "ndf": -1}.items():
        content = {
            "config": {},
            "images_seen": 0,
            "step": 0,
            "ema": {},
            "discriminator": {},
            "model": known | {field: value},
        }
        torch.save({"program": "animegan", "format": 1, **content}, tmp_path / "vast.pt")
        refused(run_here("generate.py", "--checkpoint=vast.pt", "--nogpu"))


# Pictures.


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int, height: int, *chunks: bytes) -> bytes:
    """A black PNG of one bit a pixel, with further chunks before its pixels."""
    pack, row = zlib.compressobj(1), bytes(1 + (width + 7) // 8)
    data = b"".join(pack.compress(row) for _ in range(height)) + pack.flush()
    head = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + b"".join(chunks) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def webp(side: int) -> bytes:
    """A lossless WebP of one colour: five codes of one symbol each, so that no pixel takes a bit."""
    bits = side - 1 | side - 1 << 14 | 0 << 28 | 0 << 29  # sizes, no alpha, version 0
    bits |= 0 << 32 | 0 << 33 | 0 << 34  # neither transforms, nor a cache of colours, nor several codes
    bits |= sum(0b0001 << 35 + 4 * code for code in range(5))
    data = b"\x2f" + bits.to_bytes(8, "little")
    data = b"VP8L" + struct.pack("<I", len(data)) + data + bytes(len(data) % 2)
    return b"RIFF" + struct.pack("<I", 4 + len(data)) + b"WEBP" + data


def animated_webp(side: int) -> bytes:
    """A WebP of one small frame on a canvas of so many pixels a side."""
    frame = webp(16)[12:]
    head = b"\x02\0\0\0" + 2 * (side - 1).to_bytes(3, "little")
    at = bytes(6) + 2 * (15).to_bytes(3, "little") + bytes(4)
    parts = ((b"VP8X", head), (b"ANIM", bytes(6)), (b"ANMF", at + frame))
    data = b"".join(name + struct.pack("<I", len(part)) + part for name, part in parts)
    return b"RIFF" + struct.pack("<I", 4 + len(data)) + b"WEBP" + data


def gif(width: int, height: int) -> bytes:
    """A GIF of one small frame on a screen of that size."""
    small = io.BytesIO()
    Image.new("P", (1, 1)).save(small, "GIF")
    return b"GIF89a" + struct.pack("<HH", width, height) + small.getvalue()[10:]


def tiff(side: int) -> bytes:
    """A TIFF of one bit a pixel, whose only strip is short."""
    tags = {256: side, 257: side, 258: 1, 259: 5, 262: 1, 273: 8, 277: 1, 278: side, 279: 4}  # 259: LZW
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    return b"II*\0" + struct.pack("<I", 12) + bytes(4) + struct.pack("<H", len(tags)) + entries + bytes(4)


@pytest.fixture(scope="module")
def bombs() -> dict[str, bytes]:
    """Small files of pictures that are none when they are unpacked, by name."""
    return {
        "wide.png": png(60_000, 60_000),
        "wide.webp": webp(16_384),
        "canvas.webp": animated_webp(16_384),
        "screen.gif": gif(65_535, 65_535),
        "tiff.png": tiff(60_000),
    }


@pytest.fixture(scope="module")
def hostile(bombs: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with 20 faces, and with all that somebody could put beside them."""
    from gan.data import synthetic

    folder = tmp_path_factory.mktemp("hostile") / "data"
    (folder / "inside").mkdir(parents=True)
    for seed in range(20):
        name = f"{HARMFUL}.png" if seed == 0 else f"=1+{seed}.png"
        Image.fromarray(synthetic.draw(seed, 96)[0]).save(folder / "inside" / name)
    for name, content in bombs.items():
        (folder / name).write_bytes(content)
    face = (folder / "inside" / "=1+1.png").read_bytes()
    names = "../../up.png", "/up.png", "..\\..\\up.png", "C:\\up.png", "a/../../up.png"
    with zipfile.ZipFile(folder / "slip.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for i, name in enumerate(names):
            archive.writestr(name, face + bytes(i))
        link = zipfile.ZipInfo("link.png")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/hostname")
        for name in ("zeros.png", "more-zeros.png"):
            archive.writestr(name, bytes(2**25))
        archive.writestr("wide.png", bombs["wide.png"])
    (folder / "away.png").symlink_to("/etc/hostname")
    (folder / "away").symlink_to("/etc")
    os.mkfifo(folder / "pipe.png")
    os.mkfifo(folder / "pipe.zip")
    lines = ["file,hair,eyes", *(f"inside/=1+{seed}.png,=1+cmd|' /C calc'!A0,{HARMFUL}" for seed in range(1, 20))]
    lines += ["../../../etc/passwd,blue,red", "/etc/passwd,blue,red"]
    (folder / "labels.csv").write_text("\n".join(lines))
    return folder


class Page(HTMLParser):
    """The tags of a page, the values of their attributes, and its text."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags, self.handlers, self.text = list[str](), list[str](), ""
        self.feed(source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.handlers += [name for name, _ in attrs if name.startswith("on")]
        self.handlers += [f"{value}" for name, value in attrs if name in ("src", "href") and value == "x"]

    def handle_data(self, data: str) -> None:
        self.text += data


def checked(path: Path) -> Page:
    """A page whose names have run nothing."""
    page = Page(path.read_text(encoding="utf-8"))
    assert page.handlers == []
    assert "script" not in page.tags
    return page


def test_training_on_hostile_pictures_reads_the_faces_and_shows_names_as_they_are(
    hostile: Path, tmp_path: Path, run_here: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    (tmp_path / HARMFUL).symlink_to(hostile)
    above = below(hostile.parent)
    with little_memory(PICTURE):
        done = run_here("train.py", *SMALL, f"--data_path={HARMFUL}", f"--run={HARMFUL}")
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert below(hostile.parent) == above
    assert {path.name for path in tmp_path.iterdir()} == {HARMFUL, "checkpoints", "data"}
    (rejected,) = (tmp_path / "data").rglob("rejected.txt")
    reasons = dict(line.split("\t") for line in rejected.read_text(encoding="utf-8").splitlines())
    assert {"wide.png", "wide.webp", "canvas.webp", "screen.gif", "tiff.png", "pipe.png", "pipe.zip"} <= reasons.keys()
    assert {"slip.zip/zeros.png", "slip.zip/link.png", "slip.zip/wide.png", "away.png"} <= reasons.keys()
    for name in ("../../up.png", "/up.png", "..\\..\\up.png", "C:\\up.png", "a/../../up.png"):
        assert reasons[f"slip.zip/{name}"] == "its name leads out of the zip"
    page = checked(tmp_path / "checkpoints" / HARMFUL / "report.html")
    assert page.text.count(HARMFUL) >= 2


def test_preparing_hostile_pictures_writes_faces_alone(
    hostile: Path, tmp_path: Path, run_here: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    above = below(hostile.parent)
    with little_memory(2 * PICTURE):  # with the network that guesses labels
        done = run_here("prepare.py", hostile, "--out=faces", "--label=hair,eyes")
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert below(hostile.parent) == above
    report = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    wrong = {found["file"].removeprefix(f"{hostile}/"): found["kind"] for found in report["findings"]}
    for name in ("wide.png", "wide.webp", "canvas.webp", "screen.gif", "tiff.png", "slip.zip/wide.png", "away.png"):
        assert wrong[name] in ("refused", "unreadable", "truncated"), name
    for name in ("../../up.png", "/up.png", "..\\..\\up.png", "C:\\up.png", "a/../../up.png", "link.png", "zeros.png"):
        assert wrong[f"slip.zip/{name}"] == "refused"
    assert {wrong[name] for name in ("away", "pipe.png", "pipe.zip")} == {"refused", "unreadable"}
    assert report["counts"]["kept"] == 20
    table = (tmp_path / "faces/labels.csv").read_text(encoding="utf-8-sig")
    assert not any(cell[:1] in "=+@\t" for line in table.splitlines() for cell in line.split(",") if cell)
    page = checked(tmp_path / "report.html")
    assert HARMFUL in page.text


def recipe(text: bytes) -> bytes:
    """A small PNG with a text as the recipe of its face, packed."""
    return png(8, 8, chunk(b"zTXt", b"face-recipe\0\0" + zlib.compress(text, 9)))


def test_a_picture_with_a_harmful_recipe_is_said_in_one_line(
    bombs: dict[str, bytes], tmp_path: Path, run_here: Command
) -> None:
    whole = {"version": 1, "generator": "0" * 16, "seeds": [], "columns": None, "nz": 100, "latents": ""}
    packed = zlib.compress(bytes(MUCH), 9)
    files = {
        "packed.png": recipe(bytes(MUCH)),
        "packed-too.png": png(8, 8, chunk(b"iTXt", b"face-recipe\0\1\0\0\0" + packed)),
        "often.png": png(8, 8, *[chunk(b"zTXt", b"face-recipe\0\0" + zlib.compress(bytes(2**19), 9))] * 500),
        "profile.png": png(8, 8, chunk(b"iCCP", b"face-recipe\0\0" + packed)),
        "deep.png": recipe(b"[" * 500_000),
        "digits.png": recipe(json.dumps(whole | {"nz": 10}).replace("10", "9" * 100_000).encode()),
        "nothing.png": recipe(json.dumps(whole | {"nz": 0}).encode()),
        "negative.png": recipe(json.dumps(whole | {"nz": -1, "latents": "AAAAAA=="}).encode()),
        "escapes.png": recipe(json.dumps(whole | {"generator": "\x1b]0;a\x07", "latents": "AAAA" * 100 * 4}).encode()),
        **bombs,
    }
    Image.new("RGB", (8, 8)).save(tmp_path / "none.png")
    refused(run_here("generate.py", "--like=none.png", "--nogpu"), "no recipe")  # loads the generator
    with little_memory(MUCH):
        for name, content in files.items():
            (tmp_path / name).write_bytes(content)
            line = refused(run_here("generate.py", f"--like={name}", "--nogpu"), name)
            assert line.isprintable()
    assert not (tmp_path / "result.png").exists()


def test_a_picture_to_be_found_is_no_bomb(bombs: dict[str, bytes], tmp_path: Path, run_here: Command) -> None:
    with little_memory(PICTURE):
        for name, content in bombs.items():
            (tmp_path / name).write_bytes(content)
            refused(run_here("generate.py", f"--invert={name}", "--nogpu"), name, "give another one")


def test_a_run_from_elsewhere_has_no_other_pictures_than_a_run_has(
    bombs: dict[str, bytes], tmp_path: Path, run_here: Command
) -> None:
    samples = tmp_path / "run/samples"
    samples.mkdir(parents=True)
    for i, content in enumerate(bombs.values()):
        (samples / f"step-{i:08d}.png").write_bytes(content)
    Image.new("RGB", (8, 8)).save(samples / "step-00000100.png", "TIFF")
    Image.new("RGB", (8, 8)).save(samples / "step-00000101.png", "EPS")  # whose reader starts another program
    with little_memory(PICTURE):
        refused(run_here("generate.py", "--timelapse=run"), "none of its pictures can be read")


# Names in what others read.


def hostile_generator(path: Path, classes: tuple[str, ...]) -> None:
    """A small generator whose classes have these names."""
    from config import ModelConfig
    from gan import checkpoint
    from gan.classes import Classes
    from gan.training import ema
    from model import Discriminator, Generator

    kinds = (("hair", *classes),)
    fields: dict[str, Any] = {"arch": "dcgan", "image_size": 32, "nz": 20, "ngf": 8, "ndf": 8, "d_norm": "none"}
    model = ModelConfig(**fields, vocabulary=kinds)
    described = {name: getattr(model, name) for name in model.__dataclass_fields__}
    known = Classes.of(kinds, np.arange(1, 1 + len(classes))[:, None]).content()
    content = {"config": {}, "images_seen": 0, "step": 0, "ema": ema.average_of(Generator(model)).state_dict()}
    path.parent.mkdir(parents=True)
    content["discriminator"] = Discriminator(model).state_dict()
    checkpoint.save(path, {**content, "model": described, **known})


def test_names_of_classes_are_text_in_the_page_for_a_friend_and_in_the_terminal(
    tmp_path: Path, run_here: Command, lacking: Callable[[str], NoReturn]
) -> None:
    names = "</script><script>alert(1)</script>", "/*BINARY*/", "\x1b]0;a\x07", HARMFUL
    hostile_generator(tmp_path / "run/latest.pt", names)
    for words in ("--class=x", "--class"):
        done = run_here("generate.py", "--checkpoint=run/latest.pt", words, "--nogpu")
        assert done.stdout + done.stderr
        assert (done.stdout + done.stderr).replace("\n", "").isprintable()
    try:
        web_page.fetched()
    except ConfigError as error:
        lacking(str(error))
    done = run_here("export.py", "--to=html", "--checkpoint=run/latest.pt", "--out=page.html")
    assert done.returncode == 0, done.stderr
    source = (tmp_path / "page.html").read_text(encoding="utf-8")
    (described,) = [part for part in source.split("</script>") if 'id="described"' in part]
    assert json.loads(described.partition('application/json">')[2])["vocabulary"] == [["hair", *names]]
    assert "JavaScript" in source.partition("<noscript>")[2].partition("</noscript>")[0]


# The visdom server.


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server as a run starts it, and nothing more of the run."""
    with pytest.MonkeyPatch.context() as change:
        change.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        change.setattr("gan.watching.visdom_page.STARTING", 120.0)
        visdom_assets.folder().parent.mkdir(parents=True)
        server = Server(free_port(), Path(visdom.__file__).parent / "static")
        assert server.wait()
        yield server
        server.close()


def asked(port: int, path: str, body: object = None, **headers: str) -> tuple[int, str]:
    """What a server answers to a request that is sent as it is: its status and its text."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.putrequest("GET" if body is None else "POST", path, skip_host="Host" in headers)
        data = b"" if body is None else json.dumps(body).encode()
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            connection.putheader(name.replace("_", "-"), value)
        connection.endheaders(data)
        with connection.getresponse() as answer:
            return answer.status, answer.read().decode(errors="replace")


def websocket(port: int, path: str, *messages: object, **headers: str) -> int:
    """Open a websocket, and send messages to it until the server has read them; the status of the answer."""
    headers = {"Host": f"127.0.0.1:{port}", **headers, "Upgrade": "websocket", "Connection": "Upgrade"}
    headers |= {"Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "AAAA"}
    lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    with socket.create_connection(("127.0.0.1", port), 60) as connection, connection.makefile("rb") as answer:
        connection.sendall("\r\n".join(lines).encode())
        status = int(answer.readline().split()[1])
        if status == 101:
            for message in messages:
                data = json.dumps(message).encode()
                assert len(data) < 126
                connection.sendall(b"\x81" + bytes([0x80 | len(data)]) + bytes(4) + data)  # masked by zeros
            connection.sendall(b"\x88\x80" + bytes(4))  # the end
            answer.read()
        return status


def test_pages_of_others_do_not_reach_the_visdom_server(server: Server) -> None:
    port = server.port
    for host in (f"127.0.0.1:{port}", f"localhost:{port}", f"[::1]:{port}", "localhost:9000"):  # the last through ssh
        own = {"Host": host, "Origin": f"http://{host}"}
        assert asked(port, "/", Host=host)[0] == 200
        status, said = asked(port, "/env_state", {}, **own)
        assert status == 200
        assert "main" in json.loads(said)
        for path in ("/socket", "/vis_socket"):
            assert websocket(port, path, **own) == 101
    here = {"Host": f"127.0.0.1:{port}"}
    for foreign in (
        {"Host": "evil.example"},
        {"Host": f"evil.example:{port}"},
        {"Host": f"127.0.0.1.evil.example:{port}"},
        {"Host": "[::1"},
        {"Host": ""},
        {**here, "Origin": "http://evil.example"},
        {**here, "Origin": "http://127.0.0.1:1"},
        {**here, "Origin": "null"},
        {**here, "Origin": "http://[::1"},
    ):
        for path, body in (
            ("/", None),
            ("/env_state", {}),
            ("/save", {"data": ["main"]}),
            ("/static/css/style.css", None),
        ):
            status, said = asked(port, path, body, **foreign)
            assert status == 403, (foreign, path)
            assert said.count("\n") <= 1
            assert "127.0.0.1" in said
        for path in ("/socket", "/vis_socket"):
            assert websocket(port, path, **foreign) == 403


def test_names_of_environments_are_no_paths(server: Server) -> None:
    port, kept = server.port, visdom_assets.folder().with_name("visdom-environments")
    victim = kept.parent / "victim.json"
    victim.write_text('{"jsons": {"secret": {"title": "secret"}}, "reload": {}}')
    (kept.parent / ".json").write_text(victim.read_text())
    before = below(kept.parent)
    for name in ("../victim", "..\\victim", str(kept.parent / "victim"), "a\nb"):
        assert asked(port, "/env/main", {"eid": name})[0] >= 400
        for room in ("env", "compare"):
            assert asked(port, f"/{room}/{urllib.parse.quote(name, safe='')}", {"sid": "none"})[0] == 403
        asked(port, "/win_data", {"eid": name, "win": None, "data": "{}"})  # a slash becomes another sign here
        for path in ("/save", "/delete_env", "/fork_env"):
            asked(port, path, {"eid": name, "prev_eid": "main", "data": [name]})
    told = json.loads(asked(port, "/env_state", {})[1])
    assert not any(set(name) & set("/\\\n") for name in told)
    for message in (
        {"cmd": "save", "eid": "../victim", "prev_eid": "main", "data": {}},
        {"cmd": "delete_env", "eid": "../victim"},
    ):
        assert websocket(port, "/socket", message) == 101
    assert victim.is_file()
    new = below(kept.parent) - before
    assert all(name.startswith("visdom-environments/") for name in new)


def test_no_file_of_the_machine_is_served_by_visdom(server: Server) -> None:
    for start in ("/", "/static/", "/user/", "/env/", "/compare/", "/static/css/"):
        for path in (
            *(f"{up * 9}etc/passwd" for up in ("../", "%2e%2e/", "..%2f", "..%5C", "/")),
            "%3Cscript%3Ealert(1)%3C%2Fscript%3E",
        ):
            _, said = asked(server.port, start + path)
            for secret in ("root:", "<script>alert", "Traceback", "site-packages"):
                assert secret not in said, start + path


def test_servers_listen_to_this_machine_alone(server: Server) -> None:
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", server.port)) == 0
    for family, address in (
        (socket.AF_INET, "127.0.0.2"),
        (socket.AF_INET6, "::1"),
    ):  # answer where all are listened to
        with contextlib.suppress(OSError), socket.socket(family) as probe:
            probe.settimeout(10)
            assert probe.connect_ex((address, server.port)) != 0


def test_more_than_any_pane_needs_is_not_taken_by_visdom(server: Server) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    connection.putrequest("POST", "/events")
    connection.putheader("Content-Length", str(2**29))
    connection.endheaders()
    with contextlib.closing(connection), contextlib.suppress(ConnectionError):  # rather than wait for the rest
        assert connection.getresponse().status >= 400
    assert asked(server.port, "/env_state", {})[0] == 200
