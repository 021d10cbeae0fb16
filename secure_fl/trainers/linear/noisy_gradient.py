"""A linear head by gradient descent over all records, every gradient a masked sum under noise.

Each of T sums adds up, over all records, direction times clipped residual of the softmax (a matrix
of norm at most the clip), under noise that hides any record in all T sums together. The steps are
averaged over their last quarter. Before them one noisy sum of the records and of their number, for
a thirtieth of the budget, says where their mean lies and how long steps may be. A record's
direction is that from the mean: what all records have in common would use up their norm. It starts
from public knowledge of the classes where there is any.
Against `kahm_record_private` it spends the budget on small sums, d C numbers in place of d^2 / 2,
but has T rounds.

The constants were chosen on splits of the training records of 20 Newsgroups (a random fifth, and
the latest fifth of each class, as the test records are later than all of them) and of CIFAR-10
features (a random fifth, its classes counting alike).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import softmax

from dp import Event, Ledger
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
from secure_fl.trainers.linear._record_noise import (
    GRID,
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

ROUNDS = 40
LONGEST_STEP = 400.0
"""Of the mean gradient of records of norm 1."""
SCORE_NOISE = 0.8
"""Deviation that all steps' noise together may give a score, about; a margin is worth 1."""
PRIOR_SCORE_NOISE, PRIOR_NOISE = 0.65, 2.5e-4
"""With a prior: at that noise of a mean gradient; it falls with its root. What is known beforehand
is worth fewer steps away from it."""
SHARPNESS = 8.0
"""Length of the public directions to start from: their scores become margins."""
CLIP, LARGE_CLIP = 0.45, 0.75
"""L2 norm of a record's residual; that of a confident mistake is sqrt(2)."""
LITTLE_NOISE = 8e-5
"""Noise of a mean gradient below which the larger clip's smaller bias is worth its noise."""
SMALLEST = 1e-200
"""Square of a record's distance from the centre below which it has no direction."""
AVERAGED = 0.25
"""Share of the rounds, the last ones, whose steps are averaged."""
TOTAL_SHARE = 0.03
"""Of the privacy budget (squared inverse noise multiplier) for the records' sum and number."""
TOTAL_SENSITIVITIES: dict[Neighbours, float] = {"replace": 2.0, "add-remove": math.sqrt(2.0)}
"""L2 norm by which (sum, number) changes: replaced, the number stays."""


@broadcastable
@dataclass(frozen=True)
class NoisyTotal:
    """What a client needs to know for its part of the records' sum and number.

    Attributes:
        norm: records are clipped to this L2 norm, then divided by it.
        sigma: of one client's part of the noise, in grid steps.
        neighbours: what epsilon is about.
    """

    norm: float
    sigma: float
    neighbours: str


@broadcastable
@dataclass(frozen=True, eq=False)
class NoisyGradient:
    """What a client needs to know for its part of a gradient.

    Attributes:
        norm: records are clipped to this L2 norm, then divided by it.
        centre: that records are seen from, in units of the norm, shape (d,); zero leaves them.
        weights: shape (d, C).
        clip: L2 norm of a record's residual.
        sigma: of one client's part of the noise, in grid steps.
        neighbours: what epsilon is about.
    """

    norm: float
    centre: Array
    weights: Array
    clip: float
    sigma: float
    neighbours: str


@broadcastable
@dataclass(frozen=True, eq=False)
class NoisyGradientState:
    """What was released; all of it is public.

    Attributes:
        weights: mean of the last steps, scores are x W; of centred records with a last row of
            constants, shape (d + 1, C), else (d, C).
        last: of the last step, shape (d, C).
        event: digest of the event in the ledger, of all rounds together.
        round: steps done.
    """

    weights: Array
    last: Array
    event: str
    round: int


@client_step
def local_noisy_total(client: Client, ask: NoisyTotal) -> Tree:
    """The client's `total`, with its part of the noise, shape (d + 1,)."""
    X, _ = records(client)
    return with_noise(total(clipped(X, ask.norm)), ask.sigma)


@promise_of(local_noisy_total)
def noisy_total_of(client: Client, fewest: int, most: int, ask: NoisyTotal) -> NoisySum:
    """What a noisy total costs, as any of its clients can tell."""
    neighbours, size = checked(ask.neighbours), client.features.shape[1] + 1
    multiplier = booked(TOTAL_SENSITIVITIES[neighbours], size, ask.sigma, fewest, most)
    found = event("noisy mean and number of records", ask.norm, multiplier, neighbours=neighbours)
    return promised(found, len(client), math.sqrt(2.0), ask.sigma)


