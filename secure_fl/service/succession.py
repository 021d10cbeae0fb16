"""Members join and leave: a successor of a manifest, signed by every member that it names.

A successor differs from the manifest before it in clients, queriers and keys alone, and has the
fingerprints of all before it inside. What was made for one of them and does not depend on who
takes part stays valid: heads, with their indexes and books. What is bound to the old fingerprint
does not: contributions, batches, answers.
"""

import json
from collections.abc import Mapping
from pathlib import Path

import attrs

from fhe.envelope import write_atomic
from secure_fl.crypto.identities import EVALUATOR
from secure_fl.crypto.keys import Directory, verify
from secure_fl.errors import FormatError, InputError, ProtocolError
from secure_fl.files import make_folder, read_json_object
from secure_fl.heads.manifest import (
    FILE_NAME,
    FORMAT_VERSION,
    MAX_BYTES,
    Manifest,
    load_manifest,
    make_manifest,
    manifest_of,
    save_manifest,
)
from secure_fl.service.members import Member, signature_keys

FORMAT = "securefl successor"
VERSION = 1
_LABEL = b"successor of a federation"
_CHANGES = frozenset({"clients", "queriers", "members", "lineage"})


@attrs.frozen
class Successor:
    """A manifest that follows another one.

    Attributes:
        manifest: with the fingerprints of those before it.
        signatures: hexadecimal, by member.
    """

    manifest: Manifest
    signatures: Mapping[str, str] = attrs.field(factory=dict)

    @property
    def unsigned(self) -> tuple[str, ...]:
        """Members that have not signed."""
        return tuple(name for name, _ in self.manifest.members if name not in self.signatures)


def propose(
    before: Manifest,
    joining: Mapping[str, str],
    leaving: frozenset[str],
    asking: frozenset[str] = frozenset(),
) -> Successor:
    """A successor without signatures.

    Args:
        before: the manifest that it follows; it lists its members' keys.
        joining: public keys of new parties, or new keys of members, by name; new clients come
            after the others, and so do new queriers.
        leaving: clients and queriers that are no longer in it.
        asking: which of those that join are queriers.

    Raises:
        InputError: no keys in the manifest, an unknown member that leaves, nobody left, the
            evaluator or the last querier leaves, a client is to be a querier, a key of somebody
            else's, or no change.
    """
    keys = {name: key.hex() for name, key in signature_keys(before).items()}
    whole = dict(before.members)
    asked_by = [*(name for name in before.queriers if name not in leaving), *asking]
    for name in sorted(leaving):
        if name not in before.parties or name == EVALUATOR or not asked_by:
            raise InputError(
                f"member {name!r}: cannot leave, the clients are {', '.join(before.clients)[:200]}"
                f" and the queriers {', '.join(before.queriers)[:200]}, of whom one must stay"
            )
        if name in joining:
            raise InputError(f"member {name!r}: both joins and leaves")
    for name in sorted(joining):
        if name in whole and (name in asking) != (name in before.queriers):
            raise InputError(
                f"member {name!r}: is in the federation, and does something else there"
            )
    if len(set(joining.values())) < len(joining) or any(
        key == whole.get(other) for name, key in joining.items() for other in keys if other != name
    ):
        raise InputError("members: two of them have the same key; each makes its own")
    new = [name for name in joining if name not in whole]
    clients, queriers = (
        [*(name for name in old if name not in leaving), *joined]
        for old, joined in (
            (before.clients, [name for name in new if name not in asking]),
            (before.queriers, [name for name in new if name in asking]),
        )
    )
    lineage = (*before.lineage, (before.fingerprint, before.heads_fingerprint))
    listed = {**whole, **joining}
    found = make_manifest(
        **{
            **attrs.asdict(before),
            "clients": clients,
            "queriers": queriers,
            "members": [(name, listed[name]) for name in (*clients, *queriers, EVALUATOR)],
            "lineage": lineage,
        }
    )
    if (found.clients, found.members) == (before.clients, before.members):
        raise InputError("members: nobody joins, leaves or has a new key")
    return Successor(found)


