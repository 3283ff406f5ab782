"""Options as users type them, rightly and wrongly."""

import dataclasses
import inspect
import os
import subprocess
import sys
import textwrap
import unicodedata
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

import pytest

from app import StudioConfig
from config import (
    Arch,
    CheckpointError,
    ConfigError,
    DataError,
    TrainConfig,
    option,
    options_of,
)
from evaluate import EvaluateConfig
from export import ExportConfig
from gan.command_line import BARE, command_line, convert, help_text, options_table, parse
from gan.data.cleaning import PrepareConfig
from gan.language import catalogue, speaking
from generate import GenerateConfig

ARCHS = get_args(Arch)

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = (TrainConfig, GenerateConfig, EvaluateConfig, PrepareConfig, StudioConfig, ExportConfig)
QUOTED = 'write options as --name=value, and a value that holds spaces in quotes: --name="my value"'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Switches:
    """Options that the program has none of, yet fire would mistake."""

    noise: bool = option(False, "looks like the no-form of `ise`.")
    plain: bool = option(True, "a bool that cannot be unset.")
    level: float | None = option(None, "a number that may be unset.")
    own: int = 0  # no option


@pytest.fixture(autouse=True)
def _program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/somewhere/train.py"])


def answer(capsys: pytest.CaptureFixture[str], *words: str, config_type: Any = TrainConfig) -> str:
    """The one line that wrong words are answered with; nothing may run."""

    def run(*_: object) -> None:
        pytest.fail("ran in spite of a wrong option")

    with pytest.raises(SystemExit) as stop:
        command_line(config_type, run, words)
    out, err = capsys.readouterr()
    assert (stop.value.code, out) == (2, "")
    assert err.startswith("train.py: ")
    assert err.endswith("\n")
    assert err.count("\n") == 1
    return err.removeprefix("train.py: ").strip()


@pytest.mark.parametrize(
    ("words", "typed"),
    [
        ("", {}),
        ("--gpu", {"gpu": True}),
        ("--nogpu", {"gpu": False}),
        ("--gpu=False", {"gpu": False}),
        ("--gpu=false", {"gpu": False}),
        ("--gpu=TRUE", {"gpu": True}),
        ("--gpu False", {"gpu": False}),
        ("--gpu=None", {"gpu": None}),
        ("--nogpu --seed 3", {"gpu": False, "seed": 3}),
        ("--seed 3 --gpu", {"gpu": True, "seed": 3}),
        ("--batch-size 32", {"batch_size": 32}),
        ("--batch_size=32", {"batch_size": 32}),
        ("--eval_images=20_000", {"eval_images": 20_000}),
        ("--lr1 2e-4", {"lr1": 2e-4}),
        ("--lr1=.0002", {"lr1": 2e-4}),
        ("--holdout 0", {"holdout": 0.0}),
        ("--loss=bce", {"loss": "bce"}),
        ("--loss hinge", {"loss": "hinge"}),
        ("--resume", {"resume": BARE}),
        ("--resume --gpu", {"resume": BARE, "gpu": True}),
        ("--resume=checkpoints/a", {"resume": "checkpoints/a"}),
        ("--resume checkpoints/a", {"resume": "checkpoints/a"}),
        ("--run=1e4", {"run": "1e4"}),
        ("--run=[1,2]", {"run": "[1,2]"}),
        ("--run='x'", {"run": "'x'"}),
        ("--run=a=b", {"run": "a=b"}),
        ("--run=-x", {"run": "-x"}),
        ("--run=None", {"run": None}),
        ("--data_path=data/a.zip", {"data_path": Path("data/a.zip")}),
    ],
)
def test_train_options(words: str, typed: dict[str, Any]) -> None:
    parsed = parse(TrainConfig, words.split())
    assert parsed == typed
    assert all(type(parsed[name]) is type(value) for name, value in typed.items())  # 1 == True == 1.0


