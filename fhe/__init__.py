"""Encrypted minimum, equality and the global rule on integer codes, in three roles.

Easy layer: `generate_keys`, `make_public_key`, `contribute`, `evaluate`, `read_answer`;
`simulate` and `plain` give the same answers without encryption. Keys say which engine runs:
`RuleParameters` make keys of TFHE, `choose_parameters` makes parameters of batched BGV. In one
process, for trying out: `EncryptedRule`, `EncryptedMinimum` and `encrypted_minimum`.
"""

from .batched.keys import BatchedEvaluationKeys, BatchedPublicKey, BatchedSecretKeys
from .batched.messages import BatchedAnswer, BatchedContribution
from .batched.parameters import BatchedParameters, choose_parameters
from .code import CodeRange, Packing, encode_measures, range_from_public_measures
from .engines import (
    ENGINES,
    AnyAnswer,
    AnyContribution,
    AnyEvaluationKeys,
    AnyParameters,
    AnyPublicKey,
    AnySecretKeys,
    contribute,
    engine_of,
    evaluate,
    generate_keys,
    load_answer,
    load_contribution,
    load_evaluation_keys,
    load_public_key,
    load_secret_keys,
    make_public_key,
    neutral,
    read_answer,
    save_evaluation_keys,
    save_public_key,
    save_secret_keys,
)
from .errors import AnswerError, ContributionError, FormatError, InputError, SecretError
from .keys import EvaluationKeys, SecretKeys
from .messages import Answer, Contribution
from .parameters import RuleParameters
from .public_key import PublicKey
from .session import EncryptedMinimum, EncryptedRule, encrypted_minimum
from .simulation import plain, simulate

__all__ = [
    "ENGINES",
    "Answer",
    "AnswerError",
    "AnyAnswer",
    "AnyContribution",
    "AnyEvaluationKeys",
    "AnyParameters",
    "AnyPublicKey",
    "AnySecretKeys",
    "BatchedAnswer",
    "BatchedContribution",
    "BatchedEvaluationKeys",
    "BatchedParameters",
    "BatchedPublicKey",
    "BatchedSecretKeys",
    "CodeRange",
    "Contribution",
    "ContributionError",
    "EncryptedMinimum",
    "EncryptedRule",
    "EvaluationKeys",
    "FormatError",
    "InputError",
    "Packing",
    "PublicKey",
    "RuleParameters",
    "SecretError",
    "SecretKeys",
    "choose_parameters",
    "contribute",
    "encode_measures",
    "encrypted_minimum",
    "engine_of",
    "evaluate",
    "generate_keys",
    "load_answer",
    "load_contribution",
    "load_evaluation_keys",
    "load_public_key",
    "load_secret_keys",
    "make_public_key",
    "neutral",
    "plain",
    "range_from_public_measures",
    "read_answer",
    "save_evaluation_keys",
    "save_public_key",
    "save_secret_keys",
    "simulate",
]
