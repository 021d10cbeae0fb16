"""The primes of a rule's modulus: the fewest bits with which every decision is right.

Level primes are 1 modulo 2 n, as the transform asks for. Up to 128 contributors they are 1 modulo
the plaintext modulus too, so that dropping one leaves the slots as they are. The smallest ones
serve: the smallest is dropped first, after a larger one that takes the counts' noise.

There are few such primes, and 20 of them, for more contributors, have more bits than are secure. So
there every level has the smallest prime that its noise allows, and dropping one multiplies the
slots by its inverse: the circuit keeps account of that (`Rule.scale`). The special prime is small
there as well: key switching is always of products, whose noise hides what it adds.
"""

import functools
import itertools
import math
from collections.abc import Iterator

import attrs

from fhe.errors import InputError

from .arithmetic import Source
from .circuit import CHECK_LEVEL, Rule, answer, count_all, decide
from .library import seal
from .noise import Bound, Noise, Settling, TooMuchNoiseError

MODULUS = 65537
"""t: the smallest prime with as many slots as coefficients, for every degree up to 32,768."""
BUDGET = {16384: 438, 32768: 881}
"""Bits of a modulus at 128 bits of security, by degree (homomorphic encryption standard)."""
DISTANCE = 40
"""Flooded noise is within 2^-this of noise that is independent of the inputs."""
_MOST_BITS = 55
"""Of a prime: what residues are multiplied with has room for it."""
_LEVEL_BITS, _FIRST_BITS, _SPECIAL_BITS = 36.5, range(42, 52), 43
_TAILORED_ABOVE, _SMALL_SPECIAL_BITS, _GENERATOR = 18, 24, 3
"""Levels from which on every prime is chosen by itself; 3 generates the integers modulo t."""
_EVENTS = 2**22
"""Random polynomials of an evaluation, at most: `Noise` counts on them."""


@attrs.frozen
class Chain:
    """The modulus of a rule, and what its noise is bounded by.

    Attributes:
        degree: n, slots of a ciphertext.
        base: primes at level 0.
        levels: primes of levels 1, 2, ...
        special: prime of key switching.
        answer: log2 of the bound of an answer's noise before it is flooded, that of the encryption
            of 0 that re-randomises it included.
        flood: the flooding noise is t times integers uniform in [0, 2^flood).
    """

    degree: int
    base: tuple[int, ...]
    levels: tuple[int, ...]
    special: int
    answer: float
    flood: int

    @property
    def bits(self) -> float:
        """log2 of the whole modulus."""
        return sum(map(math.log2, self.key_primes))

    @property
    def shrinks(self) -> tuple[int, ...]:
        """What slots are multiplied by when the prime of level 1, 2, ... is dropped."""
        return tuple(pow(prime, -1, MODULUS) for prime in self.levels)

    @property
    def key_primes(self) -> tuple[int, ...]:
        """Of a key's modulus."""
        return (*self.base, *self.levels, self.special)

    def primes(self, level: int) -> tuple[int, ...]:
        """Of a ciphertext's modulus at a level."""
        return self.base + self.levels[:level]


def _primes(step: int, least: float) -> Iterator[int]:
    """Primes that are 1 modulo a step, from 2^least up."""
    library = seal()
    for k in itertools.count(int(2**least) // step + 1):
        if library.Modulus(k * step + 1).is_prime():
            yield k * step + 1


@functools.lru_cache(maxsize=32)
def find_chain(rule: Rule, degree: int) -> Chain:
    """The smallest modulus found for a rule.

    Raises:
        InputError: none fits the degree at 128 bits of security.
    """
    too_large = InputError(
        f"engine bgv: {rule.contributors} contributors need {rule.levels} levels, which do not fit"
        f" degree {degree} at 128 bits of security"
    )
    if rule.levels > _TAILORED_ABOVE:
        try:
            return _tailored(rule, degree)
        except TooMuchNoiseError:
            raise too_large from None
    step = math.lcm(2 * degree, MODULUS)
    smallest = tuple(itertools.islice(_primes(step, _LEVEL_BITS), rule.levels - 1))[::-1]
    special = next(_primes(step, _SPECIAL_BITS))
    for first in _FIRST_BITS:
        taken = {*smallest, special}
        levels = (*smallest, next(p for p in _primes(step, first) if p not in taken))
        try:
            return _completed(rule, degree, levels, special)
        except TooMuchNoiseError:
            continue
    raise too_large


def _tailored(rule: Rule, degree: int) -> Chain:
    """With a prime of its own size for every level."""
    step, guess = 2 * degree, (2**45, 2**45)
    special = next(_primes(step, _SMALL_SPECIAL_BITS))
    # A generator's powers are as large as any lift.
    rule = attrs.evolve(rule, shrinks=(_GENERATOR,) * rule.levels)
    found = Settling(degree, MODULUS, guess, (2**37,) * rule.levels, special, _EVENTS)
    steps = count_all(found, rule, _source(found, rule))
    answer(found, rule, steps, found.zero(CHECK_LEVEL))
    taken, levels = {special}, []
    for least in found.needed:
        levels.append(next(p for p in _primes(step, math.log2(least)) if p not in taken))
        taken.add(levels[-1])
    chosen = tuple(levels)
    shrinks = tuple(pow(prime, -1, MODULUS) for prime in chosen)
    return _completed(attrs.evolve(rule, shrinks=shrinks), degree, chosen, special)


def _completed(rule: Rule, degree: int, levels: tuple[int, ...], special: int) -> Chain:
    """With the smallest base that has room for the flooded answer."""
    guess = (2**45, 2**45)
    bound = bound_answer(rule, Noise(degree, MODULUS, guess, levels, special, _EVENTS))
    # Of the noise in units of t: ||e||_1 <= sqrt(n) ||e||_2 <= sqrt(n) |v| / t; and a uniform
    # integer of 2^flood values shifted by e is at distance |e| / 2^flood.
    flood = math.ceil(DISTANCE + math.log2(math.sqrt(degree) * bound.noise / MODULUS))
    needed = math.log2(bound.noise + MODULUS * 2.0**flood) + 1
    if needed / 2 > _MOST_BITS:
        raise TooMuchNoiseError(f"an answer takes two primes of {needed / 2:.0f} bits")
    taken = {*levels, special}
    candidates = (p for p in _primes(2 * degree, needed / 2) if p not in taken)
    base = tuple(itertools.islice(candidates, 2))
    chain = Chain(degree, base, levels, special, math.log2(bound.noise), flood)
    if chain.bits > BUDGET[degree]:
        raise InputError(
            f"engine bgv: {rule.contributors} contributors take {chain.bits:.0f} bits of modulus,"
            f" degree {degree} allows {BUDGET[degree]} at 128 bits of security"
        )
    # The guess was larger or smaller than what was found.
    bound_answer(rule, Noise(degree, MODULUS, base, levels, special, _EVENTS))
    return chain


def bound_answer(rule: Rule, noise: Noise) -> Bound:
    """The bound of an answer's noise, before flooding, re-randomisation included.

    Raises:
        TooMuchNoiseError: it, or another value of the circuit, may not decrypt.
    """

    found = decide(noise, rule, _source(noise, rule))
    return noise.add(found, noise.zero(0))


def _source(noise: Noise, rule: Rule) -> Source[Bound]:
    def source(_contributor: int, bit: int, level: int) -> Bound:
        return noise.sent(level, rule.level_of(bit))

    return source
