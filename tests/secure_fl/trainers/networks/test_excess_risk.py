"""FedAvgR's theorems 1 to 4 against their printed formulas in exact arithmetic, and properties."""

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secure_fl.trainers.networks import excess_risk as er

mp = mpmath.MPContext()
mp.dps = 40

numbers = st.floats(0.0, 50.0)
deltas = st.floats(1e-6, 0.999)


@st.composite
def federations(draw):
    """Hypotheses, a sample of unequal clients with any weights, and discrepancies."""
    count = draw(st.integers(1, 5))
    sizes = draw(st.lists(st.integers(1, 5000), min_size=count, max_size=count))
    norms = draw(st.lists(numbers, min_size=count, max_size=count))
    weights = [
        draw(st.none() | st.lists(st.floats(0.01, 1), min_size=count, max_size=count))
        for _ in range(2)
    ]
    shares = [None if each is None else [p / sum(each) for p in each] for each in weights]
    space = er.Hypotheses(draw(st.integers(1, 10)), *(draw(numbers) for _ in range(2)), 3.5)
    apart = draw(st.lists(numbers, min_size=count, max_size=count))
    return space, er.Sample(sizes, norms, *shares), draw(numbers), apart, draw(deltas)


def printed(space, sample, discrepancy, apart, delta):
    """A_1, A_2, A_3 and G_1, G_2, G_3 as the paper prints them."""
    n = mp.mpf(sum(sample.sizes))
    shares = [k / n for k in sample.sizes]
    p, q = (
        shares if each is None else [mp.mpf(x) for x in each]
        for each in (sample.weights, sample.estimated)
    )
    C, B, lam, M = (
        mp.mpf(x) for x in (space.classes, space.trace, space.lipschitz, space.largest_loss)
    )
    chi = sum((a - b) ** 2 / b for a, b in zip(q, shares, strict=True))
    front, log = 4 * mp.sqrt(2) * lam * B * mp.sqrt(C), mp.log(2 / mp.mpf(delta))
    clients = list(zip(sample.sizes, map(mp.mpf, sample.features), apart, p, q, strict=True))
    pooled = mp.sqrt(sum(f**2 for _, f, *_ in clients))
    a1 = (
        2 * mp.mpf(discrepancy)
        + sum(w / k * front * f for k, f, _, _, w in clients)
        + 6 * M * mp.sqrt((chi + 1) * log / (2 * n))
    )
    a2 = sum(w * (d + front / k * f + 6 * M * mp.sqrt(log / (2 * k))) for k, f, d, w, _ in clients)
    a3 = front / n * pooled + 3 * M * mp.sqrt(log / (2 * n))
    g1 = (
        discrepancy
        + sum(w * B * mp.sqrt(C) / k * f for k, f, _, _, w in clients)
        + mp.sqrt((chi + 1) / n)
    )
    g2 = B * mp.sqrt(C) / n * pooled + mp.sqrt(1 / n)
    g3 = sum(w * (d + B * mp.sqrt(C) / k * f + mp.sqrt(mp.mpf(1) / k)) for k, f, d, w, _ in clients)
    return a1, a2, a3, g1, g2, g3


@settings(max_examples=60)
@given(federations())
def test_the_bounds_are_the_printed_formulas(case):
    space, sample, discrepancy, apart, delta = case
    g = er.terms(space, sample, discrepancy=discrepancy, discrepancies=apart)
    found = (
        er.agnostic_error(space, sample, discrepancy=discrepancy, delta=delta),
        er.federated_error(space, sample, discrepancies=apart, delta=delta),
        er.approximation_error(space, sample, delta=delta),
        g.agnostic,
        g.approximation,
        g.federated,
    )
    expected = [float(each) for each in printed(space, sample, discrepancy, apart, delta)]
    assert found == pytest.approx(expected, rel=1e-9)
    assert g.total == pytest.approx(sum(expected[3:]), rel=1e-9)
    thirds = printed(space, sample, discrepancy, apart, delta / 3)[:3]
    whole = er.excess_risk(space, sample, discrepancy=discrepancy, discrepancies=apart, delta=delta)
    assert whole == pytest.approx(float(sum(thirds)), rel=1e-9)


def bound(space, sample, discrepancy, apart, delta):
    return er.excess_risk(space, sample, discrepancy=discrepancy, discrepancies=apart, delta=delta)


