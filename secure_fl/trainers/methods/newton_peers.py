"""Peers of FedNewton: FedNew by ADMM, FedSophia by running diagonals."""

from collections.abc import Iterator
from typing import Any

import attrs

from secure_fl.trainers.linear_settings import DrawnRounds, LinearRun, Rounds
from secure_fl.trainers.methods.averaging import begin
from secure_fl.trainers.registry import method
from secure_fl.trainers.settings import setting


@method(
    "fednew",
    summary="Newton directions by a step of ADMM a round, softmax loss",
    source="Elgabli et al. 2022, algorithm 1",
)
@attrs.frozen(kw_only=True)
class FedNew(Rounds):
    """FedNew; every client keeps a multiplier, so all take part in every round."""

    alpha: float = setting(0.0, "damping of the Newton direction", least=0)
    rho: float = setting(0.1, "penalty of the clients' disagreement", above=0)

    def sums(self, classes: int) -> int:
        """One a round."""
        return self.rounds

    def states(self, run: LinearRun, start: Any) -> Iterator[Any]:
        """See `secure_fl.trainers.linear.fednew`."""
        from secure_fl.trainers.linear import FedNewState, fednew

        zeros = run.objective.zeros(run.width)
        return fednew(
            run.fed,
            run.objective,
            start=start or FedNewState(zeros, zeros),
            rounds=self.rounds,
            alpha=self.alpha,
            rho=self.rho,
        )


@method(
    "fedsophia",
    summary="local steps by running diagonals of the Hessian, clipped",
    source="Elbakary et al. 2024, algorithm 1",
)
@attrs.frozen(kw_only=True)
class FedSophia(DrawnRounds):
    """FedSophia on the softmax loss."""

    learning_rate: float = setting(
        0.01, "of local steps, each coordinate of which is bounded", above=0
    )
    local_epochs: int = setting(1, "passes over a client's records in a round", least=1)
    local_batch: int = setting(64, "records of a local step", least=1)
    gradient_average: float = setting(0.9, "beta 1, weight of older gradients", least=0, below=1)
    curvature_average: float = setting(0.95, "beta 2, weight of older curvatures", least=0, below=1)
    curvature_interval: int = setting(10, "steps between estimates of the curvature", least=1)
    estimator: str = setting(
        "gnb", "of the diagonal: by sampled labels, or exact", choices=("gnb", "exact")
    )

    def sums(self, classes: int) -> int:
        """One a round."""
        return self.rounds

    def states(self, run: LinearRun, start: Any) -> Iterator[Any]:
        """See `secure_fl.trainers.linear.fedsophia`."""
        from secure_fl.trainers.linear import LocalTraining, Sophia, fedsophia

        return fedsophia(
            run.fed,
            run.objective,
            start=begin(run, start),
            rounds=self.rounds,
            training=LocalTraining(self.learning_rate, self.local_epochs, self.local_batch),
            sophia=Sophia(
                self.gradient_average,
                self.curvature_average,
                self.curvature_interval,
                estimator="exact" if self.estimator == "exact" else "gnb",
            ),
        )
