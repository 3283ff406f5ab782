"""Directions: what is found moves what it is called after, and no more than is asked."""

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from config import RELEASED, ConfigError, ModelConfig
from gan import images
from gan.play import directions
from gan.play.directions import Change, Directions
from gan.quality import sampling
from gan.quality.colours import Classifier
from gan.quality.features import Extractor
from gan.quality.sampling import Sampler

CPU = torch.device("cpu")
MODEL = ModelConfig(arch="dcgan", image_size=32, nz=12, ngf=8, ndf=8)


class Known(nn.Module):
    """A generator whose latent's first numbers are the face's lightness, its warmth, its lean, and how green it is.

    A greener face is lighter, too, as one with fair hair is.
    """

    def forward(self, z: Tensor) -> Tensor:
        x = torch.linspace(-1, 1, 32)
        faces = 0.2 * z[:, 0, None, None, None].expand(-1, 3, 32, 32)
        faces = faces + 0.2 * z[:, 1, None, None, None] * torch.tensor([0.587, 0, -0.299])[None, :, None, None]
        faces = faces + 0.1 * z[:, 3, None, None, None] * torch.tensor([0, 1.0, 0])[None, :, None, None]
        return (faces + 0.1 * z[:, 2, None, None, None] * x).clamp(-1, 1)


def greenness(faces: Tensor) -> Tensor:
    """Return logits of faces (N, 3, S, S) in [-1, 1] being green or not, (N, 2)."""
    red, green, blue = (127.5 * faces.mean((2, 3))).unbind(1)
    found = green - 0.5 * (red + blue)
    return torch.stack([found, -found], 1)


@pytest.fixture(scope="module")
def known() -> Sampler:
    return Sampler(Known(), None, MODEL, CPU)


@pytest.fixture(scope="module")
def found(known: Sampler) -> Directions:
    extractor = Extractor("green", 2, lambda pixels: greenness(images.to_tensor(pixels)), CPU)
    return directions.find(known, classifier=Classifier((("hair", "green", "blue"),), (0.0,), extractor, greenness))


def test_each_slider_is_the_number_of_the_latent_that_makes_it(found: Directions) -> None:
    for place, name in enumerate(("light", "warm")):
        assert found.sliders[name].abs().argmax() == place
        assert found.sliders[name][place] > 0.9
    assert found.sliders["turn"].norm() == pytest.approx(1)


def test_directions_do_not_depend_on_the_classes_that_are_asked_for(
    knowing_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directions, "SAMPLES", 128)  # for time
    plain = sampling.load(knowing_checkpoint, CPU)
    asking = plain.of_classes({0: 1}, {1: 2})
    for one, other in zip(*(directions.find(sampler).sliders.values() for sampler in (plain, asking)), strict=True):
        assert torch.equal(one, other)
    assert (asking.class_filter, asking.class_override) == ({0: 1}, {1: 2})


def test_lean_is_what_differs_most_from_mirror_images(known: Sampler) -> None:
    latents = known.latents(range(64))
    halves = torch.cat([directions.asymmetry(faces) for faces in known.draw(latents)])
    found = halves @ directions.lean(halves)
    assert torch.corrcoef(torch.stack([found, latents[:, 2]]))[0, 1] > 0.99  # darker at the left


def test_a_slider_moves_what_it_is_called_after_and_keeps_lengths(known: Sampler, found: Directions) -> None:
    latents = known.latents(range(50))
    darker, lighter = (found.move(latents, {"light": share}) for share in (-1.0, 1.0))
    torch.testing.assert_close(lighter.norm(dim=1), latents.norm(dim=1))
    before, after = (
        torch.cat([directions.light_and_warmth(faces) for faces in known.draw(some)]) for some in (darker, lighter)
    )
    assert ((after - before)[:, 0] > 0.1).all()
    assert ((after - before)[:, 1].abs() < 0.05).all()
    dark, light = (
        torch.cat([found.classifier.extractor(faces)[:, 0] for faces in known.draw(some)]) for some in (darker, lighter)
    )
    assert (light - dark).abs().median() < 2  # of 255
    assert torch.equal(found.move(latents, {}), latents)


