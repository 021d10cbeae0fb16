"""From heads to codes: what a contributor computes in the clear before it encrypts."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fhe import (
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
    """A client's integer codes, shape (queries, classes).

    Args:
        head: the client's.
        features: scaled queries, shape (queries, n_features).
        manifest: the federation's facts.
    """
    code_range = CodeRange(manifest.low, manifest.high)
    return encode_measures(head.measures(features, manifest), manifest.bits, code_range)


def refuse_masked(manifest: Manifest) -> None:
    """Refuses a federation whose rule has neither keys nor ciphertexts, where these are wanted.

    Raises:
        InputError: its rule is masked; names what answers under it.
    """
    if manifest.rule == "masked":
        raise InputError(
            "federation: its rule is masked (federation.json), which has no keys and no"
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
        contributors=len(manifest.clients),
        classes=len(manifest.classes),
        bits=manifest.bits,
        rule=manifest.rule,
        failure_exponent=failure_exponent,
        block=block,
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
    return choose_parameters(len(manifest.clients), len(manifest.classes), manifest.bits)
