import bz2
import gzip
import io
import lzma

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

from secure_fl.data import read_libsvm
from secure_fl.errors import FeatureError, FormatError, LabelError
from tests.secure_fl.shared import one_line, shared_file


def write(path, text):
    path.write_bytes(text.encode("utf-8"))
    return path


def test_lines_become_records(tmp_path):
    path = write(
        tmp_path / "a.libsvm", "# made by hand\n+1 1:0.5 3:-2e1 # remark\n\n-1.0\t2:.25  \n1\n"
    )
    records = read_libsvm(path)
    assert records.name == "a"
    assert records.labels == ("1", "-1", "1")
    assert records.X.tolist() == [[0.5, 0, -20], [0, 0.25, 0], [0, 0, 0]]
    assert records.lines.tolist() == [2, 4, 5]
    assert records.open_width


def test_a_named_width_adds_empty_features_and_sparse_agrees_with_dense(tmp_path):
    path = write(tmp_path / "a.libsvm", "1 2:3\n0 1:1 2:0\n")
    dense = read_libsvm(path, 4)
    sparse = read_libsvm(path, 4, sparse=True)
    assert dense.X.shape == (2, 4)
    assert not dense.open_width
    assert isinstance(sparse.X, csr_array)
    assert np.array_equal(sparse.X.toarray(), dense.X)
    assert sparse.X.sum() == 4


@pytest.mark.parametrize(
    ("suffix", "pack"), [(".bz2", bz2.compress), (".gz", gzip.compress), (".xz", lzma.compress)]
)
def test_compressed_files_are_read(tmp_path, suffix, pack):
    path = tmp_path / f"a.libsvm{suffix}"
    path.write_bytes(pack(b"1 1:2\r\n2 1:3\r\n"))
    assert read_libsvm(path).X.tolist() == [[2], [3]]


@pytest.mark.parametrize(
    ("file", "rows", "features"),
    [
        ("a1a.bz2", 1605, 123),
        ("vehicle.bz2", 846, 18),
        ("dna.t.bz2", 1186, 180),
        ("w8a.t.bz2", 14951, 300),
    ],
)
def test_real_files_agree_with_scikit_learns_reader(file, rows, features):
    path = shared_file("libsvm", file)
    records = read_libsvm(path, features, sparse=True)
    X, y = load_svmlight_file(str(path), n_features=features)
    assert records.X.shape == (rows, features)
    assert abs(records.X - X).max() == 0
    assert [float(label) for label in records.labels] == y.tolist()


@settings(max_examples=60)
@given(st.data())
def test_whatever_scikit_learn_writes_is_read(tmp_path_factory, data):
    n, d = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 5))
    values = st.one_of(st.just(0.0), st.floats(-1e9, 1e9))
    X = np.array(
        data.draw(st.lists(st.lists(values, min_size=d, max_size=d), min_size=n, max_size=n))
    )
    y = np.array(data.draw(st.lists(st.integers(-5, 5), min_size=n, max_size=n)))
    buffer = io.BytesIO()
    dump_svmlight_file(X, y, buffer, zero_based=False, comment="made by a test")
    path = tmp_path_factory.mktemp("svm") / "a.libsvm"
    path.write_bytes(buffer.getvalue())
    records = read_libsvm(path, d)
    # It writes 16 significant digits.
    assert np.allclose(records.X, X, rtol=1e-15, atol=0)
    assert records.labels == tuple(map(str, y))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 1:2\n1 0:1 2:1\n", "{path}: line 2: index 0; LIBSVM counts features from 1"),
        ("1 1:2\n1 3:1 2:1\n", "{path}: line 2: index 2 after 3; sort each line's indices"),
        ("1 1:2\n1 2:1 2:1\n", "{path}: line 2: index 2 twice; give each feature once"),
        (
            "1 1:2 3:1\n\n2 5:1\n",
            "{path}: line 3: index 5, the data set has 4 features; correct the"
            " line or the number of features",
        ),
        ("1 1:x\n", '{path}: line 1: value "x" is not a number; correct it'),
        ("1 1:0x1p3\n", '{path}: line 1: value "0x1p3" is not a number; correct it'),
        ("1 1:1_0\n", '{path}: line 1: value "1_0" is not a number; correct it'),
        ("1 1:\n", '{path}: line 1: "1:" is not index:value; correct it'),
        ("1 1:2:3\n", '{path}: line 1: "1:2:3" is not index:value; correct it'),
        ("1 2\n", '{path}: line 1: "2" is not index:value; correct it'),
        ("1 -1:2\n", '{path}: line 1: index "-1" is not a whole number from 1; correct it'),
        ("1 1.5:2\n", '{path}: line 1: index "1.5" is not a whole number from 1; correct it'),
        ("1 qid:3 1:2\n", '{path}: line 1: index "qid" is not a whole number from 1; correct it'),
        ("1:2 2:3\n", '{path}: line 1 starts with "1:2"; a label comes first'),
        ("1,3 1:2\n", '{path}: line 1: label "1,3" is not a number; LIBSVM labels are numbers'),
        ("1 1:1\nx 1:2\n", '{path}: line 2: label "x" is not a number; LIBSVM labels are numbers'),
        ("1 1:1\n1 1234567890:2\n", "{path}: line 2: index 1234567890 is over 999999999"),
    ],
)
def test_a_line_that_breaks_the_format_is_named(tmp_path, text, message):
    path = write(tmp_path / "b.libsvm", text)
    with pytest.raises(FormatError) as caught:
        read_libsvm(path, 4)
    assert one_line(caught.value) == message.format(path=path)


