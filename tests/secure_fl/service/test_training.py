"""Training over the service's own channel: same models, messages done once, strangers refused."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

pytest.importorskip("uvicorn", reason="needs the extra `service` (pip install securefl[service])")

from secure_fl.crypto.identities import write_identity
from secure_fl.data import read_clients
from secure_fl.demo.flower_parties import free_port
from secure_fl.errors import InputError, ServiceError
from secure_fl.federation import wire
from secure_fl.flower.descriptions import as_array
from secure_fl.flower.plan import read_plan
from secure_fl.flower.settings import Owner
from secure_fl.flower.training import train
from secure_fl.flower.transport import ANSWER, REQUEST
from secure_fl.service.channel import Channel, Reply
from secure_fl.service.coordinator import (
    FETCH,
    MESSAGE,
    SERVER,
    Coordinator,
    coordinated,
    read_circle,
    read_party,
)
from secure_fl.service.mailbox import PRESENT, Mailbox
from secure_fl.service.serving import Address
from secure_fl.service.trainee import Trainee
from secure_fl.training.linear import train_linear_model
from secure_fl.training.linear_model import LinearModel
from secure_fl.training.train import train as train_in_process
from tests.cli.command import run
from tests.secure_fl.flower.consortium import CLASSES, NAMES, node_config, write_parties
from tests.secure_fl.methods import linear


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_parties(tmp_path)
    members = json.loads((tmp_path / "members.json").read_text())
    members[SERVER] = write_identity(tmp_path / "server.key")
    (tmp_path / "members.json").write_text(json.dumps(members))
    return tmp_path


def config(folder: Path, out: str = "run", **settings: Any) -> dict[str, Any]:
    return {
        "clients": ",".join(NAMES),
        "classes": ",".join(CLASSES),
        "method": "fednewton",
        "safeguard": False,
        "ridge": 0.1,
        "rounds": 3,
        "out": str(folder / out),
        **{name.replace("_", "-"): value for name, value in settings.items()},
    }


@contextmanager
def server(folder: Path, plan: Mapping[str, Any], port: int) -> Iterator[Coordinator]:
    circle = read_circle(folder / "members.json")
    member = read_party(folder / "server.key", SERVER, circle)
    names = tuple(str(plan["clients"]).split(","))
    address = Address(host="127.0.0.1", port=port)
    with coordinated(member, circle, names, plan, address=address, wait=30.0) as exchange:
        yield exchange


def line(folder: Path, name: str, port: int, kind: type[Channel] = Channel) -> Channel:
    circle = read_circle(folder / "members.json")
    member = read_party(folder / f"{name}.key", name, circle)
    url = f"http://127.0.0.1:{port}"
    return kind(url, member, circle, recipient=SERVER, patience=0.0)


class Seat:
    """A client's node in a thread."""

    def __init__(self, folder: Path, name: str, port: int, kind: type[Channel] = Channel) -> None:
        self.ending = threading.Event()
        channel = line(folder, name, port, kind)
        self.trainee = Trainee(channel, Owner(node_config(folder, name)).node, self.ending)
        self.ended: BaseException | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.trainee.run()
        except BaseException as ended:
            self.ended = ended


def trained(folder: Path, plan: dict[str, Any], kind: type[Channel] = Channel) -> Any:
    """Weights of a whole run."""
    port = free_port()
    made = read_plan(plan)
    with server(folder, plan, port) as exchange:
        seats = [Seat(folder, name, port, kind) for name in NAMES]
        train(exchange, made, lambda text: None)
        for seat in seats:
            seat.ending.set()
    for seat in seats:
        seat.thread.join(timeout=30)
        assert not seat.thread.is_alive()
        assert seat.ended is None
    return LinearModel.load(made.out).weights


def expected(folder: Path) -> Any:
    clients = read_clients(folder / "clients")
    settings = linear("fednewton", rounds=3, safeguard=False, ridge=0.1)
    return train_linear_model(clients, settings).model.weights


def test_plain_sums_have_the_bytes_of_one_process(folder: Path) -> None:
    assert trained(folder, config(folder)).tobytes() == expected(folder).tobytes()


def test_masked_sums_give_the_model_of_one_process(folder: Path) -> None:
    found = trained(folder, config(folder, secure=True, max_weight=100.0))
    np.testing.assert_allclose(found, expected(folder), atol=1e-6)


class Twice(Channel):
    """A connection that is cut after what it carried arrived: everything is sent twice."""

    def expect(self, *arguments: Any, **more: Any) -> bytes:
        if wire.decode(arguments[2], kind=FETCH)["last"]:
            # The answer arrives; its response does not.
            threading.Thread(target=self._lost, args=(arguments, more), daemon=True).start()
            time.sleep(0.02)
        return super().expect(*arguments, **more)

    def _lost(self, arguments: Any, more: Any) -> None:
        with suppress(ServiceError, httpx.HTTPError, RuntimeError):
            super().expect(*arguments, **more)


