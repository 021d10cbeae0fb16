"""The batched engine's roles over real ciphertexts: right answers, refusals, hostile bytes."""

import json
import stat

import attrs
import numpy as np
import pytest

import fhe
from fhe.audit import new_audit
from fhe.batched.chain import MODULUS
from fhe.batched.evaluator import evaluate_batched, tasks_of
from fhe.batched.messages import bit_bytes, contribution_bytes, place
from fhe.batched.packing import pack, unpack
from fhe.batched.scheme import scheme_of
from fhe.batched.tasks import ROUNDS, Desk
from fhe.engines import answer_of
from fhe.envelope import Payload, read_envelope, read_in_parts, write_envelope
from fhe.errors import LibraryError, VersionError
from fhe.inspection import describe_keys, self_test
from fhe.keys import EVALUATION_FILE, SECRET_FILE
from fhe.public_key import PUBLIC_FILE
from fhe.readers import READERS
from fhe.slicing import check_part, join_answers, most_steps, needed, spans_of

from .conftest import send
from .test_circuit import lowest_class


@pytest.fixture(scope="module")
def folder(keys, public, tmp_path_factory):
    path = tmp_path_factory.mktemp("keys")
    fhe.save_secret_keys(path, keys, "correct horse")
    fhe.save_evaluation_keys(path, keys.evaluation)
    fhe.save_public_key(path, public)
    return path


def test_every_table_of_three_clients_classes_and_levels_on_ciphertexts(tables, answer, keys):
    """19,683 queries fill two sets of slots, the second in part; by as many processes as cores."""
    assert len(answer.blocks) == 2
    assert fhe.read_answer(answer, keys).tolist() == lowest_class(tables)


def test_the_roles_work_over_files_alone(folder, few, tmp_path, rule):
    for each in few:
        each.save(tmp_path / each.name)
    received = [fhe.load_contribution(tmp_path / f"c{i}") for i in (2, 0, 1)]
    assert all(isinstance(each.content.source, type(tmp_path)) for each in received)
    evaluation, public = fhe.load_evaluation_keys(folder), fhe.load_public_key(folder)
    evaluate_batched(received, evaluation, public, processes=1).save(tmp_path / "answer")
    secret = fhe.load_secret_keys(folder, "correct horse")
    found = fhe.read_answer(fhe.load_answer(tmp_path / "answer"), secret)
    codes = np.random.default_rng(2).integers(0, 16, (5, 3, 3))
    assert found.tolist() == lowest_class(codes)


def test_a_quorum_by_neutral_contributions_and_known_answers(keys, public, rule):
    audit = new_audit(7)
    codes = np.random.default_rng(3).integers(0, 16, (5, 3, 3))
    same = {"federation": "f", "batch": "b"}
    sent = [
        fhe.contribute(audit.mix(codes[:, i], i, rule), public, contributor=i, name=str(i), **same)
        for i in (0, 2)
    ]
    sent.append(fhe.neutral(12, public, contributor=1, name="1", **same))
    answer = evaluate_batched(sent, keys.evaluation, public, processes=1)
    found = audit.check(fhe.read_answer(answer, keys), rule, present=[0, 2])
    assert found.tolist() == lowest_class(codes[:, [0, 2]])


def test_the_self_test_passes(keys, public):
    assert self_test(keys, keys.evaluation, public) == 8


class Recorded(Payload):
    """A payload that notes what is read of it."""

    def read(self, start, size):
        READ.append(size)
        return super().read(start, size)


READ = []


def test_contributions_are_read_a_ciphertext_at_a_time(few, keys, public, rule, tmp_path):
    """So memory does not grow with contributors: loading one reads nothing of its ciphertexts."""
    for each in few:
        each.save(tmp_path / each.name)
    received = [fhe.load_contribution(tmp_path / f"c{i}") for i in range(3)]
    watched = [
        attrs.evolve(each, content=Recorded(*vars(each.content).values())) for each in received
    ]
    READ.clear()
    evaluate_batched(watched, keys.evaluation, public, processes=1)
    assert 0 < max(READ) <= bit_bytes(rule, rule.circuit.levels)
    assert sum(READ) < 5 * sum(each.content.size for each in few)


