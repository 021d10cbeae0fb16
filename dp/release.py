"""Noise a matrix once, smooth it, say what is protected, keep the books (kahm.txt, 3.8)."""

import math
from collections.abc import Sequence
from importlib.metadata import version
from typing import Literal, TypeAlias

import numpy as np
from attrs import frozen

from dp.accounting import Promise, compose_promises
from dp.adjacency import Element, Record
from dp.errors import InputError
from dp.events import Event
from dp.grid import Array, Grid, clip_rows, matrix
from dp.ledger import Ledger
from dp.mechanisms import GaussianNoise, Mechanism, Noise
from dp.release_plan import Plan, Smoothing, make_plan
from dp.smoothing import Smoothed, smooth, smooth_fixed, smooth_oracle_without_guarantee
from dp.statement import NOT_PROTECTED, RecordLevel, Statement, in_all, record_level

Batching: TypeAlias = Literal["order", "clusters"]

MOST_ROWS = 1000
"""Rows smoothed together; a longer batch is smoothed in blocks of storage order, since the work
grows with the cube of the rows."""


@frozen
class Release:
    """One released matrix.

    Attributes:
        matrix: smoothed and on the grid, shape (N, n), float64.
        noisy: before smoothing, on the grid, as protected as `matrix`.
        statement: what is protected.
    """

    matrix: Array
    noisy: Array
    statement: Statement


@frozen
class BatchRelease:
    """Released batches of one client.

    Attributes:
        matrices: smoothed, one a batch, on the grid.
        noisy: before smoothing.
        statement: one for all batches.
    """

    matrices: tuple[Array, ...]
    noisy: tuple[Array, ...]
    statement: Statement


def release(
    X: object,
    *,
    epsilon: float,
    delta: float,
    adjacency: Element | Record,
    bounds: tuple[float, float],
    grid: float,
    mechanism: str | None = None,
    smoothing: Smoothing = "sure",
    ledger: Ledger | None = None,
    purpose: str = "release",
) -> Release:
    """Releases one matrix.

    Args:
        X: private, shape (N, n), finite.
        epsilon: above 0, in the unit of `adjacency`.
        delta: in [0, 1), in the unit of `adjacency`.
        adjacency: the unit, `Element(distance)` or `Record(norm)`.
        bounds: (low, high) that entries are clamped to, from public knowledge.
        grid: public step that entries and noise are multiples of.
        mechanism: "optimal" (the paper's noise, the default for elements), "geometric" or
            "staircase" (delta 0), "gaussian" (delta above 0; the only one for records, and their
            default).
        smoothing: "sure" (default: it never looks at X), "none", a fixed public number of passes,
            or "oracle", for research, which voids the guarantee.
        ledger: gets the event before any noise is drawn.
        purpose: the event's text.

    Raises:
        InputError: an argument cannot be used.
        BudgetError: the ledger's budget does not allow it; no noise was drawn.
        LedgerError: the ledger was damaged or edited.
    """
    whole = release_batches(
        [X],
        epsilon=epsilon,
        delta=delta,
        adjacency=adjacency,
        bounds=bounds,
        grid=grid,
        batching="order",
        mechanism=mechanism,
        smoothing=smoothing,
        ledger=ledger,
        purpose=purpose,
    )
    return Release(whole.matrices[0], whole.noisy[0], whole.statement)


def release_batches(
    batches: Sequence[object],
    *,
    epsilon: float,
    delta: float,
    adjacency: Element | Record,
    bounds: tuple[float, float],
    grid: float,
    batching: Batching,
    mechanism: str | None = None,
    smoothing: Smoothing = "sure",
    ledger: Ledger | None = None,
    purpose: str = "release",
) -> BatchRelease:
    """Releases a client's batches once, with one statement and one ledger event.

    Every record is in one batch, so the batches together keep the promise of each (parallel
    composition).

    Args:
        batches: private, each of shape (N_i, n); disjoint records.
        batching: how records came into batches. Only "order" (by class and storage order) is
            accepted: clusters depend on the private entries, and so would each batch's size.
        epsilon, delta, adjacency, bounds, grid, mechanism, smoothing, ledger, purpose: as
            `release` has them.

    Raises:
        InputError, BudgetError, LedgerError: as `release` does.
    """
    prepared = prepare_batches(
        batches,
        epsilon=epsilon,
        delta=delta,
        adjacency=adjacency,
        bounds=bounds,
        grid=grid,
        batching=batching,
        mechanism=mechanism,
        smoothing=smoothing,
        purpose=purpose,
    )
    if ledger is None:
        return prepared.release()
    return prepared.release(ledger, ledger.spend(prepared.event))


