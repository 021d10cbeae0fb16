import bz2
import gzip
import lzma
from pathlib import Path

import numpy as np
import pytest

from secure_fl.data import (
    ClassList,
    Columns,
    Dataset,
    ReadOptions,
    assemble,
    client_files,
    read_client,
    read_clients,
    read_libsvm,
    read_npz,
    read_records,
    write_clients,
)
from secure_fl.errors import ClientError, FeatureError, FormatError, InputError, LabelError
from tests.secure_fl.shared import one_line, shared_file


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "clients"
    path.mkdir()
    return path


def npz(folder, name, X, y):
    np.savez(folder / f"{name}.npz", X=np.asarray(X, np.float32), y=np.asarray(y))


def refusal(kind, function, *arguments, **options):
    with pytest.raises(kind) as caught:
        function(*arguments, **options)
    assert isinstance(caught.value, InputError)
    return one_line(caught.value)


def test_every_format_in_one_folder_under_one_class_list(folder):
    npz(folder, "a", [[1, 2]], [3])
    (folder / "b.csv").write_text("label,x,y\n4,1,2\n3.0,0,0\n")
    (folder / "c.libsvm").write_text("+3 2:5\n")
    (folder / "d.svm.bz2").write_bytes(bz2.compress(b"5 1:5\n"))
    (folder / ".notes").write_text("hidden files are skipped")
    seen = []
    clients = read_clients(
        folder, classes=ClassList(("3", "4", "5")), progress=lambda *s: seen.append(s)
    )
    assert [client.name for client in clients] == ["a", "b", "c", "d"]
    assert [client.y.tolist() for client in clients] == [[0], [1, 0], [0], [2]]
    assert clients[2].X.tolist() == [[0, 5]]
    assert clients[3].X.tolist() == [[5, 0]]
    assert all(client.classes == ("3", "4", "5") for client in clients)
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_classes_are_the_sorted_union_when_none_are_given(folder):
    npz(folder, "a", [[1.0]], ["owl"])
    npz(folder, "b", [[1.0], [2.0]], ["cat", "owl"])
    a, b = read_clients(folder)
    assert a.classes == b.classes == ("cat", "owl")
    assert a.counts().tolist() == [0, 1]
    assert b.counts().tolist() == [1, 1]


def test_columns_in_another_order_are_brought_into_the_federations(folder):
    (folder / "a.csv").write_text("label,height,width\n0,1,2\n")
    (folder / "b.csv").write_text("width,label,height\n2,1,1\n")
    a, b = read_clients(folder)
    assert a.X.tolist() == b.X.tolist() == [[1, 2]]
    assert b.features == ("height", "width")


def test_another_feature_name_is_refused(folder):
    (folder / "a.csv").write_text("label,height,width\n0,1,2\n")
    (folder / "b.csv").write_text("label,height,weight\n1,1,2\n")
    assert refusal(FeatureError, read_clients, folder) == (
        f'client "b": no feature "width" in {folder}/b.csv (it has "weight"), the federation has it'
        f' (client "a", {folder}/a.csv); name the columns alike'
    )
    message = refusal(FeatureError, read_clients, folder, features=("height", "age"))
    assert message == (
        f'client "a": no feature "age" in {folder}/a.csv (it has "width"), the federation has it'
        " (federation.json); name the columns alike"
    )


def test_another_feature_count_names_client_file_both_counts_and_the_manifest(folder):
    npz(folder, "b", np.ones((2, 63)), [0, 1])
    assert refusal(FeatureError, read_clients, folder, n_features=64) == (
        f'client "b": 63 features in {folder}/b.npz, the federation has 64 (federation.json);'
        " re-encode the file with the federation's encoder"
    )


def test_another_feature_count_than_the_first_client_is_refused(folder):
    npz(folder, "a", np.ones((2, 64)), [0, 1])
    npz(folder, "b", np.ones((2, 63)), [0, 1])
    assert refusal(FeatureError, read_clients, folder) == (
        f'client "b": 63 features in {folder}/b.npz, the federation has 64 (client "a",'
        f" {folder}/a.npz); re-encode the file with the federation's encoder"
    )


