"""A polynomial that tells 0 from 1..Q, in few multiplications.

P has the roots 1..2K, K = ceil(Q / 2) (one more than is needed does no harm). They lie in pairs
around K + 1/2, so P is a polynomial of degree K in z = (2 count - 2K - 1)^2, with the roots
(2k - 1)^2, k = 1..K; at count = 0, z = (2K + 1)^2.

Its K factors are taken in groups of 1, 2 or 4 roots, and the groups multiplied in a tree. A group
is a monic polynomial of powers of z that all groups share:

    2 roots     z^2 + b z + c
    4 roots     z^4 + a z^3 + b z^2 + c z + d

Coefficients multiply noise. Those of powers that are not at the product's own level yet cost
nothing: they are added while the highest power still has the noise of a product, before a prime is
dropped. Only a stands beside a power as noisy as the highest; it is made small: z is shifted to the
roots' mean, and roots are dealt to groups of nearly the same sum. Where there are more than 64
pairs the modulus has no bit to spare: they are made a multiple of four, so that with an odd shift
all sums are multiples of 8, the cube is one of 8 z and two squares of it, and a is an eighth.
"""

import functools
import math

import attrs

from .fours import fours

GROUPS = (1, 2, 4)
_MANY = 64
"""Pairs of roots above which groups are found by `fours`."""
_STRETCH, _ENOUGH = 8, 16


@attrs.frozen
class Vanishing:
    """The plan of P.

    Attributes:
        pairs: K.
        shift: taken off z.
        groups: roots of shifted z, group by group; all of one size, the last may be smaller.
        stretch: what z is multiplied by in the cube that groups of four share.
    """

    pairs: int
    shift: int
    groups: tuple[tuple[int, ...], ...]
    stretch: int = 1

    @property
    def size(self) -> int:
        """Roots of a group."""
        return len(self.groups[0])

    @property
    def depth(self) -> int:
        """Primes that P takes."""
        return 1 + math.ceil(math.log2(self.pairs))

    @property
    def products(self) -> int:
        """Relinearisations of P."""
        powers = {1: 0, 2: 1, 4: 3}[self.size]
        return 1 + powers + len(self.groups) - 1

    def at_zero(self, modulus: int) -> int:
        """P(0) modulo the plaintext modulus; not 0."""
        z, found = (2 * self.pairs + 1) ** 2 - self.shift, 1
        for group in self.groups:
            for root in group:
                found = found * (z - root) % modulus
        return found


def coefficients(roots: tuple[int, ...]) -> list[int]:
    """Of the monic polynomial with these roots, highest power first."""
    found = [1]
    for root in roots:
        found = [a - root * b for a, b in zip([*found, 0], [0, *found], strict=True)]
    return found


def vanishing(contributors: int) -> Vanishing:
    """The plan with the fewest relinearisations for so many contributors, at least 1."""
    pairs = (contributors + 1) // 2
    if pairs > _MANY:
        return _planned_for_many(-(-pairs // 4) * 4)
    plans = [_planned(pairs, size) for size in GROUPS if size == 1 or pairs >= size]
    return min(plans, key=lambda plan: plan.products)


def _planned(pairs: int, size: int) -> Vanishing:
    roots = [(2 * k - 1) ** 2 for k in range(1, pairs + 1)]
    shift = round(sum(roots) / pairs) if size == 4 else 0
    # Those that are left over are the nearest to the mean: the others still balance around it.
    order = sorted((root - shift for root in roots), key=abs)
    left = pairs % size
    rest, dealt = tuple(order[:left]), order[left:]
    groups = _balanced(dealt, size) if size == 4 else _sliced(dealt, size)
    return Vanishing(pairs, shift, (*groups, rest) if rest else tuple(groups))


@functools.lru_cache(maxsize=8)
def _planned_for_many(pairs: int) -> Vanishing:
    roots = [(2 * k - 1) ** 2 for k in range(1, pairs + 1)]
    # Four odd squares are 4 modulo 8, and so is four times an odd number.
    shift = sum(roots) // pairs | 1
    groups = fours([root - shift for root in roots], _ENOUGH)
    return Vanishing(pairs, shift, tuple(groups), _STRETCH)


def _sliced(roots: list[int], size: int) -> list[tuple[int, ...]]:
    return [tuple(roots[i : i + size]) for i in range(0, len(roots), size)]


def _balanced(roots: list[int], size: int) -> list[tuple[int, ...]]:
    """Groups with sums near the mean: exchanges between two groups as long as one helps."""
    groups = [list(each) for each in _sliced(sorted(roots), len(roots) // size)]
    groups = [list(each) for each in zip(*groups, strict=True)]
    mean = sum(roots) / len(groups)

    def best() -> tuple[float, int, int, int, int] | None:
        found = None
        for a in range(len(groups)):
            for b in range(a):
                excess_a, excess_b = sum(groups[a]) - mean, sum(groups[b]) - mean
                for i, x in enumerate(groups[a]):
                    for j, y in enumerate(groups[b]):
                        gain = (
                            excess_a**2
                            + excess_b**2
                            - (excess_a - x + y) ** 2
                            - (excess_b - y + x) ** 2
                        )
                        if gain > 1e-9 and (found is None or gain > found[0]):
                            found = (gain, a, b, i, j)
        return found

    while (move := best()) is not None:
        _, a, b, i, j = move
        groups[a][i], groups[b][j] = groups[b][j], groups[a][i]
    return [tuple(sorted(group)) for group in groups]
