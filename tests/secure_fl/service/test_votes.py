"""The rule votes over the service: noisy sums, books of answers, and what is refused.

The evaluator is a process; contributors run in threads and hold real books.
"""

import json
import secrets
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("prometheus_client", reason="needs the extra `service` (securefl[service])")

import dp
from fhe.audit import new_audit
from secure_fl.demo.service_parties import IDENTITY, deployment
from secure_fl.errors import InputError
from secure_fl.heads.masked import coding_of
from secure_fl.masked import Told
from secure_fl.masked.votes import majority
from secure_fl.service import contributor_loop
from secure_fl.service.answers_book import UNIT, AnswersBook, AnswersSpentError
from secure_fl.service.asking import QueryClient
from secure_fl.service.channel import Channel
from secure_fl.service.contributor import ContributorPolicy, Declined
from secure_fl.service.contributor_app import load_contributor
from secure_fl.service.sealed_query import Facts, seal_query
from tests.cli.command import refused, securefl
from tests.secure_fl.service.conftest import set_up_blobs
from tests.secure_fl.service.masked_parties import STEP, Lasting, Parties
from tests.secure_fl.service.test_masked import CLIENTS

PLENTY = 1e6
"""Epsilon of the contributors' books."""
EPSILON = 8.0
NOISE = 0.05
"""Of a vote: answers are the clear ones, and cost much."""


@dataclass
class Voters(Parties):
    """All parties of a federation whose rule is votes; without an evaluator they have a home."""

    home: Path | None = None

    def folder(self, name):
        return (self.home or self.running.folder) / name

    def book(self, name):
        return self.folder(name) / "state" / "answers.jsonl"

    def contributor(self, name, epsilon=PLENTY, book=None, **terms):
        own = self.folder(name)
        policy = ContributorPolicy(**{"repeats": 1000, "quorum": 3, **terms})
        book = AnswersBook.open(book or self.book(name), name, epsilon, 1e-5)
        parts = (own, name, None, own / IDENTITY, own / "state", policy)
        return load_contributor(*parts, answers=book)

    def clear_votes(self, rows, names=CLIENTS):
        there = [self.manifest.client_index(name) for name in names]
        return majority(self.codes[rows][:, there]).tolist()


def set_up(folder, noise):
    return set_up_blobs(folder, 0, CLIENTS, rule="votes", answer_noise=noise)


@pytest.fixture(scope="module")
def voters(tmp_path_factory):
    folder = tmp_path_factory.mktemp("votes") / "parties"
    manifest, queries, codes = set_up(folder, NOISE)
    # Queries whose majority no tie decides: noise would.
    ranks = np.sort([np.bincount(v, minlength=3) for v in codes.argmin(axis=2)], axis=1)
    clear = ranks[:, -1] > ranks[:, -2]
    with deployment(folder) as running:
        running.start("evaluator", "--step", str(STEP))
        yield Voters(running, manifest, queries[clear], codes[clear])


def spent(path):
    """What a book holds, in queries and epsilon."""
    ledger = dp.Ledger.open(path)
    return sum(event.count for event in ledger.events), ledger.get_epsilon(1e-5).epsilon


def test_a_batch_is_booked_before_its_first_message_and_once(tmp_path):
    """Four queries cost what four Gaussians of the coding's multiplier do."""
    folder = tmp_path / "parties"
    manifest, queries, codes = set_up(folder, 20.0)
    quiet = Voters(None, manifest, queries, codes, folder)
    member = quiet.member("querier")
    features = queries[:4]
    told = Told(manifest.fingerprint, "b1", features, bytes(32))
    agreed = told.agreed(coding_of(manifest, 3), 0, 4)
    facts = Facts(
        federation=manifest.fingerprint,
        batch="b1",
        contributor="north",
        public=agreed.hex(),
        queries=4,
        quorum=3,
        expires=time.time() + 60,
    )
    sealed = seal_query(facts, features, None, member, manifest, bytes(32)).to_bytes()
    north = quiet.contributor("north")
    north.part(sealed, "b1", time.time())
    queries_booked, epsilon = spent(quiet.book("north"))
    assert queries_booked == 4
    multiplier = coding_of(manifest, 3).multiplier
    expected = dp.compose([], [dp.Gaussian(multiplier, steps=4)], 1e-5).epsilon
    assert epsilon == pytest.approx(expected)
    # The same batch again is refused, and not booked a second time.
    with pytest.raises(Declined, match="answered before"):
        north.part(sealed, "b1", time.time())
    assert spent(quiet.book("north"))[0] == 4
    north.outbox.close()


def test_batches_with_keys_of_an_earlier_one_are_booked_as_any_other(voters, monkeypatch):
    """Their first message is the noisy row: it is paid for before it leaves."""
    monkeypatch.setattr(contributor_loop, "WAIT", 1.0)
    lasting = {name: Lasting(voters, name) for name in CLIENTS}
    first = {name: spent(voters.book(name))[0] for name in CLIENTS}
    batches = []
    for rows in (slice(0, 2), slice(2, 5)):
        batches.append(voters.open(rows))
        found = voters.fetch(batches[-1], rows)
        assert found.present == CLIENTS
        assert found.classes.tolist() == voters.clear_votes(rows)
    for each in lasting.values():
        each.stop()
    for name, each in lasting.items():
        each.end()
        assert [each.steps[batch] for batch in batches] == [[1, 2, 3, 4, 5], [3, 4, 5]]
        assert spent(voters.book(name))[0] - first[name] == 5


