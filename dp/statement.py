"""What a release protects, in words and in JSON."""

from typing import Any

from attrs import asdict, frozen

from dp.accounting import Composition

NOT_PROTECTED = (
    "class labels",
    "the number of records",
    "class counts and batch counts",
    "the bounds, the grid and every other parameter in this statement",
)

RELEASED_ONCE = "the data set was released once with this promise; further releases add up"
"""What must be assumed where no books were kept."""


def in_all(total: str | None) -> str:
    """What a promise assumes of other releases of the same records.

    Args:
        total: the running total of the books, this release among it; None where none were kept.
    """
    if total is None:
        return RELEASED_ONCE
    return (
        f"every release of these records is in their books, which held with this one {total}; what"
        " is booked later, or nowhere, adds up"
    )


@frozen
class RecordLevel:
    """What an element-level promise implies for a whole record, by composition over its entries.

    Attributes:
        epsilon: None when no finite epsilon follows.
        delta: at which it holds.
        rule: the composition rule.
        meaning: the unit.
    """

    epsilon: float | None
    delta: float
    rule: str
    meaning: str

    @property
    def text(self) -> str:
        """One line."""
        epsilon = "unbounded" if self.epsilon is None else f"{self.epsilon:.4g}"
        return f"epsilon {epsilon}, delta {self.delta:.4g} per {self.meaning} ({self.rule})"


def record_level(total: Composition, meaning: str) -> RecordLevel:
    """From what the accountant found."""
    finite = total.epsilon if total.epsilon < float("inf") else None
    return RecordLevel(finite, total.delta, f"{total.rule} composition", meaning)


@frozen
class Statement:
    """Everything a privacy officer needs to sign a release.

    It holds public facts only; how many entries were clamped, for one, is private.

    Attributes:
        guarantee: False when the smoothing looked at private data.
        epsilon: of the promise, in the unit.
        delta: of the promise, in the unit.
        unit: what the promise protects.
        mechanism: name and source of the noise.
        noise_scale: standard deviation of the noise, in the units of the features.
        sensitivity_steps: how many grid steps the unit can move what is released (for records: the
            L2 distance of a row).
        bounds: clamping bounds.
        grid: step; nothing released has finer structure.
        smoothing: rule of the smoothing.
        passes: smoothing passes of every block of rows, from released data unless guarantee is
            False.
        shares: of the smoothed matrix in what is released, in [0, 1], block by block.
        batches: number of batches.
        rows: number of rows over all batches.
        columns: number of columns.
        record_level: what the promise implies for whole records; empty when the unit is a record.
        assumptions: what must hold for the promise.
        not_protected: what the release shows.
        ledger_digest: of the event in the ledger, or None where none was kept.
        version: of the library.
    """

    guarantee: bool
    epsilon: float
    delta: float
    unit: str
    mechanism: str
    noise_scale: float
    sensitivity_steps: float
    bounds: tuple[float, float]
    grid: float
    smoothing: str
    passes: tuple[int, ...]
    shares: tuple[float, ...]
    batches: int
    rows: int
    columns: int
    record_level: tuple[RecordLevel, ...]
    assumptions: tuple[str, ...]
    not_protected: tuple[str, ...]
    ledger_digest: str | None
    version: str

    @property
    def promise(self) -> str:
        """The promise in one line, never without its unit."""
        if not self.guarantee:
            return "no guarantee: the smoothing looked at the private matrix"
        return f"epsilon {self.epsilon:g}, delta {self.delta:g} per {self.unit}"

    def to_json(self) -> dict[str, Any]:
        """JSON types only."""
        value = asdict(self)
        value["bounds"] = list(self.bounds)
        for key in ("passes", "shares", "record_level", "assumptions", "not_protected"):
            value[key] = list(value[key])
        value["promise"] = self.promise
        if not self.guarantee:
            value["epsilon"] = value["delta"] = None
            value["record_level"] = []
        return value

    def text(self) -> str:
        """Readable lines."""
        low, high = self.bounds
        lines = [
            "PRIVACY STATEMENT",
            f"Promise: {self.promise}",
            f"Mechanism: {self.mechanism}, standard deviation {self.noise_scale:.4g},"
            f" sensitivity {self.sensitivity_steps:g} steps",
            f"Entries clamped to [{low:g}, {high:g}] and rounded to multiples of {self.grid:g};"
            " nothing released has finer structure",
            f"Smoothing: {self.smoothing}",
            f"Released: {self.rows} rows of {self.columns} entries in {self.batches} batch(es)",
        ]
        if self.guarantee:
            lines += [f"For whole records this implies {each.text}" for each in self.record_level]
        lines += [f"Assumed: {each}" for each in self.assumptions]
        lines.append(f"Not protected: {'; '.join(self.not_protected)}")
        lines.append(f"Ledger event: {self.ledger_digest or 'none was kept'}")
        lines.append(f"securefl {self.version}")
        return "\n".join(lines)
