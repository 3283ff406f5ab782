"""Weights of the book's program: read in both forms, recognised by their shapes, and generating as in the book."""

import itertools
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from config import CheckpointError, ModelConfig
from gan import book_weights
from gan.images import to_pixels
from gan.latent import latents
from gan.quality import sampling

CPU = torch.device("cpu")


def netg(nz: int, ngf: int, stages: int = 4, kernel: int = 5, channels: int = 3) -> nn.Sequential:
    """The generator as the book writes it, for 96 pixels with four stages and kernel 5."""
    widths = [ngf * min(8, 2**i) for i in reversed(range(stages))]
    layers: list[nn.Module] = [nn.ConvTranspose2d(nz, widths[0], 4, 1, 0, bias=False)]
    for wide, narrow in itertools.pairwise(widths):
        layers += [nn.BatchNorm2d(wide), nn.ReLU(True), nn.ConvTranspose2d(wide, narrow, 4, 2, 1, bias=False)]
    stride = 3 if kernel == 5 else 2
    layers += [nn.BatchNorm2d(ngf), nn.ReLU(True), nn.ConvTranspose2d(ngf, channels, kernel, stride, 1, bias=False)]
    return nn.Sequential(*layers, nn.Tanh())


def netd(ndf: int, edition: int, channels: int = 3) -> nn.Sequential:
    """The discriminator as the book writes it, for 96 pixels; the first edition's ends in a sigmoid."""
    layers: list[nn.Module] = [nn.Conv2d(channels, ndf, 5, 3, 1, bias=False), nn.LeakyReLU(0.2, True)]
    for width in (ndf, 2 * ndf, 4 * ndf):
        layers += [nn.Conv2d(width, 2 * width, 4, 2, 1, bias=False), nn.BatchNorm2d(2 * width), nn.LeakyReLU(0.2, True)]
    layers += [nn.Conv2d(8 * ndf, 1, 4, 1, 0, bias=False)]
    return nn.Sequential(*layers, *([nn.Sigmoid()] if edition == 1 else []))


def shaken(network: nn.Sequential) -> nn.Sequential:
    """With weights and statistics that are not those of a new network."""
    torch.manual_seed(0)
    for tensor in network.state_dict().values():
        if tensor.is_floating_point():
            tensor.copy_(0.5 + torch.rand_like(tensor) if tensor.dim() == 1 else 0.1 * torch.randn_like(tensor))
    return network.eval()


def save(network: nn.Sequential, path: Path, old_form: bool = False, prefix: str = "main.") -> Path:
    weights = {f"{prefix}{name}": weight for name, weight in network.state_dict().items()}
    if old_form:  # nor did BatchNorm count its batches then
        weights = {name: weight for name, weight in weights.items() if not name.endswith("num_batches_tracked")}
    torch.save(weights, path, _use_new_zipfile_serialization=not old_form)
    return path


@pytest.mark.parametrize("old_form", [False, True])
@pytest.mark.parametrize("edition", [1, 2])
def test_faces_and_their_order_are_those_of_the_book(tmp_path: Path, old_form: bool, edition: int) -> None:
    g, d = shaken(netg(10, 8)), shaken(netd(4, edition))
    paths = save(g, tmp_path / "netg_200.pth", old_form), save(d, tmp_path / "netd_200.pth", old_form)
    sampler = sampling.load_book(*paths, CPU)
    assert sampler.model == ModelConfig(arch="book", image_size=96, nz=10, ngf=8, ndf=4, d_norm="batch")
    with torch.no_grad():
        fake = g(latents(range(64), 10)[:, :, None, None])
        scores = d(fake).view(-1)
    assert np.abs(np.concatenate(list(sampler.faces(range(64)))).astype(int) - to_pixels(fake)).max() <= 1
    assert sampler.best(range(64), 5) == scores.topk(5)[1].tolist()


