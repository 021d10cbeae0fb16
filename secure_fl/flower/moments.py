"""The server's side of a scaling by all clients' means and deviations: one masked sum for it.

The sum is exact (`secure_fl.trainers.feature_moments`), so the scaling has the bytes of one
process's; under a promise it carries noise, and is booked before it is asked for.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from attrs import frozen

from fhe.envelope import PRIVATE, write_atomic
from secure_fl.data import Scaling
from secure_fl.errors import FederationError, InputError, QuorumError
from secure_fl.federation import SecureAggregation, wire
from secure_fl.files import placed
from secure_fl.flower.network import NetworkFederation
from secure_fl.flower.plan import Plan
from secure_fl.flower.scaled import heard, told
from secure_fl.flower.transport import Transport
from secure_fl.privacy.promises import ClientPromise, RecordPromise, ReleasePromise
from secure_fl.trainers.feature_moments import DIGIT_BITS, local_feature_moments, scaling_of_moments
from secure_fl.training.released_scaling import ReleasedScaling

_KEPT = "federation scaling"


@frozen
class Found:
    """What records are scaled by, and what may be spent after it.

    Attributes:
        scaling: of every feature.
        promise: what is left for sums that follow and hide every record; None where none do.
    """

    scaling: Scaling
    promise: RecordPromise | None

    @property
    def told(self) -> Scaling | None:
        """What the nodes do not know by the plan."""
        return self.scaling if self.scaling.kind in ("moments", "released") else None


def scaling_of(
    exchange: Transport,
    plan: Plan,
    progress: Callable[[str], None],
    prove: Callable[[int], None] = lambda width: None,
) -> Found:
    """The scaling of a plan; asks all clients where their moments say it.

    Args:
        exchange: to the nodes.
        plan: of the run.
        progress: receives a line of such a sum.
        prove: called with the number of features before anything is booked; raises what must not be
            found out after that.

    Raises:
        QuorumError: fewer clients are left in the sum than the threshold.
        InputError: a checkpoint whose scaling is not beside it, or a clip that does not fit.
        dp.BudgetError: the books have no room for the sum and what follows; nothing was spent.
    """
    promise = plan.promise
    if plan.spread is None:
        return Found(plan.scaling_map, promise if isinstance(promise, RecordPromise) else None)
    if promise is not None:
        # A plan of client-level noise has no such scaling.
        assert not isinstance(promise, ClientPromise)
        return _released(exchange, plan, promise, progress, prove)
    kept = None if plan.checkpoint is None else Path(f"{plan.checkpoint}.scaling")
    if kept is not None and plan.checkpoint is not None and plan.checkpoint.exists():
        return Found(_kept(kept, plan), None)
    fed = _summing(exchange, plan, clip=2.0**DIGIT_BITS)
    with _explained():
        digits = np.asarray(fed.sum(local_feature_moments))
    progress(f"scaling: means and deviations of {len(fed.survivors)} of {len(fed)} clients")
    found = scaling_of_moments(digits, plan.scale, unit_rows=plan.by_length, spread=plan.spread)
    if kept is not None:
        # A run that goes on must not ask again: of other clients it would be another scaling.
        content = {"of": plan.moments, "scaling": told(found)}
        with placed(kept):
            write_atomic(kept, wire.encode(content, kind=_KEPT), mode=PRIVATE)
    return Found(found, None)


def _released(
    exchange: Transport,
    plan: Plan,
    promise: RecordPromise | ReleasePromise,
    progress: Callable[[str], None],
    prove: Callable[[int], None],
) -> Found:
    assert plan.spread is not None
    assert plan.moments_within is not None
    release = ReleasedScaling(plan.moments_within, plan.spread, plan.scale, plan.by_length)
    fed = _summing(exchange, plan)
    width = fed.features()
    prove(width)
    with _explained():
        scaling, left = release.over(fed, width, promise, plan.ledger)
    progress(release.remark())
    return Found(scaling, left if isinstance(left, RecordPromise) else None)


def _summing(exchange: Transport, plan: Plan, **coding: Any) -> NetworkFederation:
    """All clients, with their records as they are, under masks whatever the plan's own sums are."""
    most = len(plan.clients)
    return NetworkFederation(
        exchange,
        plan.clients,
        seed=plan.seed,
        # A plan of plain sums, or of heads, may be content with half of the clients and less.
        threshold=None if plan.threshold is None else max(plan.threshold, most // 2 + 1),
        aggregation=SecureAggregation(max_weight=1.0, outside="error", **coding),
        time_out=plan.time_out,
        description=plan.description,
    )


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except QuorumError as error:
        raise QuorumError(
            f"scaling: {error}. Means and deviations are one masked sum, for which a node has its"
            " identity and the directory, and an owner who allows it: see its log, or set scaling"
            " to none, or to range with public ones"
        ) from None


def _kept(path: Path, plan: Plan) -> Scaling:
    """The scaling of a run that goes on."""
    try:
        with placed(path):
            found = wire.decode(path.read_bytes(), kind=_KEPT, source=str(path))
        of, scaling = found["of"], heard(found["scaling"])
    except (FederationError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{path}: not the scaling of the run that {plan.checkpoint} is of"
            f" ({type(error).__name__}); begin anew with another checkpoint"
        ) from None
    if of != plan.moments:
        raise InputError(
            f"{path}: the scaling of another run (clients, scale, scaling or random features"
            " differ); set them as they were, or begin anew with another checkpoint"
        )
    return scaling
