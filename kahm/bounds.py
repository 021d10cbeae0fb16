"""Finite-sample bounds on a head's error (kahm.txt, theorems 3, 5, 6, 7 and proposition 2).

All hold with probability at least 1 - delta over N records drawn independently from one
distribution; the classes' errors are squared errors in [0, 1], so a bound of 1 or more says
nothing (`is_vacuous`). With few records most of them are vacuous, and that is worth printing.
"""

import math

from kahm.errors import InputError


def is_vacuous(bound: float) -> bool:
    """Whether a bound on an error in [0, 1] says nothing."""
    return bound >= 1.0


def _check(n_records: int, delta: float) -> None:
    if n_records < 1:
        raise InputError(f"records: found {n_records}, expected at least 1")
    if not 0.0 < delta < 1.0:
        raise InputError(f"delta: found {delta}, expected inside (0, 1)")


def _check_error(name: str, value: float) -> None:
    if not 0.0 <= value <= 1.0:
        raise InputError(f"{name}: found {value}, expected inside [0, 1]")


def operator_term(n_records: int, feature_map_sq: float, delta: float) -> float:
    """The last term of eqs. (70), (73), (77): the risk of learning through the operator.

    Args:
        n_records: N, at least 1.
        feature_map_sq: |Phi_c|^2 in L2 of the data's distribution, in (0, 1]; N_c / N for the
            hypothesis space (85). 0 gives infinity.
        delta: in (0, 1).
    """
    _check(n_records, delta)
    _check_error("squared norm of the feature map", feature_map_sq)
    if feature_map_sq == 0:
        return math.inf
    deviation = (3.0 + math.sqrt(8.0 * math.log(1.0 / delta))) / math.sqrt(n_records)
    return deviation / feature_map_sq**2


def prediction_error(
    n_records: int, feature_map_sq: float, delta: float, *, disturbance: float
) -> float:
    """Theorem 3, eq. (73): bound on E|y_c - h(x)|^2 of the generalised solution.

    Args:
        n_records: N.
        feature_map_sq: |Phi_c|^2 in L2.
        delta: in (0, 1).
        disturbance: E|y_c - E[y_c | x]|^2, in [0, 1/4]; unknown in practice, 0 when the label is a
            function of the features.
    """
    _check_error("disturbance", disturbance)
    return disturbance + operator_term(n_records, feature_map_sq, delta)


def rademacher_complexity(n_records: int) -> float:
    """Theorem 5, eq. (93): bound on the empirical Rademacher complexity of the hypothesis space."""
    _check(n_records, 0.5)
    return 1.0 / math.sqrt(n_records)


def _empirical_term(n_records: int, empirical_error: float, delta: float) -> float:
    _check(n_records, delta)
    _check_error("empirical error", empirical_error)
    deviation = 4.0 + math.sqrt(math.log(1.0 / delta) / 2.0)
    return empirical_error + deviation / math.sqrt(n_records)


def hypothesis_prediction_error(
    n_records: int, n_class: int, delta: float, *, empirical_error: float, disturbance: float
) -> float:
    """Theorem 6, eq. (95): bound on E|y_c - h(x)|^2 for any h in the hypothesis space.

    Args:
        n_records: N.
        n_class: N_c, in [0, N].
        delta: in (0, 1).
        empirical_error: mean of |y_c - h(x)|^2 over the N training records.
        disturbance: as in theorem 3.
    """
    by_operator = prediction_error(n_records, n_class / n_records, delta, disturbance=disturbance)
    return min(_empirical_term(n_records, empirical_error, delta), by_operator)


def hypothesis_approximation_error(
    n_records: int, n_class: int, delta: float, *, empirical_error: float = 0.0
) -> float:
    """Theorem 7, eq. (96): bound on E|h(x) - P(y_c = 1 | x)|^2 for any h in the hypothesis space.

    With `empirical_error` 0 this is proposition 2, eq. (114), which assumes that the rule is right
    on every training record (assumption 2) and that |Phi_c|^2 equals its sample average
    (assumption 3).
    """
    by_operator = operator_term(n_records, n_class / n_records, delta)
    return min(_empirical_term(n_records, empirical_error, delta), by_operator)
