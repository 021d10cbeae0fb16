"""The batched circuit on integers in the clear: what every slot holds."""

from collections.abc import Callable

import attrs
import numpy as np

from ..code import Ints


@attrs.frozen
class Slots:
    """Values of all slots.

    Attributes:
        level: primes that a ciphertext could still lose.
        values: modulo t, shape (queries,).
        wide: not relinearised.
        tall: no prime dropped since a product.
    """

    level: int
    values: Ints
    wide: bool = False
    tall: bool = False


@attrs.frozen
class Clear:
    """Arithmetic on slots; refuses what ciphertexts could not do.

    Attributes:
        modulus: t.
        draw: uniform integers below t, shape (queries,).
    """

    modulus: int
    draw: Callable[[int], Ints]

    def _joined(self, a: Slots, b: Slots, values: Ints) -> Slots:
        assert a.level == b.level, (a.level, b.level)
        return Slots(a.level, values % self.modulus, a.wide or b.wide, a.tall or b.tall)

    def add(self, a: Slots, b: Slots) -> Slots:
        """a + b."""
        return self._joined(a, b, a.values + b.values)

    def subtract(self, a: Slots, b: Slots) -> Slots:
        """a - b."""
        return self._joined(a, b, a.values - b.values)

    def plus(self, a: Slots, constant: int) -> Slots:
        """a + constant."""
        return attrs.evolve(a, values=(a.values + constant) % self.modulus)

    def times(self, a: Slots, constant: int) -> Slots:
        """a * constant."""
        return attrs.evolve(a, values=a.values * (constant % self.modulus) % self.modulus)

    def multiply(self, a: Slots, b: Slots) -> Slots:
        """a * b."""
        assert not (a.wide or b.wide or a.tall or b.tall)
        joined = self._joined(a, b, a.values * b.values)
        return attrs.evolve(joined, wide=True, tall=True)

    def relinearize(self, a: Slots) -> Slots:
        """The same, not wide."""
        return attrs.evolve(a, wide=False)

    def drop(self, a: Slots) -> Slots:
        """The same, one level lower."""
        assert a.level > 0
        assert not a.wide
        return attrs.evolve(a, level=a.level - 1, tall=False)

    def mask(self, a: Slots) -> Slots:
        """Times a fresh uniform integer a slot."""
        r = self.draw(len(a.values))
        return attrs.evolve(a, values=a.values * r % self.modulus)

    def accumulate(self, total: Slots | None, a: Slots) -> Slots:
        """total + a."""
        return a if total is None else self.add(total, a)
