"""The bank against the reference machine, on ragged batches and in both stored types."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kahm import KAHM, MEASURES, REGULARISATIONS, Bank, InputError
from kahm import bank as bank_module
from kahm.batches import split_by_order
from kahm.measures import combine
from kahm.stack import by_count


def ragged(rng: np.random.Generator, sizes: list[int], d: int) -> list[np.ndarray]:
    return [rng.normal(rng.normal(0, 3, d), 1, (n, d)) for n in sizes]


def reference(batches, points, measure="folding"):
    return np.stack([KAHM.fit(batch).measure(points, measure) for batch in batches], axis=1)


@given(
    seed=st.integers(0, 2**32 - 1),
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=8),
    d=st.integers(1, 40),
    measure=st.sampled_from(MEASURES),
)
def test_the_bank_agrees_with_the_reference_to_nine_digits(seed, sizes, d, measure):
    rng = np.random.default_rng(seed)
    batches = ragged(rng, sizes, d)
    points = np.concatenate([rng.normal(0, 4, (10, d)), *[batch[:1] for batch in batches]])
    bank = Bank.fit(batches, range(len(batches)), len(batches), dtype=np.float64)
    found = bank.measures(points, measure)
    np.testing.assert_allclose(found, reference(batches, points, measure), rtol=0, atol=1e-9)


@pytest.mark.parametrize("measure", MEASURES)
def test_a_single_precision_bank_agrees_to_five_digits(measure):
    rng = np.random.default_rng(0)
    batches = [b.astype(np.float32) for b in ragged(rng, [1, 1, 2, 3, 7, 7, 50, 100], 64)]
    points = np.concatenate([rng.normal(0, 4, (50, 64)), *batches]).astype(np.float32)
    bank = Bank.fit(batches, range(8), 8)
    np.testing.assert_allclose(
        bank.measures(points, measure), reference(batches, points, measure), rtol=0, atol=1e-5
    )


@pytest.fixture(params=["libraries", "machine code"])
def many(request, monkeypatch):
    """Both ways of a bank, whatever its size."""
    limit = 2**60 if request.param == "libraries" else 0
    monkeypatch.setattr(bank_module, "_LEAST_PRODUCTS", limit)


@pytest.mark.parametrize("offset", [0.0, 50.0], ids=["about 0", "about an offset"])
@pytest.mark.parametrize(("dtype", "digits"), [(np.float32, 1e-5), (np.float64, 1e-9)])
def test_both_ways_agree_with_the_reference(many, dtype, digits, offset):
    rng = np.random.default_rng(1)
    batches = [rng.normal(offset, 1, (n, 9)).astype(dtype) for n in (1, 1, 2, 3, 7, 7, 20, 60)]
    far = [np.full((1, 9), value) for value in (0.0, 1e-9, -30.0, 300.0)]
    points = np.concatenate([rng.normal(offset, 1, (300, 9)), *far, *batches]).astype(dtype)
    bank = Bank.fit(batches, range(8), 8, dtype=dtype)
    for measure in MEASURES:
        expected = reference(batches, points, measure)
        np.testing.assert_allclose(bank.measures(points, measure), expected, rtol=0, atol=digits)


@pytest.mark.parametrize(
    ("size", "seed", "asked"), [(20, 1, [220, 464]), (20, 3, [1764]), (100, 3, [335, 1559])]
)
def test_single_precision_holds_where_memberships_cancel(many, size, seed, asked):
    """Memberships of both signs whose sum is a 2e-7th of them put the image 80,000 units away; it
    is the angle to it that has no digits left. With 100 records longer sums lose more.
    """
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(0).normal(size=(7, 9))

    def drawn(n):
        y = rng.integers(0, 7, n)
        X = (centres[y] + 0.5 * rng.normal(size=(n, 9))) / 4
        return np.clip(X, -1, 1).astype(np.float32), y

    X, y = drawn(8700)
    rng = np.random.default_rng(seed + 1)
    queries, _ = drawn(2048)
    batches = [batch for c in range(7) for batch in split_by_order(X[y == c], size)]
    points = queries[asked]
    found = Bank.fit(batches, range(len(batches)), len(batches)).measures(points)
    np.testing.assert_allclose(found, reference(batches, points), rtol=0, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_query_that_is_a_record_folds_by_nothing_on_its_own(dtype):
    """|x|^2 - 2 g + |A|^2 cancels there; the bank must go back to the records."""
    record = np.full((1, 50), 20.0)
    bank = Bank.fit([record], [0], 1, dtype=dtype)
    assert bank.measures(record)[0, 0] == 0.0


def test_distrusted_pairs_are_all_computed_again_and_no_others():
    """Machines are taken together by how many pairs they have; one's pairs stay together."""
    rng = np.random.default_rng(3)
    marked = rng.random((40, 60)) < rng.choice([0.0, 0.02, 0.3, 1.0], (40, 1))
    for most in (1, 100, 10**6):
        found, seen = np.zeros_like(marked), []
        for machines, queries in by_count(marked, most):
            assert queries.size <= max(most, queries.shape[1])
            assert queries.size <= 2 * marked[machines].sum()
            found[machines[:, None], queries] = True
            seen += machines.tolist()
        np.testing.assert_array_equal(found, marked)
        assert sorted(seen) == np.flatnonzero(marked.any(axis=1)).tolist()


