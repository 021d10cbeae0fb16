"""Copies of forgotten records are found where they lie, and told rather than touched."""

from pathlib import Path

import numpy as np
import pytest

from secure_fl.data import ReadOptions
from secure_fl.heads.head import head_path
from secure_fl.heads.index import load_index
from secure_fl.heads.searching import search
from tests.secure_fl.heads.living import CLIENT, manifest, train

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "v4"
SCALE = 0.3


@pytest.fixture
def lived(tmp_path):
    """A head of float32 records under a scale that rounds, its index, and the records."""
    facts = manifest(scale=SCALE)
    X = np.random.default_rng(0).normal(size=(12, 3)).astype(np.float32)
    run = train(tmp_path / "run", facts, X * np.float32(SCALE), np.arange(12) % 3)
    return tmp_path, facts, X, run


def found(lived, *places, rows=(2, 7)):
    _, facts, _, run = lived
    index = load_index(run, CLIENT, facts)
    own = head_path(run, CLIENT).parent
    return search(places, index.digests[list(rows)], index.key, facts, own, ReadOptions())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_copy_in_a_client_file_of_either_type_is_found_by_row(lived, dtype):
    folder, _, X, _ = lived
    order = np.arange(12)[::-1]
    np.savez(folder / "copy.npz", X=X[order].astype(dtype), y=np.arange(12) % 3)
    before = (folder / "copy.npz").read_bytes()
    (copy,) = found(lived, folder / "copy.npz")
    assert (copy.what, copy.records, copy.rows, copy.removed) == ("client file", 2, (4, 9), False)
    assert (folder / "copy.npz").read_bytes() == before


def test_a_copy_in_text_of_a_folder_below_is_found(lived):
    folder, _, X, _ = lived
    (folder / "a" / "b").mkdir(parents=True)
    rows = [f"{i % 3}," + ",".join(map(repr, row.tolist())) for i, row in enumerate(X)]
    (folder / "a" / "b" / "old.csv").write_text("label,u,v,w\n" + "\n".join(rows) + "\n")
    text = [
        f"{i % 3} " + " ".join(f"{j + 1}:{value!r}" for j, value in enumerate(row.tolist()))
        for i, row in enumerate(X)
    ]
    (folder / "a" / "plain").write_text("\n".join(text) + "\n")
    copies = found(lived, folder / "a")
    assert [(Path(each.path).name, each.rows) for each in copies] == [
        ("old.csv", (2, 7)),
        ("plain", (2, 7)),
    ]


def test_the_head_of_another_run_is_told(lived):
    folder, facts, X, _ = lived
    other = train(folder / "other", facts, X[:8] * np.float32(SCALE), np.arange(8) % 3)
    (copy,) = (each for each in found(lived, other) if each.what == "head")
    assert copy.records == 2
    assert "forget them in its run too" in copy.remark


def test_a_model_by_rounds_is_told_with_what_is_promised_of_it(lived):
    places = [GOLDEN / "run-noisy", GOLDEN / "run-fedavg"]
    remarks = {Path(each.path).parent.name: each.remark for each in found(lived, *places)}
    assert "epsilon" in remarks["run-noisy"]
    assert "no guarantee" in remarks["run-fedavg"]


def test_files_that_cannot_be_read_are_told_and_places_that_are_gone_are_passed(lived):
    folder = lived[0]
    (folder / "broken.npz").write_bytes(b"PK")
    (broken,) = found(lived, folder / "broken.npz", folder / "nowhere")
    assert broken.remark.startswith("could not be read")


def test_files_without_the_records_are_not_told(lived):
    folder, _, X, _ = lived
    np.savez(folder / "others.npz", X=X + 1, y=np.arange(12) % 3)
    assert found(lived, folder / "others.npz") == ()
