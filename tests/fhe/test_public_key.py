"""Contributions without the secret: right, fresh, as noisy as computed, opened by nobody else."""

import math
import os

import attrs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, chi2

import fhe
from fhe import lwe_layout, public_key, ring
from fhe.compiled import compiled_rule
from fhe.envelope import read_envelope, write_envelope
from fhe.errors import LibraryError
from fhe.frames import frames_of
from fhe.library import concrete_fhe
from fhe.lwe_layout import phases, secret_bits
from fhe.public_key import (
    PUBLIC_FILE,
    encrypt_digits,
    encrypt_zero,
    extract,
    hide_secret,
    load_public_key,
    make_public_key,
    save_public_key,
    to_integers,
)
from fhe.public_noise import (
    MAX_GROWTH,
    NOISE_FACTOR,
    check_failure,
    check_security,
    failure_growth,
    noise_variance,
    variance_of,
)


@pytest.fixture(scope="module")
def bits(keys, public):
    return secret_bits(keys.client, public.kind)


def answer(codes, keys, public):
    """The whole way: contributors with the public key, evaluator, querier."""
    sent = [
        fhe.contribute(codes[:, i], public, contributor=i, name=f"c{i}", federation="f", batch="b")
        for i in range(codes.shape[1])
    ]
    return fhe.read_answer(fhe.evaluate(sent, keys.evaluation, public), keys)


def reference_product(a, b):
    """Schoolbook, in Python integers."""
    n, total = len(a), [0] * len(a)
    for i, x in enumerate(a.tolist()):
        for j, y in enumerate(b.tolist()):
            sign = -1 if i + j >= n else 1
            total[(i + j) % n] += sign * x * y
    return [value % 2**64 for value in total]


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1))
def test_products_are_exact_modulo_two_to_the_64(seed):
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 2**64, 32, np.uint64)
    b = rng.integers(0, 2, 32).astype(np.uint64)
    assert ring.times_binary(a, b).tolist() == reference_product(a, b)


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.integers(1, 3))
def test_an_extracted_row_is_a_coefficient_of_the_product(seed, k):
    rng = np.random.default_rng(seed)
    mask = rng.integers(0, 2**64, (k, 16), np.uint64)
    secret = rng.integers(0, 2, (k, 16)).astype(np.uint64)
    products = [reference_product(mask[u], secret[u]) for u in range(k)]
    for j in range(16):
        row = ring.extraction_row(mask, j)
        found = sum(int(a) * int(s) for a, s in zip(row, secret.ravel(), strict=True)) % 2**64
        assert found == sum(product[j] for product in products) % 2**64


def test_answers_are_those_of_the_plain_rule(keys, public):
    codes = np.random.default_rng(3).integers(0, 64, (10, 3, 5))
    codes[0], codes[1] = 0, 63
    np.testing.assert_array_equal(answer(codes, keys, public), fhe.plain(codes, keys.parameters))


@pytest.mark.slow
@pytest.mark.parametrize("bits", [4, 8, 16])
@pytest.mark.parametrize("failure", [40, 64, 128])
def test_answers_are_right_at_every_width(bits, failure):
    rule = fhe.RuleParameters(
        contributors=2, classes=6, bits=bits, block=4, failure_exponent=failure
    )
    keys = fhe.generate_keys(rule)
    codes = np.random.default_rng(bits).integers(0, 2**bits, (8, 2, 6))
    found = answer(codes, keys, make_public_key(keys))
    np.testing.assert_array_equal(found, fhe.plain(codes, rule))


def test_every_digit_comes_back_over_several_ring_ciphertexts(public, bits):
    columns = public.parameters.columns
    queries = 2 * public.kind.degree // columns + 3
    digits = np.random.default_rng(4).integers(0, 5, (queries, columns))
    noise = math.sqrt(noise_variance(public.kind))
    rows = extract(encrypt_digits(digits, public), public, who="c0")
    lwe_layout.check_rows(rows, digits.ravel(), bits.ravel(), public.kind, 64 * noise)
    found = (phases(rows, bits.ravel()) + np.uint64(2 ** (public.kind.shift - 1))) >> np.uint64(
        public.kind.shift
    )
    np.testing.assert_array_equal(found.reshape(digits.shape), digits)


