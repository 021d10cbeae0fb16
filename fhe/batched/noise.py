"""A bound of the noise of every value of the batched circuit.

A BGV ciphertext (c0, c1) of m under s holds v = c0 + c1 s = m + t e modulo q, a polynomial modulo
X^n + 1. It decrypts as long as no coefficient of v reaches q / 2. v is bounded at the n complex
roots zeta of X^n + 1, where sums and products of polynomials are those of their values; with |a|
for the largest |a(zeta)|,

    |a + b|, |a b|, |k a|     at most |a| + |b|, |a| |b|, |k| |a|
    drop of a prime q         |a| / q + R
    relinearisation           |a| + K + R'
    no coefficient of v, and no Euclidean norm of its coefficients, is above |v|

R is what rounding adds, -t (r0 + r1 s). SEAL rounds to multiples of t below: r0, r1 are uniform in
[0, 1), and their mean 1/2 (1 + X + ... + X^(n - 1)) is n / pi at the roots near 1, more than their
deviation is anywhere. So t N is added to both polynomials (`ciphertexts.Centre`), N with the
coefficients 0 and 1 of a Rudin-Shapiro sequence: what is left of the mean is 1/2 sum +-X^j, at most
sqrt(n / 2) at every root. R' is not centred, since a drop follows.

K is key switching: t / P times the sum over the primes q_j of digits uniform in [0, q_j) times a
key's errors, P the special prime.

A polynomial of n independent coefficients with variance V, uniform, ternary, or centred binomial,
is below D sqrt(n V) at a root but with probability 4 exp(-D^2 / 2): each of real and imaginary part
is sub-Gaussian with variance n V / 2, since squares of cosines over a root's powers add up to
n / 2, and all three are strictly sub-Gaussian. `FAILURE` bounds the probability that any random
polynomial of an evaluation exceeds its bound anywhere, by the union bound over polynomials and
roots; D follows. The secret's bound is checked when it is drawn (`keys`). Taken for uniform are
residues of ciphertexts, which is the scheme's own assumption.
"""

import math
from typing import Any

import attrs

FAILURE = 2.0**-41
"""That any random polynomial of one evaluation exceeds its bound."""
SECRET_BOUND = 4.0
"""|s| at most this, in deviations sqrt(2 n / 3)."""
ERROR_VARIANCE = 10.5
"""Of SEAL's errors: the difference of two sums of 21 bits."""
_TERNARY, _UNIFORM = 2 / 3, 1 / 12


@attrs.frozen
class Bound:
    """Bound of a value.

    Attributes:
        level: primes that it can still lose.
        noise: |v|.
        wide, tall: as `arithmetic` says.
    """

    level: int
    noise: float
    wide: bool = False
    tall: bool = False


class TooMuchNoiseError(ValueError):
    """A value may not decrypt with these primes."""


def secret_bound(degree: int) -> float:
    """The most that |s(zeta)| may be, at every root."""
    return SECRET_BOUND * math.sqrt(_TERNARY * degree)