@pytest.mark.parametrize("sparse", [False, True])
def test_libsvm_clients_are_widened_to_the_widest(folder, sparse):
    """A LIBSVM file does not say how many features its data set has."""
    (folder / "a.libsvm").write_text("1 1:1\n")
    (folder / "b.libsvm").write_text("2 3:1\n")
    a, b = read_clients(folder, ReadOptions(sparse=sparse))
    assert (a.n_features, b.n_features) == (3, 3)
    first = a.X.toarray() if sparse else a.X
    assert first.tolist() == [[1, 0, 0]]


def test_a_libsvm_index_over_the_federations_features_is_refused_with_its_line(folder):
    (folder / "a.libsvm").write_text("1 1:1\n2 4:1\n")
    assert refusal(FormatError, read_clients, folder, n_features=3) == (
        f"{folder}/a.libsvm: line 2: index 4, the data set has 3 features; correct the line or the"
        " number of features"
    )


def test_an_unknown_label_is_refused(folder):
    npz(folder, "a", [[1], [2]], ["x", "z"])
    assert refusal(LabelError, read_clients, folder, classes=ClassList(("x", "y"))) == (
        f'client "a": label "z" in row 1 of {folder}/a.npz is none of the federation\'s 2 classes'
        " (x, y); correct the label or make the class list anew"
    )


def test_an_empty_client_is_refused(folder):
    npz(folder, "a", [[1], [2]], [0, 1])
    (folder / "b.csv").write_text("label,x\n")
    assert refusal(ClientError, read_clients, folder) == (
        f'client "b": no records in {folder}/b.csv; add some or remove the file'
    )
    (folder / "b.csv").unlink()
    npz(folder, "c", np.empty((0, 1)), np.empty(0, int))
    assert refusal(ClientError, read_clients, folder) == (
        f'client "c": no records in {folder}/c.npz; add some or remove the file'
    )


def test_one_client_may_hold_one_class_but_not_the_whole_federation(folder):
    npz(folder, "a", [[1], [2]], ["x", "x"])
    assert refusal(LabelError, read_clients, folder) == (
        f'all 2 records of the federation ({folder}/a.npz) have the class "x"; a classifier needs'
        " at least two classes"
    )
    # A client trains alone, under the federation's class list.
    (client,) = read_clients(folder, classes=ClassList(("x", "y")))
    assert client.counts().tolist() == [2, 0]


def test_two_files_of_one_client_are_refused(folder):
    npz(folder, "a", [[1], [2]], [0, 1])
    (folder / "a.csv").write_text("label,x\n1,2\n")
    assert refusal(ClientError, client_files, folder) == (
        f'client "a": named by both {folder}/a.csv and {folder}/a.npz; rename one of the files'
    )


def test_names_that_differ_in_case_only_are_refused(folder):
    """On a file system that ignores case they would be one folder."""
    npz(folder, "a", [[1], [2]], [0, 1])
    (folder / "A.csv").write_text("label,x\n1,2\n")
    assert "named by both" in refusal(ClientError, client_files, folder)


def test_records_assembled_by_hand_need_distinct_names(folder):
    npz(folder, "a", [[1], [2]], [0, 1])
    records = read_npz(folder / "a.npz")
    again = read_npz(folder / "a.npz")
    assert refusal(ClientError, assemble, [records, again]) == (
        f'client "a": named by both {folder}/a.npz and {folder}/a.npz; rename one of the files'
    )
    assert refusal(ClientError, assemble, []) == "no clients; give at least one client file"


@pytest.mark.parametrize("name", ["notes.md", "a.npz.gz", "a.txt", "federation.json"])
def test_what_is_not_a_client_file_is_refused_not_skipped(folder, name):
    """A skipped file would silently be a client left out."""
    (folder / name).write_text("x")
    assert refusal(FormatError, client_files, folder) == (
        f"{folder}/{name}: not a client file; use .npz, .csv, .tsv, .libsvm, .svm, .svmlight (text"
        " also .bz2, .gz, .xz) or LIBSVM text with another ending; or move it elsewhere"
    )
    assert refusal(FormatError, read_client, folder / name) == (
        f"{folder}/{name}: not a client file; use .npz, .csv, .tsv, .libsvm, .svm, .svmlight (text"
        " also .bz2, .gz, .xz) or LIBSVM text with another ending"
    )


