"""Closed-form gradients against torch's autograd."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from secure_fl.trainers.networks import (
    ConvNet,
    FourierModel,
    LinearModel,
    LocalTraining,
    NetworkState,
    Perceptron,
    Regularization,
    fedavgr,
)
from secure_fl.trainers.networks.closed_form import ClosedForm, has_closed_form
from secure_fl.trainers.networks.local import Autograd, as_vectors
from tests.secure_fl.trainers.networks.gradient_cases import CLASSES, INPUTS, cases


@settings(max_examples=60)
@given(st.sampled_from(["none", "kernel", "paper"]), cases())
def test_the_closed_form_is_the_gradient_that_autograd_finds(fourier, case):
    model, width = LinearModel(CLASSES, INPUTS), INPUTS
    if fourier != "none":
        model, width = FourierModel(CLASSES, INPUTS, 8, 0.7, normalised=fourier == "kernel"), 8
    network = model.build(case.rng)
    _, gradients = as_vectors(network, model.initial(case.rng))
    centres = case.centres(width)
    means = None if centres is None else torch.from_numpy(centres)
    found = []
    for kind in (Autograd, ClosedForm):
        gradients.fill_(7.0)
        step = kind(network, gradients, case.terms, means)
        step(torch.from_numpy(case.x), torch.from_numpy(case.y))
        found.append(gradients.clone())
    assert torch.allclose(found[0], found[1], atol=2e-6, rtol=2e-5)


LOCAL = "secure_fl.trainers.networks.local"


@pytest.mark.parametrize("model", [FourierModel(3, 5, 8, 0.7), LinearModel(3, 5)])
@pytest.mark.parametrize(
    ("length", "by_class"),
    [({"epochs": 2}, False), ({"steps": 5}, True), ({"epochs": 2, "batch_size": 23}, False)],
)
def test_training_is_the_same_by_any_gradient(clients, model, length, by_class, monkeypatch):
    """By compiled loops, where they take the model, by the closed form, and by autograd."""
    from secure_fl.federation import Federation

    def trained():
        states = fedavgr(
            Federation(clients, seed=2),
            model,
            start=NetworkState(model.initial(np.random.default_rng(0))),
            rounds=3,
            training=LocalTraining(0.1, momentum=0.9, proximal=0.01, **length),
            regularization=Regularization(1e-3, 1e-2, 0.3, per_class=by_class),
        )
        *_, state = states
        return state.parameters

    found = [trained()]
    monkeypatch.setattr(f"{LOCAL}.is_compiled", lambda model, training: False)
    found.append(trained())
    monkeypatch.setattr(f"{LOCAL}.has_closed_form", lambda network, device: False)
    found.append(trained())
    assert np.allclose(found[0], found[2], atol=1e-5)
    assert np.allclose(found[1], found[2], atol=1e-5)


def test_other_networks_and_devices_take_autograd():
    for model, closed in (
        (LinearModel(2, 3), True),
        (FourierModel(2, 3), True),
        (Perceptron(2, 3), False),
        (ConvNet(2, (1, 10, 10)), False),
    ):
        assert has_closed_form(model.build(), "cpu") == closed
        assert not has_closed_form(model.build(), "cuda")


def test_a_batch_that_is_not_finite_gives_a_gradient_that_is_not():
    model = FourierModel(3, 5, 8, 0.7)
    network = model.build(np.random.default_rng(0))
    _, gradients = as_vectors(network, model.initial(np.random.default_rng(0)))
    x, y = torch.full((4, 5), torch.nan), torch.zeros(4, dtype=torch.int64)
    ClosedForm(network, gradients, Regularization(0.1, 0.1, 0.1), None)(x, y)
    assert not gradients.isfinite().any()
