"""Imports go one way: a module imports from earlier levels only, and each third-party package has one owner."""

import ast
import graphlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FLOORS = (
    "config",
    "gan",  # the modules that lie in no room
    "model",
    "gan.data gan.watching",
    "gan.quality",
    "gan.training gan.play",
    "gan.sharing",
    "gan.studio",
    "train generate evaluate prepare export app main",
)
"""A module imports from lower floors, and within its own room without going round in a circle."""
FLOOR = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms.split()}
OWNERS = {
    "fire": {"gan.command_line"},
    "visdom": {"gan.watching.visdom_page"},
    "PIL": {
        "gan.images",
        "gan.data.pictures",
        "gan.data.faces",
        "gan.data.synthetic",
        "gan.data.cleaning",
        "gan.data.detection",
    },
    "imagehash": {"gan.data.cleaning"},
    "cv2": {"gan.data.detection"},
    "matplotlib": {"gan.quality.report", "gan.watching.run_report"},
    "jinja2": {"gan.data.cleaning_report", "gan.watching.run_report"},
    "av": {"gan.images"},
    "psutil": {"gan.threads"},
    "torch_fidelity": {"gan.quality.features"},
    "gradio": {
        "gan.studio.page",
        "gan.studio.parts",
        "gan.studio.faces_tab",
        "gan.studio.train_tab",
        "gan.studio.send_tab",
    },
    "safetensors": {"gan.hub"},
    "huggingface_hub": {"gan.hub"},
    "onnx": {"gan.sharing.onnx_file"},
    "onnxscript": {"gan.sharing.onnx_file"},
    "onnxruntime": {"gan.sharing.onnx_file"},
}
# Answering a wrong option, and starting a process that decodes, must not wait for torch, nor for torchvision.
WITHOUT_TORCH = {
    "config",
    "gan.presets",
    "gan.command_line",
    "gan.processors",
    "gan.data.pictures",
    "gan.data.listing",
    "gan.data.faces",
    "gan.data.cleaning",
    "gan.data.detection",
}


def sources() -> dict[str, Path]:
    """Every module of the program, by name."""
    paths = [*ROOT.glob("*.py"), *(ROOT / "gan").rglob("*.py")]
    names = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in paths}
    return {name: path for name, path in names.items() if not name.endswith("__init__")}


def imported(source: str) -> set[str]:
    """Modules that a source imports, at its top or inside functions; relative ones as '.name'."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            of_a_room = module in FLOOR and module.startswith("gan")
            found |= {f"{module}.{alias.name}" for alias in node.names} if of_a_room else {module}
    return found


def room_of(module: str) -> str:
    """Where a module lies: gan.data.faces -> gan.data, gan.files -> gan, train -> train."""
    return module.rpartition(".")[0] or module


def faults(module: str, imports: set[str]) -> list[str]:
    """Say what is wrong with a module's imports."""
    room = room_of(module)
    if room not in FLOOR or module == "gan.utils":
        return [f"{module} lies in no room: ../../docs/contributing.md has them"]
    wrong = []
    for name in sorted(imports):
        package = name.partition(".")[0]
        own = package == "gan" or name in FLOOR
        if name.startswith("."):
            wrong.append(f"{module} imports {name}: write the full name")
        elif own and name not in sources():
            wrong.append(f"{module} imports {name}, which there is not")
        elif own and room_of(name) != room and FLOOR[room_of(name)] >= FLOOR[room]:
            wrong.append(f"{module} imports {name}, which is not of a lower floor")
        elif module not in OWNERS.get(package, {module}):
            wrong.append(f"{module} imports {package}, which belongs to {', '.join(sorted(OWNERS[package]))}")
        elif package == "torch" and module in WITHOUT_TORCH:
            wrong.append(f"{module} imports torch, which is slow to start")
    return wrong


@pytest.mark.parametrize("module", sources())
def test_imports_go_one_way(module: str) -> None:
    assert faults(module, imported(sources()[module].read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize("room", [room for room in FLOOR if room.startswith("gan")])
def test_rooms_themselves_import_nothing(room: str) -> None:
    source = ROOT.joinpath(*room.split("."), "__init__.py").read_text(encoding="utf-8")
    later = {"typing", "gan.play.api"} if room == "gan" else set[str]()  # when its Generator is asked for
    assert imported(source) == later
    assert ast.get_docstring(ast.parse(source))


def test_modules_do_not_import_one_another_in_a_circle() -> None:
    everything = {name: imported(path.read_text(encoding="utf-8")) for name, path in sources().items()}
    graphlib.TopologicalSorter(everything).prepare()  # CycleError


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("gan.utils", ""),
        ("config", "import model"),
        ("gan.images", "import model"),
        ("gan.training.ema", "def f():\n    from generate import main"),
        ("gan.quality.sampling", "import gan.training.ema"),
        ("gan.data.faces", "from gan.watching import health"),
        ("gan.images", "from gan.data import faces"),
        ("gan.data.faces", "from . import checkpoint"),
        ("gan.data.faces", "import gan.unheard_of"),
        ("generate", "from train import train"),
        ("train", "from PIL import Image"),
        ("gan.watching.monitor", "import visdom"),
        ("evaluate", "from fire.decorators import SetParseFn"),
        ("gan.command_line", "import torch.nn"),
    ],
)
def test_wrong_imports_are_found(module: str, source: str) -> None:
    assert faults(module, imported(source))


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("gan.quality.evaluation", "from gan.quality.sampling import sample\nfrom gan.quality import metrics"),
        ("gan.data.faces", "from PIL import Image\nimport numpy\nfrom config import DataError"),
        ("train", "import model, gan.quality.evaluation\nfrom gan.command_line import command_line"),
    ],
)
def test_right_imports_pass(module: str, source: str) -> None:
    assert faults(module, imported(source)) == []
