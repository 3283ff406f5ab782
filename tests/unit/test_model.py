"""The two networks: the book's first edition to the letter, and what must hold at every size."""

import dataclasses
import re
from typing import Any, get_args

import numpy as np
import pytest
import torch
from oracles import exact_penalty
from torch import Tensor, nn
from torch.nn.functional import conv2d, interpolate

from config import IMAGE_SIZES, Arch, CheckpointError, ModelConfig
from gan.data import synthetic
from gan.imagenet import Mixing
from gan.images import to_tensor
from model import (
    ENLARGED,
    FEW_PIXELS,
    Discriminator,
    Generator,
    GeneratorBlock,
    Modulation,
    NearestConv,
    Projected,
    Shortcut,
    SpectralConv,
)

ARCHS: tuple[Arch, ...] = get_args(Arch)
KINDS = [*((arch, False) for arch in ARCHS), *((arch, True) for arch in ARCHS if arch != "book")]
"""Generators by name, and whether they are fine."""
SMALL = ModelConfig(arch="dcgan", image_size=32, nz=10, ngf=8, ndf=8)
BOOK = ModelConfig(arch="book", image_size=96, nz=100, ngf=64, ndf=64, d_norm="batch")

# Layers as chapter 7 of the book lists them: (in, out, kernel, stride, padding), all without bias.
BOOK_GENERATOR = [
    ("ConvTranspose2d", 100, 512, 4, 1, 0), ("BatchNorm2d", 512), ("ReLU",),
    ("ConvTranspose2d", 512, 256, 4, 2, 1), ("BatchNorm2d", 256), ("ReLU",),
    ("ConvTranspose2d", 256, 128, 4, 2, 1), ("BatchNorm2d", 128), ("ReLU",),
    ("ConvTranspose2d", 128, 64, 4, 2, 1), ("BatchNorm2d", 64), ("ReLU",),
    ("ConvTranspose2d", 64, 3, 5, 3, 1), ("Tanh",),
]  # fmt: skip
BOOK_DISCRIMINATOR = [
    ("Conv2d", 3, 64, 5, 3, 1), ("LeakyReLU", 0.2),
    ("Conv2d", 64, 128, 4, 2, 1), ("BatchNorm2d", 128), ("LeakyReLU", 0.2),
    ("Conv2d", 128, 256, 4, 2, 1), ("BatchNorm2d", 256), ("LeakyReLU", 0.2),
    ("Conv2d", 256, 512, 4, 2, 1), ("BatchNorm2d", 512), ("LeakyReLU", 0.2),
    ("Conv2d", 512, 1, 4, 1, 0),
]  # fmt: skip


def changed(config: ModelConfig, **values: Any) -> ModelConfig:
    return dataclasses.replace(config, **values)


def layers(network: Generator | Discriminator) -> list[tuple[object, ...]]:
    """Describe a network as the book lists it."""
    found: list[tuple[object, ...]] = []
    for layer in network.main:
        numbers: tuple[object, ...] = ()
        if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d):
            assert (layer.bias, layer.groups, layer.output_padding, layer.dilation) == (None, 1, (0, 0), (1, 1))
            pairs = layer.kernel_size, layer.stride, layer.padding
            assert all(pair == (pair[0], pair[0]) for pair in pairs)
            numbers = (layer.in_channels, layer.out_channels, *(pair[0] for pair in pairs))
        elif isinstance(layer, nn.BatchNorm2d):
            assert layer.affine
            assert (layer.eps, layer.momentum) == (1e-5, 0.1)
            numbers = (layer.num_features,)
        elif isinstance(layer, nn.LeakyReLU):
            numbers = (layer.negative_slope,)
        found.append((type(layer).__name__, *numbers))
    return found


def test_book_networks_are_those_of_the_first_edition() -> None:
    assert layers(Generator(BOOK)) == BOOK_GENERATOR
    assert layers(Discriminator(BOOK)) == BOOK_DISCRIMINATOR


@pytest.mark.parametrize(("network", "listed"), [(Generator, BOOK_GENERATOR), (Discriminator, BOOK_DISCRIMINATOR)])
def test_book_weights_have_the_names_and_number_of_the_first_edition(network: Any, listed: list[Any]) -> None:
    names, count = [], 0
    for i, (kind, *numbers) in enumerate(listed):
        if "Conv" in kind:
            names.append(f"main.{i}.weight")
            count += numbers[0] * numbers[1] * numbers[2] ** 2
        elif kind == "BatchNorm2d":
            names += [f"main.{i}.{x}" for x in "weight bias running_mean running_var num_batches_tracked".split()]
            count += 2 * numbers[0]
    built = network(BOOK)
    assert list(built.state_dict()) == names
    assert sum(p.numel() for p in built.parameters()) == count


