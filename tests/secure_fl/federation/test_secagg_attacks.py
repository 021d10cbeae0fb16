"""What a server or a client that cheats can get out of an honest client: nothing."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from secure_fl.federation import ProtocolError, QuorumError, wire
from secure_fl.federation.secagg import Identity, Member, ProtocolClient
from secure_fl.federation.secagg import messages as m
from tests.secure_fl.federation.protocol import Party
from tests.secure_fl.shared import one_line


def edited(kind: str, message: bytes, change: Callable[[dict[str, Any]], None]) -> bytes:
    """A message with its fields changed; whoever passes it on can do that."""
    fields = wire.decode(message, kind=kind)
    fields = {
        key: value.copy() if isinstance(value, np.ndarray) else value
        for key, value in fields.items()
    }
    change(fields)
    return wire.encode(fields, kind=kind)


# -------------------------------------------------------------------------------- the server cheats


def swapped(field: str, rows: slice) -> Callable[[dict[str, Any]], None]:
    """Puts keys of the server in place of clients' keys."""

    def change(fields: dict[str, Any]) -> None:
        size = len(fields[field][rows])
        own = [X25519PrivateKey.generate().public_key().public_bytes_raw() for _ in range(size)]
        fields[field][rows] = m.blobs(own, 32)

    return change


def test_a_server_cannot_put_itself_between_two_clients():
    """It replaces a session key by its own; the signature of the key's owner is missing."""
    party = Party(4)
    replies = party.advertise()
    name = party.names[0]
    with pytest.raises(ProtocolError, match="signature does not fit"):
        party.clients[name].share(
            edited(m.ADVERTISED, replies[name], swapped("session_keys", slice(1, 2)))
        )


def test_a_server_that_swaps_mask_keys_gets_no_masked_vector():
    """The neighbours' seals do not open for who was told other mask keys than they have."""
    party = Party(4)
    replies = party.advertise()
    name = party.names[0]
    replies[name] = edited(m.ADVERTISED, replies[name], swapped("mask_keys", slice(None)))
    shared = party.share(replies)
    with pytest.raises(QuorumError, match="1 neighbours with good shares"):
        party.clients[name].mask(shared[name], party.vectors[name])
    # The others notice too: what this client sealed names keys that are not theirs.
    other = party.names[1]
    party.clients[other].mask(shared[other], party.vectors[other])
    assert party.clients[other]._shares.held[name] is None


def test_a_server_cannot_invent_clients():
    """A list with strangers would make the threshold count for less."""
    party = Party(4)
    replies = party.advertise()
    name = party.names[0]

    def invent(fields: dict[str, Any]) -> None:
        fields["names"] = [*fields["names"], "stranger"]

    with pytest.raises(ProtocolError, match="not asked"):
        party.clients[name].share(edited(m.ADVERTISED, replies[name], invent))


def test_a_server_cannot_ask_for_both_shares_by_two_lists():
    """First that all survived (self masks), then that one was lost (its pair key)."""
    party = Party(4)
    replies = party.mask(party.share(party.advertise()))
    name = party.names[0]
    confirmed = party.confirm(replies)
    opened = wire.decode(party.clients[name].unmask(confirmed[name]), kind=m.UNMASK)
    assert set(opened["alive"]) == set(party.names)
    assert opened["lost"] == []

    def lose(fields: dict[str, Any]) -> None:
        fields["names"] = [n for n in fields["names"] if n != party.names[3]]

    for again in (
        lambda: party.clients[name].confirm(edited(m.MASKED, replies[name], lose)),
        lambda: party.clients[name].unmask(confirmed[name]),
    ):
        with pytest.raises(ProtocolError, match="out of order or again"):
            again()


def told_different_lists(party: Party) -> dict[str, bytes]:
    """The first two of four clients are told that the last was lost; what they then hear."""
    replies = party.mask(party.share(party.advertise()))
    for place, name in enumerate(party.names):
        reply = replies[name]
        if place < 2:
            reply = edited(m.MASKED, reply, lambda fields: fields["names"].pop())
        party.server.receive(name, party.clients[name].confirm(reply))
    return party.server.close_step()


