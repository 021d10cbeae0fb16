import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from secure_fl.federation import Federation, PrivacyError, SecureAggregation
from secure_fl.trainers.linear.server import Adam, Momentum
from secure_fl.trainers.networks import (
    ConvNet,
    FourierModel,
    LinearModel,
    LocalTraining,
    NetworkState,
    Perceptron,
    Regularization,
    accuracy,
    fedavg,
    fedavgr,
    flatten,
    load,
    squared_mmd,
    trace_norm,
)

MODELS = [
    LinearModel(3, 5),
    FourierModel(3, 5, 12),
    Perceptron(3, 5, (7, 4)),
    ConvNet(3, (1, 12, 12)),
    ConvNet(3, (1, 12, 12), groups=4),
]


def last(iterator):
    for state in iterator:
        found = state
    return found


def pooled(clients):
    X = np.concatenate([c.features for c in clients])
    return X, np.concatenate([c.targets for c in clients])


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_parameters_travel_as_one_vector_and_back(model):
    parameters = model.initial(np.random.default_rng(0))
    network = model.build()
    load(network, parameters)
    assert np.array_equal(flatten(network), parameters)
    assert np.array_equal(model.initial(np.random.default_rng(0)), parameters)
    assert network(torch.zeros(2, model.inputs)).shape == (2, 3)
    with pytest.raises(ValueError, match="found shape"):
        load(network, parameters[1:])


def test_one_full_batch_step_of_fedavg_is_gradient_descent_on_the_pooled_loss(clients):
    """One step a client on all its records: the mean of the steps is the step of the mean loss."""
    model = LinearModel(3, 5)
    start = model.initial(np.random.default_rng(1))
    training = LocalTraining(learning_rate=0.3, steps=1, batch_size=1000)
    found = last(
        fedavg(Federation(clients), model, start=NetworkState(start), rounds=1, training=training)
    )
    X, y = pooled(clients)
    W, b = start[:15].reshape(3, 5).astype(float), start[15:].astype(float)
    scores = X @ W.T + b
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    residual = (p - np.eye(3)[y]) / len(y)
    gradient = np.concatenate([(residual.T @ X).ravel(), residual.sum(axis=0)])
    assert np.allclose(found.parameters, start - 0.3 * gradient, atol=1e-5)


@pytest.mark.parametrize("server", [None, Momentum(0.5)])
@pytest.mark.parametrize("eta", [0.0, 3.0, 0.5])
def test_the_average_weighs_round_t_as_gammas_say_and_leaves_training_as_it_is(
    clients, server, eta
):
    """Oracle: the recursion solved, weights Gamma(t + eta) / Gamma(t) on the rounds' parameters."""
    model, training = LinearModel(3, 5), LocalTraining(0.2, steps=2, batch_size=1000)
    options = {"start": NetworkState(model.initial(np.random.default_rng(1))), "rounds": 5}
    options |= {"training": training, "server": server}
    plain = list(fedavg(Federation(clients), model, **options))
    found = list(fedavg(Federation(clients), model, **options, averaging=eta))
    rows = np.stack([state.parameters for state in plain])
    assert np.array_equal(np.stack([state.parameters for state in found]), rows)
    times = np.arange(1, 6)
    weights = special.gamma(times + eta) / special.gamma(times)
    for t, state in enumerate(found, start=1):
        expected = np.average(rows[:t].astype(float), axis=0, weights=weights[:t])
        assert np.allclose(state.average, expected, rtol=0, atol=1e-12)
        assert np.array_equal(state.delivered, state.average.astype(np.float32))
    assert plain[-1].delivered is plain[-1].parameters


