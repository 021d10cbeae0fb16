"""Kernel affine hull machines that hide every record: built of noisy sums, not of records.

Released are sums over all records, each under noise that hides any one of them, label included:

1. second moments (`private_ridge`), whose ridge solution, with columns of one length, is the first
   set of discriminants;
2. residuals of the softmax of those discriminants, by two sums in which every record is a vector of
   norm 1 in coordinates whitened by the noisy moments, times its clipped residual. Whitening is
   what the first sum is worth to the next: where records differ much along few directions, a
   record's one unit of norm is spread over all of them. A step along it is Newton's with the
   curvature of uninformed predictions.

What follows is post-processing, so the machines are public. Any linear rule is one of nearest
points: moved so that the discriminants lie on a sphere around the origin, the largest score is the
smallest distance and the smallest angle. A batch of synthetic records is drawn closely around each
of these points, and a machine of such a batch folds a query about onto its point (kahm.txt, eq.
19). So the measures (eq. 102), their codes and the encrypted rule decide as the linear rule does.

The constants were chosen on a split of 20 Newsgroups' training records.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import softmax

from dp import Ledger
from kahm import Bank
from secure_fl.errors import InputError
from secure_fl.federation import (
    Client,
    Federation,
    Tree,
    broadcastable,
    calibrate,
    client_step,
)
from secure_fl.federation.steps import NoisySum, promise_of
from secure_fl.objectives.base import Array, Codes, Features
from secure_fl.privacy.promises import Neighbours
from secure_fl.trainers.linear._client import records
from secure_fl.trainers.linear._noisy_moments import (
    SENSITIVITIES,
    MomentNoise,
    Moments,
    moment_count,
    noisy_moments,
)
from secure_fl.trainers.linear._record_noise import (
    RECORDS_CHANGED,
    SumNoise,
    booked,
    check_task,
    checked,
    clipped,
    event,
    promised,
    with_noise,
)

REFINEMENTS = 2
MOMENT_SHARE = 2 / 3
"""Of the privacy budget (squared inverse noise multiplier) for the moments; the rest is shared."""
SHARPNESS = 10.0
"""Of the first softmax: ridge scores of 0 and 1 become margins."""
RESIDUAL_CLIP = 1.0
"""L2 norm of a record's residual; that of a confident mistake is sqrt(2)."""
STEP = 0.2
"""Of a Newton step: the curvature of uninformed predictions overstates that of informed ones."""
PRIOR_WEIGHT = 1.0
"""Of public directions, over the length of a class sum's noise."""
BATCH, SPREAD = 10, 0.05
"""Synthetic records of a machine, and their root mean square distance from its point."""


@broadcastable
@dataclass(frozen=True, eq=False)
class Residuals:
    """What a client needs to know for its part of a sum of residuals.

    Attributes:
        norm: records are clipped to this L2 norm, then divided by it.
        weights: discriminants, shape (d, C).
        whitening: shape (d, d).
        sigma: of one client's part of the noise, in grid steps.
        neighbours: what epsilon is about.
    """

    norm: float
    weights: Array
    whitening: Array
    sigma: float
    neighbours: str = "replace"


@broadcastable
@dataclass(frozen=True, eq=False)
class RecordPrivateState:
    """What was released; all of it is public.

    Attributes:
        weights: discriminants, shape (d, C); scores are x W.
        first: those of the moments alone, equally long, shape (d, C).
        gram: noisy X'X of the clipped records over norm^2, shape (d, d).
        cross: noisy sums of the clipped records of each class over norm, shape (d, C).
        norm: records were clipped to it.
        deviation: of the noise in each number of `cross`.
        event: digest of the event in the ledger.
        round: 1.
    """

    weights: Array
    first: Array
    gram: Array
    cross: Array
    norm: float
    deviation: float
    event: str
    round: int = 1


@client_step
def local_noisy_residuals(client: Client, ask: Residuals) -> Tree:
    """The client's `residual_sum`, flat (d C), on the grid and with its part of the noise."""
    X, y = records(client)
    exact = residual_sum(clipped(X, ask.norm), y, ask.weights, ask.whitening)
    return with_noise(exact.ravel(), ask.sigma)


