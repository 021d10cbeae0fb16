"""Federated learning with stated privacy: `train(clients, FedNewton(rounds=10), secure=True)`.

Names are imported when they are asked for, because torch and the compiler take seconds.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from secure_fl.data import Dataset, read_clients
    from secure_fl.privacy.promises import ClientPromise, RecordPromise, ReleasePromise
    from secure_fl.training.fitted import FittedHeads, FittedModel
    from secure_fl.training.train import train

__all__ = [
    "ClientPromise",
    "Dataset",
    "FittedHeads",
    "FittedModel",
    "RecordPromise",
    "ReleasePromise",
    "read_clients",
    "train",
]

_PLACES = {
    "ClientPromise": "secure_fl.privacy.promises",
    "Dataset": "secure_fl.data",
    "FittedHeads": "secure_fl.training.fitted",
    "FittedModel": "secure_fl.training.fitted",
    "RecordPromise": "secure_fl.privacy.promises",
    "ReleasePromise": "secure_fl.privacy.promises",
    "read_clients": "secure_fl.data",
    "train": "secure_fl.training.train",
}


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        return getattr(importlib.import_module(_PLACES[name]), name)
    if name[:1].isupper():
        # The classes of methods, as the registry found them.
        from secure_fl.trainers.registry import methods

        for method in methods():
            if method.__name__ == name:
                return method
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    from secure_fl.trainers.registry import methods

    return sorted([*__all__, *(method.__name__ for method in methods())])
