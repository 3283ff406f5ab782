"""Generating faces: a face depends on its seed alone, the best are the best, and lack of memory is coped with."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from config import RELEASED, CheckpointError, ModelConfig
from gan import checkpoint
from gan.classes import Classes
from gan.images import to_pixels
from gan.latent import latents
from gan.quality import sampling
from gan.quality.sampling import Sampler
from gan.training import ema
from model import Discriminator, Generator

CPU = torch.device("cpu")
MODEL = ModelConfig(arch="dcgan", image_size=96, nz=20, ngf=16, ndf=16)
TINY = dataclasses.replace(MODEL, image_size=32, ngf=8, ndf=8)


def content(model: ModelConfig = MODEL, seed: int = 0) -> dict[str, Any]:
    """A checkpoint of networks that make faces of good contrast and logits that differ."""
    torch.manual_seed(seed)
    generator, discriminator = Generator(model), Discriminator(model)
    for module in [*generator.modules(), *discriminator.modules()]:
        if isinstance(module, nn.Conv2d | nn.ConvTranspose2d):
            nn.init.normal_(module.weight, 0, 0.1)
    ema.estimate_statistics(generator, [torch.randn(64, model.nz)])
    networks = {"ema": generator.state_dict(), "discriminator": discriminator.state_dict()}
    return {"config": {}, "model": dataclasses.asdict(model), "images_seen": 640, "step": 10, **networks}


@pytest.fixture(scope="module")
def sampler(tmp_path_factory: pytest.TempPathFactory) -> Sampler:
    path = tmp_path_factory.mktemp("run") / "latest.pt"
    checkpoint.save(path, {**content(), "generator": Generator(MODEL).state_dict()})  # not the averaged one
    return sampling.load(path, CPU)


@pytest.fixture(scope="module")
def ten(sampler: Sampler) -> np.ndarray:
    """The faces of seeds 0 to 9."""
    return generated(sampler, range(10))


def generated(sampler: Sampler, seeds: Any, **options: float) -> np.ndarray:
    return np.concatenate(list(sampler.faces(seeds, **options)))


class Limited(nn.Module):
    """A generator in small that runs out of memory beyond `most` latents: the face shows its own latent."""

    def __init__(self, most: int, error: Exception) -> None:
        super().__init__()
        self.most, self.error, self.batches = most, error, []

    def forward(self, z: Tensor) -> Tensor:
        if len(z) > self.most:
            raise self.error
        self.batches.append(len(z))
        return z[:, :3, None, None].tanh()


class Brightness(nn.Module):
    def forward(self, faces: Tensor) -> Tensor:
        return faces.sum((1, 2, 3))


def limited(most: int, error: Exception | None = None, batch: int = 64) -> Sampler:
    error = error or torch.OutOfMemoryError("CUDA out of memory.")
    return Sampler(Limited(most, error), Brightness(), MODEL, CPU, batch=batch)


def test_faces_are_those_of_the_generator(sampler: Sampler, ten: np.ndarray) -> None:
    assert (ten.shape, ten.dtype) == ((10, 96, 96, 3), np.uint8)
    assert ten.std() > 20
    assert len(np.unique(ten.reshape(10, -1), axis=0)) == 10
    expected = to_pixels(sampler.generator(latents(range(10), MODEL.nz)))
    assert abs(ten.astype(int) - expected).max() <= 1


@pytest.mark.parametrize(
    "seeds", [[7], range(3), range(5, 10), [9, 0, 3], range(9, -1, -1), [4, 4, 4], [2, *range(1000, 1070), 8]]
)
def test_face_is_the_same_whatever_is_drawn_beside_it(sampler: Sampler, ten: np.ndarray, seeds: Any) -> None:
    faces = generated(sampler, seeds)
    assert len(faces) == len(seeds)
    for seed, face in zip(seeds, faces, strict=True):
        assert seed >= 10 or np.array_equal(face, ten[seed])


@pytest.mark.parametrize("batch", [1, 2, 8, 32])
def test_face_of_a_smaller_batch_differs_by_rounding_at_most(sampler: Sampler, ten: np.ndarray, batch: int) -> None:
    """Convolution kernels are chosen by the batch's size; this is why batches are always full."""
    faces = generated(dataclasses.replace(sampler, batch=batch), range(10))
    off = abs(faces.astype(int) - ten)
    assert off.max() <= 1
    assert (off > 0).mean() < 1e-3


