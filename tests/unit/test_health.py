"""What is said of a run: by rules on made-up curves, and of the logs of real runs that are well, and ill."""

import ast
import inspect
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from config import TrainConfig
from gan.language import catalogue
from gan.presets import resolve
from gan.watching import health
from gan.watching.curves import Curves
from gan.watching.health import Diagnosis, Probe, diagnose, drift, in_words, thumbnails, variety

LOGS = Path(__file__).parent / "health"
"""Logs of real runs on faces of 48 pixels, the columns that the rules read; made at commit e7decab."""

RUNS: dict[str, tuple[str, int, dict[str, Any]]] = {
    "well": ("balanced", 9524, {}),
    "well-1": ("balanced", 9524, {}),
    "drawn": ("balanced", 9506, {}),
    "twenty": ("improving", 9460, {"budget": 20.0}),
    "tenfold": ("balanced", 9524, {"lr2": 3e-3}),
    "won": ("won", 10_000, {"preset": "book", "lr2": 2e-3}),
    "lost": ("lost", 9524, {"lr1": 5e-3, "lr2": 1e-4}),
    "collapsed": ("collapsed", 9524, {"nz": 1}),
    "fifty": ("memorised", 50, {}),
    "oscillating": ("oscillating", 9524, {"loss": "hinge", "lr1": 2e-3, "lr2": 2e-3, "beta1": 0.9}),
    "stalled": ("stalled", 400, {"init": "released", "lr1": 1e-6, "lr2": 1e-6}),
}
"""By log: what is expected to be said of the run, its training faces, and its options."""

TROUBLE = {"collapsed", "won", "lost", "memorised", "oscillating"}
FOLDER = Path("checkpoints/a")


def faces(n: int, seed: int, spread: float = 60.0) -> np.ndarray:
    """Faces (N, 32, 32, 3): of one colour each, with noise."""
    random = np.random.default_rng(seed)
    colours = 128 + spread * random.uniform(-1, 1, (n, 1, 1, 3))
    return (colours + random.normal(0, 5, (n, 32, 32, 3))).clip(0, 255).astype(np.uint8)


def curves(rows: int = 40, batch: int = 1000, **columns: Any) -> Curves:
    """A run of so many rows; a column is one value, or one for each row, None where it has none."""
    made = Curves()
    for i in range(rows):
        row = {"step": 50 * (i + 1), "images_seen": batch * (i + 1), "seconds": 60.0 * (i + 1)}
        values = {name: column[i] if isinstance(column, list) else column for name, column in columns.items()}
        made.add(row | {name: value for name, value in values.items() if value is not None})
    return made


def said(made: Curves, faces: int = 10_000, finished: bool = False, **options: Any) -> Diagnosis:
    return diagnose(made, resolve(TrainConfig, {"best_by": "fd", **options}), faces, FOLDER, finished)


GAP = {"d_accuracy": 0.9, "seen_logit": 2.0, "sample_logit": 0.0}
EIGHTH = [1.0 if i % 8 == 7 else None for i in range(40)]
"""A value every 8,000 images."""


def test_variety_compares_samples_with_faces() -> None:
    real = thumbnails(faces(64, 0))
    assert variety(thumbnails(faces(64, 1)), real) == pytest.approx(1, abs=0.2)
    assert variety(thumbnails(faces(64, 1, spread=6.0)), real) < 0.2
    assert variety(real[:1].repeat(64, 0), real) == 0


def test_drift_compares_what_has_changed_with_what_differs() -> None:
    before, other = thumbnails(faces(64, 0)), thumbnails(faces(64, 1))
    assert drift(before, before) == 0
    assert drift(other, before) == pytest.approx(1, abs=0.2)
    assert drift(before + 0.1 * (other - before), before) == pytest.approx(0.1, abs=0.05)


@pytest.mark.parametrize("channels", [1, 3])
def test_a_probe_asks_about_the_same_faces_and_only_where_some_are_held_out(channels: int) -> None:
    seen, held_out = faces(200, 0)[..., :channels], faces(70, 1)[..., :channels]
    samples = torch.from_numpy(faces(64, 2)[..., :channels].copy()).permute(0, 3, 1, 2) / 127.5 - 1
    asked: list[torch.Tensor] = []

    def discriminator(images: torch.Tensor) -> torch.Tensor:
        asked.append(images)
        return images.mean((1, 2, 3))[:, None].expand(-1, 3) * 10

    probe = Probe(seen, held_out)
    found = [probe(samples, discriminator) for _ in range(8)]
    assert set(found[0]) == {"variety"}
    assert found[1] == found[2] == {**found[0], "drift": 0.0}
    assert found[3] == found[7]
    assert set(found[3]) == {"variety", "drift", "seen_logit", "held_out_logit", "sample_logit"}
    assert [len(images) for images in asked] == [*[32] * 4, *[32, 32, 6], *[32, 32]] * 2  # 128, 70 and 64 of each
    assert found[3]["sample_logit"] == pytest.approx(10 * samples.mean().item(), abs=1e-4)
    few = Probe(seen, held_out[:10])
    assert all("seen_logit" not in few(samples, discriminator) for _ in range(4))


