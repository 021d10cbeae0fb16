"""The gradient-free head: kernel affine hull machines and space folding measures."""

from typing import TYPE_CHECKING, Any

from kahm.bank import Bank
from kahm.batches import BATCHINGS, Batching, batch_count, split, split_rows
from kahm.errors import InputError
from kahm.machine import KAHM, REGULARISATIONS, Regularisation, smoother
from kahm.measures import MEASURES, Measure
from kahm.rule import classify, feature_map, global_measure

if TYPE_CHECKING:
    from kahm.estimator import SpaceFoldingClassifier

__all__ = [
    "BATCHINGS",
    "KAHM",
    "MEASURES",
    "REGULARISATIONS",
    "Bank",
    "Batching",
    "InputError",
    "Measure",
    "Regularisation",
    "SpaceFoldingClassifier",
    "batch_count",
    "classify",
    "feature_map",
    "global_measure",
    "smoother",
    "split",
    "split_rows",
]


def __getattr__(name: str) -> Any:
    # scikit-learn takes most of a second to import and only the estimator needs it.
    if name == "SpaceFoldingClassifier":
        from kahm.estimator import SpaceFoldingClassifier

        return SpaceFoldingClassifier
    raise AttributeError(f"module 'kahm' has no attribute {name!r}")
