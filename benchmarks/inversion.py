"""Measure the accuracy of `generate.py --invert`: python -m benchmarks.inversion --data_path=FOLDER [--out=SHEET.png].

Uses twenty real faces that the generator was not trained on, and as many of its own samples. Prints for each kind the
error of the pixels (root mean square, of 255), that of the nearest of 1,024 random faces, the time it takes, and for
how many samples the latent was recovered. The sheet shows targets above the results; real faces are not for
publication.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from torch.nn.functional import cosine_similarity

from config import RELEASED
from gan import images
from gan.data.faces import open_pack
from gan.device import choose_device
from gan.play import inversion
from gan.quality import sampling

FIRST = 20_000  # seed of the first sample, none of the random ones


def main() -> None:
    """Invert faces and print the errors."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data_path", type=Path, help="real faces; without it only samples")
    parser.add_argument("--checkpoint", type=Path, default=RELEASED)
    parser.add_argument("--n", type=int, default=20)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    sampler = sampling.load(options.checkpoint, choose_device(None))
    seeds = range(FIRST, FIRST + options.n)
    targets = {"samples": np.concatenate(list(sampler.faces(seeds)))}
    if options.data_path is not None:
        pack = open_pack(options.data_path, sampler.model.image_size)
        targets["real faces"] = pack.pixels[pack.split(0.05)[1][: options.n]]
    sheet = []
    for kind, pictures in targets.items():
        begun = time.monotonic()
        found = [inversion.invert(sampler, picture) for picture in pictures]
        seconds = (time.monotonic() - begun) / len(found)
        off, random = (np.array([getattr(one, name) for one in found]) for name in ("distance", "random"))
        print(
            f"{kind}: off by {np.median(off):.1f} (from {off.min():.1f} to {off.max():.1f}); the nearest random face "
            f"{np.median(random):.1f} (from {random.min():.1f} to {random.max():.1f}); {seconds:.1f} s each"
        )
        if kind == "samples":
            own = sampler.latents(seeds).cpu()
            near = [cosine_similarity(one.latent, z[None]).item() > 0.9 for one, z in zip(found, own, strict=True)]
            print(f"  found again: {sum(near)} of {len(near)}")
        sheet += [*pictures, *(one.face for one in found)]
    if options.out is not None:
        images.save_picture(images.grid(np.stack(sheet), options.n), options.out)


if __name__ == "__main__":
    main()
