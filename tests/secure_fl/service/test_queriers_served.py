"""A second querier by the commands: evaluator and a contributor as processes, the others played."""

import json
import time

import numpy as np
import pytest

pytest.importorskip("prometheus_client", reason="needs the extra `service` (securefl[service])")

from secure_fl.demo.service_parties import deployment
from tests.secure_fl.service.parties import Players
from tests.secure_fl.service.two_queriers import with_lab

ROWS = slice(0, 2)


def test_a_second_querier_asks_by_its_own_identity_and_keys(made, other, tmp_path):
    """Who asks follows from the secret file; each party finds that querier's keys by its name."""
    two = with_lab(made, other, tmp_path / "parties")
    np.save(tmp_path / "queries.npy", two.queries[ROWS])
    with deployment(two.folder) as running:
        running.start("evaluator")
        running.start("north", "--quota", "lab=2")
        lab, one = Players(two, running, "lab"), Players(two, running)
        asking = running.query(
            *(tmp_path / "queries.npy", "--audit", "0", "--batch", "b", "--patience", "0"),
            name="lab",
        )
        while lab.channel("lab").call("GET", "/batches/b").status == 404:
            assert asking.poll() is None, asking.communicate()
            time.sleep(0.1)
        for client in ("south", "west"):
            lab.contribute(client, "b")
        out, err = asking.communicate(timeout=240)
        assert asking.returncode == 0, err
        wanted = [two.manifest.classes[c] for c in two.clear(ROWS)]
        assert json.loads(out)["classes"] == wanted
        # Its part of the day is used up, and the other's is not.
        again, others = lab.open(ROWS, quorum=2), one.open(ROWS, quorum=2)
        while (states := lab.status(again)["clients"])["north"] == "asked":
            time.sleep(0.1)
        assert states["north"] == "declined"
        (reason,) = lab.querier().refusals(lab.status(again), again).values()
        assert reason == "4 queries in 24 hours, this client's terms allow 2"
        while one.status(others)["clients"]["north"] == "asked":
            time.sleep(0.1)
        assert one.status(others)["clients"]["north"] == "sent"
        assert "answers querier, lab" in running.log("north")
        counters = running.metrics("north")
        assert counters['securefl_answered_queries_total{querier="lab"}'] == 2.0
        states = running.metrics()
        assert states['securefl_querier_batches{querier="lab",state="closed"}'] == 1.0
