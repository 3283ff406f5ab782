"""Options: presets, limits, refusals, and the way through a checkpoint and back."""

import dataclasses
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from app import StudioConfig
from config import (
    ALIASES,
    CHANGEABLE_ON_RESUME,
    IMAGE_SIZES,
    RELEASED,
    CheckpointError,
    ConfigError,
    DataError,
    ModelConfig,
    TrainConfig,
    UserError,
    options_of,
    restore,
)
from evaluate import EvaluateConfig
from export import ExportConfig
from gan.data.cleaning import PrepareConfig
from gan.presets import PRESETS, resolve
from generate import GenerateConfig


def limits_of(config_type: Any) -> dict[str, tuple[float, float]]:
    options = options_of(config_type).items()
    return {name: (said.ge, said.le) for name, said in options if said.ge is not None}


CONFIGS = [
    (kind, limits_of(kind))
    for kind in (TrainConfig, GenerateConfig, EvaluateConfig, PrepareConfig, StudioConfig, ExportConfig)
]


def names(config_type: Any) -> set[str]:
    return {f.name for f in dataclasses.fields(config_type)}


def refusal(config_type: Any, **options: Any) -> str:
    """What is said of wrong options: one line."""
    with pytest.raises(ConfigError) as refused:
        resolve(config_type, options)
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize("preset", PRESETS)
def test_preset_sets_its_options_and_no_others(preset: Any) -> None:
    config = dataclasses.asdict(resolve(TrainConfig, {"preset": preset}))
    assert config == {**dataclasses.asdict(TrainConfig()), **PRESETS[preset], "preset": preset}


def test_default_preset_is_the_default() -> None:
    assert resolve(TrainConfig, {}) == resolve(TrainConfig, {"preset": "default"}) == TrainConfig()


def test_book_preset_is_the_first_edition() -> None:
    book = resolve(TrainConfig, {"preset": "book"})
    assert (book.nz, book.ngf, book.ndf, book.image_size, book.batch_size) == (100, 64, 64, 96, 256)
    assert (book.lr1, book.lr2, book.beta1, book.beta2) == (2e-4, 2e-4, 0.5, 0.999)
    assert (book.arch, book.loss, book.penalty, book.d_norm) == ("book", "bce", "none", "batch")
    assert (book.d_every, book.g_every, book.epochs) == (1, 5, 200)
    assert (book.ema_half_life_images, book.flip, book.translate, book.holdout) == (0, 0, 0, 0)


def test_book2_preset_is_the_second_edition() -> None:
    book, book2 = (dataclasses.asdict(resolve(TrainConfig, {"preset": preset})) for preset in ("book", "book2"))
    differing = {name: value for name, value in book2.items() if value != book[name]}
    assert differing == {"preset": "book2", "loss": "rahinge", "lr1": 2e-3, "g_every": 2}


def test_wgan_presets_are_those_of_the_papers() -> None:
    assert all(resolve(TrainConfig, {"preset": preset}).arch == "book" for preset in ("wgan", "wgan-gp"))
    wgan, gp = (resolve(TrainConfig, {"preset": preset}) for preset in ("wgan", "wgan-gp"))
    assert (wgan.clip, wgan.lr1, wgan.lr2, wgan.g_every, wgan.penalty) == (0.01, 5e-5, 5e-5, 5, "none")
    assert (gp.penalty, gp.penalty_weight, gp.penalty_every, gp.d_norm) == ("gp", 10, 1, "none")
    assert (gp.lr1, gp.lr2, gp.beta1, gp.beta2, gp.g_every, gp.clip) == (1e-4, 1e-4, 0, 0.9, 5, 0)


def test_a_budget_has_an_end() -> None:
    assert refusal(TrainConfig, budget=1e307) == "--budget: must be from 0.01 to 1e+09; got 1e+307"


def test_wgan_needs_a_bound() -> None:
    assert "--preset=wgan-gp" in refusal(TrainConfig, preset="book", loss="wgan")


def test_the_books_networks_are_never_fine() -> None:
    assert "--fine" in refusal(TrainConfig, arch="book", fine=True)
    assert resolve(TrainConfig, {"arch": "resnet", "fine": True}).model.fine


@pytest.mark.parametrize("address", ["http://localhost", "localhost", "http://localhost:8097/page", "http://:8097"])
def test_a_visdom_server_has_an_address_with_its_port(address: str) -> None:
    assert "--vis_server" in refusal(TrainConfig, vis_server=address)
    for right in ("http://localhost:8097", "https://example.org:443/", "localhost:8098"):
        resolve(TrainConfig, {"vis_server": right})


