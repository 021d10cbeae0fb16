"""Parsers of what heads that live leave on disk; imported by `tests.fuzz.parsers`."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from tests.fuzz import mutations as m
from tests.fuzz.parsers import Read, from_file, parser

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "v6"


@parser("record index", m.of_envelope(m.of_tensors))
def _index(folder: Path) -> tuple[list[bytes], Read]:
    from secure_fl.heads.index import index_path, load_index
    from secure_fl.heads.manifest import load_manifest

    manifest = load_manifest(GOLDEN / "run")
    path = index_path(folder, "north")
    path.parent.mkdir(parents=True)

    def read(_: Path) -> Any:
        index = load_index(folder, "north", manifest)
        return index.order, index.stored_sizes, index.find(index.digests)

    samples = [index_path(GOLDEN / "run", name).read_bytes() for name in ("north",)]
    return samples, from_file(path, read)


def _identity() -> Any:
    from secure_fl.crypto.keys import Identity

    return Identity(lambda n: bytes(n))


def _signed_again(data: bytes, rng: Any) -> bytes:
    """A receipt whose signature fits again: by a member that lies, say."""
    from secure_fl.heads.receipts import _LABEL, _signed

    changed = m.of_json(data, rng)
    try:
        body = json.loads(changed)
        body.pop("signature", None)
        body["signer"] = _identity().public.hex()
        signature = _identity().sign(_LABEL, _signed(body)).hex()
        return m.text_of({**body, "signature": signature})
    except Exception:  # Whatever it is now goes to the parser as it is.
        return changed


@parser("receipt", _signed_again)
def _receipt(folder: Path) -> tuple[list[bytes], Read]:
    from secure_fl.heads.receipts import _LABEL, _signed, read_receipt

    body = json.loads((GOLDEN / "receipt.json").read_bytes())
    body.pop("signature")
    body["signer"] = _identity().public.hex()
    signature = _identity().sign(_LABEL, _signed(body)).hex()
    samples = [json.dumps({**body, "signature": signature}).encode()]

    def read(path: Path) -> Any:
        from cli.living import _told

        return _told(read_receipt(path, _identity().public), None)

    return samples, from_file(folder / "receipt.json", read)


@parser("successor", m.of_json)
def _successor(folder: Path) -> tuple[list[bytes], Read]:
    from secure_fl.heads.manifest import load_manifest
    from secure_fl.service.succession import check, load_successor

    before = load_manifest(GOLDEN / "run")

    def read(path: Path) -> Any:
        check(load_successor(path), before)

    return [(GOLDEN / "successor.json").read_bytes()], from_file(folder / "successor", read)


@parser("watch", m.of_json)
def _watch(folder: Path) -> tuple[list[bytes], Read]:
    from secure_fl.heads.watching import drift, load_watch

    def read(path: Path) -> Any:
        return drift(load_watch(path, np.array([0.1, 0.2])).counts(), 2)

    return [(GOLDEN / "watch.json").read_bytes()], from_file(folder / "watch.json", read)
