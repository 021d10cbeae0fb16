"""Machines of noisy sums: sensitivity, noise, books, and the rule that they decide by."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp import Budget, BudgetError, Gaussian, Ledger, Record, compose
from kahm.measures import MEASURES
from secure_fl.errors import InputError
from secure_fl.federation import Federation, PrivacyError, SecureAggregation
from secure_fl.federation.steps import find_promise, step_name
from secure_fl.trainers.linear import discriminant_machines, kahm_record_private
from secure_fl.trainers.linear._noisy_moments import SENSITIVITY, packed
from secure_fl.trainers.linear._record_noise import GRID, SumNoise, event
from secure_fl.trainers.linear.kahm_record_private import (
    MOMENT_SHARE,
    REFINEMENTS,
    RESIDUAL_CLIP,
    Residuals,
    local_noisy_residuals,
    residual_sum,
)
from tests.secure_fl.trainers.linear.test_private_ridge import C, D, clients, exact_moments

numbers = st.floats(-3, 3)
vectors = st.lists(numbers, min_size=3, max_size=3).map(np.array)
matrices = st.lists(vectors, min_size=3, max_size=3).map(np.array)


def released(members, ledger, epsilon=5.0, **options):
    options = {"aggregation": SecureAggregation(), **options}
    with Federation(members, **options) as fed:
        (state,) = kahm_record_private(
            fed, features=D, outputs=C, norm=1.0, epsilon=epsilon, ledger=ledger
        )
    return state


@given(
    records=st.tuples(vectors, vectors),
    labels=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    weights=matrices,
    whitening=matrices,
)
@settings(max_examples=300)
def test_no_replaced_record_changes_a_sum_of_residuals_by_more_than_twice_the_clip(
    records, labels, weights, whitening
):
    first, second = (
        residual_sum(record[None], np.array([label]), 50 * weights, whitening)
        for record, label in zip(records, labels, strict=True)
    )
    assert np.linalg.norm(first) <= RESIDUAL_CLIP * (1 + 1e-12)
    assert np.linalg.norm(first - second) <= 2 * RESIDUAL_CLIP * (1 + 1e-12)


def test_opposite_directions_that_are_both_confidently_wrong_attain_it():
    weights = np.array([[0.0, 0.0, 0.0], [0.0, 900.0, 0.0]])
    first, second = (
        residual_sum(np.array([[side, 0.8]]), np.array([2]), weights, np.diag([1.0, 0.0]))
        for side in (0.6, -0.6)
    )
    assert np.linalg.norm(first - second) == pytest.approx(2 * RESIDUAL_CLIP, rel=1e-12)


def test_a_record_of_zeros_adds_nothing():
    assert not residual_sum(np.zeros((1, 2)), np.array([0]), np.eye(2), np.eye(2)).any()


@pytest.mark.parametrize("scale", [1e-320, 1.5e-162, 1e-160, 1e200, 1e308, np.inf, np.nan])
@pytest.mark.parametrize("what", ["weights", "whitening"])
def test_a_server_gets_no_more_of_a_record_by_numbers_that_over_or_underflow(what, scale):
    rows = np.random.default_rng(0).standard_normal((6, 40))
    matrices = {"weights": np.ones((40, 2)), "whitening": np.eye(40)}
    matrices[what] = np.where(matrices[what] > 0, scale, 0.0)
    for row in rows:
        found = residual_sum(row[None], np.array([1]), **matrices)
        assert np.linalg.norm(found) <= RESIDUAL_CLIP * (1 + 1e-12)


def test_a_sum_of_residuals_carries_the_noise_that_was_sized():
    members = clients(each=30)
    with Federation(members, aggregation=SecureAggregation(), threshold=5) as fed:
        noise = SumNoise.sized(fed, 2.0, D * C, 3.0)
        ask = Residuals(1.0, np.zeros((D, C)), np.eye(D), noise.sigma)
        _, _, X, y = exact_moments(members)
        exact = residual_sum(X, y, ask.weights, ask.whitening).ravel()
        sums = np.concatenate([fed.sum(local_noisy_residuals, ask) for _ in range(40)])
    found = sums - np.tile(exact, 40)
    # 960 draws of six parts that were sized for five tell the deviation to 2.3 %.
    assert found.std() == pytest.approx(6.0 * np.sqrt(6 / 5), rel=0.1)
    assert abs(found.mean()) < 5 * found.std() / np.sqrt(len(found))
    assert np.array_equal(sums / GRID, np.rint(sums / GRID))  # nothing finer leaves a client
    assert noise.multiplier == pytest.approx(3.0, rel=1e-4)


def test_the_moments_carry_the_noise_of_their_share(tmp_path):
    members = clients(each=20, far=1.5)
    ledger = Ledger.create(tmp_path / "books", "trial")
    states = [released(members, ledger, 2.0, threshold=6) for _ in range(3)]
    gram, cross, *_ = exact_moments(members)
    noise = np.concatenate(
        [np.append(packed(each.gram - gram), each.cross - cross) for each in states]
    )
    whole = ledger.events[0].gaussian.noise_multiplier
    expected = whole / np.sqrt(MOMENT_SHARE) * SENSITIVITY
    assert noise.std() == pytest.approx(expected, rel=0.2)
    assert states[0].deviation == pytest.approx(expected, rel=1e-3)
    assert not np.array_equal(states[0].gram, states[1].gram)
    assert np.array_equal(states[0].gram, states[0].gram.T)


def test_the_books_say_the_asked_epsilon_of_all_sums_and_refuse_a_second_release(tmp_path):
    ledger = Ledger.create(tmp_path / "books", "trial", Budget(2.0, 1e-5, Record(1.0)))
    members = clients(each=50)
    state = released(members, ledger, epsilon=2.0)
    spent = ledger.get_epsilon(1e-5, Record(1.0))
    assert 1.99 < spent.epsilon <= 2.0
    assert ledger.holds(state.event)
    with pytest.raises(BudgetError):
        released(members, ledger, epsilon=2.0)
    assert len(ledger.events) == 1


def test_one_event_costs_what_its_sums_cost_one_by_one(tmp_path):
    ledger = Ledger.create(tmp_path / "books", "trial")
    ledger.spend(event("three sums", 1.0, 2.0, 3.0, 3.0))
    apart = compose([], [Gaussian(each) for each in (2.0, 3.0, 3.0)], 1e-5)
    assert ledger.get_epsilon(1e-5, Record(1.0)).epsilon == pytest.approx(apart.epsilon, rel=1e-9)


def test_clients_that_book_for_themselves_book_what_the_server_books(tmp_path):
    ledger = Ledger.create(tmp_path / "books", "trial")
    members = clients(each=30)
    asked = []
    with Federation(members, aggregation=SecureAggregation(), threshold=5) as fed:
        honest = fed.sum

        def watched(step, *broadcast):
            promise = find_promise(step_name(step))
            asked.append(promise(members[0], 4, len(members), *broadcast))
            return honest(step, *broadcast)

        fed.sum = watched
        options = {"features": D, "outputs": C, "norm": 1.0, "epsilon": 2.0, "colluding": 1}
        next(kahm_record_private(fed, **options, ledger=ledger))
    (booked,) = ledger.events
    together = sum(each.event.gaussian.noise_multiplier**-2 for each in asked)
    assert len(asked) == 1 + REFINEMENTS
    assert together == pytest.approx(booked.gaussian.noise_multiplier**-2, rel=1e-9)
    assert {each.event.adjacency for each in asked} == {booked.adjacency}


def test_what_is_refused_spends_nothing(tmp_path):
    ledger = Ledger.create(tmp_path / "books", "trial")
    with pytest.raises(PrivacyError, match="SecureAggregation"):
        released(clients(each=5), ledger, aggregation=None)
    with Federation(clients(each=5), aggregation=SecureAggregation(), threshold=4) as fed:
        for changed, error in (({"colluding": 4}, PrivacyError), ({"norm": 0.0}, InputError)):
            with pytest.raises(error):
                next(
                    kahm_record_private(
                        fed,
                        **{
                            **{"features": D, "outputs": C, "norm": 1.0, "epsilon": 1.0},
                            **{"ledger": ledger, **changed},
                        },
                    )
                )
    assert not ledger.events


def test_machines_of_many_records_are_as_good_as_a_head_without_noise(tmp_path):
    members = clients(each=4000)
    state = released(members, Ledger.create(tmp_path / "books", "trial"), epsilon=3.0)
    gram, cross, X, y = exact_moments(members)
    free = np.mean((X @ np.linalg.solve(gram, cross)).argmax(axis=1) == y)
    bank = discriminant_machines(state.weights, 1.0, np.random.default_rng(0))
    assert np.mean(bank.measures(X[:4000]).argmin(axis=1) == y[:4000]) > free - 0.02


# --------------------------------------------------------------------------------------- machines


@pytest.mark.parametrize("measure", MEASURES)
@given(seed=st.integers(0, 2**32), classes=st.integers(2, 6), norm=st.floats(0.1, 3))
@settings(max_examples=20)
def test_machines_on_their_points_decide_as_the_linear_rule_does(measure, seed, classes, norm):
    rng = np.random.default_rng(seed)
    weights = rng.standard_normal((7, classes))
    queries = norm * rng.standard_normal((50, 7)) / np.sqrt(7)
    bank = discriminant_machines(weights, norm, rng, batch=1, spread=0.0)
    scores = np.sort(queries @ weights, axis=1)
    # float32 measures cannot tell closer scores apart.
    clear = scores[:, -1] - scores[:, -2] > 1e-2 * norm
    found = bank.measures(queries, measure).argmin(axis=1)
    assert np.array_equal(found[clear], (queries @ weights).argmax(axis=1)[clear])


def test_points_are_as_long_as_asked_and_differ_as_the_discriminants_do():
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((9, 4))
    bank = discriminant_machines(weights, 2.5, rng, batch=1, spread=0.0)
    points = np.concatenate(bank.batches())
    assert np.linalg.norm(points, axis=1) == pytest.approx(2.5, rel=1e-6)
    ratio = (points[1:] - points[0]) / (weights[:, 1:] - weights[:, :1]).T
    assert ratio == pytest.approx(ratio[0, 0], rel=1e-4)


def test_a_batch_lies_around_its_point():
    rng = np.random.default_rng(1)
    bank = discriminant_machines(rng.standard_normal((200, 3)), 1.0, rng, batch=50, spread=0.1)
    for batch in bank.batches():
        away = np.linalg.norm(batch - batch.mean(axis=0), axis=1)
        assert np.sqrt(np.mean(away**2)) == pytest.approx(0.1, rel=0.05)


def test_more_classes_than_corners_are_refused():
    with pytest.raises(InputError, match="4 classes and 2 features, at most 3 classes"):
        discriminant_machines(np.eye(2, 4), 1.0, np.random.default_rng(0))


def test_more_classes_than_corners_are_refused_before_anything_is_booked(tmp_path):
    """Both numbers are public, so the budget must not pay for finding out."""
    ledger = Ledger.create(tmp_path / "books", "trial")
    with (
        Federation(clients(), aggregation=SecureAggregation()) as fed,
        pytest.raises(InputError, match="5 classes and 3 features"),
    ):
        next(kahm_record_private(fed, features=3, outputs=5, norm=1.0, epsilon=3.0, ledger=ledger))
    assert ledger.events == ()


@pytest.mark.parametrize(
    "weights",
    [np.ones((5, 3)), np.zeros((5, 3)), np.array([[1.0, 1.0, 0.0]] * 3), np.full((4, 3), np.nan)],
)
def test_discriminants_that_noise_left_no_corners_still_give_finite_machines(weights):
    """What was released is spent: it is mended, not thrown away."""
    bank = discriminant_machines(weights, 1.5, np.random.default_rng(0), batch=1, spread=0.0)
    points = np.concatenate(bank.batches())
    assert np.isfinite(points).all()
    assert np.linalg.norm(points, axis=1) == pytest.approx(1.5, rel=1e-5)