@pytest.mark.parametrize(("stages", "kernel", "size"), [(4, 4, 64), (3, 4, 32), (3, 5, 48), (5, 4, 128)])
def test_the_size_is_read_from_the_shapes(tmp_path: Path, stages: int, kernel: int, size: int) -> None:
    path = save(shaken(netg(6, 4, stages, kernel, channels=1)), tmp_path / "netg.pth")
    sampler = sampling.load_book(path, None, CPU)
    assert next(sampler.faces([0])).shape == (1, size, size, 1)
    with pytest.raises(ValueError, match="no discriminator"):
        sampler.best(range(4), 2)


def test_names_of_several_gpus_are_understood(tmp_path: Path) -> None:
    path = save(shaken(netg(6, 4)), tmp_path / "netg.pth", prefix="module.main.")
    assert sampling.load_book(path, None, CPU).model.nz == 6


class Trap:
    """Runs code when it is unpickled."""

    def __init__(self, sprung: Path) -> None:
        self.sprung = sprung

    def __reduce__(self) -> Any:
        return Path.touch, (self.sprung,)


def wrong_files(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Write files that are not weights of the book; yields each name with words of its answer."""
    yield "gone.pth", ["there is no such file", "docs/from-the-book.md"]
    (folder / "text.pth").write_text("not weights")
    yield "text.pth", ["netg_200.pth"]
    (folder / "empty.pth").touch()
    yield "empty.pth", ["netg_200.pth"]
    whole = save(netg(6, 4), folder / "whole.pth").read_bytes()
    odd = nn.Sequential(nn.ConvTranspose2d(6, 9, 4), *list(netg(6, 4))[1:])
    odd[3] = nn.ConvTranspose2d(9, 16, 4, 2, 1, bias=False)
    save(odd, folder / "odd.pth")
    yield "odd.pth", ["9, 16, 8, 4 channels", "32, 16, 8, 4"]
    (folder / "cut.pth").write_bytes(whole[: len(whole) // 2])
    yield "cut.pth", ["damaged"]
    torch.save({"main.0.weight": Trap(folder / "sprung")}, folder / "trap.pth")
    yield "trap.pth", ["was not loaded"]
    with open(folder / "old-trap.pth", "wb") as file:
        pickle.dump(Trap(folder / "sprung"), file)
    yield "old-trap.pth", ["netg_200.pth"]
    torch.save(torch.zeros(3), folder / "tensor.pth")
    yield "tensor.pth", ["not a plain state dict"]
    torch.save({"layer.weight": torch.zeros(3)}, folder / "other.pth")
    yield "other.pth", ["layer.weight", "main.0.weight"]
    torch.save({"main.0.weight": torch.zeros(3, 4, 4, 4)}, folder / "one.pth")
    yield "one.pth", ["too few"]
    save(netg(6, 2, stages=2, kernel=4), folder / "tiny.pth")
    yield "tiny.pth", ["16 pixels", "32, 48"]
    torch.save({"program": "animegan", "main.0.weight": torch.zeros(1)}, folder / "ours.pth")
    yield "ours.pth", ["--checkpoint"]


def test_wrong_files_are_answered_in_one_line_and_not_run(tmp_path: Path) -> None:
    for name, parts in wrong_files(tmp_path):
        with pytest.raises(CheckpointError) as refused:
            sampling.load_book(tmp_path / name, None, CPU)
        message = str(refused.value)
        assert message.startswith(str(tmp_path / name))
        assert "\n" not in message
        for part in parts:
            assert part in message, name
    assert not (tmp_path / "sprung").exists()


def test_files_of_two_trainings_are_refused(tmp_path: Path) -> None:
    g, d = save(netg(6, 4, stages=4, kernel=4), tmp_path / "g.pth"), save(netd(4, 2), tmp_path / "d.pth")
    with pytest.raises(CheckpointError, match="image_size 96 there and 64 here"):
        book_weights.networks(g, d)


def test_swapped_files_are_told_apart(tmp_path: Path) -> None:
    g, d = save(netg(6, 4), tmp_path / "g.pth"), save(netd(4, 2), tmp_path / "d.pth")
    for paths, words in (
        ((d, None), "is it the discriminator"),
        ((None, g), "is it the generator"),
        ((d, g), "is it the"),
    ):
        with pytest.raises(CheckpointError, match=words):
            book_weights.networks(*paths)
