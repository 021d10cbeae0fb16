"""What methods that train a network have in common: the network, local steps, what they promise."""

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import attrs

from secure_fl.errors import InputError
from secure_fl.trainers.settings import Family, Settings, setting

if TYPE_CHECKING:
    from secure_fl.federation import Federation
    from secure_fl.trainers.networks import DPSGD, LocalTraining, Model, NetworkState

ARCHITECTURES = ("mlp", "cnn", "fourier")
FEATURE_SCALES = ("kernel", "paper")


@dataclass(frozen=True)
class NetworkRun:
    """What a method of networks runs on.

    Attributes:
        fed: the clients.
        model: see `NetworkSettings.specification`.
        training: see `NetworkSettings.training`.
    """

    fed: "Federation"
    model: "Model"
    training: "LocalTraining"


States = Callable[["NetworkState"], Iterator["NetworkState"]]


@attrs.frozen(kw_only=True)
class NetworkSettings(Settings):
    """A method that trains a network by local steps and averaging."""

    family: ClassVar[Family] = "network"
    monitored: ClassVar[bool] = False
    """Whether clients may watch their steps."""
    personal: ClassVar[bool] = False
    """Whether every client keeps a model of its own."""

    model: str = setting("mlp", "the network", choices=ARCHITECTURES)
    hidden: tuple[int, ...] | None = setting(
        None, "mlp: units of the hidden layers; default: 64", kind="wholes"
    )
    image: tuple[int, ...] | None = setting(
        None,
        "cnn: channels, height, width; default: one channel, a square",
        kind="wholes",
        length=3,
    )
    random_features: int | None = setting(
        None, "fourier: their number; default: 100", kind="whole", least=1
    )
    kernel_deviation: float | None = setting(
        None, "fourier: of the initial frequencies; default: 1", kind="number", above=0
    )
    feature_scale: str | None = setting(
        None,
        "fourier: features sqrt(2/D) cos(.) (kernel) or FedAvgR's sqrt(2) cos(.) (paper);"
        " default: kernel",
        kind="choice",
        choices=FEATURE_SCALES,
    )
    rounds: int = setting(10, "of training", least=1)
    participants: int | None = setting(
        None, "clients of a round; default: all", kind="whole", least=1
    )
    learning_rate: float = setting(0.1, "of local steps", above=0)
    local_epochs: int = setting(
        1, "passes over a client's records in a round", least=1, unless="local_steps"
    )
    local_steps: int = setting(0, "mini-batches of a round; 0: by local-epochs", least=0)
    local_batch: int = setting(64, "records of a local step", least=1)

    def __attrs_post_init__(self) -> None:
        self._check_network()

    def _check_network(self) -> None:
        owners = {
            "hidden": ("mlp",),
            "image": ("cnn",),
            "random_features": ("fourier",),
            "kernel_deviation": ("fourier",),
            "feature_scale": ("fourier",),
        }
        for name, models in owners.items():
            if getattr(self, name) is not None and self.model not in models:
                option = name.replace("_", "-")
                raise InputError(f"{option}: of --model {models[0]}, not of {self.model}")

    @property
    def bounded(self) -> str:
        """Nothing: `sums` always knows."""
        return ""

    @property
    def momentum(self) -> float:
        """Of local steps."""
        return 0.0

    @property
    def proximal_weight(self) -> float:
        """mu of FedProx; 0 elsewhere."""
        return 0.0

    @property
    def normalised_groups(self) -> int:
        """Groups of a cnn's channels that are normalised together; 0 for none."""
        return 0

    @property
    def releases_features(self) -> bool:
        """Whether clients release the mean of their features too."""
        return False

    @property
    def drawn(self) -> int | None:
        """Clients that the federation draws for a round; None where all are there."""
        return self.participants

    def sums(self, classes: int) -> int:
        """One a round, whatever the number of classes."""
        return self.rounds

    def refuse_privacy(self, *, record: bool, client: bool) -> None:
        """Raises what is wrong where the method cannot keep a promise, before anything is spent.

        Args:
            record: whether single records are to be hidden.
            client: whether whole clients are.

        Raises:
            InputError: names the reason and what to take instead.
        """

    def specification(self, classes: int, features: int) -> "Model":
        """The network for records of that many features.

        Raises:
            InputError: records that are no images of the given shape.
        """
        from secure_fl.trainers import networks

        if self.model == "mlp":
            return networks.Perceptron(classes, features, self.hidden or (64,))
        if self.model == "fourier":
            width, deviation = self.random_features or 100, self.kernel_deviation or 1.0
            normalised = self.feature_scale != "paper"
            return networks.FourierModel(classes, features, width, deviation, normalised)
        side = math.isqrt(features)
        shape = self.image or (1, side, side)
        if math.prod(shape) != features:
            raise InputError(
                f"cnn: records have {features} features, images of"
                f" {' x '.join(map(str, shape))} have {math.prod(shape)}; give --image"
            )
        try:
            return networks.ConvNet(
                classes, (shape[0], shape[1], shape[2]), groups=self.normalised_groups
            )
        except ValueError as error:
            raise InputError(str(error)) from None

    def training(self, promise: "DPSGD | None") -> "LocalTraining":
        """A client's part of a round.

        Args:
            promise: of record-level privacy, if any.
        """
        from secure_fl.trainers.networks import LocalTraining

        return LocalTraining(
            self.learning_rate,
            epochs=self.local_epochs,
            steps=self.local_steps,
            batch_size=self.local_batch,
            momentum=self.momentum,
            proximal=self.proximal_weight,
            privacy=promise,
        )

    @abstractmethod
    def states(self, run: NetworkRun) -> States:
        """The method's rounds, given where to start."""
