"""Noise in the sum: how much, booked before it is drawn, and never less than promised."""

import itertools
import math
from pathlib import Path

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp import Budget, BudgetError, Event, Ledger, Membership, Promise, Record, compose
from dp.accounting import Gaussian
from secure_fl.federation import (
    ClientPrivacy,
    Federation,
    PrivacyError,
    QuorumError,
    ScriptedDropOuts,
    SecureAggregation,
    Stage,
    calibrate,
)
from secure_fl.federation.noises import distributed_multiplier
from secure_fl.federation.privacy import (
    UNIT,
    Accountant,
    Grid,
    NoiseSource,
    PrivateEncoding,
)
from tests.secure_fl.federation import steps
from tests.secure_fl.federation.conftest import make_clients

BOTH = pytest.mark.parametrize(
    "aggregation", [None, SecureAggregation()], ids=["central", "secure"]
)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.create(tmp_path / "ledger.jsonl", "trial")


def private(ledger: Ledger, n: int = 5, **options) -> Federation:
    privacy = ClientPrivacy(
        options.pop("clip", 1.0),
        options.pop("noise_multiplier", 1.0),
        options.pop("sums", 50),
        ledger,
        colluding=options.pop("colluding", 0),
        noise=options.pop("noise", "gaussian"),
    )
    return Federation(make_clients(n), privacy=privacy, **options)


# ------------------------------------------------------------------------------------------- noise


@BOTH
def test_the_noise_has_the_promised_scale(ledger: Ledger, aggregation: SecureAggregation | None):
    """Under secure aggregation all 6 of at least 5 survive, so the noise is sqrt(6/5) as large."""
    fed = private(ledger, 6, aggregation=aggregation, clip=2.0, noise_multiplier=1.5)
    size = 20_000
    noise = fed.sum(steps.constant, np.zeros(size))
    expected = 1.5 * 2.0 * (1.0 if aggregation is None else math.sqrt(6 / 5))
    # Five standard errors of a standard deviation.
    assert abs(noise.std() / expected - 1) < 5 / math.sqrt(2 * size)
    assert abs(noise.mean()) < 5 * expected / math.sqrt(size)


def test_the_fewest_survivors_still_leave_the_promised_noise(ledger: Ledger):
    lost = ScriptedDropOuts({"a": Stage.MASK, "b": Stage.MASK})
    fed = private(ledger, 6, aggregation=SecureAggregation(), drop_outs=lost, threshold=4)
    noise = fed.sum(steps.constant, np.zeros(20_000))
    assert abs(noise.std() - 1.0) < 5 / math.sqrt(40_000)


def test_colluding_survivors_are_made_up_for(ledger: Ledger):
    fed = private(ledger, 6, aggregation=SecureAggregation(), colluding=3, threshold=4)
    noise = fed.sum(steps.constant, np.zeros(20_000))
    assert abs(noise.std() / math.sqrt(6) - 1) < 5 / math.sqrt(40_000)
    with pytest.raises(PrivacyError, match="leave no honest one"):
        private(ledger, 6, aggregation=SecureAggregation(), colluding=5).sum(
            steps.constant, np.zeros(2)
        )


@BOTH
def test_the_server_sees_no_vector_without_noise(
    ledger: Ledger, aggregation: SecureAggregation | None
):
    fed = private(ledger, aggregation=aggregation)
    first, second = (fed.sum(steps.constant, np.zeros(50)) for _ in range(2))
    assert not np.array_equal(first, second)
    assert np.count_nonzero(first) == 50


def test_the_same_message_repeats_its_noise_and_no_other_does():
    """So that a resumed run reveals what it had revealed, and nothing besides."""
    source, codes = NoiseSource(), np.arange(100)
    first = source.draw(10.0, codes, b"sum 1")
    assert np.array_equal(first, source.draw(10.0, codes, b"sum 1"))
    assert np.array_equal(first, NoiseSource(source.secret).draw(10.0, codes, b"sum 1"))
    other = codes.copy()
    other[3] += 1
    for draw in (
        source.draw(10.0, codes, b"sum 2"),
        source.draw(10.0, other, b"sum 1"),
        NoiseSource().draw(10.0, codes, b"sum 1"),
    ):
        assert np.count_nonzero(draw == first) < 30