def test_a_server_cannot_pass_on_confirmations_of_another_list():
    party = Party(4)
    confirmed = told_different_lists(party)
    with pytest.raises(ProtocolError, match="no surviving neighbour"):
        party.clients[party.names[0]].unmask(confirmed[party.names[0]])
    with pytest.raises(ProtocolError, match="confirmed another list of survivors"):
        party.clients[party.names[3]].unmask(confirmed[party.names[3]])


@pytest.mark.parametrize(("place", "same_list"), [(0, slice(0, 1)), (3, slice(2, 3))])
def test_neither_of_two_lists_reaches_the_threshold(place: int, same_list: slice):
    """The threshold is above half of the holders, and each of them confirms one list."""
    party = Party(4)
    confirmed = told_different_lists(party)

    def keep(fields: dict[str, Any]) -> None:
        fields["names"] = fields["names"][same_list]
        fields["confirmations"] = fields["confirmations"][same_list]

    name = party.names[place]
    with pytest.raises(QuorumError, match="2 confirmations are left"):
        party.clients[name].unmask(edited(m.CONFIRMED, confirmed[name], keep))


def test_without_enough_confirmations_of_its_list_a_client_opens_nothing():
    party = Party(6)
    confirmed = party.confirm(party.mask(party.share(party.advertise())))
    name = party.names[0]

    def thin(fields: dict[str, Any]) -> None:
        fields["names"] = fields["names"][:2]
        fields["confirmations"] = fields["confirmations"][:2]

    with pytest.raises(QuorumError, match="3 confirmations are left"):
        party.clients[name].unmask(edited(m.CONFIRMED, confirmed[name], thin))


def test_a_share_goes_to_one_kind_only_for_every_client():
    """Of every holder's opened shares each owner gets exactly one kind, by the survivors' list."""
    party = Party(6)
    lost = party.names[5]
    replies = party.confirm(party.mask(party.share(party.advertise()), without=(lost,)))
    for name, reply in replies.items():
        opened = wire.decode(party.clients[name].unmask(reply), kind=m.UNMASK)
        assert set(opened["alive"]) == set(party.names[:5])
        assert opened["lost"] == [lost]


def test_a_survivor_that_never_shared_is_refused():
    party = Party(5)
    replies = party.advertise()
    silent = party.names[4]
    del replies[silent]
    masked = party.mask(party.share(replies))

    def revive(fields: dict[str, Any]) -> None:
        fields["names"] = [*fields["names"], silent]

    with pytest.raises(ProtocolError, match="a survivor never sent its shares"):
        party.clients[party.names[0]].confirm(edited(m.MASKED, masked[party.names[0]], revive))


def test_too_small_a_list_of_survivors_is_refused():
    party = Party(6)
    masked = party.mask(party.share(party.advertise()))
    name = party.names[0]

    def shrink(fields: dict[str, Any]) -> None:
        fields["names"] = fields["names"][:3]

    with pytest.raises(QuorumError, match="3 clients are left"):
        party.clients[name].confirm(edited(m.MASKED, masked[name], shrink))


@pytest.mark.parametrize("change", [{"round": 1}, {"call": 1}, {"session": bytes(16)}])
def test_messages_of_another_round_are_not_used(change: dict[str, Any]):
    """Replay: the same clients and identities, one round, call or session later."""
    old = Party(4)
    recorded = [old.advertise()]
    for go_on in (old.share, old.mask, old.confirm):
        recorded.append(go_on(recorded[-1]))
    for step, replay in enumerate(recorded):
        new = Party(4, identities=old.identities, **change)
        replies = new.advertise()
        for go_on in (new.share, new.mask, new.confirm)[:step]:
            replies = go_on(replies)
        client = new.clients[new.names[0]]
        answer: list[Callable[[bytes], bytes]] = [
            client.share,
            lambda reply, new=new, client=client: client.mask(reply, new.vectors[client.name]),
            client.confirm,
            client.unmask,
        ]
        with pytest.raises(ProtocolError, match="another session, round or call"):
            answer[step](replay[client.name])


