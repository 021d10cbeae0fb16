"""Scaling by all clients' moments over nodes: that of one process, and what no server may do."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dp
from dp import Ledger
from secure_fl.data import Scaling, read_clients
from secure_fl.errors import DivergedError, InputError, QuorumError, StepError
from secure_fl.federation import Client, SecureAggregation, wire
from secure_fl.federation.handle import record_weight
from secure_fl.federation.steps import step_name
from secure_fl.flower import NetworkFederation
from secure_fl.flower.plan import read_plan
from secure_fl.flower.scaled import told
from secure_fl.flower.training import train as train_over
from secure_fl.flower.transport import ANSWER, REQUEST
from secure_fl.heads.head import head_path
from secure_fl.trainers.feature_moments import local_feature_moments, scaling_of_moments
from secure_fl.trainers.linear._client import local_value
from secure_fl.trainers.methods.averaging import FedAvg
from secure_fl.trainers.methods.kahm import KAHMHeads
from secure_fl.trainers.private_moments import (
    NoisyFeatureMoments,
    PublicClip,
    local_private_moments,
)
from secure_fl.training.linear_model import LinearModel
from secure_fl.training.train import train
from tests.secure_fl.flower.machines import NAMES, Machines

MOMENTS = step_name(local_feature_moments)
FAR = "noisy means and deviations of 6 features, for their scaling"
PROMISE = {"epsilon": 50.0, "delta": 1e-3, "norm": 4.0}
RELEASE = {"epsilon": 5.0, "delta": 1e-3, "unit": "element", "distance": 2.0, "bounds": "-1,1"}


UNIT = '{"kind": "record", "norm": 4.0}'
OTHER = Scaling(kind="moments", factor=0.5, offsets=(0.0,) * 6, spreads=(1e-9,) * 6)


@pytest.fixture
def machines(tmp_path: Path) -> Machines:
    return Machines(tmp_path)


@pytest.mark.parametrize("spread", ["moments", "floored", "common"])
def test_constants_heads_and_models_have_the_bytes_of_one_process(
    machines: Machines, spread: Any
) -> None:
    clients = read_clients(machines.folder / "clients")
    manifest = machines.heads("run", regularisation="relative", scaling=spread)
    here = machines.folder / "here"
    method = KAHMHeads(batch_size=5, regularisation="relative")
    found = train(clients, method, scaling=spread, scale=0.5, out=here)
    assert (found.manifest, manifest.scaling) == (manifest, "moments")
    for name in NAMES:
        kept = head_path(machines.run(name, manifest), name).read_bytes()
        assert kept == head_path(here, name).read_bytes()
    model = LinearModel.load(machines.train("model", method="fedavg", rounds=2, scaling=spread))
    expected = train(clients, FedAvg(rounds=2), scaling=spread, scale=0.5).model
    assert model.scaling_map == expected.scaling_map
    assert model.weights.tobytes() == expected.weights.tobytes()


def test_what_leaves_is_masked_in_a_run_of_plain_sums_too(machines: Machines) -> None:
    """And in one of heads under the rules of nodes that mask all: never of two clients."""
    machines.train("run", method="fedavg", rounds=1, scaling="moments")
    own = read_clients(machines.folder / "clients")[0].X
    digits = local_feature_moments(Client("c0", own, np.zeros(len(own))))
    # Two features' digits; a bare answer would hold them all.
    assert not any(digits[1:3].tobytes() in each for each in machines.seen)
    with pytest.raises(QuorumError, match=r"scaling: .* set scaling to none, or to range"):
        machines.heads("two", clients="c0,c1", scaling="moments")
    machines.own = {name: {"min-clients": 2} for name in NAMES}
    assert machines.heads("allowed", clients="c0,c1", scaling="moments").scaling == "moments"


def test_a_run_that_goes_on_keeps_its_scaling_and_asks_nobody_again(machines: Machines) -> None:
    kept = machines.folder / "kept"
    options = {"method": "fedavg", "scaling": "moments", "checkpoint": str(kept)}
    machines.train("first", rounds=1, **options)
    # Plain sums need no shares of a secret; another sum of moments would.
    machines.lost = lambda name, what: what == "share"
    model = LinearModel.load(machines.train("second", rounds=2, **options))
    clients = read_clients(machines.folder / "clients")
    expected = train(clients, FedAvg(rounds=2), scaling="moments", scale=0.5).model
    assert model.weights.tobytes() == expected.weights.tobytes()
    with pytest.raises(InputError, match=r"kept\.scaling: the scaling of another run"):
        machines.train("third", rounds=3, **{**options, "scaling": "floored"})
    kept.with_name("kept.scaling").unlink()
    with pytest.raises(InputError, match=r"kept\.scaling"):
        machines.train("third", rounds=3, **options)


def test_a_model_that_diverges_is_not_kept(machines: Machines) -> None:
    """As in one process; of features of deviation 1 these steps are too long."""
    plan = {"method": "fednewton", "ridge": 0.1, "safeguard": False, "scale": 1.0}
    with pytest.raises(DivergedError, match="fednewton, round 3: training diverged"):
        machines.train("run", rounds=4, scaling="moments", **plan)
    assert not (machines.folder / "run").exists()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"scaling": "moment"}, "scaling: 'moment', expected one of none, range, moments"),
        ({"scaling": "range"}, "range needs offsets and spreads"),
        ({"scaling": "none", "offsets": "1", "spreads": "1"}, "offsets: public ranges have no use"),
        ({"moments-clip": "0,1"}, "moments-clip: is for means and deviations that are released"),
        ({"scaling": "moments", "moments-clip": "x"}, "moments-clip 'x': expected NORM or LOW"),
        (
            {"scaling": "moments", "client-epsilon": 1.0, "clip": 1.0, "ledger": "books"},
            "scaling: means and deviations of the clients' records are not private",
        ),
        (
            {"scaling": "moments", "method": "kahm", "rule": "votes", "answer-noise": 1.0},
            "scaling: .* under the rule votes every vote would depend on them",
        ),
        (
            {"scaling": "floored", "method": "private-ridge", "secure": True, "ledger": "books"}
            | PROMISE,
            "needs public bounds of the records: give --moments-clip",
        ),
        (
            {"scaling": "floored", "method": "private-ridge", "secure": True, "ledger": "books"}
            | {**PROMISE, "moments-clip": 3, "checkpoint": "kept"},
            "scaling: a run that goes on from a checkpoint would release",
        ),
    ],
)
def test_a_plan_that_cannot_be_scaled_so_is_refused(settings: dict[str, Any], message: str) -> None:
    plan = {"clients": "a,b", "classes": "x,y", "out": "run", "method": "fedavg"}
    with pytest.raises(InputError, match=message):
        read_plan({**plan, **settings})


# ------------------------------------------------------------------------------- under a promise


def private(machines: Machines, out: str, method: str, **more: Any) -> Path:
    for name in NAMES:
        machines.own[name] = {"ledger": str(machines.folder / name / "books"), **PROMISE}
    books = str(machines.folder / f"{out}.books")
    options = {"scaling": "floored", "moments_clip": "-9,9", "ledger": books, **PROMISE, **more}
    return machines.train(out, method=method, **options)


def books_of(machines: Machines, *more: str) -> list[Ledger]:
    paths = (*more, *(f"{name}/books" for name in NAMES))
    return [Ledger.open(machines.folder / path) for path in paths]


@pytest.mark.parametrize(
    ("method", "more"), [("private-ridge", {"secure": True}), ("kahm-record-private", {})]
)
def test_released_moments_are_booked_at_every_node_as_at_the_server(
    machines: Machines, method: str, more: dict[str, Any]
) -> None:
    """Both events together cost what was promised, in a budget of just that."""
    run = private(machines, "run", method, **more)
    server, *nodes = books_of(machines, "run.books")
    for each in (server, *nodes):
        assert each.events[0] == server.events[0]
        assert each.events[0].what == FAR
        assert each.events[0].adjacency == dp.Record(4.0)
        assert 0.97 * 50 < each.get_epsilon(1e-3).epsilon <= 50 * (1 + 1e-9)
    if method == "private-ridge":
        assert LinearModel.load(run).scaling_map.kind == "released"


def test_a_nodes_books_have_room_for_what_follows_or_it_has_no_part_in_the_sum(
    machines: Machines,
) -> None:
    with pytest.raises(QuorumError, match="scaling: "):
        private(machines, "run", "private-ridge", secure=True, epsilon=60.0)
    assert [each.events for each in books_of(machines)] == [()] * 3


def test_a_head_is_released_for_what_is_left_and_its_statement_says_so(machines: Machines) -> None:
    for name in NAMES:
        own = {"ledger": str(machines.folder / name / "books"), "distance": 2.0}
        machines.own[name] = {"epsilon": 5.0, "delta": 1e-3, **own}
    options = {"scaling": "floored", "moments_clip": "-9,9", "grid": 2.0**-8, **RELEASE}
    manifest = machines.heads("run", **options)
    assert (manifest.scaling, manifest.unit) == ("released", "element")
    text = (machines.run("c0", manifest) / "clients" / "c0" / "statement.txt").read_text()
    assert "Promise: epsilon 4.5, delta 0.0005 per element" in text
    assert "under the noise of at least 3 clients that follow the protocol" in text
    for ledger in books_of(machines):
        assert ledger.events[0].what == FAR
        assert 4.9 < ledger.get_epsilon(1e-3).epsilon <= 5.0


@pytest.mark.parametrize(
    ("halves", "sigma", "unit"),
    [
        (1.0, 1e4, UNIT),
        (1.0, np.nan, UNIT),
        (0.0, 1e8, UNIT),
        (np.nan, 1e8, UNIT),
        (1.0, 1e8, "none"),
        (1.0, 1e8, '{"kind": "record", "norm": 1}'),
    ],
)
def test_a_server_gets_no_moments_under_other_noise_than_the_books_can_hold(
    machines: Machines, halves: float, sigma: float, unit: str
) -> None:
    """Nor of another unit, nor through bounds by which one record could add anything."""
    refused_at_first(machines)

    def ask(halves: float, sigma: float, unit: str) -> None:
        clip = PublicClip(np.zeros(6), np.full(6, halves), ball=False)
        over(machines).sum(local_private_moments, NoisyFeatureMoments(clip, sigma, unit))

    with pytest.raises((QuorumError, StepError)):
        ask(halves, sigma, unit)
    assert [each.events for each in books_of(machines)] == [()] * 3
    ask(1.0, 1e8, UNIT)
    assert [len(each.events) for each in books_of(machines)] == [1, 1, 1]


def refused_at_first(machines: Machines) -> None:
    """Leaves a plan and owners' settings, and nothing spent."""
    with pytest.raises(QuorumError, match="scaling: "):
        private(machines, "run", "private-ridge", secure=True, epsilon=60.0)
    machines.config["epsilon"] = 50.0


