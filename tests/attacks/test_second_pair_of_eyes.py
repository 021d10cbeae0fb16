"""An evaluator that answers with other ciphertexts than the contributions give."""

import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("prometheus_client", reason="needs the extra `service` (securefl[service])")

import fhe
from fhe.checking import check_agreement, check_same_batch
from fhe.errors import AnswerError, InputError
from secure_fl.demo.service_parties import PASSPHRASE
from tests.attacks.table import Attack

ATTACK = Attack(
    name="answers with other ciphertexts than the contributions give",
    holds="the evaluator, where a second one evaluates too",
    before="answers of its choice, unnoticed",
    after="a difference of classes is found, and retires the keys",
)


REST = ["north", "west"]


def decided_by_south(made):
    """Three queries, first those whose classes are others without south."""
    everybody, without = (np.array(made.clear(slice(None), *who)) for who in ((), (REST,)))
    assert (everybody != without).any()
    return np.argsort(everybody == without, kind="stable")[:3]


def contributions(made, batch="b"):
    rows = decided_by_south(made)
    return [
        fhe.contribute(
            made.codes[rows, i],
            fhe.load_public_key(made.folder / "north"),
            contributor=i,
            name=name,
            federation=made.manifest.fingerprint,
            batch=batch,
        )
        for i, name in enumerate(made.manifest.clients)
    ]


def test_another_process_gives_the_same_classes_and_a_lie_is_found(made, tmp_path):
    """Ciphertexts of two processes differ in their bits; what they decrypt to does not."""
    keys, secret = (
        made.folder / "evaluator",
        fhe.load_secret_keys(made.folder / "querier", PASSPHRASE),
    )
    sent = contributions(made)
    for i, each in enumerate(sent):
        each.save(tmp_path / f"{i}.contribution")
    words = ["infer", tmp_path, "--keys", keys, "--out", tmp_path / "answer"]
    subprocess.run(
        [sys.executable, "-c", "from cli.main import main; main()", *map(str, words)],
        check=True,
        timeout=300,
    )
    (keys / "answered").unlink()
    given = fhe.Answer.load(tmp_path / "answer")
    evaluation, public = fhe.load_evaluation_keys(keys), fhe.load_public_key(keys)
    mine = fhe.evaluate(sent, evaluation, public)
    check_same_batch(given, mine, source="mine")
    found = fhe.read_answer(given, secret)
    check_agreement(found, fhe.read_answer(mine, secret))
    # The liar leaves out a contributor that decides, and says nothing.
    facts = {"federation": made.manifest.fingerprint, "batch": "b"}
    liar = [sent[0], fhe.neutral(3, public, contributor=1, name="south", **facts), sent[2]]
    lie = fhe.read_answer(fhe.evaluate(liar, evaluation, public), secret)
    assert lie.tolist() == made.clear(decided_by_south(made), REST) != found.tolist()
    with pytest.raises(AnswerError, match="two evaluators differ at"):
        check_agreement(found, lie)
    other = fhe.evaluate(contributions(made, "c"), evaluation, public)
    with pytest.raises(InputError, match="batch c, the first answer has b"):
        check_same_batch(given, other, source="other")
