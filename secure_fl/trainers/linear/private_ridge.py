"""A linear head with record-level privacy, from one private sum of second moments.

Ridge regression needs of the records only X'X and X'Y (sufficient statistics perturbation; Vu and
Slavkovic 2009, Wang 2018). Every client clips its records to a public norm, adds its part of the
noise to its moments, and the server sees the masked sum alone. What is left in it hides any one
record, its label included; everything after it is post-processing, so the head may be published.

The ridge is no parameter: it is the edge 2 s sqrt(d) of the spectrum of a symmetric d by d matrix
of noise of deviation s (Wigner's semicircle), below which an eigenvalue of the noisy moments says
nothing. So nothing is tuned on private records.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dp import Ledger
from secure_fl.errors import InputError
from secure_fl.federation import Federation, broadcastable, calibrate
from secure_fl.objectives.base import Array
from secure_fl.privacy.promises import Neighbours
from secure_fl.trainers.linear._noisy_moments import (
    SENSITIVITIES,
    MomentNoise,
    moment_count,
    moment_event,
    noisy_moments,
)
from secure_fl.trainers.linear._record_noise import SumNoise, check_task, checked


@broadcastable
@dataclass(frozen=True, eq=False)
class PrivateRidgeState:
    """What was released; all of it is public.

    Attributes:
        weights: the head, shape (d, C), without a constant; scores are x W.
        gram: noisy X'X of the clipped records over norm^2, shape (d, d).
        cross: noisy X'Y of the clipped records over norm (of targets: over both norms), shape (d,
            C).
        ridge: added to the Gram matrix's eigenvalues, those below 0 being taken for 0.
        round: 1.
    """

    weights: Array
    gram: Array
    cross: Array
    ridge: float
    round: int = 1


def private_ridge(
    fed: Federation,
    *,
    features: int,
    outputs: int,
    norm: float,
    epsilon: float,
    ledger: Ledger,
    delta: float = 1e-5,
    colluding: int = 0,
    adjacency: Neighbours = "replace",
    target_norm: float | None = None,
) -> Iterator[PrivateRidgeState]:
    """Yields one state: a head that hides every single record of every client.

    Args:
        fed: clients under secure aggregation, so that the server sees no client's smaller noise.
            Its threshold says how many parts of the noise are surely in the sum.
        features: d.
        outputs: C.
        norm: public L2 norm that records are clipped to, > 0. Clipping shortens a record and does
            not turn it, so scores of a linear head without a constant keep their order.
        epsilon: > 0, per record, its label included.
        ledger: the books; where they have a budget it must be per `record_unit(norm, adjacency)`.
        delta: in (0, 1).
        colluding: clients whose part of the noise the server might learn from them, >= 0.
        adjacency: whether a record is replaced, or added or removed.
        target_norm: where y are numbers: public L2 norm that a record's C targets are clipped to,
            > 0. The scores are then of records clipped to `norm` and divided by it; None where y
            are codes of C classes.

    Raises:
        PrivacyError: no secure aggregation, or no honest client is surely left.
        BudgetError: the ledger's budget would be exceeded; nothing was drawn.
        QuorumError: fewer clients survived than the threshold; the books keep the event.
    """
    least = 2 if target_norm is None else 1
    check_task("private_ridge", norm, features, outputs, least=least)
    if target_norm is not None and not (np.isfinite(target_norm) and target_norm > 0):
        raise InputError(f"target norm: found {target_norm}, expected it finite and above 0")
    multiplier = calibrate(epsilon, delta, 1)
    size = moment_count(features, outputs)
    sensitivity = SENSITIVITIES[checked(adjacency)]
    sized = SumNoise.sized(fed, sensitivity, size, multiplier, colluding)
    noise = MomentNoise(norm, outputs, sized.sigma, adjacency, target_norm)
    ledger.spend(moment_event(features, noise, sized.multiplier))
    found = noisy_moments(fed, noise, features)
    weights = ridge_solution(found.gram, found.cross, found.edge)
    if target_norm is not None:
        # Of records over their norm, and targets over theirs.
        weights = weights * (target_norm / norm)
    yield PrivateRidgeState(weights, found.gram, found.cross, found.edge)


def ridge_solution(gram: Array, cross: Array, ridge: float) -> Array:
    """(gram + ridge)^-1 cross, where eigenvalues of `gram` below 0 are taken for 0."""
    values, vectors = np.linalg.eigh(gram)
    solution: Array = vectors / (np.maximum(values, 0.0) + ridge) @ (vectors.T @ cross)
    return solution
