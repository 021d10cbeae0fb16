"""The wire codec gives back what it was given, and refuses everything else."""

import struct
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fhe import envelope
from fhe.errors import FormatError
from secure_fl.federation import FederationError, LowRank, SparseArray, broadcastable, wire
from secure_fl.federation.codes import PackedCodes
from secure_fl.federation.trees import flatten
from tests.secure_fl.federation.steps import Ridge

ARRAYS = st.one_of(
    hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
    for dtype in (np.float64, np.float32, np.int64, np.uint8, np.bool_)
)
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.text(), st.floats())
RECORDS = st.builds(Ridge, st.floats(allow_nan=False), st.text(max_size=5))
VALUES = st.recursive(
    st.one_of(ARRAYS, SCALARS, RECORDS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=4), inner, max_size=3),
    ),
    max_leaves=8,
)


def same(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float):
        return struct.pack("d", a) == struct.pack("d", b) or (a != a and b != b)
    return a == b


@settings(max_examples=150)
@given(VALUES)
def test_decoding_gives_back_the_value_and_the_size_is_known_before(value: Any):
    data = wire.encode(value)
    assert same(wire.decode(data), value)
    assert wire.measure(value)[0] == len(data)


@settings(max_examples=60)
@given(st.lists(ARRAYS, max_size=4))
def test_arrays_are_written_and_read_as_the_library_does(arrays: list[Any]):
    from safetensors.numpy import load, save

    data = wire.encode(arrays)
    payload = envelope.unpack(data, wire.KIND).payload
    assert payload == save({str(i): each for i, each in enumerate(arrays)})
    found = load(payload)
    assert all(same(a, found[str(i)]) for i, a in enumerate(wire.decode(data)))


def test_large_arrays_are_read_as_small_ones_are():
    for size in (2**17 - 64, 2**17 + 64):  # of 8 bytes: on either side of what is read by layout
        value = np.arange(size, dtype=np.int64)
        assert np.array_equal(wire.decode(wire.encode({"a": value, "b": value[:3]}))["a"], value)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda p: p[:-1],
        lambda p: p + b"\0",
        lambda p: (2**63).to_bytes(8, "little") + p[8:],
        lambda p: p[:4],
        lambda p: p.replace(b"[0,24]", b"[0,16]"),
        lambda p: p.replace(b"F64", b"F99"),
        lambda p: p.replace(b'"0"', b'"1"'),
    ],
)
def test_a_payload_that_is_none_is_refused_though_its_header_was_seen(spoil: Any):
    whole = wire.encode(np.zeros(3))
    assert wire.decode(whole).shape == (3,)
    message = envelope.unpack(whole, wire.KIND)
    data = envelope.pack(wire.KIND, dict(message.header), spoil(message.payload))
    with pytest.raises(FederationError, match="does not describe its payload"):
        wire.decode(data)


def test_numpy_numbers_and_sparse_arrays_come_back():
    value = {"n": np.float32(0.1), "s": SparseArray(np.array([2, 0]), np.array([1.0, -1.0]), 3)}
    found = wire.decode(wire.encode(value))
    assert type(found["n"]) is np.float32
    assert found["n"] == np.float32(0.1)
    assert found["s"].dense().tolist() == [-1.0, 0.0, 1.0]


LENGTHS = st.one_of(st.integers(0, 12), st.integers(95, 105), st.integers(1240, 1260))


@settings(max_examples=60)
@given(st.lists(st.tuples(LENGTHS, LENGTHS, LENGTHS), min_size=1, max_size=4))
def test_a_trees_size_is_known_from_the_lengths_of_its_leaves(lengths: list[tuple[int, ...]]):
    """Lengths around those at which a number of the header has a digit more."""
    for few, many, pairs in lengths:
        tree = {
            "dense": np.zeros((2, 3), np.float32),
            "sparse": [_sparse(few), _sparse(many)],
            "codes": PackedCodes.of(np.zeros(5), 3, 1.0),
            "pairs": (LowRank(np.zeros(pairs), np.zeros((pairs, 2))),),
        }
        size = wire.measure_tree(*flatten(tree))
        assert size == wire.measure(tree)
        assert size[0] == len(wire.encode(tree))


def _sparse(length: int) -> SparseArray:
    return SparseArray(np.arange(length), np.zeros(length), 2000)


def test_strided_arrays_are_sent_in_their_order():
    value = np.arange(12.0).reshape(3, 4).T[::2]
    assert np.array_equal(wire.decode(wire.encode(value)), value)


