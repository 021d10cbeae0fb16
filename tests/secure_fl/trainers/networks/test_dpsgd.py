"""One record's influence on a private step, what it draws from, and what it is attacked with."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import cross_entropy

from dp import Ledger
from dp.audit import lower_bound
from secure_fl.federation import Client, PrivacyError
from secure_fl.federation.privacy import Grid
from secure_fl.trainers.networks import (
    DPSGD,
    ConvNet,
    FourierModel,
    LinearModel,
    LocalTraining,
    Model,
    Perceptron,
    Regularization,
    Shifts,
    load,
    make_plan,
    record_gradients,
)
from secure_fl.trainers.networks import dpsgd as algorithm
from secure_fl.trainers.networks.dpsgd import (
    clipped_sum,
    placed,
    poisson_sample,
    private_feature_sums,
    private_network_of,
    train_privately,
)
from secure_fl.trainers.networks.local import as_vectors, batches, train

GRID = Grid(0.5, 1 << 24)
PROMISE = DPSGD(2.0, 1e-4, rounds=1, clip=0.5)


def member(tmp_path, n=30, d=5, classes=3, seed=0, name="a"):
    rng = np.random.default_rng(seed)
    books = Ledger.create(tmp_path / f"{name}.jsonl", name)
    return Client(name, rng.normal(size=(n, d)), rng.integers(0, classes, n), ledger=books)


def penalised(client, network, model):
    """The loss of a FedAvgR client whose terms outweigh the cross-entropy."""
    own, drawn = released(network.head.weight.shape[1])
    client.state["dpsgd.features"] = own
    terms = Regularization(features=30.0, mmd=20.0)
    return algorithm._loss(client, network, terms, drawn, 9.0)


def released(width):
    """A client's released mean features, and draws of the global ones."""
    rng = np.random.default_rng(5)
    return rng.normal(size=width), rng.normal(size=(4, width))


MODELS = [
    LinearModel(3, 5),
    FourierModel(3, 5, 12),
    Perceptron(3, 5, (7,)),
    ConvNet(3, (1, 10, 10)),
    ConvNet(3, (1, 10, 10), groups=4),
]


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_the_sum_is_that_of_single_gradients_clipped_one_by_one(model, tmp_path):
    """Oracle: one backward pass a record, of that record's loss, without opacus."""
    client = member(tmp_path, n=6, d=model.inputs)
    network = private_network_of(client, model, "cpu")
    as_vectors(network, model.initial(np.random.default_rng(1)))
    loss = penalised(client, network, model)
    X = torch.from_numpy(client.features.astype(np.float32))
    y = torch.from_numpy(client.targets)
    chosen = np.array([0, 2, 3, 5])
    found = GRID.values(clipped_sum(network, X, y, chosen, loss, GRID))
    plain = model.build()
    load(plain, model.initial(np.random.default_rng(1)))
    own, drawn = released(plain.head.weight.shape[1])
    towards = torch.from_numpy(own - drawn.mean(axis=0)).float()
    expected = 0.0
    for i in chosen:
        plain.zero_grad()
        phi = plain.features(X[i : i + 1])
        total = cross_entropy(plain.head(phi), y[i : i + 1]) + 30.0 * 9.0**0.5 * phi.norm()
        (total + 2 * 20.0 * (phi @ towards).sum()).backward()
        gradient = np.concatenate([p.grad.numpy().ravel() for p in plain.parameters()])
        expected = expected + gradient * min(1.0, GRID.clip / np.linalg.norm(gradient))
    assert np.allclose(found, expected, atol=2e-5)


def gradient_sums(client, model, loss_of, y=None, X=None, at_once=None):
    network = private_network_of(client, model, "cpu")
    as_vectors(network, model.initial(np.random.default_rng(1)))
    X = torch.from_numpy((client.features if X is None else X).astype(np.float32))
    y = torch.from_numpy(client.targets if y is None else y)
    loss, size = loss_of(client, network, model), at_once or record_gradients.AT_ONCE
    return clipped_sum(network, X, y, np.arange(len(y)), loss, GRID, at_once=size)


