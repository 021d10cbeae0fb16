"""Keys: identities that sign, key agreement, and derivations bound to one sum of one session."""

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from attrs import field, frozen
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from secure_fl.federation.secagg.errors import ProtocolError

Entropy: TypeAlias = Callable[[int], bytes]
"""n -> n bytes; the operating system's in production."""
KEY = 32
SIGNATURE = 64
_SALT = b"securefl secure aggregation 1"


def digest(*parts: bytes) -> bytes:
    """SHA-256 of parts, each with its length, so that no two lists of parts look alike."""
    whole = hashlib.sha256()
    for part in parts:
        whole.update(len(part).to_bytes(8, "little") + part)
    return whole.digest()


def derive(secret: bytes, *info: bytes) -> bytes:
    """HKDF-SHA256: 32 bytes that depend on the secret and on every part of `info`."""
    return HKDF(hashes.SHA256(), KEY, _SALT, digest(*info)).derive(secret)


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
    if name not in directory:
        raise ProtocolError(f'client "{name}": not in the directory of signature keys')
    try:
        key = Ed25519PublicKey.from_public_bytes(directory[name])
        key.verify(signature, digest(*parts))
    except (InvalidSignature, ValueError):
        raise ProtocolError(
            f'client "{name}": its signature does not fit what the server passed on'
        ) from None


def seal(key: bytes, plaintext: bytes, associated: bytes) -> bytes:
    """Authenticated encryption under a key that is used once; 16 bytes longer."""
    return ChaCha20Poly1305(key).encrypt(bytes(12), plaintext, associated)


def unseal(key: bytes, sealed: bytes, associated: bytes) -> bytes | None:
    """The plaintext, or None where it was not sealed under this key for this purpose."""
    try:
        return ChaCha20Poly1305(key).decrypt(bytes(12), sealed, associated)
    except InvalidTag:
        return None


def names_digest(names: Sequence[str]) -> bytes:
    """Digest of a list of clients."""
    return digest(*(name.encode() for name in names))
