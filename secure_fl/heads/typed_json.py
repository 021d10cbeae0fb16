"""JSON that anybody may have written, as the types that it should have."""

import math
import reprlib
from collections.abc import Callable
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import attrs


def read_as(kind: Any, value: Any) -> Any:
    """A JSON value as a field of that type has it.

    Args:
        kind: bool, float, int, str, a tuple of them, one of them or None, or an attrs class.
        value: JSON types.

    Raises:
        TypeError, ValueError, KeyError: it is of another kind.
    """
    if kind in _READERS:
        return _READERS[kind](value)
    if attrs.has(kind):
        kinds = get_type_hints(kind)
        return kind(**{name: read_as(kinds[name], value[name]) for name in kinds})
    if get_origin(kind) is UnionType:
        return None if value is None else read_as(get_args(kind)[0], value)
    parts = get_args(kind)
    items = _list(value)
    if parts[-1] is Ellipsis:
        return tuple(read_as(parts[0], item) for item in items)
    return tuple(read_as(part, item) for part, item in zip(parts, items, strict=True))


def short(value: object) -> str:
    """What is quoted of a value: a file may hold anything, and this stays short."""
    return reprlib.repr(value)[:60]


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{short(value)} is not true or false")
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise TypeError(f"{short(value)} is not a number")
    return float(value)


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise TypeError(f"{short(value)} is not a count")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.isprintable():
        raise TypeError(f"{short(value)} is not a line of text")
    return value


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"{short(value)} is not a list")
    return value


_READERS: dict[Any, Callable[[Any], Any]] = {
    bool: _flag,
    float: _number,
    int: _count,
    str: _text,
}
