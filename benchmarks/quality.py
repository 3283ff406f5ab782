"""Compare recipes with the same training time: python -m benchmarks.quality --data_path=FOLDER --out=FOLDER.

An arm is a preset, followed by the options that differ: `--arms "default,book64,default --nz=64"`. Each arm runs the
real `train.py --budget` once per seed, in turn and one at a time, then the real `evaluate.py`. Each run is a JSON line
in OUT/runs.jsonl and is not repeated. At the end a Markdown table is printed: mean and spread (half of the range) over
the seeds. Runs, reports and 64 faces of each stay in OUT, with a plot of FD against minutes, as each run measured it
(2,000 samples), in OUT/minutes.png.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import ScalarFormatter

from config import PACKS, TrainConfig
from gan.data.faces import open_pack
from gan.presets import PRESETS
from gan.watching import curves

ROOT = Path(__file__).resolve().parent.parent
METRICS = {name: curves.METRICS[name].label for name in ("damage_x100", "fd", "recall", "coverage")}


def main() -> None:
    """Train, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data_path", type=Path, required=True, help="the faces")
    parser.add_argument("--minutes", type=float, default=10, help="of each run")
    parser.add_argument("--seeds", type=int, default=2, help="runs of each arm")
    parser.add_argument("--arms", default="default,book64,book,book2", help="presets, with commas between")
    parser.add_argument("--n", type=int, default=5000, help="samples")
    parser.add_argument("--out", type=Path, required=True, help="folder for runs, reports and lines")
    options = parser.parse_args()
    options.out, options.data_path = options.out.resolve(), options.data_path.resolve()
    arms = [arm.strip() for arm in options.arms.split(",")]
    for arm in arms:
        if arm.split()[0] not in PRESETS:
            parser.error(f"--arms: {arm.split()[0]!r} is no preset; there are {', '.join(PRESETS)}")
    options.out.mkdir(parents=True, exist_ok=True)
    lines = options.out / "runs.jsonl"
    open_pack(options.data_path, TrainConfig.image_size, options.out / PACKS)  # not in the first arm's minutes
    asked = {"minutes": options.minutes, "n": options.n, "faces": str(options.data_path)}
    for seed in range(options.seeds):
        for arm in arms:
            wanted = {**asked, "arm": arm, "seed": seed}
            if any(wanted.items() <= row.items() for row in rows_of(lines)):
                continue
            found = run(arm, seed, options.minutes, options.n, options.data_path, options.out)
            with open(lines, "a", encoding="utf-8") as file:
                file.write(json.dumps({**wanted, **found}) + "\n")
    table([row for row in rows_of(lines) if asked.items() <= row.items()], arms)
    plot([row for row in rows_of(lines) if row.get("faces") == asked["faces"]], arms, options.out)


def rows_of(lines: Path) -> list[dict[str, Any]]:
    """Read the measurements so far."""
    return [json.loads(line) for line in lines.read_text().splitlines()] if lines.is_file() else []


def run(arm: str, seed: int, minutes: float, n: int, faces: Path, out: Path) -> dict[str, Any]:
    """Train and measure once."""
    preset, *own = shlex.split(arm)
    name = name_of(arm, minutes, seed)
    words = [
        f"--data_path={faces}",
        f"--preset={preset}",
        *own,
        f"--budget={minutes}",
        f"--seed={seed}",
        f"--run={name}",
    ]
    folder = out / "checkpoints" / name
    shutil.rmtree(folder, ignore_errors=True)  # what an interrupted call has left
    since = time.monotonic()
    call("train.py", words, out)
    took = time.monotonic() - since
    last = json.loads((folder / "log.jsonl").read_text().splitlines()[-1])
    report = out / f"{name}.png"
    call("evaluate.py", [f"--fake={folder / 'latest.pt'}", f"--real={faces}", f"--n={n}", f"--report={report}"], out)
    call("generate.py", [f"--checkpoint={folder / 'latest.pt'}", f"--gen_img={out / name}-faces.png"], out)
    metrics = json.loads(report.with_suffix(".json").read_text())["metrics"]
    return {
        "images_seen": last["images_seen"],
        "seconds": round(took, 1),
        **{metric: metrics[metric]["value"] for metric in METRICS},
        "floor": {metric: metrics[metric]["floor"] for metric in METRICS},
    }


def name_of(arm: str, minutes: float, seed: int) -> str:
    """Return the name of a run."""
    return f"{'-'.join(word.strip('-').replace('=', '-') for word in shlex.split(arm))}-{minutes:g}-{seed}"


def plot(rows: list[dict[str, Any]], arms: list[str], out: Path) -> None:
    """Plot FD against minutes, a line for each run of the arms."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for row in rows:
        log = out / "checkpoints" / name_of(row["arm"], row["minutes"], row["seed"]) / "log.jsonl"
        if row["arm"] not in arms or not log.is_file():
            continue
        points = [point for point in map(json.loads, log.read_text().splitlines()) if "fd" in point]
        label = f"{row['arm']}, {row['minutes']:g} minutes, seed {row['seed']}"
        minutes = [point["seconds"] / 60 for point in points]
        axes.plot(minutes, [point["fd"] for point in points], "o-", markersize=3, label=label)
    axes.set(xlabel="minutes of training", ylabel="FD (2,000 samples)", yscale="log")
    axes.yaxis.set_major_formatter(ScalarFormatter())
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(out / "minutes.png", dpi=130)


def call(script: str, words: list[str], folder: Path) -> None:
    """Run one of the programs in `folder`, where it stores its runs and packs."""
    subprocess.run([sys.executable, str(ROOT / script), *words], cwd=folder, check=True, stdout=sys.stderr)


def table(rows: list[dict[str, Any]], arms: list[str]) -> None:
    """Print the mean and spread of each arm."""
    print(f"| arm | n | minutes, start to end | images seen | {' | '.join(METRICS.values())} |")
    print("| --- " * (4 + len(METRICS)) + "|")
    for arm in arms:
        own = [row for row in rows if row["arm"] == arm]
        cells = [spread([row["seconds"] / 60 for row in own], 1), spread([row["images_seen"] for row in own], 0)]
        cells += [spread([row[m] for row in own], 1 if m == "fd" else 2) for m in METRICS]
        print(f"| {arm} | {len(own)} | {' | '.join(cells)} |")
    floor = rows[0]["floor"] if rows else {}
    print(f"| real faces (floor) | | | | {' | '.join(f'{floor[m]:.2f}' for m in METRICS if m in floor)} |")


def spread(values: list[float], digits: int) -> str:
    """Format the mean and half of the range: '12.3 ± 0.4'."""
    mean, half = sum(values) / len(values), (max(values) - min(values)) / 2
    return f"{mean:,.{digits}f} ± {half:,.{digits}f}"


if __name__ == "__main__":
    main()
