"""Keys: identities that sign, key agreement, and derivations bound to one sum of one session."""

import hashlib
import hmac
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from attrs import field, frozen
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from secure_fl.errors import ProtocolError

Entropy: TypeAlias = Callable[[int], bytes]
"""n -> n bytes; the operating system's in production."""
KEY = 32
SIGNATURE = 64
_NONCE = 12
OVERHEAD = _NONCE + 16
"""Bytes that `seal` adds: a random nonce and a tag."""
_SALT = b"securefl secure aggregation 2"


def digest(*parts: bytes) -> bytes:
    """SHA-256 of parts, each with its length, so that no two lists of parts look alike."""
    return _hashed(parts).digest()


def digest_in_pieces(parts: Sequence[bytes], size: int, pieces: Iterable[bytes]) -> bytes:
    """As `digest`, of parts and a last one of `size` bytes that comes in pieces."""
    whole = _hashed(parts)
    whole.update(size.to_bytes(8, "little"))
    for piece in pieces:
        whole.update(piece)
    return whole.digest()


def _hashed(parts: Sequence[bytes]) -> "hashlib._Hash":
    whole = hashlib.sha256()
    for part in parts:
        whole.update(len(part).to_bytes(8, "little") + part)
    return whole


def derive(secret: bytes, *info: bytes, keys: int = 1) -> bytes:
    """HKDF-SHA256: 32 bytes a key that depend on the secret and on every part of `info`."""
    return HKDF(hashes.SHA256(), keys * KEY, _SALT, digest(*info)).derive(secret)


@frozen
class KeyPair:
    """An X25519 key whose private half follows from 16 bytes, which is what gets shared.

    Attributes:
        seed: 16 bytes.
        public: 32 bytes.
    """

    _private: X25519PrivateKey = field(repr=False)
    public: bytes

    @classmethod
    def from_seed(cls, seed: bytes, context: bytes) -> "KeyPair":
        """The key pair of a seed in one sum."""
        private = X25519PrivateKey.from_private_bytes(derive(seed, context, b"private key"))
        return cls(private, private.public_key().public_bytes_raw())

    def agree(self, public: bytes) -> bytes:
        """32 bytes that only the two owners can compute; not uniform, keys are derived from them.

        Raises:
            ProtocolError: the other key is none (32 bytes of small order, or another length).
        """
        try:
            return self._private.exchange(X25519PublicKey.from_public_bytes(public))
        except ValueError:
            raise ProtocolError("a public key is not one of X25519") from None


class Identity:
    """A client's lasting signature key (Ed25519); others know its public half beforehand.

    Args:
        entropy: where the key comes from.
    """

    def __init__(self, entropy: Entropy = os.urandom) -> None:
        self._private = Ed25519PrivateKey.from_private_bytes(entropy(KEY))
        self.public = self._private.public_key().public_bytes_raw()

    def sign(self, *parts: bytes) -> bytes:
        """64 bytes over the digest of the parts."""
        return self._private.sign(digest(*parts))


Directory: TypeAlias = Mapping[str, bytes]
"""Client to the public half of its identity."""


def verify(directory: Directory, name: str, signature: bytes, *parts: bytes) -> None:
    """Checks a signature.

    Raises:
        ProtocolError: an unknown client, or the signature is not its own over these parts.
    """
    verify_digest(directory, name, signature, digest(*parts))


def verify_digest(directory: Directory, name: str, signature: bytes, over: bytes) -> None:
    """As `verify`, over the digest of the parts."""
    if name not in directory:
        raise ProtocolError(f'client "{name}": not in the directory of signature keys')
    try:
        key = Ed25519PublicKey.from_public_bytes(directory[name])
        key.verify(signature, over)
    except (InvalidSignature, ValueError):
        raise ProtocolError(
            f'client "{name}": its signature does not fit what the server passed on'
        ) from None


