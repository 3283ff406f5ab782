"""Classes: which ones are drawn, and how a user asks for them."""

import numpy as np
import pytest
import torch

from config import ConfigError
from gan.classes import NONE, ROW, Classes

VOCABULARY = ("hair", "black", "blue", "red"), ("eyes", "blue", "green")
CODES = np.array([[1, 1]] * 6 + [[2, 2]] * 3 + [[2, 0]] + [[3, 1]])
CLASSES = Classes.of(VOCABULARY, CODES)


def test_faces_are_drawn_with_classes_as_often_as_they_are_and_always_the_same_for_a_seed() -> None:
    codes = CLASSES.of_seeds(range(2000))
    shares = {tuple(row): (codes == row).all(1).mean() for row in np.unique(codes, axis=0)}
    assert shares == pytest.approx({(1, 1): 6 / 11, (2, 0): 1 / 11, (2, 2): 3 / 11, (3, 1): 1 / 11}, abs=0.03)
    assert np.array_equal(CLASSES.of_seeds([7, 1999]), codes[[7, 1999]])


WHOLE = CLASSES.content()["classes"]
NO_CLASSES = [
    {"counts": torch.tensor(11)},
    {"counts": torch.tensor([11])},
    {"counts": torch.zeros(4, dtype=torch.int64)},
    {"counts": WHOLE["counts"].float()},
    {"rows": WHOLE["rows"][:, :1]},
    {"rows": WHOLE["rows"] + 1},
    {"rows": -WHOLE["rows"]},
    {name: entries[:0] for name, entries in WHOLE.items()},
]


def test_classes_come_back_from_a_checkpoint() -> None:
    again = Classes.restored({"model": {"vocabulary": VOCABULARY}, "classes": WHOLE})
    assert np.array_equal(again.of_seeds(range(99)), CLASSES.of_seeds(range(99)))


@pytest.mark.parametrize("damage", NO_CLASSES)
def test_what_is_no_classes_is_refused(damage: dict[str, torch.Tensor]) -> None:
    with pytest.raises(ValueError, match="its classes and their counts do not fit together"):
        Classes.restored({"model": {"vocabulary": VOCABULARY}, "classes": {**WHOLE, **damage}})


@pytest.mark.parametrize("vocabulary", [torch.zeros(1, 3, 3), ((b"hair", "blue", "red"),)])
def test_classes_whose_names_are_no_text_are_refused(vocabulary: object) -> None:
    with pytest.raises(ValueError, match="the names of its classes are no text"):
        Classes.restored({"model": {"vocabulary": vocabulary}, "classes": WHOLE})


def test_what_is_not_asked_for_is_drawn_among_faces_that_have_the_rest() -> None:
    codes = CLASSES.of_seeds(range(200), {0: 2})
    assert set(codes[:, 0]) == {2}
    assert set(codes[:, 1]) == {0, 2}
    never_together = CLASSES.of_seeds(range(200), {0: 3, 1: 2})
    assert {tuple(row) for row in never_together} == {(3, 2)}


def test_a_batch_has_them_as_often_too() -> None:
    codes = CLASSES.draw(np.random.default_rng(0), 4000)
    assert codes.shape == (4000, 2)
    assert (codes[:, 0] == 1).mean() == pytest.approx(6 / 11, abs=0.03)


def test_without_classes_codes_are_empty_and_previews_are_the_first_64_seeds() -> None:
    assert NONE.of_seeds(range(5)).shape == (5, 0)
    assert NONE.draw(np.random.default_rng(0), 5).shape == (5, 0)
    seeds, codes = NONE.previews()
    assert seeds == list(range(64))
    assert codes.shape == (64, 0)
    assert Classes.of((), np.zeros((3, 0), np.int64)) is NONE