@pytest.mark.parametrize(
    ("words", "typed"),
    [
        ("--gen-num 64", {"gen_num": 64}),
        ("--gen_num=64", {"gen_num": 64}),
        ("--nogen 64", {"gen_num": 64}),
        ("--nogen=64", {"gen_num": 64}),
        ("--gen_mean=-0.5", {"gen_mean": -0.5}),
        ("--gen_mean -0.5", {"gen_mean": -0.5}),
        ("--gen_mean -.5", {"gen_mean": -0.5}),
        ("--gen_mean -5e-1 --nogpu", {"gen_mean": -0.5, "gpu": False}),
    ],
)
def test_generate_options(words: str, typed: dict[str, Any]) -> None:
    assert parse(GenerateConfig, words.split()) == typed


@pytest.mark.parametrize(
    ("words", "typed"),
    [
        ("--noise", {"noise": True}),
        ("--nonoise", {"noise": False}),
        ("--noplain", {"plain": False}),
        ("--level=None", {"level": None}),
        ("--level -2", {"level": -2.0}),
    ],
)
def test_switches(words: str, typed: dict[str, Any]) -> None:
    assert parse(Switches, words.split()) == typed


def test_home_folder_is_expanded() -> None:
    assert parse(TrainConfig, ["--data_path=~/faces"]) == {"data_path": Path.home() / "faces"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--bach_size=4", "unknown option --bach_size; did you mean --batch_size?"),
        ("--bach-size 4", "unknown option --bach-size; did you mean --batch_size?"),
        ("--BATCH_SIZE 4", "unknown option --BATCH_SIZE; did you mean --batch_size?"),
        ("--zzz", "unknown option --zzz; --help lists them all"),
        ("--lr=1e-4", "unknown option --lr; did you mean --lr1 or --lr2?"),
        ("--batch=64", "unknown option --batch; did you mean --batch_size?"),
        ("--epochs=9", "unknown option --epochs; did you mean --max_epoch?"),
        ("--normalize", "unknown option --normalize; --help lists them all"),
        ("--nolr1", "unknown option --nolr1; did you mean --lr1?"),
        ("--nogpuu", "unknown option --nogpuu; did you mean --nogpu?"),
        ("--noflip", "unknown option --noflip; did you mean --flip?"),
        ("-gpu", "unknown option -gpu; did you mean --gpu?"),
        ("-xgpu", "unknown option -xgpu; did you mean --gpu?"),
        ("-g", "unknown option -g; --help lists them all"),
        ("-b=4", "unknown option -b; --help lists them all"),
        ("---gpu", "unknown option ---gpu; did you mean --gpu?"),
        ("--=4", "unknown option --; --help lists them all"),
        ("--interactive", "unknown option --interactive; --help lists them all"),
        ("--trace", "unknown option --trace; --help lists them all"),
        ("--completion", "unknown option --completion; did you mean --compile?"),
        ("--gpu -- --trace", "unexpected '--'; write options as --name=value"),
        ("-- --interactive", "unexpected '--'; write options as --name=value"),
        ("--gpu - run", "unexpected '-'; write options as --name=value"),
        ("--run -", "unexpected '-'; write options as --name=value"),
        ("book", f"unexpected word 'book'; {QUOTED}"),
        ("train --gpu", "unexpected word 'train'; each task is a program of its own: python train.py"),
        ("generate", "unexpected word 'generate'; each task is a program of its own: python generate.py"),
        ("help", "unexpected word 'help'; write --help"),
        ("--data_path my faces", f"unexpected word 'faces'; {QUOTED}"),
        ("-5", f"unexpected word '-5'; {QUOTED}"),
        ("--gpu 7", "--gpu: expected True or False; got '7'; --gpu alone is True"),
        ("--gpu=yes", "--gpu: expected True or False; got 'yes'; --gpu alone is True"),
        ("--gpu=", "--gpu needs a value: --gpu=True"),
        ("--nogpu 7", "--nogpu takes no value; write --nogpu, or --gpu=True"),
        ("--nogpu=True", "--nogpu takes no value; write --nogpu, or --gpu=True"),
        ("--gpu --nogpu", "--gpu is given twice; give it once"),
        ("--lr1 1 --lr1=1", "--lr1 is given twice; give it once"),
        ("--batch_size 4 --batch-size 4", "--batch_size is given twice; give it once"),
        ("--lr1", "--lr1 needs a value: --lr1=NUMBER"),
        ("--lr1 --gpu", "--lr1 needs a value: --lr1=NUMBER"),
        ("--arch", f"--arch needs a value: --arch={'|'.join(ARCHS)}"),
        ("--run", "--run needs a value: --run=TEXT"),
        ("--run=", "--run needs a value: --run=TEXT"),
        ("--data_path", "--data_path needs a value: --data_path=PATH"),
        ("--resume=", "--resume needs a value: --resume=TEXT"),
        ("--batch_size=64.0", "--batch_size: expected a whole number; got '64.0'"),
        ("--batch_size=1e4", "--batch_size: expected a whole number; got '1e4'"),
        ("--batch_size=None", "--batch_size: expected a whole number; got 'None'"),
        ("--lr1=fast", "--lr1: expected a number; got 'fast'"),
        ("--lr1=None", "--lr1: expected a number; got 'None'"),
        ("--lr1=nan", "--lr1: expected a finite number; got 'nan'"),
        ("--lr1=-inf", "--lr1: expected a finite number; got '-inf'"),
        ("--lr1=1e999", "--lr1: expected a finite number; got '1e999'"),
        ("--arch=resnett", f"--arch: expected one of {', '.join(ARCHS)}; got 'resnett'; did you mean resnet?"),
        ("--arch=None", f"--arch: expected one of {', '.join(ARCHS)}; got 'None'"),
        ("--penalty=gp", "unknown option --penalty; --help lists them all"),
        ("--batch_size=1", "--batch_size: must be at least 2; got 1"),
        ("--cascade=a.xml", "unknown option --cascade; --help lists them all"),
    ],
)
def test_wrong_words(words: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(capsys, *words.split()) == message


def test_a_folder_without_its_option_is_answered_with_the_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "faces").mkdir()
    assert answer(capsys, "faces") == "unexpected word 'faces'; pictures are given as --data_path=faces"
    assert answer(capsys, "--data_path=my", "faces") == f"unexpected word 'faces'; {QUOTED}"  # "my faces" is meant