@pytest.mark.parametrize(("arch", "fine"), KINDS)
@pytest.mark.parametrize("size", IMAGE_SIZES)
def test_every_size_has_faces_of_that_size_and_one_logit_each(size: int, arch: Arch, fine: bool) -> None:
    config = changed(SMALL, arch=arch, fine=fine, image_size=size, ngf=4, ndf=4)
    with torch.no_grad():
        faces = Generator(config)(torch.randn(2, config.nz))
        logits = Discriminator(config)(faces)
    assert faces.shape == (2, 3, size, size)
    assert logits.shape == (2, 1, 1)


@pytest.mark.parametrize("size", [128, 192, 256])
def test_large_faces_make_the_networks_deeper_and_not_wider_than_the_book(size: int) -> None:
    config = changed(SMALL, arch="book", image_size=size, ngf=4, ndf=6)
    for network, width in ((Generator(config), 4), (Discriminator(config), 6)):
        convolutions = [m for m in network.modules() if isinstance(m, nn.Conv2d | nn.ConvTranspose2d)]
        assert max(min(conv.weight.shape[:2]) for conv in convolutions) == 8 * width


@pytest.mark.parametrize(("arch", "fine"), KINDS)
def test_smallest_networks_that_the_options_allow_work(arch: Arch, fine: bool) -> None:
    config = changed(SMALL, arch=arch, fine=fine, nz=1, ngf=1, ndf=1)
    faces = Generator(config)(torch.randn(3, 1))
    Discriminator(config)(faces).sum().backward()
    assert faces.shape == (3, 3, 32, 32)
    assert faces.std(0).max() > 0  # depends on z


@pytest.mark.parametrize("d_norm", ["batch", "none"])
def test_single_face_gets_a_logit(d_norm: str) -> None:
    discriminator = Discriminator(changed(SMALL, d_norm=d_norm)).eval()
    assert discriminator(torch.zeros(1, 3, 32, 32)).shape == (1, 1, 1)


@pytest.mark.parametrize(("arch", "fine"), KINDS)
def test_faces_fill_the_range_and_never_leave_it(arch: Arch, fine: bool) -> None:
    torch.manual_seed(0)
    generator = Generator(changed(SMALL, arch=arch, fine=fine, ngf=32))
    for parameter in generator.parameters():
        nn.init.normal_(parameter)  # far larger than any trained weight
    with torch.no_grad():
        faces = generator(torch.randn(16, SMALL.nz))
    assert -1 <= faces.min() < -0.99
    assert 0.99 < faces.max() <= 1


def test_logits_are_not_squeezed() -> None:
    discriminator = Discriminator(SMALL)
    for parameter in discriminator.parameters():
        nn.init.normal_(parameter)
    logits = discriminator(torch.randn(16, 3, 32, 32))
    assert logits.min() < -10
    assert logits.max() > 10


@pytest.mark.parametrize("d_norm", ["batch", "none"])
def test_initial_weights_are_those_of_dcgan(d_norm: str) -> None:
    config = changed(SMALL, arch="book", ngf=32, ndf=32, d_norm=d_norm)
    torch.manual_seed(0)
    for network in (Generator(config), Discriminator(config)):
        for name, parameter in network.named_parameters():
            if name.endswith("bias"):
                assert not parameter.any(), name
                continue
            mean = 0.0 if parameter.dim() == 4 else 1.0  # convolutions, and the scales of BatchNorm
            deviation = 0.02 / parameter.numel() ** 0.5
            assert parameter.mean().item() == pytest.approx(mean, abs=5 * deviation), name
            assert parameter.std().item() == pytest.approx(0.02, abs=5 * deviation / 2**0.5), name


@pytest.mark.parametrize(("arch", "fine"), KINDS)
def test_grey_faces_have_one_channel(arch: Arch, fine: bool) -> None:
    config = changed(SMALL, arch=arch, fine=fine, channels=1)
    faces = Generator(config)(torch.randn(2, config.nz))
    assert faces.shape == (2, 1, 32, 32)
    assert Discriminator(config)(faces).shape == (2, 1, 1)