def test_measures_are_what_they_say() -> None:
    grey, red = np.full((1, 8, 8, 3), 128, np.uint8), np.zeros((1, 8, 8, 3), np.uint8)
    red[..., 0] = 255
    assert directions.light_and_warmth(grey)[0].tolist() == pytest.approx([128 / 255, 0], abs=1e-5)
    assert directions.light_and_warmth(red)[0].tolist() == pytest.approx([0.299, 1], abs=1e-5)
    assert directions.light_and_warmth(grey[..., :1])[0].tolist() == pytest.approx([128 / 255, 0], abs=1e-5)
    some = np.random.default_rng(0).integers(0, 256, (3, 96, 96, 3), np.uint8)
    halves = directions.asymmetry(some)
    torch.testing.assert_close(directions.asymmetry(some[:, :, ::-1].copy()), -halves)
    assert halves.shape == (3, directions.SQUARES**2 // 2)


def test_regression_finds_what_depends_and_what_is_orthogonalised_holds_the_others() -> None:
    latents = torch.randn(500, 6, generator=torch.Generator().manual_seed(0))
    weights = torch.tensor([[3.0, 0, 0, 0, 0, 0], [1.0, 1, 0, 0, 0, 0]])
    depends = directions.regression(latents, latents @ weights.T)
    torch.testing.assert_close(
        torch.nn.functional.normalize(depends, dim=1), torch.nn.functional.normalize(weights, dim=1), rtol=0, atol=0.05
    )
    alone = directions.orthogonalised(weights[1], weights[:1])
    torch.testing.assert_close(alone, torch.tensor([0.0, 1, 0, 0, 0, 0]))
    torch.testing.assert_close(
        directions.orthogonalised(weights[0], weights[:1]), weights[0] / 3
    )  # nothing else is left of it


def test_those_of_the_released_generator_come_with_the_program_and_recolour_hair() -> None:
    sampler = sampling.load(RELEASED, CPU)
    found = directions.of(sampler, lambda n: pytest.fail("they were looked for"))
    latents = sampler.latents(range(9100, 9106)).cpu()
    blue, (column, code) = Change({}, {"hair": "Blue"}), found.code("hair", "Blue")
    assert found.classifier.vocabulary[column][code] == "blue"
    recoloured = found.change(sampler, lambda of: latents, blue)
    torch.testing.assert_close(recoloured.norm(dim=1), latents.norm(dim=1))
    codes, _ = dataclasses.replace(found.classifier, least=(0.0, 0.0))(next(sampler.draw(recoloured)))
    assert (codes[:, column] == code).sum() >= 5
    alone = found.change(sampler, lambda of: latents[2:3], blue)
    assert torch.equal(alone[0], recoloured[2])  # whatever is beside it
    sure, _ = found.classifier(next(sampler.draw(recoloured)))
    reached = recoloured[sure[:, column] == code]
    assert len(reached) > 0
    torch.testing.assert_close(found.change(sampler, lambda of: reached[:1], blue), reached[:1])


def test_eyes_have_to_be_surer_of_a_new_colour_than_hair(known: Sampler) -> None:
    latents = known.latents(range(50)).cpu()

    def softly(faces: Tensor) -> Tensor:
        return greenness(faces) / 10

    def probabilities(name: str) -> Tensor:
        extractor = Extractor("softly", 2, lambda pixels: softly(images.to_tensor(pixels)), CPU)
        classifier = Classifier(((name, "green", "blue"),), (0.0,), extractor, softly)
        found = directions.find(known, classifier=classifier)
        after = found.change(known, lambda of: latents, Change({}, {name: "green"}))
        return torch.cat([extractor(faces) for faces in known.draw(after)]).softmax(1)[:, 0]

    hair, eyes = probabilities("hair"), probabilities("eyes")
    assert hair.min() > 0.5
    assert (hair < 0.8).any()
    assert eyes.min() > 0.8


def test_where_the_direction_ends_too_early_gradient_descent_goes_on_and_holds_the_rest() -> None:
    sampler = sampling.load(RELEASED, CPU)
    found = directions.of(sampler)
    latents = sampler.latents([9100, 9101]).cpu()
    before = next(sampler.draw(latents))
    gray, (column, code) = Change({}, {"eyes": "gray"}), found.code("eyes", "gray")
    farthest = latents + directions.FARTHEST * latents.norm(dim=1, keepdim=True) * found.colours[column][code - 1]
    recoloured = found.change(sampler, lambda of: latents, gray)
    torch.testing.assert_close(recoloured.norm(dim=1), latents.norm(dim=1))
    codes, _ = dataclasses.replace(found.classifier, least=(0.0, 0.0))(
        np.concatenate([before, *(next(sampler.draw(some)) for some in (farthest, recoloured))])
    )
    (hair, was), (_, on_the_line), (hair_after, now) = codes.reshape(3, 2, 2).transpose(0, 2, 1)
    assert not (was == code).any()
    assert not (on_the_line == code).any()
    assert (now == code).all()
    assert (hair_after == hair).any()
    assert torch.equal(found.change(sampler, lambda of: latents[1:], gray)[0], recoloured[1])  # the same each time


def test_hair_of_another_class_leaves_the_eyes_as_they_were() -> None:
    plain = sampling.load(RELEASED, CPU)
    found = directions.of(plain)
    (column, code), seeds = found.code("hair", "pink"), [10_004, 10_006, 10_008]
    sampler = plain.of_classes({}, plain.classes.learned({"hair": "pink"}))

    def draw(of: Sampler) -> torch.Tensor:
        return of.latents(seeds).cpu()

    own, of_class = draw(plain), draw(sampler)
    changed = found.change(sampler, draw, Change({}, {"hair": "pink"}))
    codes, _ = dataclasses.replace(found.classifier, least=(0.0, 0.0))(
        np.concatenate([next(sampler.draw(latents)) for latents in (own, of_class, changed)])
    )
    (before, by_class, after) = codes[:, 1 - column].reshape(3, -1)
    assert (by_class != before).any()
    assert (after == before).all()
    assert (codes[-3:, column] == code).all()


def test_an_unknown_colour_is_one_line(known: Sampler, found: Directions) -> None:
    with pytest.raises(ConfigError, match=r"--change: no colour of hair is called 'bleu'; did you mean blue\?"):
        found.targets(known, Change({}, {"hair": "bleu"}))


@pytest.mark.parametrize("text", ["light:0.5,turn:-1,hair:blue,eyes:red", "hair:fair, long,warm:1", ""])
def test_a_change_is_read_and_written(text: str) -> None:
    change = Change.parse(text) if text else Change()
    assert bool(change) == bool(text)
    assert Change.parse(str(change)) == change if text else str(change) == ""
    if text.startswith("light"):
        assert change == Change({"light": 0.5, "turn": -1.0}, {"hair": "blue", "eyes": "red"})
    elif text:
        assert change == Change({"warm": 1.0}, {"hair": "fair, long"})


def test_order_case_and_blanks_do_not_matter_and_what_stays_is_left_out() -> None:
    assert Change.parse(" Eyes : red , TURN:1,hair:blue,light:0") == Change.parse("turn:1,hair:blue,eyes:red")
    assert list(Change.parse("eyes:red,hair:blue").colours) == ["hair", "eyes"]  # the first is held with the second
    assert not Change.parse("light:0,warm:-0.0")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected NAME:VALUE, such as hair:blue,light:0.5; got ''"),
        ("blue", "expected NAME:VALUE, such as hair:blue,light:0.5; got 'blue'"),
        ("hair:", "expected NAME:VALUE, such as hair:blue,light:0.5; got 'hair:'"),
        ("hair:blue,:1", "expected NAME:VALUE, such as hair:blue,light:0.5; got ':1'"),
        ("hare:blue", "no change is called 'hare'; did you mean hair?"),
        ("mood:calm", "no change is called 'mood'; there are hair, eyes, light, warm, turn"),
        ("hair:blue,hair:red", "hair is given twice; give it once"),
        ("light:1.5", "light must be from -1 to 1; got 1.5"),
        ("turn:-1.01", "turn must be from -1 to 1; got -1.01"),
        ("warm:nan", "warm must be from -1 to 1; got nan"),
        ("light:bright", "light must be a number, such as light:0.5; got 'bright'"),
    ],
)
def test_a_change_that_makes_no_sense_is_one_line(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"--change: {said}")):
        Change.parse(text)
