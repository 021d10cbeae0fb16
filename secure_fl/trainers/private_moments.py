"""Means and deviations of all clients' features, by one masked sum that hides every record.

Every record is clipped to public numbers, and what it adds is its features and their squares; the
clients' parts of discrete Gaussian noise stay in the sum, which is an event in the books before it
is asked for. Mean and deviation are then released constants, and a scaling by them is
post-processing. The unit of what follows must not be a length in scaled features, which these
constants would make the records' own: a record replaced by any other, or added, and an element that
moves by as much as it can.

A deviation is at least what the noise alone would give: a feature that hardly varies stays quieter
than the others, and noise never makes one loud.
"""

import json
import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from dp import Event, Gaussian
from dp.adjacency import (
    Adjacency,
    Membership,
    Record,
    adjacency_from_json,
    adjacency_to_json,
)
from secure_fl.data import Scaling
from secure_fl.errors import InputError
from secure_fl.federation import Client, Federation, Tree, broadcastable, client_step
from secure_fl.federation.steps import NoisySum, promise_of
from secure_fl.objectives.base import Array, Features
from secure_fl.trainers.feature_moments import Spread, scaling_by
from secure_fl.trainers.linear._record_noise import (
    GRID,
    SumNoise,
    booked,
    clipped,
    promised,
    with_noise,
)

Changed: TypeAlias = Literal["replace", "add-remove", "element"]
"""How neighbouring data sets differ: a record replaced, one added or removed, or one entry of a
record, by whatever amount."""
LARGEST = 1e150
"""Of a feature over the norm, before a record is shortened to it."""
FLOOR = 2.0
"""A variance is at least so many deviations of its own noise."""


@broadcastable
@dataclass(frozen=True, eq=False)
class PublicClip:
    """What records are clipped to, all of it public.

    Attributes:
        centres: of features, shape (d,).
        halves: what features are divided by, shape (d,), > 0.
        ball: whether a record is then clipped to L2 norm 1, or each of its features to [-1, 1].
    """

    centres: Array
    halves: Array
    ball: bool

    @classmethod
    def box(cls, low: Array, high: Array) -> "PublicClip":
        """Every feature to its own public range.

        Raises:
            InputError: a range is not finite, or ends below its start.
        """
        if not np.isfinite(high - low).all() or (high < low).any():
            raise InputError("moments: a public range is not finite, or ends below its start")
        halves = (high - low) / 2
        return cls(low + halves, np.where(halves > 0, halves, 1.0), ball=False)

    @classmethod
    def norm(cls, features: int, norm: float) -> "PublicClip":
        """Every record to an L2 norm.

        Raises:
            InputError: it is not finite and above 0.
        """
        if not (math.isfinite(norm) and norm > 0):
            raise InputError(f"moments: clip {norm}, expected a finite norm above 0")
        return cls(np.zeros(features), np.full(features, norm), ball=True)

    def applied(self, X: Features) -> Array:
        """The clipped records, shape (n, d); entries in [-1, 1], of a ball also norms at most 1."""
        if len(self.centres) != X.shape[1]:
            raise InputError(
                f"moments: {len(self.centres)} public ranges, the records have {X.shape[1]}"
                " features"
            )
        usable = np.isfinite(self.centres).all() and np.isfinite(self.halves).all()
        if self.halves.shape != self.centres.shape or not usable or (self.halves <= 0).any():
            # A server may have sent them; a quotient that is no number has no bound.
            raise InputError("moments: a public range is not finite, or ends below its start")
        dense = X if isinstance(X, np.ndarray) else X.toarray()
        with np.errstate(over="ignore"):
            rows: Array = (dense.astype(np.float64) - self.centres) / self.halves
        # Beyond this squares overflow, and what is infinite has no direction.
        most = LARGEST if self.ball else 1.0
        rows = np.clip(rows, -most, most)
        return np.asarray(clipped(rows, 1.0)) if self.ball else rows

    def sensitivity(self, changed: Changed) -> float:
        """L2 norm by which neighbours' `moment_sums` differ.

        In a box a feature u in [-1, 1] adds (u, u^2 - 1/2), of squared norm at most 5/4 (at the
        ends), and two of them differ by (u - w)^2 (1 + (u + w)^2), at most 4 (at opposite ends:
        with s = |u + w| it is at most (2 - s)^2 (1 + s^2), which falls). In a ball (u, u^2) has
        squared norm at most 2, and two of them differ by at most 4.5, as squares are the diagonal
        of products (`secure_fl.trainers.linear._noisy_moments.SENSITIVITIES`). The number of
        records changes by 1 where one is added, and not where one is replaced. An element that
        moves, however far, is one feature in a box; in a ball it turns the whole record.
        """
        d = len(self.centres)
        if changed == "element" and not self.ball:
            return 2.0
        if changed != "add-remove":
            return math.sqrt(4.5) if self.ball else 2.0 * math.sqrt(d)
        return math.sqrt(3.0) if self.ball else math.sqrt(1.0 + 1.25 * d)


