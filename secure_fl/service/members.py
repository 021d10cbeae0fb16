"""Members of a federation on a network: two public keys each, both of one secret file.

See `secure_fl.crypto.identities` for the file.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs
from attrs import field, frozen
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from secure_fl.crypto.identities import (
    QUERIER,
    public_of,
    read_identity,
    sealing_of,
    write_identity,
)
from secure_fl.crypto.keys import KEY, Directory, Identity
from secure_fl.errors import InputError
from secure_fl.heads.manifest import Manifest, make_manifest


@frozen
class Member:
    """A party with its secrets.

    Attributes:
        name: a client's, a querier's or "evaluator".
        identity: signs.
        sealing: opens what is sealed to it.
    """

    name: str
    identity: Identity = field(repr=False)
    sealing: X25519PrivateKey = field(repr=False)

    @property
    def public(self) -> str:
        """Both public keys, 128 hexadecimal digits, as the manifest lists them."""
        return (self.identity.public + self.sealing.public_key().public_bytes_raw()).hex()


def make_member_keys(path: Path) -> str:
    """Makes a member's secret file, mode 0600; returns its public keys.

    Raises:
        InputError: the file exists.
    """
    write_identity(path)
    return public_of(path)


def read_member(path: Path, name: str, manifest: Manifest) -> Member:
    """A party's secrets, if the manifest lists their public halves under its name.

    Raises:
        InputError: the file cannot be used, or belongs to another member.
    """
    found = read_secrets(path, name)
    listed = member_keys(manifest)
    if name not in listed:
        raise InputError(f"member {name!r}: the federation has {', '.join(listed)[:200]}")
    if found.public != listed[name]:
        raise InputError(
            f"{path}: not the key that federation.json lists for {name!r}; name the right file, or"
            " enrol this key (securefl serve enrol)"
        )
    return found


def read_querier(path: Path, manifest: Manifest) -> Member:
    """The secrets of the querier whose public halves the manifest lists.

    Raises:
        InputError: the file cannot be used, or is no querier's.
    """
    if len(manifest.queriers) == 1:
        return read_member(path, manifest.queriers[0], manifest)
    public, listed = public_of(path), member_keys(manifest)
    for name in manifest.queriers:
        if listed[name] == public:
            return read_member(path, name, manifest)
    raise InputError(
        f"{path}: not the key that federation.json lists for any of its queriers"
        f" {', '.join(manifest.queriers)[:200]}; name the right file"
    )


def member_keys(manifest: Manifest) -> Mapping[str, str]:
    """Public keys by name.

    Raises:
        InputError: the manifest lists none.
    """
    if not manifest.members:
        raise InputError(
            "federation.json: lists no keys of members; add them with securefl serve enrol"
        )
    return dict(manifest.members)


def signature_keys(manifest: Manifest) -> Directory:
    """The keys that check signatures, by name."""
    return {name: bytes.fromhex(keys)[:KEY] for name, keys in member_keys(manifest).items()}


def sealing_key(manifest: Manifest, name: str) -> X25519PublicKey:
    """The key to seal to a member with."""
    return X25519PublicKey.from_public_bytes(bytes.fromhex(member_keys(manifest)[name])[KEY:])


def enrol(
    manifest: Manifest, keys: Mapping[str, str], queriers: Sequence[str] = (QUERIER,)
) -> Manifest:
    """The manifest with these members; its fingerprint changes, its heads stay.

    Args:
        manifest: of the federation.
        keys: public keys of all clients, of all queriers and of "evaluator", by name.
        queriers: who may ask, at least 1.

    Raises:
        InputError: a party is missing, unknown, or two of them have the same key; or the name of
            a querier is another party's.
    """
    facts = {**attrs.asdict(manifest), "members": (), "queriers": tuple(queriers)}
    names = make_manifest(**facts).parties
    wrong = sorted(set(names) ^ set(keys))
    if wrong:
        state = "missing" if wrong[0] in names else "no member"
        raise InputError(f"member {wrong[0]!r}: {state}; expected {', '.join(names)[:200]}")
    if len(set(keys.values())) < len(keys):
        raise InputError("members: two of them have the same key; each makes its own")
    return make_manifest(**{**facts, "members": [(name, keys[name]) for name in names]})


def read_secrets(path: Path, name: str) -> Member:
    """A party's secrets, whoever lists their public halves.

    Raises:
        InputError: the file cannot be used.
    """
    return Member(name, read_identity(path), sealing_of(path))
