"""Bounds on the excess risk of federated against central learning (fedavgr.txt, theorems 1 to 4).

Of hypotheses f(x) = W^T phi(x) whose trace norm is at most B, under a loss in [0, M] that is
lambda-Lipschitz. The discrepancies are suprema over all hypotheses (2), which no sample tells; the
paper's figure 2 puts the distance of mean features in their place. The constants are as printed:
`federated_error` holds for one client at a time at that delta, and for K together at delta / K.
A bound of M or more says nothing; with hundreds of records a client they are far above it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_SUM = 1e-9
"""How far a sum of weights may be from 1, by rounding."""


@dataclass(frozen=True)
class Hypotheses:
    """What the bounds take from loss and hypotheses.

    Attributes:
        classes: C, at least 1.
        trace: B, the largest trace norm of W, >= 0.
        lipschitz: lambda, of the loss by the 2-norm of the scores, >= 0; the default is cross
            entropy's.
        largest_loss: M, above 0; the default is the share of wrong classes'.

    Raises:
        ValueError: an attribute out of its range.
    """

    classes: int
    trace: float
    lipschitz: float = math.sqrt(2.0)
    largest_loss: float = 1.0

    def __post_init__(self) -> None:
        if self.classes < 1:
            raise ValueError(f"classes: found {self.classes}, expected at least 1")
        for name in ("trace", "lipschitz"):
            _check_least(name, getattr(self, name))
        if not 0 < self.largest_loss < math.inf:
            raise ValueError(
                f"largest_loss: found {self.largest_loss}, expected a finite number above 0"
            )


@dataclass(frozen=True)
class Sample:
    """What the bounds take from K clients.

    Attributes:
        sizes: n_k, each at least 1.
        features: |phi(X^k)|_F, each >= 0.
        weights: p_k of the real mixture, each >= 0, sum 1; default: n_k / n.
        estimated: p_k that the server averages by, each >= 0, sum 1; default: n_k / n.

    Raises:
        ValueError: an attribute out of its range, or not one for each client.
    """

    sizes: Sequence[int]
    features: Sequence[float]
    weights: Sequence[float] | None = None
    estimated: Sequence[float] | None = None

    def __post_init__(self) -> None:
        if not len(self.sizes) or min(self.sizes) < 1:
            raise ValueError(f"sizes: found {list(self.sizes)}, expected counts of at least 1")
        _check_each("features", self.features, len(self.sizes))
        for name in ("weights", "estimated"):
            found = getattr(self, name)
            if found is not None:
                _check_each(name, found, len(self.sizes))
                if abs(math.fsum(found) - 1) > _SUM:
                    raise ValueError(f"{name}: found the sum {math.fsum(found)}, expected 1")

    @property
    def total(self) -> int:
        """n, records of all clients."""
        return int(sum(self.sizes))

    @property
    def p(self) -> Array:
        """Weights of the real mixture, shape (K,)."""
        return self._or_shares(self.weights)

    @property
    def p_hat(self) -> Array:
        """Weights of the estimated one, shape (K,)."""
        return self._or_shares(self.estimated)

    @property
    def pooled(self) -> float:
        """|phi(X)|_F of all records."""
        return math.hypot(*self.features)

    @property
    def n(self) -> Array:
        """Sizes, shape (K,)."""
        return np.asarray(self.sizes, dtype=np.float64)

    def _or_shares(self, given: Sequence[float] | None) -> Array:
        return self.n / self.total if given is None else np.asarray(given, dtype=np.float64)


def skewness(estimated: Sequence[float], sizes: Sequence[int]) -> float:
    """S(p|n) = chi^2(p|n) + 1 = sum over k of p_k^2 n / n_k, at least 1 (theorem 1).

    It is 1 where every client weighs as its share of the records, the paper's choice (4.2).
    """
    own = Sample(sizes, [0.0] * len(sizes), estimated=estimated)
    return float(np.sum(own.p_hat**2 * own.total / own.n))


def agnostic_error(space: Hypotheses, sample: Sample, *, discrepancy: float, delta: float) -> float:
    """Theorem 1: bound on A_1, what the estimated weights p_hat cost beside the real ones.

    Args:
        space: of hypotheses.
        sample: of the clients.
        discrepancy: of the estimated and the real mixture, disc_L(rho~, rho), >= 0.
        delta: in (0, 1).

    Raises:
        ValueError: an argument out of its range.
    """
    _check_least("discrepancy", discrepancy)
    complexity = float(np.sum(sample.p_hat / sample.n * np.asarray(sample.features)))
    spread = skewness(sample.p_hat.tolist(), sample.sizes)
    deviation = 6 * space.largest_loss * _deviation(sample.total / spread, delta)
    return 2 * discrepancy + _rademacher(space) * complexity + deviation


def federated_error(
    space: Hypotheses, sample: Sample, *, discrepancies: Sequence[float], delta: float
) -> float:
    """Theorem 2: bound on A_2, what it costs that clients' distributions differ.

    Args:
        space: of hypotheses.
        sample: of the clients.
        discrepancies: disc_L(rho_k, rho), each >= 0.
        delta: in (0, 1).

    Raises:
        ValueError: an argument out of its range.
    """
    _check_each("discrepancies", discrepancies, len(sample.sizes))
    complexities = _rademacher(space) / sample.n * np.asarray(sample.features)
    deviations = [6 * space.largest_loss * _deviation(n, delta) for n in sample.sizes]
    return float(np.sum(sample.p * (np.asarray(discrepancies) + complexities + deviations)))


def approximation_error(space: Hypotheses, sample: Sample, *, delta: float) -> float:
    """Theorem 3: bound on A_3, the excess risk of learning from all records in one place.

    Args:
        space: of hypotheses.
        sample: of the clients.
        delta: in (0, 1).

    Raises:
        ValueError: delta out of its range.
    """
    deviation = 3 * space.largest_loss * _deviation(sample.total, delta)
    return _rademacher(space) * sample.pooled / sample.total + deviation


def excess_risk(
    space: Hypotheses,
    sample: Sample,
    *,
    discrepancy: float,
    discrepancies: Sequence[float],
    delta: float,
) -> float:
    """Theorem 4 with its constants: the sum of theorems 1 to 3 (1), each at delta / 3.

    The paper leaves the constants out, and with them that three events must hold at once.

    Args:
        space: of hypotheses.
        sample: of the clients.
        discrepancy: see `agnostic_error`.
        discrepancies: see `federated_error`.
        delta: in (0, 1).

    Raises:
        ValueError: an argument out of its range.
    """
    _check_delta(delta)
    return (
        agnostic_error(space, sample, discrepancy=discrepancy, delta=delta / 3)
        + federated_error(space, sample, discrepancies=discrepancies, delta=delta / 3)
        + approximation_error(space, sample, delta=delta / 3)
    )


@dataclass(frozen=True)
class Terms:
    """The three terms of theorem 4, without lambda, M, delta and constants.

    Attributes:
        agnostic: G_1.
        approximation: G_2.
        federated: G_3.
    """

    agnostic: float
    approximation: float
    federated: float

    @property
    def total(self) -> float:
        """G_1 + G_2 + G_3."""
        return self.agnostic + self.approximation + self.federated


def terms(
    space: Hypotheses, sample: Sample, *, discrepancy: float, discrepancies: Sequence[float]
) -> Terms:
    """G_1, G_2 and G_3 of theorem 4 (7).

    Without discrepancies, with p_hat = p, records of squared norm kappa^2 and n / K of them a
    client, G_3 is (kappa B sqrt(C) + 1) sqrt(K / n), and no other term is larger: the rate of
    distributed learning, and with K = 1 that of central learning (section 3.2).

    Args:
        space: of hypotheses; its Lipschitz constant and largest loss do not enter.
        sample: of the clients.
        discrepancy: see `agnostic_error`.
        discrepancies: see `federated_error`.

    Raises:
        ValueError: an argument out of its range.
    """
    _check_least("discrepancy", discrepancy)
    _check_each("discrepancies", discrepancies, len(sample.sizes))
    size = space.trace * math.sqrt(space.classes)
    complexities = size / sample.n * np.asarray(sample.features)
    spread = skewness(sample.p_hat.tolist(), sample.sizes)
    apart = np.asarray(discrepancies) + complexities + 1 / np.sqrt(sample.n)
    return Terms(
        discrepancy + float(sample.p_hat @ complexities) + math.sqrt(spread / sample.total),
        size / sample.total * sample.pooled + 1 / math.sqrt(sample.total),
        float(sample.p @ apart),
    )


def _rademacher(space: Hypotheses) -> float:
    return 4 * math.sqrt(2 * space.classes) * space.lipschitz * space.trace


def _deviation(records: float, delta: float) -> float:
    _check_delta(delta)
    return math.sqrt(math.log(2 / delta) / (2 * records))


def _check_delta(delta: float) -> None:
    if not 0.0 < delta < 1.0:
        raise ValueError(f"delta: found {delta}, expected inside (0, 1)")


def _check_least(name: str, value: float) -> None:
    if not 0.0 <= value < math.inf:
        raise ValueError(f"{name}: found {value}, expected a finite number of at least 0")


def _check_each(name: str, values: Sequence[float], count: int) -> None:
    if len(values) != count:
        raise ValueError(f"{name}: found {len(values)}, expected {count}, one a client")
    for value in values:
        _check_least(name, value)