@settings(max_examples=25)
@given(seed=st.integers(0, 2**32 - 1), scale=st.sampled_from([1e-3, 1.0, 1e4, 1e30]))
def test_a_replaced_record_moves_the_sum_by_at_most_two_clips_and_a_removed_one_by_one(
    tmp_path_factory, seed, scale
):
    """In grid steps, exactly, with FedAvgR's terms on: they are inside the clip."""
    rng = np.random.default_rng(seed)
    client = member(tmp_path_factory.mktemp("books"), n=8, seed=seed)
    model = FourierModel(3, 5, 12)
    before = gradient_sums(client, model, penalised)
    X = client.features.copy()
    X[3] = scale * rng.normal(size=5)
    after = gradient_sums(client, model, penalised, X=X)
    kept = np.arange(8) != 3
    without = gradient_sums(
        client, model, penalised, X=client.features[kept], y=client.targets[kept]
    )
    moved = [int(np.square(before - other).sum()) for other in (after, without)]
    assert moved[0] <= (2 * GRID.steps) ** 2
    assert moved[1] <= GRID.steps**2


@pytest.mark.parametrize(
    "model", [*MODELS, Perceptron(10, 64, (70,)), ConvNet(3, (1, 28, 28))], ids=str
)
def test_a_record_that_is_removed_takes_its_own_code_away_and_moves_no_other(model, tmp_path):
    """Exactly, wherever it was: groups are filled anew, and no bit of the others' codes moves."""
    client = member(tmp_path, n=35, d=model.inputs)
    size = record_gradients.group_size(client, model, "cpu")
    network = private_network_of(client, model, "cpu")
    as_vectors(network, model.initial(np.random.default_rng(1)))
    X, y = torch.from_numpy(client.features.astype(np.float32)), torch.from_numpy(client.targets)
    loss = penalised(client, network, model)

    def codes(chosen):
        return clipped_sum(network, X, y, np.array(chosen), loss, GRID, at_once=size)

    everybody = list(range(35))
    whole = codes(everybody)
    for i in (0, 15, 16, 20, 34):
        others = [j for j in everybody if j != i]
        assert np.array_equal(whole - codes([i]), codes(others))
    assert np.array_equal(sum(codes([i]) for i in everybody), whole)


def test_groups_are_of_one_record_where_company_moves_bits(tmp_path):
    """A network that reads its batch: found out, and then no record has company."""
    client, model = member(tmp_path), FourierModel(3, 5, 12)
    network = private_network_of(client, model, "cpu")
    assert record_gradients.is_alone(network, model, "cpu")
    network.features.register_forward_hook(lambda _, __, phi: phi * (1 + 1e-6 * phi.mean()))
    assert not record_gradients.is_alone(network, model, "cpu")
    assert record_gradients.group_size(client, model, "cpu") == 1


