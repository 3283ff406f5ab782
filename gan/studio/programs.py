"""What the studio does with the other programs: it starts them, and reads all that a run is from its folder."""

import contextlib
import dataclasses
import hashlib
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from config import RUNS, ConfigError, DataError, UserError, restore
from gan.data.cleaning import plain_name
from gan.files import printable, write_text
from gan.images import PREVIEWS
from gan.language import lang, text
from gan.training.session import STOP, is_training
from gan.watching import health
from gan.watching.curves import Curves

ROOT = Path(__file__).resolve().parents[2]
DATA = Path("data")  # a folder of faces for each pile of pictures
MANIFEST = "manifest.json"  # in a folder that prepare.py wrote
SUFFIX = "-said.txt"  # of the file beside a run's folder with what train.py said
OFTEN = 0.2  # seconds between looks at a program
ENVIRONMENT = dict(os.environ)  # of the programs, which may fetch something; the studio itself ignores proxies

Progress = Callable[[int], object]


class ProgramError(UserError):
    """A program ended with an error, which it said in one line."""


class Program:
    """One of this project's programs in a process of its own, which goes on when the studio ends.

    What it says goes to the file `said`.
    """

    def __init__(self, name: str, words: Sequence[str], said: Path) -> None:
        self.said = said
        apart: dict[str, Any] = {"start_new_session": True}
        if sys.platform == "win32":
            apart = {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.CREATE_NO_WINDOW}
        env = {**ENVIRONMENT, "ANIMEGAN_LANG": lang(), "PYTHONIOENCODING": "utf-8"}
        said.parent.mkdir(parents=True, exist_ok=True)
        with said.open("wb") as out:
            command = [sys.executable, str(ROOT / name), *words]
            nothing = subprocess.DEVNULL
            self.process = subprocess.Popen(command, stdin=nothing, stdout=out, stderr=out, env=env, **apart)

    @property
    def running(self) -> bool:
        """Whether it still runs."""
        return self.process.poll() is None

    @property
    def last(self) -> str:
        """The last line that it said."""
        return last_line(self.said)

    def wait(self, progress: Progress) -> str:
        """Wait for its end, and return all that it said; if `progress` raises an exception, end it.

        Raises:
            ProgramError: it failed.
        """
        try:
            while self.running:
                progress(0)
                time.sleep(OFTEN)
        except BaseException:
            self.process.terminate()
            self.process.wait()
            raise
        if self.process.returncode:
            raise ProgramError(self.last or text("the program ended without a word; it may have lacked memory"))
        return self.said.read_text(encoding="utf-8", errors="replace")


def last_line(said: Path) -> str:
    """Return the last line that a program said, without its own name; empty if there is none."""
    with contextlib.suppress(OSError):
        lines = said.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1].split(".py: ", 1)[-1].strip() if lines else ""
    return ""


@dataclasses.dataclass(frozen=True)
class Found:
    """Faces that are ready to train on: their folder, how many there are, what was left out, and a report in HTML."""

    folder: str
    faces: int
    left_out: dict[str, int] = dataclasses.field(default_factory=dict, hash=False)  # gradio compares hashes
    oblong: bool = False  # whether most pictures are not square, so that they are hardly cut-out faces
    report: str = ""


def gathered(paths: Sequence[Path], folder: Path) -> Path:
    """Return one path for dropped files: the file itself if it is the only one, else a new folder that has all."""
    if len(paths) == 1:
        return paths[0]
    made = Path(tempfile.mkdtemp(prefix="dropped-", dir=folder)) / "pictures"
    made.mkdir()
    for number, path in enumerate(paths):
        name = made / (path.name if not (made / path.name).exists() else f"{number}-{path.name}")
        try:
            os.link(path, name)
        except OSError:
            shutil.copyfile(path, name)
    return made


def faces_in(folder: Path) -> list[Path]:
    """Return the faces of a folder that prepare.py wrote, without those that were deleted; of others none."""
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        rows = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        paths = [folder / row["file"] for row in rows if "source" in row]
        whole = folder.resolve()  # a manifest of somebody else may name files that lie elsewhere
        return [path for path in paths if path.is_file() and path.resolve().is_relative_to(whole)]
    return []


