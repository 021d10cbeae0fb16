"""When do FedNewton's rounds pay in regression: records a client, covariate and concept shift?

After fednewton.txt, appendix B, figures 3 to 5: y = min(-w'x, w'x) + noise of variance 0.2 in 10
dimensions, 10,000 training and 2,500 test records, 200 random Fourier features as printed, lambda
1e-6. Client j draws x from N(u_j, I) with u_j from N(0, alpha), and has w_j = 1 + v_j with v_j from
N(0, beta), every coordinate by itself. Test records are drawn like the clients' own. Beside the
error stand Delta, Upsilon of theorem 1 and the contraction factor that a federation can measure.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks._harness import Run, Table, benchmark, spread
from benchmarks.fednewton_tables import PAPER_FEATURES
from secure_fl.federation import Client, Federation
from secure_fl.objectives import RandomFourierFeatures, RegressionLoss
from secure_fl.trainers.linear import (
    AveragingState,
    LocalTraining,
    NewtonState,
    Similarity,
    fedavg,
    fednewton,
    fedprox,
    krr,
    similarity,
)

Array = NDArray[np.float64]

WIDTH, RECORDS, TESTED, FEATURES = 10, 10_000, 2_500, 200
RIDGE, PROXIMAL, DEVIATION, RATE, NOISE = 1e-6, 7e-7, 0.1, 1e-3, 0.2
ROUNDS = (1, 2, 4, 8)
CLIENTS = (10, 20, 50, 100, 200)
"""Figure 3: 1000 to 50 records a client, all of one distribution."""
SHIFTS = (0.0, 1e-3, 1e-2, 0.1, 1.0)
"""Figure 4: alpha of the covariates, beta of the concepts; 20 clients of 500 records."""
FEDERATED = 20
REFERENCE = 20_000
"""Fresh records of a client's distribution that its covariance C_j is taken from."""


@dataclass(frozen=True)
class Synthetic:
    """One draw of a federation.

    Attributes:
        clients: with random features and real targets.
        test: features of the test records.
        y_test: their targets.
        similarity: of the clients, with C_j from fresh records.
    """

    clients: list[Client]
    test: Array
    y_test: Array
    similarity: Similarity


