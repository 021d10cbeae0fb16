"""A distinguishing attack on heads of noisy sums: an empirical lower bound on epsilon per record.

The server is the attacker. It may broadcast any weights and any whitening, so it asks for what
tells most, and adds up what it saw of all sums as the best test does. Exact parts and noise come
from the functions that clients run; the noise is that of the fewest clients that a sum may have.

The pairs attain every sensitivity at once. With two features and two classes a residual always
points along (1, -1). `kahm-record-private`: records of one label at 120 degrees, the worst for
the moments, which a whitening along the difference of both makes opposite. `private-gradient`: a
record and its opposite; added or removed, one record and none.
"""

import math
from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np
from attrs import frozen

from dp.audit import Audit, lower_bound
from secure_fl.errors import InputError
from secure_fl.federation import Client, Federation, SecureAggregation, calibrate
from secure_fl.objectives.base import Array
from secure_fl.privacy.promises import Neighbours, record_unit
from secure_fl.trainers.linear._noisy_moments import exact_moments
from secure_fl.trainers.linear._record_noise import checked, with_noise
from secure_fl.trainers.linear.kahm_record_private import REFINEMENTS, noise_of_sums, residual_sum
from secure_fl.trainers.linear.noisy_gradient import CLIP, gradient_sum, noise_of_rounds, total

Method: TypeAlias = Literal["kahm-record-private", "private-gradient"]
CLASSES = FEATURES = 2
ROUNDS = 4
"""Of gradients that the attack sees; their noise is that of so many."""
RUNS_AT_ONCE = 20_000


@frozen(eq=False)
class Sum:
    """One kind of sum, as the attacker asks for it.

    Attributes:
        exact: of both neighbours, flat.
        sigma: of one client's part of the noise, in grid steps.
        times: that it is asked for.
    """

    exact: tuple[Array, Array]
    sigma: float
    times: int


def audit_records(
    *,
    method: Method,
    epsilon: float,
    delta: float,
    adjacency: Neighbours = "replace",
    norm: float = 1.0,
    runs: int = 200_000,
    confidence: float = 0.99,
    noise_share: float = 1.0,
    clients: int = 2,
) -> Audit:
    """Attacks all sums of a run together.

    Args:
        method: whose sums.
        epsilon, delta, adjacency, norm: the promise; it depends on the norm in name alone.
        runs: of each neighbour, at least 1000.
        confidence: in (0, 1).
        noise_share: of the noise that is really drawn; below 1 only to see the audit fail.
        clients: at least 2.

    Raises:
        InputError: an argument cannot be used.
    """
    if runs < 1000:
        raise InputError(f"runs: found {runs}, expected at least 1000")
    if not 0 < confidence < 1:
        raise InputError(f"confidence: found {confidence!r}, expected it in (0, 1)")
    if not 0 < noise_share <= 1:
        raise InputError(f"noise share: found {noise_share!r}, expected it in (0, 1]")
    unit = record_unit(norm, checked(adjacency))
    multiplier = noise_share * calibrate(epsilon, delta, 1)
    members = [
        Client(f"client{i}", np.zeros((1, FEATURES)), np.zeros(1, dtype=np.int64))
        for i in range(clients)
    ]
    with Federation(members, aggregation=SecureAggregation()) as fed:
        ask = _heads if method == "kahm-record-private" else _gradients
        sums, fewest = ask(fed, multiplier, adjacency), fed.threshold
    first, second = (_seen(sums, which, fewest, runs) for which in (0, 1))
    bound = lower_bound(first, second, delta, confidence)
    less = f" with {noise_share:g} of the noise" if noise_share < 1 else ""
    name = f"{method}, noisy sums{less}"
    return Audit(float(epsilon), float(delta), unit.unit, bound, confidence, runs, name)


def _pair(adjacency: Neighbours, cosine: float) -> tuple[Array, Array]:
    """Records of both data sets, each of shape (n, 2)."""
    record = np.array([[1.0, 0.0]])
    if adjacency == "add-remove":
        return np.zeros((0, FEATURES)), record
    return np.array([[cosine, math.sqrt(1 - cosine**2)]]), record


def _heads(fed: Federation, multiplier: float, adjacency: Neighbours) -> list[Sum]:
    coarse, fine = noise_of_sums(fed, FEATURES, CLASSES, multiplier, adjacency)
    pair = _pair(adjacency, -0.5)
    apart = pair[1][0] - (pair[0][0] if len(pair[0]) else 0.0)
    whitening = np.outer(apart, apart)
    weights = np.zeros((FEATURES, CLASSES))
    # Uninformed predictions leave less than the clip: the attacker's weights are wrong.
    weights[:, 1] = 50 * _bisector(pair)
    labels = [np.zeros(len(rows), dtype=np.int64) for rows in pair]
    moments = [exact_moments(rows, y, CLASSES) for rows, y in zip(pair, labels, strict=True)]
    rest = [
        residual_sum(rows, y, weights, whitening).ravel()
        for rows, y in zip(pair, labels, strict=True)
    ]
    return [
        Sum((moments[0], moments[1]), coarse.sigma, 1),
        Sum((rest[0], rest[1]), fine.sigma, REFINEMENTS),
    ]


def _bisector(pair: tuple[Array, Array]) -> Array:
    """A direction that all records of the pair lie along, in part."""
    return np.concatenate(pair).sum(axis=0)


def _gradients(fed: Federation, multiplier: float, adjacency: Neighbours) -> list[Sum]:
    first, noises = noise_of_rounds(fed, FEATURES, CLASSES, ROUNDS, multiplier, adjacency)
    pair = _pair(adjacency, -1.0)
    exact = [
        gradient_sum(
            rows, np.zeros(len(rows), dtype=np.int64), np.zeros((FEATURES, CLASSES)), CLIP
        ).ravel()
        for rows in pair
    ]
    means = [total(rows) for rows in pair]
    return [
        Sum((means[0], means[1]), first.sigma, 1),
        Sum((exact[0], exact[1]), noises[CLIP].sigma, ROUNDS),
    ]


def _seen(sums: Sequence[Sum], which: int, parts: int, runs: int) -> Array:
    """The best test's statistic of every run: projections, each over its noise's variance."""
    found = np.zeros(runs)
    for each in sums:
        apart = (each.exact[1] - each.exact[0]) / each.sigma**2
        for start in range(0, runs, RUNS_AT_ONCE):
            count = min(RUNS_AT_ONCE, runs - start)
            for _ in range(each.times):
                own = np.tile(each.exact[which], count)
                total = with_noise(own, each.sigma)
                for _ in range(parts - 1):
                    total = total + with_noise(np.zeros(len(own)), each.sigma)
                found[start : start + count] += total.reshape(count, -1) @ apart
    return found