@broadcastable
@dataclass(frozen=True, eq=False)
class NoisyFeatureMoments:
    """What a client needs to know for its part of the moments.

    Attributes:
        clip: public.
        sigma: of one client's part of the noise, in grid steps.
        unit: of the event that the sum is, as `dp.adjacency` writes it in JSON.
    """

    clip: PublicClip
    sigma: float
    unit: str


@dataclass(frozen=True, eq=False)
class ReleasedMoments:
    """What was released; all of it is public.

    Attributes:
        means: of every feature, shape (d,), within the public ranges.
        deviations: shape (d,), above 0 and at most half of the range, or the norm.
        floored: features whose deviation is what the noise alone would give.
        event: digest of the event in the ledger; "" where only clients elsewhere have books.
    """

    means: Array
    deviations: Array
    floored: int
    event: str

    def scaling(self, factor: float, *, unit_rows: bool, spread: Spread) -> Scaling:
        """The scaling by these constants; arguments as `feature_moments.scaling_by`."""
        parts = self.means.tolist(), self.deviations, factor
        return scaling_by(*parts, unit_rows=unit_rows, spread=spread, kind="released")


def moment_sums(rows: Array, *, ball: bool) -> Array:
    """Sums of clipped records, of their squares, and last their number, shape (2 d + 1,).

    Squares in a box are taken about 1/2, which a record adds less of.
    """
    squares = np.square(rows) - (0.0 if ball else 0.5)
    return np.concatenate([rows.sum(axis=0), squares.sum(axis=0), [float(len(rows))]])


@client_step
def local_private_moments(client: Client, ask: NoisyFeatureMoments) -> Tree:
    """The client's `moment_sums`, with its part of the noise."""
    return with_noise(moment_sums(ask.clip.applied(client.features), ball=ask.clip.ball), ask.sigma)


@promise_of(local_private_moments)
def private_moments_of(
    client: Client, fewest: int, most: int, ask: NoisyFeatureMoments
) -> NoisySum:
    """What that sum costs, as any of its clients can tell."""
    features = client.features.shape[1]
    unit = adjacency_from_json(json.loads(ask.unit))
    sensitivity = ask.clip.sensitivity(changed_by(unit))
    found = booked(sensitivity, 2 * features + 1, ask.sigma, fewest, most)
    return promised(moments_event(features, unit, found), len(client), 1.0, ask.sigma)


def changed_by(unit: Adjacency) -> Changed:
    """How neighbours of a unit differ: an element as far as it can."""
    if isinstance(unit, Membership):
        return "add-remove"
    return "replace" if isinstance(unit, Record) else "element"


def moments_event(features: int, unit: Adjacency, multiplier: float) -> Event:
    """That sum in the books."""
    what = f"noisy means and deviations of {features} features, for their scaling"
    return Event(what, unit, gaussian=Gaussian(multiplier))


def noise_of_moments(
    fed: Federation, clip: PublicClip, multiplier: float, changed: Changed
) -> SumNoise:
    """Noise of the sum.

    Args:
        multiplier: of the noise over the sensitivity, > 0.
        fed, clip: as `private_moments` has them.
        changed: see `PublicClip.sensitivity`.
    """
    size = 2 * len(clip.centres) + 1
    return SumNoise.sized(fed, clip.sensitivity(changed), size, multiplier)


def private_moments(
    fed: Federation, clip: PublicClip, noise: SumNoise, unit: Adjacency
) -> tuple[Array, Array, int]:
    """Means, deviations and how many of these are floored, by one sum that is booked already.

    Args:
        fed: clients with their features as they are, under secure aggregation.
        clip: public.
        noise: of the sum.
        unit: of its event; a client with books of its own books the same.
    """
    ask = NoisyFeatureMoments(clip, noise.sigma, json.dumps(adjacency_to_json(unit)))
    total = np.asarray(fed.sum(local_private_moments, ask))
    count = max(1.0, float(total[-1]))
    first, second = np.split(total[:-1] / count, 2)
    first = np.clip(first, -1.0, 1.0)
    second = second + (0.0 if clip.ball else 0.5)
    blur = noise.sigma * GRID * math.sqrt(len(fed.survivors)) / count
    # Of the variance: the square's own noise, and twice the mean times the mean's.
    least = np.minimum(FLOOR * blur * np.sqrt(1.0 + 4.0 * first**2), 1.0)
    variances = second - first**2
    floored = int(np.count_nonzero((variances < least) | (least >= 1.0)))
    deviations = np.sqrt(np.clip(variances, least, 1.0))
    return clip.centres + clip.halves * first, clip.halves * deviations, floored
