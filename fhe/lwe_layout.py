"""How concrete-python lays out its ciphertexts and keys in bytes: measured, and checked at start.

An uncompressed `Value` is a frame of 64 bytes, the 64-bit words of its LWE ciphertexts, and a frame
that describes them. A ciphertext is (a_0 .. a_{n-1}, b) with phase b - <a, s>; a message of width w
stands at bit 63 - w. A secret key is a header of 71 bytes and its bits as 64-bit words.
`check_layout` proves all of it on ciphertexts of the library whenever a public key is made.
"""

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .errors import LibraryError
from .library import concrete_fhe
from .ring import Words, signed

_HEAD = 64
_SECRET_HEAD = 71
WORD_BITS = 64


@dataclass(frozen=True)
class InputType:
    """What every function of a rule expects of its operands.

    Attributes:
        key_id: place of the secret key among the library's.
        glwe_dimension: k of the GLWE key that the LWE key flattens.
        degree: N, its polynomials' degree.
        variance: of a fresh encryption's noise, as a fraction of the torus squared.
        width: bits of a message.
    """

    key_id: int
    glwe_dimension: int
    degree: int
    variance: float
    width: int

    @property
    def dimension(self) -> int:
        """k N."""
        return self.glwe_dimension * self.degree

    @property
    def shift(self) -> int:
        """The bit at which a message stands."""
        return WORD_BITS - self.width - 1


def read_specs(specs: Any) -> dict[str, Any]:
    """The library's description of a circuit (`ClientSpecs`) as JSON types.

    Raises:
        LibraryError: it is not the JSON object that it was.
    """
    try:
        found = json.loads(specs.serialize())
        found["keyset"]["lweBootstrapKeys"], found["circuits"][0]["inputs"]
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise LibraryError(
            f"concrete-python: its circuit description changed ({error!r})"
        ) from error
    return dict(found)


def input_type(described: Any) -> InputType:
    """The type that all operands share, from the library's description of a rule's functions.

    Raises:
        LibraryError: several types, compressed ones, or ones whose key is no flattened GLWE key.
    """
    found = {each for types in _types(read_specs(described), "inputs").values() for each in types}
    if len(found) != 1:
        raise LibraryError("concrete-python: operands differ in key or width")
    return found.pop()


def check_results(described: Any, functions: Iterable[str]) -> None:
    """Refuses functions whose results are not ciphertexts of the type of all operands.

    Args:
        described: the library's description of the functions.
        functions: whose results become operands.

    Raises:
        LibraryError: so; a message at another bit would be read as another message.
    """
    expected, results = input_type(described), _types(read_specs(described), "outputs")
    for name in functions:
        if set(results[name]) != {expected}:
            raise LibraryError(
                f"concrete-python: results of {name} are not of the type of operands"
            )


def result_of(described: Any, function: str) -> tuple[InputType, tuple[int, ...]]:
    """The type and the shape of a function's result, from the library's description of it.

    Raises:
        LibraryError: it has several results, or its description is not the one expected.
    """
    specs = read_specs(described)
    (kind,) = set(_types(specs, "outputs")[function])
    (circuit,) = (each for each in specs["circuits"] if each["name"] == function)
    (gate,) = circuit["outputs"]
    return kind, tuple(gate["typeInfo"]["lweCiphertext"]["abstractShape"]["dimensions"])


def _types(specs: dict[str, Any], gates: str) -> dict[str, list[InputType]]:
    """Of the inputs or outputs of every function, by its name."""
    try:
        return {
            each["name"]: [_one_type(gate, specs) for gate in each[gates]]
            for each in specs["circuits"]
        }
    except (KeyError, TypeError, ValueError) as error:
        raise LibraryError(
            f"concrete-python: its circuit description changed ({error!r})"
        ) from error


def _one_type(gate: dict[str, Any], specs: dict[str, Any]) -> InputType:
    info = gate["typeInfo"]["lweCiphertext"]
    encryption = info["encryption"]
    if info["compression"] != "none":
        raise LibraryError(
            f"concrete-python: inputs are compressed ({info['compression']}), expected none;"
            " compile the circuit without compress_input_ciphertexts"
        )
    key = encryption["keyId"]
    glwe = {
        (each["params"]["glweDimension"], each["params"]["polynomialSize"])
        for each in specs["keyset"]["lweBootstrapKeys"]
        if each["outputId"] == key
    }
    if len(glwe) != 1:
        raise LibraryError(
            f"concrete-python: inputs under key {key} of dimension {encryption['lweDimension']},"
            " which flattens no GLWE key; a public key needs a ring"
        )
    ((k, degree),) = glwe
    encoding = info["encoding"]["integer"]
    found = InputType(key, k, degree, encryption["variance"], encoding["width"])
    if found.dimension != encryption["lweDimension"] or encoding["mode"] != {"native": {}}:
        raise LibraryError(f"concrete-python: inputs of an encoding that is not expected: {found}")
    return found


def secret_bits(client: Any, kind: InputType) -> Words:
    """The input key's bits, shape (k, N). A secret.

    Raises:
        LibraryError: the bytes are laid out otherwise.
    """
    # The library offers no public door to the bits of a key that it drew.
    content = client.keys._keyset.get_client_keys().get_secret_keys()[kind.key_id].serialize()
    if len(content) != _SECRET_HEAD + 8 * kind.dimension:
        raise LibraryError(
            f"concrete-python: secret key of {len(content)} bytes, expected"
            f" {_SECRET_HEAD + 8 * kind.dimension}"
        )
    bits = np.frombuffer(content, "<u8", offset=_SECRET_HEAD).astype(np.uint64)
    if bits.max() > 1:
        raise LibraryError("concrete-python: the words of a secret key are not bits")
    return bits.reshape(kind.glwe_dimension, kind.degree)


