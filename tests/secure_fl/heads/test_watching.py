"""Queries like the records are usual; others are not; and only counts are kept."""

import numpy as np
import pytest

from kahm import KAHM, Bank
from secure_fl.errors import InputError
from secure_fl.heads.watching import (
    BINS,
    Watch,
    drift,
    load_watch,
    save_watch,
    usual_measures,
)

DAY = 86_400.0


def batches(rng, n=12, size=10):
    return [rng.normal(size=(size, 4)) for _ in range(n)]


@pytest.fixture(scope="module")
def bank():
    return Bank.fit(batches(np.random.default_rng(0)), [0] * 12, 1, dtype=np.float64)


def queries(bank, rng, n, shift=0.0):
    return bank.measures(rng.normal(size=(n, 4)) + shift, "folding").min(axis=1)


def test_what_is_usual_leaves_each_records_batch_out():
    """Against a loop over machines that are fitted without the record's batch."""
    own = batches(np.random.default_rng(1), n=3, size=5)
    bank = Bank.fit(own, [0, 1, 1], 2, dtype=np.float64)
    expected = sorted(
        min(KAHM.fit(other).measure(record[None])[0] for other in own if other is not batch)
        for batch in own
        for record in batch
    )
    np.testing.assert_allclose(usual_measures(bank, "folding"), expected, atol=1e-9)


def test_queries_like_the_records_stay_and_others_go_above_the_limit(bank):
    rng = np.random.default_rng(2)
    watch = Watch(usual_measures(bank, "folding"))
    same = watch.seen(queries(bank, rng, 200), DAY)
    assert not drift(same.counts(), len(watch.usual)).drifted
    replaced = watch.seen(queries(bank, rng, 200, shift=1.5), DAY)
    found = drift(replaced.counts(), len(watch.usual))
    assert found.drifted
    assert found.distance > 0.5


def test_the_limit_is_seldom_exceeded_without_drift():
    """At 1 %, of 400 watches of uniform ranks; the binned distance is below the exact one."""
    rng = np.random.default_rng(3)
    above = 0
    for _ in range(400):
        watch = Watch(np.sort(rng.uniform(size=200))).seen(rng.uniform(size=100), DAY)
        above += drift(watch.counts(), 200).drifted
    assert above <= 12


def test_the_last_days_do_not_remember_a_drift_that_is_over(bank):
    rng = np.random.default_rng(4)
    watch = Watch(usual_measures(bank, "folding"))
    watch = watch.seen(queries(bank, rng, 100, shift=3.0), DAY)
    for day in range(2, 10):
        watch = watch.seen(queries(bank, rng, 50), day * DAY)
    assert not drift(watch.counts(7), len(watch.usual)).drifted
    assert watch.counts().sum() == 500
    assert len(watch.days) == 9


def test_a_watch_goes_on_after_a_restart(tmp_path, bank):
    usual = usual_measures(bank, "folding")
    watch = Watch(usual).seen(np.array([0.0, 1.0, 1.0]), DAY)
    save_watch(tmp_path / "watch.json", watch)
    assert (tmp_path / "watch.json").stat().st_mode & 0o777 == 0o600
    again = load_watch(tmp_path / "watch.json", usual)
    np.testing.assert_array_equal(again.counts(), watch.counts())
    assert again.counts()[0] == 1
    assert again.counts()[BINS - 1] == 2


@pytest.mark.parametrize(
    "text", ["{}", '{"format": "securefl watch", "version": 1, "days": {"1970-01-01": [1]}}']
)
def test_another_file_is_no_watch(tmp_path, bank, text):
    (tmp_path / "watch.json").write_text(text)
    with pytest.raises(InputError, match="move it away"):
        load_watch(tmp_path / "watch.json", np.zeros(3))


def test_a_head_of_one_machine_has_no_usual_measure():
    with pytest.raises(InputError, match="a head of 1 machine"):
        usual_measures(Bank.fit([np.eye(3)], [0], 1), "folding")
