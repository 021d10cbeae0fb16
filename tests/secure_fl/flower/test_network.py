"""The handle over messages: the same sums as in one process, with real nodes and real bytes."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dp import Budget, BudgetError, Ledger
from secure_fl.federation import (
    Client,
    ClientPrivacy,
    Federation,
    FederationError,
    PrivacyError,
    QuorumError,
    SecureAggregation,
    StepError,
    calibrate,
    wire,
)
from secure_fl.federation.privacy import UNIT
from secure_fl.flower import NetworkFederation, NodePolicy
from secure_fl.flower.transport import ANSWER
from secure_fl.objectives import SquaredLoss
from secure_fl.trainers.linear import fednewton
from tests.secure_fl.federation import steps
from tests.secure_fl.federation.conftest import make_clients
from tests.secure_fl.flower.post import Post
from tests.secure_fl.trainers.linear.federations import pool

SECURE = SecureAggregation(max_weight=100.0)


@pytest.fixture
def post(tmp_path: Path) -> Post:
    return Post(make_clients(4), tmp_path)


def over(post: Post, **options: Any) -> NetworkFederation:
    return NetworkFederation(post, ["a", "b", "c", "d"], **options)


def here(**options: Any) -> Federation:
    return Federation(make_clients(4), **options)


def test_plain_sums_and_means_have_the_bytes_of_one_process(post: Post) -> None:
    weights = np.linspace(-1, 1, 4)
    far, near = over(post, seed=3), here(seed=3)
    for _ in range(2):
        for fed in (far, near):
            fed.close_round()
        for verb in ("sum", "mean"):
            a, b = (
                getattr(fed, verb)(steps.gradient, steps.Ridge(0.1), weights) for fed in (far, near)
            )
            assert a.tobytes() == b.tobytes()
        assert far.sum(steps.drawn).tobytes() == near.sum(steps.drawn).tobytes()
        assert far.sum(steps.counted).tobytes() == near.sum(steps.counted).tobytes()


def test_a_secure_sum_is_that_of_one_process_to_the_bit(post: Post) -> None:
    weights = np.linspace(-1, 1, 4)
    far, near = over(post, aggregation=SECURE), here(aggregation=SECURE)
    a, b = (fed.mean(steps.gradient, steps.Ridge(0.1), weights) for fed in (far, near))
    assert a.tobytes() == b.tobytes()


def asked(post: Post) -> list[str]:
    """What each node is asked for from now on, one after another; the same of all of them."""
    heard: list[str] = []
    lost = post.lost

    def hear(name: str, what: str) -> bool:
        if name == "a":
            heard.append(what)
        return lost(name, what)

    post.lost = hear
    return heard


FIRST = ["begin", "share", "mask", "confirm", "unmask"]
NEXT = ["begin", "confirm", "unmask"]


def test_sums_that_follow_use_the_first_ones_keys_and_are_those_of_one_process(post: Post) -> None:
    """Eight sums by one set-up: five exchanges, then three; the ninth makes a new one."""
    heard = asked(post)
    far, near = over(post, aggregation=SECURE), here(aggregation=SECURE)
    for number in range(9):
        weights = np.linspace(-1, 1, 4) + number
        a, b = (fed.mean(steps.gradient, steps.Ridge(0.1), weights) for fed in (far, near))
        assert a.tobytes() == b.tobytes()
        if number % 2:
            far.close_round()
            near.close_round()
    assert heard == [*FIRST, *(7 * NEXT), *FIRST]


@pytest.mark.parametrize("when", NEXT)
def test_a_node_that_dies_in_a_later_sum_is_lost_in_it_and_there_in_the_next(
    post: Post, when: str
) -> None:
    ones, fed = np.ones(2), over(post, aggregation=SECURE, threshold=3)
    assert fed.sum(steps.constant, ones).tolist() == [4.0, 4.0]
    post.lost = lambda name, what: name == "b" and what == when
    count = 3.0 if when == "begin" else 4.0
    assert fed.sum(steps.constant, ones).tolist() == [count, count]
    post.lost = lambda name, what: False
    heard = asked(post)
    assert fed.sum(steps.constant, ones).tolist() == [4.0, 4.0]
    # Where all were in the sum to its end its keys go on; else all make new ones.
    assert heard == (FIRST if when == "begin" else NEXT)


def test_a_node_that_lost_its_memory_is_lost_in_one_sum(post: Post, tmp_path: Path) -> None:
    fed = over(post, aggregation=SECURE, threshold=3)
    fed.sum(steps.constant, np.ones(1))
    (tmp_path / "b" / "node.state").unlink()
    assert fed.sum(steps.constant, np.ones(1)) == [3.0]
    assert fed.sum(steps.constant, np.ones(1)) == [4.0]


def test_another_cohort_or_threshold_makes_keys_of_its_own(post: Post) -> None:
    fed = over(post, aggregation=SECURE)
    fed.sum(steps.constant, np.ones(1))
    heard = asked(post)
    assert fed.sum(steps.constant, np.ones(1), over=["a", "b", "c"]) == [3.0]
    assert fed.sum(steps.constant, np.ones(1)) == [4.0]
    assert heard == FIRST * 2


def test_a_step_that_is_not_finite_in_a_later_sum_is_left_out_of_it(post: Post) -> None:
    fed = over(post, aggregation=SECURE, threshold=3)
    fed.sum(steps.constant, np.ones(2))
    np.testing.assert_array_equal(fed.sum(steps.poisoned, ("b",), math.nan), [3.0, 6.0])
    assert fed.refused == ("b",)
    assert fed.sum(steps.constant, np.ones(2)).tolist() == [4.0, 4.0]


@pytest.mark.parametrize("when", ["begin", "share", "mask", "confirm", "unmask"])
def test_a_node_that_dies_leaves_the_sum_of_those_who_sent_their_vector(
    post: Post, when: str
) -> None:
    post.lost = lambda name, what: name == "b" and what == when
    fed = over(post, aggregation=SECURE, threshold=3)
    found = fed.sum(steps.constant, np.array([1.0, 2.0]))
    count = 4 if when in ("confirm", "unmask") else 3
    np.testing.assert_array_equal(found, count * np.array([1.0, 2.0]))
    assert ("b" in fed.survivors) == (count == 4)


@pytest.mark.parametrize("when", ["begin", "share", "mask", "confirm", "unmask"])
def test_below_the_threshold_a_secure_sum_ends_with_an_error(post: Post, when: str) -> None:
    post.lost = lambda name, what: name in "ab" and what == when
    with pytest.raises(QuorumError):
        over(post, aggregation=SECURE, threshold=3).sum(steps.constant, np.ones(2))


def test_below_the_threshold_a_plain_sum_ends_with_an_error_and_the_next_one_goes_on(
    post: Post,
) -> None:
    fed = over(post, threshold=4)
    post.lost = lambda name, what: name == "c"
    with pytest.raises(QuorumError):
        fed.sum(steps.constant, np.ones(1))
    post.lost = lambda name, what: False
    assert fed.sum(steps.constant, np.ones(1)) == [4.0]


def test_a_step_that_fails_says_where_and_not_what(post: Post) -> None:
    with pytest.raises(StepError, match=r'client "a": failing failed .*ZeroDivisionError') as found:
        over(post).sum(steps.failing)
    assert "no such luck" not in str(found.value)


@pytest.mark.parametrize("aggregation", [None, SECURE])
def test_an_update_that_is_not_finite_is_left_out(
    post: Post, aggregation: SecureAggregation | None
) -> None:
    fed = over(post, aggregation=aggregation, threshold=3)
    np.testing.assert_array_equal(fed.sum(steps.poisoned, ("b",), math.nan), [3.0, 6.0])
    assert fed.refused == ("b",)


def test_fednewton_gives_the_bytes_of_one_process_and_resumes_to_them(tmp_path: Path) -> None:
    data = pool()
    clients = [Client(f"c{i}", data.X[p], data.y[p]) for i, p in enumerate(data.parts)]
    names = [client.name for client in clients]
    objective = SquaredLoss(0.1, 3)
    (*_, expected) = fednewton(Federation(clients, seed=1), objective, rounds=4)
    post, kept = Post(clients, tmp_path), tmp_path / "run.checkpoint"
    fed = NetworkFederation(post, names, seed=1)
    for state in fed.rounds(fednewton(fed, objective, rounds=4), checkpoint=kept):
        if state.round == 2:
            break
    fed = NetworkFederation(post, names, seed=1)
    start = fed.resume(kept)
    (*_, found) = fed.rounds(fednewton(fed, objective, rounds=4, start=start), checkpoint=kept)
    assert found.weights.tobytes() == expected.weights.tobytes()


def test_a_server_that_repeats_a_round_finds_the_clients_as_they_were(
    post: Post, tmp_path: Path
) -> None:
    kept = tmp_path / "run.checkpoint"
    fed = over(post)
    for state in fed.rounds(iter([_count(fed), *()]), checkpoint=kept):
        assert state.tolist() == [0.0]
    fed.sum(steps.counted)  # of a round that is never closed
    fed = over(post)
    fed.resume(kept)
    assert fed.sum(steps.counted).tolist() == [8.0]  # the second call of each of the four


def _count(fed: Federation) -> Any:
    fed.sum(steps.counted)
    return np.zeros(1)


def test_client_noise_is_drawn_at_the_nodes_booked_once_and_never_repeated(
    post: Post, tmp_path: Path
) -> None:
    books = Ledger.create(tmp_path / "books", "all", Budget(8.0, 1e-5, UNIT))
    noise = calibrate(8.0, 1e-5, 2)
    privacy = ClientPrivacy(10.0, noise, 2, books)
    fed = over(post, aggregation=SECURE, privacy=privacy)
    once, twice = (fed.sum(steps.constant, np.ones(50)) for _ in range(2))
    assert len(books.events) == 2
    # Four parts, each sized for three survivors; 100 entries place the deviation within a fifth.
    spread = np.concatenate([once, twice]) - 4
    assert 0.7 < spread.std() / (noise * 10 * math.sqrt(4 / 3)) < 1.3
    with pytest.raises(PrivacyError, match="2 private sums were planned"):
        fed.sum(steps.constant, np.ones(50))


def test_noise_that_nodes_cannot_check_is_refused(post: Post, tmp_path: Path) -> None:
    books = Ledger.create(tmp_path / "books", "all")
    privacy = ClientPrivacy(10.0, 1.0, 2, books, noise="skellam")
    with pytest.raises(FederationError, match="skellam"):
        over(post, aggregation=SECURE, privacy=privacy)


@pytest.mark.parametrize(
    ("terms", "options"),
    [
        (NodePolicy(secure=True), {}),
        (NodePolicy(noise=1.0), {"aggregation": SECURE}),
        (NodePolicy(noise=1.0), {}),
    ],
)
def test_a_node_refuses_what_its_owner_does_not_allow(
    tmp_path: Path, terms: NodePolicy, options: Any
) -> None:
    clients = make_clients(4)
    post = Post(clients, tmp_path, {client.name: terms for client in clients})
    with pytest.raises(QuorumError):
        over(post, **options).sum(steps.constant, np.ones(2))


def test_a_node_answers_no_step_of_a_sum_twice(post: Post) -> None:
    asked: list[tuple[str, bytes]] = []

    def replay(requests: Mapping[str, bytes], seconds: float) -> dict[str, bytes]:
        asked.extend(requests.items())
        return post(requests, seconds)

    NetworkFederation(replay, ["a", "b", "c", "d"], aggregation=SECURE).sum(
        steps.constant, np.ones(2)
    )
    for name, request in asked:
        answer = wire.decode(post.node(name).answer(request), kind=ANSWER)
        assert "dropped" in answer
        assert "message" not in answer


def test_what_leaves_a_node_under_secure_aggregation_does_not_hold_its_update(post: Post) -> None:
    value = np.array([1.2345678, -9.87654321])
    over(post, aggregation=SECURE).sum(steps.constant, value)
    codes = np.round(value * 2.0**32).astype(np.int64)
    for _, answer in post.seen:
        for needle in (value[:1], value[1:], codes[:1], codes[1:]):
            assert needle.tobytes() not in answer


def test_a_nodes_folder_is_its_owners_alone(post: Post, tmp_path: Path) -> None:
    over(post, aggregation=SECURE).sum(steps.constant, np.ones(2))
    assert (tmp_path / "a").stat().st_mode & 0o077 == 0
    assert (tmp_path / "a" / "node.state").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("answer", [b"", b"rubbish", wire.encode([1], kind=ANSWER)])
def test_a_node_that_answers_rubbish_drops_out(post: Post, answer: bytes) -> None:
    def forged(requests: Mapping[str, bytes], seconds: float) -> dict[str, bytes]:
        return {**post(requests, seconds), "d": answer}

    fed = NetworkFederation(forged, ["a", "b", "c", "d"], aggregation=SECURE, threshold=3)
    assert fed.sum(steps.constant, np.ones(1)) == [3.0]


@pytest.mark.parametrize("aggregation", [None, SECURE])
def test_an_interrupted_private_sum_is_booked_again_and_gets_fresh_noise(
    post: Post, tmp_path: Path, aggregation: SecureAggregation | None
) -> None:
    kept = tmp_path / "run.checkpoint"
    books = Ledger.create(tmp_path / "books", "all", Budget(1000.0, 1e-5, UNIT))

    def fresh() -> NetworkFederation:
        privacy = ClientPrivacy(10.0, 1.0, 3, books)
        return over(post, aggregation=aggregation, privacy=privacy)

    fed = fresh()
    for _ in fed.rounds(iter([_constant(fed)]), checkpoint=kept):
        pass
    interrupted = fed.sum(steps.constant, np.ones(20))
    fed = fresh()
    fed.resume(kept)
    again = fed.sum(steps.constant, np.ones(20))
    assert len(books.events) == 3
    assert not np.any(interrupted == again)
    fed.sum(steps.constant, np.ones(20))
    with pytest.raises(PrivacyError, match="planned"):
        fed.sum(steps.constant, np.ones(20))


def test_an_exact_plan_is_resumed_between_sums_and_refused_after_an_interrupted_one(
    post: Post, tmp_path: Path
) -> None:
    """An interrupted sum is paid for twice, so it needs room in the budget."""
    noise = calibrate(8.0, 1e-5, 3)

    def fresh(books: Ledger) -> NetworkFederation:
        return over(post, aggregation=SECURE, privacy=ClientPrivacy(10.0, noise, 3, books))

    for interrupted in (False, True):
        kept = tmp_path / f"{interrupted}.checkpoint"
        books = Ledger.create(tmp_path / f"{interrupted}.books", "all", Budget(8.0, 1e-5, UNIT))
        fed = fresh(books)
        for _ in fed.rounds(iter([_constant(fed)]), checkpoint=kept):
            pass
        if interrupted:
            fed.sum(steps.constant, np.ones(20))
        fed = fresh(books)
        fed.resume(kept)
        if interrupted:
            with pytest.raises(BudgetError, match="no noise was drawn"):
                fed.sum(steps.constant, np.ones(20))
        else:
            fed.sum(steps.constant, np.ones(20))
            fed.sum(steps.constant, np.ones(20))
        assert len(books.events) == (2 if interrupted else 3)


def test_an_exact_plan_is_resumed_again_and_again(post: Post, tmp_path: Path) -> None:
    """Sums of all earlier sessions are off the plan, not of the last one alone."""
    kept = tmp_path / "run.checkpoint"
    books = Ledger.create(tmp_path / "books", "all", Budget(8.0, 1e-5, UNIT))
    noise = calibrate(8.0, 1e-5, 4)
    for _ in range(4):
        fed = over(post, aggregation=SECURE, privacy=ClientPrivacy(10.0, noise, 4, books))
        fed.resume(kept)
        for _ in fed.rounds(iter([_constant(fed)]), checkpoint=kept):
            pass
    assert len(books.events) == 4
    fed = over(post, aggregation=SECURE, privacy=ClientPrivacy(10.0, noise, 4, books))
    fed.resume(kept)
    with pytest.raises(PrivacyError, match="4 private sums were planned"):
        fed.sum(steps.constant, np.ones(20))
    assert len(books.events) == 4


def _constant(fed: Federation) -> Any:
    fed.sum(steps.constant, np.ones(20))
    return np.zeros(1)