def noise_of(mask, body, secret):
    """c2 - <c1, s> of an encryption of 0."""
    total = body.copy()
    for each, row in zip(mask, secret, strict=True):
        total -= ring.times_binary(each, row)
    return ring.signed(total).astype(float)


def standard_errors(samples, expected):
    return (np.mean(samples) - expected) / (np.std(samples) / math.sqrt(len(samples)))


@pytest.mark.parametrize("k", [1, 2])
def test_noise_over_fresh_keys_has_the_stated_variance(public, k):
    """sigma^2 (k N + 1), as fhe/public_key.py says; small rings, to draw thousands of keys."""
    degree, deviation = 16, 1000.0
    squares = []
    for _ in range(4000):
        matrix = ring.expand(os.urandom(32), (k, k, degree))
        secret = ring.draw_binary((k, degree))
        vector = hide_secret(matrix, secret, deviation)
        squares.append(np.mean(noise_of(*encrypt_zero(matrix, vector, deviation), secret) ** 2))
    kind = attrs_like(
        public.kind, glwe_dimension=k, degree=degree, variance=(deviation / NOISE_FACTOR) ** 2
    )
    assert noise_variance(kind) == deviation**2 * (k * degree + 1)
    # The squares' own distribution is skewed: six standard errors are one failure in about 10^7.
    assert abs(standard_errors(squares, deviation**2 * (k * degree + 1))) < 6


def test_noise_of_one_key_has_the_variance_that_its_errors_give(public, bits):
    """At full size, with E known: E |<E, r>|^2 = |E|^2 / 4 + <E, 1/2 (1 + X + ...)>^2."""
    variance = variance_of(public.kind) * 2.0**128
    errors = key_errors(public, bits)
    fixed = sum(ring.times_binary(each, np.ones_like(each)) for each in errors)
    share = np.mean(ring.signed(fixed).astype(float) ** 2) / 4
    expected = share + np.sum(ring.signed(errors).astype(float) ** 2) / 4
    expected += variance * (bits.sum() + 1)
    made = [encrypt_zero(public.matrix, public.vector, variance**0.5) for _ in range(100)]
    squares = [np.mean(noise_of(*each, bits) ** 2) for each in made]
    assert abs(standard_errors(squares, expected)) < 6
    assert np.std(squares) / math.sqrt(len(squares)) < 0.1 * expected


def key_errors(public, bits):
    """E = B - A s."""
    errors = public.vector.copy()
    for v, row in enumerate(public.matrix):
        for each, secret in zip(row, bits, strict=True):
            errors[v] -= ring.times_binary(each, secret)
    return errors


def test_gaussian_draws_have_the_stated_deviation():
    values = ring.signed(ring.draw_rounded_gaussian(1000.0, (100_000,))).astype(float)
    low, high = chi2.ppf([1e-7, 1 - 1e-7], len(values)) / len(values) * 1e6
    assert low <= np.mean(values**2) <= high
    assert abs(values.mean()) < 5.5 * 1000 / math.sqrt(len(values))


def test_binary_draws_are_fair():
    ones = int(ring.draw_binary((100_000,)).sum())
    assert abs(ones - 50_000) < 5.5 * math.sqrt(25_000)


def test_the_same_digits_never_encrypt_to_the_same_words(public):
    digits = np.zeros((4, public.parameters.columns), np.int64)
    first, second = (encrypt_digits(digits, public).content for _ in range(2))
    a, b = (np.frombuffer(each, np.uint64) for each in (first, second))
    assert not np.any(a == b)


def test_two_public_keys_of_the_same_secret_differ(keys, public):
    assert make_public_key(keys).content[:1000] != public.content[:1000]


