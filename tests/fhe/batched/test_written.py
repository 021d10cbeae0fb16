"""Contributions that go to files a ciphertext at a time."""

import attrs
import numpy as np
import pytest

import fhe
from fhe.batched.contributor import write_batched
from fhe.errors import LibraryError
from fhe.long_file import write_in_parts


def test_a_contribution_written_in_parts_is_the_message_and_its_own_file(few, public, tmp_path):
    codes = np.random.default_rng(2).integers(0, 16, (5, 3, 3))
    facts = {"contributor": 1, "name": "c1", "federation": "f", "batch": "b"}
    size = write_batched(tmp_path / "written", codes[:, 1], public, **facts)
    assert size == few[1].save(tmp_path / "saved") == len(few[1].to_bytes())
    assert (tmp_path / "saved").read_bytes() == few[1].to_bytes()
    found = fhe.BatchedContribution.load(tmp_path / "written")
    assert found.header() == few[1].header()
    assert found.file() == tmp_path / "written"
    assert few[1].file() is None
    assert attrs.evolve(found, name="c2").file() is None
    assert fhe.BatchedContribution.load(tmp_path / "saved") != found, "fresh randomness"
    with pytest.raises(fhe.InputError, match="position 7"):
        write_batched(tmp_path / "none", codes[:, 1], public, **{**facts, "contributor": 7})
    with pytest.raises(LibraryError, match=r"none: \d+ bytes, expected"):
        write_in_parts(tmp_path / "none", "k", {}, [b"four"], 5)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["saved", "written"]
