"""The books of several clients as one."""

import secrets
from collections.abc import Sequence

from attrs import frozen

from dp.accounting import Composition
from dp.adjacency import Adjacency
from dp.events import Budget, Event
from dp.ledger import Ledger, book


@frozen
class JointLedger(Ledger):
    """The books of several clients as one: what reads all their records is booked in each of them.

    Totals are those of the client that spent most; events are those that every book holds.

    Attributes:
        path: of the first book.
        books: at least one.
    """

    books: tuple[Ledger, ...] = ()

    @classmethod
    def of(cls, books: Sequence[Ledger]) -> "JointLedger":
        """Joins at least one ledger."""
        return cls(books[0].path, books=tuple(books))

    @property
    def each(self) -> tuple[Ledger, ...]:
        """The files that an event is booked in: all books."""
        return self.books

    @property
    def budget(self) -> Budget | None:
        """The smallest of the books' budgets, if one has one."""
        budgets = [each.budget for each in self.books]
        return min((b for b in budgets if b is not None), key=lambda b: b.epsilon, default=None)

    @property
    def events(self) -> tuple[Event, ...]:
        """Events that are in every book, oldest first."""
        first, *rest = (each.events for each in self.books)
        everywhere = [frozenset(own) for own in rest]
        return tuple(event for event in first if all(event in own for own in everywhere))

    @property
    def units(self) -> tuple[Adjacency, ...]:
        """The units in which any of the data sets was spent."""
        return tuple(dict.fromkeys(unit for each in self.books for unit in each.units))

    def holds(self, digest: str) -> bool:
        """Whether one of the books contains the event with that digest."""
        return any(each.holds(digest) for each in self.books)

    def get_epsilon(self, delta: float, adjacency: Adjacency | None = None) -> Composition:
        """The largest that a book's events cost; see `Ledger.get_epsilon`."""
        found = [each.get_epsilon(delta, adjacency) for each in self.books]
        return max(found, key=lambda each: each.epsilon)

    def least_delta(self, adjacency: Adjacency) -> float:
        """One at which every book's events have a finite epsilon."""
        return max(each.least_delta(adjacency) for each in self.books)

    def running_total(self, delta: float, adjacency: Adjacency) -> str:
        """That of the book whose events cost most."""
        worst = max(self.books, key=lambda b: b.finite_epsilon(delta, adjacency).epsilon)
        return worst.running_total(delta, adjacency)

    def spend(self, event: Event) -> str:
        """Adds the event to every book, or to none, and returns the name that they know it by.

        Raises:
            BudgetError, InputError, LedgerError, StorageError: as `book`.
        """
        together = secrets.token_hex(16)
        book([(each, event) for each in self.books], together)
        return together

    def check(self, *planned: Event) -> None:
        """Raises what `spend` would, and adds nothing."""
        for each in self.books:
            each.check(*planned)
