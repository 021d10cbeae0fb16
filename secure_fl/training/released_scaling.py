"""A scaling by means and deviations that are released, and what of a promise is left after it.

The moments are one event of the same unit, under the same budget and in the same books as what
follows. Their noise, and that of what follows, is fixed before either is drawn.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs
import numpy as np

import dp
from dp.adjacency import Adjacency
from dp.release_plan import make_plan
from secure_fl.data import Dataset, Scaling, TargetSet
from secure_fl.errors import InputError
from secure_fl.federation import Client, Federation, SecureAggregation, calibrate
from secure_fl.heads.statements import SCALED
from secure_fl.privacy.ledgers import Shelf
from secure_fl.privacy.promises import Promise, RecordPromise, ReleasePromise, record_privacy
from secure_fl.trainers.feature_moments import Spread
from secure_fl.trainers.linear._record_noise import SumNoise
from secure_fl.trainers.private_moments import (
    PublicClip,
    ReleasedMoments,
    changed_by,
    moments_event,
    noise_of_moments,
    private_moments,
)

if TYPE_CHECKING:
    # It comes with torch.
    from secure_fl.trainers.networks.promise import DPSGD

MomentsClip: TypeAlias = float | tuple[float, float] | Scaling
"""Public: an L2 norm of records, one range of all features, or a scaling of the kind "range"."""
SHARE = 0.05
"""Of the budget of Gaussian noise (squared inverse noise multiplier) for the moments."""
RELEASE_SHARE = 0.1
"""Of epsilon that moments alone would cost beside releases per element, whose noise adds up less
well with Gaussian noise, and beside sampled steps."""
OTHERWISE = "scale by public ranges (--scaling range --public FILE), or not (--scaling none)"


def read_moments_clip(text: str) -> MomentsClip:
    """What people write: NORM, or LOW,HIGH.

    Raises:
        InputError: neither.
    """
    try:
        numbers = tuple(float(each) for each in text.split(","))
    except ValueError:
        numbers = ()
    if len(numbers) == 1:
        return numbers[0]
    if len(numbers) != 2:
        raise InputError(f"moments-clip {text[:80]!r}: expected NORM or LOW,HIGH")
    return numbers[0], numbers[1]


def clip_of(clip: MomentsClip, features: int) -> PublicClip:
    """What records are clipped to.

    Raises:
        InputError: it is not finite, empty, of another number of features, or no range.
    """
    if isinstance(clip, Scaling):
        if clip.kind != "range" or clip.offsets is None or clip.spreads is None:
            raise InputError("moments: a clip by a scaling needs one of public ranges")
        clip.check_width(features, where="moments")
        low = np.array(clip.offsets)
        return PublicClip.box(low, low + np.array(clip.spreads))
    if isinstance(clip, tuple):
        low, high = (np.full(features, float(each)) for each in clip)
        return PublicClip.box(low, high)
    return PublicClip.norm(features, clip)


def refuse_released(promise: Promise, clip: MomentsClip | None, *, sums: bool) -> None:
    """Refuses moments under a promise that cannot have them.

    Args:
        promise: of the run.
        clip: public, or None.
        sums: whether the method hides every record.

    Raises:
        InputError: another promise, one whose unit would depend on them, or no clip.
    """
    if not (isinstance(promise, ReleasePromise) or (isinstance(promise, RecordPromise) and sums)):
        raise InputError(
            "scaling: means and deviations of the clients' records are not private, and these"
            " options promise privacy; heads' releases and methods that hide every record have them"
            f" under noise, others {OTHERWISE}"
        )
    if isinstance(promise, ReleasePromise):
        _refuse_unit(promise)
    if clip is None:
        raise InputError(
            "scaling: means and deviations would be released under noise, which needs public bounds"
            " of the records: give --moments-clip NORM or LOW,HIGH, or --public FILE for its"
            f" ranges; or {OTHERWISE}"
        )


def _refuse_unit(promise: ReleasePromise) -> None:
    if promise.delta <= 0:
        raise InputError(
            "scaling: means and deviations are released under Gaussian noise, which needs a --delta"
            f" above 0; give one, or {OTHERWISE}"
        )
    low, high = promise.bounds
    unit = promise.adjacency
    if isinstance(unit, dp.Element) and unit.distance < high - low:
        raise InputError(
            f"scaling: an element that moves by at most {unit.distance:g} is a length in scaled"
            " features, which released deviations would make the records' own; give --distance"
            f" {high - low:g}, the whole of --bounds, or --unit record, or {OTHERWISE}"
        )


@attrs.frozen(kw_only=True)
class _Terms:
    """How a promise is divided.

    Attributes:
        unit: of its events.
        multiplier: of the moments' noise.
        left: promise of what follows.
        later: its event, as far as it is known beforehand.
    """

    unit: Adjacency
    multiplier: float
    left: Any
    later: dp.Event


def split(epsilon: float, delta: float) -> tuple[float, float, float]:
    """Of Gaussian sums: multipliers of the moments and of what follows, and the latter's epsilon.

    Squared inverse multipliers add up; the moments have `SHARE` of the whole.
    """
    whole = calibrate(epsilon, delta, 1)
    rest = whole / math.sqrt(1.0 - SHARE)
    return whole / math.sqrt(SHARE), rest, dp.compose([], [dp.Gaussian(rest)], delta).epsilon


def terms_of(promise: RecordPromise | ReleasePromise, features: int) -> _Terms:
    """How moments and what follows share a promise.

    Gaussian noise on whole records adds up with the moments' as sums do. A release under other
    noise keeps (1 - `RELEASE_SHARE`) epsilon at half of delta; the accountant gives Gaussian noise
    beside it half of the delta that is left.

    Raises:
        InputError: sums without a norm.
    """
    if isinstance(promise, RecordPromise):
        if promise.norm is None:
            raise InputError("scaling: the moments' unit needs --norm, a public norm of a record")
        moments, rest, epsilon = split(promise.epsilon, promise.delta)
        replaced = promise.adjacency == "replace"
        unit: Adjacency = dp.Record(promise.norm) if replaced else dp.Membership("record")
        left: Any = attrs.evolve(promise, epsilon=epsilon, whole=promise.epsilon)
        later = dp.Event("planned", unit, gaussian=dp.Gaussian(rest))
        return _Terms(unit=unit, multiplier=moments, left=left, later=later)
    if isinstance(promise.adjacency, dp.Record):
        # Whole records are hidden by Gaussian noise alone.
        moments, _, epsilon = split(promise.epsilon, promise.delta)
        left = attrs.evolve(promise, epsilon=epsilon)
    else:
        moments = calibrate(RELEASE_SHARE * promise.epsilon, promise.delta / 4, 1)
        kept = (1 - RELEASE_SHARE) * promise.epsilon
        left = attrs.evolve(promise, epsilon=kept, delta=promise.delta / 2)
    return _Terms(
        unit=promise.adjacency,
        multiplier=moments,
        left=left,
        later=make_plan(**left.terms()).event(features, "head"),
    )


@attrs.define
class ReleasedScaling:
    """Releases means and deviations of all clients' features once, and books them before.

    Attributes:
        clip: public.
        spread: what features are divided by.
        factor: on all features.
        unit_rows: whether records are to be of length 1, see `feature_moments.scaling_of_moments`.
        released: what was, when it was.
    """

    clip: MomentsClip
    spread: Spread
    factor: float
    unit_rows: bool
    released: ReleasedMoments | None = None
    _said: str = ""

    def __call__(
        self,
        clients: Sequence[Dataset] | Sequence[TargetSet],
        promise: RecordPromise | ReleasePromise,
        books: Path | Shelf,
        seed: int,
    ) -> tuple[Scaling, Any]:
        """The scaling, and the promise that is left for what follows.

        Args:
            clients: at least 2.
            promise: of the whole run.
            books: as `train`.
            seed: of the experiment's randomness.

        Raises:
            InputError: fewer than 2 clients, no norm, or a clip that does not fit them.
            dp.BudgetError: a ledger has no room for the moments and what follows; nothing was
                spent.
            QuorumError: fewer clients survived than the threshold; the books keep the event.
        """
        with _summing(clients, seed) as fed:
            return self.over(fed, clients[0].n_features, promise, books)

    def over(
        self,
        fed: Federation,
        features: int,
        promise: RecordPromise | ReleasePromise,
        books: Path | Shelf | None,
    ) -> tuple[Scaling, Any]:
        """As a call, of any federation under secure aggregation.

        Args:
            fed: clients with their features as they are.
            features: d.
            promise: of the whole run.
            books: as `train`; None where clients elsewhere have books of their own, and they alone.

        Raises:
            InputError, dp.BudgetError, QuorumError: as a call.
        """
        terms = terms_of(promise, features)

        def room(spent: dp.Event) -> dp.Ledger | None:
            if books is None:
                return None
            return _checked(promise, fed.names, books, spent, terms.later)

        scaling, noise = self._released(fed, features, terms.unit, terms.multiplier, room)
        if isinstance(promise, ReleasePromise):
            self._said = assumed(promise, self.clip, features, fed.threshold, noise.multiplier)
        return scaling, terms.left

    def beside_steps(
        self,
        clients: Sequence[Dataset],
        promise: "DPSGD",
        room: "Callable[[DPSGD, dp.Event], dp.Ledger]",
        seed: int,
    ) -> "tuple[Scaling, DPSGD]":
        """The scaling, and the promise of local steps that the moments are in.

        Args:
            clients: at least 2.
            promise: of the whole run.
            room: the books, if they have room for that event and then a run of that promise.
            seed: of the experiment's randomness.

        Raises:
            InputError, dp.BudgetError, QuorumError: as a call.
        """
        unit = dp.Membership("record contribution")
        alone = calibrate(RELEASE_SHARE * promise.epsilon, promise.delta, 1)
        left = promise

        def planned(spent: dp.Event) -> dp.Ledger:
            nonlocal left
            assert spent.gaussian is not None
            left = replace(promise, beside=spent.gaussian.noise_multiplier)
            return room(left, spent)

        with _summing(clients, seed) as fed:
            scaling, _ = self._released(fed, clients[0].n_features, unit, alone, planned)
        return scaling, left

    def _released(
        self,
        fed: Federation,
        features: int,
        unit: Adjacency,
        multiplier: float,
        room: Callable[[dp.Event], dp.Ledger | None],
    ) -> tuple[Scaling, SumNoise]:
        public = clip_of(self.clip, features)
        noise = noise_of_moments(fed, public, multiplier, changed_by(unit))
        spent = moments_event(features, unit, noise.multiplier)
        # Before anything is spent: both fit, or neither is begun.
        ledger = room(spent)
        digest = "" if ledger is None else ledger.spend(spent)
        facts = private_moments(fed, public, noise, unit)
        self.released = ReleasedMoments(*facts, event=digest)
        found = self.released.scaling(self.factor, unit_rows=self.unit_rows, spread=self.spread)
        return found, noise

    def stated(
        self, statements: Sequence[tuple[str, dp.Statement]]
    ) -> list[tuple[str, dp.Statement]]:
        """Statements of releases of scaled features, by client, that say what they were scaled by.

        Their epsilon is their own; what both cost together is in the running total of the books.
        """
        return [
            (name, attrs.evolve(each, assumptions=(*each.assumptions, self._said)))
            for name, each in statements
        ]

    def remark(self) -> str:
        """What a person should know of it, when it was released."""
        assert self.released is not None
        found, features = self.released, len(self.released.deviations)
        return (
            f"scaling: means and deviations of {features} features were released for a part of the"
            f" promise; {found.floored} deviations are below their noise and stand at it"
        )


def assumed(
    promise: ReleasePromise, clip: MomentsClip, features: int, parts: int, multiplier: float
) -> str:
    """What the statement of a head's release says of a scaling that was released before.

    Args:
        promise: of the whole run.
        clip: public, of the moments.
        features: d.
        parts: clients whose noise is surely in the moments.
        multiplier: of that noise, as booked.
    """
    of_records = ""
    if isinstance(promise.adjacency, dp.Element):
        public = clip_of(clip, features)
        ratio = public.sensitivity("element") / public.sensitivity("replace")
        record = dp.compose([], [dp.Gaussian(multiplier * ratio)], promise.delta)
        of_records = (
            f". For whole records the means and deviations alone imply {record.epsilon:.4g} at"
            f" delta {promise.delta:g}, which adds up with what the release implies"
        )
    return (
        f"{SCALED}, of records clipped to public numbers, under the noise of at least {parts}"
        f" clients that follow the protocol; the books hold both{of_records}"
    )


def _summing(clients: Sequence[Dataset] | Sequence[TargetSet], seed: int) -> Federation:
    if len(clients) < 2:
        raise InputError("scaling: 1 client, its sum would be its own; 2 are needed")
    members = [Client(each.name, each.X, each.y) for each in clients]
    return Federation(members, seed=seed, aggregation=SecureAggregation())


def _checked(
    promise: RecordPromise | ReleasePromise,
    names: Sequence[str],
    books: Path | Shelf,
    *planned: dp.Event,
) -> dp.Ledger:
    """The books, if they have room for all that is planned.

    Raises:
        dp.BudgetError: a ledger has not; none was made.
    """
    if isinstance(promise, RecordPromise):
        assert promise.norm is not None
        terms = promise.epsilon, promise.delta, promise.norm, books
        ledger = record_privacy(*terms, adjacency=promise.adjacency).ledger
        ledger.check(*planned)
        return ledger
    shelf = Shelf(books) if isinstance(books, Path) else books
    for name in names:
        shelf.check(name, promise.budget, *planned)
    return dp.JointLedger.of([shelf.open(name, promise.budget) for name in names])
