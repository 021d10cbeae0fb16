"""An answer of fewer contributors: those who are missing are replaced by neutral integers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fhe
from fhe.audit import new_audit
from fhe.circuits import compile_rule
from fhe.errors import AnswerError
from fhe.knockout import function_name, rule_outputs
from fhe.operands import call_in_blocks, integers_of
from fhe.parameters import FAILURE_EXPONENTS
from fhe.public_key import ciphertext_bytes


@given(data=st.data())
@settings(max_examples=200)
def test_neutral_digits_lose_against_every_code_or_equal_it(data):
    """There are more digits' values than codes; those above the largest code do no harm."""
    exponent = data.draw(st.sampled_from(FAILURE_EXPONENTS))
    bits, classes = data.draw(st.integers(4, 16)), data.draw(st.integers(2, 40))
    rule = fhe.RuleParameters(contributors=2, classes=classes, bits=bits, failure_exponent=exponent)
    codes = data.draw(st.lists(st.integers(0, 2**bits - 1), min_size=classes, max_size=classes))
    packed = int(rule.packing.pack(np.array(codes)))
    neutral = rule.base**rule.packing.digits - 1
    assert min(packed, neutral) == packed


@pytest.mark.parametrize("rule", ["tournament", pytest.param("paper", marks=pytest.mark.slow)])
def test_the_circuit_gives_the_clear_rule_over_those_that_are_there(rule):
    """Every subset of three, ties and the largest codes included."""
    whole = fhe.RuleParameters(
        contributors=3, classes=3, bits=5, block=8, failure_exponent=40, rule=rule
    )
    codes = np.random.default_rng(0).integers(0, 2**5, (8, 3, 3))
    codes[0], codes[1] = 2**5 - 1, 7
    module = compile_rule(whole)

    def run(kind, _level, _rows, operands):
        def call(block):
            function = getattr(module, function_name(kind, len(block[0])))
            return np.asarray(function.simulate(*block))

        return call_in_blocks(call, 8, operands)

    for present in ([0], [1], [2], [0, 1], [0, 2], [1, 2]):
        sent = [np.full((8, whole.columns), whole.base - 1)] * 3
        for i in present:
            sent[i] = whole.encode(codes[:, i])
        output = rule_outputs(whole, lambda i, sent=sent: integers_of(sent[i], whole), 8, run)
        found = whole.decode([output], 8)
        fewer = fhe.RuleParameters(
            contributors=len(present), classes=3, bits=5, failure_exponent=40, rule=rule
        )
        assert found.tolist() == fhe.plain(codes[:, present], fewer).tolist()


def test_an_encrypted_answer_of_a_quorum(keys, public, parameters):
    """The evaluator makes the neutral contribution with the public key alone."""
    codes = np.random.default_rng(1).integers(0, 2**6, (5, 3, 5))
    codes[0] = 2**6 - 1
    same = {"federation": "f", "batch": "b"}
    sent = [fhe.contribute(codes[:, i], public, contributor=i, name=str(i), **same) for i in (0, 2)]
    sent.append(fhe.neutral(5, public, contributor=1, name="1", **same))
    found = fhe.read_answer(fhe.evaluate(sent, keys.evaluation, public), keys)
    packed = parameters.packing.pack(codes[:, [0, 2]]).min(axis=1)
    assert found.tolist() == parameters.packing.class_of(packed).tolist()
    assert len(sent[2].content) == ciphertext_bytes(public, 5) == len(sent[0].content)


def test_known_answers_of_a_quorum_tell_who_was_left_out(parameters):
    """An evaluator that says all were there, and left one out, is found."""
    audit = new_audit(200)
    codes = np.zeros((1, parameters.classes), np.int64)
    sent = [audit.mix(codes, i, parameters) for i in (0, 2)]
    packing = parameters.packing
    found = packing.class_of(np.min([packing.pack(each) for each in sent], axis=0))
    assert audit.check(found, parameters, present=[0, 2]).tolist() == [0]
    with pytest.raises(AnswerError, match="known answers are wrong"):
        audit.check(found, parameters)


@pytest.mark.parametrize("kind", [fhe.Contribution, fhe.Answer])
def test_a_message_from_bytes_is_the_one_from_its_file(kind, keys, public, tmp_path):
    same = {"federation": "f", "batch": "b"}
    codes = np.zeros((5, 5), np.int64)
    sent = [fhe.contribute(codes, public, contributor=i, name=str(i), **same) for i in range(3)]
    message = sent[0] if kind is fhe.Contribution else fhe.evaluate(sent, keys.evaluation, public)
    message.save(tmp_path / "message")
    assert kind.from_bytes(message.to_bytes(), source="a test") == kind.load(tmp_path / "message")
    with pytest.raises(fhe.FormatError, match=r"^client c: truncated"):
        kind.from_bytes(message.to_bytes()[:-1], source="client c")
