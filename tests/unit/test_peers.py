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

assert "--niter=100000" in sys.argv
nz, dataloader = 3, [0] * 10
netG = nn.Sequential(nn.ConvTranspose2d(nz, 3, 8), nn.Tanh())
opt = type("Options", (), {"batchSize": 5})
for epoch in range(100_000):
    for i in range(10):
        try:
            time.sleep(0.1)
        except Exception:
            pass
"""

ASKS_FOR_CUDA = """
import torch
from torch import nn
from benchmarks.peers import on_the_cpu

on_the_cpu()
assert torch.cuda.is_available()
device = torch.device("cuda", 0)
assert isinstance(device, torch.device) and torch.zeros(1, device=device).cuda().device.type == "cpu"
torch.cuda.Event(enable_timing=True).record(torch.cuda.current_stream(device))
network = nn.Linear(1, 1).to(device)
before = network.weight.detach().clone()
optimizer = torch.optim.Adam(network.parameters(), betas=[0, 0.99])
network(torch.ones(1, 1)).sum().backward()
optimizer.step()
assert not torch.equal(network.weight, before)


class Order(torch.utils.data.Sampler):
    def __init__(self, faces):
        super().__init__(faces)


Order([1, 2])
"""


def test_a_program_that_asks_for_cuda_trains_on_the_cpu() -> None:
    done = subprocess.run([sys.executable, "-c", ASKS_FOR_CUDA], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_loop_is_stopped_when_its_time_is_up_and_its_generator_draws(tmp_path: Path) -> None:
    home = tmp_path / "peers/examples/dcgan"
    home.mkdir(parents=True)
    (home / "main.py").write_text(PROGRAM)
    words = [f"--checkout={tmp_path / 'peers'}", "--data_path=faces", f"--out={tmp_path}", "--minutes=0.03", "--n=60"]
    child = [sys.executable, "-m", "benchmarks.peers", *words, "--child=dcgan"]
    done = subprocess.run(child, cwd=ROOT, env=os.environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    found = json.loads((tmp_path / "dcgan.json").read_text())
    assert found["pixels"] == 8
    assert found["images_seen"] > 0
    assert 1.8 <= found["seconds"] < 60
    pictures = sorted((tmp_path / "samples/dcgan").iterdir())
    assert [path.name for path in pictures] == [f"{n:05d}.png" for n in range(60)]
    with Image.open(pictures[0]) as first, Image.open(pictures[1]) as second:
        assert first.size == (8, 8)
        assert first.tobytes() != second.tobytes()
    assert (tmp_path / "dcgan-faces.png").is_file()
