"""What a contributor's answers by votes may tell of its records, and the book that says so.

Every batch is booked before its first message leaves, so that a kill spends what may have been
told. The unit is one record added or removed; since a client has one vote a query, the same epsilon
holds for all of its records exchanged at once.
"""

import logging
from pathlib import Path

from attrs import frozen

import dp
from secure_fl.errors import InputError
from secure_fl.masked import VoteCoding
from secure_fl.privacy.ledgers import open_books

log = logging.getLogger("securefl.service")

UNIT = dp.Membership("record")
FILE = "answers.jsonl"
"""In a contributor's state folder, where no other book is named."""


class AnswersSpentError(InputError):
    """The budget does not allow a batch; nothing was booked."""


@frozen
class AnswersBook:
    """The books of one contributor's answers.

    Attributes:
        ledger: whose budget binds them.
    """

    ledger: dp.Ledger

    @classmethod
    def open(cls, path: Path, client: str, epsilon: float | None, delta: float) -> "AnswersBook":
        """The book at `path`, made where there is none.

        Args:
            path: of the ledger.
            client: whose answers it holds, for a new one.
            epsilon: that all answers may cost together per record, above 0; None where the ledger
                is there and has a budget.
            delta: of it, in (0, 1).

        Raises:
            InputError: no budget, another one than the ledger's, or one in another unit.
            dp.LedgerError: the ledger was edited.
        """
        budget = None if epsilon is None else dp.Budget(epsilon, delta, UNIT)
        if budget is None and not path.exists():
            raise InputError(
                f"{path}: no budget for answers; the rule votes needs one (--answers-epsilon)"
            )
        ledger = open_books(path, f"answers of {client}", budget)
        kept = ledger.budget
        if kept is None or kept.adjacency != UNIT:
            found = "none" if kept is None else f"per {kept.adjacency.unit}"
            raise InputError(
                f"{path}: its budget is {found}, answers by votes need one per {UNIT.unit};"
                " name another book (--answers-ledger)"
            )
        return cls(ledger)

    def spend(self, coding: VoteCoding, batch: str, queries: int) -> None:
        """Books a batch.

        Args:
            coding: of its sum, which says how much noise is surely in it.
            batch: its name.
            queries: of it, at least 1.

        Raises:
            AnswersSpentError: the budget does not allow it; nothing was booked.
            dp.LedgerError, dp.StorageError: the book cannot be read or written.
        """
        noise = dp.Gaussian(coding.multiplier)
        what = f"{queries} answers of batch {batch}"
        try:
            self.ledger.spend(dp.Event(what, UNIT, gaussian=noise, count=queries))
        except dp.BudgetError as error:
            log.warning("%s", error)
            raise AnswersSpentError(
                f"{queries} queries cost more than is left of this client's budget for answers"
            ) from None
