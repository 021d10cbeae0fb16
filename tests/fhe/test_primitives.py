"""Minimum, maximum, comparison and equality against NumPy, at every width offered."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks._primitives import PRIMITIVES, PrimitiveParameters, compile_primitive
from fhe import InputError
from fhe.code import digits_of
from fhe.digits import base_of

ORACLE = {"less": np.less, "minimum": np.minimum, "maximum": np.maximum, "equality": np.equal}


def _more(bits):
    """A width between those of every day, whose circuit costs seconds."""
    return pytest.param(bits, marks=pytest.mark.slow)


def corner_pairs(bits, count):
    """Both ends, equal values, neighbours, values that differ in one digit, and random ones."""
    rng = np.random.default_rng(bits)
    top = 2**bits - 1
    ends = list(itertools.product((0, 1, top - 1, top), repeat=2))
    values = rng.integers(0, top + 1, count)
    pairs = [*ends, *zip(values, values, strict=True), *zip(values[1:], values, strict=False)]
    pairs += [(v, v ^ (1 << int(rng.integers(bits)))) for v in values.tolist()]
    return np.array(pairs).T


def simulated(name, bits, a, b, failure):
    parameters = PrimitiveParameters(name, bits, len(a), failure)
    function = getattr(compile_primitive(parameters), name)
    return parameters.decode(function.simulate(parameters.encode(a), parameters.encode(b)))


@pytest.mark.parametrize("failure", [40, 128])
@pytest.mark.parametrize("name", PRIMITIVES)
def test_every_pair_of_four_bit_integers_is_right(name, failure):
    a, b = np.array(list(itertools.product(range(16), repeat=2))).T
    np.testing.assert_array_equal(simulated(name, 4, a, b, failure), ORACLE[name](a, b))


@pytest.mark.parametrize("name", PRIMITIVES)
@pytest.mark.parametrize("failure", [40, 128])
@pytest.mark.parametrize("bits", [5, *map(_more, (8, 11, 16)), 24])
def test_corners_and_random_pairs_are_right_at_every_width(name, bits, failure):
    a, b = corner_pairs(bits, 40)
    np.testing.assert_array_equal(simulated(name, bits, a, b, failure), ORACLE[name](a, b))


@pytest.mark.slow
@pytest.mark.parametrize("name", PRIMITIVES)
@pytest.mark.parametrize("bits", [8, 16])
def test_encrypted_pairs_are_right(name, bits):
    a, b = corner_pairs(bits, 20)
    parameters = PrimitiveParameters(name, bits, len(a), 128)
    function = getattr(compile_primitive(parameters), name)
    encrypted = function.encrypt(parameters.encode(a), parameters.encode(b))
    found = parameters.decode(function.decrypt(function.run(*encrypted)))
    np.testing.assert_array_equal(found, ORACLE[name](a, b))


@pytest.mark.parametrize(
    "arguments",
    [
        ("product", 8, 1, 40),
        ("minimum", 3, 1, 40),
        ("minimum", 25, 1, 40),
        ("less", 8, 0, 40),
        ("less", 8, 1, 20),
    ],
)
def test_what_is_not_offered_is_refused(arguments):
    with pytest.raises(InputError):
        PrimitiveParameters(*arguments)


def test_a_value_beyond_its_width_is_refused():
    with pytest.raises(InputError, match="does not fit in 8 bits"):
        PrimitiveParameters("minimum", 8).encode(np.array([256]))


@pytest.mark.parametrize("name", PRIMITIVES)
@pytest.mark.parametrize("bits", [*map(_more, (4, 5)), 8, *map(_more, (14, 16)), 24])
@pytest.mark.parametrize("failure", [40, 128])
def test_an_operation_takes_as_many_lookups_as_the_failure_is_split_over(name, bits, failure):
    """The compiler's own count, so that the union bound of the failure probability holds."""
    parameters = PrimitiveParameters(name, bits, 1, failure)
    function = getattr(compile_primitive(parameters), name)
    assert function.programmable_bootstrap_count == parameters.lookups


@pytest.mark.parametrize(
    ("bits", "failure", "lookups"), [(8, 40, 7), (8, 128, 10), (16, 40, 14), (16, 128, 20)]
)
def test_a_minimum_takes_few_lookups(bits, failure, lookups):
    assert PrimitiveParameters("minimum", bits, 1, failure).lookups == lookups


@pytest.mark.parametrize("failure", [40, 128])
def test_every_pair_of_eight_bit_integers_has_the_right_minimum(failure):
    """The last place has all 2^w values, so its index takes every value from -2^w + 1 to 2^w."""
    a, b = np.array(list(itertools.product(range(256), repeat=2))).T
    parameters = PrimitiveParameters("minimum", 8, 2048, failure)
    function = compile_primitive(parameters).minimum
    for start in range(0, len(a), 2048):
        pair = a[start : start + 2048], b[start : start + 2048]
        found = function.simulate(*map(parameters.encode, pair))
        np.testing.assert_array_equal(parameters.decode(found), np.minimum(*pair))


@given(st.integers(4, 24), st.sampled_from([40, 128]), st.data())
def test_mixed_radices_keep_the_order_in_as_many_digits_as_the_base_takes(bits, failure, data):
    values = data.draw(st.lists(st.integers(0, 2**bits - 1), min_size=1, max_size=9))
    parameters = PrimitiveParameters("minimum", bits, len(values), failure)
    width, base = parameters.width, base_of(parameters.width)
    assert math.prod(parameters.radices) >= 2**bits
    assert parameters.radices[0] <= 2**width
    assert all(radix <= max(base, 2 ** (width - 1)) for radix in parameters.radices[1:])
    digits = parameters.encode(np.array(values))
    assert digits.shape == (len(values), digits_of(2**bits, base))
    assert 0 <= digits.min() <= digits.max() < base
    assert parameters.decode(digits).tolist() == values
    # The first digit that differs tells digits apart, as it does integers.
    assert sorted(digits.tolist()) == parameters.encode(np.sort(values)).tolist()
