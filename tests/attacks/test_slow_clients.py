"""A stranger that opens connections and is silent, or says and takes everything drop by drop."""

import contextlib
import socket
import ssl
import threading
import time

import pytest

pytest.importorskip("prometheus_client", reason="needs the extra `service` (securefl[service])")

from secure_fl.service.doors import Doors, listening
from secure_fl.service.gate import reply
from secure_fl.service.serving import Address, serve
from secure_fl.service.supervision import Ending
from tests.attacks.table import Attack
from tests.secure_fl.service.test_network import make_certificate

ATTACK = Attack(
    name="opens connections and is silent, or reads drop by drop",
    holds="a stranger at one address",
    before="everybody's service: 503 for all, and nothing closed after 75 s",
    after="its own connections alone: a cap an address, and time-outs for handshake, header"
    " and reading",
)

HEAD, STALLED = 1.5, 3.0
MOST = 20
ANSWER = bytes(32 * 2**20)


async def application(scope, receive, send):
    """Answers at once with 32 MB, or with a word for /health."""
    if scope["type"] == "lifespan":
        while (message := await receive())["type"] != "lifespan.shutdown":
            await send({"type": f"{message['type']}.complete"})
        await send({"type": "lifespan.shutdown.complete"})
        return
    await reply(None, 200, b"ok" if scope["path"] == "/health" else ANSWER)(scope, receive, send)


@pytest.fixture(scope="module", params=["plain", "tls"])
def server(request, tmp_path_factory):
    """The service's own server with short times; yields a function that connects."""
    folder = tmp_path_factory.mktemp("certificate")
    certificate = make_certificate(folder) if request.param == "tls" else None
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = Address(
        host="127.0.0.1",
        port=port,
        certificate=certificate,
        key=folder / "key.pem" if certificate else None,
        doors=Doors(per_address=MOST, head=HEAD, stalled=STALLED),
    )
    ending = Ending(lambda: None)

    def run():
        with contextlib.suppress(Exception):
            serve(application, address, stop=lambda: None, ending=ending)

    thread = threading.Thread(target=run)
    thread.start()

    def connect(source="127.0.0.1", handshake=True):
        line = socket.socket()
        line.settimeout(60)
        # As over a slow line, where the kernel does not take megabytes at once.
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**16)
        line.bind((source, 0))
        line.connect(("127.0.0.1", port))
        if certificate and handshake:
            context = ssl.create_default_context(cafile=certificate)
            return context.wrap_socket(line, server_hostname="127.0.0.1")
        return line

    end = time.monotonic() + 60
    while time.monotonic() < end:
        with contextlib.suppress(OSError), connect():
            break
        time.sleep(0.1)
    yield connect
    ending("the test is over")
    thread.join(60)


def served(connect, source="127.0.0.2"):
    """Whether somebody else's request is answered."""
    with connect(source) as line:
        line.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        return line.recv(100).startswith(b"HTTP/1.1 200")


def closed(line):
    """Waits for the other side to close; whether it did."""
    line.settimeout(60)
    try:
        while line.recv(2**16):
            pass
    except (ConnectionError, ssl.SSLError):
        return True
    except TimeoutError:
        return False
    return True


def still_open(line):
    line.setblocking(False)
    try:
        return line.recv(1) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def test_silent_connections_are_capped_by_address_and_closed(server):
    """1,000 of them gave everybody 503, and none was closed after 75 s."""
    lines = [server(handshake=False) for _ in range(100)]
    assert served(server)
    assert all(closed(line) for line in lines)
    # The address may come again.
    assert served(server, "127.0.0.1")
    for line in lines:
        line.close()


def test_as_many_as_the_cap_are_served_and_the_next_is_closed(server):
    deadline = time.monotonic() + 60
    while not served(server, "127.0.0.3") and time.monotonic() < deadline:
        time.sleep(0.1)
    # Only a machine that stands still for longer than a header may take closes both, by their time.
    assert any(closes_the_last_alone(server, "127.0.0.3") for _ in range(5))
    assert served(server, "127.0.0.4")


def closes_the_last_alone(server, source):
    """Opens one line more than the cap; whether that one is closed while the one before is not."""
    lines = [server(source, handshake=False) for _ in range(MOST + 1)]
    try:
        return closed(lines[-1]) and still_open(lines[-2])
    finally:
        for line in lines:
            line.close()
        time.sleep(HEAD)


@pytest.mark.parametrize("first", [b"", b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"])
def test_headers_that_come_drop_by_drop_are_not_waited_for(server, first):
    """Neither on a new connection nor on one that was answered; more drops extend nothing."""
    with server("127.0.0.5") as line:
        line.sendall(first)
        sent, drops = 0, b"GET /health HTTP/1.1\r\nX-Long: " + b"x" * 600
        with contextlib.suppress(OSError):
            for letter in drops:
                line.sendall(bytes([letter]))
                sent += 1
                time.sleep(0.05)
        assert sent < len(drops)


def test_a_body_that_never_comes_is_not_waited_for(server):
    with server("127.0.0.6") as line:
        line.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n")
        assert closed(line)


def test_an_answer_that_is_not_taken_is_dropped(server):
    """Or a stranger holds 32 MB for ever; one who reads slowly gets everything."""
    request = b"GET /answer HTTP/1.1\r\nHost: x\r\n\r\n"
    with server("127.0.0.7") as line, server("127.0.0.8") as slow:
        line.sendall(request)
        slow.sendall(request)
        got, started = 0, time.monotonic()
        while got < len(ANSWER):
            part = slow.recv(2**18)
            assert part, f"closed after {got} bytes"
            got += len(part)
            time.sleep(0.004)
        time.sleep(max(0.0, 2 * STALLED - (time.monotonic() - started)))
        line.settimeout(60)
        taken = 0
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            while part := line.recv(2**20):
                taken += len(part)
        assert taken < len(ANSWER)


def test_ipv6_callers_are_counted_by_network(monkeypatch):
    from secure_fl.service.doors import _caller

    assert _caller("2001:db8::1") == _caller("2001:db8::2:3") != _caller("2001:db8:0:1::1")
    assert _caller("::ffff:192.0.2.1") == _caller("192.0.2.1") == "192.0.2.1"
    assert _caller("fe80::1%eth0") == _caller("fe80::2")


def test_a_port_in_use_is_said_in_one_line():
    (taken,) = listening("127.0.0.1", 0, 0)
    taken.listen()
    from secure_fl.errors import InputError

    address = Address(host="127.0.0.1", port=taken.getsockname()[1])
    with pytest.raises(InputError, match="cannot be listened on"):
        serve(application, address, stop=lambda: None, ending=Ending(lambda: None))
    taken.close()
