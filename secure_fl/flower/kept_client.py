"""A protocol client that survives its process between two messages of one sum.

Flower runs every message in a process of its own. The client's secrets go from one to the next
through the node's own memory; they never leave its machine.
"""

from collections.abc import Mapping
from typing import Any

from secure_fl.crypto.keys import Member
from secure_fl.federation.secagg.client import ProtocolClient
from secure_fl.federation.secagg.parameters import Parameters
from secure_fl.federation.secagg.setup import SetUp, Shares


class KeptClient(ProtocolClient):
    """A `ProtocolClient` with its state in and out; steps stay once and in order.

    Its set-up, which may serve more sums, is kept beside it.
    """

    @property
    def survivors(self) -> tuple[str, ...]:
        """The list that it confirmed; empty before."""
        return self._survivors

    def dump(self) -> dict[str, Any]:
        """Its state but for the set-up, secrets included, as a value of the wire encoding."""
        return {
            "step": self._step,
            "shares": None if self._shares is None else self._shares.dump(),
            "survivors": list(self._survivors),
        }

    @classmethod
    def load(
        cls, member: Member, parameters: Parameters, setup: SetUp, state: Mapping[str, Any]
    ) -> "KeptClient":
        """The client that `dump` described.

        Args:
            member: of the same session, which does not know of this sum yet in this process.
            parameters: of the sum.
            setup: of the sum, from its own `dump`.
            state: from `dump`.
        """
        client = cls(member, parameters, setup=setup)
        client._step = state["step"]
        if state["shares"] is not None:
            client._shares = Shares.load(state["shares"])
        client._survivors = tuple(state["survivors"])
        return client
