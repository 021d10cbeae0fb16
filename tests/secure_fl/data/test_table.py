import bz2
import csv
import gzip
import io
import lzma
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secure_fl.data import Columns, read_client, read_csv
from secure_fl.errors import FeatureError, FormatError, LabelError
from tests.secure_fl.shared import one_line

PACKS = [(".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress)]


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
    ("suffix", "pack"), [(".csv", bytes), *((f".csv{suffix}", pack) for suffix, pack in PACKS)]
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
        " file has (--label-column)"
    )
    assert refusal(path, columns=Columns("klass", text="body")) == (
        f'{path}: no column "body" (the header has x, y, klass); name the column that the file has'
        " (--text-column)"
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
            " ignore the column (--ignore-column x)",
        ),
        (
            "label,x,w\na,1,\n",
            FeatureError,
            'client "b": feature "w" in line 2 of {path} is empty, not a number; correct it, or'
            " ignore the column (--ignore-column w)",
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


@pytest.mark.parametrize(("suffix", "pack"), PACKS)
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
        " ignore the column (--ignore-column x)"
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
        " ignore the column (--ignore-column x)"
    )


@pytest.mark.parametrize("delimiter", ["", ";;", "\n", '"'])
def test_a_delimiter_is_one_character(tmp_path, delimiter):
    path = write(tmp_path / "b.csv", "label,x\na,1\n")
    assert refusal(path, delimiter=delimiter) == (
        f"{path}: delimiter {delimiter!r}; give one character, e.g. ','".replace("\n", "\\n")
    )


# --------------------------------------------------------------------- numbers, marks, separators


@settings(max_examples=60)
@given(st.integers(-(10**25), 10**25))
def test_a_whole_number_is_exact_or_refused(tmp_path_factory, number):
    path = write(tmp_path_factory.mktemp("csv") / "b.csv", f"label,x,y\na,0,{number}\n")
    if int(float(number)) == number:
        assert int(read_csv(path).X[0, 1]) == number
    else:
        assert refusal(path, FeatureError) == (
            f'client "b": feature "y" in line 2 of {path} is {number}, a whole number that float64'
            " does not hold exactly; ignore the column if it names something (--ignore-column y),"
            " or round it"
        )


@pytest.mark.parametrize(
    "text", ["9007199254740993", " +9007199254740993.00", "9.007199254740993e15", "9" * 30]
)
def test_every_spelling_of_all_digits_counts_as_a_whole_number(tmp_path, text):
    path = write(tmp_path / "b.csv", f"label,x\na,{text}\n")
    assert "a whole number that float64 does not hold" in refusal(path, FeatureError)


@pytest.mark.parametrize("text", ["1e300", "1e23", "0.1", "9007199254740993.5", "9007199254740994"])
def test_a_measurement_is_its_nearest_float(tmp_path, text):
    path = write(tmp_path / "b.csv", f"label,x\na,{text}\n")
    assert read_csv(path).X.tolist() == [[float(text)]]


@pytest.mark.parametrize("row", [0, 4095, 4096, 5000])
def test_the_line_of_a_rounded_number_is_right_in_every_block(tmp_path, row):
    lines = ["a,1"] * 6000
    lines[row] = f"a,{2**53 + 1}"
    path = write(tmp_path / "b.csv", "label,x\n" + "\n".join(lines))
    assert f"in line {row + 2} of" in refusal(path, FeatureError)


@pytest.mark.parametrize(
    ("content", "kind", "message"),
    [
        ("label,x\na\0,1\n", LabelError, "label 'a\\x00' in line 2 of"),
        ("label,x\0\na,1\n", FormatError, "column 'x\\x00' in the header holds a NUL"),
        ("label,x,site\na,1,n\0\n", FormatError, "line 2: group 'n\\x00' holds a NUL"),
    ],
)
def test_a_nul_in_a_name_is_refused(tmp_path, content, kind, message):
    columns = Columns(group="site") if "site" in content else None
    assert message in refusal(write(tmp_path / "b.csv", content), kind, columns)


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_header_tells_what_separates_fields(tmp_path, delimiter):
    text = 'label;x;"two words"\na;1;2\n'.replace(";", delimiter)
    records = read_csv(write(tmp_path / "a.csv", text))
    assert records.features == ("x", "two words")
    assert records.X.tolist() == [[1, 2]]


def test_a_comma_stays_the_separator_where_the_header_can_be_read_with_it(tmp_path):
    records = read_csv(write(tmp_path / "a.csv", "label,x;y\na,1\n"))
    assert records.features == ("x;y",)


def test_the_separator_is_named_when_the_label_is_missing(tmp_path):
    path = write(tmp_path / "b.csv", "klass;x;y\na;1;2\n")
    assert refusal(path) == (
        f'{path}: no label column "label" (the header has klass, x, y, separated by a semicolon);'
        " name the column that the file has (--label-column)"
    )
    path = write(tmp_path / "c.tsv", "klass\tx\na\t1\n")
    assert "separated by a tab" in refusal(path)


def test_a_decimal_comma_is_named(tmp_path):
    path = write(tmp_path / "b.csv", "label;x\na;1,5\n")
    assert refusal(path, FeatureError) == (
        f'client "b": feature "x" in line 2 of {path} is "1,5", not a number; write 1.5 for 1,5,'
        " or ignore the column (--ignore-column x)"
    )


def test_a_column_to_ignore_that_is_not_there_is_refused(tmp_path):
    """It may be misspelt, and the column meant would be a feature unnoticed."""
    path = write(tmp_path / "b.csv", "label,id,x\na,1,2\n")
    assert refusal(path, columns=Columns(ignore=("idd",))) == (
        f'{path}: no column "idd" to ignore (the header has label, id, x); correct or leave out'
        " --ignore-column idd"
    )


# -------------------------------------------------------------------------------------- archives


@pytest.mark.parametrize(("suffix", "pack"), PACKS)
@pytest.mark.parametrize("junk", [b"j", b"junk", b"\0\0junk", b"label,x\n" * 200_000])
def test_junk_after_a_stream_is_damage_for_all_kinds(tmp_path, suffix, pack, junk):
    path = tmp_path / f"b.csv{suffix}"
    path.write_bytes(pack(b"label,x\na,1\n") + junk)
    assert refusal(path) == f"{path}: damaged or truncated archive; copy the file again"


@pytest.mark.parametrize(("suffix", "pack"), PACKS)
def test_streams_one_after_another_and_zeros_after_them_are_read(tmp_path, suffix, pack):
    path = tmp_path / f"b.csv{suffix}"
    path.write_bytes(pack(b"label,x\na,1\n") + pack(b"b,2\n") + bytes(3_000_000))
    assert read_csv(path).labels == ("a", "b")


@pytest.mark.parametrize(("suffix", "pack"), PACKS)
def test_an_archive_without_a_stream_is_damaged(tmp_path, suffix, pack):
    path = tmp_path / f"b.csv{suffix}"
    path.write_bytes(b"")
    assert refusal(path) == f"{path}: damaged or truncated archive; copy the file again"


@settings(max_examples=30)
@given(st.lists(st.binary(max_size=2000), min_size=1, max_size=3), st.integers(0, 4000))
def test_own_reading_of_streams_gives_what_the_libraries_give(tmp_path_factory, parts, zeros):
    from secure_fl.data._streams import read_capped

    for suffix, pack in PACKS[1:]:
        path = tmp_path_factory.mktemp("packed") / f"a{suffix}"
        path.write_bytes(b"".join(map(pack, parts)) + bytes(zeros))
        assert read_capped(path) == b"".join(parts)


def test_an_archive_that_asks_for_too_much_memory_says_so(tmp_path):
    """The dictionary's size stands in the stream's header and is asked for before a byte comes."""
    large = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 2**29}]
    path = tmp_path / "b.csv.xz"
    path.write_bytes(lzma.compress(b"label,x\na,1\n", filters=large))
    assert "268,435,456 bytes of memory" in refusal(path)


@pytest.mark.parametrize("name", ["A.CSV", "A.Csv.GZ", "A.csv.Bz2", "A.TSV.BZ2", "A.Csv.XZ"])
def test_endings_count_in_any_case(tmp_path, name):
    pack = dict(PACKS).get(Path(name).suffix.lower(), bytes)
    path = tmp_path / name
    path.write_bytes(pack(b"label,x\na,1\n"))
    records = read_client(path)
    assert (records.name, records.X.tolist()) == ("A", [[1]])
