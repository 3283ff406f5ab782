"""Make a released checkpoint from a run.

python -m benchmarks.release checkpoints/RUN checkpoints/anime-faces-96.pt --images_seen=1107008

It holds the averaged generator, the discriminator that ranks its samples, the networks' config, the identity of the
training faces, and the credits. Weights are in fp16 and deflated, which torch reads directly and which saves 8 %.
"""

from __future__ import annotations

import argparse
import zipfile
from pathlib import Path

from torch import Tensor

from gan import checkpoint

CREDITS = {
    "program": "AnimeGAN, benchmarks/release.py",
    "faces": "30,000 face crops of the course set that circulates as antoncoding/Deep_Learning_GAN, crawled from "
    "illustration sites in 2017; the pictures have no image licence",
    "code": "MIT",
}
LOCAL = ("data_path", "save_path", "run", "init", "resume")
"""Options that describe the computer used for training."""


def release(run: Path, out: Path, images_seen: int | None) -> None:
    """Write the released checkpoint from the newest state of `run`; `images_seen` includes the runs it began from."""
    content = checkpoint.load(run / "latest.pt")
    content["images_seen"] = images_seen or content["images_seen"]
    halves = {part: {name: half(w) for name, w in content[part].items()} for part in ("ema", "discriminator")}
    names = "model chosen versions step images_seen seconds faces chosen_faces classes".split()
    kept = {name: content[name] for name in names if name in content}
    options = {name: value for name, value in content["config"].items() if name not in LOCAL}
    whole = out.with_suffix(".whole")
    checkpoint.save(whole, {**kept, **halves, "config": options, "credits": CREDITS})
    with zipfile.ZipFile(whole) as source, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as target:
        for name in source.namelist():
            target.writestr(name, source.read(name))
    whole.unlink()
    print(f"{out}: {out.stat().st_size:,} bytes, step {content['step']}, {content['images_seen']:,} images seen")


def half(weight: Tensor) -> Tensor:
    """Convert weights to fp16; integers stay as they are."""
    return weight.half() if weight.is_floating_point() else weight


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--images_seen", type=int, help="in all, with those of the runs that it began from")
    options = parser.parse_args()
    release(options.run, options.out, options.images_seen)


if __name__ == "__main__":
    main()