def sign(successor: Successor, member: Member) -> Successor:
    """The successor with one more signature."""
    signature = member.identity.sign(*_signed(successor.manifest, member.name)).hex()
    return Successor(successor.manifest, {**successor.signatures, member.name: signature})


def check(successor: Successor, before: Manifest | None) -> None:
    """Refuses a successor that may not be taken over.

    Args:
        successor: as it came.
        before: the manifest that is in use; None for a client that has none yet, which compares
            the fingerprint by another way.

    Raises:
        InputError: a signature is missing or not its member's, it follows another manifest, or it
            changes more than members.
    """
    manifest = successor.manifest
    if successor.unsigned:
        raise InputError(f"successor: not signed by {', '.join(successor.unsigned)[:200]}")
    keys: Directory = signature_keys(manifest)
    for name in keys:
        _check_signature(successor, keys, name)
    if before is None:
        return
    if not manifest.lineage or manifest.lineage[-1][0] != before.fingerprint:
        raise InputError(
            f"successor: follows another manifest than {before.fingerprint[:16]}, which is in use;"
            " take over the ones between first"
        )
    kept = manifest.lineage == (
        *before.lineage,
        (before.fingerprint, before.heads_fingerprint),
    )
    facts = (attrs.asdict(each) for each in (before, manifest))
    old, new = ({k: v for k, v in each.items() if k not in _CHANGES} for each in facts)
    if old != new or not kept:
        wrong = sorted(key for key in old if old[key] != new[key]) or ["lineage"]
        raise InputError(f"successor: changes {', '.join(wrong)}, and may change members alone")


def _check_signature(successor: Successor, keys: Directory, name: str) -> None:
    try:
        signature = bytes.fromhex(successor.signatures[name])
        verify(keys, name, signature, *_signed(successor.manifest, name))
    except (ProtocolError, ValueError):
        raise InputError(
            f"successor: the signature of {name!r} is not its own over this manifest; it was"
            " altered, ask for it again"
        ) from None


def adopt(run: Path, successor: Successor) -> Manifest | None:
    """Takes a successor over: one file is replaced, or made for a client that is new.

    Args:
        run: the run folder; made where it is absent.
        successor: that is checked here.

    Returns:
        The manifest before, or None.

    Raises:
        InputError: as `check`, or the place cannot be used.
    """
    before = load_manifest(run) if (run / FILE_NAME).exists() else None
    check(successor, before)
    make_folder(run)
    save_manifest(run, successor.manifest)
    return before


def save_successor(path: Path, successor: Successor) -> None:
    """Writes a successor with its signatures, whole or not at all."""
    manifest = successor.manifest
    content = {
        "format": FORMAT,
        "version": VERSION,
        "manifest": {
            "format": FORMAT_VERSION,
            "fingerprint": manifest.fingerprint,
            **manifest.facts,
        },
        "signatures": dict(successor.signatures),
    }
    write_atomic(path, (json.dumps(content, indent=2) + "\n").encode())


def load_successor(path: Path) -> Successor:
    """Reads a successor; its signatures are not checked.

    Raises:
        InputError: not one, of another version, or edited.
    """
    content = read_json_object(path, MAX_BYTES, "successor, as `securefl members propose` makes it")
    if content.get("format") != FORMAT or content.get("version") != VERSION:
        raise FormatError(
            f"{path}: format {content.get('format')!r} version {content.get('version')!r}, expected"
            f" {FORMAT!r} version {VERSION}"
        )
    described, signatures = content.get("manifest"), content.get("signatures")
    if not isinstance(described, dict) or not isinstance(signatures, dict):
        raise FormatError(f"{path}: without a manifest or signatures; get it again")
    if not all(isinstance(each, str) for each in signatures.values()):
        raise FormatError(f"{path}: holds a signature that is no text; get it again")
    return Successor(manifest_of(described, path), signatures)


def _signed(manifest: Manifest, name: str) -> tuple[bytes, ...]:
    return _LABEL, manifest.fingerprint.encode(), name.encode()
