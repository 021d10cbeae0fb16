"""Changes of valid samples: of their bytes, and of what they hold with everything around it mended.

A change of bytes mostly ends at a digest. A hostile peer makes the digest anew, so most changes
here are of a header's members, a payload or a text, in an envelope, archive or token that is whole.
"""

import base64
import hashlib
import io
import json
import random
import zipfile
from collections.abc import Callable
from typing import Any

from fhe.envelope import FORMAT_VERSION, MAGIC, unpack

Mutation = Callable[[bytes, random.Random], bytes]

VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2**31, 2**63, 2**64, -(2**63) - 1, 10**400, 1e308, 0.5),
    *(float("inf"), float("-inf"), float("nan"), "", "a", "x" * 5000, "\0", "\ud800", "é", "1"),
    *([], [[]], {}, {"a": 1}, [None], [1, 2], [-1], ["a"], "ff" * 32, "0" * 64, "../a", "NaN"),
)
NUMBERS = (0, 1, 2, 255, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63, 2**64 - 1)
PIECES = (
    *(b"\0", b"\n", b",", b":", b" ", b'"', b"-", b"9" * 30, b"1e999", b"nan", b"#", b"\xff"),
    *(b"[" * 3000, b"{" * 50, b"\xef\xbb\xbf", b"0:0", b"99999999999999999999:1", b"\r"),
)


def of_bytes(data: bytes, rng: random.Random) -> bytes:
    """One to four changes of the bytes themselves."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        _change(changed, rng)
    return bytes(changed)


def _change(data: bytearray, rng: random.Random) -> None:
    # Half of the places are near the start, where headers are.
    place = rng.randrange(min(len(data), 64 if rng.random() < 0.5 else len(data)) or 1)
    match rng.randrange(8):
        case 0 if data:
            data[place] ^= 1 << rng.randrange(8)
        case 1 if data:
            data[place] = rng.randrange(256)
        case 2:
            del data[place:]
        case 3:
            del data[place : place + rng.choice((1, 2, 8, 64))]
        case 4:
            size = rng.choice((1, 2, 4, 8))
            number = rng.choice(NUMBERS) % 2 ** (8 * size)
            data[place : place + size] = number.to_bytes(size, rng.choice(("little", "big")))
        case 5:
            data[place:place] = rng.choice(PIECES)
        case 6:
            piece = data[place : place + rng.choice((1, 8, 64, 512))]
            data[place:place] = piece * rng.choice((1, 2, 20))
        case _:
            data[place:place] = rng.randbytes(rng.choice((1, 4, 32)))


def of_value(value: Any, rng: random.Random) -> Any:
    """JSON types with one part replaced, removed, repeated or nested."""
    if isinstance(value, dict) and value and rng.random() < 0.85:
        name, changed = rng.choice(list(value)), dict(value)
        if rng.random() < 0.15:
            del changed[name]
        elif rng.random() < 0.1:
            changed[f"{name}x"] = value[name]
        else:
            changed[name] = of_value(value[name], rng)
        return changed
    if isinstance(value, list) and value and rng.random() < 0.85:
        place, listed = rng.randrange(len(value)), list(value)
        if rng.random() < 0.2:
            return listed[:place] + listed[place + 1 :]
        if rng.random() < 0.2:
            return listed[:place] + [listed[place]] * rng.choice((2, 100)) + listed[place + 1 :]
        listed[place] = of_value(listed[place], rng)
        return listed
    if isinstance(value, int | float) and rng.random() < 0.4:
        return rng.choice((-value, value + 1, value - 1, value * 2, float(value), str(value)))
    if isinstance(value, str) and rng.random() < 0.4:
        return of_bytes(value.encode("utf-8", "surrogatepass"), rng).decode("utf-8", "replace")
    if rng.random() < 0.05:
        return nested(rng.choice((60, 3000)))
    return rng.choice(VALUES)


def nested(depth: int) -> Any:
    """Lists within lists."""
    found: list[Any] = []
    for _ in range(depth):
        found = [found]
    return found


def text_of(value: Any) -> bytes:
    """JSON as a peer may write it: not finite numbers, lone surrogates and deep nesting as well."""
    try:
        return json.dumps(value).encode()
    except (RecursionError, ValueError):
        return b"[" * 3000 + b"]" * 3000


def of_json(data: bytes, rng: random.Random) -> bytes:
    """A JSON text."""
    if rng.random() < 0.25:
        return of_bytes(data, rng)
    return text_of(of_value(json.loads(data), rng))


def of_envelope(
    payload: Mutation = of_bytes,
    mend: Callable[[dict[str, Any], bytes], dict[str, Any]] | None = None,
) -> Mutation:
    """An envelope whose digest fits again.

    Args:
        payload: changes the payload.
        mend: makes fingerprints within the header anew, as a peer would.
    """

    def mutate(data: bytes, rng: random.Random) -> bytes:
        if rng.random() < 0.2:
            return of_bytes(data, rng)
        found = unpack(data)
        header, content = dict(found.header), found.payload
        if rng.random() < 0.6:
            header = of_value(header, rng)
        if rng.random() < 0.6:
            content = payload(content, rng)
        if mend is not None and isinstance(header, dict):
            header = mend(header, content)
        whole = {**header, "kind": found.kind} if isinstance(header, dict) else header
        return enveloped(text_of(whole), content)

    return mutate


def enveloped(header: bytes, payload: bytes) -> bytes:
    """An envelope of any header, JSON or not, whose lengths and digest fit."""
    frame = MAGIC + FORMAT_VERSION.to_bytes(4, "little") + len(header).to_bytes(4, "little")
    body = frame + len(payload).to_bytes(8, "little") + header + payload
    return body + hashlib.sha256(body).digest()


def of_tensors(data: bytes, rng: random.Random) -> bytes:
    """A safetensors payload whose header's length fits again."""
    if rng.random() < 0.3 or len(data) < 8:
        return of_bytes(data, rng)
    size = int.from_bytes(data[:8], "little")
    try:
        header = text_of(of_value(json.loads(data[8 : 8 + size]), rng))
    except ValueError:
        return of_bytes(data, rng)
    return len(header).to_bytes(8, "little") + header + data[8 + size :]


def of_archive(data: bytes, rng: random.Random) -> bytes:
    """A zip archive whose members are changed and whose checksums fit again."""
    if rng.random() < 0.3:
        return of_bytes(data, rng)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = rng.choice(list(members))
    if rng.random() < 0.1:
        members[rng.choice(("X", "z.npy", "../X.npy", "classes.npy"))] = members.pop(name)
    else:
        members[name] = of_bytes(members[name], rng)
    made = io.BytesIO()
    packing = rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    with zipfile.ZipFile(made, "w", packing) as archive:
        for each, content in members.items():
            archive.writestr(each, content)
    return made.getvalue()


def of_token(data: bytes, rng: random.Random) -> bytes:
    """A signed header's claims, in base64 again; the signature is as it was."""
    if rng.random() < 0.3:
        return of_bytes(data, rng)
    text, _, signature = data.partition(b".")
    changed = of_json(base64.urlsafe_b64decode(text), rng)
    return base64.urlsafe_b64encode(changed) + b"." + signature


def of_lines(data: bytes, rng: random.Random) -> bytes:
    """One line of JSON lines, or the bytes."""
    lines = data.split(b"\n")
    place = rng.randrange(len(lines))
    try:
        lines[place] = of_json(lines[place], rng)
    except ValueError:
        return of_bytes(data, rng)
    return b"\n".join(lines)
