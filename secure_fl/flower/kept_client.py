"""A protocol client that survives its process between two messages of one sum.

Flower runs every message in a process of its own. The client's secrets go from one to the next
through the node's own memory; they never leave its machine.
"""

from collections.abc import Mapping
from typing import Any

from secure_fl.crypto.keys import KeyPair, Member, PairKeys
from secure_fl.federation.secagg.client import ProtocolClient
from secure_fl.federation.secagg.parameters import Parameters
from secure_fl.flower.descriptions import as_array

_PAIR = ("seal_out", "seal_in", "confirm_out", "confirm_in")


class KeptClient(ProtocolClient):
    """A `ProtocolClient` with its state in and out; steps stay once and in order."""

    @property
    def survivors(self) -> tuple[str, ...]:
        """The list that it confirmed; empty before."""
        return self._survivors

    def dump(self) -> dict[str, Any]:
        """All of its state, secrets included, as a value of the wire encoding."""
        return {
            "step": self._step,
            "self_seed": as_array(self._self_seed),
            "mask_seed": as_array(self._mask_seed),
            "holders": dict(self._holders),
            "near": list(self._near),
            "listed": as_array(self._listed),
            "mask_keys": {name: as_array(key) for name, key in self._mask_keys.items()},
            "pairs": {
                name: [as_array(getattr(keys, field)) for field in _PAIR]
                for name, keys in self._pairs.items()
            },
            "own_share": as_array(self._own_share),
            "held": {
                name: None if pair is None else [as_array(each) for each in pair]
                for name, pair in self._held.items()
            },
            "survivors": list(self._survivors),
        }

    @classmethod
    def load(cls, member: Member, parameters: Parameters, state: Mapping[str, Any]) -> "KeptClient":
        """The client that `dump` described.

        Args:
            member: of the same session, which does not know of this sum yet in this process.
            parameters: of the sum.
            state: from `dump`.
        """
        client = cls(member, parameters)
        client._step = state["step"]
        client._self_seed = state["self_seed"].tobytes()
        client._mask_seed = state["mask_seed"].tobytes()
        client._mask_key = KeyPair.from_seed(client._mask_seed, parameters.context)
        client._holders = dict(state["holders"])
        client._listed = state["listed"].tobytes()
        client._near = tuple(state["near"])
        client._mask_keys = {name: key.tobytes() for name, key in state["mask_keys"].items()}
        client._pairs = {
            name: PairKeys(*(each.tobytes() for each in keys))
            for name, keys in state["pairs"].items()
        }
        client._own_share = state["own_share"].tobytes()
        client._held = {
            name: None if pair is None else (pair[0].tobytes(), pair[1].tobytes())
            for name, pair in state["held"].items()
        }
        client._survivors = tuple(state["survivors"])
        return client
