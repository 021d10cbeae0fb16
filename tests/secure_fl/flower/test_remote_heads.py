"""Heads trained at nodes: the heads of one process, kept where the records are."""

from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

from dp import Budget, Element, Ledger
from kahm import classify
from secure_fl.data import Dataset, read_clients, write_clients
from secure_fl.errors import FederationError, InputError
from secure_fl.federation import QuorumError, wire
from secure_fl.flower.transport import ANSWER, REQUEST
from secure_fl.heads.fitting import train_heads
from secure_fl.heads.head import head_path
from secure_fl.heads.manifest import load_manifest
from secure_fl.heads.run_folder import all_measures, create_run, load_run
from secure_fl.trainers.linear.kahm_record_private import REFINEMENTS
from tests.secure_fl.flower.machines import NAMES, Machines
from tests.secure_fl.flower.successors import AFTER, adopted

PRIVATE = {"epsilon": 5.0, "delta": 1e-3, "unit": "element", "bounds": "-1,1", "grid": 2.0**-8}


@pytest.fixture
def machines(tmp_path: Path) -> Machines:
    return Machines(tmp_path)


@pytest.mark.parametrize("batching", ["order", "clusters"])
def test_heads_have_the_bytes_of_one_process_and_stay_at_their_nodes(
    machines: Machines, batching: str
) -> None:
    manifest = machines.heads("run", batching=batching, seed=3)
    data = read_clients(machines.folder / "clients")
    scaled = [(each.name, each.X * each.X.dtype.type(0.5), each.y) for each in data]
    heads = train_heads(scaled, manifest, seed=3)
    create_run(machines.folder / "here", heads, manifest)
    for name in NAMES:
        kept = head_path(machines.run(name, manifest), name)
        assert kept.read_bytes() == head_path(machines.folder / "here", name).read_bytes()
        assert kept.stat().st_mode & 0o077 == 0
        assert load_manifest(machines.run(name, manifest)) == manifest
    assert [path.name for path in (machines.folder / "run").iterdir()] == ["federation.json"]
    assert max(map(len, machines.seen)) < 500


def test_a_federation_of_remote_heads_classifies(machines: Machines) -> None:
    manifest = machines.heads("run")
    heads = [load_run(machines.run(name, manifest), [name])[1][0] for name in NAMES]
    data = read_clients(machines.folder / "clients")
    X = np.concatenate([each.X for each in data]).astype(np.float32) * np.float32(0.5)
    right = classify(all_measures(heads, X, manifest)) == np.concatenate([d.y for d in data])
    assert right.mean() > 0.9


@pytest.mark.parametrize("when", ["facts", "head"])
def test_a_node_that_dies_is_left_out_and_joins_by_another_run(
    machines: Machines, when: str
) -> None:
    machines.lost = lambda name, what: name == "c1" and what == when
    without = machines.heads("two", threshold=2)
    assert without.clients == ("c0", "c2")
    assert all(machines.run(name, without).exists() for name in without.clients)
    machines.lost = lambda name, what: False
    assert machines.heads("three").clients == NAMES


def test_below_the_threshold_no_federation_is_written(machines: Machines) -> None:
    machines.lost = lambda name, what: name == "c1" and what == "head"
    with pytest.raises(QuorumError, match="2 clients left of 3, the threshold is 3"):
        machines.heads("run")
    assert not (machines.folder / "run").exists()


def test_a_private_head_is_released_once_whatever_is_asked(machines: Machines) -> None:
    """Three runs, one of them without c1: each client's books hold one event."""
    for name in NAMES:
        books = machines.folder / name / "books"
        machines.own[name] = {"ledger": str(books), "epsilon": 5.0, "delta": 1e-3}
    first = machines.heads("first", **PRIVATE)
    machines.lost = lambda name, what: name == "c1"
    second = machines.heads("second", threshold=2, **PRIVATE)
    machines.lost = lambda name, what: False
    assert machines.heads("third", **PRIVATE) == first
    assert second.clients == ("c0", "c2")
    assert first.unit == "element"
    for name in NAMES:
        assert len(Ledger.open(machines.folder / name / "books").events) == 1
    heads = [load_run(machines.run("c0", each), ["c0"])[1][0] for each in (first, second)]
    assert heads[0].bank.records.tobytes() == heads[1].bank.records.tobytes()
    for file in ("statement.json", "statement.txt"):
        texts = [machines.run("c0", each) / "clients" / "c0" / file for each in (first, second)]
        assert texts[0].read_text() == texts[1].read_text() != ""


