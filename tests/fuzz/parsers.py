"""Every parser of foreign bytes, with valid samples made here and the changes that suit it."""

import base64
import gzip
import hashlib
import importlib
import io
import json
import pkgutil
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, make_dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from tests.fuzz import mutations as m

Read = Callable[[bytes], Any]


@dataclass(frozen=True)
class Parser:
    """A parser of foreign bytes.

    Attributes:
        name: for the table.
        make: given an empty folder, the valid samples and what reads bytes like them.
        mutate: changes a sample.
        slow: seconds an input costs are many; fewer inputs in the everyday suite.
    """

    name: str
    make: Callable[[Path], tuple[list[bytes], Read]]
    mutate: m.Mutation = m.of_bytes
    slow: bool = False


PARSERS: dict[str, Parser] = {}


def parser(
    name: str, mutate: m.Mutation = m.of_bytes, *, slow: bool = False
) -> Callable[[Callable[[Path], tuple[list[bytes], Read]]], Any]:
    """Registers what makes samples and a reader."""

    def register(make: Callable[[Path], tuple[list[bytes], Read]]) -> Any:
        PARSERS[name] = Parser(name, make, mutate, slow)
        return make

    return register


def from_file(path: Path, read: Callable[[Path], Any], mode: int = 0o600) -> Read:
    """A reader of files as one of bytes."""

    def reads(data: bytes) -> Any:
        path.write_bytes(data)
        path.chmod(mode)
        return read(path)

    return reads


# ------------------------------------------------------------------------------------- encryption


@lru_cache(maxsize=1)
def rule_keys() -> tuple[Any, Any]:
    """Keys of a small rule and their public key, drawn once."""
    import fhe

    rule = fhe.RuleParameters(contributors=2, classes=3, bits=4, block=1, failure_exponent=40)
    keys = fhe.generate_keys(rule)
    return keys, fhe.make_public_key(keys)


def contributions() -> list[Any]:
    """Of both contributors, to two queries."""
    import fhe

    _, public = rule_keys()
    codes = np.random.default_rng(0).integers(0, 16, (2, 2, 3))
    return [
        fhe.contribute(codes[i], public, contributor=i, name=str(i), federation="f", batch="b")
        for i in range(2)
    ]


@parser("envelope", m.of_envelope())
def _envelope(folder: Path) -> tuple[list[bytes], Read]:
    from fhe.envelope import pack, unpack

    return [pack("a kind", {"a": 1}, b"payload"), pack("a kind", {})], lambda data: unpack(data)


@parser("contribution", m.of_envelope())
def _contribution(folder: Path) -> tuple[list[bytes], Read]:
    import fhe
    from fhe.public_key import RingCiphertexts, to_integers

    _, public = rule_keys()

    def read(data: bytes) -> Any:
        found = fhe.Contribution.from_bytes(data, source="contribution")
        shape = (found.queries, found.parameters.columns)
        return to_integers(RingCiphertexts(found.public, shape, found.content), public, who="c")

    return [each.to_bytes() for each in contributions()], read


@parser("answer", m.of_envelope())
def _answer(folder: Path) -> tuple[list[bytes], Read]:
    import fhe

    keys, public = rule_keys()
    made = fhe.evaluate(contributions(), keys.evaluation, public)

    def read(data: bytes) -> Any:
        found = fhe.Answer.from_bytes(data, source="answer")
        return fhe.read_answer(found, keys, queries=2)

    return [made.to_bytes()], read


def _public_again(header: dict[str, Any], content: bytes) -> dict[str, Any]:
    parameters = rule_keys()[0].parameters
    key = header["key"] if isinstance(header.get("key"), str) else ""
    found = hashlib.sha256(f"{parameters.fingerprint()}{key}".encode("utf-8", "replace"))
    found.update(content)
    return {**header, "public": found.hexdigest()}


@parser("public key", m.of_envelope(mend=_public_again))
def _public_key(folder: Path) -> tuple[list[bytes], Read]:
    import fhe

    fhe.save_public_key(folder, rule_keys()[1])
    path = folder / "public.key"
    return [path.read_bytes()], from_file(path, lambda _: fhe.load_public_key(folder))


