"""Files that say one size and unpack to another: what reading them takes, in its own process.

zipfile unpacks a member whole before it cuts it to the size that the header claims. So a cap on
what headers claim is none.
"""

import bz2
import hashlib
import io
import json
import lzma
import struct
import subprocess
import sys
import zlib
from functools import cache

import numpy as np
import pytest

from tests.attacks.table import Attack
from tests.fuzz.mutations import enveloped

ATTACK = Attack(
    name="sends files whose headers lie about sizes",
    holds="a client file, queries, a model or a message that somebody else reads",
    before="2.1 GB and 15 s of the reader by a file of 1.5 MB, under a cap of 2 MB",
    after="a piece of 1 MB at a time up to the cap, whatever headers say, or an error",
)

CAP = 2_000_000
MOST = CAP + 30_000_000
"""Bytes: the cap, and what modules and the largest permitted directory take."""
STORED, DEFLATED, BZIP2, LZMA = 0, 8, 12, 14
GIANT = 1440
"""Megabytes that a lying member unpacks to."""

READER = """
import json, sys
from pathlib import Path
from secure_fl.data.npz import read_npz
from secure_fl.errors import InputError
from secure_fl.federation import wire
from secure_fl.heads.queries import read_matrix
from secure_fl.training.linear_model import LinearModel
import fhe.errors
from tests.fuzz.inputs import _peak, _reset_peak

def read(path):
    if path.suffix == ".npz":
        return read_npz(path, max_bytes=int(sys.argv[2]))
    if path.suffix == ".npy":
        return read_matrix(path)
    if path.suffix == ".model":
        return LinearModel.load(path)
    return wire.decode(path.read_bytes())

found = {}
for path in sorted(Path(sys.argv[1]).iterdir()):
    before = _reset_peak()
    try:
        read(path)
        said = "read"
    except (InputError, fhe.errors.InputError) as error:
        said = str(error)
    found[path.name] = said, _peak() - before
print(json.dumps(found))
"""


def npy(array: np.ndarray) -> bytes:
    made = io.BytesIO()
    np.save(made, array)
    return made.getvalue()


def deflated(content: bytes, more: int = 0) -> bytes:
    """A stream of the content and then as many megabytes of zeros; a megabyte takes a kilobyte."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    start = packer.compress(content) + packer.flush(zlib.Z_FULL_FLUSH)
    piece = packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    return start + more * piece + packer.flush()


def as_lzma(content: bytes) -> bytes:
    kind = {"id": lzma.FILTER_LZMA1}
    packed = lzma.compress(content, lzma.FORMAT_RAW, filters=[kind])
    properties = lzma._encode_filter_properties(kind)
    return struct.pack("<BBH", 9, 4, len(properties)) + properties + packed


def archive(*members: tuple[str, int, bytes, bytes, int]) -> bytes:
    """A zip of members: name, method, packed bytes, and the content and size that are claimed."""
    body, directory = [], []
    offset = 0
    for name, method, packed, claimed, size in members:
        fixed = (method, 0, 33, zlib.crc32(claimed), len(packed), size, len(name), 0)
        local = struct.pack("<4s5H3L2H", b"PK\3\4", 20, 0, *fixed) + name.encode() + packed
        directory.append(
            struct.pack("<4s6H3L5H2L", b"PK\1\2", 20, 20, 0, *fixed, 0, 0, 0, 0, offset)
            + name.encode()
        )
        body.append(local)
        offset += len(local)
    found, count = b"".join(directory), len(members)
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, count, count, len(found), offset, 0)
    return b"".join(body) + found + end


X, Y = npy(np.ones((4, 2))), npy(np.arange(4) % 2)


def client_file(packed: bytes, method: int = DEFLATED, claimed: bytes = X, size: int = 0) -> bytes:
    labels = ("y.npy", DEFLATED, deflated(Y), Y, len(Y))
    return archive(("X.npy", method, packed, claimed, size or len(claimed)), labels)


def honest(**arrays: np.ndarray) -> bytes:
    made = io.BytesIO()
    np.savez_compressed(made, **arrays)
    return made.getvalue()


def tensors(header: dict, content: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + content


def giant_tensor(name: str) -> bytes:
    return tensors({name: {"dtype": "F64", "shape": [10**9, 2], "data_offsets": [0, 16 * 10**9]}})


def lying_length() -> bytes:
    body = struct.pack("<8sIIQ", b"\x89SFL\r\n\x1a\n", 1, 2, 10**9) + b"{}" + bytes(10)
    return body + hashlib.sha256(body).digest()


@cache
def files() -> dict[str, tuple[bytes, str]]:
    """Files by name, with what becomes of them."""
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000, 2), }"
    promising = X[:8] + struct.pack("<H", 118) + header.ljust(117) + b"\n" + bytes(64)
    names = [f"{i:07d}" for i in range(30_000)]
    bytes_only = np.zeros((900_000, 1), np.int8)
    model = json.dumps({"kind": "linear model"}).encode()
    message = json.dumps({"kind": "federation message", "value": {"array": 0}}).encode()
    return {
        "zeros.npz": (client_file(deflated(b"", GIANT), claimed=bytes(1000)), "is damaged"),
        "after-an-array.npz": (client_file(deflated(X, GIANT)), "read"),
        "claims-more.npz": (client_file(deflated(X), size=1_900_000), "damaged"),
        "claims-4-GB.npz": (client_file(deflated(X), size=2**32 - 2), "the cap is"),
        "bzip2.npz": (client_file(bz2.compress(bytes(1 << 20)), BZIP2), "another method"),
        "lzma.npz": (client_file(as_lzma(bytes(1 << 20)), LZMA), "another method"),
        "directory.npz": (archive(*((n, STORED, b"", b"", 0) for n in names)), "not an npz"),
        "array.npz": (client_file(deflated(promising), claimed=promising), "header is wrong"),
        "bytes.npz": (honest(X=bytes_only, y=np.zeros(900_000, np.int8)), "as float numbers"),
        "labels.npz": (honest(X=bytes_only[::2], y=np.arange(450_000) % 120 - 9), "the cap is"),
        "words.npz": (honest(X=bytes_only[::9], y=np.array(["p", "q"] * 50_000)), "read"),
        "array.npy": (promising, "header is wrong"),
        "tensor.model": (enveloped(model, giant_tensor("weights")), "do not belong together"),
        "length.model": (lying_length(), "length"),
        "tensor.message": (enveloped(message, giant_tensor("0")), "does not describe"),
    }


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory) -> dict[str, tuple[str, int]]:
    folder = tmp_path_factory.mktemp("files")
    for name, (content, _) in files().items():
        (folder / name).write_bytes(content)
    command = [sys.executable, "-c", READER, str(folder), str(CAP)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, tuple[str, int]] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("name", files())
def test_no_header_makes_a_reader_take_more_than_its_cap(name, outcomes):
    said, peak = outcomes[name]
    assert files()[name][1] in said
    assert peak <= MOST
