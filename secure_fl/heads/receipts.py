"""Signed receipts of erasures: JSON with an Ed25519 signature over everything else in it."""

import json
from pathlib import Path
from typing import Any

import attrs

from secure_fl.crypto.keys import KEY, SIGNATURE, Identity, verify
from secure_fl.errors import FormatError, InputError, ProtocolError
from secure_fl.files import read_json_object
from secure_fl.heads.forgetting import Erasure
from secure_fl.heads.manifest import Manifest
from secure_fl.heads.typed_json import read_as

FORMAT = "securefl receipt of erasure"
VERSION = 1
MAX_BYTES = 16 * 2**20
_LABEL = b"receipt of erasure"


def signed_receipt(erasure: Erasure, identity: Identity) -> str:
    """The receipt's text.

    Args:
        erasure: what was done.
        identity: of the client.
    """
    body = {
        "format": FORMAT,
        "version": VERSION,
        **attrs.asdict(erasure),
        "signer": identity.public.hex(),
    }
    signature = identity.sign(_LABEL, _signed(json.loads(json.dumps(body))))
    return json.dumps({**body, "signature": signature.hex()}, indent=2) + "\n"


def listed_key(manifest: Manifest, client: str) -> bytes:
    """The public signature key that a federation lists for a client, 32 bytes.

    Raises:
        InputError: it lists none.
    """
    keys = dict(manifest.members)
    if client not in keys:
        raise InputError(
            f"federation.json: lists no key of {client!r}; name its public key instead, or enrol"
            " the members (securefl serve enrol)"
        )
    return bytes.fromhex(keys[client])[:KEY]


def read_receipt(path: Path, public: bytes, federation: str | None = None) -> Erasure:
    """A receipt whose signature was checked.

    Args:
        path: of the file.
        public: key of the client, known from elsewhere.
        federation: fingerprint that the receipt must be of; None for any.

    Raises:
        FormatError: not a receipt, of another version, or altered.
        InputError: signed by another key, or of another federation.
    """
    content = read_json_object(path, MAX_BYTES, "receipt, as `securefl forget` writes it")
    if content.get("format") != FORMAT or content.get("version") != VERSION:
        raise FormatError(
            f"{path}: format {content.get('format')!r} version {content.get('version')!r}, expected"
            f" {FORMAT!r} version {VERSION}"
        )
    signature = content.pop("signature", None)
    if content.get("signer") != public.hex():
        raise InputError(
            f"{path}: signed by the key {str(content.get('signer'))[:64]!r}, expected"
            f" {public.hex()}; ask the client which key is its own"
        )
    try:
        given = bytes.fromhex(signature)
        verify({"client": public}, "client", given, _LABEL, _signed(content))
        if len(given) != SIGNATURE:
            raise ValueError("a signature of another length")
        found: Erasure = read_as(Erasure, content)
    except (ProtocolError, ValueError, TypeError, LookupError, OverflowError):
        raise FormatError(
            f"{path}: altered after it was signed; it proves nothing, ask the client for its copy"
        ) from None
    if federation is not None and found.federation != federation:
        raise InputError(
            f"{path}: of the federation {found.federation[:16]}, expected {federation[:16]}"
        )
    return found


def _signed(body: dict[str, Any]) -> bytes:
    return json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def numbers_in(path: Path) -> list[int]:
    """Record numbers of a text file: one or more a line, between blanks or commas.

    Raises:
        InputError: it cannot be read, or holds something else.
    """
    try:
        words = path.read_text(encoding="utf-8").replace(",", " ").split()
        return [int(word) for word in words]
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError:
        raise InputError(
            f"{path}: not a list of record numbers; expected whole numbers from 0, or a client file"
            " (.npz, .csv) with the records themselves"
        ) from None
