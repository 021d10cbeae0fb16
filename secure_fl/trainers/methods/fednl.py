"""FedNL and its variants on linear models, one class against the rest (fednl.txt)."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import attrs

from secure_fl.trainers.linear_settings import LinearRun, OneAgainstRest, clients_of_a_round
from secure_fl.trainers.registry import method
from secure_fl.trainers.settings import setting

if TYPE_CHECKING:
    from secure_fl.trainers.fednl import LogisticRidge
    from secure_fl.trainers.fednl.compressors import Compressor

COMPRESSORS = ("auto", "top-k", "rand-k", "shared-rand-k", "rank-1", "identity")


@attrs.frozen(kw_only=True)
class LearnedHessian(OneAgainstRest):
    """Newton rounds by Hessians that the server learns from compressed differences."""

    setup_sums: ClassVar[int] = 1
    """Sums of a class beside one a round."""

    compressor: str = setting(
        "auto",
        "of differences of Hessians, k = 8 d; auto: top-k, behind masks or noise shared-rand-k",
        choices=COMPRESSORS,
    )

    def sums(self, classes: int) -> int | None:
        """One a round and the Hessians' start, for every class against the rest."""
        return (1 if classes == 2 else classes) * (self.setup_sums + self.rounds)

    def shared(self, run: LinearRun) -> dict[str, Any]:
        """With the compressor."""
        return {**super().shared(run), "compressor": self._compressor(run)}

    def _compressor(self, run: LinearRun) -> "Compressor | None":
        """None leaves the choice to the trainer, which knows whether sums are masked."""
        from secure_fl.trainers import fednl
        from secure_fl.trainers.fednl.triangles import packed_size

        k = min(8 * run.width, packed_size(run.width))
        made: dict[str, Compressor] = {
            "top-k": fednl.TopK(k),
            "rand-k": fednl.RandK(k),
            "shared-rand-k": fednl.SharedRandK(k, run.seed),
            "rank-1": fednl.RankR(1),
            "identity": fednl.Identity(),
        }
        return made.get(self.compressor)


@attrs.frozen(kw_only=True)
class WithOption(LearnedHessian):
    """Variants that keep the Hessian's estimate positive in one of two ways."""

    option: int = setting(2, "1: projection, 2: compression error added", least=1, most=2)


@method(
    "fednl", summary="Newton rounds by learned Hessians, logistic loss", source="FedNL, algorithm 1"
)
@attrs.frozen(kw_only=True)
class FedNL(WithOption):
    """FedNL."""

    def trainer(
        self, run: LinearRun, objective: "LogisticRidge", shared: dict[str, Any]
    ) -> Iterator[Any]:
        """See `secure_fl.trainers.fednl.fednl`."""
        from secure_fl.trainers.fednl import fednl
        from secure_fl.trainers.fednl.region import told

        states = fednl(run.fed, objective, option=self.option, **shared)
        # Noise in the sums would be taken for curvature; and one class's warning is enough.
        once = objective.positive == (1 if run.objective.classes == 2 else 0)
        return told(states, self.ridge, self.option) if once and run.fed.clip is None else states


@method("fednl-ls", summary="the same with a line search", source="FedNL, algorithm 3")
@attrs.frozen(kw_only=True)
class FedNLLineSearch(LearnedHessian):
    """FedNL with a line search."""

    @property
    def bounded(self) -> str:
        """Another method."""
        return "take fednl"

    def sums(self, classes: int) -> None:
        """The line search decides."""
        return

    def trainer(
        self, run: LinearRun, objective: "LogisticRidge", shared: dict[str, Any]
    ) -> Iterator[Any]:
        """See `secure_fl.trainers.fednl.fednl_ls`."""
        from secure_fl.trainers.fednl import fednl_ls

        return fednl_ls(run.fed, objective, **shared)


