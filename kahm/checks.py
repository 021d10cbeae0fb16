"""Validation of matrices of features, with the row named."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kahm._typing import Array
from kahm.errors import InputError


def feature_matrix(X: object, *, name: str, n_features: int | None = None) -> Array:
    """Returns `X` as a finite two-dimensional float array; float32 stays float32.

    Args:
        X: anything NumPy reads as numbers, shape (n, d).
        name: how error messages call it.
        n_features: the required d, if there is one.

    Raises:
        InputError: not two-dimensional, no feature, another feature count, not numbers,
            or a row holds NaN or infinity (the row is named).
    """
    try:
        matrix: NDArray[Any] = np.asarray(X)
        if matrix.dtype not in (np.float32, np.float64):
            matrix = matrix.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name}: not a matrix of numbers ({error})") from error
    if matrix.ndim != 2:
        raise InputError(
            f"{name}: found {matrix.ndim} dimension(s), expected 2 (records, features)"
        )
    if matrix.shape[1] == 0:
        raise InputError(f"{name}: 0 features, at least 1 is needed")
    if n_features is not None and matrix.shape[1] != n_features:
        raise InputError(
            f"{name}: {matrix.shape[1]} features, expected {n_features}; "
            "use the encoder that the head was trained with"
        )
    finite = np.isfinite(matrix).all(axis=1)
    if not finite.all():
        row = int(np.flatnonzero(~finite)[0])
        raise InputError(f"{name}: row {row} holds NaN or infinity; remove or repair the record")
    return matrix
