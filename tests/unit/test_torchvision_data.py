"""Datasets of torchvision on this disk, each made small in the layout that torchvision reads."""

import gzip
import io
import pickle
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from config import DataError
from gan.data.faces import has_faces, open_pack

SIZE = 32


def silent(_: str) -> None:
    """Take what a pack says and drop it."""


def pixels(data_path: str, packs: Path, channels: int = 3, size: int = SIZE) -> np.ndarray:
    return open_pack(Path(data_path), size, packs, 1, silent, channels).pixels


def colours(n: int, seed: int = 0) -> np.ndarray:
    """Pictures of one colour each, (n, 3)."""
    return np.random.default_rng(seed).integers(0, 256, (n, 3), np.uint8)


def mnist(root: Path, pictures: np.ndarray) -> None:
    """Both parts as the idx files of MNIST; the training part holds `pictures` (n, 28, 28)."""
    folder = root / "MNIST" / "raw"
    folder.mkdir(parents=True)
    for part, some in (("train", pictures), ("t10k", pictures[:1])):
        n, height, width = some.shape
        (folder / f"{part}-images-idx3-ubyte").write_bytes(struct.pack(">4i", 2051, n, height, width) + some.tobytes())
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(struct.pack(">2i", 2049, n) + bytes(n))
        (folder / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(b""))


def test_mnist_in_grey(tmp_path: Path) -> None:
    digits = np.zeros((5, 28, 28), np.uint8)
    for i, digit in enumerate(digits):
        digit[:, :14] = 50 * i
    mnist(tmp_path / "sets", digits)
    found = pixels(f"torchvision:MNIST:{tmp_path / 'sets'}", tmp_path / "packs", channels=1)
    assert found.shape == (5, SIZE, SIZE, 1)
    assert found[:, 10, 5, 0].tolist() == [0, 50, 100, 150, 200]
    assert not found[:, :, 24:].any()


def test_cifar10_in_colour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torchvision.datasets import CIFAR10  # seconds to load, for these tests alone

    monkeypatch.setattr(CIFAR10, "train_list", [["data_batch_1", None]])  # None: the checksum, of a file made here
    monkeypatch.setattr(CIFAR10, "test_list", [])
    monkeypatch.setattr(CIFAR10, "meta", {"filename": "batches.meta", "key": "label_names", "md5": None})
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    wanted = colours(4)
    data = np.repeat(wanted, 1024, axis=1)  # each colour's plane of 32x32 after the other
    (folder / "data_batch_1").write_bytes(pickle.dumps({"data": data, "labels": [0] * 4}))
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": ["a"]}))
    found = pixels(f"torchvision:CIFAR10:{tmp_path}", tmp_path / "packs")
    assert np.array_equal(found[:, 0, 0], wanted)
    assert np.array_equal(found[:, 31, 31], wanted)


def test_lsun_as_torchvision_lays_it_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lmdb = pytest.importorskip("lmdb")
    wanted = colours(3)
    with lmdb.open(str(tmp_path / "bedroom_train_lmdb")) as database, database.begin(write=True) as writing:
        for i, colour in enumerate(wanted):
            stream = io.BytesIO()
            Image.new("RGB", (50, 40), tuple(int(c) for c in colour)).save(stream, "PNG")
            writing.put(b"%d" % i, stream.getvalue())
    shutil.copytree(tmp_path / "bedroom_train_lmdb", tmp_path / "bedroom_val_lmdb")  # not to be trained on
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    found = pixels("torchvision:LSUN:..", tmp_path / "packs")
    assert found[:, 7, 7].tolist() == wanted.tolist()
    assert list(here.iterdir()) == []  # torchvision would leave a list there


@pytest.mark.slow
def test_many_pictures_are_decoded_by_several_processes(tmp_path: Path) -> None:
    digits = np.random.default_rng(0).integers(0, 256, (300, 28, 28), np.uint8)
    mnist(tmp_path / "sets", digits)
    packs = [
        open_pack(Path(f"torchvision:MNIST:{tmp_path / 'sets'}"), SIZE, tmp_path / f"packs{n}", n, silent, 1)
        for n in (1, 2)
    ]
    assert len(packs[0].pixels) == 300
    assert np.array_equal(packs[0].pixels, packs[1].pixels)


def test_packs_and_runs_inside_the_folder_are_no_part_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    mnist(tmp_path, np.zeros((3, 28, 28), np.uint8))
    first = open_pack(Path("torchvision:MNIST:."), SIZE, Path("data/.packs"), 1, silent, 1)
    (tmp_path / "checkpoints/a").mkdir(parents=True)
    (tmp_path / "checkpoints/a/log.jsonl").touch()
    again = open_pack(Path("torchvision:MNIST:."), SIZE, Path("data/.packs"), 1, silent, 1)
    assert again.folder == first.folder


def test_pack_follows_the_files(tmp_path: Path) -> None:
    path = f"torchvision:MNIST:{tmp_path / 'sets'}"
    assert not has_faces(Path("torchvision:MNIST"))
    assert not has_faces(Path(f"torchvision:MNIST:{tmp_path / 'gone'}"))
    mnist(tmp_path / "sets", np.zeros((3, 28, 28), np.uint8))
    assert len(pixels(path, tmp_path / "packs", 1)) == 3
    for file in (tmp_path / "sets").rglob("train-*"):
        file.unlink()
    for folder in (tmp_path / "sets" / "MNIST" / "raw", tmp_path / "sets" / "MNIST"):
        for file in folder.glob("*"):
            file.unlink()
        folder.rmdir()
    mnist(tmp_path / "sets", np.ones((4, 28, 28), np.uint8))
    assert len(pixels(path, tmp_path / "packs", 1)) == 4


@pytest.mark.parametrize(
    ("data_path", "parts"),
    [
        ("torchvision:MNIST", ["expected torchvision:NAME:FOLDER"]),
        ("torchvision::{root}", ["expected torchvision:NAME:FOLDER"]),
        ("torchvision:MNITS:{root}", ["no dataset 'MNITS'", "did you mean MNIST?"]),
        ("torchvision:MNIST:{root}", ["cannot open it", "torchvision.datasets.MNIST"]),
        ("torchvision:MNIST:{root}/gone", ["is not a folder", "root"]),
        ("torchvision:Places365:{root}", ["cannot open it"]),
        ("torchvision:SBU:{root}", ["cannot open it"]),
        ("torchvision:EMNIST:{root}", ["EMNIST needs more than a folder", "unpack its pictures into a folder"]),
        ("torchvision:VisionDataset:{root}", ["no dataset 'VisionDataset'"]),
        ("torchvision:LSUNClass:{root}", ["no dataset 'LSUNClass'", "LSUN"]),
        ("torchvision:LSUN:{root}", ["bedroom_train_lmdb"]),
        ("torchvision:ImageFolder:{root}", ["--data_path={root}"]),
    ],
)
def test_what_is_not_there_is_said_in_one_line(tmp_path: Path, data_path: str, parts: list[str]) -> None:
    root = tmp_path / "sets"
    root.mkdir()
    with pytest.raises(DataError) as refused:
        pixels(data_path.format(root=root), tmp_path / "packs")
    message = str(refused.value)
    assert "\n" not in message
    for part in parts:
        assert part.format(root=root) in message
    assert not list(root.iterdir())  # nothing downloaded
