"""The lock: every package that the requirements name is in it, at a version that they allow, with digests."""

import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]
LOCK = ROOT / "requirements.lock"
COMMAND = (
    "uv pip compile requirements-dev.txt --output-file requirements.lock --universal --python-version 3.10 "
    "--generate-hashes --no-annotate"
)


def required() -> list[Requirement]:
    """All that the three files of requirements name."""
    lines = [line for path in ROOT.glob("requirements*.txt") for line in path.read_text(encoding="utf-8").splitlines()]
    words = [line.partition("#")[0].strip() for line in lines]
    return [Requirement(word) for word in words if word and not word.startswith("-r ")]


def locked(text: str) -> dict[str, list[tuple[Version, int]]]:
    """The versions of each package in a lock, and how many digests each has."""
    found: dict[str, list[tuple[Version, int]]] = {}
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    for entry in re.split(r"\n(?=\S)", "\n".join(lines)):
        head = re.match(r"([\w.-]+)(?:\[[\w,-]+\])?==(\S+)", entry)
        assert head is not None, entry.splitlines()[0]
        digests = re.findall(r"--hash=sha256:[0-9a-f]{64}\b", entry)
        found.setdefault(canonicalize_name(head[1]), []).append((Version(head[2]), len(digests)))
    return found


def faults(requirements: list[Requirement], text: str) -> list[str]:
    """What the lock lacks, package by package."""
    found, wrong = locked(text), list[str]()
    for one in requirements:
        versions = found.get(canonicalize_name(one.name), [])
        if not versions:
            wrong.append(f"{one.name} is not in it")
        wrong += [
            f"{one.name} {version} is not {one.specifier}" for version, _ in versions if version not in one.specifier
        ]
    wrong += [f"{name} has no digest" for name, all_ in found.items() if not all(digests for _, digests in all_)]
    return wrong


def test_the_lock_holds_every_requirement_with_digests() -> None:
    assert len(required()) > 30
    assert faults(required(), LOCK.read_text(encoding="utf-8")) == [], f"make it again: {COMMAND}"


@pytest.mark.parametrize("page", ["docs/install.md", "docs/install.zh.md"])
def test_what_mirrors_are_asked_for_is_in_the_lock(page: str) -> None:
    asked = dict(re.findall(r"(torch\w*)==([\d.]+)", (ROOT / page).read_text(encoding="utf-8")))
    of_lock = locked(LOCK.read_text(encoding="utf-8"))
    assert {name: [Version(version)] for name, version in asked.items()} == {
        name: [version for version, _ in of_lock[name]] for name in ("torch", "torchvision")
    }


def test_the_lock_names_its_command_and_no_address() -> None:
    text = LOCK.read_text(encoding="utf-8")
    assert text.splitlines()[1].strip("# ") == COMMAND
    assert not re.search(r"://|--index|--find-links|--extra|@ ", text)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("tornado==6.5", "tornado==6.6"), "tornado 6.6"),
        (("\nvisdom==", "\nother=="), "visdom is not in it"),
        (("--hash=sha256:", "--hash=md5:"), "has no digest"),
    ],
)
def test_a_lock_that_is_out_of_date_is_found(change: tuple[str, str], said: str) -> None:
    text = LOCK.read_text(encoding="utf-8")
    assert change[0] in text
    assert said in "; ".join(faults(required(), text.replace(*change)))