def test_at_first_nothing_is_said() -> None:
    assert said(Curves()).kind == "early"
    assert said(curves(9, d_accuracy=1.0, variety=0.0)).kind == "early"
    assert said(curves(12, d_accuracy=0.9, variety=0.9)).kind == "balanced"


def test_a_short_run_that_has_ended_is_not_told_to_wait() -> None:
    assert "begin to mean something at 10,000 images" in said(curves(9)).text
    ended = said(curves(9), finished=True)
    assert ended.short == "look at the faces"
    assert "Look at its newest samples: if they please you, it is done" in ended.text


@pytest.mark.parametrize(
    ("kind", "columns"),
    [
        ("won", {"d_accuracy": 0.9995}),
        ("lost", {"d_accuracy": 0.55}),
        ("balanced", {"d_accuracy": 0.98}),
        ("collapsed", {"d_accuracy": 0.9, "variety": 0.1}),
        ("collapsed", {"d_accuracy": 1.0, "variety": [1.0] * 20 + [0.1] * 20}),
        ("won", {"d_accuracy": 1.0, "variety": 0.1}),  # it has never been better
        ("balanced", {"d_accuracy": 0.9, "variety": [0.1] * 39 + [0.2]}),  # it grows out of it
        ("memorised", {**GAP, "held_out_logit": 0.9}),
        ("balanced", {**GAP, "held_out_logit": 1.1}),
        ("balanced", {**GAP, "held_out_logit": 0.9, "d_accuracy": 0.7}),  # too near to samples to say
        ("balanced", {**GAP, "held_out_logit": 0.9, "sample_logit": 3.0}),
        ("oscillating", {"variety": EIGHTH, "drift": [value and 0.8 for value in EIGHTH]}),
        ("balanced", {"variety": EIGHTH, "drift": [value and 0.8 for value in EIGHTH[:39]] + [0.4]}),
        ("balanced", {"variety": 1.0, "drift": 0.8}),  # previews too near to each other
        ("balanced", {"variety": EIGHTH, "drift": [value and 0.8 for value in EIGHTH[:24]] + [None] * 16}),
        ("improving", {"fd": [100 / (i + 1) for i in range(40)]}),
        ("improving", {"fd": [100 / (i + 1) for i in range(40)], "d_accuracy": 1.0}),  # it learns all the same
        ("memorised", {"fd": [40 - i for i in range(40)], **GAP, "held_out_logit": 0.0}),
        ("stalled", {"fd": [100 / (i + 1) for i in range(10)] + [10.0] * 30}),
        ("stalled", {"fd": [100 / (i + 1) for i in range(10)] + [30.0 + i for i in range(30)]}),
        ("wavering", {"fd": [None] * 35 + [10.0, 20.0, 14.0, 13.0, 12.5]}),
        ("wavering", {"fd": [None] * 37 + [30.0, 10.0, 25.0]}),  # better than at first, and much worse than it was
        ("won", {"fd": [None] * 37 + [30.0, 10.0, 25.0], "d_accuracy": 1.0}),
        ("balanced", {**GAP, "held_out_logit": float("nan"), "seen_logit": float("nan")}),
        ("balanced", {"fd": [20.0, 10.0] + [None] * 38}),
        ("balanced", {"d_accuracy": 1.0, "variety": 0.5}),  # the default's penalty keeps its gradients useful
        ("won", {"d_accuracy": 1.0, "variety": 0.5, "fd": [10.0] * 40}),
        ("won", {"d_accuracy": 1.0, "variety": [0.5] * 39 + [0.2]}),
    ],
)  # fmt: skip
def test_curves_mean(kind: str, columns: dict[str, Any]) -> None:
    found = said(curves(**columns))
    assert found.kind == kind, found
    assert found.trouble == (kind in TROUBLE)


