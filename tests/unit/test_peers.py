"""A peer's program, stopped by the clock: its generator is found in its loop, whatever device it asks for."""

import json
import os
import subprocess
import sys
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
import sys, time
import torch
from torch import nn

assert torch.cuda.is_available() and "--niter=100000" in sys.argv
device = torch.device("cuda", 0)
assert isinstance(device, torch.device) and torch.zeros(1, device=device).cuda().device.type == "cpu"
nz, dataloader = 3, [0] * 10
netG = nn.Sequential(nn.ConvTranspose2d(nz, 3, 8), nn.Tanh()).to(device)
opt = type("Options", (), {"batchSize": 5})
event = torch.cuda.Event(enable_timing=True)
for epoch in range(100_000):
    for i in range(10):
        event.record(torch.cuda.current_stream(device))
        try:
            time.sleep(0.1)
        except Exception:
            pass
"""


def test_a_loop_is_stopped_when_its_time_is_up_and_its_generator_draws(tmp_path: Path) -> None:
    home = tmp_path / "peers/examples/dcgan"
    home.mkdir(parents=True)
    (home / "main.py").write_text(PROGRAM)
    words = [f"--checkout={tmp_path / 'peers'}", "--data_path=faces", f"--out={tmp_path}", "--minutes=0.1", "--n=60"]
    child = [sys.executable, "-m", "benchmarks.peers", *words, "--child=dcgan"]
    done = subprocess.run(child, cwd=ROOT, env=os.environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    found = json.loads((tmp_path / "dcgan.json").read_text())
    assert found["pixels"] == 8
    assert found["images_seen"] % 5 == 0
    assert 6 <= found["seconds"] < 60
    pictures = sorted((tmp_path / "samples/dcgan").iterdir())
    assert [path.name for path in pictures] == [f"{n:05d}.png" for n in range(60)]
    with Image.open(pictures[0]) as first, Image.open(pictures[1]) as second:
        assert first.size == (8, 8)
        assert first.tobytes() != second.tobytes()
    assert (tmp_path / "dcgan-faces.png").is_file()