def test_the_public_file_holds_no_secret(keys, public, tmp_path):
    """No secret key of the set in it, as words, as bytes or as packed bits."""
    save_public_key(tmp_path, public)
    content = (tmp_path / PUBLIC_FILE).read_bytes()
    found = keys.client.keys._keyset.get_client_keys().get_secret_keys()
    assert len(found) >= 2
    for secret in found:
        words = np.frombuffer(secret.serialize()[71:], np.uint64).astype(np.uint8)
        for start in range(0, len(words) - 64, 64):
            part = words[start : start + 64]
            packed = [np.packbits(part, bitorder=order).tobytes() for order in ("big", "little")]
            for form in (part.astype(np.uint64).tobytes(), part.tobytes(), *packed):
                assert form not in content


def test_the_public_vector_is_not_the_secret_product_itself(public, bits):
    """B - A s is noise of the stated deviation: without it the key would give the secret away."""
    k, degree = bits.shape
    values = ring.signed(key_errors(public, bits)).astype(float).ravel()
    expected = variance_of(public.kind) * 2.0**128
    low, high = chi2.ppf([1e-7, 1 - 1e-7], k * degree) / (k * degree)
    assert low <= np.mean(values**2) / expected <= high


def test_a_contributor_keeps_nothing_that_opens_its_message(public):
    """A ciphertext is all that comes back, and neither it nor the key has a member to open it."""
    made = encrypt_digits(np.ones((2, public.parameters.columns), np.int64), public)
    assert set(vars(made)) == {"public", "shape", "content"}
    assert set(vars(public)) <= {
        *("parameters", "key", "content"),
        *("fingerprint", "kind", "matrix", "vector"),
    }


def test_only_the_queriers_secret_opens_a_message(public, bits, other_keys):
    """Guesses of a contributor: no secret, fresh keys, the public vector rounded to bits."""
    columns, shift = public.parameters.columns, np.uint64(public.kind.shift)
    digits = np.random.default_rng(6).integers(0, 5, (100, columns))
    rows = extract(encrypt_digits(digits, public), public, who="c0")

    def share_right(guess):
        found = (phases(rows, guess.ravel()) + (np.uint64(1) << shift - np.uint64(1))) >> shift
        return np.mean(found == digits.ravel())

    assert share_right(bits) == 1
    guesses = {
        "none": np.zeros_like(bits),
        "fresh": secret_bits(other_keys.client, public.kind),
        "public": public.vector >> np.uint64(63),
    }
    for guess in guesses.values():
        # 32 values of 5 bits: a phase that knows nothing is right once in 32.
        assert binom.interval(1 - 1e-9, digits.size, 1 / 32)[1] / digits.size >= share_right(guess)


def test_another_public_key_is_noticed_by_its_fingerprint(keys, public):
    other = make_public_key(keys)
    made = encrypt_digits(np.zeros((1, public.parameters.columns), np.int64), other)
    with pytest.raises(fhe.InputError, match="c1: under public key"):
        to_integers(made, public, who="c1")


def test_the_fingerprint_is_bound_to_the_evaluation_keys(public):
    other = public_key.PublicKey(public.parameters, "0" * 64, public.content)
    assert other.fingerprint != public.fingerprint


def test_the_public_key_comes_back_from_its_file(public, tmp_path):
    save_public_key(tmp_path, public)
    loaded = load_public_key(tmp_path)
    assert loaded == public
    assert loaded.fingerprint == public.fingerprint


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"public": "0" * 64}, "fingerprint"),
        ({"key": "0" * 64}, "fingerprint"),
        ({"key": 3}, "header members"),
        ({"more": 1}, "header members"),
    ],
)
def test_an_edited_public_key_file_is_refused(public, tmp_path, change, message):
    save_public_key(tmp_path, public)
    envelope = read_envelope(tmp_path / PUBLIC_FILE)
    header = {**envelope.header, **change}
    write_envelope(tmp_path / PUBLIC_FILE, envelope.kind, header, envelope.payload)
    with pytest.raises(fhe.FormatError, match=message):
        load_public_key(tmp_path)


