"""The server's linear algebra: projected, shifted and cubic Newton steps."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from secure_fl.fednl.triangles import unpack

Array = NDArray[Any]


def projected_step(hessian: Array, mu: float, gradient: Array) -> Array:
    """[H]_mu^{-1} g, with H projected onto the matrices >= mu I (Option 1, eqs. 21 and 22).

    Args:
        hessian: packed triangle.
        mu: above 0.
        gradient: shape (d,).
    """
    from scipy.linalg import cho_factor, cho_solve, eigh

    H = unpack(hessian, len(gradient))
    try:
        # A Cholesky factor of H - mu I proves H >= mu I: then the projection changes nothing.
        cho_factor(H - mu * np.eye(len(H)), lower=True, check_finite=False)
        return cho_solve(cho_factor(H, lower=True, check_finite=False), gradient)
    except np.linalg.LinAlgError:
        values, vectors = eigh(H, check_finite=False)
        return vectors @ ((vectors.T @ gradient) / np.maximum(values, mu))


def shifted_step(hessian: Array, shift: float, gradient: Array) -> Array:
    """(H + shift I)^{-1} g (Option 2).

    H + l I >= the Hessian in exact sums; where noise or rounding broke that, it is projected onto
    the positive matrices at the size of the rounding.
    """
    from scipy.linalg import cho_factor, cho_solve, eigh

    H = unpack(hessian, len(gradient))
    H[np.diag_indices_from(H)] += shift
    try:
        return cho_solve(cho_factor(H, lower=True, check_finite=False), gradient)
    except np.linalg.LinAlgError:
        values, vectors = eigh(H, check_finite=False)
        floor = max(abs(values).max() * len(H) * np.finfo(float).eps, np.finfo(float).tiny)
        return vectors @ ((vectors.T @ gradient) / np.maximum(values, floor))


def cubic_step(hessian: Array, shift: float, gradient: Array, lipschitz: float) -> Array:
    """argmin over h of <g, h> + <(H + shift I) h, h>/2 + L/6 |h|^3 (Algorithm 4, line 11).

    In the eigenbasis of A = H + shift I, h = -(A + L r/2 I)^{-1} g with r = |h|: one equation in r,
    r - |h(r)| = 0, increasing on r > max(0, -2 min(eigenvalue)/L), solved by bracketing.
    """
    from scipy.linalg import eigh
    from scipy.optimize import brentq

    values, vectors = eigh(unpack(hessian, len(gradient)), check_finite=False)
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
