"""Sets of faces, what is measured between them, copies, the reference, and the evaluator of a run."""

import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from benchmarks import reference
from config import ModelConfig
from evaluate import EvaluateConfig
from gan.data.faces import Pack, open_pack
from gan.quality import evaluation, features, metrics
from gan.quality.evaluation import Evaluator, FaceSet, RealStatistics, copying, deviations, face_set
from gan.quality.features import Extractor
from gan.quality.sampling import Sampler
from gan.watching.curves import METRICS

CPU = torch.device("cpu")


def pixels(n: int, seed: int = 0, size: int = 32, light: float = 128, contrast: float = 40) -> np.ndarray:
    """Faces that are noise around a grey of their own: (n, size, size, 3)."""
    random = np.random.default_rng(seed)
    own = random.normal(light, 30, (n, 1, 1, 3))
    return (own + random.normal(0, contrast, (n, size, size, 3))).clip(0, 255).astype(np.uint8)


def colours(batch: np.ndarray) -> Tensor:
    """Six features of a face: mean and deviation of each channel, scaled to about 1."""
    faces = torch.from_numpy(np.array(batch)).float()
    return torch.cat([(faces.mean((1, 2)) - 128) / 30, (faces.std((1, 2)) - 40) / 5], 1)


def damage(batch: np.ndarray) -> Tensor:
    """In place of how much of a face looks damaged: how light it is."""
    return torch.from_numpy(np.array(batch)).float().mean((1, 2, 3)) / 255


def lots(faces: np.ndarray, size: int = 50) -> Iterator[np.ndarray]:
    yield from (faces[i : i + size] for i in range(0, len(faces), size))


def as_set(faces: np.ndarray) -> FaceSet:
    return face_set(lots(faces), colours, damage)


def statistics(faces: np.ndarray) -> RealStatistics:
    return RealStatistics(as_set(faces).features)


def test_a_set_holds_features_of_all_faces_and_damage_of_some(monkeypatch: pytest.MonkeyPatch) -> None:
    faces = pixels(130)
    whole = as_set(faces)
    torch.testing.assert_close(whole.features, colours(faces))
    torch.testing.assert_close(whole.damage, damage(faces))
    monkeypatch.setattr(evaluation, "DAMAGE_FACES", 60)
    some = as_set(faces)
    assert len(some.features) == 130
    torch.testing.assert_close(some.damage, damage(faces[:60]))  # the first 50, and 10 of the next


def test_the_metrics_are_those_of_the_formulas() -> None:
    a, b = as_set(pixels(200)), as_set(pixels(200, seed=1, light=140))
    found = RealStatistics(a.features).measure(b)
    assert set(found) == set(METRICS)
    assert found["fd"] == pytest.approx(metrics.frechet_distance(*map(metrics.gaussian, (a.features, b.features))))
    assert found["kid_x1000"] == pytest.approx(1000 * metrics.kernel_distance(a.features, b.features), rel=1e-4)
    assert found["coverage"] == metrics.manifold_metrics(a.features, b.features)["coverage"]
    assert found["damage_x100"] == pytest.approx(100 * b.damage.mean().item())


def test_each_metric_sees_the_fault_it_is_for() -> None:
    reals = statistics(pixels(400))
    good = reals.measure(as_set(pixels(400, seed=1)))
    lighter = reals.measure(as_set(pixels(400, seed=1, light=170)))
    alike = reals.measure(as_set(pixels(10, seed=1).repeat(40, 0)))
    assert lighter["fd"] > 10 * good["fd"]
    assert lighter["kid_x1000"] > 10 * abs(good["kid_x1000"])
    assert alike["coverage"] < 0.3 * good["coverage"]
    assert alike["recall"] < 0.5 * good["recall"]


def test_deviations_are_those_over_new_samples() -> None:
    reals = statistics(pixels(400, size=16))
    many = [reals.measure(as_set(pixels(400, seed=10 + i, size=16, light=140))) for i in range(16)]
    done: list[int] = []
    estimated = deviations(reals, as_set(pixels(400, seed=1, size=16, light=140)), done.append)
    assert len(done) == evaluation.HALVES
    assert set(estimated) == set(METRICS)
    true = {name: np.std([found[name] for found in many], ddof=1) for name in METRICS}
    ratios = [estimated[name] / true[name] for name in METRICS]
    assert min(ratios) > 0.3
    assert max(ratios) < 2
    assert 0.5 < np.mean(ratios) < 1.4


def test_a_replayed_training_set_is_caught() -> None:
    random = torch.Generator().manual_seed(0)
    training, new, honest = (torch.randn(n, 16, generator=random) for n in (3000, 400, 400))
    found = copying(honest, training, new)
    assert not found.copied
    assert all(ratio == pytest.approx(1, abs=0.15) for ratio in found.ratios.values())
    assert "400 held-out faces" in found.against
    replayed = copying(training[:400], training, new)
    assert replayed.copied
    assert max(replayed.ratios.values()) < 0.05
    assert replayed.nearest.tolist() == list(range(400))
    # two in a hundred are enough, and being a little off does not hide them
    some = torch.cat([honest[:392], training[:8] + 0.01 * torch.randn(8, 16, generator=random)])
    assert copying(some, training, new).copied