class Doubled:
    """A network that delivers every message twice."""

    def __init__(self, machines: Machines) -> None:
        self._machines, self._count = machines, 0

    def __call__(self, requests: Mapping[str, bytes], seconds: float) -> dict[str, bytes]:
        found = {}
        for name, request in requests.items():
            self._count += 1
            answers = {
                self._machines.node(name).answer(request, f"message {self._count}")
                for _ in range(2)
            }
            (found[name],) = answers
        return found


def test_messages_that_come_twice_are_answered_alike_and_booked_once(machines: Machines) -> None:
    refused_at_first(machines)
    (machines.folder / "run.books").unlink()
    train_over(Doubled(machines), read_plan(machines.config), lambda line: None)
    assert [len(each.events) for each in books_of(machines)] == [2, 2, 2]


# --------------------------------------------------------------------------- a server that cheats


def over(
    machines: Machines, scaling: Scaling | None = None, exchange: Any = None, **coding: Any
) -> NetworkFederation:
    """A federation over nodes that were told a plan of moments."""
    return NetworkFederation(
        exchange or machines,
        NAMES,
        aggregation=SecureAggregation(max_weight=100.0, **coding),
        description=read_plan(machines.config).description,
        scaling=scaling,
    )


def summed(machines: Machines) -> Scaling:
    fed = over(machines, clip=2.0**36, outside="error")
    return scaling_of_moments(np.asarray(fed.sum(local_feature_moments)), 0.5)


