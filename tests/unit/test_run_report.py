"""report.html: whole without anything else, never half written, and cheap."""

import re
import time
from pathlib import Path

import numpy as np
import pytest

from gan import images
from gan.watching import run_report
from gan.watching.curves import COLOURS
from gan.watching.health import Diagnosis
from gan.watching.run_report import RunReport

AGAIN = "torchrun --nproc_per_node=2 -- train.py --resume=a"
FACES = np.random.default_rng(0).integers(0, 256, (64, 8, 8, 3), np.uint8)


def row(step: int, **values: float) -> dict[str, float]:
    return {"step": step, "images_seen": 64 * step, "seconds": step / 2, "d_loss": 0.5, "g_loss": 1.5, **values}


def opened(tmp_path: Path) -> RunReport:
    options = {"lr1": 3e-4, "batch_size": 64, "data_path": "<b>", "run": None}
    return RunReport(tmp_path, options, tmp_path / "samples", AGAIN)


def page(tmp_path: Path) -> str:
    return (tmp_path / "report.html").read_text(encoding="utf-8")


def test_the_page_has_everything_and_needs_nothing(tmp_path: Path) -> None:
    report = opened(tmp_path)
    for step in (50, 100, 150):
        report.row(row(step, fd=30.0, variety=0.9, drift=0.5, data_wait=0.01))
        images.save_picture(images.grid(FACES), tmp_path / "samples" / f"step-{step:08d}.png")
    report.row({"step": 150, "images_seen": 9600, "seconds": 75, "seen_logit": 1.0})  # a point, no curve
    report.picture("samples", "Samples of step 150", images.grid(FACES), 150)
    report.logits(np.array([1.0, 2.0]), np.array([-1.0, 0.0]))
    report.diagnosis(Diagnosis("won", "D & it", "do <this>."), 150)
    report.end("Finished", ["faces:   python generate.py --checkpoint=x", "go on:   python <>"])
    report.close()

    html = page(tmp_path)
    assert "<pre>faces:   python generate.py --checkpoint=x\ngo on:   python &lt;&gt;</pre>" in html
    assert not re.search(r"(src|href)=.(?!data:)", html.replace('src="data:', ""))
    assert "<b>D &amp; it</b><br>do &lt;this&gt;." in html
    assert "verdict trouble" in html
    assert "<figcaption>Samples of step 150</figcaption>" in html
    for title, unit, *names in (
        ("Losses", "loss", "discriminator", "generator"),
        ("Distance from real faces", "lower is better"),
        (
            "Samples: how far apart, how much they change",
            "1: as faces; as two samples",
            "apart",
            "changed since the last preview",
        ),
    ):
        keys = " ".join(
            f'<span style="color: {colour}">&#9632;</span> {name}' for colour, name in zip(COLOURS, names, strict=False)
        )
        unit += ", by images seen" + (f"<br>{keys}" if keys else "")
        assert f"<figcaption>{title}<br><small>{unit}</small></figcaption>" in html
    assert "".join(f"<span>{seconds} s</span>" for seconds in (25, 50, 75)) in html  # how long until each row
    assert "The discriminator&#x27;s logits in the last steps" in html
    assert "Coverage" not in html  # was not measured
    assert html.count("data:image/svg+xml") == 5
    assert html.count("data:image/jpeg") == 2
    assert "&lt;b&gt;" in html
    assert "1.2 minutes of training, 9,600 images seen" in html
    assert "refresh" not in html


def test_rows_are_named_and_nothing_is_well_before_anything_is_known(tmp_path: Path) -> None:
    report = opened(tmp_path)
    report.picture("samples", "Samples", images.grid(FACES), 50, ["blond", "<red>"])
    report.diagnosis(Diagnosis("early", "too early", "wait."), 50)
    report.row(row(50))
    report.close()
    html = page(tmp_path)
    assert "<div><span>blond</span><span>&lt;red&gt;</span></div>" in html
    assert 'class="verdict early"' in html
    assert "svg+xml" not in html
    assert "<h2>Curves" not in html
    assert "<pre>" not in html
    report.diagnosis(Diagnosis("balanced", "well so far", "go on."), 50)
    report.close()
    assert 'class="verdict well"' in page(tmp_path)


def test_while_it_trains_the_page_is_rewritten_as_often_as_it_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(run_report.time, "perf_counter", lambda: now[0])
    report = opened(tmp_path)
    written: list[float] = []

    def write(training: bool) -> list[str]:
        now[0] += 0.5
        written.append(now[0])
        return []

    monkeypatch.setattr(report, "_write", write)
    for step in range(1000):
        now[0] += 1.0
        report.row(row(step))
    assert written[0] == pytest.approx(1000 + run_report.FIRST + 0.5, abs=1.5)
    assert np.diff(written) == pytest.approx(run_report.EVERY, abs=2)


def test_a_browser_looks_again_while_it_trains(tmp_path: Path) -> None:
    report = opened(tmp_path)
    report.due = time.perf_counter()
    report.row(row(50))
    assert 'http-equiv="refresh"' in page(tmp_path)
    assert f"the run was killed; <code>{AGAIN}</code> resumes" in page(tmp_path)
    report.close()
    assert 'http-equiv="refresh"' not in page(tmp_path)
    assert "killed" not in page(tmp_path)


def test_a_page_that_cannot_be_written_is_said_once_and_the_last_one_stays(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    report = opened(tmp_path)
    report.close()
    before, limit = page(tmp_path), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limit[1]))
    try:
        told = []
        for step in (50, 100):
            report.due = time.perf_counter()
            told += report.row(row(step))
        told += report.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert len(told) == 1
    assert "report.html" in told[0]
    assert "training goes on" in told[0]
    assert page(tmp_path) == before
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_grids_of_another_run_and_other_files_do_no_harm(tmp_path: Path) -> None:
    samples = tmp_path / "samples"
    for step, size in ((50, 16), (100, 8), (150, 8)):
        images.save_picture(
            images.grid(FACES.repeat(size // 8, 1).repeat(size // 8, 2)), samples / f"step-{step:08d}.png"
        )
    (samples / "step-00000100 (1).png").write_bytes(b"a copy")
    (tmp_path / "timelapse.webp").write_bytes(b"of an earlier session")
    report = opened(tmp_path)
    report.due = time.perf_counter()
    report.row(row(150))
    assert "timelapse" not in page(tmp_path)
    assert report.close() == []
    assert '<a href="timelapse.webp">' in page(tmp_path)
    assert "<span>50 s</span><span>75 s</span>" in page(tmp_path)
    (samples / "step-00000200.png").write_bytes(b"half a picture")
    whole = (samples / "step-00000150.png").read_bytes()
    (samples / "step-00000250.png").write_bytes(whole[: len(whole) // 2])  # when the power went
    assert report.close() == []
    assert "<span>50 s</span><span>75 s</span>" in page(tmp_path)


def test_what_is_taken_back_is_forgotten(tmp_path: Path) -> None:
    report = opened(tmp_path)
    for step in (50, 100, 150):
        report.row(row(step))
    report.rewind(100)
    report.close()
    assert "6,400 images seen" in page(tmp_path)
