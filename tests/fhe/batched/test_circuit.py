"""The batched circuit in the clear, against the rule in plain arithmetic."""

import itertools

import attrs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import fhe
from fhe.batched import circuit
from fhe.batched.chain import MODULUS
from fhe.batched.clear import Clear, Slots, decide_in_the_clear
from fhe.batched.fours import fours
from fhe.batched.layout import Half
from fhe.batched.vanishing import GROUPS, _planned, coefficients, vanishing


def lowest_class(codes):
    """The class of the smallest code, the lowest among ties: by looking at one pair at a time."""
    found = []
    for table in codes:
        pairs = [(code, label) for row in table for label, code in enumerate(row)]
        found.append(min(pairs)[1])
    return found


def parameters(contributors, classes, bits, step, high, low, degree=32768):
    return fhe.BatchedParameters(
        contributors=contributors,
        classes=classes,
        bits=bits,
        degree=degree,
        step=step,
        high_columns=high,
        low_columns=low,
    )


EVERY_DAY = {
    1,
    2,
    3,
    4,
    7,
    8,
    9,
    16,
    31,
    32,
    33,
    63,
    64,
    65,
    100,
    123,
    127,
    128,
    129,
    181,
    200,
    256,
}
"""Contributors whose circuits are run every day; all of them by `make test-all`.

123 had a first prime that left the answer no base, 181 a constant of 64 bits.
"""


@pytest.mark.parametrize(("step", "high", "low"), [(4, 2, 4), (1, 4, 2), (2, 3, 3), (5, 2, 6)])
def test_every_table_of_three_clients_classes_and_levels(tables, step, high, low):
    rule = parameters(3, 3, 4, step, high, low)
    assert fhe.simulate(tables, rule).tolist() == lowest_class(tables)


@pytest.mark.parametrize(
    "contributors",
    [
        pytest.param(each, marks=() if each in EVERY_DAY else pytest.mark.slow)
        for each in range(1, 257)
    ],
)
def test_every_number_of_contributors(contributors):
    rule = parameters(contributors, 5, 6, 6, 4, 6)
    rng = np.random.default_rng(contributors)
    codes = rng.integers(0, 64, (60, contributors, 5))
    codes[:20] = rng.integers(0, 2, (20, contributors, 5))
    codes[20:40] = rng.integers(62, 64, (20, contributors, 5))
    codes[40], codes[41] = 63, 0
    assert fhe.simulate(codes, rule).tolist() == lowest_class(codes)


