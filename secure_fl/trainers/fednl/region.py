"""Where FedNL's local theory holds: the radius of theorem 3.6, lemmas 3.7 and 3.8.

The theory is sufficient, not necessary, and its region is small: mu over the Lipschitz constant of
the Hessians. Outside of it FedNL may converge or run away; the line search needs no region.
"""

import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from secure_fl.trainers.fednl.compressors import Compressor, learning_rate
from secure_fl.trainers.fednl.fednl_cr import THIRD_DERIVATIVE
from secure_fl.trainers.fednl.states import Array, NewtonState
from secure_fl.trainers.fednl.triangles import unpack

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Lipschitz:
    """Constants of the local Hessians (assumption 3.1), each at least 0.

    Attributes:
        spectral: L_*.
        frobenius: L_F, at least L_*.
        entries: L_infinity, of the largest entry.
    """

    spectral: float
    frobenius: float
    entries: float


@dataclass(frozen=True)
class Region:
    """What the theory asks of a start.

    Attributes:
        theorem: largest |x^0 - x*| of theorem 3.6, given that all estimates stay near.
        lemma: largest |x^0 - x*| from which estimates do stay near, lemma 3.7 or 3.8.
        estimates: largest Frobenius distance of H_i^0 from the Hessian at x* in lemma 3.7.
    """

    theorem: float
    lemma: float
    estimates: float


def region(
    compressor: Compressor,
    constants: Lipschitz,
    *,
    d: int,
    mu: float,
    option: int,
    rate: str | float = "auto",
) -> Region:
    """The radii, by the constants A to D of eqs. 5 and 6.

    Args:
        compressor: of the Hessians, contractive or unbiased.
        constants: of the local Hessians.
        d: number of features.
        mu: strong convexity, the penalty of `LogisticRidge`; above 0.
        option: 1 or 2, of `fednl`.
        rate: alpha; see `learning_rate`.

    Raises:
        ValueError: mu or option out of range, or a rate that the theory does not cover.
    """
    if not mu > 0 or option not in (1, 2):
        raise ValueError(f"region: found mu {mu:g} and option {option}, expected > 0, and 1 or 2")
    flat = constants.spectral + (2 * constants.frobenius if option == 2 else 0.0)
    C, D = (2.0, flat**2) if option == 1 else (8.0, flat**2)
    theorem = math.inf if D == 0 else mu / math.sqrt(2 * D)
    estimates = mu / (2 * math.sqrt(C))
    found = compressor.on_matrices(d)
    alpha = learning_rate(rate, compressor, d)
    if found.delta is not None and found.delta > 0:
        A, B = _contractive(found.delta, alpha)
        if constants.frobenius == 0:
            return Region(theorem, theorem, estimates)
        near = mu / (2 * constants.frobenius) * math.sqrt(A / (B * C))
        return Region(theorem, min(near, theorem), estimates)
    if found.omega is None or not 0 < alpha <= 1 / (found.omega + 1) * (1 + 1e-12):
        raise ValueError(f"region: the theory covers no rate of {alpha:g} with {compressor}")
    inner = D + 4 * C * d**2 * constants.entries**2
    return Region(theorem, math.inf if inner == 0 else mu / math.sqrt(inner), estimates)


def _contractive(delta: float, alpha: float) -> tuple[float, float]:
    """A and B of assumption 3.4."""
    if math.isclose(alpha, 1 - math.sqrt(1 - delta)):
        return alpha**2, alpha
    if alpha == 1:
        return delta / 4, 6 / delta - 7 / 2
    raise ValueError(
        f"region: the theory covers the rates 1 and {1 - math.sqrt(1 - delta):g}, found {alpha:g}"
    )


@dataclass(frozen=True)
class Outside:
    """A start that is surely outside the region.

    Attributes:
        distance: that |x^0 - x*| has at least.
        radius: that theorem 3.6 has at most.
    """

    distance: float
    radius: float


def outside(hessian: Array, gradient_norm: float, mu: float, option: int) -> Outside | None:
    """Whether a start at 0 is surely outside of theorem 3.6, from what the server has; else None.

    At 0 a logistic Hessian is a quarter of the mean outer product of the rows, its largest one. So
    its largest eigenvalue is L, and |x^0 - x*| >= |gradient| / L. Its trace gives the rows' mean
    square, of which the power 3/2 is at most the mean cube, which bounds L_* and L_F.

    Args:
        hessian: the mean of the local Hessians at 0, packed.
        gradient_norm: of f at 0.
        mu: the penalty, above 0.
        option: 1 or 2, of `fednl`.
    """
    d = math.isqrt(2 * len(hessian))
    H = unpack(hessian, d)
    largest = float(np.linalg.eigvalsh(H)[-1])
    squares = 4 * max(float(np.trace(H)) - d * mu, 0.0)
    constant = THIRD_DERIVATIVE * squares**1.5 * (1 if option == 1 else 3)
    if constant == 0 or not largest > 0:
        return None
    found = Outside(gradient_norm / largest, mu / (math.sqrt(2) * constant))
    return found if found.distance > found.radius else None


def told(states: Iterator[NewtonState], mu: float, option: int) -> Iterator[NewtonState]:
    """The states of a run that starts at 0 with local Hessians; warns where it starts outside."""
    start = None
    for state in states:
        if state.round == 0:
            start = state
        elif start is not None:
            found = outside(start.hessian, state.gradient_norm, mu, option)
            if found is not None:
                log.warning(
                    "fednl starts outside the region of its theory (at least %.2g from the"
                    " minimum, the radius is at most %.2g); take fednl-ls, which needs none",
                    found.distance,
                    found.radius,
                )
            start = None
        yield state