class Noise:
    """Arithmetic on bounds.

    Args:
        degree: n, a power of two.
        modulus: t.
        base: primes of the modulus at level 0.
        primes: those of levels 1, 2, ...
        special: P.
        events: random polynomials of one evaluation, at most.
    """

    def __init__(
        self,
        degree: int,
        modulus: int,
        base: tuple[int, ...],
        primes: tuple[int, ...],
        special: int,
        events: float,
    ) -> None:
        self.degree, self.modulus, self.special = degree, modulus, special
        self.base, self.primes = base, primes
        # Conjugate roots are bounded together.
        self.deviations = math.sqrt(2 * math.log(4 * events * degree / 2 / FAILURE))
        self.secret = secret_bound(degree)
        self._error = self._spread(ERROR_VARIANCE)
        self._uncentred = self._spread(_UNIFORM) + degree / math.pi
        centred = self._spread(_UNIFORM) + math.sqrt(degree / 2)
        self.rounding = modulus * centred * (1 + self.secret)

    def _spread(self, variance: float) -> float:
        return self.deviations * math.sqrt(self.degree * variance)

    def zero(self, level: int) -> Bound:
        """A fresh encryption of 0: made with one prime more, which is dropped."""
        ternary = self._spread(_TERNARY)
        made = self.modulus * self._error * (1 + ternary + self.secret)
        return Bound(level, made / [*self.primes, self.special][level] + self.rounding)

    def sent(self, level: int, made: int) -> Bound:
        """A contributor's bit, made at a level and cut down to another one.

        The message is any polynomial modulo t.
        """
        return Bound(level, self.zero(made).noise + self.modulus / 2 * self.degree)

    def room(self, level: int) -> float:
        """What a bound at a level must stay below."""
        return math.prod(map(float, (*self.base, *self.primes[:level]))) / 2

    def _checked(self, a: Bound) -> Bound:
        if not a.noise < self.room(a.level):
            raise TooMuchNoiseError(
                f"noise of 2^{math.log2(a.noise):.1f} at level {a.level}, room for"
                f" 2^{math.log2(self.room(a.level)):.1f}"
            )
        return a

    def _joined(self, a: Bound, b: Bound, noise: float) -> Bound:
        assert a.level == b.level
        return self._checked(Bound(a.level, noise, a.wide or b.wide, a.tall or b.tall))

    def add(self, a: Bound, b: Bound) -> Bound:
        """a + b."""
        return self._joined(a, b, a.noise + b.noise)

    subtract = add

    def plus(self, a: Bound, constant: int) -> Bound:
        """a + constant."""
        return attrs.evolve(a, noise=a.noise + abs(self._centred(constant)))

    def _centred(self, constant: int) -> int:
        half = self.modulus // 2
        return (constant + half) % self.modulus - half

    def times(self, a: Bound, constant: int) -> Bound:
        """a * constant."""
        return self._checked(attrs.evolve(a, noise=a.noise * abs(self._centred(constant))))

    def multiply(self, a: Bound, b: Bound) -> Bound:
        """a * b."""
        joined = self._joined(a, b, a.noise * b.noise)
        return attrs.evolve(joined, wide=True, tall=True)

    def relinearize(self, a: Bound) -> Bound:
        """The same, not wide."""
        digits = sum(map(float, (*self.base, *self.primes[: a.level])))
        switched = self.modulus * digits * self._uncentred * self._error / self.special
        rounded = self.modulus * self._uncentred * (1 + self.secret)
        return self._checked(attrs.evolve(a, noise=a.noise + switched + rounded, wide=False))

    def drop(self, a: Bound) -> Bound:
        """The same, one level lower."""
        noise = a.noise / self.primes[a.level - 1] + self.rounding
        return self._checked(Bound(a.level - 1, noise))

    def mask(self, a: Bound) -> Bound:
        """Times a polynomial with coefficients uniform in -t/2..t/2."""
        return self._checked(attrs.evolve(a, noise=a.noise * self.modulus * self._spread(_UNIFORM)))

    def accumulate(self, total: Bound | None, a: Bound) -> Bound:
        """total + a; begins with a fresh encryption of 0."""
        return self.add(self.zero(a.level) if total is None else total, a)


class Settling(Noise):
    """Finds the primes: every drop leaves at most `settled`, and `needed` notes what that takes.

    With R the rounding's noise, a product of two values of noise x takes a prime x^2 / (x - R) to
    leave x again: the least, 4 R, at x = 2 R. What is left at level 0 is another matter: a smaller
    prime there makes the base larger by as much, so R should be lost in it.
    """

    def __init__(self, *facts: Any) -> None:
        super().__init__(*facts)
        self.needed = [0.0] * len(self.primes)

    def drop(self, a: Bound) -> Bound:
        """The same, one level lower."""
        settled = self.rounding * (2 if a.level > 1 else 32)
        prime = a.noise / (settled - self.rounding)
        self.needed[a.level - 1] = max(self.needed[a.level - 1], prime)
        return Bound(a.level - 1, settled)