@pytest.fixture
def trained(machines: Machines) -> Machines:
    machines.train("run", method="fedavg", rounds=1, scaling="moments")
    return machines


def asked(machines: Machines, **request: Any) -> Any:
    call = {"epoch": "e", "broadcast": (), "key": (0, 0, 0), **request}
    found = machines.node("c0").answer(wire.encode(call, kind=REQUEST))
    return wire.decode(found, kind=ANSWER).get("dropped")


def test_moments_are_never_answered_bare_nor_records_before_their_scaling(
    trained: Machines,
) -> None:
    assert asked(trained, do="run", step=MOMENTS) == "PrivacyError"
    assert asked(trained, do="run", step=step_name(local_value)) == "ProtocolError"
    other = Scaling(kind="range", factor=0.5, offsets=(0.0,) * 6, spreads=(1.0,) * 6)
    assert asked(trained, do="hello", scaling=told(other)) == "ProtocolError"
    trained.config["scaling"] = "none"
    assert asked(trained, do="hello", scaling=told(other)) == "ProtocolError"


def test_a_node_takes_one_scaling_a_sum_of_moments(trained: Machines) -> None:
    """The server alone sees the sum; it may not try one scaling after another."""
    scaling = summed(trained)
    assert over(trained, scaling).features() == 7
    with pytest.raises(QuorumError):
        over(trained, OTHER).features()
    federation = {"scaling": "moments", "scale": 0.5, "offsets": OTHER.offsets}
    trained.config |= {"method": "kahm"}
    del trained.config["rounds"]
    assert asked(trained, do="head", federation={**federation, "spreads": OTHER.spreads})
    trained.config |= {"method": "fedavg"}
    assert over(trained, scaling).features() == 7
    summed(trained)
    assert over(trained, OTHER).features() == 7


def test_clients_that_were_told_different_scalings_open_no_sum(trained: Machines) -> None:
    """As with ranges in the plan: what they compute with is in every mask."""

    def forged(requests: Mapping[str, bytes], seconds: float) -> dict[str, bytes]:
        changed = {}
        for name, request in requests.items():
            content = dict(wire.decode(request, kind=REQUEST))
            if name == "c0" and "scaling" in content:
                content["scaling"] = told(OTHER)
            changed[name] = wire.encode(content, kind=REQUEST)
        return trained(changed, seconds)

    scaling = summed(trained)
    with pytest.raises(QuorumError, match="the threshold is 3"):
        over(trained, scaling, forged).sum(record_weight)
    summed(trained)
    assert over(trained, OTHER, forged).sum(record_weight) > 0