def test_an_average_goes_on_from_a_checkpoint_to_the_same_bits(clients, tmp_path):
    model, training = LinearModel(3, 5), LocalTraining(0.2, steps=2, batch_size=8)
    start = NetworkState(model.initial(np.random.default_rng(1)))
    options = {"rounds": 4, "training": training, "averaging": 2.0}
    fed = Federation(clients, seed=2)
    whole = last(fed.rounds(fedavg(fed, model, start=start, **options)))
    half, path = {**options, "rounds": 2}, tmp_path / "checkpoint"
    fed = Federation(clients, seed=2)
    last(fed.rounds(fedavg(fed, model, start=start, **half), checkpoint=path))
    fed = Federation(clients, seed=2)
    state = fed.resume(path)
    resumed = last(fed.rounds(fedavg(fed, model, start=state, **options)))
    assert resumed.average.tobytes() == whole.average.tobytes()


def test_fedavgr_averages_as_fedavg_does(clients):
    model, training = FourierModel(3, 5, 12), LocalTraining(0.2, steps=1, batch_size=8)
    start = NetworkState(model.initial(np.random.default_rng(1)))
    terms = {"training": training, "regularization": Regularization(mmd=0.1), "rounds": 3}
    found = list(fedavgr(Federation(clients), model, start=start, **terms, averaging=0.0))
    expected = np.mean([state.parameters for state in found], axis=0, dtype=float)
    assert np.allclose(found[-1].average, expected, rtol=0, atol=1e-12)
    for wrong in (-1.0, float("nan")):
        with pytest.raises(ValueError, match=r"averaging: found .*, expected a number of at least"):
            next(fedavgr(Federation(clients), model, start=start, **terms, averaging=wrong))


@pytest.mark.parametrize("server", [None, Momentum(0.5), Adam(0.05)])
def test_every_server_learns_the_pooled_classes(clients, server):
    model = Perceptron(3, 5, (16,))
    start = NetworkState(model.initial(np.random.default_rng(0)))
    training = LocalTraining(0.1, epochs=1, batch_size=8, proximal=0.01)
    state = last(
        fedavg(Federation(clients), model, start=start, rounds=25, training=training, server=server)
    )
    assert accuracy(model, state.parameters, *pooled(clients)) > 0.85


def test_a_large_proximal_weight_holds_the_clients_at_the_global_model(clients):
    model = LinearModel(3, 5)
    start = NetworkState(model.initial(np.random.default_rng(0)))
    moved = []
    for mu in (0.0, 9.0):
        training = LocalTraining(0.1, epochs=5, batch_size=8, proximal=mu)
        state = last(fedavg(Federation(clients), model, start=start, rounds=1, training=training))
        moved.append(np.linalg.norm(state.parameters - start.parameters))
    assert moved[1] < 0.5 * moved[0]


@settings(max_examples=40)
@given(st.integers(0, 4), st.integers(0, 2**32 - 1))
def test_trace_norm_gradient_is_a_subgradient_at_any_rank(rank, seed):
    """G is in the subdifferential of |.|_* at W iff <G, W> = |W|_* and |G|_2 <= 1 (duality)."""
    rng = np.random.default_rng(seed)
    W = rng.normal(size=(4, rank)) @ rng.normal(size=(rank, 6))
    matrix = torch.tensor(W, requires_grad=True)
    value = trace_norm(matrix)
    value.backward()
    G = matrix.grad.numpy()
    nuclear = np.linalg.norm(W, "nuc")
    assert np.isclose(value.item(), nuclear)
    assert np.isclose((G * W).sum(), nuclear)
    assert np.linalg.norm(G, 2) <= 1 + 1e-9
    other = rng.normal(size=W.shape)
    assert np.linalg.norm(other, "nuc") >= nuclear + (G * (other - W)).sum() - 1e-9


def test_squared_mmd_is_the_double_sum_of_inner_products():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(5, 3)), rng.normal(size=(7, 3))
    expected = (a @ a.T).mean() + (b @ b.T).mean() - 2 * (a @ b.T).mean()
    assert np.isclose(squared_mmd(torch.tensor(a), torch.tensor(b)).item(), expected)


def test_penalty_gradients_match_finite_differences():
    torch.manual_seed(0)
    regularization = Regularization(0.3, 0.2, 0.5)
    head = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    phi = torch.randn(6, 4, dtype=torch.float64, requires_grad=True)
    drawn = torch.randn(9, 4, dtype=torch.float64)
    y = torch.arange(6) % 3
    penalty = regularization.penalty
    assert torch.autograd.gradcheck(lambda h, p: penalty(h, p, y, drawn), (head, phi))


