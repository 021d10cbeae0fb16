"""What a circuit does with its values, whatever they are.

One circuit (`circuit`) runs on four kinds of values: integers in slots (`clear`), bounds of noise
(`noise`), counts of operations (`cost`) and ciphertexts (`ciphertexts`).

A value has a level, the number of primes of the modulus that it can still lose. A product is wide
(three polynomials) until it is relinearised, and tall (its noise is a product's) until a prime is
dropped. Sums may mix wide, tall and other values of one level; a product's factors must be
neither.
"""

from collections.abc import Callable
from typing import Protocol, TypeVar

V = TypeVar("V")


class Arithmetic(Protocol[V]):
    """Operations modulo the plaintext modulus, slot by slot."""

    def add(self, a: V, b: V) -> V:
        """a + b."""

    def subtract(self, a: V, b: V) -> V:
        """a - b."""

    def plus(self, a: V, constant: int) -> V:
        """a + constant."""

    def times(self, a: V, constant: int) -> V:
        """a * constant, not 0; multiplies the noise by the constant's size, at most half of t."""

    def multiply(self, a: V, b: V) -> V:
        """a * b, wide and tall."""

    def relinearize(self, a: V) -> V:
        """A value that is not wide."""

    def drop(self, a: V) -> V:
        """One level lower, not tall."""

    def mask(self, a: V) -> V:
        """a * r with r uniform and fresh in every slot; adds about 25 bits of noise."""

    def accumulate(self, total: V | None, a: V) -> V:
        """total + a, and `total` is not used any more; from None, a fresh encryption of 0 + a."""


Source = Callable[[int, int, int], V]
"""A contributor's thermometer bit: of contributor i, number k of the layout, at a level."""
