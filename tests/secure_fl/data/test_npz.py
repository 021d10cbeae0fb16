import io
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from secure_fl.data import ClassList, Dataset, read_clients, read_npz, write_clients
from secure_fl.errors import ClientError, FeatureError, FormatError, InputError, LabelError
from tests.secure_fl.shared import one_line, shared_file


def save(path, **arrays):
    np.savez(path, **arrays)
    return path


def refusal(path, kind=FormatError, **options):
    with pytest.raises(kind) as caught:
        read_npz(path, **options)
    return one_line(caught.value)


def test_labels_and_features_come_back(tmp_path):
    X = np.arange(6, dtype=np.float32).reshape(3, 2)
    records = read_npz(save(tmp_path / "a.npz", X=X, y=np.array([2, 0, 2])))
    assert records.name == "a"
    assert records.labels == ("2", "0", "2")
    assert records.X.dtype == np.float32
    assert np.array_equal(records.X, X)


@pytest.mark.parametrize(
    ("stored", "read"),
    [
        (np.float16, np.float32),
        (np.uint8, np.float32),
        (np.int16, np.float32),
        (np.bool_, np.float32),
        (np.int32, np.float64),
        (np.float32, np.float32),
        (np.float64, np.float64),
        (">f8", np.float64),
    ],
)
def test_numbers_widen_without_loss(tmp_path, stored, read):
    X = np.array([[0, 1]]).astype(stored)
    records = read_npz(save(tmp_path / "a.npz", X=X, y=np.array(["x"])))
    assert records.X.dtype == read
    assert records.X.dtype.isnative
    assert records.X.tolist() == [[0, 1]]


def test_fortran_order_is_kept_right(tmp_path):
    X = np.asfortranarray(np.arange(6.0).reshape(3, 2))
    records = read_npz(save(tmp_path / "a.npz", X=X, y=np.arange(3)))
    assert np.array_equal(records.X, X)


