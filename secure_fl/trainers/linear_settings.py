"""What methods that train a linear model have in common: its objective, its inputs, its sums."""

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import attrs

from secure_fl.errors import InputError
from secure_fl.trainers.settings import Family, Settings, setting

if TYPE_CHECKING:
    from secure_fl.federation import Federation
    from secure_fl.objectives import Objective
    from secure_fl.privacy.promises import RecordPrivacy
    from secure_fl.trainers.fednl import LogisticRidge


@dataclass(frozen=True)
class LinearRun:
    """What a method of linear models runs on.

    Attributes:
        fed: the clients.
        objective: see `LinearSettings.objective`.
        width: columns of the clients' features.
        seed: of the experiment's randomness.
        promise: of methods that hide every record.
        target_norm: public L2 norm that a record's targets are clipped to; of methods that hide
            every record, where they predict numbers.
    """

    fed: "Federation"
    objective: "Objective"
    width: int
    seed: int
    promise: "RecordPrivacy | None" = None
    target_norm: float | None = None


@attrs.frozen(kw_only=True)
class LinearSettings(Settings):
    """A method that trains a linear model behind a fixed feature map."""

    family: ClassVar[Family] = "linear"
    squared: ClassVar[bool] = False
    """Whether it minimises the squared loss; otherwise the softmax loss."""
    probabilistic: ClassVar[bool] = True
    """Whether the softmax of its model's scores are probabilities."""
    unweighted: ClassVar[bool] = False
    """Whether it asks for sums in which no client's number of records counts."""
    takes_class_texts: ClassVar[bool] = False
    """Whether public texts of the classes are of use to it."""
    sees_clients: ClassVar[bool] = False
    """Whether its server asks for single clients' values, which masked sums do not show."""
    regresses: ClassVar[bool] = False
    """Whether it predicts numbers where it is given them (the squared loss on real targets)."""
    hides_records: ClassVar[bool] = False
    """Whether it runs only with a promise for every record, in masked sums."""

    own_constant: ClassVar[bool] = False
    """Whether its weights have a constant though the features that it sees (`bare`) have none."""

    random_features: int = setting(
        0, "random Fourier features in place of the records; 0: none", least=0
    )
    kernel_deviation: float = setting(
        1.0, "standard deviation of their frequencies", above=0, of="random_features"
    )

    @property
    def drawn(self) -> int | None:
        """Clients that the federation draws for a round; None where all are there."""
        return None

    @property
    def bare(self) -> bool:
        """Whether the model has no constant beside the features."""
        return False

    @property
    def bounded(self) -> str:
        """What to do so that the number of sums is known beforehand."""
        return ""

    @property
    def penalty(self) -> float:
        """Ridge of the objective; of methods that have the setting, that."""
        return 1e-4

    def objective(self, classes: int) -> "Objective":
        """What is minimised, for C classes."""
        from secure_fl.objectives import SoftmaxLoss, SquaredLoss

        return (SquaredLoss if self.squared else SoftmaxLoss)(self.penalty, classes)

    def regression(self, outputs: int) -> "Objective":
        """What is minimised, for C numbers to be predicted.

        Raises:
            InputError: the method is for classes alone.
        """
        from secure_fl.objectives.regression import RegressionLoss

        if not self.regresses:
            raise InputError(
                f"{self.method}: is for classes; numbers (targets) are predicted by methods such as"
                " fednewton, krr, dkrr, fedavg and private-ridge"
            )
        return RegressionLoss(self.penalty, outputs)

    @abstractmethod
    def sums(self, classes: int) -> int | None:
        """Sums that a run asks for at most; None where that is not known beforehand.

        Args:
            classes: C.
        """

    @abstractmethod
    def states(self, run: LinearRun, start: Any) -> Iterator[Any]:
        """The method's rounds, from a state or from its own start where that is None."""


@attrs.frozen(kw_only=True)
class Ridged(LinearSettings):
    """A method that is told its ridge."""

    ridge: float = setting(1e-4, "lambda of the ridge term", above=0)

    @property
    def penalty(self) -> float:
        """The setting."""
        return self.ridge


class OneSum:
    """A method that is done after one sum."""

    __slots__ = ()

    def sums(self, classes: int) -> int:
        """One."""
        return 1

    def states(self, run: LinearRun, start: Any) -> Iterator[Any]:
        """The one state; nothing where it is there already."""
        return iter(()) if start is not None else self.once(run)

    @abstractmethod
    def once(self, run: LinearRun) -> Iterator[Any]:
        """Yields the one state."""


@attrs.frozen(kw_only=True)
class Rounds(Ridged):
    """A method that goes on for a number of rounds."""

    rounds: int = setting(10, "of training", least=1)


@attrs.frozen(kw_only=True)
class DrawnRounds(Rounds):
    """A method of rounds in which some of the clients may take part."""

    participants: int | None = setting(
        None, "clients of a round; default: all", kind="whole", least=1
    )

    @property
    def drawn(self) -> int | None:
        """As many as the setting says."""
        return self.participants


@attrs.frozen(kw_only=True)
class OneAgainstRest(Rounds):
    """A method for two classes, run for each class against the rest."""

    unweighted: ClassVar[bool] = True
    probabilistic: ClassVar[bool] = False

    def states(self, run: LinearRun, start: Any) -> Iterator[Any]:
        """One class against the rest; see `trainer`."""
        from secure_fl.trainers.fednl.one_against_rest import one_against_rest

        shared = self.shared(run)

        def trainer(objective: "LogisticRidge", begin: Any) -> Iterator[Any]:
            return self.trainer(run, objective, {**shared, "start": begin})

        return one_against_rest(trainer, self.ridge, run.objective.classes, start)

    def shared(self, run: LinearRun) -> dict[str, Any]:
        """Arguments that `trainer` passes on for every class."""
        return {"d": run.width, "rounds": self.rounds}

    def trainer(
        self, run: LinearRun, objective: "LogisticRidge", shared: dict[str, Any]
    ) -> Iterator[Any]:
        """The method for one class; its arguments in common are `shared`, with its `start`."""
        raise NotImplementedError


def clients_of_a_round(participants: int | None, run: LinearRun) -> int:
    """tau, of methods that start with everybody and draw for themselves; None takes all.

    Raises:
        InputError: more than there are.
    """
    tau = participants or len(run.fed)
    if tau > len(run.fed):
        raise InputError(f"participants: found {tau}, the federation has {len(run.fed)} clients")
    return tau