def test_mean_and_std_reach_the_latents(sampler: Sampler, ten: np.ndarray) -> None:
    alike = generated(sampler, range(5), mean=0.3, std=0.0)
    assert (alike == alike[0]).all()
    expected = to_pixels(sampler.generator(torch.full((1, MODEL.nz), 0.3)))[0]
    assert abs(alike[0].astype(int) - expected).max() <= 1
    assert abs(generated(sampler, range(10), std=0.5).astype(int) - ten).mean() > 2


def test_drawing_does_not_run_ahead_and_no_seeds_are_no_faces() -> None:
    sampler = limited(64)
    batches = sampler.faces(range(10**6))
    assert len(next(batches)) == 64
    assert sampler.generator.batches == [64]
    assert list(sampler.faces([])) == []


def test_best_are_those_of_the_highest_logits_in_order(sampler: Sampler) -> None:
    seeds = range(100, 200)
    assert sampler.discriminator is not None
    with torch.no_grad():
        logits = {s: sampler.discriminator(sampler.generator(latents([s], MODEL.nz))).item() for s in seeds}
    ranking = sorted(seeds, key=lambda s: -logits[s])
    assert logits[ranking[0]] - logits[ranking[-1]] > 0.1
    assert sampler.best(seeds, 7) == ranking[:7]
    assert sampler.best(seeds, 100) == ranking


def test_best_ranks_the_samples_of_the_mean_and_std_asked_for() -> None:
    seeds = range(50)
    brightness = latents(seeds, MODEL.nz, 2.0, 3.0)[:, :3].tanh().sum(1)
    assert limited(64).best(seeds, 5, 2.0, 3.0) == brightness.argsort(descending=True)[:5].tolist()
    assert limited(64).best(seeds, 5) != limited(64).best(seeds, 5, 2.0, 3.0)


def test_best_of_equals_are_the_first() -> None:
    assert limited(64).best(range(90), 3, std=0.0) == [0, 1, 2]


def test_where_a_discriminator_knows_faces_the_worst_position_counts_and_the_unlike_come_last() -> None:
    sampler = sampling.load(RELEASED, CPU)
    discriminator = sampler.discriminator
    assert isinstance(discriminator, Discriminator)
    assert discriminator.projected is not None
    with torch.no_grad():
        features = discriminator.encode(sampler.generator(sampler.latents(range(64))))
        worst = discriminator.projected(features, sampler.codes(range(64))).flatten(1).sort(1)[0]
        known = torch.cat([depth.mean((2, 3)) for depth in features], 1).double()
    at = 0.05 * (worst.shape[1] - 1)  # 5 % of 3 x 81 positions: between two of them
    score = torch.lerp(worst[:, int(at)], worst[:, int(at) + 1], at % 1)
    away = known - known.mean(0)
    spread = torch.cov(known.T)
    spread += 1e-3 * spread.diagonal().mean() * torch.eye(len(spread)).double()
    distance = (away @ torch.linalg.inv(spread) * away).sum(1)
    like = {seed for seed in range(64) if distance[seed] <= distance.median()}

    best = sampler.best(range(64), 64)

    assert set(best[:32]) == like
    for half in (best[:32], best[32:]):
        found = score[half]
        assert (found.diff() <= 1e-4).all()
    assert sampler.best(range(64), 5) == best[:5]


