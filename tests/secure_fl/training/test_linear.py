"""Linear models: every method trains, says how many sums it needs, and its model is kept whole."""

from typing import Any

import attrs
import numpy as np
import pytest

from dp import Ledger
from fhe import errors as fhe_errors
from secure_fl.data import Dataset, dirichlet
from secure_fl.data.samples import digits_split
from secure_fl.errors import FormatError, InputError
from secure_fl.federation import Federation
from secure_fl.privacy.promises import RecordPrivacy
from secure_fl.trainers.methods.newton import FedNewton
from secure_fl.trainers.registry import find, make
from secure_fl.training.linear import train_linear_model
from secure_fl.training.linear_model import LinearModel
from tests.secure_fl.methods import LINEAR, linear


@pytest.fixture(scope="module")
def digits():
    """Five clients and the test part."""
    train, test = digits_split(np.random.default_rng(0))
    parts = dirichlet(train.y, 5, 1.0, np.random.default_rng(0))
    return tuple(train.select(part, f"c{i}") for i, part in enumerate(parts)), test


def own_participants(method):
    return "participants" in {each.name for each in find(method, "linear").declared()}


FREE = [method for method in LINEAR if not find(method, "linear").hides_records]


SLOW = {"dore": 300, "artemis": 300}
"""Rounds of first-order methods whose steps their theorems keep short."""


@pytest.mark.parametrize(
    "method", [pytest.param(m, marks=pytest.mark.slow if m in SLOW else ()) for m in FREE]
)
def test_every_method_learns_the_digits(digits, method):
    clients, test = digits
    rounds = SLOW.get(method, 20)
    settings = linear(method, rounds=rounds, ridge=1e-3, learning_rate=0.3, damping=1e-3)
    trained = train_linear_model(clients, settings, test=test)
    assert trained.figures["accuracy"] > 0.85
    assert np.mean(trained.model.predict(test.X) == test.y) == trained.figures["accuracy"]
    assert set(trained.traffic) == {client.name for client in clients}


@pytest.mark.parametrize(
    ("method", "participants"),
    [(m, p) for m in FREE for p in (None, 3) if p is None or own_participants(m)],
)
def test_the_sums_that_a_method_plans_are_those_it_asks_for(
    digits, method, participants, monkeypatch
):
    """Privacy is bought for that many beforehand."""
    clients, _ = digits
    asked: list[Any] = []

    def counting(verb: Any) -> Any:
        def counted(*arguments: Any, **options: Any) -> Any:
            asked.append(arguments)
            return verb(*arguments, **options)

        return counted

    for name in ("sum", "mean"):
        monkeypatch.setattr(Federation, name, counting(getattr(Federation, name)))
    for safeguard in (True, False):
        settings = linear(
            method, rounds=3, damping=0.1, participants=participants, safeguard=safeguard
        )
        asked.clear()
        train_linear_model(clients, settings)
        assert settings.sums(10) in (None, len(asked))
        unknown = method == "fednl-ls" or settings.sees_clients
        assert safeguard or settings.sums(10) is not None or unknown


@pytest.mark.parametrize("method", ["dore", "artemis", "shed"])
def test_methods_whose_server_sees_single_clients_refuse_masked_sums(digits, method):
    with pytest.raises(InputError, match=f"{method}: its server must see single clients' values"):
        train_linear_model(digits[0], linear(method), secure=True)


@pytest.mark.parametrize("method", ["dore", "artemis", "shed", "fedns", "fednew", "fedsophia"])
def test_a_peer_that_was_resumed_ends_in_the_same_model(digits, tmp_path, method):
    clients, _ = digits
    settings = linear(method, rounds=3)
    whole = train_linear_model(clients, settings)
    checkpoint = tmp_path / "checkpoint"
    train_linear_model(clients, attrs.evolve(settings, rounds=2), checkpoint=checkpoint)
    resumed = train_linear_model(clients, settings, checkpoint=checkpoint)
    np.testing.assert_array_equal(resumed.model.weights, whole.model.weights)