def test_the_line_of_a_fault_is_right_after_records_without_features(tmp_path):
    path = write(tmp_path / "b.libsvm", "1\n1\n1 1:1\n1\n1 2:1 2:1\n")
    with pytest.raises(FormatError, match="line 5: index 2 twice"):
        read_libsvm(path)
    path = write(tmp_path / "c.libsvm", "1\n1 0:1\n1\n")
    with pytest.raises(FormatError, match="line 2: index 0"):
        read_libsvm(path)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("value", ["nan", "inf", "-Infinity", "1e400"])
def test_a_value_that_is_not_finite_is_refused(tmp_path, sparse, value):
    path = write(tmp_path / "b.libsvm", f"1 1:1\n2 1:1 3:{value}\n")
    with pytest.raises(FeatureError) as caught:
        read_libsvm(path, sparse=sparse)
    assert one_line(caught.value) == (
        f'client "b": feature 2 in line 2 of {path} is {float(value)}; fill it in or remove the'
        " record"
    )


def test_a_label_that_is_not_whole_is_refused(tmp_path):
    path = write(tmp_path / "b.libsvm", "0.5 1:1\n")
    with pytest.raises(LabelError) as caught:
        read_libsvm(path)
    assert one_line(caught.value) == (
        f'client "b": label 0.5 in line 1 of {path} is not a whole number; a class label is a whole'
        " number or text"
    )


def test_no_features_at_all_are_refused_unless_their_number_is_named(tmp_path):
    path = write(tmp_path / "b.libsvm", "1\n2\n")
    assert read_libsvm(path, 3).X.tolist() == [[0, 0, 0], [0, 0, 0]]
    with pytest.raises(FormatError) as caught:
        read_libsvm(path)
    assert one_line(caught.value) == f"{path}: no features in 2 lines; name their number"


def test_a_dense_matrix_over_the_cap_is_refused_before_it_is_made(tmp_path):
    """A line of 20 bytes may ask for gigabytes."""
    path = write(tmp_path / "b.libsvm", "1 999999999:1\n2 1:1\n")
    with pytest.raises(FormatError) as caught:
        read_libsvm(path)
    assert one_line(caught.value) == (
        f"{path}: 2 records of 999999999 features are over 4,294,967,296 bytes; read with"
        " sparse=True"
    )
    assert read_libsvm(path, sparse=True).X.nnz == 2


# ------------------------------------------------------------------ what float64 does not hold


@given(st.lists(st.integers(-(10**60), 10**60), min_size=1, max_size=8))
def test_every_whole_label_is_exact_whatever_its_size(tmp_path_factory, labels):
    path = tmp_path_factory.mktemp("svm") / "a.libsvm"
    path.write_text("".join(f"{label:+d} 1:1\n" for label in labels))
    assert read_libsvm(path).labels == tuple(map(str, labels))


def test_neighbours_beyond_2_to_the_53_are_two_classes(tmp_path):
    path = write(
        tmp_path / "a.libsvm", "9007199254740993 1:1\n9007199254740992 1:1\n1e3 1:2\n-0.0 1:3\n"
    )
    assert read_libsvm(path).labels == ("9007199254740993", "9007199254740992", "1000", "0")


@pytest.mark.parametrize("label", ["9007199254740992.5", "1e-400", "nan", "-inf"])
def test_a_label_that_float64_would_make_whole_is_refused(tmp_path, label):
    path = write(tmp_path / "b.libsvm", f"1 1:1\n{label} 1:1\n")
    with pytest.raises(LabelError, match=f"label {label} in line 2 of .* is not a whole number"):
        read_libsvm(path)


def test_a_short_line_cannot_ask_for_a_number_of_a_gigabyte(tmp_path):
    path = write(tmp_path / "b.libsvm", "1e999999999 1:1\n")
    with pytest.raises(LabelError) as caught:
        read_libsvm(path)
    assert one_line(caught.value) == (
        f'client "b": label 1e999999999 in line 1 of {path} has more than 100 digits; give the'
        " class a shorter number"
    )


def test_a_whole_value_that_float64_rounds_is_refused_and_a_measurement_is_not(tmp_path):
    path = write(tmp_path / "b.libsvm", "1 1:9007199254740994 2:1e300\n2\n1 7:9007199254740993\n")
    with pytest.raises(FeatureError) as caught:
        read_libsvm(path)
    assert one_line(caught.value) == (
        f'client "b": feature 6 in line 3 of {path} is 9007199254740993, a whole number that'
        " float64 does not hold exactly; leave it out if it names something, or round it"
    )


def test_an_index_with_leading_zeros_is_that_number(tmp_path):
    path = write(tmp_path / "a.libsvm", "1 0000000002:5\n")
    assert read_libsvm(path).X.tolist() == [[0, 5]]


def test_a_byte_order_mark_is_skipped_and_utf16_named(tmp_path):
    path = write(tmp_path / "a.libsvm", "\ufeff1 1:2\n")
    assert read_libsvm(path).labels == ("1",)
    path.write_bytes("1 1:2\n".encode("utf-16"))
    with pytest.raises(FormatError) as caught:
        read_libsvm(path)
    assert one_line(caught.value) == f"{path}: line 1 is not UTF-8; convert the file to UTF-8"
