"""Tables draw what their cumulative probabilities say, in every branch."""

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from mpmath import mp, mpf
from scipy.stats import chisquare

from dp.exact import Table, context, exp_minus, os_randomness, uniform_below


def cumulative(j: int, digits: int) -> Decimal:
    """1 - exp(-(j + 1) / 3): transcendental, as every distribution here."""
    return context(digits).subtract(Decimal(1), exp_minus(Fraction(j + 1, 3), digits))


@pytest.mark.parametrize(("guide_bits", "word_bits"), [(1, 2), (3, 5), (4, 64), (16, 17), (16, 64)])
def test_every_prefix_length_gives_the_same_distribution(guide_bits: int, word_bits: int):
    """Short prefixes leave most draws to the branches that a 64-bit prefix hardly ever takes."""
    table = Table(6, cumulative, guide_bits=guide_bits, word_bits=word_bits)
    n = 20_000
    drawn = table.draw(n, os_randomness)
    edges = [0.0] + [1 - math.exp(-(j + 1) / 3) for j in range(6)] + [1.0]
    counts = np.bincount(drawn, minlength=7)
    assert chisquare(counts, np.diff(edges) * n).pvalue > 1e-6


def test_a_draw_follows_the_binary_digits_of_the_uniform_number():
    """With a source that spells out U, the outcome is the number of thresholds at or below U."""
    mp.prec = 300
    rng = np.random.default_rng(0)
    table = Table(6, cumulative, guide_bits=3, word_bits=5)
    edges = [1 - mp.exp(-mpf(j + 1) / 3) for j in range(6)]
    for _ in range(300):
        used: list[bytes] = []

        def source(n: int, used: list[bytes] = used) -> bytes:
            used.append(rng.bytes(n))
            return used[-1]

        outcome = int(table.draw(1, source)[0])
        u = mpf(int.from_bytes(used[0], "little") >> 13) / 8
        width = 3
        if len(used) > 1:
            u += mpf(int.from_bytes(used[1], "little") >> 62) / 32
            width = 5
        for extra in used[2:]:
            width += 32
            u += mpf(int.from_bytes(extra, "little")) / mpf(2) ** width
        # Any continuation of the digits gives the same answer.
        last = u + (1 - mpf(2) ** -200) / mpf(2) ** width
        assert sum(edge <= u for edge in edges) == outcome
        assert sum(edge <= last for edge in edges) == outcome


def test_floors_agree_with_another_library():
    mp.prec = 400
    table = Table(1, cumulative)
    for j in (0, 3, 40, 100):
        for bits in (16, 64, 200):
            value = (1 - mp.exp(-mpf(j + 1) / 3)) * mpf(2) ** bits
            assert table.floor(j, bits) == int(mp.floor(value))


@pytest.mark.parametrize("bound", [1, 2, 3, 7, 256, 1000])
def test_uniform_integers_are_uniform(bound: int):
    drawn = uniform_below(bound, 100_000, os_randomness)
    assert drawn.min() >= 0
    assert drawn.max() < bound
    if bound > 1:
        assert chisquare(np.bincount(drawn, minlength=bound)).pvalue > 1e-6
