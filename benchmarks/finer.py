"""Add what --to_rgb=fine and --d_enlarge=1.5 bring to weights without them: python -m benchmarks.finer OLD NEW.

OLD is a released file with `--to_rgb=slim`. The generator of NEW generates the same faces at first: the last
convolution of the new block and the weights of its modulation are zero. `train.py --init=NEW` continues from it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from torch import nn

from config import ConfigError, ModelConfig
from gan import checkpoint
from model import Generator, GeneratorBlock, Modulation


def finer(old: Path, new: Path) -> None:
    """Write the weights of `old` with the new layers.

    Raises:
        CheckpointError: `old` is missing, damaged, or not a checkpoint.
        ConfigError: its generator does not end in `slim`.
    """
    content = checkpoint.load(old, required=("ema", "model"))
    if (ending := content["model"]["to_rgb"]) != "slim":
        raise ConfigError(f"{old}: expected a generator with --to_rgb=slim; got {ending}; give another file")
    content["model"] |= {"to_rgb": "fine", "d_enlarge": 1.5}
    generator = Generator(ModelConfig(**content["model"]))
    *_, block, modulation, _, _ = generator.main
    assert isinstance(block, GeneratorBlock)
    assert isinstance(modulation, Modulation)
    nn.init.zeros_(modulation.weight)
    first = len(generator.main) - 4  # the place of the block, to which the old layers from there on make room
    weights = generator.state_dict()
    for name, weight in content["ema"].items():
        part, place, *rest = name.split(".")
        if part == "main" and int(place) >= first:
            place = str(int(place) + 2)
        weights[".".join([part, place, *rest])] = weight
    content["ema"] = {name: weight.half() if weight.is_floating_point() else weight for name, weight in weights.items()}
    checkpoint.save(new, content)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    options = parser.parse_args()
    finer(options.old, options.new)


if __name__ == "__main__":
    main()
