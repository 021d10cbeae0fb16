"""The one encoding of what crosses a process or a network: envelope, JSON header, safetensors.

Numbers, strings and the shape of a value stand in the header; arrays in the payload, by number.
Reading imports nothing and runs nothing: records are looked up among those registered here.
"""

import dataclasses
import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, chain
from typing import Any, TypeAlias

import numpy as np

from fhe import envelope
from secure_fl.errors import FederationError
from secure_fl.federation.codes import PackedCodes
from secure_fl.federation.steps import find_record, record_name
from secure_fl.federation.trees import Array, Leaf, LowRank, SparseArray, Structure

Value: TypeAlias = Any
"""A tree, a number, a string, a boolean, None, a broadcastable record, or dicts, tuples and lists
of these."""

KIND = "federation message"
_DEEPEST = 50
_UNFIT = (AttributeError, KeyError, IndexError, OverflowError, TypeError, ValueError)
_DTYPES = frozenset(
    np.dtype(t) for t in ("f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "bool")
)


def encode(value: Value, *, kind: str = KIND, fast: bool = False) -> bytes:
    """The bytes of a value.

    Args:
        value: see `Value`.
        kind: what the message is; `decode` wants the same.
        fast: see `envelope.pack`; `decode` reads either.

    Raises:
        FederationError: it holds something else, or a header above the envelope's cap.
    """
    header, arrays = _take_apart(value)
    head, order = _frame(_kinds(arrays))
    payload = b"".join([head, *(arrays[i].reshape(-1).view(np.uint8).data for i in order)])
    return envelope.pack(kind, header, payload, fast=fast)


def decode(
    data: bytes, *, kind: str = KIND, source: str = "message", in_place: bool = False
) -> Value:
    """The value of bytes that `encode` wrote.

    Args:
        data: the bytes.
        kind: what the message is.
        source: for errors.
        in_place: whether arrays stay where they lie in `data`. For integers alone: libraries add
            real numbers up in another order where they are not aligned, so bits would depend on
            the length of a header.

    Raises:
        FederationError: an unregistered record, or a header that does not describe the payload.
        fhe.errors.FormatError: no whole envelope of that kind.
    """
    from safetensors import SafetensorError

    _, header, payload = envelope.unpack_view(data, kind, source=source, parse=_parsed)
    try:
        arrays = _read_arrays(payload if in_place else memoryview(bytes(payload)))
        return _put_together(header["value"], arrays, 0)
    except (SafetensorError, *_UNFIT) as error:
        if isinstance(error, FederationError):
            raise
        raise FederationError(f"{source}: its header does not describe its payload") from error


_SHORT = 1 << 10


def _parsed(text: bytes) -> Any:
    """A header; short ones are kept, for they are the same bytes in every client's message."""
    return _kept(text) if len(text) <= _SHORT else envelope.load_json(text)


@lru_cache(maxsize=256)
def _kept(text: bytes) -> Any:
    return envelope.load_json(text)


def fingerprint(value: Value) -> bytes:
    """SHA-256 of a value, 32 bytes: equal for equal values alone, before and after a journey.

    Type, shape and every bit of every number count, and so does the order of a dict's keys.

    Raises:
        FederationError: it holds something that cannot be encoded.
    """
    header, arrays = _take_apart(value)
    text = json.dumps(header, allow_nan=False, sort_keys=True).encode()
    head, order = _frame(_kinds(arrays))
    whole = hashlib.sha256(len(text).to_bytes(8, "little"))
    whole.update(text)
    # The head says how long it is and how long each array.
    whole.update(head)
    for i in order:
        whole.update(arrays[i].reshape(-1).view(np.uint8).data)
    return whole.digest()


def measure(value: Value) -> tuple[int, int]:
    """Bytes that `encode` needs for the value, and floating-point numbers in its arrays.

    Nothing is copied.
    """
    header, arrays = _take_apart(value)
    head, _ = _frame(_kinds(arrays))
    n_bytes = (
        len(_header_text(header).encode()) + len(head) + sum(a.nbytes for a in arrays) + _FRAMING
    )
    return n_bytes, sum(a.size for a in arrays if a.dtype.kind == "f")


def _header_text(header: Mapping[str, Any]) -> str:
    return json.dumps({"kind": KIND, **header}, allow_nan=False, sort_keys=True)


def measure_tree(structure: Structure, leaves: Sequence[Leaf]) -> tuple[int, int]:
    """As `measure`, of a tree already flattened; fast for a structure seen before."""
    kept = tuple(len(leaf.values) for leaf in leaves if isinstance(leaf, SparseArray | LowRank))
    return compact_sizes(structure)[kept]


class CompactSizes(dict[tuple[int, ...], tuple[int, int]]):
    """What `measure` says of trees of one structure, found when first asked for.

    The key is the number of values that each sparse or low-rank leaf has.
    """

    def __init__(self, structure: Structure) -> None:
        super().__init__()
        self._structure = structure
        self._form: _Form | None = None

    def __missing__(self, kept: tuple[int, ...]) -> tuple[int, int]:
        if self._form is None:
            self._form = _Form(self._structure, len(kept))
        if len(self) >= 4096:
            self.clear()
        found = self[kept] = self._form.sizes(kept)
        return found


class _Form:
    """The arrays of a structure's trees, as far as all of them have the same.

    Messages of a few thousand different lengths come in a round: asking the library for the frame
    of each would take longer than the round's sums.
    """

    def __init__(self, structure: Structure, counts: int) -> None:
        ones = [1] * counts
        header, arrays = _take_apart(_blank(structure, iter(ones)))
        # The header says how many arrays there are, and not how long.
        self._text = len(_header_text(header).encode())
        self._types = [a.dtype for a in arrays]
        self._shapes = [a.shape for a in arrays]
        self._order = _frame(_kinds(arrays))[1]
        self._heads: dict[tuple[int, ...], int] = {}
        self._grows: list[tuple[int, int, int]] = []
        for which in range(counts):
            ones[which] = 2
            _, more = _take_apart(_blank(structure, iter(ones)))
            ones[which] = 1
            for place, (few, many) in enumerate(zip(arrays, more, strict=True)):
                axes = enumerate(zip(few.shape, many.shape, strict=True))
                self._grows += [(place, axis, which) for axis, (a, b) in axes if a < b]

    def sizes(self, kept: tuple[int, ...]) -> tuple[int, int]:
        """What `measure` says of a tree whose leaves have so many values."""
        shapes = [list(shape) for shape in self._shapes]
        for place, axis, which in self._grows:
            shapes[place][axis] += kept[which] - 1
        numbers = [math.prod(shape) for shape in shapes]
        lengths = [n * t.itemsize for n, t in zip(numbers, self._types, strict=True)]
        n_bytes = self._text + self._head(shapes, lengths) + sum(lengths) + _FRAMING
        return n_bytes, sum(n for n, t in zip(numbers, self._types, strict=True) if t.kind == "f")

    def _head(self, shapes: list[list[int]], lengths: list[int]) -> int:
        """How long the library's head is: as long as that of numbers with as many digits."""
        ends = accumulate(lengths[i] for i in self._order)
        digits = tuple([len(str(n)) for n in chain(*shapes, ends)])
        if digits not in self._heads:
            kinds = tuple((t.str, tuple(s)) for t, s in zip(self._types, shapes, strict=True))
            self._heads[digits] = len(_frame(kinds)[0])
        return self._heads[digits]


@lru_cache(maxsize=64)
def compact_sizes(structure: Structure) -> CompactSizes:
    """The sizes of trees of a structure; the same object for as long as it is in use."""
    return CompactSizes(structure)


def _blank(structure: Structure, counts: Iterator[int]) -> Value:
    if structure.kind == "array":
        return np.empty(structure.shape, structure.dtype)
    if structure.kind == "sparse":
        k = next(counts)
        return SparseArray(np.zeros(k, np.int64), np.zeros(k, structure.dtype), structure.shape[0])
    if structure.kind == "low rank":
        r = next(counts)
        d = (math.isqrt(8 * structure.shape[0] + 1) - 1) // 2
        return LowRank(np.zeros(r), np.zeros((r, d)))
    if structure.kind == "quantised":
        # The two kinds' names are of one length.
        return PackedCodes.of(np.zeros(structure.shape[0]), structure.bits, 0.0)
    children = [_blank(child, counts) for child in structure.children]
    if structure.kind == "dict":
        return dict(zip(structure.keys, children, strict=True))
    return tuple(children) if structure.kind == "tuple" else children


_Kinds: TypeAlias = tuple[tuple[str, tuple[int, ...]], ...]


def _kinds(arrays: Sequence[Array]) -> _Kinds:
    return tuple((a.dtype.str, a.shape) for a in arrays)


@lru_cache(maxsize=1024)
def _frame(kinds: _Kinds) -> tuple[bytes, tuple[int, ...]]:
    """What safetensors writes before the bytes of such arrays, and the order in which they follow.

    Most messages are small and alike: the library is asked once for each kind of them.
    """
    from safetensors.numpy import save

    blank = {str(i): np.empty(shape, dtype) for i, (dtype, shape) in enumerate(kinds)}
    whole = save(blank)
    start = 8 + int.from_bytes(whole[:8], "little")
    places = json.loads(whole[8:start])
    order = sorted(range(len(kinds)), key=lambda i: places[str(i)]["data_offsets"])
    return whole[:start], tuple(order)


_ALIKE = 2**25
"""Payloads up to this size are read by the layout of an earlier one with the same header."""


def _read_arrays(payload: memoryview) -> list[Array]:
    """The arrays by number, read-only; raises as safetensors does, or ValueError."""
    from safetensors.numpy import load

    if len(payload) > _ALIKE:
        found = load(bytes(payload))
        return [found[str(i)] for i in range(len(found))]
    start = 8 + int.from_bytes(payload[:8], "little")
    if start > len(payload):
        raise ValueError("the header is longer than the payload")
    layout = _layout(bytes(payload[:start]), len(payload) - start)
    return [
        np.frombuffer(payload, dtype, math.prod(shape), start + offset).reshape(shape)
        if math.prod(shape)
        else np.empty(shape, dtype)
        for dtype, shape, offset in layout
    ]


@lru_cache(maxsize=256)
def _layout(head: bytes, size: int) -> tuple[tuple["np.dtype[Any]", tuple[int, ...], int], ...]:
    """Type, shape and offset of each array; checked by safetensors, which looks at no value."""
    from safetensors.numpy import load

    found = load(head + bytes(size))
    places = json.loads(head[8:])
    return tuple(
        (found[str(i)].dtype, found[str(i)].shape, places[str(i)]["data_offsets"][0])
        for i in range(len(found))
    )


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
    if isinstance(value, LowRank):
        parts = [_describe_array(value.values, arrays), _describe_array(value.vectors, arrays)]
        return {"low rank": parts}
    if isinstance(value, PackedCodes):
        parts = [
            _describe_array(value.data, arrays),
            _describe_array(np.float64(value.scale), arrays),
        ]
        return {"quantised": parts, "bits": value.bits, "size": value.size, "kind": value.kind}
    if isinstance(value, dict):
        return _describe_dict(value, arrays, depth)
    if isinstance(value, tuple | list):
        items = list(value)
        if not _texts(items):
            items = [_describe(v, arrays, depth + 1) for v in items]
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


def _texts(items: list[Any]) -> bool:
    """Whether they are strings alone, as long lists in messages are: lists of names."""
    return set(map(type, items)) == {str}


def _put_together(described: Any, arrays: Sequence[Array], depth: int) -> Value:
    if depth > _DEEPEST or isinstance(described, list):
        raise ValueError("not a described value")
    if not isinstance(described, dict):
        return described

    def inner(each: Any) -> Value:
        return each if type(each) is str else _put_together(each, arrays, depth + 1)

    match described:
        case {"array": int(i)} if i >= 0:
            return arrays[i]
        case {"scalar": int(i)} if i >= 0:
            return arrays[i][()]
        case {"number": str(text)}:
            return float(text)
        case {"sparse": [indices, values], "size": int(size)}:
            return SparseArray(inner(indices), inner(values), size)
        case {"low rank": [values, vectors]}:
            return LowRank(inner(values), inner(vectors))
        case {"quantised": [data, scale], "bits": int(b), "size": int(n), "kind": str(kind)}:
            return PackedCodes(inner(data), b, n, float(inner(scale)), kind)
        case {"dict": list(pairs)}:
            return {key: inner(each) for key, each in pairs}
        case {"tuple": list(items)}:
            return tuple(items if _texts(items) else map(inner, items))
        case {"list": list(items)}:
            return list(items if _texts(items) else map(inner, items))
        case {"record": str(name), "fields": dict(fields)}:
            return find_record(name)(**{key: inner(each) for key, each in fields.items()})
    raise ValueError("not a described value")
