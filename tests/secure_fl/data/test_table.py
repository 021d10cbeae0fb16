import bz2
import csv
import gzip
import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secure_fl.data import Columns, read_csv
from secure_fl.errors import FeatureError, FormatError, LabelError
from tests.secure_fl.shared import one_line


def write(path, text):
    path.write_bytes(text.encode("utf-8"))
    return path


def refusal(path, kind=FormatError, columns=None, **options):
    with pytest.raises(kind) as caught:
        read_csv(path, columns, **options)
    return one_line(caught.value)


def test_columns_become_labels_features_and_groups(tmp_path):
    path = write(tmp_path / "a.csv", "id,height,class,site,width\n7,1.5,cat,n,-2e3\n8,0,dog,s,+4\n")
    records = read_csv(path, Columns(label="class", group="site", ignore=("id",)))
    assert records.labels == ("cat", "dog")
    assert records.features == ("height", "width")
    assert records.groups == ("n", "s")
    assert records.X.tolist() == [[1.5, -2000], [0, 4]]


def test_a_text_column_is_kept_for_encoding(tmp_path):
    path = write(tmp_path / "a.csv", 'label,body,note\nx,"one, two\nthree",\ny,,z\n')
    records = read_csv(path, Columns(text="body"))
    assert records.X is None
    assert records.texts == ("one, two\nthree", "")
    assert records.where(0) == f"line 3 of {path}"


@pytest.mark.parametrize(
    ("suffix", "pack"), [(".csv", bytes), (".csv.gz", gzip.compress), (".csv.bz2", bz2.compress)]
)
def test_compressed_files_with_a_byte_order_mark_and_crlf(tmp_path, suffix, pack):
    path = tmp_path / f"a{suffix}"
    path.write_bytes(pack("\ufefflabel,x\r\nä,1\r\n\r\nb,2\r\n".encode()))
    records = read_csv(path)
    assert (records.name, records.labels, records.X.tolist()) == ("a", ("ä", "b"), [[1], [2]])
    assert records.lines.tolist() == [2, 4]


def test_another_delimiter(tmp_path):
    path = write(tmp_path / "a.csv", "label;x\na;1\n")
    assert read_csv(path, delimiter=";").X.tolist() == [[1]]