def test_a_kept_model_is_the_same_model(digits, tmp_path):
    clients, test = digits
    settings = linear("fednewton", rounds=2, random_features=100, kernel_deviation=0.7)
    model = train_linear_model(clients, settings, scale=0.5).model
    size = model.save(tmp_path / "model")
    assert size == (tmp_path / "model").stat().st_size
    found = LinearModel.load(tmp_path)
    np.testing.assert_array_equal(found.weights, model.weights)
    assert (found.classes, found.scale, found.origin) == (model.classes, 0.5, model.origin)
    np.testing.assert_array_equal(found.predict(test.X), model.predict(test.X))


@pytest.mark.parametrize("change", ["classes", "n_features", "features", "scale"])
def test_a_model_whose_parts_do_not_fit_is_refused(digits, tmp_path, change):
    from fhe.envelope import read_envelope, write_envelope

    clients, _ = digits
    train_linear_model(clients, linear("dkrr")).model.save(tmp_path / "model")
    envelope = read_envelope(tmp_path / "model", "linear model")
    wrong = {"classes": ["a"], "n_features": 3, "features": ["x"], "scale": "wide"}
    header = {**envelope.header, change: wrong[change]}
    header.pop("kind", None)
    write_envelope(tmp_path / "edited", "linear model", header, envelope.payload)
    with pytest.raises(FormatError, match="train again"):
        LinearModel.load(tmp_path / "edited")
    with pytest.raises(fhe_errors.InputError):
        LinearModel.load(tmp_path / "absent")


def test_a_resumed_run_ends_in_the_same_model(digits, tmp_path):
    clients, test = digits
    settings = linear("fednewton-head", rounds=6, memory=3)
    whole = train_linear_model(clients, settings, test=test)
    checkpoint = tmp_path / "checkpoint"
    train_linear_model(clients, attrs.evolve(settings, rounds=2), checkpoint=checkpoint)
    resumed = train_linear_model(clients, settings, checkpoint=checkpoint, test=test)
    np.testing.assert_array_equal(resumed.model.weights, whole.model.weights)
    assert resumed.figures == whole.figures
    again = train_linear_model(clients, settings, checkpoint=checkpoint, test=test)
    np.testing.assert_array_equal(again.model.weights, whole.model.weights)


@pytest.mark.parametrize("method", ["fednl", "fednl-pp", "fednl-bc"])
def test_a_resumed_run_of_fednl_keeps_every_class_its_estimate(digits, tmp_path, method):
    """The clients' Hessians of ten classes are in the checkpoint, under names of their own."""
    clients, _ = digits
    settings = linear(method, rounds=5, ridge=1e-3, gradient_share=0.6)
    whole = train_linear_model(clients, settings)
    train_linear_model(clients, attrs.evolve(settings, rounds=2), checkpoint=tmp_path / "state")
    resumed = train_linear_model(clients, settings, checkpoint=tmp_path / "state")
    np.testing.assert_array_equal(resumed.model.weights, whole.model.weights)


def test_fednl_finds_the_optimum_of_each_class_against_the_rest(digits):
    """scikit-learn on the pooled records of clients of one size: its objective is the same."""
    from sklearn.linear_model import LogisticRegression

    train, _ = digits_split(np.random.default_rng(0))
    clients = [train.select(np.arange(i, 900, 3), f"c{i}") for i in range(3)]
    settings = linear("fednl-ls", rounds=40, ridge=1e-2, compressor="rank-1")
    weights = train_linear_model(clients, settings).model.weights
    X = np.column_stack([train.X[:900], np.ones(900)])
    for code in (0, 7):
        other = LogisticRegression(
            C=1 / (1e-2 * 900), fit_intercept=False, tol=1e-12, max_iter=9999
        )
        other.fit(X, train.y[:900] == code)
        np.testing.assert_allclose(weights[:, code], other.coef_[0], atol=1e-5)


