"""A federation of heads over nodes, and its successor: c1 leaves and c2 joins."""

from pathlib import Path

from secure_fl.crypto.identities import EVALUATOR, QUERIER
from secure_fl.heads.manifest import Manifest, load_manifest, save_manifest
from secure_fl.service.members import enrol, make_member_keys, read_member
from secure_fl.service.succession import Successor, adopt, propose, sign

BEFORE, AFTER = ("c0", "c1"), ("c0", "c2")


def adopted(folder: Path, manifest: Manifest) -> Path:
    """Everybody's federation.json after all signed; c0 takes it over from the one before."""
    keys = {
        name: make_member_keys(folder / f"{name}.member")
        for name in (*BEFORE, "c2", QUERIER, EVALUATOR)
    }
    enrolled = enrol(manifest, {name: keys[name] for name in (*BEFORE, QUERIER, EVALUATOR)})
    agreed = folder / "agreed"
    agreed.mkdir()
    save_manifest(agreed, enrolled)
    successor: Successor = propose(enrolled, {"c2": keys["c2"]}, frozenset({"c1"}))
    for name, _ in successor.manifest.members:
        member = read_member(folder / f"{name}.member", name, successor.manifest)
        successor = sign(successor, member)
    assert adopt(agreed, successor) == enrolled
    assert load_manifest(agreed).clients == AFTER
    return agreed
