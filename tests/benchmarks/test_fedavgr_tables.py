"""Which methods a trial of FedAvgR's table has."""

import pytest

from benchmarks import fedavgr_tables as tables
from benchmarks._kept import Numbers
from benchmarks._regularised import Chosen


@pytest.mark.parametrize("peers", [frozenset(), tables.PEERS])
def test_a_trial_without_peers_has_the_other_figures_of_one_with_them(monkeypatch, small, peers):
    monkeypatch.setattr(tables, "_problem", lambda *_: small)
    rate = {"learning_rate": 0.1}
    told = {
        "FedAvg": rate,
        "FedAvgR": {**rate, "mmd": 1.0, "features": 0.1, "trace": 0.1},
        "FedProx": {**rate, "proximal": 1.0},
        "OneShot": rate,
    }

    def trial(settings):
        chosen = Chosen(settings, dict.fromkeys(settings, 0.5))
        return tables._trial(Numbers(None), "a1a", 2, 1, chosen, 0)

    found = trial({name: each for name, each in told.items() if name not in tables.PEERS - peers})
    assert set(found) & tables.PEERS == peers
    whole = trial(told)
    assert whole | found == whole
    assert set(whole) - set(found) == tables.PEERS - peers
