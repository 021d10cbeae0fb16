"""FL+HC and cross-validation inside the clients' records."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secure_fl.federation import (
    Client,
    Federation,
    FederationError,
    FixedNumber,
    PrivacyError,
    SecureAggregation,
)
from secure_fl.trainers.networks import (
    DPSGD,
    ClusteredState,
    LinearModel,
    LocalTraining,
    NetworkState,
    accuracy,
    clustered_accuracy,
    coordinate_search,
    cross_validated,
    fedavg,
    fl_hc,
    folds,
)

MODEL = LinearModel(2, 2)
TRAINING = LocalTraining(0.2, batch_size=10)


def last(states):
    *_, state = states
    return state


def start():
    return NetworkState(MODEL.initial(np.random.default_rng(0)))


def opposed(count=6):
    """Clients of odd number label the same points the other way round."""
    rng = np.random.default_rng(1)
    found = []
    for k in range(count):
        X = rng.normal(size=(40, 2))
        y = (X[:, 0] > 0).astype(int)
        found.append(Client(f"c{k}", X, 1 - y if k % 2 else y))
    return found


def grouped(fed, **options):
    usual = {"start": start(), "rounds": 12, "training": TRAINING, "warm_up": 2, "clusters": 2}
    return fl_hc(fed, MODEL, **{**usual, **options})


@pytest.mark.parametrize("method", ["ward", "single", "complete", "average"])
def test_clients_of_opposed_labels_are_told_apart_and_each_cluster_learns_its_own(method):
    clients = opposed()
    fed = Federation(clients)
    state = last(fed.rounds(grouped(fed, method=method)))
    assert state.assignment.tolist() == [0, 1, 0, 1, 0, 1]
    for client, cluster in zip(clients, state.assignment, strict=True):
        rate = accuracy(MODEL, state.parameters[cluster], client.features, client.targets)
        assert rate > 0.9


def test_one_cluster_is_federated_averaging_to_the_bit():
    """Before and after the clustering all clients share a model; only its gathering is extra."""
    fed, other = Federation(opposed()), Federation(opposed())
    one = last(grouped(fed, clusters=1, warm_up=20))
    averaged = last(fedavg(other, MODEL, start=start(), rounds=12, training=TRAINING))
    assert np.array_equal(one.parameters, averaged.parameters[None])


def test_a_run_goes_on_from_any_state_to_the_same_bits():
    whole = Federation(opposed())
    expected = list(whole.rounds(grouped(whole, rounds=6)))
    assert [state.round for state in expected] == list(range(1, 7))
    for cut in (1, 2, 5):
        fed = Federation(opposed())
        reached = last(fed.rounds(grouped(fed, rounds=cut)))
        state = last(fed.rounds(grouped(fed, start=reached, rounds=6)))
        assert np.array_equal(state.parameters, expected[-1].parameters)
        assert np.array_equal(state.assignment, expected[-1].assignment)


def test_the_score_of_clusters_is_the_mean_over_clients_by_weight():
    rng = np.random.default_rng(0)
    parameters = np.stack([MODEL.initial(rng), MODEL.initial(rng)])
    X, y = rng.normal(size=(50, 2)), rng.integers(0, 2, 50)
    state = ClusteredState(parameters, np.array([0, 1, 1]))
    each = [accuracy(MODEL, row, X, y) for row in parameters]
    found = clustered_accuracy(MODEL, state, X, y, np.array([2.0, 1.0, 5.0]))
    assert np.isclose(found, (2 * each[0] + 6 * each[1]) / 8)


def test_clustering_is_refused_where_the_server_may_not_see_single_updates():
    with pytest.raises(PrivacyError, match="gather"):
        last(grouped(Federation(opposed(), aggregation=SecureAggregation())))


def test_record_level_privacy_is_refused_for_clusters():
    private = replace(TRAINING, privacy=DPSGD(1.0, 1e-5, 12))
    with pytest.raises(PrivacyError, match=r"FL\+HC: no record-level privacy"):
        next(grouped(Federation(opposed()), training=private))


def test_clustering_needs_every_client_present():
    fed = Federation(opposed(), participation=FixedNumber(4))
    with pytest.raises(FederationError, match="absent from round 2"):
        last(fed.rounds(grouped(fed)))


@pytest.mark.parametrize("wrong", [{"warm_up": -1}, {"clusters": 0}])
def test_out_of_range_settings_of_the_clustering_are_named(wrong):
    with pytest.raises(ValueError, match=r"FL\+HC: found"):
        next(grouped(Federation(opposed()), **wrong))


# ------------------------------------------------------------------------------- cross-validation


@settings(max_examples=30)
@given(st.integers(2, 5), st.lists(st.integers(5, 30), min_size=1, max_size=4), st.integers(0, 99))
def test_every_record_is_left_out_once_and_never_trained_on_in_that_fold(count, sizes, seed):
    clients = [
        Client(f"c{k}", np.arange(n)[:, None] + 100.0 * k, np.zeros(n, dtype=int))
        for k, n in enumerate(sizes)
    ]
    pairs = folds(clients, count, np.random.default_rng(seed))
    assert len(pairs) == count
    for k, client in enumerate(clients):
        left_out = [left[k].features[:, 0] for _, left in pairs]
        assert sorted(np.concatenate(left_out)) == sorted(client.features[:, 0])
        for kept, left in pairs:
            both = np.concatenate([kept[k].features[:, 0], left[k].features[:, 0]])
            assert sorted(both) == sorted(client.features[:, 0])


@pytest.mark.parametrize("aggregation", [None, SecureAggregation()])
def test_labels_without_meaning_score_at_chance_however_well_a_fit_remembers_its_records(
    aggregation,
):
    """A fit that saw the left-out records would score 1: it looks its answers up."""
    rng = np.random.default_rng(0)
    clients = [
        Client(f"c{k}", rng.normal(size=(24, 100)), rng.integers(0, 2, 24)) for k in range(6)
    ]
    model = LinearModel(2, 100)
    fitted = []

    def fit(fed):
        begin = NetworkState(model.initial(np.random.default_rng(0)))
        training = LocalTraining(0.5, epochs=20)
        state = last(fedavg(fed, model, start=begin, rounds=5, training=training))
        fitted.append(state.parameters)
        return state.parameters

    found = cross_validated(
        folds(clients, 3, rng),
        model,
        fit,
        lambda members: Federation(members, aggregation=aggregation),
    )
    X = np.concatenate([client.features for client in clients])
    y = np.concatenate([client.targets for client in clients])
    assert accuracy(model, fitted[0], X, y) > 0.75
    assert 0.35 < found < 0.65


def test_too_few_records_for_the_folds_are_named():
    client = Client("small", np.zeros((2, 1)), np.zeros(2, dtype=int))
    with pytest.raises(FederationError, match='"small": found 2 records, expected at least 3'):
        folds([client], 3, np.random.default_rng(0))
    with pytest.raises(ValueError, match="give at least 2"):
        folds([client], 1, np.random.default_rng(0))


def test_the_search_finds_a_separable_optimum_in_the_sum_of_the_grids():
    asked = []

    def score(point):
        asked.append(tuple(point.values()))
        return -abs(point["a"] - 3) - abs(point["b"] - 0.1)

    grids = {"a": [1, 2, 3, 4], "b": [0.01, 0.1, 1.0]}
    assert coordinate_search(grids, score) == ({"a": 3.0, "b": 0.1}, 0.0)
    assert len(asked) == len(set(asked)) == 1 + 3 + 2
    assert coordinate_search(grids, lambda point: 1.0)[0] == {"a": 1.0, "b": 0.01}
