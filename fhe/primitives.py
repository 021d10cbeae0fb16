"""Encrypted comparison, minimum, maximum and equality of many pairs of integers, by themselves."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from .circuits import Circuit, compile_functions
from .code import Ints, digits_of, from_digits, to_digits
from .digits import (
    Traced,
    base_of,
    equality,
    less,
    lookups_of_comparison,
    lookups_of_equality,
    lookups_of_minimum,
    maximum,
    minimum,
)
from .errors import InputError
from .parameters import FAILURE_EXPONENTS, width_of

MIN_BITS, MAX_BITS = 4, 24

_FUNCTIONS: dict[str, Callable[[Traced, Traced, int], Traced]] = {
    "less": less,
    "minimum": lambda a, b, width: minimum(a, b, a.shape[1], width),
    "maximum": maximum,
    "equality": equality,
}
PRIMITIVES = tuple(_FUNCTIONS)


@dataclass(frozen=True)
class PrimitiveParameters:
    """One operation on pairs of unsigned integers.

    Attributes:
        name: "less", "minimum", "maximum" or "equality".
        bits: width of the integers, 4 to 24.
        pairs: of one run, at least 1.
        failure_exponent: a pair's result is wrong by noise with probability at most 2^-this.
    """

    name: str
    bits: int
    pairs: int = 1
    failure_exponent: int = 128

    def __post_init__(self) -> None:
        if self.name not in PRIMITIVES:
            raise InputError(f"primitive {self.name!r}: expected one of {', '.join(PRIMITIVES)}")
        if not MIN_BITS <= self.bits <= MAX_BITS:
            raise InputError(f"{self.name}: {self.bits} bits, expected {MIN_BITS} to {MAX_BITS}")
        if self.pairs < 1:
            raise InputError(f"{self.name}: {self.pairs} pairs, expected at least 1")
        if self.failure_exponent not in FAILURE_EXPONENTS:
            raise InputError(
                f"{self.name}: failure 2^-{self.failure_exponent}, expected one of"
                f" {', '.join(f'2^-{e}' for e in FAILURE_EXPONENTS)}"
            )

    @property
    def width(self) -> int:
        """Bits of every table."""
        return width_of(self.failure_exponent)

    @property
    def base(self) -> int:
        """Of the digits; those of an equality are bits."""
        return 2 if self.name == "equality" else base_of(self.width)

    @property
    def digits(self) -> int:
        """Digits of an integer."""
        return digits_of(2**self.bits, self.base)

    @property
    def lookups(self) -> int:
        """Table look-ups of one pair."""
        if self.name == "equality":
            return lookups_of_equality(self.bits, self.width)
        count = lookups_of_comparison if self.name == "less" else lookups_of_minimum
        return count(self.digits)

    def encode(self, values: Ints) -> Ints:
        """Integers (pairs,) as digits (pairs, digits)."""
        if values.shape != (self.pairs,):
            raise InputError(f"{self.name}: values of shape {values.shape}, expected {self.pairs}")
        if values.min() < 0 or values.max() >= 2**self.bits:
            raise InputError(f"{self.name}: a value does not fit in {self.bits} bits")
        return to_digits(values, self.digits, self.base)

    def decode(self, output: Any) -> Ints:
        """A run's output as integers, or as 0 and 1, shape (pairs,)."""
        found = np.asarray(output).astype(np.int64)
        return from_digits(found, self.base) if found.ndim == 2 else found


@lru_cache(maxsize=8)
def compile_primitive(parameters: PrimitiveParameters) -> Any:
    """The library's module with the operation, under its name, on two (pairs, digits) arrays."""
    name, width = parameters.name, parameters.width
    circuit = Circuit(
        lambda a, b: _FUNCTIONS[name](a, b, width), parameters.pairs, ordered=name != "less"
    )
    failure = 2.0**-parameters.failure_exponent / parameters.lookups
    return compile_functions({name: circuit}, (), parameters.digits, parameters.base, failure)
