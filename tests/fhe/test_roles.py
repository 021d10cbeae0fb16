"""What crosses between the roles: secrets stay, foreign and replayed messages are refused."""

import dataclasses
import stat
from concurrent.futures import ThreadPoolExecutor

import attrs
import numpy as np
import pytest

import fhe
from fhe import lwe_layout
from fhe.answered import recorded, refuse_answered
from fhe.compiled import compiled_rule
from fhe.envelope import read_envelope, read_header, write_atomic, write_envelope
from fhe.errors import VersionError
from fhe.inspection import describe_keys, self_test
from fhe.keys import EVALUATION_FILE, SECRET_FILE
from fhe.lwe_layout import input_type, secret_bits
from fhe.readers import READERS

CODES = np.random.default_rng(0).integers(0, 64, (6, 3, 5))


def send(public, batch="b", federation="f", codes=CODES):
    return [
        fhe.contribute(
            codes[:, i], public, contributor=i, name=f"c{i}", federation=federation, batch=batch
        )
        for i in range(3)
    ]


@pytest.fixture(scope="module")
def sent(public):
    return send(public)


@pytest.fixture(scope="module")
def answer(sent, keys, public):
    return fhe.evaluate(sent, keys.evaluation, public)


@pytest.fixture(scope="module")
def folder(keys, public, tmp_path_factory):
    path = tmp_path_factory.mktemp("keys")
    fhe.save_secret_keys(path, keys, "correct horse")
    fhe.save_evaluation_keys(path, keys.evaluation)
    fhe.save_public_key(path, public)
    return path


def test_the_roles_work_over_files_alone(folder, sent, tmp_path):
    for each in sent:
        each.save(tmp_path / each.name)
    received = [fhe.Contribution.load(tmp_path / f"c{i}") for i in (2, 0, 1)]
    evaluation, public = fhe.load_evaluation_keys(folder), fhe.load_public_key(folder)
    fhe.evaluate(received, evaluation, public).save(tmp_path / "answer")
    secret = fhe.load_secret_keys(folder, "correct horse")
    found = fhe.read_answer(fhe.Answer.load(tmp_path / "answer"), secret)
    np.testing.assert_array_equal(found, fhe.plain(CODES, secret.parameters))


def test_the_same_codes_never_encrypt_to_the_same_bytes(public, sent):
    for first, second in zip(sent, send(public), strict=True):
        assert first.content[:64] != second.content[:64]


def test_two_key_pairs_differ(keys, other_keys):
    assert keys.evaluation.fingerprint != other_keys.evaluation.fingerprint
    assert keys.client.keys.serialize() != other_keys.client.keys.serialize()


def test_the_evaluation_key_file_holds_no_secret(folder, keys):
    """Every secret key of the set, searched as packed bits and as words in the public file."""
    content = (folder / EVALUATION_FILE).read_bytes()
    secrets = keys.client.keys._keyset.get_client_keys().get_secret_keys()
    for secret in secrets.values() if isinstance(secrets, dict) else secrets:
        body = secret.serialize()
        for start in range(128, len(body) - 512, 4096):
            assert body[start : start + 512] not in content


def test_the_secret_file_is_sealed_and_for_its_owner_alone(folder, keys):
    path = folder / SECRET_FILE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    plain = keys.client.keys.serialize()
    assert plain[1000:1064] not in path.read_bytes()


def test_keys_do_not_show_themselves(keys):
    assert len(repr(keys)) < 300


def test_a_wrong_passphrase_and_a_changed_file_are_one_error(folder, tmp_path):
    messages = set()
    with pytest.raises(fhe.SecretError) as caught:
        fhe.load_secret_keys(folder, "wrong horse")
    messages.add(str(caught.value))
    kind, header, _ = read_header(folder / SECRET_FILE)
    from fhe.envelope import read_envelope, write_envelope

    envelope = read_envelope(folder / SECRET_FILE)
    for change in (
        {"key": "0" * 64},
        {"seal": {**header["seal"], "salt": "00" * 16}},
        {"seal": None},
        {"seal": {}},
    ):
        write_envelope(tmp_path / SECRET_FILE, kind, {**header, **change}, envelope.payload)
        with pytest.raises(fhe.SecretError) as caught:
            fhe.load_secret_keys(tmp_path, "correct horse")
        messages.add(str(caught.value))
    assert len(messages) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch": "older"}, "query batch"),
        ({"federation": "g"}, "federation"),
        ({"key": "00"}, "key"),
        ({"public": "00"}, "public key"),
        ({"queries": 5}, "number of queries"),
        ({"contributor": 7}, "position 7"),
    ],
)
def test_a_contribution_that_does_not_belong_is_refused_by_name(
    sent, keys, public, change, message
):
    """A replayed or mixed contribution; the first one sets what the others must fit."""
    mixed = [sent[0], attrs.evolve(sent[1], **change), sent[2]]
    with pytest.raises(fhe.ContributionError, match="'c1'") as caught:
        fhe.evaluate(mixed, keys.evaluation, public)
    assert message in str(caught.value)


