"""What a run leaves for its user: what its curves mean, a report, a film, a summary."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gan.images import save_picture
from gan.watching import health

Command = Callable[..., subprocess.CompletedProcess[str]]
SMALL = "--nogpu --noprojected --image_size=32 --ngf=4 --ndf=8 --batch_size=64 --precision=fp32"
SMALL = f"{SMALL} --whole=0 --eval_images=0".split()


@pytest.fixture
def collapsing(
    tmp_path: Path, make_faces: Callable[..., list[Path]], run_here: Command, monkeypatch: pytest.MonkeyPatch
) -> str:
    """Train on 3,000 images with a latent that lets nothing vary; what was printed."""
    make_faces(tmp_path / "data", 200, size=32)
    monkeypatch.setattr(health, "EARLY_IMAGES", 2000)
    words = ["--nz=1", "--plot_every=5", "--save_every=10", "--max_epoch=15", "--run=a"]
    done = run_here("train.py", *SMALL, *words, plotted=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_run_that_has_collapsed_says_so_and_leaves_a_report_and_a_film(
    collapsing: str, tmp_path: Path, run_here: Command
) -> None:
    run = Path("checkpoints/a")
    *_, last = collapsing.split("finished at step ")
    summary = dict(line.split(maxsplit=1) for line in last.splitlines()[1:])
    assert last.startswith("47, 3,008 images seen, ")
    assert summary["verdict:"].startswith("the generator has collapsed: its samples are nearly all alike")
    assert "--nz=1 leaves it too little to vary" in summary["verdict:"]
    assert "was not measured" in summary["best:"]
    assert summary["report:"] == str(run / "report.html")
    assert summary["film:"] == str(run / "timelapse.webp")
    assert summary["go"] == f"on:   python train.py --resume={run} --max_epoch=65"

    report = (tmp_path / run / "report.html").read_text(encoding="utf-8")
    assert "<b>the generator has collapsed</b>" in report
    assert "timelapse.webp" in report
    assert f"go on:   python train.py --resume={run} --max_epoch=65" in report
    assert report.count("<figure>") >= 9
    with Image.open(tmp_path / run / "timelapse.webp") as film:
        assert getattr(film, "n_frames", 1) == len(list((tmp_path / run / "samples").iterdir()))

    for name in ("films/film.gif", "film.mp4"):
        made = run_here("generate.py", f"--timelapse={run}", f"--gen_img={name}")
        assert made.returncode == 0, made.stderr
        assert re.fullmatch(rf"\d+ pictures of the same latents, from first to last, in {name}\n", made.stdout)
        assert (tmp_path / name).stat().st_size > 1000
    large = run_here("generate.py", f"--timelapse={run}", "--gen_img=large.webp", "--enlarge=2", "--nogpu")
    assert large.returncode == 0, large.stderr
    assert "these have 32: enlarged by Lanczos instead" in large.stdout
    with Image.open(tmp_path / "large.webp") as film, Image.open(tmp_path / run / "timelapse.webp") as plain:
        assert film.size == tuple(2 * (side - 2) - 2 * (side - 2) // 34 + 2 for side in plain.size)  # the gaps stay
    wrong = run_here("generate.py", f"--timelapse={run}", "--gen_img=film.png")
    assert wrong.returncode == 2
    assert "expected a film ending in .webp, .gif or .mp4; got 'film.png'" in wrong.stderr


def test_a_film_of_previews_that_lie_elsewhere(tmp_path: Path, run_here: Command) -> None:
    for step in (0, 50):
        pixels = np.full((64, 64, 3), 100 + step, np.uint8)
        save_picture(pixels, tmp_path / "previews" / f"step-{step:08d}.png")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text('{"config": {"save_path": "previews"}}')

    made = run_here("generate.py", "--timelapse=run")

    assert made.stdout == f"2 pictures of the same latents, from first to last, in {Path('run/timelapse.webp')}\n"
    assert (tmp_path / "run" / "timelapse.webp").is_file()
    refused = run_here("generate.py", "--timelapse=run", "--enlarge=4")
    assert refused.returncode == 2
    assert "not a grid of faces of 96 pixels, as the run's are; leave out --enlarge" in refused.stderr
