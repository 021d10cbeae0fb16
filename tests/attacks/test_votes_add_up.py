"""A querier asks the same question again and again, and averages the noise of the votes away.

Its accomplices, as many as are tolerated, take their own votes and noise off the sums, and it knows
everybody's vote but the victim's, which is one of two classes: the worst case that the promise
covers. The victim's book says when it stops to answer.
"""

import secrets

import numpy as np
import pytest
from scipy.stats import binomtest, norm

pytest.importorskip("prometheus_client", reason="needs the extra `service` (securefl[service])")

from secure_fl.masked import VoteCoding
from secure_fl.masked.votes import colluding
from secure_fl.service.answers_book import AnswersBook, AnswersSpentError
from tests.attacks.table import Attack

ATTACK = Attack(
    name="asks one question again and again and averages the votes",
    holds="the querier with a third of the contributors on its side, and all votes but one",
    before="under the rules without noise the victim's part in an answer, from one of them",
    after="rule votes: no better guesses than its book's epsilon allows, and then no answer",
)

CODING = VoteCoding(classes=3, contributors=10, noise=6.0)
EPSILON, DELTA = 8.0, 1e-5
TRIALS = 300


def sums(vote, queries):
    """What is left of opened sums when the accomplices' own rows are taken off.

    As few contributors as the sum allows, so that the noise is the least.
    """
    honest = CODING.left - colluding(CODING.contributors)
    codes = np.full((queries, CODING.classes), 9)
    total = np.zeros(queries * CODING.words, np.uint64)
    for i in range(honest):
        own = codes.copy()
        own[:, vote if i == 0 else 2] = 0
        total += CODING.rows(own)
    return CODING.open(total).votes


def guessed(vote, queries):
    """The better of two classes for the victim's vote, by the likelihood of all answers."""
    found = sums(vote, queries).mean(axis=0)
    return int(found[1] > found[0])


def asked_until_refused(book):
    """Answers that the victim's book pays for, a batch of one after the other."""
    answered = 0
    while True:
        try:
            book.spend(CODING, secrets.token_hex(8), 1)
        except AnswersSpentError:
            return answered
        answered += 1


def test_the_book_stops_the_attack_where_its_epsilon_says(tmp_path):
    """The best test of two Gaussians is right with the chance Phi(sqrt(queries) / (2 z))."""
    queries = asked_until_refused(AnswersBook.open(tmp_path / "b.jsonl", "north", EPSILON, DELTA))
    assert queries == CODING.answers_within(EPSILON, DELTA)
    right = sum(guessed(t % 2, queries) == t % 2 for t in range(TRIALS))
    best = norm.cdf(np.sqrt(queries) / CODING.multiplier / 2)
    # What (epsilon, delta) itself allows any test is more.
    assert best < (np.exp(EPSILON) + DELTA) / (1 + np.exp(EPSILON))
    assert binomtest(right, TRIALS, best).pvalue > 1e-6
    # It is an attack: it does learn what it is allowed to.
    assert binomtest(right, TRIALS, 0.5, alternative="greater").pvalue < 1e-3


def test_without_a_book_it_knows_the_vote(tmp_path):
    """A budget a thousand times as large."""
    queries = 40 * int(CODING.noise**2)
    assert all(guessed(vote, queries) == vote for vote in (0, 1) for _ in range(10))