def blocks(generator: Generator) -> dict[int, list[tuple[int, int]]]:
    """A generator's residual blocks at each resolution: their channels, outside and inside, in order."""
    found: dict[int, list[tuple[int, int]]] = {}

    def note(module: nn.Module, _: object, out: Tensor) -> None:
        inner = module.branch[2].out_channels  # pyright: ignore[reportIndexIssue, reportAttributeAccessIssue]
        found.setdefault(out.shape[-1], []).append((out.shape[1], inner))

    for module in generator.modules():
        if isinstance(module, GeneratorBlock):
            module.register_forward_hook(note)
    generator(torch.randn(2, SMALL.nz))
    return found


@pytest.mark.parametrize(
    ("arch", "size", "wanted"),
    [
        ("dcgan", 96, {12: [(32, 16)] * 2, 24: [(16, 8)] * 2, 48: [(8, 4)] * 2}),
        ("dcgan", 64, {8: [(32, 16)] * 2, 16: [(16, 8)] * 2, 32: [(8, 4)] * 2}),
        ("dcgan", 256, {8: [(32, 16)] * 2, 16: [(32, 16)] * 2, 32: [(32, 16)] * 2}),
        ("resnet", 96, {6: [(64, 64)], 12: [(32, 32)], 24: [(16, 16)], 48: [(8, 8)]}),
        ("resnet", 64, {4: [(64, 64)], 8: [(32, 32)], 16: [(16, 16)], 32: [(8, 8)]}),
        ("book", 96, {}),
    ],
)
def test_residual_blocks_are_where_they_belong(arch: Arch, size: int, wanted: dict[int, list[tuple[int, int]]]) -> None:
    assert blocks(Generator(changed(SMALL, arch=arch, image_size=size))) == wanted
    if arch != "book":  # which has no such block
        finer = blocks(Generator(changed(SMALL, arch=arch, image_size=size, fine=True)))
        assert finer == {**wanted, size: [(2, 2)]}


@pytest.mark.parametrize(("arch", "fine"), KINDS)
def test_z_modulates_every_map_but_the_first(arch: Arch, fine: bool) -> None:
    config = changed(SMALL, arch=arch, fine=fine)
    generator, z = Generator(config).eval(), torch.randn(2, SMALL.nz)
    modulations = [layer for layer in generator.main if isinstance(layer, Modulation)]
    widths = {"book": [], "dcgan": [16, 16, 16, 8, 8, 8], "resnet": [16, 8]}[arch]
    assert [layer.out_features for layer in modulations] == [2 * width for width in widths + [2] * fine]
    with torch.no_grad():
        before = generator(z)
        for layer in modulations:
            torch.nn.init.zeros_(layer.weight)
        assert torch.equal(generator(z), before) == (arch == "book")


def test_modulation_sets_gain_and_shift_of_each_channel() -> None:
    x, z, layer = torch.randn(2, 3, 5, 5), torch.randn(2, SMALL.nz), Modulation(SMALL.nz, 3)
    torch.nn.init.zeros_(layer.weight)
    assert torch.equal(layer(x, z), x)
    layer.bias.data[:] = torch.tensor([1.0, 0, 0, 0, 5, 0])
    assert torch.equal(layer(x, z), torch.stack([2 * x[:, 0], x[:, 1] + 5, x[:, 2]], 1))


@pytest.mark.parametrize(("arch", "fine"), [kind for kind in KINDS if kind[0] != "book"])
def test_residual_networks_start_as_their_shortcuts(arch: Arch, fine: bool) -> None:
    generator = Generator(changed(SMALL, arch=arch, fine=fine))
    for layer in generator.modules():  # so that the maps have a size that shows
        if isinstance(layer, nn.ConvTranspose2d):
            nn.init.kaiming_normal_(layer.weight)
    z = torch.randn(8, SMALL.nz)
    with torch.no_grad():
        before = generator(z)
        for module in generator.modules():
            if isinstance(module, GeneratorBlock):
                module.forward = lambda x: x
        torch.testing.assert_close(generator(z), before)
    assert before.std() > 1e-3  # the signal does not fade


def test_shortcuts_keep_the_size_of_their_signal() -> None:
    shortcuts = [m for m in Generator(changed(SMALL, arch="resnet", ngf=64)).modules() if isinstance(m, Shortcut)]
    assert shortcuts
    for shortcut in shortcuts:
        with torch.no_grad():
            out = shortcut(torch.randn(8, shortcut.in_channels, 8, 8))
        assert out.std().item() == pytest.approx(1, rel=0.2)


