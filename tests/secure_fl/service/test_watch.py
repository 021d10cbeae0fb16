"""The contributor's gauges and page: they shift when its queries do."""

import numpy as np
import pytest

from kahm import Bank
from secure_fl.heads.head import Head
from secure_fl.heads.manifest import make_manifest
from secure_fl.service.metrics import Metrics
from secure_fl.service.watch import FILE, DriftWatch

FACTS = make_manifest(classes=("no", "yes"), clients=("north",), n_features=3)


@pytest.fixture(scope="module")
def head():
    rng = np.random.default_rng(0)
    batches = [rng.normal(size=(10, 3)) for _ in range(8)]
    return Head("north", Bank.fit(batches, [0, 1] * 4, 2))


def gauges(metrics):
    lines = metrics.text().decode().splitlines()
    pairs = (line.split() for line in lines if line.startswith("securefl_drift"))
    return {name: float(value) for name, value in pairs}


def test_gauges_and_page_shift_with_the_queries_and_outlive_a_restart(tmp_path, head):
    metrics = Metrics()
    watch = DriftWatch.of(head, FACTS, tmp_path, metrics)
    assert gauges(metrics) == {"securefl_drift": 0.0, "securefl_drift_limit": 1.0}
    rng = np.random.default_rng(1)
    usual = head.measures(rng.normal(size=(60, 3)), FACTS)
    watch.seen(usual, 86_400.0)
    before = gauges(metrics)
    assert before["securefl_drift"] < before["securefl_drift_limit"]
    assert "drifted" not in watch.page()
    watch.seen(head.measures(rng.normal(size=(60, 3)) + 4, FACTS), 86_400.0)
    after = gauges(metrics)
    assert after["securefl_drift"] > after["securefl_drift_limit"]
    assert '<td class="text">1970-01-02</td><td class="number">120</td>' in watch.page()
    assert "drifted" in watch.page()
    again = Metrics()
    DriftWatch.of(head, FACTS, tmp_path, again)
    assert gauges(again) == after


def test_no_measure_and_no_query_is_kept(tmp_path, head):
    watch = DriftWatch.of(head, FACTS, tmp_path, Metrics())
    watch.seen(np.array([[0.123456789, 0.5]]), 0.0)
    assert b"123456" not in (tmp_path / FILE).read_bytes()


def test_a_head_of_one_machine_is_not_watched(tmp_path):
    head = Head("north", Bank.fit([np.eye(3)], [0], 2))
    assert DriftWatch.of(head, FACTS, tmp_path, Metrics()) is None
