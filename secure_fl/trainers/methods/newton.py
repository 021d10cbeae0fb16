"""Newton-type trainers of linear models (fednewton.txt; LocalNewton, Gupta et al. 2021)."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, cast

import attrs

from secure_fl.errors import InputError
from secure_fl.trainers.linear_settings import DrawnRounds, LinearRun
from secure_fl.trainers.registry import method
from secure_fl.trainers.settings import setting

if TYPE_CHECKING:
    from secure_fl.objectives import SquaredLoss
    from secure_fl.trainers.linear import Solver

SOLVERS = ("exact", "cg", "diagonal", "low-rank")


@attrs.frozen(kw_only=True)
class Newton(DrawnRounds):
    """Rounds of steps by inverse Hessians."""

    solver: str = setting("exact", "how a client applies its inverse Hessian", choices=SOLVERS)
    damping: float = setting(0.0, "added to every Hessian's diagonal", least=0)
    safeguard: bool = setting(True, "no round may increase the objective")

    @property
    def bounded(self) -> str:
        """Without the line search."""
        return "switch it off (--no-safeguard)"

    def client_solver(self) -> "Solver":
        """The solver with its damping."""
        from secure_fl.trainers import linear

        kinds: dict[str, type[Solver]] = {
            "exact": linear.Exact,
            "cg": linear.ConjugateGradient,
            "diagonal": linear.Diagonal,
            "low-rank": linear.LowRank,
        }
        return kinds[self.solver](self.damping)


@attrs.frozen(kw_only=True)
class Remembering(Newton):
    """Newton rounds whose server corrects directions by earlier changes."""

    memory: int = setting(0, "changes of earlier rounds that the server remembers", least=0)

    def check_memory(self) -> None:
        """Raises InputError if there is a memory without the safeguard."""
        if self.memory and not self.safeguard:
            raise InputError("memory: needs the safeguard; leave out --no-safeguard or --memory")


@method(
    "localnewton",
    summary="local Newton steps, averaged, with a global line search",
    source="Gupta et al. 2021",
)
@attrs.frozen(kw_only=True)
class LocalNewton(Newton):
    """LocalNewton on the softmax loss."""

    regresses: ClassVar[bool] = True

    local_epochs: int = setting(1, "Newton steps of a client in a round", least=1)

    def sums(self, classes: int) -> int | None:
        """One a round, and trials of the line search."""
        return None if self.safeguard else self.rounds

    def states(self, run: LinearRun, start: Any) -> Iterator[Any]:
        """See `secure_fl.trainers.linear.localnewton`."""
        from secure_fl.trainers.linear import NewtonState, localnewton

        return localnewton(
            run.fed,
            run.objective,
            start=start or NewtonState(run.objective.zeros(run.width)),
            rounds=self.rounds,
            solver=self.client_solver(),
            local_steps=self.local_epochs,
            safeguard=self.safeguard,
        )


@method(
    "fednewton",
    summary="local inverse Hessians times the global gradient, squared loss",
    source="FedNewton, algorithm 1",
)
@attrs.frozen(kw_only=True)
class FedNewton(Remembering):
    """FedNewton from divide-and-conquer ridge regression."""

    regresses: ClassVar[bool] = True

    squared: ClassVar[bool] = True
    probabilistic: ClassVar[bool] = False

    def __attrs_post_init__(self) -> None:
        self.check_memory()

    def sums(self, classes: int) -> int:
        """Two a round and the start; the safeguard learns from the gradient at the whole step."""
        everybody = self.participants is None
        each = 2 if everybody or not self.safeguard else 3
        return 1 + int(self.safeguard and everybody) + each * self.rounds

    def states(self, run: LinearRun, start: Any) -> Iterator[Any]:
        """See `secure_fl.trainers.linear.fednewton`."""
        from secure_fl.trainers.linear import fednewton

        return fednewton(
            run.fed,
            cast("SquaredLoss", run.objective),
            rounds=self.rounds,
            solver=self.client_solver(),
            safeguard=self.safeguard,
            memory=self.memory,
            start=start,
        )


@method(
    "fednewton-head",
    summary="the same for the softmax loss",
    source="FedNewton, algorithm 2 and appendix C",
)
@attrs.frozen(kw_only=True)
class FedNewtonHead(Remembering):
    """FedNewton on a classification head; lbfgs asks for gradients alone."""

    solver: str = setting(
        "cg", "how a client applies its inverse Hessian", choices=(*SOLVERS, "lbfgs")
    )

    def __attrs_post_init__(self) -> None:
        self.check_memory()

    def sums(self, classes: int) -> int | None:
        """Two a round, and trials of the line search."""
        return None if self.safeguard or self.solver == "lbfgs" else 2 * self.rounds

    def states(self, run: LinearRun, start: Any) -> Iterator[Any]:
        """See `secure_fl.trainers.linear.fednewton_head`."""
        from secure_fl.trainers.linear import LBFGS, NewtonState, fednewton_head

        lbfgs = LBFGS(self.memory or 10) if self.solver == "lbfgs" else None
        return fednewton_head(
            run.fed,
            run.objective,
            start=start or NewtonState(run.objective.zeros(run.width)),
            rounds=self.rounds,
            solver=lbfgs or self.client_solver(),
            safeguard=self.safeguard,
            memory=0 if lbfgs else self.memory,
        )