def test_fedavgr_without_regularisers_is_fedavg_to_the_bit(clients):
    model = FourierModel(3, 5, 10, 0.5)
    start = NetworkState(model.initial(np.random.default_rng(0)))
    training = LocalTraining(0.2, momentum=0.9)
    plain = last(fedavg(Federation(clients), model, start=start, rounds=2, training=training))
    none = Regularization()
    same = last(
        fedavgr(
            Federation(clients),
            model,
            start=start,
            rounds=2,
            training=training,
            regularization=none,
        )
    )
    assert np.array_equal(plain.parameters, same.parameters)


def spread_of_means(model, parameters, clients):
    """Mean squared distance of the clients' mean features from the pooled mean."""
    network = model.build()
    load(network, parameters)
    means = []
    with torch.no_grad():
        for c in clients:
            X = torch.from_numpy(c.features.astype(np.float32))
            means.append(network.features(X).mean(dim=0).numpy())
    return float(np.square(means - np.mean(means, axis=0)).sum(axis=1).mean())


@pytest.mark.parametrize("distribution", ["moments", "mixture"])
def test_mmd_draws_the_clients_features_together(clients, distribution):
    model = FourierModel(3, 5, 20, 0.5)
    start = NetworkState(model.initial(np.random.default_rng(0)))
    training = LocalTraining(0.2, epochs=2)
    spread = []
    for gamma in (0.0, 3.0):
        state = last(
            fedavgr(
                Federation(clients),
                model,
                start=start,
                rounds=10,
                training=training,
                regularization=Regularization(mmd=gamma),
                distribution=distribution,
            )
        )
        spread.append(spread_of_means(model, state.parameters, clients))
    assert spread[1] < 0.7 * spread[0]


def test_the_papers_features_are_the_same_model_and_train_as_its_algebra_says(clients):
    """phi' = sqrt(D) phi: with W' = W / sqrt(D) the scores are the same; then a step of rate r / D
    on W' is one of rate r on W, and moves frequencies by 1 / D of what it moves ours by."""
    D = 16
    ours, paper = (FourierModel(3, 5, D, 0.5, normalised=n) for n in (True, False))
    start = ours.initial(np.random.default_rng(0))
    inner = D * 5 + D
    scaled = start.copy()
    scaled[inner : inner + 3 * D] /= D**0.5

    def after(model, begin, rate):
        training = LocalTraining(rate, steps=1, batch_size=30)
        fed = Federation(clients, seed=3)
        state = NetworkState(begin)
        return last(fedavg(fed, model, start=state, rounds=1, training=training)).parameters - begin

    moved = after(ours, start, 0.01)
    theirs = after(paper, scaled, 0.01 / D)
    head = slice(inner, inner + 3 * D)
    assert np.abs(moved[:inner]).max() > 1e-4
    assert np.allclose(theirs[:inner] * D, moved[:inner], atol=1e-5)
    assert np.allclose(theirs[head] * D**0.5, moved[head], atol=1e-5)
    assert paper.feature_norm == pytest.approx((2 * D) ** 0.5)


def test_moments_run_under_secure_aggregation_and_the_mixture_refuses(clients):
    model = FourierModel(3, 5, 10, 0.5)
    start = NetworkState(model.initial(np.random.default_rng(0)))
    options = {
        "start": start,
        "rounds": 1,
        "training": LocalTraining(0.1),
        "regularization": Regularization(1e-4, 1e-4, 0.1),
    }
    plain = last(fedavgr(Federation(clients), model, **options))
    secure = Federation(clients, aggregation=SecureAggregation(clip=1000.0))
    found = last(fedavgr(secure, model, **options))
    assert np.abs(found.parameters - plain.parameters).max() < 1e-2
    with pytest.raises(PrivacyError):
        last(fedavgr(secure, model, **options, distribution="mixture"))
