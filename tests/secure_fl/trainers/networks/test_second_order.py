import importlib
import logging

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from secure_fl.federation import Client, Federation, QuorumError
from secure_fl.trainers.networks import (
    ConvNet,
    LinearModel,
    LocalTraining,
    Monitor,
    NetworkState,
    Perceptron,
    SecondOrder,
    Thresholds,
    accuracy,
    events,
    fedrco,
    interpolated,
    personal_accuracy,
    seconds,
)
from secure_fl.trainers.networks.kfac import Curvature, Preconditioner, Recorder


def backward(network, X, y):
    network.zero_grad()
    cross_entropy(network(X), y).backward()


def record_gradients(network, layer, X, y):
    """Per-record gradients of a layer, column-major (in + 1 major), by one backward a record."""
    rows = []
    for i in range(len(X)):
        backward(network, X[i : i + 1], y[i : i + 1])
        grad = torch.cat(
            [layer.weight.grad.reshape(len(layer.bias), -1), layer.bias.grad[:, None]], dim=1
        )
        rows.append(grad.T.reshape(-1).double().clone())
    return torch.stack(rows)


def test_the_factorisation_is_the_exact_fisher_for_one_layer_and_one_record():
    """With one record, E[aa'] (x) E[gg'] = E[aa' (x) gg']."""
    network = LinearModel(3, 4).build(np.random.default_rng(0))
    recorder = Recorder(network)
    X, y = torch.randn(1, 4), torch.tensor([2])
    gradients = record_gradients(network, network.head, X, y)
    ((omega, gamma),) = recorder.statistics()
    assert torch.allclose(torch.kron(omega, gamma).double(), gradients.T @ gradients, atol=1e-5)


def test_the_natural_gradient_is_that_of_the_explicit_damped_kronecker_fisher():
    torch.manual_seed(0)
    network = Perceptron(3, 4, (5,)).build(np.random.default_rng(0))
    recorder, damping = Recorder(network), 0.03
    preconditioner = Preconditioner(Curvature(damping=damping))
    X, y = torch.randn(7, 4), torch.randint(0, 3, (7,))
    backward(network, X, y)
    preconditioner.update(recorder.statistics())
    found = preconditioner.natural_gradient(recorder.layers)
    hidden = torch.relu(recorder.layers[0](X)).detach()
    residual = (torch.softmax(network(X), 1) - torch.eye(3)[y]).detach()
    upper = residual @ network.head.weight.detach() * (hidden > 0)
    for layer, step, a, g in zip(
        recorder.layers, found, (X, hidden), (upper, residual), strict=True
    ):
        a = np.c_[a.numpy(), np.ones(7)].astype(float)
        g = g.numpy().astype(float)
        omega, gamma = a.T @ a / 7, g.T @ g / 7
        pi = np.sqrt(np.trace(omega) / len(omega) * len(gamma) / np.trace(gamma))
        fisher = np.kron(
            omega + pi * np.sqrt(damping) * np.eye(len(omega)),
            gamma + np.sqrt(damping) / pi * np.eye(len(gamma)),
        )
        grad = torch.cat([layer.weight.grad, layer.bias.grad[:, None]], dim=1).numpy()
        expected = np.linalg.solve(fisher, grad.T.ravel()).reshape(grad.T.shape).T
        assert np.allclose(step.numpy(), expected, atol=1e-4)


def test_convolution_is_exact_where_the_kernel_covers_the_image():
    """One position: a convolution is a linear layer on the image, factorised exactly."""
    torch.manual_seed(0)
    conv = torch.nn.Conv2d(2, 4, 3)
    network = torch.nn.Sequential(conv, torch.nn.Flatten())
    recorder = Recorder(network)
    X, y = torch.randn(1, 2, 3, 3), torch.tensor([1])
    gradients = record_gradients(network, conv, X, y)
    ((omega, gamma),) = recorder.statistics()
    assert torch.allclose(torch.kron(omega, gamma).double(), gradients.T @ gradients, atol=1e-5)