def test_a_contribution_sent_twice_is_refused(sent, keys, public):
    with pytest.raises(fhe.ContributionError, match="'c0': two contributions for position 0"):
        fhe.evaluate([sent[0], sent[0], sent[1]], keys.evaluation, public)


def test_a_missing_contributor_is_named_by_position(sent, keys, public):
    with pytest.raises(fhe.ContributionError, match="2 of 3, positions 1 are missing"):
        fhe.evaluate([sent[0], sent[2]], keys.evaluation, public)


def test_no_contribution_is_an_error(keys, public):
    with pytest.raises(fhe.ContributionError, match="0 of 3"):
        fhe.evaluate([], keys.evaluation, public)


def test_keys_of_another_parameter_set_are_refused(sent, keys, public):
    other = fhe.RuleParameters(contributors=3, classes=5, bits=8, block=4, failure_exponent=40)
    foreign = fhe.EvaluationKeys(other, keys.evaluation.content)
    with pytest.raises(fhe.InputError, match="public key: goes with evaluation keys"):
        fhe.evaluate(sent, foreign, public)


def test_a_contribution_for_another_rule_is_refused(sent, keys, public):
    other = fhe.RuleParameters(contributors=3, classes=5, bits=8, block=4, failure_exponent=40)
    mixed = [sent[0], attrs.evolve(sent[1], parameters=other), sent[2]]
    with pytest.raises(fhe.ContributionError, match="'c1': rule parameters"):
        fhe.evaluate(mixed, keys.evaluation, public)


def test_another_key_pair_cannot_read_the_answer(answer, other_keys):
    with pytest.raises(fhe.InputError, match="under key"):
        fhe.read_answer(answer, other_keys)


def test_keys_of_one_rule_read_answers_by_their_own_secret_each(keys, other_keys):
    """What a querier keeps of its keys is theirs alone, not their rule's or the process's."""
    first, second = keys.results, other_keys.results
    assert not np.array_equal(first.bits, second.bits)
    for each, reader in ((keys, first), (other_keys, second)):
        assert np.array_equal(reader.bits, secret_bits(each.client, reader.kind).ravel())
        assert str(reader.bits) not in repr(reader)


def test_a_layout_that_was_not_proven_reads_no_answer(answer, keys, monkeypatch):
    """Words would be read as other classes; a proof that failed is asked for again."""
    fresh = dataclasses.replace(keys)
    with monkeypatch.context() as changed:
        changed.setattr(lwe_layout, "_SECRET_HEAD", 79)
        for _ in range(2):
            with pytest.raises(fhe.errors.LibraryError, match="concrete-python"):
                fhe.read_answer(answer, fresh)
    assert np.array_equal(fhe.read_answer(answer, fresh), fhe.read_answer(answer, keys))


@pytest.mark.parametrize("cut", [0, 10, 200, 1000, -1])
def test_a_truncated_message_is_refused_with_its_path(sent, tmp_path, cut):
    path = tmp_path / "c0"
    sent[0].save(path)
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(fhe.FormatError) as caught:
        fhe.Contribution.load(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"\0" * 100, b"\0" * 10**6])
def test_bytes_that_are_no_ciphertext_are_refused_by_contributor(sent, keys, public, content):
    """A well-formed file of a hostile contributor."""
    garbage = attrs.evolve(sent[1], content=content)
    with pytest.raises(fhe.FormatError, match="contributor 'c1'"):
        fhe.evaluate([sent[0], garbage, sent[2]], keys.evaluation, public)


def test_a_contribution_that_claims_a_billion_queries_costs_nothing(sent, keys, public):
    greedy = [attrs.evolve(each, queries=10**9) for each in sent]
    with pytest.raises(fhe.FormatError, match="contributor 'c0'"):
        fhe.evaluate(greedy, keys.evaluation, public)


def test_an_answer_is_not_a_contribution(answer, tmp_path):
    answer.save(tmp_path / "answer")
    with pytest.raises(fhe.FormatError, match="'fhe answer', expected 'fhe contribution'"):
        fhe.Contribution.load(tmp_path / "answer")


