"""Arithmetic in Z_{2^64}[X]/(X^N + 1), and draws from the operating system's randomness.

A polynomial is a uint64 array of its N coefficients, lowest first; unsigned overflow is the
reduction modulo 2^64, so every result is exact.
"""

import hashlib
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]


def times_binary(polynomial: Words, binary: Words) -> Words:
    """The product with a polynomial whose coefficients are 0 and 1, by shifts; shape (N,).

    Its running time depends on the number of ones.
    """
    degree = len(polynomial)
    twice = np.concatenate((-polynomial, polynomial))
    total = np.zeros(degree, np.uint64)
    for i in np.flatnonzero(binary):
        total += twice[degree - i : 2 * degree - i]
    return total


def extraction_row(mask: Words, coefficient: int) -> Words:
    """The vector a with <a, s> = that coefficient of sum_u mask_u s_u, s flattened.

    Args:
        mask: shape (k, N).
        coefficient: 0 to N - 1.

    Returns:
        Shape (k N,).
    """
    degree = mask.shape[1]
    twice = np.concatenate((-mask, mask), axis=1)
    return np.ascontiguousarray(
        twice[:, coefficient + 1 : degree + coefficient + 1][:, ::-1]
    ).ravel()


def expand(seed: bytes, shape: tuple[int, ...]) -> Words:
    """Uniform words that everybody derives alike from a public seed, by SHAKE-256."""
    stream = hashlib.shake_256(b"securefl public key\0" + seed).digest(8 * int(np.prod(shape)))
    return np.frombuffer(stream, "<u8").astype(np.uint64).reshape(shape)


def draw_binary(shape: tuple[int, ...]) -> Words:
    """Independent fair bits."""
    count = int(np.prod(shape))
    packed = np.frombuffer(os.urandom(-(-count // 8)), np.uint8)
    return np.unpackbits(packed)[:count].astype(np.uint64).reshape(shape)


def draw_rounded_gaussian(deviation: float, shape: tuple[int, ...]) -> Words:
    """Gaussian values (Box and Muller, 53-bit uniforms) rounded to integers, modulo 2^64.

    Args:
        deviation: standard deviation, 1 to 2^52; the tail ends at 8.5 deviations.
        shape: of the result.
    """
    count = int(np.prod(shape))
    draws = np.frombuffer(os.urandom(16 * count), np.uint64).reshape(2, count)
    first, second = ((draws >> np.uint64(11)).astype(np.float64) + 1) / 2.0**53
    values = deviation * np.sqrt(-2 * np.log(first)) * np.cos(2 * np.pi * second)
    return np.rint(values).astype(np.int64).view(np.uint64).reshape(shape)


def signed(words: Words) -> NDArray[Any]:
    """Words as the integers of least magnitude that they stand for modulo 2^64."""
    return np.ascontiguousarray(words).view(np.int64)
