"""Contributor, evaluator and querier as the commands start them, over TLS; the demonstration."""

import datetime
import ipaddress
import json
import re
import shlex
import signal
import ssl
import time
import urllib.request
from pathlib import Path

import attrs
import click
import httpx
import numpy as np
import pytest
from click.testing import CliRunner
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

pytest.importorskip("prometheus_client", reason="needs the extra `service` (securefl[service])")

from cli.main import securefl
from secure_fl.demo.service_parties import Deployment, copy_parties
from secure_fl.errors import MissingExtraError, ServiceError
from secure_fl.heads.manifest import load_manifest, save_manifest
from secure_fl.service.channel import Channel
from secure_fl.service.store import Store
from tests.secure_fl.service.parties import Players
from tests.secure_fl.service.test_service import wait_until

ROOT = Path(__file__).resolve().parents[3]


def make_certificate(folder):
    """A certificate for 127.0.0.1 that is its own authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "evaluator")])
    now = datetime.datetime.now(datetime.UTC)
    day = datetime.timedelta(days=1)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - day)
        .not_valid_after(now + day)
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    (folder / "key.pem").write_bytes(private)
    (folder / "certificate.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    return folder / "certificate.pem"


class OverTLS(Deployment):
    """A deployment whose evaluator has a certificate."""

    def __init__(self, folder):
        super().__init__(folder)
        self.certificate = make_certificate(folder)

    def url(self, name="evaluator"):
        found = super().url(name)
        return found.replace("http:", "https:") if name == "evaluator" else found

    def health(self, name="evaluator"):
        if name != "evaluator":
            return super().health(name)
        context = ssl.create_default_context(cafile=self.certificate)
        try:
            with urllib.request.urlopen(f"{self.url()}/health", context=context) as response:
                return dict(json.load(response))
        except OSError:
            return None


class PlayersOverTLS(Players):
    def new_channel(self, name):
        authority = self.running.certificate
        return Channel(self.running.url(), self.member(name), self.manifest, authority=authority)


@pytest.fixture
def running(made, tmp_path):
    copy_parties(made.folder, tmp_path / "parties")
    found = OverTLS(tmp_path / "parties")
    yield found
    found.close()


@pytest.fixture
def players(made, running):
    """A running evaluator with north beside it; the tests play the others."""
    key = str(running.folder / "key.pem")
    certificate = str(running.certificate)
    running.start("evaluator", "--certificate", certificate, "--certificate-key", key)
    running.start("north", "--authority", certificate)
    return PlayersOverTLS(made, running)


def asked(players, client):
    return json.loads(players.channel(client).call("GET", "/asked").content)["batches"]


def ask(players, name, contribute, *options):
    """What the querier's command printed, while some contributors are played."""
    running = players.running
    common = ("--authority", str(running.certificate), "--rows", "0:3", "--batch", name)
    process = running.query(running.folder / "queries.npy", *common, *options)
    for client in contribute:
        wait_until(lambda client=client: name in asked(players, client))
        players.contribute(client, name)
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err.decode()
    return json.loads(out), err.decode()


def names(made, clients):
    return [made.manifest.classes[c] for c in made.clear(slice(0, 3), clients)]


def test_the_commands_answer_over_tls(made, players):
    """Known answers are mixed in; who knows no authority or speaks plainly gets nothing."""
    running, audit = players.running, str(players.running.folder / "audit")
    options = ("--audit", "1", "--audit-file", audit)
    found, err = ask(players, "one", ["south", "west"], *options)
    assert found["classes"] == names(made, made.manifest.clients)
    assert found["present"] == list(made.manifest.clients)
    assert "all 1 known answers are right" in err
    assert running.metrics("north")["securefl_contributions_total"] == 1
    assert 0 < running.metrics("north")["securefl_drift_limit"] < 1  # its queries were counted
    trusted = ssl.create_default_context(cafile=running.certificate)
    counted = httpx.get(f"{running.url()}/metrics", verify=trusted, trust_env=False)
    assert counted.status_code == 200
    assert "securefl_drift" not in counted.text
    plain = running.url().replace("https:", "http:")
    with pytest.raises(httpx.TransportError):
        httpx.get(f"{plain}/health")
    stranger = Channel(running.url(), players.member("south"), made.manifest, patience=0.0)
    with pytest.raises(ServiceError, match="its certificate is not trusted"):
        stranger.call("GET", "/asked")


@pytest.mark.slow
def test_a_killed_contributor_is_done_without(made, players):
    players.running.kill("north")
    found, err = ask(players, "two", ["south", "west"], "--quorum", "2", "--patience", "0")
    assert found["classes"] == names(made, ["south", "west"])
    assert "answered without north" in err