def _evaluation_again(header: dict[str, Any], content: bytes) -> dict[str, Any]:
    found = hashlib.sha256(rule_keys()[0].parameters.fingerprint().encode())
    found.update(content)
    return {**header, "key": found.hexdigest()}


@parser("evaluation key", m.of_envelope(mend=_evaluation_again), slow=True)
def _evaluation_key(folder: Path) -> tuple[list[bytes], Read]:
    import fhe

    fhe.save_evaluation_keys(folder, rule_keys()[0].evaluation)
    path = folder / "evaluation.key"

    def read(_: Path) -> Any:
        return fhe.load_evaluation_keys(folder).library_keys

    return [path.read_bytes()], from_file(path, read)


@parser("secret key", m.of_envelope(), slow=True)
def _secret_key(folder: Path) -> tuple[list[bytes], Read]:
    import fhe

    fhe.save_secret_keys(folder, rule_keys()[0], "words")
    path = folder / "secret.key"
    return [path.read_bytes()], from_file(path, lambda _: fhe.load_secret_keys(folder, "words"))


@parser("secret of known answers", m.of_envelope())
def _audit(folder: Path) -> tuple[list[bytes], Read]:
    from fhe.audit import load_audit, new_audit, save_audit

    path = folder / "audit"
    save_audit(path, new_audit(3))
    rule = rule_keys()[0].parameters

    def read(found: Path) -> Any:
        audit = load_audit(found)
        return audit.positions(10), audit.codes(1, rule)

    return [path.read_bytes()], from_file(path, read)


# ------------------------------------------------------------------------------------- federation


def manifest_of(folder: Path) -> Any:
    """A federation with members, their secrets in the folder."""
    from secure_fl.heads.manifest import make_manifest
    from secure_fl.service.members import enrol, make_member_keys

    facts = make_manifest(classes=("x", "y"), clients=("north", "south"), n_features=2, bits=4)
    queriers = ("querier", "lab")
    names = ("north", "south", *queriers, "evaluator")
    return enrol(facts, {name: make_member_keys(folder / name) for name in names}, queriers)


def _manifest_again(data: bytes, rng: Any) -> bytes:
    """A manifest whose fingerprint fits again, where it still is one."""
    from secure_fl.heads.manifest import Manifest

    changed = m.of_json(data, rng)
    try:
        content = json.loads(changed)
        fields = {k: v for k, v in content.items() if k not in ("format", "fingerprint")}
        content["fingerprint"] = Manifest(**fields).fingerprint
        return m.text_of(content)
    except Exception:  # Whatever it is now goes to the parser as it is.
        return changed


@parser("manifest", _manifest_again)
def _manifest(folder: Path) -> tuple[list[bytes], Read]:
    from secure_fl.heads.manifest import load_manifest, save_manifest
    from secure_fl.service.members import member_keys, signature_keys

    path = save_manifest(folder, manifest_of(folder))

    def read(found: Path) -> Any:
        manifest = load_manifest(found)
        return member_keys(manifest), signature_keys(manifest)

    return [path.read_bytes()], from_file(path, read)


@parser("head", m.of_envelope(m.of_tensors))
def _head(folder: Path) -> tuple[list[bytes], Read]:
    from secure_fl.heads.fitting import train_heads
    from secure_fl.heads.head import head_path, load_head, save_head

    manifest = manifest_of(folder)
    rng = np.random.default_rng(0)
    sets = [
        (name, rng.normal(size=(20, 2)).astype(np.float32), np.arange(20) % 2)
        for name in manifest.clients
    ]
    for each in train_heads(sets, manifest):
        save_head(folder, each, manifest)
    path = head_path(folder, "north")
    return [path.read_bytes()], from_file(path, lambda _: load_head(folder, "north", manifest))


GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "v4"