def test_files_have_the_size_that_is_stated(few, rule, tmp_path):
    size = contribution_bytes(rule, 5)
    assert all(each.content.size == size for each in few)
    assert few[0].save(tmp_path / "c0") - size < 2000


def test_the_same_codes_never_encrypt_to_the_same_bytes(few, public):
    codes = np.random.default_rng(2).integers(0, 16, (5, 3, 3))
    again = send(codes, public)
    assert few[0].content.read(0, 64) != again[0].content.read(0, 64)


def test_the_secret_file_is_sealed_and_the_public_ones_hold_no_secret(folder, keys):
    assert stat.S_IMODE((folder / SECRET_FILE).stat().st_mode) == 0o600
    piece = keys.secret[1000:1064]
    for name in (SECRET_FILE, EVALUATION_FILE, PUBLIC_FILE):
        assert piece not in (folder / name).read_bytes()
    with pytest.raises(fhe.SecretError):
        fhe.load_secret_keys(folder, "wrong horse")
    assert len(repr(keys)) < 300


def test_inspect_says_who_can_read_what(keys):
    facts = describe_keys(keys.evaluation)
    text = facts.to_text()
    assert all(sentence in text for sentence in READERS)
    assert "engine bgv: 3 contributors" in text
    assert json.loads(json.dumps(facts.to_json()))["slots"] == 16384


# ------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch": "older"}, "query batch"),
        ({"federation": "g"}, "federation"),
        ({"key": "00"}, "key"),
        ({"public": "00"}, "public key"),
        ({"queries": 6}, "number of queries"),
        ({"contributor": 7}, "position 7"),
    ],
)
def test_a_contribution_that_does_not_belong_is_refused_by_name(few, keys, public, change, message):
    mixed = [few[0], attrs.evolve(few[1], **change), few[2]]
    with pytest.raises(fhe.ContributionError, match="'c1'") as caught:
        fhe.evaluate(mixed, keys.evaluation, public)
    assert message in str(caught.value)


def test_a_contribution_of_foreign_parameters_is_refused(few, keys, public, rule):
    other = attrs.evolve(rule, step=2, high_columns=3, low_columns=3)
    mixed = [few[0], attrs.evolve(few[1], parameters=other), few[2]]
    with pytest.raises(fhe.ContributionError, match="'c1': rule parameters"):
        fhe.evaluate(mixed, keys.evaluation, public)


def test_keys_and_messages_of_the_other_engine_are_refused(few, keys, public, answer):
    tfhe = fhe.RuleParameters(contributors=3, classes=3, bits=4)
    foreign = fhe.EvaluationKeys(tfhe, b"x")
    with pytest.raises(fhe.ContributionError, match=r"'c0': encrypted for engine bgv, .* tfhe"):
        fhe.evaluate(few, foreign, public)
    with pytest.raises(fhe.InputError, match="under key"):
        fhe.read_answer(answer, fhe.SecretKeys(tfhe, None, foreign))
    tfhe_answer = fhe.Answer(
        parameters=tfhe, key="k", federation="f", batch="b", queries=1, content=b""
    )
    with pytest.raises(fhe.InputError, match="answer: of another engine than these keys"):
        answer_of(tfhe_answer.to_bytes(), public.parameters, source="answer")


def test_foreign_keys_are_refused(few, keys, public, answer):
    other = attrs.evolve(keys.evaluation, content=keys.evaluation.content[::-1])
    with pytest.raises(fhe.InputError, match="public key: goes with evaluation keys"):
        fhe.evaluate(few, other, public)
    with pytest.raises(fhe.InputError, match="under key"):
        fhe.read_answer(answer, attrs.evolve(keys, evaluation=other))


