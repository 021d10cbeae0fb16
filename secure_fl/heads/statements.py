"""Privacy statements in a run folder, read back.

What training wrote is JSON that anybody may have edited; lines for people are made anew from it.
"""

import math
import reprlib
from collections.abc import Callable
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import attrs

import dp
from dp.statement import RecordLevel
from secure_fl.errors import InputError
from secure_fl.files import read_json_object

MAX_BYTES = 2**20
"""A statement is small; anything larger is not one."""


def load_statement(path: Path) -> dp.Statement:
    """Reads a statement that training wrote; its lines are made anew from its numbers.

    Raises:
        InputError: not JSON, too large, or with members missing, unknown or of another kind.
    """
    content = read_json_object(path, MAX_BYTES, "privacy statement")
    content.pop("promise", None)
    fields = {field.name: field for field in attrs.fields(dp.Statement)}
    if set(content) != set(fields):
        wrong = ", ".join(map(_short, sorted(set(content) ^ set(fields))[:3]))
        raise InputError(f"{path}: members such as {wrong} are missing or unknown; train again")
    if content["guarantee"] is False:
        content["epsilon"] = content["delta"] = math.inf
    kinds = get_type_hints(dp.Statement)
    try:
        found = dp.Statement(**{name: _read_as(kinds[name], content[name]) for name in fields})
        if not (found.epsilon >= 0 and found.delta >= 0):
            raise ValueError(f"epsilon {found.epsilon}, delta {found.delta} is below 0")
    except (TypeError, ValueError, KeyError) as error:
        raise InputError(f"{path}: not a privacy statement ({error}); train again") from error
    return found


def _read_as(kind: Any, value: Any) -> Any:
    """A JSON value as a field of that type has it; TypeError where it is of another kind."""
    if kind in _READERS:
        return _READERS[kind](value)
    if get_origin(kind) is UnionType:
        return None if value is None else _read_as(get_args(kind)[0], value)
    parts = get_args(kind)
    items = _list(value)
    if parts[-1] is Ellipsis:
        return tuple(_read_as(parts[0], item) for item in items)
    return tuple(_read_as(part, item) for part, item in zip(parts, items, strict=True))


def _short(value: object) -> str:
    # A file may hold anything; what is quoted of it stays short.
    return reprlib.repr(value)[:60]


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{_short(value)} is not true or false")
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise TypeError(f"{_short(value)} is not a number")
    return float(value)


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise TypeError(f"{_short(value)} is not a count")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.isprintable():
        raise TypeError(f"{_short(value)} is not a line of text")
    return value


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"{_short(value)} is not a list")
    return value


def _record_level(value: Any) -> RecordLevel:
    kinds = get_type_hints(RecordLevel)
    return RecordLevel(**{name: _read_as(kinds[name], value[name]) for name in kinds})


_READERS: dict[Any, Callable[[Any], Any]] = {
    bool: _flag,
    float: _number,
    int: _count,
    str: _text,
    RecordLevel: _record_level,
}