def test_previews_have_a_row_for_each_class_with_the_same_seeds_in_each() -> None:
    seeds, codes = CLASSES.previews()
    assert seeds == [*range(ROW)] * 3
    assert codes[:, 0].reshape(3, ROW).tolist() == [[1] * ROW, [2] * ROW, [3] * ROW]
    many = Classes.of((("tag", *map(str, range(40))),), np.repeat(np.arange(1, 41), np.arange(1, 41))[:, None])
    assert many.previews()[1][:, 0].tolist() == [code for code in range(25, 41) for _ in range(ROW)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("hair:blue", ({0: 2}, {0: 2})),
        ("eyes:Green, hair:black", ({0: 1, 1: 2}, {0: 1, 1: 2})),
        ("hair:blue..red,eyes:blue", ({0: 2, 1: 1}, {0: 3, 1: 1})),
    ],
)
def test_a_user_asks_for_classes_by_name(text: str, found: tuple[dict[int, int], dict[int, int]]) -> None:
    assert CLASSES.parse(text) == found


def test_with_one_column_its_name_may_be_left_out() -> None:
    assert Classes.of((("class", "cat", "dog"),), np.array([[1], [2]])).parse("dog") == ({0: 2}, {0: 2})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hair:bleu", "no class of hair is called 'bleu'; did you mean blue?"),
        ("hair:zzz", "no class of hair is called 'zzz'; there are black, blue, red"),
        ("hairs:blue", "no column is called 'hairs'; did you mean hair?"),
        ("blue", "expected COLUMN:CLASS, such as hair:black; got 'blue'"),
        ("hair:", "expected COLUMN:CLASS"),
        ("hair:blue,hair:red", "hair is given twice"),
        ("hair:blue..rde", "did you mean red?"),
        (" , ", "expected COLUMN:CLASS"),
    ],
)
def test_what_is_not_known_is_said(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match="--class") as refused:
        CLASSES.parse(text)
    assert said in str(refused.value)


ODD = Classes.of(
    (("kind", "Doe, Jane", "Re:Zero", "a..b", "a"), ("kind 2", "x")), np.array([[c, 1] for c in (1, 2, 3, 4)])
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("kind:Doe, Jane", ({0: 1}, {0: 1})),
        ("kind:doe, jane,kind 2:x", ({0: 1, 1: 1}, {0: 1, 1: 1})),
        ("kind 2:x, kind:Re:Zero", ({1: 1, 0: 2}, {1: 1, 0: 2})),
        ("kind:a..b", ({0: 3}, {0: 3})),
        ("kind:a..Re:Zero", ({0: 4}, {0: 2})),
    ],
)
def test_names_may_hold_what_separates(text: str, found: tuple[dict[int, int], dict[int, int]]) -> None:
    assert ODD.parse(text) == found
    one = Classes.of(ODD.vocabulary[:1], ODD.rows[:, :1])
    if "kind 2" not in text:
        assert one.parse(text.removeprefix("kind:")) == found


def test_of_many_classes_an_error_names_some() -> None:
    many = Classes.of((("kind", *(f"n{i}" for i in range(100))),), np.arange(1, 101)[:, None])
    with pytest.raises(ConfigError, match=r"there are n0, .*n19, \.\.\.; all of them: --class"):
        many.parse("zzzzzzz")


def test_they_come_from_whatever_device_a_checkpoint_was_read_to() -> None:
    class OnGPU:
        def __init__(self, numbers: np.ndarray) -> None:
            self.numbers = torch.from_numpy(numbers)

        def cpu(self) -> torch.Tensor:
            return self.numbers

    known = {"rows": OnGPU(CLASSES.rows), "counts": OnGPU(CLASSES.counts)}
    again = Classes.restored({"model": {"vocabulary": VOCABULARY}, "classes": known})
    assert again.table() == CLASSES.table()


def test_a_generator_without_classes_says_so() -> None:
    with pytest.raises(ConfigError, match="knows no classes"):
        NONE.parse("hair:blue")


def test_the_table_has_every_class_and_how_often_it_is() -> None:
    assert CLASSES.table() == "hair: black 6, blue 4, red 1\neyes: blue 7, green 3; not labelled 1"


def test_a_checkpoint_keeps_them() -> None:
    again = Classes.restored({"model": {"vocabulary": VOCABULARY}, **CLASSES.content()})
    assert np.array_equal(again.of_seeds(range(50)), CLASSES.of_seeds(range(50)))
    assert Classes.restored({"model": {}, **NONE.content()}) is NONE
