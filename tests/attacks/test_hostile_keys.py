"""A querier that sends keys whose description would exhaust or crash the evaluator's library."""

import resource

import attrs
import numpy as np
import pytest

import fhe
from fhe.compiled import compiled_rule
from fhe.envelope import read_envelope, write_envelope
from fhe.errors import VersionError
from fhe.frames import frames_of, key_frame, operand_frames
from fhe.keys import EVALUATION_FILE
from fhe.public_key import PUBLIC_FILE
from tests.attacks.table import Attack

ATTACK = Attack(
    name="sends keys whose description exhausts or crashes whoever reads them",
    holds="the querier, and the evaluator's reading of its public and evaluation keys",
    before="the library's parser of foreign bytes, with descriptions of up to 4 kB each",
    after="nothing: the evaluator describes keys by its own circuit and takes words of the exact"
    " size alone",
)

RULE = fhe.RuleParameters(contributors=2, classes=3, bits=4, block=4, failure_exponent=40)


@pytest.fixture(scope="module")
def keys():
    return fhe.generate_keys(RULE)


@pytest.fixture(scope="module")
def frame(keys):
    """Drawn by the evaluator; no part of it comes from the querier's keys."""
    return frames_of(keys.parameters).keys


def structure(frame):
    """Whether each byte of evaluation keys describes, and is no word of a key."""
    found = []
    for part, gap in zip(frame.parts, frame.gaps, strict=True):
        found += [np.ones(len(part), bool), np.zeros(gap, bool)]
    return np.concatenate(found)


def peak():
    """Kilobytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def evaluated(keys, evaluation):
    """An answer under those evaluation keys, the public key's claim on them renewed."""
    public = fhe.make_public_key(keys)
    public = type(public)(public.parameters, evaluation.fingerprint, public.content)
    codes = np.random.default_rng(0).integers(0, 16, (2, 1, 3))
    sent = [
        fhe.contribute(codes[i], public, contributor=i, name=str(i), federation="f", batch="b")
        for i in range(2)
    ]
    return fhe.evaluate(sent, evaluation, public)


def test_nothing_but_words_differs_between_the_keys_of_two_queriers(keys, frame):
    """The evaluator's own throwaway keys and the querier's: every byte of structure is alike."""
    frame.check(keys.evaluation.content)
    assert key_frame(keys.evaluation.content, compiled_rule(RULE)) == frame
    other = fhe.generate_keys(RULE).evaluation.content
    first, second = (np.frombuffer(each, np.uint8) for each in (keys.evaluation.content, other))
    where = structure(frame)
    assert np.array_equal(first[where], second[where])
    # Random bytes agree once in 256 times: what is not structure is random.
    assert abs(np.mean(first[~where] == second[~where]) - 1 / 256) < 1e-4
    assert where.sum() < 1000


def test_no_change_of_what_describes_the_keys_reaches_the_library(keys, frame):
    """Before, counts of a header made it allocate gigabytes, loop, or end the process."""
    content, rng, before = keys.evaluation.content, np.random.default_rng(1), peak()
    places = np.flatnonzero(structure(frame))
    for place in places:
        changed = bytearray(content)
        changed[place] ^= int(rng.integers(1, 256))
        with pytest.raises(fhe.FormatError, match="evaluation keys: what describes them"):
            _ = fhe.EvaluationKeys(RULE, bytes(changed)).library_keys
    assert peak() - before < 200_000


@pytest.mark.parametrize("size", [0, 1, 8, -1, -8, 16])
def test_evaluation_keys_of_another_size_are_refused(keys, size):
    content = keys.evaluation.content
    changed = content[:size] if size <= 0 else content + b"\0" * size
    with pytest.raises(fhe.FormatError, match="bytes, those of this rule have"):
        _ = fhe.EvaluationKeys(RULE, changed).library_keys


def test_evaluation_keys_of_another_rule_are_refused(keys):
    other = attrs.evolve(RULE, failure_exponent=128)
    with pytest.raises(fhe.FormatError, match="evaluation keys"):
        fhe.EvaluationKeys(other, keys.evaluation.content).check()


def test_keys_of_any_words_are_computed_with_and_the_evaluator_goes_on(keys, frame):
    """What is left for the querier to choose cannot do more than spoil its own answers."""
    content = np.frombuffer(keys.evaluation.content, np.uint8).copy()
    inside = ~structure(frame)
    for fill in (np.uint8(0), np.uint8(255), None):
        changed = content.copy()
        count = int(inside.sum())
        words = np.random.default_rng(2).integers(0, 256, count, np.uint8) if fill is None else fill
        changed[inside] = words
        answer = evaluated(keys, fhe.EvaluationKeys(RULE, changed.tobytes()))
        assert answer.queries == 1
    assert evaluated(keys, keys.evaluation).queries == 1


def test_hostile_keys_are_refused_before_any_contribution_is_computed_with(keys):
    hostile = bytearray(keys.evaluation.content)
    hostile[4:8] = b"\xff\xff\xff\x7f"
    phases = []
    public = fhe.make_public_key(keys)
    evaluation = fhe.EvaluationKeys(RULE, bytes(hostile))
    public = type(public)(RULE, evaluation.fingerprint, public.content)
    codes = np.zeros((1, 3), np.int64)
    sent = [
        fhe.contribute(codes, public, contributor=i, name=str(i), federation="f", batch="b")
        for i in range(2)
    ]
    with pytest.raises(fhe.FormatError, match="evaluation keys"):
        fhe.evaluate(sent, evaluation, public, progress=lambda *facts: phases.append(facts[0]))
    assert set(phases) == {"compiling"}


def test_a_public_key_holds_a_seed_and_words_alone(keys, tmp_path):
    """Before, 4 kB a block of its bytes went to the evaluator's library with every operand."""
    public = fhe.make_public_key(keys)
    assert len(public.content) == 32 + 8 * public.kind.dimension
    for size in (1, 264, 4096):
        more = type(public)(RULE, public.key, public.content + b"\0" * size)
        fhe.save_public_key(tmp_path, more)
        with pytest.raises(fhe.FormatError, match="bytes, expected"):
            fhe.load_public_key(tmp_path)


def test_operands_are_described_by_the_evaluators_own_keys(keys):
    """They agree with those that the querier's client makes, which only a test has."""
    assert operand_frames(keys.client, RULE) == dict(frames_of(RULE).operands)


def test_files_of_the_version_that_described_ciphertexts_are_refused(keys, tmp_path):
    fhe.save_public_key(tmp_path, fhe.make_public_key(keys))
    envelope = read_envelope(tmp_path / PUBLIC_FILE)
    header = {**envelope.header, "version": 3}
    write_envelope(tmp_path / PUBLIC_FILE, envelope.kind, header, envelope.payload)
    with pytest.raises(VersionError, match="of version 3, this package reads version 4"):
        fhe.load_public_key(tmp_path)


def test_an_oversized_evaluation_key_is_refused_by_its_header(keys, tmp_path):
    fhe.save_evaluation_keys(tmp_path, keys.evaluation)
    path = tmp_path / EVALUATION_FILE
    content = bytearray(path.read_bytes())
    content[16:24] = (2**29).to_bytes(8, "little")
    path.write_bytes(content)
    with pytest.raises(fhe.FormatError, match="payload of 536870912 bytes, the limit is"):
        fhe.load_evaluation_keys(tmp_path)