def split(content: bytes, count: int, kind: InputType) -> tuple[bytes, Words]:
    """The frame of a serialized `Value`, without its ciphertexts, and the ciphertexts.

    Returns:
        Frame, and `count` ciphertexts, shape (count, k N + 1).

    Raises:
        LibraryError: too short.
    """
    size = 8 * count * (kind.dimension + 1)
    if len(content) <= _HEAD + size:
        raise LibraryError(
            f"concrete-python: ciphertexts of {len(content)} bytes, expected over {_HEAD + size}"
        )
    words = np.frombuffer(content, "<u8", size // 8, _HEAD).astype(np.uint64)
    frame = content[:_HEAD] + content[_HEAD + size :]
    return frame, words.reshape(count, kind.dimension + 1)


def join(frame: bytes, rows: Words) -> bytes:
    """The serialized `Value` of ciphertexts; the inverse of `split`."""
    return frame[:_HEAD] + rows.astype("<u8").tobytes() + frame[_HEAD:]


def to_value(frame: bytes, rows: Words) -> Any:
    """The library's object.

    Raises:
        LibraryError: the library cannot read it.
    """
    try:
        return concrete_fhe().Value.deserialize(join(frame, rows))
    except RuntimeError as error:
        raise LibraryError("concrete-python: cannot read ciphertexts put together here") from error


def check_layout(client: Any, kind: InputType, function: str, shape: tuple[int, int]) -> bytes:
    """Proves the layout on encryptions of known digits; returns the frame of a `Value`.

    Args:
        client: the library's, with its keys.
        kind: of the function's operands.
        function: the compiled function that takes them.
        shape: of its operands (block, digits).

    Raises:
        LibraryError: the library lays out its bytes otherwise, or operands differ.
    """
    bits = secret_bits(client, kind).ravel()
    digits = np.arange(shape[0] * shape[1]).reshape(shape) % 2
    operands = len(client.specs.program_info.get_circuit(function).get_inputs())
    encrypted = client.encrypt(*[digits] * operands, function_name=function)
    frames = set()
    for value in [encrypted] if operands == 1 else encrypted:
        content = value.serialize()
        frame, rows = split(content, digits.size, kind)
        check_rows(rows, digits.ravel(), bits, kind, 2.0**12 * kind.variance**0.5)
        if to_value(frame, rows).serialize() != content:
            raise LibraryError("concrete-python: ciphertexts do not come back from their bytes")
        frames.add(frame)
    if len(frames) != 1:
        raise LibraryError(
            "concrete-python: the ciphertexts of two operands differ in their frames"
        )
    return frames.pop()


def check_rows(rows: Words, digits: Any, bits: Words, kind: InputType, most: float) -> None:
    """Compares the phases of LWE ciphertexts with the digits that they should hold.

    Args:
        rows: shape (digits, k N + 1).
        digits: of the rows.
        bits: of the secret key.
        kind: of the ciphertexts.
        most: noise that is expected, a fraction of the torus.

    Raises:
        LibraryError: a phase is off by more, or by a quarter of a message's step.
    """
    error = np.abs(signed(phases(rows, bits) - (digits.astype(np.uint64) << np.uint64(kind.shift))))
    limit = min(2.0**WORD_BITS * most, 2.0 ** (kind.shift - 2))
    if error.max() > limit:
        raise LibraryError(
            f"concrete-python: a ciphertext's phase is off by {error.max():.3g}, expected at most"
            f" {limit:.3g}: the layout of its bytes changed; install the pinned version"
        )


def messages(rows: Words, bits: Words, kind: InputType) -> Words:
    """What LWE ciphertexts hold, shape (rows,), as the library reads them. Needs the secret.

    Words of any content are read: those that are no encryption give messages without meaning.
    """
    half = np.uint64(1) << np.uint64(kind.shift - 1)
    found = (phases(rows, bits) + half) >> np.uint64(kind.shift)
    return np.asarray(found & np.uint64((1 << (kind.width + 1)) - 1))


@dataclass(frozen=True, eq=False, repr=False)
class ResultReader:
    """Reads words as the results of a function, whatever they are. Holds the secret.

    Attributes:
        kind: of the results.
        row: shape of one integer's result.
        bits: of the secret key, shape (k N,), not to be written to.
    """

    kind: InputType
    row: tuple[int, ...]
    bits: Words

    @property
    def size(self) -> int:
        """Bytes of one integer's result."""
        return math.prod(self.row) * (self.kind.dimension + 1) * WORD_BITS // 8

    def read(self, content: bytes) -> Words:
        """What words hold, shape (integers, *row); they must be those of whole integers."""
        words = np.frombuffer(content, "<u8").astype(np.uint64)
        found = messages(words.reshape(-1, self.kind.dimension + 1), self.bits, self.kind)
        return found.reshape(-1, *self.row)


def result_reader(client: Any, function: str) -> ResultReader:
    """What reads results of a function that takes rows of integers.

    Args:
        client: the library's, with its keys.
        function: the compiled function.

    Raises:
        LibraryError: as `result_of` and `secret_bits`.
    """
    kind, shape = result_of(client.specs, function)
    bits = secret_bits(client, kind).ravel()
    bits.flags.writeable = False
    return ResultReader(kind, shape[1:], bits)


def phases(rows: Words, bits: Words) -> Words:
    """b - <a, s> modulo 2^64 of every row. Needs the secret."""
    chosen = rows[:, :-1][:, bits.astype(bool)]
    return np.asarray(rows[:, -1] - chosen.sum(axis=1, dtype=np.uint64))
