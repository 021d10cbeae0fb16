"""Smoothing a released matrix with the machine's own kernel (kahm.txt, 3.8.2).

S(X) = H_X^T X (eq. 133), repeated m times. The paper picks m by comparing with the private matrix
(eq. 145), which is no post-processing. `smooth` sees the released matrix alone, and mixes: it
returns Y + w (S^m(Y) - Y), with m and w in [0, 1] of the least estimated risk.

The risk. With Y = X + V and D = S^m(Y) - Y, mixing changes |Y - X|^2 by w^2 |D|^2 + 2 w <D, V>. The
first term is known. For the second, Stein's identity gives E <D, V> = var E (div S^m - N n). The
divergence is that of the whole map, whose kernel has seen the noise as well: with the kernel held
fixed, as if it had not, small gains are imagined. A difference along one direction of random signs
estimates it (Ramani, Blu, Unser 2008). The identity is exact for Gaussian noise, and for any other
where an entry of S^m depends on its own noise linearly, which nearly holds since each entry weighs
little in the kernel. An error e of the estimated <D, V> costs at most e^2 / |D|^2, which is why
mixing is safe where an all-or-nothing choice of m is not.
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

PROBE = 1e-4
"""Length of the probe in standard deviations of the noise: small against the kernel's width, large
against the rounding of its exponentials."""


@frozen
class Smoothed:
    """A smoothed matrix.

    Attributes:
        matrix: shape (N, n).
        passes: m, at least 0.
        share: w, of the matrix smoothed m times in the result, in [0, 1].
    """

    matrix: Array
    passes: int
    share: float


def _passes(matrix: Array, most: int) -> Iterator[tuple[int, Array]]:
    """m and S^m(matrix), for m = 0..most."""
    from kahm.machine import smoothed
    from kahm.threads import one_thread

    yield 0, matrix
    for m in range(1, most + 1):
        # A second thread waits longer than it works, and would change the last digits.
        with one_thread():
            matrix = smoothed(matrix)
        yield m, matrix


def smooth(noisy: Array, variance: float, *, most: int = MOST_PASSES) -> Smoothed:
    """Smooths as Stein's estimate advises; sees the released matrix and public facts only.

    Args:
        noisy: the released matrix Y, shape (N, n).
        variance: of the noise of one entry, above 0.
        most: passes to try, at least 0.
    """
    # Any signs that do not depend on the noise will do; fixed ones make the result repeatable.
    signs = np.random.default_rng(0).choice([-1.0, 1.0], noisy.shape)
    length = PROBE * variance**0.5
    best, least = Smoothed(noisy, 0, 0.0), 0.0
    pairs = zip(_passes(noisy, most), _passes(noisy + length * signs, most), strict=True)
    for (m, matrix), (_, probed) in pairs:
        divergence = float(np.sum(signs * (probed - matrix))) / length
        change, share = mixed_risk(matrix - noisy, variance * (divergence - noisy.size))
        if change < least:
            best, least = Smoothed(noisy + share * (matrix - noisy), m, share), change
        elif m - best.passes >= PATIENCE:
            break
    return best


def mixed_risk(step: Array, correlation: float) -> tuple[float, float]:
    """The least of w^2 |D|^2 + 2 w <D, V> over w in [0, 1], and that w.

    Args:
        step: D.
        correlation: <D, V>, or an estimate of it.
    """
    squared = float(np.sum(np.square(step)))
    if squared == 0:
        return 0.0, 0.0
    share = min(1.0, max(0.0, -correlation / squared))
    return share * share * squared + 2 * share * correlation, share


def smooth_fixed(noisy: Array, passes: int) -> Smoothed:
    """Smooths a public number of times."""
    if passes < 0:
        raise InputError(f"smoothing: found {passes} passes, expected at least 0")
    for m, matrix in _passes(noisy, passes):
        result = Smoothed(matrix, m, float(m > 0))
    return result


def smooth_oracle_without_guarantee(
    noisy: Array, private: Array, *, most: int = MOST_PASSES
) -> Smoothed:
    """The paper's choice of m (eq. 145): passes go on as long as each reduces the error.

    It looks at the private matrix. For research only: what comes out carries no privacy guarantee.
    Two readings: a first pass that increases the error is not applied either (m = 0), as the
    sentence below (145) has it, and both sides of its last inequality are Frobenius norms.
    """
    best, least = Smoothed(noisy, 0, 0.0), np.inf
    for m, matrix in _passes(noisy, most):
        error = float(np.linalg.norm(matrix - private))
        if error >= least:
            break
        best, least = Smoothed(matrix, m, float(m > 0)), error
    return best
