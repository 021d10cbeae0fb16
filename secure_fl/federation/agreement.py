"""What all clients of a masked sum must have been told alike, as 32 bytes.

A server that asks one client for its true update and the others for something negligible reads that
client's update off the sum; one that has the others' noise drawn on a coarser grid, or rounded
away, takes the protection that the client counts on. So everything that a client computes with is
part of the sum's context (`Parameters.agreed`): the keys of clients that were told different things
have nothing in common, their shares do not open, and nothing is unmasked.

Each party makes these bytes by itself, of what it was told and computes with; nobody takes them
from another. Cohort, thresholds, session, round and call are `Parameters`' own.
"""

from collections.abc import Mapping
from typing import Any

from secure_fl.federation import wire
from secure_fl.federation.executor import Call
from secure_fl.federation.steps import step_name

CALL = ("step", "broadcast", "key", "epoch")
"""What a client is told of a step, by name."""


def describe_call(call: Call, epoch: str = "") -> dict[str, Any]:
    """What a client is told of a step.

    Args:
        call: the step, its arguments, and what experiment randomness is drawn from.
        epoch: tells a server that repeats a round from one that goes on.
    """
    return {
        "epoch": epoch,
        "step": step_name(call.step),
        "broadcast": call.broadcast,
        "key": (call.seed, call.round, call.number),
    }


def agreement(told: Mapping[str, Any], coding: Mapping[str, Any], federation: Any = None) -> bytes:
    """The digest of what a client computes its vector with, 32 bytes.

    Args:
        told: of the step, see `describe_call`; what else it holds does not count.
        coding: how values become codes: clip, grid, modulus, noise, weights.
        federation: its description (classes, recipe, scale, ...), a value of the wire encoding.

    Raises:
        FederationError: something of it cannot be encoded.
        KeyError: something of the step is missing.
    """
    step = {name: told[name] for name in CALL}
    return wire.fingerprint({"call": step, "coding": dict(coding), "federation": federation})
