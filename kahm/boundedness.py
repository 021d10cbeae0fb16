"""How far a machine's image reaches (kahm.txt, theorems 8 and 9).

Both bounds hold at every point of the space, and need nothing but the records.
"""

import numpy as np

from kahm._typing import Array
from kahm.checks import feature_matrix


def folding_ratio_bound(X: object) -> float:
    """Theorem 9, eq. (101): 1 + n N^2 / (2 |X|_F^2).

    The distance of any point x from its image is less than this many times |[x - x^1 ... x - x^N]|
    in the spectral norm.

    Args:
        X: records, shape (N, n), N and n at least 1, finite.

    Returns:
        The factor; infinite where all records are 0.

    Raises:
        InputError: no records, or a row that is not finite.
    """
    records = feature_matrix(X, name="records").astype(np.float64)
    count, width = records.shape
    squared = float(np.sum(np.square(records)))
    return float("inf") if squared == 0 else 1.0 + width * count**2 / (2.0 * squared)


def image_bound(X: object) -> float:
    """Theorem 8, eqs. (99) and (100): what every image is shorter than.

    Args:
        X: records, shape (N, n), N and n at least 1, finite.

    Returns:
        |X|_2 (1 + n N^2 / (2 |X|_F^2)); infinite where all records are 0.

    Raises:
        InputError: no records, or a row that is not finite.
    """
    records: Array = feature_matrix(X, name="records").astype(np.float64)
    longest = float(np.linalg.norm(records, 2))
    return longest * folding_ratio_bound(records) if longest > 0 else float("inf")
