"""Each querier's part of what a contributor answers a day: the parts add up to its owner's limits.

Two queriers that tell each other what they know are one attacker, so what bounds a leak is counted
over all of them. It is divided beforehand and not drawn from in common: a refusal by a common
count would tell one querier how much, and about which records, another asks.
"""

from collections.abc import Mapping, Sequence

from attrs import frozen

from secure_fl.errors import InputError


@frozen
class Share:
    """One querier's part, in any 24 hours.

    Attributes:
        queries: answered.
        repeats: times that nearly the same query is answered.
    """

    queries: int
    repeats: int


def shares_of(
    daily: int, repeats: int, quotas: Mapping[str, int], queriers: Sequence[str]
) -> dict[str, Share]:
    """Of all queriers, by name.

    Args:
        daily: queries answered for all together.
        repeats: answers to nearly the same query for all together.
        quotas: of `daily`, by querier; 0 answers that one nothing. The others have equal parts of
            what is left.
        queriers: of the federation.

    Returns:
        Parts whose queries add up to at most `daily`, and whose repeats to at most `repeats`.

    Raises:
        InputError: a quota is of nobody, below 0 or with the others above `daily`; or a querier is
            left with nothing that its owner did not say.
    """
    for name, quota in quotas.items():
        if name not in queriers:
            raise InputError(f"quota of {name!r}: the queriers are {', '.join(queriers)[:200]}")
        if quota < 0:
            raise InputError(f"quota of {name!r}: {quota}, expected 0 or more")
    left, rest = daily - sum(quotas.values()), [name for name in queriers if name not in quotas]
    if left < len(rest):
        names = ", ".join(rest)[:200] or "nobody"
        raise InputError(
            f"{daily} queries a day: the quotas leave {left} for {names}; raise --daily-queries or"
            " lower a --quota (0 answers a querier nothing)"
        )
    queries = {name: quotas[name] if name in quotas else left // len(rest) for name in queriers}
    asking = sum(each > 0 for each in queries.values())
    if repeats < asking:
        raise InputError(
            f"{repeats} answers to nearly the same query a day: {asking} queriers share them, one"
            " each at least; raise --repeats, or answer fewer queriers (--quota NAME=0)"
        )
    return {name: Share(each, repeats // asking if each else 0) for name, each in queries.items()}