def test_a_query_at_zero_and_far_away_is_finite():
    rng = np.random.default_rng(1)
    bank = Bank.fit(ragged(rng, [1, 5, 30], 4), [0, 1, 2], 3, dtype=np.float64)
    values = bank.measures(np.array([[0.0] * 4, [1e6] * 4, [-1e6] * 4]))
    assert np.isfinite(values).all()
    assert np.all((values >= 0) & (values <= 1))


def test_records_that_do_not_spread_fold_onto_their_mean():
    batch = np.full((7, 3), 2.5)
    bank = Bank.fit([batch, np.eye(3)], [0, 1], 2, dtype=np.float64)
    points = np.random.default_rng(2).normal(size=(5, 3))
    np.testing.assert_allclose(bank.measures(points)[:, 0], KAHM.fit(batch).measure(points))


def test_a_cell_without_a_machine_measures_one():
    """Eq. (123)."""
    bank = Bank.fit([np.eye(3)], [2], 4)
    values = bank.measures(np.zeros((2, 3)))
    np.testing.assert_array_equal(values[:, [0, 1, 3]], 1.0)
    assert np.all(values[:, 2] < 1)


def test_a_cell_takes_the_smallest_of_its_machines():
    """Eq. (121)."""
    rng = np.random.default_rng(3)
    batches = ragged(rng, [3, 9, 4, 1], 5)
    points = rng.normal(size=(20, 5))
    bank = Bank.fit(batches, [1, 0, 1, 1], 2, dtype=np.float64)
    separate = reference(batches, points)
    np.testing.assert_allclose(bank.measures(points)[:, 1], separate[:, [0, 2, 3]].min(axis=1))


def test_queries_are_independent_of_the_chunk_they_fall_in():
    rng = np.random.default_rng(4)
    bank = Bank.fit(ragged(rng, [5, 6, 30], 8), [0, 1, 2], 3, dtype=np.float64)
    points = rng.normal(size=(1500, 8))
    np.testing.assert_allclose(bank.measures(points)[700:701], bank.measures(points[700:701]))


def test_no_query_gives_no_row():
    bank = Bank.fit([np.eye(3)], [0], 2)
    assert bank.measures(np.empty((0, 3))).shape == (0, 2)


def test_merged_and_selected_banks_are_the_bank_fitted_at_once():
    rng = np.random.default_rng(5)
    batches = ragged(rng, [3, 1, 8, 3, 8, 2], 6)
    points = rng.normal(size=(10, 6))
    whole = Bank.fit(batches, range(6), 6, dtype=np.float64)
    parts = [
        Bank.fit(batches[:2], [0, 1], 6, dtype=np.float64),
        Bank.fit(batches[2:], [2, 3, 4, 5], 6, dtype=np.float64),
    ]
    np.testing.assert_array_equal(Bank.merge(parts).measures(points), whole.measures(points))
    chosen = whole.select(np.flatnonzero(np.isin(whole.cells, [1, 4])))
    np.testing.assert_array_equal(
        chosen.measures(points)[:, [1, 4]], whole.measures(points)[:, [1, 4]]
    )


@pytest.mark.parametrize(
    ("batches", "cells", "message"),
    [
        ([], [], "none given"),
        ([np.ones((0, 2))], [0], "batch 0: 0 records"),
        ([np.ones((1, 2)), np.ones((1, 3))], [0, 0], "batch 1: 3 features, expected 2"),
        ([np.array([[np.nan, 1.0]])], [0], "batch 0: row 0 holds NaN"),
        ([np.ones((1, 2))], [1], "expected 0..0"),
        ([np.ones((1, 2))], [0, 0], "2 given for 1 batches"),
    ],
)
def test_bad_batches_are_refused_with_their_number(batches, cells, message):
    with pytest.raises(InputError, match=message):
        Bank.fit(batches, cells, 1)


def test_a_query_of_another_dimension_is_refused():
    with pytest.raises(InputError, match="queries: 2 features, expected 3"):
        Bank.fit([np.eye(3)], [0], 1).measures(np.ones((1, 2)))


def test_an_unknown_measure_is_refused_with_the_known_ones():
    with pytest.raises(InputError, match="'manhattan' is unknown, expected one of folding"):
        Bank.fit([np.eye(3)], [0], 1).measures(np.ones((1, 3)), "manhattan")


