"""What an iterative training run is told, checked before anything runs."""

from dataclasses import dataclass
from typing import Literal, get_args

from secure_fl.errors import InputError

Method = Literal[
    "fedavg",
    "fedavgm",
    "fedadam",
    "fedprox",
    "oneshot",
    "dkrr",
    "krr",
    "localnewton",
    "fednewton",
    "fednewton-head",
    "private-ridge",
]
METHODS: tuple[Method, ...] = get_args(Method)
SolverName = Literal["exact", "cg", "diagonal", "low-rank", "lbfgs"]
SOLVERS: tuple[SolverName, ...] = get_args(SolverName)

SQUARED: frozenset[str] = frozenset({"dkrr", "krr", "fednewton", "private-ridge"})
"""Methods of the squared loss; the others minimise the softmax loss."""
AT_ONCE: frozenset[str] = frozenset({"oneshot", "dkrr", "krr", "private-ridge"})
"""Methods of one sum."""


@dataclass(frozen=True)
class Recipe:
    """How to train; public, and kept in the model.

    Attributes:
        method: one of METHODS.
        rounds: at least 1; of the methods in AT_ONCE always 1.
        ridge: lambda, above 0.
        random_features: M random Fourier features in place of the records; 0 for none.
        kernel_deviation: standard deviation of their frequencies, above 0.
        learning_rate: of local steps, above 0.
        local_epochs: of first-order methods, at least 1.
        local_batch: records of a local step.
        local_momentum: in [0, 1).
        server_rate: of fedavg, fedavgm and fedadam; None takes 1, for fedadam 0.01.
        proximal: mu of fedprox, >= 0.
        solver: of localnewton and the fednewtons; None takes exact, for fednewton-head cg. lbfgs
            is for fednewton-head.
        damping: of the solver, >= 0.
        memory: changes that the server remembers, >= 0.
        safeguard: of localnewton and the fednewtons.
        participants: clients of a round; None takes all.
        secure: whether sums are masked.
        seed: of the experiment's randomness.

    Raises:
        InputError: settings that contradict each other.
    """

    method: Method
    rounds: int = 10
    ridge: float = 1e-4
    random_features: int = 0
    kernel_deviation: float = 1.0
    learning_rate: float = 0.1
    local_epochs: int = 1
    local_batch: int = 64
    local_momentum: float = 0.9
    server_rate: float | None = None
    proximal: float = 0.01
    solver: SolverName | None = None
    damping: float = 0.0
    memory: int = 0
    safeguard: bool = True
    participants: int | None = None
    secure: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise InputError(f"rounds: found {self.rounds}, expected at least 1")
        if not self.ridge > 0:
            raise InputError(f"ridge: found {self.ridge}, expected a number above 0")
        if self.solver == "lbfgs" and self.method != "fednewton-head":
            raise InputError(f"solver lbfgs: is for fednewton-head, not for {self.method}")
        if self.memory and not self.safeguard:
            raise InputError("memory: needs the safeguard; leave out --no-safeguard or --memory")

    @property
    def sums(self) -> int | None:
        """Sums that a run asks for, known beforehand; None where a line search decides."""
        if self.method in AT_ONCE:
            return 1
        if self.method == "fednewton":
            everybody = self.participants is None
            each = 2 if everybody or not self.safeguard else 3
            return 1 + int(self.safeguard and everybody) + each * self.rounds
        if self.method == "fednewton-head":
            return None if self.safeguard or self.solver == "lbfgs" else 2 * self.rounds
        if self.method == "localnewton":
            return None if self.safeguard else self.rounds
        return self.rounds
