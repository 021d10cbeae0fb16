"""What the fields of a manifest are read as, and what is refused of them."""

import math
import re
from collections.abc import Iterable
from typing import Any, TypeAlias

import attrs
from attrs.validators import deep_iterable, instance_of

from secure_fl.crypto.identities import NOT_CLIENTS, QUERIER

_FILE_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")


def unique(_: object, attribute: "attrs.Attribute[Any]", value: tuple[str, ...]) -> None:
    """Raises ValueError where an item stands twice."""
    repeated = sorted({item for item in value if value.count(item) > 1})
    if repeated:
        raise ValueError(f"'{attribute.name}' holds {repeated[0]!r} more than once")


def file_names(_: object, attribute: "attrs.Attribute[Any]", value: tuple[str, ...]) -> None:
    """Raises ValueError where a name is none of a file."""
    # A client's name is the name of its folder, so it must not lead out of the run folder.
    for name in value:
        if not _FILE_NAME.fullmatch(name):
            raise ValueError(
                f"'{attribute.name}' holds {name!r}; use letters, digits, '.', '_' and '-', not"
                " starting with '.', at most 64"
            )


def asking_names(owner: Any, attribute: "attrs.Attribute[Any]", value: tuple[str, ...]) -> None:
    """Raises ValueError where a querier's name is none of a file, or another party's."""
    file_names(owner, attribute, value)
    for name in value:
        if name in owner.clients:
            raise ValueError(
                f"'queriers' holds {name!r}, which is a client; a client that asks too does so by a"
                " second name, with keys of its own"
            )
        if name in NOT_CLIENTS and name != QUERIER:
            raise ValueError(f"'queriers' holds {name!r}, which is another party's name")


def finite(_: object, attribute: "attrs.Attribute[Any]", value: float) -> None:
    """Raises ValueError where a number is not finite."""
    try:
        fits = math.isfinite(value)
    except OverflowError:
        raise ValueError(f"'{attribute.name}' is an integer beyond float64") from None
    if not fits:
        raise ValueError(f"'{attribute.name}' must be finite, found {value}")


def number_or_none(owner: object, attribute: "attrs.Attribute[Any]", value: float | None) -> None:
    """Raises TypeError or ValueError unless it is None, or finite and above 0."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"'{attribute.name}' must be a number, found {type(value).__name__}")
    finite(owner, attribute, value)
    if not value > 0:
        raise ValueError(f"'{attribute.name}' must be above 0, found {value}")


def optional_tuple(value: Iterable[str] | None) -> tuple[str, ...] | None:
    """None, or names."""
    return None if value is None else tuple(value)


def optional_numbers(value: Iterable[Any] | None) -> tuple[float, ...] | None:
    """None, or numbers."""
    return None if value is None else tuple(float(each) for each in value)


def pairs(value: Iterable[Iterable[str]], name: str, what: str) -> tuple[tuple[str, str], ...]:
    """Pairs of texts; raises ValueError where they are not."""
    found = [tuple(pair) for pair in value]
    if any(len(pair) != 2 or not all(isinstance(part, str) for part in pair) for pair in found):
        raise ValueError(f"'{name}' is not a list of {what}")
    return tuple((pair[0], pair[1]) for pair in found)


def members_of(value: Iterable[Iterable[str]]) -> tuple[tuple[str, str], ...]:
    """Names with their keys."""
    return pairs(value, "members", "names with their keys")


def lineage_of(value: Iterable[Iterable[str]]) -> tuple[tuple[str, str], ...]:
    """Fingerprints of earlier manifests, each with that of their heads."""
    return pairs(value, "lineage", "pairs of fingerprints")


TriedFact: TypeAlias = tuple[str, int, int] | tuple[str, int, int, int]
"""A setting with right answers, records in all, and the loss that chose it, where there was one."""


def tried_of(value: Iterable[Iterable[Any]]) -> tuple[TriedFact, ...]:
    """Settings, each with its sums over the clients; as they were, for the fingerprint."""
    found: list[tuple[Any, ...]] = [tuple(each) for each in value]
    for each in found:
        if [type(part) for part in each] not in ([str, int, int], [str, int, int, int]):
            raise ValueError("'tried' is not a list of settings, each with two or three sums")
    return tuple(found)


NAMES = [deep_iterable(instance_of(str), instance_of(tuple)), unique]
INTEGER = instance_of(int)
NUMBER = [instance_of((int, float)), finite]