def test_choosing_among_more_than_are_compared_misses_none(monkeypatch: pytest.MonkeyPatch) -> None:
    sampler = sampling.load(RELEASED, CPU)
    at_once = sampler.best(range(130), 130)
    monkeypatch.setattr(sampling, "TYPICAL_OF", 64)
    in_chunks = sampler.best(range(130), 130)
    assert sorted(in_chunks) == sorted(at_once) == list(range(130))


def test_samples_that_were_not_compared_are_held_to_the_same_measure() -> None:
    random = torch.Generator().manual_seed(0)
    known, new = (torch.randn(n, 200, generator=random) for n in (1000, 3000))
    typical_known, typical = sampling._typical(known)
    assert typical_known.float().mean() == 0.5
    assert typical(new).float().mean() == pytest.approx(0.5, abs=0.06)


def test_a_cpu_gets_fewer_latents_at_a_time_than_a_gpu() -> None:
    batches = [Sampler(nn.Identity(), None, MODEL, torch.device(kind)).batch for kind in ("cpu", "cuda", "mps")]
    assert batches == [16, 64, 64]


def test_choosing_tells_its_progress() -> None:
    done: list[int] = []
    limited(64).best(range(150), 1, progress=done.append)
    assert done == [64, 64, 22]


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
        RuntimeError("[enforce fail at alloc_cpu.cpp:127] . DefaultCPUAllocator: can't allocate memory: you tried"),
        MemoryError("Unable to allocate 2.00 GiB for an array"),
    ],
)
def test_batch_is_halved_until_it_fits_and_no_face_is_lost(error: Exception) -> None:
    sampler, plenty = limited(10, error), limited(64)
    assert np.array_equal(generated(sampler, range(30)), generated(plenty, range(30)))
    assert sampler.generator.batches == [8, 8, 8, 8]
    assert limited(10, error).best(range(30), 5) == plenty.best(range(30), 5)


def test_single_face_that_does_not_fit_is_an_error() -> None:
    sampler = limited(0)
    batch = sampler.batch
    with pytest.raises(torch.OutOfMemoryError):
        generated(sampler, range(3))
    assert sampler.batch == batch


def test_other_errors_are_no_reason_to_go_on() -> None:
    sampler = limited(0, RuntimeError("shapes differ"))
    with pytest.raises(RuntimeError, match="shapes differ"):
        generated(sampler, range(3))
    assert sampler.batch == 64


def test_loaded_networks_are_frozen_and_in_eval(sampler: Sampler) -> None:
    assert (sampler.model, sampler.images_seen, sampler.device) == (MODEL, 640, CPU)
    for network in (sampler.generator, sampler.discriminator):
        assert network is not None
        assert not any(module.training for module in network.modules())
        assert not any(parameter.requires_grad for parameter in network.parameters())


def test_run_means_its_best_checkpoint_else_its_latest(tmp_path: Path) -> None:
    checkpoint.save(tmp_path / "latest.pt", {**content(TINY), "images_seen": 1})
    assert sampling.load(tmp_path, CPU).images_seen == 1
    checkpoint.save(tmp_path / "best.pt", {**content(TINY), "images_seen": 2})
    assert sampling.load(tmp_path, CPU).images_seen == 2


