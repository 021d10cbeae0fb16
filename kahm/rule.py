"""The global rule in the clear, on measures or on their integer codes (kahm.txt, 3.7.2 and 3.9).

Both are compared only, so one function serves real and integer values.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kahm._typing import IntArray

Values = NDArray[Any]


def global_measure(values: Values) -> Values:
    """Eq. (105) and (122): the smallest value over clients.

    Args:
        values: shape (queries, clients, classes).

    Returns:
        Shape (queries, classes).
    """
    return np.asarray(values.min(axis=1))


def feature_map(values: Values) -> NDArray[np.bool_]:
    """Phi* of eq. (106): true for every class that attains the minimum, so ties are all true.

    Args:
        values: shape (queries, clients, classes).

    Returns:
        Shape (queries, classes).
    """
    smallest = global_measure(values)
    return np.asarray(smallest == smallest.min(axis=1, keepdims=True))


def classify(values: Values) -> IntArray:
    """The class of eq. (118); among tied classes the lowest index.

    Args:
        values: measures or codes, shape (queries, clients, classes).

    Returns:
        Class indices, shape (queries,).
    """
    return np.asarray(np.argmax(feature_map(values), axis=1))
