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
from secure_fl.heads.head import Head
from secure_fl.heads.manifest import Manifest


def head_codes(head: Head, features: NDArray[Any], manifest: Manifest) -> NDArray[np.int64]:
    """A client's integer codes, shape (queries, classes).

    Args:
        head: the client's.
        features: scaled queries, shape (queries, n_features).
        manifest: the federation's facts.
    """
    return measure_codes(head.measures(features, manifest), manifest)


def measure_codes(measures: NDArray[Any], manifest: Manifest) -> NDArray[np.int64]:
    """The integer codes of a head's measures, shape (queries, classes).

    Args:
        measures: in [0, 1], shape (queries, classes).
        manifest: the federation's facts.
    """
    return encode_measures(measures, manifest.bits, CodeRange(manifest.low, manifest.high))


def rule_parameters(manifest: Manifest, *, failure_exponent: int, block: int) -> RuleParameters:
    """The circuit's parameters of a federation.

    Args:
        manifest: the federation's facts.
        failure_exponent: a decision is wrong by noise with probability at most 2^-this.
        block: integers that one call of a compiled function compares.
    """
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
        manifest: the federation's facts. Its rule may be either: both name the same class.

    Raises:
        fhe.InputError: more contributors, classes or code bits than the engine offers.
    """
    return choose_parameters(len(manifest.clients), len(manifest.classes), manifest.bits)
