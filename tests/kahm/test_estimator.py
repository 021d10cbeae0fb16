"""The scikit-learn estimator, by scikit-learn's own checks and on real digits."""

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

from kahm import SpaceFoldingClassifier


@parametrize_with_checks(
    [SpaceFoldingClassifier(), SpaceFoldingClassifier(batching="clusters", batch_size=5)]
)
def test_scikit_learn_conventions(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return train_test_split(X / 16, y, test_size=0.3, random_state=0, stratify=y)


def test_digits_are_read_as_well_as_by_the_nearest_neighbour(digits):
    X, X_test, y, y_test = digits
    score = SpaceFoldingClassifier().fit(X, y).score(X_test, y_test)
    assert score >= KNeighborsClassifier(1).fit(X, y).score(X_test, y_test)


def test_single_precision_gives_the_same_labels(digits):
    X, X_test, y, _ = digits
    labels = [
        SpaceFoldingClassifier(dtype=dtype).fit(X, y).predict(X_test)
        for dtype in ("float32", "float64")
    ]
    np.testing.assert_array_equal(*labels)


def test_added_records_touch_only_the_machines_that_grow(digits):
    X, _, y, _ = digits
    model = SpaceFoldingClassifier(batch_size=50).fit(X[:900], y[:900])
    before = {batch.tobytes() for batch in model.bank_.batches()}
    three = X[900:][y[900:] == 3]
    model.add_records(three, np.full(len(three), 3))
    after = model.bank_.batches()
    changed = [
        c
        for batch, c in zip(after, model.bank_.cells, strict=True)
        if batch.tobytes() not in before
    ]
    assert set(changed) == {3}
    assert sum(map(len, after)) == 900 + len(three)


def test_added_records_count_like_fitted_ones(digits):
    """A class that fits into one machine is the same machine whichever way its records came."""
    X, X_test, y, _ = digits
    few = np.concatenate([np.flatnonzero(y == c)[:20] for c in range(10)])
    start = np.concatenate([np.flatnonzero(y == c)[:12] for c in range(10)])
    rest = np.setdiff1d(few, start)
    grown = SpaceFoldingClassifier().fit(X[start], y[start]).add_records(X[rest], y[rest])
    whole = SpaceFoldingClassifier().fit(X[few], y[few])
    np.testing.assert_allclose(
        grown.decision_function(X_test), whole.decision_function(X_test), atol=1e-9
    )


def test_an_unseen_label_is_named(digits):
    X, _, y, _ = digits
    model = SpaceFoldingClassifier().fit(X[y < 5], y[y < 5])
    with pytest.raises(ValueError, match="label 7 was not seen in fit"):
        model.add_records(X[:1], [7])


def test_records_cannot_be_added_to_clusters(digits):
    X, _, y, _ = digits
    model = SpaceFoldingClassifier(batching="clusters").fit(X, y)
    with pytest.raises(ValueError, match='needs batching="order"'):
        model.add_records(X[:1], y[:1])
