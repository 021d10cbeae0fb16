"""What a release will be like: the same noise, the same promise and the same code as one made."""

import numpy as np
import pytest
from attrs import evolve

import dp
from secure_fl.data import Dataset, Scaling
from secure_fl.errors import InputError
from secure_fl.privacy.promises import ReleasePromise
from secure_fl.privacy.remarks import delta_remarks, release_remarks
from secure_fl.trainers.methods.kahm import KAHMHeads
from secure_fl.training.planning import expected_accuracy, outlook

ELEMENT = ReleasePromise(epsilon=2.0, delta=1e-5, adjacency=dp.Element(1.0), bounds=(-1.0, 1.0))
RECORD = ReleasePromise(epsilon=2.0, delta=1e-5, adjacency=dp.Record(1.0), bounds=(-1.0, 1.0))


def public(records=240):
    """Two classes on either side of 0, in [-1, 1]."""
    rng = np.random.default_rng(0)
    y = np.arange(records) % 2
    X = np.clip(rng.normal(0.6 * (2 * y[:, None] - 1), 0.2, (records, 8)), -1, 1)
    return Dataset(X, y.astype(np.int64), ("no", "yes"), "public")


def expected(epsilon, **options):
    promise = ReleasePromise(
        epsilon=epsilon, delta=0.0, adjacency=dp.Element(1.0), bounds=(-1.0, 1.0)
    )
    method = KAHMHeads(batch_size=30)
    given = {"clients": 2, "runs": 2, "scaling": Scaling(), **options}
    return expected_accuracy(public(), promise, method, **given)


@pytest.mark.parametrize("promise", [ELEMENT, RECORD], ids=["element", "record"])
def test_the_noise_is_that_of_a_release(promise):
    """Measured: the deviation of 40,000 released entries from a matrix of zeros."""
    zeros = np.zeros((5000, 8))
    released = dp.release_batches(
        [zeros], **promise.terms() | {"smoothing": "none"}, batching="order"
    )
    found = outlook(promise, 8)
    assert found.noise == pytest.approx(released.noisy[0].std(), rel=0.04)
    assert found.share == found.noise / 2
    assert found.record_level == released.statement.record_level


def test_little_noise_costs_nothing_and_much_costs_everything():
    little, much = expected(200.0), expected(0.02, runs=30)
    assert little.plain == much.plain
    assert little.plain > 0.95
    assert little.mean == pytest.approx(little.plain, abs=0.03)
    assert little.remarks() == ()
    assert much.mean < 0.8
    assert much.remarks()
    assert much.records == 60


def test_an_accuracy_that_is_no_better_than_the_majority_is_said_to_be_of_no_use():
    found = expected(200.0)
    assert "do not spend on it" in evolve(found, private=(0.5,), majority=0.5).remarks()[0]
    assert "costs 10.0 points" in evolve(found, private=(0.8, 0.9), plain=0.95).remarks()[0]


def test_too_few_public_records_are_refused():
    with pytest.raises(InputError, match=r"240 records for 100 clients .* give at least 400"):
        expected(1.0, clients=100)


def test_noise_is_remarked_on_where_it_is_above_the_largest_signal():
    assert release_remarks(ELEMENT, 8) == ()
    weak = ReleasePromise(epsilon=0.3, delta=0.0, adjacency=dp.Element(1.0), bounds=(-1.0, 1.0))
    (said,) = release_remarks(weak, 8)
    assert said.startswith("noise of standard deviation 4.71 on entries in [-1, 1]: single entries")
    (said,) = release_remarks(RECORD, 8)
    assert "whose root mean square is at most 0.35" in said


@pytest.mark.parametrize(
    ("delta", "number", "said"),
    [
        (1e-5, None, None),
        (1e-5, 5000, None),
        (0.01, None, "publishes each record as it is with that probability"),
        (0.01, 250, "publishes 2.5 of 250 records as they are"),
        (1e-5, 200_000, "take a delta well below 1 / 200,000"),
    ],
)
def test_a_delta_that_allows_records_to_be_published_is_remarked_on(delta, number, said):
    found = delta_remarks(delta, number)
    assert len(found) == (said is not None)
    assert said is None or said in found[0]
