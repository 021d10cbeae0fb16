"""Residues in as many bits as their primes have."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fhe.batched.packing import pack, packed_bytes, unpack
from fhe.errors import FormatError


@given(data=st.data())
@settings(max_examples=50)
def test_what_is_packed_comes_back(data):
    primes = data.draw(st.lists(st.integers(2**20, 2**60), min_size=1, max_size=4))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    residues = np.stack(
        [rng.integers(0, prime, (2, 256), dtype=np.uint64) for prime in primes], axis=1
    )
    packed = pack(residues, primes)
    assert len(packed) == packed_bytes(primes, 256, 2)
    assert (unpack(packed, primes, 256, 2) == residues).all()
    fewer = primes[:1]
    start = packed[: packed_bytes(fewer, 256, 2)]
    assert (unpack(start, fewer, 256, 2) == residues[:, :1]).all()


def test_bits_are_where_the_format_says():
    """Residue j n / 64 + r takes bits j w.. of the words that the planes have at r."""
    width, degree = 37, 128
    residues = np.random.default_rng(0).integers(0, 2**37 - 25, (1, 1, degree), dtype=np.uint64)
    planes = np.frombuffer(pack(residues, (2**37 - 25,)), "<u8").reshape(width, degree // 64)
    for r in range(degree // 64):
        joined = sum(int(word) << (64 * k) for k, word in enumerate(planes[:, r]))
        for j in range(64):
            expected = int(residues[0, 0, j * degree // 64 + r])
            assert joined >> (width * j) & (2**width - 1) == expected


@pytest.mark.parametrize("change", [-1, 1])
def test_another_length_is_refused(change):
    data = bytes(packed_bytes((2**37 - 25,), 128, 2) + change)
    with pytest.raises(FormatError, match="bytes of residues, expected 1184"):
        unpack(data, (2**37 - 25,), 128, 2)


def test_a_residue_that_is_not_below_its_prime_is_refused():
    prime = 2**37 - 25
    residues = np.zeros((2, 1, 128), np.uint64)
    residues[1, 0, 77] = prime
    with pytest.raises(FormatError, match="not below its prime"):
        unpack(pack(residues, (prime,)), (prime,), 128, 2)
