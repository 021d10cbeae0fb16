"""Accuracy by distance and without each contributor, beside counting by hand."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kahm import classify
from secure_fl.errors import InputError
from secure_fl.heads.judging import calibrate, label_indices, leave_one_out


@given(st.integers(0, 2**32), st.integers(2, 6), st.integers(1, 9), st.integers(2, 4))
@settings(max_examples=60)
def test_without_a_contributor_is_the_rule_over_the_others(seed, clients, queries, classes):
    """The same as taking its column out, ties included."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 4, (queries, clients, classes))
    labels = rng.integers(-1, classes, queries)
    names = [f"c{i}" for i in range(clients)]
    right, found = leave_one_out(codes, names, labels)
    whole = classify(codes)
    assert right == np.sum(whole == labels)
    for i, each in enumerate(found):
        rest = classify(np.delete(codes, i, axis=1))
        assert each.client == names[i]
        assert each.right == np.sum(rest == labels)
        assert each.changed == np.sum(rest != whole)
        assert each.right - right == each.harmed - each.helped
        assert each.helped == np.sum((whole == labels) & (rest != labels))


def test_a_liar_is_seen():
    """A contributor that always claims class 0 at code 0 harms; without it all are right."""
    labels = np.array([0, 1, 2, 1])
    honest = np.full((4, 2, 3), 9)
    honest[np.arange(4), 0, labels] = 3
    liar = np.tile([0, 9, 9], (4, 1, 1))
    right, found = leave_one_out(np.concatenate([honest, liar], axis=1), "abl", labels)
    assert right == 1
    assert [each.right for each in found] == [1, 1, 4]
    assert (found[2].harmed, found[2].helped, found[2].changed) == (3, 0, 3)


def test_nobody_is_left_of_one():
    with pytest.raises(InputError, match="1 contributor is here, at least 2"):
        leave_one_out(np.zeros((2, 1, 3)), ["a"], np.zeros(2, np.int64))


def test_labels_that_are_no_class_are_never_right():
    assert label_indices(["y", "z", "x"], ("x", "y")).tolist() == [1, -1, 0]


@given(st.lists(st.integers(0, 12), min_size=1, max_size=60), st.integers(0, 2**32))
@settings(max_examples=60)
def test_bands_part_the_queries_by_distance_and_keep_equal_ones_together(codes, seed):
    distances = np.array(codes) / 12
    right = np.random.default_rng(seed).random(len(codes)) < 0.5
    bands = calibrate(distances, right)
    assert 1 <= len(bands) <= 10
    assert all(a.most < b.least for a, b in itertools.pairwise(bands))
    for band in bands:
        there = (distances >= band.least) & (distances <= band.most)
        assert band.queries == there.sum() > 0
        assert band.right == right[there].sum()
        assert band.accuracy == band.right / band.queries
    assert sum(band.queries for band in bands) == len(codes)


def test_nothing_is_calibrated_on_nothing():
    with pytest.raises(InputError, match="of 0 queries"):
        calibrate(np.empty(0), np.empty(0, bool))
