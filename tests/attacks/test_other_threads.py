"""A private run is repeated with another number of threads.

The same step of the same run has the same message, and is booked once. Torch adds up in an order
that depends on its threads: with other ones the sums of gradients differ in their last digits, so
their noise, whose key they are part of, is drawn anew, and the server has two messages for one
booking. Their mean carries less noise than was paid for.
"""

from pathlib import Path

import numpy as np
import torch

from dp import Ledger
from secure_fl.federation import Client
from secure_fl.trainers.networks import DPSGD, FourierModel, LocalTraining
from secure_fl.trainers.networks.dpsgd import train_privately
from tests.attacks.table import Attack

ATTACK = Attack(
    name="Have a private run repeated with other threads",
    holds="server: stops a client's run and has it resumed by another number of cores or workers",
    before="a second message under independent noise for the same booking (whole update differs)",
    after="the very message that it has",
)
MODEL = FourierModel(10, 784, 128)
TRAINING = LocalTraining(0.5, steps=1, batch_size=64, privacy=DPSGD(4.0, 1e-4, rounds=1))


def message(ledger: Ledger, threads: int) -> np.ndarray:
    """What the client sends in round 0 from the same start, computed with so many threads."""
    rng = np.random.default_rng(0)
    client = Client("c", rng.normal(size=(256, 784)), rng.integers(0, 10, 256), ledger=ledger)
    client.begin(0, 0, 0)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        found = train_privately(client, MODEL, MODEL.initial(np.random.default_rng(0)), TRAINING)
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    return found


def test_other_threads_repeat_the_very_message(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "c.jsonl", "c", None)
    first, second = message(ledger, 1), message(ledger, 2)
    assert len(ledger.events) == 1
    assert np.array_equal(first, second)
