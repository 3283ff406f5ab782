"""Make the statistics of real faces that come with the program: python -m benchmarks.reference --data_path=FOLDER.

The file holds no pictures, only the features of two sets of faces, in 255 steps. It must be made again whenever the
encoder changes.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from tqdm import tqdm

from config import REFERENCE
from gan import checkpoint
from gan.data.faces import open_pack
from gan.device import choose_device
from gan.encoder import SIZE
from gan.quality import evaluation, features
from gan.quality.evaluation import FaceSet, RealStatistics


def main() -> None:
    """Measure the faces and write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data_path", type=Path, required=True)
    parser.add_argument("--n", type=int, default=5000, help="faces of each lot")
    parser.add_argument("--about", default="the real faces that trained the released generator")
    parser.add_argument("--out", type=Path, default=REFERENCE)
    options = parser.parse_args()
    extractor = features.measuring(choose_device(None), "imagenet")
    pack = open_pack(options.data_path, SIZE)
    lots = evaluation.choose(pack, options.n, seed=0)
    with tqdm(total=2 * len(lots[0]), unit="face") as bar:
        first, second = (evaluation.of_pack(pack, lot, extractor, bar.update) for lot in lots)
    save(options.out, first, second, extractor.name, options.about)
    print(f"{options.out}: {options.out.stat().st_size:,} bytes, twice {len(lots[0]):,} of {len(pack.pixels):,} faces")


def save(path: Path, first: FaceSet, second: FaceSet, extractor: str, about: str) -> None:
    """Write the statistics of two sets of real faces, as `evaluation.load_reference` reads them."""
    both = torch.cat([first.features, second.features])
    least, step = both.amin(0), (both.amax(0) - both.amin(0)) / 255  # steps of about a 40th of a deviation
    content = {
        "features": ((both - least) / step).round().to(torch.uint8),
        "least": least,
        "step": step,
        "lots": [len(first.features), len(second.features)],
        "floor": RealStatistics(first.features).measure(second),
        "extractor": extractor,
        "about": about,
    }
    checkpoint.save(path, {"reference": content})


if __name__ == "__main__":
    main()