def drawn(m: int, alpha: float, beta: float, seed: int) -> Synthetic:
    """A federation of m clients with covariate shift alpha and concept shift beta."""
    rng = np.random.default_rng(seed)
    features = RandomFourierFeatures.draw(WIDTH, FEATURES, DEVIATION**2, rng)
    centres = np.sqrt(alpha) * rng.standard_normal((m, WIDTH))
    slopes = 1.0 + np.sqrt(beta) * rng.standard_normal((m, WIDTH))

    def records(owner: NDArray[np.int64]) -> tuple[Array, Array]:
        x = centres[owner] + rng.standard_normal((len(owner), WIDTH))
        heights = -np.abs(np.einsum("nd,nd->n", x, slopes[owner]))
        y = heights + np.sqrt(NOISE) * rng.standard_normal(len(owner))
        return features.apply(x) * PAPER_FEATURES, y

    owner = np.repeat(np.arange(m), RECORDS // m)
    X, y = records(owner)
    test, y_test = records(rng.integers(0, m, TESTED))
    parts = tuple(np.flatnonzero(owner == j) for j in range(m))
    whole: list[Array] = []
    for j in range(m):
        fresh, _ = records(np.full(REFERENCE if alpha > 0 or j == 0 else 0, j))
        # Without covariate shift all clients have one distribution.
        whole.append(fresh.T @ fresh / len(fresh) if len(fresh) else whole[0])
    sampled = [X[part].T @ X[part] / len(part) for part in parts]
    found = similarity(sampled, whole, [1 / m] * m, RIDGE)
    clients = [Client(f"c{j}", X[part], y[part]) for j, part in enumerate(parts)]
    return Synthetic(clients, test, y_test, found)


Errors = dict[str, dict[int, float]]
"""Mean squared test errors by method and round; 0 stands for methods without rounds."""


def errors(data: Synthetic, *, first_order: bool) -> tuple[Errors, float]:
    """What every method reaches, and the largest contraction factor."""
    objective = RegressionLoss(RIDGE)

    def run(states: Any) -> list[Any]:
        fed = Federation([Client(c.name, c.features, c.targets) for c in data.clients])
        with fed:
            return list(fed.rounds(states(fed)))

    def error(weights: Array) -> float:
        return float(np.mean((objective.predict(weights, data.test) - data.y_test) ** 2))

    (best,) = run(lambda fed: krr(fed, objective))
    (start,) = run(lambda fed: fednewton(fed, objective, rounds=0))
    begin = AveragingState(start.weights)
    runs = {
        "FedNewton as printed": run(_newton(objective, start.weights, safeguard=False)),
        "FedNewton, safeguard": run(_newton(objective, start.weights, safeguard=True)),
    }
    factor = max(state.contraction for state in runs["FedNewton, safeguard"])
    if first_order:
        local, last = LocalTraining(RATE, epochs=2), ROUNDS[-1]
        runs["FedAvg, 2 steps"] = run(
            lambda fed: fedavg(fed, objective, start=begin, rounds=last, training=local)
        )
        runs["FedProx, exact local solutions"] = run(
            lambda fed: fedprox(fed, objective, start=begin, rounds=last, proximal=PROXIMAL)
        )
    found: Errors = {"pooled": {0: error(best.weights)}, "DKRR": {0: error(start.weights)}}
    for method, states in runs.items():
        found[method] = {at: error(states[at - 1].weights) for at in ROUNDS}
    return found, factor


def _newton(objective: RegressionLoss, weights: Array, *, safeguard: bool) -> Any:
    def states(fed: Federation) -> Iterator[NewtonState]:
        return fednewton(
            fed,
            objective,
            rounds=ROUNDS[-1],
            start=NewtonState(weights),
            safeguard=safeguard,
        )

    return states


def _measure(
    tables: tuple[Table, Table],
    setting: tuple[Any, ...],
    draws: list[tuple[int, float, float, int]],
) -> None:
    """A setting's errors over its draws (clients, alpha, beta, seed), and how alike clients are."""
    rows, shifts, upsilons, factors = [], [], [], []
    for m, alpha, beta, seed in draws:
        data = drawn(m, alpha, beta, seed)
        found, factor = errors(data, first_order=setting[0] == ROUNDS_FIGURE)
        rows.append(found)
        shifts.append(max(data.similarity.shift))
        upsilons.append(data.similarity.upsilon)
        factors.append(factor)
    for method, first in rows[0].items():
        cells = [
            spread([row[method][at] for row in rows], 4) if at in first else None
            for at in (0, *ROUNDS)
        ]
        tables[0].add(*setting, method, *cells)
    tables[1].add(*setting, *(float(np.mean(each)) for each in (shifts, upsilons, factors)))


ROUNDS_FIGURE = "5"


@benchmark("when do FedNewton's rounds pay in regression?")
def main(run: Run) -> None:
    """Mean squared test errors over ten draws, by records a client, alpha, beta and round."""
    seeds = run.seeds(*range(1 if run.quick else 10))
    run.parameter(records=RECORDS, features=FEATURES, ridge=RIDGE, noise_variance=NOISE)
    where = ("figure", "clients", "alpha", "beta")
    found = run.table(
        "mean squared test error",
        (*where, "method", "at once", *(f"round {at}" for at in ROUNDS)),
    )
    measured = ("largest Delta", "Upsilon", "largest contraction factor")
    tables = found, run.table("similarity of the clients", (*where, *measured))
    shifts = (0.0, 0.1) if run.quick else SHIFTS
    settings = [
        *(("3", m, 0.0, 0.0) for m in ((10, 100) if run.quick else CLIENTS)),
        *(("4, covariates", FEDERATED, alpha, 0.0) for alpha in shifts),
        *(("4, concepts", FEDERATED, 0.0, beta) for beta in shifts),
        (ROUNDS_FIGURE, FEDERATED, 0.01, 0.001),
    ]
    for figure, m, alpha, beta in settings:
        run.progress(f"figure {figure}: {m} clients, alpha {alpha:g}, beta {beta:g}")
        draws = [(m, alpha, beta, seed) for seed in seeds]
        _measure(tables, (figure, m, alpha, beta), draws)
    run.note("mean squared error on the test records; its floor is the noise, 0.2")
    run.note("Delta and Upsilon with C_j from fresh records; means over the draws, as the factors")


if __name__ == "__main__":
    main()
