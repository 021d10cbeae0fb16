"""Noisy votes: their sum's class, how much noise is in it, and what a query costs."""

import math

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, SelfComposedDpEvent
from dp_accounting.pld import PLDAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

import dp
from secure_fl.errors import InputError, ProtocolError
from secure_fl.masked import MaskedRule, VoteCoding
from secure_fl.masked.votes import STEPS, colluding, majority

CODING = VoteCoding(classes=4, contributors=10, noise=2.0)


def plurality(codes):
    """The rule, one vote after the other."""
    found = []
    for query in codes:
        counts = [0] * query.shape[1]
        for row in query:
            counts[min(range(len(row)), key=lambda c: (row[c], c))] += 1
        found.append(counts.index(max(counts)))
    return found


@given(st.data())
@settings(max_examples=40)
def test_without_much_noise_the_answer_is_the_pluralitys(data):
    clients, classes = data.draw(st.integers(2, 6)), data.draw(st.integers(2, 4))
    size = 3 * clients * classes
    values = data.draw(st.lists(st.integers(0, 3), min_size=size, max_size=size))
    codes = np.array(values).reshape(3, clients, classes)
    # A thousandth of a vote decides ties alone.
    coding = VoteCoding(classes=classes, contributors=clients, noise=1e-3)
    rows = [coding.rows(codes[:, i]) for i in range(clients)]
    found = coding.open(np.add.reduce(rows, dtype=np.uint64))
    assert majority(codes).tolist() == plurality(codes)
    counts = np.stack([np.bincount(v, minlength=classes) for v in codes.argmin(axis=2)])
    np.testing.assert_allclose(found.votes, counts, atol=0.05)
    assert (counts[np.arange(3), found.classes] == counts.max(axis=1)).all()
    assert found.codes.size == 0


@pytest.mark.parametrize("present", [CODING.left, CODING.contributors])
def test_the_noise_that_colluding_contributors_do_not_know_is_at_least_the_stated(present):
    """Those below a third take their own parts off; of the least sum exactly the stated is left."""
    queries, top = 4000, colluding(CODING.contributors)
    codes = np.zeros((queries, 4), np.int64)
    rows = [CODING.rows(codes) for _ in range(present)]
    total = np.add.reduce(rows[top:], dtype=np.uint64)
    noise = CODING.open(total).votes - (present - top) * np.array([1.0, 0, 0, 0])
    spread = np.sum(np.square(noise)) / CODING.noise**2
    expected = (present - top) / (CODING.left - top)
    low, high = chi2.interval(1 - 1e-9, noise.size)
    assert low < spread / expected < high
    assert expected >= 1


def test_a_query_costs_what_an_independent_accountant_says():
    """One client's vote goes from a class to another: sqrt(2) of a vote, and never more."""
    multiplier = CODING.noise / math.sqrt(2)
    assert CODING.multiplier <= multiplier
    assert CODING.multiplier == pytest.approx(multiplier, rel=1e-6)
    votes = np.eye(4, dtype=int)
    moved = max(np.linalg.norm(a - b) for a in votes for b in votes)
    assert moved == pytest.approx(math.sqrt(2))
    for epsilon in (1.0, 8.0):
        most = CODING.answers_within(epsilon, 1e-5)
        cost = {}
        for queries in (max(most, 1), most + 1):
            accountant = PLDAccountant()
            accountant.compose(SelfComposedDpEvent(GaussianDpEvent(CODING.multiplier), queries))
            cost[queries] = accountant.get_epsilon(1e-5)
        assert cost[most + 1] > epsilon * (1 - 1e-3)
        assert most == 0 or cost[most] <= epsilon * (1 + 1e-3)


def test_the_secure_sum_of_all_parties_gives_class_and_votes():
    rule = MaskedRule(contributors=5, classes=3, noise=0.01)
    codes = np.random.default_rng(0).integers(0, 256, (30, 5, 3))
    counts = np.stack([np.bincount(v, minlength=3) for v in codes.argmin(axis=2)])
    # Noise decides ties.
    codes = codes[(counts == counts.max(axis=1, keepdims=True)).sum(axis=1) == 1][:4]
    np.testing.assert_array_equal(rule(codes), majority(codes))
    assert rule.coding.left == rule.threshold


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"noise": 0.0}, "answer noise: found 0 votes"),
        ({"noise": math.nan}, "answer noise: found nan votes"),
        ({"classes": 1}, "1 classes and 10 contributors"),
        ({"contributors": 1}, "4 classes and 1 contributors"),
        ({"threshold": 3}, "quorum: 3 of 10 contributors, of which 3 may tell their noise"),
    ],
)
def test_votes_that_protect_nothing_are_refused(facts, message):
    with pytest.raises(InputError, match=message):
        VoteCoding(**{"classes": 4, "contributors": 10, "noise": 2.0, **facts})


def test_a_ring_is_refused_and_so_is_a_sum_of_another_length():
    """Parts of a sum on a ring may come to light, with parts of its noise."""
    with pytest.raises(InputError, match="all contributors mask with all others"):
        MaskedRule(contributors=9, classes=3, noise=1.0, degree=4)
    with pytest.raises(ProtocolError, match="a sum of 5 words, expected rows of 4"):
        CODING.open(np.zeros(5, np.uint64))
    with pytest.raises(InputError, match=r"codes: shape \(2, 3\)"):
        CODING.rows(np.zeros((2, 3), np.int64))


def test_the_grid_costs_less_than_a_millionth():
    assert CODING.part_sigma == pytest.approx(2.0 * STEPS / math.sqrt(CODING.parts))
    assert dp.compose([], [dp.Gaussian(CODING.multiplier)], 1e-5).epsilon == pytest.approx(
        dp.compose([], [dp.Gaussian(math.sqrt(2))], 1e-5).epsilon, rel=1e-5
    )
