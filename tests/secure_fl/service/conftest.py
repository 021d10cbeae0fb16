"""A federation of three small clients with keys, made once; and its parties' folders."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import fhe
from kahm import classify
from secure_fl.heads.codes import head_codes
from secure_fl.heads.fitting import train_heads
from secure_fl.heads.manifest import Manifest, make_manifest

CLIENTS = ("north", "south", "west")
CENTRES = np.array([[0, 0], [3, 0], [0, 3]])


@dataclass(frozen=True)
class Made:
    """What the tests know of the federation.

    Attributes:
        folder: one folder a party.
        manifest: with members.
        queries: shape (n, 2).
        codes: of all clients, shape (n, clients, classes).
        parameters: of the rule.
    """

    folder: Path
    manifest: Manifest
    queries: np.ndarray
    codes: np.ndarray
    parameters: fhe.RuleParameters

    def clear(self, queries, present=CLIENTS):
        """The clear rule's classes over some clients."""
        positions = [self.manifest.client_index(name) for name in present]
        packing = self.parameters.packing
        packed = packing.pack(self.codes[queries][:, positions])
        return packing.class_of(packed.min(axis=1)).tolist()


def set_up_blobs(
    folder, seed, clients=CLIENTS, queriers=("querier",), *, bits=6, engine="tfhe", **rule
):
    """A federation whose clients know overlapping blobs, so that their answers differ.

    Returns its manifest, queries, and the codes of all clients for them.
    """
    from secure_fl.demo.service_parties import set_up

    rng = np.random.default_rng(seed)
    facts = make_manifest(classes=("x", "y", "z"), clients=clients, n_features=2, bits=bits, **rule)
    labels = [rng.integers(0, 3, 40) for _ in clients]
    sets = [
        (name, (CENTRES[y] + rng.normal(size=(40, 2))).astype(np.float32), y)
        for name, y in zip(clients, labels, strict=True)
    ]
    heads = train_heads(sets, facts)
    keys = {"engine": engine, "queriers": queriers}
    manifest = set_up(folder, facts, heads, failure_exponent=40, block=2, **keys)
    queries = rng.uniform(-1, 4, (40, 2)).astype(np.float32)
    codes = np.stack([head_codes(head, queries, manifest) for head in heads], axis=1)
    return manifest, queries, codes


def make(folder, seed, **how):
    manifest, queries, codes = set_up_blobs(folder, seed, **how)
    # Those first whose answer south alone gives differently.
    order = np.argsort(classify(codes) == classify(codes[:, 1:2]), kind="stable")
    queries, codes = queries[order], codes[order]
    np.save(folder / "queries.npy", queries)
    own = folder / manifest.clients[0]
    return Made(folder, manifest, queries, codes, fhe.load_public_key(own).parameters)


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    return make(tmp_path_factory.mktemp("federation") / "parties", 0)


@pytest.fixture(scope="session")
def other(tmp_path_factory):
    """Another federation of the same shape."""
    return make(tmp_path_factory.mktemp("other") / "parties", 1)


@pytest.fixture(scope="session")
def workers_folder(tmp_path_factory):
    """Keys of a querier, and of an evaluator and its workers."""
    pytest.importorskip("uvicorn", reason="needs the extra `service` (securefl[service])")
    from tests.secure_fl.service.workers import PARAMETERS, write_circle

    path = tmp_path_factory.mktemp("workers")
    keys = fhe.generate_keys(PARAMETERS)
    fhe.save_evaluation_keys(path, keys.evaluation)
    fhe.save_public_key(path, fhe.make_public_key(keys))
    fhe.save_secret_keys(path, keys, "correct horse")
    write_circle(path)
    return path


@pytest.fixture(scope="module")
def hurried(parties):
    """A module's masked parties, whose evaluator waits for no message longer than `STEP` now."""
    # Late: that module imports this one, and needs the extra `service`.
    from tests.secure_fl.service.masked_parties import STEP, restart

    restart(parties, STEP)
    return parties