@pytest.mark.parametrize("d_norm", ["batch", "none"])
def test_half_precision_file_draws_nearly_the_same(tmp_path: Path, d_norm: Any) -> None:
    full = content(dataclasses.replace(TINY, d_norm=d_norm))
    half = {
        k: {n: w.half() if w.is_floating_point() else w for n, w in full[k].items()} for k in ("ema", "discriminator")
    }
    checkpoint.save(tmp_path / "full.pt", full)
    checkpoint.save(tmp_path / "half.pt", {**full, **half})
    one, two = (generated(sampling.load(tmp_path / f"{name}.pt", CPU), range(4)) for name in ("full", "half"))
    assert abs(one.astype(int) - two).max() <= 4


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model": {**dataclasses.asdict(TINY), "depth": 3}}, "does not know.*depth"),
        ({"model": None}, "does not know"),
        ({"model": {}}, "does not know"),
        ({"model": {**dataclasses.asdict(TINY), "image_size": 0}}, "does not know"),
        ({"model": dataclasses.asdict(dataclasses.replace(TINY, ngf=9))}, "its generator is another network"),
        ({"model": dataclasses.asdict(dataclasses.replace(TINY, ndf=9))}, "its discriminator is another network"),
        ({"ema": {}}, "its generator is another network"),
    ],
)
def test_networks_that_do_not_fit_are_one_line(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    path = tmp_path / "latest.pt"
    checkpoint.save(path, {**content(TINY), **changes})
    with pytest.raises(CheckpointError, match=said) as refused:
        sampling.load(path, CPU)
    assert str(refused.value).startswith(f"{path}: ")
    assert "\n" not in str(refused.value)


def test_checkpoint_without_a_model_is_one_line(tmp_path: Path) -> None:
    checkpoint.save(tmp_path / "a.pt", {k: v for k, v in content(TINY).items() if k != "model"})
    with pytest.raises(CheckpointError, match="does not know"):
        sampling.load(tmp_path / "a.pt", CPU)


KINDS = (("hair", "blue", "red"), ("eyes", "brown", "green"))


@pytest.fixture
def knowing(tmp_path: Path) -> Sampler:
    """A sampler whose networks know classes; blue hair goes with brown eyes, red hair with green ones."""
    model = dataclasses.replace(TINY, vocabulary=KINDS)
    codes = np.array([[1, 1]] * 9 + [[1, 2]] + [[2, 1]] + [[2, 2]] * 9)
    made = content(model)
    for network in ("ema", "discriminator"):
        for name, weight in made[network].items():
            if "classes" in name:
                weight[1:] = torch.randn_like(weight[1:])
    checkpoint.save(tmp_path / "latest.pt", {**made, **Classes.of(KINDS, codes).content()})
    return sampling.load(tmp_path / "latest.pt", CPU)


def test_on_the_way_between_two_classes_all_else_stays(knowing: Sampler) -> None:
    first, until = knowing.classes.parse("hair:blue..red")
    blue = knowing.of_classes(first)
    for seed in range(8):
        codes = knowing.classes.of_seeds([seed], {0: 1})
        (row,) = blue.draw(blue.between(seed, until, 5))
        z = latents([seed], TINY.nz)
        for face, hair in ((row[0], 1), (row[-1], 2)):
            codes[:, 0] = hair
            with torch.no_grad():
                expected = to_pixels(knowing.generator(z, torch.from_numpy(codes)))[0]
            assert np.abs(face.astype(int) - expected).max() <= 1


def test_a_class_that_is_replaced_leaves_the_others_as_they_were(knowing: Sampler) -> None:
    before = knowing.codes(range(200))
    after = knowing.of_classes({}, {0: 1}).codes(range(200))
    assert set(after[:, 0].tolist()) == {1}
    assert torch.equal(after[:, 1], before[:, 1])
    blue = knowing.of_classes({0: 1}).codes(range(200))
    assert set(blue[:, 0].tolist()) == {1}
    assert not torch.equal(blue[:, 1], before[:, 1])  # most of those with blue hair have brown eyes
    assert torch.equal(knowing.codes(range(200)), before)  # the sampler itself is as it was


def test_the_discriminator_chooses_those_that_suit_their_class(knowing: Sampler) -> None:
    assert isinstance(knowing.discriminator, Discriminator)
    for text in ("hair:blue", "hair:red"):
        first, _ = knowing.classes.parse(text)
        asking = knowing.of_classes(first)
        codes = asking.codes(range(40))
        with torch.no_grad():
            z = latents(range(40), TINY.nz)
            faces = knowing.generator(z, codes)
            logits = knowing.discriminator(faces, None, codes).flatten()
        assert asking.best(range(40), 3) == logits.argsort(descending=True)[:3].tolist()