def test_a_spent_budget_declines_the_batch_and_books_nothing(voters, tmp_path):
    """Noise of a twentieth of a vote costs more than epsilon 8 with the first query."""
    assert coding_of(voters.manifest, 3).answers_within(EPSILON, 1e-5) == 0
    batch, book = voters.open(slice(0, 2)), tmp_path / "small.jsonl"
    north = voters.contributor("north", EPSILON, book)
    with Channel(voters.running.url(), voters.member("north"), voters.manifest) as line:
        sealed = line.expect("GET", f"/batches/{batch}/query", what="query")
    with pytest.raises(Declined, match="cost more than is left of this client's budget"):
        north.part(sealed, batch, time.time())
    assert not north.outbox.answered(batch)
    north.outbox.close()
    assert spent(book) == (0, 0.0)


def test_the_sum_opens_to_the_majority_and_its_noisy_votes(voters):
    """A contributor that vanishes after its row has voted."""
    batch, before = voters.open(slice(0, 6)), booked(voters)
    voters.all_take_part(batch, {"south": 4})
    found = voters.fetch(batch)
    assert found.present == CLIENTS
    assert found.classes.tolist() == voters.clear_votes(slice(0, 6))
    assert found.codes.size == 0
    assert np.abs(found.opened.votes.sum(axis=1) - len(CLIENTS)).max() < 3
    assert booked(voters) == {name: queries + 6 for name, queries in before.items()}


def test_the_library_asks_without_known_answers(voters):
    def predicted():
        client = QueryClient(voters.folder("querier"), voters.running.url(), quorum=3)
        return client.predict(voters.queries[6:9]).tolist()

    classes = [voters.manifest.classes[c] for c in voters.clear_votes(slice(6, 9))]
    assert asked_by(voters, predicted) == classes


def test_the_command_shows_votes_and_refuses_what_they_have_not(voters):
    own = voters.folder("querier")
    np.save(own / "q.npy", voters.queries[9:11])
    command = ("query", own / "q.npy", "--run", own, "--identity", own / IDENTITY)
    line = (*command, "--evaluator", voters.running.url())
    out = asked_by(voters, lambda: json.loads(securefl(*line, "--json")[0]))
    assert out["classes"] == [voters.manifest.classes[c] for c in voters.clear_votes(slice(9, 11))]
    assert np.shape(out["votes"]) == (2, 3)
    for option in (("--audit", 3), ("--distance",), ("--leave-one-out",), ("--leak-bits", 8)):
        _, err = securefl(*line, *option, check=2)
        assert f"{option[0]} has no meaning for the rule votes" in err


def booked(voters):
    return {
        name: spent(voters.book(name))[0] if voters.book(name).exists() else 0 for name in CLIENTS
    }


def asked_by(voters, ask):
    """What an asker gets, with every contributor answering the batch that it opens."""
    before = set(voters.asked("east"))

    def answer():
        while not (new := set(voters.asked("east")) - before):
            time.sleep(0.05)
        voters.all_take_part(new.pop())

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    found = ask()
    thread.join()
    return found


def test_known_answers_are_refused_by_querier_and_contributor(voters):
    with pytest.raises(InputError, match="noise may make a right one wrong"):
        voters.open(slice(0, 2), new_audit(3))


def test_a_contributor_without_a_budget_or_with_a_foreign_book_does_not_start(voters, tmp_path):
    own = voters.folder("west")
    serve = ("serve", "contributor", own, "--client", "west", "--identity", own / IDENTITY)
    rest = ("--evaluator", voters.running.url(), "--state", tmp_path / "state")
    assert "no budget for answers" in refused(*serve, *rest)
    _, err = securefl(*serve, *rest, "--exact-heads", "--answers-epsilon", 1, check=2)
    assert "--exact-heads has no meaning for the rule votes" in err
    path = tmp_path / "records.jsonl"
    dp.Ledger.create(path, "west", dp.Budget(1.0, 1e-5, dp.Record(1.0)))
    line = refused(*serve, *rest, "--answers-ledger", path)
    assert "answers by votes need one per record (one record added or removed)" in line
    with pytest.raises(InputError, match="leave the budget out"):
        AnswersBook.open(path, "west", 2.0, 1e-5)


def test_a_book_is_never_overdrawn_by_a_hair(tmp_path):
    manifest, *_ = set_up(tmp_path / "parties", 30.0)
    coding = coding_of(manifest)
    book = AnswersBook.open(tmp_path / "a.jsonl", "north", 1.0, 1e-5)
    most = coding.answers_within(1.0, 1e-5)
    assert most > 10
    book.spend(coding, secrets.token_hex(8), most - 1)
    book.spend(coding, secrets.token_hex(8), 1)
    with pytest.raises(AnswersSpentError):
        book.spend(coding, secrets.token_hex(8), 1)
    assert book.ledger.get_epsilon(1e-5, UNIT).epsilon <= 1.0