@given(data=st.data())
@settings(max_examples=60)
def test_every_class_count_width_and_cut(data):
    bits, classes = data.draw(st.integers(4, 8)), data.draw(st.integers(2, 40))
    contributors = data.draw(st.integers(1, 9))
    step = data.draw(st.integers(1, 2**bits // 3))
    high, low = -(-(2**bits) // step), step * classes
    if low < 3:
        step, low = 2, 2 * classes
        high = 2 ** (bits - 1)
    cuts = data.draw(st.integers(2, high - 1)), data.draw(st.integers(2, low - 1))
    rule = parameters(contributors, classes, bits, step, *cuts)
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    codes = rng.integers(0, 2**bits, (20, contributors, classes))
    codes[10:] = rng.integers(0, 2, (10, contributors, classes)) + rng.integers(0, 2**bits - 1)
    assert fhe.simulate(codes, rule).tolist() == lowest_class(codes)


@pytest.mark.parametrize("bits", [9, 10, 11, 12])
def test_wide_codes_with_the_chosen_layout(bits):
    rule = fhe.choose_parameters(4, 20, bits, degree=32768)
    rng = np.random.default_rng(bits)
    codes = rng.integers(0, 2**bits, (40, 4, 20))
    codes[20:] = rng.integers(2**bits - 3, 2**bits, (20, 4, 20))
    assert fhe.simulate(codes, rule).tolist() == lowest_class(codes)


def test_a_thousand_classes():
    rule = fhe.choose_parameters(3, 1000, 4, degree=32768)
    codes = np.random.default_rng(0).integers(12, 16, (20, 3, 1000))
    assert fhe.simulate(codes, rule).tolist() == lowest_class(codes)


@pytest.mark.parametrize("present", [[0], [1, 2], [0, 2]])
def test_neutral_contributors_change_no_answer(rule, tables, present):
    """The largest code of all included: a neutral integer is at least every contributor's."""
    codes = np.concatenate([tables[::7], np.full((1, 3, 3), 15)])
    sent = [rule.layout.neutral(len(codes))] * 3
    for i in present:
        sent[i] = rule.thermometers(codes[:, i])
    found = rule.decode(decide_in_the_clear(sent, rule))
    assert found.tolist() == lowest_class(codes[:, present])


def hostile(bits, kind, rng):
    """A contributor's thermometers made into none, in the second half of the queries."""
    changed = bits.copy()
    part = changed[:, changed.shape[1] // 2 :]
    if kind == "any":
        part[:] = rng.integers(0, MODULUS, part.shape)
    elif kind == "twice":
        part *= 2
        part[0] += part[0] == 0
    elif kind == "hole":
        part[-2:] = [[1], [0]]
    elif kind == "all but one":
        part[-1] = MODULUS - 1
    return changed


@pytest.mark.parametrize("kind", ["any", "twice", "hole", "all but one"])
def test_thermometers_that_are_none_make_their_own_answers_uniform(rule, tables, kind):
    """Uniform whatever the others sent, and the other queries are answered right.

    So it chooses no answer, and the querier learns from it neither codes nor ties.
    """
    rng = np.random.default_rng(0)
    sent = [rule.thermometers(tables[:, i]) for i in range(3)]
    sent[1] = hostile(sent[1], kind, rng)
    slots = decide_in_the_clear(sent, rule)
    half = len(tables) // 2
    assert rule.decode(slots[:half]).tolist() == lowest_class(tables[:half])
    assert stats.kstest(slots[half:] / MODULUS, "uniform").pvalue > 1e-6


def test_two_contributors_cannot_undo_each_others_malformed_thermometers(rule, tables):
    """Opposite violations would cancel under masks that contributors share."""
    sent = [rule.thermometers(tables[:, i]) for i in range(3)]
    for i, value in ((0, 3), (1, MODULUS - 2)):
        sent[i][0] = value
    assert stats.kstest(decide_in_the_clear(sent, rule) / MODULUS, "uniform").pvalue > 1e-6


@pytest.mark.parametrize("radix", [2, 3, 4])
def test_malformed_is_nonzero_for_everything_that_is_no_thermometer(radix):
    """All bit patterns, and some other values: three draws miss one with t^-3."""
    layout = fhe.BatchedParameters(
        contributors=1,
        classes=3,
        bits=4,
        degree=32768,
        step=2,
        high_columns=radix,
        low_columns=3,
    ).circuit
    count = layout.layout.high.rows - 1
    values = (0, 1, 2, MODULUS - 1)
    patterns = np.array(list(itertools.product(values, repeat=count))[:4096]).T
    right = np.isin(patterns, (0, 1)).all(axis=0) & (np.diff(patterns, axis=0) >= 0).all(axis=0)
    rest = layout.layout.neutral(patterns.shape[1])
    sent = np.concatenate([patterns, rest[count:]])
    rng = np.random.default_rng(0)
    ops = Clear(MODULUS, lambda n: rng.integers(0, MODULUS, n))

    def source(_i, bit, level):
        return Slots(level, sent[bit] * layout.scale_of(bit) % MODULUS)

    drawn = [circuit.malformed(ops, layout, source, 0).values for _ in range(3)]
    assert (np.any(drawn, axis=0) == ~right).all()
    assert right.sum() == count + 1


@pytest.mark.parametrize("contributors", [*range(1, 129), 129, 136, 137, 199, 249, 256])
def test_the_polynomial_tells_0_from_all_counts(contributors):
    others = _plans((contributors + 1) // 2) if contributors <= 128 else ()
    for plan in (vanishing(contributors), *others):
        counts = np.arange(contributors + 1)
        z = (2 * counts - 2 * plan.pairs - 1) ** 2 - plan.shift
        product = [1] * len(counts)
        for group in plan.groups:
            polynomial = coefficients(group)
            for i, each in enumerate(z):
                value = sum(c * int(each) ** k for k, c in enumerate(reversed(polynomial)))
                product[i] = product[i] * value % MODULUS
        assert product[0] == plan.at_zero(MODULUS) != 0
        assert not any(product[1:])


def _plans(pairs):
    return [_planned(pairs, size) for size in GROUPS if pairs >= size]


@pytest.mark.parametrize("contributors", [129, 136, 192, 200, 216, 256])
def test_roots_of_many_contributors_are_in_groups_of_nearly_the_same_sum(contributors):
    """An eighth of a sum multiplies the cube's noise, for which the modulus has no bit to spare."""
    plan = vanishing(contributors)
    assert all(sum(group) % plan.stretch == 0 for group in plan.groups)
    assert max(abs(sum(group)) for group in plan.groups) <= 10 * plan.stretch


def test_fours_take_every_number_once():
    numbers = [(2 * k - 1) ** 2 - 1361 for k in range(1, 33)]
    found = fours(numbers, 16)
    assert sorted(itertools.chain(*found)) == sorted(numbers)
    assert {len(each) for each in found} == {4}


def test_a_layout_without_a_number_in_every_row_is_refused():
    with pytest.raises(fhe.InputError, match="layout: 4 numbers in 4 x 2"):
        Half(4, 4, 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"contributors": 257}, "takes up to 256 contributors, found 257; choose --engine tfhe"),
        ({"bits": 13}, "takes up to 12 code bits, found 13"),
        ({"classes": 1}, "classes, found 1"),
        ({"degree": 8192}, "degree, found 8192"),
        ({"step": 0}, "does not offer step 0"),
        ({"high_columns": 1}, "layout: "),
        ({"classes": 65536, "step": 5}, "would count"),
    ],
)
def test_what_the_engine_does_not_offer_is_refused(rule, change, message):
    with pytest.raises(fhe.InputError, match=message):
        attrs.evolve(rule, **change)