@pytest.mark.slow
def test_one_contributor_after_the_other_is_left_out(made, players):
    """By the encrypted rule: each answers all batches but the one without it."""
    running, labels = players.running, names(made, ["south"])
    np.savez(running.folder / "asked.npz", X=np.load(running.folder / "queries.npy")[:3], y=labels)
    line = ("--authority", str(running.certificate), "--audit", "1", "--leave-one-out")
    process = running.query(running.folder / "asked.npz", *line)
    done = {"south": set(), "west": set()}
    while process.poll() is None:
        for client, answered in done.items():
            for batch in set(asked(players, client)) - answered:
                players.contribute(client, batch)
                answered.add(batch)
        time.sleep(0.1)
    out, err = process.communicate()
    assert process.returncode == 0, err.decode()
    found, clients = json.loads(out), made.manifest.clients
    for without in (None, *clients):
        rest = names(made, [name for name in clients if name != without])
        accuracy = np.mean([a == b for a, b in zip(rest, labels, strict=True)])
        assert (found if without is None else found["without"][without])["accuracy"] == accuracy
    assert {len(answered) for answered in done.values()} == {len(clients)}


@pytest.mark.slow
def test_a_contributor_delivers_after_a_restart_what_it_made_before(made, players):
    """It dies between its answer and its delivery: the same bytes are sent, not new ones."""
    running = players.running
    running.kill("north")
    name = players.open(slice(0, 2))
    contributor = players.contributor("north")
    sealed = players.channel("north").expect("GET", f"/batches/{name}/query", what="query")
    made_before = contributor.answer(sealed, name, time.time())
    contributor.outbox.close()
    running.start("north", "--authority", str(running.certificate))
    wait_until(lambda: players.status(name)["clients"]["north"] == "sent")
    store = Store(running.folder / "evaluator" / "state" / "batches.db")
    assert store.contribution(store.find(made.manifest.fingerprint, name), "north") == made_before
    store.close()
    outbox = players.contributor("north").outbox
    assert outbox.answered(name)
    assert outbox.undelivered(name) is None
    assert running.kill("north", signal.SIGTERM) == 0
    assert "Traceback" not in running.log("north")


@pytest.mark.slow
def test_the_demonstration_finds_every_answer_equal():
    from secure_fl.demo.network import demonstrate_network

    found = demonstrate_network(seed=0, queries=4)
    assert found.agreeing == found.quorum_agreeing == found.queries == 4
    assert found.quorum_present == tuple(c for c in found.clients if c != found.killed)
    assert len(found.quorum_present) == 2
    assert found.masked_agreeing == found.masked_asked == 8


def test_every_option_of_the_pages_commands_exists():
    """The page's own commands need machines and certificates; their options are looked up."""
    found = 0
    for page in ("deploy.md", "service.md", "how-to/three-machines.md"):
        text = (ROOT / "docs" / page).read_text().replace("\\\n", " ")
        for line in re.findall(r"^securefl (?:serve|query) .*$", text, re.MULTILINE):
            command, *words = shlex.split(line)[1:]
            group = securefl.get_command(click.Context(securefl), command)
            if isinstance(group, click.Group):
                group = group.commands[words.pop(0)]
            options = {name for each in group.params for name in each.opts}
            assert {word for word in words if word.startswith("--")} <= options, line
            found += 1
    assert found >= 9


def test_without_the_extra_one_line_says_what_to_install(made, monkeypatch):
    monkeypatch.setattr("secure_fl.service.extra.find_spec", lambda name: None)
    own = str(made.folder / "evaluator")
    command = ["serve", "evaluator", own, "--identity", f"{own}/identity", "--state", own]
    done = CliRunner().invoke(securefl, command)
    assert isinstance(done.exception, MissingExtraError)
    assert "pip install 'securefl[service]'" in str(done.exception)


def test_room_for_engine_bgv_is_refused_where_no_federation_has_it(made, tmp_path):
    own = str(made.folder / "evaluator")
    command = ["serve", "evaluator", own, "--identity", f"{own}/identity", "--room", "1"]
    done = CliRunner().invoke(securefl, [*command, "--state", str(tmp_path / "state")])
    assert "--room has no meaning without keys of engine bgv" in done.output
    assert not (tmp_path / "state").exists()


def test_members_are_enrolled_by_the_commands(made, tmp_path):
    """The keys that are printed are those that the manifest then lists."""
    save_manifest(tmp_path, attrs.evolve(made.manifest, members=()))
    run = CliRunner()
    keys = {}
    for name in (*made.manifest.clients, "querier", "evaluator"):
        done = run.invoke(securefl, ["serve", "identity", str(tmp_path / name)])
        keys[name] = done.output.strip()
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
    members = [part for name, key in keys.items() for part in ("--member", f"{name}={key}")]
    done = run.invoke(securefl, ["serve", "enrol", str(tmp_path), *members, "--json"])
    manifest = load_manifest(tmp_path)
    assert json.loads(done.output)["federation"] == manifest.fingerprint
    assert dict(manifest.members) == keys
    assert manifest.heads_fingerprint == made.manifest.heads_fingerprint
    done = run.invoke(securefl, ["serve", "enrol", str(tmp_path), "--member", "north"])
    assert done.exit_code == 2