def test_an_answer_with_missing_ciphertexts_is_refused(answer, keys, tmp_path):
    half = len(answer.content) // 2
    attrs.evolve(answer, content=answer.content[:half]).save(tmp_path / "answer")
    message = f"{half} bytes of ciphertexts for 6 queries, expected {2 * half}"
    with pytest.raises(fhe.FormatError, match=message):
        fhe.read_answer(fhe.Answer.load(tmp_path / "answer"), keys)


def test_a_contributor_outside_the_rule_is_refused(public):
    with pytest.raises(fhe.InputError, match="position 3"):
        fhe.contribute(CODES[:, 0], public, contributor=3, name="d", federation="f", batch="b")


def test_the_self_test_passes_and_notices_foreign_evaluation_keys(keys, public, other_keys):
    assert self_test(keys, keys.evaluation, public) == 8
    with pytest.raises(fhe.InputError, match="public key: goes with evaluation keys"):
        self_test(keys, other_keys.evaluation, public)


def test_an_evaluator_that_answers_with_other_bytes_is_noticed(answer, keys):
    broken = attrs.evolve(answer, content=b"\0" * 50)
    with pytest.raises(fhe.FormatError, match="answer"):
        fhe.read_answer(broken, keys)


def test_inspect_says_who_can_read_what(keys):
    text = describe_keys(keys.evaluation).to_text()
    assert all(sentence in text for sentence in READERS)
    assert "2^-40" in text
    kind = input_type(compiled_rule(keys.parameters).specs)
    assert f"of rank {kind.glwe_dimension} and degree {kind.degree}" in text


@pytest.mark.parametrize("kind", ["secret", "evaluation", "public"])
def test_keys_of_another_version_are_refused_with_both_named(keys, public, tmp_path, kind):
    """Keys that were drawn for other circuits would give wrong answers, not errors."""
    fhe.save_secret_keys(tmp_path, keys, "p")
    fhe.save_evaluation_keys(tmp_path, keys.evaluation)
    fhe.save_public_key(tmp_path, public)
    load = {
        "secret": lambda: fhe.load_secret_keys(tmp_path, "p"),
        "evaluation": lambda: fhe.load_evaluation_keys(tmp_path),
        "public": lambda: fhe.load_public_key(tmp_path),
    }
    path = tmp_path / f"{kind}.key"
    envelope = read_envelope(path)
    header = {name: value for name, value in envelope.header.items() if name != "version"}
    write_envelope(path, envelope.kind, header, envelope.payload)
    reads = 4 if kind == "public" else 3
    message = f"a key of version 1, this package reads version {reads}"
    with pytest.raises(VersionError, match=message):
        load[kind]()


def test_a_batch_is_answered_once(sent, public, tmp_path):
    """A replay of whole messages is caught by the evaluator's memory, another batch is not."""
    refuse_answered(tmp_path, sent)
    with recorded(tmp_path, sent[0]):
        pass
    with pytest.raises(fhe.ContributionError, match="'c0': query batch 'b' was answered before"):
        refuse_answered(tmp_path, sent)
    refuse_answered(tmp_path, send(public, batch="b2"))
    assert b"b" not in (tmp_path / "answered").read_bytes().split()


def test_of_many_that_evaluated_one_batch_one_delivers(sent, tmp_path):
    """Each waits for the lock with the batch evaluated; other batches lose no line meanwhile."""
    delivered, refused = [], []

    def deliver(i):
        batch = attrs.evolve(sent[0], batch=f"b{i % 3}")
        try:
            with recorded(tmp_path, batch):
                delivered.append(batch.batch)
        except fhe.ContributionError as error:
            refused.append(str(error))

    with ThreadPoolExecutor(12) as pool:
        list(pool.map(deliver, range(12)))
    assert sorted(delivered) == ["b0", "b1", "b2"]
    assert len(refused) == 9
    assert all("was answered by another process meanwhile" in line for line in refused)
    assert len((tmp_path / "answered").read_text().splitlines()) == 3


def test_a_batch_whose_answer_could_not_be_written_may_be_answered_again(sent, tmp_path):
    def deliver(size):
        with recorded(tmp_path, sent[0]):
            write_atomic(tmp_path / "out" / "answer", bytes(size))

    with pytest.raises(fhe.InputError, match="cannot be written"):
        deliver(1)
    (tmp_path / "out").mkdir()
    deliver(1)
    with pytest.raises(fhe.ContributionError, match="meanwhile"):
        deliver(1)
