"""An evaluator that sends crafted answers, to exhaust the querier or to be misread."""

import dataclasses
import resource

import attrs
import numpy as np
import pytest

import fhe
from fhe.compiled import compiled_rule
from fhe.envelope import pack, unpack
from fhe.knockout import function_name, last_kind
from fhe.library import concrete_fhe
from fhe.lwe_layout import messages, result_of, secret_bits, split
from tests.attacks.table import Attack

ATTACK = Attack(
    name="sends an answer whose bytes are crafted",
    holds="the evaluator, and the querier's reading of its answer",
    before="up to 15.8 GB or 90 s of the querier by one changed header word; bare errors; "
    "more answers than queries",
    after="nothing: only words are taken, in the querier's own frame, of exactly the size "
    "that it asked for",
)

QUERIES = 3


@pytest.fixture(scope="module")
def keys():
    return fhe.generate_keys(
        fhe.RuleParameters(contributors=2, classes=3, bits=4, block=4, failure_exponent=40)
    )


@pytest.fixture(scope="module")
def answer(keys):
    public = fhe.make_public_key(keys)
    codes = np.random.default_rng(0).integers(0, 16, (2, QUERIES, 3))
    sent = [
        fhe.contribute(codes[i], public, contributor=i, name=str(i), federation="f", batch="b")
        for i in range(2)
    ]
    return fhe.evaluate(sent, keys.evaluation, public)


def outcome(data, keys):
    """Classes that exist, or the name of a typed error; everything else is raised."""
    try:
        message = fhe.Answer.from_bytes(data, source="the answer")
        found = fhe.read_answer(message, keys, queries=QUERIES)
    except (fhe.InputError, fhe.errors.AnswerError) as error:
        return type(error).__name__
    assert found.shape == (QUERIES,)
    assert found.min() >= 0
    assert found.max() < keys.parameters.classes
    return "classes"


def test_no_changed_word_of_an_answer_does_more_than_change_a_class(answer, keys):
    """The payload holds words alone: there is no header whose counts an evaluator could raise."""
    rng = np.random.default_rng(1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = set()
    for _ in range(250):
        words = np.frombuffer(answer.content, "<u8").copy()
        # The first words are where the library's objects had their header.
        place = rng.integers(len(words)) if rng.random() < 0.5 else rng.integers(8)
        words[place] = rng.integers(0, 2**64, dtype=np.uint64)
        found.add(outcome(attrs.evolve(answer, content=words.tobytes()).to_bytes(), keys))
    assert found <= {"classes", "AnswerError"}
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 200_000


@pytest.mark.parametrize("claimed", [1, QUERIES + 1, 2**62, 10**400])
def test_an_answer_to_more_or_fewer_queries_than_were_asked_is_refused(answer, keys, claimed):
    """However many answers the evaluator claims, nothing is made of that size."""
    data = attrs.evolve(answer, queries=claimed).to_bytes()
    assert outcome(data, keys) == "FormatError"
    with pytest.raises(fhe.FormatError, match=r"bytes of ciphertexts for|queries"):
        fhe.read_answer(attrs.evolve(answer, queries=claimed), keys)


def test_more_answers_than_queries_are_refused(answer, keys):
    rows = attrs.evolve(answer, queries=2 * QUERIES, content=answer.content * 2)
    with pytest.raises(fhe.FormatError, match="to 6 queries, 3 were asked"):
        fhe.read_answer(rows, keys, queries=QUERIES)


@pytest.mark.parametrize("size", [0, 1, 7, 8, -1, -8])
def test_an_answer_of_another_size_is_refused(answer, keys, size):
    content = answer.content[:size] if size <= 0 else answer.content + b"\0" * size
    with pytest.raises(fhe.FormatError, match="bytes of ciphertexts for 3 queries"):
        fhe.read_answer(attrs.evolve(answer, content=content), keys)


def test_an_answer_of_another_rule_is_refused(answer, keys):
    other = attrs.evolve(answer, parameters=attrs.evolve(answer.parameters, classes=60_000))
    with pytest.raises(fhe.InputError, match="of another rule"):
        fhe.read_answer(other, keys)


def test_no_mutation_of_an_answers_header_ends_in_another_error(answer, keys):
    """Members of other types, sizes and nesting, in an envelope that is whole."""
    envelope = unpack(answer.to_bytes())
    values = [None, True, -1, 0, 2**70, 1e9, "", "x" * 5000, [], [[]] * 50, {}, {"a": 1}]
    found = set()
    for name in envelope.header:
        for value in values:
            header = {**envelope.header, name: value}
            found.add(outcome(pack(envelope.kind, header, envelope.payload), keys))
    for name in envelope.header["parameters"]:
        for value in values:
            rule = {**envelope.header["parameters"], name: value}
            data = pack(envelope.kind, {**envelope.header, "parameters": rule}, envelope.payload)
            found.add(outcome(data, keys))
    assert found <= {"classes", "FormatError", "InputError", "VersionError"}


def test_no_answer_has_a_part_in_how_the_next_one_is_read(answer, keys):
    """What a querier keeps between readings is made of its keys, and nobody writes to it."""
    keys = dataclasses.replace(keys)
    noise = np.random.default_rng(3).integers(0, 2**64, len(answer.content) // 8, np.uint64)
    hostile = [answer.content[:-8], answer.content * 2, noise.tobytes()]
    with pytest.raises(fhe.FormatError):
        fhe.read_answer(attrs.evolve(answer, queries=QUERIES + 1), keys, queries=QUERIES)
    assert "results" not in vars(keys)
    for content in hostile:
        outcome(attrs.evolve(answer, content=content).to_bytes(), keys)
    kept, bits = keys.results, keys.results.bits.copy()
    expected = fhe.read_answer(answer, dataclasses.replace(keys))
    assert np.array_equal(fhe.read_answer(answer, keys), expected)
    assert keys.results is kept
    assert np.array_equal(kept.bits, bits)
    assert np.array_equal(bits, secret_bits(keys.client, kept.kind).ravel())
    with pytest.raises(ValueError, match="read-only"):
        kept.bits[0] = 1


def test_words_are_read_as_the_library_reads_them(keys):
    """The library's own decryption is the oracle, on words that are no encryption of anything."""
    rule, fhe_library = compiled_rule(keys.parameters), concrete_fhe()
    name = function_name(last_kind(keys.parameters), 4)
    kind, shape = result_of(rule.specs, name)
    digits = np.zeros((4, keys.parameters.number_digits), np.int64)
    operands = keys.client.encrypt(digits, digits, function_name=name)
    result = rule.server.run(
        *operands, evaluation_keys=keys.evaluation.library_keys, function_name=name
    ).serialize()
    frame, rows = split(result, int(np.prod(shape)), kind)
    rng = np.random.default_rng(2)
    bits = secret_bits(keys.client, kind).ravel()
    for _ in range(50):
        rows = rng.integers(0, 2**64, rows.shape, dtype=np.uint64)
        value = fhe_library.Value.deserialize(frame[:64] + rows.tobytes() + frame[64:])
        expected = np.asarray(keys.client.decrypt(value, function_name=name))
        assert np.array_equal(messages(rows, bits, kind).reshape(shape), expected)