def prepared(source: Path, whole_pictures: bool, key: str, said: Path, progress: Progress) -> Found:
    """Make clean faces of pictures with prepare.py, in a folder of `data` that the same source always gets.

    Args:
        source: a folder, a zip or a picture; a folder that prepare.py wrote is taken as it is.
        whole_pictures: whether the faces have to be found and cut out.
        key: what tells the source from others of the same name.
        said: a file for what the program says.
        progress: called often; an exception of it ends the program.

    Raises:
        UserError: there are no faces, or something else is wrong.
    """
    shown = printable(str(source))
    if not source.exists():
        raise DataError(text("there is no {} on this machine; check the path").format(shown))
    if DATA.resolve().is_relative_to(source.resolve()):
        told = text("the studio keeps its own files in {}; give a folder that has the pictures alone")
        raise DataError(told.format(shown))
    if there := faces_in(source):
        return Found(str(source), len(there))
    name = f"{plain_name(source.stem)[:40] or 'pictures'}-{hashlib.sha256(key.encode()).hexdigest()[:4]}"
    out, report = DATA / name, DATA / f"{name}.html"
    words = [os.path.abspath(source), f"--out={out}", f"--report={report}", *(["--detect"] if whole_pictures else [])]
    DATA.mkdir(exist_ok=True)
    Program("prepare.py", words, said).wait(progress)
    result = json.loads(report.with_suffix(".json").read_text(encoding="utf-8"))
    kept = result["counts"]["kept"]
    left_out = {kind: number for kind, number in result["found"].items() if kind not in result["kept_kinds"]}
    oblong = not whole_pictures and 2 * result["counts"]["oblong"] > kept
    return Found(str(out), kept, left_out, oblong, report.read_text(encoding="utf-8"))


@dataclasses.dataclass(frozen=True)
class State:
    """A run as it stands in its folder; see `Runs.state`."""

    training: bool
    begun: bool = False  # whether its folder is there
    stopping: bool = False
    finished: bool = False
    said: str = ""  # the last line of train.py, if the studio started it
    images: int = 0
    seconds: float = 0.0
    left: float | None = None  # seconds; None if it is not known
    diagnosis: health.Diagnosis | None = None
    curves: Curves = dataclasses.field(default_factory=Curves)
    grids: tuple[Path, ...] = ()  # preview grids, the oldest first


