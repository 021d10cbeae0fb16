"""Secure aggregation as an option of the handle."""

import os
from collections.abc import Mapping, Sequence
from typing import Literal

from attrs import frozen

from secure_fl.crypto.keys import Entropy, Identity, Member
from secure_fl.federation.participation import Stage
from secure_fl.federation.secagg.client import ProtocolClient
from secure_fl.federation.secagg.encoding import Words
from secure_fl.federation.secagg.local import LocalRun, Observer, SecureTotal
from secure_fl.federation.secagg.parameters import (
    AGREED,
    Parameters,
    share_threshold,
)
from secure_fl.federation.secagg.server import ProtocolServer


@frozen
class SecureAggregation:
    """Sums by the protocol of Bonawitz et al. 2017, so that the server sees no single update.

    Attributes:
        clip: largest magnitude of one entry of an update, in its own units. The default leaves
            2^-32 between neighbouring values of up to 2,047 clients at 64 bits, so that it needs
            no tuning; at 32 bits choose it close to the largest entry.
        bits: of the modulus: 64, or 32 for half the traffic.
        outside: a value beyond the clip is moved to it and counted ("clip") or raises ("error").
        degree: neighbours that a client shares masks and secrets with; all others by default.
            For many clients a ring is cheaper (Bell et al. 2020): an even number, see
            `ring_degree`. What holds against a server that cheats together with clients then
            holds for each neighbourhood by itself: fewer than 2 s - (degree + 1) of a client's
            neighbours may collude, where s = floor(2 (degree + 1) / 3) + 1 shares open a secret;
            the server, which names session and clients, must not have chosen the ring; and a sum
            may come to light in parts of at least s clients. Without a ring fewer than 2 t - n of
            the n clients may collude, where t is the federation's threshold.
        max_weight: public bound on the clients' weights in a mean; by default the largest of them.
        observe: sees every message of the protocol, for tests and transcripts.
    """

    clip: float = 2.0**20
    bits: int = 64
    outside: Literal["clip", "error"] = "clip"
    degree: int | None = None
    max_weight: float | None = None
    observe: Observer | None = None


class SecureSum:
    """Runs the protocol for the clients of a federation.

    Args:
        names: of all clients.
        options: of the handle.
        session: 16 random bytes.
        entropy: the operating system's randomness in production.
    """

    def __init__(
        self,
        names: Sequence[str],
        options: SecureAggregation,
        session: bytes,
        entropy: Entropy = os.urandom,
    ) -> None:
        self._options = options
        self.session = session
        self._entropy = entropy
        identities = {name: Identity(entropy) for name in names}
        directory = {name: each.public for name, each in identities.items()}
        self._members = {
            name: Member(name, each, directory, session, entropy)
            for name, each in identities.items()
        }

    def parameters(
        self,
        names: tuple[str, ...],
        round_number: int,
        call: int,
        threshold: int,
        agreed: bytes,
        *,
        setup: int = 0,
        sums: int = 1,
        place: int = 0,
        common: bytes = bytes(AGREED),
    ) -> Parameters:
        """Of one sum over these clients; from `agreed` on as `Parameters`'.

        Raises:
            FederationError: fewer than 2 clients, or a threshold not above half of them.
        """
        n = len(names)
        degree = n - 1 if self._options.degree is None else self._options.degree
        shares = share_threshold(n, degree, threshold)
        return Parameters(
            self.session,
            round_number,
            call,
            names,
            threshold,
            degree,
            shares,
            self._options.bits,
            setup=setup,
            sums=sums,
            place=place,
            common=common,
            agreed=agreed,
        )

    def sum(
        self,
        parameters: Parameters,
        vectors: Mapping[str, Words],
        lost: Mapping[str, Stage],
        structure: str,
    ) -> SecureTotal:
        """The sum of the vectors of those who do not drop out.

        Raises:
            QuorumError: fewer clients left than the threshold; nothing is revealed.
        """
        clients = {
            name: ProtocolClient(self._members[name], parameters, self._entropy)
            for name in parameters.names
        }
        server = ProtocolServer(parameters)
        run = LocalRun(server, clients, vectors, lost, structure, self._options.observe)
        return run.run()
