"""Secure aggregation: clients and server as state machines that exchange bytes."""

from secure_fl.crypto.keys import Directory, Identity, Member
from secure_fl.errors import ProtocolError
from secure_fl.federation.secagg.client import ProtocolClient
from secure_fl.federation.secagg.encoding import FixedPoint
from secure_fl.federation.secagg.parameters import Parameters
from secure_fl.federation.secagg.server import ProtocolServer

__all__ = [
    "Directory",
    "FixedPoint",
    "Identity",
    "Member",
    "Parameters",
    "ProtocolClient",
    "ProtocolError",
    "ProtocolServer",
]
