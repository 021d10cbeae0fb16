"""Sealing bytes under a passphrase: scrypt (RFC 7914) and AES-256-GCM (NIST SP 800-38D)."""

import secrets
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from .errors import SecretError

# 2^17 x 8 x 128 bytes = 128 MiB for one guess, OWASP's recommendation of 2023.
_N, _R, _P = 2**17, 8, 1
_SALT, _NONCE, _KEY = 16, 12, 32


def seal(plain: bytes, passphrase: str, context: bytes) -> tuple[dict[str, Any], bytes]:
    """Encrypts and authenticates.

    Args:
        plain: the secret.
        passphrase: of the owner; its strength is the seal's.
        context: bytes that must be the same on opening, e.g. the file's public header.

    Returns:
        Public parameters as JSON types, and the sealed bytes.
    """
    salt, nonce = secrets.token_bytes(_SALT), secrets.token_bytes(_NONCE)
    sealed = AESGCM(_key(passphrase, salt)).encrypt(nonce, plain, context)
    return {"salt": salt.hex(), "nonce": nonce.hex()}, sealed


def unseal(sealed: bytes, parameters: object, passphrase: str, context: bytes) -> bytes:
    """Opens what `seal` made.

    Raises:
        SecretError: wrong passphrase, changed bytes, changed context or parameters; on purpose
            one error for all of them.
    """
    if not isinstance(parameters, dict):
        raise SecretError
    try:
        salt, nonce = (bytes.fromhex(parameters[name]) for name in ("salt", "nonce"))
        return AESGCM(_key(passphrase, salt)).decrypt(nonce, sealed, context)
    except (InvalidTag, KeyError, TypeError, ValueError):
        raise SecretError from None


def _key(passphrase: str, salt: bytes) -> bytes:
    return Scrypt(salt=salt, length=_KEY, n=_N, r=_R, p=_P).derive(passphrase.encode())