@pytest.mark.parametrize("name", [SECRET_FILE, EVALUATION_FILE, PUBLIC_FILE])
@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"version": 9}, VersionError, "of version 9, this package reads version 1"),
        ({"key": "0" * 64}, fhe.InputError, "fingerprint does not fit|did not open"),
        ({"step": 0}, fhe.InputError, "step 0"),
        ({"step": "4"}, fhe.InputError, "step is not of type int"),
        ({"more": 1}, fhe.InputError, "missing or unknown"),
        ({"high_columns": 3}, fhe.InputError, "fingerprint does not fit|did not open|layout"),
    ],
)
def test_changed_key_files_are_refused(folder, tmp_path, name, change, error, message):
    load = {
        SECRET_FILE: lambda: fhe.load_secret_keys(tmp_path, "correct horse"),
        EVALUATION_FILE: lambda: fhe.load_evaluation_keys(tmp_path),
        PUBLIC_FILE: lambda: fhe.load_public_key(tmp_path),
    }
    envelope = read_envelope(folder / name)
    header = dict(envelope.header)
    if "version" in change or "key" in change:
        header.update(change)
    else:
        header["parameters"] = {**header["parameters"], **change}
    write_envelope(tmp_path / name, envelope.kind, header, envelope.payload)
    with pytest.raises(error, match=message):
        load[name]()


# -------------------------------------------------------------------------------- hostile bytes


def with_bit(each, rule, bit, residues):
    """A contribution in which one ciphertext is replaced."""
    level = rule.circuit.level_of(bit)
    start = place(rule, 0, bit)
    data = each.payload()
    packed = pack(residues, rule.chain.primes(level))
    changed = data[:start] + packed + data[start + len(packed) :]
    return attrs.evolve(each, content=Payload(changed, 0, len(changed)))


def residues_of(each, rule, bit):
    level = rule.circuit.level_of(bit)
    data = each.content.read(place(rule, 0, bit), bit_bytes(rule, level))
    return unpack(data, rule.chain.primes(level), rule.degree, 2)


def evaluated(few, hostile, keys, public):
    return evaluate_batched([few[0], hostile, few[2]], keys.evaluation, public, processes=1)


@pytest.mark.parametrize("size", [0, 1, 100, -1, "one more"])
def test_another_length_is_refused_before_any_work(few, keys, public, size):
    data = few[1].payload()
    data = data + b"\0" if size == "one more" else data[:size]
    hostile = attrs.evolve(few[1], content=Payload(data, 0, len(data)))
    with pytest.raises(fhe.FormatError, match=r"'c1': .* bytes of ciphertext, expected"):
        evaluated(few, hostile, keys, public)


def test_a_contribution_that_claims_a_billion_queries_costs_nothing(few, keys, public):
    greedy = [attrs.evolve(each, queries=10**9) for each in few]
    with pytest.raises(fhe.FormatError, match="contributor 'c0'"):
        fhe.evaluate(greedy, keys.evaluation, public)


@pytest.mark.parametrize("bit", [0, 5])
@pytest.mark.parametrize("kind", ["ones", "second zero", "first zero", "zero modulo one prime"])
def test_bytes_that_are_no_ciphertext_are_refused_by_name(few, keys, public, rule, bit, kind):
    residues = residues_of(few[1], rule, bit)
    if kind == "ones":
        data = bytearray(few[1].payload())
        start = place(rule, 0, bit)
        data[start : start + 4000] = b"\xff" * 4000
        data[start : start + bit_bytes(rule, 0)] = b"\xff" * bit_bytes(rule, 0)
        hostile = attrs.evolve(few[1], content=Payload(bytes(data), 0, len(data)))
    else:
        where = {
            "second zero": np.s_[1],
            "first zero": np.s_[0],
            "zero modulo one prime": np.s_[1, 0],
        }
        residues[where[kind]] = 0
        hostile = with_bit(few[1], rule, bit, residues)
    with pytest.raises(fhe.FormatError, match=r"contributor 'c1': .*; get it again"):
        evaluated(few, hostile, keys, public)


def test_ciphertexts_that_cancel_are_refused_by_name(few, keys, public):
    """One ciphertext for two bits: the library refuses a difference that hides nothing."""
    rule = public.parameters
    low = rule.layout.high.ciphertexts + rule.layout.low.rows - 1
    same = residues_of(few[1], rule, low)
    hostile = with_bit(few[1], rule, low + 1, same)
    with pytest.raises(fhe.ContributionError, match=r"contributor 'c1': .*cannot be computed with"):
        evaluated(few, hostile, keys, public)


