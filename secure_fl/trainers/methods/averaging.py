"""Federated averaging of linear models and its kin (McMahan 2017, Reddi 2021, Li 2020)."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import attrs

from secure_fl.trainers.linear_settings import DrawnRounds, LinearRun
from secure_fl.trainers.registry import method
from secure_fl.trainers.settings import setting

if TYPE_CHECKING:
    from secure_fl.trainers.linear import AveragingState, LocalTraining, ServerOptimizer


@attrs.frozen(kw_only=True)
class LocalSteps(DrawnRounds):
    """Rounds of local gradient steps."""

    regresses: ClassVar[bool] = True

    learning_rate: float = setting(0.3, "of local steps", above=0, moved=(0.1, 0.3))
    local_epochs: int = setting(1, "passes over a client's records in a round", least=1)
    local_batch: int = setting(64, "records of a local step", least=1)
    local_momentum: float = setting(0.9, "of local steps", least=0, below=1)

    def sums(self, classes: int) -> int:
        """One a round."""
        return self.rounds

    def training(self) -> "LocalTraining":
        """A client's part of a round."""
        from secure_fl.trainers.linear import LocalTraining

        return LocalTraining(
            self.learning_rate, self.local_epochs, self.local_batch, self.local_momentum
        )


def begin(run: LinearRun, start: Any) -> "AveragingState":
    """The state to go on from, or zero weights."""
    from secure_fl.trainers.linear import AveragingState

    return start or AveragingState(run.objective.zeros(run.width))


@attrs.frozen(kw_only=True)
class Averaged(LocalSteps):
    """Local steps whose mean change the server's optimiser applies."""

    optimizer: ClassVar[str]
    usual_rate: ClassVar[float] = 1.0
    """The server's where nothing is said."""
    server_rate: float | None

    def states(self, run: LinearRun, start: Any) -> "Iterator[AveragingState]":
        """See `secure_fl.trainers.linear.fedavg`."""
        from secure_fl.trainers import linear

        server: ServerOptimizer = getattr(linear, self.optimizer)()
        rate = self.usual_rate if self.server_rate is None else self.server_rate
        server = replace(server, learning_rate=rate)
        return linear.fedavg(
            run.fed,
            run.objective,
            start=begin(run, start),
            rounds=self.rounds,
            training=self.training(),
            server=server,
        )


@method("fedavg", summary="local steps, averaged", source="McMahan et al. 2017")
@attrs.frozen(kw_only=True)
class FedAvg(Averaged):
    """Federated averaging."""

    optimizer: ClassVar[str] = "Averaging"
    server_rate: float | None = setting(
        None, "factor on the mean change; default: 1", kind="number", above=0
    )


@method("fedavgm", summary="local steps, server momentum", source="Hsu et al. 2019")
@attrs.frozen(kw_only=True)
class FedAvgM(Averaged):
    """Federated averaging with momentum at the server."""

    optimizer: ClassVar[str] = "Momentum"
    server_rate: float | None = setting(
        None, "factor on the momentum; default: 1", kind="number", above=0
    )


@method("fedadam", summary="local steps, Adam at the server", source="Reddi et al. 2021")
@attrs.frozen(kw_only=True)
class FedAdam(Averaged):
    """Federated averaging with Adam at the server."""

    optimizer: ClassVar[str] = "Adam"
    usual_rate: ClassVar[float] = 0.1
    server_rate: float | None = setting(
        None, "rate of Adam; default: 0.1", kind="number", above=0, moved=(0.01, 0.1)
    )


@method("fedprox", summary="local steps held near the global model", source="Li et al. 2020")
@attrs.frozen(kw_only=True)
class FedProx(LocalSteps):
    """Federated averaging with a proximal term."""

    proximal: float = setting(0.01, "mu, weight of the proximal term", least=0)

    def states(self, run: LinearRun, start: Any) -> "Iterator[AveragingState]":
        """See `secure_fl.trainers.linear.fedprox`."""
        from secure_fl.trainers.linear import fedprox

        return fedprox(
            run.fed,
            run.objective,
            start=begin(run, start),
            rounds=self.rounds,
            proximal=self.proximal,
            training=self.training(),
        )