def test_copies_are_caught_where_held_out_faces_have_twins_among_those_trained_on() -> None:
    random = torch.Generator().manual_seed(0)
    training, new, honest = (torch.randn(n, 16, generator=random) for n in (3000, 400, 400))
    noise = 0.02 * torch.randn(20, 16, generator=random)
    new[:12] = training[:12] + noise[:12]  # the same pictures, saved once more
    found = copying(honest, training, new)
    assert not found.copied
    assert found.against == "400 held-out faces, 12 left out that nearly equal one"
    assert all(ratio == pytest.approx(1, abs=0.15) for ratio in found.ratios.values())
    assert copying(torch.cat([honest[:392], training[20:28] + noise[12:]]), training, new).copied


def test_all_samples_of_a_single_face_are_copies() -> None:
    face = torch.randn(1, 8, generator=torch.Generator().manual_seed(0))
    assert copying(face.repeat(60, 1) + 0.1, face, face[:0]).copied


def test_equal_faces_are_not_in_both_lots(tmp_path: Path) -> None:
    twice = np.repeat(np.random.default_rng(0).integers(0, 256, (40, 32, 32, 3), np.uint8), 2, axis=0)
    pack = Pack(twice, np.repeat(np.arange(40, dtype=np.uint32), 2), 0, tmp_path)
    first, second = evaluation.choose(pack, 5000, seed=0)
    assert len(first) == len(second) == 20
    assert len({*pack.hashes[first], *pack.hashes[second]}) == 40


def test_copies_are_caught_where_no_face_was_held_out() -> None:
    random = torch.Generator().manual_seed(0)
    training, honest = torch.randn(1000, 8, generator=random), torch.randn(300, 8, generator=random)
    found = copying(honest, training, training[:0])
    assert not found.copied
    assert found.ratios[50] == pytest.approx(1, abs=0.15)
    assert "nearest other one" in found.against
    assert copying(training[:300], training, training[:0]).copied


def test_the_reference_gives_what_the_faces_themselves_give(tmp_path: Path) -> None:
    first, second, fakes = (as_set(pixels(300, seed=seed, light=128 + 6 * (seed == 2))) for seed in range(3))
    path = tmp_path / "reference.pt"
    reference.save(path, first, second, "colours 1", "noise")
    kept = evaluation.load_reference(1000, path)
    assert (kept.extractor, kept.about, len(kept.other)) == ("colours 1", "noise", 300)
    exact, found = RealStatistics(first.features).measure(fakes), kept.reals.measure(fakes)
    for name, value in exact.items():
        assert found[name] == pytest.approx(value, rel=0.03, abs=0.02), name
    assert kept.floor == pytest.approx(RealStatistics(first.features).measure(second))
    assert kept.reals.measure_features(kept.other)["fd"] == pytest.approx(kept.floor["fd"], rel=0.05, abs=2e-3)
    few = evaluation.load_reference(100, path)
    assert (len(few.reals.features), len(few.other)) == (100, 100)
    torch.testing.assert_close(few.other[0], kept.other[0])


class Colour(nn.Module):
    """A generator whose face is one colour, set by its latent."""

    def __init__(self, light: float = 0.0) -> None:
        super().__init__()
        self.light = nn.Parameter(torch.tensor(light))

    def forward(self, z: Tensor) -> Tensor:
        return (self.light + 0.2 * z[:, :3, None, None]).expand(-1, 3, 32, 32)


@pytest.fixture
def pack(tmp_path: Path, make_faces: Callable[..., list[Path]]) -> Pack:
    make_faces(tmp_path / "faces", 80, size=32)
    return open_pack(tmp_path / "faces", 32, tmp_path / "packs", log=lambda line: None)


MODEL = ModelConfig(arch="dcgan", image_size=32, nz=4, ngf=8, ndf=8)
EXTRACTOR = Extractor("colours 1", 6, lambda p: colours(p.numpy()), CPU, damage=damage)


def test_an_evaluator_prefers_held_out_faces_and_measures_always_alike(
    pack: Pack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation, "MOST_FACES", 60)
    sampler = Sampler(Colour(), None, MODEL, CPU)
    evaluator = Evaluator(pack, np.arange(50), np.arange(50, 80), EXTRACTOR, sampler, "fd")
    assert len(evaluator.chosen) == 60
    assert set(range(50, 80)) <= set(evaluator.chosen.tolist())
    assert evaluator.cost() > 0
    before = torch.get_rng_state()
    found = evaluator.measure()
    assert set(found) == set(METRICS)
    assert torch.equal(torch.get_rng_state(), before)
    assert evaluator.measure() == found
    sampler.generator = Colour(0.5)
    evaluator.seconds, since = 1e6, time.perf_counter()
    assert evaluator.measure()["fd"] != pytest.approx(found["fd"], rel=0.01)
    assert 0 < evaluator.cost() <= time.perf_counter() - since  # what it took, no longer the estimate


