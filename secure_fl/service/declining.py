"""Why a contributor does not answer a batch: its own words, for the querier that asked alone.

Signed by the contributor and sealed to that querier, so that the evaluator, which passes them on,
can neither read them (they may tell of the queries) nor make them up. Sealing is that of
`secure_fl.service.sealed_query`.
"""

from cryptography.exceptions import InvalidTag

from fhe.envelope import pack, unpack
from fhe.errors import InputError as EnvelopeError
from secure_fl.crypto.keys import digest, verify
from secure_fl.errors import FormatError, InputError, ProtocolError
from secure_fl.heads.manifest import Manifest
from secure_fl.service.members import Member, sealing_key, signature_keys
from secure_fl.service.sealed_query import SUITE

KIND = "service refusal"
LONGEST = 500
"""Characters of a reason."""
MOST_BYTES = 8192
"""Of a refusal, as it is sent."""


def seal_reason(member: Member, manifest: Manifest, batch: str, querier: str, reason: str) -> bytes:
    """A contributor's refusal of a batch.

    Args:
        member: the contributor.
        manifest: of the federation.
        batch: its name.
        querier: that asked.
        reason: for it; cut after 500 characters.
    """
    context = _context(manifest, batch, member.name)
    plain = reason[:LONGEST].encode()
    sealed = SUITE.encrypt(plain, sealing_key(manifest, querier), context)
    signature = member.identity.sign(context, sealed)
    return pack(KIND, {"signature": signature.hex()}, sealed)


def open_reason(data: bytes, querier: Member, manifest: Manifest, batch: str, client: str) -> str:
    """The reason that `client` gave, on one line of printable characters.

    Raises:
        InputError: not that client's refusal of that batch.
    """
    try:
        envelope = unpack(data, KIND, source=f"refusal of {client!r}")
        signature = bytes.fromhex(envelope.header["signature"])
    except (EnvelopeError, KeyError, TypeError, ValueError):
        raise FormatError(f"refusal of {client!r}: cannot be read") from None
    context = _context(manifest, batch, client)
    try:
        verify(signature_keys(manifest), client, signature, context, envelope.payload)
        plain = SUITE.decrypt(envelope.payload, querier.sealing, context)
    except (ProtocolError, InvalidTag):
        raise InputError(f"refusal of {client!r}: not signed by it, or altered") from None
    text = plain.decode(errors="replace")[:LONGEST]
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _context(manifest: Manifest, batch: str, client: str) -> bytes:
    parts = (manifest.fingerprint, batch, client)
    return digest(b"refusal", *(part.encode() for part in parts))
