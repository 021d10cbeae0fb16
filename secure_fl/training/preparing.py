"""What is done to features before a method sees them, and what a promise of privacy forbids."""

from collections.abc import Sequence
from typing import Literal

import attrs

from secure_fl.data import Dataset, Scaling
from secure_fl.errors import InputError
from secure_fl.privacy.promises import Promise
from secure_fl.trainers.feature_moments import moments_scaling
from secure_fl.trainers.head_tuning import HeadChoice
from secure_fl.trainers.methods.kahm import CodedHeads, KAHMHeads
from secure_fl.trainers.settings import Settings

DEFAULT_SCALING: Literal["none", "moments"] = "moments"
"""Of the command where nothing is said and no privacy promised; `python -m benchmarks.defaults`
measures it."""


def chosen_head(method: KAHMHeads, choice: HeadChoice) -> KAHMHeads:
    """The method with a tuned choice."""
    return attrs.evolve(method, **choice.settings())


def scaling_for(
    clients: Sequence[Dataset],
    scaling: Literal["none", "moments"] | Scaling,
    factor: float,
    method: Settings,
) -> Scaling:
    """The scaling that `train` would take, without a promise.

    Raises:
        FeatureError: a feature is too large.
    """
    known = known_scaling(scaling, factor, None)
    return known or moments_scaling(clients, factor, unit_rows=by_length(method))


def by_length(method: Settings) -> bool:
    """Whether records should be of length 1: what distances decide is best at that size."""
    return isinstance(method, CodedHeads) or bool(getattr(method, "random_features", 0))


def known_scaling(
    scaling: Literal["none", "moments"] | Scaling, factor: float, promise: Promise | None
) -> Scaling | None:
    """The scaling, where no client must be asked for it; refuses what a promise forbids."""
    kind = scaling if isinstance(scaling, str) else scaling.kind
    if promise is not None and kind == "moments":
        raise InputError(
            "scaling: means and deviations of the clients' records are not private, and these"
            " options promise privacy; scale by public ranges (--scaling range --public FILE), or"
            " not (--scaling none)"
        )
    if isinstance(scaling, Scaling):
        return attrs.evolve(scaling, factor=factor)
    plain = Scaling(factor=factor)
    return None if scaling == "moments" else plain