# -------------------------------------------------------------------------------------------- clip


@settings(max_examples=100)
@given(
    st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=30),
    st.floats(1e-6, 1e6),
)
def test_a_placed_update_never_exceeds_the_clip(values: list[float], clip: float):
    grid = Grid(clip, 2**24)
    codes, clipped = grid.place(np.array(values))
    assert sum(code * code for code in codes.tolist()) <= 2**48
    norm = mpmath.norm(mpmath.matrix(values))
    assert clipped == (norm > clip) or abs(norm / clip - 1) < 1e-12
    if not clipped:
        assert np.abs(grid.values(codes) - values).max() <= clip * 2.0**-23


def test_a_long_update_keeps_its_direction(ledger: Ledger):
    fed = private(ledger, 4, clip=5.0, noise_multiplier=1e-4)
    found = fed.sum(steps.constant, np.array([300.0, 400.0]))
    np.testing.assert_allclose(found, [12.0, 16.0], atol=0.01)
    assert fed.outside == dict.fromkeys("abcd", 1)


def test_the_whole_tree_is_clipped(ledger: Ledger):
    fed = private(ledger, 1, clip=1.0, noise_multiplier=1e-4)
    found = fed.sum(steps.constant, {"x": np.array([3.0]), "y": (np.array([[4.0]]),)})
    np.testing.assert_allclose([found["x"][0], found["y"][0][0, 0]], [0.6, 0.8], atol=0.01)


def test_a_private_mean_divides_by_the_public_count(ledger: Ledger):
    lost = ScriptedDropOuts({"a": Stage.MASK})
    fed = private(ledger, 5, noise_multiplier=1e-4, drop_outs=lost)
    found = fed.mean(steps.constant, np.array([0.5]))
    assert found[0] == pytest.approx(0.5 * 4 / 5, abs=1e-3)


@given(st.integers(2, 500), st.sampled_from([32, 64]), st.floats(0.1, 50))
def test_updates_and_noise_fit_the_modulus(clients: int, bits: int, multiplier: float):
    try:
        grid = Grid.fitting(1.0, clients, bits, lambda steps: multiplier * steps * clients**0.5)
    except PrivacyError:
        assert bits == 32
        return
    assert clients * grid.steps + 12 * multiplier * grid.steps * clients**0.5 < 2 ** (bits - 1)


# ------------------------------------------------------------------------------------------- books


def test_parts_are_worth_continuous_noise_of_their_variance():
    found = distributed_multiplier(16.0, 400.0, 25, 30, 1000)
    assert found == pytest.approx(math.sqrt(25) * 400.0 / 16.0, rel=1e-5)
    assert found < math.sqrt(25) * 400.0 / 16.0


def test_noise_on_a_grid_that_is_too_coarse_is_refused():
    with pytest.raises(PrivacyError, match=r"3\.9 grid steps, at least 4 are needed"):
        distributed_multiplier(2.0, 3.9, 10, 12, 100)


@BOTH
def test_every_sum_is_booked(ledger: Ledger, aggregation: SecureAggregation | None):
    fed = private(ledger, 6, aggregation=aggregation, noise_multiplier=3.0)
    for _ in range(2):
        fed.sum(steps.drawn)
        fed.mean(steps.drawn)
        fed.close_round()
    assert len(ledger.events) == 4
    assert all(event.adjacency == UNIT for event in ledger.events)
    expected = compose([], [Gaussian(3.0, steps=4)], 1e-5)
    assert fed.spent is not None
    assert fed.spent.epsilon == pytest.approx(expected.epsilon, rel=1e-9)
    line = fed.privacy_statement()
    assert f"epsilon {expected.epsilon:.4g} at delta 1e-05 per client" in line
    assert "4 private sums" in line


