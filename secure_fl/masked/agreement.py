"""What the contributors of one masked sum must have been told alike.

A querier that has one contributor fold the real query, and the others one that lies far from all
their records, would read that contributor's code and class off the sum. So each contributor makes
a digest of what it was told itself, and the digest is part of the keys, seals and confirmations of
the sum (`Parameters.agreed`): contributors that were told different things have no sum. The cohort,
the threshold and the session stand in `Parameters` anyway.
"""

from typing import Any

from attrs import field, frozen
from numpy.typing import NDArray

from secure_fl.crypto.identities import QUERIER
from secure_fl.federation import wire
from secure_fl.masked.votes import Coding

VERSION = 1
"""Of how codes become rows and of what is agreed on."""


@frozen
class Told:
    """What a contributor was told, by itself.

    Attributes:
        federation: fingerprint of its manifest: classes, codes, range, measure and members.
        batch: name of the query batch.
        queries: the scaled queries that it folds, bit for bit, shape (queries, features).
        salt: 32 random bytes that contributors and querier alone know, where others see the digest:
            without them it would tell whoever guesses the queries.
        known: secret of the known answers that are mixed in, or nothing.
        querier: that asks, and to whom the shares that open the sum are sealed.
    """

    federation: str
    batch: str
    queries: NDArray[Any]
    salt: bytes = field(default=b"", repr=False)
    known: bytes = field(default=b"", repr=False)
    querier: str = QUERIER

    def agreed(self, coding: Coding, first: int, last: int) -> bytes:
        """32 bytes that stand for all this, of the sum over queries `first` to `last` - 1."""
        # Said as before there were several, where a querier is called so.
        asks = {} if self.querier == QUERIER else {"querier": self.querier}
        return wire.fingerprint(
            {
                **asks,
                "rule": coding.rule,
                "version": VERSION,
                "federation": self.federation,
                "batch": self.batch,
                "queries": self.queries,
                "salt": self.salt.hex(),
                "known": self.known.hex(),
                "coding": coding.facts,
                "part": (first, last),
            }
        )
