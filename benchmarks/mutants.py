"""Mutation testing: python -m benchmarks.mutants --out=FOLDER. First: pip install cosmic-ray==8.7.0.

Small faults, such as a changed number, comparison or operator, are put into the modules below, one at a time, and the
tests of the module are run: they should fail. A random sample of all faults that cosmic-ray knows is taken, except
those in annotations, which change nothing. Each process has a clone of the committed files in OUT. OUT/mutants.jsonl
gets a line for each fault, with its difference; a repeated call continues it. At the end a Markdown table is printed.
"""

from __future__ import annotations

import argparse
import ast
import json
import shlex
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
TESTS = {  # modules, and the tests that should find a fault in them
    "gan/training/losses.py": "test_losses.py test_train.py",
    "gan/checkpoint.py": "test_checkpoint.py test_old_formats.py",
    "gan/quality/metrics.py": "test_metrics.py test_evaluation.py",
    "gan/images.py": "test_images.py test_morph.py",
    "gan/data/faces.py": "test_faces.py test_selection.py",
    "gan/latent.py": "test_latent.py test_sampling.py",
    "gan/training/ema.py": "test_ema.py",
}
LONGEST = 300  # seconds; a fault that makes the tests endless is found, too


def main() -> None:
    """Take the sample, test it, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for clones and results")
    parser.add_argument("--n", type=int, default=300, help="faults")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    lines, known = options.out / "mutants.jsonl", set[str]()
    if lines.is_file():
        known = {json.loads(line)["fault"] for line in lines.read_text().splitlines()}
    every = [fault for module in TESTS for fault in faults(module)]
    order = np.random.default_rng(options.seed).permutation(len(every))[: options.n]
    left = [fault for fault in (every[i] for i in order) if named(fault) not in known]
    print(f"{len(every):,} faults; {len(left)} of {len(order)} left to test")
    folders, writing = Queue[Path](), threading.Lock()
    for i in range(options.processes):
        folder = Path(tempfile.mkdtemp(prefix=f"clone-{i}-", dir=options.out.resolve()))
        subprocess.run(["git", "clone", "-q", str(ROOT), str(folder)], check=True)
        folders.put(folder)

    def tested(fault: dict[str, Any]) -> None:
        folder = folders.get()
        try:
            result = test(fault, folder)
        finally:
            folders.put(folder)
        with writing, open(lines, "a", encoding="utf-8") as file:
            file.write(json.dumps({"fault": named(fault), **fault, **result}) + "\n")
            print(f"{result['outcome']}: {named(fault)}", flush=True)

    with ThreadPoolExecutor(options.processes) as threads:
        list(threads.map(tested, left))
    table([json.loads(line) for line in lines.read_text().splitlines()])


def faults(module: str) -> Iterator[dict[str, Any]]:
    """Return all faults of a module that cosmic-ray knows, except those in annotations."""
    from cosmic_ray.commands.init import _all_work_items  # pyright: ignore[reportMissingImports]

    annotated = [
        (part.lineno, part.col_offset, part.end_lineno, part.end_col_offset)
        for node in ast.walk(ast.parse((ROOT / module).read_text("utf-8")))
        for part in (getattr(node, "annotation", None), getattr(node, "returns", None))
        if part is not None
    ]
    for item in _all_work_items([ROOT / module], {}):
        (mutation,) = item.mutations
        place = *mutation.start_pos, *mutation.end_pos
        if not any(part[:2] <= place[:2] and place[2:] <= part[2:] for part in annotated):
            yield {"module": module, "operator": mutation.operator_name, "occurrence": mutation.occurrence}


def named(fault: dict[str, Any]) -> str:
    """Return the name of a fault."""
    return f"{fault['module']} {fault['operator'].removeprefix('core/')} {fault['occurrence']}"


def test(fault: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Put a fault into a clone, run the tests, and take it out again; return the outcome and the difference."""
    words = [f"tests/unit/{name}" for name in TESTS[fault["module"]].split()]
    command = shlex.join([sys.executable, "-m", "pytest", "-q", "-x", "-n0", "-p", "no:cacheprovider", *words])
    work = (
        "import json, sys; from pathlib import Path; from cosmic_ray.mutating import mutate_and_test; "
        "from cosmic_ray.work_item import MutationSpec; fault = json.loads(sys.argv[1]); "
        "mutation = MutationSpec(module_path=Path(fault['module']), operator_name=fault['operator'], operator_args={}, "
        "occurrence=fault['occurrence'], start_pos=(1, 0), end_pos=(1, 1)); "
        "found = mutate_and_test([mutation], sys.argv[2], int(sys.argv[3])); "
        "print(json.dumps({'outcome': str(found.test_outcome).split('.')[-1].lower(), 'diff': found.diff}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", work, json.dumps(fault), command, str(LONGEST)],
        cwd=folder,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return json.loads(done.stdout)


def table(rows: list[dict[str, Any]]) -> None:
    """Print how many faults of each module were found."""
    print("| module | faults | found |\n| --- | --- | --- |")
    for module in (*TESTS, None):
        counts = Counter(row["outcome"] for row in rows if module in (None, row["module"]))
        n = sum(counts.values())
        print(f"| {module or 'all'} | {n} | {counts['killed']} ({counts['killed'] / max(1, n):.0%}) |")
    for row in rows:
        if row["outcome"] != "killed":
            print(f"\n{row['fault']}: {row['outcome']}\n{row['diff']}")


if __name__ == "__main__":
    main()
