"""Measure by mutation testing how many small faults the tests detect.

python -m benchmarks.mutants --n=300 --seed=0 --workers=2 --out=FILE.csv

A mutant is a module with a single change: another operator, number, comparison or decorator, or a `not` or `break`
added or removed. cosmic-ray finds the places; `pip install cosmic-ray==8.7.0`, which is not in the requirements. Each
mutant of a random sample is written into a copy of the last commit, where the tests of its module run until one fails:
then it is killed, otherwise it survives. Annotations are left out, as nothing computes with them, and so are bit
operations in place of arithmetic. The file gets a row for each mutant, with the change that was made; mutants that it
already has are not run again.
"""

from __future__ import annotations

import argparse
import ast
import csv
import difflib
import importlib
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

from benchmarks.look import interval

ROOT = Path(__file__).resolve().parents[1]
TESTS = {
    "gan/latent.py": ("unit/test_latent.py", "unit/test_sampling.py"),
    "gan/training/ema.py": ("unit/test_ema.py",),
    "gan/training/losses.py": ("unit/test_losses.py", "unit/test_plan.py"),
    "gan/images.py": ("unit/test_images.py", "unit/test_monitor.py", "unit/test_sampling.py"),
    "gan/checkpoint.py": ("unit/test_checkpoint.py", "unit/test_old_formats.py", "e2e/test_attacks.py"),
    "gan/data/faces.py": ("unit/test_faces.py", "e2e/test_attacks.py", "torture/test_writes.py"),
    "gan/quality/metrics.py": ("unit/test_metrics.py", "unit/test_evaluation.py"),
}
"""Modules and their own tests, the fastest first; whole trainings, which detect many faults too, are left out."""

BITS = ("BitAnd", "BitOr", "BitXor", "LShift", "RShift")
"""Operators that floats lack: in place of arithmetic, any test that runs the code detects them."""

HANGS = 300
"""Seconds after which a mutant's tests are stopped; it then counts as killed, since a user would notice a hang too."""

COLUMNS = ["module", "operator", "occurrence", "line", "outcome", "change"]


class Mutant(NamedTuple):
    """A fault that can be planted."""

    module: str
    operator: str
    occurrence: int
    line: int


def main() -> None:
    """Plant, test, write and count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    everyone = [mutant for module in TESTS for mutant in mutants(module)]
    chosen = random.Random(options.seed).sample(everyone, options.n)
    print(f"{options.n} of {len(everyone):,} mutants")
    if not options.out.exists():
        options.out.write_text(",".join(COLUMNS) + "\n", encoding="utf-8")
    known = {tuple(row[:3]) for row in read(options.out)}
    copies = SimpleQueue[Path]()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.workers) as pool:
        for worker in range(options.workers):
            copies.put(Path(folder) / str(worker))
            subprocess.run(["git", "clone", "--quiet", ROOT, Path(folder) / str(worker)], check=True)

        def test(mutant: Mutant) -> list[str]:
            copy = copies.get()
            try:
                return [*map(str, mutant), *plant(mutant, copy)]
            finally:
                copies.put(copy)

        for row in pool.map(test, [m for m in chosen if (m.module, m.operator, str(m.occurrence)) not in known]):
            with open(options.out, "a", encoding="utf-8", newline="") as file:
                csv.writer(file, lineterminator="\n").writerow(row)
            print(*row[:5], flush=True)
    counted = Counter((row[0], row[4] == "survived") for row in read(options.out))
    print("\n| module | mutants | killed |\n| --- | --- | --- |")
    for module in TESTS:
        print(f"| {module} | {counted[module, True] + counted[module, False]} | {counted[module, False]} |")
    alive, total = sum(n for (_, survived), n in counted.items() if survived), counted.total()
    least, most = interval(1 - alive / total, total)
    print(f"| all | {total} | {1 - alive / total:.1%} ({least:.1%} to {most:.1%}) |")


def mutants(module: str) -> Iterator[Mutant]:
    """Yield all faults that can be planted in a module, outside annotations."""
    trees, plugins = importlib.import_module("cosmic_ray.ast"), importlib.import_module("cosmic_ray.plugins")
    source = (ROOT / module).read_text(encoding="utf-8")
    annotated = set[tuple[int, int]]()
    for node in ast.walk(ast.parse(source)):
        for annotation in filter(None, (getattr(node, name, None) for name in ("annotation", "returns"))):
            first, last = annotation.lineno, annotation.end_lineno
            annotated |= {
                (line, column)
                for line in range(first, last + 1)
                for column in range(annotation.col_offset if line == first else 0, annotation.end_col_offset)
            }
    tree: Any = trees.get_ast_from_path(ROOT / module)
    for name in sorted(plugins.operator_names()):
        operator = plugins.get_operator(name)
        if operator.arguments() or name.endswith(BITS):  # the former need to be told a variable
            continue
        places = (place for node in trees.ast_nodes(tree) for place in operator().mutation_positions(node))
        for occurrence, (start, _) in enumerate(places):
            if tuple(start) not in annotated:
                yield Mutant(module, name, occurrence, start[0])


def plant(mutant: Mutant, copy: Path) -> tuple[str, str]:
    """Write a mutant into a copy of the program and run its tests; returns killed or survived, and the change."""
    mutating, plugins = importlib.import_module("cosmic_ray.mutating"), importlib.import_module("cosmic_ray.plugins")
    path, operator = copy / mutant.module, plugins.get_operator(mutant.operator)()
    before = path.read_text(encoding="utf-8")
    after = mutating.mutate_code(before, operator, mutant.occurrence)
    path.write_text(after, encoding="utf-8")
    files = [f"tests/{name}" for name in TESTS[mutant.module]]
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n0", "-p", "no:cacheprovider", *files]
    try:
        done = subprocess.run(command, cwd=copy, stdin=subprocess.DEVNULL, capture_output=True, timeout=HANGS)
        survived = done.returncode == 0
    except subprocess.TimeoutExpired:
        survived = False
    finally:
        path.write_text(before, encoding="utf-8")
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm="")
    change = [line for line in list(lines)[2:] if not line.startswith("@@")]
    return ("survived" if survived else "killed"), " ".join(" ".join(change).split())


def read(path: Path) -> list[list[str]]:
    """Read the rows after the first."""
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.reader(file))[1:]


if __name__ == "__main__":
    main()
