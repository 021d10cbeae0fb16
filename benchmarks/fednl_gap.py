"""How many rounds and bits does FedNL take to a gap of 1e-12?

Rank-1 with alpha = 1, both options, started at x* + 0.01 in every coordinate, on the data sets of
the paper as its table 6 cuts them. Bits are those of the paper: 64 a float that a client sends, the
initial Hessian included.
"""

from benchmarks._harness import Run, benchmark
from benchmarks._logistic import SETTINGS, clients_of
from secure_fl.federation import Client, Federation
from secure_fl.trainers.fednl import LogisticRidge, RankR, fednl, mean_value, optimum

GOAL, AWAY, MOST = 1e-12, 0.01, 300


@benchmark("how many rounds and bits does FedNL take to a gap of 1e-12?")
def main(run: Run) -> None:
    """Runs Rank-1 FedNL to the goal on every data set and penalty, with both options."""
    run.seeds(0)
    run.parameter(goal=GOAL, start=f"x* + {AWAY}", compressor="Rank-1", alpha=1, most_rounds=MOST)
    columns = ["data", "clients", "d", "lambda", "f(x*)", "option", "rounds", "bits a node", "gap"]
    table = run.table("rounds and bits to the goal", columns)
    for name in ("a1a",) if run.quick else SETTINGS:
        clients, d = clients_of(name, intercept=False)
        for penalty in (1e-3, 1e-4):
            objective = LogisticRidge(penalty)
            judge = Federation(clients)
            best, value = optimum(judge, objective, d=d)
            for option in (1, 2):
                run.progress(f"{name}, lambda {penalty:g}, option {option}")
                fed = Federation([Client(c.name, c.features, c.targets) for c in clients])
                for state in fednl(
                    fed,
                    objective,
                    d=d,
                    rounds=MOST,
                    option=option,
                    compressor=RankR(1),
                    rate="one",
                    x0=best + AWAY,
                ):
                    gap = mean_value(judge, objective, state.weights) - value
                    if gap <= GOAL:
                        break
                done = state.round if gap <= GOAL else None
                table.add(name, len(clients), d, penalty, value, option, done, int(state.bits), gap)
    run.note("rounds: None where the goal was not reached")


if __name__ == "__main__":
    main()
