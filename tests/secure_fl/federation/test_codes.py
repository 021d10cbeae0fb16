"""Packed codes: what is packed comes back, in the bits that it says."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secure_fl.federation import (
    Client,
    Federation,
    FederationError,
    PackedCodes,
    PrivacyError,
    SecureAggregation,
    Tree,
    client_step,
    wire,
)
from secure_fl.federation.codes import LINEAR, POWERS, decoded
from secure_fl.federation.trees import flatten, is_finite, unflatten


@given(
    st.integers(2, 17).flatmap(
        lambda bits: st.tuples(
            st.just(bits),
            st.lists(st.integers(-(2 ** (bits - 1)) + 1, 2 ** (bits - 1) - 1), max_size=40),
        )
    ),
    st.sampled_from([0.0, 0.37, 1e300]),
)
def test_packed_codes_come_back_and_take_their_bits(
    packed: tuple[int, list[int]], scale: float
) -> None:
    bits, codes = packed
    leaf = PackedCodes.of(np.array(codes, float), bits, scale)
    assert np.array_equal(leaf.dense(), scale * np.array(codes, float))
    assert len(leaf.data) == -(-bits * len(codes) // 8)


def test_powers_reach_from_the_smallest_normal_number_to_the_largest_power() -> None:
    codes = np.array([0, 1, -1, 1023, -1024, 2046])
    wanted = [0.0, 2.0**-1022, -(2.0**-1022), 1.0, -2.0, 2.0**1023]
    assert np.array_equal(decoded(codes, 1.0, POWERS), wanted)
    assert np.array_equal(PackedCodes.of(codes, 12, 1.0, POWERS).dense(), wanted)


@pytest.mark.parametrize("kind", [LINEAR, POWERS])
def test_codes_survive_the_wire_and_are_measured(kind: str) -> None:
    leaf = PackedCodes.of(np.array([3.0, -2.0, 0.0, 1.0, 5.0]), 5, 0.25, kind)
    data = wire.encode(leaf)
    assert np.array_equal(wire.decode(data).dense(), leaf.dense())
    structure, leaves = flatten(leaf)
    assert wire.measure_tree(structure, leaves) == wire.measure(leaf)
    assert wire.measure(leaf)[0] == len(data)
    assert unflatten(structure, leaves) is leaf
    assert structure.text() == "quantised float64(5,)"
    assert not is_finite(PackedCodes.of(np.ones(2), 2, np.inf))


@client_step
def codes(client: Client) -> Tree:
    return PackedCodes.of(np.arange(3.0), 4, float(client.targets[0]))


def test_a_sum_of_codes_is_the_sum_of_vectors_and_masks_refuse_them() -> None:
    clients = [Client(f"c{i}", np.zeros((1, 1)), np.array([1.0 + i])) for i in range(3)]
    assert np.array_equal(Federation(clients).sum(codes), [0.0, 6.0, 12.0])
    with pytest.raises(PrivacyError, match="codes do not add up"):
        Federation(clients, aggregation=SecureAggregation()).sum(codes)


@pytest.mark.parametrize(
    "parts",
    [
        (np.zeros(2, np.uint8), 5, 5, 1.0, LINEAR),
        (np.zeros(4, np.int64), 5, 5, 1.0, LINEAR),
        (np.zeros(1, np.uint8), 1, 5, 1.0, LINEAR),
        (np.zeros(4, np.uint8), 5, 5, 1.0, "cubes"),
    ],
)
def test_parts_that_do_not_fit_are_refused(parts: Any) -> None:
    with pytest.raises(FederationError, match="quantised"):
        PackedCodes(*parts)
