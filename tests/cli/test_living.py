"""update, forget, explain and receipt as their owner types them, with every refusal."""

import json

import numpy as np
import pytest

from kahm import KAHM
from secure_fl.data import Dataset, write_clients
from secure_fl.encoders.cache import EmbeddingCache
from secure_fl.heads.head import head_path, load_head
from secure_fl.heads.manifest import load_manifest
from tests.cli.command import refused, run, securefl

CLASSES = ("no", "yes")


def records(rng, n, name):
    X = rng.normal(size=(n, 3)).astype(np.float32)
    y = np.arange(n, dtype=np.int64) % 2
    X[:, 0] += 3 * y
    return Dataset(X, y, CLASSES, name)


@pytest.fixture
def lived(tmp_path):
    """Two clients' heads, a day's new records of the north, its key, and the folder of all."""
    rng = np.random.default_rng(0)
    write_clients(tmp_path / "clients", [records(rng, 12, name) for name in ("north", "south")])
    write_clients(tmp_path / "new", [records(rng, 6, "monday")])
    securefl("train", tmp_path / "clients", "--out", tmp_path / "run", "--batch-size", "4")
    securefl("serve", "identity", tmp_path / "north.secret")
    return tmp_path


def north(folder):
    return folder / "run", "--client", "north"


def scaled(folder, client):
    """A client's records as its head has them: moved and divided as the manifest says."""
    facts = json.loads((folder / "run" / "federation.json").read_text())
    X = np.load(folder / "clients" / f"{client}.npz")["X"].astype(float)
    moved = (X - np.array(facts["offsets"])) * (facts["scale"] / np.array(facts["spreads"]))
    return moved.astype(np.float32)


def forget(folder, numbers, *more):
    (folder / "gone.txt").write_text(numbers)
    own = ("--records", folder / "gone.txt", "--identity", folder / "north.secret")
    return ("forget", *north(folder), *own, *more)


def add(folder, *more):
    return ("update", *north(folder), "--add", folder / "new" / "monday.npz", *more)


def test_new_records_are_added_and_the_others_machines_stay(lived):
    out = json.loads(securefl(*add(lived), "--json")[0])
    assert (out["added"], out["records"], out["new_machines"]) == (6, 18, 2)
    assert out["machines"] == 6
    bank = load_head(lived / "run", "north", load_manifest(lived / "run")).bank
    assert bank.n_machines == 6
    assert len(bank.records) == 18


def test_a_file_that_was_added_is_refused_the_second_time(lived):
    securefl(*add(lived))
    line = refused(*add(lived))
    assert "all its 6 records are in the head already" in line
    assert "give --again" in line
    assert "24 records in" in securefl(*add(lived, "--again"))[0]


def test_a_receipt_says_what_was_removed_from_what_and_is_verified(lived):
    securefl(*add(lived))
    out = json.loads(securefl(*forget(lived, "0, 1\n13"), "--json")[0])
    assert (out["records"], out["left"], out["rebuilt"]) == (3, 15, 3)
    assert [each["name"] for each in out["artifacts"]] == [
        "clients/north/head",
        "clients/north/index",
    ]
    copies = {each["path"]: each["rows"] for each in out["elsewhere"]}
    assert copies == {
        str(lived / "clients" / "north.npz"): [0, 1],
        str(lived / "new" / "monday.npz"): [1],
    }
    assert any("backups" in each for each in out["not_recalled"])
    key = json.loads((lived / out["receipt"]).read_text())["signer"]
    said = securefl("receipt", "verify", out["receipt"], "--key", key)[0]
    assert "3 records forgotten, 15 left" in said
    assert "The signature is right." in said


def test_nothing_of_a_forgotten_record_is_left_in_the_clients_folder(lived):
    folder = head_path(lived / "run", "north").parent
    needle = scaled(lived, "north")[3].tobytes()
    assert needle in (folder / "head").read_bytes()
    securefl(*forget(lived, "3"))
    assert not any(needle in path.read_bytes() for path in folder.iterdir())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"records": 1', '"records": 2'),
        ('"client": "north"', '"client": "south"'),
        ("head", "hand"),
    ],
)
def test_an_altered_receipt_is_refused(lived, old, new):
    out = json.loads(securefl(*forget(lived, "3"), "--json")[0])
    text = (lived / out["receipt"]).read_text()
    altered = lived / "altered.json"
    altered.write_text(text.replace(old, new, 1))
    line = refused("receipt", "verify", altered, "--key", json.loads(text)["signer"])
    assert "altered after it was signed" in line


