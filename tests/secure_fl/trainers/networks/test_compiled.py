"""Compiled loops of local training against torch's autograd."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from secure_fl.federation import Client, Federation
from secure_fl.trainers.networks import FourierModel, LinearModel, LocalTraining, Regularization
from secure_fl.trainers.networks.compiled import FAR, Descent, descend, waves
from secure_fl.trainers.networks.fedavgr import regularized_change
from secure_fl.trainers.networks.local import Autograd, as_vectors, is_compiled
from tests.secure_fl.trainers.networks.gradient_cases import CLASSES, INPUTS, cases


@settings(max_examples=60)
@given(st.booleans(), cases())
def test_a_step_is_the_gradient_that_autograd_finds(normalised, case):
    model = FourierModel(CLASSES, INPUTS, 8, 0.7, normalised=normalised)
    network = model.build(case.rng)
    initial, order = model.initial(case.rng), case.rng.permutation(len(case.y))
    _, gradients = as_vectors(network, initial)
    centres = case.centres(8)
    means = None if centres is None else torch.from_numpy(centres)
    autograd = Autograd(network, gradients, case.terms, means)
    autograd(torch.from_numpy(case.x), torch.from_numpy(case.y))
    descent = Descent(model, initial, (1.0, 0.0, 0.0), case.terms, centres)
    descent.run(case.x, case.y, order, 12)
    assert np.allclose(-descent.change(), gradients.numpy(), atol=2e-6, rtol=2e-5)


@pytest.mark.parametrize("largest", [1.0, 100.0, FAR, 1e6])
def test_waves_are_cosine_and_sine_to_single_precision(largest):
    """Of angles in any quarter; the oracle is in double precision."""
    angles = np.random.default_rng(0).uniform(-largest, largest, 5003).astype(np.float32)
    found, slopes = angles.copy(), np.empty_like(angles)
    waves(found, np.float32(1), slopes)
    exact = angles.astype(np.float64)
    np.testing.assert_allclose(found, np.cos(exact), rtol=0, atol=1.2e-7)
    np.testing.assert_allclose(slopes, -np.sin(exact), rtol=0, atol=1.2e-7)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_waves_of_what_is_no_angle_are_no_numbers(bad):
    angles = np.array([0.5, bad, 0.25], np.float32)
    slopes = np.empty_like(angles)
    waves(angles, np.float32(1), slopes)
    assert np.isnan([angles[1], slopes[1]]).all()
    np.testing.assert_allclose(angles[[0, 2]], np.cos([0.5, 0.25]), atol=1.2e-7)


def test_the_trace_norm_leaves_directions_that_a_head_lacks_at_zero():
    """Its subgradient of least norm: with one row of W at 0 it has a row of 0."""
    model = FourierModel(2, 3, 4)
    parameters = model.initial(np.random.default_rng(0))
    head = slice(4 * 3 + 4, 4 * 3 + 4 + 8)
    parameters[head] = [3, 0, 4, 0, 0, 0, 0, 0]
    x, y = np.zeros((2, 3), np.float32), np.array([0, 1])
    found = []
    for trace in (1.0, 0.0):
        descent = Descent(model, parameters, (1.0, 0.0, 0.0), Regularization(trace), None)
        descent.run(x, y, np.arange(2), 2)
        found.append(descent.change()[head])
    assert np.allclose(found[1] - found[0], [0.6, 0, 0.8, 0, 0, 0, 0, 0], atol=1e-6)


@pytest.mark.parametrize("where", ["records", "parameters"])
def test_what_is_not_finite_stays_so(where):
    """The handle then refuses the update."""
    model = FourierModel(3, 5, 8, 0.7)
    parameters = model.initial(np.random.default_rng(0))
    x, y = np.ones((4, 5), np.float32), np.zeros(4, np.int64)
    (x if where == "records" else parameters)[-1] = np.nan
    descent = Descent(model, parameters, (0.1, 0.9, 0.1), Regularization(0.1, 0.1, 0.1), None)
    descent.run(x, y, np.arange(4), 4)
    assert not np.isfinite(descent.change()).any()


def test_small_batches_of_fourier_features_on_the_processor_are_compiled():
    small = FourierModel(2, 3)
    assert is_compiled(small, LocalTraining())
    for model, training in (
        (LinearModel(2, 3), LocalTraining()),
        (small, LocalTraining(batch_size=65)),
        (small, LocalTraining(device="cuda")),
        (FourierModel(9, 3, width=8), LocalTraining()),
        (FourierModel(2, 3, width=50_000), LocalTraining()),
    ):
        assert not is_compiled(model, training)


def test_parameters_of_another_model_are_refused():
    with pytest.raises(ValueError, match=r"found shape \(3,\), the model has \(6,\)"):
        Descent(FourierModel(2, 1, 1), np.zeros(3, np.float32), (0.1, 0.0, 0.0), None, None)


def test_records_of_any_layout_are_trained_on_by_the_same_machine_code():
    """A client's records may be every third of a table; compiling takes seconds each time."""
    model, rng = FourierModel(3, 5, 8, 0.7), np.random.default_rng(0)
    X, y = rng.normal(size=(60, 5)).astype(np.float32), rng.integers(0, 3, 60)
    initial, training = model.initial(np.random.default_rng(1)), LocalTraining(0.1, epochs=2)
    changes = []
    for records, labels in (
        (X[::3], y[::3]),
        (np.asfortranarray(X[::3]), y[::3]),
        (X[::3].copy(), y[::3].copy()),
    ):
        with Federation([Client("a", records, labels)], seed=0) as fed:
            changes.append(
                fed.mean(regularized_change, model, initial, training, Regularization(), None)
            )
    assert np.array_equal(changes[0], changes[2])
    assert np.array_equal(changes[1], changes[2])
    layouts = {(s[0].layout, s[1].layout) for s in descend.signatures}
    assert layouts == {("C", "C")}
