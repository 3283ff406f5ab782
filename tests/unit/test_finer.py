"""Weights with a new block at the full size: the same faces at first."""

from pathlib import Path

import torch

from benchmarks.finer import finer
from gan.device import choose_device
from gan.quality import sampling


def test_the_same_faces_come_out_at_first(tmp_path: Path) -> None:
    old = Path(__file__).resolve().parents[1] / "old_formats" / "lean" / "released.pt"
    finer(old, tmp_path / "new.pt")
    before, after = (sampling.load(path, choose_device(False)) for path in (old, tmp_path / "new.pt"))
    assert (after.model.to_rgb, after.model.d_enlarge) == ("fine", 1.5)
    faces = [torch.from_numpy(next(iter(sampler.faces(range(4))))) for sampler in (before, after)]
    assert torch.equal(*faces)