class Runs:
    """The runs of this folder: it starts, stops and resumes them, and reads how they stand.

    All that it tells of a run is in the run's folder, whoever trains it.
    """

    def __init__(self) -> None:
        self.started: dict[str, Program] = {}
        self.asked = set[str]()  # runs that were asked to stop, and save
        self.logs: dict[str, tuple[int, Curves, dict[str, float]]] = {}  # by run: bytes read, curves, last row
        self.reading = threading.Lock()

    def names(self) -> list[str]:
        """Return the names of the runs, the newest first."""
        found = dict[str, float]()
        for path in RUNS.glob("*/config.json"):
            with contextlib.suppress(OSError):  # its run has just been deleted
                found[path.parent.name] = path.stat().st_mtime
        new = [name for name, program in self.started.items() if not (RUNS / name).is_dir()]
        return [*reversed(new), *sorted(found, key=lambda name: found[name], reverse=True)]

    def learned_from(self, folder: str) -> list[str]:
        """Return the names of the runs that have learned from the faces in a folder."""
        found = list[str]()
        for name in self.names():
            with contextlib.suppress(OSError, ValueError, TypeError, KeyError):  # it has only begun
                config = json.loads((RUNS / name / "config.json").read_text(encoding="utf-8"))["config"]
                if os.path.abspath(config["data_path"]) == os.path.abspath(folder):
                    found.append(name)
        return found

    def training(self) -> str:
        """Return the name of a run that is being trained, by the studio or by another program; empty if none is."""
        started = (name for name, program in self.started.items() if program.running)
        return next(itertools.chain(started, (name for name in self.names() if is_training(RUNS / name))), "")

    def start(self, folder: str, minutes: int, init: bool) -> str:
        """Train on faces for some minutes, and return the name of the new run.

        Raises:
            ConfigError: a run is being trained already.
        """
        self._check()
        first = Path(folder).name
        if Path(folder).parent == DATA:  # as `prepared` has named it
            first = re.sub(r"-[0-9a-f]{4}$", "", first)
        names = (first if n == 1 else f"{first}-{n}" for n in itertools.count(1))
        name = next(one for one in names if not (RUNS / one).exists() and one not in self.started)
        words = [f"--data_path={folder}", f"--budget={minutes}", f"--run={name}"]
        self._run(name, [*words, *(["--init=released"] if init else [])])
        return name

    def resume(self, name: str, minutes: int | None) -> None:
        """Go on with a run for some minutes, or to the end of its own.

        Raises:
            ConfigError: there is no such run, or one is being trained already.
        """
        self._check()
        more = [] if minutes is None else [f"--budget={minutes}"]
        self._run(name, [f"--resume={RUNS / self.folder(name).name}", *more])

    def _check(self) -> None:
        if name := self.training():
            raise ConfigError(text("{} is being trained; stop it first").format(printable(name)))

    def _run(self, name: str, words: Sequence[str]) -> None:
        self.asked.discard(name)
        self.started[name] = Program("train.py", words, RUNS / f"{name}{SUFFIX}")

    def stop(self, name: str) -> None:
        """Ask the process that trains a run to stop; it saves first."""
        self.folder(name)
        program = self.started.get(name)
        if is_training(RUNS / name):
            self.asked.add(name)
            write_text(RUNS / name / STOP, "")
        elif program is not None and program.running:
            program.process.terminate()  # it is still preparing

    def folder(self, name: str) -> Path:
        """Return the folder of a run; raise a ConfigError if there is none of that name."""
        if name not in self.names():
            raise ConfigError(text("there is no run of that name any more; choose another one"))
        return RUNS / name

    def state(self, name: str) -> State:
        """Read how a run stands.

        Raises:
            ConfigError: there is no run of that name.
        """
        folder, program = self.folder(name), self.started.get(name)
        alive = is_training(folder)
        running = alive or (program is not None and program.running)
        if not running:
            self.asked.discard(name)
        said = "" if program is None else program.last
        try:
            described = json.loads((folder / "config.json").read_text(encoding="utf-8"))
            config, faces = restore(described["config"]), int(described["faces"]["training"])
        except (OSError, ValueError, TypeError, KeyError, ConfigError):
            return State(running, said=said)
        with self.reading:
            curves, row = self._log(folder)
        grids = tuple(sorted((config.save_path or folder / "samples").glob(PREVIEWS)))
        left = row.get("seconds_left")
        finished = not running and left == 0
        return State(
            training=running,
            begun=True,
            stopping=alive and (name in self.asked or (folder / STOP).exists()),
            finished=finished,
            said=said,
            images=int(row.get("images_seen", 0)),
            seconds=row.get("seconds", 0.0),
            left=left,
            diagnosis=health.diagnose(curves, config, faces, folder, finished) if row else None,
            curves=curves,
            grids=grids,
        )

    def _log(self, folder: Path) -> tuple[Curves, dict[str, float]]:
        """Return the curves of a run and the last row of its log, of which only what is new is read."""
        log = folder / "log.jsonl"
        read, curves, row = self.logs.get(folder.name, (0, Curves(), {}))
        try:
            size = log.stat().st_size
            if size < read:  # the run went back to an earlier step
                read, curves, row = 0, Curves(), {}
            with log.open("rb") as file:
                file.seek(read)
                whole, _, _ = file.read(size - read).rpartition(b"\n")
        except OSError:
            return curves, row
        for line in whole.splitlines():
            with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
                row = {name: float(value) for name, value in json.loads(line).items()}
                curves.add(row)
        self.logs[folder.name] = (read + len(whole) + 1 if whole else read), curves, row
        return curves, row
