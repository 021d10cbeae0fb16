"""What must be there before a node can speak with a SuperLink: the right flwr, and a key."""

from pathlib import Path
from typing import Any

from secure_fl.errors import InputError, MissingExtraError

VERSIONS = "1.42."
"""Of flwr, whose private names the modules of this folder use."""


def check_flwr() -> None:
    """Raises MissingExtraError unless the flwr that this module knows is installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        found = version("flwr")
    except PackageNotFoundError:
        raise MissingExtraError("flwr: not installed; pip install securefl[flower]") from None
    if not found.startswith(VERSIONS):
        raise MissingExtraError(
            f"flwr: found {found}, this securefl speaks with a SuperLink as {VERSIONS}* does;"
            " pip install securefl[flower], or run Flower's own flower-supernode"
        )


def private_key(key: bytes, source: Path) -> Any:
    """The key of bytes that `ssh-keygen -t ecdsa` wrote.

    Raises:
        InputError: they hold none.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key

    try:
        found = load_ssh_private_key(key, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        found = None
    if not isinstance(found, ec.EllipticCurvePrivateKey):
        raise InputError(
            f"{source}: no private key of a node; securefl identity new makes one, as"
            ' `ssh-keygen -t ecdsa -b 384 -N "" -f node` does'
        )
    return found
