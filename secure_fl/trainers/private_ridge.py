"""A linear head with record-level privacy, from one private sum of second moments.

Ridge regression needs of the records only X'X and X'Y (sufficient statistics perturbation; Vu and
Slavkovic 2009, Wang 2018). Every client clips its records to a public norm, adds its part of the
noise to its moments, and the server sees the masked sum alone. What is left in it hides any one
record, its label included; everything after it is post-processing, so the head may be published.

The ridge is no parameter: it is the edge 2 s sqrt(d) of the spectrum of a symmetric d by d matrix
of noise of deviation s (Wigner's semicircle), below which an eigenvalue of the noisy moments says
nothing. So nothing is tuned on private records.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dp import Event, Gaussian, Ledger, Record
from secure_fl.errors import InputError
from secure_fl.federation import (
    Client,
    Federation,
    PrivacyError,
    Tree,
    broadcastable,
    calibrate,
    client_step,
)
from secure_fl.federation.privacy import TAIL, distributed_multiplier, part_noise
from secure_fl.federation.steps import NoisySum, promise_of
from secure_fl.objectives.base import Array, scale_rows
from secure_fl.trainers._client import records

SENSITIVITY = math.sqrt(4.5)
"""L2 norm by which replacing one record of norm <= 1 changes (X'X, X'Y) together.

