"""Workers behind the two commands that call them, `serve evaluator` and `infer`."""

import json

import numpy as np
import pytest

pytest.importorskip("prometheus_client", reason="needs the extra `service` (securefl[service])")

import fhe
from secure_fl.demo.service_parties import IDENTITY, copy_parties, deployment
from secure_fl.service.members import read_secrets
from tests.cli.command import securefl
from tests.secure_fl.service.parties import Players
from tests.secure_fl.service.workers import Failing, running, send, write_circle

FIRST = slice(0, 4)


def test_the_service_has_its_batches_answered_by_workers_and_names_one_that_fails(made, tmp_path):
    """The evaluator and its process that evaluates are real ones; so are the calls."""
    copy_parties(made.folder, tmp_path / "parties")
    own = read_secrets(tmp_path / "parties" / "evaluator" / IDENTITY, "evaluator")
    write_circle(tmp_path, evaluator=own.identity.public.hex())
    with (
        running(tmp_path, "w1", tmp_path / "one") as (_, fine),
        running(tmp_path, "w2", tmp_path / "two", Failing) as (failing, failed),
        deployment(tmp_path / "parties") as parties,
    ):
        failing.fails = "evaluation"
        calls = ("--workers", fine, "--workers", failed, "--members", tmp_path / "members.json")
        parties.start("evaluator", *map(str, calls))
        players = Players(made, parties)
        name = players.open(FIRST)
        for client in made.manifest.clients:
            players.contribute(client, name)
        assert players.fetch(name).classes.tolist() == made.clear(FIRST)
        log = parties.log("evaluator")
    assert 'worker "w2" is asked no more: ZeroDivisionError: in the library' in log


@pytest.fixture(scope="module")
def batched(tmp_path_factory):
    """Keys of engine bgv, and contributions by files."""
    folder = tmp_path_factory.mktemp("batched")
    parameters = fhe.BatchedParameters(
        contributors=3, classes=3, bits=4, degree=16384, step=4, high_columns=2, low_columns=4
    )
    keys = fhe.generate_keys(parameters)
    public = fhe.make_public_key(keys)
    fhe.save_evaluation_keys(folder, keys.evaluation)
    fhe.save_public_key(folder, public)
    codes = np.random.default_rng(2).integers(0, 16, (5, 3, 3))
    (folder / "sent").mkdir()
    for each in send(public, codes):
        each.save(folder / "sent" / f"{each.name}.contribution")
    return folder, keys, fhe.plain(codes, parameters)


def test_engine_bgv_is_answered_by_the_worker_that_is_left(batched, tmp_path):
    """By files and by the command; its result names who was dropped."""
    folder, keys, expected = batched
    write_circle(tmp_path)
    with (
        running(tmp_path, "w1", tmp_path / "one", Failing) as (failing, failed),
        running(tmp_path, "w2", tmp_path / "two") as (_, fine),
    ):
        failing.fails = "evaluation"
        circle = ("--members", tmp_path / "members.json", "--identity", tmp_path / "evaluator.key")
        files = ("infer", folder / "sent", "--keys", folder, "--out", tmp_path / "answer")
        out, err = securefl(*files, *circle, "--workers", failed, "--workers", fine, "--json")
    assert json.loads(out)["dropped"] == {"w1": "ZeroDivisionError: in the library"}
    assert 'worker "w1" is asked no more: ZeroDivisionError: in the library' in err
    found = fhe.read_answer(fhe.load_answer(tmp_path / "answer"), keys)
    np.testing.assert_array_equal(found, expected)
