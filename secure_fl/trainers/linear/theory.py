"""When Newton rounds pay: the constants of FedNewton's theorem 1 (fednewton.txt, section 4).

They compare covariances that nobody has in practice, since C_j is that of a client's whole
distribution: they are for simulations. What a federation measures of itself is the contraction
factor of `NewtonState`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from secure_fl.objectives.base import Array


@dataclass(frozen=True)
class Similarity:
    """How near clients are to each other and to their own distributions.

    Attributes:
        shift: Delta_j = |C - C_j|, by client.
        inverse: P_j = |(C_Dj + lambda)^-1 (C_j + lambda)|.
        sampling: R_j = |(C_j + lambda)^-1 (C_j - C_Dj)|.
        upsilon: the mean of P_j (2 R_j + Delta_j / lambda) (1 + Delta_j / lambda). By theorem 1 the
            federated error shrinks at least by this factor in a round, where it is below 1.
    """

    shift: tuple[float, ...]
    inverse: tuple[float, ...]
    sampling: tuple[float, ...]
    upsilon: float


def similarity(
    sampled: Sequence[Array], whole: Sequence[Array], shares: Sequence[float], ridge: float
) -> Similarity:
    """The constants of theorem 1, in spectral norms.

    Args:
        sampled: C_Dj, second moments X'X / n of the clients' features, shape (d, d).
        whole: C_j, those of the distributions that the clients' records are drawn from.
        shares: p_j, of the records; they sum to 1.
        ridge: lambda, above 0.

    Raises:
        ValueError: a ridge of 0, or another number of matrices or shares.
    """
    if not ridge > 0 or not len(sampled) == len(whole) == len(shares):
        raise ValueError(f"similarity: ridge {ridge:g}, {len(sampled)} and {len(whole)} matrices")
    eye = ridge * np.eye(len(whole[0]))
    together = sum(p * C for p, C in zip(shares, whole, strict=True))
    shift, inverse, sampling = [], [], []
    for own, C in zip(sampled, whole, strict=True):
        shift.append(float(np.linalg.norm(together - C, 2)))
        inverse.append(float(np.linalg.norm(np.linalg.solve(own + eye, C + eye), 2)))
        sampling.append(float(np.linalg.norm(np.linalg.solve(C + eye, C - own), 2)))
    terms = [
        P * (2 * R + delta / ridge) * (1 + delta / ridge)
        for P, R, delta in zip(inverse, sampling, shift, strict=True)
    ]
    upsilon = float(np.dot(shares, terms))
    return Similarity(tuple(shift), tuple(inverse), tuple(sampling), upsilon)
