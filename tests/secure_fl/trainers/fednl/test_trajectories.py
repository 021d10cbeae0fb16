"""FedNL on the papers' data, against the authors' own code and the local theory."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from secure_fl.federation import Federation
from secure_fl.trainers.fednl import (
    LogisticRidge,
    RankR,
    SharedRandK,
    TopK,
    fednl,
    mean_value,
    newton,
    newton_star,
    newton_zero,
    optimum,
)
from tests.secure_fl.trainers.fednl.problems import real_clients

SETTINGS = {
    "a1a": (16, 100, 123),
    "a9a": (80, 407, 123),
    "phishing": (100, 110, 68),
    "w8a": (142, 350, 300),
}
OPTIMA = [
    ("a1a", 1e-3, 0.3279231932987),
    ("a1a", 1e-4, 0.3085382912490),
    ("phishing", 1e-3, 0.3135926391818),
    ("phishing", 1e-4, 0.1899187189887),
    ("a9a", 1e-3, 0.3333472060757),
    ("a9a", 1e-4, 0.3245143416353),
]
GOLDEN = [(name, option, x0) for name in ("a1a", "phishing") for option in (1, 2) for x0 in (0, 1)]


def federation(name: str) -> Federation:
    return Federation(real_clients(name, *SETTINGS[name]))


@pytest.mark.parametrize(("name", "penalty", "wanted"), OPTIMA)
def test_the_optimal_values_are_the_published_ones(
    name: str, penalty: float, wanted: float
) -> None:
    _, value = optimum(federation(name), LogisticRidge(penalty), d=SETTINGS[name][2])
    assert value == pytest.approx(wanted, abs=2e-13)


@pytest.mark.parametrize(("name", "option", "away"), [*GOLDEN, ("a9a", 1, 0)], ids=lambda v: str(v))
def test_gradient_norms_are_those_of_the_authors_code_round_by_round(
    shared: Path, name: str, option: int, away: int
) -> None:
    """Rank-1, alpha 1, spectral l_i; started at 0, or at x* + 0.15."""
    runs: list[dict[str, Any]] = json.loads((shared / "golden" / "fednl.json").read_text())["runs"]
    x0_name = "0.15" if away else "zeros"
    (run,) = [r for r in runs if (r["ds"], r["opt"], r["x0"]) == (name, option, x0_name)]
    objective, fed, d = LogisticRidge(1e-3), federation(name), run["d"]
    x0 = optimum(fed, objective, d=d)[0] + 0.15 if away else np.zeros(d)
    states = fednl(
        fed, objective, d=d, rounds=run["rounds"] + 1, option=option, compressor=RankR(1),
        l_norm="spectral", x0=x0,
    )  # fmt: skip
    found = {str(s.round - 1): s for s in fed.rounds(states)}
    norms = {k: v for k, v in run["grad"].items() if v > 1e-9}
    assert len(norms) >= 7
    for k, norm in norms.items():
        assert found[k].gradient_norm == pytest.approx(norm, rel=1e-6)
    for k, gap in run["gap"].items():
        assert found[k].loss - run["fopt"] == pytest.approx(gap, rel=1e-5, abs=3e-15)


@pytest.mark.parametrize("option", [1, 2])
@pytest.mark.parametrize("penalty", [1e-3, 1e-4])
@pytest.mark.parametrize(
    "name",
    [
        "a1a",
        "phishing",
        pytest.param("a9a", marks=pytest.mark.slow),
        pytest.param("w8a", marks=pytest.mark.slow),
    ],
)
def test_rank_one_closes_the_gap_to_1e_12(name: str, penalty: float, option: int) -> None:
    """From where one Newton step with line search leads; bits count the initial Hessian."""
    objective, fed, d = LogisticRidge(penalty), federation(name), SETTINGS[name][2]
    best, value = optimum(fed, objective, d=d)
    x0 = best + 0.01
    for state in fednl(
        fed, objective, d=d, rounds=300, option=option, compressor=RankR(1), rate="one", x0=x0
    ):
        if mean_value(fed, objective, state.weights) - value <= 1e-12:
            break
    else:
        pytest.fail("gap above 1e-12 after 300 rounds")
    assert state.bits == 64 * (d * (d + 1) / 2 + state.round * (d + 1 + d + 1))


def test_near_the_optimum_the_squared_distance_halves_and_convergence_is_superlinear() -> None:
    """Theorem 3.6, rates (7) and (9)."""
    objective, fed = LogisticRidge(1e-3), federation("phishing")
    best, _ = optimum(fed, objective, d=68)
    states = fednl(fed, objective, d=68, rounds=14, compressor=RankR(1), x0=best + 0.01)
    r = np.array([np.sum((s.weights - best) ** 2) for s in states])
    r = r[r > 1e-26]
    ratios = r[1:] / r[:-1]
    assert len(ratios) >= 4
    assert np.all(ratios <= 0.5)
    assert ratios[-1] < 0.1 * ratios[0]


def test_newton_is_quadratic_star_needs_few_rounds_and_zero_halves_the_squared_distance() -> None:
    objective, fed = LogisticRidge(1e-3), federation("phishing")
    best, _ = optimum(fed, objective, d=68)
    x0 = best + 0.02

    def distances(states: Any) -> np.ndarray:
        return np.array([np.linalg.norm(s.weights - best) for s in states])

    exact = distances(newton(fed, objective, d=68, rounds=6, x0=x0))
    star = distances(newton_star(fed, objective, d=68, rounds=6, optimum=best, x0=x0))
    zero = distances(newton_zero(fed, objective, d=68, rounds=12, x0=x0))
    for e in (exact, star):
        # e_{k+1} ~ e_k^2: the order of convergence between rounds 1 and 3.
        assert np.log(e[3] / e[2]) / np.log(e[2] / e[1]) > 1.6
        assert e[5] < 1e-12
    assert np.all(zero[1:] ** 2 <= 0.5 * zero[:-1] ** 2 + 1e-24)


def test_the_projection_survives_nearly_equal_eigenvalues() -> None:
    """Far from the optimum this run reaches estimates on which LAPACK's syevr gives up."""
    objective, fed = LogisticRidge(1e-3), federation("a1a")
    best, _ = optimum(fed, objective, d=123)
    *_, last = fednl(fed, objective, d=123, rounds=40, compressor=TopK(123), x0=best + 0.1)
    assert last.round == 40
    assert np.isfinite(last.weights).all()


@pytest.mark.parametrize("compressor", [SharedRandK(8 * 68), TopK(8 * 68)], ids=str)
def test_entrywise_compressors_reach_the_optimum_near_it(compressor: Any) -> None:
    objective, fed = LogisticRidge(1e-3), federation("phishing")
    best, value = optimum(fed, objective, d=68)
    *_, last = fednl(fed, objective, d=68, rounds=25, compressor=compressor, x0=best + 0.02)
    assert mean_value(fed, objective, last.weights) - value <= 1e-12