def test_input_moments_of_a_padded_strided_convolution_are_those_of_torchs_patches():
    torch.manual_seed(0)
    conv = torch.nn.Conv2d(2, 4, (3, 2), stride=(2, 1), padding=(1, 2))
    recorder, X = Recorder(torch.nn.Sequential(conv)), torch.randn(5, 2, 7, 6)
    conv(X)
    patches = torch.nn.functional.unfold(X, (3, 2), padding=(1, 2), stride=(2, 1))
    ones = torch.ones(5, 1, patches.shape[2])
    patches = torch.cat([patches, ones], dim=1).double()
    expected = torch.einsum("nip,njp->ij", patches, patches) / 5
    (omega,) = recorder.input_moments()
    assert torch.allclose(omega.double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("more", [{"dilation": 2}, {"groups": 2}, {"padding": "same"}])
def test_convolutions_that_the_factors_do_not_describe_are_refused(more):
    with pytest.raises(ValueError, match="expected no groups, no dilation, padding by numbers"):
        Recorder(torch.nn.Sequential(torch.nn.Conv2d(2, 4, 3, **more)))


@pytest.mark.parametrize("channels", [1, 3])
def test_the_networks_images_are_the_records_pixels_channels_last_in_memory(channels):
    X = torch.randn(4, channels * 10 * 12)
    images = ConvNet(2, (channels, 10, 12)).build().features[0](X)
    assert torch.equal(images, X.reshape(4, channels, 10, 12))
    assert images.stride()[1] == 1


def test_the_older_statistics_keep_the_larger_weight_and_inversion_is_lazy():
    preconditioner = Preconditioner(Curvature(average=0.95, interval=3))
    one, two = torch.eye(2), 2 * torch.eye(2)
    preconditioner.update([(one, one)])
    preconditioner.update([(two, two)])
    assert torch.allclose(preconditioner.factors[0][0], 1.05 * one)
    assert preconditioner.inversions == 1
    for _ in range(5):
        preconditioner.update([(one, one)])
    assert preconditioner.inversions == 3


def test_warm_up_inverts_at_its_steps_too_and_anew_after_a_reset():
    """Steps 1, 3 and 5 of the warm-up and the interval's 1, 7."""
    preconditioner = Preconditioner(Curvature(interval=6, warm_up=(3, 5)))
    seen = []
    for _ in range(8):
        before = preconditioner.inversions
        preconditioner.update([(torch.eye(2), torch.eye(2))])
        seen.append(preconditioner.inversions > before)
    assert np.flatnonzero(seen).tolist() == [0, 2, 4, 6]
    preconditioner.reset()
    counted = preconditioner.inversions
    for _ in range(3):
        preconditioner.update([(torch.eye(2), torch.eye(2))])
    assert preconditioner.inversions == counted + 2
    with pytest.raises(ValueError, match="warm-up"):
        Curvature(warm_up=(0,))


def test_a_steps_norm_is_the_sum_of_its_layers_norms_or_their_joint_norm():
    assert Monitor(Thresholds()).norm([3.0, 4.0]) == 7.0
    assert Monitor(Thresholds(joint=True)).norm([3.0, 4.0]) == 5.0


def test_rollbacks_in_a_row_are_counted_over_the_ends_of_rounds(clients):
    """One step a round, each of them rolled back: with a patience of 2 the third resets."""
    model = LinearModel(3, 5)
    thresholds = Thresholds(low=1e-9, high=1e9, patience=2)
    options = SecondOrder(LocalTraining(0.01, steps=1), monitor=thresholds)
    fed = Federation(clients[:1], seed=0)
    start = NetworkState(model.initial(np.random.default_rng(0)))
    counted = []
    for _ in fed.rounds(fedrco(fed, model, start=start, rounds=3, options=options)):
        found = Federation(clients[:1]).sum(events)
        counted.append((int(found["rollbacks"]), int(found["resets"])))
    assert counted == [(1, 0), (2, 0), (2, 1)]


def test_records_that_are_held_out_judge_and_are_never_trained_on(clients, monkeypatch):
    module = importlib.import_module("secure_fl.trainers.networks.fedrco")
    seen = []

    def watched(X, y, training, rng):
        seen.append(X.numpy().copy())
        return iter(())

    judged = []

    def counted(network, X, y):
        judged.append(np.asarray(X))
        return len(y)

    monkeypatch.setattr(module, "batches", watched)
    monkeypatch.setattr(module, "correct", counted)
    client, model = clients[0], LinearModel(3, 5)
    options = SecondOrder(LocalTraining(0.01, steps=1), held_out=0.25)
    fed = Federation([client], seed=0)
    start = NetworkState(model.initial(np.random.default_rng(0)))
    for _ in fed.rounds(fedrco(fed, model, start=start, rounds=2, options=options)):
        pass
    rows = {row.tobytes() for row in client.features.astype(np.float32)}
    trained = [{row.tobytes() for row in each} for each in seen]
    judges = {row.astype(np.float32).tobytes() for each in judged for row in each}
    assert len(rows) == len(client)
    assert trained[0] == trained[1]
    assert len(judges) == round(0.25 * len(client))
    assert trained[0] | judges == rows
    assert not trained[0] & judges


def test_saved_factors_load_to_the_same_natural_gradient():
    network = Perceptron(3, 4, (5,)).build(np.random.default_rng(0))
    recorder = Recorder(network)
    X, y = torch.randn(7, 4), torch.randint(0, 3, (7,))
    backward(network, X, y)
    first, second = Preconditioner(Curvature()), Preconditioner(Curvature())
    first.update(recorder.statistics())
    second.load(first.save(), 2, "cpu")
    pairs = zip(*(p.natural_gradient(recorder.layers) for p in (first, second)), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


def test_the_monitor_follows_the_thresholds_of_the_paper():
    monitor = Monitor(Thresholds(patience=2))
    assert [monitor.judge(1.0) for _ in range(10)] == ["step"] * 10
    assert monitor.judge(9.9) == "step"
    assert monitor.judge(500.0) == "rollback"
    assert monitor.judge(float("nan")) == "reset"
    assert (monitor.history, monitor.rollbacks, monitor.resets) == ([], 1, 1)
    monitor = Monitor(Thresholds(patience=2), [0.1] * 10)
    assert [monitor.judge(n) for n in (50.0, 60.0, 90.0)] == ["rollback", "rollback", "reset"]


def test_the_better_personal_model_is_interpolated_by_the_accuracies():
    own, shared = np.ones(2, np.float32), np.zeros(2, np.float32)
    assert np.allclose(interpolated(own, shared, 0.75, 0.25), 0.75)
    assert interpolated(own, shared, 0.5, 0.5) is shared


def run(clients, model, options, rounds=8):
    fed = Federation(clients, seed=1)
    start = NetworkState(model.initial(np.random.default_rng(0)))
    for state in fed.rounds(fedrco(fed, model, start=start, rounds=rounds, options=options)):
        assert np.isfinite(state.parameters).all()
    return fed, state


@pytest.mark.parametrize("personal", [True, False])
def test_fedrco_learns(clients, personal):
    model = Perceptron(3, 5, (16,))
    options = SecondOrder(LocalTraining(0.05, steps=10, batch_size=16), personal=personal)
    fed, state = run(clients, model, options, rounds=15)
    X = np.concatenate([c.features for c in clients])
    y = np.concatenate([c.targets for c in clients])
    assert accuracy(model, state.parameters, X, y) > 0.8
    found = fed.gather(personal_accuracy, model, state.parameters, X, y)
    own = [float(each["personal_mix"]) for each in found]
    assert np.mean(own) > 0.8


def test_accuracies_on_a_clients_mix_are_those_of_its_classes():
    """Of a client with class 0 alone it is the share of class 0 that is found; else a mean."""
    from secure_fl.federation import Client

    rng = np.random.default_rng(0)
    model = LinearModel(3, 4)
    X, y = rng.normal(size=(90, 4)), np.repeat([0, 1, 2], [20, 30, 40])
    shared, own = model.initial(rng), model.initial(rng)
    one = Client("one", X[:5], np.zeros(5, dtype=int), state={"rco.model": own})
    two = Client("two", X[:4], np.array([1, 1, 1, 2]))
    found = Federation([one, two]).gather(personal_accuracy, model, shared, X, y)
    by_class = {
        name: [accuracy(model, parameters, X[y == c], y[y == c]) for c in range(3)]
        for name, parameters in (("shared", shared), ("own", own))
    }
    assert np.isclose(found[0]["personal"], accuracy(model, own, X, y))
    assert np.isclose(found[0]["personal_mix"], by_class["own"][0])
    assert np.isclose(found[0]["global_mix"], by_class["shared"][0])
    mixed = 0.75 * by_class["shared"][1] + 0.25 * by_class["shared"][2]
    assert np.isclose(found[1]["personal_mix"], mixed)
    assert np.isclose(found[1]["global_mix"], mixed)


def test_seconds_in_inversions_grow_with_their_number_and_are_no_part_of_the_state(clients):
    model = Perceptron(3, 5, (64, 64))
    spent = {}
    for interval in (1, 1000):
        for client in clients:
            client.state.clear()
            client.cache.clear()
        options = SecondOrder(
            LocalTraining(0.01, steps=30, batch_size=16), Curvature(interval=interval)
        )
        fed, _ = run(clients, model, options, rounds=1)
        times, counted = fed.sum(seconds), fed.sum(events)
        assert counted["inversions"] == (120 if interval == 1 else 4)
        assert 0 < times["inverting"] < times["training"]
        spent[interval] = float(times["inverting"])
        assert not any("second" in key for client in clients for key in client.state)
    assert spent[1] > 3 * spent[1000]


def test_clients_that_explode_reset_and_the_global_model_stays_finite(clients, caplog):
    """A NaN record at one client, and a learning rate x 1000 at all."""
    clients[0].features[3] = np.nan
    training = LocalTraining(50.0, steps=10, batch_size=16)
    with caplog.at_level(logging.WARNING):
        fed, _ = run(clients, Perceptron(3, 5, (16,)), SecondOrder(training))
    counted = fed.sum(events)
    assert counted["resets"] > 0
    assert "reset at a preconditioned norm" in caplog.text


def test_a_singular_factor_resets_and_recovers(clients):
    model = Perceptron(3, 5, (16,))
    options = SecondOrder(
        LocalTraining(0.05, steps=5, batch_size=16), Curvature(interval=1), personal=False
    )
    fed, start = run(clients, model, options, rounds=1)
    clients[0].state["kfac.factor.0.omega"] = np.full((6, 6), -1e9, np.float32)
    for state in fedrco(fed, model, start=start, rounds=4, options=options):
        assert np.isfinite(state.parameters).all()
    assert fed.sum(events)["resets"] == 1
    assert np.linalg.eigvalsh(clients[0].state["kfac.factor.0.omega"]).min() > -1e-9


def test_without_the_monitor_the_handle_refuses_what_is_not_finite(clients):
    for client in clients[1:]:
        client.features[:] = np.nan
    training = LocalTraining(0.05, steps=2, batch_size=16)
    fed = Federation(clients, threshold=2)
    model = Perceptron(3, 5, (4,))
    start = NetworkState(model.initial(np.random.default_rng(0)))
    options = SecondOrder(training, monitor=None)
    with pytest.raises(QuorumError):
        next(fedrco(fed, model, start=start, rounds=1, options=options))


def test_the_convolutional_network_takes_second_order_steps():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(20, 144)), rng.integers(0, 3, 20)
    options = SecondOrder(LocalTraining(0.01, steps=2, batch_size=8))
    _, state = run([Client("a", X, y)], ConvNet(3, (1, 12, 12)), options, rounds=1)
    assert state.round == 1


def test_a_convolutional_run_that_was_cut_has_the_bits_of_a_whole_one(tmp_path):
    """Inverses come from LAPACK transposed, and a transposed matrix is summed in another order."""
    rng = np.random.default_rng(0)
    X, y = rng.random((200, 144)).astype(np.float32), rng.integers(0, 4, 200)
    model = ConvNet(4, (1, 12, 12))
    start = NetworkState(model.initial(rng))
    options = SecondOrder(LocalTraining(0.01, steps=5, batch_size=16), Curvature(interval=7))

    def federation() -> Federation:
        return Federation([Client(f"c{i}", X[i::2], y[i::2]) for i in range(2)])

    def last(fed, start, rounds, checkpoint=None):
        states = fedrco(fed, model, start=start, rounds=rounds, options=options)
        *_, state = fed.rounds(states, checkpoint=checkpoint)
        return state.parameters

    whole = last(federation(), start, 6)
    last(federation(), start, 3, tmp_path / "kept")
    again = federation()
    rest = last(again, again.resume(tmp_path / "kept"), 6, tmp_path / "kept")
    assert rest.tobytes() == whole.tobytes()