def test_answers_that_are_sent_twice_and_messages_that_come_twice_change_nothing(
    folder: Path,
) -> None:
    """A masked sum's steps would be refused the second time, and the sum with them."""
    plan = config(folder, secure=True, max_weight=100.0, rounds=1)
    found = trained(folder, plan, Twice)
    settings = linear("fednewton", rounds=1, safeguard=False, ridge=0.1)
    once = train_linear_model(read_clients(folder / "clients"), settings).model.weights
    np.testing.assert_allclose(found, once, atol=1e-6)


def test_moments_over_the_channel_scale_as_in_one_process_though_messages_come_twice(
    folder: Path,
) -> None:
    found = trained(folder, config(folder, scaling="moments", rounds=1), Twice)
    settings = linear("fednewton", rounds=1, safeguard=False, ridge=0.1)
    clients = read_clients(folder / "clients")
    once = train_in_process(clients, settings, scaling="moments").model
    assert found.tobytes() == once.weights.tobytes()
    assert LinearModel.load(folder / "run").scaling_map == once.scaling_map


def fetch(channel: Channel, last: str = "", answer: bytes = b"") -> Reply:
    body = wire.encode({"last": last, "answer": as_array(answer)}, kind=FETCH)
    return channel.call("POST", "/training", body)


def _until_the_end(*arguments: Any) -> None:
    with suppress(ServiceError, RuntimeError):
        fetch(*arguments)


def test_a_message_is_handed_out_until_it_is_answered_and_a_late_answer_is_not_used(
    folder: Path,
) -> None:
    """A node that was killed when it had fetched gets the same message again."""
    port, plan = free_port(), config(folder, clients="c0,c1")
    request = wire.encode({"do": "name"}, kind=REQUEST)
    answer = wire.encode({"name": "c0"}, kind=ANSWER)
    with server(folder, plan, port) as exchange:
        found: list[dict[str, bytes]] = []

        def ask(seconds: float) -> threading.Thread:
            asking = threading.Thread(
                target=lambda: found.append(exchange({"c0": request}, seconds))
            )
            asking.start()
            return asking

        asking = ask(60.0)
        with line(folder, "c1", port) as other, line(folder, "c0", port) as channel:
            threading.Thread(target=_until_the_end, args=(other,), daemon=True).start()
            letters = [
                wire.decode(fetch(channel).content, kind=MESSAGE, source="server") for _ in range(2)
            ]
            assert letters[0]["number"] == letters[1]["number"]
            assert letters[0]["request"].tobytes() == request
            handed_in = channel, letters[0]["number"], answer
            threading.Thread(target=_until_the_end, args=handed_in, daemon=True).start()
            asking.join(timeout=30)
            assert found == [{"c0": answer}]
            late = ask(0.2)
            late.join(timeout=30)
            assert found[1] == {}


def test_nodes_that_wait_are_told_when_the_run_is_over_and_call_again(folder: Path) -> None:
    """So nothing is broken off, and the server ends at once."""
    port = free_port()
    found: list[int] = []
    with line(folder, "c0", port) as channel, server(folder, config(folder), port) as exchange:
        waiting = threading.Thread(target=lambda: found.append(_status(channel)), daemon=True)
        waiting.start()
        assert exchange._mailbox is not None
        while not exchange._mailbox._seen:
            time.sleep(0.01)
    waiting.join(timeout=30)
    assert found == [503]


def _status(channel: Channel) -> int:
    body = wire.encode({"last": "", "answer": as_array(b"")}, kind=FETCH)
    reply, _ = channel._send("POST", "/training", body)
    assert reply.signed
    return reply.status


def test_a_client_that_is_not_there_is_not_waited_for(folder: Path) -> None:
    port, plan = free_port(), config(folder, clients="c0,c1")
    circle = read_circle(folder / "members.json")
    member = read_party(folder / "server.key", SERVER, circle)
    address = Address(host="127.0.0.1", port=port)
    with coordinated(member, circle, ("c0", "c1"), plan, address=address, wait=0.1) as exchange:
        start = time.monotonic()
        assert exchange({"c0": b"", "c1": b""}, 60.0) == {}
        assert time.monotonic() - start < 30


async def answered(
    mailbox: Mailbox, asked: "asyncio.Task[dict[str, bytes]]", number: str
) -> dict[str, bytes]:
    """What the server gets when c0 has answered that message."""
    again = asyncio.create_task(mailbox.fetch("c0", number, b"done", 30.0))
    answers = await asked
    await mailbox.end()
    await again
    return answers


