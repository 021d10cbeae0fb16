"""Integer codes of measures, their packing with a class, and their bits (kahm.txt, 3.9).

A contributor sends one integer per query: code * B^k + class, k the base-B digits of a class. The
smallest
packed integer of all contributors carries the answer of the global rule, and the lowest class wins
a tie.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import InputError

MIN_BITS, MAX_BITS = 3, 16

Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class CodeRange:
    """The measures that the codes span: a public constant of the federation.

    A monotone map leaves the rule's answer alone, so the levels may be spent where measures lie.
    The bounds must come from public data or a differentially private release; taken from private
    measures they would leak.

    Attributes:
        low: gets code 0, as everything below it does; in [0, 1).
        high: gets the largest code, as everything above it does; in (low, 1].
    """

    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.low < self.high <= 1.0:
            raise InputError(
                f"code range: found [{self.low}, {self.high}], expected 0 <= low < high <= 1"
            )


def range_from_public_measures(measures: Floats, *, quantile: float = 0.5) -> CodeRange:
    """A range that resolves the measures which can win.

    Args:
        measures: of public records under heads trained on public records, shape (queries, clients,
            classes). Never of private records: the range becomes public.
        quantile: share of the queries' smallest values per class below `high`; the larger ones
            lose against them and may share one code.

    Raises:
        InputError: nothing given, or all measures equal.
    """
    if measures.size == 0:
        raise InputError("public measures: none given")
    per_class = measures.min(axis=1)
    low = float(per_class.min())
    high = float(np.quantile(per_class, quantile))
    # Private heads hold more records than the public ones, so they come closer to a query.
    return CodeRange(max(0.0, low - 0.5 * (high - low)), high)


def encode_measures(measures: Floats, bits: int, code_range: CodeRange | None = None) -> Ints:
    """Measures as integers 0..2^p - 1, to the nearest one, half up, clipped to the range.

    Args:
        measures: in [0, 1], any shape.
        bits: p, 3 to 16.
        code_range: [0, 1] by default, the paper's code.

    Raises:
        InputError: p out of range, or a measure that is not in [0, 1].
    """
    if not MIN_BITS <= bits <= MAX_BITS:
        raise InputError(f"code bits: found {bits}, expected {MIN_BITS} to {MAX_BITS}")
    if not np.all((measures >= 0) & (measures <= 1)):
        raise InputError("measures: found a value outside [0, 1]")
    spanned = code_range or CodeRange()
    unit = (measures.astype(np.float64) - spanned.low) / (spanned.high - spanned.low)
    top = 2**bits - 1
    return np.floor(np.clip(unit, 0.0, 1.0) * top + 0.5).astype(np.int64)


@dataclass(frozen=True)
class Packing:
    """How a code and a class make one integer of digits, most significant first.

    Attributes:
        bits: p of the codes.
        classes: C, at least 2.
        base: B of the digits, at least 2.
    """

    bits: int
    classes: int
    base: int

    def __post_init__(self) -> None:
        if self.classes < 2:
            raise InputError(f"classes: found {self.classes}, expected at least 2")
        if not MIN_BITS <= self.bits <= MAX_BITS:
            raise InputError(f"code bits: found {self.bits}, expected {MIN_BITS} to {MAX_BITS}")

    @property
    def code_digits(self) -> int:
        """Digits of a code."""
        return digits_of(2**self.bits, self.base)

    @property
    def class_digits(self) -> int:
        """Digits of a class; whole digits, so that the class can be read off alone."""
        return digits_of(self.classes, self.base)

    @property
    def digits(self) -> int:
        """Digits of a packed integer."""
        return self.code_digits + self.class_digits

    def pack(self, codes: Ints) -> Ints:
        """Each contributor's winner: shape (..., classes) to (...).

        min over classes of code * B^k + class: the smallest code, the lowest class among ties.
        """
        self.check(codes)
        weight = self.base**self.class_digits
        packed: Ints = (codes * weight + np.arange(self.classes)).min(axis=-1)
        return packed

    def check(self, codes: Ints) -> None:
        """Raises InputError unless codes have shape (..., classes) and are p-bit integers."""
        if codes.shape[-1] != self.classes:
            raise InputError(f"codes: {codes.shape[-1]} classes, expected {self.classes}")
        if codes.size and not 0 <= codes.min() <= codes.max() < 2**self.bits:
            raise InputError(f"codes: found a value outside 0..{2**self.bits - 1}")

    def class_of(self, packed: Ints) -> Ints:
        """The class in a packed integer."""
        return packed % self.base**self.class_digits


def digits_of(values: int, base: int) -> int:
    """Digits that tell so many values apart, at least 1."""
    count = 1
    while base**count < values:
        count += 1
    return count


def to_digits(values: Ints, count: int, base: int) -> Ints:
    """Digits, most significant first: shape (...) to (..., count)."""
    if values.size and not 0 <= values.min() <= values.max() < base**count:
        raise InputError(f"value {values.max()} does not fit in {count} base-{base} digits")
    return values[..., None] // base ** np.arange(count - 1, -1, -1) % base


def from_digits(digits: Ints, base: int) -> Ints:
    """The inverse of `to_digits`: shape (..., count) to (...)."""
    result: Ints = digits @ base ** np.arange(digits.shape[-1] - 1, -1, -1)
    return result
