"""Encrypted comparison, minimum, maximum and equality of many pairs of integers, by themselves."""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from fhe.circuits import Circuit, compile_functions
from fhe.code import Ints, digits_of
from fhe.digits import (
    Radices,
    base_of,
    equality,
    largest_shown,
    less,
    lookups_of_comparison,
    lookups_of_equality,
    lookups_of_minimum,
    maximum,
    minimum,
    radices_of,
    weights_of,
)
from fhe.errors import InputError
from fhe.parameters import FAILURE_EXPONENTS, width_of

MIN_BITS, MAX_BITS = 4, 24

PRIMITIVES = ("less", "minimum", "maximum", "equality")


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
    def radices(self) -> Radices:
        """Of the integers' places; those of an equality are bits."""
        if self.name == "equality":
            return (2,) * self.bits
        if self.name == "less":
            base = base_of(self.width)
            return (base,) * digits_of(2**self.bits, base)
        return radices_of(2**self.bits, self.width)

    @property
    def weights(self) -> Ints:
        """What a 1 in every digit is worth, most significant first."""
        return np.array(weights_of(self.radices, self.width))

    @property
    def lookups(self) -> int:
        """Table look-ups of one pair."""
        if self.name == "equality":
            return lookups_of_equality(self.bits, self.width)
        if self.name == "less":
            return lookups_of_comparison(len(self.radices))
        return lookups_of_minimum(self.radices, self.width)

    def encode(self, values: Ints) -> Ints:
        """Integers (pairs,) as digits (pairs, digits)."""
        if values.shape != (self.pairs,):
            raise InputError(f"{self.name}: values of shape {values.shape}, expected {self.pairs}")
        if values.min() < 0 or values.max() >= 2**self.bits:
            raise InputError(f"{self.name}: a value does not fit in {self.bits} bits")
        found, rest = [], values
        for weight in self.weights:
            digit, rest = np.divmod(rest, weight)
            found.append(digit)
        return np.stack(found, axis=1)

    def decode(self, output: Any) -> Ints:
        """A run's output as integers, or as 0 and 1, shape (pairs,)."""
        found = np.asarray(output).astype(np.int64)
        return found @ self.weights if found.ndim == 2 else found


@lru_cache(maxsize=8)
def compile_primitive(parameters: PrimitiveParameters) -> Any:
    """The library's module with the operation, under its name, on two (pairs, digits) arrays."""
    radices, width = parameters.radices, parameters.width
    functions: dict[str, Circuit] = {
        "less": Circuit(lambda a, b: less(a, b, width)),
        "equality": Circuit(lambda a, b: equality(a, b, width)),
        "minimum": Circuit(lambda a, b: minimum(a, b, radices, a.shape[1], width), ordered=True),
        "maximum": Circuit(lambda a, b: maximum(a, b, radices, width), ordered=True),
    }
    circuit = replace(functions[parameters.name], rows=parameters.pairs)
    failure = 2.0**-parameters.failure_exponent / parameters.lookups
    largest = largest_shown(radices, width)
    return compile_functions({parameters.name: circuit}, (), largest, failure)
