"""Fixed-point codes: exact sums, no wrap, nothing beyond the clip unnoticed."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secure_fl.federation import FederationError
from secure_fl.federation.secagg import FixedPoint

CLIPS = st.floats(1e-3, 1e9)
BITS = st.sampled_from([32, 64])


@given(CLIPS, st.integers(1, 10_000), BITS)
def test_all_clients_at_the_clip_do_not_wrap(clip: float, clients: int, bits: int):
    encoding = FixedPoint(clip, clients, bits)
    codes, outside = encoding.encode(np.array([clip, -clip]))
    assert outside == 0
    largest = encoding.unwrap(codes).tolist()
    assert max(abs(code) for code in largest) * clients < 2 ** (bits - 1)
    total = np.array([code * clients for code in largest], np.int64)
    found = encoding.decode(encoding.wrap(total))
    np.testing.assert_allclose(found, [clients * clip, -clients * clip], rtol=1e-12)


@settings(max_examples=60)
@given(
    CLIPS,
    BITS,
    st.lists(st.lists(st.floats(-1, 1), min_size=3, max_size=3), min_size=1, max_size=20),
)
def test_the_sum_of_codes_is_the_sum_of_rounded_values(
    clip: float, bits: int, rows: list[list[float]]
):
    encoding = FixedPoint(clip, len(rows), bits)
    values = np.array(rows) * clip
    total = np.zeros(3, np.dtype(f"u{bits // 8}"))
    for row in values:
        total = total + encoding.encode(np.clip(row, -clip, clip))[0]
    # The oracle rounds and adds in Python's own numbers.
    factor = encoding.largest / clip
    exact = [sum(round(min(max(v, -clip), clip) * factor) for v in column) for column in values.T]
    assert encoding.unwrap(total).tolist() == exact
    step = Fraction(clip) / encoding.largest
    for found, column in zip(encoding.decode(total), values.T, strict=True):
        error = abs(Fraction(float(found)) - sum(map(Fraction, column.tolist())))
        assert error <= len(rows) * step * Fraction(51, 100) + Fraction(clip) * Fraction(2) ** -45


def test_values_outside_the_clip_are_moved_to_it_and_counted():
    encoding = FixedPoint(1.0, 10)
    codes, outside = encoding.encode(np.array([0.5, 2.0, -1e300, 1.0]))
    assert outside == 2
    assert encoding.decode(codes).tolist() == [0.5, 1.0, -1.0, 1.0]


def test_values_outside_the_clip_can_be_an_error():
    encoding = FixedPoint(1.0, 10, outside="error")
    with pytest.raises(FederationError, match=r"1 of 2 values lie outside the clip 1 \(largest 3"):
        encoding.encode(np.array([0.5, 3.0]))


def test_the_default_clip_keeps_a_fine_step():
    for clients in (10, 200, 2047):
        assert FixedPoint(2.0**20, clients).step == 2.0**-32


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"clip": 0.0}, "clip: found 0.0"),
        ({"clip": np.inf}, "clip: found inf"),
        ({"bits": 16}, "bits: found 16"),
        ({"clients": 0}, "clients: found 0"),
        ({"outside": "wrap"}, "outside: found 'wrap'"),
        ({"bits": 32, "clients": 2**31}, "leave nothing of a modulus of 32 bits"),
    ],
)
def test_what_cannot_be_encoded_is_refused_at_set_up(options: dict, message: str):
    with pytest.raises(FederationError, match=message):
        FixedPoint(**{"clip": 1.0, "clients": 2, **options})
