"""The MMD between features of one class: FedAvgR's third term where clients hold few classes."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dp import Ledger
from secure_fl.errors import InputError
from secure_fl.federation import (
    Client,
    ClientPrivacy,
    Federation,
    PrivacyError,
    SecureAggregation,
)
from secure_fl.trainers.networks import (
    DPSGD,
    FourierModel,
    LocalTraining,
    NetworkState,
    Regularization,
    fedavgr,
    load,
    squared_mmd,
    squared_mmd_by_class,
)
from secure_fl.trainers.networks.closed_form import ClosedForm
from secure_fl.trainers.networks.fedavgr import ClassMixtures, class_moments
from secure_fl.trainers.networks.local import as_vectors
from tests.secure_fl.methods import network

MODEL = FourierModel(3, 5, 16, 0.5)
START = NetworkState(MODEL.initial(np.random.default_rng(0)))
BY_CLASS = Regularization(mmd=1.0, per_class=True)


def last(iterator):
    *_, state = iterator
    return state


def features(X, parameters=START.parameters):
    module = MODEL.build()
    load(module, parameters)
    with torch.no_grad():
        return module.features(torch.from_numpy(X.astype(np.float32))).double().numpy()


@settings(max_examples=50)
@given(st.integers(1, 9), st.integers(0, 999))
def test_the_value_is_the_expansion_of_every_class_weighted_by_its_share(records, seed):
    """Section 4.1's double sums of inner products, class by class, over drawn global samples."""
    rng = np.random.default_rng(seed)
    phi, y = rng.normal(size=(records, 4)), rng.integers(0, 3, records)
    drawn = rng.normal(size=(3, 6, 4))
    expected = 0.0
    for c in range(3):
        own, other = phi[y == c], drawn[c]
        if len(own):
            found = (own @ own.T).mean() + (other @ other.T).mean() - 2 * (own @ other.T).mean()
            expected += len(own) / records * found
    centres = torch.from_numpy(drawn.mean(axis=1))
    value = squared_mmd_by_class(torch.from_numpy(phi), torch.from_numpy(y), centres)
    assert np.isclose(value.item(), expected)


def test_the_gradient_matches_finite_differences():
    torch.manual_seed(0)
    phi = torch.randn(6, 4, dtype=torch.float64, requires_grad=True)
    y, centres = torch.tensor([0, 2, 2, 0, 2, 2]), torch.randn(3, 4, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda p: squared_mmd_by_class(p, y, centres), (phi,))


def test_of_one_class_it_is_the_squared_mmd():
    torch.manual_seed(0)
    phi, centres = torch.randn(6, 4), torch.randn(3, 4)
    found = squared_mmd_by_class(phi, torch.full((6,), 2), centres)
    assert torch.allclose(found, squared_mmd(phi, centres[2:]))


def test_a_class_that_nobody_told_of_pulls_nothing():
    phi, y = torch.randn(5, 4, requires_grad=True), torch.tensor([0, 1, 1, 0, 1])
    centres = torch.randn(3, 4)
    centres[1] = torch.nan
    squared_mmd_by_class(phi, y, centres).backward()
    assert phi.grad[y == 0].abs().min() > 0
    assert not phi.grad[y == 1].any()


def test_clients_of_one_class_train_as_by_the_plain_mmd(clients):
    one = [Client(c.name, c.features, np.zeros(len(c), np.int64)) for c in clients]
    found = []
    for by_class in (False, True):
        terms = Regularization(mmd=2.0, per_class=by_class)
        options = {"start": START, "rounds": 2, "training": LocalTraining(0.1)}
        state = last(fedavgr(Federation(one, seed=4), MODEL, **options, regularization=terms))
        found.append(state.parameters)
    assert np.allclose(*found, rtol=0, atol=1e-6)


def label_shards():
    """Two of three classes a client; all that hold a class have the same records of it."""
    rng = np.random.default_rng(1)
    of_class = 2.0 * rng.normal(size=(3, 1, 5)) + rng.normal(size=(3, 8, 5))
    found = []
    for k in range(3):
        held = [k, (k + 1) % 3]
        X = np.concatenate([of_class[c] for c in held])
        found.append(Client(f"c{k}", X, np.repeat(held, 8)))
    return found


def test_on_label_shards_the_plain_mmd_pulls_clients_that_agree_on_every_class_and_ours_does_not():
    """Class-conditional distributions that agree are what a classifier across clients needs; the
    plain MMD is 0 only where clients of different classes have one mean too."""
    clients = label_shards()
    fed = Federation(clients)
    sums = fed.sum(class_moments, MODEL, START.parameters, "cpu")
    by_class = (sums["sum"] / sums["count"][:, None]).astype(np.float32)
    pooled = (sums["sum"].sum(axis=0) / sums["count"].sum()).astype(np.float32)[None]
    module = MODEL.build()
    _, gradients = as_vectors(module, START.parameters)
    pulls = {}
    for name, terms, centres in (
        ("none", Regularization(), pooled),
        ("plain", Regularization(mmd=1.0), pooled),
        ("by class", BY_CLASS, by_class),
    ):
        x, y = torch.from_numpy(clients[0].features.astype(np.float32)), clients[0].targets
        ClosedForm(module, gradients, terms, torch.from_numpy(centres))(x, torch.from_numpy(y))
        pulls[name] = gradients.numpy().copy()
    assert np.abs(pulls["plain"] - pulls["none"]).max() > 1e-2
    assert np.abs(pulls["by class"] - pulls["none"]).max() < 1e-6


