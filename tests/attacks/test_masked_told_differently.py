"""A querier that sends one contributor of a masked sum the real query and the others a far one.

The others' codes at a query far from all their records are the largest, so the smallest integer of
the sum is the victim's own: code and class. The cheat is the server and the querier in one, speaks
the real protocol to real contributors, and opens whatever sum it gets.
"""

import contextlib
from typing import Any

import numpy as np
import pytest

from secure_fl.errors import ProtocolError, QuorumError
from secure_fl.federation.secagg import Identity, Member, Parameters, ProtocolClient, ProtocolServer
from secure_fl.heads.codes import head_codes
from secure_fl.heads.fitting import train_heads
from secure_fl.heads.manifest import make_manifest
from secure_fl.masked import Opened, RowCoding, Told
from tests.attacks.table import Attack

ATTACK = Attack(
    name="asks the contributors of one masked sum different queries",
    holds="the querier and the evaluator, and what they tell each contributor: queries, batch,"
    " manifest",
    before="the victim's smallest code and its class, exactly (a sum that binds cohort and session"
    " alone)",
    after="nothing: keys, seals and confirmations of contributors that were told differently do not"
    " meet",
)

NAMES = tuple("abcde")
VICTIM = "a"
SESSION = bytes(16)
THRESHOLD = 4


def federation() -> tuple[Any, dict[str, Any]]:
    rng = np.random.default_rng(0)
    manifest = make_manifest(
        classes=("x", "y", "z"), clients=NAMES, n_features=4, bits=6, rule="masked"
    )
    parties = [(n, rng.normal(size=(30, 4)), np.arange(30) % 3) for n in NAMES]
    return manifest, {head.client: head for head in train_heads(parties, manifest)}


MANIFEST, HEADS = federation()
CODING = RowCoding(MANIFEST.bits, len(MANIFEST.classes))
REAL = np.array([[0.3, -0.2, 0.1, 0.4]], np.float32)
FAR = np.full((1, 4), 1e6, np.float32)


class Contributor:
    """A real one: it folds what it is told, and makes the digest of that itself."""

    def __init__(self, name: str, member: Member, told: Told, *, bound: bool) -> None:
        self.codes = head_codes(HEADS[name], told.queries, MANIFEST)
        agreed = told.agreed(CODING, 0, len(told.queries)) if bound else bytes(32)
        self.protocol = ProtocolClient(member, parameters(agreed))

    def say(self, step: str, message: bytes) -> bytes:
        if step == "advertise":
            return self.protocol.advertise()
        if step == "mask":
            return self.protocol.mask(message, CODING.rows(self.codes), "rows")
        return bytes(getattr(self.protocol, step)(message))


def parameters(agreed: bytes) -> Parameters:
    return Parameters(SESSION, 0, 0, NAMES, THRESHOLD, 4, THRESHOLD, agreed=agreed)


def run(told: dict[str, Told], *, bound: bool = True) -> list[tuple[tuple[str, ...], Opened]]:
    """What a server opens that tells every contributor what it likes: whose rows, and the answer.

    It may follow the context of any of them, and begins anew for each.
    """
    contexts = dict.fromkeys(
        told[name].agreed(CODING, 0, len(told[name].queries)) if bound else bytes(32)
        for name in NAMES
    )
    opened = []
    for agreed in contexts:
        identities = {name: Identity() for name in NAMES}
        directory = {name: each.public for name, each in identities.items()}
        parties = {
            name: Contributor(
                name, Member(name, identities[name], directory, SESSION), told[name], bound=bound
            )
            for name in NAMES
        }
        server = ProtocolServer(parameters(agreed))
        answer = attempt(server, parties)
        if answer is not None:
            opened.append((server.survivors, answer))
    return opened


def attempt(server: ProtocolServer, parties: dict[str, Contributor]) -> Opened | None:
    """Drives the parties through all steps, as far as they go."""
    replies: dict[str, bytes] = dict.fromkeys(parties, b"")
    try:
        for step in ("advertise", "share", "mask", "confirm", "unmask"):
            for name, message in replies.items():
                with contextlib.suppress(ProtocolError, QuorumError):
                    server.receive(name, parties[name].say(step, message))
            replies = server.close_step() if step != "unmask" else {}
        return CODING.open(server.total())
    except (ProtocolError, QuorumError):
        return None


def honest(queries: np.ndarray = REAL, **other: str) -> Told:
    return Told(**{"federation": MANIFEST.fingerprint, "batch": "b", **other, "queries": queries})


def everybody(told: Told, **others: Told) -> dict[str, Told]:
    return {**dict.fromkeys(NAMES, told), **others}


def test_contributors_that_were_told_alike_are_summed() -> None:
    """The cheat's own machinery works."""
    ((names, opened),) = run(everybody(honest()))
    codes = np.stack([head_codes(HEADS[name], REAL, MANIFEST) for name in NAMES])
    assert names == NAMES
    assert opened.codes.tolist() == [codes.min()]


def test_a_sum_that_binds_no_query_shows_the_victims_code() -> None:
    """The attack bites where contributors do not bind what they were told."""
    ((_, opened),) = run({**everybody(honest(FAR)), VICTIM: honest()}, bound=False)
    own = CODING.pack(head_codes(HEADS[VICTIM], REAL, MANIFEST))
    assert (opened.codes * CODING.classes + opened.classes).tolist() == own.tolist()


DIFFERENT = {
    "a far query": honest(FAR),
    "a query that differs by one bit": honest(np.nextafter(REAL, np.float32(1))),
    "a query more": honest(np.concatenate([REAL, FAR])),
    "another batch": honest(batch="c"),
    "another manifest": honest(federation="0" * 64),
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_a_contributor_that_was_told_differently_is_in_no_sum(what: str) -> None:
    """The others, told alike and enough, have a sum of their own; the victim's row is not in it."""
    opened = run({**everybody(DIFFERENT[what]), VICTIM: honest()})
    assert [names for names, _ in opened] == [tuple(n for n in NAMES if n != VICTIM)]


@pytest.mark.parametrize("apart", [2, 3])
def test_groups_below_the_threshold_have_no_sum(apart: int) -> None:
    told = everybody(honest(FAR))
    told.update(dict.fromkeys(NAMES[:apart], honest()))
    assert run(told) == []
