"""Noise and books of an iterative training run, from the numbers that its parties agree on."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, TypeAlias

import attrs

from dp import Budget, Element, Ledger, Membership, Record
from dp.adjacency import adjacency_from_json, adjacency_to_json
from dp.release_plan import Smoothing
from secure_fl.errors import InputError
from secure_fl.federation import ClientPrivacy, calibrate
from secure_fl.federation.noises import NoiseName
from secure_fl.federation.privacy import UNIT
from secure_fl.files import placed
from secure_fl.privacy.ledgers import Shelf, open_books

Neighbours: TypeAlias = Literal["replace", "add-remove"]
"""Which two data sets must be hard to tell apart: one record is replaced by any other, or one is
there in one of them alone. The second is the weaker promise at the same epsilon."""


def record_unit(norm: float, neighbours: Neighbours = "replace") -> Record | Membership:
    """The unit of sums over records that are clipped to that norm."""
    return Record(norm) if neighbours == "replace" else Membership("record")


class Planned(Protocol):
    """What noise for a whole client needs to know of a method."""

    method: ClassVar[str]
    """Name of the trainer."""

    @property
    def bounded(self) -> str:
        """What to do so that the number of sums is known beforehand."""

    def sums(self, classes: int) -> int | None:
        """Sums that a run asks for at most; None where that is not known beforehand."""


@attrs.frozen(kw_only=True)
class ReleasePromise:
    """What every released matrix promises; bounds and grid are in units of scaled features.

    Attributes:
        epsilon: above 0, per unit of `adjacency`.
        delta: in [0, 1).
        adjacency: `dp.Element(distance)` or `dp.Record(norm)`.
        bounds: public range to which features are clamped.
        grid: public step of the released features.
        mechanism: one of `dp.MECHANISMS`; None takes the best for the unit.
        smoothing: "sure", "none" or a public number of passes.
        budget: of a ledger that does not exist yet; None sets no limit.
    """

    epsilon: float
    delta: float
    adjacency: Element | Record
    bounds: tuple[float, float]
    grid: float = 2.0**-10
    mechanism: str | None = None
    smoothing: Smoothing = "sure"
    budget: Budget | None = None

    def terms(self) -> dict[str, Any]:
        """The arguments of `dp.prepare_batches` and its kin; its default mechanism is by unit."""
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "adjacency": self.adjacency,
            "bounds": self.bounds,
            "grid": self.grid,
            "mechanism": self.mechanism,
            "smoothing": self.smoothing,
        }

    def to_json(self) -> dict[str, Any]:
        """All but the budget, which is its ledger's, in JSON types."""
        terms = self.terms()
        return {
            **terms,
            "adjacency": adjacency_to_json(self.adjacency),
            "bounds": list(self.bounds),
        }

    @classmethod
    def from_json(cls, value: Any) -> "ReleasePromise":
        """Reads what `to_json` wrote.

        Raises:
            ValueError: another form.
        """
        try:
            low, high = value["bounds"]
            unit = adjacency_from_json(value["adjacency"])
            return cls(**{**value, "adjacency": unit, "bounds": (low, high)})
        except (TypeError, LookupError) as error:
            raise ValueError(f"not the terms of a release ({error})") from error


@attrs.frozen(kw_only=True)
class ClientPromise:
    """What a run by sums promises every client, about all of its contributions.

    Attributes:
        epsilon: above 0, per client's contribution.
        clip: public L2 norm of a client's update.
        delta: in (0, 1).
        noise: "gaussian" or "skellam", whose parts add up exactly.
    """

    epsilon: float
    clip: float | None
    delta: float = 1e-5
    noise: NoiseName = "gaussian"

    def __attrs_post_init__(self) -> None:
        _check("client-epsilon", self.epsilon)
        _check("client-delta", self.delta, below=1.0)
        if self.clip is not None:
            _check("clip", self.clip)


@attrs.frozen(kw_only=True)
class RecordPromise:
    """What a run by sums promises every record.

    Attributes:
        epsilon: above 0, per record.
        delta: in (0, 1).
        norm: public L2 norm that records are clipped to; of methods of linear models and heads.
        clip: L2 norm of one record's gradient; of networks.
        budget: epsilon, at `delta`, that a new ledger of a client may spend; None sets no limit.
        adjacency: whether a record is replaced, or added or removed; of methods with a norm.
        class_texts: JSON file of public texts that describe the classes, or None; whoever writes
            them must not look at records.
        whole: epsilon of a run of which an earlier sum has taken its part, or None.
    """

    epsilon: float
    delta: float = 1e-5
    norm: float | None = None
    clip: float = 1.0
    budget: float | None = None
    adjacency: Neighbours = "replace"
    class_texts: Path | None = None
    whole: float | None = None

    def __attrs_post_init__(self) -> None:
        _check("epsilon", self.epsilon)
        _check("delta", self.delta, below=1.0)
        for name in ("norm", "clip", "budget"):
            value = getattr(self, name)
            if value is not None:
                _check(name, value)


