"""What the parties of one secure sum agree on before it starts."""

import math
from functools import cached_property

from attrs import field, frozen

from secure_fl.crypto.keys import digest, names_digest
from secure_fl.errors import FederationError

SESSION = 16
"""Bytes of a session's name: random, so that no two sessions share one."""


@frozen(slots=False)
class Parameters:
    """One sum: which it is, who was asked, and how many must be left.

    Attributes:
        session: 16 random bytes that name the run.
        round: of the run, from 0.
        call: of the round, from 0.
        names: clients that were asked, in their fixed order, at least 2.
        threshold: clients that must be left at every step; above half of the names.
        degree: neighbours of a client; even, or at least len(names) - 1 for everybody.
        share_threshold: shares that open a secret; above half of the degree + 1 holders.
        bits: of the modulus, 32 or 64.

    Raises:
        FederationError: an attribute out of range.
    """

    session: bytes = field(repr=False)
    round: int
    call: int
    names: tuple[str, ...]
    threshold: int
    degree: int
    share_threshold: int
    bits: int = 64

    def __attrs_post_init__(self) -> None:
        n = len(self.names)
        if n < 2:
            raise FederationError(
                f"secure aggregation: {n} clients take part in round {self.round}, at least 2 are"
                " needed: a sum of one is that one"
            )
        if len(self.session) != SESSION:
            raise FederationError(f"session: {len(self.session)} bytes, expected {SESSION}")
        if not n / 2 < self.threshold <= n:
            raise FederationError(
                f"threshold: found {self.threshold}, expected above half of the {n} clients of"
                f" round {self.round} and at most all of them"
            )
        if self.degree < n - 1 and (self.degree < 2 or self.degree % 2):
            raise FederationError(
                f"degree: found {self.degree}, expected an even number of at least 2"
            )
        if not self.holders / 2 < self.share_threshold <= self.holders:
            raise FederationError(
                f"share threshold: found {self.share_threshold}, expected above half of the"
                f" {self.holders} holders of a secret and at most all of them"
            )

    @property
    def holders(self) -> int:
        """Clients that hold shares of one client's secrets: its neighbours and itself."""
        return min(self.degree, len(self.names) - 1) + 1

    @cached_property
    def context(self) -> bytes:
        """32 bytes that stand for all of this; in every signature, key and message of the sum."""
        numbers = (
            self.round,
            self.call,
            self.threshold,
            self.degree,
            self.share_threshold,
            self.bits,
        )
        return digest(
            b"securefl secure sum 1",
            self.session,
            *(number.to_bytes(8, "little") for number in numbers),
            names_digest(self.names),
        )


def default_threshold(n: int) -> int:
    """Two thirds of n clients, rounded up, and above half of them."""
    return max(math.ceil(2 * n / 3), n // 2 + 1)


def share_threshold(n: int, degree: int, threshold: int) -> int:
    """Shares that open a secret, for `degree` neighbours of n clients.

    The complete graph needs as many as clients must be left. A ring's neighbourhood is a sample of
    the clients, and may lose more than its part: its threshold stands just above half.
    """
    return threshold if degree >= n - 1 else (degree + 1) // 2 + 1


PRIVACY, DELIVERY = 2.0**-40, 2.0**-30
"""Chances that a ring of `ring_degree` fails a client, or fails to finish (Bell et al. 2020)."""


def ring_degree(n: int, lost: int, corrupt: int) -> int:
    """The least degree of a ring that is as good as everybody with everybody, up to tiny chances.

    The ring is random. Over it, except with a chance of 2^-40: no client has so many neighbours
    that pool their shares with the server as open a secret, and what is left of the ring after the
    lost and the corrupt clients hangs together (it does unless half of the degree of them stand in
    a row). Except with 2^-30: every secret that is needed can be opened.

    Args:
        n: clients of a round, at least 2.
        lost: that may drop out, 0 to n.
        corrupt: that may pool what they know with the server, 0 to n.

    Returns:
        An even number below n - 1, or n - 1 where no ring is good enough.
    """
    from scipy.stats import hypergeom

    gone = min(1.0, (lost + corrupt) / n)
    for degree in range(2, n - 1, 2):
        needed = share_threshold(n, degree, n)
        opens = n * hypergeom.sf(needed - 1, n - 1, corrupt, degree)
        parts = n * gone ** (degree // 2)
        # A lost client's own share is lost too: one neighbour more is needed.
        stuck = n * hypergeom.sf(degree - needed, n - 1, lost, degree)
        if opens + parts <= PRIVACY and stuck <= DELIVERY:
            return degree
    return n - 1
