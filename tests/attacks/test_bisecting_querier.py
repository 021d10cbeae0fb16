"""A querier with one contributor on its side walks along the others' smallest code.

It asks one query many times; the accomplice sends a code of its choice each time, and the class
that wins says whether the victim's packed integer lies below. Evaluator and secret key do what
they should: the answers are those of the rule, worked out in the clear here.
"""

import numpy as np
import pytest

pytest.importorskip("prometheus_client", reason="needs the extra `service` (securefl[service])")

from secure_fl.demo.service_parties import IDENTITY
from secure_fl.service.contributor import ContributorPolicy, Declined
from secure_fl.service.contributor_app import load_contributor
from secure_fl.service.likeness import count_before, first_pair, nearly_equal
from secure_fl.service.members import read_member
from secure_fl.service.sealed_query import Facts, seal_query
from tests.attacks.table import Attack

ATTACK = Attack(
    name="asks one query with all codes of an accomplice",
    holds="the querier with one contributor on its side",
    before="the others' smallest code, exactly, from one batch of 255 copies",
    after="no nearly equal queries in a batch, and as many repeats a day as the owner allows",
)

NOW = 1e9
HOUR = 3600.0


class Cheat:
    """The querier, with south's help; north is the victim.

    Args:
        made: the federation.
        state: of north.
        terms: north's.
    """

    def __init__(self, made, state, **terms):
        self.made, self.state, self.terms = made, state, ContributorPolicy(**terms)
        self.victim = int(made.parameters.packing.pack(made.codes[:1, 0])[0])
        # What the answers leave possible of the victim's smallest code.
        self.low, self.high = 0, 2**made.parameters.bits - 1
        self.batches = 0
        self.north = self._load()

    def _load(self):
        folder = self.made.folder / "north"
        keys = folder / IDENTITY
        return load_contributor(folder, "north", folder, keys, self.state, self.terms)

    def restart(self):
        """North's process ends and begins again."""
        self.north.outbox.close()
        self.north = self._load()

    def ask(self, features, now=NOW):
        """One batch through the real protocol; north's refusal is raised."""
        self.batches += 1
        name = f"b{self.batches}"
        facts = Facts(
            federation=self.made.manifest.fingerprint,
            batch=name,
            contributor="north",
            public=self.north.keys["querier"].fingerprint,
            queries=len(features),
            quorum=2,
            expires=now + HOUR,
        )
        member = read_member(self.made.folder / "querier" / IDENTITY, "querier", self.made.manifest)
        query = seal_query(facts, features, None, member, self.made.manifest)
        self.north.answer(query.to_bytes(), name, now)

    def learn(self, code):
        """From the answer to a query at which the accomplice sent `code`, for the last class."""
        own = int(self.made.parameters.packing.pack(np.array([[63, 63, code]]))[0])
        if self.victim < own:
            self.high = min(self.high, code)
        else:
            self.low = max(self.low, code)

    @property
    def candidates(self):
        """Codes that the victim's smallest may have."""
        return self.high - self.low + 1


def test_copies_of_one_query_in_one_batch_teach_nothing(made, tmp_path):
    """63 copies with codes 1 to 63 read it exactly before; now north declines."""
    cheat = Cheat(made, tmp_path)
    whole = cheat.candidates
    with pytest.raises(Declined, match=r"queries 0 and 1 are nearly the same.*one batch"):
        cheat.ask(np.repeat(made.queries[:1], 63, axis=0))
    assert cheat.candidates == whole == 64
    # What the same answers were worth.
    for code in range(1, 64):
        cheat.learn(code)
    assert cheat.candidates <= 2


def test_copies_hidden_by_small_changes_or_between_others_are_found(made, tmp_path):
    cheat = Cheat(made, tmp_path)
    rng = np.random.default_rng(0)
    batch = made.queries[:20].copy()
    length = np.linalg.norm(batch[3])
    step = rng.normal(size=2)
    batch[17] = batch[3] + 0.9e-3 * length * step / np.linalg.norm(step)
    with pytest.raises(Declined, match="queries 3 and 17 are nearly the same"):
        cheat.ask(batch)
    batch[17] = batch[3] + 2e-2 * length * step / np.linalg.norm(step)
    cheat.ask(batch)


def test_a_copy_a_batch_teaches_as_many_bits_a_day_as_the_owner_allows(made, tmp_path):
    """It bisects, which is the best that it can do; restarts and other clients' days help not."""
    cheat = Cheat(made, tmp_path, repeats=3)
    rng, asked = np.random.default_rng(1), 0
    for i in range(8):
        query = made.queries[:1] * np.float32(1 + 1e-4 * rng.normal())
        try:
            cheat.ask(query, NOW + i * HOUR)
        except Declined as reason:
            refused = str(reason)
            continue
        cheat.learn((cheat.low + cheat.high + 1) // 2)
        asked += 1
        cheat.restart()
    assert asked == 3
    assert "was answered 3 times in 24 hours, this client's terms allow 3" in refused
    assert cheat.candidates >= 64 / 2**3
    # A day later three more.
    cheat.ask(made.queries[:1], NOW + 26 * HOUR)


def test_what_remains_is_what_the_terms_leave(made, tmp_path):
    """Copies that lie further apart than `near` pass: the owner chooses how far that is.

    This is the limit of the defence, and not a promise.
    """
    spread = made.queries[:1] * np.linspace(1, 1.1, 16, dtype=np.float32)[:, None]
    Cheat(made, tmp_path / "narrow", near=1e-3).ask(spread)
    with pytest.raises(Declined, match="nearly the same"):
        Cheat(made, tmp_path / "wide", near=1e-2).ask(spread)


def test_queries_of_a_day_are_kept_and_older_ones_erased(made, tmp_path):
    cheat = Cheat(made, tmp_path)
    cheat.ask(made.queries[:5])
    assert len(list(cheat.north.outbox.asked_since(NOW - 1, 2, "querier"))) == 1
    cheat.ask(made.queries[5:9], NOW + 25 * HOUR)
    (left,) = cheat.north.outbox.asked_since(0.0, 2, "querier")
    assert left.tolist() == made.queries[5:9].tolist()
    cheat.north.outbox.close()
    whole = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert made.queries[:5].tobytes() not in whole


def near_by_hand(points, others, near):
    return [
        [
            np.sqrt(((a - b) ** 2).sum()) <= near * max(np.sqrt(a @ a), np.sqrt(b @ b))
            for b in others
        ]
        for a in points
    ]


def test_likeness_is_found_wherever_the_data_lie():
    """By differences: a large offset hides no small distance and makes none up."""
    rng = np.random.default_rng(2)
    for offset, near in ((0.0, 1e-3), (1e6, 1e-9)):
        points = offset + rng.normal(size=(600, 5))
        points[590] = points[7]
        assert first_pair(points, near) == (7, 590)
        by_hand = near_by_hand(points[:9], points, near)
        assert nearly_equal(points[:9], points, near).tolist() == by_hand
        counts = count_before(points, [points[:8], points[580:]], near)
        assert counts[[0, 7, 100, 590]].tolist() == [1, 2, 0, 2]
    # From a few pairs that are near to nearly all.
    for near in (0.1, 0.3, 1.0):
        points = rng.normal(size=(60, 5))
        found = nearly_equal(points[:9], points, near)
        assert found.tolist() == near_by_hand(points[:9], points, near)
    assert first_pair(np.zeros((2, 3)), 0.0) == (0, 1)
    assert first_pair(np.eye(3), 0.1) is None
