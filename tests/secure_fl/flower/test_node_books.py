"""A node with a ledger of its own: what it books, and a server that tries to get more for less."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

from dp import Budget, Ledger, Record
from secure_fl.federation import (
    Client,
    ClientPrivacy,
    Federation,
    QuorumError,
    SecureAggregation,
    wire,
)
from secure_fl.federation.privacy import UNIT
from secure_fl.flower import NetworkFederation, NodePolicy
from secure_fl.flower.memory import Memory
from secure_fl.flower.transport import ANSWER, REQUEST
from secure_fl.objectives import SquaredLoss
from secure_fl.trainers.linear import fednewton, private_ridge
from secure_fl.trainers.linear._noisy_moments import MomentNoise, local_noisy_moments
from tests.secure_fl.flower.post import Post
from tests.secure_fl.trainers.linear.federations import pool

NAMES = ["c0", "c1", "c2"]
SECURE = SecureAggregation(max_weight=1.0)
SIGMA = 6e6
"""Of a client's part, in grid steps: three sums cost less than epsilon 2, four cost more."""


@pytest.fixture
def post(tmp_path: Path) -> Post:
    data = pool()
    clients = [Client(n, data.X[p], data.y[p]) for n, p in zip(NAMES, data.parts, strict=True)]
    terms = {name: NodePolicy(ledger=_books(tmp_path, name), threshold=2) for name in NAMES}
    return Post(clients, tmp_path, terms)


def _books(folder: Path, name: str) -> Ledger:
    return Ledger.create(folder / f"{name}.books", name, Budget(2.0, 1e-5, Record(1.0)))


def over(post: Post, **options: Any) -> NetworkFederation:
    return NetworkFederation(post, NAMES, **{"aggregation": SECURE, "threshold": 2, **options})


def events(post: Post) -> list[int]:
    return [len(terms.ledger.events) for terms in post.terms.values() if terms.ledger]


def test_private_ridge_is_booked_by_every_node_as_the_server_books_it(
    post: Post, tmp_path: Path
) -> None:
    books = Ledger.create(tmp_path / "server.books", "server")
    fed = over(post)
    options = {"features": 6, "outputs": 3, "norm": 1.0, "delta": 1e-5}
    (state,) = fed.rounds(private_ridge(fed, **options, epsilon=1.5, ledger=books))
    assert np.isfinite(state.weights).all()
    for terms in post.terms.values():
        assert terms.ledger is not None
        (event,), (same,) = terms.ledger.events, books.events
        assert event.gaussian == same.gaussian
        assert terms.ledger.get_epsilon(1e-5).epsilon == pytest.approx(1.5, rel=1e-3)
    with pytest.raises(QuorumError):
        next(private_ridge(over(post), **options, epsilon=1.5, ledger=books))
    assert events(post) == [1, 1, 1]


def test_private_ridge_over_a_network_has_the_noise_of_one_process(
    post: Post, tmp_path: Path
) -> None:
    """Same sums but for the noise: 27 entries, each of deviation 1.2 in a fed of three."""
    data = pool()
    near = Federation(
        [Client(n, data.X[p], data.y[p]) for n, p in zip(NAMES, data.parts, strict=True)],
        aggregation=SecureAggregation(),
        threshold=2,
    )
    noise = MomentNoise(1.0, 3, 1000.0)
    post.terms = {}
    far, here = (fed.sum(local_noisy_moments, noise) for fed in (over(post), near))
    assert not np.array_equal(far, here)
    np.testing.assert_allclose(far, here, atol=20 * 1000.0 * 2.0**-20)


@pytest.mark.parametrize(
    "options",
    [
        {"aggregation": None, "threshold": 1},
        {"aggregation": attrs.evolve(SECURE, clip=1.0)},
        {"aggregation": attrs.evolve(SECURE, clip=1000.0)},
        {"aggregation": attrs.evolve(SECURE, clip=2.0**60)},
        {"aggregation": attrs.evolve(SECURE, clip=2.0**12, bits=32)},
    ],
)
def test_noise_that_would_not_arrive_as_it_was_drawn_is_refused(
    post: Post, options: Mapping[str, Any]
) -> None:
    """Codes that clip or round single noisy values leave each hidden by its own part alone."""
    with pytest.raises(QuorumError):
        over(post, **options).sum(local_noisy_moments, MomentNoise(1.0, 3, SIGMA))
    assert events(post) == [0, 0, 0]


def test_noise_in_weighted_or_clipped_sums_is_refused(post: Post, tmp_path: Path) -> None:
    noise = MomentNoise(1.0, 3, SIGMA)
    with pytest.raises(QuorumError):
        over(post).mean(local_noisy_moments, noise)
    books = Ledger.create(tmp_path / "all.books", "all", Budget(100.0, 1e-5, UNIT))
    with pytest.raises(QuorumError):
        over(post, privacy=ClientPrivacy(1.0, 1.0, 1, books)).sum(local_noisy_moments, noise)
    assert events(post) == [0, 0, 0]


