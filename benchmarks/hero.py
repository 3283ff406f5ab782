"""Make the picture at the top of the README: python -m benchmarks.hero RUN --out=docs/hero.webp.

Above, a film of 32 latents over a run that began with random weights; below, 32 samples of the released generator, the
seeds 0 to 31.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from PIL import Image

from config import RELEASED
from gan.device import choose_device
from gan.files import replacing
from gan.images import PREVIEWS, grid, load_picture
from gan.quality import sampling

COLUMNS, ROWS, GAP = 8, 4, 2  # of faces in each half; pixels around each face
FRAMES, EACH, LAST = 32, 600, 3000  # most pictures; milliseconds of each, and of the last
QUALITY = 75  # of WebP, for less than 2 MB


def main() -> None:
    """Write the film."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    sampler = sampling.load(RELEASED, choose_device(None))
    below = grid(np.concatenate(list(sampler.faces(range(COLUMNS * ROWS)))), COLUMNS, GAP)
    previews = sorted((options.run / "samples").glob(PREVIEWS))
    spaced = sorted({round(i) for i in np.linspace(0, len(previews) - 1, FRAMES)})
    high = below.shape[0]
    room = np.full((4 * GAP, below.shape[1], 3), 255, np.uint8)
    frames = [
        Image.fromarray(np.concatenate([load_picture(previews[i])[:high], room, below]))  # the first rows of the grid
        for i in spaced
    ]
    milliseconds = [EACH] * (len(frames) - 1) + [LAST]
    with replacing(options.out) as temporary:
        frames[0].save(
            temporary, "WEBP", save_all=True, append_images=frames[1:], duration=milliseconds, loop=0, quality=QUALITY
        )
    print(f"{options.out}: {len(frames)} pictures, {options.out.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