def test_a_folder_inside_is_refused(folder):
    (folder / "a.npz").mkdir()
    assert "not a client file" in refusal(FormatError, client_files, folder)


def test_an_absent_or_empty_folder_is_refused(folder):
    assert refusal(ClientError, client_files, folder) == (
        f"{folder}: no client files; put one file a client there"
    )
    assert refusal(ClientError, client_files, folder / "no") == (
        f"{folder}/no: no such folder; name the folder with one file a client"
    )


def test_one_clients_file_is_a_source_too(folder):
    npz(folder, "a", [[1], [2]], [0, 1])
    npz(folder, "b", [[1], [2]], [0, 1])
    assert client_files(folder / "a.npz") == {"a": folder / "a.npz"}


def test_a_client_file_name_that_cannot_be_a_name_is_refused(folder):
    npz(folder, "client one", [[1], [2]], [0, 1])
    assert "'client one' cannot be a client's name" in refusal(ClientError, client_files, folder)


def test_texts_must_be_encoded_first(folder):
    (folder / "a.csv").write_text("label,body\nx,hello\ny,world\n")
    options = ReadOptions(Columns(text="body"))
    assert refusal(FeatureError, read_clients, folder, options) == (
        f'client "a": {folder}/a.csv holds texts, not features; embed it first (securefl data'
        " embed)"
    )


def test_a_real_libsvm_file_becomes_a_data_set():
    """The published size of dna: 2,000 records of 180 features, 3 classes."""
    (data,) = assemble([read_libsvm(shared_file("libsvm", "dna.bz2"), 180)])
    assert data.X.shape == (2000, 180)
    assert data.classes == ("1", "2", "3")
    assert data.counts().sum() == 2000


def test_real_documents_divided_written_and_read_are_the_same(tmp_path):
    from secure_fl.data import dirichlet

    path = shared_file("newsgroups", "minilm-test.npz")
    (pool,) = assemble([read_npz(path, name="pool")])
    parts = dirichlet(pool.y, 20, 0.1, np.random.default_rng(0))
    named = [pool.select(part, f"client-{i:02d}") for i, part in enumerate(parts)]
    write_clients(tmp_path / "clients", named)
    back = read_clients(tmp_path / "clients", classes=ClassList(pool.classes))
    assert sum(map(len, back)) == 7532
    for known, read in zip(named, back, strict=True):
        assert np.array_equal(known.X, read.X)
        assert np.array_equal(known.y, read.y)


def test_a_data_set_checks_its_shapes():
    X, y = np.ones((2, 3)), np.array([0, 1])
    for arguments in (
        (X, y, ("a",), "c"),
        (X, y[:1], ("a", "b"), "c"),
        (X.astype(int), y, ("a", "b"), "c"),
        (X[0], y, ("a", "b"), "c"),
        (X, y.astype(np.int32), ("a", "b"), "c"),
        (X, y, ("a", "b"), "c", "memory", ("f",)),
        (X, y, ("a", "b"), "c", "memory", None, ("g",)),
    ):
        with pytest.raises(ValueError, match=r".") as caught:
            Dataset(*arguments)
        assert not isinstance(caught.value, InputError)


def test_selecting_records_takes_their_groups_along():
    data = Dataset(
        np.arange(6.0).reshape(3, 2), np.array([0, 1, 0]), ("a", "b"), "c", groups=("n", "s", "e")
    )
    part = data.select(np.array([2, 0]), "d")
    assert (part.name, part.groups, part.y.tolist()) == ("d", ("e", "n"), [0, 0])
    assert part.X.tolist() == [[4, 5], [0, 1]]