def test_an_evaluator_asks_for_no_samples_that_evaluating_asks_for(pack: Pack, monkeypatch: pytest.MonkeyPatch) -> None:
    sampler, asked = Sampler(Colour(), None, MODEL, CPU), list[int]()
    generate = sampler.faces
    monkeypatch.setattr(sampler, "faces", lambda seeds: asked.extend(seeds) or generate(seeds))
    evaluator = Evaluator(pack, np.arange(80), np.arange(0), EXTRACTOR, sampler, "fd")
    evaluator.measure()
    assert len(set(asked)) == 80
    assert min(asked) > EvaluateConfig().seed + 1e9  # best.pt is not praised for the samples that it was chosen by


def test_an_evaluator_keeps_the_best(pack: Pack) -> None:
    values, sampler = (3.0, 2.0, 2.5, 1.0), Sampler(Colour(), None, MODEL, CPU)
    evaluator = Evaluator(pack, np.arange(80), np.arange(0), EXTRACTOR, sampler, "fd")
    assert [evaluator.is_best({"fd": value}) for value in values] == [True, True, False, True]
    assert not evaluator.is_best({"fd": math.nan})
    later = Evaluator(pack, np.arange(80), np.arange(0), EXTRACTOR, sampler, "fd", best={"fd": values[-1]})
    assert [later.is_best({"fd": value}) for value in values] == [False] * 4


@pytest.mark.parametrize(
    ("damage", "fd", "best"),
    [
        (1.9, 50.0, True),  # fewer broken eyes, as many kinds of faces
        (1.9, 54.9, True),
        (1.9, 55.1, False),  # fewer broken eyes, of fewer kinds of faces
        (2.0, 50.0, False),
        (2.1, 46.0, False),
        (2.1, 45.0, True),  # what was best is behind by far
        (math.nan, 10.0, False),
        (1.0, math.nan, False),
    ],
)
def test_damage_decides_between_states_of_like_fd(pack: Pack, damage: float, fd: float, best: bool) -> None:
    before, found = {"damage_x100": 2.0, "fd": 50.0}, {"damage_x100": damage, "fd": fd}
    evaluator = Evaluator(
        pack, np.arange(80), np.arange(0), EXTRACTOR, Sampler(Colour(), None, MODEL, CPU), "damage_x100"
    )
    assert evaluator.is_best(before)
    assert evaluator.is_best(found) == best
    assert evaluator.best == (found if best else before)


def test_with_as_little_damage_as_real_faces_fd_decides(pack: Pack) -> None:
    evaluator = Evaluator(
        pack, np.arange(80), np.arange(0), EXTRACTOR, Sampler(Colour(), None, MODEL, CPU), "damage_x100"
    )
    states = [{"damage_x100": damage, "fd": fd} for damage, fd in [(1.3, 50.0), (1.1, 51.0), (1.54, 49.0), (1.7, 48.0)]]
    assert [evaluator.is_best(state) for state in states] == [True, False, True, False]


def test_less_and_less_damage_does_not_buy_an_ever_greater_fd(pack: Pack) -> None:
    evaluator = Evaluator(
        pack, np.arange(80), np.arange(0), EXTRACTOR, Sampler(Colour(), None, MODEL, CPU), "damage_x100"
    )
    states = [{"damage_x100": damage, "fd": fd} for damage, fd in [(2.0, 50.0), (1.9, 54.0), (1.8, 58.0), (1.85, 55.0)]]
    assert [evaluator.is_best(state, [50.0]) for state in states] == [True, True, False, True]
    assert evaluator.is_best({"damage_x100": 1.95, "fd": 52.0}, [48.0])  # what was best is now too far from the least


def test_faces_of_a_pack_as_a_set_are_those_faces(pack: Pack) -> None:
    chosen, others = evaluation.choose(pack, 30, seed=0)
    assert len(set(chosen.tolist()) | set(others.tolist())) == 60
    assert not np.array_equal(chosen, evaluation.choose(pack, 30, seed=1)[0])
    assert [len(lot) for lot in evaluation.choose(pack, 5000, seed=0)] == [40, 40]
    found, plain = evaluation.of_pack(pack, chosen, EXTRACTOR), face_set([pack.pixels[chosen]], EXTRACTOR, damage)
    torch.testing.assert_close(found.features, plain.features)
    torch.testing.assert_close(found.damage, plain.damage)
    assert features.of_pack(EXTRACTOR, pack, chosen).equal(found.features)
