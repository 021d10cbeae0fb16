"""A second querier by the commands: evaluator and a contributor as processes, the others played."""

import json
import time

import numpy as np
import pytest

pytest.importorskip("prometheus_client", reason="needs the extra `service` (securefl[service])")

from fhe.batched.contributor import write_batched
from secure_fl.demo.service_parties import deployment
from tests.secure_fl.service.conftest import CLIENTS, make
from tests.secure_fl.service.parties import Players
from tests.secure_fl.service.two_queriers import with_lab

ROWS = slice(0, 2)


@pytest.mark.parametrize("engine", ["bgv", pytest.param("tfhe", marks=pytest.mark.slow)])
def test_each_querier_chooses_its_engine_and_reads_answers_under_its_own_keys(engine, tmp_path):
    """A contributor of both knows of which engine a batch is when it has the sealed query."""
    pytest.importorskip("seal", reason="needs the extra `batched` (securefl[batched])")
    made = make(tmp_path / "made", 0, bits=4, engine="bgv")
    other = make(tmp_path / "other", 1, bits=4, engine=engine)
    two = with_lab(made, other, tmp_path / "parties")
    with deployment(two.folder) as running:
        running.start("evaluator")
        one, lab = Players(two, running), Players(two, running, "lab")
        asking = [(one, slice(2, 9)), (lab, ROWS)]
        batches = [asks.open(rows) for asks, rows in asking]
        # Well at its first news, and these wait already.
        running.start("north")
        if engine == "bgv":
            foreign = tmp_path / "foreign"
            facts = {"name": "south", "federation": two.manifest.fingerprint, "batch": batches[1]}
            codes = two.codes[ROWS][:, 1]
            write_batched(foreign, codes, one.querier().public, contributor=1, **facts)
            path = f"/batches/{batches[1]}/contribution"
            assert lab.send("south", "PUT", path, foreign.read_bytes()).status_code == 422
        for (asks, rows), batch in zip(asking, batches, strict=True):
            for client in ("south", "west"):
                asks.contribute(client, batch)
            found = asks.fetch(batch)
            assert found.present == CLIENTS
            assert found.classes.tolist() == two.clear(rows)
        # North called by itself.
        assert "Traceback" not in running.log("north") + running.log("evaluator")


def test_a_second_querier_asks_by_its_own_identity_and_keys(made, other, tmp_path):
    """Who asks follows from the secret file; each party finds that querier's keys by its name."""
    two = with_lab(made, other, tmp_path / "parties")
    np.save(tmp_path / "queries.npy", two.queries[ROWS])
    with deployment(two.folder) as running:
        running.start("evaluator")
        lab, one = Players(two, running, "lab"), Players(two, running)
        asking = running.query(
            *(tmp_path / "queries.npy", "--audit", "0", "--batch", "b", "--patience", "0"),
            name="lab",
        )
        while lab.channel("lab").call("GET", "/batches/b").status == 404:
            assert asking.poll() is None, asking.communicate()
            time.sleep(0.1)
        running.start("north", "--quota", "lab=2")
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