def test_replayed_mask_keys_are_not_used_even_with_their_context_renewed():
    """The same session one round later, with the mask keys of the round before passed on."""
    old = Party(3)
    replay = wire.decode(old.advertise()[old.names[0]], kind=m.ADVERTISED)
    new = Party(3, identities=old.identities, members=old.members, round=1)
    replies = new.advertise()
    name = new.names[0]

    def renew(fields: dict[str, Any]) -> None:
        fields["mask_keys"] = replay["mask_keys"]

    replies[name] = edited(m.ADVERTISED, replies[name], renew)
    shared = new.share(replies)
    with pytest.raises(QuorumError, match="1 neighbours with good shares"):
        new.clients[name].mask(shared[name], new.vectors[name])


def test_a_confirmation_of_the_round_before_does_not_count():
    old = Party(4)
    said = old.confirm(old.mask(old.share(old.advertise())))
    new = Party(4, identities=old.identities, members=old.members, round=1)
    confirmed = new.confirm(new.mask(new.share(new.advertise())))
    name = new.names[0]
    replay = wire.decode(said[name], kind=m.CONFIRMED)["confirmations"]

    def renew(fields: dict[str, Any]) -> None:
        fields["confirmations"] = replay

    with pytest.raises(ProtocolError, match="confirmed another list"):
        new.clients[name].unmask(edited(m.CONFIRMED, confirmed[name], renew))


def test_a_session_key_of_another_session_is_refused():
    """Its signature covers the session; a peer's key of yesterday may have leaked since."""
    old = Party(3, session=bytes(16))
    replies = old.advertise()
    new = Party(3, identities=old.identities)
    fresh = new.advertise()
    name = new.names[0]
    replay = wire.decode(replies[name], kind=m.ADVERTISED)

    def renew(fields: dict[str, Any]) -> None:
        fields["session_keys"], fields["signatures"] = replay["session_keys"], replay["signatures"]

    with pytest.raises(ProtocolError, match="signature does not fit"):
        new.clients[name].share(edited(m.ADVERTISED, fresh[name], renew))


def test_a_client_takes_part_in_a_sum_once():
    """Started twice, confirmations of the first time would count in the second."""
    party = Party(3)
    with pytest.raises(ProtocolError, match="asked twice for one sum"):
        party.client(party.names[0])


def test_a_client_takes_no_part_in_a_sum_of_another_session():
    party, other = Party(3), Party(3, session=bytes(16))
    with pytest.raises(ProtocolError, match="was not asked"):
        ProtocolClient(other.members[party.names[0]], party.parameters)


def test_after_an_error_a_client_is_silent():
    party = Party(3)
    replies = party.advertise()
    client = party.clients[party.names[0]]
    with pytest.raises(ProtocolError):
        client.share(b"rubbish")
    with pytest.raises(ProtocolError, match="takes no further part"):
        client.share(replies[party.names[0]])


def test_a_client_that_was_not_asked_takes_no_part():
    party = Party(3)
    stranger = Member("other", Identity(), party.directory, party.session)
    with pytest.raises(ProtocolError, match="was not asked"):
        ProtocolClient(stranger, party.parameters)


# --------------------------------------------------------------------------------- a client cheats


def spoil(party: Party, name: str, rows: slice) -> None:
    """The client's sealed shares for some of its neighbours become noise."""
    client = party.clients[name]
    honest = client.share

    def share(reply: bytes) -> bytes:
        def change(fields: dict[str, Any]) -> None:
            fields["shares"][rows] ^= 1

        return edited(m.SHARE, honest(reply), change)

    client.share = share  # type: ignore[method-assign]


def test_a_malformed_share_for_one_neighbour_does_not_stop_the_sum():
    party = Party(5)
    spoil(party, party.names[1], slice(0, 1))
    assert party.run().total.tolist() == party.plain(party.names)


def test_a_malformed_share_of_a_client_that_is_lost_does_not_stop_the_sum():
    party = Party(5, threshold=3)
    spoil(party, party.names[1], slice(0, 1))
    replies = party.share(party.advertise())
    left = tuple(n for n in party.names if n != party.names[1])
    masked = party.mask(replies, without=(party.names[1],))
    assert party.unmask(party.confirm(masked)) == party.plain(left)


