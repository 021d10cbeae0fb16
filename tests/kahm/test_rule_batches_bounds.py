"""The global rule, the batches and the bounds against hand-made and independent values."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kahm import InputError, batch_count, bounds, classify, feature_map, global_measure, split

RNG = np.random.default_rng(0)


def test_the_class_is_that_of_the_smallest_measure_of_all():
    values = RNG.uniform(size=(50, 4, 3))
    flat = values.reshape(50, -1).argmin(axis=1)
    np.testing.assert_array_equal(classify(values), flat % 3)


def test_every_tied_class_is_marked_and_the_lowest_wins():
    """Eq. (106): Phi* is 1 for every class that attains the minimum."""
    values = np.array([[[5, 2, 2], [9, 3, 2]]])
    np.testing.assert_array_equal(feature_map(values), [[False, True, True]])
    np.testing.assert_array_equal(classify(values), [1])


@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(2, 6))
def test_a_client_may_reduce_over_its_classes_first(seed, clients, classes):
    """min is associative: packing code and class, then the smallest over clients, is the rule."""
    codes = np.random.default_rng(seed).integers(0, 4, (20, clients, classes))
    packed = (codes * classes + np.arange(classes)).min(axis=2).min(axis=1)
    np.testing.assert_array_equal(packed % classes, classify(codes))


def test_the_global_measure_is_the_smallest_over_clients():
    values = RNG.uniform(size=(3, 4, 2))
    np.testing.assert_array_equal(global_measure(values)[1, 0], min(values[1, :, 0]))


@pytest.mark.parametrize(
    ("n", "size", "expected"),
    [(1, 100, 1), (149, 100, 1), (150, 100, 2), (250, 100, 3), (49, 20, 2)],
)
def test_the_number_of_batches_rounds_half_up_and_is_at_least_one(n, size, expected):
    assert batch_count(n, size) == expected


@pytest.mark.parametrize("how", ["order", "clusters"])
@given(n=st.integers(1, 120), size=st.integers(1, 40))
def test_batches_hold_every_record_once(how, n, size):
    X = np.random.default_rng(n).normal(size=(n, 3))
    batches = split(X, size, how, np.random.default_rng(1))
    assert all(len(batch) for batch in batches)
    found = np.concatenate(batches)
    np.testing.assert_array_equal(found[np.lexsort(found.T)], X[np.lexsort(X.T)])


def test_batches_in_order_differ_by_at_most_one_record():
    sizes = {len(b) for b in split(np.zeros((250, 2)), 100, "order", RNG)}
    assert sizes == {83, 84}


def test_clusters_separate_what_is_apart():
    X = np.concatenate([RNG.normal(0, 0.1, (20, 2)), RNG.normal(9, 0.1, (20, 2))])
    batches = split(X[RNG.permutation(40)], 20, "clusters", np.random.default_rng(0))
    assert sorted(round(b.mean()) for b in batches) == [0, 9]


@pytest.mark.parametrize(("size", "how"), [(0, "order"), (10, "alphabet")])
def test_a_bad_batching_is_refused(size, how):
    with pytest.raises(InputError):
        split(np.ones((5, 2)), size, how, RNG)


def test_bounds_are_the_papers_formulas():
    """Theorems 3, 5, 6, 7 and proposition 2, written out once more."""
    n, n_c, delta = 40_000, 10_000, 0.05
    operator = (3 / 200 + math.sqrt(8 * math.log(20) / n)) / 0.25**2
    empirical = 4 / 200 + math.sqrt(math.log(20) / (2 * n))
    assert bounds.operator_term(n, n_c / n, delta) == pytest.approx(operator)
    assert bounds.prediction_error(n, 0.25, delta, disturbance=0.1) == pytest.approx(0.1 + operator)
    assert bounds.rademacher_complexity(n) == pytest.approx(1 / 200)
    assert bounds.hypothesis_prediction_error(
        n, n_c, delta, empirical_error=0.02, disturbance=0.1
    ) == pytest.approx(min(0.02 + empirical, 0.1 + operator))
    assert bounds.hypothesis_approximation_error(n, n_c, delta) == pytest.approx(
        min(empirical, operator)
    )


def test_a_class_without_records_leaves_the_empirical_bound():
    assert math.isinf(bounds.operator_term(100, 0.0, 0.1))
    assert math.isfinite(bounds.hypothesis_approximation_error(100, 0, 0.1))


@given(n=st.integers(1, 10**6), delta=st.floats(1e-6, 0.999))
def test_more_records_never_loosen_a_bound(n, delta):
    assert bounds.operator_term(n + 1, 0.5, delta) <= bounds.operator_term(n, 0.5, delta)


def test_few_records_make_the_bound_vacuous():
    assert bounds.is_vacuous(bounds.operator_term(100, 0.1, 0.05))
    assert not bounds.is_vacuous(bounds.hypothesis_approximation_error(10_000, 500, 0.05))


@pytest.mark.parametrize("delta", [0.0, 1.0, -1.0])
def test_a_bad_delta_is_refused(delta):
    with pytest.raises(InputError, match="delta"):
        bounds.operator_term(10, 0.5, delta)
