"""An evaluator that sees whether a batch was refused learns a place of the known answers by it."""

import numpy as np
import pytest

import fhe
from fhe.audit import audit_for, new_audit, read_audit, save_audit, spend_audit
from tests.attacks.table import Attack
from tests.cli.command import refused, securefl
from tests.cli.test_commands import keys, work  # noqa: F401  # fixtures

ATTACK = Attack(
    name="watches whether a batch with known answers is refused, again and again",
    holds="the evaluator, and an audit secret that serves twice",
    before="a place of the known answers by each reaction, until it knows where it may lie",
    after="the reaction to one answer: a secret serves one batch and one answer",
)

RULE = fhe.RuleParameters(contributors=2, classes=3, bits=6, failure_exponent=40)
TOTAL, KNOWN = 24, 4


def answers(audit):
    """What an honest evaluator answers: known classes at the known places, 0 elsewhere."""
    packed = [RULE.packing.pack(audit.codes(i, RULE)) for i in range(2)]
    classes = np.zeros(TOTAL, np.int64)
    classes[audit.positions(TOTAL)] = RULE.packing.class_of(np.min(packed, axis=0))
    return classes


def accepted(audit, classes):
    try:
        audit.check(classes, RULE)
    except fhe.AnswerError:
        return False
    return True


def places_learned(give_secret):
    """The cheat lies at one place of each answer and watches; what it takes for known places.

    Args:
        give_secret: the querier's secret for the check of an answer, or refuses.
    """
    found = []
    for place in range(TOTAL):
        honest = answers(give_secret(b"honest"))
        lie = honest.copy()
        lie[place] = (lie[place] + 1) % RULE.classes
        if not accepted(give_secret(lie.tobytes()), lie):
            found.append(place)
    return found


def test_a_secret_that_serves_many_answers_gives_all_its_places_away():
    """The attack itself, against the bare secret: why the file serves one answer alone."""
    audit = new_audit(KNOWN)
    assert places_learned(lambda _: audit) == audit.positions(TOTAL).tolist()


def test_the_file_of_a_secret_serves_one_answer_and_the_attack_ends_there(tmp_path):
    path = tmp_path / "audit"
    save_audit(path, new_audit(KNOWN), "monday")
    with pytest.raises(fhe.InputError, match="another answer was checked with it"):
        places_learned(lambda answer: spend_audit(path, "monday", answer))


def test_the_same_answer_may_be_read_again(tmp_path):
    path = tmp_path / "audit"
    audit = new_audit(KNOWN)
    save_audit(path, audit, "monday")
    for _ in range(2):
        assert spend_audit(path, "monday", b"an answer") == audit
    assert read_audit(path).audit == audit


@pytest.mark.parametrize("batch", ["tuesday", ""])
def test_the_file_serves_one_batch(tmp_path, batch):
    path = tmp_path / "audit"
    save_audit(path, new_audit(KNOWN), "monday")
    with pytest.raises(fhe.InputError, match="serves one batch"):
        audit_for(path, batch, 3)
    with pytest.raises(fhe.InputError, match="the answer is of batch"):
        spend_audit(path, "tuesday", b"an answer")
    assert audit_for(path, "monday") == read_audit(path).audit  # the batch's next contributor


def test_a_spent_file_encrypts_nothing_more_not_even_by_another_name(tmp_path):
    path = tmp_path / "audit"
    save_audit(path, new_audit(KNOWN), "monday")
    (tmp_path / "link").symlink_to("audit")
    spend_audit(tmp_path / "link", "monday", b"an answer")
    for name in ("audit", "link"):
        with pytest.raises(fhe.InputError, match="was checked with it already"):
            audit_for(tmp_path / name, "monday")


def test_a_file_of_an_earlier_version_is_read_once_and_encrypts_nothing(tmp_path):
    path = tmp_path / "audit"
    save_audit(path, new_audit(KNOWN))
    with pytest.raises(fhe.InputError, match="a batch that it does not name"):
        audit_for(path, "monday")
    spend_audit(path, "monday", b"an answer")
    with pytest.raises(fhe.InputError):
        spend_audit(path, "tuesday", b"an answer")


def test_the_commands_refuse_a_second_batch(work, keys, tmp_path):  # noqa: F811  # fixtures
    audit, queries = tmp_path / "audit", work / "digits" / "test.npz"
    common = ("encrypt", queries, "--run", work / "run", "--keys", keys, "--rows", "0:2")
    common = (*common, "--client", "client-00", "--audit", 2, "--audit-file", audit)
    securefl(*common, "--out", tmp_path / "one")
    assert "serves one batch" in refused(*common, "--out", tmp_path / "two")
    assert not (tmp_path / "two").exists()
