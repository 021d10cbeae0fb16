"""From heads to codes: what a contributor computes in the clear before it encrypts."""

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from fhe import (
    AnyParameters,
    BatchedParameters,
    CodeRange,
    RuleParameters,
    choose_parameters,
    encode_measures,
)
from secure_fl.errors import InputError
from secure_fl.heads.head import Head
from secure_fl.heads.manifest import Manifest


def head_codes(head: Head, features: NDArray[Any], manifest: Manifest) -> NDArray[np.int64]:
    """A client's integer codes, shape (queries, answers).

    Args:
        head: the client's.
        features: scaled queries, shape (queries, n_features).
        manifest: the federation's facts. Where it has a threshold, its clients send the largest
            code for "unknown", which loses against the threshold's.
    """
    return measure_codes(head.measures(features, manifest), manifest)


def measure_codes(measures: NDArray[Any], manifest: Manifest) -> NDArray[np.int64]:
    """The integer codes of a head's measures, shape (queries, answers).

    Args:
        measures: in [0, 1], shape (queries, classes).
        manifest: the federation's facts.
    """
    codes = encode_measures(measures, manifest.bits, CodeRange(manifest.low, manifest.high))
    return np.pad(codes, _beside(codes, manifest), constant_values=2**manifest.bits - 1)


def _beside(codes: NDArray[np.int64], manifest: Manifest) -> tuple[tuple[int, int], ...]:
    return (0, 0), (0, len(manifest.answers) - codes.shape[1])


def threshold_codes(queries: int, manifest: Manifest) -> NDArray[np.int64]:
    """What the threshold contributes: its code for "unknown", the largest for every class.

    They are public. A class whose code is the threshold's wins the tie, as the lower index, so that
    "unknown" is what has a larger smallest code.

    Args:
        queries: of the batch.
        manifest: the federation's facts, with a threshold.

    Returns:
        Shape (queries, answers).

    Raises:
        InputError: no threshold, or one whose code is the largest, above which nothing is.
    """
    top = 2**manifest.bits - 1
    codes = np.full((queries, len(manifest.answers)), top, np.int64)
    codes[:, -1] = threshold_code(manifest)
    return codes


def threshold_code(manifest: Manifest) -> int:
    """The integer code of the threshold; raises as `threshold_codes`."""
    if manifest.unknown_above is None:
        raise InputError("federation: has no threshold; set one with securefl data calibrate")
    spanned = CodeRange(manifest.low, manifest.high)
    code = int(encode_measures(np.array([manifest.unknown_above]), manifest.bits, spanned)[0])
    if code == 2**manifest.bits - 1:
        raise InputError(
            f"federation: the threshold {manifest.unknown_above:.6g} has the largest code of"
            f" {manifest.bits} bits, above which nothing is; take a lower one"
        )
    return code


def all_codes(
    heads: Sequence[Head], features: NDArray[Any], manifest: Manifest
) -> NDArray[np.int64]:
    """What all contributors send, shape (queries, contributors, answers); for simulations."""
    codes = [head_codes(head, features, manifest) for head in heads]
    if manifest.unknown_above is not None:
        codes.append(threshold_codes(len(features), manifest))
    return np.stack(codes, axis=1)


def refuse_masked(manifest: Manifest) -> None:
    """Refuses a federation whose rule has neither keys nor ciphertexts, where these are wanted.

    Raises:
        InputError: its rule is one of sums; names what answers under it.
    """
    if manifest.summed:
        raise InputError(
            f"federation: its rule is {manifest.rule} (federation.json), which has no keys and no"
            " ciphertexts; answer with `securefl infer QUERIES --run RUN`, over a network with"
            " `securefl query`, without --keys"
        )


def rule_parameters(manifest: Manifest, *, failure_exponent: int, block: int) -> RuleParameters:
    """The circuit's parameters of a federation.

    Args:
        manifest: the federation's facts.
        failure_exponent: a decision is wrong by noise with probability at most 2^-this.
        block: integers that one call of a compiled function compares.

    Raises:
        InputError: the federation's rule is masked.
    """
    refuse_masked(manifest)
    return RuleParameters(
        contributors=len(manifest.contributors),
        classes=len(manifest.answers),
        bits=manifest.bits,
        rule=manifest.rule,
        failure_exponent=failure_exponent,
        block=block,
    )


def refuse_other_rule(found: AnyParameters, manifest: Manifest, *, source: str) -> None:
    """Refuses keys that are not for a federation's rule.

    Args:
        found: of the keys, of any engine. How engine bgv lays out its integers is the keys' own.
        manifest: the federation's facts.
        source: of the keys, for the message.

    Raises:
        InputError: so; or the federation's rule is masked.
    """
    expected: AnyParameters
    if isinstance(found, BatchedParameters):
        refuse_masked(manifest)
        expected = attrs.evolve(
            found,
            contributors=len(manifest.contributors),
            classes=len(manifest.answers),
            bits=manifest.bits,
        )
    else:
        expected = rule_parameters(
            manifest, failure_exponent=found.failure_exponent, block=found.block
        )
    if found != expected:
        raise InputError(
            f"{source}: keys for {found.to_json()}, the federation has {expected.to_json()}; make"
            " new ones (securefl keys new)"
        )


def batched_parameters(manifest: Manifest) -> BatchedParameters:
    """The parameters of a federation for batches of thousands.

    Args:
        manifest: the federation's facts. Its rule may be tournament or paper: both name the same
            class.

    Raises:
        InputError: the federation's rule is masked.
        fhe.InputError: more contributors, classes or code bits than the engine offers.
    """
    refuse_masked(manifest)
    return choose_parameters(len(manifest.contributors), len(manifest.answers), manifest.bits)