@pytest.mark.parametrize(("arch", "fine"), KINDS)
@pytest.mark.parametrize("d_norm", ["batch", "none"])
def test_all_parameters_get_a_gradient_after_a_step(d_norm: str, arch: Arch, fine: bool) -> None:
    torch.manual_seed(0)
    config = changed(SMALL, arch=arch, fine=fine, d_norm=d_norm)
    generator, discriminator = Generator(config), Discriminator(config)
    parameters = [*generator.parameters(), *discriminator.parameters()]
    optimizer = torch.optim.Adam(parameters, 1e-3)
    for _ in range(2):  # the branches' first convolutions get theirs once the second ones are not 0
        optimizer.zero_grad()
        discriminator(generator(torch.randn(4, config.nz))).square().sum().backward()
        optimizer.step()
    names = [*(n for n, _ in generator.named_parameters()), *(n for n, _ in discriminator.named_parameters())]
    assert [name for name, p in zip(names, parameters, strict=True) if p.grad is None or not p.grad.any()] == []


def test_input_of_the_discriminator_is_left_alone() -> None:
    """Activations that work in place must not reach what is still needed."""
    faces = torch.rand(2, 3, 32, 32) * 2 - 1
    kept = faces.clone()
    Discriminator(SMALL)(faces)
    assert torch.equal(faces, kept)


def test_discriminator_can_be_differentiated_twice() -> None:
    """Its activations work in place; the exact penalty's pull on its weights must be right all the same.

    Without biases the penalty is homogeneous in the weights of each layer, so that by Euler's theorem
    <W, dP/dW> is its degree, 2, times P.
    """
    torch.manual_seed(0)
    discriminator = Discriminator(SMALL).eval()
    weights = [p for p in discriminator.parameters() if p.dim() == 4]
    for weight in weights:
        nn.init.normal_(weight, 0, 0.1)
    penalty = exact_penalty(discriminator, torch.rand(4, 3, 32, 32) * 2 - 1)
    pulls = torch.autograd.grad(penalty, weights)
    assert all(pull.any() for pull in pulls)
    for weight, pull in zip(weights, pulls, strict=True):
        size = weight.norm() * pull.norm()
        assert (weight * pull).sum().item() == pytest.approx(2 * penalty.item(), rel=1e-3, abs=1e-4 * size.item())


def test_without_batchnorm_a_logit_depends_on_its_own_image_alone() -> None:
    discriminator = Discriminator(SMALL)
    images = torch.randn(6, 3, 32, 32, requires_grad=True)
    (gradient,) = torch.autograd.grad(discriminator(images)[2].sum(), images)
    touched = gradient.flatten(1).abs().sum(1) > 0
    assert touched.tolist() == [False, False, True, False, False, False]


def test_batchnorm_mixes_the_batch() -> None:
    """The reason why penalties are refused with it; without this the test above could not fail."""
    discriminator = Discriminator(changed(SMALL, d_norm="batch"))
    images = torch.randn(6, 3, 32, 32, requires_grad=True)
    (gradient,) = torch.autograd.grad(discriminator(images)[2].sum(), images)
    assert (gradient.flatten(1).abs().sum(1) > 0).all()


