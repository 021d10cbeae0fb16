"""The one encoding of what crosses a process or a network: envelope, JSON header, safetensors.

Numbers, strings and the shape of a value stand in the header; arrays in the payload, by number.
Reading imports nothing and runs nothing: records are looked up among those registered here.
"""

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from fhe import envelope
from secure_fl.federation.errors import FederationError
from secure_fl.federation.steps import find_record, record_name
from secure_fl.federation.trees import Array, Leaf, SparseArray, Structure

Value: TypeAlias = Any
"""A tree, a number, a string, a boolean, None, a broadcastable record, or dicts, tuples and lists
of these."""

KIND = "federation message"
_DEEPEST = 50
_DTYPES = frozenset(
    np.dtype(t) for t in ("f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "bool")
)


def encode(value: Value, *, kind: str = KIND) -> bytes:
    """The bytes of a value.

    Args:
        value: see `Value`.
        kind: what the message is; `decode` wants the same.

    Raises:
        FederationError: it holds something else, or a header above the envelope's cap.
    """
    from safetensors.numpy import save

    header, arrays = _take_apart(value)
    payload = save({str(i): a for i, a in enumerate(arrays)})
    return envelope.pack(kind, header, payload)


def decode(data: bytes, *, kind: str = KIND, source: str = "message") -> Value:
    """The value of bytes that `encode` wrote.

    Raises:
        FederationError: an unregistered record, or a header that does not describe the payload.
        fhe.errors.FormatError: no whole envelope of that kind.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    message = envelope.unpack(data, kind, source=source)
    try:
        found = load(message.payload)
        arrays = [found[str(i)] for i in range(len(found))]
        return _put_together(message.header["value"], arrays, 0)
    except (SafetensorError, KeyError, IndexError, TypeError, ValueError) as error:
        if isinstance(error, FederationError):
            raise
        raise FederationError(f"{source}: its header does not describe its payload") from error


def measure(value: Value) -> tuple[int, int]:
    """Bytes that `encode` needs for the value, and floating-point numbers in its arrays.

    Nothing is copied.
    """
    header, arrays = _take_apart(value)
    text = json.dumps({"kind": KIND, **header}, allow_nan=False, sort_keys=True)
    n_bytes = len(text.encode()) + _arrays_size(tuple((a.dtype.str, a.shape) for a in arrays))
    return n_bytes, sum(a.size for a in arrays if a.dtype.kind == "f")


def measure_tree(structure: Structure, leaves: Sequence[Leaf]) -> tuple[int, int]:
    """As `measure`, of a tree already flattened; fast for a structure seen before."""
    kept = tuple(len(leaf.indices) for leaf in leaves if isinstance(leaf, SparseArray))
    return _measured(structure, kept)


@lru_cache(maxsize=1024)
def _measured(structure: Structure, kept: tuple[int, ...]) -> tuple[int, int]:
    counts = iter(kept)
    return measure(_blank(structure, counts))


def _blank(structure: Structure, counts: Iterator[int]) -> Value:
    if structure.kind == "array":
        return np.empty(structure.shape, structure.dtype)
    if structure.kind == "sparse":
        k = next(counts)
        return SparseArray(np.zeros(k, np.int64), np.zeros(k, structure.dtype), structure.shape[0])
    children = [_blank(child, counts) for child in structure.children]
    if structure.kind == "dict":
        return dict(zip(structure.keys, children, strict=True))
    return tuple(children) if structure.kind == "tuple" else children


@lru_cache(maxsize=1024)
def _arrays_size(arrays: tuple[tuple[str, tuple[int, ...]], ...]) -> int:
    from safetensors.numpy import save

    blank = {str(i): np.empty(shape, dtype) for i, (dtype, shape) in enumerate(arrays)}
    return len(save(blank)) + _FRAMING


_FRAMING = len(envelope.pack(KIND, {})) - len(json.dumps({"kind": KIND}))


def _take_apart(value: Value) -> tuple[dict[str, Any], list[Array]]:
    arrays: list[Array] = []
    return {"value": _describe(value, arrays, 0)}, arrays


def _describe(value: Value, arrays: list[Array], depth: int) -> Any:
    if depth > _DEEPEST:
        raise FederationError(f"message: nested deeper than {_DEEPEST} levels; flatten it")
    if value is None or isinstance(value, bool | int | str):
        return value.item() if isinstance(value, np.generic) else value
    if isinstance(value, np.ndarray | np.generic):
        return _describe_array(value, arrays)
    if isinstance(value, float):
        return value if math.isfinite(value) else {"number": repr(value)}
    if isinstance(value, SparseArray):
        parts = [_describe_array(value.indices, arrays), _describe_array(value.values, arrays)]
        return {"sparse": parts, "size": value.size}
    if isinstance(value, dict):
        return _describe_dict(value, arrays, depth)
    if isinstance(value, tuple | list):
        items = [_describe(each, arrays, depth + 1) for each in value]
        return {"tuple" if isinstance(value, tuple) else "list": items}
    name = record_name(type(value))
    fields = {
        field.name: _describe(getattr(value, field.name), arrays, depth + 1)
        for field in dataclasses.fields(value)
        if field.init
    }
    return {"record": name, "fields": fields}


def _describe_array(value: Any, arrays: list[Array]) -> dict[str, Any]:
    array = np.asarray(value, order="C")
    if array.dtype not in _DTYPES:
        raise FederationError(f"message: found an array of {array.dtype}, expected numbers")
    arrays.append(array)
    return {"scalar" if isinstance(value, np.generic) else "array": len(arrays) - 1}


def _describe_dict(value: Mapping[Any, Value], arrays: list[Array], depth: int) -> dict[str, Any]:
    for key in value:
        if not isinstance(key, str):
            raise FederationError(f"message: found key {key!r} of a dict, expected a string")
    # Pairs, because the order of a dict is part of a tree's structure and headers are sorted.
    return {"dict": [[key, _describe(each, arrays, depth + 1)] for key, each in value.items()]}


def _put_together(described: Any, arrays: Sequence[Array], depth: int) -> Value:
    if depth > _DEEPEST or isinstance(described, list):
        raise ValueError("not a described value")
    if not isinstance(described, dict):
        return described

    def inner(each: Any) -> Value:
        return _put_together(each, arrays, depth + 1)

    match described:
        case {"array": int(i)} if i >= 0:
            return arrays[i]
        case {"scalar": int(i)} if i >= 0:
            return arrays[i][()]
        case {"number": str(text)}:
            return float(text)
        case {"sparse": [indices, values], "size": int(size)}:
            return SparseArray(inner(indices), inner(values), size)
        case {"dict": list(pairs)}:
            return {key: inner(each) for key, each in pairs}
        case {"tuple": list(items)}:
            return tuple(inner(each) for each in items)
        case {"list": list(items)}:
            return [inner(each) for each in items]
        case {"record": str(name), "fields": dict(fields)}:
            return find_record(name)(**{key: inner(each) for key, each in fields.items()})
    raise ValueError("not a described value")
