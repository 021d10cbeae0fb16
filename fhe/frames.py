"""What surrounds words in the library's bytes of ciphertexts and keys: derived, never taken.

The library parses what describes ciphertexts and keys (Cap'n Proto) with no bounds of its own: a
changed count makes it allocate or loop. So no description of a peer's reaches it. Each evaluator
draws keys that it throws away, for its own compiled rule, and keeps what surrounds their words; a
querier's keys must have the same, byte for byte, and ciphertexts come as words alone. What is left
for the library are words, which it computes with and never interprets.
"""

import itertools
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from .compiled import CompiledRule, compiled_rule, entry, keep, read_kept
from .errors import FormatError, LibraryError
from .knockout import function_name, last_kind
from .library import concrete_fhe, signals_kept
from .lwe_layout import check_layout, input_type, read_specs
from .parameters import RuleParameters

KIND = "fhe library frames"
_SOURCES = ("circuits", "code", "compiled", "digits", "frames", "knockout", "lwe_layout")
_SEED = 16
_WORD = 8


@dataclass(frozen=True)
class KeyFrame:
    """Structure of evaluation keys' bytes: a part, words of a key, a part, words of a key.

    Attributes:
        parts: bytes that every key set of the rule has alike.
        gaps: bytes of words after each part.
    """

    parts: tuple[bytes, ...]
    gaps: tuple[int, ...]

    @property
    def size(self) -> int:
        """Bytes of evaluation keys."""
        return sum(map(len, self.parts)) + sum(self.gaps)

    def check(self, content: bytes) -> None:
        """Refuses bytes of any other structure; what passes differs in words alone.

        Raises:
            FormatError: so.
        """
        if len(content) != self.size:
            raise FormatError(
                f"evaluation keys: {len(content)} bytes, those of this rule have {self.size};"
                " get them again from the querier"
            )
        position = 0
        for part, gap in zip(self.parts, self.gaps, strict=True):
            if content[position : position + len(part)] != part:
                raise FormatError(
                    f"evaluation keys: what describes them differs near byte {position} from what"
                    " this rule's own keys have; get them again from the querier"
                )
            position += len(part) + gap


@dataclass(frozen=True)
class Frames:
    """Structure of all bytes that the library parses for a rule.

    Attributes:
        operands: what surrounds the ciphertexts of an operand, by a block's size.
        keys: of the evaluation keys.
    """

    operands: Mapping[int, bytes]
    keys: KeyFrame


@lru_cache(maxsize=8)
def frames_of(parameters: RuleParameters) -> Frames:
    """Of a rule, from the cache where they are there; else draws keys and throws them away.

    Raises:
        InputError: the cache folder is somebody else's or open to others.
        LibraryError: the library lays out its bytes otherwise.
    """
    path = entry(parameters, _SOURCES)
    kept = read_kept(path, KIND)
    if kept is not None:
        return _unpacked(kept.header, kept.payload)
    rule = compiled_rule(parameters)
    client = concrete_fhe().Client(rule.specs)
    draw_keys(client)
    content = client.evaluation_keys.serialize()
    found = Frames(operand_frames(client, parameters), key_frame(content, rule))
    found.keys.check(content)
    keep(path, KIND, *_packed(found))
    return found


def draw_keys(client: Any) -> None:
    """Draws a client's keys from the system's randomness; the library has seeds of its own."""
    with signals_kept():
        client.keys.generate(
            force=True,
            secret_seed=secrets.randbits(128),
            encryption_seed=secrets.randbits(128),
        )


def operand_frames(client: Any, parameters: RuleParameters) -> dict[int, bytes]:
    """What surrounds the ciphertexts of operands, by a block's size; proves the layout.

    Raises:
        LibraryError: the library lays out its bytes otherwise.
    """
    kind, last = input_type(client.specs), last_kind(parameters)
    return {
        size: check_layout(
            client, kind, function_name(last, size), (size, parameters.number_digits)
        )
        for size in parameters.sizes
    }


def key_frame(content: bytes, rule: CompiledRule) -> KeyFrame:
    """The structure of evaluation keys that the library just made.

    A Cap'n Proto stream: a table of segments' lengths; the first segment describes the keys; each
    of the others is a word that says how long its data are, and the data of one key: the seed of
    its masks and the words of its bodies.

    Raises:
        LibraryError: the stream is laid out otherwise, or the words are not as many as the rule's
            parameters give.
    """
    count = int.from_bytes(content[:4], "little") + 1
    lengths = np.frombuffer(content, "<u4", count, 4).astype(int) * _WORD
    start = -(-4 * (count + 1) // _WORD) * _WORD + int(lengths[0]) + _WORD
    gaps: list[int] = []
    parts, position = [content[:start]], start
    for length in lengths[1:].tolist():
        if gaps:
            parts.append(content[position : position + _WORD])
            position += _WORD
        gaps.append(length - _WORD)
        position += length - _WORD
    if position != len(content) or sorted(gaps) != sorted(_key_bytes(rule)):
        raise LibraryError(
            f"concrete-python: evaluation keys with data of {gaps} bytes, expected"
            f" {_key_bytes(rule)}: their layout changed; install the pinned version"
        )
    return KeyFrame(tuple(parts), tuple(gaps))


def _key_bytes(rule: CompiledRule) -> list[int]:
    """Bytes of seed and bodies of every bootstrap key and key switch, from the rule's parameters.

    A row of a GGSW ciphertext has N words besides its seeded mask, one of a key switch has one.
    """
    keyset, found = read_specs(rule.specs)["keyset"], []
    for each in keyset["lweBootstrapKeys"]:
        p = each["params"]
        rows = p["inputLweDimension"] * p["levelCount"] * (p["glweDimension"] + 1)
        found.append(_SEED + _WORD * rows * p["polynomialSize"])
    for each in keyset["lweKeyswitchKeys"]:
        p = each["params"]
        found.append(_SEED + _WORD * p["inputLweDimension"] * p["levelCount"])
    return found


def _packed(frames: Frames) -> tuple[dict[str, Any], bytes]:
    operands = list(frames.operands.items())
    header = {
        "operands": [[size, len(frame)] for size, frame in operands],
        "parts": [len(part) for part in frames.keys.parts],
        "gaps": list(frames.keys.gaps),
    }
    return header, b"".join([*(frame for _, frame in operands), *frames.keys.parts])


def _unpacked(header: Mapping[str, Any], payload: bytes) -> Frames:
    lengths = [*(length for _, length in header["operands"]), *header["parts"]]
    ends = np.cumsum([0, *lengths]).tolist()
    pieces = [payload[a:b] for a, b in itertools.pairwise(ends)]
    sizes = [size for size, _ in header["operands"]]
    parts = tuple(pieces[len(sizes) :])
    operands = dict(zip(sizes, pieces, strict=False))
    return Frames(operands, KeyFrame(parts, tuple(header["gaps"])))
