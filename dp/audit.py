"""A distinguishing attack on the real release: an empirical lower bound on epsilon.

Two neighbouring data sets go through `dp.release.release` many times. An attacker who must tell
them apart by a threshold on what was released succeeds with probabilities p and q, and the promise
requires p <= e^epsilon q + delta (also with outcomes complemented). The threshold is picked on one
half of the runs; on the other half Clopper-Pearson gives p from below and q from above, hence an
epsilon that the mechanism exceeds with the stated confidence. It must stay below the claim.
"""

import math
from typing import Any

import numpy as np
from attrs import asdict, frozen
from numpy.typing import NDArray

from dp.adjacency import Element, Record
from dp.errors import InputError
from dp.grid import Array
from dp.release import release
from dp.release_plan import default_mechanism, make_plan

ROW_ENTRIES = 4
"""Columns of the matrices that audit a record-level release."""
RUNS_AT_ONCE = 50_000


@frozen
class Audit:
    """What the attack found.

    Attributes:
        claimed_epsilon: of the promise.
        delta: of the promise.
        unit: of both epsilons.
        lower_bound: the true epsilon is above it with the confidence; at least 0.
        confidence: in (0, 1).
        runs: releases of each of the two data sets.
        mechanism: its name.
    """

    claimed_epsilon: float
    delta: float
    unit: str
    lower_bound: float
    confidence: float
    runs: int
    mechanism: str

    @property
    def passed(self) -> bool:
        """Whether the claim stands."""
        return self.lower_bound <= self.claimed_epsilon

    def to_json(self) -> dict[str, Any]:
        """JSON types only."""
        return {**asdict(self), "passed": self.passed}

    def text(self) -> str:
        """One line, with the unit."""
        verdict = "below the claim" if self.passed else "ABOVE THE CLAIM: the promise is broken"
        return (
            f"epsilon is at least {self.lower_bound:.4g} with confidence {self.confidence:g}"
            f" ({self.runs} releases of each of two neighbours), claimed {self.claimed_epsilon:g}"
            f" at delta {self.delta:g} per {self.unit}: {verdict}"
        )


def audit(
    *,
    epsilon: float,
    delta: float,
    adjacency: Element | Record,
    bounds: tuple[float, float],
    grid: float,
    mechanism: str | None = None,
    runs: int = 200_000,
    confidence: float = 0.99,
    noise_epsilon: float | None = None,
) -> Audit:
    """Attacks the release.

    Args:
        epsilon, delta, adjacency, bounds, grid, mechanism: as `release` has them.
        runs: releases of each neighbour, at least 1000.
        confidence: in (0, 1).
        noise_epsilon: the epsilon that noise is really drawn for; other than `epsilon` only to see
            the audit fail, e.g. 2 epsilon for half the noise.

    Raises:
        InputError: an argument cannot be used.
    """
    if runs < 1000:
        raise InputError(f"runs: found {runs}, expected at least 1000")
    if not 0 < confidence < 1:
        raise InputError(f"confidence: found {confidence!r}, expected it in (0, 1)")
    mechanism = mechanism or default_mechanism(adjacency)
    plan = make_plan(
        epsilon=epsilon,
        delta=delta,
        adjacency=adjacency,
        bounds=bounds,
        grid=grid,
        mechanism=mechanism,
        smoothing="none",
    )
    neighbours = _neighbours(plan.adjacency, plan.grid.low, plan.grid.high)

    def observe(row: Array) -> Array:
        # Rows of one release have independent noise, so each is a run of its own.
        parts = []
        for start in range(0, runs, RUNS_AT_ONCE):
            released = release(
                np.tile(row, (min(RUNS_AT_ONCE, runs - start), 1)),
                epsilon=epsilon if noise_epsilon is None else noise_epsilon,
                delta=delta,
                adjacency=adjacency,
                bounds=bounds,
                grid=grid,
                mechanism=mechanism,
                smoothing="none",
            )
            parts.append(released.matrix[:, 0])
        return np.concatenate(parts)

    first, second = (observe(row) for row in neighbours)
    bound = lower_bound(first, second, delta, confidence)
    return Audit(float(epsilon), float(delta), adjacency.unit, bound, confidence, runs, mechanism)


def _neighbours(adjacency: Element | Record, low: float, high: float) -> tuple[Array, Array]:
    """Two rows as far apart in the first entry as the unit and the bounds allow."""
    if isinstance(adjacency, Element):
        return np.array([low]), np.array([min(low + adjacency.distance, high)])
    rows = np.zeros((2, ROW_ENTRIES))
    rows[:, 0] = max(low, -adjacency.norm), min(high, adjacency.norm)
    return rows[0], rows[1]


def lower_bound(first: Array, second: Array, delta: float, confidence: float) -> float:
    """Epsilon that two samples of released values prove, at least 0.

    Args:
        first: released values of the smaller neighbour, shape (runs,).
        second: of the larger one, shape (runs,).
        delta: of the promise.
        confidence: in (0, 1).
    """
    half = len(first) // 2
    threshold, below = _attack(first[:half], second[:half], delta, confidence)
    rest = first[half:], second[half:]
    hits = [int(np.sum(x <= threshold)) for x in rest]
    total = len(rest[0])
    wins, errors = (hits[0], hits[1]) if below else (total - hits[1], total - hits[0])
    p, q = clopper_pearson(wins, errors, total, confidence)
    return max(0.0, math.log((p - delta) / q)) if p > delta else 0.0


def clopper_pearson(wins: int, errors: int, total: int, confidence: float) -> tuple[float, float]:
    """A lower bound of the first rate and an upper bound of the second, jointly of `confidence`."""
    from scipy.stats import beta

    alpha = (1 - confidence) / 2
    p = float(beta.ppf(alpha, wins, total - wins + 1)) if wins else 0.0
    q = float(beta.ppf(1 - alpha, errors + 1, total - errors)) if errors < total else 1.0
    return p, q


def _attack(
    first: NDArray[np.float64], second: NDArray[np.float64], delta: float, confidence: float
) -> tuple[float, bool]:
    """The threshold, and the side, that seem to prove most."""
    from scipy.stats import norm

    # One deviation more than the proof needs: the best of many thresholds looks better than it is.
    z = float(norm.isf((1 - confidence) / 2)) + 1
    values = np.unique(np.concatenate([first, second]))
    total = len(first)
    below = [np.searchsorted(np.sort(x), values, side="right") for x in (first, second)]
    best = (-math.inf, 0.0, True)
    for wins, errors, side in (
        (below[0], below[1], True),
        (total - below[1], total - below[0], False),
    ):
        # Score intervals of Poisson counts rank the thresholds; the proof uses exact bounds.
        p = (wins + z * z / 2 - z * np.sqrt(wins + z * z / 4)) / total - delta
        q = (errors + z * z / 2 + z * np.sqrt(errors + z * z / 4)) / total
        score = np.where(p > 0, np.log(np.maximum(p, 1e-300) / q), -math.inf)
        i = int(np.argmax(score))
        if score[i] > best[0]:
            best = (float(score[i]), float(values[i]), side)
    return best[1], best[2]