def test_malformed_shares_for_all_end_the_sum_with_an_error():
    party = Party(5)
    spoil(party, party.names[1], slice(None))
    with pytest.raises(QuorumError, match=f'client "{party.names[1]}" came in'):
        party.run()


def test_wrong_shares_under_a_good_seal_are_found_by_the_commitment(
    monkeypatch: pytest.MonkeyPatch,
):
    """Its shares open, but to another secret than it masks with; no wrong sum comes out."""
    from secure_fl.federation.secagg import shares

    party = Party(4)
    client = party.clients[party.names[2]]
    honest, split = client.share, shares.split

    def share(reply: bytes) -> bytes:
        monkeypatch.setattr(shares, "split", lambda secret, t, n: split(bytes(16), t, n))
        message = honest(reply)
        monkeypatch.undo()
        return message

    client.share = share  # type: ignore[method-assign]
    with pytest.raises(ProtocolError) as caught:
        party.run()
    assert f'client "{party.names[2]}": its shares do not open' in one_line(caught.value)


def test_a_wrong_opened_share_is_left_out():
    """A holder opens a share that is not the one it was sent; the others open the secret."""
    party = Party(6)
    replies = party.confirm(party.mask(party.share(party.advertise())))
    liar = party.names[0]
    for name, reply in replies.items():
        message = party.clients[name].unmask(reply)
        if name == liar:

            def lie(fields: dict[str, Any]) -> None:
                fields["alive_shares"] ^= 255

            message = edited(m.UNMASK, message, lie)
        party.server.receive(name, message)
    assert party.server.total().tolist() == party.plain(party.names)


@pytest.mark.parametrize("rubbish", [b"", b"\x00" * 100, wire.encode(3), wire.encode({"a": 1})])
def test_rubbish_counts_as_a_drop_out(rubbish: bytes):
    party = Party(4)
    party.server.receive(party.names[0], rubbish)
    for name in party.names[1:]:
        party.server.receive(name, party.clients[name].advertise())
    replies = party.server.close_step()
    assert set(replies) == set(party.names[1:])
    assert party.names[0] in party.server.rejected
    total = party.unmask(party.confirm(party.mask(party.share(replies))))
    assert total == party.plain(party.names[1:])


def test_a_vector_of_another_length_counts_as_a_drop_out():
    party = Party(4)
    party.vectors[party.names[2]] = np.zeros(9, np.uint64)
    found = party.run()
    left = tuple(n for n in party.names if n != party.names[2])
    assert found.survivors == left
    assert found.total.tolist() == party.plain(left)
    assert "9 entries" in party.server.rejected[party.names[2]]


def test_a_second_message_changes_nothing():
    party = Party(4)
    replies = party.share(party.advertise())
    name = party.names[0]
    message = party.clients[name].mask(replies[name], party.vectors[name], "x")
    party.server.receive(name, message)
    party.server.receive(name, message)
    del replies[name]
    for other, reply in replies.items():
        vector = party.vectors[other]
        party.server.receive(other, party.clients[other].mask(reply, vector, "x"))
    confirmed = party.confirm(party.server.close_step())
    assert party.unmask(confirmed) == party.plain(party.names)


def test_a_session_key_of_small_order_is_refused():
    """X25519 of it is known to everybody; its owner's signature does not make it better."""
    party = Party(3)
    cheat = party.members[party.names[0]]
    cheat.public = bytes(32)
    identity = party.identities[party.names[0]]
    cheat.signature = identity.sign(*cheat._signed(cheat.name, cheat.public))
    replies = party.advertise()
    with pytest.raises(ProtocolError, match="not one of X25519"):
        party.clients[party.names[1]].share(replies[party.names[1]])


def test_a_mask_key_of_small_order_is_refused():
    party = Party(3)
    cheat = party.clients[party.names[0]]
    cheat.setup._public = bytes(32)
    shared = party.share(party.advertise())
    name = party.names[1]
    with pytest.raises(ProtocolError, match="not one of X25519"):
        party.clients[name].mask(shared[name], party.vectors[name])
