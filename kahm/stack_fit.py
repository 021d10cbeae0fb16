"""Fitting machines of equal size together, as `kahm.machine` fits one."""

import numpy as np
from numpy.typing import NDArray

from kahm._typing import Array
from kahm.machine import MAX_DIRECTIONS, MIN_RANGE, RANK_TOLERANCE, Regularisation
from kahm.stack import Stack

_BISECTIONS = 64
"""Halvings of [0, tau/2]; the interval is then below the rounding of lambda* >= tau."""


def kept_directions(singular: Array, U: Array) -> NDArray[np.bool_]:
    """Which principal directions Algorithm 1 keeps, as a mask of shape (m, r).

    Args:
        singular: singular values of the centred records, shape (m, r), descending.
        U: left singular vectors, shape (m, N, r).
    """
    n_records = U.shape[1]
    spread = np.ptp(U * singular[:, None, :], axis=1) >= MIN_RANGE
    real = np.square(singular) > RANK_TOLERANCE * np.square(singular[:, :1])
    kept = np.logical_and.accumulate(spread & real, axis=1)
    kept[:, min(MAX_DIRECTIONS, n_records - 1) :] = False
    return kept


def _strength(
    eigenvalues: Array, eigenvectors: Array, G: Array, n_features: int, kind: Regularisation
) -> Array:
    """lambda* of eq. (149) for every machine, shape (m,), by bisection of eq. (150)."""
    n_values = G.shape[1] * n_features
    if kind != "absolute":
        squares = np.trace(G, axis1=1, axis2=2)
        G = G * (n_values / np.where(squares > 0, squares, 1.0))[:, None, None]
    energies = np.einsum("mni,mnk,mki->mi", eigenvectors, G, eigenvectors, optimize=True)
    energies = np.maximum(energies, 0.0) / n_values
    upper = energies.sum(axis=1)
    tau = 2.0 * np.trace(G, axis1=1, axis2=2) / n_values
    # Records that are all zero have no kernel either, and no lambda; 0 / 0 would only warn of it.
    tau = np.maximum(tau, np.finfo(tau.dtype).tiny)
    low, high = np.zeros_like(upper), upper
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        shift = (middle + tau)[:, None]
        above = np.sum(np.square(shift / (eigenvalues + shift)) * energies, axis=1) > middle
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return 0.5 * (low + high) + tau


def fit_stack(
    records: Array, regularisation: Regularisation = "absolute", factor: float = 1.0
) -> tuple[Stack, NDArray[np.bool_]]:
    """Fits machines of equal size.

    Args:
        records: shape (m, N, d), float64.
        regularisation: one of `kahm.machine.REGULARISATIONS`.
        factor: on lambda*.

    Returns:
        The stack, and a mask (m,) of the machines whose records do not spread; their rows of the
        stack are meaningless, for such a machine folds everything onto its mean.
    """
    n_machines, n_records, n_features = records.shape
    if n_records == 1:
        none = np.zeros((n_machines, 1, 1))
        zeros = np.zeros(n_machines)
        return Stack(none, none[:, 0], none + 1, zeros), zeros.astype(bool)
    G = records @ records.transpose(0, 2, 1)
    about = records - records.mean(axis=1, keepdims=True)
    # The mean is rounded in units of an offset; the mean of what is left is not.
    about -= about.mean(axis=1, keepdims=True)
    U, singular, _ = np.linalg.svd(about, full_matrices=False)
    kept = kept_directions(singular, U)
    # The columns behind are 0, and need no memory.
    widest = max(1, int(kept.sum(axis=1).max()))
    U, singular, kept = U[:, :, :widest], singular[:, :widest], kept[:, :widest]
    n_kept = kept.sum(axis=1)
    flat = n_kept == 0
    rest = (n_records - 1) / np.maximum(n_kept, 1)
    encoded = U * (kept * np.sqrt(rest)[:, None])[:, None, :]
    inverse = np.divide(1.0, singular, out=np.zeros_like(singular), where=kept)
    inner = encoded @ encoded.transpose(0, 2, 1)
    norms = np.diagonal(inner, axis1=1, axis2=2)
    K = np.exp(np.minimum(inner - 0.5 * (norms[:, :, None] + norms[:, None, :]), 0.0))
    eigenvalues, vectors = np.linalg.eigh(K)
    eigenvalues = np.maximum(eigenvalues, 0.0)
    strength = factor * _strength(eigenvalues, vectors, G, n_features, regularisation)
    lam = np.where(flat, 1.0, strength)[:, None]
    solver = (vectors * (lam / (eigenvalues + lam))[:, None, :]) @ vectors.transpose(0, 2, 1)
    return Stack(encoded, inverse, solver, np.zeros(n_machines)), flat