def test_few_faces_seen_often_and_always_known_are_known_by_heart() -> None:
    made = curves(d_accuracy=0.98, coverage=1.0)
    found = said(made, faces=100)  # 40,000 images
    assert found.kind == "memorised"
    assert "each of the 100 faces 400 times" in found.text
    assert "best.pt" not in found.text  # which is that of the most faithful copies
    assert said(curves(500, d_accuracy=0.98, coverage=1.0), faces=2000).kind == "balanced"  # some are held out
    assert said(curves(d_accuracy=0.98), faces=100).kind == "balanced"  # bad samples are told apart as well
    assert said(curves(d_accuracy=0.98, coverage=0.97), faces=100).kind == "balanced"
    assert "--init=released" in found.text
    assert said(made, faces=400).kind == "balanced"
    assert said(curves(d_accuracy=0.95, coverage=1.0), faces=100).kind == "balanced"
    assert "--init=released" not in said(made, faces=100, init="released").text


@pytest.mark.parametrize(
    ("columns", "options", "expected"),
    [
        ({"variety": 0.05}, {"nz": 2}, "--nz=2 leaves it too little"),
        ({"variety": 0.05}, {"lr1": 0.02}, "smaller --lr1 (now 0.02)"),
        ({"d_accuracy": 1.0}, {"lr2": 0.003}, "smaller --lr2 (now 0.003)"),
        ({"d_accuracy": 1.0}, {"preset": "book"}, "--g_every=1 (now 5)"),
        ({"d_accuracy": 1.0, "variety": 0.9}, {"preset": "book"}, "--g_every=1 (now 5)"),
        ({"d_accuracy": 0.5}, {"lr2": 1e-5}, "greater --lr2 (now 1e-05)"),
        (
            {"drift": EIGHTH, "variety": EIGHTH},
            {"preset": "book64"},
            "averaged generator, which the default preset has",
        ),
        ({**GAP, "held_out_logit": 0.0}, {}, "add faces"),
        ({"fd": [50.0] + [10.0] * 39}, {}, f"use best.pt: python generate.py --checkpoint={FOLDER}"),
        ({"fd": [50.0] + [10.0] * 39}, {"budget": 20.0}, "learning rates fall towards the budget's end"),
        ({"fd": [50.0] + [10.0] * 39}, {"budget": 20.0, "finished": True}, "use best.pt: python generate.py"),
        ({"variety": 0.05, "d_accuracy": 0.9}, {"image_size": 32}, "or with the default recipe"),
        ({"d_accuracy": 0.9, "variety": 1.0}, {}, "the networks are in balance and the samples vary; quality was not"),
        ({"d_accuracy": 0.9, "variety": 0.5}, {}, "the networks are in balance; quality was not"),
        ({"d_accuracy": 1.0, "variety": 1.0}, {}, "nearly all pairs apart, which is no harm for a while; quality was"),
        ({"d_loss": 1.0}, {}, "nothing is wrong with its curves; quality was not"),
        ({"d_accuracy": 1.0}, {}, "if its samples do not get better, start again"),
        ({"d_accuracy": 1.0, "fd": [10.0] * 40}, {}, "learn little from it; start again"),
    ],
)
def test_what_to_do_names_options_and_their_values(
    columns: dict[str, Any], options: dict[str, Any], expected: str
) -> None:
    assert expected in said(curves(**columns), **options).text


def test_a_run_that_improves_is_told_by_how_much() -> None:
    halving = [100 / (i + 1) for i in range(20)]  # FD times minutes is 100
    found = said(curves(20, fd=halving))
    assert found.short == "improving, FD 0.25 less a minute"
    assert "as much time" not in said(curves(20, fd=halving), budget=30.0).text  # its falling rates will not come again
    assert "as much time again, 20 minutes, would bring it to about 2.5" in found.text
    slow = said(curves(180, fd=[100 / (i + 1) for i in range(180)]))  # three hours, FD 0.56
    assert slow.short == "improving, FD 0.19 less an hour"


@pytest.mark.parametrize(
    ("fd", "short"),
    [
        ([30.0, 10.0, 25.0], "improving, with setbacks"),
        ([10.0, 20.0, 30.0], "worse than it was"),
        ([10.0, 10.1, 10.05], "hardly improving"),
    ],
)
def test_a_run_that_comes_no_further_is_told_how_it_goes(fd: list[float], short: str) -> None:
    assert said(curves(fd=[None] * 37 + fd)).short == short


@pytest.mark.parametrize(
    ("damage", "fd", "short"),
    [
        ([3.5, 2.5, 2.3, 2.1, 2.0], [90.0, 60.0, 50.0, 45.0, 42.0], "improving, damage x100"),
        ([3.5, 2.5, 2.3, 2.1, 2.0], [60.0, 60.0, 50.0, 60.0, 70.0], "worse than it was"),  # of fewer and fewer kinds
        ([2.1, 2.1, 2.1, 2.1, 2.1], [90.0, 60.0, 50.0, 45.0, 42.0], "improving, FD"),
        ([2.1, 2.1, 2.1, 2.1, 2.1], [42.0, 42.0, 42.0, 42.0, 42.0], "hardly improving"),
        ([1.56, 1.55, 1.54, 1.54, 1.53], [42.0, 42.0, 42.0, 42.0, 42.0], "hardly improving"),  # that of real faces
    ],
)
def test_damage_is_believed_where_fd_does_not_contradict(damage: list[float], fd: list[float], short: str) -> None:
    made = curves(damage_x100=[None] * 35 + damage, fd=[None] * 35 + fd)
    assert said(made, best_by="damage_x100").short.startswith(short)


