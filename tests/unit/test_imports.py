"""Imports go one way: a module imports from earlier levels only, and each third-party package has one owner."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LEVELS = (
    "config gan.files",
    "gan.images gan.losses gan.augment gan.latent gan.metrics gan.synthetic gan.debugger gan.encoder "
    "gan.visdom_assets gan.torchvision_data gan.curves gan.pictures gan.imagenet gan.damage",
    "model gan.command_line gan.device gan.ema gan.health",
    "gan.faces gan.checkpoint gan.monitor gan.visdom_page gan.book_weights gan.tensorboard_log gan.plan gan.ranks "
    "gan.run_report",
    "gan.sampling gan.run gan.batches gan.features gan.cleaning",
    "gan.evaluation gan.cleaning_report gan.step gan.sittings",
    "gan.whole_faces gan.report",
    "gan.selection",
    "gan.preparing",
    "train generate evaluate prepare export app",
)
LEVEL = {module: level for level, modules in enumerate(LEVELS) for module in modules.split()}
OWNERS = {
    "fire": {"gan.command_line"},
    "visdom": {"gan.visdom_page"},
    "PIL": {"gan.images", "gan.pictures", "gan.faces", "gan.synthetic", "gan.cleaning"},
    "imagehash": {"gan.cleaning"},
    "cv2": {"gan.cleaning"},
    "matplotlib": {"gan.report", "gan.run_report"},
    "av": {"gan.images"},
    "torch_fidelity": {"gan.features"},
}
# Answering a wrong option, and starting a process that decodes, must not wait for torch, nor for torchvision.
WITHOUT_TORCH = {"config", "gan.command_line", "gan.pictures", "gan.faces", "gan.cleaning"}


def sources() -> dict[str, Path]:
    """Every module of the program, by name."""
    paths = [*ROOT.glob("*.py"), *(ROOT / "gan").rglob("*.py")]
    names = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in paths}
    return {name: path for name, path in names.items() if name != "gan.__init__"}


def imported(source: str) -> set[str]:
    """Modules that a source imports, at its top or inside functions; relative ones as '.name'."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            found |= {f"gan.{alias.name}" for alias in node.names} if module == "gan" else {module}
    return found


def faults(module: str, imports: set[str]) -> list[str]:
    """Say what is wrong with a module's imports."""
    if module not in LEVEL:
        return [f"{module} has no level: add it to LEVELS"]
    wrong = []
    for name in sorted(imports):
        package = name.partition(".")[0]
        if name.startswith("."):
            wrong.append(f"{module} imports {name}: write the full name")
        elif (package == "gan" or name in LEVEL) and LEVEL.get(name, len(LEVELS)) >= LEVEL[module]:
            wrong.append(f"{module} imports {name}, which is not of an earlier level")
        elif module not in OWNERS.get(package, {module}):
            wrong.append(f"{module} imports {package}, which belongs to {', '.join(sorted(OWNERS[package]))}")
        elif package == "torch" and module in WITHOUT_TORCH:
            wrong.append(f"{module} imports torch, which is slow to start")
    return wrong


@pytest.mark.parametrize("module", sources())
def test_imports_go_one_way(module: str) -> None:
    assert faults(module, imported(sources()[module].read_text(encoding="utf-8"))) == []


def test_package_itself_imports_nothing() -> None:
    assert imported((ROOT / "gan" / "__init__.py").read_text(encoding="utf-8")) == set()


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("gan.utils", ""),
        ("config", "import model"),
        ("gan.images", "from gan import losses"),
        ("gan.ema", "def f():\n    from gan.device import pick"),
        ("gan.sampling", "import gan.evaluation"),
        ("gan.faces", "from . import checkpoint"),
        ("gan.faces", "import gan.unheard_of"),
        ("generate", "from train import train"),
        ("train", "from PIL import Image"),
        ("gan.monitor", "import visdom"),
        ("evaluate", "from fire.decorators import SetParseFn"),
        ("gan.command_line", "import torch.nn"),
    ],
)
def test_wrong_imports_are_found(module: str, source: str) -> None:
    assert faults(module, imported(source))


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("gan.evaluation", "from gan.sampling import sample\nfrom gan import metrics"),
        ("gan.faces", "from PIL import Image\nimport numpy\nfrom config import DataError"),
        ("train", "import model, gan.evaluation\nfrom gan.command_line import command_line"),
    ],
)
def test_right_imports_pass(module: str, source: str) -> None:
    assert faults(module, imported(source)) == []