@frozen
class Prepared:
    """Batches that are checked and can be released: nothing was drawn yet.

    Attributes:
        plan: the public choices.
        private: the batches, of one width.
        noise: of every entry.
        purpose: the event's text.
    """

    plan: Plan
    private: tuple[Array, ...]
    noise: Noise
    purpose: str

    @property
    def event(self) -> Event:
        """What the release books.

        Raises:
            InputError: its smoothing voids the guarantee.
        """
        if not self.plan.guarantee:
            raise InputError(
                "smoothing: 'oracle' voids the guarantee, no ledger can account for it; leave the"
                " ledger out or choose 'sure'"
            )
        return self.plan.event(self._columns, self.purpose)

    @property
    def _columns(self) -> int:
        return int(self.private[0].shape[1])

    def release(self, ledger: Ledger | None = None, digest: str | None = None) -> BatchRelease:
        """Draws the noise; once.

        Args:
            ledger: that holds the event already, or None where no books are kept.
            digest: of the event in it.
        """
        noisy = tuple(_noised(X, self.plan, self.noise) for X in self.private)
        variance = self.plan.variance(self._columns)
        blocks: list[Smoothed] = []
        matrices: list[Array] = []
        for X, protected in zip(self.private, noisy, strict=True):
            matrix, smoothed = smooth_batch(protected, self.plan, variance, X)
            blocks += smoothed
            matrices.append(matrix)
        rows = sum(len(X) for X in self.private)
        total = None
        if ledger is not None:
            total = ledger.running_total(self.plan.mechanism.delta, self.plan.adjacency)
        facts = self._columns, len(self.private), rows, blocks, digest, total
        return BatchRelease(tuple(matrices), noisy, _statement(self.plan, self.noise, *facts))


def smooth_batch(
    noisy: Array, plan: Plan, variance: float, private: Array | None = None
) -> tuple[Array, list[Smoothed]]:
    """What follows from the noisy matrix of a batch without looking at its records.

    So it may be done again, for fewer of the batch's rows, and costs nothing.

    Args:
        noisy: on the grid, shape (N, n).
        plan: the public choices.
        variance: of the noise of one entry, `plan.variance`.
        private: for the smoothing "oracle" alone, which has no guarantee.

    Returns:
        The smoothed matrix on the grid, and its blocks of at most `MOST_ROWS` rows.
    """
    blocks = _smoothed_blocks(noisy, variance, plan.smoothing, private)
    return plan.grid.nearest(np.concatenate([each.matrix for each in blocks])), blocks


def prepare_batches(
    batches: Sequence[object],
    *,
    epsilon: float,
    delta: float,
    adjacency: Element | Record,
    bounds: tuple[float, float],
    grid: float,
    batching: Batching,
    mechanism: str | None = None,
    smoothing: Smoothing = "sure",
    purpose: str = "release",
) -> Prepared:
    """Everything of `release_batches` that can fail before its event is booked; arguments as there.

    Where several data sets are released together, all are prepared, then booked by `dp.book`, then
    released.

    Raises:
        InputError: an argument cannot be used.
    """
    plan = make_plan(
        epsilon=epsilon,
        delta=delta,
        adjacency=adjacency,
        bounds=bounds,
        grid=grid,
        mechanism=mechanism,
        smoothing=smoothing,
    )
    if batching != "order":
        raise InputError(
            f"batching: {batching!r} forms batches from private entries, so their sizes would tell"
            " of them; use 'order'"
        )
    private = _same_width(batches)
    return Prepared(plan, tuple(private), plan.noise(private[0].shape[1]), purpose)


def _same_width(batches: Sequence[object]) -> list[Array]:
    if len(batches) == 0:
        raise InputError("batches: 0 found, a release needs at least 1")
    one = len(batches) == 1
    private = [matrix(X, "matrix" if one else f"batch {i}") for i, X in enumerate(batches)]
    for i, X in enumerate(private):
        if X.shape[1] != private[0].shape[1]:
            raise InputError(
                f"batch {i}: {X.shape[1]} columns, batch 0 has {private[0].shape[1]};"
                " batches of one client have the same features"
            )
    return private