class Member:
    """A client in one session: its identity, and one key agreement that all its sums rest on.

    Signatures are checked and secrets agreed once for each peer and session; every sum derives
    its own keys from them, with its context.

    Args:
        name: of the client.
        identity: its signature key.
        directory: every client's public signature key, known before and not from the server.
        session: 16 bytes that name the run.
        entropy: where its session key comes from; the operating system in production.

    Attributes:
        public: its session key, 32 bytes.
        signature: its identity's, over session, name and session key.
    """

    def __init__(
        self,
        name: str,
        identity: Identity,
        directory: Directory,
        session: bytes,
        entropy: Entropy = os.urandom,
    ) -> None:
        self.name = name
        self.session = session
        self._directory = directory
        self._key = KeyPair.from_seed(entropy(KEY), session)
        self.public = self._key.public
        self.signature = identity.sign(*self._signed(name, self.public))
        self._secrets: dict[tuple[str, bytes], bytes] = {}
        self._sums: set[bytes] = set()

    def enter(self, context: bytes) -> None:
        """Takes part in a sum, once.

        Raises:
            ProtocolError: it already did; confirmations of the first time could be replayed.
        """
        if context in self._sums:
            raise ProtocolError(f'client "{self.name}": was asked twice for one sum; not answered')
        self._sums.add(context)

    def secret_with(self, other: str, public: bytes, signature: bytes) -> bytes:
        """What only it and the other client know.

        Raises:
            ProtocolError: the session key is not signed by its owner, or is none.
        """
        found = self._secrets.get((other, public))
        if found is None:
            verify(self._directory, other, signature, *self._signed(other, public))
            found = self._secrets[other, public] = self._key.agree(public)
        return found

    def _signed(self, name: str, public: bytes) -> tuple[bytes, ...]:
        return b"session key", self.session, name.encode(), public


@frozen
class PairKeys:
    """What two clients use between them in one sum, each key in one direction only.

    Attributes:
        seal_out: for shares to the other.
        seal_in: for shares from the other.
        confirm_out: for confirmations to the other.
        confirm_in: for confirmations from the other.
    """

    seal_out: bytes
    seal_in: bytes
    confirm_out: bytes
    confirm_in: bytes

    @classmethod
    def of_sum(cls, secret: bytes, context: bytes, name: str, other: str) -> "PairKeys":
        """Derived from the session's secret with the sum's context."""
        ends = sorted((name, other))
        four = derive(secret, context, b"pair", *(end.encode() for end in ends), keys=4)
        there, back, say, answer = (four[i : i + KEY] for i in range(0, 4 * KEY, KEY))
        if name == ends[0]:
            return cls(there, back, say, answer)
        return cls(back, there, answer, say)

    def dump(self) -> Any:
        """The keys as an array of the wire encoding, shape (128,)."""
        return np.frombuffer(
            self.seal_out + self.seal_in + self.confirm_out + self.confirm_in, np.uint8
        )

    @classmethod
    def load(cls, keys: Any) -> "PairKeys":
        """From what `dump` gave."""
        four = keys.tobytes()
        return cls(*(four[i : i + KEY] for i in range(0, 4 * KEY, KEY)))


def authenticate(key: bytes, *parts: bytes) -> bytes:
    """HMAC-SHA256 over parts, 32 bytes: only the two holders of the key can make it."""
    return hmac.digest(key, digest(*parts), "sha256")


def seal(key: bytes, plaintext: bytes, associated: bytes) -> bytes:
    """Authenticated encryption; `OVERHEAD` bytes longer."""
    nonce = os.urandom(_NONCE)
    return nonce + ChaCha20Poly1305(key).encrypt(nonce, plaintext, associated)


def unseal(key: bytes, sealed: bytes, associated: bytes) -> bytes | None:
    """The plaintext, or None where it was not sealed under this key for this purpose."""
    try:
        nonce, rest = sealed[:_NONCE], sealed[_NONCE:]
        return ChaCha20Poly1305(key).decrypt(nonce, rest, associated)
    except InvalidTag:
        return None


def names_digest(names: Sequence[str]) -> bytes:
    """Digest of a list of clients."""
    return digest(*(name.encode() for name in names))