def test_a_sum_is_booked_before_its_noise_is_drawn(ledger: Ledger, monkeypatch: pytest.MonkeyPatch):
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(NoiseSource, "draw", stop)
    with pytest.raises(KeyboardInterrupt):
        private(ledger).sum(steps.drawn)
    assert len(ledger.events) == 1


def test_a_resumed_run_books_what_it_asks_anew_and_nothing_twice(ledger: Ledger):
    session = bytes(range(16))
    options = ClientPrivacy(1.0, 1.0, 9, ledger)
    first = Accountant(options, session)
    first.book(0, 0, "m:step", b"one" * 11, 1.0)
    again = Accountant(options, session)
    again.book(0, 0, "m:step", b"one" * 11, 1.0)
    assert len(ledger.events) == again.booked == 1
    for changed in (
        (1, 0, "m:step", b"one" * 11),
        (0, 1, "m:step", b"one" * 11),
        (0, 0, "m:other", b"one" * 11),
        (0, 0, "m:step", b"two" * 11),
    ):
        again.book(*changed, 1.0)
    assert len(ledger.events) == 5
    Accountant(options, bytes(16)).book(0, 0, "m:step", b"one" * 11, 1.0)
    assert len(ledger.events) == 6


# ----------------------------------------------------------------------------------------- skellam


@BOTH
def test_skellam_noise_has_the_size_that_was_asked_and_is_booked_at_whole_orders(
    ledger: Ledger, aggregation: SecureAggregation | None
):
    options = {"noise": "skellam", "noise_multiplier": 5.0, "clip": 2.0, "sums": 40}
    fed = private(ledger, 5, aggregation=aggregation, threshold=4, **options)
    values = np.concatenate([fed.sum(steps.constant, np.zeros(50)) for _ in range(20)])
    least = 5.0 * 2.0 * (math.sqrt(5 / 4) if aggregation else 1.0)
    assert values.std() == pytest.approx(least, rel=0.1)
    event = ledger.events[0].gaussian
    assert event is not None
    assert event.whole_orders
    assert event.noise_multiplier == pytest.approx(5.0, rel=1e-6)
    assert event.noise_multiplier <= 5.0
    again = Ledger.open(ledger.path)
    assert again.events == ledger.events
    spent = fed.spent
    assert spent is not None
    # Fewer orders to choose from: never less than discrete Gaussian noise costs, and hardly more.
    gaussian = compose([], [Gaussian(5.0, steps=20, discrete=True)], 1e-5).epsilon
    assert gaussian <= spent.epsilon < 1.02 * gaussian


def test_skellam_parts_of_small_steps_are_worth_what_the_formula_says(ledger: Ledger):
    """On a coarse grid the bound's second term counts; against the formula by hand."""
    encoding = PrivateEncoding(ClientPrivacy(1.0, 300.0, 1, ledger, noise="skellam"), 3)
    steps_of_clip = encoding.grid.steps
    assert 300 * steps_of_clip <= 2**16 < 600 * steps_of_clip
    variance = 2 * encoding.part_sigma(2) ** 2
    l1 = min(10 * steps_of_clip, steps_of_clip**2)
    extra = min((2 * steps_of_clip**2 + 3 * l1) / (2 * variance**2), 1.5 * l1 / variance)
    expected = 1 / math.sqrt(steps_of_clip**2 / variance + extra)
    assert encoding.part_multiplier(2, 3, 100) == pytest.approx(expected, rel=1e-12)


def test_skellam_budgets_are_kept_to_the_last_sum(tmp_path: Path):
    ledger = Ledger.create(tmp_path / "l", "trial", Budget(2.0, 1e-5, UNIT))
    noise = calibrate(2.0, 1e-5, 3, "skellam")
    assert noise >= calibrate(2.0, 1e-5, 3)
    fed = private(ledger, 5, sums=3, noise_multiplier=noise, noise="skellam")
    for _ in range(3):
        fed.sum(steps.drawn)
    assert fed.spent is not None
    assert 1.99 < fed.spent.epsilon <= 2.0