def _noised(X: Array, plan: Plan, noise: Noise) -> Array:
    codes = plan.grid.encode(X)
    if isinstance(plan.adjacency, Record):
        codes = clip_rows(codes, plan.largest_row)
    return plan.grid.decode(codes + noise.draw(codes.size).reshape(codes.shape))


def _smoothed_blocks(
    noisy: Array, variance: float, how: Smoothing, private: Array | None
) -> list[Smoothed]:
    n_blocks = math.ceil(len(noisy) / MOST_ROWS)
    blocks = np.array_split(noisy, n_blocks)
    if how == "oracle":
        assert private is not None
        truth = np.array_split(private, n_blocks)
        return [
            smooth_oracle_without_guarantee(block, own)
            for block, own in zip(blocks, truth, strict=True)
        ]
    if how == "sure":
        return [smooth(block, variance) for block in blocks]
    return [smooth_fixed(block, 0 if how == "none" else int(how)) for block in blocks]


def implied_for_records(
    mechanism: Mechanism, adjacency: Element, grid: Grid, n_columns: int
) -> tuple[RecordLevel, ...]:
    """What an element-level promise implies for records of n_columns entries.

    Two units: every entry of one row moves by at most the distance, and one row is replaced by any
    other inside the bounds. Each is the composition of n_columns promises, at the delta that these
    fail with plus one more delta (10^-5 where the mechanism is pure).
    """
    step = grid.sensitivity(adjacency.distance)
    near = f"record (every entry of one row moves by at most {adjacency.distance:.12g})"
    found = [_over_columns(mechanism, mechanism.epsilon, n_columns, near)]
    # Beyond the distance a Gaussian's delta grows as well, so group privacy says nothing useful.
    if grid.levels > step and not isinstance(mechanism, GaussianNoise):
        epsilon = mechanism.noise(step).loss(grid.levels)
        meaning = "record (one row replaced by any other inside the bounds)"
        found.append(_over_columns(mechanism, epsilon, n_columns, meaning))
    return tuple(found)


def _over_columns(
    mechanism: Mechanism, epsilon: float, n_columns: int, meaning: str
) -> RecordLevel:
    failure = -math.expm1(n_columns * math.log1p(-mechanism.delta))
    delta = failure + (mechanism.delta or 1e-5)
    promises = [Promise(epsilon, mechanism.delta)] * n_columns
    return record_level(compose_promises(promises, delta), meaning)


def _statement(
    plan: Plan,
    noise: Noise,
    n_columns: int,
    n_batches: int,
    rows: int,
    blocks: Sequence[Smoothed],
    digest: str | None,
    total: str | None,
) -> Statement:
    rules = {
        "sure": "passes, and the share of the smoothed matrix, chosen from the noisy matrix alone"
        " by Stein's risk estimate",
        "none": "none",
        "oracle": "passes chosen by comparing with the private matrix; NO GUARANTEE",
    }
    rule = rules.get(str(plan.smoothing), f"{plan.smoothing} pass(es), a public constant")
    implied: tuple[RecordLevel, ...] = ()
    if isinstance(plan.adjacency, Element):
        implied = implied_for_records(plan.mechanism, plan.adjacency, plan.grid, n_columns)
    return Statement(
        guarantee=plan.guarantee,
        epsilon=plan.mechanism.epsilon,
        delta=plan.mechanism.delta,
        unit=plan.adjacency.unit,
        mechanism=plan.mechanism.title,
        noise_scale=math.sqrt(noise.variance) * plan.grid.step,
        sensitivity_steps=plan.sensitivity(n_columns),
        bounds=(plan.grid.low, plan.grid.high),
        grid=plan.grid.step,
        smoothing=rule,
        passes=tuple(each.passes for each in blocks),
        shares=tuple(each.share for each in blocks),
        batches=n_batches,
        rows=rows,
        columns=n_columns,
        record_level=implied,
        assumptions=(
            "bounds, grid step and all parameters were fixed without looking at the data",
            "records were put into clients and batches by label and storage order, not by"
            " their features, and each record is in one batch",
            in_all(total),
        ),
        not_protected=NOT_PROTECTED,
        ledger_digest=digest,
        version=version("securefl"),
    )


__all__ = [
    "BatchRelease",
    "Prepared",
    "Release",
    "prepare_batches",
    "release",
    "release_batches",
]
