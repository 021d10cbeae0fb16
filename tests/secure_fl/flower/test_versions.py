"""Servers, nodes and files of the version before."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from secure_fl.federation import FederationError, QuorumError, SecureAggregation, wire
from secure_fl.flower import NetworkFederation
from secure_fl.flower.transport import ANSWER, REQUEST
from tests.secure_fl.federation import steps
from tests.secure_fl.federation.conftest import make_clients
from tests.secure_fl.flower.post import Post

NAMES = ["a", "b", "c", "d"]
KEPT = "federation node"


@pytest.fixture
def post(tmp_path: Path) -> Post:
    return Post(make_clients(4), tmp_path)


def total(exchange: Any) -> Any:
    fed = NetworkFederation(exchange, NAMES, aggregation=SecureAggregation(max_weight=9.0))
    return fed.sum(steps.constant, np.ones(2))


def test_a_server_of_the_version_before_is_refused_with_both_named(
    post: Post, caplog: pytest.LogCaptureFixture
) -> None:
    def old(requests: Mapping[str, bytes], seconds: float) -> dict[str, bytes]:
        told = {n: wire.decode(each, kind=REQUEST) for n, each in requests.items()}
        for each in told.values():
            each.pop("protocol", None)
        return post({n: wire.encode(e, kind=REQUEST) for n, e in told.items()}, seconds)

    with pytest.raises(QuorumError):
        total(old)
    assert "server: speaks version 1 of secure sums, this side version 3" in caplog.text


def test_a_node_of_the_version_before_is_refused_with_both_named(
    post: Post, caplog: pytest.LogCaptureFixture
) -> None:
    """The others go on, where they are enough."""

    def mixed(requests: Mapping[str, bytes], seconds: float) -> dict[str, bytes]:
        found = post(requests, seconds)
        if "a" in found:
            answer = wire.decode(found["a"], kind=ANSWER)
            answer.pop("protocol", None)
            found["a"] = wire.encode(answer, kind=ANSWER)
        return found

    with caplog.at_level(logging.WARNING):
        assert total(mixed).tolist() == [3.0, 3.0]
    assert 'client "a": speaks version 1 of secure sums, this side version 3' in caplog.text


def test_a_nodes_memory_of_the_version_before_is_read(post: Post, tmp_path: Path) -> None:
    """Its own arrays and its count of private sums are kept; a sum that ran is not gone on with."""
    old = {
        "epoch": "e",
        "now": {"count": np.full(1, 7.0)},
        "starts": {},
        "member": {"session": np.zeros(16, np.uint8), "seed": np.zeros(32, np.uint8)},
        "sums": ["00"],
        "sum": {"sum": {}, "client": {}},
        "private_sums": 5,
    }
    (tmp_path / "a").mkdir()
    file = tmp_path / "a" / "node.state"
    file.write_bytes(wire.encode(old, kind=KEPT))
    assert NetworkFederation(post, ["a"]).sum(steps.counted) == [8.0]
    kept = wire.decode(file.read_bytes(), kind=KEPT)
    assert kept["private_sums"] == 5
    assert kept["sum"] is None
    assert kept["version"] == 3


def test_a_nodes_memory_of_a_later_version_is_refused_with_both_named(
    post: Post, tmp_path: Path
) -> None:
    (tmp_path / "a").mkdir()
    file = tmp_path / "a" / "node.state"
    later = wire.encode({"version": 4}, kind=KEPT)
    file.write_bytes(later)
    with pytest.raises(FederationError, match=r"version 4, this one is of version 3"):
        post.node("a").answer(wire.encode({"do": "name"}, kind=REQUEST))
    assert file.read_bytes() == later
