"""The head as a scikit-learn classifier, for one data set and no federation."""

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from kahm._typing import Array, IntArray
from kahm.bank import Bank
from kahm.batches import Batching, split
from kahm.machine import Regularisation
from kahm.measures import Measure


class SpaceFoldingClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # sklearn is untyped
    """Classifies a point by the class that folds it least (kahm.txt, eqs. 102, 106, 118).

    Parameters:
        batch_size: records of a class that one machine models, N_b of eq. (119), at least 1. 100 is
            the paper's choice for text, 20 for long-tailed images.
        measure: one of `kahm.measures.MEASURES`; "folding" is option 1, the paper's default.
        batching: "order" (storage order) or "clusters" (k-means, remark 11).
        dtype: of the stored records: "float64", or "float32" at half the time and memory, with
            measures to 1e-5.
        regularisation: "absolute", lambda* of eq. (149), or "relative": of the records over their
            root mean square, so that folds do not depend on the unit of the features; or
            "relative-floor", under which a machine of a single record does not measure 0 at it.
        regularisation_factor: on lambda*, above 0.
        random_state: seed or Generator of the clusters' first centres.

    Attributes:
        classes_: labels, shape (C,), sorted.
        bank_: the fitted machines, one cell a class.
    """

    def __init__(
        self,
        *,
        batch_size: int = 100,
        measure: Measure = "folding",
        batching: Batching = "order",
        dtype: str = "float64",
        regularisation: Regularisation = "absolute",
        regularisation_factor: float = 1.0,
        random_state: int | np.random.Generator | None = None,
    ) -> None:
        self.batch_size = batch_size
        self.measure = measure
        self.batching = batching
        self.dtype = dtype
        self.regularisation = regularisation
        self.regularisation_factor = regularisation_factor
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Fits one machine per class and batch; X of shape (n, d), y of shape (n,)."""
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32])
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        self.bank_ = self._machines(X, codes)
        return self

    def add_records(self, X: Any, y: Any) -> Self:
        """Adds records; only machines that receive some, and new ones, are fitted.

        A class's smallest machine is filled up to the batch size, the rest become new machines. The
        result depends on the order in which records came, as batches in storage order always do.
        Works with `batching="order"` only.

        Raises:
            ValueError: clusters are in use, or a label was not seen in `fit`.
        """
        check_is_fitted(self)
        if self.batching != "order":
            raise ValueError('add_records: needs batching="order"; clusters move when records come')
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32], reset=False)
        unknown = np.setdiff1d(y, self.classes_)
        if len(unknown):
            raise ValueError(f"add_records: label {unknown[0]!r} was not seen in fit")
        codes = np.searchsorted(self.classes_, y)
        grown = [self._smallest_unfilled(c) for c in np.unique(codes)]
        touched = np.sort(np.array([i for i in grown if i is not None], dtype=np.int64))
        batches = self.bank_.batches()
        old_X = [batches[i] for i in touched]
        old_y = [np.full(len(batches[i]), self.bank_.cells[i]) for i in touched]
        fresh = self._machines(np.concatenate([*old_X, X]), np.concatenate([*old_y, codes]))
        kept = np.setdiff1d(np.arange(self.bank_.n_machines), touched)
        self.bank_ = Bank.merge([self.bank_.select(kept), fresh]) if len(kept) else fresh
        return self

    def decision_function(self, X: Any) -> Array:
        """Minus the measure of each class, shape (n, C), in [-1, 0]: larger means less folding.

        For two classes, as scikit-learn has it, one score that orders points as `predict_proba`
        does: the second class's share minus the first one's, shape (n,), in [-1, 1].
        """
        measures = self._measures(X).astype(np.float64)
        if measures.shape[1] != 2:
            return -measures
        shares = _shares(measures)
        return shares[:, 1] - shares[:, 0]

    def predict_proba(self, X: Any) -> Array:
        """Shares of the classes, shape (n, C): each in [0, 1], a row's add up to 1.

        A measure T_c in [0, 1] is read as the chance that the point is not of class c, of every
        class by itself. Given that it is of exactly one class, this is class c with probability

            (1 - T_c) prod_{k != c} T_k / sum over classes of the same,

        the odds (1 - T_c) / T_c divided by their sum. It has no parameter to choose or to learn,
        its largest entry is at the class that `predict` gives (the first one among ties), classes
        of equal measures share equally, and a point that some classes do not fold at all is of
        one of these.

        What it is not: calibrated. A measure is a distance, not a frequency, so among answers with
        a share of 0.4 far more, or fewer, than 40 % may be right. It orders answers by confidence;
        for frequencies fit `sklearn.calibration.CalibratedClassifierCV` around the estimator on
        records of its own. Nor is it private: shares tell more of the records than a label.
        """
        return _shares(self._measures(X).astype(np.float64))

    def predict(self, X: Any) -> Any:
        """The label of the class with the smallest measure; ties go to the first label."""
        check_is_fitted(self)
        return self.classes_[np.argmin(self._measures(X), axis=1)]

    def _measures(self, X: Any) -> Array:
        check_is_fitted(self)
        X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        return self.bank_.measures(X, self.measure)

    def _machines(self, X: Array, codes: IntArray) -> Bank:
        rng = np.random.default_rng(self.random_state)
        batches: list[Array] = []
        cells: list[int] = []
        for c in np.unique(codes):
            for batch in split(X[codes == c], self.batch_size, self.batching, rng):
                batches.append(batch)
                cells.append(int(c))
        return Bank.fit(
            batches,
            cells,
            len(self.classes_),
            dtype=np.dtype(self.dtype).type,
            regularisation=self.regularisation,
            factor=self.regularisation_factor,
        )

    def _smallest_unfilled(self, cell: int) -> int | None:
        """The machine of the class with room for more records, if there is one."""
        own = np.flatnonzero(self.bank_.cells == cell)
        smallest = own[np.argmin(self.bank_.sizes[own])]
        return int(smallest) if self.bank_.sizes[smallest] < self.batch_size else None


def _shares(measures: Array) -> Array:
    """The classes' shares of every row: odds (1 - T) / T over their sum, see `predict_proba`."""
    smallest = measures.min(axis=1, keepdims=True)
    # Odds over the largest odds: no division by a measure of 0, or by odds of 0 where all are 1.
    first, second = np.ones_like(measures), np.ones_like(measures)
    np.divide(1 - measures, 1 - smallest, out=first, where=smallest < 1)
    np.divide(smallest, measures, out=second, where=measures > 0)
    odds = first * second
    shares = odds / odds.sum(axis=1, keepdims=True)
    # The division could round a class that loses by a last bit up to the winner's share.
    below = np.nextafter(shares.max(axis=1, keepdims=True), 0)
    return np.where(measures > smallest, np.minimum(shares, below), shares)