@dataclass(frozen=True)
class Unregistered:
    x: int = 0


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (Unregistered(), "found a Unregistered"),
        (object(), "found a object"),
        ({1: 2}, "found key 1"),
        (np.array(["text"]), "array of <U4"),
        (np.array([None]), "array of object"),
    ],
)
def test_what_cannot_be_sent_is_refused(value: object, message: str):
    with pytest.raises(FederationError, match=message):
        wire.encode(value)


def test_a_value_nested_without_end_is_refused():
    value: list[Any] = []
    value.append(value)
    with pytest.raises(FederationError, match="deeper than 50"):
        wire.encode(value)


@pytest.mark.parametrize(
    "described",
    [
        {"array": 1},
        {"array": -1},
        {"array": "0"},
        {"record": "os:system", "fields": {"command": "ls"}},
        {"record": "tests.secure_fl.federation.steps:Ridge", "fields": {"unknown": 1}},
        {"number": "one"},
        {"tuple": 3},
        {"dict": [["a"]]},
        {"what": 1},
        [1, 2],
    ],
)
def test_a_header_that_describes_something_else_is_refused(described: Any):
    from safetensors.numpy import save

    data = envelope.pack(wire.KIND, {"value": described}, save({"0": np.zeros(1)}))
    with pytest.raises(FederationError):
        wire.decode(data)


def test_a_message_of_another_kind_or_a_damaged_one_is_refused():
    data = wire.encode(np.zeros(3))
    with pytest.raises(FormatError, match="expected 'other'"):
        wire.decode(data, kind="other")
    for place in (0, 40, len(data) - 1):
        damaged = bytearray(data)
        damaged[place] ^= 1
        with pytest.raises(FormatError):
            wire.decode(bytes(damaged))


def test_only_frozen_dataclasses_at_the_top_of_a_module_are_broadcastable():
    @dataclass
    class Loose:
        x: int

    @dataclass(frozen=True)
    class Nested:
        x: int

    with pytest.raises(FederationError, match="expected a frozen dataclass"):
        broadcastable(Loose)
    with pytest.raises(FederationError, match="top of a module"):
        broadcastable(Nested)


FINDS = """
import importlib, pkgutil, sys
from secure_fl.errors import FederationError
from secure_fl.federation import steps

own = "secure_fl.trainers.fednl.one_against_rest:OneAgainstRestState"
assert "secure_fl.trainers" not in sys.modules
for name in ("wave:Wave_read", "secure_fl.service.worker:main", own):
    before = set(sys.modules)
    try:
        steps.find_record(name)
    except FederationError as error:
        assert "unknown here" in str(error)
        assert set(sys.modules) == before
    else:
        raise AssertionError(name)

importlib.import_module(sys.argv[1])
if sys.argv[1] == "secure_fl.training.linear":
    steps.find_record(own)
before = set(steps._RECORDS)
for room in sys.argv[2:]:
    for module in pkgutil.iter_modules(importlib.import_module(room).__path__, room + "."):
        importlib.import_module(module.name)
assert set(steps._RECORDS) == before, set(steps._RECORDS) - before
"""
TRAINERS = "secure_fl.trainers."


@pytest.mark.parametrize(
    ("training", "rooms"), [("linear", ["linear", "fednl"]), ("networks", ["networks"])]
)
def test_a_new_process_knows_the_records_of_what_it_trains_and_a_name_imports_nothing(
    training, rooms
):
    """A checkpoint is read before its method ran; names of a network look nothing up elsewhere."""
    modules = [f"secure_fl.training.{training}", *(TRAINERS + room for room in rooms)]
    done = subprocess.run(
        [sys.executable, "-c", FINDS, *modules],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("length", range(1, 9))
def test_real_numbers_are_aligned_whatever_stands_before_them(length: int):
    """Libraries add up in another order where they are not: one worker's bits would be its own."""
    found = wire.decode(wire.encode({"n" * length: np.arange(5.0)}))
    assert found["n" * length].flags.aligned


def test_what_was_made_of_a_message_has_no_part_in_the_next_one():
    """Headers that are the same bytes are parsed once; nobody who reads one shares it."""
    value = {"names": ["a", "b"], "deep": [["c"], {"d": ["e"]}]}
    message = wire.encode(value, fast=True)
    first = wire.decode(message)
    first["names"].append("x")
    first["deep"][0].append("x")
    first["deep"][1]["d"].append("x")
    assert wire.decode(message) == value
