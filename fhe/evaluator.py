"""The evaluator: takes minima of ciphertexts with evaluation keys alone.

It sees how many queries and contributors there are and the federation's public parameters; neither
a record, a measure, a code nor an answer.
"""

from collections.abc import Callable, Sequence
from typing import Any

from .compiled import compiled_rule
from .errors import ContributionError, InputError
from .keys import EvaluationKeys
from .messages import Answer, Contribution
from .public_key import PublicKey, RingCiphertexts, to_library_values

Progress = Callable[[str, int, int], None]


def quiet(phase: str, done: int, total: int) -> None:
    """Reports nothing."""


def evaluate(
    contributions: Sequence[Contribution],
    keys: EvaluationKeys,
    public: PublicKey,
    *,
    progress: Progress = quiet,
) -> Answer:
    """Runs the rule on one contribution of every contributor.

    Args:
        contributions: in any order.
        keys: of the querier.
        public: of the querier, the key that the contributions are under.
        progress: told after every block of queries.

    Raises:
        InputError: the public key does not go with the evaluation keys.
        ContributionError: one is missing, twice, or belongs to other keys, another federation,
            rule or query batch; names the contributor.
        FormatError: a ciphertext cannot be read; names the contributor.
    """
    if public.key != keys.fingerprint:
        raise InputError(
            f"public key: goes with evaluation keys {public.key[:16]}, these are"
            f" {keys.fingerprint[:16]}; take both from the same querier"
        )
    ordered = checked(contributions, keys, public)
    first = ordered[0]
    progress("compiling", 0, 1)
    server = compiled_rule(keys.parameters).server
    values = [_library_values(each, public) for each in ordered]
    blocks = []
    for i, arguments in enumerate(zip(*values, strict=True)):
        try:
            result = server.run(*arguments, evaluation_keys=keys.library_keys)
        except (RuntimeError, ValueError, AssertionError) as error:
            names = ", ".join(each.name for each in ordered)
            raise ContributionError(
                f"block {i}: the ciphertexts of {names} do not fit the circuit"
                f" ({' '.join(str(error).split())}); encrypt again with the federation's keys"
            ) from error
        blocks.append(result.serialize())
        progress("evaluating", i + 1, len(values[0]))
    return Answer(
        parameters=first.parameters,
        key=first.key,
        federation=first.federation,
        batch=first.batch,
        queries=first.queries,
        blocks=tuple(blocks),
    )


def _library_values(contribution: Contribution, public: PublicKey) -> list[Any]:
    shape = (contribution.queries, contribution.parameters.columns)
    ciphertexts = RingCiphertexts(contribution.public, shape, contribution.content)
    return to_library_values(ciphertexts, public, who=f"contributor {contribution.name!r}")


def checked(
    contributions: Sequence[Contribution], keys: EvaluationKeys, public: PublicKey
) -> list[Contribution]:
    """The contributions in order of position, if they belong together.

    Raises:
        ContributionError: as `evaluate`.
    """
    by_position: dict[int, Contribution] = {}
    for each in contributions:
        _check_belongs(each, contributions[0], keys, public)
        if each.contributor in by_position:
            raise ContributionError(
                f"contributor {each.name!r}: two contributions for position {each.contributor};"
                " send one"
            )
        by_position[each.contributor] = each
    expected = keys.parameters.contributors
    missing = [i for i in range(expected) if i not in by_position]
    if missing:
        raise ContributionError(
            f"contributions: {len(by_position)} of {expected}, positions"
            f" {', '.join(map(str, missing[:10]))} are missing"
        )
    return [by_position[i] for i in range(expected)]


def _check_belongs(
    each: Contribution, first: Contribution, keys: EvaluationKeys, public: PublicKey
) -> None:
    facts = (
        ("rule parameters", each.parameters, keys.parameters),
        ("key", each.key, keys.fingerprint),
        ("public key", each.public, public.fingerprint),
        ("federation", each.federation, first.federation),
        ("query batch", each.batch, first.batch),
        ("number of queries", each.queries, first.queries),
    )
    for name, found, expected in facts:
        if found != expected:
            raise ContributionError(
                f"contributor {each.name!r}: {name} {found!s:.80}, expected {expected!s:.80};"
                " encrypt again for this batch and these keys"
            )
    if not 0 <= each.contributor < keys.parameters.contributors:
        raise ContributionError(
            f"contributor {each.name!r}: position {each.contributor}, the rule has"
            f" {keys.parameters.contributors}"
        )
