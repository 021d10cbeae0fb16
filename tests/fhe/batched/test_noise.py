"""Measured noise against the bound that the modulus rests on, and the flooded answer's noise."""

import math
from functools import cached_property

import attrs
import numpy as np
import pytest
from scipy import stats

import fhe
from fhe.batched.chain import BUDGET, DISTANCE, MODULUS, _tailored, bound_answer
from fhe.batched.ciphertexts import Ciphertexts
from fhe.batched.crew import Alone
from fhe.batched.evaluator import tasks_of
from fhe.batched.flooding import flood, uniform_limbs
from fhe.batched.keys import ternary
from fhe.batched.noise import Noise, TooMuchNoiseError, secret_bound
from fhe.batched.scheme import scheme_of
from fhe.batched.tasks import ROUNDS, Desk

from .conftest import send
from .phases import at_roots, phase
from .test_circuit import lowest_class


@pytest.fixture(scope="module")
def scheme(rule):
    return scheme_of(rule.chain)


@pytest.fixture(scope="module")
def ops(scheme, keys, public):
    return Ciphertexts(scheme, keys.evaluation.library_keys, public.encryptor)


@pytest.fixture(scope="module")
def bounds(rule):
    chain = rule.chain
    return Noise(chain.degree, MODULUS, chain.base, chain.levels, chain.special, 2**22)


def largest(ciphertext, keys):
    return at_roots(phase(ciphertext, keys)).max()


def test_the_secret_is_ternary_and_within_its_bound(scheme, keys, rule):
    secret = ternary(scheme, keys.library_secret)
    assert set(secret) == {-1, 0, 1}
    assert at_roots(secret).max() <= secret_bound(rule.degree)


@pytest.mark.parametrize("level", [0, 1, 4, 8])
def test_fresh_encryptions_are_within_their_bound(ops, bounds, keys, level):
    assert largest(ops.fresh_zero(level), keys) < bounds.zero(level).noise


def test_the_library_rounds_to_one_side_and_what_is_added_takes_it_back(scheme, public, keys):
    """Where the bound would break without `Centre`: at the roots nearest to 1."""
    raw = public.encryptor.encrypt_zero(scheme.identifier(0))
    centred = Ciphertexts(scheme, None, public.encryptor).centre(raw.__class__(raw), 0)
    assert at_roots(phase(raw, keys))[[0, -1]].max() > 4 * at_roots(phase(centred, keys))[0]
    assert scheme.encoder.decode_uint64(keys.decryptor.decrypt(centred)).max() == 0


def test_products_sums_and_drops_are_within_their_bounds(ops, bounds, scheme, keys):
    """A chain of squares of sums, down all levels; every product's noise is measured dropped."""
    level = len(scheme.chain.levels)
    slots = np.arange(scheme.chain.degree, dtype=np.uint64) % 3
    value = scheme.evaluator.add_plain(ops.fresh_zero(level), scheme.encoder.encode(slots))
    bound = bounds.sent(level, level)
    for _ in range(level):
        value, bound = ops.add(value, value), bounds.add(bound, bound)
        value = ops.drop(ops.relinearize(ops.multiply(value, value)))
        bound = bounds.drop(bounds.relinearize(bounds.multiply(bound, bound)))
        assert largest(value, keys) < bound.noise
        slots = 4 * slots * slots % MODULUS
        found = scheme.encoder.decode_uint64(keys.decryptor.decrypt(value))
        assert (found == slots).all()


def test_constants_that_are_not_kept_give_the_same(ops, scheme, keys, monkeypatch):
    """A polynomial of many contributors has more of them than memory is for."""
    for most in ("MOST_CONSTANTS", "MOST_FACTORS"):
        monkeypatch.setattr(f"fhe.batched.ciphertexts.{most}", 0)
    ops.forget()
    found = ops.times(ops.plus(ops.fresh_zero(1), -5), 1001)
    slots = scheme.encoder.decode_uint64(keys.decryptor.decrypt(found))
    assert set(slots) == {MODULUS - 5005}


def test_a_mask_is_within_its_bound_and_spreads_over_the_slots(ops, bounds, scheme, keys):
    one = np.ones(scheme.chain.degree, np.uint64)
    level = 2
    value = scheme.evaluator.add_plain(ops.fresh_zero(level), scheme.encoder.encode(one))
    masked = ops.mask(value)
    slots = scheme.encoder.decode_uint64(keys.decryptor.decrypt(masked))
    assert stats.kstest(slots / MODULUS, "uniform").pvalue > 1e-6
    bound = bounds.mask(bounds.sent(level, level)).noise
    assert at_roots(phase(masked, keys)).max() < bound


@pytest.fixture(scope="module")
def answers(keys, public, rule, tmp_path_factory):
    """Answers before and after flooding, to the smallest codes everywhere and to the largest."""
    found = []
    for code in (0, 15):
        codes = np.full((100, 3, 3), code)
        scratch = tmp_path_factory.mktemp("scratch")
        desk = Desk(keys.evaluation, public, send(codes, public), scratch)
        for name in ROUNDS:
            Alone(desk).do(tasks_of(name, 0, rule, 1), lambda: None)
        before = desk.answer(0)
        after = desk.scheme.ciphertext(flood(before, desk.ops, desk.scheme), 0)
        found.append((before, after))
    return found


def test_an_answers_noise_is_within_its_bound_and_leaves_45_bits(answers, keys, rule):
    for before, _ in answers:
        assert math.log2(largest(before, keys)) < rule.chain.answer
        assert keys.decryptor.invariant_noise_budget(before) >= 45


