"""Slices of a batch that are answered apart, and their one answer."""

import attrs
import numpy as np
import pytest

import fhe
from fhe.slicing import join_answers, most_steps, needed, spans_of

CODES = np.random.default_rng(5).integers(0, 64, (6, 3, 5))


@pytest.fixture(scope="module")
def sent(public):
    return [
        fhe.contribute(CODES[:, i], public, contributor=i, name=f"c{i}", federation="f", batch="b")
        for i in range(3)
    ]


def answered(sent, keys, public, size):
    parts = []
    for span in spans_of(keys.parameters, sent[0].queries, size):
        messages, within = needed(sent, span)
        parts.append(fhe.evaluate(messages, keys.evaluation, public, queries=within))
    return parts


@pytest.mark.parametrize("size", [4, 5])
def test_answers_of_slices_are_those_of_one_evaluation_byte_for_byte(sent, keys, public, size):
    """Look-ups draw nothing, so a decision's bytes do not depend on who else is in its block."""
    told = []
    whole = fhe.evaluate(
        sent, keys.evaluation, public, progress=lambda *news: told.append(news[1] > 0)
    )
    assert sum(told) == most_steps(keys.parameters, sent[0].queries)
    parts = answered(sent, keys, public, size)
    assert len(parts) == 2
    assert join_answers(parts, sent[0]).to_bytes() == whole.to_bytes()


def test_slices_of_another_batch_or_size_are_not_joined(sent, keys, public):
    first, second = answered(sent, keys, public, 4)
    with pytest.raises(fhe.FormatError, match="another batch"):
        join_answers([first, attrs.evolve(second, batch="other")], sent[0])
    with pytest.raises(fhe.FormatError, match="not to all queries"):
        join_answers([first], sent[0])
    with pytest.raises(fhe.FormatError, match=r"bytes of answers to 2 queries, expected"):
        join_answers([first, attrs.evolve(second, content=second.content[:-8])], sent[0])


@pytest.mark.parametrize("span", [range(0), range(3, 7), range(0, 6, 2), range(-1, 2)])
def test_queries_that_a_batch_does_not_have_are_refused(sent, keys, public, span):
    with pytest.raises(fhe.InputError, match="slice: queries"):
        fhe.evaluate(sent, keys.evaluation, public, queries=span)


@pytest.mark.slow  # compiles the paper's rule
def test_the_papers_rule_has_its_classes_put_together_query_by_query():
    parameters = fhe.RuleParameters(
        contributors=2, classes=3, bits=4, block=4, failure_exponent=40, rule="paper"
    )
    keys = fhe.generate_keys(parameters)
    public = fhe.make_public_key(keys)
    codes = np.random.default_rng(6).integers(0, 16, (5, 2, 3))
    sent = [
        fhe.contribute(codes[:, i], public, contributor=i, name=f"c{i}", federation="f", batch="b")
        for i in range(2)
    ]
    joined = join_answers(answered(sent, keys, public, 4), sent[0])
    np.testing.assert_array_equal(fhe.read_answer(joined, keys), fhe.plain(codes, parameters))
