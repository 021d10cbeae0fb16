"""The batched circuit on integers in the clear: what every slot holds."""

from collections.abc import Callable, Sequence

import attrs

from fhe.code import Ints

from .chain import MODULUS
from .ciphertexts import uniform
from .circuit import decide
from .layout import Bits
from .parameters import BatchedParameters


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
        shrinks: of the rule.
    """

    modulus: int
    draw: Callable[[int], Ints]
    shrinks: tuple[int, ...] = ()

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
        # Not as it is: of integers beyond 63 bits NumPy makes floating-point numbers.
        return attrs.evolve(a, values=(a.values + constant % self.modulus) % self.modulus)

    def times(self, a: Slots, constant: int) -> Slots:
        """a * constant."""
        if constant % self.modulus == 0:
            raise ValueError("a product with 0, which hides nothing")
        return attrs.evolve(a, values=a.values * (constant % self.modulus) % self.modulus)

    def multiply(self, a: Slots, b: Slots) -> Slots:
        """a * b."""
        if a.wide or b.wide or a.tall or b.tall:
            raise ValueError("a factor that is wide or tall")
        joined = self._joined(a, b, a.values * b.values)
        return attrs.evolve(joined, wide=True, tall=True)

    def relinearize(self, a: Slots) -> Slots:
        """The same, not wide."""
        return attrs.evolve(a, wide=False)

    def drop(self, a: Slots) -> Slots:
        """The same, one level lower."""
        assert a.level > 0
        assert not a.wide
        shrink = self.shrinks[a.level - 1] if self.shrinks else 1
        values = a.values * shrink % self.modulus
        return attrs.evolve(a, level=a.level - 1, values=values, tall=False)

    def mask(self, a: Slots) -> Slots:
        """Times a fresh uniform integer a slot."""
        r = self.draw(len(a.values))
        return attrs.evolve(a, values=a.values * r % self.modulus)

    def accumulate(self, total: Slots | None, a: Slots) -> Slots:
        """total + a."""
        return a if total is None else self.add(total, a)


def simulate_batched(codes: Ints, parameters: BatchedParameters) -> Ints:
    """The classes by the circuit on integers; codes of shape (queries, contributors, classes)."""
    sent = [parameters.thermometers(codes[:, i]) for i in range(parameters.contributors)]
    return parameters.decode(decide_in_the_clear(sent, parameters))


def decide_in_the_clear(sent: Sequence[Bits], parameters: BatchedParameters) -> Ints:
    """What the slots of an answer hold, shape (queries,).

    Args:
        sent: a contributor's thermometers each, shape (ciphertexts, queries); of hostile ones any
            integers.
        parameters: of the rule.
    """
    rule = parameters.circuit

    def source(contributor: int, bit: int, level: int) -> Slots:
        values = sent[contributor][bit] * rule.scale_of(bit) % MODULUS
        return Slots(level, values)

    return decide(Clear(MODULUS, _drawn, rule.shrinks), rule, source).values


def _drawn(count: int) -> Ints:
    return uniform(count, MODULUS)
