"""The cache of compiled rules: found again, never somebody else's, mended where damaged."""

import stat

import attrs
import numpy as np
import pytest

import fhe
from fhe.compiled import CacheWarning, cache_folder, compiled_rule
from fhe.errors import InputError

load = compiled_rule.__wrapped__


@pytest.fixture
def rule(tmp_path, monkeypatch):
    monkeypatch.setenv("SECUREFL_CACHE", str(tmp_path))
    return fhe.RuleParameters(contributors=2, classes=2, bits=4, block=2, failure_exponent=40)


def test_a_rule_is_compiled_once_and_then_found(rule, monkeypatch):
    first = load(rule)
    (entry,) = cache_folder().iterdir()
    monkeypatch.setattr("fhe.compiled.compile_rule", lambda *_: pytest.fail("compiled again"))
    second = load(rule)
    assert first.specs.serialize() == second.specs.serialize()
    assert (first.failure, first.complexity) == (second.failure, second.complexity)
    assert stat.S_IMODE(cache_folder().stat().st_mode) == 0o700
    assert stat.S_IMODE(entry.stat().st_mode) == 0o600


def test_a_rule_from_the_cache_answers_on_ciphertexts(parameters, keys, public, monkeypatch):
    compiled_rule.cache_clear()
    monkeypatch.setattr("fhe.compiled.compile_rule", lambda *_: pytest.fail("compiled again"))
    codes = np.random.default_rng(0).integers(0, 64, (4, 3, 5))
    sent = [
        fhe.contribute(codes[:, i], public, contributor=i, name=f"c{i}", federation="", batch="")
        for i in range(3)
    ]
    found = fhe.read_answer(fhe.evaluate(sent, keys.evaluation, public), keys)
    np.testing.assert_array_equal(found, fhe.plain(codes, parameters))


def test_other_parameters_are_another_entry(rule):
    load(rule)
    load(attrs.evolve(rule, failure_exponent=64))
    assert len(list(cache_folder().iterdir())) == 2


@pytest.mark.parametrize("mode", [0o755, 0o720, 0o707])
def test_a_cache_that_others_can_reach_is_refused(rule, mode):
    """Whoever can write there decides what this process executes."""
    load(rule)
    cache_folder().chmod(mode)
    with pytest.raises(InputError, match=f"mode {mode:04o}.*expected 0700"):
        load(rule)


def test_a_damaged_entry_is_compiled_again_with_a_warning(rule):
    load(rule)
    (entry,) = cache_folder().iterdir()
    entry.write_bytes(entry.read_bytes()[:-40])
    with pytest.warns(CacheWarning, match="compiling again"):
        load(rule)
    load(rule)


def test_a_cache_that_cannot_be_made_is_said_and_does_not_stop(rule, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SECUREFL_CACHE", str(tmp_path / "file"))
    with pytest.warns(CacheWarning, match="is not kept"):
        assert load(rule).failure > 0