def _check(name: str, value: float, below: float = math.inf) -> None:
    if not (math.isfinite(value) and 0 < value < below):
        wanted = "a finite number above 0" if math.isinf(below) else "a number in (0, 1)"
        raise InputError(f"{name}: found {value}, expected {wanted}")


Promise: TypeAlias = ReleasePromise | ClientPromise | RecordPromise


@dataclass(frozen=True, eq=False)
class RecordPrivacy:
    """What a run of masked noisy sums promises every record, with its books.

    Attributes:
        epsilon: > 0, per record, its label included.
        delta: in (0, 1).
        norm: public L2 norm that records are clipped to, > 0, after scaling and random features.
        ledger: the books.
        adjacency: whether a record is replaced, or added or removed.
        prior: public directions of the classes, shape (d, C), or None.
        texts: digest of the public texts behind the prior, or None.
        whole: epsilon of this and of what the run released before, where it did, or None.
    """

    epsilon: float
    delta: float
    norm: float
    ledger: Ledger
    adjacency: Neighbours = "replace"
    prior: Any = None
    texts: str | None = None
    whole: float | None = None

    @property
    def unit(self) -> Record | Membership:
        """What epsilon protects."""
        return record_unit(self.norm, self.adjacency)

    def text(self) -> str:
        """What the books say, in one line with the unit."""
        unit = self.unit
        total = self.ledger.finite_epsilon(self.delta, unit)
        return (
            f"epsilon {total.epsilon:.4g} at delta {total.delta:g} per {unit.unit} ({total.rule})"
        )


def client_privacy(
    settings: Planned, classes: int, promise: ClientPromise, books: Path | Shelf
) -> ClientPrivacy:
    """Noise that hides a whole client, as much as all sums of the method together need.

    Args:
        settings: what is to be run.
        classes: C.
        promise: what every client is promised.
        books: the federation's ledger, made with this budget where there is none; or those of its
            clients, of which every one gets the events.

    Raises:
        InputError: no clip, or a method whose number of sums is not known beforehand.
        dp.LedgerError: the ledger was edited.
    """
    if promise.clip is None:
        raise InputError("client-epsilon: needs --clip, a public L2 norm of a client's update")
    sums = settings.sums(classes)
    if sums is None:
        raise InputError(
            f"client-epsilon: the line search of {settings.method} takes as many sums as it needs,"
            f" and each costs privacy; {settings.bounded}"
        )
    multiplier = calibrate(promise.epsilon, promise.delta, sums, promise.noise)
    ledger = _opened(books, Budget(promise.epsilon, promise.delta, UNIT))
    return ClientPrivacy(promise.clip, multiplier, sums, ledger, promise.delta, noise=promise.noise)


def record_privacy(
    epsilon: float,
    delta: float,
    norm: float,
    books: Path | Shelf,
    *,
    adjacency: Neighbours = "replace",
    prior: Any = None,
    texts: str | None = None,
    whole: float | None = None,
) -> RecordPrivacy:
    """What a run promises every record.

    Args:
        epsilon: above 0, per record.
        delta: in (0, 1).
        norm: public L2 norm that records are clipped to.
        books: the federation's ledger, made with this budget where there is none; or those of its
            clients, of which every one gets the events.
        adjacency: whether a record is replaced, or added or removed.
        prior, texts, whole: as `RecordPrivacy`.

    Raises:
        dp.LedgerError: the ledger was edited.
    """
    ledger = _opened(books, Budget(whole or epsilon, delta, record_unit(norm, adjacency)))
    return RecordPrivacy(epsilon, delta, norm, ledger, adjacency, prior, texts, whole)


def _opened(books: Path | Shelf, budget: Budget) -> Ledger:
    if isinstance(books, Shelf):
        return books.joint(tuple(books.records))
    with placed(books):
        exists = books.exists()
    return Ledger.open(books) if exists else open_books(books, books.stem, budget)
