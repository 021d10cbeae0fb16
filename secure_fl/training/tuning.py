"""Settings chosen by cross-validation, with one masked sum a setting.

Heads are tried inside every client (`secure_fl.trainers.head_tuning`). A model is trained by all
clients together on two thirds of their records, and each of them counts its right answers on the
third that it left out.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from fhe.envelope import write_atomic
from secure_fl.data import Dataset
from secure_fl.errors import DivergedError, InputError
from secure_fl.federation import Client, Federation, SecureAggregation, Tree, client_step
from secure_fl.files import read_json_object
from secure_fl.progress import Progress, quiet
from secure_fl.trainers.feature_moments import SPREADS
from secure_fl.trainers.head_tuning import HeadChoice, Tried, folds_of
from secure_fl.trainers.settings import Settings
from secure_fl.training.settling import open_ended
from secure_fl.training.train import train

FORMAT_VERSION = 3
READ_VERSIONS = (1, 2, 3)
"""Version 1 does not name its scaling, and 2 has no losses."""
MAX_BYTES = 2**20


@attrs.frozen
class TriedModel:
    """A method with its settings, and right answers of records that were left out.

    Attributes:
        method: with its settings.
        right, records: counts; 0 right where training diverged.
        diverged: whether it did.
    """

    method: Settings
    right: int
    records: int
    diverged: bool = False


@client_step
def local_right_predictions(client: Client) -> Tree:
    """Records whose predicted code, the one feature, is their own, and all of them, shape (2,)."""
    return np.array([np.sum(client.features[:, 0] == client.targets), len(client)], np.int64)


def tune_models(
    clients: Sequence[Dataset],
    candidates: Sequence[Settings],
    *,
    secure: bool,
    scaling: Any,
    scale: float = 1.0,
    seed: int = 0,
    progress: Progress = quiet,
) -> tuple[TriedModel, ...]:
    """Counts for every candidate, in their order; of rounds as many as are of use.

    Args:
        clients: with the same classes and features; each needs at least 3 records.
        candidates: methods of models by rounds or sums, at least one.
        secure, scaling, scale, seed: as `train`.
        progress: told after every candidate.

    Raises:
        InputError: a client with too few records, or a method that needs a promise.
    """
    folds = [folds_of(each.y) == 0 for each in clients]
    for each, left in zip(clients, folds, strict=True):
        if not left.any() or left.all():
            raise InputError(
                f'client "{each.name}": {len(each)} records, a third must be left out for tuning;'
                " give at least 3"
            )
    rests = [each.select(np.flatnonzero(~f)) for each, f in zip(clients, folds, strict=True)]
    lefts = [each.select(np.flatnonzero(f)) for each, f in zip(clients, folds, strict=True)]
    options = {"secure": secure, "scaling": scaling, "scale": scale, "seed": seed}
    found = []
    for i, method in enumerate(candidates):
        try:
            fitted = train(rests, open_ended(method), settle=method.by_rounds(), **options)
        except DivergedError:
            found.append(TriedModel(method, 0, sum(map(len, lefts)), diverged=True))
        else:
            right, records = _counted(fitted, lefts)
            found.append(TriedModel(method, right, records))
        progress("tuning", i + 1, len(candidates))
    return tuple(found)


def _counted(fitted: Any, lefts: Sequence[Dataset]) -> tuple[int, int]:
    """Each client's right answers on what it left out, by one masked sum."""
    place = {name: code for code, name in enumerate(fitted.classes_)}
    members = [
        Client(
            each.name,
            np.array([[float(place[label])] for label in fitted.predict(each.X).tolist()]),
            each.y,
        )
        for each in lefts
    ]
    masked = SecureAggregation(clip=2.0**40, outside="error") if len(members) > 1 else None
    with Federation(members, aggregation=masked) as fed:
        right, records = fed.sum(local_right_predictions).tolist()
    return int(right), int(records)


def save_tuned(path: Path, tried: Sequence[Tried]) -> None:
    """Writes what was tried of heads, the best first among equals in the order tried."""
    content = {
        "format": FORMAT_VERSION,
        "tried": [
            {
                **attrs.asdict(each.choice),
                "right": each.right,
                "records": each.records,
                "scaling": each.scaling,
                "loss": each.loss,
            }
            for each in tried
        ],
    }
    write_atomic(path, (json.dumps(content, indent=2) + "\n").encode())


def load_tuned(path: Path) -> tuple[Tried, ...]:
    """Reads what `save_tuned` wrote.

    Raises:
        InputError: absent, too large, of another version, or damaged.
    """
    content = read_json_object(path, MAX_BYTES, "result of `securefl tune --out`")
    if content.get("format") not in READ_VERSIONS:
        raise InputError(
            f"{path}: format version {content.get('format')}, this securefl reads versions"
            f" {', '.join(map(str, READ_VERSIONS))}"
        )
    try:
        found = []
        for each in content["tried"]:
            right, records = int(each.pop("right")), int(each.pop("records"))
            scaling = str(each.pop("scaling", ""))
            if scaling not in ("", "none", *SPREADS):
                raise ValueError(f"scaling {scaling!r}")
            loss = each.pop("loss", None)
            if loss is not None:
                loss = int(loss)
            found.append(Tried(HeadChoice(**each), right, records, scaling, loss))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{path}: is no result of `securefl tune --out` ({error})") from None
    if not found:
        raise InputError(f"{path}: holds no setting; tune again")
    return tuple(found)
