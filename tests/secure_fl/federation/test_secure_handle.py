"""The handle with secure aggregation: the same sums to the quantisation, and nothing else."""

import numpy as np
import pytest

from secure_fl.federation import (
    Federation,
    FederationError,
    FixedNumber,
    FixedProbability,
    PrivacyError,
    QuorumError,
    ScriptedDropOuts,
    SecureAggregation,
    Stage,
)
from tests.secure_fl.federation import steps
from tests.secure_fl.federation.conftest import make_clients


def secure(n: int = 5, **options) -> Federation:
    aggregation = options.pop("aggregation", SecureAggregation())
    return Federation(make_clients(n), aggregation=aggregation, **options)


def test_the_secure_sum_is_the_plain_sum_of_quantised_updates():
    fed, clip = secure(), 64.0
    fed = secure(aggregation=SecureAggregation(clip=clip))
    weights = np.arange(4.0)
    found = fed.sum(steps.gradient, steps.Ridge(0.5), weights)
    step = clip / 2 ** (63 - 3)  # 5 clients leave 2^60 of 2^63, more than a double's 52 bits
    step = max(step, clip / 2**52)
    total = sum(
        np.rint(np.clip(steps.gradient(client, steps.Ridge(0.5), weights), -clip, clip) / step)
        for client in make_clients(5)
    )
    assert np.array_equal(found, total * step)


def test_structures_and_types_are_kept():
    found, plain = secure().sum(steps.statistics), Federation(make_clients(5)).sum(steps.statistics)
    np.testing.assert_allclose(found["moment"], plain["moment"], atol=5 * 2.0**-27)
    assert found["count"].dtype == np.int64
    assert found["count"].tolist() == plain["count"].tolist()
    assert found["pair"][0].dtype == np.float32
    assert found["pair"][1][0].shape == ()


def test_the_secure_mean_is_the_weighted_mean():
    found, plain = secure().mean(steps.drawn), Federation(make_clients(5)).mean(steps.drawn)
    np.testing.assert_allclose(found, plain, atol=1e-7)
    assert secure().weight() == sum(len(client) for client in make_clients(5))


def test_a_mean_stays_within_the_clip_whatever_the_weights():
    fed = secure(aggregation=SecureAggregation(clip=2.0, max_weight=100.0))
    assert fed.mean(steps.constant, np.array([1.5])).tolist() == pytest.approx([1.5], abs=1e-12)
    assert fed.outside == {}
    with pytest.raises(FederationError, match="max_weight: found 2, a client weighs 9"):
        secure(aggregation=SecureAggregation(max_weight=2.0))


@pytest.mark.parametrize("stage", list(Stage))
def test_drop_outs_by_stage(stage: Stage):
    fed = secure(drop_outs=ScriptedDropOuts({"b": stage}))
    kept = 5 if stage == Stage.UNMASK else 4
    assert fed.sum(steps.constant, np.ones(2)).tolist() == [kept] * 2
    assert ("b" in fed.survivors) == (stage == Stage.UNMASK)


def test_an_update_that_is_not_finite_counts_as_a_drop_out():
    fed = secure()
    assert fed.sum(steps.poisoned, ("b",), np.nan).tolist() == [4.0, 8.0]
    assert fed.refused == ("b",)
    with pytest.raises(QuorumError):
        fed.sum(steps.poisoned, ("a", "b"), np.nan)


def test_the_default_threshold_is_two_thirds():
    lost = ScriptedDropOuts({"a": Stage.MASK, "b": Stage.MASK})
    with pytest.raises(QuorumError, match="threshold is 4"):
        secure(drop_outs=lost).sum(steps.drawn)
    secure(drop_outs=lost, threshold=3).sum(steps.drawn)


def test_the_threshold_must_be_above_half():
    with pytest.raises(FederationError, match="found 2, secure aggregation needs it above half"):
        secure(threshold=2)
    with pytest.raises(FederationError, match="above half"):
        secure(10, threshold=3, participation=FixedNumber(6))


def test_a_round_of_one_or_none_is_refused():
    with pytest.raises(FederationError, match="1 clients take part"):
        secure(1).sum(steps.drawn)
    with pytest.raises(QuorumError, match="0 clients take part"):
        secure(participation=FixedProbability(1e-12)).sum(steps.drawn)
    with pytest.raises(FederationError, match="1 clients take part"):
        secure().sum(steps.drawn, over=["a"])


def test_nothing_of_a_single_client_is_to_be_had():
    with pytest.raises(PrivacyError, match="gather: drawn would show the server"):
        secure().gather(steps.drawn)
    with pytest.raises(PrivacyError, match="positions tell on the client"):
        secure().sum(steps.sparse, 9)


def test_what_is_outside_the_clip_is_counted_or_an_error():
    fed = secure(aggregation=SecureAggregation(clip=1.0))
    assert fed.sum(steps.constant, np.array([0.5, 3.0])).tolist() == [2.5, 5.0]
    assert fed.outside == dict.fromkeys("abcde", 1)
    fed = secure(aggregation=SecureAggregation(clip=1.0, outside="error"))
    with pytest.raises(FederationError, match="lie outside the clip"):
        fed.sum(steps.constant, np.array([0.5, 3.0]))


def test_the_meter_counts_the_protocols_messages():
    messages: list[tuple[str, str, int]] = []

    def observe(sender: str, receiver: str, message: bytes) -> None:
        messages.append((sender, receiver, len(message)))

    fed = secure(aggregation=SecureAggregation(observe=observe))
    fed.sum(steps.drawn)
    down = sum(size for _, receiver, size in messages if receiver == "a")
    up = sum(size for sender, _, size in messages if sender == "a")
    plain = Federation(make_clients(5))
    plain.sum(steps.drawn)
    request = plain.meter.of_round("a").bytes_down
    traffic = fed.meter.of_round("a")
    assert (traffic.bytes_down, traffic.bytes_up) == (down + request, up)
    assert traffic.floats_up == 3


@pytest.mark.parametrize("bits", [32, 64])
def test_rings_and_both_moduli(bits: int):
    aggregation = SecureAggregation(clip=8.0, bits=bits, degree=4)
    fed = secure(9, aggregation=aggregation, drop_outs=ScriptedDropOuts({"c": Stage.MASK}))
    found = fed.sum(steps.constant, np.array([1.0, -2.5]))
    assert found.tolist() == [8.0, -20.0]


def test_a_new_run_has_a_new_name():
    seen: list[bytes] = []

    def observe(sender: str, receiver: str, message: bytes) -> None:
        if not sender and len(seen) < 2:
            seen.append(message)

    for _ in range(2):
        secure(aggregation=SecureAggregation(observe=observe)).sum(steps.drawn)
    assert seen[0] != seen[1]


def test_the_pipeline_says_what_is_on():
    assert "mask" in secure().pipeline
    assert "mask" not in Federation(make_clients(2)).pipeline
