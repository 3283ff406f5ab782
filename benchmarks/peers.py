"""Compare other programs with this one: python -m benchmarks.peers --checkout=FOLDER --data_path=FACES --out=OUT.

FOLDER holds clones of the other programs, under their own names, and their requirements in packages/:

    git clone https://github.com/pytorch/examples FOLDER/examples
    git clone https://github.com/autonomousvision/projected-gan FOLDER/projected-gan
    git clone https://github.com/lucidrains/lightweight-gan FOLDER/lightweight-gan
    pip install --no-deps --target=FOLDER/packages -r benchmarks/peers.txt

Each trains on the same faces for the same minutes, start to end, one at a time, with its own program, options and
training loop. When time is up, the generator is taken out of the running loop and generates samples, as many as it can
in five minutes if it is slow. Then the real `evaluate.py` measures these, and this program's own, all at this program's
size. Each program uses the nearest size of faces that it supports, 64 or 128 pixels, and the batch size of its page, or
a smaller one if that is meant for several GPUs.

Two of them require an NVIDIA GPU: calls for cuda get the CPU. Projected GAN's encoder is loaded from a package that
this program requires, not from the internet; its first previews show 28 samples, not 1,024; and the networks are first
called with random numbers, not with uninitialised memory, which on a CPU may hold anything, and BatchNorm never forgets
a NaN. Nothing else in them is changed.

OUT/runs.jsonl has a line for each program, which is not measured again; OUT/NAME-faces.png shows its first 64 faces,
and OUT/samples/NAME has all. For `benchmarks.look` give that folder: `look draw ... NAME=OUT/samples/NAME`.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, NoReturn

import torch
from PIL import Image
from torch import Tensor, nn

from benchmarks.quality import METRICS, call, rows_of
from config import PACKS, TrainConfig
from gan import imagenet
from gan.data.faces import open_pack
from gan.images import grid, to_pixels

ROOT = Path(__file__).resolve().parent.parent
OURS = "this program"
LOT, SAMPLING_SECONDS = 50, 300.0  # samples at a time, and seconds for all of them

Draw = Callable[[int], Tensor]
"""Generates a number of samples, (N, 3, S, S) in [-1, 1]."""

Running = dict[str, dict[str, Any]]
"""The local variables of each function that was running when time was up, by its name."""


class TimeIsUpError(BaseException):
    """Raised in the peer's training loop; its `except Exception` clauses do not catch it."""


def main() -> None:
    """Train, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkout", type=Path, required=True, help="folder with their programs")
    parser.add_argument("--data_path", type=Path, required=True, help="the faces")
    parser.add_argument("--out", type=Path, required=True, help="folder for faces, samples and lines")
    parser.add_argument("--minutes", type=float, default=20, help="of each")
    parser.add_argument("--n", type=int, default=5000, help="samples")
    parser.add_argument("--names", default=",".join([OURS, *PEERS]), help="which, with commas between")
    parser.add_argument("--child", help=argparse.SUPPRESS)  # one of them, in a process of its own
    options = parser.parse_args()
    options.out, options.data_path = options.out.resolve(), options.data_path.resolve()
    options.checkout = options.checkout.resolve()
    if options.child:
        train(options)
        return
    names = options.names.split(",")
    if unknown := set(names) - {OURS, *PEERS}:
        parser.error(f"--names: {', '.join(unknown)}: there are {', '.join([OURS, *PEERS])}")
    lines = options.out / "runs.jsonl"
    prepare(options.data_path, options.out)
    asked = {"minutes": options.minutes, "n": options.n}
    for name in names:
        wanted = {**asked, "name": name}
        if any(wanted.items() <= row.items() for row in rows_of(lines)):
            continue
        found = ours(options) if name == OURS else peer(name, options)
        with open(lines, "a", encoding="utf-8") as file:
            file.write(json.dumps({**wanted, **found}) + "\n")
    table([row for row in rows_of(lines) if asked.items() <= row.items()])


def prepare(faces: Path, out: Path) -> None:
    """Write the faces in the peers' formats, outside the timed minutes: single files, and 128 pixels in a zip."""
    pack = open_pack(faces, TrainConfig.image_size, out / PACKS)
    folder, archive = out / "faces" / "all", out / "faces-128.zip"
    if archive.is_file():
        return
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(archive.with_suffix(".part"), "w") as file:
        for index, pixels in enumerate(pack.pixels):
            face = Image.fromarray(pixels)
            face.save(folder / f"{index:06d}.png")
            with file.open(f"{index:06d}.png", "w") as entry:
                face.resize((128, 128), Image.Resampling.LANCZOS).save(entry, "PNG")
    archive.with_suffix(".part").rename(archive)


