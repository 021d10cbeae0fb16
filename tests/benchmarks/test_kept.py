"""Numbers of a long benchmark: made once, kept whole, and gone on from after a kill."""

import functools
import itertools
import json

import pytest

from benchmarks import _regularised as shared
from benchmarks._kept import Numbers
from secure_fl.errors import InputError


def test_a_number_is_made_once_for_what_it_is_of(tmp_path):
    counter = itertools.count()
    folder = tmp_path / "kept"

    def number(seed, **task):
        known = Numbers(folder).about(data="synthetic (0.5, 0.5)", seed=seed)
        return known.number(lambda: float(next(counter)), **task)

    assert [number(0, rate=0.1), number(1, rate=0.1), number(0, rate=0.3)] == [0, 1, 2]
    assert [number(0, rate=0.1), number(1, rate=0.1), number(0, rate=0.3)] == [0, 1, 2]
    assert sorted(p.name[:18] for p in folder.iterdir()) == ["synthetic-0-5-0-5-"] * 3
    assert not list(tmp_path.glob("*.json"))


def test_without_a_folder_nothing_is_kept():
    counter = itertools.count()
    assert [Numbers(None).number(lambda: next(counter), data="a") for _ in range(2)] == [0, 1]


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("number", 2.0, "damaged, its digest is not"),
        ("run", {"task": {"data": "a", "seed": 7}, "settings": {}}, "damaged, its digest is not"),
        ("format", 2, "not a kept run of format 1"),
    ],
)
def test_a_file_that_was_changed_is_refused_by_its_name(tmp_path, key, value, told):
    numbers = Numbers(tmp_path)
    numbers.number(lambda: 1.0, data="a", seed=0)
    (path,) = tmp_path.iterdir()
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    with pytest.raises(InputError, match=told) as refused:
        numbers.number(lambda: 3.0, data="a", seed=0)
    assert str(refused.value).startswith(f"{path}: ")


class Killed(BaseException):
    """Stands for the end of a process between two numbers."""


def test_a_search_that_was_killed_goes_on_to_the_same_end(tmp_path, monkeypatch, small):
    made, fit = [], shared.fit

    def counted(most, *args):
        if len(made) == most:
            raise Killed
        made.append(args[1:])
        return fit(*args)

    monkeypatch.setattr(shared, "RATES", [0.3, 0.1, 0.03])
    monkeypatch.setattr(shared, "LARGER", [])
    monkeypatch.setattr(shared, "SEARCHED", {"FedProx": {"proximal": [1e-3, 1e-1]}})

    def searched(folder, most=None):
        made.clear()
        monkeypatch.setattr(shared, "fit", functools.partial(counted, most))
        return shared.searched(lambda *_: small, Numbers(folder), "a", "FedProx", 1, 2)

    expected = searched(None)
    whole = list(made)
    with pytest.raises(Killed):
        searched(tmp_path, 2)
    assert searched(tmp_path) == expected
    # `fit` only makes a trainer; what was kept is not trained.
    assert len(list(tmp_path.iterdir())) == len(whole) == 4
    changed = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert searched(tmp_path) == expected
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == changed


def test_accuracies_of_trials_are_kept_by_method_settings_and_rounds(tmp_path, monkeypatch, small):
    made, fit = [], shared.fit
    monkeypatch.setattr(shared, "fit", lambda *args: made.append(args[1:]) or fit(*args))
    numbers = Numbers(tmp_path).about(data="a")

    def scores(rounds):
        made.clear()
        score = shared.scorer(small, rounds, numbers)
        told = {"learning_rate": 0.3}
        return [
            score("FedAvg", told),
            score("FedAvgR", {**told, "mmd": 1.0}),
            score(shared.BY_CLASS, {**told, "mmd": 1.0}),
        ]

    first = scores(2)
    assert len(made) == 3
    assert scores(2) == first
    assert not made
    with_rounds = Numbers(tmp_path).about(**small.known("a", 3))
    assert with_rounds.known["rounds"] == 3
    score = shared.scorer(small, 3, with_rounds)
    score("FedAvg", {"learning_rate": 0.3})
    assert len(made) == 1
