import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks._fedrco_compared import COLUMNS, TABLE, add_case, gained, gained_globally
from benchmarks._fedrco_curves import Curve, averaged
from benchmarks._fedrco_search import FACTOR, MOST, Search, climbed
from benchmarks._harness import Table, paired


@given(st.floats(-6.0, 6.0))
def test_a_search_ends_between_two_worse_rates_or_after_the_most_trials(peak):
    """With one peak in the logarithm of the rate, climbing to it cannot miss it."""
    scores = climbed(lambda rate: -abs(_steps(rate) - peak), 1.0)
    search = Search(scores, 0.0)
    if abs(peak) <= MOST - 3:
        assert search.inside
        assert abs(_steps(search.best) - peak) <= 0.5
    if not search.inside:
        assert len(scores) == MOST


def _steps(rate):
    steps = 0
    while rate > 1:
        rate, steps = rate / FACTOR, steps + 1
    while rate < 1:
        rate, steps = rate * FACTOR, steps - 1
    return steps


def test_of_equal_scores_the_smallest_rate_is_best():
    assert Search({0.1: 50.0, 0.2: 60.0, 0.4: 60.0}, 1.0).best == 0.2
    assert not Search({0.1: 60.0, 0.2: 50.0}, 1.0).inside


def test_curves_are_averaged_as_far_as_all_went():
    one = Curve([10.0, 20.0], [1.0, 2.0], {1: (1.0, 2.0, 3.0), 2: (4.0, 5.0, 6.0)}, (2, 1, 4), 8.0)
    two = Curve([30.0], [3.0], {1: (3.0, 4.0, 5.0)}, (0, 0, 4), 4.0)
    assert averaged([one, two]) == Curve([20.0], [2.0], {1: (2.0, 3.0, 4.0)}, (1, 0.5, 4), 6.0)
    assert averaged([one, Curve([], [], {}, (0, 0, 0), 0.0)]).shared == []
    assert averaged([one]) == one


def test_the_round_that_reaches_an_accuracy_is_the_first_one():
    curve = Curve([50.0, 82.0, 79.0, 91.0], [1.0] * 4, {}, (0, 0, 0), 0.0, (1.0, 2.0, 3.0))
    assert [curve.reached(each) for each in (70, 80, 90, 95)] == [2, 2, 4, None]
    assert averaged([curve, curve]).tuned == (1.0, 2.0, 3.0)


def test_a_paired_test_needs_two_different_differences():
    """Differences 1 and 3: mean 2, standard error 1, so t = 2 with one degree of freedom."""
    t, p = paired([1.0, 3.0])
    assert t == pytest.approx(2.0)
    # Student's distribution with one degree of freedom is Cauchy's: p = 1 - 2 atan(2) / pi.
    assert p == pytest.approx(0.2951672, abs=1e-6)
    assert paired([1.0]) == paired([2.0, 2.0]) == (None, None)


def curves(own, *, globally=50.0, tuned=None, rounds=5):
    """A run a seed, with accuracies of own models on their mixes."""
    return [
        Curve(
            [globally] * rounds,
            [1.0] * rounds,
            {rounds: (0.0, each, globally)},
            (0, 0, 0),
            0.0,
            None if tuned is None else (0.0, tuned, 0.0),
        )
        for each in own
    ]


def test_a_gain_of_several_seeds_is_one_by_the_paired_test():
    """Differences 1 and 3 have p = 0.295; 1, 2 and 3 have t = sqrt(12), p = 0.074; no others."""
    assert gained([2.0], [1.0]).better
    assert not gained([1.0], [1.0]).better
    assert not gained([2.0, 4.0], [1.0, 1.0]).better
    few = gained([2.0, 3.0, 4.0], [1.0, 1.0, 1.0])
    assert (few.better, few.p) == (False, pytest.approx(0.0741799))
    sure = gained([2.0, 2.1, 1.9, 2.0], [1.0] * 4)
    assert (sure.better, sure.seeds, sure.mean) == (True, 4, pytest.approx(1.0))
    assert not gained([1.0] * 4, [2.0, 2.1, 1.9, 2.0]).better


def test_own_models_are_compared_on_the_own_mixes():
    cases = Table(TABLE, COLUMNS, [])
    ours = curves([98.0, 97.0], rounds=10)
    theirs = curves([90.0, 91.0], globally=96.0, tuned=97.5)
    add_case(cases, "1", "here", ours, "FedAvg", theirs)
    add_case(cases, "2", "here", ours, "FedAvg, tuned", theirs)
    add_case(cases, "3", "here", ours, "local only", theirs)
    add_case(cases, "4", "here", ours, "FedAvg, tuned", curves([90.0, 91.0]))
    assert [(row[0], row[2], row[3], row[4], row[5]) for row in cases.rows] == [
        ("1", 5, 2, 97.5, 96.0),
        ("2", 5, 2, 97.5, 97.5),
        ("3", 5, 2, 97.5, 90.5),
    ]


def test_global_models_are_compared_at_the_last_round_of_all():
    long, short = curves([0.0], globally=80.0, rounds=7), curves([0.0], globally=75.0)
    found = gained_globally(long, short)
    assert found is not None
    assert (found.seeds, found.mean) == (1, 5.0)
    assert gained_globally(long, curves([0.0], rounds=0)) is None
