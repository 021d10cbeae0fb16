"""Messages that are read once: their version, their digest, and JSON that can be written again."""

import json
import struct

import pytest
from cryptography.hazmat.primitives.poly1305 import Poly1305
from hypothesis import given
from hypothesis import strategies as st

from fhe.envelope import load_json, pack, unpack
from fhe.errors import FormatError, VersionError

TEXTS = st.lists(st.sampled_from(["a", "\\", "u", "d800", "dc00", "\\ud83d", "\\ude00", "é", '"']))


def message():
    return pack("a kind", {"a": 1}, bytes(range(200)), fast=True)


def test_a_message_of_the_version_before_is_refused_with_both_named():
    """Version 2 had Poly1305; a peer that still writes it is told which versions meet."""
    old = bytearray(message()[:-16])
    old[8:12] = struct.pack("<I", 2)
    old += Poly1305.generate_tag(b"k" * 32, bytes(old))
    with pytest.raises(VersionError, match="format version 2, this package reads version 1 and 3"):
        unpack(bytes(old), source="the message")


def test_a_changed_bit_anywhere_in_a_message_is_found():
    whole = message()
    assert unpack(whole).payload == bytes(range(200))
    for place in range(24, len(whole)):
        changed = bytearray(whole)
        changed[place] ^= 1 << place % 8
        with pytest.raises(FormatError, match="digest does not fit"):
            unpack(bytes(changed))


def writes_again(text):
    """The rule itself, by the standard library alone."""
    try:
        json.dumps(json.loads(text), ensure_ascii=False).encode()
    except ValueError:
        return False
    return True


@given(TEXTS.map("".join))
def test_json_is_read_exactly_where_it_can_be_written_again(inner):
    for text in (f'"{inner}"', f'{{"{inner}": ["{inner}"]}}'):
        assert reads(text) == reads(text.encode()) == writes_again(text)


def reads(text):
    try:
        load_json(text)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize(
    "text",
    [
        b'"\\ud800"',
        b'{"a": {"\\uDFFF": 1}}',
        '"\ud800"',
        b'"\xed\xa0\x80"',
        b"[" * 5000 + b"]" * 5000,
    ],
    ids=["escape", "key", "raw", "raw bytes", "deep"],
)
def test_what_cannot_be_written_again_is_refused(text):
    with pytest.raises(ValueError):  # noqa: PT011  # each by another line of the standard library
        load_json(text)
