"""What labelled public queries say of answers: accuracy by distance, and without each contributor.

Both want labels, and queries whose owner minds nothing: what is found about them is shown.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from kahm import classify
from secure_fl.errors import InputError

BANDS = 10
"""Of a calibration: tenths of the queries, as far as their distances differ."""


@frozen
class Band:
    """Queries whose answers have similar distances.

    Attributes:
        least: smallest distance among them.
        most: largest distance among them.
        queries: how many.
        right: of them, answered with their label.
    """

    least: float
    most: float
    queries: int
    right: int

    @property
    def accuracy(self) -> float:
        """Share of right answers."""
        return self.right / self.queries


def calibrate(distances: NDArray[np.float64], right: NDArray[np.bool_]) -> list[Band]:
    """Accuracy by distance, in bands of about equally many queries, nearest first.

    Args:
        distances: of the answers, shape (queries,), at least one.
        right: whether each answer is its query's label, shape (queries,).

    Raises:
        InputError: no query.
    """
    if len(distances) == 0:
        raise InputError("calibration: of 0 queries, at least 1 is needed")
    edges = np.unique(np.quantile(distances, np.arange(1, BANDS + 1) / BANDS, method="higher"))
    # Equal distances are in one band: which of them would be in the next is chance.
    band = np.searchsorted(edges, distances)
    found = []
    for i in range(len(edges)):
        there = band == i
        near = distances[there]
        found.append(
            Band(float(near.min()), float(near.max()), int(there.sum()), int(right[there].sum()))
        )
    return found


@frozen
class Without:
    """Answers without one contributor, beside those of all.

    Attributes:
        client: the contributor.
        right: answers that are right without it.
        helped: queries that are right with it and wrong without it.
        harmed: queries that are wrong with it and right without it.
        changed: queries whose answer is another one without it.
    """

    client: str
    right: int
    helped: int
    harmed: int
    changed: int


def label_indices(labels: Sequence[str], classes: Sequence[str]) -> NDArray[np.int64]:
    """Positions of labels in the class list, -1 for one that is not in it, shape (queries,)."""
    places = {name: i for i, name in enumerate(classes)}
    return np.array([places.get(label, -1) for label in labels], np.int64)


def compared(
    client: str, whole: NDArray[Any], rest: NDArray[Any], labels: NDArray[np.int64]
) -> Without:
    """What answers without a contributor are, beside those of all.

    Args:
        client: the contributor.
        whole: classes that all answer, shape (queries,).
        rest: classes that the others answer, shape (queries,).
        labels: class indices, shape (queries,); -1 is never right.
    """
    right, fine = whole == labels, rest == labels
    helped, harmed = int(np.sum(right & ~fine)), int(np.sum(fine & ~right))
    return Without(client, int(fine.sum()), helped, harmed, int(np.sum(rest != whole)))


def leave_one_out(
    values: NDArray[Any], clients: Sequence[str], labels: NDArray[np.int64]
) -> tuple[int, list[Without]]:
    """Right answers of all contributors, and what they are without each of them in turn.

    Every rule names the class of the smallest value, so this holds for whichever one runs.

    Args:
        values: measures or codes, shape (queries, contributors, classes).
        clients: names of the contributors.
        labels: class indices, shape (queries,); -1 is never right.

    Raises:
        InputError: a single contributor, without whom nobody answers.
    """
    if len(clients) < 2:
        raise InputError(
            f"leave one out: {len(clients)} contributor is here, at least 2 are needed; without it"
            " nobody answers"
        )
    # Without a contributor the smallest value of a class is the second smallest, if it was its own.
    first, second = np.partition(values, 1, axis=1)[:, :2].swapaxes(0, 1)
    holder = values.argmin(axis=1)
    whole = classify(values)
    found = []
    for i, client in enumerate(clients):
        rest = classify(np.where(holder == i, second, first)[:, None])
        found.append(compared(client, whole, rest, labels))
    return int(np.sum(whole == labels)), found