def test_a_receipt_of_another_key_is_refused(lived):
    out = json.loads(securefl(*forget(lived, "3"), "--json")[0])
    assert "signed by the key" in refused("receipt", "verify", out["receipt"], "--key", "ab" * 32)


def test_records_are_forgotten_by_their_features_and_their_caches_too(lived):
    X = np.load(lived / "clients" / "north.npz")["X"]
    y = np.zeros(2, np.int64)
    write_clients(lived / "asked", [Dataset(X[[2, 5]], y, CLASSES, "asked")])
    cache = EmbeddingCache(lived / "cache", "ab" * 32)
    keys = [bytes([i]) * 32 for i in range(len(X))]
    cache.store(keys, X, np.zeros(len(X), bool))
    own = ("--records", lived / "asked" / "asked.npz", "--identity", lived / "north.secret")
    more = ("--search", lived / "cache", "--json")
    out = json.loads(securefl("forget", *north(lived), *own, *more)[0])
    assert out["records"] == 2
    (pruned,) = [each for each in out["elsewhere"] if each["what"] == "cache"]
    assert (pruned["records"], pruned["removed"]) == (2, True)
    assert set(cache.load(keys)) == {key for i, key in enumerate(keys) if i not in (2, 5)}


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ("12", "no record 12, it has 12, numbered from 0 as they came"),
        ("-1", "no record -1"),
        ("", "no record is named"),
        ("one", "not a list of record numbers"),
        (" ".join(map(str, range(12))), "these are all records of the client"),
    ],
)
def test_what_cannot_be_forgotten_is_said_and_nothing_changes(lived, numbers, message):
    before = head_path(lived / "run", "north").read_bytes()
    assert message in refused(*forget(lived, numbers))
    assert head_path(lived / "run", "north").read_bytes() == before


def test_a_record_is_forgotten_once(lived):
    securefl(*forget(lived, "3"))
    assert "record 3 is forgotten already" in refused(*forget(lived, "3 4"))


def test_a_head_without_an_index_says_so(lived):
    head_path(lived / "run", "north").with_name("index").unlink()
    assert 'client "north": no record index' in refused(*add(lived))


def test_an_explanation_has_the_weights_of_the_reference_machine(lived):
    """`kahm.machine`, the paper's own form, on the records that are named."""
    query = (*north(lived), lived / "clients" / "south.npz", "--row", "3")
    out, err = securefl("explain", *query, "--json", "--top", "12")
    found = json.loads(out)
    assert "private records" in err
    X = scaled(lived, "north").astype(float)
    point = scaled(lived, "south")[3:4].astype(float)
    by_row = {each["row"]: each["weight"] for each in found["records"]}
    rows = sorted(by_row)
    machine = KAHM.fit(X[rows])
    np.testing.assert_allclose([by_row[i] for i in rows], machine.weights(point)[0], atol=1e-9)
    assert found["measure"] == pytest.approx(float(machine.measure(point)[0]), abs=1e-9)
    assert found["distance"] == pytest.approx(np.linalg.norm(point - machine.fold(point)))
    assert min(found["measures"].values()) == pytest.approx(found["measure"], abs=1e-5)
    assert found["class"] == min(found["measures"], key=found["measures"].get)


def test_an_explanation_of_a_query_that_is_not_there_is_refused(lived):
    query = (*north(lived), lived / "clients" / "south.npz", "--row", "12")
    assert "no row 12, it has 12, numbered from 0" in refused("explain", *query)


def test_options_without_a_meaning_are_refused(lived):
    (lived / "books").mkdir()
    said = "--ledgers has no meaning for a head that is no release"
    assert said in refused(*add(lived, "--ledgers", lived / "books"))
    assert said in refused(*forget(lived, "3", "--ledgers", lived / "books"))
    code, _, err = run("migrate", lived / "run", "--seed", "3")
    assert code == 2
    assert "--seed has no meaning without --records" in err
