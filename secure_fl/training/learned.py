"""Did it learn? The accuracy on labelled records, beside what is had without training.

Two yardsticks that need no client: the share of the most frequent class, and a linear probe, which
is logistic regression on standardised features, fitted to public records or, where there are none,
cross-validated on the test records themselves.
"""

import warnings
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from secure_fl.data import Dataset, Scaling
from secure_fl.training.fitted import FittedHeads, FittedModel

FOLDS = 5
PROBED = 2000
"""Records that a probe is fitted to, and features that it takes, at most."""
SHORT = 0.05
"""Accuracy below the probe from which on something is wrong."""
UNEVEN = 10.0
"""Ratio of two features' deviations from which on they want scaling."""


@attrs.frozen(kw_only=True)
class Learned:
    """What was learned.

    Attributes:
        accuracy: share of the test records that are answered rightly, in [0, 1].
        majority: share of the most frequent class among them.
        probe: accuracy of the linear probe on them; None where there are too few records, or too
            many features.
        records: that were tested.
        public: whether the probe was fitted to public records.
        warning: what is wrong and the likely cause; None where the result is as it should be.
    """

    accuracy: float
    majority: float
    probe: float | None
    records: int
    public: bool
    warning: str | None

    def text(self) -> str:
        """One line."""
        where = "fitted to public records" if self.public else "cross-validated on these records"
        probe = "" if self.probe is None else f", a linear probe {self.probe:.1%} ({where})"
        return (
            f"accuracy {self.accuracy:.1%} on {self.records:,} test records; the most frequent"
            f" class alone {self.majority:.1%}{probe}"
        )


def learned(
    fitted: FittedModel | FittedHeads,
    test: Dataset,
    *,
    public: Dataset | None = None,
    scaling: Scaling,
    private: bool,
    disjoint: bool,
) -> Learned:
    """Measures what training left.

    Args:
        fitted: by training.
        test: labelled records that no client trained on.
        public: labelled records for the probe, or None.
        scaling: of the features.
        private: whether noise was promised.
        disjoint: whether the clients' labels hardly meet.
    """
    right = fitted.predict(test.X) == np.array(test.classes)[test.y]
    accuracy, majority = float(np.mean(right)), float(test.counts().max() / len(test))
    probe = linear_probe(test, public)
    warning = None
    if accuracy <= majority or (probe is not None and accuracy < probe - SHORT):
        cause = likely_cause(
            test.X,
            heads=isinstance(fitted, FittedHeads),
            scaling=scaling,
            private=private,
            disjoint=disjoint,
        )
        beaten = "always naming the most frequent class" if accuracy <= majority else "the probe"
        warning = f"{accuracy:.1%} is below {beaten}: {cause}"
    return Learned(
        accuracy=accuracy,
        majority=majority,
        probe=probe,
        records=len(test),
        public=public is not None,
        warning=warning,
    )


def likely_cause(X: Any, *, heads: bool, scaling: Scaling, private: bool, disjoint: bool) -> str:
    """Why a result is poor, the most frequent cause first, and what to try.

    Args:
        X: test features as in the file, shape (n, d).
        heads: whether they are heads, or a model by rounds.
        scaling: of the features.
        private: whether noise was promised.
        disjoint: whether the clients' labels hardly meet.
    """
    deviations = X.std(axis=0)
    used = deviations[deviations > 0]
    if not scaling.affine and used.size and used.max() > UNEVEN * used.min():
        return (
            f"features are not scaled, and their deviations lie between {used.min():.2g} and"
            f" {used.max():.2g}; give --scaling moments, or --scaling range --public FILE"
        )
    if private:
        return (
            "the noise of the promise is the likely cause; more records a client, fewer features"
            " or a larger epsilon help"
        )
    if disjoint and not heads:
        return "the clients' labels hardly meet; more rounds, or --method fednewton, bear that"
    if heads:
        return (
            "batches that are too large or too small are the likely cause; try --batch-size 20 or"
            " 2, --lambda, or `securefl tune`"
        )
    return (
        "too few rounds or a small rate are the likely cause; leave out --rounds or give more, or"
        " raise the rate"
    )


def linear_probe(test: Dataset, public: Dataset | None) -> float | None:
    """Accuracy of logistic regression on standardised features, on the test records.

    Args:
        test: labelled records.
        public: what it is fitted to; None cross-validates on the test records.

    Returns:
        None where classes have fewer than FOLDS records, or there are too many features.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import cross_val_predict
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if test.n_features > PROBED:
        return None
    model = make_pipeline(StandardScaler(), LogisticRegression())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a yardstick need not converge to its last digit
        if public is not None:
            if len(np.unique(public.y)) < 2:
                return None
            rows = _some(public)
            model.fit(public.X[rows], public.y[rows])
            return float(np.mean(model.predict(test.X) == test.y))
        rows = _some(test)
        X, y = test.X[rows], test.y[rows]
        counts = np.bincount(y)
        kept = counts[y] >= FOLDS
        if len(np.unique(y[kept])) < 2:
            return None
        found = cross_val_predict(model, X[kept], y[kept], cv=FOLDS)
        # Records of classes that are too rare to be left out count as wrong.
        return float(np.sum(found == y[kept]) / len(y))


def _some(data: Dataset) -> NDArray[np.int64]:
    """Rows of at most PROBED records, the same ones every time."""
    order = np.random.default_rng(0).permutation(len(data))
    return np.sort(order[:PROBED]).astype(np.int64)
