"""The evaluator: takes minima of ciphertexts with evaluation keys alone.

It sees how many queries and contributors there are and the federation's public parameters; neither
a record, a measure, a code nor an answer.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .compiled import compiled_rule
from .errors import ContributionError, InputError
from .keys import EvaluationKeys
from .knockout import EQUAL, level_name, levels, rule_outputs
from .messages import Answer, Contribution
from .parameters import RuleParameters
from .public_key import PublicKey, RingCiphertexts, check_size, to_library_values

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
        progress: told after every comparison, level by level.

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
    # Before the first minute of work, not in its middle.
    for each in ordered:
        check_size(_ciphertexts(each), public, who=_who(each))

    def integers(position: int) -> list[Any]:
        each = ordered[position]
        return to_library_values(_ciphertexts(each), public, who=_who(each))

    def run(name: str, calls: int, pairs: Iterator[tuple[Any, ...]], /) -> list[Any]:
        results = []
        for i, pair in enumerate(pairs):
            results.append(server.run(*pair, evaluation_keys=keys.library_keys, function_name=name))
            progress(_phase(name, keys.parameters), i + 1, calls)
        return results

    blocks = rule_outputs(keys.parameters, integers, keys.parameters.blocks(first.queries), run)
    return Answer(
        parameters=first.parameters,
        key=first.key,
        federation=first.federation,
        batch=first.batch,
        queries=first.queries,
        blocks=tuple(each.serialize() for each in blocks),
    )


def _ciphertexts(contribution: Contribution) -> RingCiphertexts:
    shape = (contribution.queries, contribution.parameters.columns)
    return RingCiphertexts(contribution.public, shape, contribution.content)


def _who(contribution: Contribution) -> str:
    return f"contributor {contribution.name!r}"


def _phase(name: str, parameters: RuleParameters) -> str:
    """What is being computed, for people."""
    count = levels(parameters)
    for i in range(count):
        if name == level_name(i):
            return f"level {i + 1} of {count}"
    return "comparing classes" if name == EQUAL else "evaluating"


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