@pytest.mark.parametrize("config_type", [GenerateConfig, EvaluateConfig, PrepareConfig, StudioConfig, ExportConfig])
def test_a_program_without_details_lists_all_options_by_help(
    config_type: type, capsys: pytest.CaptureFixture[str]
) -> None:
    assert answer(capsys, "--zzz", config_type=config_type) == "unknown option --zzz; --help lists them all"


def test_wrong_words_of_generate(capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(capsys, "--nogen", config_type=GenerateConfig) == "--nogen needs a value: --gen_num=INT"
    twice = answer(capsys, "--nogen=1", "--gen_num=2", config_type=GenerateConfig)
    assert twice == "--gen_num is given twice; give it once"


def test_options_of_another_entry_point_are_answered_with_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(capsys, "--checkpoint=x", config_type=EvaluateConfig) == (
        "unknown option --checkpoint; did you mean --fake?"
    )
    assert answer(capsys, "--data_path=x", config_type=EvaluateConfig).endswith("; did you mean --real?")


@pytest.mark.parametrize("digits", [20, 400, 5000])
def test_huge_numbers_are_answered_briefly(digits: int, capsys: pytest.CaptureFixture[str]) -> None:
    message = answer(capsys, "--max_epoch=" + "9" * digits)
    assert message.startswith("--max_epoch: expected a whole number")
    assert len(message) < 200


def test_empty_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(capsys, "").startswith("unexpected word ''")
    assert answer(capsys, "--run", " ") == "--run needs a value: --run=TEXT"


def test_what_powershell_makes_of_a_path_that_ends_in_a_backslash(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    message = answer(capsys, '--data_path=.\\my pics" --run=a')
    assert message.endswith("if it has a path in quotation marks that ends in a backslash, leave that out")


def test_invisible_characters_and_dashes_of_word_processors_are_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert answer(capsys, "--vis\u200b") == "unknown option --vis\\u200b; did you mean --vis?"
    assert answer(capsys, "--vis\rx") == "unknown option --vis\\rx; did you mean --vis?"
    assert answer(capsys, "\u2013run=a", "--gpu") == "\u2013run=a begins with a typographic dash; write --run=a"
    words = {PrepareConfig: ("--out", "--report"), GenerateConfig: ("--gen_img", "--outdir"), ExportConfig: ("--out",)}
    for config_type, names in {TrainConfig: ("--run", "--env", "--save_path"), **words}.items():
        for name in names:
            with pytest.raises(ConfigError, match=f"{name}: has the invisible character '.u200b'; got 'a.u200bb'"):
                parse(config_type, [f"{name}=a\u200bb"])
    (tmp_path / "a\tb").mkdir()
    assert parse(TrainConfig, [f"--data_path={tmp_path}/a\tb"])["data_path"].is_dir()


def test_line_ends_of_windows_are_dropped() -> None:
    ran = list[Any]()
    for words in (["--seed=3", "--run=mine\r"], ["--seed=3", "--run=mine", "\r"], ["--seed=3", "--run", "mine\r"]):
        command_line(TrainConfig, lambda config, typed: ran.append((config.run, typed)), words)
    assert ran == 3 * [("mine", {"seed": 3, "run": "mine"})]


def test_path_of_an_unknown_user(capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(capsys, "--init=~nobody-of-that-name/x.pt").startswith("--init: expected a path; got '~nobody")


def test_unions_written_the_old_way() -> None:
    # On Python 3.14 `X | None` is of this type too.
    from typing import Optional, Union

    assert convert("x", "None", Optional[int]) is None  # noqa: UP045
    assert convert("x", "3", Union[int, None]) == 3  # noqa: UP007
    assert convert("x", "b", Literal["a", "b"] | None) == "b"


def run_with(error: Exception) -> Callable[..., None]:
    def run(*_: object) -> None:
        raise error

    return run


@pytest.mark.parametrize("kind", [ConfigError, DataError, CheckpointError])
def test_user_errors_of_the_run_take_one_line(kind: type[Exception], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        command_line(TrainConfig, run_with(kind("no faces:\n  in  here\n\nlook there")), [])
    assert stop.value.code == 2
    assert capsys.readouterr().err == "train.py: no faces: in  here look there\n"


@pytest.mark.parametrize("rank", ["0", "1"])
def test_of_several_processes_one_answers_a_wrong_option_and_any_its_own_error(
    rank: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LOCAL_RANK", rank)
    for words, lines in ((["--batchsize=3"], 1 - int(rank)), ([], 1)):
        with pytest.raises(SystemExit) as stop:
            command_line(TrainConfig, run_with(DataError("other faces")), words)
        assert stop.value.code == 2
        assert len(capsys.readouterr().err.splitlines()) == lines


def test_bugs_keep_their_traceback() -> None:
    with pytest.raises(ZeroDivisionError):
        command_line(TrainConfig, run_with(ZeroDivisionError()), [])


def test_run_gets_the_config_and_what_was_typed() -> None:
    calls: list[tuple[TrainConfig, Mapping[str, Any]]] = []
    command_line(TrainConfig, lambda config, typed: calls.append((config, typed)), ["--preset=book", "--lr1=0.1"])
    ((config, typed),) = calls
    assert (config.loss, config.lr1, config.batch_size) == ("bce", 0.1, 256)
    assert typed == {"preset": "book", "lr1": 0.1}


def test_words_come_from_the_process_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["generate.py", "--nogen", "7"])
    calls: list[GenerateConfig] = []
    command_line(GenerateConfig, lambda config, _: calls.append(config))
    assert calls[0].gen_num == 7


@pytest.mark.parametrize("words", ["--help", "-h", "--bach_size=3 --help", "stray -- -h"])
def test_help_runs_nothing(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    command_line(TrainConfig, run_with(AssertionError("ran")), words.split())
    out, err = capsys.readouterr()
    assert out.startswith("usage: python train.py ")
    assert err == ""


@pytest.mark.parametrize("config_type", CONFIGS)
def test_every_option_has_a_meaning(config_type: type) -> None:
    assert all(len(said.meaning) > 10 and said.meaning.endswith(".") for said in options_of(config_type).values())
    own = {field.name for field in dataclasses.fields(config_type)} - options_of(config_type).keys()
    assert not own or config_type is TrainConfig  # which has details that presets set


@pytest.mark.parametrize("config_type", CONFIGS)
@pytest.mark.parametrize("width", [20, 60, 80, 200])
@pytest.mark.parametrize("spoken", ["en", "zh"])
def test_help_fits_the_terminal(config_type: type, width: int, spoken: str) -> None:
    with speaking(spoken):
        text = help_text(config_type, "train.py", width)
    # An option's own name and an example are not broken.
    free = [line for line in text.splitlines() if not line.startswith(("  --", "  python", "usage", "用法"))]
    assert max(map(columns, free)) <= max(width, 40)
    assert width < 80 or max(map(columns, text.splitlines())) <= width
    assert spoken == "zh" or text.isascii()


def columns(line: str) -> int:
    """The columns that a terminal gives to a line; quotation marks take two in some Chinese ones."""
    return sum(2 if unicodedata.east_asian_width(letter) in "WFA" else 1 for letter in line)


@pytest.mark.parametrize("config_type", CONFIGS)
def test_help_is_chinese_for_a_chinese_reader(
    config_type: type, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with speaking("zh"):
        command_line(config_type, run_with(AssertionError("ran")), ["--help"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("用法：python train.py")
    assert {"选项：", "示例：", f"{'  --help, -h':28}显示本说明。"} <= set(lines)
    shown = "".join("".join(lines).split())
    for said in (str(inspect.getdoc(config_type)), *(said.meaning for said in options_of(config_type).values())):
        assert "".join(catalogue()[said].split()) in shown
    assert "（默认值=" in shown
    assert "(default" not in shown
    assert not any(line.strip()[:1] in set("、。，；：？！）”=") or line[-1] in "（“" for line in lines if line)


def test_help_says_defaults_and_presets_in_chinese() -> None:
    with speaking("zh"):
        lines = help_text(TrainConfig, "train.py", 80).splitlines()
    at = lines.index(next(line for line in lines if "--batch_size" in line))
    assert [line.split() for line in lines[at : at + 2]] == [
        ["--batch_size=INT", "每一步的头像数。（默认值=32；book=256；book64=64；"],
        ["book2=256；wgan=64；wgan-gp=64）"],
    ]


def test_help_says_types_defaults_and_presets() -> None:
    text = " ".join(help_text(TrainConfig, "train.py", 80).split())
    assert "--batch_size=INT faces per step. (default=32; book=256; book64=64; book2=256; wgan=64; wgan-gp=64)" in text
    assert "--[no]gpu train on the GPU" in text
    assert "--resume[=TEXT] go on" in text
    assert "--run=TEXT name of the run" in text
    assert f"--arch={'|'.join(ARCHS)} generator:" in text
    assert "(default=dcgan; book=book; book64=book; book2=book; wgan=book; wgan-gp=book)" in text
    assert "(default=checkpoints/anime-faces-96.pt)" in help_text(GenerateConfig, "generate.py", 80)


BOOK = """gpu vis env data_path image_size batch_size max_epoch lr1 lr2 beta1 nz ngf ndf num_workers save_path
plot_every save_every d_every g_every netg_path netd_path debug_file"""


def test_the_options_of_the_book_are_there() -> None:
    assert options_of(TrainConfig).keys() >= set(BOOK.split())


@pytest.mark.parametrize(("config_type", "words"), [(kind, words) for kind in CONFIGS for words in kind.examples])
def test_examples_in_the_help_are_right(config_type: type, words: str) -> None:
    assert parse(config_type, words.split())


SCRIPT = """
import sys
from config import TrainConfig
from gan.command_line import command_line

def run(config, typed):
    assert "torch" not in sys.modules
    if config.seed == 1:
        raise KeyboardInterrupt
    if config.seed == 2:
        raise RuntimeError("a bug")
    print("ran", config.run, flush=True)

if __name__ == "__main__":
    command_line(TrainConfig, run)
"""


def start(tmp_path: Path, *words: str, **streams: Any) -> subprocess.CompletedProcess[str]:
    """Run the script above; it is named train.py, and finds the program beside it in the path."""
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(SCRIPT))
    streams = {"stderr": subprocess.PIPE, **(streams or {"stdout": subprocess.PIPE})}
    return subprocess.run(
        [sys.executable, str(script), *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PAGER": "false"},
        stdin=subprocess.DEVNULL,
        encoding="utf-8",
        timeout=300,
        check=False,
        **streams,
    )


def test_process_runs_without_torch(tmp_path: Path) -> None:
    done = start(tmp_path, "--run", "猫")
    assert (done.returncode, done.stdout, done.stderr) == (0, "ran 猫\n", "")


def test_process_exit_codes(tmp_path: Path) -> None:
    wrong = start(tmp_path, "--bach_size=4")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr == "train.py: unknown option --bach_size; did you mean --batch_size?\n"
    interrupted = start(tmp_path, "--seed=1")
    assert (interrupted.returncode, interrupted.stderr) == (130, "train.py: interrupted\n")
    bug = start(tmp_path, "--seed=2")
    assert bug.returncode == 1
    assert bug.stderr.startswith("Traceback")
    assert "fire" not in bug.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["train.py"]


def test_help_into_a_closed_pipe(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        done = start(tmp_path, "--help", stdout=write)
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("gone", ["pipe", "full"])
def test_the_work_goes_on_when_nobody_can_read_what_it_says(tmp_path: Path, gone: str) -> None:
    read, write = os.pipe()
    os.close(read)
    out = write if gone == "pipe" else os.open("/dev/full", os.O_WRONLY)
    try:
        done = start(tmp_path, stdout=out)
    finally:
        os.close(out)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_error_into_a_closed_pipe(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        assert start(tmp_path, "--bach_size=4", stdout=subprocess.DEVNULL, stderr=write).returncode == 2
    finally:
        os.close(write)


def test_options_are_shown_as_text_and_nothing_else() -> None:
    assert options_table({"data_path": "<b>a&b</b>", "run": None}).count("<td") == 2
    assert "&lt;b&gt;a&amp;b&lt;/b&gt;" in options_table({"data_path": "<b>a&b</b>"})


@pytest.mark.parametrize("script", ["app", "evaluate", "export", "generate", "prepare", "train"])
def test_entry_points_find_the_program_and_say_what_an_environment_lacks(script: str, tmp_path: Path) -> None:
    bare = "import sys; sys.argv.append('-h'); sys.modules.update(torch=None, fire=None, numpy=None); import runpy; "
    run = f"runpy.run_path({str(ROOT / script)!r} + '.py', run_name='__main__')"

    def started(language: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "ANIMEGAN_LANG": language, "PYTHONUTF8": "1"}
        command = [sys.executable, "-c", bare + run]
        return subprocess.run(command, capture_output=True, encoding="utf-8", env=env, check=False, cwd=tmp_path)

    assert "多半是没有激活环境" in started("zh").stderr
    done = started("en")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert f"{sys.executable} is Python" in done.stderr
    assert "the program needs 3.10 or newer, with the packages of requirements.txt: activate" in done.stderr


def test_a_folder_that_was_deleted_and_ctrl_c_while_modules_load_are_one_line(tmp_path: Path) -> None:
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import os; "
    for then, number, said in (
        ("os.rmdir(os.getcwd()); import config", 1, "the folder where you are was deleted; go to another one: cd\n"),
        ("import config; raise KeyboardInterrupt", 130, "interrupted\n"),
    ):
        (tmp_path / "here").mkdir(exist_ok=True)
        words = [sys.executable, "-c", code + then]
        done = subprocess.run(words, cwd=tmp_path / "here", capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (number, said)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc holds no folders of others")
def test_a_notebooks_backend_and_a_closed_home_do_not_disturb_plots() -> None:
    plot = "lambda *words: __import__('matplotlib.font_manager').font_manager.fontManager.get_font_names()"
    code = "from gan.command_line import command_line; from config import TrainConfig; "
    done = subprocess.run(
        [sys.executable, "-c", f"{code}command_line(TrainConfig, {plot}, [])"],
        cwd=ROOT,
        env={**os.environ, "MPLBACKEND": "module://nowhere.backend", "MPLCONFIGDIR": "/proc/nothing"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
