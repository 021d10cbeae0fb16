"""Record-level privacy of the ridge head: sensitivity, noise, books and use."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp import Budget, BudgetError, Ledger, Record
from secure_fl.errors import InputError
from secure_fl.federation import (
    Client,
    Federation,
    PrivacyError,
    QuorumError,
    ScriptedDropOuts,
    SecureAggregation,
    Stage,
)
from secure_fl.trainers.linear import private_ridge
from secure_fl.trainers.linear._noisy_moments import SENSITIVITY, packed, unpacked

D, C = 8, 3


def moments(x, label):
    """The vector that one record adds: its norm is the matrices' together."""
    hot = np.eye(2)[label]
    return np.concatenate([packed(np.outer(x, x)), np.outer(x, hot).ravel()])


vectors = st.lists(st.floats(-1, 1), min_size=3, max_size=3).map(np.array)


@given(first=vectors, second=vectors, labels=st.tuples(st.integers(0, 1), st.integers(0, 1)))
@settings(max_examples=300)
def test_no_replaced_record_changes_the_moments_by_more_than_the_sensitivity(first, second, labels):
    first, second = (x / max(1.0, np.linalg.norm(x)) for x in (first, second))
    change = moments(first, labels[0]) - moments(second, labels[1])
    assert np.linalg.norm(change) <= SENSITIVITY * (1 + 1e-12)


def test_two_records_at_120_degrees_attain_the_sensitivity():
    first, second = np.array([1.0, 0.0]), np.array([-0.5, np.sqrt(0.75)])
    change = moments(first, 0) - moments(second, 0)
    assert np.linalg.norm(change) == pytest.approx(SENSITIVITY, rel=1e-12)


def test_packing_keeps_the_frobenius_norm_and_comes_back():
    rng = np.random.default_rng(0)
    matrix = rng.standard_normal((5, 5))
    matrix = matrix + matrix.T
    vector = packed(matrix)
    assert np.linalg.norm(vector) == pytest.approx(np.linalg.norm(matrix))
    np.testing.assert_allclose(unpacked(vector, 5), matrix, rtol=1e-14)


def clients(count=6, each=800, features=D, seed=0, far=1.0):
    """Records around C random centres; some are longer than the norm 1."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((C, features)) / np.sqrt(features)
    made = []
    for i in range(count):
        y = rng.integers(0, C, each)
        X = centres[y] + 0.3 * rng.standard_normal((each, features)) / np.sqrt(features)
        made.append(Client(f"c{i}", far * X, y))
    return made


def run(members, ledger, epsilon=5.0, features=D, **options):
    options = {"aggregation": SecureAggregation(), **options}
    fed = Federation(members, **options)
    (state,) = fed.rounds(
        private_ridge(fed, features=features, outputs=C, norm=1.0, epsilon=epsilon, ledger=ledger)
    )
    return state


def exact_moments(members):
    X = np.concatenate([c.features for c in members])
    X = X / np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True))
    y = np.concatenate([c.targets for c in members])
    return X.T @ X, X.T @ np.eye(C)[y], X, y


@pytest.mark.parametrize("lost", [0, 2])
def test_the_sum_carries_at_least_the_noise_that_was_booked(tmp_path, lost):
    """The parts are sized for the fewest survivors; 3,080 draws tell the deviation to 4 %."""
    features, epsilon = 40, 2.0
    members = clients(features=features, each=20, far=1.5)
    ledger = Ledger.create(tmp_path / "books", "trial")
    drop = ScriptedDropOuts({f"c{i}": Stage.MASK for i in range(lost)})
    state = run(members, ledger, epsilon, features, threshold=4, drop_outs=drop)
    gram, cross, *_ = exact_moments(members[lost:])
    noise = np.concatenate([packed(state.gram - gram), (state.cross - cross).ravel()])
    (event,) = ledger.events
    least = event.gaussian.noise_multiplier * SENSITIVITY
    expected = least * np.sqrt((6 - lost) / 4)
    assert noise.std() == pytest.approx(expected, rel=0.1)
    assert abs(noise.mean()) < 5 * expected / np.sqrt(len(noise))


def test_the_books_say_the_asked_epsilon_per_record_and_refuse_a_second_release(tmp_path):
    ledger = Ledger.create(tmp_path / "books", "trial", Budget(2.0, 1e-5, Record(1.0)))
    members = clients()
    run(members, ledger, epsilon=2.0)
    spent = ledger.get_epsilon(1e-5, Record(1.0))
    assert 1.99 < spent.epsilon <= 2.0
    with pytest.raises(BudgetError):
        run(members, ledger, epsilon=2.0)
    assert len(ledger.events) == 1


def test_a_head_of_many_records_is_as_good_as_without_noise(tmp_path):
    members = clients(each=4000)
    state = run(members, Ledger.create(tmp_path / "books", "trial"), epsilon=3.0)
    *_, X, y = exact_moments(clients(seed=0, each=4000))
    gram, cross, *_ = exact_moments(members)
    free = np.linalg.solve(gram, cross)
    private, clear = (np.mean((X @ w).argmax(axis=1) == y) for w in (state.weights, free))
    assert private > clear - 0.02


def test_every_call_draws_fresh_noise(tmp_path):
    members = clients(each=10)
    ledger = Ledger.create(tmp_path / "books", "trial")
    first, second = run(members, ledger), run(members, ledger)
    assert not np.array_equal(first.gram, second.gram)


def test_a_server_that_sees_single_updates_is_refused_before_anything_is_spent(tmp_path):
    ledger = Ledger.create(tmp_path / "books", "trial")
    with pytest.raises(PrivacyError, match="SecureAggregation"):
        run(clients(), ledger, aggregation=None)
    fed = Federation(clients(), aggregation=SecureAggregation(), threshold=4)
    with pytest.raises(PrivacyError, match="colluding"):
        next(
            private_ridge(
                fed, features=D, outputs=C, norm=1.0, epsilon=1.0, ledger=ledger, colluding=4
            )
        )
    with pytest.raises(InputError, match="norm"):
        next(private_ridge(fed, features=D, outputs=C, norm=0.0, epsilon=1.0, ledger=ledger))
    assert not ledger.events


def test_too_few_survivors_reveal_nothing_and_stay_booked(tmp_path):
    ledger = Ledger.create(tmp_path / "books", "trial")
    drop = ScriptedDropOuts({f"c{i}": Stage.MASK for i in range(3)})
    with pytest.raises(QuorumError):
        run(clients(), ledger, threshold=4, drop_outs=drop)
    assert len(ledger.events) == 1
