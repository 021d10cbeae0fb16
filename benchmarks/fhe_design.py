"""Which circuit takes the cheapest encrypted minimum of two 8-bit codes with their classes?

One of 20 classes takes 5 bits, and each part has whole digits: 13 in base 2, 6 in base 5.
Every variant is compiled for the same failure probability, run on the same integers and compared
with NumPy; all are timed in turn, round by round, so that a busy machine slows them alike. Beside
the time stands the compiler's own cost estimate, which no other load on the machine can change.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks._harness import Run, benchmark
from fhe.code import Packing, to_digits
from fhe.digits import base_of, minimum
from fhe.library import concrete_fhe

CODE_BITS, CLASSES = 8, 20
Traced = Any


@dataclass(frozen=True)
class Variant:
    """One point of the design space.

    Attributes:
        name: for the table.
        less: from differences (pairs, digits) of base-B digits to an array (pairs,) that is the
            step where a < b and 0 elsewhere.
        base: of the digits.
        strategy: of the compiler: "MULTI" or "MONO" parameter sets.
        keep: digits that the selection returns; None keeps all.
        ordered: whether the compiler must be shown a >= b only, digit by digit.
    """

    name: str
    less: Callable[[Traced, int, int], Traced]
    base: int = 4
    strategy: str = "MULTI"
    keep: int | None = None
    ordered: bool = False

    @property
    def packing(self) -> Packing:
        """How an integer becomes digits."""
        return Packing(CODE_BITS, CLASSES, self.base)

    def minimum(self, a: Traced, b: Traced) -> Traced:
        """The smaller of a and b, digit by digit."""
        top, digits = self.base - 1, self.packing.digits
        step, start = 2 * top + 1, digits - (self.keep or digits)
        difference = a - b
        less = self.less(difference, digits, step)
        index = difference[:, start:] + top + less.reshape((a.shape[0], 1))

        def chosen(value: Any) -> Any:
            value = np.asarray(value)
            return np.where(value >= step, value - step - top, 0)

        return b[:, start:] + concrete_fhe().univariate(chosen)(index)


@dataclass(frozen=True)
class FreeBit(Variant):
    """Tables of `width` bits that use the free bit above them (fhe/digits.py)."""

    width: int = 3
    ordered: bool = True

    def minimum(self, a: Traced, b: Traced) -> Traced:
        """The smaller of a and b, digit by digit."""
        digits = self.packing.digits
        return minimum(a, b, (self.base,) * digits, self.keep or digits, self.width)


def free_bit(width: int, note: str = "", keep: int | None = None) -> FreeBit:
    """The variant in the largest base that tables of so many bits can select."""
    base = base_of(width)
    return FreeBit(f"base {base}, free bit{note}", chain, base, keep=keep, width=width)


def _table(function: Callable[[Any], Any], value: Traced) -> Traced:
    return concrete_fhe().univariate(function)(value)


def _step(step: int) -> Callable[[Any], Any]:
    return lambda value: step * (np.asarray(value) < 0)


def _combined(signs: list[Traced], step: int, group: int) -> Traced:
    """Signs in groups, the most significant non-zero one of each, until one is left."""
    while True:
        last = len(signs) <= group
        following = []
        for start in range(0, len(signs), group):
            members = signs[start : start + group]
            if len(members) == 1 and not last:
                following.append(members[0])
                continue
            total = members[0]
            for member in members[1:]:
                total = total * 2 + member
            following.append(_table(_step(step) if last else np.sign, total))
        if last:
            return following[0]
        signs = following


def tree(group: int) -> Callable[[Traced, int, int], Traced]:
    """The sign of every digit, then groups of signs; base 2 has its signs already."""

    def less(difference: Traced, digits: int, step: int) -> Traced:
        signs = difference if step == 3 else _table(np.sign, difference)
        return _combined([signs[:, i] for i in range(digits)], step, group)

    return less


def chain(difference: Traced, digits: int, step: int) -> Traced:
    """One look-up a digit: the sign of 4 x (sign so far) + difference of the next digit."""
    sign = difference[:, 0]
    for i in range(digits):
        total = sign if i == 0 else sign * ((step + 1) // 2) + difference[:, i]
        sign = _table(_step(step) if i == digits - 1 else np.sign, total)
    return sign


def chains(difference: Traced, digits: int, step: int) -> Traced:
    """Up to three chains side by side, then one combining look-up."""
    length = -(-digits // 3)
    signs = []
    for start in range(0, digits, length):
        sign = _table(np.sign, difference[:, start])
        for i in range(start + 1, min(start + length, digits)):
            sign = _table(np.sign, sign * ((step + 1) // 2) + difference[:, i])
        signs.append(sign)
    return _combined(signs, step, 3)


def pairs_of_digits(difference: Traced, digits: int, step: int) -> Traced:
    """One wide look-up for the sign of two digits together, then groups of three."""
    signs = []
    for start in range(0, digits, 2):
        total = difference[:, start]
        if start + 1 < digits:
            total = total * ((step + 1) // 2) + difference[:, start + 1]
        signs.append(_table(np.sign, total))
    return _combined(signs, step, 3)


VARIANTS = (
    free_bit(3, " (in use at 2^-128)"),
    free_bit(4, " (in use at 2^-40, 2^-64)"),
    free_bit(2),
    Variant("base 4, one chain, one parameter set", chain, strategy="MONO"),
    Variant("base 2, signs in pairs, one parameter set", tree(2), 2, "MONO"),
    free_bit(3, ", class digits only", keep=3),
    free_bit(4, ", class digits only", keep=2),
    Variant("base 2, one chain, one parameter set", chain, 2, "MONO"),
    Variant("base 4, signs in threes", tree(3)),
    Variant("base 4, signs in threes, one parameter set", tree(3), strategy="MONO"),
    Variant("base 4, signs in pairs", tree(2)),
    Variant("base 4, one chain", chain),
    Variant("base 4, three chains", chains),
    Variant("base 4, sign of two digits at once", pairs_of_digits),
    Variant("base 2, signs in threes", tree(3), 2),
    Variant("base 8, signs in threes", tree(3), 8),
)


def _integers(pairs: int, rng: np.random.Generator) -> tuple[Any, Any]:
    """Codes and classes, shape (pairs, 2): random, half of them with equal codes, and the ends."""
    a, b = rng.integers(0, (2**CODE_BITS, CLASSES), (2, pairs, 2))
    b[: pairs // 2, 0] = a[: pairs // 2, 0]
    a[0], b[0] = (2**CODE_BITS - 1, CLASSES - 1), 0
    return a, b


def _packed(values: Any, variant: Variant) -> Any:
    """Codes and classes as integers of whole digits each."""
    return values[:, 0] * variant.base**variant.packing.class_digits + values[:, 1]


def _compile(variant: Variant, pairs: int, failure: float) -> Any:
    fhe = concrete_fhe()
    low = np.zeros((pairs, variant.packing.digits), np.int64)
    high = low + variant.base - 1
    rng = np.random.default_rng(0)
    inputs = [(a, b) for a in (low, high) for b in (low, high)]
    inputs += [tuple(rng.integers(0, variant.base, (2, *low.shape))) for _ in range(20)]
    if variant.ordered:
        inputs = [(np.maximum(a, b), np.minimum(a, b)) for a, b in inputs]

    def build(p_error: float) -> Any:
        configuration = fhe.Configuration(
            p_error=p_error,
            parameter_selection_strategy=variant.strategy,
            loop_parallelize=True,
            compress_evaluation_keys=True,
            dump_artifacts_on_unexpected_failures=False,
        )
        names = {"a": "encrypted", "b": "encrypted"}
        compiler = fhe.Compiler(lambda a, b: variant.minimum(a, b), names)
        return compiler.compile(inputs, configuration)

    # The look-ups over which the failure probability is split are known after a first compilation.
    lookups = build(failure).programmable_bootstrap_count / pairs
    return build(failure / lookups)


def _facts(variant: Variant, pairs: int, exponent: int) -> tuple[list[Any], Callable[[], Any]]:
    circuit = _compile(variant, pairs, 2.0**-exponent)
    circuit.keygen()
    a, b = (_packed(each, variant) for each in _integers(pairs, np.random.default_rng(1)))
    count, base = variant.packing.digits, variant.base
    encrypted = circuit.encrypt(to_digits(a, count, base), to_digits(b, count, base))
    found = circuit.decrypt(circuit.run(*encrypted))
    expected = to_digits(np.minimum(a, b), count, base)[:, -found.shape[1] :]
    lookups = circuit.programmable_bootstrap_count // pairs
    row = [
        *(variant.name, f"2^-{exponent}", lookups, circuit.complexity / pairs / 1e6),
        len(circuit.client.evaluation_keys.serialize()) / 1e6,
        bool(np.array_equal(found, expected)),
    ]
    return row, lambda: circuit.run(*encrypted)


@benchmark("which circuit takes the cheapest encrypted minimum of two codes with classes?")
def main(run: Run) -> None:
    """Look-ups, the compiler's cost estimate, keys and time of every variant."""
    pairs, rounds = (4, 1) if run.quick else (8, 2)
    columns = ["variant", "failure", "look-ups", "cost a pair", "keys MB", "right", "ms a pair"]
    table = run.table("minimum of two 8-bit codes with one of 20 classes", columns)
    for exponent in (40,) if run.quick else (40, 128):
        measured = []
        for variant in VARIANTS[:4] if run.quick else VARIANTS:
            run.progress(f"2^-{exponent}: {variant.name}")
            try:
                measured.append(_facts(variant, pairs, exponent))
            except RuntimeError as error:
                reason = " ".join(str(error).split())[:80]
                run.note(f"{variant.name} at 2^-{exponent}: the compiler refuses ({reason})")
        best = [float("inf")] * len(measured)
        for _ in range(rounds):
            for i, (_, execute) in enumerate(measured):
                start = time.perf_counter()
                execute()
                best[i] = min(best[i], time.perf_counter() - start)
        for (row, _), seconds in zip(measured, best, strict=True):
            table.add(*row, 1e3 * seconds / pairs)
    run.note(f"{pairs} pairs a run; cost is the compiler's estimate in millions of operations")


if __name__ == "__main__":
    main()