def test_compressed_archives_are_read(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", X=np.ones((2, 2)), y=np.arange(2))
    assert len(read_npz(tmp_path / "a.npz")) == 2


def test_real_features_are_read_with_their_class_names():
    """The shape of the published data set: 7,532 test documents of 20 groups."""
    records = read_npz(shared_file("newsgroups", "minilm-test.npz"), name="all")
    assert records.X.shape == (7532, 384)
    assert records.X.dtype == np.float32
    assert len(set(records.labels)) == 20
    assert records.labels[0] == "alt.atheism"


CLASSES = ("cat", "dog", "owl")


@settings(max_examples=40)
@given(
    X=hnp.arrays(
        st.sampled_from([np.float32, np.float64]),
        st.tuples(st.integers(1, 12), st.integers(1, 5)),
        elements=st.floats(-1e6, 1e6, width=32),
    ),
    data=st.data(),
)
def test_what_is_written_is_read(tmp_path_factory, X, data):
    codes = data.draw(
        hnp.arrays(np.int64, st.just(X.shape[0]), elements=st.integers(0, len(CLASSES) - 1))
    )
    names = tuple(f"f{i}" for i in range(X.shape[1]))
    groups = tuple("ab"[code % 2] for code in codes)
    folder = tmp_path_factory.mktemp("round") / "clients"
    first = Dataset(X, codes, CLASSES, "a", features=names, groups=groups)
    second = Dataset(X[:1], (codes[:1] + 1) % 3, CLASSES, "b", features=names)
    write_clients(folder, [first, second])
    back = read_clients(folder, classes=ClassList(CLASSES))
    for known, read in zip((first, second), back, strict=True):
        assert np.array_equal(read.X, known.X)
        assert read.X.dtype == known.X.dtype
        assert np.array_equal(read.y, known.y)
        assert (read.name, read.classes, read.features) == (known.name, CLASSES, names)
        assert read.groups == known.groups


def dataset(name="a"):
    return Dataset(np.ones((2, 2)), np.array([0, 1]), ("x", "y"), name)


def test_the_same_data_give_the_same_bytes(tmp_path):
    write_clients(tmp_path / "one", [dataset()])
    write_clients(tmp_path / "two", [dataset()])
    assert (tmp_path / "one/a.npz").read_bytes() == (tmp_path / "two/a.npz").read_bytes()


def test_written_clients_are_for_their_owner_only(tmp_path):
    (path,) = write_clients(tmp_path / "clients", [dataset()])
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_folder_in_use_is_not_written_to(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError) as caught:
        write_clients(tmp_path, [dataset()])
    assert one_line(caught.value) == (
        f"{tmp_path}: exists already; choose another folder or remove it first"
    )


def test_a_failed_write_leaves_nothing(tmp_path):
    def broken():
        yield dataset()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_clients(tmp_path / "clients", broken())
    assert list(tmp_path.iterdir()) == []


def test_a_client_twice_is_not_written(tmp_path):
    with pytest.raises(ClientError) as caught:
        write_clients(tmp_path / "c", [dataset("a"), dataset("A")])
    assert one_line(caught.value) == f'client "A": twice in {tmp_path}/c; rename one of them'
    assert list(tmp_path.iterdir()) == []


def test_sparse_features_are_not_written(tmp_path):
    from scipy.sparse import csr_array

    data = Dataset(csr_array(np.ones((2, 2))), np.array([0, 1]), ("x", "y"), "a")
    with pytest.raises(FeatureError, match=r'client "a": sparse features; write X\.toarray'):
        write_clients(tmp_path / "c", [data])


def test_python_objects_are_never_loaded(tmp_path):
    path = save(tmp_path / "a.npz", X=np.ones((1, 2)), y=np.array([{"a": 1}], dtype=object))
    assert refusal(path) == (
        f"{path}: y.npy holds Python objects, which are never loaded; store numbers or text"
    )


def test_a_missing_array_is_named(tmp_path):
    path = save(tmp_path / "a.npz", X=np.ones((1, 2)), labels=np.zeros(1))
    assert refusal(path) == f"{path}: no array y (found X, labels); store X and y"


def test_an_unknown_array_is_named(tmp_path):
    path = save(tmp_path / "a.npz", X=np.ones((1, 2)), y=np.zeros(1), clases=np.array(["a"]))
    assert refusal(path) == (
        f"{path}: array 'clases'; an npz client file holds X, y, classes, features, groups,"
        " schema only"
    )


def test_a_file_that_is_no_archive_is_named(tmp_path):
    path = tmp_path / "a.npz"
    path.write_bytes(b"X,y\n1,2\n")
    assert refusal(path) == f"{path}: not an npz archive, or damaged; write it with numpy.savez"


def test_every_truncation_is_noticed(tmp_path):
    path = save(tmp_path / "a.npz", X=np.ones((4, 3)), y=np.arange(4))
    whole = path.read_bytes()
    for length in range(0, len(whole), 37):
        path.write_bytes(whole[:length])
        assert str(path) in refusal(path)


def test_a_flipped_byte_of_data_is_noticed(tmp_path):
    path = save(tmp_path / "a.npz", X=np.ones((4, 3)), y=np.arange(4))
    whole = bytearray(path.read_bytes())
    whole[whole.index(b"\xf0\x3f") + 1] ^= 1
    path.write_bytes(whole)
    assert refusal(path) == f"{path}: not an npz archive, or damaged; write it with numpy.savez"


def test_a_header_that_promises_more_than_the_file_holds_allocates_nothing(tmp_path):
    """Hostile shape: 2^60 values. Reading by the header alone would try to allocate them."""
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        buffer, {"descr": "<f8", "fortran_order": False, "shape": (2**30, 2**30)}
    )
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("X.npy", buffer.getvalue() + b"\0" * 64)
        archive.writestr("y.npy", b"")
    assert refusal(path) == f"{path}: X.npy is truncated or its header is wrong"


def test_an_archive_that_unpacks_to_more_than_the_cap_is_refused(tmp_path):
    path = tmp_path / "a.npz"
    np.savez_compressed(path, X=np.zeros((1000, 100)), y=np.zeros(1000, np.int64))
    assert path.stat().st_size < 10_000
    assert refusal(path, max_bytes=500_000) == (
        f"{path}: 808,256 bytes unpacked, the cap is 500,000; split the file or raise max_bytes"
    )


def test_an_absent_file_is_named(tmp_path):
    path = tmp_path / "a.npz"
    assert refusal(path) == f"{path}: no such file; check the path"


