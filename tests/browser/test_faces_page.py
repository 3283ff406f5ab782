"""The page of `export.py --to=html` in a real Chromium without any network: it draws what `generate.py` draws."""

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import hypothesis
import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from machine import PATIENCE
from PIL import Image
from playwright.sync_api import Browser, Page, expect

from config import RELEASED, ConfigError, ModelConfig
from gan.classes import NONE, Classes
from gan.latent import latents
from gan.play import enlarging
from gan.quality import sampling
from gan.quality.sampling import Sampler
from gan.sharing import web_page
from model import Generator

CPU = torch.device("cpu")
KINDS = (("hair", "blue", "red"), ("mood", "calm", "wild"))
TINY = ModelConfig(arch="dcgan", image_size=32, nz=20, ngf=8, ndf=8)
NETWORKS = {
    "book": dataclasses.replace(TINY, arch="book", image_size=96),
    "dcgan": dataclasses.replace(TINY, image_size=96),
    "resnet": dataclasses.replace(TINY, arch="resnet"),
    "fine": dataclasses.replace(TINY, fine=True),
    "grey": dataclasses.replace(TINY, channels=1),
    "classes": dataclasses.replace(TINY, vocabulary=KINDS),
}
LOADS_WHEN_TOLD = """
    const compile = WebAssembly.compile;
    const asked = new Promise(done => { window.goOn = done; });
    WebAssembly.compile = async bytes => { window.waiting = true; await asked; return compile(bytes); };
"""

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def opened(browser: Browser, lacking: Callable[[str], NoReturn], tmp_path_factory: pytest.TempPathFactory):
    """A function that writes the page of a generator and opens it from its file; nothing may leave the machine."""
    try:
        web_page.fetched()
    except ConfigError as error:
        lacking(str(error))
    context, wrong = browser.new_context(offline=True, viewport={"width": 1100, "height": 900}), list[str]()

    def open_page(sampler: Sampler) -> Page:
        path = tmp_path_factory.mktemp("page") / "faces.html"
        web_page.write(sampler, path)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("dialog", lambda dialog: wrong.append(dialog.message) or dialog.dismiss())  # of a name that was run
        page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
        near = ("file:", "blob:", "data:")
        page.on("request", lambda one: None if one.url.startswith(near) else wrong.append(one.url))
        page.goto(path.as_uri())
        page.wait_for_function("wall.length === WALL")
        return page

    yield open_page
    assert wrong == []
    context.close()


@pytest.fixture(scope="module")
def released(opened: Callable[..., Page]) -> Iterator[tuple[Page, Sampler]]:
    sampler = sampling.load(RELEASED, CPU)
    page = opened(sampler)
    yield page, sampler
    page.close()


def small(model: ModelConfig) -> Sampler:
    """A sampler with random weights, whose faces are not grey all over."""
    torch.manual_seed(3)
    generator = Generator(model).eval().requires_grad_(False)
    for name, weight in generator.state_dict().items():
        if "running_var" in name:
            weight.uniform_(0.5, 2)
        elif "classes" in name:
            weight[1:] = torch.randn_like(weight[1:]) / 10
        elif weight.ndim > 1:
            weight.copy_(torch.randn_like(weight) * (2 / weight[0].numel()) ** 0.5)
        elif weight.ndim:
            weight.add_(torch.randn_like(weight) * 0.1)
    known = Classes.of(KINDS, np.array([[1, 1]] * 5 + [[2, 2]] * 3 + [[1, 2]])) if model.vocabulary else NONE
    return Sampler(generator, None, model, CPU, classes=known)


def drawn(page: Page, seed: int, truncation: float = 1.0, asked: list[int] | None = None) -> np.ndarray:
    """A face as the page computes it, (S, S, 3)."""
    return pixels_of(page, f"faceOf(latentOf({seed}, {truncation}, {asked or []}))")


def pixels_of(page: Page, face: str) -> np.ndarray:
    """The pixels of a face, an expression of the page, (S, S, 3)."""
    values = page.evaluate(f"{face}.data")
    side = round((len(values) / 4) ** 0.5)
    return np.array(values).reshape(side, side, 4)[..., :3]


def off(page: Page, sampler: Sampler, seeds: range) -> np.ndarray:
    """How far the page's pixels are from PyTorch's."""
    expected = np.concatenate(list(sampler.faces(seeds)))
    expected = np.broadcast_to(expected, (*expected.shape[:3], 3)).astype(int)
    assert expected.std() > 5
    return np.abs(np.stack([drawn(page, seed) for seed in seeds]) - expected)


