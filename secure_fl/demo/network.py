"""Three contributors, an evaluator and a querier that asks twice, each a process of this machine.

The second time one contributor was killed, and the answer rests on a quorum of two. All of it
happens under the encrypted rule, then under the rule masked.
"""

import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from kahm import classify
from secure_fl.data import Dataset, read_clients, write_clients
from secure_fl.data.samples import digits_split
from secure_fl.data.splitting import Division, divide
from secure_fl.demo.service_parties import Deployment, deployment, set_up
from secure_fl.errors import ServiceError
from secure_fl.heads.codes import head_codes
from secure_fl.heads.fitting import train_heads
from secure_fl.heads.head import Head
from secure_fl.heads.manifest import Manifest, make_manifest
from secure_fl.progress import Progress, quiet

CLIENTS = 3
ALPHA = 0.1
BITS = 8
FAILURE_EXPONENT = 128
BLOCK = 10


@dataclass(frozen=True)
class NetworkDemonstration:
    """What was found; every number was measured in this run.

    Attributes:
        clients: names of the contributors.
        queries: digits asked about, each time.
        agreeing: answers equal to the clear rule.
        right: answers equal to the digit's label.
        seconds: from the start of the querier to its answers.
        killed: the contributor with most records, which was killed.
        quorum_present: contributors of the second answer.
        quorum_agreeing: answers equal to the clear rule over these.
        quorum_differing: of the clear rule's answers, those that the killed one would change.
        quorum_seconds: as `seconds`, the second time.
        bytes_in: HTTP headers and bodies that the evaluator took, both times.
        bytes_out: those that it sent.
        masked_agreeing: under the rule masked, answers equal to the clear rule, both times.
        masked_asked: answers under the rule masked, both times.
        masked_seconds: as `seconds`, under the rule masked.
        masked_quorum_seconds: as `quorum_seconds`, under the rule masked.
        whole_seconds: of everything.
    """

    clients: tuple[str, ...]
    queries: int
    agreeing: int
    right: int
    seconds: float
    killed: str
    quorum_present: tuple[str, ...]
    quorum_agreeing: int
    quorum_differing: int
    quorum_seconds: float
    bytes_in: int
    bytes_out: int
    masked_agreeing: int
    masked_asked: int
    masked_seconds: float
    masked_quorum_seconds: float
    whole_seconds: float

    def to_json(self) -> dict[str, Any]:
        """All fields."""
        return asdict(self)


def train_parties(folder: Path, seed: int) -> tuple[Manifest, list[Head], Dataset]:
    """Digits divided over three clients' files, and the head of each; returns the test digits."""
    train, test = digits_split(np.random.default_rng(seed))
    write_clients(folder, divide(train, Division("dirichlet", CLIENTS, ALPHA), seed))
    clients = read_clients(folder)
    manifest = make_manifest(
        classes=clients[0].classes,
        clients=tuple(client.name for client in clients),
        n_features=clients[0].n_features,
        bits=BITS,
    )
    heads = train_heads([(client.name, client.X, client.y) for client in clients], manifest)
    return manifest, heads, test


def demonstrate_network(
    *, seed: int, queries: int, progress: Progress = quiet
) -> NetworkDemonstration:
    """Runs all parties as processes and compares their answers with the clear rule.

    Args:
        seed: of the data's division.
        queries: test digits to ask about, at least 1.
        progress: told of every phase.

    Raises:
        ServiceError: a party did not start, or the querier failed.
    """
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="securefl-network-") as name:
        folder = Path(name)
        progress("training heads and drawing keys", 0, 1)
        facts, heads, test = train_parties(folder / "clients", seed)
        asked = np.asarray(test.X[:queries])
        np.save(folder / "queries.npy", asked)
        manifest = set_up(
            folder / "parties", facts, heads, failure_exponent=FAILURE_EXPONENT, block=BLOCK
        )
        codes = np.stack([head_codes(head, asked, manifest) for head in heads], axis=1)
        clear = classify(codes)
        # The one whose absence shows most.
        killed = max(heads, key=lambda head: len(head.bank.records)).client
        with deployment(folder / "parties") as running:
            progress("starting an evaluator and three contributors", 0, 1)
            running.start("evaluator")
            running.start_contributors(manifest.clients)
            progress("all contributors answer", 0, 1)
            first, seconds = _ask(running, folder / "queries.npy")
            running.kill(killed)
            progress(f"{killed} is killed, a quorum of two answers", 0, 1)
            options = ("--quorum", str(CLIENTS - 1), "--patience", "1")
            second, quorum_seconds = _ask(running, folder / "queries.npy", *options)
            counters = running.metrics()
        masked = _masked(folder, facts, heads, asked, codes, killed, progress)
    present = tuple(second["present"])
    positions = [manifest.client_index(client) for client in present]
    clear_quorum = classify(codes[:, positions])
    return NetworkDemonstration(
        clients=manifest.clients,
        queries=len(asked),
        agreeing=_equal(first, clear, manifest),
        right=_equal(first, np.asarray(test.y[:queries]), manifest),
        seconds=seconds,
        killed=killed,
        quorum_present=present,
        quorum_agreeing=_equal(second, clear_quorum, manifest),
        quorum_differing=int(np.sum(clear_quorum != clear)),
        quorum_seconds=quorum_seconds,
        bytes_in=int(counters['securefl_http_bytes_total{direction="in"}']),
        bytes_out=int(counters['securefl_http_bytes_total{direction="out"}']),
        **masked,
        whole_seconds=time.perf_counter() - start,
    )


def _masked(
    folder: Path,
    facts: Manifest,
    heads: Sequence[Head],
    asked: NDArray[Any],
    codes: NDArray[np.int64],
    killed: str,
    progress: Progress,
) -> dict[str, Any]:
    """The same under the rule masked: no keys, and the sum of who is left."""
    own = folder / "masked"
    manifest = set_up(
        own, attrs.evolve(facts, rule="masked"), heads, failure_exponent=FAILURE_EXPONENT, block=1
    )
    quorum = ("--quorum", str(CLIENTS - 1), "--patience", "1")
    rest = [i for i, name in enumerate(manifest.clients) if name != killed]
    with deployment(own) as running:
        progress("the rule masked: starting the parties, without keys", 0, 1)
        running.start("evaluator")
        # Heads of a demonstration hold public digits; a quorum of two is all that one kill leaves.
        terms = ("--exact-heads", "--min-quorum", str(CLIENTS - 1))
        running.start_contributors(manifest.clients, *terms)
        progress("the rule masked: all contributors, then without one", 0, 1)
        first, seconds = _ask(running, folder / "queries.npy")
        running.kill(killed)
        second, quorum_seconds = _ask(running, folder / "queries.npy", *quorum)
    return {
        "masked_agreeing": _equal(first, classify(codes), manifest)
        + _equal(second, classify(codes[:, rest]), manifest),
        "masked_asked": 2 * len(asked),
        "masked_seconds": seconds,
        "masked_quorum_seconds": quorum_seconds,
    }


def _ask(running: Deployment, queries: Path, *options: str) -> tuple[dict[str, Any], float]:
    """What the querier printed, and its seconds."""
    start = time.perf_counter()
    process = running.query(queries, *options)
    out, err = process.communicate()
    if process.returncode != 0:
        raise ServiceError(f"querier: {err.decode(errors='replace').strip()[-500:]}")
    return json.loads(out), time.perf_counter() - start


def _equal(found: dict[str, Any], codes: NDArray[np.integer[Any]], manifest: Manifest) -> int:
    return sum(a == manifest.classes[b] for a, b in zip(found["classes"], codes, strict=True))
