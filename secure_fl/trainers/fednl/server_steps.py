"""The server's linear algebra: projected, shifted and cubic Newton steps."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from secure_fl.trainers.fednl.triangles import unpack

Array = NDArray[Any]


def projected_step(hessian: Array, mu: float, gradient: Array) -> Array:
    """[H]_mu^{-1} g, with H projected onto the matrices >= mu I (Option 1, eqs. 21 and 22).

    Args:
        hessian: packed triangle.
        mu: above 0.
        gradient: shape (d,).
    """
    H = unpack(hessian, len(gradient))
    # What a client never saw has the eigenvalue mu exactly, but for rounding.
    rounding = len(H) * float(np.finfo(float).eps) * float(np.abs(H.diagonal()).max(initial=0.0))
    # A Cholesky factor of H - mu I proves H >= mu I: then the projection changes nothing.
    if _cholesky(H, rounding - mu) is not None:
        factor = _cholesky(H, 0.0)
        if factor is not None:
            return _solve(factor, gradient)
    return _raised(H, mu, gradient)


def shifted_step(hessian: Array, shift: float, gradient: Array) -> Array:
    """(H + shift I)^{-1} g (Option 2).

    H + l I >= the Hessian in exact sums; where noise or rounding broke that, it is projected onto
    the positive matrices at the size of the rounding.
    """
    H = unpack(hessian, len(gradient))
    factor = _cholesky(H, shift)
    if factor is not None:
        return _solve(factor, gradient)
    H[np.diag_indices_from(H)] += shift
    return _raised(H, None, gradient)


def _cholesky(H: Array, shift: float) -> Array | None:
    """The Cholesky factor of H + shift I; None where there is none."""
    from scipy.linalg.lapack import dpotrf

    # Transposed, so that LAPACK finds its order of entries and makes no copy of its own.
    A = H.copy()
    A[np.diag_indices_from(A)] += shift
    factor, info = dpotrf(A.T, lower=0, clean=0, overwrite_a=1)
    return factor if info == 0 else None


def _solve(factor: Array, gradient: Array) -> Array:
    from scipy.linalg.lapack import dpotrs

    step, _ = dpotrs(factor, gradient, lower=0)
    return np.asarray(step)


def _raised(H: Array, floor: float | None, gradient: Array) -> Array:
    """H^{-1} g with H's eigenvalues raised to a floor, by default the size of their rounding."""
    from scipy.linalg import eigh

    values, vectors = eigh(H, check_finite=False, driver="evd")
    if floor is None:
        floor = max(abs(values).max() * len(H) * np.finfo(float).eps, np.finfo(float).tiny)
    return vectors @ ((vectors.T @ gradient) / np.maximum(values, floor))


def cubic_step(hessian: Array, shift: float, gradient: Array, lipschitz: float) -> Array:
    """argmin over h of <g, h> + <(H + shift I) h, h>/2 + L/6 |h|^3 (Algorithm 4, line 11).

    In the eigenbasis of A = H + shift I, h = -(A + L r/2 I)^{-1} g with r = |h|: one equation in r,
    r - |h(r)| = 0, increasing on r > max(0, -2 min(eigenvalue)/L), solved by bracketing.
    """
    from scipy.linalg import eigh
    from scipy.optimize import brentq

    values, vectors = eigh(unpack(hessian, len(gradient)), check_finite=False, driver="evd")
    values = values + shift
    g = vectors.T @ gradient
    size = float(np.linalg.norm(g))
    if size == 0.0 and values[0] >= 0:
        return np.zeros_like(gradient)
    if lipschitz == 0.0:
        return -vectors @ (g / values)

    def excess(r: float) -> float:
        return r - float(np.linalg.norm(g / (values + 0.5 * lipschitz * r)))

    low = max(0.0, -2.0 * float(values[0]) / lipschitz)
    low = low * (1 + 1e-12) + float(np.finfo(float).tiny)
    high = low + (2.0 * size / lipschitz) ** 0.5 + float(np.finfo(float).eps)
    while excess(high) < 0:
        high *= 2.0
    # Otherwise the hard case: g has no part along the lowest eigenvector.
    regular = excess(low) < 0
    r = brentq(excess, low, high, xtol=1e-300, rtol=1e-15, maxiter=500) if regular else low
    step = -(g / (values + 0.5 * lipschitz * r))
    missing = r * r - float(step @ step)
    if not regular and missing > 0 and values[0] < 0:
        step[0] += np.sqrt(missing)
    return vectors @ step
