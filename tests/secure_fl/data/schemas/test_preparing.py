"""Files of all kinds of spellings become one matrix, by a schema that all share."""

import json

import attrs
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from secure_fl.data import read_client, read_clients, write_clients
from secure_fl.data.schemas import (
    Category,
    Date,
    Label,
    Number,
    Schema,
    load_schema,
    prepare_clients,
    save_schema,
)
from secure_fl.errors import ClientError, FeatureError, FormatError, InputError, LabelError
from tests.secure_fl.shared import one_line

SCHEMA = Schema(
    label=Label(column="outcome", classes=("home", "ward"), spellings={"discharged": "home"}),
    columns=(
        Number(
            name="weight",
            other_names=("Gewicht",),
            unit="kg",
            other_units={"g": 0.001},
            range=(0, 200),
            missing=100,
            flag_missing=True,
        ),
        Category(name="sex", categories=("f", "m"), spellings={"female": "f"}),
        Date(
            name="seen",
            formats=("%Y-%m-%d", "%d.%m.%Y"),
            range=("2020-01-01", "2020-01-11"),
            missing="2020-01-06",
        ),
    ),
)
HEADER = "outcome,weight,sex,seen\n"


def changed(column, **fields):
    """The schema with a column of other fields."""
    columns = [attrs.evolve(c, **fields) if c.name == column else c for c in SCHEMA.columns]
    return attrs.evolve(SCHEMA, columns=columns)


def prepared(folder, text, schema=SCHEMA, name="a.csv", **options):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    (found,) = prepare_clients(path, schema, **options)
    return found


def refusal(kind, folder, text, schema=SCHEMA, **options):
    with pytest.raises(kind) as caught:
        prepared(folder, text, schema, **options)
    assert isinstance(caught.value, InputError)
    return one_line(caught.value).replace(f"{folder}/", "")


def test_every_column_becomes_the_features_that_the_schema_names(tmp_path):
    found = prepared(tmp_path, HEADER + "home,50,F,2020-01-02\nWARD,,Female,11.01.2020\n")
    names = ("weight", "weight=missing", "sex=f", "sex=m", "sex=other", "sex=missing", "seen")
    assert found.data.features == SCHEMA.features == names
    expected = [[0.25, 0, 1, 0, 0, 0, 0.1], [0.5, 1, 1, 0, 0, 0, 1.0]]
    np.testing.assert_allclose(found.data.X, expected, rtol=0, atol=1e-15)
    assert found.data.y.tolist() == [0, 1]
    assert found.data.schema == SCHEMA.digest


def test_what_was_changed_is_counted(tmp_path):
    text = HEADER + "home,?,x,2020-01-02\nward,250,,2021-01-01\nhome,-3,NA,\n,,,\n"
    counts = prepared(tmp_path, text).counts
    assert counts.missing == {"weight": 1, "sex": 2, "seen": 1}
    assert counts.outside == {"weight": 2, "sex": 1, "seen": 1}
    assert (counts.records, counts.blank) == (3, 1)


def test_units_that_a_value_carries_are_converted(tmp_path):
    rows = "home,50 kg,f,2020-01-02\nhome,50000g,f,2020-01-02\nhome,50,f,2020-01-02\n"
    assert prepared(tmp_path, HEADER + rows).data.X[:, 0].tolist() == [0.25, 0.25, 0.25]


def test_without_scaling_numbers_stay_in_their_units(tmp_path):
    schema = attrs.evolve(SCHEMA, scaling="none")
    row = prepared(tmp_path, HEADER + "home,50,f,2020-01-02\n", schema).data.X[0]
    assert row[0] == 50
    assert row[-1] == 18263  # days since 1970, by `date -d 2020-01-02 +%s` / 86400
    assert schema.ranges()[0] == (0, 200)
    assert SCHEMA.ranges() == [(0, 1)] * 7


ROWS = [("home", "50.5", "f", "2020-01-03"), ("ward", "0.25", "m", "2020-01-09")]


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    order=st.permutations(range(4)),
    delimiter=st.sampled_from([",", ";", "\t", "|"]),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]),
    comma=st.booleans(),
    said=st.booleans(),
    dated=st.booleans(),
    end=st.sampled_from(["\n", "\r\n"]),
)
def test_the_way_a_file_is_written_does_not_show(
    tmp_path, order, delimiter, encoding, comma, said, dated, end
):
    header = ["outcome", "Gewicht", "SEX", "seen"]
    rows = [list(row) for row in ROWS]
    for row in rows:
        if comma:
            row[1] = row[1].replace(".", ",")
        if dated:
            row[3] = ".".join(reversed(row[3].split("-")))
    lines = [delimiter.join(f'"{row[i]}"' for i in order) for row in [header, *rows]]
    lines = [f"sep={delimiter}", *lines] if said else lines
    found = prepared(tmp_path, end.join([*lines, ""]).encode(encoding))
    plain = prepared(tmp_path, HEADER + "".join(f"{','.join(row)}\n" for row in ROWS), name="b.csv")
    assert np.array_equal(found.data.X, plain.data.X)
    assert found.data.y.tolist() == plain.data.y.tolist()


