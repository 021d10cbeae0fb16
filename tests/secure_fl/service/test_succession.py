"""Members join and leave: nothing is trained anew, and nobody is moved without everybody's word."""

import json

import attrs
import numpy as np
import pytest

from secure_fl.errors import InputError
from secure_fl.heads.fitting import train_heads
from secure_fl.heads.head import load_head
from secure_fl.heads.index import load_index
from secure_fl.heads.manifest import load_manifest, make_manifest, save_manifest
from secure_fl.heads.run_folder import create_run
from secure_fl.service.members import enrol, make_member_keys, read_member
from secure_fl.service.succession import (
    Successor,
    adopt,
    check,
    load_successor,
    propose,
    save_successor,
    sign,
)

NAMES = ("north", "south", "west", "querier", "evaluator")


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """Secret files of everybody, and their public keys by name."""
    folder = tmp_path_factory.mktemp("keys")
    return folder, {name: make_member_keys(folder / name) for name in NAMES}


@pytest.fixture
def old(keys):
    facts = make_manifest(
        classes=("no", "yes"), clients=("north", "south"), n_features=3, batch_size=4
    )
    return enrol(facts, {name: key for name, key in keys[1].items() if name != "west"})


def signed(successor, folder, but=()):
    for name, _ in successor.manifest.members:
        if name not in but:
            successor = sign(successor, read_member(folder / name, name, successor.manifest))
    return successor


def trained(folder, facts):
    rng = np.random.default_rng(0)
    data = [(name, rng.normal(size=(12, 3)), np.arange(12) % 2) for name in facts.clients]
    create_run(folder, train_heads(data, facts), facts)
    return folder


def test_heads_and_indexes_of_those_who_stay_are_valid_in_every_successor(tmp_path, keys, old):
    """One joins, then one leaves; no file of a client is touched."""
    folder, public = keys
    run = trained(tmp_path / "run", old)
    before = {path: path.read_bytes() for path in (run / "clients").rglob("*") if path.is_file()}
    with_west = signed(propose(old, {"west": public["west"]}, frozenset()), folder)
    assert adopt(run, with_west) == old
    then = load_manifest(run)
    assert then.clients == ("north", "south", "west")
    without_south = signed(propose(then, {}, frozenset({"south"})), folder)
    adopt(run, without_south)
    last = load_manifest(run)
    assert last.clients == ("north", "west")
    assert [each for each, _ in last.lineage] == [old.fingerprint, then.fingerprint]
    assert load_head(run, "north", last).client == "north"
    assert load_index(run, "north", last).arrivals == (12,)
    assert before == {path: path.read_bytes() for path in before}


def test_a_head_of_no_ancestor_is_refused(tmp_path, keys, old):
    _, public = keys
    run = trained(tmp_path / "run", attrs.evolve(old, batch_size=5))
    save_manifest(run, propose(old, {"west": public["west"]}, frozenset()).manifest)
    with pytest.raises(InputError, match="belongs to another federation"):
        load_head(run, "north", load_manifest(run))


def test_a_client_that_joins_takes_the_manifest_over_without_one_before(tmp_path, keys, old):
    folder, public = keys
    successor = signed(propose(old, {"west": public["west"]}, frozenset()), folder)
    assert adopt(tmp_path / "new", successor) is None
    assert load_manifest(tmp_path / "new") == successor.manifest


@pytest.mark.parametrize("missing", ["south", "west", "querier"])
def test_every_member_that_it_names_must_have_signed(keys, old, missing):
    folder, public = keys
    successor = propose(old, {"west": public["west"]}, frozenset())
    with pytest.raises(InputError, match=f"not signed by {missing}"):
        check(signed(successor, folder, but=(missing,)), old)


def test_a_client_that_leaves_need_not_sign(keys, old):
    folder, _ = keys
    check(signed(propose(old, {}, frozenset({"south"})), folder), old)


def test_a_signature_of_another_manifest_or_member_is_refused(keys, old):
    folder, public = keys
    joins = signed(propose(old, {"west": public["west"]}, frozenset()), folder)
    leaves = propose(old, {}, frozenset({"south"}))
    names = [name for name, _ in leaves.manifest.members]
    with pytest.raises(InputError, match="the signature of 'north' is not its own"):
        check(Successor(leaves.manifest, {name: joins.signatures[name] for name in names}), old)


def test_a_successor_of_another_manifest_is_refused(keys, old):
    folder, public = keys
    other = attrs.evolve(old, bits=9)
    successor = signed(propose(other, {"west": public["west"]}, frozenset()), folder)
    with pytest.raises(InputError, match=f"follows another manifest than {old.fingerprint[:16]}"):
        check(successor, old)


def test_a_successor_that_changes_more_than_members_is_refused(keys, old):
    """Even if all sign it: heads would be read under other facts than they were made for."""
    folder, _ = keys
    successor = propose(old, {}, frozenset({"south"}))
    changed = Successor(attrs.evolve(successor.manifest, scale=2.0))
    with pytest.raises(InputError, match="changes scale, and may change members alone"):
        check(signed(changed, folder), old)


def test_a_successor_comes_back_from_its_file_and_not_edited(tmp_path, keys, old):
    folder, public = keys
    path = tmp_path / "successor.json"
    successor = signed(propose(old, {"west": public["west"]}, frozenset()), folder)
    save_successor(path, successor)
    assert load_successor(path) == successor
    content = json.loads(path.read_text())
    content["manifest"]["clients"] = ["north", "west"]
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match="expected those of all clients"):
        load_successor(path)


@pytest.mark.parametrize(
    ("joining", "leaving", "message"),
    [
        ({}, {"east"}, "'east': cannot leave, the clients are north, south"),
        ({}, {"querier"}, "'querier': cannot leave"),
        ({}, set(), "nobody joins, leaves or has a new key"),
        ({}, {"north", "south"}, "clients"),
        ({"west": "ab"}, set(), "no keys of 128 hexadecimal digits for 'west'"),
    ],
)
def test_what_cannot_be_proposed_is_refused(old, joining, leaving, message):
    with pytest.raises(InputError, match=message):
        propose(old, joining, frozenset(leaving))


def test_a_key_of_another_member_is_refused(keys, old):
    with pytest.raises(InputError, match="two of them have the same key"):
        propose(old, {"west": keys[1]["north"]}, frozenset())
