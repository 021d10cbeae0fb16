"""A query batch sealed to one contributor, signed by the querier that asks.

It passes the evaluator, which reads the public facts and not the queries. Sealing is HPKE in base
mode (RFC 9180: DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, ChaCha20-Poly1305), bound to all facts;
the querier's signature over facts and ciphertext tells the contributor who asks.
"""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import attrs
import numpy as np
from attrs import frozen
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hpke
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from fhe.audit import Audit
from fhe.envelope import pack, read_in_parts, unpack
from secure_fl.crypto.identities import QUERIER
from secure_fl.crypto.keys import digest, digest_in_pieces, verify_digest
from secure_fl.errors import FormatError, InputError, ProtocolError
from secure_fl.heads.manifest import Manifest
from secure_fl.service.members import Member, sealing_key, signature_keys

BATCH = re.compile("[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")
"""Names of batches."""
KIND = "service sealed query"
_PIECE = 1 << 20
_ROOM = 4096
"""Bytes beside the queries."""
SUITE = hpke.Suite(hpke.KEM.X25519, hpke.KDF.HKDF_SHA256, hpke.AEAD.CHACHA20_POLY1305)


@frozen(kw_only=True)
class Facts:
    """What everybody may know of a batch.

    Attributes:
        federation: fingerprint of the manifest.
        batch: its name.
        contributor: the client that it is sealed to.
        public: fingerprint of the public key to encrypt under; of the rule masked, the digest of
            what contributors are told, in hexadecimal digits (`secure_fl.masked.Told`).
        queries: in all, known answers among them; at least 1.
        quorum: contributors that an answer needs at least.
        expires: seconds since 1970, after which it is not to be answered.
        degree: of the rule masked, contributors that each masks with; 0 for all others.
        querier: that asks, one of the federation's.
    """

    federation: str
    batch: str
    contributor: str
    public: str
    queries: int
    quorum: int
    expires: float
    degree: int = 0
    querier: str = QUERIER

    def context(self) -> bytes:
        """The facts as bytes that sealing and signature are bound to."""
        return digest(b"sealed query", *(str(value).encode() for value in self.said().values()))

    def said(self) -> dict[str, Any]:
        """The facts by name: as before there were several queriers, and before there were rings,
        where one is called so or all mask with all."""
        found = attrs.asdict(self)
        if self.querier == QUERIER:
            del found["querier"]
            # With a querier the degree is always said: no number stands where a name could.
            if not self.degree:
                del found["degree"]
        return found


@frozen
class SealedQuery:
    """A batch on its way to one contributor.

    Attributes:
        facts: public.
        sealed: HPKE ciphertext.
        signature: of the querier, over facts and ciphertext.
    """

    facts: Facts
    sealed: bytes = attrs.field(repr=False)
    signature: bytes = attrs.field(repr=False)

    def to_bytes(self) -> bytes:
        """The batch as an envelope."""
        header = {**self.facts.said(), "signature": self.signature.hex()}
        return pack(KIND, header, self.sealed)

    @classmethod
    def from_bytes(cls, data: bytes, manifest: Manifest) -> Self:
        """Reads what `to_bytes` made, and checks the signature of the querier that it names.

        Raises:
            FormatError: not such an envelope.
            InputError: of another federation, or not signed by that one of its queriers.
        """
        envelope = unpack(data, KIND, source="sealed query")
        facts, signature = _read_facts(envelope.header, manifest)
        found = cls(facts, envelope.payload, signature)
        _check_signature(facts, manifest, signature, digest(facts.context(), found.sealed))
        return found


def facts_of_file(path: Path, manifest: Manifest) -> Facts:
    """The facts of a sealed query in a file, which is read in pieces; checks as `from_bytes`.

    Raises:
        FormatError, InputError: as `SealedQuery.from_bytes`.
    """
    _, header, sealed = read_in_parts(path, KIND)
    facts, signature = _read_facts(header, manifest)
    pieces = (sealed.read(start, _PIECE) for start in range(0, sealed.size, _PIECE))
    over = digest_in_pieces([facts.context()], sealed.size, pieces)
    _check_signature(facts, manifest, signature, over)
    return facts