def test_the_released_generators_page_draws_what_pytorch_draws(released: tuple[Page, Sampler]) -> None:
    page, sampler = released
    far = off(page, sampler, range(64))
    assert far.mean() <= 2
    assert np.percentile(far, 99) <= 8


def test_faces_become_crisp_as_pytorch_enlarges_them(released: tuple[Page, Sampler]) -> None:
    page, sampler = released
    page.wait_for_function("wall.every(one => one.crisp)", timeout=PATIENCE)
    assert page.evaluate("[...document.querySelectorAll('#wall canvas, #face')].every(one => one.width === 384)")
    expected = list(enlarging.draw(sampler, sampler.latents(range(4), 0.0, 0.8), 4))
    far = [np.abs(pixels_of(page, f"wall[{i}].face") - expected[i].astype(int)) for i in range(4)]
    assert np.mean(far) <= 3
    assert np.percentile(far, 99) <= 16


@pytest.mark.parametrize("name", NETWORKS)
def test_every_kind_of_network_is_drawn(
    opened: Callable[..., Page], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web_page.Weights, "add", lambda self, tensor: self.put(tensor.numpy()))  # not rounded
    sampler = small(NETWORKS[name])
    page = opened(sampler)
    far = off(page, sampler, range(8))
    assert far.mean() <= 0.01
    assert far.max() <= 1
    page.close()


def test_changes_while_the_page_loads_are_drawn_in_the_end(browser: Browser, tmp_path: Path) -> None:
    sampler = small(TINY)
    web_page.write(sampler, tmp_path / "faces.html")
    context = browser.new_context(offline=True)
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    page.add_init_script(LOADS_WHEN_TOLD)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto((tmp_path / "faces.html").as_uri())
    page.wait_for_function("window.waiting")
    page.locator("#seed").fill("40")
    page.locator("#seed").dispatch_event("change")
    page.evaluate("goOn()")
    page.wait_for_function("wall.length === WALL")
    assert page.evaluate("wall[0].seed") == 40
    assert not errors
    context.close()


def test_nothing_is_saved_before_there_is_a_face(browser: Browser, tmp_path: Path) -> None:
    web_page.write(small(TINY), tmp_path / "faces.html")
    context = browser.new_context(offline=True)
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.add_init_script(LOADS_WHEN_TOLD)
    page.goto((tmp_path / "faces.html").as_uri())
    page.wait_for_function("window.waiting")
    page.evaluate("window.kept = faceOf; window.faceOf = () => { throw new Error('no memory'); }; goOn()")
    page.wait_for_function("document.getElementById('said').textContent.endsWith('no memory')")
    for part in ("#save-face", "#save-wall"):
        page.evaluate("part => document.querySelector(part).click()", part)
    assert errors == ["no memory"]
    page.evaluate("() => { window.faceOf = kept; }")
    page.locator("#draw").click()
    page.wait_for_function("wall.length === WALL")
    with page.expect_download() as download:
        page.locator("#save-face").click()
    assert download.value.suggested_filename == "face-00000000.png"
    context.close()


def test_a_seed_means_the_same_latent_as_in_numpy(released: tuple[Page, Sampler]) -> None:
    page, sampler = released
    seeds = [*range(2000), 2**31, 2**32 - 1, 2**32, 2**40 + 7, 2**53 - 17]
    ask = "([seeds, truncation]) => seeds.map(seed => latentOf(seed, truncation))"
    found, classes = (np.array(page.evaluate(ask, [seeds, truncation])) for truncation in (0.7, 0.0))
    expected = latents(seeds, sampler.model.nz, 0.0, 0.7).numpy()
    np.testing.assert_allclose(found - classes, expected, rtol=1e-5, atol=1e-6)
    expected = sampler.latents(seeds, 0.0, 0.0).numpy()
    np.testing.assert_allclose(classes, expected, rtol=0, atol=0.01)  # the vectors of classes have 8 bits
    limit = 3_000_000_000  # many first tries are above it
    found = page.evaluate("([n, limit]) => [...Array(n).keys()].map(i => below(pcg64([i]), limit))", [200, limit])
    assert found == [np.random.default_rng(i).integers(limit) for i in range(200)]


def test_classes_are_asked_for_or_drawn_as_often_as_faces_had_them(opened: Callable[..., Page]) -> None:
    sampler = small(NETWORKS["classes"])
    page = opened(sampler)
    for asked in ([0, 0], [1, 0], [0, 2], [2, 1]):
        wanted = {column: code for column, code in enumerate(asked) if code}
        found = page.evaluate("([n, asked]) => [...Array(n).keys()].map(seed => codesOf(seed, asked))", [300, asked])
        assert found == sampler.classes.of_seeds(range(300), wanted).tolist()
    before = drawn(page, 0, 0.8)
    page.locator("#classes select").first.select_option("red")
    page.wait_for_function("wall.length === WALL")
    assert np.array_equal(pixels_of(page, "wall[0].face"), drawn(page, 0, 0.8, [2, 0]))
    assert not np.array_equal(before, drawn(page, 0, 0.8, [2, 0]))
    page.close()


