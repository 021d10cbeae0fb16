"""What requests and answers are made of, as values of the wire encoding, and back.

Whole numbers are read by `operator.index`: a peer may send floats, of which `int` takes 2.7 for 2
and raises OverflowError for infinity.
"""

from collections.abc import Mapping
from operator import index
from typing import Any

import numpy as np

from secure_fl.errors import FederationError, ProtocolError
from secure_fl.federation.secagg.encoding import FixedPoint
from secure_fl.federation.secagg.parameters import SESSION, Parameters
from secure_fl.federation.trees import Structure


def as_array(data: bytes) -> Any:
    """Bytes as an array, since the encoding knows no bytes."""
    return np.frombuffer(data, np.uint8)


def parameters_of(described: Mapping[str, Any], agreed: bytes, common: bytes) -> Parameters:
    """The parameters that `describe_parameters` described.

    Args:
        described: by the server.
        agreed: what this party makes of all that it was told; see `Parameters`.
        common: what it makes of the federation's description.

    Raises:
        ProtocolError: a session without a name.
        KeyError, TypeError, ValueError: they describe none.
    """
    numbers = {key: index(described[key]) for key in ("round", "call", "threshold", "degree")}
    session = described["session"].tobytes()
    if len(session) != SESSION:
        raise ProtocolError("server: a session without a name")
    return Parameters(
        session=session,
        names=tuple(described["names"]),
        share_threshold=index(described["share_threshold"]),
        bits=index(described["bits"]),
        setup=index(described["setup"]),
        sums=index(described["sums"]),
        place=index(described["place"]),
        common=common,
        agreed=agreed,
        **numbers,
    )


def describe_parameters(parameters: Parameters) -> dict[str, Any]:
    """What `begin` tells a node of the sum."""
    return {
        "session": as_array(parameters.session),
        "round": parameters.round,
        "call": parameters.call,
        "names": list(parameters.names),
        "threshold": parameters.threshold,
        "degree": parameters.degree,
        "share_threshold": parameters.share_threshold,
        "bits": parameters.bits,
        "setup": parameters.setup,
        "sums": parameters.sums,
        "place": parameters.place,
    }


def encoding_of(coding: Mapping[str, Any]) -> FixedPoint:
    """How codes stand in the modulus, of what `describe` of a coding says.

    Raises:
        FederationError: an attribute out of range.
        KeyError, TypeError: it describes no coding.
    """
    return FixedPoint(coding["clip"], coding["clients"], coding["bits"], coding["outside"])


def describe(structure: Structure) -> list[Any]:
    """A structure as a value of the wire encoding."""
    children = [describe(child) for child in structure.children]
    return [structure.kind, list(structure.keys), children, structure.dtype, list(structure.shape)]


def structure_of(described: Any) -> Structure:
    """The structure that `describe` described.

    Raises:
        FederationError: it describes none.
    """
    try:
        kind, keys, children, dtype, shape = described
        parts = tuple(structure_of(child) for child in children)
        return Structure(kind, tuple(keys), parts, dtype, tuple(index(n) for n in shape))
    except (TypeError, ValueError) as error:
        raise FederationError("a node's answer describes no tree") from error
