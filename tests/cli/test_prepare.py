"""`securefl data schema` and `data prepare` as a user runs them."""

import json

import numpy as np
import pytest

from tests.cli.command import refused, securefl


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """A public table, two clients' tables of other spellings, and a run of theirs."""
    folder = tmp_path_factory.mktemp("tables")
    (folder / "tables").mkdir()
    (folder / "public.csv").write_text(
        "label,age,sex\n" + "".join(f"{'ab'[i % 2]},{i}.5,{'fm'[i % 2]}\n" for i in range(30))
    )
    (folder / "tables" / "north.csv").write_text("SEX;age;label\nf;1,5;a\n;40,5;b\n;;\n")
    (folder / "tables" / "south.csv").write_text("label,age,sex,room\na,1.5,f,1\nb,29.5,m,2\n")
    securefl("data", "schema", "--from", folder / "public.csv", "--out", folder / "schema.json")
    schema = ("--schema", folder / "schema.json")
    securefl("data", "prepare", folder / "tables", *schema, "--out", folder / "clients")
    securefl("train", folder / "clients", "--out", folder / "run", "--bits", 6)
    return folder


def test_what_was_changed_is_shown_and_counted(work):
    arguments = ("data", "prepare", work / "tables", "--schema", work / "schema.json")
    out, _ = securefl(*arguments, "--out", work / "again", "--json")
    found = json.loads(out)
    assert found["clients"]["north"] == {
        "records": 2,
        "missing": {"sex": 1},
        "outside": {"age": 1},
        "unlabelled": 0,
        "blank_rows": 1,
        "dropped_columns": [],
        "decimal": "comma",
    }
    assert found["clients"]["south"]["dropped_columns"] == ["room"]
    _, err = securefl(*arguments, "--out", work / "told")
    assert "north.csv: 1 empty rows left out" in err
    assert "all features lie in [0, 1]" in err


def test_clients_features_and_the_schemas_digest_agree(work):
    north, south = (np.load(work / "clients" / f"{name}.npz") for name in ("north", "south"))
    assert north["X"][0].tolist() == south["X"][0].tolist()
    manifest = json.loads((work / "run" / "federation.json").read_text())
    assert north["schema"].tolist() == south["schema"].tolist() == [manifest["schema"]]


def test_queries_of_another_schema_are_refused(work, tmp_path):
    schema = json.loads((work / "schema.json").read_text())
    schema["columns"][0]["range"] = [0, 99]
    (tmp_path / "other.json").write_text(json.dumps(schema))
    arguments = ("data", "prepare", work / "tables" / "south.csv", "--out", tmp_path / "q")
    securefl(*arguments, "--schema", tmp_path / "other.json")
    trained = ("train", work / "clients", "--out", tmp_path / "ridge", "--method", "dkrr")
    securefl(*trained)
    predicted = ("predict", tmp_path / "ridge")
    securefl(*predicted, work / "clients" / "south.npz")
    assert "federation's clients by schema" in refused(*predicted, tmp_path / "q" / "south.npz")
    asked = ("infer", tmp_path / "q" / "south.npz", "--run", work / "run", "--mode", "plain")
    assert "prepare it by the same (securefl data prepare)" in refused(*asked)
    public = ("--scaling", "range", "--public", tmp_path / "q" / "south.npz")
    scaled = ("train", work / "clients", "--out", tmp_path / "scaled")
    assert "the clients by schema" in refused(*scaled, *public)
    assert "prepared by schema" in refused(
        *("train", tmp_path / "q" / "south.npz", "--out", tmp_path / "run"),
        *("--federation", work / "run" / "federation.json"),
    )


def test_what_a_schema_scaled_needs_no_remark_that_nothing_does_where_privacy_is_promised(
    work, tmp_path
):
    promise = ("--epsilon", 8, "--delta", 0, "--unit", "element", "--bounds", 0, 1)
    common = ("--smoothing", "none", "--ledgers", tmp_path / "ledgers")
    run = tmp_path / "run"
    _, err = securefl("train", work / "clients", "--out", run, *promise, *common)
    assert "not scaled" not in err
    assert "scaling" not in json.loads((run / "federation.json").read_text())


def test_queries_without_a_class_are_answered(work, tmp_path):
    (tmp_path / "new.csv").write_text("sex,age\nf,1.5\nm,29.5\n")
    common = ("data", "prepare", tmp_path / "new.csv", "--schema", work / "schema.json")
    assert 'no column "label"' in refused(*common, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    securefl(*common, "--unlabelled", "--out", tmp_path / "out")
    asked = ("infer", tmp_path / "out" / "new.npy", "--run", work / "run", "--mode", "plain")
    assert securefl(*asked)[0].split() == ["a", "b"]


def test_a_draft_is_not_written_over_and_a_date_needs_its_format(work):
    draft = ("data", "schema", "--from", work / "public.csv", "--out", work / "schema.json")
    assert "exists already" in refused(*draft)
    _, err = securefl(*draft, "--date", "age", check=2)
    assert "--date needs COLUMN=FORMAT" in err
