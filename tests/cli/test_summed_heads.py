"""A head that is one release of sums over all clients: it cannot change, only be released anew."""

import json

import attrs
import numpy as np
import pytest

from dp import Ledger
from secure_fl.crypto.identities import read_identity
from secure_fl.data import Dataset, write_clients
from secure_fl.heads.forgetting import Erasure
from secure_fl.heads.manifest import FILE_NAME, load_manifest, save_manifest
from tests.cli.command import refused, securefl

PROMISE = ("--epsilon", 8, "--delta", 1e-5, "--unit", "record", "--norm", 4)
METHOD = ("--method", "kahm-record-private", *PROMISE, "--aggregate", "secure")
CLIENTS = ("north", "south")


def records(rng, n, name):
    y = np.arange(n, dtype=np.int64) % 2
    X = rng.normal(size=(n, 3)).astype(np.float32)
    X[:, 0] += 3 * y
    return Dataset(X, y, ("no", "yes"), name)


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    """A run of two clients, with books of no budget, the north's key and a day's new records."""
    folder = tmp_path_factory.mktemp("released")
    rng = np.random.default_rng(0)
    write_clients(folder / "clients", [records(rng, 60, name) for name in CLIENTS])
    write_clients(folder / "new", [records(rng, 6, "monday")])
    securefl("train", folder / "clients", "--out", folder / "run", *METHOD)
    securefl("serve", "identity", folder / "north.secret")
    return folder


def forget(folder, records, *more):
    own = ("--records", records, "--identity", folder / "north.secret")
    return ("forget", folder / "run", "--client", "north", *own, *more)


def test_records_cannot_be_added_and_the_command_that_can_is_named(released):
    run = released / "run"
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    day = released / "new" / "monday.npz"
    said = refused("update", run, "--client", "north", "--add", day)
    assert "the head is one release of noisy sums over all clients" in said
    assert (
        f"securefl train SOURCE --federation {run / FILE_NAME} --method kahm-record-private" in said
    )
    assert before == {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}


def test_an_erasure_changes_no_head_and_its_receipt_says_what_is_promised(released, tmp_path):
    """The sums hold something of the record for ever, which epsilon bounds."""
    run = released / "run"
    heads = {name: (run / "clients" / name / "head").read_bytes() for name in CLIENTS}
    clients = released / "clients"
    command = forget(released, clients / "north.npz", "--search", clients)
    out, _ = securefl(*command, "--json", "--quiet")
    found = json.loads(out)
    assert (found["records"], found["rebuilt"], found["artifacts"]) == (60, 0, [])
    assert [each["records"] for each in found["elsewhere"]] == [60]
    assert "north.npz" in found["elsewhere"][0]["path"]
    assert "promise of epsilon 8 at delta 1e-05 per record" in found["not_recalled"][0]
    assert "without the records" in found["not_recalled"][0]
    assert heads == {name: (run / "clients" / name / "head").read_bytes() for name in CLIENTS}
    public = read_identity(released / "north.secret").public.hex()
    text, _ = securefl("receipt", "verify", found["receipt"], "--key", public)
    assert "60 records named; the head holds none of them" in text
    assert {each.name for each in attrs.fields(Erasure)} < set(found)


def test_records_that_are_only_numbered_cannot_be_forgotten_where_there_is_no_index(
    released, tmp_path
):
    (tmp_path / "gone.txt").write_text("4\n")
    said = refused(*forget(released, tmp_path / "gone.txt"))
    assert "numbers no records; name a client file with the records themselves" in said


def test_migrate_says_what_the_head_is(released):
    out, _ = securefl("migrate", released / "run")
    assert out.count("one release of sums over all clients") == 2


def test_a_new_release_is_booked_by_every_client_and_keeps_the_federation(released, tmp_path):
    """The same records are in both releases, so the books add them up."""
    books = released / "clients.ledgers"
    before = {name: len(Ledger.open(books / f"{name}.jsonl").events) for name in CLIENTS}
    run, anew = released / "run", tmp_path / "anew"
    securefl("train", released / "clients", "--out", anew, "--federation", run / FILE_NAME, *METHOD)
    assert load_manifest(anew) == load_manifest(run)
    after = {name: len(Ledger.open(books / f"{name}.jsonl").events) for name in CLIENTS}
    assert after == {name: count + 1 for name, count in before.items()}
    heads = {(anew / "clients" / name / "head").read_bytes()[-4096:] for name in CLIENTS}
    assert heads.isdisjoint({(run / "clients" / "north" / "head").read_bytes()[-4096:]})


def test_a_new_release_needs_the_records_of_all_clients_and_spends_nothing_without(
    released, tmp_path
):
    books = released / "clients.ledgers"
    before = [path.read_bytes() for path in sorted(books.iterdir())]
    north = released / "clients" / "north.npz"
    facts = released / "run" / FILE_NAME
    command = ("train", north, "--out", tmp_path / "anew", "--federation", facts)
    assert "no records of south; its head is a sum over all clients" in refused(*command, *METHOD)
    assert not (tmp_path / "anew").exists()
    assert [path.read_bytes() for path in sorted(books.iterdir())] == before


def test_clients_of_a_successor_are_summed_in_its_order(released, tmp_path):
    """Files are read by their names, and members listed as they joined."""
    manifest = load_manifest(released / "run")
    agreed = tmp_path / "agreed"
    agreed.mkdir()
    save_manifest(agreed, attrs.evolve(manifest, clients=("south", "north")))
    anew = tmp_path / "anew"
    securefl(
        "train", released / "clients", "--out", anew, "--federation", agreed / FILE_NAME, *METHOD
    )
    assert load_manifest(anew).clients == ("south", "north")
    assert {path.name for path in (anew / "clients").iterdir()} == set(CLIENTS)
