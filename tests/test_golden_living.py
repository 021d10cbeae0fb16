"""What heads that live leave on disk: read as it was written, for ever; `golden/v6` has it.

It was written by the commands: two clients' releases, an update and an erasure in the north, a
successor without the south, and a watch.
"""

import shutil
from pathlib import Path

import numpy as np
import pytest

import dp
from secure_fl.data import read_clients
from secure_fl.errors import InputError
from secure_fl.heads.fitting import read_party
from secure_fl.heads.forgetting import forget
from secure_fl.heads.index import index_path, load_index
from secure_fl.heads.manifest import load_manifest
from secure_fl.heads.migrating import migrate
from secure_fl.heads.receipts import listed_key, read_receipt
from secure_fl.heads.statements import load_statement
from secure_fl.heads.updating import open_living, update
from secure_fl.heads.watching import load_watch
from secure_fl.service.succession import check, load_successor

V4, V6 = (Path(__file__).parent / "golden" / name for name in ("v4", "v6"))


def test_an_index_and_its_head_are_read_and_live_on(tmp_path):
    run = shutil.copytree(V6 / "run", tmp_path / "run")
    manifest = load_manifest(run)
    living = open_living(run, "north", manifest)
    assert living.index.arrivals == (8, 4)
    assert np.flatnonzero(living.index.batch < 0).tolist() == [2, 9]
    erasure, _ = forget(run, "north", rows=[3], ledgers=V6 / "clients.ledgers")
    assert (erasure.records, erasure.left) == (1, 9)
    assert load_statement(run / "clients" / "north" / "statement.json").rows == 9


def test_books_with_parts_keep_their_total():
    ledger = dp.Ledger.open(V6 / "clients.ledgers" / "north.jsonl")
    assert len(ledger.events) == 2
    assert ledger.get_epsilon(0.0, dp.Element(1.0)).epsilon == pytest.approx(4.0)


def test_a_receipt_is_verified():
    manifest = load_manifest(V6 / "run")
    found = read_receipt(V6 / "receipt.json", listed_key(manifest, "north"), manifest.fingerprint)
    assert (found.client, found.records, found.left) == ("north", 2, 10)


def test_a_successor_is_taken_over():
    successor = load_successor(V6 / "successor.json")
    check(successor, load_manifest(V6 / "run"))
    assert successor.manifest.clients == ("north",)
    assert load_index(V6 / "run", "north", successor.manifest).arrivals == (8, 4)


def test_a_watch_goes_on():
    assert load_watch(V6 / "watch.json", np.array([0.1, 0.2])).counts().sum() == 3


@pytest.fixture
def old_run(tmp_path):
    """Of version 0.1.0, without indexes."""
    return shutil.copytree(V4 / "run-plain", tmp_path / "run")


def test_heads_of_version_0_1_get_an_index_of_their_files_and_live(old_run):
    manifest = load_manifest(old_run)
    assert {each.state for each in migrate(old_run, {})} == {"needs its records"}
    head = (old_run / "clients" / "north" / "head").read_bytes()
    clients = read_party(V4 / "clients", manifest, old_run, None)
    found = migrate(old_run, {each.name: each for each in clients})
    assert {each.state for each in found} == {"indexed"}
    assert {each.state for each in migrate(old_run, {})} == {"current"}
    assert (old_run / "clients" / "north" / "head").read_bytes() == head
    (north,) = (each for each in clients if each.name == "north")
    done = update(old_run, "north", north, again=True)
    assert done.records == 2 * len(north)


def test_a_head_is_not_migrated_with_other_records(old_run):
    """In another order they would make other batches."""
    (north,) = (each for each in read_clients(V4 / "clients") if each.name == "north")
    order = np.arange(len(north))[::-1]
    with pytest.raises(InputError, match="training does not make the head"):
        migrate(old_run, {"north": north.select(order)})
    assert not index_path(old_run, "north").exists()


def test_old_releases_are_named():
    found = migrate(V4 / "run-private", {})
    assert {each.state for each in found} == {"a release"}
    assert "costs privacy again" in found[0].said
