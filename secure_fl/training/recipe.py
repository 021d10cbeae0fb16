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
    "private-gradient",
    "fednl",
    "fednl-ls",
    "fednl-cr",
    "fednl-pp",
    "fednl-bc",
]
METHODS: tuple[Method, ...] = get_args(Method)
SolverName = Literal["exact", "cg", "diagonal", "low-rank", "lbfgs"]
SOLVERS: tuple[SolverName, ...] = get_args(SolverName)

SQUARED: frozenset[str] = frozenset({"dkrr", "krr", "fednewton", "private-ridge"})
"""Methods of the squared loss; the others minimise the softmax loss."""
AT_ONCE: frozenset[str] = frozenset({"oneshot", "dkrr", "krr", "private-ridge"})
"""Methods of one sum."""
RECORD_PRIVATE: tuple[str, ...] = ("private-ridge", "private-gradient")
"""Methods whose sums hide every record; every client counts by its records."""
FEDNL: frozenset[str] = frozenset({"fednl", "fednl-ls", "fednl-cr", "fednl-pp", "fednl-bc"})
"""Methods of the logistic loss, one class against the rest; every client counts alike."""
CompressorName = Literal["auto", "top-k", "rand-k", "shared-rand-k", "rank-1", "identity"]
COMPRESSORS: tuple[CompressorName, ...] = get_args(CompressorName)


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
        participants: clients of a round; None takes all. Of the FEDNL methods for fednl-pp alone,
            whose tau it is: the others' server would have to ask for Hessians anew every round.
        compressor: of the differences of Hessians of the FEDNL methods, with k = 8 d; auto takes
            top-k, and shared-rand-k where sums are masked or noisy.
        option: of fednl and fednl-bc, 1 or 2.
        gradient_share: p of fednl-bc, in (0, 1].
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
    compressor: CompressorName = "auto"
    option: int = 2
    gradient_share: float = 1.0
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
        if self.participants and self.method in FEDNL - {"fednl-pp"}:
            raise InputError(f"participants: {self.method} needs all clients; take fednl-pp")
        if self.option not in (1, 2):
            raise InputError(f"option: found {self.option}, expected 1 or 2")
        if not 0 < self.gradient_share <= 1:
            raise InputError(f"gradient share: found {self.gradient_share}, expected it in (0, 1]")

    @property
    def drawn(self) -> int | None:
        """Clients that the federation draws for a round; None where all are there."""
        # Algorithm 2 starts with everybody and draws for itself.
        return None if self.method == "fednl-pp" else self.participants

    def sums(self, classes: int) -> int | None:
        """Sums that a run asks for at most, known beforehand; None where a line search decides.

        Args:
            classes: C.
        """
        if self.method in AT_ONCE:
            return 1
        if self.method in FEDNL:
            return self._fednl_sums(1 if classes == 2 else classes)
        if self.method == "fednewton":
            everybody = self.participants is None
            each = 2 if everybody or not self.safeguard else 3
            return 1 + int(self.safeguard and everybody) + each * self.rounds
        if self.method == "fednewton-head":
            return None if self.safeguard or self.solver == "lbfgs" else 2 * self.rounds
        if self.method == "localnewton":
            return None if self.safeguard else self.rounds
        return self.rounds

    def _fednl_sums(self, runs: int) -> int | None:
        if self.method == "fednl-ls":
            return None
        # The cubic method asks for the Hessian's Lipschitz constant, the bidirectional one for
        # gradients in a share of its rounds.
        extra = {"fednl-cr": 1, "fednl-bc": self.rounds}.get(self.method, 0)
        return runs * (1 + self.rounds + extra)