@promise_of(local_noisy_residuals)
def noisy_residuals_of(client: Client, fewest: int, most: int, ask: Residuals) -> NoisySum:
    """What a sum of noisy residuals costs, as any of its clients can tell."""
    d, outputs = ask.weights.shape
    neighbours = checked(ask.neighbours)
    sensitivity = RECORDS_CHANGED[neighbours] * RESIDUAL_CLIP
    multiplier = booked(sensitivity, d * outputs, ask.sigma, fewest, most)
    what = f"noisy residuals of {d} features and {outputs} classes"
    found = event(what, ask.norm, multiplier, neighbours=neighbours)
    return promised(found, len(client), RESIDUAL_CLIP, ask.sigma)


def residual_sum(rows: Features, y: Codes, weights: Array, whitening: Array) -> Array:
    """Sum over records of whitened direction times clipped residual, shape (d, C).

    Each record adds a product of norm at most `RESIDUAL_CLIP`, whatever weights and whitening are:
    one without a direction, or whose numbers overflow, adds nothing.
    """
    with np.errstate(all="ignore"):
        rest = -softmax(rows @ weights, axis=1)
        white = rows @ whitening
        # By the largest entry first: squares of tiny ones would lose their digits.
        white = white / np.abs(white).max(axis=1, keepdims=True)
    rest[np.arange(len(y)), y] += 1.0
    rest /= np.maximum(1.0, np.linalg.norm(rest, axis=1, keepdims=True) / RESIDUAL_CLIP)
    usable = np.isfinite(white).all(axis=1) & np.isfinite(rest).all(axis=1)
    white, rest = white[usable], rest[usable]
    total: Array = (white / np.linalg.norm(white, axis=1, keepdims=True)).T @ rest
    return total


def kahm_record_private(
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
    prior: Array | None = None,
) -> Iterator[RecordPrivateState]:
    """Yields one state; `discriminant_machines` makes machines of it.

    Args:
        fed: clients under secure aggregation; its threshold says how many parts of the noise are
            surely in a sum.
        features: d.
        outputs: C.
        norm: public L2 norm that records are clipped to, > 0.
        epsilon: > 0, per record, its label included; of all sums together.
        ledger: the books; where they have a budget it must be per `record_unit(norm, adjacency)`.
        delta: in (0, 1).
        colluding: clients whose part of the noise the server might learn from them, >= 0.
        adjacency: whether a record is replaced, or added or removed.
        prior: public directions of the classes, shape (d, C), of length 1 (`text_prior`), or None.

    Raises:
        InputError: a number out of its range, or more classes than `check_machines` takes.
        PrivacyError: no secure aggregation, or no honest client is surely left.
        BudgetError: the ledger's budget would be exceeded; nothing was drawn.
        QuorumError: fewer clients survived than the threshold; the books keep the event.
    """
    check_task("kahm_record_private", norm, features, outputs)
    check_machines(features, outputs)
    whole = calibrate(epsilon, delta, 1)
    coarse, fine = noise_of_sums(fed, features, outputs, whole, checked(adjacency), colluding)
    what = f"noisy moments and residuals of {features} features and {outputs} classes"
    multipliers = [coarse.multiplier, *[fine.multiplier] * REFINEMENTS]
    digest = ledger.spend(event(what, norm, *multipliers, neighbours=adjacency))
    noise = MomentNoise(norm, outputs, coarse.sigma, adjacency)
    moments = noisy_moments(fed, noise, features)
    whitening, length = _whitening(moments)
    cross = moments.cross if prior is None else with_prior(moments, prior)
    first = _equally_long(whitening @ (whitening.T @ cross))
    weights = SHARPNESS * first
    for _ in range(REFINEMENTS):
        ask = Residuals(norm, weights, whitening, fine.sigma, adjacency)
        total = fed.sum(local_noisy_residuals, ask).reshape(features, outputs)
        weights = weights + STEP * outputs * length * (whitening @ total)
    yield RecordPrivateState(
        weights, first, moments.gram, moments.cross, norm, moments.deviation, digest
    )


def noise_of_sums(
    fed: Federation,
    features: int,
    outputs: int,
    multiplier: float,
    adjacency: Neighbours,
    colluding: int = 0,
) -> tuple[SumNoise, SumNoise]:
    """Noise of the moments, and of each of the REFINEMENTS sums of residuals.

    Args:
        multiplier: of one Gaussian that hides as little as all sums together, > 0.
        fed, features, outputs, adjacency, colluding: as `kahm_record_private` has them.
    """
    share = (1.0 - MOMENT_SHARE) / REFINEMENTS
    moments = SENSITIVITIES[adjacency], moment_count(features, outputs)
    residuals = RECORDS_CHANGED[adjacency] * RESIDUAL_CLIP, features * outputs
    return (
        SumNoise.sized(fed, *moments, multiplier / MOMENT_SHARE**0.5, colluding),
        SumNoise.sized(fed, *residuals, multiplier / share**0.5, colluding),
    )


