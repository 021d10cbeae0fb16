"""Masks: AES-256-CTR keystreams, added modulo 2^bits."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from secure_fl.federation.secagg.encoding import Words

CHUNK = 1 << 16
"""Bytes worked on at a time: the keystream stays in the nearest cache while it is added."""


def add_masks(vector: Words, plus: Sequence[bytes], minus: Sequence[bytes]) -> None:
    """Adds and subtracts the masks of 32-byte keys, in place.

    Args:
        vector: shape (d,), contiguous. A key's mask has its length; a key masks one vector only.
        plus: keys of the masks to add.
        minus: keys of the masks to subtract.
    """
    zeros, stream = bytes(CHUNK), bytearray(CHUNK)
    words = np.frombuffer(stream, vector.dtype)
    width = len(words)
    streams: list[tuple[Any, np.ufunc]] = [(_stream(key), np.add) for key in plus]
    streams += [(_stream(key), np.subtract) for key in minus]
    for start in range(0, len(vector), width):
        part = vector[start : start + width]
        for encryptor, combine in streams:
            # The encryption of zeros is the keystream itself.
            encryptor.update_into(zeros, stream)
            combine(part, words[: len(part)], out=part)


_FROM_ZERO = modes.CTR(bytes(16))


def _stream(key: bytes) -> Any:
    return Cipher(algorithms.AES256(key), _FROM_ZERO).encryptor()