def ours(options: argparse.Namespace) -> dict[str, Any]:
    """Train and measure this program with its defaults."""
    run = options.out / "checkpoints" / f"ours-{options.minutes:g}"
    if not (run / "latest.pt").is_file():
        call(
            "train.py",
            [f"--data_path={options.data_path}", f"--budget={options.minutes}", f"--run={run.name}"],
            options.out,
        )
    rows = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    call(
        "generate.py", [f"--checkpoint={run / 'latest.pt'}", f"--gen_img={options.out / 'ours-faces.png'}"], options.out
    )
    return {
        "pixels": TrainConfig.image_size,
        "images_seen": rows[-1]["images_seen"],
        **measured("ours", run / "latest.pt", options),
    }


def peer(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Train and measure a peer's program in a separate process, whose output goes to OUT/NAME.log."""
    words = [f"--{word}={getattr(options, word)}" for word in ("checkout", "data_path", "out", "minutes", "n")]
    work = options.out / "work" / name
    work.mkdir(parents=True, exist_ok=True)
    path = os.pathsep.join([str(options.checkout / "packages"), str(ROOT)])
    with open(options.out / f"{name}.log", "w", encoding="utf-8") as log:
        child = [sys.executable, "-m", "benchmarks.peers", *words, f"--child={name}"]
        done = subprocess.run(
            child, cwd=work, env={**os.environ, "PYTHONPATH": path}, stdout=log, stderr=log, check=False
        )
    if done.returncode:
        last = (options.out / f"{name}.log").read_text().splitlines()[-1:]
        sys.exit(f"{name} ended with {done.returncode}: {''.join(last)}; {options.out / f'{name}.log'} has the rest")
    found = json.loads((options.out / f"{name}.json").read_text())
    return {**found, **measured(name, options.out / "samples" / name, options)}


def measured(name: str, fake: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Measure samples with `evaluate.py`."""
    report = options.out / f"{name}.png"
    call(
        "evaluate.py",
        [f"--fake={fake}", f"--real={options.data_path}", f"--n={options.n}", f"--report={report}"],
        options.out,
    )
    metrics = json.loads(report.with_suffix(".json").read_text())["metrics"]
    return {
        **{metric: metrics[metric]["value"] for metric in METRICS},
        "floor": {metric: metrics[metric]["floor"] for metric in METRICS},
    }


def train(options: argparse.Namespace) -> None:
    """Run the peer's program in the child process until time is up, and save its samples."""
    since = time.perf_counter()
    chosen = PEERS[options.child]
    home = options.checkout / chosen.folder
    sys.argv = [chosen.program, *chosen.words(options)]
    sys.path.insert(0, str(home))
    if chosen.cuda:
        on_the_cpu()
    if options.child == "projected-gan":
        made_for_a_cpu()
    signal.signal(signal.SIGALRM, time_is_up)
    signal.setitimer(signal.ITIMER_REAL, 60 * options.minutes)
    try:
        if (home / chosen.program).is_file():
            runpy.run_path(str(home / chosen.program), run_name="__main__")
        else:
            importlib.import_module(chosen.program).main()
    except TimeIsUpError as stopped:
        images, draw = chosen.found(frames(stopped.__traceback__))
    else:
        sys.exit("ended before its time was up")
    seconds = time.perf_counter() - since
    torch.manual_seed(0)
    folder = options.out / "samples" / options.child
    folder.mkdir(parents=True, exist_ok=True)
    lots, began = list[Tensor](), time.perf_counter()
    with torch.no_grad():
        while len(lots) * LOT < options.n and time.perf_counter() - began < SAMPLING_SECONDS:
            lots.append(draw(min(LOT, options.n - len(lots) * LOT)))
    faces = torch.cat(lots)
    if not faces.isfinite().all():
        sys.exit("its samples are no numbers")
    for index, face in enumerate(to_pixels(faces)):
        Image.fromarray(face).save(folder / f"{index:05d}.png")
    Image.fromarray(grid(to_pixels(faces[:64]))).save(options.out / f"{options.child}-faces.png")
    found = {"pixels": faces.shape[-1], "images_seen": images, "samples": len(faces), "seconds": round(seconds, 1)}
    (options.out / f"{options.child}.json").write_text(json.dumps(found) + "\n")


def time_is_up(number: int, frame: FrameType | None) -> NoReturn:
    """Interrupt the peer's training loop."""
    raise TimeIsUpError


def frames(traceback: TracebackType | None) -> Running:
    """Return the local variables of each function that was running, the innermost one for each name."""
    found = Running()
    while traceback is not None:
        found[traceback.tb_frame.f_code.co_name] = dict(traceback.tb_frame.f_locals)
        traceback = traceback.tb_next
    return found


def dcgan(running: Running) -> tuple[int, Draw]:
    """Find the images seen and the generator in PyTorch's example, which is a single module."""
    program = next(own for own in running.values() if "netG" in own and "dataloader" in own)
    network, nz = program["netG"].eval(), program["nz"]
    images = (program["epoch"] * len(program["dataloader"]) + program["i"]) * program["opt"].batchSize
    return images, lambda n: network(torch.randn(n, nz, 1, 1))


def projected_gan(running: Running) -> tuple[int, Draw]:
    """Find the images seen and the averaged generator of Projected GAN."""
    loop = running["training_loop"]
    network = loop["G_ema"]
    return loop["cur_nimg"], lambda n: network(torch.randn(n, network.z_dim), torch.zeros(n, 0)).clamp(-1, 1)


def lightweight_gan(running: Running) -> tuple[int, Draw]:
    """Find the images seen and the generator of Lightweight GAN; its average begins only after 20,000 steps."""
    trainer = running["train"]["self"]
    network, nz = trainer.GAN.G.eval(), trainer.GAN.latent_dim
    images = trainer.steps * trainer.batch_size * trainer.gradient_accumulate_every
    return images, lambda n: (2 * network(torch.randn(n, nz)) - 1).clamp(-1, 1)


@dataclasses.dataclass(frozen=True)
class Peer:
    """A program to compare with.

    Args:
        folder: its clone.
        program: its script in the clone, or its module with a function `main`.
        words: its arguments; everything else has its own default.
        found: returns images seen and the generator, given the variables of the training loop.
        cuda: whether it requires an NVIDIA GPU.
    """

    folder: str
    program: str
    words: Callable[[argparse.Namespace], Sequence[str]]
    found: Callable[[Running], tuple[int, Draw]]
    cuda: bool = True


PEERS = {
    "dcgan": Peer(
        "examples/dcgan",
        "main.py",
        lambda options: ["--dataset=folder", f"--dataroot={options.out / 'faces'}", "--niter=100000", "--manualSeed=0"],
        dcgan,
        cuda=False,
    ),
    "projected-gan": Peer(
        "projected-gan",
        "train.py",
        lambda options: [
            *("--outdir=runs", "--cfg=fastgan_lite", f"--data={options.out / 'faces-128.zip'}", "--gpus=1"),
            *("--batch=64", "--batch-gpu=16", "--mirror=1", "--metrics=none", "--snap=100000", "--workers=1"),
        ],
        projected_gan,
    ),
    "lightweight-gan": Peer(
        "lightweight-gan",
        "lightweight_gan.cli",
        lambda options: [f"--data={options.out / 'faces'}", "--image_size=128", "--new", "--num_workers=1"],
        lightweight_gan,
    ),
}


def on_the_cpu() -> None:
    """Redirect calls for cuda to the CPU, and timm's download of lite0 to the installed package."""

    class Kind(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, real)

    class Device(metaclass=Kind):
        def __new__(cls, *_: object) -> torch.device:  # pyright: ignore[reportInvalidTypeForm]
            return real("cpu")

    class Nothing:
        """A stand-in for a CUDA event or stream."""

        cuda_event = 0  # never recorded, so that nobody asks how long it took

        def __init__(self, *_: object, **__: object) -> None: ...
        def record(self, *_: object) -> None: ...
        def synchronize(self) -> None: ...
        def elapsed_time(self, _: object) -> float:
            return 0.0

    real, loader = torch.device, torch.utils.data.DataLoader
    torch.device = Device  # pyright: ignore
    for name, stand_in in {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "Event": Nothing,
        "current_stream": Nothing,
        "max_memory_allocated": lambda *_: 0,
        "max_memory_reserved": lambda *_: 0,
        "reset_peak_memory_stats": lambda *_: None,
    }.items():
        setattr(torch.cuda, name, stand_in)
    for kind in (Tensor, nn.Module):
        kind.cuda = lambda self, *_, **__: self  # pyright: ignore
    Tensor.pin_memory = lambda self, *_: self  # pyright: ignore
    torch.optim.Optimizer._accelerator_graph_capture_health_check = lambda self: None  # pyright: ignore
    torch.utils.data.Sampler.__init__ = lambda self, *_: None  # newer torch takes no data set here
    adam = torch.optim.Adam.__init__

    def with_floats(self: torch.optim.Adam, *words: Any, betas: Sequence[float] = (0.9, 0.999), **named: Any) -> None:
        adam(self, *words, betas=(float(betas[0]), float(betas[1])), **named)  # newer torch refuses whole numbers

    torch.optim.Adam.__init__ = with_floats  # pyright: ignore
    init = loader.__init__
    loader.__init__ = lambda self, *words, **named: init(self, *words, **{**named, "pin_memory": False})
    with contextlib.suppress(ImportError):
        import timm  # pyright: ignore[reportMissingImports]

        create = timm.create_model

        def learnt(key: str) -> bool:
            return not key.endswith("num_batches_tracked")

        def create_model(name: str, *, pretrained: bool) -> nn.Module:
            """Load lite0; weights are matched by the order of the layers, which both packages name differently."""
            assert name == "tf_efficientnet_lite0", name
            network = create(name, pretrained=False)
            state, given = network.state_dict(), torch.load(imagenet.path_of("lite0"), weights_only=True)
            pairs = zip(*(filter(learnt, weights) for weights in (state, given)), strict=True)
            network.load_state_dict({**state, **{key: given[other] for key, other in pairs}})
            return network

        timm.create_model = create_model


def made_for_a_cpu() -> None:
    """Let Projected GAN begin with a grid of 28 samples: its 1,024 take a CPU longer than six minutes, twice.

    It also calls the networks with `torch.empty` to print its table of layers; they get random numbers instead.
    """
    loop: Any = importlib.import_module("training.training_loop")
    grid_of, table_of = loop.setup_snapshot_image_grid, loop.misc.print_module_summary

    def few(training_set: Any) -> tuple[tuple[int, int], Any, Any]:
        _, faces, labels = grid_of(training_set=training_set)
        return (7, 4), faces[:28], labels[:28]

    def of_numbers(network: nn.Module, inputs: list[Tensor], **options: Any) -> Tensor:
        return table_of(network, [torch.randn_like(some) for some in inputs], **options)

    loop.setup_snapshot_image_grid = few
    loop.misc.print_module_summary = of_numbers


def table(rows: list[dict[str, Any]]) -> None:
    """Print a table of the measurements."""
    print(f"| program | pixels | images seen | a second | samples | {' | '.join(METRICS.values())} |")
    print("| --- " * (5 + len(METRICS)) + "|")
    for row in rows:
        cells = [f"{row[metric]:.{1 if metric == 'fd' else 2}f}" for metric in METRICS]
        speed = row["images_seen"] / (60 * row["minutes"])
        many = f"{row['images_seen']:,} | {speed:.1f} | {row.get('samples', row['n']):,}"
        print(f"| {row['name']} | {row['pixels']} | {many} | {' | '.join(cells)} |")
    floor = rows[0]["floor"] if rows else {}
    print(f"| real faces (floor) | | | | | {' | '.join(f'{floor[m]:.2f}' for m in METRICS if m in floor)} |")


if __name__ == "__main__":
    main()
