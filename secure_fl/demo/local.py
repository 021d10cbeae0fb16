"""The whole way on real digits: files, heads, keys, ciphertexts, answers."""

import secrets
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import fhe
from kahm import classify
from secure_fl.data import Dataset, read_clients, write_clients
from secure_fl.data.samples import digits_split
from secure_fl.data.splitting import Division, divide
from secure_fl.files import new_folder
from secure_fl.heads.codes import head_codes, rule_parameters
from secure_fl.heads.fitting import train_heads
from secure_fl.heads.head import Head
from secure_fl.heads.manifest import Manifest, make_manifest
from secure_fl.heads.run_folder import all_measures, create_run, load_run
from secure_fl.progress import Progress, quiet

CLIENTS = 5
ALPHA = 0.5
BITS = 8
FAILURE_EXPONENT = 128
BLOCK = 10


@dataclass(frozen=True)
class Demonstration:
    """What was found; every number was measured in this run."""

    clients: int
    training_records: int
    test_records: int
    bits: int
    accuracy: float
    coded_accuracy: float
    queries: int
    encrypted_right: int
    agreeing: int
    failure_exponent: int
    key_seconds: float
    seconds_per_answer: float
    contribution_bytes: int
    answer_bytes: int
    evaluation_key_bytes: int
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """All fields."""
        return asdict(self)


def demonstrate(
    *, seed: int, queries: int, keep: Path | None = None, progress: Progress = quiet
) -> Demonstration:
    """Trains five clients on skewed digits and classifies test digits on ciphertexts.

    Args:
        seed: of the data's division.
        queries: test digits to classify encrypted, at least 1.
        keep: a new folder for the files; None writes them to a temporary one.
        progress: told of every phase.

    Raises:
        InputError: `keep` exists.
    """
    start = time.perf_counter()
    with _folder(keep) as folder:
        manifest, heads, test = _trained(folder, seed, progress)
        measures = all_measures(heads, test.X, manifest)
        codes = np.stack([head_codes(head, test.X, manifest) for head in heads], axis=1)
        clear = classify(codes)
        begun = time.perf_counter()
        parameters = rule_parameters(manifest, failure_exponent=FAILURE_EXPONENT, block=BLOCK)
        progress("drawing keys", 0, 1)
        keys = fhe.generate_keys(parameters)
        public = fhe.make_public_key(keys)
        progress("drawing keys", 1, 1)
        key_seconds = time.perf_counter() - begun
        count = min(queries, len(test))
        sent = _contributions(codes[:count], public, manifest)
        sizes = [message.save(folder / f"{message.name}.contribution") for message in sent]
        begun = time.perf_counter()
        answer = fhe.evaluate(sent, keys.evaluation, public, progress=progress)
        seconds = time.perf_counter() - begun
        found = fhe.read_answer(answer, keys)
        return Demonstration(
            clients=CLIENTS,
            training_records=sum(len(head.bank.records) for head in heads),
            test_records=len(test),
            bits=BITS,
            accuracy=float(np.mean(classify(measures) == test.y)),
            coded_accuracy=float(np.mean(clear == test.y)),
            queries=count,
            encrypted_right=int(np.sum(found == test.y[:count])),
            agreeing=int(np.sum(found == clear[:count])),
            failure_exponent=FAILURE_EXPONENT,
            key_seconds=key_seconds,
            seconds_per_answer=seconds / count,
            contribution_bytes=max(sizes),
            answer_bytes=answer.save(folder / "answer"),
            evaluation_key_bytes=len(keys.evaluation.content),
            seconds=time.perf_counter() - start,
        )


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="securefl-demo-") as name:
            yield Path(name)
    else:
        with new_folder(keep) as aside:
            yield aside


def _trained(folder: Path, seed: int, progress: Progress) -> tuple[Manifest, list[Head], Dataset]:
    """Writes the clients' files, trains from them, and loads the run again."""
    train, test = digits_split(np.random.default_rng(seed))
    write_clients(folder / "clients", divide(train, Division("dirichlet", CLIENTS, ALPHA), seed))
    clients = read_clients(folder / "clients")
    manifest = make_manifest(
        classes=clients[0].classes,
        clients=tuple(client.name for client in clients),
        n_features=clients[0].n_features,
        bits=BITS,
    )
    heads = train_heads(
        [(client.name, client.X, client.y) for client in clients], manifest, progress=progress
    )
    create_run(folder / "run", heads, manifest)
    return (*load_run(folder / "run"), test)


def _contributions(
    codes: np.ndarray[Any, np.dtype[np.int64]], public: fhe.PublicKey, manifest: Manifest
) -> list[fhe.Contribution]:
    batch = secrets.token_hex(8)
    return [
        fhe.contribute(
            codes[:, i],
            public,
            contributor=i,
            name=name,
            federation=manifest.fingerprint,
            batch=batch,
        )
        for i, name in enumerate(manifest.clients)
    ]
