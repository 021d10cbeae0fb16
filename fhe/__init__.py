"""Encrypted minimum, equality and the global rule on integer codes, in three roles.

Easy layer: `generate_keys`, `make_public_key`, `contribute`, `evaluate`, `read_answer`;
`simulate` and `plain` give the same answers without encryption. In one process, for trying out:
`EncryptedRule`, `EncryptedMinimum` and `encrypted_minimum`.
"""

from .code import CodeRange, Packing, encode_measures, range_from_public_measures
from .contributor import contribute, neutral
from .errors import AnswerError, ContributionError, FormatError, InputError, SecretError
from .evaluator import evaluate
from .keys import (
    EvaluationKeys,
    SecretKeys,
    generate_keys,
    load_evaluation_keys,
    load_secret_keys,
    save_evaluation_keys,
    save_secret_keys,
)
from .messages import Answer, Contribution
from .parameters import RuleParameters
from .public_key import PublicKey, load_public_key, make_public_key, save_public_key
from .querier import read_answer
from .session import EncryptedMinimum, EncryptedRule, encrypted_minimum
from .simulation import plain, simulate

__all__ = [
    "Answer",
    "AnswerError",
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
    "contribute",
    "encode_measures",
    "encrypted_minimum",
    "evaluate",
    "generate_keys",
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