def _read_facts(found: Mapping[str, Any], manifest: Manifest) -> tuple[Facts, bytes]:
    """Facts and signature of a header; the signature is not checked."""
    header = {"degree": 0, "querier": QUERIER, **found}
    kinds = {field.name: field.type for field in attrs.fields(Facts)} | {"signature": str}
    if {name: type(value) for name, value in header.items()} != kinds:
        raise FormatError("sealed query: header members are missing, unknown or mistyped")
    try:
        signature = bytes.fromhex(header.pop("signature"))
    except ValueError:
        raise FormatError("sealed query: its signature is not hexadecimal") from None
    facts = Facts(**header)
    if not math.isfinite(facts.expires) or facts.queries < 1 or facts.degree < 0:
        raise FormatError("sealed query: a fact is out of range")
    if facts.federation != manifest.fingerprint:
        raise InputError("sealed query: of another federation; compare federation.json")
    return facts, signature


def _check_signature(facts: Facts, manifest: Manifest, signature: bytes, over: bytes) -> None:
    """Refuses what the querier that the facts name did not sign."""
    name, keys = facts.querier, signature_keys(manifest)
    asking = {each: keys[each] for each in manifest.queriers}
    try:
        verify_digest(asking, name, signature, over)
    except ProtocolError:
        raise InputError(
            f"sealed query: not signed by the federation's querier {name[:80]!r}; it has"
            f" {', '.join(asking)[:200]}"
        ) from None


def sealed_bytes(queries: int, manifest: Manifest) -> int:
    """The most bytes that a sealed query of so many queries has."""
    return 4 * queries * manifest.n_features + _ROOM


def seal_query(
    facts: Facts,
    features: NDArray[np.float32],
    audit: Audit | None,
    querier: Member,
    manifest: Manifest,
    salt: bytes = b"",
) -> SealedQuery:
    """Seals queries to the contributor that the facts name.

    Args:
        facts: of the batch.
        features: scaled queries, shape (queries, n_features).
        audit: secret of the known answers, for the contributor; None without.
        querier: signs, and is the one that the facts name.
        manifest: of the federation.
        salt: of the rule masked, see `secure_fl.masked.Told`; else nothing.

    Raises:
        InputError: no such member.
    """
    tensors: dict[str, NDArray[Any]] = {"features": np.ascontiguousarray(features, np.float32)}
    if audit is not None:
        tensors["audit seed"] = np.frombuffer(audit.seed, np.uint8)
        tensors["audit known"] = np.array([audit.known], np.int64)
    if salt:
        tensors["salt"] = np.frombuffer(salt, np.uint8)
    key = sealing_key(manifest, facts.contributor)
    sealed = SUITE.encrypt(save_tensors(tensors), key, facts.context())
    signature = querier.identity.sign(facts.context(), sealed)
    return SealedQuery(facts, sealed, signature)


def open_query(
    query: SealedQuery, member: Member, n_features: int
) -> tuple[NDArray[np.float32], Audit | None]:
    """The queries, shape (queries, n_features), and the secret of the known answers.

    Raises:
        InputError: as `open_salted_query`.
    """
    features, audit, _ = open_salted_query(query, member, n_features)
    return features, audit


def open_salted_query(
    query: SealedQuery, member: Member, n_features: int
) -> tuple[NDArray[np.float32], Audit | None, bytes]:
    """As `open_query`, and the salt, which is empty by the encrypted rules.

    Raises:
        InputError: sealed to somebody else, or altered; or queries of another shape, or not finite.
    """
    try:
        plain = SUITE.decrypt(query.sealed, member.sealing, query.facts.context())
    except InvalidTag:
        raise InputError("sealed query: not sealed to this member, or altered") from None
    try:
        tensors = load_tensors(plain)
        features, seed = tensors["features"], tensors.get("audit seed")
        known = tensors.get("audit known", np.zeros(1, np.int64))
        salt = tensors.get("salt", np.zeros(0, np.uint8)).tobytes()
    except (SafetensorError, LookupError, TypeError, ValueError) as error:
        raise FormatError("sealed query: holds no queries") from error
    if known.shape != (1,) or known.dtype != np.int64:
        raise FormatError("sealed query: its number of known answers is none")
    audit = None if seed is None else Audit(seed.tobytes(), int(known[0]))
    expected = (query.facts.queries - (audit.known if audit else 0), n_features)
    if features.dtype != np.float32 or features.shape != expected or len(features) < 1:
        raise InputError(f"sealed query: shape {features.shape}, expected {expected}")
    if not np.isfinite(features).all():
        raise InputError("sealed query: holds NaN or infinity")
    return features, audit, salt
