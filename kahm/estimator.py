"""The head as a scikit-learn classifier, for one data set and no federation."""

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from kahm._typing import Array, IntArray
from kahm.bank import Bank
from kahm.batches import Batching, split
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
        random_state: int | np.random.Generator | None = None,
    ) -> None:
        self.batch_size = batch_size
        self.measure = measure
        self.batching = batching
        self.dtype = dtype
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
        """One minus the measure of each class, shape (n, C); for two classes the difference, (n,).

        A larger value means less folding.
        """
        scores = 1.0 - self._measures(X).astype(np.float64)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

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
        return Bank.fit(batches, cells, len(self.classes_), dtype=np.dtype(self.dtype).type)

    def _smallest_unfilled(self, cell: int) -> int | None:
        """The machine of the class with room for more records, if there is one."""
        own = np.flatnonzero(self.bank_.cells == cell)
        smallest = own[np.argmin(self.bank_.sizes[own])]
        return int(smallest) if self.bank_.sizes[smallest] < self.batch_size else None