@settings(max_examples=200)
@given(
    seed=st.integers(0, 2**32 - 1),
    exponent=st.integers(-140, 128),
    width=st.sampled_from([1, 3, 50, 3000]),
    spread=st.sampled_from([0, 1, 20]),
)
def test_no_row_on_the_grid_is_longer_than_the_clip(seed, exponent, width, spread):
    """In exact integers, for rows of all scales, infinite ones too."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(3, width)) * 2.0 ** (rng.uniform(-spread, 0, (3, width)) + exponent)
    with np.errstate(over="ignore"):
        single = rows.astype(np.float32)
    codes = placed(torch.from_numpy(single), GRID).numpy()
    assert np.array_equal(codes, np.rint(codes))
    for row, code in zip(single, codes, strict=True):
        square = sum(int(c) ** 2 for c in code)
        assert square <= GRID.steps**2
        norm = np.linalg.norm(row.astype(float))
        if np.isfinite(norm):
            expected = row * (GRID.steps / max(norm, GRID.clip))
            assert np.abs(code - expected).max() <= 1 + 2.0**-18 * np.abs(expected).max()
        else:
            assert square == 0


def test_the_terms_of_a_whole_batch_would_break_that_bound(tmp_path):
    """What the test above would see: one record turns the gradients of all others around."""
    client, model = member(tmp_path, n=8), FourierModel(3, 5, 12)
    kept = np.arange(8) != 3
    network = model.build()
    load(network, model.initial(np.random.default_rng(1)))
    with torch.no_grad():
        phi = network.features(torch.from_numpy(client.features.astype(np.float32)))
    between = (phi.mean(0, keepdim=True) + phi[kept].mean(0, keepdim=True)) / 2

    def coupled(client, network, model):
        def loss(phi, y):
            penalty = Regularization(mmd=1e6).penalty(network.head.weight, phi, y, between)
            return penalty + cross_entropy(network.head(phi), y, reduction="sum")

        return loss

    before = gradient_sums(client, model, coupled, at_once=8)
    own = {"X": client.features[kept], "y": client.targets[kept]}
    without = gradient_sums(client, model, coupled, **own, at_once=7)
    assert np.square(before - without).sum() > (4 * GRID.steps) ** 2


def test_a_record_that_is_not_finite_counts_as_nothing(tmp_path):
    client = member(tmp_path)
    model, training = FourierModel(3, 5, 12), LocalTraining(0.5, steps=4, privacy=PROMISE)
    client.features[4] = np.nan
    start = model.initial(np.random.default_rng(0))
    assert np.isfinite(train_privately(client, model, start, training)).all()
    assert not np.isfinite(train(client, model, start, replace(training, privacy=None))).all()


@settings(max_examples=50)
@given(st.floats(1e-6, 1), st.integers(1, 500))
def test_a_poisson_sample_takes_the_records_whose_word_is_below_the_rate(rate, n):
    words = np.random.default_rng(n).integers(0, 2**64, n, dtype=np.uint64)
    found = poisson_sample(n, rate, lambda size: words.tobytes()[:size])
    expected = [i for i, w in enumerate(words.tolist()) if w < rate * 2**64]
    assert found.tolist() == expected


def test_samples_have_binomial_sizes():
    import os

    from scipy.stats import binom, chisquare

    sizes = [len(poisson_sample(20, 0.1, os.urandom)) for _ in range(4000)]
    counts = np.bincount(sizes, minlength=21)
    pooled = [*counts[:5], counts[5:].sum()]
    expected = 4000 * np.array([*binom.pmf(range(5), 20, 0.1), binom.sf(4, 20, 0.1)])
    assert chisquare(pooled, expected).pvalue > 1e-6


def test_nothing_is_drawn_from_torch_or_numpy(tmp_path, monkeypatch):
    """Every generator of theirs raises; and a fixed seed does not fix the noise."""
    promise = replace(PROMISE, shifts=Shifts((1, 1, 5), copies=2, pixels=1))
    model, training = FourierModel(3, 5, 12), LocalTraining(0.5, steps=4, privacy=promise)
    clients = [member(tmp_path, name=name) for name in "ab"]
    start = model.initial(np.random.default_rng(0))
    for client in clients:
        record_gradients.group_size(client, model, "cpu")

    def poisoned(*_, **__):
        raise AssertionError("drawn from a generator that is not the operating system's")

    for module, names in (
        (torch, ("normal", "randn", "rand", "randint", "randperm", "bernoulli", "Generator")),
        (torch.Tensor, ("normal_", "uniform_", "bernoulli_", "random_")),
        (np.random, ("default_rng", "normal", "random", "Generator")),
        (torch, ("manual_seed",)),
    ):
        for name in names:
            monkeypatch.setattr(module, name, poisoned)
    import opacus.optimizers.optimizer

    monkeypatch.setattr(opacus.optimizers.optimizer, "_generate_noise", poisoned)
    first, second = (train_privately(client, model, start, training) for client in clients)
    monkeypatch.undo()
    assert not np.array_equal(first, second)
    fresh = member(tmp_path, name="c")
    torch.manual_seed(0)
    state = torch.get_rng_state()
    third = train_privately(fresh, model, start, training)
    assert torch.equal(torch.get_rng_state(), state)
    assert not np.array_equal(first, third)


def test_the_noise_has_the_planned_scale_and_is_not_stretched_by_an_empty_batch(tmp_path):
    """With zero learning from records (clip tiny), steps are noise over the expected batch."""
    client = member(tmp_path, n=1000, d=5)
    privacy = replace(PROMISE, clip=1e-3)
    training = LocalTraining(1.0, steps=40, batch_size=1, privacy=privacy)
    model = LinearModel(3, 5)
    change = train_privately(client, model, np.zeros(18, np.float32), training)
    plan = make_plan(1000, training, features=False)
    assert plan.steps.sample_rate == 0.001
    sigma = plan.steps.noise_multiplier * 1e-3 / 1.0 * 40**0.5
    assert 0.4 * sigma < change.std() < 1.8 * sigma
    steps, empty = client.state["dpsgd.steps"]
    assert steps == 40
    # 1000 records at a thousandth: a batch is empty with probability 0.37.
    assert 3 <= empty <= 29


def test_trace_norm_and_proximal_term_are_added_after_the_noise(tmp_path):
    """With a tiny clip gradients and noise vanish; both terms act in full."""
    client = member(tmp_path)
    privacy = replace(PROMISE, clip=1e-9)
    training = LocalTraining(0.1, steps=4, proximal=2.0, privacy=privacy)
    model = LinearModel(3, 5)
    start = model.initial(np.random.default_rng(0))
    found = train_privately(client, model, start, training, Regularization(trace=0.3))
    W = start[:15].reshape(3, 5)
    change = np.zeros_like(W)
    for _ in range(4):
        U, _, Vh = np.linalg.svd(W + change, full_matrices=False)
        change = change - 0.1 * (0.3 * U @ Vh + 2.0 * change)
    assert np.allclose(found[:15], change.ravel(), atol=1e-5)
    assert np.abs(found[15:]).max() < 1e-5


def test_released_feature_sums_are_clipped_and_noised(tmp_path):
    """Features of a linear model are the records: one of 1e6 moves the sum by its clip."""
    client = member(tmp_path, n=50)
    client.features[:] = 0.0
    client.features[0, 2] = 1e6
    privacy = DPSGD(8.0, 1e-4, rounds=1, feature_norm=3.0, feature_share=0.5)
    training = LocalTraining(0.1, batch_size=10, privacy=privacy)
    found = private_feature_sums(client, LinearModel(3, 5), np.zeros(18, np.float32), training)
    plan = make_plan(50, training, features=True)
    deviations = (found["sum"] - np.array([0, 0, 3.0, 0, 0])) / (
        3.0 * plan.features.noise_multiplier
    )
    assert np.abs(deviations).max() < 6
    assert np.abs(deviations).min() > 0
    assert found["count"] == 50


class Mixing(nn.Module):
    def forward(self, x):
        return x - x.mean(dim=0)


class Odd(Model):
    """A network around any layer."""

    layer = None

    @property
    def inputs(self):
        return 6

    def _parts(self):
        return nn.Sequential(nn.Linear(6, 6), type(self).layer), 6


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (nn.BatchNorm1d(6), r'"features.1": BatchNorm1d .* replace it by torch.nn.GroupNorm'),
        (nn.BatchNorm1d(6, affine=False), "replace it by torch.nn.GroupNorm"),
        (nn.LSTM(6, 6), "replace it by opacus.layers.DPLSTM"),
        (nn.MultiheadAttention(6, 2), "replace it by opacus.layers.DPMultiheadAttention"),
        (nn.InstanceNorm1d(6, track_running_stats=True), "track_running_stats=False"),
        (Mixing(), "depend on the others of its batch"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_layers_that_mix_records_are_refused_with_their_replacement(
    layer, message, tmp_path, monkeypatch
):
    monkeypatch.setattr(Odd, "layer", layer)
    with pytest.raises(PrivacyError, match=message):
        private_network_of(member(tmp_path), Odd(3), "cpu")
    monkeypatch.setattr(Odd, "layer", nn.GroupNorm(2, 6))
    assert private_network_of(member(tmp_path, name="b"), Odd(3), "cpu")


def test_batches_of_other_methods_refuse_a_promise_they_would_not_keep():
    X, y = torch.zeros(3, 2), torch.zeros(3)
    with pytest.raises(PrivacyError, match="give no record-level privacy"):
        next(batches(X, y, LocalTraining(privacy=PROMISE), np.random.default_rng(0)))


def canary_scores(tmp_path, training, trainer, *, present, runs=160):
    """How far training moved the weights along a record that nobody else has."""
    model = LinearModel(2, 6)
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(21, 6)), rng.integers(0, 2, 21)
    X[:, 5] = 0.0
    if present:
        X[0], y[0] = [0, 0, 0, 0, 0, 8.0], 1
    else:
        X[0] = 0.0  # its place is empty but for the bias
    scores, cache = [], {}
    for run in range(runs):
        path = tmp_path / f"{present}-{training.privacy is None}-{run}.jsonl"
        client = Client("a", X, y, cache=cache, ledger=Ledger.create(path, "a"))
        client.begin(run, 0, 0)
        change = trainer(client, model, np.zeros(14, np.float32), training)
        scores.append(change[11] - change[5])
    return np.array(scores)


@pytest.mark.slow  # dozens of trainings; the noise itself is tried every day
def test_a_membership_attack_breaks_training_without_noise_and_not_with_it(tmp_path):
    """A canary along its own axis: the attack proves more than epsilon 1 without noise, at 99 %."""
    privacy = DPSGD(1.0, 1e-3, rounds=1)
    training = LocalTraining(0.5, steps=10, batch_size=10, privacy=privacy)
    bare = replace(training, privacy=None)
    proven = [
        lower_bound(
            canary_scores(tmp_path, each, trainer, present=False),
            canary_scores(tmp_path, each, trainer, present=True),
            1e-3,
            0.99,
        )
        for each, trainer in ((bare, train), (training, train_privately))
    ]
    assert proven[0] > 2.5
    assert proven[1] <= 1.0
