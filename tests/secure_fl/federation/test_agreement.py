"""What clients must have been told alike is one digest, and every part of it counts."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dp import Ledger
from secure_fl.federation import (
    ClientPrivacy,
    Federation,
    FederationError,
    ProtocolError,
    SecureAggregation,
    wire,
)
from secure_fl.federation import checkpoint as checkpoints
from secure_fl.federation.agreement import CALL, agreement
from secure_fl.federation.secagg import messages as m
from tests.secure_fl.federation import steps
from tests.secure_fl.federation.conftest import make_clients
from tests.secure_fl.federation.protocol import Party
from tests.secure_fl.federation.test_wire import VALUES
from tests.secure_fl.shared import one_line

TOLD = {"step": "module:step", "broadcast": (np.ones(3), 0.5), "key": (0, 1, 2), "epoch": "e"}
CODING = {"clip": 1.0, "clients": 3, "bits": 64, "outside": "clip", "weighted": False}


@settings(max_examples=150)
@given(VALUES)
def test_a_fingerprint_is_the_same_before_and_after_a_journey(value: Any) -> None:
    assert wire.fingerprint(wire.decode(wire.encode(value))) == wire.fingerprint(value)


@settings(max_examples=150)
@given(VALUES, VALUES)
def test_values_have_one_fingerprint_where_their_bytes_are_the_same(a: Any, b: Any) -> None:
    """The encoding gives back what it was given, so equal bytes are equal values."""
    assert (wire.fingerprint(a) == wire.fingerprint(b)) == (wire.encode(a) == wire.encode(b))


@settings(max_examples=60)
@given(st.sampled_from([*CALL, "coding", "federation"]), VALUES)
def test_every_part_of_what_is_told_counts(part: str, value: Any) -> None:
    told: dict[str, Any] = {**TOLD, "coding": CODING, "federation": None}
    changed = {**told, part: value if part != "coding" else {"clip": value}}
    assume(wire.encode(changed[part]) != wire.encode(told[part]))
    found = [agreement(each, each["coding"], each["federation"]) for each in (told, changed)]
    assert found[0] != found[1]


@pytest.mark.parametrize("part", CALL)
def test_nothing_may_be_missing(part: str) -> None:
    with pytest.raises(KeyError):
        agreement({name: each for name, each in TOLD.items() if name != part}, CODING)


def contexts(weights: Any, **options: Any) -> set[bytes]:
    """Of the messages of one sum in this process."""
    seen: list[bytes] = []
    option = SecureAggregation(observe=lambda sender, to, message: seen.append(message), **options)
    fed = Federation(make_clients(), aggregation=option)
    fed._engine.stages = fed._engine.make_stages(bytes(16), {})
    fed.sum(steps.gradient, steps.Ridge(0.1), weights)
    kinds = (m.ADVERTISE, m.ADVERTISED, m.SHARE, m.SHARED, m.MASK, m.MASKED, m.CONFIRM)
    kinds = (*kinds, m.CONFIRMED, m.UNMASK)
    return {
        wire.decode(message, kind=kind)["context"].tobytes()
        for message in seen
        for kind in kinds
        if kind.encode() + b'"' in message
    }


def test_sums_in_one_process_are_bound_to_what_is_asked_as_well() -> None:
    """One session, round and call: broadcast and coding alone differ."""
    weights = np.linspace(-1, 1, 4)
    (first,), (same,) = contexts(weights), contexts(weights.copy())
    (moved,), (coarse,) = contexts(weights + 1e-12), contexts(weights, clip=2.0**19)
    assert first == same
    assert len({first, moved, coarse}) == 3


@pytest.mark.parametrize("version", [1, 2, 4])
def test_a_message_of_another_version_is_refused_with_both_named(version: int) -> None:
    party = Party(3)
    message = party.clients[party.names[0]].advertise()
    fields = {**wire.decode(message, kind=m.ADVERTISE), "protocol": version}
    if version == 1:
        del fields["protocol"]
    with pytest.raises(ProtocolError) as caught:
        m.unpack(m.ADVERTISE, party.parameters.context, wire.encode(fields, kind=m.ADVERTISE), "x")
    assert f"version {version} of secure sums, this side version 3" in one_line(caught.value)


def test_a_private_masked_run_of_the_version_before_is_refused_with_both_named(
    tmp_path: Path,
) -> None:
    """Its interrupted sum would be repeated under parts of another size."""
    books = Ledger.create(tmp_path / "books", "all")

    def fresh(**options: Any) -> Federation:
        return Federation(make_clients(), privacy=ClientPrivacy(1.0, 2.0, 9, books), **options)

    for options in ({"aggregation": SecureAggregation()}, {}):
        kept = tmp_path / "kept"
        checkpoints.save(kept, fresh(**options).snapshot(None))
        old = checkpoints.load(kept)
        setting = dict(old.setting)
        for new in ("protocol", "threshold"):
            setting.pop(new, None)
        values = {name: getattr(old, name) for name in old.__slots__ if not name.startswith("_")}
        checkpoints.save(kept, type(old)(**{**values, "setting": setting}))
        if not options:
            fresh(**options).resume(kept)
            continue
        with pytest.raises(FederationError) as caught:
            fresh(**options).resume(kept)
        assert "version 1 of secure sums, expected 2" in one_line(caught.value)