def test_flooded_noise_is_the_same_whatever_the_inputs(answers, keys, rule):
    """Two-sample and one-sample tests of all coefficients, and of their lowest bits."""
    noises = []
    for before, after in answers:
        v = phase(after, keys)
        assert keys.decryptor.invariant_noise_budget(after) >= 0
        noises.append(np.array([int(each) // MODULUS for each in v], object))
        unflooded = phase(before, keys)
        assert np.abs(unflooded).max() * 2**20 < np.abs(v).max()
    top = 2**rule.chain.flood
    first, second = (np.array([int(e) / top for e in noise]) for noise in noises)
    assert stats.ks_2samp(first, second).pvalue > 1e-6
    for shares, noise in zip((first, second), noises, strict=True):
        assert stats.kstest(shares, "uniform").pvalue > 1e-6
        low = np.array([int(each) % 256 for each in noise])
        assert stats.chisquare(np.bincount(low, minlength=256)).pvalue > 1e-6


def test_the_second_polynomial_is_fresh_every_time(answers, keys, public, rule, tmp_path):
    """The same sums flooded twice share no residue to speak of, in either polynomial."""
    scheme = scheme_of(rule.chain)
    ops = Ciphertexts(scheme, keys.evaluation.library_keys, public.encryptor)
    first, second = (flood(answers[0][0], ops, scheme) for _ in range(2))
    assert (first == second).mean(axis=2).max() < 1e-3


def test_uniform_limbs_have_all_their_bits():
    limbs = uniform_limbs(20000, 69)
    assert [int(limb.max()).bit_length() for limb in limbs] == [13, 14, 14, 14, 14]
    for limb in limbs:
        counts = np.bincount((limb & np.uint64(255)).astype(int), minlength=256)
        assert stats.chisquare(counts).pvalue > 1e-6


@pytest.mark.parametrize(
    ("contributors", "classes", "bits"),
    [
        *((1, 2, 4), (2, 20, 8), (4, 5, 6), (10, 20, 8), (32, 20, 8), (128, 20, 8), (10, 20, 12)),
        *((129, 20, 8), (256, 20, 8)),
    ],
)
def test_every_modulus_is_secure_floods_enough_and_has_room(contributors, classes, bits):
    """The inequalities that the argument of `flooding` and `noise` needs, computed anew."""
    rule = fhe.choose_parameters(contributors, classes, bits)
    chain = rule.chain
    assert chain.bits <= BUDGET[rule.degree]
    assert all((p - 1) % (2 * rule.degree) == 0 for p in (*chain.primes(0), *chain.levels))
    assert contributors > 128 or all(p % MODULUS == 1 for p in chain.levels)
    shift = math.sqrt(rule.degree) * 2**chain.answer / MODULUS
    assert shift / 2**chain.flood <= 2**-DISTANCE
    room = math.log2(math.prod(chain.base)) - 1
    assert math.log2(2**chain.answer + MODULUS * 2.0**chain.flood) < room
    assert room - chain.answer >= 45


def test_a_modulus_that_is_too_small_is_noticed(rule):
    chain = rule.chain
    small = (2**32,) * len(chain.levels)
    with pytest.raises(TooMuchNoiseError, match="noise of 2"):
        bound_answer(
            rule.circuit,
            Noise(chain.degree, MODULUS, chain.base, small, chain.special, 2**22),
        )


def test_contributors_that_do_not_fit_the_smaller_degree_are_refused():
    with pytest.raises(fhe.InputError, match="degree 16384"):
        fhe.choose_parameters(10, 20, 8, degree=16384)
    assert fhe.choose_parameters(4, 20, 8).degree == 16384
    assert fhe.choose_parameters(5, 20, 8).degree == 32768


def test_a_rule_that_no_modulus_fits_is_refused_with_its_bits():
    with pytest.raises(fhe.InputError, match=r"129 contributors take 8\d\d bits .* allows 438 at"):
        fhe.choose_parameters(129, 2, 4, degree=16384)


@attrs.frozen(kw_only=True)
class Tailored(fhe.BatchedParameters):
    """A small rule with the primes that a rule of more than 128 contributors has."""

    @cached_property
    def chain(self):
        return _tailored(self._counted, self.degree)


def test_primes_that_multiply_the_slots_give_right_answers_within_the_bound(rule, tmp_path):
    """Every prime is another number modulo t, and the special one is small."""
    tailored = Tailored(**attrs.asdict(rule))
    chain = tailored.chain
    assert len({*chain.shrinks, 1}) == len(chain.levels) + 1
    assert chain.special < 2**25
    keys = fhe.generate_keys(tailored)
    codes = np.random.default_rng(4).integers(0, 16, (300, 3, 3))
    codes[::2] = np.random.default_rng(5).integers(14, 16, (150, 3, 3))
    sent = send(codes, fhe.make_public_key(keys))
    desk = Desk(keys.evaluation, fhe.make_public_key(keys), sent, tmp_path)
    for name in ROUNDS:
        Alone(desk).do(tasks_of(name, 0, tailored, 1), lambda: None)
    before = desk.answer(0)
    assert math.log2(largest(before, keys)) < chain.answer
    slots = desk.scheme.encoder.decode_uint64(keys.decryptor.decrypt(before))[:300]
    assert tailored.decode(slots.astype(np.int64)).tolist() == lowest_class(codes)
