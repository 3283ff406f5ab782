"""Find and test the latent directions of the released generator: python -m benchmarks.directions --judge=FILE.

FILE is a network that predicts colours and was trained from other initial weights than the one used to find the
directions: `python -m benchmarks.colours --seed=1 --out=FILE` trains it. On 200 samples that were not used to find the
directions, it tells how often the requested colour appears, and how often what should stay does stay. The chance level
is printed beside it: how often the same happens if a latent moves as far in a random direction.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from config import DIRECTIONS, RELEASED
from gan import checkpoint, images
from gan.device import choose_device
from gan.play import directions
from gan.play.directions import Change, Directions
from gan.quality import colours, sampling
from gan.quality.sampling import Sampler

FIRST, FACES = 10_000, 200  # seeds of the samples to test with


def seen(sampler: Sampler, judge: colours.Classifier, latents: Tensor, axis: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return colour codes (N, K), lightness and warmth (N, 2), and the lean (N,) of the samples of latents."""
    lots = list(sampler.draw(latents))
    logits = torch.cat([judge.extractor(faces) for faces in lots])
    widths = [len(names) - 1 for names in judge.vocabulary]
    codes = torch.stack([column.argmax(1) + 1 for column in logits.split(widths, 1)], 1)
    shades = torch.cat([directions.light_and_warmth(faces) for faces in lots])
    halves = torch.cat([directions.asymmetry(faces) for faces in lots])
    return codes, shades, halves @ axis


def moved_randomly(before: Tensor, after: Tensor, sign: float = 1) -> Tensor:
    """Rotate latents (N, nz) as far as `before` to `after`, each in a random direction or, by `sign`, against it."""
    random = torch.Generator().manual_seed(0)
    length = before.norm(dim=1, keepdim=True)
    cosine = (normalize(before, dim=1) * normalize(after, dim=1)).sum(1, keepdim=True).clamp(-1, 1)
    side = torch.randn(before.shape, generator=random)
    side = normalize(side - (side * before).sum(1, keepdim=True) / length**2 * before, dim=1)
    return cosine * before + sign * (1 - cosine**2).sqrt() * length * side


def main() -> None:
    """Find, write and test the directions."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--judge", type=Path)
    parser.add_argument("--sheet", type=Path, help="write a picture of three faces along every direction, and no more")
    parser.add_argument("--checkpoint", type=Path, default=RELEASED)
    parser.add_argument("--out", type=Path, default=DIRECTIONS)
    options = parser.parse_args()
    sampler = sampling.load(options.checkpoint, choose_device(None))
    if options.sheet is not None:
        images.save_picture(sheet(sampler, directions.of(sampler)), options.sheet)
        return
    found = directions.find(sampler)
    content = {"generator": sampler.digest, "sliders": dict(found.sliders), "colours": list(found.colours)}
    checkpoint.save(options.out, content)
    print(f"written: {options.out}")
    if options.judge is not None:
        test(sampler, found, colours.load(sampler.device, options.judge))


def sheet(sampler: Sampler, found: Directions) -> np.ndarray:
    """Draw three faces, three rows each: unchanged, at both ends of every slider, with every hair and eye colour."""
    latents = sampler.latents([3008, 3017, 3020]).cpu()
    ways = [latents, *(found.move(latents, {of: share}) for of in directions.SLIDERS for share in (-1.0, 1.0))]
    for name, *known in found.classifier.vocabulary:
        ways += [found.change(sampler, lambda of: latents, Change({}, {name: colour})) for colour in known]
    of_faces = torch.stack(ways, 1).flatten(0, 1)
    return images.grid(np.concatenate(list(sampler.draw(of_faces))), len(ways) // 3)


def test(sampler: Sampler, found: Directions, judge: colours.Classifier) -> None:
    """Print the success rate of every direction."""
    latents = sampler.latents(range(FIRST, FIRST + FACES)).cpu()
    many = torch.cat([directions.asymmetry(faces) for faces in sampler.faces(range(directions.SAMPLES))])
    axis = directions.lean(many)
    codes, shades, lean = seen(sampler, judge, latents, axis)
    spread, leans = shades.std(0), lean.std()
    print("changes: among faces that had another colour; of sliders, shifts from end to end of a deviation and more")
    for column, (name, *classes) in enumerate(judge.vocabulary):
        rows = dict[str, list[list[float]]]()
        for code, colour in enumerate(classes, 1):
            others = codes[:, column] != code
            for way, after in recoloured(sampler, found, latents, column, code).items():
                now, _, leaning = seen(sampler, judge, after, axis)
                right = now[:, column] == code
                same = now[:, 1 - column] == codes[:, 1 - column]
                upright = (leaning - lean).abs() < leans
                row = [of[others].double().mean().item() for of in (right, same, upright)]
                rows.setdefault(way, []).append(row)
                print(f"{name} {colour}, {way}: {changed(*row)}", flush=True)
        for way, known in rows.items():
            print(f"{name}, all, {way}: {changed(*np.mean(known, 0))}", flush=True)
    for i, slider in enumerate(directions.SLIDERS):
        for what in ("direction", "chance"):
            ends = []
            for share in (-1.0, 1.0):
                after = found.move(latents, {slider: share})
                ends.append(
                    seen(sampler, judge, after if what == "direction" else moved_randomly(latents, after, share), axis)
                )
            shifts = torch.cat([(ends[1][1] - ends[0][1]) / spread, ((ends[1][2] - ends[0][2]) / leans)[:, None]], 1)
            own = (shifts[:, i] > 1).double().mean().item()
            still = []  # from the face itself to either end
            for now, shade, leaning in ends:
                moved = torch.cat([(shade - shades) / spread, ((leaning - lean) / leans)[:, None]], 1).abs() < 1
                stays = torch.cat([moved[:, [k for k in range(3) if k != i]], now == codes], 1)
                still.append(stays.double().mean(0))
            things = [name for name in directions.SLIDERS if name != slider] + [name for name, *_ in judge.vocabulary]
            shares = torch.stack(still).mean(0).tolist()
            kept = ", ".join(f"{name} {share:.2f}" for name, share in zip(things, shares, strict=True))
            print(f"{slider}, {what}: changes {own:.2f}, by {shifts[:, i].median():.1f}; stay: {kept}", flush=True)


def recoloured(sampler: Sampler, found: Directions, latents: Tensor, column: int, code: int) -> dict[str, Tensor]:
    """Return the test's latents in another colour: by the class alone, as `--change` does, by chance."""
    name, colour = found.classifier.vocabulary[column][0], found.classifier.vocabulary[column][code]
    change, of_class = Change({}, {name: colour}), sampler.classes.learned({name: colour})
    start = sampler.of_classes({}, of_class)

    def draw(of: Sampler) -> Tensor:
        return of.latents(range(FIRST, FIRST + FACES)).cpu()

    ways = {"class alone": draw(start)} if of_class else {}
    ways |= {"direction": found.change(sampler, draw, change), "as --change does": found.change(start, draw, change)}
    return {**ways, "chance": moved_randomly(latents, ways["as --change does"])}


def changed(right: float, same: float, upright: float) -> str:
    """Return the line of text for one way."""
    return f"changes {right:.2f}; the other colour stays {same:.2f}, lean stays {upright:.2f}"


if __name__ == "__main__":
    main()
