"""Peers of FedNL on the same problem, one class against the rest: DORE, Artemis, SHED, FedNS."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import attrs

from secure_fl.trainers.linear_settings import LinearRun, OneAgainstRest, clients_of_a_round
from secure_fl.trainers.registry import method
from secure_fl.trainers.settings import setting

if TYPE_CHECKING:
    from secure_fl.trainers.fednl import LogisticRidge


@attrs.frozen(kw_only=True)
class PlainSums(OneAgainstRest):
    """A method whose server asks for single clients' values: constants, or eigenpairs."""

    sees_clients: ClassVar[bool] = True

    @property
    def bounded(self) -> str:
        """Another method."""
        return "take fednl, which asks for sums alone"

    def sums(self, classes: int) -> None:
        """None that noise could be planned for."""
        return


@method(
    "dore",
    summary="gradient steps, residuals compressed in both directions",
    source="Liu et al. 2020, algorithm 1",
)
@attrs.frozen(kw_only=True)
class Dore(PlainSums):
    """DORE, by the step sizes of its theorem."""

    def trainer(
        self, run: LinearRun, objective: "LogisticRidge", shared: dict[str, Any]
    ) -> Iterator[Any]:
        """See `secure_fl.trainers.fednl.dore`."""
        from secure_fl.trainers.fednl import dore

        return dore(run.fed, objective, seed=run.seed, **shared)


@method(
    "artemis",
    summary="gradient steps by compressed differences from memories, some clients a round",
    source="Philippenko and Dieuleveut 2021, PP2",
)
@attrs.frozen(kw_only=True)
class Artemis(PlainSums):
    """Artemis; it starts with everybody and draws for itself."""

    participants: int | None = setting(
        None, "tau, clients of a round; default: all", kind="whole", least=1
    )

    def trainer(
        self, run: LinearRun, objective: "LogisticRidge", shared: dict[str, Any]
    ) -> Iterator[Any]:
        """See `secure_fl.trainers.fednl.artemis`."""
        from secure_fl.trainers.fednl import artemis

        tau = clients_of_a_round(self.participants, run)
        return artemis(run.fed, objective, tau=tau, seed=run.seed, **shared)


@method(
    "shed",
    summary="Newton rounds by Hessians sent one eigenvector after the other",
    source="Dal Fabbro et al. 2024",
)
@attrs.frozen(kw_only=True)
class Shed(PlainSums):
    """SHED with a line search."""

    pairs: int = setting(1, "eigenpairs that a client sends in a round", least=1)
    renewal: int | None = setting(
        None,
        "rounds between new Hessians; default: gaps of Fibonacci's numbers",
        kind="whole",
        least=1,
    )

    def trainer(
        self, run: LinearRun, objective: "LogisticRidge", shared: dict[str, Any]
    ) -> Iterator[Any]:
        """See `secure_fl.trainers.fednl.shed`."""
        from secure_fl.trainers.fednl import shed

        return shed(run.fed, objective, pairs=self.pairs, period=self.renewal, **shared)


@method(
    "fedns",
    summary="Newton rounds by sketched square roots of Hessians",
    source="Li et al. 2024, algorithm 1",
)
@attrs.frozen(kw_only=True)
class FedNS(OneAgainstRest):
    """FedNS."""

    sketch_rows: int | None = setting(
        None, "k, rows of a sketch; default: twice the features", kind="whole", least=1
    )
    sketch: str = setting("srht", "how records are mixed", choices=("srht", "gaussian"))
    step_size: float = setting(1.0, "mu, of a step", above=0, most=1)

    def sums(self, classes: int) -> int:
        """One a round, for every class against the rest."""
        return (1 if classes == 2 else classes) * self.rounds

    def trainer(
        self, run: LinearRun, objective: "LogisticRidge", shared: dict[str, Any]
    ) -> Iterator[Any]:
        """See `secure_fl.trainers.fednl.fedns`."""
        from secure_fl.trainers.fednl import fedns

        own: dict[str, Any] = {"k": self.sketch_rows, "kind": self.sketch, "size": self.step_size}
        return fedns(run.fed, objective, **own, **shared)