@pytest.mark.parametrize("cut", [0, 8, -8])
def test_ciphertexts_of_another_length_are_refused_by_name(public, cut):
    made = encrypt_digits(np.zeros((1, public.parameters.columns), np.int64), public)
    broken = public_key.RingCiphertexts(made.public, made.shape, made.content[:cut])
    with pytest.raises(fhe.FormatError, match="c2"):
        extract(broken, public, who="c2")


@pytest.mark.parametrize("digits", [np.full((1, 4), 5), np.full((1, 4), -1), np.zeros((1, 3))])
def test_digits_that_do_not_fit_are_refused(public, digits):
    assert public.parameters.columns == 4
    with pytest.raises(fhe.InputError, match="digits"):
        encrypt_digits(digits.astype(np.int64), public)


@pytest.mark.parametrize("changed", ["message bit", "word order", "secret order", "secret length"])
def test_a_changed_layout_is_refused(keys, public, monkeypatch, changed):
    """The check sees real ciphertexts; what is changed is where it believes things to be."""
    kind, function, shape = public.kind, "minimum_4", (4, 4)
    assert (
        lwe_layout.check_layout(keys.client, kind, function, shape)
        == frames_of(public.parameters).operands[4]
    )
    if changed == "message bit":
        kind = attrs_like(kind, width=kind.width + 1)
    elif changed == "word order":
        monkeypatch.setattr(lwe_layout, "_HEAD", 72)
    elif changed == "secret order":
        real = lwe_layout.secret_bits
        monkeypatch.setattr(lwe_layout, "secret_bits", lambda *a: real(*a)[:, ::-1])
    else:
        monkeypatch.setattr(lwe_layout, "_SECRET_HEAD", 79)
    with pytest.raises(LibraryError, match="concrete-python"):
        lwe_layout.check_layout(keys.client, kind, function, shape)


def attrs_like(kind, **changes):
    return lwe_layout.InputType(**{**vars(kind), **changes})


def test_seeded_inputs_are_refused():
    ends = [(np.zeros((1, 2), np.int64),), (np.full((1, 2), 3),)]
    library = concrete_fhe()
    compiler = library.Compiler(lambda a: a + a, {"a": "encrypted"})
    circuit = compiler.compile(ends, library.Configuration(compress_input_ciphertexts=True))
    with pytest.raises(LibraryError, match="compressed"):
        lwe_layout.input_type(circuit.client.specs)


def test_less_noise_than_the_curve_is_refused(public):
    check_security(public.kind)
    with pytest.raises(LibraryError, match="128 bits"):
        check_security(attrs_like(public.kind, variance=public.kind.variance / 1.01))
    with pytest.raises(LibraryError, match="128 bits"):
        check_security(attrs_like(public.kind, degree=public.kind.degree // 2))


def test_contributors_take_more_noise_than_public_parameters_at_the_dimension():
    """TFHE-rs 0.11 to 1.4, Gaussian parameters of k N = 2048: 2.845267479601915e-15."""
    kind = lwe_layout.InputType(0, 1, 2048, 8.442253112932959e-31, 4)
    assert math.sqrt(variance_of(kind)) >= 2.845267479601915e-15
    # Their curve for 132 bits, core_crypto/commons/noise_formulas/secure_noise.rs.
    assert math.log2(variance_of(kind)) >= -0.04978291316526609 * 2048 + 5.31469187675068


@pytest.mark.parametrize("failure", [40, 64, 128])
def test_the_added_noise_leaves_the_failure_probability_alone(parameters, failure):
    rule = attrs.evolve(parameters, failure_exponent=failure)
    compiled = compiled_rule(rule)
    kind = lwe_layout.input_type(compiled.specs)
    assert failure_growth(compiled, kind) < MAX_GROWTH
    assert rule.lookups * compiled.failure <= 2.0**-failure * (1 + 1e-9)
    with pytest.raises(LibraryError, match="raises a look-up's failure"):
        check_failure(compiled, attrs_like(kind, variance=1e-14))