@parser("linear model", m.of_envelope(m.of_tensors))
def _linear(folder: Path) -> tuple[list[bytes], Read]:
    from secure_fl.training.linear_model import LinearModel

    samples = [(GOLDEN / f"run-{n}" / "model").read_bytes() for n in ("fednl", "fednewton")]
    return samples, from_file(folder / "model", LinearModel.load)


@parser("regression model", m.of_envelope(m.of_tensors))
def _regression(folder: Path) -> tuple[list[bytes], Read]:
    from secure_fl.data import Scaling
    from secure_fl.training.linear_model import RegressionModel

    model = RegressionModel(
        np.ones((3, 2)), ("price", "rent"), 2, None, Scaling(), None, {"method": "krr"}
    )
    model.save(folder / "model")
    return [(folder / "model").read_bytes()], from_file(folder / "model", RegressionModel.load)


@parser("network model", m.of_envelope(m.of_tensors))
def _network(folder: Path) -> tuple[list[bytes], Read]:
    from secure_fl.training.network_model import TrainedNetwork

    samples = [(GOLDEN / f"run-{n}" / "model").read_bytes() for n in ("mlp", "fedrco")]
    return samples, from_file(folder / "model", TrainedNetwork.load)


@parser("checkpoint", m.of_envelope(m.of_tensors))
def _checkpoint(folder: Path) -> tuple[list[bytes], Read]:
    from secure_fl import trainers
    from secure_fl.federation import checkpoint

    # Records of trainers are registered where they are declared.
    for module in pkgutil.walk_packages(trainers.__path__, f"{trainers.__name__}."):
        importlib.import_module(module.name)
    samples = [path.read_bytes() for path in sorted(GOLDEN.glob("*.checkpoint"))]
    return samples, from_file(folder / "checkpoint", checkpoint.load)


def _sealed_again(data: bytes, rng: Any) -> bytes:
    """A ledger whose chain of digests fits again."""
    from dp.ledger_lines import line_bytes, sealed_line

    try:
        lines = [json.loads(line) for line in data.splitlines()]
        place = rng.randrange(len(lines))
        lines[place] = m.of_value(lines[place], rng)
        made, previous = b"", ""
        for line in lines:
            body = {k: v for k, v in line.items() if k not in ("previous", "digest")}
            sealed = sealed_line(body, previous)
            previous, made = sealed["digest"], made + line_bytes(sealed)
        return made if rng.random() < 0.9 else m.of_bytes(made, rng)
    except (ValueError, AttributeError, TypeError, KeyError, RecursionError):
        return m.of_lines(data, rng)


@parser("ledger", _sealed_again)
def _ledger(folder: Path) -> tuple[list[bytes], Read]:
    from dp import Ledger

    paths = [*GOLDEN.glob("clients.ledgers/*"), GOLDEN / "record.ledger"]
    samples = [path.read_bytes() for path in paths if path.is_file()]

    def read(path: Path) -> Any:
        ledger = Ledger.open(path)
        return ledger.data_set, ledger.budget, ledger.events

    return samples, from_file(folder / "a.jsonl", read)


# ------------------------------------------------------------------------------------------- data


@parser("npz", m.of_archive)
def _npz(folder: Path) -> tuple[list[bytes], Read]:
    from secure_fl.data import read_client

    samples = []
    for more in ({}, {"classes": np.array(["a", "b"]), "features": np.array(["u", "v"])}):
        made = io.BytesIO()
        X = np.random.default_rng(0).normal(size=(6, 2))
        np.savez(made, X=X, y=np.arange(6) % 2, **more)
        samples.append(made.getvalue())
    return samples, from_file(folder / "a.npz", read_client)


@parser("npy")
def _npy(folder: Path) -> tuple[list[bytes], Read]:
    from secure_fl.heads.queries import read_matrix

    made = io.BytesIO()
    np.save(made, np.arange(12, dtype=np.float32).reshape(4, 3))
    return [made.getvalue()], from_file(folder / "a.npy", read_matrix)


