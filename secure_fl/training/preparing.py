"""What is done to features before a method sees them, and what a promise of privacy forbids."""

from collections.abc import Sequence
from typing import Any, Literal, NoReturn, TypeAlias, get_args

import attrs

from secure_fl.data import Dataset, Scaling, TargetSet
from secure_fl.data.scaling import PUBLIC
from secure_fl.errors import InputError
from secure_fl.privacy.promises import Promise
from secure_fl.trainers.feature_moments import SPREADS, Spread, scaling_of_moments, summed_moments
from secure_fl.trainers.head_tuning import HeadChoice
from secure_fl.trainers.methods.kahm import CodedHeads, KAHMHeads, RecordPrivateHeads
from secure_fl.trainers.network_settings import NetworkSettings
from secure_fl.trainers.settings import Settings
from secure_fl.training.released_scaling import OTHERWISE, MomentsClip, refuse_released

ScalingWord = Literal["none", "auto", "moments", "floored", "common"]
"""Features as they are; what suits the method; by moments, and what each is divided by."""
AskedScaling: TypeAlias = ScalingWord | Scaling
DEFAULT_SCALING: ScalingWord = "auto"
"""Of the command where nothing is said and no privacy promised; `python -m benchmarks.defaults`
measures it."""
OF_HEADS: tuple[Spread, ...] = ("floored", "common", "moments")
"""What "auto" is for heads, the first one where nothing is tuned: no single one is near the best on
tables, on images and on records of few non-zero entries alike."""


def chosen_head(method: KAHMHeads, choice: HeadChoice) -> KAHMHeads:
    """The method with a tuned choice."""
    return attrs.evolve(method, **choice.settings())


def scalings_for(
    clients: Sequence[Dataset] | Sequence[TargetSet],
    scaling: AskedScaling,
    factor: float,
    method: Settings,
    promise: Promise | None = None,
) -> dict[str, Scaling]:
    """The scalings that `train` may take, by name; the first one where nothing is tuned.

    Whatever moments they need is one masked sum. Public ranges have the name "".

    Raises:
        InputError: as `known_scaling`.
        FeatureError: a feature is too large.
    """
    known = known_scaling(scaling, factor, promise)
    if known is not None:
        return {scaling if isinstance(scaling, str) else "": known}
    words = spreads_of(scaling, method)
    digits, by = summed_moments(clients), by_length(method)
    found = [scaling_of_moments(digits, factor, unit_rows=by, spread=word) for word in words]
    return dict(zip(words, found, strict=True))


def spreads_of(scaling: AskedScaling, method: Settings) -> Sequence[Spread]:
    """What features may be divided by, as the word says; the first one where nothing is tuned."""
    if scaling == "auto":
        return OF_HEADS if isinstance(method, CodedHeads) else ("moments",)
    return [word for word in SPREADS if word == scaling]


def by_length(method: Settings) -> bool:
    """Whether records should be of length 1: what distances decide is best at that size."""
    return isinstance(method, CodedHeads) or bool(getattr(method, "random_features", 0))


def refuse_private_facts(method: Settings, scaling: AskedScaling, tried: Sequence[Any]) -> None:
    """Refuses what answers with noise would depend on beside one client's own records.

    One record more would move means, or a tuned setting, and with them every client's vote.

    Raises:
        InputError: the rule is votes, and scaling or settings come from private records.
    """
    if not isinstance(method, CodedHeads) or not method.private_answers:
        return
    if tried:
        raise InputError(
            "tuned: its counts are of the clients' records, and under the rule votes every answer"
            " would depend on them; tune on public records, and give the settings as options"
        )
    if (scaling if isinstance(scaling, str) else scaling.kind) not in ("none", "range"):
        refuse_votes()


def refuse_votes() -> NoReturn:
    """Refuses means and deviations under the rule votes; released ones too, all votes would pay.

    Raises:
        InputError: always.
    """
    raise InputError(
        "scaling: means and deviations are of all clients' records, and under the rule votes"
        f" every vote would depend on them; {OTHERWISE}"
    )


def known_scaling(
    scaling: AskedScaling,
    factor: float,
    promise: Promise | None,
    method: Settings | None = None,
    clip: MomentsClip | None = None,
) -> Scaling | None:
    """The scaling, where no client must be asked for it; refuses what a promise forbids.

    Args:
        scaling, factor, promise: as `train`.
        method: that follows; None where it releases no moments.
        clip: public, for moments that are released.
    """
    kind = scaling if isinstance(scaling, str) else scaling.kind
    if isinstance(scaling, str) and scaling not in get_args(ScalingWord):
        words = ", ".join(get_args(ScalingWord))
        raise InputError(f"scaling: {scaling!r}, expected one of {words}")
    if promise is not None and kind not in PUBLIC:
        sums = isinstance(method, RecordPrivateHeads | NetworkSettings) or getattr(
            method, "hides_records", False
        )
        if not isinstance(scaling, str):
            raise InputError(
                "scaling: these means and deviations of the clients' records are not private, and"
                f" these options promise privacy; {OTHERWISE}"
            )
        refuse_released(promise, clip, sums=sums)
    elif clip is not None:
        raise InputError(
            "moments-clip: is for means and deviations that are released under a promise; leave it"
            " out, or give --scaling moments, floored or common"
        )
    if isinstance(scaling, Scaling):
        return attrs.evolve(scaling, factor=factor)
    return Scaling(factor=factor) if scaling == "none" else None