With the same label and norms 1, and t the cosine between both records, its square is
2 (1 - t) + 2 (1 - t^2), largest at t = -1/2. Another label gives at most 4, smaller norms give
less."""
GRID = 2.0**-20
"""Noise and moments are multiples of this."""


@broadcastable
@dataclass(frozen=True)
class MomentNoise:
    """What a client needs to know to add its part of the noise.

    Attributes:
        norm: records are clipped to this L2 norm, then divided by it.
        outputs: C.
        sigma: of one client's part, in grid steps.
    """

    norm: float
    outputs: int
    sigma: float


@broadcastable
@dataclass(frozen=True, eq=False)
class PrivateRidgeState:
    """What was released; all of it is public.

    Attributes:
        weights: the head, shape (d, C), without a constant; scores are x W.
        gram: noisy X'X of the clipped records over norm^2, shape (d, d).
        cross: noisy X'Y of the clipped records over norm, shape (d, C).
        ridge: added to the Gram matrix's eigenvalues, those below 0 being taken for 0.
        round: 1.
    """

    weights: Array
    gram: Array
    cross: Array
    ridge: float
    round: int = 1


@client_step
def local_noisy_moments(client: Client, noise: MomentNoise) -> Tree:
    """Both moments as one vector of grid multiples, with this client's part of the noise.

    Off-diagonal entries of the symmetric part stand once, times sqrt(2), so that the vector's norm
    is the matrices'. The noise is fresh from the operating system: every call is a new release.
    """
    X, y = records(client)
    if y.size and not 0 <= int(y.min()) <= int(y.max()) < noise.outputs:
        raise InputError(f"class codes from {y.min()} to {y.max()}, {noise.outputs} classes")
    clipped = _clipped(X, noise.norm)
    hot = np.zeros((len(y), noise.outputs))
    hot[np.arange(len(y)), y] = 1.0
    gram = clipped.T @ clipped
    gram = gram if isinstance(gram, np.ndarray) else gram.toarray()
    exact = np.concatenate([_packed(gram), (clipped.T @ hot).ravel()])
    codes = np.rint(exact / GRID).astype(np.int64)
    return (codes + part_noise(noise.sigma).draw(len(codes))) * GRID


@promise_of(local_noisy_moments)
def noisy_moments(client: Client, fewest: int, most: int, noise: MomentNoise) -> NoisySum:
    """What a sum of noisy moments costs, as any of its clients can tell."""
    event = _event(client.features.shape[1], fewest, most, noise)
    # Records have norm 1; the number of records is the same in neighbouring data sets.
    return NoisySum(event, len(client) * math.sqrt(2.0) + TAIL * noise.sigma * GRID, GRID)


def _event(features: int, fewest: int, most: int, noise: MomentNoise) -> Event:
    size = _entries(features, noise.outputs)
    booked = distributed_multiplier(_sensitivity(size), noise.sigma, fewest, most, size)
    what = f"noisy second moments of {features} features and {noise.outputs} classes"
    return Event(what, Record(noise.norm), gaussian=Gaussian(booked, discrete=True))


def _entries(features: int, outputs: int) -> int:
    return features * (features + 1) // 2 + features * outputs


def _sensitivity(size: int) -> float:
    # Rounding moves each entry of either data set's moments by at most half a step, and the
    # rounding errors of sums of up to 10^6 records stay far below a hundredth of one.
    return SENSITIVITY / GRID + 1.01 * math.sqrt(size)


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
) -> Iterator[PrivateRidgeState]:
    """Yields one state: a head that hides every single record of every client.

    Args:
        fed: clients under secure aggregation, so that the server sees no client's smaller noise.
            Its threshold says how many parts of the noise are surely in the sum.
        features: d.
        outputs: C.
        norm: public L2 norm that records are clipped to, > 0. Clipping shortens a record and does
            not turn it, so scores of a linear head without a constant keep their order.
        epsilon: > 0, per record replaced, its label included.
        ledger: the books; where they have a budget it must be per `Record(norm)`.
        delta: in (0, 1).
        colluding: clients whose part of the noise the server might learn from them, >= 0.

    Raises:
        PrivacyError: no secure aggregation, or no honest client is surely left.
        BudgetError: the ledger's budget would be exceeded; nothing was drawn.
        QuorumError: fewer clients survived than the threshold; the books keep the event.
    """
    if "mask" not in fed.pipeline:
        raise PrivacyError(
            "private_ridge: a server that sees single updates would see too little noise; give the"
            " federation aggregation=SecureAggregation()"
        )
    fewest = fed.threshold - colluding
    if fewest < 1:
        raise PrivacyError(
            f"colluding: found {colluding} of {fed.threshold} clients that are surely left; raise"
            " the threshold"
        )
    if not (math.isfinite(norm) and norm > 0) or features < 1 or outputs < 2:
        raise InputError(f"private_ridge: norm {norm}, {features} features, {outputs} classes")
    multiplier = calibrate(epsilon, delta, 1)
    sigma = multiplier * _sensitivity(_entries(features, outputs)) / math.sqrt(fewest)
    noise = MomentNoise(norm, outputs, sigma)
    ledger.spend(_event(features, fewest, len(fed.participants), noise))
    total = fed.sum(local_noisy_moments, noise)
    split = features * (features + 1) // 2
    gram = _unpacked(total[:split], features)
    cross = total[split:].reshape(features, outputs)
    deviation = sigma * GRID * math.sqrt(len(fed.survivors)) / math.sqrt(2.0)
    ridge = 2.0 * deviation * math.sqrt(features)
    yield PrivateRidgeState(_solved(gram, cross, ridge), gram, cross, ridge)


def _solved(gram: Array, cross: Array, ridge: float) -> Array:
    values, vectors = np.linalg.eigh(gram)
    solution: Array = vectors / (np.maximum(values, 0.0) + ridge) @ (vectors.T @ cross)
    return solution


def _clipped(X: Array, norm: float) -> Array:
    """Rows divided by the norm, or by their own length where that is larger."""
    squares = np.square(X) if isinstance(X, np.ndarray) else X.multiply(X)
    lengths = np.sqrt(np.asarray(squares.sum(axis=1)).ravel())
    clipped: Array = scale_rows(X, 1.0 / np.maximum(lengths, norm))
    return clipped


def _packed(symmetric: Array) -> Array:
    rows, columns = np.triu_indices(len(symmetric))
    return symmetric[rows, columns] * np.where(rows == columns, 1.0, math.sqrt(2.0))


def _unpacked(packed: Array, size: int) -> Array:
    rows, columns = np.triu_indices(size)
    matrix = np.zeros((size, size))
    matrix[rows, columns] = packed * np.where(rows == columns, 0.5, math.sqrt(0.5))
    whole: Array = matrix + matrix.T
    return whole