@pytest.mark.parametrize(("bad", "shown"), [(np.nan, "nan"), (np.inf, "inf"), (-np.inf, "-inf")])
def test_a_value_that_is_not_finite_is_refused_with_its_row(tmp_path, bad, shown):
    X = np.ones((14, 4))
    X[12, 3] = bad
    path = save(tmp_path / "b.npz", X=X, y=np.zeros(14, int))
    assert refusal(path, FeatureError) == (
        f'client "b": feature 3 in row 12 of {path} is {shown}; fill it in or remove the record'
    )


@pytest.mark.parametrize(
    ("arrays", "kind", "message"),
    [
        (
            {"X": np.ones(3), "y": np.zeros(3)},
            FeatureError,
            'client "b": X in {path} has shape (3,); give one row a record and at least one'
            " feature",
        ),
        (
            {"X": np.ones((3, 0)), "y": np.zeros(3)},
            FeatureError,
            'client "b": X in {path} has shape (3, 0); give one row a record and at least one'
            " feature",
        ),
        (
            {"X": np.ones((3, 2), complex), "y": np.zeros(3)},
            FeatureError,
            'client "b": X in {path} is of type complex128; store real numbers (float32)',
        ),
        (
            {"X": np.ones((3, 2)), "y": np.zeros(2)},
            FeatureError,
            'client "b": 3 records and 2 labels in {path}; give each record one label',
        ),
        (
            {"X": np.ones((3, 2)), "y": np.zeros((3, 1))},
            LabelError,
            'client "b": y in {path} has shape (3, 1); give one label a row',
        ),
        (
            {"X": np.ones((2, 2)), "y": np.array([0, 2]), "classes": np.array(["p", "q"])},
            LabelError,
            'client "b": code 2 in row 1 of {path}, classes has 2 entries; store codes from 0',
        ),
        (
            {"X": np.ones((1, 2)), "y": np.array([0.0]), "classes": np.array(["p", "q"])},
            LabelError,
            'client "b": y is of type float64 beside classes in {path}; store codes',
        ),
        (
            {"X": np.ones((1, 2)), "y": np.array([0]), "features": np.array(["p"])},
            FormatError,
            "{path}: features is <U1 of shape (1,); store 2 names",
        ),
        (
            {"X": np.ones((1, 2)), "y": np.array([0]), "features": np.array(["p", "p"])},
            FormatError,
            "{path}: features holds a name twice; name each column once",
        ),
    ],
)
def test_arrays_that_do_not_fit_are_refused(tmp_path, arrays, kind, message):
    path = save(tmp_path / "b.npz", **arrays)
    assert refusal(path, kind) == message.format(path=path)


@pytest.mark.parametrize("name", ["..", "a b", ".a", "a/b", "x" * 65, "-a", "é"])
def test_a_name_that_cannot_be_a_folder_is_refused(tmp_path, name):
    path = save(tmp_path / "b.npz", X=np.ones((1, 2)), y=np.zeros(1))
    assert refusal(path, ClientError, name=name) == (
        f"{path}: {name!r} cannot be a client's name; use up to 64 letters, digits, '.', '_' or"
        " '-', a letter or digit first"
    )


def archive(path, **members):
    with zipfile.ZipFile(path, "w") as file:
        for name, content in members.items():
            file.writestr(f"{name}.npy", content)
    return path


def array(values, version=None):
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.asarray(values), version=version)
    return buffer.getvalue()


def test_both_header_versions_that_numpy_writes_for_numbers_are_read(tmp_path):
    for version in ((1, 0), (2, 0)):
        path = archive(tmp_path / "a.npz", X=array([[1.0]], version), y=array([3], version))
        assert read_npz(path).X.tolist() == [[1]]


@pytest.mark.parametrize(
    "content", [b"", b"not an array", b"\x93NUMPY\x09\x00" + bytes(100), array([1])[:-20] + b"{"]
)
def test_a_member_that_is_no_array_is_refused(tmp_path, content):
    path = archive(tmp_path / "a.npz", X=array([[1.0]]), y=content)
    assert refusal(path).startswith(f"{path}: y.npy is ")


def test_values_of_size_zero_are_refused(tmp_path):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<U0", "fortran_order": False, "shape": (2**62,)}
    )
    path = archive(tmp_path / "a.npz", X=array([[1.0]]), y=header.getvalue())
    assert refusal(path) == f"{path}: y.npy holds values of size 0; store numbers or text"


