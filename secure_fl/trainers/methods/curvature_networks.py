"""Networks whose local steps are preconditioned by curvature (fedrco.txt)."""

from typing import TYPE_CHECKING, ClassVar

import attrs

from secure_fl.errors import InputError
from secure_fl.trainers.network_settings import NetworkRun, NetworkSettings, States
from secure_fl.trainers.registry import method
from secure_fl.trainers.settings import setting

if TYPE_CHECKING:
    from secure_fl.trainers.networks import SecondOrder
    from secure_fl.trainers.networks.monitor import Thresholds


@attrs.frozen(kw_only=True)
class Curved(NetworkSettings):
    """Local second-order steps; they take no momentum."""

    learning_rate: float = setting(0.02, "of local steps", above=0)
    damping: float = setting(0.03, "of the curvature factors", above=0)

    def refuse_privacy(self, *, record: bool, client: bool) -> None:
        """As `NetworkSettings.refuse_privacy`."""
        if record:
            raise InputError(
                f"{self.method}: cannot hide single records; its factors are second moments of"
                " their inputs and gradients, and noise on matrices of that size would drown them."
                " Take fedavgr, or hide whole clients (--client-epsilon)"
            )


@attrs.frozen(kw_only=True)
class Inverted(Curved):
    """Local steps by inverses that are renewed every so many steps."""

    factor_average: float = setting(0.95, "weight of a factor's older statistics", least=0, below=1)
    inversion_interval: int = setting(200, "T_inv, steps between inversions", least=1)
    inversion_warm_up: tuple[int, ...] | None = setting(
        None, "steps of a client at which it inverts too, e.g. 10 50; default: none", kind="wholes"
    )

    @property
    def held_out_share(self) -> float:
        """Of a client's records, by which it mixes models."""
        return 0.0

    def options(self, training: "object", thresholds: "Thresholds | None") -> "SecondOrder":
        """A client's part of a round."""
        from secure_fl.trainers.networks import LocalTraining, SecondOrder
        from secure_fl.trainers.networks.kfac import Curvature

        assert isinstance(training, LocalTraining)
        return SecondOrder(
            training,
            Curvature(
                self.damping,
                self.factor_average,
                self.inversion_interval,
                persistent=self.monitored,
                warm_up=self.inversion_warm_up or (),
            ),
            thresholds,
            personal=self.personal,
            held_out=self.held_out_share,
        )

    def thresholds(self) -> "Thresholds | None":
        """Of the monitor, if any."""
        return None

    def states(self, run: NetworkRun) -> States:
        """See `secure_fl.trainers.networks.fedrco`."""
        from secure_fl.trainers.networks import fedrco

        options = self.options(run.training, self.thresholds())
        return lambda start: fedrco(
            run.fed, run.model, start=start, rounds=self.rounds, options=options
        )


@method(
    "localnewton", summary="local steps by K-FAC, averaged", source="Gupta et al. 2021, with K-FAC"
)
@attrs.frozen(kw_only=True)
class NetworkLocalNewton(Inverted):
    """LocalNewton on a network."""


@attrs.frozen(kw_only=True)
class Monitored(Inverted):
    """Local steps that a monitor bounds."""

    monitored: ClassVar[bool] = True

    monitor: bool = setting(True, "bound steps far above the recent mean, or reset the client")
    rollback_above: float = setting(
        10.0, "times the recent mean beyond which a step is bounded", above=0, of="monitor"
    )
    reset_above: float = setting(
        1000.0, "times the recent mean beyond which a client is reset", above=0, of="monitor"
    )
    monitored_norm: str = setting(
        "layers",
        "of a step: the sum of its layers' norms, or one joint norm",
        choices=("layers", "joint"),
        of="monitor",
    )

    def __attrs_post_init__(self) -> None:
        self._check_network()
        if self.rollback_above > self.reset_above:
            raise InputError(
                f"reset-above: found {self.reset_above:g}, expected at least rollback-above,"
                f" {self.rollback_above:g}"
            )

    def thresholds(self) -> "Thresholds | None":
        """The settings', unless the monitor is off."""
        from secure_fl.trainers.networks.monitor import Thresholds

        if not self.monitor:
            return None
        joint = self.monitored_norm == "joint"
        return Thresholds(low=self.rollback_above, high=self.reset_above, joint=joint)


@method("fedrco-ori", summary="the same with a monitor", source="FedRCO, section 4, global models")
@attrs.frozen(kw_only=True)
class FedRCOOriginal(Monitored):
    """FedRCO without personal models."""


@method("fedrco", summary="the same with personal models", source="FedRCO, algorithm 1")
@attrs.frozen(kw_only=True)
class FedRCO(Monitored):
    """FedRCO."""

    personal: ClassVar[bool] = True

    held_out: float = setting(
        0.0,
        "share of a client's records by which it mixes models instead of training",
        least=0,
        below=1,
    )

    @property
    def held_out_share(self) -> float:
        """The setting."""
        return self.held_out


@method("fedpm", summary="summed K-FAC factors at the server", source="FedPM, a peer in FedRCO")
@attrs.frozen(kw_only=True)
class FedPM(Curved):
    """FedPM."""

    def refuse_privacy(self, *, record: bool, client: bool) -> None:
        """As `NetworkSettings.refuse_privacy`."""
        if record:
            raise InputError(
                "fedpm: cannot hide single records; its factors are second moments of their inputs"
                " and gradients, and noise on matrices of that size would drown them. Take fedavgr"
            )
        if client:
            raise InputError(
                "fedpm: cannot hide whole clients; noise on the summed factors would leave them"
                " not positive definite. Take fedrco or fedavg"
            )

    def states(self, run: NetworkRun) -> States:
        """See `secure_fl.trainers.networks.fedpm`."""
        from secure_fl.trainers.networks import fedpm

        return lambda start: fedpm(
            run.fed,
            run.model,
            start=start,
            damping=self.damping,
            rounds=self.rounds,
            training=run.training,
        )
