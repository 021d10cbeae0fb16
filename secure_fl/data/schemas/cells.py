"""The cells of one column as numbers: what is missing, outside, or cannot be read."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from secure_fl.data.numerals import is_rounded
from secure_fl.data.schemas.columns import (
    OTHER,
    REFUSE,
    Category,
    Column,
    Date,
    Number,
    days,
    folded,
)
from secure_fl.data.schemas.schema import Schema
from secure_fl.data.schemas.spelling import Convention, Decimal, spelled
from secure_fl.errors import FeatureError, whose

__all__ = ["Cells", "Convention", "Decimal", "features_of"]

Array = NDArray[np.float64]
Read = Callable[[str], float]
"""A cell's number; raises `_UnreadableError`."""


class _UnreadableError(Exception):
    """A cell that means nothing, and what was expected of it."""


@dataclass(frozen=True)
class Cells:
    """Whose cells they are, for messages, and what means a missing value.

    Attributes:
        client: the client's name.
        source: the file.
        lines: each record's line.
        schema: of the federation.
        origin: where it comes from.
    """

    client: str
    source: str
    lines: Sequence[int]
    schema: Schema
    origin: str

    @cached_property
    def empty(self) -> frozenset[str]:
        """What means a missing value, folded."""
        return frozenset({"", *map(folded, self.schema.missing_values)})

    def convention(
        self, cells: Sequence[str], columns: Sequence[Number], decimal: Decimal
    ) -> Convention:
        """The decimal marks of the file, from all cells of its columns of numbers."""
        units = {folded(u) for column in columns for u in (column.unit, *column.other_units)}
        return Convention.of((_parted(cell, units)[0] for cell in set(cells)), decimal)

    def refuse(self, column: Column, row: int, found: str, expected: str, mend: str) -> NoReturn:
        """Raises the one-line error for a cell."""
        shown = f'"{found.strip()[:40]}"' if found.strip() else "empty"
        raise FeatureError(
            f'{whose(self.client)}: column "{column.name}" in line {self.lines[row]} of'
            f" {self.source} is {shown}, expected {expected} ({self.origin}); {mend}"
        )


def features_of(
    column: Column, cells: Sequence[str], context: Cells, convention: Convention
) -> tuple[Array, int, int]:
    """The features of a column, and how many values were missing and how many outside.

    Args:
        column: of the schema.
        cells: one a record.
        context: whose they are.
        convention: of the file's numbers.

    Returns:
        Shape (n, features of the column), scaled as the schema says, and the two counts.

    Raises:
        FeatureError: a cell that cannot be read, or that the schema says to refuse.
    """
    if isinstance(column, Category):
        return _one_hot(column, cells, context)
    read = _date_reader(column) if isinstance(column, Date) else _reader(column, convention)
    low, high = column.days if isinstance(column, Date) else column.range
    values = _values(column, cells, context, read)
    absent = np.isnan(values)
    if absent.any():
        if column.fill is None:
            first = int(np.argmax(absent))
            mend = 'fill it in, or give "missing" a value at all parties'
            context.refuse(column, first, cells[first], "a value", mend)
        values[absent] = column.fill
    outside = (values < low) | (values > high)
    if outside.any() and column.outside == REFUSE:
        first = int(np.argmax(outside))
        span = f"{column.range[0]} to {column.range[1]}"
        mend = 'correct it, or say "outside": "clip" at all parties'
        context.refuse(column, first, cells[first], span, mend)
    if column.outside == "clip":
        values = np.clip(values, low, high)
    if context.schema.scaling == "range":
        values = (values - low) / (high - low)
    blocks = [values, absent.astype(np.float64)] if column.flag_missing else [values]
    return np.stack(blocks, axis=1), int(absent.sum()), int(outside.sum())


def _values(column: Column, cells: Sequence[str], context: Cells, read: Read) -> Array:
    """Numbers of all cells, NaN where one is missing; equal cells are read once."""
    known: dict[str, float] = {}
    for row, cell in enumerate(cells):
        if cell in known:
            continue
        try:
            known[cell] = np.nan if folded(cell) in context.empty else read(cell.strip())
        except _UnreadableError as problem:
            expected, mend = problem.args
            context.refuse(column, row, cell, expected, mend)
    return np.array([known[cell] for cell in cells], dtype=np.float64)


def _reader(column: Number, convention: Convention) -> Read:
    factors = {**({folded(column.unit): 1.0} if column.unit else {}), **column.other_units}

    def read(text: str) -> float:
        number, unit = _parted(text, factors)
        found = spelled(number)
        if found is None:
            units = f" in {', '.join(factors)}" if factors else ""
            mend = "correct it, or add it to missing_values at all parties"
            raise _UnreadableError(f"a number{units}", mend)
        numeral = convention.numeral(found)
        if numeral is None:
            mend = "say which mark the file uses (--decimal comma or point)"
            raise _UnreadableError("a number with one reading", mend)
        if is_rounded(numeral) or not np.isfinite(float(numeral)):
            raise _UnreadableError("a number that float64 holds", "round it, or ignore the column")
        return float(numeral) * (factors[unit] if unit else 1.0)

    return read


def _parted(text: str, units: "dict[str, float] | set[str]") -> tuple[str, str]:
    """A number's text and its unit, folded; "" where it carries none that is known."""
    text = text.strip()
    word = folded(text)
    for unit in sorted(units, key=len, reverse=True):
        if unit and word.endswith(unit) and len(word) == len(text):
            return text[: len(text) - len(unit)].strip(), unit
    return text, ""


def _date_reader(column: Date) -> Read:
    def read(text: str) -> float:
        found = set()
        for each in column.formats:
            try:
                found.add(days(datetime.strptime(text, each)))
            except ValueError:
                continue
        shown = " or ".join(column.formats)
        if not found:
            raise _UnreadableError(
                f"a date as {shown}", "correct it, or add its format at all parties"
            )
        if len(found) > 1:
            raise _UnreadableError(f"a date with one reading by {shown}", "keep one of the formats")
        return found.pop()

    return read


def _one_hot(column: Category, cells: Sequence[str], context: Cells) -> tuple[Array, int, int]:
    places, names = column.places, column.features
    other = names.index(f"{column.name}={OTHER}") if column.outside == OTHER else None
    found = np.zeros((len(cells), len(names)))
    missing = outside = 0
    for row, cell in enumerate(cells):
        word = folded(cell)
        place = places.get(word)
        if place is None and word in context.empty:
            missing += 1
            if column.missing == REFUSE:
                mend = 'fill it in, or say "missing": "own" at all parties'
                context.refuse(column, row, cell, "a category", mend)
            # A feature of its own is the last one.
            place = places.get(folded(column.missing), len(names) - 1)
        elif place is None:
            outside += 1
            place = other
            if place is None:
                mend = 'correct it, add it to spellings, or say "outside": "other" at all parties'
                context.refuse(column, row, cell, f"one of {_shown(column.categories)}", mend)
        found[row, place] = 1.0
    return found, missing, outside


def _shown(names: Sequence[str]) -> str:
    more = len(names) - 12
    return ", ".join(names[:12]) + (f" and {more} more" if more > 0 else "")
