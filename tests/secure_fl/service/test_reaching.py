"""What a caller hears when it cannot be answered: the cause, at once; and who may answer it."""

import http.server
import re
import socket
import threading
import time

import pytest
from click.testing import CliRunner

pytest.importorskip("prometheus_client", reason="needs the extra `service` (securefl[service])")

from cli.main import securefl
from secure_fl.demo.service_parties import copy_parties, deployment
from secure_fl.errors import InputError, ServiceError
from secure_fl.service.channel import Channel
from secure_fl.service.contributor_app import ContributorService
from secure_fl.service.declining import MOST_BYTES, open_reason, seal_reason
from tests.secure_fl.service.parties import Players
from tests.secure_fl.service.test_network import OverTLS, make_certificate
from tests.secure_fl.service.test_service import wait_until

FIRST = slice(0, 2)
LONG = 600.0
"""Seconds of patience that no test waits for."""


@pytest.fixture
def folder(made, tmp_path):
    copy_parties(made.folder, tmp_path / "parties")
    return tmp_path / "parties"


@pytest.fixture(scope="module")
def players(made, tmp_path_factory):
    folder = tmp_path_factory.mktemp("reaching") / "parties"
    copy_parties(made.folder, folder)
    with deployment(folder) as running:
        running.start("evaluator", "--rate", "1000", "--burst", "1000")
        yield Players(made, running)