def test_moments_by_class_are_sums_and_tell_each_classs_gaussian(clients):
    """Under secure aggregation too; the oracle is the pooled records' own features."""
    X = np.concatenate([c.features for c in clients])
    y = np.concatenate([c.targets for c in clients])
    phi = features(X)
    for aggregation in (None, SecureAggregation(clip=1000.0)):
        fed = Federation(clients, aggregation=aggregation)
        found = fed.sum(class_moments, MODEL, START.parameters, "cpu")
        for c in range(3):
            assert np.isclose(found["count"][c], (y == c).sum(), atol=1e-3)
            assert np.allclose(found["sum"][c], phi[y == c].sum(axis=0), atol=1e-2)
            assert np.allclose(found["square"][c], (phi[y == c] ** 2).sum(axis=0), atol=1e-2)


def test_draws_by_class_are_of_the_mixture_of_who_holds_it():
    """Clients weigh by their records of the class; who holds none has no part in it."""
    weights = np.array([[0.25, 0.75], [1.0, 0.0], [0.0, 0.0]])
    means = np.array([[[0.0], [4.0]], [[7.0], [99.0]], [[0.0], [0.0]]])
    mixtures = ClassMixtures(weights, means, np.full((3, 2, 1), 0.1))
    drawn = mixtures.draw(4000, np.random.default_rng(0), np.array([0, 2]))
    assert drawn.shape == (3, 4000, 1)
    assert drawn[0].mean() == pytest.approx(3.0, abs=0.1)
    assert np.isnan(drawn[1:]).all()
    drawn = mixtures.draw(4000, np.random.default_rng(0), np.array([1]))
    assert drawn[1].mean() == pytest.approx(7.0, abs=0.1)


def spread_within_classes(parameters, clients):
    """Mean squared distance of clients' class means from the class's pooled mean."""
    found = []
    for c in range(3):
        own = [features(k.features[k.targets == c], parameters) for k in clients if c in k.targets]
        middle = np.concatenate(own).mean(axis=0)
        found += [float(np.square(each.mean(axis=0) - middle).sum()) for each in own]
    return np.mean(found)


@pytest.mark.parametrize("distribution", ["moments", "mixture"])
def test_it_draws_the_clients_features_of_one_class_together(clients, distribution):
    moved = [Client(c.name, c.features + 0.7 * k, c.targets) for k, c in enumerate(clients)]
    spread = []
    for gamma in (0.0, 3.0):
        terms = Regularization(mmd=gamma, per_class=True)
        options = {"rounds": 10, "training": LocalTraining(0.2, epochs=2)}
        options |= {"regularization": terms, "distribution": distribution}
        state = last(fedavgr(Federation(moved), MODEL, start=START, **options))
        spread.append(spread_within_classes(state.parameters, moved))
    assert spread[1] < 0.7 * spread[0]


def test_it_runs_under_secure_aggregation_and_the_mixture_refuses(clients):
    options = {"start": START, "rounds": 1, "training": LocalTraining(0.1)}
    options |= {"regularization": BY_CLASS}
    plain = last(fedavgr(Federation(clients), MODEL, **options))
    secure = Federation(clients, aggregation=SecureAggregation(clip=1000.0))
    found = last(fedavgr(secure, MODEL, **options))
    assert np.abs(found.parameters - plain.parameters).max() < 1e-2
    with pytest.raises(PrivacyError):
        last(fedavgr(secure, MODEL, **options, distribution="mixture"))


WHY = (
    r"per_class: features' means by class are not released under {} privacy, whose noise is made"
    r" for one mean; take the plain MMD, or weight 0"
)


def test_promises_of_privacy_refuse_it_before_anything_is_spent(clients, tmp_path):
    options = {"start": START, "rounds": 1, "regularization": BY_CLASS}
    private = LocalTraining(0.1, privacy=DPSGD(8.0, 1e-4, rounds=1))
    with pytest.raises(PrivacyError, match=f"^{WHY.format('record-level')}$"):
        next(fedavgr(Federation(clients), MODEL, **options, training=private))
    books = Ledger.create(tmp_path / "ledger.jsonl", "trial")
    fed = Federation(clients, privacy=ClientPrivacy(1.0, 2.0, sums=2, ledger=books))
    with pytest.raises(PrivacyError, match=f"^{WHY.format('client-level')}$"):
        next(fedavgr(fed, MODEL, **options, training=LocalTraining(0.1)))
    assert not books.events


def test_books_of_private_runs_from_before_it_are_still_found():
    """Their messages are named by the digest of this text; a changed one would be booked again."""
    assert repr(BY_CLASS) == "Regularization(trace=0.0, features=0.0, mmd=1.0, samples=100)"


def test_the_commands_method_takes_it_and_refuses_it_beside_a_promise():
    made = network("fedavgr", mmd_per_class=True)
    made.refuse_privacy(record=False, client=False)
    network("fedavgr", mmd_per_class=True, mmd=0.0).refuse_privacy(record=True, client=True)
    for promise in ({"record": True, "client": False}, {"record": False, "client": True}):
        with pytest.raises(InputError, match=r"^mmd-per-class: .*plain MMD, or --mmd 0$"):
            made.refuse_privacy(**promise)
