"""What fuzzing found, one test a kind: each raised a bare error before."""

import io
import json

import numpy as np
import pytest

from dp import Ledger
from dp.errors import LedgerError
from dp.ledger_lines import line_bytes, sealed_line
from fhe.envelope import load_json, unpack
from fhe.errors import FormatError
from secure_fl.crypto.identities import read_directory
from secure_fl.data import read_client
from secure_fl.data.npz import array_of
from secure_fl.errors import FederationError, InputError, LabelError
from secure_fl.errors import FormatError as DataFormatError
from secure_fl.flower.descriptions import describe_parameters, parameters_of, structure_of
from secure_fl.heads.queries import read_matrix
from secure_fl.training.network_model import TrainedNetwork
from tests.fuzz.mutations import enveloped
from tests.fuzz.parsers import GOLDEN, PARSERS
from tests.secure_fl.federation.protocol import Party


def test_half_a_surrogate_pair_in_a_header_is_refused():
    """It could not be written again: digests and file names of it raised."""
    with pytest.raises(FormatError, match="not JSON"):
        unpack(enveloped(b'{"kind": "a", "key": "\\ud800"}', b""))


def test_deep_nesting_is_no_recursion_error(tmp_path):
    with pytest.raises(ValueError, match="nested"):
        load_json(b"[" * 100_000 + b"]" * 100_000)
    path = tmp_path / "directory.json"
    path.write_bytes(b"[" * 100_000)
    with pytest.raises(InputError, match="not a list of members"):
        read_directory(path)


def test_a_sealed_query_of_too_many_dimensions_is_refused(tmp_path):
    """NumPy has 32; safetensors any number. A querier that cheats can seal what it likes."""
    samples, read = PARSERS["sealed query's content"].make(tmp_path)
    header = {"features": {"dtype": "F32", "shape": [1] * 100, "data_offsets": [0, 4]}}
    text = json.dumps(header).encode()
    assert read(samples[0])
    with pytest.raises(DataFormatError, match="holds no queries"):
        read(len(text).to_bytes(8, "little") + text + bytes(4))


@pytest.mark.parametrize("number", [float("inf"), float("-inf"), float("nan"), 2.5, "2", None])
def test_a_number_of_a_peer_that_is_not_whole_describes_nothing(number):
    """Infinity raised OverflowError at whoever read it; 2.5 was taken for 2."""
    with pytest.raises(FederationError, match="describes no tree"):
        structure_of(["array", [], [], "d", [number]])
    for key in (
        "round",
        "call",
        "threshold",
        "degree",
        "share_threshold",
        "bits",
        "setup",
        "place",
    ):
        told = {**describe_parameters(Party(3).parameters), key: number}
        with pytest.raises(TypeError):
            parameters_of(told, bytes(32), bytes(32))


def npy(header: str) -> bytes:
    made = io.BytesIO()
    np.save(made, np.zeros((2, 2), np.float32))
    text = header.encode().ljust(117) + b"\n"
    return made.getvalue()[:8] + len(text).to_bytes(2, "little") + text + bytes(16)


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': ('<f4', 'fortran_order': False, 'shape': (2, 2), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000, 2), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-2, -2), }",
        "'''",
    ],
)
def test_a_lying_header_of_an_array_is_refused_without_its_memory(header, tmp_path):
    """NumPy raises what its tokenizer does, and asks for the memory that a header promises."""
    with pytest.raises(DataFormatError):
        array_of(npy(header), "a.npy")
    (tmp_path / "a.npy").write_bytes(npy(header))
    with pytest.raises(DataFormatError):
        read_matrix(tmp_path / "a.npy")


@pytest.mark.parametrize("order", "<>")
def test_text_of_characters_that_do_not_exist_is_refused(order):
    """Python's own strings cannot hold them; NumPy raises SystemError when they are read."""
    made = io.BytesIO()
    np.save(made, np.array(["ab"], f"{order}U2"))
    content = made.getvalue()[:-4] + b"\xff\x00\xff\x00"
    with pytest.raises(DataFormatError, match="characters that do not exist"):
        array_of(content, "a.npy")


def test_a_ledger_without_a_data_set_is_refused(tmp_path):
    lines = [json.loads(line) for line in (GOLDEN / "record.ledger").read_bytes().splitlines()]
    body = {k: v for k, v in lines[0].items() if k not in ("data_set", "previous", "digest")}
    path = tmp_path / "ledger"
    path.write_bytes(line_bytes(sealed_line(body, "")))
    with pytest.raises(LedgerError, match="holds an event that cannot be"):
        Ledger.open(path)


@pytest.mark.parametrize("change", [0.5, [], {"n_inputs": []}, "sizes"])
def test_a_network_whose_model_is_none_is_refused(tmp_path, change):
    found = unpack((GOLDEN / "run-mlp" / "model").read_bytes())
    if change == "sizes":
        listed = {k: [] if isinstance(v, list) else v for k, v in found.header["model"].items()}
        change = listed
    header = {**found.header, "kind": found.kind, "model": change}
    path = tmp_path / "model"
    path.write_bytes(enveloped(json.dumps(header).encode(), found.payload))
    with pytest.raises(DataFormatError, match="do not belong together"):
        TrainedNetwork.load(path)


@pytest.mark.parametrize(
    ("lines", "error", "match"),
    [
        (b"1 0000000000:2\n", DataFormatError, "line 1: index 0; LIBSVM counts features from 1"),
        (b"1 1:2\n1e99999999999999999999 1:2\n", LabelError, "is not a whole number"),
        (b"1 1:2\n-1e-99999999999999999999 1:2\n", LabelError, "is not a whole number"),
    ],
)
def test_numbers_of_libsvm_that_no_library_takes_are_refused(tmp_path, lines, error, match):
    """An index of zeros alone became no text, and an exponent was beyond what decimals have."""
    path = tmp_path / "a.svm"
    path.write_bytes(lines)
    with pytest.raises(error, match=match):
        read_client(path)


def test_an_archives_member_whose_name_is_not_its_encoding_is_refused(tmp_path):
    """The flag says UTF-8; zipfile reads the name again where the member begins."""
    path = tmp_path / "a.npz"
    np.savez(path, X=np.zeros((2, 1)), y=np.zeros(2, int))
    content = bytearray(path.read_bytes())
    content[6:8] = (0x800).to_bytes(2, "little")
    content[30] = 0xE0
    path.write_bytes(content)
    with pytest.raises(DataFormatError, match="not an npz archive, or damaged"):
        read_client(path)