@parser("libsvm")
def _libsvm(folder: Path) -> tuple[list[bytes], Read]:
    from secure_fl.data import read_client

    samples = [b"+1 1:0.5 3:1e-3\n-1 2:4 # a\n\n+1 1:1 2:2\n", b"3 1:1\n2 2:2\n"]
    return samples, from_file(folder / "a.svm", read_client)


@parser("csv")
def _csv(folder: Path) -> tuple[list[bytes], Read]:
    from secure_fl.data import read_client

    samples = [b'a,b,label\n1,2,x\n3,"4",y\n', b"label,b\r\nx,1e3\r\ny,-2\r\n"]
    return samples, from_file(folder / "a.csv", read_client)


@parser("schema of tables", m.of_json)
def _schema(folder: Path) -> tuple[list[bytes], Read]:
    from secure_fl.data.schemas import (
        Category,
        Date,
        Label,
        Number,
        Schema,
        load_schema,
        save_schema,
    )

    made = Schema(
        label=Label(column="y", classes=("a", "b")),
        columns=(
            Number(name="n", range=(0, 9), missing=1, unit="kg", other_units={"g": 0.001}),
            Category(name="c", categories=("f", "m"), spellings={"w": "f"}),
            Date(name="d", formats=("%Y",), range=("2000", "2020"), missing="refuse"),
        ),
    )
    path = folder / "schema.json"
    save_schema(path, made)
    return [path.read_bytes()], from_file(path, load_schema)


@parser("prepared csv")
def _prepared_csv(folder: Path) -> tuple[list[bytes], Read]:
    from secure_fl.data.schemas import Label, Number, Schema, prepare_clients

    number = Number(name="n", range=(0, 9), missing=1)
    schema = Schema(label=Label(column="y", classes=("a", "b")), columns=(number,))
    samples = [b"sep=;\ny;n\na;1,5\nb;?\n", "y,n\na,1.5\n".encode("utf-16")]
    return samples, from_file(folder / "a.csv", lambda path: prepare_clients(path, schema))


@parser("image")
def _image(folder: Path) -> tuple[list[bytes], Read]:
    from PIL import Image

    from secure_fl.encoders.image import PixelEncoder
    from secure_fl.encoders.pictures import open_picture, read_picture_file

    samples = []
    for kind in ("PNG", "JPEG", "GIF", "TIFF", "WEBP", "BMP"):
        stored = io.BytesIO()
        Image.linear_gradient("L").resize((9, 9)).save(stored, kind)
        samples.append(stored.getvalue())

    def read(path: Path) -> Any:
        return PixelEncoder(8).prepare(open_picture(path, read_picture_file(path)))

    return samples, from_file(folder / "a.png", read)


@parser("packed csv")
def _packed_csv(folder: Path) -> tuple[list[bytes], Read]:
    from secure_fl.data import read_client

    samples = [gzip.compress(b"a,b,label\n" + b"1,2,x\n3,4,y\n" * 20, mtime=0)]
    return samples, from_file(folder / "a.csv.gz", read_client)


# -------------------------------------------------------------------------------------- messages


@parser("federation message", m.of_envelope(m.of_tensors))
def _wire(folder: Path) -> tuple[list[bytes], Read]:
    from secure_fl.federation import wire
    from secure_fl.federation.trees import LowRank, SparseArray

    vector = np.arange(4.0)
    values = [
        {"a": vector, "b": (1, 2.5, "x", None, True), "c": [np.float32(2), float("inf")]},
        {"s": SparseArray(np.array([0, 2]), np.array([1.0, 2.0]), 5)},
        {"l": LowRank(np.ones(2), np.ones((2, 3)))},
        [np.zeros((2, 0)), np.arange(3, dtype=np.uint8), {"deep": [[[["x"]]]]}],
    ]
    return [wire.encode(value) for value in values], lambda data: wire.decode(data)


def _after_its_place(data: bytes, rng: Any) -> bytes:
    """The first byte says which message of the sum it is."""
    return data[:1] + m.of_envelope(m.of_tensors)(data[1:], rng)