@pytest.mark.parametrize(("size", "maps"), [(32, 3), (48, 3), (64, 4), (96, 4), (128, 5), (192, 5), (256, 6)])
def test_doublings_lead_from_the_first_map_to_the_faces(size: int, maps: int) -> None:
    model = TrainConfig(image_size=size, ngf=2).model
    assert model.first_pixels * 2**maps == size
    assert model.widths(2) == (64, 32, 16, 8, 4, 2)[-maps:] if maps < 5 else (16,) * (maps - 3) + (8, 4, 2)
    assert max(model.widths(2, most=4)) == 8


def test_model_is_the_part_that_decides_the_shapes() -> None:
    config = resolve(TrainConfig, {"preset": "book", "image_size": 64, "nz": 7, "ngf": 5, "ndf": 6})
    assert config.model == ModelConfig(arch="book", image_size=64, nz=7, ngf=5, ndf=6, d_norm="batch")
    assert resolve(TrainConfig, {}).model.projected


@pytest.mark.parametrize("field", ["arch", "d_norm"])
def test_networks_of_another_program_are_refused(field: str) -> None:
    with pytest.raises(ConfigError, match=f"{field}: expected one of .*; got 'new'"):
        dataclasses.replace(TrainConfig().model, **{field: "new"})


def test_options_are_few() -> None:
    numbers = [len(options_of(kind)) for kind, _ in CONFIGS]
    assert numbers[0] <= 45
    assert sum(numbers) <= 100


def test_weights_of_the_book_bring_its_preset_unless_another_is_typed() -> None:
    assert resolve(TrainConfig, {"netg_path": Path("g.pth")}) == resolve(
        TrainConfig, {"preset": "book", "netg_path": Path("g.pth")}
    )
    assert resolve(TrainConfig, {"netd_path": Path("d.pth"), "preset": "book2"}).loss == "rahinge"


def test_only_one_thing_to_start_from() -> None:
    assert "give one of them" in refusal(TrainConfig, init=Path("a.pt"), netd_path=Path("d.pth"))
    assert "give one of them" in refusal(GenerateConfig, checkpoint=Path("a.pt"), netg_path=Path("g.pth"))


def test_choosing_needs_a_discriminator_and_a_generator() -> None:
    assert "--netd_path" in refusal(GenerateConfig, netg_path=Path("g.pth"), gen_search_num=512)
    assert "--netg_path" in refusal(GenerateConfig, netd_path=Path("d.pth"))


@pytest.mark.parametrize("channels", [0, 2, 4])
def test_faces_are_grey_or_coloured(channels: int) -> None:
    assert "3 (colour) or 1 (grey)" in refusal(TrainConfig, channels=channels)


def test_typed_option_wins_over_the_preset_even_with_the_default_value() -> None:
    typed = {"preset": "book", "batch_size": 8, "g_every": TrainConfig().g_every}
    config = resolve(TrainConfig, typed)
    assert (config.batch_size, config.g_every, config.loss) == (8, 1, "bce")


@pytest.mark.parametrize(("config_type", "limits"), CONFIGS)
def test_value_beyond_its_limits_is_named_with_them(config_type: Any, limits: dict[str, tuple[float, float]]) -> None:
    for name, (least, greatest) in limits.items():
        expected = f"at least {least:g}" if greatest == math.inf else f"from {least:g} to {greatest:g}"
        for value in (least - 1, least - 1e-9, greatest + 1, -math.inf, math.inf, math.nan):
            assert refusal(config_type, **{name: value}) == f"--{name}: must be {expected}; got {value}"


@pytest.mark.parametrize(("config_type", "limits"), CONFIGS)
def test_both_ends_of_every_limit_are_allowed(config_type: Any, limits: dict[str, tuple[float, float]]) -> None:
    for name, ends in limits.items():
        for end in ends:
            if math.isfinite(end):
                needed: dict[Any, Any] = {GenerateConfig: {"gen_num": 1}, PrepareConfig: {"sources": (Path(),)}}
                options = needed.get(config_type, {}) | ({"budget": 1} if name == "anneal" else {})  # its share
                assert getattr(resolve(config_type, {**options, name: end}), name) == end


@pytest.mark.parametrize(("config_type", "limits"), CONFIGS)
def test_every_number_has_limits(config_type: Any, limits: dict[str, tuple[float, float]]) -> None:
    options = options_of(config_type)
    numbers = {f.name for f in dataclasses.fields(config_type) if re.search(r"\b(int|float)\b", str(f.type))}
    chosen = {"channels", *(name for name, said in options.items() if said.choices)}
    assert numbers & options.keys() - chosen == set(limits)


@pytest.mark.parametrize("size", [0, 95, 97, 512, -96])
def test_image_size_is_one_of_a_few(size: int) -> None:
    assert refusal(TrainConfig, image_size=size) == (
        f"--image_size: must be one of 32, 48, 64, 96, 128, 192, 256; got {size}"
    )