@settings(max_examples=30)
@given(
    seed=st.integers(0, 2**32 - 1),
    sizes=st.lists(st.integers(1, 20), min_size=1, max_size=4),
    d=st.integers(1, 10),
    factor=st.floats(0.1, 100),
)
def test_folds_by_a_relative_lambda_scale_with_the_data(seed, sizes, d, factor):
    """Everything else in a machine is free of units: A of c X at c x is c A(x), so angles stay."""
    rng = np.random.default_rng(seed)
    batches = ragged(rng, sizes, d)
    points = rng.normal(0, 4, (10, d))
    cells = range(len(batches))
    plain, scaled = (
        Bank.fit(
            [c * batch for batch in batches],
            cells,
            len(batches),
            dtype=np.float64,
            regularisation="relative",
        ).measures(c * points, "cosine")
        for c in (1.0, factor)
    )
    np.testing.assert_allclose(scaled, plain, rtol=0, atol=1e-6)
    reference = [KAHM.fit(batch, "relative").measure(points, "cosine") for batch in batches]
    np.testing.assert_allclose(plain, np.stack(reference, axis=1), rtol=0, atol=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("measure", MEASURES)
def test_a_floor_bounds_machines_of_one_record_and_no_others(measure, dtype):
    """The fixed point of eq. (150) for K = 1 and a record of root mean square 1 is a cubic's."""
    factor, rng = 0.3, np.random.default_rng(2)
    lone, equal = np.array([[0.5, 0.0, 2.0]]), np.full((4, 3), -1.5)
    batches = [lone, equal, rng.normal(size=(9, 3))]
    points = np.concatenate([lone, equal[:1], lone + 1e-3, rng.normal(size=(5, 3))])
    kinds = ("relative", "relative-floor")
    plain, bounded = (
        Bank.fit(batches, range(3), 3, dtype=dtype, regularisation=kind, factor=factor)
        for kind in kinds
    )
    # e (e + 3)^2 = (e + 2)^2
    (e,) = (root.real for root in np.roots([1, 5, 5, -4]) if abs(root.imag) < 1e-9 < root.real)
    lam = factor * (e + 2)
    stored = np.concatenate([lone, equal[:1], batches[2]])
    least = lam / (1 + lam) * np.sqrt(np.mean(np.sum(np.square(stored), axis=1)))
    distances = np.stack([np.linalg.norm(points - each[0], axis=1) for each in (lone, equal)])
    angle = plain.measures(points, "cosine")
    found = bounded.measures(points, measure)
    expected = combine(np.square(np.maximum(distances, least)).T, angle[:, :2], measure)
    np.testing.assert_allclose(found[:, :2], expected, rtol=0, atol=2e-5)
    np.testing.assert_array_equal(found[:, 2], plain.measures(points, measure)[:, 2])
    assert plain.measures(points, "euclidean")[0, 0] == 0
    np.testing.assert_array_equal(Bank.merge([bounded, bounded]).measures(points, measure), found)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("regularisation", REGULARISATIONS)
def test_batches_of_zeros_are_fitted_without_a_warning(regularisation):
    batches = [np.zeros((4, 2)), np.arange(8.0).reshape(4, 2)]
    bank = Bank.fit(batches, [0, 1], 2, regularisation=regularisation)
    assert bank.sizes.tolist() == [1, 4]
    assert np.all(np.isfinite(bank.measures(np.zeros((1, 2)))))


def test_a_floor_has_no_unit():
    rng = np.random.default_rng(3)
    batches, points = ragged(rng, [1, 1, 5], 4), rng.normal(size=(6, 4))
    one, other = (
        Bank.fit([c * each for each in batches], range(3), 3, regularisation="relative-floor")
        for c in (1.0, 37.0)
    )
    np.testing.assert_allclose(other.floors, 37.0**2 * one.floors, rtol=1e-6)
    assert one.floors[0] == one.floors[1] > one.floors[2] == 0
    machine = KAHM.fit(batches[0], "relative-floor")
    alone = Bank.fit(batches[:1], [0], 1, dtype=np.float64, regularisation="relative-floor")
    np.testing.assert_allclose(alone.measures(points)[:, 0], machine.measure(points), atol=1e-9)
    assert machine.measure(batches[0])[0] > 0 == KAHM.fit(batches[0]).measure(batches[0])[0]


def test_an_unknown_regularisation_is_refused():
    with pytest.raises(InputError, match="'some' is unknown, expected one of absolute, rel"):
        Bank.fit([np.ones((2, 1))], [0], 1, regularisation="some")
    with pytest.raises(InputError, match="'some' is unknown, expected one of absolute, rel"):
        KAHM.fit(np.ones((2, 1)), "some")
