"""Smoothing a released matrix with the machine's own kernel (kahm.txt, 3.8.2).

S(X) = H_X^T X (eq. 133), repeated m times. The paper picks m by comparing with the private matrix
(eq. 145), which is no post-processing; `smooth` picks it from the released matrix alone.
"""

from collections.abc import Iterator

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from dp.errors import InputError

Array = NDArray[np.float64]

MOST_PASSES = 20
PATIENCE = 2
"""Passes that may follow the best one before the search ends."""

LEAST_GAIN = 0.1
"""Share of the noisy matrix's risk that smoothing must seem to remove. The estimate takes the
smoothing matrix for fixed, but it has seen the noise, so small gains are partly imagined: of
13,146 batches of 20 Newsgroups the worst that promised more became 2.2 % worse than unsmoothed."""


@frozen
class Smoothed:
    """A smoothed matrix.

    Attributes:
        matrix: shape (N, n).
        passes: m, at least 0.
    """

    matrix: Array
    passes: int


def _passes(noisy: Array, most: int) -> Iterator[tuple[int, Array, Array]]:
    """m, S^m(noisy) and A_m, the product of the smoothing matrices, for m = 0..most."""
    from kahm.machine import smoother

    matrix, product = noisy, np.eye(len(noisy))
    yield 0, matrix, product
    for m in range(1, most + 1):
        H = smoother(matrix)
        matrix, product = H.T @ matrix, H.T @ product
        yield m, matrix, product


def estimated_risk(smoothed: Array, noisy: Array, product: Array, variance: float) -> float:
    """Stein's unbiased estimate of |S - X|_F^2 for S = A X+ with A held fixed.

    |S - X+|^2 + 2 variance n tr(A) - N n variance, unbiased for any noise of mean 0 and that
    variance if A did not depend on it.

    Args:
        smoothed: S, shape (N, n).
        noisy: X+, shape (N, n).
        product: A, shape (N, N).
        variance: of the noise of one entry.
    """
    n_columns = noisy.shape[1]
    fit = float(np.sum(np.square(smoothed - noisy)))
    return fit + variance * n_columns * (2 * float(np.trace(product)) - len(noisy))


def smooth(noisy: Array, variance: float, *, most: int = MOST_PASSES) -> Smoothed:
    """Smooths as often as Stein's estimate advises; sees the released matrix and public facts only.

    Not at all unless the estimate falls by a share of LEAST_GAIN.

    Args:
        noisy: the released matrix X+, shape (N, n).
        variance: of the noise of one entry, above 0.
        most: passes to try, at least 0.
    """
    best = Smoothed(noisy, 0)
    unsmoothed = noisy.size * variance  # the estimate for m = 0
    least = unsmoothed * (1 - LEAST_GAIN)
    for m, matrix, product in _passes(noisy, most):
        risk = estimated_risk(matrix, noisy, product, variance)
        if risk < least:
            best, least = Smoothed(matrix, m), risk
        elif m - best.passes >= PATIENCE:
            break
    return best


def smooth_fixed(noisy: Array, passes: int) -> Smoothed:
    """Smooths a public number of times."""
    if passes < 0:
        raise InputError(f"smoothing: found {passes} passes, expected at least 0")
    for m, matrix, _ in _passes(noisy, passes):
        result = Smoothed(matrix, m)
    return result


def smooth_oracle_without_guarantee(
    noisy: Array, private: Array, *, most: int = MOST_PASSES
) -> Smoothed:
    """The paper's choice of m (eq. 145), m = 0 allowed; it looks at the private matrix.

    For research only: what comes out carries no privacy guarantee.
    """
    best, least = Smoothed(noisy, 0), np.inf
    for m, matrix, _ in _passes(noisy, most):
        error = float(np.linalg.norm(matrix - private))
        if error < least:
            best, least = Smoothed(matrix, m), error
        elif m - best.passes >= PATIENCE:
            break
    return best