def middle_of_a_flat_face(size: int) -> Tensor:
    """The middle of a face of the book's network from equal features and weights: how evenly pixels are covered."""
    generator = Generator(changed(SMALL, arch="book", image_size=size)).eval()
    for module in generator.modules():
        if isinstance(module, nn.Conv2d | nn.ConvTranspose2d):  # a mean, so that ones stay about one
            up = module.stride[0] ** 2 if isinstance(module, nn.ConvTranspose2d) else 1
            nn.init.constant_(module.weight, up / module.in_channels / module.kernel_size[0] ** 2)
    with torch.no_grad():
        face = generator(torch.ones(1, SMALL.nz))[0]
    middle = face[:, 3 * size // 8 : 5 * size // 8, 3 * size // 8 : 5 * size // 8]
    assert 0.01 < middle.abs().max() < 0.99  # not all the same for being saturated
    return middle


@pytest.mark.parametrize("arch", ["dcgan", "resnet"])
def test_smooth_endings_cover_all_pixels_evenly(arch: Arch) -> None:
    generator = Generator(changed(SMALL, arch=arch))
    *_, grow, leaky, last, tanh = generator.main  # the layers of `to_rgb`
    assert isinstance(last, nn.Conv2d)
    nn.init.constant_(last.weight, 1 / last.in_channels / 9)
    with torch.no_grad():
        face = nn.Sequential(grow, leaky, last, tanh)(torch.ones(1, last.in_channels, 16, 16))[0]
    middle = face[:, 4:-4, 4:-4]
    assert 0.01 < middle.abs().max() < 0.99
    assert (middle.amax((1, 2)) - middle.amin((1, 2))).max() < 1e-5


def test_ending_of_the_book_covers_pixels_unevenly() -> None:
    """Kernel 5 at stride 3: the grid of speckle in the book's faces."""
    middle = middle_of_a_flat_face(96)
    assert middle.max() > 2 * middle.min() > 0
    torch.testing.assert_close(middle[:, 3:, 3:], middle[:, :-3, :-3])


PROJECTED = changed(SMALL, projected=True)


@pytest.mark.parametrize("size", IMAGE_SIZES)
@pytest.mark.parametrize("channels", [1, 3])
def test_projected_heads_judge_places_of_faces_of_every_size(size: int, channels: int) -> None:
    discriminator = Discriminator(changed(PROJECTED, image_size=size, channels=channels)).eval()
    faces = torch.rand(3, channels, size, size, generator=torch.Generator().manual_seed(0)) * 2 - 1
    logits = discriminator(faces)
    assert logits.shape == (3, 4, (size // 16) ** 2)
    assert torch.isfinite(logits).all()
    assert (logits[:, 0] == logits[:, 0, :1]).all()  # what judges whole faces says the same everywhere
    assert logits[:, 1:].unique().numel() > 0.99 * 9 * logits.shape[2]  # of 2,304 numbers two may be equal by chance


def test_projected_heads_have_columns_of_their_own() -> None:
    discriminator = Discriminator(PROJECTED).eval()
    faces = torch.rand(4, 3, 32, 32) * 2 - 1
    assert discriminator.projected is not None
    torch.testing.assert_close(discriminator(faces)[:, 0, 0], discriminator.plain(faces))
    heads = discriminator.projected(discriminator.encode(faces))
    torch.testing.assert_close(discriminator(faces)[:, 1:], heads)


def test_nothing_trains_the_mixing_of_what_the_encoder_sees() -> None:
    discriminator = Discriminator(PROJECTED)
    before = {name: value.clone() for name, value in discriminator.state_dict().items()}
    mixing = [name for name in before if name.startswith("projected.mixing.")]
    assert len(mixing) == 5

    discriminator.requires_grad_(False).requires_grad_(True)  # as in training
    optimizer = torch.optim.Adam(discriminator.parameters(), 0.1)
    discriminator(torch.rand(4, 3, 32, 32)).sum().backward()
    optimizer.step()

    after = discriminator.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in mixing)
    heads = [name for name, _ in discriminator.named_parameters() if name.startswith("projected.heads.")]
    assert heads
    assert all(not torch.equal(before[name], after[name]) for name in heads if name.endswith("original"))


def test_the_weights_of_a_package_are_in_no_checkpoint_but_their_name_and_digest_are() -> None:
    torch.manual_seed(0)
    discriminator, again = Discriminator(PROJECTED).eval(), Discriminator(PROJECTED).eval()
    saved = discriminator.state_dict()
    assert [name for name in saved if "encoder" in name] == ["projected.encoder._extra_state"]
    assert len([name for name in saved if "mixing" in name]) == 5
    name = bytes(saved["projected.encoder._extra_state"].tolist())
    assert re.fullmatch(b"lite0 [0-9a-f]{8}", name)
    assert not [name for name, _ in discriminator.named_parameters() if "encoder" in name or "mixing" in name]

    faces = torch.rand(2, 3, 32, 32) * 2 - 1
    assert not torch.allclose(again(faces), discriminator(faces))  # mixed in another way
    again.load_state_dict(saved)
    torch.testing.assert_close(again(faces), discriminator(faces))

    saved["projected.encoder._extra_state"] = torch.tensor(list(b"lite0 00000000"), dtype=torch.uint8)
    with pytest.raises(CheckpointError, match=r"lite0 00000000.* lite0 \w{8}"):
        again.load_state_dict(saved)


def test_the_maps_of_the_package_are_of_unit_size_on_faces() -> None:
    faces = to_tensor(torch.from_numpy(np.stack([synthetic.draw(seed)[0] for seed in range(32)])))
    heads = Projected(PROJECTED)
    mixed, heads.mixing = heads.encode(faces), nn.Identity()  # pyright: ignore[reportAttributeAccessIssue]
    for maps in (heads.encode(faces), mixed):
        sizes = [float(seen.square().mean().sqrt()) for seen in maps]
        assert all(0.6 < size < 1.6 for size in sizes), sizes


def test_the_encoder_sees_faces_enlarged_where_they_are_to_be_fine() -> None:
    faces = torch.rand(2, 3, 96, 96)
    plain, large = (Projected(changed(PROJECTED, fine=fine)) for fine in (False, True))
    large.load_state_dict(plain.state_dict())
    maps = large.encode(faces)
    assert ENLARGED == 1.5
    assert [features.shape[-1] for features in maps] == [36, 18, 9]
    assert large(maps).shape == (2, 3, 81)
    for features, expected in zip(maps, plain.encode(interpolate(faces, 144, mode="bilinear")), strict=True):
        torch.testing.assert_close(features, expected)


def test_mixing_shows_a_fine_place_what_is_around_it() -> None:
    mixing = Mixing([3, 5, 7], [4, 6, 8])
    maps = [torch.zeros(1, 3, 8, 8), torch.zeros(1, 5, 4, 4), torch.zeros(1, 7, 2, 2)]
    maps[2][0, 0, 0, 0] = 1.0
    fine, middle, coarse = mixing(maps)
    assert [m.shape[1] for m in (fine, middle, coarse)] == [4, 6, 8]
    assert fine.count_nonzero() > 4 * 4 * 4  # what is seen once at the coarsest depth
    assert middle.count_nonzero() > 0
    assert coarse.count_nonzero() == 8  # and no finer one goes up


def test_faces_get_a_gradient_through_the_frozen_encoder() -> None:
    discriminator = Discriminator(PROJECTED).requires_grad_(False)
    faces = torch.rand(2, 3, 32, 32, requires_grad=True)
    assert discriminator.projected is not None
    discriminator.projected(discriminator.encode(faces)).sum().backward()
    assert faces.grad is not None
    assert faces.grad.abs().sum() > 0


def test_spectral_norms_are_computed_in_full_precision() -> None:
    layer, autocast = SpectralConv(5, 7, 3, 1), list[bool]()
    *_, norm = layer.modules()
    norm.register_forward_hook(lambda *_: autocast.append(torch.is_autocast_enabled("cpu")))
    with torch.autocast("cpu", torch.bfloat16):
        made = layer(torch.rand(2, 5, 6, 6))
    assert autocast == [False]
    assert made.dtype == torch.bfloat16
    for _ in range(50):
        layer(torch.rand(2, 5, 6, 6))
    assert torch.linalg.matrix_norm(layer.weight.flatten(1), 2).item() == pytest.approx(1, abs=1e-3)


def test_nearest_neighbours_and_a_convolution_are_computed_as_one_transposed_convolution() -> None:
    layer = NearestConv(5, 7)
    x = torch.rand(2, 5, 6, 6)
    plain = conv2d(interpolate(x, scale_factor=2), layer.weight.transpose(0, 1).flip(2, 3), padding=1)
    torch.testing.assert_close(layer(x), plain, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size", [FEW_PIXELS, FEW_PIXELS + 1])
def test_nearest_neighbours_and_a_convolution_are_the_same_in_low_precision(size: int) -> None:
    layer = NearestConv(5, 7)
    x, gradient = torch.rand(2, 5, size, size), torch.rand(2, 7, 2 * size, 2 * size)
    found = []
    for enabled in (False, True):
        layer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            made = layer(x)
        made.float().backward(gradient)
        assert layer.weight.grad is not None
        found.append((made.float(), layer.weight.grad.clone()))
    for exact, rough in zip(*found, strict=True):
        torch.testing.assert_close(rough, exact, rtol=0.05, atol=0.02 * exact.abs().max().item())


def test_nearest_neighbours_and_a_convolution_have_no_weight_that_does_nothing() -> None:
    layer = NearestConv(5, 7)
    for size in (FEW_PIXELS, FEW_PIXELS + 1):
        layer.zero_grad()
        layer(torch.rand(2, 5, size, size)).square().sum().backward()
        assert [name for name, weight in layer.named_parameters() if weight.grad is not None] == ["weight"]
    with pytest.raises(TypeError):
        NearestConv(5, 7, bias=True)  # pyright: ignore[reportCallIssue]


def test_generator_of_nearest_neighbours_draws_no_chequerboard_on_flat_ground() -> None:
    """Away from the border, from a flat input; a transposed convolution's output has a period of two pixels."""
    flat = torch.ones(1, 4, 8, 8)
    for layer, even in (
        (NearestConv(4, 4), True),
        (nn.ConvTranspose2d(4, 4, 4, 2, 1, bias=False), False),
    ):
        inside = layer(flat)[..., 3:-3, 3:-3]
        assert (inside.std((2, 3)).max() < 1e-5).item() is even


KNOWING = changed(SMALL, vocabulary=(("hair", "black", "red"), ("eyes", "blue", "green")), projected=True)


def test_classes_begin_without_effect_and_unknown_ones_stay_so() -> None:
    generator, discriminator = Generator(KNOWING).eval(), Discriminator(KNOWING).eval()
    z, faces = torch.randn(4, 10), torch.rand(4, 3, 32, 32) * 2 - 1
    codes = torch.tensor([[1, 2], [2, 0], [0, 0], [0, 1]])
    assert torch.equal(generator(z, codes), generator(z))
    assert torch.equal(discriminator(faces, None, codes), discriminator(faces))
    for network in (generator, discriminator):
        for name, vectors in network.named_parameters():
            if "classes" in name:
                nn.init.normal_(vectors)
                with torch.no_grad():
                    vectors[0] = 0  # as padding_idx keeps it
    differs = generator(z, codes) != generator(z)
    assert differs.flatten(1).any(1).tolist() == [True, True, False, True]
    differs = (discriminator(faces, None, codes) - discriminator(faces)).abs() > 1e-5
    assert differs.any(2).tolist() == [[False, *[of] * 3] for of in (True, True, False, True)]  # not the plain logit


def test_every_class_that_is_seen_is_learned_and_no_other() -> None:
    generator, discriminator = Generator(KNOWING), Discriminator(KNOWING)
    codes = torch.tensor([[1, 2], [0, 1], [1, 0], [1, 2]])
    discriminator(generator(torch.randn(4, 10), codes), None, codes).sum().backward()
    found = {name: p.grad for network in (discriminator, generator) for name, p in network.named_parameters()}
    of_classes = {name: grad for name, grad in found.items() if "classes" in name}
    assert len(of_classes) == 2 * 4  # both columns: of three heads, of the generator
    for name, grad in of_classes.items():
        assert grad is not None
        moved = grad.abs().amax(1) > 0
        assert moved.tolist() == ([False, True, False] if name.endswith("0.weight") else [False, True, True])


def test_a_generator_learns_its_classes_ten_times_as_fast_as_its_other_weights() -> None:
    generator, codes, z = Generator(KNOWING), torch.tensor([[1, 2]]), torch.randn(1, 10)
    optimizer = torch.optim.Adam(generator.parameters(), 1e-4)  # whose first step moves every weight by its rate
    before = [p.detach().clone() for p in generator.main.parameters()]
    generator(z, codes).square().sum().backward()
    optimizer.step()
    weights = torch.cat([(p - old).flatten() for p, old in zip(generator.main.parameters(), before, strict=True)])
    assert weights.abs().max().item() == pytest.approx(1e-4, rel=0.01)
    shift = (generator.conditioned(z, codes) - z).abs()
    assert shift.max().item() == pytest.approx(2 * 10 * 1e-4, rel=0.01)  # two columns


@pytest.mark.parametrize("changes", [{"arch": "resnet"}, {"arch": "book"}, {"image_size": 48}, {"channels": 1}, {}])
@pytest.mark.parametrize("projected", [False, True])
def test_networks_of_every_kind_take_classes(changes: dict[str, Any], projected: bool) -> None:
    config = changed(KNOWING, projected=projected, **changes)
    codes = torch.tensor([[1, 2], [2, 0]])
    samples = Generator(config)(torch.randn(2, config.nz), codes)
    assert samples.shape == (2, config.channels, config.image_size, config.image_size)
    logits = Discriminator(config)(samples, None, codes)
    assert logits.shape == Discriminator(changed(config, vocabulary=()))(samples).shape