@method("fednl-cr", summary="the same with cubic regularisation", source="FedNL, algorithm 4")
@attrs.frozen(kw_only=True)
class FedNLCubic(LearnedHessian):
    """FedNL with cubic regularisation; it asks for the Hessian's Lipschitz constant once.

    Hessians start from 0, as in the paper's experiments (B.2).
    """

    setup_sums: ClassVar[int] = 2

    hessian_start: str = setting(
        "zero", "H^0: zero, as the paper's, or the local Hessians", choices=("zero", "local")
    )

    def trainer(
        self, run: LinearRun, objective: "LogisticRidge", shared: dict[str, Any]
    ) -> Iterator[Any]:
        """See `secure_fl.trainers.fednl.fednl_cr`."""
        from secure_fl.trainers.fednl import fednl_cr

        return fednl_cr(run.fed, objective, initial=self.hessian_start, **shared)


@method("fednl-pp", summary="the same with partial participation", source="FedNL, algorithm 2")
@attrs.frozen(kw_only=True)
class FedNLPartial(LearnedHessian):
    """FedNL with partial participation; it starts with everybody and draws for itself."""

    participants: int | None = setting(
        None, "tau, clients of a round; default: all", kind="whole", least=1
    )

    def trainer(
        self, run: LinearRun, objective: "LogisticRidge", shared: dict[str, Any]
    ) -> Iterator[Any]:
        """See `secure_fl.trainers.fednl.fednl_pp`."""
        from secure_fl.trainers.fednl import fednl_pp

        tau = clients_of_a_round(self.participants, run)
        return fednl_pp(run.fed, objective, tau=tau, seed=run.seed, **shared)


@method(
    "fednl-bc", summary="the same with the broadcast compressed too", source="FedNL, algorithm 5"
)
@attrs.frozen(kw_only=True)
class FedNLBidirectional(WithOption):
    """FedNL with bidirectional compression."""

    gradient_share: float = setting(1.0, "p, share of rounds with gradients", above=0, most=1)

    def sums(self, classes: int) -> int:
        """Two a round, because any may ask for gradients too."""
        return (1 if classes == 2 else classes) * (1 + 2 * self.rounds)

    def trainer(
        self, run: LinearRun, objective: "LogisticRidge", shared: dict[str, Any]
    ) -> Iterator[Any]:
        """See `secure_fl.trainers.fednl.fednl_bc`."""
        from secure_fl.trainers.fednl import fednl_bc

        own: dict[str, Any] = {"p": self.gradient_share, "option": self.option, "seed": run.seed}
        return fednl_bc(run.fed, objective, **own, **shared)


@method(
    "fednl-all",
    summary="partial participation, line search, compression both ways in one",
    source="ours, on FedNL, algorithms 2, 3 and 5",
)
@attrs.frozen(kw_only=True)
class FedNLAll(WithOption):
    """FedNL with everything; it starts with everybody and draws for itself."""

    participants: int | None = setting(
        None, "tau, clients of a round; default: all", kind="whole", least=1
    )
    safeguard: bool = setting(True, "no round may increase the objective")
    model_share: float = setting(
        1.0, "share of the direction's entries that is broadcast, the largest", above=0, most=1
    )

    @property
    def bounded(self) -> str:
        """Without the line search."""
        return "switch it off (--no-safeguard)"

    def sums(self, classes: int) -> int | None:
        """One a round and the start, for every class; the line search decides for itself."""
        return None if self.safeguard else super().sums(classes)

    def trainer(
        self, run: LinearRun, objective: "LogisticRidge", shared: dict[str, Any]
    ) -> Iterator[Any]:
        """See `secure_fl.trainers.fednl.fednl_all`."""
        from secure_fl.trainers.fednl import TopK, fednl_all

        largest = max(1, round(self.model_share * run.width))
        own: dict[str, Any] = {
            "tau": clients_of_a_round(self.participants, run),
            "option": self.option,
            "search": self.safeguard,
            "model_compressor": None if self.model_share == 1 else TopK(largest),
            "seed": run.seed,
        }
        return fednl_all(run.fed, objective, **own, **shared)