@pytest.mark.parametrize(
    "noise", [MomentNoise(1.0, 3, 1e5), MomentNoise(1.0, 3, 0.1), MomentNoise(9.0, 3, SIGMA)]
)
def test_too_little_noise_or_another_unit_is_refused(post: Post, noise: MomentNoise) -> None:
    with pytest.raises(QuorumError):
        over(post).sum(local_noisy_moments, noise)
    assert events(post) == [0, 0, 0]


def test_sums_are_answered_until_the_budget_is_spent(post: Post) -> None:
    fed = over(post)
    for _ in range(3):
        fed.sum(local_noisy_moments, MomentNoise(1.0, 3, SIGMA))
    with pytest.raises(QuorumError):
        fed.sum(local_noisy_moments, MomentNoise(1.0, 3, SIGMA))
    assert events(post) == [3] * 3


def test_a_node_with_books_answers_no_step_without_noise(post: Post) -> None:
    with pytest.raises(QuorumError):
        next(fednewton(over(post), SquaredLoss(0.1, 3), rounds=1))


# --------------------------------------------------------------------- messages that come twice


class Doubled:
    """A network that delivers every message twice, to a node made anew each time."""

    def __init__(self, post: Post) -> None:
        self._post = post
        self._count = 0
        self.pairs: list[tuple[bytes, bytes]] = []

    def __call__(self, requests: Mapping[str, bytes], seconds: float) -> dict[str, bytes]:
        found = {}
        for name, request in requests.items():
            self._count += 1
            number = f"message {self._count}"
            once, again = (self._post.node(name).answer(request, number) for _ in range(2))
            self.pairs.append((once, again))
            found[name] = again
        return found


def test_a_message_that_comes_twice_is_answered_alike_and_booked_once(post: Post) -> None:
    """A second time the steps of a masked sum would be refused, and its noise paid for again."""
    doubled = Doubled(post)
    fed = NetworkFederation(doubled, NAMES, aggregation=SECURE, threshold=2)
    assert np.isfinite(fed.sum(local_noisy_moments, MomentNoise(1.0, 3, SIGMA))).all()
    assert len(doubled.pairs) == 15
    assert all(once == again for once, again in doubled.pairs)
    assert events(post) == [1, 1, 1]


def test_an_older_message_that_comes_again_gets_nothing(post: Post) -> None:
    node = post.node("c0")
    question = wire.encode({"do": "name"}, kind=REQUEST)
    first = node.answer(question, "first")
    node.answer(question, "second")
    assert wire.decode(first, kind=ANSWER) == {"name": "c0"}
    again = wire.decode(post.node("c0").answer(question, "first"), kind=ANSWER)
    assert again == {"dropped": "Repeated"}


class Killed(BaseException):
    """The end of the process."""


def test_a_node_killed_when_it_had_booked_books_nothing_again_for_that_sum(
    post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither for the message that it was killed in, nor for another of the same sum."""
    held: list[bytes] = []

    def network(requests: Mapping[str, bytes], seconds: float) -> dict[str, bytes]:
        found = {}
        for name, request in requests.items():
            asked = wire.decode(request, kind=REQUEST)["do"]
            if name == "c0" and asked == "mask":
                held.append(request)
            else:
                found[name] = post.node(name).answer(request, f"{name} {asked}")
        return found

    fed = NetworkFederation(network, NAMES, aggregation=SECURE, threshold=2)
    fed.sum(local_noisy_moments, MomentNoise(1.0, 3, SIGMA))
    assert events(post) == [0, 1, 1]
    node, spend = post.node("c0"), Ledger.spend

    def killed(self: Ledger, event: Any) -> None:
        spend(self, event)
        raise Killed

    monkeypatch.setattr(Ledger, "spend", killed)
    # A process that is killed writes nothing any more.
    monkeypatch.setattr("secure_fl.flower.memory.Memory.keep", _only_the_first_time(Memory.keep))
    with pytest.raises(Killed):
        node.answer(held[0], "mask")
    monkeypatch.undo()
    assert events(post) == [1, 1, 1]
    for number, told in (("mask", "Interrupted"), ("another", "ProtocolError")):
        found = wire.decode(post.node("c0").answer(held[0], number), kind=ANSWER)
        assert found == {"dropped": told}
    assert events(post) == [1, 1, 1]


def _only_the_first_time(keep: Any) -> Any:
    calls: list[int] = []

    def kept(self: Memory, what: Any) -> None:
        calls.append(1)
        if len(calls) == 1:
            keep(self, what)

    return kept
