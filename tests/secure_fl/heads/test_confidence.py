"""None of these: a threshold that is one more public contribution, calibrated on public records."""

import attrs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import fhe
from secure_fl.errors import InputError
from secure_fl.heads.codes import (
    all_codes,
    batched_parameters,
    rule_parameters,
    threshold_code,
    threshold_codes,
)
from secure_fl.heads.confidence import (
    Held,
    decide,
    fitted_temperature,
    held_out,
    probabilities,
    set_threshold,
)
from secure_fl.heads.fitting import train_heads
from secure_fl.heads.head import load_head, save_head, train_head
from secure_fl.heads.manifest import load_manifest, make_manifest, save_manifest
from secure_fl.heads.run_folder import all_measures

BLOBS = np.array([[2, 2], [6, 2], [2, 6]], np.float32)


def manifest(**changes):
    fields = {
        "classes": ("x", "y", "z"),
        "clients": ("a", "b"),
        "n_features": 2,
        "batch_size": 20,
        "bits": 6,
    }
    return make_manifest(**{**fields, **changes})


def blobs(rng, count):
    y = np.arange(count) % 3
    return (BLOBS[y] + rng.normal(0, 0.3, (count, 2))).astype(np.float32), y


@pytest.fixture(scope="module")
def heads():
    rng = np.random.default_rng(0)
    return train_heads([("a", *blobs(rng, 60)), ("b", *blobs(rng, 60))], manifest())


@given(
    codes=hnp.arrays(np.int64, (5, 2, 3), elements=st.integers(0, 63)),
    threshold=st.floats(0.01, 0.98),
    rule=st.sampled_from(["tournament", "paper"]),
    batched=st.booleans(),
)
@settings(max_examples=60)
def test_the_encrypted_rule_says_unknown_where_all_codes_are_above_the_threshold(
    codes, threshold, rule, batched
):
    """The plain rule on packed integers is the oracle of the circuits; here it meets the words."""
    facts = manifest(unknown_above=threshold, rule=rule)
    padded = np.pad(codes, ((0, 0), (0, 0), (0, 1)), constant_values=63)
    sent = np.concatenate([padded, threshold_codes(5, facts)[:, None]], axis=1)
    tfhe = rule_parameters(facts, failure_exponent=40, block=1)
    found = fhe.plain(sent, batched_parameters(facts) if batched else tfhe)
    smallest = codes.min(axis=1)
    expected = np.where(
        smallest.min(axis=1) > threshold_code(facts), 3, np.argmin(smallest, axis=1)
    )
    assert found.tolist() == expected.tolist()


def test_far_queries_are_unknown_in_the_clear_and_by_codes(heads):
    facts = manifest(unknown_above=0.3)
    queries = np.concatenate([BLOBS, [[4, 4], [9, 9], [-5, 3]]]).astype(np.float32)
    exact = decide(all_measures(heads, queries, facts), facts)
    assert exact.tolist() == [0, 1, 2, 3, 3, 3]
    codes = all_codes(heads, queries, facts)
    assert codes.shape == (6, 3, 4)
    parameters = rule_parameters(facts, failure_exponent=40, block=1)
    assert fhe.plain(codes, parameters).tolist() == exact.tolist()
    without = manifest()
    assert decide(all_measures(heads, queries, without), without).max() < 3


def test_a_threshold_is_calibrated_on_held_out_records():
    """An answered share is a count: half of the records lie at or below the median."""
    X, y = blobs(np.random.default_rng(1), 150)
    held = held_out(X, y, manifest(), np.random.default_rng(2))
    assert held.at(held.threshold_for_share(0.5)).answered == pytest.approx(0.5, abs=0.01)
    assert held.at(held.threshold_for_share(1.0)).answered == 1.0
    curve = held.curve()
    assert [p.answered for p in curve] == sorted(p.answered for p in curve)
    assert [p.strangers for p in curve] == sorted((p.strangers for p in curve), reverse=True)
    far = held.at(held.threshold_for_share(0.95))
    assert (far.accuracy, far.strangers) == (1.0, pytest.approx(1.0, abs=0.02))


