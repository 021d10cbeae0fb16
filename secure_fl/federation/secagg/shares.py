"""Shamir's secret sharing over GF(2^128), for all holders at once.

A secret has 16 bytes: the field's size, and the strength of the X25519 keys that are derived from
it. A share is the value of the polynomial at the holder's number, 16 bytes too. The field and the
shares are PyCryptodome's, which the tests deal and open against in both directions; its own
arithmetic works bit by bit on one share after the other, and took most of a client's time.

Dealing is Horner's rule with one lane of a long integer for each holder: multiplying by numbers of
16 bits and reducing are shifts and exclusive ors of all lanes together; no step is chosen, and
nothing is looked up, by a secret.

Opening is the server's work, and a server opens one secret for every client. The coefficients of
the interpolation are computed once for a set of holders, and what they do to the bits of the shares
is a matrix over GF(2). Nothing secret depends on it, and whoever opens a secret knows what it must
fit.
"""

import os
from collections.abc import Mapping
from functools import lru_cache

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from secure_fl.errors import ProtocolError

SECRET = 16
"""Bytes of a secret and of a share."""
_BITS = 8 * SECRET
_MODULUS = 1 << 128 | 0x87
"""x^128 + x^7 + x^2 + x + 1, PyCryptodome's; bit i is the coefficient of x^i."""


_LANE = _BITS + 16
"""Bits of a lane: an element times a holder's number of up to 16 bits."""
MOST_HOLDERS = 2**16 - 1


def split(secret: bytes, threshold: int, holders: int) -> list[bytes]:
    """Shares for holders 1 to `holders`; any `threshold` of them give the secret back.

    Fewer say nothing about it: the polynomial's other threshold - 1 coefficients come from the
    operating system.

    Args:
        secret: 16 bytes.
        threshold: 1 to holders.
        holders: at most `MOST_HOLDERS`.
    """
    lanes = _lanes(holders)
    random = os.urandom(SECRET * (threshold - 1))
    values = 0
    for start in range(0, len(random), SECRET):
        coefficient = int.from_bytes(random[start : start + SECRET], "big")
        values = lanes.times_numbers(values ^ coefficient * lanes.ones)
    values ^= int.from_bytes(secret, "big") * lanes.ones
    width = _LANE // 8
    whole = values.to_bytes(width * holders, "little")
    return [whole[i * width : i * width + SECRET][::-1] for i in range(holders)]


@frozen
class _Lanes:
    """Constants for one element of the field in each of n lanes, of holders 1 to n.

    Attributes:
        ones: 1 in every lane; an element times it stands in every lane.
        low: the 128 bits of every element.
        having: for each bit of a number, the lanes (as masks of 128 bits) whose holder's has it.
    """

    ones: int
    low: int
    having: tuple[int, ...]

    def times_numbers(self, values: int) -> int:
        """Every lane's element times its holder's number, reduced."""
        product = 0
        for bit, lanes in enumerate(self.having):
            product ^= (values & lanes) << bit
        low = product & self.low
        # x^128 = x^7 + x^2 + x + 1; at most 16 bits stand above, so once is enough.
        high = (product ^ low) >> _BITS
        return low ^ high ^ high << 1 ^ high << 2 ^ high << 7


@lru_cache(maxsize=64)
def _lanes(holders: int) -> _Lanes:
    if not 1 <= holders <= MOST_HOLDERS:
        raise ProtocolError(f"{holders} holders of a secret, 1 to {MOST_HOLDERS} are possible")
    ones = sum(1 << _LANE * i for i in range(holders))
    full = (1 << _BITS) - 1
    having = [
        full * sum(1 << _LANE * (number - 1) for number in range(1, holders + 1) if number >> b & 1)
        for b in range(holders.bit_length())
    ]
    return _Lanes(ones, full * ones, tuple(having))


def combine(shares: Mapping[int, bytes], threshold: int) -> bytes:
    """The secret of `threshold` shares by holder number; more are left aside.

    Wrong shares give a wrong secret: compare it with what is known of the right one.

    Raises:
        ProtocolError: too few shares.
    """
    if len(shares) < threshold:
        raise ProtocolError(f"{len(shares)} shares of a secret, {threshold} are needed")
    numbers = tuple(sorted(shares)[:threshold])
    given = np.frombuffer(b"".join(shares[number] for number in numbers), np.uint8)
    weights = _bit_weights(numbers)[np.unpackbits(given).astype(bool)]
    return np.bitwise_xor.reduce(weights, axis=0).tobytes()


@lru_cache(maxsize=256)
def _bit_weights(numbers: tuple[int, ...]) -> NDArray[np.uint64]:
    """What each bit of each share adds to the secret, shape (128 shares, 2).

    The secret is the sum of coefficient times share, and a share is the sum of its bits times
    powers of x; bits come as in the shares' bytes, the highest power first.
    """
    rows = []
    for coefficient in _coefficients(numbers):
        powers = [coefficient]
        for _ in range(_BITS - 1):
            powers.append(_multiply(powers[-1], 2))
        rows += [power.to_bytes(SECRET, "big") for power in reversed(powers)]
    return np.frombuffer(b"".join(rows), np.uint64).reshape(-1, 2)


def _coefficients(numbers: tuple[int, ...]) -> list[int]:
    """Lagrange's at 0: the product over the others j of x_j / (x_j - x_i); minus is xor."""
    found = []
    for own in numbers:
        above = below = 1
        for other in numbers:
            if other != own:
                above = _multiply(above, other)
                below = _multiply(below, other ^ own)
        found.append(_multiply(above, _inverse(below)))
    return found


def _multiply(a: int, b: int) -> int:
    """The product in the field; fast where `b` is short."""
    product = 0
    while b:
        if b & 1:
            product ^= a
        a <<= 1
        if a >> _BITS:
            a ^= _MODULUS
        b >>= 1
    return product


def _inverse(a: int) -> int:
    """1 / a for a other than 0: Euclid's algorithm on polynomials over GF(2)."""
    r, s, u, v = _MODULUS, a, 0, 1
    while s != 1:
        shift = r.bit_length() - s.bit_length()
        if shift < 0:
            r, s, u, v, shift = s, r, v, u, -shift
        r ^= s << shift
        u ^= v << shift
        # The remainder of lower degree is the next divisor.
        if r.bit_length() < s.bit_length():
            r, s, u, v = s, r, v, u
    return v
