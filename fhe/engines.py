"""One door for two engines: keys say which of them a rule runs on.

- `tfhe`: minima of encrypted integers, query by query; any batch, any rule (`evaluator`).
- `bgv`: counts in the slots of batched ciphertexts, thousands of queries at once (`batched`).

Keys, messages and parameters of an engine have classes of their own; files have the same kinds, and
their parameters name the engine.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias, cast, overload

from . import contributor as _contributor
from . import evaluator as _evaluator
from . import keys as _keys
from . import public_key as _public_key
from . import querier as _querier
from .batched import contributor as _batched_contributor
from .batched import evaluator as _batched_evaluator
from .batched import keys as _batched_keys
from .batched import querier as _batched_querier
from .batched.keys import BatchedEvaluationKeys, BatchedPublicKey, BatchedSecretKeys
from .batched.messages import BatchedAnswer, BatchedContribution
from .batched.parameters import BatchedParameters
from .code import Ints
from .envelope import read_envelope, read_header, unpack_view
from .errors import ContributionError, FormatError
from .evaluator import Progress, quiet
from .keys import EvaluationKeys, SecretKeys
from .messages import Answer, Contribution
from .parameters import RuleParameters
from .public_key import PublicKey
from .retirement import refuse_retired
from .slicing import cut_batched

ENGINES = ("tfhe", "bgv")

AnyParameters: TypeAlias = RuleParameters | BatchedParameters
AnySecretKeys: TypeAlias = SecretKeys | BatchedSecretKeys
AnyEvaluationKeys: TypeAlias = EvaluationKeys | BatchedEvaluationKeys
AnyPublicKey: TypeAlias = PublicKey | BatchedPublicKey
AnyContribution: TypeAlias = Contribution | BatchedContribution
AnyAnswer: TypeAlias = Answer | BatchedAnswer


def engine_of(parameters: AnyParameters) -> str:
    """One of ENGINES."""
    return "bgv" if isinstance(parameters, BatchedParameters) else "tfhe"


@overload
def generate_keys(parameters: RuleParameters) -> SecretKeys: ...
@overload
def generate_keys(parameters: BatchedParameters) -> BatchedSecretKeys: ...
@overload
def generate_keys(parameters: AnyParameters) -> AnySecretKeys: ...
def generate_keys(parameters: AnyParameters) -> AnySecretKeys:
    """Fresh keys, from the operating system's randomness; takes seconds.

    Raises:
        LibraryError: the engine's library finds no secure parameters.
        InputError: the engine's library is not installed.
    """
    if isinstance(parameters, BatchedParameters):
        return _batched_keys.generate_batched_keys(parameters)
    return _keys.generate_keys(parameters)


@overload
def make_public_key(keys: SecretKeys) -> PublicKey: ...
@overload
def make_public_key(keys: BatchedSecretKeys) -> BatchedPublicKey: ...
@overload
def make_public_key(keys: AnySecretKeys) -> AnyPublicKey: ...
def make_public_key(keys: AnySecretKeys) -> AnyPublicKey:
    """A fresh public key of the querier.

    Raises:
        LibraryError: the library does not behave as relied on, or is not secure.
    """
    if isinstance(keys, BatchedSecretKeys):
        return _batched_keys.make_batched_public_key(keys)
    return _public_key.make_public_key(keys)


@overload
def contribute(
    codes: Ints, public: PublicKey, *, contributor: int, name: str, federation: str, batch: str
) -> Contribution: ...
@overload
def contribute(
    codes: Ints,
    public: BatchedPublicKey,
    *,
    contributor: int,
    name: str,
    federation: str,
    batch: str,
) -> BatchedContribution: ...
@overload
def contribute(
    codes: Ints, public: AnyPublicKey, *, contributor: int, name: str, federation: str, batch: str
) -> AnyContribution: ...
def contribute(
    codes: Ints, public: AnyPublicKey, *, contributor: int, name: str, federation: str, batch: str
) -> AnyContribution:
    """Reduces a contributor's codes to one integer per query and encrypts it.

    Args:
        codes: the contributor's own, shape (queries, classes), in 0..2^p - 1.
        public: to encrypt under.
        contributor: its position, 0 to Q - 1.
        name: its name.
        federation: fingerprint of the manifest.
        batch: name of the query batch.

    Raises:
        InputError: no query, codes out of range, or a position that is not among the contributors.
        LibraryError: the rule's parameters are not secure or too noisy.
    """
    facts = {"contributor": contributor, "name": name, "federation": federation, "batch": batch}
    if isinstance(public, BatchedPublicKey):
        return _batched_contributor.contribute_batched(codes, public, **cast(Any, facts))
    return _contributor.contribute(codes, public, **cast(Any, facts))


@overload
def neutral(
    queries: int, public: PublicKey, *, contributor: int, name: str, federation: str, batch: str
) -> Contribution: ...
@overload
def neutral(
    queries: int,
    public: BatchedPublicKey,
    *,
    contributor: int,
    name: str,
    federation: str,
    batch: str,
) -> BatchedContribution: ...
def neutral(
    queries: int, public: AnyPublicKey, *, contributor: int, name: str, federation: str, batch: str
) -> AnyContribution:
    """A contribution that changes no answer, for a contributor who is not there.

    It holds no secret: whoever has the public key makes it, the evaluator too.

    Args:
        queries: of the batch, at least 1.
        public: to encrypt under.
        contributor, name, federation, batch: as `contribute`.

    Raises:
        LibraryError: the rule's parameters are not secure or too noisy.
    """
    facts = {"contributor": contributor, "name": name, "federation": federation, "batch": batch}
    if isinstance(public, BatchedPublicKey):
        return _batched_contributor.neutral_batched(queries, public, **cast(Any, facts))
    return _contributor.neutral(queries, public, **cast(Any, facts))


@overload
def evaluate(
    contributions: Sequence[Contribution],
    keys: EvaluationKeys,
    public: PublicKey,
    *,
    progress: Progress = quiet,
    queries: range | None = None,
) -> Answer: ...
@overload
def evaluate(
    contributions: Sequence[BatchedContribution],
    keys: BatchedEvaluationKeys,
    public: BatchedPublicKey,
    *,
    progress: Progress = quiet,
    queries: range | None = None,
) -> BatchedAnswer: ...
@overload
def evaluate(
    contributions: Sequence[AnyContribution],
    keys: AnyEvaluationKeys,
    public: AnyPublicKey,
    *,
    progress: Progress = quiet,
    queries: range | None = None,
) -> AnyAnswer: ...
def evaluate(
    contributions: Sequence[Any],
    keys: AnyEvaluationKeys,
    public: AnyPublicKey,
    *,
    progress: Progress = quiet,
    queries: range | None = None,
) -> AnyAnswer:
    """Runs the rule on one contribution of every contributor, on all cores.

    Args:
        contributions: in any order.
        keys: of the querier.
        public: of the querier, the key that the contributions are under.
        progress: told of every step.
        queries: that are answered; None answers all. Of engine bgv whole sets.

    Raises:
        InputError: the public key does not go with the evaluation keys, or the batch has no such
            queries.
        ContributionError: one is missing, twice, or belongs to other keys, another engine,
            federation, rule or query batch; names the contributor.
        FormatError: a ciphertext cannot be read; names the contributor.
    """
    engine = engine_of(keys.parameters)
    for each in contributions:
        if engine_of(each.parameters) != engine:
            raise ContributionError(
                f"contributor {each.name!r}: encrypted for engine {engine_of(each.parameters)}, the"
                f" evaluation keys are for {engine}; encrypt again with their public.key"
            )
    if isinstance(keys, BatchedEvaluationKeys):
        if queries is not None:
            contributions = [cut_batched(each, queries) for each in contributions]
        return _batched_evaluator.evaluate_batched(
            contributions, keys, cast(BatchedPublicKey, public), progress=progress
        )
    return _evaluator.evaluate(
        contributions, keys, cast(PublicKey, public), progress=progress, queries=queries
    )


def read_answer(answer: AnyAnswer, keys: AnySecretKeys, *, queries: int | None = None) -> Ints:
    """Decrypts the classes, shape (queries,).

    Args:
        answer: of the evaluator.
        keys: of the querier.
        queries: that were asked; None takes the answer's word.

    Raises:
        InputError: the answer is under other keys.
        FormatError: it is to another number of queries, or its bytes are no ciphertexts.
        AnswerError: a class that does not exist: the evaluator or the noise was wrong.
    """
    if isinstance(keys, BatchedSecretKeys):
        # Of another engine it is under other keys.
        return _batched_querier.read_batched_answer(
            cast(BatchedAnswer, answer), keys, queries=queries
        )
    return _querier.read_answer(cast(Answer, answer), keys, queries=queries)


def _is_batched(header: Any) -> bool:
    parameters = header.get("parameters")
    return isinstance(parameters, dict) and parameters.get("engine") == BatchedParameters.engine


def load_contribution(path: Path) -> AnyContribution:
    """Reads a contribution's file, of any engine.

    Raises:
        VersionError: of another version; names both.
        FormatError: foreign, truncated or damaged; names the file.
    """
    _, header, _ = read_header(path, Contribution.KIND)
    return BatchedContribution.load(path) if _is_batched(header) else Contribution.load(path)


def load_answer(path: Path) -> AnyAnswer:
    """Reads an answer's file, of any engine.

    Raises:
        VersionError, FormatError: as `load_contribution`.
    """
    _, header, _ = read_header(path, Answer.KIND)
    return BatchedAnswer.load(path) if _is_batched(header) else Answer.load(path)


def save_secret_keys(folder: Path, keys: AnySecretKeys, passphrase: str) -> int:
    """Writes `secret.key`, sealed, mode 0600; returns its bytes."""
    if isinstance(keys, BatchedSecretKeys):
        return _batched_keys.save_batched_secret_keys(folder, keys, passphrase)
    return _keys.save_secret_keys(folder, keys, passphrase)


def save_evaluation_keys(folder: Path, keys: AnyEvaluationKeys) -> int:
    """Writes `evaluation.key`; returns its bytes."""
    if isinstance(keys, BatchedEvaluationKeys):
        return _batched_keys.save_batched_evaluation_keys(folder, keys)
    return _keys.save_evaluation_keys(folder, keys)


def save_public_key(folder: Path, public: AnyPublicKey) -> int:
    """Writes `public.key`; returns its bytes."""
    if isinstance(public, BatchedPublicKey):
        return _batched_keys.save_batched_public_key(folder, public)
    return _public_key.save_public_key(folder, public)


def load_secret_keys(folder: Path, passphrase: str) -> AnySecretKeys:
    """Opens `secret.key`, of any engine.

    Raises:
        SecretError: wrong passphrase or a changed file.
        VersionError: of another version; names both.
        FormatError: not such a file.
    """
    refuse_retired(folder)
    path = folder / _keys.SECRET_FILE
    if _is_batched(read_header(path, _keys.SECRET_KIND)[1]):
        envelope = read_envelope(path, _keys.SECRET_KIND)
        return _batched_keys.batched_secret_keys(envelope, path, passphrase)
    return _keys.load_secret_keys(folder, passphrase)


def load_evaluation_keys(folder: Path) -> AnyEvaluationKeys:
    """Reads `evaluation.key`, of any engine.

    Raises:
        VersionError: of another version; names both.
        FormatError: not such a file, or one whose fingerprint does not fit its content.
    """
    refuse_retired(folder)
    path = folder / _keys.EVALUATION_FILE
    if _is_batched(read_header(path, _keys.EVALUATION_KIND)[1]):
        envelope = read_envelope(path, _keys.EVALUATION_KIND)
        return _batched_keys.batched_evaluation_keys(envelope, path)
    return _keys.load_evaluation_keys(folder)


def load_public_key(folder: Path) -> AnyPublicKey:
    """Reads `public.key`, of any engine.

    Raises:
        VersionError: of another version; names both.
        FormatError: not such a file, or one whose fingerprint does not fit its content.
    """
    refuse_retired(folder)
    path = folder / _public_key.PUBLIC_FILE
    if _is_batched(read_header(path, _public_key.PUBLIC_KIND)[1]):
        return _batched_keys.batched_public_key(read_envelope(path, _public_key.PUBLIC_KIND), path)
    return _public_key.load_public_key(folder)


def answer_of(data: bytes, parameters: AnyParameters, *, source: str) -> AnyAnswer:
    """Reads what an answer's `to_bytes` made, of the engine of these parameters.

    Raises:
        VersionError, FormatError: as `load_contribution`, or of another engine; names the source.
    """
    _, header, _ = unpack_view(data, Answer.KIND, source=source)
    batched = _is_batched(header)
    if batched != isinstance(parameters, BatchedParameters):
        raise FormatError(f"{source}: of another engine than these keys; trust none of this batch")
    return (BatchedAnswer if batched else Answer).from_bytes(data, source=source)