def test_measures_of_a_record_do_not_come_from_heads_that_hold_it():
    """With one record a machine, a held record's measure would be 0."""
    X, y = blobs(np.random.default_rng(1), 90)
    held = held_out(X, y, manifest(batch_size=1), np.random.default_rng(2))
    own = held.smallest[np.arange(90), y]
    assert (own > 0).all()
    head = train_head("a", X, y, manifest(batch_size=1), np.random.default_rng(0))
    assert head.measures(X, manifest())[np.arange(90), y].max() == 0


def test_a_threshold_for_an_accuracy_is_the_largest_that_keeps_it():
    best = np.linspace(0.1, 0.9, 100)
    y = (np.arange(100) >= 80).astype(np.int64)
    held = Held(np.stack([best, best + 0.05], axis=1), y)
    # Right up to place 80; 0.9 of the first 88 is the last that is right so often.
    assert held.threshold_for_accuracy(1.0) == best[79]
    assert held.threshold_for_accuracy(0.9) == best[87]
    assert held.at(best[87]).accuracy == pytest.approx(80 / 88)
    with pytest.raises(InputError, match="no threshold answers 30 of the 100 public records"):
        Held(held.smallest, 1 - y).threshold_for_accuracy(0.9)
    with pytest.raises(InputError, match="59 public records, at least 60 are needed"):
        held_out(np.zeros((59, 2)), np.zeros(59, int), manifest(), np.random.default_rng(0))


def test_the_temperature_is_that_of_the_data():
    """Labels drawn from the probabilities of a temperature give it back."""
    rng = np.random.default_rng(0)
    smallest = rng.uniform(0, 1, (20_000, 4))
    chances = probabilities(smallest, 0.2)
    np.testing.assert_allclose(chances.sum(axis=1), 1)
    y = (chances.cumsum(axis=1) < rng.uniform(size=(20_000, 1))).sum(axis=1)
    assert fitted_temperature(smallest, y) == pytest.approx(0.2, rel=0.05)


def test_a_threshold_changes_the_federation_and_not_its_heads(tmp_path, heads):
    before = manifest()
    after = set_threshold(before, 0.3, 0.1)
    assert after.fingerprint != before.fingerprint
    assert after.heads_fingerprint == before.heads_fingerprint
    save_head(tmp_path, heads[0], before)
    save_manifest(tmp_path, after)
    assert load_manifest(tmp_path) == after
    assert load_head(tmp_path, "a", after).client == "a"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"unknown_above": 1.0}, "'unknown_above' is 1.0, expected above 0.0 and below 1.0"),
        ({"unknown_above": 0.2, "low": 0.3}, "expected above 0.3 and below 1.0"),
        ({"unknown_above": float("nan")}, "'unknown_above' must be finite"),
        ({"unknown_above": True}, "'unknown_above' must be a number, found bool"),
        ({"temperature": -1.0}, "'temperature' must be above 0"),
        ({"unknown_above": 0.2, "classes": ("x", "unknown")}, "is called 'unknown' already"),
        (
            {
                "unknown_above": 0.2,
                "members": [(n, f"{i}" * 128) for i, n in enumerate("ab")]
                + [("querier", "2" * 128), ("evaluator", "3" * 128)],
            },
            "the service over a network does not offer it",
        ),
    ],
)
def test_a_threshold_that_makes_no_sense_is_refused(changes, told):
    with pytest.raises(InputError) as caught:
        manifest(**changes)
    assert told in str(caught.value)


def test_a_threshold_with_the_largest_code_is_refused():
    with pytest.raises(InputError, match="has the largest code of 6 bits, above which nothing is"):
        set_threshold(manifest(), 0.999, 0.1)
    with pytest.raises(InputError, match="has no threshold; set one with securefl data calibrate"):
        threshold_codes(1, manifest())
    assert attrs.evolve(manifest(), unknown_above=0.5).answers == ("x", "y", "z", "unknown")