@parser("secure sum", _after_its_place)
def _secure_sum(folder: Path) -> tuple[list[bytes], Read]:
    """A sum of three in which one message, of a client or of the server, is another one."""
    from tests.secure_fl.federation.protocol import Party

    identities = Party(3).identities

    def run(place: int, message: bytes) -> list[bytes]:
        rng = random.Random(0)
        party = Party(3, identities=dict(identities), entropy=rng.randbytes)
        sent: list[bytes] = []

        def crossing(original: bytes) -> bytes:
            sent.append(original)
            return message if len(sent) - 1 == place else original

        replies: dict[str, bytes] = {}
        steps: list[Callable[[str], bytes]] = [
            lambda name: party.clients[name].advertise(),
            lambda name: party.clients[name].share(replies[name]),
            lambda name: party.clients[name].mask(replies[name], party.vectors[name], "x"),
            lambda name: party.clients[name].confirm(replies[name]),
            lambda name: party.clients[name].unmask(replies[name]),
        ]
        for number, step in enumerate(steps):
            for name in replies or party.names:
                party.server.receive(name, crossing(step(name)))
            if number < len(steps) - 1:
                replies = {n: crossing(each) for n, each in party.server.close_step().items()}
        party.server.total()
        return sent

    samples = [bytes([place]) + each for place, each in enumerate(run(-1, b""))]

    def read(data: bytes) -> Any:
        # A message of another sum is not one of this, so what was not changed is sent as it is.
        return run(-1, b"") if data in samples else run(data[0], data[1:])

    return samples, read


@parser("signed token", m.of_token)
def _token(folder: Path) -> tuple[list[bytes], Read]:
    from secure_fl.service.members import read_member, signature_keys
    from secure_fl.service.signing import Request, read_token, signed

    manifest = manifest_of(folder)
    member = read_member(folder / "north", "north", manifest)
    filled = {"str": "north", "float": 1e9, "int": 3}
    claims = Request(
        **{
            each.name: filled[each.type if isinstance(each.type, str) else each.type.__name__]
            for each in attrs.fields(Request)
        }
    )
    sample = signed(member, claims).encode()
    keys = signature_keys(manifest)

    def read(data: bytes) -> Any:
        token, _ = read_token(data.decode("latin-1"), Request)
        token.check(keys)
        return token

    return [sample], read


def _sealed_query(folder: Path) -> tuple[Any, Any, Any, Any]:
    from fhe.audit import new_audit
    from secure_fl.service.members import read_member
    from secure_fl.service.sealed_query import Facts

    manifest = manifest_of(folder)
    querier = read_member(folder / "querier", "querier", manifest)
    north = read_member(folder / "north", "north", manifest)
    facts = Facts(
        federation=manifest.fingerprint,
        batch="b",
        contributor="north",
        public="0" * 64,
        queries=5,
        quorum=2,
        expires=1e9,
    )
    return manifest, querier, north, (facts, new_audit(2))


@parser("sealed query", m.of_envelope())
def _sealed(folder: Path) -> tuple[list[bytes], Read]:
    from secure_fl.service.members import read_member
    from secure_fl.service.sealed_query import SealedQuery, open_query, seal_query

    manifest, querier, north, (facts, audit) = _sealed_query(folder)
    made = seal_query(facts, np.ones((3, 2), np.float32), audit, querier, manifest)
    lab = read_member(folder / "lab", "lab", manifest)
    told = attrs.evolve(facts, querier="lab")
    other = seal_query(told, np.ones((3, 2), np.float32), audit, lab, manifest)

    def read(data: bytes) -> Any:
        return open_query(SealedQuery.from_bytes(data, manifest), north, 2)

    return [made.to_bytes(), other.to_bytes()], read