def test_a_server_that_asks_for_many_releases_meets_the_owners_budget(machines: Machines) -> None:
    for name in NAMES:
        books = machines.folder / name / "books"
        machines.own[name] = {"ledger": str(books), "epsilon": 5.0, "delta": 1e-3}
    machines.heads("first", **PRIVATE)
    with pytest.raises(QuorumError):
        machines.heads("second", **PRIVATE, method="kahm", batch_size=7)
    ledger = Ledger.open(machines.folder / "c0" / "books")
    assert ledger.budget == Budget(5.0, 1e-3, Element(1.0))
    assert len(ledger.events) == 1


def test_a_node_with_books_trains_no_head_without_noise(machines: Machines) -> None:
    machines.own["c1"] = {"ledger": str(machines.folder / "books")}
    with pytest.raises(QuorumError):
        machines.heads("run")


def test_a_private_head_without_books_is_refused(machines: Machines) -> None:
    with pytest.raises(QuorumError):
        machines.heads("run", **PRIVATE)
    assert not (machines.folder / "c0" / "heads").exists() or not list(
        (machines.folder / "c0" / "heads").iterdir()
    )


def test_a_public_head_of_masked_sums_is_booked_by_every_node_and_by_the_server(
    machines: Machines,
) -> None:
    for name in NAMES:
        machines.own[name] = {
            "ledger": str(machines.folder / name / "books"),
        }
    books = machines.folder / "server.books"
    promise = {"epsilon": 50.0, "delta": 1e-3, "norm": 1.0, "ledger": str(books)}
    plan = {"method": "kahm-record-private", "batch_size": 5, **promise}
    with pytest.raises(InputError, match="batch-size: no setting"):
        machines.heads("run", **plan)
    del plan["batch_size"]
    with pytest.raises(InputError, match="needs epsilon, norm and ledger"):
        machines.heads("run", method="kahm-record-private")
    manifest = machines.heads("run", **plan)
    assert manifest.unit == "record"
    _, heads = load_run(machines.folder / "run")
    assert [head.client for head in heads] == list(NAMES)
    assert len({head.bank.records.tobytes() for head in heads}) == 1
    for ledger in (Ledger.open(machines.folder / name / "books") for name in NAMES):
        assert len(ledger.events) == 1 + REFINEMENTS
        spent = [each.get_epsilon(1e-3).epsilon for each in (ledger, Ledger.open(books))]
        assert spent[0] == pytest.approx(spent[1], rel=1e-3)


@pytest.mark.parametrize(
    "forged",
    [
        {"clients": ("c1", "c0", "c2")},
        {"clients": ("c1", "c2")},
        {"clients": ("c0", "stranger")},
        {"batch_size": 6},
        {"classes": ("x", "y")},
        {"low": 0.5},
        {"scale": 1.0},
        {"unit": "record"},
    ],
)
def test_a_server_that_tells_other_facts_gets_no_head(
    machines: Machines, forged: dict[str, Any]
) -> None:
    manifest = machines.heads("run")
    told = attrs.asdict(manifest) | forged
    request = wire.encode({"do": "head", "federation": told}, kind=REQUEST)
    answer = wire.decode(machines.node("c0").answer(request), kind=ANSWER)
    assert set(answer) == {"dropped"}
    assert len(list((machines.folder / "c0" / "heads").iterdir())) == 1