def test_a_worker_process_tells_who_was_hostile(few, keys, public, rule):
    residues = residues_of(few[1], rule, 0)
    residues[1] = 0
    hostile = with_bit(few[1], rule, 0, residues)
    with pytest.raises(fhe.FormatError, match="contributor 'c1': a polynomial"):
        evaluate_batched([few[0], hostile, few[2]], keys.evaluation, public, processes=2)


def test_random_residues_spoil_their_own_answers_alone(few, keys, public, rule):
    """Well-formed bytes that encrypt nothing: an answer comes, and it is not taken for classes."""
    rng = np.random.default_rng(0)
    level = rule.circuit.level_of(0)
    primes = rule.chain.primes(level)
    noise = np.stack(
        [rng.integers(0, prime, (2, rule.degree), dtype=np.uint64) for prime in primes], axis=1
    )
    answer = evaluated(few, with_bit(few[1], rule, 0, noise), keys, public)
    with pytest.raises(fhe.AnswerError, match="there are 3 "):
        fhe.read_answer(answer, keys)


def test_one_malformed_query_leaves_the_others_right(few, keys, public, rule):
    """A lie in slot 2 of ciphertexts that are fine: 2 is no thermometer bit."""
    scheme = scheme_of(rule.chain)
    lie = np.zeros(rule.degree, np.uint64)
    lie[2] = 2
    bit, level = 0, rule.circuit.level_of(0)
    changed = scheme.ciphertext(residues_of(few[1], rule, bit), level)
    scheme.evaluator.add_plain_inplace(changed, scheme.encoder.encode(lie))
    hostile = with_bit(few[1], rule, bit, scheme.residues(changed))
    answer = evaluated(few, hostile, keys, public)
    residues = unpack(answer.blocks[0], rule.chain.primes(0), rule.degree, 2)
    plain = keys.decryptor.decrypt(scheme.ciphertext(residues, 0))
    found = rule.decode(scheme.encoder.decode_uint64(plain).astype(np.int64)[:5])
    expected = lowest_class(np.random.default_rng(2).integers(0, 16, (5, 3, 3)))
    assert np.delete(found, 2).tolist() == np.delete(expected, 2).tolist()
    assert found[2] < MODULUS


@pytest.mark.parametrize(
    "content", [b"", b"\0" * 100, lambda data: data[:-1], lambda data: b"\xff" * len(data)]
)
def test_evaluation_keys_that_are_none_are_refused(keys, public, few, content):
    data = content(keys.evaluation.content) if callable(content) else content
    broken = attrs.evolve(keys.evaluation, content=data)
    belongs = attrs.evolve(public, key=broken.fingerprint)
    sent = [attrs.evolve(each, key=broken.fingerprint, public=belongs.fingerprint) for each in few]
    with pytest.raises(fhe.FormatError, match=r"evaluation keys: .*; get them again"):
        evaluate_batched(sent, broken, belongs, processes=1)


@pytest.mark.parametrize("kind", ["short", "ones", "zero"])
def test_a_public_key_that_is_none_is_refused_when_it_is_read(public, tmp_path, kind):
    data = {
        "short": public.content[:-8],
        "ones": b"\xff" * len(public.content),
        "zero": bytes(len(public.content)),
    }[kind]
    fhe.save_public_key(tmp_path, attrs.evolve(public, content=data))
    with pytest.raises(fhe.FormatError, match=r"public\.key: public key: .*; get it again"):
        fhe.load_public_key(tmp_path)


@pytest.mark.parametrize("kind", ["ones", "zero"])
def test_an_answer_that_is_none_is_refused(answer, keys, kind):
    value = {"ones": b"\xff", "zero": b"\0"}[kind]
    broken = attrs.evolve(answer, blocks=tuple(value * len(block) for block in answer.blocks))
    with pytest.raises(fhe.FormatError, match=r"answer: .*; get it again"):
        fhe.read_answer(broken, keys)


def test_an_answer_of_another_length_is_refused(answer, tmp_path):
    attrs.evolve(answer, blocks=answer.blocks[:1]).save(tmp_path / "answer")
    with pytest.raises(fhe.FormatError, match="bytes of ciphertext, expected"):
        fhe.load_answer(tmp_path / "answer")


