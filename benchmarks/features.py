"""Test features on faults: python -m benchmarks.features --data_path=FOLDER [--features=faces,imagenet] [--out=FOLDER].

One set of faces stays unchanged. In another, 5, 20 and 50 % of the faces are spoilt, in ways that a generator spoils
them (an eye smeared, halves of two faces joined) or a careless metric overlooks (dropped modes, duplicates). FD must
rise and precision fall with every share of every fault, except for modes and duplicates, whose faces are real: there
only FD must rise, while recall should fall with the modes. A Markdown table for each kind of features shows the values
and which faults the features are blind to. SWD, which compares pixels, has a column. FOLDER gets pictures of the faults
(these show the faces themselves, so publish them only if the faces are synthetic).
"""

from __future__ import annotations

import argparse
import io
import platform
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageFilter
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d, interpolate

from benchmarks import faults
from gan import imagenet, images
from gan.data.faces import open_pack
from gan.device import choose_device, place
from gan.encoder import FEATURES, SIZE, Encoder, fused
from gan.images import to_tensor
from gan.quality import evaluation, features
from gan.quality.evaluation import RealStatistics
from gan.quality.features import Extractor

SHARES = 0.05, 0.2, 0.5
"""Shares of the faces that are spoilt."""

MODES = 20
"""Number of clusters of faces by colour, a share of which is dropped."""

Spoil = Callable[[np.ndarray, float, np.random.Generator], np.ndarray]
"""Maps faces (N, S, S, 3) and the share to be spoilt to as many faces."""


def of_faces(change: Callable[[np.ndarray, np.random.Generator], np.ndarray]) -> Spoil:
    """Make a fault of a share of the faces; a greater share includes all faces of a smaller one."""

    def spoil(pixels: np.ndarray, share: float, random: np.random.Generator) -> np.ndarray:
        some = random.permutation(len(pixels))[: round(share * len(pixels))]
        spoilt = pixels.copy()
        spoilt[some] = change(pixels[some], random)
        return spoilt

    return spoil


def filtered(change: Callable[[Image.Image], Image.Image]) -> Spoil:
    """Make a fault from an image filter."""
    return of_faces(lambda pixels, _: np.stack([np.asarray(change(Image.fromarray(face))) for face in pixels]))


def with_fault(fault: faults.Fault) -> Spoil:
    """Make a fault from one of parts of a face."""
    return of_faces(lambda pixels, random: fault(pixels, faults.eyes(pixels), random))