@settings(max_examples=40)
@given(
    st.lists(
        st.tuples(
            st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1).filter(
                str.strip
            ),
            st.floats(allow_nan=False, allow_infinity=False),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_every_label_and_number_that_the_standard_writer_writes_is_read(tmp_path_factory, rows):
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer)
    writer.writerow(["label", "x"])
    writer.writerows((label, repr(x)) for label, x in rows)
    path = write(tmp_path_factory.mktemp("csv") / "a.csv", buffer.getvalue())
    records = read_csv(path)
    assert records.labels == tuple(label.strip() for label, _ in rows)
    assert records.X[:, 0].tolist() == [x for _, x in rows]


def test_a_file_without_the_label_column_is_refused(tmp_path):
    path = write(tmp_path / "b.csv", "x,y,klass\n1,2,a\n")
    assert refusal(path) == (
        f'{path}: no label column "label" (the header has x, y, klass); name the column that the'
        " file has"
    )
    assert refusal(path, columns=Columns("klass", text="body")) == (
        f'{path}: no column "body" (the header has x, y, klass); name the column that the file has'
    )


@pytest.mark.parametrize(
    ("content", "kind", "message"),
    [
        ("", FormatError, "{path}: no header line; name the columns in the first line"),
        ("\n", FormatError, "{path}: no header line; name the columns in the first line"),
        (
            "label,x,x\na,1,2\n",
            FormatError,
            '{path}: column "x" twice in the header; name each column once',
        ),
        (
            "label,,x\na,1,2\n",
            FormatError,
            "{path}: column 2 without a name in the header; name each column once",
        ),
        ("label\na\n", FormatError, "{path}: no feature columns beside label"),
        (
            "label,x\na,1\nb,1,2\n",
            FormatError,
            "{path}: line 3 has 3 fields, the header 2; quote fields that hold ','",
        ),
        (
            'label,x\na,"1\n',
            FormatError,
            "{path}: line 2: unexpected end of data; quote fields as RFC 4180 says",
        ),
        (
            "label,x,w\na,1,2\nb,one,2\n",
            FeatureError,
            'client "b": feature "x" in line 3 of {path} is "one", not a number; correct it, or'
            " ignore the column",
        ),
        (
            "label,x,w\na,1,\n",
            FeatureError,
            'client "b": feature "w" in line 2 of {path} is empty, not a number; correct it, or'
            " ignore the column",
        ),
        (
            "label,x,w\na,1,NaN\n",
            FeatureError,
            'client "b": feature "w" in line 2 of {path} is nan; fill it in or remove the record',
        ),
        (
            "label,x,w\na,1e999,1\n",
            FeatureError,
            'client "b": feature "x" in line 2 of {path} is inf; fill it in or remove the record',
        ),
        (
            "label,x\n ,1\n",
            LabelError,
            'client "b": empty label in line 2 of {path}; label the record or remove it',
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_line(tmp_path, content, kind, message):
    path = write(tmp_path / "b.csv", content)
    assert refusal(path, kind) == message.format(path=path)


def test_bytes_that_are_not_utf8_are_refused_with_their_line(tmp_path):
    path = tmp_path / "b.csv"
    path.write_bytes(b"label,x\na,1\n\xe4,2\n")
    assert refusal(path) == f"{path}: line 3 is not UTF-8; convert the file to UTF-8"


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".bz2", bz2.compress)])
def test_a_damaged_or_overlarge_archive_is_refused(tmp_path, suffix, pack):
    path = tmp_path / f"b.csv{suffix}"
    packed = pack(b"label,x\n" + b"a,1\n" * 100_000)
    assert len(packed) < 4000
    path.write_bytes(packed)
    assert refusal(path, max_bytes=100_000) == (
        f"{path}: more than 100,000 bytes unpacked; split the file or raise max_bytes"
    )
    path.write_bytes(packed[: len(packed) // 2])
    assert refusal(path) == f"{path}: damaged or truncated archive; copy the file again"
    path.write_bytes(b"label,x\na,1\n")
    assert refusal(path) == f"{path}: damaged or truncated archive; copy the file again"


def test_a_header_alone_is_a_client_without_records(tmp_path):
    records = read_csv(write(tmp_path / "a.csv", "label,x,z\n"))
    assert records.X.shape == (0, 2)


def test_a_folder_in_place_of_the_file_is_refused(tmp_path):
    (tmp_path / "a.csv").mkdir()
    assert refusal(tmp_path / "a.csv") == (
        f"{tmp_path}/a.csv: is a directory; check the path and its permissions"
    )


def test_long_documents_are_read(tmp_path):
    """The csv module's own limit of 131,072 characters is shorter than some documents."""
    path = write(tmp_path / "a.csv", "label,body\nx," + "word " * 40_000 + "\n")
    assert len(read_csv(path, Columns(text="body")).texts[0]) == 200_000
    assert csv.field_size_limit() == 131_072


def test_integers_that_python_reads_but_numpy_does_not_are_refused_alike(tmp_path):
    path = write(tmp_path / "b.csv", "label,x\na,1_000\n")
    with pytest.raises(FeatureError) as caught:
        read_csv(path)
    assert str(caught.value) == (
        f'client "b": feature "x" in line 2 of {path} is "1_000", not a number; correct it, or'
        " ignore the column"
    )


def test_many_rows_keep_their_order(tmp_path):
    values = np.random.default_rng(0).normal(size=(5000, 3))
    lines = [",".join([str(i), *map(repr, row)]) for i, row in enumerate(values.tolist())]
    path = write(tmp_path / "a.csv", "label,x,y,z\n" + "\n".join(lines))
    records = read_csv(path)
    assert np.array_equal(records.X, values)
    assert records.labels == tuple(map(str, range(5000)))


@pytest.mark.parametrize("bad", [4094, 4095, 4096, 4500])
def test_the_line_of_a_fault_is_right_in_every_block(tmp_path, bad):
    """Numbers are converted 4,096 rows at a time."""
    lines = ["a,1"] * 5000
    lines[bad] = "a,?"
    path = write(tmp_path / "b.csv", "label,x\n" + "\n".join(lines))
    assert refusal(path, FeatureError) == (
        f'client "b": feature "x" in line {bad + 2} of {path} is "?", not a number; correct it, or'
        " ignore the column"
    )


@pytest.mark.parametrize("delimiter", ["", ";;", "\n", '"'])
def test_a_delimiter_is_one_character(tmp_path, delimiter):
    path = write(tmp_path / "b.csv", "label,x\na,1\n")
    assert refusal(path, delimiter=delimiter) == (
        f"{path}: delimiter {delimiter!r}; give one character, e.g. ','".replace("\n", "\\n")
    )
