"""Releases of one data set under one unit, none of them without books."""

import math
from pathlib import Path

from attrs import frozen

from dp.accounting import Composition
from dp.adjacency import Element, Record
from dp.errors import InputError
from dp.events import Budget
from dp.grid import Grid, check_bounds, matrix
from dp.ledger import Ledger
from dp.release import Release, release
from dp.release_plan import Smoothing

STEPS_OF_UNIT = 256
RECORD_DELTA = 1e-5


def open_ledger(
    path: str | Path,
    *,
    unit: Element | Record,
    bounds: tuple[float, float],
    grid: float | None = None,
    budget: tuple[float, float] | None = None,
) -> "ReleaseLedger":
    """Opens the books of a data set, or starts them, for releases under one unit.

    Args:
        path: of the ledger; a new one is named after the file and its folder must exist.
        unit: what every epsilon protects: `Element(distance)` or `Record(norm)`.
        bounds: (low, high) that entries are clamped to, from public knowledge. There is no default:
            taken from the data they would leak.
        grid: public step that entries and noise are multiples of. By default the largest power of
            two that cuts the distance or norm (or the range, where that is smaller) into at least
            256 steps: rounding then moves an entry by at most 1/512 of what the noise hides, the
            last step costs at most 1/256 more noise, and multiples are exact in binary.
        budget: (epsilon, delta) that all events may cost together, in the unit; fixed when the
            ledger is started. None: none for a new ledger, the one it has for another.

    Raises:
        InputError: bounds or grid cannot be used; the ledger's budget is another one, or an event
            in it has another unit, which does not add up with this one.
        LedgerError: the file is no ledger, or was damaged or edited.
    """
    if not isinstance(unit, Element | Record):
        raise InputError(f"unit: found {unit!r}, expected dp.Element(distance) or dp.Record(norm)")
    path = Path(path)
    if grid is None:
        grid = default_grid(unit, bounds)
    Grid.make(bounds, grid)
    wanted = None if budget is None else Budget(*_pair(budget), unit)
    ledger = Ledger.open(path) if path.exists() else Ledger.create(path, path.stem, wanted)
    opened = ReleaseLedger(ledger, unit, bounds, grid)
    opened._refuse_other_units()
    kept = ledger.budget
    if wanted is not None and kept != wanted:
        raise InputError(
            f"{path}: its budget is {_words(kept)}, found {_words(wanted)}; a budget is fixed when"
            " a ledger is started: leave it out"
        )
    return opened


def default_grid(unit: Element | Record, bounds: object) -> float:
    """The step that `open_ledger` takes by default.

    Raises:
        InputError: the bounds cannot be used.
    """
    size = unit.distance if isinstance(unit, Element) else unit.norm
    low, high = check_bounds(bounds)
    _, exponent = math.frexp(min(size, high - low))
    return math.ldexp(1.0, exponent - 1) / STEPS_OF_UNIT


@frozen
class ReleaseLedger:
    """A ledger, and the public facts of every release that it books; see `open_ledger`.

    Attributes:
        ledger: the books on disk.
        unit: what every epsilon protects.
        bounds: (low, high) that entries are clamped to.
        grid: step of entries and noise.
    """

    ledger: Ledger
    unit: Element | Record
    bounds: tuple[float, float]
    grid: float

    def release(
        self,
        X: object,
        *,
        epsilon: float,
        delta: float | None = None,
        mechanism: str | None = None,
        smoothing: Smoothing = "sure",
        purpose: str = "release",
    ) -> Release:
        """Releases a matrix of the data set; the event is in the books before noise is drawn.

        Args:
            X: private, shape (N, n), finite. Rows that were released before cost again.
            epsilon: above 0, in the unit.
            delta: in [0, 1), in the unit. By default 0 for elements, which costs little noise and
                leaves nothing to explain; for records, where noise needs one, 1e-5, as long as that
                is less than one over the number of rows.
            mechanism: by default the best of the unit: "optimal" for elements, "gaussian" for
                records; see `dp.release.release`.
            smoothing: "sure" (never looks at X), "none" or a fixed public number of passes.
            purpose: the event's text.

        Raises:
            InputError: an argument cannot be used, or an event of another unit was booked.
            BudgetError: the budget does not allow it; no noise was drawn.
            LedgerError: the ledger was damaged or edited.
        """
        self._refuse_other_units()
        element = isinstance(self.unit, Element)
        if delta is None:
            delta = 0.0 if element else _delta_for_records(len(matrix(X, "matrix")))
        return release(
            X,
            epsilon=epsilon,
            delta=delta,
            adjacency=self.unit,
            bounds=self.bounds,
            grid=self.grid,
            mechanism=mechanism or ("optimal" if element else "gaussian"),
            smoothing=smoothing,
            ledger=self.ledger,
            purpose=purpose,
        )

    def spent(self, delta: float | None = None) -> Composition:
        """What all events cost together.

        Args:
            delta: at which epsilon is stated, in [0, 1). By default the budget's; without a budget
                the least at which the events' promises surely hold together: one minus the product
                of 1 - delta over them.

        Raises:
            InputError: no delta given, no budget, and an event without a delta of its own.
        """
        return self.ledger.get_epsilon(self._delta() if delta is None else delta, self.unit)

    @property
    def statement(self) -> str:
        """What the data set has spent, in lines for whoever must sign.

        A release's own statement says how it was made and what it does not protect.
        """
        total, budget = self.spent(), self.ledger.budget
        lines = [
            f"Data set {self.ledger.data_set}: {len(self.ledger.events)} event(s) in"
            f" {self.ledger.path}",
            f"Spent: epsilon {total.epsilon:.4g} at delta {total.delta:.4g} per {self.unit.unit}"
            f" ({total.rule})",
            f"Budget: {_words(budget)}",
        ]
        return "\n".join(lines)

    def _delta(self) -> float:
        budget = self.ledger.budget
        if budget is not None:
            return budget.delta
        held = 0.0
        for event in self.ledger.events:
            if event.promise is None:
                raise InputError(
                    f"{self.ledger.path}: the event {event.what!r} has no delta of its own; say at"
                    " which delta to state what was spent"
                )
            held += event.count * math.log1p(-event.promise.delta)
        return -math.expm1(held)

    def _refuse_other_units(self) -> None:
        budget = self.ledger.budget
        units = ([budget.adjacency] if budget else []) + list(self.ledger.units)
        for found in units:
            if found != self.unit:
                raise InputError(
                    f"{self.ledger.path}: kept per {found.unit}, asked for {self.unit.unit}; units"
                    " do not add up, keep a ledger for each"
                )


def _delta_for_records(rows: int) -> float:
    if rows * RECORD_DELTA >= 1:
        raise InputError(
            f"delta: {rows} records, of which a delta of {RECORD_DELTA:g} could show one; give a"
            " delta well below one over their number"
        )
    return RECORD_DELTA


def _pair(budget: object) -> tuple[float, float]:
    if not isinstance(budget, tuple | list) or len(budget) != 2:
        raise InputError(f"budget: found {budget!r}, expected (epsilon, delta)")
    return budget[0], budget[1]


def _words(budget: Budget | None) -> str:
    if budget is None:
        return "none"
    return f"epsilon {budget.epsilon:g} at delta {budget.delta:g} per {budget.adjacency.unit}"
