"""The leading eigenpair of a symmetric matrix on a support, compiled. Import this module late.

Lanczos with full reorthogonalisation (Parlett, The symmetric eigenvalue problem, chapter 13). A
matrix is given by its values on a support: line r, of the r-th present feature, is contiguous and
holds r + 1 entries; every other feature has its diagonal entry alone, and so is an eigenvector. The
two kinds are never mixed, also where eigenvalues are equal: an outer product stays on the support.

Nothing here calls LAPACK, whose last bits depend on where in memory a matrix lies.
"""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

Array = NDArray[Any]

TOLERANCE = 1e-13
"""Residual of the pair, relative to its eigenvalue, of a matrix without rounding."""


@njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz"})
def times(values: Array, segments: Array, v: Array, out: Array) -> None:
    """out = M v among the present features."""
    for r in range(len(segments)):
        line = values[segments[r] : segments[r] + r + 1]
        total, weight = 0.0, v[r]
        for j in range(r):
            total += line[j] * v[j]
        for j in range(r):
            out[j] += weight * line[j]
        out[r] = total + line[r] * weight


@njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz"})
def dot(u: Array, v: Array) -> float:
    """<u, v>."""
    total = 0.0
    for i in range(len(u)):
        total += u[i] * v[i]
    return total


@njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz"})
def remove(basis: Array, count: int, v: Array) -> None:
    """v minus its part in the span of the first rows of an orthonormal basis."""
    for b in range(count):
        row = basis[b]
        part = 0.0
        for i in range(len(v)):
            part += row[i] * v[i]
        for i in range(len(v)):
            v[i] -= part * row[i]


@njit(nogil=True, cache=True)
def leading_pair(
    values: Array, segments: Array, diagonal: Array, feature: Array, rounding: float
) -> tuple[float, Array]:
    """The eigenvalue of largest magnitude and its unit vector in the order of `feature`.

    Args:
        values: on the support.
        segments: where the lines of the present features begin, shape (n,), n <= d.
        diagonal: where the diagonal entry of each feature stands, shape (d,).
        feature: the present features, then the others, shape (d,).
        rounding: Frobenius norm of what rounding left in the entries, at least 0. A pair whose
            residual is no larger is as exact as the matrix; looking on would decompose noise.
    """
    n, vector = len(segments), np.zeros(len(feature))
    value = 0.0
    if n > 0:
        value, vector[:n] = present_pair(values, segments, rounding)
    for r in range(n, len(feature)):
        entry = values[diagonal[feature[r]]]
        if abs(entry) > abs(value):
            value = entry
            vector[:] = 0.0
            vector[r] = 1.0
    return value, vector


@njit(nogil=True, cache=True)
def present_pair(values: Array, segments: Array, rounding: float) -> tuple[float, Array]:
    """`leading_pair` among the present features, of which there is at least one."""
    n = len(segments)
    room = min(n, 40)
    basis = np.empty((room + 1, n))
    alpha, beta = np.zeros(n), np.zeros(n + 1)
    start(basis[0])
    checked = 0
    for j in range(n):
        if j == room:
            room = min(n, 2 * room)
            more = np.empty((room + 1, n))
            more[: j + 1] = basis
            basis = more
        v = basis[j + 1]
        times(values, segments, basis[j], v)
        alpha[j] = dot(v, basis[j])
        # Twice is enough (Kahan, Parlett): after it the basis is orthonormal to rounding.
        remove(basis, j + 1, v)
        remove(basis, j + 1, v)
        beta[j + 1] = np.sqrt(dot(v, v))
        scale = max(np.abs(alpha[: j + 1]).max(), beta[: j + 2].max())
        ended = j + 1 == n or beta[j + 1] <= 1e-15 * scale
        if ended or (j >= 7 and j + 1 >= checked + max(2, checked // 4)):
            checked = j + 1
            theta, S = tridiagonal_eigen(alpha[: j + 1], beta[1 : j + 1])
            top = np.argmax(np.abs(theta))
            residual = beta[j + 1] * abs(S[top, j])
            if ended or residual <= max(TOLERANCE * abs(theta[top]), rounding):
                break
        for i in range(n):
            v[i] /= beta[j + 1]
    return theta[top], combined(basis, S[top])


@njit(nogil=True, cache=True)
def tridiagonal_eigen(diagonal: Array, beside: Array) -> tuple[Array, Array]:
    """Eigenvalues and, as rows, eigenvectors of a symmetric tridiagonal matrix.

    The implicit QL algorithm (Dubrulle, Martin and Wilkinson 1968, imtql2).

    Args:
        diagonal: shape (n,).
        beside: the entries next to it, shape (n - 1,).
    """
    n = len(diagonal)
    d, e = diagonal.copy(), np.append(beside, 0.0)
    Z = np.eye(n)
    for low in range(n):
        for _ in range(60):
            m = low
            while m < n - 1 and abs(e[m]) > 2.3e-16 * (abs(d[m]) + abs(d[m + 1])):
                m += 1
            if m == low:
                break
            g = (d[low + 1] - d[low]) / (2.0 * e[low])
            g = d[m] - d[low] + e[low] / (g + np.copysign(np.hypot(g, 1.0), g))
            s, c, p, i = 1.0, 1.0, 0.0, m - 1
            while i >= low:
                f, b = s * e[i], c * e[i]
                r = np.hypot(f, g)
                e[i + 1] = r
                if r == 0.0:
                    break
                s, c = f / r, g / r
                g = d[i + 1] - p
                r = (d[i] - g) * s + 2.0 * c * b
                p = s * r
                d[i + 1] = g + p
                g = c * r - b
                for k in range(n):
                    z = Z[i + 1, k]
                    Z[i + 1, k] = s * Z[i, k] + c * z
                    Z[i, k] = c * Z[i, k] - s * z
                i -= 1
            if i >= low:
                d[i + 1] -= p
            else:
                d[low] -= p
                e[low] = g
            e[m] = 0.0
    return d, Z


@njit(nogil=True, cache=True)
def start(out: Array) -> None:
    """A unit vector with a part in every direction, the same on every run (Weyl's sequence)."""
    for i in range(len(out)):
        out[i] = 0.5 + ((i + 1) * 0.6180339887498949) % 1.0
        if (i * 0.4142135623730951) % 1.0 < 0.5:
            out[i] = -out[i]
    out /= np.sqrt(dot(out, out))


@njit(nogil=True, cache=True)
def combined(basis: Array, weights: Array) -> Array:
    """The unit vector along a combination of the first rows of a basis."""
    out = np.zeros(basis.shape[1])
    for b in range(len(weights)):
        for i in range(len(out)):
            out[i] += weights[b] * basis[b, i]
    return out / np.sqrt(dot(out, out))