# ------------------------------------------------------------------------------- names of files


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("w7a", "w7a"),
        ("w7a.bz2", "w7a"),
        ("letter.scale.t.bz2", "letter.scale.t"),
        ("letter.scale", "letter.scale"),
        ("a1a.t", "a1a.t"),
        ("german.numer_scale.txt", "german.numer_scale.txt"),
        ("A9A.T.BZ2", "A9A.T"),
        ("a.SVM", "a"),
        ("my.data.libsvm.GZ", "my.data"),
        ("HIGGS.xz", "HIGGS"),
    ],
)
def test_usual_names_of_libsvm_files_are_clients_without_renaming(folder, file, name):
    packs = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}
    pack = packs.get(Path(file).suffix.lower(), bytes)
    (folder / file).write_bytes(pack(b"# by hand\n\n+1 1:0.5 2:1\n-1\n"))
    assert client_files(folder) == {name: folder / file}
    assert client_files(folder / file) == {name: folder / file}
    assert read_client(folder / file).name == name
    assert read_client(folder / file).labels == ("1", "-1")


def test_a_set_and_its_test_set_are_two_clients(folder):
    for file in ("letter.scale", "letter.scale.t"):
        (folder / file).write_text("1 1:1\n2 1:2\n")
    assert [client.name for client in read_clients(folder)] == ["letter.scale", "letter.scale.t"]


@pytest.mark.parametrize("file", ["w8a.t.bz2", "dna.bz2", "a1a.bz2"])
def test_real_files_are_read_under_the_names_they_come_with(file):
    path = shared_file("libsvm", file)
    assert read_client(path).name == file.removesuffix(".bz2")


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("my file (2).csv", b"label,x\na,1\n"),
        ("..csv", b"label,x\na,1\n"),
        ("-q.SVM", b"1 1:1\n"),
        ("q" * 100 + ".csv", b"label,x\na,1\n"),
        ("test set", b"1 1:1\n"),
    ],
)
def test_where_no_client_is_meant_any_name_will_do(folder, file, content):
    path = folder / file
    path.write_bytes(content)
    assert read_records(path).X.tolist() == [[1]]
    with pytest.raises(ClientError, match="cannot be a client's name"):
        read_client(path)
    npz(folder, "my file", [[1]], [0])
    assert read_records(folder / "my file.npz").name == ""


def test_an_error_without_a_client_speaks_of_records(folder):
    path = folder / "my file.csv"
    path.write_text("label,x\na,\n")
    assert refusal(FeatureError, read_records, path) == (
        f'records: feature "x" in line 2 of {path} is empty, not a number; correct it, or ignore'
        " the column (--ignore-column x)"
    )


def test_a_damaged_file_without_a_known_ending_is_named(folder):
    (folder / "w7a.bz2").write_bytes(bz2.compress(b"1 1:1\n" * 50)[:20])
    assert "damaged or truncated archive" in refusal(FormatError, client_files, folder)


@pytest.mark.parametrize("name", ["a.NPZ.GZ", "a.npz.bz2", "a.npz.xz"])
def test_an_npz_packed_again_is_refused_in_any_case(folder, name):
    (folder / name).write_bytes(b"x")
    assert "not a client file" in refusal(FormatError, client_files, folder)
    assert "not a client file" in refusal(FormatError, read_client, folder / name)


def test_an_npz_ending_counts_in_any_case(folder):
    npz(folder, "a", [[1]], [0])
    (folder / "a.npz").rename(folder / "A.NPZ")
    assert read_client(folder / "A.NPZ").name == "A"


# ---------------------------------------------------------------------------- columns to ignore


def test_a_column_to_ignore_need_not_be_in_every_file(folder):
    (folder / "a.csv").write_text("label,id,x\na,p1,1\n")
    (folder / "b.csv").write_text("label,x\nb,2\n")
    npz(folder, "c", [[3.0]], ["a"])
    options = ReadOptions(Columns(ignore=("id",)))
    assert [client.X.tolist() for client in read_clients(folder, options)] == [[[1]], [[2]], [[3]]]


def test_a_column_to_ignore_that_no_file_has_is_refused(folder):
    (folder / "a.csv").write_text("label,id,x\na,1,1\n")
    (folder / "b.csv").write_text("label,id,x\nb,2,2\n")
    assert refusal(FormatError, read_clients, folder, ReadOptions(Columns(ignore=("idd",)))) == (
        f'{folder}/a.csv: no column "idd" to ignore, nor in any other of 2 csv files; correct or'
        " leave out --ignore-column idd"
    )
