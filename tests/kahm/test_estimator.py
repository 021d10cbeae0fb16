"""The scikit-learn estimator, by scikit-learn's own checks and on real digits."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
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


class OfMeasures(SpaceFoldingClassifier):
    """A fitted head whose measures are what it is handed instead of points."""

    def __init__(self, classes):
        super().__init__()
        self.classes_ = np.arange(classes)

    def _measures(self, X):
        return X


# Neighbours of one another, both ends, and what lies between.
MEASURES = st.one_of(
    st.sampled_from([0.0, 5e-324, 1e-300, 0.1, np.nextafter(0.1, 1), 0.5, np.nextafter(1, 0), 1.0]),
    st.floats(0, 1),
)
ROWS = st.integers(2, 6).flatmap(
    lambda classes: st.lists(
        st.lists(MEASURES, min_size=classes, max_size=classes), min_size=1, max_size=5
    )
)


@given(ROWS)
def test_shares_and_scores_agree_with_the_label_whatever_the_measures(rows):
    measures = np.array(rows)
    model = OfMeasures(measures.shape[1])
    shares, labels = model.predict_proba(measures), model.predict(measures)
    np.testing.assert_array_equal(shares.argmax(axis=1), labels)
    assert ((shares >= 0) & (shares <= 1)).all()
    np.testing.assert_allclose(shares.sum(axis=1), 1, rtol=1e-12)
    scores = model.decision_function(measures)
    if scores.ndim == 1:
        np.testing.assert_array_equal(scores > 0, labels == 1)
    else:
        np.testing.assert_array_equal(scores.argmax(axis=1), labels)
    for row, own in zip(measures, shares, strict=True):
        for value in np.unique(row):
            assert len(np.unique(own[row == value])) == 1


@given(st.lists(st.floats(0.001, 0.999), min_size=2, max_size=6))
def test_shares_are_those_of_exactly_one_class_by_exact_arithmetic(row):
    """P(c and no other) over the sum, every class by itself with the chance 1 - T_c."""
    exact = list(map(Fraction, row))
    alone = []
    for c in range(len(exact)):
        product = 1 - exact[c]
        for k, each in enumerate(exact):
            product *= each if k != c else 1
        alone.append(product)
    expected = [float(each / sum(alone)) for each in alone]
    found = OfMeasures(len(row)).predict_proba(np.array([row]))[0]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_a_scaled_head_is_tuned_in_a_pipeline_and_its_shares_order_its_answers(digits):
    X, X_test, y, y_test = digits
    model = Pipeline([("scale", StandardScaler()), ("head", SpaceFoldingClassifier())])
    sizes = {"head__batch_size": [20, 100]}
    search = GridSearchCV(model, sizes, cv=2, scoring="neg_log_loss").fit(X, y)
    shares = search.predict_proba(X_test)
    np.testing.assert_array_equal(search.classes_[shares.argmax(axis=1)], search.predict(X_test))
    confident = shares.max(axis=1) > np.median(shares.max(axis=1))
    right = search.predict(X_test) == y_test
    assert right[confident].mean() > right[~confident].mean()


def test_shares_can_be_calibrated_and_are_not_by_themselves(digits):
    """As the docstring says."""
    X, X_test, y, y_test = digits
    own = SpaceFoldingClassifier().fit(X, y).predict_proba(X_test)
    calibrated = CalibratedClassifierCV(SpaceFoldingClassifier(), cv=2).fit(X, y)
    assert log_loss(y_test, calibrated.predict_proba(X_test)) < log_loss(y_test, own) / 2
