"""Files are hostile until parsed: whatever the bytes, a reader reads or refuses in one line."""

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secure_fl.data import Records, read_client
from secure_fl.errors import InputError


def npz_bytes() -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, X=np.ones((3, 2)), y=np.array([0, 1, 1]), classes=np.array(["p", "q"]))
    return buffer.getvalue()


VALID = {
    "a.npz": npz_bytes(),
    "a.csv": b'label,x,y\ncat,1,2\n"d,og",3,4e5\n',
    "a.libsvm": b"+1 1:0.5 3:1e2\n-1 2:7 # end\n",
}


@st.composite
def mutations(draw, valid: bytes) -> bytes:
    """A valid file with a few bytes changed, removed, repeated or inserted."""
    content = bytearray(valid)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(len(content) - 1, 0)))
        kind = draw(st.sampled_from(["set", "cut", "insert", "repeat", "truncate"]))
        if kind == "set" and content:
            content[at] = draw(st.integers(0, 255))
        elif kind == "cut":
            del content[at : at + draw(st.integers(1, 8))]
        elif kind == "insert":
            content[at:at] = draw(st.binary(min_size=1, max_size=6))
        elif kind == "repeat":
            content[at:at] = content[at : at + draw(st.integers(1, 40))]
        else:
            del content[at:]
    return bytes(content)


@pytest.mark.parametrize("name", sorted(VALID))
@settings(max_examples=300)
@given(data=st.data())
def test_a_mutated_file_is_read_or_refused_in_one_line(tmp_path_factory, name, data):
    content = data.draw(st.one_of(mutations(VALID[name]), st.binary(max_size=200)))
    path = tmp_path_factory.mktemp("hostile", numbered=True) / name
    path.write_bytes(content)
    try:
        records = read_client(path)
    except InputError as error:
        text = str(error)
        assert "\n" not in text
        assert "\r" not in text
        assert "a" in text
        assert len(text) < 600
        return
    assert isinstance(records, Records)
    assert records.X.shape[0] == len(records.labels)
    assert np.isfinite(records.X).all()