@parser("sealed query's content", m.of_tensors)
def _sealed_content(folder: Path) -> tuple[list[bytes], Read]:
    """What a querier that cheats may have sealed; its signature is right."""
    from safetensors.numpy import save

    from secure_fl.service.members import sealing_key
    from secure_fl.service.sealed_query import SUITE, SealedQuery, open_query

    manifest, querier, north, (facts, audit) = _sealed_query(folder)
    tensors = {
        "features": np.ones((3, 2), np.float32),
        "audit seed": np.frombuffer(audit.seed, np.uint8),
        "audit known": np.array([audit.known], np.int64),
    }

    def read(data: bytes) -> Any:
        sealed = SUITE.encrypt(data, sealing_key(manifest, "north"), facts.context())
        signature = querier.identity.sign(facts.context(), sealed)
        whole = SealedQuery(facts, sealed, signature).to_bytes()
        return open_query(SealedQuery.from_bytes(whole, manifest), north, 2)

    return [save(tensors)], read


@parser("service: opening of a batch", m.of_json)
def _opening(folder: Path) -> tuple[list[bytes], Read]:
    from secure_fl.service.arrivals import _read_opening
    from secure_fl.service.limits import Limits
    from secure_fl.service.members import signature_keys
    from secure_fl.service.registry import Federation, Registered
    from secure_fl.service.sealed_query import seal_query

    manifest, querier, _, (facts, audit) = _sealed_query(folder)
    expires = time.time() + 3600
    sealed = {}
    for name in manifest.clients:
        told = attrs.evolve(facts, contributor=name, expires=expires)
        query = seal_query(told, np.ones((3, 2), np.float32), audit, querier, manifest)
        sealed[name] = base64.b64encode(query.to_bytes()).decode()
    content = {"queries": 5, "quorum": 2, "patience": 1.0, "expires": expires, "sealed": sealed}
    # What is looked at of a public key; the keys of one take a while.
    public: Any = make_dataclass("Public", ["fingerprint"])(facts.public)
    keys = {"querier": Registered(folder, public)}
    federation = Federation(folder, manifest, keys, signature_keys(manifest))
    caller: Any = make_dataclass("Known", ["federation", "name"])(federation, "querier")
    return [m.text_of(content)], lambda data: _read_opening(Limits(), caller, "b", data)


@parser("service: answer of a masked sum", m.of_envelope(m.of_tensors))
def _masked_answer(folder: Path) -> tuple[list[bytes], Read]:
    from secure_fl.federation import wire
    from secure_fl.federation.secagg import ProtocolServer
    from secure_fl.federation.secagg.parameters import PROTOCOL
    from secure_fl.service.masked_querier import _answer
    from secure_fl.service.masked_words import ANSWER
    from tests.secure_fl.federation.protocol import Party

    party = Party(3, length=8)
    party.confirm(party.mask(party.share(party.advertise())))
    found = {
        **{"protocol": PROTOCOL, "setup": "b", "place": 0},
        **{"sum": party.server.masked_sum(), "clients": ["north"], "shares": ["00ff"]},
    }

    def read(data: bytes) -> Any:
        content = _answer(data, "b")
        return ProtocolServer.opener(party.parameters, content["sum"], 8)

    return [wire.encode(found, kind=ANSWER)], read


@parser("service: offered sum", m.of_envelope())
def _offered_sum(folder: Path) -> tuple[list[bytes], Read]:
    from secure_fl.service.masked_offer import Keys, Offer

    samples = [Offer("b2", Keys("b1", 3), b"sealed"), Offer("b1", Keys("b1", 0), b"sealed")]
    return [each.to_bytes() for each in samples], Offer.from_bytes


@parser("service: set-up of keys", m.of_envelope(m.of_tensors))
def _kept_set_up(folder: Path) -> tuple[list[bytes], Read]:
    from secure_fl.federation import wire
    from secure_fl.service.setup_store import KIND, read_set_up
    from tests.secure_fl.federation.protocol import Party

    party = Party(3, length=8, sums=2)
    party.share(party.advertise())
    sample = wire.encode(party.server.setup.dump(), kind=KIND)
    return [sample], lambda data: read_set_up(data, party.parameters)


@parser("service: status of a batch", m.of_json)
def _batch_status(folder: Path) -> tuple[list[bytes], Read]:
    from secure_fl.service.querier import _status

    content = {
        **{"state": "answered", "reason": "", "done": 1, "total": 2},
        **{"present": ["north"], "clients": {"north": "sent"}, "refusals": {}},
    }
    return [m.text_of(content)], _status


