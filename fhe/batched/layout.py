"""How a contributor's integer becomes thermometers, a query a slot.

A contributor's smallest code and its class make one integer, code * C + class: the smallest of all
contributors carries the answer, the lowest class wins a tie. It is cut at a public r,

    high = code // r,    low = (code % r) * C + class,

and both halves into two digits, most significant first. A digit d of radix R is sent as its
thermometer: the R - 1 bits [d <= 0], ..., [d <= R - 2]. From them the evaluator has, by
subtraction, the indicators [d = 0], ..., [d = R - 1].
"""

from typing import Any

import attrs
import numpy as np

from fhe.code import Ints
from fhe.errors import InputError

Bits = np.ndarray[Any, np.dtype[np.int64]]


@attrs.frozen
class Half:
    """A number of two digits.

    Attributes:
        values: how many numbers there are, at least 3.
        rows: radix of the upper digit, at least 2.
        columns: radix of the lower digit, at least 2; no row is without a number.
    """

    values: int
    rows: int
    columns: int

    def __attrs_post_init__(self) -> None:
        filled = (self.rows - 1) * self.columns < self.values <= self.rows * self.columns
        if min(self.rows, self.columns) < 2 or not filled:
            raise InputError(f"layout: {self.values} numbers in {self.rows} x {self.columns}")

    @property
    def ciphertexts(self) -> int:
        """Thermometer bits of both digits."""
        return self.rows + self.columns - 2

    @property
    def counted(self) -> int:
        """Numbers v for which the circuit counts who is at most v: all but the largest."""
        return self.values - 1

    def columns_of(self, row: int) -> range:
        """Lower digits of the counted numbers with this upper digit."""
        return range(max(0, min(self.columns, self.counted - row * self.columns)))

    def thermometers(self, numbers: Ints) -> Bits:
        """Shape (q,) to (ciphertexts, q): the upper digit's bits, then the lower one's."""
        digits = np.divmod(numbers, self.columns)
        radices = (self.rows, self.columns)
        return np.concatenate(
            [
                (digit <= np.arange(radix - 1)[:, None]).astype(np.int64)
                for digit, radix in zip(digits, radices, strict=True)
            ]
        )


@attrs.frozen
class Layout:
    """Both halves of an integer.

    Attributes:
        classes: C.
        step: r, codes that share a high half.
        high: of code // r.
        low: of (code % r) * C + class.
    """

    classes: int
    step: int
    high: Half
    low: Half

    @property
    def ciphertexts(self) -> int:
        """Ciphertexts of a contribution to a full batch."""
        return self.high.ciphertexts + self.low.ciphertexts

    def thermometers(self, codes: Ints) -> Bits:
        """A contributor's codes (q, classes) as bits, shape (ciphertexts, q)."""
        winners = (codes * self.classes + np.arange(self.classes)).min(axis=1)
        code, label = np.divmod(winners, self.classes)
        high, within = np.divmod(code, self.step)
        low = within * self.classes + label
        return np.concatenate([self.high.thermometers(high), self.low.thermometers(low)])

    def neutral(self, queries: int) -> Bits:
        """Bits of an integer that no integer of a contributor exceeds: no bit is set."""
        return np.zeros((self.ciphertexts, queries), np.int64)

    def steps(self) -> list[int]:
        """Class of the low half v + 1, less that of v, for every counted v: 1 or 1 - C."""
        labels = np.arange(self.low.values) % self.classes
        return [int(each) for each in np.diff(labels)]