class Proxy:
    """Something on the way that answers every request itself, without a signature."""

    def __init__(self, status):
        heard = self.heard = []

        class Answer(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                heard.append(f"{self.command} {self.path}")
                length = int(self.headers.get("content-length") or 0)
                self.rfile.read(length)
                self.send_response(status)
                self.send_header("Content-Length", "11")
                self.end_headers()
                self.wfile.write(b"Bad Gateway")

            do_PUT = do_DELETE = do_CONNECT = do_GET  # noqa: N815  # the names of the base class

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def proxy():
    found = Proxy(502)
    yield found
    found.close()


# ----------------------------------------------------------------------------------- proxies


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY"])
def test_signed_calls_do_not_go_to_the_environments_proxy(players, proxy, monkeypatch, name):
    """The variable was set for other programs; what is signed says who asks whom and when."""
    monkeypatch.setenv(name, proxy.url)
    channel = Channel(players.running.url(), players.member("north"), players.manifest)
    assert channel.call("GET", "/asked").status == 200
    assert players.running.health()["status"] == "ok"
    assert players.running.metrics()
    channel.close()
    assert not proxy.heard


def test_a_proxy_is_used_where_it_is_named(players, proxy):
    url, member = players.running.url(), players.member("north")
    channel = Channel(url, member, players.manifest, proxy=proxy.url, patience=0.0)
    with pytest.raises(ServiceError, match="502 without its signature, as of a proxy on the way"):
        channel.call("GET", "/asked")
    assert proxy.heard[0].startswith(f"GET {url}/v1/")
    for wrong in ("proxy", "socks5://127.0.0.1:1", "http://127.0.0.1", "http://x:y", ""):
        with pytest.raises(InputError, match=r"--proxy .*: expected http://HOST:PORT"):
            Channel(url, member, players.manifest, proxy=wrong)


def test_what_a_proxy_says_erases_no_contribution(made, players, tmp_path):
    """A contributor that was answered 502, 404 or 409 by a stranger delivers afterwards."""
    contributor = players.contributor("north")
    batch = players.open(FIRST)
    sealed = players.channel("north").expect("GET", f"/batches/{batch}/query", what="query")
    kept = contributor.answer(sealed, batch, time.time())
    from secure_fl.service.contributor_loop import _serve

    for status in (404, 409, 410, 413, 422, 401, 502):
        between = Proxy(status)
        channel = Channel(between.url, players.member("north"), made.manifest, patience=0.0)
        with pytest.raises(ServiceError, match=str(status)):
            _serve(contributor, channel, batch)
        assert len(between.heard) >= 1
        assert contributor.outbox.undelivered(batch) == kept
        channel.close()
        between.close()
    _serve(contributor, players.channel("north"), batch)
    assert contributor.outbox.undelivered(batch) is None
    assert players.status(batch)["clients"]["north"] == "sent"
    contributor.outbox.close()


def test_signed_words_of_the_moment_erase_no_contribution(made, players, monkeypatch):
    """Clocks that differ are set right; the contribution is sent then."""
    from secure_fl.service import signing
    from secure_fl.service.contributor_loop import _serve

    contributor = players.contributor("south")
    batch = players.open(FIRST)
    sealed = players.channel("south").expect("GET", f"/batches/{batch}/query", what="query")
    contributor.answer(sealed, batch, time.time())
    now = time.time
    monkeypatch.setattr(signing.time, "time", lambda: now() - 1000)
    with pytest.raises(ServiceError, match=r"did not take a contribution \(401\)"):
        _serve(contributor, players.channel("south"), batch)
    monkeypatch.undo()
    assert contributor.outbox.undelivered(batch) is not None
    _serve(contributor, players.channel("south"), batch)
    assert players.status(batch)["clients"]["south"] == "sent"
    contributor.outbox.close()


# --------------------------------------------------------------------- causes that do not pass


@pytest.fixture
def over_tls(made, folder):
    running = OverTLS(folder)
    key = str(running.folder / "key.pem")
    running.start("evaluator", "--certificate", str(running.certificate), "--certificate-key", key)
    yield Players(made, running)
    running.close()


def test_what_waiting_does_not_mend_is_said_at_once(made, over_tls, players, tmp_path):
    """With ten minutes of patience: an untrusted certificate, and TLS on one side alone."""
    url, member = over_tls.running.url(), over_tls.member("north")
    other = tmp_path / "other"
    other.mkdir()
    stranger = make_certificate(other)
    cases = {
        (url, None): r"its certificate is not trusted \(.*self.signed.*\); .*--authority",
        (url, stranger): r"its certificate is not trusted \(.*\); .*--authority",
        (url.replace("https:", "http:"), None): "it speaks TLS on this port; call it by https://",
        (players.running.url().replace("http:", "https:"), None): "does not speak TLS on this port",
    }
    for (where, authority), message in cases.items():
        channel = Channel(where, member, made.manifest, authority=authority, patience=LONG)
        with pytest.raises(ServiceError, match=message) as caught:
            channel.call("GET", "/asked")
        assert "is it running" not in str(caught.value)
        channel.close()
    with pytest.raises(InputError, match=r"key\.pem: holds no certificate in PEM"):
        Channel(url, member, made.manifest, authority=over_tls.running.folder / "key.pem")


def test_an_evaluator_that_is_not_there_is_asked_about(players):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    channel = Channel(url, players.member("north"), players.manifest, patience=0.0)
    with pytest.raises(ServiceError, match=r"cannot be reached \(ConnectError\); is it running\?"):
        channel.call("GET", "/asked")


class Noted(Channel):
    """Remembers how it asked for batches, and fails while it is told to."""

    def __init__(self, *how):
        super().__init__(*how)
        self.asked, self.fails = [], False

    def call(self, method, path, body=b""):
        if self.fails:
            raise ServiceError("the line is cut")
        if path.startswith("/asked"):
            self.asked.append(path)
        return super().call(method, path, body)


def test_a_contributor_knows_at_once_that_the_evaluator_is_there(players):
    """Its first call waited 20 seconds for a batch, and so did whoever waited for its health."""
    channel = Noted(players.running.url(), players.member("north"), players.manifest)
    service = ContributorService(players.contributor("north"), channel)
    service.start()
    try:
        wait_until(lambda: len(channel.asked) >= 2)
        assert service.reached
        assert channel.asked[:2] == ["/asked?wait=0", "/asked?wait=20"]
        channel.fails = True
        players.open(FIRST)  # the call that waits comes back
        wait_until(lambda: not service.reached)
        channel.asked.clear()
        channel.fails = False
        wait_until(lambda: service.reached)
        assert channel.asked[0] == "/asked?wait=0"
    finally:
        service.stop()
        service.finish()


# ------------------------------------------------------------------------------------- reasons


def test_a_contributors_reason_reaches_the_querier(made, players):
    """A quorum below its terms; it used to read "expired with 0 contributions"."""
    contributor = players.contributor("north", quorum=3)
    service = ContributorService(contributor, players.new_channel("north"))
    service.start()
    batch = players.open(FIRST, quorum=1, lifetime=600.0)
    wait_until(lambda: players.status(batch)["clients"]["north"] == "declined")
    service.stop()
    status = players.status(batch)
    reason = "quorum 1, this client's terms ask for 3"
    assert players.querier().refusals(status, batch) == {"north": reason}
    # The evaluator passes it on unread.
    assert reason.encode() not in str(status).encode()
    for client in ("south", "west"):
        words = seal_reason(players.member(client), made.manifest, batch, "querier", "not today")
        players.channel(client).expect("DELETE", f"/batches/{batch}/query", words, what="declining")
    with pytest.raises(ServiceError) as caught:
        players.fetch(batch)
    for said in (f"north: {reason}", "south: not today", "failed: 3 contributors declined"):
        assert said in str(caught.value)
    service.finish()


def test_a_refusal_is_its_clients_own_or_none(made, players):
    querier, north = players.member("querier"), players.member("north")
    words = seal_reason(north, made.manifest, "b", "querier", "x\n\x1b[2J" + "y" * 2000)
    said = open_reason(words, querier, made.manifest, "b", "north")
    assert re.fullmatch(r"x \[2Jy{494}", said)
    assert len(words) < MOST_BYTES
    for batch, client in (("c", "north"), ("b", "south")):
        with pytest.raises(InputError, match="not signed by it, or altered"):
            open_reason(words, querier, made.manifest, batch, client)
    with pytest.raises(InputError, match="not signed by it, or altered"):
        open_reason(words, players.member("evaluator"), made.manifest, "b", "north")
    for data in (b"", b"{}", words[:-1], words[:40] + b"\0" + words[41:]):
        with pytest.raises(InputError, match=r"cannot be read|altered"):
            open_reason(data, querier, made.manifest, "b", "north")
    forged = {"refusals": {"north": "AAAA", "south": 3, "nobody": ""}}
    assert players.querier().refusals(forged, "b") == dict.fromkeys(
        ("north", "south"), "declined; the evaluator passed on a reason that it did not sign"
    )


def test_a_second_fetch_says_why_the_batch_is_closed(made, players):
    fetched, given_up, failed = (players.open(FIRST) for _ in range(3))
    for client in made.manifest.clients:
        players.contribute(client, fetched)
    players.fetch(fetched)
    players.channel("querier").expect("DELETE", f"/batches/{given_up}", what="closing")
    players.channel("north").expect("DELETE", f"/batches/{failed}/query", what="declining")
    wait_until(lambda: players.status(failed)["state"] == "failed")
    for _ in range(2):
        players.channel("querier").expect("DELETE", f"/batches/{failed}", what="closing")
    for batch, why in (
        (fetched, "closed: its answer was fetched and erased"),
        (given_up, "closed: the querier closed it before it was answered"),
        (failed, "closed: it failed: 1 contributors declined"),
    ):
        with pytest.raises(ServiceError, match=why):
            players.fetch(batch)


@pytest.mark.parametrize("command", [["query"], ["serve", "contributor"]])
def test_the_commands_offer_a_proxy(command):
    assert "--proxy" in CliRunner().invoke(securefl, [*command, "--help"]).output
