"""Nothing leaves the machine but what the user was told, whatever the packages do that the program uses."""

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
import os, sys, threading, time, urllib.request

def tell(line):  # apart from what the studio prints: two threads may print into each other's lines
    with open("told", "a") as file:
        file.write(line + "\\n")

def hook(event, args):
    if event in ("socket.getaddrinfo", "socket.gethostbyname", "socket.connect"):
        host = args[1] if event == "socket.connect" else args[0]
        host = str(host[0] if isinstance(host, tuple) else host)
        if not any(local in host for local in ("127.0.0.1", "localhost", "::1", "0.0.0.0")):
            tell(f"asked for {host}")

sys.addaudithook(hook)
sys.path.insert(0, sys.argv[1])
from gan.sharing import onnx_file
import huggingface_hub, matplotlib.pyplot, onnxruntime, torch
import app

def end():
    while True:
        try:
            urllib.request.build_opener(urllib.request.ProxyHandler({})).open(f"http://127.0.0.1:{sys.argv[2]}/").read()
            break
        except OSError:
            time.sleep(0.2)
    tell("served")
    os._exit(0)

threading.Thread(target=end, daemon=True).start()
app.main(app.StudioConfig(port=int(sys.argv[2]), gpu=False), {})
"""


def test_the_studio_and_what_exports_ask_nobody_on_the_network_nor_leave_a_number(tmp_path: Path) -> None:
    """Also with a proxy that cannot be used, since nothing is asked through it."""
    proxy = "socks://127.0.0.1:1"
    for package in ("gradio", "onnxruntime", "huggingface_hub"):
        pytest.importorskip(package)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    home = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache"), "all_proxy": proxy, "HTTPS_PROXY": proxy}
    kept = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    traced = ["strace", "-f", "-qq", "-e", "trace=connect", "-o", "calls"] if shutil.which("strace") else []
    done = subprocess.run(
        [*traced, sys.executable, script, ROOT, str(port)],
        cwd=tmp_path,
        env=kept | home,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "told").read_text().splitlines() == ["served"]
    assert not list(tmp_path.rglob("deviceid"))
    calls = (tmp_path / "calls").read_text().splitlines() if traced else []
    assert [line for line in calls if "AF_INET" in line and "127.0.0.1" not in line and '"::1"' not in line] == []