@pytest.mark.parametrize("change", ["cut", "longer", "flipped"])
def test_a_damaged_contribution_file_is_refused_with_its_path(few, tmp_path, change):
    path = tmp_path / "c0"
    few[0].save(path)
    data = bytearray(path.read_bytes())
    if change == "cut":
        del data[-1]
    elif change == "longer":
        data.append(0)
    else:
        data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(fhe.FormatError, match=r"c0: .*; get it again"):
        fhe.load_contribution(path)


def test_a_payload_is_read_in_parts_and_never_past_its_end(few, tmp_path):
    few[0].save(tmp_path / "c0")
    _, _, payload = read_in_parts(tmp_path / "c0", "fhe contribution")
    whole = few[0].payload()
    assert payload.read(10, 20) == whole[10:30]
    assert payload.read(len(whole) - 3, 100) == whole[-3:]
    assert payload.read(len(whole) + 5, 100) == b""


# ------------------------------------------------------------------------------------ processes


@pytest.mark.parametrize("processes", [1, 2, 3, 16])
def test_tasks_cover_every_round_once(processes):
    rule = fhe.choose_parameters(10, 20, 8)
    layout = rule.layout
    expected = {"high": layout.high.rows, "winner": 10, "low": layout.low.rows}
    for name, count in expected.items():
        spans = [task.span for task in tasks_of(name, 0, rule, processes)]
        assert [i for span in spans for i in span] == list(range(count))
        assert all(spans)


@pytest.mark.parametrize("processes", [1, 2, 16])
def test_no_evaluation_takes_more_steps_than_are_counted(keys, public, tmp_path, processes):
    """As many only where every upper digit is a task of its own."""
    desk = Desk(keys.evaluation, public, [], tmp_path)
    tasks = [each for round_ in ROUNDS for each in tasks_of(round_, 0, keys.parameters, processes)]
    steps, most = sum(map(desk.steps, tasks)), most_steps(keys.parameters, 1)
    assert steps <= most
    assert (steps == most) == (processes == 16)


def test_residues_that_the_querier_could_not_read_are_no_part_of_an_answer(answer, sent):
    check_part(answer, sent[0], answer.queries)
    size = len(answer.blocks[0])
    for block, why in ((b"\xff" * size, "not below its prime"), (bytes(size), "is zero")):
        spoilt = attrs.evolve(answer, blocks=(*answer.blocks[:-1], block))
        with pytest.raises(fhe.FormatError, match=why):
            check_part(spoilt, sent[0], answer.queries)


def test_a_dead_worker_is_told_of_and_not_waited_for(few, keys, public, monkeypatch):
    monkeypatch.setattr("fhe.batched.crew._PROGRAM", "raise SystemExit(3)")
    with pytest.raises(LibraryError, match="a worker process ended early"):
        evaluate_batched(few, keys.evaluation, public, processes=2)


def test_fresh_processes_for_every_round_give_the_same_classes(few, keys, public, monkeypatch):
    """As many levels ask for; one process at a time here."""
    monkeypatch.setattr("fhe.batched.evaluator.LEVELS_AT_ONCE", 0)
    answer = evaluate_batched(few, keys.evaluation, public, processes=1)
    codes = np.random.default_rng(2).integers(0, 16, (5, 3, 3))
    assert fhe.read_answer(answer, keys).tolist() == lowest_class(codes)


@pytest.mark.slow  # a whole evaluation of two sets
def test_sets_answered_apart_are_the_same_classes_as_one_evaluation(sent, answer, keys, public):
    """Answers of engine bgv are flooded with fresh noise: their classes agree, not their bytes."""
    parts = []
    for span in spans_of(keys.parameters, sent[0].queries, 1):
        messages, within = needed(sent, span)
        parts.append(fhe.evaluate(messages, keys.evaluation, public, queries=within))
    assert len(parts) == 2
    joined = join_answers(parts, sent[0])
    np.testing.assert_array_equal(fhe.read_answer(joined, keys), fhe.read_answer(answer, keys))


def test_a_slice_that_is_no_whole_set_is_refused(sent, keys, public):
    with pytest.raises(fhe.InputError, match="whole sets of 16384"):
        fhe.evaluate(sent, keys.evaluation, public, queries=range(10))