@pytest.mark.parametrize("times", [-2, 0, 1, 3, 8])
def test_faces_are_enlarged_two_or_four_times(times: int) -> None:
    for config_type, others in ((GenerateConfig, {}), (ExportConfig, {"to": "onnx"})):
        assert refusal(config_type, enlarge=times, **others) == f"--enlarge: must be one of 2, 4; got {times}"
        assert resolve(config_type, {"enlarge": 4, **others}).enlarge == 4


def test_every_listed_image_size_is_allowed() -> None:
    assert [resolve(TrainConfig, {"image_size": size}).image_size for size in IMAGE_SIZES] == list(IMAGE_SIZES)


def test_penalty_is_refused_where_batchnorm_mixes_the_batch() -> None:
    assert "BatchNorm" in refusal(TrainConfig, d_norm="batch")
    resolve(TrainConfig, {"d_norm": "batch", "penalty": "none"})


def test_going_on_and_starting_anew_exclude_each_other() -> None:
    said = refusal(TrainConfig, resume="True", init=Path("a.pt"))
    assert "--resume" in said
    assert "--init" in said


@pytest.mark.parametrize("run", ["", ".", "..", "a/b", "/a", "a/", "../a"])
def test_name_of_a_run_is_a_plain_name(run: str) -> None:
    assert refusal(TrainConfig, run=run).startswith("--run: ")


@pytest.mark.parametrize("run", ["a", "first run", "2026-11-01.b", "初音"])
def test_plain_names_of_runs_are_allowed(run: str) -> None:
    assert resolve(TrainConfig, {"run": run}).run == run


def test_faces_are_chosen_from_at_least_as_many() -> None:
    said = refusal(GenerateConfig, gen_num=10, gen_search_num=9)
    assert said.startswith("--gen_search_num: ")
    assert "10" in said
    assert said.endswith("got 9")
    assert resolve(GenerateConfig, {"gen_num": 10, "gen_search_num": 10}).gen_search_num == 10


@pytest.mark.parametrize("name", ["faces", "faces.gif", "faces.pt", "png"])
def test_picture_needs_a_format_that_is_known(name: str) -> None:
    assert refusal(GenerateConfig, gen_img=Path(name)).startswith("--gen_img: ")


@pytest.mark.parametrize("name", ["a.png", "a.JPG", "a.jpeg", "some/where/a.webp"])
def test_known_formats_are_allowed(name: str) -> None:
    assert resolve(GenerateConfig, {"gen_img": Path(name)}).gen_img == Path(name)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"preset": "book", "gpu": False},
        {"data_path": Path("a b/c.zip"), "save_path": Path("out"), "init": Path("w.pt"), "run": "r", "num_workers": 3},
        {"resume": "checkpoints/r", "lr1": 1 / 3, "seed": 2**53},
    ],
)
def test_config_survives_json(options: dict[str, Any]) -> None:
    config = resolve(TrainConfig, options)
    plain = {k: str(v) if isinstance(v, Path) else v for k, v in dataclasses.asdict(config).items()}
    assert restore(json.loads(json.dumps(plain))) == config


def test_option_of_another_version_is_no_silent_loss() -> None:
    with pytest.raises(TypeError, match="momentum"):
        restore({**dataclasses.asdict(TrainConfig()), "momentum": 0.9})


def test_stored_value_out_of_range_is_refused() -> None:
    with pytest.raises(ConfigError, match="--batch_size"):
        restore({"batch_size": 0})


def test_names_in_tables_are_options() -> None:
    assert names(TrainConfig) >= CHANGEABLE_ON_RESUME
    assert set(ALIASES.values()) <= names(TrainConfig) | names(GenerateConfig)
    assert not set(ALIASES) & (names(TrainConfig) | names(GenerateConfig))
    assert all(set(preset) <= names(TrainConfig) - {"preset"} for preset in PRESETS.values())


def test_what_defines_the_networks_cannot_change_on_resume() -> None:
    assert not CHANGEABLE_ON_RESUME & (names(ModelConfig) | {"batch_size", "seed", "loss", "precision", "preset"})


def test_configs_cannot_be_changed() -> None:
    for config in (TrainConfig(), GenerateConfig()):
        with pytest.raises(dataclasses.FrozenInstanceError):
            config.seed = 1  # pyright: ignore[reportAttributeAccessIssue]


def test_all_errors_of_users_are_caught_as_one() -> None:
    assert all(issubclass(error, UserError) for error in (ConfigError, DataError, CheckpointError))


def test_released_is_the_file_that_comes_with_the_program() -> None:
    assert resolve(TrainConfig, {"init": Path("released")}).init == RELEASED
    assert resolve(TrainConfig, {"init": Path("runs/released")}).init == Path("runs/released")
    assert resolve(EvaluateConfig, {"fake": Path("released")}).fake == RELEASED
    assert resolve(GenerateConfig, {"checkpoint": Path("released")}).checkpoint == RELEASED