def total(rows: Features) -> Array:
    """Sum of the records and, last, their number, shape (d + 1,).

    Args:
        rows: shape (n, d), of L2 norm at most 1 each.
    """
    return np.append(np.asarray(rows.sum(axis=0), np.float64).ravel(), float(rows.shape[0]))


@client_step
def local_noisy_gradient(client: Client, ask: NoisyGradient) -> Tree:
    """The client's `gradient_sum`, flat (d C), on the grid and with its part of the noise."""
    X, y = records(client)
    rows = directions(clipped(X, ask.norm), ask.centre)
    return with_noise(gradient_sum(rows, y, ask.weights, ask.clip).ravel(), ask.sigma)


@promise_of(local_noisy_gradient)
def noisy_gradient_of(client: Client, fewest: int, most: int, ask: NoisyGradient) -> NoisySum:
    """What one noisy gradient costs, as any of its clients can tell."""
    neighbours = checked(ask.neighbours)
    sensitivity = RECORDS_CHANGED[neighbours] * ask.clip
    multiplier = booked(sensitivity, ask.weights.size, ask.sigma, fewest, most)
    found = gradient_event(ask.weights.shape, ask.norm, neighbours, multiplier)
    return promised(found, len(client), ask.clip, ask.sigma)


def gradient_event(
    shape: tuple[int, ...], norm: float, neighbours: Neighbours, *multipliers: float
) -> Event:
    """Noisy gradients in the books."""
    what = f"noisy gradients of {shape[0]} features and {shape[1]} classes"
    return event(what, norm, *multipliers, neighbours=neighbours)


def directions(rows: Features, centre: Array) -> Features:
    """Where each record lies from the centre, of length 1; one that lies there is zero, and so are
    all from a centre too far away for floating point.

    Args:
        rows: shape (n, d), of L2 norm at most 1 each.
        centre: shape (d,), whatever a server sent; zero leaves the rows as they are.
    """
    if not centre.any():
        return rows
    dense = rows if isinstance(rows, np.ndarray) else rows.toarray()
    with np.errstate(all="ignore"):
        apart: Array = dense - centre
        squares = np.einsum("ij,ij->i", apart, apart)
        # Squares of tiny ones would lose their digits.
        usable = np.isfinite(squares) & (squares > SMALLEST)
        apart /= np.sqrt(squares)[:, None]
    apart[~usable] = 0.0
    return apart


def gradient_sum(rows: Features, y: Codes, weights: Array, clip: float) -> Array:
    """Sum over records of the record times its residual, shape (d, C).

    Each adds a product of norm at most `clip`, whatever the weights are: records have norm at most
    1, residuals are clipped, and one whose scores overflow adds nothing.

    Args:
        rows: shape (n, d), of L2 norm at most 1 each.
        y: class codes, shape (n,).
        weights: shape (d, C).
        clip: > 0.
    """
    with np.errstate(all="ignore"):
        rest = -softmax(rows @ weights, axis=1)
    rest[np.arange(len(y)), y] += 1.0
    rest /= np.maximum(1.0, np.linalg.norm(rest, axis=1, keepdims=True) / clip)
    rest[~np.isfinite(rest).all(axis=1)] = 0.0
    # A hair shorter than the clip: the rounding errors of norms and products.
    total: Array = (1 - 2.0**-40) * np.asarray(rows.T @ rest)
    return total


