"""A server that begins sums which it never ends, so that the nodes spend their budgets on nothing.

A node must pay before its masked vector leaves: from then on the others can end the sum without it.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dp import Budget, Ledger, Record
from secure_fl.federation import Client, wire
from secure_fl.trainers.linear._noisy_moments import MomentNoise, local_noisy_moments
from tests.attacks.cheat import PLAIN, Cheat, terms
from tests.attacks.table import Attack
from tests.secure_fl.federation.steps import constant
from tests.secure_fl.flower.post import Post
from tests.secure_fl.trainers.linear.federations import pool

ATTACK = Attack(
    name="begins sums and never ends them",
    holds="the training server, alone or with fewer colluding clients than the threshold",
    before="the whole budget of a node for one message each, and no result",
    after="nothing by messages to one node: it pays when its masked vector leaves, after enough"
    " others sealed their shares, for it or for the sums that it is one of; at most 3 sums in all"
    " that were paid for and not ended (the owner's `unfinished`), across sessions and restarts",
)

NAMES = [f"c{i}" for i in range(4)]
NOISE = MomentNoise(1.0, 3, 2.0**23)
CODING = {**PLAIN, "clip": 2.0**12, "clients": 4}
BOUND = 3


class Parties:
    """Nodes with ledgers, and a server that stops where it likes."""

    def __init__(self, folder: Path, **owner: Any) -> None:
        data = pool(sizes=(30, 8, 17, 12))
        clients = [Client(n, data.X[p], data.y[p]) for n, p in zip(NAMES, data.parts, strict=True)]
        budget = Budget(20.0, 1e-5, Record(1.0))
        self.books = [Ledger.create(folder / f"{n}.books", n, budget) for n in NAMES]
        self.folder = folder
        owners = {
            name: terms(**({"ledger": books} | owner))
            for name, books in zip(NAMES, self.books, strict=True)
        }
        self.post = Post(clients, folder, owners)

    def begin(self, until: str, lost: tuple[str, ...] = ()) -> Any:
        """One more sum, of a session of its own, until a step."""
        cheat = Cheat(self.post.node, NAMES, 3)
        request = cheat.request(local_noisy_moments, NOISE, coding=CODING)
        if until == "begin":
            return cheat.begin(dict.fromkeys(NAMES, request))
        return cheat.sum(dict.fromkeys(NAMES, request), until, lost)

    @property
    def spent(self) -> list[int]:
        return [len(each.events) for each in self.books]


@pytest.mark.parametrize("until", ["begin", "share"])
def test_sums_that_stop_before_the_vector_leaves_cost_nothing(tmp_path: Path, until: str) -> None:
    parties = Parties(tmp_path)
    for _ in range(6):
        parties.begin(until)
    assert parties.spent == [0] * 4


@pytest.mark.parametrize("until", ["mask", "confirm"])
def test_sums_that_stop_later_cost_no_more_than_a_bounded_number(
    tmp_path: Path, until: str
) -> None:
    parties = Parties(tmp_path)
    for _ in range(6):
        parties.begin(until)
    assert max(parties.spent) <= BOUND, f"{parties.spent} events, no result"


def test_a_server_that_ends_some_is_bounded_as_well(tmp_path: Path) -> None:
    """An ended sum does not give back what an unended one cost."""
    parties = Parties(tmp_path)
    for _ in range(2):
        parties.begin("confirm")
    assert parties.begin("unmask") is not None
    for _ in range(4):
        parties.begin("mask")
    assert max(parties.spent) <= BOUND + 1


def test_one_node_cannot_be_made_to_pay_by_itself(tmp_path: Path) -> None:
    """The server brings no other clients: nobody's seals open, so no vector leaves."""
    parties = Parties(tmp_path)
    for _ in range(6):
        cheat = Cheat(parties.post.node, NAMES, 3)
        request = cheat.request(local_noisy_moments, NOISE, coding=CODING)
        assert cheat.begin({"c0": request})
        for step in ("share", "mask"):
            cheat.ask("c0", {"do": step, "message": np.zeros(4, np.uint8)})
    assert parties.spent[0] == 0


def test_one_node_pays_for_no_more_where_keys_serve_several_sums(tmp_path: Path) -> None:
    """After an honest sum its keys serve seven more, of which the server asks one node alone."""
    parties = Parties(tmp_path)
    cheat = Cheat(parties.post.node, NAMES, 3, sums=8)

    def ask() -> Any:
        return cheat.request(local_noisy_moments, NOISE, coding=CODING)

    assert cheat.sum(dict.fromkeys(NAMES, ask())) is not None
    assert parties.spent == [1] * 4
    paid = [bool(cheat.begin({"c0": ask()})) for cheat.place in range(1, 8)]
    assert paid == [True] * BOUND + [False] * (7 - BOUND)
    assert parties.spent == [1 + BOUND, 1, 1, 1]


def test_a_place_of_a_set_up_is_paid_for_and_used_once(tmp_path: Path) -> None:
    parties = Parties(tmp_path)
    cheat = Cheat(parties.post.node, NAMES, 3, sums=8)
    request = cheat.request(local_noisy_moments, NOISE, coding=CODING)
    assert cheat.sum(dict.fromkeys(NAMES, request)) is not None
    request = cheat.request(local_noisy_moments, NOISE, coding=CODING)
    assert cheat.begin({"c0": request})
    assert not cheat.begin({"c0": request})
    # Another call of the same place: other masks, but the same seeds.
    again = cheat.request(local_noisy_moments, NOISE, coding=CODING)
    assert again["sum"]["place"] == request["sum"]["place"]
    assert not cheat.begin({"c0": again})
    assert parties.spent[0] == 2


def test_the_count_survives_a_restart_and_is_the_owners_to_raise(tmp_path: Path) -> None:
    parties = Parties(tmp_path)
    for _ in range(6):
        parties.begin("mask")
    kept = wire.decode((tmp_path / "c0" / "node.state").read_bytes(), kind="federation node")
    assert kept.get("unfinished") == BOUND
    assert parties.begin("begin") == {}
    for name, books in zip(NAMES, parties.books, strict=True):
        parties.post.terms[name] = terms(ledger=books, unfinished=9)
    assert parties.begin("unmask") is not None


def test_the_number_of_private_sums_is_not_burned_either(tmp_path: Path) -> None:
    """Where the owner counts sums (`sums`) in place of a ledger."""
    parties = Parties(tmp_path, ledger=None, noise=1.0, clip=1.0, sums=20)
    coding = {**PLAIN, "clip": 1.0, "clients": 4, "steps": 2**20, "sigma": float(2**20)}
    for _ in range(6):
        cheat = Cheat(parties.post.node, NAMES, 3)
        request = cheat.request(constant, np.ones(3), coding=coding)
        cheat.sum(dict.fromkeys(NAMES, request), "mask")
    kept = wire.decode((tmp_path / "c0" / "node.state").read_bytes(), kind="federation node")
    assert kept["private_sums"] <= BOUND
