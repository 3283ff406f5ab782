"""Instance selection: faces far from the others are left out, and a checkpoint remembers the selection."""

import dataclasses
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from config import SYNTHETIC, TrainConfig
from gan.data.faces import Pack
from gan.quality import features, selection, whole_faces
from gan.quality.features import Extractor
from gan.quality.whole_faces import WholeFaces
from gan.training import choices

CPU = torch.device("cpu")
USUAL, ODD = 300, 6


@pytest.fixture
def pack(tmp_path: Path) -> Pack:
    """Faces of a middling grey, and at the end some that are nearly white."""
    random = np.random.default_rng(0)
    usual = random.integers(100, 150, (USUAL, 8, 8, 3), np.uint8)
    odd = random.integers(230, 250, (ODD, 8, 8, 3), np.uint8)
    return Pack(np.concatenate([usual, odd]), np.arange(USUAL + ODD, dtype=np.uint32), 0, tmp_path)


def extractor(name: str = "corner") -> Extractor:
    return Extractor(name, 12, lambda pixels: pixels[:, :2, :2].flatten(1).float(), CPU)


def scorer(extractor: Extractor, known: bool) -> WholeFaces:
    """Takes the bright for whole; whether it knows the faces."""
    distance = 0.0 if known else float("inf")
    return WholeFaces(extractor, torch.ones(12), lambda seen: torch.full((len(seen),), distance))


def test_what_is_unlike_the_others_stays_out(pack: Pack) -> None:
    training, held_out = np.arange(0, USUAL + ODD, 2), np.arange(1, USUAL + ODD, 2)
    looked_at: list[int] = []

    chosen = selection.select_instances(pack, training, held_out, 0.9, extractor(), looked_at.append)

    assert chosen.dtype == bool
    assert chosen[training].sum() == 138  # nine tenths of 153
    assert not chosen[USUAL:].any()
    assert chosen[held_out].sum() == 138
    assert sum(looked_at) == USUAL + ODD


def test_a_face_is_judged_by_how_all_spread_and_not_by_its_distance_alone(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    pixels = np.full((200, 8, 8, 3), 128, np.uint8)
    pixels[:, 0, 0, 0] = random.integers(28, 228, 200)  # faces differ much in one feature
    pixels[:, 0, 0, 1] = random.integers(126, 131, 200)  # and little in another
    pixels[0, 0, 0, 1] = 158  # so that this is unusual, though nearer to the middle than many
    pack = Pack(pixels, np.arange(200, dtype=np.uint32), 0, tmp_path)

    chosen = selection.select_instances(pack, np.arange(200), np.arange(0), 0.99, extractor())

    assert chosen.sum() == 198
    assert not chosen[0]


@pytest.mark.parametrize("share", [0.01, 0.5, 1])
def test_the_share_is_kept_to_and_the_faces_are_the_same_each_time(
    pack: Pack, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    training, held_out = np.arange(USUAL), np.arange(USUAL, USUAL + ODD)

    once = selection.select_instances(pack, training, held_out, share, extractor())

    assert once[training].sum() == round(share * USUAL)
    monkeypatch.setattr(selection, "CHUNK", 7)
    again = selection.select_instances(pack, training, held_out, share, extractor("looked at anew"))
    assert np.array_equal(once, again)


def test_faces_that_are_all_alike_do_not_divide_by_nothing(tmp_path: Path) -> None:
    pack = Pack(np.full((50, 8, 8, 3), 9, np.uint8), np.arange(50, dtype=np.uint32), 0, tmp_path)
    chosen = selection.select_instances(pack, np.arange(50), np.arange(0), 0.8, extractor())
    assert chosen.sum() == 40


class TestChoosing:
    @pytest.fixture(autouse=True)
    def few_are_many(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(selection, "LEAST", 100)
        monkeypatch.setattr(features, "load", lambda *_: extractor())
        monkeypatch.setattr(whole_faces, "load", lambda extractor: scorer(extractor, known=False))

    def chosen(self, pack: Pack, anime: bool = False, **options: Any) -> np.ndarray | None:
        config = dataclasses.replace(TrainConfig(data_path=Path("faces")), **options)
        faces = choices.Faces(pack, np.arange(len(pack.pixels)), np.arange(0))
        return choices.select_faces(config, faces, CPU, anime)

    @pytest.mark.parametrize(("known", "share"), [(True, 0.6), (False, 0.8)])
    def test_where_nobody_says_how_many_it_is_fewer_of_faces_that_are_known(
        self, pack: Pack, monkeypatch: pytest.MonkeyPatch, known: bool, share: float
    ) -> None:
        monkeypatch.setattr(whole_faces, "load", lambda extractor: scorer(extractor, known=known))
        chosen = self.chosen(pack, anime=known)
        assert chosen is not None
        assert chosen.sum() == round(share * len(pack.pixels))

    def test_it_says_what_it_does(self, pack: Pack, capsys: pytest.CaptureFixture[str]) -> None:
        chosen = self.chosen(pack, typical=0.9)
        assert chosen is not None
        assert chosen.sum() == 275
        said = capsys.readouterr().out
        assert "90% of the faces" in said
        assert "--typical=1" in said

    def test_of_faces_that_it_knows_the_most_whole_are_taken(
        self, pack: Pack, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(whole_faces, "load", lambda extractor: scorer(extractor, known=True))
        chosen = self.chosen(pack, anime=True, typical=0.25)
        brightness = pack.pixels[:, :2, :2].astype(float).sum((1, 2, 3))
        assert chosen is not None
        assert set(np.flatnonzero(chosen)) == set(np.argsort(-brightness, kind="stable")[:76])
        assert chosen[USUAL:].all()  # unlike the others, and bright
        assert "25% of the faces that look most whole" in capsys.readouterr().out

    def test_all_faces_are_taken_where_they_are_few_or_synthetic_or_that_was_asked(
        self, pack: Pack, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert self.chosen(pack, typical=1) is None
        assert self.chosen(pack, data_path=SYNTHETIC) is None
        monkeypatch.setattr(selection, "LEAST", USUAL + ODD)
        assert self.chosen(pack) is None
        assert capsys.readouterr().out == ""

    def test_fewer_are_left_out_where_few_would_be_left(self, pack: Pack, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(selection, "LEAST", round(0.9 * (USUAL + ODD)))
        chosen = self.chosen(pack)
        assert chosen is not None
        assert chosen.sum() == selection.LEAST
        monkeypatch.setattr(selection, "LEAST", USUAL + ODD - 1)
        assert self.chosen(pack) is None

    def test_all_faces_are_taken_where_the_budget_is_too_short_to_look(
        self, pack: Pack, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def slowly(pixels: torch.Tensor) -> torch.Tensor:
            time.sleep(0.05)
            return extractor().network(pixels)

        monkeypatch.setattr(features, "load", lambda *_: dataclasses.replace(extractor("slow"), network=slowly))
        assert self.chosen(pack, budget=0.01) is None  # a tenth of it is over after the second hundred
        assert "all are used" in capsys.readouterr().out
        assert self.chosen(pack, budget=100) is not None

    def test_a_run_that_goes_on_keeps_its_faces(self, pack: Pack) -> None:
        mask = np.random.default_rng(0).random(len(pack.pixels)) < 0.3
        stored = {"chosen_faces": torch.from_numpy(np.packbits(mask))}
        kept = selection.unpacked(stored["chosen_faces"], pack)
        assert kept is not None
        assert np.array_equal(kept, mask)
        assert selection.unpacked(None, pack) is None