def test_an_unknown_noise_is_refused(ledger: Ledger):
    with pytest.raises(PrivacyError, match="gaussian, skellam"):
        ClientPrivacy(1.0, 1.0, 1, ledger, noise="laplace")  # type: ignore[arg-type]


def test_too_few_updates_spend_nothing(ledger: Ledger):
    fed = private(ledger, threshold=5)
    with pytest.raises(QuorumError):
        fed.sum(steps.poisoned, ("a",), np.nan)
    assert ledger.events == ()


def test_more_sums_than_planned_are_refused(ledger: Ledger):
    fed = private(ledger, sums=2)
    fed.sum(steps.drawn)
    fed.sum(steps.drawn)
    with pytest.raises(PrivacyError, match="2 private sums were planned"):
        fed.sum(steps.drawn)
    assert len(ledger.events) == 2


@BOTH
def test_a_run_beyond_the_budget_does_not_start(
    tmp_path: Path, aggregation: SecureAggregation | None
):
    ledger = Ledger.create(tmp_path / "l", "trial", Budget(2.0, 1e-5, UNIT))
    enough = calibrate(2.0, 1e-5, 10)
    options = {"noise_multiplier": enough, "aggregation": aggregation}
    with pytest.raises(BudgetError, match="11 sums at noise multiplier"):
        private(ledger, 6, sums=11, **options).sum(steps.drawn)
    assert ledger.events == ()
    fed = private(ledger, 6, sums=10, **options)
    for _ in range(10):
        fed.sum(steps.drawn)
    assert fed.spent is not None
    assert 1.99 < fed.spent.epsilon <= 2.0
    # A second run on the same books has nothing left.
    with pytest.raises(BudgetError):
        private(ledger, 6, sums=1, **options).sum(steps.drawn)
    assert len(ledger.events) == 10


def test_what_others_spent_counts(tmp_path: Path):
    ledger = Ledger.create(tmp_path / "l", "trial", Budget(2.0, 1e-5, UNIT))
    ledger.spend(Event("a release", UNIT, Promise(1.5, 1e-7)))
    with pytest.raises(BudgetError):
        private(ledger, noise_multiplier=calibrate(1.0, 1e-5, 5), sums=5).sum(steps.drawn)
    assert len(ledger.events) == 1


def test_a_budget_in_another_unit_cannot_bind(tmp_path: Path):
    ledger = Ledger.create(tmp_path / "l", "trial", Budget(2.0, 1e-5, Record(1.0)))
    with pytest.raises(PrivacyError, match="keep a ledger for each"):
        private(ledger)


@pytest.mark.parametrize(("epsilon", "sums"), list(itertools.product((0.5, 4.0), (1, 100))))
def test_calibrated_noise_just_keeps_the_budget(epsilon: float, sums: int):
    multiplier = calibrate(epsilon, 1e-6, sums)
    kept = compose([], [Gaussian(multiplier, steps=sums)], 1e-6).epsilon
    less = compose([], [Gaussian(multiplier * 0.999, steps=sums)], 1e-6).epsilon
    assert kept <= epsilon < less


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"clip": 0.0}, "clip: found 0.0"),
        ({"noise_multiplier": math.nan}, "noise_multiplier: found nan"),
        ({"sums": 0}, "sums: found 0"),
        ({"colluding": -1}, "colluding: found -1"),
    ],
)
def test_options_out_of_range(ledger: Ledger, options: dict, message: str):
    with pytest.raises(PrivacyError, match=message):
        private(ledger, **options)


@BOTH
def test_single_values_are_not_to_be_had(ledger: Ledger, aggregation: SecureAggregation | None):
    fed = private(ledger, aggregation=aggregation)
    with pytest.raises(PrivacyError, match="gather"):
        fed.gather(steps.drawn)
    with pytest.raises(PrivacyError, match="sparse"):
        fed.sum(steps.sparse, 5)


def test_a_handle_without_noise_makes_no_statement():
    with pytest.raises(PrivacyError, match="nothing is accounted"):
        Federation(make_clients(1)).privacy_statement()


def test_the_unit_is_a_clients_contribution():
    assert Membership("contribution").unit.startswith("client (one client's contribution")