def test_damage_is_forecast_towards_that_of_real_faces() -> None:
    steep = [1.5 + 6400 / (i + 1) ** 2 for i in range(35, 40)]  # as much time again leaves a quarter: 4 become 1
    made = curves(damage_x100=[None] * 35 + steep, fd=[None] * 35 + [9.0] * 5)
    assert "would bring it to about 2.5." in said(made, best_by="damage_x100").text


def test_what_2000_samples_decide_is_no_improvement() -> None:
    random = np.random.default_rng(0)
    for start in range(20):
        values = [None] * 34 + list(2 + 0.04 * random.uniform(-1, 1, 6))
        made = curves(damage_x100=values, fd=[None] * 34 + [20.0] * 6)
        assert said(made, best_by="damage_x100").kind != "improving", start


def test_a_discriminator_that_is_sure_for_long_has_won_whatever_its_penalty() -> None:
    assert said(curves(49, d_accuracy=1.0, variety=0.5)).kind == "balanced"
    assert said(curves(50, d_accuracy=1.0, variety=0.5)).kind == "won"


def test_a_critic_that_is_ahead_has_not_won() -> None:
    made = curves(d_accuracy=1.0)
    assert said(made, preset="book").kind == "won"
    assert {said(made, preset=preset).kind for preset in ("wgan", "wgan-gp")} == {"balanced"}


def test_a_critic_that_is_ahead_hides_no_collapse() -> None:
    made = curves(d_accuracy=1.0, variety=0.1)
    assert said(made, preset="book").kind == "won"  # nothing has got going
    assert {said(made, preset=preset).kind for preset in ("wgan", "wgan-gp")} == {"collapsed"}


def test_a_run_that_is_well_does_not_know_its_faces_by_heart_had_it_few() -> None:
    made = Curves()
    for line in (LOGS / "twenty.jsonl").read_text().splitlines():
        made.add(json.loads(line))
    assert said(made, faces=600, budget=20.0).kind != "memorised"  # 200 times each


def test_a_run_that_has_stalled_is_told_since_when() -> None:
    found = said(curves(40, fd=[100.0, 50.0, 20.2, 20.0] + [20.5] * 36))
    assert found.short == "no longer improving since 3,000 images"  # 20.2 is as good as 20.0


def test_a_measurement_is_told_by_the_metric_that_keeps_the_best() -> None:
    found = {"fd": 20.0, "coverage": 0.6, "recall": 0.5, "damage_x100": 2.0}
    assert in_words(found, "fd") == "FD 20.0, damage x100 2.00, coverage 0.60"
    assert in_words(found, "damage_x100") == "damage x100 2.00, FD 20.0, coverage 0.60"


@pytest.mark.parametrize("run", RUNS)
def test_real_runs_are_called_what_they_are(run: str) -> None:
    expected, faces, options = RUNS[run]
    made, kinds = Curves(), set[str]()
    for line in (LOGS / f"{run}.jsonl").read_text().splitlines():
        made.add(json.loads(line))
        kinds.add(said(made, faces, **options).kind)
    assert expected in kinds
    assert kinds & TROUBLE == {expected} & TROUBLE


@pytest.mark.parametrize("page", ["watching.md", "watching.zh.md"])
def test_the_page_on_watching_explains_each_verdict_in_the_words_of_the_program(page: str) -> None:
    calls = [node for node in ast.walk(ast.parse(inspect.getsource(health))) if isinstance(node, ast.Call)]
    words = [call.args[1] for call in calls if isinstance(call.func, ast.Name) and call.func.id == "Diagnosis"]
    said = [word.args[0] for word in words if isinstance(word, ast.Call) and word.args]  # text("...")
    verdicts = [word.value for word in said if isinstance(word, ast.Constant) and isinstance(word.value, str)]
    verdicts = [catalogue()[verdict] if ".zh" in page else verdict for verdict in verdicts]
    text = (Path(__file__).resolve().parents[2] / "docs" / page).read_text(encoding="utf-8")
    assert len(verdicts) >= 7
    assert [verdict for verdict in verdicts if f"| {verdict}" not in text] == []