def test_an_array_twice_is_refused(tmp_path):
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w") as file:
        for name in ("X.npy", "y.npy"):
            file.writestr(name, array([[1.0]]))
        with pytest.warns(UserWarning, match="Duplicate name"):
            file.writestr("y.npy", array([[1.0]]))
    assert refusal(path) == (
        f"{path}: an array twice; an npz client file holds X, y, classes, features, groups,"
        " schema only"
    )


def test_an_encrypted_archive_is_refused(tmp_path):
    path = archive(tmp_path / "a.npz", X=array([[1.0]]), y=array([0]))
    content = bytearray(path.read_bytes())
    # Bit 0 of the general purpose flags, in every central directory entry.
    at = content.find(b"PK\x01\x02")
    while at >= 0:
        content[at + 8] |= 1
        at = content.find(b"PK\x01\x02", at + 1)
    path.write_bytes(content)
    assert refusal(path) == f"{path}: encrypted archive; write it with numpy.savez"


# ------------------------------------------------------------- what the other type does not hold


@settings(max_examples=60)
@given(
    X=hnp.arrays(
        st.sampled_from([np.int64, np.uint64, np.int32, np.uint32, np.int16]),
        st.tuples(st.integers(1, 4), st.integers(1, 3)),
    )
)
def test_integers_are_exact_or_refused(tmp_path_factory, X):
    path = save(tmp_path_factory.mktemp("npz") / "b.npz", X=X, y=np.arange(len(X)))
    exact = all(int(float(value)) == value for value in X.ravel().tolist())
    if exact:
        assert [int(value) for value in read_npz(path).X.ravel()] == X.ravel().tolist()
    else:
        assert "a whole number that float64 does not hold exactly" in refusal(path, FeatureError)


def test_a_rounded_integer_is_refused_with_its_place(tmp_path):
    X = np.array([[1, 2], [3, 2**53 + 1]], np.uint64)
    path = save(tmp_path / "b.npz", X=X, y=np.arange(2))
    assert refusal(path, FeatureError) == (
        f'client "b": feature 1 in row 1 of {path} is 9007199254740993, a whole number that float64'
        " does not hold exactly; leave the column out if it names something, or round it"
    )
    path = save(tmp_path / "c.npz", X=np.ones((2, 2), np.longdouble), y=np.arange(2))
    assert "store real numbers (float32)" in refusal(path, FeatureError)


def test_large_integer_labels_come_back_as_they_are(tmp_path):
    y = np.array([2**63 - 1, 2**63 - 2, -(2**63)], np.int64)
    assert read_npz(save(tmp_path / "a.npz", X=np.ones((3, 1)), y=y)).labels == tuple(map(str, y))
    y = np.array([2**24, 2**24 + 2], np.float32)
    path = save(tmp_path / "b.npz", X=np.ones((2, 1)), y=y)
    assert "up to which float32 holds every whole number" in refusal(path, LabelError)


@pytest.mark.parametrize(
    ("arrays", "kind", "message"),
    [
        ({"y": np.array(["x\0y"])}, LabelError, "label 'x\\x00y' in row 0 of"),
        ({"y": [0], "groups": np.array(["x\0y"])}, FormatError, "groups holds a name with a NUL"),
        ({"y": [0], "features": np.array(["x\0y"])}, FormatError, "features holds a name with a"),
        (
            {"y": [0], "classes": np.array(["a", " a"])},
            LabelError,
            'classes holds "a" twice; name each class once',
        ),
        ({"y": [0], "classes": np.array([["a"]])}, LabelError, "classes has shape (1, 1)"),
    ],
)
def test_names_that_would_become_one_are_refused(tmp_path, arrays, kind, message):
    path = save(tmp_path / "b.npz", X=np.ones((1, 1)), **arrays)
    assert message in refusal(path, kind)


@pytest.mark.parametrize("what", ["classes", "features", "groups"])
def test_a_name_that_a_file_would_shorten_is_not_written(tmp_path, what):
    names = {"classes": ("x", "x\0"), "features": ("x", "x\0"), "groups": ("x", "x\0")}
    given_names = {"classes": ("p", "q"), what: names[what]}
    data = Dataset(np.ones((2, 2)), np.array([0, 1]), name="a", **given_names)
    with pytest.raises(FormatError) as caught:
        write_clients(tmp_path / "c", [data])
    assert one_line(caught.value) == (
        f"memory: {what} holds 'x\\x00'; leave out the NUL at its end"
    )
    assert list(tmp_path.iterdir()) == []
