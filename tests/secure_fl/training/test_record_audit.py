"""The attack on record-level sums: near the claim, not above it, and above where noise lacks."""

import pytest

from secure_fl.errors import InputError
from secure_fl.training.record_audit import audit_records

BOTH = pytest.mark.parametrize("method", ["kahm-record-private", "private-gradient"])
UNITS = pytest.mark.parametrize("adjacency", ["replace", "add-remove"])


@BOTH
@UNITS
def test_the_lower_bound_comes_near_the_claim_and_not_above(method, adjacency):
    found = audit_records(
        method=method, epsilon=1.0, delta=0.01, adjacency=adjacency, runs=150_000, confidence=0.999
    )
    assert found.passed
    # About 0.8 with a deviation of 0.03 from run to run.
    assert found.lower_bound > 0.6
    assert ("replaced" in found.unit) == (adjacency == "replace")


@BOTH
@UNITS
def test_noise_cut_by_a_fifth_is_caught(method, adjacency):
    found = audit_records(
        method=method, epsilon=1.0, delta=0.01, adjacency=adjacency, noise_share=0.8, runs=150_000
    )
    assert not found.passed
    assert "ABOVE THE CLAIM" in found.text()
    assert "0.8 of the noise" in found.mechanism


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"runs": 10}, "runs: found 10"),
        ({"confidence": 1.0}, "confidence"),
        ({"noise_share": 0.0}, "noise share"),
        ({"adjacency": "other"}, "adjacency: found 'other'"),
    ],
)
def test_arguments_out_of_range(options, message):
    with pytest.raises(InputError, match=message):
        audit_records(method="private-gradient", epsilon=1.0, delta=1e-5, **options)
