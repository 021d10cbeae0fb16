"""Noise and books of an iterative training run, from the numbers that its parties agree on."""

from pathlib import Path
from typing import Protocol

from dp import Budget, Ledger, Record
from secure_fl.files import placed
from secure_fl.books import Shelf, open_books
from secure_fl.errors import InputError
from secure_fl.training.linear import RecordPrivacy
from secure_fl.federation import ClientPrivacy, calibrate
from secure_fl.federation.noises import NoiseName
from secure_fl.federation.privacy import UNIT
from secure_fl.training.recipe import FEDNL, Recipe


class Planned(Protocol):
    """What noise for a whole client needs to know of a recipe."""

    @property
    def method(self) -> str:
        """Name of the trainer."""

    def sums(self, classes: int) -> int | None:
        """Sums that a run asks for at most; None where that is not known beforehand."""


def client_privacy(
    recipe: Planned,
    classes: int,
    epsilon: float,
    delta: float,
    clip: float | None,
    books: Path | Shelf,
    noise: NoiseName = "gaussian",
) -> ClientPrivacy:
    """Noise that hides a whole client, as much as all sums of the recipe together need.

    Args:
        recipe: what is to be run.
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
    sums = recipe.sums(classes)
    if sums is None:
        without = "take fednl" if recipe.method in FEDNL else "switch it off (--no-safeguard)"
        raise InputError(
            f"client-epsilon: the line search of {recipe.method} takes as many sums as it needs,"
            f" and each costs privacy; {without}"
        )
    multiplier = calibrate(epsilon, delta, sums, noise)
    ledger = _opened(books, Budget(epsilon, delta, UNIT))
    return ClientPrivacy(clip, multiplier, sums, ledger, delta, noise=noise)


def record_privacy(
    recipe: Recipe, epsilon: float, delta: float, norm: float, books: Path | Shelf
) -> RecordPrivacy:
    """What private-ridge promises every record.

    Args:
        recipe: of private-ridge, with masked sums.
        epsilon: above 0, per record replaced.
        delta: in (0, 1).
        norm: public L2 norm that records are clipped to.
        books: the federation's ledger, made with this budget where there is none; or those of its
            clients, of which every one gets the events.

    Raises:
        InputError: sums are not masked.
        dp.LedgerError: the ledger was edited.
    """
    if not recipe.secure:
        raise InputError(
            "private-ridge: needs masked sums (--aggregate secure), the server must see sums alone"
        )
    return record_promise(epsilon, delta, norm, books)


def record_promise(epsilon: float, delta: float, norm: float, books: Path | Shelf) -> RecordPrivacy:
    """The same, of whichever method keeps it; arguments and errors as `record_privacy`."""
    ledger = _opened(books, Budget(epsilon, delta, Record(norm)))
    return RecordPrivacy(epsilon, delta, norm, ledger)


def _opened(books: Path | Shelf, budget: Budget) -> Ledger:
    if isinstance(books, Shelf):
        return books.joint(tuple(books.records))
    with placed(books):
        exists = books.exists()
    return Ledger.open(books) if exists else open_books(books, books.stem, budget)
