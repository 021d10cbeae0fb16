"""What keys are for, in words, and a test that they work."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from .batched.inspection import BatchedKeyFacts, describe_batched
from .batched.keys import BatchedEvaluationKeys
from .compiled import compiled_rule
from .engines import (
    AnyEvaluationKeys,
    AnyPublicKey,
    AnySecretKeys,
    contribute,
    evaluate,
    read_answer,
)
from .errors import AnswerError
from .evaluator import Progress, quiet
from .keys import EvaluationKeys
from .lwe_layout import read_specs
from .readers import key_json, key_lines
from .simulation import plain

SECURITY = (
    "128 bits against known lattice attacks, by the parameter curves of concrete-python 2.11;"
    " rests on LWE with binary secrets"
)
PUBLIC_KEY = (
    "contributions rest on module-LWE with a binary secret at the rank, degree and noise of the"
    " library's own keys; this part is the project's own and awaits an independent review"
)


@dataclass(frozen=True)
class KeyFacts:
    """What is known of keys without opening the secret one."""

    fingerprint: str
    parameters: dict[str, Any]
    evaluation_bytes: int
    lookups: int
    complexity: float
    failure: float
    lattices: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The facts as JSON types."""
        return key_json(vars(self), SECURITY, PUBLIC_KEY)

    def to_text(self) -> str:
        """The facts in sentences."""
        p = self.parameters
        lines = [
            f"key {self.fingerprint}",
            f"rule {p['rule']}: {p['contributors']} contributors, {p['classes']} classes,"
            f" {p['bits']}-bit codes, at most {p['block']} comparisons a call",
            f"a decision takes {self.lookups} table look-ups and is wrong by noise with probability"
            f" at most 2^-{p['failure_exponent']}",
            f"reported by the compiler: a look-up fails with 2^{math.log2(self.failure):.1f} and"
            f" costs {self.complexity / 1e6:,.0f} million operations",
            *key_lines(vars(self), SECURITY, PUBLIC_KEY),
        ]
        return "\n".join(lines)


def describe_keys(keys: AnyEvaluationKeys) -> "KeyFacts | BatchedKeyFacts":
    """The facts of a rule's keys; compiles TFHE's circuit."""
    return describe_batched(keys) if isinstance(keys, BatchedEvaluationKeys) else _described(keys)


def _described(keys: EvaluationKeys) -> KeyFacts:
    circuit = compiled_rule(keys.parameters)
    return KeyFacts(
        keys.fingerprint,
        keys.parameters.to_json(),
        len(keys.content),
        keys.parameters.lookups,
        circuit.complexity,
        circuit.failure,
        tuple(_lattices(read_specs(circuit.specs)["keyset"])),
    )


def _lattices(keyset: dict[str, Any]) -> Iterator[str]:
    for each in keyset["lweBootstrapKeys"]:
        p = each["params"]
        yield (
            f"bootstrap key: GLWE of rank {p['glweDimension']} and degree {p['polynomialSize']},"
            f" noise 2^{math.log2(p['variance']) / 2:.1f}, of LWE keys of dimension"
            f" {p['inputLweDimension']}"
        )
    for each in keyset["lweKeyswitchKeys"]:
        p = each["params"]
        yield (
            f"key switch: LWE dimension {p['inputLweDimension']} to {p['outputLweDimension']},"
            f" noise 2^{math.log2(p['variance']) / 2:.1f}"
        )


def self_test(
    secret: AnySecretKeys,
    evaluation: AnyEvaluationKeys,
    public: AnyPublicKey,
    *,
    progress: Progress = quiet,
) -> int:
    """Runs a fixed set of decisions through all three roles; returns how many.

    Ties across classes and clients, both ends of the codes, and fixed pseudo-random codes.

    Raises:
        AnswerError: an answer differs from the plain rule.
        InputError: the keys do not belong together.
    """
    p = secret.parameters
    shape = (p.contributors, p.classes)
    top = 2**p.bits - 1
    rng = np.random.default_rng(0)
    codes = np.stack(
        [np.zeros(shape, np.int64), np.full(shape, top), *rng.integers(0, top + 1, (6, *shape))]
    )
    sent = [
        contribute(codes[:, i], public, contributor=i, name=str(i), federation="", batch="check")
        for i in range(p.contributors)
    ]
    found = read_answer(evaluate(sent, evaluation, public, progress=progress), secret)
    wrong = np.flatnonzero(found != plain(codes, p))
    if len(wrong):
        raise AnswerError(f"self-test: {len(wrong)} of {len(codes)} decisions are wrong")
    return len(codes)
