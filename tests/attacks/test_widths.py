"""The number of features of LIBSVM files: the largest index of any record, or a public fact.

One record with a rare feature moves the largest index; whoever reads the federation or speaks to a
node would learn whether it is there.
"""

from pathlib import Path
from typing import Any

import pytest

from secure_fl.data import ReadOptions
from secure_fl.errors import InputError
from secure_fl.federation import wire
from secure_fl.flower.settings import make_node
from secure_fl.flower.transport import ANSWER, REQUEST
from secure_fl.heads.manifest import load_manifest
from secure_fl.heads.queries import read_queries
from tests.attacks.table import Attack
from tests.cli.command import refused, securefl

ATTACK = Attack(
    name="reads the largest index of LIBSVM records off the number of features",
    holds="the run folder, or the training server and what a node says of its file",
    before="whether any record has a feature beyond those of the others, whatever the epsilon",
    after="nothing: with a promise, and at a node, the owner, the run or the federation says how"
    " many features there are; records are padded, or refused at their owner",
)

COMMON = "0 1:0.5 2:0.25\n1 1:0.75\n0 2:0.5\n1 1:1 2:0.125\n"
RARE = "0 7:0.5\n"
PROMISE = ("--epsilon", 8, "--delta", 1e-5, "--unit", "element", "--bounds", 0, 1)
WIDTH = 9


def folder(at: Path, *, rare: bool) -> Path:
    at.mkdir()
    (at / "north.svm").write_text(COMMON + (RARE if rare else ""))
    (at / "south.svm").write_text(COMMON)
    return at


@pytest.mark.parametrize("rare", [False, True])
def test_a_run_with_a_promise_takes_no_width_from_records(tmp_path: Path, rare: bool) -> None:
    clients, run = folder(tmp_path / "clients", rare=rare), tmp_path / "run"
    line = refused("train", clients, "--out", run, *PROMISE)
    assert "--features" in line
    assert not (tmp_path / "clients.ledgers").exists()
    securefl("train", clients, "--out", run, *PROMISE, "--features", WIDTH)
    assert load_manifest(run).n_features == WIDTH


def test_client_level_noise_is_a_promise_too(tmp_path: Path) -> None:
    clients = folder(tmp_path / "clients", rare=True)
    noise = ("--client-epsilon", 1, "--clip", 1, "--aggregate", "secure")
    line = refused("train", clients, "--out", tmp_path / "run", "--method", "dkrr", *noise)
    assert "--features" in line


def test_a_run_without_a_promise_says_what_it_took(tmp_path: Path) -> None:
    clients = folder(tmp_path / "clients", rare=True)
    _, told = securefl("train", clients, "--out", tmp_path / "run")
    assert "features: 7, the largest index" in told
    _, told = securefl("train", clients, "--out", tmp_path / "other", "--features", WIDTH)
    assert "largest index" not in told


def test_a_record_beyond_the_public_width_is_refused_at_its_owner(tmp_path: Path) -> None:
    clients = folder(tmp_path / "clients", rare=True)
    line = refused("train", clients, "--out", tmp_path / "run", *PROMISE, "--features", 6)
    assert "line 5: index 7, the data set has 6 features" in line
    assert not (tmp_path / "run").exists()


def test_the_federation_decides_for_parties_and_queries(tmp_path: Path) -> None:
    agreed = tmp_path / "agreed"
    clients = folder(tmp_path / "clients", rare=False)
    securefl("train", clients, "--out", agreed, "--features", WIDTH)
    party = ("--federation", agreed / "federation.json")
    securefl("train", clients / "north.svm", "--out", tmp_path / "own", *party)
    manifest = load_manifest(tmp_path / "own")
    assert manifest.n_features == WIDTH
    found, _ = read_queries(clients / "south.svm", manifest, ReadOptions(), slice(None))
    assert found.shape == (4, WIDTH)


PLAN = {"clients": "north,south", "classes": "0,1", "method": "dkrr", "out": "run"}


@pytest.mark.parametrize("rare", [False, True])
@pytest.mark.parametrize("said", ["run", "owner", "nobody"])
def test_a_node_says_the_same_of_records_with_and_without(
    tmp_path: Path, caplog: Any, rare: bool, said: str
) -> None:
    data = folder(tmp_path / "clients", rare=rare) / "north.svm"
    own: dict[str, Any] = {"data": str(data), "state": str(tmp_path / "state")}
    plan: dict[str, Any] = {**PLAN, **({"features": WIDTH} if said == "run" else {})}
    own |= {"features": WIDTH} if said == "owner" else {}
    node = make_node(own, plan)
    answer = dict(wire.decode(node.answer(wire.encode({"do": "hello"}, kind=REQUEST)), kind=ANSWER))
    if said == "nobody":
        assert answer == {"dropped": "FeatureError"}
        assert "LIBSVM files do not say" in caplog.text
    else:
        # The model's constant is one more.
        assert answer["features"] == WIDTH + 1


def test_owner_and_run_must_agree(tmp_path: Path) -> None:
    data = folder(tmp_path / "clients", rare=False) / "north.svm"
    own = {"data": str(data), "state": str(tmp_path / "state"), "features": 8}
    node = make_node(own, {**PLAN, "features": WIDTH})
    with pytest.raises(InputError, match="agree on one"):
        node._load()
