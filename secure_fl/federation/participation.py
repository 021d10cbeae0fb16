"""Who takes part in a round, and who drops out of it in a test."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Protocol

import numpy as np

from secure_fl.errors import FederationError


class Participation(Protocol):
    """Draws a round's participants."""

    def draw(self, names: Sequence[str], rng: np.random.Generator) -> tuple[str, ...]:
        """A subset of the names, in their order."""

    def expected(self, n: int) -> float:
        """How many of n clients take part on average; public."""


@dataclass(frozen=True)
class AllClients:
    """Every client takes part in every round."""

    def draw(self, names: Sequence[str], rng: np.random.Generator) -> tuple[str, ...]:
        """All of them."""
        return tuple(names)

    def expected(self, n: int) -> float:
        """All of them."""
        return float(n)


@dataclass(frozen=True)
class FixedNumber:
    """The same number of clients in every round, drawn without replacement.

    Attributes:
        count: at least 1; at most the number of clients.
    """

    count: int

    def __post_init__(self) -> None:
        if self.count < 1:
            raise FederationError(f"participation: found {self.count} clients, expected at least 1")

    def draw(self, names: Sequence[str], rng: np.random.Generator) -> tuple[str, ...]:
        """`count` of them."""
        if self.count > len(names):
            raise FederationError(
                f"participation: {self.count} clients a round of a federation of {len(names)};"
                " ask for fewer"
            )
        places = np.sort(rng.choice(len(names), self.count, replace=False))
        return tuple(names[i] for i in places)

    def expected(self, n: int) -> float:
        """`count`."""
        return float(self.count)


@dataclass(frozen=True)
class FixedProbability:
    """Every client takes part with the same probability, independently of the others.

    Attributes:
        probability: in (0, 1].
    """

    probability: float

    def __post_init__(self) -> None:
        if not 0 < self.probability <= 1:
            raise FederationError(
                f"participation: found probability {self.probability}, expected it in (0, 1]"
            )

    def draw(self, names: Sequence[str], rng: np.random.Generator) -> tuple[str, ...]:
        """Possibly none of them: the handle then raises QuorumError when a sum is asked for."""
        drawn = rng.random(len(names)) < self.probability
        return tuple(name for name, taken in zip(names, drawn, strict=True) if taken)

    def expected(self, n: int) -> float:
        """probability times n."""
        return self.probability * n


class Stage(IntEnum):
    """Before which of its messages a client falls silent (Bonawitz et al. 2017, figure 4)."""

    ADVERTISE = 0
    SHARE = 1
    MASK = 2
    UNMASK = 3


class DropOuts(Protocol):
    """Injects drop-outs, for tests and simulations of unreliable clients."""

    def draw(
        self, names: Sequence[str], round_number: int, call: int, rng: np.random.Generator
    ) -> Mapping[str, Stage]:
        """Which of the names drop out of this sum, and before which message.

        Under plain aggregation a client that drops before UNMASK has sent no update; one that
        drops at UNMASK has sent it already and counts.
        """


@dataclass(frozen=True)
class NoDropOuts:
    """Every participant finishes."""

    def draw(
        self, names: Sequence[str], round_number: int, call: int, rng: np.random.Generator
    ) -> Mapping[str, Stage]:
        """Nobody."""
        return {}


@dataclass(frozen=True)
class RandomDropOuts:
    """Every participant drops out of a sum with the same probability, at a given stage.

    Attributes:
        probability: in [0, 1].
        stage: before which message.
    """

    probability: float
    stage: Stage = Stage.MASK

    def draw(
        self, names: Sequence[str], round_number: int, call: int, rng: np.random.Generator
    ) -> Mapping[str, Stage]:
        """Independent draws."""
        lost = rng.random(len(names)) < self.probability
        return {name: self.stage for name, gone in zip(names, lost, strict=True) if gone}


@dataclass(frozen=True)
class ScriptedDropOuts:
    """Exactly these clients drop out, of every sum or of the listed ones.

    Attributes:
        stages: client to stage, in every sum.
        at: (round, call) to client to stage, beside `stages`.
    """

    stages: Mapping[str, Stage] = field(default_factory=dict)
    at: Mapping[tuple[int, int], Mapping[str, Stage]] = field(default_factory=dict)

    def draw(
        self, names: Sequence[str], round_number: int, call: int, rng: np.random.Generator
    ) -> Mapping[str, Stage]:
        """Those of the script that take part."""
        script = {**self.stages, **self.at.get((round_number, call), {})}
        return {name: stage for name, stage in script.items() if name in names}
