"""What the parties of one secure sum agree on before it starts."""

from functools import cached_property

from attrs import field, frozen

from secure_fl.crypto.keys import digest, names_digest
from secure_fl.errors import FederationError

PROTOCOL = 3
"""Version of the protocol. 1 bound neither what clients compute nor who advertised; 2 made keys and
shares for every sum anew."""
SESSION = 16
"""Bytes of a session's name: random, so that no two sessions share one."""
AGREED = 32
"""Bytes of the digest of what a client computes with."""
NOISE_PROTOCOL = 2
"""The version since which clients' parts of private sums have the noise that they have now."""
MOST_SUMS = 64
"""Sums that one set-up may serve: what a client keeps for each is small, and has an end."""


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
        setup: number of the set-up in its session: of the keys and shares that this sum uses.
        sums: that the set-up serves, 1 to `MOST_SUMS`. A set-up of one sum is bound to all of that
            sum, `agreed` included; one of several to what these have in common.
        place: of this sum among them, from 0.
        common: 32 bytes that stand for what all sums of the set-up are made with, whatever they
            are: the federation's description. As with `agreed`, each party makes them itself.
        agreed: 32 bytes that stand for all that a client computes its vector with, see
            `secure_fl.federation.agreement`. Every party makes them of what it was told itself:
            clients that were told different things have no key in common.

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
    setup: int = field(default=0, kw_only=True)
    sums: int = field(default=1, kw_only=True)
    place: int = field(default=0, kw_only=True)
    common: bytes = field(default=bytes(AGREED), repr=False, kw_only=True)
    agreed: bytes = field(repr=False, kw_only=True)

    def __attrs_post_init__(self) -> None:
        n = len(self.names)
        if n < 2:
            raise FederationError(
                f"secure aggregation: {n} clients take part in round {self.round}, at least 2 are"
                " needed: a sum of one is that one"
            )
        if len(self.session) != SESSION:
            raise FederationError(f"session: {len(self.session)} bytes, expected {SESSION}")
        if len(self.agreed) != AGREED:
            raise FederationError(f"agreed: {len(self.agreed)} bytes, expected {AGREED}")
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
        if not 1 <= self.sums <= MOST_SUMS:
            raise FederationError(f"sums: found {self.sums} of a set-up, expected 1 to {MOST_SUMS}")
        if not 0 <= self.place < self.sums:
            raise FederationError(
                f"place: found {self.place}, expected 0 to {self.sums - 1} of a set-up of"
                f" {self.sums} sums"
            )

    @property
    def holders(self) -> int:
        """Clients that hold shares of one client's secrets: its neighbours and itself."""
        return min(self.degree, len(self.names) - 1) + 1

    @property
    def colluding(self) -> int:
        """Clients that may tell the server all they know without opening another one's vector.

        Every holder of a secret opens one kind of share by one list of survivors. For both kinds
        `share_threshold` honest holders or colluding ones are needed twice, so of h holders
        2 share_threshold - h must collude. This is one less. On a ring it counts those among the
        neighbours of a single client.
        """
        return 2 * self.share_threshold - self.holders - 1

    @property
    def fewest(self) -> int:
        """Clients whose vectors are surely in whatever sum comes to light.

        On a ring a server that says who is lost may cut it into parts, and learn the sum of each:
        a part has at least one client with enough neighbours left to open its secrets.
        """
        return min(self.threshold, self.share_threshold)

    @cached_property
    def context(self) -> bytes:
        """32 bytes that stand for all of this: in masks, confirmations and messages of the sum."""
        numbers = (self.round, self.call, self.setup, self.place, *self._terms)
        return digest(
            b"securefl secure sum %d" % PROTOCOL,
            self.session,
            self.agreed,
            *map(_eight, numbers),
            names_digest(self.names),
        )

    @cached_property
    def setup_context(self) -> bytes:
        """32 bytes that stand for the set-up: in its keys, seals and messages."""
        if self.sums == 1:
            return self.context
        return digest(
            b"securefl set-up of secure sums %d" % PROTOCOL,
            self.session,
            self.common,
            *map(_eight, (self.setup, *self._terms)),
            names_digest(self.names),
        )

    @property
    def _terms(self) -> tuple[int, ...]:
        return self.threshold, self.degree, self.share_threshold, self.bits, self.sums


def _eight(number: int) -> bytes:
    return number.to_bytes(8, "little")


def default_threshold(n: int) -> int:
    """The least number above two thirds of n: a third of them may collude, see `colluding`."""
    return 2 * n // 3 + 1


def share_threshold(n: int, degree: int, threshold: int) -> int:
    """Shares that open a secret, for `degree` neighbours of n clients.

    The complete graph needs as many as clients must be left. Of a ring's neighbourhood, two thirds:
    a third of it may collude, and nearly a third be lost.
    """
    return threshold if degree >= n - 1 else default_threshold(degree + 1)


PRIVACY, DELIVERY = 2.0**-40, 2.0**-30
"""Chances that a ring of `ring_degree` fails a client, or fails to finish (Bell et al. 2020)."""


def ring_degree(n: int, lost: int, corrupt: int) -> int:
    """The least degree of a ring that is as good as everybody with everybody, up to tiny chances.

    The ring is random. Over it, except with a chance of 2^-40: no client has so many neighbours
    that pool what they know with the server as open both of its secrets by two lists of survivors
    (`Parameters.colluding`), and what is left of the ring after the lost and the corrupt clients
    hangs together (it does unless half of the degree of them stand in a row). Except with 2^-30:
    every secret that is needed can be opened.

    The chances are those of a server that does not choose the ring: it names the session and the
    clients, and could try many until one of the rings suits it.

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
        opens = n * hypergeom.sf(2 * needed - degree - 2, n - 1, corrupt, degree)
        parts = n * gone ** (degree // 2)
        # A lost client's own share is lost too: one neighbour more is needed.
        stuck = n * hypergeom.sf(degree - needed, n - 1, lost, degree)
        if opens + parts <= PRIVACY and stuck <= DELIVERY:
            return degree
    return n - 1
