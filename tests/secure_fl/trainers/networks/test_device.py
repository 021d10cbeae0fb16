from dataclasses import replace

import numpy as np
import pytest
import torch

from secure_fl.errors import InputError
from secure_fl.federation import Client, Federation
from secure_fl.trainers.networks import (
    ConvNet,
    LocalTraining,
    NetworkState,
    Regularization,
    SecondOrder,
    choose_device,
    deterministic,
    fedavg,
    fedavgr,
    fedpm,
    fedrco,
)

MODEL = ConvNet(3, (1, 12, 12))
LOCAL = LocalTraining(0.01, steps=3, batch_size=8)
TERMS = Regularization(1e-4, 1e-4, 1e-2)

TRAINERS = {
    "FedAvg": lambda fed, local, **o: fedavg(
        fed, MODEL, training=replace(local, momentum=0.9), **o
    ),
    "FedAvgR": lambda fed, local, **o: fedavgr(
        fed, MODEL, training=local, regularization=TERMS, **o
    ),
    "FedPM": lambda fed, local, **o: fedpm(fed, MODEL, training=local, **o),
    "FedRCO": lambda fed, local, **o: fedrco(fed, MODEL, options=SecondOrder(local), **o),
}


def trained(trainer, device, workers=1):
    rng = np.random.default_rng(0)
    clients = [
        Client(f"c{k}", rng.normal(size=(20, 144)), rng.integers(0, 3, 20)) for k in range(3)
    ]
    start = NetworkState(MODEL.initial(np.random.default_rng(1)))
    local = replace(LOCAL, device=device)
    with Federation(clients, seed=4, workers=workers) as fed:
        *_, state = fed.rounds(TRAINERS[trainer](fed, local, start=start, rounds=2))
    return state.parameters


@pytest.mark.parametrize("trainer", TRAINERS)
def test_equal_seeds_give_equal_bits_in_deterministic_mode(trainer):
    with deterministic():
        first, second = (trained(trainer, choose_device()) for _ in range(2))
    assert np.isfinite(first).all()
    assert first.tobytes() == second.tobytes()


@pytest.mark.parametrize("trainer", TRAINERS)
def test_several_workers_give_the_bits_of_one(trainer):
    with deterministic():
        assert trained(trainer, "cpu", "threads:3").tobytes() == trained(trainer, "cpu").tobytes()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("trainer", TRAINERS)
def test_processor_and_graphics_card_agree(trainer):
    with deterministic():
        gap = np.abs(trained(trainer, "cuda") - trained(trainer, "cpu"))
    assert gap.max() < 1e-3


def test_deterministic_mode_ends_with_its_block():
    before = torch.are_deterministic_algorithms_enabled()
    with deterministic():
        assert torch.are_deterministic_algorithms_enabled()
        with deterministic():
            pass
        assert torch.are_deterministic_algorithms_enabled()
    assert torch.are_deterministic_algorithms_enabled() == before


def test_a_device_that_is_not_there_is_refused():
    assert choose_device() == ("cuda" if torch.cuda.is_available() else "cpu")
    assert choose_device("cpu") == "cpu"
    with pytest.raises(InputError, match="expected auto, cpu, cuda"):
        choose_device("abacus")
    with pytest.raises(InputError, match="CUDA devices; take cpu or auto"):
        choose_device("cuda:99")
    with pytest.raises(InputError, match="take cpu or auto"):
        choose_device("meta")
