"""The public parameters of a batched rule: on every side the same circuit, primes and layout."""

import functools
import hashlib
import json
from typing import Any, ClassVar

import attrs

from fhe.code import Ints, Packing
from fhe.errors import InputError

from .chain import BUDGET, MODULUS, Chain, find_chain
from .circuit import Rule
from .cost import cheapest, milliseconds
from .layout import Bits, Half, Layout
from .vanishing import vanishing

MAX_CONTRIBUTORS = 256
MAX_BITS = 12
MAX_COUNTED = 4096
"""Values that an evaluation counts at most, in both halves together."""


@attrs.frozen(kw_only=True)
class BatchedParameters:
    """What querier, contributors and evaluator must agree on.

    Attributes:
        contributors: Q, 1 to 256.
        classes: C, 2 to 65,536.
        bits: p of the codes, 4 to 12.
        degree: n, queries that one set of ciphertexts holds: 16,384 or 32,768.
        step: r, codes that share a high half.
        high_columns, low_columns: radix of the lower digit of each half.
    """

    contributors: int
    classes: int
    bits: int
    degree: int
    step: int
    high_columns: int
    low_columns: int

    engine: ClassVar[str] = "bgv"
    rule: ClassVar[str] = "tournament"

    def __attrs_post_init__(self) -> None:
        check_ranges(self.contributors, self.classes, self.bits, self.degree)
        if not 1 <= self.step <= 2**self.bits:
            raise InputError(f"rule parameters: engine bgv does not offer step {self.step!r}")
        counted = self.layout.high.counted + self.layout.low.counted
        if counted > MAX_COUNTED:
            raise InputError(
                f"rule parameters: engine bgv would count {counted} values, at most {MAX_COUNTED};"
                " take fewer code bits or --engine tfhe"
            )

    @functools.cached_property
    def layout(self) -> Layout:
        """How integers become thermometers."""
        return layout_of(self.classes, self.bits, self.step, self.high_columns, self.low_columns)

    @functools.cached_property
    def circuit(self) -> Rule:
        """What the evaluator computes."""
        return attrs.evolve(self._counted, shrinks=self.chain.shrinks)

    @functools.cached_property
    def _counted(self) -> Rule:
        """The circuit, whatever the primes."""
        return Rule(self.contributors, self.layout, MODULUS, vanishing(self.contributors))

    @functools.cached_property
    def chain(self) -> Chain:
        """The primes of the modulus.

        Raises:
            InputError: no modulus of this degree is secure and large enough.
        """
        return find_chain(self._counted, self.degree)

    @property
    def packing(self) -> Packing:
        """How the plain rule packs a code and a class: code * C + class."""
        return Packing(self.bits, self.classes, self.classes)

    @property
    def milliseconds(self) -> float:
        """An estimate of one core's time a query, in a full batch."""
        return milliseconds(self._counted, self.degree) / self.degree

    def sets(self, queries: int) -> int:
        """Sets of ciphertexts that so many queries fill."""
        return -(-queries // self.degree)

    def check(self, codes: Ints) -> None:
        """Raises InputError unless codes have shape (queries, classes) and are p-bit integers."""
        if codes.ndim != 2 or codes.shape[1] != self.classes:
            raise InputError(f"codes: shape {codes.shape}, expected (queries, {self.classes})")
        if codes.size and not 0 <= codes.min() <= codes.max() < 2**self.bits:
            raise InputError(f"codes: found a value outside 0..{2**self.bits - 1}")

    def thermometers(self, codes: Ints) -> Bits:
        """A contributor's codes (queries, classes) as bits, shape (ciphertexts, queries)."""
        self.check(codes)
        return self.layout.thermometers(codes)

    def decode(self, slots: Ints) -> Ints:
        """The classes in an answer's slots; values of C and more are none."""
        return slots % MODULUS * pow(self.circuit.answer_kappa, -1, MODULUS) % MODULUS

    def fingerprint(self) -> str:
        """Digest of all parameters and primes, 64 hexadecimal digits."""
        facts = {**self.to_json(), "chain": attrs.asdict(self.chain)}
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """The parameters as JSON types."""
        return {"engine": self.engine, **attrs.asdict(self)}

    @classmethod
    def from_json(cls, value: object, *, source: str) -> "BatchedParameters":
        """Reads what `to_json` wrote.

        Raises:
            InputError: other members, types or ranges; names the source.
        """
        names = {field.name for field in attrs.fields(cls)}
        if not isinstance(value, dict) or set(value) != names | {"engine"}:
            raise InputError(f"{source}: rule parameters are missing or unknown; make it again")
        for name in names:
            if type(value[name]) is not int:
                raise InputError(f"{source}: rule parameter {name} is not of type int")
        return cls(**{name: value[name] for name in names})


def check_ranges(contributors: int, classes: int, bits: int, degree: int) -> None:
    """Raises InputError unless the engine offers a rule of this size."""
    checks = (
        ("contributors", contributors, 1 <= contributors <= MAX_CONTRIBUTORS, MAX_CONTRIBUTORS),
        ("classes", classes, 2 <= classes <= 2**16, 2**16),
        ("code bits", bits, 4 <= bits <= MAX_BITS, MAX_BITS),
        ("degree", degree, degree in BUDGET, max(BUDGET)),
    )
    for name, found, fine, most in checks:
        if not fine:
            raise InputError(
                f"rule parameters: engine bgv takes up to {most} {name}, found {found};"
                " choose --engine tfhe"
            )


def layout_of(classes: int, bits: int, step: int, high_columns: int, low_columns: int) -> Layout:
    """The layout with these cuts."""

    def half(values: int, columns: int) -> Half:
        return Half(values, -(-values // columns), columns)

    high, low = -(-(2**bits) // step), step * classes
    return Layout(classes, step, half(high, high_columns), half(low, low_columns))


def choose_parameters(
    contributors: int, classes: int, bits: int, *, degree: int | None = None
) -> BatchedParameters:
    """The cheapest parameters for a federation (`cost`).

    Args:
        contributors: Q, 1 to 256.
        classes: C, 2 to 65,536.
        bits: p, 4 to 12.
        degree: n; the smallest one that is secure by default.

    Raises:
        InputError: out of range, or no modulus fits.
    """
    if degree is not None:
        found = _cheapest(contributors, classes, bits, degree)
        _ = found.chain
        return found
    for each in BUDGET:
        try:
            return choose_parameters(contributors, classes, bits, degree=each)
        except InputError as error:
            refused = error
    raise refused


@functools.lru_cache(maxsize=32)
def _cheapest(contributors: int, classes: int, bits: int, degree: int) -> BatchedParameters:
    check_ranges(contributors, classes, bits, degree)
    cuts = cheapest(contributors, classes, bits)
    if cuts is None:
        raise InputError(f"rule parameters: engine bgv has no layout for {classes} classes")
    return BatchedParameters(
        contributors=contributors,
        classes=classes,
        bits=bits,
        degree=degree,
        step=cuts[0],
        high_columns=cuts[1],
        low_columns=cuts[2],
    )