def _whitening(moments: Moments) -> tuple[Array, float]:
    """P with P P' = (gram + edge)^-1, eigenvalues below 0 taken for 0, and the typical |x' P|.

    The sum of squared lengths is the effective dimension; the records are counted by the trace,
    as if all had norm 1.
    """
    values, vectors = np.linalg.eigh(moments.gram)
    values = np.maximum(values, 0.0)
    spread = values + moments.edge
    total = max(float(values.sum()), np.finfo(float).tiny)
    return vectors / np.sqrt(spread), float(np.sqrt((values / spread).sum() / total))


def with_prior(moments: Moments, prior: Array) -> Array:
    """Class sums with public directions: as many records of each as the noise hides, about.

    Args:
        moments: as released.
        prior: directions of length 1, shape (d, C).
    """
    blurred = moments.deviation * np.sqrt(len(prior))
    mixed: Array = moments.cross + PRIOR_WEIGHT * blurred * prior
    return mixed


def _equally_long(weights: Array) -> Array:
    """Columns scaled to their mean length: in ridge regression those of rare classes are short."""
    lengths = np.linalg.norm(weights, axis=0)
    scaled: Array = weights * (lengths.mean() / lengths)
    return scaled


def check_machines(features: int, outputs: int) -> None:
    """Raises InputError unless C points in d dimensions can be corners of a simplex: C <= d + 1."""
    if outputs > features + 1:
        raise InputError(
            f"kahm-record-private: {outputs} classes and {features} features, at most"
            f" {features + 1} classes have a machine each then; add features, or take private-ridge"
        )


def _independent(weights: Array, rng: np.random.Generator) -> Array:
    """The discriminants, moved by as little as makes them corners of a simplex.

    Noise and rounding may leave two alike, or one that is not finite. What was released is spent,
    so it is mended after the fact: it holds nothing private that a draw could add to.
    """
    weights = np.nan_to_num(weights, nan=0.0, posinf=0.0, neginf=0.0)
    strength: float = 0.0
    moved: Array = weights
    # Only directions count in the end, so the size may be made 1 for the draw to compare with.
    unit = weights / (float(np.abs(weights).max()) or 1.0)
    while not _are_corners(moved):
        strength = 10 * strength or 1e-9
        drawn: Array = strength * rng.standard_normal(weights.shape)
        moved = unit + drawn
    return moved


def _are_corners(weights: Array) -> bool:
    inner = _inner(weights)
    return int(np.linalg.matrix_rank(inner)) == len(inner)


def _inner(weights: Array) -> Array:
    steps: Array = weights[:, 1:] - weights[:, :1]
    inner: Array = steps.T @ steps
    return inner


def discriminant_machines(
    weights: Array,
    norm: float,
    rng: np.random.Generator,
    *,
    batch: int = BATCH,
    spread: float = SPREAD,
) -> Bank:
    """One machine a class, of synthetic records around points that stand for the discriminants.

    The points are the discriminants less the centre of the sphere through all of them (the one in
    their affine hull): this changes all scores of a query alike, and makes the points equally long.
    They are scaled to `norm`, as long as records are.

    Args:
        weights: shape (d, C), C <= d + 1.
        norm: of the points, > 0.
        rng: draws the synthetic records; nothing private is left in what it is applied to.
        batch: records of a machine, at least 1.
        spread: their root mean square distance from the point over `norm`, >= 0.

    Raises:
        InputError: more discriminants than `check_machines` takes.
    """
    check_machines(*weights.shape)
    weights = _independent(weights, rng)
    inner = _inner(weights)
    steps = weights[:, 1:] - weights[:, :1]
    centre = weights[:, 0] + steps @ np.linalg.solve(2.0 * inner, np.diag(inner))
    points = (weights - centre[:, None]).T
    points *= norm / np.linalg.norm(points, axis=1, keepdims=True)
    around = spread * norm / np.sqrt(points.shape[1])
    drawn = points[:, None, :] + around * rng.standard_normal((len(points), batch, points.shape[1]))
    return Bank.fit(list(drawn), np.arange(len(points)), len(points))
