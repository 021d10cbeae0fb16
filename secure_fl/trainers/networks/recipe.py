"""What a training run of networks is told, and the parts of the trainers that it names."""

import math
from dataclasses import dataclass
from typing import Literal

from secure_fl.errors import InputError
from secure_fl.trainers.networks.fedrco import SecondOrder
from secure_fl.trainers.networks.kfac import Curvature
from secure_fl.trainers.networks.local import LocalTraining
from secure_fl.trainers.networks.models import ConvNet, FourierModel, Model, Perceptron
from secure_fl.trainers.networks.monitor import Thresholds
from secure_fl.trainers.networks.promise import DPSGD

Method = Literal[
    "fedavg",
    "fedavgm",
    "fedadam",
    "fedprox",
    "fedavgr",
    "localnewton",
    "fedpm",
    "fedrco-ori",
    "fedrco",
]
SECOND_ORDER: frozenset[str] = frozenset({"localnewton", "fedpm", "fedrco-ori", "fedrco"})
"""Methods whose local steps are preconditioned by curvature."""
MONITORED: frozenset[str] = frozenset({"fedrco-ori", "fedrco"})
"""Methods that may watch their steps."""
Architecture = Literal["mlp", "cnn", "fourier"]


@dataclass(frozen=True)
class NetworkRecipe:
    """How to train a network; public, and kept in the model.

    Attributes:
        method: the trainer.
        network: the architecture.
        rounds: at least 1.
        hidden: units of the hidden layers of an mlp.
        image: (channels, height, width) of a cnn's records; None for one channel and a square.
        random_features: of fourier; 0 takes 100.
        kernel_deviation: of fourier, standard deviation of the initial frequencies, above 0.
        learning_rate, local_epochs, local_batch, local_momentum: of local steps; with record-level
            privacy the batch is what a Poisson sample has on average. Methods in SECOND_ORDER
            have no momentum.
        local_steps: mini-batches of a round; 0 goes by local_epochs.
        server_rate: of fedavgm and fedadam; None takes 1, for fedadam 0.01.
        proximal: mu of fedprox, >= 0.
        trace, feature_penalty, mmd: alpha, beta and gamma of fedavgr, >= 0.
        damping: of the curvature factors of SECOND_ORDER, above 0.
        factor_average: weight of a factor's older statistics, in [0, 1).
        inversion_interval: T_inv, steps between inversions of the factors, at least 1.
        monitor: whether MONITORED methods watch their steps.
        rollback_above, reset_above: the monitor's scores tau_low and tau_high.
        participants: clients of a round; None takes all.
        secure: whether sums are masked.
        seed: of the experiment's randomness.

    Raises:
        InputError: a setting out of its range.
    """

    method: Method
    network: Architecture
    rounds: int = 10
    hidden: tuple[int, ...] = (64,)
    image: tuple[int, int, int] | None = None
    random_features: int = 0
    kernel_deviation: float = 1.0
    learning_rate: float = 0.1
    local_epochs: int = 1
    local_batch: int = 64
    local_momentum: float = 0.9
    server_rate: float | None = None
    proximal: float = 0.01
    trace: float = 1e-6
    feature_penalty: float = 1e-4
    mmd: float = 1e-2
    local_steps: int = 0
    damping: float = 0.03
    factor_average: float = 0.95
    inversion_interval: int = 200
    monitor: bool = True
    rollback_above: float = 10.0
    reset_above: float = 1000.0
    participants: int | None = None
    secure: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise InputError(f"rounds: found {self.rounds}, expected at least 1")
        if not self.hidden or min(self.hidden) < 1:
            raise InputError(f"hidden: found {self.hidden}, expected layers of at least 1 unit")
        if not self.kernel_deviation > 0:
            raise InputError(f"kernel deviation: found {self.kernel_deviation}, expected above 0")
        if self.method in SECOND_ORDER and self.local_momentum:
            raise InputError(
                f"local momentum: found {self.local_momentum}, the steps of {self.method} are"
                " second-order and take 0"
            )

    def refuse_privacy(self, *, record: bool, client: bool) -> None:
        """Raises what is wrong where the method cannot keep a promise, before anything is spent.

        Args:
            record: whether single records are to be hidden.
            client: whether whole clients are.

        Raises:
            InputError: names the reason and what to take instead.
        """
        if record and self.method in SECOND_ORDER:
            whole = "" if self.method == "fedpm" else ", or hide whole clients (--client-epsilon)"
            raise InputError(
                f"{self.method}: cannot hide single records; its factors are second moments of"
                " their inputs and gradients, and noise on matrices of that size would drown them."
                f" Take fedavgr{whole}"
            )
        if client and self.method == "fedpm":
            raise InputError(
                "fedpm: cannot hide whole clients; noise on the summed factors would leave them"
                " not positive definite. Take fedrco or fedavg"
            )

    @property
    def bounded(self) -> str:
        """Nothing: `sums` always knows."""
        return ""

    def sums(self, classes: int) -> int:
        """Sums that a run asks for, whatever the number of classes."""
        return self.rounds * (2 if self.method == "fedavgr" and self.mmd else 1)


def specification(recipe: NetworkRecipe, classes: int, features: int) -> Model:
    """The network of a recipe for records of that many features.

    Raises:
        InputError: records that are no images of the recipe's shape.
    """
    if recipe.network == "mlp":
        return Perceptron(classes, features, recipe.hidden)
    if recipe.network == "fourier":
        width = recipe.random_features or 100
        return FourierModel(classes, features, width, recipe.kernel_deviation)
    side = math.isqrt(features)
    shape = recipe.image or (1, side, side)
    if math.prod(shape) != features:
        raise InputError(
            f"cnn: records have {features} features, images of"
            f" {' x '.join(map(str, shape))} have {math.prod(shape)}; give --image"
        )
    try:
        return ConvNet(classes, shape)
    except ValueError as error:
        raise InputError(str(error)) from None


def local_training(recipe: NetworkRecipe, promise: DPSGD | None) -> LocalTraining:
    """A client's part of a round.

    Args:
        recipe: what to run.
        promise: of record-level privacy, if any.

    Raises:
        InputError: a setting out of its range.
    """
    try:
        return LocalTraining(
            recipe.learning_rate,
            epochs=recipe.local_epochs,
            steps=recipe.local_steps,
            batch_size=recipe.local_batch,
            momentum=recipe.local_momentum,
            proximal=recipe.proximal if recipe.method == "fedprox" else 0.0,
            privacy=promise,
        )
    except ValueError as error:
        raise InputError(str(error)) from None


def second_order(recipe: NetworkRecipe, training: LocalTraining) -> SecondOrder:
    """A client's part of a round of FedRCO, FedRCO-ori and LocalNewton.

    Args:
        recipe: of one of them.
        training: of `local_training`.

    Raises:
        InputError: a setting out of its range.
    """
    newton = recipe.method == "localnewton"
    try:
        return SecondOrder(
            training,
            Curvature(
                recipe.damping,
                recipe.factor_average,
                recipe.inversion_interval,
                persistent=not newton,
            ),
            Thresholds(low=recipe.rollback_above, high=recipe.reset_above)
            if recipe.monitor and not newton
            else None,
            personal=recipe.method == "fedrco",
        )
    except ValueError as error:
        raise InputError(str(error)) from None
