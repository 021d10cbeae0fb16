"""Labels that hardly meet: what a person should look at before clients train together."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secure_fl.data import ClassList, Dataset, dirichlet, label_remarks, pathological


def federation(**labels):
    known = ClassList.union(labels.values())
    return [
        Dataset(
            np.ones((len(own), 1)),
            known.codes(own, client=name, where=str),
            known.names,
            name,
        )
        for name, own in labels.items()
    ]


def test_clients_without_a_common_class_are_named():
    assert label_remarks(federation(a=["benign", "malignant"], b=["1", "0"])) == (
        "remark: 2 groups of clients have few or no classes in common: a with benign, malignant; b"
        " with 0, 1; check that labels are spelled the same",
    )


def test_groups_that_agree_among_themselves_are_found():
    words, digits = ["no", "yes"], ["0", "1"]
    (remark,) = label_remarks(federation(a=words, b=digits, c=words, d=digits[:1]))
    assert "2 groups" in remark
    assert ": a, c with no, yes; b, d with 0, 1;" in remark


def test_one_class_in_common_of_three_is_few():
    (remark,) = label_remarks(federation(a=["0", "1", "unknown"], b=["no", "yes", "unknown"]))
    assert "2 groups of clients have few or no classes in common" in remark


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("Cat", "cat"),
        ("cat", "c-at"),
        ("not spam", "not_spam"),
        ("07", "7"),
        ("caf\u00e9", "cafe\u0301"),
    ],
)
def test_a_class_that_one_client_spells_otherwise_is_named(a, b):
    clients = federation(north=[a, "x", "y"], south=[b, "x", "y"], west=[b, "x", "y"])
    (remark,) = label_remarks(clients)
    assert f'"{a}" at north' in remark
    assert f'"{b}" at south, west' in remark
    assert remark.endswith("spell them the same if one is meant")


@pytest.mark.parametrize(("a", "b"), [("-1", "+1"), ("1.5", "15"), ("0", "00a"), ("+", "-")])
def test_other_numbers_and_signs_are_other_classes(a, b):
    assert label_remarks(federation(n=[a, b, "x"], s=[a, b, "x"])) == ()


@given(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=9), st.integers(2, 5))
def test_clients_with_the_same_classes_need_no_remark(labels, count):
    if len(set(labels)) < 2:
        labels = [*labels, "g"]
    assert label_remarks(federation(**{f"c{i}": labels for i in range(count)})) == ()


def test_usual_partitions_of_experiments_need_no_remark():
    y = np.repeat(np.arange(10), 200)
    whole = Dataset(np.ones((len(y), 1)), y, tuple("abcdefghij"), "all")
    rng = np.random.default_rng(0)
    for parts in (dirichlet(y, 10, 0.5, rng), pathological(y, 20, 5, rng)):
        assert label_remarks([whole.select(p, f"c{i}") for i, p in enumerate(parts)]) == ()


def test_many_groups_are_cut_and_one_client_is_none():
    clients = federation(**{f"c{i}": [f"{i}a", f"{i}b"] for i in range(9)})
    (remark,) = label_remarks(clients)
    assert "; and 4 more; check" in remark
    assert label_remarks(clients[:1]) == ()