@pytest.mark.parametrize(
    ("rows", "schema", "kind", "told"),
    [
        (
            "home,heavy,f,2020-01-02\n",
            SCHEMA,
            FeatureError,
            'client "a": column "weight" in line 2 of a.csv is "heavy", expected a number in kg, g'
            " (schema.json); correct it, or add it to missing_values at all parties",
        ),
        (
            'home,"1,234",f,2020-01-02\n',
            SCHEMA,
            FeatureError,
            'client "a": column "weight" in line 2 of a.csv is "1,234", expected a number with one'
            " reading (schema.json); say which mark the file uses (--decimal comma or point)",
        ),
        (
            "home,250,f,2020-01-02\n",
            changed("weight", outside="refuse"),
            FeatureError,
            'client "a": column "weight" in line 2 of a.csv is "250", expected 0.0 to 200.0'
            ' (schema.json); correct it, or say "outside": "clip" at all parties',
        ),
        (
            "home,NA,f,2020-01-02\n",
            changed("weight", missing="refuse"),
            FeatureError,
            'client "a": column "weight" in line 2 of a.csv is "NA", expected a value'
            ' (schema.json); fill it in, or give "missing" a value at all parties',
        ),
        (
            "home,1,x,2020-01-02\n",
            changed("sex", outside="refuse"),
            FeatureError,
            'client "a": column "sex" in line 2 of a.csv is "x", expected one of f, m'
            ' (schema.json); correct it, add it to spellings, or say "outside": "other" at all'
            " parties",
        ),
        (
            "home,1,,2020-01-02\n",
            changed("sex", missing="refuse"),
            FeatureError,
            'client "a": column "sex" in line 2 of a.csv is empty, expected a category'
            ' (schema.json); fill it in, or say "missing": "own" at all parties',
        ),
        (
            "home,1,f,2.1.20\n",
            SCHEMA,
            FeatureError,
            'client "a": column "seen" in line 2 of a.csv is "2.1.20", expected a date as %Y-%m-%d'
            " or %d.%m.%Y (schema.json); correct it, or add its format at all parties",
        ),
        (
            "home,1,f,02/03/2020\n",
            changed("seen", formats=("%Y-%m-%d", "%d/%m/%Y", "%m/%d/%Y")),
            FeatureError,
            'client "a": column "seen" in line 2 of a.csv is "02/03/2020", expected a date with'
            " one reading by %Y-%m-%d or %d/%m/%Y or %m/%d/%Y (schema.json); keep one of the"
            " formats",
        ),
        (
            "away,1,f,2020-01-02\n",
            SCHEMA,
            LabelError,
            'client "a": label "away" in line 2 of a.csv is none of the federation\'s 2 classes'
            " (home, ward); correct the label or make the class list anew",
        ),
        (
            ",1,f,2020-01-02\n",
            SCHEMA,
            FormatError,
            'client "a": no class in line 2 of a.csv (column "outcome", 1 in all); fill it in,'
            ' remove the record, or say "missing": "drop" of the label (schema.json)',
        ),
        ("", SCHEMA, ClientError, 'client "a": no records in a.csv; add some'),
    ],
)
def test_a_cell_that_means_nothing_is_refused_with_its_place(tmp_path, rows, schema, kind, told):
    assert refusal(kind, tmp_path, HEADER + rows, schema) == told


def test_a_file_of_other_columns_is_refused(tmp_path):
    told = refusal(FormatError, tmp_path, "outcome,weight,sex\nhome,1,f\n")
    assert told == (
        'a.csv: no column "seen" (the header has outcome, weight, sex), the schema has it'
        " (schema.json); if the file calls it otherwise, add that to its other_names at all parties"
    )
    told = refusal(FormatError, tmp_path, "outcome,weight,Gewicht,sex,seen\n")
    assert told == 'a.csv: columns "weight" and "Gewicht" are one; remove or rename one'
    strict = attrs.evolve(SCHEMA, other_columns="refuse")
    extra = HEADER.replace("\n", ",room\n") + "home,1,f,2020-01-02,7\n"
    assert refusal(FormatError, tmp_path, extra, strict).startswith('a.csv: column "room" is none')
    assert prepared(tmp_path, extra).counts.dropped == ("room",)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            HEADER.encode() + "home,1,männlich,2020-01-02\n".encode("cp1252"),
            "a.csv: line 2 is not UTF-8; say what it is (--encoding cp1252 for files of Windows)",
        ),
        (b"\n ,,, \n", "a.csv: no header line; name the columns in the first line"),
        (HEADER + "home,1,f\n", "a.csv: line 2 has 3 fields, the header 4 (separated by a comma);"),
        (
            HEADER.replace("\n", ",\n") + "home,1,f,2020-01-02,7\n",
            "a.csv: column 5 has no name, and line 2 has something in it; name each column",
        ),
        (HEADER + 'home,"1,f,2020-01-02\n', "a.csv: line 2: unexpected end of data"),
        (HEADER + "home,1,f\0,2020-01-02\n", "a.csv: line 2 holds a NUL;"),
    ],
)
def test_a_file_that_is_no_table_is_refused(tmp_path, text, told):
    assert refusal(FormatError, tmp_path, text).startswith(told)


