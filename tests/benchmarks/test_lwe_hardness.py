"""The estimate of hardness beside published ones."""

import math

import pytest

from benchmarks.lwe_hardness import ATTACKS, Lwe, binary, core, dual, hybrid, primal, sieve


@pytest.mark.parametrize(("n", "log_q"), [(1024, 27), (2048, 54), (4096, 109)])
def test_parameters_of_the_homomorphic_encryption_standard_have_their_level(n, log_q):
    """Standard of November 2018, table 1: the largest moduli at 128 bits, ternary secrets.

    The table is by the same cost of a reduction; a modulus of one more bit in 27 is worth 4 bits.
    """
    lwe = Lwe(n, log_q, math.sqrt(2 / 3), 8 / math.sqrt(2 * math.pi), 3)
    assert 127.5 <= primal(lwe, sieve)[0] <= 133
    assert 127.5 <= dual(lwe, sieve)[0] <= 139
    more = Lwe(n, log_q * 1.04, math.sqrt(2 / 3), 8 / math.sqrt(2 * math.pi), 3)
    assert primal(more, sieve)[0] < 128


def test_the_block_size_for_kyber512_is_the_published_one():
    """Lattice estimator, `primal_usvp(schemes.Kyber512)`: block size 406; 0.292 of it in bits."""
    lwe = Lwe(512, math.log2(3329), math.sqrt(1.5), math.sqrt(1.5), None)
    bits, beta = primal(lwe, core)
    assert abs(beta - 406) <= 1
    assert bits == pytest.approx(0.292 * 406, abs=0.3)


def test_a_binary_secret_is_as_hard_as_published():
    """Lattice estimator, issue 87: n 384, q 2^7, errors of deviation 2: 161.8 bits, block 456."""
    bits, beta = primal(Lwe(384, 7, 0.5, 2.0), sieve)
    assert abs(beta - 456) <= 5
    assert bits == pytest.approx(161.8, abs=2)


def test_dual_attacks_need_about_the_published_block_sizes():
    """Lattice estimator, n 1024, q 2^32, binary, deviation 3: dual 264, hybrid 250 (its cost model
    for short vectors is another one)."""
    lwe = Lwe(1024, 32, 0.5, 3.0)
    assert dual(lwe, sieve)[1] == pytest.approx(264, rel=0.06)
    assert hybrid(lwe, sieve)[1] == pytest.approx(250, rel=0.06)
    assert hybrid(lwe, sieve)[0] <= dual(lwe, sieve)[0]


@pytest.mark.parametrize("attack", ATTACKS)
def test_more_noise_is_never_easier(attack):
    found = [ATTACKS[attack](binary(2048, 2.0**-exponent), sieve)[0] for exponent in (50, 48, 44)]
    assert found == sorted(found)
