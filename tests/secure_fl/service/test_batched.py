"""Engine bgv over the network: bodies too large for memory, from files to files."""

import contextlib
import json
import os
import resource
import signal
import socket
import sqlite3
import threading
import time

import attrs
import numpy as np
import pytest

import fhe
from fhe.batched.contributor import write_batched

pytest.importorskip("prometheus_client", reason="needs the extra `service` (securefl[service])")
pytest.importorskip("seal", reason="needs the extra `batched` (securefl[batched])")

from secure_fl.demo.service_parties import copy_parties, deployment
from secure_fl.errors import InputError, ServiceError
from secure_fl.service.outbox import Outbox
from secure_fl.service.shelf import FOLDER
from secure_fl.service.signing import SCHEME, new_request, signed
from secure_fl.service.worker import SCRATCH
from tests.secure_fl.service.conftest import CLIENTS, make
from tests.secure_fl.service.parties import Players
from tests.secure_fl.service.test_service import half_done, wait_until

FIRST = slice(0, 4)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A federation whose keys are of engine bgv, at the smallest secure parameters."""
    folder = tmp_path_factory.mktemp("batched") / "parties"
    return make(folder, 0, bits=4, engine="bgv")


@pytest.fixture(scope="module")
def players(made, tmp_path_factory):
    """A running evaluator, and the other parties."""
    folder = tmp_path_factory.mktemp("network") / "parties"
    copy_parties(made.folder, folder)
    with deployment(folder) as running:
        start(running)
        yield Players(made, running)


def start(running):
    running.start("evaluator", "--rate", "1000", "--burst", "1000")


def test_parties_as_processes_answer_every_query_as_the_plain_rule_does(made, tmp_path):
    """Known answers are mixed in, as always; then a contributor dies, and two are enough."""
    copy_parties(made.folder, tmp_path / "parties")
    with deployment(tmp_path / "parties") as running:
        start(running)
        running.start_contributors(CLIENTS, "--near", "0")
        queries, everyone = running.folder / "queries.npy", slice(None)
        found = asked(running, queries)
        assert found["present"] == list(CLIENTS)
        assert found["classes"] == named(made, made.clear(everyone, CLIENTS))
        assert not list((running.folder / "evaluator" / "state" / FOLDER).iterdir())
        running.kill("west")
        found = asked(running, queries, "--quorum", "2", "--patience", "1")
        assert found["present"] == ["north", "south"]
        assert found["classes"] == named(made, made.clear(everyone, ["north", "south"]))
        assert "Traceback" not in running.log("evaluator")


def named(made, classes):
    return [made.manifest.classes[c] for c in classes]


def asked(running, queries, *options):
    process = running.query(queries, *options)
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err.decode()
    assert "known answers are right" in err.decode()
    return json.loads(out)