def test_an_encoding_that_is_said_is_used(tmp_path):
    schema = changed("sex", categories=("weiblich", "männlich"), spellings={})
    text = (HEADER + "home,1,männlich,2020-01-02\n").encode("cp1252")
    found = prepared(tmp_path, text, schema, encoding="cp1252")
    assert found.data.X[0, found.data.features.index("sex=männlich")] == 1


def test_records_without_a_class_can_be_dropped_and_are_counted(tmp_path):
    schema = attrs.evolve(SCHEMA, label=attrs.evolve(SCHEMA.label, missing="drop"))
    text = HEADER + ",1,f,2020-01-02\ndischarged,1,f,2020-01-02\n"
    found = prepared(tmp_path, text, schema)
    assert (len(found.data), found.counts.unlabelled) == (1, 1)
    assert found.data.y.tolist() == [0]


def test_queries_need_no_class(tmp_path):
    found = prepared(tmp_path, "weight,sex,seen\n50,f,2020-01-02\n", labelled=False)
    assert found.data.X[0, 0] == 0.25


def test_files_of_different_schemas_do_not_train_together(tmp_path):
    a = prepared(tmp_path, HEADER + "home,1,f,2020-01-02\n", name="a.csv").data
    b = prepared(tmp_path, HEADER + "ward,1,f,2020-01-02\n", changed("weight", missing=1)).data
    write_clients(tmp_path / "one", [a])
    assert read_client(tmp_path / "one" / "a.npz").schema == SCHEMA.digest
    write_clients(tmp_path / "out", [a, attrs_named(b, "b")])
    with pytest.raises(FeatureError, match="prepare all files by one schema"):
        read_clients(tmp_path / "out")


def attrs_named(data, name):
    return data.select(np.arange(len(data)), name)


def test_a_schema_is_read_back_with_its_digest(tmp_path):
    save_schema(tmp_path / "schema.json", SCHEMA)
    found = load_schema(tmp_path / "schema.json")
    assert found == SCHEMA
    assert found.digest == SCHEMA.digest != changed("weight", range=(0, 201)).digest
    with pytest.raises(InputError, match="exists already"):
        save_schema(tmp_path / "schema.json", SCHEMA)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda c: c.update(format=2), "format version 2, this securefl reads version 1"),
        (lambda c: c.update(more=1), "unknown field 'more'"),
        (lambda c: c.pop("label"), "label: expected a JSON object"),
        (lambda c: c.update(columns={}), '"columns" is no list'),
        (lambda c: c["columns"][0].update(type="text"), "columns[0] ('weight'): type 'text'"),
        (lambda c: c["columns"][0].update(range=[3, 3]), "range [3, 3]: the first number must"),
        (lambda c: c["columns"][0].update(range=[0, 1e999]), "inf is not a finite number"),
        (lambda c: c["columns"][0].update(missing=500), "missing: 500.0 is outside of the range"),
        (lambda c: c["columns"][0].update(outside="drop"), "'outside' must be in"),
        (lambda c: c["columns"][0].pop("range"), "no field 'range'"),
        (lambda c: c["columns"][1].update(categories=["f", "F"]), "holds one text twice"),
        (
            lambda c: c["columns"][1].update(categories=["f", "other"]),
            "is called 'other'",
        ),
        (lambda c: c["columns"][1].update(missing="x"), "missing: 'x' is no category"),
        (lambda c: c["columns"][2].update(formats=["%d %B %Y"]), "format '%d %B %Y'"),
        (lambda c: c["columns"][2].update(range=["2020-01-01", "x"]), "does not match format"),
        (lambda c: c["columns"][0].update(name="seen"), "'seen' is named twice"),
        (lambda c: c["label"].update(classes=["home"]), "classes: give at least two"),
        (lambda c: c.update(ignore=["sex"]), "ignore: column 'sex' is used too"),
    ],
)
def test_an_edited_schema_that_makes_no_sense_is_refused_with_its_place(tmp_path, change, told):
    path = tmp_path / "schema.json"
    save_schema(path, SCHEMA)
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    with pytest.raises(FormatError) as caught:
        load_schema(path)
    assert one_line(caught.value).startswith(f"{path}: ")
    assert told in str(caught.value)