def test_changed_records_do_not_replace_a_head_that_is_in_use(machines: Machines) -> None:
    manifest = machines.heads("run")
    kept = head_path(machines.run("c0", manifest), "c0")
    before = kept.read_bytes()
    (old,) = (each for each in read_clients(machines.folder / "clients") if each.name == "c0")
    changed = Dataset(old.X + 1, old.y, old.classes, "c0")
    write_clients(machines.folder / "other", (changed,))
    machines.own["c0"] = {"data": str(machines.folder / "other" / "c0.npz")}
    with pytest.raises(QuorumError):
        machines.heads("again")
    assert kept.read_bytes() == before


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epsilon": 1.0}, "bounds: missing"),
        ({**PRIVATE, "unit": "record"}, "unit: found 'record'"),
        ({**PRIVATE, "bounds": "wide"}, "bounds: found 'wide'"),
        ({"rounds": 3}, "rounds: no setting of a run"),
        ({"bits": 40}, "bits"),
    ],
)
def test_a_plan_of_heads_is_checked(
    machines: Machines, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        machines.heads("run", **settings)


def test_the_schema_of_all_clients_is_the_federations(machines: Machines) -> None:
    def prepare(name: str, digest: str) -> None:
        path = machines.folder / "clients" / f"{name}.npz"
        with np.load(path) as stored:
            arrays = {key: stored[key] for key in stored.files if key != "schema"}
        np.savez(path, **arrays, schema=np.array([digest]))

    for name in NAMES:
        prepare(name, "a" * 64)
    assert machines.heads("run").schema == "a" * 64
    prepare(NAMES[1], "b" * 64)
    with pytest.raises(FederationError, match=f'client "{NAMES[1]}": has .* of schema bbbb'):
        machines.heads("other")


def test_heads_go_on_under_a_successor_and_only_the_newcomer_trains(machines: Machines) -> None:
    """c0's head is not released again: its books and its machines are what they were."""
    for name in NAMES:
        books = machines.folder / name / "books"
        machines.own[name] = {"ledger": str(books), "epsilon": 5.0, "delta": 1e-3}
    before = machines.heads("before", clients="c0,c1", threshold=2, **PRIVATE)
    agreed = adopted(machines.folder, before)
    for name in AFTER:
        machines.own[name] |= {"federation": str(agreed)}
    plan = {"clients": "c0,c2", "federation": str(agreed), **PRIVATE}
    after = machines.heads("after", **plan)
    assert after == load_manifest(agreed)
    assert [each for each, _ in after.lineage][-1] != before.fingerprint  # the enrolled one
    for name in AFTER:
        assert len(Ledger.open(machines.folder / name / "books").events) == 1
    old, new = (load_run(machines.run("c0", each), ["c0"])[1][0] for each in (before, after))
    assert old.bank.records.tobytes() == new.bank.records.tobytes()
    assert load_run(machines.run("c2", after), ["c2"])[1][0].client == "c2"


def test_a_node_makes_no_head_of_another_federation_than_its_owner_named(
    machines: Machines,
) -> None:
    """Neither the one before the successor, nor a server's own."""
    agreed = adopted(machines.folder, machines.heads("before", clients="c0,c1", threshold=2))
    for name in NAMES:
        machines.own[name] = {"federation": str(agreed)}
    kept = sorted((machines.folder / "c0" / "heads").iterdir())
    with pytest.raises(QuorumError):
        machines.heads("again", clients="c0,c1", threshold=2)
    with pytest.raises(QuorumError):
        machines.heads("other", clients="c0,c2", threshold=2)
    assert sorted((machines.folder / "c0" / "heads").iterdir()) == kept


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"clients": "c0,c1"}, "differs from the run's in clients"),
        ({"batch_size": 4}, "differs from the run's in batch_size"),
    ],
)
def test_a_run_of_other_facts_than_were_agreed_on_is_refused(
    machines: Machines, changed: dict[str, Any], message: str
) -> None:
    agreed = adopted(machines.folder, machines.heads("before", clients="c0,c1", threshold=2))
    plan = {"method": "kahm", "batch_size": 5, "clients": "c0,c2", "federation": str(agreed)}
    with pytest.raises(FederationError, match=message):
        machines.train("after", **{**plan, **changed})


def test_a_server_alone_gets_no_head_of_a_successor(machines: Machines) -> None:
    """Its members and its past are the owner's to take over, and not a server's to tell."""
    agreed = adopted(machines.folder, machines.heads("before", clients="c0,c1", threshold=2))
    with pytest.raises(QuorumError, match="0 clients left of 2"):
        machines.heads("after", clients="c0,c2", federation=str(agreed))
    assert len(list((machines.folder / "c0" / "heads").iterdir())) == 1
    assert not (machines.folder / "c2" / "heads").exists()


def test_an_agreed_federation_lacks_no_client(machines: Machines) -> None:
    agreed = adopted(machines.folder, machines.heads("before", clients="c0,c1", threshold=2))
    machines.own["c0"] = {"federation": str(agreed)}
    machines.lost = lambda name, what: name == "c2" and what == "head"
    with pytest.raises(QuorumError, match="1 clients left of 2, the threshold is 2"):
        machines.heads("after", clients="c0,c2", federation=str(agreed), threshold=1)