def test_two_classes_take_one_run_and_noise_for_one(digits):
    clients, _ = digits
    two = [Dataset(c.X[c.y < 2], c.y[c.y < 2], c.classes[:2], c.name) for c in clients]
    assert linear("fednl", rounds=3).sums(2) == 4
    assert linear("fednl", rounds=3).sums(10) == 40
    model = train_linear_model(two, linear("fednl-ls", rounds=20, ridge=1e-3)).model
    np.testing.assert_array_equal(model.weights[:, 0], 0.0)
    X, y = np.concatenate([c.X for c in two]), np.concatenate([c.y for c in two])
    assert np.mean(model.predict(X) == y) > 0.98


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        (
            "fednl",
            {"participants": 2},
            "participants: no setting of fednl; .*fednl-pp",
        ),
        ("fednl", {"option": 3}, r"option: found 3, expected a whole number in \[1, 2\]"),
        ("fednl-bc", {"gradient_share": 0.0}, r"gradient-share: found 0.0, expected .* \(0, 1\]"),
        ("fednl", {"learning_rate": -5, "memory": 7}, "learning-rate: no setting of fednl"),
    ],
)
def test_settings_that_fednl_does_not_have_are_refused(method, options, message):
    with pytest.raises(InputError, match=message):
        make(method, "linear", options)


def test_more_participants_than_clients_are_refused(digits):
    with pytest.raises(InputError, match="participants: found 6, the federation has 5"):
        train_linear_model(digits[0], linear("fednl-pp", participants=6))


@pytest.mark.parametrize("solver", ["exact", "diagonal"])
def test_sparse_clients_train_the_dense_model(digits, solver):
    from scipy.sparse import csr_array

    clients, _ = digits
    sparse = tuple(replace_features(client, csr_array(client.X)) for client in clients)
    settings = linear("fednewton", rounds=3, solver=solver)
    dense, other = (train_linear_model(each, settings).model for each in (clients, sparse))
    np.testing.assert_allclose(other.weights, dense.weights, rtol=1e-6, atol=1e-9)


def replace_features(client: Dataset, X: Any) -> Dataset:
    return Dataset(X, client.y, client.classes, client.name)


@pytest.mark.parametrize("random_features", [0, 100])
def test_noisy_gradients_have_constants_of_their_own(digits, tmp_path, random_features):
    """Of the records' mean; not on random features, beside which a model has none."""
    clients, test = digits
    books = Ledger.create(tmp_path / "books", "digits")
    settings = linear("private-gradient", rounds=8, random_features=random_features)
    trained = train_linear_model(
        clients, settings, secure=True, test=test, privacy=RecordPrivacy(8.0, 1e-5, 5.0, books)
    )
    assert np.mean(trained.model.predict(test.X) == test.y) == trained.figures["accuracy"]
    assert trained.model.weights.shape == (random_features or 65, 10)
    assert trained.model.weights[-1].any()
    if not random_features:
        assert trained.figures["accuracy"] > 0.8


def test_private_ridge_states_its_unit_and_is_bound_to_masked_sums(digits, tmp_path):
    clients, test = digits
    ledger = Ledger.create(tmp_path / "books", "digits")
    promise = RecordPrivacy(20.0, 1e-5, 4.0, ledger)
    settings = linear("private-ridge")
    trained = train_linear_model(clients, settings, secure=True, test=test, privacy=promise)
    assert trained.privacy is not None
    assert "record" in trained.privacy
    assert "replaced" in trained.privacy
    assert trained.figures["accuracy"] > 0.6
    np.testing.assert_array_equal(trained.model.weights[-1], 0.0)  # no constant was learnt
    assert np.mean(trained.model.predict(test.X) == test.y) == trained.figures["accuracy"]
    with pytest.raises(InputError, match="masked"):
        train_linear_model(clients, settings, privacy=promise)
    for method, privacy in (("private-ridge", None), ("dkrr", promise)):
        with pytest.raises(InputError, match="private-ridge"):
            train_linear_model(clients, linear(method), secure=True, privacy=privacy)
    assert len(ledger.events) == 1


@pytest.mark.parametrize(
    "options",
    [
        {"rounds": 0},
        {"ridge": 0.0},
        {"solver": "lbfgs"},
        {"memory": 3, "safeguard": False},
    ],
)
def test_contradictory_settings_are_refused_in_one_line(options):
    with pytest.raises(InputError) as caught:
        FedNewton(**options)
    assert "\n" not in str(caught.value)