def test_names_of_classes_are_text(opened: Callable[..., Page]) -> None:
    names = "<img src=x onerror=alert(1)>", "</script><script>alert(1)</script>", "/*BINARY*/"
    kinds = (("hair", *names), ("<img src=x onerror=alert(2)>", "calm", "wild"))
    sampler = small(dataclasses.replace(TINY, vocabulary=kinds))
    sampler.classes = Classes.of(kinds, np.array([[1, 1], [2, 2], [3, 1]]))
    page = opened(sampler)
    assert page.locator("#classes select").first.locator("option").all_inner_texts()[1:] == list(names)
    assert page.locator("#classes img").count() == 0
    page.close()


def test_its_parts_do_what_they_say(released: tuple[Page, Sampler], tmp_path: Path) -> None:
    page, sampler = released
    expect(page.locator("#wall canvas")).to_have_count(16)
    page.locator("#next").click()
    page.wait_for_function("wall.length === WALL && wall[0].seed === 16")
    page.locator("#seed").fill("-7")
    page.locator("#draw").click()
    page.wait_for_function("wall.length === WALL && wall[0].seed === 0")

    expect(page.locator("#morph")).to_be_disabled()
    for nth in (3, 5):
        page.locator("#wall button").nth(nth).click()
    with page.expect_download() as download:
        page.locator("#save-face").click()
    assert download.value.suggested_filename == "face-00000005.png"
    download.value.save_as(tmp_path / "face.png")
    face = np.asarray(Image.open(tmp_path / "face.png").convert("RGB")).astype(int)
    (expected,) = enlarging.draw(sampler, sampler.latents([5], 0.0, 0.8), 4)
    assert np.abs(face - expected).mean() <= 3
    page.locator("#morph").click()
    page.wait_for_function(
        "current.seed === '' && document.getElementById('said').textContent === ''", timeout=PATIENCE
    )
    page.locator("#clear").click()
    expect(page.locator("#wall [aria-pressed=true]")).to_have_count(0)
    with page.expect_download() as download:
        page.locator("#save-wall").click()
    download.value.save_as(tmp_path / "faces.png")
    assert np.asarray(Image.open(tmp_path / "faces.png")).shape[:2] == (4 * 386 + 2, 4 * 386 + 2)

    expect(page.locator("#draw")).to_have_text("Draw")
    page.locator("#language").click()
    expect(page.locator("#draw")).to_have_text("生成")
    assert page.evaluate("[...document.querySelectorAll('[data-say]')].every(one => one.textContent)")
    page.set_viewport_size({"width": 400, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    page.set_viewport_size({"width": 1100, "height": 900})


@pytest.mark.torture
def test_whatever_is_typed_and_clicked_the_page_goes_on_drawing(opened: Callable[..., Page]) -> None:
    page = opened(small(NETWORKS["classes"]))
    parts = [f"#{part}" for part in ("draw", "next", "random", "morph", "clear", "save-face", "save-wall", "language")]
    buttons = st.sampled_from([*parts, "#wall button:nth-child(3)", "#wall button:nth-child(16)"])
    typed = st.text(max_size=20) | st.integers().map(str) | st.floats().map(str) | st.sampled_from(["9" * 400, "1e999"])
    fields = st.sampled_from(["#seed", "#truncation", "#classes select:first-of-type"])
    steps = st.lists(st.tuples(buttons, fields, typed, st.booleans()), min_size=1, max_size=5)
    act = """([button, field, text, says]) => {
        const one = document.querySelector(field);
        one.value = text;
        if (says) for (const kind of ["input", "change"]) one.dispatchEvent(new Event(kind, {bubbles: true}));
        document.querySelector(button).click();
    }"""

    @hypothesis.settings(max_examples=500, deadline=None, database=None, phases=[hypothesis.Phase.generate])
    @hypothesis.given(steps)
    def play(steps: list[tuple[str, str, str, bool]]) -> None:
        for step in steps:
            page.evaluate(act, list(step))
        page.evaluate("document.querySelector('#seed').value = 5")
        page.evaluate("document.querySelector('#truncation').value = 1")
        page.wait_for_function("!document.querySelector('#draw').disabled")
        page.locator("#draw").click()
        page.wait_for_function("wall.length === WALL && wall[0].seed === 5")

    play()
    page.close()
