"""Minimum, maximum, comparison and equality against NumPy, at every width offered."""

import itertools

import numpy as np
import pytest

from fhe import InputError
from fhe.primitives import PRIMITIVES, PrimitiveParameters, compile_primitive

ORACLE = {"less": np.less, "minimum": np.minimum, "maximum": np.maximum, "equality": np.equal}


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
@pytest.mark.parametrize("bits", [5, 8, 11, 16, 24])
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
@pytest.mark.parametrize("bits", [4, 5, 8, 14, 16, 24])
@pytest.mark.parametrize("failure", [40, 128])
def test_an_operation_takes_as_many_lookups_as_the_failure_is_split_over(name, bits, failure):
    """The compiler's own count, so that the union bound of the failure probability holds."""
    parameters = PrimitiveParameters(name, bits, 1, failure)
    function = getattr(compile_primitive(parameters), name)
    assert function.programmable_bootstrap_count == parameters.lookups


@pytest.mark.parametrize(("failure", "lookups"), [(40, 8), (128, 12)])
def test_a_minimum_of_eight_bits_takes_few_lookups(failure, lookups):
    assert PrimitiveParameters("minimum", 8, 1, failure).lookups == lookups
