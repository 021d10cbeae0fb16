"""Noise and books of an iterative training run, from the numbers that its parties agree on."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

from dp import Budget, Ledger, Record
from secure_fl.errors import InputError
from secure_fl.federation import ClientPrivacy, calibrate
from secure_fl.federation.noises import NoiseName
from secure_fl.federation.privacy import UNIT
from secure_fl.files import placed
from secure_fl.privacy.ledgers import Shelf, open_books


class Planned(Protocol):
    """What noise for a whole client needs to know of a method."""

    method: ClassVar[str]
    """Name of the trainer."""

    @property
    def bounded(self) -> str:
        """What to do so that the number of sums is known beforehand."""

    def sums(self, classes: int) -> int | None:
        """Sums that a run asks for at most; None where that is not known beforehand."""


@dataclass(frozen=True)
class RecordPrivacy:
    """What the method private-ridge promises; see `secure_fl.trainers.linear.private_ridge`.

    Attributes:
        epsilon: > 0, per record replaced, its label included.
        delta: in (0, 1).
        norm: public L2 norm that records are clipped to, > 0, after scaling and random features.
        ledger: the books.
    """

    epsilon: float
    delta: float
    norm: float
    ledger: Ledger

    def text(self) -> str:
        """What the books say, in one line with the unit."""
        unit = Record(self.norm)
        total = self.ledger.finite_epsilon(self.delta, unit)
        return (
            f"epsilon {total.epsilon:.4g} at delta {total.delta:g} per {unit.unit} ({total.rule})"
        )


def client_privacy(
    settings: Planned,
    classes: int,
    epsilon: float,
    delta: float,
    clip: float | None,
    books: Path | Shelf,
    noise: NoiseName = "gaussian",
) -> ClientPrivacy:
    """Noise that hides a whole client, as much as all sums of the method together need.

    Args:
        settings: what is to be run.
        classes: C.
        epsilon: above 0, per client's contribution.
        delta: in (0, 1).
        clip: public L2 norm of a client's update.
        books: the federation's ledger, made with this budget where there is none; or those of its
            clients, of which every one gets the events.
        noise: its kind; see `ClientPrivacy`.

    Raises:
        InputError: no clip, or a method whose number of sums is not known beforehand.
        dp.LedgerError: the ledger was edited.
    """
    if clip is None:
        raise InputError("client-epsilon: needs --clip, a public L2 norm of a client's update")
    sums = settings.sums(classes)
    if sums is None:
        raise InputError(
            f"client-epsilon: the line search of {settings.method} takes as many sums as it needs,"
            f" and each costs privacy; {settings.bounded}"
        )
    multiplier = calibrate(epsilon, delta, sums, noise)
    ledger = _opened(books, Budget(epsilon, delta, UNIT))
    return ClientPrivacy(clip, multiplier, sums, ledger, delta, noise=noise)


def record_promise(epsilon: float, delta: float, norm: float, books: Path | Shelf) -> RecordPrivacy:
    """What a run promises every record.

    Args:
        epsilon: above 0, per record replaced.
        delta: in (0, 1).
        norm: public L2 norm that records are clipped to.
        books: the federation's ledger, made with this budget where there is none; or those of its
            clients, of which every one gets the events.

    Raises:
        dp.LedgerError: the ledger was edited.
    """

    ledger = _opened(books, Budget(epsilon, delta, Record(norm)))
    return RecordPrivacy(epsilon, delta, norm, ledger)


def _opened(books: Path | Shelf, budget: Budget) -> Ledger:
    if isinstance(books, Shelf):
        return books.joint(tuple(books.records))
    with placed(books):
        exists = books.exists()
    return Ledger.open(books) if exists else open_books(books, books.stem, budget)
