"""The studio without its page: generators at hand, and commands that say what is shown."""

import asyncio
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from config import RELEASED, CheckpointError, ConfigError, ModelConfig
from gan import checkpoint
from gan.play import enlarging, recipes
from gan.play.directions import Change
from gan.studio.faces import KEPT, Face, Studio, packed
from gan.studio.programs import Found, State
from gan.studio.sheet import ACROSS, TILE, Sheet
from gan.training import ema
from gan.watching.health import Diagnosis, Kind
from model import Discriminator, Generator

CPU = torch.device("cpu")
MODEL = ModelConfig(arch="dcgan", image_size=32, nz=20, ngf=8, ndf=8)


def write(path: Path, seed: int = 0) -> None:
    torch.manual_seed(seed)
    weights = {"ema": ema.average_of(Generator(MODEL)).state_dict(), "discriminator": Discriminator(MODEL).state_dict()}
    described = {name: getattr(MODEL, name) for name in MODEL.__dataclass_fields__}
    checkpoint.save(path, {"config": {}, "model": described, "step": 0, "images_seen": 0, **weights})


@pytest.fixture
def studio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Studio:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("gan.play.directions.SAMPLES", 128)  # for time
    for name, age in {"old/best.pt": 30, "new/best.pt": 20, "new/latest.pt": 10}.items():
        path = tmp_path / "checkpoints" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path)
        os.utime(path, (1e9 - age, 1e9 - age))
    (tmp_path / "checkpoints/new/.latest.pt.7.pt").touch()
    return Studio(RELEASED, CPU)


def test_every_checkpoint_is_at_hand_of_the_newest_run_the_best_first(studio: Studio) -> None:
    assert studio.names() == ["released", "new/best.pt", "new/latest.pt", "old/best.pt"]
    (face,) = studio.wall("new/latest.pt", 3, 1, 1.0, 1, "")
    assert studio.command(face, "--seed=3") == ("python generate.py --checkpoint=checkpoints/new/latest.pt --seed=3")
    for name in ("new/.latest.pt.7.pt", "../secret.pt", "/etc/passwd", ""):
        with pytest.raises(CheckpointError, match="no generator is called"):
            studio.sampler(name)


def test_a_list_shows_runs_by_their_names_not_files(studio: Studio) -> None:
    for name in ("fresh/latest.pt", "new/step5.pt"):
        Path("checkpoints", name).parent.mkdir(exist_ok=True)
        write(Path("checkpoints", name))
    os.utime("checkpoints/new/step5.pt", (1e9, 1e9))
    assert studio.choices() == [
        ("released", "released"),
        ("fresh", "fresh/latest.pt"),
        ("new", "new/best.pt"),
        ("new/step5.pt", "new/step5.pt"),
        ("new, its latest faces", "new/latest.pt"),
        ("old", "old/best.pt"),
    ]


def test_a_run_that_trains_is_loaded_again(studio: Studio) -> None:
    before = studio.sampler("new/latest.pt")
    assert studio.sampler("new/latest.pt") is before
    write(Path("checkpoints/new/latest.pt"), seed=1)
    assert studio.sampler("new/latest.pt").digest != before.digest


