"""Recipes: what a PNG carries makes its face again; neighbours and sums of latents; and no recipe is trusted."""

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from config import ConfigError, ModelConfig
from gan.images import save_picture
from gan.play import recipes
from gan.play.recipes import KEYWORD, Recipe
from gan.quality.sampling import Sampler
from model import Generator

MODEL = ModelConfig(arch="dcgan", image_size=32, nz=20, ngf=8, ndf=8)
FACE = np.zeros((32, 32, 3), np.uint8)


@pytest.fixture(scope="module")
def sampler() -> Sampler:
    torch.manual_seed(0)
    return Sampler(Generator(MODEL).eval().requires_grad_(False), None, MODEL, torch.device("cpu"))


def written(path: Path, content: Any) -> Path:
    """A picture with a recipe of any kind."""
    texts = PngInfo()
    texts.add_text(KEYWORD, content if isinstance(content, str) else json.dumps(content))
    Image.fromarray(FACE).save(path, pnginfo=texts)
    return path


def content(**changes: Any) -> dict[str, Any]:
    latents = base64.b64encode(np.zeros((1, 20), "<f4").tobytes()).decode()
    return {
        "version": 1, "generator": "a" * 16, "seeds": [], "columns": None, "nz": 20, "latents": latents, **changes
    }  # fmt: skip


def test_a_png_carries_its_latents_to_the_bit(sampler: Sampler, tmp_path: Path) -> None:
    latents = sampler.latents([4, 9, 2])
    save_picture(FACE, tmp_path / "a.png", Recipe(sampler.digest, latents, 2, (4, 9, 2)).text())
    found = recipes.of(sampler, tmp_path / "a.png")
    assert torch.equal(found.latents, latents)
    assert (found.generator, found.columns, list(found.seeds)) == (sampler.digest, 2, [4, 9, 2])


def test_the_digest_is_of_the_weights_alone(sampler: Sampler) -> None:
    other = Generator(MODEL).eval()
    other.load_state_dict(sampler.generator.state_dict())
    assert Sampler(other, None, MODEL, torch.device("cpu")).digest == sampler.digest
    with torch.no_grad():
        next(other.parameters()).flatten()[0] += 1e-6
    assert Sampler(other, None, MODEL, torch.device("cpu")).digest != sampler.digest


def test_another_generators_picture_is_refused(sampler: Sampler, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"made by another generator \(aaaaaaaaaaaaaaaa\)"):
        recipes.of(sampler, written(tmp_path / "a.png", content()))


@pytest.mark.parametrize(
    "broken",
    [
        "",
        "{",
        "[" * 100_000,
        "3",
        "null",
        "[]",
        "{}",
        content(nz=0),
        content(nz=-1),
        content(nz=19),
        content(nz="many"),
        content(nz=1e400),
        content(latents=""),
        content(latents="AAA"),
        content(latents="!!!!"),
        content(latents=7),
        content(latents=base64.b64encode(np.full((1, 20), np.nan, "<f4").tobytes()).decode()),
        content(latents=base64.b64encode(np.full((1, 20), 1e30, "<f4").tobytes()).decode()),
        content(latents=base64.b64encode(np.zeros((1025, 20), "<f4").tobytes()).decode()),
        content(columns=0),
        content(columns=10**9),
        content(columns="x"),
        content(seeds=3),
        content(seeds=["x"]),
    ],
    ids=lambda broken: str(broken)[:40],
)
def test_a_recipe_that_makes_no_sense_is_one_clear_line(broken: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="its recipe is damaged; take another copy"):
        recipes.read(written(tmp_path / "a.png", broken))


def test_a_picture_without_a_recipe_one_of_the_future_and_no_picture_are_told_apart(tmp_path: Path) -> None:
    save_picture(FACE, tmp_path / "plain.png")
    save_picture(FACE, tmp_path / "a.jpg", Recipe("a" * 16, torch.zeros(1, 20)).text())
    (tmp_path / "text.png").write_text("no picture")
    for name, says in {
        "plain.png": "has no recipe",
        "a.jpg": "has no recipe",
        "text.png": "cannot be read as a picture",
        "none.png": "cannot be read as a picture",
    }.items():
        with pytest.raises(ConfigError, match=says):
            recipes.read(tmp_path / name)
    with pytest.raises(ConfigError, match="another version"):
        recipes.read(written(tmp_path / "new.png", content(version=2)))


def test_a_face_is_named_by_its_seed_or_its_picture(sampler: Sampler, tmp_path: Path) -> None:
    latents = sampler.latents([12, 13])
    save_picture(FACE, tmp_path / "12.png", Recipe(sampler.digest, latents[:1]).text())
    save_picture(FACE, tmp_path / "both.png", Recipe(sampler.digest, latents).text())
    assert torch.equal(recipes.point(sampler, " 12 "), latents[:1])
    assert torch.equal(recipes.point(sampler, str(tmp_path / "12.png")), latents[:1])
    with pytest.raises(ConfigError, match="shows 2 faces; give one"):
        recipes.point(sampler, str(tmp_path / "both.png"))


def test_neighbours_begin_with_the_face_and_lie_as_far_as_asked(sampler: Sampler) -> None:
    latent = sampler.latents([3])
    near = recipes.neighbours(latent, 200, 0.3)
    assert torch.equal(near[:1], latent)
    assert torch.equal(recipes.neighbours(latent, 5, 0.3), near[:5])
    alike = torch.nn.functional.cosine_similarity(near[1:], latent).mean()
    assert abs(alike - (1 - 0.3**2) ** 0.5) < 0.03
    torch.testing.assert_close(near[1:].mean(0), (1 - 0.3**2) ** 0.5 * latent[0], rtol=0, atol=0.1)
    assert torch.equal(recipes.neighbours(latent, 3, 0.0), latent.expand(3, -1))
    assert abs(torch.nn.functional.cosine_similarity(recipes.neighbours(latent, 200, 1.0)[1:], latent).mean()) < 0.1


@pytest.mark.parametrize("text", ["12 - 7 + 30", "12-7+30", " 12 -7+ 30 "])
def test_a_sum_has_its_direction_and_the_length_of_a_face(sampler: Sampler, text: str) -> None:
    a, b, c = sampler.latents([12, 7, 30])
    found = recipes.mixed(sampler, text)[0]
    torch.testing.assert_close(found / found.norm(), (a - b + c) / (a - b + c).norm())
    torch.testing.assert_close(found.norm(), torch.stack([a, b, c]).norm(dim=1).mean())


def test_a_sum_takes_pictures_with_signs_and_blanks_in_their_names(sampler: Sampler, tmp_path: Path) -> None:
    path = tmp_path / "my face-0-1.png"
    save_picture(FACE, path, Recipe(sampler.digest, sampler.latents([7])).text())
    torch.testing.assert_close(recipes.mixed(sampler, f"12 - {path} + 30"), recipes.mixed(sampler, "12 - 7 + 30"))


@pytest.mark.parametrize("text", ["", "12", "12 +", "+ 12", "12 - - 7", "- 12 + 3"])
def test_what_is_no_sum_is_refused(sampler: Sampler, text: str) -> None:
    with pytest.raises(ConfigError, match="expected a sum of faces"):
        recipes.mixed(sampler, text)


def test_a_sum_that_leaves_nothing_is_refused(sampler: Sampler) -> None:
    with pytest.raises(ConfigError, match="nothing is left"):
        recipes.mixed(sampler, "12 - 12")
