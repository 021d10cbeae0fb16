"""Shamir's secret sharing over GF(2^128), by PyCryptodome.

A secret has 16 bytes: the field's size, and the strength of the X25519 keys that are derived from
it. A share is the value of the polynomial at the holder's number, 16 bytes too.
"""

from collections.abc import Mapping

from secure_fl.federation.secagg.errors import ProtocolError

SECRET = 16
"""Bytes of a secret and of a share."""


def split(secret: bytes, threshold: int, holders: int) -> list[bytes]:
    """Shares for holders 1 to `holders`; any `threshold` of them give the secret back.

    Fewer say nothing about it. The polynomial's other coefficients come from the operating system.
    """
    from Crypto.Protocol.SecretSharing import Shamir

    return [share for _, share in Shamir.split(threshold, holders, secret, ssss=False)]


def combine(shares: Mapping[int, bytes], threshold: int) -> bytes:
    """The secret of `threshold` shares by holder number; more are left aside.

    Wrong shares give a wrong secret: compare it with what is known of the right one.

    Raises:
        ProtocolError: too few shares.
    """
    from Crypto.Protocol.SecretSharing import Shamir

    if len(shares) < threshold:
        raise ProtocolError(f"{len(shares)} shares of a secret, {threshold} are needed")
    chosen = sorted(shares.items())[:threshold]
    return bytes(Shamir.combine(chosen, ssss=False))
