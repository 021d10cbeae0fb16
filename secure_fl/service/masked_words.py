"""What the parties of a masked batch make of its public facts, and openings for the querier alone.

Session and parameters of the sum follow from the batch's facts, which the querier signed, and from
the name of the batch that made the keys: each party derives them itself. A ring follows from them
too, and so a querier that tries names chooses it: what a ring withstands in the service is counted
among all contributors, see `sum_parameters`.
"""

from cryptography.exceptions import InvalidTag

import fhe
from fhe.audit import Audit
from fhe.envelope import pack, unpack
from fhe.errors import InputError as EnvelopeError
from secure_fl.crypto.keys import KEY, digest, verify
from secure_fl.errors import InputError, ProtocolError
from secure_fl.federation.secagg import Parameters
from secure_fl.federation.secagg.parameters import SESSION, share_threshold
from secure_fl.federation.secagg.setup import sealed_bytes
from secure_fl.heads.manifest import Manifest
from secure_fl.heads.masked import coding_of
from secure_fl.service.members import Member, sealing_key, signature_keys
from secure_fl.service.sealed_query import SUITE

KIND = "service opened shares"
ANSWER = "service masked answer"
MOST_BYTES = 2**25
"""Of one contributor's masked rows: what the evaluator takes, and bounds a batch by."""
SUMS = 16
"""Batches that one set-up of keys serves: its two exchanges are an eighth of one a batch."""
_ROOM = 16_384


def most_queries(manifest: Manifest) -> int:
    """Queries of a batch, known answers among them, whose rows are taken."""
    return max(1, MOST_BYTES // coding_of(manifest).bytes_a_query)


def message_bytes(manifest: Manifest, queries: int, step: int) -> int:
    """The most bytes that a contributor's message of a step has."""
    if step == 3:
        return queries * coding_of(manifest).bytes_a_query + _ROOM
    set_up = SUMS * KEY + len(manifest.clients) * sealed_bytes(SUMS) if step <= 2 else 0
    return _ROOM + 512 * len(manifest.clients) + set_up


def sum_parameters(
    manifest: Manifest,
    batch: str,
    quorum: int,
    agreed: bytes,
    degree: int = 0,
    *,
    setup: str = "",
    place: int = 0,
) -> Parameters:
    """Of a batch's sum.

    Args:
        manifest: of the federation.
        batch: its name, which is used once.
        quorum: contributors that must be left at every step.
        agreed: digest of what contributors were told.
        degree: contributors that each masks with, an even number; 0 for all others. On a ring of
            h = degree + 1 holders and s shares (two thirds of h), fewer than 2 s - h contributors,
            wherever they stand, open no row with evaluator and querier, and what they open is of at
            least s contributors (`Parameters.colluding`, `Parameters.fewest`).
        setup: the batch that made the keys of the sum; "" for itself.
        place: of the sum among those of the set-up.

    Raises:
        FederationError: a quorum that is not above half of the contributors, or above all; a
            degree that no ring has; or a place that no set-up has.
        InputError: a ring under the rule votes.
    """
    fingerprint = manifest.fingerprint.encode()
    named = digest(b"masked session", fingerprint, (setup or batch).encode())
    names, near = manifest.clients, neighbours(manifest, degree)
    shares = share_threshold(len(names), near, quorum)
    terms = named[:SESSION], 0, 0, names, quorum, near, shares
    common = digest(b"masked set-up", fingerprint)
    return Parameters(*terms, sums=SUMS, place=place, common=common, agreed=agreed)


def neighbours(manifest: Manifest, degree: int) -> int:
    """Contributors that each masks with.

    Args:
        manifest: of the federation.
        degree: that was asked for; 0 for all others.

    Raises:
        InputError: a ring under the rule votes, where parts of a sum have too little noise.
    """
    others = len(manifest.clients) - 1
    near = min(degree or others, others)
    if near < others and manifest.rule == "votes":
        raise InputError(
            "degree: of the rule masked; under votes all contributors mask with all others"
        )
    return near


def audit_parameters(manifest: Manifest) -> fhe.RuleParameters:
    """As known answers want them: they are the integers of the tournament, the same class wins."""
    return fhe.RuleParameters(
        contributors=len(manifest.clients), classes=len(manifest.classes), bits=manifest.bits
    )


def known_secret(audit: Audit | None) -> bytes:
    """What of known answers decides the rows, for `Told.known`."""
    return b"" if audit is None else audit.seed + audit.known.to_bytes(8, "little")


def refuse_known(manifest: Manifest) -> None:
    """Refuses known answers where noise may make a right one wrong.

    Raises:
        InputError: the federation's rule is votes.
    """
    if manifest.rule == "votes":
        raise InputError(
            "known answers: under the rule votes noise may make a right one wrong; ask without"
            " (--audit 0)"
        )


def seal_shares(
    member: Member, manifest: Manifest, batch: str, querier: str, message: bytes
) -> bytes:
    """A contributor's opened shares, signed, and sealed to who asked: the evaluator passes them.

    Args:
        member: the contributor.
        manifest: of the federation.
        batch: its name.
        querier: that asked.
        message: of the sum's last step.
    """
    context = _context(manifest, batch, member.name)
    sealed = SUITE.encrypt(message, sealing_key(manifest, querier), context)
    signature = member.identity.sign(context, sealed)
    return pack(KIND, {"signature": signature.hex()}, sealed)


def check_shares(data: bytes, manifest: Manifest, batch: str, client: str) -> bytes:
    """The sealed part of what `seal_shares` made, if `client` signed it.

    Raises:
        InputError: not that client's for that batch.
    """
    try:
        envelope = unpack(data, KIND, source=f"opened shares of {client!r}")
        signature = bytes.fromhex(envelope.header["signature"])
        context = _context(manifest, batch, client)
        verify(signature_keys(manifest), client, signature, context, envelope.payload)
    except (EnvelopeError, ProtocolError, KeyError, TypeError, ValueError):
        raise InputError(f"opened shares of {client!r}: not signed by it, or altered") from None
    return envelope.payload


def open_shares(data: bytes, querier: Member, manifest: Manifest, batch: str, client: str) -> bytes:
    """A contributor's message of the sum's last step.

    Raises:
        InputError: not that client's for that batch, or not sealed to the querier.
    """
    sealed = check_shares(data, manifest, batch, client)
    try:
        return SUITE.decrypt(sealed, querier.sealing, _context(manifest, batch, client))
    except InvalidTag:
        raise InputError(f"opened shares of {client!r}: not sealed to the querier") from None


def _context(manifest: Manifest, batch: str, client: str) -> bytes:
    parts = (manifest.fingerprint, batch, client)
    return digest(b"opened shares", *(part.encode() for part in parts))
