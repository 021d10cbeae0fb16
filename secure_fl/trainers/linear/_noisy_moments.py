"""Second moments of all records, from one masked sum under noise that hides every record."""

import math
from dataclasses import dataclass

import numpy as np

from dp import Event
from secure_fl.errors import InputError
from secure_fl.federation import Client, Federation, Tree, broadcastable, client_step
from secure_fl.federation.steps import NoisySum, promise_of
from secure_fl.objectives.base import Array, Codes, Features
from secure_fl.privacy.promises import Neighbours
from secure_fl.trainers.linear._client import records
from secure_fl.trainers.linear._record_noise import (
    GRID,
    booked,
    checked,
    clipped,
    event,
    promised,
    with_noise,
)

SENSITIVITIES: dict[Neighbours, float] = {"replace": math.sqrt(4.5), "add-remove": math.sqrt(2.0)}
"""L2 norm by which a record of norm <= 1 changes (X'X, X'Y) together.

Replaced, with the same label and norms 1, and t the cosine between both records, its square is
2 (1 - t) + 2 (1 - t^2), largest at t = -1/2. Another label gives at most 4, smaller norms give
less. Added or removed, it is |x|^4 + |x|^2.

The same holds of targets that are numbers of L2 norm <= 1. In a target the square is convex, so
largest at norm 1; opposite ones give r^4 + q^4 - 2 r^2 q^2 t^2 + r^2 + q^2 + 2 r q |t| for records
of norms r and q. Its slope in r, 4 r^3 + 2 r - 4 r u^2 + 2 u with u = q |t|, is concave in u and
not below 0 at u = 0 and u = 1, so it is largest at norms 1: 4 - 2 t^2 + 2 |t| <= 4.5."""
SENSITIVITY = SENSITIVITIES["replace"]


@broadcastable
@dataclass(frozen=True)
class MomentNoise:
    """What a client needs to know to add its part of the noise.

    Attributes:
        norm: records are clipped to this L2 norm, then divided by it.
        outputs: C.
        sigma: of one client's part, in grid steps.
        neighbours: what epsilon is about.
        target_norm: public L2 norm that a record's C targets are clipped to, then divided by; None
            where y holds codes of C classes.
    """

    norm: float
    outputs: int
    sigma: float
    neighbours: str = "replace"
    target_norm: float | None = None


@dataclass(frozen=True, eq=False)
class Moments:
    """What was released; all of it is public.

    Attributes:
        gram: noisy X'X of the clipped records over norm^2, shape (d, d), symmetric.
        cross: noisy X'Y of the clipped records over norm (and of targets over theirs), shape (d,
            C).
        deviation: of the noise in each number of `cross`.
        edge: 2 s sqrt(d), of the spectrum of the noise in `gram`, whose off-diagonal entries have
            deviation s (Wigner's semicircle): an eigenvalue below it says nothing.
    """

    gram: Array
    cross: Array
    deviation: float
    edge: float


@client_step
def local_noisy_moments(client: Client, noise: MomentNoise) -> Tree:
    """Both moments as one vector of grid multiples, with this client's part of the noise.

    Off-diagonal entries of the symmetric part stand once, times sqrt(2), so that the vector's norm
    is the matrices'.
    """
    X, y = records(client)
    if noise.target_norm is not None:
        Y = np.asarray(y, np.float64)
        if Y.shape != (X.shape[0], noise.outputs):
            raise InputError(f"targets of shape {Y.shape}, {noise.outputs} a record are needed")
        rows, hot = clipped(X, noise.norm), clipped(Y, noise.target_norm)
        return with_noise(moments_with(rows, hot), noise.sigma)
    if y.size and not 0 <= int(y.min()) <= int(y.max()) < noise.outputs:
        raise InputError(f"class codes from {y.min()} to {y.max()}, {noise.outputs} classes")
    return with_noise(exact_moments(clipped(X, noise.norm), y, noise.outputs), noise.sigma)


def exact_moments(rows: Features, y: Codes, outputs: int) -> Array:
    """Both moments as one vector.

    Args:
        rows: shape (n, d), of L2 norm at most 1 each.
        y: class codes, shape (n,).
        outputs: C.
    """
    hot = np.zeros((len(y), outputs))
    hot[np.arange(len(y)), y] = 1.0
    return moments_with(rows, hot)


def moments_with(rows: Features, targets: Array) -> Array:
    """Both moments as one vector.

    Args:
        rows: shape (n, d), of L2 norm at most 1 each.
        targets: shape (n, C), of L2 norm at most 1 each.
    """
    gram = rows.T @ rows
    gram = gram if isinstance(gram, np.ndarray) else gram.toarray()
    return np.concatenate([packed(gram), (rows.T @ targets).ravel()])


@promise_of(local_noisy_moments)
def noisy_moments_of(client: Client, fewest: int, most: int, noise: MomentNoise) -> NoisySum:
    """What a sum of noisy moments costs, as any of its clients can tell."""
    d = client.features.shape[1]
    size = moment_count(d, noise.outputs)
    sensitivity = SENSITIVITIES[checked(noise.neighbours)]
    found = moment_event(d, noise, booked(sensitivity, size, noise.sigma, fewest, most))
    return promised(found, len(client), math.sqrt(2.0), noise.sigma)


def moment_event(features: int, noise: MomentNoise, multiplier: float) -> Event:
    """That sum in the books."""
    what = f"noisy second moments of {features} features and {noise.outputs} classes"
    if noise.target_norm is not None:
        what = (
            f"noisy second moments of {features} features and {noise.outputs} targets of norm"
            f" {noise.target_norm:g}"
        )
    return event(what, noise.norm, multiplier, neighbours=checked(noise.neighbours))


def moment_count(features: int, outputs: int) -> int:
    """Numbers in the sum."""
    return features * (features + 1) // 2 + features * outputs


def noisy_moments(fed: Federation, noise: MomentNoise, features: int) -> Moments:
    """Both moments of all clients' records, by one sum; it is in the books already."""
    total = fed.sum(local_noisy_moments, noise)
    split = moment_count(features, 0)
    gram = unpacked(total[:split], features)
    cross = total[split:].reshape(features, noise.outputs)
    deviation = noise.sigma * GRID * math.sqrt(len(fed.survivors))
    return Moments(gram, cross, deviation, math.sqrt(2.0 * features) * deviation)


def packed(symmetric: Array) -> Array:
    """A symmetric matrix as a vector of the same norm."""
    rows, columns = np.triu_indices(len(symmetric))
    return symmetric[rows, columns] * np.where(rows == columns, 1.0, math.sqrt(2.0))


def unpacked(vector: Array, size: int) -> Array:
    """The symmetric matrix of a vector that `packed` made."""
    rows, columns = np.triu_indices(size)
    matrix = np.zeros((size, size))
    matrix[rows, columns] = vector * np.where(rows == columns, 0.5, math.sqrt(0.5))
    whole: Array = matrix + matrix.T
    return whole
