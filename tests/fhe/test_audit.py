"""Known answers: an evaluator that lies is found out as often as predicted, an honest one never."""

import math
import stat

import mpmath
import numpy as np
import pytest
from scipy.stats import binom

import fhe
from fhe.audit import (
    Audit,
    known_for,
    leaked_bits,
    load_audit,
    new_audit,
    save_audit,
)
from fhe.errors import InputError

PARAMETERS = fhe.RuleParameters(contributors=3, classes=5, bits=6, block=4, failure_exponent=40)


def batch(audit, real):
    """What an honest evaluator answers to real codes with the known ones mixed in."""
    mixed = [audit.mix(real[:, i], i, PARAMETERS) for i in range(3)]
    return fhe.plain(np.stack(mixed, axis=1), PARAMETERS)


@pytest.fixture
def real():
    return np.random.default_rng(0).integers(0, 64, (90, 3, 5))


def test_an_honest_evaluators_real_answers_come_back_in_order(real):
    audit = new_audit(10)
    answers = audit.check(batch(audit, real), PARAMETERS)
    np.testing.assert_array_equal(answers, fhe.plain(real, PARAMETERS))


@pytest.mark.parametrize("share", [0.01, 0.1, 1.0])
def test_a_lying_evaluator_is_found_as_often_as_predicted(real, share):
    """400 batches of 90 real and 10 known queries; 99.99 % bounds of the binomial count."""
    rng = np.random.default_rng(1)
    wrong = max(1, round(share * 100))
    trials, found = 400, 0
    for _ in range(trials):
        audit = new_audit(10)
        answers = batch(audit, real)
        lies = rng.choice(100, wrong, replace=False)
        answers[lies] = (answers[lies] + rng.integers(1, 5, wrong)) % 5
        try:
            audit.check(answers, PARAMETERS)
        except fhe.AnswerError:
            found += 1
    predicted = 1 - math.comb(90, wrong) / math.comb(100, wrong)
    low, high = binom.interval(0.9999, trials, predicted)
    assert low <= found <= high


def test_known_positions_and_codes_depend_on_the_seed_alone():
    first, second = Audit(bytes(32), 5), Audit(bytes(32), 5)
    np.testing.assert_array_equal(first.positions(50), second.positions(50))
    np.testing.assert_array_equal(first.codes(1, PARAMETERS), second.codes(1, PARAMETERS))
    assert not np.array_equal(first.codes(1, PARAMETERS), first.codes(2, PARAMETERS))
    assert not np.array_equal(first.positions(50), Audit(b"\1" * 32, 5).positions(50))


def test_every_position_is_equally_likely():
    counts = sum(np.bincount(new_audit(5).positions(20), minlength=20) for _ in range(2000))
    low, high = binom.interval(1 - 1e-7, 2000, 5 / 20)
    assert np.all((low <= counts) & (counts <= high))


def test_every_known_class_is_about_equally_likely():
    """A known answer that was nearly always the same class could be guessed."""
    audit = new_audit(5000)
    packing = PARAMETERS.packing
    packed = np.min([packing.pack(audit.codes(i, PARAMETERS)) for i in range(3)], axis=0)
    counts = np.bincount(packing.class_of(packed), minlength=5)
    # Ties go to the lowest class, so the first is a little likelier.
    assert np.all((counts > 700) & (counts < 1500))


def test_known_queries_look_like_real_ones_on_the_wire(public):
    """Header and length are those of a batch of eight real queries."""
    facts = {"contributor": 0, "name": "c0", "federation": "f", "batch": "b"}
    codes = np.zeros((8, 5), np.int64)
    mixed = new_audit(2).mix(codes[:6], 0, public.parameters)
    with_known, without = (fhe.contribute(each, public, **facts) for each in (mixed, codes))
    assert with_known.header() == without.header()
    assert len(with_known.content) == len(without.content)


def test_the_secret_comes_back_and_is_for_its_owner_alone(tmp_path):
    audit = new_audit(7)
    save_audit(tmp_path / "audit", audit)
    assert load_audit(tmp_path / "audit") == audit
    assert stat.S_IMODE((tmp_path / "audit").stat().st_mode) == 0o600
    assert audit.seed.hex() not in repr(audit)


@pytest.mark.parametrize("known", [0, 32_769])
def test_a_senseless_number_of_known_answers_is_refused(known):
    with pytest.raises(fhe.InputError, match="known answers"):
        new_audit(known)


def test_a_batch_of_known_queries_alone_is_refused():
    with pytest.raises(fhe.InputError, match="5 known answers in a batch of 5"):
        new_audit(5).positions(5)


@pytest.mark.parametrize("classes", [2, 3, 10, 50])
@pytest.mark.parametrize("share", [0.05, 0.2, 0.37, 0.5, 0.9])
def test_the_bits_that_leak_are_at_most_as_stated(share, classes):
    """Against the exact entropy of what an evaluator sees that alters where it knows least.

    It alters M answers until one is found, M geometric, at any of the places, to any class.
    """
    answers = 400
    exact = 0.0
    for m in range(answers + 1):
        p = share * (1 - share) ** m
        ways = mpmath.log(mpmath.binomial(answers, m), 2) + m * mpmath.log(classes - 1, 2)
        exact += p * (float(ways) - math.log2(p)) if p > 0 else 0.0
    stated = leaked_bits(answers, share, classes)
    assert exact <= stated
    assert stated <= 2 * exact + 8


def test_five_percent_of_known_answers_bound_less_than_nothing_of_a_key():
    """Why the default costs more; the percentages are those of docs/service.md."""
    for classes in (2, 10, 20):
        for answers in (1_000, 10_000):
            assert leaked_bits(answers, 0.05 / 1.05, classes) > 128
    shown = {2: (109, 47, 29, 21, 13), 10: (133, 59, 37, 27, 17), 20: (141, 63, 39, 28, 18)}
    for classes, row in shown.items():
        found = [known_for(9_000, classes, bits=bits) / 90 for bits in (16, 32, 48, 64, 96)]
        assert [round(each) for each in found] == list(row)


@pytest.mark.parametrize("classes", [2, 10, 100])
@pytest.mark.parametrize("real", [1_000, 19_000])
def test_known_answers_are_as_many_as_the_bound_needs_and_no_more(classes, real):
    """Of 10,000 answers under one key, and of a batch that has more by itself."""
    known, answers = known_for(real, classes), max(10_000, real)
    assert leaked_bits(answers, known / (real + known), classes) <= 32
    fewer = known - 2
    assert leaked_bits(answers, fewer / (real + fewer), classes) > 32
    assert known_for(1, classes) >= 1
    for bits in (0.0, 1.0, math.inf, math.nan):
        with pytest.raises(InputError, match="leaked bits"):
            known_for(real, classes, bits=bits)