def noisy_gradient(
    fed: Federation,
    *,
    features: int,
    outputs: int,
    norm: float,
    epsilon: float,
    ledger: Ledger,
    delta: float = 1e-5,
    rounds: int = ROUNDS,
    colluding: int = 0,
    adjacency: Neighbours = "replace",
    prior: Array | None = None,
    centred: bool = True,
) -> Iterator[NoisyGradientState]:
    """Yields a state a round; all of them are booked before the first.

    Args:
        fed: clients under secure aggregation; its threshold says how many parts of the noise are
            surely in a sum.
        features: d.
        outputs: C.
        norm: public L2 norm that records are clipped to, > 0.
        epsilon: > 0, per record, its label included; of all rounds together.
        ledger: the books; where they have a budget it must be per `record_unit(norm, adjacency)`.
        delta: in (0, 1).
        rounds: T, at least 2.
        colluding: clients whose part of the noise the server might learn from them, >= 0.
        adjacency: whether a record is replaced, or added or removed.
        prior: public directions of the classes, shape (d, C), of length 1 (`text_prior`), or None.
        centred: whether records are seen from their noisy mean. The constants that this gives the
            scores are for queries within the norm, as few longer ones as the norm cuts.

    Raises:
        PrivacyError: no secure aggregation, or no honest client is surely left.
        BudgetError: the ledger's budget would be exceeded; nothing was drawn.
        QuorumError: fewer clients survived than the threshold; the books keep the event.
    """
    check_task("noisy_gradient", norm, features, outputs)
    if rounds < 2:
        raise InputError(f"noisy_gradient: found {rounds} rounds, expected at least 2")
    if prior is not None and prior.shape != (features, outputs):
        raise InputError(f"prior: found {prior.shape}, expected ({features}, {outputs})")
    changed, whole = RECORDS_CHANGED[checked(adjacency)], calibrate(epsilon, delta, 1)
    first, noises = noise_of_rounds(
        fed, features, outputs, rounds, whole, checked(adjacency), colluding
    )
    least = min(noise.multiplier for noise in noises.values())
    multipliers = [first.multiplier, *[least] * rounds]
    digest = ledger.spend(gradient_event((features, outputs), norm, adjacency, *multipliers))
    found = fed.sum(local_noisy_total, NoisyTotal(norm, first.sigma, adjacency))
    count = max(1.0, float(found[-1]))
    deviation = first.sigma * GRID * math.sqrt(len(fed.survivors)) / count
    centre = _shrunk(found[:-1] / count, deviation) if centred else np.zeros(features)
    blur = whole * changed / count
    clip = CLIP if blur > LITTLE_NOISE else LARGE_CLIP
    length = _step(blur * clip * rounds, blur, with_prior=prior is not None)
    weights = np.zeros((features, outputs)) if prior is None else SHARPNESS * prior
    averaged = np.zeros((features, outputs))
    for done in range(1, rounds + 1):
        ask = NoisyGradient(norm, centre, weights, clip, noises[clip].sigma, adjacency)
        found = fed.sum(local_noisy_gradient, ask).reshape(features, outputs)
        weights = weights + length / count * found
        late = done - math.floor((1 - AVERAGED) * rounds)
        averaged = weights if late <= 1 else averaged + (weights - averaged) / late
        constants = -norm * centre @ averaged
        whole_model = np.vstack([averaged, constants]) if centred else averaged
        yield NoisyGradientState(whole_model, weights, digest, done)


def _shrunk(mean: Array, deviation: float) -> Array:
    """A noisy mean, shorter by what of its length is noise (James and Stein 1961)."""
    square = float(mean @ mean)
    return mean * max(0.0, 1.0 - len(mean) * deviation**2 / square) if square else mean


def _step(noise: float, blur: float, *, with_prior: bool) -> float:
    """Length of a step on the mean gradient.

    Args:
        noise: that all steps of length 1 together give a score.
        blur: noise of a mean gradient of unclipped residuals, if there were one.
        with_prior: whether the start knows of the classes.
    """
    allowed = SCORE_NOISE
    if with_prior:
        allowed = min(allowed, PRIOR_SCORE_NOISE * math.sqrt(PRIOR_NOISE / blur))
    return min(LONGEST_STEP, allowed / noise)


def noise_of_rounds(
    fed: Federation,
    features: int,
    outputs: int,
    rounds: int,
    multiplier: float,
    adjacency: Neighbours,
    colluding: int = 0,
) -> tuple[SumNoise, dict[float, SumNoise]]:
    """Noise of the records' sum, and of each round's gradient by the clip of its records.

    Args:
        multiplier: of one Gaussian that hides as little as all sums together, > 0.
        fed, features, outputs, rounds, adjacency, colluding: as `noisy_gradient` has them.
    """
    each = multiplier * math.sqrt(rounds / (1 - TOTAL_SHARE))
    changed = RECORDS_CHANGED[adjacency]
    gradients = {
        clip: SumNoise.sized(fed, changed * clip, features * outputs, each, colluding)
        for clip in (CLIP, LARGE_CLIP)
    }
    spent = multiplier / math.sqrt(TOTAL_SHARE)
    sensitivity = TOTAL_SENSITIVITIES[adjacency]
    return SumNoise.sized(fed, sensitivity, features + 1, spent, colluding), gradients
