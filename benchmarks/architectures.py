"""Measure the cost of the networks: python -m benchmarks.architectures.

Counts the parameters and the multiply-accumulates (MACs) of one forward pass, and measures images/s of the real
`train.py`. The arms take turns for several rounds; the first row of each run is left out. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import tempfile
from pathlib import Path

import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.throughput import draw, measure
from config import ModelConfig, TrainConfig
from gan.command_line import parse
from gan.presets import resolve
from model import Discriminator, Generator

ARMS = (
    "--arch=dcgan",
    "--arch=resnet",
    "--arch=resnet --widths=192,128,64,32 --depths=1,1,1,1",
    "--arch=resnet --widths=128,96,64,32 --depths=1,1,1,1",
)


def main() -> None:
    """Count, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=30, help="of each run")
    options = parser.parse_args()
    rates: dict[str, list[float]] = {arm: [] for arm in ARMS}
    with tempfile.TemporaryDirectory() as folder:
        faces = draw(Path(folder) / "faces", 2100)
        for turn in range(options.rounds):
            for i, arm in enumerate(ARMS):
                words = [*arm.split(), f"--data_path={faces}", f"--run={i}-{turn}"]
                rates[arm] += [row["images_per_second"] for row in measure(words, Path(folder), options.seconds, 5)]
    print(f"\n{platform.processor() or platform.machine()}, {torch.get_num_threads()} threads\n")
    print("| options | parameters G, D (M) | MACs a face G, D (M) | rows | images/s, median | least | most |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for arm, measured in rates.items():
        parameters, macs = cost(resolve(TrainConfig, parse(TrainConfig, arm.split())).model)
        print(
            f"| `{arm}` | {parameters[0]:.2f}, {parameters[1]:.2f} | {macs[0]:.0f}, {macs[1]:.0f} | {len(measured)} "
            f"| {statistics.median(measured):.1f} | {min(measured):.1f} | {max(measured):.1f} |"
        )


def cost(model: ModelConfig) -> tuple[list[float], list[float]]:
    """Return the parameters, and the MACs of one forward pass, of generator and discriminator, in millions per face."""
    parameters, macs = [], []
    faces = torch.zeros(1, model.channels, model.image_size, model.image_size)
    for network, inputs in ((Generator(model), torch.zeros(1, model.nz)), (Discriminator(model), faces)):
        counter = FlopCounterMode(display=False)
        with torch.no_grad(), counter:
            network.eval()(inputs)
        parameters.append(sum(p.numel() for p in network.parameters()) / 1e6)
        macs.append(counter.get_total_flops() / 2e6)
    return parameters, macs


if __name__ == "__main__":
    main()
