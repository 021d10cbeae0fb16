"""A draft says what a public table shows, and asks where the table has two readings."""

import numpy as np
import pytest

from secure_fl.data.schemas import Category, Date, Number, draft_schema, prepare_clients
from secure_fl.errors import FormatError
from tests.secure_fl.shared import one_line


def drafted(folder, header, *rows, **options):
    path = folder / "public.csv"
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return draft_schema(path, **options)


def test_types_ranges_and_fills_come_from_the_table(tmp_path):
    draft = drafted(
        tmp_path,
        "label;height;town;born;constant",
        "b;1,5;York;31.12.1999;7",
        "a;1,75;Bath;01.01.2000;7",
        "b;;york;02.01.2000;7",
        "a;1,8;?;05.01.2000;7",
    )
    height, town, born = draft.schema.columns
    assert height == Number(name="height", range=(1.5, 1.8), missing=1.75, flag_missing=True)
    assert town == Category(name="town", categories=("Bath", "York"))
    assert born == Date(
        name="born",
        formats=("%d.%m.%Y",),
        range=("31.12.1999", "05.01.2000"),
        missing="02.01.2000",
    )
    assert draft.schema.label.classes == ("a", "b")
    assert draft.schema.ignore == ("constant",)
    assert draft.remarks == ('column "constant" is 7 everywhere: ignored',)


def test_the_public_table_itself_fits_the_draft(tmp_path):
    rng = np.random.default_rng(0)
    rows = [
        f"{rng.choice(['x', 'y'])},{rng.normal():.3f},{rng.choice(['r', 'g', ''])}"
        for _ in range(50)
    ]
    draft = drafted(tmp_path, "label,z,colour", *rows)
    (found,) = prepare_clients(tmp_path / "public.csv", draft.schema)
    assert not any(found.counts.outside.values())
    assert (found.data.X.min(), found.data.X.max()) == (0, 1)


def test_identifiers_and_free_text_are_left_out_and_told(tmp_path):
    rows = [f"{'ab'[i % 2]},{1000 + i},note {i},{i % 3}" for i in range(40)]
    draft = drafted(tmp_path, "label,patient,remark,grade", *rows)
    assert draft.schema.ignore == ("patient", "remark")
    assert draft.remarks == (
        'column "patient" numbers the records: ignored',
        'column "grade" has 3 whole numbers: taken as numbers; if they are codes, say'
        " --category grade",
        'column "remark" has 40 different texts: ignored',
    ) or set(draft.remarks) == {
        'column "patient" numbers the records: ignored',
        'column "grade" has 3 whole numbers: taken as numbers; if they are codes, say'
        " --category grade",
        'column "remark" has 40 different texts: ignored',
    }
    coded = drafted(tmp_path, "label,patient,remark,grade", *rows, categories=["grade"])
    assert coded.schema.columns == (Category(name="grade", categories=("0", "1", "2")),)


@pytest.mark.parametrize(
    ("header", "rows", "told"),
    [
        ("label,d", ["a,01/02/2020", "b,03/04/2020"], "(--date d=%d/%m/%Y)"),
        ("label,n", ['a,"1,234"', 'b,"2,345"'], "say which mark the file uses (--decimal"),
        ("class,n", ["a,1", "b,2"], 'no column "label" (the header has class, n)'),
        ("label,n", ["a,1", "a,2"], "classes: give at least two"),
        ("label,n", ["a,1", "b,1"], "no column of numbers, dates or categories"),
        ("label,n", ["a,x", "b,other"], 'has the word "other", as a feature is called'),
    ],
)
def test_what_a_table_does_not_tell_is_asked(tmp_path, header, rows, told):
    with pytest.raises(FormatError) as caught:
        drafted(tmp_path, header, *rows)
    assert told in one_line(caught.value)


def test_a_date_that_is_said_settles_the_readings(tmp_path):
    rows = ["a,01/02/2020", "b,03/04/2020"]
    draft = drafted(tmp_path, "label,d", *rows, dates={"d": "%m/%d/%Y"})
    assert draft.schema.columns[0].range == ("01/02/2020", "03/04/2020")
    with pytest.raises(FormatError, match="that %Y does not read; correct --date"):
        drafted(tmp_path, "label,d", *rows, dates={"d": "%Y"})
