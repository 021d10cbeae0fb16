"""The public parameters of an encrypted rule, from which each side compiles its own circuit."""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np

from .code import MAX_BITS, Ints, Packing, from_digits, to_digits
from .digits import Radices, base_of, lookups_of_comparison, lookups_of_minimum
from .errors import InputError

FAILURE_EXPONENTS = (40, 64, 128)
RULES = ("tournament", "paper")


def width_of(failure_exponent: int) -> int:
    """Bits of the cheaper tables: 3 at 2^-128, else 4 (python -m benchmarks.fhe_design)."""
    return 3 if failure_exponent == 128 else 4


def sizes_of(block: int) -> tuple[int, ...]:
    """Sizes of the blocks that functions are compiled for: half by half, down to 1.

    Every call converts the evaluation key, which takes as long as a few look-ups, so blocks should
    be large; and a block that is filled up computes for nothing, so the rest gets smaller ones.
    """
    return (block, *sizes_of(block // 2)) if block > 1 else (1,)


@attrs.frozen(kw_only=True)
class RuleParameters:
    """What querier, contributors and evaluator must agree on.

    Attributes:
        contributors: Q, 1 to 256.
        classes: C, 2 to 65,536.
        bits: p of the codes, 4 to 16.
        block: integers that one call of a compiled function compares at most.
        failure_exponent: a decision is wrong by noise with probability at most 2^-this.
        rule: "tournament" (Q - 1 minima of packed integers, the class comes out) or "paper" (Q x C
            minima and C equalities, Phi* comes out).
    """

    contributors: int
    classes: int
    bits: int
    block: int = 32
    failure_exponent: int = 128
    rule: str = "tournament"

    def __attrs_post_init__(self) -> None:
        checks = {
            "contributors": 1 <= self.contributors <= 256,
            "classes": 2 <= self.classes <= 2**16,
            "bits": 4 <= self.bits <= MAX_BITS,
            "block": 1 <= self.block <= 256,
            "failure exponent": self.failure_exponent in FAILURE_EXPONENTS,
            "rule": self.rule in RULES,
        }
        for name, fine in checks.items():
            if not fine:
                value = getattr(self, name.replace(" ", "_"))
                raise InputError(f"rule parameters: {name} {value!r} is not offered")

    @property
    def sizes(self) -> tuple[int, ...]:
        """Integers of a call, largest first."""
        return sizes_of(self.block)

    @property
    def width(self) -> int:
        """Bits of every table."""
        return width_of(self.failure_exponent)

    @property
    def base(self) -> int:
        """Of the digits."""
        return base_of(self.width)

    @property
    def packing(self) -> Packing:
        """How a contributor's codes become digits."""
        return Packing(self.bits, self.classes, self.base)

    @property
    def numbers(self) -> int:
        """Integers that a contributor sends per query."""
        return self.classes if self.rule == "paper" else 1

    @property
    def number_digits(self) -> int:
        """Digits of such an integer."""
        return self.packing.code_digits if self.rule == "paper" else self.packing.digits

    @property
    def radices(self) -> Radices:
        """A digit a place: the noise of a minimum's digits is not independent."""
        return (self.base,) * self.number_digits

    @property
    def columns(self) -> int:
        """Digits that a contributor sends per query."""
        return self.numbers * self.number_digits

    @property
    def lookups(self) -> int:
        """Table look-ups of one decision, over which the failure probability is split."""
        of_minimum = lookups_of_minimum(self.radices, self.width)
        if self.rule == "paper":
            minima = (self.contributors - 1) * self.classes + self.classes - 1
            equalities = self.classes * lookups_of_comparison(self.number_digits)
            return minima * of_minimum + equalities
        return max(1, self.contributors - 1) * of_minimum

    def encode(self, codes: Ints) -> Ints:
        """A contributor's codes (queries, classes) as the digits it sends (queries, columns)."""
        packing = self.packing
        if self.rule == "paper":
            packing.check(codes)
            return to_digits(codes, packing.code_digits, self.base).reshape(
                len(codes), self.columns
            )
        return to_digits(packing.pack(codes), packing.digits, self.base)

    def blocks(self, rows: int) -> list[int]:
        """Sizes of the blocks of so many integers: as many full ones as they fill, then smaller."""
        found = []
        for size in self.sizes:
            found += [size] * (rows // size)
            rows %= size
        return found

    def decode(self, outputs: Sequence[Ints], queries: int) -> Ints:
        """The classes (queries,) in a rule's outputs; -1 where they name none.

        Args:
            outputs: results of the last function, in the order of `rule_outputs`, shape
                (integers, class digits) each; in the paper's rule (integers,).
            queries: how many were asked.
        """
        found = np.concatenate(outputs)
        if self.rule == "paper":
            marks = found.reshape(self.classes, queries)
            return np.where(marks.any(axis=0), marks.argmax(axis=0), -1).astype(np.int64)
        return from_digits(found.astype(np.int64), self.base)

    def fingerprint(self) -> str:
        """Digest of all parameters, 64 hexadecimal digits."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """The parameters as JSON types."""
        return attrs.asdict(self)

    @classmethod
    def from_json(cls, value: object, *, source: str) -> "RuleParameters":
        """Reads what `to_json` wrote.

        Raises:
            InputError: other members, types or ranges; names the source.
        """
        names = {field.name for field in attrs.fields(cls)}
        if not isinstance(value, dict) or set(value) != names:
            raise InputError(f"{source}: rule parameters are missing or unknown; make it again")
        kinds = {name: str if name == "rule" else int for name in names}
        for name, kind in kinds.items():
            if type(value[name]) is not kind:
                raise InputError(f"{source}: rule parameter {name} is not of type {kind.__name__}")
        return cls(**value)