def noisy(pixels: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Add white noise of deviation 16 to values from 0 to 255."""
    return (pixels + random.normal(0, 16, pixels.shape)).round().clip(0, 255).astype(np.uint8)


def saved_as_jpeg(face: Image.Image) -> Image.Image:
    """Save a face as JPEG at quality 30 and read it again."""
    file = io.BytesIO()
    face.save(file, "JPEG", quality=30)
    return Image.open(file)


def modes_dropped(pixels: np.ndarray, share: float, random: np.random.Generator) -> np.ndarray:
    """Drop a share of the 20 clusters by colour; other faces of the remaining clusters take their places."""
    n, size = pixels.shape[:2]
    small = pixels.reshape(n, 6, size // 6, 6, size // 6, 3).mean((2, 4)).reshape(n, -1)
    centres = torch.from_numpy(small[random.permutation(n)[:MODES]])
    kept = torch.cdist(torch.from_numpy(small), centres).argmin(1).numpy() >= round(share * MODES)
    return np.concatenate([pixels[kept], pixels[random.choice(np.flatnonzero(kept), n - kept.sum())]])


def duplicated(pixels: np.ndarray, share: float, random: np.random.Generator) -> np.ndarray:
    """Replace a share of the faces by copies of ten faces."""
    spoilt, some = pixels.copy(), random.permutation(len(pixels))
    chosen = some[: round(share * len(pixels))]
    spoilt[chosen] = pixels[some[-10:]][np.arange(len(chosen)) % 10]
    return spoilt


FAULTS: dict[str, Spoil] = {
    **{name: with_fault(fault) for name, fault in faults.FAULTS.items()},
    "blur": filtered(lambda face: face.filter(ImageFilter.GaussianBlur(1.5))),
    "noise": of_faces(noisy),
    "JPEG": filtered(saved_as_jpeg),
    "modes dropped": modes_dropped,
    "duplicates": duplicated,
}
REAL_ALL_THE_SAME = {"modes dropped", "duplicates"}
"""Faults of a set whose faces are all real, so that precision need not fall."""


def untrained(on: torch.device) -> Extractor:
    """Load the program's encoder with random weights."""
    torch.manual_seed(0)
    network = place(fused(Encoder().eval()), on)
    return Extractor("untrained 0", FEATURES, lambda pixels: network(to_tensor(pixels)), on)


def lite(look: Callable[[imagenet.Lite, Tensor], Tensor], name: str) -> Callable[[torch.device], Extractor]:
    """Make an extractor from EfficientNet-lite2: `look` maps faces (N, 3, 96, 96) to features (N, F)."""

    def load(on: torch.device) -> Extractor:
        network = place(imagenet.load("lite2"), on)
        width = look(network, torch.zeros(1, 3, SIZE, SIZE, device=on)).shape[1]
        return Extractor(f"lite2 {name}", width, lambda pixels: look(network, to_tensor(pixels)), on)

    return load


def means(maps: list[Tensor]) -> Tensor:
    """Return the mean of each channel of maps (N, C, S, S), (N, D, R, R), ...: (N, C + D + ...)."""
    return torch.cat([seen.mean((2, 3)) for seen in maps], 1)


def eyes_enlarged(network: imagenet.Lite, faces: Tensor) -> Tensor:
    """Return means over the band where eyes usually are, enlarged to twice its size."""
    band = interpolate(faces[:, :, 26:66, 8:88], size=(80, 160), mode="bicubic")
    return means(network.maps(band)[2:])


EXTRACTORS: dict[str, Callable[[torch.device], Extractor]] = {
    **{kind: partial(features.load, kind, None) for kind in ("imagenet", "faces")},
    "stride 8": lite(lambda network, faces: means(network.maps(faces)[2:3]), "stride 8"),
    "stride 16": lite(lambda network, faces: means(network.maps(faces)[3:4]), "stride 16"),
    "stride 32": lite(lambda network, faces: means(network.maps(faces)[4:]), "stride 32"),
    "in ninths": lite(lambda network, faces: adaptive_avg_pool2d(network.maps(faces)[3], 3).flatten(1), "in ninths"),
    "eyes enlarged": lite(eyes_enlarged, "eyes enlarged"),
    "untrained": untrained,
}
"""Candidate features for the metrics."""


def main() -> None:
    """Spoil, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data_path", type=Path, required=True)
    parser.add_argument("--features", default="imagenet,faces", help=f"with commas: {', '.join(EXTRACTORS)}")
    parser.add_argument("--n", type=int, default=2000, help="faces of each lot")
    parser.add_argument("--out", type=Path, help="folder for pictures of the faults")
    options = parser.parse_args()
    on, pack = choose_device(None), open_pack(options.data_path, SIZE)
    first, second = evaluation.choose(pack, options.n, seed=0)
    real, other = pack.pixels[first], pack.pixels[second]
    sets = {("none", 0.0): other}
    for fault, spoil in FAULTS.items():
        for share in SHARES:
            spoilt = sets[fault, share] = spoil(other, share, np.random.default_rng(0))
            if options.out is not None and share == max(SHARES):
                changed = np.flatnonzero((spoilt != other).any((1, 2, 3)))[:24]
                images.save_picture(images.grid(spoilt[changed], columns=8), options.out / f"{fault}.png")
    texture, shares = swd(real, sets), " | ".join(f"{share:.0%}" for share in (0.0, *SHARES))
    damaged = known(features.measuring(on, "faces").damage, sets)
    print(f"\n| fault | damage x100 at {shares} |")
    print("| --- " * (len(SHARES) + 2) + "|")
    for fault in FAULTS:
        found = (100 * damaged[key].mean().item() for key in keys_of(fault))
        print(f"| {fault} | {' | '.join(f'{value:.2f}' for value in found)} |", flush=True)
    for kind in options.features.split(","):
        extractor = EXTRACTORS[kind](on)
        print(f"\n{extractor.name}, {len(other):,} against {len(real):,} faces, {platform.machine()}\n")
        reals, seen = RealStatistics(extractor(real), {}, torch.ones(2)), known(extractor, sets)
        table(reals, seen, texture)


def keys_of(fault: str) -> list[tuple[str, float]]:
    """Return the keys of a fault in order of its shares, starting with none."""
    return [("none", 0.0), *((fault, share) for share in SHARES)]


def known(
    see: Callable[[np.ndarray], Tensor], sets: dict[tuple[str, float], np.ndarray]
) -> dict[tuple[str, float], Tensor]:
    """Compute the features of each set, reusing those of unchanged faces."""
    before = sets["none", 0.0]
    found = {("none", 0.0): see(before)}
    for key, some in sets.items():
        seen, changed = found["none", 0.0].clone(), torch.from_numpy((some != before).any((1, 2, 3)))
        if changed.any():
            seen[changed] = see(some[changed.numpy()])
        found[key] = seen
    return found


def swd(real: np.ndarray, sets: dict[tuple[str, float], np.ndarray]) -> dict[tuple[str, float], float]:
    """Compute the sliced Wasserstein distance of each set, x1000."""
    nothing = lambda pixels: torch.zeros(len(pixels), 1)  # noqa: E731
    reals = RealStatistics.of(evaluation.face_set([real], nothing, nothing, len(real)))
    found = {}
    for key, some in sets.items():
        faces = evaluation.face_set([some], nothing, nothing, len(some))
        found[key] = reals.measure_texture(faces.patches, faces.spectrum)["swd_x1000"]
    return found


def table(
    reals: RealStatistics, sets: dict[tuple[str, float], Tensor], texture: dict[tuple[str, float], float]
) -> list[str]:
    """Print the metrics of each set; returns the faults for which FD or precision is not in order."""
    found = {key: reals.measure_features(some) for key, some in sets.items()}
    shares = " | ".join(f"{share:.0%}" for share in (0.0, *SHARES))
    print(f"| fault | FD at {shares} | precision at {shares} | recall, coverage, SWD at {max(SHARES):.0%} | blind |")
    print("| --- " * (2 * len(SHARES) + 5) + "|")
    blind = []
    for fault in FAULTS:
        keys = keys_of(fault)
        distances, precisions = ([found[key][name] for key in keys] for name in ("fd", "precision"))
        wrong = ["FD"] if any(after <= before for before, after in pairwise(distances)) else []
        if fault not in REAL_ALL_THE_SAME and any(after >= before for before, after in pairwise(precisions)):
            wrong.append("precision")
        last = found[keys[-1]]
        cells = [f"{value:.4g}" for value in distances] + [f"{value:.3f}" for value in precisions]
        rest = f"{last['recall']:.2f}, {last['coverage']:.2f}, {texture[keys[-1]]:.0f}"
        print(f"| {fault} | {' | '.join(cells)} | {rest} | {', '.join(wrong)} |", flush=True)
        blind += [fault] if wrong else []
    print("\nFD and precision answer in order" + (f", but for: {', '.join(blind)}." if blind else "."))
    return blind


if __name__ == "__main__":
    main()
