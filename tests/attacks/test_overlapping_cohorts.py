"""A server that asks for sums over few clients, or over lists that differ by one client.

The nodes insist on masks. Their steps are deterministic, so that sums over different lists are
equations in the same few unknowns.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from secure_fl.federation import Client, QuorumError, SecureAggregation, wire
from secure_fl.federation.executor import Call, run_step
from secure_fl.flower import NetworkFederation, network
from secure_fl.flower.transport import REQUEST
from secure_fl.objectives import SquaredLoss
from secure_fl.trainers.linear._client import local_gradient
from tests.attacks.cheat import terms
from tests.attacks.table import Attack
from tests.secure_fl.flower.post import Post
from tests.secure_fl.trainers.linear.federations import pool

ATTACK = Attack(
    name="asks for masked sums over few clients, or over lists that differ by one",
    holds="the training server, and its choice of whom it asks and whom it calls lost; or a client"
    " that knows the sum",
    before="one client's update to 1e-9, from three sums over pairs or from two sums of which the"
    " second leaves the client out",
    after="nothing from nodes that mask all: at least 3 clients in a sum without noise, and the"
    " same list of them for good, across sessions and restarts, unless the owner allows more lists",
)

NAMES = [f"c{i}" for i in range(5)]
OBJECTIVE, WEIGHTS = SquaredLoss(0.1, 3), np.zeros((6, 3))
SECURE = SecureAggregation(max_weight=100.0)


def clients() -> list[Client]:
    data = pool(sizes=(30, 8, 17, 12, 20))
    return [Client(n, data.X[p], data.y[p]) for n, p in zip(NAMES, data.parts, strict=True)]


def truth(name: str) -> Any:
    (client,) = (each for each in clients() if each.name == name)
    return run_step(Call(local_gradient, (OBJECTIVE, WEIGHTS), 0, 0, 0), client)


@pytest.fixture
def post(tmp_path: Path) -> Post:
    return Post(clients(), tmp_path, dict.fromkeys(NAMES, terms(secure=True)))


def session(post: Post, names: Sequence[str], threshold: int | None = None) -> NetworkFederation:
    return NetworkFederation(post, names, aggregation=SECURE, threshold=threshold)


def total(fed: NetworkFederation, weights: Any = WEIGHTS, over: Sequence[str] | None = None) -> Any:
    """The sum, or None where the nodes do not let it come about."""
    try:
        return fed.sum(local_gradient, OBJECTIVE, weights, over=over)
    except QuorumError:
        return None


def assert_learned_nothing(sums: Sequence[Any], signs: Sequence[float], victim: str) -> None:
    if any(each is None for each in sums):
        return
    found = sum(sign * each for sign, each in zip(signs, sums, strict=True))
    error = np.abs(found - truth(victim)).max()
    pytest.fail(f"the update of {victim}, off by {error:.1g}")


PAIRS = [("c0", "c1"), ("c0", "c2"), ("c1", "c2")]


@pytest.mark.parametrize("sessions", [1, 3])
def test_three_sums_over_pairs(post: Post, sessions: int) -> None:
    whole = session(post, NAMES[:3], 2 if sessions == 1 else None)
    if sessions == 1:
        sums = [total(whole, over=pair) for pair in PAIRS]
    else:
        sums = [total(session(post, pair)) for pair in PAIRS]
    assert_learned_nothing(sums, (0.5, 0.5, -0.5), "c0")


def test_a_client_that_asks_for_a_sum_with_one_other(post: Post) -> None:
    """It knows its own update; the server need not even cheat."""
    found = total(session(post, ["c0", "c1"]))
    assert_learned_nothing([found, truth("c1")], (1, -1), "c0")


@pytest.mark.parametrize("new_session", [False, True])
@pytest.mark.parametrize("small", [True, False])
def test_a_list_with_one_client_less(post: Post, new_session: bool, small: bool) -> None:
    """Sums over all and over all but one, each of them large."""
    fed = session(post, NAMES[1:] if small else NAMES, 4)
    first = total(fed)
    if new_session or small:
        fed = session(post, NAMES if small else NAMES[1:], 4)
    second = total(fed, over=None if new_session or small else NAMES[1:])
    assert first is not None
    assert_learned_nothing([second, first], (1, -1) if small else (-1, 1), "c0")


@pytest.mark.parametrize(("when", "sums"), [("mask", 1), ("begin", 1), ("begin", 8)])
@pytest.mark.parametrize("weights", [WEIGHTS, WEIGHTS + 1e-12])
def test_a_client_called_lost_the_second_time(
    post: Post, when: str, sums: int, weights: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list of those asked is the same, the list of those summed is not.

    The second sum has keys of its own, or those of the first one's set-up.
    """
    monkeypatch.setattr(network, "SUMS", sums)
    fed = session(post, NAMES, 4)
    first = total(fed)
    post.lost = lambda name, what: name == "c0" and what == when
    second = total(fed, weights)
    assert first is not None
    assert_learned_nothing([first, second], (1, -1), "c0")


def test_a_node_remembers_its_list_over_restarts_and_sessions(post: Post, tmp_path: Path) -> None:
    """Every message is answered by a node that was started anew from its folder."""
    assert total(session(post, NAMES, 4)) is not None
    kept = wire.decode((tmp_path / "c0" / "node.state").read_bytes(), kind="federation node")
    assert kept.get("cohorts") == [NAMES]
    post.lost = lambda name, what: name == "c4" and what == "confirm"
    assert total(session(post, NAMES, 4)) is not None  # c4 masked: the list is whole


def test_an_owner_may_allow_more_lists(tmp_path: Path) -> None:
    post = Post(clients(), tmp_path, dict.fromkeys(NAMES, terms(secure=True, cohorts=2)))
    fed = session(post, NAMES, 4)
    for lost in ((), ("c0",), ("c1",)):
        post.lost = lambda name, what, lost=lost: name in lost and what == "begin"  # type: ignore[misc]
        assert (total(fed) is None) == (lost == ("c1",))


@pytest.mark.parametrize(("least", "threshold"), [(5, 4), (4, 3)])
def test_fewer_than_the_owner_wants(tmp_path: Path, least: int, threshold: int) -> None:
    owner = terms(min_clients=least, threshold=threshold)
    post = Post(clients(), tmp_path, dict.fromkeys(NAMES, owner))
    assert total(session(post, NAMES, threshold)) is None
    assert total(session(post, NAMES, least)) is not None


def test_noise_lifts_the_rule(tmp_path: Path) -> None:
    """Sums that carry their own noise may be over any list."""
    from dp import Ledger
    from secure_fl.federation import ClientPrivacy

    post = Post(clients(), tmp_path, dict.fromkeys(NAMES, terms(noise=1.0, clip=1.0)))
    books = Ledger.create(tmp_path / "books", "all")
    for names in (NAMES, NAMES[1:], NAMES[:4]):
        fed = NetworkFederation(
            post, names, aggregation=SECURE, privacy=ClientPrivacy(1.0, 1.0, 1, books)
        )
        assert total(fed) is not None


def test_a_bare_update_is_refused_where_a_least_number_of_clients_is_set(tmp_path: Path) -> None:
    post = Post(clients(), tmp_path, dict.fromkeys(NAMES, terms(min_clients=4)))
    answer = post.node("c0").answer(wire.encode({"do": "run"}, kind=REQUEST))
    assert b"PrivacyError" in answer
