"""What a user's type checker sees; `make check` reads it, nothing runs it.

A setting that a class does not have is an error here, and what mypy calls an error without need
would be one at every user.
"""

from pathlib import Path

import numpy as np

import dp
import fhe
import secure_fl
from kahm import SpaceFoldingClassifier
from secure_fl.trainers.methods.averaging import FedAvg
from secure_fl.trainers.methods.fednl import FedNLLineSearch
from secure_fl.trainers.methods.kahm import KAHMHeads
from secure_fl.trainers.methods.networks import FedAvgR
from secure_fl.trainers.methods.newton import FedNewton


def settings() -> list[object]:
    """Of several methods."""
    return [
        FedAvg(rounds=3, learning_rate=0.1),
        FedNewton(rounds=2, ridge=0.1, safeguard=False),
        FedNLLineSearch(rounds=5, compressor="top-k"),
        KAHMHeads(batch_size=20, bits=6, rule="masked"),
        FedAvgR(rounds=2),
        FedAvg(rate=3),  # type: ignore[call-arg]  # no such setting: mypy must say so
    ]


def front_door(folder: Path) -> None:
    """The library's own words."""
    clients = secure_fl.read_clients(folder)
    model = secure_fl.train(clients, FedNewton(rounds=10), secure=True)
    model.save(folder / "model")
    SpaceFoldingClassifier(batch_size=50).fit(np.eye(4), np.arange(4)).predict(np.eye(4))
    print(dp.__name__, fhe.__name__)