@settings(max_examples=40)
@given(federations(), st.floats(1.01, 3.0))
def test_more_records_help_and_all_else_that_grows_hurts(case, factor):
    """The records grow without their features' norms, which theorem 4 constrains by themselves."""
    space, sample, discrepancy, apart, delta = case
    base = bound(space, sample, discrepancy, apart, delta)
    sizes, norms = list(sample.sizes), [factor * f for f in sample.features]
    shares = sample.p.tolist(), sample.p_hat.tolist()
    more = er.Sample([2 * n for n in sizes], sample.features, *shares)
    assert bound(space, more, discrepancy, apart, delta) < base
    assert bound(space, sample, factor * discrepancy, apart, delta) >= base
    assert bound(space, sample, discrepancy, [factor * d for d in apart], delta) >= base
    longer = er.Sample(sizes, norms, sample.weights, sample.estimated)
    assert bound(space, longer, discrepancy, apart, delta) >= base
    for name in ("trace", "lipschitz", "largest_loss"):
        own = {each: getattr(space, each) for each in ("trace", "lipschitz", "largest_loss")}
        grown = er.Hypotheses(space.classes, **{**own, name: factor * own[name]})
        assert bound(grown, sample, discrepancy, apart, delta) >= base
    assert bound(space, sample, discrepancy, apart, delta / factor) > base


@settings(max_examples=40)
@given(st.integers(1, 40), st.integers(1, 4000), st.integers(1, 10), numbers, numbers)
def test_equal_clients_that_agree_have_the_rate_of_distributed_learning(count, n, C, B, kappa):
    """Section 3.2: kappa B sqrt(K C / n) beside sqrt(K / n); with one client the central rate."""
    sample = er.Sample([n] * count, [kappa * n**0.5] * count)
    nothing = {"discrepancy": 0.0, "discrepancies": [0.0] * count}
    found = er.terms(er.Hypotheses(C, B), sample, **nothing)
    rate = (kappa * B * C**0.5 + 1) * (1 / n) ** 0.5
    assert found.federated == pytest.approx(rate, rel=1e-9)
    assert max(found.agnostic, found.approximation) <= rate * (1 + 1e-9)
    assert found.approximation == pytest.approx(rate / count**0.5, rel=1e-9)
    alone = er.terms(
        er.Hypotheses(C, B),
        er.Sample([count * n], [kappa * (count * n) ** 0.5]),
        discrepancy=0.0,
        discrepancies=[0.0],
    )
    same = alone.agnostic, alone.federated
    assert same == pytest.approx([found.approximation] * 2, rel=1e-9)


@settings(max_examples=40)
@given(federations())
def test_weights_by_shares_have_the_least_skewness(case):
    _, sample, *_ = case
    shares = (sample.n / sample.total).tolist()
    assert er.skewness(shares, sample.sizes) == pytest.approx(1.0)
    assert er.skewness(sample.p_hat.tolist(), sample.sizes) >= 1 - 1e-9


def test_skewness_by_hand():
    assert er.skewness([0.5, 0.5], [10, 30]) == pytest.approx(4 / 3)


SPACE, SAMPLE = er.Hypotheses(3, 1.0), er.Sample([5, 7], [1.0, 2.0])


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: er.Hypotheses(0, 1.0), "classes: found 0, expected at least 1"),
        (
            lambda: er.Hypotheses(2, -1.0),
            "trace: found -1.0, expected a finite number of at least 0",
        ),
        (
            lambda: er.Hypotheses(2, 1.0, largest_loss=0.0),
            "largest_loss: found 0.0, expected a finite number above 0",
        ),
        (lambda: er.Sample([], []), r"sizes: found \[\], expected counts of at least 1"),
        (lambda: er.Sample([3, 0], [1, 1]), r"sizes: found \[3, 0\], expected counts of at least"),
        (lambda: er.Sample([3, 4], [1.0]), "features: found 1, expected 2, one a client"),
        (lambda: er.Sample([3], [np.nan]), "features: found nan, expected a finite number of at"),
        (
            lambda: er.Sample([3, 4], [1.0, 1.0], [0.5, 0.4]),
            "weights: found the sum 0.9, expected 1",
        ),
        (
            lambda: er.Sample([3, 4], [1.0, 1.0], None, [1.5, -0.5]),
            "estimated: found -0.5, expected a finite number of at least 0",
        ),
        (
            lambda: er.agnostic_error(SPACE, SAMPLE, discrepancy=-1, delta=0.1),
            "discrepancy: found -1, expected a finite number of at least 0",
        ),
        (
            lambda: er.federated_error(SPACE, SAMPLE, discrepancies=[1.0], delta=0.1),
            "discrepancies: found 1, expected 2, one a client",
        ),
        (
            lambda: er.approximation_error(SPACE, SAMPLE, delta=1.0),
            r"delta: found 1.0, expected inside \(0, 1\)",
        ),
        (
            lambda: bound(SPACE, SAMPLE, 0.0, [0.0, 0.0], 2.0),
            r"delta: found 2.0, expected inside \(0, 1\)",
        ),
    ],
)
def test_what_is_out_of_range_is_refused(call, text):
    with pytest.raises(ValueError, match=f"^{text}"):
        call()
