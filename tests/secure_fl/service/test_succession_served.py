"""A federation that is served gets a successor: one client leaves, one joins, the others go on."""

import dataclasses
import json
import shutil
import signal

import numpy as np
import pytest

pytest.importorskip("prometheus_client", reason="needs the extra `service` (securefl[service])")

from secure_fl.demo.service_parties import IDENTITY, copy_parties, deployment
from secure_fl.errors import InputError, ServiceError
from secure_fl.heads.codes import head_codes
from secure_fl.heads.fitting import train_heads
from secure_fl.heads.head import head_path, load_head, save_head
from secure_fl.heads.manifest import load_manifest
from secure_fl.service.evaluator import SUCCEEDED, Evaluator
from secure_fl.service.limits import Limits
from secure_fl.service.members import make_member_keys, read_member, signature_keys
from secure_fl.service.registry import Federation, load_federations
from secure_fl.service.store import Store
from secure_fl.service.succession import adopt, propose, sign
from tests.secure_fl.service.conftest import CENTRES
from tests.secure_fl.service.parties import Players

FIRST = slice(0, 2)
STAYING = ("north", "west")


@pytest.fixture
def folder(made, tmp_path):
    copy_parties(made.folder, tmp_path / "parties")
    return tmp_path / "parties"


def successor_of(folder, manifest, leaving="south", joining="east"):
    """A signed successor in which one client took another one's place, whose folder is made."""
    (folder / joining).mkdir()
    key = make_member_keys(folder / joining / IDENTITY)
    found = propose(manifest, {joining: key}, frozenset({leaving}))
    for name, _ in found.manifest.members:
        found = sign(found, read_member(folder / name / IDENTITY, name, found.manifest))
    return found


def take_over(folder, successor):
    """Every party adopts it; the newcomer trains, and gets the querier's public key."""
    for name, _ in successor.manifest.members:
        adopt(folder / name, successor)
    rng = np.random.default_rng(7)
    y = rng.integers(0, 3, 40)
    X = (CENTRES[y] + rng.normal(size=(40, 2))).astype(np.float32)
    (head,) = train_heads([("east", X, y)], load_manifest(folder / "east"))
    save_head(folder / "east", head, load_manifest(folder / "east"))
    shutil.copyfile(folder / "north" / "public.key", folder / "east" / "public.key")


def after(made, folder):
    """What the tests know of the successor's federation."""
    manifest = load_manifest(folder / "north")
    heads = [load_head(folder / name, name, manifest) for name in manifest.clients]
    codes = np.stack([head_codes(head, made.queries, manifest) for head in heads], axis=1)
    return dataclasses.replace(made, manifest=manifest, codes=codes)


def serving(folder):
    """An evaluator of this process over its own folder."""
    own = folder / "evaluator"
    manifest = load_manifest(own)
    # Without the querier's key: nothing is evaluated here, and it takes a second to load.
    each = Federation(own, manifest, {}, signature_keys(manifest))
    member = read_member(own / IDENTITY, "evaluator", manifest)
    return Evaluator({manifest.fingerprint: (each, member)}, own / "state", Limits())


def test_batches_of_the_federation_before_end_with_the_reason_and_are_erased(made, folder):
    """Nobody may answer under two manifests, so what was sent under the old one is of no use."""
    old = made.manifest.fingerprint
    before = serving(folder)
    opening = {"queries": 2, "quorum": 2, "patient_until": 0.0, "expires": 2e9, "queue": 9}
    before.store.open(old, "waits", "x", dict.fromkeys(made.manifest.clients, b"query"), **opening)
    before.store.accept(before.store.find(old, "waits"), "north", b"contribution")
    before.close()
    take_over(folder, successor_of(folder, made.manifest))
    now = serving(folder)
    batch = now.store.find(old, "waits")
    assert (batch.state, batch.reason) == ("failed", SUCCEEDED)
    assert now.store.contribution(batch, "north") is None
    assert now.store.sealed(batch, "south") is None
    now.close()


def test_an_old_key_folder_of_fewer_contributors_is_refused(made, folder):
    """Keys stay valid while their number does; a federation that grew needs new ones."""
    grown = propose(
        made.manifest, {"east": make_member_keys(folder / "east.identity")}, frozenset()
    )
    for name, _ in grown.manifest.members:
        own = folder / name / IDENTITY if name != "east" else folder / "east.identity"
        grown = sign(grown, read_member(own, name, grown.manifest))
    adopt(folder / "evaluator", grown)
    with pytest.raises(InputError, match="make new ones"):
        load_federations([folder / "evaluator"])


@pytest.mark.slow  # eight starts of real processes
def test_a_running_service_goes_on_under_a_successor(made, folder):
    """Heads, keys, identities and memories stay; what is of the old manifest is refused."""
    heads = {name: head_path(folder / name, name).read_bytes() for name in STAYING}
    with deployment(folder) as running:
        running.start("evaluator", "--rate", "1000", "--burst", "1000")
        running.start_contributors(STAYING, "--repeats", "2")
        then = Players(made, running)
        answered = then.open(FIRST)
        contribution = then.contribute("south", answered)
        assert then.fetch(answered).classes.tolist() == made.clear(FIRST)
        waiting = then.open(slice(10, 12))
        successor = successor_of(folder, made.manifest)
        for name in ("evaluator", *STAYING):
            assert running.kill(name, signal.SIGTERM) == 0
        take_over(folder, successor)
        running.start("evaluator", "--rate", "1000", "--burst", "1000")
        refused = then.send("south", "GET", "/asked")
        assert refused.status_code == 401
        named = f"a successor of this federation is served, {successor.manifest.fingerprint[:16]}"
        assert named in refused.json()["detail"]
        running.start_contributors((*STAYING, "east"), "--repeats", "2")
        found = after(made, folder)
        queries = running.query(folder / "queries.npy", "--rows", "0:4")
        out, err = queries.communicate(timeout=240)
        assert queries.returncode == 0, err.decode()
        clients = ("north", "west", "east")
        expected = found.clear(slice(0, 4), clients)
        assert json.loads(out)["classes"] == [made.manifest.classes[c] for c in expected]
        assert json.loads(out)["present"] == sorted(clients)
        now = Players(found, running)
        batch = now.open(FIRST)
        for sender in STAYING:
            sent = now.send(sender, "PUT", f"/batches/{batch}/contribution", contribution)
            assert sent.status_code in (409, 422)
        with pytest.raises(ServiceError, match="query 0 was answered 2 times in 24 hours"):
            now.fetch(batch)
        for name in ("evaluator", *STAYING, "east"):
            assert running.kill(name, signal.SIGTERM) == 0
            assert "Traceback" not in running.log(name)
    store = Store(folder / "evaluator" / "state" / "batches.db")
    assert store.find(made.manifest.fingerprint, waiting).reason == SUCCEEDED
    store.close()
    assert heads == {name: head_path(folder / name, name).read_bytes() for name in STAYING}
