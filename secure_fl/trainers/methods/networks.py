"""Federated averaging of networks, and FedAvgR (fedavgr.txt)."""

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import attrs

from secure_fl.errors import InputError
from secure_fl.trainers.network_settings import NetworkRun, NetworkSettings, States
from secure_fl.trainers.registry import method
from secure_fl.trainers.settings import setting

if TYPE_CHECKING:
    from secure_fl.trainers.linear import ServerOptimizer


@attrs.frozen(kw_only=True)
class WithMomentum(NetworkSettings):
    """Local steps with momentum."""

    local_momentum: float = setting(0.9, "of local steps", least=0, below=1)
    averaging: float | None = setting(
        None,
        "the model is the rounds' average, round t counting about as t^averaging; default: the"
        " last round",
        kind="number",
        least=0,
    )

    groups: int | None = setting(
        None,
        "cnn: groups of channels that are normalised together, a divisor of 16; default: none",
        kind="whole",
        least=1,
    )

    def _check_network(self) -> None:
        super()._check_network()
        if self.groups is not None and self.model != "cnn":
            raise InputError(f"groups: of --model cnn, not of {self.model}")

    @property
    def momentum(self) -> float:
        """The setting."""
        return self.local_momentum

    @property
    def normalised_groups(self) -> int:
        """The setting."""
        return self.groups or 0


@attrs.frozen(kw_only=True)
class AveragedNetwork(WithMomentum):
    """Local steps whose mean change the server's optimiser applies."""

    optimizer: ClassVar[str | None] = None

    def server(self) -> "ServerOptimizer | None":
        """The server's optimiser; None adds the mean change."""
        from secure_fl.trainers import linear

        if self.optimizer is None:
            return None
        made: ServerOptimizer = getattr(linear, self.optimizer)()
        rate = getattr(self, "server_rate", None)
        return made if rate is None else replace(made, learning_rate=rate)

    def states(self, run: NetworkRun) -> States:
        """See `secure_fl.trainers.networks.fedavg`."""
        from secure_fl.trainers.networks import fedavg

        return lambda start: fedavg(
            run.fed,
            run.model,
            start=start,
            server=self.server(),
            rounds=self.rounds,
            training=run.training,
            averaging=self.averaging,
        )


@method("fedavg", summary="local steps, averaged", source="McMahan et al. 2017")
@attrs.frozen(kw_only=True)
class NetworkFedAvg(AveragedNetwork):
    """Federated averaging of a network."""


@method("fedavgm", summary="local steps, server momentum", source="Hsu et al. 2019")
@attrs.frozen(kw_only=True)
class NetworkFedAvgM(AveragedNetwork):
    """The same with momentum at the server."""

    optimizer: ClassVar[str | None] = "Momentum"
    server_rate: float | None = setting(
        None, "factor on the momentum; default: 1", kind="number", above=0
    )


@method("fedadam", summary="local steps, Adam at the server", source="Reddi et al. 2021")
@attrs.frozen(kw_only=True)
class NetworkFedAdam(AveragedNetwork):
    """The same with Adam at the server."""

    optimizer: ClassVar[str | None] = "Adam"
    server_rate: float | None = setting(None, "rate of Adam; default: 0.01", kind="number", above=0)


@method("fedprox", summary="local steps held near the global model", source="Li et al. 2020")
@attrs.frozen(kw_only=True)
class NetworkFedProx(AveragedNetwork):
    """Federated averaging with a proximal term."""

    proximal: float = setting(0.01, "mu, weight of the proximal term", least=0)

    @property
    def proximal_weight(self) -> float:
        """The setting."""
        return self.proximal


@method(
    "fedavgr", summary="random features learned under three regularisers", source="FedAvgR, alg. 1"
)
@attrs.frozen(kw_only=True)
class FedAvgR(WithMomentum):
    """Regularised federated averaging."""

    trace: float = setting(1e-6, "alpha, weight of the trace norm", least=0)
    feature_penalty: float = setting(1e-4, "beta, weight of the feature norm", least=0)
    mmd: float = setting(1e-2, "gamma, weight of the MMD", least=0)
    mmd_per_class: bool = setting(
        False, "the MMD between features of one class, not of all classes together", of="mmd"
    )

    @property
    def releases_features(self) -> bool:
        """For the MMD."""
        return self.mmd > 0

    def refuse_privacy(self, *, record: bool, client: bool) -> None:
        """As `NetworkSettings.refuse_privacy`."""
        if (record or client) and self.releases_features and self.mmd_per_class:
            raise InputError(
                "mmd-per-class: features' means by class are not released under a promise of"
                " privacy, whose noise is made for one mean; take the plain MMD, or --mmd 0"
            )
        if record and self.releases_features and self.feature_scale == "paper":
            raise InputError(
                "feature-scale: paper's features are longer than the sqrt(2) that their noise is"
                " made for; take --feature-scale kernel, or --mmd 0"
            )

    def sums(self, classes: int) -> int:
        """Two a round where features' means are shared."""
        return self.rounds * (2 if self.releases_features else 1)

    def states(self, run: NetworkRun) -> States:
        """See `secure_fl.trainers.networks.fedavgr`."""
        from secure_fl.trainers.networks import Regularization, fedavgr

        terms = Regularization(
            self.trace, self.feature_penalty, self.mmd, per_class=self.mmd_per_class
        )
        return lambda start: fedavgr(
            run.fed,
            run.model,
            start=start,
            regularization=terms,
            rounds=self.rounds,
            training=run.training,
            averaging=self.averaging,
        )