@parser("service: batches that wait", m.of_json)
def _asked(folder: Path) -> tuple[list[bytes], Read]:
    from secure_fl.service.contributor_loop import _names

    return [m.text_of({"batches": ["b1", "b2"]})], _names


@parser("identity")
def _identity(folder: Path) -> tuple[list[bytes], Read]:
    from secure_fl.crypto.identities import read_identity, write_identity

    write_identity(folder / "a")
    return [(folder / "a").read_bytes()], from_file(folder / "b", read_identity)


@parser("directory", m.of_json)
def _directory(folder: Path) -> tuple[list[bytes], Read]:
    from secure_fl.crypto.identities import MARK, read_directory, write_identity

    keys = {name: write_identity(folder / name) for name in ("north", "south")}
    asks = {**keys, "lab": MARK + write_identity(folder / "lab")}
    return [m.text_of(keys), m.text_of(asks)], from_file(folder / "directory.json", read_directory)


@parser("node: description of a sum", m.of_envelope(m.of_tensors))
def _described(folder: Path) -> tuple[list[bytes], Read]:
    from secure_fl.federation import wire
    from secure_fl.federation.trees import flatten
    from secure_fl.flower.descriptions import (
        describe,
        describe_parameters,
        encoding_of,
        parameters_of,
        structure_of,
    )
    from tests.secure_fl.federation.protocol import Party

    structure, _ = flatten({"a": np.ones(3), "b": (np.ones((2, 2)), np.ones(1))})
    value = {
        "parameters": describe_parameters(Party(3).parameters),
        "coding": {"clip": 1.0, "clients": 3, "bits": 64, "outside": "clip"},
        "tree": describe(structure),
    }

    def read(data: bytes) -> Any:
        # As the node does, which takes these errors for a request that it cannot follow.
        try:
            found = wire.decode(data, kind="federation request", source="server")
            described = found["parameters"], found["coding"], found["tree"]
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            raise NotFollowedError from error
        with followed():
            parameters_of(described[0], bytes(32), bytes(32))
            encoding_of(described[1])
        return structure_of(described[2])

    return [wire.encode(value, kind="federation request")], read


@parser("node: an app's settings")
def _app(folder: Path) -> tuple[list[bytes], Read]:
    import zipfile

    from secure_fl.flower.app_settings import settings_of_app

    text = '[tool.flwr.app.config]\nmethod = "krr"\nridge = 0.1\n[tool.flwr.app.config.a]\nb = 1\n'
    samples = []
    for kind in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        made = io.BytesIO()
        with zipfile.ZipFile(made, "w", kind) as archive:
            archive.writestr("pyproject.toml", text)
        samples.append(made.getvalue())
    return samples, lambda data: settings_of_app(data, {})


@parser("training: a message", m.of_envelope(m.of_tensors))
def _training_message(folder: Path) -> tuple[list[bytes], Read]:
    from secure_fl.federation import wire
    from secure_fl.flower.descriptions import as_array
    from secure_fl.service.coordinator import MESSAGE
    from secure_fl.service.trainee import read_message

    told = {"number": "ab", "request": as_array(b"what"), "settings": {"method": "krr", "seed": 1}}
    return [wire.encode(told, kind=MESSAGE)], read_message


@parser("training: an answer", m.of_envelope(m.of_tensors))
def _training_answer(folder: Path) -> tuple[list[bytes], Read]:
    from secure_fl.federation import wire
    from secure_fl.flower.descriptions import as_array
    from secure_fl.service.coordinator import FETCH, handed_in

    told = {"last": "ab", "answer": as_array(b"what")}
    return [wire.encode(told, kind=FETCH)], handed_in


class NotFollowedError(Exception):
    """The errors that a function's own docstring states, where its caller takes them."""


@contextmanager
def followed() -> Iterator[None]:
    """Takes what `flower.descriptions` states."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise NotFollowedError from error


from tests.fuzz import living  # noqa: E402, F401  # it registers more, with what is above