def test_while_the_server_stands_still_no_answer_is_late() -> None:
    """Longer than it waits for answers: a client that could not be heard is in the round."""

    async def stand_still() -> dict[str, bytes]:
        mailbox = Mailbox(["c0"], wait=0.0)
        waiting = asyncio.create_task(mailbox.fetch("c0", "", b"", 30.0))
        asked = asyncio.create_task(mailbox.exchange({"c0": b"do"}, 0.5))
        found = await waiting
        assert found is not None
        time.sleep(2.0)  # the whole process does
        await asyncio.sleep(0.1)
        return await answered(mailbox, asked, found[0])

    assert asyncio.run(stand_still()) == {"c0": b"done"}


def test_a_client_that_waited_while_the_server_stood_still_is_there() -> None:
    """Its call is open, however long ago it came."""

    async def ask() -> dict[str, bytes]:
        mailbox = Mailbox(["c0", "gone"], wait=0.0)
        waiting = asyncio.create_task(mailbox.fetch("c0", "", b"", 30.0))
        await mailbox.fetch("gone", "", b"", 0.0)
        await asyncio.sleep(0.01)
        mailbox._seen = dict.fromkeys(mailbox._seen, time.monotonic() - 2 * PRESENT)
        asked = asyncio.create_task(mailbox.exchange({"c0": b"do", "gone": b"do"}, 30.0))
        found = await waiting
        assert found is not None
        return await answered(mailbox, asked, found[0])

    assert asyncio.run(ask()) == {"c0": b"done"}


# ---------------------------------------------------------------------------- who may come in


def test_strangers_and_the_server_itself_get_no_message(folder: Path) -> None:
    port, plan = free_port(), config(folder)
    other = folder / "other"
    other.mkdir()
    members = {name: write_identity(other / f"{name}.key") for name in (*NAMES, SERVER)}
    (other / "members.json").write_text(json.dumps(members))
    with server(folder, plan, port):
        with line(other, "c0", port) as stranger:
            refused = fetch(stranger)
        assert (refused.status, refused.signed) == (401, False)
        with line(folder, SERVER, port) as itself:
            assert fetch(itself).status == 403
        with line(folder, "c0", port) as client:
            assert client.call("POST", "/training", b"nothing").status == 422


def test_the_doctor_looks_at_a_training_server(folder: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with server(folder, config(folder), port):
        code, out, _ = run("doctor", "--server", url)
    assert code == 0
    assert [line.split(":")[0] for line in out.splitlines()] == ["ok   port", "ok   clock"]
    code, out, _ = run("doctor", "--server", url)
    assert code == 1
    assert "is the server running" in out


def test_members_that_are_no_clients_get_no_message(folder: Path) -> None:
    port, plan = free_port(), config(folder)
    members = json.loads((folder / "members.json").read_text())
    members["querier"] = write_identity(folder / "querier.key")
    (folder / "members.json").write_text(json.dumps(members))
    with server(folder, plan, port), line(folder, "querier", port) as querier:
        assert fetch(querier).status == 403


def test_a_server_with_another_key_is_not_believed(folder: Path) -> None:
    """It has the members' file, and not the server's secret."""
    port, plan = free_port(), config(folder)
    circle = read_circle(folder / "members.json")
    write_identity(folder / "false.key")
    from secure_fl.service.members import read_secrets

    false = read_secrets(folder / "false.key", SERVER)
    address = Address(host="127.0.0.1", port=port)
    with (
        coordinated(false, circle, NAMES, plan, address=address, wait=1.0),
        line(folder, "c0", port) as channel,
        pytest.raises(ServiceError, match="signature"),
    ):
        channel.call("POST", "/training", b"nothing")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"members": None}, "--members: missing"),
        ({"identity": "c0.key"}, 'not the key that the members\' file lists for "server"'),
        ({"members": "without.json"}, 'has no "server"'),
        ({"host": "0.0.0.0"}, "it needs TLS"),
        ({"app": "nowhere"}, "no app folder"),
    ],
)
def test_a_server_that_cannot_serve_says_what_to_do(
    folder: Path, change: dict[str, str | None], told: str
) -> None:
    from secure_fl.flower.app import write_app

    write_app(
        folder / "app", {k: v for k, v in config(folder).items() if k != "out"} | {"out": "x"}
    )
    keys = json.loads((folder / "members.json").read_text())
    (folder / "without.json").write_text(json.dumps({name: keys[name] for name in NAMES}))
    (folder / "nowhere").mkdir()
    given = {"app": "app", "members": "members.json", "identity": "server.key"} | change
    words: list[Any] = ["train", folder / str(given.pop("app")), "--runtime", "service"]
    words += ["--out", folder / "out"]
    for name, value in given.items():
        if value is not None:
            words += [f"--{name}", value if name == "host" else folder / value]
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert told in err
    assert not (folder / "out").exists()


def test_a_members_file_without_the_server_is_refused_at_the_client(folder: Path) -> None:
    keys = json.loads((folder / "members.json").read_text())
    del keys[SERVER]
    (folder / "members.json").write_text(json.dumps(keys))
    with pytest.raises(InputError, match='has no "server"; add its keys'):
        read_circle(folder / "members.json")