def test_a_wall_is_drawn_once_for_all_pages(studio: Studio, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn, draw = list[int](), enlarging.draw
    monkeypatch.setattr(enlarging, "draw", lambda *given: drawn.append(1) or draw(*given))

    def large(seed: int = 0) -> np.ndarray:
        return np.stack(studio.large(studio.wall("new/latest.pt", seed, 4, 1.0, 4, "")))

    first = large()
    assert np.array_equal(first, large())
    assert len(drawn) == 1
    write(Path("checkpoints/new/latest.pt"), seed=1)
    assert not np.array_equal(first, large())
    for seed in range(10, 10 + KEPT):  # the first ones give way
        large(seed)
    assert len(drawn) == len(studio.shown) + 2 == KEPT + 2


def test_a_checkpoint_that_is_asked_for_comes_first_and_a_missing_one_is_said(tmp_path: Path) -> None:
    write(tmp_path / "mine.pt")
    assert Studio(tmp_path / "mine.pt", CPU).names()[0] == "mine.pt"
    with pytest.raises(CheckpointError, match=r"nothing\.pt: no such checkpoint"):
        Studio(tmp_path / "nothing.pt", CPU).sampler("nothing.pt")


def test_a_sum_and_a_film_are_named_by_seeds_as_far_as_they_lead_to_the_faces(studio: Studio, tmp_path: Path) -> None:
    wall = studio.wall("old/best.pt", 5, 4, 1.0, 4, "")
    one, options = studio.mixed(wall, "1 - 3")
    assert options == ['--mix="5 - 7"']
    assert one.words == ["--like=face.png"]
    moved = studio.mixed([wall[0], one], "1 + 2")[1]
    assert moved == ['--mix="5 + pin-2.png"']
    clean = studio.wall("old/best.pt", 5, 2, 0.7, 2, "")
    assert studio.mixed(clean, "1 + 2")[1] == ['--mix="5 + 6"', "--gen_std=0.7"]
    assert studio.mixed([wall[0], clean[0]], "1 + 2")[1] == ['--mix="5 + pin-2.png"']
    assert studio.film(wall[:2], 0.2, tmp_path / "a.webp") == ["--morph=5,6", "--seconds=0.2"]
    assert (tmp_path / "a.webp").stat().st_size > 100


@pytest.mark.parametrize("text", ["0 + 1", "1 + 5", "0000000012 + 1", "one + two", "1", "1 + ../1.png"])
def test_a_sum_of_what_is_not_pinned_is_refused(studio: Studio, text: str) -> None:
    with pytest.raises(ConfigError, match=r"no face is pinned at|expected a sum of pinned faces"):
        studio.mixed(studio.wall("old/best.pt", 0, 4, 1.0, 4, ""), text)


def test_faces_of_two_generators_do_not_mix(studio: Studio) -> None:
    pins = [studio.wall(name, 0, 1, 1.0, 1, "")[0] for name in ("released", "old/best.pt")]
    with pytest.raises(ConfigError, match="of several generators"):
        studio.mixed(pins, "1 + 2")
    with pytest.raises(ConfigError, match="no face is pinned"):
        studio.mixed([], "1 + 2")
    with pytest.raises(ConfigError, match="pin two or more"):
        studio.film(pins[:1], 1, Path("a.webp"))


def test_a_picture_is_known_by_its_recipe_and_only_by_the_generator_that_made_it(
    studio: Studio, tmp_path: Path
) -> None:
    wall = studio.wall("old/best.pt", 5, 3, 1.0, 3, "")
    studio.save(wall, tmp_path / "wall.png")
    again, columns = studio.remembered("old/best.pt", tmp_path / "wall.png")
    assert columns is None
    assert [torch.equal(one.latent, other.latent) for one, other in zip(wall, again, strict=True)] == [True] * 3
    assert studio.remembered("released", tmp_path / "wall.png") == ([], None)
    (tmp_path / "broken.png").write_bytes((tmp_path / "wall.png").read_bytes()[:60])
    assert studio.remembered("old/best.pt", tmp_path / "broken.png") == ([], None)
    assert studio.remembered("old/best.pt", tmp_path / "missing.png") == ([], None)


def test_neighbours_lose_the_seed_but_the_first(studio: Studio) -> None:
    wall = studio.wall("old/best.pt", 5, 1, 1.0, 1, "")
    near = studio.neighbours(wall[0], 3, 0.4)
    assert [face.seed for face in near] == [5, None, None]
    assert near[0] is wall[0]


def test_a_face_says_how_it_was_drawn(studio: Studio, write_knowing: Callable[..., None]) -> None:
    assert [face.words for face in studio.wall("old/best.pt", 3, 1, 1.0, 1, "")] == [["--seed=3", "--nogen 1"]]
    write_knowing(Path("checkpoints/kinds/latest.pt"))
    (face,) = studio.wall("kinds/latest.pt", 3, 1, 0.7, 1, "mood:wild,hair:blue")
    assert face.words == ["--seed=3", "--nogen 1", "--gen_std=0.7", "--class=mood:wild,hair:blue"]
    assert face.without({0}).words == ["--seed=3", "--nogen 1", "--gen_std=0.7", "--class=mood:wild"]


def test_a_class_that_was_asked_for_gives_way_to_another_colour(
    studio: Studio, write_knowing: Callable[..., None]
) -> None:
    write_knowing(Path("checkpoints/kinds/latest.pt"))
    (red,) = studio.wall("kinds/latest.pt", 3, 1, 1.0, 1, "hair:red,mood:wild")
    (blue,) = studio.wall("kinds/latest.pt", 3, 1, 1.0, 1, "hair:blue,mood:wild")
    found = studio.directions(red.sampler)
    (own,) = studio.wall("kinds/latest.pt", 3, 1, 1.0, 1, "mood:wild")
    recoloured = found.recolour(red.sampler, blue.latent, *found.code("hair", "blue"), own.latent)
    assert torch.equal(studio.moved(red, Change({}, {"hair": "blue"})).latent, recoloured)


def test_the_command_of_a_recoloured_face_keeps_the_classes_that_stay(
    studio: Studio, write_knowing: Callable[..., None]
) -> None:
    write_knowing(Path("checkpoints/kinds/latest.pt"))
    (red,) = studio.wall("kinds/latest.pt", 3, 1, 1.0, 1, "hair:red,mood:wild")
    for colours, known in ({"hair": "aqua"}, {}), ({"hair": "Blue", "eyes": "red"}, {0: 1}):
        assert red.sampler.classes.learned(colours) == known
    assert torch.equal(
        studio.moved(red, Change({}, {"hair": "BLUE"})).latent, studio.moved(red, Change({}, {"hair": "blue"})).latent
    )


def test_a_face_whose_checkpoint_was_deleted_can_still_be_played_with(studio: Studio) -> None:
    wall = studio.wall("old/best.pt", 5, 2, 1.0, 2, "")
    Path("checkpoints/old/best.pt").unlink()
    assert studio.pixels(studio.neighbours(wall[0], 3, 0.4)).shape == (3, 32, 32, 3)
    assert studio.command(wall[0], "--seed=5").endswith("--checkpoint=checkpoints/old/best.pt --seed=5")


def test_faces_that_a_browser_kept_come_back_with_their_seeds_and_classes_as_long_as_their_generator_stays(
    studio: Studio, write_knowing: Callable[..., None]
) -> None:
    write_knowing(Path("checkpoints/new/latest.pt"))
    (first,) = studio.wall("new/latest.pt", 5, 1, 0.8, 1, "hair:red")
    changed = studio.neighbours(first, 2, 0.3)[1]
    kept = json.loads(json.dumps(packed([first, changed])))

    again = studio.unpacked(kept)

    assert [one.words for one in again] == [first.words, ["--like=face.png"]]
    assert np.array_equal(studio.pixels(again), studio.pixels([first, changed]))
    for i, wrong in enumerate(["../secret", "?", [[1.0] * 3], "x", "x", [[99, 0]]]):
        (left,) = studio.unpacked([[*kept[0][:i], wrong, *kept[0][i + 1 :]], kept[1]])
        assert left.words == ["--like=face.png"]
    for classes in ([[0, 99]], [[0, 0]], [[-1, 1]]):
        assert studio.unpacked([[*kept[0][:5], classes]]) == []
    for wrong in (None, "x", [None], [[]], [3], {"a": 1}, [[*kept[0][:2], [[1e999]], *kept[0][3:]]]):
        assert studio.unpacked(wrong) == []
    write(Path("checkpoints/new/latest.pt"), seed=1)
    assert studio.unpacked(kept) == []


def test_a_colour_that_is_no_class_is_a_direction(studio: Studio, write_knowing: Callable[..., None]) -> None:
    write_knowing(Path("checkpoints/kinds/latest.pt"))
    (red,) = studio.wall("kinds/latest.pt", 3, 1, 1.0, 1, "hair:red,mood:wild")
    moved = studio.moved(red, Change({}, {"hair": "aqua"}))
    assert moved.latent.shape == red.latent.shape
    assert not torch.equal(moved.latent, red.latent)


def test_a_face_stays_with_the_weights_that_drew_it(studio: Studio, tmp_path: Path) -> None:
    name = "new/latest.pt"
    (face,) = studio.wall(name, 3, 1, 1.0, 1, "")
    before, digest = studio.pixels([face]), face.sampler.digest
    write(Path("checkpoints/new/latest.pt"), seed=1)
    (again,) = studio.wall(name, 3, 1, 1.0, 1, "")
    assert again.sampler.digest != digest
    assert np.array_equal(studio.pixels([face]), before)
    studio.save([face], tmp_path / "face.png")
    assert recipes.read(tmp_path / "face.png").generator == digest
    with pytest.raises(ConfigError, match="of a run before and after it trained on"):
        studio.mixed([face, again], "1 + 2")


def test_a_run_that_is_named_by_its_folder_is_loaded_again_only_with_other_weights(studio: Studio) -> None:
    by_folder = Studio(Path("checkpoints/new"), CPU)
    before = by_folder.sampler("new")
    Path("checkpoints/new/report.html").touch()
    assert by_folder.sampler("new") is before


@pytest.mark.parametrize(("kind", "queues"), [("cpu", {"quick": 2, "long": 1}), ("mps", {"quick": 1})])
def test_two_threads_never_use_a_gpu_of_apple(
    studio: Studio, tmp_path: Path, kind: str, queues: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("gradio")
    from gan.studio import page

    async def built() -> Any:
        return page.build(studio, tmp_path)

    studio.sampler(studio.names()[0])  # loaded before, since this machine may have no such GPU
    monkeypatch.setattr(studio, "device", torch.device(kind))
    blocks = asyncio.run(built())
    work = [one for one in blocks.fns.values() if one.fn is not None and one.queue]
    assert {one.concurrency_id: one.concurrency_limit for one in work} == {**queues, "watch": 1}  # it draws nothing


def test_the_page_speaks_of_no_options_and_commands() -> None:
    pytest.importorskip("gradio")
    from gan.studio.train_tab import told

    def said(kind: Kind, text: str) -> str:
        return told(State(True, images=20_000, diagnosis=Diagnosis(kind, "short", text)))

    assert "short<br>wait &amp; see" in said("improving", "wait & see")
    assert "short<br>its best faces are kept: play with them" in said("stalled", "use python generate.py")
    assert "short<br>train anew, on more pictures if there are any" in said("lost", "a smaller --lr1 (now 1)")


def test_a_field_takes_whatever_is_typed_also_after_its_look_has_changed() -> None:
    gradio = pytest.importorskip("gradio")
    from gan.studio import parts

    for field, given in (
        (parts.slider(0, 5, 2, 0.1), {None: 2, "x": 2, 9: 5, 1.23456: 1.235}),
        (parts.whole_number(10, 1, 100), {None: 10, "x": 10, 0.2: 1, 1e9: 100, 7.9: 7}),
        (parts.choice(["a", "b", "c"], gradio.Radio(["a", "b", "c"])), {None: "a", "x": "a", "b": "b"}),
    ):
        anew = type(field)(**{**field.constructor_args, "visible": True, "render": False})  # as gradio updates it
        for one in (field, anew):
            assert {typed: one.preprocess(typed) for typed in given} == given
        assert anew.get_block_name() == type(field).__name__.lower()


def test_bad_faces_are_thrown_out_for_good_and_taken_back(
    tmp_path: Path, make_faces: Callable[..., list[Path]], run_here: Callable[..., CompletedProcess[str]]
) -> None:
    for path in make_faces(tmp_path / "pictures", 20, size=96)[10:]:
        Image.open(path).save(path.with_suffix(".webp"))
        path.unlink()
    clean = "prepare.py", "pictures", "--out=faces"
    assert run_here(*clean).returncode == 0
    sheet = Sheet(tmp_path / "faces")
    before = [path.read_bytes() for path in sheet.paths]
    picture = sheet.picture()
    for place in (0, 9, 9, 19, 20, -1, "0", None):  # face 9 is taken back; the last four are none
        sheet.click(place)
    assert [path.is_file() for path in sheet.paths] == [place not in (0, 19) for place in range(20)]
    assert sheet.paths[9].read_bytes() == before[9]
    assert picture.shape == (3 * TILE, ACROSS * TILE, 3)
    tiles = [picture[TILE * (place // ACROSS) :, TILE * (place % ACROSS) :][:TILE, :TILE] for place in range(20)]
    assert min(one.std() for one in tiles) > 10  # each is seen, of any format
    assert run_here(*clean).returncode == 0
    assert len(Sheet(tmp_path / "faces").paths) == 18  # prepare.py leaves them out, too
    sheet.click(0)
    assert run_here(*clean).returncode == 0
    assert len(Sheet(tmp_path / "faces").paths) == 19


def test_a_note_has_links_and_no_other_html() -> None:
    pytest.importorskip("gradio")
    from gan.studio import parts

    note = parts.note("get https://a.example/b_c or https://d.example/e; not <i> javascript:alert(1)")
    assert note.count("<a ") == 2
    assert '<a href="https://d.example/e" target' in note
    assert "&lt;i&gt; javascript:alert(1)</p>" in note


def test_the_answer_to_an_earlier_look_is_not_shown(
    studio: Studio, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("gradio")
    from gan.studio import page, parts, train_tab

    async def built() -> Any:
        return page.build(studio, tmp_path)

    blocks = asyncio.run(built())  # gradio leaves a loop of its own behind where none runs
    on = {function.fn.__name__: function.fn for function in blocks.fns.values() if function.fn is not None}
    now = parts.Session()

    def slow(*words: Any) -> Found:
        """Meanwhile something else is given."""
        on["on_forget"](now)
        return Found("data/faces", 3)

    monkeypatch.setattr(train_tab, "prepared", slow)
    *_, last = on["on_look"](now, str(tmp_path), [], "cut out")
    assert "3 faces" not in str(last)
    monkeypatch.setattr(train_tab, "prepared", lambda *words: Found("data/faces", 3))
    *_, last = on["on_look"](now, str(tmp_path), [], "cut out")
    assert "3 faces" in str(last)


def test_all_that_goes_on_is_cancelled() -> None:
    pytest.importorskip("gradio")
    from gan.studio import parts

    def long(now: parts.Session) -> tuple[()]:
        while True:
            parts.own_work()(1)
            time.sleep(0.01)

    now, quick = parts.Session(), parts.working(lambda now: (), 0, button=True)
    first, second = (parts.working(long, 0, button=True)(now) for _ in range(2))
    for one in (first, second):
        assert "bar" in next(one)[0]
    assert len([*quick(now)]) == 1  # one that begins and ends meanwhile
    parts.cancel(now)
    assert ["cancelled" in [*one][-1][0] for one in (first, second)] == [True, True]
    assert now.works == []


def test_a_change_that_ends_late_does_not_undo_what_was_clicked_meanwhile(
    studio: Studio, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gradio = pytest.importorskip("gradio")
    from gan.studio import faces_tab, page, parts

    async def built() -> Any:
        return page.build(studio, tmp_path)

    blocks = asyncio.run(built())  # gradio leaves a loop of its own behind where none runs
    on = {function.fn.__name__: function.fn for function in blocks.fns.values() if function.fn is not None}
    wall = tuple(studio.wall("new/latest.pt", 0, 2, 1.0, 1, ""))
    now, moved = parts.Session(wall=wall), studio.moved
    lighter = (1.0, 0.0, 0.0, faces_tab.AS_IS, faces_tab.AS_IS)
    for index in (0, 1):
        on["on_wall"](now, gradio.SelectData(None, {"index": 0, "value": None}))
        assert "--change=light:1" in [*on["on_change"](now, *lighter)][-1][-2]
        edited = now.moved

        def slow(*words: Any, index: int = index) -> Face:
            """Meanwhile the change is undone, or the second face is clicked."""
            if index == 0:
                on["on_reset"](now)
            else:
                on["on_wall"](now, gradio.SelectData(None, {"index": 1, "value": None}))
            return moved(*words)

        monkeypatch.setattr(studio, "moved", slow)
        *_, shown = on["on_change"](now, *lighter)
        monkeypatch.undo()
        monkeypatch.chdir(tmp_path)
        assert shown == (*[gradio.skip()] * 8, "")
        assert now.moved is now.chosen is not edited
        assert now.moved is not None
        assert now.moved.seed == index
