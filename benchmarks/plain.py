"""A plain implementation of the same work, as in a book, for `benchmarks/throughput.py` to compare with.

python benchmarks/plain.py step FACES PRESET SECONDS   training, prints images/s of every ten steps
python benchmarks/plain.py epoch FACES                 one epoch of decoded faces
python benchmarks/plain.py save CHECKPOINT N FOLDER    faces to PNG files, one by one

It uses ImageFolder and a DataLoader with two workers (eight with a GPU), fp32, torch's default memory layout, and plain
Adam. The generator's step computes the discriminator's gradients too, and discards them.
"""

from __future__ import annotations

import copy
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader
from torchvision import transforms
from torchvision.datasets import ImageFolder
from torchvision.utils import save_image

from config import TrainConfig
from gan.presets import PRESETS
from gan.quality.sampling import load
from gan.training import losses
from gan.training.augment import Moves, augment
from model import Discriminator, Generator

STEPS = 10


def loader(faces: Path, batch_size: int, size: int = 96) -> DataLoader:
    """Return a loader of the faces in class folders, in random order, as tensors in [-1, 1]."""
    steps = [transforms.Resize(size), transforms.CenterCrop(size), transforms.ToTensor()]
    steps += [transforms.Normalize([0.5] * 3, [0.5] * 3)]
    dataset = ImageFolder(str(faces), transforms.Compose(steps))
    workers = 8 if torch.cuda.is_available() else 2
    return DataLoader(dataset, batch_size, shuffle=True, num_workers=workers, drop_last=True)


def epochs(faces: Path, batch_size: int, size: int) -> Iterator[Tensor]:
    """Yield batches endlessly."""
    batches = loader(faces, batch_size, size)
    while True:
        for images, _ in batches:
            yield images


def step(faces: Path, preset: str, seconds: float) -> None:
    """Train for a number of seconds."""
    config = TrainConfig(**PRESETS[preset])  # pyright: ignore[reportArgumentType]
    since, until = time.perf_counter(), None
    for i, _ in enumerate(steps(config, faces), start=1):
        if i % STEPS == 0:
            now = time.perf_counter()
            if until is not None:  # the first are slower
                print(STEPS * config.batch_size / (now - since), flush=True)
            until, since = until or now + seconds, now
            if now > until:
                return


def steps(config: TrainConfig, faces: Path) -> Iterator[None]:
    """Train endlessly; yields after each step."""
    torch.set_flush_denormal(True)  # else whoever loses to the discriminator is slow for another reason
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    generator, discriminator = Generator(config.model).to(device), Discriminator(config.model).to(device)
    average = copy.deepcopy(generator)
    g_optimizer = torch.optim.Adam(generator.parameters(), config.lr1, (config.beta1, config.beta2))
    d_optimizer = torch.optim.Adam(discriminator.parameters(), config.lr2, (config.beta1, config.beta2))
    for i, images in enumerate(epochs(faces, config.batch_size, config.image_size), start=1):
        real = images.to(device)
        if config.flip:
            real = torch.stack([face.flip(2) if random.random() < config.flip else face for face in real])
        moves = [shifts(config) for _ in range(2)]
        discriminator_step(config, i, generator, discriminator, d_optimizer, real, moves[0])
        fake = generator(torch.randn(len(real), config.nz, device=device))
        fake_logits = discriminator(augment(fake, moves[1]))
        real_logits = discriminator(augment(real, moves[1])) if config.loss in losses.COMPARING else None
        g_optimizer.zero_grad()
        g_loss = losses.generator_loss(config.loss, real_logits, fake_logits)
        g_loss.backward()
        g_optimizer.step()
        if config.ema_half_life_images:
            with torch.no_grad():
                for own, new in zip(average.parameters(), generator.parameters(), strict=True):
                    own.mul_(0.999).add_(new, alpha=0.001)
        g_loss.item()
        yield


def discriminator_step(
    config: TrainConfig,
    i: int,
    generator: nn.Module,
    discriminator: Discriminator,
    optimizer: torch.optim.Optimizer,
    real: Tensor,
    moves: Moves,
) -> None:
    """Train the discriminator for one step."""
    fake = generator(torch.randn(len(real), config.nz, device=real.device)).detach()
    real, fake = augment(real, moves), augment(fake, moves)
    real_logits, fake_logits = discriminator(real), discriminator(fake)
    loss = losses.discriminator_loss(config.loss, real_logits, fake_logits)
    if config.penalty != "none" and i % config.penalty_every == 0:
        noise = torch.randn(len(real), 2, *real.shape[1:], device=real.device)
        plain = real_logits[:, 0, 0], fake_logits[:, 0, 0]
        found = losses.gradient_penalties(config.penalty, discriminator.plain, real, plain[0], fake, plain[1], noise)
        loss = loss + config.penalty_every * config.penalty_weight * sum(found.values())
        if discriminator.projected is not None and config.head_penalty:
            features = discriminator.encode(real), discriminator.encode(fake)
            noises = [torch.randn(len(one), 2, *one.shape[1:], device=real.device) for one in features[0]]
            maps = features[0], real_logits[:, 1:], features[1], fake_logits[:, 1:]
            found = losses.head_penalties(config.penalty, discriminator.projected.conditioned(), *maps, noises)
            loss = loss + config.penalty_every * config.head_penalty * sum(found.values())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def shifts(config: TrainConfig) -> Moves:
    """Draw the random shift of a batch."""
    reach = config.image_size // 8 if random.random() < config.translate else 0
    return Moves((random.randint(-reach, reach), random.randint(-reach, reach)))


def epoch(faces: Path) -> None:
    """Read every face once."""
    print(sum(len(images) for images, _ in loader(faces, 64)))


@torch.no_grad()
def save(path: Path, n: int, folder: Path) -> None:
    """Generate faces from a checkpoint in batches, and write them one by one."""
    sampler = load(path, torch.device("cpu"))
    generator = sampler.generator.to(memory_format=torch.contiguous_format)  # pyright: ignore[reportCallIssue]
    folder.mkdir(parents=True)
    for start in range(0, n, 64):
        for i, face in enumerate(generator(torch.randn(min(64, n - start), sampler.model.nz))):
            save_image(face, folder / f"{start + i:08d}.png", normalize=True, value_range=(-1, 1))


if __name__ == "__main__":
    what, *words = sys.argv[1:]
    if what == "step":
        step(Path(words[0]), words[1], float(words[2]))
    elif what == "epoch":
        epoch(Path(words[0]))
    else:
        save(Path(words[0]), int(words[1]), Path(words[2]))
